//! Windows of one SELECT that are computed at several levels, put at one level.
//!
//! The binder puts windows as far down as it can: those that read no column of a LAST JOIN are below it. A stream joins
//! and computes all windows of a row at once, and wants them above: a LAST JOIN keeps each row, so that windows have the
//! same rows above it, and those of UNION need no column that it adds.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::{
    common::{DFSchema, Result as PlanResult, ScalarValue, TableReference},
    logical_expr::{Expr, Extension, LogicalPlan, Projection, lit},
};
use lockstep_plan::{
    LastJoin, WindowAggregate, WindowGroup,
    lineage::{last_join, window},
    schema_of_unique,
};

/// A column with the name of its relation.
type ColumnOfRelation = (Option<TableReference>, FieldRef);

/// Returns a plan with the windows of each SELECT at one level, if they can be.
pub(super) fn at_one_level(plan: &LogicalPlan) -> PlanResult<LogicalPlan> {
    if let Some(upper) = window(plan) {
        return match merged(upper)? {
            Some(merged) => at_one_level(&merged),
            None => Ok(plan.clone()),
        };
    }
    if let Some(join) = last_join(plan) {
        return joined(join, at_one_level(&join.left)?);
    }
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            let input = at_one_level(plan.inputs()[0])?;
            plan.with_new_exprs(plan.expressions(), vec![input])
        }
        _ => Ok(plan.clone()),
    }
}

/// Puts the windows below LAST JOINs, if these are the input of windows, beside the ones above; `None` if there are none.
fn merged(upper: &WindowAggregate) -> PlanResult<Option<LogicalPlan>> {
    let (mut base, mut joins) = (&upper.input, Vec::new());
    while let Some(join) = last_join(base) {
        joins.push(join);
        base = &join.left;
    }
    let Some(lower) = window(base).filter(|_| !joins.is_empty() && upper.unions.is_empty()) else {
        return Ok(None);
    };
    let mut input = lower.input.clone();
    for join in joins.into_iter().rev() {
        input = joined(join, input)?;
    }
    let read = upper.groups.iter().flat_map(exprs_of);
    let mut columns = read.flat_map(Expr::column_refs);
    if !columns.all(|column| input.schema().maybe_index_of_column(column).is_some()) {
        // An aggregate of aggregates.
        return Ok(None);
    }
    let added = input.schema().fields().len() - lower.input.schema().fields().len();
    let unions = lower.unions.iter().map(|union| widened(union, &input, added));
    let results = |node: &WindowAggregate| -> Vec<ColumnOfRelation> {
        fields_of(&node.schema).skip(node.input.schema().fields().len()).collect()
    };
    let fields = fields_of(input.schema()).chain(results(lower)).chain(results(upper));
    let schema = Arc::new(schema_of_unique(fields)?);
    let groups = [&lower.groups[..], &upper.groups[..]].concat();
    let unions = unions.collect::<PlanResult<_>>()?;
    let node = Arc::new(WindowAggregate { unions, groups, schema, input });
    Ok(Some(LogicalPlan::Extension(Extension { node })))
}

/// Returns a LAST JOIN of other rows.
fn joined(join: &LastJoin, left: LogicalPlan) -> PlanResult<LogicalPlan> {
    let added = fields_of(&join.schema).skip(join.left.schema().fields().len());
    let schema = Arc::new(schema_of_unique(fields_of(left.schema()).chain(added))?);
    let node = Arc::new(LastJoin { left, schema, ..join.clone() });
    Ok(LogicalPlan::Extension(Extension { node }))
}

/// Adds as many columns to the rows of a UNION source as LAST JOINs add to main rows: NULLs.
fn widened(union: &LogicalPlan, input: &LogicalPlan, added: usize) -> PlanResult<LogicalPlan> {
    let fields = input.schema().fields();
    debug_assert!(added <= fields.len(), "the last ones were added");
    let nulls = fields[fields.len() - added..].iter().enumerate().map(|(at, field)| {
        let null = ScalarValue::try_from(field.data_type())?;
        Ok(lit(null).alias(format!("__joined_{at}")))
    });
    let columns = union.schema().columns().into_iter().map(|column| Ok(Expr::Column(column)));
    let exprs = columns.chain(nulls).collect::<PlanResult<_>>()?;
    Projection::try_new(exprs, Arc::new(union.clone())).map(LogicalPlan::Projection)
}

/// Returns what a window reads of its rows.
fn exprs_of(group: &WindowGroup) -> impl Iterator<Item = &Expr> {
    let window = group.window.partition_by.iter().chain(&group.window.order_by);
    window.chain(group.calls.iter().flat_map(|call| &call.arguments))
}

fn fields_of(schema: &DFSchema) -> impl Iterator<Item = ColumnOfRelation> {
    schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
}
