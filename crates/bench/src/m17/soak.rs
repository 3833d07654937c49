//! The memory of a stream over a long time, measured from outside: one side of its join comes at full rate, and the
//! other one is idle.
//!
//! The stream runs in a process of its own, over tables that keep few rows. That process says every ten seconds what
//! the stream has read and what its state takes; here the size of the process is read at that moment.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use lockstep_engine::{Appender, Database, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::Datum;
use serde_json::{Value as Json, json};

use super::tables::{QUERY, numbers};
use crate::{
    draw::KeyedRandom,
    error::{Error, Result, Trying},
    measured_process::status_kib,
    result_table::ResultCell,
    suite::say,
};

/// The tables of the stream, the main one first.
const TABLES: [&str; 2] = ["actions", "orders"];
/// Both sides have rows for so long.
const BOTH_MS: u64 = 10_000;
/// A figure is told so often.
const FIGURE_MS: u64 = 10_000;
/// Rows of an append.
const BATCH: u64 = 1_000;
/// Rows are appended while the stream is not further behind.
const ROWS_BEHIND_MAX: u64 = 100_000;
/// How late rows are at most.
const LATE_MS: u64 = 1_000;
const KEYS: u64 = 100;

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 6] = [
    "idle side",
    "minutes",
    "rows/s",
    "process, MiB",
    "greatest process, MiB",
    "state of the stream, MiB",
];

/// One side is idle for so long.
#[derive(Debug, Clone, Copy)]
struct IdleStep {
    /// Its place among the tables.
    idle: usize,
    minutes: u64,
}

/// A process, which is ended with this.
struct StreamProcess(Child);

impl Drop for StreamProcess {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// Runs the stream with each side idle in turn, for so many minutes each. A line of the result is what was measured in a
/// tenth of this time.
pub(super) fn measure(minutes: u64) -> Result<Vec<Vec<ResultCell>>> {
    let mut lines = Vec::new();
    for idle in 0..TABLES.len() {
        let step = IdleStep { idle, minutes };
        let figures = step.perform()?;
        let part = figures.len().div_ceil(10).max(1);
        for (of_part, number) in figures.chunks(part).zip(1_u32..) {
            lines.push(line(step, of_part, number));
        }
    }
    Ok(lines)
}

/// What was seen of the process at a moment.
#[derive(Debug, Clone, Copy)]
struct SoakFigure {
    rows_per_second: f64,
    process_mib: f64,
    state_mib: f64,
}

/// Summarises what was seen in one of ten parts of the time.
fn line(step: IdleStep, figures: &[SoakFigure], number: u32) -> Vec<ResultCell> {
    debug_assert!(!figures.is_empty(), "a part has figures");
    let mean = |of: fn(&SoakFigure) -> f64| {
        figures.iter().map(of).sum::<f64>() / figures.len().max(1) as f64
    };
    let greatest = figures.iter().map(|figure| figure.process_mib).fold(0.0, f64::max);
    let minutes = step.minutes as f64 * f64::from(number) / 10.0;
    let mut cells = vec![ResultCell::Text(TABLES[step.idle].to_owned())];
    let cell = |number: f64| ResultCell::Numbers(vec![number]);
    cells.extend([minutes, mean(|figure| figure.rows_per_second)].map(cell));
    cells.extend([mean(|figure| figure.process_mib), greatest].map(cell));
    cells.push(cell(mean(|figure| figure.state_mib)));
    cells
}

impl IdleStep {
    fn to_json(self) -> Json {
        json!({ "idle": self.idle, "minutes": self.minutes })
    }

    /// Runs the stream in a process of its own, and returns what was seen of it.
    fn perform(self) -> Result<Vec<SoakFigure>> {
        let program = std::env::current_exe().trying(|| "find this program".to_owned())?;
        let mut command = Command::new(program);
        command.arg("--stream-step").arg(self.to_json().to_string());
        let started = command.stdout(Stdio::piped()).spawn();
        let mut process = StreamProcess(started.trying(|| "start a stream".to_owned())?);
        let output = process.0.stdout.take().ok_or(FAILED)?;
        let mut figures = Vec::new();
        for text in BufReader::new(output).lines() {
            let text = text.trying(|| "read from a process".to_owned())?;
            let figure: Json = serde_json::from_str(&text).ok().ok_or(FAILED)?;
            let number = |name: &str| figure[name].as_f64().ok_or(FAILED);
            let figure = SoakFigure {
                rows_per_second: number("rows_per_second")?,
                process_mib: status_kib(process.0.id(), "VmRSS:") / 1024.0,
                state_mib: number("state_bytes")? / f64::from(1 << 20),
            };
            say(&format!("{} idle: {figure:?}", TABLES[self.idle]));
            figures.push(figure);
        }
        let expected = self.minutes * 60_000 / FIGURE_MS;
        // A process that fails ends early.
        if (figures.len() as u64) < expected { Err(FAILED) } else { Ok(figures) }
    }
}

const FAILED: Error = Error::Idle { what: "the process of the stream failed" };

/// Runs the step of the command line in this process.
pub(crate) fn run_step(text: &str) -> Result<()> {
    let refused = || Error::Page { message: format!("unrecognized step of M17: {text}") };
    let step: Json = serde_json::from_str(text).map_err(|_error| refused())?;
    let idle = step["idle"].as_u64().and_then(|idle| usize::try_from(idle).ok());
    let idle = idle.filter(|idle| *idle < TABLES.len()).ok_or_else(refused)?;
    let minutes = step["minutes"].as_u64().ok_or_else(refused)?;
    let database = Database::in_memory();
    let session = database.session();
    create(&session)?;
    let clock = SystemClock::new();
    let mut feed = Feed::new(&session)?;
    let (mut told_ms, mut told_rows, mut rows_read) = (0, 0, 0);
    let end_ms = BOTH_MS + minutes * 60_000;
    loop {
        let now_ms = clock.monotonic_ns() / 1_000_000;
        if now_ms >= told_ms + FIGURE_MS {
            let (rows, state_bytes) = figures(&session)?;
            if now_ms > BOTH_MS {
                let seconds = (now_ms - told_ms) as f64 / 1e3;
                let rows_per_second = (rows - told_rows) as f64 / seconds;
                let figure =
                    json!({ "rows_per_second": rows_per_second, "state_bytes": state_bytes });
                say(&figure.to_string());
            }
            (told_ms, told_rows) = (now_ms, rows);
        }
        if now_ms > end_ms {
            return Ok(());
        }
        if feed.rows > rows_read + ROWS_BEHIND_MAX {
            // Now and then only: a SELECT costs as much as some hundred rows.
            lockstep_host::pause(1);
            rows_read = figures(&session)?.0;
            continue;
        }
        for table in 0..TABLES.len() {
            if table != idle || now_ms < BOTH_MS {
                feed.append(table, clock.now_ms())?;
            }
        }
    }
}

/// Makes the tables and the stream.
fn create(session: &Session) -> Result<()> {
    let kept = format!("INDEX(KEY=user, TS=ts, TTL={BATCH}, TTL_TYPE=latest)");
    let columns = "user STRING, item BIGINT, ts TIMESTAMP";
    for table in TABLES {
        session.execute(&format!("CREATE TABLE {table} ({columns}, price DOUBLE, {kept})"))?;
    }
    session.execute(&format!(
        "CREATE TABLE features ({columns}, s DOUBLE, n BIGINT, m DOUBLE, {kept})"
    ))?;
    session.execute(&format!(
        "CREATE STREAM s INTO TABLE features OPTIONS(lateness='1s', idle_after='1s') AS {QUERY}"
    ))?;
    Ok(())
}

/// Returns how many rows the stream has read, and the bytes that its state takes.
fn figures(session: &Session) -> Result<(u64, u64)> {
    let output = session.execute(
        "SELECT CAST(rows_read AS DOUBLE), CAST(memory_bytes AS DOUBLE), \
         CAST(error IS NULL AS DOUBLE) FROM lockstep.streams",
    )?;
    let row = numbers(&output);
    debug_assert_eq!(row.len(), 3, "a figure for each column");
    let [rows, state_bytes, runs] = row[..] else { return Err(FAILED) };
    if runs == 0.0 { Err(FAILED) } else { Ok((whole(rows), whole(state_bytes))) }
}

/// Returns a count of SQL as a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of rows or bytes"
)]
fn whole(count: f64) -> u64 {
    debug_assert!(count >= 0.0, "it is a count");
    count as u64
}

/// What appends the rows.
struct Feed {
    appenders: Vec<Appender>,
    rows: u64,
}

impl Feed {
    fn new(session: &Session) -> Result<Self> {
        let appenders = TABLES.iter().map(|table| Ok(session.appender(table)?));
        Ok(Self { appenders: appenders.collect::<Result<_>>()?, rows: 0 })
    }

    /// Appends some rows of about now to a table.
    fn append(&mut self, table: usize, now_ms: i64) -> Result<()> {
        debug_assert!(table < self.appenders.len(), "it is one of the tables");
        let draws: Vec<(KeyedRandom, String)> = (self.rows..self.rows + BATCH)
            .map(|number| {
                let draw = KeyedRandom::at(&[17, number]);
                (draw, format!("u{}", draw.below(2, KEYS)))
            })
            .collect();
        self.rows += BATCH;
        self.appenders[table].append(draws.iter().map(|(draw, user)| {
            [
                Datum::String(user),
                Datum::BigInt(draw.below(1, 1_000).cast_signed()),
                Datum::Timestamp(now_ms - draw.below(0, LATE_MS).cast_signed()),
                Datum::Double(draw.below(3, 1 << 20) as f64 / 128.0),
            ]
        }))?;
        Ok(())
    }
}
