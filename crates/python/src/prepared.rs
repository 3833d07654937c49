//! A compiled request as a Python callable: the hot path of this door.

use std::sync::{Arc, Weak};

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{Conversion, Limits, Output, PreparedRequest};
use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, DataType, Datum, Value};
use pyo3::{
    prelude::*,
    types::{PyDict, PyMapping, PyString, PyTuple},
};

use crate::{
    call::{attached, briefly_detached, detached},
    error::raise,
    from_python::{Target, value_of},
    pace::Pace,
    to_python::object_of,
};

/// Answers one request row after another. May be shared by threads.
#[pyclass(frozen, module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct Prepared {
    request: Arc<PreparedRequest>,
    names: Arc<Names>,
    conversion: Conversion,
    /// Those of the session when it was prepared.
    limits: Limits,
}

/// The names of a request's columns as Python texts, which take longer to make than an answer, and
/// how long its answers take.
#[derive(Debug)]
struct Names {
    pace: Pace,
    input: Vec<(Py<PyString>, String, DataType)>,
    output: Vec<Py<PyString>>,
}

/// The names of the requests that were asked for last, the last one first. Keeps no request alive.
#[derive(Debug, Default)]
pub(crate) struct KnownNames {
    entries: Mutex<Vec<(Weak<PreparedRequest>, Arc<Names>)>>,
}

/// Requests whose names are kept.
const KNOWN_NAMES_MAX: usize = 64;

impl KnownNames {
    /// The request as a callable.
    pub(crate) fn prepared(
        &self,
        py: Python<'_>,
        request: Arc<PreparedRequest>,
        (conversion, limits): (Conversion, Limits),
    ) -> Prepared {
        let is_same =
            |(known, _): &(Weak<PreparedRequest>, _)| Weak::as_ptr(known) == Arc::as_ptr(&request);
        let mut entries = self.entries.lock();
        let names = match entries.iter().position(is_same) {
            Some(at) => {
                entries[..=at].rotate_right(1);
                Arc::clone(&entries[0].1)
            }
            None => {
                let names = Arc::new(Names::new(py, &request));
                entries.retain(|(known, _)| known.strong_count() > 0);
                entries.truncate(KNOWN_NAMES_MAX - 1);
                entries.insert(0, (Arc::downgrade(&request), Arc::clone(&names)));
                names
            }
        };
        drop(entries);
        Prepared { request, names, conversion, limits }
    }
}

impl Names {
    fn new(py: Python<'_>, request: &PreparedRequest) -> Self {
        let input = request
            .input()
            .iter()
            .map(|(name, data_type)| {
                (PyString::intern(py, name).unbind(), name.clone(), data_type.clone())
            })
            .collect();
        // A dict takes a name once: repeated ones are told apart as in a data frame.
        let columns = Output { columns: request.output().to_vec(), ..Output::default() };
        let schema = columns.schema();
        let names = schema.fields().iter().map(|field| field.name());
        let output = names.map(|name| PyString::intern(py, name).unbind()).collect();
        Self { pace: Pace::new(), input, output }
    }
}

impl Prepared {
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
        let mut values = Vec::with_capacity(self.names.input.len());
        for (key, name, data_type) in &self.names.input {
            let object =
                get(key.bind(py))?.ok_or_else(|| raise(py, &missing(name, data_type), None))?;
            values.push(self.value(&object, name, data_type)?);
        }
        Ok(values)
    }

    fn by_position(&self, row: &Bound<'_, PyTuple>) -> PyResult<Vec<Value>> {
        let py = row.py();
        if row.len() != self.names.input.len() {
            let (expected, found) = (self.names.input.len(), row.len());
            let message = format!("the request row has {expected} columns, found {found} values");
            let names: Vec<&str> =
                self.names.input.iter().map(|(_, name, _)| name.as_str()).collect();
            let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_detail(format!("The columns are {}.", names.join(", ")));
            return Err(raise(py, &diagnostic, None));
        }
        let value = |(object, (_, name, data_type)): (Bound<'_, PyAny>, &(_, String, DataType))| {
            self.value(&object, name, data_type)
        };
        row.iter().zip(&self.names.input).map(value).collect()
    }

    fn value(
        &self,
        object: &Bound<'_, PyAny>,
        name: &str,
        data_type: &DataType,
    ) -> PyResult<Value> {
        let target = Target { name, data_type, conversion: self.conversion };
        value_of(object, &target).map_err(|error| raise(object.py(), &error, None))
    }

    /// Computes with the interpreter released, unless releasing it takes longer than the answer;
    /// what comes out is owned, since the interpreter may run other threads meanwhile.
    fn compute(&self, py: Python<'_>, row: &[Value]) -> PyResult<Option<Vec<Value>>> {
        let pace = &self.names.pace;
        let answer = || {
            pace.note(|| {
                let arena = Arena::new();
                let row: Vec<Datum<'_>> = row.iter().map(|value| value.as_datum(&arena)).collect();
                let answer = self.request.answer(&row, &arena)?;
                Ok(answer.map(|answer| answer.iter().map(Datum::to_value).collect()))
            })
        };
        let limited = || self.limits.run(answer);
        // One that reads all rows lasts as long as a query.
        if !self.request.is_compiled() {
            detached(py, None, limited)
        } else if pace.is_short() {
            attached(py, limited)
        } else {
            briefly_detached(py, limited)
        }
    }
}

#[pymethods]
impl Prepared {
    /// Names and types of the request row's columns.
    #[getter]
    fn input(&self) -> Vec<(String, String)> {
        named(self.request.input())
    }

    /// Names and types of the answer's columns.
    #[getter]
    fn output(&self) -> Vec<(String, String)> {
        named(self.request.output())
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
        for (name, value) in self.names.output.iter().zip(&answer) {
            dict.set_item(name, object_of(py, &value.as_datum(&arena))?)?;
        }
        Ok(Some(dict))
    }
}

fn named(columns: &[(String, DataType)]) -> Vec<(String, String)> {
    columns.iter().map(|(name, data_type)| (name.clone(), data_type.to_string())).collect()
}

fn missing(name: &str, data_type: &DataType) -> Diagnostic {
    let message = format!("column `{name}` is missing; it is {data_type}");
    Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_kind(Kind::FixData)
        .with_hint("Give None for NULL.")
}
