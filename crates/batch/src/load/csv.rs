//! The reader of CSV files.
//!
//! Fields have the types of the table's columns: numbers and dates are read as CAST reads them, a
//! TIMESTAMP as integer milliseconds or as text, which is truncated to the millisecond.

use std::sync::Arc;

use ::arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::{
    CsvOptions, FILE_BATCH_ROWS, FileReader, LoadTarget, OnError, Skipped,
    columns::{ColumnMapping, Note, in_order, match_columns},
    csv_records::{CsvCharacters, CsvError, CsvRecords, TEXT_AFTER_QUOTE, read_field},
    location::{BytesRead, InputFile, TextInput},
};
use crate::error::from_io_at;

/// The most characters of a field that an error message shows.
const SHOWN_CHARS_MAX: usize = 80;

/// What to do about a quote that is not where CSV has one.
const QUOTE_HINT: &str = "Double each quote in a quoted field, or use OPTIONS(quote = '') to read \
                          quotes as ordinary characters.";

/// An open CSV file.
#[derive(Debug)]
pub(super) struct CsvFile {
    target: Arc<LoadTarget>,
    lines: CsvLines,
    /// For each column of the table its field, if there is one.
    fields: Vec<Option<usize>>,
    /// The number of fields of a row.
    width: usize,
    builders: Vec<ColumnBuilder>,
    /// The notes about its columns.
    notes: Vec<Note>,
    /// The error behind the rows of the last batch.
    failed: Option<Box<Diagnostic>>,
}

/// A cursor over the records of a file.
#[derive(Debug)]
pub(super) struct CsvLines {
    path: InputFile,
    read: BytesRead,
    records: CsvRecords<TextInput>,
    characters: CsvCharacters,
}

/// The longest name of a column in a header.
const NAME_BYTES_MAX: usize = 1_000;

impl CsvLines {
    /// Opens a file.
    pub(super) fn open(path: InputFile, options: &CsvOptions) -> Result<Self> {
        let read = BytesRead::default();
        let characters = CsvCharacters { delimiter: options.delimiter, quote: options.quote };
        let records = CsvRecords::new(path.text(&read)?, characters);
        Ok(Self { path, read, records, characters })
    }

    /// Returns the records.
    pub(super) fn records(&mut self) -> &mut CsvRecords<TextInput> {
        &mut self.records
    }

    /// Reads the next record; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.records.advance().map_err(|error| {
            let line = match &error {
                CsvError::Io(error) => return from_io_at(error, "read", &self.path),
                CsvError::Unclosed { line } | CsvError::TooLong { line } => *line,
            };
            let message = format!("file `{}`, line {line}: {error}", self.path);
            let diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message);
            Box::new(diagnostic.with_kind(Kind::FixData).with_hint(QUOTE_HINT))
        })
    }

    /// Fails where the record is not CSV.
    pub(super) fn check(&self) -> Result<()> {
        match self.records.is_malformed() {
            true => self.error(code::BAD_COPY_FORMAT, TEXT_AFTER_QUOTE).with_hint(QUOTE_HINT).err(),
            false => Ok(()),
        }
    }

    /// Returns the names in a header line. Blanks around a name are no part of it, unless it is quoted.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        self.check()?;
        (0..self.records.width()).map(|field| self.name(field)).collect()
    }

    fn name(&self, field: usize) -> Result<String> {
        let Some(name) = self.records.text(field) else {
            let what = format!("the name of column {} is not valid UTF-8", field + 1);
            return Err(self.error(code::BAD_COPY_FORMAT, &what));
        };
        let name = if self.records.is_quoted(field) { name } else { name.trim() };
        if name.len() > NAME_BYTES_MAX {
            let what = format!(
                "a column name of {} bytes exceeds the limit of {NAME_BYTES_MAX} bytes",
                name.len()
            );
            let hint = "Use OPTIONS(header = false) if the first line is a row, and \
                        OPTIONS(delimiter = '…') if another character separates the fields.";
            return self.error(code::BAD_COPY_FORMAT, &what).with_hint(hint).err();
        }
        Ok(name.to_owned())
    }

    /// Returns the text of the record, as it may have been written.
    fn text(&self) -> String {
        let CsvCharacters { delimiter, quote } = self.characters;
        let (quote, mut text) = (quote.map(char::from), String::new());
        for field in 0..self.records.width() {
            if field > 0 {
                text.push(char::from(delimiter));
            }
            let value = String::from_utf8_lossy(self.records.bytes(field).unwrap_or_default());
            match quote.filter(|_| self.records.is_quoted(field)) {
                Some(quote) => {
                    let doubled = value.replace(quote, &format!("{quote}{quote}"));
                    text.push_str(&format!("{quote}{doubled}{quote}"));
                }
                None => text.push_str(&value),
            }
        }
        text
    }

    /// Returns an error about the record.
    fn error(&self, code: &'static str, what: &str) -> Box<Diagnostic> {
        let message = format!("file `{}`, line {}: {what}", self.path, self.records.line());
        Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
    }
}

impl CsvFile {
    /// Opens a file and reads its header.
    pub(super) fn open(target: Arc<LoadTarget>, path: InputFile) -> Result<Self> {
        let mut lines = CsvLines::open(path, &target.options.csv)?;
        let mut width = target.schema.columns.len() - target.folder_columns.len();
        let mut matched = in_order(&target);
        if target.options.csv.header && lines.advance()? {
            width = lines.records.width();
            matched = match_columns(&target, &lines.path, &lines.names()?)?;
        }
        lines.records.set_width(width);
        let ColumnMapping { sources: fields, notes } = matched;
        target.check_defaults(&fields, &lines.path)?;
        let builders = target.builders();
        Ok(Self { lines, fields, width, builders, notes, failed: None, target })
    }
}

impl FileReader for CsvFile {
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Self { target, lines, fields, width, builders, notes, failed } = self;
        if let Some(error) = failed.take() {
            return Err(error);
        }
        let mut row_count = 0;
        let mut cut = Vec::new();
        while row_count < FILE_BATCH_ROWS && !skipped.is_full() {
            match lines.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if row_count == 0 => return Err(error),
                Err(error) => {
                    *failed = Some(error);
                    break;
                }
            }
            match read_row(target, lines, fields, *width, &mut cut) {
                Ok(row) => {
                    for (builder, value) in builders.iter_mut().zip(row) {
                        builder.push(value);
                    }
                    row_count += 1;
                }
                Err(error) => match target.options.csv.on_error {
                    OnError::Fail => return Err(error),
                    OnError::Skip => {
                        let place = (&lines.path, lines.records.line());
                        skipped.add(error, row_count, place, || lines.text());
                    }
                },
            }
        }
        cut.sort_unstable();
        cut.dedup();
        notes.extend(cut.iter().map(|at| Note::Cut(target.schema.columns[*at].name.clone())));
        if row_count == 0 && !skipped.is_full() {
            return Ok(None);
        }
        debug_assert!(row_count <= FILE_BATCH_ROWS, "a batch has a limit");
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        target.batch(columns, row_count).map(Some)
    }

    fn bytes_read(&self) -> u64 {
        self.lines.read.get()
    }

    fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

fn read_row<'a>(
    target: &'a LoadTarget,
    lines: &'a CsvLines,
    fields: &[Option<usize>],
    width: usize,
    cut: &mut Vec<usize>,
) -> Result<Vec<Datum<'a>>> {
    lines.check()?;
    let records = &lines.records;
    if records.width() != width {
        let what = format!("expected {width} fields, found {}", records.width());
        return Err(lines.error(code::BAD_COPY_FORMAT, &what));
    }
    let null_value = &target.options.csv.null_value;
    let mut row = Vec::with_capacity(target.columns.len());
    for at in target.columns.iter().copied() {
        let column = &target.schema.columns[at];
        let Some(field) = fields[at] else {
            row.push(target.default_of(at, &lines.path)?);
            continue;
        };
        let Some(text) = records.text(field) else {
            let what = format!("column `{}`: the value is not valid UTF-8", column.name);
            return Err(lines.error(code::BAD_COPY_FORMAT, &what));
        };
        let is_quoted = records.is_quoted(field);
        match read_field(text, is_quoted, null_value, &column.data_type, &target.settings) {
            Some(Datum::Null) if !column.nullable => {
                let what =
                    format!("null value in column `{}` violates not-null constraint", column.name);
                return Err(lines.error(code::NOT_NULL_VIOLATION, &what));
            }
            Some(value) => {
                if let Datum::String(text) = value {
                    let checked = column.check_length(text);
                    checked.map_err(|e| lines.error(code::STRING_TOO_LONG, &e.to_string()))?;
                }
                if column.data_type == DataType::Timestamp && is_finer(text) {
                    cut.push(at);
                }
                row.push(value);
            }
            None => {
                let invalid = invalid_input(&column.data_type, text);
                let what = format!("column `{}`: {invalid}", column.name);
                return Err(lines.error(code::BAD_COPY_FORMAT, &what));
            }
        }
    }
    Ok(row)
}

/// Returns whether a time has digits other than 0 after the millisecond.
fn is_finer(text: &str) -> bool {
    let Some((_, fraction)) = text.split_once('.') else { return false };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    digits.skip(3).any(|digit| digit != b'0')
}

/// Returns the message about a text that is not a value of a type.
pub(super) fn invalid_input(data_type: &DataType, text: &str) -> String {
    let expected = match data_type {
        DataType::Bool => " (expected `true` or `false`)",
        DataType::Timestamp => " (expected `yyyy-mm-dd hh:mm:ss` or integer milliseconds)",
        DataType::Date => " (expected `yyyy-mm-dd`)",
        integer if integer.is_integer() => " (expected an integer within the range of the type)",
        _ => "",
    };
    format!("invalid input syntax for type {data_type}: '{}'{expected}", shorten(text))
}

pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
