//! Memory tables of a directory that was opened: read from their files, and put into memory while it serves.

use arrow::{
    array::{AsArray as _, RecordBatch},
    compute::concat_batches,
    datatypes::Int64Type,
};
use lockstep_engine::{Database, OpenOptions, Session, code};
use lockstep_host::{Host, Threads};

use crate::test_directory::TestDirectory;

impl TestDirectory {
    /// Opens the database without threads, so that its tables stay in files until they are loaded.
    fn open_unloaded(&self) -> Session {
        let host = Host { threads: Threads::None, ..Host::default() };
        let options = OpenOptions { host, ..OpenOptions::default() };
        Database::open_with(&self.0, &options).expect("nobody else has it open").session()
    }
}

fn run(session: &Session, statement: &str) {
    session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// Inserts rows with the numbers from `from` on, of five keys.
fn insert(session: &Session, from: usize, rows: usize) {
    let row = |n: usize| format!("('k{}', {n}, {})", n % 5, 1_000 * (n % 211));
    let values: Vec<String> = (from..from + rows).map(row).collect();
    run(session, &format!("INSERT INTO t VALUES {}", values.join(", ")));
}

const SHOWS: [&str; 5] = [
    "SELECT * FROM t",
    "SELECT k, sum(n) OVER w AS s FROM t
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "CALL d ('k3', 1, 300000)",
    "CALL long ('k3', 1, 300000)",
    "SELECT k, count(*), sum(n), max(ts) FROM t GROUP BY k ORDER BY k",
];

/// The rows of each query, however they are split into batches.
fn all_shown(session: &Session) -> Vec<RecordBatch> {
    let rows = |query: &&str| {
        let output = session.execute(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let schema = output.batches.first().expect("there are rows").schema();
        concat_batches(&schema, &output.batches).expect("they have one schema")
    };
    SHOWS.iter().map(rows).collect()
}

/// The number that a query returns.
fn number(session: &Session, query: &str) -> i64 {
    let output = session.execute(query).expect("a query");
    let batch = output.batches.first().expect("there is a row");
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

/// Makes a directory with rows in a checkpoint and behind it.
fn written(name: &str) -> (TestDirectory, Vec<RecordBatch>) {
    let directory = TestDirectory::new(name);
    let session = directory.open();
    run(&session, "CREATE TABLE t (k STRING, n INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))");
    insert(&session, 0, 3_000);
    run(
        &session,
        "DEPLOY d AS SELECT k, count(n) OVER w AS c, sum(n) OVER w AS s FROM t
         WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)",
    );
    run(
        &session,
        "DEPLOY long OPTIONS(pre_aggregation='always') AS SELECT k, sum(n) OVER w AS s FROM t
         WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 90d PRECEDING AND CURRENT ROW)",
    );
    run(&session, "CHECKPOINT");
    insert(&session, 3_000, 500);
    let before = all_shown(&session);
    (directory, before)
}

const TO_LOAD: &str = "SELECT rows_to_load FROM lockstep.storage";

#[test]
fn answers_are_the_same_before_and_after_a_table_is_in_memory() {
    let (directory, before) = written("answers");
    let session = directory.open_unloaded();
    assert_eq!(number(&session, TO_LOAD), 3_000);
    assert_eq!(session.database().opened().expect("a directory").rows, 3_500);
    assert_eq!(all_shown(&session), before);
    let mode = session.execute("SELECT storage_mode FROM lockstep.storage").expect("it is shown");
    assert!(format!("{:?}", mode.batches).contains("memory"), "{mode:?}");
    session.database().load_tables().expect("there is memory");
    assert_eq!(number(&session, TO_LOAD), 0);
    assert_eq!(all_shown(&session), before);
    let used = session.database().pre_aggregate_figures().memory_bytes;
    assert_eq!(used, 0, "nobody makes nodes without threads");
}

#[test]
fn what_is_written_before_a_table_is_in_memory_is_there_afterwards() {
    let (directory, _) = written("writes");
    let session = directory.open_unloaded();
    insert(&session, 3_500, 300);
    run(&session, "CREATE INDEX by_n ON t (n) OPTIONS (ts=ts)");
    run(&session, "DELETE FROM t WHERE k = 'k1'");
    run(&session, "CHECKPOINT");
    insert(&session, 3_800, 10);
    let before = all_shown(&session);
    assert!(number(&session, TO_LOAD) > 0, "a checkpoint loads nothing");
    session.database().load_tables().expect("there is memory");
    assert_eq!(all_shown(&session), before);
    insert(&session, 3_810, 10);
    run(&session, "CHECKPOINT");
    let before = all_shown(&session);
    drop(session);
    let session = directory.open_unloaded();
    assert_eq!(all_shown(&session), before);
    assert_eq!(number(&session, TO_LOAD), number(&session, "SELECT count(*) FROM t"));
}

#[test]
fn a_thread_puts_tables_into_memory() {
    let (directory, before) = written("thread");
    for _ in 0..2 {
        let session = directory.open();
        assert_eq!(all_shown(&session), before);
        while number(&session, TO_LOAD) > 0 {
            lockstep_host::pause(1);
        }
        assert_eq!(all_shown(&session), before);
    }
    let session = directory.open_to_read();
    while number(&session, TO_LOAD) > 0 {
        lockstep_host::pause(1);
    }
    assert_eq!(all_shown(&session), before);
}

#[test]
fn a_table_that_does_not_fit_stays_on_the_disk_and_serves() {
    let (directory, before) = written("limit");
    let session = directory.open_unloaded();
    run(&session, "SET GLOBAL max_memory = '100kB'");
    let refused = session.database().load_tables().expect_err("it does not fit");
    assert_eq!(refused.code, code::OUT_OF_MEMORY);
    assert_eq!(all_shown(&session), before);
    assert_eq!(number(&session, TO_LOAD), 3_000);
    run(&session, "SET GLOBAL max_memory = 0");
    session.database().load_tables().expect("there is memory again");
    assert_eq!(all_shown(&session), before);
    assert_eq!(number(&session, TO_LOAD), 0);
}

#[test]
fn a_table_is_moved_to_the_disk_before_it_is_in_memory() {
    let (directory, before) = written("moved");
    let session = directory.open_unloaded();
    run(&session, "ALTER TABLE t SET OPTIONS(storage_mode='disk')");
    assert_eq!(number(&session, TO_LOAD), 0);
    session.database().load_tables().expect("nothing is to be loaded");
    assert_eq!(all_shown(&session), before);
    drop(session);
    let session = directory.open_unloaded();
    let mode = session.execute("SELECT storage_mode FROM lockstep.storage").expect("it is shown");
    assert!(format!("{:?}", mode.batches).contains("disk"), "{mode:?}");
    assert_eq!(all_shown(&session), before);
    run(&session, "ALTER TABLE t SET OPTIONS(storage_mode='memory')");
    assert_eq!(number(&session, TO_LOAD), 0, "the statement has put it into memory");
    assert_eq!(all_shown(&session), before);
}
