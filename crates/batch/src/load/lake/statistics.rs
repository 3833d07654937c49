//! What a lake table's metadata says of the values of a file: their bounds and how many are NULL.
//!
//! Bounds are at or beyond the values as a reader returns them, so that a file can be left out by
//! them and never wrongly. What is not read exactly, as floats, long texts and nested columns, has
//! no bounds.

use std::collections::BTreeMap;

use ::arrow::{
    compute::kernels::cast_utils::Parser,
    datatypes::{DataType as ArrowType, Date32Type, TimeUnit},
};
use lockstep_row::Value;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{LakeColumn, avro::AvroValue, values::milliseconds};
use crate::load::location::{ColumnBounds, FileStatistics};

/// Delta cuts longer texts; not every writer makes a greatest one greater then.
const DELTA_TEXT_CHARS_MAX: usize = 31;

/// Which bound a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Least,
    Greatest,
}

/// The statistics of a file in a Delta log.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeltaStatistics {
    num_records: Option<u64>,
    min_values: BTreeMap<String, Json>,
    max_values: BTreeMap<String, Json>,
    null_count: BTreeMap<String, Json>,
}

/// Reads the statistics of a file of a Delta table; none where they are damaged.
pub(super) fn of_delta(written: &str, columns: &[LakeColumn]) -> Option<FileStatistics> {
    let written: DeltaStatistics = serde_json::from_str(written).ok()?;
    let bound = |values: &BTreeMap<String, Json>, column: &LakeColumn, bound| {
        json_bound(values.get(&column.name)?, column.arrow_type.as_ref()?, bound)
    };
    let columns = columns.iter().map(|column| ColumnBounds {
        name: column.name.clone(),
        least: bound(&written.min_values, column, Bound::Least),
        greatest: bound(&written.max_values, column, Bound::Greatest),
        null_count: written.null_count.get(&column.name).and_then(Json::as_u64),
    });
    Some(FileStatistics { row_count: written.num_records, columns: columns.collect() })
}

/// Reads the statistics of a file in one of Iceberg's manifests.
pub(super) fn of_iceberg(data_file: &AvroValue, columns: &[LakeColumn]) -> FileStatistics {
    let [least, greatest, null_counts] = ["lower_bounds", "upper_bounds", "null_value_counts"]
        .map(|name| by_field_id(data_file.field(name)));
    let bound = |values: &BTreeMap<i64, &AvroValue>, column: &LakeColumn, bound| {
        let AvroValue::Bytes(bytes) = values.get(&i64::from(column.id))? else { return None };
        binary_bound(bytes, column.arrow_type.as_ref()?, bound)
    };
    let null_count = |column: &LakeColumn| match null_counts.get(&i64::from(column.id))? {
        AvroValue::Int(count) => u64::try_from(*count).ok(),
        _ => None,
    };
    let columns = columns.iter().map(|column| ColumnBounds {
        name: column.name.clone(),
        least: bound(&least, column, Bound::Least),
        greatest: bound(&greatest, column, Bound::Greatest),
        null_count: null_count(column),
    });
    let row_count = data_file.integer("record_count").and_then(|count| u64::try_from(count).ok());
    FileStatistics { row_count, columns: columns.collect() }
}

/// Returns the values of a map from field ids, which Avro has as a list of pairs.
fn by_field_id(map: Option<&AvroValue>) -> BTreeMap<i64, &AvroValue> {
    let Some(AvroValue::Array(pairs)) = map else { return BTreeMap::new() };
    pairs.iter().filter_map(|pair| Some((pair.integer("key")?, pair.field("value")?))).collect()
}

/// Returns a bound of a value in JSON.
fn json_bound(value: &Json, arrow_type: &ArrowType, bound: Bound) -> Option<Value> {
    let integer = || value.as_i64();
    Some(match arrow_type {
        ArrowType::Int8 | ArrowType::Int16 => Value::SmallInt(integer()?.try_into().ok()?),
        ArrowType::Int32 => Value::Int(integer()?.try_into().ok()?),
        ArrowType::Int64 => Value::BigInt(integer()?),
        ArrowType::Date32 => Value::Date(Date32Type::parse(value.as_str()?)?),
        ArrowType::Timestamp(..) => milliseconds_beyond(milliseconds(value.as_str()?)?, bound)?,
        ArrowType::Utf8 => {
            let text = value.as_str()?;
            let is_whole = text.chars().count() <= DELTA_TEXT_CHARS_MAX;
            Value::String(is_whole.then_some(text)?.into())
        }
        _ => return None,
    })
}

/// Returns a bound of a value in Iceberg's binary form.
fn binary_bound(bytes: &[u8], arrow_type: &ArrowType, bound: Bound) -> Option<Value> {
    let integer = || -> Option<i64> {
        Some(match *bytes {
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
            _ => i64::from_le_bytes(bytes.try_into().ok()?),
        })
    };
    Some(match arrow_type {
        ArrowType::Int32 => Value::Int(integer()?.try_into().ok()?),
        ArrowType::Int64 => Value::BigInt(integer()?),
        ArrowType::Date32 => Value::Date(integer()?.try_into().ok()?),
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = i64::from_le_bytes(bytes.try_into().ok()?);
            milliseconds_beyond(micros.div_euclid(MICROS_PER_MS), bound)?
        }
        // A text that was cut is less as the least, and was made greater as the greatest.
        ArrowType::Utf8 => Value::String(std::str::from_utf8(bytes).ok()?.into()),
        _ => return None,
    })
}

/// Returns a time one millisecond beyond a bound, which some writers cut to milliseconds.
fn milliseconds_beyond(ms: i64, bound: Bound) -> Option<Value> {
    Some(Value::Timestamp(match bound {
        Bound::Least => ms.checked_sub(1)?,
        Bound::Greatest => ms.checked_add(1)?,
    }))
}

const MICROS_PER_MS: i64 = 1_000;

#[cfg(test)]
mod tests {
    use super::{ArrowType, Bound, Json, TimeUnit, Value, binary_bound, json_bound};

    #[test]
    fn bounds_are_at_or_beyond_the_values() {
        let long = "x".repeat(32);
        let time = ArrowType::Timestamp(TimeUnit::Microsecond, None);
        let json: [(Json, ArrowType, Bound, Option<Value>); 9] = [
            ((-3).into(), ArrowType::Int64, Bound::Least, Some(Value::BigInt(-3))),
            (300.into(), ArrowType::Int8, Bound::Greatest, Some(Value::SmallInt(300))),
            (1_000_000.into(), ArrowType::Int16, Bound::Greatest, None),
            ("2024-01-02".into(), ArrowType::Date32, Bound::Least, Some(Value::Date(19_724))),
            (
                "1970-01-01T00:00:00.005Z".into(),
                time.clone(),
                Bound::Least,
                Some(Value::Timestamp(4)),
            ),
            (
                "1970-01-01 00:00:00.005".into(),
                time.clone(),
                Bound::Greatest,
                Some(Value::Timestamp(6)),
            ),
            ("xyz".into(), ArrowType::Utf8, Bound::Greatest, Some(Value::String("xyz".into()))),
            (long.into(), ArrowType::Utf8, Bound::Greatest, None),
            (1.5.into(), ArrowType::Float64, Bound::Least, None),
        ];
        for (value, arrow_type, bound, expected) in json {
            assert_eq!(json_bound(&value, &arrow_type, bound), expected, "{value} {arrow_type}");
        }
        let micros = (-1_500_i64).to_le_bytes();
        let binary: [(&[u8], ArrowType, Bound, Option<Value>); 6] = [
            (&7_i32.to_le_bytes(), ArrowType::Int64, Bound::Least, Some(Value::BigInt(7))),
            (&7_i64.to_le_bytes(), ArrowType::Int64, Bound::Least, Some(Value::BigInt(7))),
            (&micros, time.clone(), Bound::Least, Some(Value::Timestamp(-3))),
            (&micros, time, Bound::Greatest, Some(Value::Timestamp(-1))),
            (&[1, 2, 3], ArrowType::Int64, Bound::Least, None),
            (b"ab", ArrowType::Utf8, Bound::Least, Some(Value::String("ab".into()))),
        ];
        for (bytes, arrow_type, bound, expected) in binary {
            assert_eq!(binary_bound(bytes, &arrow_type, bound), expected, "{bytes:?} {arrow_type}");
        }
    }
}
