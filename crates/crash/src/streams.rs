//! Streams under SIGKILL: each main row has one result, and each late row is stored once.
//!
//! # Life of a cycle
//!
//! 1. A child opens the directory, inserts rows whose event times are out of order, some of them late, and stops,
//!    starts and changes the streams, until it is killed at a random moment or at a failpoint.
//! 2. The driver opens the directory, lets the streams read what is left, and compares their tables with batch mode
//!    over the rows that were not late. What is late it finds from the rows alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use lockstep_engine::{Database, Session};
use lockstep_row::Value;
use lockstep_testkit::{random::Random, rows::of_batch};

use crate::work::{self, WorkKillOptions, open, remove};

/// A row may be so much older than the newest one of its table.
const LATENESS_MS: i64 = 500;
/// How far the windows over event time go on.
const FOLLOWING_MS: i64 = 700;
/// The most milliseconds until a child is killed.
const KILL_MS_MAX: usize = 400;
/// The failpoints that appends, commands and checkpoints reach, and those of opening.
pub const STREAM_FAILPOINTS: &[&str] = &[
    "stream.stored",
    "wal.before_copy",
    "wal.after_copy",
    "wal.after_sync",
    "wal.segment_created",
    "wal.truncate",
    "table.rows_logged",
    "table.rows_stored",
    "catalog.logged",
    "checkpoint.written",
    "checkpoint.committed",
    "recovery.record",
    "recovery.compile",
];

/// The bugs of streams, each of which is found.
pub const STREAM_BUGS: &[&str] = &["stream_progress_first", "stream_progress_forgotten"];

/// The most cycles of a directory.
const CYCLES_MAX: usize = 10;

const TABLES: &str =
    "CREATE TABLE orders (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts));
     CREATE TABLE events (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))";

/// The streams: their names, and the frames of their windows.
const STREAMS: [(&str, &str); 4] = [
    ("timed", "ROWS_RANGE BETWEEN 1s PRECEDING AND 700 FOLLOWING"),
    ("counted", "ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING"),
    (JOINED, "ROWS_RANGE BETWEEN 1s PRECEDING AND 700 FOLLOWING"),
    (AT_ARRIVAL, "ROWS_RANGE BETWEEN 1s PRECEDING AND CURRENT ROW"),
];

/// The stream with a LAST JOIN.
const JOINED: &str = "joined";

/// The stream that gives its rows when they arrive.
const AT_ARRIVAL: &str = "known";

/// What was done and found.
#[derive(Debug, Clone, Default)]
pub struct StreamReport {
    /// Children that were killed, or have ended at a failpoint.
    pub kills: u64,
    /// Directories.
    pub directories: u64,
    /// Results that were compared with batch mode.
    pub results: u64,
    /// Late rows that were found in their table.
    pub late: u64,
    /// What was wrong.
    pub violations: Vec<String>,
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, directories, results, late, violations } = self;
        writeln!(
            f,
            "{kills} kills over {directories} directories: {results} results and {late} late rows compared, \
             {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))
    }
}

/// Kills children until it was done as often as said, or something is wrong.
pub fn run(options: &WorkKillOptions) -> StreamReport {
    assert!(options.program.is_file(), "it is this program");
    let mut report = StreamReport::default();
    let mut random = Random::new(options.seed);
    while report.kills < options.cycles && report.violations.is_empty() {
        let directory = options.new_directory("streams", &mut random);
        report.directories += 1;
        for _ in 0..=random.below(CYCLES_MAX) {
            cycle(options, &directory, &mut random);
            report.kills += 1;
            if let Err(what) = compare(&directory, &mut report) {
                report.violations.push(format!("{}: {what}", directory.display()));
                break;
            }
        }
        if report.violations.is_empty() {
            remove(&directory);
        }
    }
    report
}

/// Lets a child work on a directory, and kills it.
fn cycle(options: &WorkKillOptions, directory: &Path, random: &mut Random) {
    let arguments = ["stream-child".as_ref(), directory.as_os_str()];
    let child = options.start(&arguments, 40, random);
    lockstep_host::pause(u32::try_from(random.below(KILL_MS_MAX)).unwrap_or(0));
    work::kill(child);
}

/// Runs a child, which works until it is killed.
pub fn child(directory: &Path, seed: u64, failpoint: Option<(&str, u64)>, bug: Option<&str>) {
    work::arm(failpoint, bug);
    let Ok(session) = open(directory) else { return };
    let mut random = Random::new(seed);
    // Another child may have been killed between these.
    for (name, sql) in definitions() {
        if !exists(&session, name) && session.execute(&sql).is_err() {
            return;
        }
    }
    while act(&session, &mut random).is_ok() {}
}

/// Returns the statements that make the objects, with the names of the last ones that they make.
fn definitions() -> Vec<(&'static str, String)> {
    let stream = |((name, _), joiners): (&(&'static str, &str), u32)| {
        let query = query_of(name);
        let options = match *name {
            AT_ARRIVAL => "emit='arrival'".to_owned(),
            name => format!("lateness={LATENESS_MS}, late_rows='{name}_late', joiners={joiners}"),
        };
        let sql =
            format!("CREATE STREAM {name} INTO TABLE {name}_results OPTIONS({options}) AS {query}");
        (*name, sql)
    };
    let tables = TABLES.split(';').zip(["orders", "events"]);
    let tables = tables.map(|(sql, name)| (name, sql.to_owned()));
    tables.chain(STREAMS.iter().zip(1..).map(stream)).collect()
}

fn query_of(stream: &str) -> String {
    let frame = STREAMS.iter().find(|(name, _)| *name == stream).map_or("", |(_, frame)| frame);
    if stream == JOINED {
        return format!(
            "SELECT orders.id, sum(e.x) OVER w AS s, e.x AS joined FROM orders LAST JOIN events AS e \
             ORDER BY e.ts ON orders.k = e.k AND e.ts <= orders.ts \
             WINDOW w AS (PARTITION BY orders.k ORDER BY orders.ts {frame})"
        );
    }
    format!(
        "SELECT id, sum(x) OVER w AS s, count(x) OVER w AS n FROM orders WINDOW w AS (UNION events \
         PARTITION BY k ORDER BY ts {frame})"
    )
}

fn exists(session: &Session, name: &str) -> bool {
    let shown = format!(
        "SELECT name FROM lockstep.streams WHERE name = '{name}' \
         UNION ALL SELECT name FROM lockstep.tables WHERE name = '{name}'"
    );
    session.execute(&shown).is_ok_and(|output| output.row_count() > 0)
}

/// Inserts some rows, or does something else.
fn act(session: &Session, random: &mut Random) -> Result<(), String> {
    let (stream, _) = STREAMS[random.below(STREAMS.len())];
    let sql = match random.below(40) {
        0 => "CHECKPOINT".to_owned(),
        1 => format!("STOP STREAM {stream}"),
        2..=4 => format!("START STREAM {stream}"),
        5 if stream != AT_ARRIVAL => {
            format!("ALTER STREAM {stream} SET OPTIONS(idle_after='1h')")
        }
        _ => {
            let table = *random.pick(&["orders", "events"]);
            let first = 1 + newest_id(session, table)?;
            let row = |id: i64| {
                // Within the lateness, but for some.
                let late = if random.below(60) == 0 { 2 * LATENESS_MS } else { 0 };
                let jitter = i64::try_from(random.below(400)).unwrap_or(0);
                let ts = 1_000_000 + 30 * id - jitter - late;
                format!("({id}, {}, {ts}, {})", random.below(3), random.below(1_000))
            };
            let rows: Vec<String> = (first..=first + 5).map(row).collect();
            format!("INSERT INTO {table} VALUES {}", rows.join(", "))
        }
    };
    session.execute(&sql).map(|_| ()).map_err(|error| error.to_string())
}

fn newest_id(session: &Session, table: &str) -> Result<i64, String> {
    let rows = query(session, &format!("SELECT max(id) FROM {table}"))?;
    Ok(rows.first().and_then(|row| integer(&row[0])).unwrap_or(0))
}

fn query(session: &Session, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    let output = session.execute(sql).map_err(|error| format!("{sql}: {error}"))?;
    Ok(output.batches.iter().flat_map(of_batch).collect())
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => Some(i64::from(*value)),
        Value::BigInt(value) | Value::Timestamp(value) => Some(*value),
        _ => None,
    }
}

/// The rows of a table in order of arrival.
struct JudgedRows {
    in_time: Vec<Vec<Value>>,
    late: BTreeSet<i64>,
    newest: Option<i64>,
}

/// Reads a table, and finds which of its rows are late.
fn arrived(session: &Session, table: &str) -> Result<JudgedRows, String> {
    let mut rows = JudgedRows { in_time: Vec::new(), late: BTreeSet::new(), newest: None };
    // Ids are given in order of arrival.
    for row in query(session, &format!("SELECT id, k, ts, x FROM {table} ORDER BY id"))? {
        let time = integer(&row[2]).ok_or("a row without a time")?;
        if rows.newest.is_some_and(|newest| time < newest - LATENESS_MS) {
            rows.late.extend(integer(&row[0]));
            continue;
        }
        rows.newest = rows.newest.max(Some(time));
        rows.in_time.push(row);
    }
    Ok(rows)
}

/// Compares what streams have written with batch mode.
fn compare(directory: &Path, report: &mut StreamReport) -> Result<(), String> {
    let session = open(directory)?;
    for (name, _) in STREAMS {
        if !exists(&session, name) {
            return Ok(());
        }
        session.execute(&format!("START STREAM {name}")).map_err(|error| error.to_string())?;
    }
    session.database().settle_streams();
    let sources = [arrived(&session, "orders")?, arrived(&session, "events")?];
    let batch = without_late(&sources)?;
    let watermark = sources.iter().map(|source| source.newest).min().flatten();
    let watermark = watermark.map_or(i64::MIN, |newest| newest - LATENESS_MS);
    for (name, _) in STREAMS {
        let of_stream = |what: String| format!("stream {name}: {what}");
        let state = format!("SELECT error FROM lockstep.streams WHERE name = '{name}'");
        if let Some([Value::String(error)]) = query(&session, &state)?.first().map(Vec::as_slice) {
            return Err(of_stream(error.to_string()));
        }
        let expected = match name {
            AT_ARRIVAL => query(&session, &format!("{} AS KNOWN AT ARRIVAL", query_of(name)))?,
            name => query(&batch, &query_of(name))?,
        };
        let expected = by_id(expected)?;
        let found = query(&session, &format!("SELECT * FROM {name}_results"))?;
        let found = by_id(found).map_err(of_stream)?;
        if let Some((id, row)) = found.iter().find(|(id, row)| expected.get(*id) != Some(*row)) {
            let expected = expected.get(id);
            return Err(of_stream(format!("row {id} is {row:?}, not {expected:?}")));
        }
        check_complete(name, &found, (&sources, watermark)).map_err(of_stream)?;
        report.results += u64::try_from(found.len()).unwrap_or(0);
        if name == AT_ARRIVAL {
            if found.len() != expected.len() {
                return Err(of_stream(format!("{} rows, not {}", found.len(), expected.len())));
            }
            continue;
        }
        report.late += compare_late(&session, name, &sources).map_err(of_stream)?;
    }
    Ok(())
}

/// Makes a database of the rows that were not late.
fn without_late(sources: &[JudgedRows; 2]) -> Result<Session, String> {
    let batch = Database::in_memory().session();
    batch.execute(TABLES).map_err(|error| error.to_string())?;
    for (table, source) in ["orders", "events"].iter().zip(sources) {
        for row in &source.in_time {
            let Value::Double(x) = row[3] else { return Err("a row without a value".to_owned()) };
            let numbers: Vec<String> =
                row[..3].iter().filter_map(integer).map(|number| number.to_string()).collect();
            let sql = format!("INSERT INTO {table} VALUES ({}, {x})", numbers.join(", "));
            batch.execute(&sql).map_err(|error| error.to_string())?;
        }
    }
    Ok(batch)
}

/// Checks that the results are there that have to be: those that no row can change which is still to come.
fn check_complete(
    name: &str,
    found: &BTreeMap<i64, Vec<Value>>,
    (sources, watermark): (&[JudgedRows; 2], i64),
) -> Result<(), String> {
    let rows = || sources.iter().flat_map(|source| &source.in_time);
    for row in &sources[0].in_time {
        let (Some(id), Some(time)) = (integer(&row[0]), integer(&row[2])) else { continue };
        let later = rows().filter(|other| {
            let settled = time + 1..watermark;
            other[1] == row[1] && integer(&other[2]).is_some_and(|time| settled.contains(&time))
        });
        let (has, is_final) = match name {
            "timed" | JOINED => (found.contains_key(&id), Some(time + FOLLOWING_MS < watermark)),
            // Others of its time may be later ones, too.
            "counted" => (found.contains_key(&id), (later.count() >= 2).then_some(true)),
            _ => continue,
        };
        if is_final.is_some_and(|is_final| is_final != has) {
            let is = if has { "is not final" } else { "is missing" };
            return Err(format!("row {id} of {time} {is}; watermark {watermark}"));
        }
    }
    Ok(())
}

/// Compares the table of late rows with those that were late. Returns how many there are.
fn compare_late(session: &Session, name: &str, sources: &[JudgedRows; 2]) -> Result<u64, String> {
    let late = query(session, &format!("SELECT source, source_row FROM {name}_late"))?;
    let count = sources.iter().map(|source| source.late.len()).sum::<usize>();
    let distinct: BTreeSet<String> = late.iter().map(|row| format!("{row:?}")).collect();
    if late.len() != count || distinct.len() != count {
        let (rows, distinct) = (late.len(), distinct.len());
        return Err(format!("{count} rows are late; {rows} are stored, {distinct} different"));
    }
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Returns rows by their first column; an error where two have one.
fn by_id(rows: Vec<Vec<Value>>) -> Result<BTreeMap<i64, Vec<Value>>, String> {
    let mut found = BTreeMap::new();
    for row in rows {
        let id = integer(&row[0]).ok_or("a result without an id")?;
        if found.insert(id, row).is_some() {
            return Err(format!("row {id} has two results"));
        }
    }
    Ok(found)
}
