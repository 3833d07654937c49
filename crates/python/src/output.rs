//! The result of a statement as a Python object.

use lockstep_cli::{TableText, table_text};
use lockstep_row::{Arena, arrow::ColumnReader};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};
use pyo3_arrow::PyTable;

use crate::{call::detached, error::warning_text, session::file_options, to_python::object_of};

/// The rows of a query, or the outcome of a statement without rows.
#[pyclass(frozen, name = "Output", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PyOutput {
    output: lockstep_engine::Output,
    warnings: Vec<String>,
}

impl PyOutput {
    pub(crate) fn new(output: lockstep_engine::Output, text: &str) -> Self {
        let warnings = output.warnings.iter().map(|warning| warning_text(warning, text)).collect();
        Self { output, warnings }
    }
}

#[pymethods]
impl PyOutput {
    /// Returns the names of the columns and their SQL types.
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

    /// Returns the rows `start..end` as tuples.
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

    /// Returns the rows as a `pyarrow.Table`.
    fn pyarrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.arrow()?.into_pyarrow(py)
    }

    /// Returns the rows as an object with the Arrow stream interface.
    fn arrow(&self) -> PyResult<PyTable> {
        PyTable::try_new(self.output.batches.clone(), self.output.schema())
    }

    /// Writes the rows to a file or a directory.
    fn write(&self, py: Python<'_>, path: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = file_options(options)?;
        let output = detached(py, None, || self.output.write(path, &options))?;
        Ok(Self::new(output, ""))
    }

    /// Formats the first rows as an aligned table; `width` is the maximum width of a cell.
    #[pyo3(signature = (rows_max, width=None))]
    fn draw(&self, rows_max: usize, width: Option<usize>) -> String {
        table_text(&self.output, rows_max).draw(width)
    }

    /// Returns the first rows as strings: the column names, whether each column is numeric, and the
    /// rows with None for NULL.
    fn texts(&self, rows_max: usize) -> (Vec<String>, Vec<bool>, Vec<Vec<Option<String>>>) {
        let TableText { names, is_number, rows, .. } = table_text(&self.output, rows_max);
        (names, is_number, rows)
    }
}
