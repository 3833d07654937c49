//! HTTP/1.1 and HTTP/2: the connection, the routes, and the frame of every call.
//!
//! A call gets a request id, is counted, and is answered; each route has its file. A request of one
//! row is answered on the thread that read it; everything that may take longer goes to a pool
//! (`work_pool`).

mod answer_format;
mod append_call;
mod authorization;
mod call;
mod csv_text;
mod deployment_call;
mod error;
mod health;
mod openapi;
mod openmldb;
mod origin;
mod path_names;
mod row_batches;
mod sql_call;
mod subscription;
mod watched_body;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, Version},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::future::{Either, select};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::{
    access::ClientPeer,
    call_id::CallId,
    connections::ActiveCall,
    http_connection::{HttpConnection, HttpVersions, UnfinishedCall},
    metrics::Refusal,
    phase::Phase,
    protocol::Protocol,
    server_state::ServerState,
    traces::TRACE_PARENT,
};
use error::HttpError;
use watched_body::WatchedBody;

pub(crate) use authorization::log_in_as;
pub(crate) use call::{context_of, lap};
pub(crate) use lockstep_engine::json_text::push_json;

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
        .route("/v1/subscriptions/{name}", get(subscription::follow))
        .route("/v1/tables/{name}", post(append_call::append))
        .merge(openmldb::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

async fn not_found(request: Request) -> HttpError {
    let message = format!("path {} does not exist", request.uri().path());
    HttpError::protocol(StatusCode::NOT_FOUND, message).with_openmldb(openmldb::NO_MATCH)
}

async fn wrong_method(request: Request) -> HttpError {
    let message =
        format!("path {} does not support method {}", request.uri().path(), request.method());
    HttpError::protocol(StatusCode::METHOD_NOT_ALLOWED, message).with_openmldb(openmldb::NO_MATCH)
}

/// Serves a connection until it ends, the client is too slow, or the server drains.
pub(crate) async fn serve_connection<S>(
    state: Arc<ServerState>,
    routes: Router,
    stream: S,
    peer: ClientPeer,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shared = Arc::clone(&state);
    let handle = move |mut request: hyper::Request<Incoming>, call: ActiveCall| {
        request.extensions_mut().insert(peer.clone());
        let (state, routes) = (Arc::clone(&shared), routes.clone());
        let is_framed = request.version() == Version::HTTP_2;
        async move {
            let unfinished = UnfinishedCall::begin(&state);
            let response = answer(&state, routes, request.map(Body::new)).await;
            unfinished.finish();
            let activity = call.end();
            match is_framed {
                true => response.map(|body| Body::new(WatchedBody::new(body, &activity))),
                false => response,
            }
        }
    };
    HttpConnection { state: &state, versions: HttpVersions::All }.serve(stream, handle).await;
}

/// Answers a call: gives it an id, counts it, and makes the body of an error.
async fn answer(state: &Arc<ServerState>, routes: Router, mut request: Request) -> Response {
    let begun_ns = state.clock.monotonic_ns();
    let id = CallId::begin(state, context_of(request.headers()), begun_ns);
    request.extensions_mut().insert(id.clone());
    let target = (request.method().clone(), request.uri().path().to_owned());
    let has_tls = || state.tls(Protocol::Http).is_some();
    let allowed =
        origin::check_host(&request).and_then(|()| origin::check_origin(&request, has_tls));
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
    finish_trace(&target, &id, &mut response);
    let took_ns = state.clock.monotonic_ns().saturating_sub(begun_ns);
    state.metrics.record_response(response.status().as_u16(), took_ns);
    log_call(state, &target, &id, response.status(), took_ns);
    response
}

/// Ends the trace of a call, if it is traced, and says in the answer which one it is.
fn finish_trace(
    (method, path): &(axum::http::Method, String),
    id: &CallId,
    response: &mut Response,
) {
    let Some(trace) = id.trace() else { return };
    if let Ok(value) = HeaderValue::from_str(&trace.header()) {
        response.headers_mut().insert(TRACE_PARENT, value);
    }
    let status = response.status();
    trace.set_number("http.response.status_code", status.as_u16().into());
    let is_error = status.is_client_error() || status.is_server_error();
    trace.finish(format!("{method} {path}"), is_error.then(|| status.to_string()));
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
