//! Column lineage: which stored column a column of a plan is a copy of, and which table its rows
//! come from.
//!
//! A column that is a copy of a stored one can be looked up by an index. The binder (which index a
//! LAST JOIN is ordered by), request mode, the lints and DEPLOY all ask here, so that they agree on
//! which index a query reads. Writers of training sets ask for the role of a column. Nothing here
//! changes a plan.

use std::collections::BTreeSet;

use datafusion::{
    common::{Column, DFSchema},
    logical_expr::{Expr, LogicalPlan},
};

use lockstep_function::scalar::feature_role::FeatureRole;
use lockstep_row::DataType;

use crate::{AggregateCall, CatalogTable, Frame, LastJoin, Window, WindowAggregate};

/// A column of a stored table, as one scan of a plan reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredColumn<'p> {
    /// The table.
    pub(crate) table: &'p CatalogTable,
    /// The name of the scan: a plan may read a table twice.
    pub(crate) scan: &'p str,
    /// The position of the column in the table.
    pub(crate) column: usize,
}

impl PartialEq for StoredColumn<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.scan, self.column) == (other.scan, other.column)
    }
}

/// The operators that a column is followed through, besides projections, filters, windows and the
/// left side of a LAST JOIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Every other operator that gives at most one row for each row of its one input.
    SingleInput,
    /// UNION, into each of its inputs.
    Unions,
}

/// Returns the position of the column that an expression names; `None` for any other expression.
pub fn column(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => column(&alias.expr, schema),
        Expr::Column(column) => schema.maybe_index_of_column(column),
        _ => None,
    }
}

/// Returns the column of the leaf table that a column of the plan's output is a copy of, when each
/// row of the leaf gives at most one row of the output. `None` for lists and maps, which no index
/// holds.
pub fn to_leaf(plan: &LogicalPlan, output: usize) -> Option<usize> {
    let copied = *follow(plan, output, Route::SingleInput)?.first()?;
    let data_type = &copied.table.schema.columns.get(copied.column)?.data_type;
    let is_nested = matches!(data_type, DataType::Array(_) | DataType::Map(..));
    (!is_nested).then_some(copied.column)
}

/// Returns the stored columns that a column of a plan is a copy of: one, or one for each input of a
/// UNION. `None` for a computed column.
pub(crate) fn stored_columns<'p>(
    plan: &'p LogicalPlan,
    column: &Column,
) -> Option<Vec<StoredColumn<'p>>> {
    follow(plan, plan.schema().maybe_index_of_column(column)?, Route::Unions)
}

/// Follows the output column at a position down to the scans that it is a copy of.
fn follow(plan: &LogicalPlan, output: usize, route: Route) -> Option<Vec<StoredColumn<'_>>> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let column = match &scan.projection {
                Some(projection) => projection.get(output).copied()?,
                None => output,
            };
            let table = CatalogTable::of(scan.source.as_ref())?;
            Some(vec![StoredColumn { table, scan: scan.table_name.table(), column }])
        }
        LogicalPlan::Projection(projection) => {
            let input = &projection.input;
            follow(input, column(projection.expr.get(output)?, input.schema())?, route)
        }
        LogicalPlan::Union(union) if route == Route::Unions => {
            debug_assert!(!union.inputs.is_empty(), "a union has inputs");
            let inputs = union.inputs.iter().map(|input| follow(input, output, route));
            Some(inputs.collect::<Option<Vec<_>>>()?.concat())
        }
        LogicalPlan::Filter(_) | LogicalPlan::Extension(_) => follow_input(plan, output, route),
        _ if route == Route::SingleInput => follow_input(plan, output, route),
        _ => None,
    }
}

/// Follows a column of a plan's input; `None` for a column that the plan itself adds.
fn follow_input(plan: &LogicalPlan, output: usize, route: Route) -> Option<Vec<StoredColumn<'_>>> {
    let input = main_input(plan)?;
    if output >= input.schema().fields().len() {
        return None;
    }
    follow(input, output, route)
}

/// Returns the roles of a plan's columns for a model, which signatures gave to whole items of select
/// lists: also those that are read through sub-queries, views and UNIONs.
pub(crate) fn roles(plan: &LogicalPlan) -> Vec<Option<FeatureRole>> {
    (0..plan.schema().fields().len()).map(|output| role(plan, output)).collect()
}

fn role(plan: &LogicalPlan, output: usize) -> Option<FeatureRole> {
    match plan {
        LogicalPlan::Projection(projection) => {
            role_of(projection.expr.get(output)?, &projection.input)
        }
        LogicalPlan::Union(union) => {
            let mut roles = union.inputs.iter().map(|input| role(input, output));
            let first = roles.next()??;
            roles.all(|other| other == Some(first)).then_some(first)
        }
        _ => {
            let input = main_input(plan)?;
            (output < input.schema().fields().len()).then(|| role(input, output))?
        }
    }
}

fn role_of(expr: &Expr, input: &LogicalPlan) -> Option<FeatureRole> {
    match expr {
        Expr::Alias(alias) => role_of(&alias.expr, input),
        Expr::Column(column) => role(input, input.schema().maybe_index_of_column(column)?),
        // What DISTINCT compares.
        Expr::ScalarFunction(call) if call.func.name() == "op_group_key" => {
            role_of(call.args.first()?, input)
        }
        Expr::ScalarFunction(call) => FeatureRole::of_call(call.func.name()),
        _ => None,
    }
}

/// Returns the columns of the leaf table whose values in the row itself an output column depends on:
/// those that its expression reads, and arguments of aggregates whose frame has the current row.
/// Conditions, keys and the right sides of joins do not count.
pub fn current_row_columns(plan: &LogicalPlan, output: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    collect_current(plan, output, &mut found);
    found
}

fn collect_current(plan: &LogicalPlan, output: usize, found: &mut BTreeSet<usize>) {
    if let LogicalPlan::TableScan(scan) = plan {
        let column = match &scan.projection {
            Some(projection) => projection.get(output).copied(),
            None => Some(output),
        };
        return found.extend(column);
    }
    if let LogicalPlan::Projection(node) = plan {
        return collect_reads(node.expr.get(output), &node.input, found);
    }
    let Some(input) = main_input(plan) else { return };
    match (output.checked_sub(input.schema().fields().len()), window(plan)) {
        (None, _) => collect_current(input, output, found),
        (Some(at), Some(windows)) => {
            let mut calls = windows
                .groups
                .iter()
                .flat_map(|group| group.calls.iter().map(|call| (&group.window, call)));
            if let Some((_, call)) = calls.nth(at).filter(|(w, call)| reads_current_row(w, call)) {
                collect_reads(&call.arguments, input, found);
            }
        }
        (Some(_), None) => {}
    }
}

fn collect_reads<'e>(
    exprs: impl IntoIterator<Item = &'e Expr>,
    input: &LogicalPlan,
    found: &mut BTreeSet<usize>,
) {
    let positions: BTreeSet<usize> = exprs
        .into_iter()
        .flat_map(Expr::column_refs)
        .filter_map(|column| input.schema().maybe_index_of_column(column))
        .collect();
    positions.into_iter().for_each(|position| collect_current(input, position, found));
}

/// Returns whether an aggregate over a window takes the values of the current row.
fn reads_current_row(window: &Window, call: &AggregateCall) -> bool {
    let is_in_frame = match window.frame {
        Frame::Rows { to, .. } => to == 0,
        Frame::Range { to, .. } => to <= 0,
    };
    is_in_frame && !window.exclude_current_row && call.function.name != "lag"
}

/// Returns the table that a plan's rows begin in, when each row of it gives at most one row.
pub fn leaf_table(plan: &LogicalPlan) -> Option<&CatalogTable> {
    match plan {
        LogicalPlan::TableScan(scan) => CatalogTable::of(scan.source.as_ref()),
        _ => leaf_table(main_input(plan)?),
    }
}

/// Returns the leftmost table of a plan, whatever operators are above it.
pub fn leftmost_table(plan: &LogicalPlan) -> Option<&CatalogTable> {
    match plan {
        LogicalPlan::TableScan(scan) => CatalogTable::of(scan.source.as_ref()),
        _ => plan.inputs().into_iter().next().and_then(leftmost_table),
    }
}

/// Returns the input whose rows become the plan's, each at most one.
fn main_input(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(node) => Some(&node.input),
        LogicalPlan::SubqueryAlias(node) => Some(&node.input),
        LogicalPlan::Filter(node) => Some(&node.input),
        LogicalPlan::Sort(node) => Some(&node.input),
        LogicalPlan::Limit(node) => Some(&node.input),
        LogicalPlan::Distinct(node) => Some(node.input()),
        LogicalPlan::Extension(_) => match (window(plan), last_join(plan)) {
            (Some(window), _) => Some(&window.input),
            (_, Some(join)) => Some(&join.left),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the plan's topmost node if it is windows.
pub fn window(plan: &LogicalPlan) -> Option<&WindowAggregate> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref()
}

/// Returns the plan's topmost node if it is a LAST JOIN.
pub fn last_join(plan: &LogicalPlan) -> Option<&LastJoin> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref()
}
