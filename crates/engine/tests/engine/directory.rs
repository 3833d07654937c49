//! A database in a directory: what was acknowledged is there when it is opened again.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_engine::{
    ClientInfo, Database, OpenListener, OpenOptions, Proof, Result, Session, StorageTuning,
    TableBatches, code,
};
use lockstep_host::{Clock, Host, file::SystemDisk, sync::Mutex};
use lockstep_row::{Column, DataType, Datum, RowCodec, TableSchema};
use lockstep_wal::{Access, DatabaseDirectory, Group, Log, Options, SegmentedLog};

use crate::test_directory::TestDirectory;

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
    let refused = appender.append([[Datum::String("a")]]).unwrap_err();
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

/// Appends the same rows to several tables at once.
fn append_to(session: &Session, tables: &[&str], rows: &str) -> Result<Option<u64>> {
    let batches = session.execute(rows)?.batches;
    let rows = tables.iter().map(|table| TableBatches { table, batches: &batches });
    let rows: Vec<_> = rows.collect();
    session.append_tables(&rows, None).map(|appended| appended.rows_affected)
}

#[test]
fn an_append_to_several_tables_is_back_wherever_a_checkpoint_is() {
    let show = |session: &Session| {
        ["one", "two", "other.three"].map(|table| {
            let output = session.execute(&format!("SELECT * FROM {table}")).unwrap();
            format!("{:?}, {:?}", output.batches, session.arrivals(table).unwrap())
        })
    };
    // In parts and whole; with a checkpoint behind the append, before it, and nowhere.
    for (part_bytes, checkpoint) in [(1, 0), (1, 1), (64 << 20, 2), (64 << 20, 0)] {
        let directory = TestDirectory::new("several-tables");
        let tuning = StorageTuning { part_bytes, ..StorageTuning::default() };
        let options = OpenOptions { tuning, ..OpenOptions::default() };
        let session = Database::open_with(&directory.0, &options).unwrap().session();
        run(&session, "CREATE TABLE one (k STRING NOT NULL, n INT, INDEX(KEY=k))");
        run(&session, "CREATE TABLE two (k STRING, n INT DEFAULT 7) OPTIONS(DURABILITY='os')");
        run(&session, "CREATE DATABASE other");
        run(&session, "CREATE TABLE other.three (k STRING)");
        run(&session, "INSERT INTO one VALUES ('a', 1), ('b', 2), ('c', 3)");
        for step in 0..2 {
            if step == checkpoint {
                run(&session, "CHECKPOINT");
            }
            let all = ["other.three", "two", "one", "default.two"];
            let appended = append_to(&session, &all, "SELECT k FROM one").unwrap();
            assert_eq!(appended, Some(12 << step));
        }
        let before = show(&session);
        drop(session);
        assert_eq!(show(&directory.open()), before);
        assert_eq!(directory.open().execute("SELECT * FROM two").unwrap().row_count(), 18);
    }
}

#[test]
fn what_one_of_several_tables_refuses_is_in_none() {
    let directory = TestDirectory::new("several-refused");
    let session = directory.open();
    run(&session, "CREATE TABLE free (k STRING, v INT)");
    run(&session, "CREATE TABLE strict (k STRING NOT NULL, v INT)");
    run(&session, "CREATE TABLE other_type (k STRING, v DATE)");
    run(&session, "INSERT INTO free VALUES ('a', 1), (NULL, -2)");
    for (second, expected) in [
        ("strict", code::NOT_NULL_VIOLATION),
        ("other_type", code::DATATYPE_MISMATCH),
        ("missing", code::UNDEFINED_TABLE),
    ] {
        for tables in [["free", second], [second, "free"]] {
            let refused = append_to(&session, &tables, "SELECT * FROM free").unwrap_err();
            assert_eq!(refused.code, expected, "{refused:?}");
            if expected != code::UNDEFINED_TABLE {
                let detail = refused.detail.unwrap();
                assert!(detail.contains(&format!("for table `{second}`; no rows were stored")));
            }
        }
    }
    run(&session, "SET GLOBAL max_memory = '1 MB'");
    run(&session, "CREATE TABLE full (k STRING)");
    let many = "SELECT k FROM strict";
    // The rows fit into one more table, and not into two.
    for at in 0..200 {
        run(&session, &format!("INSERT INTO strict VALUES ('{at}{}', 1)", "x".repeat(2_000)));
    }
    let refused = append_to(&session, &["free", "full"], many).unwrap_err();
    assert_eq!(refused.code, code::OUT_OF_MEMORY, "{refused:?}");
    let counts = |session: &Session| {
        ["free", "full", "other_type"]
            .map(|table| session.execute(&format!("SELECT * FROM {table}")).unwrap().row_count())
    };
    assert_eq!(counts(&session), [2, 0, 0]);
    drop(session);
    assert_eq!(counts(&directory.open()), [2, 0, 0]);
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
    let message = "could not apply the log record at position 0: unknown record kind 9";
    assert_eq!(refused.message, message);
}

/// The kind of a record of the catalog, which is JSON.
const CATALOG: u8 = 16;

/// Opens the log of a directory, and returns its records of the catalog.
fn catalog_records(parts: &DatabaseDirectory) -> (SegmentedLog, Vec<String>) {
    let mut found = Vec::new();
    let opened = parts.open_log(Options::new(parts.database_id()), &mut |entries| {
        for entry in entries.filter(|entry| entry.kind == CATALOG) {
            found.push(String::from_utf8(entry.payload.to_vec()).expect("JSON is UTF-8"));
        }
    });
    (opened.expect("the log is whole").0, found)
}

#[test]
fn a_catalog_that_nobody_made_is_damage() {
    let directory = TestDirectory::new("forged-catalog");
    let source = TestDirectory::new("forged-catalog-source");
    std::fs::create_dir(&source.0).unwrap();
    let file = source.0.join("t.csv");
    std::fs::write(&file, "k,n\na,1\n").unwrap();
    let session = directory.open();
    run(&session, "CREATE TABLE t (k STRING, n INT)");
    run(&session, "CREATE TABLE u (a INT)");
    run(&session, "SET @@execute_mode = 'offline'");
    run(&session, &format!("LOAD DATA INFILE '{}' INTO TABLE t", file.display()));
    drop(session);
    let (log, records) = catalog_records(&parts_of(&directory));
    log.close().unwrap();
    drop(log);
    let find = |what: &str| {
        let found = records.iter().find(|record| record.contains(what));
        found.unwrap_or_else(|| panic!("{what} in {records:#?}")).clone()
    };
    let of_t = find(r#""command":"create_table","id":1,"#);
    let (of_rows, change) = (find("create_offline_rows"), find("change_offline"));
    let (end, start) = (find("end_job"), find("start_job"));
    let other_rows = of_rows.replace(r#""id":3,"#, r#""id":9,"#).replace(r#""n""#, r#""m""#);
    let rows = |id: u32| change.replace(r#""rows":3"#, &format!(r#""rows":{id}"#));
    let forged = [
        (vec![of_t.replace(r#""t""#, r#""v""#)], "table 1 already exists"),
        (vec![of_rows.clone()], "table 3 already exists"),
        (
            vec![of_t.replace(r#""id":1"#, r#""id":3"#).replace(r#""t""#, r#""v""#)],
            "table 3 already exists",
        ),
        (
            vec![
                r#"{"command":"drop_table","id":2,"name":{"database":"db","name":"t"}}"#.to_owned(),
            ],
            "table 2 is not `db.t`",
        ),
        (
            vec![of_rows.replace(r#""id":3,"#, r#""id":18446744073709551615,"#)],
            "table id 18446744073709551615 is out of range",
        ),
        (
            vec![of_rows.replace(r#""id":3,"#, r#""id":9,"#).replace(r#""n""#, r#""k""#)],
            "table 9 has two columns of the same name",
        ),
        (vec![rows(2)], "table 2 already exists"),
        (vec![rows(7)], "table 7 does not exist"),
        (vec![change.replace(r#""table":1"#, r#""table":8"#)], "table 8 does not exist"),
        (vec![other_rows, rows(9)], "table 9 has different columns"),
        (vec![end.replace(r#""id":1,"#, r#""id":0,"#)], "a job ends twice"),
        (vec![start.replace(r#""id":1,"#, r#""id":2147483647,"#)], "jobs are out of order"),
    ];
    for (records, what) in forged {
        let copy = TestDirectory::new("forged-catalog-copy");
        copy_directory(&directory.0, &copy.0).unwrap();
        let parts = parts_of(&copy);
        let (log, _) = catalog_records(&parts);
        for record in &records {
            log.append(&Group::of(CATALOG, 1, record.as_bytes()), &mut |_| ()).unwrap();
        }
        log.close().unwrap();
        drop((log, parts));
        let refused = Database::open(&copy.0).map(|_| records).expect_err(what);
        assert_eq!(refused.code, code::DATA_CORRUPTED, "{refused:?}");
        assert!(refused.message.contains(what), "{what}: {refused:?}");
    }
    let whole = directory.open();
    assert_eq!(whole.execute("SELECT * FROM t").unwrap().row_count(), 0);
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &copied)?;
        } else {
            std::fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}

#[test]
fn a_null_that_a_column_does_not_take_is_damage() {
    let directory = TestDirectory::new("forged-null");
    run(&directory.open(), "CREATE TABLE t (k STRING NOT NULL)");
    let schema = TableSchema { columns: vec![Column::new("k", DataType::String)], indexes: vec![] };
    let mut row = Vec::new();
    RowCodec::new(&schema).encode(&[Datum::Null], &mut row).unwrap();
    // The id of the table, the time of arrival, the length of the row above 48 bits, and the row.
    let header = [1, 0, u64::try_from(row.len()).unwrap() << 48].map(u64::to_le_bytes);
    let payload = [header.as_flattened(), &row].concat();
    let parts = parts_of(&directory);
    let options = Options::new(parts.database_id());
    let (log, _) = parts.open_log(options, &mut |_| ()).unwrap();
    log.append(&Group::of(1, 1, &payload), &mut |_| ()).unwrap();
    log.close().unwrap();
    drop((log, parts));
    let refused = Database::open(&directory.0).unwrap_err();
    assert_eq!(refused.code, code::DATA_CORRUPTED, "{refused:?}");
    assert!(refused.message.contains("are not valid rows of the table"), "{refused:?}");
}

/// A clock that goes on by a second each time that somebody looks at it.
#[derive(Debug, Default)]
struct ImpatientClock(AtomicU64);

impl Clock for ImpatientClock {
    fn now_ms(&self) -> i64 {
        1_000
    }

    fn monotonic_ns(&self) -> u64 {
        // Relaxed: a number.
        self.0.fetch_add(1_000_000_000, Ordering::Relaxed)
    }
}

#[test]
fn who_listens_is_told_what_is_left_and_may_end_the_opening() {
    let directory = TestDirectory::new("listener");
    let session = directory.open();
    run(&session, "CREATE TABLE t (k STRING, v BIGINT)");
    let rows: Vec<_> = (0..20_000).map(|v| [Datum::String("key"), Datum::BigInt(v)]).collect();
    let appender = session.appender("t").unwrap();
    rows.chunks(5_000).for_each(|rows| {
        appender.append(rows).unwrap();
    });
    drop((session, appender));
    let told = Arc::new(Mutex::new(Vec::new()));
    let open = |stops: bool| {
        let told = Arc::clone(&told);
        told.lock().clear();
        let listener = OpenListener::stopping(move |progress| {
            told.lock().push(progress);
            if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let clock = Arc::new(ImpatientClock::default());
        let options = OpenOptions {
            listener: Some(listener),
            host: Host { clock, ..Host::default() },
            ..OpenOptions::default()
        };
        Database::open_with(&directory.0, &options).map(|database| database.session())
    };
    for _ in 0..2 {
        let stopped = open(true).unwrap_err();
        assert_eq!(stopped.code, code::QUERY_CANCELED, "{stopped:?}");
        assert_eq!(stopped.message, "opening the database was cancelled");
        assert_eq!(told.lock().len(), 1, "nothing is read after it was stopped");
        let session = open(false).unwrap();
        assert_eq!(session.execute("SELECT * FROM t").unwrap().row_count(), 20_000);
        let told = told.lock();
        // From the log it is told after each append, from a checkpoint after each file.
        assert!(!told.is_empty(), "{told:?}");
        assert!(told.is_sorted_by_key(|progress| progress.rows), "{told:?}");
        assert!(told.iter().all(|progress| progress.milliseconds_left.is_some()), "{told:?}");
        // From its files, the second time.
        run(&session, "CHECKPOINT");
    }
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
    assert!(refused.message.contains("/MANIFEST: "), "{refused:?}");
}

#[test]
fn a_file_has_the_rows_that_the_manifest_says() {
    let directory = TestDirectory::new("other-rows");
    let session = directory.open();
    run(&session, "CREATE TABLE t (k STRING)");
    run(&session, "INSERT INTO t VALUES ('a'), ('b'), ('c')");
    run(&session, "CREATE TABLE u (k STRING)");
    run(&session, "INSERT INTO u VALUES ('d')");
    run(&session, "CHECKPOINT");
    drop(session);
    let whole = String::from_utf8(parts_of(&directory).manifest().body.clone()).unwrap();
    let changes = [
        // The first row is before it.
        (r#""from":1,"to":4"#, r#""from":2,"to":4"#),
        // The last row is behind it.
        (r#""from":1,"to":4"#, r#""from":1,"to":3"#),
        (r#""from":1,"to":4"#, r#""from":1,"to":5"#),
        (r#""to":4,"rows":3"#, r#""to":4,"rows":2"#),
    ];
    let what = "the files of a table are not those that are listed";
    for (before, after) in changes {
        assert!(whole.contains(before), "{before}: {whole}");
        let commit = |body: String| {
            let parts = parts_of(&directory);
            let known = parts.manifest();
            let next = known.successor(known.position, known.files.clone(), body.into_bytes());
            parts.commit(next).unwrap();
        };
        commit(whole.replace(before, after));
        let refused = Database::open(&directory.0).map(|_| after).expect_err(what);
        assert_eq!(refused.code, code::DATA_CORRUPTED, "{refused:?}");
        assert!(refused.message.contains(what), "{what}: {refused:?}");
        commit(whole.clone());
    }
    assert_eq!(directory.open().execute("SELECT * FROM t").unwrap().row_count(), 3);
}

#[test]
fn a_deployment_has_the_order_of_the_indexes_that_there_were() {
    let directory = TestDirectory::new("bound-indexes");
    let query = "SELECT q.id, r.id AS rid FROM t AS q LAST JOIN t AS r ON q.k = r.k";
    let answers = |session: &Session| {
        let of = |sql: &str| format!("{:?}", session.execute(sql).unwrap().batches);
        (of("CALL d (9, 'a', 4000)"), of("CALL p (9, 'a', 4000)"))
    };
    let changes = ["CREATE INDEX i ON t (k) OPTIONS (ts=ts)", "DROP INDEX t.i"];
    let session = directory.open();
    run(&session, "CREATE TABLE t (id BIGINT, k STRING, ts TIMESTAMP)");
    run(&session, "INSERT INTO t VALUES (1, 'a', 5000), (2, 'a', 3000)");
    drop(session);
    for change in changes {
        let session = directory.open();
        run(&session, &format!("DEPLOY OR REPLACE d AS {query}"));
        run(&session, "DROP PROCEDURE IF EXISTS p");
        run(
            &session,
            &format!("CREATE PROCEDURE p (id BIGINT, k STRING, ts TIMESTAMP) BEGIN {query}; END"),
        );
        let before = answers(&session);
        let batch = |session: &Session| format!("{:?}", session.execute(query).unwrap().batches);
        let order = batch(&session);
        run(&session, change);
        assert_ne!(batch(&session), order, "{change}: the query itself goes by the indexes");
        assert_eq!(answers(&session), before, "{change}");
        drop(session);
        let session = directory.open();
        assert_eq!(answers(&session), before, "{change}: from the log");
        run(&session, "CHECKPOINT");
        drop(session);
        let session = directory.open();
        assert_eq!(answers(&session), before, "{change}: from a checkpoint");
    }
}

#[test]
fn owners_and_what_a_cascade_dropped_are_there_again() {
    let directory = TestDirectory::new("owners");
    let session = directory.open();
    session
        .execute(
            "CREATE TABLE t (k STRING); INSERT INTO t VALUES ('a');
             CREATE USER ann OPTIONS(password='x'); GRANT ALL ON default.* TO ann;
             CREATE VIEW free AS SELECT k FROM t",
        )
        .unwrap();
    let ann = Proof::Password("x");
    let ann = session.database().authenticate("ann", ann, ClientInfo::default()).unwrap();
    ann.execute("CREATE VIEW owned AS SELECT k FROM t; DEPLOY d AS SELECT k FROM free").unwrap();
    session.execute("REVOKE ALL ON default.* FROM ann").unwrap();
    drop((ann, session));
    let refused = |session: &Session, sql: &str| session.execute(sql).unwrap_err().code;
    for is_checkpoint in [false, true] {
        if is_checkpoint {
            directory.open().execute("CHECKPOINT").unwrap();
        }
        let session = directory.open();
        assert_eq!(refused(&session, "SELECT * FROM owned"), code::INSUFFICIENT_PRIVILEGE);
        assert_eq!(refused(&session, "CALL d('a')"), code::INSUFFICIENT_PRIVILEGE);
        assert_eq!(session.execute("SELECT * FROM free").unwrap().row_count(), 1);
    }
    let session = directory.open();
    session.execute("CREATE VIEW above AS SELECT k FROM free; DROP VIEW free CASCADE").unwrap();
    session.execute("DROP TABLE t CASCADE").unwrap();
    drop(session);
    let session = directory.open();
    for missing in ["SELECT * FROM owned", "SELECT * FROM above", "SELECT * FROM t"] {
        assert_eq!(refused(&session, missing), code::UNDEFINED_TABLE, "{missing}");
    }
    assert_eq!(session.execute("SHOW DEPLOYMENTS").unwrap().row_count(), 0);
}

#[test]
fn a_view_of_files_is_there_while_its_files_are_away() {
    let directory = TestDirectory::new("file-views");
    let files = TestDirectory::new("file-views-files");
    std::fs::create_dir_all(&files.0).expect("a folder");
    let path = files.0.join("clicks.csv");
    std::fs::write(&path, "k,n\na,1\nb,2\n").expect("a file");
    let session = directory.open();
    run(&session, "CREATE TABLE t (k STRING, v INT); INSERT INTO t VALUES ('b', 7)");
    let csv = path.display();
    run(&session, &format!("CREATE EXTERNAL TABLE clicks STORED AS CSV LOCATION '{csv}'"));
    run(
        &session,
        "CREATE VIEW joined AS SELECT clicks.n, t.v FROM clicks LAST JOIN t ON clicks.k = t.k",
    );
    // A part that nothing reads is bound as well.
    run(&session, "CREATE VIEW unused AS WITH f AS (SELECT * FROM clicks) SELECT k FROM t");
    let counted = |session: &Session| {
        session.execute("SELECT n, v FROM joined").map(|output| output.row_count())
    };
    assert_eq!(counted(&session).expect("the file is there"), 2);
    std::fs::remove_file(&path).expect("it is there");
    // From the log, then from a checkpoint.
    let mut session = session;
    for checkpoint in [false, true] {
        if checkpoint {
            run(&session, "CHECKPOINT");
        }
        drop(session);
        session = directory.open();
        let described = session.execute("DESC joined").expect("its columns are known");
        assert_eq!(described.row_count(), 2);
        let columns = session.view_columns("default", "joined").expect("its columns are known");
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["n", "v"]);
        let error = counted(&session).expect_err("the file is away");
        let span = error.span.expect("it is of a part of the text");
        assert_eq!((span.start, span.end), (17, 23), "the use of the view: {error:?}");
        let detail = error.detail.as_deref().unwrap_or_default();
        assert!(
            detail.contains("of view `clicks`") && detail.contains("of view `joined`"),
            "{detail}"
        );
        let read = session.execute("DROP TABLE t").expect_err("a view reads it");
        assert_eq!(read.code, code::DEPENDENT_OBJECTS);
        let read = session.execute("DROP TABLE clicks").expect_err("a view reads it");
        assert_eq!(read.code, code::DEPENDENT_OBJECTS);
    }
    std::fs::write(&path, "k,n\nb,3\n").expect("a file");
    assert_eq!(counted(&session).expect("another file is there"), 1);
    run(&session, "DROP VIEW joined; DROP VIEW unused; DROP TABLE clicks; DROP TABLE t");
}

#[test]
fn what_users_did_is_there_after_a_restart() {
    let directory = TestDirectory::new("audit");
    let session = directory.open();
    run(&session, "CREATE TABLE t (v INT); CREATE USER ann OPTIONS(password='secret')");
    run(&session, "GRANT SELECT ON t TO ann");
    let ann = |session: &Session| {
        let proof = Proof::Password("secret");
        session.database().authenticate("ann", proof, ClientInfo::default()).expect("a user")
    };
    run(&ann(&session), "SELECT * FROM t");
    let refused = ann(&session).execute("INSERT INTO t VALUES (1)").expect_err("she reads only");
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE);
    let before = session.database().audit_events();
    assert_eq!(before.len(), 4, "two logins, and a call of each");
    session.database().close().expect("it is closed");
    drop(session);
    let session = directory.open();
    assert_eq!(session.database().audit_events(), before);
    run(&ann(&session), "SELECT * FROM t");
    let path = directory.0.join("../audit-export.csv");
    run(
        &session,
        &format!(
            "SELECT * FROM lockstep.audit INTO OUTFILE '{}' OPTIONS(mode='overwrite')",
            path.display()
        ),
    );
    let exported = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(exported.lines().count(), 7, "{exported}");
    std::fs::remove_file(&path).expect("it is there");
    drop(session);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let reader = Database::open_with(&directory.0, &options).expect("it is there");
    assert_eq!(reader.audit_events().len(), 6);
}

#[test]
fn columns_change_under_a_deployment_that_is_there_again() {
    let directory = TestDirectory::new("alter-deployed");
    let session = directory.open();
    run(
        &session,
        "CREATE TABLE t (k STRING, v INT, note STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts));
         INSERT INTO t VALUES ('a', 1, 'x', 1000), ('a', 2, 'y', 2000);
         DEPLOY d AS SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)",
    );
    let prepared = session.prepare_request("d").expect("it is deployed");
    run(&session, "ALTER TABLE t ADD COLUMN more INT DEFAULT 7, DROP note");
    run(&session, "INSERT INTO t VALUES ('a', 4, 2500, 8)");
    let sums = |session: &Session| {
        let answer = session.execute("CALL d('a', 8, 3000, NULL)").expect("it answers");
        format!("{:?}", answer.batches[0].column(1))
    };
    let before = sums(&session);
    assert!(before.contains("15"), "{before}");
    drop(prepared);
    let mut session = session;
    for checkpoint in [false, true] {
        if checkpoint {
            run(&session, "CHECKPOINT");
        }
        drop(session);
        session = directory.open();
        assert_eq!(sums(&session), before, "checkpoint: {checkpoint}");
    }
    let refused = session.execute("ALTER TABLE t DROP v").expect_err("the deployment reads it");
    assert_eq!(refused.code, code::DEPENDENT_OBJECTS);
}

#[test]
fn a_log_of_rows_that_are_gone_is_not_read_again() {
    let directory = TestDirectory::new("close-checkpoint");
    let session = directory.open();
    run(&session, "CREATE TABLE kept (v INT); INSERT INTO kept VALUES (1)");
    run(&session, "CREATE TABLE gone (text STRING)");
    let row = "x".repeat(1 << 20);
    for _ in 0..6 {
        run(&session, &format!("INSERT INTO gone VALUES ('{row}')"));
    }
    let manifest = directory.0.join("MANIFEST");
    let before = std::fs::read(&manifest).expect("it is there");
    session.database().close().expect("it is closed");
    drop(session);
    assert_eq!(std::fs::read(&manifest).expect("it is there"), before, "the rows are there");
    let session = directory.open();
    run(&session, "DROP TABLE gone");
    session.database().close().expect("it is closed");
    drop(session);
    assert_ne!(std::fs::read(&manifest).expect("it is there"), before, "a checkpoint");
    let session = directory.open();
    assert_eq!(session.database().opened().expect("a directory").rows, 1);
    assert_eq!(session.execute("SELECT v FROM kept").expect("it is there").row_count(), 1);
}
