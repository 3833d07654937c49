//! The catalog: databases with their tables, views, streams, sources, sinks, deployments and procedures; variables and users.
//!
//! [`crate::Database`] has it behind one lock, which a statement takes for a look-up, never while
//! it runs. Only a [`CatalogCommand`] (`catalog/command.rs`) changes it.

mod cascade;
mod command;
mod connector;
mod record;
mod stream;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::sync::{RwLock, RwLockWriteGuard};
use lockstep_plan::{Catalog, CatalogTable, DeclaredIndex, NamedQuery};
use lockstep_sql::ast::{FileTable, ObjectName};
use lockstep_table::{Durability, Table, with_durability};
use serde::{Deserialize, Serialize};

use crate::{
    access::{Caller, Requirement},
    connector::Connector,
    deployment::{BoundIndexes, Deployment, Procedure},
    entrance::ReadObjects,
    named_source::{NamedSources, not_stored},
    offline_data::{OfflineChange, OfflineData},
    statement::TableOptions,
    stream::Stream,
    system::{self, SYSTEM_DATABASE},
    user::{Privilege, Securable, Users},
    variables::Variables,
    view::View,
};

pub(crate) use cascade::{Cascade, DroppedObject};
pub(crate) use command::{CatalogCommand, DropSignal, ReplacedReader, check_name};
pub(crate) use record::{CATALOG, CatalogRecord, columns_of};

/// The database that a session starts in.
pub(crate) const DEFAULT_DATABASE: &str = "default";

/// The number of commands that were applied to the catalog: at one epoch it is one catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CatalogEpoch(u64);

impl CatalogEpoch {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// All objects: databases, and the objects that belong to no database.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    epoch: CatalogEpoch,
    databases: BTreeMap<String, DatabaseObjects>,
    /// The global variables, with which new sessions start.
    variables: Variables,
    users: Users,
}

/// The objects of one database.
#[derive(Debug, Clone, Default)]
pub(crate) struct DatabaseObjects {
    pub(crate) tables: BTreeMap<String, TableEntry>,
    pub(crate) views: BTreeMap<String, Arc<View>>,
    pub(crate) streams: BTreeMap<String, Arc<Stream>>,
    /// Sources and sinks.
    pub(crate) connectors: BTreeMap<String, Arc<Connector>>,
    pub(crate) deployments: BTreeMap<String, Arc<Deployment>>,
    pub(crate) procedures: BTreeMap<String, Arc<Procedure>>,
}

impl DatabaseObjects {
    fn is_empty(&self) -> bool {
        self.tables.is_empty()
            && self.views.is_empty()
            && self.streams.is_empty()
            && self.connectors.is_empty()
            && self.deployments.is_empty()
            && self.procedures.is_empty()
    }
}

/// The name of an object with that of its database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct QualifiedName {
    pub(crate) database: String,
    pub(crate) name: String,
}

impl QualifiedName {
    /// Writes the name as a statement takes it, whatever characters it has.
    pub(crate) fn script(&self) -> String {
        let [database, name] = [&self.database, &self.name].map(|part| part.replace('`', "``"));
        format!("`{database}`.`{name}`")
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.name)
    }
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ObjectKind {
    Table,
    View,
    Stream,
    Source,
    Sink,
    Deployment,
    Procedure,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Stream => "stream",
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Deployment => "deployment",
            Self::Procedure => "procedure",
        })
    }
}

/// One definition of a name, from CREATE or DEPLOY to DROP. When the name is defined again, that is
/// another definition.
#[derive(Debug)]
pub(crate) struct Definition {
    kind: ObjectKind,
    name: QualifiedName,
    is_dropped: AtomicBool,
}

impl Definition {
    pub(crate) fn new(kind: ObjectKind, name: QualifiedName) -> Arc<Self> {
        Arc::new(Self { kind, name, is_dropped: AtomicBool::new(false) })
    }

    pub(crate) fn name(&self) -> &QualifiedName {
        &self.name
    }

    pub(crate) fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Returns what a user needs who asks for answers that rest on the object.
    pub(crate) fn requirement(&self) -> Requirement {
        let name = self.name.clone();
        match self.kind {
            ObjectKind::Table
            | ObjectKind::View
            | ObjectKind::Stream
            | ObjectKind::Source
            | ObjectKind::Sink => Requirement::new(Privilege::Select, Securable::Table(name)),
            ObjectKind::Deployment | ObjectKind::Procedure => {
                Requirement::new(Privilege::Execute, Securable::Deployment(name))
            }
        }
    }

    /// Fails once the object was dropped or replaced. Costs one atomic load.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire: pairs with the Release in `mark_dropped`, so that a thread that sees an effect
        // of the DROP sees the DROP as well.
        if self.is_dropped.load(Ordering::Acquire) {
            return self.stale();
        }
        Ok(())
    }

    /// Marks the object as no longer in the catalog.
    fn mark_dropped(&self) {
        debug_assert!(!self.is_dropped.load(Ordering::Relaxed), "an object is dropped once");
        // Release: pairs with the Acquire in `check`.
        self.is_dropped.store(true, Ordering::Release);
    }

    #[cold]
    fn stale(&self) -> Result<()> {
        stale(self.kind, &self.name).err()
    }
}

/// Makes the error for the use of a program whose definition was dropped.
fn stale(kind: ObjectKind, name: &QualifiedName) -> Diagnostic {
    let message = format!("{kind} `{name}` was dropped after the query was prepared");
    Diagnostic::new(code::STALE_DEFINITION, message)
        .with_kind(Kind::PrepareAgain)
        .with_detail("If the name exists now, it refers to another definition.")
        .with_hint("Prepare the query again.")
}

/// A table in the catalog.
#[derive(Debug, Clone)]
pub(crate) struct TableEntry {
    pub(crate) id: u64,
    pub(crate) table: Arc<Table>,
    /// The options of CREATE TABLE.
    pub(crate) options: TableOptions,
    /// The rows that statements in offline mode read instead of the table's.
    pub(crate) offline: Arc<OfflineData>,
    pub(crate) definition: Arc<Definition>,
    /// Held by writers, and alone by ALTER TABLE while another table takes its place.
    pub(crate) writers: Arc<RwLock<()>>,
}

impl TableEntry {
    /// Keeps writers out: they wait, and then find that the table was replaced, if it was.
    pub(crate) fn hold_writes(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let held = self.writers.write();
        self.definition.check()?;
        Ok(held)
    }

    /// Makes the command that changes the table's offline data.
    pub(crate) fn offline_command(&self, change: OfflineChange) -> CatalogCommand {
        CatalogCommand::ChangeOffline { table: self.reference(), change }
    }

    /// Makes the command that gives the table other options.
    pub(crate) fn options_command(&self, options: TableOptions) -> CatalogCommand {
        CatalogCommand::SetTableOptions { table: self.reference(), options }
    }

    pub(crate) fn reference(&self) -> TableReference {
        TableReference { id: self.id, name: self.definition.name().clone() }
    }

    /// Writes to the table. Fails if the table was dropped before the write ended, so that
    /// acknowledged rows were in a table that existed.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&Table) -> Result<T>) -> Result<T> {
        self.write_as(None, write)
    }

    /// Writes to the table as [`Self::write`] does; the write waits for this level, or where there is
    /// none for that of the table's options, or else for that of the session.
    pub(crate) fn write_as<T>(
        &self,
        durability: Option<Durability>,
        write: impl FnOnce(&Table) -> Result<T>,
    ) -> Result<T> {
        let _writing = self.writers.read();
        self.definition.check()?;
        let written = match durability.or(self.options.durability()) {
            Some(durability) => with_durability(durability, || write(&self.table)),
            None => write(&self.table),
        };
        // A table that was dropped meanwhile refuses rows as well; this error names it.
        self.definition.check()?;
        written
    }
}

/// A reference to a table from a query that was bound over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableReference {
    pub(crate) id: u64,
    pub(crate) name: QualifiedName,
}

impl TableReference {
    /// Returns the [`TableReference`] of a bound table.
    pub(crate) fn of(table: &CatalogTable) -> Self {
        let name = QualifiedName { database: table.database.clone(), name: table.name.clone() };
        Self { id: table.id, name }
    }
}

impl Objects {
    pub(crate) fn new(is_in_memory: bool) -> Self {
        let default = (DEFAULT_DATABASE.to_owned(), DatabaseObjects::default());
        Self {
            epoch: CatalogEpoch::default(),
            databases: BTreeMap::from([default]),
            variables: Variables::new(is_in_memory),
            users: Users::default(),
        }
    }

    /// Returns the epoch. What was read at an epoch is true while it is the current one.
    pub(crate) fn epoch(&self) -> CatalogEpoch {
        self.epoch
    }

    pub(crate) fn databases(&self) -> &BTreeMap<String, DatabaseObjects> {
        &self.databases
    }

    /// Returns the global variables, with which new sessions start.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Returns the users, to be set while a directory is opened.
    pub(crate) fn users_mut(&mut self) -> &mut Users {
        &mut self.users
    }

    /// Returns the entry of a table, to be changed while a directory is opened.
    pub(crate) fn entry_of_id(&mut self, table: u64) -> Option<&mut TableEntry> {
        let databases = self.databases.values_mut();
        let mut entries = databases.flat_map(|found| found.tables.values_mut());
        entries.find(|entry| entry.id == table)
    }

    pub(crate) fn find_table(&self, database: &str, name: &str) -> Option<&TableEntry> {
        self.databases.get(database)?.tables.get(name)
    }

    pub(crate) fn find_view(&self, name: &QualifiedName) -> Option<&Arc<View>> {
        self.databases.get(&name.database)?.views.get(&name.name)
    }

    pub(crate) fn find_stream(&self, name: &QualifiedName) -> Option<&Arc<Stream>> {
        self.databases.get(&name.database)?.streams.get(&name.name)
    }

    /// Returns the streams of all databases.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.databases.values().flat_map(|found| found.streams.values())
    }

    /// Returns whether a name is that of the system tables' database.
    pub(crate) fn shows_system(&self, database: &str) -> bool {
        database == SYSTEM_DATABASE && !self.databases.contains_key(database)
    }

    /// Returns the entry of a referenced table; an error when it was dropped since, even if another
    /// table has its name.
    pub(crate) fn entry(&self, table: &TableReference) -> Result<&TableEntry> {
        match self.find_table(&table.name.database, &table.name.name) {
            Some(entry) if entry.id == table.id => Ok(entry),
            _ => stale(ObjectKind::Table, &table.name).err(),
        }
    }
}

/// The catalog as the binder of a statement sees it.
pub(crate) struct CatalogView<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) current_database: &'a str,
    /// The user whose query reads what it names; `None`: nothing is checked.
    pub(crate) reader: Option<&'a Caller>,
    /// The rows that are not stored which the statement names.
    pub(crate) sources: Option<&'a NamedSources>,
    /// The declared indexes of tables as a query was bound with, where it is bound again.
    pub(crate) indexes: &'a [BoundIndexes],
}

impl Catalog for CatalogView<'_> {
    fn current_database(&self) -> &str {
        self.current_database
    }

    fn check_access(&self, database: &str, name: &str) -> Result<()> {
        let Some(reader) = self.reader else { return Ok(()) };
        let name = QualifiedName { database: database.to_owned(), name: name.to_owned() };
        let object = Securable::Table(name);
        ReadObjects::note(&object);
        reader.check_object(self.objects, &Requirement::new(Privilege::Select, object))
    }

    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>> {
        let Some(entry) = self.objects.find_table(database, name) else {
            if self.objects.shows_system(database) {
                return system::find(name);
            }
            let is_current = database == self.current_database;
            return self.sources.filter(|_| is_current)?.find_object(database, name);
        };
        let schema = entry.table.schema();
        Some(Arc::new(CatalogTable {
            id: entry.id,
            database: database.to_owned(),
            name: name.to_owned(),
            arrow_schema: lockstep_row::arrow::arrow_schema(&schema),
            schema,
            source: None,
        }))
    }

    fn find_view(&self, database: &str, name: &str) -> Option<NamedQuery> {
        let name = QualifiedName { database: database.to_owned(), name: name.to_owned() };
        self.objects.find_view(&name).map(View::named_query)
    }

    fn declared_indexes(&self, table: &CatalogTable) -> Vec<DeclaredIndex> {
        match self.indexes.iter().find(|bound| bound.table == table.id) {
            Some(bound) => bound.declared(&table.schema),
            None => BoundIndexes::of(table).declared(&table.schema),
        }
    }

    fn find_files(&self, files: &FileTable, views: &[ObjectName]) -> Result<Arc<CatalogTable>> {
        match self.sources {
            Some(sources) => sources.find_files(files, views),
            None => not_stored(&files.paths[0].text).at(files.span).err(),
        }
    }

    fn has_database(&self, database: &str) -> bool {
        self.objects.databases.contains_key(database) || self.objects.shows_system(database)
    }

    fn table_names(&self, database: &str) -> Vec<String> {
        if self.objects.shows_system(database) {
            return system::names().map(str::to_owned).collect();
        }
        let Some(found) = self.objects.databases.get(database) else { return Vec::new() };
        let is_seen = |name: &&String| {
            self.reader.is_none_or(|reader| reader.sees_table(self.objects, database, name))
        };
        let mut names: Vec<String> =
            found.tables.keys().chain(found.views.keys()).filter(is_seen).cloned().collect();
        if database == self.current_database {
            let objects = self.sources.into_iter().flat_map(NamedSources::object_names);
            names.extend(objects.map(str::to_owned));
        }
        names.sort();
        names
    }
}
