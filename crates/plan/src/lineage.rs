//! Where the columns of a plan come from: pure questions about plans.
//!
//! A column that is a mere copy of a stored one can be looked up by an index. Request mode, batch
//! mode and DEPLOY ask here, so that they agree on which index a query reads.

use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, LogicalPlan},
};

use lockstep_row::DataType;

use crate::{CatalogTable, LastJoin, WindowAggregate};

/// The column that an expression merely names, by position.
pub fn column(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => column(&alias.expr, schema),
        Expr::Column(column) => schema.maybe_index_of_column(column),
        _ => None,
    }
}

/// The column of the leaf table that a column of the plan's output is a copy of, when each row of
/// the leaf gives at most one row of the output. `None` for lists and maps, which no index holds.
pub fn to_leaf(plan: &LogicalPlan, output: usize) -> Option<usize> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let column = match &scan.projection {
                Some(projection) => projection.get(output).copied()?,
                None => output,
            };
            let table = CatalogTable::of(scan.source.as_ref())?;
            let data_type = &table.schema.columns.get(column)?.data_type;
            let is_nested = matches!(data_type, DataType::Array(_) | DataType::Map(..));
            (!is_nested).then_some(column)
        }
        LogicalPlan::Projection(projection) => {
            let input = &projection.input;
            to_leaf(input, column(projection.expr.get(output)?, input.schema())?)
        }
        LogicalPlan::Extension(_) => {
            let input = main_input(plan)?;
            (output < input.schema().fields().len()).then(|| to_leaf(input, output)).flatten()
        }
        _ => to_leaf(main_input(plan)?, output),
    }
}

/// The table a plan's rows begin in, when there is one.
pub fn leaf_table(plan: &LogicalPlan) -> Option<&CatalogTable> {
    match plan {
        LogicalPlan::TableScan(scan) => CatalogTable::of(scan.source.as_ref()),
        _ => leaf_table(main_input(plan)?),
    }
}

/// The input whose rows become the plan's, each at most one.
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

/// The node as windows.
pub fn window(plan: &LogicalPlan) -> Option<&WindowAggregate> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref()
}

/// The node as a LAST JOIN.
pub fn last_join(plan: &LogicalPlan) -> Option<&LastJoin> {
    let LogicalPlan::Extension(extension) = plan else { return None };
    extension.node.as_any().downcast_ref()
}
