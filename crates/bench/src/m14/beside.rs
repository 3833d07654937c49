//! M15: requests of one row beside analytics, through the same server.
//!
//! Connections request M1's features over HTTP at half the rate that they reach alone, first alone and
//! then while other clients send analytics as fast as they are answered: queries that group all rows of
//! the table by key. A latency begins when its request is due. What is aimed for is that p99 grows by at
//! most a fifth.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use lockstep_host::JoinHandle;
use serde_json::{Map, json};

use super::{
    NetworkRuns,
    connection::Endpoint,
    features::FeatureSet,
    load::{NetworkLoad, Pace, run_load},
    note,
    server_step::{ServedSystem, ServerProcess},
};
use crate::{
    arguments::BenchOptions,
    error::{Error, Result, Trying},
    report::{LOCKSTEP, Point, median, rounded},
    result_table::MeasurementTable,
    suite::{Outcome, say},
};

/// Connections that request.
const REQUEST_CONNECTIONS: [usize; 2] = [1, 8];
/// Clients that send analytics: more than there are threads for them, so that some always wait.
const ANALYTICS_CLIENTS: usize = 8;
/// The names of the two loads.
const ALONE: &str = "alone";
const BESIDE: &str = "with analytics";

/// What a client of analytics asks: all rows of the table, several times over.
const ANALYTICS: &str = "SELECT col_s0, count(*) AS n, sum(col_d0) AS s, avg(col_d0) AS a, \
     max(col_t0) AS t FROM mt GROUP BY col_s0 ORDER BY n DESC LIMIT 10";

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let set = FeatureSet::M1;
    let (warm_ms, run_ms) = options.loop_ms();
    let process = ServerProcess::start(ServedSystem::Lockstep(set))?;
    let (endpoint, requests) = (process.endpoint(set), process.requests(set)?);
    let analytics = process.statement(ANALYTICS);
    endpoint.exchange(&analytics)?;
    let mut measured = Vec::new();
    let mut answered = Vec::new();
    for _ in 0..options.runs() {
        for connections in REQUEST_CONNECTIONS {
            let closed = NetworkLoad { connections, warm_ms, run_ms, pace: Pace::AsAnswered };
            let per_s = run_load(&endpoint, &requests, closed)?.ops_per_s / 2.0;
            let half = NetworkLoad { pace: Pace::PerSecond(per_s), ..closed };
            let alone = run_load(&endpoint, &requests, half)?;
            note(&mut measured, (LOCKSTEP, ALONE, connections), alone);
            let flood = AnalyticsFlood::start(&endpoint, &analytics)?;
            let beside = run_load(&endpoint, &requests, half);
            answered.push(flood.end()?);
            note(&mut measured, (LOCKSTEP, BESIDE, connections), beside?);
        }
    }
    say(&format!("{} analytics queries were answered", answered.iter().sum::<u64>()));
    Ok(outcome(&measured, &answered))
}

/// Makes the results.
fn outcome(measured: &[NetworkRuns], answered: &[u64]) -> Outcome {
    let mut ratios = Map::new();
    for connections in REQUEST_CONNECTIONS {
        let find = |load: &str| {
            measured.iter().find(|runs| runs.load == load && runs.connections == connections)
        };
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let at = |runs: &NetworkRuns| median(&mut runs.us(quantile));
            let times = find(BESIDE).zip(find(ALONE));
            if let Some((beside, alone)) = times {
                let times = at(beside) / at(alone).max(0.001);
                let name = format!("{name}, with analytics/alone, {connections} connections");
                ratios.insert(name, json!(rounded(times)));
            }
        }
    }
    let columns =
        vec!["system", "load", "connections", "requests/s", "p50 µs", "p99 µs", "p999 µs"];
    let rows = measured.iter().map(NetworkRuns::cells).collect();
    let title = "M1's request at half load, alone and concurrently with analytics".to_owned();
    let params = json!({
        "protocol": "HTTP/1.1 with JSON", "connections": REQUEST_CONNECTIONS,
        "analytics_clients": ANALYTICS_CLIENTS, "analytics": ANALYTICS,
    });
    let mut notes = Map::new();
    notes.insert("analytics_answered".to_owned(), json!(answered));
    Outcome {
        point: Point { params, systems: Vec::new(), ratios },
        notes,
        tables: vec![MeasurementTable { title, columns, rows }],
        ..Outcome::default()
    }
}

/// Clients that send analytics until they are ended.
struct AnalyticsFlood {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Result<()>>>,
}

impl fmt::Debug for AnalyticsFlood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnalyticsFlood")
            .field("clients", &self.clients.len())
            .finish_non_exhaustive()
    }
}

impl AnalyticsFlood {
    fn start(endpoint: &Endpoint, statement: &[u8]) -> Result<Self> {
        let mut flood =
            Self { is_over: Arc::default(), answered: Arc::default(), clients: Vec::new() };
        for _ in 0..ANALYTICS_CLIENTS {
            let (is_over, answered) = (Arc::clone(&flood.is_over), Arc::clone(&flood.answered));
            let (endpoint, statement) = (endpoint.clone(), statement.to_vec());
            let body = move || {
                // Relaxed, here and below: a flag and a figure that publish nothing else.
                while !is_over.load(Ordering::Relaxed) {
                    endpoint.exchange(&statement)?;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            let client = lockstep_host::spawn("analytics", body);
            flood.clients.push(client.trying(|| "start a client".to_owned())?);
        }
        Ok(flood)
    }

    /// Ends the clients. Returns how many queries were answered; fails where one was not.
    fn end(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients {
            let ended = client.join();
            ended.map_err(|_panic| Error::peer("server", "a client panicked".to_owned()))??;
        }
        let answered = self.answered.load(Ordering::Relaxed);
        if answered == 0 {
            return Err(Error::peer("server", "no analytics query was answered".to_owned()));
        }
        Ok(answered)
    }
}
