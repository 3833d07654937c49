//! What a statement gives back.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use lockstep_diagnostic::Diagnostic;
use lockstep_function::Settings;
use lockstep_row::{DataType, arrow::arrow_type};

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
    /// The session's, by which values are shown to a person: times in its time zone.
    pub settings: Settings,
}

impl Output {
    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The schema of the batches; made from the columns when there is no batch.
    pub fn schema(&self) -> SchemaRef {
        if let Some(batch) = self.batches.first() {
            return batch.schema();
        }
        let field = |(at, (name, data_type)): (usize, &(String, DataType))| {
            let repeats = self.columns[..at].iter().filter(|(other, _)| other == name).count();
            let name = if repeats == 0 { name.clone() } else { format!("{name}:{}", repeats + 1) };
            Field::new(name, arrow_type(data_type), true)
        };
        Arc::new(Schema::new(self.columns.iter().enumerate().map(field).collect::<Vec<_>>()))
    }
}
