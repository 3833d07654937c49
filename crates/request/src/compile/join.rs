//! Compiles LAST JOINs.

use lockstep_diagnostic::Result;
use lockstep_plan::LastJoin;

use super::{Compiler, Draft, source::SourceSpec};
use crate::{
    chain::Step,
    frame::{BoundExpr, Place},
    join::{JoinStep, UpperEnd},
    trace::{self, Role},
};

impl Compiler<'_> {
    pub(super) fn last_join(
        &mut self,
        node: &LastJoin,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
    ) -> Result<()> {
        let (left, right) = (node.left.schema(), node.right.schema());
        let left_width = left.fields().len();
        let right_width = right.fields().len();
        let wanted = &needed[left_width..];
        if !wanted.contains(&true) {
            // The join neither adds nor takes away rows.
            self.grow(&node.left, &needed[..left_width], role, draft)?;
            draft.layout.extend(std::iter::repeat_n(Place::Absent, right_width));
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
        self.grow(&node.left, left_read, role, draft)?;
        let step = self.join_step(node, wanted, right_read.to_vec(), (role, draft))?;
        let mut places = vec![Place::Absent; right_width];
        let mut outputs = step.outputs.iter();
        for (place, _) in places.iter_mut().zip(wanted).filter(|(_, is_wanted)| **is_wanted) {
            let (slot, _) = outputs.next().expect("each wanted column has an output");
            *place = Place::Slot(*slot);
        }
        draft.steps.push(Step::Join(Box::new(step)));
        draft.layout.extend(places);
        Ok(())
    }

    fn join_step(
        &mut self,
        node: &LastJoin,
        wanted: &[bool],
        needed: Vec<bool>,
        (role, draft): (Role, &mut Draft),
    ) -> Result<JoinStep> {
        let line = self.parts.explain.open();
        let seen_before = self.parts.requests_seen;
        let (right, right_layout) = self.source(&SourceSpec {
            plan: &node.right,
            role: Role::Other,
            schema: node.right.schema(),
            keys: node.keys.iter().map(|(_, right)| right).collect(),
            order_by: node.order_by.as_ref(),
            needed,
            may_hold_request: true,
        })?;
        self.parts.explain.close(line, describe(node));
        let left_schema = node.left.schema();
        let keys = node.keys.iter();
        let keys = keys.map(|(left, _)| BoundExpr::bind(left, left_schema, &draft.layout));
        let keys = keys.collect::<Result<_>>()?;
        let time_bound = match &node.time_bound {
            Some(bound) => Some(UpperEnd {
                left: BoundExpr::bind(&bound.left, left_schema, &draft.layout)?,
                is_inclusive: bound.inclusive,
            }),
            None => None,
        };
        let filter = match &node.filter {
            Some(filter) => {
                let right_places = right_layout.iter().map(|place| place.on_the_right());
                let places: Vec<Place> = draft.layout.iter().copied().chain(right_places).collect();
                Some(BoundExpr::bind(filter, &node.schema, &places)?)
            }
            None => None,
        };
        let outputs = right_layout.iter().zip(wanted).filter(|(_, is_wanted)| **is_wanted);
        let outputs = outputs.map(|(place, _)| (draft.new_slot(), *place)).collect();
        // A condition may be about anything of the left row.
        let shared = if filter.is_none() { self.shared_step(role, seen_before) } else { None };
        Ok(JoinStep { keys, right, time_bound, filter, outputs, shared })
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
