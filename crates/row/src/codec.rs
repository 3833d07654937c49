//! The compact row codec: a row as bytes.
//!
//! `table` encodes each row once and stores its bytes; every executor reads them column by column
//! through a [`RowView`]. The bytes do not say their schema, where they are stored, or when they
//! arrived. The codec of a table never changes.
//!
//! # Layout
//!
//! ```text
//! +-------+-------------+---------------+--------------------+------------------+
//! | width | NULL bitmap | fixed section | V ends, width each | variable section |
//! +-------+-------------+---------------+--------------------+------------------+
//!   1 B     ceil(N/8) B                   V * width B
//! ```
//!
//! * width: 1, 2 or 4, the bytes of an end; the smallest in which the length of the variable
//!   section can be written. Chosen per row.
//! * NULL bitmap: bit i % 8 of byte i / 8 is set when column i is NULL; N columns.
//! * fixed section: the columns of fixed width in order, without padding. BOOL takes 1 byte,
//!   SMALLINT 2, INT, FLOAT and DATE 4, BIGINT, DOUBLE and TIMESTAMP 8. A NULL takes its space and
//!   holds zeros, so that the offset of each column follows from the schema alone.
//! * ends: for each of the V STRING, ARRAY and MAP columns, where it ends within the variable
//!   section. It starts where the one before it ends; a NULL is empty.
//! * variable section: texts in UTF-8; arrays and maps as nested values.
//!
//! A nested value is a tag byte and a payload: 0 NULL; 1 BOOL; 2 SMALLINT; 3 INT; 4 BIGINT; 5 FLOAT;
//! 6 DOUBLE; 7 STRING: length in 4 bytes, text; 8 TIMESTAMP; 9 DATE; 10 ARRAY: count in 4 bytes,
//! elements; 11 MAP: count in 4 bytes, then key and value of each entry in turn.
//!
//! All numbers are little-endian.
//!
//! # Example
//!
//! The row `(7, 'ab', NULL, 'c')` of the columns INT, STRING, BIGINT and STRING takes 19 bytes:
//!
//! ```text
//! at  bytes                     what
//!  0  01                        ends of 1 byte each
//!  1  04                        bit 2: the third column is NULL
//!  2  07 00 00 00               INT 7
//!  6  00 00 00 00 00 00 00 00   the space of the BIGINT
//! 14  02                        'ab' ends at 2
//! 15  03                        'c' begins there and ends at 3
//! 16  61 62                     ab
//! 18  63                        c
//! ```
//!
//! # Cost
//!
//! [`RowView::get`] is constant time and allocates nothing. [`RowView::get_in`] of an array or a
//! map is linear in its size and allocates in the arena. Encoding is linear in the bytes.

mod column;
mod nested;

pub(crate) use column::{ColumnKind, null_bit};
pub use column::{FixedColumn, FixedKind, TextColumn};

use crate::datum::{one_nan_f32, one_nan_f64};
use crate::{Arena, Column, DataType, Datum, TableSchema};

/// The most bytes that a row can take: an end is written in at most 4 bytes.
pub(crate) const ROW_SIZE_MAX: usize = u32::MAX as usize;

/// Why a row cannot be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// A row has another number of values than the table has columns.
    #[error("expected {expected} values, found {found}")]
    Width {
        /// Columns of the table.
        expected: usize,
        /// Values of the row.
        found: usize,
    },
    /// A value is not of its column's type.
    #[error("column `{column}` is of type {expected} but the value is of type {found}")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        expected: DataType,
        /// The value's type.
        found: DataType,
    },
    /// NULL in a column that does not take it.
    #[error("null value in column `{column}` violates not-null constraint")]
    Null {
        /// The column.
        column: String,
    },
    /// A text that is longer than its column takes.
    #[error("value too long for column `{column}`: {length} characters, the limit is {length_max}")]
    Length {
        /// The column.
        column: String,
        /// Maximum length, in characters.
        length_max: u32,
        /// Length of the value, in characters.
        length: usize,
    },
    /// A row, or one of its texts, is longer than the format can hold.
    #[error("row size of {size} bytes exceeds the limit of {size_max} bytes")]
    Size {
        /// Bytes it would take.
        size: usize,
        /// The most bytes a row can take.
        size_max: usize,
    },
}

/// Encodes and decodes rows of one schema. Immutable; made once per table.
#[derive(Debug, Clone)]
pub struct RowCodec {
    columns: Box<[Column]>,
    locations: Box<[ColumnLocation]>,
    variable: VariableColumns,
}

/// The columns of variable width, which are the same in every row of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct VariableColumns {
    /// Where the ends start.
    ends_start: usize,
    count: usize,
}

/// Where the value of a column is in a row.
#[derive(Debug, Clone, Copy)]
enum ColumnLocation {
    /// A column of the type of the bare NULL has no values.
    None,
    Bool(usize),
    SmallInt(usize),
    Int(usize),
    BigInt(usize),
    Float(usize),
    Double(usize),
    Timestamp(usize),
    Date(usize),
    /// The position among the columns of variable width.
    Text(usize),
    /// The position among the columns of variable width.
    Nested(usize),
}

/// The byte in which the width of the ends is written.
const WIDTH_SIZE: usize = 1;

impl RowCodec {
    /// Makes the codec of a schema's rows.
    pub fn new(schema: &TableSchema) -> Self {
        let mut fixed_end = WIDTH_SIZE + schema.columns.len().div_ceil(8);
        let mut variable_count = 0;
        let mut locations = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            let mut fixed = |size: usize| {
                fixed_end += size;
                fixed_end - size
            };
            let mut variable = || {
                variable_count += 1;
                variable_count - 1
            };
            locations.push(match column.data_type {
                DataType::Null => ColumnLocation::None,
                DataType::Bool => ColumnLocation::Bool(fixed(1)),
                DataType::SmallInt => ColumnLocation::SmallInt(fixed(2)),
                DataType::Int => ColumnLocation::Int(fixed(4)),
                DataType::BigInt => ColumnLocation::BigInt(fixed(8)),
                DataType::Float => ColumnLocation::Float(fixed(4)),
                DataType::Double => ColumnLocation::Double(fixed(8)),
                DataType::Timestamp => ColumnLocation::Timestamp(fixed(8)),
                DataType::Date => ColumnLocation::Date(fixed(4)),
                DataType::String => ColumnLocation::Text(variable()),
                DataType::Array(_) | DataType::Map(_, _) => ColumnLocation::Nested(variable()),
            });
        }
        Self {
            columns: schema.columns.clone().into(),
            locations: locations.into(),
            variable: VariableColumns { ends_start: fixed_end, count: variable_count },
        }
    }

    /// Checks a row against the schema and appends its bytes to `out`, which is left as it was
    /// when the row does not fit.
    pub fn encode(&self, row: &[Datum<'_>], out: &mut Vec<u8>) -> Result<(), RowError> {
        self.check(row)?;
        let variable_size = row.iter().map(|value| variable_size(*value)).sum::<usize>();
        let width = end_width(variable_size);
        let VariableColumns { ends_start, count } = self.variable;
        let size = ends_start + count * width + variable_size;
        if size > ROW_SIZE_MAX {
            return Err(RowError::Size { size, size_max: ROW_SIZE_MAX });
        }
        let start = out.len();
        out.reserve(size);
        out.resize(start + ends_start + count * width, 0);
        out[start] = u8::try_from(width).expect("a width is 1, 2 or 4");
        let variable_start = out.len();
        let mut end_at = start + ends_start;
        for (index, (value, location)) in row.iter().zip(&self.locations).enumerate() {
            if value.is_null() {
                out[start + WIDTH_SIZE + index / 8] |= 1 << (index % 8);
            }
            match *location {
                ColumnLocation::Text(_) | ColumnLocation::Nested(_) => {
                    match *value {
                        Datum::String(text) => out.extend_from_slice(text.as_bytes()),
                        nested => nested::encode_content(nested, out),
                    }
                    let end = (out.len() - variable_start).to_le_bytes();
                    out[end_at..end_at + width].copy_from_slice(&end[..width]);
                    end_at += width;
                }
                location => put_fixed(location, *value, &mut out[start..]),
            }
        }
        debug_assert_eq!(out.len(), start + size, "the size was computed from the same values");
        Ok(())
    }

    /// Checks the values of a row against the schema.
    fn check(&self, row: &[Datum<'_>]) -> Result<(), RowError> {
        if row.len() != self.columns.len() {
            return Err(RowError::Width { expected: self.columns.len(), found: row.len() });
        }
        for (value, column) in row.iter().zip(&self.columns) {
            if value.is_null() {
                if !column.nullable {
                    return Err(RowError::Null { column: column.name.clone() });
                }
            } else if !value.is_of_type(&column.data_type) {
                return Err(RowError::Type {
                    column: column.name.clone(),
                    expected: column.data_type.clone(),
                    found: value.data_type(),
                });
            } else if let Datum::String(text) = value {
                column.check_length(text)?;
            }
        }
        Ok(())
    }

    /// Returns a view of a row made by [`RowCodec::encode`] of the same schema. Checks every text, hence
    /// linear in the row; panics when the bytes are not a row of this schema.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> RowView<'a> {
        let view = RowView { codec: self, bytes };
        for location in &self.locations {
            if let ColumnLocation::Text(position) = *location {
                let text = std::str::from_utf8(view.variable(position));
                assert!(text.is_ok(), "a row's texts are UTF-8");
            }
        }
        view
    }

    /// Returns whether bytes have the form of a row of this schema, so that a view of them reads nothing
    /// beyond them, its texts are UTF-8, and no NOT NULL column is NULL. Linear in the row. Nested
    /// values are not looked into.
    pub fn is_row(&self, bytes: &[u8]) -> bool {
        let VariableColumns { ends_start, count } = self.variable;
        debug_assert!(ends_start > 0, "a row begins with the width of an end");
        let width = bytes.first().map_or(0, |width| usize::from(*width));
        let section = ends_start + count * width;
        if !matches!(width, 1 | 2 | 4) || bytes.len() < section {
            return false;
        }
        let mut last = 0;
        for ends in bytes[ends_start..section].chunks_exact(width) {
            let mut end = [0; 4];
            end[..width].copy_from_slice(ends);
            let Ok(end) = usize::try_from(u32::from_le_bytes(end)) else { return false };
            if end < last || end > bytes.len() - section {
                return false;
            }
            last = end;
        }
        let is_text = |location: &ColumnLocation| match *location {
            ColumnLocation::Text(position) => {
                std::str::from_utf8(variable(bytes, self.variable, position)).is_ok()
            }
            _ => true,
        };
        let view = RowView { codec: self, bytes };
        let mut columns = self.columns.iter().enumerate();
        let has_null = columns.any(|(at, column)| !column.nullable && view.is_null(at));
        last == bytes.len() - section && self.locations.iter().all(is_text) && !has_null
    }

    /// Returns a view of a row without checking it. Constant time.
    ///
    /// # Safety
    ///
    /// The bytes were made by [`RowCodec::encode`] of a codec of the same schema.
    #[inline]
    pub unsafe fn view_trusted<'a>(&'a self, bytes: &'a [u8]) -> RowView<'a> {
        RowView { codec: self, bytes }
    }
}

/// A row's bytes, read column by column without copying.
///
/// Its texts are UTF-8, which is checked when the view is made.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    codec: &'a RowCodec,
    bytes: &'a [u8],
}

impl<'a> RowView<'a> {
    /// Returns how many bytes the row has.
    #[inline]
    pub fn byte_len(&self) -> usize {
        debug_assert!(!self.bytes.is_empty(), "a row has a place for NULLs");
        self.bytes.len()
    }

    /// Returns the value of a column. Constant time; text points into the row. ARRAY and MAP columns are
    /// not read this way but with [`RowView::get_in`]: here they panic unless they are NULL.
    #[inline]
    pub fn get(&self, column: usize) -> Datum<'a> {
        self.get_or(column, |_| panic!("an array or a map is read with get_in"))
    }

    /// Returns the value of a column; `nested` reads arrays and maps from their bytes.
    #[inline]
    fn get_or(&self, column: usize, nested: impl FnOnce(&'a [u8]) -> Datum<'a>) -> Datum<'a> {
        if self.is_null(column) {
            return Datum::Null;
        }
        match self.codec.locations[column] {
            ColumnLocation::None => Datum::Null,
            ColumnLocation::Bool(at) => Datum::Bool(self.bytes[at] != 0),
            ColumnLocation::SmallInt(at) => Datum::SmallInt(i16::from_le_bytes(self.fixed(at))),
            ColumnLocation::Int(at) => Datum::Int(i32::from_le_bytes(self.fixed(at))),
            ColumnLocation::BigInt(at) => Datum::BigInt(i64::from_le_bytes(self.fixed(at))),
            ColumnLocation::Float(at) => Datum::Float(f32::from_le_bytes(self.fixed(at))),
            ColumnLocation::Double(at) => Datum::Double(f64::from_le_bytes(self.fixed(at))),
            ColumnLocation::Timestamp(at) => Datum::Timestamp(i64::from_le_bytes(self.fixed(at))),
            ColumnLocation::Date(at) => Datum::Date(i32::from_le_bytes(self.fixed(at))),
            ColumnLocation::Text(position) => {
                let text = self.variable(position);
                // SAFETY: `RowCodec::view` has checked it, or the caller of
                // `RowCodec::view_trusted` promises that `encode` wrote it from a `str`.
                Datum::String(unsafe { std::str::from_utf8_unchecked(text) })
            }
            ColumnLocation::Nested(position) => nested(self.variable(position)),
        }
    }

    /// Returns the value of a column of any type. Arrays and maps are allocated in `arena`; their texts
    /// point into the row.
    #[inline]
    pub fn get_in(&self, column: usize, arena: &'a Arena) -> Datum<'a> {
        self.get_or(column, |content| nested::decode_content(content, arena))
    }

    /// Returns whether a column is NULL.
    #[inline]
    pub fn is_null(&self, column: usize) -> bool {
        self.bytes[WIDTH_SIZE + column / 8] & (1 << (column % 8)) != 0
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.codec.locations.len()
    }

    /// Returns the encoded row.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes of a value of fixed width.
    #[inline]
    fn fixed<const SIZE: usize>(&self, at: usize) -> [u8; SIZE] {
        fixed(self.bytes, at)
    }

    /// Returns the content of a column of variable width.
    #[inline]
    fn variable(&self, position: usize) -> &'a [u8] {
        variable(self.bytes, self.codec.variable, position)
    }
}

/// Returns the content of the column at a position among those of variable width.
#[inline]
fn variable(row: &[u8], columns: VariableColumns, position: usize) -> &[u8] {
    let VariableColumns { ends_start, count } = columns;
    debug_assert!(position < count, "a column of variable width");
    let width = usize::from(row[0]);
    let end = |position: usize| {
        let at = ends_start + position * width;
        match width {
            1 => usize::from(row[at]),
            2 => usize::from(u16::from_le_bytes(fixed(row, at))),
            _ => {
                let end = u32::from_le_bytes(fixed(row, at));
                usize::try_from(end).expect("addresses have 32 bits or more")
            }
        }
    };
    let start = if position == 0 { 0 } else { end(position - 1) };
    let section = ends_start + count * width;
    &row[section + start..section + end(position)]
}

/// Returns the bytes of the fixed section from an offset on.
#[inline]
fn fixed<const SIZE: usize>(row: &[u8], at: usize) -> [u8; SIZE] {
    *row[at..].first_chunk().expect("the fixed section is as long as the schema says")
}

/// Returns the bytes that a value takes in the variable section.
fn variable_size(value: Datum<'_>) -> usize {
    match value {
        Datum::String(text) => text.len(),
        Datum::Array(_) | Datum::Map(_) => nested::content_size(value),
        _ => 0,
    }
}

/// Returns the fewest bytes in which the length of the variable section can be written.
fn end_width(variable_size: usize) -> usize {
    match variable_size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Writes a value of fixed width; for NULL the zeros that are there already stay.
fn put_fixed(location: ColumnLocation, value: Datum<'_>, row: &mut [u8]) {
    let mut put = |at: usize, bytes: &[u8]| row[at..at + bytes.len()].copy_from_slice(bytes);
    match (location, value) {
        (ColumnLocation::Bool(at), Datum::Bool(value)) => put(at, &[u8::from(value)]),
        (ColumnLocation::SmallInt(at), Datum::SmallInt(value)) => put(at, &value.to_le_bytes()),
        (ColumnLocation::Int(at), Datum::Int(value))
        | (ColumnLocation::Date(at), Datum::Date(value)) => {
            put(at, &value.to_le_bytes());
        }
        (ColumnLocation::BigInt(at), Datum::BigInt(value))
        | (ColumnLocation::Timestamp(at), Datum::Timestamp(value)) => put(at, &value.to_le_bytes()),
        (ColumnLocation::Float(at), Datum::Float(value)) => {
            put(at, &one_nan_f32(value).to_le_bytes());
        }
        (ColumnLocation::Double(at), Datum::Double(value)) => {
            put(at, &one_nan_f64(value).to_le_bytes());
        }
        (_, value) => debug_assert!(value.is_null(), "types were checked: {value:?}"),
    }
}

#[cfg(test)]
mod tests;
