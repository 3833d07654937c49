//! The GROUP BY operator: DataFusion's aggregation in memory, or part by part on disk where the groups do not
//! fit (`on_disk`). Groups come in the order of their first rows in both.
//!
//! The last rule but one of the physical optimizer puts it in the place of each aggregation with groups
//! ([`GroupsInOrder`]). DataFusion would write partial states to disk by itself, sorted by the key; the order
//! of the groups would depend on the memory then, and a state that depends on the order of its rows has no
//! part that could be written.

use std::{fmt, sync::Arc};

use arrow::array::RecordBatch;
use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::{
        TaskContext,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        runtime_env::RuntimeEnvBuilder,
    },
    physical_expr::PhysicalExpr,
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
        ExecutionPlanProperties, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
        SendableRecordBatchStream,
        aggregates::{AggregateExec, AggregateMode},
        stream::RecordBatchReceiverStream,
    },
};
use futures::StreamExt;
use tokio::sync::mpsc::Sender;

mod on_disk;

use on_disk::on_disk;

use crate::{
    operator::{BATCHES_AHEAD, OperatorOptions, single_partition},
    spill::is_out_of_memory,
};

/// The optimizer rule that puts a [`GroupByExec`] in the place of an aggregation.
#[derive(Debug)]
pub(crate) struct GroupsInOrder {
    pub(crate) options: OperatorOptions,
}

impl PhysicalOptimizerRule for GroupsInOrder {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rewritten = plan.transform_up(|plan| {
            Ok(match plan.downcast_ref::<AggregateExec>() {
                Some(groups) if is_supported(groups) => {
                    let groups = GroupByExec::new(Arc::clone(&plan), self.options.clone())?;
                    Transformed::yes(Arc::new(groups))
                }
                _ => Transformed::no(plan),
            })
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        "GroupsInOrder"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns whether an aggregation gives its groups at the end, all of them, from the rows of one input.
fn is_supported(groups: &AggregateExec) -> bool {
    matches!(groups.mode(), AggregateMode::Single | AggregateMode::SinglePartitioned)
        && groups.limit_options().is_none()
        && matches!(groups.input_order_mode(), InputOrderMode::Linear)
        && groups.group_expr().is_single()
        && !groups.group_expr().is_true_no_grouping()
        && groups.input().output_partitioning().partition_count() == 1
}

/// The GROUP BY operator.
#[derive(Debug)]
struct GroupByExec {
    /// The aggregation, an [`AggregateExec`].
    groups: Arc<dyn ExecutionPlan>,
    input: Arc<dyn ExecutionPlan>,
    options: OperatorOptions,
    properties: Arc<PlanProperties>,
}

impl GroupByExec {
    fn new(groups: Arc<dyn ExecutionPlan>, options: OperatorOptions) -> Result<Self> {
        let Some(aggregate) = groups.downcast_ref::<AggregateExec>() else {
            return internal_err!("GROUP BY is an aggregation");
        };
        let input = Arc::clone(aggregate.input());
        debug_assert_eq!(input.output_partitioning().partition_count(), 1, "rows in one order");
        let properties = single_partition(&groups.schema());
        Ok(Self { groups, input, options, properties })
    }
}

impl DisplayAs for GroupByExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupByExec: ")?;
        match self.groups.downcast_ref::<AggregateExec>() {
            Some(groups) => groups.fmt_as(kind, f),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for GroupByExec {
    fn name(&self) -> &'static str {
        "GroupByExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.groups.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let groups = Arc::clone(&self.groups).replace_children(children, options)?;
        Ok(Arc::new(Self::new(groups, self.options.clone())?))
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
        let (groups, input) = (Arc::clone(&self.groups), Arc::clone(&self.input));
        let options = self.options.clone();
        let mut stream = RecordBatchReceiverStream::builder(groups.schema(), BATCHES_AHEAD);
        let sender = stream.tx();
        stream.spawn(async move {
            match in_memory(&groups, &input, (&options, &context), &sender).await {
                Err(error) if is_out_of_memory(&error) => {
                    on_disk(&groups, &input, (&options, &context), &sender).await
                }
                outcome => outcome,
            }
        });
        Ok(stream.build())
    }
}

/// Groups with all states in memory. The error for too little memory comes before the first group, since
/// groups are passed on when all rows were read.
async fn in_memory(
    groups: &Arc<dyn ExecutionPlan>,
    input: &Arc<dyn ExecutionPlan>,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
    sender: &Sender<Result<RecordBatch>>,
) -> Result<()> {
    options.check_in_memory()?;
    // Operators below may use the disk, this one may not.
    let below: Arc<dyn ExecutionPlan> =
        Arc::new(InContext { input: Arc::clone(input), context: Arc::clone(context) });
    let recomputed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let groups = Arc::clone(groups).replace_children(vec![below], recomputed)?;
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env())
        .with_disk_manager_builder(disk)
        .build_arc()?;
    let own = copy_of(context).with_runtime(runtime);
    let mut stream = groups.execute(0, Arc::new(own))?;
    while let Some(batch) = stream.next().await {
        if sender.send(Ok(batch?)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Copies the context of a query.
fn copy_of(context: &TaskContext) -> TaskContext {
    TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone(),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    )
}

/// An operator whose input runs in a context of its own.
#[derive(Debug)]
struct InContext {
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
}

impl DisplayAs for InContext {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InContext")
    }
}

impl ExecutionPlan for InContext {
    fn name(&self) -> &'static str {
        "InContext"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
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
            (Some(input), true) => Ok(Arc::new(Self { input, context: Arc::clone(&self.context) })),
            _ => internal_err!("a context has one input"),
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, Arc::clone(&self.context))
    }
}
