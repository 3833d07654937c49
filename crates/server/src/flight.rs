//! Arrow Flight SQL: gRPC on a listener of its own, for what is large: training sets out, rows in.
//!
//! The connection is that of HTTP/2 (`http_connection`), and a client logs in as over HTTP. A call is
//! authenticated here, before gRPC reads its message; then `service` reads the command and the file of
//! its kind answers it. `docs/flight.md` describes the calls.
//!
//! # Life of a result
//!
//! The engine runs on a thread of its class's pool and passes on one batch after another (`rows`); the
//! connection takes them as fast as the client reads. While batches wait for the client, the query is
//! parked and its place in the pool is free for others (`work_pool`). Where the client goes away the call
//! is cancelled; where it reads nothing for `limits.write_timeout_ms`, too.
//!
//! # Life of rows
//!
//! The engine runs on a thread of the pool for writes, and asks for one batch after another (`ingest`).
//! While the next one has not arrived, the write is parked in the same way; it ends where none arrives
//! for `limits.body_timeout_ms`.

mod actions;
mod arrow_bytes;
mod call;
mod call_body;
mod catalog;
mod ingest;
mod own_actions;
mod prepared;
mod request_rows;
mod rows;
mod running;
mod service;
mod session_actions;
mod sessions;
mod statements;
mod status;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use hyper::{Request, Response, body::Incoming, header::HeaderValue};
use lockstep_diagnostic::Result;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use self::{
    call::{CallSession, FlightCaller},
    call_body::CallBody,
    prepared::PreparedTable,
    request_rows::RequestSchemas,
    running::RunningFlightCalls,
    service::LockstepFlight,
    sessions::{FlightSessions, SESSION_TOKEN_PREFIX},
    status::to_status,
};
use crate::{
    access::ClientPeer,
    call_id::CallId,
    connections::ActiveCall,
    http::{context_of, log_in_as},
    http_connection::{HttpConnection, HttpVersions, UnfinishedCall},
    metrics::Refusal,
    phase::Phase,
    protocol::Protocol,
    server_state::ServerState,
    traces::TRACE_PARENT,
};

/// What all Flight connections of a server share.
#[derive(Debug)]
pub(crate) struct FlightServer {
    state: Arc<ServerState>,
    sessions: FlightSessions,
    prepared: PreparedTable,
    running: RunningFlightCalls,
    schemas: RequestSchemas,
}

impl FlightServer {
    /// Makes it without sessions.
    pub(crate) fn new(state: &Arc<ServerState>) -> Arc<Self> {
        Arc::new(Self {
            state: Arc::clone(state),
            sessions: FlightSessions::default(),
            prepared: PreparedTable::default(),
            running: RunningFlightCalls::default(),
            schemas: RequestSchemas::default(),
        })
    }

    /// Serves a connection until it ends.
    pub(crate) async fn serve<S>(self: Arc<Self>, stream: S, peer: ClientPeer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = Arc::clone(&self);
        let handle = move |request: Request<Incoming>, call: ActiveCall| {
            let (server, peer) = (Arc::clone(&server), peer.clone());
            async move { server.answer(request, &peer, call).await }
        };
        let connection = HttpConnection { state: &self.state, versions: HttpVersions::Two };
        connection.serve(stream, handle).await;
    }

    /// Answers a call: logs the client in, and counts the call until its last message is sent.
    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        peer: &ClientPeer,
        call: ActiveCall,
    ) -> Response<CallBody> {
        let begun_ns = self.state.clock.monotonic_ns();
        let id = CallId::begin(&self.state, context_of(request.headers()), begun_ns);
        let unfinished = UnfinishedCall::begin(&self.state);
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let mut response = match self.find_session(&request, peer).await {
            Ok(session) => {
                if let Some(trace) = id.trace() {
                    trace.set_text("enduser.id", session.user());
                }
                let caller = FlightCaller { session, id: id.clone(), begun_ns };
                request.extensions_mut().insert(caller);
                self.route(request).await
            }
            Err(error) => {
                if error.code.starts_with("28") {
                    self.state.metrics.add_refused(Refusal::Login);
                }
                to_status(&error, id.text()).into_http()
            }
        };
        if let Some(trace) = id.trace()
            && let Ok(value) = HeaderValue::from_str(&trace.header())
        {
            response.headers_mut().insert(TRACE_PARENT, value);
        }
        CallBody::wrap(
            response,
            self,
            call,
            unfinished,
            call_body::CallRecord { id, method, begun_ns },
        )
    }

    /// Passes a call on to gRPC; where the server ends, it is given up.
    async fn route(self: &Arc<Self>, request: Request<Incoming>) -> Response<tonic::body::Body> {
        let settings = self.state.settings();
        let bytes_max = usize::try_from(settings.body_bytes_max).unwrap_or(usize::MAX);
        let service = LockstepFlight::new(Arc::clone(self));
        let mut service = FlightServiceServer::new(service).max_decoding_message_size(bytes_max);
        let id = request.extensions().get::<FlightCaller>().map(|caller| caller.id.clone());
        let answered = service.call(request);
        tokio::select! {
            Ok(response) = answered => response,
            () = self.state.phase.reached(Phase::Stopping) => {
                self.state.note_cancelled();
                let error = status::shutting_down();
                to_status(&error, id.as_ref().map(CallId::text).unwrap_or_default()).into_http()
            }
        }
    }

    /// Finds the session of a call: that of its session token, that of its cookie, or one of its own.
    async fn find_session(
        &self,
        request: &Request<Incoming>,
        peer: &ClientPeer,
    ) -> Result<CallSession> {
        let headers = request.headers();
        let text =
            |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let shown = text(hyper::header::AUTHORIZATION);
        if let Some((scheme, token)) = shown.split_once(' ')
            && scheme.eq_ignore_ascii_case("bearer")
            && token.trim().starts_with(SESSION_TOKEN_PREFIX)
        {
            let found = self.sessions.find(&self.state, token.trim());
            return found.map(CallSession::Lasting);
        }
        let login = log_in_as(&self.state, headers, peer, Protocol::Flight).await;
        let login = login.map_err(|error| error.diagnostic)?;
        let cookies = headers.get_all(hyper::header::COOKIE).iter();
        let cookie = cookies.filter_map(|value| value.to_str().ok()).find_map(sessions::of_cookie);
        let Some(token) = cookie else { return Ok(CallSession::Login(login)) };
        match self.sessions.find(&self.state, token) {
            Ok(found) if found.session.user() == login.session().user() => {
                Ok(CallSession::Lasting(found))
            }
            Ok(_) => sessions::session_ended().err(),
            Err(error) => Err(error),
        }
    }
}
