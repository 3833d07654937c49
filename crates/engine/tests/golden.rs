//! The directory of format 1 that is checked in: it opens with the answers that it had.
//!
//! `golden/format-1.sql` has the statements that made it, `golden/format-1.txt` what it shows. That it
//! has every kind of record is a test beside `CatalogRecord`. It is never made again: a newer format
//! gets a directory of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_engine::{Database, OpenOptions, Session, StorageTuning, code};
use lockstep_host::{Host, ManualClock, Threads};

const DIRECTORY: &str = "tests/golden/format-1";
const STATEMENTS: &str = include_str!("golden/format-1.sql");
const SHOWN: &str = "tests/golden/format-1.txt";

/// When it was made.
const NOW_MS: i64 = 1_700_000_000_000;

/// What shows all of it.
const SHOWS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT * FROM types",
    "SELECT * FROM other.u",
    "offline SELECT * FROM t",
    "offline SELECT * FROM linked",
    "SHOW CREATE TABLE t",
    "SHOW CREATE TABLE types",
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
    "SHOW JOB 2",
    "SHOW JOB 3",
    "CALL first ('a', 1, 1.0, 2500)",
    "CALL d ('a', 1, 1.0, 2500)",
    "CALL e ('a', 2, 2.5, 2500)",
];

/// A directory of a test, removed when it is dropped.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-golden-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        drop(fs::remove_dir_all(&path));
        Self(path)
    }

    /// Copies the golden directory.
    fn golden(name: &str) -> Self {
        let copy = Self::new(name);
        copy_directory(Path::new(DIRECTORY), &copy.0);
        copy
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a directory at the time at which it was made, with small files.
fn open(path: &Path, read_only: bool) -> Database {
    let options = OpenOptions {
        read_only,
        host: Host {
            clock: Arc::new(ManualClock::new(NOW_MS)),
            threads: Threads::None,
            ..Host::default()
        },
        tuning: StorageTuning { segment_bytes: 8 << 10, part_bytes: 1, ..StorageTuning::default() },
        ..OpenOptions::default()
    };
    Database::open_with(path, &options).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A session in each mode.
struct Sessions {
    online: Session,
    offline: Session,
}

impl Sessions {
    fn of(database: &Database) -> Self {
        let offline = database.session();
        offline.execute("SET @@execute_mode = 'offline'").unwrap();
        Self { online: database.session(), offline }
    }

    /// Runs a statement; returns what it answers.
    fn run(&self, statement: &str) -> String {
        let (session, sql) = match statement.strip_prefix("offline ") {
            Some(sql) => (&self.offline, sql),
            None => (&self.online, statement),
        };
        match session.execute(sql) {
            Ok(output) => output
                .batches
                .iter()
                .map(|batch| format!("{:?}", batch.columns()))
                .collect::<Vec<_>>()
                .join("\n"),
            Err(error) => panic!("{statement}: {error:?}"),
        }
    }

    fn show(&self) -> String {
        let shown = |sql: &&str| format!("> {sql}\n{}\n\n", self.run(sql));
        SHOWS.iter().map(shown).collect()
    }
}

/// Compares answer by answer.
fn check(shown: &str, expected: &str) {
    for (shown, expected) in shown.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(shown, expected);
    }
    assert_eq!(shown.len(), expected.len());
}

fn expected() -> String {
    fs::read_to_string(SHOWN).unwrap()
}

#[test]
#[ignore = "makes the directory of a format that has none yet"]
fn make_the_golden_directory() {
    let path = Path::new(DIRECTORY);
    assert!(!path.exists(), "the directory of a format is never made again");
    let database = open(path, false);
    let sessions = Sessions::of(&database);
    let statements = STATEMENTS.lines().filter(|line| !line.starts_with("--"));
    statements.for_each(|statement| drop(sessions.run(statement)));
    fs::write(SHOWN, sessions.show()).unwrap();
    database.close().unwrap();
}

#[test]
fn the_golden_directory_opens_and_answers_as_it_did() {
    let directory = TestDirectory::golden("opens");
    check(&Sessions::of(&open(&directory.0, false)).show(), &expected());
}

#[test]
fn the_golden_directory_opens_for_reading_and_stays_as_it_is() {
    let directory = TestDirectory::golden("reads");
    let database = open(&directory.0, true);
    let sessions = Sessions::of(&database);
    check(&sessions.show(), &expected());
    let refused = sessions.online.execute("INSERT INTO other.u VALUES ('a', 1)").unwrap_err();
    assert_eq!(refused.code, code::READ_ONLY);
    drop((sessions, database));
    check(&Sessions::of(&open(&directory.0, true)).show(), &expected());
}

#[test]
fn the_golden_directory_takes_writes_and_checkpoints() {
    let directory = TestDirectory::golden("writes");
    let written = {
        let database = open(&directory.0, false);
        let sessions = Sessions::of(&database);
        sessions.run("INSERT INTO t VALUES ('a', 9, 9.5, 9000)");
        sessions.run("INSERT INTO other.u (k) VALUES ('more')");
        sessions.run("CREATE TABLE added (k STRING)");
        sessions.show()
    };
    assert_ne!(written, expected());
    for _ in 0..2 {
        let database = open(&directory.0, false);
        let sessions = Sessions::of(&database);
        check(&sessions.show(), &written);
        sessions.run("CHECKPOINT");
    }
}
