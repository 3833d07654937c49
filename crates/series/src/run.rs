//! A stretch of a key's rows that lie in one chunk, for readers that go through rows by the
//! hundred: what is the same for all of them is found out once.
//!
//! `key_rows` hands them out; who has one holds a guard.

use std::{fmt, ops::Range};

use crate::{
    Included, RowRef,
    chunk::{Header, Slots},
    spine::Spine,
};

/// Rows of one key that follow each other, newest first: 0 is the newest. Never empty when
/// [`crate::KeyRows::next_run`] gave it; a slice of it can be.
#[derive(Clone, Copy)]
pub struct Run<'g> {
    slots: Slots<'g>,
    /// What records have, where columns are included.
    included: Option<&'g Included>,
    /// The slot of the oldest row.
    oldest: usize,
    len: usize,
}

/// The records of a run's rows, field by field.
#[derive(Clone, Copy)]
pub struct Records<'g> {
    slots: Slots<'g>,
    included: &'g Included,
    oldest: usize,
    len: usize,
}

impl<'g> Run<'g> {
    #[inline]
    pub(crate) fn new(
        slots: Slots<'g>,
        filled: Range<usize>,
        included: Option<&'g Included>,
    ) -> Self {
        Self { slots, included, oldest: filled.start, len: filled.len() }
    }

    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The event time of a row in milliseconds; NULL is `i64::MIN`. Does not touch the row. Panics
    /// when there is no such row.
    #[inline]
    pub fn event_time(&self, at: usize) -> i64 {
        self.slots.event_time(self.slot(at))
    }

    /// A row, which is not touched. Panics when there is no such row.
    #[inline]
    pub fn row(&self, at: usize) -> RowRef<'g> {
        self.slots.row(self.slot(at))
    }

    /// Asks for a row's first cache lines; nothing when there is no such row.
    #[inline]
    pub fn prefetch_row(&self, at: usize) {
        if at < self.len {
            self.row(at).prefetch();
        }
    }

    /// How many of the newest rows have an event time for which `is_newer` holds; it holds for a
    /// row and all newer ones. Binary search; touches no row.
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

    /// The records of the rows; `None` when the index includes no columns, and when the row is the
    /// only one of its key: it has no record, and is to be read itself.
    #[inline]
    pub fn records(&self) -> Option<Records<'g>> {
        let included = self.included.filter(|_| self.slots.has_records())?;
        Some(Records { slots: self.slots, included, oldest: self.oldest, len: self.len })
    }

    /// Some of the rows. Panics when there are not so many.
    #[inline]
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end, "a range begins before it ends");
        assert!(rows.end <= self.len, "a run is sliced within its rows");
        Self { oldest: self.oldest + self.len - rows.end, len: rows.len(), ..*self }
    }

    #[inline]
    fn slot(&self, at: usize) -> usize {
        assert!(at < self.len, "a run is read within its rows");
        self.oldest + self.len - 1 - at
    }
}

impl<'g> Records<'g> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of each.
    #[inline]
    pub fn size(&self) -> usize {
        self.included.size()
    }

    /// A field of all records, oldest first, one value after the other: the one that begins at
    /// `at` in a record and has `width` bytes. Panics when records have no such field.
    #[inline]
    pub fn field(&self, at: usize, width: usize) -> &'g [u8] {
        assert!(self.included.has_field(at, width), "a record is read by its fields");
        // SAFETY: it was asked for just now.
        unsafe { self.slots.field(self.oldest..self.oldest + self.len, (at, width)) }
    }

    /// Writes the record of a row, 0 being the newest, into `record`, which has [`Self::size`]
    /// bytes. Panics when there is no such row.
    pub fn copy_to(&self, at: usize, record: &mut [u8]) {
        assert!(at < self.len, "a run is read within its rows");
        for (place, width) in self.included.fields() {
            let values = self.field(place, width);
            let start = (self.len - 1 - at) * width;
            record[place..place + width].copy_from_slice(&values[start..start + width]);
        }
    }
}

/// Asks for what a reader of the spine that has come to `slots` reads next: the older chunk, and
/// these fields of its records.
#[inline]
pub(crate) fn prefetch_older(
    spine: &Spine<Header>,
    chunks_ahead: usize,
    slots: &Slots<'_>,
    fields: &[(usize, usize)],
) {
    if let Some(older) = chunks_ahead.checked_sub(1) {
        crate::chunk::Chunk::prefetch(spine.part(older), slots, fields);
    }
}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("len", &self.len).finish_non_exhaustive()
    }
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("len", &self.len).finish_non_exhaustive()
    }
}
