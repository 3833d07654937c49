//! The extended protocol: statements that are prepared, bound, described and run one by one.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Parameter, PreparedStatement, Session, guarded, verification_columns};
use lockstep_row::{DataType, Value};

use super::{
    ClientFailure,
    command::ClientCommand,
    connection::Connection,
    deployment_call::DescribedAnswer,
    execution::EngineStatement,
    function_call::CallColumns,
    inference::parameter_types,
    message::{BindMessage, ClientMessage, DescribedObject, ParseMessage, violation},
    portal::{NamedStatement, Portal, PortalProgress, check_described},
    response::{
        ResultColumn, bare, command_complete, format_at, parameter_description, row_description,
    },
    script::{Script, TokenCursor},
    token::SqlTokenKind,
    translation::Translation,
    types::{Oid, oid, oid_of, type_of_oid},
};
use crate::work_pool::WorkClass;

/// The longest statement that is parsed in the task of the connection, in bytes.
const PARSED_HERE_BYTES_MAX: usize = 4_096;

impl Connection {
    /// Answers a message of the extended protocol. `sql` becomes the text in which errors have positions.
    pub(crate) async fn extended(
        &mut self,
        message: ClientMessage,
        sql: &mut Arc<str>,
    ) -> Result<(), ClientFailure> {
        match message {
            ClientMessage::Parse(parse) => {
                *sql = parse.sql.as_str().into();
                self.begin_statement(sql);
                let done = self.parse(parse, Arc::clone(sql)).await;
                match &done {
                    // It is a call when it is executed.
                    Ok(()) => self.call = None,
                    Err(failure) => self.end_trace(sql, Some(failure)),
                }
                done
            }
            ClientMessage::Bind(bind) => Ok(self.bind(bind)?),
            ClientMessage::Describe(DescribedObject::Statement(name)) => {
                *sql = Arc::clone(&self.objects.statement(&name)?.0.sql);
                self.describe_statement(&name).await
            }
            ClientMessage::Describe(DescribedObject::Portal(name)) => {
                self.describe_portal(name).await
            }
            ClientMessage::Execute { portal, rows_max } => {
                let mut taken = self.objects.take_portal(&portal)?;
                *sql = Arc::clone(&taken.prepared.sql);
                let begun_ns = self.begin_statement(sql);
                let done = self.execute(&mut taken, rows_max).await;
                self.end_statement(begun_ns, sql, &done);
                done?;
                self.objects.restore_portal(portal, taken);
                Ok(())
            }
            ClientMessage::Close(name) => {
                match name {
                    DescribedObject::Statement(name) => {
                        self.objects.remove_statement(&name);
                    }
                    DescribedObject::Portal(name) => self.objects.remove_portal(&name),
                }
                bare(&mut self.frames.output, b'3');
                Ok(())
            }
            _ => Ok(violation("unexpected message in the extended query protocol")?),
        }
    }

    async fn parse(&mut self, message: ParseMessage, sql: Arc<str>) -> Result<(), ClientFailure> {
        let prepared = self.prepare(&sql, &message.types).await?;
        if message.name.is_empty() {
            self.objects.remove_statement("");
        }
        self.objects.insert_statement(message.name, prepared)?;
        bare(&mut self.frames.output, b'1');
        Ok(())
    }

    /// Prepares a text of at most one statement.
    async fn prepare(
        &mut self,
        sql: &Arc<str>,
        given: &[Oid],
    ) -> Result<NamedStatement, ClientFailure> {
        let empty = |types: &[Oid]| NamedStatement {
            sql: Arc::clone(sql),
            command: None,
            parameter_types: types.to_vec(),
            engine: None,
        };
        let script = guarded(|| Script::of_session(sql, &self.session))?;
        let mut statements = script.statements();
        let Some(statement) = statements.next() else { return Ok(empty(given)) };
        if statements.next().is_some() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Ok(Diagnostic::new(code::SYNTAX_ERROR, message).err()?);
        }
        let command = ClientCommand::read(statement)?;
        self.check_transaction(&command)?;
        let engine = match &command {
            ClientCommand::Engine(translation) => Some(self.prepare_engine(translation).await?),
            _ => None,
        };
        let inferred = self.infer(statement, &command)?;
        let count = inferred.len().max(given.len());
        let type_at = |at: usize| {
            let named = given.get(at).copied().filter(|number| ![0, oid::UNKNOWN].contains(number));
            let found = || inferred.get(at).copied().flatten().unwrap_or(oid::TEXT);
            named.unwrap_or_else(found)
        };
        let parameter_types = (0..count).map(type_at).collect();
        Ok(NamedStatement { command: Some(command), engine, parameter_types, ..empty(&[]) })
    }

    /// Parses a statement of the engine.
    async fn prepare_engine(
        &mut self,
        translation: &Translation,
    ) -> Result<Arc<PreparedStatement>, ClientFailure> {
        let sql = translation.sql.clone();
        let prepare = move |session: &Session| session.prepare(&sql);
        let prepared = if translation.sql.len() <= PARSED_HERE_BYTES_MAX {
            guarded(|| prepare(&self.session)).map_err(ClientFailure::Error)
        } else {
            self.run_in_pool(WorkClass::Writes, prepare).await
        };
        prepared.map(Arc::new).map_err(|failure| failure.placed(translation))
    }

    /// Finds the types of the parameters of a statement, as far as it tells.
    fn infer(
        &self,
        statement: TokenCursor<'_>,
        command: &ClientCommand,
    ) -> Result<Vec<Option<Oid>>> {
        let numbers = |types: Vec<Option<DataType>>| -> Vec<Option<Oid>> {
            types.iter().map(|found| found.as_ref().map(oid_of)).collect()
        };
        match command {
            ClientCommand::Engine(translation) => {
                let columns = |table: &str| self.session.table_columns(table).ok();
                guarded(|| Ok(numbers(parameter_types(statement, translation, columns))))
            }
            ClientCommand::FunctionCall(call) => {
                let (_, request) = self.deployment(call)?;
                Ok(numbers(call.parameter_types(CallColumns::of(&request))?))
            }
            ClientCommand::Catalog(query) => Ok(query.parameter_types()),
            _ => {
                let sql = statement.sql();
                let parameters =
                    statement.tokens().iter().filter(|token| token.kind == SqlTokenKind::Parameter);
                let numbers =
                    parameters.filter_map(|token| token.text(sql)[1..].parse::<u16>().ok());
                Ok(vec![None; numbers.max().unwrap_or(0).into()])
            }
        }
    }

    fn bind(&mut self, message: BindMessage) -> Result<()> {
        let BindMessage { portal, statement, formats, values, result_formats } = message;
        let (prepared, described) = self.objects.statement(&statement)?;
        if let Some(command) = &prepared.command {
            self.check_transaction(command)?;
        }
        let (given, expected) = (values.len(), prepared.parameter_types.len());
        if given != expected {
            return violation(format!(
                "bind message supplies {given} parameters, but prepared statement \"{statement}\" \
                 requires {expected}"
            ));
        }
        if formats.len() > 1 && formats.len() != given {
            let count = formats.len();
            return violation(format!(
                "bind message has {count} parameter formats but {given} parameters"
            ));
        }
        let rules = self.input_rules();
        let types = prepared.parameter_types.iter();
        let read = |(at, (value, number)): (usize, (&Option<bytes::Bytes>, &Oid))| {
            let found = rules.read_parameter(value.as_deref(), format_at(&formats, at), *number);
            found.map_err(|error| {
                let detail = format!("The value belongs to parameter ${}.", at + 1);
                Box::new(error.with_detail(detail))
            })
        };
        let parameters =
            values.iter().zip(types).enumerate().map(read).collect::<Result<Vec<_>>>()?;
        if portal.is_empty() {
            self.objects.remove_portal("");
        }
        let progress = PortalProgress::New;
        let bound = Portal { prepared, parameters, formats: result_formats, described, progress };
        self.objects.insert_portal(portal, bound)?;
        bare(&mut self.frames.output, b'2');
        Ok(())
    }

    async fn describe_statement(&mut self, name: &str) -> Result<(), ClientFailure> {
        let (prepared, described) = self.objects.statement(name)?;
        let columns = match described {
            Some(columns) => Some(columns),
            None => self.columns_of(&prepared, None).await?,
        };
        parameter_description(&mut self.frames.output, &prepared.parameter_types);
        match columns {
            Some(columns) => {
                row_description(&mut self.frames.output, &columns, &[]);
                self.objects.note_columns(name, columns);
            }
            None => bare(&mut self.frames.output, b'n'),
        }
        Ok(())
    }

    async fn describe_portal(&mut self, name: String) -> Result<(), ClientFailure> {
        let mut portal = self.objects.take_portal(&name)?;
        if portal.described.is_none() {
            let prepared = Arc::clone(&portal.prepared);
            portal.described = self.columns_of(&prepared, Some(&portal.parameters)).await?;
        }
        match &portal.described {
            Some(columns) => row_description(&mut self.frames.output, columns, &portal.formats),
            None => bare(&mut self.frames.output, b'n'),
        }
        self.objects.restore_portal(name, portal);
        Ok(())
    }

    /// Returns the columns of a statement's rows; `None` where it has no rows. Without parameters it
    /// takes values that stand for their types.
    async fn columns_of(
        &mut self,
        prepared: &Arc<NamedStatement>,
        parameters: Option<&[Parameter]>,
    ) -> Result<Option<Arc<[ResultColumn]>>, ClientFailure> {
        let Some(command) = &prepared.command else { return Ok(None) };
        self.check_transaction(command)?;
        match command {
            ClientCommand::FunctionCall(call) => {
                let (deployment, _) = self.deployment(call)?;
                let columns = call.choose(&deployment.output)?.into_iter();
                let columns: Vec<(String, DataType)> =
                    columns.map(|(at, name)| (name, deployment.output[at].1.clone())).collect();
                Ok(Some(ResultColumn::of(&columns).into()))
            }
            ClientCommand::Engine(translation) => {
                let samples: Vec<Parameter>;
                let parameters = match parameters {
                    Some(given) => given,
                    None => {
                        samples = prepared.parameter_types.iter().map(|n| sample(*n)).collect();
                        &samples
                    }
                };
                self.engine_columns(translation, parameters, prepared.engine.as_ref()).await
            }
            ClientCommand::Show(_)
            | ClientCommand::ShowAll
            | ClientCommand::Information(_)
            | ClientCommand::Catalog(_) => {
                let answer = self.answer(command, parameters.unwrap_or(&[]), None).await?;
                Ok(answer.rows.map(|rows| rows.columns))
            }
            _ => Ok(None),
        }
    }

    /// Returns the columns of a statement of the engine.
    async fn engine_columns(
        &mut self,
        translation: &Translation,
        parameters: &[Parameter],
        engine: Option<&Arc<PreparedStatement>>,
    ) -> Result<Option<Arc<[ResultColumn]>>, ClientFailure> {
        let mut words = translation.sql.split_ascii_whitespace();
        let verb = words.next().unwrap_or_default().to_ascii_uppercase();
        match verb.trim_start_matches('(') {
            "SELECT" | "WITH" => {
                let given = translation.parameters.iter().map(|used| {
                    let value = parameters.get(usize::from(used.number) - 1).cloned();
                    value.unwrap_or((Value::Null, DataType::Null))
                });
                let (sql, given) = (translation.sql.clone(), given.collect::<Vec<_>>());
                let is_answered_by_key = engine.is_some_and(|engine| {
                    let statement = EngineStatement::Prepared(Arc::clone(engine));
                    self.is_answered_by_key(&statement, &given)
                });
                let class =
                    if is_answered_by_key { WorkClass::Requests } else { WorkClass::Analytics };
                let bind = move |session: &Session| {
                    Ok(session.query_with(&sql, &given)?.columns().to_vec())
                };
                let bound = self.run_in_pool(class, bind).await;
                let columns = bound.map_err(|failure| failure.placed(translation))?;
                Ok(Some(ResultColumn::of(&columns).into()))
            }
            "SUBSCRIBE" => Ok(Some(self.follow(translation).await?.columns)),
            "VERIFY" => {
                let columns = verification_columns(&translation.sql);
                Ok(Some(ResultColumn::of(&columns).into()))
            }
            "SHOW" | "DESC" | "DESCRIBE" | "EXPLAIN" | "CALL" | "ESTIMATE" => {
                let command = ClientCommand::Engine(translation.clone());
                let answer = self.answer(&command, parameters, engine).await?;
                Ok(answer.rows.map(|rows| rows.columns))
            }
            _ => Ok(None),
        }
    }

    /// Runs a portal, or goes on with it.
    async fn execute(&mut self, portal: &mut Portal, rows_max: usize) -> Result<(), ClientFailure> {
        let prepared = Arc::clone(&portal.prepared);
        let Some(command) = &prepared.command else {
            bare(&mut self.frames.output, b'I');
            return Ok(());
        };
        self.check_transaction(command)?;
        let rows_max = if rows_max == 0 { usize::MAX } else { rows_max };
        let mut rows = match std::mem::replace(&mut portal.progress, PortalProgress::Done) {
            PortalProgress::Rows(rows) => rows,
            PortalProgress::Following(followed) => {
                return self.execute_subscription(portal, *followed, rows_max).await;
            }
            PortalProgress::Done => {
                command_complete(&mut self.frames.output, "SELECT 0");
                return Ok(());
            }
            PortalProgress::New => {
                if let Some(translation) = command.subscription() {
                    let followed = self.begin_subscription(portal, translation).await?;
                    return self.execute_subscription(portal, followed, rows_max).await;
                }
                match self.begin_portal(portal, command).await? {
                    Some(rows) => rows,
                    None => return Ok(()),
                }
            }
        };
        let (before, begun_ns) = (rows.sent, self.state.clock.monotonic_ns());
        self.send_rows(&mut rows, &portal.formats, rows_max).await?;
        self.trace_rows(begun_ns, rows.sent - before);
        if rows.is_end() {
            let count = rows.sent - before;
            command_complete(&mut self.frames.output, &format!("SELECT {count}"));
        } else {
            bare(&mut self.frames.output, b's');
            portal.progress = PortalProgress::Rows(rows);
        }
        Ok(())
    }

    /// Runs the statement of a portal. Returns its rows, or writes the end of one without.
    async fn begin_portal(
        &mut self,
        portal: &Portal,
        command: &ClientCommand,
    ) -> Result<Option<super::rows::RowCursor>, ClientFailure> {
        if let ClientCommand::Copy(copy) = command {
            self.copy(copy).await?;
            return Ok(None);
        }
        if let ClientCommand::FunctionCall(call) = command {
            let told = DescribedAnswer::Told(portal.described.as_deref());
            let written = self.call_here(call, &portal.parameters, &portal.formats, told)?;
            if let Some(count) = written {
                command_complete(&mut self.frames.output, &format!("SELECT {count}"));
                return Ok(None);
            }
        }
        let engine = portal.prepared.engine.as_ref();
        let told;
        let command = match (command, &portal.described) {
            (ClientCommand::Catalog(query), Some(columns)) => {
                let types = columns.iter().map(|column| column.oid);
                told = ClientCommand::Catalog(query.with_types(types));
                &told
            }
            _ => command,
        };
        let mut answer = self.answer(command, &portal.parameters, engine).await?;
        self.write_notices(&answer);
        let Some(rows) = answer.rows.take() else {
            command_complete(&mut self.frames.output, &answer.tag);
            return Ok(None);
        };
        if let Some(described) = &portal.described {
            check_described(described, &rows.columns)?;
        }
        Ok(Some(rows))
    }
}

/// Returns a value that stands for all of a type while a statement is described. Text may be a value of
/// any type, so it is NULL.
fn sample(number: Oid) -> Parameter {
    let data_type = type_of_oid(number).unwrap_or(DataType::Null);
    let value = match data_type {
        DataType::Bool => Value::Bool(true),
        DataType::SmallInt => Value::SmallInt(1),
        DataType::Int => Value::Int(1),
        DataType::BigInt => Value::BigInt(1),
        DataType::Float => Value::Float(1.0),
        DataType::Double => Value::Double(1.0),
        DataType::Timestamp => Value::Timestamp(0),
        DataType::Date => Value::Date(0),
        _ => return (Value::Null, DataType::Null),
    };
    (value, data_type)
}
