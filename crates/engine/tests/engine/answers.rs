//! Logged answers: what a table of answers holds, and why answers differ from those of a training set.

use std::{fs, sync::Arc};

use arrow::util::pretty::pretty_format_batches;
use lockstep_engine::{Database, Output, Session, code};
use lockstep_host::ManualClock;
use lockstep_row::{Arena, Datum};

const NOW_MS: i64 = 1_000_000_000;

const SUM: &str = "SELECT k, sum(v) OVER w AS s FROM t \
     WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1000 PRECEDING AND CURRENT ROW)";

fn run(session: &Session, sql: &str) -> Output {
    session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))))
}

/// Returns the values of a result: rows with `|` between two values.
fn text(output: &Output) -> String {
    let table = pretty_format_batches(&output.batches).expect("it prints").to_string();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let row = |line: &str| line.split('|').map(str::trim).collect::<Vec<_>>().join("|");
    rows.map(row).collect::<Vec<_>>().join("; ")
}

/// Requests `(k, v, ts)` of the deployment `d`, and returns the second value of the answer.
fn request(session: &Session, k: i32, v: i64, ts: i64) -> Option<i64> {
    let prepared = session.prepare_request("d").expect("it is deployed");
    let arena = Arena::new();
    let row = [Datum::Int(k), Datum::BigInt(v), Datum::BigInt(ts)];
    let answer = prepared.answer(&row, &arena).expect("it answers");
    answer.and_then(|row| row[1].as_i64())
}

/// Verifies `d` and returns the counts, and for each difference its answer, column, values, cause and rows.
fn verify(session: &Session) -> (String, Vec<String>) {
    let sql = "VERIFY DEPLOYMENT d AGAINST ANSWERS";
    let output = run(session, sql);
    let described = session.describe_statement(sql).expect("it is described").columns;
    assert_eq!(
        described.as_ref(),
        Some(&output.columns),
        "the columns are those that are promised"
    );
    let rows = text(&output);
    let rows: Vec<Vec<&str>> = rows.split("; |").map(|row| row.split('|').collect()).collect();
    let skip = |row: &[&str]| usize::from(row[0].is_empty());
    let counts = rows[0][skip(&rows[0])..][..4].join("|");
    let of = |row: &Vec<&str>| {
        let row = &row[skip(row)..];
        [row[4], row[6], row[7], row[8], row[9], row[10]].join("|")
    };
    let differences = rows.iter().map(of).filter(|row| !row.starts_with('|')).collect();
    (counts, differences)
}

fn deployed() -> Session {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE t (k INT, v BIGINT, ts BIGINT)");
    run(&session, &format!("DEPLOY d OPTIONS(log_answers = 'a') AS {SUM}"));
    session
}

#[test]
fn a_row_has_the_request_the_answer_and_what_was_seen() {
    let session = deployed();
    assert_eq!(request(&session, 1, 5, 100), Some(5));
    run(&session, "INSERT INTO t VALUES (1, 5, 100)");
    assert_eq!(request(&session, 1, 7, 200), Some(12));
    let output = run(
        &session,
        "SELECT request_k, request_v, request_ts, answer_k, answer_s, has_answer FROM a",
    );
    assert_eq!(text(&output), "|1|5|100|1|5|true|; |1|7|200|1|12|true|");
    let output =
        run(&session, "SELECT count(*) FROM a WHERE length(definition) = 16 AND seen != ''");
    assert_eq!(text(&output), "|2|");
    // The first request became a row, the second did not; both are what a training set has.
    assert_eq!(verify(&session), ("2|4|0|".to_owned(), Vec::new()));
}

#[test]
fn a_table_of_ones_own_has_its_columns_in_any_order_and_more() {
    let session = Database::in_memory().session();
    run(
        &session,
        "CREATE TABLE t (k INT, v BIGINT, ts BIGINT); \
         CREATE TABLE a (note STRING, answer_s BIGINT, answer_k INT, request_ts BIGINT, request_v BIGINT, \
         request_k INT, has_answer BOOL, seen STRING, version STRING, definition STRING, \
         answered_at TIMESTAMP, INDEX(KEY=request_k, TS=answered_at, TTL=30d))",
    );
    run(&session, &format!("DEPLOY d OPTIONS(log_answers = 'a') AS {SUM}"));
    assert_eq!(request(&session, 1, 5, 100), Some(5));
    let output =
        run(&session, "SELECT request_k, request_v, request_ts, answer_k, answer_s, note FROM a");
    assert_eq!(text(&output), "|1|5|100|1|5||");
    assert_eq!(verify(&session), ("1|2|0|".to_owned(), Vec::new()));
}

#[test]
fn a_late_row_is_named() {
    let session = deployed();
    run(&session, "INSERT INTO t VALUES (1, 1, 100), (2, 9, 100)");
    assert_eq!(request(&session, 1, 5, 500), Some(6));
    run(&session, "INSERT INTO t VALUES (1, 5, 500), (1, 50, 5000), (2, 3, 120), (1, 10, 300)");
    run(&session, "INSERT INTO t VALUES (1, 20, 301)");
    let (counts, found) = verify(&session);
    assert_eq!(counts, "1|2|1|1 late row");
    assert_eq!(found, ["0|s|6|36|late row|k=1 v=10 ts=300; k=1 v=20 ts=301"]);
    assert_eq!(verify(&session).1.len(), 1, "a verification changes nothing");
}

#[test]
fn a_late_row_before_the_event_itself_is_named_too() {
    let session = deployed();
    assert_eq!(request(&session, 1, 5, 500), Some(5));
    run(&session, "INSERT INTO t VALUES (1, 4, 499); INSERT INTO t VALUES (1, 5, 500)");
    // A later row of the same event time comes after it.
    run(&session, "INSERT INTO t VALUES (1, 8, 500)");
    assert_eq!(verify(&session).1, ["0|s|5|9|late row|k=1 v=4 ts=499"]);
}

#[test]
fn what_was_deleted_or_has_expired_is_told() {
    let session = deployed();
    run(&session, "INSERT INTO t VALUES (1, 1, 100)");
    assert_eq!(request(&session, 1, 5, 500), Some(6));
    run(&session, "DELETE FROM t WHERE k = 1");
    assert_eq!(verify(&session).1, ["0|s|6|5|deleted|rows of `t` no longer exist"]);
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let session = Database::with_clock(Arc::<ManualClock>::clone(&clock)).session();
    run(&session, "CREATE TABLE t (k INT, v BIGINT, ts BIGINT, INDEX(KEY=k, TS=ts, TTL=1m))");
    let options = "OPTIONS(log_answers = 'a', skip_index_check = 'true')";
    run(&session, &format!("DEPLOY d {options} AS {SUM}"));
    run(&session, &format!("INSERT INTO t VALUES (1, 1, {NOW_MS})"));
    assert_eq!(request(&session, 1, 5, NOW_MS), Some(6));
    assert_eq!(verify(&session).0, "1|2|0|");
    clock.advance_ms(120_000);
    assert_eq!(verify(&session).1, ["0|s|6|5|expired|rows of `t` no longer exist"]);
}

#[test]
fn a_changed_deployment_a_changed_version_and_a_forged_answer_are_told_apart() {
    let session = deployed();
    run(&session, "INSERT INTO t VALUES (1, 1, 100)");
    assert_eq!(request(&session, 1, 5, 500), Some(6));
    let copy = |version: &str, answer: &str| {
        let columns = "has_answer, request_k, request_v, request_ts, answer_k";
        let sql = format!(
            "INSERT INTO a SELECT answered_at, definition, {version}, seen, {columns}, {answer} FROM a LIMIT 1"
        );
        run(&session, &sql);
    };
    copy("version", "answer_s + 1");
    copy("'0.0.1'", "answer_s + 2");
    let (counts, found) = verify(&session);
    assert_eq!(counts, "3|6|2|1 changed function, 1 unexplained");
    assert_eq!(found, ["1|s|7|6|unexplained|", "2|s|8|6|changed function|"]);
    let other = SUM.replace("sum(v)", "max(v)");
    run(&session, &format!("DEPLOY OR REPLACE d OPTIONS(log_answers = 'a') AS {other}"));
    assert_eq!(request(&session, 1, 3, 500), Some(3));
    let (counts, found) = verify(&session);
    assert_eq!(counts, "4|8|3|3 changed deployment");
    assert_eq!(found[0], "0|s|6|5|changed deployment|");
}

/// The columns that a new definition adds are added to the table; its answers before the change are compared in
/// the columns that they have, each for its own cause.
#[test]
fn a_table_of_answers_grows_with_its_deployment() {
    let session = deployed();
    run(&session, "INSERT INTO t VALUES (1, 1, 100)");
    assert_eq!(request(&session, 1, 5, 500), Some(6));
    let replace = |features: &str| {
        let query = SUM.replace("sum(v) OVER w AS s", features);
        let deploy = format!("DEPLOY OR REPLACE d OPTIONS(log_answers = 'a') AS {query}");
        run(&session, &deploy);
    };
    replace("sum(v) OVER w AS s, max(v) OVER w AS m");
    assert_eq!(request(&session, 1, 3, 500), Some(4));
    assert_eq!(text(&run(&session, "SELECT answer_s, answer_m FROM a")), "|6||; |4|3|");
    assert_eq!(verify(&session), ("2|5|0|".to_owned(), Vec::new()));
    run(&session, "INSERT INTO t VALUES (1, 10, 300)");
    let late = "late row|k=1 v=10 ts=300";
    let (counts, found) = verify(&session);
    assert_eq!(counts, "2|5|2|2 late row");
    let differ = ["0|s|6|16", "1|s|4|14", "1|m|3|10"].map(|values| format!("{values}|{late}"));
    assert_eq!(found, differ);
    replace("sum(v) OVER w AS s, min(v) OVER w AS m");
    let (counts, found) = verify(&session);
    assert_eq!(counts, "2|5|2|2 late row, 1 changed deployment");
    assert_eq!(found[1], "1|m|3|1|changed deployment|");
    assert_eq!(found[2], format!("1|s|4|14|{late}"));
    // Fewer columns, and another type.
    replace("sum(v) OVER w AS s");
    assert_eq!(request(&session, 2, 3, 500), Some(3));
    let refused = SUM.replace("sum(v)", "avg(v)");
    let refused = format!("DEPLOY OR REPLACE d OPTIONS(log_answers = 'a') AS {refused}");
    let refused = session.execute(&refused).expect_err("the column is BIGINT");
    assert_eq!(refused.message, "column `answer_s` of table `a` is of type BIGINT, not DOUBLE");
    assert_eq!(text(&run(&session, "SELECT answer_s, answer_m FROM a")), "|6||; |4|3|; |3||");
}

#[test]
fn joins_and_unions_see_each_table_as_it_was() {
    let session = Database::in_memory().session();
    run(
        &session,
        "CREATE TABLE t (k INT, v BIGINT, ts BIGINT); CREATE TABLE u (k INT, v BIGINT, ts BIGINT); \
         CREATE TABLE r (k INT, name STRING, ts BIGINT); \
         DEPLOY d OPTIONS(log_answers = 'a') AS \
         SELECT r.name, sum(t.v) OVER w AS s FROM t LAST JOIN r ORDER BY r.ts ON t.k = r.k \
         WINDOW w AS (UNION u PARTITION BY t.k ORDER BY t.ts \
                      ROWS_RANGE BETWEEN 1000 PRECEDING AND CURRENT ROW)",
    );
    run(&session, "INSERT INTO r VALUES (1, 'one', 1); INSERT INTO u VALUES (1, 2, 400)");
    assert_eq!(request(&session, 1, 5, 500), Some(7));
    assert_eq!(verify(&session), ("1|2|0|".to_owned(), Vec::new()));
    run(&session, "INSERT INTO u VALUES (1, 100, 450)");
    run(&session, "INSERT INTO r VALUES (2, 'two', 5), (1, 'uno', 2)");
    let (counts, found) = verify(&session);
    assert_eq!(counts, "1|2|1|1 late row");
    let rows = "k=1 v=100 ts=450; k=1 name=uno ts=2";
    assert_eq!(
        found,
        [format!("0|name|one|uno|late row|{rows}"), format!("0|s|7|107|late row|{rows}")]
    );
}

#[test]
fn a_batch_of_requests_and_one_without_an_answer_are_logged() {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE t (k INT, v BIGINT, ts BIGINT)");
    let query =
        format!("SELECT k, s FROM (SELECT k, v, sum(v) OVER w AS s FROM t {}) AS q WHERE v > 1", {
            &SUM[SUM.find("WINDOW").expect("it has one")..]
        });
    run(&session, &format!("DEPLOY d OPTIONS(log_answers = 'a') AS {query}"));
    let rows = run(
        &session,
        "SELECT 1 AS k, bigint(1) AS v, bigint(5) AS ts UNION ALL \
         SELECT 1 AS k, bigint(2) AS v, bigint(5) AS ts",
    );
    let answers = session.request("d", &rows.batches).expect("it answers");
    assert_eq!(answers.row_count(), 1);
    let output = run(&session, "SELECT request_v, has_answer, answer_s FROM a");
    assert_eq!(text(&output), "|1|false||; |2|true|2|");
    assert_eq!(verify(&session), ("2|3|0|".to_owned(), Vec::new()));
    // The late row gives the answer another sum; the request without one still has none.
    run(&session, "INSERT INTO t VALUES (1, 40, 4)");
    assert_eq!(verify(&session).0, "2|3|1|1 late row");
}

#[test]
fn what_cannot_be_logged_is_refused() {
    let session = deployed();
    let refused = |sql: &str| {
        let error = session.execute(sql).expect_err(sql);
        (error.code, error.message)
    };
    let deploy = |table: &str, query: &str| {
        refused(&format!("DEPLOY e OPTIONS(log_answers = '{table}') AS {query}"))
    };
    let (code, message) = deploy("b", "SELECT k, count(*) AS n FROM t GROUP BY k");
    assert_eq!(code, code::FEATURE_NOT_SUPPORTED);
    assert_eq!(message, "cannot log the answers of this deployment");
    let (code, message) = deploy("t", SUM);
    assert_eq!((code, message.as_str()), (code::INVALID_PARAMETER, "the query reads table `t`"));
    run(&session, "CREATE TABLE small (x INT)");
    let (code, message) = deploy("small", SUM);
    assert_eq!(code, code::INVALID_TABLE_DEFINITION);
    assert_eq!(message, "table `small` has no column `answered_at` of type TIMESTAMP");
    let (code, message) = deploy("b", "SELECT k, v AS k FROM t");
    assert_eq!(code, code::DUPLICATE_OBJECT, "{message}");
    assert_eq!(message, "the answers have more than one column named `answer_k`");
    let other = SUM.replace("sum(v)", "avg(v)");
    let (code, message) = refused(&format!("DEPLOY e OPTIONS(log_answers = 'a') AS {other}"));
    assert_eq!(code, code::INVALID_TABLE_DEFINITION);
    assert_eq!(message, "column `answer_s` of table `a` is of type BIGINT, not DOUBLE");
    let (code, _) = refused("DROP TABLE a");
    assert_eq!(code, code::DEPENDENT_OBJECTS);
    run(&session, &format!("DEPLOY plain AS {SUM}"));
    let (code, message) = refused("VERIFY DEPLOYMENT plain AGAINST ANSWERS");
    assert_eq!(code, code::WRONG_OBJECT_TYPE);
    assert_eq!(message, "deployment `plain` does not log its answers");
    // A row that is none of ours.
    assert_eq!(request(&session, 1, 5, 100), Some(5));
    run(
        &session,
        "INSERT INTO a SELECT answered_at, definition, version, 'much', has_answer, request_k, \
         request_v, request_ts, answer_k, answer_s FROM a LIMIT 1",
    );
    let (code, message) = refused("VERIFY DEPLOYMENT d AGAINST ANSWERS");
    assert_eq!(code, code::DATA_CORRUPTED);
    assert_eq!(message, "answer 1 does not record which rows of each table it read");
    run(&session, "DROP DEPLOYMENT d; DROP TABLE a");
}

#[test]
fn an_answer_that_cannot_be_logged_is_given_and_counted() {
    let session = deployed();
    let refused = session.execute("ALTER TABLE a DROP COLUMN answer_s").expect_err("it is used");
    assert_eq!(refused.code, code::DEPENDENT_OBJECTS);
    run(&session, "ALTER TABLE a ADD COLUMN note STRING");
    let database = session.database();
    database.set_max_memory(Some(1));
    assert_eq!(request(&session, 1, 5, 100), Some(5));
    database.set_max_memory(None);
    assert_eq!(request(&session, 1, 6, 100), Some(6));
    let output = run(&session, "SELECT name, answers_not_logged FROM lockstep.deployments");
    assert_eq!(text(&output), "|d|1|");
    assert_eq!(text(&run(&session, "SELECT answer_s FROM a")), "|6|");
}

#[test]
fn a_directory_that_is_opened_again_logs_on_and_explains() {
    let folder = std::env::temp_dir().join(format!("lockstep-answers-{}", std::process::id()));
    drop(fs::remove_dir_all(&folder));
    {
        let database = Database::open(&folder).expect("it opens");
        let session = database.session();
        run(&session, "CREATE TABLE t (k INT, v BIGINT, ts BIGINT)");
        run(&session, &format!("DEPLOY d OPTIONS(log_answers = 'a') AS {SUM}"));
        run(&session, "INSERT INTO t VALUES (1, 1, 100)");
        assert_eq!(request(&session, 1, 5, 500), Some(6));
        run(&session, "CHECKPOINT");
        database.close().expect("it closes");
    }
    let database = Database::open(&folder).expect("it opens again");
    let session = database.session();
    assert_eq!(verify(&session), ("1|2|0|".to_owned(), Vec::new()));
    run(&session, "INSERT INTO t VALUES (1, 10, 300)");
    assert_eq!(request(&session, 1, 5, 600), Some(16));
    assert_eq!(verify(&session).1, ["0|s|6|16|late row|k=1 v=10 ts=300"]);
    let query = SUM.replace(" FROM", ", max(v) OVER w AS m FROM");
    run(&session, &format!("DEPLOY OR REPLACE d OPTIONS(log_answers = 'a') AS {query}"));
    database.close().expect("it closes");
    // With the columns that the table got for the new definition.
    let database = Database::open(&folder).expect("it opens once more");
    let session = database.session();
    assert_eq!(request(&session, 1, 5, 700), Some(16));
    let output = run(&session, "SELECT answer_s, answer_m FROM a");
    assert_eq!(text(&output), "|6||; |16||; |16|10|");
    database.close().expect("it closes");
    fs::remove_dir_all(&folder).expect("it is there");
}

/// A row of the model: (k, v, ts), and a request: the same, its answer, and its own row.
struct Asking {
    row: (i32, i64, i64),
    answer: i64,
    own: Option<usize>,
}

/// Returns the sum of a window: rows of the key up to the request, those of its own time before `own`.
fn sum_of(rows: &[(i32, i64, i64)], row: (i32, i64, i64), own: Option<usize>) -> i64 {
    let (k, v, ts) = row;
    let is_inside = |(at, other): &(usize, &(i32, i64, i64))| {
        let is_before = other.2 < ts || (other.2 == ts && own.is_none_or(|own| *at < own));
        other.0 == k && is_before && other.2 >= ts - 1000
    };
    v + rows.iter().enumerate().filter(is_inside).map(|(_, other)| other.1).sum::<i64>()
}

#[test]
fn drawn_histories_differ_exactly_where_a_model_says() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut compared, mut differing_in_all) = (0, 0);
    for _ in 0..30 {
        let session = deployed();
        let mut rows: Vec<(i32, i64, i64)> = Vec::new();
        let mut requests: Vec<Asking> = Vec::new();
        for step in 0..60_i64 {
            let late = i64::try_from(draw(4)).expect("small") * 300;
            let ts = 2_000 + step * 50 - late;
            // Values are unlike, so that no two rows are equal but those of a request.
            let row = (i32::try_from(draw(3)).expect("small"), 1_000 * step + 1, ts);
            let kind = draw(3);
            if kind > 0 {
                let answer = request(&session, row.0, row.1, row.2).expect("it has an answer");
                assert_eq!(answer, sum_of(&rows, row, None), "the model is right");
                let own = (kind == 2).then_some(rows.len());
                requests.push(Asking { row, answer, own });
            }
            if kind != 1 {
                run(&session, &format!("INSERT INTO t VALUES ({}, {}, {})", row.0, row.1, row.2));
                rows.push(row);
            }
        }
        let expected = requests.iter().filter(|r| sum_of(&rows, r.row, r.own) != r.answer).count();
        let (counts, _) = verify(&session);
        let causes = if expected == 0 { String::new() } else { format!("{expected} late row") };
        let (count, values) = (requests.len(), requests.len() * 2);
        assert_eq!(counts, format!("{count}|{values}|{expected}|{causes}"));
        compared += count;
        differing_in_all += expected;
    }
    println!("{compared} answers compared, {differing_in_all} differ");
    assert!(compared > 500 && differing_in_all > 50, "{compared} {differing_in_all}");
}

/// Answers one request over a table whose rows go through batch mode, and returns what `verify` finds after
/// more rows of it arrived. `stored`: whether the request became a row.
fn verified_over(right: &str, stored: bool) -> (String, Vec<String>) {
    let session = Database::in_memory().session();
    run(
        &session,
        "CREATE TABLE t (k INT, v BIGINT, ts BIGINT); CREATE TABLE u (k INT, x BIGINT); \
         INSERT INTO u VALUES (1, 100)",
    );
    let query =
        format!("SELECT t.k, r.x AS x FROM t LAST JOIN ({right}) AS r ORDER BY r.x ON t.k = r.k");
    run(&session, &format!("DEPLOY d OPTIONS(log_answers = 'a') AS {query}"));
    assert_eq!(request(&session, 1, 5, 100), Some(100), "{right}");
    if stored {
        run(&session, "INSERT INTO t VALUES (1, 5, 100)");
    }
    run(&session, "INSERT INTO u VALUES (2, 300)");
    assert_eq!(verify(&session), ("1|2|0|".to_owned(), Vec::new()), "{right}");
    run(&session, "INSERT INTO u VALUES (1, 200)");
    verify(&session)
}

#[test]
fn a_late_row_that_batch_mode_reads_is_named() {
    for right in [
        "SELECT k, x FROM u",
        "SELECT DISTINCT k, x FROM u",
        "SELECT k, max(x) AS x FROM u GROUP BY k",
        "SELECT a.k AS k, b.x AS x FROM u AS a JOIN u AS b ON a.k = b.k",
        "SELECT k, x FROM u UNION ALL SELECT k, x FROM u",
    ] {
        for stored in [true, false] {
            let (counts, found) = verified_over(right, stored);
            assert_eq!(counts, "1|2|1|1 late row", "{right}, stored: {stored}");
            assert_eq!(found, ["0|x|100|200|late row|k=1 x=200"], "{right}, stored: {stored}");
        }
    }
}
