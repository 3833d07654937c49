//! M5: requests while 20,000 rows are inserted each second, five percent of them late.
//!
//! One thread inserts on a schedule that does not wait for anyone (an open loop): a row's latency
//! begins when the row is due, so that a stall counts for every row that it delays. Another thread
//! sends M1's requests in a closed loop. Requests are later than every row, so they must see the
//! rows just inserted. After each request the thread reads how long the kernel made it wait for a
//! processor, which separates a slow request from a busy machine.
//!
//! Then, for Lockstep only, it measures requests and inserts while DEPLOY builds an index, while
//! rows expire (`changes`), and in a directory while a checkpoint is written (`durable`).

mod changes;
mod durable;

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use hdrhistogram::Histogram;
use lockstep_host::{Clock, SystemClock, disk};
use serde_json::{Map, Value as Json, json};

use crate::{
    answer::{AnswerValue, Closeness, difference},
    arguments::BenchOptions,
    error::{Error, Result},
    m1::{
        Data, M1Baseline, M1Lockstep, M1Row, M1Shape, RedisRows, insert_statement, load_peer,
        load_redis,
    },
    measure::{Measured, latencies, record},
    peer::{Peers, prepared::PreparedSystem},
    report::{BASELINE, LoadRuns, Point, SystemResult, rounded},
    suite::{Outcome, compare, say},
    system::{Client, System},
};

/// Rows inserted each second.
const INSERTS_PER_S: u64 = 20_000;
/// Percentage of late rows.
const LATE_PERCENT: u64 = 5;
/// How much later than the data the requests are.
const LATER_MS: i64 = 3_600_000;
/// The most rows inserted during all runs.
const INSERTED_ROWS_MAX: usize = 2_000_000;
/// A store that takes this many times its schedule is stopped.
const BEHIND_MAX: u64 = 2;
/// A request above this is counted as slow: ten milliseconds.
const SLOW_NS: u64 = 10_000_000;

/// Inserts a row.
type RowInserter<'a> = Box<dyn FnMut(&M1Row) -> Result<()> + 'a>;

/// A system that takes inserts while it answers requests.
trait Store: System {
    /// Opens a connection for inserts, in the thread that inserts.
    fn inserter(&self) -> Result<RowInserter<'_>>;
}

impl Store for M1Lockstep<'_> {
    fn inserter(&self) -> Result<RowInserter<'_>> {
        Ok(Box::new(|row| self.insert(row)))
    }
}

impl Store for M1Baseline<'_> {
    fn inserter(&self) -> Result<RowInserter<'_>> {
        Ok(Box::new(|row| {
            self.insert(row);
            Ok(())
        }))
    }
}

impl Store for PreparedSystem<'_> {
    fn inserter(&self) -> Result<RowInserter<'_>> {
        let mut connection = self.peer.connect()?;
        let insert = insert_statement(connection.dialect());
        let prepared = connection.prepare(&insert)?;
        Ok(Box::new(move |row| {
            let values: Vec<AnswerValue> = row.datums().iter().map(AnswerValue::from).collect();
            connection.run(prepared, &mut insert.values(&values)).map(drop)
        }))
    }
}

impl Store for RedisRows<'_> {
    fn inserter(&self) -> Result<RowInserter<'_>> {
        let mut resp = self.redis.connect()?;
        // Numbers that no stored row has.
        let mut number = 1 << 40;
        Ok(Box::new(move |row| {
            number += 1;
            self.insert(&mut resp, row, number)
        }))
    }
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let shape = M1Shape { background_keys: 900, ..M1Shape::default() };
    let params = params(shape);
    say(&format!("M5 {params}"));
    let data = Data { shape };
    let mut requests = data.requests();
    requests.iter_mut().for_each(|row| row.times_ms[0] += LATER_MS);
    let lockstep = M1Lockstep::new(data, &requests)?;
    let baseline = M1Baseline::new(data, &requests);
    let peers = Peers::open(options)?;
    let loaded =
        peers.sql.iter().map(|peer| load_peer(peer.as_ref(), data, &requests, INSERTED_ROWS_MAX));
    let loaded = loaded.collect::<Result<Vec<PreparedSystem<'_>>>>()?;
    let redis = peers.redis.iter().map(|redis| load_redis(redis, data, &requests));
    let redis = redis.collect::<Result<Vec<RedisRows<'_>>>>()?;
    let mut stores: Vec<&dyn Store> = vec![&lockstep, &baseline];
    stores.extend(loaded.iter().map(|store| -> &dyn Store { store }));
    stores.extend(redis.iter().map(|store| -> &dyn Store { store }));
    compare(&stores.iter().map(|store| *store as &dyn System).collect::<Vec<_>>(), requests.len())?;
    let run_ms = if options.quick { 2_000 } else { 10_000 };
    let trial = MixedLoad { data, requests: requests.len(), run_ms };
    let mut notes = Map::new();
    let mut systems = Vec::new();
    for store in &stores {
        let (runs, details) = trial.repeat(*store, options.runs())?;
        notes.insert(format!("{}_runs", store.name()), Json::Array(details));
        let loads = vec![LoadRuns { threads: 1, runs }];
        let (name, bytes_per_row) = (store.name().to_owned(), store.bytes_per_row());
        systems.push(SystemResult { name, bytes_per_row, loads });
    }
    agree(&lockstep, &baseline)?;
    let tail = systems[0].loads[0].median("p999_us") / systems[0].loads[0].median("p50_us");
    let mut ratios = Map::new();
    ratios.insert("lockstep_p999/lockstep_p50".to_owned(), json!(rounded(tail)));
    notes.extend(changes::run(options)?);
    let (durable, ratio) = durable::run(options)?;
    ratios.insert("requests_p999_beside_a_checkpoint/without".to_owned(), json!(ratio));
    let point = Point { params, systems, ratios };
    Ok(Outcome { point, notes, tables: vec![durable], ..Outcome::default() })
}

fn params(shape: M1Shape) -> Json {
    let mut params = shape.params();
    params["inserts_per_s"] = json!(INSERTS_PER_S);
    params["late_percent"] = json!(LATE_PERCENT);
    params
}

/// Checks that both still give the same answers: they received the same rows.
fn agree(lockstep: &M1Lockstep<'_>, baseline: &M1Baseline<'_>) -> Result<()> {
    let (mut expected, mut found) = (lockstep.connect()?, baseline.connect()?);
    for request in 0..64 {
        let (expected, found) = (expected.answer(request)?, found.answer(request)?);
        if let Some(difference) = difference(&expected, &found, Closeness::Exact) {
            return Err(Error::Disagreement { system: BASELINE.to_owned(), request, difference });
        }
    }
    say("64 sampled requests after the inserts: both return the same results");
    Ok(())
}

fn percentiles(latency_ns: &Histogram<u64>) -> Json {
    let us = |quantile: f64| rounded(latency_ns.value_at_quantile(quantile) as f64 / 1_000.0);
    json!({
        "p50_us": us(0.5), "p99_us": us(0.99), "p999_us": us(0.999), "p9999_us": us(0.9999),
        "max_us": rounded(latency_ns.max() as f64 / 1_000.0),
    })
}

/// The latencies of the requesting thread.
struct RequestLatencies {
    latency_ns: Histogram<u64>,
    /// Latencies without the time that the thread waited for a processor.
    own_ns: Histogram<u64>,
    spent_ns: u64,
    /// The request with the greatest latency.
    worst: SlowestRequest,
    /// Requests above [`SLOW_NS`].
    slow_count: u64,
    /// Requests above [`SLOW_NS`] without the wait for a processor.
    slow_without_wait_count: u64,
}

/// The times of a request. What is neither waiting nor running is time of the kernel or the
/// hypervisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct SlowestRequest {
    latency_ns: u64,
    /// How long the thread waited for a processor.
    waited_ns: u64,
    /// How long the thread ran.
    ran_ns: u64,
}

impl RequestLatencies {
    fn describe(&self, details: &mut Map<String, Json>) {
        let us = |ns: u64| rounded(ns as f64 / 1_000.0);
        let worst = json!({
            "latency_us": us(self.worst.latency_ns), "waited_for_a_processor_us": us(self.worst.waited_ns),
            "had_a_processor_us": us(self.worst.ran_ns),
        });
        details.insert("worst_request".to_owned(), worst);
        let without_waiting = percentiles(&self.own_ns);
        details.insert("requests_without_waiting_for_a_processor".to_owned(), without_waiting);
        details.insert("requests_above_10_ms".to_owned(), json!(self.slow_count));
        let ours = json!(self.slow_without_wait_count);
        details.insert("requests_above_10_ms_that_the_kernel_did_not_cause".to_owned(), ours);
    }

    fn into_measured(self) -> Measured {
        let ops_per_s = self.latency_ns.len() as f64 * 1e9 / self.spent_ns.max(1) as f64;
        Measured { latency_ns: self.latency_ns, ops_per_s }
    }
}

/// One measurement.
struct MixedLoad {
    data: Data,
    requests: usize,
    run_ms: u64,
}

impl MixedLoad {
    /// Runs several times, and describes each run.
    fn repeat(&self, store: &dyn Store, runs: usize) -> Result<(Vec<Measured>, Vec<Json>)> {
        let mut measured = Vec::new();
        let mut all_details = Vec::new();
        for run in 0..runs {
            let alone = self.send_requests(store, &AtomicBool::new(true), self.run_ms / 5)?;
            let from = usize::try_from(INSERTS_PER_S * self.run_ms / 1_000).expect("it fits") * run;
            let (requested, inserted) = self.run(store, from)?;
            let mut details = Map::new();
            details.insert("requests_without_inserts".to_owned(), percentiles(&alone.latency_ns));
            requested.describe(&mut details);
            details.insert("inserts_from_schedule".to_owned(), percentiles(&inserted.latency_ns));
            details.insert("inserts_per_s".to_owned(), json!(rounded(inserted.ops_per_s)));
            all_details.push(Json::Object(details));
            measured.push(requested.into_measured());
        }
        Ok((measured, all_details))
    }

    /// Sends requests while rows are inserted, beginning with row number `from`.
    fn run(&self, store: &dyn Store, from: usize) -> Result<(RequestLatencies, Measured)> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let inserter = scope.spawn(|| {
                let inserted = self.insert(store, from, &is_over);
                // Relaxed: it guards no data.
                is_over.store(true, Ordering::Relaxed);
                inserted
            });
            let requested = self.send_requests(store, &is_over, 0);
            let inserted = inserter.join().expect("the inserter does not panic");
            Ok((requested?, inserted?))
        })
    }

    /// Inserts rows when they are due, until it is over.
    fn insert(&self, store: &dyn Store, from: usize, is_over: &AtomicBool) -> Result<Measured> {
        let period_ns = 1_000_000_000 / INSERTS_PER_S;
        let count = self.run_ms * 1_000_000 / period_ns;
        let clock = SystemClock::new();
        let mut insert = store.inserter()?;
        let mut latency_ns = latencies();
        for number in 0..count {
            // A store that cannot keep up is stopped. Relaxed: the flag guards no data.
            let is_behind = clock.monotonic_ns() > BEHIND_MAX * self.run_ms * 1_000_000;
            if is_behind || is_over.load(Ordering::Relaxed) {
                break;
            }
            let due_ns = number * period_ns;
            let row_number = from + usize::try_from(number).expect("a count fits");
            let row = self.data.inserted(row_number, LATE_PERCENT);
            while clock.monotonic_ns() < due_ns {
                let early_ns = due_ns.saturating_sub(clock.monotonic_ns());
                std::thread::park_timeout(Duration::from_nanos(early_ns));
            }
            insert(&row)?;
            record(&mut latency_ns, clock.monotonic_ns() - due_ns);
        }
        let ops_per_s = latency_ns.len() as f64 * 1e9 / clock.monotonic_ns() as f64;
        Ok(Measured { latency_ns, ops_per_s })
    }

    /// Sends requests until the inserts are over, but at least for `ms_min`.
    fn send_requests(
        &self,
        store: &dyn Store,
        is_over: &AtomicBool,
        ms_min: u64,
    ) -> Result<RequestLatencies> {
        let clock = SystemClock::new();
        let waiting = RunQueueWait::of_this_thread();
        let mut client: Box<dyn Client + '_> = store.connect()?;
        let mut requested = RequestLatencies {
            latency_ns: latencies(),
            own_ns: latencies(),
            spent_ns: 0,
            worst: SlowestRequest::default(),
            slow_count: 0,
            slow_without_wait_count: 0,
        };
        let mut waited_ns = waiting.total_ns();
        let mut next = 0;
        // Relaxed: it guards no data.
        while !is_over.load(Ordering::Relaxed) || clock.monotonic_ns() < ms_min * 1_000_000 {
            let ran_before_ns = processor_ns();
            let start_ns = clock.monotonic_ns();
            client.serve(next % self.requests)?;
            let latency = clock.monotonic_ns() - start_ns;
            let ran = processor_ns() - ran_before_ns;
            let total_ns = waiting.total_ns();
            let waited = (total_ns - waited_ns).min(latency);
            waited_ns = total_ns;
            next += 1;
            record(&mut requested.latency_ns, latency);
            record(&mut requested.own_ns, latency - waited);
            requested.worst = requested.worst.max(SlowestRequest {
                latency_ns: latency,
                waited_ns: waited,
                ran_ns: ran,
            });
            requested.slow_count += u64::from(latency > SLOW_NS);
            requested.slow_without_wait_count += u64::from(latency - waited > SLOW_NS);
        }
        requested.spent_ns = clock.monotonic_ns();
        Ok(requested)
    }
}

/// Returns the processor time of this thread, in nanoseconds; 0 where the kernel does not tell.
fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time to a valid pointer.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let parts = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    match (result, parts) {
        (0, (Ok(seconds), Ok(ns))) => seconds * 1_000_000_000 + ns,
        _ => 0,
    }
}

/// The file in which the kernel states how long a runnable thread waited for a processor.
struct RunQueueWait(Option<File>);

impl RunQueueWait {
    fn of_this_thread() -> Self {
        Self(disk::open(Path::new("/proc/thread-self/schedstat")).ok())
    }

    /// Returns the wait since the thread began, in nanoseconds: the second number of the file. 0
    /// where the kernel does not tell.
    fn total_ns(&self) -> u64 {
        let mut text = [0; 64];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or_default();
        text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
