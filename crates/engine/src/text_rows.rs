//! Rows from text, as appends over HTTP and messages of Kafka have them: straight from bytes into values of a schema's
//! types, without a tree in between.
//!
//! JSON is read here, CSV in `csv`. In JSON, a row is an object, whose keys are columns, or an array with a value for each column. Conversions
//! are those of Python values: no digit is lost and no text is read as a number, except the words for
//! numbers that JSON does not have (`"NaN"`, `"Infinity"`, `"-Infinity"`).
//!
//! # Cost
//!
//! Text without escapes is borrowed from the body. A key is compared with the column behind the last
//! one; only where it differs is it looked up.

mod csv;
mod row_reader;
#[cfg(test)]
mod tests;
mod value_reader;

use std::{cell::RefCell, collections::HashMap};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{Arena, DataType, Datum};
use serde::de::{DeserializeSeed, Deserializer};

use self::row_reader::{ArrayVisitor, RowReader};
use crate::Conversion;

pub use csv::CsvSchema;
pub use value_reader::number;

/// The columns of rows, and how their values are converted.
#[derive(Debug)]
pub struct RowSchema {
    columns: Vec<(String, DataType)>,
    positions: HashMap<String, usize>,
    conversion: Conversion,
    keys: KeyRule,
    /// What the text is, for errors.
    text: &'static str,
}

/// What an object's keys may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRule {
    /// The columns whose mark is set, and any others, which are ignored where they are no columns:
    /// request rows.
    AllReadAndMore(Vec<bool>),
    /// Some columns and nothing else: rows of a table, which has defaults.
    Some,
}

/// The form of rows, which an answer takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonRowForm {
    /// Objects by column.
    Objects,
    /// Arrays of values.
    Arrays,
}

/// The rows of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyForm {
    /// The form of each row.
    pub rows: JsonRowForm,
    /// Whether it is an array of rows; otherwise it is one row.
    pub is_array: bool,
}

impl BodyForm {
    /// Returns the form of a body by its first characters.
    pub fn of(body: &[u8]) -> Self {
        let mut marks = without_mark(body).iter().filter(|byte| !byte.is_ascii_whitespace());
        match (marks.next(), marks.next()) {
            (Some(b'['), Some(b'{')) => Self { rows: JsonRowForm::Objects, is_array: true },
            (Some(b'['), Some(b'[' | b']')) => Self { rows: JsonRowForm::Arrays, is_array: true },
            (Some(b'['), _) => Self { rows: JsonRowForm::Arrays, is_array: false },
            _ => Self { rows: JsonRowForm::Objects, is_array: false },
        }
    }
}

/// Returns a body without the byte order mark that some programs write before UTF-8.
pub fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body)
}

/// One row: its values, and which columns it has.
#[derive(Debug)]
pub struct JsonRow<'a> {
    /// A value for each column: NULL where the row does not have it.
    pub values: &'a [Datum<'a>],
    /// For each column whether the row has it.
    pub present: &'a [bool],
}

impl RowSchema {
    /// Makes a schema of columns.
    pub fn new(columns: &[(String, DataType)], conversion: Conversion, keys: KeyRule) -> Self {
        let named = columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
        let (columns, positions): (_, HashMap<String, usize>) = (columns.to_vec(), named.collect());
        debug_assert_eq!(positions.len(), columns.len(), "names are distinct");
        Self { columns, positions, conversion, keys, text: "request body" }
    }

    /// Returns the schema of rows that are messages, as errors call them.
    #[must_use]
    pub fn of_messages(self) -> Self {
        Self { text: "message", ..self }
    }

    /// Returns the columns.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.columns
    }

    /// Reads the one row of a body.
    pub fn read_row<'a>(&self, body: &'a [u8], arena: &'a Arena) -> Result<JsonRow<'a>> {
        let failure = RefCell::default();
        let reader = RowReader { schema: self, arena, failure: &failure };
        let mut deserializer = serde_json::Deserializer::from_slice(without_mark(body));
        let row = reader.deserialize(&mut deserializer);
        let row = row.and_then(|row| deserializer.end().map(|()| row));
        row.map_err(|error| self.cause_of(&failure, &error))
    }

    /// Reads the rows of a body that is an array of rows, each passed to `give`. They share the memory of
    /// one row.
    pub fn read_array(
        &self,
        body: &[u8],
        give: impl FnMut(&JsonRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let failure = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_slice(without_mark(body));
        let visitor = ArrayVisitor { schema: self, failure: &failure, give };
        let read = deserializer.deserialize_seq(visitor);
        let read = read.and_then(|()| deserializer.end());
        read.map_err(|error| self.cause_of(&failure, &error))
    }

    /// Reads rows that follow each other, as in NDJSON, each passed to `give`. They share the memory of
    /// one row.
    pub fn read_lines(
        &self,
        body: &[u8],
        mut give: impl FnMut(&JsonRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let lines = body.split(|byte| *byte == b'\n');
        let mut arena = Arena::new();
        for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim_ascii().is_empty()) {
            let row = self.read_row(line, &arena).map_err(|mut error| {
                let place = format!("The row is in line {} of the body.", at + 1);
                error.detail.get_or_insert(place);
                error
            })?;
            give(&row)?;
            arena.reset();
        }
        Ok(())
    }

    /// Finds a column by its name; `expected` is where it is if the keys are in order.
    fn find(&self, name: &str, expected: usize) -> Option<usize> {
        let is_next = self.columns.get(expected).is_some_and(|(next, _)| next == name);
        if is_next { Some(expected) } else { self.positions.get(name).copied() }
    }

    /// Returns the error of a parser that has ended.
    fn cause_of(
        &self,
        failure: &RefCell<Option<Box<Diagnostic>>>,
        error: &serde_json::Error,
    ) -> Box<Diagnostic> {
        failure.take().unwrap_or_else(|| {
            let message = format!("invalid {}: {error}", self.text);
            let diagnostic = Diagnostic::new(code::INVALID_TEXT, message);
            let hint = "Send each row as a JSON object of columns, or as an array of values.";
            Box::new(diagnostic.with_hint(hint))
        })
    }
}
