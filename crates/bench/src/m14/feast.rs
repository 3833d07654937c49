//! Feast's feature server on its SQLite online store, with ready-made features of as many columns.
//!
//! Installed from its Python package into an environment of its own; `feast serve` with one worker, as many
//! as Lockstep's server has processes, and without an access log.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock, disk};
use serde_json::json;

use super::{
    NetworkSystem,
    connection::{Endpoint, Framing, ListenAddress},
    features::FeatureSet,
};
use crate::{
    error::{Error, Result, Trying},
    peer::{finish, folder::TemporaryFolder, install::feast_program},
};

/// The name in results.
const FEAST: &str = "feast";
/// Entities that have features.
const ENTITIES: usize = 100;
/// How long the server may take until it answers, in milliseconds.
const START_MS_MAX: u64 = 60_000;
/// Makes the repository.
const STORE_PROGRAM: &str = include_str!("feast_store.py");

/// A running server. Dropping it stops the process and removes its folder.
#[derive(Debug)]
pub(super) struct Feast {
    process: Child,
    address: SocketAddr,
    // Dropped last: the folder is removed after the process has ended.
    _folder: TemporaryFolder,
}

impl Feast {
    /// Makes a repository whose features are as many as those of the set, and serves it.
    pub(super) fn start(set: FeatureSet) -> Result<Self> {
        let (python, feast) = (feast_program("python"), feast_program("feast"));
        if !feast.exists() {
            let message = format!("program {} not found", feast.display());
            return Err(Error::Missing { system: FEAST, message });
        }
        let folder = TemporaryFolder::new(FEAST)?;
        let (program, repository) = (folder.path().join("store.py"), folder.path().join("store"));
        let written =
            disk::create(&program).and_then(|mut file| file.write_all(STORE_PROGRAM.as_bytes()));
        written.trying(|| format!("write {}", program.display()))?;
        let mut store = Command::new(python);
        store.arg(&program).arg(&repository);
        store.args([ENTITIES, set.feature_count()].map(|count| count.to_string()));
        finish(FEAST, &mut store)?;
        let address = free_address()?;
        let process = serve(feast, &repository, address)?;
        let mut server = Self { process, address, _folder: folder };
        server.wait(set)?;
        Ok(server)
    }

    /// Waits until it answers a request with every feature.
    fn wait(&mut self, set: FeatureSet) -> Result<()> {
        let clock = SystemClock::new();
        while TcpStream::connect(self.address).is_err() {
            let has_ended = !matches!(self.process.try_wait(), Ok(None));
            if has_ended || clock.monotonic_ns() > START_MS_MAX * 1_000_000 {
                return Err(Error::peer(FEAST, "the process did not start"));
            }
            // It sends no signal when it is ready, so its address is polled.
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let system = self.system(set);
        let answer = system.endpoint.exchange(&system.requests[7])?;
        let answer = String::from_utf8_lossy(&answer);
        // Entity 7 has 7, 7.25, 7.5 …
        let last = 7.0 + (set.feature_count() - 1) as f64 / 4.0;
        if answer.contains(&format!("[{last:?}]")) && !answer.contains("NOT_FOUND") {
            return Ok(());
        }
        Err(Error::peer(FEAST, format!("the response differs from the stored values: {answer}")))
    }

    /// Returns the server with requests of all features of one entity each.
    pub(super) fn system(&self, set: FeatureSet) -> NetworkSystem {
        let names = (0..set.feature_count()).map(|number| format!("features:f{number}"));
        let names: Vec<String> = names.collect();
        let request = |entity: usize| {
            let body = json!({ "features": names, "entities": { "k": [entity] } }).to_string();
            let (address, length) = (self.address, body.len());
            let text = format!(
                "POST /get-online-features HTTP/1.1\r\nHost: {address}\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            text.into_bytes()
        };
        let address = ListenAddress::Tcp(self.address);
        let endpoint = Endpoint { address, framing: Framing::Http, setup: Vec::new() };
        NetworkSystem { name: FEAST, endpoint, requests: (0..ENTITIES).map(request).collect() }
    }
}

impl Drop for Feast {
    fn drop(&mut self) {
        let id = libc::pid_t::try_from(self.process.id()).expect("a process id is a pid_t");
        // SAFETY: the process is our child and was not waited for, so its id is not reused.
        unsafe { libc::kill(id, libc::SIGTERM) };
        // Its workers end with it. An error means that the process has ended.
        let _ended = self.process.wait();
    }
}

fn serve(feast: PathBuf, repository: &PathBuf, address: SocketAddr) -> Result<Child> {
    let mut command = Command::new(feast);
    command.current_dir(repository).arg("serve").arg("--host").arg(address.ip().to_string());
    command.arg("--port").arg(address.port().to_string()).arg("--no-access-log");
    // A worker is not replaced, and its connections stay open, while it is measured.
    command.args(["--max-requests", "0", "--keep-alive-timeout", "600"]);
    command.args(["--worker-connections", "2000", "--registry_ttl_sec", "3600"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().trying(|| "start feast".to_owned())
}

/// Returns an address on loopback that nobody listens on.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address.trying(|| "find a free port".to_owned())
}
