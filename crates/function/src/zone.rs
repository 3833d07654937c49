//! A session's time zone, prepared for conversion of each row.
//!
//! Casts and calendar functions capture a [`Zone`] when they are bound; UTC and other fixed
//! offsets then cost one addition, other zones a binary search in their list of transitions.

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone as _};
use chrono_tz::Tz;

use crate::settings::TimeZone;

/// A converter between milliseconds since the epoch and local milliseconds: the time that a clock
/// in the zone shows, counted as if it were UTC.
#[derive(Debug, Clone, Copy)]
pub struct Zone {
    offset_ms: i64,
    named: Option<Tz>,
}

impl Zone {
    /// Prepares a time zone.
    pub fn new(zone: impl Into<TimeZone>) -> Self {
        let zone = match zone.into() {
            TimeZone::Named(zone) => zone,
            TimeZone::Fixed { minutes } => {
                return Self { offset_ms: i64::from(minutes) * 60_000, named: None };
            }
        };
        let fixed = zone.name().starts_with("Etc/")
            || ["UTC", "GMT", "UCT", "Zulu", "Universal", "Greenwich", "GMT0", "GMT+0", "GMT-0"]
                .contains(&zone.name());
        Self { offset_ms: offset_ms(zone, 0), named: (!fixed).then_some(zone) }
    }

    /// Converts an instant to local milliseconds.
    pub fn to_local(self, utc_ms: i64) -> i64 {
        let offset = self.named.map_or(self.offset_ms, |zone| offset_ms(zone, utc_ms));
        utc_ms.saturating_add(offset)
    }

    /// Converts local milliseconds to an instant. A local time that occurs twice is the earlier
    /// instant; one that is skipped is converted with the offset from before the jump.
    pub fn to_utc(self, local_ms: i64) -> i64 {
        let Some(zone) = self.named else { return local_ms.saturating_sub(self.offset_ms) };
        let offset = naive(local_ms).and_then(|local| {
            let found = zone.offset_from_local_datetime(&local).earliest();
            found.map(|offset| i64::from(offset.fix().local_minus_utc()) * 1000)
        });
        let offset = offset.unwrap_or_else(|| offset_ms(zone, local_ms.saturating_sub(86_400_000)));
        local_ms.saturating_sub(offset)
    }

    /// Returns the milliseconds that the zone is ahead of UTC at an instant.
    pub fn offset_ms(self, utc_ms: i64) -> i64 {
        self.named.map_or(self.offset_ms, |zone| offset_ms(zone, utc_ms))
    }
}

/// Returns the offset of a zone at an instant; zero outside the years that chrono supports (about
/// ±262 000).
fn offset_ms(zone: Tz, utc_ms: i64) -> i64 {
    naive(utc_ms).map_or(0, |utc| {
        i64::from(zone.offset_from_utc_datetime(&utc).fix().local_minus_utc()) * 1000
    })
}

fn naive(ms: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_millis(ms).map(|instant| instant.naive_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(zone: impl Into<TimeZone>, utc_ms: i64, local_ms: i64) {
        let zone = zone.into();
        assert_eq!(Zone::new(zone).to_local(utc_ms), local_ms, "{zone} to local");
        assert_eq!(Zone::new(zone).to_utc(local_ms), utc_ms, "{zone} to UTC");
    }

    #[test]
    fn fixed_and_named_zones_agree_with_the_clock() {
        check(Tz::UTC, 1_590_115_420_000, 1_590_115_420_000);
        check(TimeZone::Fixed { minutes: 330 }, 1_590_115_420_000, 1_590_135_220_000);
        check(TimeZone::Fixed { minutes: -330 }, 1_590_135_220_000, 1_590_115_420_000);
        check(Tz::Etc__GMTMinus8, 1_590_115_420_000, 1_590_144_220_000);
        check(Tz::Asia__Shanghai, 1_590_115_420_000, 1_590_144_220_000);
        check(Tz::Europe__Berlin, 1_590_115_420_000, 1_590_122_620_000);
    }

    #[test]
    fn a_skipped_local_time_is_read_with_the_offset_before() {
        let zone = Zone::new(Tz::Europe__Berlin);
        // 2021-03-28 02:30 does not exist in Berlin; 01:30 UTC is what 02:30+01:00 means.
        assert_eq!(zone.to_utc(1_616_898_600_000), 1_616_895_000_000);
    }

    #[test]
    fn a_repeated_local_time_is_the_earlier_instant() {
        let zone = Zone::new(Tz::Europe__Berlin);
        // 2021-10-31 02:30 occurs at 00:30 UTC and at 01:30 UTC.
        assert_eq!(zone.to_utc(1_635_647_400_000), 1_635_640_200_000);
    }
}
