//! Promise L3 on drawn queries: what batch mode accepts deploys, and answers with the same row.
//!
//! A query ([`draw`]) runs in batch mode over tables to which the request row was appended as the
//! latest arrival, and as a deployment over the tables without it. The answer must be the rows
//! that come of the request row, bit for bit: its id is the greatest, and every drawn query has
//! `max(id)` or `id` in front, so that they can be told from the others (ADR 0006).
//!
//! A run ends with a table of the constructs of the dialect and how often each was compared. That
//! the comparison can fail is shown by faults ([`Fault`]): a statement or rows that are changed on
//! the side of the request only, as a defect of request mode would change them.
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | queries and rows |

pub mod draw;

use std::{collections::BTreeMap, fmt};

use lockstep_engine::{Database, Session, code};
use lockstep_row::{DataType, Value};

use self::draw::{COLUMNS, CONSTRUCTS, Drawn, MAIN, OTHERS, REQUEST_ID, SECOND_MAIN, Which};
use crate::{
    oracle::Row,
    random::Random,
    rows::{of_output, to_batch},
    slt,
};

/// Queries over the same tables.
const QUERIES_PER_TABLES: u64 = 20;

/// Failures that a report keeps.
const FAILURES_MAX: usize = 10;

/// What a run compared.
#[derive(Debug, Default)]
pub struct Report {
    /// Queries whose answers were compared.
    pub compared: u64,
    /// Queries that batch mode refuses too.
    pub refused: u64,
    /// Answers of more than no row.
    pub answered: u64,
    /// Compared queries by what they are made of.
    pub features: BTreeMap<&'static str, u64>,
    /// Scripts that show what differs.
    pub failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, refused, answered, features, failures } = self;
        for (section, construct) in CONSTRUCTS {
            let count = features.get(construct).copied().unwrap_or_default();
            writeln!(f, "{section:9} {construct:45} {count:7}")?;
        }
        write!(
            f,
            "{compared} queries compared, {answered} with an answer, {refused} that batch mode \
             refuses, {} failures",
            failures.len()
        )
    }
}

/// What is done to a request, so that it has to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A scan of the request table that is not the left-most one gives the stored rows only.
    RequestRowIsUnseen,
    /// Frames of two rows or seconds are of three.
    FrameIsLonger,
    /// Rows of equal event time are taken in the order opposite to that of their arrival.
    TiesAreReversed,
    /// A window leaves out its UNION source.
    UnionIsLeftOut,
    /// `last_value` and `lag` inside the argument of an aggregate take the oldest row.
    InnerAggregateIsOldest,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::RequestRowIsUnseen,
        Self::FrameIsLonger,
        Self::TiesAreReversed,
        Self::UnionIsLeftOut,
        Self::InnerAggregateIsOldest,
    ];

    /// What is deployed instead of a query.
    fn of(self, sql: &str) -> String {
        match self {
            Self::RequestRowIsUnseen => sql.replace(SECOND_MAIN, STORED_MAIN),
            Self::FrameIsLonger => {
                sql.replace("2 PRECEDING", "3 PRECEDING").replace("2s PRECEDING", "3s PRECEDING")
            }
            Self::TiesAreReversed => sql.to_owned(),
            Self::UnionIsLeftOut => sql.replace("UNION u ", ""),
            Self::InnerAggregateIsOldest => {
                sql.replace("= last_value(", "= first_value(").replace("= lag(v, 0)", "= min(v)")
            }
        }
    }
}

/// A copy of the main table that no request row is in, for a fault.
const STORED_MAIN: &str = "m0";

/// Draws and compares so many queries.
pub fn run(seed: u64, cases: u64) -> Report {
    run_with(seed, cases, None)
}

/// The same with a fault.
pub fn run_with(seed: u64, cases: u64, fault: Option<Fault>) -> Report {
    let mut report = Report::default();
    let mut random = Random::new(seed);
    let mut tried = 0;
    while tried < cases && report.failures.len() < FAILURES_MAX {
        let tables = Tables::draw(&mut random, fault);
        for _ in 0..QUERIES_PER_TABLES.min(cases - tried) {
            let mut drawn = draw::query(&mut random);
            if random.chance(25) {
                drawn.features.push("several requests at once");
            }
            tables.check(&drawn, &mut report);
            tried += 1;
        }
    }
    report
}

/// Rows of all tables, and the row of the request.
struct Tables {
    rows: Vec<(&'static str, Vec<Row>)>,
    /// The index clauses of each.
    indexes: Vec<&'static str>,
    /// What the rows are, by the names of constructs.
    features: Vec<&'static str>,
    fault: Option<Fault>,
    request: Row,
    /// A row that is asked for in the same batch.
    neighbour: Row,
    /// With the request row.
    whole: Session,
    /// Without.
    stored: Session,
}

impl Tables {
    fn draw(random: &mut Random, fault: Option<Fault>) -> Self {
        let mut first_id = 0;
        let mut rows = Vec::new();
        let mut indexes = Vec::new();
        let mut features = Vec::new();
        for name in std::iter::once(MAIN).chain(OTHERS) {
            let (index_count, clauses) = draw::indexes(random);
            let count = random.below(14);
            let drawn: Vec<Row> =
                (first_id..).take(count).map(|id| draw::row(id, random)).collect();
            if index_count > 1 {
                features.push("several indexes");
            }
            if !drawn.is_sorted_by_key(event_time) {
                features.push("late rows");
            }
            rows.push((name, drawn));
            indexes.push(clauses);
            first_id += 1_000;
        }
        features.sort_unstable();
        features.dedup();
        let request = draw::row(REQUEST_ID, random);
        let neighbour = draw::row(REQUEST_ID - 1, random);
        let open = |with_request: bool| {
            let session = Database::in_memory().session();
            let add = |name: &str, clauses: &str, rows: &[Row]| {
                session.execute(&draw::create(name, clauses)).expect("the tables are made");
                session.append(name, &[to_batch(&columns(), rows)]).expect("their rows fit");
            };
            for ((name, rows), clauses) in rows.iter().zip(&indexes) {
                let mut rows = rows.clone();
                if with_request && *name == MAIN {
                    rows.push(request.clone());
                }
                if !with_request && fault == Some(Fault::TiesAreReversed) {
                    rows.reverse();
                }
                add(name, clauses, &rows);
                if fault.is_some() && *name == MAIN {
                    add(STORED_MAIN, clauses, &rows);
                }
            }
            session
        };
        let (whole, stored) = (open(true), open(false));
        Self { whole, stored, request, neighbour, rows, indexes, features, fault }
    }

    fn check(&self, drawn: &Drawn, report: &mut Report) {
        let Ok(batch) = self.whole.execute(&drawn.reference) else {
            report.refused += 1;
            return;
        };
        let expected = expected_of(drawn, of_output(&batch));
        report.compared += 1;
        report.answered += u64::from(!expected.is_empty());
        for feature in drawn.features.iter().chain(&self.features) {
            *report.features.entry(feature).or_default() += 1;
        }
        let outcome = self.answer(drawn);
        let what = match outcome {
            Ok(came) if texts(&came) == texts(&expected) => return,
            Ok(came) => format!("batch mode: {expected:?}\nrequest: {came:?}"),
            Err(error) => format!("batch mode accepts it: {expected:?}\nrequest: {error}"),
        };
        if report.failures.len() < FAILURES_MAX {
            report.failures.push(format!("{}{}", self.script(drawn), commented(&what)));
        }
    }

    /// The answer of a deployment.
    fn answer(&self, drawn: &Drawn) -> Result<Vec<Row>, String> {
        let render = |error: Box<lockstep_engine::Diagnostic>| error.render(None);
        let sql = self.fault.map_or_else(|| drawn.sql.clone(), |fault| fault.of(&drawn.sql));
        self.stored.execute(&format!("DEPLOY d AS {sql}")).map_err(render)?;
        let answer = self.ask(&[&self.request]).and_then(|answer| {
            if drawn.features.contains(&"several requests at once") {
                self.check_together(&answer)?;
            }
            self.verify()?;
            Ok(answer)
        });
        self.stored.execute("DROP DEPLOYMENT d").map_err(render)?;
        answer
    }

    /// The stored rows, replayed as requests, have the answers of batch mode, where the query gives
    /// one for each.
    fn verify(&self) -> Result<(), String> {
        match self.stored.verify("d") {
            Ok(found) if found.differing == 0 => Ok(()),
            Ok(found) => Err(format!("VERIFY: {found:?}")),
            Err(error) if error.code == code::FEATURE_NOT_SUPPORTED => Ok(()),
            Err(error) => Err(format!("VERIFY: {}", error.render(None))),
        }
    }

    /// The answers to some requests at once.
    fn ask(&self, requests: &[&Row]) -> Result<Vec<Row>, String> {
        let rows: Vec<Row> = requests.iter().copied().cloned().collect();
        let answers = self.stored.request("d", &[to_batch(&columns(), &rows)]);
        answers.map(|output| of_output(&output)).map_err(|error| error.render(None))
    }

    /// Requests that are asked together are answered as those that are asked alone.
    fn check_together(&self, alone: &[Row]) -> Result<(), String> {
        let (one, other) = (&self.request, &self.neighbour);
        let mut expected = self.ask(&[other])?;
        expected.extend([alone, alone].concat());
        let together = self.ask(&[other, one, one])?;
        if format!("{together:?}") == format!("{expected:?}") {
            return Ok(());
        }
        Err(format!("alone {expected:?}\ntogether with {other:?}: {together:?}"))
    }

    /// Statements that can be pasted into the shell.
    fn script(&self, drawn: &Drawn) -> String {
        let literal = |value: &Value| match value {
            Value::String(text) => format!("'{text}'"),
            _ => slt::text(value),
        };
        let tuple = |row: &Row| row.iter().map(literal).collect::<Vec<_>>().join(", ");
        let mut script = String::new();
        for ((name, rows), clauses) in self.rows.iter().zip(&self.indexes) {
            script.push_str(&format!("{};\n", draw::create(name, clauses)));
            for row in rows {
                script.push_str(&format!("INSERT INTO {name} VALUES ({});\n", tuple(row)));
            }
        }
        let request = tuple(&self.request);
        format!(
            "{script}{} CONFIG(execute_mode='request', values=({request}));\n\
             INSERT INTO {MAIN} VALUES ({request});\n{};\n",
            drawn.sql, drawn.reference
        )
    }
}

/// The rows of batch mode that the request row comes to.
fn expected_of(drawn: &Drawn, rows: Vec<Row>) -> Vec<Row> {
    let is_of_request = |row: &Row| match &row[0] {
        Value::Int(id) => *id == REQUEST_ID,
        Value::BigInt(id) => *id == i64::from(REQUEST_ID),
        _ => false,
    };
    match drawn.which {
        Which::All => rows,
        Which::OfRequest => rows.into_iter().filter(is_of_request).collect(),
        Which::DistinctOfRequest => {
            let of_request = rows.into_iter().filter(is_of_request);
            of_request.map(|row| row[1..].to_vec()).take(1).collect()
        }
        Which::None => Vec::new(),
    }
}

fn event_time(row: &Row) -> i64 {
    let at = COLUMNS.iter().position(|(name, _)| *name == "ts").expect("rows have an event time");
    match &row[at] {
        Value::Timestamp(time) => *time,
        _ => i64::MIN,
    }
}

fn columns() -> Vec<(String, DataType)> {
    COLUMNS.iter().map(|(name, data_type)| ((*name).to_owned(), data_type.clone())).collect()
}

/// Rows without their order, to the bit.
fn texts(rows: &[Row]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    texts.sort();
    texts
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("-- {line}\n")).collect()
}
