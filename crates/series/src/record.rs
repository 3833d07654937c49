//! Records: the values of a few columns of a row, kept beside its slot.
//!
//! A series that includes columns is told how to make a record of a row; what is in one is known
//! to `table`. `chunk` stores them, `key_rows` hands them out.

use std::fmt;

use super::row_ref::RowRef;

/// The most bytes that a record can take: a late row copies up to 128 of them.
pub const RECORD_SIZE_MAX: usize = 64;

/// Makes a record from the bytes of a row.
type Write = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

/// How a series makes records: all of one size.
pub struct Included {
    size: usize,
    write: Box<Write>,
}

impl Included {
    /// Makes records of `size` bytes with `write`, which is given the bytes of a row and a slice of
    /// that size, all zeros, and must write the same for an equal row. Panics when the size is 0 or
    /// greater than [`RECORD_SIZE_MAX`].
    pub fn new(size: usize, write: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static) -> Self {
        assert!(size > 0, "a record has a byte at least");
        assert!(size <= RECORD_SIZE_MAX, "a record is small");
        Self { size, write: Box::new(write) }
    }

    /// Bytes of a record.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Makes the record of a row.
    pub(crate) fn record<'b>(
        &self,
        row: RowRef<'_>,
        room: &'b mut [u8; RECORD_SIZE_MAX],
    ) -> &'b [u8] {
        let record = &mut room[..self.size];
        (self.write)(row.bytes(), record);
        record
    }
}

impl fmt::Debug for Included {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Included").field("size", &self.size).finish_non_exhaustive()
    }
}
