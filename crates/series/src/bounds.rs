//! The bounds of a reader: it sees the rows of a key that arrived before its snapshot and are not
//! expired.

use lockstep_row::Retention;

/// The rows that a reader sees.
///
/// Expiry is monotone in a key: when a row is expired, so is every older one. A reader stops at
/// the first.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Rows with a smaller arrival are visible.
    visible: u64,
    expiry: Expiry,
}

/// A [`Retention`] at a given time. A row is too old when its event time is less than
/// `event_time_min`, and exceeds the number to be kept when its position is more than `latest`.
#[derive(Debug, Clone, Copy)]
enum Expiry {
    Never,
    Either { event_time_min: i64, latest: u64 },
    Both { event_time_min: i64, latest: u64 },
}

impl Bounds {
    /// Makes bounds that show the rows with an arrival less than `visible` that `retention` keeps at
    /// `now_ms`.
    pub fn new(visible: u64, retention: Retention, now_ms: i64) -> Self {
        let event_time_min = |ttl_ms: i64| {
            if ttl_ms <= 0 {
                return i64::MIN;
            }
            // When the difference is out of range, no row is old enough.
            now_ms.checked_sub(ttl_ms).map_or(i64::MIN, |last| last.saturating_add(1))
        };
        let latest_or_all = |latest: u64| if latest == 0 { u64::MAX } else { latest };
        let expiry = match retention {
            Retention::Forever => Expiry::Never,
            Retention::Absolute { ttl_ms } => {
                Expiry::Either { event_time_min: event_time_min(ttl_ms), latest: u64::MAX }
            }
            Retention::Latest { latest } => {
                Expiry::Either { event_time_min: i64::MIN, latest: latest_or_all(latest) }
            }
            Retention::AbsOrLat { ttl_ms, latest } => Expiry::Either {
                event_time_min: event_time_min(ttl_ms),
                latest: latest_or_all(latest),
            },
            Retention::AbsAndLat { ttl_ms, latest } => Expiry::Both {
                event_time_min: event_time_min(ttl_ms),
                latest: latest_or_all(latest),
            },
        };
        Self { visible, expiry }
    }

    /// Makes bounds that show every row, of whatever arrival.
    pub fn everything() -> Self {
        Self { visible: u64::MAX, expiry: Expiry::Never }
    }

    /// Makes bounds that show every row with an arrival less than `visible`.
    pub fn visible(visible: u64) -> Self {
        Self { visible, expiry: Expiry::Never }
    }

    /// Returns the arrival below which rows are visible.
    pub(crate) fn visible_end(&self) -> u64 {
        self.visible
    }

    /// Returns whether a row with this arrival is visible.
    #[inline]
    pub(crate) fn is_visible(&self, arrival: u64) -> bool {
        arrival < self.visible
    }

    /// Returns whether no row expires.
    pub fn keeps_everything(&self) -> bool {
        matches!(self.expiry, Expiry::Never)
    }

    /// Returns whether the visible row at position `n` (newest first, from 1) is expired.
    #[inline]
    pub fn is_expired(&self, event_time: i64, n: u64) -> bool {
        debug_assert!(n > 0, "positions count from 1");
        match self.expiry {
            Expiry::Never => false,
            Expiry::Either { event_time_min, latest } => event_time < event_time_min || n > latest,
            Expiry::Both { event_time_min, latest } => event_time < event_time_min && n > latest,
        }
    }

    /// Returns the least event time of rows that have not expired by their time alone.
    pub fn event_time_min(&self) -> i64 {
        match self.expiry {
            Expiry::Never | Expiry::Both { .. } => i64::MIN,
            Expiry::Either { event_time_min, .. } => event_time_min,
        }
    }

    /// Returns whether every row after the first `passed` is expired, whatever its event time.
    pub fn is_exhausted(&self, passed: u64) -> bool {
        matches!(self.expiry, Expiry::Either { latest, .. } if passed >= latest)
    }

    /// Returns whether retention goes by position, so that rows must be counted when they are skipped.
    #[inline]
    pub fn counts_rows(&self) -> bool {
        match self.expiry {
            Expiry::Never => false,
            Expiry::Either { latest, .. } => latest != u64::MAX,
            Expiry::Both { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::Retention;
    use proptest::prelude::*;

    use super::Bounds;

    fn check(retention: Retention, event_time: i64, n: u64, now_ms: i64) {
        let bounds = Bounds::new(u64::MAX, retention, now_ms);
        let expected = retention.is_expired(event_time, n, now_ms);
        assert_eq!(bounds.is_expired(event_time, n), expected, "{retention:?} {event_time} {n}");
    }

    proptest! {
        #[test]
        fn bounds_say_what_retention_says(
            event_time in prop_oneof![-5_i64..15, Just(i64::MIN), Just(i64::MAX)],
            now_ms in prop_oneof![-5_i64..15, Just(i64::MIN), Just(i64::MAX - 1)],
            ttl_ms in 0_i64..10,
            latest in 0_u64..4,
            n in 1_u64..6,
        ) {
            check(Retention::Forever, event_time, n, now_ms);
            check(Retention::Absolute { ttl_ms }, event_time, n, now_ms);
            check(Retention::Latest { latest }, event_time, n, now_ms);
            check(Retention::AbsOrLat { ttl_ms, latest }, event_time, n, now_ms);
            check(Retention::AbsAndLat { ttl_ms, latest }, event_time, n, now_ms);
        }
    }
}
