//! M5, while the table is changed as a whole: DEPLOY builds an index on it, or rows expire.
//!
//! The table is a separate one with few columns, so that five million rows fit any machine. One
//! thread inserts on a schedule, one sends requests in a closed loop, and one changes the table
//! meanwhile. The result compares the latencies of requests and inserts during the change with
//! those before and after it.

use std::{
    fs,
    hint::black_box,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hdrhistogram::Histogram;
use lockstep_engine::{Appender, Database, PreparedRequest, Session};
use lockstep_host::{Clock, ManualClock, SystemClock};
use lockstep_row::{Arena, Datum};
use serde_json::{Map, Value as Json, json};

use super::{INSERTS_PER_S, percentiles};
use crate::{
    arguments::BenchOptions,
    draw::KeyedRandom,
    error::{Error, Result},
    measure::{latencies, record},
    report::rounded,
    suite::say,
};

/// Rows on which DEPLOY builds an index, and rows that expire.
const BUILT_ROWS: i64 = 5_000_000;
const EXPIRED_ROWS: i64 = 1_000_000;
/// The same with `--quick`.
const BUILT_ROWS_QUICK: i64 = 500_000;
const EXPIRED_ROWS_QUICK: i64 = 200_000;
/// Entity keys, and keys of the index that is built. A key has many times the rows that the
/// deployment's window keeps, so that most rows do expire.
const KEYS: u64 = 500;
const GROUPS: u64 = 1_000;
/// Rows of one append while the table is filled.
const FILL_ROWS: i64 = 1_000;
/// The table keeps rows for an hour.
const TTL_MS: i64 = 3_600_000;
/// When the first rows have arrived: in 2024.
const START_MS: i64 = 1_718_409_600_000;
/// How long the removal of expired rows may take.
const EXPIRED_NS_MAX: u64 = 10_000_000_000;
/// The processor time after which a removal has begun.
const BEGUN_NS: u64 = 1_000_000;
/// The interval at which expired rows are looked for.
const LOOK_MS: u64 = 2;

const TABLE: &str = "CREATE TABLE e (k BIGINT, g BIGINT, x DOUBLE, n BIGINT, ts TIMESTAMP,
    INDEX(KEY=k, TS=ts, TTL=60m, TTL_TYPE=absolute));";
/// The deployment that is requested, and the one that is deployed meanwhile.
const REQUESTED: &str =
    "DEPLOY requested SELECT k, sum(x) OVER w, count(n) OVER w, max(x) OVER w FROM e
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 100 PRECEDING AND CURRENT ROW);";
const BUILT: &str = "DEPLOY built SELECT g, sum(x) OVER w FROM e
    WINDOW w AS (PARTITION BY g ORDER BY ts ROWS_RANGE BETWEEN 10m PRECEDING AND CURRENT ROW);";

/// A row: two keys, two values, its time.
type ChangeRow = [Datum<'static>; 5];

/// A filled table and its prepared request.
struct TableUnderChange {
    session: Session,
    database: Database,
    appender: Appender,
    request: Arc<PreparedRequest>,
    clock: Arc<ManualClock>,
}

/// Latencies while the table is not changed (`alone`), and while it is (`beside`).
struct Latencies {
    alone: Histogram<u64>,
    beside: Histogram<u64>,
}

/// Runs both changes and describes their results.
pub(super) fn run(options: &BenchOptions) -> Result<Map<String, Json>> {
    let (built, expired) = match options.quick {
        true => (BUILT_ROWS_QUICK, EXPIRED_ROWS_QUICK),
        false => (BUILT_ROWS, EXPIRED_ROWS),
    };
    let run_ms = if options.quick { 8_000 } else { 15_000 };
    let mut described = Map::new();
    say(&format!("M5, DEPLOY builds an index on {built} rows"));
    let bed = TableUnderChange::new(built)?;
    let nothing = |_: &TableUnderChange| Ok(());
    let found = bed
        .measure(run_ms, nothing, |bed| bed.session.execute(BUILT).map(drop).map_err(Into::into));
    described.insert("while_deploy_builds_an_index".to_owned(), found?);
    drop(bed);
    say(&format!("M5, {expired} rows expire"));
    let bed = TableUnderChange::new(expired)?;
    let found = bed.measure(run_ms, TableUnderChange::expire, TableUnderChange::wait_until_removed);
    described.insert("while_rows_expire".to_owned(), found?);
    Ok(described)
}

/// Returns the processor time of the threads that remove expired rows. Linux states it in
/// nanoseconds.
fn expiry_thread_ns() -> u64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let of = |thread: &Path| {
        let read = |name| fs::read_to_string(thread.join(name)).unwrap_or_default();
        let is_it = read("comm").starts_with("lockstep-expiry");
        let spent_ns = read("schedstat").split(' ').next().and_then(|text| text.parse().ok());
        spent_ns.filter(|_| is_it).unwrap_or(0)
    };
    threads.map(|thread| of(&thread.path())).sum()
}

/// Polls a condition; an error when it takes too long, since nothing is measured then.
fn wait_until(what: &'static str, is_so: impl Fn() -> bool) -> Result<()> {
    let clock = SystemClock::new();
    while !is_so() {
        if clock.monotonic_ns() > EXPIRED_NS_MAX {
            return Err(Error::Idle { what });
        }
        std::thread::park_timeout(Duration::from_millis(LOOK_MS));
    }
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).expect("it is small")
}

/// Returns the row of this number that arrives at a time.
fn row(number: i64, time_ms: i64) -> ChangeRow {
    let draw = KeyedRandom::at(&[31, number.unsigned_abs()]);
    let (key, group) = (draw.below(0, KEYS), draw.below(1, GROUPS));
    let x = Datum::Double(draw.int(2, 1_000_000) as f64 / 128.0);
    let [key, group] = [key, group].map(|number| Datum::BigInt(signed(number)));
    [key, group, x, Datum::BigInt(number), Datum::Timestamp(time_ms)]
}

impl TableUnderChange {
    /// Creates a table of `rows` rows, which arrived in the last half hour.
    fn new(rows: i64) -> Result<Self> {
        let clock = Arc::new(ManualClock::new(START_MS));
        let database = Database::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let session = database.session();
        session.execute(TABLE)?;
        session.execute(REQUESTED)?;
        let appender = session.appender("e")?;
        for first in (0..rows).step_by(usize::try_from(FILL_ROWS).expect("it is small")) {
            let time = |number: i64| START_MS + number * (TTL_MS / 2) / rows;
            appender.append((first..first + FILL_ROWS).map(|number| row(number, time(number))))?;
        }
        clock.set_ms(START_MS + TTL_MS / 2);
        let request = session.prepare_request("requested")?;
        Ok(Self { session, database, appender, request, clock })
    }

    /// Lets the rows expire, and waits until their removal begins.
    fn expire(&self) -> Result<()> {
        let before_ns = expiry_thread_ns();
        self.clock.set_ms(START_MS + 2 * TTL_MS);
        wait_until("the removal of expired rows did not start", || {
            expiry_thread_ns() > before_ns + BEGUN_NS
        })
    }

    /// Waits until most of the memory of the expired rows is freed.
    fn wait_until_removed(&self) -> Result<()> {
        let before = self.database.memory_use().used;
        wait_until("the expired rows were not removed", || {
            self.database.memory_use().used < before / 2
        })
    }

    /// Sends requests and inserts for the given time, and runs a change after a third of it;
    /// `begin` still counts as unchanged.
    fn measure(
        &self,
        run_ms: u64,
        begin: impl FnOnce(&Self) -> Result<()> + Send,
        change: impl FnOnce(&Self) -> Result<()> + Send,
    ) -> Result<Json> {
        let (is_over, is_changing) = (AtomicBool::new(false), AtomicBool::new(false));
        let (requested, inserted, took_ms) = std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                std::thread::park_timeout(Duration::from_millis(run_ms / 3));
                begin(self)?;
                let clock = SystemClock::new();
                // Relaxed: it guards no data, and nor do the others.
                is_changing.store(true, Ordering::Relaxed);
                let changed = change(self);
                is_changing.store(false, Ordering::Relaxed);
                changed.map(|()| clock.monotonic_ns() / 1_000_000)
            });
            let inserter = scope.spawn(|| {
                let inserted = self.insert(run_ms, &is_changing);
                is_over.store(true, Ordering::Relaxed);
                inserted
            });
            let requested = self.send_requests(&is_over, &is_changing);
            let inserted = inserter.join().expect("the inserter does not panic");
            let took_ms = changer.join().expect("the change does not panic");
            Ok::<_, Error>((requested?, inserted?, took_ms?))
        })?;
        Ok(describe(&requested, &inserted, took_ms))
    }

    fn send_requests(&self, is_over: &AtomicBool, is_changing: &AtomicBool) -> Result<Latencies> {
        let clock = SystemClock::new();
        let mut found = Latencies::new();
        let mut arena = Arena::new();
        let mut number = 0;
        // Relaxed: they guard no data.
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let values = row(-number, START_MS + 4 * TTL_MS);
            arena.reset();
            let was_changing = is_changing.load(Ordering::Relaxed);
            let start_ns = clock.monotonic_ns();
            black_box(self.request.answer(&values, &arena)?);
            let latency_ns = clock.monotonic_ns() - start_ns;
            let is_beside = was_changing || is_changing.load(Ordering::Relaxed);
            record(found.of(is_beside), latency_ns);
        }
        Ok(found)
    }

    /// Inserts rows when they are due. A row's latency begins when it is due, so that a stall
    /// counts for all rows that it delays.
    fn insert(&self, run_ms: u64, is_changing: &AtomicBool) -> Result<Latencies> {
        let period_ns = 1_000_000_000 / INSERTS_PER_S;
        let clock = SystemClock::new();
        let mut found = Latencies::new();
        for number in 0..run_ms * 1_000_000 / period_ns {
            let due_ns = number * period_ns;
            while clock.monotonic_ns() < due_ns {
                let early_ns = due_ns.saturating_sub(clock.monotonic_ns());
                std::thread::park_timeout(Duration::from_nanos(early_ns));
            }
            // Relaxed: it guards no data.
            let was_changing = is_changing.load(Ordering::Relaxed);
            self.appender.append([row(1 << 40 | signed(number), self.clock.now_ms())])?;
            let latency_ns = clock.monotonic_ns() - due_ns;
            let is_beside = was_changing || is_changing.load(Ordering::Relaxed);
            record(found.of(is_beside), latency_ns);
        }
        Ok(found)
    }
}

impl Latencies {
    fn new() -> Self {
        Self { alone: latencies(), beside: latencies() }
    }

    fn of(&mut self, is_beside: bool) -> &mut Histogram<u64> {
        if is_beside { &mut self.beside } else { &mut self.alone }
    }
}

fn describe(requested: &Latencies, inserted: &Latencies, took_ms: u64) -> Json {
    let p999 = |latencies: &Histogram<u64>| latencies.value_at_quantile(0.999).max(1) as f64;
    let ratio = p999(&requested.beside) / p999(&requested.alone);
    let p99_ms = inserted.beside.value_at_quantile(0.99) as f64 / 1e6;
    say(&format!(
        "{took_ms} ms: p999 of requests {} times that without the change, p99 of inserts {} ms",
        rounded(ratio),
        rounded(p99_ms)
    ));
    json!({
        "took_ms": took_ms,
        "requests_alone": percentiles(&requested.alone),
        "requests_beside": percentiles(&requested.beside),
        "requests_p999_ratio": rounded(ratio),
        "inserts_alone": percentiles(&inserted.alone),
        "inserts_beside": percentiles(&inserted.beside),
        "inserts_p99_ms": rounded(p99_ms),
    })
}
