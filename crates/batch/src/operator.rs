//! What the operators of this crate share: options, reading of inputs, properties.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use arrow::{
    array::{Array, RecordBatch},
    datatypes::SchemaRef,
};
use datafusion::{
    error::Result,
    execution::{TaskContext, memory_pool::MemoryReservation},
    physical_expr::EquivalenceProperties,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
        SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream};
use lockstep_host::QueryContext;

use crate::{Progress, error};

/// How many rows the batches of a scan and of an operator's output hold at most.
pub(crate) const BATCH_ROWS: usize = 8192;

/// What the caller of a query fixed for its operators.
#[derive(Clone)]
pub(crate) struct OperatorOptions {
    /// How many threads one operator may use.
    pub(crate) threads: NonZeroUsize,
    /// Who is told how far the query is.
    pub(crate) progress: Option<Arc<dyn Progress>>,
    /// Who may interrupt the query.
    pub(crate) context: QueryContext,
}

impl fmt::Debug for OperatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl OperatorOptions {
    /// Whether the query was interrupted, and stays so.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.context.check().is_err()
    }

    /// Ends a query that was interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        check(&self.context)
    }

    /// Reports that `done` of `total` steps of an operator are behind it.
    pub(crate) fn report(&self, operator: &'static str, done: u64, total: u64) {
        if let Some(progress) = &self.progress {
            progress.report(operator, done, total);
        }
    }
}

/// Ends a query that was interrupted.
pub(crate) fn check(context: &QueryContext) -> Result<()> {
    let outcome = context.check();
    outcome.map_err(|interrupt| error::into_datafusion(error::interrupted(interrupt)))
}

/// The properties of an operator that gives one partition at the end.
pub(crate) fn single_partition(schema: &SchemaRef) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(schema)),
        Partitioning::UnknownPartitioning(1),
        EmissionType::Final,
        Boundedness::Bounded,
    ))
}

/// Reads an input as a whole, its partitions one after the other: the order of rows is the order
/// of arrival, which no operator may lose. Accounts for the memory.
pub(crate) async fn read_all(
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    memory: &MemoryReservation,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for partition in 0..input.output_partitioning().partition_count() {
        let mut stream = input.execute(partition, Arc::clone(&context))?;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                memory.try_grow(batch_bytes(&batch))?;
                batches.push(batch);
            }
        }
    }
    Ok(batches)
}

/// Bytes of the values of a batch. Batches that are slices of the same columns count their own
/// parts of them.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| array_bytes(column.as_ref())).sum()
}

/// Bytes of the values of a column.
pub(crate) fn array_bytes(column: &dyn Array) -> usize {
    let bytes = column.to_data().get_slice_memory_size();
    bytes.unwrap_or_else(|_| column.get_array_memory_size())
}

/// A stream of batches that are computed all at once, when the first one is asked for.
pub(crate) fn computed_stream(
    schema: SchemaRef,
    batches: BoxFuture<'static, Result<Vec<RecordBatch>>>,
) -> SendableRecordBatchStream {
    let batches = stream::once(batches).map_ok(|batches| stream::iter(batches).map(Ok));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches.try_flatten()))
}

/// Runs `body`, which computes for long, where it does not hold up other queries.
pub(crate) async fn compute<T: Send + 'static>(
    body: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let joined = tokio::task::spawn_blocking(body).await;
    joined.map_err(|cause| datafusion::error::DataFusionError::External(Box::new(cause)))?
}
