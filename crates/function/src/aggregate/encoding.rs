//! The encoding of aggregate states as bytes.
//!
//! Integers are LEB128, signed ones zigzag; floats are their bits; texts have their size before
//! them. A [`StateReader`] checks everything that it reads, so that damaged bytes give `None`.

use lockstep_row::{Datum, Value};

use super::key::{KeyRef, TotalFloat};

/// Appends an unsigned integer.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Appends a count.
pub(crate) fn put_count(out: &mut Vec<u8>, value: usize) {
    put_unsigned(out, value as u128);
}

/// Appends a signed integer.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i128) {
    put_unsigned(out, ((value << 1) ^ (value >> 127)).cast_unsigned());
}

/// Appends a text.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn low_bits(value: u128) -> u8 {
    (value & 0x7f) as u8
}

/// The first byte of a key or a value.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const INTEGER: u8 = 1;
    pub(super) const FLOAT: u8 = 2;
    pub(super) const TEXT: u8 = 3;
    pub(super) const BOOL: u8 = 4;
    pub(super) const SMALLINT: u8 = 5;
    pub(super) const INT: u8 = 6;
    pub(super) const SINGLE: u8 = 7;
    pub(super) const TIMESTAMP: u8 = 8;
    pub(super) const DATE: u8 = 9;
}

/// Appends a key.
pub(super) fn put_key(out: &mut Vec<u8>, key: KeyRef<'_>) {
    match key {
        KeyRef::Integer(value) => {
            out.push(tag::INTEGER);
            put_signed(out, value.into());
        }
        KeyRef::Float(value) => {
            out.push(tag::FLOAT);
            out.extend_from_slice(&value.bits().to_le_bytes());
        }
        KeyRef::Text(text) => {
            out.push(tag::TEXT);
            put_text(out, text);
        }
    }
}

/// Appends a value that is neither an array nor a map; those are NULL.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut signed = |tag: u8, value: i64| {
        out.push(tag);
        put_signed(out, value.into());
    };
    match value.as_scalar() {
        Some(Datum::Bool(value)) => signed(tag::BOOL, value.into()),
        Some(Datum::SmallInt(value)) => signed(tag::SMALLINT, value.into()),
        Some(Datum::Int(value)) => signed(tag::INT, value.into()),
        Some(Datum::BigInt(value)) => signed(tag::INTEGER, value),
        Some(Datum::Timestamp(value)) => signed(tag::TIMESTAMP, value),
        Some(Datum::Date(value)) => signed(tag::DATE, value.into()),
        Some(Datum::Float(value)) => {
            out.push(tag::SINGLE);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Some(Datum::Double(value)) => {
            out.push(tag::FLOAT);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Some(Datum::String(text)) => {
            out.push(tag::TEXT);
            put_text(out, text);
        }
        Some(Datum::Null | Datum::Array(_) | Datum::Map(_)) | None => out.push(tag::NULL),
    }
}

/// Reads what the functions of this module wrote.
#[derive(Debug, Clone, Copy)]
pub struct StateReader<'b> {
    bytes: &'b [u8],
}

/// Integers of more bits than this are read as wide ones.
const WIDE_SHIFT: u32 = 63;

impl<'b> StateReader<'b> {
    /// Makes a reader of all of these bytes.
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// Returns whether everything was read.
    pub fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*first)
    }

    /// Takes the next byte if it is this one. Returns whether it is.
    #[inline]
    pub(crate) fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.bytes.first() == Some(&byte);
        self.bytes = &self.bytes[usize::from(is_next)..];
        is_next
    }

    #[inline]
    pub(crate) fn unsigned(&mut self) -> Option<u128> {
        let mut value = 0_u64;
        // Most integers are small, and 128 bits are shifted in several steps.
        for shift in (0..WIDE_SHIFT).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value.into());
            }
        }
        self.wide_unsigned(value.into())
    }

    /// Reads the rest of an integer whose low bits are known.
    #[cold]
    fn wide_unsigned(&mut self, mut value: u128) -> Option<u128> {
        for shift in (WIDE_SHIFT..128).step_by(7) {
            let byte = self.byte()?;
            let part = u128::from(byte & 0x7f);
            if shift > 121 && part >> (128 - shift) != 0 {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i128> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads so many bytes.
    pub(super) fn slice(&mut self, size: usize) -> Option<&'b [u8]> {
        let (slice, rest) = self.bytes.split_at_checked(size)?;
        self.bytes = rest;
        Some(slice)
    }

    /// Reads the number of the items that follow, each of which takes a byte or more.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.unsigned()?).ok()?;
        (count <= self.bytes.len()).then_some(count)
    }

    /// Reads a number of rows.
    pub(crate) fn rows(&mut self) -> Option<u64> {
        u64::try_from(self.unsigned()?).ok()
    }

    pub(crate) fn text(&mut self) -> Option<&'b str> {
        let size = self.count()?;
        std::str::from_utf8(self.slice(size)?).ok()
    }

    pub(super) fn key(&mut self) -> Option<KeyRef<'b>> {
        Some(match self.byte()? {
            tag::INTEGER => KeyRef::Integer(i64::try_from(self.signed()?).ok()?),
            tag::FLOAT => KeyRef::Float(TotalFloat::from_bits(i64::from_le_bytes(self.array()?))),
            tag::TEXT => KeyRef::Text(self.text()?),
            _ => return None,
        })
    }

    /// Reads what [`put_value`] wrote.
    pub fn value(&mut self) -> Option<Value> {
        let tag = self.byte()?;
        Some(match tag {
            tag::NULL => Value::Null,
            tag::SINGLE => Value::Float(f32::from_le_bytes(self.array()?)),
            tag::FLOAT => Value::Double(f64::from_le_bytes(self.array()?)),
            tag::TEXT => Value::String(self.text()?.into()),
            _ => {
                let value = self.signed()?;
                match tag {
                    tag::BOOL => Value::Bool(value != 0),
                    tag::SMALLINT => Value::SmallInt(value.try_into().ok()?),
                    tag::INT => Value::Int(value.try_into().ok()?),
                    tag::INTEGER => Value::BigInt(value.try_into().ok()?),
                    tag::TIMESTAMP => Value::Timestamp(value.try_into().ok()?),
                    tag::DATE => Value::Date(value.try_into().ok()?),
                    _ => return None,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::any, prop_assert_eq, proptest};

    use super::{StateReader, put_signed, put_text, put_unsigned};

    proptest! {
        #[test]
        fn what_is_written_is_read(
            unsigned in any::<u128>(), signed in any::<i128>(), shift in 0_u32..128, text in ".*",
        ) {
            let (unsigned, signed) = (unsigned >> shift, signed >> shift);
            let mut bytes = Vec::new();
            put_unsigned(&mut bytes, unsigned);
            put_signed(&mut bytes, signed);
            put_text(&mut bytes, &text);
            let mut reader = StateReader::new(&bytes);
            prop_assert_eq!(reader.unsigned(), Some(unsigned));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert_eq!(reader.text(), Some(text.as_str()));
            prop_assert_eq!(reader.is_at_end(), true);
        }

        #[test]
        fn noise_is_refused_or_read(bytes in vec(any::<u8>(), 0..40)) {
            let mut reader = StateReader::new(&bytes);
            while !reader.is_at_end() {
                let before = reader.bytes.len();
                let _read = (reader.unsigned(), reader.text(), reader.value(), reader.key());
                prop_assert_eq!(reader.bytes.len() < before, true);
            }
        }
    }
}
