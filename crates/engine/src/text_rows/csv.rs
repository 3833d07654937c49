//! Rows of a table from CSV with a header: RFC 4180, in the forms in which CSV is written.
//!
//! Records and fields are read as those of CSV files: an unquoted empty field is NULL, a quoted one the
//! empty text; a TIMESTAMP is a number of milliseconds or ISO 8601 text, a DATE ISO 8601 text.

use lockstep_batch::load::{CsvCharacters, CsvError, CsvRecords, TEXT_AFTER_QUOTE, read_field};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{Arena, DataType, Datum};

use super::{JsonRow, without_mark};
use crate::Conversion;

/// The characters of the CSV of a body.
const CHARACTERS: CsvCharacters = CsvCharacters { delimiter: b',', quote: Some(b'"') };

/// The columns of a table, and how their values are converted.
#[derive(Debug, Clone, Copy)]
pub struct CsvSchema<'s> {
    /// The columns.
    pub columns: &'s [(String, DataType)],
    /// How values are converted.
    pub conversion: Conversion,
}

impl CsvSchema<'_> {
    /// Reads the rows of a body, each passed to `give`.
    pub fn read(self, body: &[u8], mut give: impl FnMut(&JsonRow<'_>) -> Result<()>) -> Result<()> {
        let mut records = CsvRecords::new(without_mark(body), CHARACTERS);
        if !records.advance().map_err(|error| malformed(&error))? {
            return Err(at_line(1, "missing header"));
        }
        let positions = self.header(&records)?;
        records.set_width(positions.len());
        let mut present = vec![false; self.columns.len()];
        positions.iter().for_each(|position| present[*position] = true);
        let mut arena = Arena::new();
        while records.advance().map_err(|error| malformed(&error))? {
            if records.is_malformed() {
                return Err(at_line(records.line(), TEXT_AFTER_QUOTE));
            }
            let (found, expected) = (records.width(), positions.len());
            if found != expected {
                let what = format!("expected {expected} fields, found {found}");
                return Err(at_line(records.line(), &what));
            }
            let values = arena.alloc_slice_fill_copy(self.columns.len(), Datum::Null);
            for (field, position) in positions.iter().enumerate() {
                values[*position] = self.value(&records, field, *position)?;
            }
            give(&JsonRow { values, present: &present })?;
            arena.reset();
        }
        Ok(())
    }

    /// Reads a record that has a field for each of these columns, without a header.
    pub fn read_record<'a>(
        self,
        record: &[u8],
        positions: &[usize],
        arena: &'a Arena,
    ) -> Result<JsonRow<'a>> {
        let mut records = CsvRecords::new(without_mark(record), CHARACTERS);
        let wrong = |what: &str| {
            let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, what).with_kind(Kind::FixData);
            Box::new(diagnostic)
        };
        records.set_width(positions.len());
        if !records.advance().map_err(|error| wrong(&error.to_string()))? {
            return Err(wrong("the record is empty"));
        }
        if records.is_malformed() {
            return Err(wrong(TEXT_AFTER_QUOTE));
        }
        let (found, expected) = (records.width(), positions.len());
        if found != expected {
            return Err(wrong(&format!("expected {expected} fields, found {found}")));
        }
        debug_assert!(positions.iter().all(|at| *at < self.columns.len()), "they are columns");
        let values = arena.alloc_slice_fill_copy(self.columns.len(), Datum::Null);
        let present = arena.alloc_slice_fill_copy(self.columns.len(), false);
        for (field, position) in positions.iter().enumerate() {
            let value = self.value(&records, field, *position)?;
            values[*position] = match value {
                Datum::String(text) => Datum::String(arena.alloc_str(text)),
                // A field is no array and no map.
                value => value.detached().copied().unwrap_or(Datum::Null),
            };
            present[*position] = true;
        }
        if records.advance().map_err(|error| wrong(&error.to_string()))? {
            return Err(wrong("the value has more than one record"));
        }
        Ok(JsonRow { values, present })
    }

    /// Returns the column of each field that the header names.
    fn header(self, records: &CsvRecords<&[u8]>) -> Result<Vec<usize>> {
        let mut positions = Vec::with_capacity(records.width());
        for field in 0..records.width() {
            let Some(name) = records.text(field).filter(|_| !records.is_malformed()) else {
                return Err(at_line(records.line(), "the header is not valid CSV in UTF-8"));
            };
            let name = if records.is_quoted(field) { name } else { name.trim() };
            let position = self.find(name)?;
            if positions.contains(&position) {
                let message = format!("column `{name}` specified more than once in the header");
                return Diagnostic::new(code::AMBIGUOUS_COLUMN, message).err();
            }
            positions.push(position);
        }
        Ok(positions)
    }

    /// Finds a column of the header.
    fn find(self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|(column, _)| column == name);
        found.ok_or_else(|| {
            let message = format!("column `{name}` does not exist");
            let names = self.columns.iter().map(|(name, _)| name.as_str());
            Box::new(Diagnostic::new(code::UNDEFINED_COLUMN, message).with_nearest(name, names))
        })
    }

    /// Reads a field.
    fn value<'r>(
        self,
        records: &'r CsvRecords<&[u8]>,
        field: usize,
        position: usize,
    ) -> Result<Datum<'r>> {
        let (name, data_type) = &self.columns[position];
        let Some(text) = records.text(field) else {
            let what = format!("column `{name}`: the value is not valid UTF-8");
            return Err(at_line(records.line(), &what));
        };
        let settings = self.conversion.settings();
        read_field(text, records.is_quoted(field), "", data_type, &settings).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            let message =
                format!("column `{name}`: invalid input syntax for type {data_type}: '{shown}'");
            let line = records.line();
            let diagnostic = Diagnostic::new(code::INVALID_TEXT, message).with_kind(Kind::FixData);
            Box::new(diagnostic.with_detail(format!("The value is in line {line} of the body.")))
        })
    }
}

fn malformed(error: &CsvError) -> Box<Diagnostic> {
    match error {
        CsvError::Unclosed { line } | CsvError::TooLong { line } => {
            at_line(*line, &error.to_string())
        }
        CsvError::Io(_) => Box::new(Diagnostic::internal(error.to_string())),
    }
}

fn at_line(line: u64, what: &str) -> Box<Diagnostic> {
    let message = format!("line {line} of the body: {what}");
    let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_hint("Send CSV in UTF-8 with the column names in the first line."))
}
