//! The operator that reads a source, a stored table, or rows on disk, on a thread that may block, a few
//! batches ahead.

use std::{fmt, ops::ControlFlow, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    common::{Statistics, internal_err, stats::Precision, tree_node::TreeNodeRecursion},
    error::Result,
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
        PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType},
        stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter},
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use lockstep_host::QueryContext;

use super::SourceBatches;
use crate::operator::{BATCHES_AHEAD, check, row_bytes};

/// Takes a batch; breaks when no more are wanted, which an empty one asks for.
pub(crate) type PushBatch<'p> = &'p mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>;

/// The rows that an operator reads.
pub(crate) trait BlockingScan: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens the rows; called on a thread that may block, unless they are at hand.
    fn open(&self) -> Result<SourceBatches>;

    /// Returns whether the rows are few and in memory: reading them takes less than a change of threads.
    fn is_at_hand(&self) -> bool {
        false
    }

    /// Passes the batches on; called on a thread that may block.
    fn push_each(&self, push: PushBatch<'_>) -> Result<()> {
        for batch in self.open()? {
            if push(batch?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the most rows that are wanted.
    fn limit(&self) -> Option<usize>;

    /// Returns the number of all rows, as far as it is known.
    fn row_count(&self) -> Precision<usize>;
}

/// Reads rows in their order.
#[derive(Debug)]
pub(crate) struct SourceExec {
    scan: Arc<dyn BlockingScan>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    context: QueryContext,
}

impl SourceExec {
    /// Makes the operator; `schema` is that of the scan's batches.
    pub(crate) fn new(
        scan: Arc<dyn BlockingScan>,
        schema: SchemaRef,
        context: QueryContext,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { scan, schema, properties: Arc::new(properties), context }
    }
}

impl DisplayAs for SourceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SourceExec: {}", self.scan)?;
        match self.scan.limit() {
            Some(limit) => write!(f, ", limit {limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SourceExec {
    fn name(&self) -> &'static str {
        "SourceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("a source has no input"),
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

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (scan, query) = (Arc::clone(&self.scan), self.context.clone());
        let mut left = scan.limit().unwrap_or(usize::MAX);
        let mut limited = move |batch: RecordBatch| {
            let batch = batch.slice(0, batch.num_rows().min(left));
            debug_assert!(batch.num_rows() <= left, "no more rows than the limit");
            left -= batch.num_rows();
            (batch, left)
        };
        if scan.is_at_hand() {
            let opened = stream::once(async move { scan.open() });
            let batches = opened.map_ok(stream::iter).try_flatten();
            let batches =
                batches.map(move |batch| check(&query).and(batch).map(|batch| limited(batch).0));
            return Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)));
        }
        let mut stream =
            RecordBatchReceiverStream::builder(Arc::clone(&self.schema), BATCHES_AHEAD);
        let sender = stream.tx();
        stream.spawn_blocking(move || {
            let push = |batch: RecordBatch| {
                check(&query)?;
                if batch.num_rows() == 0 && sender.is_closed() {
                    return Ok(ControlFlow::Break(()));
                }
                let (batch, left) = limited(batch);
                // Sending fails when no operator wants more rows.
                let is_wanted =
                    batch.num_rows() == 0 || (sender.blocking_send(Ok(batch)).is_ok() && left > 0);
                Ok(if is_wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            };
            query.run_in_background(|| scan.push_each(&mut { push }))
        });
        Ok(stream.build())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let rows = self.scan.row_count();
        statistics.num_rows = match self.scan.limit() {
            Some(limit) => rows.min(&Precision::Exact(limit)),
            None => rows,
        };
        if rows != Precision::Absent {
            let bytes = Precision::Inexact(row_bytes(&self.schema));
            statistics.total_byte_size = statistics.num_rows.multiply(&bytes);
        }
        Ok(Arc::new(statistics))
    }
}
