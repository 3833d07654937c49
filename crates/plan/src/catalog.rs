//! What the binder asks the database for: tables by name.

use std::{any::Any, sync::Arc};

use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::TableSource;
use lockstep_row::TableSchema;

/// A table as the binder sees it; also the source of its `TableScan`s, by which an executor finds
/// the stored rows.
#[derive(Debug, Clone)]
pub struct CatalogTable {
    /// Identifies the table within its database engine, for ever.
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
    /// The table behind the source of a `TableScan` that this crate made.
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

/// Finds tables.
pub trait Catalog {
    /// The database that unqualified names belong to.
    fn current_database(&self) -> &str;
    /// Finds a table.
    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>>;
    /// Whether a database exists.
    fn has_database(&self, database: &str) -> bool;
    /// The names of a database's tables, for hints.
    fn table_names(&self, database: &str) -> Vec<String>;
}
