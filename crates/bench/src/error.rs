//! Why a benchmark could not go on.

use std::io;

use lockstep_diagnostic::Diagnostic;

/// What every part of this crate returns.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a benchmark could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine refused something.
    #[error("{what}")]
    Machine {
        /// What was tried.
        what: String,
        /// What the machine said.
        source: io::Error,
    },
    /// What was to be measured did not happen.
    #[error("{what}")]
    Idle {
        /// What did not happen.
        what: &'static str,
    },
    /// A peer is not installed.
    #[error("{system} is not there: {message} (`make bench` installs the peers)")]
    Missing {
        /// The peer.
        system: &'static str,
        /// What was looked for.
        message: String,
    },
    /// A peer refused something, or said what cannot be understood.
    #[error("{system}: {message}")]
    Peer {
        /// The peer.
        system: &'static str,
        /// What it said.
        message: String,
    },
    /// A page or a result that is not what it should be.
    #[error("{message}")]
    Page {
        /// What is wrong.
        message: String,
    },
    /// Lockstep refused something.
    #[error("lockstep: {0}")]
    Engine(#[from] Box<Diagnostic>),
    /// A system gave another answer than Lockstep, so its time means nothing.
    #[error("{system} answers request {request} otherwise: {difference}")]
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
    /// A peer's complaint.
    pub(crate) fn peer(system: &'static str, message: impl Into<String>) -> Self {
        Self::Peer { system, message: message.into() }
    }
}

/// Says what was tried when the machine refuses.
pub(crate) trait Trying<T> {
    /// Names what was tried.
    fn trying(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Trying<T> for io::Result<T> {
    fn trying(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Machine { what: what(), source })
    }
}
