//! The reference pages: written from the declarations of functions, statements and types.
//!
//! `cargo xtask reference` writes them, `cargo xtask lint` and a test of this crate check that they
//! are up to date. The description, examples and differences of each function are in
//! `crates/function` only, those of statements in `lockstep_sql::grammar`; this file adds headings and
//! introductions.
#![expect(clippy::print_stdout, reason = "a command line speaks through its output")]

mod messages;
mod types;

use std::{fmt::Write as _, fs};

use lockstep_function::{
    StateClass,
    aggregate::{self, SAMPLE},
    compatibility::{ADDITIONS, DIFFERENCES, ExampleForm},
    example_sql, scalar,
};

use crate::{
    conformance::lists::{self, List},
    workspace_dir,
};

/// A page: its path in the workspace, and its text.
type ReferencePage = (&'static str, String);

/// Writes every page; returns whether that succeeded.
pub fn write() -> bool {
    pages().into_iter().all(|(path, text)| {
        let path = workspace_dir().join(path);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        match folder.and_then(|()| fs::write(&path, text)) {
            Ok(()) => {
                println!("wrote {}", path.display());
                true
            }
            Err(error) => {
                println!("{}: {error}", path.display());
                false
            }
        }
    })
}

/// Returns whether every page is up to date, and prints those that are not.
pub fn is_current() -> bool {
    let mut is_current = true;
    for (path, text) in pages() {
        if fs::read_to_string(workspace_dir().join(path)).ok().as_deref() != Some(&text) {
            println!("{path} is not what the declarations say: run `cargo xtask reference`");
            is_current = false;
        }
    }
    is_current
}

fn pages() -> [ReferencePage; 7] {
    [
        ("docs/reference/functions.md", functions()),
        ("docs/reference/statements.md", lockstep_sql::grammar::reference()),
        ("docs/reference/types.md", types::types()),
        ("docs/reference/messages.md", messages::messages()),
        ("docs/reference/lints.md", lockstep_engine::lint::reference()),
        ("docs/reference/metrics.md", lockstep_server::metrics_reference()),
        ("docs/compatibility.md", compatibility()),
    ]
}

/// The entry of a function in a page.
struct FunctionPage {
    name: &'static str,
    aliases: &'static [&'static str],
    category: &'static str,
    signature: &'static str,
    doc: &'static str,
    examples: Vec<(String, &'static str)>,
    is_aggregate: bool,
    /// What the states of an aggregate can do.
    class: Option<StateClass>,
}

fn entries() -> Vec<FunctionPage> {
    let examples = |list: &[(&'static str, &'static str)]| {
        list.iter().map(|(sql, result)| (example_sql(sql), *result)).collect()
    };
    let operators = scalar::operators().filter(|operator| operator.name != "to_bool");
    let scalars = scalar::all().chain(operators).map(|function| FunctionPage {
        name: function.name,
        aliases: function.aliases,
        category: function.category,
        signature: function.signature,
        doc: function.doc,
        examples: examples(function.examples),
        is_aggregate: false,
        class: None,
    });
    let aggregates = aggregate::all().map(|function| FunctionPage {
        name: function.name,
        aliases: function.aliases,
        category: function.category,
        signature: function.signature,
        doc: function.doc,
        examples: examples(function.examples),
        is_aggregate: true,
        class: Some(function.class),
    });
    scalars.chain(aggregates).collect()
}

/// Returns the categories in the order of the declarations, aggregates last.
fn categories(entries: &[FunctionPage]) -> Vec<(&'static str, bool)> {
    let mut categories = Vec::new();
    for entry in entries {
        let category = (entry.category, entry.is_aggregate);
        if !categories.contains(&category) {
            categories.push(category);
        }
    }
    categories
}

fn heading(category: &str, is_aggregate: bool) -> String {
    let mut letters = category.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    if is_aggregate {
        return format!("Aggregates: {category}");
    }
    format!("{first}{}", letters.as_str())
}

/// Returns the URL fragment of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn functions() -> String {
    let entries = entries();
    let mut page = String::from(
        "# Functions and operators\n\n\
         <!-- Written by `cargo xtask reference` from the declarations in crates/function. -->\n\n\
         Every example on this page is a test; the examples of aggregates run in batch mode and in request mode.\n\
         The results that `SET compatibility = 'openmldb'` changes are listed in [Compatibility with OpenMLDB](../compatibility.md).\n\
         A function returns NULL if an argument is NULL, unless its description specifies otherwise.\n\
         A STRING that a function returns is limited to 2 MiB, and an ARRAY to 131,072 elements; \
         beyond the limit the statement or the request fails with the error `54000`.\n\n",
    );
    let categories = categories(&entries);
    for (category, is_aggregate) in &categories {
        let heading = heading(category, *is_aggregate);
        let is_here = |entry: &&FunctionPage| {
            entry.category == *category && entry.is_aggregate == *is_aggregate
        };
        let names: Vec<String> = entries.iter().filter(is_here).map(title).collect();
        let link = format!("[{heading}](#{})", anchor(&heading));
        push(&mut page, format_args!("- {link}: {}\n", names.join(", ")));
    }
    let mut is_first_aggregate = true;
    for (category, is_aggregate) in categories {
        push(&mut page, format_args!("\n## {}\n", heading(category, is_aggregate)));
        if is_aggregate && is_first_aggregate {
            is_first_aggregate = false;
            page += CLASSES;
            page += &sample();
        }
        for entry in &entries {
            if entry.category == category && entry.is_aggregate == is_aggregate {
                push_entry(&mut page, entry);
            }
        }
    }
    page
}

/// Returns the title of a function; an operator has its form.
fn title(entry: &FunctionPage) -> String {
    match entry.category {
        "operator" => {
            let form = entry.signature.split(" → ").next().unwrap_or(entry.signature);
            format!("`{form}`")
        }
        _ => format!("`{}`", entry.name),
    }
}

fn push_entry(page: &mut String, entry: &FunctionPage) {
    push(page, format_args!("\n### {}\n\n", title(entry)));
    for form in entry.signature.split("; ") {
        push(page, format_args!("    {form}\n"));
    }
    if !entry.aliases.is_empty() {
        let aliases: Vec<String> = entry.aliases.iter().map(|name| format!("`{name}`")).collect();
        push(page, format_args!("\nAlso called {}.\n", aliases.join(", ")));
    }
    push(page, format_args!("\n{}\n", entry.doc.replace(". ", ".\n")));
    if let Some(class) = entry.class {
        let reason = match class {
            StateClass::Rows(reason) => format!(", since {reason}"),
            _ => String::new(),
        };
        push(page, format_args!("\nState: {}{reason}.\n", class.name()));
    }
    if entry.examples.is_empty() {
        return;
    }
    page.push_str("\n| SQL | result |\n|---|---|\n");
    for (sql, result) in &entry.examples {
        push(page, format_args!("| {} | {} |\n", code(sql), code(result)));
    }
}

/// The classes of states.
const CLASSES: &str = "
The *state* of an aggregate is the data that is stored about its input rows.
It has one of four classes:

- *retractable*: the states of two sets of rows can be merged, and a row can be removed by undoing its addition.
- *mergeable*: states can be merged; removing a row requires more than the state.
- *ordered merge*: the states of two sets of rows can be merged if one set follows the other in time.
- *rows*: the state consists of the rows themselves.
";

/// Writes the rows of the examples of aggregates.
fn sample() -> String {
    let mut text = String::from(
        "\nThe examples of aggregates are computed over the following rows of one partition, oldest \
         first, in a window that contains all of them:\n\n",
    );
    let names: Vec<&str> = SAMPLE.columns.iter().map(|(name, _)| *name).collect();
    let types: Vec<String> =
        SAMPLE.columns.iter().map(|(_, data_type)| data_type.to_string()).collect();
    let heads: Vec<String> =
        names.iter().zip(types).map(|(name, data_type)| format!("{name} {data_type}")).collect();
    push(&mut text, format_args!("| {} |\n", heads.join(" | ")));
    push(&mut text, format_args!("|{}\n", "---|".repeat(heads.len())));
    for row in &SAMPLE.rows {
        let cells: Vec<String> = row.iter().map(|cell| code(cell)).collect();
        push(&mut text, format_args!("| {} |\n", cells.join(" | ")));
    }
    text
}

fn compatibility() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Results that the setting restores\n");
    push_differences(&mut page, true);
    page.push_str(
        "\n## Results that the setting leaves\n\n\
         The setting does not restore the following results of OpenMLDB, which depend on the clock, \
         on the size of a buffer or on another setting.\n",
    );
    push_differences(&mut page, false);
    page.push_str(
        "\n## Additions to OpenMLDB\n\n\
         OpenMLDB rejects or lacks the following; Lockstep supports it, with and without the setting.\n\n\
         | what | behavior | reason |\n|---|---|---|\n",
    );
    for addition in ADDITIONS {
        let (name, what, why) = (addition.name, addition.what, addition.why);
        push(&mut page, format_args!("| {} | {what} | {why} |\n", name.replace('|', "\\|")));
    }
    push_remaining(&mut page);
    page.push_str(OVER_HTTP);
    page
}

const OVER_HTTP: &str = "
## Over HTTP

[The server](server.md) implements OpenMLDB's HTTP API: `/dbs`, `/dbs/{db}`, `/dbs/{db}/tables`, `/dbs/{db}/tables/{table}`, `/dbs/{db}/deployments/{name}`, `/dbs/{db}/procedures/{name}` and `/refresh`, the same paths below `/apiserver`, and `/health`.
All 84 public cases of this API pass against a running server (`cargo test --package lockstep-server openmldb_s_cases_pass`).
The following differs:

| difference | reason |
|---|---|
| A call requires a user, like every call to the server. | OpenMLDB's API has no users. |
| An error has the object `error`, with the SQLSTATE and a hint, in addition to `code` and `msg`. | Programs that read `code` and `msg` are not affected. |
| A path or method that does not exist returns the status 404 or 405; failed logins, limits, overload and shutdown have their own status. | OpenMLDB returns 200, or does not have them. |
| `default` is a database, and is listed if it is not empty. | Every directory has this database. |
| A table has one partition and one replica, whatever its options specify. | Lockstep runs in one process. |
| `common_cols_data` has the columns of a procedure that are copies of CONST columns, if the query only selects columns. | OpenMLDB also finds expressions over such columns. |
| A body that is chunked or empty is read like any other body; a PUT without a body returns an error. | |
| New sessions have `compatibility = 'standard'`. | `SET GLOBAL compatibility = 'openmldb'` also applies to `POST /dbs/{db}`; a deployment keeps its own value. |
";

/// Appends the differences under the setting, from the lists of the conformance cases.
fn push_remaining(page: &mut String) {
    page.push_str(
        "\n## Differences under the setting\n\n\
         OpenMLDB's own test cases run under the setting, each in every mode that it specifies.\n\
         The cases with a different result are listed in crates/xtask/conformance, whose lists may only shrink; \
         the reasons are as follows.\n",
    );
    for (file, kind, title) in [
        (lists::DEVIATIONS, "differs", "Intended differences"),
        (lists::PENDING, "missing", "Not supported"),
        (lists::DEVIATIONS, "more", "Supported by Lockstep and rejected by OpenMLDB"),
    ] {
        let list = List::read(file).expect("the lists are checked in");
        push(page, format_args!("\n### {title}\n\n| what | cases |\n|---|---|\n"));
        for section in list.sections.iter().filter(|section| section.kind == kind) {
            let mut letters = section.reason.chars();
            let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
            let rest = letters.as_str().replace('|', "\\|");
            let cases = section.cases.len();
            push(page, format_args!("| {first}{rest}. | {cases} |\n"));
        }
    }
}

const INTRODUCTION: &str = "\
# Compatibility with OpenMLDB

<!-- Written by `cargo xtask reference` from crates/function/src/compatibility.rs. -->

Scripts written for OpenMLDB run unchanged.
If OpenMLDB returns a result that its users would consider wrong (a sum that wraps, a character cut in half, digits lost in a string, NULL counted as a value), Lockstep returns the right result by default.

A model that was trained on OpenMLDB's results must keep getting them.
The following setting restores them:

```sql
SET compatibility = 'openmldb';
```

The setting applies to the session; a deployment keeps the value with which it was created.
The list below is complete: everything else is the same with and without the setting.
The tests run every example with both values; `error` stands for a statement that fails.
";

fn push_differences(page: &mut String, is_restored: bool) {
    let chosen = DIFFERENCES.iter().filter(|difference| difference.is_restored == is_restored);
    for difference in chosen {
        let example = &difference.example;
        push(page, format_args!("\n### {}\n\n", difference.name));
        push(page, format_args!("- By default: {}\n", difference.standard));
        push(page, format_args!("- In OpenMLDB: {}\n", difference.openmldb));
        push(page, format_args!("- Why: {}\n", difference.why));
        page.push_str("\n| SQL | by default | in OpenMLDB |\n|---|---|---|\n");
        let over = match example.form {
            ExampleForm::Aggregate => " over the [sample](reference/functions.md)",
            ExampleForm::Expression | ExampleForm::Statements => "",
        };
        let (standard, openmldb) = (code(example.standard), code(example.openmldb));
        push(page, format_args!("| {}{over} | {standard} | {openmldb} |\n", code(example.sql)));
    }
}

/// Formats a text as code in a table cell; the empty text as a word.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    match text.as_str() {
        "" => "(empty)".to_owned(),
        text if text.contains('`') => format!("`` {text} ``"),
        text if text.starts_with(' ') || text.ends_with(' ') => format!("`` {text} ``"),
        text => format!("`{text}`"),
    }
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::{anchor, code, is_current};

    #[test]
    fn the_pages_are_what_the_declarations_say() {
        assert!(is_current(), "run `cargo xtask reference` and read what it wrote");
    }

    #[test]
    fn cells_survive_bars_and_quotes() {
        assert_eq!(code("'a' || 1"), "`'a' \\|\\| 1`");
        assert_eq!(code("`join`(x)"), "`` `join`(x) ``");
        assert_eq!(code(""), "(empty)");
        assert_eq!(anchor("Aggregates: order in time"), "aggregates-order-in-time");
    }
}
