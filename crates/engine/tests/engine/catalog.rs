//! Definitions that are dropped and created again while other sessions use them: prepared requests,
//! qualified names, concurrent statements.

use std::sync::{Arc, Barrier};

use lockstep_engine::{CreationOptions, Database, Kind, PreparedRequest, Session, code};
use lockstep_row::{Arena, Datum, Value};

const WINDOW: &str =
    "WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)";

fn session() -> Session {
    let session = Database::in_memory().session();
    run(&session, "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP)");
    run(&session, "INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 2000)");
    session
}

fn run(session: &Session, sql: &str) {
    session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))));
}

fn features(function: &str) -> String {
    format!("SELECT {function}(v) OVER w AS x FROM t {WINDOW}")
}

/// The answer to the row ('a', 10, 3000), or the code of the error.
fn ask(request: &PreparedRequest) -> Result<Value, &'static str> {
    let arena = Arena::new();
    let row = [Datum::String("a"), Datum::BigInt(10), Datum::Timestamp(3000)];
    let answer = request.answer(&row, &arena).map_err(|error| error.code)?;
    Ok(answer.expect("there is no WHERE")[0].to_value())
}

#[test]
fn what_was_prepared_from_a_replaced_deployment_says_so() {
    let session = session();
    run(&session, &format!("DEPLOY f AS {}", features("sum")));
    let first = session.prepare_request("f").unwrap();
    assert_eq!(ask(&first), Ok(Value::BigInt(13)));
    run(&session, "DROP DEPLOYMENT f");
    assert_eq!(ask(&first), Err(code::STALE_DEFINITION));
    run(&session, &format!("DEPLOY f AS {}", features("max")));
    assert_eq!(ask(&first), Err(code::STALE_DEFINITION));
    assert_eq!(ask(&session.prepare_request("f").unwrap()), Ok(Value::BigInt(10)));

    let arena = Arena::new();
    let row = [Datum::String("a"), Datum::BigInt(10), Datum::Timestamp(3000)];
    let error = first.answer(&row, &arena).unwrap_err();
    assert_eq!(error.kind, Kind::PrepareAgain);
    assert_eq!(error.message, "deployment `default.f` was dropped after the query was prepared");
    assert_eq!(error.hint.as_deref(), Some("Prepare the query again."));
    let error = first.answer_rows(&row, &arena, |_| {}).unwrap_err();
    assert_eq!(error.code, code::STALE_DEFINITION);
}

#[test]
fn what_was_prepared_from_a_query_ends_with_its_tables() {
    let session = session();
    let query = features("sum");
    let request = session.prepare_request(&query).unwrap();
    let relation = session.query("SELECT count(*) FROM t").unwrap();
    let appender = session.appender("t").unwrap();
    assert_eq!(ask(&request), Ok(Value::BigInt(13)));
    run(&session, "DROP TABLE t");
    for _ in 0..2 {
        assert_eq!(ask(&request), Err(code::STALE_DEFINITION));
        assert_eq!(relation.collect(None).unwrap_err().code, code::STALE_DEFINITION);
        let row = [[Datum::String("a"), Datum::BigInt(1), Datum::Timestamp(1)]];
        assert_eq!(appender.append(row).unwrap_err().code, code::STALE_DEFINITION);
        // The same name, made anew, is another table.
        if !session.has_table("t") {
            run(&session, "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP)");
        }
    }
    assert_eq!(ask(&session.prepare_request(&query).unwrap()), Ok(Value::BigInt(10)));
    // A table that the query does not name has no say.
    let request = session.prepare_request(&query).unwrap();
    run(&session, "CREATE TABLE u (k STRING)");
    run(&session, "DROP TABLE u");
    assert_eq!(ask(&request), Ok(Value::BigInt(10)));
}

#[test]
fn a_replaced_procedure_is_called_anew() {
    let session = session();
    let create = |function: &str| {
        let query = features(function);
        format!(
            "CREATE OR REPLACE PROCEDURE p (k STRING, v BIGINT, ts TIMESTAMP) BEGIN {query}; END"
        )
    };
    run(&session, &create("sum"));
    run(&session, "CALL p('a', 10, 3000)");
    run(&session, &create("max"));
    let output = session.execute("CALL p('a', 10, 3000)").unwrap();
    assert_eq!(output.row_count(), 1);
    let error = session.execute(&format!("DEPLOY p AS {}", features("sum"))).unwrap_err();
    assert_eq!(error.code, code::DUPLICATE_OBJECT, "they share their names");
}

#[test]
fn a_query_that_is_asked_again_is_compiled_once() {
    let session = session();
    let query = features("sum");
    let first = session.prepare_request(&query).unwrap();
    assert!(Arc::ptr_eq(&first, &session.prepare_request(&query).unwrap()));
    run(&session, "SET time_zone = 'Asia/Shanghai'");
    assert!(!Arc::ptr_eq(&first, &session.prepare_request(&query).unwrap()));
    run(&session, "SET time_zone = 'UTC'");
    assert!(Arc::ptr_eq(&first, &session.prepare_request(&query).unwrap()));
    run(&session, "CREATE DATABASE other");
    run(&session, "CREATE TABLE other.t (k STRING, v BIGINT, ts TIMESTAMP)");
    run(&session, "USE other");
    let other = session.prepare_request(&query).unwrap();
    assert_eq!((ask(&first), ask(&other)), (Ok(Value::BigInt(13)), Ok(Value::BigInt(10))));
}

#[test]
fn a_dropped_table_gives_its_memory_back() {
    let database = Database::in_memory();
    let session = database.session();
    run(&session, "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP)");
    run(&session, "CREATE TABLE other (k STRING, v BIGINT, ts TIMESTAMP)");
    run(&session, "INSERT INTO t VALUES ('a', 1, 1000), ('a', 2, 2000)");
    run(&session, &format!("DEPLOY d AS {}", features("sum").replace("FROM t", "FROM other")));
    session.prepare_request(&features("sum")).unwrap();
    let relation = session.query("SELECT * FROM t").unwrap();
    let before = database.memory_use().used;
    run(&session, "DROP TABLE t");
    // What other tests still read is not freed yet.
    let is_less = |_| {
        std::thread::yield_now();
        database.memory_use().used < before
    };
    assert!((0..1_000_000).any(is_less), "{} of {before}", database.memory_use().used);
    run(&session, "DROP DEPLOYMENT d");
    run(&session, "DROP TABLE other");
    let is_empty = |_| {
        std::thread::yield_now();
        database.memory_use().used == 0
    };
    assert!((0..1_000_000).any(is_empty), "nothing is left");
    drop(relation);
}

#[test]
fn a_deployment_stays_bound_to_the_tables_that_its_names_meant() {
    let session = session();
    run(&session, "CREATE DATABASE db2");
    run(&session, "CREATE TABLE db2.t (k STRING, v BIGINT, ts TIMESTAMP)");
    run(&session, &format!("DEPLOY db2.d AS {}", features("sum")));
    run(&session, "USE db2");
    assert_eq!(ask(&session.prepare_request("d").unwrap()), Ok(Value::BigInt(13)));
    let info = session.deployment("d").unwrap();
    assert_eq!((info.database.as_str(), info.current_database.as_str()), ("db2", "default"));
    // It keeps the table that it reads, not the one beside it.
    assert_eq!(session.execute("DROP TABLE default.t").unwrap_err().code, code::DEPENDENT_OBJECTS);
    run(&session, "DROP TABLE db2.t");
    assert_eq!(ask(&session.prepare_request("d").unwrap()), Ok(Value::BigInt(13)));
    assert_eq!(session.verify("d").unwrap().differing, 0);
}

#[test]
fn of_two_deploys_of_one_name_one_succeeds() {
    for _ in 0..50 {
        let session = session();
        let barrier = Barrier::new(2);
        let deploy = |function: &str| {
            let sql = format!("DEPLOY d AS {}", features(function));
            barrier.wait();
            session.execute(&sql).map(|_| ()).map_err(|error| error.code)
        };
        let results = std::thread::scope(|scope| {
            let other = scope.spawn(|| deploy("max"));
            [deploy("sum"), other.join().expect("it does not panic")]
        });
        let failed: Vec<_> = results.iter().filter(|result| result.is_err()).collect();
        assert_eq!(failed, [&Err(code::DUPLICATE_OBJECT)], "{results:?}");
    }
}

#[test]
fn if_not_exists_is_about_the_name_only() {
    let session = session();
    // The window is defined twice: not what IF NOT EXISTS speaks of.
    let twice = format!("{}, w AS (PARTITION BY k ORDER BY ts ROWS 3 PRECEDING)", features("sum"));
    session.execute(&format!("DEPLOY IF NOT EXISTS d AS {twice}")).unwrap_err();
    run(&session, &format!("DEPLOY IF NOT EXISTS d AS {}", features("sum")));
    run(&session, &format!("DEPLOY IF NOT EXISTS d AS {}", features("max")));
    assert_eq!(ask(&session.prepare_request("d").unwrap()), Ok(Value::BigInt(13)));
}

#[test]
fn explain_changes_nothing() {
    let session = session();
    let before = session.indexes("t").unwrap();
    let query = features("sum");
    let output = session.execute(&format!("EXPLAIN {query}")).unwrap();
    assert!(output.row_count() > 2);
    assert_eq!(session.indexes("t").unwrap(), before);
    run(&session, &format!("DEPLOY d AS {query}"));
    let deployed = session.indexes("t").unwrap();
    session.execute(&format!("EXPLAIN {query}")).unwrap();
    assert_eq!(session.indexes("t").unwrap(), deployed);
}

/// The texts of the last column of the only row.
fn last_text(session: &Session, sql: &str) -> String {
    let output = session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))));
    let column = output.batches[0].columns().last().expect("there is a column");
    let arena = Arena::new();
    let value = lockstep_row::arrow::ColumnReader::new(column.as_ref()).get(0, &arena);
    value.as_str().expect("it is a string").to_owned()
}

#[test]
fn what_show_prints_makes_the_same_again() {
    let session = Database::in_memory().session();
    for definition in [
        "CREATE TABLE t (k STRING NOT NULL, v INT DEFAULT 7, ts TIMESTAMP)",
        "CREATE TABLE t (k STRING DEFAULT 'it\\'s \\\\ a', d DATE DEFAULT '2024-02-29', f DOUBLE DEFAULT 1.5, \
         b BOOL DEFAULT true, ts TIMESTAMP DEFAULT 1000, m MAP<STRING, INT>)",
        "CREATE TABLE t (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=(k, v), TS=ts, TTL=90m), \
         INDEX by_v (v) OPTIONS(TS=ts, TTL=(10m, 3), TTL_TYPE=absandlat), INDEX(KEY=k))",
        "CREATE TABLE t (k STRING, `select` BIGINT, INDEX(KEY=`select`, TTL=5, TTL_TYPE=latest)) \
         OPTIONS(PARTITIONNUM=2, REPLICANUM=1)",
    ] {
        run(&session, definition);
        let shown = last_text(&session, "SHOW CREATE TABLE t");
        let indexes = session.indexes("t").unwrap();
        let described = session.execute("DESC t").unwrap().batches;
        run(&session, "DROP TABLE t");
        run(&session, &shown);
        assert_eq!(last_text(&session, "SHOW CREATE TABLE t"), shown);
        assert_eq!(session.indexes("t").unwrap(), indexes, "{shown}");
        assert_eq!(session.execute("DESC t").unwrap().batches, described, "{shown}");
        run(&session, "DROP TABLE t");
    }
    run(&session, "CREATE DATABASE db1");
    run(&session, "CREATE DATABASE db2");
    run(&session, "CREATE TABLE db1.t (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))");
    run(&session, "USE db1");
    run(&session, "SET time_zone = '+05:30'");
    run(&session, "SET compatibility = 'openmldb'");
    let options = "long_windows = 'w:1d', range_bias = 1h, rows_bias = 'inf', sync = false";
    let query = features("sum").replace("ROWS BETWEEN", "ROWS_RANGE BETWEEN");
    let query = query.replace("UNBOUNDED PRECEDING", "1h PRECEDING");
    run(&session, &format!("DEPLOY db2.`d` OPTIONS({options}) {query}"));
    let shown = last_text(&session, "SHOW DEPLOYMENT db2.d");
    let info = session.deployment("db2.d").unwrap();
    run(&session, "DROP DEPLOYMENT db2.d");
    run(&session, "USE db2");
    run(&session, "SET time_zone = 'UTC'");
    run(&session, "SET compatibility = 'standard'");
    run(&session, &shown);
    assert_eq!(session.deployment("db2.d").unwrap(), info, "{shown}");
}

#[test]
fn an_object_has_a_name_and_a_column_a_type_that_is_stored() {
    let session = session();
    let refused = |error: Box<lockstep_engine::Diagnostic>| (error.code, error.message);
    let rows = session.execute("SELECT k, v FROM t").unwrap().batches;
    let create = |table: &str, sql: &str| {
        let rows = session.execute(sql).unwrap().batches;
        let mut batches = rows.iter().cloned().map(Ok);
        let schema = rows[0].schema();
        session.create_table_of(table, &schema, &mut batches, CreationOptions::default())
    };
    for table in ["", "default."] {
        let error = session.create_table(table, &rows[0].schema()).unwrap_err();
        assert_eq!(refused(error), ("42601", "the name of a table cannot be empty".to_owned()));
        let error = create(table, "SELECT k FROM t").unwrap_err();
        assert_eq!(error.code, "42601");
    }
    let error = create("u", "SELECT [v, v] AS pair FROM t").unwrap_err();
    let message = "column `pair` cannot be of type ARRAY<BIGINT>".to_owned();
    assert_eq!(refused(error), ("42P16", message));
    for sql in ["CREATE USER ''", "CREATE USER IF NOT EXISTS ''"] {
        let error = session.execute(sql).unwrap_err();
        assert_eq!(
            refused(error),
            ("42601", "the name of a user cannot be empty".to_owned()),
            "{sql}"
        );
    }
    assert_eq!(session.execute("SHOW TABLES").unwrap().row_count(), 1);
}
