//! Rows that are held are those of the snapshot: however they are split, whatever conditions leave out, and whatever
//! happens to the table afterwards.

use std::ops::{ControlFlow, RangeInclusive};

use super::{Model, T, V};
use crate::{ColumnRange, HeldRows, ReadError, Snapshot};

/// Rows of a table that are held, and their numbers.
pub(super) struct SnapshotRows {
    held: HeldRows,
    expected: Vec<usize>,
}

impl SnapshotRows {
    /// Checks that what is held shows the rows with these numbers, split and left out in several ways.
    pub(super) fn of(
        snapshot: &Snapshot<'_>,
        kept_by: Option<usize>,
        expected: &[usize],
        model: &Model,
    ) -> Self {
        let held = snapshot.hold::<ReadError>(kept_by, &mut || Ok(())).unwrap();
        assert!(held.stored_row_count() >= u64::try_from(expected.len()).unwrap());
        for (bytes, times) in [(1, 0..=i64::MAX), (60, 10..=19), (1 << 20, 38..=50), (1, -9..=-1)] {
            let is_within = |at: &&usize| model.rows[**at].0.1.is_some_and(|t| times.contains(&t));
            let within: Vec<usize> = expected.iter().filter(is_within).copied().collect();
            assert_eq!(numbers(&held, bytes, Some(times.clone())), within, "{times:?}");
        }
        let kept = Self { held, expected: expected.to_vec() };
        kept.check();
        kept
    }

    /// Checks that the rows are what they were.
    pub(super) fn check(&self) {
        for bytes in [1, 100, u64::MAX] {
            assert_eq!(numbers(&self.held, bytes, None), self.expected);
        }
    }
}

/// Returns the numbers of the rows that have an event time of a range, read in parts of so many bytes.
fn numbers(held: &HeldRows, bytes: u64, times: Option<RangeInclusive<i64>>) -> Vec<usize> {
    let ranges = Vec::from_iter(times.map(|values| ColumnRange { column: T, values }));
    let mut numbers = Vec::new();
    for part in held.split(bytes, &ranges) {
        let visited = held.visit::<ReadError>(part, &ranges, |row| {
            numbers.push(usize::try_from(row.get(V).as_i64().unwrap()).unwrap());
            Ok(ControlFlow::Continue(()))
        });
        visited.unwrap();
    }
    numbers
}
