//! The counted time of a call.
//!
//! It is the processor time of this process, so that other load of the machine makes no call slow.
//! A call that waits is slow too, so a tenth of its real time counts where that is more.

use std::fs;

use lockstep_host::{Clock, SystemClock};

/// Real time that counts as one unit of processor time.
const REAL_PER_PROCESSOR_TIME: u64 = 10;

/// Linux counts processor time in hundredths of a second.
const MS_PER_TICK: u64 = 10;

/// A running measurement.
#[derive(Debug)]
pub(super) struct Stopwatch {
    clock: SystemClock,
    real_ns: u64,
    processor_ms: Option<u64>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        let clock = SystemClock::new();
        Self { real_ns: clock.monotonic_ns(), clock, processor_ms: processor_ms() }
    }

    /// Returns the counted milliseconds since the start.
    pub(super) fn counted_ms(&self) -> u64 {
        let real_ms = (self.clock.monotonic_ns() - self.real_ns) / 1_000_000;
        let processor_ms = processor_ms().zip(self.processor_ms);
        let processor_ms = processor_ms.map(|(now, then)| now.saturating_sub(then));
        counted_ms(real_ms, processor_ms)
    }
}

fn counted_ms(real_ms: u64, processor_ms: Option<u64>) -> u64 {
    let Some(processor_ms) = processor_ms else { return real_ms };
    processor_ms.min(real_ms).max(real_ms / REAL_PER_PROCESSOR_TIME)
}

/// Returns the processor time of this process, where the system tells.
fn processor_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program may have any characters; user and system time are 11 fields behind
    // it.
    let mut times = stat.rsplit_once(") ")?.1.split(' ').skip(11).map(str::parse::<u64>);
    Some((times.next()?.ok()? + times.next()?.ok()?) * MS_PER_TICK)
}

#[cfg(test)]
mod tests {
    use super::counted_ms;

    #[test]
    fn a_busy_machine_makes_no_call_slow_and_a_wait_does() {
        assert_eq!(counted_ms(1_500, None), 1_500);
        assert_eq!(counted_ms(1_500, Some(1_400)), 1_400);
        assert_eq!(counted_ms(1_500, Some(2_900)), 1_500, "two threads");
        assert_eq!(counted_ms(5_000, Some(700)), 700, "others had the processors");
        assert_eq!(counted_ms(20_000, Some(0)), 2_000, "it waited for something");
    }
}
