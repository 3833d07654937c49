//! What each text parses to, as readable files: `tests/golden/*.txt`.
//!
//! A file is a list of cases with an empty line between them: the SQL, a line `----`, the tree or
//! the error. Lines that start with `##` are remarks. To write the files anew, run
//! `UPDATE_GOLDEN=1 cargo test -p lockstep-sql --test golden` and read the difference.

mod dump;

use std::fs;
use std::path::PathBuf;

/// Decided when the test is built; Cargo builds it again when the variable changes.
const UPDATE: bool = option_env!("UPDATE_GOLDEN").is_some();

fn check(name: &str) {
    let path = PathBuf::from(format!("tests/golden/{name}.txt"));
    let expected = fs::read_to_string(&path).expect("the golden file is checked in");
    let mut found = String::new();
    for case in expected.split("\n\n").map(str::trim_end).filter(|case| !case.is_empty()) {
        let remarks: Vec<&str> = case.lines().take_while(|line| line.starts_with("##")).collect();
        let rest: Vec<&str> = case.lines().skip(remarks.len()).collect();
        let sql: Vec<&str> = rest.iter().copied().take_while(|line| *line != "----").collect();
        let sql = sql.join("\n");
        for remark in &remarks {
            found.push_str(&format!("{remark}\n"));
        }
        if !sql.is_empty() {
            found.push_str(&format!("{sql}\n----\n{}\n", dump::script(&sql)));
        }
        found.push('\n');
    }
    let found = format!("{}\n", found.trim_end());
    if UPDATE {
        fs::write(&path, found).expect("the golden file can be written");
    } else {
        assert_eq!(found, expected, "{}", path.display());
    }
}

#[test]
fn expressions_nest_by_precedence() {
    check("expression");
}

#[test]
fn literals_have_the_types_of_their_forms() {
    check("literal");
}

#[test]
fn queries_have_their_clauses_in_order() {
    check("query");
}

#[test]
fn joins_lean_to_the_left() {
    check("join");
}

#[test]
fn windows_have_frames_and_attributes() {
    check("window");
}

#[test]
fn tables_have_columns_indexes_and_options() {
    check("definition");
}

#[test]
fn statements_are_told_apart() {
    check("statement");
}

#[test]
fn keywords_are_names_where_nothing_else_fits() {
    check("name");
}

#[test]
fn errors_point_at_the_offending_token() {
    check("error");
}

#[test]
fn forms_of_other_dialects_are_named() {
    check("unsupported");
}
