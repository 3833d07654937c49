//! The calls of a scan whose aggregate needs whole rows: a state each, which is updated row by row.
//!
//! [`crate::aggregates`] decides which rows a state is given.

use std::{fmt, ops::Range, sync::Arc};

use lockstep_function::{
    AggregateState, BoundAggregate, RowsEnd, StateUse,
    aggregate::{StateReader, ValueDictionary},
};
use lockstep_row::{Arena, Datum};

use crate::{
    groups::GroupSet,
    row_context::{BoundExpr, ColumnLookup},
};

/// A call that is updated row by row.
pub(crate) struct RowCall {
    pub(crate) name: &'static str,
    /// The window groups that it is computed for.
    pub(crate) groups: GroupSet,
    pub(crate) bound: BoundAggregate,
    /// The argument that is true in every row that counts, if there is one.
    pub(crate) condition: Option<usize>,
    /// Its arguments among those of the scan.
    pub(crate) arguments: Range<usize>,
    pub(crate) outputs: Vec<CallOutput>,
}

/// Where one window group's value of a call goes.
#[derive(Debug)]
pub(crate) struct CallOutput {
    pub(crate) group: usize,
    /// The slot of the chain.
    pub(crate) slot: usize,
}

/// The states of the calls of a scan.
pub(crate) struct RowCallStates {
    /// One for each call.
    states: Vec<AggregateState>,
    /// Another one for each call, into which states are read; none until a node was.
    spares: Vec<AggregateState>,
    /// How many rows have been added since the last reset.
    row_count: usize,
    /// The most rows that were added before a reset.
    row_count_max: usize,
}

/// Makes a state for each call.
fn new_states(calls: &[RowCall]) -> Vec<AggregateState> {
    calls.iter().map(|call| call.bound.new_state(StateUse::Fold)).collect()
}

/// About how many bytes a state retains for each row that was added.
const RETAINED_BYTES_PER_ROW: usize = 64;

impl RowCallStates {
    /// Makes a state for each call.
    pub(crate) fn new(calls: &[RowCall]) -> Self {
        Self { states: new_states(calls), spares: Vec::new(), row_count: 0, row_count_max: 0 }
    }

    /// Estimates the bytes that are retained between answers.
    pub(crate) fn retained_bytes(&self) -> usize {
        let rows = self.row_count.max(self.row_count_max);
        (self.states.len() + self.spares.len()) * rows * RETAINED_BYTES_PER_ROW
    }

    /// Forgets all rows.
    pub(crate) fn reset(&mut self) {
        self.states.iter_mut().for_each(AggregateState::reset);
        self.row_count_max = self.row_count_max.max(self.row_count);
        self.row_count = 0;
    }

    /// Adds a row, which is older than those before it, to the states of these groups. Calls with the same
    /// arguments follow each other, so that their arguments are evaluated once for a row that counts.
    pub(crate) fn update<'s>(
        &mut self,
        calls: &[RowCall],
        groups: GroupSet,
        arguments: &'s [BoundExpr],
        row: &impl ColumnLookup<'s>,
        arena: &'s Arena,
    ) {
        const STACK_ARGUMENTS: usize = 6;
        debug_assert_eq!(calls.len(), self.states.len(), "each call has a state");
        self.row_count += 1;
        let mut stack = [Datum::Null; STACK_ARGUMENTS];
        let mut evaluated: Option<&Range<usize>> = None;
        let mut long: &mut [Datum<'s>] = &mut [];
        for (call, state) in calls.iter().zip(&mut self.states) {
            if !groups.intersects(call.groups) {
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
                evaluated = None;
                let exprs = &arguments[call.arguments.clone()];
                if !evaluate(call.condition, exprs, values, |expr| expr.eval(row, arena)) {
                    continue;
                }
                evaluated = Some(&call.arguments);
            }
            call.bound.add(state, values, RowsEnd::Oldest);
        }
    }

    /// Adds the rows of the states of a node, which are older than all rows so far, to the states of these
    /// groups.
    pub(crate) fn merge(
        &mut self,
        calls: &[RowCall],
        groups: GroupSet,
        reader: &mut StateReader<'_>,
    ) -> Option<()> {
        if self.spares.is_empty() {
            self.spares = new_states(calls);
        }
        for ((call, state), spare) in calls.iter().zip(&mut self.states).zip(&mut self.spares) {
            if groups.intersects(call.groups) {
                state.merge_node(reader, RowsEnd::Oldest, spare)?;
            } else {
                spare.skip_node(reader)?;
            }
        }
        Some(())
    }

    /// Adds the values of these groups' states that nodes have by their numbers.
    pub(crate) fn resolve(
        &mut self,
        calls: &[RowCall],
        groups: GroupSet,
        dictionaries: &[Arc<ValueDictionary>],
    ) -> Option<()> {
        debug_assert_eq!(dictionaries.len(), calls.len(), "each call has a dictionary");
        let states = calls.iter().zip(&mut self.states).zip(dictionaries);
        let mut states = states.filter(|((call, _), _)| groups.intersects(call.groups));
        states.try_for_each(|((_, state), dictionary)| state.resolve(dictionary, RowsEnd::Oldest))
    }

    /// Appends the states to a node over so many rows.
    pub(crate) fn encode_node(
        &self,
        rows: u64,
        dictionaries: &mut [Arc<ValueDictionary>],
        states: &mut Vec<u8>,
    ) {
        debug_assert_eq!(dictionaries.len(), self.states.len(), "each call has a dictionary");
        for (state, dictionary) in self.states.iter().zip(dictionaries) {
            let is_encoded = state.encode_node(rows, dictionary, states);
            debug_assert!(is_encoded, "the rows are not the state");
        }
    }

    /// Writes the values of these groups' calls into their slots.
    pub(crate) fn finalize<'s>(
        &self,
        calls: &[RowCall],
        groups: GroupSet,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        debug_assert_eq!(calls.len(), self.states.len(), "each call has a state");
        for (call, state) in calls.iter().zip(&self.states) {
            if !groups.intersects(call.groups) {
                continue;
            }
            let value = call.bound.value(state, arena);
            for output in call.outputs.iter().filter(|output| groups.contains(output.group)) {
                slots[output.slot] = value;
            }
        }
    }
}

/// Evaluates the arguments of a call. Returns `false` where its condition is not true: then the row does not
/// count, and the others were not read.
#[inline]
fn evaluate<'s>(
    condition: Option<usize>,
    exprs: &'s [BoundExpr],
    values: &mut [Datum<'s>],
    mut eval: impl FnMut(&'s BoundExpr) -> Datum<'s>,
) -> bool {
    debug_assert_eq!(exprs.len(), values.len(), "a value for each argument");
    if let Some(at) = condition {
        values[at] = eval(&exprs[at]);
        if values[at] != Datum::Bool(true) {
            return false;
        }
    }
    for (at, (value, expr)) in values.iter_mut().zip(exprs).enumerate() {
        if Some(at) != condition {
            *value = eval(expr);
        }
    }
    true
}

impl fmt::Debug for RowCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowCall")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
