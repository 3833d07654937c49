//! M17: interval joins of two streams that arrive out of order, in memory, and streams from tables to a table.
//!
//! Of each base row, the number and the sum of the probe rows of its key in the window before it, once the watermark
//! has passed it. The workloads are those of Scale-OIJ (ICDE 2023): rate, keys, window and lateness. Each row is late
//! by a part of the lateness that is drawn, so that none is dropped and all results are exact.
//!
//! The baselines are the two algorithms that the paper compares itself with, over the same rows ([`rivals`]). Before
//! anything is timed, all give the same results. What feeds the rows costs the same in all: they are read from memory.

mod flink;
mod pace;
mod rival_crew;
mod rivals;
mod simulation;
mod soak;
mod stream_join;
mod sweeps;
mod tables;

use std::collections::HashMap;

use hdrhistogram::Histogram;
use lockstep_host::{Clock, SystemClock};
use serde_json::{Map, Value as Json, json};

pub(crate) use self::soak::run_step;
use self::{
    rival_crew::{Division, RivalCrew},
    rivals::{KeyJoin, SplitJoin},
    stream_join::StreamJoin,
};
use crate::{
    arguments::{BenchOptions, PeerName},
    curves::Curves,
    draw::KeyedRandom,
    error::{Error, Result},
    m9::python_environment,
    measure::{latencies, record},
    report::{LOCKSTEP, Point, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
};

/// A workload. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
struct IntervalWorkload {
    name: &'static str,
    rows_per_second: u64,
    keys: u64,
    window: i64,
    lateness: i64,
    /// One of so many rows is a probe row.
    rows_per_probe: u64,
}

/// The workloads. The shares of probe rows are such that a window has the number of rows that the paper states.
const WORKLOADS: [IntervalWorkload; 6] = [
    IntervalWorkload {
        name: "A",
        rows_per_second: 120_000,
        keys: 5,
        window: 1_000_000,
        lateness: 1_000_000,
        rows_per_probe: 6,
    },
    IntervalWorkload {
        name: "B",
        rows_per_second: 200_000,
        keys: 111,
        window: 150_000_000,
        lateness: 10_000_000,
        rows_per_probe: 45,
    },
    IntervalWorkload {
        name: "C",
        rows_per_second: 3_400,
        keys: 45,
        window: 8_000_000,
        lateness: 100_000_000,
        rows_per_probe: 2,
    },
    IntervalWorkload {
        name: "D",
        rows_per_second: 15_000,
        keys: 5,
        window: 1_000_000,
        lateness: 2_000_000,
        rows_per_probe: 2,
    },
    IntervalWorkload {
        name: "default",
        rows_per_second: 1_000_000,
        keys: 100,
        window: 1_000,
        lateness: 100,
        rows_per_probe: 2,
    },
    IntervalWorkload {
        name: "short windows",
        rows_per_second: 1_000_000,
        keys: 1_000,
        window: 100,
        lateness: 10,
        rows_per_probe: 2,
    },
];

/// So many rows are generated before they are pushed.
const ROWS_GENERATED: u64 = 4_096;
/// So many rows are pushed before results are taken.
const ROWS_AT_ONCE: u64 = 64;
/// A round of several joiners has so many rows, as many as a stream reads of a table at once.
const ROWS_PER_ROUND: u64 = 1_024;
/// Rows of a workload at most, with `--quick` and without it.
const ROWS_QUICK: u64 = 300_000;
const ROWS: u64 = 20_000_000;
/// How long a join runs at most, with `--quick` and without it.
const RUN_MS_QUICK: u64 = 400;
const RUN_MS: u64 = 5_000;
/// The base rows of which results are compared.
const COMPARED: u64 = 2_000;

/// A row of a stream.
#[derive(Debug, Clone, Copy)]
struct StreamEvent {
    number: u64,
    is_probe: bool,
    key: u64,
    time: i64,
    value: f64,
}

/// The result of a base row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct IntervalResult {
    /// The number of the base row.
    number: u64,
    count: i64,
    sum: f64,
}

/// A join of two streams.
trait IntervalJoin {
    /// Takes a row.
    fn push(&mut self, event: StreamEvent, emit: &mut dyn FnMut(IntervalResult));
    /// Gives the results that are final; those of several joiners are given with a later round.
    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult));
    /// Gives all results that are final.
    fn flush(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.advance(emit);
    }
    /// Returns the rows in windows, as a part of those that were visited; `None` where windows are slid.
    fn effectiveness(&self) -> Option<f64>;
}

/// What was measured of a join.
struct JoinRun {
    rows_per_second: f64,
    /// From the push of the row that decides a result to the result.
    latencies: Histogram<u64>,
    effectiveness: Option<f64>,
}

impl IntervalWorkload {
    fn event(&self, number: u64) -> StreamEvent {
        debug_assert!(self.rows_per_probe > 0 && self.keys > 0, "there are rows of both streams");
        let draw = KeyedRandom::at(&[17, number]);
        let clock = i64::try_from(number * 1_000_000 / self.rows_per_second).unwrap_or(i64::MAX);
        let lateness = u64::try_from(self.lateness).unwrap_or(0) + 1;
        let late = i64::try_from(draw.below(0, lateness)).unwrap_or(0);
        StreamEvent {
            number,
            is_probe: draw.below(1, self.rows_per_probe) == 0,
            key: draw.below(2, self.keys),
            time: clock - late,
            value: draw.below(3, 1 << 20) as f64 / 128.0,
        }
    }

    /// Returns how many rows come before all windows are full.
    fn rows_to_fill(&self) -> u64 {
        let time = u64::try_from(self.window + self.lateness).unwrap_or(0);
        time * self.rows_per_second / 1_000_000
    }

    fn systems(&self) -> Vec<(&'static str, Box<dyn IntervalJoin>)> {
        vec![
            ("lockstep", Box::new(StreamJoin::new(self, 1))),
            ("lockstep, 2 joiners", Box::new(StreamJoin::new(self, 2))),
            ("Key-OIJ", Box::new(KeyJoin::new(self.keys, self.window, self.lateness))),
            ("Key-OIJ, 2 joiners", Box::new(RivalCrew::new(self, Division::Keys, 2))),
            ("SplitJoin", Box::new(SplitJoin::new(self.window, self.lateness))),
            ("SplitJoin, 2 joiners", Box::new(RivalCrew::new(self, Division::InTurn, 2))),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let mut joins = Joins::default();
    for workload in WORKLOADS {
        joins.measure(&workload, options.quick)?;
    }
    let table = |title: &str, columns: &[&'static str], rows| MeasurementTable {
        title: title.to_owned(),
        columns: columns.to_vec(),
        rows,
    };
    let mut tables = vec![table("interval joins", &JOIN_COLUMNS, joins.lines)];
    let mut curves = joins.panels;
    let mut add = |title: &str, columns: &[&'static str], (rows, panels): Measurement| {
        tables.push(table(title, columns, rows));
        curves.extend(panels);
    };
    let title = "interval joins at the rate of the workload, one joiner";
    add(title, &pace::COLUMNS, pace::measure(options.quick));
    if options.sweep {
        add("sweeps around the default workload", &sweeps::COLUMNS, sweeps::measure(options.quick));
    }
    if wanted(options, PeerName::Flink, || python_environment(flink::ENVIRONMENT))?.is_some() {
        let own = |workload: &str| joins.own.get(workload).copied();
        let rows = flink::measure(options.quick, own)?;
        add("beside Flink's interval join", &flink::COLUMNS, (rows, Vec::new()));
    }
    add("streams from tables to a table", &tables::COLUMNS, tables::measure(options.quick)?);
    let rows = simulation::simulate(options.quick);
    let title = "interval joins, simulated: a core for each joiner";
    add(title, &simulation::COLUMNS, (rows, Vec::new()));
    if let Some(minutes) = options.soak {
        let title = "memory of a stream with an idle side";
        add(title, &soak::COLUMNS, (soak::measure(minutes)?, Vec::new()));
    }
    let params = json!({ "rows_at_once": ROWS_AT_ONCE });
    let point = Point { params, ratios: joins.ratios, ..Point::default() };
    Ok(Outcome { point, tables, curves, ..Outcome::default() })
}

/// The lines of a table, and pictures.
type Measurement = (Vec<Vec<ResultCell>>, Vec<Curves>);

/// The heads of the columns of interval joins.
const JOIN_COLUMNS: [&str; 7] =
    ["workload", "join", "rows/s", "p50 µs", "p99 µs", "p999 µs", "effectiveness"];

/// What was measured of all joins, as fast as they take rows.
#[derive(Default)]
struct Joins {
    lines: Vec<Vec<ResultCell>>,
    panels: Vec<Curves>,
    ratios: Map<String, Json>,
    /// The rows per second of Lockstep with one joiner, by workload.
    own: HashMap<&'static str, f64>,
}

impl Joins {
    fn measure(&mut self, workload: &IntervalWorkload, is_quick: bool) -> Result<()> {
        compare(workload)?;
        let (rows, run_ms) = if is_quick { (ROWS_QUICK, RUN_MS_QUICK) } else { (ROWS, RUN_MS) };
        // Each rival beside Lockstep with as many joiners.
        let mut own = HashMap::new();
        let mut lines = Vec::new();
        for (name, join) in workload.systems() {
            let run = measure_for(workload, join, (rows, run_ms));
            say(&format!("{} {name}: {:.0} rows/s", workload.name, run.rows_per_second));
            let (system, joiners) = name.split_once(", ").unwrap_or((name, "1 joiner"));
            let of_own = *own.entry(joiners).or_insert(run.rows_per_second);
            if system != LOCKSTEP {
                let ratio = json!(rounded(of_own / run.rows_per_second));
                let name = format!("{}: lockstep/{system}, rows/s, {joiners}", workload.name);
                self.ratios.insert(name, ratio);
            }
            self.lines.push(run.cells(workload.name, name));
            lines.push((name.to_owned(), pace::distribution(&run.latencies)));
        }
        self.own.insert(workload.name, own["1 joiner"]);
        self.panels.push(Curves {
            title: format!("{}, as fast as rows are taken", workload.name),
            x: "latency, µs",
            y: "part of the results",
            is_log: (true, false),
            lines,
        });
        Ok(())
    }
}

/// Checks that all joins give the same results for some rows, once windows are full or as far as is cheap.
fn compare(workload: &IntervalWorkload) -> Result<()> {
    let rows = (workload.rows_to_fill() + 4 * COMPARED).min(ROWS_QUICK);
    let mut expected: HashMap<u64, IntervalResult> = HashMap::new();
    for (name, mut join) in workload.systems() {
        let mut compared = 0;
        let mut difference = None;
        let mut emit = |result: IntervalResult| {
            let IntervalResult { number, count, sum } = result;
            if number % (rows / COMPARED).max(1) > 0 {
                return;
            }
            compared += 1;
            let known = *expected.entry(number).or_insert(result);
            // The baselines round each addition.
            if known.count != count || (known.sum - sum).abs() > 1e-9 * known.sum.abs() {
                difference = Some(format!("{result:?}, but {known:?} by lockstep"));
            }
        };
        for number in 0..rows {
            join.push(workload.event(number), &mut emit);
            if number % ROWS_AT_ONCE == 0 {
                join.advance(&mut emit);
            }
        }
        let disagreement = difference.or((compared == 0).then(|| "no result".to_owned()));
        if let Some(difference) = disagreement {
            let system = format!("{}, {name}", workload.name);
            return Err(Error::Disagreement { system, request: 0, difference });
        }
    }
    Ok(())
}

/// Fills the windows with probe rows, and joins some base rows. Returns the number of the next row.
fn fill(workload: &IntervalWorkload, join: &mut dyn IntervalJoin) -> u64 {
    let rows = workload.rows_to_fill();
    assert!(rows < 1 << 32, "windows are filled in a short time");
    let mut ignore = |result: IntervalResult| {
        std::hint::black_box(result);
    };
    for event in (0..rows).map(|number| workload.event(number)).filter(|event| event.is_probe) {
        join.push(event, &mut ignore);
    }
    for number in rows..rows + ROWS_GENERATED {
        join.push(workload.event(number), &mut ignore);
    }
    join.flush(&mut ignore);
    rows + ROWS_GENERATED
}

/// Measures a join over so many rows at most, and for so many milliseconds.
fn measure_for(
    workload: &IntervalWorkload,
    mut join: Box<dyn IntervalJoin>,
    (rows, run_ms): (u64, u64),
) -> JoinRun {
    let clock = SystemClock::new();
    let mut times = latencies();
    // Generated before, some at a time: what the generator takes is not measured.
    let mut spent_ns = 0;
    let first = fill(workload, join.as_mut());
    let mut number = first;
    while number < first + rows && spent_ns < run_ms * 1_000_000 {
        let events: Vec<StreamEvent> =
            (number..number + ROWS_GENERATED).map(|number| workload.event(number)).collect();
        number += ROWS_GENERATED;
        let begun = clock.monotonic_ns();
        let mut end_ns = begun;
        for some in events.chunks(usize::try_from(ROWS_AT_ONCE).unwrap_or(1)) {
            let pushed = end_ns;
            let mut emit = |result: IntervalResult| {
                std::hint::black_box(result);
                record(&mut times, clock.monotonic_ns() - pushed);
            };
            for event in some {
                join.push(*event, &mut emit);
            }
            join.advance(&mut emit);
            end_ns = clock.monotonic_ns();
        }
        spent_ns += end_ns - begun;
    }
    JoinRun {
        rows_per_second: (number - first) as f64 * 1e9 / spent_ns.max(1) as f64,
        latencies: times,
        effectiveness: join.effectiveness(),
    }
}

impl JoinRun {
    fn cells(&self, workload: &str, join: &str) -> Vec<ResultCell> {
        let numbers = |number| ResultCell::Numbers(vec![number]);
        let mut cells = vec![ResultCell::Text(workload.to_owned())];
        cells.push(ResultCell::Text(join.to_owned()));
        cells.push(numbers(self.rows_per_second));
        let at = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64 / 1e3;
        cells.extend([0.5, 0.99, 0.999].map(|quantile| numbers(at(quantile))));
        cells.push(ResultCell::Numbers(self.effectiveness.into_iter().collect()));
        cells
    }
}
