//! The rows of one entity key, newest first: as a sequence of rows, or of runs that are stored together.
//!
//! `request` reads windows with it. The rows of a memory table come from its series; those of a disk table from
//! a merge of memory and runs ([`MergedRows`]), which the snapshot's pages stay in memory for.

use std::{fmt, ops::Range};

use lockstep_row::RowView;
use lockstep_series::{self as series, RecordField};

use crate::{
    ReadError, Snapshot, StoredRow,
    part::{MergedRows, PageSource},
};

/// The rows of one entity key, newest first. See [`Snapshot::rows`].
#[derive(Clone)]
pub struct KeyRows<'s> {
    snapshot: &'s Snapshot<'s>,
    ahead: series::SeriesRows<'s>,
    /// The rows of a disk table; then there are none in `ahead`.
    merged: Option<Box<DiskCursor<'s>>>,
    /// Whether rows that no declared index keeps are hidden.
    is_live_only: bool,
    /// A buffer, empty as long as no key has to be looked up.
    key: Vec<u8>,
}

/// The rows of a key of a disk table.
#[derive(Clone)]
struct DiskCursor<'s> {
    rows: MergedRows<'s>,
    pages: PageSource<'s>,
}

/// Rows of one entity key that follow each other, newest first: 0 is the newest. Never empty when
/// [`KeyRows::next_run`] returned it; a slice of it can be.
#[derive(Clone, Copy)]
pub struct KeyRun<'s> {
    snapshot: &'s Snapshot<'s>,
    run: series::ChunkRun<'s>,
}

impl<'s> KeyRows<'s> {
    /// Makes a cursor of rows in memory.
    #[inline]
    pub(crate) fn in_memory(
        snapshot: &'s Snapshot<'s>,
        ahead: series::SeriesRows<'s>,
        is_live_only: bool,
    ) -> Self {
        Self { snapshot, ahead, merged: None, is_live_only, key: Vec::new() }
    }

    /// Makes a cursor of rows of a disk table.
    pub(crate) fn on_disk(
        snapshot: &'s Snapshot<'s>,
        rows: MergedRows<'s>,
        pages: PageSource<'s>,
        is_live_only: bool,
    ) -> Self {
        let merged = Some(Box::new(DiskCursor { rows, pages }));
        Self { merged, ..Self::in_memory(snapshot, series::SeriesRows::empty(), is_live_only) }
    }

    /// Skips the rows newer than `event_time_max`; never goes back. Binary search.
    #[inline]
    pub fn seek(&mut self, event_time_max: i64) {
        match &mut self.merged {
            None => self.ahead.seek(event_time_max),
            Some(merged) => merged.rows.seek(event_time_max),
        }
    }

    /// Skips the rows newer than `event_time_max`, of which there are so many; never goes back. Binary
    /// search.
    pub fn skip_to(&mut self, event_time_max: i64, rows: u64) {
        debug_assert!(!self.is_live_only, "rows that are hidden one by one are not counted");
        match &mut self.merged {
            None => self.ahead.skip_to(event_time_max, rows),
            Some(merged) => merged.rows.skip_to(event_time_max, rows),
        }
    }

    /// Returns whether the row with this event time is kept if it comes after so many of the rows ahead,
    /// and with it all that are newer.
    #[inline]
    pub fn keeps_after(&self, event_time: i64, rows: u64) -> bool {
        match &self.merged {
            None => self.ahead.keeps_after(event_time, rows),
            Some(merged) => merged.rows.keeps_after(event_time, rows),
        }
    }

    /// Skips the rows that are not before a row of this event time and arrival; never goes back.
    /// Binary search.
    pub fn seek_before(&mut self, event_time: i64, arrival: u64) {
        match &mut self.merged {
            None => self.ahead.seek_before(event_time, arrival),
            Some(merged) => merged.rows.seek_before(event_time, arrival),
        }
    }

    /// Returns whether there is a row with this event time and arrival ahead. Reads at most the pages that may
    /// have it.
    pub(crate) fn contains(mut self, event_time: i64, arrival: u64) -> Result<bool, ReadError> {
        debug_assert!(!self.is_live_only, "rows are looked up by the rule of their index");
        if self.merged.is_none() {
            return Ok(self.ahead.contains(event_time, arrival));
        }
        match arrival.checked_add(1) {
            Some(next) => self.seek_before(event_time, next),
            None => self.seek(event_time),
        }
        let found = self.next().transpose()?;
        Ok(found.is_some_and(|row| (row.event_time, row.arrival) == (event_time, arrival)))
    }

    /// Returns the next rows that are stored together: about a hundred of a key that has many. The runs,
    /// one after the other, have the rows that the iterator returns; both may be used alternately.
    /// Where nothing hides single rows, no row is touched.
    #[inline]
    pub fn next_run(&mut self) -> Result<Option<KeyRun<'s>>, ReadError> {
        let run = match &mut self.merged {
            Some(_) => self.next_run_on_disk(usize::MAX)?,
            None if self.is_live_only => self.next_live_run()?,
            None => self.ahead.next_run(),
        };
        Ok(run.map(|run| KeyRun { snapshot: self.snapshot, run }))
    }

    /// Returns the next rows of a disk table that are stored together, at most so many.
    #[inline(never)]
    fn next_run_on_disk(
        &mut self,
        rows_max: usize,
    ) -> Result<Option<series::ChunkRun<'s>>, ReadError> {
        let Some(merged) = &mut self.merged else { return Ok(None) };
        let DiskCursor { rows, pages } = &mut **merged;
        if self.is_live_only {
            let (snapshot, key) = (self.snapshot, &mut self.key);
            return rows.next_run_of(pages, rows_max, |row| snapshot.is_live(row, key));
        }
        let run = rows.next_run(pages)?;
        if let Some(longer) = run.filter(|run| run.len() > rows_max) {
            rows.put_back(longer.slice(rows_max..longer.len()));
            return Ok(Some(longer.slice(0..rows_max)));
        }
        Ok(run)
    }

    /// Returns the next row of a disk table.
    #[inline(never)]
    fn next_on_disk(&mut self) -> Result<Option<StoredRow<'s>>, ReadError> {
        let run = self.next_run_on_disk(1)?;
        Ok(run.map(|run| KeyRun { snapshot: self.snapshot, run }.stored_row(0)))
    }

    /// Returns the next rows that are stored together and live.
    fn next_live_run(&mut self) -> Result<Option<series::ChunkRun<'s>>, ReadError> {
        let (snapshot, key) = (self.snapshot, &mut self.key);
        let mut failed = None;
        let run = self.ahead.next_run_of(|row| {
            let is_live = match failed {
                None => snapshot.is_live(row, key),
                Some(_) => Ok(false),
            };
            is_live.unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        });
        failed.map_or(Ok(run), Err)
    }

    /// Prefetches the event times of the run after the current one and some fields of its records. To
    /// be called after [`Self::next_run`] and before its rows are read, by a reader that will read on:
    /// it costs some tens of nanoseconds, and saves the cache misses of the next run.
    #[inline]
    pub fn prefetch_next_run(&self, fields: &[RecordField]) {
        if self.merged.is_none() {
            self.ahead.prefetch_next_run(fields);
        }
    }
}

impl<'s> KeyRun<'s> {
    /// Makes a run of rows of the snapshot's table.
    pub(crate) fn new(snapshot: &'s Snapshot<'s>, run: series::ChunkRun<'s>) -> Self {
        Self { snapshot, run }
    }

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.run.len()
    }

    /// Returns whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.run.is_empty()
    }

    /// Returns the event time of a row: see [`StoredRow::event_time`]. Does not touch the row. Panics
    /// when there is no such row, as do the other methods.
    #[inline]
    pub fn event_time(&self, at: usize) -> i64 {
        self.run.event_time(at)
    }

    /// Returns a row.
    #[inline]
    pub fn stored_row(&self, at: usize) -> StoredRow<'s> {
        let row = self.run.row(at);
        let (event_time, arrival) = (self.run.event_time(at), row.arrival());
        StoredRow { event_time, arrival, row: self.snapshot.view(row) }
    }

    /// Returns the columns of a row.
    #[inline]
    pub fn row(&self, at: usize) -> RowView<'s> {
        self.snapshot.view(self.run.row(at))
    }

    /// Prefetches a row; does nothing when there is no such row.
    #[inline]
    pub fn prefetch_row(&self, at: usize) {
        self.run.prefetch_row(at);
    }

    /// Counts the newest rows for whose event time `is_newer` holds; it holds for a row and all newer
    /// ones. Binary search; touches no row.
    #[inline]
    pub fn partition_point(&self, is_newer: impl Fn(i64) -> bool) -> usize {
        self.run.partition_point(is_newer)
    }

    /// Returns the records of the rows, laid out by the snapshot's [`Snapshot::projection`] of the index;
    /// `None` when there are none and the rows are to be read: the index includes no columns, or
    /// the row is the only one of its key.
    #[inline]
    pub fn records(&self) -> Option<series::Records<'s>> {
        self.run.records()
    }

    /// Returns some of the rows. Panics when there are not so many.
    #[inline]
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        Self { run: self.run.slice(rows), ..*self }
    }
}

impl fmt::Debug for KeyRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.fmt(f)
    }
}

impl<'s> Iterator for KeyRows<'s> {
    type Item = Result<StoredRow<'s>, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.merged.is_some() {
            return self.next_on_disk().transpose();
        }
        loop {
            let found = self.ahead.next()?;
            if self.is_live_only {
                match self.snapshot.is_live(found.row, &mut self.key) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            let view = self.snapshot.view(found.row);
            let (event_time, arrival) = (found.event_time, found.row.arrival());
            return Some(Ok(StoredRow { event_time, arrival, row: view }));
        }
    }
}

impl fmt::Debug for KeyRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ahead = self.merged.as_ref().map(|merged| &merged.rows);
        f.debug_struct("KeyRows")
            .field("ahead", &self.ahead)
            .field("on_disk", &ahead)
            .finish_non_exhaustive()
    }
}
