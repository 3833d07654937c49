//! Interruption of planning: rules of DataFusion's optimizers that check for an interrupt.
//!
//! A plan may have thousands of operators and hundreds of thousands of expressions, and some rules need
//! time in proportion to the square of their number. So every rule checks before it starts, and a rule that
//! the optimizer applies to each operator checks at each of them.

use std::sync::Arc;

use datafusion::{
    common::{config::ConfigOptions, tree_node::Transformed},
    error::Result,
    logical_expr::LogicalPlan,
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizerContext},
    physical_plan::ExecutionPlan,
};
use lockstep_host::QueryContext;

use crate::{
    error::{interrupted, into_datafusion},
    operator::check,
};

/// A rule of the optimizer of logical plans. The call's own thread runs it.
#[derive(Debug)]
pub(crate) struct CheckedLogicalRule {
    pub(crate) rule: Arc<dyn OptimizerRule + Send + Sync>,
    /// Interrupts the query.
    pub(crate) context: QueryContext,
}

impl OptimizerRule for CheckedLogicalRule {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        self.context.poll().map_err(|interrupt| into_datafusion(interrupted(interrupt)))?;
        self.rule.rewrite(plan, config)
    }
}

/// A rule of the optimizer of physical plans.
#[derive(Debug)]
pub(crate) struct CheckedPhysicalRule {
    pub(crate) rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    /// Interrupts the query.
    pub(crate) context: QueryContext,
}

impl PhysicalOptimizerRule for CheckedPhysicalRule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check(&self.context)?;
        self.rule.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check(&self.context)?;
        self.rule.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}
