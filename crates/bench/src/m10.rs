//! M10: GROUP BY over many groups, in batch mode.
//!
//! Five aggregates of each group, and an aggregate of those, so that there is one row to compare.
//! Each system runs in a process of its own, which is filled first; time is that of the query, memory
//! is by how much the process grew at its greatest during the query, read from outside.

mod step;

use serde_json::{Map, Value as Json, json};
pub(crate) use step::run_step;
use step::{GroupingStep, GroupingSystem};

use crate::{
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    peer::duckdb::DuckDb,
    report::{Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
};

/// Rows with `--quick` and without it.
const ROWS_QUICK: u64 = 200_000;
const ROWS: u64 = 10_000_000;
/// Rows for each group, on average.
const ROWS_OF_A_GROUP: [u64; 3] = [10, 3, 1];

/// One query of a system.
#[derive(Debug, Clone, PartialEq)]
struct GroupingResult {
    ms: f64,
    /// By how much the process grew at most.
    memory_mib: f64,
    /// The row that must be the same for all systems.
    row: String,
}

/// The queries of a system, one for each run.
struct GroupingRuns {
    name: &'static str,
    results: Vec<GroupingResult>,
}

impl GroupingRuns {
    fn median_of(&self, of: impl Fn(&GroupingResult) -> f64) -> f64 {
        assert!(!self.results.is_empty(), "{} was measured", self.name);
        median(&mut self.results.iter().map(of).collect::<Vec<f64>>())
    }

    fn cells(&self, rows: u64) -> Vec<ResultCell> {
        let numbers = |of: &dyn Fn(&GroupingResult) -> f64| {
            ResultCell::Numbers(self.results.iter().map(of).collect())
        };
        vec![
            ResultCell::Text(self.name.to_owned()),
            numbers(&|result| result.ms),
            numbers(&|result| rows as f64 * 1e3 / result.ms),
            numbers(&|result| result.memory_mib),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let rows = if options.quick { ROWS_QUICK } else { ROWS };
    let (mut tables, mut ratios) = (Vec::new(), Map::new());
    let group_counts = ROWS_OF_A_GROUP.map(|of_a_group| rows / of_a_group);
    // Opened once here, to know whether it is installed.
    let duckdb = wanted(options, PeerName::Duckdb, || DuckDb::open_at(None).map(drop))?;
    for groups in group_counts {
        let title = format!("{rows} rows, {groups} groups");
        say(&format!("M10 {title}"));
        let step = |system| GroupingStep { system, rows, groups };
        let mut measured = vec![measure(options, step(GroupingSystem::Lockstep))?];
        if duckdb.is_some() {
            measured.push(measure(options, step(GroupingSystem::DuckDb))?);
        }
        if let [own, peer] = measured.as_slice() {
            let of = |of: fn(&GroupingResult) -> f64| own.median_of(of) / peer.median_of(of);
            ratios.insert(format!("time/duckdb, {groups} groups"), json!(rounded(of(|r| r.ms))));
            let memory = json!(rounded(of(|result| result.memory_mib)));
            ratios.insert(format!("memory/duckdb, {groups} groups"), memory);
        }
        let columns = vec!["system", "ms", "rows/s", "MiB"];
        let cells = measured.iter().map(|runs| runs.cells(rows)).collect();
        tables.push(MeasurementTable { title, columns, rows: cells });
    }
    let params: Json = json!({ "rows": rows, "groups": group_counts });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, ..Outcome::default() })
}

/// Measures a system, and checks that every run gives the row that the rows decide.
fn measure(options: &BenchOptions, step: GroupingStep) -> Result<GroupingRuns> {
    let name = step.system.name();
    say(name);
    let expected = step.expected_row();
    let mut results = Vec::new();
    for _ in 0..options.runs() {
        let result = step.perform()?;
        if result.row != expected {
            let difference = format!("{}, but the rows yield {expected}", result.row);
            return Err(Error::Disagreement { system: name.to_owned(), request: 0, difference });
        }
        results.push(result);
    }
    Ok(GroupingRuns { name, results })
}

#[cfg(test)]
mod tests {
    use super::step::{GroupingStep, GroupingSystem};

    #[test]
    fn the_expected_row_is_that_of_the_query() {
        let step = GroupingStep { system: GroupingSystem::Lockstep, rows: 1_000, groups: 100 };
        assert_eq!(step.answer_here().unwrap(), step.expected_row());
    }

    #[test]
    fn a_step_is_read_as_it_was_written() {
        let step = GroupingStep { system: GroupingSystem::DuckDb, rows: 30, groups: 10 };
        assert_eq!(GroupingStep::of_text(&step.to_json().to_string()), Some(step));
        assert_eq!(GroupingStep::of_text("[]"), None);
    }
}
