//! The frames of the main rows of a key: which of its candidates each of them holds.
//!
//! [`lockstep_plan::FrameEnds`] finds the frame of a row; here are the rows of one key after the other.

use std::ops::Range;

use lockstep_plan::{
    CurrentRow, Frame, FrameAhead, FrameEnds, FrameRange, RowPlace, Window, has_beginning,
    has_current_row,
};

use super::{call_lane::BLOCK_ROWS, partition::Ordering};

/// How many frames of a key are computed together, call by call.
pub(super) const SEGMENT_ROWS: usize = if cfg!(test) { 5 } else { 512 };

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
