//! Deployments as a user makes them: what DEPLOY does to the indexes of the tables.

use lockstep_engine::Database;
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
            expected.iter().map(|(key, kept)| ((*key).to_owned(), *kept)).collect();
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
