//! The computation of a group's calls: slides the frames along the rows of each key.
//!
//! [`slide`] computes some of a group's calls for a range of keys, or for a time slice of one; `exec`
//! runs many such tasks in parallel. A time slice begins by adding the whole frame of its first row.
//!
//! The candidates of a key are in event order. For the main rows in that order, the rows of a frame
//! that precede the current row are a range `start..end` of the candidates, and neither end ever
//! moves back; so rows are added to a state at the new end and removed at the old one. The
//! current row itself is handled in one of three ways ([`CurrentRow`]). In the last one, which occurs
//! with `INSTANCE_NOT_IN_WINDOW`, with equal order values under EXCLUDE `CURRENT_TIME`, and there for the
//! last row of a key, it counts for its own result and is not added.
//!
//! Nothing is ever removed from a window without a beginning ([`has_beginning`]). Its states are those
//! of a fold where that is enough, and over the time slices of a key on disk they go on from one
//! slice to the next ([`super::carried`]).

use std::{mem, ops::Range};

use arrow::array::ArrayRef;
use lockstep_function::{AggregateState, BoundAggregate, RowsEnd, StateForm, StateUse};
use lockstep_plan::{Frame, Window};
use lockstep_row::{
    Arena, Datum,
    arrow::{ColumnBuilder, ColumnReader},
};

use super::{
    call_lane::{BLOCK_ROWS, CallLane, FoldedRange},
    carried::CarriedGroup,
    partition::{Ordering, WindowChunk},
    shared_state::SharedState,
};

/// The approximate number of rows between two checks for an interrupt.
const ROWS_PER_CHECK: usize = 1 << 14;

/// How many frames of a key are computed together, call by call.
const SEGMENT_ROWS: usize = if cfg!(test) { 5 } else { 512 };

/// How many rows of a frame count as one that is added, where a result may be computed over all of them.
const FRAME_ROWS_PER_ROW: usize = 64;

/// The arena is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// How the current row takes part in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CurrentRow {
    /// It is not in the frame.
    Absent,
    /// It is the candidate after the range.
    Next,
    /// It is in the frame, and is not the candidate after the range.
    Apart,
}

/// The frame of one main row.
#[derive(Debug, Clone, Copy)]
struct FrameRange {
    start: u32,
    end: u32,
    current: CurrentRow,
    /// The number of the main row.
    row: u32,
}

impl FrameRange {
    /// Returns one past the last candidate that is added.
    fn end_of_rows(&self) -> usize {
        self.end as usize + usize::from(self.current == CurrentRow::Next)
    }
}

/// The frames of one key, some of them at a time.
#[derive(Debug, Default)]
struct KeyFrames<'o> {
    /// The numbers of the candidates, in event order.
    candidates: &'o [u32],
    /// Their order values.
    orders: &'o [i64],
    /// The greatest order value of the key's rows, which may be none of a candidate.
    last_order: i64,
    /// The positions of the rows whose frames come next.
    rest: Range<usize>,
    /// How many candidates precede the first of them.
    preceding: usize,
    ends: FrameEnds,
    /// The start and the end of the last frame.
    reached: (usize, usize),
    /// The frames of this segment.
    frames: Vec<FrameRange>,
}

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
            let end = frames.of_later(window).end as usize;
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

impl<'o> KeyFrames<'o> {
    /// Begins with the main rows of a key that are at some positions.
    fn begin(
        &mut self,
        window: &Window,
        ordering: &'o Ordering,
        key: usize,
        positions: &Range<usize>,
    ) {
        self.set_candidates(window, ordering, key);
        let key = ordering.key(key);
        let start = key.start.max(positions.start);
        self.preceding = candidates_among(window, ordering, key.start..start);
        self.rest = start..key.end.min(positions.end);
        self.ends = FrameEnds::default();
        self.reached = (0, 0);
    }

    /// Finds the next frames: so few that the candidates which are added for them fit into one block, and so
    /// do those that are removed, unless a single frame needs more. Returns whether there are some.
    fn next(&mut self, window: &Window, ordering: &Ordering) -> bool {
        self.frames.clear();
        let (start, end) = self.reached;
        while self.rest.start < self.rest.end {
            let (row, order) = (ordering.rows[self.rest.start], ordering.orders[self.rest.start]);
            if ordering.is_current(row) {
                self.ends.advance(window, self.orders, self.preceding, order);
                let frame = self.ends.frame(window, self.orders, self.preceding, row);
                let reached = (frame.start as usize, frame.end_of_rows());
                let is_long = reached.0 - start > BLOCK_ROWS || reached.1 - end > BLOCK_ROWS;
                if self.frames.len() == SEGMENT_ROWS || is_long && !self.frames.is_empty() {
                    break;
                }
                self.frames.push(frame);
                self.reached = reached;
            }
            // A main row is its own successor's candidate unless the window says otherwise.
            let is_candidate = self.candidates.get(self.preceding) == Some(&row);
            self.preceding += usize::from(is_candidate);
            self.rest.start += 1;
        }
        !self.frames.is_empty()
    }

    /// Finds the rows that frames of a key may hold.
    fn set_candidates(&mut self, window: &Window, ordering: &'o Ordering, key: usize) {
        (self.candidates, self.orders) = ordering.candidates(key, window.instance_not_in_window);
        self.last_order = ordering.orders[ordering.key(key)].last().copied().unwrap_or(0);
    }

    /// Returns the frame of a row after the last one of the key.
    fn of_later(&self, window: &Window) -> FrameRange {
        let mut ends = FrameEnds::default();
        let count = self.candidates.len();
        ends.advance(window, self.orders, count, self.last_order);
        ends.frame(window, self.orders, count, 0)
    }

    /// Gives each of these rows a frame without any other row.
    fn set_unordered(&mut self, window: &Window, rows: &[u32]) {
        (self.candidates, self.orders) = (&[], &[]);
        self.frames.clear();
        let current = if has_current_row(window) { CurrentRow::Apart } else { CurrentRow::Absent };
        let frame = |row: &u32| FrameRange { start: 0, end: 0, current, row: *row };
        self.frames.extend(rows.iter().map(frame));
    }
}

/// Returns whether the frames of a window leave rows behind them.
pub(super) fn has_beginning(window: &Window) -> bool {
    match window.frame {
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => {
            window.max_size.is_some()
        }
        Frame::Rows { .. } | Frame::Range { .. } => true,
    }
}

/// The candidates of a key that rows after its last one need.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaterRows {
    /// The position of the first of them; the end of the key if there is none.
    pub(super) first: usize,
    /// How many candidates are before it.
    pub(super) passed: usize,
}

/// Returns the rows of a key that later rows need: those that their frames may hold, or, where states are
/// carried, those that no state has yet.
pub(super) fn later_rows(window: &Window, ordering: &Ordering, key: usize) -> LaterRows {
    let mut frames = KeyFrames::default();
    frames.set_candidates(window, ordering, key);
    let passed = match has_beginning(window) {
        true => frames.of_later(window).start as usize,
        false => frames.of_later(window).end as usize,
    };
    let key = ordering.key(key);
    let first = frames.candidates.get(passed);
    let position = |row: &u32| ordering.rows[key.clone()].iter().position(|other| other == row);
    LaterRows {
        first: first.and_then(position).map_or(key.end, |position| key.start + position),
        passed,
    }
}

/// Returns how many of some rows of a key are candidates.
pub(super) fn candidates_among(window: &Window, ordering: &Ordering, rows: Range<usize>) -> usize {
    let is_candidate = |row: &&u32| !window.instance_not_in_window || !ordering.main.contains(row);
    ordering.rows[rows].iter().filter(is_candidate).count()
}

/// Returns how many of the `at` rows before a row of a key its frame may hold.
pub(super) fn rows_before(window: &Window, orders: &[i64], at: usize) -> usize {
    let rows = match window.frame {
        Frame::Rows { from: Some(from), .. } => usize::try_from(from).unwrap_or(usize::MAX),
        Frame::Range { from: Some(from), .. } => {
            let is_beyond = |order: &i64| i128::from(orders[at]) - i128::from(*order) > from.into();
            at - orders[..at].partition_point(is_beyond)
        }
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => at,
    };
    let max = window.max_size.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    rows.min(max).min(at)
}

/// Returns whether the frame holds the current row.
fn has_current_row(window: &Window) -> bool {
    let reaches = match window.frame {
        Frame::Rows { to, .. } => to == 0,
        Frame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
    };
    reaches && !window.exclude_current_row
}

/// Positions in the candidates that only move forward from one main row of a key to the next.
#[derive(Debug, Default)]
struct FrameEnds {
    /// The first candidate within the frame's greatest distance in time.
    oldest: usize,
    /// One past the last candidate beyond the frame's smallest distance in time.
    newest: usize,
    /// The first candidate with the current order value.
    equal: usize,
    order: i64,
}

impl FrameEnds {
    fn advance(&mut self, window: &Window, orders: &[i64], preceding: usize, order: i64) {
        let step = |place: &mut usize, is_before: &dyn Fn(i64) -> bool| {
            while *place < preceding && is_before(orders[*place]) {
                *place += 1;
            }
        };
        self.order = order;
        if window.exclude_current_time {
            step(&mut self.equal, &|value| value < order);
        }
        if let Frame::Range { from, to } = window.frame {
            let distance = |value: i64| i128::from(order) - i128::from(value);
            if let Some(from) = from {
                step(&mut self.oldest, &|value| distance(value) > i128::from(from));
            }
            step(&mut self.newest, &|value| distance(value) >= i128::from(to));
        }
    }

    fn frame(&self, window: &Window, orders: &[i64], preceding: usize, row: u32) -> FrameRange {
        let history = if window.exclude_current_time { self.equal } else { preceding };
        let (start, end) = match window.frame {
            Frame::Rows { from, to } => {
                let place = |position: u64| {
                    history.saturating_sub(usize::try_from(position).unwrap_or(usize::MAX))
                };
                // Position 0 is the current row, so history begins at 1.
                let end = if to == 0 { history } else { place(to.saturating_sub(1)) };
                (from.map_or(0, place), end)
            }
            Frame::Range { .. } => (self.oldest, self.newest.min(history)),
        };
        let has_current = has_current_row(window);
        let preceding_max = window.max_size.map_or(usize::MAX, |rows| {
            usize::try_from(rows).unwrap_or(usize::MAX).saturating_sub(usize::from(has_current))
        });
        let start = start.max(end.saturating_sub(preceding_max)).min(end);
        debug_assert!(start <= end && end <= preceding, "a frame is of preceding candidates");
        let current = match has_current {
            false => CurrentRow::Absent,
            true if self.is_next(window, orders, preceding, end) => CurrentRow::Next,
            true => CurrentRow::Apart,
        };
        let place = |at: usize| u32::try_from(at).expect("rows are numbered in 32 bits");
        FrameRange { start: place(start), end: place(end), current, row }
    }

    /// Returns whether the current row is the candidate after the range, and the next frame's range
    /// will not end before it.
    fn is_next(&self, window: &Window, orders: &[i64], preceding: usize, end: usize) -> bool {
        if window.instance_not_in_window || end != preceding {
            return false;
        }
        // After the last row of a time slice there may be an equal one in the next slice.
        let follower_may_be_equal = orders.get(end + 1).is_none_or(|order| *order == self.order);
        !(window.exclude_current_time && follower_may_be_equal)
    }
}

/// Returns how the states of a call are used: removals need more than a fold, and so does a current row
/// that counts without being added.
pub(super) fn state_use(bound: &BoundAggregate, window: &Window) -> StateUse {
    let may_be_apart = window.exclude_current_time || window.instance_not_in_window;
    match &bound.state {
        StateForm::Fold(_) if !has_beginning(window) && !may_be_apart => StateUse::Fold,
        StateForm::Fold(_) | StateForm::Rows(_) => StateUse::Slide,
    }
}

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
            (state.start, state.end) = (0, 0);
            match carried {
                None => state.running.reset(),
                Some((group, first)) => {
                    mem::swap(&mut state.running, &mut group.states[first + at].lock());
                    state.end = group.folded;
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
            for start in (state.end..end).step_by(ROWS_PER_CHECK) {
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
    /// The candidates that the state has.
    start: usize,
    end: usize,
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
            start: 0,
            end: 0,
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
        let Some(last) = key.frames.last() else { return true };
        // Frames only move forward.
        let (last_start, last_end) = (last.start as usize, last.end_of_rows());
        let needs_rows = matches!(self.answers[0].bound.state, StateForm::Rows(_));
        for frame in &key.frames {
            if self.fed >= ROWS_PER_CHECK {
                self.fed = 0;
                if is_interrupted() {
                    return false;
                }
            }
            let (frame_start, frame_end) = (frame.start as usize, frame.end_of_rows());
            // A state that was carried has rows before the first candidate.
            if frame_start >= self.end && frame_start > 0 {
                self.running.reset();
                (self.start, self.end) = (frame_start, frame_start);
            }
            let (start, end) = (self.start, self.end);
            debug_assert!(start <= frame_start && end <= frame_end, "frames only move forward");
            self.fed += 1 + (frame_end - end) + (frame_start - start);
            if needs_rows {
                // A result, or a step, may take a time that grows with the rows of the frame.
                self.fed += (frame_end - frame_start) / FRAME_ROWS_PER_ROW;
            }
            let (added, removed) = ((end..frame_end, last_end), (start..frame_start, last_start));
            self.change(lanes, key.candidates, added, FeedDirection::Add);
            self.change(lanes, key.candidates, removed, FeedDirection::Remove);
            (self.start, self.end) = (frame_start, frame_end);
            let counts = |lane: UsedLane| lanes[lane.at].counts(frame.row);
            let is_apart = frame.current == CurrentRow::Apart && self.lane.is_none_or(counts);
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
