//! Removing rows of an entry, and moving those whose row is stored elsewhere from now on: the
//! chunks that change are copied.
//!
//! Under the shard's lock. See rule 5 of the crate's protocol.

use super::{
    EntryRef, EntryRows, WriteContext, layout::directory_head, retire_chunk, retire_directory,
    signed,
};
use crate::{
    chunk::{ChunkBuilder, ChunkSpec},
    directory::Directory,
    row_ref::RowRef,
};

/// The action that [`crate::Series::retain`] takes on a row.
#[derive(Debug, Clone, Copy)]
pub enum RowAction<'m> {
    /// Leaves it as it is.
    Keep,
    /// Removes it.
    Remove,
    /// Leads to an equal row, which is stored elsewhere.
    Move(RowRef<'m>),
}

/// The outcome of retaining rows of a key.
pub(crate) struct Retained<'a> {
    /// How many rows were removed.
    pub(crate) removed: usize,
    pub(crate) remaining: Remaining<'a>,
}

/// What remains of a key.
pub(crate) enum Remaining<'a> {
    /// The entry, which takes so many bytes more (or less).
    Grown(i64),
    /// This row, with its event time. The entry was not changed: another replaces it.
    One(i64, RowRef<'a>),
    /// No row. The entry was not changed: it is removed as a whole.
    Nothing,
}

/// A chunk of which some rows are removed or moved.
struct ChangedChunk<'a> {
    /// The rows that remain.
    builder: ChunkBuilder<'a>,
    /// An upper bound of their arrivals.
    arrival_max: u64,
}

impl<'a> EntryRef<'a> {
    /// Asks for the action on each row, newest first, and takes it.
    pub(crate) fn retain<'m>(
        self,
        action: &mut dyn FnMut(i64, RowRef<'_>) -> RowAction<'m>,
        context: WriteContext<'_>,
    ) -> Retained<'m>
    where
        'a: 'm,
    {
        let rows = self.rows();
        let chunk_count = rows.chunk_count();
        let mut changed: Vec<Option<ChangedChunk<'m>>> = Vec::with_capacity(chunk_count);
        let (mut removed, mut left, mut last) = (0, 0, None);
        for at in (0..chunk_count).rev() {
            let view = rows.view(at);
            let mut is_changed = false;
            // Newest first.
            let mut kept: Vec<(usize, RowRef<'m>)> = Vec::with_capacity(view.len());
            for slot in (0..view.len()).rev() {
                let (event_time, row): (i64, RowRef<'m>) = (view.event_time(slot), view.row(slot));
                match action(event_time, row) {
                    RowAction::Keep => kept.push((slot, row)),
                    RowAction::Move(row) => {
                        is_changed = true;
                        kept.push((slot, row));
                    }
                    RowAction::Remove => {
                        is_changed = true;
                        removed += 1;
                    }
                }
            }
            left += kept.len();
            last = kept.first().map(|(slot, row)| (view.event_time(*slot), *row)).or(last);
            changed.push(is_changed.then(|| {
                let mut builder = ChunkBuilder::default();
                let slots = view.slots();
                kept.iter().rev().for_each(|(slot, row)| builder.push_slot(&slots, *slot, *row));
                ChangedChunk { builder, arrival_max: view.arrival_max() }
            }));
        }
        if changed.iter().all(Option::is_none) {
            debug_assert_eq!(removed, 0, "a chunk that loses a row changes");
            return Retained { removed, remaining: Remaining::Grown(0) };
        }
        let remaining = match (left, last) {
            (1, Some((event_time, row))) => Remaining::One(event_time, row),
            (0, _) => Remaining::Nothing,
            _ => {
                changed.reverse();
                Remaining::Grown(self.replace_changed(&rows, changed, context))
            }
        };
        Retained { removed, remaining }
    }

    /// Replaces the chunks that changed; at least two rows remain. Returns how many bytes more (or
    /// less) the entry takes.
    fn replace_changed(
        self,
        rows: &EntryRows<'_>,
        changed: Vec<Option<ChangedChunk<'_>>>,
        WriteContext { format, retiring }: WriteContext<'_>,
    ) -> i64 {
        let before = self.memory_bytes();
        let mut chunks = Vec::with_capacity(changed.len());
        let mut replaced = Vec::new();
        for (at, changed) in changed.into_iter().enumerate() {
            let old = rows.raw_chunk(at);
            match changed {
                None => chunks.extend(old),
                Some(ChangedChunk { builder, arrival_max }) => {
                    replaced.extend(old);
                    if !builder.is_empty() {
                        let spec = ChunkSpec { capacity_min: builder.len(), arrival_max };
                        chunks.push(builder.build(spec, format));
                    }
                }
            }
        }
        assert!(!chunks.is_empty(), "two rows remain at least");
        let head = match chunks.as_slice() {
            [only] => (*only).cast::<u8>(),
            several => directory_head(Directory::make(several, several.len())),
        };
        let old = self.replace_head(head);
        for chunk in replaced {
            // SAFETY: no head and no linked directory leads to it any more.
            let _bytes = unsafe { retire_chunk(chunk, retiring) };
        }
        if let EntryRows::Directory(_) = *rows {
            // SAFETY: it was a directory that the head led to until just now.
            unsafe { retire_directory(old, retiring) };
        }
        signed(self.memory_bytes()) - signed(before)
    }
}
