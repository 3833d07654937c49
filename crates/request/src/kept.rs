//! The rows of a source that were computed for an answer, each once.
//!
//! Where the rows of a source have windows of their own, computing one is a walk through other rows.
//! A row is in the frames of many others, so without this the work of a request grows by the length
//! of a frame with each window over a window. [`crate::source`] asks here first. The table lies in
//! the arena of the answer, and goes with it.

use std::cell::Cell;

use lockstep_row::Arena;

use crate::frame::Frame;

/// A row that was computed: its arrival, and what came out of the chain.
type Entry<'s> = Option<(u64, Option<Frame<'s, 's>>)>;

/// Rows by arrival: open addressing, never more than half full.
#[derive(Default)]
pub(crate) struct KeptFrames<'s> {
    entries: Cell<&'s [Cell<Entry<'s>>]>,
    count: Cell<usize>,
}

/// The entries of a table when it gets its first row.
const ENTRIES_MIN: usize = 16;

impl<'s> KeptFrames<'s> {
    /// What came of the row that arrived then; `None` when it was not computed yet.
    pub(crate) fn get(&self, arrival: u64) -> Option<Option<Frame<'s, 's>>> {
        let entries = self.entries.get();
        if entries.is_empty() {
            return None;
        }
        let (_, frame) = entry_of(entries, arrival).get()?;
        Some(frame)
    }

    /// Keeps what came of a row that is not in the table.
    pub(crate) fn insert(&self, arrival: u64, frame: Option<Frame<'s, 's>>, arena: &'s Arena) {
        let old = self.entries.get();
        if (self.count.get() + 1) * 2 > old.len() {
            let length = ENTRIES_MIN.max(old.len() * 2);
            let new: &[Cell<Entry<'s>>] = arena.alloc_slice_fill_with(length, |_| Cell::new(None));
            for (arrival, frame) in old.iter().filter_map(Cell::get) {
                entry_of(new, arrival).set(Some((arrival, frame)));
            }
            self.entries.set(new);
        }
        entry_of(self.entries.get(), arrival).set(Some((arrival, frame)));
        self.count.set(self.count.get() + 1);
    }
}

/// The entry of an arrival, or the free one where it would be. There is always a free one.
fn entry_of<'e, 's>(entries: &'e [Cell<Entry<'s>>], arrival: u64) -> &'e Cell<Entry<'s>> {
    let mask = entries.len() - 1;
    // Rows of a key arrive at regular distances: the product spreads them.
    let hash = arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut at = usize::try_from(hash).unwrap_or_default() & mask;
    while entries[at].get().is_some_and(|(other, _)| other != arrival) {
        at = (at + 1) & mask;
    }
    &entries[at]
}

#[cfg(test)]
mod tests {
    use lockstep_row::{Arena, Datum};

    use super::KeptFrames;
    use crate::frame::{Frame, Leaf};

    #[test]
    fn rows_are_found_by_their_arrival() {
        let arena = Arena::new();
        let kept = KeptFrames::default();
        for arrival in (0..1_000_u64).map(|row| row * 4_096) {
            assert!(kept.get(arrival).is_none(), "{arrival}");
            let values: &[_] = arena.alloc_slice_fill_copy(1, Datum::Timestamp(1));
            let frame = Frame { leaf: Leaf::Values(values), slots: &[] };
            kept.insert(arrival, (arrival % 3 == 0).then_some(frame), &arena);
        }
        for arrival in (0..1_000_u64).map(|row| row * 4_096) {
            let frame = kept.get(arrival).expect("it was kept");
            assert_eq!(frame.is_some(), arrival % 3 == 0, "{arrival}");
        }
        assert!(kept.get(1).is_none());
    }
}
