//! A run of a key's rows, oldest first, to which newer rows can be appended.
//!
//! `entry` writes it under the shard's lock; `key_rows` reads. Which part may be touched when is
//! rule 2 of the crate's protocol.
//!
//! # Layout
//!
//! ```text
//! base i64 | state u64 | [record size u64] | event times: u32 or i64 each
//!     | row addresses, low 32 bits each | high 16 bits each | [fields of records]
//! ```
//!
//! One allocation. The columns have room for `capacity` slots. An event time is written as its
//! distance from the base, the oldest one, in 32 bits, which reaches 49 days; a wide chunk has 64
//! bits for each. The state is, from the low bits: the greatest arrival (48 bits), capacity - 1 (7
//! bits), wide (1 bit), whether there are records (1 bit), length - 1 (7 bits). Everything that
//! grows is in this one word, so that one store publishes it. The fields of records are columns as
//! well, in the order in which they are in a record; a chunk without records has no room for them.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    cmp,
    marker::PhantomData,
    ops::{Deref, Range},
    ptr::{self, NonNull},
    slice,
};

use lockstep_host::memory::{filled, footprint};

use super::{
    record::{Included, RECORD_SIZE_MAX},
    row_ref::{ARRIVAL_MAX, RowRef, prefetch},
    sync::{AtomicU64, CHUNK_ROWS_MAX, Ordering, Trace},
};

const _: () = assert!(CHUNK_ROWS_MAX <= 128, "a capacity has 7 bits, and so has a length");

/// Where a row stands among the rows of its key: by event time, then by arrival.
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
    /// Where the row stands.
    pub(crate) fn position(&self) -> Position {
        (self.event_time, self.row.arrival())
    }
}

/// Rows in order that are to be in a chunk.
#[derive(Default)]
pub(crate) struct Items<'a> {
    pieces: Vec<Piece<'a>>,
    len: usize,
}

/// Rows that follow each other.
#[derive(Clone)]
enum Piece<'a> {
    /// Those of these slots, with their records.
    Stored(Slots<'a>, Range<usize>),
    /// That of this slot, with its record, which lies here from now on.
    Moved(Slots<'a>, usize, RowRef<'a>),
    /// This one, of which no chunk has the record.
    New(KeyRow<'a>),
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Stored(_, slots) => slots.len(),
            Self::Moved(..) | Self::New(_) => 1,
        }
    }

    fn oldest(&self) -> i64 {
        match self {
            Self::Stored(slots, range) => slots.event_time(range.start),
            Self::Moved(slots, at, _) => slots.event_time(*at),
            Self::New(item) => item.event_time,
        }
    }

    fn newest(&self) -> i64 {
        match self {
            Self::Stored(slots, range) => slots.event_time(range.end - 1),
            _ => self.oldest(),
        }
    }
}

impl<'a> Items<'a> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all away.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.len = 0;
    }

    /// Adds one at the end.
    pub(crate) fn push(&mut self, item: KeyRow<'a>) {
        self.pieces.push(Piece::New(item));
        self.len += 1;
    }

    /// Adds filled slots at the end, which may be none.
    pub(crate) fn push_slots(&mut self, slots: &Slots<'a>, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.len += range.len();
        match self.pieces.last_mut() {
            Some(Piece::Stored(last, before))
                if last.times == slots.times && before.end == range.start =>
            {
                before.end = range.end;
            }
            _ => self.pieces.push(Piece::Stored(*slots, range)),
        }
    }

    /// Adds a filled slot at the end, which is to lead to `row`.
    pub(crate) fn push_slot(&mut self, slots: &Slots<'a>, at: usize, row: RowRef<'a>) {
        if slots.row(at).address() == row.address() {
            self.push_slots(slots, at..at + 1);
        } else {
            self.pieces.push(Piece::Moved(*slots, at, row));
            self.len += 1;
        }
    }

    /// Takes the last `count`. Linear in what it takes.
    pub(crate) fn split_end(&mut self, count: usize) -> Self {
        let (mut taken, mut kept) = (0, self.pieces.len());
        while taken < count {
            kept -= 1;
            taken += self.pieces[kept].len();
        }
        let mut end = Self { pieces: self.pieces.split_off(kept), len: count };
        self.len -= count;
        if let (Some(Piece::Stored(slots, range)), stays @ 1..) =
            (end.pieces.first_mut(), taken - count)
        {
            let middle = range.start + stays;
            self.pieces.push(Piece::Stored(*slots, range.start..middle));
            range.start = middle;
        }
        end
    }
}

/// What a slot takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotShape {
    /// Whether event times have 64 bits.
    pub(crate) is_wide: bool,
    /// Bytes of a record; 0 where there are none.
    pub(crate) record_size: usize,
}

impl SlotShape {
    /// Bytes of a slot: event time, low and high part of the address, record.
    const fn slot_size(self) -> usize {
        (if self.is_wide { 8 } else { 4 }) + 4 + 2 + self.record_size
    }

    /// Bytes before the columns.
    const fn head_size(self) -> usize {
        size_of::<Header>() + if self.record_size > 0 { RECORD_SIZE_SIZE } else { 0 }
    }

    /// Bytes of a chunk with room for so many rows.
    const fn size(self, capacity: usize) -> usize {
        self.head_size() + capacity * self.slot_size()
    }
}

/// What precedes the columns.
#[repr(C)]
pub(crate) struct Header {
    base: i64,
    state: AtomicU64,
    trace: Trace,
}

const CAPACITY_SHIFT: u32 = 48;
const WIDE_SHIFT: u32 = 55;
const RECORDS_SHIFT: u32 = 56;
const LEN_SHIFT: u32 = 57;
const CAPACITY_MASK: u64 = 0x7f;
/// Bytes in which the size of a record is written.
const RECORD_SIZE_SIZE: usize = size_of::<u64>();
/// Bytes of a cache line.
const LINE_SIZE: usize = 64;

/// A chunk. Whoever has one holds a guard or the shard's lock for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    header: NonNull<Header>,
    _chunk: PhantomData<&'a Header>,
}

/// Room for `len` rows and for what the allocator would waste otherwise, at most
/// [`CHUNK_ROWS_MAX`].
pub(crate) const fn capacity_for(len: usize, shape: SlotShape) -> usize {
    assert!(len <= CHUNK_ROWS_MAX, "a chunk is cheap to copy");
    let capacity = (filled(shape.size(len)) - shape.head_size()) / shape.slot_size();
    if capacity < CHUNK_ROWS_MAX { capacity } else { CHUNK_ROWS_MAX }
}

/// Bytes of memory that a chunk with room for so many rows takes.
pub(crate) const fn chunk_footprint(capacity: usize, shape: SlotShape) -> usize {
    footprint(shape.size(capacity))
}

/// Whether event times from `oldest` to `newest` need 64 bits each.
fn is_wide(oldest: i64, newest: i64) -> bool {
    newest.checked_sub(oldest).is_none_or(|span| u32::try_from(span).is_err())
}

fn layout(capacity: usize, shape: SlotShape) -> Layout {
    Layout::from_size_align(shape.size(capacity), align_of::<Header>()).expect("a chunk is small")
}

impl<'a> Chunk<'a> {
    /// Makes a chunk of some rows in order, with room for `room` or a few more, and gives it
    /// away. None of the rows has an arrival greater than `arrival_max`. Slots that are copied have
    /// records if columns are included, and none otherwise.
    pub(crate) fn make(
        items: &Items<'_>,
        (room, arrival_max): (usize, u64),
        included: Option<&Included>,
    ) -> *mut Header {
        let (Some(first), Some(last)) = (items.pieces.first(), items.pieces.last()) else {
            panic!("a chunk is never empty");
        };
        let (oldest, newest) = (first.oldest(), last.newest());
        assert!(items.len <= room, "a chunk has room for its rows");
        debug_assert!(
            items.pieces.is_sorted_by(|one, other| one.newest() <= other.oldest()),
            "rows are in order"
        );
        let is_wide = is_wide(oldest, newest);
        let record_size = included.map_or(0, Included::size);
        let shape = SlotShape { is_wide, record_size };
        let capacity = capacity_for(room, shape);
        let layout = layout(capacity, shape);
        // SAFETY: the layout holds a header, so it is not empty.
        let allocated = unsafe { alloc(layout) }.cast::<Header>();
        let Some(header) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let state = arrival_max.min(ARRIVAL_MAX)
            | u64::try_from(capacity - 1).expect("small") << CAPACITY_SHIFT
            | u64::from(is_wide) << WIDE_SHIFT
            | u64::from(shape.record_size > 0) << RECORDS_SHIFT;
        let (state, trace) = (AtomicU64::new(state), Trace::new(capacity));
        // SAFETY: the allocation holds a header and, if there are records, their size after it;
        // it is aligned for both.
        unsafe {
            header.write(Header { base: oldest, state, trace });
            if shape.record_size > 0 {
                let size = u64::try_from(shape.record_size).expect("a record is small");
                header.add(1).cast::<u64>().write(size);
            }
        }
        let chunk = Chunk { header, _chunk: PhantomData };
        // SAFETY: the header was written above.
        let (state, trace) = unsafe { (&header.as_ref().state, &header.as_ref().trace) };
        // Relaxed: nobody else knows the chunk.
        let filled = chunk.filled_by(state.load(Ordering::Relaxed));
        (0..items.len).for_each(|at| trace.written(at));
        // SAFETY: nobody else knows the chunk, which has room.
        unsafe { filled.write_pieces(&items.pieces, included) };
        chunk.publish(items.len, 0);
        header.as_ptr()
    }

    /// A chunk that [`Self::make`] gave away.
    ///
    /// # Safety
    ///
    /// It is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(header: *mut Header) -> Self {
        // SAFETY: `make` gives no null.
        Self { header: unsafe { NonNull::new_unchecked(header) }, _chunk: PhantomData }
    }

    pub(crate) fn as_raw(self) -> *mut Header {
        self.header.as_ptr()
    }

    /// Asks for the event times of a chunk that is about to be read, and for some fields of its
    /// records, each as the place where it begins and its width, from the newest slot on, as if it
    /// were full; what lies where follows from the shape, which is taken to be that of another chunk
    /// of the key.
    #[inline]
    pub(crate) fn prefetch(header: *const Header, slots: &Slots<'_>, fields: &[(usize, usize)]) {
        let start = header.cast::<u8>();
        prefetch(start);
        let shape = slots.shape();
        let time_size = if shape.is_wide { 8 } else { 4 };
        let lines = |from: usize, width: usize| {
            for line in (0..CHUNK_ROWS_MAX * width).step_by(LINE_SIZE).rev() {
                prefetch(start.wrapping_add(from + line));
            }
        };
        lines(shape.head_size(), time_size);
        let records = shape.head_size() + CHUNK_ROWS_MAX * (time_size + 4 + 2);
        for (at, width) in fields {
            lines(records + CHUNK_ROWS_MAX * at, *width);
        }
    }

    /// Asks for the slots of a chunk that is about to be copied, without records.
    #[inline]
    pub(crate) fn prefetch_slots(self) {
        let start = self.header.as_ptr().cast_const().cast::<u8>();
        let filled = self.filled();
        let size = SlotShape { is_wide: filled.is_wide, record_size: 0 }.size(filled.capacity);
        for line in (0..size).step_by(LINE_SIZE) {
            prefetch(start.wrapping_add(line));
        }
    }

    /// Frees a chunk that [`Self::make`] gave away.
    ///
    /// # Safety
    ///
    /// Nobody can reach it any more, and it is freed once.
    pub(crate) unsafe fn free(header: *mut u8) {
        let header = header.cast::<Header>();
        // SAFETY: the caller's promise.
        let chunk = unsafe { Chunk::from_raw(header) };
        let filled = chunk.filled();
        let layout = layout(filled.capacity, filled.shape());
        // SAFETY: the header was written by `make`, with the same layout.
        unsafe {
            header.drop_in_place();
            dealloc(header.cast(), layout);
        }
    }

    /// Bytes of memory that the chunk takes.
    pub(crate) fn memory_bytes(self) -> usize {
        let filled = self.filled();
        chunk_footprint(filled.capacity, filled.shape())
    }

    /// The rows as they are now. Never empty.
    #[inline]
    pub(crate) fn filled(self) -> Filled<'a> {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let header = unsafe { self.header.as_ref() };
        // Acquire: pairs with the Release in `publish`; the slots were written before it.
        let filled = self.filled_by(header.state.load(Ordering::Acquire));
        header.trace.read(filled.len);
        filled
    }

    /// The rows as a state says.
    #[inline]
    fn filled_by(self, state: u64) -> Filled<'a> {
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
        Filled { slots, len, capacity, arrival_max: state & ARRIVAL_MAX }
    }

    /// Appends a row that is newer than every row here. Under the shard's lock. False when it
    /// does not fit: the chunk is full, or the event time too far from the base.
    #[must_use]
    pub(crate) fn append(self, item: KeyRow<'_>, included: Option<&Included>) -> bool {
        let filled = self.filled();
        let is_near = filled.is_wide || !is_wide(filled.base, item.event_time);
        if filled.len == filled.capacity || !is_near {
            return false;
        }
        // SAFETY: the header lives as long as the chunk.
        unsafe { self.header.as_ref() }.trace.written(filled.len);
        // SAFETY: there is room, the lock keeps other writers away, and no reader looks at slots
        // that were not published.
        unsafe {
            filled.write(filled.len, item.event_time, item.row);
            if let Some(included) = included {
                let mut room = [0; RECORD_SIZE_MAX];
                filled.write_record(filled.len, included.record(item.row, &mut room), included);
            }
        }
        self.publish(filled.len + 1, item.row.arrival());
        true
    }

    /// Publishes slots and the arrivals in them. Under the shard's lock.
    fn publish(self, len: usize, arrival: u64) {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let state = unsafe { &self.header.as_ref().state };
        // Relaxed: only the holder of the lock writes.
        let before = state.load(Ordering::Relaxed);
        let arrival_max = (before & ARRIVAL_MAX).max(arrival);
        let fixed = CAPACITY_MASK << CAPACITY_SHIFT | 1 << WIDE_SHIFT | 1 << RECORDS_SHIFT;
        let kept = before & fixed;
        let len = u64::try_from(len - 1).expect("small") << LEN_SHIFT;
        // Release: pairs with the Acquire in `filled`.
        state.store(len | kept | arrival_max, Ordering::Release);
    }
}

/// The filled slots of a chunk at one moment, oldest first; or the one row of a key that has no
/// chunk.
#[derive(Clone, Copy)]
pub(crate) struct Filled<'a> {
    slots: Slots<'a>,
    len: usize,
    capacity: usize,
    /// No slot holds a row of a greater arrival; possibly nor one that is equal.
    arrival_max: u64,
}

/// Where the slots of a chunk are. Whoever asks for one has found it filled.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'a> {
    base: i64,
    times: *mut u8,
    low: *const u32,
    high: *const u16,
    /// Null where there are none; their size lies before the event times.
    records: *mut u8,
    is_wide: bool,
    _chunk: PhantomData<&'a Header>,
}

impl<'a> Deref for Filled<'a> {
    type Target = Slots<'a>;

    #[inline]
    fn deref(&self) -> &Slots<'a> {
        &self.slots
    }
}

/// The distance from the base of the only event time.
static ZERO: u32 = 0;

impl<'a> Filled<'a> {
    /// No rows.
    pub(crate) fn none() -> Self {
        Filled { len: 0, ..Filled::one(0, &ZERO, &0) }
    }

    /// One row, whose address is written in two parts.
    #[inline]
    pub(crate) fn one(event_time: i64, low: &'a u32, high: &'a u16) -> Self {
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

    /// How many rows there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn arrival_max(&self) -> u64 {
        self.arrival_max
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where the slots are.
    #[inline]
    pub(crate) fn slots(&self) -> Slots<'a> {
        self.slots
    }
}

impl<'a> Slots<'a> {
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

    #[inline]
    pub(crate) fn row(&self, at: usize) -> RowRef<'a> {
        // SAFETY: the slot is filled, so it leads to a row, which is freed only after the guards
        // are gone of the moment at which nothing led to it any more (`Series::insert`).
        unsafe {
            let address = u64::from(self.high.add(at).read()) << 32;
            RowRef::from_address(address | u64::from(self.low.add(at).read()))
        }
    }

    /// Whether there are records.
    #[inline]
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_null()
    }

    /// Bytes of a record; 0 where there are none.
    fn record_size(&self) -> usize {
        if !self.has_records() {
            return 0;
        }
        // SAFETY: the size lies before the event times where there are records.
        let size = unsafe { self.times.cast::<u64>().sub(1).read() };
        usize::try_from(size).expect("a record is small")
    }

    /// A field of the records of filled slots, oldest first: the one that begins at `at` and has
    /// `width` bytes. There are records.
    ///
    /// # Safety
    ///
    /// The records have such a field.
    #[inline]
    pub(crate) unsafe fn field(
        &self,
        slots: Range<usize>,
        (at, width): (usize, usize),
    ) -> &'a [u8] {
        // SAFETY: the slots are filled, and their records were written before they were published;
        // the values of a field lie one after the other.
        unsafe {
            let start = self.records.add(self.capacity() * at + slots.start * width);
            slice::from_raw_parts(start, slots.len() * width)
        }
    }

    /// How many slots there is room for, where there are records.
    #[inline]
    fn capacity(&self) -> usize {
        (self.high.addr() - self.low.addr()) / size_of::<u32>()
    }

    fn shape(&self) -> SlotShape {
        SlotShape { is_wide: self.is_wide, record_size: self.record_size() }
    }

    /// Whether the row at `at` stands where `item` is to stand, or before.
    #[inline]
    pub(crate) fn is_at_or_before_row(&self, at: usize, item: &KeyRow<'_>) -> bool {
        self.is_at_or_before(at, item.event_time, || item.row.arrival())
    }

    /// Whether the row at `at` stands at this event time and arrival, or before.
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

    /// How many of the first `count` slots `is_before` holds for; it holds for a prefix.
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
        low
    }

    /// Writes a slot, without its record.
    ///
    /// # Safety
    ///
    /// There is room, the event time fits, and nobody else looks at the slot or writes it.
    #[inline]
    unsafe fn write(&self, at: usize, event_time: i64, row: RowRef<'_>) {
        let address = row.address();
        // SAFETY: the columns have room for `capacity` slots, and the caller's promise.
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

    /// Writes the record of a slot of a chunk that has records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`].
    unsafe fn write_record(&self, slot: usize, record: &[u8], included: &Included) {
        let capacity = self.capacity();
        assert_eq!(record.len(), included.size(), "all records of a series are of one size");
        assert_eq!(self.record_size(), included.size(), "there is room for them");
        for (at, width) in included.fields() {
            // SAFETY: there is room for `capacity` records, and the caller's promise.
            unsafe {
                let to = self.records.add(capacity * at + slot * width);
                to.copy_from_nonoverlapping(record[at..at + width].as_ptr(), width);
            }
        }
    }

    /// Writes the first slots of a chunk, with their records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for as many slots as the pieces have rows.
    unsafe fn write_pieces(&self, pieces: &[Piece<'_>], included: Option<&Included>) {
        let mut slot = 0;
        for piece in pieces {
            // SAFETY: the caller's promise.
            unsafe {
                match piece {
                    Piece::Stored(from, slots) => {
                        self.copy_slots(slot, from, slots.clone());
                        self.copy_records(slot, (from, slots.clone()), included);
                    }
                    Piece::Moved(from, at, row) => {
                        self.write(slot, from.event_time(*at), *row);
                        self.copy_records(slot, (from, *at..at + 1), included);
                    }
                    Piece::New(item) => {
                        self.write(slot, item.event_time, item.row);
                        if let Some(included) = included {
                            let mut room = [0; RECORD_SIZE_MAX];
                            let record = included.record(item.row, &mut room);
                            self.write_record(slot, record, included);
                        }
                    }
                }
            }
            slot += piece.len();
        }
    }

    /// Copies filled slots of another chunk, or of a single, without their records.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for each of the slots.
    unsafe fn copy_slots(&self, to: usize, from: &Slots<'_>, slots: Range<usize>) {
        let (start, count) = (slots.start, slots.len());
        // SAFETY: the columns of both have room for these slots, and the caller's promise: what is
        // written to is a chunk that nobody reads yet.
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

    /// Copies the records of filled slots, where columns are included.
    ///
    /// # Safety
    ///
    /// As of [`Self::write`], for each of the slots.
    unsafe fn copy_records(
        &self,
        slot: usize,
        (from, slots): (&Slots<'_>, Range<usize>),
        included: Option<&Included>,
    ) {
        let Some(included) = included else { return };
        assert_eq!(from.record_size(), included.size(), "all chunks of a series have records");
        for (at, width) in included.fields() {
            // SAFETY: all records of a series have the same fields; there is room for `capacity`
            // records, and the caller's promise.
            unsafe {
                let values = from.field(slots.clone(), (at, width));
                let to = self.records.add(self.capacity() * at + slot * width);
                to.copy_from_nonoverlapping(values.as_ptr(), values.len());
            }
        }
    }
}

/// An address as a slot holds it.
pub(crate) fn split_address(address: u64) -> (u32, u16) {
    let low = u32::try_from(address & u64::from(u32::MAX)).expect("masked");
    (low, u16::try_from(address >> 32).expect("addresses have 48 bits"))
}
