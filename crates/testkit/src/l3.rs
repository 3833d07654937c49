//! Promise L3 on drawn queries: what batch mode accepts deploys, and answers with the same row.
//!
//! A query ([`draw`]) runs in batch mode over tables to which the request row was appended as the
//! latest arrival, and as a deployment over the tables without it. The answer must be the rows
//! that come of the request row, bit for bit: its id is the greatest, and every drawn query has
//! `max(id)` or `id` in front, so that they can be told from the others (ADR 0006).
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | queries and rows |

pub mod draw;

use std::{collections::BTreeMap, fmt};

use lockstep_engine::{Database, Session};
use lockstep_row::{DataType, Value};

use self::draw::{COLUMNS, Drawn, MAIN, OTHERS, REQUEST_ID, Which};
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
        let features: Vec<String> =
            features.iter().map(|(feature, count)| format!("{feature} {count}")).collect();
        write!(
            f,
            "{compared} queries compared, {answered} with an answer, {refused} that batch mode \
             refuses, {} failures\n{}",
            failures.len(),
            features.join(", ")
        )
    }
}

/// Draws and compares so many queries.
pub fn run(seed: u64, cases: u64) -> Report {
    let mut report = Report::default();
    let mut random = Random::new(seed);
    let mut tried = 0;
    while tried < cases && report.failures.len() < FAILURES_MAX {
        let tables = Tables::draw(&mut random);
        for _ in 0..QUERIES_PER_TABLES.min(cases - tried) {
            let drawn = draw::query(&mut random);
            tables.check(&drawn, &mut report);
            tried += 1;
        }
    }
    report
}

/// Rows of all tables, and the row of the request.
struct Tables {
    rows: Vec<(&'static str, Vec<Row>)>,
    request: Row,
    /// With the request row.
    whole: Session,
    /// Without.
    stored: Session,
}

impl Tables {
    fn draw(random: &mut Random) -> Self {
        let mut first_id = 0;
        let mut rows = Vec::new();
        for name in std::iter::once(MAIN).chain(OTHERS) {
            let count = random.below(10);
            let drawn: Vec<Row> =
                (first_id..).take(count).map(|id| draw::row(id, random)).collect();
            rows.push((name, drawn));
            first_id += 1_000;
        }
        let request = draw::row(REQUEST_ID, random);
        let open = |with_request: bool| {
            let session = Database::in_memory().session();
            for (name, rows) in &rows {
                let mut rows = rows.clone();
                if with_request && *name == MAIN {
                    rows.push(request.clone());
                }
                session.execute(&draw::create(name)).expect("the tables are made");
                session.append(name, &[to_batch(&columns(), &rows)]).expect("their rows fit");
            }
            session
        };
        Self { whole: open(true), stored: open(false), request, rows }
    }

    fn check(&self, drawn: &Drawn, report: &mut Report) {
        let Ok(batch) = self.whole.execute(&drawn.reference) else {
            report.refused += 1;
            return;
        };
        let expected = expected_of(drawn, of_output(&batch));
        report.compared += 1;
        report.answered += u64::from(!expected.is_empty());
        for feature in &drawn.features {
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
        self.stored.execute(&format!("DEPLOY d AS {}", drawn.sql)).map_err(render)?;
        let request = to_batch(&columns(), std::slice::from_ref(&self.request));
        let answer = self.stored.request("d", &[request]).map(|output| of_output(&output));
        self.stored.execute("DROP DEPLOYMENT d").map_err(render)?;
        answer.map_err(render)
    }

    /// Statements that can be pasted into the shell.
    fn script(&self, drawn: &Drawn) -> String {
        let literal = |value: &Value| match value {
            Value::String(text) => format!("'{text}'"),
            _ => slt::text(value),
        };
        let tuple = |row: &Row| row.iter().map(literal).collect::<Vec<_>>().join(", ");
        let mut script = String::new();
        for (name, rows) in &self.rows {
            script.push_str(&format!("{};\n", draw::create(name)));
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
