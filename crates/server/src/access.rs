//! Who may call the server: the one place where a connection or a request becomes a session.
//!
//! Every protocol calls [`ClientAccess::open`] with what its client has shown. So far nobody is told from
//! anybody else, which is why `settings` accepts loopback addresses only.

use lockstep_engine::{Database, Session};

/// What a client shows to say who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Nothing.
    Nobody,
}

/// Opens the sessions of clients.
#[derive(Debug)]
pub(crate) struct ClientAccess {
    database: Database,
}

impl ClientAccess {
    /// Makes the access to a database.
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Opens a session for a client.
    pub(crate) fn open(&self, credentials: Credentials) -> Session {
        match credentials {
            Credentials::Nobody => self.database.session(),
        }
    }

    /// Returns the engine, for what is about no user: its metrics and whether it is open.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}
