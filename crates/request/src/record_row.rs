//! Rows as the records of an index have them: for calls that are updated row by row, whose arguments
//! are any expressions over the columns that the index includes.
//!
//! [`crate::lane`] gathers one value of many records at once; here a record is read like a row. What
//! is the same for all records of a run is determined once.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_row::{
    Arena, DataType, Datum, FixedColumn, Projection, RowCodec, TableSchema, TextCell, TextColumn,
};
use lockstep_table::{KeyRun, RecordField};

use crate::{
    inputs::RecordRun,
    lane::NullBits,
    row_context::{ColumnLookup, ValueLocation},
};

/// The columns that are read of records.
#[derive(Debug)]
pub(crate) struct RecordColumns {
    columns: Vec<RecordColumn>,
    /// For each column of the table, its position among `columns`.
    positions: Vec<Option<usize>>,
}

/// Where the values of a column are.
#[derive(Debug)]
enum RecordColumn {
    Fixed {
        location: FixedColumn,
        data_type: DataType,
    },
    /// A text, which is in the record when it is short, and otherwise in the row.
    Text {
        cell: TextCell,
        in_row: TextColumn,
    },
}

impl RecordColumns {
    /// Finds columns of a table in the records. Returns `None` when these do not have the values of one.
    pub(crate) fn find(
        columns: impl IntoIterator<Item = usize>,
        schema: &TableSchema,
        projection: &Projection,
        codec: &RowCodec,
    ) -> Option<Self> {
        let mut found = Self { columns: Vec::new(), positions: vec![None; schema.columns.len()] };
        for column in columns {
            if found.positions[column].is_none() {
                found.positions[column] = Some(found.columns.len());
                let data_type = &schema.columns[column].data_type;
                found.columns.push(RecordColumn::find(column, data_type, projection, codec)?);
            }
        }
        Some(found)
    }

    /// Returns the fields of the records that are read.
    pub(crate) fn fields(&self) -> impl Iterator<Item = RecordField> {
        self.columns.iter().flat_map(|column| {
            let (null_byte, _) = column.null_bit();
            [RecordField { offset: null_byte, width: 1 }, column.field()]
        })
    }

    /// Opens the records of some rows.
    pub(crate) fn open<'r, 's>(
        &'s self,
        rows: RecordRun<'r, 's>,
        arena: &'s Arena,
    ) -> RecordRows<'r, 's> {
        let RecordRun { run, records } = rows;
        debug_assert_eq!(records.len(), run.len(), "each row has a record");
        let values = self.columns.iter().map(|column| {
            let RecordField { offset, width } = column.field();
            let nulls = NullBits::of(records, column.null_bit());
            RecordValues { column, nulls, values: records.field(offset, width) }
        });
        let columns = ArenaVec::from_iter_in(values, arena).into_bump_slice();
        RecordRows { columns, positions: &self.positions, run }
    }
}

impl RecordColumn {
    fn find(
        column: usize,
        data_type: &DataType,
        projection: &Projection,
        codec: &RowCodec,
    ) -> Option<Self> {
        if let Some(location) = projection.fixed_column(column) {
            return Some(Self::Fixed { location, data_type: data_type.clone() });
        }
        let (cell, in_row) = (projection.text_cell(column)?, codec.text_column(column)?);
        Some(Self::Text { cell, in_row })
    }

    /// Returns the field of its values.
    fn field(&self) -> RecordField {
        match self {
            Self::Fixed { location, .. } => {
                RecordField { offset: location.at(), width: location.kind().size() }
            }
            Self::Text { cell, .. } => RecordField { offset: cell.at(), width: TextCell::WIDTH },
        }
    }

    fn null_bit(&self) -> (usize, u8) {
        match self {
            Self::Fixed { location, .. } => location.null_bit(),
            Self::Text { cell, .. } => cell.null_bit(),
        }
    }
}

/// The records of the rows of a run, column by column.
pub(crate) struct RecordRows<'r, 's> {
    columns: &'s [RecordValues<'s>],
    positions: &'s [Option<usize>],
    run: &'r KeyRun<'s>,
}

/// The values of a column in some records, oldest first.
struct RecordValues<'s> {
    column: &'s RecordColumn,
    nulls: NullBits<'s>,
    values: &'s [u8],
}

impl<'r, 's> RecordRows<'r, 's> {
    /// Returns the rows, newest first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = RecordRow<'_, 'r, 's>> {
        (0..self.run.len()).map(|at| RecordRow { rows: self, at })
    }
}

/// A row whose columns are read from its record.
pub(crate) struct RecordRow<'p, 'r, 's> {
    rows: &'p RecordRows<'r, 's>,
    /// Its position in the run; 0 is the newest.
    at: usize,
}

impl<'s> ColumnLookup<'s> for RecordRow<'_, '_, 's> {
    #[inline]
    fn get(&self, location: ValueLocation, _arena: &'s Arena) -> Datum<'s> {
        let RecordRows { columns, positions, run } = self.rows;
        let position = match location {
            ValueLocation::Leaf(column) => positions[column],
            _ => None,
        };
        let column = &columns[position.expect("the records have all columns that are read")];
        let record = run.len() - 1 - self.at;
        if column.nulls.is_null(record) {
            return Datum::Null;
        }
        match column.column {
            RecordColumn::Fixed { data_type, .. } => number(data_type, column.values, record),
            RecordColumn::Text { in_row, .. } => {
                let cell = cell::<{ TextCell::WIDTH }>(column.values, record);
                match TextCell::texts(cell) {
                    Some(texts) => Datum::String(texts[0].as_str()),
                    None => run.row(self.at).text(*in_row).map_or(Datum::Null, Datum::String),
                }
            }
        }
    }
}

/// Returns the value of a record among values of fixed width.
#[inline]
fn number<'s>(data_type: &DataType, values: &[u8], record: usize) -> Datum<'s> {
    match data_type {
        DataType::Bool => Datum::Bool(*cell::<1>(values, record) != [0]),
        DataType::SmallInt => Datum::SmallInt(i16::from_le_bytes(*cell(values, record))),
        DataType::Int => Datum::Int(i32::from_le_bytes(*cell(values, record))),
        DataType::BigInt => Datum::BigInt(i64::from_le_bytes(*cell(values, record))),
        DataType::Float => Datum::Float(f32::from_le_bytes(*cell(values, record))),
        DataType::Double => Datum::Double(f64::from_le_bytes(*cell(values, record))),
        DataType::Timestamp => Datum::Timestamp(i64::from_le_bytes(*cell(values, record))),
        DataType::Date => Datum::Date(i32::from_le_bytes(*cell(values, record))),
        DataType::Null | DataType::String | DataType::Array(_) | DataType::Map(..) => {
            debug_assert!(false, "the values of the column are of fixed width");
            Datum::Null
        }
    }
}

/// Returns the bytes of the value of a record.
#[inline]
fn cell<const SIZE: usize>(values: &[u8], record: usize) -> &[u8; SIZE] {
    values[record * SIZE..].first_chunk().expect("each record has a value")
}
