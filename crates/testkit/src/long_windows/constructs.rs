//! The constructs of drawn long windows, and how often each was drawn.
//!
//! The other modules note these names. A run that is long enough fails when one was never drawn.

use std::{collections::BTreeMap, fmt};

use lockstep_function::aggregate;

/// Answers that took rows from nodes.
pub const FROM_NODES: &str = "answers that take nodes";
/// Cases of a GROUP BY whose answers took rows from nodes.
pub const GROUP_FROM_NODES: &str = "groups that take nodes";
/// Cases of disk tables whose answers took rows from nodes.
pub const DISK_FROM_NODES: &str = "disk tables that take nodes";
/// Answers that the oracle computed too.
pub const OF_ORACLE: &str = "answers of the oracle";
/// Requests that were answered while rows arrived.
pub const OVERLAPPED: &str = "answers while rows arrive";

/// The clause, and the construct.
pub const CONSTRUCTS: &[(&str, &str)] = &[
    ("key", "BOOL"),
    ("key", "SMALLINT"),
    ("key", "INT"),
    ("key", "BIGINT"),
    ("key", "STRING"),
    ("key", "DATE"),
    ("key", "TIMESTAMP"),
    ("key", "two columns"),
    ("order", "ts BIGINT"),
    ("order", "ts TIMESTAMP"),
    ("index", "no declared index"),
    ("index", "rows are kept forever"),
    ("index", "absolute"),
    ("index", "latest"),
    ("index", "absorlat"),
    ("index", "absandlat"),
    ("table", "in memory"),
    ("table", "on a disk"),
    ("window", "one window"),
    ("window", "several windows"),
    ("window", "windows that share a scan"),
    ("window", "ROWS"),
    ("window", "ROWS_RANGE"),
    ("window", "UNBOUNDED PRECEDING"),
    ("window", "OPEN PRECEDING"),
    ("window", "a frame that ends before the current row"),
    ("window", "MAXSIZE"),
    ("window", "EXCLUDE CURRENT_ROW"),
    ("window", "EXCLUDE CURRENT_TIME"),
    ("window", "INSTANCE_NOT_IN_WINDOW"),
    ("window", "WINDOW UNION"),
    ("query", "GROUP BY"),
    ("query", "GROUP BY with WHERE"),
    ("step", "rows in order"),
    ("step", "rows of equal event time"),
    ("step", "late rows"),
    ("step", "DELETE by key"),
    ("step", "DELETE by key and event time"),
    ("step", "TRUNCATE"),
    ("step", "time passes"),
    ("step", "nodes are made"),
    ("step", "rows are flushed and merged"),
    ("request", "at the newest event time"),
    ("request", "in the future"),
    ("request", "in the past"),
    ("request", "of an absent key"),
    ("request", OVERLAPPED),
    ("answer", FROM_NODES),
    ("answer", DISK_FROM_NODES),
    ("answer", GROUP_FROM_NODES),
    ("answer", OF_ORACLE),
];

/// How often each construct was drawn.
#[derive(Debug, Default)]
pub struct ConstructCounts(BTreeMap<&'static str, u64>);

impl ConstructCounts {
    /// Counts a construct of the list, or an aggregate.
    pub fn note(&mut self, construct: &'static str) {
        self.add(construct, 1);
    }

    /// Counts a construct so many times.
    pub fn add(&mut self, construct: &'static str, times: u64) {
        debug_assert!(
            all().any(|(_, known)| known == construct),
            "`{construct}` is in the list of constructs"
        );
        *self.0.entry(construct).or_default() += times;
    }

    /// Returns how often a construct was drawn.
    pub fn count(&self, construct: &str) -> u64 {
        self.0.get(construct).copied().unwrap_or_default()
    }

    /// Returns the constructs that were never drawn.
    pub fn missing(&self) -> Vec<&'static str> {
        all()
            .map(|(_, construct)| construct)
            .filter(|construct| self.count(construct) == 0)
            .collect()
    }
}

impl fmt::Display for ConstructCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, construct) in all() {
            writeln!(f, "{section:9} {construct:42} {:>10}", self.count(construct))?;
        }
        Ok(())
    }
}

/// Returns the clause and the name of every construct, with those of the aggregates.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let aggregates = aggregate::all().map(|function| ("function", function.name));
    CONSTRUCTS.iter().copied().chain(aggregates)
}
