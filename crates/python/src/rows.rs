//! Python rows and Arrow tables as batches that the engine takes.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray, RecordBatch},
    datatypes::{
        ArrowTimestampType, DataType as ArrowType, Field, Schema, SchemaRef, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    },
    error::ArrowError,
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::{
    Arena, DataType,
    arrow::{ColumnBuilder, arrow_type},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PySequence},
};

use crate::from_python::{type_of, value_of};

/// Names and types, in order.
pub(crate) type Columns = [(String, DataType)];

/// The columns that rows given as dicts have, in the order in which they appear, with the types
/// that a new table should get. A column without any value is left without a type.
pub(crate) fn columns_of(rows: &Bound<'_, PyList>) -> PyResult<Vec<(String, Option<DataType>)>> {
    let mut columns: Vec<(String, Option<DataType>)> = Vec::new();
    for row in rows.iter() {
        for (name, value) in row.cast::<PyDict>()?.iter() {
            let name: String = name.extract()?;
            let found = if value.is_none() { None } else { type_of(&value) };
            match columns.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = wider(known.take(), found),
                None => columns.push((name, found)),
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
) -> PyResult<Result<RecordBatch>> {
    let mut failed = None;
    let mut arrays = Vec::new();
    for (name, data_type) in columns {
        let mut builder = ColumnBuilder::new(data_type, rows.len());
        for (index, row) in rows.iter().enumerate() {
            match row.cast::<PyDict>()?.get_item(name)? {
                Some(value) => push(&mut builder, &value, (name, data_type), index, &mut failed),
                None => builder.push_null(),
            }
        }
        arrays.push(builder.finish());
    }
    Ok(finish(columns, arrays, failed))
}

/// Rows given as tuples or lists: every column of the table, in order.
pub(crate) fn batch_of_tuples(
    rows: &Bound<'_, PyList>,
    columns: &Columns,
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
            push(builder, &row.get_item(position)?, (name, data_type), index, &mut failed);
        }
    }
    let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
    Ok(finish(columns, arrays, failed))
}

/// Converts and appends one value; the first failure is kept, with its row.
fn push(
    builder: &mut ColumnBuilder,
    object: &Bound<'_, PyAny>,
    (name, data_type): (&str, &DataType),
    index: usize,
    failed: &mut Option<Box<Diagnostic>>,
) {
    if failed.is_some() {
        return;
    }
    match value_of(object, name, data_type) {
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
    failed: Option<Box<Diagnostic>>,
) -> Result<RecordBatch> {
    if let Some(diagnostic) = failed {
        return Err(diagnostic);
    }
    RecordBatch::try_new(schema_of(columns), arrays).map_err(internal)
}

/// The schema that a new table of these columns gets.
pub(crate) fn schema_of(columns: &Columns) -> SchemaRef {
    let field =
        |(name, data_type): &(String, DataType)| Field::new(name, arrow_type(data_type), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Cuts times that are finer than a millisecond down to it, as `datetime` values are.
pub(crate) fn in_milliseconds(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns: Vec<ArrayRef> = batch.columns().iter().map(milliseconds).collect();
    let fields =
        batch.schema_ref().fields().iter().zip(&columns).map(|(field, column)| {
            field.as_ref().clone().with_data_type(column.data_type().clone())
        });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns).map_err(internal)
}

fn milliseconds(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            divided::<TimestampMicrosecondType>(array, 1_000)
        }
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => {
            divided::<TimestampNanosecondType>(array, 1_000_000)
        }
        _ => ArrayRef::clone(array),
    }
}

fn divided<T: ArrowTimestampType>(array: &ArrayRef, divisor: i64) -> ArrayRef {
    let fine: &PrimitiveArray<T> = array.as_primitive();
    let coarse: PrimitiveArray<TimestampMillisecondType> =
        fine.unary(|value| value.div_euclid(divisor));
    Arc::new(coarse)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn internal(error: ArrowError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}
