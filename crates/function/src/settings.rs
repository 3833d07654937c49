//! The session settings that functions depend on.

use std::fmt;

use chrono_tz::Tz;

/// The greatest fixed offset from UTC, in minutes.
const OFFSET_MINUTES_MAX: i16 = 18 * 60;

/// A time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeZone {
    /// A zone of the IANA database, whose offset changes.
    Named(Tz),
    /// A fixed offset.
    Fixed {
        /// The minutes that it is ahead of UTC.
        minutes: i16,
    },
}

impl TimeZone {
    /// Reads the name of a zone in any case, or an offset from UTC such as `+08:00`, `-3` or
    /// `+0530`.
    pub fn parse(text: &str) -> Option<Self> {
        let named =
            chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(text));
        named.map(|zone| Self::Named(*zone)).or_else(|| Self::parse_offset(text))
    }

    fn parse_offset(text: &str) -> Option<Self> {
        let (sign, digits) = match text.split_at_checked(1)? {
            ("+", digits) => (1, digits),
            ("-", digits) => (-1, digits),
            _ => return None,
        };
        let (hours, minutes) = match (digits.split_once(':'), digits.len()) {
            (Some(parts), _) => parts,
            (None, 4) if digits.is_ascii() => digits.split_at(2),
            (None, _) => (digits, "00"),
        };
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(hours) || !matches!(hours.len(), 1 | 2) {
            return None;
        }
        if !is_number(minutes) || minutes.len() != 2 {
            return None;
        }
        let (hours, minutes) = (hours.parse::<i16>().ok()?, minutes.parse::<i16>().ok()?);
        let away = hours * 60 + minutes;
        (minutes < 60 && away <= OFFSET_MINUTES_MAX).then_some(Self::Fixed { minutes: sign * away })
    }
}

impl From<Tz> for TimeZone {
    fn from(zone: Tz) -> Self {
        Self::Named(zone)
    }
}

/// Prints the name, or the offset as `+08:00`.
impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(zone) => f.write_str(zone.name()),
            Self::Fixed { minutes } => {
                let sign = if *minutes < 0 { '-' } else { '+' };
                let away = minutes.abs();
                write!(f, "{sign}{:02}:{:02}", away / 60, away % 60)
            }
        }
    }
}

/// Whether results follow OpenMLDB where it is known to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Compatibility {
    /// The correct result.
    #[default]
    Standard,
    /// `SET compatibility = 'openmldb'`: OpenMLDB's result, bugs included.
    OpenMldb,
}

/// The settings that functions are bound with; stored with a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The time zone in which a TIMESTAMP is parsed, printed and split into calendar fields.
    pub time_zone: TimeZone,
    /// Whose results the functions have.
    pub compatibility: Compatibility,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time_zone: TimeZone::Named(Tz::UTC), compatibility: Compatibility::Standard }
    }
}

#[cfg(test)]
mod tests {
    use super::TimeZone;

    #[test]
    fn a_time_zone_is_a_name_or_an_offset() {
        let check = |text: &str, shown: Option<&str>| {
            let zone = TimeZone::parse(text).map(|zone| zone.to_string());
            assert_eq!(zone.as_deref(), shown, "{text}");
        };
        check("utc", Some("UTC"));
        check("asia/shanghai", Some("Asia/Shanghai"));
        check("+08:00", Some("+08:00"));
        check("+8", Some("+08:00"));
        check("-03:30", Some("-03:30"));
        check("+0545", Some("+05:45"));
        check("-00:00", Some("+00:00"));
        check("+18:00", Some("+18:00"));
        for wrong in ["+18:01", "+08:60", "+8:0", "+", "+:30", "08:00", "+080", "+0+1", "é", ""] {
            check(wrong, None);
        }
    }
}
