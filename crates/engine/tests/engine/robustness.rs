//! Statements that are short and need much work or deep recursion: each has a result or an error
//! that names the limit, on a thread with a stack of 2 MiB.

use lockstep_diagnostic::{Result, code};
use lockstep_engine::{Database, Diagnostic, Session};

/// The default stack of a thread.
const STACK_BYTES: usize = 2 << 20;

/// Runs a test on a thread with the default stack, the drop of its values included.
fn on_a_thread(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test);
    thread.expect("a thread starts").join().expect("the test holds");
}

fn session() -> Session {
    let session = Database::in_memory().session();
    session
        .execute(
            "CREATE TABLE t (k STRING, v INT, d DOUBLE, ts TIMESTAMP);
             INSERT INTO t VALUES ('a', 1, 1.5, 1000), ('a', 2, 2.5, 2000), ('b', 3, 3.5, 3000)",
        )
        .expect("the table is right");
    session
}

/// Puts `from` around itself so many times: `{}` is where the next one stands.
fn nested(form: &str, innermost: &str, levels: usize) -> String {
    (0..levels).fold(innermost.to_owned(), |inner, _| form.replacen("{}", &inner, 1))
}

/// Runs, explains and deploys a query; all three must say the same of its size.
fn check(sql: &str, is_accepted: bool) {
    let session = session();
    let shown: String = sql.chars().take(120).collect();
    let outcomes = [
        session.execute(sql).map(|_| ()),
        session.execute(&format!("EXPLAIN {sql}")).map(|_| ()),
        session.execute(&format!("DEPLOY p AS {sql}")).map(|_| ()),
    ];
    for (outcome, what) in outcomes.iter().zip(["run", "EXPLAIN", "DEPLOY"]) {
        match outcome {
            Ok(()) => assert!(is_accepted, "{what} accepts {shown}"),
            Err(error) => {
                assert!(!is_accepted, "{what} refuses {shown}: {error}");
                assert_eq!(error.code, code::STATEMENT_TOO_COMPLEX, "{what} {shown}: {error}");
            }
        }
    }
}

fn value(sql: &str) -> Result<String> {
    let output = session().execute(sql)?;
    let batch = &output.batches[0];
    let reader = lockstep_row::arrow::ColumnReader::new(batch.column(0).as_ref());
    let arena = lockstep_row::Arena::new();
    Ok(format!("{:?}", reader.get(0, &arena)))
}

#[test]
fn an_operand_is_bound_once_however_deep_it_is_nested() {
    on_a_thread(|| {
        for (form, levels) in [
            ("CASE ({}) WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN v ELSE 1 END", 60),
            ("({}) BETWEEN 0 AND 1", 60),
            ("({}) NOT BETWEEN 2 AND 3", 60),
            ("({}) IN (1, 2, true)", 60),
            ("({}) NOT IN (7, 8)", 60),
            ("nullif({}, 7)", 60),
            ("coalesce({}, {0}, 1)", 60),
            ("if(({}) > 0, 1, 2)", 60),
            ("greatest({}, 1, 2)", 60),
            ("at([{}, 1], 0)", 60),
            ("- ({})", 60),
            ("abs({})", 100),
        ] {
            let form = form.replace("{0}", "v");
            check(&format!("SELECT {} AS x FROM t", nested(&form, "v + 1", levels)), true);
        }
    });
}

#[test]
fn nested_operands_give_what_they_gave_when_they_were_written_out() {
    let one = "CASE length(concat('a', string(v - v))) WHEN 1 THEN 'one' WHEN 2 THEN 'two' END";
    assert_eq!(value(&format!("SELECT {one} FROM t")).unwrap(), "String(\"two\")");
    for (sql, expected) in [
        ("length(concat('a', 'b', 'c')) BETWEEN 2 AND 3", "Bool(true)"),
        ("length(concat('a', 'b', 'c')) BETWEEN '2' AND '2'", "Bool(false)"),
        ("length(concat('a', 'b', 'c')) BETWEEN 4 AND NULL", "Bool(false)"),
        ("length(concat('a', 'b', 'c')) BETWEEN 2 AND NULL", "Null"),
        ("length(concat('a', 'b', 'c')) IN (1, NULL, 3.0)", "Bool(true)"),
        ("length(concat('a', 'b', 'c')) NOT IN (1, 2)", "Bool(true)"),
        // NaN is greater than every number.
        ("sqrt(abs(v) - 2 * abs(v) + 0 * v) NOT BETWEEN 1.0 AND 2.0", "Bool(true)"),
        ("CASE sqrt(abs(v) - 2 * abs(v) + 0 * v) WHEN 1 THEN 1 ELSE 0 END", "Int(0)"),
    ] {
        assert_eq!(value(&format!("SELECT {sql} FROM t")).unwrap(), expected, "{sql}");
    }
}

#[test]
fn an_argument_that_may_be_a_list_is_bound_once_for_each_call() {
    on_a_thread(|| {
        let window = "WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND \
                      CURRENT ROW)";
        let nested_calls = nested("at({}, 1)", "v", 60);
        let list = nested("at([{}, 1], 0)", "v", 30);
        check(&format!("SELECT abs({nested_calls}) OVER w AS x FROM t {window}"), true);
        check(&format!("SELECT sum({list}) OVER w AS x FROM t {window}"), true);
        let wrong = nested("at({}, 1)", "nowhere", 60);
        for sql in [
            format!("SELECT abs({wrong}) OVER w AS x FROM t {window}"),
            format!("SELECT sum({wrong}) AS x FROM t GROUP BY k"),
        ] {
            let error = session().execute(&sql).unwrap_err();
            assert_eq!(error.code, code::UNDEFINED_COLUMN, "{error}");
        }
    });
}

#[test]
fn rows_are_grouped_by_maps_which_no_index_holds() {
    let session = session();
    session
        .execute(
            "CREATE TABLE m (id INT, m MAP<STRING, INT>, ts TIMESTAMP);
             INSERT INTO m VALUES (1, map('x', 1), 1000), (2, NULL, 2000), (3, map('x', 1), 3000)",
        )
        .unwrap();
    for sql in [
        "SELECT count(*) AS n FROM m GROUP BY m",
        "SELECT max(id) AS n FROM m GROUP BY m",
        "SELECT count(*) OVER w AS n FROM m WINDOW w AS (PARTITION BY m ORDER BY ts ROWS BETWEEN 9 \
         PRECEDING AND CURRENT ROW)",
        "SELECT m.id, r.id AS other FROM m LAST JOIN m AS r ORDER BY r.ts ON m.m = r.m",
    ] {
        let is_no_defect = |error: &Diagnostic| {
            assert_ne!(error.kind, lockstep_engine::Kind::ReportBug, "{sql}: {error}");
        };
        if let Err(error) = session.execute(sql) {
            is_no_defect(&error);
        }
        match session.execute(&format!("DEPLOY d AS {sql}")) {
            Ok(_) => {
                session.prepare_request("d").unwrap();
                if let Err(error) = session.verify("d") {
                    is_no_defect(&error);
                }
                session.execute("DROP DEPLOYMENT d").unwrap();
            }
            Err(error) => is_no_defect(&error),
        }
    }
}

#[test]
fn a_chain_of_common_tables_has_a_limit_and_no_need_of_stack() {
    let chain = |length: usize| {
        let mut tables = vec!["c0 AS (SELECT k, v, ts FROM t)".to_owned()];
        tables.extend((1..length).map(|at| format!("c{at} AS (SELECT k, v, ts FROM c{})", at - 1)));
        format!("WITH {} SELECT v FROM c{}", tables.join(", "), length - 1)
    };
    on_a_thread(move || {
        check(&chain(100), true);
        check(&chain(20_000), false);
    });
}

#[test]
fn a_common_table_counts_as_often_as_it_is_used() {
    let doubling = |length: usize| {
        let mut tables = vec!["c0 AS (SELECT k, v FROM t)".to_owned()];
        tables.extend((1..length).map(|at| {
            let below = at - 1;
            format!("c{at} AS (SELECT a.k, b.v FROM c{below} a LAST JOIN c{below} b ON a.k = b.k)")
        }));
        format!("WITH {} SELECT v FROM c{}", tables.join(", "), length - 1)
    };
    on_a_thread(move || {
        check(&doubling(4), true);
        check(&doubling(25), false);
        check(&doubling(200), false);
    });
}

/// Windows over windows, as tall as that.
fn stacked(length: usize) -> String {
    let mut tables = vec!["c0 AS (SELECT k, bigint(v) AS v, ts FROM t)".to_owned()];
    tables.extend((1..length).map(|at| {
        format!(
            "c{at} AS (SELECT k, sum(v) OVER w AS v, ts FROM c{} WINDOW w AS (PARTITION BY k \
             ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW))",
            at - 1
        )
    }));
    format!("WITH {} SELECT v FROM c{}", tables.join(", "), length - 1)
}

/// The newest row is a request here and stored there, where its sum is the largest. A row of the
/// innermost of 30 windows would be computed 3^30 times if not once.
#[test]
fn a_request_computes_each_row_of_a_window_over_windows_once() {
    on_a_thread(|| {
        let (session, stored) = (session(), session());
        let rows: Vec<String> = (0..=40).map(|at| format!("('z', {at}, 0.5, {at})")).collect();
        session.execute(&format!("INSERT INTO t VALUES {}", rows[..40].join(", "))).unwrap();
        stored.execute(&format!("INSERT INTO t VALUES {}", rows.join(", "))).unwrap();
        for levels in [2, 3, 4, 10, 30] {
            let sql = stacked(levels);
            let request = session.prepare_request(&sql).unwrap();
            assert!(request.is_compiled(), "{levels} levels");
            let arena = lockstep_row::Arena::new();
            let row = [
                lockstep_row::Datum::String("z"),
                lockstep_row::Datum::Int(40),
                lockstep_row::Datum::Null,
                lockstep_row::Datum::Timestamp(40),
            ];
            let answer = request.answer(&row, &arena).unwrap().unwrap()[0];
            let batch = stored.execute(&format!("SELECT max(v) AS v FROM ({sql}) AS q")).unwrap();
            let reader = lockstep_row::arrow::ColumnReader::new(batch.batches[0].column(0));
            assert_eq!(answer.as_i64(), reader.get(0, &arena).as_i64(), "{levels} levels");
        }
    });
}

#[test]
fn windows_over_windows_are_linear() {
    on_a_thread(move || {
        check(&stacked(5), true);
        check(&stacked(35), true);
        let session = session();
        session.execute(&format!("DEPLOY deep AS {}", stacked(35))).unwrap();
        session.execute(&format!("DEPLOY flat AS {}", stacked(3))).unwrap();
    });
}

#[test]
fn windows_that_extend_each_other_have_a_limit() {
    let extended = |length: usize| {
        let first = "w0 AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)";
        let mut windows = vec![first.to_owned()];
        windows.extend((1..length).map(|at| format!("w{at} AS (w{})", at - 1)));
        format!("SELECT sum(v) OVER w{} AS s FROM t WINDOW {}", length - 1, windows.join(", "))
    };
    on_a_thread(move || {
        check(&extended(20), true);
        check(&extended(20_000), false);
    });
}

#[test]
fn long_chains_of_joins_and_unions_are_answered() {
    on_a_thread(|| {
        let joins: String =
            (0..120).map(|at| format!(" LAST JOIN t AS t{at} ON t.k = t{at}.k")).collect();
        check(&format!("SELECT t.v FROM t{joins}"), true);
        check(&vec!["SELECT v FROM t"; 1_500].join(" UNION ALL "), true);
        check(&vec!["SELECT v FROM t"; 20_000].join(" UNION ALL "), false);
        check(&vec!["SELECT v FROM t"; 400].join(" UNION "), true);
        // Values as long as they may be stay out of the plan, where each step would copy them.
        let long = "rpad('', 2000000, 'a')";
        let values = vec![format!("replace({long}, 'b', {long})"); 10].join(", ");
        let sql = format!("SELECT length(coalesce({values})) AS n FROM t");
        check(&sql, true);
        let plan = session().execute(&format!("EXPLAIN {sql}")).unwrap();
        let bytes: usize = plan.batches.iter().map(|batch| batch.get_array_memory_size()).sum();
        assert!(bytes < 1 << 20, "{bytes} bytes of plan");
        check(&nested("SELECT v FROM ({})", "SELECT v FROM t", 60), true);
    });
}

#[test]
fn long_conditions_are_answered() {
    on_a_thread(|| {
        for operator in ["AND", "OR"] {
            let terms: Vec<String> = (0..16_384).map(|at| format!("v != {at}")).collect();
            check(&format!("SELECT v FROM t WHERE {}", terms.join(&format!(" {operator} "))), true);
        }
        let terms: Vec<String> = (0..4_000).map(|at| format!("v != {at}")).collect();
        check(&format!("SELECT {} AS x FROM t", terms.join(" AND ")), true);
        let items: Vec<String> = (0..5_000).map(|at| at.to_string()).collect();
        check(&format!("SELECT v FROM t WHERE v IN ({})", items.join(", ")), true);
        check(
            &format!("SELECT v FROM t WHERE abs(v + 1) * 2 - v * v + v IN ({})", items.join(", ")),
            true,
        );
        let sums = vec!["v"; 400].join(" + ");
        check(&format!("SELECT {sums} AS s FROM t"), true);
        let keys = vec!["1"; 400].join(", ");
        check(&format!("SELECT {sums} AS s FROM t ORDER BY {keys}"), true);
        let keys = vec!["1"; 4_000].join(", ");
        check(&format!("SELECT {sums} AS s FROM t ORDER BY {keys}"), false);
    });
}
