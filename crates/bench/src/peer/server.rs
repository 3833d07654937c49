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
/// How long it may take until it answers when it has data to read, in milliseconds.
const RESTART_MS_MAX: u64 = 1_800_000;

/// A running server. Dropping it stops the process and removes its data.
#[derive(Debug)]
pub(crate) struct Server {
    system: &'static str,
    process: Child,
    socket: PathBuf,
    // Dropped last: the folder is removed after the process has ended.
    scratch: TemporaryFolder,
}

impl Server {
    /// Starts a prepared command that will listen on this socket, and waits until `answer` gives a
    /// value on a connection.
    pub(crate) fn start(
        system: &'static str,
        command: &mut Command,
        socket: PathBuf,
        scratch: TemporaryFolder,
        answer: impl Fn(UnixStream) -> Option<()>,
    ) -> Result<Self> {
        let process = spawn(system, command, scratch.path())?;
        let mut server = Self { system, process, socket, scratch };
        server.wait_for(START_MS_MAX, Duration::from_millis(20), answer)?;
        Ok(server)
    }

    /// Ends the process with a signal: SIGKILL, or another one at which it writes nothing more.
    pub(crate) fn crash(&mut self, signal: libc::c_int) -> Result<()> {
        send_signal(&self.process, signal);
        self.process.wait().trying(|| format!("wait for the end of {}", self.system)).map(drop)
    }

    /// Starts a prepared command on the data of the process that ended, and waits until `answer`
    /// gives a value on a new connection.
    pub(crate) fn restart<T>(
        &mut self,
        command: &mut Command,
        answer: impl Fn(UnixStream) -> Option<T>,
    ) -> Result<T> {
        let has_ended = !matches!(self.process.try_wait(), Ok(None));
        assert!(has_ended, "the last process has ended");
        // The socket of the process that ended would be taken for that of the new one.
        drop(std::fs::remove_file(&self.socket));
        self.process = spawn(self.system, command, self.scratch.path())?;
        self.wait_for(RESTART_MS_MAX, Duration::from_millis(1), answer)
    }

    /// Returns the folder of its data.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Connects until `answer` gives a value.
    fn wait_for<T>(
        &mut self,
        ms_max: u64,
        interval: Duration,
        answer: impl Fn(UnixStream) -> Option<T>,
    ) -> Result<T> {
        let clock = SystemClock::new();
        loop {
            if let Some(found) = UnixStream::connect(&self.socket).ok().and_then(&answer) {
                return Ok(found);
            }
            let has_ended = !matches!(self.process.try_wait(), Ok(None));
            if has_ended || clock.monotonic_ns() > ms_max * 1_000_000 {
                let said = disk::read_to_string(&log_of(self.folder())).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                let message = format!("the process did not start: {}", last.join(" / "));
                return Err(Error::peer(self.system, message));
            }
            // A server sends no signal when it is ready, so its socket is polled.
            std::thread::park_timeout(interval);
        }
    }

    /// Opens a connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket).trying(|| format!("connect to {}", self.system))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        send_signal(&self.process, libc::SIGQUIT);
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

/// Sends a signal to a process that was not waited for.
fn send_signal(process: &Child, signal: libc::c_int) {
    let id = libc::pid_t::try_from(process.id()).expect("a process id is a pid_t");
    // SAFETY: the process is our child and was not waited for, so its id is not reused.
    unsafe { libc::kill(id, signal) };
}

/// Starts a command whose output goes to a file in a folder.
fn spawn(system: &'static str, command: &mut Command, folder: &Path) -> Result<Child> {
    let log = log_of(folder);
    let file = disk::create(&log).trying(|| format!("write {}", log.display()))?;
    let errors = file.try_clone().trying(|| format!("write {}", log.display()))?;
    let process = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
    process.trying(|| format!("start {system}"))
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

/// Returns the path of a peer's program.
pub(crate) fn program(system: &'static str, name: &str) -> Result<PathBuf> {
    let missing = || Error::Missing { system, message: format!("program {name} not found") };
    find_program(name).ok_or_else(missing)
}

/// Runs a peer's program and waits until it ends.
pub(crate) fn finish(system: &'static str, command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().trying(|| format!("prepare {system}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::peer(system, format!("could not prepare the data directory: {said}")))
}
