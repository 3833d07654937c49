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
    let templates: BTreeSet<(Template, &str)> = STATEMENT_CRATES
        .iter()
        .flat_map(|name| templates_of(name).into_iter().map(move |template| (template, *name)))
        .collect();
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    let mut examples: BTreeMap<String, BTreeMap<String, &GoldenRecord>> = BTreeMap::new();
    for record in &records {
        let Some((code, message)) = first_message(&record.result) else { continue };
        let known = templates.iter().filter(|(template, _)| template.is_in(message));
        shown.extend(known.map(|(template, _)| template.shown()));
        let kind = generalized(message);
        let example = examples.entry(code.to_owned()).or_default().entry(kind).or_insert(record);
        if record.sql.len() < example.sql.len() {
            *example = record;
        }
    }
    let mut page = String::from(INTRODUCTION);
    for (code, messages) in &examples {
        push(&mut page, format_args!("\n## {code}\n"));
        let shown: BTreeSet<String> = messages.values().map(|record| example_of(record)).collect();
        for example in shown {
            push(&mut page, format_args!("\n```text\n{example}\n```\n"));
        }
    }
    page.push_str(REMAINING);
    let remaining: BTreeSet<(&str, &str)> =
        templates.iter().map(|(template, name)| (template.shown(), *name)).collect();
    for (message, name) in remaining.iter().filter(|(message, _)| !shown.contains(message)) {
        push(&mut page, format_args!("| {} | {name} |\n", super::code(message)));
    }
    page
}

/// Returns a message with `…` for the names, values and numbers in it: the same for messages of a kind.
fn generalized(message: &str) -> String {
    let mut kind = String::new();
    let mut characters = message.chars();
    while let Some(c) = characters.next() {
        match c {
            '`' | '\'' | '"' => {
                let _quoted = characters.by_ref().find(|closing| *closing == c);
                kind.push('…');
            }
            '0'..='9' if kind.ends_with('…') => {}
            '0'..='9' => kind.push('…'),
            _ => kind.push(c),
        }
    }
    kind
}

/// Returns the statement and the result of a record; the statement once where a caret's line has it.
fn example_of(record: &GoldenRecord) -> String {
    let is_repeated = record.sql.lines().count() == 1
        && record.result.lines().any(|line| line.ends_with(&record.sql));
    match is_repeated {
        true => record.result.clone(),
        false => format!("{}\n{}", record.sql, record.result),
    }
}

/// Returns code and message of a rendered error or warning.
fn first_message(result: &str) -> Option<(&str, &str)> {
    let line = first_line(result)?;
    let (head, message) = line.split_once("]: ")?;
    Some((head.split_once('[')?.1, message))
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

#[cfg(test)]
mod tests {
    use super::{first_message, generalized};

    #[test]
    fn messages_of_a_kind_are_one() {
        let kinds = ["table `a` has 12 rows", "table `b c` has 7 rows"].map(generalized);
        assert_eq!(kinds, ["table … has … rows"; 2]);
        assert_eq!(generalized("it's open"), "it…");
    }

    #[test]
    fn code_and_message_are_read() {
        let result = "warning[01L05]: it is late\nline 1: SELECT";
        assert_eq!(first_message(result), Some(("01L05", "it is late")));
        assert_eq!(first_message("id  n"), None);
    }
}
