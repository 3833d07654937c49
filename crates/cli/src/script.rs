//! Splits a script into statements and commands of the shell.
//!
//! The shell runs a script part by part, to print the result of each, and the prompt reads more lines
//! until a statement is complete. Only quotes, comments, semicolons, the first character of a statement
//! and the body of a procedure matter here; the engine's parser decides what a statement is, and
//! [`crate::command`] what a command is.

use std::ops::Range;

/// The words that are commands where they are a line of their own.
pub(crate) const WORD_COMMANDS: &[&str] = &["exit", "quit", "help"];

/// The commands that may follow a statement, which they end.
const ENDING_COMMANDS: &[&str] = &["\\g", "\\watch"];

/// The mark that some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A part of a script, as a range of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ScriptPart {
    /// A statement, without its semicolon.
    Statement(Range<usize>),
    /// A command of the shell, to the end of its line.
    Command(Range<usize>),
}

impl ScriptPart {
    fn range(&self) -> &Range<usize> {
        match self {
            Self::Statement(range) | Self::Command(range) => range,
        }
    }
}

/// Returns a script without a byte-order mark at its start.
pub(crate) fn without_mark(script: &str) -> &str {
    script.strip_prefix(BYTE_ORDER_MARK).unwrap_or(script)
}

/// Returns the parts of a script. Those that have only blanks and comments are left out. The last
/// statement may lack its semicolon.
pub(crate) fn parts(script: &str) -> Vec<ScriptPart> {
    let mut found = Vec::new();
    let mut statement: Option<Range<usize>> = None;
    for ScriptToken { kind, range, .. } in Tokens::new(script) {
        match kind {
            ScriptTokenKind::Semicolon => found.extend(statement.take().map(ScriptPart::Statement)),
            ScriptTokenKind::Command => {
                found.extend(statement.take().map(ScriptPart::Statement));
                found.push(ScriptPart::Command(range));
            }
            ScriptTokenKind::Text => {
                let start = statement.map_or(range.start, |statement| statement.start);
                statement = Some(start..range.end);
            }
            ScriptTokenKind::Blank => {}
        }
    }
    found.extend(statement.map(ScriptPart::Statement));
    debug_assert!(
        found.is_sorted_by(|left, right| left.range().end <= right.range().start),
        "parts follow one another"
    );
    found
}

/// Whether nothing is missing from the text: it ends with a command, or with a semicolon that ends a
/// statement; blanks and comments may follow.
pub(crate) fn is_complete(text: &str) -> bool {
    let kinds = Tokens::new(text).map(|token| token.kind);
    let last = kinds.filter(|kind| *kind != ScriptTokenKind::Blank).last();
    matches!(last, Some(ScriptTokenKind::Semicolon | ScriptTokenKind::Command))
}

/// Whether a text ends inside quotes or a comment.
pub(crate) fn is_open(text: &str) -> bool {
    Tokens::new(text).last().is_some_and(|token| token.is_open)
}

/// A token of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptToken {
    pub(crate) kind: ScriptTokenKind,
    pub(crate) range: Range<usize>,
    /// Whether it is quoted or a comment, and what ends it is missing.
    pub(crate) is_open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptTokenKind {
    /// White space or a comment that ends.
    Blank,
    /// A word, a quoted text, a symbol, or a comment that does not end.
    Text,
    Semicolon,
    /// A command of the shell.
    Command,
}

/// Splits a text into semicolons, commands, blanks and the rest. A quoted text is one token.
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
    /// The kind of the last token that is not blank; `None` before it.
    last: Option<ScriptTokenKind>,
    body: ProcedureBody,
}

/// Where in CREATE PROCEDURE a text is: the semicolons between BEGIN and END do not end the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcedureBody {
    /// After so many of the words that begin the statement.
    Beginning(usize),
    /// In another statement.
    Absent,
    /// Before BEGIN.
    Expected,
    /// Behind BEGIN or a semicolon, where END ends it.
    Between,
    /// In a query.
    Query,
}

impl ProcedureBody {
    /// Takes a token of a statement, and returns whether it is within the body.
    fn take(&mut self, token: &str) -> bool {
        let is = |word: &str| token.eq_ignore_ascii_case(word);
        *self = match *self {
            Self::Beginning(0) if is("CREATE") => Self::Beginning(1),
            Self::Beginning(1) if is("OR") => Self::Beginning(2),
            Self::Beginning(2) if is("REPLACE") => Self::Beginning(3),
            Self::Beginning(at @ (1 | 3)) if is("TEMP") || is("TEMPORARY") => Self::Beginning(at),
            Self::Beginning(1 | 3) if is("PROCEDURE") => Self::Expected,
            Self::Beginning(_) | Self::Absent => Self::Absent,
            Self::Expected if is("BEGIN") => Self::Between,
            Self::Expected => Self::Expected,
            Self::Between if is("END") => Self::Absent,
            Self::Between | Self::Query if is(";") => Self::Between,
            Self::Between | Self::Query => Self::Query,
        };
        matches!(self, Self::Between | Self::Query)
    }
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, last: None, body: ProcedureBody::Beginning(0) }
    }

    /// Returns the length of a command that begins here. Looks at the rest of the line only where one may
    /// begin, so that long lines cost no more than their length.
    fn command_length(&self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let is_within = self.last == Some(ScriptTokenKind::Text);
        if rest.starts_with('\\') || (rest.starts_with('.') && !is_within) {
            let length = line_length(rest);
            let name = rest[..length].split([' ', '\t', '\r', ';']).next().unwrap_or(rest);
            // Inside a statement most backslashes are mistakes, of which the parser speaks.
            return (!is_within || ENDING_COMMANDS.contains(&name)).then_some(length);
        }
        let word = &rest[..word_length(rest)];
        if is_within || !WORD_COMMANDS.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            return None;
        }
        let length = line_length(rest);
        let more = &rest[word.len()..length];
        let is_alone = more.chars().all(|character| character == ';' || character.is_whitespace());
        is_alone.then_some(length)
    }
}

impl Iterator for Tokens<'_> {
    type Item = ScriptToken;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.at..];
        let first = rest.chars().next()?;
        let mut is_open = false;
        let (kind, length) = match first {
            ';' => (ScriptTokenKind::Semicolon, 1),
            '\'' | '"' | '`' => {
                let length = quoted_length(rest, first);
                is_open = length.is_none();
                (ScriptTokenKind::Text, length.unwrap_or(rest.len()))
            }
            '#' => (ScriptTokenKind::Blank, line_length(rest)),
            '-' if rest.starts_with("--") => (ScriptTokenKind::Blank, line_length(rest)),
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").map(|end| end + 2);
                is_open = end.is_none();
                // One that does not end belongs to a statement, so that the parser refuses it.
                let kind = if is_open { ScriptTokenKind::Text } else { ScriptTokenKind::Blank };
                (kind, end.unwrap_or(rest.len()))
            }
            blank if blank.is_whitespace() => (ScriptTokenKind::Blank, blank.len_utf8()),
            other => match self.command_length() {
                Some(length) => (ScriptTokenKind::Command, length),
                None => (ScriptTokenKind::Text, word_length(rest).max(other.len_utf8())),
            },
        };
        if kind == ScriptTokenKind::Blank && (first == '#' || first == '-') {
            is_open = length == rest.len();
        }
        debug_assert!(0 < length && length <= rest.len(), "a token is of the text");
        let start = self.at;
        self.at += length;
        let kind = match kind {
            ScriptTokenKind::Text | ScriptTokenKind::Semicolon
                if self.body.take(&rest[..length]) =>
            {
                ScriptTokenKind::Text
            }
            other => other,
        };
        if matches!(kind, ScriptTokenKind::Semicolon | ScriptTokenKind::Command) {
            self.body = ProcedureBody::Beginning(0);
        }
        if kind != ScriptTokenKind::Blank {
            self.last = Some(kind);
        }
        debug_assert!(self.at > start, "a token is not empty");
        Some(ScriptToken { kind, range: start..self.at, is_open })
    }
}

/// Whether a character may be in a name.
pub(crate) fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the length of the word at the start of a text.
fn word_length(text: &str) -> usize {
    text.find(|character| !is_of_word(character)).unwrap_or(text.len())
}

/// Returns the length of the rest of the line.
fn line_length(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Returns the length of a quoted text with both quotes; `None` when it is not closed. A backslash
/// escapes the next character, except in a name in back-quotes.
fn quoted_length(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if quote != '`' => is_escaped = true,
            _ if character == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{ScriptPart, is_complete, is_open, parts, without_mark};

    /// Checks the parts of a script; commands are expected with `> ` before them.
    fn check(script: &str, expected: &[&str]) {
        let text = |part| match part {
            ScriptPart::Statement(range) => script[range].to_owned(),
            ScriptPart::Command(range) => format!("> {}", &script[range]),
        };
        let found: Vec<String> = parts(script).into_iter().map(text).collect();
        assert_eq!(found, expected, "{script}");
    }

    #[test]
    fn a_command_begins_where_a_statement_could_and_ends_with_its_line() {
        check(
            "\\dt\nSELECT 1;\n.mode csv\nSELECT 2",
            &["> \\dt", "SELECT 1", "> .mode csv", "SELECT 2"],
        );
        check("SELECT 1; \\d t; -- x\nSELECT 2", &["SELECT 1", "> \\d t; -- x", "SELECT 2"]);
        check("SELECT t\n.a, '\n\\d'", &["SELECT t\n.a, '\n\\d'"]);
        check("-- first\n\\q", &["> \\q"]);
    }

    #[test]
    fn words_are_commands_where_they_are_a_line() {
        check("help\nSELECT 1;\nEXIT;\n", &["> help", "SELECT 1", "> EXIT;"]);
        check("SELECT\nhelp\nFROM t", &["SELECT\nhelp\nFROM t"]);
        check("quit now", &["quit now"]);
    }

    #[test]
    fn some_commands_end_a_statement() {
        check(
            "SELECT 1 \\watch 2\nSELECT 2 \\g",
            &["SELECT 1", "> \\watch 2", "SELECT 2", "> \\g"],
        );
        check("SELECT 1 \\x", &["SELECT 1 \\x"]);
        assert!(is_complete("SELECT 1 \\g") && is_complete("help"));
    }

    #[test]
    fn lines_may_end_as_on_windows() {
        check("\\dt\r\nSELECT\r\n1;\r\nexit\r\n", &["> \\dt\r", "SELECT\r\n1", "> exit\r"]);
        assert!(is_complete("SELECT 1;\r\n"));
        assert_eq!(without_mark("\u{feff}SELECT 1"), "SELECT 1");
        assert_eq!(without_mark("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn a_long_line_is_split_in_one_pass() {
        let script = "SELECT 1;".repeat(200_000);
        assert_eq!(parts(&script).len(), 200_000);
        let script = format!("INSERT INTO t VALUES {}", "(1, 'a'), ".repeat(200_000));
        assert_eq!(parts(&script).len(), 1);
    }

    #[test]
    fn quotes_and_comments_may_be_open() {
        for text in ["SELECT '", "SELECT `a", "/* x", "SELECT 1 -- x", "#"] {
            assert!(is_open(text), "{text}");
        }
        for text in ["SELECT ''", "/* x */", "-- x\n", "SELECT a", ""] {
            assert!(!is_open(text), "{text}");
        }
    }

    #[test]
    fn statements_end_at_semicolons() {
        check("SELECT 1; SELECT 2", &["SELECT 1", "SELECT 2"]);
        check(" ;; ", &[]);
    }

    #[test]
    fn the_body_of_a_procedure_hides_semicolons() {
        let procedure = "create PROCEDURE p(a INT) BEGIN SELECT CASE 1 WHEN 1 THEN 2 END; end";
        check(&format!("{procedure}; SELECT 2; "), &[procedure, "SELECT 2"]);
        assert!(!is_complete("CREATE PROCEDURE p(a INT) BEGIN SELECT 1;"));
        assert!(!is_complete("CREATE PROCEDURE p(a INT) BEGIN SELECT 1; /* ; */ END"));
        assert!(is_complete(&format!("{procedure};")));
        let replaced = "CREATE OR REPLACE PROCEDURE p() BEGIN SELECT 1;\n\\d\nSELECT 2;\nEND";
        check(&format!("{replaced};\n\\d\n"), &[replaced, "> \\d"]);
        check(
            "CREATE TABLE procedure (begin INT); END",
            &["CREATE TABLE procedure (begin INT)", "END"],
        );
        check(
            "SELECT CREATE PROCEDURE BEGIN; SELECT 1",
            &["SELECT CREATE PROCEDURE BEGIN", "SELECT 1"],
        );
        check("CREATE PROCEDURE p(); SELECT 1", &["CREATE PROCEDURE p()", "SELECT 1"]);
    }

    #[test]
    fn quotes_and_comments_hide_semicolons() {
        check("SELECT ';', \"a\\\";\" -- b;\n, 1; x", &["SELECT ';', \"a\\\";\" -- b;\n, 1", "x"]);
        check("/* ; */ SELECT `;` # ;", &["SELECT `;`"]);
        check("SELECT 'open; ", &["SELECT 'open; "]);
        check("SELECT 1; /* open; ", &["SELECT 1", "/* open; "]);
        check("SELECT 1 /* open;", &["SELECT 1 /* open;"]);
        assert!(!is_complete("SELECT 1; /* open;"));
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
