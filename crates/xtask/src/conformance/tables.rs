//! Checks on tables and files: the indexes and options that SHOW lists, and the content of an
//! exported file.
//!
//! `execute` calls it after the last statement of a case, while the folder of the case is there.

use std::{fs, path::PathBuf};

use lockstep_engine::Session;
use lockstep_row::Value;
use serde_json::Value as Json;

use super::compare::ResultTable;

/// The checks of this module, by the record's own names.
pub(crate) const CHECKS: &[&str] = &["idxs", "options", "cat", "offline_info"];

/// Makes one check; the error names the difference.
pub(crate) fn check(
    session: &Session,
    last_statement: &str,
    name: &str,
    expected: &Json,
    resolve: &dyn Fn(&str) -> PathBuf,
) -> Result<(), String> {
    assert!(CHECKS.contains(&name), "`{name}` is checked elsewhere");
    match name {
        "idxs" => check_indexes(session, last_statement, expected),
        "options" => check_options(session, last_statement, expected),
        "cat" => check_file(expected, resolve),
        _ => check_offline(session, last_statement, expected, resolve),
    }
}

/// Checks the indexes of the table of a DESC: keys, event time, retention.
fn check_indexes(session: &Session, last_statement: &str, expected: &Json) -> Result<(), String> {
    let table = table_of(last_statement)?;
    let actual = rows(session, &format!("SHOW INDEXES FROM {table}"))?;
    let actual: Vec<Json> = actual
        .iter()
        .map(|row| {
            let keys: Vec<&str> = row[1].split('|').collect();
            serde_json::json!({"keys": keys, "ts": row[2], "ttl": row[3], "ttlType": row[4]})
        })
        .collect();
    same("the indexes", &Json::Array(actual), expected)
}

/// Checks the numbers of partitions and of replicas in the statement. Without a number the expected
/// one is that of OpenMLDB's test cluster, and is not checked.
fn check_options(session: &Session, last_statement: &str, expected: &Json) -> Result<(), String> {
    let table = table_of(last_statement)?;
    let status = rows(session, &format!("SHOW TABLE STATUS LIKE '{table}'"))?;
    let row = status.first().ok_or_else(|| format!("table {table} has no status"))?;
    let written = last_statement.to_ascii_lowercase();
    for (option, key, at) in [("partitionnum", "partitionNum", 7), ("replicanum", "replicaNum", 9)]
    {
        if written.contains(option) {
            same(option, &Json::from(row[at].as_str()), &expected[key])?;
        }
    }
    Ok(())
}

/// Checks the lines of a file; their expected order is that of OpenMLDB's partitions, and is not
/// checked.
fn check_file(expected: &Json, resolve: &dyn Fn(&str) -> PathBuf) -> Result<(), String> {
    let path = resolve(expected["path"].as_str().unwrap_or_default());
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut actual: Vec<&str> = text.lines().collect();
    let mut wanted: Vec<&str> =
        expected["lines"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    actual.sort_unstable();
    wanted.sort_unstable();
    if actual == wanted {
        Ok(())
    } else {
        Err(format!("the file: expected {wanted:?}, got {actual:?}"))
    }
}

/// Checks the path of a table's offline data.
fn check_offline(
    session: &Session,
    last_statement: &str,
    expected: &Json,
    resolve: &dyn Fn(&str) -> PathBuf,
) -> Result<(), String> {
    let table = table_of(last_statement)?;
    let status = rows(session, &format!("SHOW TABLE STATUS LIKE '{table}'"))?;
    let row = status.first().ok_or_else(|| format!("table {table} has no status"))?;
    let scheme = "file://";
    let wanted = expected["path"].as_str().unwrap_or_default();
    let wanted = resolve(wanted.strip_prefix(scheme).unwrap_or(wanted));
    let actual = PathBuf::from(row[10].strip_prefix(scheme).unwrap_or(&row[10]));
    if actual == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, got {actual:?}")) }
}

/// Returns the table of a DESC or CREATE TABLE.
fn table_of(statement: &str) -> Result<String, String> {
    let mut words = statement.split(|c: char| c.is_whitespace() || c == '(' || c == ';');
    let is_keyword = |word: &str| {
        ["", "desc", "describe", "create", "table"].contains(&word.to_ascii_lowercase().as_str())
    };
    let table = words.find(|word| !is_keyword(word));
    table.map(str::to_owned).ok_or_else(|| format!("`{statement}` names no table"))
}

/// Returns the rows of a statement as texts.
fn rows(session: &Session, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let output = session.execute(sql).map_err(|error| error.render(Some(sql)))?;
    let text = |value: Value| match value {
        Value::String(text) => text.into_string(),
        Value::Int(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let table = ResultTable::from(&output);
    Ok(table.rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
}

fn same(what: &str, actual: &Json, expected: &Json) -> Result<(), String> {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected}, got {actual}"))
    }
}
