//! The aggregates of a scan: which lanes update which states, and where the results go.
//!
//! A call whose aggregate is a fold of one value of each row is the result of a state, which is
//! updated with blocks of values; calls share a state when they fold the same values in the same way.
//! A call that has the value of the row at a position reads that row alone. Any other call has a
//! state that is updated row by row ([`crate::row_calls`]).
//!
//! The windows of a scan share the lanes. Windows whose frames begin at the same row share states
//! as well: rows come newest first, so the rows of the shorter frame are the first
//! rows of the longer one, and the shorter window is finalized before the first row beyond it is
//! added.

use std::fmt;

use bumpalo::collections::Vec as ArenaVec;
use lockstep_function::{
    AggregateState, PickedRow, RowsEnd, StateUse,
    aggregate::{
        StateReader, copy_scalar, put_value,
        state::{Answer, StateKind, ValueLane},
    },
};
use lockstep_row::{Arena, Datum, Value};
use lockstep_table::LevelNode;

use crate::{
    groups::GroupSet,
    inputs::{CurrentInputs, RecordInputs, RecordRun, SourceInputs},
    lane::{CurrentValue, LaneBuffers, LaneClass, LaneRows, ScanLane},
    pre_aggregate::{NodeDictionaries, NodeLayout},
    row_calls::{CallOutput, RowCall, RowCallStates},
    row_context::{BoundExpr, LeafRow, RowContext},
};

/// Everything that the windows of a scan compute.
#[derive(Debug, Default)]
pub(crate) struct ScanAggregates {
    pub(crate) lanes: Vec<ScanLane>,
    /// The kinds of the states.
    pub(crate) states: Vec<StateKind>,
    /// The results that are computed from states.
    pub(crate) outputs: Vec<StateOutput>,
    /// The values of the rows at a position.
    pub(crate) picks: Vec<RowPick>,
    /// The calls that are updated row by row.
    pub(crate) calls: Vec<RowCall>,
    /// Sets of several groups whose frames begin at the same row.
    pub(crate) same_start: Vec<GroupSet>,
}

/// A result that is computed from a state.
#[derive(Debug)]
pub(crate) struct StateOutput {
    /// The window group of the call.
    pub(crate) group: usize,
    pub(crate) state: usize,
    pub(crate) answer: Answer,
    /// The slot of the chain.
    pub(crate) slot: usize,
}

/// The value of one row of the frame: the first, the last, or one at a distance.
#[derive(Debug)]
pub(crate) struct RowPick {
    /// The window groups that it is computed for.
    pub(crate) groups: GroupSet,
    /// The row.
    pub(crate) row: PickedRow,
    /// The value, among the expressions that picks read.
    pub(crate) input: usize,
    pub(crate) outputs: Vec<CallOutput>,
}

/// What is known of a [`RowPick`] while its frame is read, newest row first.
#[derive(Debug, Clone, Default)]
struct PickProgress {
    /// The number of rows that were read.
    rows: usize,
    value: Value,
}

impl PickProgress {
    /// Reads a number of rows; `value` returns the value of one of them, counted from the newest.
    fn add<'a>(&mut self, picked: PickedRow, rows: usize, value: impl FnOnce(usize) -> Datum<'a>) {
        let before = self.rows;
        self.rows += rows;
        let row = match picked {
            PickedRow::FromNewest(distance) => {
                distance.checked_sub(before).filter(|row| *row < rows)
            }
            PickedRow::Oldest => rows.checked_sub(1),
        };
        debug_assert!(row.is_none_or(|row| row < rows), "the row is one of those that are read");
        if let Some(row) = row {
            self.value = value(row).to_value();
        }
    }
}

/// The states of a scan, which are reused by one answer after the other.
pub(crate) struct AggregateScratch {
    states: Vec<AggregateState>,
    /// The states that store a value for each of many rows.
    large: Vec<usize>,
    picked: Vec<PickProgress>,
    calls: RowCallStates,
    /// The groups that are not finalized yet.
    open: GroupSet,
    /// A state of each kind that a node has, into which encoded states are read. Made when it is needed.
    spares: Vec<AggregateState>,
    /// What the current row adds to each lane, which waits for the first block of the same groups.
    current: Vec<CurrentValue>,
    /// The groups that it is added to; none once it was added.
    current_groups: GroupSet,
}

impl AggregateScratch {
    /// Makes the states of a scan, all empty.
    pub(crate) fn new(aggregates: &ScanAggregates) -> Self {
        let states = &aggregates.states;
        Self {
            states: states.iter().map(|kind| AggregateState::new(*kind, StateUse::Fold)).collect(),
            large: (0..states.len()).filter(|state| states[*state].keeps_values()).collect(),
            picked: vec![PickProgress::default(); aggregates.picks.len()],
            calls: RowCallStates::new(&aggregates.calls),
            open: GroupSet::ALL,
            spares: Vec::new(),
            current: vec![CurrentValue::None; aggregates.lanes.len()],
            current_groups: GroupSet::NONE,
        }
    }

    /// Estimates the bytes that are retained between answers.
    pub(crate) fn retained_bytes(&self) -> usize {
        let states = self.large.iter().map(|state| self.states[*state].heap_bytes());
        states.sum::<usize>() + self.calls.retained_bytes()
    }

    /// Forgets all rows.
    pub(crate) fn reset(&mut self) {
        self.states.iter_mut().for_each(AggregateState::reset);
        self.picked.fill(PickProgress::default());
        self.calls.reset();
        self.open = GroupSet::ALL;
        self.current_groups = GroupSet::NONE;
    }
}

impl ScanLane {
    /// Adds values to the states of these groups.
    fn update(&self, scratch: &mut AggregateScratch, groups: GroupSet, values: ValueLane<'_>) {
        if !values.is_empty() {
            self.update_states(scratch, groups, |_, state| state.add(values));
        }
    }

    /// Updates the states of these groups.
    #[inline]
    fn update_states(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        update: impl Fn(&Self, &mut AggregateState),
    ) {
        for of_lane in self.states.iter().filter(|of_lane| groups.intersects(of_lane.groups)) {
            update(self, &mut scratch.states[of_lane.state]);
        }
    }
}

/// The rows of a block for which a condition is true.
struct FilteredRows<'s> {
    /// The condition; `None` before the first one was evaluated.
    condition: Option<usize>,
    rows: ArenaVec<'s, RowContext<'s, 's>>,
    bytes: ArenaVec<'s, &'s [u8]>,
}

impl<'s> FilteredRows<'s> {
    /// Makes it without a condition and rows.
    fn new_in(arena: &'s Arena) -> Self {
        Self { condition: None, rows: ArenaVec::new_in(arena), bytes: ArenaVec::new_in(arena) }
    }

    /// Returns the rows of a block for which a condition is true.
    fn of(
        &mut self,
        condition: usize,
        exprs: &'s [BoundExpr],
        rows: LaneRows<'_, 's>,
        arena: &'s Arena,
    ) -> LaneRows<'_, 's> {
        if self.condition != Some(condition) {
            let expr = &exprs[condition];
            let is_true = |row: &&RowContext<'s, 's>| expr.is_true(*row, arena);
            self.condition = Some(condition);
            self.rows.clear();
            self.rows.extend(rows.rows.iter().filter(is_true).copied());
            self.bytes.clear();
            self.bytes.extend(stored_bytes(&self.rows));
            debug_assert!(self.rows.len() <= rows.rows.len(), "a condition adds no row");
        }
        LaneRows { rows: &self.rows, bytes: &self.bytes }
    }
}

/// Returns the bytes of those rows that are stored.
fn stored_bytes<'r, 's: 'r>(rows: &'r [RowContext<'s, 's>]) -> impl Iterator<Item = &'s [u8]> + 'r {
    rows.iter().filter_map(|row| match row.leaf {
        LeafRow::Stored(view) => Some(view.bytes()),
        LeafRow::Values(_) => None,
    })
}

impl ScanAggregates {
    /// Returns whether a result depends on the order of the rows of a group.
    pub(crate) fn depends_on_order(&self) -> bool {
        !self.calls.is_empty() || !self.picks.is_empty()
    }

    /// Returns whether nodes can be added for these groups: no value of a row at a distance from the newest
    /// is still to be read.
    pub(crate) fn takes_nodes(&self, scratch: &AggregateScratch, groups: GroupSet) -> bool {
        let mut picks = self.picks.iter().zip(&scratch.picked);
        picks.all(|(pick, progress)| match pick.row {
            PickedRow::FromNewest(distance) if groups.intersects(pick.groups) => {
                progress.rows > distance
            }
            PickedRow::FromNewest(_) | PickedRow::Oldest => true,
        })
    }

    /// Adds the rows of a node, which are older than all rows so far, to these groups. Call
    /// [`Self::resolve`] after the last node of a key.
    pub(crate) fn merge_node(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        layout: &NodeLayout,
        node: &LevelNode,
    ) {
        self.add_current(scratch);
        let merged = self.try_merge_node(scratch, groups, layout, node);
        merged.expect("states are read as they were written");
    }

    fn try_merge_node(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        layout: &NodeLayout,
        node: &LevelNode,
    ) -> Option<()> {
        let mut reader = StateReader::new(node.states());
        if scratch.spares.is_empty() {
            scratch.spares = layout.new_states();
        }
        for (of_node, spare) in layout.states.iter().zip(&mut scratch.spares) {
            let start = reader;
            let mut is_read = false;
            for target in of_node.targets.iter().filter(|target| groups.intersects(target.groups)) {
                reader = start;
                let state = &mut scratch.states[target.state];
                state.merge_node(&mut reader, RowsEnd::Oldest, spare)?;
                is_read = true;
            }
            if !is_read {
                spare.skip_node(&mut reader)?;
            }
        }
        scratch.calls.merge(&self.calls, groups, &mut reader)?;
        let rows = usize::try_from(node.rows()).expect("a count of rows");
        for (pick, progress) in self.picks.iter().zip(&mut scratch.picked) {
            let is_oldest = pick.row == PickedRow::Oldest;
            let value = if is_oldest { Some(reader.value()?) } else { None };
            if groups.intersects(pick.groups) {
                progress.rows += rows;
                if let Some(value) = value {
                    progress.value = value;
                }
            }
        }
        reader.is_at_end().then_some(())
    }

    /// Adds the values of these groups' states that the nodes of a key have by their numbers in its
    /// dictionaries.
    pub(crate) fn resolve(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        layout: &NodeLayout,
        dictionaries: &NodeDictionaries,
    ) {
        let resolved = self.try_resolve(scratch, groups, layout, dictionaries);
        resolved.expect("each number is of a value");
    }

    fn try_resolve(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        layout: &NodeLayout,
        dictionaries: &NodeDictionaries,
    ) -> Option<()> {
        let (of_states, of_calls) = dictionaries.0.split_at_checked(layout.states.len())?;
        for (of_node, dictionary) in layout.states.iter().zip(of_states) {
            for target in of_node.targets.iter().filter(|target| groups.intersects(target.groups)) {
                scratch.states[target.state].resolve(dictionary, RowsEnd::Oldest)?;
            }
        }
        scratch.calls.resolve(&self.calls, groups, of_calls)
    }

    /// Appends the states of the only group, those of a node over so many rows, to some bytes.
    pub(crate) fn encode_node(
        &self,
        scratch: &AggregateScratch,
        rows: u64,
        dictionaries: &mut NodeDictionaries,
        states: &mut Vec<u8>,
    ) {
        let (of_states, of_calls) = dictionaries.0.split_at_mut(scratch.states.len());
        for (state, dictionary) in scratch.states.iter().zip(of_states) {
            let is_encoded = state.encode_node(rows, dictionary, states);
            debug_assert!(is_encoded, "a state of many rows is encoded");
        }
        scratch.calls.encode_node(rows, of_calls, states);
        for (pick, progress) in self.picks.iter().zip(&scratch.picked) {
            if pick.row == PickedRow::Oldest {
                put_value(states, &progress.value);
            }
        }
    }

    /// Finalizes the groups that take no more rows while others, which share states with them, do.
    /// To be called before rows are added to `groups`.
    #[inline]
    pub(crate) fn finalize_ended<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        if scratch.current_groups != groups {
            self.add_current(scratch);
        }
        let sharing = self.same_start.iter().filter(|sharing| sharing.intersects(groups));
        let ended = sharing.fold(GroupSet::NONE, |all, sharing| all | (*sharing & !groups));
        if ended.intersects(scratch.open) {
            self.finalize(scratch, ended, slots, arena);
        }
    }

    /// Adds a block of rows of one source to these groups.
    pub(crate) fn update<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        inputs: &'s SourceInputs,
        rows: &[RowContext<'s, 's>],
        buffers: &mut LaneBuffers<'s>,
    ) {
        debug_assert_eq!(inputs.lanes.len(), self.lanes.len(), "each lane has an input");
        let arena = buffers.arena;
        inputs.prefetch_texts(rows);
        let bytes = ArenaVec::from_iter_in(stored_bytes(rows), arena);
        let all = LaneRows { rows, bytes: &bytes };
        let has_current = self.takes_current(scratch, groups);
        // Lanes with the same condition follow each other, so it is evaluated once.
        let mut filtered = FilteredRows::new_in(arena);
        for (number, (lane, input)) in self.lanes.iter().zip(&inputs.lanes).enumerate() {
            if !lane.groups.intersects(groups) {
                continue;
            }
            let rows = match lane.condition.filter(|_| !input.tests_condition()) {
                None => all,
                Some(condition) => filtered.of(condition, &inputs.conditions, all, arena),
            };
            let values = if lane.class == LaneClass::Texts {
                input.gather_texts(rows, buffers)
            } else {
                let count = input.gather(lane, rows, buffers);
                let current =
                    if has_current { scratch.current[number] } else { CurrentValue::None };
                buffers.with_current(lane.class, count, current)
            };
            lane.update(scratch, groups, values);
        }
        self.pick(scratch, groups, rows.len(), |pick, row| {
            inputs.picks[pick.input].eval(&rows[row], arena)
        });
        for row in rows.iter().filter(|_| !self.calls.is_empty()) {
            scratch.calls.update(&self.calls, groups, &inputs.arguments, row, arena);
        }
    }

    /// Adds rows of a run to these groups, from the records of their index.
    pub(crate) fn update_from_records<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        (inputs, of_records): (&'s SourceInputs, &'s RecordInputs),
        rows: RecordRun<'_, 's>,
        buffers: &mut LaneBuffers<'s>,
    ) {
        debug_assert_eq!(of_records.lanes.len(), self.lanes.len(), "each lane has a record input");
        let arena = buffers.arena;
        let has_current = self.takes_current(scratch, groups);
        for (number, (lane, input)) in self.lanes.iter().zip(&of_records.lanes).enumerate() {
            if !lane.groups.intersects(groups) {
                continue;
            }
            let values = if lane.class == LaneClass::Texts {
                input.gather_texts(rows, buffers)
            } else {
                let count = input.gather(lane, rows, buffers);
                let current =
                    if has_current { scratch.current[number] } else { CurrentValue::None };
                buffers.with_current(lane.class, count, current)
            };
            lane.update(scratch, groups, values);
        }
        let run = rows.run;
        self.pick(scratch, groups, run.len(), |pick, row| {
            let row = RowContext { leaf: LeafRow::Stored(run.stored_row(row).row), slots: &[] };
            inputs.picks[pick.input].eval(&row, arena)
        });
        if !self.calls.is_empty() {
            let records = of_records.columns.open(rows, arena);
            for row in records.rows() {
                scratch.calls.update(&self.calls, groups, &inputs.arguments, &row, arena);
            }
        }
    }

    /// Passes a number of rows to the picks; `value` gives the value of a row.
    fn pick<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        row_count: usize,
        value: impl Fn(&RowPick, usize) -> Datum<'s>,
    ) {
        for (pick, progress) in self.picks.iter().zip(&mut scratch.picked) {
            if groups.intersects(pick.groups) {
                progress.add(pick.row, row_count, |row| value(pick, row));
            }
        }
    }

    /// Returns the expressions that these groups read of the current row.
    pub(crate) fn current_exprs<'f>(
        &'f self,
        inputs: &'f CurrentInputs,
        groups: GroupSet,
    ) -> impl Iterator<Item = &'f BoundExpr> {
        let lanes = self.lanes.iter().zip(&inputs.lanes);
        let lanes = lanes.filter(move |(lane, _)| lane.groups.intersects(groups));
        let values = lanes.flat_map(|(lane, value)| {
            value.iter().chain(lane.condition.map(|condition| &inputs.conditions[condition]))
        });
        let picks = self.picks.iter().filter(move |pick| pick.groups.intersects(groups));
        let picked = picks.map(|pick| &inputs.picks[pick.input]);
        let calls = self.calls.iter().filter(move |call| call.groups.intersects(groups));
        let arguments = calls.flat_map(|call| &inputs.arguments[call.arguments.clone()]);
        values.chain(picked).chain(arguments)
    }

    /// Adds the current row to these groups; what it adds to lanes of numbers waits for the first block
    /// of the same groups, with whose values it is added.
    pub(crate) fn begin_with_current<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        inputs: &'s CurrentInputs,
        row: &RowContext<'_, 's>,
        arena: &'s Arena,
    ) {
        debug_assert!(scratch.current_groups.is_empty(), "there is one current row");
        scratch.current_groups = groups;
        for (number, (lane, input)) in self.lanes.iter().zip(&inputs.lanes).enumerate() {
            scratch.current[number] = CurrentValue::None;
            let is_true = |condition: usize| inputs.conditions[condition].is_true(row, arena);
            if !lane.groups.intersects(groups) || !lane.condition.is_none_or(is_true) {
                continue;
            }
            let value = input.as_ref().map(|input| input.eval(row, arena));
            if lane.class == LaneClass::Texts {
                lane.update_states(scratch, groups, |lane, state| lane.update_one(state, value));
            } else {
                scratch.current[number] = lane.current_value(value);
            }
        }
        self.pick(scratch, groups, 1, |pick, _| inputs.picks[pick.input].eval(row, arena));
        if !self.calls.is_empty() {
            scratch.calls.update(&self.calls, groups, &inputs.arguments, row, arena);
        }
    }

    /// Returns whether what the current row adds is to be added together with the values of a block of
    /// these groups. If it waits for others, it is added now.
    fn takes_current(&self, scratch: &mut AggregateScratch, groups: GroupSet) -> bool {
        if scratch.current_groups == groups {
            scratch.current_groups = GroupSet::NONE;
            return !groups.is_empty();
        }
        self.add_current(scratch);
        false
    }

    /// Adds what the current row adds, if it was not added yet.
    fn add_current(&self, scratch: &mut AggregateScratch) {
        let groups = std::mem::replace(&mut scratch.current_groups, GroupSet::NONE);
        if groups.is_empty() {
            return;
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let value = scratch.current[number];
            if value != CurrentValue::None {
                lane.update_states(scratch, groups, |lane, state| {
                    lane.update_current(state, value);
                });
            }
        }
    }

    /// Adds the current row to these groups.
    pub(crate) fn update_current<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        inputs: &'s CurrentInputs,
        row: &RowContext<'_, 's>,
        arena: &'s Arena,
    ) {
        for (lane, input) in self.lanes.iter().zip(&inputs.lanes) {
            if !lane.groups.intersects(groups) {
                continue;
            }
            if let Some(condition) = lane.condition
                && !inputs.conditions[condition].is_true(row, arena)
            {
                continue;
            }
            let value = input.as_ref().map(|input| input.eval(row, arena));
            lane.update_states(scratch, groups, |lane, state| lane.update_one(state, value));
        }
        self.pick(scratch, groups, 1, |pick, _| inputs.picks[pick.input].eval(row, arena));
        if !self.calls.is_empty() {
            scratch.calls.update(&self.calls, groups, &inputs.arguments, row, arena);
        }
    }

    /// Returns the slots of all results.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let of_picks = self.picks.iter().flat_map(|pick| &pick.outputs);
        let of_calls = self.calls.iter().flat_map(|call| &call.outputs);
        let others = of_picks.chain(of_calls).map(|output| output.slot);
        self.outputs.iter().map(|output| output.slot).chain(others)
    }

    /// Writes the results of these groups into their slots, unless they are finalized already.
    pub(crate) fn finalize<'s>(
        &self,
        scratch: &mut AggregateScratch,
        groups: GroupSet,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        self.add_current(scratch);
        let groups = groups & scratch.open;
        scratch.open &= !groups;
        for output in self.outputs.iter().filter(|output| groups.contains(output.group)) {
            let state = &scratch.states[output.state];
            state.write_answer(&output.answer, arena, &mut slots[output.slot]);
        }
        for (pick, progress) in self.picks.iter().zip(&scratch.picked) {
            for output in pick.outputs.iter().filter(|output| groups.contains(output.group)) {
                slots[output.slot] = copy_scalar(&progress.value, arena);
            }
        }
        scratch.calls.finalize(&self.calls, groups, slots, arena);
    }
}

/// Counts what is folded in how many states and names what is computed row by row, for EXPLAIN.
impl fmt::Display for ScanAggregates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let picked: usize = self.picks.iter().map(|pick| pick.outputs.len()).sum();
        let folded = self.outputs.len() + picked;
        let calls = count(folded, "call");
        let states = count(self.states.len() + self.picks.len(), "state");
        let mut inputs: Vec<usize> = self.picks.iter().map(|pick| pick.input).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let values = count(self.lanes.len() + inputs.len(), "value");
        let names: Vec<&str> = self.calls.iter().map(|call| call.name).collect();
        match (folded == 0, names.is_empty()) {
            (false, true) => write!(f, "folds {calls} in {states} over {values}"),
            (false, false) => {
                let names = names.join(", ");
                write!(f, "folds {calls} in {states} over {values}; row by row: {names}")
            }
            (true, _) => write!(f, "row by row: {}", names.join(", ")),
        }
    }
}
