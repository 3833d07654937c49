//! What a statement gives back.

use arrow::array::RecordBatch;
use lockstep_diagnostic::Diagnostic;
use lockstep_row::DataType;

/// The result of a statement.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Names (which may repeat) and types of the columns; empty for a statement without rows.
    pub columns: Vec<(String, DataType)>,
    /// The rows. The fields of the batches' schema have unique names; use `columns` to print.
    pub batches: Vec<RecordBatch>,
    /// Rows written, for statements that write.
    pub rows_affected: Option<u64>,
    /// A line for a person, such as `CREATE TABLE`.
    pub message: Option<String>,
    /// Warnings, such as lints.
    pub warnings: Vec<Diagnostic>,
}

impl Output {
    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}
