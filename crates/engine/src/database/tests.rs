//! Claims about the end of an engine.

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
