//! The closed loop: each client sends its next request when it has received the answer.
//!
//! A client's clock is read once for each request, so a latency is the time from one answer to the
//! next. Latencies go to an HDR histogram with three significant digits; histograms of clients are
//! added. Every client warms up before anything is recorded, and all begin to record together.

use std::sync::Barrier;

use hdrhistogram::Histogram;
use lockstep_host::{Clock, SystemClock};

use crate::{
    error::Result,
    system::{Client, System},
};

/// Latencies above this are recorded as this: a minute, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The load of a measurement: clients and times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientLoad {
    /// Clients, each in a thread of its own.
    pub(crate) threads: usize,
    /// The warm-up of each client.
    pub(crate) warm_ms: u64,
    /// The measured time of each client.
    pub(crate) run_ms: u64,
    /// Number of requests; clients take them in turn, each beginning with another one.
    pub(crate) requests: usize,
}

/// The result of a load.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// Latencies in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    /// Operations of all clients in a second.
    pub(crate) ops_per_s: f64,
}

/// Returns an empty histogram of latencies in nanoseconds.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("the bounds and the precision are valid")
}

/// Adds a latency to a histogram.
pub(crate) fn record(latencies: &mut Histogram<u64>, latency_ns: u64) {
    latencies.saturating_record(latency_ns.max(1));
}

/// Runs a closed loop.
pub(crate) fn closed_loop(system: &dyn System, load: ClientLoad) -> Result<Measured> {
    assert!(load.threads > 0, "a load has a client");
    assert!(load.requests > 0, "a load has requests");
    let start = Barrier::new(load.threads);
    let clients: Vec<Result<Measured>> = std::thread::scope(|scope| {
        let spawn = |number: usize| {
            let start = &start;
            scope.spawn(move || client_loop(system, load, number, start))
        };
        let threads: Vec<_> = (0..load.threads).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
    });
    let mut all = Measured { latency_ns: latencies(), ops_per_s: 0.0 };
    for client in clients {
        let client = client?;
        all.latency_ns.add(client.latency_ns).expect("the histograms have the same bounds");
        all.ops_per_s += client.ops_per_s;
    }
    Ok(all)
}

fn client_loop(
    system: &dyn System,
    load: ClientLoad,
    number: usize,
    start: &Barrier,
) -> Result<Measured> {
    assert!(number < load.threads, "client {number} of {}", load.threads);
    let clock = SystemClock::new();
    let mut next = number * load.requests / load.threads;
    let warmed = system.connect().and_then(|mut client| {
        run_for(&mut *client, &clock, load.warm_ms, load.requests, &mut next)?;
        Ok(client)
    });
    // Also after a failure: the other clients wait at this barrier.
    start.wait();
    run_for(&mut *warmed?, &clock, load.run_ms, load.requests, &mut next)
}

fn run_for(
    client: &mut dyn Client,
    clock: &SystemClock,
    run_ms: u64,
    requests: usize,
    next: &mut usize,
) -> Result<Measured> {
    let mut latency_ns = latencies();
    let start_ns = clock.monotonic_ns();
    let mut last_ns = start_ns;
    while last_ns - start_ns < run_ms * 1_000_000 {
        client.serve(*next % requests)?;
        *next += 1;
        let now_ns = clock.monotonic_ns();
        record(&mut latency_ns, now_ns - last_ns);
        last_ns = now_ns;
    }
    let ops_per_s = latency_ns.len() as f64 * 1e9 / (last_ns - start_ns).max(1) as f64;
    Ok(Measured { latency_ns, ops_per_s })
}
