//! `/healthz`, `/readyz` and `/metrics`: what load balancers and monitors ask.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lockstep_engine::{Session, TableFigures};

use super::{
    call::{DeadlineKind, HttpCall, run_in_pool},
    error::HttpResult,
};
use crate::{
    metrics::{head, label, line},
    phase::Phase,
    server_state::ServerState,
    work_pool::WorkClass,
};

/// The database of a call that names none.
const DEFAULT_DATABASE: &str = "default";

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
    let call = HttpCall::begin(Arc::clone(&state), request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?.of_monitor();
    // In the pool of requests: a flood of analytics does not hide what it does.
    let text = run_in_pool(&state, WorkClass::Requests, engine_call, figures).await?;
    let mut response = text.into_response();
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    Ok(response)
}

/// Writes the figures of the server and of the engine; of deployments, tables and indexes those that the
/// user may see.
fn figures(state: &ServerState, session: &Session) -> HttpResult<String> {
    let mut text = String::new();
    let databases = session.databases()?;
    state.metrics.write(&mut text, |called| {
        let name = called.replace('`', "");
        let (database, name) = name.split_once('.').unwrap_or((DEFAULT_DATABASE, &name));
        let found = databases.iter().find(|info| info.name == database.trim());
        found.is_some_and(|info| info.deployments.iter().any(|known| known == name.trim()))
    });
    let text = &mut text;
    head(text, "lockstep_connections", "gauge", "Connections that are open.");
    line(text, "lockstep_connections", "", state.connections.open());
    head(text, "lockstep_calls_in_progress", "gauge", "Calls that wait for a pool or run in it.");
    for (class, count) in state.pools.in_progress() {
        line(text, "lockstep_calls_in_progress", &label("class", class.name()), count);
    }
    let traced = "lockstep_traced_calls_total";
    head(text, traced, "counter", "Traced calls by what became of them.");
    for (outcome, count) in state.trace_counts().named() {
        line(text, traced, &label("outcome", outcome), count);
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
    let figures = state.access.database().pre_aggregate_figures();
    let bytes = "lockstep_pre_aggregate_bytes";
    head(text, bytes, "gauge", "Bytes of partial results of long windows.");
    line(text, bytes, "", figures.memory_bytes);
    let checked = "lockstep_pre_aggregate_checked_total";
    head(text, checked, "counter", "Answers that were computed again from rows alone.");
    line(text, checked, "", figures.answers_checked);
    let differences = "lockstep_pre_aggregate_differences_total";
    head(text, differences, "counter", "Such answers that differed.");
    line(text, differences, "", figures.differences);
    write_tables(text, &session.table_figures()?);
    Ok(std::mem::take(text))
}

/// Writes the rows and the memory of tables and of their indexes.
fn write_tables(text: &mut String, tables: &[TableFigures]) {
    let label_of =
        |table: &TableFigures| label("table", &format!("{}.{}", table.database, table.name));
    head(text, "lockstep_table_rows", "gauge", "Rows of each table.");
    for table in tables {
        line(text, "lockstep_table_rows", &label_of(table), table.rows);
    }
    head(text, "lockstep_table_bytes", "gauge", "Bytes of each table with its indexes.");
    for table in tables {
        line(text, "lockstep_table_bytes", &label_of(table), table.memory_bytes);
    }
    head(text, "lockstep_index_bytes", "gauge", "Bytes of each index.");
    for table in tables {
        for index in &table.indexes {
            if let Some(bytes) = index.memory_bytes {
                let labels = format!("{},{}", label_of(table), label("index", &index.name));
                line(text, "lockstep_index_bytes", &labels, bytes);
            }
        }
    }
}
