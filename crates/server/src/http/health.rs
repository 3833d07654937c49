//! `/healthz`, `/readyz` and `/metrics`: what load balancers and monitors ask.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use super::{
    call::{DeadlineKind, HttpCall, open_session, run_in_pool},
    error::HttpResult,
    sql_call::query,
};
use crate::{
    metrics::{head, label, line},
    phase::Phase,
    server_state::ServerState,
    work_pool::WorkClass,
};

/// Says that the process runs.
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Says whether calls should be sent here: not while the server drains, nor once its database was
/// closed.
pub(crate) async fn readyz(State(state): State<Arc<ServerState>>) -> Response {
    if state.phase.get() != Phase::Serving {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    match state.access.database().check_open() {
        Ok(()) => "ready\n".into_response(),
        Err(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", error.message)).into_response()
        }
    }
}

/// Returns all figures in the text form of Prometheus.
pub(crate) async fn metrics(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> HttpResult<Response> {
    let call = HttpCall::new(Arc::clone(&state), request)?;
    let context = call.context(DeadlineKind::Request)?;
    // In the pool of requests: a flood of analytics does not hide what it does.
    let text = run_in_pool(&state, WorkClass::Requests, context, figures).await?;
    let mut response = text.into_response();
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    Ok(response)
}

/// Writes the figures of the server and of the engine.
fn figures(state: &ServerState) -> HttpResult<String> {
    let mut text = String::new();
    state.metrics.write(&mut text);
    let text = &mut text;
    head(text, "lockstep_connections", "gauge", "Connections that are open.");
    line(text, "lockstep_connections", "", state.connections.open());
    head(text, "lockstep_calls_in_progress", "gauge", "Calls that wait for a pool or run in it.");
    for (class, count) in state.pools.in_progress() {
        line(text, "lockstep_calls_in_progress", &label("class", class.name()), count);
    }
    let memory = state.access.database().memory_use();
    head(text, "lockstep_memory_bytes", "gauge", "Bytes that all tables hold.");
    line(text, "lockstep_memory_bytes", "", memory.used);
    head(text, "lockstep_memory_refused_total", "counter", "Writes refused for their memory.");
    line(text, "lockstep_memory_refused_total", "", memory.refused);
    if let Some(limit) = memory.limit {
        head(text, "lockstep_memory_limit_bytes", "gauge", "Bytes that all tables may hold.");
        line(text, "lockstep_memory_limit_bytes", "", limit);
    }
    let session = open_session(state, None)?;
    let parts = query(&session, "SHOW MEMORY")?;
    head(text, "lockstep_object_bytes", "gauge", "Bytes of each table, its rows and each index.");
    parts.batches.iter().for_each(|batch| write_parts(text, batch));
    Ok(std::mem::take(text))
}

/// Writes the memory of tables and indexes: (scope, name, bytes) of SHOW MEMORY.
fn write_parts(text: &mut String, batch: &RecordBatch) {
    let readers: Vec<ColumnReader<'_>> =
        batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
    let arena = Arena::new();
    for row in 0..batch.num_rows() {
        let values: Vec<Datum<'_>> = readers.iter().map(|reader| reader.get(row, &arena)).collect();
        if let [Datum::String(scope), Datum::String(name), bytes, ..] = values.as_slice()
            && let Some(bytes) = bytes.as_i64()
        {
            let labels = format!("{},{}", label("scope", scope), label("name", name));
            line(text, "lockstep_object_bytes", &labels, bytes);
        }
    }
}
