//! The rows that a frame holds, as positions among the candidates of its entity key.
//!
//! Batch mode and streams compute the frames of the main rows of a key in event order. Then the rows of a frame are a
//! range `start..end` of the candidates, and neither end moves back; so rows are added to a state at the new end and
//! removed at the old one ([`SlidePlace`]). The current row itself is handled as [`CurrentRow`] says.
//!
//! # Frames that go on after the current row
//!
//! Such a frame has two parts, one on each side of the current row. They are one range, with the current row in it,
//! unless the window excludes the current row or others of its time; then the range has a hole, and
//! its result is computed anew, as it is for the few ranges that begin before the last one.
//!
//! *Cost*: amortised O(1) for each row and frame.

use std::ops::Range;

use lockstep_function::{BoundAggregate, StateClass, StateForm, StateUse};

use crate::{Frame, FrameAhead, Window};

/// How the current row takes part in its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurrentRow {
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
pub struct FrameRange {
    /// The first candidate of the range.
    pub start: u32,
    /// One past its last one.
    pub end: u32,
    /// Candidates of the range that are not in the frame: from a position up to and without another one.
    pub hole: (u32, u32),
    /// How the current row takes part.
    pub current: CurrentRow,
    /// The number of the main row.
    pub row: u32,
}

impl FrameRange {
    /// Makes a frame without a hole.
    pub fn whole(start: u32, end: u32, current: CurrentRow, row: u32) -> Self {
        Self { start, end, hole: (end, end), current, row }
    }

    /// Returns whether candidates of the range are not in the frame.
    pub fn has_hole(&self) -> bool {
        self.hole.0 < self.hole.1
    }

    /// Returns one past the last candidate that is added.
    pub fn end_of_rows(&self) -> usize {
        self.end as usize + usize::from(self.current == CurrentRow::Next)
    }

    /// Returns whether a state of this class may slide to the frame: whether its rows are a range of candidates, and
    /// the current row may be added after them.
    pub fn slides(&self, class: StateClass) -> bool {
        let is_between = matches!(self.current, CurrentRow::Between(_));
        let any_order = matches!(class, StateClass::Retractable | StateClass::Mergeable);
        !self.has_hole() && (!is_between || any_order)
    }

    /// Returns whether the current row counts for the result without being one of the candidates that are added.
    pub fn is_current_apart(&self) -> bool {
        matches!(self.current, CurrentRow::Apart | CurrentRow::Between(_))
    }

    /// Returns all rows of the frame.
    pub fn parts(&self) -> FrameParts {
        let (start, end) = (self.start as usize, self.end_of_rows());
        let (hole, hole_end) = (self.hole.0 as usize, self.hole.1 as usize);
        let (before, after) = match self.current {
            CurrentRow::Between(at) => (start..at as usize, hole_end.max(at as usize)..end),
            _ => (start..hole.min(end), hole_end.min(end)..end),
        };
        let is_between = matches!(self.current, CurrentRow::Between(_));
        let is_last = self.current == CurrentRow::Apart;
        FrameParts { before, is_current_between: is_between, after, is_current_last: is_last }
    }
}

/// All rows of a frame, in event order.
#[derive(Debug, Clone)]
pub struct FrameParts {
    /// The candidates of the first part.
    pub before: Range<usize>,
    /// Whether the current row, which is no candidate, follows.
    pub is_current_between: bool,
    /// The candidates of the second part.
    pub after: Range<usize>,
    /// Whether the current row, which is none of these candidates, is the last one.
    pub is_current_last: bool,
}

/// The candidates that a state has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlidePlace {
    /// The first of them.
    pub start: usize,
    /// One past the last one.
    pub end: usize,
}

/// How a state slides from a frame to the next one.
#[derive(Debug, Clone)]
pub struct SlideStep {
    /// Whether it has no row of the frame, and is emptied first.
    pub is_emptied: bool,
    /// The candidates that are added at the newest end.
    pub added: Range<usize>,
    /// The candidates that are removed at the oldest end, once the others were added.
    pub removed: Range<usize>,
}

impl SlidePlace {
    /// Takes note that the first candidates are no more; positions count from the first of the others.
    pub fn forget(&mut self, count: usize) {
        self.start = self.start.saturating_sub(count);
        self.end = self.end.saturating_sub(count);
    }

    /// Moves to a frame. Returns how a state of this class does; `None` where its result is computed from all rows
    /// of the frame ([`FrameRange::parts`]), and the state stays as it is.
    #[inline]
    pub fn slide(&mut self, frame: &FrameRange, class: StateClass) -> Option<SlideStep> {
        let (start, end) = (frame.start as usize, frame.end_of_rows());
        if !frame.slides(class) || start < self.start || end < self.end {
            return None;
        }
        // A state that goes on from rows which are no more candidates has rows before the first one.
        let is_emptied = start >= self.end && start > 0;
        if is_emptied {
            *self = Self { start, end: start };
        }
        let step = SlideStep { is_emptied, added: self.end..end, removed: self.start..start };
        *self = Self { start, end };
        Some(step)
    }
}

/// Returns whether the frames of a window leave rows behind them.
pub fn has_beginning(window: &Window) -> bool {
    match window.frame {
        // Its states would have rows that the frames of the next slice do not begin with.
        _ if window.ahead.is_some() => true,
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => {
            window.max_size.is_some()
        }
        Frame::Rows { .. } | Frame::Range { .. } => true,
    }
}

/// Returns how the states of a call are used: removals need more than a fold, and so does a current row
/// that counts without being added.
pub fn state_use(bound: &BoundAggregate, window: &Window) -> StateUse {
    let may_be_apart = window.exclude_current_time || window.instance_not_in_window;
    match &bound.state {
        StateForm::Fold(_) if !has_beginning(window) && !may_be_apart => StateUse::Fold,
        StateForm::Fold(_) | StateForm::Rows(_) => StateUse::Slide,
    }
}

/// Returns whether the frame holds the current row.
pub fn has_current_row(window: &Window) -> bool {
    let reaches = match window.frame {
        Frame::Rows { to, .. } => to == 0,
        Frame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
    };
    reaches && !window.exclude_current_row
}

/// Where a main row is among the candidates of its key.
#[derive(Debug, Clone, Copy)]
pub struct RowPlace {
    /// How many candidates precede it.
    pub preceding: usize,
    /// Whether it is the next candidate.
    pub is_candidate: bool,
    /// Its order value.
    pub order: i64,
}

/// Positions in the candidates that only move forward from one main row of a key to the next.
#[derive(Debug, Clone, Default)]
pub struct FrameEnds {
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
    /// Takes note that the first candidates are no more; positions count from the first of the others.
    pub fn forget(&mut self, count: usize) {
        let Self { oldest, newest, equal, later, nearest, farthest } = self;
        for place in [oldest, newest, equal, later, nearest, farthest] {
            *place = place.saturating_sub(count);
        }
    }

    /// Moves to a row; `orders` are the order values of the candidates.
    pub fn advance(&mut self, window: &Window, orders: &[i64], place: RowPlace) {
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
    pub fn before(&self, window: &Window, at: RowPlace) -> Range<usize> {
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
    pub fn frame(&self, window: &Window, orders: &[i64], at: RowPlace, row: u32) -> FrameRange {
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
