//! Requests of M8: one table, all families of aggregates, all systems.
//!
//! `m8.rs` calls it for each table. Answers are compared twice: while nodes lack the newest and the
//! late rows, with and without pre-aggregates; and of all systems before they are timed.

use std::sync::Arc;

use lockstep_engine::PreparedRequest;

use super::{
    baseline::M8Baseline,
    catch_up::{CaughtUp, catch_up},
    data::{DataPart, KeySet, LongRequest},
    engine::{DeployedSystem, M8Lockstep, PreAggregateProgress, PreAggregates},
    family::Family,
    peers,
    redis::{RedisHours, load_redis},
};
use crate::{
    answer::{Closeness, difference},
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    measure::{ClientLoad, Measured, closed_loop},
    peer::{SqlPeer, duckdb::DuckDb, postgres::Postgres, redis::Redis},
    report::BASELINE,
    suite::{say, wanted},
    system::System,
};

/// Requests during catching up are over windows of at most so many rows.
const PROBE_ROWS_MAX: usize = 10_000;

/// The table and the windows over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TablePoint<'a> {
    /// The keys, those of short windows first.
    pub(super) sets: &'a [KeySet],
    /// The aggregates.
    pub(super) families: &'a [Family],
    /// How many rows of a hundred arrive late.
    pub(super) late_percent: u64,
    /// Different requests for each set.
    pub(super) requests: usize,
}

/// What was measured of a table.
#[derive(Debug)]
pub(super) struct TableResult {
    /// Keys.
    pub(super) keys: usize,
    /// Rows of all keys.
    pub(super) rows: usize,
    /// How many rows of a hundred arrived late.
    pub(super) late_percent: u64,
    /// Requests.
    pub(super) loads: Vec<RequestLoad>,
    /// The making of nodes, for each family.
    pub(super) caught_up: Vec<CaughtUp>,
    /// Bytes of a row, where there are no nodes.
    pub(super) row_bytes: f64,
    /// The nodes of each family, after all requests.
    pub(super) nodes: Vec<(Family, PreAggregateProgress)>,
}

/// Requests of one family over windows of one length to one system.
#[derive(Debug)]
pub(super) struct RequestLoad {
    pub(super) family: Family,
    pub(super) window_rows: usize,
    pub(super) system: &'static str,
    pub(super) runs: Vec<Measured>,
}

/// The peers, filled.
#[derive(Default)]
pub(super) struct M8Peers {
    sql: Vec<Box<dyn SqlPeer>>,
    redis: Option<Redis>,
}

impl M8Peers {
    /// Starts the peers that are wanted, and fills them.
    pub(super) fn open(options: &BenchOptions, sets: &[KeySet]) -> Result<Self> {
        let mut sql: Vec<Box<dyn SqlPeer>> = Vec::new();
        // With all processors, which scans of this length use.
        if let Some(peer) = wanted(options, PeerName::Duckdb, || DuckDb::open_at(None))? {
            sql.push(Box::new(peer));
        }
        if let Some(peer) = wanted(options, PeerName::Postgres, Postgres::start)? {
            sql.push(Box::new(peer));
        }
        let redis = wanted(options, PeerName::Redis, Redis::start)?;
        for peer in &sql {
            say(&format!("loading {}", peer.name()));
            peers::load_peer(peer.as_ref(), sets)?;
        }
        if let Some(redis) = &redis {
            say("loading redis");
            load_redis(redis, sets)?;
        }
        Ok(Self { sql, redis })
    }

    /// Returns the peers that answer a family's requests.
    fn systems<'a>(
        &'a self,
        family: Family,
        requests: &'a [LongRequest],
    ) -> Result<Vec<Box<dyn System + 'a>>> {
        let mut systems: Vec<Box<dyn System + 'a>> = Vec::new();
        for peer in &self.sql {
            if peers::answers(peer.connect()?.dialect(), family) {
                systems.push(Box::new(peers::prepared(peer.as_ref(), family, requests)?));
            }
        }
        if let (Some(redis), Family::Totals) = (&self.redis, family) {
            systems.push(Box::new(RedisHours { redis, requests }));
        }
        Ok(systems)
    }
}

/// A family's deployments.
struct DeployedFamily {
    family: Family,
    on: Arc<PreparedRequest>,
    off: Arc<PreparedRequest>,
}

impl DeployedFamily {
    fn systems<'a>(&'a self, requests: &'a [LongRequest]) -> [DeployedSystem<'a>; 2] {
        let system = |pre_aggregates, deployed: &'a PreparedRequest| DeployedSystem {
            pre_aggregates,
            deployed,
            requests,
        };
        [system(PreAggregates::On, &self.on), system(PreAggregates::Off, &self.off)]
    }
}

/// Measures a table: fills it, deploys, compares, and times requests.
pub(super) fn measure_table(
    options: &BenchOptions,
    point: &TablePoint<'_>,
    peers: &M8Peers,
) -> Result<TableResult> {
    let (keys, rows) =
        point.sets.iter().fold((0, 0), |(keys, rows), set| (keys + set.keys, rows + set.rows()));
    say(&format!("{keys} keys, {rows} rows, {} % late", point.late_percent));
    let lockstep = M8Lockstep::new()?;
    lockstep.load(point.sets, point.late_percent, DataPart::Early)?;
    let early: usize = point.sets.iter().map(|set| set.early_rows()).sum();
    let row_bytes = lockstep.table_bytes()? as f64 / early.max(1) as f64;
    let short = |set: &&KeySet| set.window_rows <= PROBE_ROWS_MAX;
    let probe = point.sets.iter().rfind(short).or(point.sets.first());
    let probe = probe.map_or_else(Vec::new, |set| set.requests(point.requests));
    let (mut caught_up, mut all_deployed) = (Vec::new(), Vec::new());
    for family in point.families.iter().copied() {
        let off = lockstep.deploy(family, PreAggregates::Off)?;
        let system =
            DeployedSystem { pre_aggregates: PreAggregates::Off, deployed: &off, requests: &probe };
        let (on, measured) = catch_up(options, &lockstep, family, rows, &system)?;
        caught_up.push(measured);
        all_deployed.push(DeployedFamily { family, on, off });
    }
    lockstep.load(point.sets, point.late_percent, DataPart::Further)?;
    for deployed in &all_deployed {
        for set in point.sets {
            let requests = set.requests(point.requests);
            let [on, off] = deployed.systems(&requests);
            compare(&on, &[&off], requests.len())?;
        }
    }
    lockstep.make_nodes();
    let mut loads = Vec::new();
    for deployed in &all_deployed {
        loads.extend(measure_family(options, point, &lockstep, deployed, peers)?);
    }
    let progress = |family: &Family| Ok((*family, lockstep.progress(*family)?));
    let nodes = point.families.iter().map(progress).collect::<Result<Vec<_>>>()?;
    if nodes.iter().all(|(_, progress)| progress.rows_from_nodes == 0) {
        return Err(Error::Idle { what: "no request read a node of the pre-aggregates" });
    }
    let late_percent = point.late_percent;
    Ok(TableResult { keys, rows, late_percent, loads, caught_up, row_bytes, nodes })
}

/// Compares and times the requests of a family.
fn measure_family(
    options: &BenchOptions,
    point: &TablePoint<'_>,
    lockstep: &M8Lockstep,
    deployed: &DeployedFamily,
    peers: &M8Peers,
) -> Result<Vec<RequestLoad>> {
    let family = deployed.family;
    let baseline = M8Baseline::new(family, point.sets);
    let mut loads = Vec::new();
    for set in point.sets {
        let requests = set.requests(point.requests);
        let [on, off] = deployed.systems(&requests);
        let by_baseline = baseline.system(&requests);
        let of_peers = peers.systems(family, &requests)?;
        let mut systems: Vec<&dyn System> = vec![&off, &by_baseline];
        systems.extend(of_peers.iter().map(AsRef::as_ref));
        compare(&on, &systems, requests.len())?;
        systems.insert(0, &on);
        let window_rows = set.window_rows;
        let of_system = |system: &&dyn System| RequestLoad {
            family,
            window_rows,
            system: system.name(),
            runs: Vec::new(),
        };
        let mut of_set: Vec<RequestLoad> = systems.iter().map(of_system).collect();
        let (warm_ms, run_ms) = options.loop_ms();
        let load = ClientLoad { threads: 1, warm_ms, run_ms, requests: requests.len() };
        for _ in 0..options.runs() {
            for (system, of_system) in systems.iter().zip(&mut of_set) {
                of_system.runs.push(closed_loop(*system, load)?);
            }
        }
        loads.extend(of_set);
    }
    let rows_from_nodes = lockstep.progress(family)?.rows_from_nodes;
    let name = family.name();
    say(&format!(
        "{name}: all systems return the same results; {rows_from_nodes} rows were read from nodes"
    ));
    Ok(loads)
}

/// Checks that all systems answer all requests as Lockstep does with pre-aggregates: peers but for
/// the rounding of floats, all others to the bit.
pub(super) fn compare(
    lockstep: &DeployedSystem<'_>,
    others: &[&dyn System],
    requests: usize,
) -> Result<()> {
    let mut own = lockstep.connect()?;
    let expected = (0..requests).map(|request| own.answer(request));
    let expected = expected.collect::<Result<Vec<_>>>()?;
    for system in others {
        let closeness = match system.name() {
            "lockstep_off" | BASELINE => Closeness::Exact,
            _ => Closeness::Rounding,
        };
        let mut client = system.connect()?;
        for (request, expected) in expected.iter().enumerate() {
            let found = client.answer(request)?;
            if let Some(difference) = difference(expected, &found, closeness) {
                let system = system.name().to_owned();
                return Err(Error::Disagreement { system, request, difference });
            }
        }
    }
    Ok(())
}
