//! Rows of COPY as text and as CSV.

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Zone;
use lockstep_row::{DataType, Datum};

use super::{CopyFormat, CopyHeader, CopyOptions};
use crate::postgres::value_text::write_typed_text;

/// The fields of a row; `None` is NULL.
pub(crate) type CopyFields = Vec<Option<String>>;

/// Finds rows in the bytes of a client, which arrive in parts of any size.
#[derive(Debug)]
pub(crate) struct TextReader {
    options: CopyOptions,
    /// The names of the columns, with which a header may be compared.
    names: Vec<String>,
    /// What is left of the parts before.
    buffer: Vec<u8>,
    /// How much of the buffer has no end of a row.
    scanned: usize,
    /// Whether the scan is inside of quotes.
    is_quoted: bool,
    progress: TextProgress,
}

/// How far the rows were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextProgress {
    /// The header comes next.
    Header,
    Rows,
    /// Their end was read: what follows is no row.
    End,
}

impl TextReader {
    /// Reads rows of columns with these names.
    pub(crate) fn new(options: CopyOptions, names: Vec<String>) -> Self {
        let has_header = options.header != CopyHeader::No;
        let progress = if has_header { TextProgress::Header } else { TextProgress::Rows };
        Self { options, names, buffer: Vec::new(), scanned: 0, is_quoted: false, progress }
    }

    /// Returns how many bytes wait for the end of their row.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Takes a part, and gives each row that it ends.
    pub(crate) fn push(
        &mut self,
        part: &[u8],
        mut give: impl FnMut(CopyFields) -> Result<()>,
    ) -> Result<()> {
        self.buffer.extend_from_slice(part);
        let mut start = 0;
        while let Some(end) = self.row_end() {
            let line = self.buffer[start..end].to_vec();
            start = end + 1;
            self.line(&line, &mut give)?;
        }
        self.buffer.drain(..start);
        self.scanned -= start;
        Ok(())
    }

    /// Takes the last row, which may have no end.
    pub(crate) fn finish(&mut self, mut give: impl FnMut(CopyFields) -> Result<()>) -> Result<()> {
        if self.is_quoted {
            return wrong("unterminated CSV quoted field");
        }
        let line = std::mem::take(&mut self.buffer);
        self.scanned = 0;
        if line.is_empty() { Ok(()) } else { self.line(&line, &mut give) }
    }

    /// Returns the end of the next row: a line break outside of quotes.
    fn row_end(&mut self) -> Option<usize> {
        let is_csv = self.options.format == CopyFormat::Csv;
        while let Some(byte) = self.buffer.get(self.scanned) {
            let at = self.scanned;
            self.scanned += 1;
            match *byte {
                b'\n' if !self.is_quoted => return Some(at),
                b'\\' if !is_csv => {
                    // An escaped line break is a part of the value.
                    if self.scanned == self.buffer.len() {
                        self.scanned = at;
                        return None;
                    }
                    self.scanned += 1;
                }
                byte if is_csv && byte == self.options.escape && byte != self.options.quote => {
                    if self.is_quoted && self.scanned == self.buffer.len() {
                        self.scanned = at;
                        return None;
                    }
                    self.scanned += usize::from(self.is_quoted);
                }
                byte if is_csv && byte == self.options.quote => self.is_quoted = !self.is_quoted,
                _ => {}
            }
        }
        None
    }

    fn line(&mut self, line: &[u8], give: &mut impl FnMut(CopyFields) -> Result<()>) -> Result<()> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line == b"\\." {
            self.progress = TextProgress::End;
        }
        match self.progress {
            TextProgress::Rows => {}
            TextProgress::Header => {
                self.progress = TextProgress::Rows;
                if self.options.header == CopyHeader::Match {
                    self.check_header(&self.fields(line)?)?;
                }
                return Ok(());
            }
            TextProgress::End => return Ok(()),
        }
        give(self.fields(line)?)
    }

    fn fields(&self, line: &[u8]) -> Result<CopyFields> {
        match self.options.format {
            CopyFormat::Csv => self.csv_fields(line),
            CopyFormat::Text | CopyFormat::Binary => self.text_fields(line),
        }
    }

    /// Fails where the header has other names than the columns, or another order.
    fn check_header(&self, found: &CopyFields) -> Result<()> {
        let hint = || format!("The columns are {}.", self.names.join(", "));
        let refused = |message: String| {
            Diagnostic::new(code::BAD_COPY_FORMAT, message)
                .with_kind(Kind::FixData)
                .with_hint(hint())
                .err()
        };
        let (count, expected) = (found.len(), self.names.len());
        if count != expected {
            return refused(format!(
                "wrong number of fields in header line: got {count}, expected {expected}"
            ));
        }
        let pairs = found.iter().zip(&self.names).enumerate();
        let different = |(_, (found, name)): &(usize, (&Option<String>, &String))| {
            found.as_ref() != Some(*name)
        };
        let Some((at, (found, name))) = pairs.into_iter().find(different) else { return Ok(()) };
        let found =
            found.as_ref().map_or("a null value".to_owned(), |found| format!("\"{found}\""));
        refused(format!(
            "column name mismatch in header line field {}: got {found}, expected \"{name}\"",
            at + 1
        ))
    }

    fn text_fields(&self, line: &[u8]) -> Result<CopyFields> {
        let mut fields = Vec::new();
        let mut start = 0;
        let mut at = 0;
        loop {
            match line.get(at) {
                Some(b'\\') => at += 2,
                Some(byte) if *byte != self.options.delimiter => at += 1,
                found => {
                    let raw = &line[start..at.min(line.len())];
                    let is_null = raw == self.options.null.as_bytes();
                    fields.push(if is_null { None } else { Some(text(without_escapes(raw))?) });
                    if found.is_none() {
                        return Ok(fields);
                    }
                    at += 1;
                    start = at;
                }
            }
        }
    }

    fn csv_fields(&self, line: &[u8]) -> Result<CopyFields> {
        let CopyOptions { delimiter, quote, escape, .. } = self.options;
        let mut fields = Vec::new();
        let mut at = 0;
        loop {
            let (mut value, mut was_quoted, mut in_quotes) = (Vec::new(), false, false);
            while let Some(byte) = line.get(at).copied() {
                let next = line.get(at + 1).copied();
                if in_quotes && byte == escape && (next == Some(quote) || next == Some(escape)) {
                    value.extend(next);
                    at += 2;
                    continue;
                }
                if byte == quote {
                    in_quotes = !in_quotes;
                    was_quoted = true;
                } else if byte == delimiter && !in_quotes {
                    break;
                } else {
                    value.push(byte);
                }
                at += 1;
            }
            let is_null = !was_quoted && value == self.options.null.as_bytes();
            fields.push(if is_null { None } else { Some(text(value)?) });
            if at >= line.len() {
                return Ok(fields);
            }
            at += 1;
        }
    }
}

fn text(bytes: Vec<u8>) -> Result<String> {
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => {
            let message = "invalid byte sequence for encoding \"UTF8\"";
            Diagnostic::new(code::INVALID_ENCODING, message).with_kind(Kind::FixData).err()
        }
    }
}

fn wrong<T>(message: &str) -> Result<T> {
    Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err()
}

/// Replaces the escapes of COPY's text format.
fn without_escapes(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(b'x') => {
                let mut value = None;
                for _ in 0..2 {
                    let digit = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16));
                    let Some(digit) = digit.and_then(|digit| u8::try_from(digit).ok()) else {
                        break;
                    };
                    value = Some(value.unwrap_or(0) * 16 + digit);
                    bytes.next();
                }
                out.push(value.unwrap_or(b'x'));
            }
            Some(first @ b'0'..=b'7') => {
                let mut value = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|byte| (b'0'..=b'7').contains(byte)) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                out.push((value & 0xff).to_le_bytes()[0]);
            }
            Some(other) => out.push(other),
            None => out.push(b'\\'),
        }
    }
    out
}

/// Writes rows as text or CSV.
#[derive(Debug)]
pub(crate) struct TextWriter<'o> {
    options: &'o CopyOptions,
    types: Vec<&'o DataType>,
    zone: Zone,
}

impl<'o> TextWriter<'o> {
    /// Writes rows of columns of these types, with times in a zone.
    pub(crate) fn new(options: &'o CopyOptions, types: Vec<&'o DataType>, zone: Zone) -> Self {
        Self { options, types, zone }
    }

    /// Appends the names of the columns.
    pub(crate) fn header<'n>(&self, out: &mut Vec<u8>, names: impl Iterator<Item = &'n str>) {
        for (at, name) in names.enumerate() {
            if at > 0 {
                out.push(self.options.delimiter);
            }
            self.field(out, name.as_bytes());
        }
        out.push(b'\n');
    }

    /// Appends a row.
    pub(crate) fn row(&self, out: &mut Vec<u8>, row: &[Datum<'_>]) {
        let mut text = Vec::new();
        for (at, (value, data_type)) in row.iter().zip(&self.types).enumerate() {
            if at > 0 {
                out.push(self.options.delimiter);
            }
            if value.is_null() {
                out.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            text.clear();
            write_typed_text(&mut text, value, data_type, self.zone);
            self.field(out, &text);
        }
        out.push(b'\n');
    }

    fn field(&self, out: &mut Vec<u8>, text: &[u8]) {
        if self.options.format == CopyFormat::Csv {
            self.csv(out, text);
        } else {
            self.text(out, text);
        }
    }

    fn text(&self, out: &mut Vec<u8>, text: &[u8]) {
        for byte in text {
            let escaped = match byte {
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                11 => b'v',
                12 => b'f',
                b'\r' => b'r',
                b'\\' => b'\\',
                byte if *byte == self.options.delimiter => *byte,
                byte => {
                    out.push(*byte);
                    continue;
                }
            };
            out.extend_from_slice(&[b'\\', escaped]);
        }
    }

    fn csv(&self, out: &mut Vec<u8>, text: &[u8]) {
        let CopyOptions { delimiter, quote, escape, null, .. } = self.options;
        let is_special = |byte: &u8| {
            byte == delimiter || byte == quote || byte == escape || matches!(byte, b'\n' | b'\r')
        };
        if text != null.as_bytes() && text != b"\\." && !text.iter().any(is_special) {
            return out.extend_from_slice(text);
        }
        out.push(*quote);
        for byte in text {
            if byte == quote || byte == escape {
                out.push(*escape);
            }
            out.push(*byte);
        }
        out.push(*quote);
    }
}

#[cfg(test)]
mod tests {
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Datum};

    use super::{CopyFormat, CopyHeader, CopyOptions, TextReader, TextWriter};

    fn options(format: CopyFormat) -> CopyOptions {
        let is_csv = format == CopyFormat::Csv;
        CopyOptions {
            format,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv { "" } else { "\\N" }.to_owned(),
            header: CopyHeader::No,
            quote: b'"',
            escape: b'"',
        }
    }

    /// Reads rows whose bytes arrive in parts of `size`.
    fn read(options: &CopyOptions, bytes: &[u8], size: usize) -> Vec<Vec<Option<String>>> {
        let mut reader = TextReader::new(options.clone(), Vec::new());
        let mut rows = Vec::new();
        for part in bytes.chunks(size) {
            reader
                .push(part, |row| {
                    rows.push(row);
                    Ok(())
                })
                .unwrap();
        }
        reader
            .finish(|row| {
                rows.push(row);
                Ok(())
            })
            .unwrap();
        rows
    }

    fn check(options: &CopyOptions, bytes: &str, expected: &[&[Option<&str>]]) {
        for size in [1, 2, 3, 1_000] {
            let found = read(options, bytes.as_bytes(), size);
            let found: Vec<Vec<Option<&str>>> =
                found.iter().map(|row| row.iter().map(Option::as_deref).collect()).collect();
            assert_eq!(found, expected, "{bytes:?} in parts of {size}");
        }
    }

    #[test]
    fn text_has_escapes() {
        let text = options(CopyFormat::Text);
        check(
            &text,
            "a\t\\N\n\\t\\\\\\x41\\101\t\nx\\\ny\tz",
            &[&[Some("a"), None], &[Some("\t\\AA"), Some("")], &[Some("x\ny"), Some("z")]],
        );
        check(&text, "1\r\n\\.\nignored\n", &[&[Some("1")]]);
    }

    #[test]
    fn csv_has_quotes_over_lines() {
        let csv = options(CopyFormat::Csv);
        check(
            &csv,
            "a,,\"\"\n\"x\ny\"\"z\",\"a,b\"\r\n",
            &[&[Some("a"), None, Some("")], &[Some("x\ny\"z"), Some("a,b")]],
        );
        check(&CopyOptions { header: CopyHeader::Names, ..csv.clone() }, "h\n1\n", &[&[Some("1")]]);
        check(&CopyOptions { escape: b'\\', ..csv }, "\"a\\\"b\"\n", &[&[Some("a\"b")]]);
    }

    #[test]
    fn a_quote_without_its_end_is_an_error() {
        let mut reader = TextReader::new(options(CopyFormat::Csv), Vec::new());
        reader.push(b"\"a\n", |_| Ok(())).unwrap();
        assert_eq!(reader.finish(|_| Ok(())).unwrap_err().code, "22P04");
        let mut reader = TextReader::new(options(CopyFormat::Text), Vec::new());
        assert_eq!(reader.push(b"\xff\n", |_| Ok(())).unwrap_err().code, "22021");
    }

    #[test]
    fn a_header_is_compared_with_the_columns() {
        let csv = CopyOptions { header: CopyHeader::Match, ..options(CopyFormat::Csv) };
        let read = |bytes: &[u8]| {
            let names = ["a", "b"].map(str::to_owned).to_vec();
            let mut rows = 0;
            TextReader::new(csv.clone(), names)
                .push(bytes, |_| {
                    rows += 1;
                    Ok(())
                })
                .map(|()| rows)
        };
        assert_eq!(read(b"a,\"b\"\n1,2\n").unwrap(), 1);
        for (bytes, message) in [
            ("b,a\n", "column name mismatch in header line field 1: got \"b\", expected \"a\""),
            (
                "a,\n",
                "column name mismatch in header line field 2: got a null value, expected \"b\"",
            ),
            ("a\n", "wrong number of fields in header line: got 1, expected 2"),
        ] {
            let error = read(bytes.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), ("22P04", message));
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let texts = ["", "\\N", "\\.", "a\tb\\\n\r", "\"x,y\"", "é"];
        let zone = Zone::new(TimeZone::parse("UTC").unwrap());
        for format in [CopyFormat::Text, CopyFormat::Csv] {
            let options = options(format);
            let writer = TextWriter::new(&options, vec![&DataType::String; 2], zone);
            let mut out = Vec::new();
            for text in texts {
                writer.row(&mut out, &[Datum::String(text), Datum::Null]);
            }
            let found = read(&options, &out, 7);
            let expected: Vec<Vec<Option<String>>> =
                texts.iter().map(|text| vec![Some((*text).to_owned()), None]).collect();
            assert_eq!(found, expected, "{format:?}");
        }
    }
}
