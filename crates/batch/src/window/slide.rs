//! The computation of a group's calls: slides the frames along the rows of each key.
//!
//! [`slide`] computes some of a group's calls for a range of keys, or for a time slice of one; `exec`
//! runs many such tasks in parallel. A time slice begins by adding the whole frame of its first row.
//!
//! Which rows a frame holds is decided in [`frames`](super::frames). Where the current row is apart, which occurs
//! with `INSTANCE_NOT_IN_WINDOW`, with equal order values under EXCLUDE `CURRENT_TIME`, and there for the
//! last row of a key, it counts for its own result and is not added. A frame that is no range after the
//! last one is computed anew, and costs its rows ([`StateSlide::anew`]).
//!
//! Nothing is ever removed from a window without a beginning ([`lockstep_plan::has_beginning`]). Its states are those
//! of a fold where that is enough, and over the time slices of a key on disk they go on from one
//! slice to the next ([`super::carried`]).

use std::{mem, ops::Range};

use arrow::array::ArrayRef;
use lockstep_function::{AggregateState, BoundAggregate, RowsEnd, StateForm, StateUse};
use lockstep_plan::{FrameParts, FrameRange, SlidePlace, SlideStep, Window, state_use};
use lockstep_row::{
    Arena, Datum,
    arrow::{ColumnBuilder, ColumnReader},
};

use super::{
    call_lane::{CallLane, FoldedRange},
    carried::CarriedGroup,
    frames::{KeyFrames, SEGMENT_ROWS},
    partition::{Ordering, WindowChunk},
    shared_state::SharedState,
};

/// The approximate number of rows between two checks for an interrupt.
const ROWS_PER_CHECK: usize = 1 << 14;

/// How many rows of a frame count as one that is added, where a result may be computed over all of them.
const FRAME_ROWS_PER_ROW: usize = 64;

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// One call of a group.
#[derive(Debug)]
pub(super) struct WindowCall<'a> {
    /// The aggregate.
    pub(super) bound: &'a BoundAggregate,
    /// The columns of its arguments, over all rows of the window.
    pub(super) arguments: Vec<ArrayRef>,
}

/// The results of one task.
#[derive(Debug)]
pub(super) struct TaskOutput {
    /// The numbers of the main rows in the order of the results.
    pub(super) rows: Vec<u32>,
    /// One column for each call.
    pub(super) columns: Vec<ArrayRef>,
}

/// Computes the calls of some states for the main rows among some rows; the columns are in the order of
/// the states and their calls. Stops early, with rows missing, when the query is interrupted.
pub(super) fn slide(
    window: &Window,
    ordering: &Ordering,
    rows_of_keys: &WindowChunk,
    (calls, states): (&[WindowCall<'_>], &[SharedState]),
    options: SlideOptions<'_>,
) -> TaskOutput {
    let row_count = rows_of_keys.rows.len().min(ordering.current().len());
    let mut rows = Vec::with_capacity(row_count);
    let mut slides = StateSlides::new(calls, states, window, row_count);
    let mut frames = KeyFrames::default();
    'keys: for key in rows_of_keys.keys.clone() {
        if (options.is_interrupted)() {
            break;
        }
        let carried = (options.carried)(key);
        slides.begin_key(carried);
        frames.begin(window, ordering, key, &rows_of_keys.rows);
        while frames.next(window, ordering) {
            rows.extend(frames.frames.iter().map(|frame| frame.row));
            if !slides.run(&frames, options.is_interrupted) {
                break 'keys;
            }
        }
        if let Some(carried) = carried {
            let end = frames.of_next(window, ordering, key).end;
            slides.end_key(carried, &frames, end, options.is_interrupted);
        }
    }
    if options.with_unordered {
        let unordered = ordering.unordered.iter().filter(|row| ordering.is_current(**row));
        let unordered: Vec<u32> = unordered.copied().collect();
        slides.begin_apart();
        for some in unordered.chunks(SEGMENT_ROWS) {
            frames.set_unordered(window, some);
            if !slides.run(&frames, options.is_interrupted) {
                break;
            }
        }
        rows.extend(unordered);
    }
    TaskOutput { rows, columns: slides.finish() }
}

/// Returns about how many bytes [`slide`] takes for so many rows beside its results and states.
pub(super) fn slide_bytes(row_count: usize) -> usize {
    row_count * size_of::<u32>()
}

/// The options of [`slide`].
#[derive(Clone, Copy)]
pub(super) struct SlideOptions<'a> {
    /// Whether to add the main rows whose order value is NULL.
    pub(super) with_unordered: bool,
    /// Returns whether the query was interrupted; called for each key, and every
    /// [`ROWS_PER_CHECK`] rows of one.
    pub(super) is_interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Returns the states of a key that goes on from one time slice to the next, and which of them is
    /// the first one here.
    pub(super) carried: &'a (dyn Fn(usize) -> Option<Carried<'a>> + Sync),
}

/// The carried states of a group, and which of them is the first one of a task.
pub(super) type Carried<'a> = (&'a CarriedGroup, usize);

/// The computation of some states along the keys, segment by segment.
struct StateSlides<'a> {
    /// The values that states take in blocks, each once for all states that take them.
    lanes: Vec<CallLane<'a>>,
    states: Vec<StateSlide<'a>>,
}

impl<'a> StateSlides<'a> {
    /// Makes the slides of some states of a window for about so many rows.
    fn new(
        calls: &'a [WindowCall<'a>],
        states: &[SharedState],
        window: &Window,
        row_count: usize,
    ) -> Self {
        let mut lanes: Vec<CallLane<'a>> = Vec::new();
        let states = states.iter().map(|state| {
            let calls = state.calls.iter().map(|call| &calls[*call]);
            let mut slide = StateSlide::new(calls, window, row_count);
            let first = &slide.answers[0];
            slide.lane = CallLane::of(first.bound, first.arguments).map(|lane| {
                let counts_rows = lane.counts_rows();
                let at =
                    lanes.iter().position(|known| known.includes(&lane) || lane.includes(known));
                match at {
                    None => lanes.push(lane),
                    Some(at) if lanes[at].includes(&lane) => {}
                    // Its states count the rows whose values the new one reads.
                    Some(at) => lanes[at] = lane,
                }
                UsedLane { at: at.unwrap_or(lanes.len() - 1), counts_rows }
            });
            slide
        });
        let states = states.collect();
        Self { lanes, states }
    }

    /// Begins with a key, with the states that were carried to it.
    fn begin_key(&mut self, carried: Option<Carried<'_>>) {
        self.lanes.iter_mut().for_each(CallLane::clear);
        for (at, state) in self.states.iter_mut().enumerate() {
            state.place = SlidePlace::default();
            match carried {
                None => state.running.reset(),
                Some((group, first)) => {
                    mem::swap(&mut state.running, &mut group.states[first + at].lock());
                    state.place.end = group.folded;
                }
            }
        }
    }

    /// Begins with rows that are beside their frames.
    fn begin_apart(&mut self) {
        for state in &mut self.states {
            state.running = state.answers[0].bound.new_state(StateUse::Slide);
        }
        self.begin_key(None);
    }

    /// Ends a key whose states are carried, which have the candidates up to `end` then, unless the query is
    /// interrupted.
    fn end_key(
        &mut self,
        (group, first): Carried<'_>,
        frames: &KeyFrames<'_>,
        end: usize,
        is_interrupted: &dyn Fn() -> bool,
    ) {
        for (at, state) in self.states.iter_mut().enumerate() {
            for start in (state.place.end..end).step_by(ROWS_PER_CHECK) {
                if is_interrupted() {
                    return;
                }
                let some = start..end.min(start + ROWS_PER_CHECK);
                state.change(&mut self.lanes, frames.candidates, (some, end), FeedDirection::Add);
            }
            mem::swap(&mut state.running, &mut group.states[first + at].lock());
        }
    }

    /// Computes the results of some frames of the key. Stops early, and returns false, when the query is
    /// interrupted.
    fn run(&mut self, frames: &KeyFrames<'_>, is_interrupted: &dyn Fn() -> bool) -> bool {
        let lanes = &mut self.lanes;
        self.states.iter_mut().all(|state| state.run(lanes, frames, is_interrupted))
    }

    /// Returns the results, call by call.
    fn finish(self) -> Vec<ArrayRef> {
        let answers = self.states.into_iter().flat_map(|state| state.answers);
        answers.map(|mut answers| answers.results.finish()).collect()
    }
}

/// A state along the keys, and the calls that it answers.
struct StateSlide<'a> {
    answers: Vec<CallAnswers<'a>>,
    /// The values, where the state takes blocks of them.
    lane: Option<UsedLane>,
    running: AggregateState,
    /// A state of frames that are computed anew.
    anew: Option<AggregateState>,
    /// The candidates that the state has.
    place: SlidePlace,
    /// The rows since the last check for an interrupt.
    fed: usize,
    arena: Arena,
}

/// The results of a call.
struct CallAnswers<'a> {
    bound: &'a BoundAggregate,
    arguments: &'a [ArrayRef],
    readers: Vec<ColumnReader<'a>>,
    results: ColumnBuilder,
}

/// A lane that a state takes its values from.
#[derive(Debug, Clone, Copy)]
struct UsedLane {
    at: usize,
    /// Whether only the rows that count matter.
    counts_rows: bool,
}

impl<'a> StateSlide<'a> {
    fn new(
        calls: impl Iterator<Item = &'a WindowCall<'a>>,
        window: &Window,
        row_count: usize,
    ) -> Self {
        let answers = calls.map(|call| CallAnswers {
            bound: call.bound,
            arguments: &call.arguments,
            readers: call.arguments.iter().map(|column| ColumnReader::new(column)).collect(),
            results: ColumnBuilder::new(&call.bound.returns, row_count),
        });
        let answers: Vec<_> = answers.collect();
        let first = answers[0].bound;
        Self {
            running: first.new_state(state_use(first, window)),
            answers,
            lane: None,
            anew: None,
            place: SlidePlace::default(),
            fed: 0,
            arena: Arena::new(),
        }
    }

    /// Computes the results of some frames of a key. Returns whether it was not interrupted.
    fn run(
        &mut self,
        lanes: &mut [CallLane<'a>],
        key: &KeyFrames<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> bool {
        let needs_rows = matches!(self.answers[0].bound.state, StateForm::Rows(_));
        let class = self.answers[0].bound.class();
        // Until where frames move forward.
        let (mut last_start, mut last_end) = (0, 0);
        for frame in key.frames.iter().filter(|frame| frame.slides(class)) {
            let (start, end) = (frame.start as usize, frame.end_of_rows());
            (last_start, last_end) = (last_start.max(start), last_end.max(end));
        }
        for frame in &key.frames {
            if self.fed >= ROWS_PER_CHECK {
                self.fed = 0;
                if is_interrupted() {
                    return false;
                }
            }
            let Some(SlideStep { is_emptied, added, removed }) = self.place.slide(frame, class)
            else {
                self.anew(key.candidates, frame);
                continue;
            };
            if is_emptied {
                self.running.reset();
            }
            self.fed += 1 + added.len() + removed.len();
            if needs_rows {
                // A result, or a step, may take a time that grows with the rows of the frame.
                let rows = frame.end_of_rows() - frame.start as usize;
                self.fed += rows / FRAME_ROWS_PER_ROW;
            }
            self.change(lanes, key.candidates, (added, last_end), FeedDirection::Add);
            self.change(lanes, key.candidates, (removed, last_start), FeedDirection::Remove);
            let counts = |lane: UsedLane| lanes[lane.at].counts(frame.row);
            let is_apart = frame.is_current_apart() && self.lane.is_none_or(counts);
            let Self { answers, running, arena, .. } = self;
            for CallAnswers { bound, readers, results, .. } in answers {
                if !is_apart {
                    results.push(bound.value(running, arena));
                    continue;
                }
                for_each_row(readers, &[frame.row], arena, |row| {
                    results.push(bound.value_with(running, row, arena));
                });
            }
            self.empty_arena();
        }
        true
    }

    /// Computes the result of a frame from all of its rows.
    fn anew(&mut self, candidates: &[u32], frame: &FrameRange) {
        let bound = self.answers[0].bound;
        let mut state = self.anew.take().unwrap_or_else(|| bound.new_state(StateUse::Slide));
        state.reset();
        let FrameParts { before, is_current_between, after, is_current_last } = frame.parts();
        debug_assert!(after.end <= candidates.len(), "a frame is of candidates");
        let own = [frame.row];
        let own_if = |is_there: bool| if is_there { &own[..] } else { &[] };
        let (between, last) = (own_if(is_current_between), own_if(is_current_last));
        let parts = [&candidates[before], between, &candidates[after], last];
        self.fed += 1 + parts.iter().map(|rows| rows.len()).sum::<usize>();
        let readers = &self.answers[0].readers;
        for rows in parts {
            for_each_row(readers, rows, &self.arena, |arguments| {
                bound.add(&mut state, arguments, RowsEnd::Newest);
            });
        }
        for CallAnswers { bound, results, .. } in &mut self.answers {
            results.push(bound.value(&state, &self.arena));
        }
        self.anew = Some(state);
        self.empty_arena();
    }

    /// Adds or removes some candidates; none is read from `read_end` on.
    #[inline]
    fn change(
        &mut self,
        lanes: &mut [CallLane<'a>],
        candidates: &[u32],
        (range, read_end): (Range<usize>, usize),
        change: FeedDirection,
    ) {
        let Some(UsedLane { at, counts_rows }) = self.lane else {
            return self.feed(&candidates[range], change);
        };
        let (state, lane) = (&mut self.running, &mut lanes[at]);
        let range = FoldedRange { candidates, range, read_end };
        match change {
            FeedDirection::Add => lane.add(range, counts_rows, |values| state.add(values)),
            FeedDirection::Remove => lane.remove(range, counts_rows, |values| state.remove(values)),
        }
    }

    fn feed(&mut self, rows: &[u32], change: FeedDirection) {
        let CallAnswers { bound, readers, .. } = &self.answers[0];
        let running = &mut self.running;
        for_each_row(readers, rows, &self.arena, |arguments| match change {
            FeedDirection::Add => bound.add(running, arguments, RowsEnd::Newest),
            FeedDirection::Remove => bound.remove(running, arguments),
        });
    }

    fn empty_arena(&mut self) {
        if self.arena.allocated_bytes() > ARENA_BYTES_MAX {
            self.arena.reset();
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedDirection {
    Add,
    Remove,
}

/// Calls a function with the arguments of each row.
#[inline]
fn for_each_row<'a>(
    readers: &[ColumnReader<'a>],
    rows: &[u32],
    arena: &'a Arena,
    mut apply: impl FnMut(&[Datum<'a>]),
) {
    match readers {
        [only] => {
            for row in rows {
                apply(&[only.get(*row as usize, arena)]);
            }
        }
        [first, second] => {
            for row in rows {
                let row = *row as usize;
                apply(&[first.get(row, arena), second.get(row, arena)]);
            }
        }
        readers => {
            let mut arguments = Vec::with_capacity(readers.len());
            for row in rows {
                arguments.clear();
                arguments.extend(readers.iter().map(|reader| reader.get(*row as usize, arena)));
                apply(&arguments);
            }
        }
    }
}

#[cfg(test)]
mod tests;
