//! What every Flight call has: a session, an id, a deadline; and the ways to run it.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{CallOptions, Session, guarded};
use lockstep_host::{QueryContext, QueryLimits};
use lockstep_protocol::TIMEOUT_HEADER;
use tokio::sync::mpsc;
use tonic::{Request, Status};

use super::{
    FlightServer,
    rows::{FlightRowPart, PARTS_AHEAD, RowSender, RowStream},
    running::RunningFlightCall,
    sessions::FlightSession,
    status::{malformed, no_result, to_status},
};
use crate::{access::Login, call_id::CallId, traces::CallTrace, work_pool::WorkClass};

/// The header with the deadline of a gRPC call.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The session of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallSession {
    /// One that lasts from call to call.
    Lasting(Arc<FlightSession>),
    /// One of its own, for a client without a handshake.
    Login(Arc<Login>),
}

impl CallSession {
    /// Returns the name of the user.
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Lasting(kept) => kept.session.user(),
            Self::Login(login) => login.session().user(),
        }
    }
}

/// Who calls, as it was found before the message was read.
#[derive(Debug, Clone)]
pub(crate) struct FlightCaller {
    pub(crate) session: CallSession,
    pub(crate) id: CallId,
    pub(crate) begun_ns: u64,
}

/// The kinds of deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDeadline {
    /// `limits.request_timeout_ms`.
    Request,
    /// `limits.statement_timeout_ms`.
    Statement,
    /// None: the call ends with its client.
    Never,
}

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct FlightCall {
    pub(crate) server: Arc<FlightServer>,
    pub(crate) session: CallSession,
    id: CallId,
    begun_ns: u64,
    /// The deadline that the client has given.
    timeout_ms: Option<u64>,
}

impl FlightCall {
    /// Takes what was found of the caller.
    pub(crate) fn of<T>(server: &Arc<FlightServer>, request: &Request<T>) -> Result<Self, Status> {
        let Some(caller) = request.extensions().get::<FlightCaller>().cloned() else {
            return Err(Status::unauthenticated("authentication required"));
        };
        let FlightCaller { session, id, begun_ns } = caller;
        let text = |name| request.metadata().get(name).and_then(|value| value.to_str().ok());
        let own = text(TIMEOUT_HEADER).map(|text| {
            text.trim().parse().map_err(|_error| {
                to_status(
                    &malformed("header lockstep-timeout-ms must be a number of milliseconds"),
                    id.text(),
                )
            })
        });
        let of_grpc = text(GRPC_TIMEOUT).and_then(grpc_timeout_ms);
        let timeout_ms = own.transpose()?.into_iter().chain(of_grpc).min();
        Ok(Self { server: Arc::clone(server), session, id, begun_ns, timeout_ms })
    }

    /// Returns the call in another session of its user.
    pub(crate) fn in_session_of(&self, session: CallSession) -> Self {
        Self { session, ..self.clone() }
    }

    /// Returns the trace of the call; `None` where it is not traced.
    pub(crate) fn trace(&self) -> Option<&Arc<CallTrace>> {
        self.id.trace()
    }

    /// Returns the id of the call.
    pub(crate) fn id(&self) -> &str {
        self.id.text()
    }

    /// Returns the status of an error of the call.
    pub(crate) fn status(&self, error: &Diagnostic) -> Status {
        to_status(error, self.id())
    }

    /// Runs work on a thread of a class. Where the caller goes away, it is cancelled.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: WorkClass,
        deadline: CallDeadline,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let done = async {
            let (context, running) = self.begin(deadline, self.id())?;
            let call = self.clone();
            let submitted_ns = self.server.state.clock.monotonic_ns();
            let run = context.clone();
            let body = move || run.run(|| call.traced(submitted_ns, || call.in_session(work)));
            let done =
                self.server.state.pools.run(class, &context, body).await.map_err(no_result)?;
            drop(running);
            done
        };
        done.await.map_err(|error| self.status(&error))
    }

    /// Runs work on this thread: that of a request of one row, which is too short to be cancelled.
    pub(crate) fn run_here<T>(
        &self,
        deadline: CallDeadline,
        work: impl FnOnce(&Session) -> Result<T>,
    ) -> Result<T> {
        let run = |session: &Session| guarded(|| work(session));
        let done = self.context(deadline)?.run(|| self.with_session(run));
        done.inspect_err(|error| self.log_error(error))
    }

    /// Runs work that sends rows, on a thread of a class. `id` is that by which it can be cancelled.
    pub(crate) fn stream(
        &self,
        class: WorkClass,
        id: &str,
        work: impl FnOnce(&Session, &mut RowSender) -> Result<()> + Send + 'static,
    ) -> Result<RowStream, Status> {
        self.stream_until(CallDeadline::Statement, (class, id), work)
    }

    /// Runs work that sends rows as [`Self::stream`] does, within a deadline.
    pub(crate) fn stream_until(
        &self,
        deadline: CallDeadline,
        (class, id): (WorkClass, &str),
        work: impl FnOnce(&Session, &mut RowSender) -> Result<()> + Send + 'static,
    ) -> Result<RowStream, Status> {
        let begun = self.begin(deadline, id);
        let (context, running) = begun.map_err(|error| self.status(&error))?;
        let (sender, receiver) = mpsc::channel(PARTS_AHEAD);
        let mut rows = RowSender::new(sender.clone(), &self.server.state, class);
        let call = self.clone();
        let submitted_ns = self.server.state.clock.monotonic_ns();
        let shared = context.clone();
        let body = move || {
            let run = || call.in_session(|session| work(session, &mut rows));
            shared.run(|| call.traced(submitted_ns, run))
        };
        let state = Arc::clone(&self.server.state);
        tokio::spawn(async move {
            let done = state.pools.run(class, &context, body).await.map_err(no_result);
            if let Err(error) = done.and_then(|done| done) {
                // The receiver may be gone.
                let _sent = sender.send(FlightRowPart::Failed(error)).await;
            }
        });
        Ok(RowStream::new(receiver, running, self.id().to_owned()))
    }

    /// Makes the context of the call, and lists it.
    fn begin(&self, deadline: CallDeadline, id: &str) -> Result<(QueryContext, RunningFlightCall)> {
        let context = self.context(deadline)?;
        let running = self.server.running.begin(self.session.user(), id, &context);
        Ok((context, running))
    }

    /// Makes the context of the call.
    fn context(&self, deadline: CallDeadline) -> Result<QueryContext> {
        let state = &self.server.state;
        let settings = state.settings();
        let timeout_max_ms = match deadline {
            CallDeadline::Request => settings.request_timeout_ms,
            CallDeadline::Statement => settings.statement_timeout_ms,
            CallDeadline::Never => {
                return Ok(QueryContext::limited(&state.clock, QueryLimits::default()));
            }
        };
        let limit_ms = self.timeout_ms.unwrap_or(timeout_max_ms).min(timeout_max_ms);
        let took_ms = state.clock.monotonic_ns().saturating_sub(self.begun_ns) / 1_000_000;
        if took_ms >= limit_ms {
            return Diagnostic::interrupted(Some(limit_ms)).err();
        }
        let limits = QueryLimits { timeout_ms: Some(limit_ms - took_ms), ..QueryLimits::default() };
        Ok(QueryContext::limited(&state.clock, limits))
    }

    /// Runs work, and keeps how long it has waited and run where the call is traced.
    fn traced<T>(&self, submitted_ns: u64, work: impl FnOnce() -> T) -> T {
        CallTrace::run_submitted(self.trace().map(Arc::as_ref), submitted_ns, work)
    }

    /// Runs work of the engine on this thread. A panic is an internal error.
    fn in_session<T>(&self, work: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        let settings = self.server.state.settings();
        let limit = |number: u64| Some(number).filter(|number| *number > 0);
        let options = CallOptions {
            request_id: Some(self.id().to_owned()),
            // The context has it: what waits for a thread is in it.
            timeout_ms: None,
            memory_bytes: limit(settings.query_memory_bytes_max),
            rows_max: limit(settings.answer_rows_max),
        };
        let run = |session: &Session| options.run(session, || guarded(|| work(session)));
        self.with_session(run).inspect_err(|error| self.log_error(error))
    }

    /// Passes the session of the call on.
    pub(super) fn with_session<T>(&self, work: impl FnOnce(&Session) -> Result<T>) -> Result<T> {
        match &self.session {
            CallSession::Lasting(kept) => work(&kept.session),
            CallSession::Login(login) => {
                let access = &self.server.state.access;
                let session = login.open();
                work(&session.inspect_err(|error| access.forget_ended(login, error))?)
            }
        }
    }

    /// Logs an error that is the server's.
    fn log_error(&self, error: &Diagnostic) {
        let Diagnostic { code, kind, message, .. } = error;
        if *kind == Kind::ReportBug || *code == code::INTERNAL_ERROR {
            tracing::error!(request_id = self.id(), code, %message, "internal error");
        }
    }
}

/// Reads the deadline of a gRPC call in milliseconds: at most eight digits and a unit.
fn grpc_timeout_ms(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => number * 3_600_000,
        "M" => number * 60_000,
        "S" => number * 1_000,
        "m" => number,
        "u" => number.div_ceil(1_000),
        "n" => number.div_ceil(1_000_000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::grpc_timeout_ms;

    #[test]
    fn a_deadline_of_grpc_has_a_unit() {
        for (text, expected) in [
            ("1H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("3S", Some(3_000)),
            ("4m", Some(4)),
            ("1u", Some(1)),
            ("1000001n", Some(2)),
            ("", None),
            ("5", None),
            ("x5m", None),
            ("999999999S", None),
            ("5é", None),
        ] {
            assert_eq!(grpc_timeout_ms(text), expected, "{text}");
        }
    }
}
