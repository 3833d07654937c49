//! Lockstep under M6: an appender.

use std::sync::Arc;

use lockstep_engine::{Appender, Database, PreparedRequest, Session};
use lockstep_row::{Arena, Datum};

use super::{M6Shape, Numbers, OwnPuts, Put};
use crate::{
    answer::AnswerValue,
    engine_memory::memory_and_rows,
    error::Result,
    system::{Client, System},
};

/// A database with the table of M6.
#[derive(Debug)]
pub(crate) struct M6Lockstep {
    shape: M6Shape,
    appender: Appender,
    /// Counts the rows of the first key.
    count: Arc<PreparedRequest>,
    numbers: Numbers,
    session: Session,
}

impl M6Lockstep {
    /// Creates the empty table.
    pub(crate) fn new(shape: M6Shape) -> Result<Self> {
        assert!((1..=3).contains(&shape.indexes), "each index has a key column");
        let session = Database::in_memory().session();
        let indexes: String = (0..shape.indexes)
            .map(|index| format!(", INDEX(KEY=k{index}, TS=ts, TTL=0m, TTL_TYPE=absolute)"))
            .collect();
        session.execute(&format!(
            "CREATE TABLE puts (k0 STRING, k1 STRING, k2 STRING, ts TIMESTAMP, d0 DOUBLE, \
             d1 DOUBLE, i0 BIGINT, i1 BIGINT{indexes})"
        ))?;
        let count = session.prepare_request(
            "SELECT count(i0) OVER w AS n FROM puts WINDOW w AS (PARTITION BY k0 ORDER BY ts \
             ROWS_RANGE BETWEEN 1000d PRECEDING AND CURRENT ROW)",
        )?;
        let appender = session.appender("puts")?;
        Ok(Self { shape, appender, count, numbers: Numbers::default(), session })
    }
}

impl System for M6Lockstep {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(AppendClient {
            system: self,
            own: self.numbers.begin(self.shape),
            puts: Vec::new(),
        }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        let (bytes, rows) = memory_and_rows(&self.session, &["puts".to_owned()]).ok()?;
        (rows > 0).then(|| bytes as f64 / rows as f64)
    }
}

struct AppendClient<'a> {
    system: &'a M6Lockstep,
    own: OwnPuts<'a>,
    puts: Vec<Put>,
}

impl Client for AppendClient<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        let M6Lockstep { shape, appender, .. } = self.system;
        if shape.batch == 1 {
            let (_, put) = self.own.take();
            appender.append([put.datums()])?;
        } else {
            self.puts.clear();
            self.puts.extend((0..shape.batch).map(|_| self.own.take().1));
            appender.append(self.puts.iter().map(Put::datums))?;
        }
        Ok(())
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        let M6Lockstep { appender, count, .. } = self.system;
        let (_, put) = self.own.take();
        appender.append([put.datums()])?;
        // A request with a later event time sees every row of the key, and itself.
        let mut request = put.datums();
        request[3] = Datum::Timestamp(super::START_MS + 86_400_000);
        let arena = Arena::new();
        let answer = count.answer(&request, &arena)?.unwrap_or_default();
        let rows = answer.first().and_then(Datum::as_i64).unwrap_or_default();
        Ok(vec![AnswerValue::Int(rows - 1)])
    }
}
