//! The result of a statement, held for Python.

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use lockstep_cli::{TableText, table_text};
use lockstep_row::{
    Arena,
    arrow::{ColumnReader, arrow_type},
};
use pyo3::{
    prelude::*,
    types::{PyList, PyTuple},
};
use pyo3_arrow::PyTable;

use crate::{error::warning_text, to_python::object_of};

/// Rows, or what a statement says instead of rows.
#[pyclass(frozen, module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct Output {
    output: lockstep_engine::Output,
    warnings: Vec<String>,
}

impl Output {
    pub(crate) fn new(output: lockstep_engine::Output, text: &str) -> Self {
        let warnings = output.warnings.iter().map(|warning| warning_text(warning, text)).collect();
        Self { output, warnings }
    }

    /// The columns under names that do not repeat: a repeated one gets a number.
    fn schema(&self) -> SchemaRef {
        let names = self.output.columns.iter().map(|(name, _)| name.as_str());
        let fields: Vec<Field> = unique(names)
            .into_iter()
            .zip(&self.output.columns)
            .map(|(name, (_, data_type))| Field::new(name, arrow_type(data_type), true))
            .collect();
        Arc::new(Schema::new(fields))
    }
}

#[pymethods]
impl Output {
    /// Names and types as SQL writes them.
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let columns = self.output.columns.iter();
        columns.map(|(name, data_type)| (name.clone(), data_type.to_string())).collect()
    }

    #[getter]
    fn row_count(&self) -> usize {
        self.output.row_count()
    }

    #[getter]
    fn rows_affected(&self) -> Option<u64> {
        self.output.rows_affected
    }

    #[getter]
    fn message(&self) -> Option<&str> {
        self.output.message.as_deref()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    /// The rows `start..end` as tuples.
    fn tuples<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        end: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let mut arena = Arena::new();
        let mut before = 0;
        for batch in &self.output.batches {
            let columns: Vec<ColumnReader<'_>> =
                batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
            let length = batch.num_rows();
            for row in start.saturating_sub(before)..end.saturating_sub(before).min(length) {
                let cells = columns.iter().map(|column| object_of(py, &column.get(row, &arena)));
                let cells: Vec<_> = cells.collect::<PyResult<_>>()?;
                rows.append(PyTuple::new(py, cells)?)?;
                arena.reset();
            }
            before += length;
        }
        Ok(rows)
    }

    /// The rows as a `pyarrow.Table`.
    fn pyarrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arrow()?.into_pyarrow(py)
    }

    /// The rows as an object with the Arrow stream interface.
    fn arrow(&self) -> PyResult<PyTable> {
        let schema = self.schema();
        let batches = self
            .output
            .batches
            .iter()
            .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()));
        let batches: Vec<RecordBatch> = batches
            .collect::<Result<_, _>>()
            .map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))?;
        PyTable::try_new(batches, schema)
    }

    /// The first rows as an aligned table.
    fn draw(&self, rows_max: usize) -> String {
        table_text(&self.output, rows_max).draw()
    }

    /// The first rows as texts: names, which columns hold numbers, rows with None for NULL.
    #[expect(clippy::type_complexity, reason = "a tuple of lists is what Python takes")]
    fn texts(&self, rows_max: usize) -> (Vec<String>, Vec<bool>, Vec<Vec<Option<String>>>) {
        let TableText { names, is_number, rows, .. } = table_text(&self.output, rows_max);
        (names, is_number, rows)
    }
}

/// The names with a number behind each that was there before.
pub(crate) fn unique<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let written: HashSet<&str> = names.clone().collect();
    let mut found = Vec::new();
    for name in names {
        let mut candidate = name.to_owned();
        let mut number = 1;
        while taken.contains(&candidate) || (number > 1 && written.contains(candidate.as_str())) {
            candidate = format!("{name}_{number}");
            number += 1;
        }
        taken.insert(candidate.clone());
        found.push(candidate);
    }
    found
}
