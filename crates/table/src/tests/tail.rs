//! Whoever follows a table reads each row once, in order of arrival, whatever is removed meanwhile.

use std::{sync::Arc, time::Duration};

use lockstep_row::Retention;

use super::{K, T, V, index, rows, steps::directory_of, table};
use crate::{Table, TableTail, TailError, TailOptions, TailSignal};

/// A tail of the tests' table, in which the arrival of a row is its number.
pub(super) struct FollowedRows {
    tail: TableTail,
    /// The number of the row that is read next.
    next: usize,
}

impl FollowedRows {
    /// Follows a table that has had so many rows.
    pub(super) fn begin(table: &Arc<Table>, rows: usize) -> Self {
        let options = TailOptions { from: None, limit_bytes: u64::MAX };
        Self { tail: table.tail(options, &TailSignal::new()), next: rows }
    }

    /// Reads so many rows of a table that has had `rows`, and compares them.
    pub(super) fn read(&mut self, rows_max: usize, rows: usize) {
        let expected: Vec<usize> = (self.next..rows).take(rows_max).collect();
        assert_eq!(read(&mut self.tail, rows_max).unwrap(), expected);
        self.next += expected.len();
        if self.next == rows {
            assert!(read(&mut self.tail, 1).unwrap().is_empty(), "all rows were read");
            assert_eq!(self.tail.held_bytes(), 0, "what was read is not kept");
        }
    }
}

/// Reads the numbers of rows.
fn read(tail: &mut TableTail, rows_max: usize) -> Result<Vec<usize>, TailError> {
    let mut numbers = Vec::new();
    let count = tail.read(rows_max, |found| {
        let number = found.row.get(V).as_i64().unwrap();
        assert_eq!(i64::try_from(found.arrival).unwrap(), number);
        numbers.push(usize::try_from(number).unwrap());
    })?;
    assert_eq!(count, numbers.len());
    Ok(numbers)
}

fn followed(limit_bytes: u64) -> (Arc<Table>, TableTail) {
    let by_key = index("i", &[K], Some(T), Retention::Latest { latest: 2 });
    let (table, _clock) = table(vec![by_key], 0);
    let table = Arc::new(table);
    let tail = table.tail(TailOptions { from: None, limit_bytes }, &TailSignal::new());
    (table, tail)
}

#[test]
fn a_tail_begins_where_it_is_told_to() {
    let (table, mut tail) = followed(u64::MAX);
    table.append(rows(0..5)).unwrap();
    let from = |from| {
        let options = TailOptions { from, limit_bytes: u64::MAX };
        read(&mut table.tail(options, &TailSignal::new()), 10).unwrap()
    };
    assert!(from(None).is_empty());
    assert_eq!(from(Some(3)), [3, 4]);
    assert_eq!(from(Some(0)), [0, 1, 2, 3, 4]);
    assert!(from(Some(9)).is_empty());
    assert_eq!(read(&mut tail, 2).unwrap(), [0, 1]);
    assert_eq!(tail.position(), 2);
    table.append(rows(5..6)).unwrap();
    assert_eq!(read(&mut tail, 10).unwrap(), [2, 3, 4, 5]);
}

#[test]
fn rows_are_read_up_to_an_arrival() {
    let (table, mut tail) = followed(u64::MAX);
    assert_eq!(table.arrived_before(), 0);
    table.append(rows(0..5)).unwrap();
    let end = table.arrived_before();
    assert_eq!(end, 5, "all rows are visible");
    table.append(rows(5..9)).unwrap();
    let mut numbers = Vec::new();
    let mut read_before = |end, rows_max| {
        let mut visit = |found: crate::TailRow<'_>| numbers.push(found.arrival);
        tail.read_before(end, rows_max, &mut visit).unwrap()
    };
    assert_eq!((read_before(end, 3), read_before(end, 3), read_before(end, 3)), (3, 2, 0));
    assert_eq!((read_before(2, 3), read_before(7, 3), read_before(u64::MAX, 9)), (0, 2, 2));
    assert_eq!(numbers, (0..9).collect::<Vec<_>>());
}

#[test]
fn rows_are_read_up_to_a_number_of_bytes() {
    let (table, mut tail) = followed(u64::MAX);
    table.append(rows(0..100)).unwrap();
    let mut bytes_of_rows = Vec::new();
    assert_eq!(tail.read_some(1, 1, |found| bytes_of_rows.push(found.row.byte_len())), Ok(1));
    let three = 3 * bytes_of_rows[0];
    let mut numbers = Vec::new();
    let mut read_some = |tail: &mut TableTail, rows_max, bytes_max| {
        tail.read_some(rows_max, bytes_max, |found| numbers.push(found.arrival)).unwrap()
    };
    assert_eq!(read_some(&mut tail, 10, three), 3);
    assert_eq!(read_some(&mut tail, 10, three + 1), 4, "the last one has the last byte");
    assert_eq!(read_some(&mut tail, 2, three), 2);
    // What was removed is read as well, and counts.
    table.truncate().unwrap();
    assert_eq!(read_some(&mut tail, 10, three), 3);
    assert_eq!(read_some(&mut tail, usize::MAX, usize::MAX), 87);
    assert_eq!(read_some(&mut tail, usize::MAX, usize::MAX), 0);
    assert_eq!(numbers, (1..100).collect::<Vec<_>>());
}

#[test]
fn rows_of_many_blocks_are_read_in_parts() {
    let (table, mut tail) = followed(u64::MAX);
    for first in (0..5_000).step_by(100) {
        table.append(rows(first..first + 100)).unwrap();
    }
    assert_eq!(read(&mut tail, 4_321).unwrap(), (0..4_321).collect::<Vec<_>>());
    assert_eq!(read(&mut tail, usize::MAX).unwrap(), (4_321..5_000).collect::<Vec<_>>());
}

#[test]
fn a_tail_reads_rows_that_were_removed_and_ends_with_its_table() {
    let (table, mut tail) = followed(u64::MAX);
    table.append(rows(0..1_000)).unwrap();
    table.truncate().unwrap();
    table.append(rows(1_000..1_010)).unwrap();
    assert!(tail.held_bytes() > 1_000 * 20, "{}", tail.held_bytes());
    assert_eq!(read(&mut tail, 10).unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(table.delete(|_| true), Ok(2));
    table.append(rows(1_010..1_011)).unwrap();
    table.close();
    assert!(!tail.is_ended());
    assert_eq!(read(&mut tail, usize::MAX).unwrap(), (10..1_011).collect::<Vec<_>>());
    assert!(tail.is_ended());
    assert!(read(&mut tail, usize::MAX).unwrap().is_empty());
}

#[test]
fn a_tail_that_would_keep_too_much_loses_its_place_and_goes_on() {
    let (table, mut tail) = followed(1_000);
    table.append(rows(0..1_000)).unwrap();
    assert_eq!(read(&mut tail, 10).unwrap().len(), 10);
    table.truncate().unwrap();
    assert_eq!(tail.held_bytes(), 0);
    table.append(rows(1_000..1_003)).unwrap();
    // A block is kept as long as it is being read.
    let error = read(&mut tail, usize::MAX).unwrap_err();
    let expected = TailError::Lost { arrivals: 10..1_000, limit_bytes: 1_000 };
    assert_eq!(error, expected);
    assert!(error.to_string().starts_with("rows with arrivals from 10 to 1000 were removed"));
    assert_eq!(read(&mut tail, usize::MAX).unwrap(), [1_000, 1_001, 1_002]);
    table.truncate().unwrap();
    assert!(read(&mut tail, usize::MAX).unwrap().is_empty(), "it had read them");
}

#[test]
fn a_tail_of_a_disk_table_reads_files_frozen_rows_and_memory() {
    let (table, mut tail) = followed(u64::MAX);
    let directory = directory_of(&table);
    table.move_to_disk().unwrap();
    let flush = || table.freeze().flush(&mut || directory.create_data_file()).unwrap();
    table.append(rows(0..10)).unwrap();
    table.install(&flush());
    table.append(rows(10..20)).unwrap();
    let frozen = flush();
    table.append(rows(20..30)).unwrap();
    assert_eq!(read(&mut tail, 15).unwrap(), (0..15).collect::<Vec<_>>());
    table.install(&frozen);
    assert_eq!(read(&mut tail, usize::MAX).unwrap(), (15..30).collect::<Vec<_>>());
}

#[test]
fn rows_that_become_visible_wake_who_waits_for_them() {
    let (table, tail) = followed(u64::MAX);
    let signal = TailSignal::new();
    let others = TailOptions { from: None, limit_bytes: u64::MAX };
    let (mut first, second) = (table.tail(others, &signal), table.tail(others, &signal));
    drop((tail, second));
    assert!(!signal.wait(Duration::ZERO), "no row has arrived");
    table.append(rows(0..3)).unwrap();
    assert!(signal.wait(Duration::ZERO), "the rows were visible before it waited");
    assert_eq!(read(&mut first, 10).unwrap(), [0, 1, 2]);
    let appending = Arc::clone(&table);
    let writer = lockstep_host::spawn("writer", move || {
        for number in 3..200 {
            appending.append(rows(number..number + 1)).unwrap();
        }
        appending.close();
    });
    let mut numbers = Vec::new();
    while !first.is_ended() {
        assert!(signal.wait(Duration::from_secs(60)), "it is woken");
        numbers.extend(read(&mut first, usize::MAX).unwrap());
    }
    writer.unwrap().join().unwrap();
    assert_eq!(numbers, (3..200).collect::<Vec<_>>());
}

#[test]
fn what_was_read_is_kept_until_it_is_released() {
    let (table, tail) = followed(u64::MAX);
    let mut tail = tail.keeping_read();
    table.append(rows(0..10)).unwrap();
    assert_eq!(read(&mut tail, 6).unwrap(), Vec::from_iter(0..6));
    tail.release(3);
    table.truncate().unwrap();
    assert!(tail.held_bytes() > 0, "those that were read, too");
    assert_eq!(read(&mut tail, 100).unwrap(), Vec::from_iter(6..10));
    table.append(rows(10..12)).unwrap();
    tail.rewind();
    assert_eq!(tail.position(), 3);
    assert_eq!(read(&mut tail, 100).unwrap(), Vec::from_iter(3..12));
    tail.release(tail.position());
    assert_eq!(tail.held_bytes(), 0);
    tail.rewind();
    assert!(read(&mut tail, 100).unwrap().is_empty());
}

#[test]
fn a_tail_that_goes_back_says_what_is_lost() {
    let (table, tail) = followed(1);
    let mut tail = tail.keeping_read();
    table.append(rows(0..10)).unwrap();
    assert_eq!(read(&mut tail, 6).unwrap(), Vec::from_iter(0..6));
    tail.release(2);
    table.truncate().unwrap();
    let lost = |arrivals| TailError::Lost { arrivals, limit_bytes: 1 };
    assert_eq!(read(&mut tail, 100).unwrap_err(), lost(6..10));
    tail.rewind();
    assert_eq!(read(&mut tail, 100).unwrap_err(), lost(2..10));
    table.append(rows(10..12)).unwrap();
    assert_eq!(read(&mut tail, 100).unwrap(), [10, 11]);
}
