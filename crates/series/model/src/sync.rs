//! The atomics of the protocol as the model checker has them: see the crate's module `sync`.

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The most rows of a chunk: so few that three rows need a spine.
pub(crate) const CHUNK_ROWS_MAX: usize = 2;

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
