//! What exists: databases, their tables and their deployments.
//!
//! Held behind one lock by [`crate::Database`]. Statements take it to look something up, and never
//! while they run. The one thing that changes it is a [`CatalogCommand`] (`catalog/command.rs`).

mod command;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::sync::RwLock;
use lockstep_plan::{Catalog, CatalogTable};
use lockstep_table::Table;

use crate::{
    deployment::Deployment, offline_data::OfflineData, procedure::Procedure, settings::Variables,
    table_options::TableOptions, user::Users,
};

pub(crate) use command::CatalogCommand;

/// The database that a session starts in.
pub(crate) const DEFAULT_DATABASE: &str = "default";

/// How many commands the catalog has taken: at the same epoch it is the same catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Epoch(u64);

impl Epoch {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// All databases, and what belongs to none of them.
#[derive(Debug)]
pub(crate) struct Objects {
    epoch: Epoch,
    databases: BTreeMap<String, DatabaseObjects>,
    next_table_id: u64,
    /// What new sessions start with.
    variables: Variables,
    users: Users,
}

/// One database.
#[derive(Debug, Default)]
pub(crate) struct DatabaseObjects {
    pub(crate) tables: BTreeMap<String, TableEntry>,
    pub(crate) deployments: BTreeMap<String, Arc<Deployment>>,
    pub(crate) procedures: BTreeMap<String, Arc<Procedure>>,
}

impl DatabaseObjects {
    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.deployments.is_empty() && self.procedures.is_empty()
    }
}

/// The name of an object and of its database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QualifiedName {
    pub(crate) database: String,
    pub(crate) name: String,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.name)
    }
}

/// What kind of object a definition is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Table,
    Deployment,
    Procedure,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::Deployment => "deployment",
            Self::Procedure => "procedure",
        })
    }
}

/// One definition of a name, from CREATE or DEPLOY to DROP. The same name defined anew is another
/// definition.
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

    /// Fails once the object was dropped or replaced. One atomic load.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire: pairs with the Release in `end`, so that who sees what came after the DROP sees
        // the DROP as well.
        if self.is_dropped.load(Ordering::Acquire) {
            return self.stale();
        }
        Ok(())
    }

    /// Says that the object is no longer in the catalog.
    fn end(&self) {
        // Release: pairs with the Acquire in `check`.
        self.is_dropped.store(true, Ordering::Release);
    }

    #[cold]
    fn stale(&self) -> Result<()> {
        stale(self.kind, &self.name).err()
    }
}

/// Why what was prepared from an object cannot be used any more.
fn stale(kind: ObjectKind, name: &QualifiedName) -> Diagnostic {
    let message = format!("{kind} `{name}` was dropped since this was prepared");
    Diagnostic::new(code::STALE_DEFINITION, message)
        .with_kind(Kind::PrepareAgain)
        .with_detail("What has the name now, if anything has, is another definition.")
        .with_hint("Prepare it again.")
}

/// A table and what identifies it.
#[derive(Debug, Clone)]
pub(crate) struct TableEntry {
    pub(crate) id: u64,
    pub(crate) table: Arc<Table>,
    /// As CREATE TABLE said.
    pub(crate) options: TableOptions,
    /// What statements in offline mode read instead of the table.
    pub(crate) offline: Arc<RwLock<OfflineData>>,
    pub(crate) definition: Arc<Definition>,
}

impl TableEntry {
    /// Writes to the table. Where a DROP TABLE came first this fails: what is acknowledged was in
    /// a table that was there.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&Table) -> Result<T>) -> Result<T> {
        self.definition.check()?;
        let written = write(&self.table);
        // A table that was dropped meanwhile refuses rows as well: this says which one.
        self.definition.check()?;
        written
    }
}

/// A table as something that was made from it names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableReference {
    pub(crate) id: u64,
    pub(crate) name: QualifiedName,
}

impl TableReference {
    pub(crate) fn of(table: &CatalogTable) -> Self {
        let name = QualifiedName { database: table.database.clone(), name: table.name.clone() };
        Self { id: table.id, name }
    }
}

impl Objects {
    pub(crate) fn new() -> Self {
        let default = (DEFAULT_DATABASE.to_owned(), DatabaseObjects::default());
        Self {
            epoch: Epoch::default(),
            databases: BTreeMap::from([default]),
            next_table_id: 1,
            variables: Variables::default(),
            users: Users::default(),
        }
    }

    /// What is read now holds as long as the epoch is this one.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn databases(&self) -> &BTreeMap<String, DatabaseObjects> {
        &self.databases
    }

    /// What new sessions start with.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    pub(crate) fn find_table(&self, database: &str, name: &str) -> Option<&TableEntry> {
        self.databases.get(database)?.tables.get(name)
    }

    /// The entry of a table that was found before; an error when it was dropped since, also when
    /// another one has its name.
    pub(crate) fn entry(&self, table: &TableReference) -> Result<&TableEntry> {
        match self.find_table(&table.name.database, &table.name.name) {
            Some(entry) if entry.id == table.id => Ok(entry),
            _ => stale(ObjectKind::Table, &table.name).err(),
        }
    }
}

/// The catalog as one statement sees it.
pub(crate) struct View<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) current_database: &'a str,
}

impl Catalog for View<'_> {
    fn current_database(&self) -> &str {
        self.current_database
    }

    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>> {
        let entry = self.objects.find_table(database, name)?;
        let schema = entry.table.schema();
        Some(Arc::new(CatalogTable {
            id: entry.id,
            database: database.to_owned(),
            name: name.to_owned(),
            arrow_schema: lockstep_row::arrow::arrow_schema(&schema),
            schema,
        }))
    }

    fn has_database(&self, database: &str) -> bool {
        self.objects.databases.contains_key(database)
    }

    fn table_names(&self, database: &str) -> Vec<String> {
        let found = self.objects.databases.get(database);
        found.map(|database| database.tables.keys().cloned().collect()).unwrap_or_default()
    }
}
