//! The levels of a table's indexes: partial results for windows of many rows.
//!
//! A compiled program holds levels of the indexes that it reads ([`Table::hold_levels`]); what they
//! have of each node is its own ([`RunFold`]). They belong to the series of an index: where another one
//! replaces it (DELETE, TRUNCATE, included columns), empty levels go with the new one. When the memory
//! budget is exhausted, all levels are given up before a write is refused.
//!
//! Those of a disk table are over its rows in memory and in files ([`NodeRows`]); they go on when rows are flushed and
//! files are merged, since that changes no row.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_series::{
    ChunkRun, KeyInWork, LevelKeys, LevelNode, LevelRows, Levels, LevelsSize, Maintained,
    NodeDictionary, NodeFold, Series,
};

use crate::{KeyRun, Snapshot, Table, part::NodeRows, state::TableState};

/// A function that is called when levels have work. It does not wait.
pub type LevelsWaker = Arc<dyn Fn() + Send + Sync>;

/// Computes the states of nodes.
pub trait RunFold {
    /// Begins with the nodes of a key, whose states refer to a dictionary; `None` for the first ones.
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>);

    /// Returns whether the dictionary has got much since the last call, so that nodes that were made
    /// before had better be made again.
    fn has_grown(&mut self) -> bool;

    /// Ends, and returns the dictionary to which the states refer now.
    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>>;

    /// Appends the encoded states of rows of a key, which are given newest first, to some bytes.
    fn fold(&mut self, runs: &[KeyRun<'_>], states: &mut Vec<u8>);

    /// Appends the encoded states of the rows of nodes, which are given newest first, to some bytes.
    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>);
}

/// Levels of an index, until this is dropped. Whoever has it holds the index, too.
pub struct LevelsHold {
    table: Weak<Table>,
    index: usize,
    id: u64,
}

/// Levels that an index is to have.
pub(crate) struct LevelsSpec {
    index: usize,
    id: u64,
    keys: LevelKeys,
    wake: LevelsWaker,
}

/// Folds runs of a series as runs of a table.
struct FoldOfTable<'f> {
    snapshot: &'f Snapshot<'f>,
    fold: &'f mut dyn RunFold,
}

impl NodeFold for FoldOfTable<'_> {
    fn begin_key(&mut self, dictionary: Option<&Arc<dyn NodeDictionary>>) {
        self.fold.begin_key(dictionary);
    }

    fn has_grown(&mut self) -> bool {
        self.fold.has_grown()
    }

    fn end_key(&mut self) -> Option<Arc<dyn NodeDictionary>> {
        self.fold.end_key()
    }

    fn fold(&mut self, runs: &[ChunkRun<'_>], states: &mut Vec<u8>) {
        let runs: Vec<_> = runs.iter().map(|run| KeyRun::new(self.snapshot, *run)).collect();
        self.fold.fold(&runs, states);
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        self.fold.merge(nodes, states);
    }
}

impl LevelsSpec {
    /// Gives levels to the series of its index in a state, unless it has them.
    fn give_to(&self, state: &TableState) {
        let Some(index) = state.indexes.get(self.index) else { return };
        let (series, guard) = (&index.series, lockstep_series::pin());
        let rows = if state.disk.is_some() { LevelRows::Parts } else { LevelRows::Series };
        let known = series.all_levels(&guard).iter().find(|levels| levels.id() == self.id);
        match known {
            Some(known) if known.rows() == rows => return,
            // The table was put on a disk, or into memory.
            Some(_) => series.remove_levels(self.id),
            None => {}
        }
        let wake = Arc::clone(&self.wake);
        let levels = Levels::new(self.id, self.keys, rows, Box::new(move || wake()));
        series.add_levels(Arc::new(levels));
        (self.wake)();
    }
}

/// The number of the next levels of the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Table {
    /// Gives an index levels, over the keys that readers ask for or over all. `wake` is called when
    /// [`LevelsHold::maintain`] has something to do.
    pub fn hold_levels(
        self: &Arc<Self>,
        index: usize,
        keys: LevelKeys,
        wake: LevelsWaker,
    ) -> LevelsHold {
        // Relaxed: the number itself is all that is shared.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let spec = LevelsSpec { index, id, keys, wake };
        self.budget.note_levels(self);
        let shared = self.lock_shared();
        assert!(index < self.shared_state(&shared).indexes.len(), "the index is held");
        spec.give_to(self.shared_state(&shared));
        debug_assert!(self.levels.lock().iter().all(|known| known.id != id), "a number is new");
        self.levels.lock().push(spec);
        drop(shared);
        LevelsHold { table: Arc::downgrade(self), index, id }
    }

    /// Gives the series of a new state the levels of their indexes.
    pub(crate) fn give_levels(&self, state: &TableState) {
        self.levels.lock().iter().for_each(|spec| spec.give_to(state));
    }

    /// Gives up all nodes of the levels of all indexes.
    pub(crate) fn give_up_levels(&self) {
        let snapshot = self.snapshot();
        for (_, (_, index)) in snapshot.state().present() {
            for levels in index.series.all_levels(snapshot.guard()) {
                levels.give_up(snapshot.guard());
            }
        }
    }

    /// Removes levels.
    fn release_levels(&self, index: usize, id: u64) {
        let shared = self.lock_shared();
        self.levels.lock().retain(|spec| spec.id != id);
        if let Some(index) = self.shared_state(&shared).indexes.get(index) {
            index.series.remove_levels(id);
        }
    }
}

impl LevelsHold {
    /// Returns the number by which [`Snapshot::nodes`] finds the nodes.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the position of the index.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Makes nodes of one key that waits for it; returns `None` when none waits, when the memory budget
    /// allows none, and when the table was dropped. Readers and writers go on.
    pub fn maintain(&self, fold: &mut dyn RunFold) -> Option<Maintained> {
        let table = self.table.upgrade()?;
        if !table.budget.has_spare() {
            return None;
        }
        let (series, levels) = self.levels(&table)?;
        if levels.rows() == LevelRows::Parts {
            return self.maintain_parts(&table, &levels, fold);
        }
        let snapshot = table.snapshot();
        series.maintain(&levels, &mut FoldOfTable { snapshot: &snapshot, fold })
    }

    /// Makes nodes of one key of a disk table.
    fn maintain_parts(
        &self,
        table: &Table,
        levels: &Levels,
        fold: &mut dyn RunFold,
    ) -> Option<Maintained> {
        let wanted = levels.take_wanted(|| table.snapshot().long_keys(self.index));
        for key in wanted.keys() {
            // Meanwhile no other series takes the place of this one.
            let shared = table.lock_shared();
            if let Some(series) = self.find_levels(table.shared_state(&shared), levels) {
                series.add_level_key(levels, key);
            }
        }
        drop(wanted);
        let guard = lockstep_series::pin();
        let work = levels.next_key(&guard)?;
        // Loaded after the work has begun: it has all rows that are not noted from here on.
        let snapshot = table.snapshot();
        self.make_nodes(&snapshot, levels, work, fold)
    }

    /// Makes nodes of a key of a disk table; those of the key are given up where they belong to a state before.
    fn make_nodes(
        &self,
        snapshot: &Snapshot<'_>,
        levels: &Levels,
        work: KeyInWork<'_>,
        fold: &mut dyn RunFold,
    ) -> Option<Maintained> {
        let state = snapshot.state();
        let made = self.find_levels(state, levels).and_then(|_| {
            let (disk, retention) = (state.disk.as_ref()?, state.live_retentions[self.index]?);
            let bounds = snapshot.bounds(retention);
            let event_time_min = bounds.event_time_min();
            let rows = NodeRows::new(snapshot, disk, self.index, work.key(), event_time_min);
            if !work.knows_newest() {
                work.know_newest(rows.newest().ok()?.unwrap_or(i64::MIN));
            }
            if !bounds.keeps_everything() {
                let is_expired = |event_time, position| bounds.is_expired(event_time, position);
                work.remove_expired(is_expired, snapshot.guard());
            }
            let mut fold = FoldOfTable { snapshot, fold };
            Some(work.make(Some(rows), &mut fold, snapshot.guard()))
        });
        Some(made.unwrap_or_default())
    }

    /// Asks for nodes of a key, which has many rows that a reader reads. Does not wait.
    pub fn ask(&self, key: &[u8]) {
        if let Some((_, levels)) = self.table.upgrade().and_then(|table| self.levels(&table)) {
            levels.ask(key);
        }
    }

    /// Returns what there is of the levels.
    pub fn size(&self) -> LevelsSize {
        let levels = self.table.upgrade().and_then(|table| self.levels(&table));
        levels.map_or_else(LevelsSize::default, |(_, levels)| levels.size())
    }

    /// Returns the levels, and the series to which they belong now.
    fn levels(&self, table: &Table) -> Option<(Arc<Series>, Arc<Levels>)> {
        let snapshot = table.snapshot();
        let series = &snapshot.state().indexes.get(self.index)?.series;
        let mut all = series.all_levels(snapshot.guard()).iter();
        let levels = all.find(|levels| levels.id() == self.id)?;
        Some((Arc::clone(series), Arc::clone(levels)))
    }

    /// Returns the series of the index in a state, if these levels belong to it.
    fn find_levels<'s>(&self, state: &'s TableState, levels: &Levels) -> Option<&'s Series> {
        let (series, guard) = (&state.indexes.get(self.index)?.series, lockstep_series::pin());
        let mut all = series.all_levels(&guard).iter();
        all.any(|known| std::ptr::eq(&raw const **known, levels)).then_some(&**series)
    }
}

impl Drop for LevelsHold {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.release_levels(self.index, self.id);
        }
    }
}

impl fmt::Debug for LevelsHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelsHold").field("index", &self.index).field("id", &self.id).finish()
    }
}

impl fmt::Debug for LevelsSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelsSpec")
            .field("index", &self.index)
            .field("id", &self.id)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
