//! M2: wide rows and many features: 10, 100 and 1,000 columns give 20, 210 and 2,100 features.
//!
//! A table has a key, an event time and `columns` value columns, alternating bigints and doubles.
//! Each column gives two features, its sum and its maximum over a window of a day; from 100 columns
//! on, every tenth column also gives its sum with its neighbour in the request row. A key holds ten
//! rows. The time of DEPLOY is among the results.

mod baseline;
mod engine;
mod peer_sql;
#[cfg(test)]
mod tests;

use baseline::M2Baseline;
pub(crate) use engine::{M2Lockstep, datums as m2_datums};
use serde_json::{Map, Value as Json, json};

use crate::{
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::Result,
    peer::Peers,
    report::{Point, rounded},
    statement::Dialect,
    suite::{Outcome, compare, measure, say},
    system::System,
};

/// Rows of a key.
const ROWS_PER_KEY: usize = 10;
/// Keys.
const KEYS: usize = 100;
/// Requests.
const REQUESTS: usize = 1_024;
/// The event time of the newest rows, in milliseconds since the epoch.
const NOW_MS: i64 = 1_718_409_600_000;
/// The length of the window.
const REACH_MS: i64 = 86_400_000;
/// PostgreSQL returns at most this many columns.
const POSTGRES_COLUMNS_MAX: usize = 1_664;

/// The parameters of M2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct M2Shape {
    /// Value columns.
    pub(crate) columns: usize,
}

/// A value of a column: even columns are bigints, odd ones doubles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// Of an even column.
    Int(i64),
    /// Of an odd column.
    Double(f64),
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct M2Row {
    /// Its key.
    pub(crate) key: usize,
    /// Its key as text.
    pub(crate) key_text: String,
    /// The event time.
    pub(crate) time_ms: i64,
    /// The values.
    pub(crate) values: Vec<Number>,
}

impl M2Shape {
    /// Returns the columns whose sum with their neighbour is a feature.
    pub(crate) fn paired(self) -> impl Iterator<Item = usize> {
        let count = if self.columns < 100 { 0 } else { self.columns / 10 };
        debug_assert!(count == 0 || self.columns > 2, "a pair is two columns apart");
        // The neighbour is two columns on, where the type is the same.
        (0..count).map(move |number| number * 10 % (self.columns - 2))
    }

    /// Returns how many features there are.
    pub(crate) fn features(self) -> usize {
        2 * self.columns + self.paired().count()
    }

    fn params(self) -> Json {
        json!({
            "columns": self.columns, "features": self.features(), "rows_per_key": ROWS_PER_KEY,
            "keys": KEYS,
        })
    }

    /// Returns the rows that are stored, event times ascending.
    pub(crate) fn stored(self) -> impl Iterator<Item = M2Row> {
        (0..ROWS_PER_KEY).flat_map(move |number| {
            let steps = i64::try_from(ROWS_PER_KEY - number).expect("a count fits");
            (0..KEYS).map(move |key| self.row(key, NOW_MS - steps * 60_000))
        })
    }

    /// Returns the requests.
    pub(crate) fn requests(self) -> Vec<M2Row> {
        let request = |number: usize| {
            let place = u64::try_from(number).expect("a count fits");
            let key = KeyedRandom::at(&[22, place]).index(0, KEYS);
            self.row(key, NOW_MS + i64::try_from(number).expect("a count fits"))
        };
        (0..REQUESTS).map(request).collect()
    }

    fn row(self, key: usize, time_ms: i64) -> M2Row {
        let place = u64::try_from(key).expect("a key fits");
        let draw = KeyedRandom::at(&[21, place, time_ms.unsigned_abs()]);
        let value = |column: u64| {
            let drawn = draw.int(column, 1_000_000);
            if column.is_multiple_of(2) {
                Number::Int(drawn)
            } else {
                Number::Double(drawn as f64 / 100.0)
            }
        };
        let columns = u64::try_from(self.columns).expect("a count fits");
        let values = (0..columns).map(value).collect();
        M2Row { key, key_text: format!("k{key:07}"), time_ms, values }
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let mut compile_ms = Map::new();
    let mut points = Vec::new();
    for columns in [10, 100, 1_000] {
        points.push(run_point(options, M2Shape { columns }, &mut compile_ms)?);
    }
    let mut notes = Map::new();
    notes.insert("deploy_ms_by_features".to_owned(), Json::Object(compile_ms));
    let point = points[points.len() - 1].clone();
    Ok(Outcome { point, sweeps: vec![("columns", points)], notes, ..Outcome::default() })
}

fn run_point(
    options: &BenchOptions,
    shape: M2Shape,
    compile_ms: &mut Map<String, Json>,
) -> Result<Point> {
    say(&format!("M2 {}", shape.params()));
    let requests = shape.requests();
    let lockstep = M2Lockstep::new(shape, &requests)?;
    compile_ms.insert(shape.features().to_string(), json!(rounded(lockstep.deploy_ms)));
    let baseline = M2Baseline::new(shape, &requests);
    let peers = Peers::open(options)?;
    let mut loaded = Vec::new();
    for peer in &peers.sql {
        let is_too_wide = peer.connect()?.dialect() == Dialect::Postgres
            && shape.features() > POSTGRES_COLUMNS_MAX;
        if is_too_wide {
            say(&format!("postgres is skipped: it returns at most {POSTGRES_COLUMNS_MAX} columns"));
            continue;
        }
        say(&format!("loading {}", peer.name()));
        loaded.push(peer_sql::load(peer.as_ref(), shape, &requests)?);
    }
    let mut systems: Vec<&dyn System> = vec![&lockstep, &baseline];
    systems.extend(loaded.iter().map(|system| -> &dyn System { system }));
    compare(&systems, requests.len())?;
    let point = measure(&systems, options, requests.len(), shape.params())?;
    say(&point.markdown());
    Ok(point)
}
