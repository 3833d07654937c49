//! The moments at which rows of several tables become visible together.
//!
//! Each table has a visible arrival of its own, and these are stored one after the other. So that a
//! reader of several tables does not take its snapshots between two of the stores, they are counted
//! when they begin and when they end, as in a sequence lock: [`Snapshot::align`](crate::Snapshot::align)
//! takes its snapshots again when there was one meanwhile. While it lasts, such a reader waits: for a
//! store in each table, under locks that are held already.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the publications of an engine. Has cache lines of its own: readers load it for each answer
/// over several tables, and what is beside it is written by each append.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Publications {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Publications {
    /// Runs what makes rows visible.
    pub(crate) fn publish(&self, publish: impl FnOnce()) {
        // Relaxed: whoever sees one of the rows, whose visible arrival is stored with Release, sees it.
        self.begun.fetch_add(1, Ordering::Relaxed);
        publish();
        // Release: pairs with the Acquire in `count`.
        self.ended.fetch_add(1, Ordering::Release);
    }

    /// Returns how many publications there were; `None` while there is one.
    pub(crate) fn count(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `publish`, so that what was published is seen. Before
        // `begun`, which is at least as great.
        let ended = self.ended.load(Ordering::Acquire);
        // Relaxed: the load before orders it.
        (self.begun.load(Ordering::Relaxed) == ended).then_some(ended)
    }

    /// Returns whether no publication has begun since there were so many. The caller has loaded the
    /// visible arrivals with Acquire.
    pub(crate) fn is_unchanged_since(&self, count: u64) -> bool {
        // Relaxed: the loads of the visible arrivals order it.
        self.begun.load(Ordering::Relaxed) == count
    }
}
