//! The servers of M14, each in a process of its own: this program with `--network-step`.
//!
//! A step is a JSON object. The process prints the address on which it listens, and ends when its
//! standard input does.

use std::{
    convert::Infallible,
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
};

use axum::{Router, body::Bytes, routing::post};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock};
use lockstep_server::{RunningServer, ServerSettings};
use serde_json::{Value as Json, json};
use tokio::{net::TcpListener, runtime::Builder};

use super::{
    connection::{Endpoint, Framing, ListenAddress},
    features::FeatureSet,
    flight::{ACTION_PATH, FlightUser},
    http2, postgres,
};
use crate::{
    error::{Error, Result, Trying},
    m6::M6_TABLE,
    suite::say,
};

/// The user who may request the deployment, and the header that says so: `bench:secret`.
const USER: &str = "CREATE USER bench OPTIONS(password='secret')";
const AUTHORIZATION: &str = "Basic YmVuY2g6c2VjcmV0";

/// Connections that a server takes, more than M14 opens.
const CONNECTIONS_MAX: &str = "2000";

/// What a process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedSystem {
    /// Lockstep with a set of features.
    Lockstep(FeatureSet),
    /// The same, by PostgreSQL's protocol, to everybody.
    LockstepPostgres(FeatureSet),
    /// The same, over Flight.
    LockstepFlight(FeatureSet),
    /// Lockstep with an empty table of M6.
    Appends(AppendProtocol),
    /// A constant of so many bytes, whatever the call is.
    Constant {
        /// The size of the answer.
        bytes: usize,
    },
    /// The same over HTTP/2, to the calls of Flight.
    ConstantFlight {
        /// The size of the answer.
        bytes: usize,
    },
}

/// How rows are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendProtocol {
    /// COPY of PostgreSQL's protocol, without a password.
    Copy,
    /// Flight, as the user `bench`.
    Flight,
}

impl AppendProtocol {
    fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Flight => "flight",
        }
    }
}

impl ServedSystem {
    fn to_json(self) -> Json {
        match self {
            Self::Lockstep(set) => json!({ "lockstep": set.name() }),
            Self::LockstepPostgres(set) => json!({ "postgres": set.name() }),
            Self::Appends(protocol) => json!({ "append": protocol.name() }),
            Self::Constant { bytes } => json!({ "constant": bytes }),
            Self::LockstepFlight(set) => json!({ "flight": set.name() }),
            Self::ConstantFlight { bytes } => json!({ "constant_flight": bytes }),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        if let Some(name) = json["lockstep"].as_str() {
            return FeatureSet::of_name(name).map(Self::Lockstep);
        }
        if let Some(name) = json["postgres"].as_str() {
            return FeatureSet::of_name(name).map(Self::LockstepPostgres);
        }
        if let Some(name) = json["append"].as_str() {
            let mut protocols = [AppendProtocol::Copy, AppendProtocol::Flight].into_iter();
            return protocols.find(|protocol| protocol.name() == name).map(Self::Appends);
        }
        if let Some(name) = json["flight"].as_str() {
            return FeatureSet::of_name(name).map(Self::LockstepFlight);
        }
        let bytes = |key: &str| json[key].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        let constant = bytes("constant").map(|bytes| Self::Constant { bytes });
        constant.or_else(|| bytes("constant_flight").map(|bytes| Self::ConstantFlight { bytes }))
    }
}

/// A server in a process of its own.
#[derive(Debug)]
pub(super) struct ServerProcess {
    system: ServedSystem,
    child: Child,
    /// Closed to end the process.
    input: Option<ChildStdin>,
    address: SocketAddr,
    /// How long it took until it was ready, filling included.
    pub(super) ready_ms: f64,
}

impl ServerProcess {
    /// Starts a server and waits until it is ready.
    pub(super) fn start(system: ServedSystem) -> Result<Self> {
        let trying = || "start a server".to_owned();
        let clock = SystemClock::new();
        let program = std::env::current_exe().trying(trying)?;
        let mut command = Command::new(program);
        command.arg("--network-step").arg(system.to_json().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().trying(trying)?;
        let output = child.stdout.take().expect("its output is a pipe");
        let input = child.stdin.take();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).trying(trying)?;
        let address = line.trim().parse();
        let address = address.map_err(|_error| {
            Error::peer("server", format!("the process did not start; output: {line:?}"))
        })?;
        let ready_ms = clock.monotonic_ns() as f64 / 1e6;
        Ok(Self { system, child, input, address, ready_ms })
    }

    /// Returns where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where it listens, and how it answers.
    pub(super) fn endpoint(&self, set: FeatureSet) -> Endpoint {
        let address = ListenAddress::Tcp(self.address);
        match self.system {
            ServedSystem::LockstepPostgres(_) => {
                let setup = postgres::setup(set);
                Endpoint { address, framing: Framing::Postgres, setup }
            }
            ServedSystem::LockstepFlight(_) | ServedSystem::ConstantFlight { .. } => {
                Endpoint { address, framing: Framing::Http2, setup: vec![http2::opening()] }
            }
            ServedSystem::Lockstep(_)
            | ServedSystem::Appends(_)
            | ServedSystem::Constant { .. } => {
                Endpoint { address, framing: Framing::Http, setup: Vec::new() }
            }
        }
    }

    /// Returns the requests of a set as they are sent.
    pub(super) fn requests(&self, set: FeatureSet) -> Result<Vec<Vec<u8>>> {
        let user = FlightUser {
            authority: self.address.to_string(),
            authorization: AUTHORIZATION.to_owned(),
        };
        match self.system {
            ServedSystem::LockstepPostgres(_) => Ok(postgres::requests(set)),
            ServedSystem::LockstepFlight(_) => user.in_session(&self.endpoint(set))?.requests(set),
            ServedSystem::ConstantFlight { .. } => user.requests(set),
            ServedSystem::Lockstep(_)
            | ServedSystem::Appends(_)
            | ServedSystem::Constant { .. } => {
                let path = format!("/v1/deployments/{}", set.name());
                Ok(set.bodies().iter().map(|body| self.http_request(&path, body)).collect())
            }
        }
    }

    /// Returns the call of a statement over HTTP.
    pub(super) fn statement(&self, sql: &str) -> Vec<u8> {
        self.http_request("/v1/sql", &json!({ "sql": sql }).to_string())
    }

    fn http_request(&self, path: &str, body: &str) -> Vec<u8> {
        let (address, length) = (self.address, body.len());
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: {AUTHORIZATION}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        text.into_bytes()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error means that the process has ended.
        let _ended = self.child.wait();
    }
}

/// Runs a step: serves until the standard input ends.
pub(crate) fn run_step(step: &str) -> Result<()> {
    let system = ServedSystem::of_text(step);
    match system.ok_or_else(|| Error::peer("server", format!("unrecognized step: {step}")))? {
        ServedSystem::Lockstep(set) => serve_features(set, Listener::Http),
        ServedSystem::LockstepPostgres(set) => serve_features(set, Listener::Postgres),
        ServedSystem::Appends(protocol) => serve_table(protocol),
        ServedSystem::LockstepFlight(set) => serve_features(set, Listener::Flight),
        ServedSystem::Constant { bytes } | ServedSystem::ConstantFlight { bytes } => {
            serve_constant(bytes)
        }
    }
}

fn wait_for_end() {
    // Whatever ends the input ends the process.
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
}

fn serve_features(set: FeatureSet, listener: Listener) -> Result<()> {
    let database = Database::in_memory();
    set.fill(database.session())?;
    let session = database.session();
    session.execute(USER)?;
    session.execute(&format!("GRANT EXECUTE ON DEPLOYMENT {} TO bench", set.name()))?;
    for table in set.tables() {
        session.execute(&format!("GRANT SELECT ON {table} TO bench"))?;
    }
    serve(database, listener)
}

fn serve_table(protocol: AppendProtocol) -> Result<()> {
    let database = Database::in_memory();
    let session = database.session();
    session.execute(M6_TABLE)?;
    session.execute(USER)?;
    session.execute("GRANT SELECT, INSERT ON puts TO bench")?;
    let listener = match protocol {
        AppendProtocol::Copy => Listener::Postgres,
        AppendProtocol::Flight => Listener::Flight,
    };
    serve(database, listener)
}

/// The listener whose address a process prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listener {
    Http,
    /// To everybody.
    Postgres,
    Flight,
}

fn serve(database: Database, listener: Listener) -> Result<()> {
    let mut settings = ServerSettings::default();
    let authentication = if listener == Listener::Postgres { "none" } else { "users" };
    let flight = if listener == Listener::Flight { "127.0.0.1:0" } else { "off" };
    for (key, value) in [
        ("http.listen", "127.0.0.1:0"),
        ("postgres.listen", "127.0.0.1:0"),
        ("flight.listen", flight),
        ("server.authentication", authentication),
        ("limits.connections_max", CONNECTIONS_MAX),
    ] {
        let set = settings.set(key, value);
        set.map_err(|error| Error::peer("server", error.to_string()))?;
    }
    let server = RunningServer::start(database, settings);
    let server = server.trying(|| "start the server".to_owned())?;
    let address = match listener {
        Listener::Http => Some(server.http_address()),
        Listener::Postgres => server.postgres_address(),
        Listener::Flight => server.flight_address(),
    };
    say(&address.expect("the server listens there").to_string());
    wait_for_end();
    server.handle().stop();
    server.handle().drain();
    server.wait();
    Ok(())
}

/// Serves a constant with the libraries of Lockstep's server.
fn serve_constant(bytes: usize) -> Result<()> {
    let trying = || "start the server".to_owned();
    let runtime = Builder::new_multi_thread().enable_io().enable_time().build().trying(trying)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).trying(trying)?;
    say(&listener.local_addr().trying(trying)?.to_string());
    let answer = Bytes::from(vec![b'7'; bytes]);
    let handler = move |_body: Bytes| {
        let answer = answer.clone();
        async move { Ok::<_, Infallible>(answer) }
    };
    let routes = Router::new()
        .route("/v1/deployments/{name}", post(handler.clone()))
        .route(ACTION_PATH, post(handler));
    runtime.spawn(async move {
        loop {
            let Ok((stream, _peer)) = listener.accept().await else { continue };
            let _refused = stream.set_nodelay(true);
            let service = TowerToHyperService::new(routes.clone());
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                // An error is a client's that has gone.
                let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    wait_for_end();
    Ok(())
}
