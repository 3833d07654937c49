//! Text that is not quite SQL, thrown at the parser, the binder and both compilers.
//!
//! [`run`] draws an input from a corpus, spoils it ([`mutate`]), and takes it as far as it goes:
//! parse, bind, EXPLAIN, compile for request mode, run in batch mode over tables of a few rows.
//! Nothing may panic, report an internal error, take long or take much memory. Used by a test with
//! a fixed seed and by `cargo xtask fuzz`; touches no file but the one that keeps the input.
//!
//! | module | what |
//! |---|---|
//! | [`corpus`] | the texts to begin with |
//! | [`mutate`] | how they are spoilt |
//! | [`memory`] | an allocator that counts |

pub mod corpus;
pub mod memory;
pub mod mutate;

use std::{collections::BTreeMap, fs, path::PathBuf};

use lockstep_engine::{Database, Diagnostic, Kind, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_sql::{
    Parsed,
    ast::{Query, Statement},
    parse,
};

use self::corpus::Corpus;
use crate::{panics, random::Random};

/// An input that takes longer is reported, in milliseconds.
pub const SLOW_MS: u64 = 1_000;

/// An input that takes more memory at any moment is reported, in bytes.
pub const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The tables that inputs find when they bring none.
const TABLES: &str = "CREATE TABLE t1 (id INT, k STRING, c1 STRING, c3 INT, c4 BIGINT, c5 FLOAT, \
    c6 DOUBLE, ts TIMESTAMP, c8 DATE, f BOOL, s SMALLINT); \
    INSERT INTO t1 VALUES (1, 'a', 'x', 3, 4, 5.5, 6.5, 1000, '2020-02-29', true, 7), \
    (2, 'a', 'y', NULL, 9223372036854775807, NULL, -0.5, 2000, '1999-12-31', false, -32768), \
    (3, NULL, '', 2147483647, NULL, 1.5, NULL, 2000, NULL, NULL, NULL); \
    CREATE TABLE t2 (id INT, k STRING, c1 STRING, c3 INT, c4 BIGINT, c5 FLOAT, \
    c6 DOUBLE, ts TIMESTAMP, c8 DATE, f BOOL, s SMALLINT); \
    INSERT INTO t2 VALUES (4, 'a', 'z', 5, 6, 0.25, 1e308, 1500, '2024-01-01', false, 0)";

/// How long to go on, and where to keep the input that is being tried.
#[derive(Debug)]
pub struct Options {
    /// A seed is a run.
    pub seed: u64,
    /// Stops after so many inputs.
    pub executions_max: u64,
    /// Stops after so many milliseconds.
    pub time_ms_max: u64,
    /// Holds the input while it is tried, for when the process dies of it.
    pub current: Option<PathBuf>,
}

/// What a run did and found.
#[derive(Debug, Default)]
pub struct Report {
    /// Inputs tried.
    pub executions: u64,
    /// Inputs by how far they came.
    pub reached: BTreeMap<Stage, u64>,
    /// What went wrong, the first of each kind.
    pub findings: Vec<Finding>,
    /// The longest time of an input, in milliseconds.
    pub slowest_ms: u64,
    /// The most memory an input took, in bytes; 0 unless [`memory::Counting`] is the allocator.
    pub memory_bytes_max: usize,
}

/// How far an input came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It is no SQL.
    Refused,
    /// It was parsed; it has no query, or none that binds.
    Parsed,
    /// A query was bound and explained.
    Bound,
    /// A query was compiled for request mode.
    Compiled,
}

/// An input that nothing should do this with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What happened.
    pub what: String,
    /// The input.
    pub input: String,
}

/// Runs until one of the limits is reached.
pub fn run(corpus: &Corpus, options: &Options) -> Report {
    let clock = SystemClock::new();
    let now_ms = || clock.monotonic_ns() / 1_000_000;
    let mut random = Random::new(options.seed);
    let mut report = Report::default();
    panics::catch_text();
    while report.executions < options.executions_max && now_ms() < options.time_ms_max {
        let input = mutate::input(corpus, &mut random);
        if let Some(path) = &options.current {
            // A run without its safety net is still a run.
            drop(fs::write(path, &input));
        }
        let (start_ms, before) = (now_ms(), memory::start());
        let outcome = panics::caught(|| exercise(&input));
        let (taken_ms, taken_bytes) = (now_ms() - start_ms, memory::peak_since(before));
        report.executions += 1;
        report.slowest_ms = report.slowest_ms.max(taken_ms);
        report.memory_bytes_max = report.memory_bytes_max.max(taken_bytes);
        let what = match outcome {
            Ok(Ok(stage)) => {
                *report.reached.entry(stage).or_default() += 1;
                None
            }
            Ok(Err(internal)) => Some(format!("internal error: {internal}")),
            Err(panic) => Some(format!("panic: {panic}")),
        };
        let slow = (taken_ms > SLOW_MS).then(|| format!("slow: {taken_ms} ms"));
        let big = (taken_bytes > MEMORY_BYTES_MAX).then(|| format!("memory: {taken_bytes} bytes"));
        for what in [what, slow, big].into_iter().flatten() {
            report.add(what, &input);
        }
    }
    report
}

impl Report {
    /// Keeps the shortest input of each kind of finding.
    fn add(&mut self, what: String, input: &str) {
        let kind = |what: &str| what.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        let known = self.findings.iter_mut().find(|found| kind(&found.what) == kind(&what));
        match known {
            Some(found) if found.input.len() <= input.len() => {}
            Some(found) => *found = Finding { what, input: input.to_owned() },
            None => self.findings.push(Finding { what, input: input.to_owned() }),
        }
    }
}

/// Takes an input as far as it goes in a database of its own. The error is an internal one.
pub fn exercise(input: &str) -> Result<Stage, String> {
    let Ok(statements) = parse(input) else { return Ok(Stage::Refused) };
    let session = Database::in_memory().session();
    session.execute(TABLES).map_err(|error| error.render(Some(TABLES)))?;
    let mut reached = Stage::Parsed;
    for parsed in &statements {
        let text = &input[parsed.span.start..parsed.span.end];
        reached = reached.max(exercise_statement(&session, parsed, text)?);
    }
    Ok(reached)
}

fn exercise_statement(session: &Session, parsed: &Parsed, text: &str) -> Result<Stage, String> {
    match &parsed.statement {
        Statement::Query(query) => exercise_query(session, query, text),
        // These reach for files or wait.
        Statement::LoadData(_) | Statement::CreateFunction(_) | Statement::StopJob(_) => {
            Ok(Stage::Parsed)
        }
        Statement::CreateTable(create) if create.like.is_some() => Ok(Stage::Parsed),
        _ => {
            checked(session.execute(text))?;
            Ok(Stage::Parsed)
        }
    }
}

fn exercise_query(session: &Session, query: &Query, text: &str) -> Result<Stage, String> {
    let Some(relation) = checked(session.query(text))? else { return Ok(Stage::Parsed) };
    if query.into_outfile.is_none() {
        checked(session.execute(&format!("EXPLAIN {text}")))?;
    }
    // Joins multiply rows, and that is no defect.
    if text.to_ascii_uppercase().matches("JOIN").count() <= 2 {
        checked(relation.collect(None))?;
    }
    let compiled = checked(session.prepare_request(text))?;
    Ok(if compiled.is_some() { Stage::Compiled } else { Stage::Bound })
}

/// An answer, or none when the statement is refused as it should be.
fn checked<T>(outcome: Result<T, Box<Diagnostic>>) -> Result<Option<T>, String> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == Kind::ReportBug => Err(error.message),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::{Stage, exercise};

    fn check(input: &str, expected: Stage) {
        assert_eq!(exercise(input), Ok(expected), "{input}");
    }

    #[test]
    fn an_input_goes_as_far_as_it_can() {
        check("SELECT FROM WHERE", Stage::Refused);
        check("SELECT a FROM nowhere", Stage::Parsed);
        check("SELECT id FROM t1", Stage::Compiled);
        check("CREATE TABLE t (a INT); SELECT a FROM t", Stage::Compiled);
    }
}
