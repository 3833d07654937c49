//! Parsing of constant texts that are compared with another type: `ts > '2024-01-01'`.
//!
//! The binder of comparisons uses it. In contrast to CAST, a text that is not a value of the type
//! is an error and not NULL, since the user can correct the constant.

use lockstep_row::{DataType, Value, calendar::DAY_MS};

use super::text;
use crate::{Settings, TimeZone};

/// Why a text is not a value of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextError {
    /// It does not have the format of the type.
    Form,
    /// It is a number that 64 bits do not hold.
    Range,
    /// It has a time of day, and the type is DATE.
    TimeOfDay,
}

/// Parses a text as a constant to compare with values of a type: a number, BOOL, TIMESTAMP or DATE.
/// A number that the type cannot hold has a wider type in the result, so that the comparison is
/// exact.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
pub fn read_constant(
    written: &str,
    to: &DataType,
    settings: &Settings,
) -> Result<(Value, DataType), TextError> {
    let value = match to {
        DataType::Bool => text::parse_bool(written).map(Value::Bool),
        DataType::SmallInt | DataType::Int | DataType::BigInt => {
            return integer(written, to);
        }
        DataType::Float => match text::parse_float(written) {
            Some(value) => Some(Value::Float(value)),
            None => return double(written),
        },
        DataType::Double => return double(written),
        DataType::Timestamp => text::parse_timestamp(written, settings).map(Value::Timestamp),
        DataType::Date => return day(written, settings),
        _ => None,
    };
    value.map(|value| (value, to.clone())).ok_or(TextError::Form)
}

fn integer(written: &str, to: &DataType) -> Result<(Value, DataType), TextError> {
    let Some(value) = text::parse_integer(written) else {
        let digits = written.trim_ascii();
        let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if is_number { TextError::Range } else { TextError::Form });
    };
    let narrow = match to {
        DataType::SmallInt => i16::try_from(value).ok().map(Value::SmallInt),
        DataType::Int => i32::try_from(value).ok().map(Value::Int),
        _ => None,
    };
    Ok(match narrow {
        Some(narrow) => (narrow, to.clone()),
        None => (Value::BigInt(value), DataType::BigInt),
    })
}

fn double(written: &str) -> Result<(Value, DataType), TextError> {
    match text::parse_double(written) {
        Some(value) => Ok((Value::Double(value), DataType::Double)),
        None if written.trim_ascii().parse::<f64>().is_ok() => Err(TextError::Range),
        None => Err(TextError::Form),
    }
}

/// Parses a day, or a midnight.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
fn day(written: &str, settings: &Settings) -> Result<(Value, DataType), TextError> {
    let days = text::parse_date(written, settings).ok_or(TextError::Form)?;
    // In UTC, so that midnight is the beginning of a day whatever the session's time zone.
    let in_utc = Settings { time_zone: TimeZone::Named(chrono_tz::Tz::UTC), ..*settings };
    let is_midnight = text::parse_timestamp(written, &in_utc)
        .is_some_and(|time| time == i64::from(days) * DAY_MS);
    if is_midnight { Ok((Value::Date(days), DataType::Date)) } else { Err(TextError::TimeOfDay) }
}

#[cfg(test)]
mod tests {
    use lockstep_row::{DataType, Value};

    use super::{TextError, read_constant};
    use crate::Settings;

    fn check(written: &str, to: &DataType, expected: &Result<(Value, DataType), TextError>) {
        assert_eq!(read_constant(written, to, &Settings::default()), *expected, "'{written}' {to}");
    }

    #[test]
    fn a_text_is_read_in_the_type_that_it_is_compared_with() {
        check("40", &DataType::Int, &Ok((Value::Int(40), DataType::Int)));
        check(" -4 ", &DataType::SmallInt, &Ok((Value::SmallInt(-4), DataType::SmallInt)));
        check("0.1", &DataType::Float, &Ok((Value::Float(0.1), DataType::Float)));
        check("1e3", &DataType::Double, &Ok((Value::Double(1000.0), DataType::Double)));
        check("yes", &DataType::Bool, &Ok((Value::Bool(true), DataType::Bool)));
        let day = Value::Timestamp(1_704_067_200_000);
        check("2024-01-01", &DataType::Timestamp, &Ok((day, DataType::Timestamp)));
        check("2024-01-01", &DataType::Date, &Ok((Value::Date(19_723), DataType::Date)));
        check("2024-01-01 00:00:00", &DataType::Date, &Ok((Value::Date(19_723), DataType::Date)));
    }

    #[test]
    fn a_number_that_the_type_is_too_narrow_for_stays_what_it_is() {
        check("70000", &DataType::SmallInt, &Ok((Value::BigInt(70_000), DataType::BigInt)));
        check("1e39", &DataType::Float, &Ok((Value::Double(1e39), DataType::Double)));
        check("99999999999999999999", &DataType::Int, &Err(TextError::Range));
        check("1e999", &DataType::Double, &Err(TextError::Range));
    }

    #[test]
    fn what_is_no_value_of_the_type_is_told_apart() {
        check("", &DataType::Int, &Err(TextError::Form));
        check("40.5", &DataType::Int, &Err(TextError::Form));
        check("yesterday", &DataType::Timestamp, &Err(TextError::Form));
        check("2024-02-30", &DataType::Date, &Err(TextError::Form));
        check("2024-01-01 12:00:00", &DataType::Date, &Err(TextError::TimeOfDay));
    }
}
