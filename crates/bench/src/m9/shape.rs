//! The training sets of M9: their rows, and their SQL.

use std::path::{Path, PathBuf};

use lockstep_engine::Database;
use lockstep_row::Datum;

use super::flights;
use crate::error::Result;

/// Milliseconds between two event times.
pub(super) const STEP_MS: u64 = 10;
/// A frame is this part of all time.
pub(super) const FRAMES_OF_TIME: u64 = 10;
/// The numbers of keys of the four key columns.
pub(super) const KEYS: [u64; 4] = [1_000, 10_000, 50, 200];
/// A prime, so that rows arrive in another order than that of their times, each time once.
const STRIDE: u64 = 7_919;
/// Rows of one append.
const APPEND_ROWS: usize = 1_000;
/// A row of the tables that are joined for so many rows.
const JOINED_SHARE: u64 = 10;

/// Whose SQL a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryDialect {
    Lockstep,
    DuckDb,
}

/// A shape of a training set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainingShape {
    OneWindow,
    FourWindows,
    Skew,
    Joins,
    Wide,
    Flights,
}

impl TrainingShape {
    /// Those of rows that are made here.
    pub(super) const OF_MADE_ROWS: [Self; 5] =
        [Self::OneWindow, Self::FourWindows, Self::Skew, Self::Joins, Self::Wide];

    /// Finds a shape by its name.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::OF_MADE_ROWS.into_iter().chain([Self::Flights]);
        all.find(|shape| shape.name() == name)
    }

    /// Returns its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OneWindow => "one_window",
            Self::FourWindows => "four_windows",
            Self::Skew => "skew",
            Self::Joins => "joins",
            Self::Wide => "wide",
            Self::Flights => "flights",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::OneWindow => "one window",
            Self::FourWindows => "four windows of different keys",
            Self::Skew => "one window, 80 % of the rows in one key",
            Self::Joins => "two point-in-time joins",
            Self::Wide => "100 aggregates of ten windows, and two point-in-time joins",
            Self::Flights => "the demonstration: 56 features, twelve windows, two joins",
        }
    }

    /// Returns the key columns of its windows.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::OneWindow => &["k1"],
            Self::FourWindows => &["k1", "k2", "k3", "k4"],
            Self::Skew => &["hot"],
            Self::Joins | Self::Flights => &[],
            Self::Wide => &["k1", "k2", "k3", "k4", "k1", "k2", "k3", "k4", "k1", "k2"],
        }
    }

    /// Returns the columns whose values are aggregated.
    fn values(self) -> &'static [&'static str] {
        if self == Self::Wide { &["v", "hot"] } else { &["v"] }
    }

    /// Whether rows of `r1` and `r2` are joined.
    pub(super) fn has_joins(self) -> bool {
        matches!(self, Self::Joins | Self::Wide)
    }

    /// Returns the columns of the result; of the flights those that are compared.
    pub(super) fn columns(self) -> Vec<String> {
        if self == Self::Flights {
            return flights::COLUMNS.map(str::to_owned).into();
        }
        let mut columns = vec!["id".to_owned()];
        if self.has_joins() {
            columns.extend(["first".to_owned(), "second".to_owned()]);
        }
        for number in 1..=self.keys().len() {
            for value in 0..self.values().len() {
                let names = ["n", "total", "mean", "least", "greatest"];
                columns.extend(names.map(|name| output(name, number, value)));
            }
        }
        columns
    }

    /// Returns its query over the tables `t`, `r1` and `r2`.
    pub(super) fn query(self, dialect: QueryDialect, rows: u64) -> String {
        if self == Self::Flights {
            return flights::QUERY.to_owned();
        }
        if self == Self::Joins {
            return format!("SELECT t.id, {}", joined(dialect));
        }
        let frame_ms = frame_ms(rows);
        let (mut columns, mut windows) = (vec!["id".to_owned()], Vec::new());
        if self.has_joins() {
            columns.extend(["first".to_owned(), "second".to_owned()]);
        }
        for (number, key) in (1..).zip(self.keys()) {
            for (at, value) in self.values().iter().enumerate() {
                let calls = [
                    ("count", "n"),
                    ("sum", "total"),
                    ("avg", "mean"),
                    ("min", "least"),
                    ("max", "greatest"),
                ];
                columns.extend(calls.map(|(call, name)| {
                    format!("{call}({value}) OVER w{number} AS {}", output(name, number, at))
                }));
            }
            // Windows of one key differ in their frames.
            let frame_ms = frame_ms / (1 + (number as u64 - 1) / KEYS.len() as u64);
            let frame = if dialect == QueryDialect::Lockstep { "ROWS_RANGE" } else { "RANGE" };
            windows.push(format!(
                "w{number} AS (PARTITION BY {key} ORDER BY ts {frame} BETWEEN {frame_ms} PRECEDING AND CURRENT ROW)"
            ));
        }
        let from = match self.has_joins() {
            true => format!("(SELECT t.*, {}) AS q", joined(dialect)),
            false => "t".to_owned(),
        };
        format!("SELECT {} FROM {from} WINDOW {}", columns.join(", "), windows.join(", "))
    }
}

/// Returns the length of a frame.
pub(super) fn frame_ms(rows: u64) -> u64 {
    debug_assert!(rows > 0, "there are rows");
    (rows * STEP_MS / FRAMES_OF_TIME).max(1)
}

/// Returns the name of a column of the result: of an aggregate of a value of a window, from 1.
fn output(name: &str, window: usize, value: usize) -> String {
    if value == 0 { format!("{name}{window}") } else { format!("{name}{window}_{value}") }
}

/// Returns the joined columns, and FROM.
fn joined(dialect: QueryDialect) -> &'static str {
    if dialect == QueryDialect::Lockstep {
        return "r1.x AS first, r2.x AS second FROM t \
                LAST JOIN r1 ORDER BY r1.ts ON t.k1 = r1.k AND r1.ts <= t.ts \
                LAST JOIN r2 ORDER BY r2.ts ON t.k2 = r2.k AND r2.ts <= t.ts";
    }
    "r1.x AS first, r2.x AS second FROM t \
     ASOF LEFT JOIN r1 ON t.k1 = r1.k AND t.ts >= r1.ts \
     ASOF LEFT JOIN r2 ON t.k2 = r2.k AND t.ts >= r2.ts"
}

/// Writes the rows of all shapes into `t.parquet`, `r1.parquet` and `r2.parquet` of a folder, which it
/// returns.
pub(super) fn write_rows(rows: u64, folder: &Path) -> Result<PathBuf> {
    let database = Database::in_memory();
    let session = database.session();
    session.execute(
        "CREATE DATABASE d; USE d; \
         CREATE TABLE t (id BIGINT, k1 BIGINT, k2 BIGINT, k3 BIGINT, k4 BIGINT, hot BIGINT, ts BIGINT, v BIGINT); \
         CREATE TABLE r1 (k BIGINT, ts BIGINT, x BIGINT); CREATE TABLE r2 (k BIGINT, ts BIGINT, x BIGINT)",
    )?;
    let signed = |value: u64| i64::try_from(value).expect("a small number");
    let appender = session.appender("t")?;
    for first in (0..rows).step_by(APPEND_ROWS) {
        let some = (first..rows.min(first + APPEND_ROWS as u64)).map(|row| {
            // Mixed, so that keys do not follow from each other.
            let mixed = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            let hot = if row % 10 < 8 { 0 } else { 1 + mixed % 1_000 };
            let [k1, k2, k3, k4] = KEYS.map(|keys| (mixed / 7) % keys);
            let ts = row * STRIDE % rows * STEP_MS;
            [row, k1, k2, k3, k4, hot, ts, mixed % 1_000].map(|value| Datum::BigInt(signed(value)))
        });
        appender.append(some)?;
    }
    for (table, keys) in [("r1", KEYS[0]), ("r2", KEYS[1])] {
        let appender = session.appender(table)?;
        let count = rows / JOINED_SHARE;
        for first in (0..count).step_by(APPEND_ROWS) {
            let some = (first..count.min(first + APPEND_ROWS as u64)).map(|row| {
                let mixed = row.wrapping_mul(0xD1B5_4A32_D192_ED03) >> 20;
                // Between the times of `t`, each once.
                let ts = row * STRIDE % count * STEP_MS * JOINED_SHARE + 3;
                [mixed % keys, ts, row].map(|value| Datum::BigInt(signed(value)))
            });
            appender.append(some)?;
        }
    }
    for table in ["t", "r1", "r2"] {
        let path = folder.join(format!("{table}.parquet"));
        let path = path.display();
        session.execute(&format!(
            "SELECT * FROM {table} INTO OUTFILE '{path}' OPTIONS(format = 'parquet')"
        ))?;
    }
    Ok(folder.to_owned())
}
