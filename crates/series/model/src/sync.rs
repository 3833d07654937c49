//! The atomics of the protocol as the model checker has them: see the crate's module `sync`.

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
};

/// The most rows of a chunk: so few that five rows need a directory, and so many that a full chunk is
/// copied to a larger one before.
pub(crate) const CHUNK_ROWS_MAX: usize = 4;
/// The most rows of an older chunk that received late ones.
pub(crate) const LATE_ROWS_MAX: usize = 3;

/// With so many noted late rows the nodes of a key are made anew.
pub(crate) const LATE_NOTES_MAX: usize = 8;

/// Returns the number of rows with which a leaf is made.
pub(crate) fn leaf_rows() -> usize {
    2
}

/// A lock that is never poisoned.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Takes the lock; waits until no other thread holds it.
    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Returns the number of rows with which a chunk is full.
pub(crate) fn chunk_rows() -> usize {
    CHUNK_ROWS_MAX
}

/// Stores with Release, and then passes a sequentially consistent fence.
pub(crate) fn store_and_fence(target: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire in `Epochs::oldest`.
    target.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Tells the model checker which slot is written and which is read: it fails the model when the
/// one does not happen before the other.
#[derive(Debug)]
pub(crate) struct Trace {
    slots: Vec<UnsafeCell<()>>,
}

impl Trace {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { slots: (0..capacity).map(|_| UnsafeCell::new(())).collect() }
    }

    pub(crate) fn written(&self, slot: usize) {
        self.slots[slot].with_mut(|_| ());
    }

    pub(crate) fn read(&self, len: usize) {
        for slot in &self.slots[..len] {
            slot.with(|_| ());
        }
    }
}
