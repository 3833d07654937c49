//! M1: the shape of OpenMLDB's published performance report.
//!
//! A main table and `joins` side tables of 30 columns each: 15 strings of 10 bytes, 5 doubles, 5
//! timestamps, 5 bigints. A request gives `windows` windows of six aggregates over the last 30
//! days of a key (at most `window_rows` rows, the request among them), each window over an index
//! of its own; the newest row of the key in each side table; and scalar expressions: 7 over the
//! request, 4 over the first side table, 3 over each further one. Values vary and some are NULL.
//!
//! `hot_keys` keys hold `window_rows` rows each and are the keys of the requests; `background_keys`
//! others hold one row each.

mod baseline;
mod data;
mod engine;
mod peer_sql;
mod query;
mod redis;
#[cfg(test)]
mod tests;

pub(crate) use baseline::M1Baseline;
pub(crate) use data::{Data, M1Row, TableName, columns, moment, write_line};
pub(crate) use engine::M1Lockstep;
pub(crate) use peer_sql::insert_statement;
pub(crate) use query::{output_count, query as m1_query, schema as m1_schema};
pub(crate) use redis::{FoldLocation, RedisRows};
use serde_json::{Value as Json, json};

use crate::{
    arguments::BenchOptions,
    error::Result,
    peer::{Peers, SqlPeer, prepared::PreparedSystem, redis::Redis},
    report::Point,
    suite::{Outcome, compare, measure, say},
    system::System,
};

/// The parameters of M1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct M1Shape {
    /// Windows, each over its own key column: 1 to 10.
    pub(crate) windows: usize,
    /// Rows of a hot key in the main table, and the most that a window takes.
    pub(crate) window_rows: usize,
    /// Side tables: 0 to 3.
    pub(crate) joins: usize,
    /// Keys with many rows.
    pub(crate) hot_keys: usize,
    /// Keys with one row.
    pub(crate) background_keys: usize,
}

impl Default for M1Shape {
    fn default() -> Self {
        Self { windows: 2, window_rows: 1_000, joins: 2, hot_keys: 100, background_keys: 0 }
    }
}

impl M1Shape {
    /// Returns the parameters as results state them.
    pub(crate) fn params(self) -> Json {
        json!({
            "windows": self.windows, "window_rows": self.window_rows, "joins": self.joins,
            "hot_keys": self.hot_keys, "background_keys": self.background_keys,
            "side_rows_per_key": self.side_rows(), "columns": 30,
            "aggregates_per_window": query::AGGREGATES, "scalars": query::scalar_count(self),
        })
    }

    /// Returns the number of rows of a hot key in a side table.
    pub(crate) fn side_rows(self) -> usize {
        self.window_rows.min(100)
    }

    /// Returns the number of rows of all tables.
    pub(crate) fn rows(self) -> usize {
        self.hot_keys * (self.window_rows + self.joins * self.side_rows())
            + self.background_keys * (1 + self.joins)
    }

    /// Returns the sweeps: the parameters that the published report varies, one at a time.
    pub(crate) fn sweep() -> Vec<(&'static str, Vec<Self>)> {
        let of = |change: &dyn Fn(&mut Self, usize), values: &[usize]| {
            let point = |value: &usize| {
                let mut shape = Self::default();
                change(&mut shape, *value);
                shape
            };
            values.iter().map(point).collect::<Vec<Self>>()
        };
        vec![
            ("windows", of(&|shape, n| shape.windows = n, &[1, 2, 5, 10])),
            ("window_rows", of(&|shape, n| shape.window_rows = n, &[10, 100, 1_000])),
            ("joins", of(&|shape, n| shape.joins = n, &[0, 1, 2, 3])),
            (
                "keys",
                of(
                    &|shape, n| {
                        shape.hot_keys = n.min(100);
                        shape.background_keys = n - shape.hot_keys;
                    },
                    &[10, 1_000, 100_000, 1_000_000],
                ),
            ),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let shape = M1Shape::default();
    let point = run_point(options, shape, true)?;
    let mut sweeps = Vec::new();
    if options.sweep {
        let with_peers = options.peers.is_some();
        for (name, shapes) in M1Shape::sweep() {
            let mut points = Vec::new();
            for shape in shapes {
                points.push(run_point(options, shape, with_peers)?);
            }
            sweeps.push((name, points));
        }
    }
    Ok(Outcome { point, sweeps, ..Outcome::default() })
}

fn run_point(options: &BenchOptions, shape: M1Shape, with_peers: bool) -> Result<Point> {
    say(&format!("M1 {}", shape.params()));
    let data = Data { shape };
    let requests = data.requests();
    let lockstep = M1Lockstep::new(data, &requests)?;
    let baseline = M1Baseline::new(data, &requests);
    let peers = if with_peers { Peers::open(options)? } else { Peers::default() };
    let mut loaded = Vec::new();
    for peer in &peers.sql {
        loaded.push(load_peer(peer.as_ref(), data, &requests, 0)?);
    }
    let mut folds = Vec::new();
    if let Some(redis) = &peers.redis {
        let client = load_redis(redis, data, &requests)?;
        folds.push(RedisRows { fold: FoldLocation::Script, ..client });
        folds.insert(0, client);
    }
    let mut systems: Vec<&dyn System> = vec![&lockstep, &baseline];
    systems.extend(loaded.iter().map(|system| -> &dyn System { system }));
    systems.extend(folds.iter().map(|system| -> &dyn System { system }));
    compare(&systems, requests.len())?;
    measure(&systems, options, requests.len(), shape.params())
}

/// Fills a peer that knows SQL, reserving space for `spare_rows` more rows, and returns it with its
/// query.
pub(crate) fn load_peer<'a>(
    peer: &'a dyn SqlPeer,
    data: Data,
    requests: &[M1Row],
    spare_rows: usize,
) -> Result<PreparedSystem<'a>> {
    say(&format!("loading {}", peer.name()));
    let mut connection = peer.connect()?;
    peer_sql::load(&mut *connection, data, spare_rows)?;
    let tables: Vec<String> = data.tables().map(TableName::name).collect();
    let bytes = connection.table_bytes(&tables)?;
    let (statement, values) = peer_sql::statement(connection.dialect(), data.shape, requests);
    let bytes_per_row = bytes.map(|bytes| bytes as f64 / data.shape.rows() as f64);
    Ok(PreparedSystem { peer, statement, values, bytes_per_row })
}

/// Fills Redis; windows are folded by the client.
pub(crate) fn load_redis<'a>(
    redis: &'a Redis,
    data: Data,
    requests: &'a [M1Row],
) -> Result<RedisRows<'a>> {
    say("loading redis");
    let shape = data.shape;
    let bytes_per_row = redis::load(redis, data)? as f64 / shape.rows() as f64;
    Ok(RedisRows { redis, shape, requests, bytes_per_row, fold: FoldLocation::Client })
}
