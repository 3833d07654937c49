//! What a connection of Python is made of: a session of an engine in the process, or a client of a server.
//!
//! Both have the same methods, so that the rest of the crate does not tell them apart. Values are
//! converted here in either case, by the settings of the session.

use std::{cell::Cell, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use lockstep_cli::{columns_of, conversion_of};
use lockstep_client::{
    AppendedRows, ClientRequest, ColumnSet, RemoteClient, RemoteCreation, Rows, StatementResult,
    TrainingSet,
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::{
    Conversion, CreationOptions, Database, Difference, Durability, FeatureRole, FindObject,
    IfExists, Limits, Opened, Output, Parameter, PassedRows, PreparedRequest, ProgressCallback,
    Relation, Session, StorageMode, Subscription, SubscriptionStart, TableBatches,
    TrainingSetOptions, Verification, VerifyOptions,
};
use lockstep_host::sync::Mutex;
use lockstep_row::{
    Arena, DataType, Datum, Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_type},
};

thread_local! {
    /// Whether the thread's call has changed something on a server.
    static HAS_WRITTEN: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the thread's call has changed something on a server, and forgets it.
pub(crate) fn take_has_written() -> bool {
    HAS_WRITTEN.replace(false)
}

/// A session.
#[derive(Debug)]
pub(crate) enum Backend {
    /// With an engine in the process.
    Engine(Session),
    /// With a server.
    Server(RemoteClient),
}

/// A query that is bound.
#[derive(Debug)]
pub(crate) enum BackendQuery {
    /// In the process.
    Engine(Box<Relation>),
    /// On a server, which binds it again when it runs.
    Server(ServerQuery),
    /// Rows as they are appended, in the process.
    Subscription(Box<Mutex<Subscription>>),
    /// Rows as they are appended, on a server that sends them already.
    ServerSubscription(Box<Mutex<Rows>>),
}

/// A query of a server.
#[derive(Debug)]
pub(crate) struct ServerQuery {
    client: RemoteClient,
    text: ServerQueryText,
    columns: Vec<(String, DataType)>,
    /// What each column is to a model; empty for none.
    roles: Vec<Option<FeatureRole>>,
}

/// What a server is to run.
#[derive(Debug)]
enum ServerQueryText {
    Sql { sql: String, parameters: Option<RecordBatch> },
    TrainingSet(TrainingSet),
}

impl ServerQuery {
    fn new(client: &RemoteClient, text: ServerQueryText, columns: &ColumnSet) -> Result<Self> {
        let role = |text: &String| FeatureRole::of_call(text);
        let roles = columns.roles.iter().map(role).collect();
        Ok(Self { client: client.clone(), text, columns: columns_of(columns)?, roles })
    }

    /// Runs it. Returns its rows as they arrive.
    fn run(&self) -> Result<Rows> {
        match &self.text {
            ServerQueryText::Sql { sql, parameters } => self.client.query(sql, parameters.as_ref()),
            ServerQueryText::TrainingSet(set) => self.client.training_set(set),
        }
    }

    /// Runs it, and passes its rows on as they arrive. Returns the warnings.
    fn run_each(
        &self,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        let mut rows = self.run()?;
        while let Some(batch) = rows.next_batch()? {
            consume(batch)?;
        }
        Ok(rows.collect()?.warnings)
    }
}

/// Makes the error for what needs all rows of a subscription.
fn no_end() -> Result<Output> {
    Diagnostic::unsupported("the rows of a subscription have no end").err()
}

/// A compiled request.
#[derive(Debug)]
pub(crate) enum BackendRequest {
    /// In the process.
    Engine {
        /// Is to be open when a request is answered.
        database: Database,
        /// The program.
        request: Arc<PreparedRequest>,
        /// The limits of the session when the request was prepared.
        limits: Limits,
    },
    /// On a server.
    Server {
        /// The handle.
        request: ClientRequest,
        /// The columns of a request row.
        input: Vec<(String, DataType)>,
        /// For each of them, whether an answer depends on it.
        reads: Vec<bool>,
        /// The columns of an answer.
        output: Vec<(String, DataType)>,
    },
}

impl BackendRequest {
    fn of_session(session: &Session, request: Arc<PreparedRequest>) -> Self {
        Self::Engine { database: session.database().clone(), request, limits: session.limits() }
    }
}

impl Backend {
    /// Ends the database in the process, or the session with a server.
    pub(crate) fn close(&self) -> Result<()> {
        match self {
            Self::Engine(session) => session.database().close(),
            Self::Server(client) => client.close(),
        }
    }

    /// Fails where it was closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self {
            Self::Engine(session) => session.database().check_open(),
            Self::Server(client) => client.check_open(),
        }
    }

    /// Returns what opening a directory has done.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        match self {
            Self::Engine(session) => session.database().opened(),
            Self::Server(_) => None,
        }
    }

    /// Returns the rules by which values are converted.
    pub(crate) fn conversion(&self) -> Conversion {
        match self {
            Self::Engine(session) => session.conversion(),
            Self::Server(client) => conversion_of(client),
        }
    }

    /// Runs a script, or one statement with parameters.
    pub(crate) fn execute_with(&self, sql: &str, parameters: &[Parameter]) -> Result<Output> {
        match self {
            Self::Engine(session) => session.execute_with(sql, parameters),
            Self::Server(client) => {
                let rows = client.execute(sql, parameter_row(parameters)?.as_ref())?;
                output_of(client, rows.collect()?)
            }
        }
    }

    /// Binds one query, which may name Arrow objects of the program where the engine is in it.
    pub(crate) fn query_with(
        &self,
        sql: &str,
        parameters: &[Parameter],
        find: Option<FindObject<'_>>,
    ) -> Result<BackendQuery> {
        match self {
            Self::Engine(session) => {
                let relation = session.query_naming(sql, parameters, find)?;
                Ok(BackendQuery::Engine(Box::new(relation)))
            }
            Self::Server(client) => {
                let parameters = parameter_row(parameters)?;
                let columns = client.describe(sql, parameters.as_ref())?;
                let text = ServerQueryText::Sql { sql: sql.to_owned(), parameters };
                ServerQuery::new(client, text, &columns).map(BackendQuery::Server)
            }
        }
    }

    /// Follows the rows of a table or a stream.
    pub(crate) fn subscribe(&self, name: &str, start: SubscriptionStart) -> Result<BackendQuery> {
        match self {
            Self::Engine(session) => {
                let rows = session.subscribe(name, start)?;
                Ok(BackendQuery::Subscription(Box::new(Mutex::new(rows))))
            }
            Self::Server(client) => {
                let quoted = |part: &str| format!("`{}`", part.replace('`', "``"));
                let name: Vec<String> = name.trim().splitn(2, '.').map(quoted).collect();
                let start = match start {
                    SubscriptionStart::Latest => "'latest'".to_owned(),
                    SubscriptionStart::Earliest => "'earliest'".to_owned(),
                    SubscriptionStart::Position(position) => format!("'{position}'"),
                };
                let name = name.join(".");
                let sql = format!("SUBSCRIBE TO {name} OPTIONS(start = {start})");
                // The columns arrive when the server follows the rows.
                let rows = client.query(&sql, None)?;
                Ok(BackendQuery::ServerSubscription(Box::new(Mutex::new(rows))))
            }
        }
    }

    /// Makes the relation of a deployment's training set.
    pub(crate) fn training_set(
        &self,
        deployment: &str,
        options: &TrainingSetOptions,
    ) -> Result<BackendQuery> {
        match self {
            Self::Engine(session) => {
                let relation = session.training_set(deployment, options)?;
                Ok(BackendQuery::Engine(Box::new(relation)))
            }
            Self::Server(client) => {
                let set = TrainingSet {
                    deployment: deployment.to_owned(),
                    main_table: options.main_table.clone(),
                    as_known: options.as_known,
                };
                let columns = client.describe_training_set(&set)?;
                let text = ServerQueryText::TrainingSet(set);
                ServerQuery::new(client, text, &columns).map(BackendQuery::Server)
            }
        }
    }

    /// Appends rows to a table.
    pub(crate) fn append_batches_as(
        &self,
        table: &str,
        batches: &[RecordBatch],
        durability: Option<Durability>,
    ) -> Result<Output> {
        match self {
            Self::Engine(session) => session.append_batches_as(table, batches, durability),
            Self::Server(_) => self.append_tables(&[TableBatches { table, batches }], durability),
        }
    }

    /// Creates a table with the columns and rows of batches; with `replaces`, in place of another.
    pub(crate) fn create_table_of(
        &self,
        rows: &NewRows<'_>,
        schema: &SchemaRef,
        replaces: bool,
    ) -> Result<Output> {
        let NewRows { table, batches, durability, storage_mode } = *rows;
        match self {
            Self::Engine(session) => {
                let if_exists = if replaces { IfExists::Replace } else { IfExists::Fail };
                let mut batches = batches.iter().cloned().map(Ok);
                let options = CreationOptions { if_exists, durability, storage_mode };
                session.create_table_of(table, schema, &mut batches, options)
            }
            Self::Server(client) => {
                let empty = [RecordBatch::new_empty(Arc::clone(schema))];
                let batches = if batches.is_empty() { &empty } else { batches };
                let creation = RemoteCreation {
                    replaces,
                    durability: durability.map(durability_name),
                    storage_mode: storage_mode.map(StorageMode::name),
                };
                let appended = client.create_table_of(table, batches, &creation)?;
                Ok(appended_output(appended))
            }
        }
    }

    /// Appends rows to several tables.
    pub(crate) fn append_tables(
        &self,
        rows: &[TableBatches<'_>],
        durability: Option<Durability>,
    ) -> Result<Output> {
        match self {
            Self::Engine(session) => session.append_tables(rows, durability),
            Self::Server(client) => {
                let rows: Vec<_> = rows.iter().map(|of| (of.table, of.batches)).collect();
                let appended = client.append_tables(&rows, durability.map(durability_name))?;
                Ok(appended_output(appended))
            }
        }
    }

    /// Returns the columns of a table.
    pub(crate) fn table_columns(&self, table: &str) -> Result<Vec<(String, DataType)>> {
        match self {
            Self::Engine(session) => session.table_columns(table),
            Self::Server(client) => columns_of(&client.table_columns(table)?),
        }
    }

    /// Answers request rows.
    pub(crate) fn request(&self, target: &str, rows: &[RecordBatch]) -> Result<Output> {
        match self {
            Self::Engine(session) => session.request(target, rows),
            Self::Server(client) => {
                let answers = client.request(target, rows)?;
                let names = answers.names;
                let columns =
                    columns_of(&ColumnSet { schema: answers.schema, names, roles: Vec::new() })?;
                let settings = conversion_of(client).settings();
                Ok(Output { columns, batches: answers.batches, settings, ..Output::default() })
            }
        }
    }

    /// Returns what [`Self::prepare_request`] returns if it is in the process and there already.
    pub(crate) fn find_prepared(&self, target: &str) -> Result<Option<BackendRequest>> {
        let Self::Engine(session) = self else { return Ok(None) };
        let found = session.find_prepared(target)?;
        Ok(found.map(|request| BackendRequest::of_session(session, request)))
    }

    /// Compiles a deployment or a query.
    pub(crate) fn prepare_request(&self, target: &str) -> Result<BackendRequest> {
        match self {
            Self::Engine(session) => {
                let request = session.prepare_request(target)?;
                Ok(BackendRequest::of_session(session, request))
            }
            Self::Server(client) => {
                let request = client.prepare_request(target)?;
                let (input, output) = (columns_of(request.input())?, columns_of(request.output())?);
                let reads = request.reads().to_vec();
                Ok(BackendRequest::Server { request, input, reads, output })
            }
        }
    }

    /// Describes a deployment.
    pub(crate) fn deployment(&self, name: &str) -> Result<DeploymentView> {
        match self {
            Self::Engine(session) => {
                let found = session.deployment(name)?;
                Ok(DeploymentView {
                    name: found.name,
                    database: found.database,
                    sql: found.sql,
                    input: found.input,
                    reads: found.reads,
                    output: found.output,
                    compatibility: found.compatibility.to_owned(),
                    time_zone: found.time_zone,
                })
            }
            Self::Server(client) => {
                let found = client.deployment(name)?;
                Ok(DeploymentView {
                    input: columns_of(&found.input)?,
                    output: columns_of(&found.output)?,
                    name: found.name,
                    database: found.database,
                    sql: found.sql,
                    reads: found.reads,
                    compatibility: found.compatibility,
                    time_zone: found.time_zone,
                })
            }
        }
    }

    /// Verifies a deployment.
    pub(crate) fn verify_with(&self, name: &str, options: &VerifyOptions) -> Result<Verification> {
        match self {
            Self::Engine(session) => session.verify_with(name, options),
            Self::Server(client) => {
                let progress = options.progress.clone();
                let mut tell = |fraction: f64| progress.iter().for_each(|tell| tell(fraction));
                let found = client.verify(name, options.sample, Some(&mut tell))?;
                let difference = |one: &_| difference_of(one);
                Ok(Verification {
                    rows: found.requests,
                    requests: found.requests,
                    values: found.values,
                    differing: found.differing,
                    differences: found.differences.iter().map(difference).collect(),
                    elapsed_ns: elapsed_ns(found.requests, found.rows_per_second),
                })
            }
        }
    }
}

/// A deployment of either backend.
#[derive(Debug)]
pub(crate) struct DeploymentView {
    pub(crate) name: String,
    pub(crate) database: String,
    pub(crate) sql: String,
    /// The columns of a request row.
    pub(crate) input: Vec<(String, DataType)>,
    /// For each of them, whether an answer depends on it.
    pub(crate) reads: Vec<bool>,
    /// The columns of an answer.
    pub(crate) output: Vec<(String, DataType)>,
    pub(crate) compatibility: String,
    pub(crate) time_zone: String,
}

impl BackendQuery {
    /// Runs the query and passes each batch on when it is computed, or when it arrives. Returns the
    /// warnings.
    pub(crate) fn run_each(
        &self,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        match self {
            Self::Engine(relation) => relation.run_each(None, consume),
            Self::Server(query) => query.run_each(consume),
            Self::Subscription(rows) => rows.lock().run_each(consume).map(|()| Vec::new()),
            Self::ServerSubscription(rows) => {
                let mut rows = rows.lock();
                while let Some(batch) = rows.next_batch()? {
                    consume(batch)?;
                }
                Ok(Vec::new())
            }
        }
    }

    /// Runs the query and writes its rows to a file or a folder of this machine.
    pub(crate) fn write(&self, path: &str, options: &[(String, Value)]) -> Result<Output> {
        match self {
            Self::Engine(relation) => relation.write(path, options),
            Self::Server(query) => {
                let ServerQuery { client, columns, roles, .. } = query;
                let (roles, settings) = (roles.clone(), conversion_of(client).settings());
                let rows = PassedRows { columns, roles, settings };
                rows.write(path, options, &mut |write| query.run_each(write))
            }
            Self::Subscription(_) | Self::ServerSubscription(_) => no_end(),
        }
    }

    /// Returns the names and types of the columns.
    pub(crate) fn columns(&self) -> &[(String, DataType)] {
        match self {
            Self::Engine(relation) => relation.columns(),
            Self::Server(query) => &query.columns,
            Self::Subscription(_) | Self::ServerSubscription(_) => &[],
        }
    }

    /// Runs the query. A server does not say how far it is.
    pub(crate) fn collect(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        match self {
            Self::Engine(relation) => relation.collect(progress),
            Self::Server(query) => {
                let output = output_of(&query.client, query.run()?.collect()?)?;
                Ok(Output { roles: query.roles.clone(), ..output })
            }
            Self::Subscription(_) | Self::ServerSubscription(_) => no_end(),
        }
    }
}

impl BackendRequest {
    /// Returns the columns of a request row.
    pub(crate) fn input(&self) -> &[(String, DataType)] {
        match self {
            Self::Engine { request, .. } => request.input(),
            Self::Server { input, .. } => input,
        }
    }

    /// Returns the columns of an answer.
    pub(crate) fn output(&self) -> &[(String, DataType)] {
        match self {
            Self::Engine { request, .. } => request.output(),
            Self::Server { output, .. } => output,
        }
    }

    /// Answers a request row.
    pub(crate) fn answer(&self, row: &[Value]) -> Result<Option<Vec<Value>>> {
        let arena = Arena::new();
        let data: Vec<Datum<'_>> = row.iter().map(|value| value.as_datum(&arena)).collect();
        match self {
            Self::Engine { database, request, .. } => {
                database.check_open()?;
                let answer = request.answer(&data, &arena)?;
                Ok(answer.map(|answer| answer.iter().map(Datum::to_value).collect()))
            }
            Self::Server { request, input, .. } => {
                let answers = request.answer(&[batch_of(input, &data)?])?;
                let Some(batch) = answers.batches.iter().find(|batch| batch.num_rows() > 0) else {
                    return Ok(None);
                };
                let readers = batch.columns().iter().map(|array| ColumnReader::new(array.as_ref()));
                Ok(Some(readers.map(|reader| reader.get(0, &arena).to_value()).collect()))
            }
        }
    }
}

/// Makes the output of a statement that a server has run.
fn output_of(client: &RemoteClient, result: StatementResult) -> Result<Output> {
    let output = lockstep_cli::output_of(client, result)?;
    if output.columns.is_empty() {
        HAS_WRITTEN.set(true);
    }
    Ok(output)
}

/// Makes a batch of one row.
fn batch_of(columns: &[(String, DataType)], row: &[Datum<'_>]) -> Result<RecordBatch> {
    debug_assert_eq!(columns.len(), row.len(), "a row has all values");
    let field = |(name, of): &(String, DataType)| Field::new(name, arrow_type(of), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let array = |((_, of), value): (&(String, DataType), &Datum<'_>)| {
        let mut builder = ColumnBuilder::new(of, 1);
        builder.push(*value);
        builder.finish()
    };
    let arrays = columns.iter().zip(row).map(array).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))
}

/// Makes the batch of parameters; none where there are none.
fn parameter_row(parameters: &[Parameter]) -> Result<Option<RecordBatch>> {
    if parameters.is_empty() {
        return Ok(None);
    }
    let arena = Arena::new();
    let columns: Vec<(String, DataType)> = parameters
        .iter()
        .enumerate()
        .map(|(number, (_, of))| ((number + 1).to_string(), of.clone()))
        .collect();
    let row: Vec<Datum<'_>> = parameters.iter().map(|(value, _)| value.as_datum(&arena)).collect();
    batch_of(&columns, &row).map(Some)
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Memory => "memory",
        Durability::Os => "os",
        Durability::Disk => "disk",
    }
}

fn difference_of(one: &lockstep_client::ValueDifference) -> Difference {
    Difference {
        row: one.row,
        column: one.column.clone(),
        batch: one.batch.clone(),
        request: one.request.clone(),
    }
}

/// Returns how long something took, from its rate.
#[expect(clippy::cast_possible_truncation, reason = "a duration for people")]
#[expect(clippy::cast_sign_loss, reason = "a rate is not negative")]
#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn elapsed_ns(count: u64, per_second: f64) -> u64 {
    if per_second > 0.0 { (count as f64 / per_second * 1e9) as u64 } else { 0 }
}

/// Rows to append to a table.
pub(crate) struct NewRows<'r> {
    pub(crate) table: &'r str,
    pub(crate) batches: &'r [RecordBatch],
    pub(crate) durability: Option<Durability>,
    /// Where they lie if the table is created.
    pub(crate) storage_mode: Option<StorageMode>,
}

/// Makes the output of an append to a server.
fn appended_output(appended: AppendedRows) -> Output {
    HAS_WRITTEN.set(true);
    Output {
        rows_affected: Some(appended.rows),
        warnings: appended.warnings,
        message: Some("APPEND".to_owned()),
        ..Output::default()
    }
}
