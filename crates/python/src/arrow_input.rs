//! Arrow tables of the program, through the C data interface.
//!
//! Whatever the program gives as columns comes in here, and is checked before anything reads it
//! ([`check_batch`]): another library has made it, and a text that is not UTF-8 would be stored as it is.

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_row::arrow::{InvalidColumn, check_batch};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
};
use pyo3_arrow::PyTable;

use crate::{
    call::{attached, briefly_detached},
    error::raise,
};

/// Takes the batches of an object with the Arrow stream interface, and their schema. Fails where it is no
/// table, where Arrow does not have the type of a column, and where the values of a column are not valid.
pub(crate) fn arrow_rows(object: &Bound<'_, PyAny>) -> PyResult<(Vec<RecordBatch>, SchemaRef)> {
    let py = object.py();
    let taken = attached(py, || Ok(object.extract::<PyTable>()))?;
    let (batches, schema) = taken.map_err(|error| not_taken(py, error))?.into_inner();
    briefly_detached(py, || check(&batches))?;
    Ok((batches, schema))
}

fn check(batches: &[RecordBatch]) -> Result<()> {
    let mut row_count = 0;
    for batch in batches {
        debug_assert_eq!(batch.schema_ref(), batches[0].schema_ref(), "a table has one schema");
        check_batch(batch).map_err(|invalid| diagnostic_of(invalid, row_count))?;
        row_count += batch.num_rows();
    }
    Ok(())
}

/// Makes the error of a column in a batch that begins at a row.
fn diagnostic_of(mut invalid: InvalidColumn, first_row: usize) -> Box<Diagnostic> {
    invalid.row = invalid.row.map(|row| first_row + row);
    let message = invalid.to_string();
    let diagnostic = match invalid.is_text {
        true => Diagnostic::new(code::INVALID_ENCODING, message)
            .with_hint("Decode the bytes with their encoding, such as 'latin-1'."),
        false => Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_detail(format!("Arrow reports: {}.", invalid.detail)),
    };
    Box::new(diagnostic.with_kind(Kind::FixData))
}

/// Returns the error for an object that Arrow does not take; an exception of the program stays itself.
fn not_taken(py: Python<'_>, error: PyErr) -> PyErr {
    let value = error.value(py);
    let is_of_arrow = value.get_type().is(py.get_type::<PyValueError>())
        || value.get_type().is(py.get_type::<PyTypeError>());
    if !is_of_arrow {
        return error;
    }
    let message = "could not read the data as an Arrow table";
    let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
        .with_kind(Kind::FixData)
        .with_detail(format!("Arrow reports: {value}."))
        .with_hint("Use named columns whose types Arrow supports.");
    raise(py, &diagnostic, None)
}
