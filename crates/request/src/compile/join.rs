//! Compiles LAST JOINs.

use lockstep_diagnostic::Result;
use lockstep_plan::LastJoin;

use super::{
    ChainBuilder, Compiler,
    source::{SourceSpec, Unordered},
};
use crate::{
    chain::ChainStep,
    join::{JoinOutput, JoinStep, TimeUpperBound},
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    trace::{self, ChainRole},
};

impl Compiler<'_> {
    /// Adds the step of a LAST JOIN to a chain.
    pub(super) fn last_join(
        &mut self,
        node: &LastJoin,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        let (left, right) = (node.left.schema(), node.right.schema());
        let left_width = left.fields().len();
        let right_width = right.fields().len();
        let outputs_needed = &needed[left_width..];
        if !outputs_needed.contains(&true) {
            // The join neither adds nor removes rows.
            self.add_steps(&node.left, &needed[..left_width], role, builder)?;
            builder.locations.extend(std::iter::repeat_n(ValueLocation::Absent, right_width));
            return Ok(());
        }
        let mut read = needed.to_vec();
        if let Some(filter) = &node.filter {
            trace::mark_columns(filter, &node.schema, &mut read);
        }
        let (left_read, right_read) = read.split_at_mut(left_width);
        let left_keys = node.keys.iter().map(|(left, _)| left);
        let bound = node.time_bound.as_ref().map(|bound| &bound.left);
        for expr in left_keys.chain(bound) {
            trace::mark_columns(expr, left, left_read);
        }
        self.add_steps(&node.left, left_read, role, builder)?;
        let step = self.join_step(node, outputs_needed, right_read.to_vec(), role, builder)?;
        let mut locations = vec![ValueLocation::Absent; right_width];
        let mut outputs = step.outputs.iter();
        for (location, _) in
            locations.iter_mut().zip(outputs_needed).filter(|(_, is_needed)| **is_needed)
        {
            let output = outputs.next().expect("each needed column has an output");
            *location = ValueLocation::Slot(output.slot);
        }
        builder.steps.push(ChainStep::Join(Box::new(step)));
        builder.locations.extend(locations);
        Ok(())
    }

    /// Compiles the step. `outputs_needed` are the columns of the right side that are read above the
    /// join, `right_needed` also those that its condition reads.
    fn join_step(
        &mut self,
        node: &LastJoin,
        outputs_needed: &[bool],
        right_needed: Vec<bool>,
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<JoinStep> {
        let line = self.resources.explain.open();
        let read_count_before = self.resources.request_read_count;
        let right = self.source(&SourceSpec {
            plan: &node.right,
            role: ChainRole::Other,
            schema: node.right.schema(),
            keys: node.keys.iter().map(|(_, right)| right).collect(),
            order_by: node.order_by.as_ref(),
            needed: right_needed,
            unordered: Unordered::Alike,
            may_have_request: true,
        })?;
        self.resources.explain.close(line, describe(node));
        let left = builder.layout(node.left.schema());
        let keys = left.bind_all(node.keys.iter().map(|(left, _)| left))?;
        let time_bound = match &node.time_bound {
            Some(bound) => Some(TimeUpperBound {
                left: BoundExpr::bind(&bound.left, left)?,
                is_inclusive: bound.inclusive,
            }),
            None => None,
        };
        let filter = match &node.filter {
            Some(filter) => {
                let of_right = right.locations.iter().map(|location| location.on_the_right());
                let pair: Vec<ValueLocation> =
                    builder.locations.iter().copied().chain(of_right).collect();
                Some(BoundExpr::bind(filter, ColumnLayout::new(&node.schema, &pair))?)
            }
            None => None,
        };
        let outputs = right.locations.iter().zip(outputs_needed).filter(|(_, needed)| **needed);
        let outputs =
            outputs.map(|(right, _)| JoinOutput { slot: builder.new_slot(), right: *right });
        let outputs = outputs.collect();
        // A condition may read any column of the left row.
        let shared =
            if filter.is_none() { self.shared_step(role, read_count_before) } else { None };
        Ok(JoinStep { keys, right: right.source, time_bound, filter, outputs, shared })
    }
}

fn describe(node: &LastJoin) -> String {
    let keys: Vec<String> =
        node.keys.iter().map(|(left, right)| format!("{left} = {right}")).collect();
    let mut text = format!("last join on [{}]", keys.join(", "));
    if let Some(order_by) = &node.order_by {
        text.push_str(&format!(" order by {order_by}"));
    }
    if let Some(filter) = &node.filter {
        text.push_str(&format!(" filter {filter}"));
    }
    text
}
