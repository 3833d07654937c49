//! One system of M10, in a process of its own.
//!
//! The process is this program with `--grouping-step` and a JSON object; see `measured_process`.

use std::process::Command;

use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};
use serde_json::{Value as Json, json};

use super::GroupingResult;
use crate::{
    error::{Error, Result, Trying},
    measured_process::{MeasuredProcess, work},
    peer::{SqlPeer as _, duckdb::DuckDb},
};

/// Rows of one append.
const APPEND_ROWS: u64 = 1_000;
/// A prime that no number of groups here has as a factor, so that neighbours are of other groups.
const STRIDE: u64 = 7_919;
const X_VALUES: u64 = 1_000;
const Y_VALUES: u64 = 10_007;

const QUERY: &str = "SELECT count(*), sum(c), sum(s), sum(a), min(l), max(g) FROM \
    (SELECT k, count(*) AS c, sum(x) AS s, avg(x) AS a, min(x) AS l, max(y) AS g FROM t GROUP BY k) AS q";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupingSystem {
    Lockstep,
    DuckDb,
}

impl GroupingSystem {
    /// Returns its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lockstep => "lockstep",
            Self::DuckDb => "duckdb",
        }
    }
}

/// A system with its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupingStep {
    pub(super) system: GroupingSystem,
    pub(super) rows: u64,
    pub(super) groups: u64,
}

/// A row.
struct GroupedRow {
    key: i64,
    x: i64,
    y: f64,
}

/// A system that has its rows.
enum FilledSystem {
    Lockstep(Database),
    DuckDb(Box<DuckDb>),
}

impl GroupingStep {
    pub(super) fn to_json(self) -> Json {
        json!({ "system": self.system.name(), "rows": self.rows, "groups": self.groups })
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        let system = match json["system"].as_str()? {
            "lockstep" => GroupingSystem::Lockstep,
            _ => GroupingSystem::DuckDb,
        };
        Some(Self { system, rows: json["rows"].as_u64()?, groups: json["groups"].as_u64()? })
    }

    /// Returns the row that the query gives, by the definition of the rows: every sum is exact in
    /// any order, since the means are sums of few integers.
    pub(super) fn expected_row(&self) -> String {
        let keys = usize::try_from(self.groups).expect("memory holds the groups");
        let mut groups = vec![(0_u32, 0_i64); keys];
        let (mut least, mut greatest, mut sum) = (i64::MAX, f64::MIN, 0);
        for row in 0..self.rows {
            let row = self.row(row);
            let group =
                &mut groups[usize::try_from(row.key).expect("a key is a number of a group")];
            *group = (group.0 + 1, group.1 + row.x);
            (least, greatest, sum) = (least.min(row.x), greatest.max(row.y), sum + row.x);
        }
        let found = groups.iter().filter(|(count, _)| *count > 0);
        let means: f64 = found.clone().map(|(count, sum)| *sum as f64 / f64::from(*count)).sum();
        text_of(&[
            found.count() as f64,
            self.rows as f64,
            sum as f64,
            means,
            least as f64,
            greatest,
        ])
    }

    fn row(&self, row: u64) -> GroupedRow {
        debug_assert!(row < self.rows && self.groups > 0, "the row is one of those in a group");
        let signed = |value: u64| i64::try_from(value).expect("a small number");
        GroupedRow {
            key: signed(row * STRIDE % self.groups),
            x: signed(row % X_VALUES),
            y: (row * 31 % Y_VALUES) as f64 * 0.25,
        }
    }

    /// Fills a system in this process.
    fn fill(&self) -> Result<FilledSystem> {
        let Self { rows, groups, .. } = *self;
        match self.system {
            GroupingSystem::DuckDb => {
                let duckdb = DuckDb::open_at(None)?;
                duckdb.connect()?.execute(&format!(
                    "CREATE TABLE t AS SELECT CAST(i * {STRIDE} % {groups} AS BIGINT) AS k, \
                     CAST(i % {X_VALUES} AS BIGINT) AS x, \
                     CAST(i * 31 % {Y_VALUES} AS DOUBLE) * 0.25 AS y FROM range({rows}) AS r(i)"
                ))?;
                Ok(FilledSystem::DuckDb(Box::new(duckdb)))
            }
            GroupingSystem::Lockstep => {
                let database = Database::in_memory();
                let session = database.session();
                session.execute(
                    "CREATE DATABASE d; USE d; CREATE TABLE t (k BIGINT, x BIGINT, y DOUBLE)",
                )?;
                let appender = session.appender("t")?;
                for start in
                    (0..rows).step_by(usize::try_from(APPEND_ROWS).expect("a small number"))
                {
                    let some = (start..rows.min(start + APPEND_ROWS)).map(|row| {
                        let GroupedRow { key, x, y } = self.row(row);
                        [Datum::BigInt(key), Datum::BigInt(x), Datum::Double(y)]
                    });
                    appender.append(some)?;
                }
                drop(appender);
                Ok(FilledSystem::Lockstep(database))
            }
        }
    }

    /// Fills the system and answers in this process.
    #[cfg(test)]
    pub(super) fn answer_here(&self) -> Result<String> {
        self.fill()?.answer()
    }

    /// Measures the query in a process of its own.
    pub(super) fn perform(&self) -> Result<GroupingResult> {
        let program = std::env::current_exe().trying(|| "find this program".to_owned())?;
        let mut command = Command::new(program);
        command.arg("--grouping-step").arg(self.to_json().to_string());
        let figures = MeasuredProcess::start(&mut command)?.measure()?;
        let row = figures.result["row"].as_str().unwrap_or_default().to_owned();
        Ok(GroupingResult { ms: figures.ms, memory_mib: figures.memory_mib, row })
    }
}

impl FilledSystem {
    /// Runs the query and returns its row as a text.
    fn answer(&self) -> Result<String> {
        match self {
            Self::DuckDb(duckdb) => {
                // Sums of integers are wider than 64 bits there.
                let query = QUERY.replace("sum(c), sum(s)", "sum(c)::DOUBLE, sum(s)::DOUBLE");
                let rows = duckdb.connect()?.execute(&query)?;
                let numbers = rows.first().into_iter().flatten();
                let numbers = numbers.map(|value| value.to_string().parse().unwrap_or(f64::NAN));
                Ok(text_of(&numbers.collect::<Vec<f64>>()))
            }
            Self::Lockstep(database) => {
                let session = database.session();
                session.execute("USE d")?;
                let output = session.execute(QUERY)?;
                let arena = Arena::new();
                let number = |value: Datum<'_>| {
                    value.as_f64().or(value.as_i64().map(|value| value as f64)).unwrap_or(f64::NAN)
                };
                let batches = output.batches.iter().filter(|batch| batch.num_rows() > 0);
                let columns = batches.flat_map(|batch| batch.columns());
                let numbers =
                    columns.map(|column| number(ColumnReader::new(column.as_ref()).get(0, &arena)));
                Ok(text_of(&numbers.collect::<Vec<f64>>()))
            }
        }
    }
}

/// Writes numbers with the digits that a sum of doubles in any order has.
fn text_of(numbers: &[f64]) -> String {
    debug_assert!(numbers.len() <= 6, "the query has six columns");
    let texts: Vec<String> = numbers.iter().map(|number| format!("{number:.6e}")).collect();
    texts.join(" ")
}

/// Does the step of the command line.
pub(crate) fn run_step(text: &str) -> Result<()> {
    let step = GroupingStep::of_text(text);
    let step =
        step.ok_or_else(|| Error::Page { message: format!("unrecognized step of M10: {text}") })?;
    let filled = step.fill()?;
    work(|| {
        let clock = SystemClock::new();
        let row = filled.answer()?;
        Ok(json!({ "ms": clock.monotonic_ns() as f64 / 1e6, "row": row }))
    })
}
