//! Converts constants of statements to the types of columns: INSERT, DEFAULT, DELETE and CALL.
//!
//! An integer is converted to every number type, TIMESTAMP and BOOL; a decimal to FLOAT and DOUBLE;
//! a string to STRING, DATE and TIMESTAMP; TRUE and FALSE to BOOL. An integer loses no digit, a
//! decimal is rounded to the nearest value of its type, and a value out of range is refused.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings, cast};
use lockstep_row::{Arena, DataType, Value};

/// Converts a constant to the type of a column.
pub(crate) fn coerce(
    value: &Value,
    to: &DataType,
    settings: Settings,
    position: &ConstantPosition<'_>,
) -> Result<Value> {
    let coerced = match (value, to) {
        (Value::Null, _) => Some(Value::Null),
        (Value::Bool(value), DataType::Bool) => Some(Value::Bool(*value)),
        (Value::String(text), DataType::String) => Some(Value::String(text.clone())),
        (Value::Timestamp(ms), DataType::Timestamp) => Some(Value::Timestamp(*ms)),
        (Value::Timestamp(ms), DataType::BigInt) => Some(Value::BigInt(*ms)),
        (Value::Date(days), DataType::Date) => Some(Value::Date(*days)),
        (Value::Map(entries), DataType::Map(key_type, value_type)) => {
            let entry = |(key, value): &(Value, Value)| {
                let key = coerce(key, key_type, settings, position)?;
                Ok((key, coerce(value, value_type, settings, position)?))
            };
            Some(Value::Map(entries.iter().map(entry).collect::<Result<_>>()?))
        }
        (Value::String(_), DataType::Date) => from_string(value, to, settings),
        (Value::String(_), DataType::Timestamp)
            if settings.compatibility == Compatibility::Standard =>
        {
            from_string(value, to, settings)
        }
        (Value::SmallInt(_) | Value::Int(_) | Value::BigInt(_), _) => {
            let integer = value.as_scalar().and_then(|datum| datum.as_i64());
            integer.and_then(|integer| from_integer(integer, to, settings))
        }
        (Value::Float(float), DataType::Float) => Some(Value::Float(*float)),
        (Value::Float(float), DataType::Double) => Some(Value::Double(f64::from(*float))),
        (Value::Double(double), DataType::Double) => Some(Value::Double(*double)),
        (Value::Double(double), DataType::Float) => {
            let wraps = settings.compatibility == Compatibility::OpenMldb;
            #[expect(clippy::cast_possible_truncation, reason = "a decimal rounds to FLOAT")]
            let float = *double as f32;
            let holds = wraps || float.is_infinite() == double.is_infinite();
            holds.then_some(Value::Float(float))
        }
        _ => None,
    };
    debug_assert!(
        coerced
            .iter()
            .filter_map(Value::as_scalar)
            .all(|datum| datum.is_null() || datum.is_of_type(to)),
        "a converted constant has the column's type"
    );
    coerced.map_or_else(|| position.mismatch(value, to), Ok)
}

/// The column that a constant is for, and the constant's position in the statement.
#[derive(Debug)]
pub(crate) struct ConstantPosition<'a> {
    pub(crate) column: &'a str,
    pub(crate) span: Option<Span>,
}

impl ConstantPosition<'_> {
    /// Fails because the column does not take the constant.
    fn mismatch(&self, value: &Value, to: &DataType) -> Result<Value> {
        let shown = match value {
            Value::String(text) => format!("'{text}'"),
            other => other
                .as_scalar()
                .map_or_else(String::new, |datum| cast::print_datum(datum, &Settings::default())),
        };
        let is_number = value.as_scalar().is_some_and(|datum| datum.as_f64().is_some());
        let mut error = if to.is_float() && is_number {
            let message = format!("column `{}` of type {to} cannot represent {shown}", self.column);
            Diagnostic::new(code::OUT_OF_RANGE, message).with_hint(
                "Use an integer that the type represents exactly, or a decimal in range.",
            )
        } else {
            let message =
                format!("column `{}` is of type {to} but the value is {shown}", self.column);
            Diagnostic::new(code::DATATYPE_MISMATCH, message)
        };
        error.span = self.span;
        error.err()
    }
}

/// Converts a string by CAST.
fn from_string(value: &Value, to: &DataType, settings: Settings) -> Option<Value> {
    let form = cast::cast_form(&DataType::String, to, &settings)?;
    let arena = Arena::new();
    let result = form(&[value.as_scalar()?], &arena).to_value();
    (result != Value::Null).then_some(result)
}

#[expect(clippy::cast_precision_loss, reason = "a lost digit is detected")]
fn from_integer(integer: i64, to: &DataType, settings: Settings) -> Option<Value> {
    let wraps = settings.compatibility == Compatibility::OpenMldb;
    Some(match to {
        DataType::BigInt => Value::BigInt(integer),
        DataType::Timestamp => Value::Timestamp(integer),
        DataType::Bool => Value::Bool(integer != 0),
        DataType::Float if wraps || is_whole(f64::from(integer as f32), integer) => {
            Value::Float(integer as f32)
        }
        DataType::Double if wraps || is_whole(integer as f64, integer) => {
            Value::Double(integer as f64)
        }
        #[expect(clippy::cast_possible_truncation, reason = "OpenMLDB wraps around")]
        DataType::Int if wraps => Value::Int(integer as i32),
        #[expect(clippy::cast_possible_truncation, reason = "OpenMLDB wraps around")]
        DataType::SmallInt if wraps => Value::SmallInt(integer as i16),
        DataType::Int => Value::Int(i32::try_from(integer).ok()?),
        DataType::SmallInt => Value::SmallInt(i16::try_from(integer).ok()?),
        _ => return None,
    })
}

/// Whether a float is exactly this integer.
#[expect(clippy::cast_possible_truncation, reason = "128 bits hold every float of this range")]
fn is_whole(float: f64, integer: i64) -> bool {
    float as i128 == i128::from(integer)
}
