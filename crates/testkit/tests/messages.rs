//! Messages of the programming interface, word for word; those of SQL are in tests/sql.

use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, IntervalUnit, Schema};
use lockstep_engine::{Database, Diagnostic, Session};
use lockstep_row::{Arena, DataType, Datum, Value};
use lockstep_testkit::rows::to_batch;

fn session() -> Session {
    let session = Database::in_memory().session();
    let create = "CREATE TABLE t (id INT, k STRING, ts TIMESTAMP)";
    session.execute(create).expect("the table is made");
    session.execute("INSERT INTO t VALUES (1, 'a', 1000)").expect("the row fits");
    session
}

fn check<T>(outcome: Result<T, Box<Diagnostic>>, expected: &str) {
    let rendered = outcome.err().map(|error| error.render(None));
    let first = rendered.as_deref().and_then(|text| text.lines().next());
    assert_eq!(first, Some(expected));
}

#[test]
fn one_query_is_expected() {
    let session = session();
    check(session.query("SELECT 1; SELECT 2"), "error[42601]: expected exactly one query");
    check(session.query("SHOW TABLES"), "error[42601]: this statement is not a query");
    check(
        session.prepare("SELECT 1; SELECT 2"),
        "error[42601]: parameters require a single statement",
    );
    check(
        session.prepare_request("SHOW TABLES"),
        "error[42601]: a request requires the name of a deployment or a single query",
    );
}

#[test]
fn rows_fit_their_table() {
    let session = session();
    let stray = to_batch(&[("nope".to_owned(), DataType::Int)], &[vec![Value::Int(1)]]);
    check(session.append("t", &[stray]), "error[42703]: column `nope` does not exist in the table");
    let interval = ArrowType::Interval(IntervalUnit::DayTime);
    let schema = Arc::new(Schema::new(vec![Field::new("a", interval, true)]));
    check(
        session.create_table("x", &schema),
        "error[42804]: column `a` has a type that cannot be stored",
    );
}

#[test]
fn a_request_row_fits_its_table() {
    let session = session();
    let request = session.prepare_request("SELECT id FROM t").unwrap();
    let arena = Arena::new();
    check(
        request.answer(&[Datum::Int(1)], &arena),
        "error[42804]: the request row has 1 values, but the table has 3 columns",
    );
    check(
        request.answer(&[Datum::String("a"), Datum::Null, Datum::Null], &arena),
        "error[42804]: column `id` is of type INT but the request value is of type STRING",
    );
}
