//! The operator that reads a source, or rows on disk, on a thread that may block, a few batches
//! ahead.

use std::{fmt, sync::Arc};

use arrow::datatypes::SchemaRef;
use datafusion::{
    common::{Statistics, internal_err, stats::Precision, tree_node::TreeNodeRecursion},
    error::Result,
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning,
        PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchReceiverStream,
    },
};
use lockstep_host::QueryContext;

use super::SourceBatches;
use crate::operator::{BATCHES_AHEAD, check};

/// The rows that an operator reads.
pub(crate) trait BlockingScan: fmt::Debug + fmt::Display + Send + Sync {
    /// Opens the rows; called on a thread that may block.
    fn open(&self) -> Result<SourceBatches>;

    /// Returns the most rows that are wanted.
    fn limit(&self) -> Option<usize>;

    /// Returns the number of all rows, where it is known.
    fn row_count(&self) -> Option<usize>;
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
        let mut stream =
            RecordBatchReceiverStream::builder(Arc::clone(&self.schema), BATCHES_AHEAD);
        let (scan, sender) = (Arc::clone(&self.scan), stream.tx());
        let query = self.context.clone();
        stream.spawn_blocking(move || {
            let mut left = scan.limit().unwrap_or(usize::MAX);
            for batch in scan.open()? {
                check(&query)?;
                let batch = batch?;
                let batch = batch.slice(0, batch.num_rows().min(left));
                debug_assert!(batch.num_rows() <= left, "no more rows than the limit");
                left -= batch.num_rows();
                // Sending fails when no operator wants more rows.
                if sender.blocking_send(Ok(batch)).is_err() || left == 0 {
                    break;
                }
            }
            Ok(())
        });
        Ok(stream.build())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema);
        if let Some(rows) = self.scan.row_count() {
            statistics.num_rows = match self.scan.limit() {
                Some(limit) => Precision::Exact(rows.min(limit)),
                None => Precision::Exact(rows),
            };
        }
        Ok(Arc::new(statistics))
    }
}
