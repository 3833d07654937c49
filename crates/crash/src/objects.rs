//! What a writer knows to exist: its own tables, queries and users, so that it draws operations that
//! make sense.
//!
//! The names of a writer's objects begin with its number, so that no other writer touches them. The
//! tables of [`SHARED`] belong to all.

use std::collections::{BTreeMap, BTreeSet};

use crate::rows::COLUMNS;

/// The tables to which all writers append, with what CREATE TABLE says about their indexes, and where rows are.
pub const SHARED: &[(&str, &str, &str)] = &[
    ("s0", "INDEX(KEY=k, TS=ts)", "memory"),
    ("s1", "INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest)", "disk"),
    ("s2", "INDEX(KEY=k, TS=ts)", "disk"),
];

/// Returns the statements that create the shared tables.
pub fn create_shared() -> impl Iterator<Item = String> {
    SHARED.iter().map(|(name, indexes, mode)| {
        format!("CREATE TABLE {name} ({COLUMNS}, {indexes}) OPTIONS(storage_mode='{mode}')")
    })
}

/// The shared table that has deployments, indexes and DELETE.
pub const SHARED_READ: &str = "s0";
/// The shared table that the first writer truncates, and from which nothing is deleted.
pub const SHARED_TRUNCATED: &str = "s2";

/// A table of a writer.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub struct OwnTable {
    /// The number of the definition that it was created with.
    pub definition: usize,
    /// Whether it has an index over `k` and `ts`.
    pub has_event_time: bool,
    /// Whether it is a disk table.
    pub is_on_disk: bool,
    /// The indexes that CREATE INDEX has made.
    pub indexes: BTreeSet<String>,
    /// The linked files.
    pub links: BTreeSet<String>,
    /// Whether LOAD DATA has copied rows into its offline data.
    pub has_offline_rows: bool,
}

/// The objects of a writer.
#[derive(Debug, Clone, Default)]
pub struct WriterObjects {
    /// Tables, by name.
    pub tables: BTreeMap<String, OwnTable>,
    /// Views, with the table that each reads.
    pub views: BTreeMap<String, String>,
    /// Deployments, with the table or view that each reads.
    pub deployments: BTreeMap<String, String>,
    /// Procedures, likewise.
    pub procedures: BTreeMap<String, String>,
    /// Users.
    pub users: BTreeSet<String>,
    /// Databases.
    pub databases: BTreeSet<String>,
    /// The indexes of [`SHARED_READ`] that CREATE INDEX has made.
    pub shared_indexes: BTreeSet<String>,
}

/// A change of what exists.
#[derive(Debug, Clone)]
pub enum Effect {
    /// None.
    Nothing,
    /// A table is there, instead of another one of its name.
    Table(String, OwnTable),
    /// A table is gone.
    DropTable(String),
    /// A view reads a table.
    View(String, String),
    /// A view is gone.
    DropView(String),
    /// A table of a writer, or a shared one, has an index.
    Index(String, String),
    /// It has no longer.
    DropIndex(String, String),
    /// A deployment reads a table.
    Deployment(String, String),
    /// A deployment is gone.
    DropDeployment(String),
    /// A procedure reads a table.
    Procedure(String, String),
    /// A procedure is gone.
    DropProcedure(String),
    /// A user is there.
    User(String),
    /// A user is gone.
    DropUser(String),
    /// A database is there.
    Database(String),
    /// A database is gone.
    DropDatabase(String),
}

impl WriterObjects {
    /// Changes what exists.
    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Table(name, table) => {
                self.tables.insert(name.clone(), table.clone());
            }
            Effect::DropTable(name) => {
                self.tables.remove(name);
            }
            Effect::View(name, table) => {
                self.views.insert(name.clone(), table.clone());
            }
            Effect::DropView(name) => {
                self.views.remove(name);
            }
            Effect::Index(table, index) => {
                self.indexes_of(table).insert(index.clone());
            }
            Effect::DropIndex(table, index) => {
                self.indexes_of(table).remove(index);
            }
            Effect::Deployment(name, table) => {
                self.deployments.insert(name.clone(), table.clone());
            }
            Effect::DropDeployment(name) => {
                self.deployments.remove(name);
            }
            Effect::Procedure(name, table) => {
                self.procedures.insert(name.clone(), table.clone());
            }
            Effect::DropProcedure(name) => {
                self.procedures.remove(name);
            }
            Effect::User(name) => {
                self.users.insert(name.clone());
            }
            Effect::DropUser(name) => {
                self.users.remove(name);
            }
            Effect::Database(name) => {
                self.databases.insert(name.clone());
            }
            Effect::DropDatabase(name) => {
                self.databases.remove(name);
            }
        }
    }

    fn indexes_of(&mut self, table: &str) -> &mut BTreeSet<String> {
        match self.tables.get_mut(table) {
            Some(own) => &mut own.indexes,
            None => &mut self.shared_indexes,
        }
    }

    /// Returns whether a view, a deployment or a procedure reads a table or view.
    pub fn is_read(&self, table: &str) -> bool {
        let queries = self.deployments.values().chain(self.procedures.values());
        queries.chain(self.views.values()).any(|read| read == table)
    }
}
