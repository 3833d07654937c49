//! Thrift's compact protocol as far as Parquet's headers need it: walking over values that are not
//! decoded, and checking that the bytes bear out their lengths.
//!
//! Parquet's own reader reserves memory for as many elements as a list claims to have; `footer` and
//! `pages` walk over a header before that reader sees it. Bytes come from a slice or from a file.

use std::io::{self, Read};

/// Maximum nesting of values.
const DEPTH_MAX: usize = 64;

/// Maximum bytes of a varint of 64 bits.
const VARINT_BYTES_MAX: u32 = 10;

/// The type of a value, by its code in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThriftType {
    Bool,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl ThriftType {
    fn of(code: u8) -> io::Result<Self> {
        Ok(match code {
            1 | 2 => Self::Bool,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return Err(damage("a value has an unknown type")),
        })
    }
}

/// Returns the error of bytes that are not what they claim to be.
pub(super) fn damage(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A walk over the values of a header.
pub(super) struct ThriftWalk<R> {
    bytes: R,
    /// Bytes that the header may still have.
    left: u64,
}

impl<R: Read> ThriftWalk<R> {
    /// Starts a walk over at most `size` bytes.
    pub(super) fn new(bytes: R, size: u64) -> Self {
        Self { bytes, left: size }
    }

    fn take<const SIZE: usize>(&mut self) -> io::Result<[u8; SIZE]> {
        let mut taken = [0; SIZE];
        let size = u64::try_from(SIZE).unwrap_or(u64::MAX);
        self.left = self.left.checked_sub(size).ok_or_else(|| damage("a header is truncated"))?;
        self.bytes.read_exact(&mut taken)?;
        Ok(taken)
    }

    fn skip_bytes(&mut self, size: u64) -> io::Result<()> {
        self.left = self.left.checked_sub(size).ok_or_else(|| damage("a header is truncated"))?;
        let skipped = io::copy(&mut self.bytes.by_ref().take(size), &mut io::sink())?;
        if skipped == size { Ok(()) } else { Err(damage("a header is truncated")) }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0_u64;
        for place in 0..VARINT_BYTES_MAX {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f).wrapping_shl(7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damage("a number exceeds 64 bits"))
    }

    /// Reads an integer.
    pub(super) fn integer(&mut self) -> io::Result<i64> {
        let bits = self.varint()?;
        Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }

    /// Reads the type and the number of the elements of a list; each has a byte at least.
    pub(super) fn list(&mut self) -> io::Result<(ThriftType, u64)> {
        let [header] = self.take()?;
        if header == 0 {
            return Ok((ThriftType::Byte, 0));
        }
        let count = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        if count > self.left {
            return Err(damage(format!("a list of {count} elements is truncated")));
        }
        Ok((ThriftType::of(header & 0xf)?, count))
    }

    /// Passes the number and the type of each field of a struct to `field`, which reads the value or
    /// skips it.
    pub(super) fn fields(
        &mut self,
        field: &mut dyn FnMut(&mut Self, i64, ThriftType) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut number = 0_i64;
        loop {
            let [header] = self.take()?;
            if header & 0xf == 0 {
                return Ok(());
            }
            number = match header >> 4 {
                0 => self.integer()?,
                delta => number.saturating_add(i64::from(delta)),
            };
            field(self, number, ThriftType::of(header & 0xf)?)?;
        }
    }

    /// Skips the value of a field.
    pub(super) fn skip(&mut self, of: ThriftType) -> io::Result<()> {
        // The type of the field is the value.
        if of == ThriftType::Bool { Ok(()) } else { self.skip_value(of, 0) }
    }

    fn skip_value(&mut self, of: ThriftType, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(damage("values are nested too deeply"));
        }
        match of {
            ThriftType::Bool | ThriftType::Byte => self.skip_bytes(1),
            ThriftType::Integer => self.varint().map(drop),
            ThriftType::Double => self.skip_bytes(8),
            ThriftType::Uuid => self.skip_bytes(16),
            ThriftType::Binary => {
                let size = self.varint()?;
                self.skip_bytes(size)
            }
            ThriftType::List => {
                let (element, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_value(element, depth + 1))
            }
            ThriftType::Map => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let [types] = self.take()?;
                let (key, value) = (ThriftType::of(types >> 4)?, ThriftType::of(types & 0xf)?);
                (0..count).try_for_each(|_| {
                    self.skip_value(key, depth + 1)?;
                    self.skip_value(value, depth + 1)
                })
            }
            ThriftType::Struct => self.fields(&mut |walk, _, of| match of {
                ThriftType::Bool => Ok(()),
                of => walk.skip_value(of, depth + 1),
            }),
        }
    }
}
