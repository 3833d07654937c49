//! Rows and schemas as bytes of Arrow's stream format, and rows as parameters.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    compute::cast,
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
    ipc::writer::{IpcWriteOptions, StreamWriter},
};
use arrow_flight::{IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{FeatureRole, Output, Parameter, Relation};
use lockstep_protocol::ColumnList;
use lockstep_row::{
    Arena, DataType,
    arrow::{ColumnReader, arrow_type, import_array, importable, in_milliseconds, read_stream},
};

use super::{prepared::ParameterRows, status::malformed};

/// Returns the schema of rows with these columns, whose names are unique there.
pub(crate) fn schema_of(columns: &[(String, DataType)]) -> SchemaRef {
    Output { columns: columns.to_vec(), ..Output::default() }.schema()
}

/// Returns columns as a message.
pub(crate) fn columns_message(columns: &[(String, DataType)]) -> Result<ColumnList> {
    let schema = write_rows(&schema_of(columns), &[])?;
    Ok(ColumnList { schema, names: names_of(columns), roles: Vec::new() })
}

/// Returns the columns of a relation as a message, with what each is to a model.
pub(crate) fn relation_message(relation: &Relation) -> Result<ColumnList> {
    let roles = relation.roles();
    let text = |role: &Option<FeatureRole>| role.map(|role| role.to_string()).unwrap_or_default();
    let roles = match roles.iter().any(Option::is_some) {
        true => roles.iter().map(text).collect(),
        false => Vec::new(),
    };
    Ok(ColumnList { roles, ..columns_message(relation.columns())? })
}

/// Returns the names of columns, which may repeat.
pub(crate) fn names_of(columns: &[(String, DataType)]) -> Vec<String> {
    columns.iter().map(|(name, _)| name.clone()).collect()
}

/// Writes rows as a stream.
pub(crate) fn write_rows(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let write = |bytes: &mut Vec<u8>| -> std::result::Result<(), ArrowError> {
        let mut writer = StreamWriter::try_new(bytes, schema)?;
        for batch in batches {
            writer.write(&with_schema(batch, schema)?)?;
        }
        writer.finish()
    };
    write(&mut bytes).map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
    Ok(bytes)
}

/// Reads the rows of a stream.
pub(crate) fn read_rows(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    read_stream(bytes).map_err(malformed)
}

/// Returns a schema as the bytes that Flight has for it.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let message: std::result::Result<IpcMessage, ArrowError> =
        SchemaAsIpc::new(schema, &options).try_into();
    let message = message.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
    Ok(message.0)
}

/// Returns a batch with a schema of the same columns, whose names and inner fields may differ.
pub(crate) fn with_schema(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> std::result::Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    debug_assert_eq!(batch.num_columns(), schema.fields().len(), "types change, columns do not");
    let convert = |(column, field): (&ArrayRef, &Arc<arrow::datatypes::Field>)| {
        if column.data_type() == field.data_type() {
            Ok(Arc::clone(column))
        } else {
            cast(column, field.data_type())
        }
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(convert);
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Reads the parameters of one run; none where there are no bytes.
pub(crate) fn parameters_in(bytes: &[u8]) -> Result<Vec<Parameter>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let (_, batches) = read_rows(bytes)?;
    let mut rows = ParameterRows::new();
    for batch in &batches {
        rows.extend(parameter_rows(batch)?);
    }
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        _ => Err(malformed("a statement requires exactly one row of parameters")),
    }
}

/// Reads the rows of a batch as parameters, each with the type of its column.
pub(crate) fn parameter_rows(batch: &RecordBatch) -> Result<ParameterRows> {
    let mut columns: Vec<(ArrayRef, DataType)> = Vec::with_capacity(batch.num_columns());
    for (number, array) in batch.columns().iter().enumerate() {
        let data_type = importable(array.data_type()).ok_or_else(|| {
            let message =
                format!("parameter {} has unsupported type {}", number + 1, array.data_type());
            Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_detail("The SQL dialect has no corresponding type.")
        })?;
        let converted = if *array.data_type() == arrow_type(&data_type) {
            Arc::clone(array)
        } else {
            import_array(&in_milliseconds(array), &data_type).map_err(|error| {
                let message =
                    format!("cannot convert parameter {} to type {data_type}: {error}", number + 1);
                Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData)
            })?
        };
        columns.push((converted, data_type));
    }
    let readers: Vec<ColumnReader<'_>> =
        columns.iter().map(|(array, _)| ColumnReader::new(array.as_ref())).collect();
    let arena = Arena::new();
    let row = |at: usize| {
        let values = readers.iter().zip(&columns);
        values.map(|(reader, (_, of))| (reader.get(at, &arena).to_value(), of.clone())).collect()
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
