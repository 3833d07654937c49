//! The system tables: the database `lockstep`, which SELECT reads in batch mode.
//!
//! Their rows are computed when a query that names them runs, each table once, as one look at the
//! engine. No statement changes them, no deployment reads them. Everybody may query them; who does not
//! have ADMIN sees the rows that are about what it may see: its own sessions, requests and events, and
//! the objects on which it has a privilege. A database of that name in a directory of an earlier version
//! hides them.
//!
//! *Cost*: the rows of the tables that are named, all of them; at most some ten thousand.

mod catalog;
mod operation;

pub(crate) use catalog::{
    SINK_COLUMNS, SOURCE_COLUMNS, STREAM_COLUMNS, connector_figures, connector_rows,
    stream_figures, stream_row, table_figures,
};

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::QueryContext;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, Column, DataType, Datum, TableSchema, Value};
use lockstep_table::Table;

use crate::{
    Database,
    access::Caller,
    append::table_error,
    catalog::{Definition, ObjectKind, QualifiedName, TableEntry},
    statement::TableOptions,
};

/// The database of the system tables.
pub(crate) const SYSTEM_DATABASE: &str = "lockstep";

/// The declaration of a system table.
struct SystemTable {
    name: &'static str,
    columns: &'static [(&'static str, DataType)],
    /// Returns the rows that a caller sees.
    rows: fn(&Database, &Caller) -> Vec<Vec<Value>>,
}

/// Every system table, by name.
const TABLES: &[&SystemTable] = &[
    &operation::AUDIT,
    &catalog::DEPLOYMENTS,
    &catalog::INDEXES,
    &operation::JOBS,
    &catalog::MEMORY,
    &catalog::PAGE_CACHE,
    &catalog::PRE_AGGREGATES,
    &operation::SESSIONS,
    &catalog::SETTINGS,
    &catalog::SINKS,
    &operation::SLOW_REQUESTS,
    &catalog::SOURCES,
    &catalog::STORAGE,
    &catalog::STREAMS,
    &catalog::TABLES,
    &catalog::USERS,
    &catalog::VIEWS,
];

/// The id of the last system table; the others have the ids before it. Stored tables count from 1.
const LAST_ID: u64 = u64::MAX;

impl SystemTable {
    fn schema(&self) -> TableSchema {
        let column = |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone());
        TableSchema { columns: self.columns.iter().map(column).collect(), indexes: Vec::new() }
    }
}

/// Returns the name and the declaration of a table's id.
fn of_id(id: u64) -> Option<&'static SystemTable> {
    let at = usize::try_from(LAST_ID - id).ok()?;
    TABLES.get(at).copied()
}

/// Returns whether an id is that of a system table.
pub(crate) fn is_system(id: u64) -> bool {
    of_id(id).is_some()
}

/// Returns the names of the system tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|table| table.name)
}

/// Returns a system table as the binder sees it.
pub(crate) fn find(name: &str) -> Option<Arc<CatalogTable>> {
    debug_assert!(TABLES.is_sorted_by_key(|table| table.name), "they are listed by name");
    let at = TABLES.iter().position(|table| table.name == name)?;
    let schema = Arc::new(TABLES[at].schema());
    Some(Arc::new(CatalogTable {
        id: LAST_ID - u64::try_from(at).unwrap_or(0),
        database: SYSTEM_DATABASE.to_owned(),
        name: name.to_owned(),
        arrow_schema: lockstep_row::arrow::arrow_schema(&schema),
        schema,
        source: None,
    }))
}

/// Makes the error for a statement that would change, or deploy over, a system table.
pub(crate) fn read_only(name: &str) -> Diagnostic {
    let message = format!("`{SYSTEM_DATABASE}.{name}` is a system table");
    Diagnostic::new(code::INSUFFICIENT_PRIVILEGE, message)
        .with_detail("Only a SELECT in batch mode can read a system table.")
}

impl Database {
    /// Returns the entry of a system table with the rows that a caller sees now.
    pub(crate) fn system_entry(&self, found: &CatalogTable, caller: &Caller) -> Result<TableEntry> {
        let declared = of_id(found.id).expect("the id is of a system table");
        let table = Table::new(declared.schema(), Arc::clone(self.clock()), Arc::default());
        let table = table.map_err(|error| table_error(&error))?;
        let rows = (declared.rows)(self, caller);
        let arena = Arena::new();
        let rows = rows.iter().map(|row| -> Vec<Datum<'_>> {
            debug_assert_eq!(row.len(), declared.columns.len(), "a value for each column");
            row.iter().map(|value| value.as_datum(&arena)).collect()
        });
        // The rows are nobody's change.
        QueryContext::scratch().run(|| table.append(rows)).map_err(|error| table_error(&error))?;
        let name =
            QualifiedName { database: SYSTEM_DATABASE.to_owned(), name: declared.name.to_owned() };
        Ok(TableEntry {
            id: found.id,
            table: Arc::new(table),
            options: TableOptions::default(),
            offline: Arc::default(),
            definition: Definition::new(ObjectKind::Table, name),
            writers: Arc::default(),
        })
    }
}

/// Makes a STRING.
fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// Makes a STRING, or NULL.
fn optional(value: Option<&str>) -> Value {
    value.map_or(Value::Null, text)
}

/// Makes a BIGINT.
fn number(count: u64) -> Value {
    Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Makes a DOUBLE of milliseconds.
#[expect(clippy::cast_precision_loss, reason = "a duration for a person")]
fn milliseconds(elapsed_ns: u64) -> Value {
    Value::Double(elapsed_ns as f64 / 1e6)
}
