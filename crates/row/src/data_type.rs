//! The types of the dialect.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type of the dialect. `Null` is the type of the literal NULL, which adapts to its context.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataType {
    /// The type of a bare NULL.
    Null,
    /// BOOL.
    Bool,
    /// SMALLINT, 16 bits.
    SmallInt,
    /// INT, 32 bits.
    Int,
    /// BIGINT, 64 bits.
    BigInt,
    /// FLOAT, IEEE 754 binary32.
    Float,
    /// DOUBLE, IEEE 754 binary64.
    Double,
    /// STRING, UTF-8.
    String,
    /// TIMESTAMP, milliseconds since the epoch, UTC.
    Timestamp,
    /// DATE, days since the epoch.
    Date,
    /// ARRAY of one element type; in expressions only.
    Array(Box<Self>),
    /// MAP from a key type to a value type.
    Map(Box<Self>, Box<Self>),
}

impl DataType {
    /// Returns whether it is SMALLINT, INT or BIGINT.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::SmallInt | Self::Int | Self::BigInt)
    }

    /// Returns whether it is FLOAT or DOUBLE.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::Float | Self::Double)
    }

    /// Returns whether it is an integer or a float type.
    pub fn is_number(&self) -> bool {
        self.is_integer() || self.is_float()
    }

    /// Finds the type of an accepted spelling (`int`, `int32`, `i32`, `varchar`, …), in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let has_name = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
        NAMES.iter().find(|(_, names)| has_name(names)).map(|(data_type, _)| data_type.clone())
    }

    /// Returns the accepted spellings in lower case, the usual one first; none for the type of a bare
    /// NULL, an ARRAY and a MAP.
    pub fn names(&self) -> &'static [&'static str] {
        let found = NAMES.iter().find(|(data_type, _)| data_type == self);
        found.map_or(&[], |(_, names)| names)
    }

    /// Returns the types that have a name, in the order of the manual.
    pub fn named() -> impl Iterator<Item = Self> {
        debug_assert!(NAMES.iter().all(|(_, names)| !names.is_empty()), "each has a usual name");
        NAMES.iter().map(|(data_type, _)| data_type.clone())
    }
}

/// The types with their accepted spellings.
const NAMES: &[(DataType, &[&str])] = &[
    (DataType::Bool, &["bool", "boolean"]),
    (DataType::SmallInt, &["smallint", "int16", "i16", "int2"]),
    (DataType::Int, &["int", "integer", "int32", "i32", "int4"]),
    (DataType::BigInt, &["bigint", "int64", "i64", "int8"]),
    (DataType::Float, &["float", "float32", "float4", "real"]),
    (DataType::Double, &["double", "float64", "float8"]),
    (DataType::String, &["string", "varchar", "text"]),
    (DataType::Timestamp, &["timestamp", "datetime", "timestamptz"]),
    (DataType::Date, &["date"]),
];

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool => f.write_str("BOOL"),
            Self::SmallInt => f.write_str("SMALLINT"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::String => f.write_str("STRING"),
            Self::Timestamp => f.write_str("TIMESTAMP"),
            Self::Date => f.write_str("DATE"),
            Self::Array(element) => write!(f, "ARRAY<{element}>"),
            Self::Map(key, value) => write!(f, "MAP<{key}, {value}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DataType;

    #[test]
    fn every_spelling_means_its_type_in_any_case() {
        for data_type in DataType::named() {
            assert_eq!(data_type.to_string().to_lowercase(), data_type.names()[0]);
            for name in data_type.names() {
                assert_eq!(DataType::from_name(name), Some(data_type.clone()), "{name}");
                assert_eq!(DataType::from_name(&name.to_uppercase()), Some(data_type.clone()));
            }
        }
        assert_eq!(DataType::from_name("decimal"), None);
        assert!(DataType::Null.names().is_empty());
    }
}
