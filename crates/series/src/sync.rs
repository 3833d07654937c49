//! The atomics of the protocol, in one place that the model checker replaces.
//!
//! `chunk`, `spine` and `entry` take them from here by `super::sync`, so that the same files can
//! be compiled a second time over loom's (`crates/series/model`). Rules 2 to 5 of the crate's protocol.

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The most rows of a chunk: a late row copies at most so many slots.
pub(crate) const CHUNK_ROWS_MAX: usize = 128;

/// Tells the model checker which slot is written and which is read; nothing otherwise.
#[derive(Debug)]
pub(crate) struct Trace;

impl Trace {
    #[inline]
    pub(crate) fn new(_capacity: usize) -> Self {
        Self
    }

    /// A slot is about to be written.
    #[inline]
    pub(crate) fn written(&self, _slot: usize) {}

    /// Slots below `len` may be read from here on.
    #[inline]
    pub(crate) fn read(&self, _len: usize) {}
}
