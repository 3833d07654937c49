//! Decoding of stored rows to columns.
//!
//! `execute` takes the snapshots of all tables of a query together, before anything else runs, and
//! decodes the columns that the query reads; a table that is read twice is decoded once. A snapshot
//! delays the freeing of rows and cannot leave its thread, so it is dropped after decoding.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{Result, internal_datafusion_err},
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::memory_pool::MemoryReservation,
    logical_expr::TableScan,
    physical_plan::ExecutionPlan,
};
use lockstep_host::query;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, arrow::ColumnBuilder};
use lockstep_table::ScanRows;

use crate::{
    error::{interrupted, into_datafusion},
    operator::BATCH_ROWS,
};

/// The decoded columns of a table.
#[derive(Debug)]
pub(crate) struct ScannedTable {
    /// Positions in the table of the columns of `batches`.
    columns: Vec<usize>,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl ScannedTable {
    /// Decodes some columns of the rows of a snapshot, in order of arrival.
    pub(crate) fn new(
        rows: ScanRows<'_>,
        table: &CatalogTable,
        columns: &BTreeSet<usize>,
        memory: MemoryReservation,
    ) -> Result<Self> {
        let columns: Vec<usize> = columns.iter().copied().collect();
        let types: Vec<&DataType> =
            columns.iter().map(|column| &table.schema.columns[*column].data_type).collect();
        let schema = Arc::new(table.arrow_schema.project(&columns)?);
        let mut decoder = Decoder {
            builders: types
                .iter()
                .map(|data_type| ColumnBuilder::new(data_type, BATCH_ROWS))
                .collect(),
            schema: Arc::clone(&schema),
            row_count: 0,
            batches: Vec::new(),
            memory,
        };
        let mut arena = Arena::new();
        for stored in rows {
            for (builder, column) in decoder.builders.iter_mut().zip(&columns) {
                builder.push(stored.row.get_in(*column, &arena));
            }
            arena.reset();
            decoder.end_row()?;
        }
        decoder.end_batch()?;
        Ok(Self { columns, schema, batches: decoder.batches, _memory: decoder.memory })
    }

    /// Returns a source of the columns that `scan` reads.
    pub(crate) fn plan(&self, scan: &TableScan) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection(scan);
        let positions = columns.iter().map(|column| {
            let position = self.columns.binary_search(column).ok();
            position.ok_or_else(|| internal_datafusion_err!("column {column} was not decoded"))
        });
        let positions = positions.collect::<Result<Vec<_>>>()?;
        let partitions = [self.batches.clone()];
        let source =
            MemorySourceConfig::try_new(&partitions, Arc::clone(&self.schema), Some(positions))?
                .with_limit(scan.fetch);
        Ok(DataSourceExec::from_data_source(source))
    }
}

/// Returns the positions in the table of the columns that a scan reads.
pub(crate) fn projection(scan: &TableScan) -> Vec<usize> {
    match &scan.projection {
        Some(columns) => columns.clone(),
        None => (0..scan.source.schema().fields().len()).collect(),
    }
}

struct Decoder {
    builders: Vec<ColumnBuilder>,
    schema: SchemaRef,
    row_count: usize,
    batches: Vec<RecordBatch>,
    memory: MemoryReservation,
}

impl Decoder {
    fn end_row(&mut self) -> Result<()> {
        self.row_count += 1;
        if self.row_count == BATCH_ROWS {
            self.end_batch()?;
            let outcome = query::checkpoint();
            outcome.map_err(|interrupt| into_datafusion(interrupted(interrupt)))?;
        }
        Ok(())
    }

    fn end_batch(&mut self) -> Result<()> {
        if self.row_count == 0 {
            return Ok(());
        }
        debug_assert!(self.row_count <= BATCH_ROWS, "a batch has a limit");
        let columns = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.row_count));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        self.memory.try_grow(batch.get_array_memory_size())?;
        self.batches.push(batch);
        self.row_count = 0;
        Ok(())
    }
}
