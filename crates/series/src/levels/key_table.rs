//! The levels of each key, which readers find by the hash of the key without a lock.
//!
//! Open addressing with linear probing, a power of two of pointers; a key is never removed. Whoever adds
//! one holds the lock. When more than half of the cells are used, an array of twice as many replaces
//! them.

use std::{fmt, sync::Arc};

use lockstep_host::{memory::footprint, sync::Mutex};

use super::KeyLevels;
use crate::{
    Guard, Swap,
    sync::{AtomicPtr, Ordering},
};

/// The number of cells of a table without keys.
const CELLS_MIN: usize = 16;

/// The levels of keys.
pub(super) struct KeyTable {
    cells: Swap<Cells>,
    /// What the cells point to.
    keys: Mutex<Vec<Arc<KeyLevels>>>,
}

struct Cells {
    cells: Box<[AtomicPtr<KeyLevels>]>,
}

impl Cells {
    fn new(count: usize) -> Self {
        assert!(count.is_power_of_two(), "a hash is cut to a number of bits");
        Self { cells: (0..count).map(|_| AtomicPtr::default()).collect() }
    }

    /// Returns the positions at which a hash may be, one after the other.
    fn probe(&self, hash: u64) -> impl Iterator<Item = &AtomicPtr<KeyLevels>> {
        let mask = self.cells.len() - 1;
        // The lowest bits pick the shard of the series.
        let home = usize::try_from(hash >> 32).expect("32 bits");
        (0..self.cells.len()).map(move |step| &self.cells[(home + step) & mask])
    }

    fn put(&self, hash: u64, key: &Arc<KeyLevels>) {
        // Relaxed: only the holder of the lock writes.
        let free = self.probe(hash).find(|cell| cell.load(Ordering::Relaxed).is_null());
        let free = free.expect("half of the cells are free");
        // Release: pairs with the Acquire in `find`.
        free.store(Arc::as_ptr(key).cast_mut(), Ordering::Release);
    }
}

impl KeyTable {
    pub(super) fn new() -> Self {
        let weigh = |cells: &Cells| size_of_val(&*cells.cells) as u64;
        Self { cells: Swap::new(Cells::new(CELLS_MIN), weigh), keys: Mutex::default() }
    }

    /// Finds the levels of a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8], guard: &Guard) -> Option<&KeyLevels> {
        for cell in self.cells.load(guard).probe(hash) {
            // Acquire: pairs with the Release in `put`.
            let found = cell.load(Ordering::Acquire);
            if found.is_null() {
                return None;
            }
            // SAFETY: `keys` keeps what a cell points to for as long as the table is.
            let found = unsafe { &*found };
            if found.hash == hash && *found.key == *key {
                return Some(found);
            }
        }
        None
    }

    /// Finds the levels of a key, or makes them.
    pub(super) fn find_or_add(&self, hash: u64, key: &[u8], guard: &Guard) -> &KeyLevels {
        if let Some(found) = self.find(hash, key, guard) {
            return found;
        }
        let mut keys = self.keys.lock();
        if let Some(found) = self.find(hash, key, guard) {
            return found;
        }
        let number = keys.len();
        debug_assert!(
            number * 2 <= self.cells.load(guard).cells.len(),
            "half of the cells are free"
        );
        let made = Arc::new(KeyLevels::new(number, hash, key));
        let cells = self.cells.load(guard);
        if (number + 1) * 2 > cells.cells.len() {
            let larger = Cells::new(cells.cells.len() * 2);
            keys.iter().for_each(|key| larger.put(key.hash, key));
            larger.put(hash, &made);
            self.cells.replace(larger, guard);
        } else {
            cells.put(hash, &made);
        }
        let found = Arc::as_ptr(&made);
        keys.push(made);
        debug_assert!(self.find(hash, key, guard).is_some(), "a key that was added is found");
        // SAFETY: `keys` keeps it for as long as the table is.
        unsafe { &*found }
    }

    /// Returns the levels of the key with this number.
    pub(super) fn get(&self, number: usize) -> Option<Arc<KeyLevels>> {
        self.keys.lock().get(number).map(Arc::clone)
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.lock().len()
    }
}

/// Returns the bytes that a key of so many bytes takes beside its nodes.
pub(crate) fn key_bytes(key_size: usize) -> usize {
    const COUNTS: usize = 2 * size_of::<usize>();
    // Four pointers for each key: half of the cells are free, and `keys` grows likewise.
    footprint(COUNTS + size_of::<KeyLevels>()) + footprint(key_size) + 4 * size_of::<usize>()
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("len", &self.len()).finish_non_exhaustive()
    }
}
