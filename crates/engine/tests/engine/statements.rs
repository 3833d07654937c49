//! Statements through the public interface: their effects, and errors that leave no partial effect.

use std::{fs, path::PathBuf};

use lockstep_engine::{Database, Session, code};
use lockstep_row::{Arena, DataType, Datum, Value, arrow::ColumnReader};

/// Rows of the last statement, values printed.
fn rows(session: &Session, sql: &str) -> Vec<String> {
    let output = session.execute(sql).unwrap_or_else(|error| panic!("{}", error.render(Some(sql))));
    let mut rows = Vec::new();
    for batch in &output.batches {
        let arena = Arena::new();
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = readers.iter().map(|r| shown(&r.get(row, &arena))).collect();
            rows.push(values.join(" "));
        }
    }
    rows
}

fn shown(datum: &Datum<'_>) -> String {
    match datum {
        Datum::String(text) => (*text).to_owned(),
        other => {
            lockstep_function::cast::print_datum(*other, &lockstep_function::Settings::default())
        }
    }
}

/// The code and the marked text of the error of the last statement.
fn refused(session: &Session, sql: &str) -> (&'static str, String) {
    let error = session.execute(sql).expect_err("the statement is wrong");
    let marked = error.span.and_then(|span| sql.get(span.start..span.end)).unwrap_or_default();
    (error.code, marked.to_owned())
}

fn session() -> Session {
    let session = Database::in_memory().session();
    session
        .execute("CREATE TABLE t (k STRING NOT NULL, v INT DEFAULT 7, ts TIMESTAMP, INDEX(KEY=k, TS=ts))")
        .expect("the definition is right");
    session
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lockstep-engine-{}-{name}", std::process::id()))
}

#[test]
fn an_insert_that_fails_half_way_inserts_nothing() {
    let session = session();
    for wrong in [
        "INSERT INTO t VALUES ('a', 1, 5), ('b', 'x', 6)",
        "INSERT INTO t VALUES ('a', 1, 5), (NULL, 1, 6)",
        "INSERT INTO t VALUES ('a', 1, 5), ('b', 1, NULL)",
        "INSERT INTO t VALUES ('a', 1, 5), ('b', 3000000000, 6)",
        "INSERT INTO t VALUES ('a', 1, 5), ('b', 1)",
    ] {
        session.execute(wrong).expect_err(wrong);
        assert_eq!(rows(&session, "SELECT count(*) FROM t"), ["0"], "{wrong}");
    }
    session.execute("INSERT INTO t (k, ts) VALUES ('a', 5)").expect("v has a default");
    assert_eq!(rows(&session, "SELECT k, v FROM t"), ["a 7"]);
}

#[test]
fn errors_point_at_the_word() {
    let session = session();
    assert_eq!(refused(&session, "SELECT w FROM t"), (code::UNDEFINED_COLUMN, "w".to_owned()));
    assert_eq!(refused(&session, "DROP TABLE tt"), (code::UNDEFINED_TABLE, "tt".to_owned()));
    assert_eq!(refused(&session, "USE nowhere"), (code::UNDEFINED_DATABASE, "nowhere".to_owned()));
    assert_eq!(
        refused(&session, "SET tme_zone = 'UTC'"),
        (code::UNDEFINED_OBJECT, "tme_zone".to_owned())
    );
    assert_eq!(
        refused(&session, "CREATE TABLE t (a INT)"),
        (code::DUPLICATE_TABLE, "t".to_owned())
    );
}

#[test]
fn a_deployment_keeps_its_tables() {
    let session = session();
    session.execute("DEPLOY d AS SELECT k, v FROM t").expect("it deploys");
    assert_eq!(refused(&session, "DROP TABLE t"), (code::DEPENDENT_OBJECTS, "t".to_owned()));
    session.execute("DROP DEPLOYMENT d; DROP TABLE t").expect("nothing holds the table any more");
}

#[test]
fn a_window_longer_than_the_retention_is_told_at_deploy() {
    let session = Database::in_memory().session();
    session
        .execute("CREATE TABLE s (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1h))")
        .expect("the definition is right");
    let deploy = |name: &str, frame: &str| {
        let sql = format!(
            "DEPLOY {name} AS SELECT count(k) OVER w AS n FROM s \
             WINDOW w AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN {frame} PRECEDING AND CURRENT ROW)"
        );
        let warnings = session.execute(&sql).expect("it deploys").warnings;
        warnings.iter().filter(|warning| warning.code == "01L01").count()
    };
    assert_eq!(deploy("short", "1h"), 0);
    assert_eq!(deploy("long", "2h"), 1);
}

#[test]
fn a_malformed_file_loads_nothing_unless_told_to_skip() {
    let session = session();
    let path = scratch("malformed.csv");
    fs::write(&path, "k,v,ts\na,1,1000\nb,x,2000\nc,3,3000\n")
        .expect("the scratch folder is writable");
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", path.display());
    let error = session.execute(&load).expect_err("row 2 is malformed");
    assert_eq!(error.code, code::BAD_COPY_FORMAT);
    assert!(error.message.contains("line 3: column `v`"), "{}", error.message);
    assert_eq!(rows(&session, "SELECT count(*) FROM t"), ["0"]);
    let skipped = session.execute(&format!("{load} OPTIONS(on_error='skip')")).expect("it skips");
    assert_eq!((skipped.rows_affected, skipped.warnings.len()), (Some(2), 1));
    fs::remove_file(path).expect("it was written above");
}

#[test]
fn a_query_over_a_file_is_loaded() {
    let session = session();
    let path = scratch("query.csv");
    fs::write(&path, "name,n,seen\na,1,1000\nb,2,2000\nb,3,3000\n").unwrap();
    let load = |sql: &str| {
        let path = path.display();
        session.execute(&format!("LOAD DATA INFILE '{path}' INTO TABLE t OPTIONS(sql='{sql}')"))
    };
    let query = "SELECT name AS k, int(n + 1) AS v, timestamp(seen) AS ts FROM file WHERE n > 1";
    assert_eq!(load(query).unwrap().rows_affected, Some(2));
    assert_eq!(rows(&session, "SELECT k, v, ts FROM t").len(), 2);
    assert_eq!(rows(&session, "SELECT sum(v) FROM t"), ["7"]);
    assert_eq!(load("SELECT nothing FROM file").unwrap_err().code, code::UNDEFINED_COLUMN);
    assert_eq!(load("SELECT name AS stray FROM file").unwrap_err().code, code::UNDEFINED_COLUMN);
    session.execute("SET @@execute_mode = 'offline'").unwrap();
    assert_eq!(load(query).unwrap().rows_affected, Some(2));
    fs::remove_file(path).unwrap();
}

#[test]
fn a_header_is_written_before_rows_that_are_appended_when_asked() {
    let session = session();
    session.execute("INSERT INTO t VALUES ('a', 1, 5)").unwrap();
    let path = scratch("header.csv");
    let out = |options: &str| {
        let sql = format!("SELECT k, v FROM t INTO OUTFILE '{}' {options}", path.display());
        session.execute(&sql).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    assert_eq!(out(""), "k,v\na,1\n");
    assert_eq!(out("OPTIONS(mode='append')"), "k,v\na,1\na,1\n");
    assert_eq!(out("OPTIONS(mode='append', header=true)"), "k,v\na,1\na,1\nk,v\na,1\n");
    assert_eq!(out("OPTIONS(mode='overwrite', header=false)"), "a,1\n");
    // Empty lines are no rows.
    fs::write(&path, "\n\r\n").unwrap();
    assert_eq!(out("OPTIONS(mode='append')"), "\n\r\nk,v\na,1\n");
    fs::remove_file(path).unwrap();
}

#[test]
fn an_outfile_is_quoted_as_asked_and_in_the_time_zone_of_the_session() {
    let session = session();
    session.execute("INSERT INTO t VALUES ('a,\"b\"', 1, 0)").unwrap();
    session.execute("SET time_zone = 'Asia/Kolkata'").unwrap();
    let path = scratch("quotes.csv");
    let out = |options: &str| {
        let options = format!("OPTIONS(mode='overwrite', header=false{options})");
        let sql = format!("SELECT k, ts FROM t INTO OUTFILE '{}' {options}", path.display());
        session.execute(&sql).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    let moment = "1970-01-01T05:30:00.000+05:30";
    assert_eq!(out(""), format!("\"a,\"\"b\"\"\",{moment}\n"));
    assert_eq!(out(", quote=''"), format!("a,\"b\",{moment}\n"));
    assert_eq!(out(", quote='#'"), format!("#a,\"b\"#,{moment}\n"));
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", path.display());
    session.execute("CREATE TABLE u (k STRING, ts TIMESTAMP)").unwrap();
    let load = load.replace("TABLE t", "TABLE u OPTIONS(header=false, quote='#')");
    session.execute(&load).unwrap();
    assert_eq!(rows(&session, "SELECT bigint(ts) FROM u"), ["0"]);
    fs::remove_file(path).unwrap();
}

#[test]
fn a_path_that_ends_in_a_slash_is_a_folder_of_parts() {
    let session = session();
    session.execute("INSERT INTO t VALUES ('a', 1, 5), ('b', 2, 6), ('c', 3, 7)").unwrap();
    let folder = scratch("parts");
    let out = |options: &str| {
        let path = folder.display();
        session.execute(&format!("SELECT k, v FROM t INTO OUTFILE '{path}/' OPTIONS({options})"))
    };
    for wrong in ["mode='new'", "format='orc'", "coalesce='two'", "quote='ab'", "header='yes'"] {
        assert_eq!(out(wrong).unwrap_err().code, code::INVALID_PARAMETER, "{wrong}");
        assert!(!folder.exists(), "{wrong}");
    }
    assert_eq!(out("coalesce=2").unwrap().rows_affected, Some(3));
    let part = |number: u8| fs::read_to_string(folder.join(format!("part-0000{number}.csv")));
    assert_eq!(
        (part(0).unwrap(), part(1).unwrap()),
        ("k,v\na,1\nb,2\n".into(), "k,v\nc,3\n".into())
    );
    assert_eq!(out("").unwrap_err().code, code::DUPLICATE_FILE);
    out("mode='overwrite'").unwrap();
    assert!(part(1).is_err() && folder.join("_SUCCESS").exists());
    session.execute("TRUNCATE TABLE t").unwrap();
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", folder.display());
    let error = session.execute(&load).unwrap_err();
    assert_eq!(error.code, code::NOT_NULL_VIOLATION, "{error:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn links_replace_links_and_options_without_effect_are_told() {
    let session = session();
    let (one, two) = (scratch("one.csv"), scratch("two.csv"));
    fs::write(&one, "k,v,ts\na,1,1000\n").unwrap();
    fs::write(&two, "k,v,ts\nb,2,2000\n").unwrap();
    session.execute("SET @@execute_mode = 'offline'").unwrap();
    let load = |path: &PathBuf, options: &str| {
        let path = path.display();
        session.execute(&format!("LOAD DATA INFILE '{path}' INTO TABLE t OPTIONS({options})"))
    };
    load(&one, "deep_copy=false").unwrap();
    load(&two, "deep_copy=false, mode='overwrite'").unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t"), ["b"]);
    let output = load(&one, "mode='overwrite', thread=4, writer_type='batch'").unwrap();
    let said: Vec<_> = output.warnings.iter().map(|warning| warning.message.as_str()).collect();
    let expected = ["thread", "writer_type"]
        .map(|name| format!("option `{name}` has no effect: one thread reads the file"));
    assert_eq!(said, expected);
    let refused = load(&two, "deep_copy=false, mode='overwrite'").unwrap_err();
    assert_eq!(refused.code, code::DUPLICATE_OBJECT, "rows that were copied cannot come back");
    fs::write(&two, "k,v,wrong\nb,2,2000\n").unwrap();
    assert_eq!(
        load(&two, "deep_copy=false, mode='append'").unwrap_err().code,
        code::UNDEFINED_COLUMN
    );
    for path in [one, two] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_result_goes_through_parquet_and_back() {
    let session = session();
    session
        .execute("INSERT INTO t VALUES ('a', 1, 5), ('b', NULL, 6)")
        .expect("the rows are right");
    let path = scratch("round.parquet");
    let (out, again) = (
        format!("SELECT * FROM t INTO OUTFILE '{}'", path.display()),
        format!(
            "CREATE TABLE u LIKE PARQUET '{0}'; LOAD DATA INFILE '{0}' INTO TABLE u",
            path.display()
        ),
    );
    session.execute(&out).expect("it is written");
    assert_eq!(session.execute(&out).expect_err("it is there").code, code::DUPLICATE_FILE);
    session.execute(&again).expect("it is read");
    assert_eq!(rows(&session, "SELECT * FROM u"), rows(&session, "SELECT * FROM t"));
    fs::remove_file(path).expect("it was written above");
}

#[test]
fn verify_replays_late_and_equal_rows() {
    let session = session();
    session
        .execute("INSERT INTO t VALUES ('a', 1, 20), ('a', 2, 10), ('a', 3, 20), ('b', 4, 10), ('a', 5, 15)")
        .expect("the rows are right");
    session
        .execute(
            "DEPLOY d AS SELECT k, sum(v) OVER w AS s, lag(v, 1) OVER w AS l FROM t \
             WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
        )
        .expect("it deploys");
    let report = session.verify("d").expect("it replays");
    assert_eq!((report.requests, report.values, report.differing), (5, 15, 0));
}

#[test]
fn a_prepared_insert_takes_one_set_of_values_after_another() {
    let session = session();
    let text = |text: &str| (Value::String(text.into()), DataType::String);
    let prepared = session.prepare("INSERT INTO t (k, ts) VALUES (?, ?)").unwrap();
    assert_eq!(prepared.parameter_count(), 2);
    for (k, ts) in [("a", 1_000), ("b", 2_000)] {
        let values = [text(k), (Value::Timestamp(ts), DataType::Timestamp)];
        let output = session.execute_prepared(&prepared, &values).unwrap();
        assert_eq!(output.rows_affected, Some(1));
    }
    let null = [text("c"), (Value::Null, DataType::Null)];
    let error = session.execute_prepared(&prepared, &null).unwrap_err();
    assert_eq!(error.code, code::NOT_NULL_VIOLATION);
    let wrong = [text("c"), text("soon")];
    assert_eq!(
        session.execute_prepared(&prepared, &wrong).unwrap_err().code,
        code::DATATYPE_MISMATCH
    );
    let few = session.execute_prepared(&prepared, &[text("c")]).unwrap_err();
    assert_eq!(few.message, "1 parameters supplied, but the statement requires 2");
    let none = session.execute("SELECT v FROM t WHERE k = ?").unwrap_err();
    assert_eq!(none.message, "0 parameters supplied, but the statement requires 1");
    let found = session.execute_with("SELECT v FROM t WHERE k = ?", &[text("b")]).unwrap();
    assert_eq!(found.row_count(), 1);
    let nothing = session
        .execute_with("SELECT v FROM t WHERE k = ?", &[(Value::Null, DataType::Null)])
        .unwrap();
    assert_eq!(nothing.row_count(), 0);
}

#[test]
fn a_query_that_is_bound_before_a_delete_sees_the_rows_that_are_left() {
    let session = session();
    session.execute("INSERT INTO t VALUES ('a', 1, 1), ('b', 2, 2)").unwrap();
    let relation = session.query("SELECT k FROM t").unwrap();
    assert_eq!(session.execute("DELETE FROM t WHERE k = 'a'").unwrap().rows_affected, Some(1));
    assert_eq!(relation.collect(None).unwrap().row_count(), 1);
    assert_eq!(session.execute("DELETE FROM t WHERE k = 'a'").unwrap().rows_affected, Some(0));
}

#[test]
fn offline_data_is_apart_from_the_table() {
    let session = session();
    let (file, out) = (scratch("offline.csv"), scratch("offline-out.csv"));
    fs::write(&file, "k,v,ts\na,1,1000\nb,2,2000\n").unwrap();
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", file.display());
    session.execute("SET @@execute_mode = 'offline'").unwrap();
    session.execute(&load).unwrap();
    let again = session.execute(&load).unwrap_err();
    assert_eq!(again.code, code::DUPLICATE_OBJECT);
    session.execute(&format!("{load} OPTIONS(mode='append')")).unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t").len(), 4);
    session.execute(&format!("{load} OPTIONS(mode='overwrite')")).unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t").len(), 2);
    session.execute(&format!("SELECT k FROM t INTO OUTFILE '{}'", out.display())).unwrap();
    session.execute(&format!("ALTER TABLE t ADD offline_path '{}'", file.display())).unwrap();
    session.execute("SET @@execute_mode = 'online'").unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t").len(), 0);
    session.execute(&format!("{load} OPTIONS(put_if_absent=true)")).unwrap();
    session.execute(&format!("{load} OPTIONS(put_if_absent=true)")).unwrap();
    assert_eq!(rows(&session, "SELECT k FROM t").len(), 2);
    let refused = session.execute(&format!("{load} OPTIONS(mode='overwrite')")).unwrap_err();
    assert_eq!(refused.code, code::INVALID_PARAMETER);
    let jobs = rows(&session, "SHOW JOBS");
    assert!(jobs[0].contains("ImportOfflineStorage Finished"), "{jobs:?}");
    assert!(jobs[1].contains("Failed"), "{jobs:?}");
    for path in [file, out] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_global_variable_is_for_sessions_to_come() {
    let database = Database::in_memory();
    let before = database.session();
    before.execute("SET GLOBAL time_zone = 'Europe/Paris'").unwrap();
    let shown = |session: &Session| rows(session, "SHOW VARIABLES").join(";");
    assert!(shown(&before).contains("time_zone UTC"));
    assert!(shown(&database.session()).contains("time_zone Europe/Paris"));
}

#[test]
fn above_max_memory_nothing_of_a_write_is_stored_and_reads_go_on() {
    let database = Database::in_memory();
    let session = database.session();
    session.execute("CREATE TABLE t (k STRING, v INT)").unwrap();
    session.execute("INSERT INTO t VALUES ('a', 1)").unwrap();
    database.set_max_memory(Some(database.memory_use().used));
    let file = std::env::temp_dir().join(format!("lockstep-full-{}.csv", std::process::id()));
    fs::write(&file, "k,v\nb,2\nc,3\n").unwrap();
    let load = format!("LOAD DATA INFILE '{}' INTO TABLE t", file.display());
    assert_eq!(refused(&session, &load).0, code::OUT_OF_MEMORY);
    let stored = session.execute("SELECT * FROM t").unwrap();
    let batch = session.append("t", &stored.batches).unwrap_err();
    assert_eq!(batch.code, code::OUT_OF_MEMORY);
    let appender = session.appender("t").unwrap();
    let row = [[Datum::String("d"), Datum::Int(4)]];
    assert_eq!(appender.append(row).unwrap_err().code, code::OUT_OF_MEMORY);
    assert_eq!(rows(&session, "SELECT * FROM t"), ["a 1"]);
    session.execute("TRUNCATE TABLE t").unwrap();
    database.set_max_memory(None);
    session.execute(&load).unwrap();
    assert_eq!(rows(&session, "SELECT * FROM t"), ["b 2", "c 3"]);
    fs::remove_file(file).unwrap();
}

#[test]
fn insert_stops_at_a_part_of_the_memory() {
    let database = Database::in_memory();
    let session = database.session();
    session.execute("CREATE TABLE t (v INT)").unwrap();
    session.execute("INSERT INTO t VALUES (1)").unwrap();
    let limit = database.memory_use().used * 3;
    database.set_max_memory(Some(limit));
    session.execute("SET insert_memory_usage_limit = 20").unwrap();
    let error = session.execute("INSERT INTO t VALUES (2)").unwrap_err();
    assert_eq!(
        (error.code, error.kind),
        (code::OUT_OF_MEMORY, lockstep_engine::Kind::FreeResources)
    );
    session.execute("SET insert_memory_usage_limit = 90").unwrap();
    session.execute("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(rows(&session, "SELECT v FROM t"), ["1", "2"]);
}

#[test]
fn a_parameter_that_no_statement_takes_is_refused() {
    let session = Database::in_memory().session();
    session.execute("CREATE TABLE t (s STRING, m MAP<STRING, INT>)").unwrap();
    let text = DataType::String;
    let array = (Value::Array(vec![Value::Null]), DataType::Array(Box::new(text.clone())));
    let map_type = DataType::Map(Box::new(text), Box::new(DataType::Int));
    let map = (Value::Map(vec![(Value::String("a".into()), Value::Int(1))]), map_type);
    for sql in ["INSERT INTO t (s) VALUES (?)", "SELECT ?", "DELETE FROM t WHERE s = ?"] {
        let error = session.execute_with(sql, std::slice::from_ref(&array)).unwrap_err();
        assert_eq!(error.code, "0A000", "{sql}: {error:?}");
        assert_eq!(
            error.message, "parameter 1 is an ARRAY, which statements do not support",
            "{sql}"
        );
    }
    let error = session.query_with("SELECT ? AS a", std::slice::from_ref(&map)).err().unwrap();
    assert_eq!(error.message, "parameter 1 is a MAP, which queries do not support");
    session.execute_with("INSERT INTO t (m) VALUES (?)", &[map]).unwrap();
}
