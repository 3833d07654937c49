//! Shared code of the operators: options, reading of inputs, plan properties, output streams.

use std::{
    fmt,
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arrow::{
    array::{Array, RecordBatch},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{internal_err, resources_err},
    error::Result,
    execution::{
        TaskContext,
        config::SessionConfig,
        memory_pool::{MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    physical_expr::EquivalenceProperties,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use lockstep_host::{CallStep, QueryContext, sync::Mutex};
use tokio::sync::mpsc::Sender;

use crate::{ProgressListener, error};

/// The most rows in a batch of a scan or of an operator's output.
pub(crate) const BATCH_ROWS: usize = 8192;

/// The most batches that wait for the operator above.
pub(crate) const BATCHES_AHEAD: usize = 4;

/// The options of a query's operators.
#[derive(Clone)]
pub(crate) struct OperatorOptions {
    /// The most threads of one operator.
    pub(crate) threads: NonZeroUsize,
    /// Receives the progress of the query.
    pub(crate) progress: Option<Arc<dyn ProgressListener>>,
    /// Interrupts the query.
    pub(crate) context: QueryContext,
    /// Whether operators take their rows to disk although they fit into memory.
    pub(crate) on_disk: bool,
    /// Whether the rows of one key are computed by several threads.
    pub(crate) window_skew: WindowSkew,
    /// The rows of a time slice of a window on disk, which every part is cut into; otherwise parts
    /// that do not fit are, into slices that do.
    pub(crate) slice_rows: Option<usize>,
    /// From how many rows a table is decoded, and groups are computed, by several threads.
    pub(crate) parallel_rows_min: usize,
}

/// What [`OperatorOptions::parallel_rows_min`] is unless a test says otherwise: about a millisecond of work.
pub(crate) const PARALLEL_ROWS_MIN: usize = 1 << 16;

/// What [`set_parallel_rows_min`] said last; 0: nothing.
static TESTED_ROWS_MIN: AtomicUsize = AtomicUsize::new(0);

/// Makes all later queries of the process use several threads from so many rows on; 0 for as many as usual. For
/// tests.
#[doc(hidden)]
pub fn set_parallel_rows_min(rows: usize) {
    // Relaxed: a switch of tests.
    TESTED_ROWS_MIN.store(rows, Ordering::Relaxed);
}

/// Returns what [`set_parallel_rows_min`] said last.
pub(crate) fn parallel_rows_min() -> Option<usize> {
    // Relaxed: a switch of tests.
    Some(TESTED_ROWS_MIN.load(Ordering::Relaxed)).filter(|rows| *rows > 0)
}

/// When a window cuts the rows of one key into time slices, for several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowSkew {
    /// Where a key has so many rows that threads would wait for it, and it pays.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Wherever there are rows for several slices.
    Always,
}

impl fmt::Debug for OperatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl OperatorOptions {
    /// Fails, as a full memory does, where the rows are to go to disk.
    pub(crate) fn check_in_memory(&self) -> Result<()> {
        match self.on_disk {
            true => resources_err!("The rows must be written to disk"),
            false => Ok(()),
        }
    }

    /// Returns whether the query was interrupted.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.context.check().is_err()
    }

    /// Fails when the query was interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        check(&self.context)
    }

    /// Reports that `done` of `total` parts of an operator's work are complete.
    pub(crate) fn report(&self, step: CallStep, done: u64, total: u64) {
        debug_assert!(done <= total, "an operator has {total} parts");
        self.context.report(step, done, total);
        if let Some(progress) = &self.progress {
            progress.report(step, done, total);
        }
    }
}

/// The writer of a file, and batches that wait on disk or are read from there, take each at most this part of
/// the memory of a query.
const MEMORY_SHARE: usize = 8;
/// The least rows of a batch that waits: each is written with its own header.
const WAITING_ROWS_MIN: usize = 256;

/// Returns how many bytes the writer of a file may take, where the memory of the thread's call is limited.
pub(crate) fn memory_share() -> Option<usize> {
    let allowed = lockstep_host::query::current()?.memory_bytes()?;
    Some(usize::try_from(allowed).unwrap_or(usize::MAX) / MEMORY_SHARE)
}

/// Returns how many rows of `row_bytes` bytes a batch has, of which there are `count` in memory at once: as
/// many as usual, or fewer where memory is limited, down to a least number.
pub(crate) fn batch_rows(
    usual: usize,
    count: usize,
    row_bytes: usize,
    context: &TaskContext,
) -> usize {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => {
            let fitting = bytes / MEMORY_SHARE / (count * row_bytes).max(1);
            fitting.clamp(WAITING_ROWS_MIN.min(usual), usual)
        }
        MemoryLimit::Infinite | MemoryLimit::Unknown => usual,
    }
}

/// Returns about how many bytes a row takes.
pub(crate) fn row_bytes(schema: &SchemaRef) -> usize {
    let fields = schema.fields().iter();
    fields.map(|field| field.data_type().primitive_width().unwrap_or(LONG_BYTES)).sum()
}

/// What a value counts as whose size is not that of its type.
pub(crate) const LONG_BYTES: usize = 32;

/// Fails when the query was interrupted.
pub(crate) fn check(context: &QueryContext) -> Result<()> {
    let outcome = context.check();
    outcome.map_err(|interrupt| error::into_datafusion(error::interrupted(interrupt)))
}

/// Returns the plan properties of an operator that emits one partition.
pub(crate) fn single_partition(schema: &SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

/// Returns the rows of an input, its partitions one after the other, which is the order of arrival.
pub(crate) fn rows_in_order(
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    stream::iter(0..input.output_partitioning().partition_count())
        .map(move |partition| input.execute(partition, Arc::clone(&context)))
        .try_flatten()
}

/// Reads a whole input in the order of arrival. Counts the memory of its batches.
pub(crate) async fn read_all(
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    count: impl Fn(usize) -> Result<()>,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    let mut rows = pin!(rows_in_order(input, context));
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            count(batch_bytes(&batch))?;
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// Returns the number of bytes of a batch's values. A batch that is a slice counts its own part of
/// the columns.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| array_bytes(column.as_ref())).sum()
}

/// Returns the number of bytes of a column's values.
pub(crate) fn array_bytes(column: &dyn Array) -> usize {
    let bytes = column.to_data().get_slice_memory_size();
    bytes.unwrap_or_else(|_| column.get_array_memory_size())
}

/// Sends the batches of an operator, until no operator wants more, and takes each off its memory: who keeps it
/// counts it.
pub(crate) async fn send_all(
    sender: &Sender<Result<RecordBatch>>,
    batches: Vec<RecordBatch>,
    memory: &MemoryReservation,
) {
    for batch in batches {
        let bytes = batch_bytes(&batch);
        if sender.send(Ok(batch)).await.is_err() {
            break;
        }
        memory.shrink(bytes.min(memory.size()));
    }
}

/// Runs a long computation on a thread for blocking work, where it does not delay other queries.
pub(crate) async fn compute<T: Send + 'static>(
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let joined = tokio::task::spawn_blocking(body).await;
    joined.map_err(|cause| datafusion::error::DataFusionError::External(Box::new(cause)))?
}

/// The rows of an input.
pub(crate) type RowStream = Pin<Box<dyn Stream<Item = Result<RecordBatch>> + Send>>;

/// Rows that a stream gives, once.
struct GivenRows {
    rows: Mutex<Option<RowStream>>,
    schema: SchemaRef,
}

impl fmt::Debug for GivenRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenRows").finish_non_exhaustive()
    }
}

impl PartitionStream for GivenRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let twice = || stream::iter([internal_err!("rows that are given are read once")]).boxed();
        let rows = self.rows.lock().take().unwrap_or_else(twice);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

/// Returns an operator of these rows.
pub(crate) fn given(rows: RowStream, schema: &SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
    let given = GivenRows { rows: Mutex::new(Some(rows)), schema: Arc::clone(schema) };
    let partitions: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(given)];
    let exec = StreamingTableExec::try_new(Arc::clone(schema), partitions, None, [], false, None)?;
    Ok(Arc::new(exec))
}

/// Returns a context with other settings and another runtime.
pub(crate) fn with_runtime(
    context: &TaskContext,
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
) -> TaskContext {
    TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        runtime,
    )
}
