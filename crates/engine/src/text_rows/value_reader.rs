//! The reader of one value: a value of JSON becomes one of the column's type, or an error.

use std::fmt;

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_row::{DataType, Datum, Value};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::row_reader::RowReader;
use crate::time_text_error;

/// Reads the value of a column.
#[derive(Clone, Copy)]
pub(super) struct ValueReader<'s, 'a> {
    pub(super) row: RowReader<'s, 'a>,
    pub(super) at: usize,
}

impl ValueReader<'_, '_> {
    fn data_type(&self) -> &DataType {
        &self.row.schema.columns[self.at].1
    }

    /// Makes the error for a value of another type.
    fn mismatch<E: Error>(&self, found: &str) -> E {
        let (name, data_type) = &self.row.schema.columns[self.at];
        let message = format!("column `{name}` is of type {data_type} but the value is {found}");
        let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message);
        self.row.fail(diagnostic.with_kind(Kind::FixData))
    }

    /// Makes the error for a number that the column does not hold.
    fn out_of_range<E: Error>(&self, found: &impl fmt::Display) -> E {
        let (name, data_type) = &self.row.schema.columns[self.at];
        let problem = match data_type {
            DataType::Float | DataType::Double => "cannot be represented in",
            _ => "is out of range for",
        };
        let message = format!("column `{name}`: value {found} {problem} type {data_type}");
        self.row.fail(Diagnostic::new(code::OUT_OF_RANGE, message).with_kind(Kind::FixData))
    }

    /// Converts a whole number.
    #[expect(clippy::cast_precision_loss, reason = "a lost digit is detected")]
    #[expect(clippy::cast_possible_truncation, reason = "128 bits hold every such float")]
    fn whole<'a, E: Error>(&self, number: i128) -> Result<Datum<'a>, E> {
        let wrong = || self.out_of_range(&number);
        let big = || i64::try_from(number).map_err(|_error| wrong());
        let is_exact = |float: f64| (float as i128 == number).then_some(float);
        match self.data_type() {
            DataType::SmallInt => i16::try_from(number).ok().map(Datum::SmallInt),
            DataType::Int => i32::try_from(number).ok().map(Datum::Int),
            DataType::BigInt => return big().map(Datum::BigInt),
            DataType::Timestamp => return big().map(Datum::Timestamp),
            DataType::Double => is_exact(number as f64).map(Datum::Double),
            DataType::Float => {
                is_exact(f64::from(number as f32)).map(|_| Datum::Float(number as f32))
            }
            _ => return Err(self.mismatch(&format!("the number {number}"))),
        }
        .ok_or_else(wrong)
    }

    /// Converts a number with a point or an exponent, or with more digits than 128 bits hold.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    fn decimal<'a, E: Error>(&self, text: &str, number: f64) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::Double if number.is_infinite() => Err(self.out_of_range(&text)),
            DataType::Double => Ok(Datum::Double(number)),
            DataType::Float if (number as f32).is_infinite() => Err(self.out_of_range(&text)),
            DataType::Float => match whole_of(text) {
                JsonNumber::Whole(whole) if number.abs() < 1e18 => self.whole(whole),
                _ => Ok(Datum::Float(number as f32)),
            },
            DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp => {
                match whole_of(text) {
                    JsonNumber::Whole(whole) => self.whole(whole),
                    JsonNumber::Fraction => Err(self.mismatch(&format!("the number {text}"))),
                    JsonNumber::Large => Err(self.out_of_range(&text)),
                }
            }
            _ => Err(self.mismatch(&format!("the number {text}"))),
        }
    }

    /// Converts a text of a column that is no STRING.
    fn other_text<'a, E: Error>(&self, text: &str) -> Result<Datum<'a>, E> {
        let conversion = self.row.schema.conversion;
        let (name, data_type) = &self.row.schema.columns[self.at];
        match data_type {
            DataType::Date | DataType::Timestamp => match conversion.read_text(text, data_type) {
                Some(Value::Date(days)) => Ok(Datum::Date(days)),
                Some(Value::Timestamp(ms)) => Ok(Datum::Timestamp(ms)),
                _ => {
                    let place = format!("column `{name}`");
                    Err(self.row.fail(time_text_error(&place, text, data_type)))
                }
            },
            DataType::Float | DataType::Double => {
                let number = match text {
                    "NaN" if conversion.nan_is_null() => return Ok(Datum::Null),
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    "-Infinity" => f64::NEG_INFINITY,
                    _ => return Err(self.mismatch("a string")),
                };
                let is_double = *data_type == DataType::Double;
                #[expect(clippy::cast_possible_truncation, reason = "these have no digits")]
                let float = Datum::Float(number as f32);
                Ok(if is_double { Datum::Double(number) } else { float })
            }
            _ => Err(self.mismatch("a string")),
        }
    }
}

impl<'de: 'a, 'a> DeserializeSeed<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum<'a>, D::Error> {
        if matches!(self.data_type(), DataType::String | DataType::Bool | DataType::Date) {
            return deserializer.deserialize_any(self);
        }
        // The parser of JSON makes a DOUBLE of a number with a point, and not always the nearest one.
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match number(text) {
            Some(number) if text.contains(['.', 'e', 'E']) => self.decimal(text, number),
            Some(number) => {
                text.parse().map_or_else(|_large| self.decimal(text, number), |n| self.whole(n))
            }
            None => {
                let mut inner = serde_json::Deserializer::from_str(text);
                inner.deserialize_any(self).map_err(D::Error::custom)
            }
        }
    }
}

/// The value of a JSON number.
#[derive(Debug, PartialEq, Eq)]
enum JsonNumber {
    /// A whole number.
    Whole(i128),
    /// A number that is not whole.
    Fraction,
    /// A whole number of more than [`WHOLE_DIGITS_MAX`] digits.
    Large,
}

/// The digits of the longest whole number that is read: those of the largest BIGINT.
const WHOLE_DIGITS_MAX: i64 = 19;

/// Reads the text of a JSON number without rounding: `1.50e1` is 15.
fn whole_of(text: &str) -> JsonNumber {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{behind}");
    let significant = digits.trim_end_matches('0');
    let zeros = length(digits.len() - significant.len()) - length(behind.len());
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return JsonNumber::Whole(0);
    }
    // An exponent that is no i64 is far beyond every number of digits that a body has.
    let beyond = if exponent.starts_with('-') { i64::MIN } else { i64::MAX };
    let scale = exponent.parse().unwrap_or(beyond).saturating_add(zeros);
    if scale < 0 {
        return JsonNumber::Fraction;
    }
    if scale.saturating_add(length(significant.len())) > WHOLE_DIGITS_MAX {
        return JsonNumber::Large;
    }
    let zeros = "0".repeat(usize::try_from(scale).unwrap_or(0));
    let whole: i128 = format!("{significant}{zeros}").parse().expect("it has few digits");
    JsonNumber::Whole(if text.starts_with('-') { -whole } else { whole })
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Reads the text of a JSON number as the nearest DOUBLE, which the parser of JSON does not; `None` for
/// another value.
pub fn number(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

impl<'de: 'a, 'a> Visitor<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of type {}", self.data_type())
    }

    fn visit_unit<E: Error>(self) -> Result<Datum<'a>, E> {
        Ok(Datum::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::Bool => Ok(Datum::Bool(value)),
            _ => Err(self.mismatch(if value { "true" } else { "false" })),
        }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Datum<'a>, E> {
        self.whole(i128::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Datum<'a>, E> {
        self.whole(i128::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Datum<'a>, E> {
        Err(self.mismatch(&format!("the number {value}")))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::String => Ok(Datum::String(text)),
            _ => self.other_text(text),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::String => Ok(Datum::String(self.row.arena.alloc_str(text))),
            _ => self.other_text(text),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _items: A) -> Result<Datum<'a>, A::Error> {
        Err(self.mismatch("an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _entries: A) -> Result<Datum<'a>, A::Error> {
        Err(self.mismatch("an object"))
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonNumber, whole_of};

    #[test]
    fn whole_numbers_are_read_in_all_their_forms() {
        for (text, whole) in [
            ("7787837581354064.00", 7_787_837_581_354_064),
            ("-9007199254740991.0", -9_007_199_254_740_991),
            ("1e18", 1_000_000_000_000_000_000),
            ("1.50E+1", 15),
            ("1500e-2", 15),
            ("-0.0", 0),
            ("0e999999999999999999999", 0),
            ("9223372036854775807.000", i64::MAX.into()),
        ] {
            assert_eq!(whole_of(text), JsonNumber::Whole(whole), "{text}");
        }
        for text in ["4503599627370496.4", "1e-1", "15e-1", "1e-99999999999999999999"] {
            assert_eq!(whole_of(text), JsonNumber::Fraction, "{text}");
        }
        for text in ["1e19", "1e99999999999999999999", "12345678901234567890123.0"] {
            assert_eq!(whole_of(text), JsonNumber::Large, "{text}");
        }
    }
}
