//! M5 in a directory: the same requests and inserts without a checkpoint, and while one is written.
//!
//! Rows are acknowledged when they are in the page cache (`os`): one writer that waits for the disk
//! could not insert 20,000 rows each second. The table is so large that the checkpoint takes a while,
//! and it is the first one, which writes all rows; both measurements take the same rows and requests.
//! The second one ends with the checkpoint.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lockstep_engine::{Checkpoint, Database};
use lockstep_host::{Clock, SystemClock};

use super::{INSERTS_PER_S, LATER_MS, MixedLoad, RequestLatencies};
use crate::{
    arguments::BenchOptions,
    error::{Error, Result},
    m1::{Data, M1Lockstep, M1Row, M1Shape},
    measure::Measured,
    peer::folder::TemporaryFolder,
    report::{median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::say,
};

/// Keys that have one row in each table.
const BACKGROUND_KEYS: usize = 1_000_000;
/// The same with `--quick`.
const BACKGROUND_KEYS_QUICK: usize = 50_000;
/// The longest time of a checkpoint, in milliseconds.
const CHECKPOINT_MS_MAX: u64 = 600_000;
/// How long requests run before the checkpoint begins, in milliseconds.
const LEAD_MS: u64 = 100;

/// What was measured with or without a checkpoint, one for each run.
#[derive(Default)]
struct CheckpointRuns {
    requested: Vec<RequestLatencies>,
    inserted: Vec<Measured>,
    /// How long each checkpoint took, and how many bytes it wrote.
    checkpoint_ms: Vec<f64>,
    checkpoint_bytes: Vec<f64>,
}

/// Measures M5 in a directory. Returns a table and how many times as long the p999 of the requests is
/// while a checkpoint is written.
pub(super) fn run(options: &BenchOptions) -> Result<(MeasurementTable, f64)> {
    let background_keys = if options.quick { BACKGROUND_KEYS_QUICK } else { BACKGROUND_KEYS };
    let data = Data { shape: M1Shape { background_keys, ..M1Shape::default() } };
    say(&format!("M5 in a directory, a checkpoint of {} rows", data.shape.rows()));
    let mut requests = data.requests();
    requests.iter_mut().for_each(|row| row.times_ms[0] += LATER_MS);
    let run_ms = if options.quick { 2_000 } else { 10_000 };
    let mut runs = [CheckpointRuns::default(), CheckpointRuns::default()];
    for _ in 0..options.runs() {
        measure(data, &requests, run_ms, &mut runs)?;
    }
    let [without, beside] = &runs;
    let ratio = rounded(beside.p999_us() / without.p999_us());
    say(&format!("p999 of requests during a checkpoint: {ratio} times that without a checkpoint"));
    Ok((table(&runs), ratio))
}

/// Measures once: first without a checkpoint, then beside one.
fn measure(
    data: Data,
    requests: &[M1Row],
    run_ms: u64,
    [without, beside]: &mut [CheckpointRuns; 2],
) -> Result<()> {
    let folder = TemporaryFolder::new("m5-durable")?;
    let database = Database::open(folder.path().join("m5"))?;
    let session = database.session();
    session.execute("SET GLOBAL checkpoint_log_size = 0; SET GLOBAL checkpoint_interval = 0")?;
    session.execute("SET durability = 'os'")?;
    let store = M1Lockstep::in_session(session, data, requests)?;
    let trial = MixedLoad { data, requests: requests.len(), run_ms };
    let (requested, inserted) = trial.run(&store, 0)?;
    without.requested.push(requested);
    without.inserted.push(inserted);
    let from = usize::try_from(INSERTS_PER_S * run_ms / 1_000).expect("a count fits");
    let trial = MixedLoad { run_ms: CHECKPOINT_MS_MAX, ..trial };
    beside.run(&trial, &store, from, &database)?;
    drop(store);
    database.close()?;
    Ok(())
}

impl CheckpointRuns {
    /// Sends requests and inserts rows while a checkpoint is written.
    fn run(
        &mut self,
        trial: &MixedLoad,
        store: &M1Lockstep<'_>,
        from: usize,
        database: &Database,
    ) -> Result<()> {
        let is_over = AtomicBool::new(false);
        let (requested, inserted, written) = std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| {
                let written = checkpoint(database);
                // Relaxed: it guards no data.
                is_over.store(true, Ordering::Relaxed);
                written
            });
            let inserter = scope.spawn(|| trial.insert(store, from, &is_over));
            let requested = trial.send_requests(store, &is_over, 0);
            let inserted = inserter.join().expect("the inserter does not panic");
            let written = checkpoint.join().expect("the checkpoint does not panic");
            Ok::<_, Error>((requested?, inserted?, written?))
        })?;
        let (Checkpoint { bytes, .. }, ms) = written;
        self.requested.push(requested);
        self.inserted.push(inserted);
        self.checkpoint_ms.push(ms);
        self.checkpoint_bytes.push(bytes as f64);
        Ok(())
    }

    fn us(&self, quantile: f64) -> Vec<f64> {
        let of = |requested: &RequestLatencies| {
            requested.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0
        };
        self.requested.iter().map(of).collect()
    }

    fn p999_us(&self) -> f64 {
        assert!(!self.requested.is_empty(), "something was measured");
        median(&mut self.us(0.999)).max(1e-3)
    }

    fn cells(&self, name: &str) -> Vec<ResultCell> {
        let numbers = ResultCell::Numbers;
        let requests = self.requested.iter().map(|requested| requested.latency_ns.len() as f64);
        let inserted_us = |run: &Measured| run.latency_ns.value_at_quantile(0.99) as f64 / 1_000.0;
        let mb = self.checkpoint_bytes.iter().map(|bytes| bytes / 1e6);
        vec![
            ResultCell::Text(name.to_owned()),
            numbers(self.us(0.5)),
            numbers(self.us(0.99)),
            numbers(self.us(0.999)),
            numbers(requests.collect()),
            numbers(self.inserted.iter().map(inserted_us).collect()),
            numbers(self.checkpoint_ms.clone()),
            numbers(mb.collect()),
        ]
    }
}

/// Writes a checkpoint, and returns it with the milliseconds that it took.
fn checkpoint(database: &Database) -> Result<(Checkpoint, f64)> {
    std::thread::park_timeout(Duration::from_millis(LEAD_MS));
    let clock = SystemClock::new();
    let written = database.checkpoint()?;
    Ok((written, clock.monotonic_ns() as f64 / 1e6))
}

fn table([without, beside]: &[CheckpointRuns; 2]) -> MeasurementTable {
    let columns = vec![
        "in a directory",
        "requests p50 µs",
        "p99 µs",
        "p999 µs",
        "requests",
        "inserts p99 µs",
        "checkpoint ms",
        "checkpoint MB",
    ];
    let rows = vec![without.cells("without a checkpoint"), beside.cells("during a checkpoint")];
    let title = "Requests and inserts in a directory (durability `os`)".to_owned();
    MeasurementTable { title, columns, rows }
}
