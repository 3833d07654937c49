//! A compiled request as a Python callable: the hot path of the Python package.

use std::{
    collections::HashSet,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{Conversion, Output, PreparedRequest, missing_columns};
use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, DataType, Value};
use pyo3::{
    prelude::*,
    types::{PyDict, PyMapping, PyString, PyTuple},
};

use crate::{
    backend::BackendRequest,
    call::{attached, briefly_detached, detached},
    error::{raise, warn, warning_text},
    from_python::{TargetColumn, value_of},
    latency::RecentLatency,
    to_python::object_of,
};

/// Compiled request, called with one request row at a time. Threads can share it.
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
    /// Whether a request row was warned of.
    has_warned: AtomicBool,
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
    /// Whether an answer depends on it; otherwise it may be left out.
    is_read: bool,
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
        let (input, reads) = (request.input(), request.reads());
        let columns = Arc::new(RequestColumns::new(py, input, reads, request.output()));
        entries.retain(|entry| entry.request.strong_count() > 0);
        entries.truncate(CACHED_REQUESTS_MAX - 1);
        let entry =
            CachedColumns { request: Arc::downgrade(request), columns: Arc::clone(&columns) };
        entries.insert(0, entry);
        columns
    }
}

impl RequestColumns {
    fn new(
        py: Python<'_>,
        input: &[(String, DataType)],
        reads: &[bool],
        output: &[(String, DataType)],
    ) -> Self {
        debug_assert_eq!(input.len(), reads.len(), "a mark for each column");
        let input = input
            .iter()
            .zip(reads)
            .map(|((name, data_type), is_read)| InputColumn {
                key: PyString::intern(py, name).unbind(),
                name: name.clone(),
                data_type: data_type.clone(),
                is_read: *is_read,
            })
            .collect();
        // A dict has a key once: repeated names get a number, as in a data frame.
        let answer = Output { columns: output.to_vec(), ..Output::default() };
        let schema = answer.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let output = names.map(|name| PyString::intern(py, name).unbind()).collect();
        let (latency, has_warned) = (RecentLatency::new(), AtomicBool::new(false));
        Self { latency, has_warned, input, output }
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
            BackendRequest::Server { input, reads, output, .. } => {
                Arc::new(RequestColumns::new(py, input, reads, output))
            }
        };
        Self { request, columns, conversion }
    }

    /// Converts a request row: a dict, another mapping or a named tuple by the names of columns, a
    /// tuple by their order, a Series by its index.
    fn row<'py>(&self, row: &Bound<'py, PyAny>) -> PyResult<Vec<Value>> {
        if let Ok(dict) = row.cast::<PyDict>() {
            return self.by_name(dict, |key| dict.get_item(key));
        }
        if let Ok(values) = row.cast_exact::<PyTuple>() {
            return self.by_position(values);
        }
        if let Ok(mapping) = row.cast::<PyMapping>() {
            let get = |key: &Bound<'py, PyString>| {
                Ok(if mapping.contains(key)? { Some(mapping.get_item(key)?) } else { None })
            };
            return self.by_name(mapping, get);
        }
        if let Some(dict) = as_dict(row)? {
            return self.by_name(&dict, |key| dict.get_item(key));
        }
        if let Ok(values) = row.cast::<PyTuple>() {
            return self.by_position(values);
        }
        let found = row.get_type().name()?.to_string();
        let message = format!("a request row must be a dict or a tuple, not a Python `{found}`");
        let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_hint("Pass a dict, a tuple, a Series, a list of these, or a data frame.");
        Err(raise(row.py(), &diagnostic, None))
    }

    /// Converts a row whose values have names. `keys` gives the names, for the error of a missing one.
    fn by_name<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        get: impl Fn(&Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>>,
    ) -> PyResult<Vec<Value>> {
        let py = keys.py();
        let mut values = Vec::with_capacity(self.columns.input.len());
        for column in &self.columns.input {
            values.push(match get(column.key.bind(py))? {
                Some(object) => self.value(&object, column)?,
                None if !column.is_read => Value::Null,
                None => return Err(raise(py, &self.missing(keys)?, None)),
            });
        }
        Ok(values)
    }

    /// Makes the error for a row that lacks columns.
    fn missing(&self, row: &Bound<'_, PyAny>) -> PyResult<Diagnostic> {
        let mut others = Vec::new();
        let mut present = HashSet::new();
        for key in row.try_iter()? {
            let key = key?.to_string();
            if self.columns.input.iter().any(|column| column.name == key) {
                present.insert(key);
            } else if others.len() < OTHER_KEYS_MAX {
                others.push(key);
            }
        }
        let lacks = |column: &&InputColumn| column.is_read && !present.contains(&column.name);
        let lacking = self.columns.input.iter().filter(lacks);
        let lacking: Vec<_> = lacking.map(|c| (c.name.as_str(), &c.data_type)).collect();
        Ok(missing_columns(&lacking, others.iter().map(String::as_str)))
    }

    fn by_position(&self, row: &Bound<'_, PyTuple>) -> PyResult<Vec<Value>> {
        let py = row.py();
        let columns = &self.columns.input;
        if row.len() != columns.len() {
            let (expected, found) = (columns.len(), row.len());
            let message =
                format!("{found} values supplied, but the request row has {expected} columns");
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

    /// Warns of a request row whose event time looks like seconds: once for the columns of a request.
    fn warn_of(&self, py: Python<'_>, row: &[Value]) -> PyResult<()> {
        let BackendRequest::Engine { request, .. } = &self.request else { return Ok(()) };
        let Some(warning) = request.warning_of(row) else { return Ok(()) };
        // Relaxed: it guards no data.
        if self.columns.has_warned.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        warn(py, &warning_text(&warning, ""))
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
    /// Returns the names and types of the columns of a request row.
    #[getter]
    fn input(&self) -> Vec<(String, String)> {
        names_and_types(self.request.input())
    }

    /// Returns the names of the request row's columns on which the result depends; the others may be
    /// omitted.
    #[getter]
    fn required(&self) -> Vec<String> {
        let columns = self.columns.input.iter().filter(|column| column.is_read);
        columns.map(|column| column.name.clone()).collect()
    }

    /// Returns the names and types of the columns of the result.
    #[getter]
    fn output(&self) -> Vec<(String, String)> {
        names_and_types(self.request.output())
    }

    /// Returns the result for one request row; None if WHERE rejects the row.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        row: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let row = self.row(row)?;
        self.warn_of(py, &row)?;
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

/// Returns a named tuple or a Series as a dict; `None` for another value.
fn as_dict<'py>(row: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let is_named_tuple = row.is_instance_of::<PyTuple>() && row.hasattr("_asdict")?;
    let is_series = row.hasattr("to_dict")? && row.hasattr("index")?;
    let method = match (is_named_tuple, is_series) {
        (true, _) => "_asdict",
        (_, true) => "to_dict",
        _ => return Ok(None),
    };
    Ok(row.call_method0(method)?.cast_into::<PyDict>().ok())
}

/// The most keys of a row that are no columns and are compared with missing ones.
const OTHER_KEYS_MAX: usize = 8;
