//! Arrivals: the positions at which the engine accepts rows.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_series::ARRIVAL_MAX;

/// The counter of arrivals, one for all tables of an engine.
#[derive(Debug, Default)]
pub struct Arrivals {
    next: AtomicU64,
}

impl Arrivals {
    /// Starts at `next`, which is 0 in an empty engine.
    pub fn new(next: u64) -> Self {
        Self { next: AtomicU64::new(next) }
    }

    /// Takes `count` consecutive arrivals and returns the first.
    pub fn take(&self, count: u64) -> u64 {
        // Relaxed: the number itself is all that is shared.
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        assert!(first + count <= ARRIVAL_MAX, "arrivals have 48 bits");
        first
    }

    /// Returns the arrival that the next row will get.
    pub fn next(&self) -> u64 {
        // Relaxed: as above.
        self.next.load(Ordering::Relaxed)
    }
}
