//! What a table costs: bytes for each row beside its own, nanoseconds to read the last rows of a
//! key, from the rows and from the records of an index, rows stored in a second.
//!
//! Run it with `cargo run -p lockstep-table --example storage_rate [bytes|read|put]`. Bytes are
//! the requests to the allocator, each rounded up as the C library's allocator does.
//! It is a measurement, not a test: nothing here fails on a slow machine.
#![expect(clippy::print_stdout, reason = "an example reports to a person")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use lockstep_host::{Clock, SystemClock};
use lockstep_row::{
    Column, DataType, Datum, IncludedColumn, IndexSpec, Retention, RowCodec, TableSchema,
    key::encode_key,
};
use lockstep_table::{Arrivals, Inclusion, KeyRows, RecordField, Snapshot, Table};

/// Counts what is taken.
struct Counting;

/// Bytes taken now.
static TAKEN: AtomicI64 = AtomicI64::new(0);

/// Bytes that the C library takes for a request: a header of 8, in steps of 16, at least 32.
fn footprint(size: usize) -> i64 {
    i64::try_from(((size + 8).next_multiple_of(16)).max(32)).unwrap_or(i64::MAX)
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a number to report.
        TAKEN.fetch_add(footprint(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Relaxed: a number to report.
        TAKEN.fetch_sub(footprint(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Columns of the narrow table: the key, the time, and what else a click has.
const COLUMNS: [(&str, DataType); 7] = [
    ("k", DataType::BigInt),
    ("t", DataType::Timestamp),
    ("app", DataType::Int),
    ("device", DataType::Int),
    ("channel", DataType::BigInt),
    ("price", DataType::Double),
    ("place", DataType::String),
];
const K: usize = 0;
const T: usize = 1;
const CHANNEL: usize = 4;
/// What an index includes, if it includes columns: 17 bytes.
const INCLUDED: [usize; 2] = [CHANNEL, 5];
const START_MS: i64 = 1_700_000_000_000;

fn row(number: u64, key: u64, time: i64) -> [Datum<'static>; 7] {
    let key = Datum::BigInt(i64::try_from(key).expect("small"));
    let small = i32::try_from(number % 1_000).expect("small");
    [
        key,
        Datum::Timestamp(time),
        Datum::Int(small),
        Datum::Int(small / 7),
        Datum::BigInt(i64::from(small) * 3),
        Datum::Double(f64::from(small) / 8.0),
        Datum::String("0123456789"),
    ]
}

/// Spreads numbers over 64 bits; every number has its own.
fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn make(indexes: usize) -> Table {
    let columns = COLUMNS.map(|(name, data_type)| Column::new(name, data_type)).to_vec();
    let keys = [vec![K], vec![2], vec![3, K]];
    let specs = keys.into_iter().take(indexes).enumerate().map(|(number, keys)| IndexSpec {
        name: format!("i{number}"),
        keys,
        event_time: Some(T),
        retention: Retention::Forever,
        declared: true,
    });
    let schema = TableSchema { columns, indexes: specs.collect() };
    Table::new(schema, Arc::new(SystemClock::new()), Arc::new(Arrivals::default()))
        .expect("the indexes are over columns that are there")
}

/// A table whose indexes include columns.
fn make_including(indexes: usize) -> Table {
    let table = make(indexes);
    let columns = INCLUDED.map(|column| IncludedColumn { column, values: true });
    for index in 0..indexes {
        assert_eq!(table.include(index, &columns), Inclusion::Included, "an empty table has space");
    }
    table
}

fn number(value: usize) -> u64 {
    u64::try_from(value).expect("a count")
}

#[expect(clippy::cast_precision_loss, reason = "a number for a person")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Bytes for each row by rows per key: of the whole table, of it without the row's own bytes.
fn bytes() {
    println!(
        "| rows per key | keys | indexes | record | row | bytes per row | beside the row | counted |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (indexes, includes) in [(1, false), (1, true), (3, false), (3, true)] {
        for rows_per_key in [1_u64, 2, 5, 10, 100, 1_000, 10_000] {
            let keys = 400_000 / rows_per_key;
            let before = TAKEN.load(Ordering::Relaxed);
            let table = if includes { make_including(indexes) } else { make(indexes) };
            let record = table.snapshot().projection(0).map_or(0, |projection| projection.size());
            let size = {
                let mut bytes = Vec::new();
                let codec = RowCodec::new(&table.schema());
                codec.encode(&row(1, 1, START_MS), &mut bytes).expect("it fits");
                number(bytes.len())
            };
            let total = keys * rows_per_key;
            for first in (0..total).step_by(1_000) {
                let batch = first..(first + 1_000).min(total);
                let rows = batch.map(|at| {
                    row(at, spread(at % keys) >> 20, START_MS + i64::try_from(at).expect("small"))
                });
                table.append(rows).expect("rows fit");
            }
            for _ in 0..8 {
                table.collect_expired();
            }
            let taken = u64::try_from(TAKEN.load(Ordering::Relaxed) - before).expect("positive");
            let per_row = ratio(taken, total);
            let counted = ratio(table.memory_bytes(), taken);
            println!(
                "| {rows_per_key} | {keys} | {indexes} | {record} | {size} | {per_row:.1} | {:.1} | {counted:.3} |",
                per_row - ratio(size, 1)
            );
        }
    }
}

/// Nanoseconds for the last rows of a key, keys drawn at random.
fn read() {
    println!("| rows per key | keys | read | from | ns per key min | median | max | ns per row |");
    println!("|---|---|---|---|---|---|---|---|");
    for (rows_per_key, keys) in [(1_u64, 1_000_000_u64), (100, 10_000), (1_000, 1_000)] {
        let ways: [(&str, bool, ReadLast); 3] = [
            ("rows", false, sum_last_rows),
            ("rows, records beside", true, sum_last_rows),
            ("records", true, sum_last_records),
        ];
        for (from, includes, sum_last) in ways {
            let table = if includes { make_including(1) } else { make(1) };
            let total = keys * rows_per_key;
            for first in (0..total).step_by(1_000) {
                let batch = first..(first + 1_000).min(total);
                let time = |at: u64| START_MS + i64::try_from(at).expect("small");
                table.append(batch.map(|at| row(at, at % keys, time(at)))).expect("rows fit");
            }
            for last in [1_u64, 100, 1_000].into_iter().filter(|last| *last <= rows_per_key) {
                read_often(&table, (rows_per_key, keys), last, (from, sum_last));
            }
        }
    }
}

/// Reads the last rows of many keys, five times, and prints what it took.
fn read_often(
    table: &Table,
    (rows_per_key, keys): (u64, u64),
    last: u64,
    (from, sum_last): (&str, ReadLast),
) {
    let clock = SystemClock::new();
    let rounds = (2_000_000 / last).min(300_000);
    let once = |_| {
        let start = clock.monotonic_ns();
        let wanted = (0..rounds).map(|round| spread(round) % keys);
        assert_ne!(read_last(table, wanted, (last, sum_last)), 0, "rows were read");
        clock.monotonic_ns() - start
    };
    let mut times: Vec<u64> = (0..5).map(once).collect();
    times.sort_unstable();
    let [least, median, most] = [times[0], times[2], times[4]].map(|ns| ratio(ns, rounds));
    println!(
        "| {rows_per_key} | {keys} | last {last} | {from} | {least:.0} | {median:.0} | {most:.0} | {:.1} |",
        ratio(times[2], rounds * last)
    );
}

/// Sums over the last rows of a key.
type ReadLast = fn(&Snapshot<'_>, KeyRows<'_>, usize) -> i64;

/// Reads the last rows of keys, and returns a sum over them.
fn read_last(
    table: &Table,
    keys: impl Iterator<Item = u64>,
    (last, sum_last): (u64, ReadLast),
) -> i64 {
    let last = usize::try_from(last).expect("small");
    let (mut sum, mut key) = (0_i64, Vec::new());
    for wanted in keys {
        key.clear();
        encode_key([Datum::BigInt(i64::try_from(wanted).expect("small"))], &mut key);
        let snapshot = table.snapshot();
        let mut rows = snapshot.rows(0, &key);
        rows.seek(i64::MAX);
        sum = sum.wrapping_add(sum_last(&snapshot, rows, last));
    }
    sum
}

fn sum_last_rows(_: &Snapshot<'_>, rows: KeyRows<'_>, last: usize) -> i64 {
    let mut sum = 0_i64;
    for found in rows.take(last).map(|found| found.expect("rows are in memory")) {
        sum = sum.wrapping_add(found.event_time);
        sum = sum.wrapping_add(found.row.get(CHANNEL).as_i64().unwrap_or(0));
    }
    sum
}

fn sum_last_records(snapshot: &Snapshot<'_>, mut rows: KeyRows<'_>, last: usize) -> i64 {
    let projection = snapshot.projection(0).expect("the index includes columns");
    let channel = projection.fixed_column(CHANNEL).expect("it is one of them");
    let (null_byte, null_mask) = channel.null_bit();
    let field = |(offset, width)| RecordField { offset, width };
    let (mut sum, mut left) = (0_i64, last);
    while left > 0
        && let Some(run) = rows.next_run().expect("rows are in memory")
    {
        let run = run.slice(0..run.len().min(left));
        left -= run.len();
        if left > 0 {
            rows.prefetch_next_run(&[(null_byte, 1), (channel.at(), 8)].map(field));
        }
        let Some(records) = run.records() else {
            let row = run.stored_row(0);
            sum = sum.wrapping_add(row.event_time + row.row.get(CHANNEL).as_i64().unwrap_or(0));
            continue;
        };
        sum = (0..run.len()).fold(sum, |sum, at| sum.wrapping_add(run.event_time(at)));
        let values = records.field(channel.at(), 8).as_chunks().0;
        for (value, nulls) in values.iter().zip(records.field(null_byte, 1)) {
            if nulls & null_mask == 0 {
                sum = sum.wrapping_add(i64::from_le_bytes(*value));
            }
        }
    }
    sum
}

/// How a put measurement goes.
#[derive(Debug, Clone, Copy)]
struct Put {
    indexes: usize,
    includes: bool,
    writers: u64,
    batch: u64,
    late_percent: u64,
    keys: u64,
}

const PUT_ROWS: u64 = 600_000;

fn put_rows(table: &Table, put: Put, writer: u64) {
    let count = PUT_ROWS / put.writers;
    let first = writer * count;
    for start in (first..first + count).step_by(usize::try_from(put.batch).expect("small")) {
        let rows = (start..(start + put.batch).min(first + count)).map(|at| {
            let mixed = spread(at);
            let is_late = mixed % 100 < put.late_percent;
            let late = if is_late { (mixed >> 32) % PUT_ROWS } else { 0 };
            let time = START_MS + i64::try_from((at - first).saturating_sub(late)).expect("small");
            row(at, (mixed >> 7) % put.keys, time)
        });
        table.append(rows).expect("rows fit");
    }
}

/// Rows stored in a second.
fn put() {
    let clock = SystemClock::new();
    println!(
        "| batch | indexes | includes | writers | late % | keys | rows/s min | median | max |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for batch in [1_000_u64, 1] {
        for (indexes, includes, writers) in [
            (1, false, 1_u64),
            (1, true, 1),
            (1, false, 2),
            (3, false, 1),
            (3, true, 1),
            (3, false, 2),
        ] {
            for (late_percent, keys) in [(0, 1_000_u64), (1, 1_000), (20, 1_000), (0, 300_000)] {
                let put = Put { indexes, includes, writers, batch, late_percent, keys };
                let mut rates: Vec<f64> = (0..5).map(|_| put_once(&clock, put)).collect();
                rates.sort_unstable_by(f64::total_cmp);
                println!(
                    "| {batch} | {indexes} | {includes} | {writers} | {late_percent} | {keys} | {:.0} | {:.0} | {:.0} |",
                    rates[0], rates[2], rates[4]
                );
            }
        }
    }
}

fn put_once(clock: &SystemClock, put: Put) -> f64 {
    let table = if put.includes { make_including(put.indexes) } else { make(put.indexes) };
    let table = Arc::new(table);
    let start = clock.monotonic_ns();
    let writers: Vec<_> = (0..put.writers)
        .map(|writer| {
            let table = Arc::clone(&table);
            lockstep_host::spawn("writer", move || put_rows(&table, put, writer))
                .expect("a thread starts")
        })
        .collect();
    for writer in writers {
        writer.join().expect("a writer ends");
    }
    ratio(PUT_ROWS * 1_000_000_000, clock.monotonic_ns() - start)
}

fn main() {
    let wanted = std::env::args().nth(1);
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    if is_wanted("bytes") {
        bytes();
    }
    if is_wanted("read") {
        read();
    }
    if is_wanted("put") {
        put();
    }
}
