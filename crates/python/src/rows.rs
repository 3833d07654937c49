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

use crate::from_python::{TargetColumn, type_of, value_of};

/// The names and types of columns, in order.
pub(crate) type Columns = [(String, DataType)];

/// Returns the columns of rows given as dicts, in the order in which they appear, with the types
/// that a new table gets. A column without any value has no type.
pub(crate) fn columns_of(rows: &Bound<'_, PyList>) -> PyResult<Vec<(String, Option<DataType>)>> {
    let mut columns: Vec<(String, Option<DataType>)> = Vec::new();
    let positions = PyDict::new(rows.py());
    for row in rows.iter() {
        for (key, value) in row.cast::<PyDict>()?.iter() {
            let found = if value.is_none() { None } else { type_of(&value) };
            if let Some(position) = positions.get_item(&key)? {
                let (_, known) = &mut columns[position.extract::<usize>()?];
                *known = wider(known.take(), found);
            } else {
                positions.set_item(&key, columns.len())?;
                columns.push((key.extract()?, found));
            }
        }
    }
    Ok(columns)
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
    columns: &Columns,
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
    columns: &Columns,
    conversion: Conversion,
) -> PyResult<Result<RecordBatch>> {
    let mut failed = None;
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, rows.len())).collect();
    for (index, row) in rows.iter().enumerate() {
        let row = row.cast::<PySequence>()?;
        if row.len()? != columns.len() {
            let (expected, found) = (columns.len(), row.len()?);
            let message =
                format!("row {index}: the table has {expected} columns, found {found} values");
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
            diagnostic.message = format!("row {index}: {}", diagnostic.message);
            *failed = Some(diagnostic);
        }
    }
}

fn finish(
    columns: &Columns,
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
pub(crate) fn schema_of(columns: &Columns) -> SchemaRef {
    let field =
        |(name, data_type): &(String, DataType)| Field::new(name, arrow_type(data_type), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn internal(error: ArrowError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
