//! The database: catalog, sessions, statements, deployments. The one public API boundary.
//!
//! Doors (shell, Python, servers) hold no logic: they make a [`Database`], open [`Session`]s and
//! render [`Output`]s and `Diagnostic`s. Nothing here speaks a protocol.
//!
//! ```
//! use lockstep_engine::Database;
//!
//! let session = Database::in_memory().session();
//! session.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)")?;
//! session.execute("INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 2000)")?;
//! let output = session.execute(
//!     "SELECT k, sum(v) OVER w AS s FROM t
//!      WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1m PRECEDING AND CURRENT ROW)",
//! )?;
//! assert_eq!(output.row_count(), 2);
//! # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
//! ```

mod output;

pub use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
pub use output::Output;

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_row::{Arena, DataType, Datum};

/// A database engine: several databases of tables and deployments. Cheap to clone; all clones
/// are the same engine.
#[derive(Debug, Clone)]
pub struct Database {}

impl Database {
    /// Makes an empty engine that lives in memory.
    pub fn in_memory() -> Self {
        Self {}
    }

    /// Opens a session: current database `default`, default settings.
    pub fn session(&self) -> Session {
        Session {}
    }
}

/// One user's conversation with the engine: a current database and settings. May be shared
/// between threads.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Runs a script of one or more statements and gives the output of the last one. Statements
    /// before a failing one have taken effect; the failing one has not.
    pub fn execute(&self, script: &str) -> Result<Output> {
        let _ = script;
        todo!()
    }

    /// Binds one query without running it.
    pub fn query(&self, sql: &str) -> Result<Relation> {
        let _ = sql;
        todo!()
    }

    /// Appends rows to a table; columns are matched by name, left out ones take their default.
    /// Types are converted where nothing is lost. All or nothing. Returns the number of rows.
    pub fn append(&self, table: &str, batches: &[RecordBatch]) -> Result<u64> {
        let _ = (table, batches);
        todo!()
    }

    /// Creates a table with the columns of an Arrow schema.
    pub fn create_table(&self, table: &str, schema: &SchemaRef) -> Result<()> {
        let _ = (table, schema);
        todo!()
    }

    /// Compiles the request-mode program of a deployment (by name) or of a query (SQL text).
    pub fn prepare_request(&self, target: &str) -> Result<PreparedRequest> {
        let _ = target;
        todo!()
    }

    /// Answers request rows in request mode: one output row for each, in order, unless a WHERE
    /// drops it. Rows do not see each other and are not stored. Columns are matched by name.
    pub fn request(&self, target: &str, rows: &[RecordBatch]) -> Result<Output> {
        let _ = (target, rows);
        todo!()
    }

    /// Replays the stored rows of the request table as requests, in (event time, arrival) order,
    /// into a shadow of the tables, and compares with batch mode bit by bit.
    pub fn verify(&self, deployment: &str) -> Result<Verification> {
        let _ = deployment;
        todo!()
    }
}

/// A bound query that has not run yet.
#[derive(Debug)]
pub struct Relation {}

impl Relation {
    /// The result's column names (which may repeat) and types.
    pub fn columns(&self) -> &[(String, DataType)] {
        todo!()
    }

    /// Runs the query in batch mode. `progress` is called from worker threads with the share done.
    pub fn collect(&self, progress: Option<Arc<dyn Fn(f64) + Send + Sync>>) -> Result<Output> {
        let _ = progress;
        todo!()
    }
}

/// A compiled request: the hot path. Shared by threads.
#[derive(Debug)]
pub struct PreparedRequest {}

impl PreparedRequest {
    /// The columns of the request row; empty for a query without a table.
    pub fn input(&self) -> &[(String, DataType)] {
        todo!()
    }

    /// The columns of the answer.
    pub fn output(&self) -> &[(String, DataType)] {
        todo!()
    }

    /// Answers one request row, whose values stand in the order of [`PreparedRequest::input`] and
    /// have its types. `None` when a WHERE drops the row.
    pub fn answer<'a>(&self, row: &[Datum<'a>], arena: &'a Arena) -> Result<Option<&'a [Datum<'a>]>> {
        let _ = (row, arena);
        todo!()
    }
}

/// What VERIFY found.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// Requests replayed.
    pub requests: u64,
    /// Values compared.
    pub values: u64,
    /// Values that differ.
    pub differing: u64,
    /// The first differences: request row number, column, batch value, request value.
    pub differences: Vec<(u64, String, String, String)>,
}
