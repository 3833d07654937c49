//! Compiles GROUP BY in the chain of the request row: its group is a window without an order.
//!
//! The rows of the group are the history with the same keys, and the request row. Batch mode gives an
//! aggregate the rows of a group in order of arrival, as such a window does.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::{
    common::DFSchema,
    logical_expr::{Aggregate, Expr},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Settings, udf::as_aggregate};
use lockstep_plan::{AggregateCall, Frame, Window, WindowAggregate, WindowGroup};

use super::{ChainBuilder, Compiler};
use crate::{
    chain::ChainStep,
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    trace::{self, ChainRole},
};

impl Compiler<'_> {
    /// Adds the steps of a GROUP BY to a chain.
    pub(super) fn group(
        &mut self,
        node: &Aggregate,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        let input = node.input.schema();
        let width = input.fields().len();
        let (keys, calls) = needed.split_at(node.group_expr.len());
        let mut below = vec![false; width];
        for (key, _) in node.group_expr.iter().zip(keys).filter(|(_, is_needed)| **is_needed) {
            trace::mark_columns(key, input, &mut below);
        }
        below.extend(calls);
        let windows = Arc::new(as_windows(node)?);
        self.rewritten.push(Arc::clone(&windows));
        self.windows(&windows, &below, role, builder)?;
        let (rows, aggregates) = builder.locations.split_at(width);
        let (rows, aggregates) = (rows.to_vec(), aggregates.to_vec());
        let rows = ColumnLayout::new(input, &rows);
        let mut locations = Vec::with_capacity(needed.len());
        for (key, is_needed) in node.group_expr.iter().zip(keys) {
            locations.push(if *is_needed {
                match BoundExpr::bind(key, rows)? {
                    BoundExpr::Column(location) => location,
                    expr @ BoundExpr::Computed { .. } => {
                        let slot = builder.new_slot();
                        builder.steps.push(ChainStep::Compute { slot, expr });
                        ValueLocation::Slot(slot)
                    }
                }
            } else {
                ValueLocation::Absent
            });
        }
        locations.extend(aggregates);
        builder.locations = locations;
        Ok(())
    }
}

/// Rewrites the node to a window over its input.
fn as_windows(node: &Aggregate) -> Result<WindowAggregate> {
    let calls = node.aggr_expr.iter().enumerate().map(|(position, expr)| call(expr, position));
    let calls = calls.collect::<Result<Vec<_>>>()?;
    let input = node.input.schema().iter();
    let input = input.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
    let outputs = node.schema.iter().skip(node.group_expr.len());
    let outputs = calls.iter().zip(outputs).map(|(call, (_, field))| {
        (None, Arc::new(Field::new(&call.output, field.data_type().clone(), true)))
    });
    let schema = DFSchema::new_with_metadata(input.chain(outputs).collect(), [].into())
        .map_err(|error| Diagnostic::internal(error.to_string()))?;
    let window = Window {
        partition_by: node.group_expr.clone(),
        order_by: None,
        frame: Frame::Rows { from: None, to: 0 },
        ahead: None,
        max_size: None,
        exclude_current_time: false,
        exclude_current_row: false,
        instance_not_in_window: false,
    };
    Ok(WindowAggregate {
        input: node.input.as_ref().clone(),
        unions: Vec::new(),
        groups: vec![WindowGroup { window, unions: Vec::new(), calls }],
        schema: Arc::new(schema),
    })
}

fn call(expr: &Expr, position: usize) -> Result<AggregateCall> {
    let found = match expr {
        Expr::AggregateFunction(call) => as_aggregate(&call.func).map(|udf| (call, udf)),
        _ => None,
    };
    let Some((call, udf)) = found else {
        let message = format!("`{expr}` is not an aggregate function of Lockstep");
        return Diagnostic::internal(message).err();
    };
    let bound = udf.bound().clone();
    // In a plan `count(*)` has a constant as its argument, in a window it has none.
    let arguments = match bound.parameters.len() {
        0 => Vec::new(),
        _ => call.params.args.clone(),
    };
    Ok(AggregateCall {
        function: udf.function(),
        bound,
        arguments,
        // Settings tell calls of the same function with the same arguments apart; a query has one
        // value of each setting, so they do not matter here.
        settings: Settings::default(),
        output: format!("__aggregate_{position}"),
    })
}
