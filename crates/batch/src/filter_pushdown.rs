//! DataFusion's rule that moves filters towards the scans, without its mistake at aggregates without keys.
//!
//! Such an aggregate has a row over no rows. A condition without columns, which `0 = 1` is for a column that
//! is a constant, counts as one over the keys there, is moved below the aggregate, and leaves that row.

use datafusion::{
    common::{Result, tree_node::Transformed},
    logical_expr::LogicalPlan,
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule, push_down_filter::PushDownFilter},
};

/// Moves filters towards the scans, but not below an aggregate without keys.
#[derive(Debug, Default)]
pub(crate) struct FilterPushdown(PushDownFilter);

impl OptimizerRule for FilterPushdown {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Filter(filter) = &plan
            && let LogicalPlan::Aggregate(node) = filter.input.as_ref()
            && node.group_expr.is_empty()
        {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}
