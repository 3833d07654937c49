//! Python rows and Arrow tables as batches that the engine takes.

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

use crate::from_python::{Target, type_of, value_of};

/// Names and types, in order.
pub(crate) type Columns = [(String, DataType)];

/// The columns that rows given as dicts have, in the order in which they appear, with the types
/// that a new table should get. A column without any value is left without a type.
pub(crate) fn columns_of(rows: &Bound<'_, PyList>) -> PyResult<Vec<(String, Option<DataType>)>> {
    let mut columns: Vec<(String, Option<DataType>)> = Vec::new();
    let places = PyDict::new(rows.py());
    for row in rows.iter() {
        for (key, value) in row.cast::<PyDict>()?.iter() {
            let found = if value.is_none() { None } else { type_of(&value) };
            if let Some(place) = places.get_item(&key)? {
                let (_, known) = &mut columns[place.extract::<usize>()?];
                *known = wider(known.take(), found);
            } else {
                places.set_item(&key, columns.len())?;
                columns.push((key.extract()?, found));
            }
        }
    }
    Ok(columns)
}

/// A column that holds integers and floats is DOUBLE; any other mixture is left to fail when the
/// values are converted.
fn wider(left: Option<DataType>, right: Option<DataType>) -> Option<DataType> {
    match (left, right) {
        (Some(DataType::BigInt), Some(DataType::Double)) => Some(DataType::Double),
        (left, right) => left.or(right),
    }
}

/// Rows given as dicts: the columns that any of them names. A row that lacks one has NULL there.
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
                    let target = Target { name, data_type, conversion };
                    push(&mut builder, &value, &target, index, &mut failed);
                }
                None => builder.push_null(),
            }
        }
        arrays.push(builder.finish());
    }
    Ok(finish(columns, arrays, rows.len(), failed))
}

/// Rows given as tuples or lists: every column of the table, in order.
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
            let target = Target { name, data_type, conversion };
            push(builder, &row.get_item(position)?, &target, index, &mut failed);
        }
    }
    let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
    Ok(finish(columns, arrays, rows.len(), failed))
}

/// Converts and appends one value; the first failure is kept, with its row.
fn push(
    builder: &mut ColumnBuilder,
    object: &Bound<'_, PyAny>,
    target: &Target<'_>,
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

/// The schema that a new table of these columns gets.
pub(crate) fn schema_of(columns: &Columns) -> SchemaRef {
    let field =
        |(name, data_type): &(String, DataType)| Field::new(name, arrow_type(data_type), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn internal(error: ArrowError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
