//! The reader of one value: a value of JSON becomes one of the column's type, or an error.

use std::fmt;

use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::time_text_error;
use lockstep_row::{DataType, Datum, Value};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::row_reader::RowReader;

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
        let message = format!("column `{name}` is {data_type}, {found} is not");
        let diagnostic = Diagnostic::new(code::DATATYPE_MISMATCH, message);
        self.row.fail(diagnostic.with_kind(Kind::FixData))
    }

    /// Makes the error for a number that the column does not hold.
    fn out_of_range<E: Error>(&self, found: &impl fmt::Display) -> E {
        let (name, data_type) = &self.row.schema.columns[self.at];
        let message = format!("column `{name}` is {data_type}, which does not hold {found}");
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

    /// Converts a number with a point or an exponent.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    fn decimal<'a, E: Error>(&self, number: f64) -> Result<Datum<'a>, E> {
        match self.data_type() {
            DataType::Double => Ok(Datum::Double(number)),
            DataType::Float if (number as f32).is_infinite() => Err(self.out_of_range(&number)),
            _ if number.fract() == 0.0 && number.abs() < 1e18 => self.whole(number as i128),
            DataType::Float => Ok(Datum::Float(number as f32)),
            _ => Err(self.mismatch(&format!("the number {number}"))),
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
                    _ => return Err(self.mismatch("a text")),
                };
                let is_double = *data_type == DataType::Double;
                #[expect(clippy::cast_possible_truncation, reason = "these have no digits")]
                let float = Datum::Float(number as f32);
                Ok(if is_double { Datum::Double(number) } else { float })
            }
            _ => Err(self.mismatch("a text")),
        }
    }
}

impl<'de: 'a, 'a> DeserializeSeed<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Datum<'a>, D::Error> {
        if !self.data_type().is_float() {
            return deserializer.deserialize_any(self);
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match number(text) {
            Some(number) if text.contains(['.', 'e', 'E']) => self.decimal(number),
            Some(number) => {
                text.parse().map_or_else(|_large| self.decimal(number), |n| self.whole(n))
            }
            None => {
                let mut inner = serde_json::Deserializer::from_str(text);
                inner.deserialize_any(self).map_err(D::Error::custom)
            }
        }
    }
}

/// Reads the text of a JSON number as the nearest DOUBLE, which the parser of JSON does not; `None` for
/// another value.
pub(crate) fn number(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

impl<'de: 'a, 'a> Visitor<'de> for ValueReader<'_, 'a> {
    type Value = Datum<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.data_type())
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
        self.decimal(value)
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
