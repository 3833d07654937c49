//! A run of a key's rows, oldest first, to which newer rows can be appended.
//!
//! `entry` writes it under the shard's lock; `key_rows` reads. Which part may be touched when is
//! rule 2 of the crate's protocol.
//!
//! # Layout
//!
//! ```text
//! base i64 | state u64 | event times: u32 or i64 each | row addresses, low 32 bits each | high 16 bits each
//! ```
//!
//! One allocation. The columns have room for `capacity` slots. An event time is written as its
//! distance from the base, the oldest one, in 32 bits, which reaches 49 days; a wide chunk has 64
//! bits for each. The state is, from the low bits: the greatest arrival (48 bits), capacity - 1 (7
//! bits), wide (1 bit), length (8 bits). Everything that grows is in this one word, so that one
//! store publishes it.

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    cmp,
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull,
};

use lockstep_host::memory::{filled, footprint};

use super::{
    row_ref::{ARRIVAL_MAX, RowRef},
    sync::{AtomicU64, CHUNK_ROWS_MAX, Ordering, Trace},
};

const _: () = assert!(CHUNK_ROWS_MAX <= 128, "a capacity has 7 bits");

/// Where a row stands among the rows of its key: by event time, then by arrival.
pub(crate) type Position = (i64, u64);

/// A row and its event time.
pub(crate) type Item<'a> = (i64, RowRef<'a>);

/// What precedes the columns.
#[repr(C)]
pub(crate) struct Header {
    base: i64,
    state: AtomicU64,
    trace: Trace,
}

const CAPACITY_SHIFT: u32 = 48;
const WIDE_SHIFT: u32 = 55;
const LEN_SHIFT: u32 = 56;
const CAPACITY_MASK: u64 = 0x7f;

/// Bytes of a slot: event time, low and high part of the address.
const fn slot_size(is_wide: bool) -> usize {
    (if is_wide { 8 } else { 4 }) + 4 + 2
}

/// A chunk. Whoever has one holds a guard or the shard's lock for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a> {
    header: NonNull<Header>,
    _chunk: PhantomData<&'a Header>,
}

/// Room for `len` rows and for what the allocator would waste otherwise, at most
/// [`CHUNK_ROWS_MAX`].
pub(crate) const fn capacity_for(len: usize, is_wide: bool) -> usize {
    assert!(len <= CHUNK_ROWS_MAX, "a chunk is cheap to copy");
    let slot = slot_size(is_wide);
    let capacity = (filled(size_of::<Header>() + len * slot) - size_of::<Header>()) / slot;
    if capacity < CHUNK_ROWS_MAX { capacity } else { CHUNK_ROWS_MAX }
}

/// Bytes of memory that a chunk with room for so many rows takes.
pub(crate) const fn chunk_footprint(capacity: usize, is_wide: bool) -> usize {
    footprint(size_of::<Header>() + capacity * slot_size(is_wide))
}

/// Whether event times from `oldest` to `newest` need 64 bits each.
fn is_wide(oldest: i64, newest: i64) -> bool {
    newest.checked_sub(oldest).is_none_or(|span| u32::try_from(span).is_err())
}

fn layout(capacity: usize, is_wide: bool) -> Layout {
    let size = size_of::<Header>() + capacity * slot_size(is_wide);
    Layout::from_size_align(size, align_of::<Header>()).expect("a chunk is small")
}

impl<'a> Chunk<'a> {
    /// Makes a chunk of some rows in order, with room for `room` or a few more, and gives it
    /// away. None of the rows has an arrival greater than `arrival_max`.
    pub(crate) fn make(items: &[Item<'_>], room: usize, arrival_max: u64) -> *mut Header {
        let (Some((oldest, _)), Some((newest, _))) = (items.first(), items.last()) else {
            panic!("a chunk is never empty");
        };
        assert!(items.len() <= room, "a chunk has room for its rows");
        debug_assert!(items.is_sorted_by_key(|(event_time, _)| *event_time), "rows are in order");
        let is_wide = is_wide(*oldest, *newest);
        let capacity = capacity_for(room, is_wide);
        let layout = layout(capacity, is_wide);
        // SAFETY: the layout holds a header, so it is not empty.
        let allocated = unsafe { alloc(layout) }.cast::<Header>();
        let Some(header) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let state = arrival_max.min(ARRIVAL_MAX)
            | u64::try_from(capacity - 1).expect("small") << CAPACITY_SHIFT
            | u64::from(is_wide) << WIDE_SHIFT;
        let (state, trace) = (AtomicU64::new(state), Trace::new(capacity));
        // SAFETY: the allocation holds a header, for which it is aligned.
        unsafe { header.write(Header { base: *oldest, state, trace }) };
        let chunk = Chunk { header, _chunk: PhantomData };
        let filled = chunk.filled();
        for (at, (event_time, row)) in items.iter().enumerate() {
            // SAFETY: the header was written above.
            unsafe { header.as_ref() }.trace.written(at);
            // SAFETY: nobody else knows the chunk, which has room.
            unsafe { filled.write(at, *event_time, *row) };
        }
        chunk.publish(items.len(), 0);
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

    /// Frees a chunk that [`Self::make`] gave away.
    ///
    /// # Safety
    ///
    /// Nobody can reach it any more, and it is freed once.
    pub(crate) unsafe fn free(header: *mut Header) {
        // SAFETY: the caller's promise.
        let chunk = unsafe { Chunk::from_raw(header) };
        let filled = chunk.filled();
        let layout = layout(filled.capacity, filled.is_wide);
        // SAFETY: the header was written by `make`, with the same layout.
        unsafe {
            header.drop_in_place();
            dealloc(header.cast(), layout);
        }
    }

    /// Bytes of memory that the chunk takes.
    pub(crate) fn memory_bytes(self) -> usize {
        let filled = self.filled();
        chunk_footprint(filled.capacity, filled.is_wide)
    }

    /// The rows as they are now. Never empty, except within [`Self::make`].
    #[inline]
    pub(crate) fn filled(self) -> Filled<'a> {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let header = unsafe { self.header.as_ref() };
        // Acquire: pairs with the Release in `publish`; the slots were written before it.
        let state = header.state.load(Ordering::Acquire);
        let field = |shift: u32| usize::try_from(state >> shift).expect("addresses have 64 bits");
        let capacity_mask = usize::try_from(CAPACITY_MASK).expect("small");
        let capacity = (field(CAPACITY_SHIFT) & capacity_mask) + 1;
        let is_wide = state >> WIDE_SHIFT & 1 == 1;
        let len = field(LEN_SHIFT);
        header.trace.read(len);
        // SAFETY: the columns follow the header in one allocation.
        let times = unsafe { self.header.as_ptr().add(1).cast::<u8>() };
        let low = times.wrapping_add(capacity * if is_wide { 8 } else { 4 });
        let high = low.wrapping_add(capacity * 4);
        let slots = Slots {
            base: header.base,
            times,
            low: low.cast_const().cast(),
            high: high.cast_const().cast(),
            is_wide,
            _chunk: PhantomData,
        };
        Filled { slots, len, capacity, arrival_max: state & ARRIVAL_MAX }
    }

    /// Appends a row that is newer than every row here. Under the shard's lock. False when it
    /// does not fit: the chunk is full, or the event time too far from the base.
    #[must_use]
    pub(crate) fn append(self, event_time: i64, row: RowRef<'_>) -> bool {
        let filled = self.filled();
        let is_near = filled.is_wide || !is_wide(filled.base, event_time);
        if filled.len == filled.capacity || !is_near {
            return false;
        }
        // SAFETY: the header lives as long as the chunk.
        unsafe { self.header.as_ref() }.trace.written(filled.len);
        // SAFETY: there is room, the lock keeps other writers away, and no reader looks at slots
        // that were not published.
        unsafe { filled.write(filled.len, event_time, row) };
        self.publish(filled.len + 1, row.arrival());
        true
    }

    /// Publishes slots and the arrivals in them. Under the shard's lock.
    fn publish(self, len: usize, arrival: u64) {
        // SAFETY: whoever has a chunk keeps it from being freed.
        let state = unsafe { &self.header.as_ref().state };
        // Relaxed: only the holder of the lock writes.
        let before = state.load(Ordering::Relaxed);
        let arrival_max = (before & ARRIVAL_MAX).max(arrival);
        let kept = before & (CAPACITY_MASK << CAPACITY_SHIFT | 1 << WIDE_SHIFT);
        let len = u64::try_from(len).expect("small") << LEN_SHIFT;
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

    pub(crate) fn item(&self, at: usize) -> Item<'a> {
        (self.event_time(at), self.row(at))
    }

    /// Whether the row at `at` stands at this position or before.
    #[inline]
    pub(crate) fn is_at_or_before(&self, at: usize, position: Position) -> bool {
        match self.event_time(at).cmp(&position.0) {
            cmp::Ordering::Less => true,
            // Only now is the row touched.
            cmp::Ordering::Equal => self.row(at).arrival() <= position.1,
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

    /// Writes a slot.
    ///
    /// # Safety
    ///
    /// There is room, the event time fits, and nobody else looks at the slot or writes it.
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
}

/// An address as a slot holds it.
pub(crate) fn split_address(address: u64) -> (u32, u16) {
    let low = u32::try_from(address & u64::from(u32::MAX)).expect("masked");
    (low, u16::try_from(address >> 32).expect("addresses have 48 bits"))
}
