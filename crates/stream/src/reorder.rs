//! The reorder buffer: rows that wait for the watermark to pass their event time.
//!
//! Rows lie in buckets by event time, each as they arrived. A bucket is sorted when the watermark reaches it; rows
//! that arrive in it later are sorted with what is left of it. So a row costs the same whatever the lateness is.

use std::collections::BTreeMap;

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
    /// The number of columns of a row.
    width: usize,
    bucket_ms: i64,
    buckets: BTreeMap<i64, TimeBucket>,
    rows: usize,
}

/// Rows of nearly the same time.
#[derive(Debug, Default)]
struct TimeBucket {
    /// Those before `settled` are settled; those up to `sorted` are in order.
    entries: Vec<UnsettledRow>,
    settled: usize,
    sorted: usize,
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
    /// Which of the bucket's rows it is.
    row: u32,
}

impl ReorderBuffer {
    /// Makes a buffer for rows with so many columns.
    pub(crate) fn new(width: usize, lateness_ms: i64) -> Self {
        let bucket_ms = (lateness_ms / BUCKETS).max(1);
        Self { width, bucket_ms, buckets: BTreeMap::new(), rows: 0 }
    }

    /// Adds a row.
    pub(crate) fn push(
        &mut self,
        (time, rank, (source, arrival)): (i64, u32, (usize, u64)),
        values: impl Iterator<Item = Value>,
    ) {
        let bucket = self.buckets.entry(time.div_euclid(self.bucket_ms)).or_default();
        let source = u32::try_from(source).expect("a query has fewer than 2^32 sources");
        let row = u32::try_from(bucket.entries.len()).expect("a bucket has fewer than 2^32 rows");
        bucket.entries.push(UnsettledRow { time, rank, arrival, source, row });
        bucket.values.extend(values);
        debug_assert_eq!(bucket.values.len(), bucket.entries.len() * self.width, "rows are whole");
        self.rows += 1;
    }

    /// Takes the next rows that were passed, all of one time; `None` if there are none.
    pub(crate) fn next(&mut self, passed: PassedTimes) -> Option<SettledRows<'_>> {
        let number = loop {
            let mut first = self.buckets.first_entry()?;
            let bucket = first.get_mut();
            if bucket.settled < bucket.entries.len() {
                break *first.key();
            }
            first.remove();
        };
        if !passed.includes(number.saturating_mul(self.bucket_ms)) {
            return None;
        }
        let bucket = self.buckets.get_mut(&number)?;
        bucket.sort();
        let first = bucket.entries[bucket.settled];
        if !passed.includes(first.time) {
            return None;
        }
        let start = bucket.settled;
        let same = bucket.entries[start..].iter().take_while(|entry| entry.time == first.time);
        let end = start + same.count();
        bucket.settled = end;
        self.rows -= end - start;
        let TimeBucket { entries, values, .. } = bucket;
        Some(SettledRows { entries: &entries[start..end], values, width: self.width })
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

impl TimeBucket {
    /// Puts the rows that are not settled in order.
    fn sort(&mut self) {
        if self.sorted == self.entries.len() {
            return;
        }
        let from = match bug::is_seeded(StreamBug::StragglersLast) {
            true => self.sorted,
            false => self.settled,
        };
        // Where some of them are in order, this is one run to merge with.
        self.entries[from..].sort();
        self.sorted = self.entries.len();
    }
}

/// Rows of one time, in the order of settlement.
#[derive(Debug)]
pub(crate) struct SettledRows<'b> {
    /// The rows.
    pub(crate) entries: &'b [UnsettledRow],
    values: &'b [Value],
    width: usize,
}

impl SettledRows<'_> {
    /// Returns the columns of the row at a position.
    pub(crate) fn columns(&self, at: usize) -> &[Value] {
        let start = self.entries[at].row as usize * self.width;
        &self.values[start..start + self.width]
    }
}
