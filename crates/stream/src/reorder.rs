//! The reorder buffer: rows that wait for the watermark to pass their event time.
//!
//! Rows lie in buckets by event time, each as they arrived. A bucket is sorted when the watermark reaches it; those
//! that arrive in it later, its *stragglers*, are in a heap beside the sorted ones. So a row costs the same whatever the
//! lateness is.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use lockstep_row::Value;

use crate::{
    bug::{self, StreamBug},
    watermark::PassedTimes,
};

/// The lateness is divided into about so many buckets.
const BUCKETS: i64 = 64;

/// Rows that are not settled.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    /// The number of columns of a row, by its source.
    widths: Box<[usize]>,
    bucket_ms: i64,
    buckets: BTreeMap<i64, TimeBucket>,
    rows: usize,
    /// The rows that were taken last.
    taken: Vec<UnsettledRow>,
}

/// Rows of nearly the same time.
#[derive(Debug, Default)]
struct TimeBucket {
    /// The rows but for stragglers, in order once the bucket is sorted. Those before `settled` are settled.
    entries: Vec<UnsettledRow>,
    settled: usize,
    is_sorted: bool,
    stragglers: BinaryHeap<Reverse<UnsettledRow>>,
    /// The columns of all rows, one row after the other.
    values: Vec<Value>,
}

/// A row that waits, in the order of settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnsettledRow {
    /// Its event time.
    pub(crate) time: i64,
    /// Which comes first at equal times.
    pub(crate) rank: u32,
    /// Its arrival.
    pub(crate) arrival: u64,
    /// Its source.
    pub(crate) source: u32,
    /// Where its columns begin among the values of its bucket.
    start: u32,
}

impl ReorderBuffer {
    /// Makes a buffer for rows with so many columns, by their sources.
    pub(crate) fn new(widths: Box<[usize]>, lateness_ms: i64) -> Self {
        let bucket_ms = (lateness_ms / BUCKETS).max(1);
        Self { widths, bucket_ms, buckets: BTreeMap::new(), rows: 0, taken: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn push(
        &mut self,
        (time, rank, (source, arrival)): (i64, u32, (usize, u64)),
        values: impl Iterator<Item = Value>,
    ) {
        let bucket = self.buckets.entry(time.div_euclid(self.bucket_ms)).or_default();
        let start = bucket.values.len();
        bucket.values.extend(values);
        debug_assert_eq!(bucket.values.len(), start + self.widths[source], "rows are whole");
        bucket.push(UnsettledRow::new(time, rank, (source, arrival), start));
        self.rows += 1;
    }

    /// Takes the next rows that were passed, all of one time; `None` if there are none.
    pub(crate) fn next(&mut self, passed: PassedTimes) -> Option<SettledRows<'_>> {
        while self.buckets.first_entry().is_some_and(|first| first.get().is_settled()) {
            self.buckets.pop_first();
        }
        let mut first = self.buckets.first_entry()?;
        if !passed.includes(first.key().saturating_mul(self.bucket_ms)) {
            return None;
        }
        self.taken.clear();
        let bucket = first.get_mut();
        while let Some(row) = bucket.first()
            && passed.includes(row.time)
            && self.taken.first().is_none_or(|taken| taken.time == row.time)
        {
            bucket.remove_first();
            self.taken.push(row);
        }
        if self.taken.is_empty() {
            return None;
        }
        self.rows -= self.taken.len();
        let values = &first.into_mut().values;
        Some(SettledRows { entries: &self.taken, values, widths: &self.widths })
    }

    /// Returns how many rows wait.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Returns about how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        let of_bucket = |bucket: &TimeBucket| {
            bucket.entries.capacity() * size_of::<UnsettledRow>()
                + bucket.values.capacity() * size_of::<Value>()
        };
        self.buckets.values().map(of_bucket).sum()
    }
}

impl UnsettledRow {
    /// Makes a row whose columns begin at a place.
    pub(crate) fn new(time: i64, rank: u32, (source, arrival): (usize, u64), start: usize) -> Self {
        let source = u32::try_from(source).expect("a query has fewer than 2^32 sources");
        let start = u32::try_from(start).expect("a bucket has fewer than 2^32 values");
        Self { time, rank, arrival, source, start }
    }
}

impl TimeBucket {
    fn push(&mut self, row: UnsettledRow) {
        if self.is_sorted && !bug::is_seeded(StreamBug::StragglersLast) {
            self.stragglers.push(Reverse(row));
        } else {
            self.entries.push(row);
        }
    }

    /// Returns whether it has no row that waits.
    fn is_settled(&self) -> bool {
        self.settled == self.entries.len() && self.stragglers.is_empty()
    }

    /// Returns the first of the rows that wait.
    fn first(&mut self) -> Option<UnsettledRow> {
        if !self.is_sorted {
            self.entries.sort_unstable();
            self.is_sorted = true;
        }
        let sorted = self.entries.get(self.settled).copied();
        let straggler = self.stragglers.peek().map(|Reverse(row)| *row);
        match (sorted, straggler) {
            (Some(sorted), Some(straggler)) => Some(sorted.min(straggler)),
            (sorted, straggler) => sorted.or(straggler),
        }
    }

    /// Removes the first of the rows that wait.
    fn remove_first(&mut self) {
        let sorted = self.entries.get(self.settled);
        let straggler = self.stragglers.peek().map(|Reverse(row)| row);
        if straggler.is_some_and(|straggler| sorted.is_none_or(|sorted| straggler < sorted)) {
            self.stragglers.pop();
        } else {
            self.settled += 1;
        }
    }
}

/// Rows of one time, in the order of settlement.
#[derive(Debug)]
pub(crate) struct SettledRows<'b> {
    /// The rows.
    pub(crate) entries: &'b [UnsettledRow],
    /// The columns of all rows.
    pub(crate) values: &'b [Value],
    /// The number of columns of a row, by its source.
    pub(crate) widths: &'b [usize],
}

impl SettledRows<'_> {
    /// Returns the columns of the row at a position.
    pub(crate) fn columns(&self, at: usize) -> &[Value] {
        let UnsettledRow { source, start, .. } = self.entries[at];
        &self.values[start as usize..][..self.widths[source as usize]]
    }
}
