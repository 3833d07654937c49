//! The writer of CSV files.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

use arrow::array::RecordBatch;
use csv_core::{ReadFieldResult, Reader, ReaderBuilder, Terminator};
use lockstep_function::{Compatibility, TimeZone, Zone, cast::Printer};
use lockstep_row::{
    Arena, Datum,
    arrow::ColumnReader,
    calendar::{Civil, TimeOfDay, civil_from_days, split_ms},
};

use super::{ExportOptions, Quote};

/// The quote character where the options name none.
const DEFAULT_QUOTE: char = '"';

/// A writer of rows as lines of CSV.
#[derive(Debug)]
pub(super) struct CsvWriter {
    delimiter: char,
    quote: Quote,
    null_value: String,
    /// A text equal to this is quoted; empty for none.
    quoted_text: String,
    printer: Printer,
    compatibility: Compatibility,
    time_zone: TimeZone,
    line: String,
    field: String,
}

impl CsvWriter {
    /// Makes a writer.
    pub(super) fn new(options: &ExportOptions) -> Self {
        Self {
            delimiter: char::from(options.delimiter),
            quote: options.quote,
            null_value: options.null_value.clone(),
            // OpenMLDB writes such a text without quotes, and so reads it back as NULL.
            quoted_text: match options.settings.compatibility {
                Compatibility::Standard => options.null_value.clone(),
                Compatibility::OpenMldb => String::new(),
            },
            printer: Printer::new(&options.settings),
            compatibility: options.settings.compatibility,
            time_zone: options.settings.time_zone,
            line: String::new(),
            field: String::new(),
        }
    }

    /// Writes the names of the columns.
    pub(super) fn write_header<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.line.clear();
        for (at, name) in names.enumerate() {
            if at > 0 {
                self.line.push(self.delimiter);
            }
            match self.quote {
                Quote::Never => self.line.push_str(name),
                _ => push_where_needed(name, self.delimiter, "", &mut self.line),
            }
        }
        self.line.push('\n');
        out.write_all(self.line.as_bytes())
    }

    /// Writes the rows of a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch, out: &mut impl Write) -> io::Result<()> {
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column)).collect();
        let mut arena = Arena::new();
        for row in 0..batch.num_rows() {
            self.line.clear();
            for (at, reader) in readers.iter().enumerate() {
                if at > 0 {
                    self.line.push(self.delimiter);
                }
                self.push(reader.get(row, &arena));
            }
            self.line.push('\n');
            out.write_all(self.line.as_bytes())?;
            arena.reset();
        }
        Ok(())
    }

    fn push(&mut self, value: Datum<'_>) {
        let text = match value {
            Datum::Null => return self.line.push_str(&self.null_value),
            Datum::String(text) => text,
            other => {
                self.field.clear();
                self.print(other);
                &self.field
            }
        };
        match (self.quote, value) {
            (Quote::Never, _) => self.line.push_str(text),
            (Quote::Texts(quote), Datum::String(_) | Datum::Array(_) | Datum::Map(_)) => {
                push_quoted(text, char::from(quote), &mut self.line);
            }
            _ => push_where_needed(text, self.delimiter, &self.quoted_text, &mut self.line),
        }
    }

    fn print(&mut self, value: Datum<'_>) {
        let field = &mut self.field;
        let is_reference = self.compatibility == Compatibility::OpenMldb;
        let printed = match value {
            Datum::Timestamp(ms) if is_reference => write!(field, "{ms}"),
            Datum::Float(value) if is_reference && value.is_finite() => write!(field, "{value:.6}"),
            Datum::Double(value) if is_reference && value.is_finite() => {
                write!(field, "{value:.6}")
            }
            Datum::Timestamp(ms) => write_moment(ms, self.time_zone, field),
            other => self.printer.write(other, field),
        };
        printed.expect("writing to memory does not fail");
    }
}

/// Writes ISO 8601 with the zone's offset; in UTC where the offset has seconds, as those of the
/// nineteenth century do.
fn write_moment(ms: i64, time_zone: TimeZone, field: &mut String) -> fmt::Result {
    let offset_ms = Zone::new(time_zone).offset_ms(ms);
    let offset_minutes = if offset_ms % 60_000 == 0 { offset_ms / 60_000 } else { 0 };
    let (days, time) = split_ms(ms.saturating_add(offset_minutes * 60_000));
    let Civil { year, month, day } = civil_from_days(days);
    let TimeOfDay { hour, minute, second, millisecond } = time;
    write!(
        field,
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}"
    )?;
    if offset_minutes == 0 {
        return field.write_char('Z');
    }
    let sign = if offset_minutes < 0 { '-' } else { '+' };
    let minutes = offset_minutes.abs();
    write!(field, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Quotes a text that would otherwise be read as something else.
fn push_where_needed(text: &str, delimiter: char, quoted_text: &str, line: &mut String) {
    let needs_quotes = text.contains([delimiter, DEFAULT_QUOTE, '\n', '\r'])
        || (!quoted_text.is_empty() && text == quoted_text);
    if needs_quotes {
        push_quoted(text, DEFAULT_QUOTE, line);
    } else {
        line.push_str(text);
    }
}

fn push_quoted(text: &str, quote: char, line: &mut String) {
    line.push(quote);
    for character in text.chars() {
        if character == quote {
            line.push(quote);
        }
        line.push(character);
    }
    line.push(quote);
}

/// Parses the fields of the first line of a file that was written with the same options.
pub(super) fn first_record(bytes: &[u8], options: &ExportOptions) -> Vec<String> {
    let mut builder = ReaderBuilder::new();
    builder.delimiter(options.delimiter).terminator(Terminator::CRLF);
    match options.quote {
        Quote::WhereNeeded => {}
        Quote::Texts(quote) => {
            builder.quote(quote);
        }
        Quote::Never => {
            builder.quoting(false);
        }
    }
    let mut reader: Reader = builder.build();
    let (mut fields, mut field, mut buffer, mut rest) = (Vec::new(), Vec::new(), [0; 1024], bytes);
    loop {
        let (outcome, read, written) = reader.read_field(rest, &mut buffer);
        rest = &rest[read..];
        field.extend_from_slice(&buffer[..written]);
        match outcome {
            ReadFieldResult::Field { record_end } => {
                fields.push(String::from_utf8_lossy(&field).into_owned());
                field.clear();
                if record_end {
                    return fields;
                }
            }
            ReadFieldResult::End => return fields,
            ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
        }
    }
}
