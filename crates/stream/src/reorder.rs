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

/// The lateness is divided into about so many buckets. All rows of a bucket are sorted at once, and wait for that: with
/// 200,000 rows per second and a lateness of ten seconds a bucket has 8,000.
const BUCKETS: i64 = 256;

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
    pub(crate) rank: u16,
    /// Its arrival.
    pub(crate) arrival: u64,
    /// Its source.
    pub(crate) source: u16,
    /// The partition of its key.
    pub(crate) partition: u16,
    /// Whether the windows of a main row are computed here; otherwise it is a candidate alone.
    pub(crate) is_computed: bool,
    /// Where its columns begin among the values beside it.
    pub(crate) start: u32,
}

/// Rows that were not settled, with their columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnsettledRows {
    pub(crate) entries: Vec<UnsettledRow>,
    /// The columns of all rows, one row after the other.
    pub(crate) values: Vec<Value>,
}

impl ReorderBuffer {
    /// Makes a buffer for rows with so many columns, by their sources.
    pub(crate) fn new(widths: Box<[usize]>, lateness_ms: i64) -> Self {
        let bucket_ms = (lateness_ms / BUCKETS).max(1);
        Self { widths, bucket_ms, buckets: BTreeMap::new(), rows: 0, taken: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: UnsettledRow, values: impl Iterator<Item = Value>) {
        let bucket = self.buckets.entry(row.time.div_euclid(self.bucket_ms)).or_default();
        let start = place_of_next(&bucket.values);
        bucket.values.extend(values);
        let width = self.widths[usize::from(row.source)];
        debug_assert_eq!(bucket.values.len(), start as usize + width, "rows are whole");
        bucket.push(UnsettledRow { start, ..row });
        self.rows += 1;
    }

    /// Adds some rows.
    pub(crate) fn extend(&mut self, rows: UnsettledRows) {
        let UnsettledRows { entries, mut values } = rows;
        for row in entries {
            let width = self.widths[usize::from(row.source)];
            let values = &mut values[row.start as usize..][..width];
            self.push(row, values.iter_mut().map(std::mem::take));
        }
    }

    /// Returns copies of those rows of a partition that are chosen.
    pub(crate) fn rows_of(
        &self,
        partition: u16,
        is_chosen: impl Fn(&UnsettledRow) -> bool,
    ) -> UnsettledRows {
        let mut rows = UnsettledRows::default();
        for bucket in self.buckets.values() {
            let waiting = bucket.waiting().filter(|row| row.partition == partition);
            for row in waiting.filter(|row| is_chosen(row)) {
                let width = self.widths[usize::from(row.source)];
                rows.push(*row, bucket.values[row.start as usize..][..width].iter().cloned());
            }
        }
        rows
    }

    /// Drops the rows of a partition.
    pub(crate) fn forget(&mut self, partition: u16) {
        for bucket in self.buckets.values_mut() {
            let before = bucket.waiting().count();
            bucket.entries.drain(..bucket.settled);
            bucket.settled = 0;
            bucket.entries.retain(|row| row.partition != partition);
            bucket.stragglers.retain(|Reverse(row)| row.partition != partition);
            self.rows -= before - bucket.waiting().count();
        }
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

impl UnsettledRows {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: UnsettledRow, values: impl Iterator<Item = Value>) {
        let start = place_of_next(&self.values);
        self.values.extend(values);
        self.entries.push(UnsettledRow { start, ..row });
    }
}

/// Returns where the columns of the next row begin.
pub(crate) fn place_of_next(values: &[Value]) -> u32 {
    u32::try_from(values.len()).expect("fewer than 2^32 values lie together")
}

impl TimeBucket {
    fn push(&mut self, row: UnsettledRow) {
        if self.is_sorted && !bug::is_seeded(StreamBug::StragglersLast) {
            self.stragglers.push(Reverse(row));
        } else {
            self.entries.push(row);
        }
    }

    /// Returns the rows that wait, in no order.
    fn waiting(&self) -> impl Iterator<Item = &UnsettledRow> {
        let stragglers = self.stragglers.iter().map(|Reverse(row)| row);
        self.entries[self.settled..].iter().chain(stragglers)
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
