//! The soak: a served directory under mixed load for a long time, with disconnects and kills.
//!
//! Clients append rows, ask deployments, run SQL and make tables over HTTP, PostgreSQL's protocol and
//! Flight, some connections end in the middle, and now and then the server is killed and started again.
//! Each client writes entity keys of its own, so that it knows every row of them and their order; a
//! database in memory that got the same acknowledged rows gives the answer that the server's is compared
//! with, to the bit. An append without an acknowledgement may have been done or not, but not in part:
//! its key is left alone until the server was killed, since then nothing of it can be on its way.
//!
//! | module | what |
//! |---|---|
//! | [`server`] | the server in a process of its own, and where it is |
//! | [`client`] | the life of a client |
//! | [`connection`], [`http`], [`postgres`] | the protocols |
//! | [`row`] | rows and answers |
//! | [`model`] | the database in memory |
//! | [`proxy`] | a bug: answers with a changed digit |

pub mod client;
pub mod connection;
pub mod http;
pub mod model;
pub mod postgres;
pub mod proxy;
pub mod row;
pub mod server;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_host::{Clock, SystemClock, sync::Mutex};
use lockstep_testkit::random::Random;

use self::{
    client::SoakClient,
    proxy::DigitProxy,
    server::{ServerGate, SoakServer},
};

/// The bug that this process gives the answers, instead of one of the server's.
pub const ANSWER_DIGIT: &str = "answer_digit";
/// The bug of a server that drops the last row of an append over Flight.
pub const ROW_DROPPED: &str = "flight_row_dropped";

/// Clients of each protocol.
const CLIENTS_PER_PROTOCOL: usize = 2;
/// The server runs so long at least between kills, in milliseconds.
const ALIVE_MS_MIN: u64 = 1_500;
/// How often memory is looked at, in milliseconds.
const SAMPLE_MS: u32 = 250;
/// The most violations that are described.
const DESCRIBED_MAX: usize = 20;
/// How much more memory the last quarter of a long run may take than the second one, in percent.
const GROWTH_PERCENT_MAX: u64 = 25;
/// Runs with fewer samples say nothing of growth.
const SAMPLES_MIN: usize = 400;

/// What is run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// This program.
    pub program: PathBuf,
    /// Where the directory of the database is made.
    pub directory: PathBuf,
    /// How long clients call.
    pub seconds: u64,
    /// The longest time between kills, in milliseconds.
    pub kill_ms_max: u64,
    /// What everything is drawn from, except the moments of the machine.
    pub seed: u64,
    /// [`ANSWER_DIGIT`], [`ROW_DROPPED`], or another bug of the server by the name of `host::failpoint`.
    pub bug: Option<String>,
}

/// The counts of a run.
#[derive(Debug, Default)]
pub struct SoakReport {
    /// What was done, by protocol and call.
    pub calls: BTreeMap<String, u64>,
    /// Calls that ended without an answer, because of a kill or a disconnect.
    pub unanswered: u64,
    /// Calls that the server refused for overload or at its end.
    pub refused: u64,
    /// Answers that were compared.
    pub answers_compared: u64,
    /// Rows that were acknowledged.
    pub rows_acknowledged: u64,
    /// Appends without an acknowledgement that were done.
    pub appends_done: u64,
    /// Appends without an acknowledgement that were not done.
    pub appends_lost: u64,
    /// Kills of the server.
    pub kills: u64,
    /// The memory of the server over time, in KiB: all, and without files.
    pub memory_kib: Vec<(u64, u64)>,
    /// Violations, the first ones described.
    pub violations: u64,
    /// The first violations.
    pub described: Vec<String>,
}

impl SoakReport {
    /// Counts a call.
    pub(crate) fn count(&mut self, protocol: &str, call: &str) {
        *self.calls.entry(format!("{protocol} {call}")).or_default() += 1;
    }

    /// Adds a violation.
    pub(crate) fn violation(&mut self, what: String) {
        self.violations += 1;
        if self.described.len() < DESCRIBED_MAX {
            self.described.push(what);
        }
    }

    /// Returns the medians of the memory without files of the second and the last quarter, in KiB.
    fn quarters(&self) -> Option<(u64, u64)> {
        let samples: Vec<u64> = self.memory_kib.iter().map(|(_, own)| *own).collect();
        let quarter = samples.len() / 4;
        let median = |samples: &[u64]| {
            let mut sorted = samples.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied()
        };
        debug_assert!(4 * quarter <= samples.len(), "a quarter is one of four");
        let second = median(samples.get(quarter..2 * quarter)?)?;
        Some((second, median(samples.get(3 * quarter..)?)?))
    }

    /// Adds a violation where the memory of a long run has grown.
    fn check_memory(&mut self) {
        let Some((second, last)) = self.quarters() else { return };
        let limit = second + second * GROWTH_PERCENT_MAX / 100;
        if self.memory_kib.len() >= SAMPLES_MIN && last > limit {
            self.violation(format!("memory has grown from {second} KiB to {last} KiB"));
        }
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (call, count) in &self.calls {
            writeln!(f, "{call:<28}{count:>10}")?;
        }
        writeln!(
            f,
            "{} kills, {} calls without an answer, {} refused",
            self.kills, self.unanswered, self.refused
        )?;
        writeln!(
            f,
            "{} rows acknowledged; appends without an answer: {} done, {} not done",
            self.rows_acknowledged, self.appends_done, self.appends_lost
        )?;
        writeln!(f, "{} answers compared", self.answers_compared)?;
        let all = self.memory_kib.iter().map(|(all, _)| *all).max().unwrap_or(0);
        if let Some((second, last)) = self.quarters() {
            writeln!(
                f,
                "memory of the server: {second} KiB in the second quarter, {last} KiB in the last \
                 (medians without files); at most {all} KiB with files"
            )?;
        }
        writeln!(f, "{} violations", self.violations)?;
        self.described.iter().try_for_each(|described| writeln!(f, "{described}"))
    }
}

/// Runs clients against a server for the time of the options.
pub fn run(options: &SoakOptions) -> Result<SoakReport, String> {
    let directory = options.directory.join(format!("soak-{:016x}", options.seed));
    // Left by a run of the same seed.
    let _absent = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&options.directory).map_err(|error| error.to_string())?;
    let report = Arc::new(Mutex::new(SoakReport::default()));
    let gate = Arc::new(ServerGate::default());
    assert!(options.seconds > 0, "clients call for some time");
    let mut clients = Vec::new();
    for (number, protocol) in connection::PROTOCOLS.repeat(CLIENTS_PER_PROTOCOL).iter().enumerate()
    {
        let seed = Random::new(options.seed ^ (number as u64) << 32).number();
        let client = SoakClient::new(number, *protocol, seed, &gate, &report)?;
        let body = move || client.run();
        clients.push(lockstep_host::spawn("soak", body).map_err(|error| error.to_string())?);
    }
    let served = serve(options, &directory, &gate, &report);
    gate.end();
    for client in clients {
        if client.join().is_err() {
            report.lock().violation("a client has panicked".to_owned());
        }
    }
    served?;
    let mut report = std::mem::take(&mut *report.lock());
    report.check_memory();
    if report.violations == 0 {
        let _removed = std::fs::remove_dir_all(&directory);
    }
    Ok(report)
}

/// Serves the directory for the time of the options, with kills; at the end the server is killed and
/// serves again, until all clients have compared what they know.
fn serve(
    options: &SoakOptions,
    directory: &Path,
    gate: &ServerGate,
    report: &Mutex<SoakReport>,
) -> Result<(), String> {
    let clock = SystemClock::new();
    let now_ms = || clock.monotonic_ns() / 1_000_000;
    let (begin_ms, mut random) = (now_ms(), Random::new(options.seed));
    let is_over = || now_ms() - begin_ms >= options.seconds * 1_000;
    let mut is_last = false;
    loop {
        assert!(!is_last || is_over(), "the last server comes after the calls");
        let mut server = SoakServer::start(options, directory)?;
        let mut ports = server.ports();
        if options.bug.as_deref() == Some(ANSWER_DIGIT) {
            ports.http = DigitProxy::start(ports.http).map_err(|error| error.to_string())?;
        }
        gate.open(ports, is_last);
        let range = usize::try_from(options.kill_ms_max.max(1)).unwrap_or(1);
        let alive_ms = ALIVE_MS_MIN + random.below(range) as u64;
        let started_ms = now_ms();
        loop {
            lockstep_host::pause(SAMPLE_MS);
            if let Some(memory) = server.memory_kib() {
                report.lock().memory_kib.push(memory);
            }
            if server.has_ended() {
                return Err("the server has ended by itself".to_owned());
            }
            let is_due = now_ms() - started_ms >= alive_ms || is_over();
            let found = report.lock().violations > 0;
            let is_done =
                is_last && gate.has_all_done(CLIENTS_PER_PROTOCOL * connection::PROTOCOLS.len());
            if found || is_done {
                gate.close();
                return Ok(());
            }
            if is_due && !is_last {
                break;
            }
        }
        gate.close();
        server.kill();
        report.lock().kills += 1;
        is_last = is_over();
    }
}

#[cfg(test)]
mod tests {
    use super::SoakReport;

    #[test]
    fn growth_of_a_long_run_is_a_violation() {
        let grown = |step: u64| {
            let memory_kib = (0..400).map(|at| (0, 100_000 + at * step)).collect();
            let mut report = SoakReport { memory_kib, ..SoakReport::default() };
            report.check_memory();
            report.violations
        };
        assert_eq!((grown(0), grown(50), grown(500)), (0, 0, 1));
    }
}
