//! Differences that a verification must find, and the rows of a sample.

use std::{collections::BTreeSet, sync::Arc};

use lockstep_plan::BoundQuery;
use lockstep_request::PreAggregation;
use lockstep_row::{Arena, arrow::ColumnReader};
use lockstep_sql::{ast::Statement, parse};

use super::{RowSample, Verification, VerifyOptions, verify};
use crate::{
    Database, PreparedRequest, Session,
    catalog::{Definition, DropSignal, ObjectKind, QualifiedName},
    database::TableSet,
    deployment::{Deployment, references},
};

/// 200 rows of three keys, some of equal event times, some late.
fn session() -> Session {
    session_of(200)
}

fn session_of(rows: u32) -> Session {
    let session = Database::in_memory().session();
    let rows: Vec<String> = (0..rows)
        .map(|id| {
            format!("({id}, {}, {}, {}, {})", id % 3, (id * 7) % 11, (id * 5) % 13, id / 4 * 3 % 90)
        })
        .collect();
    let script = format!(
        "CREATE TABLE t (id INT, k INT, v INT, w INT, ts BIGINT);
         INSERT INTO t VALUES {}",
        rows.join(", ")
    );
    session.execute(&script).expect("the rows are right");
    session
}

fn bind(session: &Session, sql: &str) -> BoundQuery {
    let statement = parse(sql).expect("it parses").pop().expect("there is one").statement;
    let Statement::Query(query) = statement else { panic!("not a query: {sql}") };
    session.bind(&query).expect("it binds")
}

/// A deployment of one query that is served by the program of another.
fn deployment(session: &Session, sql: &str, served: &str) -> Deployment {
    let query = bind(session, sql);
    let tables = TableSet::of(&session.database.entries_of(&query.plan).expect("it is there"));
    let name = QualifiedName { database: "default".to_owned(), name: "d".to_owned() };
    let definition = Definition::new(ObjectKind::Deployment, name);
    let served = bind(session, served);
    let off = PreAggregation::Off;
    let request = PreparedRequest::compile_deployed(&served, &tables, &definition, None, off);
    Deployment {
        definition,
        sql: sql.to_owned(),
        tables: references(&query.plan),
        views: Vec::new(),
        answers: None,
        training: query.clone(),
        query,
        request: Arc::new(request.expect("it compiles")),
        settings: session.settings(),
        current_database: session.current_database(),
        indexes: Vec::new(),
        options: Vec::new(),
        owner: None,
        holds: Vec::new(),
        dropped: DropSignal::default(),
    }
}

fn check(sql: &str, served: &str) -> Verification {
    let session = session();
    let deployment = deployment(&session, sql, served);
    let text = deployment.request.explain();
    assert!(text.contains("from the included columns of the index"), "{text}");
    let options = VerifyOptions::default();
    verify(&session.database, &deployment, &options).expect("it replays")
}

const WINDOW: &str = "WINDOW w AS (PARTITION BY k ORDER BY ts \
                      ROWS BETWEEN 50 PRECEDING AND CURRENT ROW)";

#[test]
fn what_the_index_includes_is_verified() {
    let sum = |of: &str| format!("SELECT id, sum({of}) OVER w AS s FROM t {WINDOW}");
    let right = check(&sum("v"), &sum("v"));
    assert_eq!((right.requests, right.values, right.differing), (200, 400, 0));
    assert!(right.is_ok());
    let wrong = check(&sum("v"), &sum("w"));
    assert!(wrong.differing > 100 && !wrong.is_ok(), "{wrong:?}");
    assert_eq!(wrong.differences.len(), 20);
    assert!(wrong.differences.iter().all(|difference| difference.column == "s"));
}

/// Columns of every type that an index includes, with NULL and with texts that are too long for a record.
#[test]
fn calls_of_several_arguments_are_read_from_what_the_index_includes() {
    let session = Database::in_memory().session();
    let some = |id: i64, of: i64, value: String| match id % of {
        0 => "NULL".to_owned(),
        _ => value,
    };
    let text = |id: i64| match id % 5 {
        0 => "''".to_owned(),
        1 => "'a text that no record has'".to_owned(),
        other => format!("'c{other}'"),
    };
    let row = |id: i64| {
        let values = [
            id.to_string(),
            (id % 3).to_string(),
            (id / 4 * 3 % 90).to_string(),
            some(id, 7, (id % 2 == 0).to_string()),
            some(id, 11, (id % 5).to_string()),
            some(id, 13, (id * 7 % 4).to_string()),
            some(id, 17, (id * 5 % 19 - 9).to_string()),
            some(id, 6, format!("{}.5", id % 3)),
            some(id, 8, format!("{}.25", id * 3 % 23)),
            some(id, 9, text(id)),
            some(id, 10, format!("'2024-01-0{}'", id % 4 + 1)),
        ];
        format!("({})", values.join(", "))
    };
    let rows: Vec<String> = (0..300).map(row).collect();
    let script = format!(
        "CREATE TABLE t (id INT, k INT, ts TIMESTAMP, b BOOL, s SMALLINT, i INT, l BIGINT, f FLOAT, \
         d DOUBLE, c STRING, day DATE); INSERT INTO t VALUES {}",
        rows.join(", ")
    );
    session.execute(&script).expect("the rows are right");
    let calls = [
        "sum_cate(d, c)",
        "count_cate_where(l, b, c)",
        "avg_cate(f, day)",
        "max_cate(i, s)",
        "min_cate_where(l, i > 1 AND f < 2.0, day)",
        "top_n_key_sum_cate_where(s, d > 3.5, c, 3)",
        "median(d)",
        "sum(l)",
        // The same arguments, of which only one call leaves rows out.
        "top_n_key_ratio_cate(l, d > 3.5, c, 3)",
        "top_n_key_sum_cate_where(l, d > 3.5, c, 3)",
        "top_n_value_ratio_cate(l, d > 3.5, c, 3)",
    ];
    let calls = calls.iter().enumerate().map(|(at, call)| format!("{call} OVER w AS v{at}"));
    let calls = calls.collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT id, {calls} FROM t {WINDOW}");
    let deployment = deployment(&session, &sql, &sql);
    let text = deployment.request.explain();
    assert!(text.contains("from the included columns of the index"), "{text}");
    let found = verify(&session.database, &deployment, &VerifyOptions::default());
    let found = found.expect("it replays");
    assert_eq!((found.requests, found.values), (300, 300 * 12));
    assert_eq!(found.differing, 0, "{:?}", found.differences);
}

#[test]
fn a_row_that_only_one_mode_has_is_a_difference() {
    let above = |least: u32| {
        format!(
            "SELECT id, s FROM (SELECT id, sum(v) OVER w AS s FROM t {WINDOW}) AS a WHERE s > {least}"
        )
    };
    assert_eq!(check(&above(100), &above(100)).differing, 0);
    let wrong = check(&above(100), &above(150));
    assert!(wrong.differing > 0);
    assert_eq!(
        (wrong.differences[0].batch.as_str(), wrong.differences[0].request.as_str()),
        ("a row", "no row")
    );
    let wrong = check(&above(150), &above(100));
    assert_eq!(
        (wrong.differences[0].batch.as_str(), wrong.differences[0].request.as_str()),
        ("no row", "a row")
    );
}

/// More rows than one thread takes, and than are held: they are counted once, and reported in order.
#[test]
fn rows_that_several_threads_replay_are_reported_in_order() {
    let rows = 20_000;
    let session = session_of(rows);
    // Without rows for which batch mode has none: at the beginning, between, and at the end.
    let query = |of: &str| {
        format!(
            "SELECT id, s FROM (SELECT id, sum({of}) OVER w AS s FROM t {WINDOW}) AS a \
             WHERE id > 300 AND id % 5 > 1 AND id < 19000"
        )
    };
    let values = |of: &str| {
        let output = session.execute(&query(of)).expect("it runs");
        let rows = output.batches.iter().flat_map(|batch| {
            let readers = [0, 1].map(|column| ColumnReader::new(batch.column(column).as_ref()));
            let arena = Arena::new();
            let value = |row| readers.each_ref().map(|reader| reader.get(row, &arena).as_i64());
            (0..batch.num_rows()).map(value).collect::<Vec<_>>()
        });
        rows.collect::<Vec<_>>()
    };
    let (right, other) = (values("v"), values("w"));
    let differs = right.iter().zip(&other).filter(|(right, other)| right != other);
    let expected: Vec<u64> =
        differs.map(|([id, _], _)| id.expect("an id").cast_unsigned()).collect();
    let deployed = |served: &str| deployment(&session, &query("v"), served);
    let found = |served: &str, sample| {
        let options = VerifyOptions { sample, ..VerifyOptions::default() };
        verify(&session.database, &deployed(served), &options).expect("it replays")
    };
    let same = found(&query("v"), None);
    assert_eq!((same.rows, same.requests, same.differing), (20_000, 20_000, 0));
    assert_eq!(same.values, right.len() as u64 * 2);
    let differing = found(&query("w"), None);
    assert_eq!(differing.differing, expected.len() as u64);
    let reported: Vec<u64> = differing.differences.iter().map(|one| one.row).collect();
    assert_eq!(reported, expected[..20]);
    // More rows than are held, of which batch mode has none.
    let last = format!("{} AND id > 15000", query("v"));
    let deployed = deployment(&session, &last, &last);
    let found_last = verify(&session.database, &deployed, &VerifyOptions::default());
    let found_last = found_last.expect("it replays");
    assert_eq!((found_last.requests, found_last.differing), (20_000, 0));
    assert!(found_last.values > 0 && found_last.values < same.values, "{found_last:?}");
    let sample = found(&query("w"), Some(500));
    assert_eq!(sample.requests, 500);
    assert!(sample.differences.is_sorted_by(|one, next| one.row < next.row), "{sample:?}");
    assert!(sample.differing > 100, "{sample:?}");
}

#[test]
fn a_group_that_another_program_answers_is_a_difference() {
    let groups = |of: &str| format!("SELECT k, sum({of}) AS s, count({of}) AS n FROM t GROUP BY k");
    let session = session();
    let found = |served: &str| {
        let deployment = deployment(&session, &groups("v"), served);
        verify(&session.database, &deployment, &VerifyOptions::default()).expect("it replays")
    };
    let right = found(&groups("v"));
    assert_eq!((right.rows, right.requests, right.values, right.differing), (200, 200, 600, 0));
    let wrong = found(&groups("w"));
    assert!(wrong.differing > 100, "{wrong:?}");
    assert!(wrong.differences.iter().all(|difference| difference.column == "s"));
    let wrong = found(&format!("{} HAVING count(v) > 3", groups("v")));
    assert!(wrong.differing >= 9 && wrong.differences[0].request == "no row", "{wrong:?}");
}

#[test]
fn a_sample_has_as_many_rows_as_asked_for_from_all_over() {
    for (wanted, rows) in [
        (None, 7),
        (Some(0), 7),
        (Some(3), 7),
        (Some(7), 7),
        (Some(9), 7),
        (Some(100), 12_345),
        (Some(5), 0),
    ] {
        let mut sample = RowSample::new(wanted, rows);
        let drawn: BTreeSet<u64> = (0..rows).filter(|row| sample.contains(*row)).collect();
        let expected = wanted.unwrap_or(rows).min(rows);
        assert_eq!(drawn.len() as u64, expected, "{wanted:?} of {rows}");
        let in_last_tenth = drawn.iter().filter(|row| **row >= rows - rows / 10).count();
        assert!(expected < 100 || in_last_tenth == 10, "{drawn:?}");
    }
}
