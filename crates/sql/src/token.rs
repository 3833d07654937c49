//! The tokenizer: text to tokens, with the tokenizer of `sqlparser`.
//!
//! `cursor` reads the tokens. A token is a kind and a range of bytes; `literal` decodes its text
//! when the grammar needs the value. White space and comments are dropped.
//!
//! The text is tokenized in chunks, because the tokens of `sqlparser` take about a hundred bytes
//! each: a text of 16 MiB of parentheses would need more than a gigabyte. A token near the end of a
//! chunk may be incomplete, so it is read again at the start of the next chunk.

use std::any::TypeId;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use sqlparser::dialect::{BigQueryDialect, Dialect};
use sqlparser::tokenizer::{Location, Token as Raw, TokenWithSpan, Tokenizer};

/// The size of a chunk.
const CHUNK_BYTES: usize = 64 * 1024;

/// The most bytes after a token that the tokenizer needs to find its end.
const LOOKAHEAD_BYTES: usize = 16;

// A chunk has more than its lookahead, so that reading one makes progress.
const _: () = assert!(LOOKAHEAD_BYTES < CHUNK_BYTES);

/// The operators of two characters; every other operator has one. `<<` and `>>` are not included:
/// the closing brackets of `map<int, array<int>>` are two tokens.
const PAIRS: [&str; 8] = ["==", "!=", "<>", "<=", ">=", "||", "&&", "@@"];

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A bare word: a keyword or a name.
    Word,
    /// A name in back-quotes.
    Quoted,
    /// A number with all letters that touch it: `10`, `1.5f`, `30d`.
    Number,
    /// `'…'` or `"…"`.
    String,
    /// An operator or a bracket.
    Symbol,
    /// A literal that the dialect does not have.
    Rejected(Rejection),
    /// The end of the text.
    End,
}

/// A kind of literal that only other dialects have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// `0xff`.
    Hexadecimal,
    /// `b'…'`, `X'ff'`.
    Bytes,
    /// `r'…'`.
    Raw,
    /// `N'…'`, `$$…$$`.
    Prefixed,
    /// `$1`, `?1`.
    Parameter,
}

/// A token. Offsets are 32 bits, since a text has at most [`crate::STATEMENT_BYTES_MAX`] bytes and
/// there may be as many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    start: u32,
    end: u32,
}

impl Token {
    fn new(kind: TokenKind, start: usize, end: usize) -> Self {
        debug_assert!(start <= end, "a token starts before it ends");
        let offset = |at| u32::try_from(at).expect("the length of the text was checked");
        Self { kind, start: offset(start), end: offset(end) }
    }

    pub(crate) fn start(self) -> usize {
        usize::try_from(self.start).expect("usize has at least 32 bits")
    }

    pub(crate) fn end(self) -> usize {
        usize::try_from(self.end).expect("usize has at least 32 bits")
    }

    pub(crate) fn span(self) -> Span {
        Span::new(self.start(), self.end())
    }
}

/// The lexical rules of the dialect. A name consists of letters and digits of any script.
#[derive(Debug)]
struct Lexicon;

/// Whether a character is an accent that is written behind its letter (the combining marks of Unicode's
/// first block of them): a text in the decomposed form has such.
fn is_mark(ch: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&ch)
}

impl Dialect for Lexicon {
    /// Returns that of `BigQuery`: only its tokens have `#` comments and distinguish `b'…'` and
    /// `r'…'` from names.
    fn dialect(&self) -> TypeId {
        TypeId::of::<BigQueryDialect>()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || is_mark(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }
}

/// Splits a text into tokens; the last one is [`TokenKind::End`], at the end of the one before it.
/// A quote or comment without its end is an error at its start.
pub(crate) fn tokenize(sql: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut chunk = CHUNK_BYTES;
    while at < sql.len() {
        let mut end = sql.len().min(at.saturating_add(chunk));
        while !sql.is_char_boundary(end) {
            end += 1;
        }
        let next = read_chunk(sql, Span::new(at, end), &mut tokens)?;
        // A chunk without a complete token is the start of a long one.
        chunk = if next == at { chunk.saturating_mul(2) } else { CHUNK_BYTES };
        at = next;
    }
    let end = tokens.last().map_or(0, |token| token.end());
    tokens.push(Token::new(TokenKind::End, end, end));
    debug_assert!(tokens.is_sorted_by_key(|token| token.end()), "tokens do not overlap");
    Ok(tokens)
}

/// Appends the tokens of one chunk and returns where the next chunk starts.
fn read_chunk(sql: &str, chunk: Span, tokens: &mut Vec<Token>) -> Result<usize> {
    let text = &sql[chunk.start..chunk.end];
    let is_last = chunk.end == sql.len();
    let whole = if is_last { text.len() } else { text.len().saturating_sub(LOOKAHEAD_BYTES) };
    let mut raw: Vec<TokenWithSpan> = Vec::new();
    let outcome = Tokenizer::new(&Lexicon, text)
        .with_unescape(false)
        .tokenize_with_location_into_buf(&mut raw);
    let mut position = TextPosition::new(text);
    for token in raw {
        let start = position.at;
        let end = position.advance(token.span.end);
        if end > whole {
            return Ok(chunk.start + start);
        }
        push(sql, &token.token, Span::new(chunk.start + start, chunk.start + end), tokens);
    }
    let at = chunk.start + position.at;
    if outcome.is_ok() {
        return Ok(at);
    }
    if sql[at..].starts_with("._") {
        // The tokenizer reads this as a malformed number unless a name precedes it in the chunk.
        tokens.push(Token::new(TokenKind::Symbol, at, at + 1));
        return Ok(at + 1);
    }
    if is_last { unterminated(sql, at).err() } else { Ok(at) }
}

fn push(sql: &str, raw: &Raw, span: Span, tokens: &mut Vec<Token>) {
    let kind = match raw {
        Raw::EOF | Raw::Whitespace(_) => return,
        Raw::Word(word) if word.quote_style.is_some() => TokenKind::Quoted,
        Raw::Word(_) => TokenKind::Word,
        Raw::Number(..) => TokenKind::Number,
        Raw::SingleQuotedString(_) | Raw::DoubleQuotedString(_) => TokenKind::String,
        Raw::HexStringLiteral(_) if sql[span.start..span.end].ends_with('\'') => {
            TokenKind::Rejected(Rejection::Bytes)
        }
        Raw::HexStringLiteral(_) => TokenKind::Rejected(Rejection::Hexadecimal),
        Raw::SingleQuotedByteStringLiteral(_) | Raw::DoubleQuotedByteStringLiteral(_) => {
            TokenKind::Rejected(Rejection::Bytes)
        }
        Raw::SingleQuotedRawStringLiteral(_)
        | Raw::DoubleQuotedRawStringLiteral(_)
        | Raw::TripleSingleQuotedRawStringLiteral(_)
        | Raw::TripleDoubleQuotedRawStringLiteral(_) => TokenKind::Rejected(Rejection::Raw),
        Raw::NationalStringLiteral(_) | Raw::DollarQuotedString(_) => {
            TokenKind::Rejected(Rejection::Prefixed)
        }
        Raw::Placeholder(text) if text != "?" => TokenKind::Rejected(Rejection::Parameter),
        _ => return push_symbols(sql, span, tokens),
    };
    // `10s` and `1.2.3` are several adjacent tokens of the tokenizer.
    if let (TokenKind::Word | TokenKind::Number, Some(last)) = (kind, tokens.last_mut())
        && last.kind == TokenKind::Number
        && last.end() == span.start
    {
        *last = Token::new(TokenKind::Number, last.start(), span.end);
        return;
    }
    tokens.push(Token::new(kind, span.start, span.end));
}

/// Splits an operator of another dialect, such as `!~` or `~~`, into single operators.
fn push_symbols(sql: &str, span: Span, tokens: &mut Vec<Token>) {
    let mut at = span.start;
    while at < span.end {
        let rest = &sql[at..span.end];
        let is_pair = PAIRS.iter().any(|pair| rest.starts_with(pair));
        let length = if is_pair { 2 } else { rest.chars().next().map_or(1, char::len_utf8) };
        tokens.push(Token::new(TokenKind::Symbol, at, at + length));
        at += length;
    }
}

/// Returns the error of a text whose rest the tokenizer refused.
fn unterminated(sql: &str, at: usize) -> Diagnostic {
    let rest = &sql[at..];
    let (message, length) = match rest.as_bytes() {
        [b'`', ..] => ("unterminated quoted identifier", 1),
        [b'/', b'*', ..] => ("unterminated comment", 2),
        [b'$', ..] => ("unterminated dollar-quoted string", 1),
        _ => ("unterminated quoted string", 1),
    };
    // The error of a prefixed string is at its quote.
    let quote = rest.find(['\'', '"']).filter(|quote| *quote <= 2 && length == 1).unwrap_or(0);
    Diagnostic::new(code::SYNTAX_ERROR, message).at(Span::new(at + quote, at + quote + length))
}

/// A position that converts the tokenizer's lines and columns, which only grow, to bytes.
struct TextPosition<'a> {
    rest: std::str::Chars<'a>,
    at: usize,
    line: u64,
    column: u64,
}

impl<'a> TextPosition<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars(), at: 0, line: 1, column: 1 }
    }

    fn advance(&mut self, to: Location) -> usize {
        while (self.line, self.column) < (to.line, to.column) {
            let Some(ch) = self.rest.next() else { break };
            self.at += ch.len_utf8();
            if ch == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, TokenKind, tokenize};

    fn check(sql: &str, expected: &[&str]) {
        let tokens = tokenize(sql).unwrap();
        let texts: Vec<&str> =
            tokens.iter().map(|token| &sql[token.start()..token.end()]).collect();
        assert_eq!(texts[..texts.len() - 1], *expected, "{sql}");
        assert_eq!(tokens.last().unwrap().kind, TokenKind::End);
    }

    #[test]
    fn letters_that_touch_a_number_belong_to_it() {
        check("10s 1.5f 2L 1e3 10 s", &["10s", "1.5f", "2L", "1e3", "10", "s"]);
    }

    #[test]
    fn comments_and_white_space_are_gone() {
        check("a -- b\n# c\n/* d */ e\r\n\tf", &["a", "e", "f"]);
    }

    #[test]
    fn operators_of_other_dialects_are_single_ones() {
        check("!~~a", &["!", "~", "~", "a"]);
        check("a<<b", &["a", "<", "<", "b"]);
        check("a->b", &["a", "-", ">", "b"]);
        check("a<=-1", &["a", "<=", "-", "1"]);
    }

    #[test]
    fn spans_count_bytes() {
        check("'é\n' ü `ö`  x", &["'é\n'", "ü", "`ö`", "x"]);
    }

    #[test]
    fn a_name_may_start_with_an_underscore_after_a_dot() {
        check("t._a", &["t", ".", "_a"]);
        check("1 ._a", &["1", ".", "_a"]);
    }

    #[test]
    fn tokens_survive_the_border_of_chunks() {
        for shift in 0..40 {
            let sql = format!("{}12.5e+3f >= 'a b' xyz", " ".repeat(CHUNK_BYTES - shift));
            check(&sql, &["12.5e+3f", ">=", "'a b'", "xyz"]);
        }
        let long = format!("'{}' x", "é".repeat(3 * CHUNK_BYTES));
        check(&long, &[&long[..long.len() - 2], "x"]);
    }

    #[test]
    fn what_is_not_terminated_is_reported_at_its_start() {
        for (sql, message, at) in [
            ("a 'b", "unterminated quoted string", 2),
            ("a \"b\\\"", "unterminated quoted string", 2),
            ("a `b", "unterminated quoted identifier", 2),
            ("a /* b", "unterminated comment", 2),
        ] {
            let error = tokenize(sql).unwrap_err();
            assert_eq!((error.message.as_str(), error.span.unwrap().start), (message, at), "{sql}");
        }
    }
}
