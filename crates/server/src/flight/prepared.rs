//! Prepared statements and compiled requests of Flight clients, by handles that nobody can guess.
//!
//! A handle is its user's, on every connection, until the client closes it or has not used it for
//! `flight.session_timeout_ms`. A statement keeps the parameters that were bound last.

use std::{collections::HashMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{Parameter, PreparedRequest};
use lockstep_host::sync::Mutex;

use crate::server_state::ServerState;

/// The rows of parameters of a statement.
pub(crate) type ParameterRows = Vec<Vec<Parameter>>;

/// What was prepared.
#[derive(Debug, Clone)]
pub(crate) enum FlightStatement {
    /// A statement and the parameters that are bound.
    Statement {
        /// The text.
        sql: Arc<str>,
        /// The parameters; a row for each run.
        rows: Arc<ParameterRows>,
    },
    /// A compiled request and what it was compiled from.
    Request {
        /// The deployment or the query.
        target: Arc<str>,
        /// The program.
        request: Arc<PreparedRequest>,
    },
}

#[derive(Debug)]
struct PreparedEntry {
    user: String,
    prepared: FlightStatement,
    used_ns: u64,
}

/// What is prepared.
#[derive(Debug, Default)]
pub(crate) struct PreparedTable {
    by_handle: Mutex<HashMap<Vec<u8>, PreparedEntry>>,
}

impl PreparedTable {
    /// Keeps what a user has prepared. Returns its handle.
    pub(crate) fn keep(
        &self,
        state: &ServerState,
        user: &str,
        prepared: FlightStatement,
    ) -> Result<Vec<u8>> {
        let settings = state.settings();
        let used_ns = state.clock.monotonic_ns();
        let timeout_ns = settings.flight_session_timeout_ms.saturating_mul(1_000_000);
        let max = usize::try_from(settings.flight_statements_max).unwrap_or(usize::MAX);
        let mut by_handle = self.by_handle.lock();
        if by_handle.len() >= max {
            by_handle.retain(|_, kept| used_ns.saturating_sub(kept.used_ns) < timeout_ns);
        }
        if by_handle.len() >= max {
            let message =
                format!("number of prepared statements exceeds flight.statements_max ({max})");
            return Diagnostic::new(code::TOO_MANY, message)
                .with_kind(Kind::Retry)
                .with_hint("Close unused prepared statements, or raise flight.statements_max.")
                .err();
        }
        let handle = lockstep_host::random::id().to_vec();
        by_handle
            .insert(handle.clone(), PreparedEntry { user: user.to_owned(), prepared, used_ns });
        Ok(handle)
    }

    /// Finds what a user has prepared.
    pub(crate) fn find(
        &self,
        state: &ServerState,
        user: &str,
        handle: &[u8],
    ) -> Result<FlightStatement> {
        let now_ns = state.clock.monotonic_ns();
        let mut by_handle = self.by_handle.lock();
        match by_handle.get_mut(handle) {
            Some(found) if found.user == user => {
                found.used_ns = now_ns;
                Ok(found.prepared.clone())
            }
            _ => not_prepared().err(),
        }
    }

    /// Binds the parameters of a statement.
    pub(crate) fn bind(&self, user: &str, handle: &[u8], bound: ParameterRows) -> Result<()> {
        let mut by_handle = self.by_handle.lock();
        match by_handle.get_mut(handle) {
            Some(PreparedEntry {
                user: owner,
                prepared: FlightStatement::Statement { rows, .. },
                ..
            }) if owner == user => {
                *rows = Arc::new(bound);
                Ok(())
            }
            _ => not_prepared().err(),
        }
    }

    /// Forgets what a user has prepared, if it is there.
    pub(crate) fn close(&self, user: &str, handle: &[u8]) {
        let mut by_handle = self.by_handle.lock();
        if by_handle.get(handle).is_some_and(|found| found.user == user) {
            by_handle.remove(handle);
        }
    }
}

fn not_prepared() -> Diagnostic {
    Diagnostic::new(code::UNDEFINED_OBJECT, "the prepared statement of this handle does not exist")
        .with_kind(Kind::PrepareAgain)
        .with_hint(
            "Prepare the statement again: it was closed, or was unused for \
             flight.session_timeout_ms.",
        )
}
