//! Estimates of the memory that a table will take, before there are rows.
//!
//! `engine` answers ESTIMATE with it. Rows are assumed to arrive in order of event time, many in an
//! append, evenly spread over the keys of each index.

use lockstep_row::{DataType, TableSchema};
use lockstep_series::estimate::{IndexShape, log_bytes, series_bytes};

use crate::TableMemory;

/// The sizes by which a table's memory is estimated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableShape {
    /// The number of rows.
    pub rows: u64,
    /// The number of entity keys of each index; the last one also applies to the indexes that follow,
    /// and without a number there are as many keys as rows.
    pub keys: Vec<u64>,
    /// Bytes of a STRING, ARRAY or MAP.
    pub text_bytes: u64,
    /// Bytes of a record of each index, see `Projection::size`; no number for an index that
    /// includes no columns.
    pub record_sizes: Vec<usize>,
}

/// Estimates the memory of a table of this schema and these sizes.
pub fn estimate(schema: &TableSchema, shape: &TableShape) -> TableMemory {
    let index = |(at, spec): (usize, &lockstep_row::IndexSpec)| {
        if spec.is_removed() {
            return 0;
        }
        let keys = shape.keys.get(at).or(shape.keys.last()).copied().unwrap_or(shape.rows);
        let keys = if spec.keys.is_empty() { 1 } else { keys.max(1) };
        let of_key = |column: &usize| key_size(&schema.columns[*column].data_type, shape);
        let record_size = shape.record_sizes.get(at).copied().unwrap_or(0);
        let key_size = spec.keys.iter().map(of_key).sum();
        series_bytes(shape.rows, keys, IndexShape { key_size, record_size, is_wide: false })
    };
    TableMemory {
        rows: log_bytes(shape.rows, row_size(schema, shape)),
        indexes: schema.indexes.iter().enumerate().map(index).collect(),
    }
}

/// Returns the bytes of an encoded row: see the layout in `row`.
fn row_size(schema: &TableSchema, shape: &TableShape) -> usize {
    let text = usize::try_from(shape.text_bytes).unwrap_or(usize::MAX / 2);
    let is_variable = |data_type: &DataType| fixed_size(data_type).is_none();
    let types = || schema.columns.iter().map(|column| &column.data_type);
    let variable = types().filter(|data_type| is_variable(data_type)).count();
    let fixed: usize = types().filter_map(fixed_size).sum();
    let texts = variable.saturating_mul(text);
    let end = match texts {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    1 + schema.columns.len().div_ceil(8) + fixed + variable * end + texts
}

/// Returns the bytes of a value of fixed width.
fn fixed_size(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Bool => Some(1),
        DataType::SmallInt => Some(2),
        DataType::Int | DataType::Float | DataType::Date => Some(4),
        DataType::BigInt | DataType::Double | DataType::Timestamp => Some(8),
        DataType::String | DataType::Array(_) | DataType::Map(_, _) => None,
    }
}

/// Returns the bytes of a column's value within an entity key: see `row::key`.
fn key_size(data_type: &DataType, shape: &TableShape) -> usize {
    match data_type {
        DataType::Null => 1,
        DataType::Bool => 2,
        DataType::String | DataType::Array(_) | DataType::Map(_, _) => {
            5 + usize::try_from(shape.text_bytes).unwrap_or(usize::MAX / 2)
        }
        _ => 9,
    }
}
