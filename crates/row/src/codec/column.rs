//! Reading one column of many rows: its location is determined once.
//!
//! [`RowView::get`](super::RowView::get) matches on the column's type for each value. Loops over rows,
//! and code generated for them, call [`RowCodec::fixed_column`] once and then read at a constant
//! offset. See the layout in [`super`].

use super::{ColumnLocation, RowCodec, RowView, VariableColumns, WIDTH_SIZE, variable};

/// The representation of a column of fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FixedKind {
    /// BOOL: a byte, 0 or 1.
    Bool,
    /// SMALLINT.
    I16,
    /// INT, DATE.
    I32,
    /// BIGINT, TIMESTAMP.
    I64,
    /// FLOAT.
    F32,
    /// DOUBLE.
    F64,
}

/// The location of a column of fixed width, in every row of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedColumn {
    kind: FixedKind,
    null_byte: usize,
    null_mask: u8,
    at: usize,
}

/// The location of a column, by how it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ColumnKind {
    Fixed(FixedColumn),
    Text(TextColumn),
    /// An array or a map, or of the type of the bare NULL.
    Other,
}

/// Returns the byte of a row, and the bit in it, that say whether a column is NULL.
pub(crate) fn null_bit(column: usize) -> (usize, u8) {
    (WIDTH_SIZE + column / 8, 1 << (column % 8))
}

/// The location of a STRING column, in every row of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextColumn {
    null_byte: usize,
    null_mask: u8,
    position: usize,
    variable: VariableColumns,
}

impl RowCodec {
    /// Returns the location of a STRING column; `None` when it is of another type.
    pub fn text_column(&self, column: usize) -> Option<TextColumn> {
        let ColumnLocation::Text(position) = self.locations[column] else { return None };
        let (null_byte, null_mask) = null_bit(column);
        Some(TextColumn { null_byte, null_mask, position, variable: self.variable })
    }

    /// Returns the location of a column of any type.
    pub(crate) fn column_kind(&self, column: usize) -> ColumnKind {
        if let Some(fixed) = self.fixed_column(column) {
            return ColumnKind::Fixed(fixed);
        }
        self.text_column(column).map_or(ColumnKind::Other, ColumnKind::Text)
    }

    /// Returns the location of a column; `None` when its width is not fixed.
    pub fn fixed_column(&self, column: usize) -> Option<FixedColumn> {
        let (kind, at) = match self.locations[column] {
            ColumnLocation::Bool(at) => (FixedKind::Bool, at),
            ColumnLocation::SmallInt(at) => (FixedKind::I16, at),
            ColumnLocation::Int(at) | ColumnLocation::Date(at) => (FixedKind::I32, at),
            ColumnLocation::BigInt(at) | ColumnLocation::Timestamp(at) => (FixedKind::I64, at),
            ColumnLocation::Float(at) => (FixedKind::F32, at),
            ColumnLocation::Double(at) => (FixedKind::F64, at),
            ColumnLocation::None | ColumnLocation::Text(_) | ColumnLocation::Nested(_) => {
                return None;
            }
        };
        let (null_byte, null_mask) = null_bit(column);
        Some(FixedColumn { kind, null_byte, null_mask, at })
    }
}

impl FixedColumn {
    /// Returns the representation of the value.
    pub fn kind(self) -> FixedKind {
        self.kind
    }

    /// Returns a column of the same values at another location.
    pub(crate) fn moved(self, (null_byte, null_mask): (usize, u8), at: usize) -> Self {
        Self { kind: self.kind, null_byte, null_mask, at }
    }

    /// Returns the byte of a row, and the bit in it, that say whether the value is NULL.
    pub fn null_bit(self) -> (usize, u8) {
        (self.null_byte, self.null_mask)
    }

    /// Returns the offset in a row at which the value begins.
    pub fn at(self) -> usize {
        self.at
    }

    /// Returns whether the value is NULL in a row of the schema.
    #[inline]
    pub fn is_null(self, row: &[u8]) -> bool {
        row[self.null_byte] & self.null_mask != 0
    }

    /// Returns the bytes of the value in a row of the schema; zeros when it is NULL. Panics when the
    /// row is too short for the value.
    #[inline]
    pub fn bytes<const SIZE: usize>(self, row: &[u8]) -> [u8; SIZE] {
        *row[self.at..].first_chunk().expect("the fixed section is as long as the schema says")
    }
}

impl TextColumn {
    /// Returns the text in a row of the schema, in UTF-8; empty when it is NULL.
    pub(crate) fn bytes(self, row: &[u8]) -> &[u8] {
        variable(row, self.variable, self.position)
    }
}

impl<'a> RowView<'a> {
    /// Prefetches the cache line in which the text of a column begins.
    #[inline]
    pub fn prefetch_text(&self, column: TextColumn) {
        let TextColumn { position, variable, .. } = column;
        let VariableColumns { ends_start, count } = variable;
        if self.bytes[0] == 1 && position > 0 {
            let start = usize::from(self.bytes[ends_start + position - 1]);
            self.prefetch(ends_start + count + start);
        }
    }

    /// Returns the text of a column of the row's schema; `None` when it is NULL.
    #[inline]
    pub fn text(&self, column: TextColumn) -> Option<&'a str> {
        let TextColumn { null_byte, null_mask, position, variable } = column;
        let VariableColumns { ends_start, count } = variable;
        let bytes = self.bytes;
        if bytes[null_byte] & null_mask != 0 {
            return None;
        }
        let text = if bytes[0] == 1 {
            // The usual case: short rows.
            let end = usize::from(bytes[ends_start + position]);
            let start =
                if position == 0 { 0 } else { usize::from(bytes[ends_start + position - 1]) };
            let section = ends_start + count;
            &bytes[section + start..section + end]
        } else {
            self.variable(position)
        };
        debug_assert!(std::str::from_utf8(text).is_ok(), "a row's texts are UTF-8");
        // SAFETY: the texts of a view are UTF-8, see `RowView`.
        Some(unsafe { std::str::from_utf8_unchecked(text) })
    }

    /// Prefetches the cache line of the row's byte `at`, for a loop over rows that are scattered over
    /// the heap.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.bytes.as_ptr().wrapping_add(at);
            // SAFETY: a prefetch reads nothing and never faults, wherever it points to.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = at;
    }
}

impl RowCodec {
    /// Returns the offset at which the ends of the columns of variable width begin, followed by the
    /// variable section.
    pub fn variable_at(&self) -> usize {
        self.variable.ends_start
    }
}

#[cfg(test)]
mod tests {
    use crate::{Column, DataType, Datum, FixedKind, RowCodec, TableSchema};

    #[test]
    fn a_fixed_column_is_read_in_place() {
        let types = [DataType::String, DataType::Double, DataType::SmallInt, DataType::BigInt];
        let columns = types.into_iter().enumerate();
        let columns = columns.map(|(at, data_type)| Column::new(format!("c{at}"), data_type));
        let schema = TableSchema { columns: columns.collect(), indexes: Vec::new() };
        let codec = RowCodec::new(&schema);
        let mut row = Vec::new();
        let values = [Datum::String("text"), Datum::Double(1.5), Datum::Null, Datum::BigInt(-7)];
        codec.encode(&values, &mut row).unwrap();
        assert_eq!(codec.fixed_column(0), None);
        let view = codec.view(&row);
        assert_eq!(view.text(codec.text_column(0).unwrap()), Some("text"));
        assert_eq!(codec.text_column(1), None);
        let fixed = |column: usize| codec.fixed_column(column).unwrap();
        assert_eq!(fixed(1).kind(), FixedKind::F64);
        assert_eq!(f64::from_le_bytes(fixed(1).bytes(&row)).to_bits(), 1.5_f64.to_bits());
        assert!(fixed(2).is_null(&row) && !fixed(3).is_null(&row));
        assert_eq!(i64::from_le_bytes(fixed(3).bytes(&row)), -7);
    }
}
