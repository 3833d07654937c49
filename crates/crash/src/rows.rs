//! The rows of the workload: every table has the same columns, and every row a number of its own.
//!
//! A range of rows is small data, from which the driver, the child and the database in memory make the
//! same values. Keys belong to one writer, so that what a key has does not depend on how the writers
//! interleave.

use std::fmt::Write;

use arrow::array::RecordBatch;
use lockstep_row::{DataType, Value};
use lockstep_testkit::{random::Random, rows::to_batch};
use serde::{Deserialize, Serialize};

/// The columns of every table, as CREATE TABLE takes them.
pub const COLUMNS: &str =
    "w INT, n BIGINT NOT NULL, k STRING, v DOUBLE, f FLOAT, ts TIMESTAMP, d DATE";

/// The keys of each writer.
pub const KEYS: usize = 4;

/// More writers than there are.
const WRITERS_MAX: u64 = 8;
const HOUR_MS: i64 = 3_600_000;
/// Event times lie so many hours back at most.
const HOURS: usize = 20 * 24;

/// Consecutive rows of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRange {
    /// The writer.
    pub writer: u64,
    /// How many rows the writer had drawn before.
    pub first: u64,
    /// How many rows there are.
    pub count: u64,
    /// No row is newer than this, in milliseconds since the epoch.
    pub now_ms: i64,
}

impl RowRange {
    /// Returns the numbers of the rows, which no other row has.
    pub fn numbers(self) -> impl Iterator<Item = u64> + use<> {
        let writer = self.writer;
        (self.first..self.first + self.count).map(move |row| row * WRITERS_MAX + writer)
    }

    /// Returns the values of the rows.
    pub fn values(self) -> Vec<Vec<Value>> {
        self.numbers().map(|number| self.row(number)).collect()
    }

    /// Returns the rows as one batch.
    pub fn to_batch(self) -> RecordBatch {
        let columns = [
            ("w", DataType::Int),
            ("n", DataType::BigInt),
            ("k", DataType::String),
            ("v", DataType::Double),
            ("f", DataType::Float),
            ("ts", DataType::Timestamp),
            ("d", DataType::Date),
        ];
        to_batch(&columns.map(|(name, data_type)| (name.to_owned(), data_type)), &self.values())
    }

    /// Returns an INSERT of the rows.
    pub fn to_insert(self, table: &str) -> String {
        let rows: Vec<String> =
            self.values().iter().map(|row| format!("({})", literals(row, "NULL"))).collect();
        format!("INSERT INTO {table} VALUES {}", rows.join(", "))
    }

    /// Returns the rows as a CSV file.
    pub fn to_csv(self) -> String {
        let mut text = String::from("w,n,k,v,f,ts,d\n");
        for row in self.values() {
            text.push_str(&literals(&row, "null").replace(['\'', ' '], ""));
            text.push('\n');
        }
        text
    }

    fn row(&self, number: u64) -> Vec<Value> {
        let mut random = Random::new(number);
        let key = random.below(KEYS);
        let digits = signed(random.below(1_000)) - 500;
        let v = match random.below(8) {
            0 => Value::Null,
            1 => Value::Double(1e300),
            2 => Value::Double(-1e300),
            3 => Value::Double(1e-300),
            _ => Value::Double(f64::from(i32::try_from(digits).expect("it is small")) * 0.1),
        };
        let f = match random.below(6) {
            0 => Value::Null,
            _ => Value::Float(f32::from(i16::try_from(digits).expect("it is small")) * 0.5),
        };
        // On the hour, so that equal event times are frequent.
        let hours = signed(random.below(HOURS));
        let ts = (self.now_ms / HOUR_MS - hours) * HOUR_MS;
        vec![
            Value::Int(i32::try_from(self.writer).expect("there are few writers")),
            Value::BigInt(i64::try_from(number).expect("there are few rows")),
            Value::String(format!("{}-{key}", self.writer).into()),
            v,
            f,
            Value::Timestamp(ts),
            Value::Null,
        ]
    }
}

/// Converts a small number.
fn signed(number: usize) -> i64 {
    i64::try_from(number).expect("it is small")
}

/// Returns the values of a row as literals.
fn literals(row: &[Value], null: &str) -> String {
    let mut text = String::new();
    for value in row {
        if !text.is_empty() {
            text.push_str(", ");
        }
        match value {
            Value::Int(value) => write!(text, "{value}"),
            Value::BigInt(value) | Value::Timestamp(value) => write!(text, "{value}"),
            Value::String(value) => write!(text, "'{value}'"),
            Value::Double(value) => write!(text, "{value:e}"),
            Value::Float(value) => write!(text, "{value:e}"),
            _ => write!(text, "{null}"),
        }
        .expect("a string takes everything");
    }
    text
}
