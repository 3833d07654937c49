//! What all connections of a server share. Knows no protocol.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock, disk, sync::RwLock};

use crate::{
    ServerSettings,
    access::ClientAccess,
    connections::{Activity, ConnectionCount},
    metrics::{Metrics, Refusal},
    phase::PhaseState,
    postgres::CancelKeys,
    protocol::Protocol,
    tls::{CertificateFiles, TlsEndpoint},
    traces::{TraceCounts, Tracer},
    work_pool::{PoolSize, WorkPools},
};

/// The state of a server.
pub(crate) struct ServerState {
    pub(crate) access: ClientAccess,
    pub(crate) phase: PhaseState,
    pub(crate) connections: ConnectionCount,
    pub(crate) pools: WorkPools,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cancel_keys: CancelKeys,
    /// None: calls are not traced.
    pub(crate) tracer: Option<Tracer>,
    settings: RwLock<Arc<ServerSettings>>,
    /// For each protocol what accepts TLS; empty: connections are not encrypted.
    tls: RwLock<Vec<TlsEndpoint>>,
    /// Whether a call was given up because the server ended.
    has_cancelled: AtomicBool,
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("phase", &self.phase).finish_non_exhaustive()
    }
}

/// How often a connection is checked for a client that does nothing.
const CHECK_MS_MAX: u64 = 5_000;

/// The threads that verify passwords: each keeps a processor busy.
const LOGIN_THREADS: u64 = 1;

/// The attempts to log in that wait for the thread; each takes about a millisecond.
const LOGIN_QUEUE: u64 = 256;

impl ServerState {
    /// Makes the state: reads the certificate and starts the pools.
    pub(crate) fn new(database: Database, settings: ServerSettings) -> io::Result<Self> {
        let size = |threads, queue| PoolSize { threads, queue, leaves_tasks: false };
        let analytics = size(settings.analytics_threads, settings.analytics_queue);
        let pools = WorkPools::start([
            size(settings.request_threads, settings.request_queue),
            size(settings.write_threads, settings.write_queue),
            PoolSize { leaves_tasks: settings.computes_when_idle(), ..analytics },
            size(LOGIN_THREADS, LOGIN_QUEUE),
        ])?;
        configure(&database, &settings).map_err(io::Error::other)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let tracer = settings.trace_endpoint().map(|endpoint| {
            let sample = settings.traces_sample_per_million;
            Tracer::new(Arc::clone(&clock), endpoint, sample, settings.traces_queue_calls)
        });
        Ok(Self {
            tracer,
            access: ClientAccess::new(database, settings.authentication()),
            phase: PhaseState::new(),
            connections: ConnectionCount::default(),
            pools,
            metrics: Metrics::default(),
            clock,
            cancel_keys: CancelKeys::default(),
            tls: RwLock::new(read_tls(&settings).map_err(io::Error::other)?),
            settings: RwLock::new(Arc::new(settings)),
            has_cancelled: AtomicBool::new(false),
        })
    }

    /// Returns the settings that are in force.
    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        Arc::clone(&self.settings.read())
    }

    /// Returns what became of traced calls; nothing where calls are not traced.
    pub(crate) fn trace_counts(&self) -> Arc<TraceCounts> {
        self.tracer.as_ref().map_or_else(Arc::default, |tracer| Arc::clone(&tracer.counts))
    }

    /// Returns what accepts TLS for a protocol; `None` where connections are not encrypted.
    pub(crate) fn tls(&self, protocol: Protocol) -> Option<TlsEndpoint> {
        self.tls.read().get(protocol as usize).cloned()
    }

    /// Puts other settings in force, and reads the certificate again. Returns the keys of the settings
    /// that differ and need a restart. Changes nothing where it fails.
    pub(crate) fn reload(&self, settings: ServerSettings) -> Result<Vec<&'static str>, String> {
        settings.validate().map_err(|error| error.to_string())?;
        if settings.has_tls() != self.settings().has_tls() {
            return Err("TLS cannot be switched on or off without restarting the server".to_owned());
        }
        let acceptor = read_tls(&settings)?;
        configure(self.access.database(), &settings)?;
        let fixed = self.settings().fixed_differences(&settings);
        *self.tls.write() = acceptor;
        *self.settings.write() = Arc::new(settings);
        Ok(fixed)
    }

    /// Returns how long to wait before a connection is checked again.
    pub(crate) fn check_interval(&self) -> Duration {
        let settings = self.settings();
        let shortest = settings.write_timeout_ms.min(settings.idle_timeout_ms);
        let shortest = shortest.min(settings.header_timeout_ms);
        Duration::from_millis((shortest / 2).clamp(1, CHECK_MS_MAX))
    }

    /// Returns whether the client of a connection is too slow, which is counted, or idle for too long.
    pub(crate) fn is_over(&self, activity: &Activity) -> bool {
        let settings = self.settings();
        let is_slow = activity.write_waits_ms() >= settings.write_timeout_ms
            || activity.answer_waits_ms() >= settings.write_timeout_ms
            || activity.request_waits_ms() >= settings.header_timeout_ms;
        if is_slow {
            self.metrics.add_refused(Refusal::Timeout);
        }
        is_slow || activity.idle_ms() >= settings.idle_timeout_ms
    }

    /// Notes that a call was given up because the server ended.
    pub(crate) fn note_cancelled(&self) {
        // Relaxed: it is read when the threads that set it have ended.
        self.has_cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether a call was given up because the server ended.
    pub(crate) fn has_cancelled(&self) -> bool {
        // Relaxed: as above.
        self.has_cancelled.load(Ordering::Relaxed)
    }
}

/// Gives the engine the settings that are its.
fn configure(database: &Database, settings: &ServerSettings) -> Result<(), String> {
    let folders: Vec<PathBuf> = settings.file_folders.iter().map(PathBuf::from).collect();
    database
        .set_file_folders(&folders)
        .map_err(|error| format!("server.file_folders: {}", error.message))?;
    let folders: Vec<PathBuf> = settings.temp_folders.iter().map(PathBuf::from).collect();
    database
        .set_temp_folders(&folders)
        .map_err(|error| format!("server.temp_folders: {}", error.message))?;
    let limit = settings.queries_memory_bytes_max;
    database.set_query_memory(Some(limit).filter(|bytes| *bytes > 0));
    Ok(())
}

/// Fails if a file or folder of the settings is not as [`ServerState::new`] needs it. Needs no database.
pub(crate) fn check_files(settings: &ServerSettings) -> Result<(), String> {
    for (key, folders) in [
        ("server.file_folders", &settings.file_folders),
        ("server.temp_folders", &settings.temp_folders),
    ] {
        for folder in folders {
            let found = disk::resolve(folder.as_ref());
            found.map_err(|error| {
                format!("{key}: could not access directory `{folder}`: {error}")
            })?;
        }
    }
    read_tls(settings).map(|_| ())
}

/// Reads the certificate, for each protocol.
fn read_tls(settings: &ServerSettings) -> Result<Vec<TlsEndpoint>, String> {
    if !settings.has_tls() {
        return Ok(Vec::new());
    }
    let files = CertificateFiles {
        certificate: &settings.tls_certificate,
        key: &settings.tls_key,
        client_ca: &settings.tls_client_ca,
        needs_client: settings.needs_client_certificates(),
    };
    Protocol::ALL.iter().map(|protocol| files.endpoint(protocol.tls_names())).collect()
}
