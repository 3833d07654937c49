//! The records of CSV: text as in RFC 4180, split into fields, with the line of each record.
//!
//! The reader of files and the HTTP server's appends use it, so that CSV means the same in both. A
//! line ends with LF, CR LF or CR. Whether a field was quoted is kept: an unquoted empty field is NULL,
//! and a quoted one the empty text ([`read_field`]).
//!
//! **Cost**: each byte is examined once and copied once. The memory is that of the longest record, which
//! has a limit.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
};

use lockstep_function::{Compatibility, Settings, cast};
use lockstep_row::{DataType, Datum};

/// Maximum size of a record, in bytes: a quote without its end would make one of the whole text.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// The size of the buffer of the input.
const INPUT_BYTES: usize = 1 << 16;

/// The characters of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvCharacters {
    /// The byte between fields.
    pub delimiter: u8,
    /// The quote, doubled within a quoted field. `None`: fields are never quoted.
    pub quote: Option<u8>,
}

/// An error after which no record can be read.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// The input could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The input ends within a quoted field.
    #[error("unterminated quoted field")]
    Unclosed {
        /// The line in which the field begins, from 1.
        line: u64,
    },
    /// A record exceeds the limit.
    #[error("record exceeds the limit of {} MiB", RECORD_BYTES_MAX >> 20)]
    TooLong {
        /// The line in which the record begins, from 1.
        line: u64,
    },
}

/// What is wrong with a record that has text after the closing quote of a field.
pub const TEXT_AFTER_QUOTE: &str = "unexpected text after the closing quote of a field";

/// A field of the record.
#[derive(Debug, Clone, Copy)]
struct Field {
    /// The end of its text in the buffer.
    end: usize,
    is_quoted: bool,
}

/// The position within a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldPart {
    /// Before its first byte.
    Start,
    /// Outside quotes; `after_quotes`: after a closing quote.
    Plain { after_quotes: bool },
    /// Inside quotes.
    Quoted,
    /// After a quote inside quotes, which closes the field or is the first of two.
    AfterQuote,
}

/// A cursor over the records of a text.
#[expect(clippy::struct_excessive_bools, reason = "each is a state of the reader by itself")]
pub struct CsvRecords<R> {
    input: BufReader<R>,
    characters: CsvCharacters,
    /// The text of the record's fields, one after the other.
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// Whether text follows the closing quote of a field.
    is_malformed: bool,
    keeps_empty_lines: bool,
    /// Whether the last line ended with CR, of which an LF would be a part.
    is_after_return: bool,
    /// The number of line ends read so far.
    lines_read: u64,
    /// The line in which the record begins, from 1.
    line: u64,
    /// The line in which the last quoted field begins, from 1.
    quote_line: u64,
}

impl<R> fmt::Debug for CsvRecords<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvRecords").field("line", &self.line).finish_non_exhaustive()
    }
}

impl<R: Read> CsvRecords<R> {
    /// Reads records from the start of a text.
    ///
    /// ```
    /// use lockstep_batch::load::{CsvCharacters, CsvRecords};
    ///
    /// let characters = CsvCharacters { delimiter: b',', quote: Some(b'"') };
    /// let mut records = CsvRecords::new("a,\"b\nc\"\n".as_bytes(), characters);
    /// assert!(records.advance()?);
    /// assert_eq!((records.text(0), records.is_quoted(0)), (Some("a"), false));
    /// assert_eq!((records.text(1), records.is_quoted(1)), (Some("b\nc"), true));
    /// assert!(!records.advance()?);
    /// # Ok::<(), lockstep_batch::load::CsvError>(())
    /// ```
    pub fn new(input: R, characters: CsvCharacters) -> Self {
        Self {
            input: BufReader::with_capacity(INPUT_BYTES, input),
            characters,
            bytes: Vec::new(),
            fields: Vec::new(),
            is_malformed: false,
            keeps_empty_lines: false,
            is_after_return: false,
            lines_read: 0,
            line: 1,
            quote_line: 1,
        }
    }

    /// Takes the number of fields of a row. An empty line is one empty field where rows have one, and is
    /// otherwise skipped.
    pub fn set_width(&mut self, width: usize) {
        self.keeps_empty_lines = width == 1;
    }

    /// Reads the next record; `false` at the end.
    pub fn advance(&mut self) -> Result<bool, CsvError> {
        self.fields.clear();
        self.bytes.clear();
        self.is_malformed = false;
        self.skip_line_ends()?;
        self.line = self.lines_read + 1;
        let mut part = FieldPart::Start;
        loop {
            let size = self.input.fill_buf()?.len();
            if size == 0 {
                return self.finish(part);
            }
            if self.scan(&mut part)? {
                return Ok(true);
            }
            if self.bytes.len() > RECORD_BYTES_MAX {
                return Err(CsvError::TooLong { line: self.line });
            }
        }
    }

    fn skip_line_ends(&mut self) -> io::Result<()> {
        loop {
            let next = self.input.fill_buf()?.first().copied();
            let is_second = next == Some(b'\n') && self.is_after_return;
            let is_end = matches!(next, Some(b'\r' | b'\n'));
            if !is_second && (!is_end || self.keeps_empty_lines) {
                self.is_after_return = false;
                return Ok(());
            }
            self.lines_read += u64::from(!is_second);
            self.is_after_return = next == Some(b'\r');
            self.input.consume(1);
        }
    }

    /// Scans the buffered input, and returns whether the record ended in it.
    fn scan(&mut self, part: &mut FieldPart) -> io::Result<bool> {
        let CsvCharacters { delimiter, quote } = self.characters;
        let input = self.input.fill_buf()?;
        let mut at = 0;
        let mut is_end = false;
        while let Some(byte) = input.get(at).copied().filter(|_| !is_end) {
            match *part {
                FieldPart::Start if Some(byte) == quote => {
                    *part = FieldPart::Quoted;
                    self.quote_line = self.lines_read + 1;
                    at += 1;
                }
                FieldPart::Start => *part = FieldPart::Plain { after_quotes: false },
                FieldPart::Plain { after_quotes } => {
                    let ends = |byte: &u8| *byte == delimiter || matches!(byte, b'\r' | b'\n');
                    let rest = &input[at..];
                    let length = rest.iter().position(ends).unwrap_or(rest.len());
                    self.bytes.extend_from_slice(&rest[..length]);
                    self.is_malformed |= after_quotes && length > 0;
                    at += length;
                    if let Some(end) = rest.get(length).copied() {
                        at += 1;
                        self.fields.push(Field { end: self.bytes.len(), is_quoted: after_quotes });
                        *part = FieldPart::Start;
                        is_end = end != delimiter;
                        self.lines_read += u64::from(is_end);
                        self.is_after_return = is_end && end == b'\r';
                    }
                }
                FieldPart::Quoted => {
                    let rest = &input[at..];
                    let closing = rest.iter().position(|byte| Some(*byte) == quote);
                    let inside = &rest[..closing.unwrap_or(rest.len())];
                    let lines = inside.iter().filter(|byte| **byte == b'\n').count();
                    self.lines_read += u64::try_from(lines).unwrap_or(u64::MAX);
                    self.bytes.extend_from_slice(inside);
                    at += inside.len() + usize::from(closing.is_some());
                    if closing.is_some() {
                        *part = FieldPart::AfterQuote;
                    }
                }
                FieldPart::AfterQuote if Some(byte) == quote => {
                    self.bytes.push(byte);
                    *part = FieldPart::Quoted;
                    at += 1;
                }
                FieldPart::AfterQuote => *part = FieldPart::Plain { after_quotes: true },
            }
        }
        self.input.consume(at);
        Ok(is_end)
    }

    /// Ends the record at the end of the input; `false` where there is none.
    fn finish(&mut self, part: FieldPart) -> Result<bool, CsvError> {
        let is_quoted = match part {
            FieldPart::Start if self.fields.is_empty() => return Ok(false),
            FieldPart::Quoted => return Err(CsvError::Unclosed { line: self.quote_line }),
            FieldPart::Start => false,
            FieldPart::Plain { after_quotes } => after_quotes,
            FieldPart::AfterQuote => true,
        };
        self.fields.push(Field { end: self.bytes.len(), is_quoted });
        Ok(true)
    }

    /// Returns the number of fields of the record.
    pub fn width(&self) -> usize {
        self.fields.len()
    }

    /// Returns the line in which the record begins, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns whether text follows the closing quote of a field of the record, which is an error
    /// ([`TEXT_AFTER_QUOTE`]); the next record can be read.
    pub fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Returns the bytes of a field; `None` where the record has no such field.
    pub fn bytes(&self, field: usize) -> Option<&[u8]> {
        let end = self.fields.get(field)?.end;
        let start = field.checked_sub(1).map_or(0, |before| self.fields[before].end);
        Some(&self.bytes[start..end])
    }

    /// Returns the text of a field; `None` where the record has no such field or it is not UTF-8.
    pub fn text(&self, field: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(field)?).ok()
    }

    /// Returns whether a field of the record was written in quotes.
    pub fn is_quoted(&self, field: usize) -> bool {
        self.fields.get(field).is_some_and(|field| field.is_quoted)
    }
}

/// Reads a field as a value of a type; `None` where it is not one.
///
/// An unquoted field that is empty or `null_value` is NULL; with `compatibility = 'openmldb'` an empty one of
/// a STRING is the empty text. In quotes it is a text; of another type than
/// STRING it is NULL unless it is a value of the type, since some programs quote every field.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
pub fn read_field<'t>(
    text: &'t str,
    is_quoted: bool,
    null_value: &str,
    data_type: &DataType,
    settings: &Settings,
) -> Option<Datum<'t>> {
    let is_null = text.is_empty() || text == null_value;
    // OpenMLDB quotes no text, and writes the empty one so.
    let is_empty_text = *data_type == DataType::String
        && settings.compatibility == Compatibility::OpenMldb
        && text != null_value;
    if is_null && !is_quoted && !is_empty_text {
        return Some(Datum::Null);
    }
    read_text(text, data_type, settings).or_else(|| is_null.then_some(Datum::Null))
}

/// Reads a text as a value of a type, numbers and dates as CAST reads them, a TIMESTAMP also from
/// integer milliseconds. A blank one is NULL unless the type is STRING.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
pub(super) fn read_text<'t>(
    text: &'t str,
    data_type: &DataType,
    settings: &Settings,
) -> Option<Datum<'t>> {
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
            Datum::Timestamp(text.parse().ok().or_else(|| cast::parse_timestamp(text, settings))?)
        }
        DataType::Date => Datum::Date(cast::parse_date(text, settings)?),
        DataType::Null | DataType::String | DataType::Array(_) | DataType::Map(..) => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lockstep_function::Settings;
    use lockstep_row::{DataType, Datum};

    use super::{CsvCharacters, CsvError, CsvRecords, read_field};

    const CHARACTERS: CsvCharacters = CsvCharacters { delimiter: b',', quote: Some(b'"') };

    /// Gives its bytes one by one.
    struct Slowly<'t>(&'t [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    /// Returns each record as its line and its fields, quoted ones in angle brackets.
    fn records(
        input: impl Read,
        width: usize,
        characters: CsvCharacters,
    ) -> Result<Vec<String>, CsvError> {
        let mut records = CsvRecords::new(input, characters);
        records.set_width(width);
        let mut found = Vec::new();
        while records.advance()? {
            let field = |at| match (records.text(at).unwrap(), records.is_quoted(at)) {
                (text, true) => format!("<{text}>"),
                (text, false) => text.to_owned(),
            };
            let fields: Vec<String> = (0..records.width()).map(field).collect();
            let wrong = if records.is_malformed() { "!" } else { "" };
            found.push(format!("{}{wrong}:{}", records.line(), fields.join("|")));
        }
        Ok(found)
    }

    fn check(text: &str, width: usize, expected: &[&str]) {
        let whole = records(text.as_bytes(), width, CHARACTERS);
        assert_eq!(whole.unwrap(), expected, "{text:?}");
        let slowly = records(Slowly(text.as_bytes()), width, CHARACTERS);
        assert_eq!(slowly.unwrap(), expected, "{text:?} byte by byte");
    }

    #[test]
    fn records_are_split_into_fields() {
        check("", 2, &[]);
        check("a,b\nc,d", 2, &["1:a|b", "2:c|d"]);
        check("a,\r\n\r\n,d\r\n", 2, &["1:a|", "3:|d"]);
        check("a,b\rc,d\r\r\n\ne,f", 2, &["1:a|b", "2:c|d", "5:e|f"]);
        check("\"a\",\"\"\n\"x\n\"\"y\"\"\",b\nc,d\n", 2, &["1:<a>|<>", "2:<x\n\"y\">|b", "4:c|d"]);
        check("a\"b\",\"c\"", 2, &["1:a\"b\"|<c>"]);
        check("a,\"b\"x\nc,d\n", 2, &["1!:a|<bx>", "2:c|d"]);
        check("a,\"b\" \n", 2, &["1!:a|<b >"]);
        check("\"\",", 2, &["1:<>|"]);
    }

    #[test]
    fn an_empty_line_is_a_row_of_one_column() {
        check("a\n\n\"\"\n", 1, &["1:a", "2:", "3:<>"]);
        check("\r\n\r\na\r\n", 1, &["1:", "2:", "3:a"]);
        check("\n\na\n", 2, &["3:a"]);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_an_error_with_its_line() {
        for text in ["a,b\nc,\"d\ne,f\n", "a\nb\"\n\"", "a\n\"b\"\"\n"] {
            let error = records(text.as_bytes(), 2, CHARACTERS).unwrap_err();
            let line = if text.starts_with("a\nb") { 3 } else { 2 };
            assert!(matches!(error, CsvError::Unclosed { line: found } if found == line), "{text}");
        }
        let never = CsvCharacters { quote: None, ..CHARACTERS };
        assert_eq!(records("a,\"b\n".as_bytes(), 2, never).unwrap(), ["1:a|\"b"]);
    }

    #[test]
    fn null_is_told_from_the_empty_text() {
        let check = |text: &'static str,
                     is_quoted: bool,
                     null: &str,
                     expected: [Option<Datum<'static>>; 2]| {
            let settings = Settings::default();
            let read = |of| read_field(text, is_quoted, null, of, &settings);
            let found = [read(&DataType::String), read(&DataType::Int)];
            assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{text:?} {is_quoted}");
        };
        let null = Some(Datum::Null);
        check("", false, "null", [null, null]);
        check("", true, "null", [Some(Datum::String("")), null]);
        check("null", false, "null", [null, null]);
        check("null", true, "null", [Some(Datum::String("null")), null]);
        check("null", false, "-", [Some(Datum::String("null")), None]);
        check("", false, "-", [null, null]);
        check("0", false, "0", [null, null]);
        check("0", true, "0", [Some(Datum::String("0")), Some(Datum::Int(0))]);
        check(" ", false, "null", [Some(Datum::String(" ")), null]);
    }
}
