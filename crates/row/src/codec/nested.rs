//! Arrays and maps within a row: see the layout in [`super`].
//!
//! The tag of the outermost value is the type of the column, or of its elements, written out, so
//! that a value can be read without the schema.

use crate::datum::{one_nan_f32, one_nan_f64};
use crate::{Arena, Datum};

/// Bytes of a tag.
const TAG_SIZE: usize = 1;
/// Bytes of a length or a count.
const COUNT_SIZE: usize = 4;

/// Returns the number of bytes that [`encode_content`] writes.
pub(super) fn content_size(value: Datum<'_>) -> usize {
    TAG_SIZE
        + match value {
            Datum::Null => 0,
            Datum::Bool(_) => 1,
            Datum::SmallInt(_) => 2,
            Datum::Int(_) | Datum::Float(_) | Datum::Date(_) => 4,
            Datum::BigInt(_) | Datum::Double(_) | Datum::Timestamp(_) => 8,
            Datum::String(text) => COUNT_SIZE + text.len(),
            Datum::Array(items) => {
                COUNT_SIZE + items.iter().map(|item| content_size(*item)).sum::<usize>()
            }
            Datum::Map(entries) => {
                let entry = |(key, value): &(Datum<'_>, Datum<'_>)| {
                    content_size(*key) + content_size(*value)
                };
                COUNT_SIZE + entries.iter().map(entry).sum::<usize>()
            }
        }
}

/// Appends an array or a map; nothing for a column that is NULL.
pub(super) fn encode_content(value: Datum<'_>, out: &mut Vec<u8>) {
    if !value.is_null() {
        encode(value, out);
    }
}

/// Appends a value with its tag.
fn encode(value: Datum<'_>, out: &mut Vec<u8>) {
    let mut put = |tag: u8, payload: &[u8]| {
        out.push(tag);
        out.extend_from_slice(payload);
    };
    match value {
        Datum::Null => put(0, &[]),
        Datum::Bool(value) => put(1, &[u8::from(value)]),
        Datum::SmallInt(value) => put(2, &value.to_le_bytes()),
        Datum::Int(value) => put(3, &value.to_le_bytes()),
        Datum::BigInt(value) => put(4, &value.to_le_bytes()),
        Datum::Float(value) => put(5, &one_nan_f32(value).to_le_bytes()),
        Datum::Double(value) => put(6, &one_nan_f64(value).to_le_bytes()),
        Datum::String(text) => {
            put(7, &count_bytes(text.len()));
            out.extend_from_slice(text.as_bytes());
        }
        Datum::Timestamp(value) => put(8, &value.to_le_bytes()),
        Datum::Date(value) => put(9, &value.to_le_bytes()),
        Datum::Array(items) => {
            put(10, &count_bytes(items.len()));
            for item in items {
                encode(*item, out);
            }
        }
        Datum::Map(entries) => {
            put(11, &count_bytes(entries.len()));
            for (key, value) in entries {
                encode(*key, out);
                encode(*value, out);
            }
        }
    }
}

/// Returns a length or a count as it is written.
fn count_bytes(count: usize) -> [u8; COUNT_SIZE] {
    u32::try_from(count).expect("a row is shorter than 4 GiB").to_le_bytes()
}

/// Reads what [`encode_content`] wrote. Panics when the bytes are something else.
pub(super) fn decode_content<'a>(bytes: &'a [u8], arena: &'a Arena) -> Datum<'a> {
    let mut reader = NestedReader { bytes, arena };
    let value = reader.value();
    debug_assert!(reader.bytes.is_empty(), "a nested value fills its column");
    value
}

/// Reads a nested value from its bytes.
struct NestedReader<'a> {
    /// The bytes that are left to read.
    bytes: &'a [u8],
    arena: &'a Arena,
}

impl<'a> NestedReader<'a> {
    /// Reads a value with its tag.
    fn value(&mut self) -> Datum<'a> {
        let [tag] = self.fixed();
        match tag {
            0 => Datum::Null,
            1 => Datum::Bool(self.fixed::<1>() != [0]),
            2 => Datum::SmallInt(i16::from_le_bytes(self.fixed())),
            3 => Datum::Int(i32::from_le_bytes(self.fixed())),
            4 => Datum::BigInt(i64::from_le_bytes(self.fixed())),
            5 => Datum::Float(f32::from_le_bytes(self.fixed())),
            6 => Datum::Double(f64::from_le_bytes(self.fixed())),
            7 => {
                let size = self.count();
                let (text, rest) = self.bytes.split_at(size);
                self.bytes = rest;
                Datum::String(std::str::from_utf8(text).expect("encode wrote a str"))
            }
            8 => Datum::Timestamp(i64::from_le_bytes(self.fixed())),
            9 => Datum::Date(i32::from_le_bytes(self.fixed())),
            10 => {
                let arena = self.arena;
                let count = self.count();
                Datum::Array(arena.alloc_slice_fill_with(count, |_| self.value()))
            }
            11 => {
                let arena = self.arena;
                let count = self.count();
                let entries = arena.alloc_slice_fill_with(count, |_| {
                    let key = self.value();
                    (key, self.value())
                });
                Datum::Map(entries)
            }
            tag => panic!("a nested value does not start with {tag}"),
        }
    }

    /// Reads a length or a count.
    fn count(&mut self) -> usize {
        let count = u32::from_le_bytes(self.fixed());
        usize::try_from(count).expect("addresses have 32 bits or more")
    }

    /// Reads bytes.
    fn fixed<const SIZE: usize>(&mut self) -> [u8; SIZE] {
        let (fixed, rest) = self.bytes.split_first_chunk().expect("a nested value is complete");
        self.bytes = rest;
        *fixed
    }
}
