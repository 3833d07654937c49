//! HTTP/1.1 and HTTP/2: the connection, the routes, and the frame of every call.
//!
//! A call gets a request id, is counted, and is answered; each route has its file. A request of one
//! row is answered on the thread that read it; everything that may take longer goes to a pool
//! (`work_pool`).

mod answer_format;
mod append_call;
mod authorization;
mod call;
mod csv_rows;
mod deployment_call;
mod error;
mod health;
mod json_rows;
mod json_text;
mod openapi;
mod openmldb;
mod origin;
mod path_names;
mod row_batches;
mod sql_call;
mod watched_body;

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, Version},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::future::{Either, select};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::{
    connections::{Activity, WatchedStream},
    metrics::Refusal,
    phase::Phase,
    protocol::Protocol,
    server_state::ServerState,
};
use call::{CallId, ClientAddress};
use error::HttpError;
use watched_body::WatchedBody;

pub(crate) use json_rows::{KeyRule, RowSchema};
pub(crate) use json_text::push_json;

/// The streams of an HTTP/2 connection that are open at the same time.
const STREAMS_MAX: u32 = 128;

/// How often a connection is checked for a client that does nothing.
const CHECK_MS_MAX: u64 = 5_000;

/// Makes the routes.
pub(crate) fn routes(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/", get(openapi::page))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/v1/deployments/{name}", post(deployment_call::answer))
        .route("/v1/sql", post(sql_call::run))
        .route("/v1/tables/{name}", post(append_call::append))
        .merge(openmldb::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

async fn not_found(request: Request) -> HttpError {
    let message = format!("there is nothing at {}", request.uri().path());
    HttpError::protocol(StatusCode::NOT_FOUND, message).with_openmldb(openmldb::NO_MATCH)
}

async fn wrong_method(request: Request) -> HttpError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    HttpError::protocol(StatusCode::METHOD_NOT_ALLOWED, message).with_openmldb(openmldb::NO_MATCH)
}

/// Serves a connection until it ends, the client is too slow, or the server drains.
pub(crate) async fn serve_connection<S>(
    state: Arc<ServerState>,
    routes: Router,
    stream: S,
    address: IpAddr,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::new(Arc::clone(&state.clock));
    let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(&activity)));
    let service = service_fn({
        let (state, activity) = (Arc::clone(&state), Arc::clone(&activity));
        move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ClientAddress(address));
            let (state, routes) = (Arc::clone(&state), routes.clone());
            let call = activity.begin_call();
            let is_framed = request.version() == Version::HTTP_2;
            let activity = Arc::clone(&activity);
            async move {
                let mut unfinished = UnfinishedCall { state: &state, is_finished: false };
                let response = answer(&state, routes, request.map(Body::new)).await;
                unfinished.is_finished = true;
                drop((unfinished, call));
                Ok::<_, Infallible>(match is_framed {
                    true => response.map(|body| Body::new(WatchedBody::new(body, &activity))),
                    false => response,
                })
            }
        }
    });
    let builder = connection_builder(&state);
    let connection = builder.serve_connection(stream, service);
    tokio::pin!(connection);
    let draining = state.phase.reached(Phase::Draining);
    tokio::pin!(draining);
    let mut is_ending = false;
    loop {
        let check = tokio::time::sleep(check_interval(&state));
        tokio::select! {
            // An error is the client's: a broken connection or a broken protocol.
            _ended = connection.as_mut() => return,
            () = draining.as_mut(), if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = state.phase.reached(Phase::Stopping), if is_ending => {
                if activity.is_busy() {
                    state.note_cancelled();
                }
                return;
            }
            () = check => {
                let settings = state.settings();
                let is_slow = activity.write_waits_ms() >= settings.write_timeout_ms
                    || activity.answer_waits_ms() >= settings.write_timeout_ms
                    || activity.request_waits_ms() >= settings.header_timeout_ms;
                if is_slow {
                    state.metrics.add_refused(Refusal::Timeout);
                    return;
                }
                if activity.idle_ms() >= settings.idle_timeout_ms {
                    return;
                }
            }
        }
    }
}

/// A call that may be dropped before its answer: where the server has ended, that is noted.
struct UnfinishedCall<'s> {
    state: &'s ServerState,
    is_finished: bool,
}

impl Drop for UnfinishedCall<'_> {
    fn drop(&mut self) {
        if !self.is_finished && self.state.phase.get() == Phase::Stopping {
            self.state.note_cancelled();
        }
    }
}

/// Returns how long to wait before a connection is checked again.
fn check_interval(state: &ServerState) -> Duration {
    let settings = state.settings();
    let shortest = settings.write_timeout_ms.min(settings.idle_timeout_ms);
    let shortest = shortest.min(settings.header_timeout_ms);
    Duration::from_millis((shortest / 2).clamp(1, CHECK_MS_MAX))
}

/// Makes the reader of a connection with the limits of the settings.
fn connection_builder(state: &ServerState) -> auto::Builder<TokioExecutor> {
    let settings = state.settings();
    let header_bytes = usize::try_from(settings.header_bytes_max).unwrap_or(usize::MAX);
    let header_list = u32::try_from(settings.header_bytes_max).unwrap_or(u32::MAX);
    let header_timeout = Duration::from_millis(settings.header_timeout_ms);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // Hyper's own timeout for headers counts from the end of the call before. `serve_connection`
        // counts from their first byte.
        .header_read_timeout(None)
        .max_buf_size(header_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(header_list)
        .keep_alive_interval(Duration::from_millis(settings.idle_timeout_ms))
        .keep_alive_timeout(header_timeout);
    builder
}

/// Answers a call: gives it an id, counts it, and makes the body of an error.
async fn answer(state: &Arc<ServerState>, routes: Router, mut request: Request) -> Response {
    let begun_ns = state.clock.monotonic_ns();
    let id = CallId::of(request.headers(), begun_ns);
    request.extensions_mut().insert(id.clone());
    let target = (request.method().clone(), request.uri().path().to_owned());
    let allowed = origin::check_origin(&request, || state.tls(Protocol::Http).is_some());
    let answered = Box::pin(async move {
        match allowed {
            Ok(()) => routes.oneshot(request).await,
            Err(error) => Ok(error.into_response()),
        }
    });
    let stopping = Box::pin(state.phase.reached(Phase::Stopping));
    let mut response = match select(answered, stopping).await {
        Either::Left((Ok(response), _)) => response,
        Either::Right(((), _)) => {
            state.note_cancelled();
            HttpError::from(crate::work_pool::NoResult::Closed).into_response()
        }
    };
    if let Some(error) = response.extensions_mut().remove::<HttpError>() {
        let is_openmldb = openmldb::has_path(&target.1);
        let error = if is_openmldb { error.for_openmldb() } else { error };
        if error.status() == StatusCode::TOO_MANY_REQUESTS {
            state.metrics.add_refused(Refusal::Overload);
        } else if error.status() == StatusCode::UNAUTHORIZED {
            state.metrics.add_refused(Refusal::Login);
        }
        let headers = std::mem::take(response.headers_mut());
        let with_body = error.response(id.text());
        response = with_body;
        response.headers_mut().extend(headers.into_iter().filter(|(name, _)| {
            name.as_ref().is_some_and(|name| *name == axum::http::header::ALLOW)
        }));
        log_error(&error, &id);
    }
    if let Ok(value) = HeaderValue::from_str(id.text()) {
        response.headers_mut().insert(call::REQUEST_ID, value);
    }
    let took_ns = state.clock.monotonic_ns().saturating_sub(begun_ns);
    state.metrics.record_response(response.status().as_u16(), took_ns);
    log_call(state, &target, &id, response.status(), took_ns);
    response
}

/// Logs a call: as a warning where it was slow.
fn log_call(
    state: &ServerState,
    (method, path): &(axum::http::Method, String),
    id: &CallId,
    status: StatusCode,
    took_ns: u64,
) {
    let (request_id, status, us) = (id.text(), status.as_u16(), took_ns / 1_000);
    let slow_ms = state.settings().slow_request_ms;
    if slow_ms > 0 && took_ns / 1_000_000 >= slow_ms {
        tracing::warn!(request_id, %method, path, status, us, "slow request");
    } else {
        tracing::debug!(request_id, %method, path, status, us, "request");
    }
}

/// Logs an error that is the server's.
fn log_error(error: &HttpError, id: &CallId) {
    let (code, message) = (error.diagnostic.code, &error.diagnostic.message);
    if error.status() == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(request_id = id.text(), code, %message, "internal error");
    }
}
