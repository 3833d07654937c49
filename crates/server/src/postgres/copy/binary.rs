//! Rows of COPY in the binary format.

use bytes::{Buf, BytesMut};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Zone;
use lockstep_row::{DataType, Datum};

use crate::postgres::value_binary::{write_binary, write_field};

/// What the format begins with.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The bytes before the first row: the signature, flags, and the length of an extension.
const HEAD_BYTES: usize = SIGNATURE.len() + 8;

/// The flag of rows with an object number, which no version has any more.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// The fields of a row; `None` is NULL.
pub(crate) type BinaryFields = Vec<Option<BytesMut>>;

/// Finds rows in the bytes of a client, which arrive in parts of any size.
#[derive(Debug, Default)]
pub(crate) struct BinaryReader {
    buffer: BytesMut,
    has_begun: bool,
    has_ended: bool,
}

impl BinaryReader {
    /// Returns how many bytes wait for the end of their row.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Takes a part, and gives each row that it ends.
    pub(crate) fn push(
        &mut self,
        part: &[u8],
        mut give: impl FnMut(BinaryFields) -> Result<()>,
    ) -> Result<()> {
        self.buffer.extend_from_slice(part);
        if !self.has_begun {
            if !self.read_head()? {
                return Ok(());
            }
            self.has_begun = true;
        }
        while !self.has_ended
            && let Some(size) = self.row_size()?
        {
            give(self.take_row(size))?;
        }
        Ok(())
    }

    /// Checks that the rows have ended.
    pub(crate) fn finish(&self) -> Result<()> {
        if self.has_begun && self.buffer.is_empty() {
            return Ok(());
        }
        wrong("unexpected end of COPY data")
    }

    /// Reads what is before the rows; false where not all of it is there.
    fn read_head(&mut self) -> Result<bool> {
        let there = self.buffer.len().min(SIGNATURE.len());
        if self.buffer[..there] != SIGNATURE[..there] {
            return wrong("COPY file signature not recognized");
        }
        if self.buffer.len() < HEAD_BYTES {
            return Ok(false);
        }
        let mut head = &self.buffer[SIGNATURE.len()..HEAD_BYTES];
        if head.get_u32() & CRITICAL_FLAGS != 0 {
            return wrong("unrecognized critical flags in COPY file header");
        }
        let Ok(extension) = usize::try_from(head.get_i32()) else {
            return wrong("invalid COPY file header (wrong length)");
        };
        if self.buffer.len() - HEAD_BYTES < extension {
            return Ok(false);
        }
        self.buffer.advance(HEAD_BYTES + extension);
        Ok(true)
    }

    /// Returns the bytes of the next row, if all are there. Notes the end of the rows.
    fn row_size(&mut self) -> Result<Option<usize>> {
        let Some(count) = self.buffer.first_chunk::<2>() else { return Ok(None) };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.has_ended = true;
            self.buffer.clear();
            return Ok(None);
        }
        let Ok(count) = usize::try_from(count) else { return wrong("invalid field count") };
        let mut at = 2;
        for _ in 0..count {
            let Some(length) = self.buffer.get(at..).and_then(|rest| rest.first_chunk::<4>())
            else {
                return Ok(None);
            };
            at += 4;
            match i32::from_be_bytes(*length) {
                -1 => {}
                length => match usize::try_from(length) {
                    Ok(length) => at += length,
                    Err(_) => return wrong("invalid field size"),
                },
            }
        }
        Ok((at <= self.buffer.len()).then_some(at))
    }

    fn take_row(&mut self, size: usize) -> BinaryFields {
        let mut row = self.buffer.split_to(size);
        let count = row.get_i16();
        let field = |_| {
            let length = usize::try_from(row.get_i32()).ok()?;
            Some(row.split_to(length))
        };
        (0..count).map(field).collect()
    }
}

fn wrong<T>(message: &str) -> Result<T> {
    Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err()
}

/// Writes rows in the binary format.
#[derive(Debug)]
pub(crate) struct BinaryWriter<'c> {
    types: Vec<&'c DataType>,
    zone: Zone,
}

impl<'c> BinaryWriter<'c> {
    /// Writes rows of columns of these types.
    pub(crate) fn new(types: Vec<&'c DataType>, zone: Zone) -> Self {
        Self { types, zone }
    }

    /// Appends what is before the rows.
    pub(crate) fn head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&[0; 8]);
    }

    /// Appends a row.
    pub(crate) fn row(&self, out: &mut Vec<u8>, row: &[Datum<'_>]) -> Result<()> {
        let count = i16::try_from(row.len()).unwrap_or(i16::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        for (value, data_type) in row.iter().zip(&self.types) {
            write_field(out, value, |out| write_binary(out, value, data_type, self.zone))?;
        }
        Ok(())
    }

    /// Appends the end of the rows.
    pub(crate) fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(-1_i16).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Datum};

    use super::{BinaryReader, BinaryWriter, HEAD_BYTES};

    #[test]
    fn what_is_written_is_read_again_in_parts() {
        let zone = Zone::new(TimeZone::parse("UTC").unwrap());
        let writer = BinaryWriter::new(vec![&DataType::SmallInt, &DataType::String], zone);
        let mut bytes = Vec::new();
        writer.head(&mut bytes);
        writer.row(&mut bytes, &[Datum::SmallInt(7), Datum::String("a")]).unwrap();
        writer.row(&mut bytes, &[Datum::Null, Datum::String("")]).unwrap();
        writer.end(&mut bytes);
        for size in [1, 3, 1_000] {
            let (mut reader, mut rows) = (BinaryReader::default(), Vec::new());
            for part in bytes.chunks(size) {
                reader
                    .push(part, |row| {
                        rows.push(row);
                        Ok(())
                    })
                    .unwrap();
            }
            reader.finish().unwrap();
            let field = |row: usize, at: usize| rows[row][at].as_deref().map(<[u8]>::to_vec);
            assert_eq!((field(0, 0), field(0, 1)), (Some(vec![0, 7]), Some(b"a".to_vec())));
            assert_eq!((field(1, 0), field(1, 1)), (None, Some(Vec::new())));
            assert_eq!(rows.len(), 2);
        }
        let mut short = BinaryReader::default();
        short.push(&bytes[..HEAD_BYTES + 3], |_| Ok(())).unwrap();
        assert_eq!(short.finish().unwrap_err().code, "22P04");
    }

    #[test]
    fn other_bytes_are_refused() {
        let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
        for (bytes, rest) in [
            (&b"PGCOPY\n\xff\r\r"[..], &b""[..]),
            (b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0", b""),
            (b"PGCOPY\n\xff\r\n\0\0\0\0\0\xff\xff\xff\xfe", b""),
            (head, b"\xff\xf0"),
            (head, b"\0\x01\xff\xff\xff\xfe"),
        ] {
            let mut reader = BinaryReader::default();
            let pushed =
                reader.push(bytes, |_| Ok(())).and_then(|()| reader.push(rest, |_| Ok(())));
            assert_eq!(pushed.unwrap_err().code, "22P04", "{bytes:?}");
        }
    }
}
