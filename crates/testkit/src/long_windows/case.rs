//! A case: tables, a query that is deployed twice, drawn steps, and the comparison after each.
//!
//! Knows all rows that were stored, in the tables of the oracle. The clock stands still but in steps.

use std::{fmt::Write as _, sync::Arc};

use lockstep_engine::{Database, Session, set_chunk_rows, set_leaf_rows};
use lockstep_host::ManualClock;
use lockstep_row::{DataType, Value};

use super::{
    LongWindowReport,
    constructs::{DISK_FROM_NODES, FROM_NODES, GROUP_FROM_NODES, OF_ORACLE},
    draw::{self, LongWindowQuery},
    rows::{self, KEYS, LongWindowColumns},
};
use crate::{
    disk_tables::{self, SmallFiles},
    oracle::{self, Item, OracleRow, fold::Function},
    random::Random,
    replay::is_same,
    rows::{of_output, to_batch},
    scenario::{EVENT_TIME, KEY, script::literal},
};

/// The deployment with pre-aggregates.
pub(super) const ALWAYS: &str = "with_nodes";
/// The deployment without them.
pub(super) const OFF: &str = "without";

/// The time at which a case begins.
const BEGIN_MS: i64 = 1_600_000_000_000;

/// The constructs of retention rules, and how an index declares them. The last are without a rule.
const RETENTIONS: [(&str, &str); 8] = [
    ("absolute", ", TTL=2m, TTL_TYPE=absolute"),
    ("latest", ", TTL=60, TTL_TYPE=latest"),
    ("absorlat", ", TTL=(2m, 60), TTL_TYPE=absorlat"),
    ("absandlat", ", TTL=(1m, 40), TTL_TYPE=absandlat"),
    ("rows are kept forever", ""),
    ("rows are kept forever", ""),
    ("rows are kept forever", ""),
    ("rows are kept forever", ""),
];

/// A case in progress.
pub(super) struct LongWindowCase<'r> {
    pub(super) random: &'r mut Random,
    pub(super) report: &'r mut LongWindowReport,
    pub(super) database: Database,
    pub(super) session: Session,
    clock: Arc<ManualClock>,
    pub(super) columns: LongWindowColumns,
    pub(super) query: LongWindowQuery,
    /// The statements and what happened between them, for the report of a failure.
    pub(super) story: String,
    /// Where the tables are on a disk.
    pub(super) files: Option<SmallFiles>,
    has_retention: bool,
    next_id: i64,
    /// The greatest event time of a stored row.
    pub(super) newest: i64,
    now: i64,
}

/// How rows follow those that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    InOrder,
    Tied,
    Late,
}

impl<'r> LongWindowCase<'r> {
    /// Draws the tables and the query, and opens an empty database.
    pub(super) fn draw(random: &'r mut Random, report: &'r mut LongWindowReport) -> Self {
        let columns = rows::columns(random);
        let key_type = match columns[KEY].1 {
            DataType::Bool => "BOOL",
            DataType::SmallInt => "SMALLINT",
            DataType::Int => "INT",
            DataType::BigInt => "BIGINT",
            DataType::Date => "DATE",
            DataType::Timestamp => "TIMESTAMP",
            _ => "STRING",
        };
        report.constructs.note(key_type);
        let is_big_int = columns[EVENT_TIME].1 == DataType::BigInt;
        report.constructs.note(if is_big_int { "ts BIGINT" } else { "ts TIMESTAMP" });
        let query = draw::query(&columns, random, &mut report.constructs);
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let files = random.chance(50).then(SmallFiles::begin);
        report.constructs.note(if files.is_some() { "on a disk" } else { "in memory" });
        let shared = Arc::<ManualClock>::clone(&clock);
        let database = match files {
            Some(_) => disk_tables::open_with_clock(shared).expect("the disk is empty"),
            None => Database::with_clock(shared),
        };
        let session = database.session();
        Self {
            random,
            report,
            database,
            session,
            clock,
            columns,
            query,
            story: String::new(),
            files,
            has_retention: false,
            next_id: 1,
            newest: BEGIN_MS - 200_000,
            now: BEGIN_MS,
        }
    }

    /// Runs the steps. The error describes what differs.
    pub(super) fn run(mut self) -> Result<(), String> {
        let ran = self.steps();
        ran.map_err(|what| format!("{}{what}\n", self.story))
    }

    fn steps(&mut self) -> Result<(), String> {
        self.create()?;
        let is_loaded_first = self.random.chance(50);
        if is_loaded_first {
            self.load()?;
        }
        for (name, value) in [(ALWAYS, "always"), (OFF, "off")] {
            let options = format!("pre_aggregation='{value}', skip_index_check='true'");
            self.execute(&format!("DEPLOY {name} OPTIONS({options}) {}", self.query.sql))?;
        }
        if !is_loaded_first {
            self.load()?;
        }
        for _ in 0..6 + self.random.below(8) {
            self.step()?;
            self.compare()?;
        }
        if self.random.chance(15) {
            self.answer_beside_writer()?;
            self.compare()?;
        }
        self.count_rows()
    }

    /// Creates the tables, with an index or none.
    fn create(&mut self) -> Result<(), String> {
        let (leaf_rows, chunk_rows) =
            (*self.random.pick(&[1, 2, 3, 5]), *self.random.pick(&[2, 3, 5, 8]));
        set_leaf_rows(leaf_rows);
        set_chunk_rows(chunk_rows);
        let _ = writeln!(self.story, "-- leaves of {leaf_rows} rows, chunks of {chunk_rows}");
        let columns: Vec<String> =
            self.columns.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
        let index = if self.random.chance(20) {
            self.report.constructs.note("no declared index");
            String::new()
        } else {
            let (rule, ttl) = *self.random.pick(&RETENTIONS);
            self.report.constructs.note(rule);
            self.has_retention = !ttl.is_empty();
            let keys = *self.random.pick(&["p", "p", "g", "(p, g)"]);
            format!(", INDEX(KEY={keys}, TS=ts{ttl})")
        };
        for table in ["t1", "u0"] {
            self.execute(&format!("CREATE TABLE {table} ({}{index})", columns.join(", ")))?;
        }
        Ok(())
    }

    /// Appends so many rows that keys have nodes of several levels.
    fn load(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            let count = 20 + self.random.below(100);
            let rows = self.rows(count, Arrival::InOrder);
            self.append(0, rows)?;
            let count = self.random.below(60);
            let rows = self.rows(count, Arrival::Tied);
            self.append(1, rows)?;
            if self.files.is_some() && self.random.chance(70) {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        if self.files.is_some() && self.random.chance(25) {
            return self.flush();
        }
        match self.random.below(20) {
            0..=4 => self.append_drawn("rows in order", Arrival::InOrder),
            5..=6 => self.append_drawn("rows of equal event time", Arrival::Tied),
            7..=11 => self.append_drawn("late rows", Arrival::Late),
            12 => self.delete(),
            13 if self.random.chance(20) => self.truncate(),
            13..=14 => {
                self.report.constructs.note("time passes");
                self.now += *self.random.pick(&[1_000, 20_000, 60_000, 100_000]);
                self.clock.set_ms(self.now);
                let _ = writeln!(self.story, "-- it is {}", self.now);
                Ok(())
            }
            _ => {
                self.report.constructs.note("nodes are made");
                self.story.push_str("-- nodes are made\n");
                self.database.make_pre_aggregates();
                Ok(())
            }
        }
    }

    /// Writes the rows of disk tables into files.
    fn flush(&mut self) -> Result<(), String> {
        self.report.constructs.note("rows are flushed and merged");
        self.story.push_str("-- rows are flushed and merged\n");
        disk_tables::flush(&self.database).map_err(|error| error.render(None))
    }

    fn append_drawn(&mut self, construct: &'static str, arrival: Arrival) -> Result<(), String> {
        self.report.constructs.note(construct);
        let table = usize::from(self.random.chance(30));
        let count = *self.random.pick(&[1, 1, 2, 10, 40]);
        let rows = self.rows(count, arrival);
        self.append(table, rows)?;
        // Often the thread that makes nodes was not there in between.
        if self.random.chance(50) {
            self.database.make_pre_aggregates();
        }
        Ok(())
    }

    /// Draws rows that are to be appended. One key has most of them.
    pub(super) fn rows(&mut self, count: usize, arrival: Arrival) -> Vec<OracleRow> {
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count {
            let key = if self.random.chance(70) { 0 } else { self.random.below(KEYS) };
            let event_time = match arrival {
                Arrival::InOrder => self.newest + self.time_between(2_000) * self.time_between(2),
                Arrival::Tied => self.newest + self.time_between(2) / 2,
                Arrival::Late => self.newest - self.time_between(250_000),
            };
            self.newest = self.newest.max(event_time);
            drawn.push(rows::row(&self.columns, self.next_id, key, event_time, self.random));
            self.next_id += 1;
        }
        drawn
    }

    fn time_between(&mut self, end_ms: usize) -> i64 {
        i64::try_from(self.random.below(end_ms)).expect("a short time")
    }

    fn append(&mut self, table: usize, rows: Vec<OracleRow>) -> Result<(), String> {
        if rows.is_empty() {
            return Ok(());
        }
        let name = self.query.model.tables[table].name.clone();
        let _ = writeln!(self.story, "-- {} rows into {name}", rows.len());
        if self.query.is_group {
            // Rows that arrive at one time are in one leaf.
            self.now += self.time_between(3);
            self.clock.set_ms(self.now);
        }
        let batch = to_batch(&self.columns, &rows);
        assert_eq!(batch.num_rows(), rows.len(), "each row is appended");
        self.session.append(&name, &[batch]).map_err(|error| error.render(None))?;
        self.query.model.tables[table].rows.extend(rows);
        Ok(())
    }

    /// Deletes the rows of a key, or those up to an event time.
    fn delete(&mut self) -> Result<(), String> {
        let key = rows::key_value(&self.columns[KEY].1, self.random.below(KEYS));
        if key == Value::Null {
            return Ok(());
        }
        let mut until = None;
        let mut condition = format!("p = {}", literal(&key, &self.columns[KEY].1));
        if self.random.chance(85) {
            let event_time = self.newest - self.time_between(250_000);
            until = Some(i128::from(event_time));
            condition.push_str(&format!(" AND ts <= {event_time}"));
        }
        let table = usize::from(self.random.chance(20));
        let name = &self.query.model.tables[table].name;
        let sql = format!("DELETE FROM {name} WHERE {condition}");
        // The comparison of an event time needs an index by the key.
        if self.session.execute(&sql).is_err() {
            return Ok(());
        }
        let construct =
            if until.is_some() { "DELETE by key and event time" } else { "DELETE by key" };
        self.report.constructs.note(construct);
        let _ = writeln!(self.story, "{sql};");
        self.query.model.tables[table].rows.retain(|row| {
            let is_late_enough = |until| oracle::integer(&row[EVENT_TIME]) > Some(until);
            row[KEY] != key || until.is_some_and(is_late_enough)
        });
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), String> {
        self.report.constructs.note("TRUNCATE");
        let table = usize::from(self.random.chance(50));
        self.query.model.tables[table].rows.clear();
        self.execute(&format!("TRUNCATE TABLE {}", self.query.model.tables[table].name))
    }

    pub(super) fn execute(&mut self, sql: &str) -> Result<(), String> {
        let _ = writeln!(self.story, "{sql};");
        self.session.execute(sql).map(drop).map_err(|error| error.render(Some(sql)))
    }

    /// Draws request rows.
    pub(super) fn requests(&mut self, count: usize) -> Vec<OracleRow> {
        let mut drawn = Vec::with_capacity(count);
        for _ in 0..count {
            let (construct, event_time) = match self.random.below(6) {
                0..=1 => ("at the newest event time", self.newest),
                2 => ("in the future", self.newest + 1 + self.time_between(100_000)),
                _ => ("in the past", self.newest - 1 - self.time_between(200_000)),
            };
            self.report.constructs.note(construct);
            let key = match self.random.below(20) {
                0 => KEYS,
                1..=4 => self.random.below(KEYS),
                _ => 0,
            };
            if key == KEYS {
                self.report.constructs.note("of an absent key");
            }
            drawn.push(rows::row(&self.columns, -1, key, event_time, self.random));
        }
        drawn
    }

    /// Compares the answers of the two deployments and, where it knows the rows, the oracle.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        let requests = {
            let count = 4 + self.random.below(24);
            self.requests(count)
        };
        let one = self.answers(&self.session, ALWAYS, &requests);
        let other = self.answers(&self.session, OFF, &requests);
        assert!(!requests.is_empty(), "something is compared");
        self.compare_answers(&requests, &one, &other)?;
        let Ok(answers) = one else { return Ok(()) };
        if self.has_retention || !self.query.is_modelled {
            return Ok(());
        }
        for (request, answer) in requests.iter().zip(&answers) {
            if self.random.chance(20) {
                self.compare_with_oracle(request, answer)?;
            }
        }
        Ok(())
    }

    /// Returns the answers of a deployment, or its error.
    pub(super) fn answers(
        &self,
        session: &Session,
        deployment: &str,
        requests: &[OracleRow],
    ) -> Result<Vec<OracleRow>, String> {
        assert!(requests.iter().all(|row| row.len() == requests[0].len()), "rows of one table");
        let batch = to_batch(&self.columns, requests);
        let answers = session.request(deployment, &[batch]);
        answers.map(|output| of_output(&output)).map_err(|error| error.render(None))
    }

    /// Compares the answers of the two deployments, which saw the same rows.
    pub(super) fn compare_answers(
        &mut self,
        requests: &[OracleRow],
        one: &Result<Vec<OracleRow>, String>,
        other: &Result<Vec<OracleRow>, String>,
    ) -> Result<(), String> {
        let (one, other) = match (one, other) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(one), Err(other)) if one == other => return Ok(()),
            _ => return Err(format!("with nodes: {one:?}\nwithout: {other:?}")),
        };
        if one.len() != requests.len() || other.len() != requests.len() {
            return Err(format!("{} and {} answers", one.len(), other.len()));
        }
        for (request, (one, other)) in requests.iter().zip(one.iter().zip(other)) {
            self.report.answers += 1;
            self.report.values += one.len() as u64;
            if let Some(what) = difference(one, other) {
                return Err(format!("{request:?}: with nodes and without, {what}"));
            }
        }
        Ok(())
    }

    fn compare_with_oracle(
        &mut self,
        request: &OracleRow,
        answer: &OracleRow,
    ) -> Result<(), String> {
        self.report.constructs.note(OF_ORACLE);
        let model = &self.query.model;
        let expected = oracle::evaluate_request(&model.query, &model.tables, request);
        for (at, (expected, value)) in expected.iter().zip(answer).enumerate() {
            let item = &model.query.items[at];
            let is_modelled =
                !matches!(item, Item::Call { function: Function::Unmodelled { .. }, .. });
            self.report.oracle_values += 1;
            if is_modelled && !is_same(expected, value, true) {
                return Err(format!("{request:?}: c{at}: oracle {expected:?}, answer {value:?}"));
            }
        }
        Ok(())
    }

    /// Counts the rows that answers took from nodes.
    fn count_rows(&mut self) -> Result<(), String> {
        let sql = "SELECT rows_from_nodes, rows_read FROM lockstep.pre_aggregates";
        let output = self.session.execute(sql).map_err(|error| error.render(Some(sql)))?;
        let rows = of_output(&output);
        let number = |value: &Value| match value {
            Value::BigInt(number) => number.unsigned_abs(),
            _ => 0,
        };
        let from_nodes: u64 = rows.iter().map(|row| number(&row[0])).sum();
        self.report.rows_from_nodes += from_nodes;
        self.report.rows_read += rows.iter().map(|row| number(&row[1])).sum::<u64>();
        self.report.without += u64::from(rows.is_empty());
        if from_nodes > 0 {
            self.report.constructs.note(FROM_NODES);
            if self.query.is_group {
                self.report.constructs.note(GROUP_FROM_NODES);
            }
            if self.files.is_some() {
                self.report.constructs.note(DISK_FROM_NODES);
            }
        }
        Ok(())
    }
}

/// Returns the first value of two answers that differs in a bit.
pub(super) fn difference(one: &OracleRow, other: &OracleRow) -> Option<String> {
    if one.len() != other.len() {
        return Some(format!("{} and {} columns", one.len(), other.len()));
    }
    let differs = |(one, other): (&Value, &Value)| match (one, other) {
        // Lists are of texts.
        (Value::Array(one), Value::Array(other)) => one != other,
        _ => !is_same(one, other, false),
    };
    let at = one.iter().zip(other).position(differs)?;
    Some(format!("c{at}: {:?} and {:?}", one[at], other[at]))
}
