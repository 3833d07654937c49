//! `/healthz`, `/readyz` and `/metrics`: what load balancers and monitors ask.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use lockstep_engine::{Output, Session};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use super::{
    call::{DeadlineKind, HttpCall, run_in_pool},
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
    let deployments = visible_deployments(session)?;
    state.metrics.write(&mut text, |called| {
        let name = called.replace('`', "");
        let is_qualified = name.contains('.');
        let name = if is_qualified { name } else { format!("default.{name}") };
        deployments.contains(name.trim())
    });
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
    write_tables(text, session)?;
    write_indexes(text, session)?;
    Ok(std::mem::take(text))
}

/// Returns the deployments that the user of a session may see, as `database.name`.
fn visible_deployments(session: &Session) -> HttpResult<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let sql = "SELECT database_name, name FROM lockstep.deployments";
    for_each_row(&query(session, sql)?, |values| {
        if let [Datum::String(database), Datum::String(name)] = values {
            names.insert(format!("{database}.{name}"));
        }
    });
    Ok(names)
}

/// Writes the rows and the memory of tables.
fn write_tables(text: &mut String, session: &Session) -> HttpResult<()> {
    let sql = "SELECT database_name, name, `rows`, memory_bytes FROM lockstep.tables";
    let output = query(session, sql)?;
    let metrics = [
        ("lockstep_table_rows", "Rows of each table.", 2),
        ("lockstep_table_bytes", "Bytes of each table with its indexes.", 3),
    ];
    for (metric, help, column) in metrics {
        head(text, metric, "gauge", help);
        for_each_row(&output, |values| {
            if let [Datum::String(database), Datum::String(name), ..] = values
                && let Some(number) = values[column].as_i64()
            {
                line(text, metric, &label("table", &format!("{database}.{name}")), number);
            }
        });
    }
    Ok(())
}

/// Writes the memory of indexes.
fn write_indexes(text: &mut String, session: &Session) -> HttpResult<()> {
    let sql = "SELECT database_name, table_name, name, memory_bytes FROM lockstep.indexes";
    head(text, "lockstep_index_bytes", "gauge", "Bytes of each index.");
    for_each_row(&query(session, sql)?, |values| {
        if let [Datum::String(database), Datum::String(table), Datum::String(name), bytes] = values
            && let Some(bytes) = bytes.as_i64()
        {
            let table = label("table", &format!("{database}.{table}"));
            let labels = format!("{table},{}", label("index", name));
            line(text, "lockstep_index_bytes", &labels, bytes);
        }
    });
    Ok(())
}

/// Passes the values of each row of an output to `give`.
fn for_each_row(output: &Output, mut give: impl FnMut(&[Datum<'_>])) {
    for batch in &output.batches {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        let arena = Arena::new();
        for row in 0..batch.num_rows() {
            let values: Vec<Datum<'_>> =
                readers.iter().map(|reader| reader.get(row, &arena)).collect();
            give(&values);
        }
    }
}
