//! OpenMLDB's own cases: every statement that it accepts parses, and columns have the same names.
//!
//! Reads `shared/conformance` beside the repository; passes with a remark where that is absent.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use lockstep_sql::ast::{ExprKind, SelectItem, SetExpr, Statement};
use lockstep_sql::{Parsed, parse};
use serde_json::Value;

/// Statements of accepted cases that are not ours, with the reason.
const NOT_PARSED: &str = include_str!("conformance_not_parsed.txt");

/// Columns whose expected name is not that of the statement: the case's own mistake.
const NAMED_OTHERWISE: &[&str] = &["sum_col1, not col1"];

const UPDATE: bool = option_env!("UPDATE_GOLDEN").is_some();

/// Returns all cases, or nothing where the data is absent.
#[expect(clippy::print_stdout, reason = "says why the test is empty")]
fn cases() -> Vec<Value> {
    let folder = PathBuf::from("../../../shared/conformance");
    let Ok(entries) = fs::read_dir(&folder) else {
        println!("skipped: {} is absent", folder.display());
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the folder is readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    let texts = paths.iter().map(|path| fs::read_to_string(path).expect("the file is readable"));
    texts
        .flat_map(|text| {
            text.lines()
                .map(|line| serde_json::from_str(line).expect("a line is a case"))
                .collect::<Vec<Value>>()
        })
        .collect()
}

fn statements(case: &Value) -> impl Iterator<Item = &str> {
    case["sqls"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether the converter left a placeholder for a file or an address in a text.
fn has_placeholder(sql: &str) -> bool {
    sql.contains("{tb_endpoint") || sql.starts_with("%%fun")
}

#[test]
fn accepted_statements_parse() {
    let cases = cases();
    let mut parsed_count = 0;
    let mut failed = BTreeSet::new();
    for case in cases.iter().filter(|case| case["expect"]["success"] == true) {
        for sql in statements(case).filter(|sql| !has_placeholder(sql)) {
            match parse(sql) {
                Ok(_) => parsed_count += 1,
                Err(error) => {
                    let one_line: Vec<&str> = sql.split_whitespace().collect();
                    failed.insert(format!("{}: {}", error.message, one_line.join(" ")));
                }
            }
        }
    }
    if cases.is_empty() {
        return;
    }
    let failed: Vec<String> = failed.into_iter().collect();
    let found = format!("{}\n", failed.join("\n"));
    println!("{parsed_count} statements parse, {} do not", failed.len());
    if UPDATE {
        let path = "tests/conformance_not_parsed.txt";
        fs::write(path, found).unwrap();
    } else {
        assert_eq!(found, NOT_PARSED);
    }
}

#[test]
fn columns_without_an_alias_are_named_as_in_openmldb() {
    let (mut columns_equal, mut printed_equal) = (0, 0);
    let mut different = BTreeSet::new();
    for case in cases().iter().filter(|case| case["kind"] == "query") {
        let Some(columns) = case["expect"]["columns"].as_array() else { continue };
        let Some(sql) = statements(case).last() else { continue };
        let Some(names) = parse(sql).ok().and_then(|script| names(script.last()?)) else {
            continue;
        };
        for (name, column) in names.iter().zip(columns) {
            let Some((name, is_column)) = name else { continue };
            let expected = column["name"].as_str().unwrap_or_default();
            if name != expected {
                different.insert(format!("{expected}, not {name}"));
            } else if *is_column {
                columns_equal += 1;
            } else {
                printed_equal += 1;
            }
        }
    }
    println!("{columns_equal} columns and {printed_equal} printed expressions are named alike");
    let different: Vec<String> = different.into_iter().collect();
    assert!(
        different.iter().all(|name| NAMED_OTHERWISE.contains(&name.as_str())),
        "{different:#?}"
    );
}

/// Returns the names of expressions without an alias, and whether they are columns; `None` for
/// those with an alias, and for a query with `*`.
fn names(parsed: &Parsed) -> Option<Vec<Option<(String, bool)>>> {
    let Statement::Query(query) = &parsed.statement else { return None };
    let SetExpr::Select(select) = &query.body else { return None };
    select
        .items
        .iter()
        .map(|item| match item {
            SelectItem::Star { .. } => None,
            SelectItem::Expr { expr, alias: None } => {
                let is_column = matches!(expr.kind, ExprKind::Column(_));
                Some(Some((expr.name(), is_column)))
            }
            SelectItem::Expr { .. } => Some(None),
        })
        .collect()
}
