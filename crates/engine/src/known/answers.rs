//! Answers that are passed on as batches of rows.

use std::ops::ControlFlow;

use arrow::array::RecordBatch;
use lockstep_diagnostic::Result;
use lockstep_host::{CallStep, query};
use lockstep_request::{KnownAnswers, Program};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::{KnownTables, ResultRange};
use crate::{Output, ProgressCallback, context::checkpoint};

/// The most rows of a batch.
const BATCH_ROWS: usize = 8_192;

/// The number of requests between two checks for an interrupt.
const REQUESTS_PER_CHECKPOINT: u64 = 64;

/// The number of requests between two reports of progress.
const REQUESTS_PER_REPORT: u64 = 1_024;

/// A consumer of batches.
pub(crate) type ConsumeBatch<'c> = &'c mut dyn FnMut(RecordBatch) -> Result<()>;

/// The answers to the rows of a main table.
pub(crate) struct AnswerBatches<'a> {
    answers: KnownAnswers<'a>,
    columns: &'a [(String, DataType)],
    builders: Vec<ColumnBuilder>,
    /// The number of rows in the builders.
    rows: usize,
    range: ResultRange,
    /// The number of requests that were answered, and of those to come.
    done: u64,
    total: u64,
    progress: Option<ProgressCallback>,
    consume: ConsumeBatch<'a>,
}

impl<'a> AnswerBatches<'a> {
    /// Begins to answer `total` requests of a program whose answers have these columns.
    pub(crate) fn new(
        program: &'a Program,
        columns: &'a [(String, DataType)],
        (range, total): (ResultRange, u64),
        progress: Option<ProgressCallback>,
        consume: ConsumeBatch<'a>,
    ) -> Self {
        let builders = columns.iter().map(|(_, kind)| ColumnBuilder::new(kind, BATCH_ROWS));
        Self {
            answers: program.known_answers(),
            columns,
            builders: builders.collect(),
            rows: 0,
            range,
            done: 0,
            total,
            progress,
            consume,
        }
    }

    /// Answers a request at the moment to which the tables are cut. Breaks when no more are wanted.
    pub(crate) fn answer(
        &mut self,
        request: &[Datum<'_>],
        tables: &KnownTables<'_>,
    ) -> Result<ControlFlow<()>> {
        if self.range.rows_max == Some(0) {
            return Ok(ControlFlow::Break(()));
        }
        debug_assert!(self.rows < BATCH_ROWS, "full batches are passed on");
        self.report()?;
        let Self { answers, builders, rows, range, .. } = self;
        answers.answer(request, tables.moment(), &mut |row| {
            if range.skipped > 0 {
                range.skipped -= 1;
            } else if range.rows_max != Some(0) {
                debug_assert_eq!(row.len(), builders.len(), "a row has a value for each column");
                range.rows_max = range.rows_max.map(|most| most - 1);
                builders.iter_mut().zip(row).for_each(|(builder, value)| builder.push(*value));
                *rows += 1;
            }
        })?;
        if self.rows >= BATCH_ROWS {
            self.flush()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on the last rows.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.rows > 0 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let builders = std::mem::take(&mut self.builders);
        let rows = std::mem::take(&mut self.rows);
        debug_assert!(rows > 0, "there are rows to pass on");
        debug_assert_eq!(builders.len(), self.columns.len(), "a builder for each column");
        let output = Output::of_columns(self.columns.to_vec(), builders, rows)?;
        let columns = self.columns.iter();
        self.builders = columns.map(|(_, kind)| ColumnBuilder::new(kind, BATCH_ROWS)).collect();
        output.batches.into_iter().try_for_each(&mut *self.consume)
    }

    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    fn report(&mut self) -> Result<()> {
        if self.done.is_multiple_of(REQUESTS_PER_CHECKPOINT) {
            checkpoint()?;
        }
        if self.done.is_multiple_of(REQUESTS_PER_REPORT) {
            query::report(CallStep::AnswerRequests, self.done.min(self.total), self.total);
            if let Some(progress) = &self.progress {
                progress(self.done.min(self.total) as f64 / self.total.max(1) as f64);
            }
        }
        self.done += 1;
        Ok(())
    }
}
