//! Rows that a continuous query gives, as columns.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    compute::interleave_record_batch,
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

/// Rows that a joiner of a query gave.
#[derive(Debug)]
pub(super) struct JoinerRows {
    pub(super) rows: FinalRows,
    /// For each the event time of its main row.
    pub(super) times: Vec<Option<i64>>,
}

/// Puts the rows of several joiners together, by event time and then by arrival; those of one stay as they are.
pub(super) fn merged(mut of_joiners: Vec<JoinerRows>) -> Result<FinalRows> {
    debug_assert!(!of_joiners.is_empty(), "a query has a joiner");
    let with_rows = |of: &JoinerRows| !of.times.is_empty();
    if of_joiners.iter().filter(|of| with_rows(of)).count() <= 1 {
        let only = of_joiners.iter().position(with_rows).unwrap_or(0);
        return Ok(of_joiners.swap_remove(only).rows);
    }
    let places = of_joiners.iter().enumerate().flat_map(|(joiner, JoinerRows { rows, times })| {
        let arrivals = times.iter().zip(&rows.arrivals).enumerate();
        arrivals.map(move |(at, (time, arrival))| (*time, *arrival, (joiner, at)))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_unstable();
    let batches: Vec<&RecordBatch> = of_joiners.iter().map(|of| &of.rows.batch).collect();
    let arrivals = places.iter().map(|(_, arrival, _)| *arrival).collect();
    let indices: Vec<(usize, usize)> = places.into_iter().map(|(_, _, place)| place).collect();
    let batch = interleave_record_batch(&batches, &indices)
        .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
    Ok(FinalRows { batch, arrivals })
}

fn builders(columns: &[(String, DataType)]) -> Vec<ColumnBuilder> {
    columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 0)).collect()
}
