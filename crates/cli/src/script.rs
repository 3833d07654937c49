//! Splits a script into statements.
//!
//! The shell runs a script statement by statement, to print the result of each, and the prompt
//! reads more lines until a statement is complete. Only quotes, comments and semicolons matter
//! here; the engine's parser decides what a statement is.

use std::ops::Range;

/// Returns the statements of a script as byte ranges, without their semicolons. Parts that have
/// only blanks and comments are left out. The last statement may lack its semicolon.
pub(crate) fn statements(script: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut statement: Option<Range<usize>> = None;
    for ScriptToken { kind, range } in Tokens::new(script) {
        match kind {
            TokenKind::Semicolon => found.extend(statement.take()),
            TokenKind::Text => {
                let start = statement.map_or(range.start, |statement| statement.start);
                statement = Some(start..range.end);
            }
            TokenKind::Blank => {}
        }
    }
    found.extend(statement);
    debug_assert!(
        found.is_sorted_by(|left, right| left.end <= right.start),
        "statements follow one another"
    );
    found
}

/// Whether the text ends with a semicolon that ends a statement; blanks and comments may follow.
pub(crate) fn is_complete(text: &str) -> bool {
    let kinds = Tokens::new(text).map(|token| token.kind);
    kinds.filter(|kind| *kind != TokenKind::Blank).last() == Some(TokenKind::Semicolon)
}

/// A token of a script.
struct ScriptToken {
    kind: TokenKind,
    range: Range<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// White space or a comment.
    Blank,
    Text,
    Semicolon,
}

/// Splits a text into semicolons, blanks and the rest. A quoted text is one token.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl Iterator for Tokens<'_> {
    type Item = ScriptToken;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let (kind, length) = match first {
            ';' => (TokenKind::Semicolon, 1),
            '\'' | '"' | '`' => (TokenKind::Text, quoted_length(rest, first)),
            '#' => (TokenKind::Blank, line_length(rest)),
            '-' if rest.starts_with("--") => (TokenKind::Blank, line_length(rest)),
            '/' if rest.starts_with("/*") => {
                (TokenKind::Blank, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            blank if blank.is_whitespace() => (TokenKind::Blank, blank.len_utf8()),
            other => (TokenKind::Text, other.len_utf8()),
        };
        let start = self.at;
        self.at += length;
        Some(ScriptToken { kind, range: start..self.at })
    }
}

/// Returns the length of the rest of the line.
fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Returns the length of a quoted text with both quotes; up to the end when it is not closed. A
/// backslash escapes the next character, except in a name in back-quotes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != '`' => is_escaped = true,
            _ if character == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{is_complete, statements};

    fn check(script: &str, expected: &[&str]) {
        let found: Vec<&str> = statements(script).into_iter().map(|range| &script[range]).collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn statements_end_at_semicolons() {
        check("SELECT 1; SELECT 2", &["SELECT 1", "SELECT 2"]);
        check(" ;; ", &[]);
    }

    #[test]
    fn quotes_and_comments_hide_semicolons() {
        check("SELECT ';', \"a\\\";\" -- b;\n, 1; x", &["SELECT ';', \"a\\\";\" -- b;\n, 1", "x"]);
        check("/* ; */ SELECT `;` # ;", &["SELECT `;`"]);
        check("SELECT 'open; ", &["SELECT 'open; "]);
    }

    #[test]
    fn a_statement_is_complete_after_its_semicolon() {
        assert!(is_complete("SELECT 1; -- done"));
        assert!(!is_complete("SELECT 1"));
        assert!(!is_complete("SELECT ';"));
        assert!(!is_complete("SELECT 1; SELECT 2"));
        assert!(!is_complete(""));
    }
}
