//! Levels: partial results over the rows of each key of a series, for windows of many rows.
//!
//! `table` registers levels with a series and has them maintained; readers take whole nodes in place of
//! rows. A series may have several, each for other windows. What the states of a node are is decided by
//! whoever registers them ([`NodeFold`]); here they are bytes.
//!
//! # Protocol
//!
//! 1. Nodes are made of rows after these were inserted, by one thread at a time for each key. The
//!    nodes of a key are a [`Forest`](tree::Forest), which readers load under a guard and which is
//!    replaced as a whole (rule 6 of the crate's protocol).
//! 2. A row that is inserted in order is newer than every node of its key, or as new as the newest row:
//!    a leaf is made only when a row newer than the leaf exists. So it changes none.
//! 3. After a late row was inserted, and before it becomes visible, its writer marks the nodes into
//!    whose range it falls as stale, under the key's lock, and notes its event time. Readers do not
//!    take a stale node: they go on to those below, and to the rows.
//! 4. A node knows the greatest arrival of its rows. A reader takes it only if all of them are visible
//!    to it. With 3, what it takes are exactly the rows that it would have read.
//! 5. Late rows that are noted while nodes are made are marked once more in the new forest, and so are
//!    rows that are removed meanwhile.
//! 6. Removed rows are older than what remains of their key, or what is newer goes too: the nodes
//!    that are not newer than every removed row are removed.
//! 7. The levels of a key are made under its shard's lock, after the levels were registered: rows
//!    that are inserted before are in the series when its nodes are made, and later writers know the
//!    levels.
//!
//! # Cost
//!
//! A reader: one lookup and, for each level, up to 8 nodes at each end of the rows, and up to 128 rows
//! at each end. A row in order costs its writer nothing, but for one in about 100 a place in a queue; a
//! late row a lookup and a mark for each level. A node takes about 150 bytes and its states, for every
//! 128 rows, and an eighth of that for the levels above.

mod key_table;
mod maintain;
mod tree;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use lockstep_host::sync::Mutex;

pub use maintain::{Maintained, NodeFold};
pub(crate) use tree::leaf_rows;
pub use tree::{LevelNode, NodeSpan, NodesTaken, set_leaf_rows};

use crate::{Account, Guard, RecordFormat, Swap, entry::EntryRef};
use key_table::KeyTable;
use maintain::{KeyRowsToFold, Maintenance};
use tree::Forest;

/// With so many noted late rows the nodes of a key are made anew.
const LATE_ROWS_MAX: usize = 1 << 14;
/// So many extensions of a key that no reader has used in between, and its nodes are given up.
const UNUSED_EXTENSIONS_MAX: u32 = 256;
/// A key is wanted when no more than so many others wait.
const WANTED_KEYS_MAX: usize = 1 << 12;

/// Which keys have levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelKeys {
    /// Those that readers ask for.
    OnDemand,
    /// All that have more rows than fit a chunk.
    All,
}

/// The partial results of one kind over the keys of a series.
pub struct Levels {
    id: u64,
    keys: LevelKeys,
    table: KeyTable,
    queue: Mutex<LevelQueue>,
    /// Called when there is work, by writers and readers: does not wait.
    wake: Box<dyn Fn() + Send + Sync>,
    account: OnceLock<Arc<dyn Account>>,
    /// The bytes of all nodes and keys.
    bytes: AtomicI64,
    /// The number of rows that were folded into leaves.
    folded: AtomicU64,
    /// Whether a key has levels.
    has_keys: AtomicBool,
    /// Whether the keys with many rows were put into the queue, where all are to have nodes.
    is_filled: AtomicBool,
    /// Whether nothing is made any more.
    is_closed: AtomicBool,
}

/// The levels of one key.
pub(crate) struct KeyLevels {
    number: usize,
    hash: u64,
    key: Box<[u8]>,
    forest: Swap<Forest>,
    work: Mutex<KeyWork>,
    /// Whether the key waits for maintenance.
    is_queued: AtomicBool,
    /// Whether a reader has looked for nodes since this was last reset.
    is_used: AtomicBool,
}

/// What maintenance of a key has to know.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says of one thing whether it is so")]
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
}

/// The keys that wait for maintenance.
#[derive(Default)]
struct LevelQueue {
    numbers: VecDeque<usize>,
    /// Keys that readers ask for, which may have no levels yet.
    wanted: BTreeSet<Box<[u8]>>,
}

/// The nodes of a key as they are at one moment, and for one reader.
#[derive(Clone, Copy)]
pub struct KeyNodes<'g> {
    forest: &'g Forest,
}

/// The size of levels, to be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelsSize {
    /// How many keys have levels.
    pub keys: u64,
    /// The bytes of all nodes and keys.
    pub bytes: u64,
    /// How many rows were folded since the levels were registered.
    pub folded: u64,
    /// How many keys wait for maintenance.
    pub waiting: u64,
}

impl Levels {
    /// Makes levels without keys. `wake` is called when there is something to be done by
    /// [`crate::Series::maintain`], by writers and readers: it does not wait.
    pub fn new(id: u64, keys: LevelKeys, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            id,
            keys,
            table: KeyTable::new(),
            queue: Mutex::default(),
            wake,
            account: OnceLock::new(),
            bytes: AtomicI64::new(0),
            folded: AtomicU64::new(0),
            has_keys: AtomicBool::new(false),
            is_filled: AtomicBool::new(keys == LevelKeys::OnDemand),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the number by which readers find the levels.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns which keys have levels.
    pub fn keys(&self) -> LevelKeys {
        self.keys
    }

    /// Charges an account from now on. The first account stays.
    pub(crate) fn adopt(&self, account: &Arc<dyn Account>) {
        if self.account.set(Arc::clone(account)).is_ok() {
            // Relaxed: nothing was made yet.
            account.charge(self.bytes.load(Ordering::Relaxed));
        }
    }

    /// Returns what there is.
    pub fn size(&self) -> LevelsSize {
        let queue = self.queue.lock();
        let waiting = (queue.numbers.len() + queue.wanted.len()) as u64;
        drop(queue);
        // Relaxed: numbers to report.
        let bytes = u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0);
        let folded = self.folded.load(Ordering::Relaxed);
        LevelsSize { keys: self.table.len() as u64, bytes, folded, waiting }
    }

    /// Returns the nodes of a key; `None` when it has none.
    #[inline]
    pub(crate) fn nodes<'g>(
        &'g self,
        hash: impl FnOnce(&[u8]) -> u64,
        key: impl FnOnce() -> &'g [u8],
        guard: &'g Guard,
    ) -> Option<KeyNodes<'g>> {
        // Relaxed: a key without nodes is read from rows.
        if !self.has_keys.load(Ordering::Relaxed) {
            return None;
        }
        let key = key();
        let levels = self.table.find(hash(key), key, guard)?;
        // Relaxed: a hint for maintenance; read first, so that readers do not contend for the line.
        if !levels.is_used.load(Ordering::Relaxed) {
            levels.is_used.store(true, Ordering::Relaxed);
        }
        let forest = levels.forest.load(guard);
        (!forest.nodes().is_empty()).then_some(KeyNodes { forest })
    }

    /// Asks for nodes of a key, which has many rows that readers read. Does not wait.
    pub fn ask(&self, key: &[u8]) {
        let Some(mut queue) = self.queue.try_lock() else { return };
        if queue.wanted.len() >= WANTED_KEYS_MAX || !queue.wanted.insert(key.into()) {
            return;
        }
        drop(queue);
        (self.wake)();
    }

    /// Returns whether the keys that the series has are still to be put into the queue. True once.
    pub(crate) fn is_to_be_filled(&self) -> bool {
        // Relaxed: whoever gets `true` fills it.
        !self.is_filled.swap(true, Ordering::Relaxed)
    }

    /// Takes the keys that readers ask for.
    pub(crate) fn take_wanted(&self) -> BTreeSet<Box<[u8]>> {
        std::mem::take(&mut self.queue.lock().wanted)
    }

    /// Makes the levels of a key, if it has none, and puts it into the queue. Under the shard's lock.
    pub(crate) fn add_key(&self, hash: u64, key: &[u8], guard: &Guard) {
        let before = self.table.len();
        let levels = self.table.find_or_add(hash, key, guard);
        // Relaxed: as in `nodes`.
        self.has_keys.store(true, Ordering::Relaxed);
        if levels.number >= before {
            self.charge(signed(KeyTable::key_bytes(key)));
        }
        levels.work.lock().is_dormant = false;
        self.enqueue(levels);
    }

    /// Notes that a key has more rows than before. Under the shard's lock.
    pub(crate) fn note_growth(&self, hash: u64, key: &[u8], guard: &Guard) {
        match (self.table.find(hash, key, guard), self.keys) {
            (Some(levels), _) => self.enqueue(levels),
            (None, LevelKeys::All) => self.add_key(hash, key, guard),
            (None, LevelKeys::OnDemand) => {}
        }
    }

    /// Notes late rows of a key, which were inserted and are not visible yet. Under the shard's lock.
    pub(crate) fn note_late(
        &self,
        hash: u64,
        key: &[u8],
        event_times: impl Iterator<Item = i64>,
        guard: &Guard,
    ) {
        let Some(levels) = self.table.find(hash, key, guard) else { return };
        if lockstep_host::failpoint::is_seeded("late_row_not_marked") {
            return;
        }
        let mut work = levels.work.lock();
        let forest = levels.forest.load(guard);
        for event_time in event_times {
            if forest.mark(event_time) || work.is_building {
                work.late.push(event_time);
            }
        }
        let count = work.late.len();
        if count > LATE_ROWS_MAX {
            self.drop_nodes(levels, &mut work, guard);
        }
        drop(work);
        if count > 0 {
            self.enqueue(levels);
        }
    }

    /// Notes that rows of a key were removed, the newest of which had this event time. Under the shard's
    /// lock.
    pub(crate) fn note_removed(&self, hash: u64, key: &[u8], newest: i64, guard: &Guard) {
        let Some(levels) = self.table.find(hash, key, guard) else { return };
        let mut work = levels.work.lock();
        work.removed = work.removed.max(Some(newest));
        let forest = levels.forest.load(guard);
        let kept = forest.after(newest);
        debug_assert!(kept.rows() <= forest.rows(), "nodes are only removed");
        self.replace(levels, kept, guard);
        drop(work);
        self.enqueue(levels);
    }

    /// Gives up the nodes of all keys. Returns how many bytes they took.
    pub fn give_up(&self, guard: &Guard) -> u64 {
        // Relaxed: a number to report.
        let before = self.bytes.load(Ordering::Relaxed);
        for number in 0..self.table.len() {
            let Some(levels) = self.table.get(number) else { break };
            let mut work = levels.work.lock();
            work.is_dormant = true;
            self.drop_nodes(&levels, &mut work, guard);
        }
        // Relaxed: as above.
        u64::try_from(before - self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Ends maintenance: the levels are not used any more.
    pub fn close(&self) {
        // Relaxed: when exactly it ends does not matter.
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Takes a key out of the queue.
    pub(crate) fn next_key(&self) -> Option<Arc<KeyLevels>> {
        // Relaxed: as above.
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.queue.lock().numbers.pop_front()?;
        let levels = self.table.get(number)?;
        debug_assert_eq!(levels.number, number, "a key is found by its number");
        // Before the work is looked at: what is noted from here on puts the key into the queue again.
        // AcqRel: pairs with the one in `enqueue`.
        levels.is_queued.swap(false, Ordering::AcqRel);
        Some(levels)
    }

    /// Makes nodes of a key: those that lack late rows, and some of rows that are in none.
    pub(crate) fn maintain<'g>(
        &self,
        levels: &KeyLevels,
        entry: Option<EntryRef<'g>>,
        format: Option<&'g RecordFormat>,
        fold: &mut dyn NodeFold,
        guard: &'g Guard,
    ) -> Maintained {
        let Some(mut late) = self.begin(levels) else { return Maintained::default() };
        late.sort_unstable();
        late.dedup();
        debug_assert!(late.len() <= LATE_ROWS_MAX + 1, "beyond them the nodes are made anew");
        let forest = levels.forest.load(guard);
        let Some(entry) = entry else {
            self.end(levels, Forest::default(), guard);
            return Maintained::default();
        };
        let rows = KeyRowsToFold { rows: entry.rows(), format };
        let (made, maintained) = Maintenance::new(rows, fold, forest).run(forest, &late);
        // Relaxed: a number to report.
        self.folded.fetch_add(maintained.rows, Ordering::Relaxed);
        let has_late_rows = self.end(levels, made, guard);
        if has_late_rows || maintained.is_unfinished {
            self.enqueue(levels);
        }
        maintained
    }

    /// Begins maintenance and takes the late rows that were noted; `None` when the key's nodes are not to
    /// be made.
    fn begin(&self, levels: &KeyLevels) -> Option<Vec<i64>> {
        let mut work = levels.work.lock();
        if work.is_building || work.is_dormant {
            return None;
        }
        // Relaxed: a hint.
        let is_used = levels.is_used.swap(false, Ordering::Relaxed);
        work.unused = if is_used { 0 } else { work.unused + 1 };
        if self.keys == LevelKeys::OnDemand && work.unused > UNUSED_EXTENSIONS_MAX {
            work.is_dormant = true;
            work.unused = 0;
            self.drop_nodes(levels, &mut work, &crate::pin());
            return None;
        }
        work.is_building = true;
        work.removed = None;
        work.is_given_up = false;
        Some(std::mem::take(&mut work.late))
    }

    /// Ends maintenance and shows the new nodes. Returns whether late rows were noted meanwhile.
    fn end(&self, levels: &KeyLevels, made: Forest, guard: &Guard) -> bool {
        let mut work = levels.work.lock();
        assert!(work.is_building, "maintenance ends once");
        work.is_building = false;
        if work.is_given_up {
            return false;
        }
        let made = match work.removed {
            Some(newest) => made.after(newest),
            None => made,
        };
        for event_time in &work.late {
            made.mark(*event_time);
        }
        self.replace(levels, made, guard);
        !work.late.is_empty()
    }

    /// Removes all nodes of a key.
    fn drop_nodes(&self, levels: &KeyLevels, work: &mut KeyWork, guard: &Guard) {
        work.late.clear();
        work.is_given_up = work.is_building;
        self.replace(levels, Forest::default(), guard);
    }

    /// Replaces the nodes of a key. Under the key's lock.
    fn replace(&self, levels: &KeyLevels, forest: Forest, guard: &Guard) {
        let before = signed(levels.forest.load(guard).bytes());
        let after = signed(forest.bytes());
        if before != 0 || after != 0 {
            levels.forest.replace(forest, guard);
            self.charge(after - before);
        }
    }

    fn charge(&self, bytes: i64) {
        // Relaxed: a number to report.
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        debug_assert!(before + bytes >= 0, "no more is given back than was taken");
        if let Some(account) = self.account.get() {
            account.charge(bytes);
        }
    }

    /// Puts a key into the queue, unless it is there.
    fn enqueue(&self, levels: &KeyLevels) {
        // AcqRel: pairs with the one in `next_key`.
        if !levels.is_queued.swap(true, Ordering::AcqRel) {
            self.queue.lock().numbers.push_back(levels.number);
            (self.wake)();
        }
    }
}

impl KeyLevels {
    fn new(number: usize, hash: u64, key: &[u8]) -> Self {
        let weigh = |forest: &Forest| forest.bytes() as u64;
        Self {
            number,
            hash,
            key: key.into(),
            forest: Swap::new(Forest::default(), weigh),
            work: Mutex::default(),
            is_queued: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        }
    }

    /// Returns the hash and the key.
    pub(crate) fn key(&self) -> (u64, &[u8]) {
        (self.hash, &self.key)
    }
}

impl<'g> KeyNodes<'g> {
    /// Takes nodes of the rows of a span, newest first and as large as possible, until rows have to be
    /// read. `take` is called with each and returns whether it is taken.
    #[inline]
    pub fn take(self, span: NodeSpan, mut take: impl FnMut(&'g LevelNode) -> bool) -> NodesTaken {
        self.forest.walk(span, &mut take)
    }

    /// Returns the number of rows that are in nodes.
    pub fn rows(self) -> u64 {
        self.forest.rows()
    }
}

impl Drop for Levels {
    fn drop(&mut self) {
        if let Some(account) = self.account.get() {
            account.charge(-*self.bytes.get_mut());
        }
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Levels").field("id", &self.id).field("size", &self.size()).finish()
    }
}

impl fmt::Debug for KeyLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLevels").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyNodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyNodes").field("rows", &self.rows()).finish_non_exhaustive()
    }
}

/// Converts a size to a signed one.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}
