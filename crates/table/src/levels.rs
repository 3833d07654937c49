//! The levels of a table's indexes: partial results for windows of many rows.
//!
//! A compiled program holds levels of the indexes that it reads ([`Table::hold_levels`]); what they
//! have of each node is its own ([`RunFold`]). They belong to the series of an index: where another one
//! replaces it (DELETE, TRUNCATE, included columns), empty levels go with the new one. When the memory
//! budget is exhausted, all levels are given up before a write is refused.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_series::{
    ChunkRun, LevelKeys, LevelNode, Levels, LevelsSize, Maintained, NodeDictionary, NodeFold,
    Series,
};

use crate::{KeyRun, Snapshot, Table, state::TableState};

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
struct FoldOfTable<'f, 't> {
    snapshot: Snapshot<'t>,
    fold: &'f mut dyn RunFold,
}

impl NodeFold for FoldOfTable<'_, '_> {
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
        let runs: Vec<_> = runs.iter().map(|run| KeyRun::new(&self.snapshot, *run)).collect();
        self.fold.fold(&runs, states);
    }

    fn merge(&mut self, nodes: &mut dyn Iterator<Item = &LevelNode>, states: &mut Vec<u8>) {
        self.fold.merge(nodes, states);
    }
}

impl LevelsSpec {
    fn make(&self) -> Arc<Levels> {
        let wake = Arc::clone(&self.wake);
        Arc::new(Levels::new(self.id, self.keys, Box::new(move || wake())))
    }

    /// Gives levels to a series that has none of this number.
    fn give_to(&self, series: &Series) {
        let guard = lockstep_series::pin();
        if !series.all_levels(&guard).iter().any(|levels| levels.id() == self.id) {
            series.add_levels(self.make());
            (self.wake)();
        }
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
        if self.shared_state(&shared).disk.is_none() {
            spec.give_to(&self.shared_state(&shared).indexes[index].series);
        }
        debug_assert!(self.levels.lock().iter().all(|known| known.id != id), "a number is new");
        self.levels.lock().push(spec);
        drop(shared);
        LevelsHold { table: Arc::downgrade(self), index, id }
    }

    /// Gives the series of a new state the levels of their indexes; a disk table has none.
    pub(crate) fn give_levels(&self, state: &TableState) {
        if state.disk.is_some() {
            return;
        }
        for spec in &*self.levels.lock() {
            if let Some(index) = state.indexes.get(spec.index) {
                spec.give_to(&index.series);
            }
        }
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
        let mut fold = FoldOfTable { snapshot: table.snapshot(), fold };
        series.maintain(&levels, &mut fold)
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
