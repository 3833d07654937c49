//! Operations: what a writer does to the database, as data that a process can be sent.

use lockstep_engine::{Durability, Output, Result, Session, TableBatches};
use serde::{Deserialize, Serialize};

use crate::{objects::Effect, rows::RowRange};

/// What is done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Rows are appended without SQL.
    Append {
        /// The table.
        table: String,
        /// The rows.
        rows: RowRange,
        /// What the call says that the write waits for.
        durability: Option<AppendLevel>,
    },
    /// Rows are appended to several tables at once.
    AppendTables {
        /// The rows of each table.
        rows: Vec<AddedRows>,
        /// What the call says that the write waits for.
        durability: Option<AppendLevel>,
    },
    /// A script of statements.
    Script(String),
}

/// The level of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendLevel {
    /// `disk`.
    Disk,
    /// `os`.
    Os,
    /// `memory`.
    Memory,
}

impl AppendLevel {
    fn durability(self) -> Durability {
        match self {
            Self::Disk => Durability::Disk,
            Self::Os => Durability::Os,
            Self::Memory => Durability::Memory,
        }
    }
}

/// Rows that an operation adds to a table.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AddedRows {
    /// The table.
    pub table: String,
    /// The rows.
    pub rows: RowRange,
}

/// Which part of an [`Observation`](crate::observation::Observation) shows whether an operation was done.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The name of the observed text.
    pub name: String,
    /// Only lines that contain this count.
    pub contains: String,
}

/// An operation as it was drawn.
#[derive(Debug, Clone)]
pub struct DrawnOperation {
    /// Its name in the table of the workload.
    pub kind: &'static str,
    /// What is done.
    pub action: Action,
    /// The rows that it adds, all or none.
    pub added: Vec<AddedRows>,
    /// What it changes of what the writer knows to exist.
    pub effect: Effect,
    /// What shows whether it was done.
    pub witness: Option<Witness>,
    /// Whether it is an error in a database in memory.
    pub needs_directory: bool,
}

impl Action {
    /// Returns the directory that a BACKUP makes.
    pub fn backup(&self) -> Option<&str> {
        match self {
            Self::Script(sql) => sql.strip_prefix("BACKUP TO '")?.strip_suffix('\''),
            Self::Append { .. } | Self::AppendTables { .. } => None,
        }
    }

    /// Does it. Returns the number of rows that were written, or the code of the error.
    pub fn run(&self, session: &Session) -> String {
        let output = match self {
            Self::Append { table, rows, durability } => {
                let durability = durability.map(AppendLevel::durability);
                session.append_batches_as(table, &[rows.to_batch()], durability)
            }
            Self::AppendTables { rows, durability } => append_tables(session, rows, *durability),
            Self::Script(sql) => session.execute(sql),
        };
        match output {
            Ok(output) => format!("ok {}", output.rows_affected.unwrap_or(0)),
            Err(error) => format!("error {} {}", error.code, error.message),
        }
    }
}

/// Appends rows to several tables at once.
fn append_tables(
    session: &Session,
    rows: &[AddedRows],
    durability: Option<AppendLevel>,
) -> Result<Output> {
    let batches: Vec<_> = rows.iter().map(|added| [added.rows.to_batch()]).collect();
    let rows = rows.iter().zip(&batches);
    let rows = rows.map(|(added, batches)| TableBatches { table: &added.table, batches });
    let durability = durability.map(AppendLevel::durability);
    session.append_tables(&rows.collect::<Vec<_>>(), durability)
}

/// Returns whether an outcome of [`Action::run`] is no error.
pub fn is_done(outcome: &str) -> bool {
    outcome.starts_with("ok")
}

/// A line that the driver sends to the child.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildRequest {
    /// A writer does something.
    Run {
        /// The number of the operation.
        id: usize,
        /// The writer.
        writer: usize,
        /// What it does.
        action: Action,
    },
    /// The database is described.
    Observe,
    /// The database is closed.
    Close,
}

/// A line that the child sends to the driver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildAnswer {
    /// The directory is open.
    Opened {
        /// Rows that were read.
        rows: u64,
        /// Whether the last part of the log was cut.
        is_cut: bool,
    },
    /// The directory could not be opened.
    Refused(String),
    /// An operation was acknowledged.
    Acknowledged {
        /// Its number.
        id: usize,
        /// Its outcome.
        outcome: String,
    },
    /// What the database has.
    Observed(crate::observation::Observation),
    /// The database was closed.
    Closed,
}
