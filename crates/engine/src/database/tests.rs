//! Claims about the end of an engine, and of what is dropped.

use std::sync::Arc;

use lockstep_row::Projection;

use super::Database;

#[test]
fn the_end_of_an_engine_builds_no_index() {
    let database = Database::in_memory();
    let session = database.session();
    let script = "CREATE TABLE t (k STRING, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts));
        INSERT INTO t VALUES ('a', 1000, 1.5), ('b', 2000, 2.5);
        DEPLOY d AS SELECT k, sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
            ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)";
    session.execute(script).expect("a deployment");
    let entry = database.objects().find_table("default", "t").cloned().expect("a table");
    let table = Arc::clone(&entry.table);
    let record_bytes = || table.snapshot().projection(0).map(Projection::size);
    let before = record_bytes();
    assert!(before > Some(0), "the index includes what the deployment reads");
    drop((session, entry, database));
    assert_eq!(record_bytes(), before);
}

#[test]
fn what_was_dropped_keeps_no_rows_for_the_next_statement() {
    let database = Database::in_memory();
    let session = database.session();
    let now_ms = database.clock().now_ms();
    let old = now_ms - 10 * 24 * 3_600_000;
    let deploy = "DEPLOY d AS SELECT k, sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY k
        ORDER BY ts ROWS_RANGE BETWEEN 25d PRECEDING AND CURRENT ROW)";
    let create = "CREATE TABLE t (k STRING, ts TIMESTAMP, x DOUBLE,
        INDEX(KEY=k, TS=ts, TTL=1d, TTL_TYPE=absolute))";
    session.execute(create).expect("a table");
    session.execute(deploy).expect("a deployment keeps 25 days");
    let rows = format!("INSERT INTO t VALUES ('a', {old}, 1.5), ('a', {now_ms}, 2.5)");
    session.execute(&rows).expect("rows");
    assert_eq!(session.execute("SELECT * FROM t").expect("rows").row_count(), 2);
    // As a backup does while it describes the catalog.
    let copy = database.objects().clone();
    let (begin, begun) = std::sync::mpsc::channel();
    let reader = lockstep_host::spawn("reader", move || {
        begin.send(()).expect("the test waits");
        lockstep_host::pause(50);
        drop(copy);
    });
    begun.recv().expect("the reader has begun");
    session.execute("DROP DEPLOYMENT d").expect("it is there");
    let deleted = session.execute("DELETE FROM t WHERE k = 'a'").expect("rows of today");
    assert_eq!(deleted.rows_affected, Some(1));
    reader.expect("a thread").join().expect("it ends");
}
