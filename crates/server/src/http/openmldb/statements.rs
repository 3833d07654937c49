//! `POST /dbs/{db}`: statements, with parameters or as a request.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use lockstep_engine::{Output, Parameter, Session};
use lockstep_row::{DataType, Datum};
use serde_json::value::RawValue;

use super::{
    super::{
        answer_format::{check_size, for_each_row},
        call::{DeadlineKind, HttpCall, run_in_pool},
        error::HttpResult,
        path_names::PathNames,
        row_batches::RowBatches,
        sql_call::parse_script,
    },
    body::{Members, ValueSchema, is_true, items, members},
    ok, refusal,
    values::{NonFinite, result_type, type_of, write_row},
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// Which data a statement is about, and how it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementMode {
    /// Stored rows.
    Online,
    /// Files; the call returns when the statement has ended, or before.
    Offline { is_synchronous: bool },
    /// A query over one request row.
    Request,
}

impl StatementMode {
    fn of(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "online" | "onsync" => Self::Online,
            "offsync" => Self::Offline { is_synchronous: true },
            "offasync" => Self::Offline { is_synchronous: false },
            "request" => Self::Request,
            _ => return None,
        })
    }

    /// Sets a session to the mode.
    fn apply(self, session: &Session) -> HttpResult<()> {
        let script = match self {
            Self::Online | Self::Request => "SET @@execute_mode = 'online'",
            Self::Offline { is_synchronous: true } => {
                "SET @@execute_mode = 'offline'; SET @@sync_job = true"
            }
            Self::Offline { is_synchronous: false } => {
                "SET @@execute_mode = 'offline'; SET @@sync_job = false"
            }
        };
        session.execute(script)?;
        Ok(())
    }
}

/// A statement of a call.
struct StatementCall {
    mode: StatementMode,
    sql: String,
    input: Vec<(Box<RawValue>, DataType)>,
    non_finite: NonFinite,
}

/// Runs the statements of a call in a session of their own.
pub(super) async fn run(
    State(state): State<Arc<ServerState>>,
    PathNames([database]): PathNames<1>,
    request: Request,
) -> HttpResult<Response> {
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    let body = call.read_body(DeadlineKind::Statement).await?;
    let members = members(&body).map_err(|_failure| refusal("Json parse failed"))?;
    let statement = StatementCall::of(&members)?;
    let engine_call = call.engine_call(DeadlineKind::Statement)?;
    if statement.mode == StatementMode::Request {
        let engine_call = engine_call.in_database(Some(database));
        return run_in_pool(&state, WorkClass::Requests, engine_call, move |state, session| {
            statement.mode.apply(session)?;
            statement.answer(&statement.request(session)?, state.settings().answer_bytes_max)
        })
        .await;
    }
    let script = parse_script(&state, &statement.sql).await?;
    // CREATE DATABASE may be called at the path of what it makes.
    let database = (!is_about_databases(&statement.sql)).then_some(database);
    let engine_call = engine_call.in_database(database);
    let class = engine_call.class_of(&script, |session| match statement.mode {
        StatementMode::Online => statement.parameters(session).ok(),
        StatementMode::Offline { .. } | StatementMode::Request => None,
    });
    run_in_pool(&state, class, engine_call, move |state, session| {
        statement.mode.apply(session)?;
        let output = session.run_script(&script, &statement.parameters(session)?)?;
        statement.answer(&output, state.settings().answer_bytes_max)
    })
    .await
}

/// Returns whether a statement is one of databases, which needs none to be there.
fn is_about_databases(sql: &str) -> bool {
    let mut words = sql.split_ascii_whitespace().map(str::to_ascii_uppercase);
    let first = words.next();
    match (first.as_deref(), words.next().as_deref()) {
        (Some("CREATE" | "DROP"), Some("DATABASE")) => true,
        (Some("SHOW"), Some(second)) => second.trim_end_matches(';') == "DATABASES",
        _ => false,
    }
}

impl StatementCall {
    fn of(members: &Members) -> HttpResult<Self> {
        let text = |name: &str| {
            let text = members.get(name).and_then(|value| serde_json::from_str(value.get()).ok());
            text.ok_or_else(|| refusal(format!("Json parse failed, {name} is not a string")))
        };
        let (mode, sql): (String, String) = (text("mode")?, text("sql")?);
        let Some(mode) = StatementMode::of(&mode) else {
            return Err(refusal(format!("Invalid mode {}", mode.to_ascii_lowercase())));
        };
        let input = match members.get("input") {
            Some(input) if input.get() != "null" => typed_values(input)?,
            _ => Vec::new(),
        };
        let is_null = is_true(members, "write_nan_and_inf_null");
        let non_finite = if is_null { NonFinite::Null } else { NonFinite::Words };
        Ok(Self { mode, sql, input, non_finite })
    }

    /// Returns the values for each `?`.
    fn parameters(&self, session: &Session) -> HttpResult<Vec<Parameter>> {
        let name = |at: usize| format!("parameter {}", at + 1);
        let types = self.input.iter().map(|(_, data_type)| data_type);
        let columns: Vec<_> = types.enumerate().map(|(at, t)| (name(at), t.clone())).collect();
        let values: Vec<&RawValue> = self.input.iter().map(|(value, _)| value.as_ref()).collect();
        ValueSchema::new(&columns, session.conversion()).read(&values, |row| {
            let pair = |(value, (_, data_type)): (&Datum<'_>, &(String, DataType))| {
                (value.to_value(), data_type.clone())
            };
            Ok(row.values.iter().zip(&columns).map(pair).collect())
        })
    }

    /// Answers a query for the request row that the call has.
    fn request(&self, session: &Session) -> HttpResult<Output> {
        let columns = session.prepare_request(&self.sql)?.input().to_vec();
        let values: Vec<&RawValue> = self.input.iter().map(|(value, _)| value.as_ref()).collect();
        let mut batches = RowBatches::new(&columns);
        let schema = ValueSchema::new(&columns, session.conversion());
        schema.read(&values, |row| batches.push(row))?;
        Ok(session.request(&self.sql, &batches.finish()?)?)
    }

    /// Writes the rows of an output; a statement without rows has none.
    fn answer(&self, output: &Output, bytes_max: u64) -> HttpResult<Response> {
        if output.columns.is_empty() {
            return Ok(ok(b""));
        }
        let types: Vec<_> = output.columns.iter().map(|(_, t)| result_type(t)).collect();
        let types = serde_json::Value::from(types);
        let mut data = format!(",\"data\":{{\"schema\":{types},\"data\":[").into_bytes();
        let mut is_first = true;
        for_each_row(output, |row| {
            if !std::mem::replace(&mut is_first, false) {
                data.push(b',');
            }
            let values = row.iter().map(|value| ("", value));
            write_row(&mut data, values, false, self.non_finite);
            check_size(data.len(), bytes_max)
        })?;
        data.extend_from_slice(b"]}");
        Ok(ok(&data))
    }
}

/// Reads `{"schema": [types], "data": [values]}`.
fn typed_values(input: &RawValue) -> HttpResult<Vec<(Box<RawValue>, DataType)>> {
    let wrong = |what: &str| refusal(format!("Json parse failed, input {what}"));
    let members: Members =
        serde_json::from_str(input.get()).map_err(|_error| wrong("is not an object"))?;
    let (Some(schema), Some(data)) = (members.get("schema"), members.get("data")) else {
        return Ok(Vec::new());
    };
    let names: Vec<String> =
        serde_json::from_str(schema.get()).map_err(|_error| wrong("has no schema of strings"))?;
    let values = items(data).ok_or_else(|| wrong("has no array of data"))?;
    if names.len() != values.len() {
        return Err(wrong("has different numbers of values and types"));
    }
    let pair = |(value, name): (&RawValue, &String)| {
        let found =
            type_of(name).ok_or_else(|| wrong(&format!("has the unrecognized type {name}")))?;
        Ok((value.to_owned(), found))
    };
    values.into_iter().zip(&names).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::{StatementMode, is_about_databases};

    #[test]
    fn the_modes_are_those_of_openmldb() {
        assert_eq!(StatementMode::of("Online"), Some(StatementMode::Online));
        let offline = StatementMode::Offline { is_synchronous: false };
        assert_eq!(StatementMode::of("offasync"), Some(offline));
        assert_eq!(StatementMode::of("offline"), None);
    }

    #[test]
    fn statements_of_databases_need_none() {
        for sql in ["create  database a;", "DROP DATABASE a", "show databases;"] {
            assert!(is_about_databases(sql), "{sql}");
        }
        for sql in ["", "create", "create table database (a int)", "show tables"] {
            assert!(!is_about_databases(sql), "{sql}");
        }
    }
}
