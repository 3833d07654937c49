//! Converts rows given as Python dicts or tuples to Arrow batches.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
    error::ArrowError,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::Conversion;
use lockstep_row::{
    Arena, DataType,
    arrow::{ColumnBuilder, arrow_type},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PySequence, PyString},
};

use crate::from_python::{TargetColumn, is_missing, type_of, untyped, value_of};

/// The names and types of columns, in order.
pub(crate) type ColumnTypes = [(String, DataType)];

/// A column of rows that are given as dicts.
#[derive(Debug)]
pub(crate) struct FoundColumn {
    /// Its name.
    pub(crate) name: String,
    /// The type that a new table gets; `None` where no value has one.
    pub(crate) data_type: Option<DataType>,
    /// The first value from which no type follows, as an error.
    pub(crate) untyped: Option<Box<Diagnostic>>,
}

/// Returns the columns of rows given as dicts, in the order in which they appear.
pub(crate) fn columns_of(rows: &Bound<'_, PyList>) -> PyResult<Result<Vec<FoundColumn>>> {
    let mut columns: Vec<FoundColumn> = Vec::new();
    let positions = PyDict::new(rows.py());
    for (index, row) in rows.iter().enumerate() {
        for (key, value) in row.cast::<PyDict>()?.iter() {
            let at = match positions.get_item(&key)? {
                Some(position) => position.extract::<usize>()?,
                None => {
                    let Ok(name) = key.extract::<String>() else {
                        return Ok(no_name(&key, index));
                    };
                    positions.set_item(&key, columns.len())?;
                    columns.push(FoundColumn { name, data_type: None, untyped: None });
                    columns.len() - 1
                }
            };
            let column = &mut columns[at];
            match type_of(&value) {
                _ if value.is_none() => {}
                Some(found) => column.data_type = wider(column.data_type.take(), Some(found)),
                None if column.untyped.is_some() || is_missing(&value) => {}
                None => {
                    let place = format!("row {}: column `{}`", index + 1, column.name);
                    column.untyped = Some(untyped(&value, &place));
                }
            }
        }
    }
    Ok(Ok(columns))
}

/// Makes the error for a key that is not the name of a column.
fn no_name<T>(key: &Bound<'_, PyAny>, index: usize) -> Result<T> {
    let message = format!("row {}: key {key} is not a column name", index + 1);
    Diagnostic::new(code::DATATYPE_MISMATCH, message)
        .with_kind(Kind::FixData)
        .with_hint("Use column names, each a str, as the keys of a row.")
        .err()
}

/// Returns the type of a column with values of both types: DOUBLE for integers and floats. For
/// other mixtures it is the first type, and the conversion of the values fails.
fn wider(left: Option<DataType>, right: Option<DataType>) -> Option<DataType> {
    match (left, right) {
        (Some(DataType::BigInt), Some(DataType::Double)) => Some(DataType::Double),
        (left, right) => left.or(right),
    }
}

/// Converts rows given as dicts: the columns that any of them has. A row that lacks one has NULL.
pub(crate) fn batch_of_dicts(
    rows: &Bound<'_, PyList>,
    columns: &ColumnTypes,
    conversion: Conversion,
) -> PyResult<Result<RecordBatch>> {
    let mut failed = None;
    let mut arrays = Vec::new();
    for (name, data_type) in columns {
        let key = PyString::new(rows.py(), name);
        let mut builder = ColumnBuilder::new(data_type, rows.len());
        for (index, row) in rows.iter().enumerate() {
            match row.cast::<PyDict>()?.get_item(&key)? {
                Some(value) => {
                    let target = TargetColumn { name, data_type, conversion };
                    push(&mut builder, &value, &target, index, &mut failed);
                }
                None => builder.push_null(),
            }
        }
        arrays.push(builder.finish());
    }
    Ok(finish(columns, arrays, rows.len(), failed))
}

/// Converts rows given as tuples or lists: every column of the table, in order.
pub(crate) fn batch_of_tuples(
    rows: &Bound<'_, PyList>,
    columns: &ColumnTypes,
    conversion: Conversion,
) -> PyResult<Result<RecordBatch>> {
    let mut failed = None;
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, rows.len())).collect();
    for (index, row) in rows.iter().enumerate() {
        let row = row.cast::<PySequence>()?;
        if row.len()? != columns.len() {
            let (expected, found) = (columns.len(), row.len()?);
            let message = format!(
                "row {}: {found} values supplied, but the table has {expected} columns",
                index + 1
            );
            return Ok(Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .err());
        }
        for ((position, builder), (name, data_type)) in builders.iter_mut().enumerate().zip(columns)
        {
            let target = TargetColumn { name, data_type, conversion };
            push(builder, &row.get_item(position)?, &target, index, &mut failed);
        }
    }
    let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
    Ok(finish(columns, arrays, rows.len(), failed))
}

/// Converts and appends one value. The first failure is stored in `failed`, with its row.
fn push(
    builder: &mut ColumnBuilder,
    object: &Bound<'_, PyAny>,
    target: &TargetColumn<'_>,
    index: usize,
    failed: &mut Option<Box<Diagnostic>>,
) {
    if failed.is_some() {
        return;
    }
    match value_of(object, target) {
        Ok(value) => builder.push(value.as_datum(&Arena::new())),
        Err(mut diagnostic) => {
            diagnostic.message = format!("row {}: {}", index + 1, diagnostic.message);
            *failed = Some(diagnostic);
        }
    }
}

fn finish(
    columns: &ColumnTypes,
    arrays: Vec<ArrayRef>,
    row_count: usize,
    failed: Option<Box<Diagnostic>>,
) -> Result<RecordBatch> {
    if let Some(diagnostic) = failed {
        return Err(diagnostic);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    RecordBatch::try_new_with_options(schema_of(columns), arrays, &options).map_err(internal)
}

/// Returns the schema of a new table with these columns.
pub(crate) fn schema_of(columns: &ColumnTypes) -> SchemaRef {
    let field =
        |(name, data_type): &(String, DataType)| Field::new(name, arrow_type(data_type), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn internal(error: ArrowError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
