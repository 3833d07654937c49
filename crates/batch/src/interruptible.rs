//! Joins of DataFusion that can be interrupted.
//!
//! An aborted task ends at its next await, and a join may not come to one for minutes: it looks for
//! the next pair that its condition admits, or gives billions of pairs to a filter that admits none.
//! So the last rule of the physical optimizer lets the condition of a join ask whether to go on, and
//! puts an [`InterruptibleExec`] above every join.

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

/// Makes joins ask whether to go on; as the last rule.
#[derive(Debug)]
pub(crate) struct Interruptible {
    /// Who may interrupt the query.
    pub(crate) context: QueryContext,
}

impl Interruptible {
    /// The node that takes the place of a join.
    fn replace(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let join: Arc<dyn ExecutionPlan> = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let filter = join.filter().map(|filter| self.asking(filter));
            join.builder().with_filter(filter).build_exec()?
        } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
            let filter = join.filter().map(|filter| self.asking(filter));
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

    fn asking(&self, filter: &JoinFilter) -> JoinFilter {
        let condition = Arc::clone(filter.expression());
        let asking = Asking { condition, context: self.context.clone() };
        let columns = filter.column_indices().to_vec();
        JoinFilter::new(Arc::new(asking), columns, Arc::clone(filter.schema()))
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

/// A condition that fails when the query was interrupted.
#[derive(Debug)]
struct Asking {
    condition: Arc<dyn PhysicalExpr>,
    context: QueryContext,
}

impl PartialEq for Asking {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Asking {}

impl Hash for Asking {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Asking {
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
            _ => internal_err!("a condition that asks is made of one"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

/// Gives the batches of its input until the query is interrupted.
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
        let asked = self.context.clone();
        let batches = self.input.execute(partition, context)?;
        let batches = batches.map(move |batch| check(&asked).and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
