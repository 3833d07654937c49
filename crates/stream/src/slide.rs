//! The states of a window over one key, which slide from one frame to the next.

use std::ops::Range;

use lockstep_function::{
    AggregateState, BoundAggregate, RowsEnd, StateForm, StateUse,
    aggregate::state::{FoldSource, StateKind},
};
use lockstep_plan::{
    CurrentRow, FrameParts, FrameRange, SlidePlace, SlideStep, Window, has_beginning, state_use,
};
use lockstep_row::{Arena, Datum, Value};

use crate::{
    bug::{self, StreamBug},
    key_rows::Candidates,
    spec::{CallSpec, GroupSpec},
};

/// What the calls of a window have in common for all keys: which states there are.
#[derive(Debug)]
pub(crate) struct WindowStates {
    states: Vec<StateSpec>,
    has_beginning: bool,
}

/// A state, and the calls that it answers.
#[derive(Debug)]
struct StateSpec {
    /// The first of them adds rows, and removes them.
    calls: Vec<CallSpec>,
    /// The positions of the arguments among the columns of a candidate.
    lanes: Vec<usize>,
    used: StateUse,
}

/// A state along the frames of a key.
#[derive(Debug)]
pub(crate) struct SlidingState {
    running: AggregateState,
    place: SlidePlace,
}

impl WindowStates {
    /// Makes the states of a window. `lane` is the position of a column among those of a candidate.
    pub(crate) fn new(group: &GroupSpec, lane: impl Fn(usize) -> usize) -> Self {
        let mut states: Vec<(Option<_>, StateSpec)> = Vec::new();
        for call in &group.calls {
            let folded = folded(call);
            let is_same =
                |(known, _): &&mut (Option<_>, StateSpec)| folded.is_some() && *known == folded;
            match states.iter_mut().find(is_same) {
                Some((_, state)) => state.calls.push(call.clone()),
                None => states.push((folded, StateSpec::new(call, &group.window, &lane))),
            }
        }
        let states = states.into_iter().map(|(_, state)| state).collect();
        Self { states, has_beginning: has_beginning(&group.window) }
    }

    /// Makes the states of a key.
    pub(crate) fn of_key(&self) -> Box<[SlidingState]> {
        let state = |state: &StateSpec| SlidingState {
            running: state.bound().new_state(state.used),
            place: SlidePlace::default(),
        };
        self.states.iter().map(state).collect()
    }

    /// Computes the results of a frame: passes each with the position of its call. `own` has the columns of the
    /// current row.
    pub(crate) fn compute(
        &self,
        of_key: &mut [SlidingState],
        candidates: &Candidates<'_>,
        (frame, own): (&FrameRange, &[Value]),
        arena: &Arena,
        mut give: impl FnMut(usize, Value),
    ) {
        for (spec, SlidingState { running, place }) in self.states.iter().zip(of_key) {
            let bound = spec.bound();
            let Some(step) = place.slide(frame, bound.class()) else {
                spec.give_anew(candidates, (frame, own), arena, &mut give);
                continue;
            };
            let SlideStep { is_emptied, added, removed } = step;
            if is_emptied {
                running.reset();
            }
            spec.add(running, candidates, added, arena);
            spec.remove(running, candidates, removed, arena);
            let apart = frame.is_current_apart().then_some(own);
            for call in &spec.calls {
                give(call.output, call.answer(running, apart, arena));
            }
        }
    }

    /// Computes the results of a main row that is alone in its frame, if it is in it.
    pub(crate) fn compute_alone(
        &self,
        is_in_frame: bool,
        own: &[Value],
        arena: &Arena,
        mut give: impl FnMut(usize, Value),
    ) {
        let current = if is_in_frame { CurrentRow::Apart } else { CurrentRow::Absent };
        let frame = FrameRange::whole(0, 0, current, 0);
        for spec in &self.states {
            spec.give_anew(&Candidates::NONE, (&frame, own), arena, &mut give);
        }
    }

    /// Adds the candidates up to a position, which all later frames of a window without a beginning hold.
    pub(crate) fn take(
        &self,
        of_key: &mut [SlidingState],
        candidates: &Candidates<'_>,
        end: usize,
        arena: &Arena,
    ) {
        debug_assert!(!self.has_beginning, "rows are not removed");
        for (spec, SlidingState { running, place }) in self.states.iter().zip(of_key) {
            spec.add(running, candidates, place.end..end.max(place.end), arena);
            place.end = end.max(place.end);
        }
    }

    /// Takes note that the first candidates are dropped, which no later frame holds.
    pub(crate) fn forget(
        &self,
        of_key: &mut [SlidingState],
        candidates: &Candidates<'_>,
        count: usize,
        arena: &Arena,
    ) {
        for (spec, SlidingState { running, place }) in self.states.iter().zip(of_key) {
            if !self.has_beginning {
                debug_assert!(count <= place.end, "the state has them");
            } else if count >= place.end {
                running.reset();
                *place = SlidePlace { start: count, end: count };
            } else if place.start < count {
                if !bug::is_seeded(StreamBug::DroppedRowInState) {
                    spec.remove(running, candidates, place.start..count, arena);
                }
                place.start = count;
            }
            place.forget(count);
        }
    }
}

impl CallSpec {
    /// Returns its result from a state, and from the columns of a row that is added for it alone.
    fn answer(&self, state: &mut AggregateState, apart: Option<&[Value]>, arena: &Arena) -> Value {
        let Some(own) = apart else { return self.bound.value(state, arena).to_value() };
        with_arguments(own, &self.arguments, arena, |arguments| {
            self.bound.value_with(state, arguments, arena).to_value()
        })
    }
}

impl SlidingState {
    /// Returns about how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.running.heap_bytes()
    }
}

impl StateSpec {
    fn new(call: &CallSpec, window: &Window, lane: impl Fn(usize) -> usize) -> Self {
        Self {
            calls: vec![call.clone()],
            lanes: call.arguments.iter().map(|column| lane(*column)).collect(),
            used: state_use(&call.bound, window),
        }
    }

    fn bound(&self) -> &BoundAggregate {
        &self.calls[0].bound
    }

    /// Adds candidates at the newest end.
    fn add(
        &self,
        state: &mut AggregateState,
        candidates: &Candidates<'_>,
        rows: Range<usize>,
        arena: &Arena,
    ) {
        self.for_each(candidates, rows, arena, |arguments| {
            self.bound().add(state, arguments, RowsEnd::Newest);
        });
    }

    /// Removes candidates at the oldest end.
    fn remove(
        &self,
        state: &mut AggregateState,
        candidates: &Candidates<'_>,
        rows: Range<usize>,
        arena: &Arena,
    ) {
        self.for_each(candidates, rows, arena, |arguments| self.bound().remove(state, arguments));
    }

    /// Calls a function with the arguments of each of some candidates.
    #[inline]
    fn for_each(
        &self,
        candidates: &Candidates<'_>,
        rows: Range<usize>,
        arena: &Arena,
        mut apply: impl FnMut(&[Datum<'_>]),
    ) {
        for row in rows {
            with_arguments(candidates.row(row), &self.lanes, arena, &mut apply);
        }
    }

    /// Computes the results of a frame from all of its rows.
    fn give_anew(
        &self,
        candidates: &Candidates<'_>,
        (frame, own): (&FrameRange, &[Value]),
        arena: &Arena,
        give: &mut impl FnMut(usize, Value),
    ) {
        let state = self.anew(candidates, frame, own, arena);
        for call in &self.calls {
            give(call.output, call.bound.value(&state, arena).to_value());
        }
    }

    /// Makes a state of all rows of a frame.
    fn anew(
        &self,
        candidates: &Candidates<'_>,
        frame: &FrameRange,
        own: &[Value],
        arena: &Arena,
    ) -> AggregateState {
        let mut state = self.bound().new_state(StateUse::Fold);
        let FrameParts { before, is_current_between, after, is_current_last } = frame.parts();
        let add_own = |state: &mut AggregateState| {
            with_arguments(own, &self.calls[0].arguments, arena, |arguments| {
                self.bound().add(state, arguments, RowsEnd::Newest);
            });
        };
        self.add(&mut state, candidates, before, arena);
        if is_current_between {
            add_own(&mut state);
        }
        self.add(&mut state, candidates, after, arena);
        if is_current_last {
            add_own(&mut state);
        }
        state
    }
}

/// Returns what a call folds into what, by columns; `None` where it needs whole rows.
fn folded(call: &CallSpec) -> Option<(StateKind, FoldSource<usize>)> {
    match &call.bound.state {
        StateForm::Fold(fold) => Some((fold.state, fold.source(&call.arguments)?)),
        StateForm::Rows(_) => None,
    }
}

/// Calls a function with some of the columns of a row.
#[inline]
fn with_arguments<R>(
    row: &[Value],
    columns: &[usize],
    arena: &Arena,
    apply: impl FnOnce(&[Datum<'_>]) -> R,
) -> R {
    match columns {
        [] => apply(&[]),
        [only] => apply(&[row[*only].as_datum(arena)]),
        [first, second] => apply(&[row[*first].as_datum(arena), row[*second].as_datum(arena)]),
        columns => {
            let arguments = columns.iter().map(|column| row[*column].as_datum(arena));
            apply(arena.alloc_slice_fill_iter(arguments))
        }
    }
}
