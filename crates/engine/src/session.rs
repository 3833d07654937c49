//! Sessions: one user's settings, and what each statement does.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_function::Settings;
use lockstep_host::{QueryLimits, sync::RwLock};
use lockstep_plan::{BindOptions, BoundQuery, bind};
use lockstep_row::{Column, DataType, IndexSpec, TableSchema, arrow::importable};
use lockstep_sql::{
    Parsed,
    ast::{self, Ident, ObjectName, OptionValue, Query, Statement},
    parse,
};
use lockstep_table::{Appended, Table};

use crate::{
    Database, Output, Parameter, PreparedRequest, Relation, Verification, VerifyOptions, append,
    catalog::{CatalogCommand, DEFAULT_DATABASE, QualifiedName, TableEntry, View},
    config, constant,
    context::{checkpoint, commit},
    conversion::Conversion,
    database::Tables,
    delete, lint,
    outfile::Outfile,
    parameters::check_count,
    relation::Source,
    request_cache::RequestKey,
    settings::{Storage, Variables},
    show,
    table_options::TableOptions,
    verify,
};

/// One user's conversation with the engine: a current database and settings. May be shared
/// between threads.
#[derive(Debug)]
pub struct Session {
    pub(crate) database: Database,
    state: RwLock<State>,
}

#[derive(Debug, Clone)]
struct State {
    current_database: String,
    variables: Variables,
}

impl Session {
    pub(crate) fn new(database: Database) -> Self {
        let state = State {
            current_database: DEFAULT_DATABASE.to_owned(),
            variables: database.objects().variables().clone(),
        };
        Self { database, state: RwLock::new(state) }
    }

    /// A session with the same settings over an empty database of its own.
    pub(crate) fn scratch(&self) -> Self {
        let current_database = DEFAULT_DATABASE.to_owned();
        let state = State { current_database, variables: self.variables() };
        Self { database: Database::in_memory(), state: RwLock::new(state) }
    }

    /// Runs a script of one or more statements and gives the output of the last one. Statements
    /// before a failing one have taken effect; the failing one has not.
    pub fn execute(&self, script: &str) -> Result<Output> {
        let mut output = Output::default();
        for statement in parse(script)? {
            checkpoint()?;
            check_count(&statement, &[])?;
            output = self.statement(&statement, script, &[])?;
        }
        Ok(output)
    }

    /// Binds one query without running it.
    pub fn query(&self, sql: &str) -> Result<Relation> {
        self.query_with(sql, &[])
    }

    /// Appends rows to a table; columns are matched by name, left out ones take their default.
    /// Types are converted where nothing is lost. All or nothing. Returns the number of rows.
    pub fn append(&self, table: &str, batches: &[RecordBatch]) -> Result<u64> {
        Ok(self.append_batches(table, batches)?.rows_affected.unwrap_or(0))
    }

    /// Appends rows as [`Self::append`] does. What comes back says as a warning how many of the
    /// rows had expired before they arrived.
    pub fn append_batches(&self, table: &str, batches: &[RecordBatch]) -> Result<Output> {
        self.check_insert_memory()?;
        let (name, conversion) = (object_name(table), self.conversion());
        let append = |table: &Table| append::append(batches, table, conversion);
        let appended = self.limits().run(|| retried(|| self.find_entry(&name)?.write(append)))?;
        written("APPEND", appended)
    }

    /// Names and types of a table's columns.
    pub fn table_columns(&self, table: &str) -> Result<Vec<(String, DataType)>> {
        let schema = self.find_table(&object_name(table))?.schema();
        Ok(schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect())
    }

    /// How values come in.
    pub fn conversion(&self) -> Conversion {
        let state = self.state.read();
        Conversion::new(state.variables.settings, state.variables.nan_is_null())
    }

    /// Whether a table exists.
    pub fn has_table(&self, table: &str) -> bool {
        self.find_table(&object_name(table)).is_ok()
    }

    /// Creates a table with the columns of an Arrow schema. A column whose type has no image in
    /// the dialect is an error that names it, and so is one without a type.
    pub fn create_table(&self, table: &str, schema: &SchemaRef) -> Result<()> {
        if schema.fields().is_empty() {
            let message = format!("table `{table}` does not exist, and the data has no columns");
            return Diagnostic::new(code::UNDEFINED_TABLE, message)
                .with_hint("CREATE TABLE first.")
                .err();
        }
        let mut columns = Vec::new();
        for field in schema.fields() {
            let Some(data_type) = importable(field.data_type()) else {
                let message = format!("column `{}` has a type that cannot be stored", field.name());
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_detail(format!("Its Arrow type is {}.", field.data_type()))
                    .err();
            };
            if is_untyped(&data_type) {
                let message =
                    format!("column `{}` has no value that gives it a type", field.name());
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_kind(Kind::FixData)
                    .with_hint("CREATE TABLE first, or give the column a type.")
                    .err();
            }
            columns.push(Column::new(field.name(), data_type));
        }
        let name = object_name(table);
        let schema = TableSchema { columns, indexes: Vec::new() };
        self.add_table(&name, schema, TableOptions::default(), false)
    }

    /// Compiles the request-mode program of a deployment (by name) or of a query (SQL text). The
    /// program of a deployment is compiled already, and that of a query that was asked for before
    /// may be.
    ///
    /// It goes on answering for the definition that it was made from: once the deployment or a
    /// table of the query is dropped, also when it is made anew, its answers are the error
    /// [`code::STALE_DEFINITION`].
    pub fn prepare_request(&self, target: &str) -> Result<Arc<PreparedRequest>> {
        if !target.trim().contains(char::is_whitespace) {
            return self.find_deployment(target).map(|found| Arc::clone(&found.request));
        }
        let (database, settings) = (self.current_database(), self.settings());
        let key = RequestKey { text: target.to_owned(), database, settings };
        if let Some(request) = self.database.requests().find(&key) {
            return Ok(request);
        }
        // A name may have spaces in it.
        if let Ok(found) = self.find_deployment(target) {
            return Ok(Arc::clone(&found.request));
        }
        let request = retried(|| self.compile_request(target)).map(Arc::new)?;
        self.database.requests().insert(key, &request);
        Ok(request)
    }

    fn compile_request(&self, target: &str) -> Result<PreparedRequest> {
        let mut statements = parse(target)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(Parsed { statement: Statement::Query(query), .. }), true) => {
                let bound = self.bind(&query)?;
                config::request_rows(self, &query, &bound)?;
                PreparedRequest::compile(&bound, &self.database.entries_of(&bound.plan)?)
            }
            _ => Diagnostic::new(
                code::SYNTAX_ERROR,
                "a request needs a deployment's name or one query",
            )
            .err(),
        }
    }

    /// Answers request rows in request mode: one output row for each, in order, unless a WHERE
    /// drops it. Rows do not see each other and are not stored. Columns are matched by name;
    /// columns that the table does not have are ignored.
    pub fn request(&self, target: &str, rows: &[RecordBatch]) -> Result<Output> {
        let conversion = self.conversion();
        let answer = || self.prepare_request(target)?.answer_batches(rows, conversion);
        self.limits().run(|| retried(answer))
    }

    /// Replays the stored rows of the request table as requests to the deployed program, each in
    /// its own place, and compares with batch mode bit by bit. Both read one view of the tables.
    pub fn verify(&self, deployment: &str) -> Result<Verification> {
        self.verify_with(deployment, &VerifyOptions::default())
    }

    /// The same for a sample, or with progress.
    pub fn verify_with(&self, deployment: &str, options: &VerifyOptions) -> Result<Verification> {
        self.limits().run(|| {
            retried(|| {
                let found = self.find_deployment(deployment)?;
                let verification = verify::verify(&self.database, &found, options);
                // Tables that were dropped meanwhile, after the deployment, had no rows any more.
                found.definition.check()?;
                verification
            })
        })
    }

    /// Runs one statement of a script under the session's limits. `?` stand for the parameters.
    pub(crate) fn statement(
        &self,
        parsed: &Parsed,
        script: &str,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.limits().run(|| {
            // These change what they change at once.
            let _commit = is_change(&parsed.statement).then(commit).transpose()?;
            lockstep_host::with_large_stack(|| retried(|| self.attempt(parsed, script, parameters)))
        })
    }

    /// Runs a statement against the catalog as it is; an error that says that the catalog has
    /// changed meanwhile has left nothing.
    fn attempt(&self, parsed: &Parsed, script: &str, parameters: &[Parameter]) -> Result<Output> {
        let sql = script.get(parsed.span.start..parsed.span.end).unwrap_or_default();
        let output = match &parsed.statement {
            Statement::Query(query) => self.run_query(query, sql, parameters),
            Statement::Explain(query) => self.explain(query, parameters),
            Statement::Insert(insert) => self.insert(insert, parameters),
            Statement::Delete { table, filter } => {
                self.delete(table, filter.as_deref(), parameters)
            }
            Statement::LoadData(load) => self.load_data(load, sql),
            Statement::Deploy(deploy) => self.deploy(deploy, script),
            Statement::DropDeployment { name, if_exists } => self.drop_deployment(name, *if_exists),
            Statement::CreateProcedure(create) => self.create_procedure(create, script),
            Statement::DropProcedure { name, if_exists } => self.drop_procedure(name, *if_exists),
            Statement::Call { name, arguments } => self.call_procedure(name, arguments, parameters),
            Statement::CreateFunction(create) => no_native_functions(&create.name),
            Statement::DropFunction { name, if_exists } => drop_function(name, *if_exists),
            Statement::CreateUser(user) => self.create_user(user),
            Statement::AlterUser(user) => self.alter_user(user),
            Statement::DropUser { name, if_exists } => self.drop_user(name, *if_exists),
            Statement::Privileges(change) => self.change_privileges(change),
            Statement::Show(show) => self.show(show),
            Statement::Estimate(estimate) => self.estimate(estimate),
            Statement::Describe(name) => self.describe(name),
            Statement::Set { name, value, global } => self.set(name, value, *global),
            Statement::StopJob(id) => self.stop_job(id),
            Statement::DeleteJob(id) => Ok(self.delete_job(id)),
            Statement::Exit => Ok(done("EXIT")),
            definition => self.define(definition),
        }?;
        Ok(Output { settings: self.settings(), ..output })
    }

    fn set(&self, name: &Ident, value: &OptionValue, is_global: bool) -> Result<Output> {
        if is_global {
            let command = CatalogCommand::SetVariable { name: name.clone(), value: value.clone() };
            self.database.commit(command)?;
            let warnings = self.database.objects().variables().warning(name);
            return Ok(Output { warnings: warnings.into_iter().collect(), ..done("SET") });
        } else if Variables::is_of_engine(name) {
            let message = format!("variable `{}` is of the engine, not of a session", name.text);
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .at(name.span)
                .with_hint(format!("SET GLOBAL {} = ...", name.text))
                .err();
        }
        let variables = &mut self.state.write().variables;
        variables.set(name, value)?;
        Ok(Output { warnings: variables.warning(name).into_iter().collect(), ..done("SET") })
    }

    fn insert(&self, insert: &ast::Insert, parameters: &[Parameter]) -> Result<Output> {
        self.refuse_offline("INSERT", insert.table.name.span)?;
        self.check_insert_memory()?;
        let entry = self.find_entry(&insert.table)?;
        let options = self.bind_options(parameters);
        let evaluate = |expr: &ast::Expr| constant::evaluate(self, expr, parameters);
        let insert = |table: &Table| append::insert(insert, table, &options, &evaluate);
        written("INSERT", entry.write(insert)?)
    }

    /// What `insert_memory_usage_limit` says.
    fn check_insert_memory(&self) -> Result<()> {
        let Some(percent) = self.state.read().variables.insert_memory_percent() else {
            return Ok(());
        };
        let now = self.database.memory_use();
        let Some(limit) = now.limit else { return Ok(()) };
        if u128::from(now.used) * 100 < u128::from(limit) * u128::from(percent) {
            return Ok(());
        }
        let message = format!(
            "tables hold {} bytes, which is {percent} percent of max_memory or more",
            now.used
        );
        Diagnostic::new(code::OUT_OF_MEMORY, message)
            .with_kind(Kind::FreeResources)
            .with_hint("Delete rows, SET GLOBAL max_memory, or SET insert_memory_usage_limit = 0.")
            .err()
    }

    fn delete(
        &self,
        name: &ObjectName,
        filter: Option<&ast::Expr>,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.refuse_offline("DELETE", name.name.span)?;
        let entry = self.find_entry(name)?;
        let options = self.bind_options(parameters);
        let deleted = entry.write(|table| delete::delete(table, filter, &options))?;
        Ok(Output { rows_affected: Some(deleted), ..done("DELETE") })
    }

    /// Offline data comes from files only.
    fn refuse_offline(&self, statement: &str, span: Span) -> Result<()> {
        if self.storage() == Storage::Online {
            return Ok(());
        }
        let message = format!("{statement} needs execute_mode 'online'");
        Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
            .at(span)
            .with_hint("SET @@execute_mode = 'online'; offline data is loaded with LOAD DATA.")
            .err()
    }

    /// Where SELECT reads and LOAD DATA writes.
    pub(crate) fn storage(&self) -> Storage {
        self.state.read().variables.storage()
    }

    pub(crate) fn variables(&self) -> Variables {
        self.state.read().variables.clone()
    }

    pub(crate) fn bind_options(&self, parameters: &[Parameter]) -> BindOptions {
        BindOptions { settings: self.settings(), parameters: parameters.to_vec() }
    }

    pub(crate) fn use_as_current(&self, database: &str) {
        database.clone_into(&mut self.state.write().current_database);
    }

    /// The database of a possibly qualified name.
    pub(crate) fn database_of(&self, name: &ObjectName) -> String {
        name.database.as_ref().map_or_else(|| self.current_database(), |d| d.text.clone())
    }

    pub(crate) fn qualified(&self, name: &ObjectName) -> QualifiedName {
        QualifiedName { database: self.database_of(name), name: name.name.text.clone() }
    }

    pub(crate) fn settings(&self) -> Settings {
        self.state.read().variables.settings
    }

    pub(crate) fn query_limits(&self) -> QueryLimits {
        self.state.read().variables.limits
    }

    pub(crate) fn current_database(&self) -> String {
        self.state.read().current_database.clone()
    }

    /// Binds a query without parameters.
    pub(crate) fn bind(&self, query: &Query) -> Result<BoundQuery> {
        self.bind_with(query, &[])
    }

    pub(crate) fn bind_with(&self, query: &Query, parameters: &[Parameter]) -> Result<BoundQuery> {
        let current = self.current_database();
        let objects = self.database.objects();
        let view = View { objects: &objects, current_database: &current };
        bind(query, &view, &self.bind_options(parameters))
    }

    /// A bound query over the data that the session works on.
    pub(crate) fn relation(&self, query: &Query, parameters: &[Parameter]) -> Result<Relation> {
        let bound = self.bind_with(query, parameters)?;
        let requests = config::request_rows(self, query, &bound)?;
        let storage = config::storage(query)?.unwrap_or_else(|| self.storage());
        let (conversion, limits) = (self.conversion(), self.limits());
        let source = Source { storage, conversion, limits, warnings: config::warnings(query) };
        Ok(Relation::new(self.database.clone(), bound, source, requests))
    }

    fn run_query(&self, query: &Query, sql: &str, parameters: &[Parameter]) -> Result<Output> {
        let (storage, settings) = (self.storage(), self.settings());
        let run = || {
            let outfile = query.into_outfile.as_ref();
            let outfile =
                outfile.map(|written| Outfile::new(written, settings, storage)).transpose()?;
            let output = self.relation(query, parameters)?.collect(None)?;
            match outfile {
                Some(outfile) => outfile.write(&output),
                None => Ok(output),
            }
        };
        match (storage, &query.into_outfile) {
            (Storage::Online, _) => run(),
            (Storage::Offline, None) => self.as_job("BatchSql", sql, run),
            (Storage::Offline, Some(_)) => self.as_job("ExportOfflineData", sql, run),
        }
    }

    fn explain(&self, query: &Query, parameters: &[Parameter]) -> Result<Output> {
        let bound = self.bind_with(query, parameters)?;
        let entries = self.database.entries_of(&bound.plan)?;
        let mut lines = vec!["batch mode".to_owned()];
        let plan = bound.plan.display_indent().to_string();
        lines.extend(plan.lines().map(|line| format!("  {line}")));
        lines.push("request mode".to_owned());
        let shadows = self.database.shadows_of(&entries)?;
        match PreparedRequest::compile_over(&bound, &shadows) {
            Ok(request) => {
                lines.extend(request.explain().lines().map(|line| format!("  {line}")));
                lines.extend(entries.iter().flat_map(|entry| missing_indexes(entry, &shadows)));
            }
            Err(error) => lines.push(format!("  not available: {error}")),
        }
        let warnings = lint::check(&bound, &Tables::of(&entries), lint::Purpose::Looking);
        Ok(Output { warnings, ..show::list("plan", lines.iter().map(String::as_str))? })
    }

    pub(crate) fn find_table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        self.find_entry(name).map(|entry| entry.table)
    }
}

/// Whether a column of this type could hold nothing but NULL.
fn is_untyped(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null => true,
        DataType::Array(element) => is_untyped(element),
        DataType::Map(key, value) => is_untyped(key) || is_untyped(value),
        _ => false,
    }
}

pub(crate) fn object_name(text: &str) -> ObjectName {
    let ident = |text: &str| Ident { text: text.to_owned(), span: Span::default() };
    match text.split_once('.') {
        Some((database, name)) => ObjectName { database: Some(ident(database)), name: ident(name) },
        None => ObjectName { database: None, name: ident(text) },
    }
}

/// What came of a command of the catalog; with IF EXISTS or IF NOT EXISTS the error of the
/// `tolerated` code is none.
pub(crate) fn outcome(
    committed: Result<()>,
    tolerated: Option<&str>,
    name: &ObjectName,
    message: &str,
) -> Result<Output> {
    match committed {
        Err(error) if tolerated != Some(error.code) => at_name(*error, name).err(),
        _ => Ok(done(message)),
    }
}

/// An error of the catalog with the position of the name that it is about.
pub(crate) fn at_name(error: Diagnostic, name: &ObjectName) -> Diagnostic {
    let ident = match (&name.database, error.code) {
        (Some(database), code::UNDEFINED_DATABASE) => database,
        _ => &name.name,
    };
    error.at(ident.span)
}

/// How often a statement begins again, each time because somebody else's DROP came in between.
const ATTEMPTS_MAX: usize = 100;

/// Does something that reads the catalog at its beginning and fails with
/// [`code::STALE_DEFINITION`], having done nothing, when what it read is gone at its end: begins
/// again then, so that it comes to what it would have come to after the change.
pub(crate) fn retried<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.code == code::STALE_DEFINITION => {}
            result => return result,
        }
    }
    attempt().map_err(|error| Box::new(error.with_kind(Kind::Retry)))
}

/// Whether a statement is a change that is made at once: what else writes says itself when.
fn is_change(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Query(_)
            | Statement::Explain(_)
            | Statement::Insert(_)
            | Statement::Delete { .. }
            | Statement::CreateIndex(_)
            | Statement::DropIndex { .. }
            | Statement::LoadData(_)
            | Statement::Deploy(_)
            | Statement::CreateProcedure(_)
            | Statement::Call { .. }
            | Statement::Show(_)
            | Statement::Estimate(_)
            | Statement::Describe(_)
            | Statement::Exit
    )
}

pub(crate) fn done(message: &str) -> Output {
    Output { message: Some(message.to_owned()), ..Output::default() }
}

/// What a compilation against the shadow of a table has built and the table does not have.
fn missing_indexes(entry: &TableEntry, shadows: &Tables) -> Vec<String> {
    let (schema, shadow) = (entry.table.schema(), shadows.by_id[&entry.id].schema());
    let is_missing =
        |index: &&IndexSpec| schema.find_index(&index.keys, index.event_time).is_none();
    let name = |column: &usize| schema.columns[*column].name.as_str();
    let line = |index: &IndexSpec| {
        let keys: Vec<&str> = index.keys.iter().map(name).collect();
        let order = index.event_time.as_ref().map(|column| format!(", by {}", name(column)));
        format!(
            "  needs an index of {} over ({}){} that is not there yet",
            entry.definition.name(),
            keys.join(", "),
            order.unwrap_or_default()
        )
    };
    shadow.indexes.iter().filter(is_missing).map(line).collect()
}

fn no_native_functions(name: &Ident) -> Result<Output> {
    let message = format!("function `{}` cannot be made from a native library", name.text);
    Diagnostic::unsupported(message)
        .at(name.span)
        .with_detail("Loading code into the process is not offered.")
        .with_hint("SHOW FUNCTIONS lists the functions that there are.")
        .err()
}

fn drop_function(name: &Ident, if_exists: bool) -> Result<Output> {
    if if_exists {
        return Ok(done("DROP FUNCTION"));
    }
    Diagnostic::new(code::UNDEFINED_OBJECT, format!("no user made a function `{}`", name.text))
        .at(name.span)
        .err()
}

#[expect(clippy::unnecessary_wraps, reason = "the arms of a statement give results")]
fn written(message: &str, appended: Appended) -> Result<Output> {
    let warnings = append::expired(appended).into_iter().collect();
    Ok(Output { rows_affected: Some(appended.rows), warnings, ..done(message) })
}
