//! Measures a request by the way in which the rows of its window are read: from what indexes
//! include, from stored rows, from sources that compute their rows, merged from several tables; in
//! microseconds.
//!
//! `cargo run -p lockstep-engine --example window_cost [case] [explain]`

use lockstep_engine::{Database, Session};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Arena, Datum};

/// A name and a query over `t` and `u`, whose rows alternate: (k, ts, d, b, s), 1,200 rows each.
const CASES: [(&str, &str); 11] = [
    (
        "included",
        "sum(d) OVER w a, max(b) OVER w c, count(b) OVER w e, avg(d) OVER w f FROM t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "included, 8 frames",
        "sum(b) OVER w1 a, sum(b) OVER w2 c, sum(b) OVER w3 d1, sum(b) OVER w4 e, sum(b) OVER w5 f,
         sum(b) OVER w6 g, sum(b) OVER w7 h, sum(b) OVER w8 i FROM t WINDOW
         w1 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 100s PRECEDING AND CURRENT ROW),
         w2 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 200s PRECEDING AND CURRENT ROW),
         w3 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 300s PRECEDING AND CURRENT ROW),
         w4 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 400s PRECEDING AND CURRENT ROW),
         w5 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 500s PRECEDING AND CURRENT ROW),
         w6 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 600s PRECEDING AND CURRENT ROW),
         w7 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 700s PRECEDING AND CURRENT ROW),
         w8 AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 800s PRECEDING AND CURRENT ROW)",
    ),
    (
        "rows, 20",
        "sum(d) OVER w a, max(b) OVER w c, count(b) OVER w e, avg(d) OVER w f FROM t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS BETWEEN 20 PRECEDING AND CURRENT ROW)",
    ),
    (
        "rows, 1000",
        "sum(char_length(s)) OVER w a, max(b) OVER w c, count(b) OVER w e FROM t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "rows, two frames",
        "sum(char_length(s)) OVER w a, max(b) OVER v c, count(b) OVER w e FROM t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW), v AS
         (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 500s PRECEDING AND CURRENT ROW)",
    ),
    (
        "computed rows",
        "sum(e) OVER w a, max(b) OVER w c FROM (SELECT k, ts, s, d, b, b + 1 AS e FROM t) t WINDOW w AS
         (PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "union",
        "sum(d) OVER w a, max(b) OVER w c, count(b) OVER w e, avg(d) OVER w f FROM t WINDOW w AS
         (UNION u PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "union, 20",
        "sum(d) OVER w a, max(b) OVER w c, count(b) OVER w e, avg(d) OVER w f FROM t WINDOW w AS
         (UNION u PARTITION BY k ORDER BY ts ROWS BETWEEN 20 PRECEDING AND CURRENT ROW)",
    ),
    (
        "union, ordered",
        "sum(d) OVER w a, max(b) OVER w c, first_value(b) OVER w e FROM t WINDOW w AS
         (UNION u PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "union with the request row",
        "sum(d) OVER w a, max(b) OVER w c, count(b) OVER w e, avg(d) OVER w f FROM t WINDOW w AS
         (UNION u, t PARTITION BY k ORDER BY ts ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
    (
        "union of computed rows",
        "sum(d) OVER w a, max(b) OVER w c FROM t WINDOW w AS
         (UNION (SELECT k, ts, s, d, b + 1 AS b FROM u) PARTITION BY k ORDER BY ts
          ROWS BETWEEN 999 PRECEDING AND CURRENT ROW)",
    ),
];

const KEYS: i64 = 20;
const ROWS: i64 = 1_200;

fn main() {
    let only = std::env::args().nth(1).filter(|name| name != "explain");
    let session = Database::in_memory().session();
    for (table, offset_ms) in [("t", 0), ("u", 500)] {
        let columns = "k BIGINT, ts TIMESTAMP, s STRING, d DOUBLE, b BIGINT, INDEX(KEY=k, TS=ts)";
        session.execute(&format!("CREATE TABLE {table} ({columns})")).expect("it is created");
        for row in 0..ROWS {
            let values: Vec<String> = (0..KEYS)
                .map(|key| {
                    let b = (row * 31 + key).wrapping_mul(0x5851_F42D) >> 7 & 0xFFFF;
                    format!("({key}, {}, 'v{b}', {b} / 97.0, {b})", row * 1_000 + offset_ms)
                })
                .collect();
            session
                .execute(&format!("INSERT INTO {table} VALUES {}", values.join(", ")))
                .expect("the rows fit");
        }
    }
    for (at, (name, query)) in CASES.iter().enumerate() {
        if only.as_ref().is_none_or(|only| only == name) {
            measure((name, &format!("d{at}")), &session, query);
        }
    }
}

#[expect(clippy::print_stdout, reason = "the measurement is printed")]
fn measure((name, deployment): (&str, &str), session: &Session, query: &str) {
    let clock = SystemClock::new();
    let sql = format!("DEPLOY {deployment} SELECT k, {query}");
    session.execute(&sql).expect("the query is deployed");
    let request = session.prepare_request(deployment).expect("the deployment is there");
    let mut arena = Arena::new();
    let mut spent: Vec<u64> = Vec::new();
    while spent.len() < 10_000 {
        let key = i64::try_from(spent.len()).expect("a small number") % KEYS;
        let row = [
            Datum::BigInt(key),
            Datum::Timestamp(ROWS * 1_000),
            Datum::String("v"),
            Datum::Double(1.0),
            Datum::BigInt(7),
        ];
        let start_ns = clock.monotonic_ns();
        let answer = request.answer(&row, &arena).expect("there is an answer");
        spent.push(clock.monotonic_ns() - start_ns);
        assert!(answer.is_some());
        arena.reset();
    }
    spent.sort_unstable();
    let at = |share: usize| micros(spent[(spent.len() - 1) * share / 1_000]);
    println!("{name:28} p50 {:7.2} us, p10 {:7.2}", at(500), at(100));
    if std::env::args().any(|argument| argument == "explain") {
        println!("{}", request.explain());
    }
}

#[expect(clippy::cast_precision_loss, reason = "durations are short")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}
