//! Answers of all systems in one form, and their comparison.
//!
//! Workloads convert a system's rows to these values only to compare them; while time is measured,
//! each system keeps its own form.

use std::fmt;

use lockstep_row::Datum;

/// One value of an answer, or of a statement's parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerValue {
    /// NULL.
    Null,
    /// Any integer.
    Int(i64),
    /// Any float.
    Double(f64),
    /// Text.
    Text(Box<str>),
    /// A timestamp, in milliseconds since the epoch.
    Time(i64),
}

impl fmt::Display for AnswerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Time(ms) => write!(f, "{ms} ms"),
        }
    }
}

impl From<&Datum<'_>> for AnswerValue {
    fn from(value: &Datum<'_>) -> Self {
        match *value {
            Datum::Timestamp(ms) => Self::Time(ms),
            Datum::String(text) => Self::Text(text.into()),
            Datum::Bool(value) => Self::Int(i64::from(value)),
            Datum::Float(value) => Self::Double(f64::from(value)),
            Datum::Double(value) => Self::Double(value),
            _ => value.as_i64().map_or(Self::Null, Self::Int),
        }
    }
}

/// How close floats must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closeness {
    /// The same bits.
    Exact,
    /// Equal but for rounding: peers add floats one by one, Lockstep adds exactly.
    Rounding,
}

/// Relative to the larger value; a thousand additions differ by at most 1e-13.
const ROUNDING: f64 = 1e-9;

/// Describes the first difference between two answers.
pub(crate) fn difference(
    expected: &[AnswerValue],
    found: &[AnswerValue],
    closeness: Closeness,
) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} columns, but Lockstep returns {}", found.len(), expected.len()));
    }
    let mut columns = expected.iter().zip(found).enumerate();
    columns.find(|(_, (expected, found))| !is_same(expected, found, closeness)).map(
        |(column, (expected, found))| {
            format!("column {column} is {found}, but Lockstep returns {expected}")
        },
    )
}

fn is_same(expected: &AnswerValue, found: &AnswerValue, closeness: Closeness) -> bool {
    match (expected, found) {
        (AnswerValue::Double(expected), AnswerValue::Double(found)) => match closeness {
            Closeness::Exact => expected.to_bits() == found.to_bits(),
            Closeness::Rounding => {
                (expected - found).abs() <= ROUNDING * expected.abs().max(found.abs()).max(1.0)
            }
        },
        _ => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::{AnswerValue, Closeness, difference};

    #[test]
    fn floats_may_be_off_by_rounding_and_nothing_else_may() {
        let expected = [
            AnswerValue::Int(1),
            AnswerValue::Double(0.3),
            AnswerValue::Text("a".into()),
            AnswerValue::Null,
        ];
        let mut found = expected.clone();
        found[1] = AnswerValue::Double(0.1 + 0.2);
        assert_eq!(difference(&expected, &found, Closeness::Rounding), None);
        assert!(difference(&expected, &found, Closeness::Exact).is_some());
        found[3] = AnswerValue::Int(0);
        let difference = difference(&expected, &found, Closeness::Rounding);
        assert_eq!(difference.as_deref(), Some("column 3 is 0, but Lockstep returns NULL"));
    }
}
