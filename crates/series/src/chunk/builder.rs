//! Making a chunk: rows are collected in order, from other chunks or new, and written at once.
//!
//! `entry` builds chunks under the shard's lock. Nobody else can reach a chunk that is being made.

use std::{
    alloc::{alloc, handle_alloc_error},
    marker::PhantomData,
    ops::Range,
    ptr::NonNull,
    slice,
};

use super::{
    Chunk, KeyRow,
    layout::{
        CAPACITY_SHIFT, ChunkHeader, RECORDS_SHIFT, SlotLayout, WIDE_SHIFT, allocation_layout,
        capacity_for, is_wide, split_address,
    },
    view::Slots,
};
use crate::{
    record::{RECORD_SIZE_MAX, RecordFormat},
    row_ref::{ARRIVAL_MAX, RowRef},
    sync::{AtomicU64, Ordering, Trace},
};

/// The rows of a chunk that is to be made, oldest first.
#[derive(Default)]
pub(crate) struct ChunkBuilder<'a> {
    pieces: Vec<ChunkPiece<'a>>,
    len: usize,
}

/// The demands on a chunk that is made, beside its rows.
#[derive(Clone, Copy)]
pub(crate) struct ChunkSpec {
    /// The number of rows for which there is space at least.
    pub(crate) capacity_min: usize,
    /// An upper bound of the rows' arrivals.
    pub(crate) arrival_max: u64,
}

/// Rows that follow each other.
#[derive(Clone)]
enum ChunkPiece<'a> {
    /// Slots of another chunk, with their records.
    Stored(Slots<'a>, Range<usize>),
    /// A slot of another chunk, with its record, whose row is stored elsewhere from now on.
    Moved(Slots<'a>, usize, RowRef<'a>),
    /// A row of which no chunk has the record.
    New(KeyRow<'a>),
}

impl ChunkPiece<'_> {
    /// Returns the number of rows.
    fn len(&self) -> usize {
        match self {
            Self::Stored(_, slots) => slots.len(),
            Self::Moved(..) | Self::New(_) => 1,
        }
    }

    /// Returns the event time of the first row.
    fn oldest(&self) -> i64 {
        match self {
            Self::Stored(slots, range) => slots.event_time(range.start),
            Self::Moved(slots, at, _) => slots.event_time(*at),
            Self::New(row) => row.event_time,
        }
    }

    /// Returns the event time of the last row.
    fn newest(&self) -> i64 {
        match self {
            Self::Stored(slots, range) => slots.event_time(range.end - 1),
            _ => self.oldest(),
        }
    }
}

impl<'a> ChunkBuilder<'a> {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.len = 0;
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: KeyRow<'a>) {
        self.pieces.push(ChunkPiece::New(row));
        self.len += 1;
    }

    /// Appends filled slots, of which there may be none.
    pub(crate) fn push_slots(&mut self, slots: &Slots<'a>, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.len += range.len();
        match self.pieces.last_mut() {
            Some(ChunkPiece::Stored(last, before))
                if last.times == slots.times && before.end == range.start =>
            {
                before.end = range.end;
            }
            _ => self.pieces.push(ChunkPiece::Stored(*slots, range)),
        }
    }

    /// Appends a filled slot that is to lead to `row`, which is equal to the row it leads to now.
    pub(crate) fn push_slot(&mut self, slots: &Slots<'a>, at: usize, row: RowRef<'a>) {
        if slots.row(at).address() == row.address() {
            self.push_slots(slots, at..at + 1);
        } else {
            self.pieces.push(ChunkPiece::Moved(*slots, at, row));
            self.len += 1;
        }
    }

    /// Removes the last `count` rows and returns them. Linear in what it removes.
    pub(crate) fn split_end(&mut self, count: usize) -> Self {
        assert!(count <= self.len, "only existing rows are split off");
        let (mut taken, mut kept) = (0, self.pieces.len());
        while taken < count {
            kept -= 1;
            taken += self.pieces[kept].len();
        }
        let mut end = Self { pieces: self.pieces.split_off(kept), len: count };
        self.len -= count;
        if let (Some(ChunkPiece::Stored(slots, range)), stays @ 1..) =
            (end.pieces.first_mut(), taken - count)
        {
            let middle = range.start + stays;
            self.pieces.push(ChunkPiece::Stored(*slots, range.start..middle));
            range.start = middle;
        }
        debug_assert_eq!(end.pieces.iter().map(ChunkPiece::len).sum::<usize>(), end.len);
        end
    }

    /// Makes a chunk of the rows, of which there is one at least, and gives it away. None of them
    /// has an arrival greater than the specified one. Slots that are copied have records if the
    /// series has a record format, and none otherwise.
    pub(crate) fn build(&self, spec: ChunkSpec, format: Option<&RecordFormat>) -> *mut ChunkHeader {
        let ChunkSpec { capacity_min, arrival_max } = spec;
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            panic!("a chunk is never empty");
        };
        let (oldest, newest) = (first.oldest(), last.newest());
        assert!(self.len <= capacity_min, "a chunk has space for its rows");
        debug_assert!(
            self.pieces.is_sorted_by(|one, other| one.newest() <= other.oldest()),
            "rows are in order"
        );
        let is_wide = is_wide(oldest, newest);
        let record_size = format.map_or(0, RecordFormat::size);
        let layout = SlotLayout { is_wide, record_size };
        let capacity = capacity_for(capacity_min, layout);
        let allocation = allocation_layout(capacity, layout);
        // SAFETY: the layout holds a header, so it is not empty.
        let allocated = unsafe { alloc(allocation) }.cast::<ChunkHeader>();
        let Some(header) = NonNull::new(allocated) else { handle_alloc_error(allocation) };
        let state = arrival_max.min(ARRIVAL_MAX)
            | u64::try_from(capacity - 1).expect("small") << CAPACITY_SHIFT
            | u64::from(is_wide) << WIDE_SHIFT
            | u64::from(layout.record_size > 0) << RECORDS_SHIFT;
        let (state, trace) = (AtomicU64::new(state), Trace::new(capacity));
        // SAFETY: the allocation holds a header and, if there are records, their size after it;
        // it is aligned for both.
        unsafe {
            header.write(ChunkHeader { base: oldest, state, trace });
            if layout.record_size > 0 {
                let size = u64::try_from(layout.record_size).expect("a record is small");
                header.add(1).cast::<u64>().write(size);
            }
        }
        let chunk = Chunk { header, _chunk: PhantomData };
        // SAFETY: the header was written above.
        let (state, trace) = unsafe { (&header.as_ref().state, &header.as_ref().trace) };
        // Relaxed: no other thread knows the chunk.
        let view = chunk.view_of(state.load(Ordering::Relaxed));
        (0..self.len).for_each(|at| trace.written(at));
        // SAFETY: no other thread knows the chunk, which has space for the rows.
        unsafe { view.write_pieces(&self.pieces, format) };
        chunk.publish(self.len, 0);
        header.as_ptr()
    }
}

impl Slots<'_> {
    /// Writes a slot, without its record.
    ///
    /// # Safety
    ///
    /// There is space, the event time fits, and no other thread reads or writes the slot.
    #[inline]
    pub(super) unsafe fn write(&self, at: usize, event_time: i64, row: RowRef<'_>) {
        let address = row.address();
        // SAFETY: the columns have space for `capacity` slots, and the caller's promise.
        unsafe {
            if self.is_wide {
                self.times.cast::<i64>().add(at).write(event_time);
            } else {
                let distance = u32::try_from(event_time - self.base).expect("it was measured");
                self.times.cast::<u32>().add(at).write(distance);
            }
            let (low, high) = split_address(address);
            self.low.cast_mut().add(at).write(low);
            self.high.cast_mut().add(at).write(high);
        }
    }

    /// Makes the record of a row and writes it beside a slot of a chunk that has records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`].
    pub(super) unsafe fn write_record(&self, slot: usize, row: RowRef<'_>, format: &RecordFormat) {
        let mut buffer = [0; RECORD_SIZE_MAX];
        let record = format.record(row, &mut buffer);
        let capacity = self.slot_capacity();
        assert_eq!(record.len(), format.size(), "all records of a series are of one size");
        assert_eq!(self.record_size(), format.size(), "there is space for them");
        debug_assert!(slot < capacity, "a slot is within its chunk");
        for field in format.fields() {
            let (offset, width) = (field.offset, field.width);
            // SAFETY: there is space for `capacity` records, and the caller's promise.
            unsafe {
                let to = self.records.add(capacity * offset + slot * width);
                to.copy_from_nonoverlapping(record[offset..offset + width].as_ptr(), width);
            }
        }
    }

    /// Writes the first slots of a chunk, with their records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for as many slots as the pieces have rows.
    unsafe fn write_pieces(&self, pieces: &[ChunkPiece<'_>], format: Option<&RecordFormat>) {
        let mut slot = 0;
        for piece in pieces {
            // SAFETY: the caller's promise.
            unsafe {
                match piece {
                    ChunkPiece::Stored(from, slots) => {
                        self.copy_slots(slot, from, slots.clone());
                        self.copy_records(slot, from, slots.clone(), format);
                    }
                    ChunkPiece::Moved(from, at, row) => {
                        self.write(slot, from.event_time(*at), *row);
                        self.copy_records(slot, from, *at..at + 1, format);
                    }
                    ChunkPiece::New(row) => {
                        self.write(slot, row.event_time, row.row);
                        if let Some(format) = format {
                            self.write_record(slot, row.row, format);
                        }
                    }
                }
            }
            slot += piece.len();
        }
    }

    /// Copies filled slots of another chunk, or of an entry of one row, without their records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for each of the slots.
    unsafe fn copy_slots(&self, to: usize, from: &Slots<'_>, slots: Range<usize>) {
        let (start, count) = (slots.start, slots.len());
        // SAFETY: the columns of both have space for these slots, and the caller's promise: what is
        // written to is a chunk that no other thread reads yet.
        unsafe {
            match (self.is_wide, from.is_wide) {
                (true, true) => {
                    let times = from.times.cast::<i64>().add(start);
                    self.times.cast::<i64>().add(to).copy_from_nonoverlapping(times, count);
                }
                (false, false) if self.base == from.base => {
                    let times = from.times.cast::<u32>().add(start);
                    self.times.cast::<u32>().add(to).copy_from_nonoverlapping(times, count);
                }
                (false, false) => {
                    // The distance from another base fits 32 bits, so it may be computed in them.
                    let shift = from.base.wrapping_sub(self.base).cast_unsigned();
                    let shift = u32::try_from(shift & u64::from(u32::MAX)).expect("masked");
                    let times = slice::from_raw_parts(from.times.cast::<u32>().add(start), count);
                    let own = self.times.cast::<u32>().add(to);
                    for (at, time) in times.iter().enumerate() {
                        own.add(at).write(time.wrapping_add(shift));
                    }
                }
                _ => {
                    for at in 0..count {
                        self.write(to + at, from.event_time(start + at), from.row(start + at));
                    }
                    return;
                }
            }
            let (low, high) = (self.low.cast_mut().add(to), self.high.cast_mut().add(to));
            low.copy_from_nonoverlapping(from.low.add(start), count);
            high.copy_from_nonoverlapping(from.high.add(start), count);
        }
    }

    /// Copies the records of filled slots of another chunk, where the series has records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for each of the slots.
    unsafe fn copy_records(
        &self,
        to: usize,
        from: &Slots<'_>,
        slots: Range<usize>,
        format: Option<&RecordFormat>,
    ) {
        let Some(format) = format else { return };
        assert_eq!(from.record_size(), format.size(), "all chunks of a series have records");
        for field in format.fields() {
            // SAFETY: all records of a series have the same fields; there is space for `capacity`
            // records, and the caller's promise.
            unsafe {
                let values = from.field(slots.clone(), field);
                let start = self.slot_capacity() * field.offset + to * field.width;
                self.records.add(start).copy_from_nonoverlapping(values.as_ptr(), values.len());
            }
        }
    }
}
