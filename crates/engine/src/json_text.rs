//! Values as JSON: straight from values of the engine into bytes.
//!
//! | type | JSON |
//! |---|---|
//! | BOOL | `true`, `false` |
//! | SMALLINT, INT, BIGINT | number, with all digits |
//! | FLOAT, DOUBLE | number, with the fewest digits that read back the same; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | STRING | string |
//! | TIMESTAMP | number, milliseconds since the epoch |
//! | DATE | `"2020-05-01"` |
//! | ARRAY, MAP | array; object whose keys are texts |
//! | NULL | `null` |

use lockstep_row::{Datum, calendar};

/// Appends a value as JSON.
pub fn write_json(out: &mut Vec<u8>, value: &Datum<'_>) {
    match *value {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Bool(value) => push_json(out, &value),
        Datum::SmallInt(value) => push_json(out, &value),
        Datum::Int(value) => push_json(out, &value),
        Datum::BigInt(value) | Datum::Timestamp(value) => push_json(out, &value),
        Datum::Float(value) => write_float(out, value),
        Datum::Double(value) => write_double(out, value),
        Datum::String(text) => push_json(out, text),
        Datum::Date(days) => {
            out.push(b'"');
            write_date(out, days);
            out.push(b'"');
        }
        Datum::Array(items) => write_json_array(out, items),
        Datum::Map(entries) => {
            out.push(b'{');
            for (at, (key, value)) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_key(out, key);
                write_json(out, value);
            }
            out.push(b'}');
        }
    }
}

/// Appends an array of values.
pub fn write_json_array(out: &mut Vec<u8>, items: &[Datum<'_>]) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_json(out, item);
    }
    out.push(b']');
}

/// Appends an object of names and values.
pub fn write_json_object<'n, 'v>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'n str, Datum<'v>)>,
) {
    out.push(b'{');
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        push_json(out, name);
        out.push(b':');
        write_json(out, &value);
    }
    out.push(b'}');
}

/// Appends the key of a MAP, which is a string in JSON, and the colon.
fn write_key(out: &mut Vec<u8>, key: &Datum<'_>) {
    let mut text = Vec::new();
    write_json(&mut text, key);
    if text.first() == Some(&b'"') {
        out.extend_from_slice(&text);
    } else {
        push_json(out, String::from_utf8_lossy(&text).as_ref());
    }
    out.push(b':');
}

fn write_float(out: &mut Vec<u8>, value: f32) {
    if value.is_finite() {
        push_json(out, &value);
    } else {
        push_json(out, non_finite_word(f64::from(value)));
    }
}

fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        push_json(out, &value);
    } else {
        push_json(out, non_finite_word(value));
    }
}

/// Appends a DATE.
pub fn write_date(out: &mut Vec<u8>, days: i32) {
    let mut text = String::new();
    calendar::write_date(i64::from(days), &mut text).expect("a text takes what is written");
    out.extend_from_slice(text.as_bytes());
}

/// Appends anything that JSON has, with its escapes.
pub fn push_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("a vector takes all bytes");
}

/// Returns the word for a number that is not finite.
pub fn non_finite_word(value: f64) -> &'static str {
    debug_assert!(!value.is_finite(), "finite numbers have digits");
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::Datum;

    use super::write_json;

    fn json(value: Datum<'_>) -> String {
        let mut out = Vec::new();
        write_json(&mut out, &value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_json() {
        assert_eq!(json(Datum::Null), "null");
        assert_eq!(json(Datum::BigInt(i64::MAX)), "9223372036854775807");
        assert_eq!(json(Datum::Float(1.1)), "1.1");
        assert_eq!(json(Datum::Double(0.1 + 0.2)), "0.30000000000000004");
        assert_eq!(json(Datum::Double(-0.0)), "-0.0");
        assert_eq!(json(Datum::Double(f64::NAN)), "\"NaN\"");
        assert_eq!(json(Datum::Float(f32::NEG_INFINITY)), "\"-Infinity\"");
        assert_eq!(json(Datum::String("a\"\n\u{1}")), "\"a\\\"\\n\\u0001\"");
        assert_eq!(json(Datum::Date(18_383)), "\"2020-05-01\"");
        assert_eq!(json(Datum::Date(-719_529)), "\"-0001-12-31\"");
        assert_eq!(json(Datum::Timestamp(90_000)), "90000");
        let map = [(Datum::Int(1), Datum::Null), (Datum::String("k"), Datum::Bool(true))];
        assert_eq!(json(Datum::Map(&map)), "{\"1\":null,\"k\":true}");
    }
}
