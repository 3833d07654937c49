//! The layout of a record: some columns of a row, at constant offsets.
//!
//! An index that includes columns stores a record beside each of its slots. `table` decides which
//! columns, and writes; executors read field by field, at the location of a [`FixedColumn`] or a
//! [`TextCell`]. Knows nothing of where records are stored.
//!
//! # Layout
//!
//! A record is a sequence of fields, each of constant width, which may be stored apart. A projection
//! grows by fields and never moves one: a reader by an earlier projection reads records of a later
//! one. Each column has a bit that says whether it is NULL, in a byte that is added when the bits of
//! the one before are used up; and, if its values are included, a field:
//!
//! ```text
//! +------+---------------------------------+------+-----
//! | NULL | values of up to eight columns   | NULL | ...
//! +------+---------------------------------+------+-----
//!   1 B    fixed width, or 16 B for a text   1 B
//! ```
//!
//! Each box of one byte is a field, and each value.
//!
//! Values of fixed width are as in a row, zeros when NULL. A text of at most 15 bytes is in its
//! cell, zeros after it, its length in the last byte; when it is longer, the last byte says that it
//! is to be read in the row. Numbers are little-endian; nothing is aligned.

use serde::{Deserialize, Serialize};

use crate::{
    FixedColumn, FixedKind, RowCodec, TextColumn,
    codec::{ColumnKind, null_bit},
    short_text::{CELL_SIZE, SHORT_SIZE_MAX, ShortText},
};

/// A column that an index is to include.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IncludedColumn {
    /// The position in the table's schema.
    pub column: usize,
    /// Whether its values are included, or only whether they are NULL. Of arrays and maps there is
    /// only the latter, whatever this says.
    pub values: bool,
}

/// The columns that a record holds, and their fields. The default has no column and size 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projection {
    columns: Vec<IncludedField>,
    /// Widths of the fields.
    widths: Vec<usize>,
    size: usize,
    /// The byte of the NULL bits that was added last, and how many of them are used.
    nulls: Option<(usize, u8)>,
}

/// A column of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IncludedField {
    column: usize,
    row_null: (usize, u8),
    null: (usize, u8),
    value: IncludedValue,
}

/// The location of a value, in a row and in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IncludedValue {
    /// Only whether it is NULL.
    Presence,
    Fixed {
        from: FixedColumn,
        to: FixedColumn,
    },
    Text {
        from: TextColumn,
        to: TextCell,
    },
}

/// The location of a STRING column, in every record of a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextCell {
    null_byte: usize,
    null_mask: u8,
    at: usize,
}

/// The last byte of a cell whose text is in the row.
const IN_ROW: u8 = 0xff;

impl Projection {
    /// Returns this projection with the columns added that it does not include yet. Existing fields keep
    /// their offsets.
    #[must_use]
    pub fn with(&self, codec: &RowCodec, columns: &[IncludedColumn]) -> Self {
        let mut grown = self.clone();
        for wanted in columns {
            let at = match grown.position(wanted.column) {
                Some(at) => at,
                None => grown.add_presence(wanted.column),
            };
            if wanted.values && grown.columns[at].value == IncludedValue::Presence {
                grown.add_values(at, codec);
            }
        }
        grown
    }

    /// Returns the bytes of a record; 0 when no column is included.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the widths of the fields of a record, which follow each other.
    pub fn widths(&self) -> impl Iterator<Item = usize> {
        self.widths.iter().copied()
    }

    /// Returns the included columns, in the order in which they were added. Arrays and maps, and columns
    /// that are only checked for NULL, are without values.
    pub fn columns(&self) -> impl Iterator<Item = IncludedColumn> {
        self.columns.iter().map(|included| {
            let values = included.value != IncludedValue::Presence;
            IncludedColumn { column: included.column, values }
        })
    }

    /// Returns the location of a column of fixed width in a record; `None` when its values are not
    /// included, or its width is not fixed.
    pub fn fixed_column(&self, column: usize) -> Option<FixedColumn> {
        match self.included(column)?.value {
            IncludedValue::Fixed { to, .. } => Some(to),
            IncludedValue::Presence | IncludedValue::Text { .. } => None,
        }
    }

    /// Returns the location of a STRING column in a record; `None` when its values are not included, or
    /// it is of another type.
    pub fn text_cell(&self, column: usize) -> Option<TextCell> {
        match self.included(column)?.value {
            IncludedValue::Text { to, .. } => Some(to),
            IncludedValue::Presence | IncludedValue::Fixed { .. } => None,
        }
    }

    /// Returns the byte of a record, and the bit in it, that say whether a column is NULL; `None` when
    /// the column is not included at all.
    pub fn presence(&self, column: usize) -> Option<(usize, u8)> {
        self.included(column).map(|included| included.null)
    }

    /// Writes the record of a row of the schema. Linear in the columns included. Panics when the
    /// row is of another schema, or `record` is not of [`Self::size`].
    pub fn write(&self, row: &[u8], record: &mut [u8]) {
        assert_eq!(record.len(), self.size, "a record is of its projection's size");
        record.fill(0);
        for included in &self.columns {
            let (byte, mask) = included.row_null;
            if row[byte] & mask != 0 {
                record[included.null.0] |= included.null.1;
                continue;
            }
            match included.value {
                IncludedValue::Presence => {}
                IncludedValue::Fixed { from, to } => {
                    let size = to.kind().size();
                    record[to.at()..to.at() + size]
                        .copy_from_slice(&row[from.at()..from.at() + size]);
                }
                IncludedValue::Text { from, to } => to.write(from.bytes(row), record),
            }
        }
    }

    /// Returns the position of a column among the included ones.
    fn position(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|included| included.column == column)
    }

    /// Returns the fields of a column.
    fn included(&self, column: usize) -> Option<&IncludedField> {
        self.columns.iter().find(|included| included.column == column)
    }

    /// Adds a column without values, only with its NULL bit, and returns its position.
    fn add_presence(&mut self, column: usize) -> usize {
        let (byte, given) = match self.nulls {
            Some((byte, given)) if given < 8 => (byte, given),
            _ => (self.add_field(1), 0),
        };
        self.nulls = Some((byte, given + 1));
        let (row_null, null) = (null_bit(column), (byte, 1 << given));
        self.columns.push(IncludedField { column, row_null, null, value: IncludedValue::Presence });
        self.columns.len() - 1
    }

    /// Adds a field for the values of a column, unless they are of a type that is not included.
    fn add_values(&mut self, at: usize, codec: &RowCodec) {
        let IncludedField { column, null: (null_byte, null_mask), .. } = self.columns[at];
        self.columns[at].value = match codec.column_kind(column) {
            ColumnKind::Other => return,
            ColumnKind::Fixed(from) => {
                let value_at = self.add_field(from.kind().size());
                IncludedValue::Fixed { from, to: from.moved((null_byte, null_mask), value_at) }
            }
            ColumnKind::Text(from) => {
                let at = self.add_field(CELL_SIZE);
                IncludedValue::Text { from, to: TextCell { null_byte, null_mask, at } }
            }
        };
    }

    /// Adds a field and returns the offset in a record at which it begins.
    fn add_field(&mut self, width: usize) -> usize {
        debug_assert!(width > 0, "a field has a byte at least");
        self.widths.push(width);
        self.size += width;
        debug_assert_eq!(self.size, self.widths.iter().sum::<usize>());
        self.size - width
    }
}

impl FixedKind {
    /// Returns the bytes of a value.
    pub fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

impl TextCell {
    /// The bytes of a cell.
    pub const WIDTH: usize = CELL_SIZE;

    /// Returns the byte of a record, and the bit in it, that say whether the text is NULL.
    pub fn null_bit(self) -> (usize, u8) {
        (self.null_byte, self.null_mask)
    }

    /// Returns the offset in a record at which the [`TextCell::WIDTH`] bytes of the cell begin.
    pub fn at(self) -> usize {
        self.at
    }

    /// Returns the texts of cells that follow each other, NULLs being empty; `None` where one of them is
    /// too long for a cell and is to be read in its row. Panics when the bytes are not cells.
    #[inline]
    pub fn texts(cells: &[u8]) -> Option<&[ShortText]> {
        let (cells, rest) = cells.as_chunks();
        assert!(rest.is_empty(), "cells are of one size");
        let are_short = cells.iter().all(|cell| cell[SHORT_SIZE_MAX] != IN_ROW);
        are_short.then(|| ShortText::from_cells(cells))
    }

    /// Writes a text into its cell.
    fn write(self, text: &[u8], record: &mut [u8]) {
        let cell = &mut record[self.at..self.at + CELL_SIZE];
        match ShortText::of_bytes(text) {
            Some(short) => cell.copy_from_slice(short.as_cell()),
            None => cell[SHORT_SIZE_MAX] = IN_ROW,
        }
    }
}

#[cfg(test)]
mod tests;
