//! What the budget is charged with is what is allocated, whatever was done to a table.
//!
//! An allocator counts what is requested, by the same model of the C library's overhead that the
//! tables count by. Random workloads are compared with the count after each step. It also counts what
//! each thread frees: who reads frees nothing of what others replace or remove.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use lockstep_host::{ManualClock, memory::footprint};
use lockstep_row::{
    Column, DataType, Datum, IncludedColumn, IndexSpec, Retention, TableSchema, key::encode_key,
};
use lockstep_table::{Arrivals, MemoryBudget, Table, reclaim};

/// Counts what is taken.
struct Counting;

static TAKEN: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// How much more this thread has freed than taken, in pieces.
    static FREED: Cell<i64> = const { Cell::new(0) };
}

fn bytes(size: usize) -> i64 {
    i64::try_from(footprint(size)).unwrap_or(i64::MAX)
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a number to report.
        TAKEN.fetch_add(bytes(layout.size()), Ordering::Relaxed);
        FREED.with(|freed| freed.set(freed.get() - 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Relaxed: a number to report.
        TAKEN.fetch_sub(bytes(layout.size()), Ordering::Relaxed);
        FREED.with(|freed| freed.set(freed.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a table takes that is not counted: the description of its columns and indexes, the lists of
/// them in its state, what a thread keeps for what it retires.
const UNCOUNTED_BYTES: u64 = 64 << 10;
const STEPS: u64 = 60;
/// How often the numbers are looked at, a millisecond apart, before they do not agree.
const TRIES: u64 = 5_000;
const NOW_MS: i64 = 1_000_000;

fn index(name: &str, keys: &[usize], retention: Retention) -> IndexSpec {
    let (name, keys) = (name.to_owned(), keys.to_vec());
    IndexSpec { name, keys, event_time: Some(1), retention, declared: true }
}

fn spread(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn row(number: u64) -> [Datum<'static>; 3] {
    let small = |from: u32, below: u64| i64::try_from((number >> from) % below).expect("small");
    let time = NOW_MS - small(8, 40_000);
    [Datum::BigInt(small(40, 50)), Datum::Timestamp(time), Datum::BigInt(small(20, 5_000))]
}

fn step(table: &Table, clock: &ManualClock, draw: u64) {
    let rows = |count: u64| (0..count).map(move |at| row(spread(draw ^ at)));
    match draw % 16 {
        0..8 => assert!(table.append(rows(draw >> 8 & 0xfff)).is_ok()),
        8 | 9 => (0..100).for_each(|at| assert!(table.append(rows(at % 3)).is_ok())),
        10 => drop(table.delete(|row| row.get(0).as_i64() == Some(7))),
        11 if draw & 256 == 0 => drop(table.truncate()),
        12 => {
            table.ensure_index(&[2], Some(1));
        }
        13 => {
            table.include(0, &[IncludedColumn { column: 2, values: true }]);
        }
        _ => {
            clock.advance_ms(2_000);
            table.collect_expired();
        }
    }
}

/// The numbers agree: those that were counted one by one, and that which the budget is charged with;
/// at once, or when the thread that removes expired rows has done so.
fn check(budget: &MemoryBudget, before: i64, table: Option<&Table>, what: &str) {
    for tries_left in (0..TRIES).rev() {
        let is_quiet = reclaim();
        // Relaxed: this thread has counted, and the others are at rest.
        let taken = u64::try_from(TAKEN.load(Ordering::Relaxed) - before).unwrap_or(0);
        let used = budget.memory_use().used;
        let of_table = table.map_or(0, Table::memory_bytes);
        if is_quiet && used == of_table && taken.abs_diff(used) <= UNCOUNTED_BYTES {
            return;
        }
        assert!(
            tries_left > 0,
            "{what}: {used} bytes are charged, {taken} taken, {of_table} counted, {is_quiet}"
        );
        lockstep_host::pause(1);
    }
}

fn make(clock: &Arc<ManualClock>, budget: &Arc<MemoryBudget>) -> Arc<Table> {
    let columns = [("k", DataType::BigInt), ("t", DataType::Timestamp), ("v", DataType::BigInt)];
    let schema = TableSchema {
        columns: columns.map(|(name, data_type)| Column::new(name, data_type)).to_vec(),
        indexes: vec![
            index("i", &[0], Retention::Absolute { ttl_ms: 30_000 }),
            index("j", &[2], Retention::Latest { latest: 3 }),
        ],
    };
    let told: Arc<ManualClock> = Arc::clone(clock);
    let table = Table::with_budget(schema, told, Arc::new(Arrivals::default()), Arc::clone(budget));
    Arc::new(table.expect("the indexes are over columns that are there"))
}

fn run(seed: u64) {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let budget = Arc::<MemoryBudget>::default();
    // Relaxed: as above.
    let before = TAKEN.load(Ordering::Relaxed);
    let table = make(&clock, &budget);
    for at in 0..STEPS {
        let draw = spread(seed << 32 | at);
        // On a thread of its own: what one keeps for its next append goes with it.
        let stepping = (Arc::clone(&table), Arc::clone(&clock));
        let body = move || step(&stepping.0, &stepping.1, draw);
        let stepping = lockstep_host::spawn("step", body).expect("a thread starts");
        stepping.join().expect("the step did not fail");
        let what = format!("seed {seed}, step {at}, {}", draw % 16);
        check(&budget, before, Some(&table), &what);
    }
    drop(table);
    check(&budget, before, None, &format!("seed {seed}, dropped"));
}

/// Reads while another thread changes the table in every way, and returns how often it read and how
/// many pieces it freed meanwhile that were not its own.
fn read(table: &Table, is_over: &AtomicBool) -> (u64, i64) {
    let mut key = Vec::new();
    encode_key([Datum::BigInt(9)], &mut key);
    let before = FREED.get();
    let (mut reads, mut seen) = (0, 0);
    // Acquire: pairs with the Release of who changes the table.
    while !is_over.load(Ordering::Acquire) {
        let snapshot = table.snapshot();
        seen += snapshot.rows(0, &key).count() + snapshot.rows(1, &key).count();
        reads += 1;
    }
    assert!(seen > 0, "there were rows to read");
    (reads, FREED.get() - before)
}

fn readers_free_nothing() {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let table = make(&clock, &Arc::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let reading = (Arc::clone(&table), Arc::clone(&is_over));
    let reader = lockstep_host::spawn("reader", move || read(&reading.0, &reading.1));
    let reader = reader.expect("a thread starts");
    for at in 0..4 * STEPS {
        step(&table, &clock, spread(at));
    }
    // Release: pairs with the Acquire of the reader.
    is_over.store(true, Ordering::Release);
    let (reads, freed) = reader.join().expect("the reader did not fail");
    assert!(reads > 0);
    assert_eq!(freed, 0, "who reads frees nothing");
}

// One test, so that no other allocates beside it.
#[test]
fn the_budget_is_charged_with_what_is_allocated_and_readers_free_nothing() {
    for seed in 1..=if cfg!(miri) { 1 } else { 8 } {
        run(seed);
    }
    readers_free_nothing();
}
