//! The catalog as the binder sees it: databases and tables by name.

use std::{any::Any, sync::Arc};

use arrow::datatypes::SchemaRef;
use datafusion::{
    common::{
        Result as DataFusionResult,
        tree_node::{TreeNode as _, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableSource},
};
use lockstep_diagnostic::Result;
use lockstep_row::TableSchema;
use lockstep_sql::ast::{FileTable, ObjectName, Query};

use crate::key_read::bounds_an_index;

/// What an executor reads the rows of a table from that is not stored; the executor knows its type.
pub type SourceHandle = Arc<dyn Any + Send + Sync>;

/// A table of the catalog; also the source of its `TableScan`s, from which an executor finds the
/// stored rows.
#[derive(Debug, Clone)]
pub struct CatalogTable {
    /// Identifies the table within its engine; never used again for another table.
    pub id: u64,
    /// The database.
    pub database: String,
    /// The name.
    pub name: String,
    /// Columns and indexes.
    pub schema: Arc<TableSchema>,
    /// The columns as an Arrow schema.
    pub arrow_schema: SchemaRef,
    /// The rows of files or of Arrow objects; `None` for a stored table.
    pub source: Option<SourceHandle>,
}

impl CatalogTable {
    /// Returns the table of a `TableScan` that this crate made; `None` for another source.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        let any: &dyn Any = source;
        any.downcast_ref()
    }
}

/// Returns the stored tables that a plan reads, those of unions and joins included.
pub fn stored_tables(plan: &LogicalPlan) -> Vec<Arc<CatalogTable>> {
    let mut tables: Vec<Arc<CatalogTable>> = Vec::new();
    let visit = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = CatalogTable::of(scan.source.as_ref())
            && table.source.is_none()
            && tables.iter().all(|known| known.id != table.id)
        {
            tables.push(Arc::new(table.clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    tables
}

/// What of a declared index decides the order of a LAST JOIN without ORDER BY: positions of columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredIndex {
    /// The key columns.
    pub keys: Vec<usize>,
    /// The event time; `None` where rows are in order of arrival.
    pub event_time: Option<usize>,
}

impl TableSource for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow_schema)
    }

    /// A source leaves out what certainly fails the filters, and a stored table is read by the keys that
    /// they leave; the filters stay above it.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if self.source.is_some() || bounds_an_index(&self.schema, filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// A view: a query with a name.
#[derive(Debug, Clone)]
pub struct NamedQuery {
    /// The database to which the unqualified names in the query belong.
    pub current_database: String,
    /// The query.
    pub query: Arc<Query>,
    /// Whether it is an external table: all columns of files.
    pub is_external_table: bool,
    /// The view in its catalog, which knows the type.
    pub object: SourceHandle,
}

/// The databases, tables and views that a statement may name.
pub trait Catalog {
    /// Returns the database that unqualified names belong to.
    fn current_database(&self) -> &str;
    /// Fails where the statement may not read a table, whether or not there is one of this name.
    fn check_access(&self, database: &str, name: &str) -> Result<()> {
        let _ = (database, name);
        Ok(())
    }
    /// Finds a table.
    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>>;
    /// Finds a view. Tables and views share their names.
    fn find_view(&self, database: &str, name: &str) -> Option<NamedQuery> {
        let _ = (database, name);
        None
    }
    /// Returns the declared indexes of a table, which order the rows of a LAST JOIN without ORDER BY.
    fn declared_indexes(&self, table: &CatalogTable) -> Vec<DeclaredIndex> {
        let declared = table.schema.indexes.iter().filter(|index| index.declared);
        let index = |index: &lockstep_row::IndexSpec| DeclaredIndex {
            keys: index.keys.clone(),
            event_time: index.event_time,
        };
        declared.map(index).collect()
    }
    /// Opens the files of an item of FROM. `views` names the views in whose queries it is, each in the text
    /// of the one before, the first in the statement's.
    fn find_files(&self, files: &FileTable, views: &[ObjectName]) -> Result<Arc<CatalogTable>>;
    /// Returns whether a database exists.
    fn has_database(&self, database: &str) -> bool;
    /// Returns the names of a database's tables and views, for hints.
    fn table_names(&self, database: &str) -> Vec<String>;
}
