//! Compiles the calls of a scan: which lanes there are, and which calls share a state.

use std::{collections::HashMap, ops::Range};

use datafusion::logical_expr::Expr;
use lockstep_function::{
    PickedRow, RowStateForm, StateForm,
    aggregate::state::{Fold, StateKind},
};
use lockstep_plan::{AggregateCall, Frame, Window};
use lockstep_row::DataType;

use super::window::GroupSlots;
use crate::{
    aggregates::{RowPick, ScanAggregates, StateOutput},
    groups::GroupSet,
    lane::{LaneClass, LaneState, ScanLane},
    program::CompileOptions,
    row_calls::{CallOutput, RowCall},
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
    /// The arguments of the calls that are updated row by row, equal lists once.
    pub(super) arguments: Vec<&'c Expr>,
    argument_lists: Vec<ArgumentList<'c>>,
    lane_of: HashMap<LaneKey<'c>, usize>,
    /// The calls that are updated row by row; parallel to those of the aggregates until these are
    /// sorted.
    row_calls: Vec<SharedCall<'c>>,
    /// For each pick the first of the groups that share it.
    first_of_pick: Vec<usize>,
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

/// A call that is updated row by row, and the first of the groups that share it.
struct SharedCall<'c> {
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
                match &call.bound.state {
                    StateForm::Fold(fold) if options.folds && fold.takes_blocks() => {
                        builder.add_fold(position, call, fold, slot);
                    }
                    StateForm::Rows(RowStateForm { pick: Some(row), .. }) if options.folds => {
                        builder.add_pick(position, &call.arguments[0], *row, slot);
                    }
                    _ => builder.add_row_call(position, call, slot),
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

    /// Adds a call that is a fold of one value of each row.
    fn add_fold(
        &mut self,
        position: GroupPosition,
        call: &'c AggregateCall,
        fold: &Fold,
        slot: usize,
    ) {
        let data_type = fold.value.map(|argument| &call.bound.parameters[argument]);
        let class = match data_type {
            Some(data_type) if fold.state != StateKind::Count => class_of(data_type),
            _ => LaneClass::Rows,
        };
        let lane = self.lane(call, fold, class);
        let state = self.state(position, lane, fold.state);
        let (group, answer) = (position.group, fold.answer.clone());
        self.aggregates.outputs.push(StateOutput { group, state, answer, slot });
    }

    /// Finds or adds the lane that a fold reads.
    fn lane(&mut self, call: &'c AggregateCall, fold: &Fold, class: LaneClass) -> usize {
        let value = fold.value.map(|argument| &call.arguments[argument]);
        let condition = fold.condition.map(|condition| {
            position_of(&mut self.conditions, &call.arguments[condition.argument])
        });
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

    /// Adds a call that has the value of the row at a position.
    fn add_pick(&mut self, position: GroupPosition, value: &'c Expr, row: PickedRow, slot: usize) {
        let input = position_of(&mut self.picks, value);
        let picks = &mut self.aggregates.picks;
        let mut known = self.first_of_pick.iter().zip(picks.iter_mut());
        let same = known.find(|(first, pick)| {
            **first == position.first && pick.input == input && pick.row == row
        });
        let output = CallOutput { group: position.group, slot };
        if let Some((_, pick)) = same {
            pick.groups |= position.as_set();
            pick.outputs.push(output);
            return;
        }
        self.first_of_pick.push(position.first);
        picks.push(RowPick { groups: position.as_set(), row, input, outputs: vec![output] });
    }

    fn new_state(&mut self, position: GroupPosition, kind: StateKind) -> usize {
        self.aggregates.states.push(kind);
        self.first_of_state.push(position.first);
        assert_eq!(self.first_of_state.len(), self.aggregates.states.len(), "one for each state");
        self.aggregates.states.len() - 1
    }

    /// Adds a call that is updated row by row.
    fn add_row_call(&mut self, position: GroupPosition, call: &'c AggregateCall, slot: usize) {
        let GroupPosition { group, first } = position;
        let is_same =
            |other: &SharedCall<'_>| other.first == first && computes_the_same(other.call, call);
        if let Some(same) = self.row_calls.iter().position(is_same) {
            let same = &mut self.aggregates.calls[same];
            same.groups |= position.as_set();
            same.outputs.push(CallOutput { group, slot });
            return;
        }
        self.row_calls.push(SharedCall { call, first });
        let arguments = self.arguments(&call.arguments);
        let condition = match &call.bound.state {
            StateForm::Rows(rows) => rows.condition,
            StateForm::Fold(_) => None,
        };
        self.aggregates.calls.push(RowCall {
            name: call.function.name,
            groups: position.as_set(),
            bound: call.bound.clone(),
            condition,
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
fn position_of<'c>(exprs: &mut Vec<&'c Expr>, expr: &'c Expr) -> usize {
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
