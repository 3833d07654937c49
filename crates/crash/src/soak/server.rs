//! The server of the soak: a child process, and the gate that says where it is.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use lockstep_engine::{Database, OpenOptions};
use lockstep_host::{
    failpoint,
    sync::{Condvar, Mutex},
};
use lockstep_server::{RunningServer, ServerSettings};

use super::{ANSWER_DIGIT, SoakOptions};

/// The statements that make the tables. Each key keeps its latest rows, so that memory is bounded.
pub const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS events (k STRING, id BIGINT, x BIGINT, d DOUBLE, batch BIGINT,
        ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=64, TTL_TYPE=latest));
    DEPLOY IF NOT EXISTS features AS
        SELECT k, id, count(id) OVER w AS n, sum(x) OVER w AS total, avg(d) OVER w AS mean,
            min(x) OVER v AS least, sum(d) OVER v AS mass
        FROM events
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 20 PRECEDING AND CURRENT ROW),
            v AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 100s PRECEDING AND CURRENT ROW);";

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerPorts {
    /// HTTP.
    pub http: SocketAddr,
    /// PostgreSQL's protocol.
    pub postgres: SocketAddr,
    /// Flight SQL.
    pub flight: SocketAddr,
}

/// A server in a child process. It is killed when this is dropped.
#[derive(Debug)]
pub struct SoakServer {
    child: Child,
    ports: ServerPorts,
    /// The child ends when this does.
    _input: Option<ChildStdin>,
}

impl SoakServer {
    /// Starts a server of a directory and waits until it listens.
    pub fn start(options: &SoakOptions, directory: &Path) -> Result<Self, String> {
        let mut command = Command::new(&options.program);
        command.arg("serve").arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        let of_server = |bug: &&String| bug.as_str() != ANSWER_DIGIT;
        if let Some(bug) = options.bug.as_ref().filter(of_server) {
            command.args(["--bug", bug]);
        }
        let log = directory.with_extension("errors");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log);
        command.stderr(log.map_err(|error| error.to_string())?);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("it is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let addresses: Vec<SocketAddr> =
            line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        let [http, postgres, flight] = addresses[..] else {
            return Err(format!("the server does not start: {line}"));
        };
        let ports = ServerPorts { http, postgres, flight };
        Ok(Self { child, ports, _input: input })
    }

    /// Returns where it listens.
    pub fn ports(&self) -> ServerPorts {
        self.ports
    }

    /// Returns the memory of the process in KiB: all, and that of no file.
    pub fn memory_kib(&self) -> Option<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some((field("VmRSS:")?, field("RssAnon:")?))
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(mut self) {
        // Fails where it has ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Drop for SoakServer {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Serves a directory until the standard input ends: the body of the child process.
pub fn serve(directory: &Path, bug: Option<&str>) -> Result<(), String> {
    if let Some(bug) = bug {
        failpoint::seed(bug);
    }
    let opened = Database::open_with(directory, &OpenOptions::default());
    let database = opened.map_err(|error| error.message.clone())?;
    database.session().execute(TABLES).map_err(|error| error.message.clone())?;
    let mut settings = ServerSettings::default();
    for (key, value) in [
        ("http.listen", "127.0.0.1:0"),
        ("postgres.listen", "127.0.0.1:0"),
        ("flight.listen", "127.0.0.1:0"),
        ("server.authentication", "none"),
    ] {
        settings.set(key, value).map_err(|error| error.to_string())?;
    }
    let server = RunningServer::start(database, settings).map_err(|error| error.to_string())?;
    let (http, postgres) = (server.http_address(), server.postgres_address());
    let (postgres, flight) = (postgres.ok_or("it listens")?, server.flight_address());
    let line = format!("{http} {postgres} {}\n", flight.ok_or("it listens")?);
    let mut output = std::io::stdout().lock();
    let written = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    written.map_err(|error| error.to_string())?;
    let mut rest = String::new();
    while std::io::stdin().lock().read_line(&mut rest).is_ok_and(|count| count > 0) {}
    Ok(())
}

/// Says to clients where the server is, and when it is another one.
#[derive(Debug, Default)]
pub struct ServerGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Counts servers.
    generation: u64,
    /// Where the server is, while it runs.
    ports: Option<ServerPorts>,
    is_last: bool,
    is_over: bool,
    done: usize,
}

/// A server as a client sees it.
#[derive(Debug, Clone, Copy)]
pub struct SeenServer {
    /// Which one.
    pub generation: u64,
    /// Where.
    pub ports: ServerPorts,
    /// Whether it is the last one: what is known is compared, and nothing else done.
    pub is_last: bool,
}

impl ServerGate {
    /// Opens the gate to a server.
    pub fn open(&self, ports: ServerPorts, is_last: bool) {
        let mut state = self.state.lock();
        assert_eq!(state.ports, None, "the server before was killed");
        state.generation += 1;
        state.ports = Some(ports);
        state.is_last = is_last;
        self.changed.notify_all();
    }

    /// Closes the gate, before a server is killed.
    pub fn close(&self) {
        self.state.lock().ports = None;
    }

    /// Ends the run.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Waits for a server; `None` at the end of the run.
    pub fn server(&self) -> Option<SeenServer> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(ports) = state.ports {
                let GateState { generation, is_last, .. } = *state;
                return Some(SeenServer { generation, ports, is_last });
            }
            state = self.changed.wait(state);
        }
    }

    /// Returns whether a server is still to be called.
    pub fn is_open(&self, generation: u64) -> bool {
        let state = self.state.lock();
        !state.is_over && state.generation == generation && state.ports.is_some()
    }

    /// Notes that a client has compared all that it knows with the last server.
    pub fn done(&self) {
        let mut state = self.state.lock();
        assert!(state.is_last, "only the last server is compared with to the end");
        state.done += 1;
    }

    /// Returns whether so many clients have.
    pub fn has_all_done(&self, clients: usize) -> bool {
        self.state.lock().done >= clients
    }
}
