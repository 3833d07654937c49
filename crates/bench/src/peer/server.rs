//! A peer's server process: started with a data folder of its own, stopped when the value is
//! dropped.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock, disk};

use super::folder::{TemporaryFolder, find_program};
use crate::error::{Error, Result, Trying};

/// How long a server may take until it answers, in milliseconds.
const START_MS_MAX: u64 = 60_000;

/// A running server. Dropping it stops the process and removes its data.
#[derive(Debug)]
pub(crate) struct Server {
    system: &'static str,
    process: Child,
    socket: PathBuf,
    // Dropped last: the folder is removed after the process has ended.
    _scratch: TemporaryFolder,
}

impl Server {
    /// Starts a prepared command that will listen on this socket, and waits until it does.
    pub(crate) fn start(
        system: &'static str,
        command: &mut Command,
        socket: PathBuf,
        scratch: TemporaryFolder,
    ) -> Result<Self> {
        let log = scratch.path().join("server.log");
        let file = disk::create(&log).trying(|| format!("write {}", log.display()))?;
        let errors = file.try_clone().trying(|| format!("write {}", log.display()))?;
        let process = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        let process = process.trying(|| format!("start {system}"))?;
        let mut server = Self { system, process, socket, _scratch: scratch };
        server.wait_until_it_listens(&log)?;
        Ok(server)
    }

    fn wait_until_it_listens(&mut self, log: &Path) -> Result<()> {
        let clock = SystemClock::new();
        while UnixStream::connect(&self.socket).is_err() {
            let has_ended = !matches!(self.process.try_wait(), Ok(None));
            if has_ended || clock.monotonic_ns() > START_MS_MAX * 1_000_000 {
                let said = disk::read_to_string(log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                let message = format!("it does not start: {}", last.join(" / "));
                return Err(Error::peer(self.system, message));
            }
            // A server sends no signal when it is ready, so its socket is polled.
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Opens a connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket).trying(|| format!("connect to {}", self.system))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = libc::pid_t::try_from(self.process.id()).expect("a process id is a pid_t");
        // SAFETY: the process is our child and was not waited for, so its id is not reused.
        unsafe { libc::kill(id, libc::SIGQUIT) };
        let clock = SystemClock::new();
        while matches!(self.process.try_wait(), Ok(None)) {
            if clock.monotonic_ns() > 5_000_000_000 {
                // An error means that the process has ended.
                drop(self.process.kill());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// Returns the path of a peer's program.
pub(crate) fn program(system: &'static str, name: &str) -> Result<PathBuf> {
    let missing = || Error::Missing { system, message: format!("the program {name}") };
    find_program(name).ok_or_else(missing)
}

/// Runs a peer's program and waits until it ends.
pub(crate) fn finish(system: &'static str, command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().trying(|| format!("prepare {system}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::peer(system, format!("preparing its data folder failed: {said}")))
}
