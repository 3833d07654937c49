//! M6: inserts only.
//!
//! One operation inserts one row (or a batch) into a table with 1 or 3 indexes; a share of the rows
//! is late, by up to ten minutes. Rows have three text keys out of 10,000 each, an event time, two
//! doubles and two bigints. Before anything is timed, every system must give the same row count of
//! the key after each of a few inserts.

mod baseline;
mod engine;
mod peers;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use baseline::M6Baseline;
use engine::M6Lockstep;
use lockstep_row::Datum;
pub(crate) use peers::{M6_COLUMNS, packed_put};
use peers::{RedisPuts, SqlPuts};
use serde_json::{Map, Value as Json, json};

use crate::{
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::Result,
    peer::Peers,
    report::{Point, rounded},
    suite::{Outcome, compare, measure, say},
    system::System,
};

/// The statement that creates Lockstep's table with one index.
pub(crate) const M6_TABLE: &str = "CREATE TABLE puts (k0 STRING, k1 STRING, k2 STRING, ts TIMESTAMP, d0 DOUBLE, d1 DOUBLE, \
     i0 BIGINT, i1 BIGINT, INDEX(KEY=k0, TS=ts, TTL=0m, TTL_TYPE=absolute))";
/// The event time of the first row, in milliseconds since the epoch.
const START_MS: i64 = 1_718_409_600_000;
/// Rows of one millisecond.
const ROWS_PER_MS: usize = 100;
/// Keys of each index.
const KEYS: u64 = 10_000;
/// How late a late row may be.
const LATE_MS_MAX: u32 = 600_000;
/// Row numbers that a client takes at once.
const BLOCK: usize = 1_024;
/// The number of rows after which values repeat, at a later time.
const CYCLE: usize = 80 * ROWS_PER_MS;

/// The parameters of M6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct M6Shape {
    /// Indexes: 1 to 3.
    pub(crate) indexes: usize,
    /// How many rows of a hundred are late.
    pub(crate) late_percent: u64,
    /// Rows of one put.
    pub(crate) batch: usize,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Put {
    /// Eight ASCII characters each.
    pub(crate) keys: [[u8; 8]; 3],
    /// The event time.
    pub(crate) time_ms: i64,
    /// Two values.
    pub(crate) doubles: [f64; 2],
    /// Two values.
    pub(crate) ints: [i64; 2],
}

impl Put {
    /// Returns a key as text.
    pub(crate) fn key(&self, index: usize) -> &str {
        std::str::from_utf8(&self.keys[index]).expect("keys are ASCII")
    }

    /// Returns the row in the order of the columns.
    pub(crate) fn datums(&self) -> [Datum<'_>; 8] {
        [
            Datum::String(self.key(0)),
            Datum::String(self.key(1)),
            Datum::String(self.key(2)),
            Datum::Timestamp(self.time_ms),
            Datum::Double(self.doubles[0]),
            Datum::Double(self.doubles[1]),
            Datum::BigInt(self.ints[0]),
            Datum::BigInt(self.ints[1]),
        ]
    }
}

impl M6Shape {
    fn params(self) -> Json {
        json!({
            "indexes": self.indexes, "late_percent": self.late_percent, "batch": self.batch,
            "keys": KEYS, "columns": 8, "late_ms_max": LATE_MS_MAX,
        })
    }

    /// Returns the rows of the first numbers, after which values repeat.
    pub(crate) fn cycle(self) -> Vec<Put> {
        (0..CYCLE).map(|number| self.drawn(number)).collect()
    }

    fn drawn(self, number: usize) -> Put {
        let draw = KeyedRandom::at(&[61, u64::try_from(number).expect("a count fits")]);
        let mut keys = [*b"k0000000"; 3];
        for (column, key) in (0..).zip(&mut keys) {
            let mut rest = draw.below(column, KEYS);
            for digit in key[4..].iter_mut().rev() {
                *digit += u8::try_from(rest % 10).expect("it is a digit");
                rest /= 10;
            }
        }
        let on_time_ms = START_MS + i64::try_from(number / ROWS_PER_MS).expect("a count fits");
        let is_late = draw.chance(3, self.late_percent);
        let late_ms = if is_late { draw.int(4, LATE_MS_MAX) } else { 0 };
        Put {
            keys,
            time_ms: on_time_ms - late_ms,
            doubles: [draw.int(5, 1_000_000) as f64 / 4.0, draw.int(6, 1_000) as f64],
            ints: [draw.int(7, 1_000_000), draw.int(8, 100)],
        }
    }
}

/// Returns the row of a number: that of the cycle, later.
#[inline]
pub(crate) fn put(cycle: &[Put], number: usize) -> Put {
    debug_assert_eq!(cycle.len(), CYCLE);
    let mut put = cycle[number % CYCLE];
    let cycles_ms = number / CYCLE * (CYCLE / ROWS_PER_MS);
    put.time_ms += i64::try_from(cycles_ms).expect("a count fits");
    put
}

/// Hands out row numbers to clients, each number once and roughly in order.
#[derive(Debug, Default)]
pub(crate) struct Numbers(AtomicUsize);

impl Numbers {
    /// Creates the rows of one client.
    pub(crate) fn begin(&self, shape: M6Shape) -> OwnPuts<'_> {
        OwnPuts { numbers: self, cycle: shape.cycle(), next: 0, end: 0 }
    }
}

/// The rows of one client.
#[derive(Debug)]
pub(crate) struct OwnPuts<'a> {
    numbers: &'a Numbers,
    cycle: Vec<Put>,
    next: usize,
    end: usize,
}

impl OwnPuts<'_> {
    /// Returns the next row and its number.
    pub(crate) fn take(&mut self) -> (usize, Put) {
        if self.next == self.end {
            // Relaxed: each client only needs a block that no other client has.
            self.next = self.numbers.0.fetch_add(BLOCK, Ordering::Relaxed);
            self.end = self.next + BLOCK;
        }
        self.next += 1;
        (self.next - 1, put(&self.cycle, self.next - 1))
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let default = M6Shape { indexes: 1, late_percent: 0, batch: 1 };
    let point = run_point(options, default, true)?;
    let mut points = Vec::new();
    for indexes in [1, 3] {
        for late_percent in [0, 1, 20, 100] {
            let shape = M6Shape { indexes, late_percent, batch: 1 };
            points.push(run_point(options, shape, options.sweep && options.peers.is_some())?);
        }
    }
    let batches = vec![run_point(options, M6Shape { batch: 100, ..default }, false)?];
    let mut notes = Map::new();
    let rows_per_s = |point: &Point, batch: usize| {
        let each = point.systems.iter().map(|system| {
            let of =
                |load: &crate::report::LoadRuns| rounded(load.median("ops_per_s") * batch as f64);
            let loads = system.loads.iter();
            let loads = loads.map(|load| (load.threads.to_string(), json!(of(load))));
            (system.name.clone(), Json::Object(loads.collect()))
        });
        Json::Object(each.collect())
    };
    // Points are in the order of the loops: the first three have one index, the others three.
    let bytes = |place: usize| points.get(place)?.systems.first()?.bytes_per_row;
    if let Some((one, three)) = bytes(0).zip(bytes(3)) {
        notes.insert(
            "lockstep_bytes_per_index_entry".to_owned(),
            json!(rounded((three - one) / 2.0)),
        );
    }
    notes.insert("rows_per_s_by_writers".to_owned(), rows_per_s(&point, 1));
    notes.insert("rows_per_s_in_batches_of_100".to_owned(), rows_per_s(&batches[0], 100));
    Ok(Outcome {
        point,
        sweeps: vec![("indexes_and_late", points), ("batch", batches)],
        notes,
        ..Outcome::default()
    })
}

fn run_point(options: &BenchOptions, shape: M6Shape, with_peers: bool) -> Result<Point> {
    say(&format!("M6 {}", shape.params()));
    let lockstep = M6Lockstep::new(shape)?;
    let baseline = M6Baseline::new(shape);
    let peers = if with_peers { Peers::open(options)? } else { Peers::default() };
    let sql = peers.sql.iter().map(|peer| SqlPuts::new(peer.as_ref(), shape));
    let sql = sql.collect::<Result<Vec<SqlPuts<'_>>>>()?;
    let redis = peers.redis.as_ref().map(|redis| RedisPuts::new(redis, shape));
    let mut systems: Vec<&dyn System> = vec![&lockstep, &baseline];
    systems.extend(sql.iter().map(|system| -> &dyn System { system }));
    systems.extend(redis.iter().map(|system| -> &dyn System { system }));
    compare(&systems, 1)?;
    let mut point = measure(&systems, options, 1, shape.params())?;
    for (system, result) in systems.iter().zip(&mut point.systems) {
        result.bytes_per_row = system.bytes_per_row();
    }
    Ok(point)
}
