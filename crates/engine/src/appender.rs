//! Rows into one table without SQL: the fast way in for a program that has values at hand.
//!
//! Doors and benchmarks make one with [`Session::appender`]. It looks the table up once; after
//! that an append costs what the table costs. No type is converted.

use std::{fmt, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_row::{DataType, Datum};
use lockstep_table::Table;

use crate::{Session, append::refused, session::object_name};

/// Appends rows to one table. Shared by threads.
///
/// Keeps the table alive: rows appended after a DROP TABLE go to the table that was dropped.
pub struct Appender {
    table: Arc<Table>,
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender").field("table", &self.table).finish()
    }
}

impl Session {
    /// An appender of a table (`table` or `database.table`).
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
        Ok(Appender { table: self.find_table(&object_name(table))? })
    }
}

impl Appender {
    /// The columns that a row has, in order.
    pub fn columns(&self) -> Vec<(String, DataType)> {
        let schema = self.table.schema();
        schema.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect()
    }

    /// Appends rows, all or none, and returns how many. Values stand in the order of the columns
    /// and have their types; as with INSERT, the event time of a declared index must be there.
    pub fn append<'r, R>(&self, rows: R) -> Result<u64>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        self.table.append_timed(rows).map_err(|error| refused(&error))
    }
}
