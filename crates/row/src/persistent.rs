//! Parts of the stored form of schemas and values that `serde` does not derive by itself.
//!
//! `table` and `engine` store schemas, rules and constants in the log and in checkpoints, as JSON.
//! The names here are part of the format of a database directory: a name may be added, none changed.

use serde::{Deserialize, Serialize};

use crate::Retention;

/// The stored form of [`Retention`], for `#[serde(with = "RetentionRecord")]`. `retention.rs` derives
/// none, since the checks of `series` are built with it alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(remote = "Retention")]
pub enum RetentionRecord {
    /// Every row is kept.
    Forever,
    /// By age.
    Absolute {
        /// Time to live.
        ttl_ms: i64,
    },
    /// By number.
    Latest {
        /// Rows kept per entity key.
        latest: u64,
    },
    /// By either.
    AbsOrLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
    /// By both.
    AbsAndLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
}

/// A FLOAT as its bits: JSON has neither NaN nor infinity.
pub(crate) mod float_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        u32::deserialize(from).map(f32::from_bits)
    }
}

/// A DOUBLE as its bits.
pub(crate) mod double_bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}
