//! Converts values to Python objects.
//!
//! TIMESTAMP becomes a naive `datetime` in UTC; a time outside the years 1 to 9999, which
//! `datetime` does not hold, becomes the `int` of its milliseconds, and a DATE outside of them the `int` of
//! its days since 1970-01-01.

use lockstep_row::{Datum, calendar::DAY_MS};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDate, PyDateTime, PyDelta, PyDict, PyList},
};

/// The days that a `timedelta` holds, with a time of day.
const DAYS: std::ops::Range<i32> = -999_999_998..999_999_999;

/// Makes the Python object of a value.
pub(crate) fn object_of<'py>(py: Python<'py>, value: &Datum<'_>) -> PyResult<Bound<'py, PyAny>> {
    match *value {
        Datum::Null => Ok(py.None().into_bound(py)),
        Datum::Bool(value) => value.into_bound_py_any(py),
        Datum::SmallInt(value) => value.into_bound_py_any(py),
        Datum::Int(value) => value.into_bound_py_any(py),
        Datum::BigInt(value) => value.into_bound_py_any(py),
        Datum::Float(value) => value.into_bound_py_any(py),
        Datum::Double(value) => value.into_bound_py_any(py),
        Datum::String(text) => text.into_bound_py_any(py),
        Datum::Timestamp(ms) => timestamp(py, ms),
        Datum::Date(days) => date(py, days),
        Datum::Array(items) => {
            let items: Vec<_> =
                items.iter().map(|item| object_of(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items).map(Bound::into_any)
        }
        Datum::Map(entries) => {
            let map = PyDict::new(py);
            for (key, value) in entries {
                map.set_item(object_of(py, key)?, object_of(py, value)?)?;
            }
            Ok(map.into_any())
        }
    }
}

fn timestamp(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, None).map(|epoch| epoch.into_any().unbind())
    })?;
    let since = offset(py, ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS))?;
    let time = since.and_then(|since| epoch.bind(py).add(since).ok());
    time.map_or_else(|| ms.into_bound_py_any(py), Ok)
}

fn date(py: Python<'_>, days: i32) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        PyDate::new(py, 1970, 1, 1).map(|epoch| epoch.into_any().unbind())
    })?;
    let since = offset(py, i64::from(days), 0)?;
    let day = since.and_then(|since| epoch.bind(py).add(since).ok());
    day.map_or_else(|| days.into_bound_py_any(py), Ok)
}

/// Makes a `timedelta`; `None` when there are more days than it holds.
fn offset(py: Python<'_>, days: i64, ms: i64) -> PyResult<Option<Bound<'_, PyDelta>>> {
    let days = i32::try_from(days).ok().filter(|days| DAYS.contains(days));
    let Some(days) = days else {
        return Ok(None);
    };
    let small = |value: i64| i32::try_from(value).expect("parts of a day fit 32 bits");
    PyDelta::new(py, days, small(ms / 1_000), small(ms % 1_000 * 1_000), false).map(Some)
}
