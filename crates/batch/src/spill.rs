//! Rows of a query on disk, for operators whose rows do not fit into its memory.
//!
//! The files are compressed, count against the query's limit of temporary space, and are removed
//! with the last value that names them, also after an error or an interrupt. Rows that an operator
//! splits by their keys carry their row number, and [`RestoredOrder`] brings them back into the
//! order of the numbers with one batch of each part in memory.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fmt,
    fs::File,
    io::BufReader,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::{concat_batches, interleave},
    datatypes::{SchemaRef, UInt64Type},
    ipc::{
        CompressionType,
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
};
use datafusion::{
    common::{internal_datafusion_err, stats::Precision},
    error::{DataFusionError, Result},
    execution::{
        TaskContext,
        memory_pool::MemoryLimit,
        runtime_env::RuntimeEnv,
        spill_file::{SpillFile, SpillWriter as FileWriter},
    },
};

use lockstep_host::{Clock as _, FileAccess, SystemClock};

mod part_writers;

pub(crate) use part_writers::{PARTS, PartWriters};

use crate::operator::batch_rows;

/// The least rows of a written batch, but for the last one of a file, where memory is not scarce.
const WRITTEN_ROWS_MIN: usize = 1024;
/// The most rows of a written batch: who reads many files at once has one batch of each in memory.
const WRITTEN_ROWS_MAX: usize = 2048;

const _: () = assert!(WRITTEN_ROWS_MIN <= WRITTEN_ROWS_MAX);

/// The rows of queries that go to disk although they fit into memory.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpillAlways {
    /// None.
    No,
    /// All, and each part of a window is computed at once.
    Parts,
    /// All, and each part of a window is computed in time slices of so many rows.
    Slices(usize),
}

/// Makes the operators of all later queries of the process take their rows to disk although they
/// fit into memory; for tests.
#[doc(hidden)]
pub fn set_spill_always(always: SpillAlways) {
    let (is_always, rows) = match always {
        SpillAlways::No => (false, 0),
        SpillAlways::Parts => (true, 0),
        SpillAlways::Slices(rows) => (true, rows),
    };
    // Relaxed: a switch of tests.
    ALWAYS.store(is_always, Ordering::Relaxed);
    ALWAYS_SLICE_ROWS.store(rows, Ordering::Relaxed);
}

static ALWAYS: AtomicBool = AtomicBool::new(false);
/// The rows of a slice; 0 where parts are not sliced.
static ALWAYS_SLICE_ROWS: AtomicUsize = AtomicUsize::new(0);

/// Returns what [`set_spill_always`] said last: whether rows go to disk, and the rows of a slice.
pub(crate) fn always() -> (bool, Option<usize>) {
    // Relaxed: a switch of tests.
    let rows = Some(ALWAYS_SLICE_ROWS.load(Ordering::Relaxed)).filter(|rows| *rows > 0);
    (ALWAYS.load(Ordering::Relaxed), rows)
}

/// Returns whether an error says that a query's memory is used up.
pub(crate) fn is_out_of_memory(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Gives memory that a query has freed back to the machine, where its memory is limited: the allocator
/// keeps it for each thread, and other threads go on with the query. To be called after much was freed. Does
/// it once in [`GIVE_BACK_INTERVAL_NS`] at most, since other threads that allocate may wait for it.
pub(crate) fn give_back_freed(context: &TaskContext) {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    static NEXT_NS: AtomicU64 = AtomicU64::new(0);
    if let MemoryLimit::Finite(_) = context.memory_pool().memory_limit() {
        let now_ns = CLOCK.get_or_init(SystemClock::new).monotonic_ns();
        // Relaxed: that two threads do it at once does no harm.
        if now_ns >= NEXT_NS.load(Ordering::Relaxed) {
            NEXT_NS.store(now_ns.saturating_add(GIVE_BACK_INTERVAL_NS), Ordering::Relaxed);
            lockstep_host::memory::give_back();
        }
    }
}

/// The least time between two times that freed memory is given back.
const GIVE_BACK_INTERVAL_NS: u64 = 100_000_000;

/// A file that is written.
struct OpenFile {
    file: Arc<dyn SpillFile>,
    writer: StreamWriter<Box<dyn FileWriter>>,
}

impl OpenFile {
    fn new(env: &RuntimeEnv, schema: &SchemaRef) -> Result<Self> {
        let file = env.disk_manager.create_tmp_file("rows of an operator")?;
        let lz4 = Some(CompressionType::LZ4_FRAME);
        let options = IpcWriteOptions::default().try_with_compression(lz4)?;
        let writer = StreamWriter::try_new_with_options(file.open_writer()?, schema, options)?;
        Ok(Self { file, writer })
    }
}

/// A writer of rows to a file.
pub(crate) struct SpillWriter {
    schema: SchemaRef,
    env: Arc<RuntimeEnv>,
    /// Made with the first rows.
    file: Option<OpenFile>,
    /// Rows that wait for more of them.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    /// The rows of a written batch.
    batch_rows: BatchRows,
    row_count: u64,
}

/// The rows of a written batch: at least so many, but for the last one of a file, and at most so many.
#[derive(Debug, Clone, Copy)]
struct BatchRows {
    min: usize,
    max: usize,
}

impl SpillWriter {
    /// Makes the writer of a file of batches with a schema.
    pub(crate) fn new(env: &Arc<RuntimeEnv>, schema: &SchemaRef) -> Self {
        let (env, schema) = (Arc::clone(env), Arc::clone(schema));
        let batch_rows = BatchRows { min: WRITTEN_ROWS_MIN, max: WRITTEN_ROWS_MAX };
        let waiting = Vec::new();
        Self { schema, env, file: None, waiting, waiting_rows: 0, batch_rows, row_count: 0 }
    }

    /// Makes its batches short, where `count` files with rows of `row_bytes` bytes are written or read at once
    /// and memory is limited.
    pub(crate) fn of_many(self, count: usize, row_bytes: usize, context: &TaskContext) -> Self {
        let rows = |usual| batch_rows(usual, count, row_bytes, context);
        let batch_rows = BatchRows { min: rows(WRITTEN_ROWS_MIN), max: rows(WRITTEN_ROWS_MAX) };
        Self { batch_rows, ..self }
    }

    /// Adds rows.
    pub(crate) fn write(&mut self, batch: RecordBatch) -> Result<()> {
        debug_assert_eq!(batch.num_columns(), self.schema.fields().len(), "the file's columns");
        self.row_count += u64::try_from(batch.num_rows()).unwrap_or(0);
        self.waiting_rows += batch.num_rows();
        self.waiting.push(batch);
        match self.waiting_rows >= self.batch_rows.min {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.waiting);
        self.waiting_rows = 0;
        let batch = match batches.as_slice() {
            [] => return Ok(()),
            [only] => only.clone(),
            _ => concat_batches(&self.schema, &batches)?,
        };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(OpenFile::new(&self.env, &self.schema)?),
        };
        for start in (0..batch.num_rows()).step_by(self.batch_rows.max) {
            let rows = self.batch_rows.max.min(batch.num_rows() - start);
            file.writer.write(&batch.slice(start, rows))?;
        }
        Ok(())
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> Result<SpilledRows> {
        self.flush()?;
        let file = match self.file {
            Some(OpenFile { file, writer }) => {
                writer.into_inner()?.finish()?;
                Some(file)
            }
            None => None,
        };
        Ok(SpilledRows { file, row_count: self.row_count })
    }
}

/// Rows on disk. The last clone removes the file.
#[derive(Clone)]
pub(crate) struct SpilledRows {
    /// `None` where there are no rows.
    file: Option<Arc<dyn SpillFile>>,
    row_count: u64,
}

impl fmt::Debug for SpilledRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpilledRows").field("row_count", &self.row_count).finish_non_exhaustive()
    }
}

/// A reader of rows on disk. Waits for the disk.
pub(crate) struct SpillReader {
    reader: Option<StreamReader<BufReader<File>>>,
    /// Keeps the file.
    _rows: SpilledRows,
}

impl SpilledRows {
    /// Returns the number of rows.
    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Returns the number of rows as DataFusion counts them.
    pub(crate) fn precise_count(&self) -> Precision<usize> {
        usize::try_from(self.row_count).map_or(Precision::Absent, Precision::Exact)
    }

    /// Reads the batches in the order in which they were written, with some of their columns.
    pub(crate) fn read(&self, columns: Option<Vec<usize>>) -> Result<SpillReader> {
        let reader = match &self.file {
            Some(file) => {
                let path = file.path();
                let path =
                    path.ok_or_else(|| internal_datafusion_err!("a spilled file has a path"))?;
                let file = BufReader::new(FileAccess::default().open(path)?);
                Some(StreamReader::try_new(file, columns)?)
            }
            None => None,
        };
        Ok(SpillReader { reader, _rows: self.clone() })
    }
}

impl Iterator for SpillReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.reader.as_mut()?.next()?.map_err(DataFusionError::from))
    }
}

/// Files of rows whose first column is their number, ascending in each file, and no number is in
/// two of them: all rows in the order of their numbers.
pub(crate) struct RestoredOrder {
    files: Vec<RestoredFile>,
}

struct RestoredFile {
    reader: SpillReader,
    /// The batch that is read, and the first row of it that was not returned.
    current: Option<(RecordBatch, usize)>,
}

impl RestoredFile {
    /// Returns the number of the first row that was not returned.
    fn next_number(&self) -> Option<u64> {
        let (batch, row) = self.current.as_ref()?;
        Some(batch.column(0).as_primitive::<UInt64Type>().value(*row))
    }

    /// Passes a row. Returns whether another batch is the current one then, or none.
    fn pass_row(&mut self) -> Result<bool> {
        let Some((batch, row)) = &mut self.current else { return Ok(false) };
        *row += 1;
        if *row < batch.num_rows() {
            return Ok(false);
        }
        self.current = self.reader.next().transpose()?.map(|batch| (batch, 0));
        debug_assert!(
            self.current.as_ref().is_none_or(|(batch, _)| batch.num_rows() > 0),
            "no batch without rows is written"
        );
        Ok(true)
    }

    /// Returns the rows up to a number, in pieces.
    fn take_until(&mut self, end: u64, pieces: &mut Vec<RecordBatch>) -> Result<()> {
        loop {
            let Some((batch, start)) = self.current.take() else { return Ok(()) };
            let numbers = batch.column(0).as_primitive::<UInt64Type>().values();
            let stop = start + numbers[start..].partition_point(|number| *number < end);
            if stop > start {
                pieces.push(batch.slice(start, stop - start));
            }
            if stop < batch.num_rows() {
                self.current = Some((batch, stop));
                return Ok(());
            }
            self.current = self.reader.next().transpose()?.map(|batch| (batch, 0));
        }
    }
}

impl RestoredOrder {
    /// Opens the files.
    pub(crate) fn new(files: &[SpilledRows]) -> Result<Self> {
        let open = |rows: &SpilledRows| {
            let mut reader = rows.read(None)?;
            let current = reader.next().transpose()?.map(|batch| (batch, 0));
            Ok(RestoredFile { reader, current })
        };
        Ok(Self { files: files.iter().map(open).collect::<Result<_>>()? })
    }

    /// Returns the columns after the number of the next rows, which have the numbers from `start`
    /// on, `count` of them.
    pub(crate) fn next_rows(&mut self, start: u64, count: usize) -> Result<Vec<ArrayRef>> {
        let end = start + u64::try_from(count).unwrap_or(u64::MAX);
        let mut pieces = Vec::new();
        for file in &mut self.files {
            file.take_until(end, &mut pieces)?;
        }
        let mut positions = vec![None; count];
        for (piece, batch) in pieces.iter().enumerate() {
            let numbers = batch.column(0).as_primitive::<UInt64Type>().values();
            for (row, number) in numbers.iter().enumerate() {
                let at = usize::try_from(number - start).unwrap_or(usize::MAX);
                positions[at] = Some((piece, row));
            }
        }
        let positions: Option<Vec<(usize, usize)>> = positions.into_iter().collect();
        let positions =
            positions.ok_or_else(|| internal_datafusion_err!("each row is in one of the parts"))?;
        let width = pieces.first().map_or(1, RecordBatch::num_columns);
        let column = |at: usize| {
            let parts: Vec<&dyn Array> =
                pieces.iter().map(|piece| piece.column(at).as_ref()).collect();
            Ok(interleave(&parts, &positions)?)
        };
        (1..width).map(column).collect()
    }

    /// Returns the columns after the number of the next rows in the order of their numbers, which may leave
    /// numbers out; at most so many rows, and `None` at the end.
    ///
    /// *Cost*: for each row the logarithm of the number of files.
    pub(crate) fn next_numbered(&mut self, rows_max: usize) -> Result<Option<Vec<ArrayRef>>> {
        debug_assert!(rows_max > 0, "some rows are wanted");
        let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for (at, file) in self.files.iter().enumerate() {
            next.extend(file.next_number().map(|number| Reverse((number, at))));
        }
        let mut pieces: Vec<RecordBatch> = Vec::new();
        // For each file the piece that its current batch is.
        let mut piece_of: Vec<Option<usize>> = vec![None; self.files.len()];
        let mut positions: Vec<(usize, usize)> = Vec::new();
        while positions.len() < rows_max
            && let Some(Reverse((_, at))) = next.pop()
        {
            let file = &mut self.files[at];
            let Some((batch, row)) = &file.current else { continue };
            let piece = *piece_of[at].get_or_insert_with(|| {
                pieces.push(batch.clone());
                pieces.len() - 1
            });
            positions.push((piece, *row));
            if file.pass_row()? {
                piece_of[at] = None;
            }
            next.extend(file.next_number().map(|number| Reverse((number, at))));
        }
        let Some(first) = pieces.first() else { return Ok(None) };
        let column = |at: usize| {
            let parts: Vec<&dyn Array> =
                pieces.iter().map(|piece| piece.column(at).as_ref()).collect();
            Ok(interleave(&parts, &positions)?)
        };
        (1..first.num_columns()).map(column).collect::<Result<_>>().map(Some)
    }
}
