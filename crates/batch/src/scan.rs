//! Scans of stored tables: rows are decoded to columns while the query asks for them.
//!
//! A read ([`crate::table_reads`]) holds the rows of a table as they were when the query began ([`HeldRows`]). They
//! are decoded in parts of a few MiB: by several threads, some parts ahead of the query, which receives them in order
//! of arrival; a table of one part at once. Nothing but these parts is in memory, or is copied.
//!
//! Rows that were found by their keys are decoded before the query runs ([`DecodedRows`]).

use std::{
    fmt,
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use arrow::{
    array::{Array as _, AsArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::SchemaRef,
};
use datafusion::{
    common::{DataFusionError, Result, internal_datafusion_err, internal_err, stats::Precision},
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::{
        memory_pool::{MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    logical_expr::TableScan,
    physical_expr::PhysicalExpr,
    physical_plan::ExecutionPlan,
};
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, RowView, arrow::ColumnBuilder};
use lockstep_table::{ColumnRange, HeldRows, ReadError};

use crate::{
    error::into_datafusion,
    operator::{BATCH_ROWS, OperatorOptions},
    source::{BlockingScan, PushBatch, SourceBatches, SourceExec},
};

/// The bytes of the rows that a thread decodes in one go: some milliseconds of work.
const PART_BYTES: usize = 4 << 20;
/// The parts of a scan that are decoded ahead take about this part of a query's memory at most.
const AHEAD_SHARE: usize = 8;
/// The parts that wait or are decoded, for each thread.
const PARTS_PER_THREAD: usize = 4;

/// Returns the positions in the table of the columns that a scan reads.
pub(crate) fn projection(scan: &TableScan) -> Vec<usize> {
    match &scan.projection {
        Some(columns) => columns.clone(),
        None => (0..scan.source.schema().fields().len()).collect(),
    }
}

/// Some columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct DecodedColumns {
    /// Their positions in the table, and their types.
    positions: Vec<usize>,
    types: Vec<DataType>,
    schema: SchemaRef,
}

impl DecodedColumns {
    pub(crate) fn new(table: &CatalogTable, positions: Vec<usize>) -> Result<Self> {
        let types = positions.iter().map(|column| table.schema.columns[*column].data_type.clone());
        let schema = Arc::new(table.arrow_schema.project(&positions)?);
        Ok(Self { types: types.collect(), positions, schema })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Rows that are decoded to batches, until there are enough.
pub(crate) struct Decoder<'d> {
    columns: &'d DecodedColumns,
    /// Keeps the rows that pass; over the columns.
    filter: Option<&'d Arc<dyn PhysicalExpr>>,
    builders: Vec<ColumnBuilder>,
    arena: Arena,
    /// The rows in the builders.
    row_count: usize,
    /// The rows that are still wanted.
    left: usize,
    batches: Vec<RecordBatch>,
    /// Counts the batches, where they are to be kept.
    memory: Option<&'d MemoryReservation>,
}

impl<'d> Decoder<'d> {
    /// Decodes at most `rows_max` rows that pass a filter.
    pub(crate) fn new(
        columns: &'d DecodedColumns,
        filter: Option<&'d Arc<dyn PhysicalExpr>>,
        rows_max: usize,
    ) -> Self {
        let builder = |data_type| ColumnBuilder::new(data_type, BATCH_ROWS);
        let builders = columns.types.iter().map(builder).collect();
        let (arena, row_count, batches) = (Arena::new(), 0, Vec::new());
        let (left, memory) = (rows_max, None);
        Self { columns, filter, builders, arena, row_count, left, batches, memory }
    }

    /// Has the batches counted.
    pub(crate) fn count_in(&mut self, memory: &'d MemoryReservation) {
        self.memory = Some(memory);
    }

    /// Returns whether there are fewer rows than wanted.
    #[inline]
    pub(crate) fn wants_rows(&self) -> bool {
        self.left > 0
    }

    /// Adds a row, of which there are fewer than wanted.
    #[inline]
    pub(crate) fn push(&mut self, row: RowView<'_>) -> Result<()> {
        debug_assert!(self.left > 0, "rows are wanted");
        for (builder, column) in self.builders.iter_mut().zip(&self.columns.positions) {
            builder.push(row.get_in(*column, &self.arena));
        }
        self.arena.reset();
        self.row_count += 1;
        // Without a filter no row is decoded in vain.
        if self.row_count == BATCH_ROWS || (self.filter.is_none() && self.row_count == self.left) {
            self.end_batch()?;
        }
        Ok(())
    }

    fn end_batch(&mut self) -> Result<()> {
        let row_count = std::mem::take(&mut self.row_count);
        debug_assert!(row_count <= BATCH_ROWS, "a batch has a limit");
        let columns = self.builders.iter_mut().map(|builder| {
            let mut column = builder.finish();
            if row_count < BATCH_ROWS {
                // What keeps the batch counts its buffers, which are made for more rows.
                column.shrink_to_fit();
            }
            column
        });
        let columns = columns.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let schema = Arc::clone(&self.columns.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let batch = self.passing(batch)?;
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        if batch.num_rows() > 0 {
            if let Some(memory) = self.memory {
                memory.try_grow(batch.get_array_memory_size())?;
            }
            self.batches.push(batch);
        }
        Ok(())
    }

    /// Returns the rows of a batch that pass the filter.
    fn passing(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(filter) = self.filter else { return Ok(batch) };
        let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
        let Some(passes) = passes.as_boolean_opt() else {
            return internal_err!("a condition is BOOL");
        };
        Ok(filter_record_batch(&batch, passes)?)
    }

    /// Returns the batches, none of which is empty.
    pub(crate) fn finish(mut self) -> Result<Vec<RecordBatch>> {
        if self.row_count > 0 {
            self.end_batch()?;
        }
        Ok(self.batches)
    }
}

/// Rows of a table that were decoded before the query ran.
#[derive(Debug)]
pub(crate) struct DecodedRows {
    columns: DecodedColumns,
    batches: Vec<RecordBatch>,
    _memory: MemoryReservation,
}

impl DecodedRows {
    /// Takes batches whose memory is counted.
    pub(crate) fn new(
        columns: DecodedColumns,
        batches: Vec<RecordBatch>,
        memory: MemoryReservation,
    ) -> Self {
        Self { columns, batches, _memory: memory }
    }

    /// Returns a source of the columns that a scan reads.
    pub(crate) fn plan(&self, scan: &TableScan) -> Result<Arc<dyn ExecutionPlan>> {
        let DecodedColumns { positions, schema, .. } = &self.columns;
        let positions = projection(scan).into_iter().map(|column| {
            let position = positions.binary_search(&column).ok();
            position.ok_or_else(|| internal_datafusion_err!("column {column} was not decoded"))
        });
        let positions = positions.collect::<Result<Vec<_>>>()?;
        let partitions = [self.batches.clone()];
        let source = MemorySourceConfig::try_new(&partitions, Arc::clone(schema), Some(positions))?;
        Ok(DataSourceExec::from_data_source(source.with_limit(scan.fetch)))
    }
}

/// The rows that a scan reads of a table.
pub(crate) struct ScannedRows {
    pub(crate) rows: Arc<HeldRows>,
    /// Keeps the rows that pass; over the columns.
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
    /// What the filter, or one above the scan, lets pass.
    pub(crate) ranges: Vec<ColumnRange>,
    /// The most rows.
    pub(crate) rows_max: Option<usize>,
}

/// A scan of a stored table.
struct StoredScan {
    table: String,
    columns: DecodedColumns,
    scanned: ScannedRows,
    options: OperatorOptions,
    /// The arrivals of the rows of each part.
    parts: Vec<Range<u64>>,
    /// The threads that decode.
    threads: NonZeroUsize,
}

impl ScannedRows {
    /// Returns the operator that decodes some columns.
    pub(crate) fn plan(
        self,
        table: &CatalogTable,
        columns: DecodedColumns,
        env: &RuntimeEnv,
        options: &OperatorOptions,
    ) -> Arc<dyn ExecutionPlan> {
        let ahead = PARTS_PER_THREAD * options.threads.get();
        let (part_bytes, threads) = match env.memory_pool.memory_limit() {
            MemoryLimit::Finite(bytes) if bytes / AHEAD_SHARE / ahead < PART_BYTES / 4 => {
                (bytes / AHEAD_SHARE / PARTS_PER_THREAD, NonZeroUsize::MIN)
            }
            MemoryLimit::Finite(bytes) => (bytes / AHEAD_SHARE / ahead, options.threads),
            MemoryLimit::Infinite | MemoryLimit::Unknown => (PART_BYTES, options.threads),
        };
        let (schema, context) = (Arc::clone(&columns.schema), options.context.clone());
        let part_bytes = u64::try_from(part_bytes.min(PART_BYTES)).unwrap_or(u64::MAX);
        let parts = match self.rows_max {
            Some(0) => Vec::new(),
            _ => self.rows.split(part_bytes, &self.ranges),
        };
        let (table, options) = (table.name.clone(), options.clone());
        let scan = StoredScan { table, columns, scanned: self, options, parts, threads };
        Arc::new(SourceExec::new(Arc::new(scan), schema, context))
    }
}

/// An error of a scan, whose reads fail in a way of their own.
struct ScanError(DataFusionError);

impl From<ReadError> for ScanError {
    fn from(error: ReadError) -> Self {
        Self(into_datafusion(error.into()))
    }
}

impl StoredScan {
    /// Decodes the rows of a part.
    fn decode(&self, arrivals: Range<u64>) -> Result<Vec<RecordBatch>> {
        let ScannedRows { rows, filter, ranges, .. } = &self.scanned;
        let rows_max = self.scanned.rows_max.unwrap_or(usize::MAX);
        let mut decoder = Decoder::new(&self.columns, filter.as_ref(), rows_max);
        self.options.check()?;
        let mut visited = 0_usize;
        let outcome = rows.visit(arrivals, ranges, |row| {
            visited += 1;
            if visited.is_multiple_of(BATCH_ROWS) {
                self.options.check().map_err(ScanError)?;
            }
            decoder.push(row).map_err(ScanError)?;
            Ok(if decoder.wants_rows() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        });
        outcome.map_err(|ScanError(error)| error)?;
        decoder.finish()
    }

    /// Passes the batches of a part on, until no more are wanted. An empty batch asks whether any are.
    fn push_all(
        &self,
        mut batches: Vec<RecordBatch>,
        push: PushBatch<'_>,
    ) -> Result<ControlFlow<()>> {
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(Arc::clone(&self.columns.schema)));
        }
        for batch in batches {
            if push(batch)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn stored_row_count(&self) -> usize {
        usize::try_from(self.scanned.rows.stored_row_count()).unwrap_or(usize::MAX)
    }
}

impl fmt::Debug for StoredScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredScan").field("table", &self.table).finish_non_exhaustive()
    }
}

impl fmt::Display for StoredScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.columns.schema.fields().iter().map(|field| field.name().as_str());
        write!(f, "{} [{}]", self.table, names.collect::<Vec<_>>().join(", "))?;
        match &self.scanned.filter {
            Some(filter) => write!(f, ", where {filter}"),
            None => Ok(()),
        }
    }
}

impl BlockingScan for StoredScan {
    fn open(&self) -> Result<SourceBatches> {
        let mut batches = Vec::new();
        for part in &self.parts {
            batches.extend(self.decode(part.clone())?);
        }
        Ok(Box::new(batches.into_iter().map(Ok)))
    }

    fn is_at_hand(&self) -> bool {
        let are_few =
            self.parts.len() <= 1 && self.stored_row_count() < self.options.parallel_rows_min;
        are_few && self.scanned.rows.are_in_memory()
    }

    fn push_each(&self, push: PushBatch<'_>) -> Result<()> {
        let mut outcome = Ok(());
        let (parts, worker) = (self.parts.iter().cloned(), || |part| self.decode(part));
        lockstep_host::in_order(self.threads, parts, worker, |decoded| {
            let pushed = decoded.and_then(|batches| self.push_all(batches, push));
            pushed.unwrap_or_else(|error| {
                outcome = Err(error);
                ControlFlow::Break(())
            })
        });
        outcome
    }

    fn limit(&self) -> Option<usize> {
        self.scanned.rows_max
    }

    fn row_count(&self) -> Precision<usize> {
        // Expired rows are stored as well, and those that no range lets pass.
        Precision::Inexact(self.stored_row_count())
    }
}
