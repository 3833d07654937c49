//! Catching up under M8: DEPLOY with pre-aggregates on a full table, until no key waits for nodes.
//!
//! Another client sends requests to a deployment without pre-aggregates before and meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lockstep_engine::PreparedRequest;
use lockstep_host::{Clock, SystemClock};

use super::{
    engine::{DeployedSystem, M8Lockstep, PreAggregates},
    family::Family,
};
use crate::{
    arguments::BenchOptions,
    error::Result,
    measure::{ClientLoad, Measured, closed_loop, latencies, record},
    system::System,
};

/// What the making of the nodes took.
#[derive(Debug)]
pub(super) struct CaughtUp {
    /// Whose nodes.
    pub(super) family: Family,
    /// From DEPLOY until the last node was made.
    pub(super) ms: f64,
    /// Rows that were folded.
    pub(super) folded: u64,
    /// Requests before.
    pub(super) requests_alone: Measured,
    /// Requests meanwhile.
    pub(super) requests_meanwhile: Measured,
}

/// Deploys a family with pre-aggregates and waits for its nodes. With several runs the last one counts
/// that took the median time.
pub(super) fn catch_up(
    options: &BenchOptions,
    lockstep: &M8Lockstep,
    family: Family,
    rows: usize,
    beside: &DeployedSystem<'_>,
) -> Result<(Arc<PreparedRequest>, CaughtUp)> {
    let (warm_ms, run_ms) = options.loop_ms();
    let mut runs: Vec<CaughtUp> = Vec::new();
    loop {
        let load = ClientLoad { threads: 1, warm_ms, run_ms, requests: beside.requests.len() };
        let requests_alone = closed_loop(beside, load)?;
        let (deployed, caught_up) = catch_up_once(lockstep, family, rows, beside, requests_alone)?;
        runs.push(caught_up);
        if runs.len() == options.runs() {
            // What waits still, if the thread was held up for long.
            lockstep.make_nodes();
            runs.sort_by(|one, other| one.ms.total_cmp(&other.ms));
            let middle = (runs.len() - 1) / 2;
            return Ok((deployed, runs.swap_remove(middle)));
        }
        drop(deployed);
        lockstep.drop_deployment(family, PreAggregates::On)?;
    }
}

fn catch_up_once(
    lockstep: &M8Lockstep,
    family: Family,
    rows: usize,
    beside: &DeployedSystem<'_>,
    requests_alone: Measured,
) -> Result<(Arc<PreparedRequest>, CaughtUp)> {
    let is_over = AtomicBool::new(false);
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        let requester = scope.spawn(|| send_until(beside, &is_over));
        let start_ns = clock.monotonic_ns();
        let made = lockstep.deploy(family, PreAggregates::On).and_then(|deployed| {
            let end_ns = lockstep.wait_for_nodes(family, rows, &clock)?;
            Ok((deployed, end_ns))
        });
        // Relaxed: it guards no data.
        is_over.store(true, Ordering::Relaxed);
        let requests_meanwhile = requester.join().expect("the client does not panic")?;
        let (deployed, end_ns) = made?;
        let ms = end_ns.saturating_sub(start_ns) as f64 / 1e6;
        let folded = lockstep.progress(family)?.folded;
        let caught_up = CaughtUp { family, ms, folded, requests_alone, requests_meanwhile };
        Ok((deployed, caught_up))
    })
}

/// Sends requests in a closed loop until it is over; at least one.
fn send_until(system: &DeployedSystem<'_>, is_over: &AtomicBool) -> Result<Measured> {
    let clock = SystemClock::new();
    let mut client = system.connect()?;
    let mut latency_ns = latencies();
    let start_ns = clock.monotonic_ns();
    let mut last_ns = start_ns;
    for request in (0..system.requests.len()).cycle() {
        client.serve(request)?;
        let now_ns = clock.monotonic_ns();
        record(&mut latency_ns, now_ns - last_ns);
        last_ns = now_ns;
        // Relaxed: it guards no data.
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    let ops_per_s = latency_ns.len() as f64 * 1e9 / (last_ns - start_ns).max(1) as f64;
    Ok(Measured { latency_ns, ops_per_s })
}
