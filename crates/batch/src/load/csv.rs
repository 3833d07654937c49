//! The reader of CSV files.
//!
//! Fields have the types of the table's columns: numbers and dates are read as CAST reads them, a
//! TIMESTAMP as integer milliseconds or as text, which is truncated to the millisecond.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
    sync::Arc,
};

use ::arrow::array::RecordBatch;
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::{Settings, cast};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::{
    CsvOptions, FILE_BATCH_ROWS, FileReader, LoadTarget, OnError, Skipped,
    columns::{ColumnMapping, Note, in_order, match_columns},
    location::{BytesRead, InputFile},
};
use crate::error::from_io_at;

/// The most characters of a field that an error message shows.
const SHOWN_CHARS_MAX: usize = 80;

/// The byte order mark that some programs write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The size of the buffer of a file's bytes.
const INPUT_BYTES: usize = 1 << 16;

/// The initial size of the buffer for a record's text.
const FIELD_BYTES: usize = 1024;

/// An open CSV file.
#[derive(Debug)]
pub(super) struct CsvFile {
    target: Arc<LoadTarget>,
    lines: CsvRecords,
    /// For each column of the table its field, if there is one.
    fields: Vec<Option<usize>>,
    /// The number of fields of a row.
    width: usize,
    builders: Vec<ColumnBuilder>,
    /// The notes about its columns.
    notes: Vec<Note>,
}

/// A cursor over the records of a file, with their line numbers and which fields were quoted.
pub(super) struct CsvRecords {
    path: InputFile,
    file: BufReader<Box<dyn Read + Send>>,
    read: BytesRead,
    reader: Reader,
    quote: Option<u8>,
    /// The buffer; begins with the text of the record's fields, one after the other.
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The number of line ends read so far.
    lines_read: u64,
    /// The line in which the record starts, from 1.
    line: u64,
}

impl fmt::Debug for CsvRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvRecords").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A field of the record.
#[derive(Debug, Clone, Copy)]
struct Field {
    /// The end of its text in the buffer.
    end: usize,
    is_quoted: bool,
}

/// The longest name of a column in a header.
const NAME_BYTES_MAX: usize = 1_000;

impl CsvRecords {
    /// Opens a file.
    pub(super) fn open(path: InputFile, options: &CsvOptions) -> Result<Self> {
        let read = BytesRead::default();
        let mut file = BufReader::with_capacity(INPUT_BYTES, path.text(&read)?);
        let begin = file.fill_buf().map(|begin| begin.starts_with(BYTE_ORDER_MARK));
        if begin.map_err(|error| from_io_at(&error, "read", &path))? {
            file.consume(BYTE_ORDER_MARK.len());
        }
        let mut builder = ReaderBuilder::new();
        builder.delimiter(options.delimiter);
        match options.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        let quote = options.quote;
        let bytes = vec![0; FIELD_BYTES];
        let (reader, fields) = (builder.build(), Vec::new());
        Ok(Self { path, file, read, reader, quote, bytes, fields, lines_read: 0, line: 1 })
    }

    /// Reads the next record; `false` at the end. Empty lines are skipped.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.fields.clear();
        let read = self.skip_line_ends().and_then(|()| {
            self.line = self.lines_read + 1;
            while self.read_field()? {}
            Ok(!self.fields.is_empty())
        });
        read.map_err(|error| from_io_at(&error, "read", &self.path))
    }

    fn skip_line_ends(&mut self) -> io::Result<()> {
        loop {
            let input = self.file.fill_buf()?;
            let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
            let count = input.iter().take_while(is_end).count();
            if count == 0 {
                return Ok(());
            }
            self.lines_read += count_lines(&input[..count]);
            self.file.consume(count);
        }
    }

    /// Reads one field and returns whether the record has another.
    fn read_field(&mut self) -> io::Result<bool> {
        let mut end = self.fields.last().map_or(0, |field| field.end);
        let first = self.file.fill_buf()?.first().copied();
        let is_quoted = first.is_some() && first == self.quote;
        loop {
            let input = self.file.fill_buf()?;
            let (result, consumed, written) = self.reader.read_field(input, &mut self.bytes[end..]);
            self.lines_read += count_lines(&input[..consumed]);
            self.file.consume(consumed);
            end += written;
            match result {
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => self.bytes.resize(self.bytes.len() * 2, 0),
                ReadFieldResult::Field { record_end } => {
                    self.fields.push(Field { end, is_quoted });
                    return Ok(!record_end);
                }
                ReadFieldResult::End => return Ok(false),
            }
        }
    }

    /// Returns the number of fields of the record.
    pub(super) fn width(&self) -> usize {
        self.fields.len()
    }

    /// Returns the text of a field; `None` when the record has no such field or it is not UTF-8.
    pub(super) fn text(&self, field: usize) -> Option<&str> {
        let end = self.fields.get(field)?.end;
        let start = field.checked_sub(1).map_or(0, |before| self.fields[before].end);
        std::str::from_utf8(&self.bytes[start..end]).ok()
    }

    /// Returns whether a field of the record was written in quotes.
    fn is_quoted(&self, field: usize) -> bool {
        self.fields[field].is_quoted
    }

    /// Returns the names in a header line.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let name = |field| self.text(field).unwrap_or_default().trim();
        let names = (0..self.width()).map(name);
        if let Some(long) = names.clone().find(|name| name.len() > NAME_BYTES_MAX) {
            let what = format!("the name of a column has {} bytes", long.len());
            let hint = "Say OPTIONS(header = false) if it is a row, and OPTIONS(delimiter = '…') if other signs \
                        separate its fields.";
            let error = self.error(code::BAD_COPY_FORMAT, &what);
            return error.with_hint(hint).err();
        }
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns an error about the record.
    fn error(&self, code: &'static str, what: &str) -> Box<Diagnostic> {
        let message = format!("file `{}`, line {}: {what}", self.path, self.line);
        Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
    }
}

impl CsvFile {
    /// Opens a file and reads its header.
    pub(super) fn open(target: Arc<LoadTarget>, path: InputFile) -> Result<Self> {
        let mut lines = CsvRecords::open(path, &target.options.csv)?;
        let mut width = target.schema.columns.len() - target.folder_columns.len();
        let mut matched = in_order(&target);
        if target.options.csv.header && lines.advance()? {
            width = lines.width();
            matched = match_columns(&target, &lines.path, &lines.names()?)?;
        }
        let ColumnMapping { sources: fields, notes } = matched;
        target.check_defaults(&fields, &lines.path)?;
        let builders = target.builders();
        Ok(Self { lines, fields, width, builders, notes, target })
    }
}

impl FileReader for CsvFile {
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Self { target, lines, fields, width, builders, notes } = self;
        let mut row_count = 0;
        let mut cut = Vec::new();
        while row_count < FILE_BATCH_ROWS && lines.advance()? {
            match read_row(target, lines, fields, *width, &mut cut) {
                Ok(row) => {
                    for (builder, value) in builders.iter_mut().zip(row) {
                        builder.push(value);
                    }
                    row_count += 1;
                }
                Err(error) => match target.options.csv.on_error {
                    OnError::Fail => return Err(error),
                    OnError::Skip => skipped.add(error),
                },
            }
        }
        cut.sort_unstable();
        cut.dedup();
        notes.extend(cut.iter().map(|at| Note::Cut(target.schema.columns[*at].name.clone())));
        if row_count == 0 {
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

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

fn read_row<'a>(
    target: &'a LoadTarget,
    lines: &'a CsvRecords,
    fields: &[Option<usize>],
    width: usize,
    cut: &mut Vec<usize>,
) -> Result<Vec<Datum<'a>>> {
    if lines.width() != width {
        let what = format!("expected {width} fields, found {}", lines.width());
        return Err(lines.error(code::BAD_COPY_FORMAT, &what));
    }
    let mut row = Vec::with_capacity(target.columns.len());
    for at in target.columns.iter().copied() {
        let column = &target.schema.columns[at];
        let Some(field) = fields[at] else {
            row.push(target.default_of(at, &lines.path)?);
            continue;
        };
        let Some(text) = lines.text(field) else {
            let what = format!("column `{}`: the text is not UTF-8", column.name);
            return Err(lines.error(code::BAD_COPY_FORMAT, &what));
        };
        // A quoted text is never NULL.
        let is_text = column.data_type == DataType::String && lines.is_quoted(field);
        let is_null = text == target.options.csv.null_value && !is_text;
        let value = if is_null {
            Some(Datum::Null)
        } else {
            parse(text, &column.data_type, target.settings)
        };
        match value {
            Some(Datum::Null) if !column.nullable => {
                let what = format!("column `{}` does not take NULL", column.name);
                return Err(lines.error(code::NOT_NULL_VIOLATION, &what));
            }
            Some(value) => {
                if column.data_type == DataType::Timestamp && is_finer(text) {
                    cut.push(at);
                }
                row.push(value);
            }
            None => {
                let (shown, expected) = (shorten(text), describe(&column.data_type));
                let what = format!("column `{}`: `{shown}` is not {expected}", column.name);
                return Err(lines.error(code::BAD_COPY_FORMAT, &what));
            }
        }
    }
    Ok(row)
}

/// Reads a field. An empty one is NULL unless the column is text.
pub(super) fn parse<'a>(
    text: &'a str,
    data_type: &DataType,
    settings: Settings,
) -> Option<Datum<'a>> {
    if *data_type == DataType::String {
        return Some(Datum::String(text));
    }
    let text = text.trim();
    if text.is_empty() {
        return Some(Datum::Null);
    }
    let integer = || cast::parse_integer(text);
    Some(match data_type {
        DataType::Bool => Datum::Bool(cast::parse_bool(text)?),
        DataType::SmallInt => Datum::SmallInt(i16::try_from(integer()?).ok()?),
        DataType::Int => Datum::Int(i32::try_from(integer()?).ok()?),
        DataType::BigInt => Datum::BigInt(integer()?),
        DataType::Float => Datum::Float(cast::parse_float(text)?),
        DataType::Double => Datum::Double(cast::parse_double(text)?),
        DataType::Timestamp => {
            Datum::Timestamp(text.parse().ok().or_else(|| cast::parse_timestamp(text, &settings))?)
        }
        DataType::Date => Datum::Date(cast::parse_date(text, &settings)?),
        DataType::Null | DataType::String | DataType::Array(_) | DataType::Map(..) => return None,
    })
}

/// Returns whether a time has digits other than 0 after the millisecond.
fn is_finer(text: &str) -> bool {
    let Some((_, fraction)) = text.split_once('.') else { return false };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    digits.skip(3).any(|digit| digit != b'0')
}

fn describe(data_type: &DataType) -> String {
    match data_type {
        DataType::Bool => "a BOOL (`true` or `false`)".to_owned(),
        DataType::Timestamp => {
            "a TIMESTAMP (`yyyy-mm-dd hh:mm:ss` or integer milliseconds)".to_owned()
        }
        DataType::Date => "a DATE (`yyyy-mm-dd`)".to_owned(),
        DataType::Int => "an INT within its range".to_owned(),
        integer if integer.is_integer() => format!("a {integer} within its range"),
        other => format!("a {other}"),
    }
}

pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
