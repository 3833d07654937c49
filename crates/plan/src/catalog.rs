//! The catalog as the binder sees it: databases and tables by name.

use std::{any::Any, sync::Arc};

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::TableSource;
use lockstep_diagnostic::Result;
use lockstep_row::TableSchema;

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
}

impl CatalogTable {
    /// Returns the table of a `TableScan` that this crate made; `None` for another source.
    pub fn of(source: &dyn TableSource) -> Option<&Self> {
        let any: &dyn Any = source;
        any.downcast_ref()
    }
}

impl TableSource for CatalogTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow_schema)
    }
}

/// The databases and tables that a statement may name.
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
    /// Returns whether a database exists.
    fn has_database(&self, database: &str) -> bool;
    /// Returns the names of a database's tables, for hints.
    fn table_names(&self, database: &str) -> Vec<String>;
}
