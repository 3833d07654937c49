//! The writer of CSV files.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use arrow::array::RecordBatch;
use lockstep_function::{Compatibility, cast::Printer};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use super::{ExportOptions, Quote, time_text::TimeText};
use crate::load::{CsvCharacters, CsvRecords};

/// The quote character where the options name none.
const DEFAULT_QUOTE: u8 = b'"';

/// The text that is NULL to a reader whose options name none.
const DEFAULT_NULL: &str = "null";

/// A writer of rows as lines of CSV.
#[derive(Debug)]
pub(super) struct CsvWriter {
    delimiter: char,
    quote: Quote,
    /// The character of the quotes.
    quote_char: char,
    null_value: String,
    printer: Printer,
    times: TimeText,
    compatibility: Compatibility,
    line: String,
    field: String,
}

impl CsvWriter {
    /// Makes a writer.
    pub(super) fn new(options: &ExportOptions) -> Self {
        let quote_char = match options.quote {
            Quote::Texts(quote) => quote,
            Quote::WhereNeeded | Quote::Never => DEFAULT_QUOTE,
        };
        Self {
            delimiter: char::from(options.delimiter),
            quote: options.quote,
            quote_char: char::from(quote_char),
            null_value: options.null_value.clone(),
            printer: Printer::new(&options.settings),
            times: TimeText::new(&options.settings),
            compatibility: options.settings.compatibility,
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
            // A reader drops the blanks around a name without quotes.
            let has_blanks = name.trim() != name || name.is_empty();
            match self.quote {
                Quote::Never => self.line.push_str(name),
                _ if has_blanks || self.has_special(name) => {
                    push_quoted(name, self.quote_char, &mut self.line);
                }
                _ => self.line.push_str(name),
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
        let (text, is_text) = match value {
            Datum::Null => return self.line.push_str(&self.null_value),
            Datum::String(text) => (text, true),
            other => {
                self.field.clear();
                self.print(other);
                (self.field.as_str(), false)
            }
        };
        let is_quoted = match self.quote {
            Quote::Never => false,
            Quote::Texts(_) if matches!(value, Datum::Array(_) | Datum::Map(_)) || is_text => true,
            _ => self.has_special(text) || self.is_mistaken(text, is_text),
        };
        if is_quoted {
            push_quoted(text, self.quote_char, &mut self.line);
        } else {
            self.line.push_str(text);
        }
    }

    /// Returns whether a text without quotes would be read as several fields or as another text.
    fn has_special(&self, text: &str) -> bool {
        text.contains([self.delimiter, self.quote_char, '\n', '\r']) || text.starts_with('\u{feff}')
    }

    /// Returns whether a field without quotes would be read as NULL.
    fn is_mistaken(&self, text: &str, is_text: bool) -> bool {
        // OpenMLDB writes such a text without quotes, and so reads it back as NULL.
        self.compatibility == Compatibility::Standard
            && (text == self.null_value || (is_text && matches!(text, "" | DEFAULT_NULL)))
    }

    fn print(&mut self, value: Datum<'_>) {
        let field = &mut self.field;
        let is_reference = self.compatibility == Compatibility::OpenMldb;
        let printed = match value {
            Datum::Float(value) if is_reference && value.is_finite() => write!(field, "{value:.6}"),
            Datum::Double(value) if is_reference && value.is_finite() => {
                write!(field, "{value:.6}")
            }
            Datum::Timestamp(ms) => self.times.write(ms, field),
            other => self.printer.write(other, field),
        };
        printed.expect("writing to memory does not fail");
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
    let quote = match options.quote {
        Quote::WhereNeeded => Some(DEFAULT_QUOTE),
        Quote::Texts(quote) => Some(quote),
        Quote::Never => None,
    };
    let characters = CsvCharacters { delimiter: options.delimiter, quote };
    let mut records = CsvRecords::new(bytes, characters);
    if !records.advance().is_ok_and(|is_record| is_record) {
        return Vec::new();
    }
    let fields = (0..records.width()).filter_map(|field| records.bytes(field));
    fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect()
}
