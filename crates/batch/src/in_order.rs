//! The operator that reads the partitions of its input one after the other, and the optimizer rule
//! that inserts it.
//!
//! The inputs of a UNION ALL are partitions to DataFusion, which interleaves them as they arrive
//! where an operator requires a single partition, and aggregates each of them first. The order of
//! rows decides ties and the values of aggregates, so the first rule of the physical optimizer puts
//! an [`InOrderExec`] above every union, and the last one replaces every other operator that
//! interleaves partitions. The rows of a join are sorted ([`crate::lower`]), which DataFusion
//! removes where no operator above requires the order; an [`InOrderExec`] requires it.

use std::{fmt, sync::Arc};

use crate::{
    lower::LEFT_ROW,
    operator::{rows_in_order, single_partition},
};
use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    physical_expr::{OrderingRequirements, PhysicalExpr, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream,
        coalesce_partitions::CoalescePartitionsExec,
        limit::LimitStream,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet},
        sorts::sort::SortExec,
        stream::RecordBatchStreamAdapter,
        union::UnionExec,
    },
};

/// The optimizer rule that inserts an [`InOrderExec`]; runs as the first rule and as the last.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PreserveOrder {
    /// Above every union, and above the sort of every join.
    UnionsAndJoins,
    /// Instead of every `CoalescePartitionsExec`.
    CoalescedPartitions,
}

impl PreserveOrder {
    /// Returns the replacement of a node; `None` for a node that stays.
    fn replace(self, plan: &Arc<dyn ExecutionPlan>) -> Option<InOrderExec> {
        match self {
            Self::UnionsAndJoins => {
                let ordering = order_of_join(plan);
                if ordering.is_none() {
                    plan.downcast_ref::<UnionExec>()?;
                }
                Some(InOrderExec { ordering, ..InOrderExec::new(Arc::clone(plan), None) })
            }
            Self::CoalescedPartitions => {
                let coalesced = plan.downcast_ref::<CoalescePartitionsExec>()?;
                Some(InOrderExec::new(Arc::clone(coalesced.input()), coalesced.fetch()))
            }
        }
    }
}

impl PhysicalOptimizerRule for PreserveOrder {
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
            Self::UnionsAndJoins => "PreserveOrder (unions and joins)",
            Self::CoalescedPartitions => "PreserveOrder (coalesced partitions)",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the ordering of a plan that sorts the rows of a join; `None` for any other plan.
fn order_of_join(plan: &Arc<dyn ExecutionPlan>) -> Option<OrderingRequirements> {
    let ordering = plan.downcast_ref::<SortExec>()?.expr();
    let first = ordering.first().expr.downcast_ref::<Column>()?;
    (first.name() == LEFT_ROW).then(|| OrderingRequirements::from(ordering.clone()))
}

/// The operator that reads the partitions of its input one after the other.
#[derive(Debug)]
struct InOrderExec {
    input: Arc<dyn ExecutionPlan>,
    /// The order that the rows of its input must have.
    ordering: Option<OrderingRequirements>,
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl InOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Self {
        let properties = single_partition(&input.schema());
        Self { input, ordering: None, fetch, properties }
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

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.ordering.clone()]
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
                let ordering = self.ordering.clone();
                Ok(Arc::new(Self { ordering, ..Self::new(input, self.fetch) }))
            }
            _ => internal_err!("InOrderExec has one input"),
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
        let batches = rows_in_order(input, context);
        let stream: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches));
        let Some(fetch) = self.fetch else { return Ok(stream) };
        let metrics = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        Ok(Box::pin(LimitStream::new(stream, 0, Some(fetch), metrics)))
    }
}
