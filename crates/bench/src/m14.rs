//! M14: requests over the network: M1's and M2's features through `lockstep serve` on loopback.
//!
//! A client sends a request row as JSON over HTTP/1.1, binds it to a prepared call of the deployment in
//! PostgreSQL's protocol, or sends it as an Arrow batch in a session of Flight, and reads the features.
//! 1, 8, 64 and 1,000 connections send their next request when they have the answer; then as many send
//! at half the rate that eight of them reached, each request at its time, so that a wait counts for all
//! requests that it delays. All connections are of one thread, which leaves the other processor to the
//! server.
//!
//! Beside it, by the same client: *speed of light*, a server of the same libraries that reads the body
//! and answers a constant of the same size, over HTTP/1.1 and, for Flight, over HTTP/2; Redis, which
//! returns ready-made features of the same size; and Feast's feature server, which returns as many
//! ready-made features. PostgreSQL runs M1's SQL with its own client, a connection in each thread. Each
//! server is a process of its own; answers of Lockstep are compared with those in process before
//! anything is timed, to the bit.

mod appends;
mod beside;
mod connection;
mod feast;
mod features;
mod flight;
mod http2;
mod load;
mod postgres;
mod ready_made;
mod server_step;
#[cfg(test)]
mod tests;
mod timer;

pub(crate) use beside::run as run_beside;
use connection::{Endpoint, Framing};
use feast::Feast;
use features::FeatureSet;
use load::{NetworkLoad, Pace, run_load};
use serde_json::{Map, Value as Json, json};
pub(crate) use server_step::run_step;
use server_step::{ServedSystem, ServerProcess};

use crate::{
    answer::{AnswerValue, Closeness, difference},
    arguments::{BenchOptions, PeerName},
    error::{Error, Result},
    m1::{self, Data, M1Shape},
    measure::{ClientLoad, Measured, closed_loop},
    peer::{postgres::Postgres, redis::Redis},
    report::{BASELINE, LOCKSTEP, Point, median, rounded},
    result_table::{MeasurementTable, ResultCell},
    suite::{Outcome, say, wanted},
    system::System,
};

/// Connections that are open at the same time.
const CONNECTIONS: [usize; 4] = [1, 8, 64, 1_000];
/// Connections of which the half load is derived.
const HALF_LOAD_OF: usize = 8;
/// Lockstep over Flight, and the constant server for its calls, as results name them.
const FLIGHT: &str = "lockstep_flight";
const FLIGHT_BASELINE: &str = "speed_of_light_flight";
/// Requests whose answers are compared.
const SAMPLES: usize = 64;
/// Threads of PostgreSQL's clients.
const POSTGRES_THREADS: [usize; 2] = [1, 8];

/// What a system did at one number of connections, in each run.
struct NetworkRuns {
    system: &'static str,
    load: &'static str,
    connections: usize,
    runs: Vec<Measured>,
}

impl NetworkRuns {
    fn us(&self, quantile: f64) -> Vec<f64> {
        let of = |run: &Measured| run.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0;
        self.runs.iter().map(of).collect()
    }

    fn per_s(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.ops_per_s).collect()
    }

    fn cells(&self) -> Vec<ResultCell> {
        vec![
            ResultCell::Text(self.system.to_owned()),
            ResultCell::Text(self.load.to_owned()),
            ResultCell::Text(self.connections.to_string()),
            ResultCell::Numbers(self.per_s()),
            ResultCell::Numbers(self.us(0.5)),
            ResultCell::Numbers(self.us(0.99)),
            ResultCell::Numbers(self.us(0.999)),
        ]
    }
}

/// A system that is measured by the client of this workload.
struct NetworkSystem {
    name: &'static str,
    endpoint: Endpoint,
    requests: Vec<Vec<u8>>,
}

/// Runs the workload.
pub(crate) fn run(options: &BenchOptions) -> Result<Outcome> {
    let mut notes = Map::new();
    let mut tables = Vec::new();
    let mut ratios = Map::new();
    let sets = [FeatureSet::M1, FeatureSet::M2];
    for set in sets {
        let measured = run_set(options, set, &mut notes, &mut ratios)?;
        let columns =
            vec!["system", "load", "connections", "requests/s", "p50 µs", "p99 µs", "p999 µs"];
        let rows = measured.iter().map(NetworkRuns::cells).collect();
        tables.push(MeasurementTable { title: set.title().to_owned(), columns, rows });
    }
    tables.push(appends::run(options)?);
    let params = json!({
        "protocols": ["HTTP/1.1 with JSON", "PostgreSQL, extended", "Flight"],
        "connections": CONNECTIONS,
        "features": sets.map(|set| set.feature_count()),
    });
    let point = Point { params, systems: Vec::new(), ratios };
    Ok(Outcome { point, notes, tables, ..Outcome::default() })
}

/// Measures all systems with one set of features.
fn run_set(
    options: &BenchOptions,
    set: FeatureSet,
    notes: &mut Map<String, Json>,
    ratios: &mut Map<String, Json>,
) -> Result<Vec<NetworkRuns>> {
    say(set.title());
    let (warm_ms, run_ms) = options.loop_ms();
    let in_process = set.in_process(warm_ms, run_ms)?;
    let lockstep = ServerProcess::start(ServedSystem::Lockstep(set))?;
    notes.insert(format!("{}_ready_ms", set.name()), json!(rounded(lockstep.ready_ms)));
    let answer_bytes = check_answers(&lockstep, set, &in_process.answers)?;
    let constant = ServerProcess::start(ServedSystem::Constant { bytes: answer_bytes })?;
    let flight = ServerProcess::start(ServedSystem::LockstepFlight(set))?;
    let flight_bytes = check_answers(&flight, set, &in_process.answers)?;
    let flight_constant =
        ServerProcess::start(ServedSystem::ConstantFlight { bytes: flight_bytes })?;
    let redis = wanted(options, PeerName::Redis, Redis::start)?;
    let postgres = ServerProcess::start(ServedSystem::LockstepPostgres(set))?;
    check_answers(&postgres, set, &in_process.answers)?;
    let served = |(name, process): (_, &ServerProcess)| -> Result<NetworkSystem> {
        let (endpoint, requests) = (process.endpoint(set), process.requests(set)?);
        Ok(NetworkSystem { name, endpoint, requests })
    };
    let processes = [
        (LOCKSTEP, &lockstep),
        ("lockstep_postgres", &postgres),
        (FLIGHT, &flight),
        (BASELINE, &constant),
        (FLIGHT_BASELINE, &flight_constant),
    ];
    let mut systems = processes.into_iter().map(served).collect::<Result<Vec<_>>>()?;
    if let Some(redis) = &redis {
        systems.push(ready_made::fill(redis, set.request_count(), answer_bytes)?);
    }
    let feast = wanted(options, PeerName::Feast, || Feast::start(set))?;
    systems.extend(feast.iter().map(|feast| feast.system(set)));
    let mut measured = Vec::new();
    for _ in 0..options.runs() {
        measure_once(&systems, (warm_ms, run_ms), &mut measured)?;
        if set == FeatureSet::M1 {
            measure_postgres(options, (warm_ms, run_ms), &mut measured)?;
        }
    }
    let name = set.name();
    let own_us = in_process.p50_us;
    notes.insert(format!("{name}_in_process_p50_us"), json!(rounded(own_us)));
    notes.insert(format!("{name}_answer_bytes"), json!(answer_bytes));
    notes.insert(format!("{name}_flight_answer_bytes"), json!(flight_bytes));
    add_ratios(name, own_us, &measured, ratios);
    Ok(measured)
}

/// Measures every system with every number of connections, one after another.
fn measure_once(
    systems: &[NetworkSystem],
    (warm_ms, run_ms): (u64, u64),
    measured: &mut Vec<NetworkRuns>,
) -> Result<()> {
    let mut half = vec![0.0; systems.len()];
    for connections in CONNECTIONS {
        for (system, half) in systems.iter().zip(&mut half) {
            let load = NetworkLoad { connections, warm_ms, run_ms, pace: Pace::AsAnswered };
            let run = run_load(&system.endpoint, &system.requests, load)?;
            if connections == HALF_LOAD_OF {
                *half = run.ops_per_s / 2.0;
            }
            note(measured, (system.name, "closed", connections), run);
        }
    }
    for connections in &CONNECTIONS[1..] {
        for (system, per_s) in systems.iter().zip(&half) {
            let pace = Pace::PerSecond(*per_s);
            let load = NetworkLoad { connections: *connections, warm_ms, run_ms, pace };
            let run = run_load(&system.endpoint, &system.requests, load)?;
            note(measured, (system.name, "half", *connections), run);
        }
    }
    Ok(())
}

/// Measures PostgreSQL, whose client has a thread for each connection.
fn measure_postgres(
    options: &BenchOptions,
    (warm_ms, run_ms): (u64, u64),
    measured: &mut Vec<NetworkRuns>,
) -> Result<()> {
    let Some(postgres) = wanted(options, PeerName::Postgres, Postgres::start)? else {
        return Ok(());
    };
    let data = Data { shape: M1Shape::default() };
    let requests = data.requests();
    let system = m1::load_peer(&postgres, data, &requests, 0)?;
    for threads in POSTGRES_THREADS {
        let load = ClientLoad { threads, warm_ms, run_ms, requests: requests.len() };
        let run = closed_loop(&system, load)?;
        note(measured, (system.name(), "closed", threads), run);
    }
    Ok(())
}

fn note(
    measured: &mut Vec<NetworkRuns>,
    (system, load, connections): (&'static str, &'static str, usize),
    run: Measured,
) {
    let is_same = |known: &&mut NetworkRuns| {
        (known.system, known.load, known.connections) == (system, load, connections)
    };
    match measured.iter_mut().find(is_same) {
        Some(known) => known.runs.push(run),
        None => measured.push(NetworkRuns { system, load, connections, runs: vec![run] }),
    }
}

/// Compares the server's answers with those in process, bit by bit. Returns the bytes of an answer.
fn check_answers(
    process: &ServerProcess,
    set: FeatureSet,
    expected: &[Vec<AnswerValue>],
) -> Result<usize> {
    let endpoint = process.endpoint(set);
    let requests = process.requests(set)?;
    let mut bytes = 0;
    assert!(expected.len() >= SAMPLES, "there are answers to compare with");
    for (request, expected) in expected.iter().take(SAMPLES).enumerate() {
        let body = endpoint.exchange(&requests[request])?;
        let found = match endpoint.framing {
            Framing::Postgres => postgres::read_answer(&body, expected)?,
            Framing::Http2 => flight::read_answer(&body)?,
            Framing::Http | Framing::Resp => features::read_answer(&body, expected)?,
        };
        if let Some(difference) = difference(expected, &found, Closeness::Exact) {
            let system = "lockstep over the network".to_owned();
            return Err(Error::Disagreement { system, request, difference });
        }
        bytes = bytes.max(body.len());
    }
    say(&format!("{SAMPLES} sampled requests return the same results as the engine in process"));
    Ok(bytes)
}

/// Adds the ratios that there are targets for.
fn add_ratios(set: &str, own_us: f64, measured: &[NetworkRuns], ratios: &mut Map<String, Json>) {
    let find = |system: &str, load: &str, connections: usize| {
        let same = |runs: &&NetworkRuns| {
            (runs.system, runs.load, runs.connections) == (system, load, connections)
        };
        measured.iter().find(same)
    };
    let p50 = |runs: &NetworkRuns| median(&mut runs.us(0.5));
    let p99 = |runs: &NetworkRuns| median(&mut runs.us(0.99));
    let per_s = |runs: &NetworkRuns| median(&mut runs.per_s());
    let mut add = |name: String, value: Option<f64>| {
        if let Some(value) = value {
            ratios.insert(format!("{set}: {name}"), json!(rounded(value)));
        }
    };
    for (system, baseline) in [(LOCKSTEP, BASELINE), (FLIGHT, FLIGHT_BASELINE)] {
        let (served, constant) = (find(system, "closed", 1), find(baseline, "closed", 1));
        let above = served.zip(constant).map(|(served, constant)| p50(served) - p50(constant));
        add(format!("p50 of {system} minus p50 of {baseline}, µs, 1 connection"), above);
        let times = above.map(|above| above / own_us.max(0.001));
        add(format!("p50 of {system} minus p50 of {baseline}, divided by p50 in process"), times);
    }
    for connections in CONNECTIONS {
        for (system, baseline) in [(LOCKSTEP, BASELINE), (FLIGHT, FLIGHT_BASELINE)] {
            let pair =
                find(baseline, "closed", connections).zip(find(system, "closed", connections));
            let times = pair.map(|(constant, served)| per_s(constant) / per_s(served).max(1.0));
            add(format!("requests/s, {baseline}/{system}, {connections} connections"), times);
        }
        let pair = find(LOCKSTEP, "closed", connections).zip(find("redis", "closed", connections));
        let times = pair.map(|(served, redis)| p50(served) / p50(redis).max(0.001));
        add(format!("p50, lockstep/redis, {connections} connections"), times);
        let pair = find(LOCKSTEP, "closed", connections).zip(find("feast", "closed", connections));
        // With many connections it may answer none in the time.
        let pair = pair.filter(|(_, feast)| per_s(feast) > 0.0);
        let times = pair.map(|(served, feast)| per_s(served) / per_s(feast));
        add(format!("requests/s, lockstep/feast, {connections} connections"), times);
    }
    let few = find(LOCKSTEP, "half", HALF_LOAD_OF);
    let many = find(LOCKSTEP, "half", CONNECTIONS[CONNECTIONS.len() - 1]);
    let flat = many.zip(few).map(|(many, few)| p99(many) / p99(few).max(0.001));
    add("p99 at half load, 1,000 connections/8".to_owned(), flat);
}
