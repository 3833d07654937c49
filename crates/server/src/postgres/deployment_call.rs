//! What runs a deployment that is called as a function: in the task of the connection, or in a pool.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::{Parameter, PreparedRequest, Session, guarded};
use lockstep_host::{QueryContext, QueryLimits};
use lockstep_row::{
    Arena, DataType, Datum, Value,
    arrow::{ColumnBuilder, arrow_type},
};

use super::{
    ClientFailure,
    connection::Connection,
    execution::StatementAnswer,
    function_call::{CallColumns, FunctionCall},
    portal::check_described,
    response::{ResultColumn, RowFormat, row_description},
    rows::RowCursor,
    value_input::WireFormat,
};
use crate::{
    deployments::{ATTEMPTS_MAX, CachedDeployment, answer_columns, is_stale},
    metrics::CallPhase,
    work_pool::WorkClass,
};

/// What the client knows of the columns of a call's answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DescribedAnswer<'d> {
    /// Nothing: it is told before the row.
    Missing,
    /// What it was told, where Describe was sent; the row has to be of these types.
    Told(Option<&'d [ResultColumn]>),
}

impl Connection {
    /// Answers a request of one row in this task, and writes its row. Returns the number of rows, or
    /// `None` where the deployment takes long and has to run in a pool.
    pub(crate) fn call_here(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
        formats: &[WireFormat],
        description: DescribedAnswer<'_>,
    ) -> Result<Option<usize>> {
        if let Some(trace) = self.trace() {
            trace.set_text("lockstep.deployment", &call.deployment);
        }
        let mut answered = self.try_call_here(call, parameters, formats, description);
        for _ in 1..ATTEMPTS_MAX {
            if !answered.as_ref().is_err_and(|error| is_stale(error)) {
                break;
            }
            self.deployments.remove(&call.deployment);
            answered = self.try_call_here(call, parameters, formats, description);
        }
        answered
    }

    fn try_call_here(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
        formats: &[WireFormat],
        description: DescribedAnswer<'_>,
    ) -> Result<Option<usize>> {
        let state = Arc::clone(&self.state);
        let (deployment, request) = self.deployment(call)?;
        if !request.is_quick() {
            return Ok(None);
        }
        let (clock, metrics) = (&state.clock, &deployment.metrics);
        let begun_ns = clock.monotonic_ns();
        let values: Vec<Value> = parameters.iter().map(|(value, _)| value.clone()).collect();
        let row = call.row(CallColumns::of(&request), &values, &self.input_rules())?;
        let row: Vec<Datum<'_>> =
            row.iter().map(|value| value.as_scalar().unwrap_or(Datum::Null)).collect();
        let columns = chosen_columns(call, &deployment.output)?;
        if let DescribedAnswer::Told(Some(described)) = description {
            check_described(described, &columns.told)?;
        }
        let read_ns = clock.monotonic_ns();
        metrics.record(CallPhase::Read, read_ns.saturating_sub(begun_ns));
        let timeout_ms = Some(state.settings().request_timeout_ms);
        let limits = QueryLimits { timeout_ms, ..QueryLimits::default() };
        let arena = Arena::new();
        let answered = QueryContext::limited(clock, limits)
            .run(|| guarded(|| request.answer(&row, &arena)))
            .inspect_err(|_error| metrics.add_error())?;
        let answered_ns = clock.monotonic_ns();
        metrics.record(CallPhase::Answer, answered_ns.saturating_sub(read_ns));
        let zone = self.zone();
        let out = &mut self.frames.output;
        if matches!(description, DescribedAnswer::Missing) {
            row_description(out, &columns.told, formats);
        }
        if let Some(answer) = answered {
            let row: Vec<Datum<'_>> = columns.positions.iter().map(|at| answer[*at]).collect();
            RowFormat { columns: &columns.told, formats, zone }.data_row(out, &row)?;
        }
        let written_ns = clock.monotonic_ns();
        metrics.record(CallPhase::Write, written_ns.saturating_sub(answered_ns));
        metrics.add_rows(1);
        if let Some(trace) = self.trace() {
            trace.phase("parse", begun_ns, read_ns);
            trace.phase("execute", read_ns, answered_ns);
            trace.phase("render", answered_ns, written_ns);
            trace.set_number("lockstep.rows", 1);
        }
        Ok(Some(usize::from(answered.is_some())))
    }

    /// Answers a request that takes long, or may wait for a disk.
    pub(crate) async fn call_in_pool(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
    ) -> Result<StatementAnswer, ClientFailure> {
        let (deployment, request) = self.deployment(call)?;
        let values: Vec<Value> = parameters.iter().map(|(value, _)| value.clone()).collect();
        let row = call.row(CallColumns::of(&request), &values, &self.input_rules())?;
        let batch = one_row(request.input(), &row)?;
        call.choose(&deployment.output)?;
        let name = call.deployment.clone();
        let run = move |session: &Session| session.request(&name, &[batch]);
        let class = match request.is_compiled() {
            true => WorkClass::Requests,
            false => WorkClass::Analytics,
        };
        let output = self.run_in_pool(class, run).await?;
        deployment.metrics.add_rows(1);
        // Those of the answer: the deployment may have been replaced meanwhile.
        let chosen = call.choose(&answer_columns(&output.columns))?;
        Ok(StatementAnswer::rows("SELECT", RowCursor::of_columns(output, &chosen)))
    }

    /// Returns the deployment of a call with its compiled request.
    pub(crate) fn deployment(
        &self,
        call: &FunctionCall,
    ) -> Result<(Arc<CachedDeployment>, PreparedRequest)> {
        self.state.access.database().check_open()?;
        let metrics = || self.state.metrics.deployment(&call.deployment);
        let found = guarded(|| self.deployments.get(&call.deployment, &self.session, metrics));
        found.map_err(|error| Box::new(error.at(call.span())))
    }
}

/// The columns of an answer that a call wants: what the client is told, and their positions in it.
struct ChosenColumns {
    told: Vec<ResultColumn>,
    positions: Vec<usize>,
}

fn chosen_columns(call: &FunctionCall, output: &[(String, DataType)]) -> Result<ChosenColumns> {
    let chosen = call.choose(output)?;
    let positions = chosen.iter().map(|(at, _)| *at).collect();
    let columns = chosen.into_iter().map(|(at, name)| (name, output[at].1.clone()));
    Ok(ChosenColumns { told: ResultColumn::of(&columns.collect::<Vec<_>>()), positions })
}

/// Makes a batch of one row.
fn one_row(columns: &[(String, DataType)], row: &[Value]) -> Result<RecordBatch> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for ((name, data_type), value) in columns.iter().zip(row) {
        let mut builder = ColumnBuilder::new(data_type, 1);
        builder.push(value.as_scalar().unwrap_or(Datum::Null));
        fields.push(Field::new(name, arrow_type(data_type), true));
        arrays.push(builder.finish());
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
}
