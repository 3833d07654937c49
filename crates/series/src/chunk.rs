//! A run of a key's rows, oldest first, to which newer rows can be appended.
//!
//! `entry` writes it under the shard's lock; `key_rows` reads it. Which field may be touched in
//! which state is rule 2 of the crate's protocol.

use std::{
    cmp,
    sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

use crate::{RowHandle, RowRef, row_handle::Header};

/// The most rows of a chunk: a late row copies at most this many slots of 16 bytes, and a bit for
/// each fits 128 bits.
pub(crate) const CHUNK_ROWS_MAX: usize = 128;
/// The rows of a key's first chunk: most keys have few rows.
pub(crate) const CHUNK_ROWS_MIN: usize = 4;

/// Where a row stands among the rows of its key: by event time, then by arrival.
pub(crate) type Position = (i64, u64);

/// A row and its event time, by value; owns no handle.
pub(crate) type Item = (i64, *mut Header);

/// A run of rows.
pub(crate) struct Chunk {
    /// How many slots are filled. Grows only.
    len: AtomicUsize,
    /// At least the greatest arrival of the filled slots.
    arrival_max: AtomicU64,
    slots: Box<[Slot]>,
}

/// A row in the chunk. Written once; zero and null before.
pub(crate) struct Slot {
    event_time: AtomicI64,
    row: AtomicPtr<Header>,
}

impl Chunk {
    /// Makes a chunk with some rows in it, already in order, and room for `capacity`. None of
    /// the rows has an arrival greater than `arrival_max`.
    pub(crate) fn new(items: &[Item], capacity: usize, arrival_max: u64) -> Self {
        assert!(!items.is_empty(), "a chunk is never empty");
        assert!(items.len() <= capacity, "a chunk has room for its rows");
        assert!(capacity <= CHUNK_ROWS_MAX, "a chunk is cheap to copy");
        let mut slots = Vec::with_capacity(capacity);
        slots.extend(items.iter().map(|(event_time, row)| Slot {
            event_time: AtomicI64::new(*event_time),
            row: AtomicPtr::new(*row),
        }));
        slots.resize_with(capacity, || Slot {
            event_time: AtomicI64::new(0),
            row: AtomicPtr::default(),
        });
        // By event time alone: the arrivals are in the rows, which a copy need not touch.
        debug_assert!(items.is_sorted_by_key(|(event_time, _)| *event_time), "rows are in order");
        Self {
            len: AtomicUsize::new(items.len()),
            arrival_max: AtomicU64::new(arrival_max),
            slots: slots.into(),
        }
    }

    /// Bytes that a chunk of this capacity takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.slots.len() * size_of::<Slot>()
    }

    /// How many rows fit.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The filled slots, oldest first. Never empty.
    #[inline]
    pub(crate) fn filled(&self) -> &[Slot] {
        // Acquire: pairs with the Release in `append`; the slots below were written before it.
        &self.slots[..self.len.load(Ordering::Acquire)]
    }

    /// The oldest row's slot.
    #[inline]
    pub(crate) fn oldest(&self) -> &Slot {
        &self.slots[0]
    }

    /// No filled slot holds a row of a greater arrival; possibly nor one that is equal.
    #[inline]
    pub(crate) fn arrival_max(&self) -> u64 {
        // Relaxed: it was stored before the length that the reader loaded with Acquire.
        self.arrival_max.load(Ordering::Relaxed)
    }

    /// Appends a row that is newer than every row here, and takes the handle, unless the chunk is
    /// full. Under the shard's lock.
    pub(crate) fn append(&self, event_time: i64, row: RowHandle) -> Result<(), RowHandle> {
        // Relaxed: only the holder of the lock writes.
        let len = self.len.load(Ordering::Relaxed);
        let Some(slot) = self.slots.get(len) else { return Err(row) };
        let arrival_max = self.arrival_max().max(row.get().arrival());
        // Relaxed: all three are published by the length.
        self.arrival_max.store(arrival_max, Ordering::Relaxed);
        slot.event_time.store(event_time, Ordering::Relaxed);
        slot.row.store(row.into_raw(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `filled`.
        self.len.store(len + 1, Ordering::Release);
        Ok(())
    }
}

impl Slot {
    #[inline]
    pub(crate) fn event_time(&self) -> i64 {
        // Relaxed: a filled slot does not change, and the length was loaded with Acquire.
        self.event_time.load(Ordering::Relaxed)
    }

    /// The row. The caller has found the slot filled and holds a guard or the lock.
    #[inline]
    pub(crate) fn row(&self) -> RowRef<'_> {
        // Relaxed: as above.
        // SAFETY: the slot is filled, so it holds a row that was given away with `into_raw`. It
        // is released only through the epoch collector after it cannot be reached any more, and
        // the slot is borrowed no longer than the caller's guard or lock.
        unsafe { RowRef::from_raw(self.raw()) }
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut Header {
        // Relaxed: as above.
        self.row.load(Ordering::Relaxed)
    }

    /// Whether the row is at this position or older.
    #[inline]
    pub(crate) fn is_at_or_before(&self, position: Position) -> bool {
        match self.event_time().cmp(&position.0) {
            cmp::Ordering::Less => true,
            // Only now is the row touched.
            cmp::Ordering::Equal => self.row().arrival() <= position.1,
            cmp::Ordering::Greater => false,
        }
    }

    /// Asks for the row's first cache line: rows of one key are scattered over the heap, and a
    /// reader that waits for each in turn spends most of its time waiting.
    #[inline]
    pub(crate) fn prefetch_row(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.raw().cast_const().cast()) };
        }
    }

    pub(crate) fn item(&self) -> Item {
        (self.event_time(), self.raw())
    }
}
