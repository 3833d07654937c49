//! The writer of TFRecord files: a `tf.train.Example` for each row.
//!
//! # Layout
//!
//! ```text
//! length u64 | masked CRC-32C of the length u32 | message | masked CRC-32C of the message u32
//! ```
//!
//! Numbers are little-endian. A message is protocol buffers: `Example { Features features = 1 }`,
//! `Features { map<string, Feature> feature = 1 }`, and a `Feature` is one of `BytesList` (1),
//! `FloatList` (2) and `Int64List` (3), each with its values in field 1.
//!
//! Integers, BOOL, TIMESTAMP (milliseconds) and DATE (days) are `int64_list`, FLOAT and DOUBLE
//! `float_list` of 32 bits, STRING is `bytes_list`; an ARRAY is a list of its elements, without those
//! that are NULL. A NULL is a feature that is not there.

use std::io::{self, Write};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{
    Arena, DataType, Datum,
    arrow::{ColumnReader, data_type},
};

/// What is added to a rotated checksum, so that checksums of data with checksums stay random.
const MASK_DELTA: u32 = 0xa282_ead8;

/// The wire type of a field with a length before it.
const LENGTH_DELIMITED: u8 = 2;

/// A writer of rows as records.
#[derive(Debug)]
pub(super) struct TfRecordWriter {
    columns: Vec<(String, ListKind)>,
    /// The parts of a message, from the inner to the outer ones.
    values: Vec<u8>,
    list: Vec<u8>,
    entry: Vec<u8>,
    features: Vec<u8>,
    record: Vec<u8>,
}

/// The lists of values that a feature can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Bytes = 1,
    Float = 2,
    Int64 = 3,
}

impl TfRecordWriter {
    /// Makes a writer of a schema whose names differ. Fails for types that an `Example` does not have.
    pub(super) fn new(schema: &SchemaRef) -> Result<Self> {
        let mut columns = Vec::new();
        for field in schema.fields() {
            let name = field.name();
            let of = data_type(field.data_type()).unwrap_or(DataType::Null);
            let Some(kind) = list_kind(&of) else {
                let message = format!("tfrecord: column `{name}` has unsupported type {of}");
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_hint(
                        "Convert the column to a number, a string, a time, or an ARRAY of these.",
                    )
                    .err();
            };
            columns.push((name.clone(), kind));
        }
        let (values, list, entry) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { columns, values, list, entry, features: Vec::new(), record: Vec::new() })
    }

    /// Writes the rows of a batch.
    pub(super) fn write(&mut self, batch: &RecordBatch, out: &mut impl Write) -> io::Result<()> {
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column)).collect();
        let mut arena = Arena::new();
        for row in 0..batch.num_rows() {
            self.features.clear();
            for (at, reader) in readers.iter().enumerate() {
                self.push_feature(at, reader.get(row, &arena));
            }
            self.record.clear();
            push_field(1, &self.features, &mut self.record);
            let length = u64::try_from(self.record.len()).unwrap_or(u64::MAX).to_le_bytes();
            out.write_all(&length)?;
            out.write_all(&masked_checksum(&length))?;
            out.write_all(&self.record)?;
            out.write_all(&masked_checksum(&self.record))?;
            arena.reset();
        }
        Ok(())
    }

    fn push_feature(&mut self, at: usize, value: Datum<'_>) {
        if value.is_null() {
            return;
        }
        let (name, kind) = &self.columns[at];
        self.values.clear();
        self.list.clear();
        self.entry.clear();
        let of_one = [value];
        let items = match value {
            Datum::Array(items) => items,
            _ => &of_one,
        };
        for item in items.iter().filter(|item| !item.is_null()) {
            match kind {
                ListKind::Bytes => {
                    push_field(1, item.as_str().unwrap_or_default().as_bytes(), &mut self.values);
                }
                ListKind::Float => self.values.extend(float_of(item).to_le_bytes()),
                ListKind::Int64 => push_varint(int_of(item).cast_unsigned(), &mut self.values),
            }
        }
        // Numbers are packed into one field; texts are fields already.
        let packed = match kind {
            ListKind::Bytes => &self.values,
            _ => {
                push_field(1, &self.values, &mut self.list);
                &self.list
            }
        };
        push_field(1, name.as_bytes(), &mut self.entry);
        let mut feature = Vec::with_capacity(packed.len() + 8);
        push_field(*kind as u8, packed, &mut feature);
        push_field(2, &feature, &mut self.entry);
        push_field(1, &self.entry, &mut self.features);
    }
}

fn list_kind(of: &DataType) -> Option<ListKind> {
    Some(match of {
        DataType::String => ListKind::Bytes,
        DataType::Float | DataType::Double => ListKind::Float,
        DataType::Map(..) | DataType::Null => return None,
        DataType::Array(element) if matches!(**element, DataType::Array(_)) => return None,
        DataType::Array(element) => return list_kind(element),
        _ => ListKind::Int64,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a FloatList has 32 bits: the nearest of them")]
fn float_of(value: &Datum<'_>) -> f32 {
    match value {
        Datum::Float(value) => *value,
        other => other.as_f64().unwrap_or_default() as f32,
    }
}

fn int_of(value: &Datum<'_>) -> i64 {
    match value {
        Datum::Bool(value) => i64::from(*value),
        other => other.as_i64().unwrap_or_default(),
    }
}

/// Appends a field with a length before its bytes.
fn push_field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    debug_assert!(number < 16, "the tag is one byte");
    out.push((number << 3) | LENGTH_DELIMITED);
    push_varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX), out);
    out.extend_from_slice(bytes);
}

/// Appends a number in groups of seven bits, the lowest first.
fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn masked_checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK_DELTA).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};

    use super::*;

    #[test]
    fn a_record_has_its_length_checksums_and_message() {
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int32Array::from(vec![300]))),
            ("x", Arc::new(Float64Array::from(vec![0.5]))),
            ("s", Arc::new(StringArray::from(vec![None::<&str>]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        TfRecordWriter::new(&batch.schema()).unwrap().write(&batch, &mut out).unwrap();
        let message: &[u8] = &[
            0x0a, 0x1c, // features
            0x0a, 0x0b, 0x0a, 1, b'n', 0x12, 6, 0x1a, 4, 0x0a, 2, 0xac, 0x02, // n: 300
            0x0a, 0x0d, 0x0a, 1, b'x', 0x12, 8, 0x12, 6, 0x0a, 4, 0, 0, 0, 0x3f, // x: 0.5
        ];
        assert_eq!(out[..8], 30_u64.to_le_bytes());
        assert_eq!(&out[12..42], message);
        assert_eq!(out[42..], masked_checksum(message));
        // The masked checksum of "123456789", whose CRC-32C is known.
        let known = 0xe306_9283_u32.rotate_right(15).wrapping_add(MASK_DELTA);
        assert_eq!(masked_checksum(b"123456789"), known.to_le_bytes());
    }
}
