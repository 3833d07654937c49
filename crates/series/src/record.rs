//! Records: the values of a few columns of a row, stored beside its slot.
//!
//! A series that includes columns is told how to make a record of a row, and which fields one has;
//! what they mean is known to `table`. `chunk` stores each field as a column, `chunk_run` reads them.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::row_ref::RowRef;

/// The most bytes that a record can take: a late row copies up to 64 of them, 12 KiB, or 128 among
/// the newest rows of its key, which a processor's nearest cache still holds.
pub const RECORD_SIZE_MAX: usize = 192;

/// The number of the next format.
static FORMATS: AtomicU64 = AtomicU64::new(1);

/// Makes a record of the bytes of a row.
type WriteRecord = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

/// A field of a record: some bytes at a constant offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordField {
    /// Where the field begins in a record.
    pub offset: usize,
    /// How many bytes it has.
    pub width: usize,
}

/// The fields of a series' records, and the function that makes a record of a row.
pub struct RecordFormat {
    id: u64,
    fields: Box<[RecordField]>,
    /// By offset, the widths of the fields; 0 where none begins.
    widths: Box<[u8]>,
    write: Box<WriteRecord>,
}

impl RecordFormat {
    /// Makes a format of fields of these widths, one after the other. `write` is given the bytes of a
    /// row and a slice of as many bytes as the fields have together, all zeros, and must write the
    /// same for an equal row. Panics when these are 0 or more than [`RECORD_SIZE_MAX`], or a field
    /// has none.
    pub fn new(
        widths: impl IntoIterator<Item = usize>,
        write: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let mut fields = Vec::new();
        let mut by_offset = Vec::new();
        for width in widths {
            assert!(width > 0, "a field has a byte at least");
            let offset = by_offset.len();
            fields.push(RecordField { offset, width });
            by_offset.resize(offset + width, 0);
            assert!(by_offset.len() <= RECORD_SIZE_MAX, "a record is small");
            by_offset[offset] = u8::try_from(width).expect("a record is small");
        }
        assert!(!fields.is_empty(), "a record has a byte at least");
        // Relaxed: the number itself is all that is shared.
        let id = FORMATS.fetch_add(1, Ordering::Relaxed);
        Self { id, fields: fields.into(), widths: by_offset.into(), write: Box::new(write) }
    }

    /// Returns a number that no other format of the process has; never 0.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the bytes of a record.
    #[inline]
    pub fn size(&self) -> usize {
        self.widths.len()
    }

    /// Returns the fields in the order of their offsets.
    #[inline]
    pub(crate) fn fields(&self) -> impl Iterator<Item = RecordField> {
        self.fields.iter().copied()
    }

    /// Returns whether records have this field.
    #[inline]
    pub(crate) fn has_field(&self, field: RecordField) -> bool {
        let width = self.widths.get(field.offset);
        width.is_some_and(|width| usize::from(*width) == field.width)
    }

    /// Makes the record of a row in a buffer.
    pub(crate) fn record<'b>(
        &self,
        row: RowRef<'_>,
        buffer: &'b mut [u8; RECORD_SIZE_MAX],
    ) -> &'b [u8] {
        debug_assert!(self.size() <= RECORD_SIZE_MAX, "a record is small");
        let record = &mut buffer[..self.size()];
        (self.write)(row.bytes(), record);
        record
    }
}

impl fmt::Debug for RecordFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFormat").field("size", &self.size()).finish_non_exhaustive()
    }
}
