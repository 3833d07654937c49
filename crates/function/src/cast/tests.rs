//! Claims about casts and text forms.

use chrono_tz::Tz;
use lockstep_row::{Arena, DataType, Value};

use super::{cast_form, common_type, print_datum};
use crate::{Compatibility, Settings, TimeZone};

const REFERENCE: Settings = Settings {
    time_zone: TimeZone::Named(Tz::Etc__GMTMinus8),
    compatibility: Compatibility::OpenMldb,
};

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn check_in(settings: &Settings, value: &Value, to: &DataType, expected: &Value) {
    let arena = Arena::new();
    let from = value.as_datum(&arena).data_type();
    let form = cast_form(&from, to, settings).unwrap_or_else(|| panic!("{from} to {to}"));
    let result = form(&[value.as_datum(&arena)], &arena);
    assert!(result.is_bit_equal(&expected.as_datum(&arena)), "{value:?} to {to}: {result:?}");
}

fn check(value: &Value, to: &DataType, expected: &Value) {
    check_in(&Settings::default(), value, to, expected);
}

#[test]
fn an_integer_that_does_not_fit_is_null_and_keeps_its_low_bits_in_the_reference() {
    let check_both = |from: Value, reference: Value| {
        let to = reference.as_datum(&Arena::new()).data_type();
        check(&from, &to, &Value::Null);
        check_in(&REFERENCE, &from, &to, &reference);
    };
    check_both(Value::Int(65_537), Value::SmallInt(1));
    check_both(Value::Timestamp(1_590_115_420_000), Value::Int(977_520_480));
    check_both(Value::Timestamp(1_590_115_420_000), Value::SmallInt(-14_496));
    check_both(Value::Double(1e10), Value::Int(i32::MAX));
    check_both(Value::Float(-1e30), Value::BigInt(i64::MIN));
    check_both(Value::Double(9_223_372_036_854_775_808.0), Value::BigInt(i64::MAX));
    check_both(Value::Double(f64::NAN), Value::SmallInt(0));
    check(&Value::BigInt(-32_768), &DataType::SmallInt, &Value::SmallInt(i16::MIN));
    check(&Value::Double(-9.3e18), &DataType::BigInt, &Value::Null);
    let least = Value::Double(-9_223_372_036_854_775_808.0);
    check(&least, &DataType::BigInt, &Value::BigInt(i64::MIN));
    check(&Value::Bool(true), &DataType::BigInt, &Value::BigInt(1));
}

#[test]
fn floats_drop_their_fraction() {
    check(&Value::Double(-1.9), &DataType::Int, &Value::Int(-1));
    check(&Value::Double(32_767.9), &DataType::SmallInt, &Value::SmallInt(i16::MAX));
}

#[test]
fn texts_are_read_as_a_whole() {
    check(&text(" -12 "), &DataType::Int, &Value::Int(-12));
    check(&text("0x10"), &DataType::SmallInt, &Value::SmallInt(16));
    for bad in ["", " ", "1.0", "12x", "--1", "+-1", "40000"] {
        check(&text(bad), &DataType::SmallInt, &Value::Null);
    }
    check(&text("1e3"), &DataType::Double, &Value::Double(1000.0));
    check(&text("0x1.8p1"), &DataType::Double, &Value::Double(3.0));
    check(&text("-inf"), &DataType::Float, &Value::Float(f32::NEG_INFINITY));
    check(&text("1e39"), &DataType::Float, &Value::Null);
    check(&text("1e39"), &DataType::Double, &Value::Double(1e39));
    check(&text("abc"), &DataType::Double, &Value::Null);
    check(&text("YES"), &DataType::Bool, &Value::Bool(true));
    check(&text(""), &DataType::Bool, &Value::Null);
}

#[test]
fn dates_and_timestamps_are_read_in_the_session_zone() {
    check(&text("2020-05-22"), &DataType::Date, &Value::Date(18_404));
    check(&text("2020-05-22 23:59:59"), &DataType::Date, &Value::Date(18_404));
    check(&text("1899-12-31"), &DataType::Date, &Value::Date(-25_568));
    check_in(&REFERENCE, &text("1899-12-31"), &DataType::Date, &Value::Null);
    check_in(&REFERENCE, &text("1899-12-31 00:00:00"), &DataType::Timestamp, &Value::Null);
    check(&text("2020-05-22 10:43:40"), &DataType::Timestamp, &Value::Timestamp(1_590_144_220_000));
    let at_east8 = Value::Timestamp(1_590_115_420_000);
    check_in(&REFERENCE, &text("2020-05-22 10:43:40"), &DataType::Timestamp, &at_east8);
    check_in(&REFERENCE, &at_east8, &DataType::String, &text("2020-05-22 10:43:40"));
    check_in(
        &REFERENCE,
        &Value::Date(18_404),
        &DataType::Timestamp,
        &Value::Timestamp(1_590_076_800_000),
    );
    check(
        &text("2020-05-22T10:43:40.250+08:00"),
        &DataType::Timestamp,
        &Value::Timestamp(1_590_115_420_250),
    );
    // As PostgreSQL writes it.
    check(
        &text("2020-05-22 10:43:40+08"),
        &DataType::Timestamp,
        &Value::Timestamp(1_590_115_420_000),
    );
    check(&text("2020-05-22 10:43:40+8"), &DataType::Timestamp, &Value::Null);
    check_in(&REFERENCE, &text("2020-05-22T10:43:40"), &DataType::Timestamp, &Value::Null);
    check(&text("1590738989000"), &DataType::Timestamp, &Value::Null);
    check(&text("数据数据数据数"), &DataType::Timestamp, &Value::Null);
    check(&Value::BigInt(-1), &DataType::Timestamp, &Value::Null);
    check(&Value::Double(1.9), &DataType::Timestamp, &Value::Timestamp(1));
    check(&Value::Double(1e300), &DataType::Timestamp, &Value::Null);
    check(&Value::Double(f64::INFINITY), &DataType::Timestamp, &Value::Null);
    check(&Value::Double(f64::NAN), &DataType::Timestamp, &Value::Null);
    let last = Value::Timestamp(i64::MAX);
    check_in(&REFERENCE, &Value::Double(1e300), &DataType::Timestamp, &last);
}

#[test]
fn a_time_may_be_written_in_the_ways_of_iso_8601_and_of_other_systems() {
    for written in [
        "2020-05-22 10:43",
        "2020-05-22T10:43Z",
        " 2020-05-22 10:43:00\n",
        "2020-05-22 10:43:00 UTC",
        "2020-05-22 10:43:00utc",
        "2020-05-22 10:43:00.0000000000000 Z",
        "2020-05-22 12:43+0200",
        "2020-05-22 12:43:00 +02:00",
        "2020-05-22 10:28:16-00:14:44",
        "+2020-05-22 10:43:00",
    ] {
        check(&text(written), &DataType::Timestamp, &Value::Timestamp(1_590_144_180_000));
        check_in(&REFERENCE, &text(written), &DataType::Timestamp, &Value::Null);
        check(&text(written), &DataType::Date, &Value::Date(18_404));
    }
    check(&text(" 2020-05-22 "), &DataType::Date, &Value::Date(18_404));
    check_in(&REFERENCE, &text(" 2020-05-22"), &DataType::Date, &Value::Null);
    check_in(&REFERENCE, &text("2020-05-22 10:43+08"), &DataType::Timestamp, &Value::Null);
    for wrong in [
        "2020-05-22 10",
        "2020-05-22 10:43  Z",
        "2020-05-22 10:43:00 CET",
        "2020-05-22 10:43:00+2",
        "2020-05-22 10:43:00+24",
        "2020-05-22 10:43:00+02:60",
        "2020-05-22  10:43:00",
        "2020-05-22 UTC",
        "2020-05-22 10:43:00.",
    ] {
        check(&text(wrong), &DataType::Timestamp, &Value::Null);
    }
}

#[test]
fn every_printed_time_is_read_back() {
    for time in [i64::MIN, i64::MIN + 1, -62_167_219_200_001, -1, 0, i64::MAX] {
        let printed =
            print_datum(Value::Timestamp(time).as_datum(&Arena::new()), &Settings::default());
        check(&text(&printed), &DataType::Timestamp, &Value::Timestamp(time));
    }
    for day in [i32::MIN, -719_529, -719_528, -1, i32::MAX] {
        let printed = print_datum(Value::Date(day).as_datum(&Arena::new()), &Settings::default());
        check(&text(&printed), &DataType::Date, &Value::Date(day));
    }
    check(&text("300000000-01-01"), &DataType::Timestamp, &Value::Null);
    check(&text("6000000-01-01"), &DataType::Date, &Value::Null);
}

#[test]
fn a_timestamp_prints_its_milliseconds() {
    let late = Value::Timestamp(1_590_115_420_007);
    check(&late, &DataType::String, &text("2020-05-22 02:43:40.007"));
    check(&text("2020-05-22 02:43:40.007"), &DataType::Timestamp, &late);
    check_in(&REFERENCE, &late, &DataType::String, &text("2020-05-22 10:43:40"));
}

#[test]
fn dates_are_no_numbers() {
    check(&Value::Date(1), &DataType::Int, &Value::Null);
    check(&Value::Date(1), &DataType::Bool, &Value::Null);
    let settings = Settings::default();
    for from in [DataType::Bool, DataType::Int, DataType::Double] {
        assert!(cast_form(&from, &DataType::Date, &settings).is_none(), "{from}");
    }
    let array = DataType::Array(Box::new(DataType::Int));
    assert!(cast_form(&array, &DataType::String, &settings).is_none());
}

#[test]
fn numbers_print_the_shortest_text_that_reads_back() {
    let check = |value: Value, standard: &str, reference: &str| {
        let arena = Arena::new();
        assert_eq!(print_datum(value.as_datum(&arena), &Settings::default()), standard);
        assert_eq!(print_datum(value.as_datum(&arena), &REFERENCE), reference);
    };
    check(Value::Double(0.1), "0.1", "0.1");
    check(Value::Double(1_000_000.0), "1000000", "1e+06");
    check(Value::Double(12_345_678.9), "12345678.9", "1.23457e+07");
    check(Value::Double(1e20), "1e+20", "1e+20");
    check(Value::Double(1e14), "100000000000000", "1e+14");
    check(Value::Double(1e15), "1e+15", "1e+15");
    check(Value::Double(0.0001), "0.0001", "0.0001");
    check(Value::Double(-0.000_012_5), "-1.25e-05", "-1.25e-05");
    check(Value::Double(-0.0), "-0", "-0");
    check(Value::Double(999_999.5), "999999.5", "1e+06");
    check(Value::Double(120.5), "120.5", "120.5");
    check(Value::Float(1.1), "1.1", "1.1");
    check(Value::Float(16_777_216.0), "16777216", "1.67772e+07");
    check(Value::Double(f64::NAN), "NaN", "nan");
    check(Value::Double(f64::NEG_INFINITY), "-Infinity", "-inf");
    check(Value::Double(f64::MIN_POSITIVE), "2.2250738585072014e-308", "2.22507e-308");
}

#[test]
fn every_printed_double_reads_back() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let value = f64::from_bits(bits);
        let printed =
            print_datum(Value::Double(value).as_datum(&Arena::new()), &Settings::default());
        let read = super::parse_double(&printed).expect("a number");
        assert!(read.to_bits() == value.to_bits() || value.is_nan(), "{printed}");
    }
}

#[test]
fn common_types_lose_nothing() {
    let check = |types: &[DataType], expected: Option<DataType>| {
        assert_eq!(common_type(types), expected, "{types:?}");
    };
    check(&[DataType::Int, DataType::SmallInt], Some(DataType::Int));
    check(&[DataType::Int, DataType::Float], Some(DataType::Float));
    check(&[DataType::BigInt, DataType::Float], Some(DataType::Double));
    check(&[DataType::Null, DataType::Date], Some(DataType::Date));
    check(&[DataType::Int, DataType::String], Some(DataType::String));
    check(&[DataType::Date, DataType::Timestamp], Some(DataType::String));
    check(&[DataType::Timestamp, DataType::SmallInt], Some(DataType::Timestamp));
    check(&[DataType::BigInt, DataType::Timestamp, DataType::Bool], Some(DataType::Timestamp));
    check(&[DataType::Timestamp, DataType::Double], Some(DataType::String));
    check(&[DataType::Bool, DataType::Float], Some(DataType::Float));
    check(&[DataType::Bool, DataType::Date], Some(DataType::String));
    check(&[DataType::Int, DataType::Array(Box::new(DataType::Int))], None);
    check(&[], Some(DataType::Null));
}
