//! Arrow batches into several tables at once, from a front end.
//!
//! All rows of all tables are stored or none: when a table refuses a row, when memory is lacking, and
//! after a crash. They become visible together: a query or a request over several of the tables sees
//! them in each or in none (`lockstep_table::BulkLoad::finish_all`).

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_sql::ast::ObjectName;
use lockstep_table::{Appended, BulkLoad, Durability, with_durability};

use crate::{
    Conversion, Database, Output, Session,
    access::Needs,
    append::{append_warnings, push_batch, table_error},
    catalog::TableEntry,
    entrance::CallDescription,
    session::{object_name, retried},
};

/// Rows for one table.
#[derive(Debug, Clone, Copy)]
pub struct TableBatches<'r> {
    /// The name: `table` or `database.table`.
    pub table: &'r str,
    /// The rows.
    pub batches: &'r [RecordBatch],
}

impl Session {
    /// Appends rows to several tables: all or none, and visible together. The rows of each are taken
    /// as by [`Self::append`]; a table that is named twice takes the rows of both. They are
    /// acknowledged when they are as durable as `durability` says; `None`: as the most durable of the
    /// tables is to be, by its option or else by the session.
    ///
    /// ```
    /// use lockstep_engine::{Database, TableBatches};
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE clicks (k STRING); CREATE TABLE orders (k STRING)")?;
    /// let rows = session.execute("SELECT 'a' AS k")?.batches;
    /// let of = |table| TableBatches { table, batches: &rows };
    /// let appended = session.append_tables(&[of("clicks"), of("orders")], None)?;
    /// assert_eq!(appended.rows_affected, Some(2));
    /// assert!(session.append_tables(&[of("clicks"), of("missing")], None).is_err());
    /// assert_eq!(session.execute("SELECT * FROM clicks")?.row_count(), 1);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn append_tables(
        &self,
        rows: &[TableBatches<'_>],
        durability: Option<Durability>,
    ) -> Result<Output> {
        let names: Vec<ObjectName> = rows.iter().map(|rows| object_name(rows.table)).collect();
        let (conversion, of_session) = (self.conversion(), self.durability());
        let write = || {
            let entries = names.iter().map(|name| self.find_entry(name));
            let entries = entries.collect::<Result<Vec<TableEntry>>>()?;
            let level = |entry: &TableEntry| entry.options.durability().unwrap_or(of_session);
            let level = durability.or_else(|| entries.iter().map(level).max());
            let level = level.unwrap_or(of_session);
            // Where rows were stored, they were so before a table was dropped: a second attempt would store them in the
            // other tables again.
            writing_to(&entries, || {
                with_durability(level, || append_all(&entries, rows, conversion))
            })
        };
        let tables = rows.iter().map(|rows| rows.table).collect::<Vec<_>>().join(", ");
        let operation = || {
            let needs = Needs::of(names.iter().map(|name| self.insertion_into(name)).collect());
            CallDescription { needs, ..self.append_operation(&tables) }
        };
        let appended = self.enter(operation, || {
            self.check_insert_memory()?;
            retried(write)
        })?;
        Ok(Output {
            rows_affected: Some(appended.iter().map(|(_, appended)| appended.rows).sum()),
            warnings: appended.into_iter().flat_map(warnings_of).collect(),
            ..Output::of_message("APPEND")
        })
    }
}

/// Does work that writes to tables, in whose place no statement puts others meanwhile. Fails if one of them was dropped:
/// such a table refuses rows as well, but this error names it.
pub(crate) fn writing_to<'e, T>(
    entries: impl IntoIterator<Item = &'e TableEntry>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // In one order, as everywhere that several tables are written.
    let by_id: BTreeMap<u64, &TableEntry> =
        entries.into_iter().map(|entry| (entry.id, entry)).collect();
    let _writing: Vec<_> = by_id.values().map(|entry| entry.writers.read()).collect();
    let check = || by_id.values().try_for_each(|entry| entry.definition.check());
    check()?;
    work().or_else(|error| {
        check()?;
        Err(error)
    })
}

/// Does work that stores rows as durably as those of a table are.
pub(crate) fn storing_as<T>(
    target: &TableEntry,
    database: &Database,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let of_engine = database.objects().variables().durability();
    with_durability(target.options.durability().unwrap_or(of_engine), work)
}

/// Appends rows to their tables. Returns what became of the rows of each table, with its name.
fn append_all(
    entries: &[TableEntry],
    rows: &[TableBatches<'_>],
    conversion: Conversion,
) -> Result<Vec<(String, Appended)>> {
    debug_assert_eq!(entries.len(), rows.len(), "all rows have a table");
    let mut loads: Vec<(&TableEntry, BulkLoad<'_>)> = Vec::new();
    for (entry, rows) in entries.iter().zip(rows) {
        let known = loads.iter().position(|(known, _)| known.id == entry.id);
        let at = known.unwrap_or_else(|| {
            loads.push((entry, entry.table.load_any()));
            loads.len() - 1
        });
        let schema = entry.table.schema();
        for batch in rows.batches {
            let pushed = push_batch(&mut loads[at].1, batch, &schema, conversion);
            pushed.map_err(|error| refused_for(*error, rows.table))?;
        }
    }
    let (entries, loads): (Vec<_>, Vec<_>) = loads.into_iter().unzip();
    let appended = BulkLoad::finish_all(loads).map_err(|error| table_error(&error))?;
    let names = entries.iter().map(|entry| entry.definition.name().to_string());
    Ok(names.zip(appended).collect())
}

/// Says which table has refused its rows.
fn refused_for(error: Diagnostic, table: &str) -> Box<Diagnostic> {
    let which = format!("These rows are for table `{table}`; no rows were stored in any table.");
    let detail = match &error.detail {
        Some(detail) => format!("{detail} {which}"),
        None => which,
    };
    Box::new(error.with_detail(detail))
}

/// Returns the warnings about the rows of a table.
fn warnings_of((table, appended): (String, Appended)) -> impl Iterator<Item = Diagnostic> {
    append_warnings(appended).into_iter().map(move |mut warning| {
        warning.message = format!("table `{table}`: {}", warning.message);
        warning
    })
}
