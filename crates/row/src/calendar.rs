//! Calendar arithmetic of TIMESTAMP and DATE: the proleptic Gregorian calendar, no time zone.
//!
//! `function` builds casts, printing and the calendar functions on it; loaders and key encoders
//! may use it too. Days are counted from 1970-01-01 (day 0); every function is total over the
//! range it names and allocates nothing.

use std::fmt;

/// Milliseconds of a day.
pub const DAY_MS: i64 = 86_400_000;

/// The first and the last day of the range the calendar is exact in: about ±290 million years,
/// which holds every TIMESTAMP and every DATE.
const DAYS_MAX: i64 = 110_000_000_000;

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Civil {
    /// The year; 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TimeOfDay {
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// 0 to 999.
    pub millisecond: u32,
}

impl TimeOfDay {
    /// Returns the milliseconds since midnight.
    pub fn to_ms(self) -> i64 {
        ((i64::from(self.hour) * 60 + i64::from(self.minute)) * 60 + i64::from(self.second)) * 1000
            + i64::from(self.millisecond)
    }
}

/// Returns the calendar day of a day number. Algorithm: eras of 400 years that begin on 1 March, so that
/// the leap day is the last day of a year.
pub fn civil_from_days(days: i64) -> Civil {
    debug_assert!(days.abs() <= DAYS_MAX, "every TIMESTAMP and DATE lies within the calendar");
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = small(day_of_year - (153 * shifted_month + 2) / 5 + 1);
    let month = small(if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    debug_assert!((1..=12).contains(&month), "months count from 1 to 12");
    debug_assert!((1..=31).contains(&day), "days count from 1 to 31");
    Civil { year, month, day }
}

/// Returns the day number of a calendar day. The inverse of [`civil_from_days`]; `month` must be 1 to 12,
/// a `day` past the month's end runs on into the next month.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    debug_assert!((1..=12).contains(&month), "months count from 1 to 12");
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the day number of a calendar day, or `None` where there is no such day.
pub fn try_days_from_civil(year: i64, month: u32, day: u32) -> Option<i64> {
    let exists = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    exists.then(|| days_from_civil(year, month, day))
}

/// Returns whether a year has a 29 February.
pub fn is_leap_year(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Returns the number of days of a month; `month` is 1 to 12.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    debug_assert!((1..=12).contains(&month), "months count from 1 to 12");
    match month {
        2 => 28 + u32::from(is_leap_year(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the day of the week, 0 = Sunday to 6 = Saturday.
pub fn day_of_week(days: i64) -> u32 {
    small((days + 4).rem_euclid(7))
}

/// Returns the day of the year, 1 to 366.
pub fn day_of_year(days: i64) -> u32 {
    small(days - days_from_civil(civil_from_days(days).year, 1, 1) + 1)
}

/// Returns the week of ISO 8601: the year it belongs to, and its number, 1 to 53. Weeks begin on Monday;
/// week 1 holds the year's first Thursday.
pub fn iso_week(days: i64) -> (i64, u32) {
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    (civil_from_days(thursday).year, (day_of_year(thursday) - 1) / 7 + 1)
}

/// Returns the last day of the month of a day.
pub fn last_day_of_month(days: i64) -> i64 {
    let civil = civil_from_days(days);
    days_from_civil(civil.year, civil.month, days_in_month(civil.year, civil.month))
}

/// Moves a day by calendar months; a day past the new month's end becomes that month's last day.
/// `None` beyond the calendar.
pub fn add_months(days: i64, months: i64) -> Option<i64> {
    let civil = civil_from_days(days);
    let count = civil.year.checked_mul(12)?.checked_add(i64::from(civil.month) - 1)?;
    let count = count.checked_add(months)?;
    let (year, month) = (count.div_euclid(12), small(count.rem_euclid(12)) + 1);
    if year.abs() > DAYS_MAX / 366 {
        return None;
    }
    Some(days_from_civil(year, month, civil.day.min(days_in_month(year, month))))
}

/// Splits milliseconds since the epoch into the day and the time of day.
pub fn split_ms(ms: i64) -> (i64, TimeOfDay) {
    let rest = ms.rem_euclid(DAY_MS);
    let time = TimeOfDay {
        hour: small(rest / 3_600_000),
        minute: small(rest / 60_000 % 60),
        second: small(rest / 1000 % 60),
        millisecond: small(rest % 1000),
    };
    (ms.div_euclid(DAY_MS), time)
}

/// Returns OpenMLDB's 32-bit code of a day, `(year-1900)<<16 | (month-1)<<8 | day`, which `hash64`
/// hashes. `None` where the year does not fit.
pub fn date_code(days: i32) -> Option<i32> {
    let civil = civil_from_days(i64::from(days));
    let year =
        i32::try_from(civil.year - 1900).ok().filter(|year| (-32768..32768).contains(year))?;
    let month = i32::try_from(civil.month - 1).ok()?;
    Some(year << 16 | month << 8 | i32::try_from(civil.day).ok()?)
}

/// Returns the day of a code made by [`date_code`]; `None` for a code of no day.
pub fn date_from_code(code: i32) -> Option<i32> {
    let year = i64::from(code >> 16) + 1900;
    let month = u32::try_from((code >> 8) & 0xff).ok()? + 1;
    let day = u32::try_from(code & 0xff).ok()?;
    i32::try_from(try_days_from_civil(year, month, day)?).ok()
}

/// Parses `YYYY-MM-DD` or `YYYYMMDD`, the whole text, as a day number; `None` for everything else.
/// Before hyphens, a year may have more digits and a sign, as [`write_date`] writes them.
pub fn parse_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    match bytes.len() {
        10 if bytes[4] == b'-' && bytes[7] == b'-' && bytes[0].is_ascii_digit() => {
            let year = digits(&bytes[..4])?;
            try_days_from_civil(i64::from(year), digits(&bytes[5..7])?, digits(&bytes[8..])?)
        }
        8 if bytes[0].is_ascii_digit() => {
            let year = digits(&bytes[..4])?;
            try_days_from_civil(i64::from(year), digits(&bytes[4..6])?, digits(&bytes[6..])?)
        }
        _ => parse_far_date(bytes),
    }
}

/// Parses a date whose year has a sign, or more than four digits.
fn parse_far_date(bytes: &[u8]) -> Option<i64> {
    let (is_negative, bytes) = match bytes.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, bytes),
    };
    let year_digits = bytes.len().checked_sub("-MM-DD".len())?;
    let (year, rest) = bytes.split_at(year_digits);
    if !(4..=9).contains(&year.len()) || rest[0] != b'-' || rest[3] != b'-' {
        return None;
    }
    let year = i64::from(digits(year)?);
    let year = if is_negative { -year } else { year };
    let days = try_days_from_civil(year, digits(&rest[1..3])?, digits(&rest[4..])?)?;
    (days.abs() <= DAYS_MAX).then_some(days)
}

/// Writes a day as `YYYY-MM-DD`: a year of at least four digits, with a minus before year 0.
pub fn write_date(days: i64, out: &mut dyn fmt::Write) -> fmt::Result {
    let Civil { year, month, day } = civil_from_days(days);
    let sign = if year < 0 { "-" } else { "" };
    write!(out, "{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs())
}

/// Parses `HH:MM` or `HH:MM:SS`, the latter optionally followed by a point and digits of a second,
/// which are truncated to the millisecond; `None` for everything else.
pub fn parse_time(text: &str) -> Option<TimeOfDay> {
    let bytes = text.as_bytes();
    let has_second = bytes.len() >= 8 && bytes[5] == b':';
    if !(has_second || bytes.len() == 5) || bytes[2] != b':' {
        return None;
    }
    let hour = digits(&bytes[..2]).filter(|hour| *hour < 24)?;
    let minute = digits(&bytes[3..5]).filter(|minute| *minute < 60)?;
    if !has_second {
        return Some(TimeOfDay { hour, minute, ..TimeOfDay::default() });
    }
    let second = digits(&bytes[6..8]).filter(|second| *second < 60)?;
    let millisecond = match &bytes[8..] {
        [] => 0,
        [b'.', fraction @ ..]
            if !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit) =>
        {
            let mut padded = [b'0'; 3];
            let kept = fraction.len().min(3);
            padded[..kept].copy_from_slice(&fraction[..kept]);
            digits(&padded)?
        }
        _ => return None,
    };
    Some(TimeOfDay { hour, minute, second, millisecond })
}

/// Parses at most nine ASCII digits as a number.
fn digits(bytes: &[u8]) -> Option<u32> {
    debug_assert!(bytes.len() <= 9, "nine digits fit in 32 bits");
    bytes.iter().try_fold(0_u32, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })
}

/// Converts a part of a date or time, which the callers have reduced to a small range.
fn small(part: i64) -> u32 {
    u32::try_from(part).expect("a remainder by a small positive number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_civil_days_are_inverse() {
        for days in (-1_000_000..1_000_000).step_by(37).chain([-DAYS_MAX, DAYS_MAX, -1, 0, 1]) {
            let civil = civil_from_days(days);
            assert_eq!(try_days_from_civil(civil.year, civil.month, civil.day), Some(days));
        }
        assert_eq!(civil_from_days(0), Civil { year: 1970, month: 1, day: 1 });
        assert_eq!(civil_from_days(18_404), Civil { year: 2020, month: 5, day: 22 });
        assert_eq!(civil_from_days(-1), Civil { year: 1969, month: 12, day: 31 });
    }

    #[test]
    fn weeks_follow_iso_8601() {
        let check = |text: &str, expected: (i64, u32)| {
            assert_eq!(iso_week(parse_date(text).expect("a date")), expected, "{text}");
        };
        check("2020-05-24", (2020, 21));
        check("2020-05-25", (2020, 22));
        check("2021-01-03", (2020, 53));
        check("2021-01-04", (2021, 1));
        check("2018-12-31", (2019, 1));
        assert_eq!(day_of_week(parse_date("1900-06-21").unwrap()), 4);
        assert_eq!(day_of_year(parse_date("2020-12-31").unwrap()), 366);
    }

    #[test]
    fn months_clip_to_the_last_day() {
        let check = |text: &str, months: i64, expected: &str| {
            assert_eq!(add_months(parse_date(text).unwrap(), months), parse_date(expected));
        };
        check("2020-01-31", 1, "2020-02-29");
        check("2020-02-29", 12, "2021-02-28");
        check("2020-01-31", -2, "2019-11-30");
        assert_eq!(add_months(0, i64::MAX), None);
        let february = parse_date("1900-02-01").map(last_day_of_month);
        assert_eq!(february, parse_date("1900-02-28"));
    }

    #[test]
    fn only_whole_dates_are_read() {
        assert_eq!(parse_date("20200522"), Some(18_404));
        assert_eq!(parse_date("+2020-05-22"), Some(18_404));
        for text in ["", "2020-5-22", "2020-02-30", "2020-13-01", "2020-05-22 ", "+2020522", "２"]
        {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in ["-12-31", "--12-31", "999-12-31", "9999999999-12-31", "999999999-12-31"] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        assert_eq!(parse_time("10:43:40").map(TimeOfDay::to_ms), Some(38_620_000));
        assert_eq!(parse_time("10:43:40.1").map(TimeOfDay::to_ms), Some(38_620_100));
        assert_eq!(parse_time("10:43").map(TimeOfDay::to_ms), Some(38_580_000));
        let long = format!("10:43:40.{}", "1".repeat(100));
        assert_eq!(parse_time(&long).map(TimeOfDay::to_ms), Some(38_620_111));
        for text in ["24:00:00", "10:43:40.", "10:43:4", "10:43.5", "10:43:40.0x", "1０:43"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn every_written_date_is_read_again() {
        for days in
            (-2_200_000_000_i64..2_200_000_000).step_by(9_999_991).chain([-719_529, -719_528])
        {
            let mut text = String::new();
            write_date(days, &mut text).unwrap();
            assert_eq!(parse_date(&text), Some(days), "{text}");
        }
    }

    #[test]
    fn codes_are_those_of_openmldb() {
        assert_eq!(date_code(18_404), Some((120 << 16) | (4 << 8) | 22));
        assert_eq!(date_from_code((120 << 16) | (4 << 8) | 22), Some(18_404));
        assert_eq!(date_from_code(0), None);
    }

    #[test]
    fn times_before_the_epoch_split_downwards() {
        let (days, time) = split_ms(-1);
        assert_eq!((days, time.hour, time.millisecond), (-1, 23, 999));
        assert_eq!(split_ms(i64::MIN).0, i64::MIN.div_euclid(DAY_MS));
    }
}
