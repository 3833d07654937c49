//! Streams from tables to a table: what a user sees of the join, with all that is around it.
//!
//! Two tables are filled before, in the order in which their rows come, each late by up to a second; then a stream joins
//! all of them, and the time is taken until it has written its results.

use std::collections::BTreeMap;

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::Float64Type,
};
use lockstep_engine::{Database, Output, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::Datum;

use super::Measurement;
use crate::{
    curves::Curves, draw::KeyedRandom, error::Result, measured_process::thread_seconds,
    result_table::ResultCell, suite::say,
};

/// Rows of each table, with `--quick` and without it.
const ROWS_QUICK: u64 = 200_000;
const ROWS: u64 = 2_000_000;
/// Rows of an append.
const BATCH: u64 = 1_000;
/// How late rows are, and how long the window is.
const WINDOW_MS: u64 = 1_000;

/// The streams that are measured: the keys, and how many joiners.
const STREAMS: [(&str, Keys); 3] =
    [("100 keys", Keys::Even(100)), ("1 key", Keys::Even(1)), ("skewed keys", Keys::Skewed(1_000))];
const JOINERS: [u32; 3] = [1, 2, 4];
/// How often threads are looked at: their processor time has steps of 10 ms.
const LOOK_NS: u64 = 200_000_000;

/// The query of the streams.
pub(super) const QUERY: &str = "SELECT user, item, ts, sum(price) OVER w AS s, \
    count(*) OVER w AS n, max(price) OVER w AS m \
    FROM actions WINDOW w AS (UNION orders PARTITION BY user ORDER BY ts \
    ROWS_RANGE BETWEEN 1s PRECEDING AND CURRENT ROW INSTANCE_NOT_IN_WINDOW)";

/// How the keys of rows are drawn.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// All are as frequent.
    Even(u64),
    /// Each is half as frequent as the one before; the frequent ones change ten times.
    Skewed(u64),
}

impl Keys {
    fn draw(self, draw: KeyedRandom, part: u64) -> u64 {
        match self {
            Self::Even(keys) => draw.below(2, keys),
            Self::Skewed(keys) => {
                let place = u64::from(draw.below(2, u64::MAX).leading_zeros());
                (place + part * 7) % keys
            }
        }
    }
}

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 6] =
    ["keys", "joiners", "rows/s read", "results/s", "shared partitions", "imbalance"];

/// Measures all streams; returns the lines of a table, and pictures of how busy joiners are.
pub(super) fn measure(is_quick: bool) -> Result<Measurement> {
    let rows = if is_quick { ROWS_QUICK } else { ROWS };
    let (mut lines, mut panels) = (Vec::new(), Vec::new());
    for (name, keys) in STREAMS {
        let database = Database::in_memory();
        let session = database.session();
        for table in ["actions", "orders"] {
            fill(&session, table, rows, keys)?;
        }
        for joiners in JOINERS {
            let mut busy = BusyJoiners::default();
            let cells = run(&session, (rows, joiners), &mut busy)?;
            if joiners > 1 {
                panels.push(busy.panel(format!("{name}, {joiners} joiners")));
            }
            say(&format!("{name}, {joiners} joiners: {:.0} rows/s", cells[0]));
            let mut line = vec![
                ResultCell::Text(name.to_owned()),
                ResultCell::Numbers(vec![f64::from(joiners)]),
            ];
            line.extend(cells.into_iter().map(|number| ResultCell::Numbers(vec![number])));
            lines.push(line);
        }
    }
    Ok((lines, panels))
}

fn fill(session: &Session, table: &str, rows: u64, keys: Keys) -> Result<()> {
    session.execute(&format!(
        "CREATE TABLE {table} (user STRING, item BIGINT, ts TIMESTAMP, price DOUBLE, \
         INDEX(KEY=user, TS=ts))"
    ))?;
    let appender = session.appender(table)?;
    for from in (0..rows).step_by(usize::try_from(BATCH).expect("a batch fits")) {
        let numbers = from..rows.min(from + BATCH);
        let draws: Vec<(KeyedRandom, String, u64)> = numbers
            .map(|number| {
                let draw = KeyedRandom::at(&[u64::from(table == "orders"), number]);
                let user = format!("u{}", keys.draw(draw, number * 10 / rows));
                (draw, user, number)
            })
            .collect();
        appender.append(draws.iter().map(|(draw, user, number)| {
            let time = number + WINDOW_MS - draw.below(0, WINDOW_MS);
            [
                Datum::String(user),
                Datum::BigInt(draw.below(1, 1_000).cast_signed()),
                Datum::Timestamp(time.cast_signed()),
                Datum::Double(draw.below(3, 1 << 20) as f64 / 128.0),
            ]
        }))?;
    }
    Ok(())
}

/// Runs a stream over all rows, and returns the cells of its line.
fn run(session: &Session, (rows, joiners): (u64, u32), busy: &mut BusyJoiners) -> Result<Vec<f64>> {
    debug_assert!(rows > 3 * WINDOW_MS, "most of them become final");
    let clock = SystemClock::new();
    session.execute(&format!(
        "CREATE STREAM s INTO TABLE features OPTIONS(lateness='1s', joiners={joiners}) AS {QUERY}"
    ))?;
    let figures = loop {
        lockstep_host::pause(2);
        busy.look(&clock);
        let output = session.execute(
            "SELECT CAST(rows_read AS DOUBLE), CAST(rows_written AS DOUBLE), \
             CAST(teams AS DOUBLE), imbalance FROM lockstep.streams",
        )?;
        let row = numbers(&output);
        // The rows of the last second and its lateness are not final.
        if row[0] >= (2 * rows) as f64 && row[1] >= (rows - 3 * WINDOW_MS) as f64 {
            break row;
        }
    };
    let seconds = clock.monotonic_ns() as f64 / 1e9;
    session.execute("DROP STREAM s")?;
    session.execute("DROP TABLE features")?;
    Ok(vec![figures[0] / seconds, figures[1] / seconds, figures[2], figures[3]])
}

/// How busy each joiner is, over time.
#[derive(Debug, Default)]
struct BusyJoiners {
    looked_ns: u64,
    /// By the number of its thread: its processor time when it was looked at last, and how busy it was until then.
    threads: BTreeMap<u32, (f64, Vec<(f64, f64)>)>,
}

impl BusyJoiners {
    /// Looks at the threads, unless they were looked at a moment ago.
    fn look(&mut self, clock: &SystemClock) {
        let now_ns = clock.monotonic_ns();
        let passed_ns = now_ns - self.looked_ns;
        if passed_ns < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        for (thread, seconds) in thread_seconds("lockstep-joiner") {
            let (known, points) = self.threads.entry(thread).or_default();
            let busy = (seconds - *known) * 1e9 / passed_ns as f64 * 100.0;
            *known = seconds;
            points.push((now_ns as f64 / 1e9, busy.min(100.0)));
        }
    }

    fn panel(self, title: String) -> Curves {
        let lines = self.threads.into_values().zip(1_u32..);
        let lines = lines.map(|((_, points), number)| (format!("joiner {number}"), points));
        let (x, y) = ("seconds", "processor time, %");
        Curves { title, x, y, is_log: (false, false), lines: lines.collect() }
    }
}

/// Returns the numbers of a row.
pub(super) fn numbers(output: &Output) -> Vec<f64> {
    output.batches[0].columns().iter().map(number).collect()
}

/// Returns the first number of a column.
fn number(column: &ArrayRef) -> f64 {
    debug_assert_eq!(column.len(), 1, "there is one stream");
    let column = column.as_primitive::<Float64Type>();
    if column.is_valid(0) { column.value(0) } else { 0.0 }
}
