//! VERIFY: proves that a deployment's answers equal its training set (promise L2).
//!
//! The deployed program itself answers, over the indexes that serve and what they include: each
//! stored row of the request table is the request in its own place, so that it sees what batch mode
//! shows it. Both modes read one view of every table, taken at the start. (ADR 0022)
//!
//! *Cost*: the query in batch mode, then a request for each row that is replayed. Holds a batch of
//! rows at a time, and what batch mode holds. Until it is over, memory of removed rows is not freed.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_batch::ExecuteOptions;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Compatibility, Settings, cast::print_datum};
use lockstep_request::{Replay, numbered};
use lockstep_row::{Arena, DataType, Datum, arrow::ColumnReader};
use lockstep_table::{ScanRows, Snapshot, Table};

use crate::{
    Database, ProgressCallback, context::checkpoint, database::Tables, deployment::Deployment,
    index_read,
};

/// How many differences are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// After how many rows it is asked whether to go on, and progress is reported.
const ROWS_PER_CHECKPOINT: u64 = 64;

/// What to verify.
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// So many rows, drawn evenly; `None`: every row. The same rows each time.
    pub sample: Option<u64>,
    /// Is told the share of the rows that are done.
    pub progress: Option<ProgressCallback>,
}

impl std::fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// What VERIFY found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// Stored rows that were replayed as requests.
    pub requests: u64,
    /// Values compared.
    pub values: u64,
    /// Values that differ in any bit, and rows that only one mode has.
    pub differing: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Verification {
    /// Whether something was compared, and nothing differs.
    pub fn is_ok(&self) -> bool {
        self.requests > 0 && self.differing == 0
    }

    /// How many rows a second were verified, in batch mode and in request mode.
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    pub fn rows_per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The stored row, in order of arrival, from 0.
    pub row: u64,
    /// The column of the answer; empty when only one mode has a row.
    pub column: String,
    /// What batch mode computed.
    pub batch: String,
    /// What request mode computed.
    pub request: String,
}

/// The tables as they were at the start.
struct Views<'t> {
    by_id: BTreeMap<u64, Snapshot<'t>>,
}

impl lockstep_batch::Tables for Views<'_> {
    fn table(&self, _id: u64) -> Option<std::sync::Arc<Table>> {
        None
    }

    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        self.by_id.get(&id)
    }
}

/// Replays stored rows of the request table as requests, each in its own place, and compares with
/// batch mode.
pub(crate) fn verify(
    database: &Database,
    deployment: &Deployment,
    options: &VerifyOptions,
) -> Result<Verification> {
    let begin_ns = database.clock().monotonic_ns();
    let (query, program) = (&deployment.query, deployment.request.program());
    let Some(request_table) = &query.request_table else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "the deployment reads no table").err();
    };
    let plan = numbered(&query.plan)?;
    // Tables that only batch mode reads may not be among the program's.
    let current = Tables::of(&database.entries_of(&query.plan)?);
    let mut views = Views { by_id: BTreeMap::new() };
    for (id, table) in program.tables() {
        views.by_id.insert(id, table.snapshot());
    }
    for (id, table) in &current.by_id {
        views.by_id.entry(*id).or_insert_with(|| table.snapshot());
    }
    let read_through = match deployment.settings.compatibility {
        Compatibility::OpenMldb => index_read::read_through(&query.plan),
        Compatibility::Standard => BTreeMap::new(),
    };
    let batch = ExecuteOptions { read_through, ..ExecuteOptions::default() };
    let own = program.tables().map(|(id, _)| views.by_id[&id].clone()).collect();
    let mut run = |plan: &LogicalPlan| lockstep_batch::execute(plan, &views, &batch);
    let replay = program.replay(own, &mut run)?;
    let Some(view) = views.by_id.get(&request_table.id) else {
        let message = format!("table `{}` was dropped", request_table.name);
        return Diagnostic::new(code::UNDEFINED_TABLE, message).err();
    };
    let scan = || match batch.read_through.get(&request_table.id) {
        Some(index) => view.scan_kept_by(*index),
        None => view.scan(),
    };
    let mut comparison = Comparison {
        replay,
        rows: scan(),
        width: request_table.schema.columns.len(),
        done: 0,
        sample: Sample::new(options.sample, count(scan().count())),
        progress: options.progress.as_ref(),
        columns: deployment.request.output(),
        settings: &deployment.settings,
        report: Verification::default(),
    };
    lockstep_batch::execute_each(&plan, &views, &batch, &mut |batch| comparison.take(&batch))?;
    let mut report = comparison.finish()?;
    report.elapsed_ns = database.clock().monotonic_ns().saturating_sub(begin_ns);
    Ok(report)
}

/// Which rows are replayed.
struct Sample {
    /// So many.
    wanted: u64,
    /// Of so many.
    rows: u64,
    /// How many were drawn so far.
    drawn: u64,
    /// The number of the next one.
    next: u64,
}

impl Sample {
    fn new(wanted: Option<u64>, rows: u64) -> Self {
        let wanted = wanted.unwrap_or(rows).min(rows);
        let mut sample = Self { wanted, rows, drawn: 0, next: 0 };
        sample.next = sample.draw();
        sample
    }

    /// Whether a row is drawn; asked once for each row, in order, from 0.
    fn takes(&mut self, row: u64) -> bool {
        if self.drawn == self.wanted || row != self.next {
            return false;
        }
        self.drawn += 1;
        self.next = self.draw();
        true
    }

    /// One row of the next of as many equal parts of the table as there are rows to draw, so that
    /// a pattern in the data does not meet one in the sample.
    fn draw(&self) -> u64 {
        if self.drawn == self.wanted {
            return u64::MAX;
        }
        let bound = |part: u64| {
            let bound = u128::from(self.rows) * u128::from(part) / u128::from(self.wanted);
            u64::try_from(bound).expect("a part of a 64-bit count")
        };
        let (start, end) = (bound(self.drawn), bound(self.drawn + 1));
        start + scattered(self.drawn) % (end - start)
    }
}

/// A number that looks like any other (the finaliser of `SplitMix64`).
fn scattered(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// The rows of batch mode as they come, beside the stored rows that they come of.
struct Comparison<'c> {
    replay: Replay<'c>,
    /// The stored rows that were not replayed yet, in order of arrival.
    rows: ScanRows<'c>,
    /// How many columns they have.
    width: usize,
    /// How many were.
    done: u64,
    sample: Sample,
    progress: Option<&'c ProgressCallback>,
    /// Those of the answer.
    columns: &'c [(String, DataType)],
    settings: &'c Settings,
    report: Verification,
}

impl Comparison<'_> {
    /// Takes rows of batch mode, the number of whose stored row, from 1, is their last column.
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let Some((numbers, readers)) = readers.split_last() else {
            return Diagnostic::internal("the rows of batch mode have no number").err();
        };
        let mut arena = Arena::new();
        for row in 0..batch.num_rows() {
            let number = numbers.get(row, &arena).as_i64();
            let number = number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
            if number <= self.done {
                return Diagnostic::internal("the rows of batch mode are out of order").err();
            }
            while self.done + 1 < number {
                self.replay_next(None)?;
            }
            let values: Vec<Datum<'_>> =
                readers.iter().map(|reader| reader.get(row, &arena)).collect();
            self.replay_next(Some(&values))?;
            arena.reset();
        }
        Ok(())
    }

    /// Replays what is left, of which batch mode has no rows.
    fn finish(mut self) -> Result<Verification> {
        while self.done < self.sample.rows {
            self.replay_next(None)?;
        }
        Ok(self.report)
    }

    /// Replays the next stored row, if it is drawn, and compares its answer with what batch mode
    /// has for it.
    fn replay_next(&mut self, batch: Option<&[Datum<'_>]>) -> Result<()> {
        let Some(stored) = self.rows.next() else {
            return Diagnostic::internal("batch mode has more rows than the table").err();
        };
        let row = self.done;
        self.done += 1;
        if self.done.is_multiple_of(ROWS_PER_CHECKPOINT) {
            checkpoint()?;
            self.report_progress();
        }
        if !self.sample.takes(row) {
            return Ok(());
        }
        self.report.requests += 1;
        let arena = Arena::new();
        let values = (0..self.width).map(|column| stored.row.get_in(column, &arena));
        let values: Vec<Datum<'_>> = values.collect();
        let request = self.replay.answer(&values, stored.arrival, &arena)?;
        match (batch, request) {
            (None, None) => {}
            (Some(batch), Some(request)) => self.compare(row, batch, request),
            (batch, request) => {
                let shown = |values: Option<&[Datum<'_>]>| match values {
                    Some(_) => "a row".to_owned(),
                    None => "no row".to_owned(),
                };
                self.differs(row, "", [shown(batch), shown(request)]);
            }
        }
        Ok(())
    }

    fn compare(&mut self, row: u64, batch: &[Datum<'_>], request: &[Datum<'_>]) {
        let columns = self.columns;
        for ((batch, request), (name, _)) in batch.iter().zip(request).zip(columns) {
            self.report.values += 1;
            if !batch.is_bit_equal(request) {
                let shown = |value: &Datum<'_>| print_datum(*value, self.settings);
                let shown = [shown(batch), shown(request)];
                self.differs(row, name, shown);
            }
        }
    }

    fn differs(&mut self, row: u64, column: &str, [batch, request]: [String; 2]) {
        self.report.differing += 1;
        if self.report.differences.len() < DIFFERENCES_MAX {
            let column = column.to_owned();
            self.report.differences.push(Difference { row, column, batch, request });
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
    fn report_progress(&self) {
        if let Some(progress) = self.progress {
            progress(self.done as f64 / self.sample.rows.max(1) as f64);
        }
    }
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).expect("a count fits 64 bits")
}

#[cfg(test)]
mod tests;
