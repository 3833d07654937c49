//! Golden SQL files in sqllogictest syntax.
//!
//! Records are separated by empty lines; lines that begin with `#` in front of one are its
//! sentence. Each file runs in a database of its own.
//!
//! ```text
//! statement ok
//! CREATE TABLE t (a INT)
//!
//! statement error
//! SELECT b FROM t
//! ----
//! error[42703]: … the rendered diagnostic, line for line
//!
//! query IT rowsort
//! SELECT a, 'x' FROM t
//! ----
//! 1 x
//! ```
//!
//! A column's letter is its type: `B` BOOL, `S` SMALLINT, `I` INT, `L` BIGINT, `F` FLOAT,
//! `R` DOUBLE, `T` STRING, `M` TIMESTAMP, `D` DATE, `A` ARRAY or MAP, `N` NULL. Values are
//! separated by one space; an empty text is `(empty)`, a TIMESTAMP is in milliseconds.
//! `rowsort` sorts the lines of both sides. What a `statement ok` warns of stands below it like
//! an error, in full.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lockstep_engine::{Database, Diagnostic, Output, Session};
use lockstep_row::{DataType, Value};

use crate::{rows, scenario::script::date};

/// Between a statement and what must come of it.
const SEPARATOR: &str = "----";

/// One record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    /// Lines before the record, as they are.
    comments: Vec<String>,
    /// The first line's number, from 1.
    line: usize,
    /// `statement ok`, `query IT`, …; empty when there are only comments.
    header: String,
    sql: String,
    expected: Vec<String>,
}

/// What a record came to: its header with the types that came, and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Came {
    header: String,
    lines: Vec<String>,
}

/// The `.slt` files at or below a path, sorted.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    files_with(path, "slt")
}

/// The files with an extension at or below a path, sorted.
pub(crate) fn files_with(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let is_wanted =
        |path: &PathBuf| path.is_dir() || path.extension().is_some_and(|e| e == extension);
    paths.into_iter().filter(is_wanted).flat_map(|path| files_with(&path, extension)).collect()
}

/// Runs a file; the error names every record that came to something else.
pub fn run(file: &Path) -> Result<(), String> {
    let session = Database::in_memory().session();
    let mut failures = Vec::new();
    for record in read(file)? {
        if record.header.is_empty() {
            continue;
        }
        let came = play(&session, &record);
        let expected = Came { header: record.header.clone(), lines: record.expected.clone() };
        if sorted(&came) != sorted(&expected) {
            failures.push(format!(
                "{}:{}\n{}\nexpected: {}\n  {}\ncame: {}\n  {}\n",
                file.display(),
                record.line,
                record.sql,
                expected.header,
                expected.lines.join("\n  "),
                came.header,
                came.lines.join("\n  ")
            ));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a file and writes what came into it. Whoever checks it in has read it.
pub fn complete(file: &Path) -> Result<(), String> {
    let session = Database::in_memory().session();
    let mut blocks = Vec::new();
    for record in read(file)? {
        let mut lines = record.comments.clone();
        if !record.header.is_empty() {
            let came = play(&session, &record);
            lines.extend([came.header, record.sql]);
            if !came.lines.is_empty() {
                lines.push(SEPARATOR.to_owned());
                lines.extend(came.lines);
            }
        }
        blocks.push(lines.join("\n"));
    }
    let text = blocks.join("\n\n") + "\n";
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<Vec<Record>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|(line, error)| format!("{}:{line}: {error}", file.display()))
}

fn parse(text: &str) -> Result<Vec<Record>, (usize, String)> {
    let mut records = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let mut start = 0;
    for block in lines.split(|line| line.trim().is_empty()) {
        if !block.is_empty() {
            records.push(parse_block(block, start + 1)?);
        }
        start += block.len() + 1;
    }
    Ok(records)
}

fn parse_block(block: &[&str], first_line: usize) -> Result<Record, (usize, String)> {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    let comment_count = block.iter().take_while(|line| line.starts_with('#')).count();
    let (comments, rest) = block.split_at(comment_count);
    let line = first_line + comment_count;
    let Some((header, rest)) = rest.split_first() else {
        let sql = String::new();
        let header = String::new();
        return Ok(Record { comments: owned(comments), line, header, sql, expected: Vec::new() });
    };
    let words: Vec<&str> = header.split_whitespace().collect();
    if !matches!(words[..], ["statement", "ok" | "error"] | ["query", _] | ["query", _, "rowsort"])
    {
        return Err((line, format!("`{header}` begins no record")));
    }
    let at = rest.iter().position(|line| *line == SEPARATOR).unwrap_or(rest.len());
    let (sql, expected) = rest.split_at(at);
    Ok(Record {
        comments: owned(comments),
        line,
        header: words.join(" "),
        sql: sql.join("\n"),
        expected: owned(expected.get(1..).unwrap_or_default()),
    })
}

/// Runs a record. A query that fails comes as `statement error`, and the other way round.
fn play(session: &Session, record: &Record) -> Came {
    match session.execute(&record.sql) {
        Err(diagnostic) => Came {
            header: "statement error".to_owned(),
            lines: diagnostic.render(Some(&record.sql)).lines().map(str::to_owned).collect(),
        },
        Ok(output) if record.header == "statement ok" => {
            let render = |warning: &Diagnostic| {
                warning.render(Some(&record.sql)).replacen("error[", "warning[", 1)
            };
            let warnings: Vec<String> = output.warnings.iter().map(render).collect();
            let lines = warnings.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
            Came { header: record.header.clone(), lines }
        }
        Ok(output) => came_of(&output, record.header.ends_with("rowsort")),
    }
}

fn came_of(output: &Output, is_sorted: bool) -> Came {
    if output.columns.is_empty() {
        return Came { header: "statement ok".to_owned(), lines: Vec::new() };
    }
    let types: String = output.columns.iter().map(|(_, data_type)| letter(data_type)).collect();
    let mode = if is_sorted { " rowsort" } else { "" };
    let line = |row: Vec<Value>| row.iter().map(text).collect::<Vec<_>>().join(" ");
    let came = Came {
        header: format!("query {types}{mode}"),
        lines: rows::of_output(output).into_iter().map(line).collect(),
    };
    sorted(&came)
}

fn sorted(came: &Came) -> Came {
    let mut came = came.clone();
    if came.header.ends_with("rowsort") {
        came.lines.sort();
    }
    came
}

fn letter(data_type: &DataType) -> char {
    match data_type {
        DataType::Null => 'N',
        DataType::Bool => 'B',
        DataType::SmallInt => 'S',
        DataType::Int => 'I',
        DataType::BigInt => 'L',
        DataType::Float => 'F',
        DataType::Double => 'R',
        DataType::String => 'T',
        DataType::Timestamp => 'M',
        DataType::Date => 'D',
        DataType::Array(_) | DataType::Map(..) => 'A',
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::SmallInt(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(value) | Value::Timestamp(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Double(value) => format!("{value:?}"),
        Value::String(text) if text.is_empty() => "(empty)".to_owned(),
        Value::String(text) => text.replace('\n', "\\n"),
        Value::Date(days) => date(*days),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", "))
        }
        Value::Map(entries) => {
            let entry = |(key, value): &(Value, Value)| format!("{}: {}", text(key), text(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, parse};

    #[test]
    fn a_file_is_read_record_by_record() {
        let text = "# Why.\nstatement ok\nCREATE TABLE t\n  (a INT)\n\n# Alone.\n\n\
                    query I rowsort\nSELECT a\n----\n1\n2\n";
        let record = |comments: &[&str], line, header: &str, sql: &str, expected: &[&str]| Record {
            comments: comments.iter().map(|line| (*line).to_owned()).collect(),
            line,
            header: header.to_owned(),
            sql: sql.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        };
        assert_eq!(
            parse(text),
            Ok(vec![
                record(&["# Why."], 2, "statement ok", "CREATE TABLE t\n  (a INT)", &[]),
                record(&["# Alone."], 7, "", "", &[]),
                record(&[], 8, "query I rowsort", "SELECT a", &["1", "2"]),
            ])
        );
    }

    #[test]
    fn a_word_out_of_place_is_noticed() {
        assert_eq!(parse("statement good\nSELECT 1").map_err(|(line, _)| line), Err(1));
    }
}
