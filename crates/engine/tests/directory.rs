//! A database in a directory: what was acknowledged is there when it is opened again.

use std::path::PathBuf;

use lockstep_engine::{Database, Session};

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
        Database::open(&self.0).unwrap().session()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn rows(session: &Session, sql: &str) -> Vec<String> {
    let output = session.execute(sql).unwrap();
    let shown: Vec<String> =
        output.batches.iter().map(|batch| format!("{:?}", batch.columns())).collect();
    shown
}

#[test]
fn rows_indexes_and_deployments_are_back() {
    let directory = TestDirectory::new("back");
    let statements = [
        "CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest)) OPTIONS(DURABILITY='os')",
        "INSERT INTO t VALUES ('a', 1, 1.5, 1000), ('a', 2, 2.5, 2000), ('b', 3, NULL, 3000)",
        "CREATE DATABASE other",
        "CREATE TABLE other.u (k STRING NOT NULL, v INT DEFAULT 7)",
        "INSERT INTO other.u (k) VALUES ('x')",
        "DEPLOY d AS SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)",
        "DEPLOY e AS SELECT n, count(k) OVER w AS c FROM t WINDOW w AS (PARTITION BY n ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
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
    ];
    let shows = [
        "SELECT * FROM t",
        "SELECT * FROM other.u",
        "SHOW CREATE TABLE t",
        "SHOW CREATE TABLE other.u",
        "SHOW INDEXES FROM t",
        "SHOW DEPLOYMENTS",
        "SHOW DEPLOYMENT d",
        "SHOW DEPLOYMENT e",
        "SHOW CREATE PROCEDURE p",
        "SHOW TABLES",
        "SHOW DATABASES",
        "SHOW GLOBAL VARIABLES",
        "SHOW USERS",
        "SHOW GRANTS FOR alice",
        "CALL d ('a', 1, 1.0, 2500)",
        "CALL e ('a', 2, 2.5, 2500)",
    ];
    let session = directory.open();
    for statement in statements {
        session.execute(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    let before: Vec<_> = shows.iter().map(|sql| rows(&session, sql)).collect();
    drop(session);
    for _ in 0..2 {
        let session = directory.open();
        for (sql, before) in shows.iter().zip(&before) {
            assert_eq!(&rows(&session, sql), before, "{sql}");
        }
    }
}

#[test]
fn a_widened_rule_stays_whichever_reader_is_compiled_first() {
    let directory = TestDirectory::new("widened");
    let session = directory.open();
    let deploy = |name: &str, frame: &str| {
        format!(
            "DEPLOY {name} AS SELECT k, count(n) OVER w AS c FROM t WINDOW w AS \
             (PARTITION BY k ORDER BY ts ROWS BETWEEN {frame} PRECEDING AND CURRENT ROW)"
        )
    };
    for statement in [
        "CREATE TABLE t (k STRING, n INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=2, TTL_TYPE=latest))",
        // Compiled in the order of their names when the directory is opened.
        &deploy("a", "1"),
        &deploy("b", "5"),
        "INSERT INTO t VALUES ('x', 1, 1000), ('x', 2, 2000), ('x', 3, 3000), ('x', 4, 4000)",
    ] {
        session.execute(statement).unwrap();
    }
    let request = "CALL b ('x', 9, 9000)";
    let before = (rows(&session, request), rows(&session, "SELECT * FROM t"));
    drop(session);
    let session = directory.open();
    assert_eq!((rows(&session, request), rows(&session, "SELECT * FROM t")), before);
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
        session.execute(statement).unwrap();
    }
    let before = rows(&session, "SHOW INDEXES FROM t");
    drop(session);
    assert_eq!(rows(&directory.open(), "SHOW INDEXES FROM t"), before);
}
