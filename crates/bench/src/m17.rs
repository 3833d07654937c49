//! M17: interval joins of two streams that arrive out of order, in memory, and streams from tables to a table.
//!
//! Of each base row, the number and the sum of the probe rows of its key in the window before it, once the watermark
//! has passed it. The workloads are those of Scale-OIJ (ICDE 2023): rate, keys, window and lateness. Each row is late
//! by a part of the lateness that is drawn, so that none is dropped and all results are exact.
//!
//! The baselines are the two algorithms that the paper compares itself with, over the same rows ([`rivals`]). Before
//! anything is timed, all give the same results. What feeds the rows costs the same in all: they are read from memory.

mod rivals;
mod simulation;
mod soak;
mod tables;

use std::{collections::HashMap, sync::Arc};

use lockstep_function::{BoundAggregate, CallArguments, Settings, aggregate};
use lockstep_host::{Clock, SystemClock, Threads};
use lockstep_plan::{Frame, Window};
use lockstep_row::{DataType, Datum, Value};
use lockstep_stream::{
    CallSpec, GroupSpec, JoinerOutput, JoinerParts, Lateness, ScanSpec, SourceShape, StreamRow,
    WindowJoin, WindowJoinSpec, WindowedRow,
};
use serde_json::{Map, json};

use self::rivals::{KeyJoin, SplitJoin};
pub(crate) use self::soak::run_step;
use crate::{
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::{Error, Result},
    measure::{latencies, record},
    report::{Point, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say},
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
    /// Gives the results that are final.
    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult));
    /// Returns the rows in windows, as a part of those that were visited; `None` where windows are slid.
    fn effectiveness(&self) -> Option<f64>;
}

/// What was measured of a join.
struct JoinRun {
    rows_per_second: f64,
    /// From the push of the row that decides a result to the result, in microseconds.
    latencies_us: [f64; 3],
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
            ("SplitJoin", Box::new(SplitJoin::new(self.window, self.lateness))),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let mut lines = Vec::new();
    let mut ratios = Map::new();
    for workload in WORKLOADS {
        compare(&workload)?;
        let mut first = None;
        for (name, join) in workload.systems() {
            let run = measure(&workload, join, options.quick);
            say(&format!("{} {name}: {:.0} rows/s", workload.name, run.rows_per_second));
            let own = *first.get_or_insert(run.rows_per_second);
            if name != "lockstep" {
                let ratio = json!(rounded(own / run.rows_per_second));
                ratios.insert(format!("{}: lockstep/{name}, rows/s", workload.name), ratio);
            }
            lines.push(run.cells(workload.name, name));
        }
    }
    let columns =
        vec!["workload", "join", "rows/s", "p50 µs", "p99 µs", "p999 µs", "effectiveness"];
    let title = "interval joins".to_owned();
    let of_joins = MeasurementTable { title, columns, rows: lines };
    let of_tables = MeasurementTable {
        title: "streams from tables to a table".to_owned(),
        columns: tables::COLUMNS.to_vec(),
        rows: tables::measure(options.quick)?,
    };
    let simulated = MeasurementTable {
        title: "interval joins, simulated: a core for each joiner".to_owned(),
        columns: simulation::COLUMNS.to_vec(),
        rows: simulation::simulate(options.quick),
    };
    let mut tables = vec![of_joins, of_tables, simulated];
    if let Some(minutes) = options.soak {
        let title = "memory of a stream with an idle side".to_owned();
        let (columns, rows) = (soak::COLUMNS.to_vec(), soak::measure(minutes)?);
        tables.push(MeasurementTable { title, columns, rows });
    }
    let params = json!({ "rows_at_once": ROWS_AT_ONCE });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, sweeps: Vec::new(), notes: Map::new() })
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
    join.advance(&mut ignore);
    rows + ROWS_GENERATED
}

fn measure(
    workload: &IntervalWorkload,
    mut join: Box<dyn IntervalJoin>,
    is_quick: bool,
) -> JoinRun {
    let (rows, run_ms) = if is_quick { (ROWS_QUICK, RUN_MS_QUICK) } else { (ROWS, RUN_MS) };
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
    let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
    JoinRun {
        rows_per_second: (number - first) as f64 * 1e9 / spent_ns.max(1) as f64,
        latencies_us: [at(0.5), at(0.99), at(0.999)],
        effectiveness: join.effectiveness(),
    }
}

impl JoinRun {
    fn cells(&self, workload: &str, join: &str) -> Vec<ResultCell> {
        let numbers = |number| ResultCell::Numbers(vec![number]);
        let mut cells = vec![ResultCell::Text(workload.to_owned())];
        cells.push(ResultCell::Text(join.to_owned()));
        cells.push(numbers(self.rows_per_second));
        cells.extend(self.latencies_us.map(numbers));
        cells.push(ResultCell::Numbers(self.effectiveness.into_iter().collect()));
        cells
    }
}

/// Lockstep's join.
struct StreamJoin {
    join: WindowJoin<IntervalResults>,
    /// The rows of the round.
    rows: u64,
    /// Whether this thread is the joiner.
    is_one: bool,
}

/// A round of several joiners has so many rows, as many as a stream reads of a table at once.
const ROWS_PER_ROUND: u64 = 1_024;

/// The results of a joiner that were not taken.
#[derive(Debug, Default)]
struct IntervalResults(Vec<IntervalResult>);

impl JoinerOutput for IntervalResults {
    type Rows = Vec<IntervalResult>;

    fn add(&mut self, row: WindowedRow<'_>) {
        self.0.push(result_of(row));
    }

    fn take(&mut self) -> lockstep_diagnostic::Result<Self::Rows> {
        Ok(std::mem::take(&mut self.0))
    }
}

/// The columns of its rows.
const TIME: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const NUMBER: usize = 3;

impl StreamJoin {
    fn new(workload: &IntervalWorkload, joiners: usize) -> Self {
        let (spec, parts, times) = Self::parts(workload, joiners);
        let join = WindowJoin::new(spec, parts, times, Threads::System);
        let is_one = joiners == 1;
        Self { join: join.expect("threads are started"), rows: 0, is_one }
    }

    /// Makes a join whose joiners have cores of their own.
    fn simulated(workload: &IntervalWorkload, joiners: usize, clock: Arc<dyn Clock>) -> Self {
        let (spec, parts, times) = Self::parts(workload, joiners);
        Self { join: WindowJoin::simulated(spec, parts, times, clock), rows: 0, is_one: false }
    }

    fn parts(
        workload: &IntervalWorkload,
        joiners: usize,
    ) -> (WindowJoinSpec, Vec<JoinerParts<IntervalResults>>, (Lateness, i64)) {
        let bind = |name: &str| -> BoundAggregate {
            let function = aggregate::find(name).expect("the function exists");
            let (types, constants) = ([DataType::Double], [None]);
            let settings = Settings::default();
            let arguments =
                CallArguments { types: &types, constants: &constants, settings: &settings };
            (function.bind)(&arguments).expect("it takes a DOUBLE")
        };
        let call = |output: usize, name: &str| {
            let (bound, arguments) = (bind(name), vec![VALUE]);
            CallSpec { bound, arguments, output }
        };
        let window = Window {
            partition_by: Vec::new(),
            order_by: None,
            frame: Frame::Range { from: Some(workload.window), to: 0 },
            ahead: None,
            max_size: None,
            exclude_current_time: false,
            exclude_current_row: true,
            instance_not_in_window: true,
        };
        let groups = vec![GroupSpec { window, calls: vec![call(0, "count"), call(1, "sum")] }];
        let scan = ScanSpec { keys: vec![KEY], unions: vec![1], without_main: true, groups };
        let source = SourceShape { width: 4, order: TIME };
        let spec = WindowJoinSpec {
            sources: vec![source; 2],
            lookups: Vec::new(),
            width: 4,
            main_columns: (0..4).map(Some).collect(),
            output_lookups: Vec::new(),
            scans: vec![scan],
        };
        let lateness = Lateness { lateness_ms: workload.lateness, idle_after_ms: None };
        let parts = || JoinerParts { program: None, output: IntervalResults::default() };
        (spec, (0..joiners).map(|_| parts()).collect(), (lateness, 0))
    }
}

/// Reads a result.
fn result_of(row: WindowedRow<'_>) -> IntervalResult {
    let (Value::BigInt(number), [Value::BigInt(count), sum]) = (&row.columns[NUMBER], row.results)
    else {
        unreachable!("a count and a sum of each row")
    };
    let sum = if let Value::Double(sum) = sum { *sum } else { 0.0 };
    IntervalResult { number: number.unsigned_abs(), count: *count, sum }
}

impl StreamJoin {
    /// Gives the results of the rounds that have ended, but for so many.
    fn take(&mut self, left: usize, emit: &mut dyn FnMut(IntervalResult)) {
        while self.join.rounds() > left {
            let round = self.join.take_round().expect("nothing is computed of a row");
            let rows = round.map(|round| round.rows).unwrap_or_default();
            rows.into_iter().flatten().for_each(&mut *emit);
        }
    }
}

impl IntervalJoin for StreamJoin {
    fn push(&mut self, event: StreamEvent, _emit: &mut dyn FnMut(IntervalResult)) {
        let StreamEvent { number, is_probe, key, time, value } = event;
        let integer = |value: u64| Datum::BigInt(i64::try_from(value).unwrap_or(i64::MAX));
        let columns = [Datum::BigInt(time), integer(key), Datum::Double(value), integer(number)];
        let row = StreamRow { source: usize::from(is_probe), arrival: number, columns: &columns };
        self.join.push(row, 0);
        self.rows += 1;
    }

    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.join.advance(0);
        let is_one = self.is_one;
        if is_one || self.rows >= ROWS_PER_ROUND {
            self.rows = 0;
            self.join.end_round();
            // Several joiners compute one round while the next one is passed.
            self.take(usize::from(!is_one), emit);
        }
    }

    fn effectiveness(&self) -> Option<f64> {
        None
    }
}
