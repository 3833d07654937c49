//! Sessions: one user's settings, and what each statement does.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Settings;
use lockstep_host::sync::RwLock;
use lockstep_plan::{BindOptions, BoundQuery, bind};
use lockstep_row::{Column, TableSchema, arrow::importable};
use lockstep_sql::{
    Parsed,
    ast::{self, Ident, ObjectName, OptionValue, Query, Statement},
    parse,
};
use lockstep_table::Table;

use crate::{
    Database, Output, Parameter, PreparedRequest, Relation, Verification, append,
    catalog::{DEFAULT_DATABASE, View},
    config, constant, delete, lint, load,
    parameters::check_count,
    relation::Source,
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
            variables: database.objects().variables.clone(),
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
        append::append(batches, &*self.find_table(&object_name(table))?)
    }

    /// Whether a table exists.
    pub fn has_table(&self, table: &str) -> bool {
        self.find_table(&object_name(table)).is_ok()
    }

    /// Creates a table with the columns of an Arrow schema. A column whose type has no image in
    /// the dialect is an error that names it.
    pub fn create_table(&self, table: &str, schema: &SchemaRef) -> Result<()> {
        let mut columns = Vec::new();
        for field in schema.fields() {
            let Some(data_type) = importable(field.data_type()) else {
                let message = format!("column `{}` has a type that cannot be stored", field.name());
                return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                    .with_detail(format!("Its Arrow type is {}.", field.data_type()))
                    .err();
            };
            columns.push(Column::new(field.name(), data_type));
        }
        let name = object_name(table);
        let schema = TableSchema { columns, indexes: Vec::new() };
        self.add_table(&name, schema, TableOptions::default(), false).map(|_| ())
    }

    /// Compiles the request-mode program of a deployment (by name) or of a query (SQL text).
    pub fn prepare_request(&self, target: &str) -> Result<Arc<PreparedRequest>> {
        if let Some(deployment) = self.find_deployment(target) {
            return Ok(Arc::clone(&deployment.request));
        }
        let is_name = !target.trim().contains(char::is_whitespace);
        if is_name {
            return self.no_deployment(target, None);
        }
        let mut statements = parse(target)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(Parsed { statement: Statement::Query(query), .. }), true) => {
                let bound = self.bind(&query)?;
                config::request_rows(self, &query, &bound)?;
                PreparedRequest::compile(&bound, &self.database.tables()).map(Arc::new)
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
        self.prepare_request(target)?.answer_batches(rows)
    }

    /// Replays the stored rows of the request table as requests, in (event time, arrival) order,
    /// into a shadow of that table, and compares with batch mode bit by bit.
    pub fn verify(&self, deployment: &str) -> Result<Verification> {
        let Some(found) = self.find_deployment(deployment) else {
            return self.no_deployment(deployment, None);
        };
        verify::verify(&self.database, &found.query)
    }

    /// Runs one statement of a script. `?` stand for the parameters.
    pub(crate) fn statement(
        &self,
        parsed: &Parsed,
        script: &str,
        parameters: &[Parameter],
    ) -> Result<Output> {
        let sql = script.get(parsed.span.start..parsed.span.end).unwrap_or_default();
        match &parsed.statement {
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
        }
    }

    fn set(&self, name: &Ident, value: &OptionValue, is_global: bool) -> Result<Output> {
        if is_global {
            let mut objects = self.database.objects_mut();
            objects.variables.set(name, value)?;
            self.database.apply(&objects.variables);
        } else if Variables::is_of_engine(name) {
            let message = format!("variable `{}` is of the engine, not of a session", name.text);
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .at(name.span)
                .with_hint(format!("SET GLOBAL {} = ...", name.text))
                .err();
        } else {
            self.state.write().variables.set(name, value)?;
        }
        Ok(done("SET"))
    }

    fn insert(&self, insert: &ast::Insert, parameters: &[Parameter]) -> Result<Output> {
        self.refuse_offline("INSERT", insert.table.name.span)?;
        let table = self.find_table(&insert.table)?;
        let options = self.bind_options(parameters);
        let evaluate = |expr: &ast::Expr| constant::evaluate(self, expr, parameters);
        written("INSERT", append::insert(insert, &table, &options, &evaluate)?)
    }

    fn delete(
        &self,
        name: &ObjectName,
        filter: Option<&ast::Expr>,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.refuse_offline("DELETE", name.name.span)?;
        let table = self.find_table(name)?;
        written("DELETE", delete::delete(&table, filter, &self.bind_options(parameters))?)
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

    pub(crate) fn settings(&self) -> Settings {
        self.state.read().variables.settings
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
        let settings = self.settings();
        let requests = config::request_rows(self, query, &bound)?;
        let source = Source { storage: self.storage(), settings };
        Ok(Relation::new(self.database.clone(), bound, source, requests))
    }

    fn run_query(&self, query: &Query, sql: &str, parameters: &[Parameter]) -> Result<Output> {
        let run = || {
            let output = self.relation(query, parameters)?.collect(None)?;
            match &query.into_outfile {
                Some(outfile) => load::write_outfile(outfile, &output, self.settings()),
                None => Ok(output),
            }
        };
        match (self.storage(), &query.into_outfile) {
            (Storage::Online, _) => run(),
            (Storage::Offline, None) => self.as_job("BatchSql", sql, run),
            (Storage::Offline, Some(outfile)) => self.as_job("ExportOfflineData", sql, || {
                load::make_folder(outfile)?;
                run()
            }),
        }
    }

    fn explain(&self, query: &Query, parameters: &[Parameter]) -> Result<Output> {
        let bound = self.bind_with(query, parameters)?;
        let mut lines = vec!["batch mode".to_owned()];
        let plan = bound.plan.display_indent().to_string();
        lines.extend(plan.lines().map(|line| format!("  {line}")));
        lines.push("request mode".to_owned());
        match PreparedRequest::compile(&bound, &self.database.tables()) {
            Ok(request) => lines.extend(request.explain().lines().map(|line| format!("  {line}"))),
            Err(error) => lines.push(format!("  not available: {error}")),
        }
        let warnings = lint::check(&bound, &self.database.tables(), lint::Purpose::Looking);
        Ok(Output { warnings, ..show::list("plan", lines.iter().map(String::as_str))? })
    }

    pub(crate) fn find_table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        self.find_entry(name).map(|entry| entry.table)
    }
}

pub(crate) fn object_name(text: &str) -> ObjectName {
    let ident = |text: &str| Ident { text: text.to_owned(), span: Span::default() };
    match text.split_once('.') {
        Some((database, name)) => ObjectName { database: Some(ident(database)), name: ident(name) },
        None => ObjectName { database: None, name: ident(text) },
    }
}

pub(crate) fn no_database<'a, T>(name: &Ident, names: impl Iterator<Item = &'a str>) -> Result<T> {
    Diagnostic::new(code::UNDEFINED_DATABASE, format!("database `{}` does not exist", name.text))
        .at(name.span)
        .with_nearest(&name.text, names)
        .err()
}

pub(crate) fn done(message: &str) -> Output {
    Output { message: Some(message.to_owned()), ..Output::default() }
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
fn written(message: &str, rows: u64) -> Result<Output> {
    Ok(Output { rows_affected: Some(rows), ..done(message) })
}
