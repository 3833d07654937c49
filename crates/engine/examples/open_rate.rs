//! Measures how fast a directory is written and opened: rows of about 100 bytes with one index.
//!
//! `cargo run --release -p lockstep-engine --example open_rate -- DIRECTORY [ROWS] [BATCH]`

use std::{path::Path, time::Instant};

use lockstep_engine::Database;
use lockstep_row::Datum;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("the first argument is a directory");
    let mut number =
        |default: i64| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (rows, batch) = (number(1_000_000), number(100));
    let path = Path::new(&directory);
    assert!(!path.exists(), "{directory} exists already");
    for durability in ["os", "none"] {
        let database = match durability {
            "none" => Database::in_memory(),
            _ => Database::open(path).expect("it can be created"),
        };
        write(&database, rows, batch, durability);
    }
    open(path, "log");
    let database = Database::open(path).expect("it was written");
    let begun = Instant::now();
    let done = database.checkpoint().expect("there is space");
    println!(
        "checkpoint of {} rows, {} bytes: {:.2} s",
        done.rows,
        done.bytes,
        begun.elapsed().as_secs_f64()
    );
    drop(database);
    open(path, "checkpoint");
}

fn write(database: &Database, rows: i64, batch: i64, durability: &str) {
    let session = database.session();
    if durability != "none" {
        session.execute(&format!("SET durability = '{durability}'")).expect("a level");
    }
    let table = "CREATE TABLE t (k STRING, v DOUBLE, w DOUBLE, n BIGINT, note STRING, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts))";
    session.execute(table).expect("a table");
    let appender = session.appender("t").expect("the table");
    let keys: Vec<String> = (0..1_000).map(|key| format!("customer {key:08}")).collect();
    let begun = Instant::now();
    let mut ts = 0;
    while ts < rows {
        let end = (ts + batch).min(rows);
        let of = |ts: i64| {
            let key = usize::try_from(ts * 7 % 1_000).expect("it is small");
            let number = f64::from(i32::try_from(ts % 977).expect("it is small"));
            [
                Datum::String(&keys[key]),
                Datum::Double(number),
                Datum::Double(number / 3.0),
                Datum::BigInt(ts),
                Datum::String("a note of thirty-two characters."),
                Datum::Timestamp(ts),
            ]
        };
        appender.append((ts..end).map(of)).expect("there is space");
        ts = end;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("written, durability {durability}: {:.0} rows/s", rate(rows, seconds));
}

fn open(path: &Path, from: &str) {
    let begun = Instant::now();
    let database = Database::open(path).expect("it was written");
    let seconds = begun.elapsed().as_secs_f64();
    let rows = database.opened().expect("it is a directory").rows;
    println!(
        "opened from the {from}: {:.0} rows/s",
        rate(i64::try_from(rows).expect("few"), seconds)
    );
}

#[expect(clippy::cast_precision_loss, reason = "a rate to print")]
fn rate(rows: i64, seconds: f64) -> f64 {
    rows as f64 / seconds
}
