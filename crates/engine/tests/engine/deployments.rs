//! The effect of DEPLOY on the indexes of the tables.

use lockstep_engine::{Database, Session, code};
use lockstep_row::Retention;

/// The retention of each index of table `s` after a DEPLOY with these options.
fn retentions(create: &str, options: &str, window: &str) -> Vec<(String, Retention)> {
    let session = Database::in_memory().session();
    session.execute(create).expect("the definition is right");
    let sql = format!(
        "DEPLOY d OPTIONS({options}) SELECT count(k) OVER w AS n FROM s WINDOW w AS ({window})"
    );
    session.execute(&sql).expect("it deploys");
    let indexes = session.indexes("s").expect("the table exists").into_iter();
    indexes.filter(|index| index.declared).map(|i| (i.keys.join(","), i.retention)).collect()
}

#[test]
fn a_deployment_widens_the_retention_of_the_indexes_it_reads() {
    let minutes = |count: i64| Retention::Absolute { ttl_ms: count * 60_000 };
    let hour = "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h))";
    let all = "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts))";
    let none = "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP)";
    let range = |key: &str, from: &str| {
        format!(
            "PARTITION BY {key} ORDER BY ts ROWS_RANGE BETWEEN {from} PRECEDING AND CURRENT ROW"
        )
    };
    let rows = "PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW";
    let check = |create, options, window: &str, expected: &[(&str, Retention)]| {
        let expected: Vec<_> =
            expected.iter().map(|(key, retention)| ((*key).to_owned(), *retention)).collect();
        assert_eq!(retentions(create, options, window), expected, "{options} {window}");
    };
    check(hour, "", &range("k", "30m"), &[("k", minutes(60))]);
    check(hour, "", &range("k", "90s"), &[("k", minutes(60))]);
    check(hour, "", &range("k", "2h"), &[("k", minutes(120))]);
    check(hour, "range_bias=1s", &range("k", "2h"), &[("k", minutes(121))]);
    check(hour, "range_bias='inf'", &range("k", "30m"), &[("k", Retention::Forever)]);
    check(hour, "skip_index_check='true'", &range("k", "2h"), &[("k", minutes(60))]);
    let both = Retention::AbsAndLat { ttl_ms: 3_600_000, latest: 11 };
    check(hour, "rows_bias=2", rows, &[("k", both)]);
    check(hour, "", &range("j", "30m"), &[("k", minutes(60))]);
    check(hour, "", &range("j", "2h"), &[("k", minutes(60)), ("j", minutes(120))]);
    check(all, "", &range("j", "2h"), &[("k", Retention::Forever)]);
    check(none, "", &range("k", "2h"), &[]);
}

fn run(session: &Session, sql: &str) {
    session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))));
}

fn features(key: &str) -> String {
    format!(
        "SELECT count(k) OVER w AS n FROM s WINDOW w AS (PARTITION BY {key} ORDER BY ts \
         ROWS_RANGE BETWEEN 2h PRECEDING AND CURRENT ROW)"
    )
}

/// Names, whether declared, and rules of the indexes of `s`.
fn indexes(session: &Session) -> Vec<(String, bool, Retention)> {
    let indexes = session.indexes("s").expect("the table exists").into_iter();
    indexes.map(|index| (index.keys.join(","), index.declared, index.retention)).collect()
}

#[test]
fn indexes_go_with_the_last_deployment_that_needs_them() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP)");
    run(&session, "INSERT INTO s VALUES ('a', 'b', 1000)");
    run(&session, &format!("DEPLOY d1 AS {}", features("k")));
    run(&session, &format!("DEPLOY d2 AS {}", features("k")));
    run(&session, &format!("DEPLOY d3 AS {}", features("j")));
    let automatic = |key: &str| (key.to_owned(), false, Retention::Forever);
    assert_eq!(indexes(&session), [automatic("k"), automatic("j")]);
    run(&session, "DROP DEPLOYMENT d1");
    assert_eq!(indexes(&session), [automatic("k"), automatic("j")]);
    run(&session, "DROP DEPLOYMENT d2");
    assert_eq!(indexes(&session), [automatic("j")]);
    // Its place is taken again, and what reads through the other goes on.
    run(&session, &format!("DEPLOY d1 AS {}", features("k")));
    assert_eq!(session.verify("d3").unwrap().differing, 0);
    run(&session, "DROP DEPLOYMENT d3");
    run(&session, "DROP DEPLOYMENT d1");
    assert_eq!(indexes(&session), []);
}

#[test]
fn a_rule_that_a_deployment_widened_goes_back() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h))");
    let hours = |count: i64| Retention::Absolute { ttl_ms: count * 3_600_000 };
    let before = indexes(&session);
    let output = session.execute(&format!("DEPLOY d AS {}", features("k"))).unwrap();
    let widened: Vec<_> = output.warnings.iter().filter(|w| w.code == code::WARNING).collect();
    assert_eq!(widened.len(), 1, "{:?}", output.warnings);
    assert_eq!(indexes(&session), [("k".to_owned(), true, hours(2))]);
    let output = session.execute(&format!("DEPLOY e AS {}", features("k"))).unwrap();
    assert!(output.warnings.iter().all(|w| w.code != code::WARNING), "it keeps them already");
    run(&session, "DROP DEPLOYMENT d");
    assert_eq!(indexes(&session), [("k".to_owned(), true, hours(2))]);
    run(&session, "DROP DEPLOYMENT e");
    assert_eq!(indexes(&session), before);
}

#[test]
fn a_deploy_that_fails_leaves_nothing() {
    let database = Database::in_memory();
    let session = database.session();
    run(&session, "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h))");
    for at in 0..1_000 {
        run(&session, &format!("INSERT INTO s VALUES ('k{at}', 'j{at}', {at})"));
    }
    let before = indexes(&session);
    database.set_max_memory(Some(database.memory_use().used));
    let error = session.execute(&format!("DEPLOY d AS {}", features("j"))).unwrap_err();
    assert_eq!(error.code, code::OUT_OF_MEMORY);
    assert_eq!(indexes(&session), before);
    database.set_max_memory(None);
    run(&session, &format!("DEPLOY d AS {}", features("j")));
}

#[test]
fn requests_that_are_no_deployments_leave_no_index() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP)");
    let query = features("k");
    run(&session, &format!("{query} CONFIG(execute_mode = 'request', values = ('a', 'b', 1))"));
    assert_eq!(indexes(&session), []);
    // A request by the text of the query is cached for a while, and its index exists as long.
    drop(session.prepare_request(&query).unwrap());
    assert_eq!(indexes(&session).len(), 1);
    for number in 0..40 {
        session.prepare_request(&format!("SELECT {number} AS n")).unwrap();
    }
    assert_eq!(indexes(&session), []);
}

#[test]
fn an_automatic_index_is_no_reason_to_refuse_a_declared_one() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE s (k STRING, j STRING, ts TIMESTAMP)");
    run(&session, &format!("DEPLOY d AS {}", features("k")));
    run(&session, "CREATE INDEX by_k ON s (k) OPTIONS (ts = ts, ttl = 3h)");
    let declared = ("k".to_owned(), true, Retention::Absolute { ttl_ms: 3 * 3_600_000 });
    assert_eq!(indexes(&session).last(), Some(&declared));
    run(&session, "DROP DEPLOYMENT d");
    assert_eq!(indexes(&session), [declared]);
    let again = session.execute("CREATE INDEX again ON s (k) OPTIONS (ts = ts)").unwrap_err();
    assert_eq!(again.code, code::INVALID_TABLE_DEFINITION);
}
