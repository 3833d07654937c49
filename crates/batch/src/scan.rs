//! Decoding of stored rows to columns.
//!
//! `execute` takes the snapshots of all tables of a query together, before anything else runs, and
//! decodes the columns that the query reads; a table that is read twice is decoded once. A snapshot
//! delays the freeing of rows and cannot leave its thread, so it is dropped after decoding. Columns
//! that do not fit into the query's memory go to a file, from which the query reads them. The rows of
//! a large table are decoded in parts, by several threads.

use std::{collections::BTreeSet, fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{Result, internal_datafusion_err, resources_err},
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::{
        memory_pool::{MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    logical_expr::TableScan,
    physical_plan::ExecutionPlan,
};
use lockstep_host::query;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, arrow::ColumnBuilder};
use lockstep_table::{ScanRows, Snapshot};

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

impl ScanMemory<'_> {
    /// Counts decoded columns. All tables together leave half of the query's memory to its operators, which
    /// would otherwise find it used up until the query ends.
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes)?;
        let pool = &self.env.memory_pool;
        match pool.memory_limit() {
            MemoryLimit::Finite(limit) if pool.reserved() > limit / 2 => {
                self.memory.shrink(bytes);
                resources_err!("the columns of tables leave half of the memory to operators")
            }
            _ => Ok(()),
        }
    }
}

/// The parts of a table for each thread that decodes it, which end at about the same time.
const PARTS_PER_THREAD: usize = 4;

impl ScannedTable {
    /// Decodes some columns of the rows of a snapshot that an index keeps, or any, in order of arrival.
    pub(crate) fn new(
        (snapshot, kept_by): (&Snapshot<'_>, Option<usize>),
        table: &CatalogTable,
        columns: &BTreeSet<usize>,
        memory: ScanMemory<'_>,
        options: &OperatorOptions,
    ) -> Result<Self> {
        let columns: Vec<usize> = columns.iter().copied().collect();
        let types = columns.iter().map(|column| table.schema.columns[*column].data_type.clone());
        let decoding = Decoding {
            types: types.collect(),
            schema: Arc::new(table.arrow_schema.project(&columns)?),
            columns,
            options,
        };
        let in_parallel = match memory.on_disk {
            true => None,
            false => decoding.in_parallel((snapshot, kept_by), &memory)?,
        };
        let rows = match in_parallel {
            Some(batches) => DecodedRows::InMemory(batches),
            None => {
                let rows = match kept_by {
                    Some(index) => snapshot.scan_kept_by(index),
                    None => snapshot.scan(),
                };
                let mut target = ScanTarget {
                    batches: Vec::new(),
                    writer: memory.on_disk.then(|| SpillWriter::new(memory.env, &decoding.schema)),
                    schema: &decoding.schema,
                    memory: &memory,
                };
                decoding.decode(rows, &mut |batch| target.push(batch))?;
                match target.writer {
                    Some(writer) => DecodedRows::OnDisk(writer.finish()?),
                    None => DecodedRows::InMemory(target.batches),
                }
            }
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

/// What is decoded of a table.
struct Decoding<'o> {
    /// The columns, by their positions in the table, and their types.
    columns: Vec<usize>,
    types: Vec<DataType>,
    schema: SchemaRef,
    options: &'o OperatorOptions,
}

impl Decoding<'_> {
    /// Decodes rows and passes batches of them on.
    fn decode(
        &self,
        rows: ScanRows<'_>,
        push: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let builder = |data_type| ColumnBuilder::new(data_type, BATCH_ROWS);
        let mut builders: Vec<ColumnBuilder> = self.types.iter().map(builder).collect();
        let mut end_batch = |builders: &mut [ColumnBuilder], row_count| {
            debug_assert!(row_count <= BATCH_ROWS, "a batch has a limit");
            let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(row_count));
            let schema = Arc::clone(&self.schema);
            push(RecordBatch::try_new_with_options(schema, columns, &options)?)
        };
        let mut arena = Arena::new();
        let mut row_count = 0;
        for stored in rows {
            for (builder, column) in builders.iter_mut().zip(&self.columns) {
                builder.push(stored.row.get_in(*column, &arena));
            }
            arena.reset();
            row_count += 1;
            if row_count == BATCH_ROWS {
                end_batch(&mut builders, row_count)?;
                row_count = 0;
                // The first one polls, on the thread of the call; the second one is for the others.
                query::checkpoint().map_err(|interrupt| into_datafusion(interrupted(interrupt)))?;
                self.options.check()?;
            }
        }
        match row_count {
            0 => Ok(()),
            _ => end_batch(&mut builders, row_count),
        }
    }

    /// Decodes the rows on several threads. `None` where the table is small, where rows were removed
    /// meanwhile, or where the columns do not fit into the memory.
    fn in_parallel(
        &self,
        (snapshot, kept_by): (&Snapshot<'_>, Option<usize>),
        memory: &ScanMemory<'_>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let threads = self.options.threads;
        if threads.get() == 1 || snapshot.log_row_count() < self.options.parallel_rows_min {
            return Ok(None);
        }
        let parts = snapshot.scan_parts(kept_by, PARTS_PER_THREAD * threads.get());
        let decoded = parallel::run(threads, parts.len(), |part| {
            let read = parts[part].read(|rows| {
                let mut batches = Vec::new();
                self.decode(rows, &mut |batch| {
                    memory.try_grow(batch.get_array_memory_size())?;
                    batches.push(batch);
                    Ok(())
                })?;
                Ok(batches)
            });
            read.transpose()
        });
        let parts = match decoded {
            Ok(parts) => parts.into_iter().collect::<Option<Vec<_>>>(),
            Err(error) if is_out_of_memory(&error) => None,
            Err(error) => return Err(error),
        };
        if parts.is_none() {
            memory.memory.free();
        }
        Ok(parts.map(|parts| parts.into_iter().flatten().collect()))
    }
}

/// Where decoded rows go.
struct ScanTarget<'e> {
    batches: Vec<RecordBatch>,
    /// Takes the batches when the memory is used up.
    writer: Option<SpillWriter>,
    schema: &'e SchemaRef,
    memory: &'e ScanMemory<'e>,
}

impl ScanTarget<'_> {
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
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
