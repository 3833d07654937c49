//! CAST, and parsing and printing of values.
//!
//! The binder uses a cast for CAST and for an argument that does not have its parameter's type;
//! front ends print results with [`Printer`]. A pair of types without a cast is refused when the
//! query is bound; a value that cannot be cast becomes NULL when it runs, so nothing here fails at
//! run time.
//!
//! | from → to | result |
//! |---|---|
//! | integer → narrower integer | NULL where it does not fit; in OpenMLDB the low bits |
//! | float → integer | the fraction is dropped; NULL out of range and for NaN, where OpenMLDB saturates |
//! | number → TIMESTAMP | milliseconds; negative is NULL; a float out of range is NULL, where OpenMLDB saturates |
//! | DATE → number, BOOL | NULL; number → DATE does not exist |
//! | text → anything | the whole text must be of the form, otherwise NULL |
//! | ARRAY, MAP | element by element; not to text |

#![expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]

mod number;
mod text;
mod written;

use std::sync::Arc;

use bumpalo::collections::String as ArenaString;
use lockstep_row::{
    Arena, DataType, Datum,
    calendar::{self, DAY_MS},
};

pub(crate) use number::{
    exact_integer, f64_to_f32, integer as low_bits, is_nonzero, rank as type_rank,
};
pub use number::{narrow_to_i16, narrow_to_i32, saturate_to_i64};
pub use text::{
    Printer, parse_bool, parse_date, parse_double, parse_float, parse_integer, parse_timestamp,
    print_datum, write_datum,
};

pub use written::{TextError, read_constant};

use crate::{
    Compatibility, Settings,
    scalar::{NullHandling, RowForm, ScalarImplementation, row_form},
    zone::Zone,
};

/// Returns the row form of a cast; `None` for a pair of types without a cast. The form takes one
/// argument, returns NULL for NULL, and captures the session's time zone.
pub fn cast_form(from: &DataType, to: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    if from == to {
        return Some(row_form(|arguments, _| Some(arguments[0])));
    }
    if *from == DataType::Null {
        return Some(row_form(|_, _| None));
    }
    match to {
        DataType::Null => None,
        DataType::Bool => to_bool(from),
        DataType::SmallInt | DataType::Int | DataType::BigInt => to_integer(from, to, settings),
        DataType::Float | DataType::Double => to_floating(from, to),
        DataType::String => to_text(from, settings),
        DataType::Timestamp => to_timestamp(from, settings),
        DataType::Date => to_date(from, settings),
        DataType::Array(to) => to_array(from, to, settings),
        DataType::Map(key, value) => to_map(from, key, value, settings),
    }
}

/// Returns CAST as a scalar function of one argument.
pub fn implementation(
    from: &DataType,
    to: &DataType,
    settings: &Settings,
) -> Option<ScalarImplementation> {
    Some(ScalarImplementation {
        parameters: vec![from.clone()],
        returns: to.clone(),
        nulls: NullHandling::Propagate,
        row: cast_form(from, to, settings)?,
    })
}

/// Returns the common type of several types (for CASE, COALESCE, ARRAY): the same type; else the
/// wider number, where BIGINT with FLOAT is DOUBLE and a BOOL counts as a number; else TIMESTAMP
/// for a TIMESTAMP with an integer or a BOOL; else STRING. NULL takes any type. `None` if there is
/// no common type (an ARRAY with a number).
pub fn common_type<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<DataType> {
    types.into_iter().try_fold(DataType::Null, |left, right| common_pair(&left, right))
}

/// Returns the [`common_type`] of two types if they are the same or both numbers; never converts to
/// STRING.
pub fn common_type_strict(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (left, right) if left == right => Some(left.clone()),
        (DataType::Null, other) | (other, DataType::Null) => Some(other.clone()),
        (left, right) if left.is_number() && right.is_number() => {
            let widest = if number::rank(left) > number::rank(right) { left } else { right };
            let is_lossy = *widest == DataType::Float
                && (*left == DataType::BigInt || *right == DataType::BigInt);
            Some(if is_lossy { DataType::Double } else { widest.clone() })
        }
        (DataType::Array(left), DataType::Array(right)) => {
            Some(DataType::Array(Box::new(common_type_strict(left, right)?)))
        }
        (DataType::Map(left_key, left_value), DataType::Map(right_key, right_value)) => {
            Some(DataType::Map(
                Box::new(common_type_strict(left_key, right_key)?),
                Box::new(common_type_strict(left_value, right_value)?),
            ))
        }
        _ => None,
    }
}

fn common_pair(left: &DataType, right: &DataType) -> Option<DataType> {
    common_type_strict(left, right).or_else(|| widened(left, right)).or_else(|| {
        let nested =
            |data_type: &DataType| matches!(data_type, DataType::Array(_) | DataType::Map(_, _));
        (!nested(left) && !nested(right)).then_some(DataType::String)
    })
}

/// Returns the type that holds the values of both types, one of which is BOOL or TIMESTAMP.
fn widened(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (DataType::Bool, other) | (other, DataType::Bool) => {
            (other.is_number() || *other == DataType::Timestamp).then(|| other.clone())
        }
        (DataType::Timestamp, other) | (other, DataType::Timestamp) => {
            other.is_integer().then_some(DataType::Timestamp)
        }
        _ => None,
    }
}

fn to_bool(from: &DataType) -> Option<Arc<RowForm>> {
    Some(match from {
        DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp => {
            row_form(|arguments, _| Some(Datum::Bool(arguments[0].as_i64()? != 0)))
        }
        DataType::Float | DataType::Double => {
            row_form(|arguments, _| Some(Datum::Bool(is_nonzero(arguments[0].as_f64()?))))
        }
        DataType::String => {
            row_form(|arguments, _| Some(Datum::Bool(parse_bool(arguments[0].as_str()?)?)))
        }
        DataType::Date => row_form(|_, _| None),
        _ => return None,
    })
}

fn to_integer(from: &DataType, to: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    let to = to.clone();
    let is_exact = settings.compatibility == Compatibility::Standard;
    Some(match from {
        DataType::Bool => row_form(move |arguments, _| {
            Some(number::integer(i64::from(arguments[0].as_bool()?), &to))
        }),
        DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp if is_exact => {
            row_form(move |arguments, _| exact_integer(arguments[0].as_i64()?, &to))
        }
        DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp => {
            row_form(move |arguments, _| Some(number::integer(arguments[0].as_i64()?, &to)))
        }
        DataType::Float | DataType::Double if is_exact => {
            row_form(move |arguments, _| number::exact_truncation(arguments[0].as_f64()?, &to))
        }
        DataType::Float | DataType::Double => row_form(move |arguments, _| {
            Some(number::saturating_integer(arguments[0].as_f64()?, &to))
        }),
        DataType::String => {
            row_form(move |arguments, _| exact_integer(parse_integer(arguments[0].as_str()?)?, &to))
        }
        DataType::Date => row_form(|_, _| None),
        _ => return None,
    })
}

fn to_floating(from: &DataType, to: &DataType) -> Option<Arc<RowForm>> {
    let single = *to == DataType::Float;
    Some(match (from, single) {
        (DataType::Bool, true) => row_form(|arguments, _| {
            Some(Datum::Float(f32::from(u8::from(arguments[0].as_bool()?))))
        }),
        (DataType::Bool, false) => {
            row_form(|arguments, _| Some(Datum::Double(f64::from(arguments[0].as_bool()?))))
        }
        (DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp, true) => {
            row_form(|arguments, _| Some(Datum::Float(number::i64_to_f32(arguments[0].as_i64()?))))
        }
        (DataType::SmallInt | DataType::Int | DataType::BigInt | DataType::Timestamp, false) => {
            row_form(|arguments, _| Some(Datum::Double(number::i64_to_f64(arguments[0].as_i64()?))))
        }
        (DataType::Double, true) => {
            row_form(|arguments, _| Some(Datum::Float(f64_to_f32(arguments[0].as_f64()?))))
        }
        (DataType::Float, false) => {
            row_form(|arguments, _| Some(Datum::Double(arguments[0].as_f64()?)))
        }
        (DataType::String, true) => {
            row_form(|arguments, _| Some(Datum::Float(parse_float(arguments[0].as_str()?)?)))
        }
        (DataType::String, false) => {
            row_form(|arguments, _| Some(Datum::Double(parse_double(arguments[0].as_str()?)?)))
        }
        (DataType::Date, _) => row_form(|_, _| None),
        _ => return None,
    })
}

fn to_text(from: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    if matches!(from, DataType::Array(_) | DataType::Map(_, _)) {
        return None;
    }
    let printer = Printer::new(settings);
    Some(row_form(move |arguments, arena| {
        if let Datum::Bool(value) = arguments[0] {
            return Some(Datum::String(if value { "true" } else { "false" }));
        }
        Some(Datum::String(printer.print_in(arguments[0], arena)?))
    }))
}

fn to_timestamp(from: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    let zone = Zone::new(settings.time_zone);
    let settings = *settings;
    Some(match from {
        DataType::Bool => {
            row_form(|arguments, _| Some(Datum::Timestamp(i64::from(arguments[0].as_bool()?))))
        }
        DataType::SmallInt | DataType::Int | DataType::BigInt => row_form(|arguments, _| {
            Some(Datum::Timestamp(arguments[0].as_i64().filter(|ms| *ms >= 0)?))
        }),
        DataType::Float | DataType::Double => row_form(move |arguments, _| {
            let ms = arguments[0].as_f64().filter(|ms| *ms > -1.0)?;
            // The first value above those of 64 bits.
            if settings.compatibility == Compatibility::Standard
                && ms >= 9_223_372_036_854_775_808.0
            {
                return None;
            }
            Some(Datum::Timestamp(saturate_to_i64(ms)))
        }),
        DataType::String => row_form(move |arguments, _| {
            Some(Datum::Timestamp(parse_timestamp(arguments[0].as_str()?, &settings)?))
        }),
        DataType::Date => row_form(move |arguments, _| {
            Some(Datum::Timestamp(zone.to_utc(arguments[0].as_i64()? * DAY_MS)))
        }),
        _ => return None,
    })
}

fn to_date(from: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    let zone = Zone::new(settings.time_zone);
    let settings = *settings;
    Some(match from {
        DataType::Timestamp => row_form(move |arguments, _| {
            let (days, _) = calendar::split_ms(zone.to_local(arguments[0].as_i64()?));
            Some(Datum::Date(i32::try_from(days).ok()?))
        }),
        DataType::String => row_form(move |arguments, _| {
            Some(Datum::Date(parse_date(arguments[0].as_str()?, &settings)?))
        }),
        _ => return None,
    })
}

fn to_array(from: &DataType, to: &DataType, settings: &Settings) -> Option<Arc<RowForm>> {
    let DataType::Array(from) = from else { return None };
    let element = cast_form(from, to, settings)?;
    Some(row_form(move |arguments, arena| {
        let Datum::Array(items) = arguments[0] else { return None };
        let cast = items.iter().map(|item| cast_one(&element, *item, arena));
        Some(Datum::Array(arena.alloc_slice_fill_iter(cast)))
    }))
}

fn to_map(
    from: &DataType,
    to_key: &DataType,
    to_value: &DataType,
    settings: &Settings,
) -> Option<Arc<RowForm>> {
    let DataType::Map(from_key, from_value) = from else { return None };
    let key = cast_form(from_key, to_key, settings)?;
    let value = cast_form(from_value, to_value, settings)?;
    Some(row_form(move |arguments, arena| {
        let Datum::Map(entries) = arguments[0] else { return None };
        let cast =
            entries.iter().map(|(k, v)| (cast_one(&key, *k, arena), cast_one(&value, *v, arena)));
        Some(Datum::Map(arena.alloc_slice_fill_iter(cast)))
    }))
}

/// Casts one element; NULL stays NULL.
fn cast_one<'a>(form: &Arc<RowForm>, item: Datum<'a>, arena: &'a Arena) -> Datum<'a> {
    if item.is_null() { Datum::Null } else { form(&[item], arena) }
}

impl Printer {
    /// Prints a value into the arena; a STRING is returned as it is. `None` for NULL.
    pub fn print_in<'a>(&self, datum: Datum<'a>, arena: &'a Arena) -> Option<&'a str> {
        match datum {
            Datum::Null => None,
            Datum::String(text) => Some(text),
            datum => {
                let mut text = ArenaString::with_capacity_in(24, arena);
                self.write(datum, &mut text).expect("writing to memory does not fail");
                Some(text.into_bump_str())
            }
        }
    }

    /// Prints a value to a new string, for tests, logs and front ends.
    pub fn print(&self, datum: Datum<'_>) -> String {
        let mut text = String::new();
        self.write(datum, &mut text).expect("writing to memory does not fail");
        text
    }
}

#[cfg(test)]
mod tests;
