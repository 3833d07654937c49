//! The comparison of what a database has with what it is to have, and the kinds of violations.

use std::{collections::BTreeMap, fmt};

use crate::observation::{Observation, number_of};

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// An acknowledged row is not there, or not as it was.
    Lost,
    /// A row is there that was not to be.
    Phantom,
    /// A row is there twice.
    Doubled,
    /// Rows of a table are in another order.
    Order,
    /// A row has another arrival than before.
    Arrival,
    /// A statement is there in part.
    HalfApplied,
    /// A SHOW shows something else.
    Object,
    /// A deployment or its query answers otherwise.
    Answer,
    /// A statement ended otherwise.
    Outcome,
    /// The directory does not open, or the process ended by itself.
    Failure,
}

/// All kinds.
pub const VIOLATIONS: &[ViolationKind] = &[
    ViolationKind::Lost,
    ViolationKind::Phantom,
    ViolationKind::Doubled,
    ViolationKind::Order,
    ViolationKind::Arrival,
    ViolationKind::HalfApplied,
    ViolationKind::Object,
    ViolationKind::Answer,
    ViolationKind::Outcome,
    ViolationKind::Failure,
];

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "rows lost",
            Self::Phantom => "rows that were not to be",
            Self::Doubled => "rows doubled",
            Self::Order => "rows out of order",
            Self::Arrival => "rows with another arrival",
            Self::HalfApplied => "half-applied statements",
            Self::Object => "objects that differ",
            Self::Answer => "answers that differ",
            Self::Outcome => "statements that ended otherwise",
            Self::Failure => "failures",
        })
    }
}

/// Something that must not happen and did.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Its kind.
    pub kind: ViolationKind,
    /// What exactly.
    pub what: String,
}

impl Violation {
    /// Describes a violation.
    pub fn new(kind: ViolationKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into() }
    }
}

/// The most violations of one text that are described.
const DESCRIBED_MAX: usize = 5;

/// Compares what a database has with what it is to have.
pub fn compare(expected: &Observation, found: &Observation) -> Vec<Violation> {
    let mut violations = Vec::new();
    let names = expected
        .texts
        .keys()
        .chain(found.texts.keys().filter(|name| !expected.texts.contains_key(*name)));
    for name in names {
        let (expected, found) = (expected.lines(name), found.lines(name));
        if expected == found {
            continue;
        }
        if name.starts_with("rows ") || name.starts_with("offline rows ") {
            violations.extend(compare_rows(name, expected, found));
        } else {
            let kind =
                if name.contains("answer") { ViolationKind::Answer } else { ViolationKind::Object };
            violations.push(Violation::new(kind, difference(name, expected, found)));
        }
    }
    violations
}

/// Compares rows by their numbers.
fn compare_rows(name: &str, expected: &[String], found: &[String]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add =
        |kind, line: &str| violations.push(Violation::new(kind, format!("{name}: {line}")));
    let count = |lines: &[String]| {
        let mut counts: BTreeMap<u64, (usize, String)> = BTreeMap::new();
        for line in lines {
            counts.entry(number_of(line)).or_insert_with(|| (0, line.clone())).0 += 1;
        }
        counts
    };
    let (expected_counts, found_counts) = (count(expected), count(found));
    for (number, (count, line)) in &expected_counts {
        match found_counts.get(number) {
            Some((_, other)) if other == line => {}
            _ => add(ViolationKind::Lost, line),
        }
        if found_counts.get(number).is_some_and(|(found, _)| found > count) {
            add(ViolationKind::Doubled, line);
        }
    }
    for (_, (_, line)) in
        found_counts.iter().filter(|(number, _)| !expected_counts.contains_key(number))
    {
        add(ViolationKind::Phantom, line);
    }
    if violations.is_empty() {
        let what = difference(name, expected, found);
        violations.push(Violation::new(ViolationKind::Order, what));
    }
    violations
}

/// Describes how two texts differ.
fn difference(name: &str, expected: &[String], found: &[String]) -> String {
    let mut text = format!("{name}: {} lines expected, {} found", expected.len(), found.len());
    let differing = (0..expected.len().max(found.len()))
        .filter(|at| expected.get(*at) != found.get(*at))
        .take(DESCRIBED_MAX);
    for at in differing {
        let line =
            |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "nothing".to_owned());
        text = format!(
            "{text}\n      line {at}: expected {}\n               found {}",
            line(expected),
            line(found)
        );
    }
    text
}
