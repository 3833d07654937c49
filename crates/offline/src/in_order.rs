//! Joins partitions in their order.
//!
//! The inputs of a UNION ALL are partitions to DataFusion, which mixes them as they come where an
//! operator wants one, and aggregates each before it mixes them. The order of rows decides ties and
//! the values of aggregates, so the first rule of the physical optimizer puts an [`InOrderExec`]
//! above every union, and the last one puts it where something else mixes partitions.

use std::{fmt, sync::Arc};

use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
        ExecutionPlanProperties, PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream,
        coalesce_partitions::CoalescePartitionsExec,
        limit::LimitStream,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
        stream::RecordBatchStreamAdapter,
        union::UnionExec,
    },
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::operator::single_partition;

/// Puts [`InOrderExec`] in its places; as the first rule and as the last.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InOrder {
    /// Above every union.
    Unions,
    /// Instead of every `CoalescePartitionsExec`.
    Mixtures,
}

impl InOrder {
    /// The node that takes the place of this one.
    fn replace(self, plan: &Arc<dyn ExecutionPlan>) -> Option<InOrderExec> {
        match self {
            Self::Unions => {
                plan.downcast_ref::<UnionExec>()?;
                Some(InOrderExec::new(Arc::clone(plan), None))
            }
            Self::Mixtures => {
                let mixed = plan.downcast_ref::<CoalescePartitionsExec>()?;
                Some(InOrderExec::new(Arc::clone(mixed.input()), mixed.fetch()))
            }
        }
    }
}

impl PhysicalOptimizerRule for InOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|plan| {
            Ok(match self.replace(&plan) {
                Some(in_order) => Transformed::yes(Arc::new(in_order)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Unions => "InOrder (unions)",
            Self::Mixtures => "InOrder (mixtures)",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Gives the partitions of its input one after the other.
#[derive(Debug)]
struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl InOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        let properties = single_partition(&input.schema());
        Self { input, fetch, properties }
    }
}

impl DisplayAs for InOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fetch {
            Some(fetch) => write!(f, "InOrderExec: fetch={fetch}"),
            None => write!(f, "InOrderExec"),
        }
    }
}

impl ExecutionPlan for InOrderExec {
    fn name(&self) -> &'static str {
        "InOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.fetch))),
            _ => internal_err!("partitions in order come from one input"),
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

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = Arc::clone(&self.input);
        let partitions = 0..input.output_partitioning().partition_count();
        let batches = stream::iter(partitions)
            .map(move |partition| input.execute(partition, Arc::clone(&context)))
            .try_flatten();
        let stream: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches));
        let Some(fetch) = self.fetch else { return Ok(stream) };
        let metrics = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        Ok(Box::pin(LimitStream::new(stream, 0, Some(fetch), metrics)))
    }
}
