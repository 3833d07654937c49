//! Functions of dates and times. Calendar fields are in the session's time zone; a BIGINT is
//! milliseconds since the epoch.

use bumpalo::collections::String as ArenaString;
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{
    DataType, Datum,
    calendar::{self, Civil, DAY_MS, TimeOfDay},
};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    signature::{
        DATE_OR_TIMESTAMP, DAY, INSTANT, INTEGER, READABLE_DATE, TEXT, constant_text, expect,
        type_or,
    },
    time_format::ZonedTime,
};
use crate::{Compatibility, cast::parse_date, value_limit, zone::Zone};

/// Last year of a DATE that a function computes.
const YEAR_MAX: i64 = 9999;

macro_rules! time {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "date and time",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    time!(
        "year",
        &[],
        "year(time) → INT",
        "Returns the year of `time`, a TIMESTAMP, a DATE or BIGINT milliseconds.",
        &[("year(date('2020-05-22'))", "2020")],
        |arguments| of_day(arguments, |days| calendar::civil_from_days(days).year)
    ),
    time!(
        "quarter",
        &[],
        "quarter(time) → INT",
        "Returns the quarter (1 to 4) of `time`.",
        &[("quarter(date('2020-05-22'))", "2")],
        |arguments| of_day(arguments, |days| i64::from(
            (calendar::civil_from_days(days).month - 1) / 3 + 1
        ))
    ),
    time!(
        "month",
        &[],
        "month(time) → INT",
        "Returns the month (1 to 12) of `time`.",
        &[("month(date('2020-05-22'))", "5")],
        |arguments| of_day(arguments, |days| i64::from(calendar::civil_from_days(days).month))
    ),
    time!(
        "dayofmonth",
        &["day"],
        "dayofmonth(time) → INT",
        "Returns the day of the month (1 to 31) of `time`.",
        &[("day(date('2020-05-22'))", "22")],
        |arguments| of_day(arguments, |days| i64::from(calendar::civil_from_days(days).day))
    ),
    time!(
        "dayofweek",
        &[],
        "dayofweek(time) → INT",
        "Returns the day of the week, 1 (Sunday) to 7 (Saturday), of `time`.",
        &[("dayofweek(date('2020-05-20'))", "4")],
        |arguments| of_day(arguments, |days| i64::from(calendar::day_of_week(days)) + 1)
    ),
    time!(
        "dayofyear",
        &[],
        "dayofyear(time) → INT",
        "Returns the day of the year (1 to 366) of `time`.",
        &[("dayofyear(date('2020-12-31'))", "366")],
        dayofyear
    ),
    time!(
        "weekofyear",
        &["week"],
        "weekofyear(time) → INT",
        "Returns the ISO 8601 week (1 to 53) of `time`. Weeks start on Monday.",
        &[("week(date('2020-05-24'))", "21"), ("week(date('2020-05-25'))", "22")],
        |arguments| of_day(arguments, |days| i64::from(calendar::iso_week(days).1))
    ),
    time!(
        "hour",
        &[],
        "hour(time) → INT",
        "Returns the hour (0 to 23) of `time`, a TIMESTAMP or BIGINT milliseconds.",
        &[("hour(timestamp('2020-05-22 10:43:40'))", "10")],
        |arguments| of_time(arguments, |time| time.hour)
    ),
    time!(
        "minute",
        &[],
        "minute(time) → INT",
        "Returns the minute (0 to 59) of `time`, a TIMESTAMP or BIGINT milliseconds.",
        &[("minute(timestamp('2020-05-22 10:43:40'))", "43")],
        |arguments| of_time(arguments, |time| time.minute)
    ),
    time!(
        "second",
        &[],
        "second(time) → INT",
        "Returns the second (0 to 59) of `time`, a TIMESTAMP or BIGINT milliseconds.",
        &[("second(timestamp('2020-05-22 10:43:40'))", "40")],
        |arguments| of_time(arguments, |time| time.second)
    ),
    time!(
        "last_day",
        &[],
        "last_day(time) → DATE",
        "Returns the last day of the month of `time`.",
        &[("last_day(date('2020-02-10'))", "2020-02-29")],
        last_day
    ),
    time!(
        "datediff",
        &[],
        "datediff(later, earlier) → INT",
        "Returns the number of days from `earlier` to `later`, which is negative if `later` is before `earlier`. A STRING or TIMESTAMP is converted to DATE. NULL if a STRING is not a date.",
        &[
            ("datediff(date('2020-05-22'), '2020-05-20')", "2"),
            ("datediff('20200501', '20200531')", "-30"),
            ("datediff('x', '20200531')", "NULL")
        ],
        datediff
    ),
    time!(
        "unix_timestamp",
        &[],
        "unix_timestamp(time) → BIGINT",
        "Returns the number of seconds from 1970-01-01 00:00:00 UTC to `time`, rounded down: to a TIMESTAMP, to midnight of a DATE, or to a STRING in the form of either. NULL if a STRING has neither form.",
        &[("unix_timestamp('1970-01-01 00:01:00')", "60"), ("unix_timestamp('')", "NULL")],
        unix_timestamp
    ),
    time!(
        "add_months",
        &[],
        "add_months(date, months INT) → DATE",
        "Returns `date` plus `months` months, or the last day of the resulting month if that is earlier. NULL outside the years 1 to 9999. A STRING is converted to DATE as by CAST; a constant STRING that is not a date is an error.",
        &[
            ("add_months(date('2020-01-31'), 1)", "2020-02-29"),
            ("add_months(date('2020-03-31'), -1)", "2020-02-29"),
            ("add_months('2020-01-31', 1)", "2020-02-29"),
            ("add_months(date('2020-01-31'), 1000000)", "NULL")
        ],
        add_months
    ),
    time!(
        "timestampadd",
        &["timestamp_add", "date_add"],
        "timestampadd(unit STRING, count INT|BIGINT, time) → the type of `time`",
        "Returns `time` plus `count` units, or the last day of the resulting month if that is earlier; the time of day does not change. `unit` is `year`, `quarter`, `month`, `week`, `day`, `hour`, `minute` or `second`. For a DATE, `unit` must be a day or longer, and the result is NULL outside the years 1 to 9999.",
        &[
            ("timestampadd('second', 90, timestamp('2020-05-22 10:43:40'))", "2020-05-22 10:45:10"),
            ("timestampadd('month', 1, date('2020-01-31'))", "2020-02-29"),
            ("timestampadd('week', -1, date('2020-05-22'))", "2020-05-15")
        ],
        timestamp_add
    ),
    time!(
        "now",
        &["current_timestamp"],
        "now() → TIMESTAMP",
        "Returns the time at which the row is computed: in batch mode when the query runs, in request mode when the request is answered. A feature that uses it therefore differs between the two modes; a feature that uses the event time does not. `current_timestamp` needs no parentheses.",
        &[("now() > timestamp('2020-01-01')", "true")],
        now
    ),
    time!(
        "current_date",
        &[],
        "current_date() → DATE",
        "Returns the day of `now()` in the session's time zone. `current_date` needs no parentheses.",
        &[("current_date() > date('2020-01-01')", "true")],
        current_date
    ),
    time!(
        "date_format",
        &[],
        "date_format(time, format STRING) → STRING",
        "Returns `time`, a TIMESTAMP or DATE, in the format `format`, with the conversions of C's `strftime`. A conversion that C does not have is copied unchanged.",
        &[
            (
                "date_format(timestamp('2020-05-29 15:56:29'), '%Y-%m-%d %H:%M:%S')",
                "2020-05-29 15:56:29"
            ),
            ("date_format(date('2020-05-01'), '%d %b %Y, %A')", "01 May 2020, Friday")
        ],
        date_format
    ),
    time!(
        "date_trunc",
        &[],
        "date_trunc(unit STRING, time) → the type of `time`",
        "Returns the start of the year, quarter, month, week (Monday), day, hour, minute or second that contains `time`, a TIMESTAMP or DATE; `unit` is the name of one of these.",
        &[
            ("date_trunc('month', date('2020-05-22'))", "2020-05-01"),
            ("date_trunc('hour', timestamp('2020-05-22 10:43:40'))", "2020-05-22 10:00:00"),
            ("date_trunc('week', date('2020-05-24'))", "2020-05-18")
        ],
        date_trunc
    ),
];

/// Returns the day of a TIMESTAMP, of milliseconds or of a DATE, in a zone.
fn day_of(value: Datum<'_>, zone: Zone) -> Option<i64> {
    match value {
        Datum::Date(days) => Some(i64::from(days)),
        value => Some(zone.to_local(value.as_i64()?).div_euclid(DAY_MS)),
    }
}

/// Returns the type of an argument with a calendar day; a NULL literal is a TIMESTAMP.
fn time_parameter(arguments: &CallArguments<'_>, index: usize) -> DataType {
    type_or(arguments, index, DataType::Timestamp)
}

fn of_day(arguments: &CallArguments<'_>, part: fn(i64) -> i64) -> Resolved {
    expect(arguments, &[DAY])?;
    let zone = Zone::new(arguments.settings.time_zone);
    let parameters = vec![time_parameter(arguments, 0)];
    Ok(ScalarImplementation::new(parameters, DataType::Int, move |arguments, _| {
        Some(Datum::Int(i32::try_from(part(day_of(arguments[0], zone)?)).ok()?))
    }))
}

fn of_time(arguments: &CallArguments<'_>, part: fn(TimeOfDay) -> u32) -> Resolved {
    expect(arguments, &[INSTANT])?;
    let zone = Zone::new(arguments.settings.time_zone);
    let parameters = vec![time_parameter(arguments, 0)];
    Ok(ScalarImplementation::new(parameters, DataType::Int, move |arguments, _| {
        let (_, time) = calendar::split_ms(zone.to_local(arguments[0].as_i64()?));
        Some(Datum::Int(i32::try_from(part(time)).ok()?))
    }))
}

/// Returns whether the result of a value is NULL because it is before 1970, as in OpenMLDB.
fn is_refused(value: Datum<'_>, compatibility: Compatibility) -> bool {
    compatibility == Compatibility::OpenMldb
        && !matches!(value, Datum::Date(_))
        && value.as_i64().is_some_and(|ms| ms < 0)
}

fn dayofyear(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[DAY])?;
    let zone = Zone::new(arguments.settings.time_zone);
    let compatibility = arguments.settings.compatibility;
    let parameters = vec![time_parameter(arguments, 0)];
    Ok(ScalarImplementation::new(parameters, DataType::Int, move |arguments, _| {
        if is_refused(arguments[0], compatibility) {
            return None;
        }
        let day = calendar::day_of_year(day_of(arguments[0], zone)?);
        Some(Datum::Int(i32::try_from(day).ok()?))
    }))
}

fn last_day(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[DAY])?;
    let zone = Zone::new(arguments.settings.time_zone);
    let compatibility = arguments.settings.compatibility;
    let parameters = vec![time_parameter(arguments, 0)];
    Ok(ScalarImplementation::new(parameters, DataType::Date, move |arguments, _| {
        if is_refused(arguments[0], compatibility) {
            return None;
        }
        let last = calendar::last_day_of_month(day_of(arguments[0], zone)?);
        Some(Datum::Date(i32::try_from(last).ok()?))
    }))
}

fn datediff(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[READABLE_DATE, READABLE_DATE])?;
    let parameters = vec![DataType::Date; 2];
    Ok(ScalarImplementation::new(parameters, DataType::Int, |arguments, _| {
        let days = arguments[0].as_i64()? - arguments[1].as_i64()?;
        Some(Datum::Int(i32::try_from(days).ok()?))
    }))
}

fn unix_timestamp(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[READABLE_DATE])?;
    let parameters = vec![DataType::Timestamp];
    Ok(ScalarImplementation::new(parameters, DataType::BigInt, |arguments, _| {
        Some(Datum::BigInt(arguments[0].as_i64()?.div_euclid(1000)))
    }))
}

fn add_months(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[READABLE_DATE, INTEGER])?;
    if let Some(text) = constant_text(arguments, 0)
        && parse_date(text, arguments.settings).is_none()
    {
        let expected = "a date such as '2024-01-31'".to_owned();
        return Err(SignatureError::Constant { position: 1, expected });
    }
    let parameters = vec![DataType::Date, DataType::BigInt];
    Ok(ScalarImplementation::new(parameters, DataType::Date, |arguments, _| {
        let days = calendar::add_months(arguments[0].as_i64()?, arguments[1].as_i64()?)?;
        date(days)
    }))
}

/// Returns the DATE of a day; `None` outside the years that texts can hold.
fn date(days: i64) -> Option<Datum<'static>> {
    let has_text = (1..=YEAR_MAX).contains(&calendar::civil_from_days(days).year);
    if has_text { Some(Datum::Date(i32::try_from(days).ok()?)) } else { None }
}

fn date_format(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[DATE_OR_TIMESTAMP, TEXT])?;
    let zone = Zone::new(arguments.settings.time_zone);
    let name = arguments.settings.time_zone.to_string();
    let parameters = vec![time_parameter(arguments, 0), DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::String, move |arguments, arena| {
        let (local_ms, utc_ms) = match arguments[0] {
            Datum::Date(days) => {
                let local_ms = i64::from(days) * DAY_MS;
                (local_ms, zone.to_utc(local_ms))
            }
            value => (zone.to_local(value.as_i64()?), value.as_i64()?),
        };
        let (days, time) = calendar::split_ms(local_ms);
        let offset_minutes = local_ms.saturating_sub(utc_ms) / 60_000;
        let mut text = ArenaString::with_capacity_in(32, arena);
        let moment = ZonedTime { days, time, utc_ms, offset_minutes, zone: &name };
        moment.write(arguments[1].as_str()?, &mut text).ok()?;
        value_limit::text(text.len())?;
        Some(Datum::String(text.into_bump_str()))
    }))
}

/// The functions that read the machine's clock.
pub(super) const CLOCK_READERS: &[&str] = &["now", "current_date"];

fn now(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[])?;
    let clock = SystemClock::new();
    Ok(ScalarImplementation::new(Vec::new(), DataType::Timestamp, move |_, _| {
        Some(Datum::Timestamp(clock.now_ms()))
    }))
}

fn current_date(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[])?;
    let (clock, zone) = (SystemClock::new(), Zone::new(arguments.settings.time_zone));
    Ok(ScalarImplementation::new(Vec::new(), DataType::Date, move |_, _| {
        let days = zone.to_local(clock.now_ms()).div_euclid(DAY_MS);
        Some(Datum::Date(i32::try_from(days).ok()?))
    }))
}

/// The unit that a time is truncated to, or counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    /// A unit of fixed length, in milliseconds.
    Fixed(i64),
}

impl Unit {
    fn from_name(name: &str) -> Option<Self> {
        let units = [
            ("year", Self::Year),
            ("quarter", Self::Quarter),
            ("month", Self::Month),
            ("week", Self::Week),
            ("day", Self::Fixed(DAY_MS)),
            ("hour", Self::Fixed(3_600_000)),
            ("minute", Self::Fixed(60_000)),
            ("second", Self::Fixed(1000)),
        ];
        units.iter().find(|(unit, _)| name.eq_ignore_ascii_case(unit)).map(|(_, unit)| *unit)
    }

    /// Returns a local time so many units later; `None` on overflow of 64 bits.
    fn add(self, local_ms: i64, count: i64) -> Option<i64> {
        let months = |per_unit: i64| {
            let (day, time) = (local_ms.div_euclid(DAY_MS), local_ms.rem_euclid(DAY_MS));
            let day = calendar::add_months(day, count.checked_mul(per_unit)?)?;
            day.checked_mul(DAY_MS)?.checked_add(time)
        };
        let length = match self {
            Self::Year => return months(12),
            Self::Quarter => return months(3),
            Self::Month => return months(1),
            Self::Week => 7 * DAY_MS,
            Self::Fixed(length) => length,
        };
        local_ms.checked_add(count.checked_mul(length)?)
    }

    /// Returns the unit that an argument names, if it is constant.
    fn constant(arguments: &CallArguments<'_>) -> Result<Option<Self>, SignatureError> {
        let Some(name) = constant_text(arguments, 0) else { return Ok(None) };
        Self::from_name(name).map(Some).ok_or_else(|| SignatureError::Constant {
            position: 1,
            expected: "'year', 'quarter', 'month', 'week', 'day', 'hour', 'minute' or 'second'"
                .to_owned(),
        })
    }

    /// Returns the start of the unit that a local time is in.
    fn truncate(self, local_ms: i64) -> i64 {
        let days = local_ms.div_euclid(DAY_MS);
        let Civil { year, month, day: _ } = calendar::civil_from_days(days);
        let first_day = match self {
            Self::Fixed(length) => return local_ms.saturating_sub(local_ms.rem_euclid(length)),
            Self::Year => calendar::days_from_civil(year, 1, 1),
            Self::Quarter => calendar::days_from_civil(year, (month - 1) / 3 * 3 + 1, 1),
            Self::Month => calendar::days_from_civil(year, month, 1),
            Self::Week => days - (days + 3).rem_euclid(7),
        };
        debug_assert!(first_day <= days, "a unit starts at or before its days");
        first_day.saturating_mul(DAY_MS)
    }
}

fn timestamp_add(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, INTEGER, DATE_OR_TIMESTAMP])?;
    let constant = Unit::constant(arguments)?;
    let zone = Zone::new(arguments.settings.time_zone);
    let result = time_parameter(arguments, 2);
    if result == DataType::Date && matches!(constant, Some(Unit::Fixed(length)) if length < DAY_MS)
    {
        return Err(SignatureError::Mismatch(
            "the unit of a DATE must be a day or longer".to_owned(),
        ));
    }
    let parameters = vec![DataType::String, DataType::BigInt, result.clone()];
    Ok(ScalarImplementation::new(parameters, result, move |arguments, _| {
        let unit = match constant {
            Some(unit) => unit,
            None => Unit::from_name(arguments[0].as_str()?)?,
        };
        let count = arguments[1].as_i64()?;
        Some(match (arguments[2], unit) {
            (Datum::Date(_), Unit::Fixed(length)) if length < DAY_MS => return None,
            (Datum::Date(days), unit) => {
                date(unit.add(i64::from(days) * DAY_MS, count)?.div_euclid(DAY_MS))?
            }
            // Hours are elapsed time, days are calendar days.
            (value, Unit::Fixed(length)) if length < DAY_MS => {
                Datum::Timestamp(unit.add(value.as_i64()?, count)?)
            }
            (value, unit) => {
                Datum::Timestamp(zone.to_utc(unit.add(zone.to_local(value.as_i64()?), count)?))
            }
        })
    }))
}

fn date_trunc(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, DATE_OR_TIMESTAMP])?;
    let constant = Unit::constant(arguments)?;
    let zone = Zone::new(arguments.settings.time_zone);
    let result = time_parameter(arguments, 1);
    let parameters = vec![DataType::String, result.clone()];
    Ok(ScalarImplementation::new(parameters, result, move |arguments, _| {
        let unit = match constant {
            Some(unit) => unit,
            None => Unit::from_name(arguments[0].as_str()?)?,
        };
        Some(match arguments[1] {
            Datum::Date(days) => {
                let first = unit.truncate(i64::from(days) * DAY_MS).div_euclid(DAY_MS);
                Datum::Date(i32::try_from(first).ok()?)
            }
            value => {
                let instant = value.as_i64()?;
                let local = zone.to_local(instant);
                let start = unit.truncate(local);
                Datum::Timestamp(match unit {
                    // The offset stays that of the instant, so that in a repeated hour a unit starts
                    // at or before the instants in it, and less than its length before.
                    Unit::Fixed(length) if length < DAY_MS => {
                        instant.saturating_sub(local.saturating_sub(start))
                    }
                    _ => zone.to_utc(start),
                })
            }
        })
    }))
}
