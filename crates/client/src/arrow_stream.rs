//! Rows and schemas as bytes of Arrow's stream format.

use arrow::{
    array::RecordBatch,
    datatypes::SchemaRef,
    error::ArrowError,
    ipc::{reader::StreamReader, writer::StreamWriter},
};
use lockstep_diagnostic::{Diagnostic, Result, code};

use crate::failure::malformed;

/// Writes rows as a stream.
pub(crate) fn write_rows(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let write = |bytes: &mut Vec<u8>| -> Result<(), ArrowError> {
        let mut writer = StreamWriter::try_new(bytes, schema)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()
    };
    write(&mut bytes).map_err(|error| {
        let message = format!("cannot send the rows: {error}");
        Box::new(Diagnostic::new(code::DATATYPE_MISMATCH, message))
    })?;
    Ok(bytes)
}

/// Reads the rows of a stream.
pub(crate) fn read_rows(bytes: &[u8]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let reader = StreamReader::try_new(bytes, None).map_err(malformed)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
    Ok((schema, batches))
}
