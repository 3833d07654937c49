//! Flink's interval join over the rows of a workload, in a Java process of its own.
//!
//! Both streams are CSV files. What a job costs until it begins, and what the rows cost that fill the windows, is that of
//! a small input, which is subtracted: the rate is that of the rows which a large one has in addition.

use std::{fmt::Write as _, fs, io::Write as _, path::Path, process::Command};

use lockstep_host::disk;
use serde_json::json;

use super::{IntervalWorkload, StreamEvent, WORKLOADS};
use crate::{
    error::{Error, Result, Trying},
    measured_process::{MeasuredProcess, ProcessFigures},
    peer::{folder::TemporaryFolder, install::python_program},
    result_table::ResultCell,
    suite::say,
};

/// The Python environment.
pub(super) const ENVIRONMENT: &str = "flink";
const SCRIPT: &str = include_str!("flink_step.py");
/// Rows of both streams that a large input has in addition; with many rows in a window fewer, since a row costs as much
/// as the rows that it is joined with.
const ROWS: u64 = 400_000;
const PAIRS_MAX: u64 = 20_000_000;
const QUICK_PART: u64 = 20;
/// The rows of the small input beside those that fill the windows: few, since each change of a result is compared.
const ROWS_SMALL: u64 = 200;
/// Flink has no rows before 1970.
const EPOCH_MS: i64 = 1_000_000_000_000;

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 6] = [
    "workload",
    "rows/s",
    "processors",
    "rows/s per core",
    "lockstep, rows/s",
    "lockstep/flink per core",
];

/// Measures all workloads; `own` has the rows per second of Lockstep with one joiner.
pub(super) fn measure(
    is_quick: bool,
    own: impl Fn(&str) -> Option<f64>,
) -> Result<Vec<Vec<ResultCell>>> {
    let mut lines = Vec::new();
    for workload in &WORKLOADS {
        let [rows_per_second, processors] = run(workload, is_quick)?;
        say(&format!("{} flink: {rows_per_second:.0} rows/s", workload.name));
        let (per_core, own) = (rows_per_second / processors, own(workload.name).unwrap_or(0.0));
        let numbers = [rows_per_second, processors, per_core, own, own / per_core];
        let mut line = vec![ResultCell::Text(workload.name.to_owned())];
        line.extend(numbers.map(|number| ResultCell::Numbers(vec![number])));
        lines.push(line);
    }
    Ok(lines)
}

/// Returns the rows per second, and how many processors were busy.
fn run(workload: &IntervalWorkload, is_quick: bool) -> Result<[f64; 2]> {
    let folder = TemporaryFolder::new("m17")?;
    let part = if is_quick { QUICK_PART } else { 1 };
    let rows = (PAIRS_MAX / workload.rows_in_window().max(1)).min(ROWS) / part;
    let small = workload.events_with_full_windows(ROWS_SMALL);
    write(&folder.path().join("small"), &small)?;
    write(&folder.path().join("large"), &workload.events_with_full_windows(ROWS_SMALL + rows))?;
    let script = folder.path().join("flink_step.py");
    let written = disk::create(&script).and_then(|mut file| file.write_all(SCRIPT.as_bytes()));
    written.trying(|| format!("write {}", script.display()))?;
    let step = json!({
        "folder": folder.path(), "window": workload.window, "lateness": workload.lateness,
    });
    let mut command = Command::new(python_program(ENVIRONMENT));
    let figures = MeasuredProcess::start(command.arg(script).arg(step.to_string()))?.measure()?;
    compare(workload, &small, &figures)?;
    let number = |name: &str| figures.result[name].as_f64().unwrap_or(0.0);
    let seconds = (number("large_ms") - number("small_ms")).max(1.0) / 1e3;
    Ok([rows as f64 / seconds, figures.processors])
}

/// Checks that the results of the small input are right.
fn compare(
    workload: &IntervalWorkload,
    events: &[StreamEvent],
    found: &ProcessFigures,
) -> Result<()> {
    let (mut results, mut count, mut sum) = (0_u64, 0_u64, 0.0);
    for base in events.iter().filter(|event| !event.is_probe) {
        let is_in = |probe: &&StreamEvent| {
            let age = base.time - probe.time;
            probe.is_probe && probe.key == base.key && (0..=workload.window).contains(&age)
        };
        let (mut of_base, mut sum_of_base) = (0_u64, 0.0);
        for probe in events.iter().filter(is_in) {
            (of_base, sum_of_base) = (of_base + 1, sum_of_base + probe.value);
        }
        results += u64::from(of_base > 0);
        (count, sum) = (count + of_base, sum + sum_of_base);
    }
    let number = |name: &str| found.result[name].as_f64().unwrap_or(-1.0);
    let whole = |name: &str| found.result[name].as_u64();
    let is_same = whole("results") == Some(results)
        && whole("count") == Some(count)
        && (number("sum") - sum).abs() <= 1e-9 * sum.abs();
    if is_same {
        return Ok(());
    }
    let system = format!("{}, flink", workload.name);
    let difference = format!("{}, but {results} results of {count} rows, sum {sum}", found.result);
    Err(Error::Disagreement { system, request: 0, difference })
}

/// Writes the rows of both streams.
fn write(folder: &Path, events: &[StreamEvent]) -> Result<()> {
    fs::create_dir_all(folder).trying(|| format!("create directory {}", folder.display()))?;
    for (name, is_probe) in [("base", false), ("probe", true)] {
        let mut text = String::new();
        for event in events.iter().filter(|event| event.is_probe == is_probe) {
            let StreamEvent { number, key, time, value, .. } = *event;
            writeln!(text, "{number},{key},{},{value}", time + EPOCH_MS)
                .expect("a string takes everything");
        }
        let path = folder.join(format!("{name}.csv"));
        let written = disk::create(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.trying(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

impl IntervalWorkload {
    /// Returns about how many probe rows a window has.
    fn rows_in_window(&self) -> u64 {
        let probes = self.rows_per_second * self.window.unsigned_abs() / 1_000_000;
        probes / self.rows_per_probe / self.keys
    }

    /// Returns so many rows, and before them those probe rows that fill the windows.
    fn events_with_full_windows(&self, rows: u64) -> Vec<StreamEvent> {
        let first = self.rows_to_fill();
        let events = (0..first + rows).map(|number| self.event(number));
        events.filter(|event| event.is_probe || event.number >= first).collect()
    }
}
