//! The GROUP BY operator: DataFusion's aggregation in memory, on several threads (`in_memory`), or part by part
//! on disk where the groups do not fit (`on_disk`). Groups come in the order of their first rows in both.
//!
//! The last rule but one of the physical optimizer puts it in the place of each aggregation with groups
//! ([`GroupsInOrder`]). DataFusion would write partial states to disk by itself, sorted by the key; the order
//! of the groups would depend on the memory then, and a state that depends on the order of its rows has no
//! part that could be written.

use std::{fmt, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, UInt64Array},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::{
    common::{
        config::ConfigOptions,
        internal_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    error::Result,
    execution::TaskContext,
    functions_aggregate::min_max::min_udaf,
    physical_expr::{PhysicalExpr, aggregate::AggregateExprBuilder, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
        ExecutionPlanProperties, InputOrderMode, PlanProperties, ReplaceChildrenOptions,
        SendableRecordBatchStream,
        aggregates::{AggregateExec, AggregateMode},
        stream::RecordBatchReceiverStream,
    },
};

mod in_memory;
mod on_disk;

use in_memory::in_memory;
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
            let Some(aggregate) = groups.downcast_ref::<AggregateExec>() else {
                return internal_err!("GROUP BY is an aggregation");
            };
            match in_memory(aggregate, &input, (&options, &context), &sender).await {
                Err(error) if is_out_of_memory(&error) => {
                    on_disk(aggregate, &input, (&options, &context), &sender).await
                }
                outcome => outcome,
            }
        });
        Ok(stream.build())
    }
}

/// The column of the number of a row, and of the first row of a group.
const NUMBER: &str = "__number";

/// Returns the schema of rows with their numbers after them, so that columns stay where they are.
fn numbered_last(schema: &SchemaRef) -> SchemaRef {
    let number = Arc::new(Field::new(NUMBER, DataType::UInt64, false));
    let fields = schema.fields().iter().cloned().chain([number]);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns rows with their numbers, from `start` on, in the last column.
fn with_number(batch: &RecordBatch, start: u64, schema: &SchemaRef) -> Result<RecordBatch> {
    let end = start + u64::try_from(batch.num_rows()).unwrap_or(0);
    let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(start..end));
    let columns = batch.columns().iter().cloned().chain([numbers]).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Returns the aggregation of some of the rows, which have this schema with their numbers, with the number of
/// the first row of each group in the last column.
fn numbered_groups(
    aggregate: &AggregateExec,
    rows: Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
) -> Result<AggregateExec> {
    let number = schema.fields().len() - 1;
    let number: Arc<dyn PhysicalExpr> = Arc::new(Column::new(NUMBER, number));
    let first = AggregateExprBuilder::new(min_udaf(), vec![number])
        .schema(Arc::clone(schema))
        .alias(NUMBER)
        .build()?;
    let mut calls = aggregate.aggr_expr().to_vec();
    calls.push(Arc::new(first));
    let mut filters = aggregate.filter_expr().to_vec();
    filters.push(None);
    AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        calls,
        filters,
        rows,
        Arc::clone(schema),
    )
}
