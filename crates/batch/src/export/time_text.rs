//! The text of a TIMESTAMP in files that are written, which is read back as the same instant in a
//! session of any time zone: in CSV, JSON and the names of folders.

use std::fmt;

use lockstep_function::{Compatibility, Settings, Zone};
use lockstep_row::calendar::{TimeOfDay, split_ms, write_date};

/// A writer of times.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeText {
    zone: Zone,
    /// Whether a time is an integer of milliseconds, as OpenMLDB writes it.
    pub(super) is_integer: bool,
}

impl TimeText {
    /// Makes a writer with a session's settings.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
    pub(super) fn new(settings: &Settings) -> Self {
        let is_integer = settings.compatibility == Compatibility::OpenMldb;
        Self { zone: Zone::new(settings.time_zone), is_integer }
    }

    /// Writes ISO 8601 with the zone's offset; in UTC if the offset has seconds, as those of the
    /// nineteenth century do.
    pub(super) fn write(self, ms: i64, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.is_integer {
            return write!(out, "{ms}");
        }
        let offset_ms = self.zone.offset_ms(ms);
        let offset_minutes = if offset_ms % 60_000 == 0 { offset_ms / 60_000 } else { 0 };
        let local = ms.checked_add(offset_minutes * 60_000);
        let offset_minutes = local.map_or(0, |_| offset_minutes);
        let (days, time) = split_ms(local.unwrap_or(ms));
        write_date(days, out)?;
        let TimeOfDay { hour, minute, second, millisecond } = time;
        write!(out, "T{hour:02}:{minute:02}:{second:02}.{millisecond:03}")?;
        if offset_minutes == 0 {
            return out.write_char('Z');
        }
        let sign = if offset_minutes < 0 { '-' } else { '+' };
        let minutes = offset_minutes.abs();
        write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use lockstep_function::{Settings, TimeZone, cast::parse_timestamp};

    use super::TimeText;

    #[test]
    fn every_written_time_is_the_same_instant_in_any_zone() {
        let zone = |name| Settings {
            time_zone: TimeZone::parse(name).expect("a zone"),
            ..Settings::default()
        };
        let zones = ["UTC", "America/Chicago", "Asia/Kolkata", "Europe/Madrid", "-03:30"];
        // The two hours that Chicago repeats, and the ends of what TIMESTAMP holds.
        let repeated = [1_730_614_500_000, 1_730_618_100_000];
        let times = [i64::MIN, -4_000_000_000_000, -1, 0, i64::MAX];
        for ms in repeated.into_iter().chain(times) {
            for written in zones.map(zone) {
                let mut text = String::new();
                TimeText::new(&written).write(ms, &mut text).unwrap();
                for read in zones.map(zone) {
                    assert_eq!(parse_timestamp(&text, &read), Some(ms), "{text}");
                }
            }
        }
    }
}
