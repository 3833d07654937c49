//! Rows that a continuous query gives, as columns.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{DataType, Datum, arrow::ColumnBuilder};

use super::FinalRows;
use crate::output::schema_of;

/// Rows that were not taken.
#[derive(Debug)]
pub(super) struct RowBuffer {
    columns: Vec<(String, DataType)>,
    schema: SchemaRef,
    builders: Vec<ColumnBuilder>,
    arrivals: Vec<u64>,
}

impl RowBuffer {
    pub(super) fn new(columns: Vec<(String, DataType)>) -> Self {
        let schema = schema_of(&columns);
        let builders = builders(&columns);
        Self { columns, schema, builders, arrivals: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Adds the row of a main row with this arrival.
    pub(super) fn push(&mut self, row: &[Datum<'_>], arrival: u64) {
        debug_assert_eq!(row.len(), self.builders.len(), "a row has all columns");
        for (builder, value) in self.builders.iter_mut().zip(row) {
            builder.push(*value);
        }
        self.arrivals.push(arrival);
    }

    /// Takes the rows.
    pub(super) fn take(&mut self) -> Result<FinalRows> {
        debug_assert_eq!(
            self.builders.len(),
            self.schema.fields().len(),
            "each column has a builder"
        );
        let mut builders = std::mem::replace(&mut self.builders, builders(&self.columns));
        let columns: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let arrivals = std::mem::take(&mut self.arrivals);
        let options = RecordBatchOptions::new().with_row_count(Some(arrivals.len()));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options);
        let batch = batch.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        Ok(FinalRows { batch, arrivals })
    }
}

fn builders(columns: &[(String, DataType)]) -> Vec<ColumnBuilder> {
    columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 0)).collect()
}
