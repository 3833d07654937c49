//! Converting columns of users, of any Arrow type, to columns of the dialect.
//!
//! Loading and appending call it. A conversion either keeps every value as it is or fails and
//! names the row: nothing is rounded, truncated or turned into NULL. A caller that accepts times of
//! any unit truncates them with [`in_milliseconds`] before.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray, make_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        ArrowPrimitiveType, ArrowTimestampType, DataType as ArrowType, FieldRef, Float16Type,
        Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType,
    },
    util::display::FormatOptions,
};

use super::{arrow_type, data_type};
use crate::{
    DataType,
    datum::{one_nan_f32, one_nan_f64},
};

/// The error of a column that cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// There is no lossless conversion between the types.
    #[error("cannot convert a column of Arrow type {from} to {to}")]
    Unsupported {
        /// The type of the column.
        from: ArrowType,
        /// The type it should have.
        to: DataType,
    },
    /// A value of the column is not a value of the type.
    #[error("row {}: the value cannot be converted to {to} exactly", row + 1)]
    Inexact {
        /// The row within the column, from 0.
        row: usize,
        /// The type it should have.
        to: DataType,
    },
}

/// The decimal digits that every BIGINT can hold.
const BIGINT_DIGITS: u8 = 18;

/// Returns the type of the dialect to which an Arrow type is converted by default, which is not always
/// wide enough for every value: UINT64 becomes BIGINT, a decimal with digits after the point DOUBLE, a
/// timestamp of any unit and zone TIMESTAMP.
/// `None` when there is none.
pub fn importable(arrow_type: &ArrowType) -> Option<DataType> {
    if let Some(data_type) = data_type(arrow_type) {
        return Some(data_type);
    }
    Some(match arrow_type {
        ArrowType::Int8 | ArrowType::UInt8 => DataType::SmallInt,
        ArrowType::UInt16 => DataType::Int,
        ArrowType::UInt32 | ArrowType::UInt64 => DataType::BigInt,
        ArrowType::Float16 => DataType::Float,
        ArrowType::Timestamp(..) => DataType::Timestamp,
        ArrowType::Decimal128(digits, 0) if *digits <= BIGINT_DIGITS => DataType::BigInt,
        ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => DataType::Double,
        ArrowType::Date64 => DataType::Date,
        ArrowType::Dictionary(_, value) => importable(value)?,
        ArrowType::List(item) | ArrowType::LargeList(item) => {
            DataType::Array(Box::new(importable(item.data_type())?))
        }
        _ => return None,
    })
}

/// Converts a column to the Arrow type of `to`, every value unchanged. Numbers are converted to any
/// number type that holds them exactly; integers to TIMESTAMP as milliseconds; a timestamp with a zone
/// is the instant that it denotes. Costs nothing when the column has the right type already.
pub fn import_array(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ImportError> {
    let target = arrow_type(to);
    if *array.data_type() == target {
        return Ok(ArrayRef::clone(array));
    }
    let unsupported =
        || ImportError::Unsupported { from: array.data_type().clone(), to: to.clone() };
    let source = without_zone(&without_dictionaries(array).ok_or_else(unsupported)?);
    if *source.data_type() == target {
        return Ok(source);
    }
    if !is_convertible(source.data_type(), to) {
        return Err(unsupported());
    }
    let converted = convert(&source, &target).ok_or_else(unsupported)?;
    let back = convert(&converted, source.data_type()).ok_or_else(unsupported)?;
    match first_difference(&source, &back) {
        Some(row) => Err(ImportError::Inexact { row, to: to.clone() }),
        None => Ok(converted),
    }
}

/// Truncates times that are finer than a millisecond. Returns other columns as they are.
pub fn in_milliseconds(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Timestamp(TimeUnit::Microsecond, zone) => {
            divided::<TimestampMicrosecondType>(array, 1_000, zone.as_ref())
        }
        ArrowType::Timestamp(TimeUnit::Nanosecond, zone) => {
            divided::<TimestampNanosecondType>(array, 1_000_000, zone.as_ref())
        }
        _ => ArrayRef::clone(array),
    }
}

/// Returns a column of floats with the one NaN that is returned to users (see
/// [`Datum::with_one_nan`](crate::Datum::with_one_nan)). Reads each float.
pub fn with_one_nan(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Float32 => {
            let floats: &PrimitiveArray<Float32Type> = array.as_primitive();
            let differs = |value: &f32| value.is_nan() && value.to_bits() != f32::NAN.to_bits();
            if floats.values().iter().any(differs) {
                let one: PrimitiveArray<Float32Type> = floats.unary(one_nan_f32);
                return Arc::new(one);
            }
        }
        ArrowType::Float64 => {
            let floats: &PrimitiveArray<Float64Type> = array.as_primitive();
            let differs = |value: &f64| value.is_nan() && value.to_bits() != f64::NAN.to_bits();
            if floats.values().iter().any(differs) {
                let one: PrimitiveArray<Float64Type> = floats.unary(one_nan_f64);
                return Arc::new(one);
            }
        }
        _ => {}
    }
    ArrayRef::clone(array)
}

/// Returns whether [`in_milliseconds`] changes an instant of the column.
pub fn is_finer_than_milliseconds(array: &ArrayRef) -> bool {
    match array.data_type() {
        ArrowType::Timestamp(TimeUnit::Microsecond, _) => {
            has_rest::<TimestampMicrosecondType>(array, 1_000)
        }
        ArrowType::Timestamp(TimeUnit::Nanosecond, _) => {
            has_rest::<TimestampNanosecondType>(array, 1_000_000)
        }
        _ => false,
    }
}

/// Returns whether a value is not a multiple of a divisor.
fn has_rest<T: ArrowTimestampType>(array: &ArrayRef, divisor: i64) -> bool {
    let fine: &PrimitiveArray<T> = array.as_primitive();
    fine.iter().flatten().any(|value| value % divisor != 0)
}

/// Divides each value, rounding down.
fn divided<T: ArrowTimestampType>(
    array: &ArrayRef,
    divisor: i64,
    zone: Option<&Arc<str>>,
) -> ArrayRef {
    let fine: &PrimitiveArray<T> = array.as_primitive();
    let coarse: PrimitiveArray<TimestampMillisecondType> =
        fine.unary(|value| value.div_euclid(divisor));
    Arc::new(coarse.with_timezone_opt(zone.map(Arc::clone)))
}

/// Returns whether values of an Arrow type may be values of a type.
fn is_convertible(from: &ArrowType, to: &DataType) -> bool {
    match from {
        ArrowType::Null => true,
        ArrowType::Dictionary(_, value) => is_convertible(value, to),
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => *to == DataType::String,
        ArrowType::Boolean => *to == DataType::Bool,
        ArrowType::Timestamp(..) => *to == DataType::Timestamp,
        ArrowType::Date32 | ArrowType::Date64 => *to == DataType::Date,
        ArrowType::List(item) | ArrowType::LargeList(item) => match to {
            DataType::Array(element) => is_convertible(item.data_type(), element),
            _ => false,
        },
        ArrowType::Decimal128(..) | ArrowType::Decimal256(..) => to.is_number(),
        ArrowType::Map(..) => data_type(from).as_ref() == Some(to),
        from if from.is_integer() => to.is_number() || *to == DataType::Timestamp,
        from if from.is_floating() => to.is_number(),
        _ => false,
    }
}

/// Returns a column with the values of its dictionaries in their place, so that a key of NULL and a key of
/// a value that is NULL are both NULL. `None` where Arrow has no such conversion.
fn without_dictionaries(array: &ArrayRef) -> Option<ArrayRef> {
    let plain = plain_type(array.data_type());
    if *array.data_type() == plain { Some(ArrayRef::clone(array)) } else { convert(array, &plain) }
}

/// Returns the type of a column without dictionaries.
fn plain_type(arrow_type: &ArrowType) -> ArrowType {
    let plain_item = |item: &FieldRef| {
        Arc::new(
            item.as_ref().clone().with_data_type(plain_type(item.data_type())).with_nullable(true),
        )
    };
    match arrow_type {
        ArrowType::Dictionary(_, value) => plain_type(value),
        ArrowType::List(item) if has_dictionary(item.data_type()) => {
            ArrowType::List(plain_item(item))
        }
        ArrowType::LargeList(item) if has_dictionary(item.data_type()) => {
            ArrowType::LargeList(plain_item(item))
        }
        other => other.clone(),
    }
}

fn has_dictionary(arrow_type: &ArrowType) -> bool {
    match arrow_type {
        ArrowType::Dictionary(..) => true,
        ArrowType::List(item) | ArrowType::LargeList(item) => has_dictionary(item.data_type()),
        _ => false,
    }
}

/// Returns a timestamp with a zone as the instant that it denotes: Arrow's own cast would shift it to local
/// time in one of the two directions.
fn without_zone(array: &ArrayRef) -> ArrayRef {
    let ArrowType::Timestamp(unit, Some(_)) = array.data_type() else {
        return ArrayRef::clone(array);
    };
    let data = array.to_data().into_builder().data_type(ArrowType::Timestamp(*unit, None));
    make_array(data.build().expect("the layout does not depend on the zone"))
}

/// Casts a column; values that do not fit become NULL.
fn convert(array: &ArrayRef, to: &ArrowType) -> Option<ArrayRef> {
    let options = CastOptions { safe: true, format_options: FormatOptions::default() };
    if let (ArrowType::Date64, ArrowType::Date32) = (array.data_type(), to) {
        // Through a timestamp, because the direct cast drops the time of day unseen on the way
        // back as well.
        let instant = ArrowType::Timestamp(TimeUnit::Millisecond, None);
        let array = cast_with_options(array, &instant, &options).ok()?;
        return cast_with_options(&array, to, &options).ok();
    }
    cast_with_options(array, to, &options).ok()
}

/// Finds the first row in which the columns, of one type, differ; a NaN equals every NaN, and 0.0
/// differs from -0.0.
fn first_difference(left: &ArrayRef, right: &ArrayRef) -> Option<usize> {
    if left.to_data() == right.to_data() {
        return None;
    }
    let [left, right] = [left, right].map(with_equal_nans);
    if left.to_data() == right.to_data() {
        return None;
    }
    let differs = |row: &usize| left.slice(*row, 1).to_data() != right.slice(*row, 1).to_data();
    (0..left.len()).find(differs)
}

/// Returns a column whose NaNs have one bit pattern, those in lists too: a conversion between floats
/// may change the bits of a NaN.
fn with_equal_nans(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        ArrowType::Float16 => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            let halves: &PrimitiveArray<Float16Type> = array.as_primitive();
            let equal: PrimitiveArray<Float16Type> =
                halves.unary(|half| if half.is_nan() { Half::NAN } else { half });
            Arc::new(equal)
        }
        ArrowType::List(_) | ArrowType::LargeList(_) => {
            let data = array.to_data();
            let items = data.child_data().iter().map(|items| make_array(items.clone()));
            let items = items.map(|items| with_equal_nans(&items).to_data()).collect();
            let data = data.into_builder().child_data(items).build();
            make_array(data.expect("as many elements as before"))
        }
        _ => with_one_nan(array),
    }
}
