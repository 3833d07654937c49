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
    response::{ResultColumn, RowFormat, row_description},
    rows::RowCursor,
    value_input::WireFormat,
};
use crate::{
    deployments::{CachedDeployment, is_stale},
    metrics::CallPhase,
    work_pool::WorkClass,
};

impl Connection {
    /// Answers a request of one row in this task, and writes its row. Returns the number of rows, or
    /// `None` where the deployment takes long and has to run in a pool.
    pub(crate) fn call_here(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
        formats: &[WireFormat],
        is_described: bool,
    ) -> Result<Option<usize>> {
        if let Some(trace) = self.trace() {
            trace.set_text("lockstep.deployment", &call.deployment);
        }
        let mut answered = self.try_call_here(call, parameters, formats, is_described);
        if answered.as_ref().is_err_and(|error| is_stale(error)) {
            self.deployments.remove(&call.deployment);
            answered = self.try_call_here(call, parameters, formats, is_described);
        }
        answered
    }

    fn try_call_here(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
        formats: &[WireFormat],
        is_described: bool,
    ) -> Result<Option<usize>> {
        let state = Arc::clone(&self.state);
        let (deployment, request) = self.deployment(call)?;
        if !request.is_compiled() {
            return Ok(None);
        }
        let (clock, metrics) = (&state.clock, &deployment.metrics);
        let begun_ns = clock.monotonic_ns();
        let values: Vec<Value> = parameters.iter().map(|(value, _)| value.clone()).collect();
        let row = call.row(CallColumns::of(&request), &values, &self.input_rules())?;
        let row: Vec<Datum<'_>> =
            row.iter().map(|value| value.as_scalar().unwrap_or(Datum::Null)).collect();
        let chosen = call.choose(&deployment.output)?;
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
        let column = |(at, name): &(usize, String)| {
            let data_type = deployment.output[*at].1.clone();
            (name.clone(), data_type)
        };
        let columns = ResultColumn::of(&chosen.iter().map(column).collect::<Vec<_>>());
        let zone = self.zone();
        let out = &mut self.frames.output;
        if is_described {
            row_description(out, &columns, formats);
        }
        if let Some(answer) = answered {
            let row: Vec<Datum<'_>> = chosen.iter().map(|(at, _)| answer[*at]).collect();
            RowFormat { columns: &columns, formats, zone }.data_row(out, &row)?;
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

    /// Answers a request of a deployment that is not compiled.
    pub(crate) async fn call_in_pool(
        &mut self,
        call: &FunctionCall,
        parameters: &[Parameter],
    ) -> Result<StatementAnswer, ClientFailure> {
        let (deployment, request) = self.deployment(call)?;
        let values: Vec<Value> = parameters.iter().map(|(value, _)| value.clone()).collect();
        let row = call.row(CallColumns::of(&request), &values, &self.input_rules())?;
        let batch = one_row(request.input(), &row)?;
        let chosen = call.choose(&deployment.output)?;
        let name = call.deployment.clone();
        let run = move |session: &Session| session.request(&name, &[batch]);
        let output = self.run_in_pool(WorkClass::Analytics, run).await?;
        deployment.metrics.add_rows(1);
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
