//! Rows of values into Arrow batches, in which each batch has the columns that its rows have.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::text_rows::JsonRow;
use lockstep_row::{
    DataType,
    arrow::{ColumnBuilder, arrow_type},
};

/// Collects rows. A new batch begins where a row has other columns than the one before: a column that
/// is not there is not NULL, but takes its default.
pub(crate) struct RowBatches<'s> {
    columns: &'s [(String, DataType)],
    present: Vec<bool>,
    builders: Vec<ColumnBuilder>,
    rows: usize,
    batches: Vec<RecordBatch>,
}

impl<'s> RowBatches<'s> {
    /// Makes it without rows.
    pub(crate) fn new(columns: &'s [(String, DataType)]) -> Self {
        Self { columns, present: Vec::new(), builders: Vec::new(), rows: 0, batches: Vec::new() }
    }

    /// Adds a row, whose values have the types of the columns.
    pub(crate) fn push(&mut self, row: &JsonRow<'_>) -> Result<()> {
        debug_assert_eq!(row.values.len(), self.columns.len(), "a row has all values");
        if self.rows == 0 || self.present != row.present {
            self.end_batch()?;
            row.present.clone_into(&mut self.present);
            let columns = self.columns.iter();
            self.builders = columns.map(|(_, t)| ColumnBuilder::new(t, 1)).collect();
        }
        for (builder, value) in self.builders.iter_mut().zip(row.values) {
            builder.push(*value);
        }
        self.rows += 1;
        Ok(())
    }

    /// Returns the batches: at least one.
    pub(crate) fn finish(mut self) -> Result<Vec<RecordBatch>> {
        if self.rows == 0 {
            self.present = vec![true; self.columns.len()];
            let columns = self.columns.iter();
            self.builders = columns.map(|(_, t)| ColumnBuilder::new(t, 0)).collect();
            let empty = self.batch()?;
            self.batches.push(empty);
        }
        self.end_batch()?;
        Ok(self.batches)
    }

    fn end_batch(&mut self) -> Result<()> {
        if self.rows > 0 {
            let batch = self.batch()?;
            self.batches.push(batch);
        }
        self.rows = 0;
        Ok(())
    }

    fn batch(&mut self) -> Result<RecordBatch> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        let columns = self.columns.iter().zip(&mut self.builders).zip(&self.present);
        for (((name, data_type), builder), _) in columns.filter(|(_, is_present)| **is_present) {
            fields.push(Field::new(name, arrow_type(data_type), true));
            arrays.push(builder.finish());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let schema = Arc::new(Schema::new(fields));
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
    }
}
