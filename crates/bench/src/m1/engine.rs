//! Lockstep under M1: a deployment, requested in process.

use std::sync::Arc;

use lockstep_engine::{Appender, Database, PreparedRequest, Session};

use super::{Data, data::M1Row, query};
use crate::{
    engine_memory::memory_bytes,
    error::Result,
    in_process::InProcess,
    system::{Client, System},
};

/// Rows of one append while the tables are filled.
const APPEND_ROWS: usize = 256;

/// A database with the tables of M1, filled, and its deployment.
#[derive(Debug)]
pub(crate) struct M1Lockstep<'a> {
    request: Arc<PreparedRequest>,
    requests: &'a [M1Row],
    bytes_per_row: f64,
    appender: Appender,
    // Dropped last: the requests read what it owns.
    _session: Session,
}

impl<'a> M1Lockstep<'a> {
    /// Makes the tables, deploys the query, and then inserts the rows, as the report does.
    pub(crate) fn new(data: Data, requests: &'a [M1Row]) -> Result<Self> {
        Self::in_session(Database::in_memory().session(), data, requests)
    }

    /// Does the same in the database of a session, whose durability the rows have.
    pub(crate) fn in_session(session: Session, data: Data, requests: &'a [M1Row]) -> Result<Self> {
        session.execute(&query::schema(data))?;
        session.execute(&format!("DEPLOY m1 {}", query::query(data.shape)))?;
        for table in data.tables() {
            fill(&session, data, table)?;
        }
        let names: Vec<String> = data.tables().map(super::data::TableName::name).collect();
        let bytes = memory_bytes(&session, &names)?;
        let bytes_per_row = bytes as f64 / data.shape.rows() as f64;
        let request = session.prepare_request("m1")?;
        let appender = session.appender("mt")?;
        Ok(Self { request, requests, bytes_per_row, appender, _session: session })
    }

    /// Inserts a row into the main table.
    pub(crate) fn insert(&self, row: &M1Row) -> Result<()> {
        self.appender.append([row.datums()])?;
        Ok(())
    }
}

fn fill(session: &Session, data: Data, table: super::data::TableName) -> Result<()> {
    let appender = session.appender(&table.name())?;
    let mut rows = data.rows(table);
    loop {
        let some: Vec<M1Row> = rows.by_ref().take(APPEND_ROWS).collect();
        if some.is_empty() {
            return Ok(());
        }
        appender.append(some.iter().map(M1Row::datums))?;
    }
}

impl System for M1Lockstep<'_> {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let requests = self.requests.iter().map(M1Row::datums).collect();
        Ok(Box::new(InProcess::new(&self.request, requests)))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}
