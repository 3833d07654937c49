//! Lockstep under M2.

use std::sync::Arc;

use lockstep_engine::{Database, PreparedRequest, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::Datum;

use super::{M2Row, M2Shape, Number};
use crate::{
    engine_memory::memory_and_rows,
    error::Result,
    in_process::InProcess,
    system::{Client, System},
};

/// A database with the table of M2 and its deployment.
#[derive(Debug)]
pub(crate) struct M2Lockstep<'a> {
    request: Arc<PreparedRequest>,
    requests: &'a [M2Row],
    bytes_per_row: f64,
    /// The duration of the DEPLOY, in milliseconds.
    pub(crate) deploy_ms: f64,
}

impl<'a> M2Lockstep<'a> {
    /// Creates the table, deploys the query and inserts the rows.
    pub(crate) fn new(shape: M2Shape, requests: &'a [M2Row]) -> Result<Self> {
        Self::in_session(&Database::in_memory().session(), shape, requests)
    }

    /// Does the same in the database of a session.
    pub(crate) fn in_session(
        session: &Session,
        shape: M2Shape,
        requests: &'a [M2Row],
    ) -> Result<Self> {
        let type_name = |column: usize| if column.is_multiple_of(2) { "BIGINT" } else { "DOUBLE" };
        let columns: String =
            (0..shape.columns).map(|column| format!(", c{column} {}", type_name(column))).collect();
        session.execute(&format!(
            "CREATE TABLE wide (k STRING, ts TIMESTAMP{columns}, \
             INDEX(KEY=k, TS=ts, TTL=0m, TTL_TYPE=absolute))"
        ))?;
        let clock = SystemClock::new();
        session.execute(&format!("DEPLOY m2 {}", query(shape)))?;
        let deploy_ms = clock.monotonic_ns() as f64 / 1e6;
        let appender = session.appender("wide")?;
        for row in shape.stored() {
            appender.append([datums(&row)])?;
        }
        let (bytes, rows) = memory_and_rows(session, &["wide".to_owned()])?;
        let request = session.prepare_request("m2")?;
        Ok(Self { request, requests, bytes_per_row: bytes as f64 / rows as f64, deploy_ms })
    }
}

fn query(shape: M2Shape) -> String {
    let mut outputs = vec!["k".to_owned()];
    for column in 0..shape.columns {
        outputs.push(format!("sum(c{column}) OVER w AS sum{column}"));
        outputs.push(format!("max(c{column}) OVER w AS max{column}"));
    }
    for (number, column) in shape.paired().enumerate() {
        outputs.push(format!("c{column} + c{} AS pair{number}", column + 2));
    }
    format!(
        "SELECT {} FROM wide WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1d \
         PRECEDING AND CURRENT ROW)",
        outputs.join(", ")
    )
}

pub(crate) fn datums(row: &M2Row) -> Vec<Datum<'_>> {
    let values = row.values.iter().map(|value| match *value {
        Number::Int(value) => Datum::BigInt(value),
        Number::Double(value) => Datum::Double(value),
    });
    [Datum::String(&row.key_text), Datum::Timestamp(row.time_ms)]
        .into_iter()
        .chain(values)
        .collect()
}

impl System for M2Lockstep<'_> {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let requests = self.requests.iter().map(datums).collect();
        Ok(Box::new(InProcess::new(&self.request, requests)))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}
