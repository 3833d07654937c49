//! A run: rows of a key that are stored in one chunk, for readers that read rows by the hundred.
//! What is the same for all of them is determined once.
//!
//! `series_rows` returns runs; whoever has one holds a guard.

use std::{fmt, ops::Range};

use crate::{
    RecordField, RecordFormat, RowRef,
    chunk::{Chunk, ChunkHeader, Slots},
    directory::Directory,
};

/// Rows of one key that are stored in one chunk, newest first: 0 is the newest. Never empty when
/// [`crate::SeriesRows::next_run`] returned it; a slice of it can be.
#[derive(Clone, Copy)]
pub struct ChunkRun<'g> {
    slots: Slots<'g>,
    /// The fields of records, where the series has records.
    format: Option<&'g RecordFormat>,
    /// The slot of the oldest row.
    oldest: usize,
    len: usize,
}

/// The records of a run's rows, read field by field.
#[derive(Clone, Copy)]
pub struct Records<'g> {
    slots: Slots<'g>,
    format: &'g RecordFormat,
    oldest: usize,
    len: usize,
}

impl<'g> ChunkRun<'g> {
    /// Makes a run of filled slots.
    #[inline]
    pub(crate) fn new(
        slots: Slots<'g>,
        filled: Range<usize>,
        format: Option<&'g RecordFormat>,
    ) -> Self {
        Self { slots, format, oldest: filled.start, len: filled.len() }
    }

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the event time of a row in milliseconds; NULL is `i64::MIN`. Does not touch the row.
    /// Panics when there is no such row.
    #[inline]
    pub fn event_time(&self, at: usize) -> i64 {
        self.slots.event_time(self.slot(at))
    }

    /// Returns a row, which is not touched. Panics when there is no such row.
    #[inline]
    pub fn row(&self, at: usize) -> RowRef<'g> {
        self.slots.row(self.slot(at))
    }

    /// Prefetches a row's first cache lines; does nothing when there is no such row.
    #[inline]
    pub fn prefetch_row(&self, at: usize) {
        if at < self.len {
            self.row(at).prefetch();
        }
    }

    /// Counts the newest rows for whose event time `is_newer` holds; it holds for a row and all newer
    /// ones. Binary search; touches no row.
    #[inline]
    pub fn partition_point(&self, is_newer: impl Fn(i64) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_newer(self.event_time(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the records of the rows; `None` when the index includes no columns, and when the row is
    /// the only one of its key: it has no record, and is to be read itself.
    #[inline]
    pub fn records(&self) -> Option<Records<'g>> {
        let format = self.format.filter(|_| self.slots.has_records())?;
        Some(Records { slots: self.slots, format, oldest: self.oldest, len: self.len })
    }

    /// Returns some of the rows. Panics when there are not so many.
    #[inline]
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end, "a range begins before it ends");
        assert!(rows.end <= self.len, "a run is sliced within its rows");
        Self { oldest: self.oldest + self.len - rows.end, len: rows.len(), ..*self }
    }

    /// Returns the slot of a row.
    #[inline]
    fn slot(&self, at: usize) -> usize {
        assert!(at < self.len, "a run is read within its rows");
        self.oldest + self.len - 1 - at
    }
}

impl<'g> Records<'g> {
    /// Returns the number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of each record.
    #[inline]
    pub fn size(&self) -> usize {
        self.format.size()
    }

    /// Returns the values of a field of all records, oldest first, one after the other: the field
    /// that begins at `offset` in a record and has `width` bytes. Panics when records have no such
    /// field.
    #[inline]
    pub fn field(&self, offset: usize, width: usize) -> &'g [u8] {
        let field = RecordField { offset, width };
        assert!(self.format.has_field(field), "a record is read by its fields");
        // SAFETY: the records have the field.
        unsafe { self.slots.field(self.oldest..self.oldest + self.len, field) }
    }

    /// Copies the record of a row, 0 being the newest, to `record`, which has [`Self::size`] bytes.
    /// Panics when there is no such row.
    pub fn copy_to(&self, at: usize, record: &mut [u8]) {
        assert!(at < self.len, "a run is read within its rows");
        for RecordField { offset, width } in self.format.fields() {
            let values = self.field(offset, width);
            let start = (self.len - 1 - at) * width;
            record[offset..offset + width].copy_from_slice(&values[start..start + width]);
        }
    }
}

/// Prefetches what a reader that has come to `slots` reads next: the next older chunk of the
/// directory, and these fields of its records.
#[inline]
pub(crate) fn prefetch_older(
    directory: &Directory<ChunkHeader>,
    chunks_ahead: usize,
    slots: &Slots<'_>,
    fields: &[RecordField],
) {
    if let Some(older) = chunks_ahead.checked_sub(1) {
        Chunk::prefetch(directory.get(older), slots, fields);
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for ChunkRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkRun").field("len", &self.len).finish_non_exhaustive()
    }
}
