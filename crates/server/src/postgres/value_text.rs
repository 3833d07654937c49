//! Values of the engine as the text that PostgreSQL prints.
//!
//! | type | text |
//! |---|---|
//! | BOOL | `t`, `f` |
//! | FLOAT, DOUBLE | the fewest digits that read back the same; `1e+20`, `NaN`, `Infinity` |
//! | TIMESTAMP | `2020-01-01 00:00:00.123+00` in the session's time zone |
//! | DATE | `2020-01-01` |
//! | ARRAY | `{1,NULL,"a b"}`; of arrays and maps JSON |
//! | MAP | JSON |

use std::io::Write;

use lockstep_function::Zone;
use lockstep_row::{
    DataType, Datum,
    calendar::{civil_from_days, split_ms},
};

use super::types::array_oid;
use crate::http::push_json;

/// Appends a value of this type that is not NULL.
pub(crate) fn write_typed_text(
    out: &mut Vec<u8>,
    value: &Datum<'_>,
    data_type: &DataType,
    zone: Zone,
) {
    match data_type {
        // The client is told that it is JSON.
        DataType::Array(element) if array_oid(element).is_none() => write_json(out, value, zone),
        _ => write_text(out, value, zone),
    }
}

/// Appends a value that is not NULL and is no array of arrays or maps.
fn write_text(out: &mut Vec<u8>, value: &Datum<'_>, zone: Zone) {
    match *value {
        Datum::Null => {}
        Datum::Bool(value) => out.push(if value { b't' } else { b'f' }),
        Datum::SmallInt(value) => write_integer(out, value.into()),
        Datum::Int(value) => write_integer(out, value.into()),
        Datum::BigInt(value) => write_integer(out, value),
        Datum::Float(value) => write_float(out, &format!("{value:e}"), 6),
        Datum::Double(value) => write_float(out, &format!("{value:e}"), 15),
        Datum::String(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Timestamp(ms) => write_timestamp(out, ms, zone),
        Datum::Date(days) => write_date(out, i64::from(days), ""),
        Datum::Array(items) => write_array(out, items, zone),
        Datum::Map(_) => write_json(out, value, zone),
    }
}

fn write_integer(out: &mut Vec<u8>, value: i64) {
    // Writing to a vector does not fail.
    let _written = write!(out, "{value}");
}

/// Appends a number given in Rust's form with an exponent, such as `1.25e-7`. It is written with an
/// exponent below -4 and from `digits` on.
fn write_float(out: &mut Vec<u8>, text: &str, digits: i32) {
    let Some((mantissa, exponent)) = text.split_once('e') else {
        let word: &[u8] = match text {
            "inf" => b"Infinity",
            "-inf" => b"-Infinity",
            _ => b"NaN",
        };
        return out.extend_from_slice(word);
    };
    let exponent: i32 = exponent.parse().expect("the exponent of a number is a number");
    if exponent < -4 || exponent >= digits {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _written = write!(out, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.extend_from_slice(sign.as_bytes());
    let all: String = mantissa.chars().filter(|character| *character != '.').collect();
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        out.extend_from_slice(format!("0.{zeros}{all}").as_bytes());
        return;
    };
    match all.split_at_checked(whole) {
        Some((all, "")) => out.extend_from_slice(all.as_bytes()),
        Some(("", rest)) => out.extend_from_slice(format!("0.{rest}").as_bytes()),
        Some((whole, rest)) => out.extend_from_slice(format!("{whole}.{rest}").as_bytes()),
        None => out.extend_from_slice(format!("{all:0<whole$}").as_bytes()),
    }
}

/// Appends a time in a zone, with the offset of the zone.
fn write_timestamp(out: &mut Vec<u8>, ms: i64, zone: Zone) {
    let local = zone.to_local(ms);
    let (days, time) = split_ms(local);
    let mut rest = format!(" {:02}:{:02}:{:02}", time.hour, time.minute, time.second);
    let fraction = local.rem_euclid(1_000);
    if fraction > 0 {
        rest.push_str(format!(".{fraction:03}").trim_end_matches('0'));
    }
    let offset = local.saturating_sub(ms) / 1_000;
    let sign = if offset < 0 { '-' } else { '+' };
    let offset = offset.abs();
    let (hours, minutes, seconds) = (offset / 3_600, offset / 60 % 60, offset % 60);
    rest.push_str(&format!("{sign}{hours:02}"));
    if minutes > 0 || seconds > 0 {
        rest.push_str(&format!(":{minutes:02}"));
    }
    // The local times of the nineteenth century.
    if seconds > 0 {
        rest.push_str(&format!(":{seconds:02}"));
    }
    write_date(out, days, &rest);
}

/// Appends a day, and `rest` before the era.
fn write_date(out: &mut Vec<u8>, days: i64, rest: &str) {
    let day = civil_from_days(days);
    let (year, era) = if day.year > 0 { (day.year, "") } else { (1 - day.year, " BC") };
    let _written = write!(out, "{year:04}-{:02}-{:02}{rest}{era}", day.month, day.day);
}

/// Appends the elements of an array.
fn write_array(out: &mut Vec<u8>, items: &[Datum<'_>], zone: Zone) {
    out.push(b'{');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if item.is_null() {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let mut text = Vec::new();
        write_text(&mut text, item, zone);
        let is_plain = !text.is_empty()
            && !text.eq_ignore_ascii_case(b"null")
            && !text.iter().any(|byte| {
                matches!(byte, b'"' | b'\\' | b'{' | b'}' | b',') || byte.is_ascii_whitespace()
            });
        if is_plain {
            out.extend_from_slice(&text);
            continue;
        }
        out.push(b'"');
        for byte in text {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
    out.push(b'}');
}

/// Appends a value as JSON, in which times are texts.
fn write_json(out: &mut Vec<u8>, value: &Datum<'_>, zone: Zone) {
    match *value {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Bool(value) => push_json(out, &value),
        Datum::SmallInt(_) | Datum::Int(_) | Datum::BigInt(_) => write_text(out, value, zone),
        Datum::Float(number) if number.is_finite() => push_json(out, &number),
        Datum::Double(number) if number.is_finite() => push_json(out, &number),
        Datum::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                out.push(if at == 0 { b'[' } else { b',' });
                write_json(out, item, zone);
            }
            out.extend_from_slice(if items.is_empty() { b"[]" } else { b"]" });
        }
        Datum::Map(entries) => {
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push(if at == 0 { b'{' } else { b',' });
                write_json_text(out, key, zone);
                out.push(b':');
                write_json(out, value, zone);
            }
            out.extend_from_slice(if entries.is_empty() { b"{}" } else { b"}" });
        }
        _ => write_json_text(out, value, zone),
    }
}

fn write_json_text(out: &mut Vec<u8>, value: &Datum<'_>, zone: Zone) {
    let mut text = Vec::new();
    write_text(&mut text, value, zone);
    push_json(out, String::from_utf8_lossy(&text).as_ref());
}

#[cfg(test)]
mod tests {
    use lockstep_function::{TimeZone, Zone};
    use lockstep_row::{DataType, Datum};

    use super::{write_text, write_typed_text};

    fn check_in(zone: &str, value: &Datum<'_>, expected: &str) {
        let mut out = Vec::new();
        write_text(&mut out, value, Zone::new(TimeZone::parse(zone).unwrap()));
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    fn check(value: &Datum<'_>, expected: &str) {
        check_in("UTC", value, expected);
    }

    #[test]
    fn floats_are_written_as_postgresql_writes_them() {
        for (value, expected) in [
            (1.0, "1"),
            (-0.1, "-0.1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.25e20, "1.25e+20"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (123.456, "123.456"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e300, "1e+300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            check(&Datum::Double(value), expected);
        }
        check(&Datum::Float(0.1), "0.1");
        check(&Datum::Float(1e6), "1e+06");
        check(&Datum::Float(123_456.0), "123456");
    }

    #[test]
    fn times_have_the_offset_of_their_zone() {
        check(&Datum::Timestamp(0), "1970-01-01 00:00:00+00");
        check(&Datum::Timestamp(-1), "1969-12-31 23:59:59.999+00");
        check(&Datum::Timestamp(1_500), "1970-01-01 00:00:01.5+00");
        check_in("Asia/Kolkata", &Datum::Timestamp(0), "1970-01-01 05:30:00+05:30");
        check_in("America/New_York", &Datum::Timestamp(0), "1969-12-31 19:00:00-05");
        let old = Datum::Timestamp(-3_772_051_200_000);
        check_in("Europe/Madrid", &old, "1850-06-20 23:45:16-00:14:44");
        check(&Datum::Date(-1), "1969-12-31");
        check(&Datum::Date(-719_163), "0001-12-31 BC");
    }

    #[test]
    fn arrays_and_maps_have_quotes_where_they_must() {
        let text = Datum::String;
        let items = [text("a b"), text(""), Datum::Null, text("null"), text("x\"y"), text("é")];
        check(&Datum::Array(&items), "{\"a b\",\"\",NULL,\"null\",\"x\\\"y\",é}");
        check(&Datum::Array(&[Datum::Int(1), Datum::Null]), "{1,NULL}");
        let entries = [(Datum::Int(1), Datum::Double(0.5)), (Datum::Int(2), Datum::Date(0))];
        check(&Datum::Map(&entries), "{\"1\":0.5,\"2\":\"1970-01-01\"}");
        check(&Datum::Map(&[]), "{}");
    }

    #[test]
    fn arrays_of_arrays_and_maps_are_json() {
        let array = |element| DataType::Array(Box::new(element));
        let of_arrays = array(array(DataType::Int));
        let of_maps =
            array(DataType::Map(Box::new(DataType::String), Box::new(DataType::Timestamp)));
        let (first, second) = ([Datum::Int(1), Datum::Int(2)], [Datum::Int(3)]);
        let entries = [(Datum::String("a"), Datum::Timestamp(0))];
        for (items, data_type, expected) in [
            (&[Datum::Array(&first), Datum::Array(&second)][..], &of_arrays, "[[1,2],[3]]"),
            (&[Datum::Null], &of_arrays, "[null]"),
            (&[], &of_arrays, "[]"),
            (&[Datum::Map(&entries)], &of_maps, "[{\"a\":\"1970-01-01 00:00:00+00\"}]"),
            (&first, &array(DataType::Int), "{1,2}"),
        ] {
            let mut out = Vec::new();
            let zone = Zone::new(TimeZone::parse("UTC").unwrap());
            write_typed_text(&mut out, &Datum::Array(items), data_type, zone);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
