//! A comparison that cannot fail is a defect: each way of being wrong is shown to be noticed.

use lockstep_engine::{Diagnostic, code};
use lockstep_row::{DataType, Value};
use serde_json::json;

use super::{CaseOutcome, Choice, ResultComparison, ResultTable, Tolerance, check};
use crate::conformance::case::Expectation;

fn columns() -> Vec<(String, DataType)> {
    vec![("id".to_owned(), DataType::Int), ("x".to_owned(), DataType::Double)]
}

fn expectation() -> Expectation {
    Expectation {
        is_success: true,
        columns: Some(columns()),
        rows: Some(vec![vec![json!(2), json!(1.5)], vec![json!(1), json!(null)]]),
        order: Some("id".to_owned()),
        count: Some(2),
        object_checks: Vec::new(),
        now_ms: 0,
    }
}

fn table() -> ResultTable {
    ResultTable {
        columns: columns(),
        rows: vec![vec![Value::Int(1), Value::Null], vec![Value::Int(2), Value::Double(1.5)]],
    }
}

const STRICT: ResultComparison =
    ResultComparison { tolerance: Tolerance::Ulp, choice: Choice::Listed };

fn verdict(expectation: &Expectation, table: ResultTable) -> Result<(), String> {
    check(expectation, &CaseOutcome::Table(table), &STRICT)
}

fn verdict_of(choice: Choice, expectation: &Expectation) -> Result<(), String> {
    check(expectation, &CaseOutcome::Table(table()), &ResultComparison { choice, ..STRICT })
}

/// Changes the table and expects a complaint that contains `words`.
fn check_noticed(change: impl FnOnce(&mut ResultTable), words: &str) {
    let mut table = table();
    change(&mut table);
    let complaint = verdict(&expectation(), table).expect_err("the change must be noticed");
    assert!(complaint.contains(words), "{complaint}");
}

#[test]
fn equal_tables_pass() {
    assert_eq!(verdict(&expectation(), table()), Ok(()));
}

#[test]
fn a_wrong_value_is_noticed() {
    check_noticed(|table| table.rows[1][1] = Value::Double(1.500_001), "row 2, `x`");
}

#[test]
fn null_is_not_zero() {
    check_noticed(|table| table.rows[0][1] = Value::Double(0.0), "row 1, `x`");
    check_noticed(|table| table.rows[1][1] = Value::Null, "row 2, `x`");
}

#[test]
fn a_value_of_another_type_is_noticed() {
    check_noticed(|table| table.rows[0][0] = Value::BigInt(1), "row 1, `id`");
}

#[test]
fn a_wrong_type_is_noticed() {
    check_noticed(|table| table.columns[0].1 = DataType::BigInt, "expected INT, got BIGINT");
}

#[test]
fn a_wrong_name_is_noticed() {
    check_noticed(|table| table.columns[1].0 = "X".to_owned(), "expected name `x`, got `X`");
}

#[test]
fn a_missing_row_is_noticed() {
    check_noticed(|table| drop(table.rows.pop()), "expected 2 rows, got 1");
}

#[test]
fn a_missing_column_is_noticed() {
    check_noticed(|table| drop(table.columns.pop()), "expected 2 columns, got 1");
}

#[test]
fn a_wrong_count_is_noticed() {
    let expectation = Expectation { rows: None, count: Some(3), ..expectation() };
    assert!(verdict(&expectation, table()).is_err());
}

#[test]
fn rows_without_order_are_compared_as_returned() {
    let expectation = Expectation { order: None, ..expectation() };
    assert!(verdict(&expectation, table()).is_err());
}

#[test]
fn rows_that_nothing_orders_may_come_in_any_order() {
    let expectation = Expectation { order: None, ..expectation() };
    assert_eq!(verdict_of(Choice::Unordered, &expectation), Ok(()));
    let other = Expectation {
        rows: Some(vec![vec![json!(1), json!(null)], vec![json!(1), json!(null)]]),
        ..expectation
    };
    assert!(verdict_of(Choice::Unordered, &other).is_err());
}

#[test]
fn a_limit_may_keep_any_rows_of_the_result_and_no_others() {
    let all = || {
        let row = |id, x| vec![Value::Int(id), x];
        vec![row(1, Value::Null), row(2, Value::Double(1.5)), row(3, Value::Null)]
    };
    let expecting = |id: i32| Expectation {
        rows: Some(vec![vec![json!(id), json!(null)]]),
        count: None,
        ..expectation()
    };
    let among = |all, count| Choice::Among { all, count };
    assert_eq!(verdict_of(among(all(), 2), &expecting(3)), Ok(()));
    assert!(verdict_of(among(all(), 1), &expecting(3)).is_err());
    assert!(verdict_of(among(all(), 2), &expecting(4)).is_err());
    assert!(verdict_of(among(all().split_off(1), 2), &expecting(3)).is_err());
}

#[test]
fn rows_are_compared_also_without_columns() {
    let mut wrong = table();
    wrong.rows[0][0] = Value::Int(9);
    let expectation = Expectation { columns: None, ..expectation() };
    assert_eq!(verdict(&expectation, table()), Ok(()));
    assert!(verdict(&expectation, wrong).is_err());
}

#[test]
fn success_and_error_are_told_apart() {
    let error = |diagnostic: Diagnostic| CaseOutcome::Error {
        diagnostic: Box::new(diagnostic),
        sql: "SELECT".to_owned(),
    };
    let refused = || error(Diagnostic::new(code::SYNTAX_ERROR, "statement ends early"));
    let failing = Expectation { is_success: false, ..expectation() };
    assert!(check(&expectation(), &refused(), &STRICT).is_err());
    assert_eq!(check(&failing, &refused(), &STRICT), Ok(()));
    assert!(verdict(&failing, table()).is_err());
    assert!(check(&failing, &error(Diagnostic::internal("lost")), &STRICT).is_err());
}

#[test]
fn doubles_may_be_four_apart_and_no_more() {
    let apart = |steps: u64| {
        let mut table = table();
        table.rows[1][1] = Value::Double(f64::from_bits(1.5_f64.to_bits() + steps));
        verdict(&expectation(), table)
    };
    assert_eq!(apart(4), Ok(()));
    assert!(apart(5).is_err());
}

#[test]
fn loose_numbers_may_be_a_ten_thousandth_apart() {
    let loosely = |value: f64| {
        let mut table = table();
        table.rows[1][1] = Value::Double(value);
        let loose = ResultComparison { tolerance: Tolerance::Loose, ..STRICT };
        check(&expectation(), &CaseOutcome::Table(table), &loose)
    };
    assert_eq!(loosely(1.500_1), Ok(()));
    assert!(loosely(1.501).is_err());
    assert!(loosely(f64::INFINITY).is_err());
    assert!(loosely(f64::NAN).is_err());
}

#[test]
fn nan_and_infinity_equal_themselves_only() {
    let agree = |expected: &str, actual: f64| {
        let expectation = Expectation {
            columns: None,
            rows: Some(vec![vec![json!(expected)]]),
            order: None,
            count: None,
            ..expectation()
        };
        let columns = vec![("x".to_owned(), DataType::Double)];
        verdict(&expectation, ResultTable { columns, rows: vec![vec![Value::Double(actual)]] })
            .is_ok()
    };
    assert!(agree("NaN", f64::NAN));
    assert!(!agree("NaN", 0.0));
    assert!(agree("Infinity", f64::INFINITY));
    assert!(!agree("Infinity", f64::MAX));
    assert!(!agree("-Infinity", f64::INFINITY));
}
