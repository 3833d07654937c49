//! The recent latency of a request's answers, which decides whether the interpreter is released.
//!
//! Releasing the interpreter wakes a thread that waits for it, and acquiring it again waits for
//! that thread: some microseconds each, which is more than a short answer takes, so that two
//! threads with short requests would be slower than one. Not releasing it makes others wait for one
//! answer at most. So it is not released while recent answers were short.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_host::{Clock, SystemClock};

/// Answers below this are short. A thread that waits for the interpreter requests it every 5 ms, so
/// that a short answer delays it by less than it waits anyway.
const SHORT_NS: u64 = 20_000;

/// The latency of a request's recent answers.
#[derive(Debug)]
pub(crate) struct RecentLatency {
    clock: SystemClock,
    /// The latency of the longest recent answer; it decays with each shorter one.
    recent_ns: AtomicU64,
}

impl RecentLatency {
    /// Makes the state before the first answer, which is expected to be long.
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), recent_ns: AtomicU64::new(u64::MAX) }
    }

    /// Whether the next answer is likely to be short.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: an estimate, which orders no other access.
        self.recent_ns.load(Ordering::Relaxed) < SHORT_NS
    }

    /// Runs `work` and records its latency.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin_ns = self.clock.monotonic_ns();
        let result = work();
        let spent_ns = self.clock.monotonic_ns() - begin_ns;
        // Relaxed: a record of another thread that is lost is one of many.
        let recent_ns = self.recent_ns.load(Ordering::Relaxed);
        let decayed_ns = if recent_ns == u64::MAX { 0 } else { recent_ns - recent_ns / 4 };
        self.recent_ns.store(spent_ns.max(decayed_ns), Ordering::Relaxed);
        result
    }
}
