//! What the windows of a scan compute: which lanes feed which states, and what is asked of them.
//!
//! A call whose aggregate has a [`fold`](lockstep_function::aggregate::fold) is an answer of a
//! state; calls share a state when they fold the same values in the same way. A call without one
//! keeps an accumulator, which is fed row by row.
//!
//! Windows of one scan share the lanes. Those that begin at the same row share states and
//! accumulators, too: newest first, what the shorter one holds is what the longer one has held
//! before, so the shorter one is answered from a state before that takes the first row beyond it.

use std::{fmt, ops::Range, sync::Arc};

use bumpalo::collections::Vec as ArenaVec;
use lockstep_function::{
    Accumulator, Feeding,
    aggregate::{
        MakeAccumulator,
        fold::{self, Answer, State, StateKind},
    },
};
use lockstep_row::{Arena, Datum, TextColumn};
use lockstep_table::{KeyRun, RecordField, Records};

use crate::{
    frame::{BoundExpr, Frame, Leaf},
    lane::{Buffers, Input, Lane, RecordInput},
};

/// Everything that the windows of a scan compute.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    pub(crate) lanes: Vec<Lane>,
    /// Kinds of the states.
    pub(crate) states: Vec<StateKind>,
    /// What the states answer.
    pub(crate) answers: Vec<GroupAnswer>,
    /// States that keep the value of a row.
    pub(crate) picks: Vec<Pick>,
    pub(crate) calls: Vec<Call>,
    /// Groups that begin at the same row, a bit each; only where there are several.
    pub(crate) nests: Vec<u64>,
}

/// An answer of a state.
#[derive(Debug)]
pub(crate) struct GroupAnswer {
    /// The group that asks.
    pub(crate) group: usize,
    pub(crate) state: usize,
    pub(crate) answer: Answer,
    /// Where it goes.
    pub(crate) slot: usize,
}

/// A state that keeps the value of a row.
#[derive(Debug)]
pub(crate) struct Pick {
    /// The groups it is for, a bit each.
    pub(crate) groups: u64,
    pub(crate) state: usize,
    /// The value among the picked inputs.
    pub(crate) input: usize,
}

/// An accumulator and where its values go.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// The groups it is for, a bit each.
    pub(crate) groups: u64,
    pub(crate) make: Arc<MakeAccumulator>,
    /// Its arguments among those of the scan.
    pub(crate) arguments: Range<usize>,
    /// The groups that ask, and slots of the chain.
    pub(crate) outputs: Vec<(usize, usize)>,
}

/// What is read of the rows of one source. All lists are parallel to those of the folding.
#[derive(Debug)]
pub(crate) struct SourceInputs {
    /// For each lane.
    pub(crate) lanes: Vec<Input>,
    /// For each lane, where the index includes what it reads; empty when it does not include what
    /// all of them read.
    pub(crate) records: Vec<RecordInput>,
    /// The fields of records that are read.
    pub(crate) fields: Vec<RecordField>,
    pub(crate) conditions: Vec<BoundExpr>,
    pub(crate) picks: Vec<BoundExpr>,
    pub(crate) arguments: Vec<BoundExpr>,
    /// Places in the stored row that will be read.
    pub(crate) lines: Vec<usize>,
    /// Texts of the stored row that will be read.
    pub(crate) texts: Vec<TextColumn>,
}

impl SourceInputs {
    /// Reads records from now on, if there are any.
    pub(crate) fn include(&mut self, records: Vec<RecordInput>) {
        self.fields = records.iter().flat_map(RecordInput::fields).collect();
        self.fields.sort_unstable_by_key(|field| (field.offset, field.width));
        self.fields.dedup();
        self.records = records;
    }

    /// Asks for what will be read of a row.
    #[inline]
    pub(crate) fn prefetch(&self, row: &Frame<'_, '_>) {
        let Leaf::Stored(view) = row.leaf else { return };
        for line in &self.lines {
            view.prefetch(*line);
        }
    }

    /// Asks for the texts: where they begin is known by now.
    fn prefetch_texts(&self, rows: &[Frame<'_, '_>]) {
        for column in &self.texts {
            for row in rows {
                if let Leaf::Stored(view) = row.leaf {
                    view.prefetch_text(*column);
                }
            }
        }
    }
}

/// What is read of the current row, which may be no stored row: expressions for everything.
#[derive(Debug)]
pub(crate) struct CurrentInputs {
    /// For each lane; `None` where rows are counted.
    pub(crate) lanes: Vec<Option<BoundExpr>>,
    pub(crate) conditions: Vec<BoundExpr>,
    pub(crate) picks: Vec<BoundExpr>,
    pub(crate) arguments: Vec<BoundExpr>,
}

/// The states of a scan.
pub(crate) struct FoldScratch {
    states: Vec<State>,
    /// Those of them that keep a value for each of many rows.
    large: Vec<usize>,
    accumulators: Vec<Box<dyn Accumulator>>,
    /// The groups that are not answered yet, a bit each.
    open: u64,
    /// Rows that accumulators were fed since the last reset, and the most there were before it.
    fed: (usize, usize),
}

/// About what an accumulator keeps of a row that it was fed, in bytes.
const KEPT_BYTES_OF_ROW: usize = 64;

impl FoldScratch {
    pub(crate) fn new(folding: &Folding) -> Self {
        let accumulators = folding.calls.iter().map(|call| (call.make)(Feeding::NewestFirst));
        Self {
            states: folding.states.iter().map(|kind| State::new(*kind)).collect(),
            large: (0..folding.states.len())
                .filter(|at| folding.states[*at].keeps_values())
                .collect(),
            accumulators: accumulators.collect(),
            open: u64::MAX,
            fed: (0, 0),
        }
    }

    /// About how many bytes are kept for answers to come.
    pub(crate) fn kept_bytes(&self) -> usize {
        let states: usize = self.large.iter().map(|at| self.states[*at].kept_bytes()).sum();
        let rows = self.fed.0.max(self.fed.1);
        states + self.accumulators.len() * rows * KEPT_BYTES_OF_ROW
    }

    pub(crate) fn reset(&mut self) {
        self.states.iter_mut().for_each(State::reset);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.reset());
        self.open = u64::MAX;
        self.fed = (0, self.fed.0.max(self.fed.1));
    }
}

impl Lane {
    /// Hands values to the states of the groups that take them.
    fn feed(&self, scratch: &mut FoldScratch, takers: u64, values: fold::Lane<'_>) {
        if values.is_empty() {
            return;
        }
        for (groups, state) in &self.states {
            if takers & groups != 0 {
                scratch.states[*state].add(values);
            }
        }
    }
}

impl Folding {
    /// Whether something depends on the order of the rows that a group takes.
    pub(crate) fn asks_for_order(&self) -> bool {
        !self.calls.is_empty() || !self.picks.is_empty()
    }

    /// To be called before rows are fed to groups: answers those that are at their end while
    /// others, which share states with them, go on.
    #[inline]
    pub(crate) fn leave<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        let at_end = |nest: &u64| if nest & takers == 0 { 0 } else { nest & !takers };
        let leaving = self.nests.iter().map(at_end).fold(0, |all, groups| all | groups);
        if leaving & scratch.open != 0 {
            self.answer(scratch, leaving, slots, arena);
        }
    }

    /// Feeds a block of rows of one source to the groups that take them.
    pub(crate) fn add<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        (inputs, rows): (&'s SourceInputs, &[Frame<'s, 's>]),
        (buffers, arena): (&mut Buffers<'s>, &'s Arena),
    ) {
        inputs.prefetch_texts(rows);
        // The rows for which a condition is true; lanes with the same one follow each other.
        let mut counted: (Option<usize>, ArenaVec<'s, Frame<'s, 's>>) =
            (None, ArenaVec::new_in(arena));
        for (lane, input) in self.lanes.iter().zip(&inputs.lanes) {
            if lane.groups & takers == 0 {
                continue;
            }
            let rows = match lane.condition.filter(|_| !input.tests_condition()) {
                None => rows,
                Some(condition) => {
                    if counted.0 != Some(condition) {
                        let condition_expr = &inputs.conditions[condition];
                        let is_true = |row: &&Frame<'s, 's>| condition_expr.is_true(*row, arena);
                        counted.0 = Some(condition);
                        counted.1.clear();
                        counted.1.extend(rows.iter().filter(is_true).copied());
                    }
                    &counted.1
                }
            };
            lane.feed(scratch, takers, input.gather(lane, rows, buffers, arena));
        }
        self.pick(scratch, takers, rows.len(), |pick, row| {
            inputs.picks[pick.input].eval(&rows[row], arena)
        });
        for row in rows.iter().filter(|_| !self.calls.is_empty()) {
            self.add_to_accumulators(scratch, takers, (&inputs.arguments, row), arena);
        }
    }

    /// Feeds rows of a run from the records of their index; there are no calls, which would have to
    /// see each row.
    pub(crate) fn add_records<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        (inputs, run, records): (&'s SourceInputs, &KeyRun<'s>, Records<'s>),
        (buffers, arena): (&mut Buffers<'s>, &'s Arena),
    ) {
        debug_assert!(self.calls.is_empty(), "an accumulator is fed from rows");
        for (lane, input) in self.lanes.iter().zip(&inputs.records) {
            if lane.groups & takers != 0 {
                lane.feed(scratch, takers, input.gather(lane, (run, records), buffers));
            }
        }
        self.pick(scratch, takers, run.len(), |pick, row| {
            let frame = Frame { leaf: Leaf::Stored(run.stored_row(row).row), slots: &[] };
            inputs.picks[pick.input].eval(&frame, arena)
        });
    }

    /// Tells the states that pick a row about so many rows; `value` says what one of them has.
    fn pick<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        rows: usize,
        value: impl Fn(&Pick, usize) -> Datum<'s>,
    ) {
        for pick in self.picks.iter().filter(|pick| takers & pick.groups != 0) {
            scratch.states[pick.state].pick(rows, |row| value(pick, row));
        }
    }

    /// What these groups read of the current row.
    pub(crate) fn current_exprs<'f>(
        &'f self,
        inputs: &'f CurrentInputs,
        groups: u64,
    ) -> impl Iterator<Item = &'f BoundExpr> {
        let lanes = self.lanes.iter().zip(&inputs.lanes);
        let lanes = lanes.filter(move |(lane, _)| lane.groups & groups != 0);
        let values = lanes.flat_map(|(lane, value)| {
            value.iter().chain(lane.condition.map(|condition| &inputs.conditions[condition]))
        });
        let picks = self.picks.iter().filter(move |pick| pick.groups & groups != 0);
        let picked = picks.map(|pick| &inputs.picks[pick.input]);
        let calls = self.calls.iter().filter(move |call| call.groups & groups != 0);
        let arguments = calls.flat_map(|call| &inputs.arguments[call.arguments.clone()]);
        values.chain(picked).chain(arguments)
    }

    /// Feeds the current row.
    pub(crate) fn add_current<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        (inputs, row): (&'s CurrentInputs, &Frame<'_, 's>),
        arena: &'s Arena,
    ) {
        for (lane, input) in self.lanes.iter().zip(&inputs.lanes) {
            if lane.groups & takers == 0 {
                continue;
            }
            if let Some(condition) = lane.condition
                && !inputs.conditions[condition].is_true(row, arena)
            {
                continue;
            }
            let value = input.as_ref().map(|input| input.eval(row, arena));
            for (groups, state) in &lane.states {
                if takers & groups != 0 {
                    lane.add_one(&mut scratch.states[*state], value);
                }
            }
        }
        self.pick(scratch, takers, 1, |pick, _| inputs.picks[pick.input].eval(row, arena));
        if !self.calls.is_empty() {
            self.add_to_accumulators(scratch, takers, (&inputs.arguments, row), arena);
        }
    }

    /// Calls that take the same arguments stand together, and are fed together.
    fn add_to_accumulators<'s>(
        &self,
        scratch: &mut FoldScratch,
        takers: u64,
        (arguments, row): (&'s [BoundExpr], &Frame<'_, 's>),
        arena: &'s Arena,
    ) {
        const STACK_ARGUMENTS: usize = 6;
        scratch.fed.0 += 1;
        let mut stack = [Datum::Null; STACK_ARGUMENTS];
        let mut evaluated: Option<&Range<usize>> = None;
        let mut long: &mut [Datum<'s>] = &mut [];
        for (call, accumulator) in self.calls.iter().zip(&mut scratch.accumulators) {
            if takers & call.groups == 0 {
                continue;
            }
            let count = call.arguments.len();
            if count > STACK_ARGUMENTS && long.len() < count {
                long = arena.alloc_slice_fill_copy(count, Datum::Null);
                evaluated = None;
            }
            let values =
                if count > STACK_ARGUMENTS { &mut long[..count] } else { &mut stack[..count] };
            if evaluated != Some(&call.arguments) {
                for (value, expr) in values.iter_mut().zip(&arguments[call.arguments.clone()]) {
                    *value = expr.eval(row, arena);
                }
                evaluated = Some(&call.arguments);
            }
            accumulator.add(values);
        }
    }

    /// Where the answers of all groups go.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let called = self.calls.iter().flat_map(|call| &call.outputs).map(|(_, slot)| *slot);
        self.answers.iter().map(|answer| answer.slot).chain(called)
    }

    /// Writes the answers of groups, a bit each, into the slots, unless they are there.
    pub(crate) fn answer<'s>(
        &self,
        scratch: &mut FoldScratch,
        groups: u64,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        let asking = groups & scratch.open;
        scratch.open &= !groups;
        let asks = |group: usize| asking & (1 << group) != 0;
        for GroupAnswer { state, answer, slot, .. } in
            self.answers.iter().filter(|answer| asks(answer.group))
        {
            slots[*slot] = scratch.states[*state].answer(answer, arena);
        }
        for (call, accumulator) in self.calls.iter().zip(&scratch.accumulators) {
            if call.groups & asking == 0 {
                continue;
            }
            let value = accumulator.value(arena);
            for (_, slot) in call.outputs.iter().filter(|(group, _)| asks(*group)) {
                slots[*slot] = value;
            }
        }
    }
}

/// What is folded in how many states, and what is fed row by row, for EXPLAIN.
impl fmt::Display for Folding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        let calls = count(self.answers.len(), "call");
        let states = count(self.states.len(), "state");
        let mut inputs: Vec<usize> = self.picks.iter().map(|pick| pick.input).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let values = count(self.lanes.len() + inputs.len(), "value");
        let names: Vec<&str> = self.calls.iter().map(|call| call.name).collect();
        match (self.answers.is_empty(), names.is_empty()) {
            (false, true) => write!(f, "folds {calls} in {states} over {values}"),
            (false, false) => {
                let names = names.join(", ");
                write!(f, "folds {calls} in {states} over {values}; row by row: {names}")
            }
            (true, _) => write!(f, "row by row: {}", names.join(", ")),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
