//! Warnings of statements that write rows which have expired, and statements that fail and leave no
//! rows.

use std::{path::PathBuf, sync::Arc};

use lockstep_engine::{Database, Output, Session};
use lockstep_host::ManualClock;

/// Ten minutes past the epoch.
const NOW_MS: i64 = 600_000;

fn database() -> Database {
    Database::with_clock(Arc::new(ManualClock::new(NOW_MS)))
}

fn session_with(sql: &str) -> Session {
    let session = database().session();
    session.execute(sql).expect("it runs");
    session
}

const ONE_MINUTE: &str = "CREATE TABLE t (k STRING, v INT, ts TIMESTAMP,
    INDEX(KEY=k, TS=ts, TTL=1m, TTL_TYPE=absolute));";

fn check_expired(output: &Output, expected: &str) {
    let messages: Vec<(&str, &str)> =
        output.warnings.iter().map(|w| (w.code, w.message.as_str())).collect();
    assert_eq!(messages, [("01L11", expected)]);
}

/// A file with this text, in a folder of the process.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("lockstep-writers-{}-{name}", std::process::id()));
    std::fs::write(&path, text).expect("the scratch folder is writable");
    path
}

#[test]
fn rows_that_had_expired_are_told_of() {
    let session = session_with(ONE_MINUTE);
    let output = session.execute("INSERT INTO t VALUES ('a', 1, 0), ('a', 2, 590000);").unwrap();
    assert_eq!(output.rows_affected, Some(2));
    check_expired(&output, "1 of 2 rows had expired before they arrived");
    let output = session.execute("INSERT INTO t VALUES ('a', 3, 595000);").unwrap();
    assert!(output.warnings.is_empty());
    let path = file("old.csv", "k,v,ts\na,1,1000\nb,2,2000\nb,3,599000\n");
    let output = session.execute(&format!("LOAD DATA INFILE '{}' INTO TABLE t;", path.display()));
    check_expired(&output.unwrap(), "2 of 3 rows had expired before they arrived");
    let rows = session.execute("SELECT k, v, ts FROM t").unwrap();
    let appended = session.append_batches("t", &rows.batches).unwrap();
    assert!(appended.warnings.is_empty(), "what is shown has not expired");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_load_that_fails_leaves_nothing_and_names_the_line() {
    let database = database();
    let session = database.session();
    session.execute(ONE_MINUTE).unwrap();
    let used = database.memory_use().used;
    let mut text = "k,v,ts\n".to_owned();
    (0..20_000).for_each(|row| text += &format!("a{row},{row},599000\n"));
    let bad = file("bad.csv", &(text.clone() + "b,no,599000\n"));
    let load = |path: &PathBuf| {
        session.execute(&format!("LOAD DATA INFILE '{}' INTO TABLE t;", path.display()))
    };
    let error = load(&bad).unwrap_err();
    assert!(error.message.contains("line 20002"), "{error}");
    assert_eq!(session.execute("SELECT * FROM t").unwrap().row_count(), 0);
    assert_eq!(database.memory_use().used, used);

    let good = file("good.csv", &text);
    database.set_max_memory(Some(used + 200_000));
    assert_eq!(load(&good).unwrap_err().code, "53200");
    assert_eq!(database.memory_use().used, used);
    database.set_max_memory(None);
    assert_eq!(load(&good).unwrap().rows_affected, Some(20_000));
    assert_eq!(session.execute("SELECT * FROM t").unwrap().row_count(), 20_000);
    [bad, good].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn a_dropped_table_gives_its_memory_back_whoever_has_it() {
    let database = database();
    let session = database.session();
    let used = database.memory_use().used;
    session.execute(ONE_MINUTE).unwrap();
    let empty = database.memory_use().used - used;
    session.execute("CREATE TABLE other (k STRING);").unwrap();
    for v in 0..1_000 {
        session.execute(&format!("INSERT INTO t VALUES ('a{v}', {v}, 599000);")).unwrap();
    }
    let appender = session.appender("t").unwrap();
    session.execute("DROP TABLE t;").unwrap();
    // Other tests hold it up for a moment.
    while !lockstep_table::reclaim() {
        std::thread::yield_now();
    }
    let left = database.memory_use().used - used;
    assert!(left <= 3 * empty, "{left} bytes are left of {empty} and the rows");
    let row = [lockstep_row::Datum::String("a"), lockstep_row::Datum::Int(1)];
    assert_eq!(appender.append([row]).unwrap_err().code, "55000");
}

const WRITERS: i32 = 3;
const ROWS: i32 = 400;

/// Writes the rows of a writer, and now and then none to two tables.
fn write(session: &Session, writer: i32) {
    for row in 0..ROWS {
        let sql = format!("INSERT INTO t (w, n, ts) VALUES ({writer}, {row}, {row})");
        session.execute(&sql).expect("it is done");
        if row % 50 == 0 {
            let rows = session.execute("SELECT n, w FROM t LIMIT 0").expect("it is done").batches;
            let of = |table| lockstep_engine::TableBatches { table, batches: &rows };
            session.append_tables(&[of("t"), of("t")], None).expect("it is done");
        }
    }
}

#[test]
fn no_row_is_lost_while_columns_change() {
    let database = database();
    let session = database.session();
    session
        .execute(
            "CREATE TABLE t (w INT, n INT, ts TIMESTAMP, INDEX(KEY=w, TS=ts));
             CREATE TABLE other (n INT)",
        )
        .unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let session = database.session();
            scope.spawn(move || write(&session, writer));
        }
        let session = database.session();
        scope.spawn(move || {
            for change in 0..40 {
                let sql = match change % 2 {
                    0 => "ALTER TABLE t ADD COLUMN extra INT DEFAULT 5",
                    _ => "ALTER TABLE t DROP COLUMN extra",
                };
                session.execute(sql).unwrap();
            }
        });
    });
    // Each writer's rows are there once, in the order in which it wrote them.
    let found = session.execute("SELECT w, n FROM t").unwrap();
    assert_eq!(found.row_count(), usize::try_from(WRITERS * ROWS).unwrap());
    let counted = "SELECT w, count(*) AS c, sum(n) AS s FROM t GROUP BY w HAVING count(*) = 400";
    assert_eq!(session.execute(counted).unwrap().row_count(), 3);
    let ordered = "SELECT w FROM (SELECT w, n, lag(n, 1) OVER x AS before FROM t
                   WINDOW x AS (PARTITION BY w ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW))
                   WHERE before >= n";
    assert_eq!(session.execute(ordered).unwrap().row_count(), 0);
}
