//! Constants of statements as values of columns: INSERT, DEFAULT and CONFIG(values=…).
//!
//! An integer goes into every number type, TIMESTAMP and BOOL; a decimal into FLOAT and DOUBLE; a
//! text into STRING, DATE and TIMESTAMP; TRUE and FALSE into BOOL. An integer loses no digit, a
//! decimal is rounded to the nearest value of its type, and what is out of range is refused.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings, cast};
use lockstep_row::{Arena, DataType, Value};

/// Gives the value of a constant in a column of this type.
pub(crate) fn coerce(
    value: &Value,
    to: &DataType,
    settings: Settings,
    place: &Place<'_>,
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
                let key = coerce(key, key_type, settings, place)?;
                Ok((key, coerce(value, value_type, settings, place)?))
            };
            Some(Value::Map(entries.iter().map(entry).collect::<Result<_>>()?))
        }
        (Value::String(_), DataType::Date) => text(value, to, settings),
        (Value::String(_), DataType::Timestamp)
            if settings.compatibility == Compatibility::Standard =>
        {
            text(value, to, settings)
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
    coerced.map_or_else(|| place.mismatch(value, to), Ok)
}

/// Where a constant stands, for the error.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) column: &'a str,
    pub(crate) span: Option<Span>,
}

impl Place<'_> {
    fn mismatch(&self, value: &Value, to: &DataType) -> Result<Value> {
        let shown = match value {
            Value::String(text) => format!("'{text}'"),
            other => other
                .as_scalar()
                .map_or_else(String::new, |datum| cast::print_datum(datum, &Settings::default())),
        };
        let is_number = value.as_scalar().is_some_and(|datum| datum.as_f64().is_some());
        let mut error = if to.is_float() && is_number {
            let message = format!("column `{}` is {to}, which does not hold {shown}", self.column);
            Diagnostic::new(code::OUT_OF_RANGE, message)
                .with_hint("An integer must be exact, and a decimal in range.")
        } else {
            let message = format!("column `{}` is {to}, {shown} is not", self.column);
            Diagnostic::new(code::DATATYPE_MISMATCH, message)
        };
        error.span = self.span;
        error.err()
    }
}

fn text(value: &Value, to: &DataType, settings: Settings) -> Option<Value> {
    let form = cast::cast_form(&DataType::String, to, &settings)?;
    let arena = Arena::new();
    let result = form(&[value.as_scalar()?], &arena).to_value();
    (result != Value::Null).then_some(result)
}

#[expect(clippy::cast_precision_loss, reason = "what is lost is looked at")]
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
        #[expect(clippy::cast_possible_truncation, reason = "what the reference does")]
        DataType::Int if wraps => Value::Int(integer as i32),
        #[expect(clippy::cast_possible_truncation, reason = "what the reference does")]
        DataType::SmallInt if wraps => Value::SmallInt(integer as i16),
        DataType::Int => Value::Int(i32::try_from(integer).ok()?),
        DataType::SmallInt => Value::SmallInt(i16::try_from(integer).ok()?),
        _ => return None,
    })
}

/// Whether a float is this integer, to the digit.
#[expect(clippy::cast_possible_truncation, reason = "128 bits hold every float of this range")]
fn is_whole(float: f64, integer: i64) -> bool {
    float as i128 == i128::from(integer)
}
