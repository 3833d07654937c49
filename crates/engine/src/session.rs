//! Sessions: one user's settings and current database, and the dispatch of statements.
//!
//! What each statement does is in `statement`; this file has the session's state, looks names up
//! in the catalog, and runs a statement under the session's limits.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_function::Settings;
use lockstep_host::{QueryLimits, sync::RwLock};
use lockstep_plan::{BindOptions, BoundQuery, CatalogTable, bind, stored_tables};
use lockstep_sql::{
    Parsed,
    ast::{Ident, ObjectName, OptionValue, Query, Statement},
    parse,
};
use lockstep_table::{Durability, Table, with_durability};

use crate::{
    ClientInfo, Database, FindObject, Output, Parameter,
    access::{Caller, OwnedReads, Owner, OwnerGuard, check_owners},
    catalog::{CatalogView, DEFAULT_DATABASE, Definition, Objects, QualifiedName, TableEntry},
    context::{checkpoint, commit},
    conversion::Conversion,
    deployment::BoundIndexes,
    entrance::CallDescription,
    named_source::NamedSources,
    parameters::check_parameters,
    relation::SeenQueries,
    session_list::SessionShared,
    statement::{DropOptions, action_of, create_function, drop_function},
    system,
    variables::{Storage, Variables},
    view::{requirements_of, views_of},
};

/// A session of one user with the engine: a current database and settings. May be shared between
/// threads. Made by [`Database::session`] for the process itself, and by [`Database::authenticate`] for a
/// user.
#[derive(Debug)]
pub struct Session {
    pub(crate) database: Database,
    state: RwLock<SessionState>,
    pub(crate) shared: Arc<SessionShared>,
    /// The queries that the session was warned of.
    seen_queries: Arc<SeenQueries>,
}

#[derive(Debug, Clone)]
struct SessionState {
    current_database: String,
    variables: Variables,
    /// The declared indexes that queries are bound with, where they are not those that there are.
    bound_indexes: Vec<BoundIndexes>,
    /// If objects are made again while a directory is opened, who owns them.
    restored_owner: Option<RestoredOwner>,
}

/// The owner of an object that is made again; `None`: it has none.
#[derive(Debug, Clone)]
struct RestoredOwner(Option<Owner>);

impl Session {
    pub(crate) fn new(database: Database, caller: Caller, client: ClientInfo) -> Self {
        let state = SessionState {
            current_database: DEFAULT_DATABASE.to_owned(),
            variables: database.objects().variables().clone(),
            bound_indexes: Vec::new(),
            restored_owner: None,
        };
        let shared = database.session_list().open(caller, client, database.now_ms());
        let seen_queries = Arc::default();
        Self { database, state: RwLock::new(state), shared, seen_queries }
    }

    /// Returns the queries that the session was warned of.
    pub(crate) fn seen_queries(&self) -> &Arc<SeenQueries> {
        &self.seen_queries
    }

    /// Returns the engine of the session.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs a script of one or more statements and returns the output of the last one. Statements
    /// before a failing one have taken effect; the failing one has not.
    pub fn execute(&self, script: &str) -> Result<Output> {
        self.run_statements(&parse(script)?, script)
    }

    /// Runs the statements of a script, and returns the output of the last one.
    pub(crate) fn run_statements(&self, statements: &[Parsed], script: &str) -> Result<Output> {
        let mut output = Output::default();
        for statement in statements {
            checkpoint()?;
            check_parameters(statement, &[])?;
            output = self.run_statement(statement, script, &[])?;
        }
        Ok(output)
    }

    /// Runs one statement of a script under the session's limits, with a parameter for each `?`.
    pub(crate) fn run_statement(
        &self,
        parsed: &Parsed,
        script: &str,
        parameters: &[Parameter],
    ) -> Result<Output> {
        let durability = self.durability();
        let plan = || self.plan_of(&parsed.statement, parameters);
        let operation = || CallDescription {
            action: action_of(&parsed.statement),
            text: script.get(parsed.span.start..parsed.span.end).unwrap_or_default(),
            needs: self.needs_of(&parsed.statement),
            is_audited: true,
            plan: &plan,
        };
        self.enter(operation, || {
            let _commit = is_immediate_change(&parsed.statement).then(commit).transpose()?;
            lockstep_host::with_large_stack(|| {
                let run = || retried(|| self.dispatch(parsed, script, parameters));
                with_durability(durability, run)
            })
        })
    }

    /// Describes how a query runs, for the record of slow requests.
    pub(crate) fn plan_of(
        &self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Option<String> {
        let Statement::Query(query) = statement else { return None };
        let bound = self.bind_with(query, parameters).ok()?;
        Some(bound.plan.display_indent().to_string())
    }

    /// Runs a statement against the catalog as it is now. It fails with
    /// [`code::STALE_DEFINITION`], having changed nothing, where the catalog has changed meanwhile.
    fn dispatch(&self, parsed: &Parsed, script: &str, parameters: &[Parameter]) -> Result<Output> {
        let sql = script.get(parsed.span.start..parsed.span.end).unwrap_or_default();
        debug_assert_eq!(parsed.parameter_count, parameters.len(), "the number was checked");
        let output = match &parsed.statement {
            Statement::Query(query) => self.run_query(query, sql, parameters),
            Statement::Explain { query, analyze } => {
                self.explain(query, *analyze, parameters, script)
            }
            Statement::VerifyDeployment { name, against, options } => {
                self.verify_deployment(name, *against, options)
            }
            Statement::Insert(insert) => self.insert(insert, parameters),
            Statement::Delete { table, filter } => {
                self.delete(table, filter.as_deref(), parameters)
            }
            Statement::LoadData(load) => self.load_data(load, sql),
            Statement::CreateDatabase { name, if_not_exists } => {
                self.create_database(name, *if_not_exists)
            }
            Statement::DropDatabase { name, if_exists } => self.drop_database(name, *if_exists),
            Statement::Use(name) => self.use_database(name),
            Statement::CreateTable(create) => self.run_create_table(create, parameters),
            Statement::DropTable { names, if_exists, cascade } => {
                self.drop_tables(names, DropOptions { if_exists: *if_exists, cascade: *cascade })
            }
            Statement::AlterTable { table, actions } => self.alter_table(table, actions),
            Statement::Truncate(names) => self.truncate(names),
            Statement::CreateView(create) => self.create_view(create, script, parsed),
            Statement::DropView { name, if_exists, cascade } => {
                self.drop_view(name, DropOptions { if_exists: *if_exists, cascade: *cascade })
            }
            Statement::Stream(statement) => self.run_stream_statement(statement, parsed, script),
            Statement::Connector(statement) => self.run_connector_statement(statement),
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::DropIndex { table, name } => self.drop_index(table, name),
            Statement::Deploy(deploy) => self.deploy(deploy, script),
            Statement::DropDeployment { name, if_exists } => self.drop_deployment(name, *if_exists),
            Statement::CreateProcedure(create) => self.create_procedure(create, script),
            Statement::DropProcedure { name, if_exists } => self.drop_procedure(name, *if_exists),
            Statement::Call { name, arguments, analyze } => {
                let call = self.called(name, arguments, parameters)?;
                if *analyze { self.explain_call(&call) } else { call.answer() }
            }
            Statement::CreateFunction(create) => create_function(&create.name),
            Statement::DropFunction { name, if_exists } => drop_function(name, *if_exists),
            Statement::CreateUser(user) => self.create_user(user),
            Statement::AlterUser(user) => self.alter_user(user),
            Statement::DropUser { name, if_exists } => self.drop_user(name, *if_exists),
            Statement::Privileges(change) => self.change_privileges(change),
            Statement::CreateRole { name, if_not_exists } => self.create_role(name, *if_not_exists),
            Statement::DropRole { name, if_exists } => self.drop_role(name, *if_exists),
            Statement::Membership(change) => self.change_membership(change),
            Statement::CreateToken(token) => self.create_token(token),
            Statement::DropToken { name, user, if_exists } => {
                self.drop_token(name, user.as_ref(), *if_exists)
            }
            Statement::Kill { session, query_only, span } => {
                self.kill(*session, *query_only, *span)
            }
            Statement::Show(show) => self.show(show),
            Statement::Estimate(estimate) => self.estimate(estimate),
            Statement::Describe(name) => self.describe(name),
            Statement::Set { name, value, global } => self.set(name, value, *global),
            Statement::StopJob(id) => self.stop_job(id),
            Statement::DeleteJob(id) => self.delete_job(id),
            Statement::Exit => Ok(Output::of_message("EXIT")),
            Statement::Checkpoint => self.checkpoint(),
            Statement::Backup { path, span } => self.backup(path, *span),
        }?;
        Ok(Output { settings: self.settings(), ..output })
    }

    /// Returns the rules by which values of this session's rows are converted.
    pub fn conversion(&self) -> Conversion {
        let state = self.state.read();
        Conversion::new(state.variables.settings, state.variables.nan_is_null())
    }

    /// Returns the data that SELECT reads and LOAD DATA writes.
    pub(crate) fn storage(&self) -> Storage {
        self.state.read().variables.storage()
    }

    /// Fails in offline mode: offline data comes from files only.
    pub(crate) fn require_online(&self, statement: &str, span: Span) -> Result<()> {
        if self.storage() == Storage::Online {
            return Ok(());
        }
        let message = format!("{statement} requires execute_mode 'online'");
        Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
            .at(span)
            .with_hint("Run SET @@execute_mode = 'online', or load offline data with LOAD DATA.")
            .err()
    }

    /// Returns the value of a variable of the session or the engine; `None` where there is none of this
    /// name.
    pub fn variable(&self, name: &str) -> Option<String> {
        let is_named = |(known, _): &(&str, &str)| known.eq_ignore_ascii_case(name);
        let of_session = self.variables();
        let found = of_session.of_session().find(is_named).map(|(_, value)| value.to_owned());
        found.or_else(|| {
            let objects = self.database.objects();
            objects.variables().all().find(is_named).map(|(_, value)| value.to_owned())
        })
    }

    pub(crate) fn variables(&self) -> Variables {
        self.state.read().variables.clone()
    }

    /// Sets a variable of the session. Returns the warning where the value has no effect.
    pub(crate) fn set_variable(
        &self,
        name: &Ident,
        value: &OptionValue,
    ) -> Result<Option<Diagnostic>> {
        let variables = &mut self.state.write().variables;
        variables.set(name, value)?;
        Ok(variables.warning(name))
    }

    /// Returns what the session's writes wait for.
    pub(crate) fn durability(&self) -> Durability {
        self.state.read().variables.durability()
    }

    pub(crate) fn job_timeout_ms(&self) -> Option<u64> {
        self.state.read().variables.job_timeout_ms()
    }

    pub(crate) fn insert_memory_percent(&self) -> Option<u64> {
        self.state.read().variables.insert_memory_percent()
    }

    pub(crate) fn settings(&self) -> Settings {
        self.state.read().variables.settings
    }

    pub(crate) fn query_limits(&self) -> QueryLimits {
        self.state.read().variables.limits
    }

    /// Returns the name of the current database, in which names without one are looked up.
    pub fn current_database(&self) -> String {
        self.state.read().current_database.clone()
    }

    /// Gives `read` the current database and the settings of functions.
    pub(crate) fn with_current_database<T>(&self, read: impl FnOnce(&str, Settings) -> T) -> T {
        let state = self.state.read();
        read(&state.current_database, state.variables.settings)
    }

    /// Binds queries of this session as if these were the declared indexes of the tables.
    pub(crate) fn set_bound_indexes(&self, indexes: &[BoundIndexes]) {
        self.state.write().bound_indexes = indexes.to_vec();
    }

    /// Makes objects of this session as they were made for an owner. Whether it still may read what they
    /// read is checked when they are used.
    pub(crate) fn restore_for(&self, owner: Option<Owner>) {
        self.state.write().restored_owner = Some(RestoredOwner(owner));
    }

    /// Returns whether this session makes objects again that were made before.
    pub(crate) fn is_restored(&self) -> bool {
        self.state.read().restored_owner.is_some()
    }

    /// Returns the owner of what this session makes; `None`: it may read everything.
    pub(crate) fn object_owner(&self) -> Option<Owner> {
        match &self.state.read().restored_owner {
            Some(RestoredOwner(owner)) => owner.clone(),
            None => self.caller().owner(),
        }
    }

    /// Returns the owner of an object of a bound query, and the check of the owners of what it reads.
    pub(crate) fn owners_of(
        &self,
        definition: &Arc<Definition>,
        query: &BoundQuery,
    ) -> (Option<Owner>, Option<OwnerGuard>) {
        let owner = self.object_owner();
        let own = OwnedReads::new(definition, owner.clone(), requirements_of(query));
        (owner, OwnerGuard::new(&self.database, own, &views_of(query)))
    }

    /// Returns the declared indexes of the tables of a plan that this session bound.
    pub(crate) fn indexes_of(&self, plan: &LogicalPlan) -> Vec<BoundIndexes> {
        let bound = &self.state.read().bound_indexes;
        let of = |table: &Arc<CatalogTable>| match bound.iter().find(|one| one.table == table.id) {
            Some(bound) => bound.clone(),
            None => BoundIndexes::of(table),
        };
        stored_tables(plan).iter().map(of).collect()
    }

    pub(crate) fn set_current_database(&self, database: &str) {
        database.clone_into(&mut self.state.write().current_database);
    }

    /// Returns the name with its database, which is the current one where none is written.
    pub(crate) fn qualified(&self, name: &ObjectName) -> QualifiedName {
        let database =
            name.database.as_ref().map_or_else(|| self.current_database(), |d| d.text.clone());
        QualifiedName { database, name: name.name.text.clone() }
    }

    /// Returns the entry of a table in the catalog.
    pub(crate) fn find_entry(&self, name: &ObjectName) -> Result<TableEntry> {
        let current = self.current_database();
        let objects = self.database.objects();
        let view = CatalogView {
            objects: &objects,
            current_database: &current,
            reader: None,
            sources: None,
            indexes: &[],
        };
        let found = lockstep_plan::find_table(&view, name)?;
        if system::is_system(found.id) {
            return system::read_only(&found.name).at(name.name.span).err();
        }
        let entry = objects.find_table(&found.database, &found.name);
        Ok(entry.expect("the view found it under the same lock").clone())
    }

    /// Returns a table.
    pub(crate) fn find_table(&self, name: &ObjectName) -> Result<Arc<Table>> {
        self.find_entry(name).map(|entry| entry.table)
    }

    pub(crate) fn bind_options(&self, parameters: &[Parameter]) -> BindOptions {
        let as_postgres = false;
        BindOptions { settings: self.settings(), parameters: parameters.to_vec(), as_postgres }
    }

    /// Returns what a query is bound with that is run once, and not stored.
    pub(crate) fn query_options(&self, parameters: &[Parameter]) -> BindOptions {
        BindOptions { as_postgres: self.is_of_postgres(), ..self.bind_options(parameters) }
    }

    /// Returns whether the session's client speaks PostgreSQL's protocol.
    pub(crate) fn is_of_postgres(&self) -> bool {
        self.shared.client().protocol.as_deref() == Some(ClientInfo::POSTGRESQL)
    }

    /// Binds a query without parameters that is stored, and bound again when the database is opened.
    pub(crate) fn bind(&self, query: &Query) -> Result<BoundQuery> {
        self.bind_as(query, &self.bind_options(&[]), None).map(|(bound, _)| bound)
    }

    /// Binds a query with a parameter for each `?`.
    pub(crate) fn bind_with(&self, query: &Query, parameters: &[Parameter]) -> Result<BoundQuery> {
        self.bind_naming(query, parameters, None).map(|(bound, _)| bound)
    }

    /// Binds a query that may name Arrow objects of its caller as tables. Returns warnings about
    /// its files and objects as well.
    pub(crate) fn bind_naming(
        &self,
        query: &Query,
        parameters: &[Parameter],
        objects: Option<FindObject<'_>>,
    ) -> Result<(BoundQuery, Vec<Diagnostic>)> {
        self.bind_as(query, &self.query_options(parameters), objects)
    }

    fn bind_as(
        &self,
        query: &Query,
        options: &BindOptions,
        objects: Option<FindObject<'_>>,
    ) -> Result<(BoundQuery, Vec<Diagnostic>)> {
        self.bind_sources(NamedSources::default(), objects, |sources| {
            self.bind_in(query, options, sources, None)
        })
    }

    /// Binds a query that names none of the catalog's objects: the rows of `sources`, files, and system
    /// tables, as this session's user may read them. Returns warnings about its files as well.
    pub(crate) fn bind_over(
        &self,
        query: &Query,
        sources: NamedSources,
    ) -> Result<(BoundQuery, Vec<Diagnostic>)> {
        let objects = Objects::new(true);
        self.bind_sources(sources, None, |sources| {
            let view = CatalogView {
                objects: &objects,
                current_database: DEFAULT_DATABASE,
                // There is no object that a privilege would be needed for.
                reader: None,
                sources: Some(sources),
                indexes: &[],
            };
            bind(query, &view, &self.bind_options(&[]))
        })
    }

    /// Binds a query, and again as long as it names sources that are not open yet.
    fn bind_sources(
        &self,
        mut sources: NamedSources,
        objects: Option<FindObject<'_>>,
        bind: impl Fn(&NamedSources) -> Result<BoundQuery>,
    ) -> Result<(BoundQuery, Vec<Diagnostic>)> {
        loop {
            let outcome = bind(&sources);
            // Files are opened here, where the catalog is not locked.
            if !sources.open_missing(self, objects)? {
                return match outcome {
                    Ok(bound) => Ok((bound, sources.into_warnings())),
                    Err(error) => Err(sources.with_left_out(error)),
                };
            }
        }
    }

    /// Binds a query over sources that are open, whose names belong to a database, or to the current one.
    pub(crate) fn bind_in(
        &self,
        query: &Query,
        options: &BindOptions,
        sources: &NamedSources,
        database: Option<&str>,
    ) -> Result<BoundQuery> {
        let (current, indexes, is_restored) = {
            let state = self.state.read();
            let is_restored = state.restored_owner.is_some();
            let current = database.unwrap_or(&state.current_database).to_owned();
            (current, state.bound_indexes.clone(), is_restored)
        };
        let objects = self.database.objects();
        let reader = self.caller().user.is_some().then(|| self.caller());
        let view = CatalogView {
            objects: &objects,
            current_database: &current,
            reader,
            sources: Some(sources),
            indexes: &indexes,
        };
        let bound = bind(query, &view, options)?;
        if !is_restored {
            check_owners(&objects, &views_of(&bound))
                .map_err(|error| Box::new(error.at(query.span)))?;
        }
        Ok(bound)
    }
}

/// Makes the name of `object` or `database.object`, without a position.
pub(crate) fn object_name(text: &str) -> ObjectName {
    let ident = |text: &str| Ident { text: text.to_owned(), span: Span::default() };
    match text.split_once('.') {
        Some((database, name)) => ObjectName { database: Some(ident(database)), name: ident(name) },
        None => ObjectName { database: None, name: ident(text) },
    }
}

/// The most attempts of a statement, each of which failed because of a concurrent DROP.
const ATTEMPTS_MAX: usize = 100;

/// Runs `attempt`, and again where it fails with [`code::STALE_DEFINITION`]: the catalog changed
/// after the attempt had read it. Such an attempt must have changed nothing, so that the result is
/// that of a statement after the change.
pub(crate) fn retried<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if error.code == code::STALE_DEFINITION => {}
            result => return result,
        }
    }
    attempt().map_err(|error| Box::new(error.with_kind(Kind::Retry)))
}

/// Whether a statement makes its change at once, so that the whole statement is the commit. Other
/// statements that write call [`commit`] themselves.
fn is_immediate_change(statement: &Statement) -> bool {
    !matches!(
        statement,
        Statement::Query(_)
            | Statement::CreateTable(_)
            | Statement::CreateView(_)
            | Statement::Stream(_)
            | Statement::Connector(_)
            | Statement::AlterTable { .. }
            | Statement::Explain { .. }
            | Statement::VerifyDeployment { .. }
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
            | Statement::Kill { .. }
            | Statement::StopJob(_)
            | Statement::Checkpoint
            | Statement::Backup { .. }
            | Statement::Exit
    )
}
