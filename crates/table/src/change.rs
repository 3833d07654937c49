//! What changes a table as a whole: indexes that come and go, DELETE, TRUNCATE.
//!
//! One change at a time makes another state while readers and appends go on; only the last rows
//! are caught up with, and the state replaced, while appends wait. See `build` for how an index is
//! made.

use std::sync::Arc;

use lockstep_host::{
    QueryContext, in_background,
    query::{self, Commit},
    sync::MutexGuard,
};
use lockstep_row::{IndexSpec, Retention, RowView};
use lockstep_series::RowRef;

use crate::{
    Table, TableError,
    append::{Room, SLOT_BYTES},
    build::{Build, IsKept, Remake, Walk},
    draft::{Draft, DraftedIndex},
    state::{self, Index, Origin, State},
    table::number,
};

/// An index of so many rows is built by a thread of its own.
const BACKGROUND_ROWS_MIN: usize = 1 << 16;

/// The right to change what the table is made of. As long as somebody has it, the state is not
/// replaced and no row is removed but by them.
pub(crate) struct Changing<'a> {
    pub(crate) table: &'a Table,
    _lock: MutexGuard<'a, ()>,
}

impl Changing<'_> {
    /// The state, to be used also after it was replaced.
    pub(crate) fn state(&self) -> State {
        self.table.snapshot().state().clone()
    }

    /// Checks that every row has an event time for this index to keep it by.
    pub(crate) fn check_event_times(&self, spec: &IndexSpec) -> Result<(), TableError> {
        let state = self.state();
        let (mut checked, mut row_number) = (Ok(()), 0);
        let visible = self.table.sequence.visible();
        Walk::new(self.table, &state.log).rows_until(visible, &mut |found| {
            row_number += 1;
            if checked.is_ok() {
                let row = self.table.view(found.row);
                checked = state::check_event_time(&state.schema, spec, row, row_number);
            }
        })?;
        checked
    }
}

impl Table {
    /// Runs a change. Others wait.
    pub(crate) fn change<T>(&self, body: impl FnOnce(&Changing<'_>) -> T) -> T {
        let result = body(&Changing { table: self, _lock: self.lock_changes() });
        // What the table does for itself is not the call's to interrupt.
        QueryContext::new().run(|| self.settle_holds());
        result
    }

    /// The right to change the table, unless somebody else has it. Whoever takes it runs
    /// [`Self::settle_holds`] afterwards.
    pub(crate) fn try_changing(&self) -> Option<Changing<'_>> {
        Some(Changing { table: self, _lock: self.try_lock_changes()? })
    }

    /// Makes the state that a draft describes and puts it in place. Fails when there is no room
    /// for an index that is to be built, the table was dropped, or the call was interrupted; then
    /// nothing has changed.
    pub(crate) fn realize(&self, changing: &Changing<'_>, draft: &Draft) -> Result<(), TableError> {
        self.realize_with(changing, draft, || Ok(None))
    }

    /// The same for a statement; `commit` is called before anything changes.
    fn realize_with(
        &self,
        changing: &Changing<'_>,
        draft: &Draft,
        commit: impl FnOnce() -> Result<Option<Commit>, TableError>,
    ) -> Result<(), TableError> {
        self.check_open()?;
        let state = changing.state();
        let before = Draft::of(&state);
        let is_same = |at: usize, drafted: &DraftedIndex| {
            let held = before.indexes.get(at);
            drafted.origin == Origin::Removed
                || held.is_some_and(|held| {
                    held.origin != Origin::Removed
                        && held.spec.keys == drafted.spec.keys
                        && held.spec.event_time == drafted.spec.event_time
                        && held.projection == drafted.projection
                })
        };
        let is_widened = draft.keeps_everything() || before.is_widened(draft);
        if !state.keeps_everything && is_widened {
            // Rows that have expired stay so, although another rule might keep them.
            let mut key = Vec::new();
            let is_kept = &mut |row: RowRef<'_>| self.snapshot().is_live(row, &mut key);
            return self.remake(changing, (draft, is_kept), commit);
        }
        let is_long = state.log.row_count(&lockstep_series::pin()) >= BACKGROUND_ROWS_MIN;
        let mut builds = Vec::new();
        for (at, drafted) in draft.indexes.iter().enumerate() {
            if !is_same(at, drafted) {
                let room = self.reserve_build(state.indexes.get(at), drafted)?;
                let build = || Build::start(changing, &state, drafted);
                let built = if is_long { in_background("build index", build) } else { build() };
                builds.push((at, room, built?));
            }
        }
        let _commit = commit()?;
        let alone = self.alone();
        let mut indexes: Vec<Index> = Vec::with_capacity(draft.indexes.len());
        for (at, drafted) in draft.indexes.iter().enumerate() {
            let held = state.indexes.get(at).filter(|_| is_same(at, drafted));
            let mut index = match held {
                Some(held) if drafted.origin != Origin::Removed => held.clone(),
                _ => Index::empty(&drafted.projection, drafted.origin),
            };
            index.origin = drafted.origin;
            indexes.push(index);
        }
        for (at, room, build) in builds {
            let built = build.finish(&alone);
            // Before the state is replaced, which charges what was built.
            drop(room);
            indexes[at] = built;
        }
        let schema = Arc::new(draft.schema(&state.schema));
        self.replace_state(&alone, State::new(schema, indexes, Arc::clone(&state.log)));
        Ok(())
    }

    /// Puts a state in place that a draft describes, of the rows for which `is_kept` holds, which
    /// is asked once for each. `commit` is called before anything changes.
    fn remake(
        &self,
        changing: &Changing<'_>,
        (draft, is_kept): (&Draft, IsKept<'_>),
        commit: impl FnOnce() -> Result<Option<Commit>, TableError>,
    ) -> Result<(), TableError> {
        let state = changing.state();
        let remake = Remake::start(changing, &state, draft, is_kept)?;
        let _commit = commit()?;
        let alone = self.alone();
        let (indexes, log) = remake.finish(is_kept, &alone);
        let schema = Arc::new(draft.schema(&state.schema));
        self.replace_state(&alone, State::new(schema, indexes, Arc::new(log)));
        Ok(())
    }

    /// Takes room for what an index that is to be built will take more than the one in its place.
    fn reserve_build(
        &self,
        held: Option<&Index>,
        drafted: &DraftedIndex,
    ) -> Result<Room<'_>, TableError> {
        let bytes = self.row_count() * number(SLOT_BYTES + drafted.projection.size());
        Room::take(self, bytes.saturating_sub(held.map_or(0, Index::memory_bytes)))
    }

    /// The position of the index over exactly these key columns (in any order) and this event
    /// time; when there is none, builds one. It stays for ever: whoever can let go of it again
    /// takes a [`Self::hold`]. No key columns: the whole table is one key.
    ///
    /// Readers and writers go on while it builds. Panics when a column is out of range or of a
    /// type that cannot be a key or an event time: the plan has checked that.
    pub fn ensure_index(&self, keys: &[usize], event_time: Option<usize>) -> usize {
        self.change(|changing| {
            let mut draft = Draft::of(&changing.state());
            let (position, is_new) = draft.index_for(keys, event_time);
            if is_new {
                let schema = draft.schema(&changing.state().schema);
                let checked = state::check_spec(&schema.columns, &schema.indexes[position]);
                assert_eq!(checked, Ok(()), "the plan asks for indexes that the table can have");
                let built = self.realize(changing, &draft);
                assert_eq!(built, Ok(()), "there is room");
            }
            self.hold_for_ever(position, &[]);
            position
        })
    }

    /// Adds a declared index, built from the live rows, and returns its position. From then on it
    /// has its say in which rows live: those of a table without declared indexes start to expire.
    /// An automatic index that happens to have the name gets another.
    pub fn add_declared_index(&self, spec: IndexSpec) -> Result<usize, TableError> {
        let spec = IndexSpec { declared: true, ..spec };
        self.change(|changing| {
            let state = changing.state();
            state::check_spec(&state.schema.columns, &spec)?;
            let mut draft = Draft::of(&state);
            if let Some(other) = draft.indexes.iter().position(|other| other.spec.name == spec.name)
            {
                if draft.indexes[other].origin != Origin::Automatic {
                    return Err(TableError::IndexExists { name: spec.name.clone() });
                }
                draft.indexes[other].spec.name = draft.free_name();
            }
            let origin = Origin::Declared(spec.retention);
            let position = draft.add(spec.clone(), origin);
            self.apply_held_rules(&mut draft);
            self.realize_with(changing, &draft, commit)?;
            Ok(position)
        })
    }

    /// Makes an index keep rows by this rule from now on, as one that was declared so; the rule
    /// should keep what the index keeps already. Rows that expired everywhere stay so. Fails when
    /// the index was not declared and a stored row has no event time in it.
    pub fn widen_index(&self, index: usize, retention: Retention) -> Result<(), TableError> {
        self.change(|changing| {
            let mut draft = Draft::of(&changing.state());
            let drafted = &mut draft.indexes[index];
            (drafted.spec.retention, drafted.spec.declared) = (retention, true);
            drafted.origin = Origin::Declared(retention);
            changing.check_event_times(&drafted.spec)?;
            self.realize(changing, &draft)
        })
    }

    /// Removes a declared index. Where somebody holds it, it stays as an automatic one, which keeps
    /// what the other declared indexes keep, until nobody does. Without a declared index a table
    /// keeps every row that it has then.
    pub fn drop_declared_index(&self, name: &str) -> Result<(), TableError> {
        self.change(|changing| {
            let mut draft = Draft::of(&changing.state());
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
            self.realize_with(changing, &draft, commit)?;
            self.note_release();
            Ok(())
        })
    }

    /// Removes the rows for which `is_deleted` holds, from every index at once, and returns how
    /// many. Snapshots taken before go on seeing them. Reads every row, and where some are deleted
    /// makes every index anew from the rows that stay, so the time is linear in the rows of the
    /// table; readers and writers go on. Fails when the call was interrupted; then nothing was removed.
    pub fn delete(&self, is_deleted: impl Fn(RowView<'_>) -> bool) -> Result<u64, TableError> {
        self.change(|changing| {
            let state = changing.state();
            let mut key = Vec::new();
            let mut is_live =
                |row: RowRef<'_>| state.keeps_everything || self.snapshot().is_live(row, &mut key);
            let mut found_any = false;
            Walk::new(self, &state.log).catch_up(&mut |found| {
                found_any |= !found_any && is_deleted(self.view(found.row)) && is_live(found.row);
            })?;
            if !found_any {
                return Ok(0);
            }
            let mut deleted = 0;
            let is_kept = &mut |row: RowRef<'_>| {
                if !is_live(row) {
                    return false;
                }
                let is_deleted = is_deleted(self.view(row));
                deleted += u64::from(is_deleted);
                !is_deleted
            };
            self.remake(changing, (&Draft::of(&state), is_kept), commit)?;
            Ok(deleted)
        })
    }

    /// Removes every row. Snapshots taken before go on seeing them.
    pub fn truncate(&self) {
        self.change(|changing| {
            let state = changing.state().emptied();
            let alone = self.alone();
            self.replace_state(&alone, state);
            // No row is left of an append that panicked.
            self.sequence.repair();
        });
    }
}

/// Lets no interrupt end the call from now on.
fn commit() -> Result<Option<Commit>, TableError> {
    query::commit().map(Some).map_err(TableError::Interrupted)
}
