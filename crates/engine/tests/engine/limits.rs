//! Calls that end early: cancelled, out of time, or out of memory.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{AsArray, RecordBatch},
    compute::concat_batches,
    datatypes::Int64Type,
};
use lockstep_engine::{Database, Output, Session, code};
use lockstep_host::{Clock, QueryContext};
use lockstep_row::Datum;

/// A clock that goes on by a millisecond whenever somebody looks at it.
#[derive(Debug, Default)]
struct SteppingClock(AtomicU64);

impl Clock for SteppingClock {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic_ns(&self) -> u64 {
        (1 + self.0.fetch_add(1, Ordering::Relaxed)) * 1_000_000
    }
}

/// A session over a table with so many rows of one key.
fn session_with(clock: Arc<dyn Clock>, rows: i64) -> Session {
    let session = Database::with_clock(clock).session();
    session
        .execute("CREATE TABLE t (k STRING, v BIGINT, ts BIGINT); CREATE TABLE u (k STRING, v BIGINT, ts BIGINT)")
        .expect("the tables are made");
    append(&session, "t", rows).expect("the rows fit");
    session
}

fn append(session: &Session, table: &str, rows: i64) -> lockstep_engine::Result<u64> {
    let row = |v| [Datum::String("a"), Datum::BigInt(v), Datum::BigInt(v)];
    session.appender(table)?.append((0..rows).map(row))
}

fn count(session: &Session, table: &str) -> String {
    let output = session.execute(&format!("SELECT count(*) AS n FROM {table}")).expect("it counts");
    format!("{:?}", output.batches[0].column(0))
}

fn shown(session: &Session, sql: &str) -> String {
    format!("{:?}", session.execute(sql).expect("it is shown").batches)
}

/// Makes a context that is cancelled at a number of checkpoints.
fn cancelling(checkpoints: u64) -> QueryContext {
    let count = AtomicU64::new(0);
    let should_end = move || count.fetch_add(1, Ordering::Relaxed) + 1 >= checkpoints;
    QueryContext::polling(Arc::new(SteppingClock::default()), 1, should_end)
}

const WINDOW: &str = "SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts \
                      ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)";

/// 400 million pairs.
const JOIN: &str = "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.k = b.k AND a.v + b.v < 0";

fn check(sql: &str, prepare: &str) {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
    session.execute(prepare).expect("what the statement needs");
    let error = cancelling(1).run(|| session.execute(sql)).expect_err("it was cancelled");
    assert_eq!((error.code, error.message.as_str()), ("57014", "the statement was cancelled"));
    // The session goes on.
    assert!(count(&session, "t").contains("20000"));
}

#[test]
fn statements_of_every_kind_are_cancelled() {
    check(JOIN, "SELECT 1");
    check("SELECT 1; SELECT 2; SELECT 3", "SELECT 1");
    check(
        "SELECT a.v FROM t AS a LAST JOIN t AS b ORDER BY b.v ON a.k = b.k AND a.v + b.v < 0",
        "SELECT 1",
    );
    check(&format!("SELECT * FROM ({WINDOW}) AS a ORDER BY s"), "SELECT 1");
}

/// A statement that is long is cancelled while it is read and planned, before it reads a row.
#[test]
fn planning_is_cancelled_by_the_size_of_the_statement() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 0);
    let list = |count: usize, item: &dyn Fn(usize) -> String| -> String {
        (0..count).map(item).collect::<Vec<_>>().join(", ")
    };
    let sums = list(4_000, &|at| format!("sum(v + {at}) AS s{at}"));
    let windows = list(4_000, &|at| format!("sum(v + {at}) OVER w AS s{at}"));
    let columns = list(4_000, &|at| format!("c{at} INT"));
    let joins: String = (0..100).map(|at| format!(" JOIN u AS u{at} ON t.k = u{at}.k")).collect();
    for (sql, checkpoints) in [
        (format!("SELECT {sums} FROM t"), 60),
        (format!("SELECT {sums} FROM t GROUP BY k"), 60),
        (format!("EXPLAIN SELECT {sums} FROM t"), 60),
        (
            format!(
                "SELECT {windows} FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
            ),
            60,
        ),
        (
            format!(
                "DEPLOY d AS SELECT {windows} FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
            ),
            60,
        ),
        (format!("CREATE VIEW w AS SELECT {sums} FROM t"), 60),
        (format!("CREATE TABLE w ({columns})"), 60),
        (format!("SELECT v FROM t WHERE v IN ({})", list(20_000, &|at| at.to_string())), 60),
        (format!("SELECT count(*) AS n FROM t{joins}"), 300),
        (format!("EXPLAIN SELECT count(*) AS n FROM t{joins}"), 20),
    ] {
        let cancelled = cancelling(checkpoints).run(|| session.execute(&sql));
        let code = cancelled.map_err(|error| error.code).err();
        assert_eq!(code, Some(code::QUERY_CANCELED), "{sql:.60}");
    }
    assert_eq!(
        session.execute("SELECT * FROM w").expect_err("nothing was made").code,
        code::UNDEFINED_TABLE
    );
}

#[test]
fn requests_and_verify_are_cancelled() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 5_000);
    session.execute(&format!("DEPLOY d AS {WINDOW}")).expect("it deploys");
    let rows = session.execute("SELECT * FROM t").expect("it reads").batches;
    let code_of = |checkpoints| {
        cancelling(checkpoints).run(|| session.request("d", &rows)).map_err(|error| error.code)
    };
    assert_eq!(code_of(1).map(|_| ()), Err(code::QUERY_CANCELED));
    // No row of the source comes out of its filter, so nothing above asks.
    let none = "SELECT a.k, b.v FROM t AS a LAST JOIN (SELECT k, v, ts FROM t WHERE v < 0) AS b \
                ORDER BY b.ts ON a.k = b.k";
    session.execute(&format!("DEPLOY none AS {none}")).expect("it deploys");
    let one = rows[0].slice(0, 1);
    let outcome = cancelling(1).run(|| session.request("none", std::slice::from_ref(&one)));
    assert_eq!(outcome.expect_err("it was cancelled").code, code::QUERY_CANCELED);
    assert_eq!(session.request("none", &[one]).expect("nobody cancels").batches[0].num_rows(), 1);
    let verified = cancelling(1).run(|| session.verify("d"));
    assert_eq!(verified.expect_err("it was cancelled").code, code::QUERY_CANCELED);
}

#[test]
fn a_write_that_is_interrupted_leaves_nothing_and_one_that_is_done_stays() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 10);
    let error = cancelling(1).run(|| append(&session, "t", 5_000)).expect_err("it was cancelled");
    assert_eq!(error.code, code::QUERY_CANCELED);
    assert!(count(&session, "t").contains("10"));
    let values: Vec<String> = (0..2_000).map(|v| format!("('a', {v}, {v})")).collect();
    let insert = format!("INSERT INTO t VALUES {}", values.join(", "));
    let context = cancelling(1);
    assert!(context.run(|| session.execute(&insert)).is_err());
    assert!(!context.has_committed());
    assert!(count(&session, "t").contains("10"));
    // The first statement is done, and says so.
    let context = QueryContext::new();
    let script = format!("INSERT INTO u VALUES ('b', 1, 1); {JOIN}");
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
    session.execute("SET statement_timeout = '50ms'").expect("it is set");
    let error = context.run(|| session.execute(&script)).expect_err("it takes too long");
    assert_eq!(error.code, code::QUERY_CANCELED);
    assert!(context.has_committed());
    session.execute("SET statement_timeout = 0").expect("it is set");
    assert!(count(&session, "u").contains('1'));
}

#[test]
fn what_reads_the_whole_table_to_change_it_is_cancelled_and_has_changed_nothing() {
    for sql in ["CREATE INDEX i ON t (k)", "DELETE FROM t WHERE v < 100"] {
        let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
        let context = cancelling(4);
        let error = context.run(|| session.execute(sql)).expect_err("it was cancelled");
        assert_eq!(error.code, code::QUERY_CANCELED, "{sql}");
        assert!(!context.has_committed(), "{sql}");
        assert!(count(&session, "t").contains("20000"), "{sql}");
        let context = QueryContext::new();
        context.run(|| session.execute(sql)).expect("nothing is in its way");
        assert!(context.has_committed(), "{sql}");
    }
}

/// So many rows that another thread builds the index: the one that called asks meanwhile.
#[test]
fn an_index_that_is_built_in_the_background_is_cancelled() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 200_000);
    let before = shown(&session, "SHOW INDEXES FROM t");
    let error = cancelling(1).run(|| session.execute("CREATE INDEX i ON t (k)"));
    assert_eq!(error.expect_err("it was cancelled").code, code::QUERY_CANCELED);
    assert_eq!(shown(&session, "SHOW INDEXES FROM t"), before);
    session.execute("CREATE INDEX i ON t (k)").expect("nothing is in its way");
    assert_ne!(shown(&session, "SHOW INDEXES FROM t"), before);
}

#[test]
fn a_cancelled_export_leaves_no_file() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 40_000);
    let name = format!("lockstep-limits-{}", std::process::id());
    let folder: PathBuf = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a folder can be made");
    for file in ["rows.csv", "rows.parquet"] {
        // Later and later, until it is too late.
        let mut checkpoints = 1;
        let path = folder.join(file);
        let sql = format!("SELECT * FROM t INTO OUTFILE '{}'", path.display());
        loop {
            match cancelling(checkpoints).run(|| session.execute(&sql)) {
                Err(error) => assert_eq!(error.code, code::QUERY_CANCELED),
                Ok(output) => {
                    assert_eq!(output.rows_affected, Some(40_000));
                    break;
                }
            }
            let left = fs::read_dir(&folder).expect("it is there").count();
            assert_eq!(left, usize::from(file == "rows.parquet"), "{checkpoints}");
            checkpoints += 1;
        }
        assert!(checkpoints > 2, "it was cancelled while it wrote");
    }
    fs::remove_dir_all(folder).expect("it was made above");
}

#[test]
fn a_statement_and_a_request_end_after_their_time() {
    let session = session_with(Arc::new(SteppingClock::default()), 20_000);
    // With them a request does not take long.
    session
        .execute(&format!("DEPLOY d OPTIONS(pre_aggregation='off') AS {WINDOW}"))
        .expect("it deploys");
    let rows = session.execute("SELECT * FROM t").expect("it reads").batches;
    session.execute("SET statement_timeout = '1s'").expect("it is set");
    let error = session.request("d", &rows).expect_err("it takes too long");
    assert_eq!(error.code, code::QUERY_CANCELED);
    assert_eq!(error.message, "the statement ran longer than statement_timeout (1000 ms)");
    let limits = session.limits();
    let prepared = session.prepare_request("d").expect("it is deployed");
    session.execute("SET statement_timeout = '3ms'").expect("it is set");
    assert_eq!(session.execute(JOIN).expect_err("it takes too long").code, code::QUERY_CANCELED);
    // A request by itself goes by the limits that it is given.
    let arena = lockstep_row::Arena::new();
    let row = [Datum::String("a"), Datum::BigInt(1), Datum::BigInt(50_000)];
    assert!(limits.run(|| prepared.answer(&row, &arena)).is_ok());
    let outcome = session.limits().run(|| prepared.answer(&row, &arena));
    assert_eq!(outcome.expect_err("it takes too long").code, code::QUERY_CANCELED);
    session.execute("SET statement_timeout = 0").expect("it is set");
    assert!(session.limits().run(|| prepared.answer(&row, &arena)).is_ok());
}

#[test]
fn a_query_goes_by_the_memory_limit_of_its_session() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
    session.execute("SET memory_limit = '200kB'").expect("it is set");
    for sql in [WINDOW, "SELECT * FROM t", "SELECT v, count(*) AS n FROM t GROUP BY v"] {
        let error = session.execute(sql).expect_err("it needs more");
        assert_eq!(
            (error.code, error.message.as_str()),
            ("53200", "the query exceeds its memory limit")
        );
        assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("memory_limit")));
    }
    session.execute("SET memory_limit = '100MB'").expect("it is set");
    assert_eq!(session.execute(WINDOW).expect("it fits").row_count(), 20_000);
    session.execute("SET GLOBAL memory_limit = '1kB'").expect("it is set");
    assert_eq!(session.execute(WINDOW).expect("the session has its own").row_count(), 20_000);
}

#[test]
fn a_window_without_a_beginning_needs_no_memory_for_all_rows_of_a_key() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 60_000);
    let query = |calls: &str, excluded: &str| {
        format!(
            "SELECT sum(s) AS s, max(lo) AS lo, min(hi) AS hi, sum(d) AS d FROM (SELECT {calls} FROM t \
             WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND \
             CURRENT ROW {excluded}), short AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING \
             AND CURRENT ROW)) AS q"
        )
    };
    let few = "sum(v) OVER w AS s, min(v) OVER short AS lo, max(v) OVER w AS hi, \
               distinct_count(v % 10) OVER w AS d";
    for excluded in ["", "EXCLUDE CURRENT_TIME", "EXCLUDE CURRENT_ROW"] {
        let query = query(few, excluded);
        session.execute("SET memory_limit = 0").expect("it is set");
        let expected = session.execute(&query).expect("it fits");
        for limit in ["4MB", "2MB", "1MB"] {
            session.execute(&format!("SET memory_limit = '{limit}'")).expect("it is set");
            let found = session.execute(&query).unwrap_or_else(|error| panic!("{limit}: {error}"));
            assert_eq!(found.batches, expected.batches, "{limit} {excluded}");
        }
    }
    // Results that are longer than a slice reckons with, from the middle on: states have rows by then.
    let long = "a text that is longer than others are ".repeat(4);
    let texts = format!(
        "max(if(v < 30000, string(v + 10000000), concat('{long}', string(v + 10000000)))) OVER w AS s, \
         min(v) OVER w AS lo, max(v) OVER w AS hi, count(v) OVER w AS d"
    );
    let query_of_texts = query(&texts, "").replace("sum(s) AS s", "max(s) AS s");
    session.execute("SET memory_limit = 0").expect("it is set");
    let expected = session.execute(&query_of_texts).expect("it fits");
    for limit in ["16MB", "8MB", "6MB", "4MB"] {
        session.execute(&format!("SET memory_limit = '{limit}'")).expect("it is set");
        let found =
            session.execute(&query_of_texts).unwrap_or_else(|error| panic!("{limit}: {error}"));
        assert_eq!(found.batches, expected.batches, "{limit}");
    }
    session.execute("SET memory_limit = '1MB'").expect("it is set");
    // Its state has to fit.
    let values = few.replace("v % 10", "v");
    let error = session.execute(&query(&values, "")).expect_err("the values do not fit");
    assert_eq!(error.code, "53200", "{error:?}");
    session.execute("SET memory_limit = '16MB'").expect("it is set");
    assert_eq!(session.execute(&query(&values, "")).expect("they fit").row_count(), 1);
}

#[test]
fn groups_that_do_not_fit_come_in_the_order_of_their_first_rows() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
    // Neighbours are of groups far apart; the second rows of groups come in another order.
    let query = "SELECT g, n, f, l FROM (SELECT g, count(v) AS n, first_value(v) AS f, max(v) AS l \
         FROM (SELECT v, v * 7919 % 15013 AS g FROM t) AS numbered GROUP BY g) AS q LIMIT 9 OFFSET 7000";
    let expected = session.execute(query).expect("it fits");
    assert_eq!(expected.row_count(), 9);
    for limit in ["1MB", "600kB"] {
        session.execute(&format!("SET memory_limit = '{limit}'")).expect("it is set");
        let found = session.execute(query).unwrap_or_else(|error| panic!("{limit}: {error}"));
        assert_eq!(found.batches, expected.batches, "{limit}");
    }
}

#[test]
fn less_memory_changes_neither_the_rows_nor_their_order() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 20_000);
    let source = "(SELECT v, v * 7919 % 15013 AS g, v % 7 AS few, concat('a text of some length ', string(v)) AS s FROM t)";
    let queries = [
        format!("SELECT v, s FROM {source} AS x ORDER BY few"),
        format!("SELECT v FROM {source} AS x ORDER BY few DESC LIMIT 900 OFFSET 5000"),
        format!("SELECT s, count(*) AS n FROM {source} AS x GROUP BY s"),
        format!("SELECT DISTINCT g, s FROM {source} AS x"),
        format!(
            "SELECT g, s FROM {source} AS x UNION SELECT g, s FROM {source} AS y WHERE few = 2"
        ),
        format!(
            "SELECT x.v AS a, y.v AS b, y.s FROM {source} AS x LEFT JOIN {source} AS y ON x.g = y.v"
        ),
        format!("SELECT x.v AS a, y.s FROM {source} AS x JOIN {source} AS y ON x.g = y.g"),
        format!(
            "SELECT x.v AS a, y.v AS b FROM {source} AS x FULL JOIN \
             (SELECT * FROM {source} AS z WHERE few < 3) AS y ON x.g = y.g AND x.few = y.few"
        ),
        // Many right rows of few keys, few right rows, and both, one above the other; below a window.
        format!(
            "SELECT x.v AS a, y.v AS b, y.s FROM {source} AS x LAST JOIN {source} AS y \
             ORDER BY y.v ON x.few = y.few AND y.v < x.g"
        ),
        format!(
            "SELECT x.v AS a, y.g AS b FROM {source} AS x LAST JOIN (SELECT * FROM {source} AS z \
             WHERE g < 100) AS y ORDER BY y.g ON x.few = y.few AND y.g < x.v AND y.v + x.v <> 20000"
        ),
        format!(
            "SELECT x.v AS a, y.v AS b, z.s FROM {source} AS x LAST JOIN {source} AS y ON x.g = y.v \
             LAST JOIN (SELECT * FROM {source} AS w WHERE v < 50) AS z ORDER BY z.v ON x.few = z.few"
        ),
        format!(
            "SELECT v, sum(b) OVER w AS total, count(s) OVER w AS n FROM (SELECT x.v, x.few, y.v AS b, \
             y.s FROM {source} AS x LAST JOIN {source} AS y ORDER BY y.v ON x.g = y.g AND y.v < x.v) \
             AS q WINDOW w AS (PARTITION BY few ORDER BY v ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
        ),
    ];
    for query in &queries {
        session.execute("SET memory_limit = 0").expect("it is set");
        let expected = session.execute(query).expect("it fits");
        assert!(expected.row_count() >= 900, "{query}");
        let mut found = 0;
        for limit in ["8MB", "5MB", "4MB", "3MB", "2MB", "1500kB", "1MB"] {
            session.execute(&format!("SET memory_limit = '{limit}'")).expect("it is set");
            match session.execute(query) {
                Ok(output) => {
                    found += 1;
                    assert_eq!(rows_of(&output), rows_of(&expected), "{limit}: {query}");
                }
                Err(error) => {
                    assert_eq!(error.code, "53200", "{limit}: {query}: {error:?}");
                    let detail = error.detail.as_deref().unwrap_or_default();
                    let is_result = detail.ends_with(" for result.");
                    assert!(is_result, "only the result must fit: {limit}: {query}: {error:?}");
                }
            }
        }
        assert!(found > 1, "{query}: it finishes within some limits");
    }
}

/// Left rows of several batches, of which several threads join one each.
#[test]
fn left_rows_leave_in_their_order_with_the_right_rows_before_them() {
    let session = session_with(Arc::new(lockstep_host::SystemClock::new()), 60_000);
    let query = "SELECT x.v AS a, y.v AS b FROM t AS x LAST JOIN t AS y ORDER BY y.v \
                 ON x.k = y.k AND y.v < x.v";
    for limit in ["0", "20MB", "4MB"] {
        session.execute(&format!("SET memory_limit = '{limit}'")).expect("it is set");
        let found = rows_of(&session.execute(query).expect("it fits, or goes to disk"));
        let column = |at: usize| -> Vec<Option<i64>> {
            found.column(at).as_primitive::<Int64Type>().iter().collect()
        };
        assert_eq!(column(0), (0..60_000).map(Some).collect::<Vec<_>>(), "{limit}");
        let before = |v: i64| (v > 0).then(|| v - 1);
        assert_eq!(column(1), (0..60_000).map(before).collect::<Vec<_>>(), "{limit}");
    }
}

/// Returns the rows of a result as one batch.
fn rows_of(output: &Output) -> RecordBatch {
    let schema = output.batches.first().expect("a result has a batch").schema();
    concat_batches(&schema, &output.batches).expect("they have one schema")
}
