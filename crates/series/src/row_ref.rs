//! A stored row: its arrival and its bytes, as they are in a block of the log.
//!
//! A row is written once, by `block`, before anything points to it, and does not change. Indexes
//! and readers hold its address.
//!
//! # Layout
//!
//! ```text
//! arrival 48 bits | size 16 bits | [size 32 bits] | bytes
//! ```
//!
//! Little-endian and without alignment. A row of 65,535 bytes or more has that number in the 16
//! bits and its size in the 32 bits that follow; other rows do not have them.

use std::{fmt, marker::PhantomData, ptr::NonNull, slice};

/// Bytes of the header that precedes a row's own bytes, unless the row is long.
pub(crate) const ROW_HEADER_SIZE: usize = 8;
/// Bytes of the header of a long row.
const LONG_HEADER_SIZE: usize = ROW_HEADER_SIZE + 4;
/// A row of so many bytes or more is long.
const LONG: usize = 0xffff;
const ARRIVAL_BITS: u32 = 48;
/// The greatest arrival: a million rows a second would take nine years to reach it.
pub const ARRIVAL_MAX: u64 = (1 << ARRIVAL_BITS) - 1;
/// Addresses of rows have no more bits: user space of `x86_64` and of `AArch64` ends there.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// Returns the bytes that a row of `size` bytes takes in its block.
pub(crate) const fn stored_size(size: usize) -> usize {
    size + if size < LONG { ROW_HEADER_SIZE } else { LONG_HEADER_SIZE }
}

/// Returns the arrival of the row that begins these bytes, and how many of them it takes; `None` when it
/// does not end in them.
pub(crate) fn stored_extent(bytes: &[u8]) -> Option<(u64, usize)> {
    let header = u64::from_le_bytes(*bytes.first_chunk::<ROW_HEADER_SIZE>()?);
    let short = usize::try_from(header >> ARRIVAL_BITS).ok()?;
    let size = if short == LONG {
        let size: &[u8; 4] = bytes[ROW_HEADER_SIZE..].first_chunk()?;
        size_of::<u32>() + usize::try_from(u32::from_le_bytes(*size)).ok()?
    } else {
        short
    };
    let size = ROW_HEADER_SIZE.checked_add(size)?;
    (size <= bytes.len()).then_some((header & ARRIVAL_MAX, size))
}

/// A reference to a stored row.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    start: NonNull<u8>,
    _row: PhantomData<&'a u8>,
}

// SAFETY: it only reads what no longer changes.
unsafe impl Send for RowRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for RowRef<'_> {}

impl<'a> RowRef<'a> {
    /// Refers to the row that starts here.
    ///
    /// # Safety
    ///
    /// A row was written here, happens before now, and is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(start: *mut u8) -> Self {
        // SAFETY: a row does not start at null.
        Self { start: unsafe { NonNull::new_unchecked(start) }, _row: PhantomData }
    }

    /// Refers to the row at an address that [`Self::address`] returned.
    ///
    /// # Safety
    ///
    /// As of [`Self::from_raw`].
    #[inline]
    pub(crate) unsafe fn from_address(address: u64) -> Self {
        let address = usize::try_from(address).expect("it was an address");
        // SAFETY: the caller's promise; `Block::new` or `Page::read` has exposed the provenance.
        unsafe { Self::from_raw(std::ptr::with_exposed_provenance_mut(address)) }
    }

    /// Returns the address at which the row starts.
    #[inline]
    pub(crate) fn address(self) -> u64 {
        u64::try_from(self.start.as_ptr().addr()).expect("addresses fit 64 bits")
    }

    /// Extends the reference beyond the guard under which the row was found.
    ///
    /// # Safety
    ///
    /// The row is not freed during `'b`.
    #[inline]
    pub unsafe fn for_longer<'b>(self) -> RowRef<'b> {
        RowRef { start: self.start, _row: PhantomData }
    }

    /// Returns the position at which the row was accepted.
    #[inline]
    pub fn arrival(self) -> u64 {
        self.header() & ARRIVAL_MAX
    }

    /// Returns the encoded row.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let (before, size) = self.extent();
        // SAFETY: the row is not freed during 'a; its header has its size.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(before), size) }
    }

    /// Returns the bytes that the row takes in its block.
    #[inline]
    pub(crate) fn stored_size(self) -> usize {
        let (before, size) = self.extent();
        before + size
    }

    /// Returns the row as it is in its block, with its header.
    pub fn stored_bytes(self) -> &'a [u8] {
        // SAFETY: as in `bytes`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.stored_size()) }
    }

    /// Returns the size of the header and that of the row's own bytes.
    #[inline]
    fn extent(self) -> (usize, usize) {
        let size = usize::try_from(self.header() >> ARRIVAL_BITS).expect("it has 16 bits");
        if size < LONG {
            return (ROW_HEADER_SIZE, size);
        }
        // SAFETY: a long row has its size after the arrival.
        let size = unsafe { self.start.as_ptr().add(ROW_HEADER_SIZE).cast::<[u8; 4]>().read() };
        let size = usize::try_from(u32::from_le_bytes(size)).expect("addresses have 32 bits");
        (LONG_HEADER_SIZE, size)
    }

    /// Returns the first word of the header.
    #[inline]
    fn header(self) -> u64 {
        // SAFETY: the row is not freed during 'a and starts with its header.
        u64::from_le_bytes(unsafe { self.start.as_ptr().cast::<[u8; 8]>().read() })
    }

    /// Prefetches the row's first two cache lines: rows of one key are scattered over the blocks, and a
    /// reader that waits for each in turn spends most of its time waiting.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.start.as_ptr());
        prefetch(self.start.as_ptr().wrapping_add(64));
    }
}

/// Prefetches a cache line.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

impl fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of {} bytes", self.arrival(), self.bytes().len())
    }
}

/// Rows that were encoded and have not arrived yet: as they will be in a block, with arrival 0.
#[derive(Debug, Default)]
pub struct RowBatch {
    stored: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl RowBatch {
    /// Adds the row that `encode` appends to the buffer it is given; nothing when it fails. Panics when
    /// the row is 4 GiB long or longer.
    pub fn push<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.stored.len();
        self.stored.extend([0; ROW_HEADER_SIZE]);
        if let Err(error) = encode(&mut self.stored) {
            self.stored.truncate(start);
            return Err(error);
        }
        let size = self.stored.len() - start - ROW_HEADER_SIZE;
        let short = if size < LONG {
            size
        } else {
            let size = u32::try_from(size).expect("a row is shorter than 4 GiB");
            let at = start + ROW_HEADER_SIZE;
            self.stored.splice(at..at, size.to_le_bytes());
            LONG
        };
        let header = u64::try_from(short).expect("it has 16 bits") << ARRIVAL_BITS;
        self.stored[start..start + ROW_HEADER_SIZE].copy_from_slice(&header.to_le_bytes());
        debug_assert!(self.stored.len() > start, "a row has a header at least");
        self.ends.push(self.stored.len());
        Ok(())
    }

    /// Removes all rows and keeps the buffers.
    pub fn clear(&mut self) {
        self.stored.clear();
        self.ends.clear();
    }

    /// Adds the rows of another batch behind these.
    pub fn extend(&mut self, other: &Self) {
        let start = self.stored.len();
        self.stored.extend_from_slice(&other.stored);
        self.ends.extend(other.ends.iter().map(|end| start + end));
        debug_assert_eq!(
            self.ends.last().copied().unwrap_or(0),
            self.stored.len(),
            "rows are whole"
        );
    }

    /// Splits the rows into batches of about so many bytes, and one row at least.
    #[must_use]
    pub fn split(self, bytes: usize) -> Vec<Self> {
        let mut batches = vec![Self::default()];
        for row in self.rows() {
            let is_full = |batch: &Self| !batch.is_empty() && batch.stored.len() >= bytes;
            if batches.last().is_none_or(is_full) {
                batches.push(Self::default());
            }
            let batch = batches.last_mut().expect("there is one");
            batch.stored.extend_from_slice(row.stored_bytes());
            batch.ends.push(batch.stored.len());
        }
        debug_assert!(batches.iter().map(Self::len).sum::<usize>() == self.len(), "no row is lost");
        batches
    }

    /// Frees the unused part of the buffers.
    pub fn shrink_to_fit(&mut self) {
        self.stored.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes that the rows will take in blocks.
    pub fn stored_size(&self) -> usize {
        self.stored.len()
    }

    /// Returns the bytes of memory that the batch itself has allocated.
    pub fn capacity_bytes(&self) -> usize {
        self.stored.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Returns the rows, with arrival 0 unless the batch is of rows that have arrived.
    pub fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        // SAFETY: `push` has written a row there, and the batch is borrowed.
        starts
            .take(self.len())
            .map(|start| unsafe { RowRef::from_raw(self.stored.as_ptr().add(start).cast_mut()) })
    }

    /// Returns a row. Panics when there are not so many.
    pub fn row(&self, at: usize) -> RowRef<'_> {
        let stored = self.stored_row(at);
        // SAFETY: `push` has written a row there, and the batch is borrowed.
        unsafe { RowRef::from_raw(stored.as_ptr().cast_mut()) }
    }

    /// Returns the rows as they will be in blocks, one after the other, with arrival 0.
    pub fn stored_bytes(&self) -> &[u8] {
        &self.stored
    }

    /// Returns the rows as they are in blocks when the first one has the arrival `first` and the others
    /// follow it.
    pub fn arrived_from(&self, first: u64) -> Vec<u8> {
        let mut arrived = Vec::with_capacity(self.stored.len());
        for (arrival, at) in (first..).zip(0..self.len()) {
            let row = self.stored_row(at);
            arrived.extend_from_slice(&header_with_arrival(row, arrival));
            arrived.extend_from_slice(&row[ROW_HEADER_SIZE..]);
        }
        arrived
    }

    /// Makes a batch of rows that [`Self::stored_bytes`] returned; `None` when the bytes are not such.
    pub fn from_stored(stored: Vec<u8>) -> Option<Self> {
        Self::parse(stored, |arrival| arrival == 0)
    }

    /// Makes a batch of rows that have arrived, in order of arrival, none before `from`; `None` when
    /// the bytes are not such.
    pub fn from_arrived(stored: Vec<u8>, from: u64) -> Option<Self> {
        let mut next = from;
        Self::parse(stored, |arrival| {
            let is_later = arrival >= next;
            next = arrival + 1;
            is_later
        })
    }

    /// Makes a batch of rows whose arrivals `is_right` accepts one after the other.
    fn parse(stored: Vec<u8>, mut is_right: impl FnMut(u64) -> bool) -> Option<Self> {
        let (mut ends, mut end) = (Vec::new(), 0);
        while end < stored.len() {
            let (arrival, size) = stored_extent(&stored[end..])?;
            end += size;
            if !is_right(arrival) {
                return None;
            }
            ends.push(end);
        }
        Some(Self { stored, ends })
    }

    /// Removes the rows for which `is_kept` does not hold.
    pub fn retain(&mut self, mut is_kept: impl FnMut(RowRef<'_>) -> bool) {
        let mut kept = Self::default();
        for row in self.rows().filter(|row| is_kept(*row)) {
            kept.stored.extend_from_slice(row.stored_bytes());
            kept.ends.push(kept.stored.len());
        }
        *self = kept;
    }

    /// Returns the row at `at` as it will be in a block, with its header.
    #[inline]
    pub(crate) fn stored_row(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.stored[start..self.ends[at]]
    }
}

/// Returns the first 8 bytes of a row's header, with an arrival.
#[inline]
pub(crate) fn header_with_arrival(row: &[u8], arrival: u64) -> [u8; ROW_HEADER_SIZE] {
    debug_assert!(arrival <= ARRIVAL_MAX, "arrivals have 48 bits");
    let header: &[u8; ROW_HEADER_SIZE] = row.first_chunk().expect("a row starts with its header");
    let header = u64::from_le_bytes(*header) & !ARRIVAL_MAX;
    (header | arrival).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::RowBatch;

    fn check(size: usize) {
        let mut batch = RowBatch::default();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(size).collect();
        for _ in 0..2 {
            let pushed: Result<(), ()> = batch.push(|out| {
                out.extend_from_slice(&bytes);
                Ok(())
            });
            assert_eq!(pushed, Ok(()));
        }
        assert_eq!(batch.push(|_| Err(1)), Err(1));
        assert_eq!(batch.len(), 2);
        assert!(batch.rows().all(|row| row.bytes() == bytes && row.arrival() == 0));
        let size: usize = batch.rows().map(|row| row.stored_size()).sum();
        assert_eq!(batch.stored_size(), size);
        let parts = std::mem::take(&mut batch).split(size / 2);
        assert!(parts.iter().all(|part| part.len() == 1) || size == 0, "a row ends a part");
        let rows = parts.iter().flat_map(RowBatch::rows);
        assert!(rows.map(|row| row.bytes().to_vec()).eq([bytes.clone(), bytes]));
        batch.retain(|_| false);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_batch_gives_back_rows_of_every_size() {
        for size in [0, 1, 250, 0xfffe, 0xffff, 0x1_0000, 0x2_0001] {
            check(size);
        }
    }
}
