//! `POST /v1/sql`: statements in, the rows of the last one out.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_engine::{
    Output, Parameter, ParsedScript, QueryContext, guarded,
    text_rows::{JsonRowForm, number},
};
use lockstep_row::{DataType, Value};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    answer_format::{BodyFormat, RowWriter},
    call::{DeadlineKind, HttpCall, run_in_pool},
    error::HttpResult,
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// The body of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SqlBody {
    sql: String,
    #[serde(default)]
    parameters: Vec<Box<RawValue>>,
    database: Option<String>,
}

impl SqlBody {
    fn read(body: &[u8]) -> HttpResult<Self> {
        let wrong = |found: &str| {
            Diagnostic::new(code::INVALID_PARAMETER, format!("invalid request body: {found}"))
                .with_hint(
                    "Send a JSON object with `sql` and, optionally, `parameters` and `database`.",
                )
        };
        // An array could be read as the members in their order.
        match body.trim_ascii_start().first() {
            Some(b'{') => {}
            Some(_) => return Err(wrong("not a JSON object").into()),
            None => return Err(wrong("the body is empty").into()),
        }
        Ok(serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?)
    }
}

/// Runs statements in a session of their own.
pub(crate) async fn run(
    State(state): State<Arc<ServerState>>,
    request: Request,
) -> HttpResult<Response> {
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    call.refuse_durability()?;
    let format = BodyFormat::of_answer(&call.headers)?;
    let body = call.read_body(DeadlineKind::Statement).await?;
    let mut body = SqlBody::read(&body)?;
    body.database = body.database.or_else(|| call.parameters.database.take());
    let parameters: Vec<Parameter> =
        body.parameters.iter().map(|value| parameter(value.get())).collect::<HttpResult<_>>()?;
    let begun_ns = state.clock.monotonic_ns();
    let script = parse_script(&state, &body.sql).await?;
    let trace = call.trace().cloned();
    if let Some(trace) = &trace {
        trace.phase_since("parse", begun_ns);
    }
    let engine_call = call.engine_call(DeadlineKind::Statement)?.in_database(body.database);
    let class = engine_call.class_of(&script, |_| Some(parameters.clone()));
    run_in_pool(&state, class, engine_call, move |state, session| {
        let output = session.run_script(&script, &parameters)?;
        let begun_ns = state.clock.monotonic_ns();
        let bytes = write_output(&output, format, state.settings().answer_bytes_max)?;
        if let Some(trace) = trace {
            trace.phase_since("render", begun_ns);
            trace.set_number("lockstep.rows", u64::try_from(output.row_count()).unwrap_or(0));
        }
        Ok(format.response(bytes))
    })
    .await
}

/// The longest script that is parsed on the thread that reads requests, in bytes: some 100 microseconds.
const PARSED_HERE_BYTES_MAX: usize = 4_096;

/// Parses a script. A long one is parsed on a thread that writes, since most long ones are INSERTs.
pub(crate) async fn parse_script(state: &ServerState, sql: &str) -> HttpResult<ParsedScript> {
    if sql.len() <= PARSED_HERE_BYTES_MAX {
        return Ok(guarded(|| ParsedScript::parse(sql))?);
    }
    let sql = sql.to_owned();
    let parse = move || guarded(|| ParsedScript::parse(&sql));
    Ok(state.pools.run(WorkClass::Writes, &QueryContext::new(), parse).await??)
}

/// Converts a parameter by its JSON type: a whole number is a BIGINT, another a DOUBLE.
fn parameter(text: &str) -> HttpResult<Parameter> {
    if let Some(number) = number(text) {
        let is_whole = !text.contains(['.', 'e', 'E']);
        return match text.parse() {
            Ok(whole) => Ok((Value::BigInt(whole), DataType::BigInt)),
            // As a DOUBLE it could become another number.
            Err(_) if is_whole => Err(out_of_range(text, &DataType::BigInt)),
            Err(_) if number.is_infinite() => Err(out_of_range(text, &DataType::Double)),
            Err(_) => Ok((Value::Double(number), DataType::Double)),
        };
    }
    Ok(match text.as_bytes() {
        b"null" => (Value::Null, DataType::Null),
        b"true" => (Value::Bool(true), DataType::Bool),
        b"false" => (Value::Bool(false), DataType::Bool),
        [b'"', ..] => {
            let text: String =
                serde_json::from_str(text).map_err(|_error| no_parameter("an invalid string"))?;
            (Value::String(text.into()), DataType::String)
        }
        [b'[', ..] => return Err(no_parameter("an array")),
        _ => return Err(no_parameter("an object")),
    })
}

fn out_of_range(number: &str, data_type: &DataType) -> super::error::HttpError {
    let shown: String = number.chars().take(60).collect();
    let message = format!("parameter value {shown} is out of range for type {data_type}");
    Diagnostic::new(code::OUT_OF_RANGE, message)
        .with_hint("Send the number as a string, and CAST it in the statement.")
        .into()
}

fn no_parameter(found: &str) -> super::error::HttpError {
    let message =
        format!("a parameter must be null, a Boolean value, a number or a string, not {found}");
    Diagnostic::new(code::INVALID_PARAMETER, message).into()
}

/// Writes the output of a statement. JSON has everything that the output has; the other formats have
/// the rows only.
fn write_output(output: &Output, format: BodyFormat, bytes_max: u64) -> HttpResult<Vec<u8>> {
    let schema = output.schema();
    let unique = schema.fields().iter().map(|field| field.name().clone());
    let columns: Vec<(String, DataType)> =
        unique.zip(&output.columns).map(|(name, (_, t))| (name, t.clone())).collect();
    let writer = RowWriter::new(&columns, bytes_max);
    if format != BodyFormat::Json {
        return writer.rows(output, format, JsonRowForm::Objects);
    }
    let columns: Vec<_> = output
        .columns
        .iter()
        .map(|(name, data_type)| json!({"name": name, "type": data_type.to_string()}))
        .collect();
    let head = json!({
        "columns": columns,
        "row_count": output.row_count(),
        "rows_affected": output.rows_affected,
        "message": output.message,
        "warnings": warnings_json(&output.warnings),
    });
    let mut out = head.to_string().into_bytes();
    assert_eq!(out.pop(), Some(b'}'), "an object ends with a brace");
    out.extend_from_slice(b",\"rows\":");
    out.extend_from_slice(&writer.json_array(output, JsonRowForm::Arrays)?);
    out.push(b'}');
    Ok(out)
}

/// Returns warnings as JSON.
pub(crate) fn warnings_json(warnings: &[Diagnostic]) -> Vec<serde_json::Value> {
    let warning = |warning: &Diagnostic| {
        let Diagnostic { code, message, detail, hint, .. } = warning;
        json!({"code": code, "message": message, "detail": detail, "hint": hint})
    };
    warnings.iter().map(warning).collect()
}
