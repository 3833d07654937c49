//! A stored row: its bytes and its arrival, as they lie in a block of the log.
//!
//! A row is written once, by `block`, before anything leads to it, and does not change. Indexes
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

/// What precedes the bytes of a row, unless it is long.
pub(crate) const FRAME_SIZE: usize = 8;
/// What precedes the bytes of a long row.
const LONG_FRAME_SIZE: usize = FRAME_SIZE + 4;
/// This size or more is a long row.
const LONG: usize = 0xffff;
const ARRIVAL_BITS: u32 = 48;
/// More rows than this never arrive: a million a second would take nine years.
pub const ARRIVAL_MAX: u64 = (1 << ARRIVAL_BITS) - 1;
/// Addresses of rows have no more bits: user space of `x86_64` and of `AArch64` ends there.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// Bytes that a row of so many bytes takes in its block.
pub(crate) const fn stored_size(size: usize) -> usize {
    size + if size < LONG { FRAME_SIZE } else { LONG_FRAME_SIZE }
}

/// Looks at a stored row.
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
    /// Looks at the row that starts here.
    ///
    /// # Safety
    ///
    /// A row was written here, happens before now, and is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(start: *mut u8) -> Self {
        // SAFETY: a row does not start at null.
        Self { start: unsafe { NonNull::new_unchecked(start) }, _row: PhantomData }
    }

    /// Looks at the row at an address that [`Self::address`] gave.
    ///
    /// # Safety
    ///
    /// As of [`Self::from_raw`].
    #[inline]
    pub(crate) unsafe fn from_address(address: u64) -> Self {
        let address = usize::try_from(address).expect("it was an address");
        // SAFETY: the caller's promise; `Block::new` has exposed the provenance.
        unsafe { Self::from_raw(std::ptr::with_exposed_provenance_mut(address)) }
    }

    #[inline]
    pub(crate) fn address(self) -> u64 {
        u64::try_from(self.start.as_ptr().addr()).expect("addresses fit 64 bits")
    }

    /// The same row for longer than the guard under which it was found.
    ///
    /// # Safety
    ///
    /// The row is not freed during `'b`.
    #[inline]
    pub unsafe fn for_longer<'b>(self) -> RowRef<'b> {
        RowRef { start: self.start, _row: PhantomData }
    }

    /// The position in which the row was accepted.
    #[inline]
    pub fn arrival(self) -> u64 {
        self.head() & ARRIVAL_MAX
    }

    /// The encoded row.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let (before, size) = self.extent();
        // SAFETY: the row lies here as long as 'a; its head says how long it is.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(before), size) }
    }

    /// Bytes that the row takes in its block.
    #[inline]
    pub(crate) fn stored_size(self) -> usize {
        let (before, size) = self.extent();
        before + size
    }

    /// The row as it lies in its block.
    pub(crate) fn frame(self) -> &'a [u8] {
        // SAFETY: as in `bytes`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.stored_size()) }
    }

    /// Bytes before the row's own, and how many its own are.
    #[inline]
    fn extent(self) -> (usize, usize) {
        let size = usize::try_from(self.head() >> ARRIVAL_BITS).expect("it has 16 bits");
        if size < LONG {
            return (FRAME_SIZE, size);
        }
        // SAFETY: a long row has its size after the head.
        let size = unsafe { self.start.as_ptr().add(FRAME_SIZE).cast::<[u8; 4]>().read() };
        let size = usize::try_from(u32::from_le_bytes(size)).expect("addresses have 32 bits");
        (LONG_FRAME_SIZE, size)
    }

    #[inline]
    fn head(self) -> u64 {
        // SAFETY: the row lives for 'a and starts with its head.
        u64::from_le_bytes(unsafe { self.start.as_ptr().cast::<[u8; 8]>().read() })
    }

    /// Asks for the row's first two cache lines: rows of one key are scattered over the blocks,
    /// and a reader that waits for each in turn spends most of its time waiting.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.start.as_ptr());
        prefetch(self.start.as_ptr().wrapping_add(64));
    }
}

/// Asks for a cache line.
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

/// Rows that were encoded and have not arrived yet: as they will lie in a block, their arrival
/// being 0.
#[derive(Debug, Default)]
pub struct RowBatch {
    frames: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl RowBatch {
    /// Adds the row that `encode` appends to what it is given; nothing when it fails. Panics when
    /// the row is 4 GiB long or longer.
    pub fn push<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.frames.len();
        self.frames.extend([0; FRAME_SIZE]);
        if let Err(error) = encode(&mut self.frames) {
            self.frames.truncate(start);
            return Err(error);
        }
        let size = self.frames.len() - start - FRAME_SIZE;
        let short = if size < LONG {
            size
        } else {
            let size = u32::try_from(size).expect("a row is shorter than 4 GiB");
            let at = start + FRAME_SIZE;
            self.frames.splice(at..at, size.to_le_bytes());
            LONG
        };
        let head = u64::try_from(short).expect("it has 16 bits") << ARRIVAL_BITS;
        self.frames[start..start + FRAME_SIZE].copy_from_slice(&head.to_le_bytes());
        self.ends.push(self.frames.len());
        Ok(())
    }

    /// Removes all rows and keeps the room.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.ends.clear();
    }

    /// Gives back the room behind the rows.
    pub fn shrink_to_fit(&mut self) {
        self.frames.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes that the rows will take in blocks.
    pub fn stored_size(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of memory that the batch itself holds on to.
    pub fn capacity_bytes(&self) -> usize {
        self.frames.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// The rows, with arrival 0.
    pub fn rows(&self) -> impl Iterator<Item = RowRef<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        // SAFETY: `push` has written a row there, and the batch is borrowed.
        starts
            .take(self.len())
            .map(|start| unsafe { RowRef::from_raw(self.frames.as_ptr().add(start).cast_mut()) })
    }

    /// Removes the rows for which `is_kept` does not hold.
    pub fn retain(&mut self, mut is_kept: impl FnMut(RowRef<'_>) -> bool) {
        let mut kept = Self::default();
        for row in self.rows().filter(|row| is_kept(*row)) {
            kept.frames.extend_from_slice(row.frame());
            kept.ends.push(kept.frames.len());
        }
        *self = kept;
    }

    /// The row at `at` as it will lie in a block.
    #[inline]
    pub(crate) fn frame(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.frames[start..self.ends[at]]
    }
}

/// The first 8 bytes of a frame with an arrival put in.
#[inline]
pub(crate) fn head_with_arrival(frame: &[u8], arrival: u64) -> [u8; FRAME_SIZE] {
    debug_assert!(arrival <= ARRIVAL_MAX, "fewer rows arrive");
    let head: &[u8; FRAME_SIZE] = frame.first_chunk().expect("a frame starts with its head");
    let head = u64::from_le_bytes(*head) & !ARRIVAL_MAX;
    (head | arrival).to_le_bytes()
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
