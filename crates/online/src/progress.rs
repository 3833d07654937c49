//! How far each window of a scan has come: which rows are in its frame, and whether there can be
//! another.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. `window` shows the rows newest
//! first, one by one or a run of them at once.

use std::ops::Range;

use lockstep_plan::Frame as WindowFrame;
use lockstep_table::Run;

/// A window.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) frame: WindowFrame,
    pub(crate) max_size: u64,
    pub(crate) excludes_current_time: bool,
    pub(crate) excludes_current_row: bool,
}

/// How far a group has come. Order values of its frame are in `lower..=upper`; positions count
/// from 0, which is the current row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    position: u64,
    taken: u64,
    pub(crate) upper: i64,
    pub(crate) lower: i64,
    pub(crate) is_done: bool,
}

impl Progress {
    /// Before the first row. `order` is the current row's.
    pub(crate) fn new(group: &Group, order: Option<i64>) -> Self {
        let all = Self { position: 0, taken: 0, upper: i64::MAX, lower: i64::MIN, is_done: false };
        let Some(order) = order else { return all };
        match group.frame {
            WindowFrame::Rows { from, to } => {
                Self { upper: order, is_done: from.is_some_and(|from| from < to), ..all }
            }
            WindowFrame::Range { from, to } => {
                // An end beyond the range of the type is beyond every row.
                let upper = order.checked_sub(to);
                let lower = from.map_or(Some(i64::MIN), |from| {
                    let end = if from < 0 { None } else { Some(i64::MIN) };
                    order.checked_sub(from).or(end)
                });
                let is_done = from.is_some_and(|from| from < to);
                match (upper, lower) {
                    (Some(upper), Some(lower)) => Self { upper, lower, is_done, ..all },
                    _ => Self { is_done: true, ..all },
                }
            }
        }
    }

    /// Moves to the next older row; whether it is in the frame.
    #[inline]
    pub(crate) fn advance(&mut self, group: &Group, order: i64, current: i64) -> bool {
        if self.is_done || group.excludes_current_time && order == current {
            return false;
        }
        self.position += 1;
        let is_in = match group.frame {
            WindowFrame::Rows { from, to } => {
                self.is_done = from.is_some_and(|from| self.position >= from);
                self.position >= to && from.is_none_or(|from| self.position <= from)
            }
            WindowFrame::Range { .. } => {
                self.is_done = order < self.lower;
                order <= self.upper && !self.is_done
            }
        };
        if is_in {
            self.take(group);
        }
        is_in
    }

    /// Moves past a run of rows at once: which of them are in the frame, newest first. No row is
    /// newer than the current one, nor NULL its order value; it does what [`Self::advance`] does for
    /// each of them.
    pub(crate) fn span(&mut self, group: &Group, run: &Run<'_>, current: i64) -> Range<usize> {
        let rows = run.len();
        if self.is_done {
            return rows..rows;
        }
        let skipped = if group.excludes_current_time { count_since(run, current) } else { 0 };
        let (start, mut end) = match group.frame {
            WindowFrame::Rows { from, to } => {
                // The row at `at` has the position `before + at + 1`.
                let index = |position: u64| {
                    let ahead = usize::try_from(position.saturating_sub(self.position));
                    ahead.unwrap_or(usize::MAX).saturating_add(skipped)
                };
                let start = index(to.saturating_sub(1));
                let end = from.map(index);
                self.is_done = end.is_some_and(|end| end <= rows);
                self.position += u64::try_from(rows - skipped).expect("a count of rows");
                (start.min(rows), end.map_or(rows, |end| end.min(rows)))
            }
            WindowFrame::Range { .. } => {
                let start = match self.upper.checked_add(1) {
                    Some(above) => count_since(run, above),
                    None => 0,
                };
                let end = count_since(run, self.lower);
                self.is_done = end < rows;
                (start.max(skipped), end)
            }
        };
        end = end.max(start);
        let wanted = usize::try_from(group.max_size - self.taken).unwrap_or(usize::MAX);
        end = end.min(start.saturating_add(wanted));
        self.taken += u64::try_from(end - start).expect("a count of rows");
        self.is_done |= self.taken >= group.max_size;
        start..end
    }

    #[inline]
    pub(crate) fn take(&mut self, group: &Group) {
        self.taken += 1;
        self.is_done |= self.taken >= group.max_size;
    }
}

impl Group {
    /// Whether the current row is in the frame.
    pub(crate) fn has_current_row(&self) -> bool {
        let reaches_it = match self.frame {
            WindowFrame::Rows { to, .. } => to == 0,
            WindowFrame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
        };
        reaches_it && !self.excludes_current_row
    }
}

/// How many of the newest rows of a run are of this order value or newer.
pub(crate) fn count_since(run: &Run<'_>, order: i64) -> usize {
    // Most runs lie within a frame as a whole.
    match run.len().checked_sub(1) {
        Some(oldest) if run.event_time(oldest) < order => {
            run.partition_point(|of_row| of_row >= order)
        }
        _ => run.len(),
    }
}
