//! A compiled request as a Python callable: the hot path of the Python package.

use std::sync::{Arc, Weak};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{Conversion, Output, PreparedRequest};
use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, DataType, Value};
use pyo3::{
    prelude::*,
    types::{PyDict, PyMapping, PyString, PyTuple},
};

use crate::{
    backend::BackendRequest,
    call::{attached, briefly_detached, detached},
    error::raise,
    from_python::{TargetColumn, value_of},
    latency::RecentLatency,
    to_python::object_of,
};

/// Answers one request row after another. May be shared between threads.
#[pyclass(frozen, name = "Prepared", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PyPrepared {
    request: BackendRequest,
    columns: Arc<RequestColumns>,
    conversion: Conversion,
}

/// The columns of a request and of its answer, with their names as Python strings, which take
/// longer to make than an answer; and the latency of its answers.
#[derive(Debug)]
struct RequestColumns {
    latency: RecentLatency,
    input: Vec<InputColumn>,
    output: Vec<Py<PyString>>,
}

/// A column of the request row.
#[derive(Debug)]
struct InputColumn {
    /// The name as a key of a dict.
    key: Py<PyString>,
    name: String,
    data_type: DataType,
}

/// The columns of the most recently prepared requests, the most recent one first. Keeps no request
/// alive.
#[derive(Debug, Default)]
pub(crate) struct RequestColumnsCache {
    entries: Mutex<Vec<CachedColumns>>,
}

#[derive(Debug)]
struct CachedColumns {
    request: Weak<PreparedRequest>,
    columns: Arc<RequestColumns>,
}

/// The most requests whose columns are cached.
const CACHED_REQUESTS_MAX: usize = 64;

impl RequestColumnsCache {
    /// Returns the columns of a request.
    fn columns_of(&self, py: Python<'_>, request: &Arc<PreparedRequest>) -> Arc<RequestColumns> {
        let is_same = |entry: &CachedColumns| Weak::as_ptr(&entry.request) == Arc::as_ptr(request);
        let mut entries = self.entries.lock();
        if let Some(at) = entries.iter().position(is_same) {
            entries[..=at].rotate_right(1);
            return Arc::clone(&entries[0].columns);
        }
        let columns = Arc::new(RequestColumns::new(py, request.input(), request.output()));
        entries.retain(|entry| entry.request.strong_count() > 0);
        entries.truncate(CACHED_REQUESTS_MAX - 1);
        let entry =
            CachedColumns { request: Arc::downgrade(request), columns: Arc::clone(&columns) };
        entries.insert(0, entry);
        columns
    }
}

impl RequestColumns {
    fn new(py: Python<'_>, input: &[(String, DataType)], output: &[(String, DataType)]) -> Self {
        let input = input
            .iter()
            .map(|(name, data_type)| InputColumn {
                key: PyString::intern(py, name).unbind(),
                name: name.clone(),
                data_type: data_type.clone(),
            })
            .collect();
        // A dict has a key once: repeated names get a number, as in a data frame.
        let answer = Output { columns: output.to_vec(), ..Output::default() };
        let schema = answer.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let output = names.map(|name| PyString::intern(py, name).unbind()).collect();
        Self { latency: RecentLatency::new(), input, output }
    }
}

impl PyPrepared {
    /// Makes the callable of a request of a session.
    pub(crate) fn new(
        py: Python<'_>,
        request: BackendRequest,
        conversion: Conversion,
        cache: &RequestColumnsCache,
    ) -> Self {
        let columns = match &request {
            BackendRequest::Engine { request, .. } => cache.columns_of(py, request),
            BackendRequest::Server { input, output, .. } => {
                Arc::new(RequestColumns::new(py, input, output))
            }
        };
        Self { request, columns, conversion }
    }

    /// Converts a request row, given as a dict or another mapping, or as a tuple.
    fn row<'py>(&self, row: &Bound<'py, PyAny>) -> PyResult<Vec<Value>> {
        if let Ok(dict) = row.cast::<PyDict>() {
            return self.by_name(row.py(), |key| dict.get_item(key));
        }
        if let Ok(values) = row.cast::<PyTuple>() {
            return self.by_position(values);
        }
        if let Ok(mapping) = row.cast::<PyMapping>() {
            let get = |key: &Bound<'py, PyString>| {
                Ok(if mapping.contains(key)? { Some(mapping.get_item(key)?) } else { None })
            };
            return self.by_name(row.py(), get);
        }
        let found = row.get_type().name()?.to_string();
        let message = format!("a request row is a dict or a tuple, found a Python `{found}`");
        Err(raise(row.py(), &Diagnostic::new(code::DATATYPE_MISMATCH, message), None))
    }

    fn by_name<'py>(
        &self,
        py: Python<'py>,
        get: impl Fn(&Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Vec<Value>> {
        let mut values = Vec::with_capacity(self.columns.input.len());
        for column in &self.columns.input {
            let object =
                get(column.key.bind(py))?.ok_or_else(|| raise(py, &missing(column), None))?;
            values.push(self.value(&object, column)?);
        }
        Ok(values)
    }

    fn by_position(&self, row: &Bound<'_, PyTuple>) -> PyResult<Vec<Value>> {
        let py = row.py();
        let columns = &self.columns.input;
        if row.len() != columns.len() {
            let (expected, found) = (columns.len(), row.len());
            let message = format!("the request row has {expected} columns, found {found} values");
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_detail(format!("The columns are {}.", names.join(", ")));
            return Err(raise(py, &diagnostic, None));
        }
        row.iter().zip(columns).map(|(object, column)| self.value(&object, column)).collect()
    }

    fn value(&self, object: &Bound<'_, PyAny>, column: &InputColumn) -> PyResult<Value> {
        let InputColumn { name, data_type, .. } = column;
        let target = TargetColumn { name, data_type, conversion: self.conversion };
        value_of(object, &target).map_err(|error| raise(object.py(), &error, None))
    }

    /// Computes the answer with the interpreter released, unless releasing it takes longer than the
    /// answer. The values are owned, since other threads may run Python code meanwhile.
    fn compute(&self, py: Python<'_>, row: &[Value]) -> PyResult<Option<Vec<Value>>> {
        let latency = &self.columns.latency;
        let answer = || latency.measure(|| self.request.answer(row));
        let BackendRequest::Engine { request, limits, .. } = &self.request else {
            return detached(py, None, answer);
        };
        let limited = || limits.run(answer);
        // A request that is not compiled reads all rows, and takes as long as a query.
        if !request.is_compiled() {
            detached(py, None, limited)
        } else if latency.is_short() {
            attached(py, limited)
        } else {
            briefly_detached(py, limited)
        }
    }
}

#[pymethods]
impl PyPrepared {
    /// Returns the names and types of the request row's columns.
    #[getter]
    fn input(&self) -> Vec<(String, String)> {
        names_and_types(self.request.input())
    }

    /// Returns the names and types of the answer's columns.
    #[getter]
    fn output(&self) -> Vec<(String, String)> {
        names_and_types(self.request.output())
    }

    /// Answers one request row; None when a WHERE drops it.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        row: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let row = self.row(row)?;
        let Some(answer) = self.compute(py, &row)? else { return Ok(None) };
        let arena = Arena::new();
        let dict = PyDict::new(py);
        for (name, value) in self.columns.output.iter().zip(&answer) {
            dict.set_item(name, object_of(py, &value.as_datum(&arena))?)?;
        }
        Ok(Some(dict))
    }
}

fn names_and_types(columns: &[(String, DataType)]) -> Vec<(String, String)> {
    columns.iter().map(|(name, data_type)| (name.clone(), data_type.to_string())).collect()
}

/// Makes the error for a column that a request row lacks.
fn missing(column: &InputColumn) -> Diagnostic {
    let InputColumn { name, data_type, .. } = column;
    let message = format!("column `{name}` is missing; it is {data_type}");
    Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_hint("Give None for NULL.")
}
