//! The aggregates, computed from the list of a frame's values.
//!
//! `frame` is always newest first, as the oracle makes it.

use std::cmp::Ordering;

use lockstep_row::Value;

use super::{Row, exact, integer};

/// A function and its arguments, which are columns by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// `count(*)`.
    CountRows,
    /// `count(x)`, `sum(x)`, ….
    Plain(Plain, usize),
    /// `count_where(x, condition)`, `sum_where(x, condition)`, ….
    Where(Plain, usize, Condition),
    /// `distinct_count(x)`.
    DistinctCount(usize),
    /// `first_value(x)`: the oldest.
    FirstValue(usize),
    /// `last_value(x)`: the newest.
    LastValue(usize),
    /// `lag(x, n)`: n rows before the current row, whatever the frame.
    Lag {
        /// The column.
        column: usize,
        /// The distance.
        offset: usize,
    },
    /// `top(x, k)`: the k greatest, descending, joined by commas. Integers only.
    Top(usize, usize),
}

/// Functions that also have a `_where` form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Values that are not NULL.
    Count,
    /// Integers: BIGINT. Floats: correctly rounded, of the argument's type.
    Sum,
    /// The sum divided once, DOUBLE.
    Avg,
    /// The smallest.
    Min,
    /// The greatest.
    Max,
}

/// `column op constant` over an integer column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// The column.
    pub column: usize,
    /// `>` rather than `<=`.
    pub is_greater: bool,
    /// What it is compared with.
    pub constant: i32,
}

impl Condition {
    fn holds(self, row: &Row) -> bool {
        let is_greater = |value| value > i128::from(self.constant);
        integer(&row[self.column]).is_some_and(|value| is_greater(value) == self.is_greater)
    }
}

/// The value of an aggregate over a frame. Panics for LAG, which does not look at the frame.
pub fn fold(function: &Function, frame: &[&Row]) -> Value {
    match function {
        Function::CountRows => count(frame.len()),
        Function::Plain(plain, column) => fold_plain(*plain, frame, *column),
        Function::Where(plain, column, condition) => {
            let rows: Vec<&Row> =
                frame.iter().copied().filter(|row| condition.holds(row)).collect();
            fold_plain(*plain, &rows, *column)
        }
        Function::DistinctCount(column) => {
            let mut seen: Vec<&Value> = Vec::new();
            for value in not_null(frame, *column) {
                if !seen.iter().any(|other| compare(other, value).is_eq()) {
                    seen.push(value);
                }
            }
            count(seen.len())
        }
        Function::FirstValue(column) => {
            frame.last().map_or(Value::Null, |row| row[*column].clone())
        }
        Function::LastValue(column) => {
            frame.first().map_or(Value::Null, |row| row[*column].clone())
        }
        Function::Top(column, size) => {
            let mut values: Vec<i128> =
                not_null(frame, *column).into_iter().filter_map(integer).collect();
            values.sort_unstable_by(|left, right| right.cmp(left));
            values.truncate(*size);
            let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
            Value::String(texts.join(",").into())
        }
        Function::Lag { .. } => panic!("lag does not look at the frame"),
    }
}

fn fold_plain(plain: Plain, frame: &[&Row], column: usize) -> Value {
    let values = not_null(frame, column);
    if plain == Plain::Count {
        return count(values.len());
    }
    if values.is_empty() {
        return Value::Null;
    }
    match plain {
        Plain::Count => count(values.len()),
        Plain::Sum => sum(&values),
        Plain::Avg => Value::Double(mean(&values)),
        Plain::Min => best(&values, Ordering::Less),
        Plain::Max => best(&values, Ordering::Greater),
    }
}

fn not_null<'a>(frame: &[&'a Row], column: usize) -> Vec<&'a Value> {
    let values = frame.iter().map(|row| &row[column]);
    values.filter(|value| **value != Value::Null).collect()
}

fn count(count: usize) -> Value {
    Value::BigInt(i64::try_from(count).expect("a count of rows in memory"))
}

fn sum(values: &[&Value]) -> Value {
    match values[0] {
        Value::Float(_) => Value::Float(exact::sum_to_f32(&doubles(values))),
        Value::Double(_) => Value::Double(exact::sum_to_f64(&doubles(values))),
        _ => {
            let sum: i128 = values.iter().filter_map(|value| integer(value)).sum();
            Value::BigInt(i64::try_from(sum).expect("scenarios draw values that do not overflow"))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the sum is rounded, the count is small")]
fn mean(values: &[&Value]) -> f64 {
    let count = values.len() as f64;
    match values[0] {
        Value::Float(_) | Value::Double(_) => exact::sum_to_f64(&doubles(values)) / count,
        _ => {
            let sum: i128 = values.iter().filter_map(|value| integer(value)).sum();
            sum as f64 / count
        }
    }
}

fn best(values: &[&Value], wanted: Ordering) -> Value {
    let mut best = values[0];
    for value in values {
        if compare(value, best) == wanted {
            best = value;
        }
    }
    best.clone()
}

fn doubles(values: &[&Value]) -> Vec<f64> {
    let double = |value: &&Value| match value {
        Value::Float(value) => f64::from(*value),
        Value::Double(value) => *value,
        other => panic!("{other:?} among floats"),
    };
    values.iter().map(double).collect()
}

/// The order of values of one type. -0.0 is less than 0.0 for this purpose, and NaN the greatest,
/// so that the least and the greatest of any values are one particular value.
fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => left.total_cmp(right),
        (Value::Double(left), Value::Double(right)) => left.total_cmp(right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => integer(left).cmp(&integer(right)),
    }
}
