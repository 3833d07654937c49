//! The nodes of one key as they change: marks of late rows, removed rows, and nodes that are made.
//!
//! Rules 3 to 6 of the levels' protocol. `mod.rs` decides when; here is what keeps a node that a reader takes
//! exact. Knows no queue and no account: what changes the bytes of the nodes returns by how many.
//! Model-checked with `tree` and `swap` (`crates/series/model`).

use super::tree::Forest;
use crate::{
    Guard, Swap,
    sync::{LATE_NOTES_MAX, Mutex, leaf_rows},
};

/// The nodes of a key, and what is known of rows that they lack.
pub(crate) struct KeyForest {
    forest: Swap<Forest>,
    work: Mutex<KeyWork>,
}

/// What maintenance of a key has to know.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent flag")]
struct KeyWork {
    /// The event times of late rows that nodes lack.
    late: Vec<i64>,
    /// Whether nodes are being made.
    is_building: bool,
    /// The greatest event time of a row that was removed meanwhile.
    removed: Option<i64>,
    /// Whether the nodes were given up meanwhile.
    is_given_up: bool,
    /// Whether no node is made, until a reader asks for the key.
    is_dormant: bool,
    /// How many times the nodes were extended without a reader that used them.
    unused: u32,
    /// The greatest event time of the rows that are in parts, where it is known: see
    /// [`KeyForest::know_newest`].
    newest: Option<i64>,
    /// How many rows were noted since nodes were made last.
    grown: usize,
}

/// The outcome of noting rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotedRows {
    /// How many rows nodes lack now.
    pub(crate) lacking: usize,
    /// Whether there are rows for another leaf.
    pub(crate) is_grown: bool,
    /// By how many bytes the nodes have changed.
    pub(crate) bytes: i64,
}

/// The outcome of the end of maintenance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedWork {
    /// Whether late rows were noted meanwhile.
    pub(crate) has_late_rows: bool,
    /// By how many bytes the nodes have changed.
    pub(crate) bytes: i64,
}

impl KeyForest {
    /// Makes one without nodes.
    pub(crate) fn new() -> Self {
        let weigh = |forest: &Forest| forest.bytes() as u64;
        Self { forest: Swap::new(Forest::default(), weigh), work: Mutex::default() }
    }

    /// Returns the nodes as they are now.
    #[inline]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> &'g Forest {
        self.forest.load(guard)
    }

    /// Marks the nodes into whose range late rows fall, which were inserted and are not visible yet. Rows
    /// that are noted while nodes are made are marked in those, too.
    pub(crate) fn note_late(
        &self,
        event_times: impl Iterator<Item = i64>,
        guard: &Guard,
    ) -> NotedRows {
        let mut work = self.work.lock();
        let forest = self.forest.load(guard);
        for event_time in event_times {
            if forest.mark(event_time) || work.is_building {
                work.late.push(event_time);
            }
        }
        self.noted(&mut work, guard)
    }

    /// Does what [`Self::note_late`] does with rows of which it is not known whether they are late: their
    /// series has only the rows of the key that arrived last.
    pub(crate) fn note_rows(
        &self,
        event_times: impl Iterator<Item = i64>,
        guard: &Guard,
    ) -> NotedRows {
        let mut work = self.work.lock();
        let forest = self.forest.load(guard);
        for event_time in event_times {
            // A leaf that is being made has only rows that are older than one that is known.
            let is_late = work.is_building && work.newest.is_none_or(|newest| event_time < newest);
            if forest.mark(event_time) || is_late {
                work.late.push(event_time);
            }
            work.newest = work.newest.map(|newest| newest.max(event_time));
            work.grown += 1;
        }
        self.noted(&mut work, guard)
    }

    fn noted(&self, work: &mut KeyWork, guard: &Guard) -> NotedRows {
        let (lacking, is_grown) = (work.late.len(), work.grown >= leaf_rows());
        let is_too_many = lacking > LATE_NOTES_MAX;
        let bytes = if is_too_many { self.drop_nodes(work, guard) } else { 0 };
        NotedRows { lacking, is_grown, bytes }
    }

    /// Returns whether [`Self::know_newest`] was called.
    pub(crate) fn knows_newest(&self) -> bool {
        self.work.lock().newest.is_some()
    }

    /// Notes an event time that no row of the key was newer than when nodes began to be made. From then on
    /// [`Self::note_rows`] knows late rows; rows that are noted before are all taken for late ones.
    pub(crate) fn know_newest(&self, newest: i64) {
        let mut work = self.work.lock();
        debug_assert!(work.is_building, "rows are read while nodes are made");
        work.newest = work.newest.max(Some(newest));
    }

    /// Notes that rows were removed, the newest of which had this event time. Returns by how many bytes the
    /// nodes have changed.
    pub(crate) fn note_removed(&self, newest: i64, guard: &Guard) -> i64 {
        let mut work = self.work.lock();
        work.removed = work.removed.max(Some(newest));
        let forest = self.forest.load(guard);
        let kept = forest.after(newest);
        debug_assert!(kept.rows() <= forest.rows(), "nodes are only removed");
        let removed = forest.node_bytes().saturating_sub(kept.node_bytes());
        self.replace(kept, removed, guard)
    }

    /// Removes the nodes and makes none until [`Self::wake`]. Returns by how many bytes they have changed.
    pub(crate) fn give_up(&self, guard: &Guard) -> i64 {
        let mut work = self.work.lock();
        work.is_dormant = true;
        work.unused = 0;
        self.drop_nodes(&mut work, guard)
    }

    /// Lets nodes be made.
    pub(crate) fn wake(&self) {
        self.work.lock().is_dormant = false;
    }

    /// Notes whether readers have used the nodes since the last call, and returns how many calls ago they
    /// did.
    pub(crate) fn note_use(&self, is_used: bool) -> u32 {
        let mut work = self.work.lock();
        work.unused = if is_used { 0 } else { work.unused + 1 };
        work.unused
    }

    /// Begins maintenance and takes the late rows that were noted; `None` when the nodes are not to be made.
    pub(crate) fn begin(&self) -> Option<Vec<i64>> {
        let mut work = self.work.lock();
        if work.is_building || work.is_dormant {
            return None;
        }
        work.is_building = true;
        work.grown = 0;
        work.removed = None;
        work.is_given_up = false;
        Some(std::mem::take(&mut work.late))
    }

    /// Ends maintenance and shows the new nodes, which lack nodes of the old ones of so many bytes.
    pub(crate) fn end(&self, made: Forest, replaced: usize, guard: &Guard) -> EndedWork {
        let mut work = self.work.lock();
        assert!(work.is_building, "maintenance ends once");
        work.is_building = false;
        if work.is_given_up {
            return EndedWork { has_late_rows: false, bytes: 0 };
        }
        let (made, replaced) = match work.removed {
            Some(newest) => {
                let kept = made.after(newest);
                let removed = made.node_bytes().saturating_sub(kept.node_bytes());
                (kept, replaced + removed)
            }
            None => (made, replaced),
        };
        for event_time in &work.late {
            made.mark(*event_time);
        }
        let bytes = self.replace(made, replaced, guard);
        EndedWork { has_late_rows: !work.late.is_empty(), bytes }
    }

    /// Removes all nodes. Returns by how many bytes they have changed.
    fn drop_nodes(&self, work: &mut KeyWork, guard: &Guard) -> i64 {
        work.late.clear();
        work.is_given_up = work.is_building;
        let all = self.forest.load(guard).node_bytes();
        self.replace(Forest::default(), all, guard)
    }

    /// Replaces the nodes, of which the new ones lack some of so many bytes, under the lock of the work.
    /// Returns by how many bytes they have changed.
    fn replace(&self, forest: Forest, replaced: usize, guard: &Guard) -> i64 {
        let before = signed(self.forest.load(guard).bytes());
        let after = signed(forest.bytes());
        if before != 0 || after != 0 {
            // The others are shared: who frees the old forest frees none of them.
            let dictionary = forest.dictionary().cloned();
            let freed = |old: &Forest| (old.bytes_beside(dictionary.as_ref()) + replaced) as u64;
            self.forest.replace_weighing(forest, freed, guard);
        }
        after - before
    }
}

/// Converts a size to a signed one.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}
