//! Reading a chunk: the slots that were filled at one moment, and their event times, rows and
//! records.
//!
//! `series_rows` and `entry` read through it. Whoever has a view holds a guard or the shard's lock,
//! which keeps the chunk from being freed.

use std::{
    cmp,
    marker::PhantomData,
    ops::{Deref, Range},
    ptr, slice,
};

use super::{
    KeyRow,
    layout::{ChunkHeader, SlotLayout},
};
use crate::{
    record::RecordField,
    row_ref::{ARRIVAL_MAX, RowRef},
};

/// The filled slots of a chunk at one moment, oldest first; or the one row of a key that has no
/// chunk.
#[derive(Clone, Copy)]
pub(crate) struct ChunkView<'a> {
    pub(super) slots: Slots<'a>,
    pub(super) len: usize,
    pub(super) capacity: usize,
    /// No slot holds a row of a greater arrival; possibly none holds one that is equal.
    pub(super) arrival_max: u64,
}

/// The columns of a chunk's slots. Whoever reads a slot has found it filled.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    pub(super) base: i64,
    pub(super) times: *mut u8,
    pub(super) low: *const u32,
    pub(super) high: *const u16,
    /// Null where there are none; their size is written before the event times.
    pub(super) records: *mut u8,
    pub(super) is_wide: bool,
    pub(super) _chunk: PhantomData<&'a ChunkHeader>,
}

impl<'a> Deref for ChunkView<'a> {
    type Target = Slots<'a>;

    #[inline]
    fn deref(&self) -> &Slots<'a> {
        &self.slots
    }
}

/// The distance from the base of the only event time.
static ZERO: u32 = 0;

impl<'a> ChunkView<'a> {
    /// Returns a view without rows.
    pub(crate) fn empty() -> Self {
        ChunkView { len: 0, ..ChunkView::single(0, &ZERO, &0) }
    }

    /// Returns a view of one row, whose address is written in two parts.
    #[inline]
    pub(crate) fn single(event_time: i64, low: &'a u32, high: &'a u16) -> Self {
        let slots = Slots {
            base: event_time,
            times: (&raw const ZERO).cast::<u8>().cast_mut(),
            low,
            high,
            records: ptr::null_mut(),
            is_wide: false,
            _chunk: PhantomData,
        };
        Self { slots, len: 1, capacity: 1, arrival_max: ARRIVAL_MAX }
    }

    /// Returns the number of rows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns an upper bound of the rows' arrivals.
    #[inline]
    pub(crate) fn arrival_max(&self) -> u64 {
        self.arrival_max
    }

    /// Returns the number of slots for which the chunk has space.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the columns of the slots.
    #[inline]
    pub(crate) fn slots(&self) -> Slots<'a> {
        self.slots
    }
}

impl<'a> Slots<'a> {
    /// Returns the event time of a filled slot.
    #[inline]
    pub(crate) fn event_time(&self, at: usize) -> i64 {
        // SAFETY: the slot is filled, and the column has the width that the state says.
        unsafe {
            if self.is_wide {
                self.times.cast::<i64>().add(at).read()
            } else {
                self.base + i64::from(self.times.cast::<u32>().add(at).read())
            }
        }
    }

    /// Returns the row of a filled slot, which is not touched.
    #[inline]
    pub(crate) fn row(&self, at: usize) -> RowRef<'a> {
        // SAFETY: the slot is filled, so it leads to a row, which is freed only after the guards
        // are gone that existed when nothing led to it any more (`Series::insert`), or with the page
        // that has the chunk and is borrowed.
        unsafe {
            let address = u64::from(self.high.add(at).read()) << 32;
            RowRef::from_address(address | u64::from(self.low.add(at).read()))
        }
    }

    /// Returns whether the chunk has records.
    #[inline]
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_null()
    }

    /// Returns the bytes of a record; 0 where there are none.
    pub(super) fn record_size(&self) -> usize {
        if !self.has_records() {
            return 0;
        }
        // SAFETY: the size is written before the event times where there are records.
        let size = unsafe { self.times.cast::<u64>().sub(1).read() };
        usize::try_from(size).expect("a record is small")
    }

    /// Returns the values of a field of the records of filled slots, oldest first, one after the
    /// other. There are records.
    ///
    /// # Safety
    ///
    /// The records have such a field.
    #[inline]
    pub(crate) unsafe fn field(&self, slots: Range<usize>, field: RecordField) -> &'a [u8] {
        let RecordField { offset, width } = field;
        debug_assert!(self.has_records(), "a field is read from a chunk with records");
        debug_assert!(slots.end <= self.slot_capacity(), "slots are within the chunk");
        debug_assert!(offset + width <= self.record_size(), "a field is within its record");
        // SAFETY: the slots are filled, and their records were written before they were published;
        // the values of a field follow each other.
        unsafe {
            let start = self.records.add(self.slot_capacity() * offset + slots.start * width);
            slice::from_raw_parts(start, slots.len() * width)
        }
    }

    /// Returns the number of slots for which there is space. There are records.
    #[inline]
    pub(super) fn slot_capacity(&self) -> usize {
        (self.high.addr() - self.low.addr()) / size_of::<u32>()
    }

    /// Returns the widths of the columns.
    pub(super) fn layout(&self) -> SlotLayout {
        SlotLayout { is_wide: self.is_wide, record_size: self.record_size() }
    }

    /// Returns whether the row at `at` is `row`, or before it in the key's order.
    #[inline]
    pub(crate) fn is_at_or_before_row(&self, at: usize, row: &KeyRow<'_>) -> bool {
        self.is_at_or_before(at, row.event_time, || row.row.arrival())
    }

    /// Returns whether the row at `at` has this event time and arrival, or earlier ones.
    #[inline]
    pub(crate) fn is_at_or_before(
        &self,
        at: usize,
        event_time: i64,
        arrival: impl FnOnce() -> u64,
    ) -> bool {
        match self.event_time(at).cmp(&event_time) {
            cmp::Ordering::Less => true,
            // Only now are the rows touched.
            cmp::Ordering::Equal => self.row(at).arrival() <= arrival(),
            cmp::Ordering::Greater => false,
        }
    }

    /// Counts the first `count` slots for which `is_before` holds; it holds for a prefix.
    #[inline]
    pub(crate) fn partition_point(
        &self,
        count: usize,
        is_before: impl Fn(&Self, usize) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self, middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        debug_assert!(low <= count, "a prefix of the slots");
        low
    }
}
