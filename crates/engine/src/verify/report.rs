//! What a verification has found so far, and how far it is.

use lockstep_function::{Settings, cast::print_datum};
use lockstep_host::{CallStep, query};
use lockstep_row::{DataType, Datum};

use super::{Difference, Verification};
use crate::ProgressCallback;

/// The most differences that are reported in full.
const DIFFERENCES_MAX: usize = 20;

/// A verification that is running.
pub(super) struct ReplayReport<'r> {
    /// The columns of the answer.
    pub(super) columns: &'r [(String, DataType)],
    pub(super) settings: &'r Settings,
    progress: Option<&'r ProgressCallback>,
    pub(super) found: Verification,
}

impl<'r> ReplayReport<'r> {
    /// Begins with nothing found.
    pub(super) fn new(
        columns: &'r [(String, DataType)],
        settings: &'r Settings,
        progress: Option<&'r ProgressCallback>,
    ) -> Self {
        Self { columns, settings, progress, found: Verification::default() }
    }

    /// Notes the number of stored rows.
    pub(super) fn begin(&mut self, rows: u64) {
        self.found.rows = rows;
    }

    /// Tells how many stored rows were passed.
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    pub(super) fn tell(&self, done: u64) {
        let total = self.found.rows;
        query::report(CallStep::AnswerRequests, done.min(total), total);
        if let Some(progress) = self.progress {
            progress(done as f64 / total.max(1) as f64);
        }
    }

    /// Counts a request.
    pub(super) fn count_request(&mut self) {
        self.found.requests += 1;
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
