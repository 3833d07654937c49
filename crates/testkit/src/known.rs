//! As-known training sets of drawn queries and scenarios: each row has what a request was answered at the
//! moment just before it arrived.
//!
//! The definition is driven: rows of all tables arrive one by one in a drawn order, late rows, ties and
//! all; before each row of the request table is appended, it is requested, and the answer is kept. Another
//! database gets the same rows in the same order, in appends of drawn sizes, and is queried at the end: by a
//! query AS KNOWN AT ARRIVAL, and for the training set of a deployment. A third one gets the rows in any
//! order, with the moment of each in a column, and is queried AS KNOWN AT that column. Every bit has to be
//! the same. Of a scenario, the oracle says what the answers are, too.

use std::{collections::BTreeMap, fmt};

use lockstep_engine::{Output, Session, TrainingSetOptions, set_chunk_rows};
use lockstep_row::{DataType, Value};

use crate::{
    disk_tables::SmallFiles,
    l3::{
        constructs,
        draw::{self, DrawnQuery, MAIN, OTHERS, VIEW},
        tables::{DrawnTables, RowPart, columns},
        texts_in_order,
    },
    oracle::{self, OracleRow, OracleTable},
    random::Random,
    replay,
    rows::{of_output, to_batch},
    scenario::Scenario,
};

/// Queries over the same tables.
const QUERIES_PER_TABLES: u64 = 6;

/// Failures that a report keeps.
const FAILURES_MAX: usize = 10;

/// The column with the moment at which a row arrived.
const MOMENT: &str = "seen";

/// How a training set was queried.
pub const FORMS: [&str; 3] =
    ["AS KNOWN AT ARRIVAL", "the training set of a deployment", "AS KNOWN AT a column"];

/// The counts of a run.
#[derive(Debug, Default)]
pub struct KnownReport {
    /// Queries whose training sets were compared.
    pub compared: u64,
    /// Queries that request mode refuses.
    pub refused: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Rows of their answers.
    pub answers: u64,
    /// Training sets by the form in which they were queried.
    pub forms: BTreeMap<&'static str, u64>,
    /// Compared queries by their constructs.
    pub features: BTreeMap<&'static str, u64>,
    /// The differences.
    pub failures: Vec<String>,
}

impl fmt::Display for KnownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, refused, requests, answers, forms, features, failures } = self;
        for (section, construct) in constructs::all() {
            let count = features.get(construct).copied().unwrap_or_default();
            writeln!(f, "{section:9} {construct:45} {count:9}")?;
        }
        for (form, count) in forms {
            writeln!(f, "{form}: {count} training sets")?;
        }
        write!(
            f,
            "{compared} queries compared, {refused} refused; {requests} requests, {answers} rows of \
             answers; {} failures",
            failures.len()
        )
    }
}

/// A fault, which the comparison must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownFault {
    /// Rows of the other tables arrive before all rows of the request table.
    OthersComeFirst,
    /// Rows of the request table arrive in the opposite order.
    MainIsReversed,
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    table: usize,
    row: usize,
}

/// Draws and compares `cases` queries; with a fault, of which one failure is enough.
pub fn run(seed: u64, cases: u64, fault: Option<KnownFault>) -> KnownReport {
    let _small_files = SmallFiles::begin();
    let mut report = KnownReport::default();
    let mut random = Random::new(seed);
    let failures_max = if fault.is_some() { 1 } else { FAILURES_MAX };
    let mut tried = 0;
    while tried < cases && report.failures.len() < failures_max {
        let names: Vec<&'static str> = std::iter::once(MAIN).chain(OTHERS).collect();
        let tables = DrawnTables::draw(&names, &mut random);
        set_chunk_rows(tables.chunk_rows);
        let sizes: Vec<usize> = tables.tables.iter().map(|table| table.rows.len()).collect();
        let arrivals = interleaved(&sizes, &mut random);
        for _ in 0..QUERIES_PER_TABLES.min(cases - tried) {
            let drawn = draw::query(&mut random, !tables.is_compatible);
            let case = KnownCase { tables: &tables, arrivals: &arrivals, drawn: &drawn, fault };
            case.check(&mut random, &mut report);
            tried += 1;
        }
    }
    report
}

/// Draws an order of arrival, in which the rows of each table keep theirs.
fn interleaved(sizes: &[usize], random: &mut Random) -> Vec<Arrival> {
    let mut next = vec![0; sizes.len()];
    let mut arrivals = Vec::new();
    loop {
        let open: Vec<usize> =
            (0..sizes.len()).filter(|table| next[*table] < sizes[*table]).collect();
        if open.is_empty() {
            return arrivals;
        }
        let table = *random.pick(&open);
        arrivals.push(Arrival { table, row: next[table] });
        next[table] += 1;
    }
}

/// A query over tables whose rows arrive in an order.
struct KnownCase<'c> {
    tables: &'c DrawnTables,
    arrivals: &'c [Arrival],
    drawn: &'c DrawnQuery,
    fault: Option<KnownFault>,
}

impl KnownCase<'_> {
    fn check(&self, random: &mut Random, report: &mut KnownReport) {
        let Ok(expected) = self.requests(random) else {
            report.refused += 1;
            return;
        };
        report.compared += 1;
        report.requests += u64::try_from(expected.len()).unwrap_or_default();
        for feature in self.drawn.features.iter().chain(&self.tables.features) {
            *report.features.entry(feature).or_default() += 1;
        }
        let is_in_order = expected.iter().all(|answer| answer.len() <= 1);
        let expected: Vec<OracleRow> = expected.into_iter().flatten().collect();
        report.answers += u64::try_from(expected.len()).unwrap_or_default();
        let found = [self.by_query(random), self.by_deployment(random), self.by_column(random)];
        for (at, (form, found)) in FORMS.iter().zip(found).enumerate() {
            let is_in_order = is_in_order && at < 2;
            let text = |rows: &[OracleRow]| {
                let mut texts = texts_in_order(rows);
                if !is_in_order {
                    texts.sort();
                }
                texts
            };
            let failure = match found {
                Ok(None) => continue,
                Ok(Some(rows)) if text(&rows) == text(&expected) => None,
                Ok(Some(rows)) => Some(format!("requests: {expected:?}\nas known: {rows:?}")),
                Err(error) => Some(error),
            };
            *report.forms.entry(form).or_default() += 1;
            if let Some(failure) = failure
                && report.failures.len() < FAILURES_MAX
            {
                let (features, sql) = (&self.tables.features, &self.drawn.sql);
                let view = &self.drawn.view;
                report.failures.push(format!("{form}\n{features:?}\n{view:?}\n{sql}\n{failure}"));
            }
        }
    }

    /// Requests each row of the request table, and then appends it.
    fn requests(&self, random: &mut Random) -> Result<Vec<Vec<OracleRow>>, String> {
        let session = self.tables.open();
        self.create_view(&session)?;
        let mut target = self.drawn.sql.clone();
        if random.chance(50) {
            execute(&session, &format!("DEPLOY d AS {target}"))?;
            target = "d".to_owned();
        }
        let mut answers = Vec::new();
        for arrival in self.arrivals {
            let row = self.row(*arrival);
            if arrival.table == 0 {
                let rows = [to_batch(&columns(), std::slice::from_ref(row))];
                let answer = session.request(&target, &rows).map_err(|error| error.render(None))?;
                answers.push(of_output(&answer));
            }
            let name = self.tables.tables[arrival.table].name;
            self.tables.append_to(&session, name, std::slice::from_ref(row));
            if random.chance(10) {
                self.tables.flush(&session, RowPart::Early);
            }
        }
        Ok(answers)
    }

    fn by_query(&self, random: &mut Random) -> Result<Option<Vec<OracleRow>>, String> {
        let session = self.whole(random)?;
        debug_assert!(!self.drawn.sql.contains("AS KNOWN"), "the clause is added here");
        let sql = format!("{} AS KNOWN AT ARRIVAL", self.drawn.sql);
        self.answered(&session, &sql)
    }

    /// Runs a query AS KNOWN; `None` where it is refused, or has not the rows of the requests.
    fn answered(&self, session: &Session, sql: &str) -> Result<Option<Vec<OracleRow>>, String> {
        // They are about the whole training set here, and about each answer there.
        let limits = ["LIMIT", "LIMIT 0", "OFFSET"];
        // With the moment, a table is wider than a union source that names its columns.
        let refused = ["ORDER BY", "DISTINCT", "UNION", "a UNION source must have"];
        match session.execute(sql) {
            Ok(_) if limits.iter().any(|clause| self.drawn.features.contains(clause)) => Ok(None),
            Ok(output) => self.rows_of(&output).map(Some),
            Err(error) if refused.iter().any(|clause| error.message.starts_with(clause)) => {
                Ok(None)
            }
            Err(error) => Err(error.render(Some(sql))),
        }
    }

    fn by_deployment(&self, random: &mut Random) -> Result<Option<Vec<OracleRow>>, String> {
        let session = self.whole(random)?;
        execute(&session, &format!("DEPLOY d AS {}", self.drawn.sql))?;
        let options = TrainingSetOptions { as_known: true, ..TrainingSetOptions::default() };
        let relation = session.training_set("d", &options);
        let output = relation.and_then(|relation| relation.collect(None));
        let output = output.map_err(|error| error.render(None))?;
        self.rows_of(&output).map(Some)
    }

    /// Returns the rows of an output. A change of the indexes of a table with a retention may have
    /// removed rows; otherwise a warning is an error.
    fn rows_of(&self, output: &Output) -> Result<Vec<OracleRow>, String> {
        match self.tables.features.contains(&"retention that keeps every row") {
            true => Ok(of_output(output)),
            false => without_warnings(output),
        }
    }

    /// Appends all rows in their order, as many at once as is drawn.
    fn whole(&self, random: &mut Random) -> Result<Session, String> {
        let session = self.tables.open();
        self.create_view(&session)?;
        let mut arrivals = self.arrivals.to_vec();
        match self.fault {
            Some(KnownFault::OthersComeFirst) => arrivals.sort_by_key(|one| one.table == 0),
            Some(KnownFault::MainIsReversed) => arrivals.reverse(),
            None => {}
        }
        let mut ahead = arrivals.as_slice();
        while let Some(first) = ahead.first() {
            let same = ahead.iter().take_while(|one| one.table == first.table).count();
            let taken = 1 + random.below(same);
            let rows: Vec<OracleRow> =
                ahead[..taken].iter().map(|one| self.row(*one).clone()).collect();
            self.tables.append_to(&session, self.tables.tables[first.table].name, &rows);
            ahead = &ahead[taken..];
            if random.chance(10) {
                self.tables.flush(&session, RowPart::Early);
            }
        }
        Ok(session)
    }

    /// Appends the rows in any order, with the moment of each.
    fn by_column(&self, random: &mut Random) -> Result<Option<Vec<OracleRow>>, String> {
        let has_star = |name: &&str| ["all columns", "view", "view used twice"].contains(name);
        if self.drawn.features.iter().any(has_star) || self.fault.is_some() {
            return Ok(None);
        }
        let session = lockstep_engine::Database::in_memory().session();
        for statement in self.tables.definitions() {
            execute(&session, &statement.replace(", s STRING", ", s STRING, seen BIGINT"))?;
        }
        let mut wide = columns();
        wide.push((MOMENT.to_owned(), DataType::BigInt));
        let mut moments: Vec<(i64, Arrival)> = (0..).zip(self.arrivals.iter().copied()).collect();
        for at in (1..moments.len()).rev() {
            moments.swap(at, random.below(at + 1));
        }
        for (moment, arrival) in moments {
            let mut row = self.row(arrival).clone();
            row.push(Value::BigInt(moment));
            let name = self.tables.tables[arrival.table].name;
            let appended = session.append(name, &[to_batch(&wide, &[row])]);
            appended.map_err(|error| error.render(None))?;
        }
        let sql = format!("{} AS KNOWN AT {MOMENT}", self.drawn.sql);
        self.answered(&session, &sql)
    }

    fn row(&self, arrival: Arrival) -> &OracleRow {
        &self.tables.tables[arrival.table].rows[arrival.row]
    }

    fn create_view(&self, session: &Session) -> Result<(), String> {
        let Some(view) = &self.drawn.view else { return Ok(()) };
        execute(session, &format!("CREATE OR REPLACE VIEW {VIEW} AS {view}"))
    }
}

/// Returns the rows of an output; a warning is an error, since nothing was removed.
fn without_warnings(output: &Output) -> Result<Vec<OracleRow>, String> {
    match output.warnings.first() {
        Some(warning) => Err(format!("warning: {}", warning.message)),
        None => Ok(of_output(output)),
    }
}

fn execute(session: &Session, sql: &str) -> Result<(), String> {
    session.execute(sql).map(drop).map_err(|error| error.render(Some(sql)))
}

/// Compares the as-known training set of a scenario, whose rows arrive in an order drawn from a seed, with
/// the oracle's answer to each row over the rows before it, and with what requests were answered. Returns
/// how many rows were compared; the error is a script and the difference.
pub fn check(scenario: &Scenario, seed: u64) -> Result<usize, String> {
    let explain = |error: String| {
        format!("{}\n-- arrival {seed}: {error}", crate::scenario::script::script(scenario))
    };
    let sizes: Vec<usize> = scenario.tables.iter().map(|table| table.rows.len()).collect();
    let arrivals = interleaved(&sizes, &mut Random::new(seed));
    let (live, whole) =
        (replay::open(scenario).map_err(explain)?, replay::open(scenario).map_err(explain)?);
    replay::deploy(&live, scenario).map_err(explain)?;
    let mut known: Vec<OracleTable> = scenario.tables.clone();
    known.iter_mut().for_each(|table| table.rows.clear());
    let (mut expected, mut answered) = (Vec::new(), Vec::new());
    for Arrival { table, row } in arrivals {
        let (of, row) = (&scenario.tables[table], &scenario.tables[table].rows[row]);
        known[table].rows.push(row.clone());
        if table == 0 {
            let evaluated = oracle::evaluate(&scenario.query, &known);
            expected.extend(evaluated.last().cloned());
            answered.extend(replay::request(&live, scenario, row).map_err(explain)?);
        }
        for session in [&live, &whole] {
            replay::append(session, of, std::slice::from_ref(row)).map_err(explain)?;
        }
    }
    let sql = format!("{} AS KNOWN AT ARRIVAL", crate::scenario::script::query(scenario));
    let found = whole.execute(&sql).map_err(|error| explain(error.render(Some(&sql))))?;
    let found = without_warnings(&found).map_err(explain)?;
    let mut differences = replay::compare(scenario, "oracle", &expected, "as known", &found);
    differences.extend(replay::compare(scenario, "requests", &answered, "as known", &found));
    match differences.as_slice() {
        [] => Ok(found.len()),
        _ => Err(explain(differences.join("\n--   "))),
    }
}
