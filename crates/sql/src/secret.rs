//! Passwords in the text of statements: found without a parser, since a wrong statement has them too.
//!
//! A statement whose second word is USER (CREATE USER, ALTER USER) may have a password: in quotes, or
//! as the words after `=` or `password` where the quotes were forgotten. One whose second word is SOURCE or SINK may
//! have some behind `sasl_password` and `schema_registry_password`. Front ends show such a text masked, and keep it out of their histories; errors of
//! the parser do not quote it.

use std::{borrow::Cow, ops::Range};

use lockstep_diagnostic::Diagnostic;

/// Replaces what may be a password in a script by asterisks. The text keeps its length in bytes, so that
/// positions in it still hold.
///
/// ```
/// let sql = "SELECT 'a'; CREATE USER ann OPTIONS(password='secret')";
/// let masked = "SELECT 'a'; CREATE USER ann OPTIONS(password='******')";
/// assert_eq!(lockstep_sql::masked(sql), masked);
/// ```
pub fn masked(sql: &str) -> Cow<'_, str> {
    let secrets = secrets(sql);
    if secrets.is_empty() {
        return Cow::Borrowed(sql);
    }
    let mut text = String::with_capacity(sql.len());
    let mut end = 0;
    for secret in secrets {
        text.push_str(&sql[end..secret.start]);
        text.extend(std::iter::repeat_n('*', secret.len()));
        end = secret.end;
    }
    text.push_str(&sql[end..]);
    debug_assert_eq!(text.len(), sql.len(), "positions hold");
    Cow::Owned(text)
}

/// Returns whether a script has a statement that may have a password, or speaks of one: a history leaves
/// it out.
pub fn may_have_secret(sql: &str) -> bool {
    let mut words = StatementWords::default();
    Pieces::new(sql).any(|piece| {
        words.next(&piece, sql);
        let of_password = ["PASSWORD", "IDENTIFIED"].iter().chain(OF_CONNECTOR);
        words.is_of_user() || of_password.into_iter().any(|word| piece.is_word(word, sql))
    })
}

/// Removes passwords from the error of a statement.
pub(crate) fn without_secrets(mut error: Box<Diagnostic>, sql: &str) -> Box<Diagnostic> {
    let secrets = secrets(sql);
    let mut secrets = secrets.iter().map(|secret| &sql[secret.clone()]);
    let texts = [Some(&error.message), error.detail.as_ref(), error.hint.as_ref()];
    let has = |secret: &str| texts.into_iter().flatten().any(|text| text.contains(secret));
    if secrets.any(has) {
        error.message = "syntax error at or near a password".to_owned();
        error.detail = None;
        error.hint = None;
    }
    error
}

/// Finds what may be a password.
fn secrets(sql: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut words = StatementWords::default();
    let (mut is_value, mut is_of_connector) = (false, false);
    for piece in Pieces::new(sql) {
        words.next(&piece, sql);
        let secret = match piece.kind {
            PieceKind::String { is_closed } => {
                Some(piece.range.start + 1..piece.range.end - usize::from(is_closed))
            }
            PieceKind::Word if is_value => Some(piece.range.clone()),
            _ => None,
        };
        let is_secret = words.is_of_user() || (words.is_of_connector() && is_of_connector);
        found.extend(secret.filter(|secret| is_secret && !secret.is_empty()));
        is_of_connector = match piece.text(sql) {
            "," | ")" | ";" => false,
            _ => is_of_connector || OF_CONNECTOR.iter().any(|word| piece.is_word(word, sql)),
        };
        is_value = match piece.text(sql) {
            "=" => true,
            "," | ")" | ";" => false,
            _ => is_value || piece.is_word("PASSWORD", sql),
        };
    }
    found
}

/// The options of a source or a sink that are passwords.
const OF_CONNECTOR: &[&str] = &["SASL_PASSWORD", "SCHEMA_REGISTRY_PASSWORD"];

/// The first words of a statement.
#[derive(Debug, Default)]
struct StatementWords {
    count: usize,
    first_is_select: bool,
    second: SecondWord,
}

/// The second word of a statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SecondWord {
    User,
    Connector,
    #[default]
    Another,
}

impl StatementWords {
    fn next(&mut self, piece: &Piece, sql: &str) {
        match piece.kind {
            PieceKind::Blank => {}
            PieceKind::Symbol if piece.text(sql) == ";" => *self = Self::default(),
            _ => {
                self.count += 1;
                match self.count {
                    1 => self.first_is_select = piece.is_word("SELECT", sql),
                    2 if piece.is_word("USER", sql) => self.second = SecondWord::User,
                    2 if piece.is_word("SOURCE", sql) || piece.is_word("SINK", sql) => {
                        self.second = SecondWord::Connector;
                    }
                    _ => {}
                }
            }
        }
    }

    fn is_of_user(&self) -> bool {
        self.second == SecondWord::User && !self.first_is_select
    }

    fn is_of_connector(&self) -> bool {
        self.second == SecondWord::Connector && !self.first_is_select
    }
}

/// A piece of a script.
#[derive(Debug)]
struct Piece {
    kind: PieceKind,
    range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceKind {
    /// White space or a comment.
    Blank,
    Word,
    /// `'…'` or `"…"`; the end may be missing.
    String {
        is_closed: bool,
    },
    /// Any other character.
    Symbol,
}

impl Piece {
    fn text<'s>(&self, sql: &'s str) -> &'s str {
        &sql[self.range.clone()]
    }

    fn is_word(&self, word: &str, sql: &str) -> bool {
        self.kind == PieceKind::Word && self.text(sql).eq_ignore_ascii_case(word)
    }
}

/// Splits a script into pieces, whether or not it can be parsed.
struct Pieces<'s> {
    sql: &'s str,
    at: usize,
}

impl<'s> Pieces<'s> {
    fn new(sql: &'s str) -> Self {
        Self { sql, at: 0 }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let rest = &self.sql[self.at..];
        let first = rest.chars().next()?;
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let (kind, length) = if first.is_whitespace() {
            (PieceKind::Blank, first.len_utf8())
        } else if first == '#' || rest.starts_with("--") {
            (PieceKind::Blank, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (PieceKind::Blank, rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if matches!(first, '\'' | '"') {
            let (length, is_closed) = quoted(rest, first);
            (PieceKind::String { is_closed }, length)
        } else if is_of_word(first) {
            (PieceKind::Word, rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()))
        } else {
            (PieceKind::Symbol, first.len_utf8())
        };
        let range = self.at..self.at + length;
        self.at = range.end;
        Some(Piece { kind, range })
    }
}

/// Returns the length of a quoted text with its quotes, and whether it is closed. A backslash escapes the
/// next character.
fn quoted(text: &str, quote: char) -> (usize, bool) {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return (at + 1, true),
            _ => {}
        }
    }
    (text.len(), false)
}

#[cfg(test)]
mod tests {
    use super::{masked, may_have_secret};

    #[test]
    fn passwords_are_masked_where_they_are() {
        let check = |sql: &str, expected: &str| assert_eq!(masked(sql), expected);
        check("CREATE USER a OPTIONS(password='x;y')", "CREATE USER a OPTIONS(password='***')");
        check(
            "/* ; */ alter -- '\n user a OPTIONS(pasword=\"xy\")",
            "/* ; */ alter -- '\n user a OPTIONS(pasword=\"**\")",
        );
        check("ALTER USER a OPTIONS(password = xy)", "ALTER USER a OPTIONS(password = **)");
        check("ALTER USER a OPTIONS(password='x)", "ALTER USER a OPTIONS(password='**");
        check("CREATE USER a OPTIONS(password='\\'é')", "CREATE USER a OPTIONS(password='****')");
        check(
            "CREATE SOURCE s INTO TABLE t FROM KAFKA OPTIONS(topic='x', sasl_password='ab', tls=true)",
            "CREATE SOURCE s INTO TABLE t FROM KAFKA OPTIONS(topic='x', sasl_password='**', tls=true)",
        );
        check(
            "alter sink s SET OPTIONS(Sasl_Password = ab, key='k')",
            "alter sink s SET OPTIONS(Sasl_Password = **, key='k')",
        );
        check(
            "ALTER SOURCE s SET OPTIONS(schema_registry_password='ab', topic='x')",
            "ALTER SOURCE s SET OPTIONS(schema_registry_password='**', topic='x')",
        );
        for same in
            ["SELECT password = 'x' FROM user", "DROP USER a; SELECT 'x'", "", "'", "USER 'x"]
        {
            assert_eq!(masked(same), same);
        }
    }

    #[test]
    fn what_names_a_password_is_for_no_history() {
        for sql in [
            "CREATE USER a",
            "x;\ncreat user b",
            "OPTIONS(Password =",
            "IDENTIFIED BY",
            "x OPTIONS(sasl_password=",
        ] {
            assert!(may_have_secret(sql), "{sql}");
        }
        for sql in ["SELECT 1", "SHOW USERS", "SELECT user FROM t", "SELECT 'password'", ""] {
            assert!(!may_have_secret(sql), "{sql}");
        }
    }

    #[test]
    fn an_error_of_the_parser_has_no_password() {
        let statements = [
            "CREATE USER a OPTIONS(password 'hush')",
            "CREATE USER a OPTIONS(password='hush'hush)",
            "CREATE USER a OPTIONS(password='hush",
            "CREATE USER a OPTIONS(password=hush hush)",
            "CREAT USER a OPTIONS(password='hush')",
            "CREATE USER a PASSWORD 'hush'",
            "CREATE USER a OPTIONS(password hush)",
        ];
        for sql in statements {
            let error = crate::parse(sql).unwrap_err();
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
            assert!(!error.render(Some(&masked(sql))).contains("hush"), "{error:?}");
        }
    }
}
