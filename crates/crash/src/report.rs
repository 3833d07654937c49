//! The report of a run: what was done, and how often each violation was found.

use std::{collections::BTreeMap, fmt};

use crate::{
    difference::{VIOLATIONS, Violation, ViolationKind},
    workload::WORKLOAD,
};

/// How often an operation was drawn, and what became of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct OperationCount {
    /// It was sent.
    pub drawn: u64,
    /// It was acknowledged.
    pub acknowledged: u64,
    /// It was not acknowledged, and is there.
    pub survived: u64,
    /// It was not acknowledged, and is not there.
    pub lost: u64,
}

/// The counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Openings after which everything was compared.
    pub cycles: u64,
    /// Directories.
    pub directories: u64,
    /// Kills while operations ran.
    pub kills: u64,
    /// Kills before the directory was open.
    pub kills_while_opening: u64,
    /// Cycles that ended by closing the database.
    pub closed: u64,
    /// Openings that cut the last part of the log.
    pub cuts: u64,
    /// Rows that were read by openings.
    pub rows_read: u64,
    /// Rows that were compared.
    pub rows_compared: u64,
    /// Texts that were compared, those of rows included.
    pub texts_compared: u64,
    /// Rows that answers took from pre-aggregates.
    pub rows_from_nodes: u64,
    /// Operations by name.
    pub operations: BTreeMap<&'static str, OperationCount>,
    /// How often each failpoint has ended a process.
    pub failpoints: BTreeMap<String, u64>,
    /// Violations by kind.
    pub violations: BTreeMap<ViolationKind, u64>,
    /// The first violations, with where they were found.
    pub described: Vec<String>,
}

/// The most violations that are described.
const DESCRIBED_MAX: usize = 20;

impl Report {
    /// Returns the counts of an operation.
    pub fn operation(&mut self, name: &'static str) -> &mut OperationCount {
        self.operations.entry(name).or_default()
    }

    /// Adds violations, found at a place.
    pub fn add(&mut self, violations: Vec<Violation>, place: &str) {
        for Violation { kind, what } in violations {
            *self.violations.entry(kind).or_default() += 1;
            if self.described.len() < DESCRIBED_MAX {
                self.described.push(format!("{place}: {kind}: {what}"));
            }
        }
    }

    /// Returns the number of violations.
    pub fn violation_count(&self) -> u64 {
        self.violations.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28}{:>8}{:>14}{:>10}{:>8}",
            "operation", "drawn", "acknowledged", "survived", "lost"
        )?;
        for entry in WORKLOAD {
            let count = self.operations.get(entry.name).copied().unwrap_or_default();
            let OperationCount { drawn, acknowledged, survived, lost } = count;
            writeln!(f, "{:<28}{drawn:>8}{acknowledged:>14}{survived:>10}{lost:>8}", entry.name)?;
        }
        for (name, count) in &self.failpoints {
            writeln!(f, "failpoint {name}: {count} processes ended")?;
        }
        writeln!(
            f,
            "{} cycles over {} directories: {} kills, {} kills while opening, {} closed, {} tails cut",
            self.cycles,
            self.directories,
            self.kills,
            self.kills_while_opening,
            self.closed,
            self.cuts
        )?;
        writeln!(
            f,
            "{} rows read, {} rows and {} texts compared, {} rows of answers from pre-aggregates",
            self.rows_read, self.rows_compared, self.texts_compared, self.rows_from_nodes
        )?;
        let counts: Vec<String> = VIOLATIONS
            .iter()
            .map(|kind| format!("{kind}: {}", self.violations.get(kind).copied().unwrap_or(0)))
            .collect();
        writeln!(f, "{}", counts.join(", "))?;
        self.described.iter().try_for_each(|described| writeln!(f, "{described}"))
    }
}
