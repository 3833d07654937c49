//! Appenders: rows into one table without SQL, for a program that has values of the right types.
//!
//! [`Session::appender`] looks the table up once. After that, an append costs no more than the
//! table's own. No type is converted.

use std::fmt;

use lockstep_diagnostic::Result;
use lockstep_row::{DataType, Datum};
use lockstep_table::Durability;

use crate::{
    Session, access::AccessGuard, append::table_error, catalog::TableEntry, session::object_name,
};

/// Appends rows to one table. May be shared between threads. Once the table was dropped, every
/// append is the error [`code::STALE_DEFINITION`](crate::code::STALE_DEFINITION).
pub struct Appender {
    entry: TableEntry,
    /// What appends wait for unless the table says so.
    durability: Durability,
    guard: Option<AccessGuard>,
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender").field("table", &self.entry.table).finish()
    }
}

impl Session {
    /// Makes an appender of a table (`table` or `database.table`).
    ///
    /// ```
    /// use lockstep_engine::Database;
    /// use lockstep_row::Datum;
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (k STRING, v INT)")?;
    /// let appender = session.appender("t")?;
    /// appender.append([[Datum::String("a"), Datum::Int(1)], [Datum::String("b"), Datum::Null]])?;
    /// assert_eq!(session.execute("SELECT * FROM t")?.row_count(), 2);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn appender(&self, table: &str) -> Result<Appender> {
        let name = object_name(table);
        self.enter(
            || self.append_operation(table),
            || {
                let needed = self.insertion_into(&name);
                let (entry, guard) = (self.find_entry(&name)?, self.guard(vec![needed])?);
                Ok(Appender { entry, durability: self.durability(), guard })
            },
        )
    }
}

impl Appender {
    /// Returns the columns of a row, in order.
    pub fn columns(&self) -> Vec<(String, DataType)> {
        let schema = self.entry.table.schema();
        schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect()
    }

    /// Appends rows, all or none, and returns how many. Values are in the order of the columns and
    /// have their types; as with INSERT, the event time of a declared index must not be NULL.
    pub fn append<'r, R>(&self, rows: R) -> Result<u64>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        if let Some(guard) = &self.guard {
            guard.check()?;
        }
        let durability = self.entry.options.durability().unwrap_or(self.durability);
        self.entry.write_as(Some(durability), |table| {
            table
                .append_timed(rows)
                .map_err(|error| table_error(&error))
                .map(|appended| appended.rows)
        })
    }
}
