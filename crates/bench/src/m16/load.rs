//! The databases of M16, and the thread that inserts beside the requests.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_engine::{Database, PreparedRequest, Session};
use lockstep_host::{Clock, JoinHandle, SystemClock, disk};
use lockstep_row::Datum;

use crate::{
    draw::KeyedRandom,
    engine_memory::memory_and_rows,
    error::{Result, Trying},
};

/// Rows of a key.
const ROWS_OF_A_KEY: u64 = 12_000;
/// Rows of an append.
const BATCH: u64 = 1_000;
/// When the rows begin, in milliseconds since the epoch.
const START_MS: i64 = 1_718_409_600_000;
/// Milliseconds between the rows of a key.
const STEP_MS: i64 = 1_000;
/// The text of a row, behind its number.
const NOTE: &str = " of an event, with some more text to read past";
/// Rows that are inserted beside requests at once, and after how many milliseconds again.
pub(super) const INSERTED_ROWS: u64 = 100;
pub(super) const INSERT_EVERY_MS: u32 = 10;

/// The rows: so many for each key, which take turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct EventRows {
    pub(super) keys: u64,
}

/// A database with the rows.
#[derive(Debug, Clone)]
pub(super) struct LoadedEvents {
    pub(super) path: PathBuf,
    pub(super) database: Database,
    pub(super) session: Arc<Session>,
    rows: EventRows,
    pub(super) rows_per_second: f64,
    /// The bytes that the process has had written to disks while it was loaded; `None` where nobody counts them.
    pub(super) written_bytes: Option<u64>,
}

impl EventRows {
    pub(super) fn count(self) -> u64 {
        self.keys * ROWS_OF_A_KEY
    }

    /// Returns the bytes of the values of a row.
    pub(super) fn row_bytes(self) -> f64 {
        (note(0).len() + 3 * size_of::<u64>()) as f64
    }

    pub(super) fn row(self, number: u64, note: &str) -> [Datum<'_>; 4] {
        let (key, at) = (number % self.keys, number / self.keys);
        let value = KeyedRandom::at(&[15, number]).int(0, 1_000_000) as f64 / 100.0;
        [
            Datum::BigInt(key.cast_signed()),
            Datum::Double(value),
            Datum::String(note),
            Datum::Timestamp(START_MS + at.cast_signed() * STEP_MS),
        ]
    }
}

pub(super) fn note(number: u64) -> String {
    format!("note {number:>16}{NOTE}")
}

/// Returns the request of a key, which comes after its rows.
pub(super) fn request_of(key: u64) -> [Datum<'static>; 4] {
    // A day later: also after the rows that are inserted beside.
    let at = START_MS + ROWS_OF_A_KEY.cast_signed() * STEP_MS + 86_400_000;
    [
        Datum::BigInt(key.cast_signed()),
        Datum::Double(1.5),
        Datum::String("request"),
        Datum::Timestamp(at),
    ]
}

impl LoadedEvents {
    /// Makes a database of the rows in a directory.
    pub(super) fn load(
        path: &Path,
        mode: &str,
        rows: EventRows,
        limit: Option<u64>,
    ) -> Result<Self> {
        let mut loaded = Self::open(path)?;
        let session = Arc::clone(&loaded.session);
        if let Some(limit) = limit {
            session.execute(&format!("SET GLOBAL max_memory = '{limit}'"))?;
        }
        session.execute(&format!(
            "CREATE TABLE events (k BIGINT, v DOUBLE, note STRING, ts TIMESTAMP, \
             INDEX(KEY=k, TS=ts)) OPTIONS(storage_mode='{mode}')"
        ))?;
        loaded.rows = rows;
        let (written, clock) = (written_bytes(), SystemClock::new());
        loaded.append(0..rows.count(), BATCH)?;
        loaded.rows_per_second = rows.count() as f64 * 1e9 / clock.monotonic_ns().max(1) as f64;
        if mode == "disk" {
            loaded.settle()?;
            loaded.written_bytes =
                written_bytes().zip(written).map(|(after, before)| after - before);
        }
        Ok(loaded)
    }

    /// Opens a database.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let database = Database::open(path)?;
        let session = database.session();
        session.execute("SET durability = 'os'")?;
        Ok(Self {
            path: path.to_owned(),
            database,
            session: Arc::new(session),
            rows: EventRows { keys: 1 },
            rows_per_second: 0.0,
            written_bytes: None,
        })
    }

    /// Writes all rows into files, and merges these.
    pub(super) fn settle(&self) -> Result<()> {
        for _ in 0..2 {
            self.session.execute("CHECKPOINT")?;
            self.database.compact_disk_tables()?;
        }
        Ok(())
    }

    pub(super) fn close(self) -> Result<()> {
        drop(self.session);
        Ok(self.database.close()?)
    }

    /// Returns the bytes of memory of the table and of pages.
    pub(super) fn memory_bytes(&self) -> Result<u64> {
        let (bytes, rows) = memory_and_rows(&self.session, &["events".to_owned()])?;
        assert_eq!(rows, self.rows.count(), "all rows are stored");
        Ok(bytes + self.database.page_cache().bytes)
    }

    pub(super) fn deployment(window: u64) -> String {
        format!("w{window}")
    }

    /// Deploys the window of so many rows.
    pub(super) fn deploy(&self, window: u64) -> Result<Arc<PreparedRequest>> {
        let name = Self::deployment(window);
        self.session.execute(&format!(
            "DEPLOY {name} AS SELECT k, sum(v) OVER w AS s, count(v) OVER w AS c FROM events \
             WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN {} PRECEDING AND CURRENT ROW)",
            window - 1
        ))?;
        Ok(self.session.prepare_request(&name)?)
    }

    /// Inserts rows as they are inserted beside requests.
    pub(super) fn insert(&self, numbers: std::ops::Range<u64>) -> Result<()> {
        self.append(numbers, INSERTED_ROWS)
    }

    fn append(&self, numbers: std::ops::Range<u64>, batch: u64) -> Result<()> {
        let appender = self.session.appender("events")?;
        for from in numbers.clone().step_by(usize::try_from(batch).expect("a batch fits")) {
            let numbers = from..numbers.end.min(from + batch);
            let notes: Vec<String> = numbers.clone().map(note).collect();
            let rows = numbers.zip(&notes);
            appender.append(rows.map(|(number, note)| self.rows.row(number, note)))?;
        }
        Ok(())
    }
}

/// A thread that inserts 10,000 rows a second.
pub(super) struct Inserting {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Inserting {
    /// Starts it with the row of a number.
    pub(super) fn start(into: LoadedEvents, mut next: u64) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&is_over);
        let insert = move || {
            // Relaxed, as below: it guards no data.
            while !is_ended.load(Ordering::Relaxed) {
                into.insert(next..next + INSERTED_ROWS)?;
                next += INSERTED_ROWS;
                lockstep_host::pause(INSERT_EVERY_MS);
            }
            Ok(next)
        };
        let thread = lockstep_host::spawn("m16-inserts", insert);
        Ok(Self { is_over, thread: thread.trying(|| "start a thread".to_owned())? })
    }

    /// Ends it. Returns the number of the row after the last.
    pub(super) fn end(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("inserts do not panic")
    }
}

/// Returns the bytes that the process has had written to disks.
fn written_bytes() -> Option<u64> {
    let io = disk::read_to_string(Path::new("/proc/self/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}
