//! The peers of M16: servers on this machine that keep the rows on the disk.
//!
//! Each has a cache of as many bytes as the disk table of Lockstep may take for everything, beside which it has its
//! own buffers. MariaDB's tables are sorted by key and event time (the primary key), so that a window is one range
//! of the table; PostgreSQL has an index with the column that is read, so that a window is one range of the index.
//! Logs are in the page cache of the system when an insert returns, as at Lockstep's level `os`.

use std::{
    fmt::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use lockstep_host::{Clock, SystemClock};
use lockstep_row::Datum;
use serde_json::{Map, Value as Json, json};

use super::{
    CASES, CaseKeys, ExpectedAnswers, KeyOrder, MeasuredCases, WINDOWS, WITH_INSERTS,
    load::{EventRows, INSERT_EVERY_MS, INSERTED_ROWS, note, request_of},
    measure_calls, request_count,
};
use crate::{
    answer::{AnswerValue, Closeness, difference},
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    m1::moment,
    page_cache::disk_bytes,
    peer::{
        SqlConnection, SqlPeer,
        mariadb::{MariaDb, MariaDbEngine},
        postgres::Postgres,
    },
    report::rounded,
    statement::{Dialect, PeerStatement, PeerType, StatementParameter},
    suite::{say, wanted},
};

/// What all peers are measured with.
#[derive(Clone, Copy)]
pub(super) struct PeerRun<'a> {
    pub(super) rows: EventRows,
    /// The bytes of a peer's cache.
    pub(super) cache_bytes: u64,
    pub(super) requests: u64,
    /// The answers of Lockstep.
    pub(super) expected: &'a ExpectedAnswers,
}

/// A peer that has the rows.
struct LoadedPeer<'a> {
    name: &'static str,
    peer: &'a dyn SqlPeer,
    /// The number of the next row that is inserted.
    next_row: u64,
}

/// Measures the peers that are wanted, one after the other.
pub(super) fn measure(
    options: &BenchOptions,
    run: PeerRun<'_>,
    cases: &mut MeasuredCases,
    notes: &mut Map<String, Json>,
) -> Result<()> {
    let start = || Postgres::start_with_cache(run.cache_bytes);
    if let Some(peer) = wanted(options, PeerName::Postgres, start)? {
        measure_peer(run, "postgres", &peer, peer.folder(), cases, notes)?;
    }
    for (name, engine) in [
        ("mariadb, InnoDB", MariaDbEngine::InnoDbWithCache(run.cache_bytes)),
        ("mariadb, MyRocks", MariaDbEngine::RocksDbWithCache(run.cache_bytes)),
    ] {
        if let Some(peer) = wanted(options, PeerName::Mariadb, || MariaDb::start_with(engine))? {
            measure_peer(run, name, &peer, peer.folder(), cases, notes)?;
        }
    }
    Ok(())
}

fn measure_peer(
    run: PeerRun<'_>,
    name: &'static str,
    peer: &dyn SqlPeer,
    folder: &Path,
    cases: &mut MeasuredCases,
    notes: &mut Map<String, Json>,
) -> Result<()> {
    let rows_per_second = load(peer, run.rows)?;
    let file_bytes = disk_bytes(folder)? as f64 / run.rows.count() as f64;
    for (what, number) in
        [("rows/s of the load", rows_per_second), ("bytes of files for each row", file_bytes)]
    {
        let note = format!("{name}: {what}");
        say(&format!("{note}: {}", rounded(number)));
        notes.insert(note, json!(rounded(number)));
    }
    let mut loaded = LoadedPeer { name, peer, next_row: run.rows.count() };
    for window in WINDOWS {
        loaded.compare(run, window)?;
    }
    for window in WINDOWS {
        for (case, order) in CASES {
            loaded.case(run, window, (case, order), cases)?;
        }
        loaded.case_with_inserts(run, window, cases)?;
    }
    Ok(())
}

impl LoadedPeer<'_> {
    /// Compares the answers for some keys with those of Lockstep.
    fn compare(&self, run: PeerRun<'_>, window: u64) -> Result<()> {
        let mut client = WindowClient::connect(self.peer, window)?;
        for (key, expected) in (0_u64..).zip(&run.expected[&window]) {
            let found = client.answer(key)?;
            if let Some(difference) = difference(&expected[1..], &found, Closeness::Rounding) {
                let request = usize::try_from(key).unwrap_or(usize::MAX);
                let system = self.name.to_owned();
                return Err(Error::Disagreement { system, request, difference });
            }
        }
        Ok(())
    }

    fn case(
        &self,
        run: PeerRun<'_>,
        window: u64,
        (case, order): (&'static str, KeyOrder),
        cases: &mut MeasuredCases,
    ) -> Result<()> {
        let keys = CaseKeys::new(order, run.rows.keys, window);
        let count = request_count(run.requests, window);
        let mut client = WindowClient::connect(self.peer, window)?;
        let latencies = measure_calls(count, &keys, &mut || (), &mut |key| {
            client.answer(key).map(|answer| drop(std::hint::black_box(answer)))
        })?;
        let ratio = latencies.p50 / cases.of_disk[&(window, case)];
        let name = format!("{}/disk, p50 of {window} rows, {case}", self.name);
        cases.ratios.insert(name, json!(rounded(ratio)));
        cases.lines.push(latencies.cells(window, self.name, case));
        Ok(())
    }

    /// Measures requests while another thread inserts rows.
    fn case_with_inserts(
        &mut self,
        run: PeerRun<'_>,
        window: u64,
        cases: &mut MeasuredCases,
    ) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let (peer, first) = (self.peer, self.next_row);
        let next_row = std::thread::scope(|scope| {
            let inserting = scope.spawn(|| insert_rows(peer, run.rows, first, &is_over));
            let measured = self.case(run, window, (WITH_INSERTS, KeyOrder::Uniform), cases);
            // Relaxed: it guards no data.
            is_over.store(true, Ordering::Relaxed);
            let inserted = inserting.join().expect("inserts do not panic");
            measured.and(inserted)
        })?;
        self.next_row = next_row;
        Ok(())
    }
}

/// A connection that computes one window.
struct WindowClient<'a> {
    connection: Box<dyn SqlConnection + 'a>,
    statement: PeerStatement,
    prepared: usize,
}

impl<'a> WindowClient<'a> {
    fn connect(peer: &'a dyn SqlPeer, window: u64) -> Result<Self> {
        let mut connection = peer.connect()?;
        let statement = window_statement(connection.dialect(), window);
        let prepared = connection.prepare(&statement)?;
        Ok(Self { connection, statement, prepared })
    }

    /// Returns the sum and the count of a key's window.
    fn answer(&mut self, key: u64) -> Result<Vec<AnswerValue>> {
        let values = request_of(key).each_ref().map(AnswerValue::from);
        let rows = self.connection.run(self.prepared, &mut self.statement.values(&values))?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }
}

/// The columns of the table, which are those of a request.
const COLUMNS: [(&str, PeerType); 4] = [
    ("k", PeerType::Int),
    ("v", PeerType::Double),
    ("note", PeerType::Text(80)),
    ("ts", PeerType::Time),
];

fn window_statement(dialect: Dialect, window: u64) -> PeerStatement {
    let parameters = COLUMNS.map(|(name, kind)| StatementParameter { name: name.to_owned(), kind });
    let preceding = window - 1;
    let template = format!(
        "SELECT coalesce(sum(v), 0) + {{v}}, count(v) + 1 FROM (SELECT v FROM events \
         WHERE k = {{k}} AND ts <= {{ts}} ORDER BY ts DESC LIMIT {preceding}) AS w"
    );
    dialect.render(&template, &parameters)
}

/// Fills a peer, and returns how many rows a second it took.
fn load(peer: &dyn SqlPeer, rows: EventRows) -> Result<f64> {
    let mut connection = peer.connect()?;
    let dialect = connection.dialect();
    let columns = COLUMNS.map(|(name, kind)| (name.to_owned(), kind));
    let count = usize::try_from(rows.count()).unwrap_or(usize::MAX);
    connection.create_table("events", &columns, count)?;
    if dialect == Dialect::MariaDb {
        connection.execute("ALTER TABLE events ADD PRIMARY KEY (k, ts)")?;
    }
    let clock = SystemClock::new();
    copy_rows(connection.as_mut(), rows, 0..rows.count())?;
    if dialect == Dialect::Postgres {
        connection.create_time_index("events", "k", "ts", &["v"])?;
    }
    connection.settle("events")?;
    Ok(rows.count() as f64 * 1e9 / clock.monotonic_ns().max(1) as f64)
}

/// Inserts rows as they are inserted beside the requests of Lockstep, until `is_over`. Returns the number of the row
/// after the last.
fn insert_rows(
    peer: &dyn SqlPeer,
    rows: EventRows,
    mut next: u64,
    is_over: &AtomicBool,
) -> Result<u64> {
    let mut connection = peer.connect()?;
    // Relaxed: it guards no data.
    while !is_over.load(Ordering::Relaxed) {
        copy_rows(connection.as_mut(), rows, next..next + INSERTED_ROWS)?;
        next += INSERTED_ROWS;
        lockstep_host::pause(INSERT_EVERY_MS);
    }
    Ok(next)
}

fn copy_rows(
    connection: &mut dyn SqlConnection,
    rows: EventRows,
    mut numbers: std::ops::Range<u64>,
) -> Result<()> {
    connection.copy_in("events", "k, ts", &mut |lines: &mut String| {
        let mut count = 0;
        for number in numbers.by_ref().take(1_000) {
            let text = note(number);
            let [Datum::BigInt(key), Datum::Double(value), _, Datum::Timestamp(at)] =
                rows.row(number, &text)
            else {
                unreachable!("the types of an event")
            };
            let time = moment(at);
            writeln!(lines, "{key}\t{value}\t{text}\t{time}").expect("a string takes it");
            count += 1;
        }
        count
    })
}
