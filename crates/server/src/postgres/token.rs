//! The tokens of SQL text as PostgreSQL writes it: the same text means the same strings and names.
//!
//! `script` splits scripts with it, `translation` rewrites them into the dialect of the engine, which has
//! other rules for quotes. Strings have no escapes unless an `E` is before them, names are in double
//! quotes, and `$1` is a parameter. Knows no grammar.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlTokenKind {
    /// A keyword or a name without quotes.
    Word,
    /// A name in double quotes.
    QuotedName,
    /// A name in back-quotes, which only the engine's dialect has.
    BackquotedName,
    /// A string in single quotes.
    Text,
    /// A string with escapes: `E'…'`.
    EscapedText,
    /// A string between dollar signs.
    DollarText,
    /// A number with the letters that touch it.
    Number,
    /// `$1`.
    Parameter,
    /// An operator or a bracket.
    Symbol,
}

/// A token: its kind and its bytes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SqlToken {
    pub(crate) kind: SqlTokenKind,
    start: u32,
    end: u32,
}

impl SqlToken {
    /// Returns the offset of its first byte.
    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    /// Returns the offset after its last byte.
    pub(crate) fn end(self) -> usize {
        self.end as usize
    }

    /// Returns its text.
    pub(crate) fn text(self, sql: &str) -> &str {
        sql.get(self.start()..self.end()).unwrap_or_default()
    }

    /// Returns whether it is this keyword, in any case.
    pub(crate) fn is_word(self, sql: &str, word: &str) -> bool {
        self.kind == SqlTokenKind::Word && self.text(sql).eq_ignore_ascii_case(word)
    }

    /// Returns whether it is this operator or bracket.
    pub(crate) fn is_symbol(self, sql: &str, symbol: &str) -> bool {
        self.kind == SqlTokenKind::Symbol && self.text(sql) == symbol
    }
}

/// The operators of two characters.
const PAIRS: [&str; 9] = ["::", "=>", ":=", "<=", ">=", "<>", "!=", "||", "=="];

/// The longest script, in bytes: as long as the engine takes.
pub(crate) const SCRIPT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Splits a text into tokens, without white space and comments.
pub(crate) fn tokenize(sql: &str) -> Result<Vec<SqlToken>> {
    if sql.len() > SCRIPT_BYTES_MAX {
        let message = format!("script exceeds the limit of {SCRIPT_BYTES_MAX} bytes");
        return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).err();
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some((kind, end)) = next_token(sql, &mut at)? {
        let offset = |at: usize| u32::try_from(at).expect("the length was checked");
        tokens.push(SqlToken { kind, start: offset(at), end: offset(end) });
        at = end;
    }
    Ok(tokens)
}

/// Moves `at` to the next token, and returns its kind and end.
fn next_token(sql: &str, at: &mut usize) -> Result<Option<(SqlTokenKind, usize)>> {
    skip_space(sql, at)?;
    let bytes = sql.as_bytes();
    let Some(first) = bytes.get(*at) else { return Ok(None) };
    let second = bytes.get(*at + 1).copied().unwrap_or(0);
    let start = *at;
    let found = match first {
        b'\'' => (SqlTokenKind::Text, quoted_end(sql, start, start, b'\'', false)?),
        b'"' => (SqlTokenKind::QuotedName, quoted_end(sql, start, start, b'"', false)?),
        b'`' => (SqlTokenKind::BackquotedName, quoted_end(sql, start, start, b'`', false)?),
        b'e' | b'E' if second == b'\'' => {
            (SqlTokenKind::EscapedText, quoted_end(sql, start, start + 1, b'\'', true)?)
        }
        b'$' if second.is_ascii_digit() => {
            (SqlTokenKind::Parameter, end_where(bytes, start + 1, |byte| !byte.is_ascii_digit()))
        }
        b'$' => (SqlTokenKind::DollarText, dollar_end(sql, start)?),
        b'0'..=b'9' => (SqlTokenKind::Number, number_end(bytes, start)),
        b'.' if second.is_ascii_digit() => (SqlTokenKind::Number, number_end(bytes, start)),
        b'#' => {
            let message = "syntax error at or near `#`";
            return Diagnostic::new(code::SYNTAX_ERROR, message)
                .at(Span::new(start, start + 1))
                .err();
        }
        _ if is_name_start(*first) => {
            let is_end = |byte: u8| !is_name_start(byte) && !byte.is_ascii_digit() && byte != b'$';
            (SqlTokenKind::Word, end_where(bytes, start, is_end))
        }
        _ => (SqlTokenKind::Symbol, symbol_end(sql, start)),
    };
    Ok(Some(found))
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn end_where(bytes: &[u8], from: usize, is_end: impl Fn(u8) -> bool) -> usize {
    let found = bytes.get(from..).and_then(|rest| rest.iter().position(|byte| is_end(*byte)));
    found.map_or(bytes.len(), |length| from + length)
}

fn symbol_end(sql: &str, start: usize) -> usize {
    let rest = &sql[start..];
    if PAIRS.iter().any(|pair| rest.starts_with(pair)) {
        return start + 2;
    }
    start + rest.chars().next().map_or(1, char::len_utf8)
}

/// Returns the end of a number with its fraction, its exponent and the letters after it.
fn number_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        let is_sign = matches!(byte, b'+' | b'-')
            && at > start
            && matches!(bytes[at - 1], b'e' | b'E')
            && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        if !(byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_') || is_sign) {
            break;
        }
        at += 1;
    }
    at
}

/// Returns the end of what is in quotes, which are doubled inside.
fn quoted_end(sql: &str, start: usize, open: usize, quote: u8, has_escapes: bool) -> Result<usize> {
    let bytes = sql.as_bytes();
    let mut at = open + 1;
    while let Some(byte) = bytes.get(at) {
        if has_escapes && *byte == b'\\' {
            at += 2;
            continue;
        }
        if *byte == quote {
            if bytes.get(at + 1) != Some(&quote) {
                return Ok(at + 1);
            }
            at += 1;
        }
        at += 1;
    }
    unterminated("quoted string or name", start)
}

/// Returns the end of `$tag$ … $tag$`.
fn dollar_end(sql: &str, start: usize) -> Result<usize> {
    let rest = &sql[start + 1..];
    let tag_length = rest.find('$').filter(|length| {
        rest[..*length].bytes().all(|byte| is_name_start(byte) || byte.is_ascii_digit())
    });
    let Some(tag_length) = tag_length else {
        return Diagnostic::new(code::SYNTAX_ERROR, "syntax error at or near `$`")
            .at(Span::new(start, start + 1))
            .err();
    };
    let tag = &sql[start..start + tag_length + 2];
    let body = start + tag.len();
    match sql[body..].find(tag) {
        Some(length) => Ok(body + length + tag.len()),
        None => unterminated("dollar-quoted string", start),
    }
}

/// Skips white space and comments, which may be nested.
fn skip_space(sql: &str, at: &mut usize) -> Result<()> {
    let bytes = sql.as_bytes();
    loop {
        *at = end_where(bytes, *at, |byte| !byte.is_ascii_whitespace() && byte != 0x0b);
        let rest = &bytes[*at..];
        if rest.starts_with(b"--") {
            *at = end_where(bytes, *at, |byte| byte == b'\n');
        } else if rest.starts_with(b"/*") {
            *at = comment_end(bytes, *at).map_or_else(|| unterminated("comment", *at), Ok)?;
        } else {
            return Ok(());
        }
    }
}

fn comment_end(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, start);
    loop {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
}

fn unterminated<T>(what: &str, start: usize) -> Result<T> {
    Diagnostic::new(code::SYNTAX_ERROR, format!("unterminated {what}"))
        .at(Span::new(start, start + 1))
        .err()
}

/// Returns the value of a string or the name in quotes; the text of another token as it is.
pub(crate) fn unquoted(token: SqlToken, sql: &str) -> String {
    let text = token.text(sql);
    let inner = |from: usize| text.get(from..text.len() - 1).unwrap_or_default();
    match token.kind {
        SqlTokenKind::Text => inner(1).replace("''", "'"),
        SqlTokenKind::QuotedName => inner(1).replace("\"\"", "\""),
        SqlTokenKind::BackquotedName => inner(1).replace("``", "`"),
        SqlTokenKind::EscapedText => without_escapes(inner(2)),
        SqlTokenKind::DollarText => {
            let tag = text[1..].find('$').map_or(0, |length| length + 2);
            text.get(tag..text.len().saturating_sub(tag)).unwrap_or_default().to_owned()
        }
        _ => text.to_owned(),
    }
}

/// Replaces the escapes of `E'…'`.
fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                characters.next_if_eq(&'\'');
                out.push('\'');
            }
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some(form @ ('x' | 'u' | 'U')) => {
                    let digits = match form {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let mut value = 0;
                    for _ in 0..digits {
                        let Some(digit) = characters.peek().and_then(|c| c.to_digit(16)) else {
                            break;
                        };
                        value = value * 16 + digit;
                        characters.next();
                    }
                    out.push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{SqlTokenKind, tokenize, unquoted};

    fn check(sql: &str, expected: &[&str]) {
        let tokens = tokenize(sql).unwrap();
        let found: Vec<&str> = tokens.iter().map(|token| token.text(sql)).collect();
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn quotes_and_comments_are_postgresql_s() {
        check("a'b''c\\'d", &["a", "'b''c\\'", "d"]);
        check("E'a\\'b' \"x\"\"y\" `z`", &["E'a\\'b'", "\"x\"\"y\"", "`z`"]);
        check("$$a;b$$ $x$ $$ $x$ $12", &["$$a;b$$", "$x$ $$ $x$", "$12"]);
        check("1 /* /* */ ; */ + 2 -- x\n;", &["1", "+", "2", ";"]);
        check("a::int=>1e-5 .5 30d", &["a", "::", "int", "=>", "1e-5", ".5", "30d"]);
    }

    #[test]
    fn what_has_no_end_is_an_error_at_its_start() {
        for sql in ["x 'a", "x \"a", "x /* a", "x $$ a", "x E'\\'", "x #", "x $"] {
            let error = tokenize(sql).unwrap_err();
            assert_eq!(error.span.map(|span| span.start), Some(2), "{sql}");
        }
    }

    #[test]
    fn quotes_are_taken_off() {
        for (sql, expected) in [
            ("'a''b\\n'", "a'b\\n"),
            ("E'a\\n\\'\\x41\\u00e9'", "a\n'Aé"),
            ("\"A\"\"b\"", "A\"b"),
            ("$q$it's$q$", "it's"),
        ] {
            let tokens = tokenize(sql).unwrap();
            assert_eq!(unquoted(tokens[0], sql), expected);
            assert_ne!(tokens[0].kind, SqlTokenKind::Symbol);
        }
    }
}
