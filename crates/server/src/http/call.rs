//! What every call has: an id, parameters, a deadline and a body with limits; and the ways to run it.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Query, Request},
    http::{HeaderMap, HeaderName, StatusCode, header},
};
use futures::StreamExt;
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{CallOptions, Parameter, ParsedScript, Session, guarded};
use lockstep_host::{Clock, QueryContext, QueryLimits};
use serde::Deserialize;

use super::{
    authorization::log_in,
    error::{HttpError, HttpResult},
};
use crate::{
    ServerSettings,
    access::{ClientPeer, Login},
    call_id::{CallContext, CallId},
    metrics::Refusal,
    server_state::ServerState,
    traces::{CallTrace, TRACE_PARENT},
    work_pool::WorkClass,
};

/// The header with the id of a request, which the client may give.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header with the deadline of a call, in milliseconds from its begin.
const TIMEOUT_MS: HeaderName = HeaderName::from_static("lockstep-timeout-ms");

/// Returns what the headers of a call say of its id and its trace.
pub(crate) fn context_of(headers: &HeaderMap) -> CallContext<'_> {
    let request_id = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let trace_parent = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok());
    CallContext { request_id, trace_parent }
}

/// The parameters of a call behind the question mark.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallParameters {
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) database: Option<String>,
    pub(crate) durability: Option<String>,
    /// Where a subscription begins.
    pub(crate) start: Option<String>,
}

/// A call of a client that has logged in, whose body is not read yet.
#[derive(Debug)]
pub(crate) struct HttpCall {
    pub(crate) state: Arc<ServerState>,
    pub(crate) parameters: CallParameters,
    pub(crate) headers: HeaderMap,
    pub(crate) login: Arc<Login>,
    id: Option<CallId>,
    begun_ns: u64,
    body: Body,
}

/// The kinds of deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadlineKind {
    /// `limits.request_timeout_ms`.
    Request,
    /// `limits.statement_timeout_ms`.
    Statement,
}

impl HttpCall {
    /// Logs the client in, and takes the parts of the request.
    pub(crate) async fn begin(state: Arc<ServerState>, request: Request) -> HttpResult<Self> {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<ClientPeer>().cloned();
        let peer = peer.unwrap_or_else(|| ClientPeer::of(Ipv4Addr::UNSPECIFIED.into()));
        let login = log_in(&state, &parts.headers, &peer).await?;
        let parameters = Query::<CallParameters>::try_from_uri(&parts.uri);
        let Query(parameters) = parameters.map_err(|error| {
            let message = format!("invalid query parameters: {error}");
            Diagnostic::new(code::INVALID_PARAMETER, message)
                .with_hint("Use only the parameters timeout_ms, database, durability and start.")
        })?;
        let id = parts.extensions.get::<CallId>().cloned();
        if let Some(trace) = id.as_ref().and_then(CallId::trace) {
            trace.set_text("enduser.id", login.session().user());
        }
        let begun_ns = id.as_ref().map_or_else(|| state.clock.monotonic_ns(), CallId::begun_ns);
        Ok(Self { state, parameters, headers: parts.headers, login, id, begun_ns, body })
    }

    /// Reads the body, up to the limits of its size, of the time between its parts, and of the time of
    /// the whole: a call of which nothing is left when its body has arrived is of no use.
    pub(crate) async fn read_body(&mut self, kind: DeadlineKind) -> HttpResult<Bytes> {
        self.check_encoding()?;
        let settings = self.state.settings();
        let whole = Duration::from_millis(self.left_ms(kind)?.max(1));
        let limit_ms = self.limit_ms(kind)?;
        let begun_ns = self.state.clock.monotonic_ns();
        let read = tokio::time::timeout(whole, self.read_parts(&settings)).await;
        if let Some(trace) = self.trace() {
            trace.phase_since("read", begun_ns);
        }
        read.unwrap_or_else(|_elapsed| {
            self.state.metrics.add_refused(Refusal::Timeout);
            Err(past_deadline(limit_ms, kind).into())
        })
    }

    /// Fails where the body is compressed.
    fn check_encoding(&self) -> HttpResult<()> {
        let Some(encoding) = self.headers.get(header::CONTENT_ENCODING) else { return Ok(()) };
        if encoding.as_bytes().eq_ignore_ascii_case(b"identity") {
            return Ok(());
        }
        let encoding = String::from_utf8_lossy(encoding.as_bytes());
        let message = format!("unsupported Content-Encoding: {encoding}");
        let error = HttpError::protocol(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        Err(error.with_hint("Send the body uncompressed."))
    }

    /// Fails where the call names a durability, which only an append has.
    pub(crate) fn refuse_durability(&self) -> HttpResult<()> {
        if self.parameters.durability.is_none() {
            return Ok(());
        }
        let message = "parameter `durability` applies only to appends";
        Err(Diagnostic::new(code::INVALID_PARAMETER, message)
            .with_hint(
                "Omit the parameter. For statements, set OPTIONS(durability=…) of the table.",
            )
            .into())
    }

    async fn read_parts(&mut self, settings: &ServerSettings) -> HttpResult<Bytes> {
        let pause_max = Duration::from_millis(settings.body_timeout_ms);
        let mut parts = std::mem::take(&mut self.body).into_data_stream();
        let mut first = Bytes::new();
        let mut bytes = Vec::new();
        loop {
            let part = tokio::time::timeout(pause_max, parts.next()).await;
            let part = part.map_err(|_error| {
                self.state.metrics.add_refused(Refusal::Timeout);
                let message = "the next part of the body did not arrive in time";
                HttpError::protocol(StatusCode::REQUEST_TIMEOUT, message)
            })?;
            let Some(part) = part else { break };
            let part = part.map_err(|error| {
                Diagnostic::new(
                    code::PROTOCOL_VIOLATION,
                    format!("unexpected end of the body: {error}"),
                )
            })?;
            let size = first.len() + bytes.len() + part.len();
            if u64::try_from(size).is_ok_and(|size| size > settings.body_bytes_max) {
                let limit = settings.body_bytes_max;
                let message = format!("body exceeds limits.body_bytes_max ({limit} bytes)");
                return Err(Diagnostic::new(code::VALUE_TOO_LARGE, message).into());
            }
            // A body of one part, as small ones are, is not copied.
            if first.is_empty() && bytes.is_empty() {
                first = part;
            } else {
                bytes.extend_from_slice(&std::mem::take(&mut first));
                bytes.extend_from_slice(&part);
            }
        }
        Ok(if bytes.is_empty() { first } else { bytes.into() })
    }

    /// Returns the trace of the call; `None` where it is not traced.
    pub(crate) fn trace(&self) -> Option<&Arc<CallTrace>> {
        self.id.as_ref().and_then(CallId::trace)
    }

    /// Makes the context in which the call runs: with what is left of its deadline.
    pub(crate) fn context(&self, kind: DeadlineKind) -> HttpResult<QueryContext> {
        Ok(self.context_of(self.left_ms(kind)?))
    }

    fn context_of(&self, left_ms: u64) -> QueryContext {
        let limits = QueryLimits { timeout_ms: Some(left_ms), ..QueryLimits::default() };
        QueryContext::limited(&self.state.clock, limits)
    }

    /// Returns what is left of the call's deadline; fails where that is nothing.
    fn left_ms(&self, kind: DeadlineKind) -> HttpResult<u64> {
        let limit_ms = self.limit_ms(kind)?;
        let took_ms = self.state.clock.monotonic_ns().saturating_sub(self.begun_ns) / 1_000_000;
        if took_ms >= limit_ms {
            return Err(past_deadline(limit_ms, kind).into());
        }
        Ok(limit_ms - took_ms)
    }

    /// Returns how long the call may take.
    fn limit_ms(&self, kind: DeadlineKind) -> HttpResult<u64> {
        let settings = self.state.settings();
        let timeout_max_ms = match kind {
            DeadlineKind::Request => settings.request_timeout_ms,
            DeadlineKind::Statement => settings.statement_timeout_ms,
        };
        Ok(self.given_limit_ms()?.unwrap_or(timeout_max_ms).min(timeout_max_ms))
    }

    /// Returns how long the call may take as its client says.
    fn given_limit_ms(&self) -> HttpResult<Option<u64>> {
        let header = self.headers.get(TIMEOUT_MS).map(|value| {
            let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            number.ok_or_else(|| {
                let message = "header Lockstep-Timeout-Ms must be a number of milliseconds";
                HttpError::from(Diagnostic::new(code::INVALID_PARAMETER, message))
            })
        });
        Ok(header.transpose()?.or(self.parameters.timeout_ms))
    }

    /// Makes what the engine runs in a pool: the context, and what it is told of the call.
    pub(crate) fn engine_call(&self, kind: DeadlineKind) -> HttpResult<EngineCall> {
        let settings = self.state.settings();
        let limit = |number: u64| Some(number).filter(|number| *number > 0);
        let call = CallOptions {
            request_id: self.id.as_ref().map(|id| id.text().to_owned()),
            // The context has it: what waits for a thread is in it.
            timeout_ms: None,
            memory_bytes: limit(settings.query_memory_bytes_max),
            rows_max: limit(settings.answer_rows_max),
        };
        let deadline =
            HttpDeadline { kind, limit_ms: self.limit_ms(kind)?, left_ms: self.left_ms(kind)? };
        let context = self.context_of(deadline.left_ms);
        let trace = self.trace().cloned();
        let login = Arc::clone(&self.login);
        Ok(EngineCall { login, context, deadline, call, database: None, trace })
    }

    /// Makes a call that ends with its client, or when the deadline has passed that this one names.
    pub(crate) fn endless_call(&self) -> HttpResult<EngineCall> {
        let request_id = self.id.as_ref().map(|id| id.text().to_owned());
        let call = CallOptions { request_id, ..CallOptions::default() };
        let kind = DeadlineKind::Statement;
        let limit_ms = self.given_limit_ms()?.unwrap_or(u64::MAX);
        if limit_ms == 0 {
            return Err(past_deadline(limit_ms, kind).into());
        }
        let timeout_ms = Some(limit_ms).filter(|limit_ms| *limit_ms < u64::MAX);
        let limits = QueryLimits { timeout_ms, ..QueryLimits::default() };
        let context = QueryContext::limited(&self.state.clock, limits);
        let deadline = HttpDeadline { kind, limit_ms, left_ms: limit_ms };
        let trace = self.trace().cloned();
        let login = Arc::clone(&self.login);
        Ok(EngineCall { login, context, deadline, call, database: None, trace })
    }

    /// Returns a name with the database of the parameters before it.
    pub(crate) fn qualified(&self, name: String) -> String {
        match &self.parameters.database {
            Some(database) => format!("{database}.{name}"),
            None => name,
        }
    }
}

/// The deadline of a call: the whole, and what was left when it began to run.
#[derive(Debug, Clone, Copy)]
struct HttpDeadline {
    kind: DeadlineKind,
    limit_ms: u64,
    left_ms: u64,
}

impl HttpDeadline {
    /// Lets an error of the engine say whose limit has passed: it knows those of sessions only.
    fn named(self, mut error: HttpError) -> HttpError {
        let by_engine = Diagnostic::interrupted(Some(self.left_ms));
        if error.diagnostic.code == by_engine.code && error.diagnostic.message == by_engine.message
        {
            error.diagnostic = Box::new(past_deadline(self.limit_ms, self.kind));
        }
        error
    }
}

/// Makes the error of a call that has taken longer than it may.
fn past_deadline(limit_ms: u64, kind: DeadlineKind) -> Diagnostic {
    let setting = match kind {
        DeadlineKind::Request => "limits.request_timeout_ms",
        DeadlineKind::Statement => "limits.statement_timeout_ms",
    };
    Diagnostic::new(
        code::QUERY_CANCELED,
        format!("the call exceeded its deadline of {limit_ms} ms"),
    )
    .with_kind(Kind::FreeResources)
    .with_hint(format!(
        "Set a longer deadline with timeout_ms or the header Lockstep-Timeout-Ms, up to the \
         server's {setting}."
    ))
}

/// A call of the engine in a session of its own.
#[derive(Debug)]
pub(crate) struct EngineCall {
    login: Arc<Login>,
    context: QueryContext,
    deadline: HttpDeadline,
    call: CallOptions,
    database: Option<String>,
    trace: Option<Arc<CallTrace>>,
}

impl EngineCall {
    /// Lets the session begin in a database.
    pub(crate) fn in_database(self, database: Option<String>) -> Self {
        Self { database, ..self }
    }

    /// Takes the limits of rows and memory off: the figures of the server are small, and monitors need
    /// them when other calls are refused.
    pub(crate) fn of_monitor(self) -> Self {
        Self { call: CallOptions { memory_bytes: None, rows_max: None, ..self.call }, ..self }
    }

    /// Returns the class of a script with parameters of a session. One that reads a few rows by key does
    /// not wait for analytics.
    pub(crate) fn class_of(
        &self,
        script: &ParsedScript,
        parameters: impl FnOnce(&Session) -> Option<Vec<Parameter>>,
    ) -> WorkClass {
        let is_answered_by_key = script.may_be_answered_by_key()
            && guarded(|| {
                let session = self.login.open()?;
                let Some(parameters) = parameters(&session) else { return Ok(false) };
                Ok(session.is_answered_by_key(script, &parameters, self.database.as_deref()))
            })
            .unwrap_or(false);
        if is_answered_by_key {
            return WorkClass::Requests;
        }
        match script.only_writes_rows() {
            true => WorkClass::Writes,
            false => WorkClass::Analytics,
        }
    }

    /// Opens the session and runs work in it. A panic is an internal error.
    fn run<T>(
        &self,
        state: &ServerState,
        work: impl FnOnce(&ServerState, &Session) -> HttpResult<T>,
    ) -> HttpResult<T> {
        let session = self.login.open();
        let session = session.inspect_err(|error| state.access.forget_ended(&self.login, error))?;
        let work = || {
            self.use_database(&session)?;
            work(state, &session)
        };
        // The outer result is the panic's, and that of the limits of the call.
        self.call.run(&session, || guarded(|| Ok(work())))?
    }

    fn use_database(&self, session: &Session) -> HttpResult<()> {
        let Some(database) = &self.database else { return Ok(()) };
        if database.contains('`') {
            let message = "a database name cannot contain a backtick";
            return Err(Diagnostic::new(code::UNDEFINED_DATABASE, message).into());
        }
        session.execute(&format!("USE `{database}`"))?;
        Ok(())
    }
}

/// Runs work of the engine on this thread. A panic is an internal error.
///
/// A request of one row runs so, without a [`CallOptions`]: it is neither listed nor recorded, so that nothing
/// would read the id, and reserving memory would cost more than the answer.
pub(crate) fn run_here<T>(
    context: &QueryContext,
    work: impl FnOnce() -> lockstep_diagnostic::Result<T>,
) -> HttpResult<T> {
    Ok(context.run(|| guarded(work))?)
}

/// Runs work on a thread of its class. Where the caller goes away, the work is cancelled.
pub(crate) async fn run_in_pool<T: Send + 'static>(
    state: &Arc<ServerState>,
    class: WorkClass,
    call: EngineCall,
    work: impl FnOnce(&ServerState, &Session) -> HttpResult<T> + Send + 'static,
) -> HttpResult<T> {
    let (context, deadline) = (call.context.clone(), call.deadline);
    let cancel = CancelOnDrop(context.clone());
    let shared = Arc::clone(state);
    let submitted_ns = state.clock.monotonic_ns();
    let body = move || {
        let run = || call.context.run(|| call.run(&shared, work));
        CallTrace::run_submitted(call.trace.as_deref(), submitted_ns, run)
    };
    let done = state.pools.run(class, &context, body).await?;
    drop(cancel);
    done.map_err(|error| deadline.named(error))
}

/// Cancels a call whose caller is gone.
struct CancelOnDrop(QueryContext);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns the nanoseconds since `from`, and moves it to now.
pub(crate) fn lap(clock: &Arc<dyn Clock>, from: &mut u64) -> u64 {
    let now = clock.monotonic_ns();
    now.saturating_sub(std::mem::replace(from, now))
}
