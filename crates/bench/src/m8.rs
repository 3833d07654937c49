//! M8: requests over long windows, with pre-aggregates and without them.
//!
//! A window of ninety days holds a thousand to millions of rows of one key; beside them many keys of
//! equal windows. Each family of aggregates is deployed with `pre_aggregation` `always` and `off`.
//! What is measured: requests, by the rows of a window; how long the nodes take to be made, and
//! requests meanwhile; memory; inserts. Answers are compared before anything is timed: with
//! pre-aggregates, without, and those of the baseline to the bit.
//!
//! The peers run where no row is late, since they keep none of the order in which rows arrive.

mod baseline;
mod catch_up;
mod data;
mod engine;
mod family;
mod peers;
mod redis;
mod requests;
#[cfg(test)]
mod tests;
mod writes;

use data::KeySet;
use engine::PreAggregateProgress;
use family::Family;
use requests::{M8Peers, RequestLoad, TablePoint, TableResult};
use serde_json::{Map, json};

use crate::{
    arguments::BenchOptions,
    error::Result,
    measure::Measured,
    report::{BASELINE, LOCKSTEP, Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say},
};

/// The percentages of late rows.
const LATE_PERCENTS: [u64; 2] = [0, 5];
/// Growth is stated from windows of so many rows to the longest.
const GROWTH_FROM_ROWS: usize = 100_000;

/// How much there is of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct M8Shape {
    /// One key of each number of rows, ascending.
    single: Vec<KeySet>,
    /// Many keys, for sums.
    many: KeySet,
    /// The keys into which rows are inserted while that is timed.
    written: KeySet,
    /// Different requests for each set.
    requests: usize,
}

impl M8Shape {
    fn new(options: &BenchOptions) -> Self {
        let set = |window_rows, keys| KeySet { window_rows, keys };
        let mut single: Vec<KeySet> =
            [1_000, 10_000, 100_000, 1_000_000].map(|rows| set(rows, 1)).into();
        if options.quick {
            let (many, written) = (set(10_000, 100), set(10_000, 20));
            return Self { single, many, written, requests: 16 };
        }
        single.push(set(5_000_000, 1));
        Self { single, many: set(100_000, 1_000), written: set(100_000, 20), requests: 64 }
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    run_shape(options, &M8Shape::new(options))
}

fn run_shape(options: &BenchOptions, shape: &M8Shape) -> Result<Outcome> {
    let window_rows: Vec<usize> = shape.single.iter().map(|set| set.window_rows).collect();
    let params = json!({
        "window_days": data::WINDOW_DAYS, "rows_of_a_window": window_rows,
        "keys": shape.many.keys, "rows_of_their_windows": shape.many.window_rows,
        "late_percent": LATE_PERCENTS, "requests": shape.requests,
    });
    say(&format!("M8 {params}"));
    // First: right after the large tables were dropped, inserts are far slower.
    let written = writes::measure(options, shape.written)?;
    let mut results = Vec::new();
    for late_percent in LATE_PERCENTS {
        let peers = match late_percent {
            0 => M8Peers::open(options, &shape.single)?,
            _ => M8Peers::default(),
        };
        let (sets, families) = (shape.single.as_slice(), Family::ALL.as_slice());
        let point = TablePoint { sets, families, late_percent, requests: shape.requests };
        results.push(requests::measure_table(options, &point, &peers)?);
    }
    let many = TablePoint {
        sets: &[shape.many],
        families: &[Family::Totals],
        late_percent: 0,
        requests: shape.requests,
    };
    results.push(requests::measure_table(options, &many, &M8Peers::default())?);
    let mut ratios = Map::new();
    results.iter().take(1).for_each(|result| add_ratios(&mut ratios, result));
    let mut tables: Vec<MeasurementTable> = results.iter().map(request_table).collect();
    tables.push(ratio_table(&results));
    tables.push(growth_table(&results));
    tables.push(catch_up_table(&results));
    tables.push(memory_table(&results));
    tables.push(written);
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, ..Outcome::default() })
}

fn text(text: &(impl ToString + ?Sized)) -> ResultCell {
    ResultCell::Text(text.to_string())
}

fn one(number: f64) -> ResultCell {
    ResultCell::Numbers(vec![number])
}

/// Returns a number of each run of a load.
fn of_runs(load: &RequestLoad, of: impl Fn(&Measured) -> f64) -> ResultCell {
    ResultCell::Numbers(load.runs.iter().map(of).collect())
}

fn quantile_us(measured: &Measured, quantile: f64) -> f64 {
    measured.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0
}

fn p50_us(load: &RequestLoad) -> f64 {
    let mut p50_us: Vec<f64> = load.runs.iter().map(|run| quantile_us(run, 0.5)).collect();
    median(&mut p50_us)
}

/// Describes a table of rows in a title.
fn described(result: &TableResult) -> String {
    format!("{} keys, {} rows, {} % late", result.keys, result.rows, result.late_percent)
}

fn request_table(result: &TableResult) -> MeasurementTable {
    let row = |load: &RequestLoad| {
        vec![
            text(load.family.name()),
            text(&load.window_rows),
            text(load.system),
            of_runs(load, |run| quantile_us(run, 0.5)),
            of_runs(load, |run| quantile_us(run, 0.99)),
            of_runs(load, |run| run.ops_per_s),
        ]
    };
    MeasurementTable {
        title: format!("Requests from one client ({})", described(result)),
        columns: vec!["aggregates", "rows per window", "system", "p50 µs", "p99 µs", "requests/s"],
        rows: result.loads.iter().map(row).collect(),
    }
}

/// Returns the quotient of two systems' p50 over the same window.
fn quotient(
    result: &TableResult,
    family: Family,
    window_rows: usize,
    systems: [&str; 2],
) -> Option<f64> {
    let p50_of = |system: &str| {
        let is_it = |load: &&RequestLoad| {
            load.family == family && load.window_rows == window_rows && load.system == system
        };
        result.loads.iter().find(is_it).map(p50_us)
    };
    let [over, under] = systems.map(p50_of);
    over.zip(under).map(|(over, under)| over / under)
}

/// Returns the families and windows that Lockstep answered.
fn windows(result: &TableResult) -> impl Iterator<Item = (Family, usize)> {
    let own = result.loads.iter().filter(|load| load.system == LOCKSTEP);
    own.map(|load| (load.family, load.window_rows))
}

fn ratio_table(results: &[TableResult]) -> MeasurementTable {
    let of_result = |result: &TableResult| -> Vec<Vec<ResultCell>> {
        let row = |(family, window_rows): (Family, usize)| {
            let times = |systems| {
                let times = quotient(result, family, window_rows, systems);
                ResultCell::Numbers(times.into_iter().collect())
            };
            vec![
                text(family.name()),
                text(&window_rows),
                text(&described(result)),
                times([LOCKSTEP, BASELINE]),
                times(["lockstep_off", LOCKSTEP]),
            ]
        };
        windows(result).map(row).collect()
    };
    MeasurementTable {
        title: "Ratios of p50".to_owned(),
        columns: vec![
            "aggregates",
            "rows per window",
            "table",
            "lockstep / speed_of_light",
            "lockstep_off / lockstep",
        ],
        rows: results.iter().flat_map(of_result).collect(),
    }
}

/// Returns the windows between which growth is stated.
fn growth_windows(result: &TableResult) -> Option<[usize; 2]> {
    let longest = windows(result).map(|(_, rows)| rows).max()?;
    let shorter = windows(result).map(|(_, rows)| rows).filter(|rows| *rows < longest);
    let from = shorter.filter(|rows| *rows <= GROWTH_FROM_ROWS).max()?;
    Some([from, longest])
}

/// Returns how many times as long a system takes for the longest window.
fn growth(result: &TableResult, family: Family, system: &str) -> Option<f64> {
    let windows = growth_windows(result)?;
    let of_window = |window_rows: usize| {
        let is_it = |load: &&RequestLoad| {
            load.family == family && load.window_rows == window_rows && load.system == system
        };
        result.loads.iter().find(is_it).map(p50_us)
    };
    let [from, to] = windows.map(of_window);
    to.zip(from).map(|(to, from)| to / from)
}

fn growth_table(results: &[TableResult]) -> MeasurementTable {
    let of_result = |result: &TableResult| -> Vec<Vec<ResultCell>> {
        let Some([from, to]) = growth_windows(result) else { return Vec::new() };
        let row = |family: Family| {
            let times =
                |system| ResultCell::Numbers(growth(result, family, system).into_iter().collect());
            vec![
                text(family.name()),
                text(&format!("{from} → {to}")),
                text(&described(result)),
                times(LOCKSTEP),
                times("lockstep_off"),
                times(BASELINE),
            ]
        };
        Family::ALL.map(row).into()
    };
    MeasurementTable {
        title: "Growth of p50 with the window".to_owned(),
        columns: vec!["aggregates", "rows", "table", "lockstep", "lockstep_off", "speed_of_light"],
        rows: results.iter().flat_map(of_result).collect(),
    }
}

fn catch_up_table(results: &[TableResult]) -> MeasurementTable {
    let of_result = |result: &TableResult| -> Vec<Vec<ResultCell>> {
        let row = |caught_up: &catch_up::CaughtUp| {
            vec![
                text(caught_up.family.name()),
                text(&described(result)),
                one(caught_up.ms),
                one(caught_up.folded as f64 * 1e3 / caught_up.ms.max(0.001)),
                one(quantile_us(&caught_up.requests_alone, 0.99)),
                one(quantile_us(&caught_up.requests_meanwhile, 0.99)),
            ]
        };
        result.caught_up.iter().map(row).collect()
    };
    MeasurementTable {
        title: "From DEPLOY on a full table until no key waits".to_owned(),
        columns: vec![
            "aggregates",
            "table",
            "ms",
            "rows/s",
            "p99 µs of requests before",
            "p99 µs of requests during catch-up",
        ],
        rows: results.iter().flat_map(of_result).collect(),
    }
}

fn memory_table(results: &[TableResult]) -> MeasurementTable {
    let of_result = |result: &TableResult| -> Vec<Vec<ResultCell>> {
        let row = |(family, nodes): &(Family, PreAggregateProgress)| {
            let node_bytes = nodes.bytes as f64 / result.rows as f64;
            vec![
                text(family.name()),
                text(&described(result)),
                one(node_bytes),
                one(result.row_bytes),
                one(node_bytes / result.row_bytes),
                one(nodes.rows_from_nodes as f64),
            ]
        };
        result.nodes.iter().map(row).collect()
    };
    MeasurementTable {
        title: "Memory of pre-aggregates".to_owned(),
        columns: vec![
            "aggregates",
            "table",
            "bytes/row of pre-aggregates",
            "bytes/row of rows",
            "ratio",
            "rows that requests read from nodes",
        ],
        rows: results.iter().flat_map(of_result).collect(),
    }
}

/// Adds the ratios of the longest window, which head the result.
fn add_ratios(ratios: &mut Map<String, serde_json::Value>, result: &TableResult) {
    let Some(longest) = windows(result).map(|(_, rows)| rows).max() else { return };
    for family in Family::ALL {
        let name = family.name();
        let mut add = |what: &str, times: Option<f64>| {
            if let Some(times) = times {
                ratios.insert(format!("{what}, {name}"), json!(rounded(times)));
            }
        };
        for systems in [[LOCKSTEP, BASELINE], ["lockstep_off", LOCKSTEP]] {
            add(&systems.join("/"), quotient(result, family, longest, systems));
        }
        for peer in ["duckdb", "postgres", "redis"] {
            let times = quotient(result, family, longest, [peer, LOCKSTEP]);
            add(&format!("{peer}/{LOCKSTEP}"), times);
        }
        add("growth", growth(result, family, LOCKSTEP));
    }
}
