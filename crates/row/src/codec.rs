//! The compact row codec: a row as bytes.

use crate::{Datum, TableSchema};

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
    #[error("column `{column}` is {expected}, the value is {found}")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        expected: crate::DataType,
        /// The value's type.
        found: crate::DataType,
    },
    /// NULL in a column that does not take it.
    #[error("column `{column}` does not take NULL")]
    Null {
        /// The column.
        column: String,
    },
    /// A row, or one of its texts, is longer than the format can hold.
    #[error("the row takes {size} bytes, the most is {size_max}")]
    Size {
        /// Bytes it would take.
        size: usize,
        /// The most bytes a row can take.
        size_max: usize,
    },
}

/// Encodes and decodes rows of one schema. Immutable; made once per table.
#[derive(Debug, Clone)]
pub struct RowCodec {}

impl RowCodec {
    /// Lays out the rows of a schema.
    pub fn new(schema: &TableSchema) -> Self {
        let _ = schema;
        todo!()
    }

    /// Checks a row against the schema and appends its bytes to `out`.
    pub fn encode(&self, row: &[Datum<'_>], out: &mut Vec<u8>) -> Result<(), RowError> {
        let _ = (row, out);
        todo!()
    }

    /// Looks at a row made by [`RowCodec::encode`] of the same schema.
    pub fn view<'a>(&'a self, bytes: &'a [u8]) -> RowView<'a> {
        let _ = bytes;
        todo!()
    }
}

/// A row's bytes, read column by column without copying.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    codec: &'a RowCodec,
    bytes: &'a [u8],
}

impl<'a> RowView<'a> {
    /// The value of a column. Constant time; text points into the row. MAP columns are not read
    /// this way.
    pub fn get(&self, column: usize) -> Datum<'a> {
        let _ = (column, self.codec, self.bytes);
        todo!()
    }
}
