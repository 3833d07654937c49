//! Results as JSON: an array with an object for each row, each on a line of its own.

use std::collections::HashSet;

use lockstep_engine::Output;
use lockstep_function::Zone;
use lockstep_row::Datum;

use super::each_row;
use crate::cell_text;

/// Writes all rows. A name that repeats gets a number, since the keys of an object differ.
pub(super) fn json_text(output: &Output) -> String {
    let names: Vec<&str> = output.columns.iter().map(|(name, _)| name.as_str()).collect();
    let keys: Vec<String> = unique(&names).iter().map(|name| string(name)).collect();
    let mut rows = Vec::new();
    each_row(output, |values, zone| {
        debug_assert_eq!(values.len(), keys.len(), "each column has a value");
        let entries = keys.iter().zip(values);
        let entries: Vec<String> =
            entries.map(|(key, of)| format!("{key}:{}", value(of, zone))).collect();
        rows.push(format!("{{{}}}", entries.join(",")));
    });
    format!("[{}]\n", rows.join(",\n"))
}

/// Writes a value.
pub(super) fn value(of: &Datum<'_>, zone: Zone) -> String {
    match of {
        Datum::Null => "null".to_owned(),
        Datum::Bool(_) | Datum::SmallInt(_) | Datum::Int(_) | Datum::BigInt(_) => {
            cell_text(of, zone)
        }
        Datum::Float(_) | Datum::Double(_) => {
            let digits = number(of);
            if digits.ends_with(['N', 'y']) { string(&digits) } else { digits }
        }
        Datum::String(_) | Datum::Timestamp(_) | Datum::Date(_) => string(&cell_text(of, zone)),
        Datum::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| value(item, zone)).collect();
            format!("[{}]", items.join(","))
        }
        Datum::Map(entries) => {
            let entry = |(key, of): &(Datum<'_>, Datum<'_>)| {
                format!("{}:{}", string(&cell_text(key, zone)), value(of, zone))
            };
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

/// Writes a FLOAT or a DOUBLE: its fewest digits, or the word of one that is not finite.
pub(super) fn number(of: &Datum<'_>) -> String {
    let (digits, double) = match of {
        Datum::Float(number) => (serde_json::to_string(number), f64::from(*number)),
        Datum::Double(number) => (serde_json::to_string(number), *number),
        other => unreachable!("{other:?} is no FLOAT and no DOUBLE"),
    };
    match double {
        _ if double.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ => digits.expect("a finite number is JSON"),
    }
}

fn string(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// Gives names that repeat a number.
fn unique(names: &[&str]) -> Vec<String> {
    let mut used: HashSet<String> = HashSet::new();
    let mut found = Vec::new();
    for name in names {
        let numbered = (2_usize..).map(|number| format!("{name}_{number}"));
        let mut candidates = std::iter::once((*name).to_owned()).chain(numbered);
        let free = candidates.find(|candidate| {
            let is_later_name = *candidate != *name && names.contains(&candidate.as_str());
            !used.contains(candidate) && !is_later_name
        });
        let free = free.expect("there are more numbers than columns");
        used.insert(free.clone());
        found.push(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use lockstep_function::Zone;
    use lockstep_row::Datum;

    use super::{unique, value};

    #[test]
    fn values_are_json() {
        let zone = Zone::new(chrono_tz::Tz::UTC);
        let check = |of: Datum<'_>, expected: &str| assert_eq!(value(&of, zone), expected);
        check(Datum::Float(1.1), "1.1");
        check(Datum::Float(f32::INFINITY), "\"Infinity\"");
        check(Datum::Double(-0.0), "-0.0");
        check(Datum::Timestamp(1_000), "\"1970-01-01 00:00:01\"");
        check(Datum::Array(&[Datum::Null, Datum::Double(f64::NAN)]), "[null,\"NaN\"]");
        let map = [(Datum::Int(1), Datum::Null), (Datum::String("k"), Datum::Bool(true))];
        check(Datum::Map(&map), "{\"1\":null,\"k\":true}");
    }

    #[test]
    fn names_that_repeat_get_a_number() {
        assert_eq!(unique(&["a", "a", "a_2", "a"]), ["a", "a_3", "a_2", "a_4"]);
        assert_eq!(unique(&["a", "b"]), ["a", "b"]);
    }
}
