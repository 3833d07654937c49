//! Lockstep under M3: the row is a request first, and then appended.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_engine::{Appender, Database, PreparedRequest};
use lockstep_row::Arena;

use super::{Event, M3Shape, REACH_MS, TOP};
use crate::{
    answer::AnswerValue,
    engine_memory::memory_bytes,
    error::Result,
    system::{Client, System},
};

/// A database with the table of M3 and its deployment.
#[derive(Debug)]
pub(crate) struct M3Lockstep {
    shape: M3Shape,
    request: Arc<PreparedRequest>,
    appender: Appender,
    next: AtomicUsize,
    bytes_per_row: f64,
}

impl M3Lockstep {
    /// Creates the table, deploys the query and inserts the rows.
    pub(crate) fn new(shape: M3Shape) -> Result<Self> {
        let session = Database::in_memory().session();
        let columns: String =
            (0..shape.columns).map(|column| format!(", c{column} STRING")).collect();
        session.execute(&format!(
            "CREATE TABLE events (k STRING, ts TIMESTAMP{columns}, \
             INDEX(KEY=k, TS=ts, TTL=0m, TTL_TYPE=absolute))"
        ))?;
        session.execute(&format!("DEPLOY m3 {}", query(shape)))?;
        let appender = session.appender("events")?;
        let mut stored = shape.stored();
        loop {
            let events: Vec<(String, Event)> =
                stored.by_ref().take(256).map(|event| (event.key_text(), event)).collect();
            if events.is_empty() {
                break;
            }
            appender.append(events.iter().map(|(key, event)| event.datums(key, shape)))?;
        }
        let bytes = memory_bytes(&session, &["events".to_owned()])?;
        let bytes_per_row = bytes as f64 / (shape.keys * shape.rows_per_key) as f64;
        let request = session.prepare_request("m3")?;
        Ok(Self { shape, request, appender, next: AtomicUsize::new(0), bytes_per_row })
    }
}

fn query(shape: M3Shape) -> String {
    let mut outputs = vec!["k".to_owned()];
    let mut windows = Vec::new();
    for window in 0..shape.windows {
        for column in 0..shape.columns {
            let output =
                format!("topn_frequency(c{column}, {TOP}) OVER w{window} AS f{window}_{column}");
            outputs.push(output);
        }
        let reach_s = (window + 1) * usize::try_from(REACH_MS / 1_000).expect("it is positive");
        windows.push(format!(
            "w{window} AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN {reach_s}s PRECEDING AND \
             CURRENT ROW)"
        ));
    }
    format!("SELECT {} FROM events WINDOW {}", outputs.join(", "), windows.join(", "))
}

impl System for M3Lockstep {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(RequestThenAppend { system: self, arena: Arena::new() }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}

struct RequestThenAppend<'a> {
    system: &'a M3Lockstep,
    arena: Arena,
}

impl RequestThenAppend<'_> {
    fn operate<T>(&mut self, take: impl FnOnce(&[lockstep_row::Datum<'_>]) -> T) -> Result<T> {
        let M3Lockstep { shape, request, appender, next, .. } = self.system;
        // Relaxed: only uniqueness matters.
        let event = shape.event(next.fetch_add(1, Ordering::Relaxed));
        let key = event.key_text();
        let row = event.datums(&key, *shape);
        self.arena.reset();
        let taken = take(request.answer(&row, &self.arena)?.unwrap_or_default());
        appender.append([&row])?;
        Ok(taken)
    }
}

impl Client for RequestThenAppend<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.operate(|answer| {
            black_box(answer);
        })
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        self.operate(|answer| answer.iter().map(AnswerValue::from).collect())
    }
}
