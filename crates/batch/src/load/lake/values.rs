//! Values in a lake table's metadata: those of partition columns, and defaults of added columns.
//!
//! Each becomes what the reader of Parquet would make of it in a file of rows. Neither the session's
//! zone nor the range of texts in CSV matters.

use std::sync::Arc;

use ::arrow::{
    array::{
        Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array,
        StringArray,
    },
    compute::{cast, kernels::cast_utils::string_to_datetime},
    datatypes::DataType as ArrowType,
};
use lockstep_row::{
    Arena, Value,
    arrow::{ColumnReader, import_array, importable, in_milliseconds},
};
use serde_json::Value as Json;

use super::avro::AvroValue;

/// Returns the value that a text is; `None` where it is none of the type, or the type has none in the
/// dialect.
pub(super) fn of_text(text: &str, arrow_type: &ArrowType) -> Option<Value> {
    match arrow_type {
        ArrowType::Timestamp(..) => milliseconds(text).map(Value::Timestamp),
        _ => of_array(&(Arc::new(StringArray::from(vec![text])) as ArrayRef), arrow_type),
    }
}

/// Returns the value that a JSON value is, as [`of_text`] does.
pub(super) fn of_json(json: &Json, arrow_type: &ArrowType) -> Option<Value> {
    match json {
        Json::Null => Some(Value::Null),
        Json::String(text) => of_text(text, arrow_type),
        Json::Bool(_) | Json::Number(_) => of_text(&json.to_string(), arrow_type),
        Json::Array(_) | Json::Object(_) => None,
    }
}

/// Returns the value that one of Avro is, as [`of_text`] does.
pub(super) fn of_avro(value: &AvroValue, arrow_type: &ArrowType) -> Option<Value> {
    let array: ArrayRef = match (value, arrow_type) {
        (AvroValue::Null, _) => return Some(Value::Null),
        (AvroValue::Bool(value), ArrowType::Boolean) => Arc::new(BooleanArray::from(vec![*value])),
        (AvroValue::Int(days), ArrowType::Date32) => {
            Arc::new(Int32Array::from(vec![i32::try_from(*days).ok()?]))
        }
        (AvroValue::Int(value), ArrowType::Int32 | ArrowType::Int64 | ArrowType::Timestamp(..)) => {
            Arc::new(Int64Array::from(vec![*value]))
        }
        (AvroValue::Float(value), ArrowType::Float32 | ArrowType::Float64) => {
            Arc::new(Float64Array::from(vec![*value]))
        }
        (AvroValue::Bytes(bytes), ArrowType::Decimal128(digits, scale)) => {
            let number = Decimal128Array::from(vec![decimal(bytes)?]);
            Arc::new(number.with_precision_and_scale(*digits, *scale).ok()?)
        }
        (AvroValue::Text(text), ArrowType::Utf8) => {
            Arc::new(StringArray::from(vec![text.as_str()]))
        }
        _ => return None,
    };
    of_array(&array, arrow_type)
}

/// Returns the milliseconds of a time that is written as a text, in UTC where it has no zone.
pub(super) fn milliseconds(text: &str) -> Option<i64> {
    Some(string_to_datetime(&chrono_tz::UTC, text).ok()?.timestamp_millis())
}

/// Returns the only value of a column that is converted to a type.
fn of_array(array: &ArrayRef, arrow_type: &ArrowType) -> Option<Value> {
    debug_assert_eq!(array.len(), 1, "one value");
    let data_type = importable(arrow_type)?;
    let typed = cast(array, arrow_type).ok().filter(|typed| typed.is_valid(0))?;
    let imported = import_array(&in_milliseconds(&typed), &data_type).ok()?;
    let arena = Arena::new();
    Some(ColumnReader::new(imported.as_ref()).get(0, &arena).to_value())
}

/// Reads a number of two's complement, the most significant byte first.
fn decimal(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let mut number = [if first < 0x80 { 0 } else { 0xff }; size_of::<i128>()];
    let start = number.len().checked_sub(bytes.len())?;
    number[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(number))
}

#[cfg(test)]
mod tests {
    use ::arrow::datatypes::TimeUnit;

    use super::{ArrowType, AvroValue, Value, of_avro, of_text};

    const TIME: ArrowType = ArrowType::Timestamp(TimeUnit::Microsecond, None);

    #[test]
    fn texts_are_values_of_their_type() {
        for (text, arrow_type, expected) in [
            ("1850-06-01", ArrowType::Date32, Some(Value::Date(-43_678))),
            ("2400-07-01 00:00:00", TIME, Some(Value::Timestamp(13_585_190_400_000))),
            ("1969-12-31T23:59:59.999999Z", TIME, Some(Value::Timestamp(-1))),
            ("1970-01-01T01:00:00.5+01:00", TIME, Some(Value::Timestamp(500))),
            ("-7", ArrowType::Int8, Some(Value::SmallInt(-7))),
            ("true", ArrowType::Boolean, Some(Value::Bool(true))),
            ("2.25", ArrowType::Float64, Some(Value::Double(2.25))),
            ("1.10", ArrowType::Decimal128(9, 2), Some(Value::Double(1.1))),
            ("", ArrowType::Utf8, Some(Value::String("".into()))),
            ("x", ArrowType::Int32, None),
            ("3000000000", ArrowType::Int32, None),
            ("2024-13-01", ArrowType::Date32, None),
            ("soon", TIME, None),
            ("x", ArrowType::Binary, None),
        ] {
            assert_eq!(of_text(text, &arrow_type), expected, "`{text}` as {arrow_type}");
        }
    }

    #[test]
    fn values_of_avro_are_those_of_the_column() {
        for (value, arrow_type, expected) in [
            (AvroValue::Null, ArrowType::Int64, Some(Value::Null)),
            (AvroValue::Int(-1_500), TIME, Some(Value::Timestamp(-2))),
            (AvroValue::Int(-1), ArrowType::Date32, Some(Value::Date(-1))),
            (AvroValue::Int(7), ArrowType::Int64, Some(Value::BigInt(7))),
            (AvroValue::Int(1 << 40), ArrowType::Int32, None),
            (AvroValue::Float(0.5), ArrowType::Float32, Some(Value::Float(0.5))),
            (
                AvroValue::Bytes(vec![0xff, 0x38]),
                ArrowType::Decimal128(9, 2),
                Some(Value::Double(-2.0)),
            ),
            (AvroValue::Bytes(vec![1; 17]), ArrowType::Decimal128(9, 2), None),
            (AvroValue::Text("a".into()), ArrowType::Utf8, Some(Value::String("a".into()))),
            (AvroValue::Text("a".into()), ArrowType::Int32, None),
        ] {
            assert_eq!(of_avro(&value, &arrow_type), expected, "{value:?} as {arrow_type}");
        }
    }
}
