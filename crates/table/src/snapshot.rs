//! A consistent view of a table: the rows visible at one moment, by index or in order of arrival.
//!
//! `request` reads by key, `batch` in order of arrival, both the same rows. Reads of rows in memory
//! neither lock, wait nor fail; each read returns a `Result` because rows may be on a disk.

use std::{borrow::BorrowMut, cell::OnceCell, fmt, ptr::NonNull, sync::atomic::Ordering};

use lockstep_row::{Projection, Retention, RowView, TableSchema};
use lockstep_series::{self as series, Bounds, Guard, KeyNodes, RowRef};

use crate::{
    KeyRows, ReadError, StoredRow,
    disk::DiskRows,
    part::{
        MergedRows, PageSource, Pins,
        bug::{self, PartBug},
    },
    retention::Horizon,
    state::{self, Origin, TableState},
    table::{Table, number},
};

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
    /// Pages of a disk table that rows were read from.
    pins: OnceCell<Box<Pins>>,
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
        let pins = OnceCell::new();
        Snapshot { table, guard, state, visible_arrival, now_ms, pins }
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

/// A snapshot that is used for several requests keeps about so many bytes of pages.
const PINNED_BYTES_MAX: usize = 16 << 20;

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
        let pins = OnceCell::new();
        Self { table, guard, state, visible_arrival, now_ms, pins }
    }

    /// Makes a snapshot of a state as of a horizon. The caller keeps the state, and drops the snapshot before it.
    pub(crate) fn as_of(table: &'t Table, state: &TableState, horizon: Horizon) -> Self {
        Self::new(table, series::pin(), NonNull::from(state), horizon)
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
        // Acquire: pairs with the Release in `note_removal`.
        let removed_before = self.table.removed_before.load(Ordering::Acquire);
        self.table.generation() == moment.generation
            && self.removed_ms() <= moment.now_ms
            && removed_before <= moment.visible_arrival
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
        Self { visible_arrival, now_ms, ..self.clone() }
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

    /// Returns the time at which a visible row arrived, in milliseconds since the epoch. Binary search; of a row
    /// that is on a disk, the read of a block.
    pub fn arrival_ms(&self, arrival: u64) -> Result<i64, ReadError> {
        let state = self.state();
        let Some(disk) = &state.disk else { return Ok(state.log.arrival_ms(arrival, &self.guard)) };
        disk.arrival_ms(state, arrival, &self.table.codec, &self.guard)
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
    pub(crate) fn bounds(&self, retention: Retention) -> Bounds {
        Bounds::new(self.visible_arrival, retention, self.now_ms)
    }

    /// Returns the rows of a key in an index.
    #[inline]
    fn seek(&self, index: usize, key: &[u8], bounds: Bounds, is_live_only: bool) -> KeyRows<'_> {
        let state = self.state();
        let held = &state.indexes[index];
        // Without this, a reader that releases an index before it reads would find no rows.
        assert!(held.origin != Origin::Removed, "an index that is read is held");
        if let Some(disk) = &state.disk {
            return self.seek_on_disk(disk, index, key, bounds, is_live_only);
        }
        let ahead = held.series.seek(key, bounds, &self.guard);
        let ahead = ahead.unwrap_or_else(series::SeriesRows::empty);
        KeyRows::in_memory(self, ahead, is_live_only)
    }

    /// Returns the rows of a key in an index of a disk table. Reads nothing yet.
    #[inline(never)]
    fn seek_on_disk<'s>(
        &'s self,
        disk: &'s DiskRows,
        index: usize,
        key: &[u8],
        bounds: Bounds,
        is_live_only: bool,
    ) -> KeyRows<'s> {
        let (rows, pages) = self.merged_rows(disk, index, key, bounds, self.visible_arrival);
        KeyRows::on_disk(self, rows, pages, is_live_only)
    }

    /// Returns all rows of a key in an index of a disk table, visible or not, expired or not. Reads nothing yet.
    pub(crate) fn every_row<'s>(
        &'s self,
        disk: &'s DiskRows,
        index: usize,
        key: &[u8],
    ) -> (MergedRows<'s>, PageSource<'s>) {
        self.merged_rows(disk, index, key, Bounds::everything(), u64::MAX)
    }

    /// Returns the rows of a key in an index of a disk table with an arrival less than `visible`.
    fn merged_rows<'s>(
        &'s self,
        disk: &'s DiskRows,
        index: usize,
        key: &[u8],
        bounds: Bounds,
        visible: u64,
    ) -> (MergedRows<'s>, PageSource<'s>) {
        let held = &self.state().indexes[index];
        let mut rows = MergedRows::new(key, bounds);
        let is_left_out = visible == u64::MAX && bug::is_seeded(PartBug::FrozenNotInNodes);
        let frozen = disk.frozen.iter().filter(|_| !is_left_out);
        let frozen = frozen.map(|frozen| &frozen.indexes[index]);
        for in_memory in std::iter::once(held).chain(frozen) {
            let found = in_memory.series.seek(key, Bounds::visible(visible), &self.guard);
            if let Some(found) = found {
                rows.add_memory(found);
            }
        }
        for run in disk.parts.runs(index) {
            rows.add_run(run, visible);
        }
        let pages = PageSource {
            cache: self.table.budget.page_cache(),
            codec: &self.table.codec,
            format: held.format.as_ref(),
            pins: self.pins.get_or_init(Box::default),
        };
        (rows, pages)
    }

    /// Returns the keys of an index of a disk table with so many rows that nodes are made of them.
    pub(crate) fn long_keys(&self, index: usize) -> Vec<Box<[u8]>> {
        let state = self.state();
        let mut keys = state.indexes[index].series.long_keys();
        if let Some(disk) = &state.disk {
            let frozen = disk.frozen.iter().map(|frozen| frozen.indexes[index].series.long_keys());
            keys.extend(frozen.flatten());
            let runs = disk.parts.runs(index).iter();
            keys.extend(runs.flat_map(|run| run.long_keys()).map(Box::from));
        }
        keys
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
        let nodes = state.indexes[index].series.nodes(levels, key, &self.guard)?;
        // After the nodes were loaded: who made them has noted before what files lack.
        let is_older = || nodes.are_of_parts() && !self.is_after_removals();
        let is_seeded = bug::is_seeded(PartBug::NodesForOlderReaders);
        Some(nodes).filter(|_| is_seeded || !is_older())
    }

    /// Returns whether rows that merges have left out are expired in this snapshot.
    fn is_after_removals(&self) -> bool {
        // Acquire, as in `removed_ms`: pairs with the Release in `note_removal`.
        let removed_before = self.table.removed_before.load(Ordering::Acquire);
        removed_before <= self.visible_arrival && self.removed_ms() <= self.now_ms
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
            let mut stored = self.scan();
            while let Some(found) = stored.next_row()? {
                if found.row.bytes() == row.bytes() {
                    return Ok(true);
                }
            }
            return Ok(false);
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
        fulfils: impl Fn(RowView<'_>) -> bool,
    ) -> Result<bool, ReadError> {
        for found in self.rows(index, key) {
            if fulfils(found?.row) {
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
            if self.is_kept_by(*index, row, None, key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a declared index keeps the row, which is visible. `arrival_ms`: when it arrived, where the
    /// caller knows.
    pub(crate) fn is_kept_by(
        &self,
        index: usize,
        row: RowRef<'_>,
        arrival_ms: Option<i64>,
        key: &mut Vec<u8>,
    ) -> Result<bool, ReadError> {
        let state = self.state();
        let spec = &state.schema.indexes[index];
        let retention = spec.retention;
        if retention == Retention::Forever {
            return Ok(true);
        }
        let view = self.table.view(row);
        let arrival_ms = match (spec.event_time, arrival_ms) {
            (Some(_), _) => 0,
            (None, Some(arrival_ms)) => arrival_ms,
            (None, None) => self.arrival_ms(row.arrival())?,
        };
        let event_time = state::event_time(spec, view, || arrival_ms);
        if let Retention::Absolute { .. } = retention {
            return Ok(!retention.is_expired(event_time, 1, self.now_ms));
        }
        // The rule counts rows of the key, so the row is looked up.
        key.clear();
        state::encode_key(spec, view, key);
        self.seek(index, key, self.bounds(retention), false).contains(event_time, row.arrival())
    }

    /// Returns the number of stored rows, without those that were collected: at least as many as a scan
    /// returns.
    pub fn stored_row_count(&self) -> u64 {
        let state = self.state();
        let on_disk = state.disk.as_ref().map_or(0, |disk| disk.row_count(&self.guard));
        number(state.log.row_count(&self.guard)) + on_disk
    }

    /// Returns whether pages of disk tables take so much memory that they are to be released when nobody reads rows
    /// of them.
    pub fn has_many_pages(&self) -> bool {
        self.pins.get().is_some_and(|pins| pins.memory_bytes() > PINNED_BYTES_MAX)
    }

    /// Releases the pages of a disk table that rows were read from, if they take much memory: between two requests,
    /// since no row of them is borrowed then.
    pub fn release_pages(&mut self) {
        if self.has_many_pages() {
            self.pins = OnceCell::new();
        }
    }

    /// Returns a copy of a row of this snapshot that stays as long as the snapshot exists.
    pub(crate) fn keep(&self, row: &StoredRow<'_>) -> StoredRow<'_> {
        let StoredRow { event_time, arrival, row } = *row;
        let bytes = self.pins.get_or_init(Box::default).keep_row(row.bytes());
        StoredRow { event_time, arrival, row: self.table.codec.view(bytes) }
    }

    /// Returns the number of stored rows that are in memory.
    pub(crate) fn row_count_in_memory(&self) -> u64 {
        let state = self.state();
        let frozen = state.disk.as_ref().and_then(|disk| disk.frozen.as_ref());
        let frozen = frozen.map_or(0, |frozen| frozen.log.row_count(&self.guard));
        number(state.log.row_count(&self.guard) + frozen)
    }

    /// Returns the table.
    pub fn table(&self) -> &'t Table {
        self.table
    }

    /// Returns a view of a row of the table.
    #[inline]
    pub(crate) fn view<'r>(&'r self, row: RowRef<'r>) -> RowView<'r> {
        self.table.view(row)
    }

    /// Returns the time and the visible arrival.
    pub(crate) fn horizon(&self) -> Horizon {
        Horizon { visible_arrival: self.visible_arrival, now_ms: self.now_ms }
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
        let Self { table, state, visible_arrival, now_ms, .. } = *self;
        let (guard, pins) = (series::pin(), OnceCell::new());
        Self { table, guard, state, visible_arrival, now_ms, pins }
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
