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
    ast::{self, Ident, ObjectName, Query, Show, Statement},
    parse,
};
use lockstep_table::Table;

use crate::{
    Database, Output, PreparedRequest, Relation, Verification, append,
    catalog::{DEFAULT_DATABASE, DatabaseObjects, TableEntry, View},
    config, create_table,
    deployment::retention_warnings,
    load,
    settings::Variables,
    show, verify,
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
            variables: Variables::default(),
        };
        Self { database, state: RwLock::new(state) }
    }

    /// Runs a script of one or more statements and gives the output of the last one. Statements
    /// before a failing one have taken effect; the failing one has not.
    pub fn execute(&self, script: &str) -> Result<Output> {
        let mut output = Output::default();
        for statement in parse(script)? {
            output = self.statement(&statement, script)?;
        }
        Ok(output)
    }

    /// Binds one query without running it.
    pub fn query(&self, sql: &str) -> Result<Relation> {
        let mut statements = parse(sql)?;
        match (statements.pop(), statements.is_empty()) {
            (Some(Parsed { statement: Statement::Query(query), .. }), true) => {
                self.relation(&query)
            }
            (Some(parsed), true) => {
                Diagnostic::new(code::SYNTAX_ERROR, "this statement is not a query")
                    .at(parsed.span)
                    .with_hint("Run it with execute.")
                    .err()
            }
            _ => Diagnostic::new(code::SYNTAX_ERROR, "expected exactly one query").err(),
        }
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
        self.add_table(&name, TableSchema { columns, indexes: Vec::new() }, false).map(|_| ())
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

    fn statement(&self, parsed: &Parsed, script: &str) -> Result<Output> {
        match &parsed.statement {
            Statement::Query(query) => self.run_query(query),
            Statement::Explain(query) => self.explain(query),
            Statement::CreateDatabase { name, if_not_exists } => {
                self.create_database(name, *if_not_exists)
            }
            Statement::DropDatabase { name, if_exists } => self.drop_database(name, *if_exists),
            Statement::Use(name) => self.use_database(name),
            Statement::CreateTable(create) => self.run_create_table(create),
            Statement::DropTable { name, if_exists } => self.drop_table(name, *if_exists),
            Statement::CreateIndex(create) => {
                let table = self.find_table(&create.table)?;
                let index = create_table::created_index(create, &table.schema())?;
                table.add_declared_index(index).map_err(|error| append::refused(&error))?;
                Ok(done("CREATE INDEX"))
            }
            Statement::Insert(insert) => {
                let table = self.find_table(&insert.table)?;
                written("INSERT", append::insert(insert, &table, self.settings())?)
            }
            Statement::LoadData(load) => {
                let table = self.find_table(&load.table)?;
                load::load(load, &table, self.settings())
            }
            Statement::Deploy(deploy) => self.deploy(deploy, script),
            Statement::DropDeployment { name, if_exists } => self.drop_deployment(name, *if_exists),
            Statement::Show(show) => self.show(show),
            Statement::Describe(name) => show::describe(&self.find_table(name)?.schema()),
            Statement::Set { name, value, .. } => {
                self.state.write().variables.set(name, value)?;
                Ok(done("SET"))
            }
            _ => {
                Diagnostic::unsupported("this statement is not supported yet").at(parsed.span).err()
            }
        }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn settings(&self) -> Settings {
        self.state.read().variables.settings
    }

    pub(crate) fn current_database(&self) -> String {
        self.state.read().current_database.clone()
    }

    pub(crate) fn bind(&self, query: &Query) -> Result<BoundQuery> {
        let current = self.current_database();
        let objects = self.database.objects();
        let view = View { objects: &objects, current_database: &current };
        let options = BindOptions { settings: self.settings(), parameters: Vec::new() };
        bind(query, &view, &options)
    }

    fn relation(&self, query: &Query) -> Result<Relation> {
        let bound = self.bind(query)?;
        let requests = config::request_rows(self, query, &bound)?;
        Ok(Relation::new(self.database.clone(), bound, requests))
    }

    fn run_query(&self, query: &Query) -> Result<Output> {
        let output = self.relation(query)?.collect(None)?;
        match &query.into_outfile {
            Some(outfile) => load::write_outfile(outfile, &output, self.settings()),
            None => Ok(output),
        }
    }

    fn explain(&self, query: &Query) -> Result<Output> {
        let bound = self.bind(query)?;
        let mut lines = vec!["batch mode".to_owned()];
        let plan = bound.plan.display_indent().to_string();
        lines.extend(plan.lines().map(|line| format!("  {line}")));
        lines.push("request mode".to_owned());
        match PreparedRequest::compile(&bound, &self.database.tables()) {
            Ok(request) => lines.extend(request.explain().lines().map(|line| format!("  {line}"))),
            Err(error) => lines.push(format!("  not available: {error}")),
        }
        let warnings = retention_warnings(&bound.plan);
        Ok(Output { warnings, ..show::list("plan", lines.iter().map(String::as_str))? })
    }

    fn create_database(&self, name: &Ident, if_not_exists: bool) -> Result<Output> {
        let databases = &mut self.database.objects_mut().databases;
        if databases.contains_key(&name.text) {
            if if_not_exists {
                return Ok(done("CREATE DATABASE"));
            }
            let message = format!("database `{}` exists already", name.text);
            return Diagnostic::new(code::DUPLICATE_DATABASE, message).at(name.span).err();
        }
        databases.insert(name.text.clone(), DatabaseObjects::default());
        Ok(done("CREATE DATABASE"))
    }

    fn drop_database(&self, name: &Ident, if_exists: bool) -> Result<Output> {
        let databases = &mut self.database.objects_mut().databases;
        let Some(found) = databases.get(&name.text) else {
            if if_exists {
                return Ok(done("DROP DATABASE"));
            }
            return no_database(name, databases.keys().map(String::as_str));
        };
        if !found.tables.is_empty() || !found.deployments.is_empty() {
            let message = format!("database `{}` is not empty", name.text);
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .at(name.span)
                .with_hint("Drop its deployments and tables first.")
                .err();
        }
        databases.remove(&name.text);
        Ok(done("DROP DATABASE"))
    }

    fn use_database(&self, name: &Ident) -> Result<Output> {
        let objects = self.database.objects();
        if !objects.databases.contains_key(&name.text) {
            return no_database(name, objects.databases.keys().map(String::as_str));
        }
        self.state.write().current_database.clone_from(&name.text);
        Ok(done("USE"))
    }

    fn run_create_table(&self, create: &ast::CreateTable) -> Result<Output> {
        if create.if_not_exists && self.find_table(&create.name).is_ok() {
            return Ok(done("CREATE TABLE"));
        }
        let schema = match &create.like {
            Some(like) => load::schema_of(like, self.settings())?,
            None => create_table::schema(create, self.settings())?,
        };
        let known = ["partitionnum", "replicanum", "distribution", "storage_mode", "compress_type"];
        let stray = create.options.iter().filter(|item| !known.contains(&item.key.text.as_str()));
        let warnings = stray
            .map(|item| {
                let message = format!("option `{}` does not exist and is ignored", item.key.text);
                Diagnostic::new(code::INVALID_PARAMETER, message)
                    .at(item.key.span)
                    .with_nearest(&item.key.text, known)
            })
            .collect();
        self.add_table(&create.name, schema, create.if_not_exists)?;
        Ok(Output { warnings, ..done("CREATE TABLE") })
    }

    fn add_table(
        &self,
        name: &ObjectName,
        schema: TableSchema,
        lenient: bool,
    ) -> Result<Arc<Table>> {
        let table = self.database.make_table(schema).map_err(|error| append::refused(&error))?;
        let table = Arc::new(table);
        let current = self.current_database();
        let mut objects = self.database.objects_mut();
        let id = objects.next_table_id;
        let database = name.database.as_ref().map_or(current.as_str(), |d| d.text.as_str());
        let Some(found) = objects.databases.get_mut(database) else {
            let at = name.database.as_ref().unwrap_or(&name.name);
            return no_database(at, objects.databases.keys().map(String::as_str));
        };
        if let Some(existing) = found.tables.get(&name.name.text) {
            if lenient {
                return Ok(Arc::clone(&existing.table));
            }
            let message = format!("table `{}` exists already", name.name.text);
            return Diagnostic::new(code::DUPLICATE_TABLE, message).at(name.name.span).err();
        }
        let entry = TableEntry { id, table: Arc::clone(&table) };
        found.tables.insert(name.name.text.clone(), entry);
        objects.next_table_id += 1;
        Ok(table)
    }

    fn drop_table(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let current = self.current_database();
        let mut objects = self.database.objects_mut();
        let database = name.database.as_ref().map_or(current.as_str(), |d| d.text.as_str());
        let Some(id) = objects.find_table(database, &name.name.text).map(|entry| entry.id) else {
            if if_exists {
                return Ok(done("DROP TABLE"));
            }
            let view = View { objects: &objects, current_database: &current };
            return lockstep_plan::find_table(&view, name).map(|_| done("DROP TABLE"));
        };
        let users: Vec<String> = objects
            .databases
            .values()
            .flat_map(|database| database.deployments.values())
            .filter(|deployment| deployment.table_ids.contains(&id))
            .map(|deployment| format!("`{}`", deployment.name))
            .collect();
        if !users.is_empty() {
            let message =
                format!("table `{}` has deployments: {}", name.name.text, users.join(", "));
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .at(name.name.span)
                .with_hint("Drop them first with DROP DEPLOYMENT.")
                .err();
        }
        let found = objects.databases.get_mut(database).expect("the table was found in it");
        found.tables.remove(&name.name.text);
        Ok(done("DROP TABLE"))
    }

    fn show(&self, show: &Show) -> Result<Output> {
        let current = self.current_database();
        match show {
            Show::Databases => {
                let objects = self.database.objects();
                show::list("database", objects.databases.keys().map(String::as_str))
            }
            Show::Tables => {
                let objects = self.database.objects();
                let tables = objects.databases.get(&current);
                let names = tables.into_iter().flat_map(|found| found.tables.keys());
                show::list("table", names.map(String::as_str))
            }
            Show::CreateTable(name) => {
                let table = self.find_table(name)?;
                let text = show::create_table(&name.name.text, &table.schema());
                show::texts(
                    &["table", "create_table"],
                    &[vec![Some(name.name.text.clone()), Some(text)]],
                )
            }
            Show::Deployments => self.show_deployments(),
            Show::Deployment(name) => self.show_deployment(name),
            Show::Functions => show::functions(),
            Show::Variables => {
                let state = self.state.read();
                let rows: Vec<_> = state
                    .variables
                    .list()
                    .map(|(name, value)| vec![Some(name.to_owned()), Some(value.to_owned())])
                    .collect();
                show::texts(&["variable", "value"], &rows)
            }
            _ => Diagnostic::unsupported("this SHOW is not supported yet").err(),
        }
    }

    pub(crate) fn find_table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        let current = self.current_database();
        let objects = self.database.objects();
        let view = View { objects: &objects, current_database: &current };
        let found = lockstep_plan::find_table(&view, name)?;
        let entry = objects.find_table(&found.database, &found.name);
        Ok(Arc::clone(&entry.expect("the view found it").table))
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

#[expect(clippy::unnecessary_wraps, reason = "the arms of a statement give results")]
fn written(message: &str, rows: u64) -> Result<Output> {
    Ok(Output { rows_affected: Some(rows), ..done(message) })
}
