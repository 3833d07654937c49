//! Databases and tables, and one row into a table.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Request, State},
    http::header,
    response::Response,
};
use lockstep_diagnostic::code;
use lockstep_engine::{DatabaseInfo, Session};
use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema};
use serde_json::{Value, json};

use super::{
    super::{
        call::{DeadlineKind, HttpCall, run_in_pool},
        error::HttpResult,
        path_names::PathNames,
        row_batches::RowBatches,
    },
    body::{ValueSchema, items, members},
    ok, refusal, refusal_of,
    values::column_type,
};
use crate::{append_columns::append_columns, server_state::ServerState, work_pool::WorkClass};

/// The database that every directory has, and OpenMLDB has not.
const DEFAULT_DATABASE: &str = "default";

/// Milliseconds of a minute, the unit of a TTL.
const MINUTE_MS: i64 = 60_000;

/// `GET /dbs`: lists the databases.
pub(super) async fn databases(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> HttpResult<Response> {
    look(state, request, |session| {
        let found = session.databases()?;
        let names: Vec<&str> =
            found.iter().filter(|info| is_listed(info)).map(|info| info.name.as_str()).collect();
        Ok(("dbs", json!(names)))
    })
    .await
}

/// Returns whether a database is one that somebody has made, or has put something into.
fn is_listed(info: &DatabaseInfo) -> bool {
    let DatabaseInfo { name, tables, deployments, procedures } = info;
    let has_objects = !(tables.is_empty() && deployments.is_empty() && procedures.is_empty());
    name != DEFAULT_DATABASE || has_objects
}

/// `GET /dbs/{db}/tables`: describes all tables of a database.
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    PathNames([database]): PathNames<1>,
    request: Request,
) -> HttpResult<Response> {
    look(state, request, move |session| {
        let info = find_database(session, &database)?;
        let table = |name: &String| table_json(session, &database, name);
        let tables: Vec<Value> = info.tables.iter().map(table).collect::<HttpResult<_>>()?;
        Ok(("tables", tables.into()))
    })
    .await
}

/// `GET /dbs/{db}/tables/{table}`: describes a table.
pub(super) async fn describe(
    State(state): State<Arc<ServerState>>,
    PathNames([database, table]): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    look(state, request, move |session| {
        find_database(session, &database)?;
        let found = table_json(session, &database, &table);
        let described = found.map_err(|error| match error.diagnostic.code {
            code::UNDEFINED_TABLE => refusal_of("Table not found", &error),
            _ => error,
        });
        Ok(("table", described?))
    })
    .await
}

/// Answers a call with one member that the catalog says.
async fn look(
    state: Arc<ServerState>,
    request: Request,
    find: impl FnOnce(&Session) -> HttpResult<(&'static str, Value)> + Send + 'static,
) -> HttpResult<Response> {
    let call = HttpCall::begin(Arc::clone(&state), request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?;
    run_in_pool(&state, WorkClass::Requests, engine_call, move |_, session| {
        let (member, value) = find(session)?;
        Ok(ok(format!(",\"{member}\":{value}").as_bytes()))
    })
    .await
}

fn find_database(session: &Session, name: &str) -> HttpResult<DatabaseInfo> {
    let found = session.databases()?.into_iter().find(|info| info.name == name);
    found.ok_or_else(|| refusal("DB not found"))
}

/// Describes a table. What is about the parts and copies of OpenMLDB's tables is that of a table with one
/// part and one copy.
fn table_json(session: &Session, database: &str, name: &str) -> HttpResult<Value> {
    let schema = session.table_schema(&format!("{database}.{name}"))?;
    let column = |column: &Column| {
        let data_type = column_type(&column.data_type);
        json!({"name": column.name, "type": data_type, "not_null": !column.nullable})
    };
    let present = schema.indexes.iter().filter(|index| !index.is_removed());
    Ok(json!({
        "name": name,
        "table_partition_size": 1,
        "partition_num": 1,
        "replica_num": 1,
        "column_desc": schema.columns.iter().map(column).collect::<Vec<_>>(),
        "column_key": present.map(|index| index_json(&schema, index)).collect::<Vec<_>>(),
        "added_column_desc": [],
        "format_version": 1,
        "db": database,
        "partition_key": [],
        "schema_versions": [],
    }))
}

/// Describes an index.
fn index_json(schema: &TableSchema, index: &IndexSpec) -> Value {
    let name = |column: &usize| schema.columns[*column].name.as_str();
    let minutes = |ttl_ms: i64| ttl_ms / MINUTE_MS;
    let ttl = match index.retention {
        Retention::Forever => json!({"ttl_type": "absolute", "abs_ttl": 0}),
        Retention::Absolute { ttl_ms } => {
            json!({"ttl_type": "absolute", "abs_ttl": minutes(ttl_ms)})
        }
        Retention::Latest { latest } => json!({"ttl_type": "latest", "lat_ttl": latest}),
        Retention::AbsOrLat { ttl_ms, latest } => {
            json!({"ttl_type": "absorlat", "abs_ttl": minutes(ttl_ms), "lat_ttl": latest})
        }
        Retention::AbsAndLat { ttl_ms, latest } => {
            json!({"ttl_type": "absandlat", "abs_ttl": minutes(ttl_ms), "lat_ttl": latest})
        }
    };
    let mut found = json!({
        "index_name": index.name,
        "col_name": index.keys.iter().map(name).collect::<Vec<_>>(),
        "flag": 0,
        "ttl": ttl,
    });
    if let Some(event_time) = &index.event_time {
        found["ts_name"] = name(event_time).into();
    }
    found
}

/// `PUT /dbs/{db}/tables/{table}`: appends one row.
pub(super) async fn put(
    State(state): State<Arc<ServerState>>,
    PathNames([database, table]): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    let headers = request.headers();
    let has_body = headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING)
        || request.version() == axum::http::Version::HTTP_2;
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    if !has_body {
        return Err(refusal("fail to make a put request to table. there is no body"));
    }
    let body = call.read_body(DeadlineKind::Request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?;
    run_in_pool(&state, WorkClass::Writes, engine_call, move |_, session| {
        append_row(session, &format!("{database}.{table}"), &body)?;
        Ok(ok(b""))
    })
    .await
}

/// Appends the one row of a body.
fn append_row(session: &Session, table: &str, body: &Bytes) -> HttpResult<()> {
    let members = members(body)
        .map_err(|failure| refusal(format!("Json parse failed, error code: {}", failure.0)))?;
    let rows = members.get("value").and_then(|value| items(value)).unwrap_or_default();
    let only = match rows.as_slice() {
        [only] => items(only),
        _ => None,
    };
    let wrong = || refusal("Invalid value in body, only support to put one row");
    let values = only.ok_or_else(wrong)?;
    let columns: Vec<(String, DataType)> = append_columns(session, table)?;
    let failed = |error| refusal_of("Translate to insert row failed", &error);
    if values.len() != columns.len() {
        return Err(failed(refusal("column size != schema size")));
    }
    let mut batches = RowBatches::new(&columns);
    let schema = ValueSchema::new(&columns, session.conversion());
    schema.read(&values, |row| batches.push(row)).map_err(failed)?;
    let appended = session.append_batches_as(table, &batches.finish()?, None);
    appended.map(|_output| ()).map_err(|error| {
        let is_null = error.code == code::NOT_NULL_VIOLATION;
        if is_null { failed(error.into()) } else { error.into() }
    })
}
