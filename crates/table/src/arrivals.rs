//! Arrivals: the positions at which the engine accepts rows.
//!
//! Of an engine in memory this is a counter; where there is a log, the log gives the positions.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use lockstep_series::ARRIVAL_MAX;
use lockstep_wal::Log;

use crate::publication::Publications;

/// An append of more bytes is logged in parts.
const PART_BYTES: usize = 64 << 20;

/// The order of arrival, one for all tables of an engine.
#[derive(Debug)]
pub struct Arrivals {
    next: AtomicU64,
    log: OnceLock<Arc<dyn Log>>,
    /// An append of more bytes is logged in parts.
    part_bytes: AtomicUsize,
    /// When rows of several tables became visible together.
    pub(crate) publications: Publications,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Arrivals {
    /// Starts at `next`, which is 0 in an empty engine.
    pub fn new(next: u64) -> Self {
        let part_bytes = AtomicUsize::new(PART_BYTES);
        let (next, publications) = (AtomicU64::new(next), Publications::default());
        Self { next, log: OnceLock::new(), part_bytes, publications }
    }

    /// Takes arrivals from a log from now on, and logs the changes of tables there. Panics when there
    /// is a log already.
    pub fn continue_in(&self, log: Arc<dyn Log>) {
        assert!(self.log.set(log).is_ok(), "an engine has one log");
    }

    /// Sets after how many bytes an append is logged in parts: for tests, which have small ones.
    #[doc(hidden)]
    pub fn set_part_bytes(&self, bytes: usize) {
        // Relaxed: the number itself is all that is shared.
        self.part_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns after how many bytes an append is logged in parts.
    pub(crate) fn part_bytes(&self) -> usize {
        // Relaxed: as above.
        self.part_bytes.load(Ordering::Relaxed)
    }

    /// Returns the log, if there is one.
    pub fn log(&self) -> Option<&Arc<dyn Log>> {
        self.log.get()
    }

    /// Takes `count` consecutive arrivals and returns the first. There is no log.
    pub fn take(&self, count: u64) -> u64 {
        // Relaxed: the number itself is all that is shared.
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        assert!(first + count <= ARRIVAL_MAX, "arrivals have 48 bits");
        first
    }

    /// Returns the arrival that the next row will get.
    pub fn next(&self) -> u64 {
        match self.log() {
            Some(log) => log.end(),
            // Relaxed: as above.
            None => self.next.load(Ordering::Relaxed),
        }
    }
}
