//! COPY: the statement and its options.

mod binary;
mod input;
mod text;

pub(crate) use binary::{BinaryReader, BinaryWriter};
pub(crate) use input::CopyInput;
pub(crate) use text::{TextReader, TextWriter};

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use super::{script::TokenCursor, translation::Translation};

/// A COPY.
#[derive(Debug)]
pub(crate) enum CopyCommand {
    /// Rows of the client into a table.
    From(CopyTarget),
    /// Rows of a query to the client.
    To { query: Translation, options: CopyOptions },
}

/// The table of a COPY FROM.
#[derive(Debug, Clone)]
pub(crate) struct CopyTarget {
    pub(crate) table: String,
    /// The columns that are given, in their order; `None`: all.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) options: CopyOptions,
    pub(crate) span: Span,
}

/// The format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// The first line of rows in text or CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyHeader {
    /// A row.
    No,
    /// The names of the columns, which a reader skips.
    Names,
    /// The names of the columns, which a reader compares with those that it takes.
    Match,
}

/// The options of a COPY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyOptions {
    pub(crate) format: CopyFormat,
    pub(crate) delimiter: u8,
    /// The text that stands for NULL.
    pub(crate) null: String,
    pub(crate) header: CopyHeader,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
}

/// The bytes that delimit no fields of COPY's text format, as in PostgreSQL: after a backslash they are
/// escapes.
const TEXT_DELIMITERS_REFUSED: &[u8] = b"\\.abcdefghijklmnopqrstuvwxyz0123456789";

/// Options as they were written.
#[derive(Debug, Default)]
struct GivenOptions {
    format: Option<String>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<CopyHeader>,
    quote: Option<String>,
    escape: Option<String>,
}

impl CopyCommand {
    /// Reads a COPY behind its first word.
    pub(crate) fn read(mut statement: TokenCursor<'_>) -> Result<Self> {
        let first = statement.peek();
        let span = first.map_or(Span::new(0, 0), |token| Span::new(token.start(), token.end()));
        if statement.accept_symbol("(") {
            let query = query_of(&mut statement)?;
            let options = to_stdout(&mut statement)?;
            return Ok(Self::To { query, options });
        }
        let Some(table) = statement.qualified_name() else { return statement.syntax_error() };
        let columns = column_names(&mut statement)?;
        if statement.accept("FROM") {
            if !statement.accept("STDIN") {
                return files_of_server(&statement);
            }
            let options = read_options(&mut statement)?;
            return Ok(Self::From(CopyTarget { table, columns, options, span }));
        }
        let options = to_stdout(&mut statement)?;
        let quoted = |name: &str| format!("`{name}`");
        let columns = columns.map_or_else(
            || "*".to_owned(),
            |names| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "),
        );
        let table = table.split('.').map(quoted).collect::<Vec<_>>().join(".");
        let query = Translation::of_dialect(format!("SELECT {columns} FROM {table}"));
        Ok(Self::To { query, options })
    }
}

/// Reads the query in parentheses whose first one was read.
fn query_of(statement: &mut TokenCursor<'_>) -> Result<Translation> {
    let begin = *statement;
    let mut depth = 1_usize;
    while let Some(token) = statement.next() {
        match token.text(statement.sql()) {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let count = begin.rest().len() - statement.rest().len() - 1;
            return Translation::new(begin.first(count));
        }
    }
    statement.syntax_error()
}

/// Reads `TO STDOUT` and the options.
fn to_stdout(statement: &mut TokenCursor<'_>) -> Result<CopyOptions> {
    if !statement.accept("TO") {
        return statement.syntax_error();
    }
    if !statement.accept("STDOUT") {
        return files_of_server(statement);
    }
    let options = read_options(statement)?;
    if options.header == CopyHeader::Match {
        let message = "cannot use \"match\" with HEADER in COPY TO";
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
            .with_hint("Use HEADER to write the column names.")
            .err();
    }
    Ok(options)
}

fn files_of_server<T>(statement: &TokenCursor<'_>) -> Result<T> {
    let token = statement.peek();
    let span = token.map_or(Span::new(0, 0), |token| Span::new(token.start(), token.end()));
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "COPY supports only FROM STDIN and TO STDOUT")
        .at(span)
        .with_hint(
            "Use LOAD DATA and SELECT … INTO OUTFILE for files on the server, or psql's \\copy \
             for files on the client.",
        )
        .err()
}

/// Reads names in parentheses, if they are next.
fn column_names(statement: &mut TokenCursor<'_>) -> Result<Option<Vec<String>>> {
    if !statement.accept_symbol("(") {
        return Ok(None);
    }
    let mut names = Vec::new();
    loop {
        match statement.name() {
            Some(name) => names.push(name),
            None => return statement.syntax_error(),
        }
        if statement.accept_symbol(")") {
            return Ok(Some(names));
        }
        if !statement.accept_symbol(",") {
            return statement.syntax_error();
        }
    }
}

/// Reads options to the end: `WITH (FORMAT csv, HEADER)`, or the older `CSV HEADER DELIMITER ','`.
fn read_options(statement: &mut TokenCursor<'_>) -> Result<CopyOptions> {
    let mut given = GivenOptions::default();
    statement.accept("WITH");
    let is_list = statement.accept_symbol("(");
    while !statement.is_end() {
        if is_list && statement.accept_symbol(")") {
            break;
        }
        given.read_one(statement)?;
        if is_list {
            statement.accept_symbol(",");
        }
    }
    if !statement.is_end() {
        return statement.syntax_error();
    }
    given.check()
}

impl GivenOptions {
    fn read_one(&mut self, statement: &mut TokenCursor<'_>) -> Result<()> {
        let begin = *statement;
        let Some(name) = statement.name() else { return begin.syntax_error() };
        let text = |statement: &mut TokenCursor<'_>| {
            statement.accept("AS");
            let value = statement.string().or_else(|| statement.name());
            value.map_or_else(|| statement.syntax_error(), |value| Ok(Some(value)))
        };
        match name.to_ascii_lowercase().as_str() {
            "format" => self.format = text(statement)?,
            "csv" | "text" | "binary" => self.format = Some(name),
            "delimiter" | "delimiters" => self.delimiter = text(statement)?,
            "null" => self.null = text(statement)?,
            "quote" => self.quote = text(statement)?,
            "escape" => self.escape = text(statement)?,
            "header" => {
                self.header = Some(if statement.accept("match") {
                    CopyHeader::Match
                } else if read_switch(statement) {
                    CopyHeader::Names
                } else {
                    CopyHeader::No
                });
            }
            "encoding" => {
                let encoding = text(statement)?.unwrap_or_default();
                if !["utf8", "utf-8", "unicode"].contains(&encoding.to_ascii_lowercase().as_str()) {
                    let message = format!("encoding \"{encoding}\" is not supported");
                    return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).err();
                }
            }
            "freeze" => {
                let _ignored = read_switch(statement);
            }
            _ => return begin.syntax_error(),
        }
        Ok(())
    }

    /// Makes the options, with their defaults.
    fn check(self) -> Result<CopyOptions> {
        let format = match self.format.as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("text") => CopyFormat::Text,
            Some("csv") => CopyFormat::Csv,
            Some("binary") => CopyFormat::Binary,
            Some(other) => {
                let message = format!("COPY format \"{other}\" is not recognized");
                return Diagnostic::new(code::INVALID_PARAMETER, message).err();
            }
        };
        let is_csv = format == CopyFormat::Csv;
        if !is_csv && (self.quote.is_some() || self.escape.is_some()) {
            let message = "COPY QUOTE and ESCAPE require FORMAT csv";
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).err();
        }
        let quote = one_byte("QUOTE", self.quote, b'"')?;
        let delimiter = one_byte("DELIMITER", self.delimiter, if is_csv { b',' } else { b'\t' })?;
        if !is_csv && TEXT_DELIMITERS_REFUSED.contains(&delimiter) {
            let message = format!("COPY delimiter cannot be \"{}\"", char::from(delimiter));
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .with_hint(
                    "Use FORMAT csv: in the text format, the character may be part of an escape \
                     sequence.",
                )
                .err();
        }
        let options = CopyOptions {
            format,
            delimiter,
            null: self.null.unwrap_or_else(|| if is_csv { "" } else { "\\N" }.to_owned()),
            header: self.header.unwrap_or(CopyHeader::No),
            quote,
            escape: one_byte("ESCAPE", self.escape, quote)?,
        };
        let is_in_null = |byte: u8| options.null.contains(char::from(byte));
        let is_clear = !is_csv || (delimiter != quote && !is_in_null(quote));
        if !is_clear || is_in_null(delimiter) || options.null.contains(['\n', '\r']) {
            let message =
                "COPY delimiter and quote must differ, and NULL cannot contain them or line breaks";
            return Diagnostic::new(code::INVALID_PARAMETER, message).err();
        }
        Ok(options)
    }
}

/// Reads the value of a switch, which may be left out.
fn read_switch(statement: &mut TokenCursor<'_>) -> bool {
    for (word, value) in [("true", true), ("on", true), ("false", false), ("off", false)] {
        if statement.accept(word) {
            return value;
        }
    }
    true
}

fn one_byte(name: &str, given: Option<String>, default: u8) -> Result<u8> {
    let Some(text) = given else { return Ok(default) };
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
        _ => {
            let message = format!("COPY {name} must be a single one-byte character");
            Diagnostic::new(code::INVALID_PARAMETER, message).err()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CopyCommand, CopyFormat, CopyHeader};
    use crate::postgres::script::Script;

    fn read(sql: &str) -> Result<CopyCommand, &'static str> {
        let script = Script::new(sql).unwrap();
        let mut statement = script.statements().next().unwrap();
        assert!(statement.accept("COPY"));
        CopyCommand::read(statement).map_err(|error| error.code)
    }

    #[test]
    fn both_ways_to_write_options_are_read() {
        for sql in [
            "COPY t (a, \"b\") FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'x')",
            "COPY t(a,b) FROM stdin CSV HEADER DELIMITER AS ';' NULL AS 'x'",
        ] {
            let CopyCommand::From(target) = read(sql).unwrap() else { panic!("{sql}") };
            assert_eq!(target.columns.unwrap(), ["a", "b"]);
            let options = target.options;
            assert_eq!((options.format, options.delimiter), (CopyFormat::Csv, b';'));
            assert_eq!((options.null.as_str(), options.header), ("x", CopyHeader::Names));
        }
    }

    #[test]
    fn csv_may_escape_quotes_with_a_backslash() {
        let sql = "COPY t FROM STDIN (FORMAT csv, QUOTE '\"', ESCAPE '\\')";
        let CopyCommand::From(target) = read(sql).unwrap() else { panic!("{sql}") };
        assert_eq!((target.options.quote, target.options.escape), (b'"', b'\\'));
    }

    #[test]
    fn queries_and_tables_are_copied_out() {
        for (sql, expected) in [
            ("COPY (SELECT f(a) FROM t) TO STDOUT (FORMAT binary)", "SELECT f(a) FROM t"),
            ("COPY d.t TO STDOUT", "SELECT * FROM `d`.`t`"),
            ("COPY t (a) TO STDOUT", "SELECT `a` FROM `t`"),
        ] {
            let CopyCommand::To { query, .. } = read(sql).unwrap() else { panic!("{sql}") };
            assert_eq!(query.sql, expected);
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for (sql, code) in [
            ("COPY t FROM '/etc/passwd'", "0A000"),
            ("COPY t TO PROGRAM 'x'", "0A000"),
            ("COPY t FROM STDIN (FORMAT parquet)", "22023"),
            ("COPY t FROM STDIN (DELIMITER 'ab')", "22023"),
            ("COPY t FROM STDIN (DELIMITER 'n')", "22023"),
            ("COPY t FROM STDIN (DELIMITER '\\')", "22023"),
            ("COPY t FROM STDIN (FORMAT csv, NULL 'a,b')", "22023"),
            ("COPY t FROM STDIN (FORMAT csv, NULL '\"')", "22023"),
            ("COPY t FROM STDIN (QUOTE 'x')", "0A000"),
            ("COPY t FROM STDIN (WHAT 1)", "42601"),
            ("COPY t TO STDOUT (FORMAT csv, HEADER match)", "0A000"),
            ("COPY (SELECT 1 TO STDOUT", "42601"),
        ] {
            assert_eq!(read(sql).unwrap_err(), code, "{sql}");
        }
    }
}
