//! Rows at the rate of their workload, not as fast as a join takes them: whether the rate is held, and how long results
//! take.
//!
//! A row is pushed when it is due; those that are due together are pushed together. A latency *from decision* begins with
//! the push of the rows that decide a result, one *from arrival* when the row of the result was due: that one is about the
//! lateness, which the join waits for by definition.

use hdrhistogram::Histogram;
use lockstep_host::{Clock, SystemClock};

use super::{
    IntervalJoin, IntervalResult, IntervalWorkload, Measurement, ROWS_AT_ONCE, WORKLOADS, fill,
};
use crate::{
    curves::Curves,
    measure::{latencies, record},
    result_table::ResultCell,
    suite::say,
};

/// The workloads whose rate is one of real time.
const PACED: [&str; 3] = ["A", "B", "D"];
/// How long rows come, with `--quick` and without it.
const RUN_MS_QUICK: u64 = 300;
const RUN_MS: u64 = 5_000;
/// The quantiles of a picture.
const QUANTILES: [f64; 16] =
    [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0];

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 7] = [
    "workload",
    "join",
    "rate, rows/s",
    "reached, rows/s",
    "p50, p99, p999 from decision, µs",
    "p50, p99, p999 from arrival, ms",
    "held",
];

/// What was measured at a rate.
struct PacedRun {
    rows_per_second: f64,
    from_decision: Histogram<u64>,
    from_arrival: Histogram<u64>,
}

/// Measures all joins of one thread at the rates of their workloads; returns the lines of a table, and pictures.
pub(super) fn measure(is_quick: bool) -> Measurement {
    let run_ms = if is_quick { RUN_MS_QUICK } else { RUN_MS };
    let (mut lines, mut panels) = (Vec::new(), Vec::new());
    for workload in WORKLOADS.iter().filter(|workload| PACED.contains(&workload.name)) {
        let mut of_decision = Vec::new();
        for (name, join) in workload.systems().into_iter().filter(|(name, _)| !name.contains(',')) {
            let run = run(workload, join, run_ms);
            say(&format!(
                "{} {name} at its rate: {:.0} rows/s",
                workload.name, run.rows_per_second
            ));
            of_decision.push((name.to_owned(), distribution(&run.from_decision)));
            lines.push(run.cells(workload, name));
        }
        panels.push(Curves {
            title: format!("{}, at its rate", workload.name),
            x: "latency from decision, µs",
            y: "part of the results",
            is_log: (true, false),
            lines: of_decision,
        });
    }
    (lines, panels)
}

/// Returns the latencies of the quantiles, in microseconds.
pub(super) fn distribution(latencies: &Histogram<u64>) -> Vec<(f64, f64)> {
    let at = |quantile: &f64| (latencies.value_at_quantile(*quantile) as f64 / 1e3, *quantile);
    QUANTILES.iter().map(at).collect()
}

fn run(workload: &IntervalWorkload, mut join: Box<dyn IntervalJoin>, run_ms: u64) -> PacedRun {
    let first = fill(workload, join.as_mut());
    let clock = SystemClock::new();
    let mut run =
        PacedRun { rows_per_second: 0.0, from_decision: latencies(), from_arrival: latencies() };
    let rate = workload.rows_per_second;
    let due_ns = |number: u64| (number - first) * 1_000_000_000 / rate;
    let mut number = first;
    let begun_ns = clock.monotonic_ns();
    let elapsed_ns = || clock.monotonic_ns() - begun_ns;
    while elapsed_ns() < run_ms * 1_000_000 {
        let pushed_ns = elapsed_ns();
        let until = number + ROWS_AT_ONCE;
        let mut emit = |result: IntervalResult| {
            let now_ns = elapsed_ns();
            record(&mut run.from_decision, now_ns - pushed_ns);
            // The others were pushed while the windows were filled.
            if result.number >= first {
                let due_ns = due_ns(result.number);
                record(&mut run.from_arrival, now_ns.saturating_sub(due_ns));
            }
        };
        let before = number;
        while number < until && due_ns(number) <= pushed_ns {
            join.push(workload.event(number), &mut emit);
            number += 1;
        }
        if number > before {
            join.advance(&mut emit);
        } else {
            std::hint::spin_loop();
        }
    }
    run.rows_per_second = (number - first) as f64 * 1e9 / elapsed_ns() as f64;
    run
}

impl PacedRun {
    fn cells(&self, workload: &IntervalWorkload, name: &str) -> Vec<ResultCell> {
        let text = |text: &str| ResultCell::Text(text.to_owned());
        let number = |number: f64| ResultCell::Numbers(vec![number]);
        let rate = workload.rows_per_second as f64;
        let is_held = self.rows_per_second > 0.99 * rate;
        vec![
            text(workload.name),
            text(name),
            number(rate),
            number(self.rows_per_second),
            ResultCell::Text(three(&self.from_decision, 1e3)),
            ResultCell::Text(three(&self.from_arrival, 1e6)),
            text(if is_held { "yes" } else { "no" }),
        ]
    }
}

/// Writes three quantiles of a histogram, in units of so many nanoseconds.
fn three(latencies: &Histogram<u64>, unit_ns: f64) -> String {
    if latencies.is_empty() {
        return "–".to_owned();
    }
    let at =
        |quantile| crate::report::short(latencies.value_at_quantile(quantile) as f64 / unit_ns);
    format!("{}, {}, {}", at(0.5), at(0.99), at(0.999))
}
