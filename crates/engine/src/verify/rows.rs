//! Verification of deployments whose answers come one from each stored row: the rows are replayed on
//! several threads, and compared with one run of batch mode.
//!
//! Batch mode passes its rows on in order of arrival. The stored rows that go with them are gathered, and
//! when there are enough, threads replay blocks of them at once; what they find is reported in order.

use std::num::NonZeroUsize;

use arrow::{
    array::{RecordBatch, UInt32Array},
    compute::take_record_batch,
};
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_request::{Replay, ReplayProgram, with_row_numbers};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};
use lockstep_table::{RowCopy, ScanRows, Table};

use super::{
    RowSample, Verification, VerifyOptions,
    report::{ReplayReport, RowComparison},
};
use crate::{
    context::checkpoint,
    deployment::Deployment,
    known::{KnownTables, SharedTables},
};

/// So many rows are replayed in one go, on all threads.
const ROUND_ROWS: usize = 1 << 13;
/// The rows that one thread replays before it takes others.
const BLOCK_ROWS: usize = 128;
/// After so many stored rows those of a sample that wait are replayed, however few, so that progress is told.
const ROUND_PASSED: u64 = 1 << 19;
/// The number of rows between two checks for an interrupt.
const ROWS_PER_CHECKPOINT: usize = 64;
const _: () = assert!(BLOCK_ROWS <= ROUND_ROWS && ROWS_PER_CHECKPOINT <= BLOCK_ROWS);

/// Replays rows of the request table, each at its own position.
pub(super) fn verify_row_by_row<'r>(
    deployment: &Deployment,
    (tables, request_table): (&KnownTables<'_>, u64),
    (options, threads): (&VerifyOptions, NonZeroUsize),
    mut report: ReplayReport<'r>,
) -> Result<ReplayReport<'r>> {
    let plan = with_row_numbers(&deployment.query.plan)?;
    let batch = tables.execute_options();
    let mut run = |plan: &LogicalPlan| lockstep_batch::execute(plan, tables, &batch);
    let program = deployment.request.program().for_replay(&mut run)?;
    let Some(view) = tables.now(request_table) else {
        return Diagnostic::internal("the request table is a table of the query").err();
    };
    let kept_by = tables.index_read(request_table);
    let stored = view.scan_by(kept_by);
    let sample = RowSample::new(options.sample, view.count(kept_by)?);
    report.begin(sample.rows);
    let width = view.schema().columns.len();
    let replayed =
        ReplayedTables { program: &program, tables: tables.share(), table: view.table(), width };
    let mut gathered = GatheredRows {
        replayed: &replayed,
        threads,
        stored,
        done: 0,
        sample,
        rows: Vec::new(),
        batches: Vec::new(),
        done_at_last_round: 0,
        report,
    };
    lockstep_batch::execute_each(&plan, tables, &batch, &mut |batch| gathered.add_batch(&batch))?;
    gathered.finish()
}

/// What each thread needs that replays rows.
struct ReplayedTables<'p> {
    program: &'p ReplayProgram<'p>,
    tables: SharedTables<'p>,
    /// The request table.
    table: &'p Table,
    /// The number of columns of a stored row.
    width: usize,
}

/// A stored row to replay.
struct GatheredRow {
    /// The stored rows before it.
    number: u64,
    stored: RowCopy,
    /// Its row in batch mode, if there is one: the gathered batch, and the row of it.
    batch: Option<(usize, usize)>,
}

/// Stored rows that wait to be replayed, and the batches of batch mode in which their rows are.
struct GatheredRows<'c, 'r> {
    replayed: &'c ReplayedTables<'c>,
    threads: NonZeroUsize,
    /// The stored rows that were not passed yet, in order of arrival.
    stored: ScanRows<'c>,
    /// The number of stored rows that were passed.
    done: u64,
    sample: RowSample,
    rows: Vec<GatheredRow>,
    /// The rows of batch mode that go with them.
    batches: Vec<RecordBatch>,
    /// The number of stored rows that were passed when rows were replayed last.
    done_at_last_round: u64,
    report: ReplayReport<'r>,
}

impl<'r> GatheredRows<'_, 'r> {
    /// Gathers the stored rows up to the last one of a batch. Its last column is the number of the stored
    /// row, from 1.
    fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some((numbers, others)) = batch.columns().split_last() else {
            return Diagnostic::internal("the rows of batch mode have no number").err();
        };
        debug_assert_eq!(others.len(), self.report.columns().len(), "the others are the answer's");
        let (numbers, arena) = (ColumnReader::new(numbers.as_ref()), Arena::new());
        let mut wanted = Vec::new();
        for row in 0..batch.num_rows() {
            let number = numbers.get(row, &arena).as_i64();
            let number = number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
            if number <= self.done {
                return Diagnostic::internal("the rows of batch mode are out of order").err();
            }
            while self.done + 1 < number {
                self.pass(None)?;
                if self.is_due() {
                    self.hold(batch, &mut wanted)?;
                    self.replay()?;
                }
            }
            if self.pass(Some((self.batches.len(), wanted.len())))? {
                wanted.push(u32::try_from(row).expect("a batch has few rows"));
            }
        }
        self.hold(batch, &mut wanted)?;
        if self.is_due() { self.replay() } else { Ok(()) }
    }

    /// Holds these rows of a batch, until they are compared. The others would take memory for nothing.
    fn hold(&mut self, batch: &RecordBatch, wanted: &mut Vec<u32>) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        if wanted.len() == batch.num_rows() {
            self.batches.push(batch.clone());
        } else {
            let rows = UInt32Array::from(std::mem::take(wanted));
            let taken = take_record_batch(batch, &rows);
            self.batches.push(taken.map_err(|error| Diagnostic::internal(error.to_string()))?);
        }
        wanted.clear();
        Ok(())
    }

    /// Replays the remaining stored rows, for which batch mode has no rows.
    fn finish(mut self) -> Result<ReplayReport<'r>> {
        while self.done < self.sample.rows {
            self.pass(None)?;
            if self.is_due() {
                self.replay()?;
            }
        }
        self.replay()?;
        self.report.tell(self.done)?;
        debug_assert_eq!(self.done, self.sample.rows, "every stored row was passed");
        Ok(self.report)
    }

    /// Returns whether rows are to be replayed before others are gathered.
    fn is_due(&self) -> bool {
        let passed = self.done - self.done_at_last_round;
        self.rows.len() >= ROUND_ROWS || (passed >= ROUND_PASSED && !self.rows.is_empty())
    }

    /// Passes the next stored row, and gathers it if it is in the sample. Returns whether it is.
    fn pass(&mut self, batch: Option<(usize, usize)>) -> Result<bool> {
        let Some(stored) = self.stored.next_row()? else {
            return Diagnostic::internal("batch mode has more rows than the table").err();
        };
        let number = self.done;
        let is_wanted = self.sample.contains(number);
        if is_wanted {
            self.rows.push(GatheredRow { number, stored: RowCopy::of(&stored), batch });
        }
        self.done += 1;
        if self.done.is_multiple_of(ROWS_PER_CHECKPOINT as u64) {
            checkpoint()?;
            if self.rows.is_empty() {
                self.report.tell(self.done)?;
            }
        }
        Ok(is_wanted)
    }

    /// Replays the gathered rows and compares their answers with the rows of batch mode.
    fn replay(&mut self) -> Result<()> {
        let (columns, settings) = (self.report.columns(), self.report.settings());
        let (replayed, batches) = (self.replayed, &self.batches[..]);
        let worker = || {
            let mut replay = replayed.program.over(replayed.tables.open_of_program());
            move |block: &[GatheredRow]| -> Result<(u64, Verification)> {
                let replay = replay.as_mut().map_err(|error| error.clone())?;
                let mut comparison = RowComparison::new(columns, settings);
                replayed.compare(block, batches, replay, &mut comparison)?;
                let last = block.last().map_or(0, |row| row.number + 1);
                Ok((last, comparison.found))
            }
        };
        let blocks = self.rows.chunks(BLOCK_ROWS);
        let outcome = self.report.add_blocks(self.threads, blocks, worker);
        self.rows.clear();
        self.batches.clear();
        self.done_at_last_round = self.done;
        outcome
    }
}

impl ReplayedTables<'_> {
    /// Replays rows and compares their answers with the rows of batch mode.
    fn compare(
        &self,
        rows: &[GatheredRow],
        batches: &[RecordBatch],
        replay: &mut Replay<'_>,
        comparison: &mut RowComparison<'_>,
    ) -> Result<()> {
        let mut arena = Arena::new();
        let mut readers = Vec::new();
        let mut read = None;
        for (place, row) in rows.iter().enumerate() {
            if place.is_multiple_of(ROWS_PER_CHECKPOINT) {
                checkpoint()?;
            }
            if let Some((at, _)) = row.batch
                && read != Some(at)
            {
                readers = readers_of(&batches[at]);
                read = Some(at);
            }
            let of_batch = |(_, row): (usize, usize)| -> Vec<Datum<'_>> {
                readers.iter().map(|reader| reader.get(row, &arena)).collect()
            };
            let batch = row.batch.map(of_batch);
            let of_table = row.stored.view(self.table).row;
            let stored = (0..self.width).map(|column| of_table.get_in(column, &arena));
            let stored: Vec<Datum<'_>> = stored.collect();
            let request = replay.answer(&stored, row.stored.arrival, &arena)?;
            comparison.compare(row.number, batch.as_deref(), request);
            arena.reset();
        }
        Ok(())
    }
}

/// Returns readers of the columns of a batch, but for the number of the stored row.
fn readers_of(batch: &RecordBatch) -> Vec<ColumnReader<'_>> {
    let columns = batch.columns().split_last().map_or(&[][..], |(_, others)| others);
    columns.iter().map(|column| ColumnReader::new(column.as_ref())).collect()
}
