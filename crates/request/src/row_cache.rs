//! A cache of the rows of a source that were computed during one answer.
//!
//! Where the rows of a source have windows of their own, computing one row scans other rows. A row
//! is in the frames of many others, so without the cache the work of a request would grow by the
//! length of a frame with each window over a window. [`crate::source`] looks here first. The table
//! is allocated in the arena of the answer and is freed with it.

use std::cell::Cell;

use lockstep_row::Arena;

use crate::row_context::RowContext;

/// A row that was computed.
#[derive(Clone, Copy)]
struct CachedRow<'s> {
    arrival: u64,
    /// What the chain gave; `None` when a step dropped the row.
    row: Option<RowContext<'s, 's>>,
}

/// A bucket of the hash table.
type Bucket<'s> = Cell<Option<CachedRow<'s>>>;

/// The computed rows of a source by arrival: a hash table with open addressing, never more than
/// half full.
#[derive(Default)]
pub(crate) struct RowCache<'s> {
    buckets: Cell<&'s [Bucket<'s>]>,
    count: Cell<usize>,
}

/// How many buckets a table has when it gets its first row. A power of two.
const BUCKETS_MIN: usize = 16;

const _: () = assert!(BUCKETS_MIN.is_power_of_two());

impl<'s> RowCache<'s> {
    /// Returns what the chain gave for the row of this arrival; `None` when it was not computed yet.
    pub(crate) fn get(&self, arrival: u64) -> Option<Option<RowContext<'s, 's>>> {
        let buckets = self.buckets.get();
        if buckets.is_empty() {
            return None;
        }
        Some(bucket_of(buckets, arrival).get()?.row)
    }

    /// Inserts a row that is not in the table.
    pub(crate) fn insert(&self, arrival: u64, row: Option<RowContext<'s, 's>>, arena: &'s Arena) {
        let old = self.buckets.get();
        if (self.count.get() + 1) * 2 > old.len() {
            let length = BUCKETS_MIN.max(old.len() * 2);
            let new: &[Bucket<'s>] = arena.alloc_slice_fill_with(length, |_| Cell::new(None));
            for cached in old.iter().filter_map(Cell::get) {
                bucket_of(new, cached.arrival).set(Some(cached));
            }
            self.buckets.set(new);
        }
        let bucket = bucket_of(self.buckets.get(), arrival);
        debug_assert!(bucket.get().is_none(), "a row is computed once for an answer");
        bucket.set(Some(CachedRow { arrival, row }));
        self.count.set(self.count.get() + 1);
        debug_assert!(self.count.get() * 2 <= self.buckets.get().len(), "at most half full");
    }
}

/// Finds the bucket of an arrival, or the free one where it belongs. There is always a free one.
fn bucket_of<'e, 's>(buckets: &'e [Bucket<'s>], arrival: u64) -> &'e Bucket<'s> {
    debug_assert!(buckets.len().is_power_of_two(), "the mask selects among all buckets");
    let mask = buckets.len() - 1;
    // Rows of a key arrive at regular distances: the multiplication spreads them.
    let hash = arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut at = usize::try_from(hash).unwrap_or_default() & mask;
    while buckets[at].get().is_some_and(|cached| cached.arrival != arrival) {
        at = (at + 1) & mask;
    }
    &buckets[at]
}

#[cfg(test)]
mod tests {
    use lockstep_row::{Arena, Datum};

    use super::RowCache;
    use crate::row_context::{LeafRow, RowContext};

    #[test]
    fn rows_are_found_by_their_arrival() {
        let arena = Arena::new();
        let cache = RowCache::default();
        for arrival in (0..1_000_u64).map(|row| row * 4_096) {
            assert!(cache.get(arrival).is_none(), "{arrival}");
            let values: &[_] = arena.alloc_slice_fill_copy(1, Datum::Timestamp(1));
            let row = RowContext { leaf: LeafRow::Values(values), slots: &[] };
            cache.insert(arrival, (arrival % 3 == 0).then_some(row), &arena);
        }
        for arrival in (0..1_000_u64).map(|row| row * 4_096) {
            let row = cache.get(arrival).expect("it was inserted");
            assert_eq!(row.is_some(), arrival % 3 == 0, "{arrival}");
        }
        assert!(cache.get(1).is_none());
    }
}
