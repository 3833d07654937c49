//! Converts Python values to the types of columns, strictly: no digit is lost and no text is read
//! as a number.
//!
//! | column | takes |
//! |---|---|
//! | BOOL | `bool` |
//! | SMALLINT, INT, BIGINT | `int`; a `float` or a `Decimal` without a fraction |
//! | FLOAT | an `int` or a `float` without a fraction that it holds exactly; another `float` or a `Decimal`, which is rounded to the nearest; never out of range |
//! | DOUBLE | `float`; an `int` that it holds exactly; a `Decimal`, which is rounded to the nearest |
//! | STRING | `str` |
//! | TIMESTAMP | `datetime` (naive is UTC; truncated to the millisecond), `date` (its begin in UTC), ISO 8601 text in the session's time zone, `int` milliseconds |
//! | DATE | `date`, ISO 8601 text |
//! | MAP | `dict`, whose keys and values are converted for the types of the MAP |
//!
//! Scalars of `numpy` are converted like Python's. `None`, `NaT` and `NA` are NULL everywhere. NaN
//! is NaN in FLOAT and DOUBLE unless the session reads it as NULL, and NULL in every other column,
//! where pandas writes it for a missing value.

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{Conversion, time_text_error};
use lockstep_row::{DataType, Value};
use pyo3::{
    exceptions::PyOverflowError,
    prelude::*,
    sync::PyOnceLock,
    types::{
        PyBool, PyDate, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyString, PyType, PyTzInfo,
    },
};

/// The ordinal of 1970-01-01 in Python, where that of 0001-01-01 is 1.
const EPOCH_ORDINAL: i32 = 719_163;

const MS_A_DAY: i64 = 86_400_000;

/// The column that a value is converted for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetColumn<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: &'a DataType,
    pub(crate) conversion: Conversion,
}

/// Converts a value for a column; the error names the column, its type and what was found.
pub(crate) fn value_of(
    object: &Bound<'_, PyAny>,
    target: &TargetColumn<'_>,
) -> Result<Value, Box<Diagnostic>> {
    if object.is_none() {
        return Ok(Value::Null);
    }
    let TargetColumn { name, data_type, .. } = *target;
    match convert(object, target) {
        Ok(Some(value)) => Ok(value),
        Ok(None) if is_missing(object) => Ok(Value::Null),
        Ok(None) => Err(mismatch(object, name, data_type)),
        Err(error) => Err(failed(&error, object, name, data_type)),
    }
}

/// Converts a value; `None` when the type does not take it.
fn convert(object: &Bound<'_, PyAny>, target: &TargetColumn<'_>) -> PyResult<Option<Value>> {
    let float = |value: f64, of: fn(f64) -> PyResult<Value>| match value.is_nan() {
        true if target.conversion.nan_is_null() => Ok(Value::Null),
        _ => of(value),
    };
    Ok(match target.data_type {
        DataType::Bool => boolean(object).map(Value::Bool),
        DataType::SmallInt => integer(object)?.map(i16::try_from).transpose()?.map(Value::SmallInt),
        DataType::Int => integer(object)?.map(i32::try_from).transpose()?.map(Value::Int),
        DataType::BigInt => integer(object)?.map(Value::BigInt),
        DataType::Float => double(object)?.map(|value| float(value, narrow)).transpose()?,
        DataType::Double => double(object)?
            .map(|value| float(value, |value| Ok(Value::Double(value))))
            .transpose()?,
        DataType::String => match object.cast::<PyString>() {
            Ok(text) => Some(Value::String(text.to_cow()?.into())),
            Err(_) => None,
        },
        DataType::Timestamp | DataType::Date if object.is_instance_of::<PyString>() => {
            let text = object.cast::<PyString>()?.to_cow()?;
            target.conversion.read_text(&text, target.data_type)
        }
        DataType::Timestamp => timestamp_ms(object)?.map(Value::Timestamp),
        DataType::Date => date_days(object)?.map(Value::Date),
        DataType::Map(key, value) => match object.cast::<PyDict>() {
            Ok(entries) => map(entries, key, value, target)?.map(Value::Map),
            Err(_) => None,
        },
        DataType::Null | DataType::Array(_) => None,
    })
}

/// Converts the entries of a MAP; `None` where the type does not take one of them. A key is never
/// NULL.
fn map(
    entries: &Bound<'_, PyDict>,
    key_type: &DataType,
    value_type: &DataType,
    target: &TargetColumn<'_>,
) -> PyResult<Option<Vec<(Value, Value)>>> {
    let mut converted = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let key = convert(&key, &TargetColumn { data_type: key_type, ..*target })?;
        let Some(key) = key.filter(|key| *key != Value::Null) else { return Ok(None) };
        let of_value = &TargetColumn { data_type: value_type, ..*target };
        let value = match convert(&value, of_value)? {
            None if value.is_none() || is_missing(&value) => Value::Null,
            None => return Ok(None),
            Some(value) => value,
        };
        converted.push((key, value));
    }
    Ok(Some(converted))
}

/// Converts a number to FLOAT: a whole number exactly, another to the nearest value.
#[expect(clippy::cast_possible_truncation, reason = "a lost digit is detected")]
#[expect(clippy::float_cmp, reason = "no digit of a whole number may be lost")]
fn narrow(value: f64) -> PyResult<Value> {
    let single = value as f32;
    if value.is_finite() && single.is_infinite() {
        return Err(PyOverflowError::new_err("The value exceeds the range of FLOAT."));
    }
    if value.fract() == 0.0 && f64::from(single) != value {
        return Err(PyOverflowError::new_err("FLOAT cannot represent the integer exactly."));
    }
    Ok(Value::Float(single))
}

/// Reads a boolean; `None` for a value of another kind.
fn boolean(object: &Bound<'_, PyAny>) -> Option<bool> {
    match object.cast::<PyBool>() {
        Ok(value) => Some(value.is_true()),
        Err(_) if is_numpy(object) => object.extract().ok(),
        Err(_) => None,
    }
}

/// Reads an integer; `None` for a value of another kind.
fn integer(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if object.is_instance_of::<PyInt>() {
        if object.is_instance_of::<PyBool>() {
            return Ok(None);
        }
        return object.extract().map(Some);
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(whole(value.value()));
    }
    if is_numpy(object) && object.hasattr("__index__")? {
        return Ok(object.extract().ok());
    }
    if is_decimal(object) && object.call_method0("is_finite")?.is_truthy()? {
        let whole = object.call_method0("to_integral_value")?;
        if whole.eq(object)? {
            return whole.call_method0("__int__")?.extract().map(Some);
        }
    }
    Ok(None)
}

/// Converts a float without a fraction to the integer.
#[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
fn whole(value: f64) -> Option<i64> {
    let is_whole = value.fract() == 0.0 && value.abs() < 9.0e18;
    is_whole.then_some(value as i64)
}

/// Reads a number as a double; `None` for a value of another kind.
fn double(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(Some(value.value()));
    }
    if let Some(value) = if object.is_instance_of::<PyInt>() { integer(object)? } else { None } {
        return exactly(value).map(Some);
    }
    if is_numpy(object) && boolean(object).is_none() && object.hasattr("__float__")? {
        if object.hasattr("__index__")? {
            return exactly(object.extract()?).map(Some);
        }
        return Ok(object.extract().ok());
    }
    if is_decimal(object) {
        let double: f64 = object.call_method0("__float__")?.extract()?;
        let is_finite = object.call_method0("is_finite")?.is_truthy()?;
        if double.is_infinite() && is_finite {
            return Err(PyOverflowError::new_err("The value exceeds the range of DOUBLE."));
        }
        return Ok(Some(double));
    }
    Ok(None)
}

/// Converts an integer to the double that equals it; an error where there is none.
#[expect(clippy::cast_possible_truncation, reason = "128 bits hold every double of this range")]
#[expect(clippy::cast_precision_loss, reason = "a lost digit is detected")]
fn exactly(value: i64) -> PyResult<f64> {
    let double = value as f64;
    if double as i128 == i128::from(value) {
        return Ok(double);
    }
    Err(PyOverflowError::new_err("DOUBLE cannot represent the integer exactly."))
}

/// Reads a time as milliseconds since the epoch; `None` for a value of another kind.
fn timestamp_ms(object: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    static EPOCHS: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();
    let py = object.py();
    if object.is_instance_of::<PyInt>() {
        return integer(object);
    }
    if !object.is_instance_of::<PyDateTime>() {
        if is_numpy(object) && type_name(object) == "datetime64" {
            let ms = object.call_method1("astype", ("datetime64[ms]",))?;
            return Ok(ms
                .call_method1("astype", ("int64",))?
                .extract()
                .ok()
                .filter(|ms| *ms != i64::MIN));
        }
        let day = date_days(object)?;
        return Ok(day.map(|days| i64::from(days) * MS_A_DAY));
    }
    // Subtraction is in the public interface of datetime, which pandas' Timestamp shares.
    let [naive, aware, millisecond] = EPOCHS.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        let naive = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, None)?;
        let aware = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&*utc))?;
        let millisecond = PyDelta::new(py, 0, 0, 1_000, false)?;
        PyResult::Ok([naive.into(), aware.into(), millisecond.into()])
    })?;
    let is_naive = object.getattr("tzinfo")?.is_none();
    let since = object.sub(if is_naive { naive } else { aware })?;
    Ok(since.floor_div(millisecond)?.extract().ok())
}

/// Reads a date as days since the epoch; `None` for a value of another kind.
fn date_days(object: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    if !object.is_instance_of::<PyDate>() || object.is_instance_of::<PyDateTime>() {
        return Ok(None);
    }
    let ordinal: i32 = object.call_method0("toordinal")?.extract()?;
    Ok(Some(ordinal - EPOCH_ORDINAL))
}

/// Whether a value is `NaN`, `NaT` or `NA`.
pub(crate) fn is_missing(object: &Bound<'_, PyAny>) -> bool {
    match object.ne(object) {
        Ok(differs) => differs,
        // The comparison of NA raises an exception.
        Err(_) => type_name(object) == "NAType",
    }
}

fn is_numpy(object: &Bound<'_, PyAny>) -> bool {
    object.get_type().module().is_ok_and(|module| module == "numpy")
}

fn is_decimal(object: &Bound<'_, PyAny>) -> bool {
    type_name(object) == "Decimal"
        && object.get_type().module().is_ok_and(|module| module == "decimal")
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

fn mismatch(object: &Bound<'_, PyAny>, column: &str, data_type: &DataType) -> Box<Diagnostic> {
    if let (Ok(text), DataType::Timestamp | DataType::Date) =
        (object.extract::<String>(), data_type)
    {
        return time_text_error(&format!("column `{column}`"), &text, data_type);
    }
    let found = type_name(object);
    let message =
        format!("column `{column}` is of type {data_type} but the value is a Python `{found}`");
    let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_hint(format!("Pass {}.", accepted_values(data_type))))
}

fn failed(
    error: &PyErr,
    object: &Bound<'_, PyAny>,
    column: &str,
    data_type: &DataType,
) -> Box<Diagnostic> {
    let value = object.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
    let value: String = value.chars().take(60).collect();
    let message = format!("column `{column}` of type {data_type} cannot represent {value}");
    let detail = error.value(object.py()).to_string();
    let diagnostic = Diagnostic::new(code::OUT_OF_RANGE, message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_detail(detail))
}

/// Describes the Python values that a column of the type takes.
fn accepted_values(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Bool => "a bool or None",
        DataType::SmallInt | DataType::Int | DataType::BigInt => "an int or None",
        DataType::Float | DataType::Double => "a float, an int, a Decimal or None",
        DataType::String => "a str or None",
        DataType::Timestamp => {
            "a datetime (UTC if naive), a date, an ISO 8601 string, an int of milliseconds or None"
        }
        DataType::Date => "a date, an ISO 8601 string or None",
        DataType::Map(..) => "a dict of keys and values, or None",
        DataType::Null | DataType::Array(_) => "None",
    }
}

/// Returns the type that the column of a new table gets from a Python value; `None` for a value
/// that no column takes.
pub(crate) fn type_of(object: &Bound<'_, PyAny>) -> Option<DataType> {
    let is = |class: &Bound<'_, PyType>| object.is_instance(class).unwrap_or(false);
    let py = object.py();
    if boolean(object).is_some() {
        Some(DataType::Bool)
    } else if is(&py.get_type::<PyFloat>()) || is_decimal(object) {
        Some(DataType::Double)
    } else if integer(object).is_ok_and(|value| value.is_some()) {
        Some(DataType::BigInt)
    } else if double(object).is_ok_and(|value| value.is_some()) {
        Some(DataType::Double)
    } else if is(&py.get_type::<PyString>()) {
        Some(DataType::String)
    } else if is(&py.get_type::<PyDateTime>()) || type_name(object) == "datetime64" {
        Some(DataType::Timestamp)
    } else if is(&py.get_type::<PyDate>()) {
        Some(DataType::Date)
    } else {
        None
    }
}

/// Makes the error for a value from which no type follows; `place` says what it is a value of.
pub(crate) fn untyped(object: &Bound<'_, PyAny>, place: &str) -> Box<Diagnostic> {
    if object.is_instance_of::<PyInt>() {
        let value: String = object.to_string().chars().take(60).collect();
        let message = format!("{place}: value {value} is out of range for type BIGINT");
        let diagnostic = Diagnostic::new(code::OUT_OF_RANGE, message).with_kind(Kind::FixData);
        return Box::new(diagnostic.with_hint("Pass a float or a str."));
    }
    let found = type_name(object);
    let hint = match found.as_str() {
        "bytes" | "bytearray" | "memoryview" => "Decode the bytes to a str.",
        "list" | "tuple" | "set" | "dict" | "ndarray" => {
            "Pass one row per value, or a data frame of the columns."
        }
        "timedelta" | "timedelta64" => "Pass the milliseconds as an int.",
        _ => "Pass a bool, int, float, Decimal, str, datetime, date or None.",
    };
    let message = format!("{place}: cannot convert a Python `{found}`");
    let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_hint(hint))
}
