//! Joins over rows that do not fit into memory: the optimizer rule that sorts both sides on disk.
//!
//! A hash join holds one side in memory. Where that fails, `execute` plans the query again without
//! DataFusion's option `prefer_hash_join`, and this rule replaces hash joins by merge joins over sorted inputs: sorts go to disk, and so do the
//! right rows of one key where they do not fit. The order in which a join emits its rows does not
//! matter, since they are sorted above it ([`crate::lower`]). LAST JOIN is an operator of this crate
//! and has its own way to disk.

use std::sync::Arc;

use datafusion::{
    arrow::{
        compute::SortOptions,
        datatypes::{DataType, Schema},
    },
    common::{
        JoinSide,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    error::Result,
    physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr, expressions::Column},
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        joins::{HashJoinExec, SortMergeJoinExec, utils::JoinFilter},
        projection::{ProjectionExec, ProjectionExpr},
        sorts::sort::SortExec,
    },
};

use crate::shared_rows::SharedExec;

/// The optimizer rule that replaces hash joins by merge joins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JoinsOnDisk;

impl PhysicalOptimizerRule for JoinsOnDisk {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if options.optimizer.prefer_hash_join {
            return Ok(plan);
        }
        let rewritten = plan.transform_up(|plan| {
            let join = plan.downcast_ref::<HashJoinExec>().map(merge_join);
            Ok(match join.transpose()?.flatten() {
                Some(merge) => Transformed::yes(merge),
                None => Transformed::no(plan),
            })
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &'static str {
        "JoinsOnDisk"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns whether a plan has a join that the rule replaces.
pub(crate) fn has_hash_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(read) = plan.downcast_ref::<SharedExec>() {
        return has_hash_join(read.shared().plan());
    }
    let is_hash_join = plan.downcast_ref::<HashJoinExec>().is_some_and(can_merge);
    is_hash_join || plan.children().into_iter().any(has_hash_join)
}

/// Returns whether a merge join pairs the same rows: floats, of which a sort tells the two zeros
/// apart, and anti joins that NULL empties stay hash joins.
fn can_merge(join: &HashJoinExec) -> bool {
    let is_float = |expr: &Arc<dyn PhysicalExpr>, side: &Arc<dyn ExecutionPlan>| {
        let data_type = expr.data_type(&side.schema());
        data_type.map_or(true, |of| matches!(of, DataType::Float32 | DataType::Float64))
    };
    let single = |side: &Arc<dyn ExecutionPlan>| side.output_partitioning().partition_count() == 1;
    let keys = join.on();
    !join.null_aware
        && single(join.left())
        && single(join.right())
        && !keys
            .iter()
            .any(|(left, right)| is_float(left, join.left()) || is_float(right, join.right()))
}

/// Returns a filter whose columns of the left side come first: a merge join passes them so, whatever the order
/// is in which the filter names them. That of a hash join whose sides were exchanged is another one.
fn left_first(filter: &JoinFilter) -> Result<JoinFilter> {
    let named = filter.column_indices();
    let mut order: Vec<usize> = (0..named.len()).collect();
    order.sort_by_key(|at| named[*at].side != JoinSide::Left);
    let place = |at: usize| order.iter().position(|old| *old == at);
    let moved = Arc::clone(filter.expression()).transform(|expr| {
        let column = expr.downcast_ref::<Column>();
        let column = column.and_then(|column| Some((column.name(), place(column.index())?)));
        Ok(match column {
            Some((name, at)) => Transformed::yes(Arc::new(Column::new(name, at)) as _),
            None => Transformed::no(expr),
        })
    })?;
    let fields = order.iter().map(|at| Arc::clone(&filter.schema().fields()[*at]));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let columns = order.iter().map(|at| named[*at].clone()).collect();
    Ok(JoinFilter::new(moved.data, columns, Arc::new(schema)))
}

fn merge_join(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !can_merge(join) {
        return Ok(None);
    }
    let ascending = SortOptions::default();
    let sorted = |side: &Arc<dyn ExecutionPlan>, by: Vec<Arc<dyn PhysicalExpr>>| {
        let by = by.into_iter().map(|expr| PhysicalSortExpr::new(expr, ascending));
        let sorted = LexOrdering::new(by)
            .map(|by| Arc::new(SortExec::new(by, Arc::clone(side))) as Arc<dyn ExecutionPlan>);
        sorted.unwrap_or_else(|| Arc::clone(side))
    };
    let (left, right) = join.on().iter().cloned().unzip();
    let merge = SortMergeJoinExec::try_new(
        sorted(join.left(), left),
        sorted(join.right(), right),
        join.on().to_vec(),
        join.filter().map(left_first).transpose()?,
        *join.join_type(),
        vec![ascending; join.on().len()],
        join.null_equality(),
    )?;
    let Some(columns) = &join.projection else { return Ok(Some(Arc::new(merge))) };
    let schema = merge.schema();
    let projected = columns.iter().map(|at| {
        let name = schema.field(*at).name();
        ProjectionExpr::new(Arc::new(Column::new(name, *at)), name.clone())
    });
    let projected: Vec<_> = projected.collect();
    Ok(Some(Arc::new(ProjectionExec::try_new(projected, Arc::new(merge))?)))
}
