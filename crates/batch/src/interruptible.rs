//! Interruption of DataFusion's joins.
//!
//! An aborted task ends at its next await, and a join may not reach one for minutes: it looks for
//! the next pair that satisfies its condition, or passes billions of pairs to a filter that none
//! satisfies. So the last rule of the physical optimizer makes the condition of a join check for an
//! interrupt, and puts an [`InterruptibleExec`] above every join.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{FieldRef, Schema},
};
use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    logical_expr::ColumnarValue,
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream,
        joins::{
            CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
            utils::JoinFilter,
        },
        stream::RecordBatchStreamAdapter,
    },
};
use futures::StreamExt;
use lockstep_host::QueryContext;

use crate::operator::check;

/// The optimizer rule that makes joins interruptible; the last rule.
#[derive(Debug)]
pub(crate) struct Interruptible {
    /// Interrupts the query.
    pub(crate) context: QueryContext,
}

impl Interruptible {
    /// Returns the replacement of a join; `None` for any other node.
    fn replace(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let join: Arc<dyn ExecutionPlan> = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let filter = join.filter().map(|filter| self.interruptible(filter));
            join.builder().with_filter(filter).build_exec()?
        } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
            let filter = join.filter().map(|filter| self.interruptible(filter));
            let builder = NestedLoopJoinExecBuilder::new(left, right, *join.join_type());
            let builder = builder.with_projection_ref(join.projection().clone());
            Arc::new(builder.with_filter(filter).build()?)
        } else if plan.downcast_ref::<CrossJoinExec>().is_some() {
            Arc::clone(plan)
        } else {
            return Ok(None);
        };
        Ok(Some(Arc::new(InterruptibleExec { input: join, context: self.context.clone() })))
    }

    fn interruptible(&self, filter: &JoinFilter) -> JoinFilter {
        let condition = Arc::clone(filter.expression());
        let checked = InterruptibleCondition { condition, context: self.context.clone() };
        let columns = filter.column_indices().to_vec();
        JoinFilter::new(Arc::new(checked), columns, Arc::clone(filter.schema()))
    }
}

impl PhysicalOptimizerRule for Interruptible {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|plan| {
            Ok(match self.replace(&plan)? {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(plan),
            })
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        "Interruptible"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A join condition that fails when the query was interrupted.
#[derive(Debug)]
struct InterruptibleCondition {
    condition: Arc<dyn PhysicalExpr>,
    context: QueryContext,
}

impl PartialEq for InterruptibleCondition {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for InterruptibleCondition {}

impl Hash for InterruptibleCondition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for InterruptibleCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for InterruptibleCondition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        check(&self.context)?;
        self.condition.evaluate(batch)
    }

    fn return_field(&self, input_schema: &Schema) -> Result<FieldRef> {
        self.condition.return_field(input_schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(condition), true) => {
                Ok(Arc::new(Self { condition, context: self.context.clone() }))
            }
            _ => internal_err!("an interruptible condition has one child"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// The operator that passes the batches of its input through until the query is interrupted.
#[derive(Debug)]
struct InterruptibleExec {
    input: Arc<dyn ExecutionPlan>,
    context: QueryContext,
}

impl DisplayAs for InterruptibleExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InterruptibleExec")
    }
}

impl ExecutionPlan for InterruptibleExec {
    fn name(&self) -> &'static str {
        "InterruptibleExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
            (Some(input), true) => Ok(Arc::new(Self { input, context: self.context.clone() })),
            _ => internal_err!("an interruptible node has one input"),
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
        let query = self.context.clone();
        let batches = self.input.execute(partition, context)?;
        let batches = batches.map(move |batch| check(&query).and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
