//! The text forms of OpenMLDB: values, and the three names that a type has.
//!
//! A FLOAT is written as the DOUBLE that it is equal to, a DATE without leading zeros, and a number that
//! is not finite as a bare word, unless the call asks for `null`.

use lockstep_row::{DataType, Datum, calendar::civil_from_days};

use lockstep_engine::json_text::{push_json, write_json};

/// How a number that is not finite is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonFinite {
    /// As `NaN`, `Infinity` or `-Infinity`, which is not JSON.
    Words,
    /// As `null`.
    Null,
}

/// Appends a value.
pub(super) fn write_value(out: &mut Vec<u8>, value: &Datum<'_>, non_finite: NonFinite) {
    match *value {
        Datum::Float(number) => write_number(out, f64::from(number), non_finite),
        Datum::Double(number) => write_number(out, number, non_finite),
        Datum::Date(days) => {
            let day = civil_from_days(i64::from(days));
            let text = format!("\"{}-{}-{}\"", day.year, day.month, day.day);
            out.extend_from_slice(text.as_bytes());
        }
        _ => write_json(out, value),
    }
}

fn write_number(out: &mut Vec<u8>, number: f64, non_finite: NonFinite) {
    let word: &[u8] = match non_finite {
        _ if number.is_finite() => return push_json(out, &number),
        NonFinite::Null => b"null",
        NonFinite::Words if number.is_nan() => b"NaN",
        NonFinite::Words if number > 0.0 => b"Infinity",
        NonFinite::Words => b"-Infinity",
    };
    out.extend_from_slice(word);
}

/// Appends values as an array, or with their keys as an object.
pub(super) fn write_row<'v>(
    out: &mut Vec<u8>,
    values: impl Iterator<Item = (&'v str, &'v Datum<'v>)>,
    is_object: bool,
    non_finite: NonFinite,
) {
    out.push(if is_object { b'{' } else { b'[' });
    for (at, (key, value)) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if is_object {
            push_json(out, key);
            out.push(b':');
        }
        write_value(out, value, non_finite);
    }
    out.push(if is_object { b'}' } else { b']' });
}

/// Returns the name of a type in the schema of a deployment.
pub(super) fn schema_type(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Bool => "bool",
        DataType::SmallInt => "int16",
        DataType::Int => "int32",
        DataType::BigInt => "int64",
        DataType::Float => "float",
        DataType::Double => "double",
        DataType::String => "string",
        DataType::Date => "date",
        DataType::Timestamp => "timestamp",
        _ => "unknown",
    }
}

/// Returns the name of a type in the answer of a statement.
pub(super) fn result_type(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Bool => "Bool",
        DataType::SmallInt => "Int16",
        DataType::Int => "Int32",
        DataType::BigInt => "Int64",
        DataType::Float => "Float",
        DataType::Double => "Double",
        DataType::String => "String",
        DataType::Date => "Date",
        DataType::Timestamp => "Timestamp",
        _ => "Unknown",
    }
}

/// Returns the name of a type in the description of a table.
pub(super) fn column_type(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Bool => "bool",
        DataType::SmallInt => "smallint",
        DataType::Int => "int",
        DataType::BigInt => "bigint",
        DataType::Float => "float",
        DataType::Double => "double",
        DataType::String => "varchar",
        DataType::Date => "date",
        DataType::Timestamp => "timestamp",
        _ => "unknown",
    }
}

/// Returns the type that a call names for a parameter.
pub(super) fn type_of(name: &str) -> Option<DataType> {
    Some(match name.to_ascii_uppercase().as_str() {
        "BOOL" => DataType::Bool,
        "SMALLINT" | "INT16" => DataType::SmallInt,
        "INT" | "INT32" => DataType::Int,
        "BIGINT" | "INT64" => DataType::BigInt,
        "FLOAT" => DataType::Float,
        "DOUBLE" => DataType::Double,
        "STRING" | "VARCHAR" => DataType::String,
        "DATE" => DataType::Date,
        "TIMESTAMP" => DataType::Timestamp,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use lockstep_row::Datum;

    use super::{NonFinite, result_type, type_of, write_value};

    fn text(value: Datum<'_>, non_finite: NonFinite) -> String {
        let mut out = Vec::new();
        write_value(&mut out, &value, non_finite);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_written_as_openmldb_writes_them() {
        for (value, expected) in [
            (Datum::Float(1.1), "1.100000023841858"),
            (Datum::Double(0.1 + 0.2), "0.30000000000000004"),
            (Datum::Double(f64::NAN), "NaN"),
            (Datum::Float(f32::NEG_INFINITY), "-Infinity"),
            (Datum::Date(18_383), "\"2020-5-1\""),
            (Datum::Timestamp(90_000), "90000"),
            (Datum::Bool(true), "true"),
            (Datum::String("a\""), "\"a\\\"\""),
            (Datum::Null, "null"),
        ] {
            assert_eq!(text(value, NonFinite::Words), expected);
        }
        assert_eq!(text(Datum::Double(f64::INFINITY), NonFinite::Null), "null");
    }

    #[test]
    fn every_type_of_a_result_may_be_that_of_a_parameter() {
        for name in ["Bool", "Int16", "int", "BIGINT", "float", "Double", "varchar", "Date"] {
            let found = type_of(name).unwrap();
            assert_eq!(type_of(result_type(&found)), Some(found), "{name}");
        }
        assert_eq!(type_of("blob"), None);
    }
}
