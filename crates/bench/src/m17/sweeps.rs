//! Sweeps of keys, window and lateness around the default workload.

use super::{IntervalWorkload, Measurement, ROWS, WORKLOADS, measure_for};
use crate::{curves::Curves, result_table::ResultCell, suite::say};

/// How long each join runs at a point, with `--quick` and without it.
const RUN_MS_QUICK: u64 = 50;
const RUN_MS: u64 = 1_000;

/// What is varied, with its values: numbers of keys, and microseconds.
const SWEEPS: [(&str, Vary, [i64; 5]); 3] = [
    ("keys", |workload, keys| workload.keys = keys.unsigned_abs(), [1, 10, 100, 1_000, 10_000]),
    ("window, µs", |workload, window| workload.window = window, [10, 100, 1_000, 10_000, 100_000]),
    (
        "lateness, µs",
        |workload, lateness| workload.lateness = lateness,
        [10, 100, 1_000, 10_000, 100_000],
    ),
];

type Vary = fn(&mut IntervalWorkload, i64);

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 4] = ["varied", "value", "join", "rows/s"];

/// Measures all sweeps; returns the lines of a table, and pictures.
pub(super) fn measure(is_quick: bool) -> Measurement {
    let run_ms = if is_quick { RUN_MS_QUICK } else { RUN_MS };
    let default = WORKLOADS.iter().find(|workload| workload.name == "default");
    let default = default.expect("there is one");
    let (mut lines, mut panels) = (Vec::new(), Vec::new());
    for (varied, vary, values) in SWEEPS {
        let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for value in values {
            let mut workload = *default;
            vary(&mut workload, value);
            for (place, (name, join)) in workload.systems().into_iter().enumerate() {
                let rate = measure_for(&workload, join, (ROWS, run_ms)).rows_per_second;
                say(&format!("{varied} {value} {name}: {rate:.0} rows/s"));
                if curves.len() <= place {
                    curves.push((name.to_owned(), Vec::new()));
                }
                curves[place].1.push((value as f64, rate));
                let number = |number: f64| ResultCell::Numbers(vec![number]);
                let text = |text: &str| ResultCell::Text(text.to_owned());
                lines.push(vec![text(varied), number(value as f64), text(name), number(rate)]);
            }
        }
        let title = format!("default, {varied} varied");
        let (y, is_log) = ("rows/s", (true, true));
        panels.push(Curves { title, x: varied, y, is_log, lines: curves });
    }
    (lines, panels)
}
