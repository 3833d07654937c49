//! Lockstep under M1: a deployment, asked in process.

use std::sync::Arc;

use lockstep_engine::{Appender, Database, PreparedRequest, Session};

use super::{Data, data::Row, query};
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
pub(crate) struct Lockstep<'a> {
    request: Arc<PreparedRequest>,
    requests: &'a [Row],
    bytes_per_row: f64,
    appender: Appender,
    // Last, so that what it keeps alive outlives what reads it.
    _session: Session,
}

impl<'a> Lockstep<'a> {
    /// Makes the tables, deploys the query, and then inserts the rows, as the report does.
    pub(crate) fn new(data: Data, requests: &'a [Row]) -> Result<Self> {
        let session = Database::in_memory().session();
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
    pub(crate) fn insert(&self, row: &Row) -> Result<()> {
        self.appender.append([row.datums()])?;
        Ok(())
    }
}

fn fill(session: &Session, data: Data, table: super::data::TableName) -> Result<()> {
    let appender = session.appender(&table.name())?;
    let mut rows = data.rows(table);
    loop {
        let some: Vec<Row> = rows.by_ref().take(APPEND_ROWS).collect();
        if some.is_empty() {
            return Ok(());
        }
        appender.append(some.iter().map(Row::datums))?;
    }
}

impl System for Lockstep<'_> {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let requests = self.requests.iter().map(Row::datums).collect();
        Ok(Box::new(InProcess::new(&self.request, requests)))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}
