//! Prints one value as the text of a table cell.
//!
//! Unlike CAST, it prints every digit of a float.

use chrono::{DateTime, NaiveDate, TimeDelta};
use lockstep_function::Zone;
use lockstep_row::Datum;

/// Prints a value. NULL is `NULL`, a TIMESTAMP is `yyyy-mm-dd hh:mm:ss[.fff]` in the zone, a float
/// has as many digits as distinguish it from its neighbours. Strings are printed as they are.
pub fn cell_text(value: &Datum<'_>, zone: Zone) -> String {
    match *value {
        Datum::Null => "NULL".to_owned(),
        Datum::Bool(value) => value.to_string(),
        Datum::SmallInt(value) => value.to_string(),
        Datum::Int(value) => value.to_string(),
        Datum::BigInt(value) => value.to_string(),
        Datum::Float(value) => format!("{value:?}"),
        Datum::Double(value) => format!("{value:?}"),
        Datum::String(text) => text.to_owned(),
        Datum::Timestamp(ms) => timestamp_text(ms, zone),
        Datum::Date(days) => date_text(days),
        Datum::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| cell_text(item, zone)).collect();
            format!("[{}]", items.join(", "))
        }
        Datum::Map(entries) => {
            let entry = |(key, value): &(Datum<'_>, Datum<'_>)| {
                format!("{}: {}", cell_text(key, zone), cell_text(value, zone))
            };
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Prints a time; one outside the calendar's range as its number.
fn timestamp_text(ms: i64, zone: Zone) -> String {
    let local = DateTime::from_timestamp_millis(ms)
        .and_then(|_| DateTime::from_timestamp_millis(zone.to_local(ms)));
    let Some(time) = local else { return ms.to_string() };
    let format = if ms % 1000 == 0 { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S%.3f" };
    time.format(format).to_string()
}

fn date_text(days: i32) -> String {
    NaiveDate::default()
        .checked_add_signed(TimeDelta::days(i64::from(days)))
        .map_or_else(|| days.to_string(), |date| date.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use lockstep_function::Zone;
    use lockstep_row::Datum;

    use super::cell_text;

    fn check(value: &Datum<'_>, expected: &str) {
        assert_eq!(cell_text(value, Zone::new(Tz::UTC)), expected);
    }

    #[test]
    fn values_show_all_their_digits() {
        check(&Datum::Double(0.1 + 0.2), "0.30000000000000004");
        check(&Datum::Double(2.0), "2.0");
        check(&Datum::Float(0.1), "0.1");
        check(&Datum::Double(f64::NAN), "NaN");
        check(&Datum::Null, "NULL");
    }

    #[test]
    fn times_are_in_the_zone_and_show_milliseconds_only_when_there_are_any() {
        let new_york = Zone::new(Tz::America__New_York);
        assert_eq!(cell_text(&Datum::Timestamp(0), new_york), "1969-12-31 19:00:00");
        check(&Datum::Timestamp(0), "1970-01-01 00:00:00");
        check(&Datum::Timestamp(-1), "1969-12-31 23:59:59.999");
        check(&Datum::Timestamp(i64::MAX), "9223372036854775807");
        check(&Datum::Date(-1), "1969-12-31");
        check(&Datum::Date(i32::MAX), "2147483647");
    }

    #[test]
    fn nested_values_show_their_items() {
        check(&Datum::Array(&[Datum::Int(1), Datum::Null]), "[1, NULL]");
        check(&Datum::Map(&[(Datum::String("a"), Datum::Int(1))]), "{a: 1}");
    }
}
