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
//! # Rows in parts
//!
//! Levels may be over more rows than those of one series ([`LevelRows::Parts`]): those of a disk table, whose
//! series has the rows that arrived last and is replaced by an empty one when it is written to a file. The levels
//! go on from one to the next, and where a row is stored makes no difference to a node. What differs:
//!
//! 8. A series does not know which rows are late, so each row of a key with levels is noted as those of rule 3
//!    are. While nodes are made, a row is noted unless it is as new as the newest one that was known before the
//!    rows were read.
//! 9. Whoever adds keys sees to it that no other series takes the place of this one meanwhile.
//! 10. Rows that a merge of files leaves out may be newer than others that remain. A reader to whom they have not
//!     expired takes no nodes; to any other, a node without them is as good as one with them, since what is older
//!     than they has expired as well.
//!
//! # Cost
//!
//! A reader: one lookup and, for each level, up to 8 nodes at each end of the rows, and up to 128 rows
//! at each end. A row in order costs its writer nothing, but for one in about 100 a place in a queue; a
//! late row a lookup and a mark for each level, as any row in parts does. A node takes about 150 bytes and its states, for every
//! 128 rows, and an eighth of that for the levels above.

mod key_nodes;
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

pub use maintain::{Maintained, NodeFold, RowSlices, RowsToFold};
pub(crate) use tree::{FAN_OUT, node_footprint, state_bytes_max};
pub use tree::{LevelNode, NodeDictionary, NodeSpan, NodesTaken};

use crate::{Account, Guard, sync::LATE_NOTES_MAX};
use key_nodes::{EndedWork, KeyForest, NotedRows};
use key_table::KeyTable;
pub(crate) use key_table::key_bytes;
pub(crate) use maintain::KeyRowsToFold;
use maintain::Maintenance;
use tree::Forest;

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

/// Where the rows of a key with levels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelRows {
    /// In the series.
    Series,
    /// In several places, of which the series is one: see the rules of the levels.
    Parts,
}

/// The partial results of one kind over the keys of a series.
pub struct Levels {
    id: u64,
    keys: LevelKeys,
    rows: LevelRows,
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
    nodes: KeyForest,
    /// Whether the key waits for maintenance.
    is_queued: AtomicBool,
    /// Whether a reader has looked for nodes since this was last reset.
    is_used: AtomicBool,
}

/// The keys that wait for maintenance.
#[derive(Default)]
struct LevelQueue {
    numbers: VecDeque<usize>,
    /// Keys that readers ask for, which may have no levels yet.
    wanted: BTreeSet<Box<[u8]>>,
    /// How many keys were taken out of the queue and are not done yet.
    in_work: u64,
}

/// Keys that maintenance has taken out of the queue: until this is dropped they count as waiting.
struct KeysInWork<'l> {
    levels: &'l Levels,
    keys: u64,
}

/// Keys that are to get levels: until this is dropped they count as waiting.
#[derive(Debug)]
pub struct WantedKeys<'l> {
    keys: Vec<Box<[u8]>>,
    _in_work: KeysInWork<'l>,
}

/// A key whose nodes are being made. Where this is dropped before, the nodes of the key are given up.
#[derive(Debug)]
pub struct KeyInWork<'l> {
    key: Arc<KeyLevels>,
    in_work: KeysInWork<'l>,
    /// The event times of late rows that were noted.
    late: Vec<i64>,
    is_done: bool,
}

/// The nodes of a key as they are at one moment, and for one reader.
#[derive(Clone, Copy)]
pub struct KeyNodes<'g> {
    forest: &'g Forest,
    rows: LevelRows,
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
    /// How many keys wait for maintenance, with the one whose nodes are being made. Keys that are still to
    /// be looked for count as one.
    pub waiting: u64,
}

impl Levels {
    /// Makes levels without keys. `wake` is called when there is something to be done by
    /// [`crate::Series::maintain`], by writers and readers: it does not wait.
    pub fn new(
        id: u64,
        keys: LevelKeys,
        rows: LevelRows,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            id,
            keys,
            rows,
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

    /// Returns where the rows are.
    pub fn rows(&self) -> LevelRows {
        self.rows
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
        // Acquire: pairs with the one in `begin_filling`, which has counted the keys before.
        let unfilled = u64::from(!self.is_filled.load(Ordering::Acquire));
        let queue = self.queue.lock();
        let queued = (queue.numbers.len() + queue.wanted.len()) as u64;
        let waiting = unfilled + queued + queue.in_work;
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
        let forest = levels.nodes.load(guard);
        (!forest.nodes().is_empty()).then_some(KeyNodes { forest, rows: self.rows })
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

    /// Returns the keys that are to get levels ([`crate::Series::add_level_key`]): those that readers ask for and,
    /// once, those that `long_keys` finds, where all are to have some.
    pub fn take_wanted(&self, long_keys: impl FnOnce() -> Vec<Box<[u8]>>) -> WantedKeys<'_> {
        self.queue.lock().in_work += 1;
        let mut in_work = KeysInWork { levels: self, keys: 1 };
        // AcqRel: whoever gets `false` fills it; pairs with the Acquire in `size`.
        let is_filled = self.is_filled.swap(true, Ordering::AcqRel);
        let mut keys = if is_filled { Vec::new() } else { long_keys() };
        let mut queue = self.queue.lock();
        keys.extend(std::mem::take(&mut queue.wanted));
        queue.in_work += keys.len() as u64;
        in_work.keys += keys.len() as u64;
        debug_assert!(queue.in_work >= in_work.keys, "these keys are among those in work");
        WantedKeys { keys, _in_work: in_work }
    }

    /// Makes the levels of a key, if it has none, and puts it into the queue. Under the shard's lock.
    pub(crate) fn add_key(&self, hash: u64, key: &[u8], guard: &Guard) {
        let before = self.table.len();
        let levels = self.table.find_or_add(hash, key, guard);
        // Relaxed: as in `nodes`.
        self.has_keys.store(true, Ordering::Relaxed);
        if levels.number >= before {
            self.charge(signed(key_bytes(key.len())));
        }
        levels.nodes.wake();
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

    /// Notes rows of a key, which were inserted and are not visible yet: late ones, and any in parts. Under the
    /// shard's lock.
    pub(crate) fn note_rows(
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
        let NotedRows { lacking, is_grown, bytes } = match self.rows {
            LevelRows::Series => levels.nodes.note_late(event_times, guard),
            LevelRows::Parts => levels.nodes.note_rows(event_times, guard),
        };
        self.charge(bytes);
        if lacking > 0 || is_grown {
            self.enqueue(levels);
        }
    }

    /// Notes that rows of a key were removed, the newest of which had this event time. Under the shard's
    /// lock.
    pub(crate) fn note_removed(&self, hash: u64, key: &[u8], newest: i64, guard: &Guard) {
        let Some(levels) = self.table.find(hash, key, guard) else { return };
        self.charge(levels.nodes.note_removed(newest, guard));
        self.enqueue(levels);
    }

    /// Gives up the nodes of all keys. Returns how many bytes they took.
    pub fn give_up(&self, guard: &Guard) -> u64 {
        // Relaxed: a number to report.
        let before = self.bytes.load(Ordering::Relaxed);
        for number in 0..self.table.len() {
            let Some(levels) = self.table.get(number) else { break };
            self.charge(levels.nodes.give_up(guard));
        }
        if self.keys == LevelKeys::All {
            // Once there is memory again, all keys get nodes.
            // Release: as in `begin_filling`.
            self.is_filled.store(false, Ordering::Release);
        }
        // Relaxed: as above.
        u64::try_from(before - self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Ends maintenance: the levels are not used any more.
    pub fn close(&self) {
        // Relaxed: when exactly it ends does not matter.
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Takes a key out of the queue and begins to make its nodes; `None` when none waits. The rows are to be read
    /// from now on.
    pub fn next_key(&self, guard: &Guard) -> Option<KeyInWork<'_>> {
        loop {
            let (key, in_work) = self.take_queued()?;
            if let Some(mut late) = self.begin(&key, guard) {
                late.sort_unstable();
                late.dedup();
                debug_assert!(late.len() <= LATE_NOTES_MAX + 1, "beyond them nodes are made anew");
                return Some(KeyInWork { key, in_work, late, is_done: false });
            }
        }
    }

    fn take_queued(&self) -> Option<(Arc<KeyLevels>, KeysInWork<'_>)> {
        // Relaxed: as above.
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let number = {
            let mut queue = self.queue.lock();
            let number = queue.numbers.pop_front()?;
            queue.in_work += 1;
            number
        };
        let in_work = KeysInWork { levels: self, keys: 1 };
        let levels = self.table.get(number)?;
        debug_assert_eq!(levels.number, number, "a key is found by its number");
        // Before the work is looked at: what is noted from here on puts the key into the queue again.
        // AcqRel: pairs with the one in `enqueue`.
        levels.is_queued.swap(false, Ordering::AcqRel);
        Some((levels, in_work))
    }

    /// Begins maintenance and takes the late rows that were noted; `None` when the key's nodes are not to
    /// be made.
    fn begin(&self, levels: &KeyLevels, guard: &Guard) -> Option<Vec<i64>> {
        // Relaxed: a hint.
        let unused = levels.nodes.note_use(levels.is_used.swap(false, Ordering::Relaxed));
        if self.keys == LevelKeys::OnDemand && unused > UNUSED_EXTENSIONS_MAX {
            self.charge(levels.nodes.give_up(guard));
        }
        levels.nodes.begin()
    }

    /// Ends maintenance and shows the new nodes. Returns whether late rows were noted meanwhile.
    fn end(&self, levels: &KeyLevels, made: Forest, replaced: usize, guard: &Guard) -> bool {
        let EndedWork { has_late_rows, bytes } = levels.nodes.end(made, replaced, guard);
        self.charge(bytes);
        has_late_rows
    }

    fn charge(&self, bytes: i64) {
        if bytes == 0 {
            return;
        }
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

impl WantedKeys<'_> {
    /// Returns the keys.
    pub fn keys(&self) -> &[Box<[u8]>] {
        &self.keys
    }
}

impl KeyInWork<'_> {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key.key
    }

    /// Returns whether the event time of a row is known that none was newer than.
    pub fn knows_newest(&self) -> bool {
        self.key.nodes.knows_newest()
    }

    /// Notes the event time of the newest row of the key, before the rows are read. Of rows in parts alone.
    pub fn know_newest(&self, newest: i64) {
        debug_assert_eq!(self.in_work.levels.rows, LevelRows::Parts, "a series has its newest row");
        self.key.nodes.know_newest(newest);
    }

    /// Notes that rows up to an event time are expired: their nodes go.
    pub fn remove_expired(&self, is_expired: impl Fn(i64, u64) -> bool, guard: &Guard) {
        let Some(newest) = self.key.nodes.load(guard).newest_expired(is_expired) else { return };
        self.in_work.levels.charge(self.key.nodes.note_removed(newest, guard));
    }

    /// Makes nodes: those that lack late rows, and some of rows that are in none. There are no rows of the key
    /// where `rows` is `None`. Where they cannot be read, the nodes are given up.
    pub fn make<'g>(
        mut self,
        rows: Option<impl RowsToFold<'g>>,
        fold: &mut dyn NodeFold,
        guard: &Guard,
    ) -> Maintained {
        let (levels, forest) = (self.in_work.levels, self.key.nodes.load(guard));
        let Some(rows) = rows else {
            let replaced = forest.node_bytes();
            self.is_done = true;
            levels.end(&self.key, Forest::default(), replaced, guard);
            return Maintained::default();
        };
        let Some(made) = Maintenance::new(rows, fold, forest).run(forest, &self.late) else {
            return Maintained::default();
        };
        // Relaxed: a number to report.
        levels.folded.fetch_add(made.done.rows, Ordering::Relaxed);
        self.is_done = true;
        let has_late_rows = levels.end(&self.key, made.forest, made.replaced, guard);
        if has_late_rows || made.done.is_unfinished {
            levels.enqueue(&self.key);
        }
        made.done
    }
}

impl Drop for KeyInWork<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let (levels, guard) = (self.in_work.levels, crate::pin());
            levels.charge(self.key.nodes.give_up(&guard));
            levels.end(&self.key, Forest::default(), 0, &guard);
        }
    }
}

impl KeyLevels {
    fn new(number: usize, hash: u64, key: &[u8]) -> Self {
        Self {
            number,
            hash,
            key: key.into(),
            nodes: KeyForest::new(),
            is_queued: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
        }
    }
}

impl<'g> KeyNodes<'g> {
    /// Takes nodes of the rows of a span, newest first and as large as possible, until rows have to be
    /// read. `take` is called with each and returns whether it is taken.
    #[inline]
    pub fn take(self, span: NodeSpan, mut take: impl FnMut(&'g LevelNode) -> bool) -> NodesTaken {
        self.forest.walk(span, &mut take)
    }

    /// Returns the dictionary to which the states of the nodes refer.
    #[inline]
    pub fn dictionary(self) -> Option<&'g dyn NodeDictionary> {
        self.forest.dictionary().map(|shared| &**shared)
    }

    /// Returns whether they may lack rows that merges of files have left out.
    #[inline]
    pub fn are_of_parts(self) -> bool {
        self.rows == LevelRows::Parts
    }

    /// Returns the number of rows that are in nodes.
    pub fn rows(self) -> u64 {
        self.forest.rows()
    }
}

impl Drop for KeysInWork<'_> {
    fn drop(&mut self) {
        let mut queue = self.levels.queue.lock();
        assert!(queue.in_work >= self.keys, "what was taken is done once");
        queue.in_work -= self.keys;
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

impl fmt::Debug for KeysInWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysInWork").field("keys", &self.keys).finish_non_exhaustive()
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
