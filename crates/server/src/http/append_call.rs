//! `POST /v1/tables/{name}`: appends rows, all or none.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::{
    body::Bytes,
    extract::{Request, State},
    response::Response,
};
use lockstep_diagnostic::{Diagnostic, code};
use lockstep_engine::{
    Durability, Session,
    text_rows::{BodyForm, CsvSchema, KeyRule, RowSchema},
};
use lockstep_row::Arena;
use serde_json::json;

use super::{
    answer_format::{BodyFormat, read_arrow},
    call::{DeadlineKind, HttpCall, run_in_pool},
    error::HttpResult,
    path_names::PathNames,
    row_batches::RowBatches,
    sql_call::warnings_json,
};
use crate::{append_columns::append_columns, server_state::ServerState, work_pool::WorkClass};

/// Appends the rows of a body. They are answered when they are as durable as `durability` says.
pub(crate) async fn append(
    State(state): State<Arc<ServerState>>,
    PathNames([name]): PathNames<1>,
    request: Request,
) -> HttpResult<Response> {
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    let format = BodyFormat::of_body(&call.headers)?;
    let durability = call.parameters.durability.as_deref().map(durability).transpose()?;
    let name = call.qualified(name);
    let body = call.read_body(DeadlineKind::Request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?;
    run_in_pool(&state, WorkClass::Writes, engine_call, move |_, session| {
        let batches = read_rows(session, &name, &body, format)?;
        let output = session.append_batches_as(&name, &batches, durability)?;
        let body = json!({
            "rows": output.rows_affected.unwrap_or(0),
            "warnings": warnings_json(&output.warnings),
        });
        Ok(BodyFormat::Json.response(body.to_string().into_bytes()))
    })
    .await
}

/// Reads what the append waits for.
fn durability(text: &str) -> HttpResult<Durability> {
    match text {
        "memory" => Ok(Durability::Memory),
        "os" => Ok(Durability::Os),
        "disk" => Ok(Durability::Disk),
        _ => {
            let message = format!(
                "invalid value for parameter `durability`: '{text}' (expected disk, os or memory)"
            );
            Err(Diagnostic::new(code::INVALID_PARAMETER, message).into())
        }
    }
}

/// Reads the rows of a table.
fn read_rows(
    session: &Session,
    table: &str,
    body: &Bytes,
    format: BodyFormat,
) -> HttpResult<Vec<RecordBatch>> {
    let columns = append_columns(session, table)?;
    if format == BodyFormat::Arrow {
        return read_arrow(body);
    }
    let conversion = session.conversion();
    let mut batches = RowBatches::new(&columns);
    let schema = RowSchema::new(&columns, conversion, KeyRule::Some);
    match (format, BodyForm::of(body).is_array) {
        (BodyFormat::Csv, _) => {
            CsvSchema { columns: &columns, conversion }.read(body, |row| batches.push(row))?;
        }
        (BodyFormat::Json, true) => schema.read_array(body, |row| batches.push(row))?,
        (BodyFormat::Json, false) => batches.push(&schema.read_row(body, &Arena::new())?)?,
        (BodyFormat::NdJson | BodyFormat::Arrow, _) => {
            schema.read_lines(body, |row| batches.push(row))?;
        }
    }
    Ok(batches.finish()?)
}
