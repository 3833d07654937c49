//! Retention (TTL): how long an index keeps a row.
//!
//! Indexes are declared with it; `series` and `table` apply it. Depends on no other file, so that the
//! checks of `series` can be built without the rest of this crate.

/// The rule by which an index keeps a row. `n` is the row's position within its entity key, newest first,
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
    /// A row is expired when it is by either component; a zero component is ignored.
    AbsOrLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
    /// A row is expired when it is by both components; a zero component means it never is.
    AbsAndLat {
        /// Time to live.
        ttl_ms: i64,
        /// Rows kept per entity key.
        latest: u64,
    },
}

impl Retention {
    /// Returns whether the row at position `n` (newest first, from 1) with this event time is expired.
    pub fn is_expired(self, event_time_ms: i64, n: u64, now_ms: i64) -> bool {
        debug_assert!(n > 0, "positions count from 1");
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

    /// Returns a rule that keeps every row that one of the two keeps.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        use Retention::{AbsAndLat, AbsOrLat, Absolute, Forever, Latest};
        match (self.simplified(), other.simplified()) {
            (Forever, _) | (_, Forever) => Forever,
            (Absolute { ttl_ms: l }, Absolute { ttl_ms: r } | AbsOrLat { ttl_ms: r, .. })
            | (AbsOrLat { ttl_ms: l, .. }, Absolute { ttl_ms: r }) => Absolute { ttl_ms: l.max(r) },
            (Latest { latest: l }, Latest { latest: r } | AbsOrLat { latest: r, .. })
            | (AbsOrLat { latest: l, .. }, Latest { latest: r }) => Latest { latest: l.max(r) },
            (Absolute { ttl_ms }, Latest { latest }) | (Latest { latest }, Absolute { ttl_ms }) => {
                AbsAndLat { ttl_ms, latest }
            }
            (AbsAndLat { ttl_ms: l, latest }, Absolute { ttl_ms: r })
            | (Absolute { ttl_ms: l }, AbsAndLat { ttl_ms: r, latest }) => {
                AbsAndLat { ttl_ms: l.max(r), latest }
            }
            (AbsAndLat { ttl_ms, latest: l }, Latest { latest: r })
            | (Latest { latest: l }, AbsAndLat { ttl_ms, latest: r }) => {
                AbsAndLat { ttl_ms, latest: l.max(r) }
            }
            (AbsOrLat { ttl_ms: l, latest: m }, AbsOrLat { ttl_ms: r, latest: n }) => {
                AbsOrLat { ttl_ms: l.max(r), latest: m.max(n) }
            }
            (
                AbsAndLat { ttl_ms: l, latest: m },
                AbsAndLat { ttl_ms: r, latest: n } | AbsOrLat { ttl_ms: r, latest: n },
            )
            | (AbsOrLat { ttl_ms: l, latest: m }, AbsAndLat { ttl_ms: r, latest: n }) => {
                AbsAndLat { ttl_ms: l.max(r), latest: m.max(n) }
            }
        }
    }

    /// Returns the same rule without components that have no effect.
    #[must_use]
    pub fn simplified(self) -> Self {
        match self {
            Self::Absolute { ttl_ms: 0 }
            | Self::Latest { latest: 0 }
            | Self::AbsOrLat { ttl_ms: 0, latest: 0 }
            | Self::AbsAndLat { ttl_ms: 0, .. }
            | Self::AbsAndLat { latest: 0, .. } => Self::Forever,
            Self::AbsOrLat { ttl_ms, latest: 0 } => Self::Absolute { ttl_ms },
            Self::AbsOrLat { ttl_ms: 0, latest } => Self::Latest { latest },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Retention::{self, AbsAndLat, AbsOrLat, Absolute, Forever, Latest};

    #[track_caller]
    fn check(left: Retention, right: Retention, expected: Retention) {
        assert_eq!(left.union(right), expected, "{left:?} with {right:?}");
        assert_eq!(right.union(left), expected, "{right:?} with {left:?}");
    }

    #[test]
    fn a_union_keeps_what_either_keeps() {
        let absolute = |ttl_ms| Absolute { ttl_ms };
        let latest = |latest| Latest { latest };
        let and = |ttl_ms, latest| AbsAndLat { ttl_ms, latest };
        let or = |ttl_ms, latest| AbsOrLat { ttl_ms, latest };
        check(absolute(1), absolute(2), absolute(2));
        check(latest(1), latest(2), latest(2));
        check(absolute(1), latest(2), and(1, 2));
        check(absolute(1), or(2, 9), absolute(2));
        check(latest(3), or(2, 9), latest(9));
        check(absolute(5), and(2, 9), and(5, 9));
        check(latest(5), and(2, 9), and(2, 9));
        check(and(1, 8), or(2, 4), and(2, 8));
        check(and(1, 8), and(2, 4), and(2, 8));
        check(or(1, 8), or(2, 4), or(2, 8));
        for other in [absolute(1), latest(1), and(1, 1), or(1, 1), Forever] {
            check(other, Forever, Forever);
            check(other, absolute(0), Forever);
            check(other, and(0, 4), Forever);
        }
        check(absolute(1), or(2, 0), absolute(2));
    }

    #[test]
    fn a_union_expires_only_what_both_expire() {
        let all = [
            Forever,
            Absolute { ttl_ms: 3 },
            Absolute { ttl_ms: 7 },
            Latest { latest: 2 },
            Latest { latest: 5 },
            AbsAndLat { ttl_ms: 4, latest: 3 },
            AbsOrLat { ttl_ms: 6, latest: 4 },
            AbsOrLat { ttl_ms: 0, latest: 4 },
        ];
        for left in all {
            for right in all {
                for (event_time, n) in (0..10).flat_map(|time| (1..8).map(move |n| (time, n))) {
                    let kept = |r: Retention| !r.is_expired(event_time, n, 10);
                    let merged = kept(left.union(right));
                    assert!(merged || !(kept(left) || kept(right)), "{left:?} with {right:?}");
                }
            }
        }
    }
}
