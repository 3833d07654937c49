//! Promise L3 on drawn queries: what batch mode accepts deploys, and answers with the same row.
//!
//! A query ([`draw`]) runs in batch mode over tables to which the request row was appended as the
//! latest arrival, and as a request over the tables without it: asked as it is, or deployed before
//! the rows, among them or after them. The answer must be the rows that come of the request row,
//! bit for bit: its id is the greatest, and every drawn query has `max(id)` or `id` in front, so
//! that they can be told from the others (ADR 0006). Then VERIFY replays the stored rows.
//!
//! A run ends with a table of the constructs of the dialect and how often each was compared. That
//! the comparison can fail is shown by faults ([`Fault`]): a statement or rows that are changed on
//! the side of the request only, as a defect of request mode would change them.
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | queries |
//! | [`tables`] | tables, their rows, and how these arrive |
//! | [`constructs`] | what a run has to draw |

pub mod constructs;
pub mod draw;
pub mod tables;

use std::{collections::BTreeMap, fmt};

use lockstep_engine::{Session, VerifyOptions, code, set_chunk_rows};
use lockstep_host::sync::Mutex;
use lockstep_row::Value;

use self::{
    constructs::{Count, PATHS, SEVERAL, VERIFIED},
    draw::{Drawn, MAIN, OTHERS, SECOND_MAIN, Which},
    tables::{Part, REQUEST_ID, Tables, columns, insert, tuple},
};
use crate::{
    oracle::Row,
    random::Random,
    rows::{of_output, to_batch},
};

/// Queries over the same tables.
const QUERIES_PER_TABLES: u64 = 10;

/// Failures that a report keeps.
const FAILURES_MAX: usize = 10;

/// Rows that VERIFY replays of tables with more.
const VERIFIED_MAX: u64 = 12;

/// The size of chunks is the process's, so that one run at a time is what its seed says.
static CHUNK_ROWS: Mutex<()> = Mutex::new(());

/// What a run compared.
#[derive(Debug, Default)]
pub struct Report {
    /// Queries whose answers were compared.
    pub compared: u64,
    /// Queries that batch mode refuses too.
    pub refused: u64,
    /// Answers of more than no row.
    pub answered: u64,
    /// Stored rows that VERIFY replayed.
    pub replayed: u64,
    /// Compared queries by what they are made of.
    pub features: BTreeMap<&'static str, Count>,
    /// Scripts that show what differs.
    pub failures: Vec<String>,
}

impl Report {
    /// How often a construct was compared.
    pub fn count(&self, construct: &str) -> Count {
        self.features.get(construct).copied().unwrap_or_default()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, refused, answered, replayed, failures, .. } = self;
        let (all, long, compatible) = ("compared", "deployed, long keys", "compatible");
        writeln!(f, "{:9} {:45} {all:>9} {long:>20} {compatible:>11}", "", "construct")?;
        for (section, construct) in constructs::all() {
            let Count { compared, deployed_over_long_keys, compatible } = self.count(construct);
            writeln!(
                f,
                "{section:9} {construct:45} {compared:9} {deployed_over_long_keys:20} \
                 {compatible:11}"
            )?;
        }
        write!(
            f,
            "{compared} queries compared, {answered} with an answer, {refused} that batch mode \
             refuses; VERIFY replayed {replayed} rows of {} deployments; {} failures",
            self.count(VERIFIED).compared,
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
    /// A frame by rows without an end holds as many as a chunk.
    FrameEndsWithChunk,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RequestRowIsUnseen,
        Self::FrameIsLonger,
        Self::TiesAreReversed,
        Self::UnionIsLeftOut,
        Self::InnerAggregateIsOldest,
        Self::FrameEndsWithChunk,
    ];

    /// What is asked for instead of a query.
    fn of(self, sql: &str, chunk_rows: usize) -> String {
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
            Self::FrameEndsWithChunk => {
                let frame = |start: &str| format!("ROWS BETWEEN {start} PRECEDING AND CURRENT ROW");
                sql.replace(&frame("UNBOUNDED"), &frame(&chunk_rows.to_string()))
            }
        }
    }
}

/// A copy of the main table that no request row is in, for a fault.
const STORED_MAIN: &str = "m0";

/// How a request is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// As a query.
    Directly,
    /// By a deployment that was made before the rows arrived, or some of them.
    DeployedBefore,
    DeployedAmong,
    DeployedAfter,
}

impl Asked {
    /// The name of the construct.
    fn construct(self) -> &'static str {
        match self {
            Self::Directly => "asked without DEPLOY",
            Self::DeployedBefore => "DEPLOY before the rows",
            Self::DeployedAmong => "DEPLOY among the rows",
            Self::DeployedAfter => "DEPLOY after the rows",
        }
    }
}

/// Draws and compares so many queries.
pub fn run(seed: u64, cases: u64) -> Report {
    run_with(seed, cases, None)
}

/// The same with a fault.
pub fn run_with(seed: u64, cases: u64, fault: Option<Fault>) -> Report {
    let _one_run = CHUNK_ROWS.lock();
    let mut report = Report::default();
    let mut random = Random::new(seed);
    let mut tried = 0;
    // One failure shows that a fault is found.
    let failures_max = if fault.is_some() { 1 } else { FAILURES_MAX };
    while tried < cases && report.failures.len() < failures_max {
        let world = World::draw(&mut random, fault);
        for _ in 0..QUERIES_PER_TABLES.min(cases - tried) {
            let mut drawn = draw::query(&mut random);
            let asked = *random.pick(&[
                Asked::Directly,
                Asked::DeployedBefore,
                Asked::DeployedAmong,
                Asked::DeployedAfter,
                Asked::DeployedAfter,
            ]);
            drawn.features.push(asked.construct());
            if random.chance(25) {
                drawn.features.push(SEVERAL);
            }
            world.check(&drawn, asked, &mut report);
            tried += 1;
        }
    }
    report
}

/// The tables, and the row of the request.
struct World {
    tables: Tables,
    fault: Option<Fault>,
    request: Row,
    /// A row that is asked for in the same batch.
    neighbour: Row,
    /// With the request row.
    whole: Session,
    /// Without.
    stored: Session,
}

/// What is known of a deployment once it has answered.
#[derive(Debug, Default)]
struct Seen {
    /// Rows that VERIFY replayed; `None` where it is not offered.
    replayed: Option<u64>,
    /// How the program computes, by the names of constructs.
    paths: Vec<&'static str>,
}

/// What answers requests.
struct Deployed<'s> {
    session: &'s Session,
    /// A query, or the name of a deployment.
    target: &'s str,
}

impl World {
    fn draw(random: &mut Random, fault: Option<Fault>) -> Self {
        let names: Vec<&'static str> = std::iter::once(MAIN).chain(OTHERS).collect();
        let tables = Tables::draw(&names, random);
        let request = tables.request(REQUEST_ID, random);
        let neighbour = tables.request(REQUEST_ID - 1, random);
        set_chunk_rows(tables.chunk_rows);
        let (whole, stored) = (tables.open(), tables.open());
        let world = Self { tables, fault, request, neighbour, whole, stored };
        for part in [Part::Early, Part::Late] {
            world.tables.append(&world.whole, part);
        }
        world.tables.append_to(&world.whole, MAIN, std::slice::from_ref(&world.request));
        world.prepare(&world.stored);
        for part in [Part::Early, Part::Late] {
            world.append(&world.stored, part);
        }
        world
    }

    /// Makes what a fault needs.
    fn prepare(&self, session: &Session) {
        if self.fault.is_some() {
            let main = &self.tables.tables[0];
            session.execute(&main.copy(STORED_MAIN)).expect("the copy is made");
            self.tables.append_to(session, STORED_MAIN, &main.rows);
        }
    }

    /// Appends rows on the side of the request; with a fault, all of them early and in another
    /// order.
    fn append(&self, session: &Session, part: Part) {
        match (self.fault, part) {
            (Some(Fault::TiesAreReversed), Part::Early) => {
                for table in &self.tables.tables {
                    let rows: Vec<Row> = table.rows.iter().rev().cloned().collect();
                    self.tables.append_to(session, table.name, &rows);
                }
            }
            (Some(Fault::TiesAreReversed), Part::Late) => {}
            _ => self.tables.append(session, part),
        }
    }

    fn check(&self, drawn: &Drawn, asked: Asked, report: &mut Report) {
        let Ok(batch) = self.whole.execute(&drawn.reference) else {
            report.refused += 1;
            return;
        };
        let expected = expected_of(drawn, of_output(&batch));
        report.compared += 1;
        report.answered += u64::from(!expected.is_empty());
        let mut features: Vec<&'static str> =
            drawn.features.iter().chain(&self.tables.features).copied().collect();
        let mut seen = Seen::default();
        let outcome = self.answer(drawn, asked, &mut seen);
        report.replayed += seen.replayed.unwrap_or_default();
        features.extend(seen.replayed.map(|_| VERIFIED));
        features.extend(seen.paths);
        for feature in &features {
            report.features.entry(feature).or_default().add(&features);
        }
        let what = match outcome {
            Ok(came) if texts(&came) == texts(&expected) => return,
            Ok(came) => format!("batch mode: {expected:?}\nrequest: {came:?}"),
            Err(error) => format!("batch mode accepts it: {expected:?}\nrequest: {error}"),
        };
        if report.failures.len() < FAILURES_MAX {
            report.failures.push(format!("{}{}", self.script(drawn, asked), commented(&what)));
        }
    }

    fn answer(&self, drawn: &Drawn, asked: Asked, seen: &mut Seen) -> Result<Vec<Row>, String> {
        let sql = match self.fault {
            Some(fault) => fault.of(&drawn.sql, self.tables.chunk_rows),
            None => drawn.sql.clone(),
        };
        if asked == Asked::Directly {
            return self.ask_all(drawn, &Deployed { session: &self.stored, target: &sql });
        }
        let own;
        let session = match asked {
            Asked::DeployedBefore | Asked::DeployedAmong => {
                own = self.tables.open();
                self.prepare(&own);
                &own
            }
            Asked::Directly | Asked::DeployedAfter => &self.stored,
        };
        let is_among = asked == Asked::DeployedAmong;
        if is_among {
            self.append(session, Part::Early);
        }
        execute(session, &format!("DEPLOY d AS {sql}"))?;
        if asked == Asked::DeployedBefore {
            self.append(session, Part::Early);
        }
        if asked != Asked::DeployedAfter {
            self.append(session, Part::Late);
        }
        let answer = self.ask_all(drawn, &Deployed { session, target: "d" });
        let answer = answer.and_then(|answer| {
            seen.paths = paths(session)?;
            seen.replayed = verify(session)?;
            Ok(answer)
        });
        execute(session, "DROP DEPLOYMENT d")?;
        answer
    }

    /// The answer to the request, which is the same when others are asked together with it.
    fn ask_all(&self, drawn: &Drawn, deployed: &Deployed<'_>) -> Result<Vec<Row>, String> {
        let (one, other) = (&self.request, &self.neighbour);
        let alone = deployed.ask(&[one])?;
        if !drawn.features.contains(&SEVERAL) {
            return Ok(alone);
        }
        let mut expected = deployed.ask(&[other])?;
        expected.extend([alone.as_slice(), &alone].concat());
        let together = deployed.ask(&[other, one, one])?;
        if format!("{together:?}") == format!("{expected:?}") {
            return Ok(alone);
        }
        Err(format!("alone {expected:?}\ntogether with {other:?}: {together:?}"))
    }

    /// Statements that can be pasted into the shell.
    fn script(&self, drawn: &Drawn, asked: Asked) -> String {
        let tables = &self.tables;
        let mut script = format!("-- chunks of {} rows\n", tables.chunk_rows);
        for definition in tables.definitions() {
            script.push_str(&format!("{definition};\n"));
        }
        let request = tuple(&self.request);
        let deploy = format!("DEPLOY d AS {};\n", drawn.sql);
        let (early, late) = (tables.inserts(Part::Early), tables.inserts(Part::Late));
        let call = format!("CALL d({request});\n");
        script.push_str(&match asked {
            Asked::Directly => {
                let config = format!(" CONFIG(execute_mode='request', values=({request}));\n");
                format!("{early}{late}{}{config}", drawn.sql)
            }
            Asked::DeployedBefore => format!("{deploy}{early}{late}{call}"),
            Asked::DeployedAmong => format!("{early}{deploy}{late}{call}"),
            Asked::DeployedAfter => format!("{early}{late}{deploy}{call}"),
        });
        format!("{script}{}{};\n", insert(MAIN, &self.request), drawn.reference)
    }
}

impl Deployed<'_> {
    /// The answers to some requests at once.
    fn ask(&self, requests: &[&Row]) -> Result<Vec<Row>, String> {
        let rows: Vec<Row> = requests.iter().copied().cloned().collect();
        let answers = self.session.request(self.target, &[to_batch(&columns(), &rows)]);
        answers.map(|output| of_output(&output)).map_err(|error| error.render(None))
    }
}

/// The stored rows, replayed as requests, have the answers of batch mode, where the query gives
/// one for each. How many were replayed; `None` where VERIFY is not offered.
fn verify(session: &Session) -> Result<Option<u64>, String> {
    let options = VerifyOptions { sample: Some(VERIFIED_MAX), ..VerifyOptions::default() };
    match session.verify_with("d", &options) {
        Ok(found) if found.differing == 0 => Ok(Some(found.requests)),
        Ok(found) => Err(format!("VERIFY: {found:?}")),
        Err(error) if error.code == code::FEATURE_NOT_SUPPORTED => Ok(None),
        Err(error) => Err(format!("VERIFY: {}", error.render(None))),
    }
}

/// How the deployed program computes.
fn paths(session: &Session) -> Result<Vec<&'static str>, String> {
    let program = session.prepare_request("d").map_err(|error| error.render(None))?.explain();
    let shown = PATHS.iter().filter(|(text, _)| program.contains(text));
    Ok(shown.map(|(_, construct)| *construct).collect())
}

fn execute(session: &Session, sql: &str) -> Result<(), String> {
    session.execute(sql).map(drop).map_err(|error| error.render(None))
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

/// Rows without their order, to the bit.
fn texts(rows: &[Row]) -> Vec<String> {
    // The Debug form of a NaN does not say which one it is.
    let bits = |value: &Value| match value {
        Value::Double(nan) if nan.is_nan() => format!("{:x}", nan.to_bits()),
        Value::Float(nan) if nan.is_nan() => format!("{:x}", nan.to_bits()),
        other => format!("{other:?}"),
    };
    let mut texts: Vec<String> =
        rows.iter().map(|row| row.iter().map(bits).collect::<Vec<_>>().join(", ")).collect();
    texts.sort();
    texts
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("-- {line}\n")).collect()
}
