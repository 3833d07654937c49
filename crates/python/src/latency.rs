//! Whether an answer is so short that the interpreter is better kept than released.
//!
//! Releasing the interpreter wakes a thread that waits for it, and taking it back waits for that
//! thread: some microseconds each, more than a short answer takes, so that two threads with short
//! requests were slower than one. Keeping it makes others wait for one answer at most. So it is kept
//! while answers have been short, and released as soon as one was not.

use std::sync::atomic::{AtomicU64, Ordering};

use lockstep_host::{Clock, SystemClock};

/// An answer that takes less is short. A thread that waits for the interpreter asks for it every
/// 5 ms.
const SHORT_NS: u64 = 20_000;

/// How long the answers of a request take.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: SystemClock,
    /// The longest of the recent answers, fading.
    recent_ns: AtomicU64,
}

impl Pace {
    /// Before the first answer, which is taken for a long one.
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), recent_ns: AtomicU64::new(u64::MAX) }
    }

    /// Whether the next answer is likely to be short.
    pub(crate) fn is_short(&self) -> bool {
        // Relaxed: a guess that nothing else goes with.
        self.recent_ns.load(Ordering::Relaxed) < SHORT_NS
    }

    /// Runs `work` and notes how long it takes.
    pub(crate) fn note<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin_ns = self.clock.monotonic_ns();
        let result = work();
        let spent_ns = self.clock.monotonic_ns() - begin_ns;
        // Relaxed: a note of another thread that is lost is one of many.
        let recent_ns = self.recent_ns.load(Ordering::Relaxed);
        let faded_ns = if recent_ns == u64::MAX { 0 } else { recent_ns - recent_ns / 4 };
        self.recent_ns.store(spent_ns.max(faded_ns), Ordering::Relaxed);
        result
    }
}
