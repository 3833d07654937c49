//! The ratchet: counts of the source that may only fall, and ratios that may only rise.
//!
//! What holds today is one line per measure and scope in `crates/xtask/ratchet.txt`. A measure that
//! is worse than its line is a violation; so is a count that is better, until `cargo xtask tidy
//! --ratchet` has lowered the line. A scope without a line gets the value of today.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{Violations, assertions, english, type_names, words};
use crate::workspace_dir;

const HEADER: &str = "\
# Counts that may only fall and ratios that may only rise: measure, scope, value.
# `cargo xtask tidy --ratchet` writes this file and never loosens it.
";

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// A count of what should not be there.
    Falls,
    /// A ratio of what should be there.
    Rises,
}

/// What one scope, a crate or a part of the repository, has of something today.
#[derive(Debug)]
pub(crate) struct Measure {
    /// What is counted: the first word of a line of the file.
    pub(crate) name: &'static str,
    /// Where it is counted: the second word.
    pub(crate) scope: String,
    /// How much there is.
    pub(crate) value: u64,
    /// Which values are better.
    pub(crate) direction: Direction,
    /// Where to look when the value is worse than the file's.
    pub(crate) places: Vec<String>,
}

impl Measure {
    /// Counts the places of each scope, of which there should be none.
    pub(crate) fn of_places(name: &'static str, places: BTreeMap<String, Violations>) -> Vec<Self> {
        let measure = |(scope, places): (String, Violations)| Self {
            name,
            scope,
            value: places.len() as u64,
            direction: Direction::Falls,
            places,
        };
        places.into_iter().map(measure).collect()
    }
}

/// The values of the file by measure and scope.
type RatchetLimits = BTreeMap<(String, String), u64>;

/// Returns what is worse than the file says, and what is better without the file saying so.
pub(crate) fn ratchets_hold() -> Violations {
    check(&read(), &measures())
}

/// Writes today's values into the file where they are better than the file's.
pub(crate) fn tighten_file() {
    let limits = tightened(&read(), &measures());
    fs::write(path(), written(&limits)).expect("the ratchet file is writable");
}

/// Measures everything that has a line in the file.
pub(crate) fn measures() -> Vec<Measure> {
    let files = crate::source::files_of_crates();
    let mut measures = words::measures();
    measures.extend(english::measures());
    measures.push(type_names::measure(&files));
    measures.extend(assertions::measures(&files));
    measures
}

fn check(limits: &RatchetLimits, measures: &[Measure]) -> Violations {
    let mut violations = Vec::new();
    for measure in measures {
        let Measure { name, scope, value, .. } = measure;
        let Some(limit) = limits.get(&key(measure)) else {
            violations.push(format!(
                "{name} {scope}: no line in ratchet.txt; run `cargo xtask tidy --ratchet`"
            ));
            continue;
        };
        match measure.direction {
            Direction::Falls if value > limit => {
                let places = measure.places.join("\n  ");
                violations.push(format!("{name} {scope}: {value}, at most {limit}:\n  {places}"));
            }
            Direction::Falls if value < limit => violations.push(format!(
                "{name} {scope}: {value}, fewer than {limit}; lower the line in ratchet.txt with \
                 `cargo xtask tidy --ratchet`"
            )),
            Direction::Rises if value < limit => {
                let places = measure.places.join("\n  ");
                violations.push(format!("{name} {scope}: {value}, at least {limit}:\n  {places}"));
            }
            Direction::Falls | Direction::Rises => {}
        }
    }
    violations
}

fn tightened(limits: &RatchetLimits, measures: &[Measure]) -> RatchetLimits {
    let tighter = |measure: &Measure| {
        let limit = limits.get(&key(measure)).copied().unwrap_or(measure.value);
        let value = match measure.direction {
            Direction::Falls => measure.value.min(limit),
            Direction::Rises => measure.value.max(limit),
        };
        (key(measure), value)
    };
    measures.iter().map(tighter).collect()
}

fn key(measure: &Measure) -> (String, String) {
    (measure.name.to_owned(), measure.scope.clone())
}

/// Reads the file; one that does not exist limits nothing.
fn read() -> RatchetLimits {
    parsed(&fs::read_to_string(path()).unwrap_or_default())
}

fn parsed(text: &str) -> RatchetLimits {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let [name, scope, value] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("ratchet.txt: `{line}` is not a measure, a scope and a value");
            };
            let value = value.parse().expect("the value of a line in ratchet.txt is a number");
            ((name.to_owned(), scope.to_owned()), value)
        })
        .collect()
}

fn written(limits: &RatchetLimits) -> String {
    let lines = limits.iter().map(|((name, scope), value)| format!("{name} {scope} {value}\n"));
    HEADER.to_owned() + &lines.collect::<String>()
}

fn path() -> PathBuf {
    workspace_dir().join("crates/xtask/ratchet.txt")
}

#[cfg(test)]
mod tests {
    use super::{Direction, Measure, check, parsed, tightened, written};

    fn measure(value: u64, direction: Direction) -> Measure {
        let places = vec!["crates/row/src/key.rs:7".to_owned()];
        Measure { name: "gizmos", scope: "row".to_owned(), value, direction, places }
    }

    #[test]
    fn a_worse_value_is_a_violation_with_its_places() {
        let limits = parsed("# a comment\n\ngizmos row 3\n");
        for worse in [measure(4, Direction::Falls), measure(2, Direction::Rises)] {
            let violations = check(&limits, &[worse]);
            assert_eq!(violations.len(), 1);
            assert!(violations[0].contains("crates/row/src/key.rs:7"), "{violations:?}");
        }
    }

    #[test]
    fn a_smaller_count_asks_for_a_lower_line() {
        let limits = parsed("gizmos row 3\n");
        let violations = check(&limits, &[measure(2, Direction::Falls)]);
        assert!(violations[0].contains("lower the line"), "{violations:?}");
        assert!(check(&limits, &[measure(3, Direction::Falls)]).is_empty());
        assert!(check(&limits, &[measure(4, Direction::Rises)]).is_empty());
    }

    #[test]
    fn a_scope_without_a_line_is_a_violation() {
        assert_eq!(check(&parsed(""), &[measure(0, Direction::Falls)]).len(), 1);
    }

    #[test]
    fn the_file_is_never_loosened() {
        let limits = parsed("gizmos row 3\n");
        let now = |value, direction| written(&tightened(&limits, &[measure(value, direction)]));
        assert!(now(2, Direction::Falls).ends_with("\ngizmos row 2\n"));
        assert!(now(4, Direction::Falls).ends_with("\ngizmos row 3\n"));
        assert!(now(2, Direction::Rises).ends_with("\ngizmos row 3\n"));
        assert!(now(4, Direction::Rises).ends_with("\ngizmos row 4\n"));
    }

    #[test]
    fn a_new_scope_gets_the_value_of_today() {
        let limits = tightened(&parsed(""), &[measure(5, Direction::Falls)]);
        assert!(written(&limits).ends_with("\ngizmos row 5\n"));
    }
}
