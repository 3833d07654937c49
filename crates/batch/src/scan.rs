//! Decoding of stored rows to columns.
//!
//! The rows of a read ([`crate::table_reads`]) are decoded before the query runs: a snapshot delays
//! the freeing of rows and cannot leave its thread, so it is dropped after decoding. Columns that do
//! not fit into the query's memory go to a file, from which the query reads them. The rows of a large
//! table are decoded in parts, by several threads; those of a read that ends after some rows in waves
//! of parts, until there are enough.

use std::{collections::BTreeSet, fmt, sync::Arc};

use arrow::{
    array::{AsArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::SchemaRef,
};
use datafusion::{
    common::{DataFusionError, Result, internal_datafusion_err, internal_err, resources_err},
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::{
        memory_pool::{MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    logical_expr::TableScan,
    physical_expr::PhysicalExpr,
    physical_plan::ExecutionPlan,
};
use lockstep_host::query;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, arrow::ColumnBuilder};
use lockstep_table::{ReadError, ScanPart, ScanRows, Snapshot, StoredRow};

use crate::{
    error::{interrupted, into_datafusion},
    operator::{BATCH_ROWS, OperatorOptions},
    parallel,
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

/// Decoded rows.
#[derive(Debug)]
pub(crate) enum DecodedRows {
    InMemory(Vec<RecordBatch>),
    OnDisk(SpilledRows),
}

impl DecodedRows {
    /// Returns a source of some columns, at most `limit` rows. `schema` is that of all columns.
    pub(crate) fn source(
        &self,
        schema: &SchemaRef,
        columns: Vec<usize>,
        limit: Option<usize>,
        options: &OperatorOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Self::InMemory(batches) => {
                let partitions = [batches.clone()];
                let source =
                    MemorySourceConfig::try_new(&partitions, Arc::clone(schema), Some(columns))?
                        .with_limit(limit);
                Ok(DataSourceExec::from_data_source(source))
            }
            Self::OnDisk(rows) => {
                let schema = Arc::new(schema.project(&columns)?);
                let scan = SpilledScan { rows: rows.clone(), columns, limit };
                let context = options.context.clone();
                Ok(Arc::new(SourceExec::new(Arc::new(scan), schema, context)))
            }
        }
    }
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

impl ScanMemory<'_> {
    /// Counts decoded columns. All tables together leave half of the query's memory to its operators, which
    /// would otherwise find it used up until the query ends.
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes)?;
        let pool = &self.env.memory_pool;
        match pool.memory_limit() {
            MemoryLimit::Finite(limit) if pool.reserved() > limit / 2 => {
                self.memory.shrink(bytes);
                resources_err!("The columns of tables exceed half of the query's memory")
            }
            _ => Ok(()),
        }
    }
}

/// The parts of a table for each thread that decodes it, which end at about the same time.
const PARTS_PER_THREAD: usize = 4;

/// Rows of a part of a table whose decoding ends after some rows: a few milliseconds of work.
const LIMITED_PART_ROWS: usize = 1 << 16;

/// The rows that a read decodes.
pub(crate) struct RowsRead<'s> {
    /// Where they are found.
    pub(crate) source: DecodeSource<'s>,
    /// Keeps the rows that pass; over the decoded columns.
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
    /// The most rows.
    pub(crate) rows_max: Option<usize>,
}

/// Where the rows of a read are found.
pub(crate) enum DecodeSource<'s> {
    /// All visible rows, or those that an index keeps.
    Scan(&'s Snapshot<'s>, Option<usize>),
    /// Rows that were looked up, in order of arrival, and their memory.
    Found { rows: Vec<StoredRow<'s>>, _memory: MemoryReservation },
}

impl ScannedTable {
    /// Decodes some columns of rows, in order of arrival.
    pub(crate) fn new(
        rows: RowsRead<'_>,
        table: &CatalogTable,
        columns: &BTreeSet<usize>,
        memory: ScanMemory<'_>,
        options: &OperatorOptions,
    ) -> Result<Self> {
        let columns: Vec<usize> = columns.iter().copied().collect();
        let types = columns.iter().map(|column| table.schema.columns[*column].data_type.clone());
        let RowsRead { source, filter, rows_max } = rows;
        let decoding = Decoding {
            types: types.collect(),
            schema: Arc::new(table.arrow_schema.project(&columns)?),
            columns,
            filter,
            rows_max,
            options,
        };
        let in_parallel = match &source {
            DecodeSource::Scan(snapshot, kept_by) if !memory.on_disk => {
                decoding.in_parallel((*snapshot, *kept_by), &memory)?
            }
            _ => None,
        };
        let rows = match in_parallel {
            Some(batches) => DecodedRows::InMemory(batches),
            None => decoding.in_order(source, &memory)?,
        };
        let Decoding { columns, schema, .. } = decoding;
        Ok(Self { columns, schema, rows, _memory: memory.memory })
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
        self.rows.source(&self.schema, positions, scan.fetch, options)
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

/// What is decoded of a table.
struct Decoding<'o> {
    /// The columns, by their positions in the table, and their types.
    columns: Vec<usize>,
    types: Vec<DataType>,
    schema: SchemaRef,
    filter: Option<Arc<dyn PhysicalExpr>>,
    rows_max: Option<usize>,
    options: &'o OperatorOptions,
}

/// The rows that are decoded.
enum DecodedFrom<'r> {
    Scan(ScanRows<'r>),
    /// Rows that were found by their keys.
    Found(std::vec::IntoIter<StoredRow<'r>>),
}

impl DecodedFrom<'_> {
    #[inline]
    fn next_row(&mut self) -> Result<Option<StoredRow<'_>>, ReadError> {
        match self {
            Self::Scan(rows) => rows.next_row(),
            Self::Found(rows) => Ok(rows.next()),
        }
    }
}

impl Decoding<'_> {
    /// Decodes rows and passes batches of those on that pass the filter, until there are `rows_max`.
    fn decode(
        &self,
        mut rows: DecodedFrom<'_>,
        rows_max: usize,
        push: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let builder = |data_type| ColumnBuilder::new(data_type, BATCH_ROWS);
        let mut builders: Vec<ColumnBuilder> = self.types.iter().map(builder).collect();
        let mut left = rows_max;
        let mut end_batch = |builders: &mut [ColumnBuilder], row_count| {
            debug_assert!(row_count <= BATCH_ROWS, "a batch has a limit");
            let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(row_count));
            let schema = Arc::clone(&self.schema);
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let batch = self.passing(batch)?;
            let batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
            if batch.num_rows() > 0 {
                push(batch)?;
            }
            Ok::<bool, DataFusionError>(left == 0)
        };
        // Without a filter no row is decoded in vain.
        let decoded_max = if self.filter.is_some() { usize::MAX } else { rows_max };
        let mut arena = Arena::new();
        let mut row_count = 0;
        for _ in 0..decoded_max {
            let stored = rows.next_row().map_err(|error| into_datafusion(error.into()))?;
            let Some(stored) = stored else { break };
            for (builder, column) in builders.iter_mut().zip(&self.columns) {
                builder.push(stored.row.get_in(*column, &arena));
            }
            arena.reset();
            row_count += 1;
            if row_count == BATCH_ROWS {
                let is_end = end_batch(&mut builders, row_count)?;
                row_count = 0;
                // The first one polls, on the thread of the call; the second one is for the others.
                query::checkpoint().map_err(|interrupt| into_datafusion(interrupted(interrupt)))?;
                self.options.check()?;
                if is_end {
                    return Ok(());
                }
            }
        }
        match row_count {
            0 => Ok(()),
            _ => end_batch(&mut builders, row_count).map(|_| ()),
        }
    }

    /// Returns the rows of a batch that pass the filter.
    fn passing(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(filter) = &self.filter else { return Ok(batch) };
        let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
        let Some(passes) = passes.as_boolean_opt() else {
            return internal_err!("a condition is BOOL");
        };
        Ok(filter_record_batch(&batch, passes)?)
    }

    /// Decodes the rows on the caller's thread, to disk where they do not fit into the memory.
    fn in_order(&self, source: DecodeSource<'_>, memory: &ScanMemory<'_>) -> Result<DecodedRows> {
        let mut target = ScanTarget::new(&self.schema, memory);
        let rows_max = self.rows_max.unwrap_or(usize::MAX);
        let push = &mut |batch| target.push(batch);
        match source {
            DecodeSource::Scan(snapshot, Some(index)) => {
                let rows = snapshot.scan_kept_by(index);
                self.decode(DecodedFrom::Scan(rows), rows_max, push)?;
            }
            DecodeSource::Scan(snapshot, None) => {
                self.decode(DecodedFrom::Scan(snapshot.scan()), rows_max, push)?;
            }
            DecodeSource::Found { rows, _memory } => {
                self.decode(DecodedFrom::Found(rows.into_iter()), rows_max, push)?;
            }
        }
        target.finish()
    }

    /// Decodes the rows on several threads. `None` where there are few, where rows were removed meanwhile,
    /// or where the columns do not fit into the memory.
    fn in_parallel(
        &self,
        (snapshot, kept_by): (&Snapshot<'_>, Option<usize>),
        memory: &ScanMemory<'_>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let row_count = usize::try_from(snapshot.stored_row_count()).unwrap_or(usize::MAX);
        let threads = self.options.threads.get();
        let decoded_min = match self.filter {
            Some(_) => row_count,
            None => self.rows_max.unwrap_or(usize::MAX).min(row_count),
        };
        if threads == 1 || decoded_min < self.options.parallel_rows_min {
            return Ok(None);
        }
        let (parts, wave) = match self.rows_max {
            None => (PARTS_PER_THREAD * threads, usize::MAX),
            Some(_) => (row_count.div_ceil(LIMITED_PART_ROWS), threads),
        };
        let parts = snapshot.scan_parts(kept_by, parts.max(1));
        let decoded = self.in_waves(&parts, wave, memory);
        let batches = match decoded {
            Ok(batches) => batches,
            Err(error) if is_out_of_memory(&error) => None,
            Err(error) => return Err(error),
        };
        if batches.is_none() {
            memory.memory.free();
        }
        Ok(batches)
    }

    /// Decodes at most `rows_max` rows into batches that count in `memory`.
    fn held(
        &self,
        rows: ScanRows<'_>,
        rows_max: usize,
        memory: &ScanMemory<'_>,
    ) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        self.decode(DecodedFrom::Scan(rows), rows_max, &mut |batch| {
            memory.try_grow(batch.get_array_memory_size())?;
            batches.push(batch);
            Ok(())
        })?;
        Ok(batches)
    }

    /// Decodes parts, `wave` of them at once, until there are enough rows. The first one is decoded alone
    /// where not all are wanted, since it often has enough. `None` where rows were removed meanwhile.
    fn in_waves(
        &self,
        parts: &[ScanPart<'_>],
        wave: usize,
        memory: &ScanMemory<'_>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut left = self.rows_max.unwrap_or(usize::MAX);
        let mut begin = 0;
        while begin < parts.len() && left > 0 {
            let size = if begin == 0 && self.rows_max.is_some() { 1 } else { wave };
            let parts = &parts[begin..begin.saturating_add(size).min(parts.len())];
            begin += parts.len();
            let decoded = parallel::run(self.options.threads, parts.len(), |part| {
                parts[part].read(|rows| self.held(rows, left, memory)).transpose()
            });
            for part in decoded? {
                let Some(part) = part else { return Ok(None) };
                let rows: usize = part.iter().map(RecordBatch::num_rows).sum();
                left = left.saturating_sub(rows);
                batches.extend(part);
            }
        }
        Ok(Some(batches))
    }
}

/// Where decoded rows go.
pub(crate) struct ScanTarget<'e> {
    batches: Vec<RecordBatch>,
    /// Takes the batches when the memory is used up.
    writer: Option<SpillWriter>,
    schema: &'e SchemaRef,
    memory: &'e ScanMemory<'e>,
}

impl<'e> ScanTarget<'e> {
    pub(crate) fn new(schema: &'e SchemaRef, memory: &'e ScanMemory<'e>) -> Self {
        let writer = memory.on_disk.then(|| SpillWriter::new(memory.env, schema));
        Self { batches: Vec::new(), writer, schema, memory }
    }

    /// Returns the rows.
    pub(crate) fn finish(self) -> Result<DecodedRows> {
        Ok(match self.writer {
            Some(writer) => DecodedRows::OnDisk(writer.finish()?),
            None => DecodedRows::InMemory(self.batches),
        })
    }

    /// Adds a batch, in memory or on disk.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if let Some(writer) = &mut self.writer {
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
        let mut writer = SpillWriter::new(self.memory.env, self.schema);
        for batch in std::mem::take(&mut self.batches) {
            writer.write(batch)?;
        }
        self.memory.memory.free();
        writer.write(last)?;
        self.writer = Some(writer);
        Ok(())
    }
}
