//! A database in a directory: what was acknowledged is there when it is opened again.

use std::{path::PathBuf, sync::Arc};

use lockstep_engine::{Database, OpenOptions, Session, code};
use lockstep_host::file::SystemDisk;
use lockstep_wal::{Access, DatabaseDirectory, Group, Log, Options};

/// A directory of a test, removed when it is dropped.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-directory-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(std::fs::remove_dir_all(&path));
        Self(path)
    }

    fn open(&self) -> Session {
        Database::open(&self.0).expect("nobody else has it open").session()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Every kind of statement that changes something, in an order in which each has an effect.
const STATEMENTS: &[&str] = &[
    "CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest)) OPTIONS(DURABILITY='os')",
    "INSERT INTO t VALUES ('a', 1, 1.5, 1000), ('a', 2, 2.5, 2000), ('b', 3, NULL, 3000)",
    "CREATE DATABASE other",
    "CREATE TABLE other.u (k STRING NOT NULL, v INT DEFAULT 7)",
    "INSERT INTO other.u (k) VALUES ('x')",
    "DEPLOY d AS SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
        ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)",
    "DEPLOY e AS SELECT n, count(k) OVER w AS c FROM t WINDOW w AS (PARTITION BY n ORDER BY ts
        ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "CREATE PROCEDURE p (k STRING, n INT, v DOUBLE, ts TIMESTAMP) BEGIN SELECT k, v FROM t; END",
    "INSERT INTO t VALUES ('a', 2, 4.0, 1500)",
    "DELETE FROM t WHERE k = 'b'",
    "CREATE INDEX i ON t (n) OPTIONS (ts=ts, ttl=0m, ttl_type=absolute)",
    "CREATE USER alice OPTIONS(password='secret')",
    "GRANT SELECT ON *.* TO alice",
    "SET GLOBAL statement_timeout = '30s'",
    "CREATE TABLE gone (k STRING)",
    "INSERT INTO gone VALUES ('x')",
    "DROP TABLE gone",
    "TRUNCATE TABLE other.u",
    "INSERT INTO other.u VALUES ('z', 1)",
    "CREATE TABLE kept (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1, TTL_TYPE=latest))",
    "INSERT INTO kept VALUES ('a', 1), ('a', 2)",
    // Widens the rule: the row that had expired does not come back.
    "DEPLOY f AS SELECT count(k) OVER w AS c FROM kept WINDOW w AS (PARTITION BY k ORDER BY ts
        ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)",
    "INSERT INTO kept VALUES ('a', 3)",
    "DEPLOY gone AS SELECT k FROM t",
    "DROP DEPLOYMENT gone",
    "ALTER TABLE t ADD offline_path 'nowhere.parquet'",
];

/// What shows all of it.
const SHOWS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT * FROM other.u",
    "SELECT * FROM kept",
    "SHOW CREATE TABLE t",
    "SHOW CREATE TABLE other.u",
    "SHOW INDEXES FROM t",
    "SHOW INDEXES FROM kept",
    "SHOW DEPLOYMENTS",
    "SHOW DEPLOYMENT d",
    "SHOW DEPLOYMENT e",
    "SHOW CREATE PROCEDURE p",
    "SHOW TABLES",
    "SHOW DATABASES",
    "SHOW GLOBAL VARIABLES",
    "SHOW USERS",
    "SHOW GRANTS FOR alice",
    "SHOW JOBS",
    "CALL d ('a', 1, 1.0, 2500)",
    "CALL e ('a', 2, 2.5, 2500)",
    "CALL f ('a', 9)",
];

fn shown(session: &Session) -> Vec<String> {
    let show = |sql: &&str| {
        let output = session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        format!("{sql}: {:?}", output.batches)
    };
    SHOWS.iter().map(show).collect()
}

fn run(session: &Session, statement: &str) {
    session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

/// Runs all statements, and `after` behind each; compares what is shown before and after reopening.
fn check(name: &str, after: impl Fn(usize, Session, &TestDirectory) -> Session) {
    let directory = TestDirectory::new(name);
    let in_memory = Database::in_memory().session();
    let mut session = directory.open();
    for (at, statement) in STATEMENTS.iter().enumerate() {
        run(&session, statement);
        run(&in_memory, statement);
        session = after(at, session, &directory);
    }
    let before = shown(&session);
    drop(session);
    for _ in 0..2 {
        assert_eq!(shown(&directory.open()), before);
    }
    let is_alike = |sql: &&String| {
        // The variables of a database in memory have another durability.
        !sql.starts_with("SHOW GLOBAL VARIABLES")
    };
    let in_memory = shown(&in_memory);
    let pairs = before.iter().zip(&in_memory).filter(|(sql, _)| is_alike(sql));
    pairs.for_each(|(stored, in_memory)| assert_eq!(stored, in_memory));
}

#[test]
fn everything_is_back_from_the_log() {
    check("log", |_, session, _| session);
}

#[test]
fn everything_is_back_from_a_checkpoint() {
    check("checkpoint", |at, session, _| {
        if at + 1 == STATEMENTS.len() {
            run(&session, "CHECKPOINT");
        }
        session
    });
}

#[test]
fn everything_is_back_from_a_checkpoint_and_the_log_behind_it() {
    for every in [1, 2, 5] {
        check(&format!("checkpoints-{every}"), |at, session, _| {
            if at % every == 0 {
                run(&session, "CHECKPOINT");
            }
            session
        });
    }
}

#[test]
fn a_database_may_be_opened_again_after_any_statement() {
    check("reopened", |at, session, directory| {
        if at % 3 == 1 {
            run(&session, "CHECKPOINT");
        }
        drop(session);
        directory.open()
    });
}

#[test]
fn a_backup_is_a_database_as_it_was() {
    let directory = TestDirectory::new("backup-source");
    let copy = TestDirectory::new("backup");
    let session = directory.open();
    for (at, statement) in STATEMENTS.iter().enumerate() {
        run(&session, statement);
        if at % 7 == 3 {
            run(&session, "CHECKPOINT");
        }
    }
    let before = shown(&session);
    run(&session, &format!("BACKUP TO '{}'", copy.0.display()));
    run(&session, "INSERT INTO other.u VALUES ('later', 2)");
    for _ in 0..2 {
        let copied = copy.open();
        assert_eq!(shown(&copied), before);
    }
    let refused = session.execute(&format!("BACKUP TO '{}'", copy.0.display())).unwrap_err();
    assert_eq!(refused.code, code::DUPLICATE_FILE, "{refused:?}");
    run(&copy.open(), "INSERT INTO other.u VALUES ('more', 3)");
}

#[test]
fn who_only_reads_writes_nothing() {
    let directory = TestDirectory::new("read-only");
    let session = directory.open();
    STATEMENTS.iter().for_each(|statement| run(&session, statement));
    let before = shown(&session);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let in_use = Database::open_with(&directory.0, &options).unwrap_err();
    assert_eq!(in_use.code, code::DATABASE_IN_USE, "{in_use:?}");
    assert_eq!(Database::open(&directory.0).unwrap_err().code, code::DATABASE_IN_USE);
    drop(session);
    let readers = [(); 2].map(|()| Database::open_with(&directory.0, &options).unwrap().session());
    for reader in &readers {
        assert_eq!(shown(reader), before);
        for statement in
            ["INSERT INTO other.u VALUES ('more', 3)", "DROP DEPLOYMENT d", "CHECKPOINT"]
        {
            let refused = reader.execute(statement).unwrap_err();
            assert_eq!(refused.code, code::READ_ONLY, "{statement}: {refused:?}");
        }
        assert_eq!(shown(reader), before);
    }
    assert_eq!(Database::open(&directory.0).unwrap_err().code, code::DATABASE_IN_USE);
    drop(readers);
    assert_eq!(shown(&directory.open()), before);
}

#[test]
fn a_closed_database_takes_no_statements_and_may_be_opened_again() {
    let directory = TestDirectory::new("closed");
    let database = Database::open(&directory.0).unwrap();
    let session = database.session();
    run(&session, "CREATE TABLE t (k STRING)");
    let appender = session.appender("t").unwrap();
    database.close().unwrap();
    database.close().unwrap();
    let refused = session.execute("INSERT INTO t VALUES ('a')").unwrap_err();
    assert_eq!(refused.code, code::DATABASE_CLOSED, "{refused:?}");
    assert_eq!(refused.message, "the database was closed");
    let refused = appender.append([[lockstep_row::Datum::String("a")]]).unwrap_err();
    assert_eq!(refused.code, code::DATABASE_CLOSED, "{refused:?}");
    let again = directory.open();
    assert_eq!(again.execute("SELECT * FROM t").unwrap().row_count(), 0);
}

#[test]
fn a_deployment_has_the_same_index_again() {
    let directory = TestDirectory::new("same-index");
    let session = directory.open();
    for statement in [
        "CREATE TABLE t (k STRING, n INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))",
        "CREATE INDEX by_ts ON t (ts) OPTIONS (ts=ts, ttl=5d)",
        "DEPLOY d AS SELECT n, count(k) OVER w AS c FROM t WINDOW w AS \
         (PARTITION BY n ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
        "DROP INDEX t.by_ts",
        // Over the columns of the deployment's own index.
        "CREATE INDEX by_n ON t (n) OPTIONS (ts=ts, ttl=2d)",
    ] {
        run(&session, statement);
    }
    let shown = |session: &Session| {
        let output = session.execute("SHOW INDEXES FROM t").unwrap();
        output.batches.iter().map(|batch| format!("{:?}", batch.columns())).collect::<Vec<_>>()
    };
    let before = shown(&session);
    drop(session);
    assert_eq!(shown(&directory.open()), before);
}

/// Opens a directory as the log's crate does.
fn parts_of(directory: &TestDirectory) -> DatabaseDirectory {
    let access = Access::ReadWrite { new_id: [7; 16] };
    DatabaseDirectory::open(Arc::new(SystemDisk), &directory.0, access).expect("nobody has it open")
}

#[test]
fn a_record_that_nobody_wrote_is_named() {
    let directory = TestDirectory::new("unknown-record");
    let parts = parts_of(&directory);
    let options = Options::new(parts.database_id());
    let (log, _) = parts.open_log(options, &mut |_| ()).unwrap();
    log.append(&Group::of(9, 1, b"?"), &mut |_| ()).unwrap();
    log.close().unwrap();
    drop((log, parts));
    let refused = Database::open(&directory.0).unwrap_err();
    assert_eq!(refused.code, code::DATA_CORRUPTED);
    let message = "the record at position 0 of the log cannot be applied: its kind 9 is not known";
    assert_eq!(refused.message, message);
}

#[test]
fn a_manifest_that_is_no_checkpoint_is_named() {
    let directory = TestDirectory::new("unknown-manifest");
    let parts = parts_of(&directory);
    let manifest = parts.manifest().successor(0, Vec::new(), b"no checkpoint".to_vec());
    parts.commit(manifest).unwrap();
    drop(parts);
    let refused = Database::open(&directory.0).unwrap_err();
    assert_eq!(refused.code, code::DATA_CORRUPTED);
    assert!(refused.message.contains("/MANIFEST cannot be read: "), "{refused:?}");
}
