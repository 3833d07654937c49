//! What a verification has found so far, and how far it is.

use std::{num::NonZeroUsize, ops::ControlFlow};

use lockstep_diagnostic::Result;
use lockstep_function::{Settings, cast::print_datum};
use lockstep_host::{CallStep, in_order, query};
use lockstep_row::{DataType, Datum};

use super::{Difference, Verification};
use crate::{ProgressCallback, context::checkpoint};

/// The most differences that are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// What rows are compared with, and what was found.
pub(super) struct RowComparison<'r> {
    /// The columns of the answer.
    columns: &'r [(String, DataType)],
    pub(super) settings: &'r Settings,
    pub(super) found: Verification,
}

/// A verification that is running.
pub(super) struct ReplayReport<'r> {
    comparison: RowComparison<'r>,
    progress: Option<&'r ProgressCallback>,
}

impl<'r> ReplayReport<'r> {
    /// Begins with nothing found.
    pub(super) fn new(
        columns: &'r [(String, DataType)],
        settings: &'r Settings,
        progress: Option<&'r ProgressCallback>,
    ) -> Self {
        Self { comparison: RowComparison::new(columns, settings), progress }
    }

    pub(super) fn columns(&self) -> &'r [(String, DataType)] {
        self.comparison.columns
    }

    pub(super) fn settings(&self) -> &'r Settings {
        self.comparison.settings
    }

    /// Notes the number of stored rows.
    pub(super) fn begin(&mut self, rows: u64) {
        self.comparison.found.rows = rows;
    }

    /// Tells how many stored rows were passed. Fails if the call was interrupted, perhaps by the progress function.
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    pub(super) fn tell(&self, done: u64) -> Result<()> {
        let total = self.comparison.found.rows;
        query::report(CallStep::AnswerRequests, done.min(total), total);
        if let Some(progress) = self.progress {
            progress(done as f64 / total.max(1) as f64);
        }
        checkpoint()
    }

    /// Compares blocks of rows on several threads, and adds what they find in the order of the blocks. A
    /// worker returns how many stored rows were passed with its block, and what it found.
    pub(super) fn add_blocks<B, W>(
        &mut self,
        threads: NonZeroUsize,
        blocks: impl Iterator<Item = B>,
        worker: impl Fn() -> W + Sync,
    ) -> Result<()>
    where
        B: Send,
        W: FnMut(B) -> Result<(u64, Verification)>,
    {
        let mut outcome = Ok(());
        in_order(threads, blocks, worker, |compared| {
            let told = compared.and_then(|(done, found)| {
                self.add(found);
                self.tell(done)
            });
            match told {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        outcome
    }

    /// Adds what was found of later rows.
    fn add(&mut self, later: Verification) {
        let found = &mut self.comparison.found;
        found.requests += later.requests;
        found.values += later.values;
        found.differing += later.differing;
        let more = DIFFERENCES_MAX.saturating_sub(found.differences.len());
        found.differences.extend(later.differences.into_iter().take(more));
    }

    /// Ends, and returns what was found.
    pub(super) fn end(self) -> Verification {
        let found = self.comparison.found;
        debug_assert!(found.requests <= found.rows, "a request is for a stored row");
        found
    }
}

impl<'r> RowComparison<'r> {
    /// Begins with nothing found.
    pub(super) fn new(columns: &'r [(String, DataType)], settings: &'r Settings) -> Self {
        Self { columns, settings, found: Verification::default() }
    }

    /// Counts a request, whose answer is to be compared.
    pub(super) fn count_request(&mut self) {
        self.found.requests += 1;
    }

    /// Compares what both modes have for a stored row, which is one row at most.
    pub(super) fn compare(
        &mut self,
        row: u64,
        batch: Option<&[Datum<'_>]>,
        request: Option<&[Datum<'_>]>,
    ) {
        self.count_request();
        match (batch, request) {
            (None, None) => {}
            (Some(batch), Some(request)) => self.compare_row(row, batch, request),
            (batch, request) => {
                let shown = |values: Option<&[Datum<'_>]>| match values {
                    Some(_) => "a row".to_owned(),
                    None => "no row".to_owned(),
                };
                self.add(row, "", shown(batch), shown(request));
            }
        }
    }

    /// Compares a row of batch mode with an answer, value by value.
    pub(super) fn compare_row(&mut self, row: u64, batch: &[Datum<'_>], request: &[Datum<'_>]) {
        let columns = self.columns;
        debug_assert_eq!(request.len(), columns.len(), "an answer has a value for each column");
        for ((batch, request), (name, _)) in batch.iter().zip(request).zip(columns) {
            self.found.values += 1;
            if !batch.is_bit_equal(request) {
                let (batch, request) =
                    (print_datum(*batch, self.settings), print_datum(*request, self.settings));
                self.add(row, name, batch, request);
            }
        }
    }

    /// Adds a difference.
    pub(super) fn add(&mut self, row: u64, column: &str, batch: String, request: String) {
        self.found.differing += 1;
        if self.found.differences.len() < DIFFERENCES_MAX {
            let column = column.to_owned();
            self.found.differences.push(Difference { row, column, batch, request });
        }
    }
}
