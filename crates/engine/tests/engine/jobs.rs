//! Jobs that run: who sees them, who stops them, and what becomes of them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{fs, path::PathBuf, thread};

use lockstep_engine::{ClientInfo, Database, Diagnostic, Proof, QueryContext, Session, code};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

/// A query over so many pairs of rows that it does not end by itself, and has no rows.
const ENDLESS: &str = "SELECT a.v FROM db.t AS a, db.t AS b WHERE a.v + b.v < 0";

/// A database with a table of many rows, a user `ann` and a user `eve`.
fn database() -> Database {
    let database = Database::in_memory();
    let root = database.session();
    root.execute("CREATE DATABASE db; USE db; CREATE TABLE t (v BIGINT)").unwrap();
    let rows = (0..200_000).map(|v| [Datum::BigInt(v)]);
    root.appender("t").unwrap().append(rows).unwrap();
    for user in ["ann", "eve"] {
        root.execute(&format!("CREATE USER {user} OPTIONS(password='x')")).unwrap();
        root.execute(&format!("GRANT SELECT ON db.* TO {user}")).unwrap();
    }
    database
}

fn login(database: &Database, user: &str) -> Session {
    database.authenticate(user, Proof::Password("x"), ClientInfo::default()).unwrap()
}

/// A file of a test, removed when it is dropped.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> Self {
        let name = format!("lockstep-jobs-{name}-{}.csv", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn statement(&self) -> String {
        format!("{ENDLESS} INTO OUTFILE '{}' OPTIONS(mode='overwrite')", self.0.display())
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The rows of SHOW JOBS as texts; NULL is `NULL`.
fn jobs(session: &Session) -> Vec<Vec<String>> {
    let output = session.execute("SHOW JOBS").unwrap();
    let mut rows = Vec::new();
    for batch in &output.batches {
        let arena = Arena::new();
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        for row in 0..batch.num_rows() {
            rows.push(readers.iter().map(|reader| shown(&reader.get(row, &arena))).collect());
        }
    }
    rows
}

fn shown(datum: &Datum<'_>) -> String {
    match datum {
        Datum::String(text) => (*text).to_owned(),
        Datum::Null => "NULL".to_owned(),
        other => {
            lockstep_function::cast::print_datum(*other, &lockstep_function::Settings::default())
        }
    }
}

/// Waits until a job runs.
fn wait_for_job(root: &Session) {
    while !jobs(root).iter().any(|job| job[2] == "Running") {
        thread::yield_now();
    }
}

/// Runs an endless job in one session while `meanwhile` runs beside it; returns its error.
fn beside(
    root: &Session,
    session: &Session,
    statement: &str,
    meanwhile: impl FnOnce(),
) -> Box<Diagnostic> {
    thread::scope(|scope| {
        let context = QueryContext::new();
        let own = context.clone();
        let running = scope.spawn(move || own.run(|| session.execute(statement).unwrap_err()));
        wait_for_job(root);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
        // It would not end where the test fails.
        context.cancel();
        let error = running.join().unwrap();
        outcome.unwrap();
        error
    })
}

#[test]
fn a_job_is_listed_while_it_runs_and_stopped_by_another_session() {
    let (database, file) = (database(), TestFile::new("listed"));
    let (root, session) = (database.session(), database.session());
    let error = beside(&root, &session, &file.statement(), || {
        let listed = jobs(&root).remove(0);
        assert_eq!(&listed[..3], ["1", "ExportOnlineData", "Running"]);
        assert_eq!((listed[4].as_str(), listed[10].as_str()), ("NULL", "0"));
        assert!(listed[5].starts_with("SELECT a.v FROM"));
        let refused = root.execute("DELETE JOB 1").unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), ("55006", "job 1 is running"));
        assert_eq!(refused.hint.as_deref(), Some("Stop it with STOP JOB 1."));
        root.execute("STOP JOB 1").unwrap();
        let stopped = jobs(&root).remove(0);
        assert_eq!(
            (stopped[2].as_str(), stopped[8].as_str()),
            ("Stopped", "the statement was cancelled")
        );
        assert_ne!(stopped[4], "NULL");
    });
    assert_eq!(error.code, code::QUERY_CANCELED);
    assert!(!file.0.exists(), "nothing half-written stays");
    let log = root.execute("SHOW JOBLOG 1").unwrap();
    assert!(format!("{:?}", log.batches).contains("stopped"));
    root.execute("STOP JOB 1").unwrap();
    root.execute("DELETE JOB 1").unwrap();
    assert!(jobs(&root).is_empty());
    // The session goes on.
    session.execute("SELECT 1 AS a").unwrap();
}

#[test]
fn a_user_stops_own_jobs_and_nobody_else_s() {
    let (database, file) = (database(), TestFile::new("own"));
    database.set_file_folders(&[std::env::temp_dir()]).unwrap();
    let root = database.session();
    let (ann, other, eve) =
        (login(&database, "ann"), login(&database, "ann"), login(&database, "eve"));
    let error = beside(&root, &ann, &file.statement(), || {
        let refused = eve.execute("STOP JOB 1").unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE);
        assert_eq!(jobs(&root)[0][2], "Running");
        other.execute("CANCEL JOB 1").unwrap();
    });
    assert_eq!(error.code, code::QUERY_CANCELED);
    // It runs no more.
    assert_eq!(other.execute("STOP JOB 1").unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
}

#[test]
fn job_timeout_ends_a_job_and_nothing_else() {
    let (database, file) = (database(), TestFile::new("timeout"));
    let session = database.session();
    session.execute("USE db; SET job_timeout = '20ms'").unwrap();
    let error = session.execute(&file.statement()).unwrap_err();
    assert_eq!(error.code, code::QUERY_CANCELED);
    assert_eq!(error.message, "job exceeded job_timeout (20 ms)");
    assert!(error.hint.as_ref().is_some_and(|hint| hint.starts_with("Raise job_timeout")));
    assert_eq!(jobs(&session)[0][2], "Failed");
    // A query is no job.
    let pairs =
        "SELECT count(*) AS n FROM t AS a, (SELECT v FROM t LIMIT 500) AS b WHERE a.v + b.v < 0";
    session.execute(pairs).unwrap();
    session.execute("SET statement_timeout = '20ms'; SET job_timeout = '1h'").unwrap();
    let error = session.execute(&file.statement()).unwrap_err();
    assert_eq!(error.message, "the statement ran longer than statement_timeout (20 ms)");
    session.execute("SET statement_timeout = 0").unwrap();
    let quick =
        format!("SELECT 1 AS a INTO OUTFILE '{}' OPTIONS(mode='overwrite')", file.0.display());
    session.execute(&quick).unwrap();
    let finished = jobs(&session).pop().unwrap();
    assert_eq!((finished[2].as_str(), finished[10].as_str()), ("Finished", "1"));
    assert_eq!(finished[11], "1");
}

#[test]
fn jobs_of_several_sessions_end_in_any_order_and_the_log_has_them() {
    let directory = std::env::temp_dir().join(format!("lockstep-jobs-log-{}", std::process::id()));
    drop(fs::remove_dir_all(&directory));
    let shown = {
        let database = Database::open(&directory).unwrap();
        let root = database.session();
        root.execute("CREATE TABLE t (v BIGINT)").unwrap();
        let file = TestFile::new("several");
        fs::write(&file.0, "v\n1\n2\n").unwrap();
        let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", file.0.display());
        let load_often = || {
            let session = database.session();
            (0..5).for_each(|_| drop(session.execute(&load).unwrap()));
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(load_often);
            }
        });
        root.execute("CHECKPOINT").unwrap();
        root.execute(&load).unwrap();
        let shown = jobs(&root);
        assert_eq!(shown.len(), 21);
        assert!(shown.iter().all(|job| job[2] == "Finished" && job[10] == "2"));
        database.close().unwrap();
        shown
    };
    let database = Database::open(&directory).unwrap();
    assert_eq!(jobs(&database.session()), shown);
    drop(database);
    fs::remove_dir_all(&directory).unwrap();
}
