//! An index that includes columns shows the same rows, and records that say what the rows say,
//! whatever else changes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use lockstep_row::{Column, DataType, Datum, IncludedColumn, Projection, Retention, TableSchema};

use super::{K, T, V, budgeted, datums, index, key, numbers, reclaim, rows, table};
use crate::{
    INCLUDED_BYTES_MAX, Inclusion, KeyRows, KeyRun, ReadError, RecordField, Snapshot, StoredRow,
    Table,
};

fn columns(wanted: &[(usize, bool)]) -> Vec<IncludedColumn> {
    wanted
        .iter()
        .map(|(column, values)| IncludedColumn { column: *column, values: *values })
        .collect()
}

pub(super) fn included(table: &Table, index: usize, wanted: &[(usize, bool)]) {
    assert_eq!(table.include(index, &columns(wanted)), Inclusion::Included);
    let snapshot = table.snapshot();
    for (column, _) in wanted {
        let projection = snapshot.projection(index).expect("it includes columns");
        assert!(projection.presence(*column).is_some());
    }
}

/// Checks that the runs ahead are the rows ahead, read one way and in turn.
pub(super) fn check_runs<'s>(snapshot: &'s Snapshot<'s>, index: usize, ahead: &KeyRows<'s>) {
    let described = |row: StoredRow<'_>| (row.event_time, row.arrival, row.row.bytes().to_vec());
    let rows = |rows: &mut dyn Iterator<Item = Result<StoredRow<'s>, ReadError>>| {
        rows.map(|row| described(row.unwrap())).collect::<Vec<_>>()
    };
    let expected = rows(&mut ahead.clone());
    for is_mixed in [false, true] {
        let mut left = ahead.clone();
        let mut found = Vec::new();
        while let Some(run) = left.next_run().unwrap() {
            let widths = snapshot.projection(index).into_iter().flat_map(Projection::widths);
            let first = widths.take(1).map(|width| RecordField { offset: 0, width });
            left.prefetch_next_run(&first.collect::<Vec<_>>());
            assert!(!run.is_empty());
            check_records(snapshot.projection(index), &run);
            found.extend((0..run.len()).map(|at| described(run.stored_row(at))));
            if is_mixed {
                found.extend(rows(&mut left.by_ref().take(1)));
            }
        }
        assert_eq!(found, expected);
    }
}

fn check_records(projection: Option<&Projection>, run: &KeyRun<'_>) {
    let Some(records) = run.records() else { return };
    let projection = projection.expect("who has records has a projection");
    assert_eq!((records.len(), records.size()), (run.len(), projection.size()));
    for at in 0..run.len() {
        run.prefetch_row(at + 8);
        let mut expected = vec![0; projection.size()];
        projection.write(run.row(at).bytes(), &mut expected);
        let mut record = vec![0xff; projection.size()];
        records.copy_to(at, &mut record);
        assert_eq!(record, expected);
    }
}

/// The value of a BIGINT or TIMESTAMP column in the record of a key's newest row.
fn newest(table: &Table, index: usize, of: &[u8], column: usize) -> Option<i64> {
    let snapshot = table.snapshot();
    let place = snapshot.projection(index)?.fixed_column(column)?;
    let records = snapshot.rows(index, of).next_run().unwrap()?.records()?;
    let mut record = vec![0; records.size()];
    records.copy_to(0, &mut record);
    (!place.is_null(&record)).then(|| i64::from_le_bytes(place.bytes(&record)))
}

#[test]
fn an_index_goes_on_including_columns_whatever_changes() {
    let keep = Retention::Latest { latest: 50 };
    let (table, _clock) = table(vec![index("i", &[K], Some(T), keep)], 0);
    table.append(rows(0..300)).unwrap();
    let one = key(&[Datum::Int(1)]);
    let check = |expected: i64, what: &str| {
        assert_eq!(newest(&table, 0, &one, V), Some(expected), "{what}");
        let snapshot = table.snapshot();
        check_runs(&snapshot, 0, &snapshot.rows(0, &one));
    };
    assert_eq!(newest(&table, 0, &one, V), None);
    included(&table, 0, &[(V, true)]);
    check(299, "included");
    let before = table.snapshot();
    let held = before.projection(0).unwrap().clone();
    included(&table, 0, &[(T, true), (K, false), (V, false)]);
    check(299, "grown");
    assert_eq!(held.fixed_column(V), table.snapshot().projection(0).unwrap().fixed_column(V));
    check_runs(&before, 0, &before.rows(0, &one));
    drop(before);
    table.append(rows(300..320)).unwrap();
    check(319, "appended");
    table.append([datums((Some(1), Some(5), 320))]).unwrap();
    check(319, "late");
    table.add_declared_index(index("j", &[V], Some(T), Retention::Forever)).unwrap();
    check(319, "another index");
    table.widen_index(0, Retention::Latest { latest: 100 }).unwrap();
    check(319, "widened");
    assert_eq!(table.delete(|row| row.get(V) == Datum::BigInt(319)), Ok(1));
    check(318, "deleted");
    table.collect_expired();
    check(318, "collected");
    table.drop_declared_index("i").unwrap();
    check(318, "no longer declared");
    table.truncate().unwrap();
    table.append(rows(322..330)).unwrap();
    check(329, "truncated and filled again");
}

#[test]
fn moved_rows_keep_their_records() {
    let (table, clock) =
        table(vec![index("i", &[K], Some(T), Retention::Absolute { ttl_ms: 1_000 })], 0);
    included(&table, 0, &[(V, true), (T, true)]);
    // One row in a hundred stays: blocks are left with little, and rows move.
    for v in 0..5_000 {
        let time = if v % 100 == 0 { 10_000 } else { 0 };
        table.append([datums((Some(1), Some(time), v))]).unwrap();
    }
    clock.set_ms(5_000);
    let full = table.memory().rows;
    let mut removed = 0;
    // Snapshots of other tests hold the collector up for a moment.
    for _ in 0..100_000 {
        removed += table.collect_expired();
        if removed > 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(removed, 4_950);
    assert!(table.memory().rows < full);
    let snapshot = table.snapshot();
    let one = key(&[Datum::Int(1)]);
    check_runs(&snapshot, 0, &snapshot.rows(0, &one));
    assert_eq!(numbers(snapshot.rows(0, &one)).len(), 50);
    assert_eq!(newest(&table, 0, &one, V), Some(4_900));
}

#[test]
fn a_record_that_would_be_too_large_is_refused() {
    let texts = (0..12).map(|at| Column::new(format!("s{at}"), DataType::String));
    let ints = DataType::Array(Box::new(DataType::Int));
    let mut all: Vec<Column> = texts.chain([Column::new("a", ints)]).collect();
    all.push(Column::new("k", DataType::Int));
    let schema =
        TableSchema { columns: all, indexes: vec![index("i", &[13], None, Retention::Forever)] };
    let clock = Arc::new(lockstep_host::ManualClock::new(0));
    let table = Table::new(schema, clock, Arc::default()).unwrap();
    let texts: Vec<(usize, bool)> = (0..12).map(|column| (column, true)).collect();
    included(&table, 0, &texts[..3]);
    let size = 2 + 12 * 16;
    assert!(size > INCLUDED_BYTES_MAX);
    assert_eq!(table.include(0, &columns(&texts)), Inclusion::TooLarge { size });
    assert_eq!(table.snapshot().projection(0).unwrap().size(), 1 + 3 * 16);
    included(&table, 0, &[(12, true)]);
    assert_eq!(table.snapshot().projection(0).unwrap().size(), 1 + 3 * 16);
}

#[test]
fn records_count_and_are_refused_when_the_budget_has_no_room() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    table.append(rows(0..2_000)).unwrap();
    reclaim();
    let held = budget.memory_use().used;
    budget.set_limit(Some(held + 20_000));
    let wanted = columns(&[(V, true), (T, true)]);
    let refused = table.include(0, &wanted);
    assert!(matches!(refused, Inclusion::OutOfMemory { needed } if needed > 20_000), "{refused:?}");
    assert_eq!(budget.memory_use().used, held);
    assert!(table.snapshot().projection(0).is_none());
    budget.set_limit(Some(held + 50_000));
    assert_eq!(table.include(0, &wanted), Inclusion::Included);
    reclaim();
    let used = budget.memory_use().used;
    assert_eq!(used, table.memory_bytes());
    assert!((held + 2_000 * 17..held + 50_000).contains(&used), "{used} after {held}");
    table.append(rows(2_000..2_100)).unwrap();
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
    table.truncate().unwrap();
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
    assert_eq!(newest(&table, 0, &key(&[Datum::Int(1)]), V), None);
}

#[test]
fn readers_and_writers_go_on_while_an_index_comes_to_include_columns() {
    const ROWS: i64 = if cfg!(miri) { 100 } else { 20_000 };
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append(rows(0..10)).unwrap();
    let (table, is_over) = (Arc::new(table), Arc::new(AtomicBool::new(false)));
    let one = key(&[Datum::Int(1)]);
    let reader = {
        let (table, is_over, one) = (Arc::clone(&table), Arc::clone(&is_over), one.clone());
        let body = move || {
            let mut seen = 0;
            // Acquire: pairs with the Release below.
            while !is_over.load(Ordering::Acquire) {
                let snapshot = table.snapshot();
                let mut rows = snapshot.rows(0, &one);
                let mut count = 0;
                while let Some(run) = rows.next_run().unwrap() {
                    rows.prefetch_next_run(&[]);
                    check_records(snapshot.projection(0), &run);
                    count += run.len();
                }
                assert!(count >= seen, "{count} rows after {seen}");
                assert_eq!(u64::try_from(count).unwrap(), snapshot.visible_arrival());
                seen = count;
            }
        };
        lockstep_host::spawn("reader", body).unwrap()
    };
    let writer = {
        let table = Arc::clone(&table);
        let body = move || {
            for first in (10..ROWS).step_by(10) {
                // Every other append is late.
                let late = if first % 20 == 0 { first / 2 } else { 0 };
                let row = |v| datums((Some(1), Some(v - late), v));
                table.append((first..first + 10).map(row)).unwrap();
            }
        };
        lockstep_host::spawn("writer", body).unwrap()
    };
    for wanted in [(V, true), (T, false), (K, true), (T, true)] {
        included(&table, 0, &[wanted]);
        std::thread::yield_now();
    }
    writer.join().unwrap();
    // Release: pairs with the Acquire above.
    is_over.store(true, Ordering::Release);
    reader.join().unwrap();
    assert_eq!(newest(&table, 0, &one, V), Some(ROWS - 1));
}
