//! An append that panics between two indexes is in none.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use lockstep_row::{Datum, Retention};

use super::{K, T, V, datums, index, key, reclaim, rows, scanned, table};
use crate::{TableError, tests::budgeted};

thread_local! {
    /// Before the rows of the next append go into this index, it panics.
    static PANICS_BEFORE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Makes the next append of this thread panic before this index.
pub(super) fn panic_before(index: usize) {
    PANICS_BEFORE.set(Some(index));
}

/// Panics when a test has requested it.
pub(crate) fn before_index(index: usize) {
    if PANICS_BEFORE.get() == Some(index) {
        PANICS_BEFORE.set(None);
        resume_unwind(Box::new("on purpose"));
    }
}

fn check(panics_before: usize) {
    let indexes = vec![
        index("i", &[K], Some(T), Retention::Forever),
        index("j", &[V], Some(T), Retention::Forever),
    ];
    let (table, budget, _clock) = budgeted(indexes, 0);
    table.append(rows(0..100)).unwrap();
    PANICS_BEFORE.set(Some(panics_before));
    let appended = catch_unwind(AssertUnwindSafe(|| table.append(rows(100..200))));
    assert!(appended.is_err());
    let shows_as_before = || {
        let snapshot = table.snapshot();
        let by_key = |index: usize, at: i32| {
            let key = key(&[if index == 0 { Datum::Int(1) } else { Datum::BigInt(at.into()) }]);
            snapshot.rows(index, &key).count()
        };
        assert_eq!(scanned(snapshot.scan()).len(), 100);
        assert_eq!((by_key(0, 1), by_key(1, 99), by_key(1, 100)), (100, 1, 0));
    };
    shows_as_before();
    assert_eq!(table.append(rows(200..300)), Err(TableError::Damaged));
    assert_eq!(table.append_timed(rows(200..300)), Err(TableError::Damaged));
    shows_as_before();
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
    table.truncate().unwrap();
    assert_eq!(table.append(rows(200..300)).unwrap().rows, 100);
    assert_eq!(scanned(table.snapshot().scan()).len(), 100);
    reclaim();
    assert_eq!(budget.memory_use().used, table.memory_bytes());
}

#[test]
fn an_append_that_panics_between_two_indexes_is_in_none() {
    check(0);
    check(1);
}

#[test]
fn appends_that_wait_for_one_that_panics_are_refused() {
    let (table, _clock) = table(vec![index("i", &[K], Some(T), Retention::Forever)], 0);
    let table = Arc::new(table);
    let appending = |panics: bool| {
        let table = Arc::clone(&table);
        lockstep_host::spawn("appending", move || {
            (0..1_000).all(|at| {
                if panics && at == 500 {
                    PANICS_BEFORE.set(Some(0));
                }
                let rows = [datums((Some(1), Some(at), at))];
                matches!(catch_unwind(AssertUnwindSafe(|| table.append(rows))), Ok(Ok(_)))
            })
        })
    };
    let threads = [true, false, false].map(|panics| appending(panics).unwrap());
    let ended = threads.map(|thread| thread.join().unwrap());
    assert!(!ended[0]);
    // The others have ended before, or were refused; nobody waits for ever.
    assert_eq!(table.append(rows(0..1)), Err(TableError::Damaged));
}
