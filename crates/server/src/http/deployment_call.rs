//! `POST /v1/deployments/{name}`: request rows in, features out.
//!
//! # Life of a request of one row
//!
//! The deployment is found by its name, with its compiled request and its schemas. The row is read
//! from the body into values of the request's types, answered, and written as the answer's body: on
//! this thread, without a queue, a plan or a tree. Many rows are answered over one view of the tables,
//! on a thread of the pool.

use std::sync::Arc;

use arrow::array::RecordBatch;
use axum::{
    extract::{Request, State},
    response::Response,
};
use lockstep_diagnostic::Diagnostic;
use lockstep_engine::{
    Output, PreparedRequest, Session,
    json_text::{write_json, write_json_array},
    text_rows::{BodyForm, JsonRowForm},
};
use lockstep_host::QueryContext;
use lockstep_row::{Arena, Datum};

use super::{
    answer_format::{BodyFormat, RowWriter, check_size, read_arrow},
    call::{DeadlineKind, HttpCall, lap, run_here, run_in_pool},
    error::{HttpError, HttpResult},
    path_names::PathNames,
    row_batches::RowBatches,
};
use crate::{
    access::Login,
    deployments::{ATTEMPTS_MAX, CachedDeployment, is_stale},
    metrics::CallPhase,
    server_state::ServerState,
    traces::CallTrace,
    work_pool::WorkClass,
};

/// A deployment with its compiled request.
type Found = (Arc<CachedDeployment>, PreparedRequest);

/// Answers a call of a deployment.
pub(crate) async fn answer(
    State(state): State<Arc<ServerState>>,
    PathNames([name]): PathNames<1>,
    request: Request,
) -> HttpResult<Response> {
    let mut call = HttpCall::begin(Arc::clone(&state), request).await?;
    call.refuse_durability()?;
    let body_format = BodyFormat::of_body(&call.headers)?;
    let answer_format = BodyFormat::of_answer(&call.headers)?;
    let name = call.qualified(name);
    if let Some(trace) = call.trace() {
        trace.set_text("lockstep.deployment", &name);
    }
    let body = call.read_body(DeadlineKind::Request).await?;
    let found = find(&state, &call.login, &name)?;
    let metrics = Arc::clone(&found.0.metrics);
    let form = BodyForm::of(&body);
    let is_one_row = body_format == BodyFormat::Json && !form.is_array;
    let answered = if is_one_row && answer_format == BodyFormat::Json && found.1.is_quick() {
        let trace = call.trace().map(Arc::as_ref);
        let one = OneRow { login: &call.login, name: &name, body: &body, form: form.rows, trace };
        let context = call.context(DeadlineKind::Request)?;
        one.answer(&state, &context, &found).map(|bytes| answer_format.response(bytes))
    } else {
        let class = if found.1.is_compiled() { WorkClass::Requests } else { WorkClass::Analytics };
        let rows = ManyRows { name, body, body_format, answer_format, form };
        let deployment = found.0;
        let work =
            move |state: &ServerState, session: &Session| rows.answer(state, session, &deployment);
        run_in_pool(&state, class, call.engine_call(DeadlineKind::Request)?, work).await
    };
    answered.inspect_err(|_| metrics.add_error())
}

/// Finds a deployment by its name.
fn find(state: &ServerState, login: &Login, name: &str) -> HttpResult<Found> {
    state.access.database().check_open()?;
    let metrics = || state.metrics.deployment(name);
    let found = login.deployments().get(name, login.session(), metrics);
    Ok(found.inspect_err(|error| state.access.forget_ended(login, error))?)
}

/// A request of one row.
#[derive(Clone, Copy)]
struct OneRow<'c> {
    login: &'c Login,
    name: &'c str,
    body: &'c [u8],
    form: JsonRowForm,
    trace: Option<&'c CallTrace>,
}

impl OneRow<'_> {
    /// Answers it. Where the deployment was replaced meanwhile, the new one answers.
    fn answer(
        self,
        state: &ServerState,
        context: &QueryContext,
        found: &Found,
    ) -> HttpResult<Vec<u8>> {
        let mut answered = self.answer_row(state, context, found);
        for _ in 1..ATTEMPTS_MAX {
            if !answered.as_ref().is_err_and(|error| is_stale(&error.diagnostic)) {
                break;
            }
            self.login.deployments().remove(self.name);
            let found = find(state, self.login, self.name)?;
            answered = self.answer_row(state, context, &found);
        }
        let ended = |error: &HttpError| state.access.forget_ended(self.login, &error.diagnostic);
        let bytes = answered.inspect_err(ended)?;
        check_size(bytes.len(), state.settings().answer_bytes_max)?;
        Ok(bytes)
    }

    /// Reads the row, answers it and writes the answer.
    fn answer_row(
        self,
        state: &ServerState,
        context: &QueryContext,
        (deployment, request): &Found,
    ) -> HttpResult<Vec<u8>> {
        let (clock, metrics) = (&state.clock, &deployment.metrics);
        let arena = Arena::new();
        let begun_ns = clock.monotonic_ns();
        let mut at_ns = begun_ns;
        let row = deployment.input.read_row(self.body, &arena)?;
        let read_ns = lap(clock, &mut at_ns);
        metrics.record(CallPhase::Read, read_ns);
        let answer = run_here(context, || request.answer(row.values, &arena))?;
        let answer_ns = lap(clock, &mut at_ns);
        metrics.record(CallPhase::Answer, answer_ns);
        let bytes = write_row(deployment, answer, self.form);
        metrics.record(CallPhase::Write, lap(clock, &mut at_ns));
        metrics.add_rows(1);
        if let Some(trace) = self.trace {
            let answered_from = begun_ns + read_ns;
            trace.phase("parse", begun_ns, answered_from);
            trace.phase("execute", answered_from, answered_from + answer_ns);
            trace.phase("render", answered_from + answer_ns, at_ns);
            trace.set_number("lockstep.rows", 1);
        }
        Ok(bytes)
    }
}

/// Writes an answer; `null` where a WHERE drops the row.
fn write_row(
    deployment: &CachedDeployment,
    answer: Option<&[Datum<'_>]>,
    form: JsonRowForm,
) -> Vec<u8> {
    let Some(answer) = answer else { return b"null".to_vec() };
    let mut out = Vec::with_capacity(deployment.keys.len() * 24);
    match form {
        JsonRowForm::Arrays => write_json_array(&mut out, answer),
        JsonRowForm::Objects => {
            out.push(b'{');
            for (at, (key, value)) in deployment.keys.iter().zip(answer).enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(key);
                write_json(&mut out, value);
            }
            out.push(b'}');
        }
    }
    out
}

/// A request of many rows, or in another format than JSON.
struct ManyRows {
    name: String,
    body: axum::body::Bytes,
    body_format: BodyFormat,
    answer_format: BodyFormat,
    form: BodyForm,
}

impl ManyRows {
    /// Answers all rows over one view of the tables.
    fn answer(
        &self,
        state: &ServerState,
        session: &Session,
        deployment: &CachedDeployment,
    ) -> HttpResult<Response> {
        let (clock, metrics) = (&state.clock, &deployment.metrics);
        let mut at_ns = clock.monotonic_ns();
        let rows = self.read(deployment)?;
        metrics.record(CallPhase::Read, lap(clock, &mut at_ns));
        let output = session.request(&self.name, &rows)?;
        metrics.record(CallPhase::Answer, lap(clock, &mut at_ns));
        let bytes = self.write(deployment, &output, state.settings().answer_bytes_max)?;
        metrics.record(CallPhase::Write, lap(clock, &mut at_ns));
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        metrics.add_rows(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(self.answer_format.response(bytes))
    }

    /// Reads the rows.
    fn read(&self, deployment: &CachedDeployment) -> HttpResult<Vec<RecordBatch>> {
        let schema = &deployment.input;
        let mut batches = RowBatches::new(schema.columns());
        match (self.body_format, self.form.is_array) {
            (BodyFormat::Json, false) => {
                batches.push(&schema.read_row(&self.body, &Arena::new())?)?;
            }
            (BodyFormat::Json, true) => schema.read_array(&self.body, |row| batches.push(row))?,
            (BodyFormat::NdJson, _) => schema.read_lines(&self.body, |row| batches.push(row))?,
            (BodyFormat::Arrow, _) => return read_arrow(&self.body),
            (BodyFormat::Csv, _) => {
                let message = "request rows in CSV are not supported";
                return Err(Diagnostic::unsupported(message)
                    .with_hint("Send request rows as JSON, NDJSON or Arrow.")
                    .into());
            }
        }
        Ok(batches.finish()?)
    }

    /// Writes the answers. One row in JSON has one answer.
    fn write(
        &self,
        deployment: &CachedDeployment,
        output: &Output,
        bytes_max: u64,
    ) -> HttpResult<Vec<u8>> {
        let form = match self.body_format {
            BodyFormat::Json => self.form.rows,
            BodyFormat::NdJson => BodyForm::of(&self.body).rows,
            BodyFormat::Csv | BodyFormat::Arrow => JsonRowForm::Objects,
        };
        let writer = RowWriter::new(&deployment.output, bytes_max);
        let is_one = self.body_format == BodyFormat::Json && !self.form.is_array;
        if self.answer_format != BodyFormat::Json || !is_one {
            return writer.rows(output, self.answer_format, form);
        }
        match output.row_count() {
            0 => Ok(b"null".to_vec()),
            1 => {
                let lines = writer.json_lines(output, form)?;
                Ok(lines.trim_ascii_end().to_vec())
            }
            count => {
                let message = format!("the request row has {count} result rows");
                let diagnostic =
                    Diagnostic::new(lockstep_diagnostic::code::CARDINALITY_VIOLATION, message);
                let hint = "Send the row in an array to get an array of all result rows.";
                Err(HttpError::from(diagnostic.with_hint(hint)))
            }
        }
    }
}
