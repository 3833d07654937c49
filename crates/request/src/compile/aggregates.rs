//! Compiles the calls of a scan: which lanes there are, and which calls share a state.

use std::{collections::HashMap, ops::Range, sync::Arc};

use datafusion::logical_expr::Expr;
use lockstep_function::aggregate::fold::{Fold, StateKind};
use lockstep_plan::{AggregateCall, Frame, Window};
use lockstep_row::DataType;

use super::window::GroupSlots;
use crate::{
    accumulators::{AccumulatorCall, CallOutput},
    aggregates::{RowPick, ScanAggregates, StateOutput},
    groups::GroupSet,
    lane::{LaneClass, LaneState, ScanLane},
    program::CompileOptions,
};

/// What a scan computes, and the expressions that it reads, which [`super::inputs`] binds for each
/// source.
#[derive(Default)]
pub(super) struct AggregatesBuilder<'c> {
    pub(super) aggregates: ScanAggregates,
    /// Whether lanes may be machine code.
    pub(super) machine_code: bool,
    /// The value of each lane; `None` where rows are counted.
    pub(super) values: Vec<Option<&'c Expr>>,
    pub(super) conditions: Vec<&'c Expr>,
    pub(super) picks: Vec<&'c Expr>,
    /// The arguments of the calls with accumulators, equal lists once.
    pub(super) arguments: Vec<&'c Expr>,
    argument_lists: Vec<ArgumentList<'c>>,
    lane_of: HashMap<LaneKey<'c>, usize>,
    /// The calls with accumulators; parallel to those of the aggregates until these are sorted.
    accumulated: Vec<AccumulatedCall<'c>>,
    /// For each state the first of the groups that share it; see [`GroupPosition::first`].
    first_of_state: Vec<usize>,
}

/// The position of a window group in the scan.
#[derive(Clone, Copy)]
struct GroupPosition {
    group: usize,
    /// The first group whose frame begins at the same row. Groups share states if this is equal.
    first: usize,
}

impl GroupPosition {
    fn as_set(self) -> GroupSet {
        GroupSet::of(self.group)
    }
}

/// A list of arguments and where it begins among all arguments.
struct ArgumentList<'c> {
    exprs: &'c [Expr],
    start: usize,
}

/// A call that has an accumulator, and the first of the groups that share it.
struct AccumulatedCall<'c> {
    call: &'c AggregateCall,
    first: usize,
}

/// What makes two lanes the same.
#[derive(PartialEq, Eq, Hash)]
struct LaneKey<'c> {
    value: Option<&'c Expr>,
    condition: Option<usize>,
    skips_zeros: bool,
}

impl<'c> AggregatesBuilder<'c> {
    /// Compiles the calls of the groups of a scan.
    pub(super) fn new(sharing: &[&GroupSlots<'c>], options: CompileOptions) -> Self {
        let mut builder = Self { machine_code: options.machine_code, ..Self::default() };
        let window = |slots: &GroupSlots<'c>| &slots.group.window;
        let first_of = |slots: &GroupSlots<'c>| {
            let mut others = sharing.iter();
            let first = others.position(|other| begin_together(window(other), window(slots)));
            first.expect("a window begins at the same row as itself")
        };
        let mut same_start = vec![GroupSet::NONE; sharing.len()];
        for (group, group_slots) in sharing.iter().enumerate() {
            let position = GroupPosition { group, first: first_of(group_slots) };
            same_start[position.first] |= position.as_set();
            for (call, slot) in group_slots.group.calls.iter().zip(&group_slots.slots) {
                let Some(slot) = *slot else { continue };
                match &call.bound.fold {
                    Some(fold) if options.folds => builder.add_fold(position, call, fold, slot),
                    _ => builder.add_accumulator(position, call, slot),
                }
            }
        }
        same_start.retain(|groups| groups.len() > 1);
        builder.aggregates.same_start = same_start;
        // Calls with the same arguments follow each other, so that these are evaluated once.
        builder.aggregates.calls.sort_by_key(|call| call.arguments.start);
        builder.sort_by_condition();
        builder
    }

    /// Returns every expression that is read of a row.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &'c Expr> {
        let values = self.values.iter().flatten();
        values.chain(&self.conditions).chain(&self.picks).chain(&self.arguments).copied()
    }

    /// Adds a call whose aggregate has a fold.
    fn add_fold(
        &mut self,
        position: GroupPosition,
        call: &'c AggregateCall,
        fold: &Fold,
        slot: usize,
    ) {
        let value = fold.value.map(|argument| &call.arguments[argument]);
        let state = match value {
            Some(value) if fold.state.picks() => self.pick(position, value, fold.state),
            _ => {
                let data_type = fold.value.map(|argument| &call.bound.parameters[argument]);
                let class = match data_type {
                    Some(data_type) if fold.state != StateKind::Count => class_of(data_type),
                    _ => LaneClass::Rows,
                };
                let lane = self.lane(call, fold, class);
                self.state(position, lane, fold.state)
            }
        };
        let (group, answer) = (position.group, fold.answer.clone());
        self.aggregates.outputs.push(StateOutput { group, state, answer, slot });
    }

    /// Finds or adds the lane that a fold reads.
    fn lane(&mut self, call: &'c AggregateCall, fold: &Fold, class: LaneClass) -> usize {
        let value = fold.value.map(|argument| &call.arguments[argument]);
        let condition = fold
            .condition
            .map(|condition| position(&mut self.conditions, &call.arguments[condition.argument]));
        let skips_zeros = fold.condition.is_some_and(|condition| condition.excludes_zero);
        let next = self.values.len();
        let key = LaneKey { value, condition, skips_zeros };
        let at = *self.lane_of.entry(key).or_insert(next);
        if let Some(lane) = self.aggregates.lanes.get_mut(at) {
            if lane.class == LaneClass::Rows {
                lane.class = class;
            }
            return at;
        }
        let (groups, states) = (GroupSet::NONE, Vec::new());
        self.aggregates.lanes.push(ScanLane { class, condition, skips_zeros, groups, states });
        self.values.push(value);
        assert_eq!(self.values.len(), self.aggregates.lanes.len(), "each lane has its value");
        at
    }

    /// Finds or adds the state of a kind that folds a lane for the groups that begin together.
    fn state(&mut self, position: GroupPosition, lane: usize, kind: StateKind) -> usize {
        let ScanAggregates { lanes, states, .. } = &mut self.aggregates;
        let lane = &mut lanes[lane];
        lane.groups |= position.as_set();
        let first_of_state = &self.first_of_state;
        let is_same = |of_lane: &&mut LaneState| {
            first_of_state[of_lane.state] == position.first && states[of_lane.state] == kind
        };
        if let Some(of_lane) = lane.states.iter_mut().find(is_same) {
            of_lane.groups |= position.as_set();
            return of_lane.state;
        }
        lane.states.push(LaneState { groups: position.as_set(), state: states.len() });
        self.new_state(position, kind)
    }

    /// Finds or adds the state of a kind that stores a value of one row for the groups that begin
    /// together.
    fn pick(&mut self, group: GroupPosition, value: &'c Expr, kind: StateKind) -> usize {
        let input = position(&mut self.picks, value);
        let ScanAggregates { picks, states, .. } = &mut self.aggregates;
        let first_of_state = &self.first_of_state;
        let is_same = |pick: &&mut RowPick| {
            let first = first_of_state[pick.state];
            first == group.first && pick.input == input && states[pick.state] == kind
        };
        if let Some(pick) = picks.iter_mut().find(is_same) {
            pick.groups |= group.as_set();
            return pick.state;
        }
        picks.push(RowPick { groups: group.as_set(), state: states.len(), input });
        self.new_state(group, kind)
    }

    fn new_state(&mut self, position: GroupPosition, kind: StateKind) -> usize {
        self.aggregates.states.push(kind);
        self.first_of_state.push(position.first);
        assert_eq!(self.first_of_state.len(), self.aggregates.states.len(), "one for each state");
        self.aggregates.states.len() - 1
    }

    /// Adds a call that has an accumulator.
    fn add_accumulator(&mut self, position: GroupPosition, call: &'c AggregateCall, slot: usize) {
        let GroupPosition { group, first } = position;
        let is_same = |other: &AccumulatedCall<'_>| {
            other.first == first && computes_the_same(other.call, call)
        };
        if let Some(same) = self.accumulated.iter().position(is_same) {
            let same = &mut self.aggregates.calls[same];
            same.groups |= position.as_set();
            same.outputs.push(CallOutput { group, slot });
            return;
        }
        self.accumulated.push(AccumulatedCall { call, first });
        let arguments = self.arguments(&call.arguments);
        self.aggregates.calls.push(AccumulatorCall {
            name: call.function.name,
            groups: position.as_set(),
            make: Arc::clone(&call.bound.make),
            arguments,
            outputs: vec![CallOutput { group, slot }],
        });
    }

    /// Finds or adds a list of arguments.
    fn arguments(&mut self, exprs: &'c [Expr]) -> Range<usize> {
        let found = self.argument_lists.iter().find(|list| list.exprs == exprs);
        let start = found.map_or(self.arguments.len(), |list| list.start);
        if found.is_none() {
            self.argument_lists.push(ArgumentList { exprs, start });
            self.arguments.extend(exprs);
        }
        start..start + exprs.len()
    }

    /// Sorts lanes with the same condition together, so that it is evaluated once for a block.
    fn sort_by_condition(&mut self) {
        let lanes = std::mem::take(&mut self.aggregates.lanes);
        let values = std::mem::take(&mut self.values);
        let mut pairs: Vec<_> = lanes.into_iter().zip(values).collect();
        pairs.sort_by_key(|(lane, _)| lane.condition);
        (self.aggregates.lanes, self.values) = pairs.into_iter().unzip();
    }
}

/// Finds or adds an expression among others.
fn position<'c>(exprs: &mut Vec<&'c Expr>, expr: &'c Expr) -> usize {
    exprs.iter().position(|seen| *seen == expr).unwrap_or_else(|| {
        exprs.push(expr);
        exprs.len() - 1
    })
}

/// Returns whether two windows of a scan have, newest first, the same rows until one of them ends.
fn begin_together(left: &Window, right: &Window) -> bool {
    let begin = |window: &Window| match window.frame {
        Frame::Rows { to: 0, .. } => (0, 0),
        Frame::Range { to, .. } if to <= 0 => (0, 0),
        Frame::Rows { to, .. } => (to, 0),
        Frame::Range { to, .. } => (0, to),
    };
    begin(left) == begin(right)
        && left.exclude_current_time == right.exclude_current_time
        && left.exclude_current_row == right.exclude_current_row
}

fn class_of(data_type: &DataType) -> LaneClass {
    match data_type {
        DataType::String => LaneClass::Texts,
        DataType::Float | DataType::Double => LaneClass::Floats,
        _ => LaneClass::Integers,
    }
}

fn computes_the_same(left: &AggregateCall, right: &AggregateCall) -> bool {
    left.function.name == right.function.name
        && left.arguments == right.arguments
        && left.settings == right.settings
}
