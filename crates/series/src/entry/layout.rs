//! The bytes of an entry: how it is allocated, how its key is written and read, and how many rows
//! the chunks that it leads to are made for.
//!
//! ```text
//! single:  event time 8 B | row's address 6 B | key's size 1 B | [key's size 4 B] | key
//! several: head 8 B | key's size 1 B | [key's size 4 B] | key
//! ```
//!
//! One allocation. The address of a single has its lowest bit set; it never changes, and another
//! entry takes its place when the key gets a second row. A head is the address of a chunk, or that
//! of a directory with the lowest bit set. A key of 255 bytes or more has that number in the one
//! byte and its size in the 4 bytes that follow.

use std::{
    alloc::{Layout, alloc, handle_alloc_error},
    ptr::NonNull,
    slice,
};

use lockstep_host::memory::footprint;

use crate::{
    chunk::ChunkHeader,
    directory::Directory,
    sync::{AtomicPtr, CHUNK_ROWS_MAX},
};

/// Set in the address of an entry of one row.
pub(super) const SINGLE: usize = 1;
/// Set in a head that leads to a directory.
pub(super) const DIRECTORY: usize = 1;
/// Where the address of a single's row is, in two parts, and where its key begins.
pub(super) const SINGLE_ROW: usize = 8;
pub(super) const SINGLE_ROW_HIGH: usize = 12;
pub(super) const SINGLE_KEY: usize = 14;
/// Where the key of an entry of several rows begins.
pub(super) const SEVERAL_KEY: usize = size_of::<AtomicPtr<u8>>();
/// A key's size of so many bytes is written in 4 bytes more.
const LONG_KEY: usize = 0xff;
const LONG_KEY_SIZE: usize = 4;
const ALIGN: usize = align_of::<AtomicPtr<u8>>();
const _: () = assert!(ALIGN > SINGLE, "an address has its lowest bit to spare");
const _: () = assert!(align_of::<Directory<ChunkHeader>>() > DIRECTORY, "so has a directory's");

/// Returns the layout of an entry whose key, of `key_size` bytes, begins at `before_key`.
pub(super) fn entry_layout(before_key: usize, key_size: usize) -> Layout {
    let long = if key_size < LONG_KEY { 0 } else { LONG_KEY_SIZE };
    Layout::from_size_align(before_key + 1 + long + key_size, ALIGN)
        .expect("a key is shorter than half of the address space")
}

/// Returns the bytes of memory that an entry of one row takes.
pub(crate) fn single_footprint(key_size: usize) -> usize {
    footprint(entry_layout(SINGLE_KEY, key_size).size())
}

/// Returns the bytes of memory that an entry of several rows takes, without its chunks.
pub(crate) fn several_footprint(key_size: usize) -> usize {
    footprint(entry_layout(SEVERAL_KEY, key_size).size())
}

/// Returns the capacity of a key's first chunk.
pub(crate) const fn first_capacity() -> usize {
    2
}

/// Returns the capacity of the copy of a full chunk that is to hold `rows` rows.
pub(crate) fn grown_capacity(capacity: usize, rows: usize) -> usize {
    capacity.max(rows + rows / 2).min(CHUNK_ROWS_MAX)
}

/// Returns the capacity of the chunk that follows `chunks` others: a quarter of what there is, so
/// that what is empty is little beside what is filled.
pub(crate) fn next_capacity(chunks: usize) -> usize {
    (chunks * CHUNK_ROWS_MAX / 4).clamp(1, CHUNK_ROWS_MAX)
}

/// Allocates an entry and writes its key.
pub(super) fn allocate(before_key: usize, key: &[u8]) -> NonNull<u8> {
    let layout = entry_layout(before_key, key.len());
    // SAFETY: the layout is not empty.
    let allocated = unsafe { alloc(layout) };
    let Some(entry) = NonNull::new(allocated) else { handle_alloc_error(layout) };
    assert!(entry.as_ptr().addr() & SINGLE == 0, "an entry is aligned");
    let short = u8::try_from(key.len().min(LONG_KEY)).expect("it has 8 bits");
    // SAFETY: the allocation has space for the size and the key after what precedes them.
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

/// Reads the key whose size is written at `at`.
///
/// # Safety
///
/// [`allocate`] has written a key there, and it is not freed during `'a`.
#[inline]
pub(super) unsafe fn read_key<'a>(at: *const u8) -> &'a [u8] {
    // SAFETY: the caller's promise; the key follows its size.
    unsafe {
        let size = usize::from(at.read());
        if size < LONG_KEY {
            return slice::from_raw_parts(at.add(1), size);
        }
        let size = u32::from_le_bytes(at.add(1).cast::<[u8; LONG_KEY_SIZE]>().read());
        let size = usize::try_from(size).expect("addresses have 32 bits");
        slice::from_raw_parts(at.add(1 + LONG_KEY_SIZE), size)
    }
}

/// Returns the head that leads to a directory.
pub(super) fn directory_head(directory: *mut Directory<ChunkHeader>) -> *mut u8 {
    debug_assert!(directory.addr() & DIRECTORY == 0, "a directory is aligned");
    directory.cast::<u8>().map_addr(|address| address | DIRECTORY)
}

/// Returns an address without its lowest bit.
#[inline]
pub(super) fn untagged(tagged: *mut u8) -> *mut u8 {
    tagged.map_addr(|address| address & !(DIRECTORY | SINGLE))
}
