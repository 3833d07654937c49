//! Statements: what they return, and their rows.
//!
//! A ticket has the text of its statement, so that the server keeps nothing between `GetFlightInfo`, which
//! tells the columns, and `DoGet`, which runs it.

use std::{convert::Infallible, sync::Arc};

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow_flight::{
    FlightDescriptor, FlightEndpoint, FlightInfo, Ticket,
    sql::{ActionCreatePreparedStatementResult, ProstMessageExt, TicketStatementQuery},
};
use bytes::Bytes;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::{
    Output, Parameter, ParsedScript, Relation, Session, StatementEffect, Subscription,
    TrainingSetOptions, guarded, is_subscription,
};
use lockstep_host::query::checkpoint;
use lockstep_protocol::{DiagnosticMessage, Execute, SessionView, StatementOutcome, TrainingSet};
use prost::Message;
use tonic::Status;

use super::{
    arrow_bytes::{names_of, parameters_in, schema_bytes, schema_of},
    call::{CallDeadline, FlightCall},
    prepared::{FlightStatement, ParameterRows},
    rows::{CHECK_INTERVAL, FlightDataStream, RowSender},
    status::malformed,
};
use crate::work_pool::WorkClass;

/// The content of a ticket: the statement, and the id by which its run can be cancelled.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatementTicket {
    #[prost(string, tag = "1")]
    sql: String,
    #[prost(string, tag = "2")]
    pub(crate) id: String,
    #[prost(bytes = "vec", tag = "3")]
    prepared: Vec<u8>,
}

/// Returns the columns of a statement's rows, where they are known without a change.
fn columns_of(session: &Session, sql: &str) -> Result<Option<SchemaRef>> {
    let found = session.describe_statement(sql)?;
    Ok(match found.effect {
        StatementEffect::Query | StatementEffect::Verifies => {
            found.columns.as_deref().map(schema_of)
        }
        StatementEffect::Reads => Some(schema_of(&session.execute(sql)?.columns)),
        StatementEffect::Other => None,
    })
}

/// Returns the columns of the rows that a statement has with these parameters, whose types decide those of
/// the columns. The first row of them decides, as where they run.
fn columns_with(session: &Session, sql: &str, rows: &ParameterRows) -> Result<Option<SchemaRef>> {
    if let Some(row) = rows.first()
        && session.statement_effect(sql)?.0 == StatementEffect::Query
    {
        return Ok(Some(schema_of(session.query_with(sql, row)?.columns())));
    }
    columns_of(session, sql)
}

/// Makes the description of a result whose rows a ticket returns.
pub(crate) fn flight_info(
    descriptor: FlightDescriptor,
    ticket: &TicketStatementQuery,
    schema: Option<&SchemaRef>,
) -> Result<FlightInfo> {
    info_of(descriptor, Ticket::new(ticket.as_any().encode_to_vec()), schema)
}

/// Makes the description of a result, with the command itself as ticket.
pub(crate) fn info_of(
    descriptor: FlightDescriptor,
    ticket: Ticket,
    schema: Option<&SchemaRef>,
) -> Result<FlightInfo> {
    let endpoint = FlightEndpoint::new().with_ticket(ticket);
    let mut info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
    if let Some(schema) = schema {
        info.schema = schema_bytes(schema)?;
    }
    Ok(info)
}

impl FlightCall {
    /// Describes a statement, and makes the ticket that runs it.
    pub(crate) async fn info_of_statement(
        &self,
        sql: String,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let ticket = StatementTicket { sql: sql.clone(), id: random_id(), prepared: Vec::new() };
        let ticket = TicketStatementQuery { statement_handle: ticket.encode_to_vec().into() };
        self.run(WorkClass::Writes, CallDeadline::Statement, move |session| {
            let schema = columns_of(session, &sql)?;
            flight_info(descriptor, &ticket, schema.as_ref())
        })
        .await
    }

    /// Describes a prepared statement.
    pub(crate) async fn info_of_prepared(
        &self,
        handle: Bytes,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let (sql, rows) = self.find_statement(&handle)?;
        let prepared = handle.to_vec();
        let ticket = StatementTicket { sql: String::new(), id: random_id(), prepared };
        let ticket = TicketStatementQuery { statement_handle: ticket.encode_to_vec().into() };
        self.run(WorkClass::Writes, CallDeadline::Statement, move |session| {
            let schema = columns_with(session, &sql, &rows)?;
            flight_info(descriptor, &ticket, schema.as_ref())
        })
        .await
    }

    /// Runs the statement of a ticket.
    pub(crate) async fn rows_of_ticket(
        &self,
        ticket: &TicketStatementQuery,
    ) -> Result<FlightDataStream, Status> {
        let decoded = StatementTicket::decode(&*ticket.statement_handle);
        let ticket = decoded.map_err(|error| self.status(&malformed(error)))?;
        let (sql, rows) = if ticket.prepared.is_empty() {
            (Arc::from(ticket.sql), Arc::default())
        } else {
            self.find_statement(&ticket.prepared)?
        };
        self.rows_of_statement(sql, rows, &ticket.id).await
    }

    /// Runs a prepared statement.
    pub(crate) async fn rows_of_prepared(&self, handle: &[u8]) -> Result<FlightDataStream, Status> {
        let (sql, rows) = self.find_statement(handle)?;
        self.rows_of_statement(sql, rows, self.id()).await
    }

    async fn rows_of_statement(
        &self,
        sql: Arc<str>,
        rows: Arc<ParameterRows>,
        id: &str,
    ) -> Result<FlightDataStream, Status> {
        let class = self.class_of(&sql, &rows);
        let stream = self.stream(class, id, move |session, sender| {
            if rows.is_empty() {
                return run_statement(session, &sql, &[], sender).map(drop);
            }
            rows.iter().try_for_each(|row| run_statement(session, &sql, row, sender).map(drop))
        })?;
        stream.into_flight_data(false).await
    }

    /// Runs a script of Lockstep's own client.
    pub(crate) async fn execute(&self, execute: Execute) -> Result<FlightDataStream, Status> {
        let parameters = parameters_in(&execute.parameters);
        let parameters = parameters.map_err(|error| self.status(&error))?;
        let class = self.class_of(&execute.sql, std::slice::from_ref(&parameters));
        let deadline = match is_subscription(&execute.sql) {
            true => CallDeadline::Never,
            false => CallDeadline::Statement,
        };
        let stream = self.stream_until(deadline, (class, self.id()), move |session, sender| {
            let mut outcome = if execute.is_query {
                run_query(session, &execute.sql, &parameters, sender)?
            } else {
                run_statement(session, &execute.sql, &parameters, sender)?
            };
            outcome.session = Some(view_of(session));
            sender.outcome(outcome)
        })?;
        stream.into_flight_data(true).await
    }

    /// Computes a training set of Lockstep's own client.
    pub(crate) async fn training_set(&self, set: TrainingSet) -> Result<FlightDataStream, Status> {
        let stream = self.stream(WorkClass::Analytics, self.id(), move |session, sender| {
            let relation = training_set(session, set)?;
            let names = names_of(relation.columns());
            sender.begin(relation.columns())?;
            let warnings = relation.run_each(None, &mut |batch| sender.rows(&batch))?;
            let (warnings, session) = (messages_of(&warnings), Some(view_of(session)));
            sender.outcome(StatementOutcome {
                names,
                warnings,
                session,
                ..StatementOutcome::default()
            })
        })?;
        stream.into_flight_data(true).await
    }

    /// Runs a statement whose rows nobody wants. Returns the rows that it wrote; -1 where it returns
    /// rows.
    pub(crate) async fn update(
        &self,
        sql: String,
        rows: Arc<ParameterRows>,
    ) -> Result<i64, Status> {
        self.run(self.class_of(&sql, &rows), CallDeadline::Statement, move |session| {
            if rows.is_empty() {
                return session.execute(&sql).map(|output| affected(&output));
            }
            let prepared = session.prepare(&sql)?;
            let mut sum = 0;
            for row in rows.iter() {
                sum += affected(&session.execute_prepared(&prepared, row)?);
            }
            Ok(sum)
        })
        .await
    }

    /// Returns the class of a script with parameters. One that reads a few rows by key does not wait for
    /// analytics; a long one is told by its first word, as long ones are mostly rows.
    fn class_of(&self, sql: &str, rows: &[Vec<Parameter>]) -> WorkClass {
        if sql.len() > PARSED_HERE_BYTES_MAX {
            let word = sql.split_whitespace().next().unwrap_or_default();
            let is_write =
                word.eq_ignore_ascii_case("insert") || word.eq_ignore_ascii_case("delete");
            return if is_write { WorkClass::Writes } else { WorkClass::Analytics };
        }
        let Ok(script) = guarded(|| ParsedScript::parse(sql)) else { return WorkClass::Analytics };
        let parameters = match rows {
            [] => Some(&[][..]),
            [only] => Some(only.as_slice()),
            _ => None,
        };
        let is_answered_by_key = |parameters| {
            script.may_be_answered_by_key()
                && guarded(|| {
                    self.with_session(|session| {
                        Ok(session.is_answered_by_key(&script, parameters, None))
                    })
                })
                .unwrap_or(false)
        };
        match parameters {
            Some(parameters) if is_answered_by_key(parameters) => WorkClass::Requests,
            _ if script.only_writes_rows() => WorkClass::Writes,
            _ => WorkClass::Analytics,
        }
    }

    /// Prepares a statement: parses it, and finds the columns of its rows.
    pub(crate) async fn prepare(
        &self,
        sql: String,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let call = self.clone();
        self.run(WorkClass::Writes, CallDeadline::Statement, move |session| {
            let schema = columns_of(session, &sql)?;
            let (_, count) = session.statement_effect(&sql)?;
            let parameter = |number: usize| {
                Field::new((number + 1).to_string(), arrow::datatypes::DataType::Null, true)
            };
            let parameters = Schema::new((0..count).map(parameter).collect::<Vec<_>>());
            let prepared = FlightStatement::Statement { sql: sql.into(), rows: Arc::default() };
            let (server, user) = (&call.server, call.session.user());
            let handle = server.prepared.keep(&server.state, user, prepared)?;
            Ok(ActionCreatePreparedStatementResult {
                prepared_statement_handle: handle.into(),
                dataset_schema: schema
                    .as_deref()
                    .map(schema_bytes)
                    .transpose()?
                    .unwrap_or_default(),
                parameter_schema: schema_bytes(&parameters)?,
            })
        })
        .await
    }

    /// Finds a prepared statement with its parameters.
    pub(crate) fn find_statement(
        &self,
        handle: &[u8],
    ) -> Result<(Arc<str>, Arc<ParameterRows>), Status> {
        let (server, user) = (&self.server, self.session.user());
        match server.prepared.find(&server.state, user, handle) {
            Ok(FlightStatement::Statement { sql, rows }) => Ok((sql, rows)),
            Ok(FlightStatement::Request { .. }) => Err(self.status(&malformed(
                "the handle identifies a prepared request, not a prepared statement",
            ))),
            Err(error) => Err(self.status(&error)),
        }
    }
}

/// Binds the training set of a deployment.
pub(crate) fn training_set(session: &Session, set: TrainingSet) -> Result<Relation> {
    let TrainingSet { deployment, main_table, as_known } = set;
    session.training_set(&deployment, &TrainingSetOptions { main_table, as_known })
}

/// Sends the rows of a subscription as they are appended, until the client ends it. Leaves its place in the pool to
/// others while there are none.
fn run_subscription(mut rows: Subscription, sender: &mut RowSender) -> Result<Infallible> {
    sender.begin(rows.columns())?;
    loop {
        checkpoint().map_err(|reason| Diagnostic::interrupted(reason.limit_ms()))?;
        match rows.next_batch()? {
            Some(batch) => sender.rows(&batch)?,
            None => sender.parked(|| rows.wait(CHECK_INTERVAL))?,
        }
    }
}

/// Runs one query and sends its rows as they are computed.
fn run_query(
    session: &Session,
    sql: &str,
    parameters: &[Parameter],
    sender: &mut RowSender,
) -> Result<StatementOutcome> {
    if let Some(rows) = session.subscription(sql)? {
        match run_subscription(rows, sender)? {}
    }
    let sender = std::cell::RefCell::new(sender);
    let mut names = Vec::new();
    let warnings = session.query_each(
        sql,
        parameters,
        &mut |columns| {
            names = names_of(columns);
            sender.borrow_mut().begin(columns)
        },
        &mut |batch| sender.borrow().rows(&batch),
    )?;
    Ok(StatementOutcome { names, warnings: messages_of(&warnings), ..StatementOutcome::default() })
}

/// Runs a script and sends the rows of its last statement.
fn run_statement(
    session: &Session,
    sql: &str,
    parameters: &[Parameter],
    sender: &mut RowSender,
) -> Result<StatementOutcome> {
    if session.statement_effect(sql)?.0 == StatementEffect::Query {
        return run_query(session, sql, parameters, sender);
    }
    let output = session.execute_with(sql, parameters)?;
    sender.output(&output)?;
    Ok(outcome_of(&output))
}

/// Returns what an output has beside its rows.
pub(crate) fn outcome_of(output: &Output) -> StatementOutcome {
    StatementOutcome {
        rows_affected: output.rows_affected,
        message: output.message.clone(),
        warnings: messages_of(&output.warnings),
        session: None,
        names: names_of(&output.columns),
    }
}

/// Returns what a client knows of its session.
pub(crate) fn view_of(session: &Session) -> SessionView {
    let conversion = session.conversion();
    SessionView {
        database: session.current_database(),
        time_zone: conversion.time_zone(),
        compatibility: conversion.compatibility().to_owned(),
        nan_is_null: conversion.nan_is_null(),
    }
}

fn messages_of(warnings: &[Diagnostic]) -> Vec<DiagnosticMessage> {
    warnings.iter().map(DiagnosticMessage::from).collect()
}

/// Returns the rows that a statement wrote, as Flight SQL counts them.
fn affected(output: &Output) -> i64 {
    match output.rows_affected {
        Some(rows) => i64::try_from(rows).unwrap_or(i64::MAX),
        None if output.columns.is_empty() => 0,
        None => -1,
    }
}

/// The longest script that is parsed on the thread that reads calls, in bytes: some 100 microseconds.
const PARSED_HERE_BYTES_MAX: usize = 4_096;

fn random_id() -> String {
    let bytes = lockstep_host::random::id();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
