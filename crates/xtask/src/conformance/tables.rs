//! Checks on tables and files: what SHOW says of a table's indexes and options, and what an
//! exported file holds.
//!
//! `execute` calls it after the last statement of a case, while the folder of the case is there.

use std::{fs, path::PathBuf};

use lockstep_engine::Session;
use lockstep_row::Value;
use serde_json::Value as Json;

use super::compare::Table;

/// The checks that are made here, by the record's own names.
pub(crate) const CHECKS: &[&str] = &["idxs", "options", "cat", "offline_info"];

/// Makes one check; the error says what differs.
pub(crate) fn check(
    session: &Session,
    last_statement: &str,
    (name, expected): (&str, &Json),
    resolve: &dyn Fn(&str) -> PathBuf,
) -> Result<(), String> {
    match name {
        "idxs" => check_indexes(session, last_statement, expected),
        "options" => check_options(session, last_statement, expected),
        "cat" => check_file(expected, resolve),
        _ => check_offline(session, last_statement, expected, resolve),
    }
}

/// The indexes of the table that DESC was about: keys, event time, retention.
fn check_indexes(session: &Session, last_statement: &str, expected: &Json) -> Result<(), String> {
    let table = table_of(last_statement)?;
    let came = rows(session, &format!("SHOW INDEXES FROM {table}"))?;
    let came: Vec<Json> = came
        .iter()
        .map(|row| {
            let keys: Vec<&str> = row[1].split('|').collect();
            serde_json::json!({"keys": keys, "ts": row[2], "ttl": row[3], "ttlType": row[4]})
        })
        .collect();
    same("the indexes", &Json::Array(came), expected)
}

/// The number of partitions and of replicas that the statement wrote. Without a number it is the
/// reference's own cluster that shows.
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

/// The lines of a file; their order is that of the reference's partitions.
fn check_file(expected: &Json, resolve: &dyn Fn(&str) -> PathBuf) -> Result<(), String> {
    let path = resolve(expected["path"].as_str().unwrap_or_default());
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut came: Vec<&str> = text.lines().collect();
    let mut wanted: Vec<&str> =
        expected["lines"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    came.sort_unstable();
    wanted.sort_unstable();
    if came == wanted {
        Ok(())
    } else {
        Err(format!("the file: expected {wanted:?}, came {came:?}"))
    }
}

/// The path that the offline data of a table is read from.
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
    let came = PathBuf::from(row[10].strip_prefix(scheme).unwrap_or(&row[10]));
    if came == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, came {came:?}")) }
}

/// The table that DESC or CREATE TABLE is about.
fn table_of(statement: &str) -> Result<String, String> {
    let mut words = statement.split(|c: char| c.is_whitespace() || c == '(' || c == ';');
    let is_keyword = |word: &str| {
        ["", "desc", "describe", "create", "table"].contains(&word.to_ascii_lowercase().as_str())
    };
    let table = words.find(|word| !is_keyword(word));
    table.map(str::to_owned).ok_or_else(|| format!("`{statement}` names no table"))
}

/// Rows as texts.
fn rows(session: &Session, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let output = session.execute(sql).map_err(|error| error.render(Some(sql)))?;
    let text = |value: Value| match value {
        Value::String(text) => text.into_string(),
        Value::Int(number) => number.to_string(),
        Value::BigInt(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let table = Table::from(&output);
    Ok(table.rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect())
}

fn same(what: &str, came: &Json, expected: &Json) -> Result<(), String> {
    if came == expected { Ok(()) } else { Err(format!("{what}: expected {expected}, came {came}")) }
}
