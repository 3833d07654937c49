//! One entity key: its bytes, and its rows: one in the entry itself, more in a chunk, many in a
//! spine of chunks.
//!
//! `series` calls the methods that write, under the shard's lock; `key_rows` reads. See rules 3
//! to 6 of the crate's protocol.
//!
//! # Layout
//!
//! ```text
//! single:  event time 8 B | row's address 6 B | key's size 1 B | [key's size 4 B] | key
//! several: head 8 B | key's size 1 B | [key's size 4 B] | key
//! ```
//!
//! One allocation. The address of a single has its lowest bit set; it never changes, and another
//! entry takes its place when the key gets a second row. A head is the address of a chunk, or that
//! of a spine with the lowest bit set. A key of 255 bytes or more has that number in the one byte
//! and its size in the 4 bytes that follow.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    marker::PhantomData,
    ptr::NonNull,
    slice,
};

use lockstep_host::memory::footprint;

use super::{
    chunk::{Chunk, Filled, Header, Items, KeyRow, split_address},
    guard::Retiring,
    record::Included,
    row_ref::RowRef,
    spine::{Spine, spine_capacity},
    sync::{AtomicPtr, CHUNK_ROWS_MAX, LATE_ROWS_MAX, Ordering, chunk_rows},
};

/// One entity key and its rows, of which there is always one; pointed to only.
pub(crate) enum Entry {}

/// Set in the address of an entry of one row.
const SINGLE: usize = 1;
/// Set in a head that leads to a spine.
const SPINE: usize = 1;
/// Where the address of a single's row is, in two parts, and where its key begins.
const SINGLE_ROW: usize = 8;
const SINGLE_ROW_HIGH: usize = 12;
const SINGLE_KEY: usize = 14;
/// Where the key of an entry of several rows begins.
const SEVERAL_KEY: usize = size_of::<AtomicPtr<u8>>();
/// A key's size of so many bytes is written in 4 bytes more.
const LONG_KEY: usize = 0xff;
const LONG_KEY_SIZE: usize = 4;
const ALIGN: usize = align_of::<AtomicPtr<u8>>();
/// A chunk that would have too many rows is split into chunks of about so many.
const SPLIT_ROWS: usize = LATE_ROWS_MAX - LATE_ROWS_MAX / 4;

/// An entry. Whoever has one holds a guard or the shard's lock for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a> {
    /// With its lowest bit.
    entry: NonNull<Entry>,
    _entry: PhantomData<&'a Entry>,
}

/// How records are made, where columns are included, and how who changes an entry retires what it
/// replaces.
pub(crate) type With<'w> = (Option<&'w Included>, Retiring<'w>);

/// What inserting a row came to.
pub(crate) enum Inserted {
    /// The entry takes so many bytes more (or less).
    Grown(i64),
    /// This entry is to take the place of the one there was, which is to be freed.
    Replaced(*mut Entry),
    /// Nothing was changed: the row is late, and goes in by [`EntryRef::insert_late`].
    Late,
}

/// Late rows that belong to one chunk, and that chunk.
struct Target {
    /// The chunk's place among those of the key.
    part: usize,
    /// Where its rows end among the late ones; they begin where those of the target before end.
    end: usize,
}

/// Where the rows of an entry are.
#[derive(Clone, Copy)]
pub(crate) enum Parts<'a> {
    /// In the entry.
    One(Filled<'a>),
    /// In a chunk.
    Chunk(Chunk<'a>),
    /// In several.
    Spine(&'a Spine<Header>),
}

/// What is to become of a row.
#[derive(Debug, Clone, Copy)]
pub enum Fate<'m> {
    /// It stays.
    Keep,
    /// It goes.
    Remove,
    /// It stays, and lies elsewhere from now on: an equal row.
    Move(RowRef<'m>),
}

/// What retaining rows of a key came to.
pub(crate) struct Retained<'a> {
    /// How many rows went.
    pub(crate) removed: usize,
    pub(crate) rest: Rest<'a>,
}

/// What is left of a key.
pub(crate) enum Rest<'a> {
    /// The entry, which takes so many bytes more (or less).
    Grown(i64),
    /// This row, with its event time. The entry was not changed: another takes its place.
    One(i64, RowRef<'a>),
    /// Nothing. The entry was not changed: it goes as a whole.
    Nothing,
}

fn layout(before_key: usize, key_size: usize) -> Layout {
    let long = if key_size < LONG_KEY { 0 } else { LONG_KEY_SIZE };
    Layout::from_size_align(before_key + 1 + long + key_size, ALIGN)
        .expect("a key is shorter than half of the address space")
}

/// Bytes of memory that an entry of one row with a key of so many bytes takes.
pub(crate) fn single_footprint(key_size: usize) -> usize {
    footprint(layout(SINGLE_KEY, key_size).size())
}

/// Bytes of memory that an entry of several rows takes, without its chunks.
pub(crate) fn several_footprint(key_size: usize) -> usize {
    footprint(layout(SEVERAL_KEY, key_size).size())
}

/// The room of a key's first chunk.
pub(crate) const fn first_room() -> usize {
    2
}

/// The room of the copy of a full chunk that is to hold so many rows.
pub(crate) fn grown_room(capacity: usize, rows: usize) -> usize {
    capacity.max(rows + rows / 2).min(CHUNK_ROWS_MAX)
}

/// The room of the chunk that follows so many: a quarter of what there is, so that what is empty
/// is little beside what is filled.
pub(crate) fn opened_room(chunks: usize) -> usize {
    (chunks * CHUNK_ROWS_MAX / 4).clamp(1, CHUNK_ROWS_MAX)
}

/// Allocates an entry and writes its key.
fn allocate(before_key: usize, key: &[u8]) -> NonNull<u8> {
    let layout = layout(before_key, key.len());
    // SAFETY: the layout is not empty.
    let allocated = unsafe { alloc(layout) };
    let Some(entry) = NonNull::new(allocated) else { handle_alloc_error(layout) };
    let short = u8::try_from(key.len().min(LONG_KEY)).expect("it has 8 bits");
    // SAFETY: the allocation has room for the size and the key after what precedes them.
    unsafe {
        let mut at = entry.add(before_key);
        at.write(short);
        at = at.add(1);
        if key.len() >= LONG_KEY {
            let size = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
            at.cast::<[u8; LONG_KEY_SIZE]>().write(size.to_le_bytes());
            at = at.add(LONG_KEY_SIZE);
        }
        at.copy_from_nonoverlapping(NonNull::from(key).cast::<u8>(), key.len());
    }
    entry
}

impl<'a> EntryRef<'a> {
    /// Makes an entry of one row and gives it away.
    pub(crate) fn make(key: &[u8], event_time: i64, row: RowRef<'_>) -> *mut Entry {
        let entry = allocate(SINGLE_KEY, key).as_ptr();
        let (low, high) = split_address(row.address());
        // SAFETY: the allocation has room for these before the key, and is aligned for them.
        unsafe {
            entry.cast::<i64>().write(event_time);
            entry.add(SINGLE_ROW).cast::<u32>().write(low);
            entry.add(SINGLE_ROW_HIGH).cast::<u16>().write(high);
        }
        entry.map_addr(|address| address | SINGLE).cast()
    }

    /// Makes an entry with a head, and gives it away.
    fn make_several(key: &[u8], head: *mut u8) -> *mut Entry {
        let entry = allocate(SEVERAL_KEY, key).as_ptr();
        // SAFETY: the allocation has room for the head before the key, and is aligned for it.
        unsafe { entry.cast::<AtomicPtr<u8>>().write(AtomicPtr::new(head)) };
        entry.cast()
    }

    /// An entry that was given away.
    ///
    /// # Safety
    ///
    /// It is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(entry: *mut Entry) -> Self {
        // SAFETY: no entry is at null.
        Self { entry: unsafe { NonNull::new_unchecked(entry) }, _entry: PhantomData }
    }

    pub(crate) fn as_raw(self) -> *mut Entry {
        self.entry.as_ptr()
    }

    /// Frees an entry with its chunks and its spine.
    ///
    /// # Safety
    ///
    /// Nobody can reach it any more, and it is freed once.
    pub(crate) unsafe fn free(entry: *mut u8) {
        // SAFETY: the caller's promise.
        let this = unsafe { EntryRef::from_raw(entry.cast()) };
        let (base, layout) = (this.base(), layout(this.before_key(), this.key().len()));
        if let Some(head) = this.head() {
            // Relaxed: nobody else is left.
            let head = head.load(Ordering::Relaxed);
            // SAFETY: nobody can reach what only the entry leads to, and each is freed once.
            unsafe {
                if head.addr() & SPINE == 0 {
                    Chunk::free(head);
                } else {
                    let spine = Box::from_raw(untagged(head).cast::<Spine<Header>>());
                    for at in 0..spine.len() {
                        Chunk::free(spine.part(at).cast());
                    }
                }
                base.cast::<AtomicPtr<u8>>().drop_in_place();
            }
        }
        // SAFETY: it was allocated with the same layout.
        unsafe { dealloc(base, layout) };
    }

    /// The key's bytes.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: the key is in the entry, which lives for 'a, after its size.
        unsafe {
            let at = self.base().add(self.before_key());
            let size = usize::from(at.read());
            if size < LONG_KEY {
                return slice::from_raw_parts(at.add(1), size);
            }
            let size = u32::from_le_bytes(at.add(1).cast::<[u8; LONG_KEY_SIZE]>().read());
            let size = usize::try_from(size).expect("addresses have 32 bits");
            slice::from_raw_parts(at.add(1 + LONG_KEY_SIZE), size)
        }
    }

    /// The rows as they are now.
    #[inline]
    pub(crate) fn parts(self) -> Parts<'a> {
        let Some(head) = self.head() else {
            let base = self.base();
            // SAFETY: a single begins with these, and never changes.
            return unsafe {
                let (low, high) = (base.add(SINGLE_ROW), base.add(SINGLE_ROW_HIGH));
                Parts::One(Filled::one(base.cast::<i64>().read(), &*low.cast(), &*high.cast()))
            };
        };
        // Acquire: pairs with the Release in `replace_head`, and with the entry's publication.
        let head = head.load(Ordering::Acquire);
        // SAFETY: what a head leads to is freed by way of the guard after it was replaced.
        unsafe {
            if head.addr() & SPINE == 0 {
                Parts::Chunk(Chunk::from_raw(head.cast()))
            } else {
                Parts::Spine(&*untagged(head).cast::<Spine<Header>>())
            }
        }
    }

    /// Bytes of memory that the entry takes with all that it leads to, except rows.
    pub(crate) fn memory_bytes(self) -> usize {
        let key_size = self.key().len();
        match self.parts() {
            Parts::One(_) => single_footprint(key_size),
            Parts::Chunk(chunk) => several_footprint(key_size) + chunk.memory_bytes(),
            Parts::Spine(spine) => {
                let chunks = (0..spine.len()).map(|at| chunk_at(spine, at).memory_bytes());
                several_footprint(key_size) + spine.memory_bytes() + chunks.sum::<usize>()
            }
        }
    }

    /// Inserts a row that is not older than any other of the key, or into a key of one row. Under
    /// the shard's lock.
    pub(crate) fn insert_newest(self, item: KeyRow<'_>, with: With<'_>) -> Inserted {
        let (place, newest) = match self.parts() {
            Parts::One(one) => return Inserted::Replaced(self.open(&one, &[item], with.0)),
            Parts::Chunk(chunk) => (Place::Only, chunk),
            Parts::Spine(spine) => {
                let last = spine.len() - 1;
                (Place::Spine(spine, last), chunk_at(spine, last))
            }
        };
        let filled = newest.filled();
        if !filled.is_at_or_before_row(filled.len() - 1, &item) {
            return Inserted::Late;
        }
        if newest.append(item, with.0) {
            return Inserted::Grown(0);
        }
        Inserted::Grown(self.grow_newest(place, newest, item, with))
    }

    /// Inserts rows in order of event time and arrival, wherever they belong; each chunk into which
    /// some come is copied once. Under the shard's lock.
    pub(crate) fn insert_late(self, run: &[KeyRow<'_>], with: With<'_>) -> Inserted {
        let parts = self.parts();
        if let Parts::One(one) = parts {
            return Inserted::Replaced(self.open(&one, run, with.0));
        }
        let count = parts.chunk_count();
        let targets = targets(&parts, run);
        let mut made = Vec::with_capacity(targets.len());
        let mut items = Items::default();
        let mut start = 0;
        for Target { part, end } in targets {
            let chunk = parts.expect_chunk(part);
            let (late, is_newest) = (&run[start..end], part + 1 == count);
            items.clear();
            merge(chunk, late, &mut items);
            let arrival_max = arrival_max(chunk.filled().arrival_max(), late);
            let (most, newest_room) = if is_newest {
                (chunk_rows(), chunk.filled().capacity())
            } else {
                (LATE_ROWS_MAX.min(chunk_rows()), 0)
            };
            let room = (newest_room, arrival_max);
            make_chunks(&mut items, (most, room), with.0, |chunk| made.push((part, chunk)));
            start = end;
        }
        Inserted::Grown(self.replace_chunks(&parts, &made, with.1))
    }

    /// Makes an entry of this single's row, which has no record yet, and others in order.
    fn open(self, one: &Filled<'_>, run: &[KeyRow<'_>], included: Option<&Included>) -> *mut Entry {
        let first = KeyRow { event_time: one.event_time(0), row: one.row(0) };
        let older = run.partition_point(|item| item.position() < first.position());
        let mut items = Items::default();
        run[..older].iter().for_each(|item| items.push(*item));
        items.push(first);
        run[older..].iter().for_each(|item| items.push(*item));
        let arrival_max = arrival_max(first.row.arrival(), run);
        let most = chunk_rows();
        let room = if items.len() > most { most } else { first_room() };
        let mut chunks = Vec::with_capacity(1);
        make_chunks(&mut items, (most, (room, arrival_max)), included, |chunk| {
            chunks.push(chunk);
        });
        let head = match chunks.as_slice() {
            [only] => (*only).cast::<u8>(),
            several => tagged(Spine::make(several, spine_capacity(several.len()))),
        };
        Self::make_several(self.key(), head)
    }

    /// Stores a row that is newer than every other and does not fit the newest chunk.
    fn grow_newest(
        self,
        place: Place<'_>,
        newest: Chunk<'_>,
        item: KeyRow<'_>,
        with: With<'_>,
    ) -> i64 {
        let filled = newest.filled();
        if filled.len() >= chunk_rows() {
            return self.push_chunk(place, item, with);
        }
        let mut items = Items::default();
        items.push_slots(&filled.slots(), 0..filled.len());
        items.push(item);
        let room = grown_room(filled.capacity(), items.len()).min(chunk_rows().max(items.len()));
        let arrival_max = filled.arrival_max().max(item.row.arrival());
        let chunk = Chunk::make(&items, (room, arrival_max), with.0);
        self.replace_chunk(place, chunk, with.1)
    }

    /// Opens another chunk.
    fn push_chunk(self, place: Place<'_>, item: KeyRow<'_>, (included, by): With<'_>) -> i64 {
        let chunks = match place {
            Place::Only => 1,
            Place::Spine(spine, _) => spine.len(),
        };
        let mut items = Items::default();
        items.push(item);
        let room = opened_room(chunks).min(chunk_rows());
        let chunk = Chunk::make(&items, (room, item.row.arrival()), included);
        // SAFETY: it was made just now.
        let grown = signed(unsafe { Chunk::from_raw(chunk) }.memory_bytes());
        match place {
            Place::Only => {
                // Relaxed: only the holder of the lock writes.
                let only = self.expect_head().load(Ordering::Relaxed).cast();
                let spine = Spine::make(&[only, chunk], spine_capacity(2));
                grown + self.replace_with_spine(spine).0
            }
            Place::Spine(spine, _) if spine.push(chunk) => grown,
            Place::Spine(spine, _) => {
                let mut parts = spine.to_vec();
                parts.push(chunk);
                let longer = Spine::make(&parts, spine_capacity(parts.len()));
                grown + self.replace_spine(spine, longer, by)
            }
        }
    }

    /// Puts chunks in the places of others: for some parts, in order, one or several that take their
    /// place.
    fn replace_chunks(
        self,
        parts: &Parts<'_>,
        made: &[(usize, *mut Header)],
        by: Retiring<'_>,
    ) -> i64 {
        let replaced = || made.chunk_by(|one, other| one.0 == other.0).map(|made| made[0].0);
        // SAFETY: they were made just now.
        let bytes = made.iter().map(|(_, chunk)| unsafe { Chunk::from_raw(*chunk) }.memory_bytes());
        let mut grown = signed(bytes.sum::<usize>());
        let is_in_place = replaced().count() == made.len();
        match parts {
            Parts::Spine(spine) if is_in_place => {
                for (part, chunk) in made {
                    let old = spine.replace(*part, *chunk);
                    // SAFETY: no head and no linked spine leads to it any more.
                    grown -= unsafe { retire_chunk(old, by) };
                }
                return grown;
            }
            Parts::Spine(spine) => {
                let longer = spine.replacing(made);
                let old = replaced().map(|part| spine.part(part)).collect::<Vec<_>>();
                grown += self.replace_spine(spine, longer, by);
                for chunk in old {
                    // SAFETY: as above.
                    grown -= unsafe { retire_chunk(chunk, by) };
                }
                return grown;
            }
            Parts::One(_) | Parts::Chunk(_) => {}
        }
        let head = if let [(_, only)] = made {
            only.cast()
        } else {
            let chunks: Vec<*mut Header> = made.iter().map(|(_, chunk)| *chunk).collect();
            let spine = Spine::make(&chunks, spine_capacity(chunks.len()));
            // SAFETY: it was made just now.
            grown += signed(unsafe { &*spine }.memory_bytes());
            tagged(spine)
        };
        let old = self.replace_head(head).cast();
        // SAFETY: as above.
        grown - unsafe { retire_chunk(old, by) }
    }

    /// Asks what is to become of each row, newest first. Under the shard's lock.
    pub(crate) fn retain<'m>(
        self,
        fate: &mut dyn FnMut(i64, RowRef<'_>) -> Fate<'m>,
        with: With<'_>,
    ) -> Retained<'m>
    where
        'a: 'm,
    {
        let parts = self.parts();
        let chunk_count = parts.chunk_count();
        let mut remade: Vec<Option<(Items<'m>, u64)>> = Vec::with_capacity(chunk_count);
        let (mut removed, mut left, mut last) = (0, 0, None);
        for at in (0..chunk_count).rev() {
            let filled = parts.filled(at);
            let mut is_changed = false;
            // Newest first.
            let mut kept: Vec<(usize, RowRef<'m>)> = Vec::with_capacity(filled.len());
            for slot in (0..filled.len()).rev() {
                let (event_time, row): (i64, RowRef<'m>) =
                    (filled.event_time(slot), filled.row(slot));
                match fate(event_time, row) {
                    Fate::Keep => kept.push((slot, row)),
                    Fate::Move(row) => {
                        is_changed = true;
                        kept.push((slot, row));
                    }
                    Fate::Remove => {
                        is_changed = true;
                        removed += 1;
                    }
                }
            }
            left += kept.len();
            last = kept.first().map(|(slot, row)| (filled.event_time(*slot), *row)).or(last);
            remade.push(is_changed.then(|| {
                let mut items = Items::default();
                let slots = filled.slots();
                kept.iter().rev().for_each(|(slot, row)| items.push_slot(&slots, *slot, *row));
                (items, filled.arrival_max())
            }));
        }
        if remade.iter().all(Option::is_none) {
            return Retained { removed, rest: Rest::Grown(0) };
        }
        let rest = match (left, last) {
            (1, Some((event_time, row))) => Rest::One(event_time, row),
            (0, _) => Rest::Nothing,
            _ => {
                remade.reverse();
                Rest::Grown(self.remake(&parts, remade, with))
            }
        };
        Retained { removed, rest }
    }

    /// Puts chunks of the given rows in the place of those that changed; at least two rows stay.
    fn remake(
        self,
        parts: &Parts<'_>,
        remade: Vec<Option<(Items<'_>, u64)>>,
        (included, by): With<'_>,
    ) -> i64 {
        let before = self.memory_bytes();
        let mut chunks = Vec::with_capacity(remade.len());
        let mut replaced = Vec::new();
        for (at, items) in remade.into_iter().enumerate() {
            let old = parts.raw_chunk(at);
            match items {
                None => chunks.extend(old),
                Some((items, arrival_max)) => {
                    replaced.extend(old);
                    if !items.is_empty() {
                        let room = (items.len(), arrival_max);
                        chunks.push(Chunk::make(&items, room, included));
                    }
                }
            }
        }
        let head = match chunks.as_slice() {
            [only] => (*only).cast::<u8>(),
            several => tagged(Spine::make(several, several.len())),
        };
        let old = self.replace_head(head);
        for chunk in replaced {
            // SAFETY: no head and no linked spine leads to it any more.
            let _bytes = unsafe { retire_chunk(chunk, by) };
        }
        if let Parts::Spine(_) = *parts {
            // SAFETY: it was a spine that the head led to until just now.
            unsafe { retire_spine(old, by) };
        }
        signed(self.memory_bytes()) - signed(before)
    }

    fn replace_chunk(self, place: Place<'_>, copy: *mut Header, by: Retiring<'_>) -> i64 {
        // SAFETY: it was made just now.
        let grown = signed(unsafe { Chunk::from_raw(copy) }.memory_bytes());
        let replaced = match place {
            Place::Only => self.replace_head(copy.cast()).cast(),
            Place::Spine(spine, at) => spine.replace(at, copy),
        };
        // SAFETY: no head and no linked spine leads to it any more.
        grown - unsafe { retire_chunk(replaced, by) }
    }

    fn replace_spine(
        self,
        old: &Spine<Header>,
        spine: *mut Spine<Header>,
        by: Retiring<'_>,
    ) -> i64 {
        let freed = signed(old.memory_bytes());
        let (grown, old) = self.replace_with_spine(spine);
        // SAFETY: it was a spine that the head led to until just now.
        unsafe { retire_spine(old, by) };
        grown - freed
    }

    /// Returns also what the head led to.
    fn replace_with_spine(self, spine: *mut Spine<Header>) -> (i64, *mut u8) {
        // SAFETY: it was made just now.
        let bytes = unsafe { &*spine }.memory_bytes();
        (signed(bytes), self.replace_head(tagged(spine)))
    }

    fn replace_head(self, head: *mut u8) -> *mut u8 {
        // AcqRel: pairs with the Acquire in `parts`.
        self.expect_head().swap(head, Ordering::AcqRel)
    }

    fn expect_head(self) -> &'a AtomicPtr<u8> {
        self.head().expect("a single is replaced, not changed")
    }

    /// The head, unless the entry is a single.
    #[inline]
    fn head(self) -> Option<&'a AtomicPtr<u8>> {
        // SAFETY: an entry of several begins with its head, and lives for 'a.
        (!self.is_single()).then(|| unsafe { &*self.base().cast::<AtomicPtr<u8>>() })
    }

    #[inline]
    fn is_single(self) -> bool {
        self.entry.as_ptr().addr() & SINGLE != 0
    }

    #[inline]
    fn before_key(self) -> usize {
        if self.is_single() { SINGLE_KEY } else { SEVERAL_KEY }
    }

    /// Where the entry begins.
    #[inline]
    fn base(self) -> *mut u8 {
        untagged(self.entry.as_ptr().cast())
    }
}

/// Where a chunk hangs.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// The head leads to it.
    Only,
    /// This part of a spine.
    Spine(&'a Spine<Header>, usize),
}

impl<'a> Parts<'a> {
    /// Chunks, the row in the entry being one.
    fn chunk_count(&self) -> usize {
        match self {
            Self::One(_) | Self::Chunk(_) => 1,
            Self::Spine(spine) => spine.len(),
        }
    }

    fn filled(&self, at: usize) -> Filled<'a> {
        match self {
            Self::One(one) => *one,
            Self::Chunk(chunk) => chunk.filled(),
            Self::Spine(spine) => chunk_at(spine, at).filled(),
        }
    }

    /// A chunk of an entry of several rows.
    fn expect_chunk(&self, at: usize) -> Chunk<'a> {
        match self {
            Self::One(_) => panic!("a single has no chunk"),
            Self::Chunk(chunk) => *chunk,
            Self::Spine(spine) => chunk_at(spine, at),
        }
    }

    fn raw_chunk(&self, at: usize) -> Option<*mut Header> {
        match self {
            Self::One(_) => None,
            Self::Chunk(chunk) => Some(chunk.as_raw()),
            Self::Spine(spine) => Some(spine.part(at)),
        }
    }
}

/// A chunk of a spine. Whoever has the spine holds a guard or the lock.
#[inline]
pub(crate) fn chunk_at(spine: &Spine<Header>, at: usize) -> Chunk<'_> {
    // SAFETY: what a spine leads to is freed by way of the guard after it was replaced.
    unsafe { Chunk::from_raw(spine.part(at)) }
}

fn tagged(spine: *mut Spine<Header>) -> *mut u8 {
    spine.cast::<u8>().map_addr(|address| address | SPINE)
}

/// An address without its lowest bit.
#[inline]
fn untagged(tagged: *mut u8) -> *mut u8 {
    tagged.map_addr(|address| address & !(SPINE | SINGLE))
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

/// For rows in order: the chunks to which they belong, from the oldest on. An entry of several.
fn targets(parts: &Parts<'_>, run: &[KeyRow<'_>]) -> Vec<Target> {
    let count = parts.chunk_count();
    let begins_at_or_before = |part: usize, item: &KeyRow<'_>| {
        parts.expect_chunk(part).filled().is_at_or_before_row(0, item)
    };
    let mut targets = Vec::with_capacity(1);
    let (mut start, mut from) = (0, 0);
    while start < run.len() {
        let item = &run[start];
        // The first from any chunk; each further one is near the one before.
        let (mut low, mut high) = (from, if start == 0 { count } else { count.min(from + 1) });
        while start > 0 && high < count && begins_at_or_before(high, item) {
            (low, high) = (high + 1, count.min(high + 2 * (high - from)));
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if begins_at_or_before(middle, item) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The oldest chunk takes what is older than everything.
        let part = low.saturating_sub(1);
        let mut end = start + 1;
        while end < run.len() && (part + 1 == count || !begins_at_or_before(part + 1, &run[end])) {
            end += 1;
        }
        if run.len() > 1 {
            parts.expect_chunk(part).prefetch_slots();
        }
        targets.push(Target { part, end });
        (start, from) = (end, part);
    }
    targets
}

/// Puts the rows of a chunk and late ones in order.
fn merge<'m>(chunk: Chunk<'m>, late: &[KeyRow<'m>], items: &mut Items<'m>) {
    let filled = chunk.filled();
    let slots = filled.slots();
    let mut from = 0;
    for item in late {
        let (mut low, mut high) = (from, filled.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if slots.is_at_or_before_row(middle, item) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        items.push_slots(&slots, from..low);
        items.push(*item);
        from = low;
    }
    items.push_slots(&slots, from..filled.len());
}

/// Makes a chunk of rows, or several of equal size of more than `most`; the newest has room for so
/// many at least. Takes the rows away when it makes several.
fn make_chunks(
    items: &mut Items<'_>,
    (most, (newest_room, arrival_max)): (usize, (usize, u64)),
    included: Option<&Included>,
    mut made: impl FnMut(*mut Header),
) {
    let count = if items.len() <= most { 1 } else { items.len().div_ceil(SPLIT_ROWS.min(most)) };
    // From the end, so that what is left is not moved each time.
    let mut newer: Vec<Items<'_>> =
        (2..=count).rev().map(|left| items.split_end(items.len() / left)).collect();
    while let Some(next) = newer.pop() {
        made(Chunk::make(items, (items.len(), arrival_max), included));
        *items = next;
    }
    let room = items.len().max(newest_room);
    made(Chunk::make(items, (room, arrival_max), included));
}

/// The greatest arrival of rows, and of others of which it is known.
fn arrival_max(of_others: u64, run: &[KeyRow<'_>]) -> u64 {
    run.iter().map(|item| item.row.arrival()).fold(of_others, u64::max)
}

/// Frees a chunk when the guards of now are gone, and returns how many bytes it takes.
///
/// # Safety
///
/// It was unlinked just now by the holder of the lock, and is not retired again.
unsafe fn retire_chunk(chunk: *mut Header, by: Retiring<'_>) -> i64 {
    // SAFETY: whoever has a chunk keeps it from being freed.
    let bytes = unsafe { Chunk::from_raw(chunk) }.memory_bytes();
    // SAFETY: who comes later cannot reach it, who came before holds a guard.
    unsafe { by.retire(chunk.cast(), Chunk::free, bytes) };
    signed(bytes)
}

/// Frees a spine, not its chunks, when the guards of now are gone. It is given as what a head was:
/// a reference to it would not give the right to free it.
///
/// # Safety
///
/// As of [`retire_chunk`].
unsafe fn retire_spine(head: *mut u8, by: Retiring<'_>) {
    let spine = untagged(head);
    // SAFETY: whoever has a spine keeps it from being freed.
    let bytes = unsafe { &*spine.cast::<Spine<Header>>() }.memory_bytes();
    // SAFETY: as in `retire_chunk`; it came out of a box.
    unsafe { by.retire(spine, Spine::<Header>::free, bytes) };
}
