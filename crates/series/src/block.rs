//! A block of the log: rows in order of arrival, one after the other, in one allocation.
//!
//! `log` fills it under its lock; readers walk it. Rules 2 and 7 of the crate's protocol.
//!
//! # Layout
//!
//! ```text
//! row | row | ... -> (free) <- ... | time entry | time entry
//! ```
//!
//! Rows are added from the front (see `row_ref`), time entries from the back. A time entry is the
//! time at which the rows from an arrival on arrived: `arrival - first arrival u32 | time - base time
//! u32`. So a time takes 8 bytes for each append and millisecond, not for each row.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_host::memory::{footprint, usable_size};

use crate::{
    reclaim::Account,
    row_ref::{ROW_HEADER_SIZE, RowRef, header_with_arrival},
};

/// Bytes of a time entry.
pub(crate) const TIME_ENTRY_SIZE: usize = 8;
/// Blocks grow with the log, so that what is empty is little beside what is filled, up to this many
/// bytes of memory, so that compaction soon finds a block of which few rows are left.
const BLOCK_MAX: usize = 1 << 20;
const BLOCK_MIN: usize = 2 << 10;
/// A new block has this part of the bytes that the log takes already.
const BLOCK_PART: usize = 16;

/// A block of rows. Shared by the logs that have its rows.
pub(crate) struct LogBlock {
    data: NonNull<u8>,
    size: usize,
    first_arrival: u64,
    base_ms: i64,
    /// Where the rows end. Grows only, under the log's lock.
    rows_end: AtomicUsize,
    /// The number of time entries. Grows only, under the log's lock.
    time_entries: AtomicUsize,
    /// The number of rows that were not removed. Written under the log's lock.
    live_rows: AtomicUsize,
    /// The account that is charged with it.
    account: OnceLock<Arc<dyn Account>>,
}

// SAFETY: what is published does not change; whoever writes the rest holds the log's lock.
unsafe impl Send for LogBlock {}
// SAFETY: as above.
unsafe impl Sync for LogBlock {}

/// The position and the time at which a row arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivalStamp {
    pub(crate) arrival: u64,
    pub(crate) at_ms: i64,
}

/// The time at which the rows from an arrival on arrived, as distances from the block's first row.
struct TimeEntry {
    arrival_delta: u32,
    delta_ms: u32,
}

/// Returns the size of the next block of a log that takes so many bytes, which has space for a row of
/// `row_size` bytes.
pub(crate) fn block_size(log_bytes: usize, row_size: usize) -> usize {
    let wanted = (log_bytes / BLOCK_PART).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
    let needed = usable_size((row_size + TIME_ENTRY_SIZE).next_multiple_of(TIME_ENTRY_SIZE));
    let size = usable_size(wanted - 16).max(needed);
    let size = size - size % TIME_ENTRY_SIZE;
    assert!(size >= row_size + TIME_ENTRY_SIZE, "the row and its time entry fit");
    size
}

/// Returns the bytes of memory that a block of this size takes.
pub(crate) fn block_footprint(size: usize) -> usize {
    // The reference counts of the `Arc` precede the block.
    footprint(size) + footprint(size_of::<LogBlock>() + 2 * size_of::<usize>())
}

impl LogBlock {
    /// Makes an empty block whose first row will have this stamp.
    pub(crate) fn new(size: usize, first: ArrivalStamp) -> Self {
        let layout = layout(size);
        // SAFETY: the size is not 0.
        let Some(data) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Slots have the address alone.
        let end = data.as_ptr().expose_provenance() + size;
        assert!(end >> crate::row_ref::ADDRESS_BITS == 0, "addresses have 48 bits");
        Self {
            data,
            size,
            first_arrival: first.arrival,
            base_ms: first.at_ms,
            rows_end: AtomicUsize::new(0),
            time_entries: AtomicUsize::new(0),
            live_rows: AtomicUsize::new(0),
            account: OnceLock::new(),
        }
    }

    /// Sets the account that is charged with the block, and discharged when it is dropped. Returns
    /// whether there was none; the first account stays.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) -> bool {
        self.account.set(Arc::clone(account)).is_ok()
    }

    /// Appends a row; `None` when it does not fit. Under the log's lock.
    pub(crate) fn push(&self, row_bytes: &[u8], stamp: ArrivalStamp) -> Option<RowRef<'_>> {
        debug_assert!(row_bytes.len() >= ROW_HEADER_SIZE, "a row has a header");
        debug_assert!(stamp.arrival >= self.first_arrival, "rows are in order of arrival");
        let delta = u32::try_from(stamp.arrival - self.first_arrival).ok()?;
        let delta_ms = u32::try_from(stamp.at_ms.checked_sub(self.base_ms)?).ok()?;
        // Relaxed: only the holder of the lock writes.
        let (end, entries) =
            (self.rows_end.load(Ordering::Relaxed), self.time_entries.load(Ordering::Relaxed));
        let has_entry = entries > 0 && self.time_entry(entries - 1).delta_ms == delta_ms;
        let entries_after = if has_entry { entries } else { entries + 1 };
        if end + row_bytes.len() + entries_after * TIME_ENTRY_SIZE > self.size {
            return None;
        }
        if !has_entry {
            let [first, second] = self.time_entry_at(entries);
            // SAFETY: there is space, and no reader looks at entries that were not published.
            unsafe {
                first.write(delta);
                second.write(delta_ms);
            }
            // Release: pairs with the Acquire in `arrived_ms`.
            self.time_entries.store(entries_after, Ordering::Release);
        }
        // SAFETY: there is space, and no reader looks at rows that were not published.
        let row = unsafe {
            let start = self.data.as_ptr().add(end);
            let header = header_with_arrival(row_bytes, stamp.arrival);
            start.cast::<[u8; ROW_HEADER_SIZE]>().write(header);
            let rest = &row_bytes[ROW_HEADER_SIZE..];
            start.add(ROW_HEADER_SIZE).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            RowRef::from_raw(start)
        };
        // Release: pairs with the Acquire in `rows_end`.
        self.rows_end.store(end + row_bytes.len(), Ordering::Release);
        // Relaxed: a number to report, written under the lock.
        self.live_rows.store(self.live_rows.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(row)
    }

    /// Returns the offset at which the rows end.
    #[inline]
    pub(crate) fn rows_end(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.rows_end.load(Ordering::Acquire)
    }

    /// Returns the row that starts at an offset below the end. The caller keeps the block for `'a`.
    #[inline]
    pub(crate) fn row<'a>(&self, offset: usize) -> RowRef<'a> {
        debug_assert!(offset < self.rows_end(), "a row is read from published rows");
        // SAFETY: offsets are 0 and sums of the sizes of rows, and below the published end.
        unsafe { RowRef::from_raw(self.data.as_ptr().add(offset)) }
    }

    /// Returns the time at which a row of the block arrived. Binary search.
    pub(crate) fn arrived_ms(&self, arrival: u64) -> i64 {
        let delta = u32::try_from(arrival - self.first_arrival).expect("a row of the block");
        // Acquire: pairs with the Release in `push`.
        let (mut low, mut high) = (0, self.time_entries.load(Ordering::Acquire));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.time_entry(middle).arrival_delta <= delta {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = low.checked_sub(1).expect("the first entry is of the first row");
        self.base_ms + i64::from(self.time_entry(entry).delta_ms)
    }

    /// Returns the arrival of the first row.
    #[inline]
    pub(crate) fn first_arrival(&self) -> u64 {
        self.first_arrival
    }

    /// Returns the number of rows that were not removed.
    pub(crate) fn live_rows(&self) -> usize {
        // Relaxed: a number to report.
        self.live_rows.load(Ordering::Relaxed)
    }

    /// Sets the number of rows that were not removed. Under the log's lock.
    pub(crate) fn set_live_rows(&self, count: usize) {
        // Relaxed: as above.
        self.live_rows.store(count, Ordering::Relaxed);
    }

    /// Returns the bytes of memory that the block takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        block_footprint(self.size)
    }

    /// Returns the address of a time entry.
    fn time_entry_at(&self, at: usize) -> [*mut u32; 2] {
        // SAFETY: the caller has found that there is space for the entry; the size is a multiple of an
        // entry's and the data are aligned for it.
        let first =
            unsafe { self.data.as_ptr().add(self.size - (at + 1) * TIME_ENTRY_SIZE).cast::<u32>() };
        [first, first.wrapping_add(1)]
    }

    /// Returns a published time entry.
    fn time_entry(&self, at: usize) -> TimeEntry {
        let [first, second] = self.time_entry_at(at);
        // SAFETY: it was published, and does not change.
        unsafe { TimeEntry { arrival_delta: first.read(), delta_ms: second.read() } }
    }
}

impl Drop for LogBlock {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated with the same layout.
        unsafe { dealloc(self.data.as_ptr(), layout(self.size)) };
        if let Some(account) = self.account.get() {
            account.charge(-i64::try_from(self.memory_bytes()).expect("a size fits 63 bits"));
        }
    }
}

/// Returns the layout of a block of this size.
fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, TIME_ENTRY_SIZE)
        .expect("a block is small, or has the size of one row")
}
