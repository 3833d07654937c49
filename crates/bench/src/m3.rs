//! M3: the most frequent values of columns over several time windows, after one insert.
//!
//! One operation inserts a row of a key and then queries, for each of 1 to 10 windows of 10, 20, …
//! seconds and for each of 1 to 8 columns, the three most frequent values in the window, the new
//! row included. Keys hold 1,000 rows, 100 ms apart; values are skewed.
//!
//! Lockstep answers the row as a request and then appends it, as users do; peers insert and then
//! query, in two round trips.

mod baseline;
mod engine;
mod peers;
mod redis;
#[cfg(test)]
mod tests;

use baseline::M3Baseline;
use engine::M3Lockstep;
use lockstep_row::Datum;
use peers::SqlEvents;
use redis::RedisEvents;
use serde_json::{Value as Json, json};

use crate::{
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::Result,
    peer::Peers,
    report::Point,
    suite::{Outcome, compare, measure, say},
    system::System,
};

/// How many values a feature lists.
pub(crate) const TOP: usize = 3;
/// The event time of the newest stored row, in milliseconds since the epoch.
const NOW_MS: i64 = 1_718_409_600_000;
/// Time between two rows of a key.
const STEP_MS: i64 = 100;
/// How much further back each window reaches than the one before.
const REACH_MS: i64 = 10_000;
/// Values of a column.
const VALUES: u64 = 100;
/// The most columns.
const COLUMNS_MAX: usize = 8;

/// The parameters of M3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct M3Shape {
    /// Windows: 1 to 10.
    pub(crate) windows: usize,
    /// Columns whose values are counted: 1 to 8.
    pub(crate) columns: usize,
    /// Keys.
    pub(crate) keys: usize,
    /// Rows that each key holds before the first operation.
    pub(crate) rows_per_key: usize,
}

/// One row: its key's number, its event time, its values as eight ASCII characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Which key.
    pub(crate) key: usize,
    /// The event time.
    pub(crate) time_ms: i64,
    /// One value for each column, further ones unused.
    pub(crate) values: [[u8; 8]; COLUMNS_MAX],
}

impl M3Shape {
    fn new(options: &BenchOptions, windows: usize, columns: usize) -> Self {
        let keys = if options.quick { 200 } else { 2_000 };
        Self { windows, columns, keys, rows_per_key: 1_000 }
    }

    fn params(self) -> Json {
        json!({
            "windows": self.windows, "columns": self.columns, "keys": self.keys,
            "rows_per_key": self.rows_per_key, "step_ms": STEP_MS, "window_step_ms": REACH_MS,
            "top": TOP,
        })
    }

    /// Returns the rows that are stored before the first operation, event times ascending.
    pub(crate) fn stored(self) -> impl Iterator<Item = Event> {
        (0..self.rows_per_key).flat_map(move |number| {
            let steps = i64::try_from(self.rows_per_key - number).expect("a count fits");
            (0..self.keys).map(move |key| event(key, NOW_MS - steps * STEP_MS, number))
        })
    }

    /// Returns the row of an operation: a random key; event time advances by one step for each
    /// round over all keys.
    pub(crate) fn event(self, operation: usize) -> Event {
        let place = u64::try_from(operation).expect("a count fits");
        let key = KeyedRandom::at(&[31, place]).index(0, self.keys);
        let steps = i64::try_from(operation / self.keys).expect("a count fits");
        event(key, NOW_MS + steps * STEP_MS, self.rows_per_key + operation)
    }

    /// Returns where a window begins for an event, inclusive.
    pub(crate) fn since_ms(window: usize, event: &Event) -> i64 {
        let reach = i64::try_from(window + 1).expect("few windows") * REACH_MS;
        event.time_ms - reach
    }
}

fn event(key: usize, time_ms: i64, number: usize) -> Event {
    let place = |value: usize| u64::try_from(value).expect("a count fits");
    let draw = KeyedRandom::at(&[32, place(key), place(number)]);
    let mut values = [*b"c0000000"; COLUMNS_MAX];
    for (column, value) in (0..).zip(&mut values) {
        // The smaller of two draws: low values are frequent.
        let drawn = draw.below(2 * column, VALUES).min(draw.below(2 * column + 1, VALUES));
        value[6] += u8::try_from(drawn / 10).expect("it is a digit");
        value[7] += u8::try_from(drawn % 10).expect("it is a digit");
    }
    Event { key, time_ms, values }
}

impl Event {
    /// Returns the key as text.
    pub(crate) fn key_text(&self) -> String {
        format!("k{:07}", self.key)
    }

    /// Returns the value of a column as text.
    pub(crate) fn value(&self, column: usize) -> &str {
        std::str::from_utf8(&self.values[column]).expect("values are ASCII")
    }

    /// Returns the row: key, event time, and as many values as the shape has columns.
    pub(crate) fn datums<'a>(&'a self, key: &'a str, shape: M3Shape) -> Vec<Datum<'a>> {
        let values = (0..shape.columns).map(|column| Datum::String(self.value(column)));
        [Datum::String(key), Datum::Timestamp(self.time_ms)].into_iter().chain(values).collect()
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let point = run_point(options, M3Shape::new(options, 8, 1), true)?;
    let mut sweeps = Vec::new();
    if options.sweep {
        let run_all = |shapes: &[(usize, usize)]| -> Result<Vec<Point>> {
            let shape = |(windows, columns): &(usize, usize)| {
                run_point(
                    options,
                    M3Shape::new(options, *windows, *columns),
                    options.peers.is_some(),
                )
            };
            shapes.iter().map(shape).collect()
        };
        sweeps.push(("windows", run_all(&[(1, 1), (2, 1), (4, 1), (8, 1), (10, 1)])?));
        sweeps.push(("columns", run_all(&[(10, 1), (10, 2), (10, 4), (10, 8)])?));
    }
    Ok(Outcome { point, sweeps, ..Outcome::default() })
}

fn run_point(options: &BenchOptions, shape: M3Shape, with_peers: bool) -> Result<Point> {
    say(&format!("M3 {}", shape.params()));
    let lockstep = M3Lockstep::new(shape)?;
    let baseline = M3Baseline::new(shape);
    let peers = if with_peers { Peers::open(options)? } else { Peers::default() };
    let mut loaded = Vec::new();
    for peer in &peers.sql {
        say(&format!("loading {}", peer.name()));
        loaded.push(SqlEvents::load(peer.as_ref(), shape)?);
    }
    let redis = match &peers.redis {
        Some(redis) => {
            say("loading redis");
            Some(RedisEvents::load(redis, shape)?)
        }
        None => None,
    };
    let mut systems: Vec<&dyn System> = vec![&lockstep, &baseline];
    systems.extend(loaded.iter().map(|system| -> &dyn System { system }));
    systems.extend(redis.iter().map(|system| -> &dyn System { system }));
    // Operations are numbered by each system: every one performs the same ones in the same order.
    compare(&systems, 1)?;
    measure(&systems, options, 1, shape.params())
}
