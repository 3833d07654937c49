//! A chunk: some rows of a key, oldest first, to which newer rows can be appended.
//!
//! `entry` writes it under the shard's lock; `series_rows` reads. Which part may be touched when is
//! rule 2 of the crate's protocol.

mod builder;
mod layout;
mod view;

use std::{
    alloc::dealloc,
    marker::PhantomData,
    ptr::{self, NonNull},
};

pub(crate) use builder::{ChunkBuilder, ChunkSpec};
pub(crate) use layout::{ChunkHeader, SlotLayout, capacity_for, chunk_footprint, split_address};
pub(crate) use view::{ChunkView, Slots};

use crate::{
    record::{RecordField, RecordFormat},
    row_ref::{ARRIVAL_MAX, RowRef, prefetch},
    sync::{CHUNK_ROWS_MAX, Ordering},
};
use layout::{
    CAPACITY_MASK, CAPACITY_SHIFT, LEN_SHIFT, RECORD_SIZE_SIZE, RECORDS_SHIFT, WIDE_SHIFT,
    allocation_layout, is_wide,
};

/// The order of a key's rows: by event time, then by arrival.
pub(crate) type Position = (i64, u64);

/// A row and its event time in the index.
#[derive(Debug, Clone, Copy)]
pub struct KeyRow<'g> {
    /// The event time in milliseconds; NULL is `i64::MIN`.
    pub event_time: i64,
    /// The row.
    pub row: RowRef<'g>,
}

impl KeyRow<'_> {
    /// Returns the row's position in the order of its key.
    pub(crate) fn position(&self) -> Position {
        (self.event_time, self.row.arrival())
    }
}

/// Bytes of a cache line.
const LINE_SIZE: usize = 64;

/// A reference to a chunk. Its holder has a guard or the shard's lock for `'a`, or borrows the page.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    header: NonNull<ChunkHeader>,
    _chunk: PhantomData<&'a ChunkHeader>,
}

impl<'a> Chunk<'a> {
    /// Refers to a chunk that [`ChunkBuilder::build`] gave away.
    ///
    /// # Safety
    ///
    /// It is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(header: *mut ChunkHeader) -> Self {
        // SAFETY: `build` gives no null.
        Self { header: unsafe { NonNull::new_unchecked(header) }, _chunk: PhantomData }
    }

    /// Returns the address of the chunk.
    pub(crate) fn as_raw(self) -> *mut ChunkHeader {
        self.header.as_ptr()
    }

    /// Prefetches the event times of a chunk that is about to be read, and some fields of its
    /// records, from the newest slot on, as if it were full. Offsets follow from the layout, which is
    /// taken to be that of another chunk of the key.
    #[inline]
    pub(crate) fn prefetch(header: *const ChunkHeader, slots: &Slots<'_>, fields: &[RecordField]) {
        let start = header.cast::<u8>();
        prefetch(start);
        let layout = slots.layout();
        let lines = |from: usize, width: usize| {
            for line in (0..CHUNK_ROWS_MAX * width).step_by(LINE_SIZE).rev() {
                prefetch(start.wrapping_add(from + line));
            }
        };
        lines(layout.header_size(), layout.time_size());
        let records = layout.header_size() + CHUNK_ROWS_MAX * (layout.time_size() + 4 + 2);
        for field in fields {
            lines(records + CHUNK_ROWS_MAX * field.offset, field.width);
        }
    }

    /// Prefetches the slots of a chunk that is about to be copied, without records.
    #[inline]
    pub(crate) fn prefetch_slots(self) {
        let start = self.header.as_ptr().cast_const().cast::<u8>();
        let view = self.view();
        let size = SlotLayout { is_wide: view.is_wide, record_size: 0 }.chunk_size(view.capacity);
        for line in (0..size).step_by(LINE_SIZE) {
            prefetch(start.wrapping_add(line));
        }
    }

    /// Frees a chunk that [`ChunkBuilder::build`] gave away.
    ///
    /// # Safety
    ///
    /// No other thread can reach it, and it is freed once.
    pub(crate) unsafe fn free(header: *mut u8) {
        let header = header.cast::<ChunkHeader>();
        // SAFETY: the caller's promise.
        let chunk = unsafe { Chunk::from_raw(header) };
        let view = chunk.view();
        let layout = allocation_layout(view.capacity, view.layout());
        // SAFETY: the header was written by `build`, with the same layout.
        unsafe {
            header.drop_in_place();
            dealloc(header.cast(), layout);
        }
    }

    /// Returns the bytes of memory that the chunk takes.
    pub(crate) fn memory_bytes(self) -> usize {
        let view = self.view();
        chunk_footprint(view.capacity, view.layout())
    }

    /// Returns the rows as they are now. Never empty.
    #[inline]
    pub(crate) fn view(self) -> ChunkView<'a> {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let header = unsafe { self.header.as_ref() };
        // Acquire: pairs with the Release in `publish`; the slots were written before it.
        let view = self.view_of(header.state.load(Ordering::Acquire));
        header.trace.read(view.len);
        view
    }

    /// Returns the rows that a state describes.
    #[inline]
    fn view_of(self, state: u64) -> ChunkView<'a> {
        // SAFETY: whoever has a chunk keeps it from being freed; the base never changes.
        let base = unsafe { (&raw const (*self.header.as_ptr()).base).read() };
        let field = |shift: u32| usize::try_from(state >> shift).expect("addresses have 64 bits");
        let capacity_mask = usize::try_from(CAPACITY_MASK).expect("small");
        let capacity = (field(CAPACITY_SHIFT) & capacity_mask) + 1;
        let is_wide = state >> WIDE_SHIFT & 1 == 1;
        let len = field(LEN_SHIFT) + 1;
        // SAFETY: the columns follow the header in one allocation.
        let after = unsafe { self.header.as_ptr().add(1).cast::<u8>() };
        let has_records = state >> RECORDS_SHIFT & 1 == 1;
        let times = if has_records { after.wrapping_add(RECORD_SIZE_SIZE) } else { after };
        let low = times.wrapping_add(capacity * if is_wide { 8 } else { 4 });
        let high = low.wrapping_add(capacity * 4);
        let records = if has_records { high.wrapping_add(capacity * 2) } else { ptr::null_mut() };
        let slots = Slots {
            base,
            times,
            low: low.cast_const().cast(),
            high: high.cast_const().cast(),
            records,
            is_wide,
            _chunk: PhantomData,
        };
        ChunkView { slots, len, capacity, arrival_max: state & ARRIVAL_MAX }
    }

    /// Appends a row that is newer than every row here. Under the shard's lock. Returns `false` when
    /// it does not fit: the chunk is full, or the event time too far from the base.
    #[must_use]
    pub(crate) fn append(self, row: KeyRow<'_>, format: Option<&RecordFormat>) -> bool {
        let view = self.view();
        let is_near = view.is_wide || !is_wide(view.base, row.event_time);
        if view.len == view.capacity || !is_near {
            return false;
        }
        // SAFETY: the header is valid as long as the chunk.
        unsafe { self.header.as_ref() }.trace.written(view.len);
        // SAFETY: there is space, the lock keeps other writers away, and no reader looks at slots
        // that were not published.
        unsafe {
            view.write(view.len, row.event_time, row.row);
            if let Some(format) = format {
                view.write_record(view.len, row.row, format);
            }
        }
        self.publish(view.len + 1, row.row.arrival());
        true
    }

    /// Publishes the first `len` slots and the greatest arrival in them. Under the shard's lock.
    fn publish(self, len: usize, arrival: u64) {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let state = unsafe { &self.header.as_ref().state };
        // Relaxed: only the holder of the lock writes.
        let before = state.load(Ordering::Relaxed);
        debug_assert!(len > 0 && len <= CHUNK_ROWS_MAX, "a length fits its bits of the state");
        let arrival_max = (before & ARRIVAL_MAX).max(arrival);
        let fixed = CAPACITY_MASK << CAPACITY_SHIFT | 1 << WIDE_SHIFT | 1 << RECORDS_SHIFT;
        let kept = before & fixed;
        let len = u64::try_from(len - 1).expect("small") << LEN_SHIFT;
        // Release: pairs with the Acquire in `view`.
        state.store(len | kept | arrival_max, Ordering::Release);
    }
}
