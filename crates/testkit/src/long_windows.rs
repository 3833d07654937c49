//! Long windows on drawn tables and queries: with pre-aggregates and without them, the same bits.
//!
//! A case ([`case`]) deploys one query twice over the same tables, with `pre_aggregation='always'` and
//! with `'off'`, then draws steps: rows in order, late rows, ties, DELETE, TRUNCATE, time that passes,
//! nodes that are made. After each, drawn request rows are answered by both deployments, and by the
//! oracle where no retention is declared. In part of the cases rows arrive while requests are answered
//! ([`concurrent`]). Nodes and chunks are of few rows, so that keys of some hundred rows have trees.
//!
//! A run ends with a table of the constructs and how often each was drawn, and with the number of rows
//! that answers took from nodes: with few of them the comparison says nothing. The bugs that
//! `lockstep_host::failpoint::seed` gives a process ([`BUGS`]) show that the comparison can fail.
//!
//! | module | what |
//! |---|---|
//! | [`case`] | the steps of a case, and the comparison |
//! | [`concurrent`] | a writer beside requests |
//! | [`draw`] | queries |
//! | [`rows`] | columns and values |
//! | [`constructs`] | the constructs that a run must draw |

pub mod case;
pub mod concurrent;
pub mod constructs;
pub mod draw;
pub mod rows;

use std::fmt;

use lockstep_host::sync::Mutex;

use self::{case::LongWindowCase, constructs::ConstructCounts};
use crate::{panics, random::Random};

/// The bugs that a process may be given, each of which a run must find.
///
/// * `late_row_not_marked`: a node lacks a late row, and is taken.
/// * `edge_counted_twice`: a node is taken that has rows older than the frame.
/// * `level_before_its_rows`: a node is taken that has a late row which arrived after the view of the
///   request was taken. The row is in the node only after this was made again, which happens while a
///   batch of requests is answered over one view ([`concurrent`]).
/// * `dictionary_begun_anew`: later nodes of a key have other numbers for its values than earlier ones.
pub const BUGS: [&str; 4] =
    ["late_row_not_marked", "edge_counted_twice", "level_before_its_rows", "dictionary_begun_anew"];

/// A run of so many cases draws every construct.
pub const CASES_FOR_ALL_CONSTRUCTS: u64 = 300;

/// Failures that a report keeps; the run ends with the last of them.
const FAILURES_MAX: usize = 5;

/// The sizes of chunks and leaves are global in the process, so that only one run at a time is
/// determined by its seed.
static SIZES: Mutex<()> = Mutex::new(());

/// The counts of a run.
#[derive(Debug, Default)]
pub struct LongWindowReport {
    /// Cases that were run.
    pub cases: u64,
    /// Answers of one deployment that were compared with those of the other.
    pub answers: u64,
    /// Values of these answers.
    pub values: u64,
    /// Values that were compared with the oracle.
    pub oracle_values: u64,
    /// Answers over one view, compared with each other while rows arrived.
    pub repeated: u64,
    /// Rows that answers took from nodes.
    pub rows_from_nodes: u64,
    /// Rows that the same answers read beside them.
    pub rows_read: u64,
    /// Cases whose query has no pre-aggregate.
    pub without: u64,
    /// What was drawn.
    pub constructs: ConstructCounts,
    /// Descriptions of the differences.
    pub failures: Vec<String>,
}

impl LongWindowReport {
    /// Returns why the run shows nothing, if so: constructs that were never drawn, or few rows that
    /// answers took from nodes.
    pub fn blindness(&self) -> Option<String> {
        if self.rows_from_nodes <= self.rows_read || self.rows_from_nodes <= self.answers {
            return Some("too few rows are taken from nodes".to_owned());
        }
        if self.cases < CASES_FOR_ALL_CONSTRUCTS {
            return None;
        }
        let missing = self.constructs.missing();
        (!missing.is_empty()).then(|| format!("never drawn: {}", missing.join(", ")))
    }
}

impl fmt::Display for LongWindowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.constructs)?;
        let Self { cases, answers, values, oracle_values, repeated, .. } = self;
        let Self { rows_from_nodes, rows_read, without, .. } = self;
        write!(
            f,
            "{cases} cases ({without} without pre-aggregates): {answers} answers with {values} values \
             compared, {oracle_values} values with the oracle, {repeated} answers with others of \
             their view; {rows_from_nodes} rows from nodes and {rows_read} rows read beside them; {} \
             failures",
            self.failures.len()
        )
    }
}

/// Draws and runs cases. Case `n` of a seed is the first one of the seed plus `n`.
pub fn run(seed: u64, cases: u64) -> LongWindowReport {
    let _one_run = SIZES.lock();
    let mut report = LongWindowReport::default();
    for seed in seed..seed.saturating_add(cases) {
        let mut random = Random::new(seed);
        let ran = panics::caught(|| LongWindowCase::draw(&mut random, &mut report).run());
        report.cases += 1;
        if let Err(what) = ran.and_then(|ran| ran) {
            report
                .failures
                .push(format!("cargo xtask long-windows --cases 1 --seed {seed}\n{what}"));
            if report.failures.len() >= FAILURES_MAX {
                break;
            }
        }
    }
    report
}
