//! Finds where the statements of a script end.
//!
//! The shell runs a script statement by statement, to print what each gives, and the prompt asks
//! for more lines until a statement is complete. Only quotes, comments and semicolons matter here;
//! the engine's parser decides what a statement is.

use std::ops::Range;

/// The parts of a script between semicolons, as byte ranges without the semicolon. Parts that hold
/// nothing but blanks and comments are left out. The last one may lack its semicolon.
pub(crate) fn statements(script: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut part = Part::default();
    for (piece, range) in Pieces::new(script) {
        match piece {
            Piece::Semicolon => found.extend(std::mem::take(&mut part).range()),
            Piece::Text => part.extend(range),
            Piece::Blank => {}
        }
    }
    found.extend(part.range());
    found
}

/// Whether the text ends with a semicolon that ends a statement; blanks and comments may follow.
pub(crate) fn is_complete(text: &str) -> bool {
    let last = Pieces::new(text).map(|(piece, _)| piece).filter(|piece| *piece != Piece::Blank);
    last.last() == Some(Piece::Semicolon)
}

#[derive(Default)]
struct Part(Option<Range<usize>>);

impl Part {
    fn extend(&mut self, piece: Range<usize>) {
        let start = self.0.as_ref().map_or(piece.start, |range| range.start);
        self.0 = Some(start..piece.end);
    }

    fn range(self) -> Option<Range<usize>> {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Blank,
    Text,
    Semicolon,
}

/// Cuts a text into semicolons, blanks (comments too) and the rest, quoted texts whole.
struct Pieces<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Pieces<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (Piece, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let (piece, length) = match first {
            ';' => (Piece::Semicolon, 1),
            '\'' | '"' | '`' => (Piece::Text, quoted_length(rest, first)),
            '#' => (Piece::Blank, line_length(rest)),
            '-' if rest.starts_with("--") => (Piece::Blank, line_length(rest)),
            '/' if rest.starts_with("/*") => {
                (Piece::Blank, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            blank if blank.is_whitespace() => (Piece::Blank, blank.len_utf8()),
            other => (Piece::Text, other.len_utf8()),
        };
        let start = self.at;
        self.at += length;
        Some((piece, start..self.at))
    }
}

fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a quoted text with both quotes; up to the end when it is not closed. A backslash
/// protects the next character, except in a name in back-quotes.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut protected = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if protected => protected = false,
            '\\' if quote != '`' => protected = true,
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
