//! `/healthz`, `/readyz` and `/metrics`: what load balancers and monitors ask.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lockstep_engine::{ConnectorInfo, Session, StreamInfo, TableFigures};

use super::{
    call::{DeadlineKind, HttpCall, run_in_pool},
    error::HttpResult,
};
use crate::{
    metrics::definition::{self, Metric},
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
    let mut write = |metric: &Metric, value: u64| {
        metric.head(text);
        metric.line(text, &[], value);
    };
    write(&definition::CONNECTIONS_OPEN, state.connections.open());
    let memory = state.access.database().memory_use();
    write(&definition::MEMORY, memory.used);
    write(&definition::MEMORY_REFUSED, memory.refused);
    if let Some(limit) = memory.limit {
        write(&definition::MEMORY_LIMIT, limit);
    }
    let pages = state.access.database().page_cache();
    write(&definition::PAGE_CACHE_BYTES, pages.bytes);
    write(&definition::PAGE_CACHE_HITS, pages.hits);
    write(&definition::PAGE_CACHE_READS, pages.reads);
    write(&definition::ROWS_TO_LOAD, state.access.database().rows_to_load());
    let figures = state.access.database().pre_aggregate_figures();
    write(&definition::PRE_AGGREGATE_BYTES, figures.memory_bytes);
    write(&definition::ANSWERS_CHECKED, figures.answers_checked);
    write(&definition::ANSWERS_DIFFERING, figures.differences);
    definition::CALLS_IN_PROGRESS.head(text);
    for (class, count) in state.pools.in_progress() {
        definition::CALLS_IN_PROGRESS.line(text, &[class.name()], count);
    }
    definition::TRACED_CALLS.head(text);
    for (outcome, count) in state.trace_counts().named() {
        definition::TRACED_CALLS.line(text, &[outcome], count);
    }
    write_tables(text, &session.table_figures()?);
    write_streams(text, &session.stream_figures()?);
    write_connectors(text, &session.connector_figures()?);
    Ok(std::mem::take(text))
}

/// Writes what streams have done, and have.
fn write_streams(text: &mut String, streams: &[StreamInfo]) {
    let mut write = |metric: &Metric, value: &dyn Fn(&StreamInfo) -> Option<u64>| {
        metric.head(text);
        for stream in streams {
            let name = format!("{}.{}", stream.database, stream.name);
            if let Some(value) = value(stream) {
                metric.line(text, &[&name], value);
            }
        }
    };
    write(&definition::STREAM_ROWS_READ, &|stream| Some(stream.rows_read));
    write(&definition::STREAM_ROWS_WRITTEN, &|stream| Some(stream.rows_written));
    write(&definition::STREAM_ROWS_LATE, &|stream| Some(stream.rows_late));
    write(&definition::STREAM_RUNNING, &|stream| Some(u64::from(stream.state == "running")));
    write(&definition::STREAM_LAG, &|stream| {
        stream.lag_ms.map(|lag_ms| u64::try_from(lag_ms).unwrap_or(0))
    });
    write(&definition::STREAM_BYTES, &|stream| Some(stream.memory_bytes));
}

/// Writes what sources and sinks have done.
fn write_connectors(text: &mut String, connectors: &[ConnectorInfo]) {
    let mut write = |metric: &Metric, value: &dyn Fn(&ConnectorInfo) -> Option<u64>| {
        metric.head(text);
        for connector in connectors {
            let kind = if connector.is_source { "source" } else { "sink" };
            let name = format!("{}.{}", connector.database, connector.name);
            let labels = [kind, name.as_str()];
            let labels = if metric.labels.len() == 2 { &labels[..] } else { &labels[1..] };
            if let Some(value) = value(connector) {
                metric.line(text, labels, value);
            }
        }
    };
    write(&definition::CONNECTOR_MESSAGES, &|connector| Some(connector.messages));
    write(&definition::CONNECTOR_RUNNING, &|connector| {
        Some(u64::from(connector.state == "running"))
    });
    write(&definition::SOURCE_BAD_MESSAGES, &|found| found.is_source.then_some(found.bad));
    write(&definition::SOURCE_LAG, &|found| found.is_source.then_some(found.lag));
    write(&definition::SINK_LAG, &|found| (!found.is_source).then_some(found.lag));
}

/// Writes the rows and the memory of tables and of their indexes.
fn write_tables(text: &mut String, tables: &[TableFigures]) {
    let name_of = |table: &TableFigures| format!("{}.{}", table.database, table.name);
    definition::TABLE_ROWS.head(text);
    for table in tables {
        definition::TABLE_ROWS.line(text, &[&name_of(table)], table.rows);
    }
    definition::TABLE_BYTES.head(text);
    for table in tables {
        definition::TABLE_BYTES.line(text, &[&name_of(table)], table.memory_bytes);
    }
    definition::INDEX_BYTES.head(text);
    for table in tables {
        for index in &table.indexes {
            if let Some(bytes) = index.memory_bytes {
                definition::INDEX_BYTES.line(text, &[&name_of(table), &index.name], bytes);
            }
        }
    }
}
