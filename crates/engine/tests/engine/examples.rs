//! Every example of the function library and of its differences from OpenMLDB, as SQL.

use std::{
    fs,
    path::{Path, PathBuf},
};

use lockstep_engine::{Database, Session};
use lockstep_function::{
    Compatibility, Settings,
    aggregate::{self, SAMPLE},
    compatibility::{DIFFERENCES, Example, ExampleForm},
    example_sql, scalar,
};
use lockstep_row::{Arena, arrow::ColumnReader};

const WINDOW: &str = "WINDOW w AS (PARTITION BY g ORDER BY t ROWS_RANGE BETWEEN UNBOUNDED \
                      PRECEDING AND CURRENT ROW)";

/// The text of the last row's first column; `error` where a statement is refused.
fn last_value(session: &Session, sql: &str, compatibility: Compatibility) -> String {
    let Ok(output) = session.execute(sql) else { return "error".to_owned() };
    let batch = output.batches.iter().rfind(|batch| batch.num_rows() > 0);
    let batch = batch.unwrap_or_else(|| panic!("no row: {sql}"));
    let arena = Arena::new();
    let value = ColumnReader::new(batch.column(0).as_ref()).get(batch.num_rows() - 1, &arena);
    let settings = Settings { compatibility, ..Settings::default() };
    lockstep_function::cast::print_datum(value, &settings)
}

fn session(compatibility: Compatibility) -> Session {
    let session = Database::in_memory().session();
    if compatibility == Compatibility::OpenMldb {
        session.execute("SET compatibility = 'openmldb'").expect("the setting exists");
    }
    session
}

/// A session with the first rows of the sample, in one partition.
fn sample(compatibility: Compatibility, rows: usize) -> Session {
    let session = session(compatibility);
    let columns = SAMPLE.columns.iter().map(|(name, data_type)| format!("{name} {data_type}"));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let mut script = format!("CREATE TABLE sample (g INT, {columns}, INDEX(KEY=g, TS=t));");
    for row in &SAMPLE.rows[..rows] {
        script += &format!("INSERT INTO sample VALUES (1, {});", row.join(", "));
    }
    session.execute(&script).unwrap_or_else(|error| panic!("{}", error.render(Some(&script))));
    session
}

fn over_sample(session: &Session, call: &str, compatibility: Compatibility) -> String {
    let sql = format!("SELECT {call} OVER w AS v FROM sample {WINDOW}");
    last_value(session, &sql, compatibility)
}

/// Fails with every mismatch: the query, the expected text and the found one.
fn report(mismatches: &[(String, String, String)]) {
    let lines = mismatches
        .iter()
        .map(|(sql, expected, found)| format!("{sql}: {expected:?}, found {found:?}"));
    assert!(mismatches.is_empty(), "{}", lines.collect::<Vec<_>>().join("\n"));
}

/// Records a mismatch.
fn compare(
    mismatches: &mut Vec<(String, String, String)>,
    sql: impl Into<String>,
    expected: &str,
    found: String,
) {
    if found != expected {
        mismatches.push((sql.into(), expected.to_owned(), found));
    }
}

#[test]
fn scalar_examples_hold_as_sql() {
    let mut mismatches = Vec::new();
    let session = session(Compatibility::Standard);
    for function in scalar::all().chain(scalar::operators()) {
        for (example, expected) in function.examples {
            let sql = format!("SELECT {}", example_sql(example));
            let found = last_value(&session, &sql, Compatibility::Standard);
            compare(&mut mismatches, sql, expected, found);
        }
    }
    report(&mismatches);
}

#[test]
fn aggregate_examples_hold_in_batch_mode_and_in_request_mode() {
    let mut mismatches = Vec::new();
    let batch = sample(Compatibility::Standard, 5);
    let history = sample(Compatibility::Standard, 4);
    let request = SAMPLE.rows[4].join(", ");
    for function in aggregate::all() {
        for (call, expected) in function.examples {
            let found = over_sample(&batch, call, Compatibility::Standard);
            compare(&mut mismatches, format!("{call} in batch mode"), expected, found);
            let sql = format!(
                "SELECT {call} OVER w AS v FROM sample {WINDOW} \
                 CONFIG (execute_mode='request', values=(1, {request}))"
            );
            let found = last_value(&history, &sql, Compatibility::Standard);
            compare(&mut mismatches, format!("{call} in request mode"), expected, found);
        }
    }
    report(&mismatches);
}

/// An empty folder for the files of one example.
fn fresh_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("it is this test's own");
    }
    fs::create_dir_all(&folder).expect("the target directory is writable");
    folder
}

fn run(example: &Example, compatibility: Compatibility) -> String {
    match example.form {
        ExampleForm::Expression => {
            let sql = format!("SELECT {}", example.sql);
            last_value(&session(compatibility), &sql, compatibility)
        }
        ExampleForm::Aggregate => {
            over_sample(&sample(compatibility, 5), example.sql, compatibility)
        }
        ExampleForm::Statements => {
            let folder = fresh_folder();
            let sql = example.sql.replace("{folder}", &folder.to_string_lossy());
            last_value(&session(compatibility), &sql, compatibility)
        }
    }
}

#[test]
fn every_difference_shows_in_its_example() {
    let mut mismatches = Vec::new();
    for difference in DIFFERENCES {
        let example = &difference.example;
        let found = run(example, Compatibility::Standard);
        compare(&mut mismatches, example.sql, example.standard, found);
        if difference.is_restored {
            let found = run(example, Compatibility::OpenMldb);
            let sql = format!("{} with compatibility = 'openmldb'", example.sql);
            compare(&mut mismatches, sql, example.openmldb, found);
        }
    }
    report(&mismatches);
}

#[test]
fn a_format_says_what_is_wrong_with_its_arguments() {
    let check = |sql: &str, message: &str, marked: &str| {
        let session = session(Compatibility::Standard);
        let error = session.execute(sql).expect_err("the call is wrong");
        assert_eq!(error.message, message);
        let span = error.span.expect("it points at an argument");
        assert_eq!(&sql[span.start..span.end], marked);
        assert!(error.hint.is_some(), "{sql}");
    };
    check(
        "SELECT csv(continuous(1), abs(2))",
        "function `csv`: argument 2 must be a feature",
        "abs(2)",
    );
    check(
        "SELECT libsvm(binary_label(true), regression_label(1))",
        "function `libsvm`: only one label is allowed",
        "regression_label(1)",
    );
    check(
        "SELECT csv(discrete('a', 'b'))",
        "function `discrete`: argument 2 must be an integer, not STRING",
        "'b'",
    );
    check(
        "SELECT continuous(1) + 1",
        "function `continuous`: must be an argument of gcformat, csv or libsvm, or a whole item of \
         a select list",
        "continuous(1)",
    );
    check(
        "SELECT discrete('a', 0)",
        "function `discrete`: argument 2 must be a positive constant integer",
        "0",
    );
}

#[test]
fn features_may_hold_aggregates() {
    let session = sample(Compatibility::Standard, 5);
    let line = "libsvm(binary_label(ok), continuous(sum(x) OVER w), discrete(c, 100))";
    let plain = format!("SELECT {line} AS v FROM sample {WINDOW}");
    let found = last_value(&session, &plain, Compatibility::Standard);
    assert!(found.starts_with("1:11 "), "{found}");
    let whole = "libsvm(binary_label(ok), continuous(sum(x)), discrete(c, 100))";
    assert_eq!(over_sample(&session, whole, Compatibility::Standard), found);
}
