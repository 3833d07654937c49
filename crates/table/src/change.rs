//! Changes of a table as a whole: adding and removing indexes, DELETE, TRUNCATE.
//!
//! One change at a time makes another state while readers and appends go on; appends wait only while
//! the last rows are added and the state is replaced. See `build` for how an index is built.

use std::sync::Arc;

use lockstep_host::{
    QueryContext, failpoint, in_background,
    query::{self, Commit},
    sync::MutexGuard,
};
use lockstep_row::{IndexSpec, Retention, RowView};
use lockstep_series::{LogRow, RowRef};

use crate::{
    Horizon, Snapshot, Table, TableError,
    append::{Reservation, SLOT_BYTES},
    build::{IndexBuild, LogScan, RowTest, TableRebuild},
    disk::{DiskRows, FrozenRows, RunsAhead, TableParts, build_runs_after, checkpoint},
    draft::{DraftedIndex, TableDraft},
    part::IndexRun,
    record::IndexLogging,
    state::{self, Index, Origin, TableState},
    table::number,
};

/// An index of so many rows is built on a thread of its own.
const BACKGROUND_ROWS_MIN: u64 = 1 << 16;
/// After how many rows of files the call checks whether it was interrupted.
const CHECKPOINT_ROWS: u64 = 4_096;

/// The change lock. Only its holder replaces the state and removes rows.
pub(crate) struct ChangeGuard<'a> {
    pub(crate) table: &'a Table,
    /// Runs of an index that were built before.
    ahead: Option<RunsAhead<'a>>,
    _lock: MutexGuard<'a, ()>,
}

impl ChangeGuard<'_> {
    /// Returns a copy of the state, valid also after it was replaced.
    pub(crate) fn state(&self) -> TableState {
        self.table.snapshot().state().clone()
    }

    /// Checks that every row has an event time by which this index can keep it.
    pub(crate) fn check_event_times(&self, spec: &IndexSpec) -> Result<(), TableError> {
        let state = self.state();
        let (mut checked, mut row_number) = (Ok(()), 0);
        let visible = self.table.commit_queue.visible();
        self.table.for_each_stored_row(&state, Some(visible), &mut |found| {
            row_number += 1;
            if checked.is_ok() {
                let row = self.table.view(found.row);
                checked = state::check_event_time(&state.schema, spec, row, row_number);
            }
            Ok(())
        })?;
        checked
    }
}

impl Table {
    /// Runs a change under the change lock.
    pub(crate) fn change<T>(&self, body: impl FnOnce(&ChangeGuard<'_>) -> T) -> T {
        self.change_after(None, body)
    }

    /// Runs a change for which runs of an index were built.
    pub(crate) fn change_after<'t, T>(
        &'t self,
        ahead: Option<RunsAhead<'t>>,
        body: impl FnOnce(&ChangeGuard<'t>) -> T,
    ) -> T {
        let result = {
            let change = ChangeGuard { table: self, ahead, _lock: self.lock_changes() };
            // Who released something beside another change has left it to that one, which may not have
            // come to it: rows that nothing holds any more must not be in what this change makes.
            QueryContext::new().run(|| self.settle_under(&change));
            body(&change)
        };
        // An interrupt of the call does not end what the table does on its own behalf.
        QueryContext::new().run(|| self.settle_holds());
        result
    }

    /// Runs a change under the change lock, and leaves what is no longer held as it is.
    pub(crate) fn change_alone<T>(&self, body: impl FnOnce(&ChangeGuard<'_>) -> T) -> T {
        body(&ChangeGuard { table: self, ahead: None, _lock: self.lock_changes() })
    }

    /// Takes the change lock if it is free. The caller runs [`Self::settle_holds`] afterwards.
    pub(crate) fn try_change(&self) -> Option<ChangeGuard<'_>> {
        Some(ChangeGuard { table: self, ahead: None, _lock: self.try_lock_changes()? })
    }

    /// Makes the state that a draft describes and installs it. Fails when the memory budget does not
    /// allow an index to be built, the table was dropped, or the call was interrupted; then nothing has
    /// changed.
    pub(crate) fn realize(
        &self,
        change: &ChangeGuard<'_>,
        draft: &TableDraft,
    ) -> Result<(), TableError> {
        self.realize_with(change, draft, self.horizon_now(), IndexLogging::Required, || Ok(None))
    }

    /// Does what [`Self::realize`] does with a draft that only lacks what nothing holds any more. A log
    /// that takes nothing does not prevent it: it is logged before the next change of the indexes.
    pub(crate) fn realize_release(
        &self,
        change: &ChangeGuard<'_>,
        draft: &TableDraft,
    ) -> Result<(), TableError> {
        self.realize_with(change, draft, self.horizon_now(), IndexLogging::Deferred, || Ok(None))
    }

    /// Does what [`Self::realize`] does, with the rows that had expired at a horizon of the past.
    pub(crate) fn realize_as_of(
        &self,
        change: &ChangeGuard<'_>,
        draft: &TableDraft,
        horizon: Horizon,
    ) -> Result<(), TableError> {
        self.realize_with(change, draft, horizon, IndexLogging::Required, || Ok(None))
    }

    /// Visits the rows of a state in order of arrival, those on a disk before those of the log, until one fails:
    /// those of the log with an arrival less than `visible`, or until few are left.
    fn for_each_stored_row(
        &self,
        state: &TableState,
        visible: Option<u64>,
        visit: &mut dyn FnMut(LogRow<'_>) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        if let Some(disk) = &state.disk {
            let mut rows = 0;
            self.for_each_row_on_disk(disk, |found| {
                rows += 1;
                if rows % CHECKPOINT_ROWS == 0 {
                    checkpoint()?;
                }
                visit(found)
            })?;
        }
        let mut goes_on = Ok(());
        let mut visit = |found: LogRow<'_>| {
            if goes_on.is_ok() {
                goes_on = visit(found);
            }
        };
        let mut scan = LogScan::new(self, &state.log);
        match visible {
            Some(visible) => scan.rows_until(visible, &mut visit).map(|_| ()),
            None => scan.catch_up(&mut visit),
        }?;
        goes_on
    }

    /// Returns whether a row was live as of a horizon. A row that arrived after it is judged as of its
    /// own arrival, so that the answer does not depend on when it is computed.
    fn was_live(
        &self,
        state: &TableState,
        row: RowRef<'_>,
        horizon: Horizon,
        key: &mut Vec<u8>,
    ) -> Result<bool, TableError> {
        let visible_arrival = horizon.visible_arrival.max(row.arrival() + 1);
        let horizon = Horizon { visible_arrival, ..horizon };
        Ok(Snapshot::as_of(self, state, horizon).is_live(row, key)?)
    }

    /// Returns what tells whether rows of a state were live as of a horizon, as [`Self::was_live`] does. Of a disk
    /// table it finds the rows that are kept before, so that none is looked up.
    fn liveness<'s>(
        &'s self,
        state: &'s TableState,
        horizon: Horizon,
    ) -> Result<impl FnMut(LogRow<'_>) -> Result<bool, TableError> + 's, TableError> {
        let is_disk = state.disk.is_some() && !state.keeps_everything;
        let kept = is_disk
            .then(|| Snapshot::as_of(self, state, horizon).kept_rows_by_count())
            .transpose()?;
        let mut key = Vec::new();
        Ok(move |found: LogRow<'_>| match &kept {
            Some(kept) if found.row.arrival() < horizon.visible_arrival => {
                let past = Snapshot::as_of(self, state, horizon);
                Ok(past.is_live_by(found, Some(kept), &mut key)?)
            }
            _ if state.keeps_everything => Ok(true),
            _ => self.was_live(state, found.row, horizon, &mut key),
        })
    }

    /// Does what [`Self::realize`] does for a statement; `commit` is called before anything changes.
    fn realize_with(
        &self,
        change: &ChangeGuard<'_>,
        draft: &TableDraft,
        horizon: Horizon,
        logging: IndexLogging,
        commit: impl FnOnce() -> Result<Option<Commit>, TableError>,
    ) -> Result<(), TableError> {
        self.check_open()?;
        let state = change.state();
        let before = TableDraft::of(&state);
        let is_same = |at: usize, drafted: &DraftedIndex| {
            let held = before.indexes.get(at);
            drafted.origin == Origin::Removed || held.is_some_and(|held| held.is_built_as(drafted))
        };
        let is_widened = draft.keeps_everything() || before.is_widened(draft);
        if !state.keeps_everything && is_widened {
            // Rows that have expired stay expired, although another rule might keep them.
            let is_kept = &mut self.liveness(&state, horizon)?;
            return self.rebuild(change, draft, is_kept, commit, &mut || {
                self.log_indexes(&before, draft, horizon, logging)
            });
        }
        let is_long = self.row_count() >= BACKGROUND_ROWS_MIN;
        let mut builds = Vec::new();
        let mut disk = state.disk.clone().map(|disk| DiskDraft::new(disk, draft.indexes.len()));
        for (at, drafted) in draft.indexes.iter().enumerate() {
            if !is_same(at, drafted) {
                let reservation = self.reserve_build(state.indexes.get(at), drafted)?;
                let build = || IndexBuild::start(change, &state, drafted);
                let built = if is_long { in_background("build index", build) } else { build() };
                builds.push((at, reservation, built?));
            }
            if let Some(disk) = &mut disk {
                let held = before.indexes.get(at);
                let mut build = || disk.put_runs(change, at, held, drafted);
                if is_long { in_background("build index", build) } else { build() }?;
            }
        }
        let has_builds = !builds.is_empty();
        let _commit = commit()?;
        let exclusive = self.lock_exclusive();
        let mut indexes: Vec<Index> = Vec::with_capacity(draft.indexes.len());
        for (at, drafted) in draft.indexes.iter().enumerate() {
            let held = state.indexes.get(at).filter(|_| is_same(at, drafted));
            let mut index = match held {
                Some(held) if drafted.origin != Origin::Removed => held.clone(),
                _ => Index::empty(&drafted.projection, drafted.origin),
            };
            index.origin = drafted.origin;
            if let Some(disk) = &mut disk {
                disk.put_frozen(at, &index);
            }
            indexes.push(index);
        }
        for (at, reservation, build) in builds {
            let built = build.finish(&exclusive);
            // Before the state is replaced, which charges what was built.
            drop(reservation);
            indexes[at] = built.index;
            if let (Some(disk), Some(frozen)) = (&mut disk, built.frozen) {
                disk.frozen[at] = frozen;
            }
        }
        self.log_indexes(&before, draft, horizon, logging)?;
        failpoint::reach("table.indexes_logged");
        let schema = Arc::new(draft.schema(&state.schema));
        let changed = TableState::new(schema, indexes, Arc::clone(&state.log));
        let has_new_runs = is_long && disk.is_some() && has_builds;
        self.replace_state(&exclusive, changed.with_disk(disk.map(DiskDraft::finish)));
        drop(exclusive);
        if has_new_runs {
            // Whoever opens the directory would build them again.
            self.budget.begin_flush();
        }
        Ok(())
    }

    /// Installs the state that a draft describes, with the rows for which `is_kept` holds, which is
    /// called once for each. `commit` is called before anything changes; `log` when nothing can fail
    /// any more but the log, and no append is in flight.
    fn rebuild(
        &self,
        change: &ChangeGuard<'_>,
        draft: &TableDraft,
        is_kept: RowTest<'_>,
        commit: impl FnOnce() -> Result<Option<Commit>, TableError>,
        log: &mut dyn FnMut() -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let state = change.state();
        let parts = match &state.disk {
            None => None,
            Some(disk) => {
                Some(self.rebuilt_parts(change, disk, (&TableDraft::of(&state), draft), is_kept)?)
            }
        };
        let rebuild = TableRebuild::start(change, &state, draft, is_kept)?;
        let _commit = commit()?;
        let exclusive = self.lock_exclusive();
        let (indexes, rows) = rebuild.finish(is_kept, &exclusive)?;
        log()?;
        failpoint::reach("table.rebuild_logged");
        let schema = Arc::new(draft.schema(&state.schema));
        let rebuilt = TableState::new(schema, indexes, Arc::new(rows));
        let disk = parts.map(|parts| DiskRows { frozen: None, parts });
        self.replace_state(&exclusive, rebuilt.with_disk(disk));
        Ok(())
    }

    /// Writes the parts of a disk table again with the rows that are kept, and with the runs of the indexes that a
    /// draft has and the table does not.
    fn rebuilt_parts(
        &self,
        change: &ChangeGuard<'_>,
        disk: &DiskRows,
        (before, draft): (&TableDraft, &TableDraft),
        is_kept: RowTest<'_>,
    ) -> Result<Arc<TableParts>, TableError> {
        let parts = self.rewrite_parts(&disk.parts, is_kept, &mut checkpoint)?;
        let rewritten = DiskRows { frozen: None, parts };
        let mut rewritten = DiskDraft::new(rewritten, draft.indexes.len());
        for (at, drafted) in draft.indexes.iter().enumerate() {
            let build = || rewritten.put_runs(change, at, before.indexes.get(at), drafted);
            in_background("build index", build)?;
        }
        Ok(rewritten.finish().parts)
    }

    /// Reserves the memory that an index to be built will take beyond the one that it replaces.
    fn reserve_build(
        &self,
        held: Option<&Index>,
        drafted: &DraftedIndex,
    ) -> Result<Reservation<'_>, TableError> {
        let rows = self.snapshot().row_count_in_memory();
        let bytes = rows * number(SLOT_BYTES + drafted.projection.size());
        Reservation::new(self, bytes.saturating_sub(held.map_or(0, Index::memory_bytes)))
    }

    /// Returns the position of the index over exactly these key columns (in any order) and this event
    /// time; builds one when there is none. It stays for ever: [`Self::hold`] is for a user that will
    /// release it. Without key columns the whole table is one key.
    ///
    /// Readers and writers go on while it builds. Panics when a column is out of range or of a
    /// type that cannot be a key or an event time: the plan has checked that.
    pub fn ensure_index(&self, keys: &[usize], event_time: Option<usize>) -> usize {
        let ahead = self.runs_of_new_index(keys, event_time);
        self.ensure_index_after(ahead.expect("the files can be read"), keys, event_time)
    }

    /// Does what [`Self::ensure_index`] does, with runs that were built.
    pub(crate) fn ensure_index_after<'t>(
        &'t self,
        ahead: Option<RunsAhead<'t>>,
        keys: &[usize],
        event_time: Option<usize>,
    ) -> usize {
        self.change_after(ahead, |change| {
            let mut draft = TableDraft::of(&change.state());
            let (position, is_new) = draft.index_for(keys, event_time);
            if is_new {
                let schema = draft.schema(&change.state().schema);
                let checked = state::check_spec(&schema.columns, &schema.indexes[position]);
                assert_eq!(checked, Ok(()), "the plan uses indexes that the table can have");
                let built = self.realize(change, &draft);
                assert_eq!(built, Ok(()), "the memory budget allows it");
            }
            self.hold_permanently(position, &[]);
            position
        })
    }

    /// Builds the runs of an index before it is added, unless there is one over these keys and this event time.
    pub(crate) fn runs_of_new_index(
        &self,
        keys: &[usize],
        event_time: Option<usize>,
    ) -> Result<Option<RunsAhead<'_>>, TableError> {
        let (_, is_new) = TableDraft::of(self.snapshot().state()).index_for(keys, event_time);
        if is_new { self.build_runs_ahead(keys, event_time) } else { Ok(None) }
    }

    /// Adds a declared index, built from the live rows, and returns its position. From then on it
    /// takes part in deciding which rows are live: those of a table without declared indexes start to
    /// expire. An automatic index of the same name is renamed.
    pub fn add_declared_index(&self, spec: IndexSpec) -> Result<usize, TableError> {
        let spec = IndexSpec { declared: true, ..spec };
        let checked = |draft: &TableDraft| {
            let is_same = |other: &&DraftedIndex| other.spec.name == spec.name;
            match draft.indexes.iter().find(is_same) {
                Some(other) if other.origin != Origin::Automatic => {
                    Err(TableError::IndexExists { name: spec.name.clone() })
                }
                _ => Ok(()),
            }
        };
        // Before the runs, which may take long.
        let state = self.snapshot().state().clone();
        state::check_spec(&state.schema.columns, &spec)?;
        checked(&TableDraft::of(&state))?;
        drop(state);
        let ahead = self.build_runs_ahead(&spec.keys, spec.event_time)?;
        self.change_after(ahead, |change| {
            let state = change.state();
            state::check_spec(&state.schema.columns, &spec)?;
            let mut draft = TableDraft::of(&state);
            checked(&draft)?;
            if let Some(other) = draft.indexes.iter().position(|other| other.spec.name == spec.name)
            {
                draft.indexes[other].spec.name = draft.free_name();
            }
            let origin = Origin::Declared(spec.retention);
            let position = draft.add(spec.clone(), origin);
            self.apply_held_rules(&mut draft);
            let horizon = self.horizon_now();
            self.realize_with(change, &draft, horizon, IndexLogging::Required, commit)?;
            Ok(position)
        })
    }

    /// Makes an index keep rows by this rule from now on, as one that was declared so; the rule
    /// should keep what the index keeps already. Rows that expired everywhere stay so. Fails when
    /// the index was not declared and a stored row has no event time in it.
    pub fn widen_index(&self, index: usize, retention: Retention) -> Result<(), TableError> {
        self.change(|change| {
            let mut draft = TableDraft::of(&change.state());
            let drafted = &mut draft.indexes[index];
            (drafted.spec.retention, drafted.spec.declared) = (retention, true);
            drafted.origin = Origin::Declared(retention);
            change.check_event_times(&drafted.spec)?;
            self.realize(change, &draft)
        })
    }

    /// Removes a declared index. While it is held, it stays as an automatic one, which keeps what the
    /// other declared indexes keep. Without a declared index a table keeps every row that it has then.
    pub fn drop_declared_index(&self, name: &str) -> Result<(), TableError> {
        self.change(|change| {
            let mut draft = TableDraft::of(&change.state());
            let is_declared = |index: &DraftedIndex| matches!(index.origin, Origin::Declared(_));
            let found = |index: &DraftedIndex| is_declared(index) && index.spec.name == name;
            let Some(position) = draft.indexes.iter().position(found) else {
                return Err(TableError::IndexMissing { name: name.to_owned() });
            };
            let free = draft.free_name();
            let dropped = &mut draft.indexes[position];
            dropped.spec = IndexSpec {
                name: free,
                retention: Retention::Forever,
                declared: false,
                ..dropped.spec.clone()
            };
            dropped.origin = Origin::Automatic;
            self.apply_held_rules(&mut draft);
            let horizon = self.horizon_now();
            self.realize_with(change, &draft, horizon, IndexLogging::Required, commit)?;
            self.note_release();
            Ok(())
        })
    }

    /// Removes the rows for which `is_deleted` holds, from every index at once, and returns how
    /// many. Snapshots taken before still show them. Reads every row, and where some are deleted
    /// rebuilds every index from the rows that stay, so the time is linear in the rows of the table;
    /// readers and writers go on. Fails when the call was interrupted; then nothing was removed.
    pub fn delete(&self, is_deleted: impl Fn(RowView<'_>) -> bool) -> Result<u64, TableError> {
        self.delete_logged(is_deleted, &[])
    }

    /// Removes rows as [`Self::delete`] does. The log gets `condition`, which says for which rows
    /// `is_deleted` holds.
    pub fn delete_logged(
        &self,
        is_deleted: impl Fn(RowView<'_>) -> bool,
        condition: &[u8],
    ) -> Result<u64, TableError> {
        self.delete_as_of(self.horizon_now(), is_deleted, condition)
    }

    /// Removes rows as [`Self::delete_logged`] does, and those that had expired at a horizon.
    pub(crate) fn delete_as_of(
        &self,
        horizon: Horizon,
        is_deleted: impl Fn(RowView<'_>) -> bool,
        condition: &[u8],
    ) -> Result<u64, TableError> {
        self.change(|change| {
            let state = change.state();
            let mut is_live = self.liveness(&state, horizon)?;
            let mut found_any = false;
            self.for_each_stored_row(&state, None, &mut |found| {
                if !found_any && is_deleted(self.view(found.row)) {
                    found_any = is_live(found)?;
                }
                Ok(())
            })?;
            if !found_any {
                // Expired rows may be among those meant: no snapshot of an earlier time shows them again.
                self.note_time(horizon.now_ms);
                return Ok(0);
            }
            let mut deleted = 0;
            let is_kept = &mut |found: LogRow<'_>| {
                if !is_live(found)? {
                    return Ok(false);
                }
                let is_deleted = is_deleted(self.view(found.row));
                deleted += u64::from(is_deleted);
                Ok(!is_deleted)
            };
            self.rebuild(change, &TableDraft::of(&state), is_kept, commit, &mut || {
                self.log_delete(horizon, condition)
            })?;
            Ok(deleted)
        })
    }

    /// Removes every row. Snapshots taken before still show them.
    pub fn truncate(&self) -> Result<(), TableError> {
        self.change(|change| {
            let state = change.state().emptied();
            let exclusive = self.lock_exclusive();
            if !failpoint::is_seeded("truncate_logged_late") {
                self.log_truncate()?;
            }
            failpoint::reach("table.truncate_logged");
            self.replace_state(&exclusive, state);
            // No row of an append that panicked is left.
            self.commit_queue.repair();
            if failpoint::is_seeded("truncate_logged_late") {
                drop(exclusive);
                lockstep_host::pause(20);
                self.log_truncate()?;
            }
            Ok(())
        })
    }
}

/// What a disk table has beside its rows in memory, as a change makes it.
struct DiskDraft {
    disk: DiskRows,
    /// The indexes of the frozen rows, by position.
    frozen: Vec<Index>,
    runs: Vec<Vec<Arc<IndexRun>>>,
}

impl DiskDraft {
    fn new(disk: DiskRows, indexes: usize) -> Self {
        let runs = (0..indexes).map(|at| disk.parts.runs(at).to_vec()).collect();
        Self { disk, frozen: Vec::new(), runs }
    }

    /// Builds the runs of a drafted index, unless the index that is held at the position has them.
    fn put_runs(
        &mut self,
        change: &ChangeGuard<'_>,
        at: usize,
        held: Option<&DraftedIndex>,
        drafted: &DraftedIndex,
    ) -> Result<(), TableError> {
        let has_them = held.is_some_and(|held| {
            held.origin != Origin::Removed
                && drafted.origin != Origin::Removed
                && (&held.spec.keys, held.spec.event_time)
                    == (&drafted.spec.keys, drafted.spec.event_time)
        });
        if !has_them {
            self.runs[at] = match drafted.origin {
                Origin::Removed => Vec::new(),
                _ => {
                    let ahead = change.ahead.as_ref();
                    build_runs_after(ahead, change.table, &self.disk.parts, &drafted.spec)?
                }
            };
        }
        Ok(())
    }

    /// Puts the index of the frozen rows at the next position: the one that is there, or an empty one like that of
    /// the rows in memory.
    fn put_frozen(&mut self, at: usize, index: &Index) {
        debug_assert_eq!(at, self.frozen.len(), "in the order of positions");
        let frozen = self.disk.frozen.as_ref().and_then(|frozen| frozen.indexes.get(at));
        let is_same =
            |frozen: &&Index| index.origin != Origin::Removed && frozen.origin != Origin::Removed;
        let mut frozen = frozen.filter(is_same).cloned().unwrap_or_else(|| index.emptied());
        frozen.origin = index.origin;
        self.frozen.push(frozen);
    }

    fn finish(self) -> DiskRows {
        let Self { disk: DiskRows { frozen, parts }, frozen: indexes, runs } = self;
        let frozen = frozen.map(|before| {
            let (log, removed_rows) = (Arc::clone(&before.log), Arc::clone(&before.removed_rows));
            Arc::new(FrozenRows { indexes, log, removed_rows, end: before.end })
        });
        DiskRows { frozen, parts: Arc::new(parts.with_all_runs(runs)) }
    }
}

/// Commits the call: no interrupt ends it from now on.
fn commit() -> Result<Option<Commit>, TableError> {
    query::commit().map(Some).map_err(TableError::Interrupted)
}
