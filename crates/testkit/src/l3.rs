//! Promise L3 on drawn queries: a query that runs in batch mode deploys, and its answer is the
//! same.
//!
//! A query ([`draw`]) runs in batch mode over tables to which the request row was appended as the
//! latest arrival, and as a request over the tables without it: as a query, or by a deployment made
//! before the rows, among them or after them. The answer must be the rows that batch mode returns
//! for the request row, bit for bit: its id is the greatest, and the first column of every drawn
//! query is `max(id)` or `id`, which identifies these rows (ADR 0006). Then VERIFY replays the
//! stored rows.
//!
//! A run ends with a table of the constructs of the dialect and how often each was compared. Faults
//! ([`Fault`]) show that the comparison can fail: they change a statement or rows on the side of
//! the request only, as a defect of request mode would.
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | queries |
//! | [`tables`] | tables, their rows, and their arrival |
//! | [`constructs`] | the constructs that a run must draw |

pub mod constructs;
pub mod draw;
pub mod tables;

use std::{collections::BTreeMap, fmt};

use arrow::array::{RecordBatch, new_null_array};
use lockstep_engine::{Session, SpillAlways, VerifyOptions, code, set_chunk_rows};
use lockstep_host::sync::Mutex;
use lockstep_row::Value;

use self::{
    constructs::{ConstructCount, FEWER_COLUMNS, PATHS, SEVERAL, VERIFIED},
    draw::{AnswerRows, DrawnQuery, MAIN, OTHERS, SECOND_MAIN, VIEW},
    tables::{DrawnTables, REQUEST_ID, RowPart, columns, insert, tuple},
};
use crate::{
    disk_tables::SmallFiles,
    oracle::OracleRow,
    random::Random,
    rows::{of_output, to_batch},
};

/// Queries over the same tables.
const QUERIES_PER_TABLES: u64 = 10;
/// The rows of a time slice on disk.
const SLICE_ROWS: usize = 5;

/// Failures that a report keeps.
const FAILURES_MAX: usize = 10;

/// Rows that VERIFY replays of tables with more.
const VERIFIED_MAX: u64 = 12;

/// The size of chunks is global in the process, so that only one run at a time is determined by its
/// seed.
static CHUNK_ROWS: Mutex<()> = Mutex::new(());

/// The counts of a run.
#[derive(Debug, Default)]
pub struct L3Report {
    /// Queries whose answers were compared.
    pub compared: u64,
    /// Queries that batch mode refuses too.
    pub refused: u64,
    /// Answers with at least one row.
    pub answered: u64,
    /// Stored rows that VERIFY replayed.
    pub replayed: u64,
    /// Compared queries by their constructs.
    pub features: BTreeMap<&'static str, ConstructCount>,
    /// Scripts that reproduce the differences.
    pub failures: Vec<String>,
}

impl L3Report {
    /// Returns how often a construct was compared.
    pub fn count(&self, construct: &str) -> ConstructCount {
        self.features.get(construct).copied().unwrap_or_default()
    }
}

impl fmt::Display for L3Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compared, refused, answered, replayed, failures, .. } = self;
        let (all, long, compatible) = ("compared", "deployed, long keys", "compatible");
        writeln!(f, "{:9} {:45} {all:>9} {long:>20} {compatible:>11}", "", "construct")?;
        for (section, construct) in constructs::all() {
            let ConstructCount { compared, deployed_over_long_keys, compatible } =
                self.count(construct);
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

/// A fault on the side of the request, which the comparison must find.
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
    /// A column that the query reads counts as one that it does not read.
    ReadColumnIsForgotten,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 7] = [
        Self::RequestRowIsUnseen,
        Self::FrameIsLonger,
        Self::TiesAreReversed,
        Self::UnionIsLeftOut,
        Self::InnerAggregateIsOldest,
        Self::FrameEndsWithChunk,
        Self::ReadColumnIsForgotten,
    ];

    /// Returns the query with the fault.
    fn of(self, sql: &str, chunk_rows: usize) -> String {
        match self {
            Self::RequestRowIsUnseen => sql.replace(SECOND_MAIN, STORED_MAIN),
            Self::FrameIsLonger => {
                sql.replace("2 PRECEDING", "3 PRECEDING").replace("2s PRECEDING", "3s PRECEDING")
            }
            Self::TiesAreReversed | Self::ReadColumnIsForgotten => sql.to_owned(),
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

/// A copy of the main table without the request row, for a fault.
const STORED_MAIN: &str = "m0";

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestForm {
    /// As a query.
    Directly,
    /// By a deployment that was made before the rows arrived, or some of them.
    DeployedBefore,
    DeployedAmong,
    DeployedAfter,
}

impl RequestForm {
    /// Returns the name of the construct.
    fn construct(self) -> &'static str {
        match self {
            Self::Directly => "a query without DEPLOY",
            Self::DeployedBefore => "DEPLOY before the rows",
            Self::DeployedAmong => "DEPLOY among the rows",
            Self::DeployedAfter => "DEPLOY after the rows",
        }
    }
}

/// Draws and compares `cases` queries.
pub fn run(seed: u64, cases: u64) -> L3Report {
    run_with(seed, cases, None)
}

/// Draws and compares `cases` queries with a fault.
pub fn run_with(seed: u64, cases: u64, fault: Option<Fault>) -> L3Report {
    let _one_run = CHUNK_ROWS.lock();
    let _small_files = SmallFiles::begin();
    let mut report = L3Report::default();
    let mut random = Random::new(seed);
    let mut tried = 0;
    // One failure shows that a fault is found.
    let failures_max = if fault.is_some() { 1 } else { FAILURES_MAX };
    while tried < cases && report.failures.len() < failures_max {
        // In batch mode a quarter of the queries run with every row on disk; in two others the rows of
        // each key are cut into time slices, in memory, where threads also share scans and groups, and on disk.
        let quarter = tried / QUERIES_PER_TABLES % 4;
        lockstep_engine::set_spill_always(match quarter {
            1 => SpillAlways::Parts,
            3 => SpillAlways::Slices(SLICE_ROWS),
            _ => SpillAlways::No,
        });
        let database = DrawnDatabase::draw(&mut random, fault);
        if quarter == 2 {
            let set = database.whole.execute("SET window_skew = 'always'");
            set.expect("the variable takes this value");
        }
        lockstep_engine::set_parallel_rows_min(usize::from(quarter == 2));
        for _ in 0..QUERIES_PER_TABLES.min(cases - tried) {
            let mut drawn = draw::query(&mut random, !database.tables.is_compatible);
            let form = *random.pick(&[
                RequestForm::Directly,
                RequestForm::DeployedBefore,
                RequestForm::DeployedAmong,
                RequestForm::DeployedAfter,
                RequestForm::DeployedAfter,
            ]);
            drawn.features.push(form.construct());
            if random.chance(25) {
                drawn.features.push(SEVERAL);
            }
            database.check(&drawn, form, &mut report);
            tried += 1;
        }
    }
    lockstep_engine::set_spill_always(SpillAlways::No);
    lockstep_engine::set_parallel_rows_min(0);
    report
}

/// The tables, and the row of the request.
struct DrawnDatabase {
    tables: DrawnTables,
    fault: Option<Fault>,
    request: OracleRow,
    /// Another request row of the same batch.
    neighbour: OracleRow,
    /// The session whose main table has the request row.
    whole: Session,
    /// The session without it.
    stored: Session,
}

/// Observations of a deployment that has answered.
#[derive(Debug, Default)]
struct Seen {
    /// Rows that VERIFY replayed; `None` where VERIFY is not supported.
    replayed: Option<u64>,
    /// The execution paths of the program, by the names of constructs.
    paths: Vec<&'static str>,
    /// Whether there were columns that the query does not read.
    is_narrower: bool,
}

/// A target of requests.
struct Deployed<'s> {
    session: &'s Session,
    /// A query, or the name of a deployment.
    target: &'s str,
}

impl DrawnDatabase {
    fn draw(random: &mut Random, fault: Option<Fault>) -> Self {
        let names: Vec<&'static str> = std::iter::once(MAIN).chain(OTHERS).collect();
        let tables = DrawnTables::draw(&names, random);
        let request = tables.request(REQUEST_ID, random);
        let neighbour = tables.request(REQUEST_ID - 1, random);
        set_chunk_rows(tables.chunk_rows);
        let (whole, stored) = (tables.open(), tables.open());
        let database = Self { tables, fault, request, neighbour, whole, stored };
        for part in [RowPart::Early, RowPart::Late] {
            database.tables.append(&database.whole, part);
        }
        database.tables.append_to(&database.whole, MAIN, std::slice::from_ref(&database.request));
        database.prepare(&database.stored);
        for part in [RowPart::Early, RowPart::Late] {
            database.append(&database.stored, part);
        }
        database
    }

    /// Creates the tables that a fault needs.
    fn prepare(&self, session: &Session) {
        if self.fault.is_some() {
            let main = &self.tables.tables[0];
            session.execute(&main.copy(STORED_MAIN)).expect("the copy is made");
            self.tables.append_to(session, STORED_MAIN, &main.rows);
        }
    }

    /// Appends rows on the side of the request; with a fault, all of them early and in another
    /// order.
    fn append(&self, session: &Session, part: RowPart) {
        match (self.fault, part) {
            (Some(Fault::TiesAreReversed), RowPart::Early) => {
                for table in &self.tables.tables {
                    let rows: Vec<OracleRow> = table.rows.iter().rev().cloned().collect();
                    self.tables.append_to(session, table.name, &rows);
                }
            }
            (Some(Fault::TiesAreReversed), RowPart::Late) => {}
            _ => self.tables.append(session, part),
        }
    }

    fn check(&self, drawn: &DrawnQuery, form: RequestForm, report: &mut L3Report) {
        if let Some(view) = &drawn.view
            && self.whole.execute(&create_view(view)).is_err()
        {
            report.refused += 1;
            return;
        }
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
        let outcome = self.answer(drawn, form, &mut seen);
        report.replayed += seen.replayed.unwrap_or_default();
        features.extend(seen.replayed.map(|_| VERIFIED));
        features.extend(seen.is_narrower.then_some(FEWER_COLUMNS));
        features.extend(seen.paths);
        for feature in &features {
            report.features.entry(feature).or_default().add(&features);
        }
        let what = match outcome {
            Ok(answer) if texts(&answer) == texts(&expected) => return,
            Ok(answer) => format!("batch mode: {expected:?}\nrequest: {answer:?}"),
            Err(error) => format!("batch mode accepts it: {expected:?}\nrequest: {error}"),
        };
        if report.failures.len() < FAILURES_MAX {
            report.failures.push(format!("{}{}", self.script(drawn, form), commented(&what)));
        }
    }

    fn answer(
        &self,
        drawn: &DrawnQuery,
        form: RequestForm,
        seen: &mut Seen,
    ) -> Result<Vec<OracleRow>, String> {
        let with_fault = |sql: &String| match self.fault {
            Some(fault) => fault.of(sql, self.tables.chunk_rows),
            None => sql.clone(),
        };
        let sql = with_fault(&drawn.sql);
        let view = drawn.view.as_ref().map(|view| create_view(&with_fault(view)));
        if form == RequestForm::Directly {
            view.map(|view| execute(&self.stored, &view)).transpose()?;
            return self.ask_all(drawn, &Deployed { session: &self.stored, target: &sql }, seen);
        }
        let own;
        let session = match form {
            RequestForm::DeployedBefore | RequestForm::DeployedAmong => {
                own = self.tables.open();
                self.prepare(&own);
                &own
            }
            RequestForm::Directly | RequestForm::DeployedAfter => &self.stored,
        };
        let is_among = form == RequestForm::DeployedAmong;
        if is_among {
            self.append(session, RowPart::Early);
        }
        view.map(|view| execute(session, &view)).transpose()?;
        execute(session, &format!("DEPLOY d AS {sql}"))?;
        if form == RequestForm::DeployedBefore {
            self.append(session, RowPart::Early);
        }
        if form != RequestForm::DeployedAfter {
            self.append(session, RowPart::Late);
        }
        let answer = self.ask_all(drawn, &Deployed { session, target: "d" }, seen);
        let answer = answer.and_then(|answer| {
            seen.paths = paths(session)?;
            // There each row costs two runs of the query.
            let is_batch = seen.paths.contains(&"the whole runs in batch mode");
            seen.replayed = verify(session, if is_batch { 3 } else { VERIFIED_MAX })?;
            Ok(answer)
        });
        execute(session, "DROP DEPLOYMENT d")?;
        answer
    }

    /// Returns the answer to the request, and checks that it is the same for a row without the columns
    /// that the query does not read, and in a batch with other requests.
    fn ask_all(
        &self,
        drawn: &DrawnQuery,
        deployed: &Deployed<'_>,
        seen: &mut Seen,
    ) -> Result<Vec<OracleRow>, String> {
        let (one, other) = (&self.request, &self.neighbour);
        let alone = deployed.ask(&[one])?;
        if let Some(narrow) = deployed.without_unread(one, self.fault)? {
            seen.is_narrower = true;
            let answer = deployed.answers(&narrow)?;
            if texts(&answer) != texts(&alone) {
                let names = names_of(&narrow);
                return Err(format!("all columns: {alone:?}\nonly {names:?}: {answer:?}"));
            }
        }
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

    /// Returns the case as statements for the shell.
    fn script(&self, drawn: &DrawnQuery, form: RequestForm) -> String {
        let tables = &self.tables;
        let mut script = format!("-- chunks of {} rows\n", tables.chunk_rows);
        for definition in tables.definitions() {
            script.push_str(&format!("{definition};\n"));
        }
        if let Some(view) = &drawn.view {
            script.push_str(&format!("{};\n", create_view(view)));
        }
        let request = tuple(&self.request);
        let deploy = format!("DEPLOY d AS {};\n", drawn.sql);
        let (early, late) = (tables.inserts(RowPart::Early), tables.inserts(RowPart::Late));
        let call = format!("CALL d({request});\n");
        script.push_str(&match form {
            RequestForm::Directly => {
                let config = format!(" CONFIG(execute_mode='request', values=({request}));\n");
                format!("{early}{late}{}{config}", drawn.sql)
            }
            RequestForm::DeployedBefore => format!("{deploy}{early}{late}{call}"),
            RequestForm::DeployedAmong => format!("{early}{deploy}{late}{call}"),
            RequestForm::DeployedAfter => format!("{early}{late}{deploy}{call}"),
        });
        format!("{script}{}{};\n", insert(MAIN, &self.request), drawn.reference)
    }
}

impl Deployed<'_> {
    /// Returns the answers to several requests of one batch.
    fn ask(&self, requests: &[&OracleRow]) -> Result<Vec<OracleRow>, String> {
        let rows: Vec<OracleRow> = requests.iter().copied().cloned().collect();
        self.answers(&to_batch(&columns(), &rows))
    }

    fn answers(&self, requests: &RecordBatch) -> Result<Vec<OracleRow>, String> {
        let answers = self.session.request(self.target, std::slice::from_ref(requests));
        answers.map(|output| of_output(&output)).map_err(|error| error.render(None))
    }

    /// Returns a request row without the columns that the query does not read; `None` where it reads
    /// all.
    fn without_unread(
        &self,
        request: &OracleRow,
        fault: Option<Fault>,
    ) -> Result<Option<RecordBatch>, String> {
        let prepared = self.session.prepare_request(self.target);
        let prepared = prepared.map_err(|error| error.render(None))?;
        let reads = prepared.reads();
        let row = to_batch(&columns(), std::slice::from_ref(request));
        let positions: Vec<usize> = (0..reads.len()).filter(|at| reads[*at]).collect();
        if reads.is_empty() || positions.len() == reads.len() {
            return Ok(None);
        }
        let mut narrow = row.project(&positions).map_err(|error| error.to_string())?;
        if fault == Some(Fault::ReadColumnIsForgotten)
            && let Some(last) = narrow.num_columns().checked_sub(1)
        {
            let mut arrays = narrow.columns().to_vec();
            arrays[last] = new_null_array(arrays[last].data_type(), 1);
            narrow = RecordBatch::try_new(narrow.schema(), arrays).map_err(|e| e.to_string())?;
        }
        Ok(Some(narrow))
    }
}

fn names_of(rows: &RecordBatch) -> Vec<String> {
    rows.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// Runs VERIFY, which replays the stored rows as requests. Returns the number of replayed rows;
/// `None` where VERIFY is not supported.
fn verify(session: &Session, rows: u64) -> Result<Option<u64>, String> {
    let options = VerifyOptions { sample: Some(rows), ..VerifyOptions::default() };
    match session.verify_with("d", &options) {
        Ok(found) if found.differing == 0 => Ok(Some(found.requests)),
        Ok(found) => Err(format!("VERIFY: {found:?}")),
        Err(error) if error.code == code::FEATURE_NOT_SUPPORTED => Ok(None),
        Err(error) => Err(format!("VERIFY: {}", error.render(None))),
    }
}

/// Returns the execution paths of the deployed program.
fn paths(session: &Session) -> Result<Vec<&'static str>, String> {
    let program = session.prepare_request("d").map_err(|error| error.render(None))?.explain();
    let shown = PATHS.iter().filter(|(text, _)| program.contains(text));
    Ok(shown.map(|(_, construct)| *construct).collect())
}

/// Writes the statement that makes the view of a query, instead of another one's.
fn create_view(query: &str) -> String {
    format!("CREATE OR REPLACE VIEW {VIEW} AS {query}")
}

fn execute(session: &Session, sql: &str) -> Result<(), String> {
    session.execute(sql).map(drop).map_err(|error| error.render(None))
}

/// Selects the rows of batch mode that belong to the request row.
fn expected_of(drawn: &DrawnQuery, rows: Vec<OracleRow>) -> Vec<OracleRow> {
    let is_of_request = |row: &OracleRow| match &row[0] {
        Value::Int(id) => *id == REQUEST_ID,
        Value::BigInt(id) => *id == i64::from(REQUEST_ID),
        _ => false,
    };
    match drawn.which {
        AnswerRows::All => rows,
        AnswerRows::OfRequest => rows.into_iter().filter(is_of_request).collect(),
        AnswerRows::DistinctOfRequest => {
            let of_request = rows.into_iter().filter(is_of_request);
            of_request.map(|row| row[1..].to_vec()).take(1).collect()
        }
        AnswerRows::None => Vec::new(),
    }
}

/// Formats rows as sorted texts that differ when a bit differs.
fn texts(rows: &[OracleRow]) -> Vec<String> {
    let mut texts = texts_in_order(rows);
    texts.sort();
    texts
}

/// Formats rows as texts that differ when a bit differs.
pub(crate) fn texts_in_order(rows: &[OracleRow]) -> Vec<String> {
    // The Debug form of a NaN does not say which one it is.
    let bits = |value: &Value| match value {
        Value::Double(nan) if nan.is_nan() => format!("{:x}", nan.to_bits()),
        Value::Float(nan) if nan.is_nan() => format!("{:x}", nan.to_bits()),
        other => format!("{other:?}"),
    };
    rows.iter().map(|row| row.iter().map(bits).collect::<Vec<_>>().join(", ")).collect()
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("-- {line}\n")).collect()
}
