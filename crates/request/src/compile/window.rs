//! Compiles windows: which groups share a scan.

use std::sync::Arc;

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_diagnostic::{Result, code};
use lockstep_plan::{Frame, Window, WindowAggregate, WindowGroup};
use lockstep_row::{IndexSpec, RowCodec};
use lockstep_table::{Inclusion, IndexNeed, Provision};

use super::{Compiler, Draft, History, fold::Folded, source::SourceSpec};
use crate::{
    chain::{LeafKind, Step},
    frame::{BoundExpr, Place},
    lane::RecordInput,
    progress::Group,
    source::Source,
    trace::{self, Role},
    window::{GROUPS_MAX, Scan, ScanSource},
};

/// A group and the slots of its calls; calls that nobody reads have none.
pub(super) struct Wanted<'c> {
    pub(super) group: &'c WindowGroup,
    pub(super) slots: Vec<Option<usize>>,
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
        let folded = Folded::new(sharing, self.options);
        let mut needed = vec![false; schema.fields().len()];
        for expr in folded.exprs() {
            trace::mark_columns(expr, schema, &mut needed);
        }
        // Rows of the request's own chain are history like the request row itself; below a union
        // source or a right side everything is another query.
        let main_role = if role == Role::Other { Role::Other } else { Role::History };
        let main = (!window.instance_not_in_window).then_some((&node.input, main_role));
        let unions = unions.iter().map(|union| (&node.unions[*union], Role::Other));
        let seen_before = self.parts.requests_seen;
        let (history, comes_later) = (self.history, self.request_comes_later(node, window, role));
        let mut sources = Vec::new();
        for (position, (plan, source_role)) in main.into_iter().chain(unions).enumerate() {
            let is_main = position == 0 && main.is_some();
            self.history = match role {
                Role::Request if is_main => self.history_of(node, window),
                Role::History if is_main && comes_later => history,
                Role::Request | Role::History | Role::Other => History::Mixed,
            };
            let (source, layout) = self.source(&SourceSpec {
                plan,
                role: source_role,
                schema,
                keys: window.partition_by.iter().collect(),
                order_by: window.order_by.as_ref(),
                needed: needed.clone(),
                may_hold_request: !(is_main && comes_later),
            })?;
            let request = source.request.as_ref();
            let request = request.map(|_| folded.current_inputs(schema, &layout)).transpose()?;
            let mut inputs = folded.source_inputs(schema, &layout, self.codec(&source).as_ref())?;
            inputs.include(self.records(&folded, &source, (schema, &layout), sharing)?);
            sources.push(ScanSource { source, inputs, request, is_main });
        }
        self.history = history;
        let keys = window.partition_by.iter();
        let keys = keys.map(|key| BoundExpr::bind(key, schema, layout)).collect::<Result<_>>()?;
        let order = window.order_by.as_ref();
        let order = order.map(|order| BoundExpr::bind(order, schema, layout)).transpose()?;
        let id = self.parts.scans.len();
        let inputs = folded.current_inputs(schema, layout)?;
        let line_of_states = self.parts.explain.open();
        let mut states = folded.folding.to_string();
        let by_machine = sources.first().map_or(0, ScanSource::machine_values);
        if by_machine > 0 {
            let values = if by_machine == 1 { "value" } else { "values" };
            states += &format!("; {by_machine} {values} by machine code");
        }
        let included = sources.iter().filter(|source| !source.inputs.records.is_empty()).count();
        if included > 0 && included == sources.len() {
            states += "; from the columns that the index includes";
        } else if included > 0 {
            states += &format!("; {included} of {} sources from", sources.len());
            states += " the columns that the index includes";
        }
        self.parts.explain.close(line_of_states, states);
        let folding = Arc::new(folded.folding);
        self.parts.scans.push(Arc::clone(&folding));
        let text = format!("scan for {}", describe(sharing));
        self.parts.explain.close(line, text);
        let groups: Vec<Group> = sharing.iter().map(|wanted| group(&wanted.group.window)).collect();
        let bits = (0..).zip(&groups).filter(|(_, group)| group.has_current_row());
        let with_current_row = bits.fold(0, |all, (at, _): (u32, _)| all | 1 << at);
        let shared = self.shared_step(role, seen_before);
        Ok(Scan { id, keys, order, inputs, sources, groups, with_current_row, folding, shared })
    }

    /// What the history of a window is ordered by.
    fn history_of(&self, node: &WindowAggregate, window: &Window) -> History {
        let Some(order_by) = &window.order_by else { return History::Ordered(None) };
        let column = trace::column(order_by, node.input.schema());
        match column.and_then(|column| trace::to_leaf(&node.input, column)) {
            Some(column) => History::Ordered(Some(column)),
            None => History::Mixed,
        }
    }

    /// Whether the request row comes after every row that such a window is computed for, so that it
    /// is in no history of theirs.
    fn request_comes_later(&self, node: &WindowAggregate, window: &Window, role: Role) -> bool {
        match role {
            Role::Request => true,
            Role::History => {
                self.history != History::Mixed && self.history == self.history_of(node, window)
            }
            Role::Other => false,
        }
    }

    /// How the lanes of a scan are served by what the index of a source includes, which is made to
    /// include what they read when this is for a deployment. Empty when they are not. What they
    /// read is held.
    fn records(
        &mut self,
        folded: &Folded<'_>,
        source: &Source,
        (schema, layout): (&DFSchema, &[Place]),
        sharing: &[&Wanted<'_>],
    ) -> Result<Vec<RecordInput>> {
        let (LeafKind::Table(table), Some(index), Some(codec)) =
            (source.chain.leaf, source.run_index(), self.codec(source))
        else {
            return Ok(Vec::new());
        };
        let Some(columns) = folded.included(schema, layout) else { return Ok(Vec::new()) };
        let held = Arc::clone(&self.parts.tables[table].1);
        let IndexSpec { keys, event_time, .. } = held.schema().indexes[index].clone();
        let need = IndexNeed { keys, event_time, retention: None, columns };
        let is_wanted =
            self.options.includes && sharing.iter().any(|wanted| is_long(&wanted.group.window));
        let is_there =
            || matches!(held.find_for(&need), Provision::Existing { includes_more: false, .. });
        if !is_wanted && !is_there() {
            return Ok(Vec::new());
        }
        let hold = match self.hold(table, &need) {
            Ok(hold) => &self.parts.holds[hold],
            // It would take too much: then the rows are read.
            Err(error) if error.code == code::OUT_OF_MEMORY => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        assert_eq!(hold.index(), index, "the source holds the index over these columns");
        let snapshot = held.snapshot();
        Ok(match (hold.inclusion(), snapshot.projection(index)) {
            (Inclusion::Included, Some(projection)) => {
                folded.records(schema, layout, (projection, &codec))
            }
            _ => Vec::new(),
        })
    }

    /// The codec of the rows that a source finds, when they are rows of a table.
    fn codec(&self, source: &Source) -> Option<RowCodec> {
        let LeafKind::Table(table) = source.chain.leaf else { return None };
        Some(RowCodec::new(&self.parts.tables[table].0.schema))
    }
}

fn group(window: &Window) -> Group {
    Group {
        frame: window.frame,
        max_size: window.max_size.unwrap_or(u64::MAX),
        excludes_current_time: window.exclude_current_time,
        excludes_current_row: window.exclude_current_row,
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
        let has_room = |scan: &[&Wanted<'_>]| scan.len() < GROUPS_MAX;
        let shares = |scan: &&mut Vec<&Wanted<'_>>| {
            has_room(scan) && is_same_walk(scan[0].group, wanted.group)
        };
        match scans.iter_mut().find(shares) {
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

/// Frames of fewer rows are read as fast from the rows.
const LONG_ROWS: u64 = 32;

/// Whether a window may hold so many rows that it is worth a copy of what it reads.
fn is_long(window: &Window) -> bool {
    let rows = match window.frame {
        Frame::Rows { from: Some(from), .. } => from,
        Frame::Rows { from: None, .. } | Frame::Range { .. } => u64::MAX,
    };
    rows.min(window.max_size.unwrap_or(u64::MAX)) >= LONG_ROWS
}

/// How far back a frame goes. Only compared to put long frames before short ones.
fn reach(frame: Frame) -> i128 {
    match frame {
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => i128::MAX,
        Frame::Rows { from: Some(from), .. } => i128::from(from),
        Frame::Range { from: Some(from), .. } => i128::from(from),
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
