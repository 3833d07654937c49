//! Each lint fires where it should and nowhere else.

use lockstep_diagnostic::Diagnostic;

use super::LINTS;
use crate::{Database, Session};

const WINDOW: &str = "PARTITION BY k ORDER BY ts";

fn session() -> Session {
    let session = Database::in_memory().session();
    session
        .execute(
            "CREATE TABLE t (k STRING, v INT, n INT, big BIGINT, ts TIMESTAMP);
             CREATE TABLE short (k STRING, v INT, j STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h));
             CREATE TABLE tied (k STRING, v INT, ts TIMESTAMP);
             INSERT INTO tied VALUES ('a', 1, 1000), ('a', 2, 1000);
             CREATE TABLE fixed (k STRING, v INT);
             INSERT INTO fixed VALUES ('a', 1), ('b', 2);
             CREATE TABLE changing (k STRING, v INT, ts TIMESTAMP);
             INSERT INTO changing VALUES ('a', 1, 1000), ('a', 2, 2000);",
        )
        .expect("the tables are right");
    session
}

/// The codes of the warnings of a statement, each with what it points at.
fn codes(sql: &str) -> Vec<(&'static str, String)> {
    codes_in(&session(), sql)
}

fn codes_in(session: &Session, sql: &str) -> Vec<(&'static str, String)> {
    let warnings = session.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).warnings;
    let place = |warning: &Diagnostic| {
        let span = warning.span.expect("a lint has a position");
        sql[span.start..span.end].to_owned()
    };
    warnings.iter().map(|warning| (warning.code, place(warning))).collect()
}

#[track_caller]
fn check(query: &str, expected: &[(&'static str, &str)]) {
    check_statement(&format!("EXPLAIN {query}"), expected);
}

#[track_caller]
fn check_statement(sql: &str, expected: &[(&'static str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(c, place)| (*c, (*place).to_owned())).collect();
    assert_eq!(codes(sql), expected, "{sql}");
}

fn over(table: &str, call: &str, window: &str) -> String {
    format!("SELECT {call} OVER w AS f FROM {table} WINDOW w AS ({window})")
}

#[test]
fn a_window_longer_than_the_retention() {
    let frame = |from: &str| format!("ROWS_RANGE BETWEEN {from} PRECEDING AND CURRENT ROW");
    let find = |call: &str, order: &str, frame: &str, expected: &[(&'static str, &str)]| {
        check(&over("short", call, &format!("{order} {frame}")), expected);
    };
    find("sum(v)", WINDOW, &frame("1h"), &[]);
    find("sum(v)", WINDOW, &frame("2h"), &[("01L01", &frame("2h"))]);
    find("sum(v)", WINDOW, &frame("UNBOUNDED"), &[("01L01", &frame("UNBOUNDED"))]);
    let rows = "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW";
    find("sum(v)", WINDOW, rows, &[("01L01", rows)]);
    find("sum(v)", "PARTITION BY j ORDER BY ts", &frame("2h"), &[("01L01", &frame("2h"))]);
    check(&over("t", "sum(v)", &format!("{WINDOW} {}", frame("2h"))), &[]);
    let union = format!(
        "SELECT sum(v) OVER w AS f FROM (SELECT k, v, ts FROM t) \
         WINDOW w AS (UNION (SELECT k, v, ts FROM short) {WINDOW} {})",
        frame("2h")
    );
    check(&union, &[("01L01", &frame("2h"))]);
}

#[test]
fn a_frame_that_reaches_into_the_future() {
    let frame = |end: &str| {
        over("t", "sum(v)", &format!("{WINDOW} ROWS_RANGE BETWEEN 1h PRECEDING AND {end}"))
    };
    let openmldb = session();
    openmldb.execute("SET compatibility = 'openmldb'").unwrap();
    let found = codes_in(&openmldb, &format!("EXPLAIN {}", frame("-5 PRECEDING")));
    assert_eq!(found, [("01L02", "-5 PRECEDING".to_owned())]);
    check(&frame("CURRENT ROW"), &[]);
    check(&frame("0 PRECEDING"), &[]);
}

#[test]
fn units_of_time_over_integers() {
    let frame = |order: &str, from: &str| {
        over(
            "t",
            "sum(v)",
            &format!(
                "PARTITION BY k ORDER BY {order} ROWS_RANGE BETWEEN {from} PRECEDING AND CURRENT ROW"
            ),
        )
    };
    check(&frame("n", "10s"), &[("01L03", "10s PRECEDING")]);
    check(&frame("n", "10"), &[]);
    check(&frame("n", "UNBOUNDED"), &[]);
    check(&frame("big", "10s"), &[]);
    check(&frame("ts", "10s"), &[]);
}

#[test]
fn ties_that_matter() {
    let range = "ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW";
    let rows = "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW";
    let all = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW";
    let find = |table: &str, call: &str, frame: &str, expected: &[(&'static str, &str)]| {
        check(&over(table, call, &format!("{WINDOW} {frame}")), expected);
    };
    find("tied", "sum(v)", range, &[]);
    find("tied", "sum(v)", all, &[]);
    find("tied", "sum(v)", rows, &[("01L04", "ts")]);
    find("tied", "sum(v)", &format!("{range} MAXSIZE 2"), &[("01L04", "ts")]);
    find("tied", "first_value(v)", range, &[("01L04", "ts")]);
    find("tied", "lag(v, 1)", range, &[("01L04", "ts")]);
    for table in ["changing", "t"] {
        find(table, "sum(v)", rows, &[]);
        find(table, "first_value(v)", range, &[]);
    }
    let unordered = format!("PARTITION BY k {rows}");
    check(&over("t", "sum(v)", &unordered), &[("01L04", &format!("({unordered})"))]);
    check(&over("t", "sum(v)", &format!("PARTITION BY k {all}")), &[]);
}

#[test]
fn a_join_that_ignores_time() {
    let join =
        |right: &str, rest: &str| format!("SELECT t.k, {right}.v FROM t LAST JOIN {right} {rest}");
    let fires: &[(&'static str, &str)] = &[("01L05", "LAST JOIN")];
    check(&join("changing", "ORDER BY changing.ts ON t.k = changing.k"), fires);
    check(&join("changing", "ON t.k = changing.k"), fires);
    check(&join("short", "ORDER BY short.ts ON t.k = short.k"), fires);
    check(&join("fixed", "ON t.k = fixed.k"), &[]);
    let bound = "ORDER BY changing.ts ON t.k = changing.k AND changing.ts <= t.ts";
    check(&join("changing", bound), &[]);
    let far = "ORDER BY changing.ts ON t.k = changing.k AND bigint(changing.ts) + 5 < bigint(t.ts)";
    check(&join("changing", far), &[]);
}

#[test]
fn a_join_in_the_order_of_arrival_with_a_time_in_on() {
    let join = |rest: &str| format!("SELECT t.k, changing.v FROM t LAST JOIN changing {rest}");
    let without = join("ON t.k = changing.k AND changing.ts <= t.ts");
    check(&without, &[("01L05", "LAST JOIN")]);
    let warnings = session().execute(&format!("EXPLAIN {without}")).unwrap().warnings;
    assert!(warnings[0].hint.as_ref().unwrap().contains("add ORDER BY `changing`.`ts`"));
    let descending = "ORDER BY changing.ts DESC ON t.k = changing.k AND changing.ts <= t.ts";
    check(&join(descending), &[("01L13", "changing.ts")]);
    check(&join("ORDER BY changing.v DESC ON t.k = changing.k AND changing.v <= t.v"), &[]);
}

#[test]
fn seconds_in_a_timestamp() {
    let find = |values: &str, fires: bool| {
        let session = Database::in_memory().session();
        session.execute("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP)").unwrap();
        session.execute(&format!("INSERT INTO t VALUES {values}")).unwrap();
        let range = "ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW";
        let window = over("t", "sum(v)", &format!("{WINDOW} {range}"));
        let warnings = session.execute(&format!("EXPLAIN {window}")).unwrap().warnings;
        let codes: Vec<_> = warnings.iter().map(|warning| warning.code).collect();
        assert_eq!(codes, if fires { vec!["01L12"] } else { vec![] }, "{values}");
    };
    find("('a', 1, 1704103200)", true);
    find("('a', 1, 1704103200000), ('a', 1, 1704103200)", true);
    find("('a', 1, 1704103200000), ('a', 1, 0)", true);
    find("('a', 1, 1704103200000), ('a', 1, '1979-01-01')", true);
    find("('a', 1, 1704103200000), ('a', 1, '1980-01-01'), ('a', 1, NULL)", false);
    find("('a', 1, 1000), ('a', 1, '1979-01-01')", false);
}

#[test]
fn appended_seconds_are_warned_of() {
    let session = session();
    let codes = |sql: &str| {
        let warnings = session.execute(sql).unwrap().warnings;
        warnings.iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    assert_eq!(codes("INSERT INTO short VALUES ('a', 1, 'j', 1704103200)"), ["01L11", "01L12"]);
    assert_eq!(codes("INSERT INTO t VALUES ('a', 1, 1, 1, 1704103200)"), [""; 0], "no index");
    let rows = session.execute("SELECT 'a' AS k, 1 AS v, timestamp(1704103200) AS ts").unwrap();
    session.execute("CREATE INDEX i ON t (k) OPTIONS(ts=ts)").unwrap();
    let warnings = session.append_batches("t", &rows.batches).unwrap().warnings;
    let text = "1 of 1 rows have an event time that looks like seconds";
    assert_eq!(warnings.iter().map(|one| one.message.as_str()).collect::<Vec<_>>(), [text]);
}

#[test]
fn units_of_distances() {
    let frame = |order: &str, from: &str| {
        let frame = format!("ROWS_RANGE BETWEEN {from} PRECEDING AND CURRENT ROW");
        over("t", "sum(v)", &format!("PARTITION BY k ORDER BY {order} {frame}"))
    };
    check(&frame("ts", "3600"), &[("01L14", "3600 PRECEDING")]);
    check(&frame("ts", "1M"), &[("01L14", "1M PRECEDING")]);
    check(&frame("ts", "1m"), &[]);
    check(&frame("ts", "0"), &[]);
    check(&frame("ts", "UNBOUNDED"), &[]);
    check(&frame("big", "3600"), &[]);
    check(&over("t", "sum(v)", &format!("{WINDOW} ROWS BETWEEN 3 PRECEDING AND CURRENT ROW")), &[]);
}

#[test]
fn a_label_in_a_feature() {
    let find = |items: &str, window: &str, expected: &[(&'static str, &str)]| {
        let range = "ROWS_RANGE BETWEEN 1d PRECEDING AND CURRENT ROW";
        let spec = format!("{WINDOW} {range} {window}");
        check(&format!("SELECT {items} FROM t WINDOW w AS ({spec})"), expected);
    };
    let sum = "sum(v) OVER w";
    let label = "regression_label(v) AS y";
    find(&format!("{label}, continuous({sum}) AS x"), "", &[("01L15", sum)]);
    find(&format!("{label}, continuous({sum}) AS x"), "EXCLUDE CURRENT_ROW", &[]);
    find(&format!("{label}, {sum} AS x"), "", &[("01L15", sum)]);
    find(&format!("{label}, {sum} AS x, continuous(n) AS n"), "", &[]);
    find(&format!("{label}, lag(v, 1) OVER w AS x"), "", &[]);
    find(&format!("{label}, count(k) OVER w AS x"), "", &[]);
    let direct = format!("SELECT {label}, discrete(v + 1) AS x FROM t");
    check(&direct, &[("01L15", &direct)]);
    check(&format!("SELECT {label}, discrete(n) AS x FROM t WHERE v > 1"), &[]);
    let nested = format!("SELECT y, x FROM (SELECT {label}, continuous(v) AS x FROM t)");
    check(&nested, &[("01L15", &nested)]);
}

#[test]
fn a_deployment_without_a_table() {
    check_statement("DEPLOY d AS SELECT 1 AS one", &[("01L16", "SELECT 1 AS one")]);
    check("SELECT 1 AS one", &[]);
}

#[test]
fn a_query_that_trains_warns_once_in_a_session() {
    let session = session();
    let join =
        "SELECT t.k, changing.v FROM t LAST JOIN changing ORDER BY changing.ts ON t.k = changing.k";
    let codes = |sql: &str| {
        let warnings = session.query(sql).unwrap().collect(None).unwrap().warnings;
        warnings.iter().map(|warning| warning.code).collect::<Vec<_>>()
    };
    assert_eq!(codes(join), ["01L05"]);
    assert_eq!(codes(join), [""; 0]);
    assert_eq!(codes(&format!("{join} LIMIT 1")), ["01L05"]);
    assert_eq!(codes("SELECT sum(v) AS s FROM t"), [""; 0]);
    let window =
        over("t", "sum(v)", &format!("{WINDOW} ROWS_RANGE BETWEEN 5 PRECEDING AND CURRENT ROW"));
    assert_eq!(codes(&window), [""; 0], "EXPLAIN and DEPLOY warn");
    let deployed = session.execute(&format!("DEPLOY d AS {join}")).unwrap().warnings;
    assert_eq!(deployed[0].code, "01L05");
    let training = session.training_set("d", &crate::TrainingSetOptions::default()).unwrap();
    let warnings = training.collect(None).unwrap().warnings;
    assert_eq!((warnings.len(), warnings[0].code, warnings[0].span), (1, "01L05", None));
    assert!(training.collect(None).unwrap().warnings.is_empty());
}

#[test]
fn requests_over_all_rows() {
    let find = |query: &str, fires: bool| {
        let expected: &[(&'static str, &str)] = if fires { &[("01L06", query)] } else { &[] };
        check_statement(&format!("DEPLOY d AS {query}"), expected);
        check(query, &[]);
    };
    find("SELECT sum(v) AS s FROM t", true);
    find("SELECT t.k, fixed.v FROM t LEFT JOIN fixed ON t.k = fixed.k", true);
    find("SELECT k, sum(v) AS s FROM t GROUP BY k", false);
    find("SELECT DISTINCT k FROM t", false);
}

#[test]
fn features_of_the_clock() {
    check_statement(
        "DEPLOY d AS SELECT now() AS a, NOW() > ts AS b, v FROM t WHERE current_timestamp > ts",
        &[("01L07", "current_timestamp"), ("01L07", "now()"), ("01L07", "NOW()")],
    );
    let window = format!("{WINDOW} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW");
    let query = over("t", "count_where(v, ts < now())", &window);
    // The request table has no rows in these tests.
    let empty = format!("({window})");
    check_statement(&format!("DEPLOY d AS {query}"), &[("01L07", "now()"), ("01L09", &empty)]);
    check("SELECT now() AS a FROM t", &[]);
    check_statement("DEPLOY d AS SELECT date(ts) AS a FROM t", &[]);
}

#[test]
fn the_example_of_each_lint_fires() {
    for lint in LINTS {
        let session = Database::in_memory().session();
        let output = session.execute(lint.example).unwrap_or_else(|e| panic!("{}: {e}", lint.name));
        let codes: Vec<_> = output.warnings.iter().map(|warning| warning.code).collect();
        assert_eq!(codes, [lint.code], "{}", lint.name);
    }
}

#[test]
fn the_reference_page_is_what_the_declarations_say() {
    let path = "../../docs/reference/lints.md";
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(page == super::reference(), "{path}: run `cargo xtask reference`");
}

#[test]
fn a_key_that_no_index_finds() {
    let window = |keys: &str| {
        let spec = format!(
            "PARTITION BY {keys} ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW"
        );
        format!("DEPLOY d AS {}", over("changing", "sum(v)", &spec))
    };
    check_statement(&window("upper(k)"), &[("01L17", "upper(k)")]);
    check_statement(&window("v + 1, upper(k)"), &[("01L17", "v + 1")]);
    check_statement(&window("k, v"), &[]);
    check_statement(&window("v + 1, k"), &[]);
    let union = "SELECT sum(v) OVER w AS f FROM changing WINDOW w AS (UNION (SELECT upper(k) AS k, v, ts FROM tied) \
                 PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)";
    check_statement(&format!("DEPLOY d AS {union}"), &[("01L17", "k")]);
    check(union, &[]);
    let join = |on: &str| {
        format!("DEPLOY d AS SELECT changing.k, fixed.v FROM changing LAST JOIN fixed ON {on}")
    };
    check_statement(&join("changing.k = upper(fixed.k)"), &[("01L17", "LAST JOIN")]);
    check_statement(&join("upper(changing.k) = fixed.k"), &[]);
    check_statement(&join("changing.k = upper(fixed.k) AND changing.v = fixed.v"), &[]);
}
