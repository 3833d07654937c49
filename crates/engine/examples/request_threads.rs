//! How short requests scale with threads: how many of them one thread answers in a second, and two
//! and four together.
//!
//! `cargo run -p lockstep-engine --example request_threads`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lockstep_engine::{Database, PreparedRequest};
use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Arena, Datum};

/// How long each measurement takes.
const RUN_NS: u64 = 1_000_000_000;

fn main() {
    let session = Database::in_memory().session();
    for sql in [
        "CREATE TABLE t (id INT, k INT, ts TIMESTAMP, v INT, INDEX(KEY=k, TS=ts))",
        "CREATE TABLE u (k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))",
    ] {
        session.execute(sql).expect("the tables are made");
    }
    for key in 0..100 {
        let rows: Vec<String> =
            (0..200).map(|at| format!("({at}, {key}, {at}000, {at})")).collect();
        session.execute(&format!("INSERT INTO t VALUES {}", rows.join(", "))).expect("rows fit");
        session.execute(&format!("INSERT INTO u VALUES ({key}, 1, 0.5)")).expect("a row fits");
    }
    let queries = [
        ("row", "SELECT id + 1 AS a, k FROM t"),
        ("join", "SELECT id, u.x FROM t LAST JOIN u ORDER BY u.ts ON t.k = u.k"),
        (
            "window of 10",
            "SELECT sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts \
             ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)",
        ),
        (
            "window of 200",
            "SELECT sum(v) OVER w AS s, distinct_count(v) OVER w AS d FROM t WINDOW w AS \
             (PARTITION BY k ORDER BY ts ROWS BETWEEN 200 PRECEDING AND CURRENT ROW)",
        ),
    ];
    for (at, (name, sql)) in queries.iter().enumerate() {
        session.execute(&format!("DEPLOY d{at} AS {sql}")).expect("it is deployed");
        let request = session.prepare_request(&format!("d{at}")).expect("it is there");
        let rates: Vec<String> = [1, 2, 4]
            .into_iter()
            .map(|threads| format!("{threads}: {:.2} M/s", rate(&request, threads)))
            .collect();
        println!("{name:14} {}", rates.join(", "));
    }
}

/// Millions of requests a second of so many threads together.
fn rate(request: &Arc<PreparedRequest>, threads: usize) -> f64 {
    let clock = Arc::new(SystemClock::new());
    let over = Arc::new(AtomicBool::new(false));
    let begin_ns = clock.monotonic_ns();
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let (request, over) = (Arc::clone(request), Arc::clone(&over));
            let clock = Arc::clone(&clock);
            // Relaxed: a sign to end, which nothing else goes with. Whoever sees first that it is
            // time gives it.
            let body = move || {
                ask(&request, || {
                    if clock.monotonic_ns() - begin_ns >= RUN_NS {
                        over.store(true, Ordering::Relaxed);
                    }
                    over.load(Ordering::Relaxed)
                })
            };
            lockstep_host::spawn("asker", body).expect("the machine gives a thread")
        })
        .collect();
    let answers: u64 = running.into_iter().map(|thread| thread.join().expect("it ends")).sum();
    let spent_ns = clock.monotonic_ns() - begin_ns;
    #[expect(clippy::cast_precision_loss, reason = "a rate to look at")]
    let rate = answers as f64 * 1e3 / spent_ns as f64;
    rate
}

/// Asks until it is over; how often it did.
fn ask(request: &PreparedRequest, is_over: impl Fn() -> bool) -> u64 {
    let mut arena = Arena::new();
    let mut answers = 0;
    while !is_over() {
        for key in 0..100 {
            let row = [Datum::Int(1), Datum::Int(key), Datum::Timestamp(1_000_000), Datum::Int(3)];
            let answer = request.answer(&row, &arena).expect("there is an answer");
            assert!(answer.is_some(), "a request has an answer");
            answers += 1;
            arena.reset();
        }
    }
    answers
}
