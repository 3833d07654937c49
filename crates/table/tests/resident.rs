//! What a process takes is what its tables are charged with: seen from another process.
//!
//! The test starts itself again for each case. The child loads a table, says on its standard output
//! what the budget is charged with, and waits; the parent reads what the child takes, now and at its
//! worst, out of `/proc`. Then the child empties the table, and the parent looks again.
//!
//! `cargo test -p lockstep-table --test resident -- rate ROWS` prints what other numbers of rows
//! take, and rows in a second.
#![expect(clippy::print_stdout, reason = "the child speaks to its parent")]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use lockstep_host::{Clock, SystemClock};
use lockstep_row::{Column, DataType, Datum, IndexSpec, Retention, TableSchema};
use lockstep_table::{Arrivals, MemoryBudget, Table};

/// What a child loads.
#[derive(Debug, Clone, Copy)]
struct Case {
    rows: u64,
    indexes: usize,
    keys: u64,
    late_percent: u64,
    /// Whether the indexes are declared before the rows come.
    builds_last: bool,
}

/// Rows of an append.
const BATCH_ROWS: u64 = 1_000;
/// What a process takes beside its table: code, stacks, what the allocator keeps for itself, and what
/// an append needs for a moment.
const BASE_BYTES: u64 = 14 << 20;
const START_MS: i64 = 1_700_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("child") => child(parse(&arguments[1..])),
        Some("rate") => rates(arguments.get(1).map_or(2_000_000, |rows| number(rows))),
        _ if !Path::new("/proc/self/status").exists() => println!("no /proc: nothing is measured"),
        _ => cases(60_000).into_iter().for_each(check),
    }
}

/// Late share, indexes and keys in all combinations.
fn cases(rows: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for late_percent in [0, 5, 50, 100] {
        for indexes in 1..=3 {
            for keys in [2, 1_000] {
                cases.push(Case { rows, indexes, keys, late_percent, builds_last: false });
            }
        }
    }
    cases
}

/// What the parent saw of a child.
struct Seen {
    counted: u64,
    resident: u64,
    resident_max: u64,
    rows_per_s: u64,
    /// After the table was emptied.
    emptied_counted: u64,
    emptied_resident: u64,
}

fn check(case: Case) {
    let seen = run(case);
    let allowed = BASE_BYTES + seen.counted + seen.counted / 5;
    assert!(seen.resident <= allowed, "{case:?}: {} of {allowed} bytes", seen.resident);
    assert!(seen.resident_max <= allowed, "{case:?}: {} of {allowed} bytes", seen.resident_max);
    assert!(seen.emptied_counted < 1 << 20, "{case:?}: {} are left", seen.emptied_counted);
    assert!(seen.emptied_resident <= BASE_BYTES, "{case:?}: {} stay", seen.emptied_resident);
}

fn rates(rows: u64) {
    println!(
        "| late % | indexes | keys | index | rows/s | counted MB | resident | at most | emptied |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let built = |case: Case| Case { builds_last: true, ..case };
    let last = cases(rows).into_iter().filter(|case| case.late_percent == 100).map(built);
    for case in cases(rows).into_iter().chain(last) {
        let seen = run(case);
        let mb = |bytes: u64| bytes >> 20;
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            case.late_percent,
            case.indexes,
            case.keys,
            if case.builds_last { "after" } else { "before" },
            seen.rows_per_s,
            mb(seen.counted),
            mb(seen.resident),
            mb(seen.resident_max),
            mb(seen.emptied_resident)
        );
    }
}

/// Starts a child and watches it.
fn run(case: Case) -> Seen {
    let program = std::env::current_exe().expect("the test is a file");
    let Case { rows, indexes, keys, late_percent, builds_last } = case;
    let mut child = Command::new(program)
        .arg("child")
        .args([rows.to_string(), indexes.to_string(), keys.to_string(), late_percent.to_string()])
        .arg(u8::from(builds_last).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process starts");
    let output = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let mut next = || -> Vec<u64> {
        let line = lines.next().expect("the child speaks").expect("in text");
        line.split(' ').map(number).collect()
    };
    let loaded = next();
    let (resident, resident_max) = (status(&child, "VmRSS:"), status(&child, "VmHWM:"));
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"\n").expect("the child listens");
    let emptied = next();
    let emptied_resident = status(&child, "VmRSS:");
    input.write_all(b"\n").expect("the child listens");
    assert!(child.wait().expect("it was started").success(), "{case:?}");
    Seen {
        counted: loaded[0],
        rows_per_s: loaded[1],
        resident,
        resident_max,
        emptied_counted: emptied[0],
        emptied_resident,
    }
}

/// A number of bytes of the child, by its name in the status file.
fn status(child: &Child, name: &str) -> u64 {
    let path = format!("/proc/{}/status", child.id());
    let text = lockstep_host::disk::read_to_string(Path::new(&path)).expect("there is /proc");
    let line = text.lines().find(|line| line.starts_with(name)).expect("it is reported");
    number(line.split_whitespace().nth(1).expect("a number follows")) << 10
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

fn parse(arguments: &[String]) -> Case {
    let at = |position: usize| number(&arguments[position]);
    Case {
        rows: at(0),
        indexes: usize::try_from(at(1)).expect("small"),
        keys: at(2),
        late_percent: at(3),
        builds_last: at(4) == 1,
    }
}

/// Loads, speaks, empties, speaks.
fn child(case: Case) {
    let clock = SystemClock::new();
    let budget = Arc::<MemoryBudget>::default();
    let table = make(&budget, if case.builds_last { 0 } else { case.indexes });
    let start = clock.monotonic_ns();
    for first in (0..case.rows).step_by(usize::try_from(BATCH_ROWS).expect("small")) {
        let last = (first + BATCH_ROWS).min(case.rows);
        table.append((first..last).map(|at| row(case, at))).expect("there is no limit");
    }
    if case.builds_last {
        for (keys, event_time) in specs(case.indexes) {
            table.ensure_index(&keys, Some(event_time));
        }
    }
    let rows_per_s = case.rows * 1_000_000_000 / (clock.monotonic_ns() - start).max(1);
    assert_eq!(table.row_count(), case.rows);
    assert!(lockstep_series::reclaim(), "nobody reads");
    say(&format!("{} {rows_per_s}", budget.memory_use().used));
    table.truncate().expect("nothing is logged");
    assert!(lockstep_series::reclaim(), "nobody reads");
    say(&format!("{}", budget.memory_use().used));
}

/// Writes a line and waits for one.
fn say(line: &str) {
    println!("{line}");
    std::io::stdin().read_line(&mut String::new()).expect("the parent answers");
}

fn row(case: Case, at: u64) -> [Datum<'static>; 5] {
    let mixed = spread(at);
    let is_late = mixed % 100 < case.late_percent;
    // All late: the event times are those of rows in order, shuffled.
    let time = if is_late { (mixed >> 16) % case.rows } else { at };
    let key = i64::try_from(spread(mixed) % case.keys).expect("small");
    let time = START_MS + i64::try_from(time).expect("small");
    [
        Datum::BigInt(key),
        Datum::Timestamp(time),
        Datum::BigInt(key / 2),
        Datum::Double(0.5),
        Datum::String("0123456789"),
    ]
}

/// Spreads numbers over 64 bits; every number has its own.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Key columns and event times of the indexes.
fn specs(indexes: usize) -> Vec<(Vec<usize>, usize)> {
    [(vec![0], 1), (vec![2], 1), (vec![0, 2], 1)].into_iter().take(indexes).collect()
}

fn make(budget: &Arc<MemoryBudget>, indexes: usize) -> Table {
    let columns = [
        ("k", DataType::BigInt),
        ("t", DataType::Timestamp),
        ("half", DataType::BigInt),
        ("v", DataType::Double),
        ("s", DataType::String),
    ];
    let columns = columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
    let specs =
        specs(indexes).into_iter().enumerate().map(|(position, (keys, event_time))| IndexSpec {
            name: format!("i{position}"),
            keys,
            event_time: Some(event_time),
            retention: Retention::Forever,
            declared: true,
        });
    let schema = TableSchema { columns, indexes: specs.collect() };
    let clock = Arc::new(SystemClock::new());
    Table::with_budget(schema, clock, Arc::new(Arrivals::default()), Arc::clone(budget))
        .expect("the indexes are over columns that are there")
}
