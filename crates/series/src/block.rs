//! A block of the log: rows one after the other, in order of arrival, in one allocation.
//!
//! `log` fills it under its lock; readers walk it. Rules 2 and 7 of the crate's protocol.
//!
//! # Layout
//!
//! ```text
//! row | row | ... -> (free) <- ... | run | run
//! ```
//!
//! Rows grow from the front (see `row_ref`), runs from the back. A run is what the rows from an
//! arrival on share, the time at which they arrived: `arrival - first arrival u32 | time - base
//! time u32`. So a time costs 8 bytes for each append and millisecond, not for each row.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    ptr::NonNull,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_host::memory::{filled, footprint};

use crate::{
    reclaim::Account,
    row_ref::{FRAME_SIZE, RowRef, head_with_arrival},
};

/// Bytes of a run.
pub(crate) const RUN_SIZE: usize = 8;
/// Blocks grow with the log, so that what is empty is little beside what is filled, up to this
/// many bytes of memory, so that a block that holds few rows any more is soon found again.
const BLOCK_MAX: usize = 1 << 20;
const BLOCK_MIN: usize = 2 << 10;
/// A new block takes this part of what the log takes already.
const BLOCK_PART: usize = 16;

/// A block. Shared by the logs that hold its rows.
pub(crate) struct Block {
    data: NonNull<u8>,
    size: usize,
    first_arrival: u64,
    base_ms: i64,
    /// Where the rows end. Grows only, under the log's lock.
    rows_end: AtomicUsize,
    /// How many runs there are. Grows only, under the log's lock.
    runs: AtomicUsize,
    /// Rows that were not removed. Written under the log's lock.
    live_rows: AtomicUsize,
    /// Who was charged for it.
    account: OnceLock<Arc<dyn Account>>,
}

// SAFETY: what is published does not change; who writes the rest holds the log's lock.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// When and in which position a row arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) arrival: u64,
    pub(crate) at_ms: i64,
}

/// The size of the next block of a log that takes so many bytes, with room for a row of so many.
pub(crate) fn block_size(log_bytes: usize, row_size: usize) -> usize {
    let wanted = (log_bytes / BLOCK_PART).next_power_of_two().clamp(BLOCK_MIN, BLOCK_MAX);
    let needed = filled((row_size + RUN_SIZE).next_multiple_of(RUN_SIZE));
    let size = filled(wanted - 16).max(needed);
    size - size % RUN_SIZE
}

/// Bytes of memory that a block of this size takes.
pub(crate) fn block_footprint(size: usize) -> usize {
    // The reference counts of the `Arc` stand before the block.
    footprint(size) + footprint(size_of::<Block>() + 2 * size_of::<usize>())
}

impl Block {
    /// Makes an empty block whose first row will have arrived then.
    pub(crate) fn new(size: usize, first: Arrived) -> Self {
        let layout = layout(size);
        // SAFETY: the size is not 0.
        let Some(data) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Slots lead here by address alone.
        let end = data.as_ptr().expose_provenance() + size;
        assert!(end >> crate::row_ref::ADDRESS_BITS == 0, "addresses have 48 bits");
        Self {
            data,
            size,
            first_arrival: first.arrival,
            base_ms: first.at_ms,
            rows_end: AtomicUsize::new(0),
            runs: AtomicUsize::new(0),
            live_rows: AtomicUsize::new(0),
            account: OnceLock::new(),
        }
    }

    /// Says who is charged with the block, and discharged when it is dropped. Returns whether it was
    /// nobody so far; the first account stays.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) -> bool {
        self.account.set(Arc::clone(account)).is_ok()
    }

    /// Appends a row; `None` when it does not fit. Under the log's lock.
    pub(crate) fn push(&self, frame: &[u8], arrived: Arrived) -> Option<RowRef<'_>> {
        let delta = u32::try_from(arrived.arrival - self.first_arrival).ok()?;
        let delta_ms = u32::try_from(arrived.at_ms.checked_sub(self.base_ms)?).ok()?;
        // Relaxed: only the holder of the lock writes.
        let (end, runs) =
            (self.rows_end.load(Ordering::Relaxed), self.runs.load(Ordering::Relaxed));
        let has_run = runs > 0 && self.run(runs - 1).1 == delta_ms;
        let runs_after = if has_run { runs } else { runs + 1 };
        if end + frame.len() + runs_after * RUN_SIZE > self.size {
            return None;
        }
        if !has_run {
            let [first, second] = self.run_at(runs);
            // SAFETY: there is room, and no reader looks at runs that were not published.
            unsafe {
                first.write(delta);
                second.write(delta_ms);
            }
            // Release: pairs with the Acquire in `arrived_ms`.
            self.runs.store(runs_after, Ordering::Release);
        }
        // SAFETY: there is room, and no reader looks at rows that were not published.
        let row = unsafe {
            let start = self.data.as_ptr().add(end);
            start.cast::<[u8; FRAME_SIZE]>().write(head_with_arrival(frame, arrived.arrival));
            let rest = &frame[FRAME_SIZE..];
            start.add(FRAME_SIZE).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            RowRef::from_raw(start)
        };
        // Release: pairs with the Acquire in `rows_end`.
        self.rows_end.store(end + frame.len(), Ordering::Release);
        // Relaxed: a number to report, written under the lock.
        self.live_rows.store(self.live_rows.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(row)
    }

    /// Where the rows end.
    #[inline]
    pub(crate) fn rows_end(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.rows_end.load(Ordering::Acquire)
    }

    /// The row that starts at an offset below the end. The caller keeps the block for `'a`.
    #[inline]
    pub(crate) fn row<'a>(&self, offset: usize) -> RowRef<'a> {
        // SAFETY: offsets are 0 and sums of the sizes of rows, and below the published end.
        unsafe { RowRef::from_raw(self.data.as_ptr().add(offset)) }
    }

    /// When a row of the block arrived.
    pub(crate) fn arrived_ms(&self, arrival: u64) -> i64 {
        let delta = u32::try_from(arrival - self.first_arrival).expect("a row of the block");
        // Acquire: pairs with the Release in `push`.
        let (mut low, mut high) = (0, self.runs.load(Ordering::Acquire));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.run(middle).0 <= delta {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let run = low.checked_sub(1).expect("the first run begins with the first row");
        self.base_ms + i64::from(self.run(run).1)
    }

    /// The arrival of the first row.
    #[inline]
    pub(crate) fn first_arrival(&self) -> u64 {
        self.first_arrival
    }

    pub(crate) fn live_rows(&self) -> usize {
        // Relaxed: a number to report.
        self.live_rows.load(Ordering::Relaxed)
    }

    /// Says how many rows are left. Under the log's lock.
    pub(crate) fn set_live_rows(&self, count: usize) {
        // Relaxed: as above.
        self.live_rows.store(count, Ordering::Relaxed);
    }

    /// Bytes of memory that the block takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        block_footprint(self.size)
    }

    fn run_at(&self, at: usize) -> [*mut u32; 2] {
        // SAFETY: whoever asks has found that there is room for the run; the size is a multiple
        // of a run's and the data are aligned for it.
        let first =
            unsafe { self.data.as_ptr().add(self.size - (at + 1) * RUN_SIZE).cast::<u32>() };
        [first, first.wrapping_add(1)]
    }

    /// A published run: arrival and time as distances.
    fn run(&self, at: usize) -> (u32, u32) {
        let [first, second] = self.run_at(at);
        // SAFETY: it was published, and does not change.
        unsafe { (first.read(), second.read()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated with the same layout.
        unsafe { dealloc(self.data.as_ptr(), layout(self.size)) };
        if let Some(account) = self.account.get() {
            account.charge(-i64::try_from(self.memory_bytes()).expect("a size fits 63 bits"));
        }
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, RUN_SIZE).expect("a block is small, or as big as one row")
}
