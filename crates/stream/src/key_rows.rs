//! The rows of an entity key that frames may hold, and its windows.
//!
//! Candidates are settled in event order, each at the newest end. Those that no later frame can hold are dropped at the
//! oldest end, many at once: a key has at most about twice the candidates that it needs.

use std::collections::VecDeque;

use lockstep_plan::{Frame, FrameAhead, FrameEnds, FrameRange, RowPlace, Window, has_beginning};
use lockstep_row::{Arena, Value};

use crate::{
    bug::{self, StreamBug},
    results::{PendingResults, RowId},
    slide::{SlidingState, WindowStates},
    watermark::PassedTimes,
};

/// With fewer candidates it is not worth looking which are needed.
const CANDIDATES_MIN: usize = if cfg!(test) { 2 } else { 64 };

/// The candidates of a key, and its windows.
#[derive(Debug)]
pub(crate) struct KeyWindows {
    /// The key, encoded.
    pub(crate) key: Box<[u8]>,
    /// Its partition.
    pub(crate) partition: u16,
    /// The event times of the candidates.
    times: Vec<i64>,
    /// What calls read of them, one candidate after the other.
    values: Vec<Value>,
    /// Candidates are dropped when there are so many.
    drop_at: usize,
    windows: Box<[KeyWindow]>,
}

/// The candidates of a key, for another joiner.
#[derive(Debug)]
pub(crate) struct KeyCopy {
    pub(crate) key: Box<[u8]>,
    times: Vec<i64>,
    values: Vec<Value>,
}

/// A window over a key.
#[derive(Debug)]
struct KeyWindow {
    ends: FrameEnds,
    states: Box<[SlidingState]>,
    /// The main rows whose results wait, in event order.
    waiting: VecDeque<WaitingRow>,
    /// No later frame holds a candidate before this one.
    needed: usize,
}

/// A main row whose result waits.
#[derive(Debug, Clone, Copy)]
struct WaitingRow {
    row: RowId,
    place: RowPlace,
}

/// The candidates of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidates<'k> {
    values: &'k [Value],
    width: usize,
}

impl<'k> Candidates<'k> {
    /// No candidates.
    pub(crate) const NONE: Self = Self { values: &[], width: 0 };

    /// Returns what calls read of a candidate.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> &'k [Value] {
        &self.values[row * self.width..(row + 1) * self.width]
    }
}

/// A window, for all keys.
#[derive(Debug)]
pub(crate) struct WindowOfScan {
    pub(crate) window: Window,
    pub(crate) states: WindowStates,
}

impl WindowOfScan {
    /// Returns up to when after its row a frame over event time goes on, in milliseconds.
    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        match (self.window.frame, self.window.ahead) {
            (Frame::Range { .. }, Some(FrameAhead { farthest, .. })) => farthest,
            _ => None,
        }
    }

    /// Returns how many rows after its row a frame over rows goes on.
    fn ahead_rows(&self) -> Option<usize> {
        match (self.window.frame, self.window.ahead) {
            (Frame::Rows { .. }, Some(FrameAhead { farthest, .. })) => {
                farthest.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
            }
            _ => None,
        }
    }
}

/// What the windows of a scan need to compute.
#[derive(Debug)]
pub(crate) struct ScanContext<'s> {
    pub(crate) windows: &'s [WindowOfScan],
    /// How many values a candidate has.
    pub(crate) width: usize,
    pub(crate) pending: &'s mut PendingResults,
    pub(crate) arena: &'s Arena,
}

impl KeyWindows {
    /// Makes a key without candidates.
    pub(crate) fn new(key: &[u8], partition: u16, windows: &[WindowOfScan]) -> Self {
        let window = |of_scan: &WindowOfScan| KeyWindow {
            ends: FrameEnds::default(),
            states: of_scan.states.of_key(),
            waiting: VecDeque::new(),
            needed: 0,
        };
        Self {
            key: key.into(),
            partition,
            times: Vec::new(),
            values: Vec::new(),
            drop_at: CANDIDATES_MIN,
            windows: windows.iter().map(window).collect(),
        }
    }

    /// Returns copies of its candidates. States are not copied: another joiner makes its own of the same rows.
    pub(crate) fn copy(&self) -> KeyCopy {
        let Self { key, times, values, .. } = self;
        KeyCopy { key: key.clone(), times: times.clone(), values: values.clone() }
    }

    /// Makes a key with the candidates that another joiner has.
    pub(crate) fn of_copy(copy: KeyCopy, partition: u16, windows: &[WindowOfScan]) -> Self {
        let KeyCopy { key, times, values } = copy;
        debug_assert!(windows.iter().all(|of| has_beginning(&of.window)), "states have no others");
        let drop_at = CANDIDATES_MIN.max(2 * times.len());
        Self { times, values, drop_at, ..Self::new(&key, partition, windows) }
    }

    /// Adds a candidate, which is the newest one.
    pub(crate) fn push(
        &mut self,
        ctx: &mut ScanContext<'_>,
        time: i64,
        values: impl Iterator<Item = Value>,
    ) {
        debug_assert!(self.times.last().is_none_or(|last| *last <= time), "rows are in order");
        if self.times.len() >= self.drop_at {
            self.drop_candidates(ctx, time);
        }
        self.times.push(time);
        self.values.extend(values);
        debug_assert_eq!(self.values.len(), self.times.len() * ctx.width, "rows are whole");
    }

    /// Returns where a main row is that is settled next: `is_candidate` says whether it was added.
    pub(crate) fn place(&self, time: i64, is_candidate: bool) -> RowPlace {
        let preceding = self.times.len() - usize::from(is_candidate);
        RowPlace { preceding, is_candidate, order: time }
    }

    /// Computes a window of a main row that was settled, or lets it wait. Returns whether it waits.
    pub(crate) fn settle(
        &mut self,
        ctx: &mut ScanContext<'_>,
        window: usize,
        (row, place, own): (RowId, RowPlace, &[Value]),
    ) -> bool {
        if ctx.windows[window].window.ahead.is_some() {
            self.windows[window].waiting.push_back(WaitingRow { row, place });
            return true;
        }
        self.compute(ctx, window, (row, place, Some(own)));
        false
    }

    /// Computes the oldest row of a window that waits.
    pub(crate) fn compute_waiting(&mut self, ctx: &mut ScanContext<'_>, window: usize) {
        let waiting = self.windows[window].waiting.pop_front();
        let WaitingRow { row, place } = waiting.expect("a row waits");
        self.compute(ctx, window, (row, place, None));
    }

    /// Computes the rows of windows over rows whose last candidate has come, or all of them where none will come.
    pub(crate) fn compute_counted(&mut self, ctx: &mut ScanContext<'_>, is_over: bool) {
        for window in 0..self.windows.len() {
            let Some(rows) = ctx.windows[window].ahead_rows() else { continue };
            while let Some(first) = self.windows[window].waiting.front()
                && (is_over || self.is_counted(&ctx.windows[window], first.place, rows))
            {
                self.compute_waiting(ctx, window);
            }
        }
    }

    /// Returns whether so many candidates after a row have come, of those that a window counts.
    fn is_counted(&self, window: &WindowOfScan, place: RowPlace, rows: usize) -> bool {
        let RowPlace { preceding, is_candidate, order } = place;
        let mut first = preceding + usize::from(is_candidate);
        if window.window.exclude_current_time {
            first = first.max(self.times.partition_point(|time| *time <= order));
        }
        self.times.len().saturating_sub(first) >= rows
    }

    /// Computes a window of a row; `own` has its columns if they are not kept.
    fn compute(
        &mut self,
        ctx: &mut ScanContext<'_>,
        window: usize,
        (row, place, own): (RowId, RowPlace, Option<&[Value]>),
    ) {
        let of_scan = &ctx.windows[window];
        let KeyWindow { ends, states, needed, .. } = &mut self.windows[window];
        ends.advance(&of_scan.window, &self.times, place);
        let frame = ends.frame(&of_scan.window, &self.times, place, 0);
        *needed = first_needed(of_scan, ends, &frame, place);
        let candidates = Candidates { values: &self.values, width: ctx.width };
        let pending = &mut *ctx.pending;
        let kept = own.is_none().then(|| pending.take_columns(row));
        let own = own.or(kept.as_deref()).unwrap_or_default();
        of_scan.states.compute(states, &candidates, (&frame, own), ctx.arena, |output, value| {
            pending.set(row, output, value);
        });
        if let Some(columns) = kept {
            pending.put_back(row, columns);
        }
    }

    /// Drops the candidates that no later frame holds: no row before `floor` will be settled.
    fn drop_candidates(&mut self, ctx: &mut ScanContext<'_>, floor: i64) {
        let mut count = self.times.len();
        let place = RowPlace { preceding: self.times.len(), is_candidate: false, order: floor };
        let candidates = Candidates { values: &self.values, width: ctx.width };
        for (of_scan, window) in ctx.windows.iter().zip(&mut self.windows) {
            let KeyWindow { ends, states, waiting, needed } = window;
            if waiting.is_empty() {
                ends.advance(&of_scan.window, &self.times, place);
                if has_beginning(&of_scan.window) {
                    let frame = ends.frame(&of_scan.window, &self.times, place, 0);
                    *needed = first_needed(of_scan, ends, &frame, place);
                } else {
                    *needed = ends.before(&of_scan.window, place).end;
                    of_scan.states.take(states, &candidates, *needed, ctx.arena);
                }
            }
            count = count.min(*needed);
        }
        if bug::is_seeded(StreamBug::DroppedTooMuch) {
            count = (count + 1).min(self.times.len());
        }
        if count > 0 {
            self.forget(ctx, count);
        }
        self.drop_at = CANDIDATES_MIN.max(2 * self.times.len());
    }

    fn forget(&mut self, ctx: &ScanContext<'_>, count: usize) {
        let candidates = Candidates { values: &self.values, width: ctx.width };
        for (of_scan, window) in ctx.windows.iter().zip(&mut self.windows) {
            of_scan.states.forget(&mut window.states, &candidates, count, ctx.arena);
            window.ends.forget(count);
            window.needed = window.needed.saturating_sub(count);
            if !bug::is_seeded(StreamBug::PositionsNotMoved) {
                for waiting in &mut window.waiting {
                    waiting.place.preceding = waiting.place.preceding.saturating_sub(count);
                }
            }
        }
        self.times.drain(..count);
        self.values.drain(..count * ctx.width);
    }

    /// Returns whether no frame of a row that comes later has one of its candidates, which reach `kept_ms` back, and no
    /// row waits.
    pub(crate) fn is_over(&self, passed: PassedTimes, kept_ms: i64) -> bool {
        let is_needed = |time: i64| !passed.includes_after(time, kept_ms);
        self.windows.iter().all(|window| window.waiting.is_empty())
            && !self.times.last().copied().is_some_and(is_needed)
    }

    /// Returns how many candidates it has.
    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns about how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        let of_window = |window: &KeyWindow| {
            let states: usize = window.states.iter().map(SlidingState::bytes).sum();
            size_of::<KeyWindow>() + states + window.waiting.capacity() * size_of::<WaitingRow>()
        };
        size_of::<Self>()
            + self.key.len()
            + self.times.capacity() * size_of::<i64>()
            + self.values.capacity() * size_of::<Value>()
            + self.windows.iter().map(of_window).sum::<usize>()
    }
}

/// Returns the first candidate that the frame of a row or of a later one may hold.
fn first_needed(
    of_scan: &WindowOfScan,
    ends: &FrameEnds,
    frame: &FrameRange,
    place: RowPlace,
) -> usize {
    let window = &of_scan.window;
    if !has_beginning(window) {
        // The states have what is before.
        return frame.end_of_rows();
    }
    if window.ahead.is_some() {
        // Rows that the frame leaves out may be in those of later rows.
        return ends.before(window, place).start;
    }
    frame.start as usize
}
