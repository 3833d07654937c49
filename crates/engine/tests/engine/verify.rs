//! Verification of deployments over late rows, retention, joins and filters, and its errors.

use std::sync::Arc;

use lockstep_engine::{Database, QueryContext, Session, Verification, VerifyOptions, code};
use lockstep_host::{ManualClock, sync::Mutex};

const NOW_MS: i64 = 1_000_000;

fn session() -> Session {
    Database::with_clock(Arc::new(ManualClock::new(NOW_MS))).session()
}

/// Rows (id, k, v, ts, other) whose event times repeat, run backwards and differ in their order.
fn rows(count: i64) -> String {
    let row = |id: i64| {
        let (ts, other) = (NOW_MS - (id * 37 % 50) * 100, NOW_MS - (id * 11 % 17) * 300);
        format!("({id}, 'k{}', {}, {ts}, {other})", id % 4, id * 7 % 13)
    };
    (0..count).map(row).collect::<Vec<_>>().join(", ")
}

const COLUMNS: &str = "id INT, k STRING, v INT, ts TIMESTAMP, other TIMESTAMP";

/// Deploys the query over tables with these options and verifies it without a difference.
fn check(options: &str, query: &str) {
    let session = session();
    let script = format!(
        "CREATE TABLE t ({COLUMNS}{options}); CREATE TABLE u ({COLUMNS});
         INSERT INTO t VALUES {rows}; INSERT INTO u VALUES {rows};
         DEPLOY d AS {query}",
        rows = rows(160)
    );
    session.execute(&script).unwrap_or_else(|error| panic!("{}", error.render(Some(&script))));
    let visible = session.execute("SELECT * FROM t").expect("it reads").row_count() as u64;
    let found = session.verify("d").unwrap_or_else(|error| panic!("{}", error.render(None)));
    assert_eq!((found.requests, found.differing), (visible, 0), "{query}: {:?}", found.differences);
    assert!(found.is_ok() && found.values > 0 && found.rows_per_second() > 0.0);
    let sample = VerifyOptions { sample: Some(10), ..VerifyOptions::default() };
    let found = session.verify_with("d", &sample).expect("it replays");
    assert_eq!((found.requests, found.differing), (visible.min(10), 0));
}

const FRAMES: &str = "w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 40 PRECEDING AND CURRENT ROW), \
                      r AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 3s PRECEDING AND CURRENT ROW), \
                      x AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 3s PRECEDING AND CURRENT ROW EXCLUDE CURRENT_TIME), \
                      m AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 5s PRECEDING AND CURRENT ROW MAXSIZE 5)";

#[test]
fn windows_of_every_kind() {
    check(
        "",
        &format!(
            "SELECT id, sum(v) OVER w AS a, lag(v, 2) OVER w AS b, count(v) OVER r AS c, \
             min(v) OVER x AS d, distinct_count(v) OVER m AS e FROM t WINDOW {FRAMES}"
        ),
    );
}

#[test]
fn an_order_column_that_was_renamed() {
    check(
        "",
        "SELECT id, sum(v) OVER w AS s FROM (SELECT id, k, v, ts AS event FROM t) AS a \
         WINDOW w AS (PARTITION BY k ORDER BY event ROWS BETWEEN 40 PRECEDING AND CURRENT ROW)",
    );
}

#[test]
fn an_order_that_is_computed_or_of_another_table() {
    check(
        "",
        "SELECT id, sum(v) OVER w AS s FROM (SELECT id, k, v, -id AS event FROM t) AS a \
         WINDOW w AS (PARTITION BY k ORDER BY event ROWS BETWEEN 40 PRECEDING AND CURRENT ROW)",
    );
    check(
        "",
        "SELECT id, sum(v) OVER w AS s FROM (SELECT t.id AS id, t.k AS k, t.v AS v, u.ts AS event \
         FROM t LAST JOIN u ON t.id = u.v) AS a \
         WINDOW w AS (PARTITION BY k ORDER BY event ROWS BETWEEN 40 PRECEDING AND CURRENT ROW)",
    );
}

#[test]
fn several_event_times() {
    check(
        "",
        "SELECT id, sum(v) OVER w AS a, sum(v) OVER o AS b, count(id) OVER n AS c FROM t WINDOW \
         w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 40 PRECEDING AND CURRENT ROW), \
         o AS (PARTITION BY k ORDER BY other ROWS BETWEEN 40 PRECEDING AND CURRENT ROW), \
         n AS (PARTITION BY v ORDER BY other ROWS_RANGE BETWEEN 1s PRECEDING AND CURRENT ROW)",
    );
}

#[test]
fn retention_with_late_rows() {
    let query =
        format!("SELECT id, sum(v) OVER w AS a, count(v) OVER r AS b FROM t WINDOW {FRAMES}");
    for ttl in [
        "ttl=5, ttl_type=latest",
        "ttl=1m, ttl_type=absolute",
        "ttl=(1m, 3), ttl_type=absorlat",
        "ttl=(1m, 3), ttl_type=absandlat",
    ] {
        check(&format!(", INDEX(key=k, ts=ts, {ttl})"), &query);
    }
    check(
        ", INDEX(key=k, ts=ts, ttl=4, ttl_type=latest), INDEX(key=v, ts=other, ttl=1m, ttl_type=absolute)",
        &query,
    );
}

#[test]
fn joins_and_unions_see_what_they_see_in_batch_mode() {
    check(
        "",
        "SELECT t.id, u.v AS b FROM t LAST JOIN u ORDER BY u.ts ON t.k = u.k AND u.ts <= t.ts",
    );
    check("", "SELECT a.id, b.v AS b FROM t AS a LAST JOIN t AS b ORDER BY b.ts ON a.k = b.k");
    check(
        "",
        "SELECT a.id, b.s FROM t AS a LAST JOIN (SELECT id AS i, sum(v) OVER w AS s FROM t WINDOW \
         w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 40 PRECEDING AND CURRENT ROW)) AS b \
         ON a.id = b.i",
    );
    check(
        "",
        "SELECT id, sum(v) OVER w AS s, count(v) OVER w AS n FROM t WINDOW w AS (UNION u \
         PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 3s PRECEDING AND CURRENT ROW)",
    );
    check(
        "",
        "SELECT t.id, g.n FROM t LAST JOIN (SELECT k, count(v) AS n FROM u GROUP BY k) AS g \
         ON t.k = g.k",
    );
}

#[test]
fn filters_leave_rows_out_in_both_modes() {
    check(
        "",
        "SELECT id, s FROM (SELECT id, sum(v) OVER w AS s FROM (SELECT * FROM t WHERE v > 2) AS a \
         WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 40 PRECEDING AND CURRENT ROW)) AS b \
         WHERE s % 2 = 0",
    );
}

#[test]
fn every_deployment_of_a_table_is_verified() {
    let session = session();
    let script = format!(
        "CREATE TABLE t ({COLUMNS}); CREATE TABLE u ({COLUMNS}); CREATE TABLE e ({COLUMNS});
         INSERT INTO u VALUES {rows}; INSERT INTO t VALUES {rows};
         DEPLOY groups AS SELECT k, count(v) AS n, sum(v) AS s FROM t GROUP BY k;
         DEPLOY large AS SELECT k, v, count(id) AS n FROM t WHERE v > 2 GROUP BY k, v HAVING count(id) > 1;
         DEPLOY total AS SELECT count(id) AS n FROM t;
         DEPLOY first AS SELECT id, v FROM t ORDER BY v LIMIT 1;
         DEPLOY kinds AS SELECT DISTINCT k, v FROM t;
         DEPLOY both AS SELECT id FROM t UNION ALL SELECT id FROM u;
         DEPLOY joined AS SELECT t.id, u.id AS other FROM t JOIN u ON t.k = u.k AND u.v < 3;
         DEPLOY windowed AS SELECT id, count(id) OVER w AS n FROM (SELECT id, k, ts FROM t UNION ALL \
           SELECT id, k, ts FROM u) AS a WINDOW w AS (PARTITION BY k ORDER BY ts \
           ROWS BETWEEN 5 PRECEDING AND CURRENT ROW);
         DEPLOY nothing AS SELECT 1 AS one;
         DEPLOY empty AS SELECT id FROM e",
        rows = rows(60)
    );
    session.execute(&script).unwrap_or_else(|error| panic!("{}", error.render(Some(&script))));
    for name in ["groups", "large", "total", "first", "kinds", "both", "joined", "windowed"] {
        let found = session.verify(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Verification { rows, requests, differing, .. } = found;
        assert_eq!((rows, requests, differing), (60, 60, 0), "{name}: {:?}", found.differences);
        assert!(found.is_ok() && found.values > 0, "{name}");
        let sample = VerifyOptions { sample: Some(7), ..VerifyOptions::default() };
        assert_eq!(session.verify_with(name, &sample).expect("it replays").requests, 7, "{name}");
    }
    let error = session.verify("nothing").expect_err("there is no row");
    assert_eq!(error.code, code::FEATURE_NOT_SUPPORTED, "{error}");
    // Nothing was compared, so nothing is proved.
    let found = session.verify("empty").expect("it replays nothing");
    assert_eq!((found.requests, found.differing, found.is_ok()), (0, 0, false));
}

#[test]
fn rows_that_come_meanwhile_are_not_seen_and_progress_is_told() {
    let session = Arc::new(session());
    let script = format!(
        "CREATE TABLE t ({COLUMNS}); INSERT INTO t VALUES {};
         DEPLOY d AS SELECT id, sum(v) OVER w AS s FROM t WINDOW {FRAMES}",
        rows(500)
    );
    session.execute(&script).expect("it deploys");
    let shares: Arc<Mutex<Vec<f64>>> = Arc::default();
    let (writer, told) = (Arc::clone(&session), Arc::clone(&shares));
    let progress = move |share| {
        told.lock().push(share);
        writer.execute("DELETE FROM t WHERE id = 3").expect("it deletes");
        writer.execute("INSERT INTO t VALUES (1, 'k1', 999, 1, 1)").expect("it inserts");
    };
    let options = VerifyOptions { progress: Some(Arc::new(progress)), sample: None };
    let found = session.verify_with("d", &options).expect("it replays");
    assert_eq!((found.requests, found.differing), (500, 0));
    let shares = shares.lock();
    assert!(shares.is_sorted() && shares.len() > 3 && shares.iter().all(|share| *share <= 1.0));
}

#[test]
fn a_verification_is_cancelled() {
    let session = session();
    let script = format!(
        "CREATE TABLE t ({COLUMNS}); INSERT INTO t VALUES {}; DEPLOY d AS SELECT id FROM t",
        rows(500)
    );
    session.execute(&script).expect("it deploys");
    let context = QueryContext::new();
    let cancelling = context.clone();
    let progress = move |_| cancelling.cancel();
    let options = VerifyOptions { progress: Some(Arc::new(progress)), sample: None };
    let error = context.run(|| session.verify_with("d", &options)).expect_err("it was cancelled");
    assert_eq!(error.code, code::QUERY_CANCELED);
}
