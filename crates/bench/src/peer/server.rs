//! A peer's server process: started with a data folder of its own, stopped with this value.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use lockstep_host::{Clock, SystemClock, disk};

use super::place::{Scratch, find_program};
use crate::error::{Error, Result, Trying};

/// How long a server may take until it answers, in milliseconds.
const START_MS_MAX: u64 = 60_000;

/// A running server. Dropping it stops the process and removes its data.
#[derive(Debug)]
pub(crate) struct Server {
    system: &'static str,
    process: Child,
    socket: PathBuf,
    // Last: the folder goes when the process has gone.
    _scratch: Scratch,
}

impl Server {
    /// Starts a prepared command that will listen on this socket, and waits until it does.
    pub(crate) fn start(
        system: &'static str,
        command: &mut Command,
        socket: PathBuf,
        scratch: Scratch,
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
            // Nothing tells when a server of another's making is ready.
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(&self.socket).trying(|| format!("connect to {}", self.system))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = libc::pid_t::try_from(self.process.id()).expect("a process id is a pid_t");
        // SAFETY: the process is ours and was not waited for, so that its id is still its own.
        unsafe { libc::kill(id, libc::SIGQUIT) };
        let clock = SystemClock::new();
        while matches!(self.process.try_wait(), Ok(None)) {
            if clock.monotonic_ns() > 5_000_000_000 {
                // It is gone when this fails.
                drop(self.process.kill());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// The path of a peer's program.
pub(crate) fn program(system: &'static str, name: &str) -> Result<PathBuf> {
    let missing = || Error::Missing { system, message: format!("the program {name}") };
    find_program(name).ok_or_else(missing)
}

/// Runs a peer's program to its end.
pub(crate) fn finish(system: &'static str, command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().trying(|| format!("prepare {system}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::peer(system, format!("preparing its data folder failed: {said}")))
}
