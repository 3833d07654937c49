//! As-known training sets beside requests: retention, another main table, a directory that is opened again, files,
//! interrupts and rows that come meanwhile. What the answers are is drawn in `lockstep-testkit`.

use std::{fs, path::PathBuf, sync::Arc};

use arrow::util::pretty::pretty_format_batches;
use lockstep_engine::{
    Database, OpenOptions, Output, QueryContext, Relation, Session, TrainingSetOptions, code,
};
use lockstep_host::ManualClock;

const NOW_MS: i64 = 1_000_000_000;

fn run(session: &Session, sql: &str) -> Output {
    session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))))
}

/// Returns the values of a result: rows with a blank between two values.
fn text(output: &Output) -> String {
    let table = pretty_format_batches(&output.batches).expect("it prints").to_string();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let row = |line: &str| line.replace('|', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    rows.map(row).collect::<Vec<_>>().join("; ")
}

fn known(session: &Session, main_table: Option<&str>, deployment: &str) -> Relation {
    let options = TrainingSetOptions { main_table: main_table.map(str::to_owned), as_known: true };
    session.training_set(deployment, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn collected(relation: &Relation) -> Output {
    relation.collect(None).unwrap_or_else(|error| panic!("{}", error.render(None)))
}

#[test]
fn retention_is_that_of_the_moment_and_what_was_removed_is_told() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let session = Database::with_clock(Arc::<ManualClock>::clone(&clock)).session();
    run(
        &session,
        "CREATE TABLE s (id INT, k INT); \
         CREATE TABLE u (k INT, v INT, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1m)); \
         DEPLOY d OPTIONS(skip_index_check = 'true') AS \
         SELECT s.id, u.v FROM s LAST JOIN u ORDER BY u.ts ON s.k = u.k",
    );
    run(&session, &format!("INSERT INTO u VALUES (1, 7, {NOW_MS})"));
    clock.advance_ms(30_000);
    let sql = "SELECT s.id, u.v FROM s LAST JOIN u ORDER BY u.ts ON s.k = u.k AS KNOWN AT ARRIVAL";
    run(&session, "INSERT INTO s VALUES (1, 1)");
    clock.advance_ms(60_000);
    run(&session, "INSERT INTO s VALUES (2, 1)");
    // Row 1 saw the price, row 2 arrived when it had expired.
    let output = run(&session, sql);
    assert_eq!((text(&output).as_str(), output.warnings.len()), ("1 7; 2", 0));
    let output = collected(&known(&session, None, "d"));
    assert_eq!((text(&output).as_str(), output.warnings.len()), ("1 7; 2", 0));
    // The row had expired, so that it is not deleted; it does not come back all the same.
    run(&session, "DELETE FROM u WHERE k = 1");
    let output = run(&session, sql);
    let warnings: Vec<&str> = output.warnings.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(warnings, ["known rows of table `u` may have been removed"], "{}", text(&output));
    assert_eq!(text(&output), "1; 2");
    assert_eq!(output.warnings[0].code, code::KNOWN_ROWS_REMOVED);
    let mut batches = 0;
    let warnings = known(&session, None, "d").run_each(None, &mut |_| {
        batches += 1;
        Ok(())
    });
    assert_eq!((warnings.expect("it runs").len(), batches), (1, 1));
}

#[test]
fn another_table_is_the_main_table() {
    let session = Database::in_memory().session();
    run(
        &session,
        "CREATE TABLE t (id INT NOT NULL, k STRING, v INT, ts BIGINT); \
         CREATE TABLE labels (k STRING, label DOUBLE, ts BIGINT, id INT); \
         CREATE TABLE narrow (k STRING); CREATE TABLE other (k INT, ts BIGINT, id INT); \
         DEPLOY d AS SELECT k, id, count(id) OVER w AS n FROM t \
         WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW \
                      EXCLUDE CURRENT_ROW); \
         INSERT INTO t VALUES (1, 'a', 5, 10); INSERT INTO labels VALUES ('a', 0.5, 20, 1); \
         INSERT INTO t VALUES (2, 'a', 5, 15); INSERT INTO labels VALUES ('a', 1.5, 20, 2), ('b', 2, 1, 3)",
    );
    let output = collected(&known(&session, Some("labels"), "d"));
    assert_eq!(text(&output), "a 1 1; a 2 2; b 3 0");
    // What the deployment's own table would be needs no other one.
    assert_eq!(text(&collected(&known(&session, Some("t"), "d"))), "a 1 0; a 2 1");
    for (main_table, expected) in [
        ("narrow", "the main table has no column `id`, which the query reads"),
        ("other", "column `k` of the main table is of type INT, not STRING"),
    ] {
        let error = known(&session, Some(main_table), "d").collect(None).expect_err(main_table);
        assert_eq!(error.message, expected);
    }
    run(&session, "INSERT INTO labels VALUES ('a', 1, 1, NULL)");
    let error = known(&session, Some("labels"), "d").collect(None).expect_err("NULL is refused");
    assert_eq!(error.code, code::NOT_NULL_VIOLATION);
    let batch = TrainingSetOptions { main_table: Some("labels".to_owned()), as_known: false };
    let error = session.training_set("d", &batch).expect_err("batch mode has its own main table");
    assert_eq!(error.message, "`labels` is not the request table of the deployment");
    let error = session.training_set("nope", &batch).expect_err("there is none");
    assert_eq!(error.code, code::UNDEFINED_OBJECT);
    let batch = session.training_set("d", &TrainingSetOptions::default()).expect("it is there");
    assert_eq!(text(&collected(&batch)), "a 1 0; a 2 1");
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("lockstep-known-{}-{name}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    folder
}

const QUERY: &str = "SELECT t.id, sum(t.v) OVER w AS s, r.v AS newest FROM t \
     LAST JOIN r ON t.k = r.k WINDOW w AS (UNION u PARTITION BY t.k ORDER BY t.ts \
     ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW) AS KNOWN AT ARRIVAL";

#[test]
fn a_directory_that_is_opened_again_knows_the_same() {
    let folder = folder("again");
    let columns = "(id INT, k INT, v INT, ts BIGINT, INDEX(KEY=k, TS=ts))";
    let query = QUERY.replace("UNION u ", "");
    let expected = {
        let database = Database::open(&folder).expect("it opens");
        let session = database.session();
        run(&session, &format!("CREATE TABLE t {columns}; CREATE TABLE r {columns}"));
        for at in 0..40 {
            let table = if at % 3 == 0 { "r" } else { "t" };
            let row = format!("({at}, {}, {at}, {})", at % 2, at * 7 % 11);
            run(&session, &format!("INSERT INTO {table} VALUES {row}"));
            if at == 20 {
                run(&session, "CHECKPOINT");
            }
        }
        let text = text(&run(&session, &query));
        database.close().expect("it closes");
        text
    };
    assert_eq!(expected.split("; ").count(), 26);
    for read_only in [false, true] {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let database = Database::open_with(&folder, &options).expect("it opens again");
        let output = run(&database.session(), &query);
        assert_eq!(text(&output), expected, "read_only {read_only}");
        assert!(output.warnings.is_empty());
        database.close().expect("it closes");
    }
    fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn explain_says_how_rows_are_known() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE t (id INT, seen BIGINT)");
    for (at, expected) in [("ARRIVAL", "as known at arrival"), ("seen", "as known at `seen`")] {
        let output = run(&session, &format!("EXPLAIN SELECT id FROM t AS KNOWN AT {at}"));
        let text = format!("{:?}", output.batches);
        assert!(text.contains(expected), "{text}");
    }
    // A request sees what has arrived, and has no AS KNOWN.
    let error =
        session.prepare_request("SELECT id FROM t AS KNOWN AT ARRIVAL").expect_err("refused");
    assert_eq!(error.message, "a request cannot use AS KNOWN AT");
}

#[test]
fn files_are_known_by_a_column() {
    let folder = folder("files");
    fs::create_dir_all(&folder).expect("it is made");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    fs::write(path("t.csv"), "id,k,v,ts,seen\n3,a,30,3000,900\n1,a,10,1000,700\n2,a,20,2000,800\n")
        .expect("it is written");
    fs::write(path("r.csv"), "k,price,ts,seen\na,2.5,2000,800\na,1.5,1000,650\n")
        .expect("it is written");
    let session = Database::in_memory().session();
    let query = format!(
        "SELECT t.id, count(*) OVER w AS n, sum(t.v) OVER w AS s, r.price FROM '{}' AS t \
         LAST JOIN '{}' AS r ORDER BY r.ts ON t.k = r.k \
         WINDOW w AS (PARTITION BY t.k ORDER BY t.ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
        path("t.csv"),
        path("r.csv")
    );
    let output = run(&session, &format!("{query} AS KNOWN AT seen"));
    assert_eq!(text(&output), "3 3 60 2.5; 1 1 10 1.5; 2 2 30 2.5");
    let sql = format!("{query} AS KNOWN AT ARRIVAL");
    let error = session.execute(&sql).expect_err("files have no arrivals");
    assert_eq!(error.code, code::FEATURE_NOT_SUPPORTED, "{error}");
    fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn what_comes_meanwhile_is_not_seen_and_a_cancel_ends_it() {
    let session = Arc::new(Database::in_memory().session());
    run(&session, "CREATE TABLE t (id INT, v INT, ts BIGINT)");
    let rows: Vec<String> = (0..3_000).map(|id| format!("({id}, 1, {})", id % 50)).collect();
    run(&session, &format!("INSERT INTO t VALUES {}", rows.join(", ")));
    run(
        &session,
        "DEPLOY d AS SELECT id, count(v) OVER w AS n FROM t \
         WINDOW w AS (ORDER BY ts ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)",
    );
    let writer = Arc::clone(&session);
    let progress = move |_| {
        writer.execute("DELETE FROM t WHERE id = 3").expect("it deletes");
        writer.execute("INSERT INTO t VALUES (9999, 1, 0)").expect("it inserts");
    };
    let output = known(&session, None, "d").collect(Some(Arc::new(progress))).expect("it runs");
    assert_eq!(output.row_count(), 3_000);
    let context = QueryContext::new();
    let cancelling = context.clone();
    let relation = known(&session, None, "d");
    let progress = move |_| cancelling.cancel();
    let error = context.run(|| relation.collect(Some(Arc::new(progress)))).expect_err("cancelled");
    assert_eq!(error.code, code::QUERY_CANCELED);
}

/// Returns the columns of a result, as integers, row by row.
fn integers(output: &Output) -> Vec<Vec<i64>> {
    let text = text(output);
    let rows = text.split("; ").filter(|row| !row.is_empty());
    rows.map(|row| row.split(' ').map(|value| value.parse().expect("an integer")).collect())
        .collect()
}

#[test]
fn many_rows_are_answered_in_order_by_all_threads() {
    const ROWS: i64 = 4_000;
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE t (id BIGINT, k BIGINT, ts BIGINT, INDEX(KEY=k, TS=ts))");
    // Event times go back and forth, so that most rows are late for some row before them.
    let time = |id: i64| id / 50 * 50 + id * 37 % 101;
    for first in (0..ROWS).step_by(500) {
        let rows = (first..first + 500).map(|id| format!("({id}, {}, {})", id % 7, time(id)));
        run(&session, &format!("INSERT INTO t VALUES {}", rows.collect::<Vec<_>>().join(", ")));
    }
    let total = |id: i64| -> i64 {
        let is_in = |other: &i64| {
            other % 7 == id % 7 && time(*other) <= time(id) && time(*other) >= time(id) - 60
        };
        (0..=id).filter(is_in).sum()
    };
    let expected: Vec<Vec<i64>> = (0..ROWS).map(|id| vec![id, total(id)]).collect();
    let sql = "SELECT id, sum(id) OVER w AS total FROM t WINDOW w AS (PARTITION BY k ORDER BY ts \
               ROWS_RANGE BETWEEN 60 PRECEDING AND CURRENT ROW) %";
    let known = |range: &str| integers(&run(&session, &sql.replace('%', range)));
    assert_eq!(known("AS KNOWN AT ARRIVAL"), expected);
    let of_range = known("LIMIT 700 OFFSET 3100 AS KNOWN AT ARRIVAL");
    assert_eq!(of_range, expected[3_100..3_800]);
    // By the order in which the ids became known, which is that of arrival.
    assert_eq!(known("AS KNOWN AT id"), expected);
}
