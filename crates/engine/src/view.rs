//! Views: the named queries of the catalog.
//!
//! CREATE VIEW and CREATE EXTERNAL TABLE make them (`statement/view.rs`). A view holds no rows: its query
//! is bound where it is used (`lockstep_plan`). It is immutable; what replaces one is another object.
//!
//! A view may read files, which are opened where it is used. They may be away when the database is opened,
//! so that such a view is not bound then: its record has what binding told.

use std::sync::Arc;

use lockstep_diagnostic::Result;
use lockstep_function::Settings;
use lockstep_plan::{BoundQuery, NamedQuery, SourceHandle};
use lockstep_row::DataType;
use lockstep_sql::ast::Query;
use serde::{Deserialize, Serialize};

use crate::{
    Database,
    access::{OwnedReads, Requirement, check_owners},
    catalog::{CatalogRecord, Definition, QualifiedName, TableReference},
    deployment::QuerySource,
    user::{Privilege, Securable},
};

/// A query with a name.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) definition: Arc<Definition>,
    /// The query as it was written; of an external table, what stood behind its name.
    pub(crate) sql: String,
    pub(crate) query: Arc<Query>,
    /// The names and types of its columns when it was created.
    pub(crate) columns: Vec<(String, DataType)>,
    /// Which of the two it is, and whether it reads files.
    pub(crate) kind: ViewKind,
    /// The tables that it reads, which cannot be dropped while it exists.
    pub(crate) tables: Vec<TableReference>,
    /// The views that it reads, which cannot be dropped or replaced while it exists.
    pub(crate) views: Vec<Arc<Self>>,
    /// The session's settings at CREATE VIEW. A statement that uses it is bound with its own.
    pub(crate) settings: Settings,
    /// The session's database at CREATE VIEW, in which the names of the query are looked up.
    pub(crate) current_database: String,
    /// What it reads with the privileges of its owner, if it has one.
    pub(crate) owned: Option<OwnedReads>,
}

/// Which kind of view one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ViewKind {
    /// CREATE VIEW over tables.
    OfTables,
    /// CREATE VIEW over files, or over a view of files.
    OfFiles,
    /// CREATE EXTERNAL TABLE: all columns of files.
    ExternalTable,
}

/// What binding a view of files told, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileViewRecord {
    pub(crate) kind: ViewKind,
    pub(crate) columns: Vec<(String, DataType)>,
    pub(crate) tables: Vec<QualifiedName>,
    pub(crate) views: Vec<QualifiedName>,
    /// The tables and views that its text names, if it has an owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) named: Vec<QualifiedName>,
}

impl View {
    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }

    /// Describes the view as the log has it.
    pub(crate) fn record(&self) -> CatalogRecord {
        let files = self.reads_files().then(|| FileViewRecord {
            kind: self.kind,
            columns: self.columns.clone(),
            tables: self.tables.iter().map(|table| table.name.clone()).collect(),
            views: self.views.iter().map(|view| view.name().clone()).collect(),
            named: self.owned.as_ref().map(OwnedReads::tables).unwrap_or_default(),
        });
        let source = QuerySource::new(&self.sql, &self.current_database, self.settings);
        CatalogRecord::CreateView {
            name: self.name().clone(),
            source: source.owned_by(self.owned.as_ref()),
            files,
        }
    }

    /// Whether it reads files.
    pub(crate) fn reads_files(&self) -> bool {
        self.kind != ViewKind::OfTables
    }

    /// Whether CREATE EXTERNAL TABLE made it.
    pub(crate) fn is_external_table(&self) -> bool {
        self.kind == ViewKind::ExternalTable
    }

    /// Returns the view as the binder sees it.
    pub(crate) fn named_query(self: &Arc<Self>) -> NamedQuery {
        let object: SourceHandle = Arc::<Self>::clone(self);
        NamedQuery {
            current_database: self.current_database.clone(),
            query: Arc::clone(&self.query),
            is_external_table: self.is_external_table(),
            object,
        }
    }

    /// Writes the statement that makes it.
    pub(crate) fn script(&self) -> String {
        view_script(self.name(), &self.sql, self.is_external_table())
    }

    /// Returns how many views it rests on, one above another: those that it reads have fewer.
    pub(crate) fn height(&self) -> usize {
        debug_assert!(
            self.views.iter().all(|view| view.name() != self.name()),
            "no view reads another one of its name"
        );
        self.views.iter().map(|view| view.height() + 1).max().unwrap_or(0)
    }
}

/// Writes the statement that makes a view.
pub(crate) fn view_script(name: &QualifiedName, sql: &str, is_external_table: bool) -> String {
    match is_external_table {
        true => format!("CREATE EXTERNAL TABLE {} {sql}", name.script()),
        false => format!("CREATE VIEW {} AS {sql}", name.script()),
    }
}

/// Returns the views that a query reads, and those that they read.
pub(crate) fn views_of(query: &BoundQuery) -> Vec<Arc<View>> {
    let views = query.views.iter().map(|view| Arc::clone(view).downcast::<View>());
    views.map(|view| view.expect("the catalog has views of this type only")).collect()
}

/// Fails once a view of a query was dropped or replaced, or its owner may no longer read what it reads.
pub(crate) fn check_views(database: &Database, query: &BoundQuery) -> Result<()> {
    let views = views_of(query);
    views.iter().try_for_each(|view| view.definition.check())?;
    if views.is_empty() {
        return Ok(());
    }
    check_owners(&database.objects(), &views)
}

/// Returns what a user needs who runs a query: to read the tables and views that its text names.
pub(crate) fn requirements_of(query: &BoundQuery) -> Vec<Requirement> {
    let named = query.named.iter().map(|(database, name)| {
        let name = QualifiedName { database: database.clone(), name: name.clone() };
        reading(name)
    });
    named.collect()
}

/// Returns what a user needs to read a table or view.
pub(crate) fn reading(name: QualifiedName) -> Requirement {
    Requirement::new(Privilege::Select, Securable::Table(name))
}
