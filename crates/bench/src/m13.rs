//! M13: inserts that are acknowledged when they are durable.
//!
//! One operation inserts one row of M6, or a hundred, and returns when the system says that the rows
//! are safe to its level: on the disk, in the page cache, or only in its log. Each writer has a
//! connection of its own and sends its next rows when the last ones are acknowledged. After each load
//! every system must hold as many rows as it has acknowledged.
//!
//! Systems take turns in each run, one at a time and each with empty data, since together they would
//! share one disk. Beside them: what `fdatasync` of a file takes after a write of 4 KiB, and how many
//! bytes of Lockstep's log a row takes.

mod disk;
mod engine;
mod redis;
mod sql;
mod sqlite;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use disk::SyncedBlocks;
use engine::M13Lockstep;
pub(crate) use engine::WriteLevel;
use redis::RedisWrites;
use serde_json::{Map, Value as Json, json};
use sql::SqlWrites;
use sqlite::SqliteWrites;

use crate::{
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    m6::{M6Shape, Numbers},
    measure::{ClientLoad, Measured, closed_loop},
    peer::{
        mariadb::{MariaDb, MariaDbEngine},
        postgres::{Postgres, PostgresDurability},
        redis::RedisPersistence,
        sqlite::SqliteSynchronous,
    },
    report::{Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
    system::{Client, System},
};

/// The rows: M6's, with one index.
pub(crate) const SHAPE: M6Shape = M6Shape { indexes: 1, late_percent: 0, batch: 1 };
/// Bytes of a row's values: three keys, an event time, four numbers.
const ROW_BYTES: usize = 3 * 8 + 8 + 4 * 8;
/// Rows of one operation.
const BATCHES: [usize; 2] = [1, 100];
/// Rows whose bytes in the log are counted.
const LOGGED_ROWS: usize = 20_000;

/// What every system shares: the numbers of rows, and how many were acknowledged.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    pub(crate) numbers: Numbers,
    acknowledged: AtomicU64,
}

impl WrittenRows {
    /// Counts rows that were acknowledged.
    pub(crate) fn acknowledge(&self, rows: usize) {
        debug_assert!(rows > 0, "an operation has rows");
        // Relaxed: it is read after the writers have ended.
        self.acknowledged.fetch_add(u64::try_from(rows).expect("a count fits"), Ordering::Relaxed);
    }
}

/// A system into which rows are written.
pub(crate) trait WriteTarget: Sync {
    /// Opens a writer of batches, in the thread that uses it.
    fn writer(&self, batch: usize) -> Result<Box<dyn Client + '_>>;

    /// Returns the rows that it has acknowledged.
    fn written(&self) -> &WrittenRows;

    /// Counts the rows that it holds; `None` for one that holds no rows.
    fn stored(&self) -> Result<Option<u64>>;
}

/// What is measured, in the order in which systems take turns.
const TARGETS: [&str; 13] = [
    "fdatasync_4_kib",
    "lockstep_no_directory",
    "lockstep_memory",
    "lockstep_os",
    "lockstep_disk",
    "postgres_on",
    "postgres_off",
    "mariadb_1",
    "mariadb_2",
    "redis_always",
    "redis_everysec",
    "sqlite_full",
    "sqlite_normal",
];

type BoxedTarget = Box<dyn WriteTarget>;

/// Opens a system with empty data; `None` when it is not to run.
fn open(options: &BenchOptions, name: &str) -> Result<Option<BoxedTarget>> {
    let lockstep = |level| Ok(Some(Box::new(M13Lockstep::create(level)?) as BoxedTarget));
    let postgres = |durability| {
        let start = || SqlWrites::create(Box::new(Postgres::start_durable(durability)?));
        wanted(options, PeerName::Postgres, start).map(boxed)
    };
    let mariadb = |engine| {
        let start = || SqlWrites::create(Box::new(MariaDb::start_with(engine)?));
        wanted(options, PeerName::Mariadb, start).map(boxed)
    };
    let redis = |persistence| {
        wanted(options, PeerName::Redis, || RedisWrites::create(persistence)).map(boxed)
    };
    let sqlite = |synchronous| {
        wanted(options, PeerName::Sqlite, || SqliteWrites::create(synchronous)).map(boxed)
    };
    match name {
        "fdatasync_4_kib" => Ok(Some(Box::new(SyncedBlocks::create()?))),
        "lockstep_no_directory" => lockstep(WriteLevel::NoDirectory),
        "lockstep_memory" => lockstep(WriteLevel::Memory),
        "lockstep_os" => lockstep(WriteLevel::Os),
        "lockstep_disk" => lockstep(WriteLevel::Disk),
        "postgres_on" => postgres(PostgresDurability::Synchronous),
        "postgres_off" => postgres(PostgresDurability::Asynchronous),
        "mariadb_1" => mariadb(MariaDbEngine::InnoDbSynced),
        "mariadb_2" => mariadb(MariaDbEngine::InnoDbWritten),
        "redis_always" => redis(RedisPersistence::LogAlways),
        "redis_everysec" => redis(RedisPersistence::LogEverySecond),
        "sqlite_full" => sqlite(SqliteSynchronous::Full),
        "sqlite_normal" => sqlite(SqliteSynchronous::Normal),
        name => panic!("`{name}` is a target"),
    }
}

fn boxed<T: WriteTarget + 'static>(target: Option<T>) -> Option<BoxedTarget> {
    target.map(|target| Box::new(target) as BoxedTarget)
}

/// A target with a size of batches, as the closed loop measures it.
struct BatchedTarget<'a> {
    name: &'static str,
    target: &'a dyn WriteTarget,
    batch: usize,
}

impl System for BatchedTarget<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        self.target.writer(self.batch)
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

/// The measurements of a system with a number of writers and a size of batches, one for each run.
struct WriteRuns {
    name: &'static str,
    batch: usize,
    writers: usize,
    runs: Vec<Measured>,
}

impl WriteRuns {
    fn rows_per_s(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.ops_per_s * self.batch as f64).collect()
    }

    fn us(&self, quantile: f64) -> ResultCell {
        let of = |run: &Measured| run.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0;
        ResultCell::Numbers(self.runs.iter().map(of).collect())
    }

    fn cells(&self) -> Vec<ResultCell> {
        // A block of a file is no row.
        let rows_per_s = if self.name == TARGETS[0] { Vec::new() } else { self.rows_per_s() };
        let operations = self.runs.iter().map(|run| run.ops_per_s).collect();
        vec![
            ResultCell::Text(self.name.to_owned()),
            ResultCell::Text(self.writers.to_string()),
            ResultCell::Numbers(rows_per_s),
            ResultCell::Numbers(operations),
            self.us(0.5),
            self.us(0.99),
            self.us(0.9999),
        ]
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let params = json!({
        "row_bytes": ROW_BYTES, "columns": 8, "indexes": SHAPE.indexes, "batches": BATCHES,
        "writers": options.threads(),
    });
    say(&format!("M13 {params}"));
    let mut measured: Vec<WriteRuns> = Vec::new();
    for _ in 0..options.runs() {
        for name in TARGETS {
            measure(options, name, &mut measured)?;
        }
    }
    let mut tables: Vec<MeasurementTable> =
        BATCHES.iter().map(|batch| table(*batch, &measured)).collect();
    tables.push(log_bytes()?);
    let point = Point { params, ratios: ratios(&measured), ..Point::default() };
    Ok(Outcome { point, tables, ..Outcome::default() })
}

/// Measures a system once with each number of writers and each size of batches.
fn measure(
    options: &BenchOptions,
    name: &'static str,
    measured: &mut Vec<WriteRuns>,
) -> Result<()> {
    let Some(target) = open(options, name)? else { return Ok(()) };
    say(name);
    let (warm_ms, run_ms) = options.loop_ms();
    for batch in BATCHES {
        // A block of a file is of one size.
        if name == TARGETS[0] && batch > 1 {
            continue;
        }
        for writers in options.threads() {
            let system = BatchedTarget { name, target: target.as_ref(), batch };
            let load = ClientLoad { threads: writers, warm_ms, run_ms, requests: 1 };
            let run = closed_loop(&system, load)?;
            let is_same = |known: &&mut WriteRuns| {
                (known.name, known.batch, known.writers) == (name, batch, writers)
            };
            match measured.iter_mut().find(is_same) {
                Some(known) => known.runs.push(run),
                None => measured.push(WriteRuns { name, batch, writers, runs: vec![run] }),
            }
        }
    }
    check(name, target.as_ref())
}

/// Checks that a system holds the rows that it has acknowledged.
fn check(name: &str, target: &dyn WriteTarget) -> Result<()> {
    // Relaxed: the writers have ended.
    let acknowledged = target.written().acknowledged.load(Ordering::Relaxed);
    match target.stored()? {
        Some(stored) if stored != acknowledged => Err(Error::Disagreement {
            system: name.to_owned(),
            request: 0,
            difference: format!("{stored} rows are stored, but {acknowledged} were acknowledged"),
        }),
        _ => Ok(()),
    }
}

fn table(batch: usize, measured: &[WriteRuns]) -> MeasurementTable {
    let rows = measured.iter().filter(|runs| runs.batch == batch).map(WriteRuns::cells);
    let columns =
        vec!["system", "writers", "rows/s", "operations/s", "p50 µs", "p99 µs", "p9999 µs"];
    let title = match batch {
        1 => "One row per operation".to_owned(),
        batch => format!("{batch} rows per operation"),
    };
    MeasurementTable { title, columns, rows: rows.collect() }
}

/// Returns the ratios of rows in a second that there are targets for.
fn ratios(measured: &[WriteRuns]) -> Map<String, Json> {
    let of = |name: &str, batch: usize, writers: usize| {
        let same =
            |runs: &&WriteRuns| (runs.name, runs.batch, runs.writers) == (name, batch, writers);
        measured.iter().find(same).map(|runs| median(&mut runs.rows_per_s()))
    };
    let mut ratios = Map::new();
    let pairs = [
        ("lockstep_os", "lockstep_no_directory"),
        ("lockstep_memory", "lockstep_no_directory"),
        ("lockstep_disk", "postgres_on"),
        ("lockstep_disk", "redis_always"),
    ];
    let measured: Vec<(usize, usize)> = measured
        .iter()
        .filter(|runs| runs.name == "lockstep_os")
        .map(|r| (r.batch, r.writers))
        .collect();
    for (above, below) in pairs {
        for (batch, writers) in &measured {
            let both = of(above, *batch, *writers).zip(of(below, *batch, *writers));
            if let Some((above_rows, below_rows)) = both {
                let name = format!("{above}/{below}, batch {batch}, writers {writers}");
                ratios.insert(name, json!(rounded(above_rows / below_rows.max(1.0))));
            }
        }
    }
    ratios
}

/// Counts the bytes of Lockstep's log for a row, with each size of batches.
fn log_bytes() -> Result<MeasurementTable> {
    let mut rows = Vec::new();
    for batch in BATCHES {
        let lockstep = M13Lockstep::create(WriteLevel::Os)?;
        let before = lockstep.log_bytes()?;
        let mut writer = lockstep.writer(batch)?;
        assert!(LOGGED_ROWS.is_multiple_of(batch), "batches of {batch}");
        let count = LOGGED_ROWS / batch;
        (0..count).try_for_each(|_| writer.serve(0))?;
        let bytes = (lockstep.log_bytes()? - before) as f64 / (count * batch) as f64;
        let numbers = |number: f64| ResultCell::Numbers(vec![number]);
        let text = ResultCell::Text(batch.to_string());
        let own = ROW_BYTES as f64;
        rows.push(vec![text, numbers(bytes), numbers(own), numbers(bytes / own)]);
    }
    let columns = vec!["batch", "log bytes/row", "value bytes/row", "ratio"];
    Ok(MeasurementTable { title: "Size of Lockstep's log per row".to_owned(), columns, rows })
}
