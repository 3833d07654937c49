//! Compiles GROUP BY on the way of the request row: its group is a window without an order.
//!
//! The rows of the group are the history with the same keys, and the request row; batch mode feeds
//! an aggregate the rows of a group as they arrived, which is what such a window does too.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::{
    common::DFSchema,
    logical_expr::{Aggregate, Expr},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Settings, udf::as_aggregate};
use lockstep_plan::{AggregateCall, Frame, Window, WindowAggregate, WindowGroup};

use super::{Compiler, Draft};
use crate::{
    chain::Step,
    frame::{BoundExpr, Place},
    trace::{self, Role},
};

impl Compiler<'_> {
    pub(super) fn group(
        &mut self,
        node: &Aggregate,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
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
        self.made.push(Arc::clone(&windows));
        self.windows(&windows, &below, role, draft)?;
        let (rows, aggregates) = draft.layout.split_at(width);
        let (rows, aggregates) = (rows.to_vec(), aggregates.to_vec());
        let mut layout = Vec::with_capacity(needed.len());
        for (key, is_needed) in node.group_expr.iter().zip(keys) {
            layout.push(if *is_needed {
                match BoundExpr::bind(key, input, &rows)? {
                    BoundExpr::Place(place) => place,
                    expr @ BoundExpr::Computed { .. } => {
                        let slot = draft.new_slot();
                        draft.steps.push(Step::Compute { slot, expr });
                        Place::Slot(slot)
                    }
                }
            } else {
                Place::Absent
            });
        }
        layout.extend(aggregates);
        draft.layout = layout;
        Ok(())
    }
}

/// The node as a window over its input.
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
    let ours = match expr {
        Expr::AggregateFunction(call) => as_aggregate(&call.func).map(|ours| (call, ours)),
        _ => None,
    };
    let Some((call, ours)) = ours else {
        return Diagnostic::internal(format!("`{expr}` is not an aggregate of ours")).err();
    };
    let bound = ours.bound().clone();
    // `count(*)` is given a constant to count in a plan, and nothing in a window.
    let arguments = match bound.parameters.len() {
        0 => Vec::new(),
        _ => call.params.args.clone(),
    };
    Ok(AggregateCall {
        function: ours.function(),
        bound,
        arguments,
        // Two calls of one function with the same arguments differ at most in their settings,
        // which a query has but once.
        settings: Settings::default(),
        output: format!("__aggregate_{position}"),
    })
}
