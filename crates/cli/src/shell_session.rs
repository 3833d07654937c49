//! The session of a run of the shell: with an engine in the process, or with a server.

use std::sync::Arc;

use lockstep_client::RemoteClient;
use lockstep_diagnostic::Result;
use lockstep_engine::{Output, Session, guarded};

use crate::{remote::output_of, table_text};

/// A session. A clone is the same session.
#[derive(Debug, Clone)]
pub(crate) enum ShellSession {
    /// With an engine in the process.
    Engine(Arc<Session>),
    /// With a server.
    Server(RemoteClient),
}

impl ShellSession {
    /// Runs a script. On a server, Ctrl-C cancels it there.
    pub(crate) fn execute(&self, script: &str) -> Result<Output> {
        match self {
            Self::Engine(session) => session.execute(script),
            Self::Server(client) => output_of(client, client.execute(script, None)?.collect()?),
        }
    }

    /// Returns the completions of a word; none where a server does not answer.
    pub(crate) fn complete(&self, start: &str) -> Vec<String> {
        match self {
            Self::Engine(session) => session.complete(start),
            Self::Server(client) => client.complete(start).unwrap_or_default(),
        }
    }

    /// Returns the texts of a column of what a statement returns; none where it fails.
    pub(crate) fn names(&self, sql: &str, column: usize) -> Vec<String> {
        guarded(|| self.execute(sql)).map_or_else(|_| Vec::new(), |output| texts(&output, column))
    }
}

/// Returns the texts of a column, without NULLs.
pub(crate) fn texts(output: &Output, column: usize) -> Vec<String> {
    let rows = table_text(output, usize::MAX).rows.into_iter();
    rows.filter_map(|mut row| (column < row.len()).then(|| row.swap_remove(column)).flatten())
        .collect()
}
