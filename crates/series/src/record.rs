//! Records: the values of a few columns of a row, kept beside its slot.
//!
//! A series that includes columns is told how to make a record of a row, and which fields one has;
//! what they mean is known to `table`. `chunk` stores each field as a column, `run` hands them out.

use std::fmt;

use super::row_ref::RowRef;

/// The most bytes that a record can take: a late row copies up to 64 of them, 12 KiB, or 128 among
/// the newest rows of its key, which a processor's nearest cache still holds.
pub const RECORD_SIZE_MAX: usize = 192;

/// Makes a record from the bytes of a row.
type Write = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

/// How a series makes records: all of one size, of the same fields.
pub struct Included {
    /// Where each field begins in a record, and its width.
    fields: Box<[(usize, usize)]>,
    /// By where they begin, the widths of the fields; 0 where none begins.
    widths: Box<[u8]>,
    write: Box<Write>,
}

impl Included {
    /// Makes records of fields of these widths, one after the other, with `write`, which is given
    /// the bytes of a row and a slice of as many bytes as the fields have together, all zeros, and
    /// must write the same for an equal row. Panics when these are 0 or more than
    /// [`RECORD_SIZE_MAX`], or a field has none.
    pub fn new(
        widths: impl IntoIterator<Item = usize>,
        write: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let mut fields = Vec::new();
        let mut by_place = Vec::new();
        for width in widths {
            assert!(width > 0, "a field has a byte at least");
            fields.push((by_place.len(), width));
            by_place.resize(by_place.len() + width, 0);
            assert!(by_place.len() <= RECORD_SIZE_MAX, "a record is small");
            by_place[fields[fields.len() - 1].0] = u8::try_from(width).expect("a record is small");
        }
        assert!(!fields.is_empty(), "a record has a byte at least");
        Self { fields: fields.into(), widths: by_place.into(), write: Box::new(write) }
    }

    /// Bytes of a record.
    #[inline]
    pub fn size(&self) -> usize {
        self.widths.len()
    }

    /// Where each field begins in a record, and its width.
    #[inline]
    pub(crate) fn fields(&self) -> impl Iterator<Item = (usize, usize)> {
        self.fields.iter().copied()
    }

    /// Whether a field of this width begins here.
    #[inline]
    pub(crate) fn has_field(&self, at: usize, width: usize) -> bool {
        self.widths.get(at).is_some_and(|found| usize::from(*found) == width)
    }

    /// Makes the record of a row.
    pub(crate) fn record<'b>(
        &self,
        row: RowRef<'_>,
        room: &'b mut [u8; RECORD_SIZE_MAX],
    ) -> &'b [u8] {
        let record = &mut room[..self.size()];
        (self.write)(row.bytes(), record);
        record
    }
}

impl fmt::Debug for Included {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Included").field("size", &self.size()).finish_non_exhaustive()
    }
}
