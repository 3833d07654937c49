//! Fields of dates and times by name, and times in other zones: what EXTRACT and AT TIME ZONE of standard
//! SQL mean. Calendar fields are in the session's time zone.

use lockstep_row::{
    DataType, Datum,
    calendar::{self, DAY_MS},
};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    signature::{DATE_OR_TIMESTAMP, NUMBER, TEXT, constant_text, expect, type_or},
    time_template::TimeTemplate,
};
use crate::{cast::saturate_to_i64, settings::TimeZone, zone::Zone};

const CATEGORY: &str = "date and time";

/// The first DOUBLE above the milliseconds of 64 bits.
const MILLISECONDS_END: f64 = 9_223_372_036_854_775_808.0;

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    ScalarFunction {
        name: "date_part",
        aliases: &[],
        category: CATEGORY,
        signature: "date_part(field STRING, time) → INT|DOUBLE",
        doc: "Returns a field of `time`, a TIMESTAMP or DATE; the same as `EXTRACT(field FROM time)`. `field` is a constant. The fields `year`, `isoyear`, `quarter`, `month`, `week`, `day`, `doy` (day of the year), `dow` (day of the week, 0 = Sunday), `isodow` (1 = Monday), `hour`, `minute`, and `millisecond` and `microsecond` (since the start of the minute) are INT. The fields `second` and `epoch` (seconds since 1970-01-01 00:00:00 UTC) are DOUBLE and include the fraction.",
        examples: &[
            ("date_part('year', date('2020-05-22'))", "2020"),
            ("date_part('dow', date('2020-05-24'))", "0"),
            ("date_part('second', timestamp('2020-05-22 10:43:40'))", "40"),
            ("date_part('epoch', timestamp('1970-01-01 00:01:00'))", "60"),
        ],
        resolve: date_part,
    },
    ScalarFunction {
        name: "to_timestamp",
        aliases: &[],
        category: CATEGORY,
        signature: "to_timestamp(seconds) or to_timestamp(x STRING, template STRING) → TIMESTAMP",
        doc: "Returns the TIMESTAMP `seconds` seconds after 1970-01-01 00:00:00 UTC, or before it if negative, rounded to the nearest millisecond. NULL if it is out of range. `timestamp(x)` converts milliseconds. With `template`, converts the STRING `x` to a TIMESTAMP in the session's time zone, truncated to milliseconds. `template` is a constant of PostgreSQL's patterns `YYYY`, `MM`, `DD`, `HH24`, `MI`, `SS`, `MS` and `US`. NULL if `x` does not match `template`.",
        examples: &[
            ("to_timestamp(60)", "1970-01-01 00:01:00"),
            ("bigint(to_timestamp(1.5))", "1500"),
            ("to_timestamp('22.05.2020 10:43', 'DD.MM.YYYY HH24:MI')", "2020-05-22 10:43:00"),
        ],
        resolve: to_timestamp,
    },
    ScalarFunction {
        name: "to_zone",
        aliases: &[],
        category: CATEGORY,
        signature: "to_zone(time TIMESTAMP, zone STRING) → TIMESTAMP",
        doc: "Returns the TIMESTAMP that has, in the session's time zone, the date and time of day that `time` has in `zone`, a constant. The same as `time AT TIME ZONE zone`.",
        examples: &[(
            "to_zone(timestamp('2020-05-22 10:43:40'), 'Asia/Tokyo')",
            "2020-05-22 19:43:40",
        )],
        resolve: to_zone,
    },
    ScalarFunction {
        name: "from_zone",
        aliases: &[],
        category: CATEGORY,
        signature: "from_zone(time TIMESTAMP, zone STRING) → TIMESTAMP",
        doc: "Returns the TIMESTAMP that has, in `zone`, a constant, the date and time of day that `time` has in the session's time zone; the inverse of `to_zone`. The same as `time AT TIME ZONE zone` if `time` is a time without a time zone: a result of AT TIME ZONE, `TIMESTAMP '…'` or a CAST to TIMESTAMP.",
        examples: &[(
            "from_zone(timestamp('2020-05-22 19:43:40'), 'Asia/Tokyo')",
            "2020-05-22 10:43:40",
        )],
        resolve: from_zone,
    },
];

/// A field of a date and time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeField {
    Year,
    IsoYear,
    Quarter,
    Month,
    Week,
    Day,
    DayOfYear,
    DayOfWeek,
    IsoDayOfWeek,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Epoch,
}

/// The fields by their names in PostgreSQL.
const FIELDS: &[(&[&str], TimeField)] = &[
    (&["year", "years"], TimeField::Year),
    (&["isoyear"], TimeField::IsoYear),
    (&["quarter"], TimeField::Quarter),
    (&["month", "months"], TimeField::Month),
    (&["week", "weeks"], TimeField::Week),
    (&["day", "days"], TimeField::Day),
    (&["doy"], TimeField::DayOfYear),
    (&["dow"], TimeField::DayOfWeek),
    (&["isodow"], TimeField::IsoDayOfWeek),
    (&["hour", "hours"], TimeField::Hour),
    (&["minute", "minutes"], TimeField::Minute),
    (&["second", "seconds"], TimeField::Second),
    (&["millisecond", "milliseconds"], TimeField::Millisecond),
    (&["microsecond", "microseconds"], TimeField::Microsecond),
    (&["epoch"], TimeField::Epoch),
];

impl TimeField {
    /// Returns the field that a constant argument names.
    fn constant(arguments: &CallArguments<'_>) -> Result<Self, SignatureError> {
        let name = constant_text(arguments, 0).map(str::to_ascii_lowercase);
        let found = name.and_then(|name| {
            FIELDS.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, field)| *field)
        });
        found.ok_or_else(|| {
            let names: Vec<&str> = FIELDS.iter().map(|(names, _)| names[0]).collect();
            let expected = format!("one of the fields {}", names.join(", "));
            SignatureError::Constant { position: 1, expected }
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Second | Self::Epoch => DataType::Double,
            _ => DataType::Int,
        }
    }

    /// Returns the field of an instant, of which the local time is known.
    fn of(self, utc_ms: i64, local_ms: i64) -> Option<Datum<'static>> {
        let (days, time) = calendar::split_ms(local_ms);
        let civil = calendar::civil_from_days(days);
        let minute_ms = local_ms.rem_euclid(60_000);
        let number = match self {
            Self::Year => civil.year,
            Self::IsoYear => calendar::iso_week(days).0,
            Self::Quarter => i64::from((civil.month - 1) / 3 + 1),
            Self::Month => i64::from(civil.month),
            Self::Week => i64::from(calendar::iso_week(days).1),
            Self::Day => i64::from(civil.day),
            Self::DayOfYear => i64::from(calendar::day_of_year(days)),
            Self::DayOfWeek => i64::from(calendar::day_of_week(days)),
            Self::IsoDayOfWeek => i64::from((calendar::day_of_week(days) + 6) % 7 + 1),
            Self::Hour => i64::from(time.hour),
            Self::Minute => i64::from(time.minute),
            Self::Millisecond => minute_ms,
            Self::Microsecond => minute_ms * 1000,
            Self::Second => return Some(Datum::Double(seconds(minute_ms))),
            Self::Epoch => return Some(Datum::Double(seconds(utc_ms))),
        };
        Some(Datum::Int(i32::try_from(number).ok()?))
    }
}

/// Returns milliseconds as seconds, rounded once.
#[expect(clippy::cast_precision_loss, reason = "a DOUBLE has the nearest number of seconds")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn date_part(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, DATE_OR_TIMESTAMP])?;
    let field = TimeField::constant(arguments)?;
    let zone = Zone::new(arguments.settings.time_zone);
    let parameters = vec![DataType::String, type_or(arguments, 1, DataType::Timestamp)];
    Ok(ScalarImplementation::new(
        parameters,
        field.data_type(),
        move |arguments, _| match arguments[1] {
            Datum::Date(days) => {
                let local_ms = i64::from(days) * DAY_MS;
                field.of(zone.to_utc(local_ms), local_ms)
            }
            value => {
                let utc_ms = value.as_i64()?;
                field.of(utc_ms, zone.to_local(utc_ms))
            }
        },
    ))
}

fn to_timestamp(arguments: &CallArguments<'_>) -> Resolved {
    if arguments.types.len() == 2 {
        return timestamp_of_text(arguments);
    }
    expect(arguments, &[NUMBER])?;
    let is_whole = arguments.types[0].is_integer();
    let parameter = if is_whole { DataType::BigInt } else { DataType::Double };
    Ok(ScalarImplementation::new(vec![parameter], DataType::Timestamp, move |arguments, _| {
        if is_whole {
            return Some(Datum::Timestamp(arguments[0].as_i64()?.checked_mul(1000)?));
        }
        let ms = (arguments[0].as_f64()? * 1000.0).round();
        let fits = (-MILLISECONDS_END..MILLISECONDS_END).contains(&ms);
        fits.then(|| Datum::Timestamp(saturate_to_i64(ms)))
    }))
}

fn timestamp_of_text(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[TEXT, TEXT])?;
    let template = constant_text(arguments, 1).and_then(TimeTemplate::parse);
    let template = template.ok_or_else(|| SignatureError::Constant {
        position: 2,
        expected: TimeTemplate::FORM.to_owned(),
    })?;
    let zone = Zone::new(arguments.settings.time_zone);
    let parameters = vec![DataType::String, DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::Timestamp, move |arguments, _| {
        let Datum::String(text) = arguments[0] else { return None };
        Some(Datum::Timestamp(zone.to_utc(template.read(text)?)))
    }))
}

/// Returns the zone that a constant argument names.
fn zone_argument(arguments: &CallArguments<'_>) -> Result<Zone, SignatureError> {
    let found = constant_text(arguments, 1).and_then(TimeZone::parse);
    found.map(Zone::new).ok_or_else(|| {
        let expected = "a constant time zone such as 'Europe/Berlin' or '+02:00'".to_owned();
        SignatureError::Constant { position: 2, expected }
    })
}

fn to_zone(arguments: &CallArguments<'_>) -> Resolved {
    let (there, here) = (other_zone(arguments)?, Zone::new(arguments.settings.time_zone));
    converted(move |ms| here.to_utc(there.to_local(ms)))
}

fn from_zone(arguments: &CallArguments<'_>) -> Resolved {
    let (there, here) = (other_zone(arguments)?, Zone::new(arguments.settings.time_zone));
    converted(move |ms| there.to_utc(here.to_local(ms)))
}

fn other_zone(arguments: &CallArguments<'_>) -> Result<Zone, SignatureError> {
    expect(arguments, &[DATE_OR_TIMESTAMP, TEXT])?;
    zone_argument(arguments)
}

fn converted(convert: impl Fn(i64) -> i64 + Send + Sync + 'static) -> Resolved {
    let parameters = vec![DataType::Timestamp, DataType::String];
    Ok(ScalarImplementation::new(parameters, DataType::Timestamp, move |arguments, _| {
        Some(Datum::Timestamp(convert(arguments[0].as_i64()?)))
    }))
}
