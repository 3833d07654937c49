//! M16: requests over a table that is ten times as large as the memory of all tables.
//!
//! A window of 20, 100, 1,000 and 10,000 rows over the rows of one key, in a disk table and in a memory table
//! with the same rows. *Warm*: the keys of 64 requests in turn, whose pages are in the page cache. *Uniform*: any
//! key, so that most pages come from the cache of the operating system. *Cold*: any key after the database was
//! opened again and the operating system's cache was dropped, where that is allowed. Each request is answered
//! by both, and the answers must be equal. Libraries that store rows on a disk are measured over the same shape
//! by `crates/table/engines`.

use std::{fs, path::Path, time::Instant};

use lockstep_engine::{Database, PreparedRequest, Session};
use lockstep_row::{Arena, Datum};
use serde_json::{Map, Value as Json, json};

use crate::{
    answer::AnswerValue,
    arguments::BenchOptions,
    draw::KeyedRandom,
    engine_memory::memory_and_rows,
    error::{Error, Result},
    measure::{latencies, record},
    peer::folder::TemporaryFolder,
    report::{Point, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say},
};

/// Rows of a key.
const ROWS_OF_A_KEY: u64 = 12_000;
/// Keys with `--quick` and without it.
const KEYS_QUICK: u64 = 20;
const KEYS: u64 = 500;
/// The sizes of windows, in rows.
const WINDOWS: [u64; 4] = [20, 100, 1_000, 10_000];
/// Requests of a case, with `--quick` and without it; a window of more rows has fewer.
const REQUESTS_QUICK: u64 = 200;
const REQUESTS: u64 = 4_000;
/// The keys of warm requests.
const WARM_KEYS: u64 = 64;
/// Rows of an append.
const BATCH: u64 = 1_000;
/// When the rows begin, in milliseconds since the epoch.
const START_MS: i64 = 1_718_409_600_000;

/// A database with the rows.
struct Loaded {
    session: Session,
    database: Database,
    rows_per_second: f64,
}

/// The latencies of some requests, in microseconds.
struct CaseResult {
    p50: f64,
    p99: f64,
    p999: f64,
    /// Pages of each request that were read from files.
    reads: f64,
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let keys = if options.quick { KEYS_QUICK } else { KEYS };
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    let rows = keys * ROWS_OF_A_KEY;
    say(&format!("M16: {rows} rows of {keys} keys, in memory"));
    let folder = TemporaryFolder::new("m16")?;
    let memory = load(&folder.path().join("memory"), "memory", keys, None)?;
    let (memory_bytes, _) = memory_and_rows(&memory.session, &["events".to_owned()])?;
    let limit = (memory_bytes / 10).max(4 << 20);
    say(&format!("on disk, with max_memory = {limit}"));
    let on_disk = folder.path().join("disk");
    let written_before = written_bytes();
    let mut disk = load(&on_disk, "disk", keys, Some(limit))?;
    disk.session.execute("CHECKPOINT")?;
    disk.database.compact_disk_tables()?;
    disk.session.execute("CHECKPOINT")?;
    let written = written_bytes().zip(written_before).map(|(after, before)| after - before);
    let (disk_memory, found) = memory_and_rows(&disk.session, &["events".to_owned()])?;
    assert_eq!(found, rows, "all rows are stored");
    let mut table = Vec::new();
    let mut ratios = Map::new();
    for window in WINDOWS {
        let name = format!("w{window}");
        let statement = format!(
            "DEPLOY {name} AS SELECT k, sum(v) OVER w AS s, count(v) OVER w AS c FROM events \
             WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN {} PRECEDING AND CURRENT ROW)",
            window - 1
        );
        for loaded in [&memory, &disk] {
            loaded.session.execute(&statement)?;
        }
        let of_case = (requests * 100 / window.max(100)).max(50);
        let [in_memory, on_disk] =
            [&memory, &disk].map(|loaded| loaded.session.prepare_request(&name));
        let (in_memory, on_disk) = (in_memory?, on_disk?);
        let warm = |at: u64| at % WARM_KEYS.min(keys);
        let uniform = |at: u64| KeyedRandom::at(&[16, at]).below(0, keys);
        compare(&in_memory, &on_disk, keys)?;
        let cases: [(&str, &dyn Fn(u64) -> u64); 2] = [("warm", &warm), ("uniform", &uniform)];
        for (case, key) in cases {
            let of_memory = measure(&in_memory, &memory.database, of_case, key)?;
            let of_disk = measure(&on_disk, &disk.database, of_case, key)?;
            let ratio = json!(rounded(of_disk.p50 / of_memory.p50));
            ratios.insert(format!("{case} p50 of {window} rows, disk/memory"), ratio);
            table.push(of_memory.cells(window, "memory", case));
            table.push(of_disk.cells(window, "disk", case));
        }
    }
    let opened = Instant::now();
    disk = reopen(disk, &on_disk)?;
    let opened_ms = opened.elapsed().as_secs_f64() * 1e3;
    for window in WINDOWS {
        let request = disk.session.prepare_request(&format!("w{window}"))?;
        drop_caches();
        let key = |at: u64| KeyedRandom::at(&[17, window, at]).below(0, keys);
        // Each key once, as far as there are so many.
        let cold = measure(&request, &disk.database, keys.min(100), &key)?;
        table.push(cold.cells(window, "disk", if may_drop_caches() { "cold" } else { "reopened" }));
    }
    let bytes = |bytes: u64| rounded(bytes as f64 / rows as f64);
    let mut notes = Map::new();
    notes.insert("open_ms".to_owned(), json!(rounded(opened_ms)));
    let on_disk_bytes = folder_bytes(&folder.path().join("disk/data"));
    for (name, value) in [
        ("memory table, bytes of memory per row", json!(bytes(memory_bytes))),
        ("disk table, bytes of memory per row", json!(bytes(disk_memory))),
        ("disk table, bytes of files per row", json!(bytes(on_disk_bytes))),
        ("rows per second into memory, durability os", json!(rounded(memory.rows_per_second))),
        ("rows per second onto disk, durability os", json!(rounded(disk.rows_per_second))),
        ("bytes written to the disk per row", json!(written.map(bytes))),
    ] {
        say(&format!("{name}: {value}"));
        notes.insert(name.to_owned(), value);
    }
    let columns = vec!["rows", "table", "case", "p50 µs", "p99 µs", "p999 µs", "pages read"];
    let title = format!("windows over {rows} rows, max_memory {limit}");
    let tables = vec![MeasurementTable { title, columns, rows: table }];
    let params: Json = json!({ "rows": rows, "keys": keys, "max_memory": limit });
    let point = Point { params, ratios, ..Point::default() };
    Ok(Outcome { point, tables, sweeps: Vec::new(), notes })
}

/// Makes a database of the rows in a directory.
fn load(path: &Path, mode: &str, keys: u64, limit: Option<u64>) -> Result<Loaded> {
    let database = Database::open(path)?;
    let session = database.session();
    session.execute("SET durability = 'os'")?;
    if let Some(limit) = limit {
        session.execute(&format!("SET GLOBAL max_memory = '{limit}'"))?;
    }
    session.execute(&format!(
        "CREATE TABLE events (k BIGINT, v DOUBLE, note STRING, ts TIMESTAMP, \
         INDEX(KEY=k, TS=ts)) OPTIONS(storage_mode='{mode}')"
    ))?;
    let appender = session.appender("events")?;
    let (rows, begun) = (keys * ROWS_OF_A_KEY, Instant::now());
    for from in (0..rows).step_by(usize::try_from(BATCH).expect("a batch fits")) {
        let notes: Vec<String> = (from..from + BATCH).map(note).collect();
        let batch = (from..from + BATCH).zip(&notes).map(|(number, note)| {
            let (key, at) = (number % keys, number / keys);
            [
                Datum::BigInt(key.cast_signed()),
                Datum::Double(value(number)),
                Datum::String(note),
                Datum::Timestamp(START_MS + at.cast_signed() * 1_000),
            ]
        });
        appender.append(batch)?;
    }
    let rows_per_second = rows as f64 / begun.elapsed().as_secs_f64();
    Ok(Loaded { session, database, rows_per_second })
}

fn value(number: u64) -> f64 {
    KeyedRandom::at(&[15, number]).int(0, 1_000_000) as f64 / 100.0
}

fn note(number: u64) -> String {
    format!("note {number:>16} of an event, with some more text to read past")
}

/// Opens a database again, with empty caches.
fn reopen(loaded: Loaded, path: &Path) -> Result<Loaded> {
    let Loaded { session, database, rows_per_second } = loaded;
    drop(session);
    database.close()?;
    drop(database);
    drop_caches();
    let database = Database::open(path)?;
    Ok(Loaded { session: database.session(), database, rows_per_second })
}

/// The request of a key, which comes after its rows.
fn request_of(key: u64) -> [Datum<'static>; 4] {
    let at = START_MS + ROWS_OF_A_KEY.cast_signed() * 1_000;
    [
        Datum::BigInt(key.cast_signed()),
        Datum::Double(1.5),
        Datum::String("request"),
        Datum::Timestamp(at),
    ]
}

/// Compares the answers for all keys, as far as there are not many.
fn compare(one: &PreparedRequest, other: &PreparedRequest, keys: u64) -> Result<()> {
    let arena = Arena::new();
    for key in 0..keys.min(WARM_KEYS) {
        let row = request_of(key);
        let answer = |request: &PreparedRequest| -> Result<Vec<AnswerValue>> {
            let answer = request.answer(&row, &arena)?.unwrap_or_default();
            Ok(answer.iter().map(AnswerValue::from).collect())
        };
        let (in_memory, on_disk) = (answer(one)?, answer(other)?);
        if in_memory != on_disk {
            let difference = format!("{on_disk:?}, but {in_memory:?} in memory");
            let request = usize::try_from(key).unwrap_or(usize::MAX);
            return Err(Error::Disagreement { system: "disk".to_owned(), request, difference });
        }
    }
    Ok(())
}

/// Answers requests one after the other.
fn measure(
    request: &PreparedRequest,
    database: &Database,
    count: u64,
    key: &dyn Fn(u64) -> u64,
) -> Result<CaseResult> {
    let (mut times, mut arena) = (latencies(), Arena::new());
    let before = database.page_cache().reads;
    for at in 0..count {
        let row = request_of(key(at));
        arena.reset();
        let begun = Instant::now();
        std::hint::black_box(request.answer(&row, &arena)?);
        record(&mut times, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let reads = (database.page_cache().reads - before) as f64 / count as f64;
    let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
    Ok(CaseResult { p50: at(0.5), p99: at(0.99), p999: at(0.999), reads })
}

impl CaseResult {
    fn cells(&self, window: u64, table: &str, case: &str) -> Vec<ResultCell> {
        let text = |text: &str| ResultCell::Text(text.to_owned());
        let numbers = [self.p50, self.p99, self.p999, self.reads];
        let mut cells = vec![text(&window.to_string()), text(table), text(case)];
        cells.extend(numbers.map(|number| ResultCell::Numbers(vec![number])));
        cells
    }
}

/// Drops what the operating system has of files, where that is allowed.
fn drop_caches() {
    // Without the right to do so the cases say that they are not cold.
    drop(std::process::Command::new("sync").status());
    let _dropped = fs::write("/proc/sys/vm/drop_caches", "3");
}

fn may_drop_caches() -> bool {
    fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}

/// Returns the bytes that the process has caused to be written to disks.
fn written_bytes() -> Option<u64> {
    let io = fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// Adds up the bytes of the files in a folder.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(std::result::Result::ok);
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
