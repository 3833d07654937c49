//! Values as keys: owned values of one representation that can be ordered and hashed.

use hashbrown::Equivalent;
use lockstep_row::{Arena, DataType, Datum};

/// An owned value that is not NULL. All keys of a column have the same variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Integer(i64),
    Float(TotalFloat),
    Text(Box<str>),
}

/// A borrowed [`Key`]; hashes and orders as that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum KeyRef<'a> {
    Integer(i64),
    Float(TotalFloat),
    Text(&'a str),
}

/// A float in IEEE 754's total order, with one NaN, which is the greatest. FLOAT is widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TotalFloat(i64);

impl TotalFloat {
    pub(super) fn new(value: f64) -> Self {
        let value = if value.is_nan() { f64::NAN } else { value };
        Self(flip(value.to_bits().cast_signed()))
    }

    /// Returns an integer that orders as the float does.
    pub(super) fn bits(self) -> i64 {
        self.0
    }

    /// Converts from [`Self::bits`].
    pub(super) fn from_bits(bits: i64) -> Self {
        Self(bits)
    }

    pub(super) fn get(self) -> f64 {
        f64::from_bits(flip(self.0).cast_unsigned())
    }
}

/// Converts the bits of a float to an integer that orders as the float does, by inverting the
/// magnitude bits of negative ones. Its own inverse.
fn flip(bits: i64) -> i64 {
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

impl<'a> KeyRef<'a> {
    /// Makes the key of a value; `None` for NULL, and for arrays and maps, which no signature
    /// admits.
    pub(super) fn of(value: Datum<'a>) -> Option<Self> {
        Some(match value {
            Datum::Bool(value) => Self::Integer(value.into()),
            Datum::Float(value) => Self::Float(TotalFloat::new(value.into())),
            Datum::Double(value) => Self::Float(TotalFloat::new(value)),
            Datum::String(text) => Self::Text(text),
            other => Self::Integer(other.as_i64()?),
        })
    }

    /// Makes the key of a value as [`KeyRef::of`] does, with one zero.
    pub(super) fn identity(value: Datum<'a>) -> Option<Self> {
        let key = Self::of(value)?;
        let negative_zero = Self::Float(TotalFloat::new(-0.0));
        Some(if key == negative_zero { Self::Float(TotalFloat::new(0.0)) } else { key })
    }

    /// Returns the bytes that the key has allocated when it is owned.
    pub(super) fn text_bytes(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Integer(_) | Self::Float(_) => 0,
        }
    }

    pub(super) fn to_key(self) -> Key {
        match self {
            Self::Integer(value) => Key::Integer(value),
            Self::Float(value) => Key::Float(value),
            Self::Text(text) => Key::Text(text.into()),
        }
    }

    /// Returns the value of a type that the key was made from.
    pub(super) fn datum(self, data_type: &DataType) -> Datum<'a> {
        match (self, data_type) {
            (Self::Integer(value), DataType::Bool) => Datum::Bool(value != 0),
            (Self::Integer(value), data_type) => wrapped_integer(value.into(), data_type),
            #[expect(clippy::cast_possible_truncation, reason = "the value was a FLOAT")]
            (Self::Float(value), DataType::Float) => Datum::Float(value.get() as f32),
            (Self::Float(value), _) => Datum::Double(value.get()),
            (Self::Text(text), _) => Datum::String(text),
        }
    }

    /// Returns the value as [`KeyRef::datum`] does, with its text copied to the arena.
    pub(super) fn datum_in<'b>(self, data_type: &DataType, arena: &'b Arena) -> Datum<'b> {
        match self {
            Self::Text(text) => Datum::String(arena.alloc_str(text)),
            Self::Integer(value) => KeyRef::Integer(value).datum(data_type),
            Self::Float(value) => KeyRef::Float(value).datum(data_type),
        }
    }
}

/// Returns the low bits of an integer as a value of an integer type, a TIMESTAMP or a DATE.
#[expect(clippy::cast_possible_truncation, reason = "documented: keeps the low bits")]
pub(super) fn wrapped_integer(value: i128, data_type: &DataType) -> Datum<'static> {
    match data_type {
        DataType::SmallInt => Datum::SmallInt(value as i16),
        DataType::Int => Datum::Int(value as i32),
        DataType::Date => Datum::Date(value as i32),
        DataType::Timestamp => Datum::Timestamp(value as i64),
        _ => Datum::BigInt(value as i64),
    }
}

impl Key {
    pub(super) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Integer(value) => KeyRef::Integer(*value),
            Self::Float(value) => KeyRef::Float(*value),
            Self::Text(text) => KeyRef::Text(text),
        }
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.as_ref()
    }
}
