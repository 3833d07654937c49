//! A sort that goes to disk when its rows do not fit into its memory.
//!
//! # How it sorts
//!
//! 1. Each batch of the input is sorted by itself when it arrives, by keys that compare as bytes
//!    (`arrow::row`).
//! 2. Where the next batch does not fit, those that are there are merged into a run on disk; with several
//!    threads, by one of them while the next batches are sorted, so that two runs share the memory.
//! 3. While there are more runs than can be merged at once, neighbours are merged into longer ones.
//! 4. The last merge is the output. Without a run, the batches themselves are merged.
//!
//! Equal rows stay in the order of the input: sources of a merge are in that order, and the earlier one
//! goes first. Merges have one batch of each run in memory, so the memory bounds how many are merged at
//! once; the least are two, so that a sort ends whatever its memory is, if slowly.
//!
//! DataFusion's `SortExec` fails within some limits, and takes several times its memory within others
//! (ADR 0050 has the measurements).

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, UInt32Array},
    compute::{interleave_record_batch, take_record_batch},
    datatypes::{Schema, SchemaRef},
    row::{RowConverter, Rows, SortField},
};
use datafusion::{
    common::{internal_err, runtime::SpawnedTask, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    physical_expr::{LexOrdering, PhysicalExpr},
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream,
        sorts::sort::SortExec,
        stream::{RecordBatchReceiverStreamBuilder, RecordBatchStreamAdapter},
    },
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::{
    operator::{BATCH_ROWS, BATCHES_AHEAD, OperatorOptions, batch_bytes, compute},
    spill::{SpillReader, SpillWriter, SpilledRows},
};

/// A batch is copied whose arrays have allocated more than this percentage of what its rows need.
const COMPACT_PERCENT: usize = 150;
/// DataFusion sorts where at most so many rows are wanted, and there is so much memory for them.
const SHORT_ROWS_MAX: usize = 1000;
const SHORT_BYTES_MIN: usize = 16 << 20;
/// The most runs that are merged at once.
const MERGED_RUNS_MAX: usize = 64;
/// A batch of a run takes at most this part of the memory, as long as it has [`RUN_ROWS_MIN`] rows.
const RUN_BATCH_SHARE: usize = 64;
const RUN_ROWS_MIN: usize = 1024;
/// A batch of a run that is read takes this many times its size: with its keys, and while it is
/// decompressed.
const READ_BATCH_COPIES: usize = 3;

/// A sort with a memory of its own.
#[derive(Debug)]
pub(crate) struct ExternalSort {
    /// The same sort as DataFusion has it.
    sort: SortExec,
    /// The most memory that it takes.
    bytes: usize,
    options: OperatorOptions,
}

impl ExternalSort {
    /// Returns the sort in place of one whose input has one partition, as all have here; `None` where
    /// DataFusion's own is right: where few rows are wanted, it holds these alone.
    pub(crate) fn of(sort: &SortExec, bytes: usize, options: &OperatorOptions) -> Option<Self> {
        let is_short =
            sort.fetch().is_some_and(|rows| rows <= SHORT_ROWS_MAX) && bytes >= SHORT_BYTES_MIN;
        let fields = sort_fields(sort.expr(), &sort.input().schema()).ok()?;
        let is_kept = (is_short && !options.on_disk) || !RowConverter::supports_fields(&fields);
        let own = || Self { sort: sort.clone(), bytes, options: options.clone() };
        (!is_kept).then(own)
    }
}

fn sort_fields(by: &LexOrdering, schema: &Schema) -> Result<Vec<SortField>> {
    let field = |expr: &datafusion::physical_expr::PhysicalSortExpr| {
        Ok(SortField::new_with_options(expr.expr.data_type(schema)?, expr.options))
    };
    by.iter().map(field).collect()
}

impl DisplayAs for ExternalSort {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sort.fmt_as(kind, f)
    }
}

impl ExecutionPlan for ExternalSort {
    fn name(&self) -> &'static str {
        "ExternalSort"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.sort.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![self.sort.input()]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let sort = SortExec::new(self.sort.expr().clone(), input);
                let sort = sort.with_fetch(self.sort.fetch());
                Ok(Arc::new(Self { sort, bytes: self.bytes, options: self.options.clone() }))
            }
            _ => internal_err!("a sort has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let work = SortWork {
            keys: SortKeys::new(self.sort.expr(), &schema)?,
            schema: Arc::clone(&schema),
            env: context.runtime_env(),
            memory: MemoryConsumer::new("sort")
                .with_can_spill(true)
                .register(context.memory_pool()),
            bytes: self.bytes,
            output_rows: context.session_config().batch_size(),
            fetch: self.sort.fetch().unwrap_or(usize::MAX),
            options: self.options.clone(),
        };
        let input = self.sort.input().execute(partition, context)?;
        let sorted = stream::once(work.sort(input)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted)))
    }
}

/// The keys by which rows are sorted.
#[derive(Debug, Clone)]
struct SortKeys {
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    converter: Arc<RowConverter>,
}

impl SortKeys {
    fn new(by: &LexOrdering, schema: &Schema) -> Result<Self> {
        let converter = Arc::new(RowConverter::new(sort_fields(by, schema)?)?);
        Ok(Self { exprs: by.iter().map(|expr| Arc::clone(&expr.expr)).collect(), converter })
    }

    /// Returns the keys of the rows of a batch.
    fn of(&self, batch: &RecordBatch) -> Result<Rows> {
        let count = batch.num_rows();
        let columns = self.exprs.iter().map(|expr| expr.evaluate(batch)?.into_array(count));
        Ok(self.converter.convert_columns(&columns.collect::<Result<Vec<_>>>()?)?)
    }

    /// Sorts a batch of the input.
    fn sort(&self, batch: RecordBatch) -> Result<MergedSource> {
        let keys = self.of(&batch)?;
        let count = u32::try_from(batch.num_rows()).expect("a batch is small");
        let mut order: Vec<(KeyPrefix, u32)> =
            (0..count).map(|row| (prefix(&keys, row), row)).collect();
        order.sort_unstable_by(|(left_prefix, left), (right_prefix, right)| {
            let key = |row: &u32| keys.row(*row as usize);
            let prefixes = left_prefix.cmp(right_prefix);
            prefixes.then_with(|| key(left).cmp(&key(right))).then(left.cmp(right))
        });
        let order = order.into_iter().map(|(_, row)| row).collect();
        MergedSource { batch, keys, order: Some(order), at: 0, run: None }.compacted(self)
    }

    /// Opens a run; `None` where it has no row.
    fn open(&self, run: &SpilledRows) -> Result<Option<MergedSource>> {
        let mut reader = run.read(None)?;
        let Some(batch) = reader.next().transpose()? else { return Ok(None) };
        let keys = self.of(&batch)?;
        Ok(Some(MergedSource { batch, keys, order: None, at: 0, run: Some(reader) }))
    }
}

/// The first bytes of a key as a number, which compares as they do: most keys differ there, those of two
/// numbers almost always.
type KeyPrefix = u128;

#[inline]
fn prefix(keys: &Rows, row: u32) -> KeyPrefix {
    let row = keys.row(row as usize);
    let key: &[u8] = row.as_ref();
    match key.first_chunk() {
        Some(first) => KeyPrefix::from_be_bytes(*first),
        None => {
            let mut first = [0; size_of::<KeyPrefix>()];
            first[..key.len()].copy_from_slice(key);
            KeyPrefix::from_be_bytes(first)
        }
    }
}

/// Sorted rows that are merged with others.
struct MergedSource {
    batch: RecordBatch,
    keys: Rows,
    /// The rows of the batch in order; `None` where they are in order.
    order: Option<Vec<u32>>,
    /// The position of the next row in that order.
    at: usize,
    /// Where the next batch comes from; `None` where there is none.
    run: Option<SpillReader>,
}

impl MergedSource {
    /// Returns the number of the next row in its batch.
    #[inline]
    fn row(&self) -> u32 {
        match &self.order {
            Some(order) => order[self.at],
            None => u32::try_from(self.at).expect("a batch is small"),
        }
    }

    /// Returns the first bytes of the key of the next row as a number.
    #[inline]
    fn prefix(&self) -> KeyPrefix {
        prefix(&self.keys, self.row())
    }

    /// Returns the rows in memory of their own where those of the batch are parts of larger arrays.
    fn compacted(self, keys: &SortKeys) -> Result<Self> {
        let is_compact =
            self.batch.get_array_memory_size() <= batch_bytes(&self.batch) * COMPACT_PERCENT / 100;
        match self.order {
            Some(order) if !is_compact => {
                let batch = take_record_batch(&self.batch, &UInt32Array::from(order))?;
                Ok(Self { keys: keys.of(&batch)?, batch, order: None, ..self })
            }
            order => Ok(Self { order, ..self }),
        }
    }

    /// Returns the bytes that it takes in memory.
    fn bytes(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |order| order.capacity() * size_of::<u32>());
        batch_bytes(&self.batch) + self.keys.size() + order
    }

    /// Passes the next row. Returns what is next then.
    fn pass(&mut self, keys: &SortKeys) -> Result<Passed> {
        self.at += 1;
        if self.at < self.batch.num_rows() {
            return Ok(Passed::Row);
        }
        let next = self.run.as_mut().and_then(Iterator::next).transpose()?;
        let Some(batch) = next else { return Ok(Passed::End) };
        debug_assert!(batch.num_rows() > 0, "no batch without rows is written");
        (self.keys, self.batch, self.at) = (keys.of(&batch)?, batch, 0);
        Ok(Passed::Batch)
    }
}

/// What follows a row of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    /// A row of the same batch.
    Row,
    /// A row of another batch.
    Batch,
    /// Nothing.
    End,
}

/// The next row of a source, in the heap.
#[derive(Debug, Clone, Copy)]
struct Head {
    prefix: KeyPrefix,
    source: usize,
}

/// A merge of sorted rows.
struct RunMerge {
    keys: SortKeys,
    schema: SchemaRef,
    /// In the order of the input.
    sources: Vec<MergedSource>,
    /// The sources that have a row, as a binary heap: the one whose row is first is at the front.
    heap: Vec<Head>,
    /// The rows that are still wanted.
    wanted: usize,
}

impl RunMerge {
    fn new(keys: SortKeys, schema: SchemaRef, sources: Vec<MergedSource>, wanted: usize) -> Self {
        let head = |(source, rows): (usize, &MergedSource)| Head { prefix: rows.prefix(), source };
        let heap = sources.iter().enumerate().map(head).collect();
        let mut merge = Self { keys, schema, sources, heap, wanted };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        merge
    }

    /// Returns whether a row is before another one.
    #[inline]
    fn is_before(&self, left: Head, right: Head) -> bool {
        if left.prefix != right.prefix {
            return left.prefix < right.prefix;
        }
        let key = |head: Head| {
            let source = &self.sources[head.source];
            source.keys.row(source.row() as usize)
        };
        key(left).cmp(&key(right)).then(left.source.cmp(&right.source)).is_lt()
    }

    /// Moves the source at a place of the heap down to where it belongs.
    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    /// Returns the next rows, at most so many; `None` at the end.
    ///
    /// *Cost*: for each row the logarithm of the number of sources.
    fn next_batch(&mut self, rows_max: usize) -> Result<Option<RecordBatch>> {
        let rows_max = rows_max.min(self.wanted);
        let mut pieces: Vec<RecordBatch> = Vec::new();
        // For each source the piece that its batch is.
        let mut piece_of: Vec<Option<usize>> = vec![None; self.sources.len()];
        let mut positions: Vec<(usize, usize)> = Vec::new();
        while positions.len() < rows_max
            && let Some(Head { source: first, .. }) = self.heap.first().copied()
        {
            let source = &mut self.sources[first];
            let piece = *piece_of[first].get_or_insert_with(|| {
                pieces.push(source.batch.clone());
                pieces.len() - 1
            });
            positions.push((piece, source.row() as usize));
            let passed = source.pass(&self.keys)?;
            if passed != Passed::Row {
                piece_of[first] = None;
            }
            match passed {
                Passed::Row | Passed::Batch => self.heap[0].prefix = source.prefix(),
                Passed::End => {
                    self.heap.swap_remove(0);
                }
            }
            self.sift_down(0);
        }
        if positions.is_empty() {
            return Ok(None);
        }
        self.wanted -= positions.len();
        let pieces: Vec<&RecordBatch> = pieces.iter().collect();
        let batch = interleave_record_batch(&pieces, &positions)?;
        debug_assert_eq!(batch.num_columns(), self.schema.fields().len(), "the rows are whole");
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), batch.columns().to_vec())?))
    }
}

/// A run on disk.
struct SortedRun {
    rows: SpilledRows,
    /// What its largest batch takes in memory.
    batch_bytes: usize,
}

/// The runs of a sort, in the order of the input.
#[derive(Default)]
struct WrittenRuns {
    complete: Vec<SortedRun>,
    /// The next one, which another thread writes while rows for the one after it are read and sorted.
    started: Option<SpawnedTask<Result<SortedRun>>>,
}

impl WrittenRuns {
    /// Returns whether no run was started.
    fn is_empty(&self) -> bool {
        self.complete.is_empty() && self.started.is_none()
    }

    /// Waits for the run that is written, if there is one.
    async fn wait(&mut self) -> Result<()> {
        if let Some(started) = self.started.take() {
            let joined = started.join().await;
            self.complete
                .push(joined.map_err(|cause| DataFusionError::External(Box::new(cause)))??);
        }
        Ok(())
    }

    /// Starts to write a run of sorted rows, whose memory it frees at the end.
    fn start(&mut self, work: &SortWork, sources: Vec<MergedSource>) {
        debug_assert!(self.started.is_none(), "one run is written at a time");
        let (memory, write) = (work.memory.split(work.memory.size()), work.run_of(sources));
        self.started = Some(SpawnedTask::spawn_blocking(move || {
            let run = write();
            drop(memory);
            run
        }));
    }
}

/// The work of one sort.
struct SortWork {
    keys: SortKeys,
    schema: SchemaRef,
    env: Arc<RuntimeEnv>,
    memory: MemoryReservation,
    bytes: usize,
    /// The rows of a batch of the output.
    output_rows: usize,
    /// The most rows that are wanted.
    fetch: usize,
    options: OperatorOptions,
}

impl SortWork {
    /// Reads the input, and returns its rows in order.
    async fn sort(self, mut input: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        let (mut runs, mut held) = (WrittenRuns::default(), Vec::new());
        while let Some(batch) = input.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            self.options.check()?;
            let source = self.keys.sort(batch)?;
            let bytes = source.bytes();
            if !self.reserve(bytes) {
                if !held.is_empty() {
                    runs.wait().await?;
                    runs.start(&self, std::mem::take(&mut held));
                }
                self.reserve_after(&mut runs, bytes).await?;
            }
            held.push(source);
            if self.options.on_disk {
                runs.wait().await?;
                runs.start(&self, std::mem::take(&mut held));
            }
        }
        drop(input);
        if runs.is_empty() {
            return Ok(self.output(held));
        }
        runs.wait().await?;
        if !held.is_empty() {
            runs.start(&self, held);
            runs.wait().await?;
        }
        let sources = self.open_last(runs.complete).await?;
        Ok(self.output(sources))
    }

    /// Takes memory, if there is so much for the rows that become a run; another thread may be writing the run
    /// before.
    fn reserve(&self, bytes: usize) -> bool {
        let runs = if self.options.threads.get() > 1 { 2 } else { 1 };
        self.memory.size() + bytes <= self.bytes / runs && self.memory.try_grow(bytes).is_ok()
    }

    /// Takes memory for a batch, which has to be there: what is free, or is when the run that is written ends. With
    /// one thread it ends first.
    async fn reserve_after(&self, runs: &mut WrittenRuns, bytes: usize) -> Result<()> {
        if self.options.threads.get() == 1 {
            runs.wait().await?;
        }
        if !self.reserve(bytes) {
            runs.wait().await?;
            if !self.reserve(bytes) {
                self.memory.grow(bytes);
            }
        }
        Ok(())
    }

    /// Merges sorted rows into a run.
    async fn write_run(&self, sources: Vec<MergedSource>) -> Result<SortedRun> {
        compute(self.run_of(sources)).await
    }

    /// Returns what merges sorted rows into a run.
    fn run_of(&self, sources: Vec<MergedSource>) -> impl FnOnce() -> Result<SortedRun> + use<> {
        let bytes = sources.iter().map(MergedSource::bytes).sum::<usize>();
        let rows = sources.iter().map(|source| source.batch.num_rows()).sum::<usize>();
        let row_bytes = bytes.div_ceil(rows.max(1)).max(1);
        let batch_rows = (self.bytes / RUN_BATCH_SHARE / row_bytes).clamp(RUN_ROWS_MIN, BATCH_ROWS);
        let mut merge = self.merge(sources);
        let mut writer = SpillWriter::new(&self.env, &self.schema);
        let options = self.options.clone();
        move || {
            let mut largest = 0;
            while let Some(batch) = merge.next_batch(batch_rows)? {
                options.check()?;
                largest = largest.max(batch_bytes(&batch) + merge.keys.of(&batch)?.size());
                writer.write(batch)?;
            }
            Ok(SortedRun { rows: writer.finish()?, batch_bytes: largest })
        }
    }

    fn merge(&self, sources: Vec<MergedSource>) -> RunMerge {
        RunMerge::new(self.keys.clone(), Arc::clone(&self.schema), sources, self.fetch)
    }

    /// Merges neighbouring runs until those that are left can be merged at once, and opens these.
    async fn open_last(&self, mut runs: Vec<SortedRun>) -> Result<Vec<MergedSource>> {
        loop {
            let batch_bytes = runs.iter().map(|run| run.batch_bytes).max().unwrap_or(1).max(1);
            let bytes = READ_BATCH_COPIES * batch_bytes;
            let mut at_once = (self.bytes / bytes).clamp(2, MERGED_RUNS_MAX);
            if self.options.on_disk {
                at_once = 2;
            }
            self.memory.free();
            while at_once > 2 && self.memory.try_grow(at_once.min(runs.len()) * bytes).is_err() {
                at_once /= 2;
            }
            if self.memory.size() == 0 {
                // Two runs have to be there.
                at_once = 2;
                self.memory.grow(at_once * bytes);
            }
            if runs.len() <= at_once {
                return self.open(&runs).await;
            }
            let mut merged = Vec::with_capacity(runs.len().div_ceil(at_once));
            for neighbours in runs.chunks(at_once) {
                merged.push(self.write_run(self.open(neighbours).await?).await?);
            }
            runs = merged;
        }
    }

    async fn open(&self, runs: &[SortedRun]) -> Result<Vec<MergedSource>> {
        let (keys, rows) = (self.keys.clone(), runs.iter().map(|run| run.rows.clone()));
        let rows: Vec<SpilledRows> = rows.collect();
        compute(move || rows.iter().filter_map(|rows| keys.open(rows).transpose()).collect()).await
    }

    /// Returns the merged rows as the output, which are merged while the operator above computes.
    fn output(self, sources: Vec<MergedSource>) -> SendableRecordBatchStream {
        let mut merge = self.merge(sources);
        let mut builder =
            RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), BATCHES_AHEAD);
        let sender = builder.tx();
        let Self { memory, output_rows, options, .. } = self;
        builder.spawn_blocking(move || {
            while let Some(batch) = merge.next_batch(output_rows)? {
                options.check()?;
                if sender.blocking_send(Ok(batch)).is_err() {
                    // Nobody wants more.
                    break;
                }
            }
            // Until here the rows are in memory.
            drop((merge, memory));
            Ok(())
        });
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use arrow::{
        array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray},
        compute::{SortOptions, concat_batches},
        datatypes::Int64Type,
    };
    use datafusion::{
        common::DataFusionError,
        execution::{
            config::SessionConfig,
            memory_pool::{GreedyMemoryPool, MemoryPool},
            runtime_env::RuntimeEnvBuilder,
        },
        physical_expr::{PhysicalSortExpr, expressions::Column},
    };
    use lockstep_host::QueryContext;
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        WindowSkew,
        operator::{PARALLEL_ROWS_MIN, given},
    };

    /// A row: two keys, and a text that takes memory.
    type Drawn = (Option<i64>, Option<u8>, usize);

    /// Returns batches of rows with the columns key, text, float and number of the row.
    fn batches(rows: &[Drawn], batch_rows: usize) -> Vec<RecordBatch> {
        let numbered: Vec<(usize, &Drawn)> = rows.iter().enumerate().collect();
        let batch = |rows: &[(usize, &Drawn)]| {
            let keys = Int64Array::from_iter(rows.iter().map(|(_, row)| row.0));
            let texts = rows.iter().map(|(_, row)| row.1.map(|n| format!("{n}").repeat(row.2)));
            let floats = rows.iter().map(|(_, row)| row.1.map(|n| f64::from(n % 3) - 1.0));
            let numbers = rows.iter().map(|(number, _)| i64::try_from(*number).unwrap());
            let columns: [(&str, ArrayRef); 4] = [
                ("key", Arc::new(keys)),
                ("text", Arc::new(StringArray::from_iter(texts))),
                ("float", Arc::new(Float64Array::from_iter(floats))),
                ("number", Arc::new(Int64Array::from_iter_values(numbers))),
            ];
            RecordBatch::try_from_iter_with_nullable(
                columns.map(|(name, column)| (name, column, true)),
            )
        };
        numbered.chunks(batch_rows).map(|rows| batch(rows).unwrap()).collect()
    }

    struct Outcome {
        numbers: Vec<i64>,
        /// The most bytes that were reserved.
        peak: usize,
    }

    /// What a sort may take.
    #[derive(Debug, Clone, Copy)]
    struct Limits {
        pool_bytes: usize,
        bytes: usize,
        on_disk: bool,
        threads: usize,
    }

    /// Sorts batches by the text, descending, and the key, within some memory.
    async fn sorted(
        batches: Vec<RecordBatch>,
        limits: Limits,
        fetch: Option<usize>,
    ) -> std::result::Result<Outcome, DataFusionError> {
        let schema = batches[0].schema();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limits.pool_bytes));
        let runtime =
            RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
        let config = SessionConfig::new().with_batch_size(100);
        let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
        let by = |name: &str, at, descending, nulls_first| {
            let options = SortOptions { descending, nulls_first };
            PhysicalSortExpr::new(Arc::new(Column::new(name, at)), options)
        };
        let by = LexOrdering::new([by("text", 1, true, false), by("key", 0, false, true)]).unwrap();
        let rows = stream::iter(batches.into_iter().map(Ok)).boxed();
        let sort = SortExec::new(by, given(rows, &schema)?).with_fetch(fetch);
        let options = OperatorOptions {
            threads: NonZeroUsize::new(limits.threads).unwrap(),
            progress: None,
            context: QueryContext::new(),
            on_disk: limits.on_disk,
            window_skew: WindowSkew::Off,
            slice_rows: None,
            parallel_rows_min: PARALLEL_ROWS_MIN,
        };
        let sort = ExternalSort::of(&sort, limits.bytes, &options).expect("the keys are supported");
        let mut stream = sort.execute(0, Arc::new(context))?;
        let (mut found, mut peak) = (Vec::new(), 0);
        while let Some(batch) = stream.next().await {
            peak = peak.max(pool.reserved());
            found.push(batch?);
        }
        drop(stream);
        assert_eq!(pool.reserved(), 0, "the memory is given back");
        assert!(found.iter().all(|batch| batch.num_rows() <= 100));
        let all = concat_batches(&schema, &found)?;
        let numbers = all.column(3).as_primitive::<Int64Type>().values().to_vec();
        Ok(Outcome { numbers, peak })
    }

    /// Returns the numbers of the rows in the order that is right.
    fn expected(rows: &[Drawn], fetch: Option<usize>) -> Vec<i64> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Stable, as the sort is to be.
        order.sort_by(|left, right| {
            let text = |row: &usize| rows[*row].1.map(|n| format!("{n}").repeat(rows[*row].2));
            text(right).cmp(&text(left)).then(rows[*left].0.cmp(&rows[*right].0))
        });
        order.truncate(fetch.unwrap_or(usize::MAX));
        order.into_iter().map(|row| i64::try_from(row).unwrap()).collect()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap()
            .block_on(future)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn rows_come_in_order_whatever_the_memory(
            rows in vec((prop::option::of(-3_i64..3), prop::option::of(0_u8..5), 0_usize..40), 1..900),
            batch_rows in 1_usize..200,
            memory in prop_oneof![Just(1_usize), Just(5_000), 10_000_usize..60_000, Just(usize::MAX / 2)],
            share in 1_usize..4,
            on_disk in any::<bool>(),
            threads in 1_usize..3,
            fetch in prop::option::of(0_usize..1000),
        ) {
            let on_disk = on_disk || fetch.is_some();
            let limits = Limits { pool_bytes: memory, bytes: memory / share, on_disk, threads };
            let found = run(sorted(batches(&rows, batch_rows), limits, fetch)).unwrap();
            prop_assert_eq!(found.numbers, expected(&rows, fetch));
        }
    }

    #[test]
    fn a_large_sort_stays_within_its_memory() {
        let rows: Vec<Drawn> = (0..60_000_i64)
            .map(|n| (Some(n * 7919 % 1009), u8::try_from(n % 251).ok(), 60))
            .collect();
        let bytes = 4 << 20;
        for threads in [1, 2] {
            let limits = Limits { pool_bytes: 2 * bytes, bytes, on_disk: false, threads };
            let found = run(sorted(batches(&rows, 1000), limits, None)).unwrap();
            assert_eq!(found.numbers, expected(&rows, None));
            assert!(0 < found.peak && found.peak <= bytes, "{} bytes were reserved", found.peak);
        }
    }
}
