//! Joiners on cores that this machine does not have: what each message costs is measured, and that joiners work at once is
//! simulated ([`lockstep_stream::SimulatedTimes`]).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use lockstep_host::{Clock, SystemClock};

use super::{
    IntervalJoin, IntervalWorkload, ROWS_AT_ONCE, ROWS_GENERATED, StreamEvent, WORKLOADS, fill,
    stream_join::StreamJoin,
};
use crate::{result_table::ResultCell, suite::say};

/// How many joiners are simulated.
const JOINERS: [usize; 7] = [1, 2, 4, 8, 16, 32, 48];
/// Rows of a simulation, with `--quick` and without it.
const ROWS_QUICK: u64 = 100_000;
const ROWS: u64 = 1_000_000;

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 6] = [
    "workload",
    "joiners",
    "rows/s",
    "thread that passes rows busy, %",
    "joiners busy, %",
    "busiest joiner, %",
];

/// A clock that stands still while rows are generated.
#[derive(Debug, Default)]
struct WorkClock {
    clock: SystemClock,
    /// How long it has stood still.
    skipped_ns: AtomicU64,
}

impl WorkClock {
    /// Does something that takes no time.
    fn skip<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun_ns = self.clock.monotonic_ns();
        let made = work();
        // Relaxed: one thread uses it.
        self.skipped_ns.fetch_add(self.clock.monotonic_ns() - begun_ns, Ordering::Relaxed);
        made
    }
}

impl Clock for WorkClock {
    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns() - self.skipped_ns.load(Ordering::Relaxed)
    }
}

/// Simulates all workloads.
pub(super) fn simulate(is_quick: bool) -> Vec<Vec<ResultCell>> {
    let rows = if is_quick { ROWS_QUICK } else { ROWS };
    let mut lines = Vec::new();
    for workload in &WORKLOADS {
        for joiners in JOINERS {
            let numbers = run(workload, joiners, rows);
            say(&format!(
                "{}, {joiners} joiners simulated: {:.0} rows/s",
                workload.name, numbers[0]
            ));
            let mut line = vec![ResultCell::Text(workload.name.to_owned())];
            line.push(ResultCell::Numbers(vec![joiners as f64]));
            line.extend(numbers.map(|number| ResultCell::Numbers(vec![number])));
            lines.push(line);
        }
    }
    lines
}

fn run(workload: &IntervalWorkload, joiners: usize, rows: u64) -> [f64; 4] {
    let clock = Arc::new(WorkClock::default());
    let for_join: Arc<dyn Clock> = Arc::<WorkClock>::clone(&clock);
    let mut join = StreamJoin::simulated(workload, joiners, for_join);
    let first = fill(workload, &mut join);
    let mut ignore = |result| {
        std::hint::black_box(result);
    };
    // Teams are as they become.
    let mut number = pass(workload, &mut join, (first, rows / 4), &clock);
    join.flush(&mut ignore);
    let before = join.times();
    let from = number;
    number = pass(workload, &mut join, (number, rows), &clock);
    join.flush(&mut ignore);
    let after = join.times();
    let elapsed = (after.elapsed_ns - before.elapsed_ns).max(1) as f64;
    let busy = |(after, before): (&u64, &u64)| (after - before) as f64 / elapsed * 100.0;
    let joiners_busy: Vec<f64> =
        after.joiners_ns.iter().zip(&before.joiners_ns).map(busy).collect();
    let mean = joiners_busy.iter().sum::<f64>() / joiners as f64;
    let busiest = joiners_busy.iter().copied().fold(0.0, f64::max);
    let passing = busy((&after.passing_ns, &before.passing_ns));
    [(number - from) as f64 * 1e9 / elapsed, passing, mean, busiest]
}

/// Passes so many rows from one on, and returns the number of the next one.
fn pass(
    workload: &IntervalWorkload,
    join: &mut StreamJoin,
    (first, rows): (u64, u64),
    clock: &WorkClock,
) -> u64 {
    let mut ignore = |result| {
        std::hint::black_box(result);
    };
    let mut number = first;
    while number < first + rows {
        let events: Vec<StreamEvent> = clock.skip(|| {
            (number..number + ROWS_GENERATED).map(|number| workload.event(number)).collect()
        });
        number += ROWS_GENERATED;
        for some in events.chunks(usize::try_from(ROWS_AT_ONCE).unwrap_or(1)) {
            for event in some {
                join.push(*event, &mut ignore);
            }
            join.advance(&mut ignore);
        }
    }
    number
}
