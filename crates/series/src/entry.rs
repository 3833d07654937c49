//! One entity key: its bytes, and its rows in a spine of chunks.
//!
//! `series` calls the methods that write, under the shard's lock; `key_rows` reads. See rules 3
//! to 6 of the crate's protocol.

use std::{
    ptr,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering},
};

use crossbeam_epoch::Guard;

use crate::{
    RowHandle, RowRef,
    chunk::{CHUNK_ROWS_MAX, CHUNK_ROWS_MIN, Chunk, Item, Slot},
};

/// One entity key and its rows. Has at least one row until it is dropped.
pub(crate) struct Entry {
    hash: u64,
    key: Box<[u8]>,
    /// Never null. Replaced under the lock; what it pointed to is retired.
    spine: AtomicPtr<Spine>,
}

/// Pointers to the chunks of a key, oldest first.
pub(crate) struct Spine {
    /// How many chunks there are, at least one. Grows only.
    len: AtomicUsize,
    /// Not null below `len`. Replaced under the lock when a chunk is copied.
    chunks: Box<[AtomicPtr<Chunk>]>,
}

/// What removing rows from a key came to.
pub(crate) enum Retained {
    /// So many rows were removed; others are left.
    Some(usize),
    /// Every row, so many, is to go. Nothing was changed: the entry goes as a whole.
    None(usize),
}

impl Entry {
    /// Makes a key with its first row.
    pub(crate) fn new(hash: u64, key: &[u8], event_time: i64, row: RowHandle) -> Self {
        let arrival = row.get().arrival();
        let chunk = Chunk::new(&[(event_time, row.into_raw())], CHUNK_ROWS_MIN, arrival);
        let spine = Spine::new(&[leak(chunk)], 1);
        Self { hash, key: key.into(), spine: AtomicPtr::new(leak(spine)) }
    }

    /// Whether this is the entry of the key.
    pub(crate) fn is_of(&self, hash: u64, key: &[u8]) -> bool {
        self.hash == hash && *self.key == *key
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The spine as it is now. The caller holds a guard or the lock, for as long as it borrows.
    #[inline]
    pub(crate) fn spine(&self) -> &Spine {
        // Acquire: pairs with the Release in `replace_spine`, and with the publication of the
        // entry for the first spine.
        // SAFETY: never null, and freed by the epoch collector after it was replaced.
        unsafe { &*self.spine.load(Ordering::Acquire) }
    }

    /// Bytes that the entry takes with all it points to except rows.
    pub(crate) fn memory_bytes(&self) -> usize {
        let spine = self.spine();
        let chunks = (0..spine.len()).map(|at| spine.chunk(at).memory_bytes()).sum::<usize>();
        size_of::<Self>() + self.key.len() + spine.memory_bytes() + chunks
    }

    /// Inserts a row, under the shard's lock. Returns by how many bytes the entry grew.
    pub(crate) fn insert(&self, event_time: i64, row: RowHandle, guard: &Guard) -> usize {
        let spine = self.spine();
        let position = (event_time, row.get().arrival());
        let last = spine.len() - 1;
        let newest = spine.chunk(last);
        if newest.filled().last().is_some_and(|slot| slot.is_at_or_before(position)) {
            return match newest.append(event_time, row) {
                Ok(()) => 0,
                Err(row) => self.push_chunk(event_time, row, guard),
            };
        }
        let at = if newest.oldest().is_at_or_before(position) {
            last
        } else {
            // The oldest chunk takes what is older than everything.
            spine.partition_point(last, |slot| slot.is_at_or_before(position)).saturating_sub(1)
        };
        self.insert_late(at, event_time, row, guard)
    }

    /// Opens a chunk for a row that is newer than every other.
    fn push_chunk(&self, event_time: i64, row: RowHandle, guard: &Guard) -> usize {
        let spine = self.spine();
        let newest = spine.chunk(spine.len() - 1);
        let capacity = (newest.capacity() * 4).clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX);
        let arrival = row.get().arrival();
        let chunk = Chunk::new(&[(event_time, row.into_raw())], capacity, arrival);
        let grown = chunk.memory_bytes();
        let Err(chunk) = spine.push(leak(chunk)) else { return grown };
        let mut chunks = spine.pointers();
        chunks.push(chunk);
        let before = spine.memory_bytes();
        let capacity = chunks.len().next_power_of_two();
        grown + self.replace_spine(&chunks, capacity, guard) - before
    }

    /// Copies the chunk that a late row belongs to.
    fn insert_late(&self, at: usize, event_time: i64, row: RowHandle, guard: &Guard) -> usize {
        let spine = self.spine();
        let chunk = spine.chunk(at);
        let position = (event_time, row.get().arrival());
        let slots = chunk.filled();
        let rank = slots.partition_point(|slot| slot.is_at_or_before(position));
        let mut items: Vec<Item> = Vec::with_capacity(slots.len() + 1);
        items.extend(slots[..rank].iter().map(Slot::item));
        items.push((event_time, row.into_raw()));
        items.extend(slots[rank..].iter().map(Slot::item));

        let arrival_max = chunk.arrival_max().max(position.1);
        let before = chunk.memory_bytes();
        let is_newest = at + 1 == spine.len();
        if items.len() <= CHUNK_ROWS_MAX {
            let copy = Chunk::new(&items, capacity(items.len(), is_newest), arrival_max);
            let grown = copy.memory_bytes().wrapping_sub(before);
            let replaced = spine.replace(at, leak(copy));
            retire(replaced, guard);
            return grown;
        }
        let (older, newer) = items.split_at(items.len() / 2);
        let older = Chunk::new(older, older.len(), arrival_max);
        let newer = Chunk::new(newer, capacity(newer.len(), is_newest), arrival_max);
        let chunks_after = older.memory_bytes() + newer.memory_bytes();
        let mut chunks = spine.pointers();
        let spine_before = spine.memory_bytes();
        let replaced = std::mem::replace(&mut chunks[at], leak(older));
        chunks.insert(at + 1, leak(newer));
        let capacity = chunks.len().next_power_of_two();
        let spine_after = self.replace_spine(&chunks, capacity, guard);
        retire(replaced, guard);
        (chunks_after + spine_after).wrapping_sub(before + spine_before)
    }

    /// Removes the rows that `keep` does not keep, asked newest first. Under the shard's lock.
    pub(crate) fn retain(
        &self,
        keep: &mut dyn FnMut(i64, RowRef<'_>) -> bool,
        guard: &Guard,
    ) -> Retained {
        let spine = self.spine();
        // For each chunk, newest first: a bit for each slot that is kept.
        let mut masks: Vec<u128> = Vec::with_capacity(spine.len());
        let mut removed_count = 0;
        let mut is_any_kept = false;
        for at in (0..spine.len()).rev() {
            let mut mask = 0;
            for (slot_at, slot) in spine.chunk(at).filled().iter().enumerate().rev() {
                if keep(slot.event_time(), slot.row()) {
                    mask |= 1 << slot_at;
                } else {
                    removed_count += 1;
                }
            }
            is_any_kept |= mask != 0;
            masks.push(mask);
        }
        if removed_count == 0 {
            return Retained::Some(0);
        }
        if !is_any_kept {
            return Retained::None(removed_count);
        }
        masks.reverse();
        self.keep_only(&masks, guard);
        Retained::Some(removed_count)
    }

    /// Makes a spine of the rows that were kept: of each chunk those whose bit is set.
    fn keep_only(&self, masks: &[u128], guard: &Guard) {
        let spine = self.spine();
        let mut chunks = Vec::new();
        let mut replaced = Vec::new();
        let mut removed = Vec::new();
        for (at, mask) in masks.iter().enumerate() {
            let chunk = spine.chunk(at);
            let slots = chunk.filled().iter().enumerate();
            let (kept, gone): (Vec<_>, Vec<_>) =
                slots.partition(|(slot_at, _)| mask & (1 << slot_at) != 0);
            if gone.is_empty() {
                chunks.push(spine.pointer(at));
                continue;
            }
            replaced.push(spine.pointer(at));
            removed.extend(gone.into_iter().map(|(_, slot)| slot.raw()));
            if !kept.is_empty() {
                let items: Vec<Item> = kept.into_iter().map(|(_, slot)| slot.item()).collect();
                let capacity = capacity(items.len(), at + 1 == spine.len());
                chunks.push(leak(Chunk::new(&items, capacity, chunk.arrival_max())));
            }
        }
        self.replace_spine(&chunks, chunks.len(), guard);
        for chunk in replaced {
            retire(chunk, guard);
        }
        for row in removed {
            // SAFETY: no spine that is still linked leads to the row, so no reader that comes
            // later can reach it; the slot's handle is taken back once.
            unsafe { guard.defer_unchecked(move || drop(RowHandle::from_raw(row))) };
        }
    }

    /// Puts another spine in place and returns the bytes it takes.
    fn replace_spine(&self, chunks: &[*mut Chunk], capacity: usize, guard: &Guard) -> usize {
        let spine = Spine::new(chunks, capacity);
        let bytes = spine.memory_bytes();
        // Release: pairs with the Acquire in `spine`.
        retire(self.spine.swap(leak(spine), Ordering::Release), guard);
        bytes
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: the entry is unlinked and no reader is left, so this is the only way to its
        // spine and chunks; each filled slot holds a handle.
        unsafe {
            let spine = Box::from_raw(*self.spine.get_mut());
            for at in 0..spine.len() {
                let chunk = Box::from_raw(spine.pointer(at));
                for slot in chunk.filled() {
                    drop(RowHandle::from_raw(slot.raw()));
                }
            }
        }
    }
}

impl Spine {
    fn new(chunks: &[*mut Chunk], capacity: usize) -> Self {
        assert!(!chunks.is_empty(), "a key has rows");
        let empty = (chunks.len()..capacity).map(|_| ptr::null_mut());
        let chunks_filled = chunks.iter().copied().chain(empty).map(AtomicPtr::new).collect();
        Self { len: AtomicUsize::new(chunks.len()), chunks: chunks_filled }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.chunks.len() * size_of::<*mut Chunk>()
    }

    /// How many chunks there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.len.load(Ordering::Acquire)
    }

    /// A chunk below the length. The caller holds a guard or the lock, for as long as it borrows.
    #[inline]
    pub(crate) fn chunk(&self, at: usize) -> &Chunk {
        // SAFETY: not null below the length, and freed by the epoch collector after it was
        // replaced.
        unsafe { &*self.pointer(at) }
    }

    #[inline]
    fn pointer(&self, at: usize) -> *mut Chunk {
        // Acquire: pairs with the Release in `replace`, and with `len` for the first chunk.
        let pointer = self.chunks[at].load(Ordering::Acquire);
        debug_assert!(!pointer.is_null(), "below the length there are chunks");
        pointer
    }

    /// How many of the first `count` chunks have an oldest row for which `is_before` holds; it
    /// holds for a prefix.
    #[inline]
    pub(crate) fn partition_point(&self, count: usize, is_before: impl Fn(&Slot) -> bool) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.chunk(middle).oldest()) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn pointers(&self) -> Vec<*mut Chunk> {
        (0..self.len()).map(|at| self.pointer(at)).collect()
    }

    /// Appends a chunk unless the spine is full. Under the lock.
    fn push(&self, chunk: *mut Chunk) -> Result<(), *mut Chunk> {
        // Relaxed: only the holder of the lock writes.
        let len = self.len.load(Ordering::Relaxed);
        let Some(slot) = self.chunks.get(len) else { return Err(chunk) };
        // Release: pairs with the Acquire in `pointer`.
        slot.store(chunk, Ordering::Release);
        // Release: pairs with the Acquire in `len`.
        self.len.store(len + 1, Ordering::Release);
        Ok(())
    }

    /// Replaces a chunk. Under the lock.
    fn replace(&self, at: usize, chunk: *mut Chunk) -> *mut Chunk {
        // Release: pairs with the Acquire in `pointer`.
        self.chunks[at].swap(chunk, Ordering::Release)
    }
}

/// The capacity of a copy: only the newest chunk of a key is appended to.
fn capacity(len: usize, is_newest: bool) -> usize {
    if is_newest { len.next_power_of_two().clamp(CHUNK_ROWS_MIN, CHUNK_ROWS_MAX) } else { len }
}

const _: () = assert!(CHUNK_ROWS_MAX <= 128, "`retain` has a bit for each slot");

fn leak<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees a spine or a chunk that was unlinked when no reader can hold it any more.
fn retire<T>(unlinked: *mut T, guard: &Guard) {
    // SAFETY: it came out of `leak`, was unlinked just now by the holder of the lock, and is not
    // retired again. It owns no rows (rule 6).
    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(unlinked))) };
}
