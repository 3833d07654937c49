//! The frames of the main rows of a key: which of its candidates each of them holds.
//!
//! The candidates of a key are in event order. For the main rows in that order, the rows of a frame
//! are a range `start..end` of the candidates, and neither end moves back; so rows are added to a state at
//! the new end and removed at the old one ([`super::slide`]). The current row itself is handled as
//! [`CurrentRow`] says.
//!
//! # Frames that go on after the current row
//!
//! Such a frame has two parts, one on each side of the current row. They are one range, with the current row in it,
//! unless the window excludes the current row or others of its time; then the range has a hole, and
//! its result is computed anew, as it is for the few ranges that begin before the last one.
//!
//! *Cost*: amortised O(1) for each row and frame.

use std::ops::Range;

use lockstep_plan::{Frame, FrameAhead, Window};

use super::{call_lane::BLOCK_ROWS, partition::Ordering};

/// How many frames of a key are computed together, call by call.
pub(super) const SEGMENT_ROWS: usize = if cfg!(test) { 5 } else { 512 };

/// How the current row takes part in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CurrentRow {
    /// It is not in the frame.
    Absent,
    /// It is the candidate after the range.
    Next,
    /// It is in the frame, and is not the candidate after the range.
    Apart,
    /// It is one of the candidates of the range.
    Inside,
    /// It is no candidate, and comes before the one at this position, in the hole if there is one.
    Between(u32),
}

/// The frame of one main row.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRange {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Candidates of the range that are not in the frame: from a position up to and without another one.
    pub(super) hole: (u32, u32),
    pub(super) current: CurrentRow,
    /// The number of the main row.
    pub(super) row: u32,
}

impl FrameRange {
    /// Makes a frame without a hole.
    pub(super) fn whole(start: u32, end: u32, current: CurrentRow, row: u32) -> Self {
        Self { start, end, hole: (end, end), current, row }
    }

    /// Returns whether candidates of the range are not in the frame.
    pub(super) fn has_hole(&self) -> bool {
        self.hole.0 < self.hole.1
    }

    /// Returns one past the last candidate that is added.
    pub(super) fn end_of_rows(&self) -> usize {
        self.end as usize + usize::from(self.current == CurrentRow::Next)
    }
}

/// The frames of one key, some of them at a time.
#[derive(Debug, Default)]
pub(super) struct KeyFrames<'o> {
    /// The numbers of the candidates, in event order.
    pub(super) candidates: &'o [u32],
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
    pub(super) frames: Vec<FrameRange>,
}

impl<'o> KeyFrames<'o> {
    /// Makes frames over some candidates.
    #[cfg(test)]
    pub(super) fn of_candidates(candidates: &'o [u32], frames: Vec<FrameRange>) -> Self {
        Self { candidates, frames, ..Self::default() }
    }

    /// Begins with the main rows of a key that are at some positions.
    pub(super) fn begin(
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
    pub(super) fn next(&mut self, window: &Window, ordering: &Ordering) -> bool {
        self.frames.clear();
        let (start, end) = self.reached;
        while self.rest.start < self.rest.end {
            let (row, order) = (ordering.rows[self.rest.start], ordering.orders[self.rest.start]);
            if ordering.is_current(row) {
                let place = self.place(row, order);
                self.ends.advance(window, self.orders, place);
                let frame = self.ends.frame(window, self.orders, place, row);
                let reached = (frame.start as usize, frame.end_of_rows());
                let is_long = reached.0.saturating_sub(start) > BLOCK_ROWS
                    || reached.1.saturating_sub(end) > BLOCK_ROWS;
                if self.frames.len() == SEGMENT_ROWS || is_long && !self.frames.is_empty() {
                    break;
                }
                self.frames.push(frame);
                self.reached = reached;
            }
            // A main row is its own successor's candidate unless the window says otherwise.
            self.preceding += usize::from(self.is_candidate(row));
            self.rest.start += 1;
        }
        !self.frames.is_empty()
    }

    fn set_candidates_of<'f>(&mut self, other: &KeyFrames<'f>)
    where
        'f: 'o,
    {
        (self.candidates, self.orders) = (other.candidates, other.orders);
    }

    /// Finds the rows that frames of a key may hold.
    fn set_candidates(&mut self, window: &Window, ordering: &'o Ordering, key: usize) {
        (self.candidates, self.orders) = ordering.candidates(key, window.instance_not_in_window);
        self.last_order = ordering.orders[ordering.key(key)].last().copied().unwrap_or(0);
    }

    fn is_candidate(&self, row: u32) -> bool {
        self.candidates.get(self.preceding) == Some(&row)
    }

    /// Returns where the next row is among the candidates.
    fn place(&self, row: u32, order: i64) -> RowPlace {
        RowPlace { preceding: self.preceding, is_candidate: self.is_candidate(row), order }
    }

    /// Returns the candidates of the key before the first row that is computed later, a main row of another time
    /// slice that is here or any row after the last one: from the first that its frame or a later one may hold, up
    /// to and without the first that its frame does not hold yet.
    pub(super) fn of_next(&self, window: &Window, ordering: &Ordering, key: usize) -> Range<usize> {
        let positions = ordering.key(key);
        let is_later = |at: &usize| ordering.is_later(ordering.rows[*at]);
        let mut frames = Self::default();
        frames.set_candidates_of(self);
        let place = match positions.clone().find(is_later) {
            Some(at) => {
                frames.preceding = candidates_among(window, ordering, positions.start..at);
                frames.place(ordering.rows[at], ordering.orders[at])
            }
            None => {
                let (preceding, order) = (self.candidates.len(), self.last_order);
                RowPlace { preceding, is_candidate: false, order }
            }
        };
        frames.ends.advance(window, self.orders, place);
        if window.ahead.is_some() {
            // Rows that the frame leaves out may be in those of later rows.
            return frames.ends.before(window, place);
        }
        let frame = frames.ends.frame(window, self.orders, place, 0);
        frame.start as usize..frame.end as usize
    }

    /// Gives each of these rows a frame without any other row.
    pub(super) fn set_unordered(&mut self, window: &Window, rows: &[u32]) {
        (self.candidates, self.orders) = (&[], &[]);
        self.frames.clear();
        let current = if has_current_row(window) { CurrentRow::Apart } else { CurrentRow::Absent };
        let frame = |row: &u32| FrameRange::whole(0, 0, current, *row);
        self.frames.extend(rows.iter().map(frame));
    }
}

/// Returns whether the frames of a window leave rows behind them.
pub(super) fn has_beginning(window: &Window) -> bool {
    match window.frame {
        // Its states would have rows that the frames of the next slice do not begin with.
        _ if window.ahead.is_some() => true,
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
    let next = frames.of_next(window, ordering, key);
    let passed = if has_beginning(window) { next.start } else { next.end };
    let key = ordering.key(key);
    let first = frames.candidates.get(passed);
    let position = |row: &u32| ordering.rows[key.clone()].iter().position(|other| other == row);
    let first = first.and_then(position).map_or(key.end, |position| key.start + position);
    // The rows that are computed later are needed themselves.
    let later = key.clone().find(|at| ordering.is_later(ordering.rows[*at]));
    LaterRows { first: first.min(later.unwrap_or(key.end)), passed }
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

/// Where a main row is among the candidates of its key.
#[derive(Debug, Clone, Copy)]
struct RowPlace {
    /// How many candidates precede it.
    preceding: usize,
    /// Whether it is the next candidate.
    is_candidate: bool,
    /// Its order value.
    order: i64,
}

/// Positions in the candidates that only move forward from one main row of a key to the next.
#[derive(Debug, Default)]
struct FrameEnds {
    /// The first candidate within the frame's greatest distance in time.
    oldest: usize,
    /// One past the last candidate beyond the frame's smallest distance in time.
    newest: usize,
    /// The first candidate with the current order value, and the first one with a later one.
    equal: usize,
    later: usize,
    /// Of a frame that goes on after the current row: the first candidate from its nearest distance in time on, and
    /// one past the last one up to its farthest.
    nearest: usize,
    farthest: usize,
}

impl FrameEnds {
    fn advance(&mut self, window: &Window, orders: &[i64], place: RowPlace) {
        let RowPlace { preceding, order, .. } = place;
        let step = |place: &mut usize, end: usize, is_before: &dyn Fn(i64) -> bool| {
            while *place < end && is_before(orders[*place]) {
                *place += 1;
            }
        };
        if window.exclude_current_time {
            step(&mut self.equal, preceding, &|value| value < order);
        }
        let distance = |value: i64| i128::from(order) - i128::from(value);
        if let Frame::Range { from, to } = window.frame {
            if let Some(from) = from {
                step(&mut self.oldest, preceding, &|value| distance(value) > i128::from(from));
            }
            step(&mut self.newest, preceding, &|value| distance(value) >= i128::from(to));
        }
        let Some(FrameAhead { nearest, farthest }) = window.ahead else { return };
        if window.exclude_current_time {
            step(&mut self.later, orders.len(), &|value| value <= order);
        }
        if let Frame::Range { .. } = window.frame {
            step(&mut self.nearest, orders.len(), &|value| -distance(value) < i128::from(nearest));
            let is_within =
                |value| farthest.is_none_or(|most| -distance(value) <= i128::from(most));
            step(&mut self.farthest, orders.len(), &is_within);
        }
    }

    /// Returns the candidates before a row at a place that its frame holds; [`Self::advance`] was called with it.
    fn before(&self, window: &Window, at: RowPlace) -> Range<usize> {
        let history = if window.exclude_current_time { self.equal } else { at.preceding };
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
        start.min(end)..end
    }

    /// Returns the frame of a row at a place; [`Self::advance`] was called with it.
    fn frame(&self, window: &Window, orders: &[i64], at: RowPlace, row: u32) -> FrameRange {
        let before = self.before(window, at);
        if let Some(ahead) = window.ahead {
            let ahead = self.ahead(window, ahead, orders.len(), at);
            return two_parts(window, before, ahead, at).frame(row);
        }
        let has_current = has_current_row(window);
        let preceding_max = rows_max(window).saturating_sub(usize::from(has_current));
        let end = before.end;
        let start = before.start.max(end.saturating_sub(preceding_max));
        debug_assert!(start <= end && end <= at.preceding, "a frame is of preceding candidates");
        let current = match has_current {
            false => CurrentRow::Absent,
            true if self.is_next(window, orders, at, end) => CurrentRow::Next,
            true => CurrentRow::Apart,
        };
        FrameRange::whole(narrow(start), narrow(end), current, row)
    }

    /// Returns whether the current row is the candidate after the range, and the next frame's range
    /// will not end before it.
    fn is_next(&self, window: &Window, orders: &[i64], at: RowPlace, end: usize) -> bool {
        if window.instance_not_in_window || end != at.preceding {
            return false;
        }
        // After the last row of a time slice there may be an equal one in the next slice.
        let follower_may_be_equal = orders.get(end + 1).is_none_or(|order| *order == at.order);
        !(window.exclude_current_time && follower_may_be_equal)
    }

    /// Returns the candidates after the row that its frame holds.
    fn ahead(
        &self,
        window: &Window,
        FrameAhead { nearest, farthest }: FrameAhead,
        count: usize,
        at: RowPlace,
    ) -> Range<usize> {
        let first = match window.exclude_current_time {
            true => self.later.max(at.preceding),
            false => at.preceding + usize::from(at.is_candidate),
        };
        let (start, end) = match window.frame {
            Frame::Rows { .. } => {
                let place = |position: i64| {
                    first.saturating_add(usize::try_from(position).unwrap_or(usize::MAX)).min(count)
                };
                (place(nearest - 1), farthest.map_or(count, place))
            }
            Frame::Range { .. } => (self.nearest.max(first), self.farthest),
        };
        start..end.max(start)
    }
}

/// The parts of a frame on both sides of the current row.
#[derive(Debug)]
struct TwoParts {
    before: Range<usize>,
    ahead: Range<usize>,
    has_current: bool,
    at: RowPlace,
}

/// Makes the parts of a frame, of which the newest rows are kept where they are too many.
fn two_parts(window: &Window, before: Range<usize>, ahead: Range<usize>, at: RowPlace) -> TwoParts {
    let mut rows = rows_max(window);
    let mut take = |count: usize| {
        let taken = count.min(rows);
        rows -= taken;
        taken
    };
    let ahead = ahead.end - take(ahead.len())..ahead.end;
    let has_current = take(usize::from(has_current_row(window))) > 0;
    let before = before.end - take(before.len())..before.end;
    TwoParts { before, ahead, has_current, at }
}

impl TwoParts {
    fn frame(self, row: u32) -> FrameRange {
        let Self { before, ahead, has_current, at } = self;
        if before.is_empty() && !has_current {
            return FrameRange::whole(
                narrow(ahead.start),
                narrow(ahead.end),
                CurrentRow::Absent,
                row,
            );
        }
        // The current row is the candidate after those before it.
        let is_inside = has_current && at.is_candidate && before.end == at.preceding;
        let end = before.end + usize::from(is_inside);
        let (end, hole) = match ahead.is_empty() {
            true => (end, (end, end)),
            false => (ahead.end, (end, ahead.start.max(end))),
        };
        let current = match has_current {
            false => CurrentRow::Absent,
            true if is_inside => CurrentRow::Inside,
            true if ahead.is_empty() => CurrentRow::Apart,
            true => CurrentRow::Between(narrow(before.end)),
        };
        let hole = (narrow(hole.0), narrow(hole.1));
        FrameRange { start: narrow(before.start), end: narrow(end), hole, current, row }
    }
}

/// Returns MAXSIZE.
fn rows_max(window: &Window) -> usize {
    window.max_size.map_or(usize::MAX, |rows| usize::try_from(rows).unwrap_or(usize::MAX))
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).expect("rows are numbered in 32 bits")
}

/// Returns the first main row from a number on, which is one of some keys, whose frame may hold rows that come later
/// in the order of the keys' rows; `None` where there is none. `last_order` is the order value of the last row.
pub(super) fn first_incomplete(
    window: &Window,
    ordering: &Ordering,
    keys: &[usize],
    last_order: i64,
) -> Option<u32> {
    let FrameAhead { farthest, .. } = window.ahead?;
    let mut first = None;
    for key in keys {
        let mut frames = KeyFrames::default();
        frames.set_candidates(window, ordering, *key);
        let positions = ordering.key(*key);
        let mut later = 0;
        for at in positions.clone() {
            let (row, order) = (ordering.rows[at], ordering.orders[at]);
            let is_candidate = frames.is_candidate(row);
            frames.preceding += usize::from(is_candidate);
            if !ordering.is_current(row) {
                continue;
            }
            let is_complete = match (window.frame, farthest) {
                (_, None) => false,
                (Frame::Range { .. }, Some(farthest)) => {
                    i128::from(order) + i128::from(farthest) < i128::from(last_order)
                }
                (Frame::Rows { .. }, Some(rows)) => {
                    later = frames.preceding.max(later);
                    while window.exclude_current_time
                        && frames.orders.get(later).is_some_and(|value| *value <= order)
                    {
                        later += 1;
                    }
                    frames.orders.len() - later >= usize::try_from(rows).unwrap_or(usize::MAX)
                }
            };
            if !is_complete {
                first = Some(first.map_or(row, |known: u32| known.min(row)));
                break;
            }
        }
    }
    first
}
