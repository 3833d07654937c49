//! Deployments and procedures: request rows in, answers out; and what they take and give.
//!
//! A column of a procedure that is CONST is sent once for all rows, in `common_cols`, and what is copied
//! from such columns is answered once, in `common_cols_data`.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Request, State},
    response::Response,
};
use lockstep_diagnostic::code;
use lockstep_engine::{DeploymentInfo, Output, ProcedureInfo, Session};
use lockstep_row::DataType;
use serde_json::{Value, json, value::RawValue};

use super::{
    super::{
        answer_format::{check_size, for_each_row},
        call::{DeadlineKind, HttpCall, run_in_pool},
        error::{HttpError, HttpResult},
        path_names::PathNames,
        row_batches::RowBatches,
    },
    body::{Members, ValueSchema, is_true, items, members, values_by_name},
    ok, refusal, refusal_of,
    values::{NonFinite, schema_type, write_row},
};
use crate::{server_state::ServerState, work_pool::WorkClass};

/// What answers request rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestTarget {
    Deployment,
    Procedure,
}

/// `GET /dbs/{db}/deployments/{name}`: describes a deployment.
pub(super) async fn deployment(
    State(state): State<Arc<ServerState>>,
    PathNames(names): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    describe(state, request, names, RequestTarget::Deployment).await
}

/// `GET /dbs/{db}/procedures/{name}`: describes a procedure.
pub(super) async fn procedure(
    State(state): State<Arc<ServerState>>,
    PathNames(names): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    describe(state, request, names, RequestTarget::Procedure).await
}

/// `POST /dbs/{db}/deployments/{name}`: answers request rows with a deployment.
pub(super) async fn deployed(
    State(state): State<Arc<ServerState>>,
    PathNames(names): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    answer(state, request, names, RequestTarget::Deployment).await
}

/// `POST /dbs/{db}/procedures/{name}`: answers request rows with a procedure.
pub(super) async fn called(
    State(state): State<Arc<ServerState>>,
    PathNames(names): PathNames<2>,
    request: Request,
) -> HttpResult<Response> {
    answer(state, request, names, RequestTarget::Procedure).await
}

async fn describe(
    state: Arc<ServerState>,
    request: Request,
    names: [String; 2],
    target: RequestTarget,
) -> HttpResult<Response> {
    let call = HttpCall::begin(Arc::clone(&state), request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?;
    run_in_pool(&state, WorkClass::Requests, engine_call, move |_, session| {
        let data = RequestShape::find(session, &names, target)?.describe();
        Ok(ok(format!(",\"data\":{data}").as_bytes()))
    })
    .await
}

async fn answer(
    state: Arc<ServerState>,
    request: Request,
    names: [String; 2],
    target: RequestTarget,
) -> HttpResult<Response> {
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    let body = call.read_body(DeadlineKind::Request).await?;
    let engine_call = call.engine_call(DeadlineKind::Request)?;
    run_in_pool(&state, WorkClass::Requests, engine_call, move |state, session| {
        let bytes_max = state.settings().answer_bytes_max;
        answer_rows(session, &names, target, &body, bytes_max)
    })
    .await
}

/// Answers the rows of a body over one view of the tables. What is wrong with the body is said before
/// what is wrong with the name, as in OpenMLDB.
fn answer_rows(
    session: &Session,
    names: &[String; 2],
    target: RequestTarget,
    body: &Bytes,
    bytes_max: u64,
) -> HttpResult<Response> {
    let members = members(body).map_err(|_failure| refusal("Json parse failed"))?;
    let common = common_values(&members)?;
    let rows = members.get("input").and_then(|input| items(input)).unwrap_or_default();
    let Some(first) = rows.first() else { return Err(refusal("Invalid input")) };
    let is_object = first.get().starts_with('{');
    let shape = RequestShape::find(session, names, target)?;
    let expected = shape.common_input.iter().filter(|is_common| **is_common).count();
    if common.len() != expected {
        return Err(refusal("Invalid common cols size"));
    }
    let schema = ValueSchema::new(&shape.input, session.conversion());
    let mut batches = RowBatches::new(&shape.input);
    for row in rows {
        let parts = RowParts::read(row, &shape)?;
        let values = parts.values(&shape, &common)?;
        let read = schema.read(&values, |row| batches.push(row));
        read.map_err(|error| refusal_of("Translate to request row failed", &error))?;
    }
    let rows = batches.finish()?;
    let name = format!("{}.{}", names[0], names[1]);
    let output = match target {
        RequestTarget::Deployment => session.request(&name, &rows)?,
        RequestTarget::Procedure => session.request_procedure(&name, &rows)?,
    };
    let is_null = is_true(&members, "write_nan_and_inf_null");
    let non_finite = if is_null { NonFinite::Null } else { NonFinite::Words };
    let mut data = b",\"data\":{".to_vec();
    if is_true(&members, "need_schema") {
        data.extend_from_slice(format!("\"schema\":{},", schema_json(&shape.output)).as_bytes());
    }
    shape.write(&mut data, &output, AnswerForm { is_object, non_finite, bytes_max })?;
    data.push(b'}');
    Ok(ok(&data))
}

/// Reads the values of the columns that all rows share.
fn common_values(members: &Members) -> HttpResult<Vec<&RawValue>> {
    let Some(common) = members.get("common_cols") else { return Ok(Vec::new()) };
    items(common).ok_or_else(|| refusal("common_cols is not array"))
}

/// The columns of a deployment or a procedure.
struct RequestShape {
    name: String,
    sql: String,
    input: Vec<(String, DataType)>,
    output: Vec<(String, DataType)>,
    common_input: Vec<bool>,
    common_output: Vec<bool>,
    tables: Vec<(String, String)>,
}

/// How an answer is written.
#[derive(Clone, Copy)]
struct AnswerForm {
    is_object: bool,
    non_finite: NonFinite,
    bytes_max: u64,
}

impl RequestShape {
    /// Finds a deployment or a procedure.
    fn find(session: &Session, names: &[String; 2], target: RequestTarget) -> HttpResult<Self> {
        let [database, name] = names;
        let qualified = format!("{database}.{name}");
        let found = match target {
            RequestTarget::Deployment => session.deployment(&qualified).map(Self::of_deployment),
            RequestTarget::Procedure => session.procedure(&qualified).map(Self::of_procedure),
        };
        found.map_err(|error| {
            let error = HttpError::from(error);
            let is_missing =
                [code::UNDEFINED_OBJECT, code::UNDEFINED_DATABASE].contains(&error.diagnostic.code);
            if !is_missing {
                return error;
            }
            let message = format!("procedure not found, msg: {name} does not exist in {database}");
            refusal_of(message, &error)
        })
    }

    fn of_deployment(info: DeploymentInfo) -> Self {
        Self {
            common_input: vec![false; info.input.len()],
            common_output: vec![false; info.output.len()],
            sql: format!("DEPLOY {} {};", info.name, info.sql),
            name: info.name,
            input: info.input,
            output: info.output,
            tables: info.tables,
        }
    }

    fn of_procedure(info: ProcedureInfo) -> Self {
        Self {
            sql: format!("{};", info.sql),
            name: info.name,
            input: info.input,
            output: info.output,
            common_input: info.common_input,
            common_output: info.common_output,
            tables: info.tables,
        }
    }

    fn describe(&self) -> Value {
        let common = |columns: &[(String, DataType)], is_common: &[bool]| -> Vec<String> {
            let chosen = columns.iter().zip(is_common).filter(|(_, is_common)| **is_common);
            chosen.map(|((name, _), _)| name.clone()).collect()
        };
        json!({
            "name": self.name,
            "procedure": self.sql,
            "input_schema": schema_json(&self.input),
            "input_common_cols": common(&self.input, &self.common_input),
            "output_schema": schema_json(&self.output),
            "output_common_cols": common(&self.output, &self.common_output),
            "dbs": self.tables.iter().map(|(database, _)| database).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        })
    }

    /// Writes the answers, and the values that are equal in all of them.
    fn write(&self, out: &mut Vec<u8>, output: &Output, form: AnswerForm) -> HttpResult<()> {
        let AnswerForm { is_object, non_finite, bytes_max } = form;
        let (mut common, mut is_first) = (Vec::new(), true);
        out.extend_from_slice(b"\"data\":[");
        for_each_row(output, |row| {
            let columns = self.output.iter().zip(row).zip(&self.common_output);
            let value = |is_wanted: bool| {
                let chosen = columns.clone().filter(move |(_, is_common)| **is_common == is_wanted);
                chosen.map(|(((name, _), value), _)| (name.as_str(), value))
            };
            if is_first {
                write_row(&mut common, value(true), false, non_finite);
            } else {
                out.push(b',');
            }
            is_first = false;
            write_row(out, value(false), is_object, non_finite);
            check_size(out.len(), bytes_max)
        })?;
        out.extend_from_slice(b"],\"common_cols_data\":");
        out.extend_from_slice(if is_first { b"[]" } else { &common });
        Ok(())
    }
}

/// Describes columns.
fn schema_json(columns: &[(String, DataType)]) -> Value {
    let column = |(name, data_type): &(String, DataType)| json!({"name": name, "type": schema_type(data_type)});
    columns.iter().map(column).collect()
}

/// The values of a row as they were sent.
enum RowParts<'r> {
    /// Those of the columns that are not common, in order.
    Values(Vec<&'r RawValue>),
    /// Those of all columns that are not common, and maybe others, by name.
    Named(Members),
}

impl<'r> RowParts<'r> {
    fn read(row: &'r RawValue, shape: &RequestShape) -> HttpResult<Self> {
        if row.get().starts_with('{') {
            let members = serde_json::from_str(row.get());
            return members.map(Self::Named).map_err(|_error| refusal("Json parse failed"));
        }
        let own = shape.common_input.iter().filter(|is_common| !**is_common).count();
        match items(row) {
            Some(values) if values.len() == own => Ok(Self::Values(values)),
            _ => Err(refusal("Invalid input data row")),
        }
    }

    /// Returns the values of all columns.
    fn values<'v>(
        &'v self,
        shape: &RequestShape,
        common: &[&'v RawValue],
    ) -> HttpResult<Vec<&'v RawValue>> {
        let columns = shape.input.iter().zip(&shape.common_input);
        let own: Vec<(String, DataType)> = columns
            .filter(|(_, is_common)| !**is_common)
            .map(|(column, _)| column.clone())
            .collect();
        let own = match self {
            Self::Values(values) => values.clone(),
            Self::Named(members) => values_by_name(members, &own)
                .map_err(|error| refusal_of("Translate to request row failed", &error))?,
        };
        let (mut own, mut common) = (own.into_iter(), common.iter().copied());
        let value = |is_common: &bool| if *is_common { common.next() } else { own.next() };
        Ok(shape.common_input.iter().filter_map(value).collect())
    }
}
