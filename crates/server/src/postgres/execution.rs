//! What runs a statement: the engine in a pool, a deployment in the task of the connection, and what the
//! protocol answers by itself.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_engine::{
    CallOptions, Output, Parameter, ParsedScript, PreparedStatement, Session, guarded,
    only_writes_rows,
};
use lockstep_host::{QueryContext, QueryLimits};
use lockstep_row::{DataType, Value};

use super::{
    ClientFailure,
    client_settings::{not_a_switch, switch_of},
    command::{ClientCommand, Discarded, SettingScope, TransactionAccess},
    connection::Connection,
    frame::FrameError,
    information::{InformationFunction, InformationQuery, MissingSetting},
    response::{Severity, parameter_status},
    rows::RowCursor,
    session_start::{apply_setting, zone_name},
    transaction::Transaction,
    translation::Translation,
    types::oid,
};
use crate::{
    metrics::Refusal,
    phase::Phase,
    traces::CallTrace,
    work_pool::{NoResult, WorkClass, stuck},
};

/// The longest statement that is parsed in the task of the connection, in bytes.
const PARSED_HERE_BYTES_MAX: usize = 4_096;

/// What a statement has given.
#[derive(Debug)]
pub(crate) struct StatementAnswer {
    /// What the client is told at the end; with rows, without their number.
    pub(crate) tag: String,
    pub(crate) rows: Option<RowCursor>,
    pub(crate) notices: Vec<(Severity, Diagnostic)>,
}

impl StatementAnswer {
    pub(crate) fn done(tag: impl Into<String>) -> Self {
        Self { tag: tag.into(), rows: None, notices: Vec::new() }
    }

    pub(crate) fn rows(tag: &str, rows: RowCursor) -> Self {
        Self { tag: tag.to_owned(), rows: Some(rows), notices: Vec::new() }
    }

    pub(crate) fn with_warning(mut self, message: &str) -> Self {
        let warning = Diagnostic::new(code::WARNING, message);
        self.notices.push((Severity::Warning, warning));
        self
    }
}

/// A statement of the engine.
#[derive(Debug, Clone)]
pub(crate) enum EngineStatement {
    Text(String),
    Prepared(Arc<PreparedStatement>),
}

impl EngineStatement {
    fn sql(&self) -> &str {
        match self {
            Self::Text(sql) => sql,
            Self::Prepared(prepared) => prepared.sql(),
        }
    }

    fn run(&self, session: &Session, parameters: &[Parameter]) -> Result<Output> {
        match self {
            Self::Text(sql) => session.execute_prepared(&session.prepare(sql)?, parameters),
            Self::Prepared(prepared) => session.execute_prepared(prepared, parameters),
        }
    }
}

impl Connection {
    /// Counts a statement, and logs it where it was slow.
    pub(crate) fn record(&self, begun_ns: u64, sql: &str, has_failed: bool) {
        let took_ns = self.state.clock.monotonic_ns().saturating_sub(begun_ns);
        self.state.metrics.record_statement(took_ns, has_failed);
        let slow_ms = self.state.settings().slow_request_ms;
        if slow_ms > 0 && took_ns / 1_000_000 >= slow_ms {
            let (us, session) = (took_ns / 1_000, self.session.id());
            let bytes = sql.len();
            tracing::warn!(
                session,
                us,
                bytes,
                has_failed,
                protocol = "postgresql",
                "slow statement"
            );
        }
    }

    /// Runs a statement that is not COPY.
    pub(crate) async fn answer(
        &mut self,
        command: &ClientCommand,
        parameters: &[Parameter],
        prepared: Option<&Arc<PreparedStatement>>,
    ) -> Result<StatementAnswer, ClientFailure> {
        match command {
            ClientCommand::Engine(translation) => {
                let statement = match prepared {
                    Some(prepared) if translation.limits.is_empty() => {
                        EngineStatement::Prepared(Arc::clone(prepared))
                    }
                    _ => EngineStatement::Text(translation.with_limits(parameters)?),
                };
                self.answer_engine(statement, translation, parameters).await
            }
            ClientCommand::FunctionCall(call) => self.call_in_pool(call, parameters).await,
            ClientCommand::Catalog(query) => {
                let (query, values) = (query.clone(), parameters.iter());
                let values: Vec<Value> = values.map(|(value, _)| value.clone()).collect();
                let run = move |session: &Session| query.answer(session, &values);
                let rows = self.run_in_pool(WorkClass::Requests, run).await?;
                Ok(StatementAnswer::rows("SELECT", rows))
            }
            ClientCommand::Show(name) if self.setting_value(name).is_none() => {
                let translation = Translation::of_dialect(format!("SHOW {name}"));
                let statement = EngineStatement::Text(translation.sql.clone());
                self.answer_engine(statement, &translation, &[]).await
            }
            other => Ok(self.answer_own(other)?),
        }
    }

    /// Runs a statement of the engine in the pool of its class.
    async fn answer_engine(
        &mut self,
        statement: EngineStatement,
        translation: &Translation,
        parameters: &[Parameter],
    ) -> Result<StatementAnswer, ClientFailure> {
        let given = translation.parameters.iter().map(|used| {
            let value = parameters.get(usize::from(used.number) - 1).cloned();
            value.unwrap_or((Value::Null, DataType::Null))
        });
        let given: Vec<Parameter> = given.collect();
        let access = self.check_access(statement.sql());
        access.map_err(|error| ClientFailure::Error(error).placed(translation))?;
        let class = self.class_of(&statement, &given).await?;
        let first = translation.sql.split_ascii_whitespace().next().unwrap_or_default();
        let verb = first.to_ascii_uppercase();
        let run = move |session: &Session| statement.run(session, &given);
        let timeout_ms = self.state.settings().statement_timeout_ms;
        let output = self.run_within(timeout_ms, class, run).await;
        let output = output.map_err(|failure| failure.placed(translation))?;
        if !matches!(
            verb.as_str(),
            "SELECT" | "WITH" | "SHOW" | "DESC" | "EXPLAIN" | "SET" | "USE" | "VERIFY"
        ) {
            self.transaction.note_write();
        }
        Ok(engine_answer(output, &verb))
    }

    /// Returns the class of a statement. One that reads a few rows by key does not wait for analytics; a long
    /// one is parsed on a thread that writes, as long ones do.
    async fn class_of(
        &self,
        statement: &EngineStatement,
        parameters: &[Parameter],
    ) -> Result<WorkClass, ClientFailure> {
        let is_write = if statement.sql().len() <= PARSED_HERE_BYTES_MAX {
            if self.is_answered_by_key(statement, parameters) {
                return Ok(WorkClass::Requests);
            }
            guarded(|| Ok(only_writes_rows(statement.sql())))?
        } else {
            let sql = statement.sql().to_owned();
            let work = move || guarded(|| Ok(only_writes_rows(&sql)));
            let context = QueryContext::new();
            let done = self.state.pools.run(WorkClass::Writes, &context, work).await;
            done.map_err(|reason| self.refused(reason))??
        };
        Ok(if is_write { WorkClass::Writes } else { WorkClass::Analytics })
    }

    /// Returns whether a statement reads a few rows by key.
    pub(crate) fn is_answered_by_key(
        &self,
        statement: &EngineStatement,
        parameters: &[Parameter],
    ) -> bool {
        let session = &self.session;
        let found = guarded(|| {
            Ok(match statement {
                EngineStatement::Prepared(prepared) => {
                    session.is_prepared_answered_by_key(prepared, parameters)
                }
                EngineStatement::Text(sql) => {
                    session.is_answered_by_key(&ParsedScript::parse(sql)?, parameters, None)
                }
            })
        });
        found.unwrap_or(false)
    }

    /// Runs work of the engine on a thread of its class, under the timeout of the class.
    pub(crate) async fn run_in_pool<T: Send + 'static>(
        &mut self,
        class: WorkClass,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T, ClientFailure> {
        let settings = self.state.settings();
        let timeout_ms = match class {
            WorkClass::Writes | WorkClass::Analytics | WorkClass::Logins => {
                settings.statement_timeout_ms
            }
            WorkClass::Requests => settings.request_timeout_ms,
        };
        self.run_within(timeout_ms, class, work).await
    }

    /// Runs work of the engine on a thread of its class. It is cancelled where the client cancels it or
    /// is gone.
    async fn run_within<T: Send + 'static>(
        &mut self,
        timeout_ms: u64,
        class: WorkClass,
        work: impl FnOnce(&Session) -> Result<T> + Send + 'static,
    ) -> Result<T, ClientFailure> {
        let settings = self.state.settings();
        let limit = |number: u64| Some(number).filter(|number| *number > 0);
        let options = CallOptions {
            request_id: self.call.as_ref().map(|call| call.text().to_owned()),
            timeout_ms: None,
            memory_bytes: limit(settings.query_memory_bytes_max),
            rows_max: limit(settings.answer_rows_max),
        };
        let limits = QueryLimits { timeout_ms: Some(timeout_ms), ..QueryLimits::default() };
        let context = QueryContext::limited(&self.state.clock, limits);
        let guard = self.running.begin(&context);
        let (session, running) = (Arc::clone(&self.session), context.clone());
        let (trace, submitted_ns) = (self.trace().cloned(), self.state.clock.monotonic_ns());
        let body = move || {
            let run = || running.run(|| options.run(&session, || guarded(|| work(&session))));
            CallTrace::run_submitted(trace.as_deref(), submitted_ns, run)
        };
        let state = Arc::clone(&self.state);
        let done = tokio::select! {
            biased;
            done = state.pools.run(class, &context, body) => done,
            () = self.frames.closed() => return Err(FrameError::Closed.into()),
            () = state.phase.reached(Phase::Stopping) => Err(NoResult::Closed),
        };
        drop(guard);
        Ok(done.map_err(|reason| self.refused(reason))??)
    }

    /// Makes the error for work that a pool has not taken.
    pub(crate) fn refused(&self, reason: NoResult) -> Box<Diagnostic> {
        let error = match reason {
            NoResult::Overloaded => {
                self.state.metrics.add_refused(Refusal::Overload);
                Diagnostic::new(code::TOO_MANY, "the server is overloaded")
            }
            NoResult::Closed => Diagnostic::new(code::SESSION_ENDED, "the server is shutting down"),
            NoResult::Stuck => stuck(),
        };
        Box::new(error.with_kind(Kind::Retry))
    }

    /// Runs a statement that the protocol answers.
    fn answer_own(&mut self, command: &ClientCommand) -> Result<StatementAnswer> {
        Ok(match command {
            ClientCommand::Transaction(command) => self.change_transaction(*command)?,
            ClientCommand::Set { name, value, scope } => {
                self.set_in(name, value.as_deref(), *scope)?
            }
            ClientCommand::SetAccess { access, scope } => self.set_access(*access, *scope)?,
            ClientCommand::SetNothing => StatementAnswer::done("SET"),
            ClientCommand::ResetAll => {
                self.reset()?;
                StatementAnswer::done("RESET")
            }
            ClientCommand::Show(name) => {
                let (name, value) = self.setting_value(name).unwrap_or_default();
                let rows = [vec![Value::String(value.into())]];
                StatementAnswer::rows("SHOW", RowCursor::of_values(&[(&name, oid::TEXT)], &rows)?)
            }
            ClientCommand::ShowAll => StatementAnswer::rows("SHOW", self.all_settings()?),
            ClientCommand::Discard(Discarded::Nothing(tag)) => StatementAnswer::done(*tag),
            ClientCommand::Discard(Discarded::All) => {
                if self.transaction != Transaction::Idle {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Diagnostic::new(code::ACTIVE_TRANSACTION, message)
                        .with_kind(Kind::FixRequest)
                        .err();
                }
                self.objects.clear_portals();
                self.objects.clear_statements();
                self.reset()?;
                StatementAnswer::done("DISCARD ALL")
            }
            ClientCommand::Deallocate(None) => {
                self.objects.clear_statements();
                StatementAnswer::done("DEALLOCATE ALL")
            }
            ClientCommand::Deallocate(Some(name)) => {
                if !self.objects.remove_statement(name) {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Diagnostic::new(code::UNDEFINED_STATEMENT, message).err();
                }
                StatementAnswer::done("DEALLOCATE")
            }
            ClientCommand::Close(None) => {
                self.objects.clear_portals();
                StatementAnswer::done("CLOSE CURSOR ALL")
            }
            ClientCommand::Close(Some(name)) => {
                self.objects.take_portal(name)?;
                StatementAnswer::done("CLOSE CURSOR")
            }
            ClientCommand::Nothing(tag) => StatementAnswer::done(*tag),
            ClientCommand::Information(query) => {
                StatementAnswer::rows("SELECT", self.information(query)?)
            }
            ClientCommand::Catalog(_)
            | ClientCommand::Copy(_)
            | ClientCommand::FunctionCall(_)
            | ClientCommand::Engine(_) => {
                return Diagnostic::internal("the statement was dispatched incorrectly").err();
            }
        })
    }

    /// Runs SET.
    fn set_in(
        &mut self,
        name: &str,
        value: Option<&str>,
        scope: SettingScope,
    ) -> Result<StatementAnswer> {
        let answer = StatementAnswer::done("SET");
        if name.eq_ignore_ascii_case("transaction_read_only") {
            let access = match value.map(switch_of) {
                Some(Some("on")) => TransactionAccess::ReadOnly,
                Some(Some(_)) => TransactionAccess::ReadWrite,
                Some(None) => return not_a_switch(name, value.unwrap_or_default()),
                None if self.begins_read_only() => TransactionAccess::ReadOnly,
                None => TransactionAccess::ReadWrite,
            };
            return self.set_access(access, SettingScope::Local);
        }
        match scope {
            SettingScope::Session => {
                self.set(name, value)?;
                self.keep_setting(name);
            }
            SettingScope::Local if self.transaction == Transaction::Idle => {
                return Ok(answer.with_warning("SET LOCAL can only be used in transaction blocks"));
            }
            SettingScope::Local => self.set_local(name, value)?,
        }
        Ok(answer)
    }

    /// Sets a setting, and tells the client where it follows it.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let changed = apply_setting(&self.session, &mut self.settings, name, value)?;
        if let Some((name, value)) = changed {
            parameter_status(&mut self.frames.output, name, &value);
        }
        Ok(())
    }

    /// Gives the settings of PostgreSQL their defaults.
    fn reset(&mut self) -> Result<()> {
        self.settings.reset();
        self.block.forget_values();
        self.set("timezone", None)?;
        self.set("statement_timeout", None)
    }

    /// Returns the name and the value of a setting of PostgreSQL, or of a variable of the engine.
    pub(crate) fn setting_value(&self, name: &str) -> Option<(String, String)> {
        if name.eq_ignore_ascii_case("timezone") {
            return Some(("TimeZone".to_owned(), zone_name(&self.session)));
        }
        if name.eq_ignore_ascii_case("transaction_read_only") {
            let value = if self.is_read_only() { "on" } else { "off" };
            return Some(("transaction_read_only".to_owned(), value.to_owned()));
        }
        match self.settings.get(name) {
            Some((name, value)) => Some((name.to_owned(), value.to_owned())),
            None => Some((name.to_ascii_lowercase(), self.session.variable(name)?)),
        }
    }

    fn all_settings(&self) -> Result<RowCursor> {
        let row = |(name, value): (&str, &str)| {
            vec![Value::String(name.into()), Value::String(value.into()), Value::Null]
        };
        let rows: Vec<Vec<Value>> = self.settings.all().map(row).collect();
        let columns = ["name", "setting", "description"].map(|name| (name, oid::TEXT));
        RowCursor::of_values(&columns, &rows)
    }

    /// Answers functions about the server and the session.
    fn information(&mut self, query: &InformationQuery) -> Result<RowCursor> {
        let (mut columns, mut row) = (Vec::new(), Vec::new());
        for item in &query.items {
            let (number, value) = self.information_value(&item.function)?;
            columns.push((item.name.as_str(), number));
            row.push(value);
        }
        RowCursor::of_values(&columns, &[row])
    }

    fn information_value(&mut self, function: &InformationFunction) -> Result<(u32, Value)> {
        let name = |text: &str| (oid::NAME, Value::String(text.into()));
        let text = |text: &str| (oid::TEXT, Value::String(text.into()));
        Ok(match function {
            InformationFunction::Version => {
                let version = self.setting_value("server_version").unwrap_or_default().1;
                text(&format!("PostgreSQL {version}"))
            }
            InformationFunction::User => name(self.session.user()),
            InformationFunction::Database => name(&self.session.current_database()),
            InformationFunction::Schema => name("public"),
            InformationFunction::Schemas => text("{pg_catalog,public}"),
            InformationFunction::ProcessId => (oid::INT4, Value::Int(self.process())),
            InformationFunction::ClientEncoding => name("UTF8"),
            InformationFunction::Setting(setting, missing) => match self.setting_value(setting) {
                Some((_, value)) => text(&value),
                None if *missing == MissingSetting::Null => (oid::TEXT, Value::Null),
                None => {
                    let message = format!("unrecognized configuration parameter \"{setting}\"");
                    return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                        .with_hint("Use SHOW ALL and SHOW VARIABLES to list the parameters.")
                        .err();
                }
            },
            InformationFunction::SetSetting(setting, value, scope) => {
                match scope {
                    SettingScope::Local => self.set_local(setting, Some(value))?,
                    SettingScope::Session => {
                        self.set_in(setting, Some(value), SettingScope::Session)?;
                    }
                }
                text(value)
            }
            InformationFunction::Text(value) => text(value),
            InformationFunction::Flag(value) => (oid::BOOL, Value::Bool(*value)),
            InformationFunction::Number(value) => (oid::INT8, Value::BigInt(*value)),
            InformationFunction::Null => (oid::TEXT, Value::Null),
        })
    }
}

/// Makes the answer of an output.
fn engine_answer(output: Output, verb: &str) -> StatementAnswer {
    let warning = |warning: &Diagnostic| (Severity::Warning, warning.clone());
    let notices = output.warnings.iter().map(warning).collect();
    if !output.columns.is_empty() {
        let rows = Some(RowCursor::of_output(output));
        return StatementAnswer { tag: "SELECT".to_owned(), rows, notices };
    }
    let count = output.rows_affected.unwrap_or(0);
    let tag = match verb {
        "INSERT" => format!("INSERT 0 {count}"),
        "DELETE" => format!("DELETE {count}"),
        _ => output.message.unwrap_or_else(|| verb.to_owned()),
    };
    StatementAnswer { tag, rows: None, notices }
}

impl ClientFailure {
    /// Gives an error the position of the client's text.
    pub(crate) fn placed(self, translation: &Translation) -> Self {
        let Self::Error(mut error) = self else { return self };
        error.span = error.span.map(|span| {
            let (start, end) = (translation.position(span.start), translation.position(span.end));
            Span::new(start, end.max(start))
        });
        Self::Error(error)
    }
}
