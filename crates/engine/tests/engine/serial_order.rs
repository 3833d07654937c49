//! Concurrent sessions that create, drop, deploy, insert and request, checked for linearizability:
//! there must be one order of all statements, which respects the order of statements that did not
//! overlap, in which a catalog without threads gives the same outcomes.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_engine::{Database, PreparedRequest, Session, code};
use lockstep_row::{Arena, Datum, Value, arrow::ColumnReader};

const THREADS: usize = 4;
const STATEMENTS: usize = 6;
const ROUNDS: u64 = 1_000;
/// Tables `t0` and `t1`, deployments `d0` and `d1`.
const NAMES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    CreateTable(usize),
    DropTable(usize),
    Deploy {
        name: usize,
        table: usize,
    },
    DropDeployment(usize),
    Insert(usize),
    Count(usize),
    Request(usize),
    RequestOfQuery(usize),
    /// Prepares a request, for later requests of the thread.
    Prepare(usize),
    /// Answers with the request that the thread prepared, if there is one.
    RequestPrepared,
}

/// A number, or the code of the error.
type Outcome = Result<i64, &'static str>;

/// A statement that ran on a thread, from one tick of the clock of all to another.
struct Event {
    thread: usize,
    statement: Statement,
    outcome: Outcome,
    began: u64,
    ended: u64,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, statement, outcome, began, ended } = self;
        write!(f, "thread {thread}: {statement:?} from {began} to {ended}: {outcome:?}")
    }
}

/// The catalog of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Model {
    /// How many rows a table has.
    tables: [Option<i64>; NAMES],
    /// Which definition a deployment is, and its table.
    deployments: [Option<(usize, usize)>; NAMES],
    definitions: usize,
    /// The definition that a thread has prepared.
    prepared: [Option<usize>; THREADS],
}

impl Model {
    /// Runs a statement: whether it may have this outcome.
    fn run(&mut self, thread: usize, statement: Statement, outcome: Outcome) -> bool {
        let rows = |model: &Self, name: usize| {
            model.deployments[name].and_then(|(_, table)| model.tables[table])
        };
        let expected = match statement {
            Statement::CreateTable(name) if self.tables[name].is_some() => {
                Err(code::DUPLICATE_TABLE)
            }
            Statement::CreateTable(name) => {
                self.tables[name] = Some(0);
                Ok(0)
            }
            Statement::DropTable(name) if self.tables[name].is_none() => Err(code::UNDEFINED_TABLE),
            Statement::DropTable(name) => {
                let mut tables = self.deployments.iter().flatten().map(|(_, table)| *table);
                if tables.any(|table| table == name) {
                    Err(code::DEPENDENT_OBJECTS)
                } else {
                    self.tables[name] = None;
                    Ok(0)
                }
            }
            Statement::Deploy { name, table } => {
                match (self.deployments[name].is_some(), self.tables[table].is_some()) {
                    // Which of two errors is reported is left open.
                    (true, false) if outcome == Err(code::UNDEFINED_TABLE) => outcome,
                    (true, _) => Err(code::DUPLICATE_OBJECT),
                    (false, false) => Err(code::UNDEFINED_TABLE),
                    (false, true) => {
                        self.definitions += 1;
                        self.deployments[name] = Some((self.definitions, table));
                        Ok(0)
                    }
                }
            }
            Statement::DropDeployment(name) => match self.deployments[name].take() {
                Some(_) => Ok(0),
                None => Err(code::UNDEFINED_OBJECT),
            },
            Statement::Insert(name) => match &mut self.tables[name] {
                Some(rows) => {
                    *rows += 1;
                    Ok(1)
                }
                None => Err(code::UNDEFINED_TABLE),
            },
            Statement::Count(name) => self.tables[name].ok_or(code::UNDEFINED_TABLE),
            Statement::RequestOfQuery(name) => {
                self.tables[name].map(|rows| rows + 1).ok_or(code::UNDEFINED_TABLE)
            }
            Statement::Request(name) => {
                rows(self, name).map(|rows| rows + 1).ok_or(code::UNDEFINED_OBJECT)
            }
            Statement::Prepare(name) => match self.deployments[name] {
                Some((definition, _)) => {
                    self.prepared[thread] = Some(definition);
                    Ok(0)
                }
                None => Err(code::UNDEFINED_OBJECT),
            },
            Statement::RequestPrepared => match self.prepared[thread] {
                None => Ok(-1),
                Some(definition) => {
                    let mut found = self.deployments.iter().flatten();
                    let found = found.find(|(other, _)| *other == definition);
                    let rows = found.and_then(|(_, table)| self.tables[*table]);
                    rows.map(|rows| rows + 1).ok_or(code::STALE_DEFINITION)
                }
            },
        };
        expected == outcome
    }
}

/// Whether some serial order explains all outcomes: the search goes through the orders that respect
/// which statement had ended when another began, and comes to no set of statements and state twice.
fn is_serial(events: &[Event]) -> bool {
    let all = (1_u32 << events.len()) - 1;
    let mut seen = HashSet::new();
    let mut open = vec![(0_u32, Model::default())];
    while let Some((done, model)) = open.pop() {
        if done == all {
            return true;
        }
        let waiting = || events.iter().enumerate().filter(|(at, _)| done & 1 << at == 0);
        let first_end = waiting().map(|(_, event)| event.ended).min().expect("one is waiting");
        for (at, event) in waiting().filter(|(_, event)| event.began < first_end) {
            let mut next = model.clone();
            if next.run(event.thread, event.statement, event.outcome) {
                let next = (done | 1 << at, next);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    false
}

/// A linear congruential generator: the same statements for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }

    fn statement(&mut self) -> Statement {
        let (name, table) = (self.below(NAMES), self.below(NAMES));
        match self.below(16) {
            0 | 1 => Statement::CreateTable(table),
            2 | 3 => Statement::DropTable(table),
            4..7 => Statement::Deploy { name, table },
            7 | 8 => Statement::DropDeployment(name),
            9 | 10 => Statement::Insert(table),
            11 => Statement::Count(table),
            12 => Statement::RequestOfQuery(table),
            13 => Statement::Request(name),
            14 => Statement::Prepare(name),
            _ => Statement::RequestPrepared,
        }
    }
}

fn features(table: usize) -> String {
    format!(
        "SELECT count(v) OVER w AS n FROM t{table} WINDOW w AS (PARTITION BY k ORDER BY ts \
         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    )
}

fn answer_of(request: &PreparedRequest) -> Outcome {
    let arena = Arena::new();
    let row = [Datum::String("a"), Datum::BigInt(1), Datum::Timestamp(2000)];
    let answer = request.answer(&row, &arena).map_err(|error| error.code)?;
    let count = answer.expect("there is no WHERE")[0];
    Ok(count.as_i64().expect("a count is a number"))
}

/// Requests again when the definition was dropped between the look-up and the request, as
/// `Session::request` does.
fn answer_by_name(session: &Session, target: &str) -> Outcome {
    loop {
        let request = session.prepare_request(target).map_err(|error| error.code)?;
        match answer_of(&request) {
            Err(code::STALE_DEFINITION) => {}
            outcome => return outcome,
        }
    }
}

fn run(
    session: &Session,
    statement: Statement,
    prepared: &mut Option<Arc<PreparedRequest>>,
) -> Outcome {
    let execute = |sql: &str| match session.execute(sql) {
        Ok(output) => Ok(output),
        Err(error) if error.code == code::INTERNAL_ERROR => panic!("{}", error.render(Some(sql))),
        Err(error) => Err(error.code),
    };
    let done = |sql: &str| execute(sql).map(|_| 0);
    match statement {
        Statement::CreateTable(name) => {
            done(&format!("CREATE TABLE t{name} (k STRING, v BIGINT, ts TIMESTAMP)"))
        }
        Statement::DropTable(name) => done(&format!("DROP TABLE t{name}")),
        Statement::Deploy { name, table } => {
            done(&format!("DEPLOY d{name} AS {}", features(table)))
        }
        Statement::DropDeployment(name) => done(&format!("DROP DEPLOYMENT d{name}")),
        Statement::Insert(name) => {
            execute(&format!("INSERT INTO t{name} VALUES ('a', 1, 1000)")).map(|_| 1)
        }
        Statement::Count(name) => {
            let output = execute(&format!("SELECT count(*) AS n FROM t{name}"))?;
            let value = ColumnReader::new(output.batches[0].column(0).as_ref())
                .get(0, &Arena::new())
                .to_value();
            let Value::BigInt(count) = value else { panic!("a count is a BIGINT: {value:?}") };
            Ok(count)
        }
        Statement::Request(name) => answer_by_name(session, &format!("d{name}")),
        Statement::RequestOfQuery(name) => answer_by_name(session, &features(name)),
        Statement::Prepare(name) => {
            let request = session.prepare_request(&format!("d{name}"));
            *prepared = Some(request.map_err(|error| error.code)?);
            Ok(0)
        }
        Statement::RequestPrepared => {
            prepared.as_ref().map_or(Ok(-1), |request| answer_of(request))
        }
    }
}

fn history(seed: u64) -> (Database, Vec<Event>) {
    let database = Database::in_memory();
    let (clock, barrier) = (AtomicU64::new(0), Barrier::new(THREADS));
    // Relaxed would do: the order of a counter's own changes is all that is read from it.
    let tick = || clock.fetch_add(1, Ordering::SeqCst);
    let thread = |thread: usize| {
        let mut random = Random(seed.wrapping_mul(31).wrapping_add(thread as u64));
        let session = database.session();
        let mut prepared = None;
        barrier.wait();
        let event = |_| {
            let statement = random.statement();
            let began = tick();
            let outcome = run(&session, statement, &mut prepared);
            Event { thread, statement, outcome, began, ended: tick() }
        };
        (0..STATEMENTS).map(event).collect::<Vec<Event>>()
    };
    let events = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || thread(at))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    (database, events)
}

#[test]
fn every_history_has_a_serial_order() {
    for seed in 0..ROUNDS {
        let (database, events) = history(seed);
        assert!(is_serial(&events), "seed {seed}: no serial order explains\n{events:#?}");
        let session = database.session();
        for name in 0..NAMES {
            session.execute(&format!("DROP DEPLOYMENT IF EXISTS d{name}")).unwrap();
        }
        for name in 0..NAMES {
            session.execute(&format!("DROP TABLE IF EXISTS t{name}")).unwrap();
        }
        // What other tests still read is not freed yet.
        let is_empty = |_| {
            std::thread::yield_now();
            database.memory_use().used == 0
        };
        assert!((0..1_000_000).any(is_empty), "seed {seed}: nothing is left");
    }
}

#[test]
fn the_search_sees_what_no_order_explains() {
    let event = |thread, statement, outcome, began, ended| Event {
        thread,
        statement,
        outcome,
        began,
        ended,
    };
    let created = || event(0, Statement::CreateTable(0), Ok(0), 0, 1);
    let again = |began, ended| event(1, Statement::CreateTable(0), Ok(0), began, ended);
    assert!(!is_serial(&[created(), again(2, 3)]), "a table is made twice");
    let dropped = event(2, Statement::DropTable(0), Ok(0), 1, 5);
    assert!(is_serial(&[created(), again(2, 6), dropped]), "it was dropped meanwhile");
    let insert = event(1, Statement::Insert(0), Ok(1), 2, 3);
    let count = |rows| event(0, Statement::Count(0), Ok(rows), 4, 5);
    assert!(is_serial(&[created(), insert, count(1)]));
    let insert = event(1, Statement::Insert(0), Ok(1), 2, 3);
    assert!(!is_serial(&[created(), insert, count(0)]), "the row was acknowledged");
}
