//! Verification: proves that a deployment's answers equal its training set (promise L2).
//!
//! The deployed program itself answers, over the same indexes and the columns that they include.
//! Each stored row of the request table is a request at its own position, so that it sees the rows
//! that batch mode shows it. Both modes read one snapshot of every table, taken at the start.
//! (ADR 0022)
//!
//! *Cost*: the query in batch mode, then a request for each row that is replayed. Holds a batch of
//! rows at a time, and what batch mode holds. Until it ends, the memory of removed rows is not
//! freed.

mod sample;

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_batch::ExecuteOptions;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{Compatibility, Settings, cast::print_datum};
use lockstep_request::{Replay, with_row_numbers};
use lockstep_row::{Arena, DataType, Datum, arrow::ColumnReader};
use lockstep_table::{ScanRows, Snapshot, Table};

use self::sample::RowSample;
use crate::{
    Database, ProgressCallback, Session,
    access::{Needs, Requirement},
    context::checkpoint,
    database::TableSet,
    deployment::Deployment,
    entrance::{CallDescription, no_plan},
    index_read,
    session::retried,
    user::{Privilege, Securable},
};

/// The most differences that are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// The number of rows between two checks for an interrupt, and two reports of progress.
const ROWS_PER_CHECKPOINT: u64 = 64;

impl Session {
    /// Replays the stored rows of the request table as requests to the deployed program, each at
    /// its own position, and compares with batch mode bit by bit. Both read one snapshot of the
    /// tables.
    pub fn verify(&self, deployment: &str) -> Result<Verification> {
        self.verify_with(deployment, &VerifyOptions::default())
    }

    /// Verifies as [`Self::verify`] does, with a sample of the rows or with reports of progress.
    pub fn verify_with(&self, deployment: &str, options: &VerifyOptions) -> Result<Verification> {
        let operation = || CallDescription {
            action: "VERIFY",
            text: deployment,
            needs: Needs::of(vec![self.execution_of(deployment)]),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || {
            retried(|| {
                let found = self.find_deployment(deployment)?;
                // The differences have values of the tables.
                let read = |name| Requirement::new(Privilege::Select, Securable::Table(name));
                let tables = found.tables.iter().map(|table| read(table.name.clone()));
                self.permit(&Needs::of(tables.collect()))?;
                let verification = verify(&self.database, &found, options);
                // Tables that were dropped meanwhile, after the deployment, were empty.
                found.definition.check()?;
                verification
            })
        })
    }
}

/// The options of a verification.
#[derive(Clone, Default)]
pub struct VerifyOptions {
    /// How many rows are replayed, drawn evenly and the same each time; `None` is every row.
    pub sample: Option<u64>,
    /// Called with the fraction of the rows that are done.
    pub progress: Option<ProgressCallback>,
}

impl std::fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions").field("sample", &self.sample).finish_non_exhaustive()
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// The number of stored rows that were replayed as requests.
    pub requests: u64,
    /// The number of values that were compared.
    pub values: u64,
    /// The number of values that differ in any bit, and of rows that only one mode has.
    pub differing: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The duration, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Verification {
    /// Whether requests were replayed and nothing differs.
    pub fn is_ok(&self) -> bool {
        self.requests > 0 && self.differing == 0
    }

    /// Returns how many rows were verified in a second, in batch mode and in request mode.
    #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
    pub fn rows_per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// One value that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The position of the stored row in order of arrival, from 0.
    pub row: u64,
    /// The column of the answer; empty when only one mode has a row.
    pub column: String,
    /// The value in batch mode.
    pub batch: String,
    /// The value in request mode.
    pub request: String,
}

/// The tables as they were at the start.
struct TableSnapshots<'t> {
    by_id: BTreeMap<u64, Snapshot<'t>>,
}

impl lockstep_batch::StoredTables for TableSnapshots<'_> {
    fn table(&self, _id: u64) -> Option<std::sync::Arc<Table>> {
        None
    }

    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        self.by_id.get(&id)
    }
}

/// Replays stored rows of the request table as requests, each at its own position, and compares
/// with batch mode.
fn verify(
    database: &Database,
    deployment: &Deployment,
    options: &VerifyOptions,
) -> Result<Verification> {
    let begin_ns = database.clock().monotonic_ns();
    let (query, program) = (&deployment.query, deployment.request.program());
    let Some(request_table) = &query.request_table else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "the deployment reads no table").err();
    };
    let plan = with_row_numbers(&query.plan)?;
    // Tables that only batch mode reads may not be among the program's.
    let current = TableSet::of(&database.entries_of(&query.plan)?);
    let mut views = TableSnapshots { by_id: BTreeMap::new() };
    for (id, table) in program.tables() {
        views.by_id.insert(id, table.snapshot());
    }
    for (id, table) in &current.by_id {
        views.by_id.entry(*id).or_insert_with(|| table.snapshot());
    }
    Snapshot::align(&mut views.by_id.values_mut().collect::<Vec<_>>());
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
    let mut comparison = ReplayComparison {
        replay,
        rows: scan(),
        width: request_table.schema.columns.len(),
        done: 0,
        sample: RowSample::new(options.sample, count(scan().count())),
        progress: options.progress.as_ref(),
        columns: deployment.request.output(),
        settings: &deployment.settings,
        report: Verification::default(),
    };
    lockstep_batch::execute_each(&plan, &views, &batch, &mut |batch| {
        comparison.compare_batch(&batch)
    })?;
    let mut report = comparison.finish()?;
    report.elapsed_ns = database.clock().monotonic_ns().saturating_sub(begin_ns);
    Ok(report)
}

/// Compares the rows of batch mode, in their order, with the answers to the stored rows.
struct ReplayComparison<'c> {
    replay: Replay<'c>,
    /// The stored rows that were not passed yet, in order of arrival.
    rows: ScanRows<'c>,
    /// The number of columns of a stored row.
    width: usize,
    /// The number of stored rows that were passed.
    done: u64,
    sample: RowSample,
    progress: Option<&'c ProgressCallback>,
    /// The columns of the answer.
    columns: &'c [(String, DataType)],
    settings: &'c Settings,
    report: Verification,
}

impl ReplayComparison<'_> {
    /// Compares rows of batch mode. Their last column is the number of the stored row, from 1.
    fn compare_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let Some((numbers, readers)) = readers.split_last() else {
            return Diagnostic::internal("the rows of batch mode have no number").err();
        };
        debug_assert_eq!(readers.len(), self.columns.len(), "the other columns are the answer's");
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

    /// Replays the remaining stored rows, for which batch mode has no rows.
    fn finish(mut self) -> Result<Verification> {
        while self.done < self.sample.rows {
            self.replay_next(None)?;
        }
        debug_assert_eq!(self.done, self.sample.rows, "every stored row was passed");
        debug_assert!(self.report.requests <= self.done, "a request is for a stored row");
        Ok(self.report)
    }

    /// Replays the next stored row, if it is in the sample, and compares its answer with the row of
    /// batch mode, if there is one.
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
        if !self.sample.contains(row) {
            return Ok(());
        }
        self.report.requests += 1;
        let arena = Arena::new();
        let values = (0..self.width).map(|column| stored.row.get_in(column, &arena));
        let values: Vec<Datum<'_>> = values.collect();
        let request = self.replay.answer(&values, stored.arrival, &arena)?;
        match (batch, request) {
            (None, None) => {}
            (Some(batch), Some(request)) => self.compare_row(row, batch, request),
            (batch, request) => {
                let shown = |values: Option<&[Datum<'_>]>| match values {
                    Some(_) => "a row".to_owned(),
                    None => "no row".to_owned(),
                };
                self.add_difference(row, "", shown(batch), shown(request));
            }
        }
        Ok(())
    }

    fn compare_row(&mut self, row: u64, batch: &[Datum<'_>], request: &[Datum<'_>]) {
        let columns = self.columns;
        for ((batch, request), (name, _)) in batch.iter().zip(request).zip(columns) {
            self.report.values += 1;
            if !batch.is_bit_equal(request) {
                let (batch, request) =
                    (print_datum(*batch, self.settings), print_datum(*request, self.settings));
                self.add_difference(row, name, batch, request);
            }
        }
    }

    fn add_difference(&mut self, row: u64, column: &str, batch: String, request: String) {
        self.report.differing += 1;
        if self.report.differences.len() < DIFFERENCES_MAX {
            let column = column.to_owned();
            self.report.differences.push(Difference { row, column, batch, request });
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
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
