//! Reading the rows of one entity key.
//!
//! [`KeyRows`] goes from the newest row to the oldest, which is what windows and joins do;
//! [`OldestRows`] the other way. Both borrow a guard and allocate nothing.

use std::fmt;

use crate::{
    Bounds, RowRef,
    chunk::{Chunk, Slot},
    entry::{Entry, Spine},
};

/// How many rows ahead of the reader the rows are asked for.
const PREFETCH_DISTANCE: usize = 8;

/// A row and its event time in the index.
#[derive(Debug, Clone, Copy)]
pub struct KeyRow<'g> {
    /// The event time in milliseconds; NULL is `i64::MIN`.
    pub event_time: i64,
    /// The row.
    pub row: RowRef<'g>,
}

/// The rows of one key from the newest to the oldest by (event time, arrival), without those that
/// its [`Bounds`] hide.
#[derive(Clone)]
pub struct KeyRows<'g> {
    spine: Option<&'g Spine>,
    /// Filled slots of the current chunk that were not reached yet.
    ahead: &'g [Slot],
    chunk: Option<&'g Chunk>,
    /// Chunks older than the current one.
    chunks_ahead: usize,
    /// How many visible rows were passed.
    passed: u64,
    bounds: Bounds,
}

impl<'g> KeyRows<'g> {
    /// The rows of an entry; the caller holds a guard for `'g`.
    #[inline]
    pub(crate) fn new(entry: &'g Entry, bounds: Bounds) -> Self {
        let spine = entry.spine();
        let chunks_ahead = spine.len();
        Self { spine: Some(spine), ahead: &[], chunk: None, chunks_ahead, passed: 0, bounds }
    }

    /// No rows.
    pub fn empty() -> Self {
        let bounds = Bounds::everything();
        Self { spine: None, ahead: &[], chunk: None, chunks_ahead: 0, passed: 0, bounds }
    }

    /// Skips the rows newer than `event_time_max`; never goes back. Binary search over the
    /// chunks, then within one. Rows skipped still count for retention by number.
    pub fn seek(&mut self, event_time_max: i64) {
        self.seek_to(|slot| slot.event_time() <= event_time_max);
    }

    /// Whether the row with this event time and arrival is among the rows ahead. Binary search.
    pub fn contains(mut self, event_time: i64, arrival: u64) -> bool {
        self.seek_to(|slot| slot.is_at_or_before((event_time, arrival)));
        self.next().is_some_and(|found| found.row.arrival() == arrival)
    }

    /// Skips the rows for which `is_reached` does not hold; it holds for a row and all older.
    fn seek_to(&mut self, is_reached: impl Fn(&Slot) -> bool) {
        let Some(spine) = self.spine else { return };
        if self.ahead.first().is_some_and(&is_reached) {
            let kept = self.ahead.partition_point(&is_reached);
            self.pass(kept);
            return;
        }
        self.pass(0);
        let reached = spine.partition_point(self.chunks_ahead, &is_reached);
        if self.bounds.counts_rows() {
            while self.chunks_ahead > reached {
                if self.bounds.is_spent(self.passed) {
                    self.chunks_ahead = 0;
                    return;
                }
                self.enter_chunk(spine);
                self.pass(0);
            }
        }
        self.chunks_ahead = reached;
        if reached > 0 {
            self.enter_chunk(spine);
            let kept = self.ahead.partition_point(&is_reached);
            self.pass(kept);
        }
    }

    /// Passes all slots ahead in the chunk but the oldest `kept`, counting if that matters.
    fn pass(&mut self, kept: usize) {
        let (kept, skipped) = self.ahead.split_at(kept);
        self.ahead = kept;
        if !self.bounds.counts_rows() || skipped.is_empty() {
            return;
        }
        let all_visible =
            self.chunk.is_some_and(|chunk| self.bounds.is_visible(chunk.arrival_max()));
        let count = if all_visible {
            skipped.len()
        } else {
            skipped.iter().filter(|slot| self.bounds.is_visible(slot.row().arrival())).count()
        };
        self.passed += u64::try_from(count).expect("a count of slots fits 64 bits");
    }

    /// Goes on to the next older chunk; there is one.
    #[inline]
    fn enter_chunk(&mut self, spine: &'g Spine) {
        self.chunks_ahead -= 1;
        let chunk = spine.chunk(self.chunks_ahead);
        self.chunk = Some(chunk);
        self.ahead = chunk.filled();
    }
}

impl<'g> Iterator for KeyRows<'g> {
    type Item = KeyRow<'g>;

    #[inline]
    fn next(&mut self) -> Option<KeyRow<'g>> {
        loop {
            let Some((slot, older)) = self.ahead.split_last() else {
                if self.chunks_ahead == 0 {
                    return None;
                }
                self.enter_chunk(self.spine?);
                continue;
            };
            self.ahead = older;
            if let Some(later) = older.len().checked_sub(PREFETCH_DISTANCE) {
                older[later].prefetch_row();
            }
            let row = slot.row();
            if !self.bounds.is_visible(row.arrival()) {
                continue;
            }
            let event_time = slot.event_time();
            self.passed += 1;
            if self.bounds.is_expired(event_time, self.passed) {
                self.ahead = &[];
                self.chunks_ahead = 0;
                return None;
            }
            return Some(KeyRow { event_time, row });
        }
    }
}

impl fmt::Debug for KeyRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRows").field("passed", &self.passed).finish_non_exhaustive()
    }
}

/// The rows of one key from the oldest to the newest, without those that arrived too late.
/// Retention is not looked at.
pub struct OldestRows<'g> {
    spine: Option<&'g Spine>,
    /// Filled slots of the current chunk that were not reached yet.
    ahead: &'g [Slot],
    /// The next chunk.
    chunk_next: usize,
    /// Chunks that there were at the start; later ones hold later rows only.
    chunk_count: usize,
    bounds: Bounds,
}

impl<'g> OldestRows<'g> {
    /// The rows of an entry; the caller holds a guard for `'g`.
    pub(crate) fn new(entry: Option<&'g Entry>, visible: u64) -> Self {
        let bounds = Bounds::visible(visible);
        let spine = entry.map(Entry::spine);
        let chunk_count = spine.map_or(0, Spine::len);
        Self { spine, ahead: &[], chunk_next: 0, chunk_count, bounds }
    }
}

impl<'g> Iterator for OldestRows<'g> {
    type Item = KeyRow<'g>;

    #[inline]
    fn next(&mut self) -> Option<KeyRow<'g>> {
        loop {
            let Some((slot, newer)) = self.ahead.split_first() else {
                let spine = self.spine?;
                if self.chunk_next == self.chunk_count {
                    return None;
                }
                self.ahead = spine.chunk(self.chunk_next).filled();
                self.chunk_next += 1;
                continue;
            };
            self.ahead = newer;
            let row = slot.row();
            if self.bounds.is_visible(row.arrival()) {
                return Some(KeyRow { event_time: slot.event_time(), row });
            }
        }
    }
}

impl fmt::Debug for OldestRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldestRows").field("chunk_next", &self.chunk_next).finish_non_exhaustive()
    }
}
