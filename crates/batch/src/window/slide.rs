//! The computation of a group's calls: slides the frames along the rows of each key.
//!
//! [`slide`] computes some of a group's calls for a range of keys, or for a time slice of one; `exec`
//! runs many such tasks in parallel. A time slice begins by adding the whole frame of its first row.
//!
//! The candidates of a key are in event order. For the main rows in that order, the rows of a frame
//! that precede the current row are a range `start..end` of the candidates, and neither end ever
//! moves back; so rows are added to a state at the new end and removed at the old one. The
//! current row itself is handled in one of three ways ([`CurrentRow`]). In the last one, which occurs
//! with `INSTANCE_NOT_IN_WINDOW` and with equal order values under EXCLUDE `CURRENT_TIME`, it counts for
//! its own result and is not added.
//!
//! Nothing is ever removed from a window without a beginning ([`has_beginning`]). Its states are those
//! of a fold where that is enough, and over the time slices of a key on disk they go on from one
//! slice to the next ([`super::carried`]).

use std::{borrow::Cow, ops::Range};

use arrow::array::ArrayRef;
use lockstep_function::{AggregateState, BoundAggregate, RowsEnd, StateForm, StateUse};
use lockstep_plan::{Frame, Window};
use lockstep_row::{
    Arena, Datum,
    arrow::{ColumnBuilder, ColumnReader},
};

use super::{
    call_lane::CallLane,
    carried::CarriedGroup,
    partition::{Ordering, WindowChunk},
};

/// The approximate number of rows between two checks for an interrupt.
const ROWS_PER_CHECK: usize = 1 << 14;

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

/// The frames of one key.
#[derive(Debug, Default)]
struct KeyFrames<'o> {
    /// The numbers of the candidates, in event order.
    candidates: Cow<'o, [u32]>,
    /// Their order values.
    orders: Cow<'o, [i64]>,
    /// The greatest order value of the key's rows, which may be none of a candidate.
    last_order: i64,
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

/// Computes `calls` for the main rows among some rows. Stops early, with rows missing, when the
/// query is interrupted.
pub(super) fn slide(
    window: &Window,
    ordering: &Ordering,
    rows_of_keys: &WindowChunk,
    calls: &[WindowCall<'_>],
    options: SlideOptions<'_>,
) -> TaskOutput {
    let row_count = rows_of_keys.rows.len().min(ordering.current().len());
    let mut rows = Vec::with_capacity(row_count);
    let mut slides: Vec<_> =
        calls.iter().map(|call| CallSlide::new(call, window, row_count)).collect();
    let mut key_frames = KeyFrames::default();
    for key in rows_of_keys.keys.clone() {
        if (options.is_interrupted)() {
            break;
        }
        key_frames.set(window, ordering, ordering.key(key), &rows_of_keys.rows);
        rows.extend(key_frames.frames.iter().map(|frame| frame.row));
        match (options.carried)(key) {
            None => {
                for slide in &mut slides {
                    slide.run(&key_frames, options.is_interrupted);
                }
            }
            Some((group, first_call)) => {
                let end = key_frames.of_later(window).end as usize;
                for (slide, state) in slides.iter_mut().zip(&group.states[first_call..]) {
                    slide.go_on(
                        &mut state.lock(),
                        group.folded..end,
                        &key_frames,
                        options.is_interrupted,
                    );
                }
            }
        }
    }
    if options.with_unordered {
        let unordered = || ordering.unordered.iter().filter(|row| ordering.is_current(**row));
        key_frames.set_unordered(window, unordered().copied());
        rows.extend(unordered());
        for slide in &mut slides {
            // The current row is beside its frame.
            slide.running = slide.bound.new_state(StateUse::Slide);
            slide.run(&key_frames, options.is_interrupted);
        }
    }
    TaskOutput {
        rows,
        columns: slides.into_iter().map(|mut slide| slide.results.finish()).collect(),
    }
}

/// Returns about how many bytes [`slide`] takes for so many rows beside its results and states.
pub(super) fn frame_bytes(row_count: usize) -> usize {
    row_count * (size_of::<FrameRange>() + size_of::<u32>())
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
    /// that of the first call.
    pub(super) carried: &'a (dyn Fn(usize) -> Option<(&'a CarriedGroup, usize)> + Sync),
}

impl<'o> KeyFrames<'o> {
    /// Finds the frames of the main rows of a key that are at some positions.
    fn set(
        &mut self,
        window: &Window,
        ordering: &'o Ordering,
        key: Range<usize>,
        positions: &Range<usize>,
    ) {
        self.frames.clear();
        self.set_candidates(window, ordering, key.clone());
        let start = key.start.max(positions.start);
        let is_main = |row: &u32| ordering.main.contains(row);
        let mut preceding = match window.instance_not_in_window {
            true => ordering.rows[key.start..start].iter().filter(|row| !is_main(row)).count(),
            false => start - key.start,
        };
        let current = start..key.end.min(positions.end);
        let mut ends = FrameEnds::default();
        for (row, order) in ordering.rows[current.clone()].iter().zip(&ordering.orders[current]) {
            if ordering.is_current(*row) {
                ends.advance(window, &self.orders, preceding, *order);
                self.frames.push(ends.frame(window, &self.orders, preceding, *row));
            }
            // A main row is its own successor's candidate unless the window says otherwise.
            preceding += usize::from(self.candidates.get(preceding) == Some(row));
        }
    }

    /// Finds the rows that frames of a key may hold.
    fn set_candidates(&mut self, window: &Window, ordering: &'o Ordering, key: Range<usize>) {
        let (rows, orders) = (&ordering.rows[key.clone()], &ordering.orders[key]);
        self.last_order = orders.last().copied().unwrap_or(0);
        if !window.instance_not_in_window {
            (self.candidates, self.orders) = (Cow::Borrowed(rows), Cow::Borrowed(orders));
            return;
        }
        let others = rows.iter().zip(orders).filter(|(row, _)| !ordering.main.contains(row));
        let (rows, orders): (Vec<u32>, Vec<i64>) = others.unzip();
        (self.candidates, self.orders) = (Cow::Owned(rows), Cow::Owned(orders));
    }

    /// Returns the frame of a row after the last one of the key.
    fn of_later(&self, window: &Window) -> FrameRange {
        let mut ends = FrameEnds::default();
        let count = self.candidates.len();
        ends.advance(window, &self.orders, count, self.last_order);
        ends.frame(window, &self.orders, count, 0)
    }

    /// Gives each of these rows a frame without any other row.
    fn set_unordered(&mut self, window: &Window, rows: impl Iterator<Item = u32>) {
        self.candidates = Cow::Borrowed(&[]);
        self.orders = Cow::Borrowed(&[]);
        self.frames.clear();
        let current = if has_current_row(window) { CurrentRow::Apart } else { CurrentRow::Absent };
        self.frames.extend(rows.map(|row| FrameRange { start: 0, end: 0, current, row }));
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
pub(super) fn later_rows(window: &Window, ordering: &Ordering, key: Range<usize>) -> LaterRows {
    let mut frames = KeyFrames::default();
    frames.set_candidates(window, ordering, key.clone());
    let passed = match has_beginning(window) {
        true => frames.of_later(window).start as usize,
        false => frames.of_later(window).end as usize,
    };
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

/// The state of computing one call along the keys.
struct CallSlide<'a> {
    bound: &'a BoundAggregate,
    /// The values, where the state takes blocks of them.
    lane: Option<CallLane<'a>>,
    readers: Vec<ColumnReader<'a>>,
    running: AggregateState,
    results: ColumnBuilder,
    arena: Arena,
}

impl<'a> CallSlide<'a> {
    /// Makes the slide of a call of a window for about so many rows.
    fn new(call: &'a WindowCall<'a>, window: &Window, row_count: usize) -> Self {
        Self {
            bound: call.bound,
            lane: CallLane::of(call.bound, &call.arguments),
            readers: call.arguments.iter().map(|column| ColumnReader::new(column)).collect(),
            running: call.bound.new_state(state_use(call.bound, window)),
            results: ColumnBuilder::new(&call.bound.returns, row_count),
            arena: Arena::new(),
        }
    }

    /// Computes the results of a key.
    fn run(&mut self, key: &KeyFrames<'_>, is_interrupted: &dyn Fn() -> bool) {
        self.running.reset();
        let end = key.frames.last().map_or(0, FrameRange::end_of_rows);
        self.run_from(0, end, key, is_interrupted);
    }

    /// Computes the results of a key of a window without a beginning, with its state, which has the first
    /// candidates of `range`, and has all of them afterwards.
    fn go_on(
        &mut self,
        state: &mut AggregateState,
        range: Range<usize>,
        key: &KeyFrames<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) {
        std::mem::swap(&mut self.running, state);
        let end = self.run_from(range.start, range.end, key, is_interrupted);
        self.add(&key.candidates, end..range.end, range.end);
        std::mem::swap(&mut self.running, state);
    }

    /// Computes the results of a key with a state that has its candidates up to `end`. None is read from
    /// `read_end` on. Returns up to which the state has them afterwards.
    fn run_from(
        &mut self,
        mut end: usize,
        read_end: usize,
        key: &KeyFrames<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> usize {
        self.lane.iter_mut().for_each(CallLane::clear);
        let Some(last) = key.frames.last() else { return end };
        // Frames only move forward.
        let last_start = last.start as usize;
        let mut start = 0;
        let mut fed = 0;
        for frame in &key.frames {
            if fed >= ROWS_PER_CHECK {
                fed = 0;
                if is_interrupted() {
                    return end;
                }
            }
            let frame_end = frame.end_of_rows();
            let frame_start = frame.start as usize;
            // A state that was carried has rows before the first candidate.
            if frame_start >= end && frame_start > 0 {
                self.running.reset();
                (start, end) = (frame_start, frame_start);
            }
            debug_assert!(start <= frame_start && end <= frame_end, "frames only move forward");
            fed += 1 + (frame_end - end) + (frame_start - start);
            if let StateForm::Rows(_) = self.bound.state {
                // A result, or a step, may take a time that grows with the rows of the frame.
                fed += (frame_end - frame_start) / FRAME_ROWS_PER_ROW;
            }
            self.add(&key.candidates, end..frame_end, read_end);
            self.remove(&key.candidates, start..frame_start, last_start);
            (start, end) = (frame_start, frame_end);
            let (bound, running, arena) = (self.bound, &mut self.running, &self.arena);
            let results = &mut self.results;
            let counts = |lane: &CallLane<'_>| lane.counts(frame.row);
            if frame.current == CurrentRow::Apart && self.lane.as_ref().is_none_or(counts) {
                for_each_row(&self.readers, &[frame.row], arena, |row| {
                    results.push(bound.value_with(running, row, arena));
                });
            } else {
                results.push(bound.value(running, arena));
            }
            self.empty_arena();
        }
        end
    }

    /// Adds some candidates; none is read from `read_end` on.
    #[inline]
    fn add(&mut self, candidates: &[u32], range: Range<usize>, read_end: usize) {
        let state = &mut self.running;
        match &mut self.lane {
            Some(lane) => lane.add(candidates, range, read_end, |values| state.add(values)),
            None => self.feed(&candidates[range], FeedDirection::Add),
        }
    }

    /// Removes some candidates; none is read from `read_end` on.
    #[inline]
    fn remove(&mut self, candidates: &[u32], range: Range<usize>, read_end: usize) {
        let state = &mut self.running;
        match &mut self.lane {
            Some(lane) => lane.remove(candidates, range, read_end, |values| state.remove(values)),
            None => self.feed(&candidates[range], FeedDirection::Remove),
        }
    }

    fn feed(&mut self, rows: &[u32], change: FeedDirection) {
        let (bound, running) = (self.bound, &mut self.running);
        for_each_row(&self.readers, rows, &self.arena, |arguments| match change {
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
