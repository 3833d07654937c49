//! Decoding of stored rows to columns.
//!
//! `execute` takes the snapshots of all tables of a query together, before anything else runs, and
//! decodes the columns that the query reads; a table that is read twice is decoded once. A snapshot
//! delays the freeing of rows and cannot leave its thread, so it is dropped after decoding. Columns
//! that do not fit into the query's memory go to a file, from which the query reads them.

use std::{collections::BTreeSet, fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{Result, internal_datafusion_err},
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::{memory_pool::MemoryReservation, runtime_env::RuntimeEnv},
    logical_expr::TableScan,
    physical_plan::ExecutionPlan,
};
use lockstep_host::query;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, arrow::ColumnBuilder};
use lockstep_table::ScanRows;

use crate::{
    error::{interrupted, into_datafusion},
    operator::{BATCH_ROWS, OperatorOptions},
    source::{BlockingScan, SourceBatches, SourceExec},
    spill::{SpillWriter, SpilledRows, is_out_of_memory},
};

/// The decoded columns of a table.
#[derive(Debug)]
pub(crate) struct ScannedTable {
    /// Positions in the table of the columns of `batches`.
    columns: Vec<usize>,
    schema: SchemaRef,
    rows: DecodedRows,
    _memory: MemoryReservation,
}

/// The rows of a decoded table.
#[derive(Debug)]
enum DecodedRows {
    InMemory(Vec<RecordBatch>),
    OnDisk(SpilledRows),
}

/// Where the columns of a table go.
pub(crate) struct ScanMemory<'e> {
    /// Counts the columns in memory.
    pub(crate) memory: MemoryReservation,
    /// Has the files of those that do not fit.
    pub(crate) env: &'e Arc<RuntimeEnv>,
    /// Whether none of them is to be in memory.
    pub(crate) on_disk: bool,
}

impl ScannedTable {
    /// Decodes some columns of the rows of a snapshot, in order of arrival.
    pub(crate) fn new(
        rows: ScanRows<'_>,
        table: &CatalogTable,
        columns: &BTreeSet<usize>,
        memory: ScanMemory<'_>,
    ) -> Result<Self> {
        let ScanMemory { memory, env, on_disk } = memory;
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
            on_disk: on_disk.then(|| SpillWriter::new(env, &schema)),
            env,
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
        let rows = match decoder.on_disk {
            Some(writer) => DecodedRows::OnDisk(writer.finish()?),
            None => DecodedRows::InMemory(decoder.batches),
        };
        Ok(Self { columns, schema, rows, _memory: decoder.memory })
    }

    /// Returns a source of the columns that `scan` reads.
    pub(crate) fn plan(
        &self,
        scan: &TableScan,
        options: &OperatorOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = projection(scan);
        let positions = columns.iter().map(|column| {
            let position = self.columns.binary_search(column).ok();
            position.ok_or_else(|| internal_datafusion_err!("column {column} was not decoded"))
        });
        let positions = positions.collect::<Result<Vec<_>>>()?;
        let batches = match &self.rows {
            DecodedRows::InMemory(batches) => batches,
            DecodedRows::OnDisk(rows) => {
                let schema = Arc::new(self.schema.project(&positions)?);
                let scan =
                    SpilledScan { rows: rows.clone(), columns: positions, limit: scan.fetch };
                let context = options.context.clone();
                return Ok(Arc::new(SourceExec::new(Arc::new(scan), schema, context)));
            }
        };
        let partitions = [batches.clone()];
        let source =
            MemorySourceConfig::try_new(&partitions, Arc::clone(&self.schema), Some(positions))?
                .with_limit(scan.fetch);
        Ok(DataSourceExec::from_data_source(source))
    }
}

/// Some columns of a decoded table on disk.
#[derive(Debug)]
struct SpilledScan {
    rows: SpilledRows,
    columns: Vec<usize>,
    limit: Option<usize>,
}

impl fmt::Display for SpilledScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} columns of a table, from disk", self.columns.len())
    }
}

impl BlockingScan for SpilledScan {
    fn open(&self) -> Result<SourceBatches> {
        Ok(Box::new(self.rows.read(Some(self.columns.clone()))?))
    }

    fn limit(&self) -> Option<usize> {
        self.limit
    }

    fn row_count(&self) -> Option<usize> {
        usize::try_from(self.rows.row_count()).ok()
    }
}

/// Returns the positions in the table of the columns that a scan reads.
pub(crate) fn projection(scan: &TableScan) -> Vec<usize> {
    match &scan.projection {
        Some(columns) => columns.clone(),
        None => (0..scan.source.schema().fields().len()).collect(),
    }
}

struct Decoder<'e> {
    builders: Vec<ColumnBuilder>,
    schema: SchemaRef,
    row_count: usize,
    batches: Vec<RecordBatch>,
    /// Takes the batches when the memory is used up.
    on_disk: Option<SpillWriter>,
    env: &'e Arc<RuntimeEnv>,
    memory: MemoryReservation,
}

impl Decoder<'_> {
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
        self.row_count = 0;
        if let Some(writer) = &mut self.on_disk {
            return writer.write(batch);
        }
        match self.memory.try_grow(batch.get_array_memory_size()) {
            Ok(()) => {
                self.batches.push(batch);
                Ok(())
            }
            Err(error) if is_out_of_memory(&error) => self.move_to_disk(batch),
            Err(error) => Err(error),
        }
    }

    /// Writes the decoded batches to a file, and the ones that follow.
    fn move_to_disk(&mut self, last: RecordBatch) -> Result<()> {
        let mut writer = SpillWriter::new(self.env, &self.schema);
        for batch in std::mem::take(&mut self.batches) {
            writer.write(batch)?;
        }
        self.memory.free();
        writer.write(last)?;
        self.on_disk = Some(writer);
        Ok(())
    }
}
