//! Continuous queries: what they follow, what they refuse, and when they give rows.

use std::time::Duration;

use lockstep_engine::{ContinuousOptions, Database, Session, code};

use crate::test_directory::TestDirectory;

const QUERY: &str = "SELECT id, sum(x) OVER w AS s FROM orders WINDOW w AS (UNION events \
    PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 10s PRECEDING AND 5s FOLLOWING)";

fn session() -> Session {
    let session = Database::in_memory().session();
    session
        .execute(
            "CREATE TABLE orders (id INT, k INT, ts TIMESTAMP, x INT, INDEX(KEY=k, TS=ts));
             CREATE TABLE events (id INT, k INT, ts TIMESTAMP, x INT, INDEX(KEY=k, TS=ts));
             CREATE VIEW some_orders AS SELECT * FROM orders WHERE x > 0",
        )
        .expect("the definitions are right");
    session
}

fn lateness(seconds: i64) -> ContinuousOptions {
    ContinuousOptions { lateness_ms: seconds * 1_000, ..ContinuousOptions::default() }
}

#[test]
fn a_row_is_given_when_no_row_of_its_frame_can_come_any_more() {
    let session = session();
    session.execute("INSERT INTO orders VALUES (1, 1, 100000, 1)").unwrap();
    let mut query = session.continuous_query(QUERY, lateness(2)).unwrap();
    let mut poll = || {
        let rows = query.poll().unwrap();
        (rows.arrivals.len(), query.watermark())
    };
    assert_eq!(poll(), (0, None), "nothing is known of the events");
    session.execute("INSERT INTO events VALUES (2, 1, 101000, 10)").unwrap();
    assert_eq!(poll(), (0, Some(98_000)));
    // It comes late, and counts.
    session.execute("INSERT INTO events VALUES (3, 1, 99000, 100)").unwrap();
    session.execute("INSERT INTO events VALUES (4, 1, 107000, 1000)").unwrap();
    session.execute("INSERT INTO orders VALUES (5, 1, 107000, 0)").unwrap();
    assert_eq!(poll(), (0, Some(105_000)), "a row of 105000 may come");
    session.execute("INSERT INTO events VALUES (6, 1, 108000, 0)").unwrap();
    session.execute("INSERT INTO orders VALUES (7, 2, 108000, 0)").unwrap();
    // What is removed was read, or is kept.
    session.execute("TRUNCATE TABLE events").unwrap();
    let rows = query.poll().unwrap();
    let text = format!("{:?}", rows.batch.columns());
    assert_eq!((rows.arrivals.len(), text.contains("111")), (1, true), "{text}");
    assert_eq!(query.end().unwrap().arrivals.len(), 2);
    let counts = query.counts();
    assert_eq!((counts.taken, counts.late, counts.joined), (7, 0, 3));
}

#[test]
fn late_rows_are_counted_and_change_nothing() {
    let session = session();
    let mut query = session.continuous_query(QUERY, lateness(2)).unwrap();
    session.execute("INSERT INTO orders VALUES (1, 1, 100000, 1), (2, 1, 97999, 1)").unwrap();
    assert!(query.wait(Duration::ZERO), "rows have come");
    let rows = query.end().unwrap();
    assert_eq!((rows.arrivals.len(), query.counts().late), (1, 1));
}

#[test]
fn queries_that_are_not_computed_row_by_row_are_refused() {
    let session = session();
    let check = |sql: &str, expected: &str, message: &str| {
        let error = session.continuous_query(sql, lateness(0)).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (expected, message), "{sql}: {error}");
    };
    let window = "WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1s PRECEDING AND \
        CURRENT ROW)";
    let unsupported = code::FEATURE_NOT_SUPPORTED;
    let refused = |sql: &str, what: &str| {
        check(sql, unsupported, &format!("{what} is not supported in a continuous query"));
    };
    refused(&format!("SELECT sum(x) OVER w FROM orders {window} ORDER BY 1"), "ORDER BY");
    refused(&format!("SELECT sum(x) OVER w FROM orders {window} LIMIT 3"), "LIMIT");
    refused(&format!("SELECT DISTINCT sum(x) OVER w FROM orders {window}"), "DISTINCT");
    refused("SELECT k, sum(x) FROM orders GROUP BY k", "GROUP BY");
    let windows = format!("SELECT k, ts, sum(x) OVER w AS s FROM orders {window}");
    let over = format!("SELECT sum(s) OVER w FROM ({windows}) AS t {window}");
    refused(&over, "a window in a subquery");
    check("SELECT id FROM orders", unsupported, "a continuous query has windows or LAST JOINs");
    let of_system = "SELECT count(*) OVER (PARTITION BY id ORDER BY started ROWS BETWEEN 1 PRECEDING \
        AND CURRENT ROW) FROM lockstep.jobs";
    check(of_system, unsupported, "a continuous query cannot read a system table");
    check("SHOW TABLES", code::SYNTAX_ERROR, "a query is expected");
    check("SELECT 1; SELECT 2", code::SYNTAX_ERROR, "one query is expected");
    let unbounded = QUERY.replace("5s FOLLOWING", "UNBOUNDED FOLLOWING");
    check(
        &unbounded,
        code::WINDOWING_ERROR,
        "a window with UNBOUNDED FOLLOWING is not final before its stream ends",
    );
    check(
        "SELECT sum(x) OVER (PARTITION BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM orders",
        code::WINDOWING_ERROR,
        "all windows of a continuous query require ORDER BY the same event time",
    );
    let twice = window.replace("(PARTITION", "(UNION events, events PARTITION");
    check(
        &format!("SELECT sum(x) OVER w FROM orders {twice}"),
        unsupported,
        "a continuous query cannot name a UNION source twice",
    );
}

#[test]
fn files_are_not_followed() {
    let (session, directory) = (session(), TestDirectory::new("continuous"));
    std::fs::create_dir(&directory.0).unwrap();
    let file = directory.0.join("rows.csv");
    let file = file.display();
    session.execute(&format!("SELECT 1 AS k, 2 AS ts INTO OUTFILE '{file}'")).unwrap();
    let sql = format!(
        "SELECT count(*) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) \
         FROM '{file}'"
    );
    let error = session.continuous_query(&sql, lateness(0)).unwrap_err();
    assert_eq!(error.message, "a continuous query cannot read files");
}

#[test]
fn a_query_that_would_keep_too_many_removed_rows_says_so() {
    let session = session();
    let options = ContinuousOptions { tail_bytes_max: 0, ..lateness(0) };
    let mut query = session.continuous_query(QUERY, options).unwrap();
    session.execute("INSERT INTO orders VALUES (1, 1, 100000, 1); TRUNCATE TABLE orders").unwrap();
    let error = query.poll().unwrap_err();
    assert_eq!(error.message, "the rows of table `default.orders` cannot be followed");
    let hint = "Begin the query again, and remove rows later than they are read.";
    assert_eq!((error.code, error.hint.as_deref()), (code::OUT_OF_MEMORY, Some(hint)));
    let again = query.poll().unwrap_err();
    assert_eq!(again.message, error.message, "it does not go on behind them");
}

#[test]
fn a_query_cannot_go_on_without_the_rows_that_its_windows_require() {
    let session = session();
    let mut query = session.continuous_query(QUERY, lateness(2)).unwrap();
    session.execute("INSERT INTO orders VALUES (1, 1, 100000, 1)").unwrap();
    session.execute("INSERT INTO events VALUES (1, 1, 100000, 1)").unwrap();
    assert_eq!(query.poll().unwrap().arrivals.len(), 0);
    let progress = query.progress();
    drop(query);
    session.execute("TRUNCATE TABLE events").unwrap();
    let mut again = session.continue_query(QUERY, lateness(2), &progress).unwrap();
    let error = again.poll().unwrap_err();
    let message =
        "rows of table `default.events` were removed that its windows or LAST JOINs require";
    assert_eq!((error.code, error.message.as_str()), (code::UNDEFINED_OBJECT, message));
    // One line each, as the list of messages that tests have seen wants them.
    #[rustfmt::skip]
    let (detail, hint) = (
        "A stream that continues reads the rows again that its windows contain, as far back as their frames and the lateness reach, and the newest row of each key for LAST JOINs.",
        "Keep the rows for longer, and create the stream again; it starts with the rows that are stored.",
    );
    assert_eq!(error.detail.as_deref(), Some(detail));
    assert_eq!(error.hint.as_deref(), Some(hint));
}

#[test]
fn filters_and_views_are_below_and_above_the_windows() {
    let session = session();
    let sql = "SELECT id + 1 AS next, s FROM (SELECT id, sum(x) OVER w AS s FROM some_orders \
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)) AS t \
        WHERE s > 3";
    let mut query = session.continuous_query(sql, lateness(0)).unwrap();
    session
        .execute(
            "INSERT INTO orders VALUES (1, 1, 1, 2), (2, 1, 2, -9), (3, 1, 3, 2), (4, 1, 4, 1)",
        )
        .unwrap();
    let given = query.end().unwrap().batch;
    let expected = session.execute(sql).unwrap().batches;
    assert_eq!(format!("{:?}", given.columns()), format!("{:?}", expected[0].columns()));
    assert_eq!(given.num_rows(), 1);
}
