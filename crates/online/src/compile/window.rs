//! Compiles windows: which groups share a scan, and which calls share an accumulator.

use std::sync::Arc;

use datafusion::logical_expr::Expr;
use lockstep_diagnostic::Result;
use lockstep_plan::{AggregateCall, Frame, WindowAggregate, WindowGroup};

use super::{Compiler, Draft, source::SourceSpec};
use crate::{
    chain::Step,
    frame::{BoundExpr, Place},
    trace::{self, Role},
    window::{Call, Group, Scan, ScanSource},
};

/// A group and the slots of its calls; calls that nobody reads have none.
struct Wanted<'c> {
    group: &'c WindowGroup,
    slots: Vec<Option<usize>>,
}

/// The arguments of a scan's calls, equal lists once.
#[derive(Default)]
struct Arguments<'c> {
    exprs: Vec<&'c Expr>,
    lists: Vec<(&'c [Expr], usize)>,
}

impl Compiler<'_> {
    pub(super) fn windows(
        &mut self,
        node: &WindowAggregate,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
    ) -> Result<()> {
        let schema = node.input.schema();
        let (own, calls) = needed.split_at(schema.fields().len());
        let mut calls = calls.iter();
        let mut is_wanted = || calls.next().copied().unwrap_or(false);
        let wanted: Vec<Vec<bool>> = node
            .groups
            .iter()
            .map(|group| group.calls.iter().map(|_| is_wanted()).collect())
            .collect();
        let mut below = own.to_vec();
        for (group, wanted) in node.groups.iter().zip(&wanted) {
            mark_group(group, wanted, &mut |expr| {
                trace::mark_columns(expr, schema, &mut below);
            });
        }
        self.grow(&node.input, &below, role, draft)?;

        let mut new_slots = |wanted: Vec<bool>| -> Vec<Option<usize>> {
            wanted.into_iter().map(|is_wanted| is_wanted.then(|| draft.new_slot())).collect()
        };
        let groups: Vec<Wanted<'_>> = node
            .groups
            .iter()
            .zip(wanted)
            .map(|(group, wanted)| Wanted { group, slots: new_slots(wanted) })
            .collect();
        for sharing in share_scans(&groups) {
            let scan = self.scan(node, &sharing, role, &draft.layout)?;
            draft.steps.push(Step::Scan(Box::new(scan)));
        }
        let slots = groups.iter().flat_map(|wanted| &wanted.slots);
        draft.layout.extend(slots.map(|slot| slot.map_or(Place::Absent, Place::Slot)));
        Ok(())
    }

    fn scan(
        &mut self,
        node: &WindowAggregate,
        sharing: &[&Wanted<'_>],
        role: Role,
        layout: &[Place],
    ) -> Result<Scan> {
        let schema = node.input.schema();
        let WindowGroup { window, unions, .. } = sharing[0].group;
        let line = self.parts.explain.open();
        let mut arguments = Arguments::default();
        let (groups, calls) = groups(sharing, &mut arguments);
        let bind_arguments = |layout: &[Place]| -> Result<Vec<BoundExpr>> {
            arguments.exprs.iter().map(|expr| BoundExpr::bind(expr, schema, layout)).collect()
        };
        let mut needed = vec![false; schema.fields().len()];
        for expr in &arguments.exprs {
            trace::mark_columns(expr, schema, &mut needed);
        }
        // Rows of the request's own chain are history like the request row itself; below a union
        // source or a right side everything is another query.
        let main_role = if role == Role::Other { Role::Other } else { Role::History };
        let main = (!window.instance_not_in_window).then_some((&node.input, main_role));
        let unions = unions.iter().map(|union| (&node.unions[*union], Role::Other));
        let mut sources = Vec::new();
        for (position, (plan, role)) in main.into_iter().chain(unions).enumerate() {
            let (source, layout) = self.source(&SourceSpec {
                plan,
                role,
                schema,
                keys: window.partition_by.iter().collect(),
                order_by: window.order_by.as_ref(),
                needed: needed.clone(),
                has_request: false,
            })?;
            let is_main = position == 0 && main.is_some();
            sources.push(ScanSource { source, arguments: bind_arguments(&layout)?, is_main });
        }
        let keys = window.partition_by.iter();
        let keys = keys.map(|key| BoundExpr::bind(key, schema, layout)).collect::<Result<_>>()?;
        let order = window.order_by.as_ref();
        let order = order.map(|order| BoundExpr::bind(order, schema, layout)).transpose()?;
        let id = self.parts.scans.len();
        let calls: Arc<[Call]> = calls.into();
        self.parts.scans.push(Arc::clone(&calls));
        let text = format!("scan for {}", describe(sharing));
        self.parts.explain.close(line, text);
        let arguments = bind_arguments(layout)?;
        Ok(Scan { id, keys, order, arguments, sources, groups, calls })
    }
}

fn mark_group<'c>(group: &'c WindowGroup, wanted: &[bool], mark: &mut dyn FnMut(&'c Expr)) {
    if !wanted.contains(&true) {
        return;
    }
    group.window.partition_by.iter().chain(&group.window.order_by).for_each(&mut *mark);
    let calls = group.calls.iter().zip(wanted).filter(|(_, is_wanted)| **is_wanted);
    calls.flat_map(|(call, _)| &call.arguments).for_each(&mut *mark);
}

/// Puts the groups that walk through the same rows together, each longest frame first.
fn share_scans<'w, 'c>(groups: &'w [Wanted<'c>]) -> Vec<Vec<&'w Wanted<'c>>> {
    let mut scans: Vec<Vec<&Wanted<'_>>> = Vec::new();
    for wanted in groups.iter().filter(|wanted| wanted.slots.iter().any(Option::is_some)) {
        match scans.iter_mut().find(|scan| is_same_walk(scan[0].group, wanted.group)) {
            Some(scan) => scan.push(wanted),
            None => scans.push(vec![wanted]),
        }
    }
    for scan in &mut scans {
        scan.sort_by_key(|wanted| std::cmp::Reverse(reach(wanted.group.window.frame)));
    }
    scans
}

fn is_same_walk(left: &WindowGroup, right: &WindowGroup) -> bool {
    let (left_window, right_window) = (&left.window, &right.window);
    left.unions == right.unions
        && left_window.partition_by == right_window.partition_by
        && left_window.order_by == right_window.order_by
        && left_window.instance_not_in_window == right_window.instance_not_in_window
}

/// How far back a frame goes. Only compared to put long frames before short ones.
fn reach(frame: Frame) -> i128 {
    match frame {
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => i128::MAX,
        Frame::Rows { from: Some(from), .. } => i128::from(from),
        Frame::Range { from: Some(from), .. } => i128::from(from),
    }
}

/// The groups of a scan, and their accumulators.
fn groups<'c>(sharing: &[&Wanted<'c>], arguments: &mut Arguments<'c>) -> (Vec<Group>, Vec<Call>) {
    let mut groups = Vec::with_capacity(sharing.len());
    let mut calls: Vec<Call> = Vec::new();
    for wanted in sharing {
        let first = calls.len();
        let mut seen: Vec<&AggregateCall> = Vec::new();
        for (call, slot) in wanted.group.calls.iter().zip(&wanted.slots) {
            let Some(slot) = *slot else { continue };
            if let Some(same) = seen.iter().position(|other| computes_the_same(other, call)) {
                calls[first + same].outputs.push(slot);
                continue;
            }
            seen.push(call);
            calls.push(Call {
                name: call.function.name,
                make: Arc::clone(&call.bound.make),
                arguments: arguments.range(&call.arguments),
                outputs: vec![slot],
            });
        }
        // Calls that take the same arguments stand together and are fed together.
        calls[first..].sort_by_key(|call| call.arguments.start);
        let window = &wanted.group.window;
        groups.push(Group {
            frame: window.frame,
            max_size: window.max_size.unwrap_or(u64::MAX),
            excludes_current_time: window.exclude_current_time,
            excludes_current_row: window.exclude_current_row,
            calls: first..calls.len(),
        });
    }
    (groups, calls)
}

fn computes_the_same(left: &AggregateCall, right: &AggregateCall) -> bool {
    left.function.name == right.function.name
        && left.arguments == right.arguments
        && left.settings == right.settings
}

impl<'c> Arguments<'c> {
    /// Where the values of an argument list are.
    fn range(&mut self, list: &'c [Expr]) -> std::ops::Range<usize> {
        let found = self.lists.iter().find(|(seen, _)| *seen == list);
        let start = found.map_or(self.exprs.len(), |(_, start)| *start);
        if found.is_none() {
            self.lists.push((list, start));
            self.exprs.extend(list);
        }
        start..start + list.len()
    }
}

fn describe(sharing: &[&Wanted<'_>]) -> String {
    let windows: Vec<String> = sharing
        .iter()
        .map(|Wanted { group, slots }| {
            let calls = group.calls.iter().zip(slots).filter(|(_, slot)| slot.is_some());
            let calls: Vec<String> = calls.map(|(call, _)| call.to_string()).collect();
            format!("[{}] over ({})", calls.join(", "), group.window)
        })
        .collect();
    windows.join(", ")
}
