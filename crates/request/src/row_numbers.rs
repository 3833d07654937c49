//! Rewrites a query so that each of its rows has the number of the stored row that it comes from.
//!
//! `engine` compares the rows of batch mode with answers for single stored rows, and a query may
//! filter some rows out. The number passes through the plan as the mark of the request row does in
//! [`crate::all_rows`].

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::{
    common::Result as PlanResult,
    logical_expr::{Expr, LogicalPlan},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{CallArguments, Settings, aggregate};
use lockstep_plan::{AggregateCall, Frame, LastJoin, Window, WindowAggregate, WindowGroup};

use crate::{
    all_rows::{MARK, extension, fields, followed_by, mark_last, mark_of, planning, project},
    trace,
};

/// Adds a last column to a plan: the number, from 1 in order of arrival, of the stored row of the
/// left-most table that a row comes from. The rows are in that order. Fails for plans that may give
/// several rows for a stored row, or one for several ([`gives_row_by_row`]).
pub fn with_row_numbers(plan: &LogicalPlan) -> Result<LogicalPlan> {
    if gives_row_by_row(plan) {
        return number(plan).map_err(planning);
    }
    Diagnostic::internal("the rows of the query do not come one from each stored row").err()
}

/// Returns whether each row of a plan comes from one row of its left-most table.
pub fn gives_row_by_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Extension(_) => {
            plan.inputs().first().is_some_and(|input| gives_row_by_row(input))
        }
        _ => false,
    }
}

fn number(plan: &LogicalPlan) -> PlanResult<LogicalPlan> {
    if let LogicalPlan::TableScan(_) = plan {
        return number_scan(plan);
    }
    if let LogicalPlan::Projection(node) = plan {
        let input = number(&node.input)?;
        let mut exprs = node.expr.clone();
        exprs.push(mark_of(input.schema())?);
        return project(input, exprs);
    }
    if let Some(node) = trace::window(plan) {
        let input = number(&node.input)?;
        let calls = fields(&node.schema).skip(node.input.schema().fields().len());
        let schema = followed_by(input.schema(), calls)?;
        return mark_last(extension(WindowAggregate { input, schema, ..node.clone() }));
    }
    if trace::last_join(plan).is_some() {
        return mark_last(number_joins(plan)?);
    }
    let inputs = plan.inputs().into_iter().map(number).collect::<PlanResult<_>>()?;
    let exprs: Vec<Expr> = plan.expressions();
    mark_last(plan.with_new_exprs(exprs, inputs)?)
}

/// Passes the number through a chain of LAST JOINs, behind the columns of its left-most input. It is
/// moved to the end once for the chain: a projection of all columns at each join would make the plan
/// quadratic.
fn number_joins(plan: &LogicalPlan) -> PlanResult<LogicalPlan> {
    let Some(node) = trace::last_join(plan) else { return number(plan) };
    let left = number_joins(&node.left)?;
    let right = fields(&node.schema).skip(node.left.schema().fields().len());
    let schema = followed_by(left.schema(), right)?;
    Ok(extension(LastJoin { left, schema, ..node.clone() }))
}

/// Numbers the rows of a scan: a window counts the rows up to each one.
pub(crate) fn number_scan(scan: &LogicalPlan) -> PlanResult<LogicalPlan> {
    let settings = Settings::default();
    let function = aggregate::find("count").expect("count is an aggregate");
    let arguments = CallArguments { types: &[], constants: &[], settings: &settings };
    let bound = (function.bind)(&arguments).expect("count takes nothing");
    let output = MARK.to_owned();
    let call = AggregateCall { function, bound, arguments: Vec::new(), settings, output };
    let window = Window {
        partition_by: Vec::new(),
        order_by: None,
        frame: Frame::Rows { from: None, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    let field = (None, Arc::new(Field::new(MARK, ArrowType::Int64, true)));
    Ok(extension(WindowAggregate {
        input: scan.clone(),
        unions: Vec::new(),
        groups: vec![WindowGroup { window, unions: Vec::new(), calls: vec![call] }],
        schema: followed_by(scan.schema(), [field])?,
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::{
        common::tree_node::{TreeNode, TreeNodeRecursion},
        logical_expr::LogicalPlan,
    };

    use super::{MARK, with_row_numbers};
    use crate::testing::{TestDatabase, column, last_join};

    #[test]
    fn the_number_is_moved_once_for_a_chain_of_joins() {
        let database = TestDatabase::new(&[Vec::new()]);
        let plan = (1..20).fold(database.scan(0), |left, at| {
            let right = database.scan_as(0, &format!("t{at}"));
            last_join(left, right, vec![(column(0, "k"), column(at, "k"))], |_| {})
        });
        let numbered = with_row_numbers(&plan).unwrap();
        let (mut joins, mut projections) = (0, 0);
        let count = |node: &LogicalPlan| {
            joins += usize::from(crate::trace::last_join(node).is_some());
            projections += usize::from(matches!(node, LogicalPlan::Projection(_)));
            Ok(TreeNodeRecursion::Continue)
        };
        numbered.apply(count).unwrap();
        assert_eq!((joins, projections), (19, 1), "{numbered}");
        let columns = numbered.schema().columns();
        assert_eq!(columns.last().unwrap().name, MARK);
        assert_eq!(columns[..columns.len() - 1], plan.schema().columns());
    }
}
