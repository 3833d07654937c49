//! Errors of the benchmarks.

use std::io;

use lockstep_diagnostic::Diagnostic;

/// The result of every fallible function of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the benchmarks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system returned an error.
    #[error("could not {what}")]
    Machine {
        /// What was tried.
        what: String,
        /// Its error.
        source: io::Error,
    },
    /// The event to be measured did not happen.
    #[error("{what}")]
    Idle {
        /// What did not happen.
        what: &'static str,
    },
    /// A peer is not installed.
    #[error("{system} is not installed: {message} (`make bench` installs the peers)")]
    Missing {
        /// The peer.
        system: &'static str,
        /// What was looked for.
        message: String,
    },
    /// A peer returned an error or an unexpected reply.
    #[error("{system}: {message}")]
    Peer {
        /// The peer.
        system: &'static str,
        /// Its message.
        message: String,
    },
    /// A page or a result has an unexpected form.
    #[error("{message}")]
    Page {
        /// What is wrong.
        message: String,
    },
    /// Lockstep returned an error.
    #[error("lockstep: {0}")]
    Engine(#[from] Box<Diagnostic>),
    /// A system's answer differs from Lockstep's, so its time is not comparable.
    #[error("{system} returns a different result for request {request}: {difference}")]
    Disagreement {
        /// The system.
        system: String,
        /// Which request, from 0.
        request: usize,
        /// The first column that differs, and how.
        difference: String,
    },
}

impl Error {
    /// Returns an error of a peer.
    pub(crate) fn peer(system: &'static str, message: impl Into<String>) -> Self {
        Self::Peer { system, message: message.into() }
    }
}

/// Adds what was tried to an error of the operating system.
pub(crate) trait Trying<T> {
    /// Adds the description that `what` returns to an error.
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Machine { what: what(), source })
    }
}
