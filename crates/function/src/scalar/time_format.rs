//! `strftime` for `date_format`: the conversions of C in the C locale.

use std::fmt;

use lockstep_row::calendar::{self, Civil, TimeOfDay};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// An instant in a time zone, with its calendar fields.
pub(super) struct ZonedTime<'a> {
    /// The days since the epoch, in the zone.
    pub(super) days: i64,
    /// The time of day, in the zone.
    pub(super) time: TimeOfDay,
    /// The instant, in milliseconds.
    pub(super) utc_ms: i64,
    /// The minutes that the zone is ahead of UTC.
    pub(super) offset_minutes: i64,
    /// The zone's name.
    pub(super) zone: &'a str,
}

impl ZonedTime<'_> {
    /// Writes the time in a format. A conversion that C does not have is written as it is.
    pub(super) fn write(&self, format: &str, out: &mut dyn fmt::Write) -> fmt::Result {
        let mut rest = format;
        while let Some(position) = rest.find('%') {
            out.write_str(&rest[..position])?;
            let mut after = rest[position + 1..].chars();
            // `%E` and `%O` select alternative digits, which the C locale does not have.
            let mut conversion = after.next();
            if matches!(conversion, Some('E' | 'O')) {
                conversion = after.next();
            }
            match conversion {
                Some(conversion) => self.write_one(conversion, out)?,
                None => out.write_char('%')?,
            }
            rest = after.as_str();
        }
        out.write_str(rest)
    }

    fn write_one(&self, conversion: char, out: &mut dyn fmt::Write) -> fmt::Result {
        match conversion {
            'F' => self.write("%Y-%m-%d", out),
            'D' | 'x' => self.write("%m/%d/%y", out),
            'T' | 'X' => self.write("%H:%M:%S", out),
            'R' => self.write("%H:%M", out),
            'r' => self.write("%I:%M:%S %p", out),
            'c' => self.write("%a %b %e %H:%M:%S %Y", out),
            'n' => out.write_char('\n'),
            't' => out.write_char('\t'),
            '%' => out.write_char('%'),
            'H' | 'I' | 'k' | 'l' | 'M' | 'S' | 'p' | 'P' | 'z' | 'Z' | 's' => {
                self.write_time(conversion, out)
            }
            conversion => self.write_day(conversion, out),
        }
    }

    fn write_time(&self, conversion: char, out: &mut dyn fmt::Write) -> fmt::Result {
        let TimeOfDay { hour, minute, second, millisecond: _ } = self.time;
        let hour12 = (hour + 11) % 12 + 1;
        let offset = self.offset_minutes.unsigned_abs();
        match conversion {
            'H' => write!(out, "{hour:02}"),
            'I' => write!(out, "{hour12:02}"),
            'k' => write!(out, "{hour:2}"),
            'l' => write!(out, "{hour12:2}"),
            'M' => write!(out, "{minute:02}"),
            'S' => write!(out, "{second:02}"),
            'p' => out.write_str(if hour < 12 { "AM" } else { "PM" }),
            'P' => out.write_str(if hour < 12 { "am" } else { "pm" }),
            'z' => {
                let sign = if self.offset_minutes < 0 { '-' } else { '+' };
                write!(out, "{sign}{:02}{:02}", offset / 60, offset % 60)
            }
            'Z' => out.write_str(self.zone),
            _ => write!(out, "{}", self.utc_ms.div_euclid(1000)),
        }
    }

    fn write_day(&self, conversion: char, out: &mut dyn fmt::Write) -> fmt::Result {
        let Civil { year, month, day } = calendar::civil_from_days(self.days);
        let weekday = calendar::day_of_week(self.days);
        let day_of_year = calendar::day_of_year(self.days);
        let (iso_year, iso_week) = calendar::iso_week(self.days);
        let name_of_day = DAYS.get(weekday as usize).copied().unwrap_or_default();
        let name_of_month = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
        match conversion {
            'Y' => write!(out, "{year}"),
            'C' => write!(out, "{:02}", year.div_euclid(100)),
            'y' => write!(out, "{:02}", year.rem_euclid(100)),
            'm' => write!(out, "{month:02}"),
            'd' => write!(out, "{day:02}"),
            'e' => write!(out, "{day:2}"),
            'j' => write!(out, "{day_of_year:03}"),
            'a' => out.write_str(&name_of_day[..3]),
            'A' => out.write_str(name_of_day),
            'b' | 'h' => out.write_str(&name_of_month[..3]),
            'B' => out.write_str(name_of_month),
            'u' => write!(out, "{}", (weekday + 6) % 7 + 1),
            'w' => write!(out, "{weekday}"),
            'U' => write!(out, "{:02}", (day_of_year + 6 - weekday) / 7),
            'W' => write!(out, "{:02}", (day_of_year + 6 - (weekday + 6) % 7) / 7),
            'V' => write!(out, "{iso_week:02}"),
            'G' => write!(out, "{iso_year}"),
            'g' => write!(out, "{:02}", iso_year.rem_euclid(100)),
            other => write!(out, "%{other}"),
        }
    }
}
