//! Measures requests of the benchmark M1 (two windows of six aggregates, two LAST JOINs, 14 scalar
//! expressions over tables of 30 columns), M2 (many features over one window), and of two
//! aggregates over three rows (`small`), in microseconds.
//!
//! `cargo run -p lockstep-engine --example request_cost [m1|m2|small|all] [rows per window] [keys]`

use std::{fmt::Write, sync::Arc};

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use lockstep_engine::{Database, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Arena, Datum};

const START_MS: i64 = 1_700_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, default: i64| {
        argument(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let which = argument(0).unwrap_or("all");
    let (rows, keys) = (number(1, 1_000), number(2, 20));
    if matches!(which, "small" | "all") {
        let (session, shape) = (Database::in_memory().session(), (1, 1, 1, 0));
        let sql = "SELECT c1, count(d1) OVER w AS n, avg(d1) OVER w AS a FROM t
            WINDOW w AS (PARTITION BY c1 ORDER BY t1
                         ROWS_RANGE BETWEEN 5m PRECEDING AND CURRENT ROW)";
        create(&session, keys, 3, shape);
        measure("small", &session, sql, (3, shape));
    }
    if matches!(which, "m1" | "all") {
        let session = Database::in_memory().session();
        create(&session, keys, rows, (15, 5, 5, 5));
        measure("m1", &session, &m1_sql(), (rows, (15, 5, 5, 5)));
    }
    if matches!(which, "m2" | "all") {
        for (columns, features) in [(10, 20), (100, 210), (1_000, 2_100)] {
            let session = Database::in_memory().session();
            let shape = (columns / 2, columns / 2 - columns / 5, columns / 10, columns / 10);
            create(&session, keys, rows.min(100), shape);
            measure(
                &format!("m2 {features}"),
                &session,
                &m2_sql(features, shape),
                (rows.min(100), shape),
            );
        }
    }
}

type Shape = (usize, usize, usize, usize);

/// Strings, doubles, timestamps, bigints; `c1` and `c2` are keys, `t1` the event time.
fn columns((strings, doubles, times, bigints): Shape) -> Vec<(String, &'static str)> {
    let of = |letter: char, count: usize, name: &'static str| {
        (1..=count).map(move |at| (format!("{letter}{at}"), name))
    };
    of('c', strings, "STRING")
        .chain(of('d', doubles, "DOUBLE"))
        .chain(of('t', times, "TIMESTAMP"))
        .chain(of('b', bigints, "BIGINT"))
        .collect()
}

fn create(session: &Session, keys: i64, rows: i64, shape: Shape) {
    let list: Vec<String> =
        columns(shape).iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let list = list.join(", ");
    for table in ["t", "r1", "r2"] {
        let index = if table == "t" && shape.0 > 1 {
            "INDEX(KEY=c1, TS=t1), INDEX(KEY=c2, TS=t1)"
        } else {
            "INDEX(KEY=c1, TS=t1)"
        };
        let sql = format!("CREATE TABLE {table} ({list}, {index})");
        session.execute(&sql).expect("the table is created");
        let per_key = if table == "t" { rows } else { 2 };
        for row in 0..per_key {
            session.append(table, &[batch(keys, row, shape)]).expect("the rows fit");
        }
    }
}

/// One row of each key.
fn batch(keys: i64, row: i64, shape: Shape) -> RecordBatch {
    let arrays = columns(shape).into_iter().map(|(name, kind)| {
        let at: i64 = name[1..].parse().expect("names are a letter and a number");
        let mixed = move |key: i64| mix(row * keys + key, at);
        let array: ArrayRef = match kind {
            "STRING" if at <= 2 => {
                Arc::new(StringArray::from_iter_values((0..keys).map(|key| format!("key{key:07}"))))
            }
            "STRING" => Arc::new(StringArray::from_iter_values(
                (0..keys).map(|key| format!("v{:09}", mixed(key) % 100)),
            )),
            "DOUBLE" => Arc::new(Float64Array::from_iter_values(
                (0..keys).map(|key| precise(mixed(key)) / 97.0 - 3_000.0),
            )),
            "TIMESTAMP" => Arc::new(TimestampMillisecondArray::from_iter_values(
                (0..keys).map(|_| START_MS + row * 1_000 + at - 1),
            )),
            _ => Arc::new(Int64Array::from_iter_values((0..keys).map(|key| mixed(key) % 1_000))),
        };
        (name, array)
    });
    RecordBatch::try_from_iter(arrays).expect("the arrays have one length")
}

fn mix(seed: i64, at: i64) -> i64 {
    let mixed = (seed * 31 + at).wrapping_mul(0x5851_F42D_4C95_7F2D);
    (mixed >> 20) & 0xF_FFFF
}

#[expect(clippy::cast_precision_loss, reason = "20 bits")]
fn precise(value: i64) -> f64 {
    value as f64
}

fn m1_sql() -> String {
    "SELECT t.c1, t.d1 + t.d2 AS e1, t.d1 * 2.5 AS e2, t.b1 + t.b2 AS e3, t.b1 - t.b3 AS e4,
            t.b1 % 7 AS e5, t.d3 / t.d4 AS e6, t.b4 > 100 AND t.d5 < 3.0 AS e7,
            CASE WHEN t.b1 > 500 THEN t.b2 ELSE t.b3 END AS e8, t.t2 + 1000 AS e9,
            ifnull(t.b5, 0) AS e10, t.b1 IS NULL AS e11, double(t.b2) * t.d1 AS e12,
            upper(t.c3) AS e13, t.b1 * t.b2 + t.b3 AS e14,
            r1.d1 AS r1d, r1.b1 AS r1b, r2.c3 AS r2c, r2.d2 AS r2d,
            count(t.c4) OVER w1 AS a1, sum(t.d1) OVER w1 AS a2, avg(t.d1) OVER w1 AS a3,
            min(t.d2) OVER w1 AS a4, max(t.b1) OVER w1 AS a5, distinct_count(t.c5) OVER w1 AS a6,
            count(t.d3) OVER w2 AS a7, sum(t.b1) OVER w2 AS a8, avg(t.b2) OVER w2 AS a9,
            min(t.b3) OVER w2 AS a10, max(t.d3) OVER w2 AS a11,
            topn_frequency(t.c6, 3) OVER w2 AS a12
     FROM t LAST JOIN r1 ORDER BY r1.t1 ON t.c1 = r1.c1 LAST JOIN r2 ORDER BY r2.t1 ON t.c2 = r2.c1
     WINDOW w1 AS (PARTITION BY t.c1 ORDER BY t.t1
                   ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW MAXSIZE 1000),
            w2 AS (PARTITION BY t.c2 ORDER BY t.t1
                   ROWS_RANGE BETWEEN 30d PRECEDING AND CURRENT ROW MAXSIZE 1000)"
        .to_owned()
}

/// Aggregates of the numeric columns in turn, and expressions over them.
fn m2_sql(features: usize, (_, doubles, _, bigints): Shape) -> String {
    let mut sql = "SELECT c1".to_owned();
    for feature in 1..features {
        let double = format!("d{}", feature % doubles + 1);
        let bigint = format!("b{}", feature % bigints + 1);
        let expression = match feature % 7 {
            0 => format!("sum({double}) OVER w"),
            1 => format!("{double} * {bigint} + {feature}"),
            2 => format!("max({bigint}) OVER w"),
            3 => format!("avg({double}) OVER w"),
            4 => format!("{bigint} > {feature} AND {double} < 3.5"),
            5 => format!("min({double}) OVER w"),
            _ => format!("count({double}) OVER w"),
        };
        write!(sql, ", {expression} AS f{feature}").expect("writing to memory");
    }
    sql.push_str(
        " FROM t WINDOW w AS (PARTITION BY c1 ORDER BY t1 ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)",
    );
    sql
}

#[expect(clippy::print_stdout, reason = "the measurement is printed")]
fn measure(name: &str, session: &Session, sql: &str, (rows, shape): (i64, Shape)) {
    let clock = SystemClock::new();
    let start_ns = clock.monotonic_ns();
    session.execute(&format!("DEPLOY d {sql}")).expect("the query is deployed");
    let deployed_ns = clock.monotonic_ns();
    session.execute(&format!("DEPLOY d2 {sql}")).expect("the query is deployed");
    let again_ns = clock.monotonic_ns();
    let request = session.prepare_request("d").expect("the deployment is there");
    let mut arena = Arena::new();
    let mut spent: Vec<u64> = Vec::new();
    let rows: Vec<RecordBatch> = (0..16).map(|row| batch(20, rows + row, shape)).collect();
    let begin_ns = clock.monotonic_ns();
    while spent.len() < 500 || clock.monotonic_ns() - begin_ns < 2_000_000_000 {
        let at = spent.len() % 16;
        let key = spent.len() % 20;
        let row = request_row(&rows[at], key, &arena);
        let start_ns = clock.monotonic_ns();
        let answer = request.answer(row, &arena).expect("there is an answer");
        spent.push(clock.monotonic_ns() - start_ns);
        assert!(answer.is_some());
        arena.reset();
    }
    spent.sort_unstable();
    let at = |share: usize| micros(spent[(spent.len() - 1) * share / 1_000]);
    println!(
        "{name}: p50 {:.1} us, p10 {:.1}, p99 {:.1}, p999 {:.1} ({} requests); deploy {:.1} ms, again {:.1} ms",
        at(500),
        at(100),
        at(990),
        at(999),
        spent.len(),
        micros(deployed_ns - start_ns) / 1_000.0,
        micros(again_ns - deployed_ns) / 1_000.0,
    );
    if std::env::args().any(|argument| argument == "explain") {
        println!("{}", request.explain());
    }
}

#[expect(clippy::cast_precision_loss, reason = "durations are short")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

fn request_row<'a>(batch: &'a RecordBatch, key: usize, arena: &'a Arena) -> &'a [Datum<'a>] {
    use lockstep_row::arrow::ColumnReader;
    let values: Vec<Datum<'a>> = batch
        .columns()
        .iter()
        .map(|column| ColumnReader::new(column.as_ref()).get(key, arena))
        .collect();
    arena.alloc_slice_copy(&values)
}
