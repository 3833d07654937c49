//! The life of a client of the soak.
//!
//! # Life of a key
//!
//! A key is free, or it has an append of which nobody knows whether it was done. Only free keys are
//! used. When another server has started, the rows of that append are counted: all of them, or none.

use std::sync::Arc;

use lockstep_host::sync::Mutex;
use lockstep_testkit::random::Random;

use super::{
    SoakReport,
    connection::{CallFailure, SoakConnection, SoakProtocol, insertion},
    model::SoakModel,
    row::{Cell, CellRows, CellType, SoakRow},
    server::{SeenServer, ServerGate},
};

/// The keys of a client.
const KEYS: usize = 12;
/// The most rows of an append.
const APPEND_ROWS_MAX: usize = 16;
/// The most rows of a request.
const REQUEST_ROWS_MAX: usize = 5;
/// How much later each append is than the one before, in milliseconds.
const BATCH_MS: i64 = 7_000;

/// The types of the columns of a key's rows.
const ROW_TYPES: [CellType; 4] =
    [CellType::Whole, CellType::Whole, CellType::Double, CellType::Whole];
/// The types of the columns of a key's sums.
const SUM_TYPES: [CellType; 5] =
    [CellType::Whole, CellType::Whole, CellType::Double, CellType::Whole, CellType::Double];

/// A client.
#[derive(Debug)]
pub struct SoakClient {
    number: usize,
    protocol: SoakProtocol,
    random: Random,
    durability: &'static str,
    model: SoakModel,
    keys: Vec<ClientKey>,
    next_row: i64,
    next_batch: i64,
    next_table: u64,
    now_ms: i64,
    gate: Arc<ServerGate>,
    report: Arc<Mutex<SoakReport>>,
}

/// A key of a client.
#[derive(Debug, Clone, Default)]
struct ClientKey {
    name: String,
    /// The append that may have been done.
    pending: Option<PendingAppend>,
}

/// An append without an acknowledgement.
#[derive(Debug, Clone)]
struct PendingAppend {
    rows: Vec<SoakRow>,
    /// The server that got it.
    generation: u64,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStep {
    Append,
    Request,
    Sums,
    Rows,
    Table,
    Disconnect,
}

/// The steps, and how often each is drawn of a hundred.
const STEPS: [(ClientStep, usize); 6] = [
    (ClientStep::Append, 40),
    (ClientStep::Request, 34),
    (ClientStep::Sums, 14),
    (ClientStep::Rows, 8),
    (ClientStep::Table, 2),
    (ClientStep::Disconnect, 2),
];

/// A step that ends the connection.
type StepEnd = Result<(), CallFailure>;

impl SoakClient {
    /// Makes a client that has written nothing.
    pub fn new(
        number: usize,
        protocol: SoakProtocol,
        seed: u64,
        gate: &Arc<ServerGate>,
        report: &Arc<Mutex<SoakReport>>,
    ) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let key = |at| ClientKey { name: format!("c{number}k{at}"), pending: None };
        Ok(Self {
            number,
            protocol,
            durability: if random.chance(70) { "os" } else { "disk" },
            random,
            model: SoakModel::new()?,
            keys: (0..KEYS).map(key).collect(),
            next_row: 1,
            next_batch: 1,
            next_table: 1,
            now_ms: 1_700_000_000_000,
            gate: Arc::clone(gate),
            report: Arc::clone(report),
        })
    }

    /// Calls servers until the run is over.
    pub fn run(mut self) {
        let mut seen = 0;
        while let Some(server) = self.gate.server() {
            let is_new = server.generation != seen;
            seen = server.generation;
            let ended = self.with_server(server, is_new);
            if let Err(failure) = ended {
                self.note_end(server, &failure);
            }
            if server.is_last {
                // Another server comes only where this one has ended.
                lockstep_host::pause(20);
            }
        }
    }

    /// Calls a server until the connection ends.
    fn with_server(&mut self, server: SeenServer, is_new: bool) -> StepEnd {
        let mut connection = SoakConnection::connect(self.protocol, server.ports)?;
        self.count("connect");
        self.resolve(&mut connection, server.generation)?;
        if is_new || server.is_last {
            self.compare_all(&mut connection)?;
        }
        if server.is_last {
            if is_new {
                self.gate.done();
            }
            while self.gate.is_open(server.generation) {
                lockstep_host::pause(20);
            }
            return Ok(());
        }
        while self.gate.is_open(server.generation) {
            if self.step(&mut connection, server)? == ClientStep::Disconnect {
                let sql = self.unread_script(server.generation);
                connection.send_and_end(&sql);
                self.report.lock().unanswered += 1;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Does something. A refusal is counted, and nothing else.
    fn step(
        &mut self,
        connection: &mut SoakConnection,
        server: SeenServer,
    ) -> Result<ClientStep, CallFailure> {
        let step = self.draw_step();
        let done = match step {
            ClientStep::Append => self.append(connection, server.generation),
            ClientStep::Request => self.request(connection),
            ClientStep::Sums => self.sums(connection),
            ClientStep::Rows => self.free_key().map_or(Ok(()), |at| self.compare(connection, at)),
            ClientStep::Table => self.make_table(connection),
            ClientStep::Disconnect => Ok(()),
        };
        match done {
            Err(failure) if failure.is_refusal() => {
                self.report.lock().refused += 1;
                Ok(step)
            }
            Err(failure) => Err(failure),
            Ok(()) => {
                self.count(step.name());
                Ok(step)
            }
        }
    }

    fn draw_step(&mut self) -> ClientStep {
        let mut drawn = self.random.below(STEPS.iter().map(|(_, weight)| weight).sum());
        for (step, weight) in STEPS {
            if drawn < weight {
                return step;
            }
            drawn -= weight;
        }
        unreachable!("a number below the sum is within one of the weights")
    }

    /// Draws a free key; `None` where there is none.
    fn free_key(&mut self) -> Option<usize> {
        let is_free = |at: &usize| self.keys[*at].pending.is_none();
        let free: Vec<usize> = (0..KEYS).filter(is_free).collect();
        (!free.is_empty()).then(|| *self.random.pick(&free))
    }

    /// Draws rows of a key, some with the same event time.
    fn draw_rows(&mut self, at: usize, count: usize) -> Vec<SoakRow> {
        assert!(self.keys[at].pending.is_none(), "what is not known of a key is found out first");
        self.now_ms += BATCH_MS;
        let batch = self.next_batch;
        self.next_batch += 1;
        let row = |_| {
            let id = self.next_row;
            self.next_row += 1;
            let random = &mut self.random;
            let x = random.chance(90).then(|| random.number().cast_signed() >> 20);
            // Sums of these are inexact in any order but one that is exact.
            let scale = *random.pick(&[1e-9, 0.1, 1.0, 1e15]);
            let d = random.below(1_000_000);
            let d = random.chance(90).then_some(scale * f64::from(u32::try_from(d).unwrap_or(0)));
            let ts = self.now_ms + i64::try_from(random.below(4)).unwrap_or(0) * 1_000;
            SoakRow { key: self.keys[at].name.clone(), id, x, d, batch, ts }
        };
        (0..count).map(row).collect()
    }

    fn append(&mut self, connection: &mut SoakConnection, generation: u64) -> StepEnd {
        let Some(at) = self.free_key() else { return Ok(()) };
        let count = 1 + self.random.below(APPEND_ROWS_MAX);
        let rows = self.draw_rows(at, count);
        match connection.append(&rows, self.durability) {
            Ok(()) => {
                self.report.lock().rows_acknowledged += rows.len() as u64;
                self.know(&rows);
                Ok(())
            }
            // A refused append may have been done.
            Err(failure) => {
                self.keys[at].pending = Some(PendingAppend { rows, generation });
                Err(failure)
            }
        }
    }

    /// Gives rows that are stored to the database in memory.
    fn know(&self, rows: &[SoakRow]) {
        if let Err(error) = self.model.append(rows) {
            self.violation(&format!("the database in memory refuses rows: {error}"));
        }
    }

    fn request(&mut self, connection: &mut SoakConnection) -> StepEnd {
        let Some(at) = self.free_key() else { return Ok(()) };
        let many = self.random.chance(15);
        let count = if many { 1 + self.random.below(REQUEST_ROWS_MAX) } else { 1 };
        let rows = self.draw_rows(at, count);
        let answer = connection.request(&rows)?;
        self.check("a request", &answer, self.model.request(&rows));
        Ok(())
    }

    fn sums(&mut self, connection: &mut SoakConnection) -> StepEnd {
        let Some(at) = self.free_key() else { return Ok(()) };
        let sql = format!(
            "SELECT count(*) AS n, sum(x) AS total, sum(d) AS mass, max(batch) AS last, \
             avg(d) AS mean FROM events WHERE k = '{}'",
            self.keys[at].name
        );
        let answer = connection.query(&sql, &SUM_TYPES)?;
        self.check(&sql, &answer, self.model.query(&sql));
        Ok(())
    }

    /// Compares the rows of a key.
    fn compare(&self, connection: &mut SoakConnection, at: usize) -> StepEnd {
        let name = &self.keys[at].name;
        let sql = format!("SELECT id, x, d, batch FROM events WHERE k = '{name}' ORDER BY id");
        let answer = connection.query(&sql, &ROW_TYPES)?;
        self.check(&sql, &answer, self.model.query(&sql));
        Ok(())
    }

    fn compare_all(&self, connection: &mut SoakConnection) -> StepEnd {
        let mut free = (0..KEYS).filter(|at| self.keys[*at].pending.is_none());
        free.try_for_each(|at| self.compare(connection, at))
    }

    /// Finds out what became of appends that were sent to an earlier server.
    fn resolve(&mut self, connection: &mut SoakConnection, generation: u64) -> StepEnd {
        for at in 0..KEYS {
            let Some(pending) = self.keys[at].pending.clone() else { continue };
            if pending.generation == generation {
                continue;
            }
            let (name, batch) = (&self.keys[at].name, pending.rows[0].batch);
            let sql =
                format!("SELECT count(*) AS n FROM events WHERE k = '{name}' AND batch = {batch}");
            let found = connection.query(&sql, &[CellType::Whole])?;
            let all = i64::try_from(pending.rows.len()).unwrap_or(i64::MAX);
            match found.first().and_then(|row| row.first()) {
                Some(Cell::Whole(0)) => self.report.lock().appends_lost += 1,
                Some(Cell::Whole(count)) if *count == all => {
                    self.report.lock().appends_done += 1;
                    self.know(&pending.rows);
                }
                other => self.violation(&format!("{other:?} of {all} rows of an append: {sql}")),
            }
            self.keys[at].pending = None;
        }
        Ok(())
    }

    /// Makes a table with a deployment, asks it, and drops both. What a kill leaves of them stays.
    fn make_table(&mut self, connection: &mut SoakConnection) -> StepEnd {
        let name = format!("side_{}_{}", self.number, self.next_table);
        self.next_table += 1;
        let value = i64::try_from(self.random.below(1_000_000)).unwrap_or(0);
        for sql in [
            format!("CREATE TABLE {name} (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))"),
            format!("INSERT INTO {name} VALUES ('a', {value}, 1), ('a', 1, 2), ('b', 5, 1)"),
            format!(
                "DEPLOY ask_{name} AS SELECT k, sum(v) OVER w AS s FROM {name} WINDOW w AS \
                 (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
            ),
        ] {
            connection.query(&sql, &[])?;
        }
        let sql = format!("SELECT k, sum(v) AS s FROM {name} GROUP BY k ORDER BY k");
        let answer = connection.query(&sql, &[CellType::Text, CellType::Whole])?;
        let row = |key: &str, sum| vec![Cell::Text(key.to_owned()), Cell::Whole(sum)];
        self.check(&sql, &answer, Ok(vec![row("a", value + 1), row("b", 5)]));
        connection.query(&format!("DROP DEPLOYMENT ask_{name}; DROP TABLE {name}"), &[])?;
        Ok(())
    }

    /// Makes a script whose answer nobody reads: an append, or a long query.
    fn unread_script(&mut self, generation: u64) -> String {
        let at = self.free_key().filter(|_| self.random.chance(50));
        let Some(at) = at else {
            return "SELECT k, sum(d) AS s FROM events GROUP BY k ORDER BY s".to_owned();
        };
        let rows = self.draw_rows(at, 5);
        let sql = insertion(&rows);
        self.keys[at].pending = Some(PendingAppend { rows, generation });
        sql
    }

    /// Compares an answer.
    fn check(&self, what: &str, answer: &CellRows, expected: Result<CellRows, String>) {
        assert!(!what.is_empty(), "a violation says what was compared");
        self.report.lock().answers_compared += 1;
        match expected {
            Ok(expected) if expected == *answer => {}
            Ok(expected) => {
                self.violation(&format!("{what}: {answer:?}, expected {expected:?}"));
            }
            Err(error) => self.violation(&format!("{what}: the model fails: {error}")),
        }
    }

    /// Notes that a connection has ended before its time: by a kill, unless the server still runs.
    fn note_end(&self, server: SeenServer, failure: &CallFailure) {
        self.report.lock().unanswered += 1;
        if *failure != CallFailure::Ended {
            return self.violation(&format!("{failure:?}"));
        }
        // The gate is closed before a kill.
        if self.gate.is_open(server.generation) {
            self.violation("the server has ended a connection");
        }
    }

    fn violation(&self, what: &str) {
        let name = self.protocol.name();
        self.report.lock().violation(format!("client {} over {name}: {what}", self.number));
    }

    fn count(&self, call: &str) {
        self.report.lock().count(self.protocol.name(), call);
    }
}

impl ClientStep {
    /// Returns its name in reports.
    fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Request => "request",
            Self::Sums => "sums",
            Self::Rows => "rows",
            Self::Table => "table",
            Self::Disconnect => "disconnect",
        }
    }
}
