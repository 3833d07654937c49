//! Time: the wall clock in milliseconds and a monotonic clock in nanoseconds.
//!
//! Code that needs time has an `Arc<dyn Clock>`. [`SystemClock`] is the machine's;
//! [`ManualClock`] stands still until a test moves it.

use std::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the milliseconds since the Unix epoch, UTC. May step back when the machine's clock is set.
    fn now_ms(&self) -> i64;

    /// Returns the nanoseconds since some fixed time; never steps back. For measuring durations.
    fn monotonic_ns(&self) -> u64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Makes a clock whose monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the real clock")]
    fn now_ms(&self) -> i64 {
        let now = SystemTime::now();
        // A clock set to before 1970 counts down from zero.
        now.duration_since(UNIX_EPOCH).map_or_else(
            |before| -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
            |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        )
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that moves only when it is told to.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    /// Makes a clock that shows `now_ms`; its monotonic time is zero.
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms), monotonic_ns: AtomicU64::new(0) }
    }

    /// Sets the wall clock, also backwards. The monotonic clock stays.
    pub fn set_ms(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::SeqCst);
    }

    /// Moves both clocks forward.
    pub fn advance_ms(&self, ms: u32) {
        self.now_ms.fetch_add(i64::from(ms), Ordering::SeqCst);
        self.monotonic_ns.fetch_add(u64::from(ms) * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, ManualClock, SystemClock};

    #[test]
    fn the_system_clock_is_past_2020_and_does_not_step_back() {
        let clock = SystemClock::new();
        assert!(clock.now_ms() > 1_577_836_800_000);
        let earlier = clock.monotonic_ns();
        assert!(clock.monotonic_ns() >= earlier);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(5);
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (5, 0));
        clock.advance_ms(2);
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (7, 2_000_000));
        clock.set_ms(1);
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (1, 2_000_000));
    }
}
