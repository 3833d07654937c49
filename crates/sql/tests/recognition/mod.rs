//! Whether the documented grammar allows a text: every way to read it is followed at once.

use std::collections::{BTreeSet, HashMap};

use lockstep_sql::grammar::Notation;

use super::expansion::Grammar;

/// The signs of two characters.
const PAIRS: [&str; 9] = ["==", "!=", "<>", "<=", ">=", "||", "&&", "@@", "::"];

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lexeme {
    Word,
    /// In back-quotes.
    Name,
    /// In single or double quotes.
    Text,
    Number,
    Sign,
}

/// Follows the rules over the tokens of one text.
pub(crate) struct Recogniser<'t> {
    grammar: &'t Grammar,
    /// The words that are no names.
    reserved: &'t [&'t str],
    tokens: Vec<(Lexeme, &'t str)>,
    /// Where a rule ends that begins at a token.
    known: HashMap<(&'static str, usize), BTreeSet<usize>>,
}

impl<'t> Recogniser<'t> {
    pub(crate) fn new(grammar: &'t Grammar, reserved: &'t [&'t str], text: &'t str) -> Self {
        Self { grammar, reserved, tokens: tokens(text), known: HashMap::new() }
    }

    /// Whether the rule allows the whole text.
    pub(crate) fn allows(&mut self, rule: &Notation<'static>) -> bool {
        self.ends(rule, 0).contains(&self.tokens.len())
    }

    /// Returns the tokens at which a part can end that begins at one.
    fn ends(&mut self, part: &Notation<'static>, at: usize) -> BTreeSet<usize> {
        match part {
            Notation::Keyword(text) => self.one(at, |lexeme, token| {
                lexeme == Lexeme::Word && token.eq_ignore_ascii_case(text)
            }),
            Notation::Sign(text) => self.one(at, |lexeme, token| {
                matches!(lexeme, Lexeme::Sign | Lexeme::Word) && token.eq_ignore_ascii_case(text)
            }),
            Notation::Rule(name) => self.ends_of_rule(name, at),
            Notation::Sequence(parts) => parts.iter().fold(BTreeSet::from([at]), |starts, part| {
                starts.into_iter().flat_map(|start| self.ends(part, start)).collect()
            }),
            Notation::Choice(parts) => parts.iter().flat_map(|part| self.ends(part, at)).collect(),
            Notation::Optional(part) => {
                let mut ends = self.ends(part, at);
                ends.insert(at);
                ends
            }
            Notation::Repeated(part) => {
                let mut ends = BTreeSet::from([at]);
                let mut next = vec![at];
                while let Some(start) = next.pop() {
                    next.extend(self.ends(part, start).into_iter().filter(|end| ends.insert(*end)));
                }
                ends
            }
        }
    }

    fn ends_of_rule(&mut self, name: &'static str, at: usize) -> BTreeSet<usize> {
        let grammar = self.grammar;
        let Some(rule) = grammar.rule(name) else { return self.ends_of_token(name, at) };
        if let Some(known) = self.known.get(&(name, at)) {
            return known.clone();
        }
        let ends = self.ends(rule, at);
        self.known.insert((name, at), ends.clone());
        ends
    }

    /// Returns where a rule of one token ends.
    fn ends_of_token(&self, name: &str, at: usize) -> BTreeSet<usize> {
        let is_reserved =
            |word: &str| self.reserved.iter().any(|known| known.eq_ignore_ascii_case(word));
        let is_whole = |token: &str| token.bytes().all(|byte| byte.is_ascii_digit());
        let unsigned = |token: &'t str| {
            token[1..token.len() - 1].trim().trim_start_matches(['-', '+']).trim_start()
        };
        self.one(at, |lexeme, token| match (name, lexeme) {
            ("name" | "type_name" | "function_name", Lexeme::Name) => true,
            // Behind a dot a reserved word is a name, too.
            ("name", Lexeme::Word) => !is_reserved(token) || self.is_behind_dot(at),
            ("type_name" | "function_name", Lexeme::Word) => !is_reserved(token),
            ("word", Lexeme::Word) => true,
            ("name" | "function_name", Lexeme::Text) => token.starts_with('"'),
            ("read_function", Lexeme::Word) => token.to_ascii_lowercase().starts_with("read_"),
            ("string", Lexeme::Text) => true,
            ("file_path", Lexeme::Text) => {
                token.starts_with('\'') && token.contains(['.', '/', '*'])
            }
            ("number", Lexeme::Number) => !is_duration(token),
            ("duration", Lexeme::Number) => is_duration(token),
            (
                "whole_number" | "text_length" | "binary_digits" | "second_digits",
                Lexeme::Number,
            ) => is_whole(token),
            ("number_text", Lexeme::Text) => is_whole(unsigned(token)),
            ("duration_text" | "calendar_text", Lexeme::Text) => {
                unsigned(token).starts_with(|c: char| c.is_ascii_digit())
            }
            ("job_id", Lexeme::Word | Lexeme::Number) => true,
            _ => false,
        })
    }

    fn is_behind_dot(&self, at: usize) -> bool {
        at > 0 && self.tokens[at - 1].1 == "."
    }

    fn one(&self, at: usize, is_one: impl FnOnce(Lexeme, &'t str) -> bool) -> BTreeSet<usize> {
        let token = self.tokens.get(at);
        token.filter(|(lexeme, token)| is_one(*lexeme, token)).map(|_| at + 1).into_iter().collect()
    }
}

/// Whether a number is one of seconds, minutes, hours or days.
fn is_duration(number: &str) -> bool {
    let (digits, unit) = number.split_at(number.len() - 1);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && matches!(unit.to_ascii_lowercase().as_str(), "s" | "m" | "h" | "d")
}

/// Splits a text that the parser accepts into tokens.
fn tokens(text: &str) -> Vec<(Lexeme, &str)> {
    let mut tokens: Vec<(Lexeme, &str)> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let line = rest.find('\n').unwrap_or(rest.len());
        let letters = |from: &str| from.find(|c: char| !is_letter(c)).unwrap_or(from.len());
        let (lexeme, length) = match first {
            _ if first.is_whitespace() => (None, first.len_utf8()),
            '#' => (None, line),
            '-' if rest.starts_with("--") => (None, line),
            '/' if rest.starts_with("/*") => {
                (None, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            '`' => (Some(Lexeme::Name), quoted_length(rest)),
            '\'' | '"' => (Some(Lexeme::Text), quoted_length(rest)),
            '0'..='9' => (Some(Lexeme::Number), number_length(rest)),
            '.' if is_fraction(&text[..at], rest) => (Some(Lexeme::Number), number_length(rest)),
            _ if is_letter(first) => {
                // `JOB-112` is one token of the grammar.
                let is_job = tokens.last().is_some_and(|(_, last)| {
                    ["JOB", "JOBLOG"].iter().any(|word| word.eq_ignore_ascii_case(last))
                });
                let length = if is_job { rest.find(|c| !is_letter(c) && c != '-') } else { None };
                (
                    Some(Lexeme::Word),
                    length.unwrap_or_else(|| if is_job { rest.len() } else { letters(rest) }),
                )
            }
            _ => {
                let is_pair = PAIRS.iter().any(|pair| rest.starts_with(pair));
                (Some(Lexeme::Sign), if is_pair { 2 } else { first.len_utf8() })
            }
        };
        tokens.extend(lexeme.map(|lexeme| (lexeme, &rest[..length])));
        at += length;
    }
    tokens
}

/// Whether a dot begins a number, and does not follow a name.
fn is_fraction(before: &str, rest: &str) -> bool {
    let is_after_name = before.ends_with(|c: char| is_letter(c) || matches!(c, '`' | '"'));
    !is_after_name && rest[1..].starts_with(|c: char| c.is_ascii_digit())
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a text in quotes, in which a backslash or a second quote makes a quote one of it.
fn quoted_length(rest: &str) -> usize {
    let quote = rest.as_bytes()[0];
    let mut at = 1;
    loop {
        at += match (rest.as_bytes()[at], rest.as_bytes().get(at + 1)) {
            (b'\\', _) if quote != b'`' => 2,
            (byte, Some(next)) if byte == quote && *next == quote => 2,
            (byte, _) if byte == quote => return at + 1,
            _ => 1,
        };
    }
}

fn number_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let is_sign = matches!(byte, b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E');
        if !(byte.is_ascii_alphanumeric() || *byte == b'.' || is_sign) {
            break;
        }
        at += 1;
    }
    at
}
