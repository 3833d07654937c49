//! Compares what came with what a case expects; the first difference is a sentence.

use std::cmp::Ordering;

use lockstep_engine::{Diagnostic, Kind, Output};
use lockstep_row::{DataType, Value};
use lockstep_testkit::rows;

use super::case::{Expectation, typed};

/// How far a float may be from the expected one, in representable numbers between them.
const ULP_MAX: u64 = 4;

/// How far, relatively, where the reference's own test compares that loosely.
const LOOSE_RELATIVE_MAX: f64 = 1e-4;

/// What came of a case in one mode.
#[derive(Debug, Clone)]
pub(crate) enum Came {
    /// Rows, or nothing, of a statement that worked.
    Table(Table),
    /// An error, and the statement it is about.
    Error { diagnostic: Box<Diagnostic>, sql: String },
}

/// Columns and rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<(String, DataType)>,
    pub(crate) rows: Vec<Vec<Value>>,
}

impl From<&Output> for Table {
    fn from(output: &Output) -> Self {
        Self { columns: output.columns.clone(), rows: rows::of_output(output) }
    }
}

/// How numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Within [`ULP_MAX`].
    Ulp,
    /// Or within [`LOOSE_RELATIVE_MAX`].
    Loose,
}

/// Which rows may come, and in what order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// The expected ones, in the order of the case.
    Listed,
    /// The expected ones in any order, since nothing in the query orders them.
    Unordered,
    /// So many of these, since nothing says which of them a LIMIT keeps.
    Among { all: Vec<Vec<Value>>, count: usize },
}

/// How a result is compared with an expectation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) tolerance: Tolerance,
    pub(crate) choice: Choice,
}

/// Whether what came is what was expected; the error says where they differ.
pub(crate) fn check(
    expectation: &Expectation,
    came: &Came,
    comparison: &Comparison,
) -> Result<(), String> {
    match (expectation.is_success, came) {
        (false, Came::Error { diagnostic, .. }) => check_error(diagnostic),
        (false, Came::Table(table)) => {
            Err(format!("expected an error, came {} rows", table.rows.len()))
        }
        (true, Came::Error { diagnostic, sql }) => {
            Err(format!("expected success, came {}", diagnostic.render(Some(sql))))
        }
        (true, Came::Table(table)) => check_table(expectation, table, comparison),
    }
}

/// An expected error is one that the engine noticed, not a defect of its own.
fn check_error(diagnostic: &Diagnostic) -> Result<(), String> {
    if diagnostic.kind == Kind::ReportBug {
        return Err(format!("expected an error about the statement, came {diagnostic}"));
    }
    Ok(())
}

fn check_table(
    expectation: &Expectation,
    table: &Table,
    comparison: &Comparison,
) -> Result<(), String> {
    if let Some(columns) = &expectation.columns {
        check_columns(columns, &table.columns)?;
    }
    if let Some(count) = expectation.count
        && table.rows.len() != count
    {
        return Err(format!("expected {count} rows, came {}", table.rows.len()));
    }
    if let Some(rows) = &expectation.rows {
        let types = expectation.columns.as_ref().unwrap_or(&table.columns);
        let read = |row: &Vec<serde_json::Value>| -> Result<Vec<Value>, String> {
            if row.len() != types.len() {
                return Err(format!("expected {} columns, came {}", row.len(), types.len()));
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
        let (expected, came) = (sorted(expected, order), sorted(table.rows.clone(), order));
        let checked = check_rows(&expected, &came, types, tolerance);
        let is_permutation = comparison.choice == Choice::Unordered
            && expected.len() == came.len()
            && are_among(&expected, &came, tolerance);
        return if is_permutation { Ok(()) } else { checked };
    }
    Ok(())
}

/// A LIMIT without ORDER BY: the number of rows is certain, and that they are rows of the result
/// without the LIMIT.
fn check_chosen(
    expected: &[Vec<Value>],
    came: &[Vec<Value>],
    all: &[Vec<Value>],
    count: usize,
    tolerance: Tolerance,
) -> Result<(), String> {
    if came.len() != count {
        return Err(format!("expected {count} rows, came {}", came.len()));
    }
    for (rows, whose) in [(expected, "expected"), (came, "came")] {
        if !are_among(rows, all, tolerance) {
            return Err(format!("{whose} {rows:?}, not all of them among {all:?}"));
        }
    }
    Ok(())
}

/// Whether each row has one of its own among others.
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

/// SHOW VARIABLES: the lists of the data lack what the reference has now, so those in them count.
fn is_variable_list(types: &[(String, DataType)]) -> bool {
    types.first().is_some_and(|(name, _)| name == "Variable_name")
}

fn check_variables(expected: &[Vec<Value>], came: &[Vec<Value>]) -> Result<(), String> {
    match expected.iter().find(|row| !came.contains(row)) {
        Some(row) => Err(format!("expected the variable {row:?}, it is not in {came:?}")),
        None => Ok(()),
    }
}

fn check_columns(
    expected: &[(String, DataType)],
    came: &[(String, DataType)],
) -> Result<(), String> {
    if expected.len() != came.len() {
        return Err(format!("expected {} columns, came {}", expected.len(), came.len()));
    }
    for (index, (expected, came)) in expected.iter().zip(came).enumerate() {
        if expected.0 != came.0 {
            let number = index + 1;
            return Err(format!(
                "column {number}: expected name `{}`, came `{}`",
                expected.0, came.0
            ));
        }
        if expected.1 != came.1 {
            let name = &expected.0;
            return Err(format!("column `{name}`: expected {}, came {}", expected.1, came.1));
        }
    }
    Ok(())
}

fn check_rows(
    expected: &[Vec<Value>],
    came: &[Vec<Value>],
    columns: &[(String, DataType)],
    tolerance: Tolerance,
) -> Result<(), String> {
    if expected.len() != came.len() {
        return Err(format!("expected {} rows, came {}", expected.len(), came.len()));
    }
    for (number, (expected, came)) in expected.iter().zip(came).enumerate() {
        if expected.len() != came.len() {
            return Err(format!("row {number}: {} values, came {}", expected.len(), came.len()));
        }
        for ((expected, came), (name, _)) in expected.iter().zip(came).zip(columns) {
            if !agree(expected, came, tolerance) {
                let number = number + 1;
                return Err(format!(
                    "row {number}, `{name}`: expected {expected:?}, came {came:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Where the column to sort by is; one that does not exist sorts nothing.
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

fn agree(expected: &Value, came: &Value, tolerance: Tolerance) -> bool {
    match (expected, came) {
        (Value::Float(expected), Value::Float(came)) => {
            let distance = u64::from(ordinal32(*expected).abs_diff(ordinal32(*came)));
            near(f64::from(*expected), f64::from(*came), distance, tolerance)
        }
        (Value::Double(expected), Value::Double(came)) => {
            near(*expected, *came, ordinal64(*expected).abs_diff(ordinal64(*came)), tolerance)
        }
        (expected, came) => expected == came,
    }
}

#[expect(clippy::float_cmp, reason = "infinities and zeros are equal only to themselves")]
fn near(expected: f64, came: f64, ulp_distance: u64, tolerance: Tolerance) -> bool {
    if expected.is_nan() || came.is_nan() {
        return expected.is_nan() && came.is_nan();
    }
    if expected.is_infinite() || came.is_infinite() {
        return expected == came;
    }
    let is_loose = tolerance == Tolerance::Loose;
    let bound = LOOSE_RELATIVE_MAX * expected.abs().max(1.0);
    ulp_distance <= ULP_MAX || (is_loose && (expected - came).abs() <= bound)
}

/// Numbers the floats in ascending order, both zeros alike.
fn ordinal32(value: f32) -> i32 {
    let bits = i32::from_le_bytes(value.to_le_bytes());
    if bits < 0 { i32::MIN.wrapping_sub(bits) } else { bits }
}

/// Numbers the doubles in ascending order, both zeros alike.
fn ordinal64(value: f64) -> i64 {
    let bits = i64::from_le_bytes(value.to_le_bytes());
    if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }
}

#[cfg(test)]
mod tests;
