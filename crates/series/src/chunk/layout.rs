//! The bytes of a chunk: its header, its columns, and how much memory it takes.
//!
//! ```text
//! base i64 | state u64 | [record size u64] | event times: u32 or i64 each
//!     | row addresses, low 32 bits each | high 16 bits each | [fields of records]
//! ```
//!
//! One allocation. The columns have space for `capacity` slots. An event time is written as its
//! distance from the base, the oldest one, in 32 bits, which reaches 49 days; a wide chunk has 64
//! bits for each. The state is, from the low bits: the greatest arrival (48 bits), capacity - 1 (7
//! bits), wide (1 bit), whether there are records (1 bit), length - 1 (7 bits). Everything that
//! grows is in this one word, so that one store publishes it. The fields of records are columns as
//! well, in the order in which they are in a record; a chunk without records has no space for them.

use std::alloc::Layout;

use lockstep_host::memory::{footprint, usable_size};

use crate::sync::{AtomicU64, CHUNK_ROWS_MAX, Trace};

const _: () = assert!(CHUNK_ROWS_MAX <= 128, "a capacity has 7 bits, and so has a length");

/// The part of a chunk that precedes the columns.
#[repr(C)]
pub(crate) struct ChunkHeader {
    pub(super) base: i64,
    pub(super) state: AtomicU64,
    pub(super) trace: Trace,
}

pub(super) const CAPACITY_SHIFT: u32 = 48;
pub(super) const WIDE_SHIFT: u32 = 55;
pub(super) const RECORDS_SHIFT: u32 = 56;
pub(super) const LEN_SHIFT: u32 = 57;
pub(super) const CAPACITY_MASK: u64 = 0x7f;
/// Bytes in which the size of a record is written.
pub(super) const RECORD_SIZE_SIZE: usize = size_of::<u64>();

/// The widths that determine how many bytes a slot takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotLayout {
    /// Whether event times have 64 bits.
    pub(crate) is_wide: bool,
    /// Bytes of a record; 0 where there are none.
    pub(crate) record_size: usize,
}

impl SlotLayout {
    /// Returns the bytes of one event time.
    pub(super) const fn time_size(self) -> usize {
        if self.is_wide { 8 } else { 4 }
    }

    /// Returns the bytes of a slot: event time, low and high part of the address, record.
    const fn slot_size(self) -> usize {
        self.time_size() + 4 + 2 + self.record_size
    }

    /// Returns the bytes before the columns.
    pub(super) const fn header_size(self) -> usize {
        size_of::<ChunkHeader>() + if self.record_size > 0 { RECORD_SIZE_SIZE } else { 0 }
    }

    /// Returns the bytes of a chunk of this capacity.
    pub(super) const fn chunk_size(self, capacity: usize) -> usize {
        self.header_size() + capacity * self.slot_size()
    }
}

/// Returns the capacity of a chunk made for `len` rows: at least `len`, plus what the allocator
/// would waste otherwise, at most [`CHUNK_ROWS_MAX`].
pub(crate) const fn capacity_for(len: usize, layout: SlotLayout) -> usize {
    assert!(len <= CHUNK_ROWS_MAX, "a chunk is cheap to copy");
    let capacity =
        (usable_size(layout.chunk_size(len)) - layout.header_size()) / layout.slot_size();
    let capacity = if capacity < CHUNK_ROWS_MAX { capacity } else { CHUNK_ROWS_MAX };
    assert!(capacity >= len, "the rows fit");
    capacity
}

/// Returns the bytes of memory that a chunk of this capacity takes.
pub(crate) const fn chunk_footprint(capacity: usize, layout: SlotLayout) -> usize {
    footprint(layout.chunk_size(capacity))
}

/// Returns whether event times from `oldest` to `newest` need 64 bits each.
pub(super) fn is_wide(oldest: i64, newest: i64) -> bool {
    newest.checked_sub(oldest).is_none_or(|span| u32::try_from(span).is_err())
}

/// Returns the layout with which a chunk is allocated and freed.
pub(super) fn allocation_layout(capacity: usize, layout: SlotLayout) -> Layout {
    debug_assert!(capacity > 0, "a chunk is never empty");
    debug_assert!(capacity <= CHUNK_ROWS_MAX, "a capacity fits its bits of the state");
    Layout::from_size_align(layout.chunk_size(capacity), align_of::<ChunkHeader>())
        .expect("a chunk is small")
}

/// Splits the address of a row into the two parts that a slot holds.
pub(crate) fn split_address(address: u64) -> (u32, u16) {
    let low = u32::try_from(address & u64::from(u32::MAX)).expect("masked");
    (low, u16::try_from(address >> 32).expect("addresses have 48 bits"))
}
