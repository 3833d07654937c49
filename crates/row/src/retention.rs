//! How long an index keeps a row.
//!
//! Indexes are declared with it; `series` and `table` go by it. Stands alone, so that the checks
//! of `series` can be built without the rest of this crate.

/// How long an index keeps a row. `n` is the row's position within its entity key, newest first,
/// counted from 1; times are milliseconds. A zero means «no limit» for that component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Retention {
    /// Every row is kept.
    #[default]
    Forever,
    /// A row is expired when `event time + ttl_ms <= now`.
    Absolute {
        /// Time to live.
        ttl_ms: i64,
    },
    /// A row is expired when `n > latest`.
    Latest {
        /// Rows kept per entity key.
        latest: u64,
    },
    /// A row is expired when either says so; a zero component is ignored.
    AbsOrLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
    /// A row is expired when both say so; a zero component means it never is.
    AbsAndLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
}

impl Retention {
    /// Whether the row at position `n` (newest first, from 1) with this event time is expired.
    pub fn is_expired(self, event_time_ms: i64, n: u64, now_ms: i64) -> bool {
        let too_old = |ttl_ms: i64| ttl_ms > 0 && event_time_ms.saturating_add(ttl_ms) <= now_ms;
        let too_many = |latest: u64| latest > 0 && n > latest;
        match self {
            Self::Forever => false,
            Self::Absolute { ttl_ms } => too_old(ttl_ms),
            Self::Latest { latest } => too_many(latest),
            Self::AbsOrLat { ttl_ms, latest } => too_old(ttl_ms) || too_many(latest),
            Self::AbsAndLat { ttl_ms, latest } => too_old(ttl_ms) && too_many(latest),
        }
    }
}
