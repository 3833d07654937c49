//! What exists: databases, their tables and their deployments.
//!
//! Held behind one lock by [`crate::Database`]; statements take it for a look-up or a change and
//! never while they run.

use std::{collections::BTreeMap, sync::Arc};

use lockstep_host::sync::RwLock;
use lockstep_plan::{Catalog, CatalogTable};
use lockstep_table::Table;

use crate::{
    deployment::Deployment,
    job::Jobs,
    offline_data::OfflineData,
    procedure::Procedure,
    settings::Variables,
    table_options::TableOptions,
    user::{ROOT, User},
};

/// The database that a session starts in.
pub(crate) const DEFAULT_DATABASE: &str = "default";

/// All databases, and what belongs to none of them.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) databases: BTreeMap<String, DatabaseObjects>,
    pub(crate) next_table_id: u64,
    /// What new sessions start with.
    pub(crate) variables: Variables,
    pub(crate) users: BTreeMap<String, User>,
    pub(crate) jobs: Jobs,
}

/// One database.
#[derive(Debug, Default)]
pub(crate) struct DatabaseObjects {
    pub(crate) tables: BTreeMap<String, TableEntry>,
    pub(crate) deployments: BTreeMap<String, Arc<Deployment>>,
    pub(crate) procedures: BTreeMap<String, Arc<Procedure>>,
}

impl DatabaseObjects {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.deployments.is_empty() && self.procedures.is_empty()
    }
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
}

impl Objects {
    pub(crate) fn new() -> Self {
        let default = (DEFAULT_DATABASE.to_owned(), DatabaseObjects::default());
        Self {
            databases: BTreeMap::from([default]),
            next_table_id: 1,
            variables: Variables::default(),
            users: BTreeMap::from([(ROOT.to_owned(), User::default())]),
            jobs: Jobs::default(),
        }
    }

    pub(crate) fn find_table(&self, database: &str, name: &str) -> Option<&TableEntry> {
        self.databases.get(database)?.tables.get(name)
    }

    /// The entries of the tables with these ids.
    pub(crate) fn entries(&self, ids: &[u64]) -> Vec<TableEntry> {
        let entries = self.databases.values().flat_map(|database| database.tables.values());
        entries.filter(|entry| ids.contains(&entry.id)).cloned().collect()
    }

    /// All tables by id.
    pub(crate) fn tables_by_id(&self) -> BTreeMap<u64, Arc<Table>> {
        let tables = self.databases.values().flat_map(|database| database.tables.values());
        tables.map(|entry| (entry.id, Arc::clone(&entry.table))).collect()
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
