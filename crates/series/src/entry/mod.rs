//! An entry: one entity key and its rows, of which there is one in the entry itself, more in a
//! chunk, many in a directory of chunks.
//!
//! `series` calls the methods that write, under the shard's lock; `series_rows` reads. See rules 3
//! to 6 of the crate's protocol.

mod insert;
mod layout;
mod retain;

use std::{alloc::dealloc, marker::PhantomData, ptr::NonNull};

pub(crate) use insert::Inserted;
pub(crate) use layout::{
    first_capacity, grown_capacity, next_capacity, several_footprint, single_footprint,
};
pub(crate) use retain::Remaining;
pub use retain::RowAction;

use crate::{
    chunk::{Chunk, ChunkHeader, ChunkView, split_address},
    directory::Directory,
    guard::Retiring,
    record::RecordFormat,
    row_ref::RowRef,
    sync::{AtomicPtr, Ordering},
};
use layout::{
    DIRECTORY, SEVERAL_KEY, SINGLE, SINGLE_KEY, SINGLE_ROW, SINGLE_ROW_HIGH, allocate,
    entry_layout, read_key, untagged,
};

/// The memory of an entry, which is reached by its address only; see [`EntryRef`].
pub(crate) enum KeyEntry {}

/// A reference to an entry. Whoever has one holds a guard or the shard's lock for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'a> {
    /// With its lowest bit.
    entry: NonNull<KeyEntry>,
    _entry: PhantomData<&'a KeyEntry>,
}

/// What a change of an entry needs beside the rows.
#[derive(Clone, Copy)]
pub(crate) struct WriteContext<'w> {
    /// How records are made, where the series has records.
    pub(crate) format: Option<&'w RecordFormat>,
    /// Retires what the change replaces.
    pub(crate) retiring: Retiring<'w>,
}

/// The rows of an entry, by where they are stored. Never empty.
#[derive(Clone, Copy)]
pub(crate) enum EntryRows<'a> {
    /// One row, in the entry.
    Single(ChunkView<'a>),
    /// The rows of a chunk.
    Chunk(Chunk<'a>),
    /// The rows of several chunks.
    Directory(&'a Directory<ChunkHeader>),
}

impl<'a> EntryRef<'a> {
    /// Makes an entry of one row and gives it away.
    pub(crate) fn make(key: &[u8], event_time: i64, row: RowRef<'_>) -> *mut KeyEntry {
        let entry = allocate(SINGLE_KEY, key).as_ptr();
        let (low, high) = split_address(row.address());
        // SAFETY: the allocation has space for these before the key, and is aligned for them.
        unsafe {
            entry.cast::<i64>().write(event_time);
            entry.add(SINGLE_ROW).cast::<u32>().write(low);
            entry.add(SINGLE_ROW_HIGH).cast::<u16>().write(high);
        }
        entry.map_addr(|address| address | SINGLE).cast()
    }

    /// Makes an entry with a head, and gives it away.
    fn make_several(key: &[u8], head: *mut u8) -> *mut KeyEntry {
        debug_assert!(!untagged(head).is_null(), "a head leads to rows");
        let entry = allocate(SEVERAL_KEY, key).as_ptr();
        // SAFETY: the allocation has space for the head before the key, and is aligned for it.
        unsafe { entry.cast::<AtomicPtr<u8>>().write(AtomicPtr::new(head)) };
        entry.cast()
    }

    /// Refers to an entry that was given away.
    ///
    /// # Safety
    ///
    /// It is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(entry: *mut KeyEntry) -> Self {
        // SAFETY: no entry is at null.
        Self { entry: unsafe { NonNull::new_unchecked(entry) }, _entry: PhantomData }
    }

    /// Returns the address of the entry, with its lowest bit.
    pub(crate) fn as_raw(self) -> *mut KeyEntry {
        self.entry.as_ptr()
    }

    /// Frees an entry with its chunks and its directory.
    ///
    /// # Safety
    ///
    /// No other thread can reach it, and it is freed once.
    pub(crate) unsafe fn free(entry: *mut u8) {
        // SAFETY: the caller's promise.
        let this = unsafe { EntryRef::from_raw(entry.cast()) };
        let (base, layout) = (this.base(), entry_layout(this.before_key(), this.key().len()));
        if let Some(head) = this.head() {
            // Relaxed: no other thread is left.
            let head = head.load(Ordering::Relaxed);
            // SAFETY: no other thread can reach what only the entry leads to, and each is freed
            // once.
            unsafe {
                if head.addr() & DIRECTORY == 0 {
                    Chunk::free(head);
                } else {
                    let directory = Box::from_raw(untagged(head).cast::<Directory<ChunkHeader>>());
                    for at in 0..directory.len() {
                        Chunk::free(directory.get(at).cast());
                    }
                }
                base.cast::<AtomicPtr<u8>>().drop_in_place();
            }
        }
        // SAFETY: it was allocated with the same layout.
        unsafe { dealloc(base, layout) };
    }

    /// Returns the key's bytes.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        // SAFETY: the key is in the entry, which is not freed during 'a.
        unsafe { read_key(self.base().add(self.before_key())) }
    }

    /// Returns the rows as they are now.
    #[inline]
    pub(crate) fn rows(self) -> EntryRows<'a> {
        let Some(head) = self.head() else {
            let base = self.base();
            // SAFETY: a single begins with these, and never changes.
            return unsafe {
                let (low, high) = (base.add(SINGLE_ROW), base.add(SINGLE_ROW_HIGH));
                let event_time = base.cast::<i64>().read();
                EntryRows::Single(ChunkView::single(event_time, &*low.cast(), &*high.cast()))
            };
        };
        // Acquire: pairs with the Release in `replace_head`, and with the entry's publication.
        let head = head.load(Ordering::Acquire);
        // SAFETY: what a head leads to is freed by way of the guard after it was replaced.
        unsafe {
            if head.addr() & DIRECTORY == 0 {
                EntryRows::Chunk(Chunk::from_raw(head.cast()))
            } else {
                EntryRows::Directory(&*untagged(head).cast::<Directory<ChunkHeader>>())
            }
        }
    }

    /// Returns the event time of the oldest row.
    pub(crate) fn oldest_event_time(self) -> i64 {
        self.rows().view(0).event_time(0)
    }

    /// Returns the bytes of memory that the entry takes with all that it leads to, except rows.
    pub(crate) fn memory_bytes(self) -> usize {
        let key_size = self.key().len();
        match self.rows() {
            EntryRows::Single(_) => single_footprint(key_size),
            EntryRows::Chunk(chunk) => several_footprint(key_size) + chunk.memory_bytes(),
            EntryRows::Directory(directory) => {
                let chunks = (0..directory.len()).map(|at| chunk_at(directory, at).memory_bytes());
                several_footprint(key_size) + directory.memory_bytes() + chunks.sum::<usize>()
            }
        }
    }

    /// Replaces the head, and returns the old one.
    fn replace_head(self, head: *mut u8) -> *mut u8 {
        debug_assert!(!untagged(head).is_null(), "a head leads to rows");
        // AcqRel: pairs with the Acquire in `rows`.
        self.expect_head().swap(head, Ordering::AcqRel)
    }

    /// Returns the head of an entry of several rows.
    fn expect_head(self) -> &'a AtomicPtr<u8> {
        self.head().expect("a single is replaced, not changed")
    }

    /// Returns the head, unless the entry is a single.
    #[inline]
    fn head(self) -> Option<&'a AtomicPtr<u8>> {
        // SAFETY: an entry of several rows begins with its head, and is not freed during 'a.
        (!self.is_single()).then(|| unsafe { &*self.base().cast::<AtomicPtr<u8>>() })
    }

    /// Returns whether the entry holds its only row itself.
    #[inline]
    fn is_single(self) -> bool {
        self.entry.as_ptr().addr() & SINGLE != 0
    }

    /// Returns the number of bytes that precede the key's size.
    #[inline]
    fn before_key(self) -> usize {
        if self.is_single() { SINGLE_KEY } else { SEVERAL_KEY }
    }

    /// Returns the address at which the entry begins.
    #[inline]
    fn base(self) -> *mut u8 {
        untagged(self.entry.as_ptr().cast())
    }
}

impl<'a> EntryRows<'a> {
    /// Returns the number of chunks, the row in the entry being one.
    pub(crate) fn chunk_count(&self) -> usize {
        match self {
            Self::Single(_) | Self::Chunk(_) => 1,
            Self::Directory(directory) => directory.len(),
        }
    }

    /// Returns the rows of a chunk, or the one in the entry.
    pub(crate) fn view(&self, at: usize) -> ChunkView<'a> {
        debug_assert!(at < self.chunk_count(), "chunks are counted from 0");
        match self {
            Self::Single(single) => *single,
            Self::Chunk(chunk) => chunk.view(),
            Self::Directory(directory) => chunk_at(directory, at).view(),
        }
    }

    /// Returns a chunk of an entry of several rows.
    fn expect_chunk(&self, at: usize) -> Chunk<'a> {
        match self {
            Self::Single(_) => panic!("a single has no chunk"),
            Self::Chunk(chunk) => *chunk,
            Self::Directory(directory) => chunk_at(directory, at),
        }
    }

    /// Returns the address of a chunk; `None` for a single.
    fn raw_chunk(&self, at: usize) -> Option<*mut ChunkHeader> {
        match self {
            Self::Single(_) => None,
            Self::Chunk(chunk) => Some(chunk.as_raw()),
            Self::Directory(directory) => Some(directory.get(at)),
        }
    }
}

/// Returns a chunk of a directory. Whoever has the directory holds a guard or the lock.
#[inline]
pub(crate) fn chunk_at(directory: &Directory<ChunkHeader>, at: usize) -> Chunk<'_> {
    // SAFETY: what a directory leads to is freed by way of the guard after it was replaced.
    unsafe { Chunk::from_raw(directory.get(at)) }
}

/// Converts a size to a signed one.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

/// Retires a chunk, and returns how many bytes it takes.
///
/// # Safety
///
/// It was unlinked just now by the holder of the lock, and is not retired again.
unsafe fn retire_chunk(chunk: *mut ChunkHeader, retiring: Retiring<'_>) -> i64 {
    // SAFETY: whoever has a chunk keeps it from being freed.
    let bytes = unsafe { Chunk::from_raw(chunk) }.memory_bytes();
    // SAFETY: later readers cannot reach it, earlier ones hold a guard.
    unsafe { retiring.retire(chunk.cast(), Chunk::free, bytes) };
    signed(bytes)
}

/// Retires a directory, not its chunks. It is given as the head that led to it: a reference to it
/// would not give the right to free it.
///
/// # Safety
///
/// As of [`retire_chunk`].
unsafe fn retire_directory(head: *mut u8, retiring: Retiring<'_>) {
    debug_assert!(head.addr() & DIRECTORY != 0, "the head led to a directory");
    let directory = untagged(head);
    // SAFETY: whoever has a directory keeps it from being freed.
    let bytes = unsafe { &*directory.cast::<Directory<ChunkHeader>>() }.memory_bytes();
    // SAFETY: as in `retire_chunk`; it is from a box.
    unsafe { retiring.retire(directory, Directory::<ChunkHeader>::free, bytes) };
}
