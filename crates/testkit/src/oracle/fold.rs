//! The aggregates, computed from the list of a frame's values.
//!
//! `frame` is always newest first, as the oracle makes it.

use std::cmp::Ordering;

use lockstep_row::Value;

use super::{OracleMode, OracleRow, exact, integer};

/// A function and its arguments, which are columns by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// `count(*)`.
    CountRows,
    /// `count(x)`, `sum(x)`, ….
    Plain(Plain, usize),
    /// `count_where(x, condition)`, `sum_where(x, condition)`, ….
    Where(Plain, usize, OracleCondition),
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
    /// `topn_frequency(x, n)`: the n most frequent, ties ascending, joined by commas. Integers and
    /// texts only.
    TopFrequency(usize, usize),
    /// `median(x)`: the middle one, or the mean of the two. Integers only.
    Median(usize),
    /// A function that the oracle does not compute: only batch mode and request mode are compared.
    Unmodelled {
        /// The name.
        name: &'static str,
        /// The first argument.
        column: usize,
        /// What follows the first argument.
        rest: &'static str,
    },
}

impl Function {
    /// Returns the column that its first argument is; `None` for `count(*)`.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::CountRows => None,
            Self::Plain(_, column)
            | Self::Where(_, column, _)
            | Self::DistinctCount(column)
            | Self::FirstValue(column)
            | Self::LastValue(column)
            | Self::Lag { column, .. }
            | Self::Top(column, _)
            | Self::TopFrequency(column, _)
            | Self::Median(column)
            | Self::Unmodelled { column, .. } => Some(*column),
        }
    }
}

/// Functions that also have a `_where` form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Counts values that are not NULL.
    Count,
    /// Integers: BIGINT, saturating. Floats: correctly rounded, of the argument's type.
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
pub struct OracleCondition {
    /// The column.
    pub column: usize,
    /// `>` rather than `<=`.
    pub is_greater: bool,
    /// The constant.
    pub constant: i32,
}

impl OracleCondition {
    fn holds(self, row: &OracleRow) -> bool {
        let is_greater = |value| value > i128::from(self.constant);
        integer(&row[self.column]).is_some_and(|value| is_greater(value) == self.is_greater)
    }
}

/// Computes an aggregate over a frame. Panics for LAG, which ignores the frame; returns NULL for
/// functions that the oracle does not compute.
pub fn fold(function: &Function, frame: &[&OracleRow], mode: OracleMode) -> Value {
    match function {
        Function::CountRows => count(frame.len()),
        Function::Plain(plain, column) => fold_plain(*plain, frame, *column, mode),
        Function::Where(plain, column, condition) => {
            let rows: Vec<&OracleRow> =
                frame.iter().copied().filter(|row| condition.holds(row)).collect();
            let passes_over_zero =
                mode == OracleMode::OpenMldb && matches!(plain, Plain::Sum | Plain::Avg);
            let rows: Vec<&OracleRow> = rows
                .into_iter()
                .filter(|row| !(passes_over_zero && is_zero(&row[*column])))
                .collect();
            fold_plain(*plain, &rows, *column, mode)
        }
        Function::DistinctCount(column) => {
            let mut seen: Vec<&Value> = Vec::new();
            for value in not_null(frame, *column) {
                if !seen.iter().any(|other| is_same_value(other, value)) {
                    seen.push(value);
                }
            }
            let has_null = frame.iter().any(|row| row[*column] == Value::Null);
            let is_one_more = mode == OracleMode::OpenMldb && has_null;
            let has_zero = seen.iter().any(|value| is_zero(value));
            count(seen.len() + usize::from(is_one_more && !has_zero))
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
        Function::TopFrequency(column, size) => {
            top_frequency(&not_null(frame, *column), *size, mode)
        }
        Function::Median(column) => median(&not_null(frame, *column), mode),
        Function::Unmodelled { .. } => Value::Null,
        Function::Lag { .. } => panic!("lag does not look at the frame"),
    }
}

/// Returns whether a value equals what NULL counts as under the compatibility setting: a zero, or
/// the empty text.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Float(value) => *value == 0.0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        other => integer(other) == Some(0),
    }
}

/// Wraps a sum to the type of `like`.
fn wrapped(sum: i128, like: &Value) -> Value {
    let bits = match like {
        Value::SmallInt(_) => 16,
        Value::Int(_) => 32,
        _ => 64,
    };
    let end = 1_i128 << (bits - 1);
    let low = (sum + end).rem_euclid(2 * end) - end;
    let fits = "it is within the type";
    match like {
        Value::SmallInt(_) => Value::SmallInt(i16::try_from(low).expect(fits)),
        Value::Int(_) => Value::Int(i32::try_from(low).expect(fits)),
        _ => Value::BigInt(i64::try_from(low).expect(fits)),
    }
}

fn top_frequency(values: &[&Value], size: usize, mode: OracleMode) -> Value {
    let mut counts: Vec<(usize, &Value)> = Vec::new();
    for value in values {
        match counts.iter_mut().find(|(_, other)| other == value) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, value)),
        }
    }
    counts.sort_by(|left, right| right.0.cmp(&left.0).then(compare(left.1, right.1)));
    let text = |value: &Value| match value {
        Value::String(text) => text.to_string(),
        other => integer(other).expect("integers and texts only").to_string(),
    };
    let mut texts: Vec<String> = counts.iter().map(|(_, value)| text(value)).take(size).collect();
    if mode == OracleMode::OpenMldb && !texts.is_empty() {
        texts.resize(size, "NULL".to_owned());
    }
    Value::String(texts.join(",").into())
}

#[expect(clippy::cast_precision_loss, reason = "documented: rounded to DOUBLE")]
fn median(of: &[&Value], mode: OracleMode) -> Value {
    let mut values: Vec<i128> = of.iter().filter_map(|value| integer(value)).collect();
    values.sort_unstable();
    if values.is_empty() {
        return Value::Null;
    }
    let (lower, upper) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    let sum = match mode {
        OracleMode::OpenMldb if values.len().is_multiple_of(2) => {
            integer(&wrapped(lower + upper, of[0])).expect("an integer")
        }
        _ => lower + upper,
    };
    Value::Double(sum as f64 / 2.0)
}

/// Returns whether two values count as one: both zeros do.
#[expect(clippy::float_cmp, reason = "the result is the equality of values")]
fn is_same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => {
            left == right || (left.is_nan() && right.is_nan())
        }
        (Value::Double(left), Value::Double(right)) => {
            left == right || (left.is_nan() && right.is_nan())
        }
        _ => left == right,
    }
}

fn fold_plain(plain: Plain, frame: &[&OracleRow], column: usize, mode: OracleMode) -> Value {
    let values = not_null(frame, column);
    if plain == Plain::Count {
        return count(values.len());
    }
    if values.is_empty() {
        return Value::Null;
    }
    match plain {
        Plain::Count => count(values.len()),
        Plain::Sum => sum(&values, mode),
        Plain::Avg => Value::Double(mean(&values)),
        Plain::Min => best(&values, Ordering::Less),
        Plain::Max => best(&values, Ordering::Greater),
    }
}

fn not_null<'a>(frame: &[&'a OracleRow], column: usize) -> Vec<&'a Value> {
    let values = frame.iter().map(|row| &row[column]);
    values.filter(|value| **value != Value::Null).collect()
}

fn count(count: usize) -> Value {
    Value::BigInt(i64::try_from(count).expect("a count of rows in memory"))
}

fn sum(values: &[&Value], mode: OracleMode) -> Value {
    match values[0] {
        Value::Float(_) => Value::Float(exact::sum_to_f32(&doubles(values))),
        Value::Double(_) => Value::Double(exact::sum_to_f64(&doubles(values))),
        _ => {
            let sum: i128 = values.iter().filter_map(|value| integer(value)).sum();
            match mode {
                OracleMode::Standard => i64::try_from(sum).map_or(Value::Null, Value::BigInt),
                OracleMode::OpenMldb => wrapped(sum, values[0]),
            }
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

/// Compares values of one type. -0.0 is less than 0.0 here, and NaN is the greatest, so that the
/// least and the greatest are unique.
fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => left.total_cmp(right),
        (Value::Double(left), Value::Double(right)) => left.total_cmp(right),
        (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        _ => integer(left).cmp(&integer(right)),
    }
}

#[cfg(test)]
mod tests {
    use lockstep_row::Value;

    use super::{Function, OracleCondition, OracleMode, Plain, fold};

    /// Checks a function over one column, newest first.
    fn check(function: &Function, column: &[Value], expected: &Value) {
        let rows: Vec<Vec<Value>> = column.iter().map(|value| vec![value.clone()]).collect();
        let frame: Vec<&Vec<Value>> = rows.iter().collect();
        assert_eq!(fold(function, &frame, OracleMode::Standard), *expected, "{function:?}");
    }

    #[test]
    fn under_the_setting_integers_wrap_and_null_counts_as_zero() {
        let check = |function: &Function, column: &[Value], expected: &Value| {
            let rows: Vec<Vec<Value>> = column.iter().map(|value| vec![value.clone()]).collect();
            let frame: Vec<&Vec<Value>> = rows.iter().collect();
            assert_eq!(fold(function, &frame, OracleMode::OpenMldb), *expected, "{function:?}");
        };
        let column = [Value::SmallInt(32_000), Value::SmallInt(1_000), Value::Null];
        check(&Function::Plain(Plain::Sum, 0), &column, &Value::SmallInt(-32_536));
        check(&Function::Median(0), &column, &Value::Double(-16_268.0));
        check(&Function::DistinctCount(0), &column, &Value::BigInt(3));
        check(&Function::TopFrequency(0, 3), &column, &Value::String("1000,32000,NULL".into()));
        let zeros = [Value::Int(0), Value::Null];
        let condition = OracleCondition { column: 0, is_greater: false, constant: 5 };
        check(&Function::Where(Plain::Sum, 0, condition), &zeros, &Value::Null);
        check(&Function::DistinctCount(0), &zeros, &Value::BigInt(1));
    }

    fn ints(values: &[i32]) -> Vec<Value> {
        values.iter().copied().map(Value::Int).collect()
    }

    #[test]
    fn an_empty_frame_has_no_values_to_fold() {
        for plain in [Plain::Sum, Plain::Avg, Plain::Min, Plain::Max] {
            check(&Function::Plain(plain, 0), &[], &Value::Null);
            check(&Function::Plain(plain, 0), &[Value::Null], &Value::Null);
        }
        check(&Function::Plain(Plain::Count, 0), &[Value::Null], &Value::BigInt(0));
        check(&Function::CountRows, &[Value::Null], &Value::BigInt(1));
        check(&Function::Top(0, 2), &[], &Value::String("".into()));
        check(&Function::FirstValue(0), &[], &Value::Null);
    }

    #[test]
    fn conditions_leave_rows_out() {
        let condition = OracleCondition { column: 0, is_greater: true, constant: 1 };
        let mut column = ints(&[3, 1, 2]);
        column.push(Value::Null);
        check(&Function::Where(Plain::Sum, 0, condition), &column, &Value::BigInt(5));
        let condition = OracleCondition { is_greater: false, ..condition };
        check(&Function::Where(Plain::Count, 0, condition), &column, &Value::BigInt(1));
    }

    #[test]
    fn ends_are_oldest_and_newest() {
        check(&Function::FirstValue(0), &ints(&[3, 1, 2]), &Value::Int(2));
        check(&Function::LastValue(0), &ints(&[3, 1, 2]), &Value::Int(3));
    }

    #[test]
    fn values_are_counted_and_ranked() {
        let column = ints(&[3, 1, 3, 2]);
        check(&Function::DistinctCount(0), &column, &Value::BigInt(3));
        check(&Function::Top(0, 3), &column, &Value::String("3,3,2".into()));
        check(&Function::TopFrequency(0, 2), &column, &Value::String("3,1".into()));
        check(&Function::TopFrequency(0, 4), &column, &Value::String("3,1,2".into()));
        check(&Function::Median(0), &column, &Value::Double(2.5));
    }

    #[test]
    fn floats_have_one_order() {
        let zeros = [Value::Double(0.0), Value::Double(-0.0)];
        check(&Function::DistinctCount(0), &zeros, &Value::BigInt(1));
        let least = fold(
            &Function::Plain(Plain::Min, 0),
            &[&vec![zeros[0].clone()], &vec![zeros[1].clone()]],
            OracleMode::Standard,
        );
        assert!(matches!(least, Value::Double(zero) if zero.is_sign_negative()));
    }
}
