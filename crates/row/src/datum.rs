//! One value: [`Datum`] borrows its text, [`Value`] owns it.
//!
//! Request mode passes `Datum`s, which are `Copy`: text and lists point into stored rows, into the
//! request row or into the [`Arena`] of the request, so that nothing is allocated per row.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::DataType;

/// Scratch memory of one request or one batch: text and lists made by functions are allocated here and
/// freed all at once.
pub type Arena = bumpalo::Bump;

/// One value, borrowed. `PartialEq` is identity of representation for tests, not SQL equality.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Datum<'a> {
    /// NULL of any type.
    #[default]
    Null,
    /// BOOL.
    Bool(bool),
    /// SMALLINT.
    SmallInt(i16),
    /// INT.
    Int(i32),
    /// BIGINT.
    BigInt(i64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// STRING.
    String(&'a str),
    /// TIMESTAMP: milliseconds since the epoch.
    Timestamp(i64),
    /// DATE: days since the epoch.
    Date(i32),
    /// ARRAY: elements of one type, or NULL.
    Array(&'a [Self]),
    /// MAP: entries in the order they were given.
    Map(&'a [(Self, Self)]),
}

/// One value, owned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub enum Value {
    /// NULL of any type.
    #[default]
    Null,
    /// BOOL.
    Bool(bool),
    /// SMALLINT.
    SmallInt(i16),
    /// INT.
    Int(i32),
    /// BIGINT.
    BigInt(i64),
    /// FLOAT.
    Float(#[serde(with = "crate::persistent::float_bits")] f32),
    /// DOUBLE.
    Double(#[serde(with = "crate::persistent::double_bits")] f64),
    /// STRING.
    String(Box<str>),
    /// TIMESTAMP: milliseconds since the epoch.
    Timestamp(i64),
    /// DATE: days since the epoch.
    Date(i32),
    /// ARRAY.
    Array(Vec<Self>),
    /// MAP.
    Map(Vec<(Self, Self)>),
}

impl<'a> Datum<'a> {
    /// Returns whether it is NULL.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the type of the value; `Null` for NULL, since a bare NULL has no other type.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Bool(_) => DataType::Bool,
            Self::SmallInt(_) => DataType::SmallInt,
            Self::Int(_) => DataType::Int,
            Self::BigInt(_) => DataType::BigInt,
            Self::Float(_) => DataType::Float,
            Self::Double(_) => DataType::Double,
            Self::String(_) => DataType::String,
            Self::Timestamp(_) => DataType::Timestamp,
            Self::Date(_) => DataType::Date,
            Self::Array(items) => DataType::Array(Box::new(element_type(items.iter()))),
            Self::Map(entries) => DataType::Map(
                Box::new(element_type(entries.iter().map(|(key, _)| key))),
                Box::new(element_type(entries.iter().map(|(_, value)| value))),
            ),
        }
    }

    /// Returns whether it is a value of a column of this type: of the type, with all its elements, or
    /// NULL.
    pub fn is_of_type(&self, data_type: &DataType) -> bool {
        match (self, data_type) {
            (Self::Null, _)
            | (Self::Bool(_), DataType::Bool)
            | (Self::SmallInt(_), DataType::SmallInt)
            | (Self::Int(_), DataType::Int)
            | (Self::BigInt(_), DataType::BigInt)
            | (Self::Float(_), DataType::Float)
            | (Self::Double(_), DataType::Double)
            | (Self::String(_), DataType::String)
            | (Self::Timestamp(_), DataType::Timestamp)
            | (Self::Date(_), DataType::Date) => true,
            (Self::Array(items), DataType::Array(element)) => {
                items.iter().all(|item| item.is_of_type(element))
            }
            (Self::Map(entries), DataType::Map(key_type, value_type)) => entries
                .iter()
                .all(|(key, value)| key.is_of_type(key_type) && value.is_of_type(value_type)),
            _ => false,
        }
    }

    /// Returns the value of any integer type, of a TIMESTAMP in milliseconds or of a DATE in days;
    /// `None` for everything else, NULL included.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::SmallInt(value) => Some(i64::from(value)),
            Self::Int(value) | Self::Date(value) => Some(i64::from(value)),
            Self::BigInt(value) | Self::Timestamp(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of any number type as DOUBLE (a BIGINT is rounded to the nearest double);
    /// `None` for everything else, NULL included.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "documented: rounds to the nearest double")]
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::SmallInt(value) => Some(f64::from(value)),
            Self::Int(value) => Some(f64::from(value)),
            Self::BigInt(value) => Some(value as f64),
            Self::Float(value) => Some(f64::from(value)),
            Self::Double(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the text of a STRING.
    #[inline]
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the value of a BOOL.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Copies it out of whatever it borrows from. Allocates for text, arrays and maps.
    #[expect(clippy::wrong_self_convention, reason = "it is mapped over references")]
    #[inline]
    pub fn to_value(&self) -> Value {
        match *self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::SmallInt(value) => Value::SmallInt(value),
            Self::Int(value) => Value::Int(value),
            Self::BigInt(value) => Value::BigInt(value),
            Self::Float(value) => Value::Float(value),
            Self::Double(value) => Value::Double(value),
            Self::String(text) => Value::String(text.into()),
            Self::Timestamp(value) => Value::Timestamp(value),
            Self::Date(value) => Value::Date(value),
            Self::Array(_) | Self::Map(_) => self.nested_to_value(),
        }
    }

    /// Copies an array or a map.
    #[cold]
    fn nested_to_value(self) -> Value {
        match self {
            Self::Array(items) => Value::Array(items.iter().map(Datum::to_value).collect()),
            Self::Map(entries) => Value::Map(
                entries.iter().map(|(key, value)| (key.to_value(), value.to_value())).collect(),
            ),
            scalar => scalar.to_value(),
        }
    }

    /// Returns the value, for any lifetime, when it refers to nothing: NULL, numbers and times.
    #[inline]
    pub fn detached<'b>(&self) -> Option<&Datum<'b>> {
        match self {
            Self::String(_) | Self::Array(_) | Self::Map(_) => None,
            // SAFETY: types that differ in a lifetime have one layout, and the variants that have a
            // reference of this lifetime are excluded above.
            _ => Some(unsafe { &*std::ptr::from_ref(self).cast::<Datum<'b>>() }),
        }
    }

    /// Returns whether it is a FLOAT or DOUBLE that is no number.
    #[inline]
    pub fn is_nan(&self) -> bool {
        match self {
            Self::Float(value) => value.is_nan(),
            Self::Double(value) => value.is_nan(),
            _ => false,
        }
    }

    /// Replaces a NaN of any sign and payload, in which machines differ, by the one NaN that is stored and
    /// returned. Checks the value itself, not the elements of an ARRAY or a MAP.
    #[inline]
    #[must_use]
    pub fn with_one_nan(self) -> Self {
        match self {
            Self::Float(value) => Self::Float(one_nan_f32(value)),
            Self::Double(value) => Self::Double(one_nan_f64(value)),
            other => other,
        }
    }

    /// Returns whether both have the same bits: NaN equals the same NaN, 0.0 differs from -0.0. This is the
    /// comparison of promise L2.
    pub fn is_bit_equal(&self, other: &Datum<'_>) -> bool {
        match (*self, *other) {
            (Datum::Float(left), Datum::Float(right)) => left.to_bits() == right.to_bits(),
            (Datum::Double(left), Datum::Double(right)) => left.to_bits() == right.to_bits(),
            (Datum::Array(left), Datum::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.is_bit_equal(r))
            }
            (Datum::Map(left), Datum::Map(right)) => {
                left.len() == right.len()
                    && left
                        .iter()
                        .zip(right)
                        .all(|(l, r)| l.0.is_bit_equal(&r.0) && l.1.is_bit_equal(&r.1))
            }
            (left, right) => left == right,
        }
    }
}

impl Value {
    /// Borrows it. Arrays and maps are allocated in `arena`; everything else costs nothing.
    #[inline]
    pub fn as_datum<'a>(&'a self, arena: &'a Arena) -> Datum<'a> {
        match self.as_scalar() {
            Some(scalar) => scalar,
            None => self.nested_as_datum(arena),
        }
    }

    /// Borrows an array or a map.
    #[cold]
    fn nested_as_datum<'a>(&'a self, arena: &'a Arena) -> Datum<'a> {
        match self {
            Self::Array(items) => Datum::Array(
                arena.alloc_slice_fill_iter(items.iter().map(|item| item.as_datum(arena))),
            ),
            Self::Map(entries) => Datum::Map(arena.alloc_slice_fill_iter(
                entries.iter().map(|(key, value)| (key.as_datum(arena), value.as_datum(arena))),
            )),
            scalar => scalar.as_scalar().expect("arrays and maps were handled above"),
        }
    }

    /// Borrows it unless it is an array or a map.
    #[inline]
    pub fn as_scalar(&self) -> Option<Datum<'_>> {
        Some(match self {
            Self::Null => Datum::Null,
            Self::Bool(value) => Datum::Bool(*value),
            Self::SmallInt(value) => Datum::SmallInt(*value),
            Self::Int(value) => Datum::Int(*value),
            Self::BigInt(value) => Datum::BigInt(*value),
            Self::Float(value) => Datum::Float(*value),
            Self::Double(value) => Datum::Double(*value),
            Self::String(text) => Datum::String(text),
            Self::Timestamp(value) => Datum::Timestamp(*value),
            Self::Date(value) => Datum::Date(*value),
            Self::Array(_) | Self::Map(_) => return None,
        })
    }
}

/// Compares two floats in the dialect's order, which is PostgreSQL's: the two zeros are equal, and NaN is
/// equal to itself and greater than every number.
///
/// ```
/// use std::cmp::Ordering;
/// use lockstep_row::order_floats;
///
/// assert_eq!(order_floats(f64::NAN, -f64::NAN), Ordering::Equal);
/// assert_eq!(order_floats(f64::NAN, f64::INFINITY), Ordering::Greater);
/// assert_eq!(order_floats(-0.0, 0.0), Ordering::Equal);
/// ```
#[inline]
pub fn order_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

/// Returns a FLOAT with the one NaN; see [`Datum::with_one_nan`].
#[inline]
pub(crate) fn one_nan_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// Returns a DOUBLE with the one NaN; see [`Datum::with_one_nan`].
#[inline]
pub(crate) fn one_nan_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// Returns the type of the first element that is not NULL.
fn element_type<'a, 'b: 'a>(items: impl IntoIterator<Item = &'a Datum<'b>>) -> DataType {
    items.into_iter().find(|item| !item.is_null()).map_or(DataType::Null, Datum::data_type)
}
