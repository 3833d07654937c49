//! Calendar arithmetic of TIMESTAMP and DATE.

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;
