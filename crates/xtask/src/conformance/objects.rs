//! Checks on objects of the database: what a case expects beside rows.
//!
//! `execute` calls it after a case has run, with the session it ran in. A check of something that
//! does not exist here is skipped with a reason, which the report lists. Tables and files are
//! checked in `tables`, while the folder of the case is there.

use lockstep_engine::{DeploymentInfo, Session};
use lockstep_row::DataType;
use serde_json::Value as Json;

use super::{case::Expectation, compare::CaseOutcome, tables};

/// A check that was not made: what it is about, and why.
pub(crate) type Exception = (&'static str, &'static str);

const PRE_AGGREGATION: Exception = (
    "pre_agg",
    "the content of pre-aggregation tables: partial results of long windows are in no table",
);

/// Makes the checks; the error names the difference.
pub(crate) fn check(
    expectation: &Expectation,
    actual: &CaseOutcome,
    session: Option<&Session>,
) -> Result<Vec<Exception>, String> {
    let CaseOutcome::Table(table) = actual else { return Ok(Vec::new()) };
    let mut exceptions = Vec::new();
    for (name, expected) in &expectation.object_checks {
        match (name.as_str(), session) {
            ("pre_agg" | "pre_agg_list", _) => exceptions.push(PRE_AGGREGATION),
            ("deployment", Some(session)) => deployment(expected, session)?,
            ("deployment_contains", _) => {
                let wanted = expected.as_str().unwrap_or_default();
                let is_there = format!("{:?}", table.rows).contains(wanted);
                if !is_there {
                    return Err(format!("expected `{wanted}` among the deployments"));
                }
            }
            ("deployment_count", _) => {
                let (expected, actual) = (expected.as_u64().unwrap_or_default(), table.rows.len());
                if u64::try_from(actual).ok() != Some(expected) {
                    return Err(format!("expected {expected} deployments, got {actual}"));
                }
            }
            (name, Some(_)) if tables::CHECKS.contains(&name) => {}
            _ => return Err(format!("`{name}` cannot be checked yet")),
        }
    }
    Ok(exceptions)
}

fn deployment(expected: &Json, session: &Session) -> Result<(), String> {
    let text = |key: &str| expected[key].as_str().unwrap_or_default();
    let found = session.deployment(text("name")).map_err(|error| error.to_string())?;
    same("database", text("dbName"), &found.database)?;
    let statement = format!("DEPLOY {} {}", found.name, found.sql);
    same("sql", &words(text("sql")), &words(&statement))?;
    let columns = |columns: &Json| -> Vec<String> {
        let items = columns.as_array().into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let DeploymentInfo { input, output, .. } = found;
    for (what, expected, actual) in
        [("input", &expected["inColumns"], input), ("output", &expected["outColumns"], output)]
    {
        same(what, &columns(expected).join(" "), &shape(&actual).join(" "))?;
    }
    Ok(())
}

fn same(what: &str, expected: &str, actual: &str) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("deployment, {what}: expected {expected}, got {actual}"))
}

/// Formats columns as OpenMLDB's clients print them: position, name, type, whether constant.
fn shape(columns: &[(String, DataType)]) -> Vec<String> {
    let line = |(position, (name, data_type)): (usize, &(String, DataType))| {
        format!("{},{name},{},NO", position + 1, type_name(data_type))
    };
    columns.iter().enumerate().map(line).collect()
}

fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Bool => "kBool",
        DataType::SmallInt => "kInt16",
        DataType::Int => "kInt32",
        DataType::BigInt => "kInt64",
        DataType::Float => "kFloat",
        DataType::Double => "kDouble",
        DataType::String => "kVarchar",
        DataType::Timestamp => "kTimestamp",
        DataType::Date => "kDate",
        DataType::Null => "kNull",
        DataType::Array(_) => "kArray",
        DataType::Map(..) => "kMap",
    }
}

/// Normalizes what OpenMLDB's printer of statements changes: blanks, the case of keywords, the
/// final semicolon, the word AS, brackets around a window's name.
fn words(sql: &str) -> String {
    let spaced: String =
        sql.to_lowercase()
            .chars()
            .map(|c| {
                if c.is_alphanumeric() || "_.".contains(c) {
                    c.to_string()
                } else {
                    format!(" {c} ")
                }
            })
            .collect();
    let words: Vec<&str> =
        spaced.split_whitespace().filter(|word| !matches!(*word, "as" | ";")).collect();
    let text = words.join(" ");
    let mut out = String::new();
    for (at, part) in text.split("over ( ").enumerate() {
        if at == 0 {
            out.push_str(part);
            continue;
        }
        out.push_str("over ");
        match part.split_once(" ) ") {
            Some((name, rest)) if !name.contains(' ') => out.push_str(&format!("{name} {rest}")),
            _ => out.push_str(&format!("( {part}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use lockstep_row::Value;
    use serde_json::{Value as Json, json};

    use super::{check, words};
    use crate::conformance::{
        case::Expectation,
        compare::{CaseOutcome, ResultTable},
    };

    fn verdict(name: &str, expected: Json) -> Result<usize, String> {
        let expectation = Expectation {
            is_success: true,
            columns: None,
            rows: None,
            order: None,
            count: None,
            object_checks: vec![(name.to_owned(), expected)],
            now_ms: 0,
        };
        let rows = vec![vec![Value::String("d1".into())], vec![Value::String("d2".into())]];
        let actual = CaseOutcome::Table(ResultTable { columns: Vec::new(), rows });
        check(&expectation, &actual, None).map(|exceptions| exceptions.len())
    }

    #[test]
    fn a_check_is_made_excepted_or_fails() {
        assert_eq!(verdict("deployment_count", json!(2)), Ok(0));
        assert!(verdict("deployment_count", json!(1)).is_err());
        assert_eq!(verdict("deployment_contains", json!("d2")), Ok(0));
        assert!(verdict("deployment_contains", json!("d3")).is_err());
        assert_eq!(verdict("pre_agg", json!({})), Ok(1));
        assert!(verdict("something_new", json!({})).is_err());
    }

    #[test]
    fn statements_are_compared_without_their_layout() {
        assert_eq!(
            words("DEPLOY d SELECT\n  sum(a) OVER (w1) AS s\nFROM t WINDOW w1 AS (ROWS 1)\n;\n"),
            words("deploy d select sum(a) over w1 s from t window w1 as (rows 1);")
        );
        assert_ne!(words("SELECT a"), words("SELECT b"));
    }
}
