//! Compares the actual result of a case with the expected one; the first difference is a sentence.

use std::cmp::Ordering;

use lockstep_engine::{Diagnostic, Kind, Output};
use lockstep_row::{DataType, Value};
use lockstep_testkit::rows;

use super::case::{Expectation, typed};

/// The most representable numbers between a float and the expected one.
const ULP_MAX: u64 = 4;

/// The relative tolerance where OpenMLDB's own test compares that loosely.
const LOOSE_RELATIVE_MAX: f64 = 1e-4;

/// The actual result of a case in one mode.
#[derive(Debug, Clone)]
pub(crate) enum CaseOutcome {
    /// The rows of a statement that succeeded; none for a statement without rows.
    Table(ResultTable),
    /// An error, and the statement that it refers to.
    Error { diagnostic: Box<Diagnostic>, sql: String },
}

/// Columns and rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResultTable {
    pub(crate) columns: Vec<(String, DataType)>,
    pub(crate) rows: Vec<Vec<Value>>,
}

impl From<&Output> for ResultTable {
    fn from(output: &Output) -> Self {
        Self { columns: output.columns.clone(), rows: rows::of_output(output) }
    }
}

/// How numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Within [`ULP_MAX`].
    Ulp,
    /// Within [`LOOSE_RELATIVE_MAX`] or [`ULP_MAX`].
    Loose,
}

/// Which rows are correct, and in what order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// The expected ones, in the order of the case.
    Listed,
    /// The expected ones in any order, since nothing in the query orders them.
    Unordered,
    /// `count` of these rows, since the query does not say which of them a LIMIT keeps.
    Among { all: Vec<Vec<Value>>, count: usize },
}

/// How a result is compared with the expected one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultComparison {
    pub(crate) tolerance: Tolerance,
    pub(crate) choice: Choice,
}

/// Compares the actual result with the expected one; the error names the first difference.
pub(crate) fn check(
    expectation: &Expectation,
    actual: &CaseOutcome,
    comparison: &ResultComparison,
) -> Result<(), String> {
    match (expectation.is_success, actual) {
        (false, CaseOutcome::Error { diagnostic, .. }) => check_error(diagnostic),
        (false, CaseOutcome::Table(table)) => {
            Err(format!("expected an error, got {} rows", table.rows.len()))
        }
        (true, CaseOutcome::Error { diagnostic, sql }) => {
            Err(format!("expected success, got {}", diagnostic.render(Some(sql))))
        }
        (true, CaseOutcome::Table(table)) => check_table(expectation, table, comparison),
    }
}

/// Checks that an expected error is about the statement, not an internal one.
fn check_error(diagnostic: &Diagnostic) -> Result<(), String> {
    if diagnostic.kind == Kind::ReportBug {
        return Err(format!("expected an error about the statement, got {diagnostic}"));
    }
    Ok(())
}

fn check_table(
    expectation: &Expectation,
    table: &ResultTable,
    comparison: &ResultComparison,
) -> Result<(), String> {
    if let Some(columns) = &expectation.columns {
        check_columns(columns, &table.columns)?;
    }
    if let Some(count) = expectation.count
        && table.rows.len() != count
    {
        return Err(format!("expected {count} rows, got {}", table.rows.len()));
    }
    if let Some(rows) = &expectation.rows {
        let types = expectation.columns.as_ref().unwrap_or(&table.columns);
        let read = |row: &Vec<serde_json::Value>| -> Result<Vec<Value>, String> {
            if row.len() != types.len() {
                return Err(format!("expected {} columns, got {}", row.len(), types.len()));
            }
            let cells = row.iter().zip(types);
            cells.map(|(cell, (_, data_type))| typed(cell, data_type, expectation.now_ms)).collect()
        };
        let expected = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if is_variable_list(types) {
            return check_variables(&expected, &table.rows);
        }
        let tolerance = comparison.tolerance;
        if let Choice::Among { all, count } = &comparison.choice {
            return check_chosen(&expected, &table.rows, all, *count, tolerance);
        }
        let order = position_of(expectation.order.as_deref(), types);
        let (expected, actual) = (sorted(expected, order), sorted(table.rows.clone(), order));
        let checked = check_rows(&expected, &actual, types, tolerance);
        let is_permutation = comparison.choice == Choice::Unordered
            && expected.len() == actual.len()
            && are_among(&expected, &actual, tolerance);
        return if is_permutation { Ok(()) } else { checked };
    }
    Ok(())
}

/// Checks a LIMIT without ORDER BY: the number of rows must be right, and each must be a row of the
/// result without the LIMIT.
fn check_chosen(
    expected: &[Vec<Value>],
    actual: &[Vec<Value>],
    all: &[Vec<Value>],
    count: usize,
    tolerance: Tolerance,
) -> Result<(), String> {
    if actual.len() != count {
        return Err(format!("expected {count} rows, got {}", actual.len()));
    }
    for (rows, whose) in [(expected, "expected"), (actual, "actual")] {
        if !are_among(rows, all, tolerance) {
            return Err(format!("{whose} {rows:?}, not all of them among {all:?}"));
        }
    }
    Ok(())
}

/// Returns whether each row matches a different row of `others`.
fn are_among(rows: &[Vec<Value>], others: &[Vec<Value>], tolerance: Tolerance) -> bool {
    let mut left: Vec<&Vec<Value>> = others.iter().collect();
    rows.iter().all(|row| {
        let is_same = |other: &&Vec<Value>| {
            other.len() == row.len() && row.iter().zip(*other).all(|(a, b)| agree(a, b, tolerance))
        };
        let found = left.iter().position(is_same);
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

/// Returns whether the result is that of SHOW VARIABLES, of which the data lists only some
/// variables.
fn is_variable_list(types: &[(String, DataType)]) -> bool {
    types.first().is_some_and(|(name, _)| name == "Variable_name")
}

fn check_variables(expected: &[Vec<Value>], actual: &[Vec<Value>]) -> Result<(), String> {
    match expected.iter().find(|row| !actual.contains(row)) {
        Some(row) => Err(format!("expected the variable {row:?}, it is not in {actual:?}")),
        None => Ok(()),
    }
}

fn check_columns(
    expected: &[(String, DataType)],
    actual: &[(String, DataType)],
) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!("expected {} columns, got {}", expected.len(), actual.len()));
    }
    for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        if expected.0 != actual.0 {
            let number = index + 1;
            return Err(format!(
                "column {number}: expected name `{}`, got `{}`",
                expected.0, actual.0
            ));
        }
        if expected.1 != actual.1 {
            let name = &expected.0;
            return Err(format!("column `{name}`: expected {}, got {}", expected.1, actual.1));
        }
    }
    Ok(())
}

fn check_rows(
    expected: &[Vec<Value>],
    actual: &[Vec<Value>],
    columns: &[(String, DataType)],
    tolerance: Tolerance,
) -> Result<(), String> {
    if expected.len() != actual.len() {
        return Err(format!("expected {} rows, got {}", expected.len(), actual.len()));
    }
    for (number, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        if expected.len() != actual.len() {
            return Err(format!("row {number}: {} values, got {}", expected.len(), actual.len()));
        }
        for ((expected, actual), (name, _)) in expected.iter().zip(actual).zip(columns) {
            if !agree(expected, actual, tolerance) {
                let number = number + 1;
                return Err(format!(
                    "row {number}, `{name}`: expected {expected:?}, got {actual:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the position of the column to sort by; `None` if it does not exist.
fn position_of(order: Option<&str>, columns: &[(String, DataType)]) -> Option<usize> {
    columns.iter().position(|(name, _)| name.eq_ignore_ascii_case(order.unwrap_or_default()))
}

/// Sorts by one column, NULL first; equal values stay in order.
fn sorted(mut rows: Vec<Vec<Value>>, order: Option<usize>) -> Vec<Vec<Value>> {
    if let Some(order) = order {
        rows.sort_by(|left, right| compare(left.get(order), right.get(order)));
    }
    rows
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    let datums = (left.and_then(Value::as_scalar), right.and_then(Value::as_scalar));
    let (Some(left), Some(right)) = datums else { return Ordering::Equal };
    if left.is_null() || right.is_null() {
        return right.is_null().cmp(&left.is_null());
    }
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left.total_cmp(&right),
            _ => (left.as_str(), left.as_bool()).cmp(&(right.as_str(), right.as_bool())),
        },
    }
}

fn agree(expected: &Value, actual: &Value, tolerance: Tolerance) -> bool {
    match (expected, actual) {
        (Value::Float(expected), Value::Float(actual)) => {
            let distance = u64::from(ordinal32(*expected).abs_diff(ordinal32(*actual)));
            near(f64::from(*expected), f64::from(*actual), distance, tolerance)
        }
        (Value::Double(expected), Value::Double(actual)) => {
            near(*expected, *actual, ordinal64(*expected).abs_diff(ordinal64(*actual)), tolerance)
        }
        (expected, actual) => expected == actual,
    }
}

#[expect(clippy::float_cmp, reason = "infinities and zeros are equal only to themselves")]
fn near(expected: f64, actual: f64, ulp_distance: u64, tolerance: Tolerance) -> bool {
    if expected.is_nan() || actual.is_nan() {
        return expected.is_nan() && actual.is_nan();
    }
    if expected.is_infinite() || actual.is_infinite() {
        return expected == actual;
    }
    let is_loose = tolerance == Tolerance::Loose;
    let bound = LOOSE_RELATIVE_MAX * expected.abs().max(1.0);
    ulp_distance <= ULP_MAX || (is_loose && (expected - actual).abs() <= bound)
}

/// Maps floats to integers in ascending order, both zeros to the same.
fn ordinal32(value: f32) -> i32 {
    let bits = i32::from_le_bytes(value.to_le_bytes());
    if bits < 0 { i32::MIN.wrapping_sub(bits) } else { bits }
}

/// Maps doubles to integers in ascending order, both zeros to the same.
fn ordinal64(value: f64) -> i64 {
    let bits = i64::from_le_bytes(value.to_le_bytes());
    if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
}

#[cfg(test)]
mod tests;
