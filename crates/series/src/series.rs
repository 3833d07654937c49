//! The keys of an index: a hash map that readers walk without a lock.
//!
//! `table` calls it. See rules 1, 5 and 6 of the crate's protocol.

use std::{
    fmt,
    hash::BuildHasher,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

use crossbeam_epoch::Guard;
use hashbrown::DefaultHashBuilder;
use lockstep_host::sync::Mutex;

use crate::{
    Bounds, KeyRows, OldestRows, RowHandle, RowRef,
    entry::{Entry, Retained},
};

/// How many writers can go on at once. A power of two.
const SHARD_COUNT: usize = 16;
const SHARD_BITS: u32 = SHARD_COUNT.trailing_zeros();
/// The buckets of a shard at first. A power of two.
const BUCKETS_MIN: usize = 4;

/// The rows of one index by entity key, newest first.
pub struct Series {
    hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
}

struct Shard {
    /// Held by whoever changes anything of the shard.
    writer: Mutex<Writer>,
    /// Never null. Replaced under the lock; what it pointed to is retired.
    buckets: AtomicPtr<Buckets>,
    /// Bytes of buckets, entries, spines and chunks. Written under the lock.
    memory_bytes: AtomicU64,
}

/// What only writers need.
struct Writer {
    /// Keys.
    keys: usize,
    /// Buckets that are not empty: keys, and marks of removed keys.
    used: usize,
}

/// Open addressing with linear probing. At least one bucket is always empty.
struct Buckets {
    /// A power of two.
    buckets: Box<[Bucket]>,
}

/// Empty (null), an entry, or the mark of a removed one, which stays until the buckets are
/// replaced. `hash` is written before the entry is and does not change after.
#[derive(Default)]
struct Bucket {
    hash: AtomicU64,
    entry: AtomicPtr<Entry>,
}

/// Its address marks a removed entry; it is never read through.
static REMOVED: u64 = 0;

fn removed() -> *mut Entry {
    ptr::from_ref(&REMOVED).cast_mut().cast()
}

impl Series {
    /// Makes an empty one.
    pub fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Shard::new()).collect();
        Self { hasher: DefaultHashBuilder::default(), shards }
    }

    /// Inserts a row, whose arrival has been set ([`RowHandle::place`]). Readers see it at once as
    /// far as their [`Bounds`] let them. Rows of one key with equal event time and equal arrival
    /// must not exist. Do not hold a guard across many inserts: late rows leave garbage.
    pub fn insert(&self, key: &[u8], event_time: i64, row: RowHandle) {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash);
        let mut writer = shard.writer.lock();
        let guard = crossbeam_epoch::pin();
        let grown = match shard.find(hash, key) {
            Some(entry) => entry.insert(event_time, row, &guard),
            None => shard.add(&mut writer, Entry::new(hash, key, event_time, row), &guard),
        };
        // A copy may take less room than what it replaces: a wrapped difference wraps back.
        shard.grow_by(u64::try_from(grown).expect("a size fits 64 bits"));
    }

    /// The rows of a key, newest first; `None` when there is none. No lock, no allocation.
    #[inline]
    pub fn seek<'g>(&'g self, key: &[u8], bounds: Bounds, guard: &'g Guard) -> Option<KeyRows<'g>> {
        Some(KeyRows::new(self.find(key, guard)?, bounds))
    }

    /// The rows of a key with an arrival less than `visible`, oldest first.
    pub fn oldest_first<'g>(
        &'g self,
        key: &[u8],
        visible: u64,
        guard: &'g Guard,
    ) -> OldestRows<'g> {
        OldestRows::new(self.find(key, guard), visible)
    }

    /// Removes the rows that are not kept, and keys without rows. `start_key` is called for each
    /// key and makes what is asked for each of its rows, newest first: event time and row.
    /// Returns how many rows were removed. Readers go on; their memory is freed after the last
    /// guard of now is gone. Writers of one shard wait at a time.
    pub fn retain<K>(&self, mut start_key: impl FnMut() -> K) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> bool,
    {
        self.shards.iter().map(|shard| shard.retain(&mut start_key)).sum()
    }

    /// Bytes of memory, without the rows and without the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        // Relaxed: a number to report.
        self.shards.iter().map(|shard| shard.memory_bytes.load(Ordering::Relaxed)).sum()
    }

    /// How many entity keys there are.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().keys).sum()
    }

    fn shard(&self, hash: u64) -> &Shard {
        let shard_mask = u64::try_from(SHARD_COUNT - 1).expect("there are few shards");
        &self.shards[usize::try_from(hash & shard_mask).expect("there are few shards")]
    }

    /// The guard is what keeps the entry from being freed.
    #[inline]
    fn find<'g>(&'g self, key: &[u8], _guard: &'g Guard) -> Option<&'g Entry> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).find(hash, key)
    }
}

impl Default for Series {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

impl Shard {
    fn new() -> Self {
        let buckets = Buckets::new(BUCKETS_MIN);
        let memory_bytes = AtomicU64::new(buckets.memory_bytes());
        let buckets = AtomicPtr::new(Box::into_raw(Box::new(buckets)));
        Self { writer: Mutex::new(Writer { keys: 0, used: 0 }), buckets, memory_bytes }
    }

    /// The caller holds a guard or the lock, for as long as it borrows.
    #[inline]
    fn buckets(&self) -> &Buckets {
        // Acquire: pairs with the Release in `rebuild`.
        // SAFETY: never null, and freed by the epoch collector after it was replaced.
        unsafe { &*self.buckets.load(Ordering::Acquire) }
    }

    /// The caller holds a guard or the lock, for as long as it borrows.
    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        let buckets = self.buckets();
        let mut at = buckets.start(hash);
        loop {
            let bucket = &buckets.buckets[at];
            // Acquire: pairs with the Release in `Bucket::fill`.
            let pointer = bucket.entry.load(Ordering::Acquire);
            if pointer.is_null() {
                return None;
            }
            // Relaxed: the hash was written before the entry that was loaded.
            if pointer != removed() && bucket.hash.load(Ordering::Relaxed) == hash {
                // SAFETY: an entry is freed by the epoch collector after it was unlinked.
                let entry = unsafe { &*pointer };
                if entry.is_of(hash, key) {
                    return Some(entry);
                }
            }
            at = buckets.after(at);
        }
    }

    /// Adds a key that is not there, and returns how many bytes it takes. Under the lock.
    fn add(&self, writer: &mut Writer, entry: Entry, guard: &Guard) -> usize {
        if (writer.used + 1) * 3 > self.buckets().buckets.len() * 2 {
            self.rebuild(writer, guard);
        }
        let bytes = entry.memory_bytes();
        let hash = entry.hash();
        self.buckets().empty(hash).fill(hash, Box::into_raw(Box::new(entry)));
        writer.keys += 1;
        writer.used += 1;
        bytes
    }

    /// Replaces the buckets by ones that are at most one third full, without marks.
    fn rebuild(&self, writer: &mut Writer, guard: &Guard) {
        let size = ((writer.keys + 1) * 3).next_power_of_two().max(BUCKETS_MIN);
        let old = self.buckets();
        let new = Buckets::new(size);
        for bucket in &old.buckets {
            let pointer = bucket.entry.load(Ordering::Relaxed);
            if !pointer.is_null() && pointer != removed() {
                let hash = bucket.hash.load(Ordering::Relaxed);
                new.empty(hash).fill(hash, pointer);
            }
        }
        self.grow_by(new.memory_bytes().wrapping_sub(old.memory_bytes()));
        writer.used = writer.keys;
        // Release: pairs with the Acquire in `buckets`.
        let old = self.buckets.swap(Box::into_raw(Box::new(new)), Ordering::Release);
        // SAFETY: it was unlinked just now under the lock, and owns no entries.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(old))) };
    }

    fn retain<K>(&self, start_key: &mut impl FnMut() -> K) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> bool,
    {
        let mut writer = self.writer.lock();
        let mut rows_removed = 0;
        for bucket in &self.buckets().buckets {
            let pointer = bucket.entry.load(Ordering::Relaxed);
            if pointer.is_null() || pointer == removed() {
                continue;
            }
            // A guard for each key lets the collector go on in between.
            let guard = crossbeam_epoch::pin();
            // SAFETY: only the holder of the lock unlinks entries.
            let entry = unsafe { &*pointer };
            let before = entry.memory_bytes();
            let after = match entry.retain(&mut start_key(), &guard) {
                Retained::Some(removed) => {
                    rows_removed += removed;
                    entry.memory_bytes()
                }
                Retained::None(count) => {
                    rows_removed += count;
                    // Relaxed: readers need nothing of what the mark says, only not the entry.
                    bucket.entry.store(removed(), Ordering::Relaxed);
                    writer.keys -= 1;
                    // SAFETY: it was unlinked just now and is retired once.
                    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(pointer))) };
                    0
                }
            };
            self.shrink_by(before - after);
        }
        rows_removed
    }

    fn grow_by(&self, bytes: u64) {
        // Relaxed: a number to report.
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn shrink_by(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).expect("a size fits 64 bits");
        // Relaxed: a number to report.
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        // SAFETY: nobody else can reach the shard, so buckets and entries have one owner: here.
        unsafe {
            let buckets = Box::from_raw(*self.buckets.get_mut());
            for bucket in &buckets.buckets {
                let pointer = bucket.entry.load(Ordering::Relaxed);
                if !pointer.is_null() && pointer != removed() {
                    drop(Box::from_raw(pointer));
                }
            }
        }
    }
}

impl Buckets {
    fn new(size: usize) -> Self {
        assert!(size.is_power_of_two(), "positions are masked");
        Self { buckets: (0..size).map(|_| Bucket::default()).collect() }
    }

    fn memory_bytes(&self) -> u64 {
        let bytes = size_of::<Self>() + self.buckets.len() * size_of::<Bucket>();
        u64::try_from(bytes).expect("a size fits 64 bits")
    }

    /// Where the search for a hash starts.
    #[inline]
    fn start(&self, hash: u64) -> usize {
        let mask = u64::try_from(self.buckets.len() - 1).expect("a size fits 64 bits");
        usize::try_from((hash >> SHARD_BITS) & mask).expect("masked by a usize")
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }

    /// The empty bucket where a hash belongs. Under the lock.
    fn empty(&self, hash: u64) -> &Bucket {
        let mut at = self.start(hash);
        while !self.buckets[at].entry.load(Ordering::Relaxed).is_null() {
            at = self.after(at);
        }
        &self.buckets[at]
    }
}

impl Bucket {
    /// Fills an empty bucket. Under the lock.
    fn fill(&self, hash: u64, entry: *mut Entry) {
        // Relaxed: published by the entry.
        self.hash.store(hash, Ordering::Relaxed);
        // Release: pairs with the Acquire in `Shard::find`.
        self.entry.store(entry, Ordering::Release);
    }
}
