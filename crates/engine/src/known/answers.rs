//! Answers that are passed on as batches of rows: several threads answer blocks of requests, and the
//! batches are in the order of the requests.

use std::{num::NonZeroUsize, ops::ControlFlow};

use arrow::{array::RecordBatch, compute::concat_batches};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::{CallStep, in_order, query};
use lockstep_request::{KnownAnswers, Program};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::{KnownTables, ResultRange};
use crate::{Output, ProgressCallback, context::checkpoint};

/// A batch that is passed on has at least so many rows, but for the last one.
const BATCH_ROWS: usize = 8_192;

/// The requests of a block: few in the first ones, which may be all that is wanted.
const BLOCK_REQUESTS_MIN: usize = 16;
const BLOCK_REQUESTS_MAX: usize = 512;
const _: () = assert!(0 < BLOCK_REQUESTS_MIN && BLOCK_REQUESTS_MIN <= BLOCK_REQUESTS_MAX);

/// The number of requests between two checks for an interrupt.
const REQUESTS_PER_CHECKPOINT: usize = 64;

/// A consumer of batches.
pub(crate) type ConsumeBatch<'c> = &'c mut dyn FnMut(RecordBatch) -> Result<()>;

/// The answers to the rows of a main table.
pub(crate) struct KnownRun<'a> {
    pub(crate) program: &'a Program,
    pub(crate) columns: &'a [(String, DataType)],
    pub(crate) range: ResultRange,
    /// The number of requests.
    pub(crate) total: u64,
    pub(crate) progress: Option<ProgressCallback>,
    pub(crate) threads: NonZeroUsize,
}

/// The requests of one thread, and the answers to those of its current block.
pub(crate) struct Requests<'t> {
    /// The tables, which are cut for each request.
    pub(crate) tables: KnownTables<'t>,
    answers: KnownAnswers<'t>,
    columns: &'t [(String, DataType)],
    builders: Vec<ColumnBuilder>,
    /// The number of rows in the builders.
    rows: usize,
}

/// The answers to the requests of a block.
struct AnsweredBlock {
    requests: usize,
    batches: Vec<RecordBatch>,
    /// Why the requests after those are not answered.
    error: Option<Box<Diagnostic>>,
}

impl KnownRun<'_> {
    /// Answers the requests that `answer` makes of rows, each at a moment of its own.
    pub(crate) fn run<T: Send>(
        self,
        tables: &KnownTables<'_>,
        mut rows: impl Iterator<Item = T>,
        answer: impl Fn(T, &mut Requests<'_>) -> Result<()> + Sync,
        consume: ConsumeBatch<'_>,
    ) -> Result<()> {
        if self.range.rows_max == Some(0) {
            return Ok(());
        }
        // Batch mode may have any number of rows for one request.
        let most = if self.program.is_compiled() { BLOCK_REQUESTS_MAX } else { 1 };
        let mut size = BLOCK_REQUESTS_MIN.min(most);
        let blocks = std::iter::from_fn(|| {
            let block: Vec<T> = rows.by_ref().take(size).collect();
            size = (size * 2).min(most);
            (!block.is_empty()).then_some(block)
        });
        let (shared, program, columns) = (tables.share(), self.program, self.columns);
        let worker = || {
            let mut requests = Requests::new(shared.open(), program, columns);
            let answer = &answer;
            move |block: Vec<T>| requests.answer_block(block, answer)
        };
        let Self { range, total, progress, .. } = self;
        let (pending, pending_rows) = (Vec::new(), 0);
        let mut passing =
            PassedAnswers { range, done: 0, total, progress, consume, pending, pending_rows };
        let mut outcome = Ok(());
        in_order(self.threads, blocks, worker, |block| match passing.pass(block) {
            Ok(goes_on) => goes_on,
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        });
        outcome?;
        passing.flush()
    }
}

impl<'t> Requests<'t> {
    fn new(
        tables: KnownTables<'t>,
        program: &'t Program,
        columns: &'t [(String, DataType)],
    ) -> Self {
        Self { tables, answers: program.known_answers(), columns, builders: Vec::new(), rows: 0 }
    }

    /// Answers a request at the moment to which the tables are cut.
    pub(crate) fn answer(&mut self, request: &[Datum<'_>]) -> Result<()> {
        let Self { tables, answers, builders, rows, .. } = self;
        answers.answer(request, tables.moment(), &mut |row| {
            debug_assert_eq!(row.len(), builders.len(), "a row has a value for each column");
            builders.iter_mut().zip(row).for_each(|(builder, value)| builder.push(*value));
            *rows += 1;
        })
    }

    fn answer_block<T>(
        &mut self,
        block: Vec<T>,
        answer: &impl Fn(T, &mut Requests<'_>) -> Result<()>,
    ) -> AnsweredBlock {
        let columns = self.columns.iter();
        self.builders = columns.map(|(_, kind)| ColumnBuilder::new(kind, block.len())).collect();
        self.rows = 0;
        let (mut requests, mut outcome) = (0, Ok(()));
        for row in block {
            outcome = match requests % REQUESTS_PER_CHECKPOINT {
                0 => checkpoint(),
                _ => Ok(()),
            };
            outcome = outcome.and_then(|()| answer(row, self));
            if outcome.is_err() {
                break;
            }
            requests += 1;
        }
        let (builders, rows) = (std::mem::take(&mut self.builders), self.rows);
        let batches = match rows {
            0 => Ok(Vec::new()),
            _ => Output::of_columns(self.columns.to_vec(), builders, rows).map(|all| all.batches),
        };
        let (batches, error) = match (batches, outcome) {
            (Ok(batches), outcome) => (batches, outcome.err()),
            (Err(error), _) => (Vec::new(), Some(error)),
        };
        AnsweredBlock { requests, batches, error }
    }
}

/// The answers on their way to the consumer.
struct PassedAnswers<'c> {
    /// The rows that are still wanted.
    range: ResultRange,
    /// The number of requests that were answered, and of all.
    done: u64,
    total: u64,
    progress: Option<ProgressCallback>,
    consume: ConsumeBatch<'c>,
    /// Rows that wait for more of them.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
}

impl PassedAnswers<'_> {
    /// Passes the answers of a block on. Breaks when no more rows are wanted.
    fn pass(&mut self, block: AnsweredBlock) -> Result<ControlFlow<()>> {
        let AnsweredBlock { requests, batches, error } = block;
        self.done += u64::try_from(requests).unwrap_or(u64::MAX);
        self.report();
        for batch in batches {
            let rows = self.range.take(batch.num_rows());
            if !rows.is_empty() {
                self.pending_rows += rows.len();
                self.pending.push(batch.slice(rows.start, rows.len()));
            }
        }
        if self.range.rows_max == Some(0) {
            return Ok(ControlFlow::Break(()));
        }
        if self.pending_rows >= BATCH_ROWS {
            self.flush()?;
        }
        match error {
            Some(error) => Err(error),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Passes the rows on that wait.
    fn flush(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.pending);
        self.pending_rows = 0;
        let Some(first) = batches.first() else { return Ok(()) };
        let batch = concat_batches(&first.schema(), &batches)
            .map_err(|error| Diagnostic::internal(error.to_string()))?;
        (self.consume)(batch)
    }

    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    fn report(&self) {
        let done = self.done.min(self.total);
        query::report(CallStep::AnswerRequests, done, self.total);
        if let Some(progress) = &self.progress {
            progress(done as f64 / self.total.max(1) as f64);
        }
    }
}
