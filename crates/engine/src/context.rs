//! The limits of a statement, and the points at which it may be interrupted.
//!
//! The thread's [`QueryContext`], which the front end makes, says who may cancel a call. The limits
//! are variables of the session (`memory_limit`, `statement_timeout`). Every public method of a
//! session runs under them; the code below it calls [`checkpoint`] regularly, and [`commit`] before
//! it makes a change visible. (ADR 0022)

use std::{fmt, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::{
    Clock, QueryContext, QueryLimits,
    query::{self, Commit},
};

use crate::Session;

/// The limits of a call: the session's variables at one moment. For calls that take no session,
/// such as [`PreparedRequest::answer`](crate::PreparedRequest::answer).
#[derive(Clone)]
pub struct Limits {
    clock: Arc<dyn Clock>,
    limits: QueryLimits,
}

impl Limits {
    /// Runs work under the limits; its time begins now. Costs nothing without limits.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.limits.is_none() {
            return work();
        }
        QueryContext::limited(&self.clock, self.limits).run(work)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limits.fmt(f)
    }
}

impl Session {
    /// Returns the limits that `memory_limit` and `statement_timeout` set now.
    pub fn limits(&self) -> Limits {
        Limits { clock: Arc::clone(self.database.clock()), limits: self.query_limits() }
    }
}

/// Fails if the call was interrupted.
pub(crate) fn checkpoint() -> Result<()> {
    query::checkpoint().map_err(|interrupt| Diagnostic::interrupted(interrupt.limit_ms()).into())
}

/// Begins to make a change visible; see [`query::commit`].
pub(crate) fn commit() -> Result<Commit> {
    query::commit().map_err(|interrupt| Diagnostic::interrupted(interrupt.limit_ms()).into())
}
