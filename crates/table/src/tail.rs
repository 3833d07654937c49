//! The tail of a table: its rows in order of arrival, for readers who follow it.
//!
//! A [`TableTail`] gives each row that becomes visible once, in order of arrival, whatever removes it from the table
//! before it is read: retention, DELETE, TRUNCATE or DROP. Rows of a memory table are read from its log, those of a
//! disk table from its files as well. At the end, the reader waits for a [`TailSignal`].
//!
//! Nothing is copied or kept while unread rows are in the table. Before some are removed, each tail takes what has
//! them, blocks of the log and extents, which the table shares ([`HeldRows`]). They stay in memory, and charged, until
//! the tail has read them. A tail that would keep more than its limit loses its place: the next read fails with
//! [`TailError::Lost`], which tells the rows that it misses, and the one after goes on behind them.
//!
//! *Cost*: a read skips the rows of a block that precede its first one, and shares a pointer for each block.

use std::{
    collections::VecDeque,
    fmt,
    ops::{ControlFlow, Range},
    sync::{Arc, Weak},
    time::Duration,
};

use lockstep_host::sync::{Condvar, Mutex};
use lockstep_row::RowView;
use lockstep_series as series;

use crate::{
    HeldRows, ReadError, Table, TableParts,
    part::bug::{self, PartBug},
    state::TableState,
};

/// About so many bytes of a log are shared for a read.
const READ_BYTES: usize = if cfg!(test) { 4 << 10 } else { 4 << 20 };

/// A reader of the rows of a table in order of arrival.
pub struct TableTail {
    table: Arc<Table>,
    state: Arc<TailState>,
    /// Rows with a smaller arrival were read.
    reached: u64,
    /// Whether rows that were read are kept until [`Self::release`].
    keeps_read: bool,
    /// Rows with a smaller arrival are not read again.
    released: u64,
}

/// A row that a tail gives.
#[derive(Debug, Clone, Copy)]
pub struct TailRow<'r> {
    /// Its arrival.
    pub arrival: u64,
    /// When it arrived, in milliseconds since the epoch.
    pub arrival_ms: i64,
    /// Its columns.
    pub row: RowView<'r>,
}

/// The reason why a tail cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailError {
    /// Rows were removed before they were read, and would have taken more than the tail may keep.
    Lost {
        /// The arrivals of the rows that it misses.
        arrivals: Range<u64>,
        /// How many bytes it may keep.
        limit_bytes: u64,
    },
    /// Rows could not be read from a file. The next read tries again.
    Read(ReadError),
}

impl From<ReadError> for TailError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl fmt::Display for TailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { arrivals: Range { start, end }, limit_bytes } => write!(
                f,
                "rows with arrivals from {start} to {end} were removed before they were read; they would have taken \
                 more than {limit_bytes} bytes"
            ),
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TailError {}

/// Where a tail begins, and how much it may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailOptions {
    /// The arrival of the first row; `None` for the rows that become visible from now on. Rows that the table has no
    /// more when the tail begins are not given.
    pub from: Option<u64>,
    /// How many bytes of rows may be kept for it that the table has removed.
    pub limit_bytes: u64,
}

/// Wakes a reader when rows of a table become visible, or of one of several.
#[derive(Default)]
pub struct TailSignal {
    is_raised: Mutex<bool>,
    raised: Condvar,
}

impl TailSignal {
    /// Makes a signal that was not raised.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Wakes the reader, now or when it waits next.
    pub fn raise(&self) {
        let mut is_raised = self.is_raised.lock();
        if !*is_raised {
            *is_raised = true;
            self.raised.notify_one();
        }
    }

    /// Waits until it is raised, as long as said at most. Returns whether it was. Who reads afterwards sees the rows
    /// for which it was raised.
    pub fn wait(&self, longest: Duration) -> bool {
        let mut is_raised = self.is_raised.lock();
        if !*is_raised {
            is_raised = self.raised.wait_for(is_raised, longest).0;
        }
        std::mem::take(&mut *is_raised)
    }
}

impl fmt::Debug for TailSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TailSignal").finish_non_exhaustive()
    }
}

/// What the table knows of a tail.
pub(crate) struct TailState {
    limit_bytes: u64,
    place: Mutex<TailPlace>,
}

/// How far a tail is.
#[derive(Default)]
struct TailPlace {
    /// Rows with a smaller arrival were read, or are lost.
    next: u64,
    /// What has the rows from there on, up to where they are read from the table.
    parts: VecDeque<Arc<TailPart>>,
    /// The bytes of rows that the table has removed.
    held_bytes: u64,
    /// The arrivals of rows that were lost since the last read.
    lost: Option<Range<u64>>,
}

/// Rows that follow each other in order of arrival.
struct TailPart {
    rows: HeldRows,
    /// It has the rows before this arrival.
    end: u64,
    /// The bytes that it keeps of rows that the table has removed.
    held_bytes: u64,
}

impl Table {
    /// Begins to follow the table: gives its rows in order of arrival, and raises a signal whenever some become
    /// visible.
    pub fn tail(self: &Arc<Self>, options: TailOptions, signal: &Arc<TailSignal>) -> TableTail {
        let TailOptions { from, limit_bytes } = options;
        self.commit_queue.add_listener(signal);
        let mut tails = self.tails.lock();
        let reached = from.unwrap_or_else(|| self.snapshot().visible_arrival());
        let place = TailPlace { next: reached, ..TailPlace::default() };
        let state = Arc::new(TailState { limit_bytes, place: Mutex::new(place) });
        tails.push(Arc::downgrade(&state));
        TableTail { table: Arc::clone(self), state, reached, keeps_read: false, released: reached }
    }

    /// Returns an arrival before which no row becomes visible any more: all that there will be are. The snapshots of
    /// several tables that are taken afterwards show what had arrived before the least of theirs.
    pub fn arrived_before(&self) -> u64 {
        self.commit_queue.first_in_flight(|| self.arrivals.next())
    }

    /// Lets the tails take what they have not read of a state, some of whose rows are about to be removed.
    pub(crate) fn hold_for_tails(&self, state: &TableState) {
        let mut tails = self.tails.lock();
        tails.retain(|tail| tail.strong_count() > 0);
        if tails.is_empty() || bug::is_seeded(PartBug::TailHoldsNothing) {
            return;
        }
        let visible = self.commit_queue.visible().max(state.visible_min);
        for tail in tails.iter().filter_map(Weak::upgrade) {
            tail.hold(self, state, visible);
        }
    }
}

impl TailState {
    /// Takes what has the rows of a state that were not read and are not taken yet.
    fn hold(&self, table: &Table, state: &TableState, visible: u64) {
        let mut place = self.place.lock();
        let from = place.parts.back().map_or(place.next, |last| last.end);
        if from >= visible {
            return;
        }
        let mut part = unread_part(table, state, from..visible, usize::MAX);
        part.held_bytes = part.rows.bytes();
        debug_assert_eq!(part.end, visible, "all of them");
        place.held_bytes += part.held_bytes;
        place.parts.push_back(Arc::new(part));
        if place.held_bytes > self.limit_bytes {
            let start = place.lost.as_ref().map_or(place.next, |lost| lost.start);
            *place =
                TailPlace { next: visible, lost: Some(start..visible), ..TailPlace::default() };
        }
    }
}

impl TailPlace {
    /// Notes that rows with a smaller arrival were read.
    fn pass(&mut self, reached: u64) {
        self.next = self.next.max(reached);
        while let Some(part) = self.parts.pop_front_if(|part| part.end <= reached) {
            self.held_bytes -= part.held_bytes;
        }
    }
}

impl TableTail {
    /// Visits the next rows, at most so many, and returns how many. None is left for now when it is fewer.
    ///
    /// What is removed in the process meanwhile is freed afterwards, so that the rows are to be a few milliseconds of
    /// work.
    pub fn read(
        &mut self,
        rows_max: usize,
        visit: impl FnMut(TailRow<'_>),
    ) -> Result<usize, TailError> {
        self.read_before(u64::MAX, rows_max, visit)
    }

    /// Visits rows as [`Self::read`] does, those with a smaller arrival than `end`.
    pub fn read_before(
        &mut self,
        end: u64,
        rows_max: usize,
        visit: impl FnMut(TailRow<'_>),
    ) -> Result<usize, TailError> {
        self.read_limited(end, (rows_max, usize::MAX), visit)
    }

    /// Visits the next rows, at most so many, and none after those that have so many bytes together: for whoever keeps
    /// what it reads. Returns how many; none is left for now when there are none.
    pub fn read_some(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
        visit: impl FnMut(TailRow<'_>),
    ) -> Result<usize, TailError> {
        self.read_limited(u64::MAX, (rows_max, bytes_max), visit)
    }

    fn read_limited(
        &mut self,
        end: u64,
        (rows_max, bytes_max): (usize, usize),
        mut visit: impl FnMut(TailRow<'_>),
    ) -> Result<usize, TailError> {
        let (mut count, mut bytes) = (0, 0);
        while count < rows_max
            && bytes < bytes_max
            && self.reached < end
            && let Some(part) = self.next_part()?
        {
            let (mut reached, mut is_full) = (self.reached, false);
            let part_end = part.end.min(end);
            let visited = part.rows.visit_stored(self.reached..part_end, true, |found| {
                let arrival = found.row.arrival();
                debug_assert!(arrival >= reached, "rows are in order of arrival");
                let (arrival_ms, row) = (found.arrival_ms, part.rows.view(found.row));
                visit(TailRow { arrival, arrival_ms, row });
                (count, reached) = (count + 1, arrival + 1);
                bytes += row.byte_len();
                is_full = count == rows_max || bytes >= bytes_max;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            });
            self.reached = if visited.is_ok() && !is_full { part_end } else { reached };
            if !self.keeps_read {
                self.release(self.reached);
            }
            visited.map_err(TailError::Read)?;
        }
        Ok(count)
    }

    /// Returns the tail, which also keeps rows that were read until they are released, so that they can be read again.
    #[must_use]
    pub fn keeping_read(mut self) -> Self {
        self.keeps_read = true;
        self
    }

    /// Notes that rows with a smaller arrival are not read again.
    pub fn release(&mut self, arrival: u64) {
        debug_assert!(arrival <= self.reached, "they were read");
        self.released = arrival;
        self.state.place.lock().pass(arrival);
    }

    /// Goes back to the rows behind those that were released. If some of them are lost, the next read fails.
    pub fn rewind(&mut self) {
        debug_assert!(self.keeps_read, "the others may be gone");
        self.reached = self.released;
        let mut place = self.state.place.lock();
        if place.next > self.released {
            place.lost = Some(self.released..place.next);
        }
    }

    /// Returns the arrival from which on rows are read next.
    pub fn position(&self) -> u64 {
        self.reached
    }

    /// Returns the bytes that are kept for it of rows that the table has removed.
    pub fn held_bytes(&self) -> u64 {
        self.state.place.lock().held_bytes
    }

    /// Returns whether the table was dropped and all of its rows were read.
    pub fn is_ended(&self) -> bool {
        // Before the position: no row becomes visible after it was closed.
        let is_closed = self.table.is_closed();
        is_closed && self.reached >= self.table.snapshot().visible_arrival()
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns what has the next rows; `None` when there are none for now.
    fn next_part(&mut self) -> Result<Option<Arc<TailPart>>, TailError> {
        let mut place = self.state.place.lock();
        if let Some(Range { start, end }) = place.lost.take() {
            // Some of them may have been read since, from what was taken before.
            let start = start.max(self.reached);
            self.reached = self.reached.max(end);
            if start < end {
                let limit_bytes = self.state.limit_bytes;
                return Err(TailError::Lost { arrivals: start..end, limit_bytes });
            }
        }
        // What a tail keeps that were read comes first.
        if let Some(part) = place.parts.iter().find(|part| part.end > self.reached) {
            return Ok(Some(Arc::clone(part)));
        }
        // Under the lock: who removes rows takes it before.
        let snapshot = self.table.snapshot();
        let visible = snapshot.visible_arrival();
        if self.reached >= visible {
            return Ok(None);
        }
        let part = unread_part(&self.table, snapshot.state(), self.reached..visible, READ_BYTES);
        let part = Arc::new(part);
        if !self.keeps_read {
            place.parts.push_back(Arc::clone(&part));
        }
        Ok(Some(part))
    }
}

impl Drop for TableTail {
    fn drop(&mut self) {
        let mut tails = self.table.tails.lock();
        tails.retain(|tail| !std::ptr::eq(tail.as_ptr(), Arc::as_ptr(&self.state)));
    }
}

impl fmt::Debug for TableTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableTail").field("reached", &self.reached).finish_non_exhaustive()
    }
}

/// Returns what has the rows of a state with an arrival of a range: an extent, or blocks of about `bytes_max` bytes of
/// a log; or all of them.
fn unread_part(
    table: &Table,
    state: &TableState,
    arrivals: Range<u64>,
    bytes_max: usize,
) -> TailPart {
    let Range { start, end: visible } = arrivals;
    let takes_all = bytes_max == usize::MAX;
    let part = |extents: Vec<_>, logs, end| {
        let parts = TableParts::new(extents, Vec::new());
        TailPart { rows: HeldRows::unfiltered(table, parts, logs, end), end, held_bytes: 0 }
    };
    let (mut extents, mut logs) = (Vec::new(), Vec::new());
    let guard = series::pin();
    if let Some(disk) = &state.disk {
        let unread = disk.parts.extents().iter().filter(|extent| extent.arrivals().end > start);
        extents.extend(unread.take(if takes_all { usize::MAX } else { 1 }).cloned());
        if let Some(last) = extents.last()
            && !takes_all
        {
            let end = last.arrivals().end.min(visible);
            return part(extents, logs, end);
        }
        let frozen = disk.frozen.as_ref().filter(|frozen| frozen.end > start);
        if let Some(frozen) = frozen {
            let unread = start..frozen.end.min(visible);
            let (log, end) = frozen.log.shared_between(unread, bytes_max, &guard);
            if !takes_all {
                return part(extents, vec![log], end);
            }
            if !bug::is_seeded(PartBug::FrozenNotFollowed) {
                logs.push(log);
            }
        }
    }
    let (log, end) = state.log.shared_between(start..visible, bytes_max, &guard);
    logs.push(log);
    part(extents, logs, end)
}
