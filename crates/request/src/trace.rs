//! Follows columns of a plan down to the table that they are stored in, so that an index can be used,
//! and answers other questions about plans before the compiler compiles them.

use datafusion::logical_expr::{Aggregate, Expr, FetchType, Limit, LogicalPlan, SkipType};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::udf::as_aggregate;
pub(crate) use lockstep_plan::{
    lineage::{column, last_join, leaf_table, leftmost_table, to_leaf, window},
    mark_columns,
};

/// Which rows a chain is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ChainRole {
    /// The request row.
    Request,
    /// Earlier rows of the request's own chain. LIMIT and DISTINCT of the answer do not apply to them.
    History,
    /// A union source, or the right side of a LAST JOIN.
    Other,
}

/// Returns whether each output row comes from one leaf row by itself, so that rows can be computed one
/// by one as they are read; otherwise the plan has to be materialised.
pub(crate) fn is_row_source(plan: &LogicalPlan, role: ChainRole) -> bool {
    let is_own = role != ChainRole::Other;
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::EmptyRelation(_) => is_own,
        LogicalPlan::Projection(node) => is_row_source(&node.input, role),
        LogicalPlan::SubqueryAlias(node) => is_row_source(&node.input, role),
        LogicalPlan::Filter(node) => is_row_source(&node.input, role),
        LogicalPlan::Sort(node) => {
            (is_own || node.fetch.is_none()) && is_row_source(&node.input, role)
        }
        LogicalPlan::Limit(node) => is_own && is_row_source(&node.input, role),
        LogicalPlan::Distinct(node) => is_own && is_row_source(node.input(), role),
        LogicalPlan::Extension(_) => match (window(plan), last_join(plan)) {
            (Some(window), _) => is_row_source(&window.input, role),
            (_, Some(join)) => is_row_source(&join.left, role),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether the group of one row can be found by its keys: the input's rows are computed one by
/// one, and adding a row changes none of the others.
pub(crate) fn is_keyed_group(node: &Aggregate) -> bool {
    let is_lockstep = |expr: &Expr| match expr {
        Expr::AggregateFunction(call) => as_aggregate(&call.func).is_some(),
        _ => false,
    };
    !node.group_expr.is_empty()
        && node.aggr_expr.iter().all(is_lockstep)
        && is_row_source(&node.input, ChainRole::Other)
        && !has_windows(&node.input)
}

/// Fails where the rows that the request row is one of are cut by an OFFSET: which rows are before it
/// depends on all of them.
pub(crate) fn refuse_offset(plan: &LogicalPlan) -> Result<()> {
    if let LogicalPlan::Limit(limit) = plan
        && !matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
    {
        return Diagnostic::unsupported("OFFSET is not supported in request mode")
            .with_hint(
                "Remove OFFSET, since a request is for one row, or run the query in batch mode.",
            )
            .err();
    }
    plan.inputs().first().map_or(Ok(()), |input| refuse_offset(input))
}

/// Returns whether a LIMIT keeps the first row; `None` when its numbers are not constants.
pub(crate) fn admits_one_row(limit: &Limit) -> Option<bool> {
    match limit.get_fetch_type().ok()? {
        FetchType::Literal(fetch) => Some(fetch != Some(0)),
        FetchType::UnsupportedExpr => None,
    }
}

/// Returns whether there is a window between the leaf and the plan's output.
pub(crate) fn has_windows(plan: &LogicalPlan) -> bool {
    window(plan).is_some() || plan.inputs().first().is_some_and(|input| has_windows(input))
}
