//! A consistent view of a table.

use std::marker::PhantomData;

use lockstep_row::{RowView, TableSchema};

/// A stored row.
#[derive(Debug, Clone, Copy)]
pub struct StoredRow<'a> {
    /// Its event time in the index it was read through, NULL being `i64::MIN`; where there is
    /// no event-time column, and in [`Snapshot::scan`], the time of arrival in milliseconds.
    pub event_time: i64,
    /// The position in which it was accepted, unique within the engine.
    pub arrival: u64,
    /// Its columns.
    pub row: RowView<'a>,
}

/// The rows that were visible at one moment. Taking one costs a few nanoseconds and allocates
/// nothing; while it lives, removed rows are not freed, so do not keep it. It cannot be sent to
/// another thread.
#[derive(Debug)]
pub struct Snapshot<'t> {
    _table: PhantomData<&'t ()>,
    _not_send: PhantomData<*const ()>,
}

impl<'t> Snapshot<'t> {
    /// The moment of the snapshot in milliseconds since the epoch: what retention calls now.
    pub fn now_ms(&self) -> i64 {
        todo!()
    }

    /// Rows with a smaller arrival are visible.
    pub fn visible_arrival(&self) -> u64 {
        todo!()
    }

    /// The schema whose index positions [`Self::rows`] and [`Self::scan_index`] take.
    pub fn schema(&self) -> &TableSchema {
        todo!()
    }

    /// All live rows in order of arrival: those that at least one declared index keeps, or every
    /// row when the table has no declared index.
    pub fn scan(&self) -> Rows<'_> {
        todo!()
    }

    /// The rows visible through an index, in order of arrival: what the union of
    /// [`Self::rows`] over all keys shows.
    pub fn scan_index(&self, index: usize) -> Rows<'_> {
        let _ = index;
        todo!()
    }

    /// The rows of one entity key, newest first by (event time, arrival). The key's values are
    /// encoded with `row::key::encode_key` in the order of the index's `IndexSpec::keys`, which
    /// may differ from the order in which `ensure_index` was asked.
    pub fn rows(&self, index: usize, key: &[u8]) -> KeyRows<'_> {
        let _ = (index, key);
        todo!()
    }
}

/// Rows in order of arrival. See [`Snapshot::scan`].
#[derive(Debug)]
pub struct Rows<'s> {
    _snapshot: PhantomData<&'s ()>,
}

impl<'s> Iterator for Rows<'s> {
    type Item = StoredRow<'s>;

    fn next(&mut self) -> Option<StoredRow<'s>> {
        todo!()
    }
}

/// The rows of one entity key, newest first. See [`Snapshot::rows`].
#[derive(Debug)]
pub struct KeyRows<'s> {
    _snapshot: PhantomData<&'s ()>,
}

impl KeyRows<'_> {
    /// Skips the rows newer than `event_time_max`; never goes back. Binary search.
    pub fn seek(&mut self, event_time_max: i64) {
        let _ = event_time_max;
        todo!()
    }
}

impl<'s> Iterator for KeyRows<'s> {
    type Item = StoredRow<'s>;

    fn next(&mut self) -> Option<StoredRow<'s>> {
        todo!()
    }
}
