//! Writers go on while the table is changed as a whole, and none of their rows is lost.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use lockstep_host::{Interrupt, QueryContext, Threads};
use lockstep_row::{Datum, Retention};

use super::{
    K, T, V, budgeted, datums, hold::need, index, key, numbers, reclaim, rows, scanned,
    steps::directory_of, table,
};
use crate::{Appended, IndexNeed, Snapshot, Table, TableError};

/// Keys of the rows that writers add.
const KEYS: i64 = 5;

/// A row of a writer: its number, a key, and a time that is now and then late.
fn row(v: i64) -> [Datum<'static>; 3] {
    let late = if v % 7 == 0 { v / 2 } else { 0 };
    datums((Some(i32::try_from(v % KEYS).unwrap()), Some(v - late), v))
}

/// As many rows are shown by each index as in order of arrival, and none twice.
fn check_indexes(snapshot: &Snapshot<'_>) -> usize {
    let mut shown: Vec<i64> = snapshot
        .scan()
        .map_rows(|found| found.row.get(V).as_i64().unwrap())
        .map(Result::unwrap)
        .collect();
    shown.sort_unstable();
    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]), "no row is there twice");
    for (at, spec) in snapshot.schema().indexes.iter().enumerate() {
        if spec.is_removed() {
            continue;
        }
        let keys: Vec<Vec<u8>> = match spec.keys.as_slice() {
            [] => vec![Vec::new()],
            [K] => (0..KEYS).map(|k| key(&[Datum::Int(i32::try_from(k).unwrap())])).collect(),
            _ => shown.iter().map(|v| key(&[Datum::BigInt(*v)])).collect(),
        };
        let count: usize = keys.iter().map(|key| snapshot.rows(at, key).count()).sum();
        assert_eq!(count, shown.len(), "{spec:?}");
    }
    shown.len()
}

/// Writers on threads, until it is over; each row once.
fn with_writers(table: &Arc<Table>, body: impl FnOnce()) -> i64 {
    const WRITERS: i64 = 2;
    const ROWS: i64 = if cfg!(miri) { 60 } else { 6_000 };
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (table, is_over) = (Arc::clone(table), Arc::clone(&is_over));
            let write = move || {
                for first in (0..ROWS).step_by(4) {
                    let numbers = (first..first + 4).map(|at| at * WRITERS + writer);
                    table.append(numbers.map(row)).unwrap();
                }
                // Acquire: pairs with the Release below.
                while !is_over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            };
            lockstep_host::spawn("writer", write).unwrap()
        })
        .collect();
    body();
    // Release: pairs with the Acquire above.
    is_over.store(true, Ordering::Release);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    WRITERS * ROWS
}

#[test]
fn no_row_is_lost_while_indexes_come_and_go() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    let table = Arc::new(table);
    let count = with_writers(&table, || {
        for round in 0..20 {
            let event_time = (round % 2 == 0).then_some(T);
            let by_v = table.hold(&need(&[V], event_time, None, &[(V, true)]), "d").unwrap();
            let all = table.hold(&need(&[], Some(T), None, &[]), "d").unwrap();
            let columns = table.hold(&need(&[K], Some(T), None, &[(T, true)]), "d").unwrap();
            check_indexes(&table.snapshot());
            drop((by_v, columns));
            check_indexes(&table.snapshot());
            drop(all);
        }
    });
    assert_eq!(check_indexes(&table.snapshot()), usize::try_from(count).unwrap());
}

#[test]
fn a_delete_removes_what_it_is_to_and_nothing_else_while_rows_come() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.ensure_index(&[V], Some(T));
    let table = Arc::new(table);
    let is_odd_third = |v: i64| v % 3 == 1;
    let mut deleted = 0;
    let count = with_writers(&table, || {
        for _ in 0..20 {
            deleted += table.delete(|row| is_odd_third(row.get(V).as_i64().unwrap())).unwrap();
            check_indexes(&table.snapshot());
        }
    });
    deleted += table.delete(|row| is_odd_third(row.get(V).as_i64().unwrap())).unwrap();
    let expected = (0..count).filter(|v| is_odd_third(*v)).count();
    assert_eq!(deleted, u64::try_from(expected).unwrap());
    assert_eq!(check_indexes(&table.snapshot()), usize::try_from(count).unwrap() - expected);
}

#[test]
fn a_delete_of_nothing_makes_nothing_anew() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    table.append(rows(0..10)).unwrap();
    let before = table.schema();
    assert_eq!(table.delete(|_| false), Ok(0));
    assert!(Arc::ptr_eq(&before, &table.schema()), "the state is the same");
}

/// Rows expire by number and by age while writers go on.
fn check_expiry(retention: Retention) {
    let (table, clock) = table(vec![index("i", &[K], Some(T), retention)], 0);
    table.ensure_index(&[V], Some(T));
    let table = table.shared(Threads::System);
    with_writers(&table, || {
        for round in 0..50 {
            clock.set_ms(round * 200);
            table.collect_expired();
            let snapshot = table.snapshot();
            let shown = check_indexes(&snapshot);
            assert_eq!(snapshot.scan_kept_by(0).map_rows(|_| ()).count(), shown);
        }
    });
    for _ in 0..100 {
        table.collect_expired();
        std::thread::yield_now();
    }
    check_indexes(&table.snapshot());
}

#[test]
fn rows_expire_while_rows_come() {
    check_expiry(Retention::Absolute { ttl_ms: 500 });
    check_expiry(Retention::Latest { latest: 100 });
    check_expiry(Retention::AbsAndLat { ttl_ms: 300, latest: 40 });
}

#[test]
fn a_shared_table_removes_expired_rows_by_itself() {
    let retention = Retention::Latest { latest: 10 };
    let (table, _clock) = table(vec![index("i", &[K], Some(T), retention)], 0);
    let table = table.shared(Threads::System);
    let mut most = 0;
    for first in (0..2_000_000).step_by(1_000) {
        table.append(rows(first..first + 1_000)).unwrap();
        most = most.max(table.row_count());
    }
    // What is kept, what is appended until rows are looked for, and how far writers may run ahead;
    // other tests hold the collector up for a while.
    assert!(most < 1_200_000, "{most}");
    assert_eq!(table.snapshot().scan().map_rows(|_| ()).count(), 10);
}

#[test]
fn a_load_is_visible_at_its_end_or_not_at_all() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let used = || budget.memory_use().used;
    let empty = used();
    let mut load = table.load();
    load.push(rows(0..1_000)).unwrap();
    assert!(used() > empty + 1_000 * 20, "what is loaded counts");
    table.append(rows(5_000..5_003)).unwrap();
    load.push(rows(1_000..1_500)).unwrap();
    let null = load.push([datums((Some(1), Some(1), 1)), datums((None, None, 2))]);
    let (column, name) = ("t".to_owned(), "i".to_owned());
    let expected = TableError::NullEventTime { column, index: name, row_number: 1_502 };
    assert_eq!(null, Err(expected));
    assert_eq!(table.snapshot().scan().map_rows(|_| ()).count(), 3);
    drop(load);
    reclaim();
    assert_eq!((used(), table.row_count()), (table.memory_bytes(), 3));

    table.truncate().unwrap();
    let first = table.arrivals.next();
    let mut load = table.load();
    for at in 0..10_i64 {
        load.push(rows(at * 100..(at + 1) * 100)).unwrap();
    }
    assert_eq!((load.row_count(), table.snapshot().scan().map_rows(|_| ()).count()), (1_000, 0));
    assert_eq!(load.finish(), Ok(Appended { rows: 1_000, ..Appended::default() }));
    let snapshot = table.snapshot();
    assert_eq!(snapshot.scan().map_rows(|_| ()).count(), 1_000);
    assert_eq!(snapshot.scan().next_row().unwrap().unwrap().arrival, first);
    assert_eq!(snapshot.rows(0, &key(&[Datum::Int(1)])).count(), 1_000);
    // What other tests replace waits for it.
    drop(snapshot);
    reclaim();
    assert_eq!(used(), table.memory_bytes());
}

#[test]
fn a_load_asks_for_memory_as_it_goes() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let used = budget.memory_use().used;
    budget.set_limit(Some(used + 100_000));
    let mut load = table.load();
    let pushed =
        (0..100).take_while(|at| load.push(rows(at * 100..(at + 1) * 100)).is_ok()).count();
    assert!((5..60).contains(&pushed), "{pushed}");
    drop(load);
    reclaim();
    assert_eq!(budget.memory_use().used, used);
    let mut load = table.load();
    load.push(rows(0..100)).unwrap();
    table.close();
    assert_eq!(load.finish(), Err(TableError::Dropped));
    reclaim();
    assert_eq!(budget.memory_use().used, used);
}

#[test]
fn a_load_is_checked_against_an_index_that_came_meanwhile() {
    let (table, _clock) = table(Vec::new(), 0);
    let mut load = table.load();
    load.push([datums((Some(1), None, 0))]).unwrap();
    table.add_declared_index(index("i", &[K], Some(T), Retention::Forever)).unwrap();
    let refused = load.finish().unwrap_err();
    assert!(matches!(refused, TableError::NullEventTime { row_number: 1, .. }), "{refused}");
    assert_eq!(scanned(table.snapshot().scan()), Vec::<usize>::new());
}

#[test]
fn an_append_says_how_many_rows_had_expired() {
    let expired = |retention, rows: &[(i64, i64)]| {
        let (table, clock) = table(vec![index("i", &[K], Some(T), retention)], 0);
        clock.set_ms(100);
        let rows = (0..)
            .zip(rows)
            .map(|(v, (k, t))| datums((Some(i32::try_from(*k).unwrap()), Some(*t), v)));
        table.append(rows).unwrap().expired
    };
    let old_and_young = [(1, 90), (1, 10), (2, 51), (2, 50)];
    assert_eq!(expired(Retention::Forever, &old_and_young), 0);
    assert_eq!(expired(Retention::Absolute { ttl_ms: 50 }, &old_and_young), 2);
    assert_eq!(expired(Retention::Latest { latest: 1 }, &old_and_young), 2);
    assert_eq!(expired(Retention::Latest { latest: 2 }, &old_and_young), 0);
    assert_eq!(expired(Retention::AbsAndLat { ttl_ms: 50, latest: 1 }, &old_and_young), 2);
    assert_eq!(expired(Retention::Latest { latest: 1 }, &[(1, 1), (1, 2), (1, 3)]), 0);
    assert_eq!(expired(Retention::AbsOrLat { ttl_ms: 50, latest: 1 }, &old_and_young), 2);
}

/// A call that is to end removes nothing and builds nothing, and the table is as it was.
#[test]
fn a_change_that_is_interrupted_has_changed_nothing() {
    let table = Arc::new(table(vec![], 0).0);
    table.append((0..10_000).map(|v| [Datum::Int(1), Datum::Null, Datum::BigInt(v)])).unwrap();
    let spec = index("declared", &[K], None, Retention::Forever);
    let need = IndexNeed { keys: vec![K], ..IndexNeed::default() };
    let context = QueryContext::new();
    context.cancel();
    context.run(|| {
        let interrupted = TableError::Interrupted(Interrupt::Cancelled);
        assert_eq!(table.delete(|_| true), Err(interrupted.clone()));
        assert_eq!(table.add_declared_index(spec.clone()), Err(interrupted.clone()));
        assert_eq!(table.hold(&need, "d").map(|hold| hold.index()), Err(interrupted));
        assert!(!context.has_committed());
    });
    assert_eq!(table.row_count(), 10_000);
    assert_eq!(table.schema().indexes.iter().filter(|index| index.declared).count(), 0);
    // Nothing is in the way of the next call.
    let context = QueryContext::new();
    context.run(|| assert_eq!(table.add_declared_index(spec), Ok(0)));
    assert!(context.has_committed());
    assert_eq!(table.delete(|row| row.get(V).as_i64() < Some(100)), Ok(100));
}

#[test]
fn aligned_snapshots_show_what_was_acknowledged_before() {
    const ROWS: i64 = if cfg!(miri) { 20 } else { 3_000 };
    let tables = [(); 2].map(|()| Arc::new(table(vec![], 0).0));
    let written = tables.clone();
    let writing = lockstep_host::spawn("writer", move || {
        for v in 0..ROWS {
            // A row of the second table is always behind one of the first.
            for table in &written {
                table.append([row(v)]).unwrap();
            }
        }
    });
    let mut seen = 0;
    while seen < ROWS {
        let mut snapshots = [tables[0].snapshot(), tables[1].snapshot()];
        Snapshot::align(&mut snapshots);
        let [first, second] =
            snapshots.each_ref().map(|snapshot| snapshot.scan().map_rows(|_| ()).count());
        assert!(first == second || first == second + 1, "{first} rows and {second}");
        assert_eq!(snapshots[0].now_ms(), snapshots[1].now_ms());
        seen = i64::try_from(second).unwrap();
    }
    writing.unwrap().join().unwrap();
}

/// More rows than a sort of few elements takes, which is stable by chance.
#[test]
fn late_rows_of_one_time_are_in_order_of_arrival_in_an_index_without_keys() {
    let all = index("i", &[], Some(T), Retention::Forever);
    let (table, _clock) = table(vec![all, index("j", &[K], Some(T), Retention::Forever)], 0);
    table.append([datums((Some(1), Some(100), 0))]).unwrap();
    let late = |v: i64| datums((Some(i32::try_from(v % 3).unwrap()), Some(v % 2), v));
    table.append((1..200).map(late)).unwrap();
    let snapshot = table.snapshot();
    let mut expected: Vec<usize> = (1..200).collect();
    expected.sort_by_key(|v| std::cmp::Reverse((v % 2, *v)));
    expected.insert(0, 0);
    assert_eq!(numbers(snapshot.rows(0, &[])), expected);
    let of_one: Vec<usize> = expected.into_iter().filter(|v| v % 3 == 1 || *v == 0).collect();
    assert_eq!(numbers(snapshot.rows(1, &key(&[Datum::Int(1)]))), of_one);
}

#[test]
fn writes_to_a_disk_table_wait_for_a_flush_when_many_rows_have_come() {
    let by_key = index("i", &[K], Some(T), Retention::Forever);
    let (table, budget, _clock) = budgeted(vec![by_key], 0);
    let flushes = Arc::new(AtomicU64::new(0));
    let (flushing, can_flush) = (Arc::clone(&flushes), Arc::new(AtomicBool::new(true)));
    let can = Arc::clone(&can_flush);
    budget.flush_with(move |_| {
        flushing.fetch_add(1, Ordering::Relaxed);
        can.load(Ordering::Relaxed)
    });
    budget.set_unfrozen_max(1_000);
    let append = |batches: i64| {
        let before = flushes.load(Ordering::Relaxed);
        for _ in 0..batches {
            table.append(rows(0..5)).unwrap();
        }
        flushes.load(Ordering::Relaxed) - before
    };
    let _directory = directory_of(&table);
    assert_eq!(append(50), 0, "rows of a memory table stay there");
    table.move_to_disk().unwrap();
    let waited = append(50);
    assert!(waited > 10, "{waited}");
    // Nobody freezes the rows here, so that each write waits; when none can be flushed, few do.
    can_flush.store(false, Ordering::Relaxed);
    let waited = append(50);
    assert!((1..10).contains(&waited), "{waited}");
}
