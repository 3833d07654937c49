//! Conversions between number types, each named after its rounding and overflow rule.

use lockstep_row::{DataType, Datum};

/// Returns the rank of a type in BOOL < SMALLINT < INT < BIGINT < FLOAT < DOUBLE; 0 for any other
/// type.
pub(crate) fn rank(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Bool => 1,
        DataType::SmallInt => 2,
        DataType::Int => 3,
        DataType::BigInt => 4,
        DataType::Float => 5,
        DataType::Double => 6,
        _ => 0,
    }
}

/// Returns the low 16 bits.
#[expect(clippy::cast_possible_truncation, reason = "keeps the low bits, as the name says")]
pub fn narrow_to_i16(value: i64) -> i16 {
    value as i16
}

/// Returns the low 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "keeps the low bits, as the name says")]
pub fn narrow_to_i32(value: i64) -> i32 {
    value as i32
}

/// Drops the fraction; out of range saturates and NaN is 0.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as the name says")]
pub fn saturate_to_i64(value: f64) -> i64 {
    value as i64
}

/// Returns the nearest double.
#[expect(clippy::cast_precision_loss, reason = "rounds to the nearest double")]
pub(crate) fn i64_to_f64(value: i64) -> f64 {
    value as f64
}

/// Returns the nearest float, rounded once.
#[expect(clippy::cast_precision_loss, reason = "rounds to the nearest float")]
pub(crate) fn i64_to_f32(value: i64) -> f32 {
    value as f32
}

/// Returns the nearest float; beyond its range an infinity.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest float")]
pub(crate) fn f64_to_f32(value: f64) -> f32 {
    value as f32
}

/// Returns whether a number counts as true; NaN does.
pub(crate) fn is_nonzero(value: f64) -> bool {
    value != 0.0
}

/// Returns the low bits of an integer as a value of an integer type (BIGINT for every other type).
pub(crate) fn integer<'a>(value: i64, to: &DataType) -> Datum<'a> {
    match to {
        DataType::SmallInt => Datum::SmallInt(narrow_to_i16(value)),
        DataType::Int => Datum::Int(narrow_to_i32(value)),
        _ => Datum::BigInt(value),
    }
}

/// Converts a float to an integer type without its fraction; `None` where it does not fit.
pub(crate) fn exact_truncation<'a>(value: f64, to: &DataType) -> Option<Datum<'a>> {
    let whole = value.trunc();
    // The least value of 64 bits and the first above the greatest; both are exact in DOUBLE, and
    // NaN is in no range.
    const RANGE: std::ops::Range<f64> = -9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0;
    RANGE.contains(&whole).then(|| exact_integer(saturate_to_i64(whole), to))?
}

/// Converts a float to an integer type, saturated at that type's range.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, as the name says")]
pub(crate) fn saturating_integer<'a>(value: f64, to: &DataType) -> Datum<'a> {
    match to {
        DataType::SmallInt => Datum::SmallInt(value as i16),
        DataType::Int => Datum::Int(value as i32),
        _ => Datum::BigInt(value as i64),
    }
}

/// Converts an integer to an integer type; `None` where it does not fit.
pub(crate) fn exact_integer<'a>(value: i64, to: &DataType) -> Option<Datum<'a>> {
    Some(match to {
        DataType::SmallInt => Datum::SmallInt(i16::try_from(value).ok()?),
        DataType::Int => Datum::Int(i32::try_from(value).ok()?),
        _ => Datum::BigInt(value),
    })
}
