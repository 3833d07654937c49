//! The database in memory that a client compares answers with.

use lockstep_engine::{Database, Session};

use super::{
    row::{CellRows, SoakRow, batch_of, cells_of},
    server::TABLES,
};

/// A database with the rows of one client.
#[derive(Debug)]
pub struct SoakModel {
    session: Session,
}

impl SoakModel {
    /// Makes one with the tables.
    pub fn new() -> Result<Self, String> {
        let session = Database::in_memory().session();
        session.execute(TABLES).map_err(|error| error.message.clone())?;
        Ok(Self { session })
    }

    /// Appends rows.
    pub fn append(&self, rows: &[SoakRow]) -> Result<(), String> {
        let appended = self.session.append("events", &[batch_of(rows)]);
        appended.map(drop).map_err(|error| error.message.clone())
    }

    /// Answers request rows.
    pub fn request(&self, rows: &[SoakRow]) -> Result<CellRows, String> {
        let output = self.session.request("features", &[batch_of(rows)]);
        let output = output.map_err(|error| error.message.clone())?;
        Ok(cells_of(&output.batches))
    }

    /// Runs a query.
    pub fn query(&self, sql: &str) -> Result<CellRows, String> {
        let output = self.session.execute(sql).map_err(|error| error.message.clone())?;
        Ok(cells_of(&output.batches))
    }
}
