//! The page of messages: each one with a statement that shows it, from the golden tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::push;
use crate::{
    messages::{STATEMENT_CRATES, Template, templates_of},
    source::files_below,
    workspace_dir,
};

/// Statement and result of a record of a golden test.
struct GoldenRecord {
    sql: String,
    /// The rendered errors or warnings of the statement.
    result: String,
}

const INTRODUCTION: &str = "\
# Messages

<!-- Written by `cargo xtask reference` from the messages in crates/ and the tests in tests/sql. -->

This page lists the errors and warnings of statements by their [code](errors.md), each with a statement that causes it.
The examples are records of the tests in `tests/sql`; the tables that they use are created there.
";

const REMAINING: &str = "
## Messages without an example

These messages depend on a file, on memory, on another process or on time; `…` is a name or a value.

| message | crate |
|---|---|
";

/// Returns the page.
pub(super) fn messages() -> String {
    let records = golden_records();
    assert!(!records.is_empty(), "tests/sql has errors");
    let mut examples: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut remaining: BTreeSet<(String, &str)> = BTreeSet::new();
    for name in STATEMENT_CRATES {
        for template in templates_of(name) {
            match example_of(&template, &records) {
                Some((code, example)) => {
                    examples.entry(code).or_default().insert(template.shown().to_owned(), example);
                }
                None => {
                    remaining.insert((template.shown().to_owned(), name));
                }
            }
        }
    }
    let mut page = String::from(INTRODUCTION);
    for (code, messages) in &examples {
        push(&mut page, format_args!("\n## {code}\n"));
        let shown: BTreeSet<&String> = messages.values().collect();
        for example in shown {
            push(&mut page, format_args!("\n```text\n{example}\n```\n"));
        }
    }
    page.push_str(REMAINING);
    for (message, name) in remaining {
        push(&mut page, format_args!("| {} | {name} |\n", super::code(&message)));
    }
    page
}

/// Returns the code and the text of the shortest example of a message.
fn example_of(template: &Template, records: &[GoldenRecord]) -> Option<(String, String)> {
    let shows = |record: &&GoldenRecord| {
        first_line(&record.result).is_some_and(|line| template.is_in(line))
    };
    let record = records.iter().filter(shows).min_by_key(|record| record.sql.len())?;
    let line = first_line(&record.result)?;
    let code = line.split(['[', ']']).nth(1)?.to_owned();
    // A caret's line repeats the statement.
    let is_repeated = record.sql.lines().count() == 1
        && record.result.lines().any(|line| line.ends_with(&record.sql));
    let example = match is_repeated {
        true => record.result.clone(),
        false => format!("{}\n{}", record.sql, record.result),
    };
    Some((code, example))
}

/// Returns the line with the message of a rendered error or warning.
fn first_line(result: &str) -> Option<&str> {
    result.lines().find(|line| line.starts_with("error[") || line.starts_with("warning["))
}

fn golden_records() -> Vec<GoldenRecord> {
    let files = files_below(&workspace_dir().join("tests/sql"), &["slt"]);
    files.iter().flat_map(|file| records_of(file)).collect()
}

fn records_of(file: &Path) -> Vec<GoldenRecord> {
    let text = fs::read_to_string(file).expect("a golden test is readable UTF-8");
    let mut records = Vec::new();
    for record in text.split("\n\n") {
        let lines = record.lines().filter(|line| !line.starts_with('#')).skip(1);
        let statement = lines.collect::<Vec<_>>().join("\n");
        if let Some((sql, result)) = statement.split_once("\n----\n") {
            let result = result.trim_end().to_owned();
            if first_line(&result).is_some() {
                records.push(GoldenRecord { sql: sql.to_owned(), result });
            }
        }
    }
    records
}
