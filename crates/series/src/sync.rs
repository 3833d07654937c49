//! The atomics of the protocol, in one place that the model checker replaces.
//!
//! `epoch`, `swap`, `chunk`, `directory`, `entry` and the nodes of `levels` use them by `crate::sync`, so that the same files
//! can be compiled a second time over loom's (`crates/series/model`). Rules 2 to 6 of the
//! crate's protocol.

pub(crate) use lockstep_host::sync::Mutex;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
};

/// The most rows of a chunk.
pub(crate) const CHUNK_ROWS_MAX: usize = 128;
/// The most rows of a chunk, except the newest of its key, that received late rows: at most so many
/// slots are copied for the next one.
pub(crate) const LATE_ROWS_MAX: usize = 64;

/// The number of rows with which a chunk is full: [`CHUNK_ROWS_MAX`], except in tests.
static CHUNK_ROWS: AtomicUsize = AtomicUsize::new(CHUNK_ROWS_MAX);

/// Returns the number of rows with which a chunk is full. Called when a chunk has no space left.
#[inline]
pub(crate) fn chunk_rows() -> usize {
    // Relaxed: chunks of any size may follow each other.
    CHUNK_ROWS.load(Ordering::Relaxed)
}

/// Sets the number of rows (1 to 128) with which the chunks of this process are full from now on, so
/// that tests with few rows have keys of many chunks.
#[doc(hidden)]
pub fn set_chunk_rows(rows: usize) {
    // Relaxed: as above.
    CHUNK_ROWS.store(rows.clamp(1, CHUNK_ROWS_MAX), Ordering::Relaxed);
}

/// With so many noted late rows the nodes of a key are made anew.
pub(crate) const LATE_NOTES_MAX: usize = 1 << 14;
/// A leaf of a key's nodes is over at least so many rows, unless there are fewer between two others.
const LEAF_ROWS: usize = 128;

/// The rows of a leaf: [`LEAF_ROWS`], except in tests.
static LEAF_ROWS_NOW: AtomicUsize = AtomicUsize::new(LEAF_ROWS);

/// Returns the number of rows with which a leaf is made.
pub(crate) fn leaf_rows() -> usize {
    // Relaxed: leaves of any size may follow each other.
    LEAF_ROWS_NOW.load(Ordering::Relaxed)
}

/// Sets the number of rows of the leaves that this process makes from now on, so that tests with few
/// rows have keys of many nodes.
#[doc(hidden)]
pub fn set_leaf_rows(rows: usize) {
    // Relaxed: as above.
    LEAF_ROWS_NOW.store(rows.max(1), Ordering::Relaxed);
}

/// Stores with Release, and then passes a sequentially consistent fence.
#[inline]
pub(crate) fn store_and_fence(target: &AtomicU64, value: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // An exchange is a full fence on this processor, and takes less than half of the time of
        // `mfence`, which the other branch becomes.
        // SeqCst: pairs with the fences of `epoch`.
        let _before = target.swap(value, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // Release: pairs with the Acquire in `Epochs::oldest`.
        target.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// Tells the model checker which slot is written and which is read; nothing otherwise.
#[derive(Debug)]
pub(crate) struct Trace;

impl Trace {
    /// Traces the slots of a chunk.
    #[inline]
    pub(crate) fn new(_capacity: usize) -> Self {
        Self
    }

    /// Notes that a slot is about to be written.
    #[inline]
    pub(crate) fn written(&self, _slot: usize) {}

    /// Notes that slots below `len` may be read from here on.
    #[inline]
    pub(crate) fn read(&self, _len: usize) {}
}
