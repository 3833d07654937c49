//! A consistent view of a table: the rows visible at one moment, by index or in order of arrival.
//!
//! `request` reads by key, `batch` in order of arrival, both the same rows. Reads of rows in memory
//! neither lock, wait nor fail; each read returns a `Result` because rows may be on a disk.

use std::{borrow::BorrowMut, fmt, ops::Range, ptr::NonNull, sync::atomic::Ordering};

use lockstep_row::{IndexSpec, Projection, Retention, RowView, TableSchema};
use lockstep_series::{self as series, Bounds, Guard, KeyNodes, LogRow, RecordField, RowRef};

use crate::{
    ReadError,
    retention::Horizon,
    state::{self, Origin, TableState},
    table::Table,
};

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

/// The rows that were visible at one moment. Taking one costs a few nanoseconds and allocates
/// nothing; until it is dropped, no removed row of any table is freed, so it is to be used briefly. It
/// cannot be sent to another thread.
pub struct Snapshot<'t> {
    table: &'t Table,
    guard: Guard,
    /// Not freed before the guard is dropped.
    state: NonNull<TableState>,
    visible_arrival: u64,
    now_ms: i64,
}

/// What a snapshot shows, for other threads to read while the snapshot exists.
#[derive(Clone, Copy)]
pub struct SharedSnapshot<'s> {
    table: &'s Table,
    state: NonNull<TableState>,
    visible_arrival: u64,
    now_ms: i64,
}

// SAFETY: threads share what a table publishes; the state is not freed before the guard of the
// snapshot that was shared is dropped, for whose life this is borrowed.
unsafe impl Send for SharedSnapshot<'_> {}
// SAFETY: as above; nothing of it changes.
unsafe impl Sync for SharedSnapshot<'_> {}

impl<'s> SharedSnapshot<'s> {
    /// Makes a snapshot of this thread that shows the same.
    pub fn open(&self) -> Snapshot<'s> {
        let Self { table, state, visible_arrival, now_ms } = *self;
        let guard = series::pin();
        debug_assert!(table.current(&guard).1 >= visible_arrival, "what was visible stays so");
        Snapshot { table, guard, state, visible_arrival, now_ms }
    }
}

impl fmt::Debug for SharedSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSnapshot")
            .field("visible_arrival", &self.visible_arrival)
            .finish_non_exhaustive()
    }
}

/// What a snapshot shows: the rows that were visible and had not expired at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotMoment {
    visible_arrival: u64,
    now_ms: i64,
    /// How often rows had been removed otherwise than by expiring.
    generation: u64,
}

impl Table {
    /// Takes a snapshot that shows what one of this table showed at a moment; `None` when rows were
    /// removed since.
    pub fn snapshot_at(&self, moment: SnapshotMoment) -> Option<Snapshot<'_>> {
        let SnapshotMoment { visible_arrival, now_ms, .. } = moment;
        let snapshot = Snapshot { visible_arrival, now_ms, ..self.snapshot() };
        snapshot.is_complete_at(&moment).then_some(snapshot)
    }
}

/// After so many attempts to take snapshots of one moment, the thread lets others run.
const ATTEMPTS_MAX: u32 = 64;

impl<'t> Snapshot<'t> {
    /// Makes a snapshot of a state that was loaded under this guard.
    pub(crate) fn new(
        table: &'t Table,
        guard: Guard,
        state: NonNull<TableState>,
        horizon: Horizon,
    ) -> Self {
        let Horizon { visible_arrival, now_ms } = horizon;
        Self { table, guard, state, visible_arrival, now_ms }
    }

    /// Makes snapshots show their tables as they are at one moment, and by one time: a row that became
    /// visible before another one, in whichever of the tables, is not missing where the other is shown;
    /// nor is a part of an append over several tables. Takes the snapshots again when a row became
    /// visible between the first and the last of them. The tables are of one engine.
    pub fn align(snapshots: &mut [impl BorrowMut<Self>]) {
        if snapshots.len() < 2 {
            return;
        }
        let mut attempts = 0;
        while !Self::are_of_one_moment(snapshots) {
            attempts += 1;
            if attempts % ATTEMPTS_MAX == 0 {
                // Who publishes rows of several tables may have been interrupted.
                std::thread::yield_now();
            }
            for snapshot in &mut *snapshots {
                let snapshot = snapshot.borrow_mut();
                *snapshot = snapshot.table.snapshot();
            }
        }
        let now_ms = snapshots.iter().map(|snapshot| snapshot.borrow().now_ms).max();
        for snapshot in snapshots {
            let snapshot = snapshot.borrow_mut();
            snapshot.now_ms = now_ms.unwrap_or(snapshot.now_ms);
        }
    }

    /// Returns whether the snapshots, of which there are some, show one moment.
    fn are_of_one_moment(snapshots: &[impl BorrowMut<Self>]) -> bool {
        let publications = &snapshots[0].borrow().table.arrivals.publications;
        let Some(count) = publications.count() else {
            std::hint::spin_loop();
            return false;
        };
        // When none has changed since the last one was taken, all were current when it was.
        snapshots.iter().all(|snapshot| snapshot.borrow().is_current())
            && publications.is_unchanged_since(count)
    }

    /// Returns whether a snapshot taken now would show the same rows, but for those that expire.
    fn is_current(&self) -> bool {
        let (state, visible_arrival) = self.table.current(&self.guard);
        std::ptr::eq(state, self.state()) && visible_arrival == self.visible_arrival
    }

    /// Returns the time of the snapshot in milliseconds since the epoch, by which rows expire.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Returns the visible arrival: rows with a smaller one are visible.
    pub fn visible_arrival(&self) -> u64 {
        self.visible_arrival
    }

    /// Shares what the snapshot shows with other threads.
    pub fn share(&self) -> SharedSnapshot<'_> {
        let Self { table, state, visible_arrival, now_ms, .. } = *self;
        debug_assert!(table.current(&self.guard).1 >= visible_arrival, "as in `open`");
        SharedSnapshot { table, state, visible_arrival, now_ms }
    }

    /// Returns what the snapshot shows, to take another like it later.
    pub fn moment(&self) -> SnapshotMoment {
        let generation = self.table.generation();
        SnapshotMoment { visible_arrival: self.visible_arrival, now_ms: self.now_ms, generation }
    }

    /// Returns whether no row that was shown at a moment has been removed since.
    pub fn is_complete_at(&self, moment: &SnapshotMoment) -> bool {
        self.table.generation() == moment.generation && self.removed_ms() <= moment.now_ms
    }

    /// Returns a snapshot of the same table that shows what this one showed when `arrival` was the next
    /// arrival, by the time `now_ms`: of its rows those with a smaller arrival. Rows that had not
    /// expired by then and may have been removed since are not shown; [`Self::may_lack`] tells.
    ///
    /// *Cost*: some nanoseconds, no allocation.
    #[must_use]
    pub fn before(&self, arrival: u64, now_ms: i64) -> Self {
        let now_ms = now_ms.max(self.removed_ms()).min(self.now_ms);
        let visible_arrival = self.visible_arrival.min(arrival);
        debug_assert!(now_ms <= self.now_ms, "not later than this one");
        Self { guard: series::pin(), visible_arrival, now_ms, ..*self }
    }

    /// Returns whether rows that were shown at `now_ms`, or later, may have been removed since: by
    /// retention, by DELETE, or by a change of the indexes.
    pub fn may_lack(&self, now_ms: i64) -> bool {
        self.may_have_expired(now_ms) || self.has_deleted()
    }

    /// Returns whether rows that had not expired at `now_ms` may have been removed since by retention.
    pub fn may_have_expired(&self, now_ms: i64) -> bool {
        !self.state().keeps_everything && self.removed_ms() > now_ms
    }

    /// Returns whether rows were removed otherwise, since the table was made or opened: by DELETE, or by a
    /// change of the indexes.
    pub fn has_deleted(&self) -> bool {
        self.table.generation() > 0
    }

    /// Returns whether retention may hide rows as time goes by.
    pub fn may_expire(&self) -> bool {
        !self.state().keeps_everything
    }

    /// Returns the time at which a visible row arrived, in milliseconds since the epoch. Binary search.
    pub fn arrival_ms(&self, arrival: u64) -> i64 {
        self.state().log.arrival_ms(arrival, &self.guard)
    }

    /// Returns the time as of which expired rows may have been removed.
    fn removed_ms(&self) -> i64 {
        // Acquire: pairs with the Release in `note_horizon`.
        self.table.now_ms_min.load(Ordering::Acquire)
    }

    /// Returns the schema, whose index positions [`Self::rows`] and [`Self::scan_kept_by`] take.
    pub fn schema(&self) -> &TableSchema {
        &self.state().schema
    }

    /// Returns all live rows in order of arrival: those that at least one declared index keeps, or every
    /// row when the table has no declared index.
    pub fn scan(&self) -> ScanRows<'_> {
        let filter = if self.state().keeps_everything { RowFilter::All } else { RowFilter::Live };
        ScanRows { snapshot: self, ahead: self.arrived(), filter, spec: None, key: Vec::new() }
    }

    /// Returns the rows that an index keeps by its own rule, in order of arrival: the union of
    /// [`Self::rows_kept_by`] over all keys.
    pub fn scan_kept_by(&self, index: usize) -> ScanRows<'_> {
        let state = self.state();
        let spec = &state.schema.indexes[index];
        let filter = match spec {
            IndexSpec { declared: true, retention: Retention::Forever, .. } => RowFilter::All,
            IndexSpec { declared: true, .. } => RowFilter::Index(index),
            _ if state.keeps_everything => RowFilter::All,
            _ => RowFilter::Live,
        };
        ScanRows {
            snapshot: self,
            ahead: self.arrived(),
            filter,
            spec: Some(spec),
            key: Vec::new(),
        }
    }

    /// Returns the rows of [`Self::scan_kept_by`] an index, or of [`Self::scan`].
    pub fn scan_by(&self, kept_by: Option<usize>) -> ScanRows<'_> {
        match kept_by {
            Some(index) => self.scan_kept_by(index),
            None => self.scan(),
        }
    }

    /// Counts the rows of [`Self::scan_by`]. Reads each of them.
    pub fn count(&self, kept_by: Option<usize>) -> Result<u64, ReadError> {
        count_rows(self.scan_by(kept_by))
    }

    /// Splits the rows of [`Self::scan`], or of [`Self::scan_kept_by`] an index, into at most `count`
    /// parts that follow each other, which other threads may read until this snapshot is dropped.
    pub fn scan_parts(&self, kept_by: Option<usize>, count: usize) -> Vec<ScanPart<'t>> {
        let mut starts = vec![0];
        starts.extend(self.state().log.split(count, &self.guard));
        let ends = starts[1..].iter().copied().chain([self.visible_arrival]);
        let (table, moment) = (self.table, self.moment());
        let part =
            |(from, to): (&u64, u64)| ScanPart { table, moment, kept_by, arrivals: *from..to };
        starts.iter().zip(ends).map(part).collect()
    }

    /// Returns the live rows of one entity key, those of [`Self::scan`], newest first by (event time,
    /// arrival). The key's values are encoded with `row::key::encode_key` in the order of the
    /// index's `IndexSpec::keys`, which may differ from the order in which `ensure_index` was called.
    ///
    /// *Cost*: where the declared indexes keep rows by different rules, each row is looked up in them.
    #[inline]
    pub fn rows(&self, index: usize, key: &[u8]) -> KeyRows<'_> {
        let (bounds, is_live_only) = match self.state().live_retentions[index] {
            Some(retention) => (self.bounds(retention), false),
            None => (Bounds::visible(self.visible_arrival), true),
        };
        self.seek(index, key, bounds, is_live_only)
    }

    /// Returns the rows of [`Self::rows`] without those that this index does not keep by its own rule,
    /// although another one does. An index that is not declared has no rule, and shows the live rows.
    #[inline]
    pub fn rows_kept_by(&self, index: usize, key: &[u8]) -> KeyRows<'_> {
        let spec = &self.state().schema.indexes[index];
        if !spec.declared {
            return self.rows(index, key);
        }
        self.seek(index, key, self.bounds(spec.retention), false)
    }

    /// Returns the bounds of a reader by a rule.
    fn bounds(&self, retention: Retention) -> Bounds {
        Bounds::new(self.visible_arrival, retention, self.now_ms)
    }

    /// Returns the rows of a key in an index.
    #[inline]
    fn seek(&self, index: usize, key: &[u8], bounds: Bounds, is_live_only: bool) -> KeyRows<'_> {
        let index = &self.state().indexes[index];
        // Without this, a reader that releases an index before it reads would find no rows.
        assert!(index.origin != Origin::Removed, "an index that is read is held");
        let ahead = index.series.seek(key, bounds, &self.guard);
        let ahead = ahead.unwrap_or_else(series::SeriesRows::empty);
        KeyRows { snapshot: self, ahead, is_live_only, key: Vec::new() }
    }

    /// Returns the nodes of a key in the levels of an index with this number ([`Table::hold_levels`]);
    /// `None` when there are none, and where the rows of a key are hidden one by one. `key` is called
    /// where any key has some.
    #[inline]
    pub fn nodes<'s>(
        &'s self,
        index: usize,
        levels: u64,
        key: impl FnOnce() -> &'s [u8],
    ) -> Option<KeyNodes<'s>> {
        let state = self.state();
        state.live_retentions[index]?;
        state.indexes[index].series.nodes(levels, key, &self.guard)
    }

    /// Returns whether [`Self::nodes`] may return some: rows of the index are not hidden one by one.
    pub fn may_have_nodes(&self, index: usize) -> bool {
        self.state().live_retentions[index].is_some()
    }

    /// Returns the layout of the records of an index, which [`KeyRun::records`] returns; `None` when the
    /// index includes no columns. See [`Table::include`].
    pub fn projection(&self, index: usize) -> Option<&Projection> {
        let projection = &*self.state().indexes[index].projection;
        (projection.size() > 0).then_some(projection)
    }

    /// Returns whether a live row is equal to this one in every column.
    pub(crate) fn contains(&self, row: RowRef<'_>) -> Result<bool, ReadError> {
        let state = self.state();
        let Some(index) = state.schema.indexes.iter().position(|spec| spec.declared) else {
            return Ok(self.arrived().any(|found| found.row.bytes() == row.bytes()));
        };
        let mut key = Vec::new();
        state::encode_key(&state.schema.indexes[index], self.table.view(row), &mut key);
        self.any_live(index, &key, |found| found.bytes() == row.bytes())
    }

    /// Returns whether a live row has the encoded key in the index at a position.
    pub(crate) fn contains_key(&self, index: usize, key: &[u8]) -> Result<bool, ReadError> {
        debug_assert!(!self.state().schema.indexes[index].is_removed(), "the index has rows");
        self.any_live(index, key, |_| true)
    }

    /// Returns whether a visible row of a key fulfils a condition and is live.
    fn any_live(
        &self,
        index: usize,
        key: &[u8],
        fulfils: impl Fn(RowRef<'_>) -> bool,
    ) -> Result<bool, ReadError> {
        let bounds = Bounds::visible(self.visible_arrival);
        let mut scratch = Vec::new();
        let rows = self.state().indexes[index].series.seek(key, bounds, &self.guard);
        for found in rows.into_iter().flatten() {
            if fulfils(found.row) && self.is_live(found.row, &mut scratch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether some declared index keeps the row. `key` is a buffer.
    pub(crate) fn is_live(&self, row: RowRef<'_>, key: &mut Vec<u8>) -> Result<bool, ReadError> {
        let state = self.state();
        if state.keeps_everything {
            return Ok(true);
        }
        for index in &state.declared {
            if self.is_kept_by(*index, row, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a declared index keeps the row, which is visible.
    fn is_kept_by(
        &self,
        index: usize,
        row: RowRef<'_>,
        key: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        let state = self.state();
        let spec = &state.schema.indexes[index];
        let view = self.table.view(row);
        let arrival_ms = || state.log.arrival_ms(row.arrival(), &self.guard);
        let event_time = state::event_time(spec, view, arrival_ms);
        let retention = spec.retention;
        if matches!(retention, Retention::Forever | Retention::Absolute { .. }) {
            return Ok(!retention.is_expired(event_time, 1, self.now_ms));
        }
        // The rule counts rows of the key, so the row is looked up.
        key.clear();
        state::encode_key(spec, view, key);
        let rows = state.indexes[index].series.seek(key, self.bounds(retention), &self.guard);
        Ok(rows.is_some_and(|rows| rows.contains(event_time, row.arrival())))
    }

    /// Returns whether a filter shows the row.
    #[inline]
    fn is_shown(
        &self,
        filter: RowFilter,
        row: RowRef<'_>,
        key: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        match filter {
            RowFilter::All => Ok(true),
            RowFilter::Live => self.is_live(row, key),
            RowFilter::Index(index) => self.is_kept_by(index, row, key),
        }
    }

    /// Returns the visible rows in order of arrival.
    fn arrived(&self) -> series::LogRows<'_> {
        self.state().log.rows(self.visible_arrival, &self.guard)
    }

    /// Returns the number of rows in memory, without those that were collected: at least as many as a
    /// scan returns.
    pub fn log_row_count(&self) -> usize {
        self.state().log.row_count(&self.guard)
    }

    /// Returns the guard, under which the state was loaded.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns the state.
    #[inline]
    pub(crate) fn state(&self) -> &TableState {
        // SAFETY: it was loaded under the guard, and a state that is replaced is freed when the guards
        // of that time are gone.
        unsafe { self.state.as_ref() }
    }
}

impl Clone for Snapshot<'_> {
    fn clone(&self) -> Self {
        // Another guard of the same thread keeps what this one does: nested in the first, it has the
        // epoch of the first.
        Self { guard: series::pin(), ..*self }
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("visible_arrival", &self.visible_arrival)
            .field("now_ms", &self.now_ms)
            .finish_non_exhaustive()
    }
}

/// Counts rows, each of which is read.
pub(crate) fn count_rows<'s>(
    mut rows: impl Iterator<Item = Result<StoredRow<'s>, ReadError>>,
) -> Result<u64, ReadError> {
    rows.try_fold(0, |count, row| row.map(|_| count + 1))
}

/// The rows that are hidden, beside those that the series' bounds hide.
#[derive(Debug, Clone, Copy)]
enum RowFilter {
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
    ahead: series::LogRows<'s>,
    filter: RowFilter,
    /// The index whose event time is shown.
    spec: Option<&'s IndexSpec>,
    /// A buffer, empty as long as no key has to be looked up.
    key: Vec<u8>,
}

/// A part of the rows of a scan. See [`Snapshot::scan_parts`].
#[derive(Debug, Clone)]
pub struct ScanPart<'t> {
    table: &'t Table,
    moment: SnapshotMoment,
    kept_by: Option<usize>,
    arrivals: Range<u64>,
}

impl ScanPart<'_> {
    /// Passes the rows to `body`; `None`, without a call, where rows were removed since the snapshot was
    /// taken.
    pub fn read<T>(&self, body: impl FnOnce(ScanRows<'_>) -> T) -> Option<T> {
        let snapshot = self.table.snapshot_at(self.moment)?;
        let rows = snapshot.scan_by(self.kept_by);
        let Range { start, end } = self.arrivals;
        let visible = end.min(snapshot.visible_arrival);
        let ahead = snapshot.state().log.rows_since(start, visible, &snapshot.guard);
        Some(body(ScanRows { ahead, ..rows }))
    }
}

impl<'s> Iterator for ScanRows<'s> {
    type Item = Result<StoredRow<'s>, ReadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let LogRow { row, arrival_ms } = self.ahead.next()?;
            match self.snapshot.is_shown(self.filter, row, &mut self.key) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return Some(Err(error)),
            }
            let view = self.snapshot.table.view(row);
            let event_time =
                self.spec.map_or(arrival_ms, |spec| state::event_time(spec, view, || arrival_ms));
            return Some(Ok(StoredRow { event_time, arrival: row.arrival(), row: view }));
        }
    }
}

impl fmt::Debug for ScanRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanRows").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// The rows of one entity key, newest first. See [`Snapshot::rows`].
#[derive(Clone)]
pub struct KeyRows<'s> {
    snapshot: &'s Snapshot<'s>,
    ahead: series::SeriesRows<'s>,
    /// Whether rows that no declared index keeps are hidden.
    is_live_only: bool,
    /// A buffer, empty as long as no key has to be looked up.
    key: Vec<u8>,
}

/// Rows of one entity key that follow each other, newest first: 0 is the newest. Never empty when
/// [`KeyRows::next_run`] returned it; a slice of it can be.
#[derive(Clone, Copy)]
pub struct KeyRun<'s> {
    snapshot: &'s Snapshot<'s>,
    run: series::ChunkRun<'s>,
}

impl<'s> KeyRows<'s> {
    /// Skips the rows newer than `event_time_max`; never goes back. Binary search.
    #[inline]
    pub fn seek(&mut self, event_time_max: i64) {
        self.ahead.seek(event_time_max);
    }

    /// Skips the rows newer than `event_time_max`, of which there are so many; never goes back. Binary
    /// search.
    pub fn skip_to(&mut self, event_time_max: i64, rows: u64) {
        debug_assert!(!self.is_live_only, "rows that are hidden one by one are not counted");
        self.ahead.skip_to(event_time_max, rows);
    }

    /// Returns whether the row with this event time is kept if it comes after so many of the rows ahead,
    /// and with it all that are newer.
    #[inline]
    pub fn keeps_after(&self, event_time: i64, rows: u64) -> bool {
        self.ahead.keeps_after(event_time, rows)
    }

    /// Skips the rows that are not before a row of this event time and arrival; never goes back.
    /// Binary search.
    pub fn seek_before(&mut self, event_time: i64, arrival: u64) {
        self.ahead.seek_before(event_time, arrival);
    }

    /// Returns the next rows that are stored together: about a hundred of a key that has many. The runs,
    /// one after the other, have the rows that the iterator returns; both may be used alternately.
    /// Where nothing hides single rows, no row is touched.
    #[inline]
    pub fn next_run(&mut self) -> Result<Option<KeyRun<'s>>, ReadError> {
        let run = if self.is_live_only { self.next_live_run()? } else { self.ahead.next_run() };
        Ok(run.map(|run| KeyRun { snapshot: self.snapshot, run }))
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
        self.ahead.prefetch_next_run(fields);
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
        StoredRow { event_time, arrival, row: self.snapshot.table.view(row) }
    }

    /// Returns the columns of a row.
    #[inline]
    pub fn row(&self, at: usize) -> RowView<'s> {
        self.snapshot.table.view(self.run.row(at))
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
        loop {
            let found = self.ahead.next()?;
            if self.is_live_only {
                match self.snapshot.is_live(found.row, &mut self.key) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) => return Some(Err(error)),
                }
            }
            let view = self.snapshot.table.view(found.row);
            let (event_time, arrival) = (found.event_time, found.row.arrival());
            return Some(Ok(StoredRow { event_time, arrival, row: view }));
        }
    }
}

impl fmt::Debug for KeyRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRows").field("ahead", &self.ahead).finish_non_exhaustive()
    }
}
