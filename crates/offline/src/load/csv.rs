//! Rows from a CSV file.
//!
//! Fields are typed by the table: numbers and dates as CAST reads them, a TIMESTAMP as integer
//! milliseconds or as text.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use ::arrow::array::RecordBatch;
use ::csv::{ByteRecord, Reader, ReaderBuilder};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::{Settings, cast};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::{CsvOptions, FILE_BATCH_ROWS, FileReader, OnError, Skipped, Target};
use crate::error::{from_arrow, from_io};

/// The most characters of a field that an error message shows.
const SHOWN_CHARS_MAX: usize = 80;

/// The byte order mark that some programs put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// An open CSV file.
#[derive(Debug)]
pub(super) struct CsvFile {
    target: Arc<Target>,
    lines: Lines,
    /// For each column of the table the field that holds it, if there is one.
    fields: Vec<Option<usize>>,
    /// How many fields a row has.
    width: usize,
    builders: Vec<ColumnBuilder>,
}

/// The records of a file, with the means to say where one stands.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    reader: Reader<File>,
    record: ByteRecord,
}

impl Lines {
    /// Opens a file.
    pub(super) fn open(path: PathBuf, options: &CsvOptions) -> Result<Self> {
        let file =
            lockstep_host::disk::open(&path).map_err(|error| from_io(&error, "read", &path))?;
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).delimiter(options.delimiter);
        match options.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        Ok(Self { reader: builder.from_reader(file), path, record: ByteRecord::new() })
    }

    /// Goes to the next record; `false` at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.reader.read_byte_record(&mut self.record).map_err(|error| match error.into_kind() {
            ::csv::ErrorKind::Io(error) => from_io(&error, "read", &self.path),
            // Lengths and encoding are not checked by the reader, so nothing else is left.
            _ => Box::new(Diagnostic::internal("a CSV record could not be read")),
        })
    }

    /// How many fields the record has.
    pub(super) fn width(&self) -> usize {
        self.record.len()
    }

    /// A field of the record as text.
    pub(super) fn text(&self, field: usize) -> Option<&str> {
        let text = std::str::from_utf8(self.record.get(field)?).ok()?;
        let is_first = field == 0 && self.record.position().is_some_and(|at| at.byte() == 0);
        Some(if is_first { text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) } else { text })
    }

    /// The names in a header line.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |field| self.text(field).unwrap_or_default().trim().to_owned();
        (0..self.width()).map(name).collect()
    }

    /// The diagnostic of something wrong with the record.
    fn error(&self, code: &'static str, what: &str) -> Box<Diagnostic> {
        let line = self.record.position().map_or(0, ::csv::Position::line);
        let message = format!("file `{}`, line {line}: {what}", self.path.display());
        Box::new(Diagnostic::new(code, message).with_kind(Kind::FixData))
    }
}

impl CsvFile {
    /// Opens a file and reads its header.
    pub(super) fn open(target: Arc<Target>, path: PathBuf) -> Result<Self> {
        let columns = &target.schema.columns;
        let mut lines = Lines::open(path, &target.options.csv)?;
        let mut width = columns.len();
        let mut fields: Vec<_> = (0..width).map(Some).collect();
        if target.options.csv.header && lines.advance()? {
            let names = lines.names();
            let is_known = |name: &String| target.schema.find_column(name).is_some();
            let is_repeated = |at: usize, name: &String| names[..at].contains(name);
            let by_name = names.iter().all(is_known)
                && !names.iter().enumerate().any(|(at, name)| is_repeated(at, name));
            if by_name {
                width = names.len();
                let place = |name: &str| names.iter().position(|known| known == name);
                fields = columns.iter().map(|column| place(&column.name)).collect();
            } else if names.len() != width {
                return Err(header_mismatch(&lines.path, &names, &target));
            }
        }
        for (column, field) in fields.iter().enumerate() {
            if field.is_none() {
                target.default_of(column, &lines.path)?;
            }
        }
        let builder =
            |column: &lockstep_row::Column| ColumnBuilder::new(&column.data_type, FILE_BATCH_ROWS);
        let builders = columns.iter().map(builder).collect();
        Ok(Self { lines, fields, width, builders, target })
    }
}

fn header_mismatch(path: &Path, names: &[String], target: &Target) -> Box<Diagnostic> {
    let columns: Vec<&str> =
        target.schema.columns.iter().map(|column| column.name.as_str()).collect();
    let message = format!(
        "file `{}` has {} columns, the table has {}",
        path.display(),
        names.len(),
        columns.len()
    );
    let unknown = names.iter().find(|name| !columns.contains(&name.as_str()));
    let mut diagnostic = Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData);
    if let Some(unknown) = unknown {
        diagnostic = diagnostic
            .with_detail(format!(
                "The table has no column `{unknown}`, which the first line names."
            ))
            .with_nearest(unknown, columns);
    }
    Box::new(diagnostic)
}

impl FileReader for CsvFile {
    fn next_batch(&mut self, skipped: &mut Skipped) -> Result<Option<RecordBatch>> {
        let Self { target, lines, fields, width, builders } = self;
        let mut row_count = 0;
        while row_count < FILE_BATCH_ROWS && lines.advance()? {
            match read_row(target, lines, fields, *width) {
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
        if row_count == 0 {
            return Ok(None);
        }
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let batch = RecordBatch::try_new(Arc::clone(&target.arrow_schema), columns);
        batch.map(Some).map_err(|error| from_arrow(&error))
    }
}

fn read_row<'a>(
    target: &'a Target,
    lines: &'a Lines,
    fields: &[Option<usize>],
    width: usize,
) -> Result<Vec<Datum<'a>>> {
    if lines.width() != width {
        let what = format!("expected {width} fields, found {}", lines.width());
        return Err(lines.error(code::BAD_COPY_FORMAT, &what));
    }
    let mut row = Vec::with_capacity(fields.len());
    for (at, (column, field)) in target.schema.columns.iter().zip(fields).enumerate() {
        let Some(field) = field else {
            row.push(target.default_of(at, &lines.path)?);
            continue;
        };
        let Some(text) = lines.text(*field) else {
            let what = format!("column `{}`: the text is not UTF-8", column.name);
            return Err(lines.error(code::BAD_COPY_FORMAT, &what));
        };
        let is_null = text == target.options.csv.null_value;
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
            Some(value) => row.push(value),
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

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
