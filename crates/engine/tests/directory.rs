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
