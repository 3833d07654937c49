//! A running server: its listeners, its threads, and its end.
//!
//! # Life of a shutdown
//!
//! 1. [`RunningServer::drain`]: `/readyz` says 503. The listeners still accept for `server.drain_delay_ms`.
//! 2. The listeners are closed. Connections end after their current call.
//! 3. When the last one has ended, or after `server.drain_timeout_ms`, what still runs is cancelled,
//!    and the threads end. Those that have not after [`STOP_TIMEOUT`] are named in the log and left.
//! 4. The database is closed when the caller drops it.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use lockstep_engine::Database;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tokio_rustls::server::TlsStream;

use crate::{
    ServerSettings,
    access::{Authentication, ClientPeer},
    flight::FlightServer,
    http::{routes, serve_connection},
    metrics::Refusal,
    phase::{LAST_ANSWERS, Phase},
    postgres::serve_postgres,
    protocol::Protocol,
    server_state::{ServerState, check_files},
    tls::{TlsEndpoint, client_names},
    traces::export,
    work_pool::WorkClass,
};

/// How often draining looks whether connections are left.
const DRAIN_CHECK: Duration = Duration::from_millis(5);

/// How often the pools are searched for calls that do not end.
const POOL_CHECK: Duration = Duration::from_secs(1);

/// How long cancelled calls have to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections that the system holds until they are accepted; it may hold fewer. One that finds no
/// place is tried again by its client after a second.
const PENDING_CONNECTIONS_MAX: u32 = 4_096;

/// How long to wait after the system has refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a server has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Everything that ran was finished.
    Finished,
    /// Calls were cancelled.
    Cancelled,
}

/// A running server.
pub struct RunningServer {
    state: Arc<ServerState>,
    runtime: Runtime,
    http_address: SocketAddr,
    postgres_address: Option<SocketAddr>,
    flight_address: Option<SocketAddr>,
    listening: Vec<JoinHandle<()>>,
    /// Gives up calls that do not end.
    watching: JoinHandle<()>,
    /// Sends traces.
    tracing: Option<JoinHandle<()>>,
}

/// Tells a running server what to do, from any thread. It keeps nothing of the server alive; once that
/// has ended, it does nothing.
#[derive(Clone)]
pub struct ServerHandle {
    state: Weak<ServerState>,
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer")
            .field("http_address", &self.http_address)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl ServerHandle {
    /// Begins to end the server. Returns whether it served until now.
    pub fn drain(&self) -> bool {
        self.state.upgrade().is_some_and(|state| state.phase.advance(Phase::Leaving))
    }

    /// Ends the server without waiting for what runs.
    pub fn stop(&self) {
        if let Some(state) = self.state.upgrade() {
            state.phase.advance(Phase::Stopping);
        }
    }

    /// Puts other settings in force and reads the certificate again. Returns the keys of the settings
    /// that differ and need a restart. Changes nothing where it fails, and says why.
    pub fn reload(&self, settings: ServerSettings) -> Result<Vec<&'static str>, String> {
        self.state.upgrade().map_or_else(|| Ok(Vec::new()), |state| state.reload(settings))
    }
}

impl RunningServer {
    /// Checks what [`Self::start`] needs besides the database, which may take long to open: the settings,
    /// the certificate, the folders, and that the addresses are free.
    pub fn check(settings: &ServerSettings) -> io::Result<()> {
        settings.validate().map_err(io::Error::other)?;
        let http = settings.http_address().map_err(io::Error::other)?;
        let postgres = settings.postgres_address().map_err(io::Error::other)?;
        let flight = settings.flight_address().map_err(io::Error::other)?;
        check_files(settings).map_err(io::Error::other)?;
        let runtime = Builder::new_current_thread().enable_io().build()?;
        for address in [Some(http), postgres, flight].into_iter().flatten() {
            runtime.block_on(async { bind(address) })?;
        }
        Ok(())
    }

    /// Starts to serve a database. Fails where the settings are not valid, where the address is taken,
    /// and where the certificate cannot be read.
    pub fn start(database: Database, settings: ServerSettings) -> io::Result<Self> {
        settings.validate().map_err(io::Error::other)?;
        settings.check_users(&database).map_err(io::Error::other)?;
        let http = settings.http_address().map_err(io::Error::other)?;
        let postgres = settings.postgres_address().map_err(io::Error::other)?;
        let flight = settings.flight_address().map_err(io::Error::other)?;
        let mut builder = Builder::new_multi_thread();
        if settings.worker_threads > 0 {
            builder.worker_threads(usize::try_from(settings.worker_threads).unwrap_or(1));
        }
        let runtime = builder.thread_name("server").enable_io().enable_time().build()?;
        let http = runtime.block_on(async { bind(http) })?;
        let postgres =
            postgres.map(|address| runtime.block_on(async { bind(address) })).transpose()?;
        let flight = flight.map(|address| runtime.block_on(async { bind(address) })).transpose()?;
        let http_address = http.local_addr()?;
        let flight_address = flight.as_ref().map(TcpListener::local_addr).transpose()?;
        let postgres_address = postgres.as_ref().map(TcpListener::local_addr).transpose()?;
        let state = Arc::new(ServerState::new(database, settings)?);
        warn_of_users(&state);
        let routes = routes(Arc::clone(&state));
        let mut listening = vec![runtime.spawn(listen(
            Arc::clone(&state),
            http,
            Protocol::Http,
            move |state, stream, address| serve_http(state, routes.clone(), stream, address),
        ))];
        listening.extend(postgres.map(|listener| {
            let state = Arc::clone(&state);
            runtime.spawn(listen(state, listener, Protocol::PostgreSql, serve_postgres))
        }));
        listening.extend(flight.map(|listener| {
            let flight = FlightServer::new(&state);
            runtime.spawn(listen(
                Arc::clone(&state),
                listener,
                Protocol::Flight,
                move |state, stream, address| {
                    serve_flight(state, Arc::clone(&flight), stream, address)
                },
            ))
        }));
        let watching = runtime.spawn(watch_pools(Arc::clone(&state)));
        let tracing = start_tracing(&state, &runtime);
        start_batch_threads(state.settings().computes_when_idle())?;
        Ok(Self {
            state,
            runtime,
            http_address,
            postgres_address,
            flight_address,
            listening,
            watching,
            tracing,
        })
    }

    /// Returns the address on which HTTP is served.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Returns the address on which PostgreSQL's protocol is served; `None` where it is not.
    pub fn postgres_address(&self) -> Option<SocketAddr> {
        self.postgres_address
    }

    /// Returns the address on which Flight SQL is served; `None` where it is switched off.
    pub fn flight_address(&self) -> Option<SocketAddr> {
        self.flight_address
    }

    /// Returns what tells the server what to do.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { state: Arc::downgrade(&self.state) }
    }

    /// Returns the token with which `root` logs in from this machine; `None` where the database has a
    /// user who can log in, and where nobody needs to.
    pub fn start_token(&self) -> Option<&str> {
        self.state.access.start_token()
    }

    /// Serves until the server was told to end, and ends it.
    pub fn wait(self) -> DrainOutcome {
        let Self { state, runtime, listening, watching, tracing, .. } = self;
        runtime.block_on(drain(&state));
        if let Some(tracing) = tracing {
            // What is left is sent, if the collector takes it in time.
            let sent = async { tokio::time::timeout(STOP_TIMEOUT, tracing).await };
            let _in_time = runtime.block_on(sent);
        }
        // Before the pools: connections wait for what these run.
        listening.iter().for_each(JoinHandle::abort);
        watching.abort();
        runtime.shutdown_timeout(STOP_TIMEOUT);
        for (class, threads) in state.pools.close(STOP_TIMEOUT) {
            state.note_cancelled();
            warn_of_left(&state, class, threads);
        }
        if state.has_cancelled() { DrainOutcome::Cancelled } else { DrainOutcome::Finished }
    }
}

/// Looks now and then for calls that do not end although they were interrupted.
async fn watch_pools(state: Arc<ServerState>) {
    loop {
        tokio::time::sleep(POOL_CHECK).await;
        for (class, ran) in state.pools.give_up_stuck() {
            let (class, seconds) = (class.name(), ran.as_secs());
            let text = format!(
                "a cancelled call of class {class} is still running after {seconds} s: another \
                 thread replaces its thread"
            );
            lockstep_host::log::warn(&text);
        }
    }
}

/// Logs that threads of a pool have not ended with the server, and what sessions still run.
fn warn_of_left(state: &ServerState, class: WorkClass, threads: usize) {
    let sessions = state.access.database().sessions();
    let running: Vec<String> = sessions.into_iter().filter_map(|session| session.running).collect();
    let (class, running) = (class.name(), running.join("; "));
    let text =
        format!("{threads} threads of class {class} are still running at shutdown: {running}");
    lockstep_host::log::warn(&text);
}

/// Lets batch mode start its threads, which have the priority of the thread of the first query, whoever
/// sends that: the lowest one, or a low one.
fn start_batch_threads(are_idle: bool) -> io::Result<()> {
    // A database of its own: it holds no directory open.
    let first = || drop(Database::in_memory().session().execute("SELECT 1 AS a"));
    let started = match are_idle {
        true => lockstep_host::spawn_idle("analytics", first),
        false => lockstep_host::spawn_background("analytics", first),
    };
    started.map(|_| ())
}

/// Starts to send traces, where the settings say so.
fn start_tracing(state: &Arc<ServerState>, runtime: &Runtime) -> Option<JoinHandle<()>> {
    state.tracer.as_ref()?;
    let state = Arc::clone(state);
    Some(runtime.spawn(async move {
        if let Some(tracer) = &state.tracer {
            export(tracer, Arc::clone(&state.clock), state.phase.reached(Phase::Stopping)).await;
        }
    }))
}

/// Listens on an address, which an error names. Called within the runtime.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = bind_socket(address);
    bound.map_err(|error| {
        io::Error::new(error.kind(), format!("could not bind to address {address}: {error}"))
    })
}

fn bind_socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of a server before may still be ending.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(PENDING_CONNECTIONS_MAX)
}

/// Logs what a person should know who set the server up.
fn warn_of_users(state: &ServerState) {
    if state.settings().authentication() == Authentication::None {
        let text = "server.authentication is none: every client is root; use it for tests only";
        lockstep_host::log::warn(text);
    }
    let users = state.access.database().users_who_cannot_log_in();
    if !users.is_empty() {
        let text = format!(
            "users with neither a password nor a token cannot log in: {}",
            users.join(", ")
        );
        lockstep_host::log::warn(&text);
    }
}

/// Waits for the end of the server, and goes through its phases.
async fn drain(state: &Arc<ServerState>) {
    state.phase.reached(Phase::Leaving).await;
    let settings = state.settings();
    let stopped = |duration| async move {
        let wait = tokio::time::timeout(duration, state.phase.reached(Phase::Stopping));
        wait.await.is_ok()
    };
    stopped(Duration::from_millis(settings.drain_delay_ms)).await;
    state.phase.advance(Phase::Draining);
    let finished = || async {
        while state.connections.open() > 0 {
            tokio::time::sleep(DRAIN_CHECK).await;
        }
    };
    let timeout_ms = settings.drain_timeout_ms;
    tokio::select! {
        () = finished() => (),
        _stopped = stopped(Duration::from_millis(timeout_ms)) => (),
    }
    state.phase.advance(Phase::Stopping);
    let _answered = tokio::time::timeout(LAST_ANSWERS, finished()).await;
}

/// Accepts connections until the server drains, and serves each in a task of its own.
async fn listen<F>(
    state: Arc<ServerState>,
    listener: TcpListener,
    protocol: Protocol,
    serve: impl Fn(Arc<ServerState>, TcpStream, IpAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = state.phase.reached(Phase::Draining) => return,
        };
        let Ok((stream, peer)) = accepted else {
            // No file descriptor is free, or the client was gone already.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(permit) = state.connections.admit(state.settings().connections_max) else {
            state.metrics.add_refused(Refusal::Connections);
            continue;
        };
        state.metrics.add_connection(protocol);
        // An answer is one write: waiting for more would only delay it.
        let _refused = stream.set_nodelay(true);
        let served = serve(Arc::clone(&state), stream, peer.ip());
        tokio::spawn(async move {
            served.await;
            drop(permit);
        });
    }
}

/// Serves a connection over HTTP, encrypted where the settings say so.
async fn serve_http(
    state: Arc<ServerState>,
    routes: axum::Router,
    stream: TcpStream,
    address: IpAddr,
) {
    let Some(tls) = state.tls(Protocol::Http) else {
        return serve_connection(state, routes, stream, ClientPeer::of(address)).await;
    };
    if let Some((stream, peer)) = handshake(&state, &tls, stream, address).await {
        serve_connection(state, routes, stream, peer).await;
    }
}

/// Serves a connection of Flight, encrypted where the settings say so.
async fn serve_flight(
    state: Arc<ServerState>,
    flight: Arc<FlightServer>,
    stream: TcpStream,
    address: IpAddr,
) {
    let Some(tls) = state.tls(Protocol::Flight) else {
        return flight.serve(stream, ClientPeer::of(address)).await;
    };
    if let Some((stream, peer)) = handshake(&state, &tls, stream, address).await {
        flight.serve(stream, peer).await;
    }
}

/// Begins TLS with a client, which may show a certificate; `None` where it is refused.
async fn handshake(
    state: &ServerState,
    tls: &TlsEndpoint,
    stream: TcpStream,
    address: IpAddr,
) -> Option<(TlsStream<TcpStream>, ClientPeer)> {
    let limit = Duration::from_millis(state.settings().header_timeout_ms);
    match tokio::time::timeout(limit, tls.acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let names = client_names(stream.get_ref().1);
            Some((stream, ClientPeer { address, names }))
        }
        Ok(Err(_)) => {
            state.metrics.add_refused(Refusal::Tls);
            None
        }
        Err(_) => {
            state.metrics.add_refused(Refusal::Timeout);
            None
        }
    }
}
