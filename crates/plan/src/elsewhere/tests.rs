//! Claims about hints: what they say to write is accepted.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{aggregate, scalar};
use lockstep_row::{Column, DataType, TableSchema, arrow::arrow_schema};
use lockstep_sql::{
    ast::{FileTable, ObjectName, Statement},
    parse,
};

use super::{ELSEWHERE, TYPES};
use crate::{BindOptions, Catalog, CatalogTable, bind};

/// A table with the columns that hints name; `x` has the type of the field.
struct Named(DataType);

impl Catalog for Named {
    fn current_database(&self) -> &'static str {
        "db"
    }

    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>> {
        let typed = |names: &[&str], data_type: &DataType| -> Vec<Column> {
            names.iter().map(|name| Column::new(*name, data_type.clone())).collect()
        };
        let columns = [
            typed(&["x"], &self.0),
            typed(&["a", "b", "y", "id", "seconds", "value"], &DataType::Int),
            typed(&["text", "part", "delimiter", "key"], &DataType::String),
            typed(&["t", "t1", "t2", "time"], &DataType::Timestamp),
            typed(&["condition"], &DataType::Bool),
        ];
        let schema = TableSchema { columns: columns.concat(), indexes: Vec::new() };
        (name == "t").then(|| {
            Arc::new(CatalogTable {
                id: 1,
                database: database.to_owned(),
                name: name.to_owned(),
                arrow_schema: arrow_schema(&schema),
                schema: Arc::new(schema),
                source: None,
            })
        })
    }

    fn find_files(&self, files: &FileTable, _: &[ObjectName]) -> Result<Arc<CatalogTable>> {
        Diagnostic::unsupported("files").at(files.span).err()
    }

    fn has_database(&self, _: &str) -> bool {
        true
    }

    fn table_names(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Returns whether the binder accepts a call, over the table or over a window.
fn is_accepted(call: &str) -> bool {
    let window = "(PARTITION BY key ORDER BY time)";
    [DataType::Int, DataType::String].into_iter().any(|x| {
        [String::new(), format!(" OVER {window}")].iter().any(|over| {
            let sql = format!("SELECT {call}{over} FROM t");
            let Ok(mut statements) = parse(&sql) else { return false };
            let Statement::Query(query) = statements.remove(0).statement else { return false };
            bind(&query, &Named(x.clone()), &BindOptions::default()).is_ok()
        })
    })
}

/// Returns the calls that a hint has, with a number for `n`.
fn calls(hint: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in hint.match_indices('(') {
        let name = hint[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let start = name.map_or(0, |before| before + 1);
        let name = &hint[start..at];
        if name.is_empty() || name.chars().any(char::is_uppercase) || name.ends_with('_') {
            continue;
        }
        let mut depth = 0;
        let end = hint[at..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let call = &hint[start..=at + end.expect("parentheses are closed")];
        found.push(call.replace(", n)", ", 1)").replace(", n,", ", 1,"));
    }
    found
}

fn is_function(name: &str) -> bool {
    scalar::find(name).is_some() || aggregate::find(name).is_some()
}

#[test]
fn types_of_other_databases_do_not_exist_and_those_of_hints_do() {
    for (names, hint) in TYPES {
        for name in *names {
            assert_eq!(DataType::from_name(name), None, "`{name}`");
        }
        let written = hint.strip_prefix("Write ").map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric()).next().expect("a word follows")
        });
        if let Some(written) = written {
            assert!(DataType::from_name(&written.to_lowercase()).is_some(), "{hint}");
        }
    }
}

#[test]
fn functions_of_other_databases_do_not_exist_and_calls_of_hints_are_accepted() {
    let mut checked = 0;
    for (names, hint) in ELSEWHERE {
        for name in *names {
            assert!(!is_function(name), "`{name}` exists");
        }
        for call in calls(hint) {
            assert!(is_accepted(&call), "`{call}` in: {hint}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} calls");
    assert!(!is_accepted("min(condition)"), "a call that is refused is found");
}

#[test]
fn calls_in_hints_of_the_parser_are_accepted() {
    let mut checked = 0;
    for call in lockstep_sql::hints().flat_map(calls) {
        assert!(is_accepted(&call), "`{call}`");
        checked += 1;
    }
    assert!(checked > 10, "{checked} calls");
}
