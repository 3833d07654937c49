//! M11: the first answer after a process was killed.
//!
//! A system is filled, and its process is killed, so that it has to recover when it starts again. The
//! time is from the start of the new process to its first answer: of a deployment for Lockstep, of a
//! count of the rows of one key for the others, which must be right. It is measured with the files in
//! the page cache and without them.
//!
//! Lockstep is opened from the log alone, from a checkpoint alone, and from a checkpoint of half of the
//! rows and the log of the others. Redis reads a snapshot (RDB) or its log (AOF), PostgreSQL its log
//! since the last checkpoint, DuckDB its log. Systems come one after another, since together they would
//! fit neither memory nor disk.

mod duckdb;
mod lockstep;
mod rows;
mod servers;
mod step;
#[cfg(test)]
mod tests;

use std::path::Path;

use rows::{RestartRows, RowShape};
use serde_json::{Map, Value as Json, json};
use servers::{PostgresRestart, RedisRestart};
pub(crate) use step::run_step;
use step::{EmbeddedSystem, RestartStep, StepAction};

use crate::{
    arguments::{BenchOptions, PeerName},
    error::{Error, Result, Trying},
    page_cache::{SystemPageCache, disk_bytes},
    peer::{duckdb::DuckDb, folder::TemporaryFolder, redis::RedisPersistence},
    report::{Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
};

/// Rows with `--quick`, without it, and the second number with `--sweep`.
const ROWS_QUICK: usize = 100_000;
const ROWS: usize = 1_000_000;
const ROWS_SWEEP: usize = 10_000_000;

/// What a directory of Lockstep is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPart {
    /// The log alone.
    Log,
    /// A checkpoint alone.
    Checkpoint,
    /// A checkpoint of half of the rows, and the log.
    Both,
}

impl RestartPart {
    fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Checkpoint => "checkpoint",
            Self::Both => "both",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Log, Self::Checkpoint, Self::Both].into_iter().find(|part| part.name() == name)
    }
}

/// The first answer of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FirstAnswer {
    /// The time since its start.
    ms: f64,
    /// The time until the database was open, where that is a call.
    open_ms: Option<f64>,
    /// The time since its start until all rows were in memory, where a thread puts them there.
    loaded_ms: Option<f64>,
    /// The rows of the last key.
    rows_of_a_key: u64,
}

/// A system that is killed and started again.
trait RestartTarget {
    /// Fills the system and kills it.
    fn load(&mut self) -> Result<()>;

    /// Starts the system and waits for its first answer; it may end afterwards.
    fn restart(&mut self) -> Result<FirstAnswer>;

    /// Returns the folder of its files.
    fn folder(&self) -> &Path;

    /// Returns whether it has to be filled again after a restart, because recovery has put its log
    /// into its files.
    fn is_changed_by_a_restart(&self) -> bool;
}

/// A system that runs in process, in a process of its own.
#[derive(Debug)]
struct EmbeddedRestart {
    step: RestartStep,
    folder: TemporaryFolder,
}

impl EmbeddedRestart {
    fn create(system: EmbeddedSystem, rows: RestartRows, part: RestartPart) -> Result<Self> {
        let folder = TemporaryFolder::new("restart")?;
        let directory = folder.path().join("rows");
        let step = RestartStep { system, action: StepAction::Load, part, rows, directory };
        Ok(Self { step, folder })
    }
}

impl RestartTarget for EmbeddedRestart {
    fn load(&mut self) -> Result<()> {
        let directory = &self.step.directory;
        if directory.exists() {
            let removed = std::fs::remove_dir_all(directory);
            removed.trying(|| format!("remove {}", directory.display()))?;
        }
        self.step.action = StepAction::Load;
        self.step.perform_and_kill().map(drop)
    }

    fn restart(&mut self) -> Result<FirstAnswer> {
        self.step.action = StepAction::Open;
        let (found, ms, loaded_ms) = self.step.perform_and_kill()?;
        let rows_of_a_key = found.rows_of_a_key;
        let loaded_ms = (self.step.system == EmbeddedSystem::Lockstep).then_some(loaded_ms);
        Ok(FirstAnswer { ms, open_ms: Some(found.open_ms), loaded_ms, rows_of_a_key })
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn is_changed_by_a_restart(&self) -> bool {
        self.step.system == EmbeddedSystem::DuckDb
    }
}

/// What is measured.
const TARGETS: [&str; 7] = [
    "lockstep_log",
    "lockstep_checkpoint",
    "lockstep_both",
    "duckdb_wal",
    "postgres_wal",
    "redis_aof",
    "redis_rdb",
];

type BoxedRestart = Box<dyn RestartTarget>;

fn create(options: &BenchOptions, name: &str, rows: RestartRows) -> Result<Option<BoxedRestart>> {
    let lockstep = |part| -> Result<Option<BoxedRestart>> {
        Ok(Some(Box::new(EmbeddedRestart::create(EmbeddedSystem::Lockstep, rows, part)?)))
    };
    let redis = |persistence| -> Result<Option<BoxedRestart>> {
        let start = || RedisRestart::create(rows, persistence);
        Ok(wanted(options, PeerName::Redis, start)?.map(|target| Box::new(target) as BoxedRestart))
    };
    match name {
        "lockstep_log" => lockstep(RestartPart::Log),
        "lockstep_checkpoint" => lockstep(RestartPart::Checkpoint),
        "lockstep_both" => lockstep(RestartPart::Both),
        "redis_aof" => redis(RedisPersistence::LogEverySecond),
        "redis_rdb" => redis(RedisPersistence::Snapshots),
        "duckdb_wal" => {
            // Opened once here, to know whether it is installed.
            let open = || {
                DuckDb::open_at(None)?;
                EmbeddedRestart::create(EmbeddedSystem::DuckDb, rows, RestartPart::Log)
            };
            Ok(wanted(options, PeerName::Duckdb, open)?
                .map(|target| Box::new(target) as BoxedRestart))
        }
        "postgres_wal" => {
            let start = || PostgresRestart::create(rows);
            Ok(wanted(options, PeerName::Postgres, start)?
                .map(|target| Box::new(target) as BoxedRestart))
        }
        name => panic!("`{name}` is a target"),
    }
}

/// The measurements of a system with one content of the page cache, one for each run.
struct RestartRuns {
    name: &'static str,
    rows: RestartRows,
    cache: SystemPageCache,
    disk_bytes: u64,
    answers: Vec<FirstAnswer>,
}

impl RestartRuns {
    fn median_ms(&self) -> f64 {
        assert!(!self.answers.is_empty(), "{} was measured", self.name);
        median(&mut self.answers.iter().map(|answer| answer.ms).collect::<Vec<f64>>())
    }

    fn cells(&self) -> Vec<ResultCell> {
        let rows = self.rows.count as f64;
        let numbers = |of: &dyn Fn(&FirstAnswer) -> Option<f64>| {
            ResultCell::Numbers(self.answers.iter().filter_map(of).collect())
        };
        vec![
            ResultCell::Text(self.name.to_owned()),
            ResultCell::Text(self.cache.name().to_owned()),
            numbers(&|answer| Some(answer.ms)),
            numbers(&|answer| Some(rows * 1e3 / answer.ms.max(1e-3))),
            numbers(&|answer| answer.open_ms),
            numbers(&|answer| answer.open_ms.map(|ms| rows * 1e3 / ms.max(1e-3))),
            numbers(&|answer| answer.loaded_ms),
            ResultCell::Numbers(vec![self.disk_bytes as f64 / rows]),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let mut counts = vec![if options.quick { ROWS_QUICK } else { ROWS }];
    counts.extend(options.sweep.then_some(ROWS_SWEEP));
    let mut tables = Vec::new();
    let mut ratios = Map::new();
    for shape in [RowShape::Bytes100, RowShape::M1] {
        for count in counts.iter().copied() {
            let rows = RestartRows { shape, count };
            say(&format!("M11 {} {}", shape.name(), rows.params()));
            let mut measured = Vec::new();
            for name in TARGETS {
                if let Some(mut target) = create(options, name, rows)? {
                    say(name);
                    measured.extend(measure(name, rows, target.as_mut(), options.runs())?);
                }
            }
            add_ratios(&measured, &mut ratios);
            tables.push(table(rows, &measured));
        }
    }
    let params = json!({ "shapes": ["100 bytes", "M1"], "rows": counts });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, ..Outcome::default() })
}

/// Measures a system with both contents of the page cache.
fn measure(
    name: &'static str,
    rows: RestartRows,
    target: &mut dyn RestartTarget,
    runs: usize,
) -> Result<Vec<RestartRuns>> {
    assert!(runs > 0, "something is measured");
    let with = |cache| RestartRuns { name, rows, cache, disk_bytes: 0, answers: Vec::new() };
    let mut measured = [SystemPageCache::Warm, SystemPageCache::Cold].map(with);
    let mut is_loaded = false;
    for _ in 0..runs {
        for of_cache in &mut measured {
            if !is_loaded || target.is_changed_by_a_restart() {
                target.load()?;
                is_loaded = true;
            }
            of_cache.disk_bytes = disk_bytes(target.folder())?;
            of_cache.cache.prepare(target.folder())?;
            let answer = target.restart()?;
            check(name, rows, answer)?;
            of_cache.answers.push(answer);
        }
    }
    Ok(measured.into())
}

/// Checks that the rows of the last key are there.
fn check(name: &str, rows: RestartRows, answer: FirstAnswer) -> Result<()> {
    let (found, expected) = (answer.rows_of_a_key, rows.rows_of_a_key());
    if found == expected {
        return Ok(());
    }
    let difference = format!("the last key has {found} of {expected} rows");
    Err(Error::Disagreement { system: name.to_owned(), request: 0, difference })
}

fn table(rows: RestartRows, measured: &[RestartRuns]) -> MeasurementTable {
    let title = format!("{} rows, {}", rows.count, rows.shape.name());
    let columns = vec![
        "system",
        "page cache",
        "first answer ms",
        "rows/s",
        "open ms",
        "opening rows/s",
        "loaded ms",
        "disk bytes/row",
    ];
    MeasurementTable { title, columns, rows: measured.iter().map(RestartRuns::cells).collect() }
}

/// Adds how many times as long as Lockstep each peer takes, with a warm page cache: those with a log
/// beside Lockstep's log, the snapshot of Redis beside a checkpoint.
fn add_ratios(measured: &[RestartRuns], ratios: &mut Map<String, Json>) {
    let of = |name: &str| {
        let mut warm = measured.iter().filter(|runs| runs.cache == SystemPageCache::Warm);
        warm.find(|runs| runs.name == name)
    };
    let pairs = [
        ("duckdb_wal", "lockstep_log"),
        ("postgres_wal", "lockstep_log"),
        ("redis_aof", "lockstep_log"),
        ("redis_rdb", "lockstep_checkpoint"),
    ];
    for (peer, own) in pairs {
        if let Some((peer, own)) = of(peer).zip(of(own)) {
            let (shape, count) = (own.rows.shape.name(), own.rows.count);
            let name = format!("{}/{}, {count} rows, {shape}", peer.name, own.name);
            ratios.insert(name, json!(rounded(peer.median_ms() / own.median_ms())));
        }
    }
}
