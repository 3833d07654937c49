//! Commands, which are the only changes of the catalog.
//!
//! A statement reads the catalog, does its work without the catalog's lock (it compiles, it builds
//! indexes), and commits a command with [`crate::Database::commit`]. [`Objects::apply`] checks the
//! command against the catalog as it is then, which may have changed since the statement read it.
//! A command is applied completely or not at all, and the same commands in the same order give the
//! same catalog.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_sql::ast::{ConnectorKind, Ident, OptionValue};
use lockstep_table::Table;

use super::{
    Cascade, CatalogEpoch, DatabaseObjects, Definition, ObjectKind, Objects, QualifiedName,
    TableEntry, TableReference, stale, stream::taken,
};
use crate::{
    connector::Connector,
    deployment::{Deployment, Procedure},
    offline_data::{OfflineChange, OfflineData},
    statement::TableOptions,
    stream::Stream,
    user::UserCommand,
    view::View,
    worker::Worker,
};

/// A change of the catalog.
#[derive(Debug)]
pub(crate) enum CatalogCommand {
    CreateDatabase {
        name: String,
    },
    DropDatabase {
        name: String,
    },
    CreateTable {
        name: QualifiedName,
        table: Arc<Table>,
        options: TableOptions,
        or_replace: bool,
    },
    ReplaceTable {
        entry: TableEntry,
        replaced: u64,
        readers: Vec<ReplacedReader>,
    },
    DropTable {
        name: QualifiedName,
        id: u64,
        with: Cascade,
    },
    CreateView {
        view: Arc<View>,
        or_replace: bool,
        seen: CatalogEpoch,
    },
    DropView {
        name: QualifiedName,
        with: Cascade,
    },
    CreateStream {
        stream: Arc<Stream>,
        seen: CatalogEpoch,
    },
    /// Puts a stream in the place of the one from which it was made.
    ReplaceStream {
        stream: Arc<Stream>,
        before: Arc<Stream>,
    },
    DropStream {
        name: QualifiedName,
    },
    CreateConnector {
        connector: Arc<Connector>,
    },
    /// Puts a source or a sink in the place of the one from which it was made.
    ReplaceConnector {
        connector: Arc<Connector>,
        before: Arc<Connector>,
    },
    DropConnector {
        kind: ObjectKind,
        name: QualifiedName,
    },
    ChangeOffline {
        table: TableReference,
        change: OfflineChange,
    },
    SetTableOptions {
        table: TableReference,
        options: TableOptions,
    },
    CreateDeployment {
        deployment: Arc<Deployment>,
        or_replace: bool,
        seen: CatalogEpoch,
    },
    DropDeployment {
        name: QualifiedName,
    },
    CreateProcedure {
        procedure: Arc<Procedure>,
        or_replace: bool,
        seen: CatalogEpoch,
    },
    DropProcedure {
        name: QualifiedName,
    },
    SetVariable {
        name: Ident,
        value: OptionValue,
    },
    ChangeUsers(UserCommand),
}

impl CatalogCommand {
    /// Fails where the command makes something without a name, which no statement could name. The text of
    /// a statement has no such name; that of a user may be a string, and a front end gives names as well.
    pub(crate) fn check_names(&self) -> Result<()> {
        let (kind, name) = match self {
            Self::CreateDatabase { name } => ("a database", name),
            Self::CreateTable { name, .. } => ("a table", &name.name),
            Self::CreateView { view, .. } => ("a view", &view.name().name),
            Self::CreateStream { stream, .. } => ("a stream", &stream.name().name),
            Self::CreateConnector { connector } => match connector.kind {
                ConnectorKind::Source => ("a source", &connector.name().name),
                ConnectorKind::Sink => ("a sink", &connector.name().name),
            },
            Self::CreateDeployment { deployment, .. } => ("a deployment", &deployment.name().name),
            Self::CreateProcedure { procedure, .. } => ("a procedure", &procedure.name().name),
            Self::ChangeUsers(UserCommand::Create(change)) => ("a user", &change.name.text),
            Self::ChangeUsers(UserCommand::CreateRole { name, .. }) => ("a role", &name.text),
            Self::DropDatabase { .. }
            | Self::ReplaceTable { .. }
            | Self::DropTable { .. }
            | Self::DropView { .. }
            | Self::ReplaceStream { .. }
            | Self::DropStream { .. }
            | Self::ReplaceConnector { .. }
            | Self::DropConnector { .. }
            | Self::ChangeOffline { .. }
            | Self::SetTableOptions { .. }
            | Self::DropDeployment { .. }
            | Self::DropProcedure { .. }
            | Self::SetVariable { .. }
            | Self::ChangeUsers(_) => return Ok(()),
        };
        check_name(kind, name)
    }

    /// Returns the deployments that the command replaces in addition to what it is about.
    pub(crate) fn compiled_readers(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        let readers = match self {
            Self::ReplaceTable { readers, .. } => readers.as_slice(),
            _ => &[],
        };
        readers.iter().map(|reader| &reader.after)
    }
}

/// A deployment that is compiled again because a table that it reads is replaced.
#[derive(Debug)]
pub(crate) struct ReplacedReader {
    pub(crate) before: Arc<Deployment>,
    pub(crate) after: Arc<Deployment>,
}

/// Fails where a name is empty; `kind` says of what it is.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<()> {
    if !name.is_empty() {
        return Ok(());
    }
    Diagnostic::new(code::SYNTAX_ERROR, format!("the name of {kind} cannot be empty"))
        .with_kind(Kind::FixRequest)
        .with_hint("Specify a name of at least one character.")
        .err()
}

/// The object that a command removed from the catalog. It is freed after the catalog's lock is
/// released, since freeing a table takes time.
#[derive(Debug)]
pub(crate) enum Removed {
    Nothing,
    /// A table, and deployments that read it.
    TableAndReaders(TableEntry, Vec<Arc<Deployment>>),
    Table(TableEntry),
    View(Arc<View>),
    Stream(Arc<Stream>),
    Connector(Arc<Connector>),
    Deployment(Arc<Deployment>),
    Procedure(Arc<Procedure>),
    Several(Vec<Self>),
}

impl Removed {
    /// Marks the object as dropped. The catalog without it is the current one, and still locked.
    pub(crate) fn mark(&self) {
        match self {
            Self::TableAndReaders(entry, readers) => {
                readers.iter().for_each(|reader| reader.definition.mark_dropped());
                entry.definition.mark_dropped();
            }
            Self::Table(entry) => entry.definition.mark_dropped(),
            Self::View(view) => view.definition.mark_dropped(),
            Self::Stream(stream) => stream.definition.mark_dropped(),
            Self::Connector(connector) => connector.definition.mark_dropped(),
            Self::Deployment(deployment) => deployment.definition.mark_dropped(),
            Self::Procedure(procedure) => procedure.definition.mark_dropped(),
            Self::Several(removed) => removed.iter().for_each(Self::mark),
            Self::Nothing => {}
        }
    }

    /// Frees the rows of a table, even while another thread has the table; or the holds of a
    /// deployment, once no request uses it.
    pub(crate) fn release(self) {
        match self {
            Self::TableAndReaders(entry, readers) => {
                for reader in readers {
                    Self::Deployment(reader).release();
                }
                entry.table.close();
            }
            Self::Table(entry) => entry.table.close(),
            Self::View(view) => drop(view),
            Self::Stream(stream) => Worker::end(&*stream),
            Self::Connector(connector) => Worker::end(&*connector),
            Self::Deployment(deployment) => {
                let dropped = deployment.dropped.watch();
                release(deployment, &dropped);
            }
            Self::Procedure(procedure) => {
                let dropped = procedure.dropped.watch();
                release(procedure, &dropped);
            }
            Self::Several(removed) => removed.into_iter().for_each(Self::release),
            Self::Nothing => {}
        }
    }
}

/// How long a statement waits for those who have what it dropped.
const RELEASE_WAIT_MS: u32 = 1_000;

/// Drops an object, and waits for others to drop it: a copy of the catalog that is being written down,
/// or a request, has it for a moment, and what comes next is to find its holds released. Who has it for
/// longer releases them later.
fn release<T>(object: Arc<T>, dropped: &AtomicBool) {
    drop(object);
    for _ in 0..RELEASE_WAIT_MS {
        // Acquire: pairs with the Release of `DropSignal`.
        if dropped.load(Ordering::Acquire) {
            break;
        }
        lockstep_host::pause(1);
    }
}

/// Says when an object and everything in it are dropped: its last field, which is dropped after the others. The
/// count of those who have the object says it too early, while the last of them still drops what is in it.
#[derive(Debug, Default)]
pub(crate) struct DropSignal(Arc<AtomicBool>);

impl DropSignal {
    /// Returns what is true when the object is dropped.
    fn watch(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for DropSignal {
    fn drop(&mut self) {
        // Release: what was dropped before is seen by whoever sees this.
        self.0.store(true, Ordering::Release);
    }
}

impl Objects {
    /// Applies a command, or changes nothing. Errors have no position: the statement adds it. What is
    /// removed is marked by the caller once this catalog is the current one.
    pub(crate) fn apply(&mut self, command: &CatalogCommand) -> Result<Removed> {
        let removed = match command {
            CatalogCommand::CreateDatabase { name } => self.create_database(name.clone()),
            CatalogCommand::DropDatabase { name } => self.drop_database(name),
            CatalogCommand::CreateTable { name, table, options, or_replace } => {
                self.create_table(name.clone(), Arc::clone(table), options.clone(), *or_replace)
            }
            CatalogCommand::ReplaceTable { entry, replaced, readers } => {
                self.replace_table(entry, *replaced, readers)
            }
            CatalogCommand::DropTable { name, id, with } => {
                self.with_cascade(with, |objects| objects.drop_table(name, *id))
            }
            CatalogCommand::CreateView { view, or_replace, seen } => {
                self.create_view(view, *or_replace, *seen)
            }
            CatalogCommand::DropView { name, with } => {
                self.with_cascade(with, |objects| objects.drop_view(name))
            }
            CatalogCommand::CreateStream { stream, seen } => self.create_stream(stream, *seen),
            CatalogCommand::ReplaceStream { stream, before } => self.replace_stream(stream, before),
            CatalogCommand::DropStream { name } => self.drop_stream(name),
            CatalogCommand::CreateConnector { connector } => self.create_connector(connector),
            CatalogCommand::ReplaceConnector { connector, before } => {
                self.replace_connector(connector, before)
            }
            CatalogCommand::DropConnector { kind, name } => self.drop_connector(*kind, name),
            CatalogCommand::ChangeOffline { table, change } => self.change_offline(table, change),
            CatalogCommand::SetTableOptions { table, options } => {
                self.entry(table)?;
                let tables = &mut self.database_mut(&table.name.database)?.tables;
                let entry = tables.get_mut(&table.name.name).expect("it was found above");
                entry.options = options.clone();
                Ok(Removed::Nothing)
            }
            CatalogCommand::CreateDeployment { deployment, or_replace, seen } => {
                self.create_deployment(Arc::clone(deployment), *or_replace, *seen)
            }
            CatalogCommand::DropDeployment { name } => self.drop_deployment(name),
            CatalogCommand::CreateProcedure { procedure, or_replace, seen } => {
                self.create_procedure(Arc::clone(procedure), *or_replace, *seen)
            }
            CatalogCommand::DropProcedure { name } => self.drop_procedure(name),
            CatalogCommand::SetVariable { name, value } => {
                self.variables.set(name, value).map(|()| Removed::Nothing)
            }
            CatalogCommand::ChangeUsers(command) => {
                self.users.apply(command).map(|()| Removed::Nothing)
            }
        }?;
        self.epoch = self.epoch.next();
        Ok(removed)
    }

    fn create_database(&mut self, name: String) -> Result<Removed> {
        if self.databases.contains_key(&name) {
            let message = format!("database `{name}` already exists");
            return Diagnostic::new(code::DUPLICATE_DATABASE, message).err();
        }
        self.databases.insert(name, DatabaseObjects::default());
        Ok(Removed::Nothing)
    }

    fn drop_database(&mut self, name: &str) -> Result<Removed> {
        if !self.database(name)?.is_empty() {
            let message = format!("database `{name}` is not empty");
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .with_hint("Drop its deployments, sources, sinks, streams, views and tables first.")
                .err();
        }
        let removed = self.databases.remove(name);
        debug_assert!(removed.is_some_and(|objects| objects.is_empty()), "it was found above");
        Ok(Removed::Nothing)
    }

    fn create_table(
        &mut self,
        name: QualifiedName,
        table: Arc<Table>,
        options: TableOptions,
        or_replace: bool,
    ) -> Result<Removed> {
        let id = table.log_id().expect("a table of the catalog has an id");
        self.check_no_work(&name)?;
        if self.find_view(&name).is_some() {
            return taken(ObjectKind::View, &name).err();
        }
        if let Some(present) = self.database(&name.database)?.tables.get(&name.name) {
            if !or_replace {
                let message = format!("table `{}` already exists", name.name);
                return Diagnostic::new(code::DUPLICATE_TABLE, message)
                    .with_hint(
                        "Replace it with CREATE OR REPLACE TABLE, or keep it with IF NOT EXISTS.",
                    )
                    .err();
            }
            self.check_unread(&name, present.id)?;
        }
        let definition = Definition::new(ObjectKind::Table, name.clone());
        let entry = TableEntry {
            id,
            table,
            options,
            offline: Arc::default(),
            definition,
            writers: Arc::default(),
        };
        let tables = &mut self.database_mut(&name.database)?.tables;
        Ok(tables.insert(name.name, entry).map_or(Removed::Nothing, Removed::Table))
    }

    /// Puts a table in the place of another one, and deployments over it in the place of those that read
    /// the other one. Fails if these are not all that read it.
    fn replace_table(
        &mut self,
        entry: &TableEntry,
        replaced: u64,
        readers: &[ReplacedReader],
    ) -> Result<Removed> {
        let name = entry.definition.name().clone();
        if self.find_table(&name.database, &name.name).is_none_or(|found| found.id != replaced) {
            return stale(ObjectKind::Table, &name).err();
        }
        for ReplacedReader { before, .. } in readers {
            let found = self.databases.get(&before.name().database);
            let found = found.and_then(|found| found.deployments.get(&before.name().name));
            if !found.is_some_and(|found| Arc::ptr_eq(found, before)) {
                return stale(ObjectKind::Deployment, before.name()).err();
            }
        }
        let known: Vec<Arc<Deployment>> =
            readers.iter().map(|reader| Arc::clone(&reader.before)).collect();
        self.check_read_by(&name, replaced, &known)?;
        let mut removed = Vec::with_capacity(readers.len());
        for ReplacedReader { after, .. } in readers {
            let QualifiedName { database, name } = after.name().clone();
            let deployments = &mut self.database_mut(&database)?.deployments;
            removed.extend(deployments.insert(name, Arc::clone(after)));
        }
        debug_assert_eq!(removed.len(), readers.len(), "each was found above");
        let tables = &mut self.database_mut(&name.database)?.tables;
        let table = tables.insert(name.name, entry.clone()).expect("it was found above");
        Ok(Removed::TableAndReaders(table, removed))
    }

    /// Returns the deployments that read a table or log their answers to it.
    pub(crate) fn deployments_with(&self, id: u64) -> Vec<Arc<Deployment>> {
        let all = self.databases.values().flat_map(|found| found.deployments.values());
        let uses = |found: &&Arc<Deployment>| {
            found.tables.iter().chain(&found.answers).any(|table| table.id == id)
        };
        all.filter(uses).cloned().collect()
    }

    /// Returns the catalog with a table in the place of the one that has its name.
    pub(crate) fn with_table(mut self, entry: TableEntry) -> Self {
        let QualifiedName { database, name } = entry.definition.name().clone();
        if let Some(found) = self.databases.get_mut(&database) {
            found.tables.insert(name, entry);
        }
        self
    }

    /// Checks that no deployment, procedure or view reads a table that is to be removed.
    pub(crate) fn check_unread(&self, name: &QualifiedName, id: u64) -> Result<()> {
        self.check_read_by(name, id, &[])
    }

    /// Checks that only these deployments read a table.
    pub(crate) fn check_read_by(
        &self,
        name: &QualifiedName,
        id: u64,
        known: &[Arc<Deployment>],
    ) -> Result<()> {
        self.check_unstreamed(name, id)?;
        let (queries, views) = self.readers_of(id, known);
        if queries.is_empty() && views.is_empty() {
            return Ok(());
        }
        if views.is_empty() {
            let queries = queries.join(", ");
            let message = format!("table `{}` has associated deployments: {queries}", name.name);
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .with_hint("Drop them first with DROP DEPLOYMENT or DROP PROCEDURE.")
                .err();
        }
        let readers: Vec<String> = queries.into_iter().chain(views).collect();
        still_read(format!("table `{}` is read by {}", name.name, readers.join(", "))).err()
    }

    /// Checks that a table or view of this name can be replaced by CREATE VIEW, or that there is none.
    pub(crate) fn check_view_free(&self, name: &QualifiedName, or_replace: bool) -> Result<()> {
        let found = self.database(&name.database)?;
        if found.tables.contains_key(&name.name) {
            return taken(ObjectKind::Table, name).err();
        }
        self.check_no_work(name)?;
        match found.views.get(&name.name) {
            Some(_) if !or_replace => {
                let message = format!("view `{}` already exists", name.name);
                Diagnostic::new(code::DUPLICATE_TABLE, message)
                    .with_hint(
                        "Replace it with CREATE OR REPLACE VIEW, or keep it with IF NOT EXISTS.",
                    )
                    .err()
            }
            Some(view) => self.check_unused(view),
            None => Ok(()),
        }
    }

    /// Checks that nothing reads a view that is to be removed.
    fn check_unused(&self, view: &Arc<View>) -> Result<()> {
        let reads = |views: &[Arc<View>]| views.iter().any(|found| Arc::ptr_eq(found, view));
        let mut readers = Vec::new();
        for database in self.databases.values() {
            let views = database.views.values().filter(|found| reads(&found.views));
            readers.extend(views.map(|found| format!("`{}`", found.name().name)));
            let streams = database.streams.values().filter(|found| reads(&found.views));
            readers.extend(streams.map(|found| format!("`{}`", found.name().name)));
            let deployments = database.deployments.values().filter(|found| reads(&found.views));
            readers.extend(deployments.map(|found| format!("`{}`", found.name().name)));
            let procedures = database.procedures.values().filter(|found| reads(&found.views));
            readers.extend(procedures.map(|found| format!("`{}`", found.name().name)));
        }
        if readers.is_empty() {
            return Ok(());
        }
        still_read(format!("view `{}` is read by {}", view.name().name, readers.join(", "))).err()
    }

    fn create_view(
        &mut self,
        view: &Arc<View>,
        or_replace: bool,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = view.name().clone();
        self.check_view_free(&name, or_replace)?;
        self.check_tables(&view.tables, seen)?;
        self.check_views(&view.views, seen)?;
        if view.views.iter().any(|found| *found.name() == name) {
            let message = format!("view `{}` cannot read the view that it replaces", name.name);
            return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                .with_hint(
                    "Use the old view's query as a subquery instead; SHOW CREATE VIEW shows it.",
                )
                .err();
        }
        let views = &mut self.database_mut(&name.database)?.views;
        debug_assert!(or_replace || !views.contains_key(&name.name), "the name was free");
        let replaced = views.insert(name.name, Arc::clone(view));
        Ok(replaced.map_or(Removed::Nothing, Removed::View))
    }

    pub(super) fn drop_view(&mut self, name: &QualifiedName) -> Result<Removed> {
        let Some(view) = self.find_view(name) else { return self.no_view(name).err() };
        self.check_unused(view)?;
        let removed = self.database_mut(&name.database)?.views.remove(&name.name);
        debug_assert!(removed.is_some(), "it was found above");
        Ok(removed.map_or(Removed::Nothing, Removed::View))
    }

    /// Makes the error for a view that does not exist.
    pub(crate) fn no_view(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        if found.is_some_and(|found| found.tables.contains_key(&name.name)) {
            let message = format!("`{}` is a table, not a view", name.name);
            return Diagnostic::new(code::WRONG_OBJECT_TYPE, message)
                .with_hint("Write TABLE instead of VIEW.");
        }
        let names = found.into_iter().flat_map(|found| found.views.keys());
        let message =
            format!("view `{}` does not exist in database `{}`", name.name, name.database);
        Diagnostic::new(code::UNDEFINED_TABLE, message)
            .with_nearest(&name.name, names.map(String::as_str))
    }

    /// Checks that the views that a query was compiled with are those of the catalog.
    pub(super) fn check_views(&self, views: &[Arc<View>], seen: CatalogEpoch) -> Result<()> {
        if seen == self.epoch {
            return Ok(());
        }
        views.iter().try_for_each(|view| match self.find_view(view.name()) {
            Some(found) if Arc::ptr_eq(found, view) => Ok(()),
            _ => stale(ObjectKind::View, view.name()).err(),
        })
    }

    fn drop_table(&mut self, name: &QualifiedName, id: u64) -> Result<Removed> {
        let tables = &self.database(&name.database)?.tables;
        let Some(entry) = tables.get(&name.name) else {
            if self.find_view(name).is_some() {
                let message = format!("`{}` is a view, not a table", name.name);
                return Diagnostic::new(code::WRONG_OBJECT_TYPE, message)
                    .with_hint("Use DROP VIEW to remove a view.")
                    .err();
            }
            let message =
                format!("table `{}` does not exist in database `{}`", name.name, name.database);
            return Diagnostic::new(code::UNDEFINED_TABLE, message)
                .with_nearest(&name.name, tables.keys().map(String::as_str))
                .err();
        };
        if entry.id != id {
            return stale(ObjectKind::Table, name).err();
        }
        self.check_unread(name, id)?;
        let tables = &mut self.database_mut(&name.database)?.tables;
        let entry = tables.remove(&name.name).expect("it was found above");
        Ok(Removed::Table(entry))
    }

    fn change_offline(
        &mut self,
        table: &TableReference,
        change: &OfflineChange,
    ) -> Result<Removed> {
        let mut data = OfflineData::clone(&self.entry(table)?.offline);
        data.apply(change)?;
        let tables = &mut self.database_mut(&table.name.database)?.tables;
        let entry = tables.get_mut(&table.name.name).expect("it was found above");
        entry.offline = Arc::new(data);
        Ok(Removed::Nothing)
    }

    /// Returns the deployments and procedures that read a table, without the known ones, and the views.
    fn readers_of(&self, id: u64, known: &[Arc<Deployment>]) -> (Vec<String>, Vec<String>) {
        let reads = |tables: &[TableReference]| tables.iter().any(|table| table.id == id);
        let (mut readers, mut views_over_it) = (Vec::new(), Vec::new());
        for database in self.databases.values() {
            let uses =
                |found: &&Arc<Deployment>| reads(&found.tables) || reads(found.answers.as_slice());
            let is_known = |found: &Arc<Deployment>| known.iter().any(|k| Arc::ptr_eq(k, found));
            let uses = |found: &&Arc<Deployment>| uses(found) && !is_known(found);
            let deployments = database.deployments.values().filter(uses);
            readers.extend(deployments.map(|found| format!("`{}`", found.name().name)));
            let procedures = database.procedures.values().filter(|found| reads(&found.tables));
            readers.extend(procedures.map(|found| format!("`{}`", found.name().name)));
            let views = database.views.values().filter(|found| reads(&found.tables));
            views_over_it.extend(views.map(|found| format!("view `{}`", found.name().name)));
        }
        (readers, views_over_it)
    }

    fn create_deployment(
        &mut self,
        deployment: Arc<Deployment>,
        or_replace: bool,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = deployment.name().clone();
        self.check_deployment_free(&name, or_replace)?;
        self.check_tables(&deployment.tables, seen)?;
        self.check_tables(deployment.answers.as_slice(), seen)?;
        self.check_views(&deployment.views, seen)?;
        let deployments = &mut self.database_mut(&name.database)?.deployments;
        debug_assert!(or_replace || !deployments.contains_key(&name.name), "the name was free");
        let replaced = deployments.insert(name.name, deployment);
        Ok(replaced.map_or(Removed::Nothing, Removed::Deployment))
    }

    pub(super) fn drop_deployment(&mut self, name: &QualifiedName) -> Result<Removed> {
        let found = self.databases.get_mut(&name.database);
        match found.and_then(|found| found.deployments.remove(&name.name)) {
            Some(deployment) => Ok(Removed::Deployment(deployment)),
            None => self.no_deployment(name).err(),
        }
    }

    fn create_procedure(
        &mut self,
        procedure: Arc<Procedure>,
        or_replace: bool,
        seen: CatalogEpoch,
    ) -> Result<Removed> {
        let name = procedure.name().clone();
        self.check_procedure_free(&name, or_replace)?;
        self.check_tables(&procedure.tables, seen)?;
        self.check_views(&procedure.views, seen)?;
        let procedures = &mut self.database_mut(&name.database)?.procedures;
        debug_assert!(or_replace || !procedures.contains_key(&name.name), "the name was free");
        let replaced = procedures.insert(name.name, procedure);
        Ok(replaced.map_or(Removed::Nothing, Removed::Procedure))
    }

    pub(super) fn drop_procedure(&mut self, name: &QualifiedName) -> Result<Removed> {
        let found = self.databases.get_mut(&name.database);
        match found.and_then(|found| found.procedures.remove(&name.name)) {
            Some(procedure) => Ok(Removed::Procedure(procedure)),
            None => self.no_procedure(name).err(),
        }
    }

    /// Checks that no deployment and no procedure has the name. They share their names, since CALL
    /// takes either.
    pub(crate) fn check_free(&self, name: &QualifiedName, wanted: ObjectKind) -> Result<()> {
        let found = self.database(&name.database)?;
        let taken_by = if found.deployments.contains_key(&name.name) {
            ObjectKind::Deployment
        } else if found.procedures.contains_key(&name.name) {
            ObjectKind::Procedure
        } else {
            return Ok(());
        };
        let message = format!("{taken_by} `{}` already exists", name.name);
        let error = Diagnostic::new(code::DUPLICATE_OBJECT, message);
        if taken_by == wanted {
            let replace = match wanted {
                ObjectKind::Deployment => "DEPLOY OR REPLACE",
                _ => "CREATE OR REPLACE PROCEDURE",
            };
            return error.with_hint(format!("Replace it with {replace}.")).err();
        }
        error
            .with_detail("Deployments and procedures share a namespace because CALL runs both.")
            .err()
    }

    /// Checks that a deployment may take the name; with OR REPLACE it may be a deployment's.
    pub(crate) fn check_deployment_free(
        &self,
        name: &QualifiedName,
        or_replace: bool,
    ) -> Result<()> {
        if or_replace && self.database(&name.database)?.deployments.contains_key(&name.name) {
            return Ok(());
        }
        self.check_free(name, ObjectKind::Deployment)
    }

    /// Checks that a procedure may take the name; with OR REPLACE it may be a procedure's.
    pub(crate) fn check_procedure_free(
        &self,
        name: &QualifiedName,
        or_replace: bool,
    ) -> Result<()> {
        if or_replace && self.database(&name.database)?.procedures.contains_key(&name.name) {
            return Ok(());
        }
        self.check_free(name, ObjectKind::Procedure)
    }

    /// Checks that the tables that a query was compiled against still exist. Their names were
    /// looked up when the catalog was at the epoch `seen`, or later.
    pub(super) fn check_tables(&self, tables: &[TableReference], seen: CatalogEpoch) -> Result<()> {
        if seen == self.epoch {
            return Ok(());
        }
        tables.iter().try_for_each(|table| self.entry(table).map(|_| ()))
    }

    /// Returns the objects of a database.
    pub(crate) fn database(&self, name: &str) -> Result<&DatabaseObjects> {
        self.databases.get(name).ok_or_else(|| Box::new(self.no_database(name)))
    }

    pub(super) fn database_mut(&mut self, name: &str) -> Result<&mut DatabaseObjects> {
        if !self.databases.contains_key(name) {
            return self.no_database(name).err();
        }
        Ok(self.databases.get_mut(name).expect("it was found above"))
    }

    /// Makes the error for a database that does not exist.
    pub(crate) fn no_database(&self, name: &str) -> Diagnostic {
        let message = format!("database `{name}` does not exist");
        Diagnostic::new(code::UNDEFINED_DATABASE, message)
            .with_nearest(name, self.databases.keys().map(String::as_str))
    }

    /// Makes the error for a deployment that does not exist.
    pub(crate) fn no_deployment(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        let names = found.into_iter().flat_map(|found| found.deployments.keys());
        missing("deployment", name).with_nearest(&name.name, names.map(String::as_str))
    }

    /// Makes the error for a procedure that does not exist.
    pub(crate) fn no_procedure(&self, name: &QualifiedName) -> Diagnostic {
        let found = self.databases.get(&name.database);
        let names = found.into_iter().flat_map(|found| found.procedures.keys());
        missing("procedure", name).with_nearest(&name.name, names.map(String::as_str))
    }
}

/// Makes the error about an object that others read.
fn still_read(message: String) -> Diagnostic {
    Diagnostic::new(code::DEPENDENT_OBJECTS, message).with_hint(
        "Drop them first with DROP DEPLOYMENT, DROP PROCEDURE, DROP STREAM or DROP VIEW.",
    )
}

fn missing(kind: &str, name: &QualifiedName) -> Diagnostic {
    let message = format!("{kind} `{}` does not exist in database `{}`", name.name, name.database);
    Diagnostic::new(code::UNDEFINED_OBJECT, message)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::{DropSignal, release};

    /// What takes a while to be dropped.
    struct SlowHold(Arc<AtomicBool>);

    impl Drop for SlowHold {
        fn drop(&mut self) {
            lockstep_host::pause(50);
            // Release: pairs with the Acquire of the test.
            self.0.store(true, Ordering::Release);
        }
    }

    struct Object {
        _hold: SlowHold,
        dropped: DropSignal,
    }

    #[test]
    fn what_another_thread_still_drops_is_waited_for() {
        let is_released = Arc::new(AtomicBool::new(false));
        let hold = SlowHold(Arc::clone(&is_released));
        let object = Arc::new(Object { _hold: hold, dropped: DropSignal::default() });
        let other = Arc::clone(&object);
        let thread = lockstep_host::spawn("other", move || {
            lockstep_host::pause(10);
            drop(other);
        });
        let dropped = object.dropped.watch();
        release(object, &dropped);
        // Acquire: pairs with the Release of `SlowHold`.
        assert!(is_released.load(Ordering::Acquire), "the hold is released");
        thread.expect("a thread").join().expect("it ends");
    }
}
