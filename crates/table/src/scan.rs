//! Scans: the rows of a snapshot in order of arrival.
//!
//! `engine` and `request` read tables with it; `batch` holds rows beyond the snapshot (`held_rows`). Of a disk table the extents come first, a block at a time, then what is in
//! memory. A row is borrowed until the next one is read, so that a scan takes no more memory than a block.
//!
//! # Retention
//!
//! A row of a disk table is not looked up in an index that counts rows, since each of these look-ups may read
//! a page. Before the first row, the scan reads each such index once as a whole, and notes which rows it keeps
//! ([`RetainedRows`]): a bit for each.

use std::{fmt, ops::Range};

use lockstep_row::{IndexSpec, Retention, RowCodec, RowView};
use lockstep_series::{self as series, Bounds, LogRow, Series};

use crate::{
    ReadError, Snapshot, Table,
    arrival_set::ArrivalSet,
    disk::{DiskRows, TableParts},
    part::{ArrivedPlace, ExtentBlock, KeyScan, for_each_row},
    state,
    table::number,
};

/// The number of rows of an index that are read between two checks for an interrupt.
const CHECKPOINT_ROWS: u64 = 1 << 14;

/// A stored row.
#[derive(Debug, Clone, Copy)]
pub struct StoredRow<'a> {
    /// Its event time in the index it was read through, NULL being `i64::MIN`; where there is
    /// no event-time column, and in [`Snapshot::scan`], the time of arrival in milliseconds.
    pub event_time: i64,
    /// The position at which it was accepted, unique within the engine.
    pub arrival: u64,
    /// Its columns.
    pub row: RowView<'a>,
}

/// A copy of a stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCopy {
    /// As of the row.
    pub event_time: i64,
    /// As of the row.
    pub arrival: u64,
    bytes: Box<[u8]>,
}

impl RowCopy {
    /// Copies a row.
    pub fn of(row: &StoredRow<'_>) -> Self {
        let StoredRow { event_time, arrival, row } = row;
        Self { event_time: *event_time, arrival: *arrival, bytes: row.bytes().into() }
    }

    /// Returns the row, which is of this table.
    pub fn view<'r>(&'r self, table: &'r Table) -> StoredRow<'r> {
        let Self { event_time, arrival, bytes } = self;
        StoredRow { event_time: *event_time, arrival: *arrival, row: table.codec.view(bytes) }
    }
}

/// The rows that are hidden, beside those that the series' bounds hide.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowFilter {
    /// None.
    All,
    /// Those that no declared index keeps.
    Live,
    /// Those that this declared index does not keep.
    Index(usize),
}

/// Rows in order of arrival. See [`Snapshot::scan`] and [`Snapshot::scan_kept_by`].
pub struct ScanRows<'s> {
    snapshot: &'s Snapshot<'s>,
    /// The rows of a disk table that come before those of its log; `None` when they have been read.
    on_disk: Option<Box<DiskScan<'s>>>,
    ahead: series::LogRows<'s>,
    filter: RowFilter,
    kept: NeededRetainedRows,
    /// The index whose event time is shown.
    spec: Option<&'s IndexSpec>,
    /// A buffer, empty as long as no key has to be looked up.
    key: Vec<u8>,
}

/// What a scan of a disk table needs to know which rows indexes keep that count them.
#[derive(Debug)]
enum NeededRetainedRows {
    /// Nothing: rows are looked up, or a row alone says whether it is kept.
    None,
    /// They are found before the first row.
    Wanted,
    Found(RetainedRows),
}

/// For declared indexes that count rows, by position, the rows that each keeps.
#[derive(Debug, Default)]
pub(crate) struct RetainedRows {
    by_index: Vec<(usize, ArrivalSet)>,
}

/// The rows of extents and of the frozen log.
struct DiskScan<'s> {
    extents: ExtentScan<'s>,
    frozen: Option<series::LogRows<'s>>,
    /// The row of the frozen log that was read last; `None` while extents are read.
    row: Option<LogRow<'s>>,
}

/// The rows of extents with arrivals of a range.
pub(crate) struct ExtentScan<'p> {
    parts: &'p TableParts,
    codec: &'p RowCodec,
    arrivals: Range<u64>,
    /// The block that is read next: its extent, and its place in it.
    next: (usize, usize),
    block: Option<ExtentBlock>,
    /// The place of the row that was read last, and of the next one, in the block.
    row: ArrivedPlace,
    next_row: ArrivedPlace,
}

impl Snapshot<'_> {
    /// Returns all live rows in order of arrival: those that at least one declared index keeps, or every
    /// row when the table has no declared index.
    pub fn scan(&self) -> ScanRows<'_> {
        self.scan_by(None)
    }

    /// Returns the rows that an index keeps by its own rule, in order of arrival: the union of
    /// [`Self::rows_kept_by`] over all keys.
    pub fn scan_kept_by(&self, index: usize) -> ScanRows<'_> {
        self.scan_by(Some(index))
    }

    /// Returns the rows of [`Self::scan_kept_by`] an index, or of [`Self::scan`].
    pub fn scan_by(&self, kept_by: Option<usize>) -> ScanRows<'_> {
        let (state, filter) = (self.state(), self.filter_of(kept_by));
        let kept = match &state.disk {
            Some(_) if self.counts_rows_by(kept_by) => NeededRetainedRows::Wanted,
            _ => NeededRetainedRows::None,
        };
        let all = 0..self.visible_arrival();
        let on_disk = state.disk.as_ref();
        let on_disk = on_disk.map(|disk| Box::new(DiskScan::new(self, disk, all)));
        let ahead = state.log.rows(self.visible_arrival(), self.guard());
        let spec = kept_by.map(|index| &state.schema.indexes[index]);
        ScanRows { snapshot: self, on_disk, ahead, filter, kept, spec, key: Vec::new() }
    }

    /// Returns which rows a scan shows.
    pub(crate) fn filter_of(&self, kept_by: Option<usize>) -> RowFilter {
        let state = self.state();
        let kept_by = kept_by.filter(|index| state.schema.indexes[*index].declared);
        match kept_by {
            Some(index) if state.schema.indexes[index].retention == Retention::Forever => {
                RowFilter::All
            }
            Some(index) => RowFilter::Index(index),
            None if state.keeps_everything => RowFilter::All,
            None => RowFilter::Live,
        }
    }

    /// Returns whether an index keeps rows by their number.
    pub(crate) fn counts_rows(&self, index: usize) -> bool {
        state::counts_rows(self.state().schema.indexes[index].retention)
    }

    /// Counts the rows of [`Self::scan_by`]. Reads each of them, but for those in files where none can expire.
    pub fn count(&self, kept_by: Option<usize>) -> Result<u64, ReadError> {
        let state = self.state();
        if let Some(disk) = &state.disk
            && state.keeps_everything
            && disk.parts.end() <= self.visible_arrival()
        {
            let logs = disk.frozen.iter().map(|frozen| &frozen.log).chain([&state.log]);
            let in_memory = logs.map(|log| log.rows(self.visible_arrival(), self.guard()).count());
            return Ok(disk.parts.row_count() + number(in_memory.sum::<usize>()));
        }
        let (mut rows, mut count) = (self.scan_by(kept_by), 0);
        while rows.next_row()?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// Finds the rows that all declared indexes keep which count rows.
    pub(crate) fn kept_rows_by_count(&self) -> Result<RetainedRows, ReadError> {
        let counting = self.state().declared.iter().copied();
        let counting: Vec<usize> = counting.filter(|index| self.counts_rows(*index)).collect();
        self.kept_rows_of_indexes(&counting, &mut || Ok(()))
    }

    /// Finds the rows that indexes keep which count rows. Reads each of these indexes, and calls `checkpoint`
    /// every few thousand rows.
    pub(crate) fn kept_rows_of_indexes<E: From<ReadError>>(
        &self,
        counting: &[usize],
        checkpoint: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<RetainedRows, E> {
        debug_assert!(counting.iter().all(|index| self.counts_rows(*index)), "they count rows");
        let found =
            counting.iter().map(|index| Ok((*index, self.kept_rows_of(*index, checkpoint)?)));
        Ok(RetainedRows { by_index: found.collect::<Result<_, E>>()? })
    }

    fn kept_rows_of<E: From<ReadError>>(
        &self,
        index: usize,
        checkpoint: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<ArrivalSet, E> {
        let state = self.state();
        let retention = state.schema.indexes[index].retention;
        let visible = self.visible_arrival();
        let bounds = Bounds::new(visible, retention, self.now_ms());
        if state.disk.is_none() {
            return kept_rows_in_memory(&state.indexes[index].series, bounds, checkpoint);
        }
        let in_memory = |series| KeyScan::of_series(series, Bounds::visible(visible), self.guard());
        let mut scans = vec![in_memory(&state.indexes[index].series)];
        if let Some(disk) = &state.disk {
            if let Some(frozen) = &disk.frozen {
                scans.push(in_memory(&frozen.indexes[index].series));
            }
            for run in disk.parts.runs(index) {
                scans.push(KeyScan::of_run(run)?);
            }
        }
        let (mut kept, mut passed, mut visited_rows) = (ArrivalSet::default(), 0, 0_u64);
        for_each_row::<E>(&mut scans, |visited| {
            visited_rows += 1;
            if visited_rows.is_multiple_of(CHECKPOINT_ROWS) {
                checkpoint()?;
            }
            if visited.is_first {
                passed = 0;
            }
            let arrival = visited.row.row.arrival();
            if arrival >= visible {
                return Ok(());
            }
            passed += 1;
            if !bounds.is_expired(visited.row.event_time, passed) {
                kept.insert(arrival);
            }
            Ok(())
        })?;
        Ok(kept)
    }
}

impl Snapshot<'_> {
    /// Returns whether some declared index keeps a row. `kept`: what is known of those that count rows.
    pub(crate) fn is_live_by(
        &self,
        found: LogRow<'_>,
        kept: Option<&RetainedRows>,
        key: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        let state = self.state();
        if state.keeps_everything {
            return Ok(true);
        }
        for index in &state.declared {
            if self.is_kept_knowing(*index, found, kept, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a declared index keeps a row, as [`Self::is_live_by`] does for all.
    fn is_kept_knowing(
        &self,
        index: usize,
        found: LogRow<'_>,
        kept: Option<&RetainedRows>,
        key: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        match kept.and_then(|kept| kept.keeps(index, found.row.arrival())) {
            Some(is_kept) => Ok(is_kept),
            None => self.is_kept_by(index, found.row, Some(found.arrival_ms), key),
        }
    }
}

/// Returns the rows of a series that are within bounds. Takes no order of keys, which would take memory.
fn kept_rows_in_memory<E>(
    series: &Series,
    bounds: Bounds,
    checkpoint: &mut dyn FnMut() -> Result<(), E>,
) -> Result<ArrivalSet, E> {
    let (mut kept, mut visited_rows, mut outcome) = (ArrivalSet::default(), 0_u64, Ok(()));
    series.for_each_key(bounds, |rows| {
        for found in rows {
            visited_rows += 1;
            if outcome.is_ok() && visited_rows.is_multiple_of(CHECKPOINT_ROWS) {
                outcome = checkpoint();
            }
            if outcome.is_err() {
                return;
            }
            kept.insert(found.row.arrival());
        }
    });
    outcome.map(|()| kept)
}

impl RetainedRows {
    /// Returns whether an index keeps a row; `None` when the index does not count rows.
    pub(crate) fn keeps(&self, index: usize, arrival: u64) -> Option<bool> {
        let (_, kept) = self.by_index.iter().find(|(of, _)| *of == index)?;
        Some(kept.contains(arrival))
    }
}

impl<'s> ScanRows<'s> {
    /// Returns the next row, which is borrowed until the next call.
    #[inline]
    pub fn next_row(&mut self) -> Result<Option<StoredRow<'_>>, ReadError> {
        if self.on_disk.is_some() && self.advance_on_disk()? {
            let found = self.on_disk.as_ref().and_then(|on_disk| on_disk.row());
            return Ok(found.map(|found| stored(self.snapshot, self.spec, found)));
        }
        while let Some(found) = self.ahead.next() {
            if self.is_shown(found)? {
                return Ok(Some(stored(self.snapshot, self.spec, found)));
            }
        }
        Ok(None)
    }

    /// Returns what `map` makes of each row.
    pub fn map_rows<T>(
        mut self,
        mut map: impl FnMut(StoredRow<'_>) -> T,
    ) -> impl Iterator<Item = Result<T, ReadError>> {
        std::iter::from_fn(move || {
            let row = self.next_row();
            row.map(|row| row.map(&mut map)).transpose()
        })
    }

    /// Returns the rows as long as the snapshot exists. Those of files are copied, and stay in memory as long.
    pub fn kept_rows(mut self) -> impl Iterator<Item = Result<StoredRow<'s>, ReadError>> {
        std::iter::from_fn(move || self.next_kept_row().transpose())
    }

    fn next_kept_row(&mut self) -> Result<Option<StoredRow<'s>>, ReadError> {
        let (snapshot, spec) = (self.snapshot, self.spec);
        if self.on_disk.is_some() && self.advance_on_disk()? {
            let found = self.on_disk.as_ref().and_then(|on_disk| on_disk.row());
            return Ok(found.map(|found| snapshot.keep(&stored(snapshot, spec, found))));
        }
        while let Some(found) = self.ahead.next() {
            if self.is_shown(found)? {
                return Ok(Some(stored(snapshot, spec, found)));
            }
        }
        Ok(None)
    }

    /// Goes on to the next row of a disk table that is shown; `false` when it is not before the rows of the log.
    #[inline(never)]
    fn advance_on_disk(&mut self) -> Result<bool, ReadError> {
        if let NeededRetainedRows::Wanted = self.kept {
            self.kept = NeededRetainedRows::Found(self.snapshot.kept_rows_by_count()?);
        }
        let Some(mut on_disk) = self.on_disk.take() else { return Ok(false) };
        let mut shown = Ok(false);
        while matches!(shown, Ok(false)) {
            match on_disk.advance() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => shown = Err(error),
            }
            if let (Ok(false), Some(found)) = (&shown, on_disk.row()) {
                shown = self.is_shown(found);
            }
        }
        self.on_disk = Some(on_disk);
        shown
    }

    /// Returns whether the filter shows a row.
    #[inline]
    fn is_shown(&mut self, found: LogRow<'_>) -> Result<bool, ReadError> {
        let Self { snapshot, filter, kept, key, .. } = self;
        let kept = match kept {
            NeededRetainedRows::Found(kept) => Some(&*kept),
            NeededRetainedRows::None | NeededRetainedRows::Wanted => None,
        };
        match *filter {
            RowFilter::All => Ok(true),
            RowFilter::Live => snapshot.is_live_by(found, kept, key),
            RowFilter::Index(index) => snapshot.is_kept_knowing(index, found, kept, key),
        }
    }
}

/// Makes a row of what was read, with its event time in an index.
#[inline]
fn stored<'r>(
    snapshot: &'r Snapshot<'_>,
    spec: Option<&IndexSpec>,
    LogRow { row, arrival_ms }: LogRow<'r>,
) -> StoredRow<'r> {
    let view = snapshot.table().view(row);
    let event_time = spec.map_or(arrival_ms, |spec| state::event_time(spec, view, || arrival_ms));
    StoredRow { event_time, arrival: row.arrival(), row: view }
}

impl<'s> DiskScan<'s> {
    fn new(snapshot: &'s Snapshot<'s>, disk: &'s DiskRows, arrivals: Range<u64>) -> Self {
        let frozen = disk
            .frozen
            .as_ref()
            .map(|frozen| frozen.log.rows_since(arrivals.start, arrivals.end, snapshot.guard()));
        let extents = ExtentScan::new(&disk.parts, &snapshot.table().codec, arrivals);
        Self { extents, frozen, row: None }
    }

    /// Goes on to the next row; `false` when there is none.
    fn advance(&mut self) -> Result<bool, ReadError> {
        if self.row.is_none() && self.extents.advance()? {
            return Ok(true);
        }
        self.row = self.frozen.as_mut().and_then(Iterator::next);
        Ok(self.row.is_some())
    }

    /// Returns the row.
    fn row(&self) -> Option<LogRow<'_>> {
        self.row.or_else(|| self.extents.row())
    }
}

impl<'p> ExtentScan<'p> {
    pub(crate) fn new(parts: &'p TableParts, codec: &'p RowCodec, arrivals: Range<u64>) -> Self {
        let extents = parts.extents();
        let extent = extents.partition_point(|extent| extent.arrivals().end <= arrivals.start);
        let block = extents.get(extent).map_or(0, |extent| extent.block_of(arrivals.start));
        let (row, next_row) = (ArrivedPlace::default(), ArrivedPlace::default());
        Self { parts, codec, arrivals, next: (extent, block), block: None, row, next_row }
    }

    /// Visits the rows until one fails.
    pub(crate) fn for_each<E: From<ReadError>>(
        mut self,
        mut visit: impl FnMut(LogRow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.advance()? {
            self.row().map_or(Ok(()), &mut visit)?;
        }
        Ok(())
    }

    /// Goes on to the next row; `false` when there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.advance_in_block() {
                return Ok(true);
            }
            let (extent, block) = self.next;
            let Some(found) = self.parts.extents().get(extent) else {
                self.block = None;
                return Ok(false);
            };
            if block >= found.block_count() {
                self.next = (extent + 1, 0);
                continue;
            }
            if found.block_start(block) >= self.arrivals.end {
                self.block = None;
                return Ok(false);
            }
            self.block = Some(found.read(block, self.codec)?);
            (self.next, self.next_row) = ((extent, block + 1), ArrivedPlace::default());
        }
    }

    /// Goes on to the next row of the block that has an arrival of the range. Behind the range nothing is read.
    fn advance_in_block(&mut self) -> bool {
        let Some(block) = &self.block else { return false };
        while let Some(found) = block.get(self.next_row) {
            let arrival = found.row.arrival();
            if arrival >= self.arrivals.end {
                self.next = (usize::MAX, 0);
                return false;
            }
            self.row = self.next_row;
            self.next_row = block.after(self.row);
            if arrival >= self.arrivals.start {
                return true;
            }
        }
        false
    }

    /// Returns the row.
    pub(crate) fn row(&self) -> Option<LogRow<'_>> {
        self.block.as_ref()?.get(self.row)
    }
}

impl fmt::Debug for ScanRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanRows").field("filter", &self.filter).finish_non_exhaustive()
    }
}
