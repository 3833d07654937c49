//! An append over several tables is visible in all of them or in none.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use lockstep_host::ManualClock;
use lockstep_row::{Column, DataType, Retention, TableSchema};

use super::{K, T, V, damage, datums, index, reclaim, rows, scanned};
use crate::{Appended, Arrivals, BulkLoad, MemoryBudget, Snapshot, Table, TableError};

/// Tables of one engine, with one budget.
fn tables() -> ([Arc<Table>; 3], Arc<MemoryBudget>) {
    let (arrivals, budget) = (Arc::new(Arrivals::new(0)), Arc::<MemoryBudget>::default());
    let columns = vec![
        Column::new("k", DataType::Int),
        Column::new("t", DataType::Timestamp),
        Column::new("v", DataType::BigInt),
    ];
    let make = |at: usize| {
        let indexes = vec![index("i", &[K], Some(T), Retention::Forever)];
        let schema = TableSchema { columns: columns.clone(), indexes };
        let clock = Arc::new(ManualClock::new(0));
        let shared = (Arc::clone(&arrivals), Arc::clone(&budget));
        let table = Table::with_budget(schema, clock, shared.0, shared.1).unwrap();
        Arc::new(table.logged_as(u64::try_from(at).unwrap()))
    };
    ([make(1), make(2), make(3)], budget)
}

/// Makes a load of rows with these numbers.
fn load(table: &Table, numbers: std::ops::Range<i64>) -> BulkLoad<'_> {
    let mut load = table.load();
    load.push(rows(numbers)).unwrap();
    load
}

fn count(table: &Table) -> usize {
    table.snapshot().scan().map_rows(|_| ()).count()
}

#[test]
fn the_rows_of_several_loads_follow_one_another() {
    let ([one, two, three], _) = tables();
    // By the ids of the tables, whatever the order of the loads; an empty load has no part in it.
    let loads = vec![load(&two, 2..5), three.load(), load(&one, 0..2)];
    let done = BulkLoad::finish_all(loads).unwrap();
    assert_eq!(done.map_rows(), [3, 0, 2]);
    assert_eq!(scanned(one.snapshot().scan()), [0, 1]);
    assert_eq!(scanned(two.snapshot().scan()), [2, 3, 4]);
    assert_eq!(BulkLoad::finish_all(Vec::new()), Ok(Vec::new()));
    assert_eq!(BulkLoad::finish_all(vec![three.load()]), Ok(vec![Appended::default()]));
}

/// Reads how many rows there were.
trait AppendedRows {
    fn map_rows(&self) -> Vec<u64>;
}

impl AppendedRows for Vec<Appended> {
    fn map_rows(&self) -> Vec<u64> {
        self.iter().map(|done| done.rows).collect()
    }
}

#[test]
fn what_one_table_refuses_is_in_none() {
    let ([one, two, three], budget) = tables();
    let used = budget.memory_use().used;
    let check = |refused: Result<Vec<Appended>, TableError>, expected: &TableError| {
        assert_eq!(refused.as_ref(), Err(expected));
        assert_eq!([&one, &two].map(|table| count(table)), [0, 0]);
    };
    two.drop_declared_index("i").unwrap();
    let mut null = two.load();
    null.push([datums((Some(1), None, 0))]).unwrap();
    let again = index("again", &[V], Some(T), Retention::Forever);
    let loads = vec![load(&one, 0..9), null];
    assert_eq!(two.row_count(), 0);
    two.add_declared_index(again).unwrap();
    let (column, name) = ("t".to_owned(), "again".to_owned());
    let expected = TableError::NullEventTime { column, index: name, row_number: 1 };
    check(BulkLoad::finish_all(loads), &expected);

    let loads = vec![load(&one, 0..9), load(&two, 9..12), load(&three, 12..15)];
    three.close();
    check(BulkLoad::finish_all(loads), &TableError::Dropped);
    reclaim();
    let memory: u64 = [&one, &two, &three].map(|table| table.memory_bytes()).iter().sum();
    assert_eq!(budget.memory_use().used, memory);
    assert!(memory <= 2 * used, "nothing is kept for rows that were refused");
}

#[test]
fn an_append_that_panics_in_one_table_is_visible_in_none() {
    let ([one, two, three], _) = tables();
    one.append(rows(0..10)).unwrap();
    two.append(rows(10..30)).unwrap();
    damage::panic_before(0);
    let loads = vec![load(&one, 30..40), load(&two, 40..50)];
    assert!(catch_unwind(AssertUnwindSafe(|| BulkLoad::finish_all(loads))).is_err());
    assert_eq!([&one, &two].map(|table| count(table)), [10, 20]);
    for table in [&one, &two] {
        let loads = vec![load(&three, 0..1), load(table, 1..2)];
        assert_eq!(BulkLoad::finish_all(loads), Err(TableError::Damaged));
    }
    assert_eq!(count(&three), 0);
    one.truncate().unwrap();
    two.truncate().unwrap();
    assert_eq!(BulkLoad::finish_all(vec![load(&one, 0..1), load(&two, 1..3)]).unwrap().len(), 2);
    assert_eq!([&one, &two].map(|table| count(table)), [1, 2]);
}

/// Writers append to pairs of tables, in every order, and to single ones.
#[test]
fn aligned_snapshots_show_an_append_in_all_tables_or_in_none() {
    const APPENDS: i64 = if cfg!(miri) { 10 } else { 2_000 };
    const PAIRS: [[usize; 2]; 3] = [[0, 1], [1, 0], [1, 2]];
    let (tables, _) = tables();
    // A row of a pair has the number of its pair, one of a single append a greater one.
    let single = i64::try_from(PAIRS.len()).unwrap();
    let writers = PAIRS.map(|pair| {
        let tables = tables.clone();
        let number = i64::try_from(PAIRS.iter().position(|other| *other == pair).unwrap()).unwrap();
        let writing = lockstep_host::spawn("writer", move || {
            for at in 0..APPENDS {
                let row = [datums((Some(1), Some(at), number))];
                let loads = pair.map(|table| {
                    let mut load = tables[table].load();
                    load.push(row).unwrap();
                    load
                });
                BulkLoad::finish_all(loads.into()).unwrap();
                tables[1].append([datums((Some(1), Some(at), single))]).unwrap();
            }
        });
        writing.unwrap()
    });
    let mut seen = 0;
    while seen < APPENDS * 3 {
        let mut snapshots = tables.each_ref().map(|table| table.snapshot());
        Snapshot::align(&mut snapshots);
        let count = |table: usize, number: usize| {
            let number = i64::try_from(number).unwrap();
            let all = snapshots[table].scan().map_rows(|found| found.row.get(V).as_i64());
            all.filter(|found| *found == Ok(Some(number))).count()
        };
        seen = 0;
        for (number, pair) in PAIRS.iter().enumerate() {
            let counts = pair.map(|table| count(table, number));
            assert_eq!(counts[0], counts[1], "of pair {pair:?}");
            seen += i64::try_from(counts[0]).unwrap();
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let single = usize::try_from(APPENDS).unwrap() * 3;
    assert_eq!(tables.map(|table| count(&table)), [single / 3 * 2, single * 2, single / 3]);
}
