//! Inserting rows into an entry: the newest row is appended in place, late rows are merged into
//! copies of the chunks to which they belong.
//!
//! Under the shard's lock. See rules 3 and 4 of the crate's protocol.

use super::{
    EntryRef, EntryRows, KeyEntry, WriteContext, chunk_at,
    layout::{directory_head, first_capacity, grown_capacity, next_capacity},
    retire_chunk, retire_directory, signed,
};
use crate::{
    chunk::{Chunk, ChunkBuilder, ChunkHeader, ChunkSpec, ChunkView, KeyRow},
    directory::{Directory, Replacement, directory_capacity},
    guard::Retiring,
    record::RecordFormat,
    sync::{LATE_ROWS_MAX, Ordering, chunk_rows},
};

/// A chunk that would have too many rows is split into chunks of about so many.
const SPLIT_ROWS: usize = LATE_ROWS_MAX - LATE_ROWS_MAX / 4;

/// The outcome of inserting rows.
pub(crate) enum Inserted {
    /// The entry takes so many bytes more (or less).
    Grown(i64),
    /// A new entry, which is to replace the present one.
    Replaced(*mut KeyEntry),
    /// The row is late, and nothing was changed: [`EntryRef::insert_late`] inserts it.
    Late,
}

/// Late rows that belong to one chunk.
struct LateGroup {
    /// The chunk's position among those of the key.
    chunk: usize,
    /// Where its rows end among the late ones; they begin where those of the group before end.
    end: usize,
}

/// How late rows and those of their chunk are distributed over new chunks.
#[derive(Clone, Copy)]
struct SplitSpec {
    /// The most rows of one chunk.
    rows_max: usize,
    /// The number of rows for which the newest chunk has space at least.
    newest_capacity_min: usize,
    /// An upper bound of the rows' arrivals.
    arrival_max: u64,
}

/// Where a pointer to a chunk is stored.
#[derive(Clone, Copy)]
enum ChunkPosition<'a> {
    /// In the entry's head.
    Head,
    /// In a directory, at this position.
    Directory(&'a Directory<ChunkHeader>, usize),
}

impl<'a> EntryRef<'a> {
    /// Inserts a row that is not older than any other of the key, or into a key of one row.
    pub(crate) fn insert_newest(self, row: KeyRow<'_>, context: WriteContext<'_>) -> Inserted {
        let (position, newest) = match self.rows() {
            EntryRows::Single(single) => {
                return Inserted::Replaced(self.make_first_chunk(&single, &[row], context.format));
            }
            EntryRows::Chunk(chunk) => (ChunkPosition::Head, chunk),
            EntryRows::Directory(directory) => {
                let last = directory.len() - 1;
                (ChunkPosition::Directory(directory, last), chunk_at(directory, last))
            }
        };
        let view = newest.view();
        if !view.is_at_or_before_row(view.len() - 1, &row) {
            return Inserted::Late;
        }
        if newest.append(row, context.format) {
            return Inserted::Grown(0);
        }
        Inserted::Grown(self.grow_newest(position, newest, row, context))
    }

    /// Inserts rows in order of event time and arrival, wherever they belong; each chunk that
    /// receives some is copied once.
    pub(crate) fn insert_late(self, run: &[KeyRow<'_>], context: WriteContext<'_>) -> Inserted {
        let rows = self.rows();
        if let EntryRows::Single(single) = rows {
            return Inserted::Replaced(self.make_first_chunk(&single, run, context.format));
        }
        let count = rows.chunk_count();
        let groups = late_groups(&rows, run);
        debug_assert!(groups.last().is_none_or(|group| group.end == run.len()), "all are grouped");
        let mut made = Vec::with_capacity(groups.len());
        let mut builder = ChunkBuilder::default();
        let mut start = 0;
        for LateGroup { chunk: at, end } in groups {
            let chunk = rows.expect_chunk(at);
            let (late, is_newest) = (&run[start..end], at + 1 == count);
            builder.clear();
            merge(chunk, late, &mut builder);
            debug_assert_eq!(builder.len(), chunk.view().len() + late.len());
            let (rows_max, newest_capacity_min) = if is_newest {
                (chunk_rows(), chunk.view().capacity())
            } else {
                (LATE_ROWS_MAX.min(chunk_rows()), 0)
            };
            let arrival_max = arrival_max(chunk.view().arrival_max(), late);
            let spec = SplitSpec { rows_max, newest_capacity_min, arrival_max };
            make_chunks(&mut builder, spec, context.format, |chunk| {
                made.push(Replacement { at, pointer: chunk });
            });
            start = end;
        }
        Inserted::Grown(self.replace_chunks(&rows, &made, context.retiring))
    }

    /// Makes an entry of this single's row, which has no record yet, and others in order.
    fn make_first_chunk(
        self,
        single: &ChunkView<'_>,
        run: &[KeyRow<'_>],
        format: Option<&RecordFormat>,
    ) -> *mut KeyEntry {
        let first = KeyRow { event_time: single.event_time(0), row: single.row(0) };
        let older = run.partition_point(|row| row.position() < first.position());
        let mut builder = ChunkBuilder::default();
        run[..older].iter().for_each(|row| builder.push(*row));
        builder.push(first);
        run[older..].iter().for_each(|row| builder.push(*row));
        let arrival_max = arrival_max(first.row.arrival(), run);
        let rows_max = chunk_rows();
        let newest_capacity_min =
            if builder.len() > rows_max { rows_max } else { first_capacity() };
        let spec = SplitSpec { rows_max, newest_capacity_min, arrival_max };
        let mut chunks = Vec::with_capacity(1);
        make_chunks(&mut builder, spec, format, |chunk| chunks.push(chunk));
        let head = match chunks.as_slice() {
            [only] => (*only).cast::<u8>(),
            several => directory_head(Directory::make(several, directory_capacity(several.len()))),
        };
        Self::make_several(self.key(), head)
    }

    /// Stores a row that is newer than every other and does not fit the newest chunk. Returns how
    /// many bytes more (or less) the entry takes.
    fn grow_newest(
        self,
        position: ChunkPosition<'_>,
        newest: Chunk<'_>,
        row: KeyRow<'_>,
        context: WriteContext<'_>,
    ) -> i64 {
        let view = newest.view();
        if view.len() >= chunk_rows() {
            return self.push_chunk(position, row, context);
        }
        let mut builder = ChunkBuilder::default();
        builder.push_slots(&view.slots(), 0..view.len());
        builder.push(row);
        let rows = builder.len();
        let capacity_min = grown_capacity(view.capacity(), rows).min(chunk_rows().max(rows));
        let arrival_max = view.arrival_max().max(row.row.arrival());
        let chunk = builder.build(ChunkSpec { capacity_min, arrival_max }, context.format);
        self.replace_chunk(position, chunk, context.retiring)
    }

    /// Adds another chunk, of one row. Returns how many bytes more the entry takes.
    fn push_chunk(
        self,
        position: ChunkPosition<'_>,
        row: KeyRow<'_>,
        context: WriteContext<'_>,
    ) -> i64 {
        let chunks = match position {
            ChunkPosition::Head => 1,
            ChunkPosition::Directory(directory, _) => directory.len(),
        };
        let mut builder = ChunkBuilder::default();
        builder.push(row);
        let capacity_min = next_capacity(chunks).min(chunk_rows());
        let spec = ChunkSpec { capacity_min, arrival_max: row.row.arrival() };
        let chunk = builder.build(spec, context.format);
        // SAFETY: it was made just now.
        let grown = signed(unsafe { Chunk::from_raw(chunk) }.memory_bytes());
        match position {
            ChunkPosition::Head => {
                // Relaxed: only the holder of the lock writes.
                let only = self.expect_head().load(Ordering::Relaxed).cast();
                let directory = Directory::make(&[only, chunk], directory_capacity(2));
                grown + self.install_directory(directory).0
            }
            ChunkPosition::Directory(directory, _) if directory.push(chunk) => grown,
            ChunkPosition::Directory(directory, _) => {
                let mut chunks = directory.to_vec();
                chunks.push(chunk);
                let longer = Directory::make(&chunks, directory_capacity(chunks.len()));
                grown + self.replace_directory(directory, longer, context.retiring)
            }
        }
    }

    /// Replaces chunks, each by one or several, which are given in order. Returns how many bytes
    /// more (or less) the entry takes.
    fn replace_chunks(
        self,
        rows: &EntryRows<'_>,
        made: &[Replacement<ChunkHeader>],
        retiring: Retiring<'_>,
    ) -> i64 {
        debug_assert!(made.is_sorted_by_key(|chunk| chunk.at), "chunks are replaced in order");
        let replaced = || made.chunk_by(|one, other| one.at == other.at).map(|made| made[0].at);
        // SAFETY: they were made just now.
        let bytes =
            made.iter().map(|chunk| unsafe { Chunk::from_raw(chunk.pointer) }.memory_bytes());
        let mut grown = signed(bytes.sum::<usize>());
        let is_in_place = replaced().count() == made.len();
        match rows {
            EntryRows::Directory(directory) if is_in_place => {
                for chunk in made {
                    let old = directory.replace(chunk.at, chunk.pointer);
                    // SAFETY: no head and no linked directory leads to it any more.
                    grown -= unsafe { retire_chunk(old, retiring) };
                }
                return grown;
            }
            EntryRows::Directory(directory) => {
                let longer = directory.replacing(made);
                let old = replaced().map(|at| directory.get(at)).collect::<Vec<_>>();
                grown += self.replace_directory(directory, longer, retiring);
                for chunk in old {
                    // SAFETY: as above.
                    grown -= unsafe { retire_chunk(chunk, retiring) };
                }
                return grown;
            }
            EntryRows::Single(_) | EntryRows::Chunk(_) => {}
        }
        let head = if let [only] = made {
            only.pointer.cast()
        } else {
            let chunks: Vec<*mut ChunkHeader> = made.iter().map(|chunk| chunk.pointer).collect();
            let directory = Directory::make(&chunks, directory_capacity(chunks.len()));
            // SAFETY: it was made just now.
            grown += signed(unsafe { &*directory }.memory_bytes());
            directory_head(directory)
        };
        let old = self.replace_head(head).cast();
        // SAFETY: as above.
        grown - unsafe { retire_chunk(old, retiring) }
    }

    /// Replaces one chunk. Returns how many bytes more (or less) the entry takes.
    fn replace_chunk(
        self,
        position: ChunkPosition<'_>,
        copy: *mut ChunkHeader,
        retiring: Retiring<'_>,
    ) -> i64 {
        // SAFETY: it was made just now.
        let grown = signed(unsafe { Chunk::from_raw(copy) }.memory_bytes());
        let replaced = match position {
            ChunkPosition::Head => self.replace_head(copy.cast()).cast(),
            ChunkPosition::Directory(directory, at) => directory.replace(at, copy),
        };
        // SAFETY: no head and no linked directory leads to it any more.
        grown - unsafe { retire_chunk(replaced, retiring) }
    }

    /// Replaces the directory. Returns how many bytes more (or less) it takes.
    fn replace_directory(
        self,
        old: &Directory<ChunkHeader>,
        directory: *mut Directory<ChunkHeader>,
        retiring: Retiring<'_>,
    ) -> i64 {
        let freed = signed(old.memory_bytes());
        let (grown, old) = self.install_directory(directory);
        // SAFETY: it was a directory that the head led to until just now.
        unsafe { retire_directory(old, retiring) };
        grown - freed
    }

    /// Makes the head lead to a directory. Returns the bytes that it takes and the old head.
    fn install_directory(self, directory: *mut Directory<ChunkHeader>) -> (i64, *mut u8) {
        // SAFETY: it was made just now.
        let bytes = unsafe { &*directory }.memory_bytes();
        (signed(bytes), self.replace_head(directory_head(directory)))
    }
}

/// Groups late rows, which are in order, by the chunks to which they belong, from the oldest on.
/// The entry has several rows.
fn late_groups(rows: &EntryRows<'_>, run: &[KeyRow<'_>]) -> Vec<LateGroup> {
    let count = rows.chunk_count();
    let begins_at_or_before = |chunk: usize, row: &KeyRow<'_>| {
        rows.expect_chunk(chunk).view().is_at_or_before_row(0, row)
    };
    let mut groups = Vec::with_capacity(1);
    let (mut start, mut from) = (0, 0);
    while start < run.len() {
        let row = &run[start];
        // The first from any chunk; each further one is near the one before.
        let (mut low, mut high) = (from, if start == 0 { count } else { count.min(from + 1) });
        while start > 0 && high < count && begins_at_or_before(high, row) {
            (low, high) = (high + 1, count.min(high + 2 * (high - from)));
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if begins_at_or_before(middle, row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The oldest chunk takes what is older than everything.
        let chunk = low.saturating_sub(1);
        let mut end = start + 1;
        while end < run.len() && (chunk + 1 == count || !begins_at_or_before(chunk + 1, &run[end]))
        {
            end += 1;
        }
        if run.len() > 1 {
            rows.expect_chunk(chunk).prefetch_slots();
        }
        groups.push(LateGroup { chunk, end });
        (start, from) = (end, chunk);
    }
    groups
}

/// Merges the rows of a chunk and late ones in order.
fn merge<'m>(chunk: Chunk<'m>, late: &[KeyRow<'m>], builder: &mut ChunkBuilder<'m>) {
    let view = chunk.view();
    let slots = view.slots();
    let mut from = 0;
    for row in late {
        let (mut low, mut high) = (from, view.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if slots.is_at_or_before_row(middle, row) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        builder.push_slots(&slots, from..low);
        builder.push(*row);
        from = low;
    }
    builder.push_slots(&slots, from..view.len());
}

/// Makes a chunk of the rows, or several of equal size where there are too many for one. Removes
/// rows from the builder when it makes several.
fn make_chunks(
    builder: &mut ChunkBuilder<'_>,
    spec: SplitSpec,
    format: Option<&RecordFormat>,
    mut made: impl FnMut(*mut ChunkHeader),
) {
    let SplitSpec { rows_max, newest_capacity_min, arrival_max } = spec;
    assert!(!builder.is_empty(), "a chunk is never empty");
    let count = if builder.len() <= rows_max {
        1
    } else {
        builder.len().div_ceil(SPLIT_ROWS.min(rows_max))
    };
    // From the end, so that the rest is not moved each time.
    let mut newer: Vec<ChunkBuilder<'_>> =
        (2..=count).rev().map(|left| builder.split_end(builder.len() / left)).collect();
    while let Some(next) = newer.pop() {
        let capacity_min = builder.len();
        made(builder.build(ChunkSpec { capacity_min, arrival_max }, format));
        *builder = next;
    }
    let capacity_min = builder.len().max(newest_capacity_min);
    made(builder.build(ChunkSpec { capacity_min, arrival_max }, format));
}

/// Returns the greatest arrival of rows, and of others of which it is known.
fn arrival_max(of_others: u64, run: &[KeyRow<'_>]) -> u64 {
    run.iter().map(|row| row.row.arrival()).fold(of_others, u64::max)
}
