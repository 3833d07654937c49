//! The keys of an index: a hash map that readers walk without a lock.
//!
//! `table` calls it. See rules 1, 5 and 6 of the crate's protocol.

use std::{
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicPtr, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;
use lockstep_host::sync::Mutex;

use crate::{
    Account, Bounds, Fate, Guard, Included, KeyRow, KeyRows, RowRef,
    buckets::{Bucket, Buckets, TAG_SHIFT, buckets_for},
    entry::{Entry, EntryRef, Inserted, Parts, Rest, With, single_footprint},
    guard::Retiring,
    row_ref::prefetch,
};

/// How many writers can go on at once. A power of two.
pub(crate) const SHARD_COUNT: usize = 64;
const SHARD_BITS: u32 = SHARD_COUNT.trailing_zeros();
const _: () = assert!(SHARD_BITS <= TAG_SHIFT, "the tag has bits that the shard does not");

/// The rows of one index by entity key, newest first. Leads to rows; does not own them.
pub struct Series {
    hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
    /// How records are made, when columns are included.
    included: Option<Arc<Included>>,
    /// Who is charged.
    account: OnceLock<Arc<dyn Account>>,
}

/// Where a row is to be inserted: a key and its hash.
#[derive(Debug, Clone, Copy)]
pub struct KeyPlace<'k> {
    /// [`Series::hash`] of the key.
    pub hash: u64,
    /// The key's bytes.
    pub key: &'k [u8],
}

/// Aligned so that writers of different shards do not write one cache line.
#[repr(align(64))]
struct Shard {
    /// Held by whoever changes anything of the shard.
    writer: Mutex<Writer>,
    /// Never null. Replaced under the lock; what it led to is retired.
    buckets: AtomicPtr<Buckets>,
    /// Bytes of buckets, entries, spines and chunks. Written under the lock.
    memory_bytes: AtomicI64,
}

/// What only writers need.
struct Writer {
    /// Keys.
    keys: usize,
    /// Buckets that are not empty: keys, and marks of removed keys.
    used: usize,
}

impl Series {
    /// Makes an empty one.
    pub fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Shard::new()).collect();
        let hasher = DefaultHashBuilder::default();
        Self { hasher, shards, included: None, account: OnceLock::new() }
    }

    /// Makes an empty one that keeps a record beside each slot.
    pub fn including(included: Arc<Included>) -> Self {
        let mut series = Self::new();
        series.included = Some(included);
        series
    }

    /// Charges an account with what the series takes now; from here on also with what
    /// [`Self::retain`] and [`Self::trim`] make it take, with what is retired and waits to be freed,
    /// and, when the series is dropped, with as much less as it takes. What [`Self::insert`] and its
    /// like return is charged by their caller. The first account stays.
    pub fn adopt(&self, account: &Arc<dyn Account>) {
        if self.account.set(Arc::clone(account)).is_ok() {
            account.charge(self.charged());
        }
    }

    /// What an account is charged with.
    fn charged(&self) -> i64 {
        i64::try_from(self.memory_bytes()).expect("a size fits 63 bits")
    }

    /// How records are made, and how what is replaced is retired.
    fn with<'w>(&'w self, guard: &'w Guard) -> With<'w> {
        (self.included.as_deref(), Retiring::new(guard, self.account.get()))
    }

    /// The hash that [`Self::insert`] and [`Self::prefetch`] take.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Asks for the cache line in which the search for a key begins, before [`Self::insert`].
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        prefetch(self.shard(hash).buckets(guard).first(hash));
    }

    /// Asks for what the key's entry begins with, when the first bucket leads to it.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64, guard: &Guard) {
        prefetch(self.shard(hash).buckets(guard).first_entry(hash));
    }

    /// Inserts a row and returns how many bytes more (or less) the series takes. Readers see the
    /// row at once as far as their [`Bounds`] let them. Rows of one key with equal event time and
    /// equal arrival must not exist.
    ///
    /// # Safety
    ///
    /// The row is not freed as long as the series leads to it, nor before all guards are gone
    /// that there were when it was taken out again, or when the series was dropped.
    pub unsafe fn insert(
        &self,
        (hash, key): (u64, &[u8]),
        event_time: i64,
        row: RowRef<'_>,
        guard: &Guard,
    ) -> i64 {
        let (place, row) = (KeyPlace { hash, key }, KeyRow { event_time, row });
        // SAFETY: the caller's promise.
        unsafe { self.insert_newest(place, row, guard) }
            // SAFETY: as above.
            .unwrap_or_else(|| unsafe { self.insert_late(place, &[row], guard) })
    }

    /// As [`Self::insert`], unless the row is late, older than another of its key: then nothing is
    /// done, and `None` returned. Late rows are best gathered, sorted, and inserted together.
    ///
    /// # Safety
    ///
    /// As of [`Self::insert`].
    pub unsafe fn insert_newest(
        &self,
        KeyPlace { hash, key }: KeyPlace<'_>,
        row: KeyRow<'_>,
        guard: &Guard,
    ) -> Option<i64> {
        let shard = self.shard(hash);
        let with = self.with(guard);
        let mut writer = shard.writer.lock();
        let grown = match shard.find(hash, key, guard) {
            Some((at, entry)) => match entry.insert_newest(row, with) {
                Inserted::Grown(grown) => grown,
                Inserted::Replaced(made) => shard.replace((at, entry), made, (guard, with)),
                Inserted::Late => return None,
            },
            None => {
                let entry = EntryRef::make(key, row.event_time, row.row);
                let bytes = signed(single_footprint(key.len()));
                bytes + shard.add(&mut writer, &self.hasher, (hash, entry), (guard, with))
            }
        };
        shard.grow_by(grown);
        Some(grown)
    }

    /// Inserts rows of one key, in order of event time and arrival, wherever they belong. What they
    /// replace is copied once for all of them. Returns what [`Self::insert`] does.
    ///
    /// # Safety
    ///
    /// As of [`Self::insert`].
    pub unsafe fn insert_late(
        &self,
        place @ KeyPlace { hash, key }: KeyPlace<'_>,
        run: &[KeyRow<'_>],
        guard: &Guard,
    ) -> i64 {
        debug_assert!(run.is_sorted_by_key(KeyRow::position), "a run is in order");
        let Some((first, rest)) = run.split_first() else { return 0 };
        let shard = self.shard(hash);
        let with = self.with(guard);
        let writer = shard.writer.lock();
        let Some((at, entry)) = shard.find(hash, key, guard) else {
            drop(writer);
            // SAFETY: the caller's promise. What is the key's first row is not late.
            let grown = unsafe { self.insert((hash, key), first.event_time, first.row, guard) };
            // SAFETY: as above.
            return grown + unsafe { self.insert_late(place, rest, guard) };
        };
        let grown = match entry.insert_late(run, with) {
            Inserted::Grown(grown) => grown,
            Inserted::Replaced(made) => shard.replace((at, entry), made, (guard, with)),
            Inserted::Late => panic!("late rows go in as late rows"),
        };
        shard.grow_by(grown);
        grown
    }

    /// The rows of a key, newest first; `None` when there is none. No lock, no allocation.
    #[inline]
    pub fn seek<'g>(&'g self, key: &[u8], bounds: Bounds, guard: &'g Guard) -> Option<KeyRows<'g>> {
        let hash = self.hash(key);
        let (_, entry) = self.shard(hash).find(hash, key, guard)?;
        Some(KeyRows::new(entry.parts(), bounds, self.included.as_deref()))
    }

    /// Shows the rows of each key, newest first, as [`Self::seek`] gives them. Takes no lock.
    pub fn for_each_key(&self, bounds: Bounds, mut visit: impl FnMut(KeyRows<'_>)) {
        for shard in &self.shards {
            let guard = crate::pin();
            for (_, entry) in shard.buckets(&guard).entries() {
                // SAFETY: the guard keeps what the buckets lead to from being freed.
                let entry = unsafe { EntryRef::from_raw(entry) };
                visit(KeyRows::new(entry.parts(), bounds, self.included.as_deref()));
            }
        }
    }

    /// Asks what is to become of each row, and removes keys without rows. `start_key` is called
    /// for each key and makes what is asked for each of its rows, newest first: event time and
    /// row. Returns how many rows were removed. Readers go on; their memory is freed after the
    /// last guard of now is gone. Writers of one shard wait at a time.
    ///
    /// # Safety
    ///
    /// A row that another one is moved to is as [`Self::insert`] demands.
    pub unsafe fn retain<'m, K>(&'m self, mut start_key: impl FnMut() -> K) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> Fate<'m>,
    {
        self.retain_where(&mut start_key, |_| true)
    }

    /// Retains rows of the keys whose oldest event time `is_touched`.
    fn retain_where<'m, K>(
        &'m self,
        start_key: &mut impl FnMut() -> K,
        is_touched: impl Fn(i64) -> bool,
    ) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> Fate<'m>,
    {
        let mut removed = 0;
        for shard in &self.shards {
            let (rows, grown) = self.retain_in(shard, start_key, &is_touched);
            removed += rows;
            if let Some(account) = self.account.get() {
                account.charge(grown);
            }
        }
        removed
    }

    /// Removes the rows that these bounds call expired. Looks at one row of each key that has
    /// nothing to remove where retention goes by time alone.
    pub fn trim(&self, bounds: Bounds) -> usize {
        if bounds.keeps_everything() {
            return 0;
        }
        let start_key = || {
            let mut passed = 0;
            move |event_time: i64, row: RowRef<'_>| {
                if !bounds.is_visible(row.arrival()) {
                    return Fate::Keep;
                }
                passed += 1;
                if bounds.is_expired(event_time, passed) { Fate::Remove } else { Fate::Keep }
            }
        };
        let may_expire = |oldest: i64| bounds.counts_rows() || bounds.is_expired(oldest, 1);
        let mut start_key = start_key;
        self.retain_where(&mut start_key, may_expire)
    }

    /// Retains rows in a shard, and returns how many were removed and how many bytes more (or less)
    /// it takes.
    fn retain_in<'m, K>(
        &'m self,
        shard: &Shard,
        start_key: &mut impl FnMut() -> K,
        is_touched: impl Fn(i64) -> bool,
    ) -> (usize, i64)
    where
        K: FnMut(i64, RowRef<'_>) -> Fate<'m>,
    {
        let mut writer = shard.writer.lock();
        let (mut rows_removed, mut grown) = (0, 0);
        let count = shard.buckets(&crate::pin()).len();
        for position in 0..count {
            // A guard for each key lets what was replaced be freed in between.
            let guard = crate::pin();
            let with = self.with(&guard);
            let Some(raw) = shard.buckets(&guard).entry(position) else { continue };
            // SAFETY: only the holder of the lock takes entries out, and frees them by the guard.
            let entry = unsafe { EntryRef::from_raw(raw) };
            if !is_touched(oldest(entry)) {
                continue;
            }
            let before = entry.memory_bytes();
            let retained = entry.retain(&mut start_key(), with);
            rows_removed += retained.removed;
            match retained.rest {
                Rest::Grown(more) => grown += more,
                Rest::One(event_time, row) => {
                    let single = EntryRef::make(entry.key(), event_time, row);
                    grown += shard.replace((position, entry), single, (&guard, with));
                }
                Rest::Nothing => {
                    shard.buckets(&guard).remove(position);
                    writer.keys -= 1;
                    grown -= signed(before);
                    // SAFETY: it was unlinked just now under the lock and is retired once.
                    unsafe { with.1.retire(raw.cast(), EntryRef::free, before) };
                }
            }
        }
        if count > buckets_for(writer.keys * 3) {
            let guard = crate::pin();
            let keys = writer.keys;
            let with = (&guard, self.with(&guard));
            grown += shard.rebuild(&mut writer, &self.hasher, keys, with);
        }
        shard.grow_by(grown);
        (rows_removed, grown)
    }

    /// Bytes of memory, without the rows, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        // Relaxed: a number to report.
        let shards = self.shards.iter().map(|shard| shard.memory_bytes.load(Ordering::Relaxed));
        let taken: i64 = shards.sum();
        u64::try_from(taken).expect("no shard gives back more than it took") + Self::empty_bytes()
    }

    /// Bytes of memory that every series takes beside its buckets.
    fn empty_bytes() -> u64 {
        let bytes = lockstep_host::memory::footprint(SHARD_COUNT * size_of::<Shard>());
        u64::try_from(bytes).expect("a size fits 64 bits")
    }

    /// How many entity keys there are.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().keys).sum()
    }

    /// [`Self::memory_bytes`], counted one by one.
    #[cfg(test)]
    pub(crate) fn memory_bytes_counted(&self) -> u64 {
        let guard = crate::pin();
        let of_shard = |shard: &Shard| {
            let _writer = shard.writer.lock();
            let buckets = shard.buckets(&guard);
            // SAFETY: only the holder of the lock takes entries out.
            let of_entry = |entry| unsafe { EntryRef::from_raw(entry) }.memory_bytes();
            let entries = buckets.entries().map(|(_, entry)| of_entry(entry)).sum::<usize>();
            u64::try_from(buckets.memory_bytes()).unwrap() + u64::try_from(entries).unwrap()
        };
        self.shards.iter().map(of_shard).sum::<u64>() + Self::empty_bytes()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        let mask = u64::try_from(SHARD_COUNT - 1).expect("there are few shards");
        &self.shards[usize::try_from(hash & mask).expect("there are few shards")]
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
        let buckets = Buckets::make(0);
        Self {
            writer: Mutex::new(Writer { keys: 0, used: 0 }),
            buckets: AtomicPtr::new(buckets),
            memory_bytes: AtomicI64::new(0),
        }
    }

    /// The buckets as they are now. The guard is what keeps them from being freed.
    #[inline]
    fn buckets<'g>(&'g self, _guard: &'g Guard) -> Bucket<'g> {
        // Acquire: pairs with the Release in `rebuild`.
        // SAFETY: never null, and freed by the epoch collector after they were replaced.
        unsafe { Bucket::from_raw(self.buckets.load(Ordering::Acquire)) }
    }

    /// The entry of a key and its bucket. The guard is what keeps it from being freed.
    #[inline]
    fn find<'g>(
        &'g self,
        hash: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Option<(usize, EntryRef<'g>)> {
        self.buckets(guard).find(hash, |entry| entry.key() == key)
    }

    /// Adds a key that is not there, and returns how many bytes more the buckets take. Under the
    /// lock.
    fn add(
        &self,
        writer: &mut Writer,
        hasher: &DefaultHashBuilder,
        (hash, entry): (u64, *mut Entry),
        (guard, with): (&Guard, With<'_>),
    ) -> i64 {
        let (mut grown, wanted) = (0, writer.keys + 1);
        // At most three quarters are used, so that a search is short.
        if (writer.used + 1) * 4 > self.buckets(guard).len() * 3 {
            grown = self.rebuild(writer, hasher, wanted, (guard, with));
        }
        self.buckets(guard).fill(hash, entry);
        writer.keys += 1;
        writer.used += 1;
        grown
    }

    /// Puts an entry in the place of another one of the same key, and returns how many bytes more
    /// (or less) it takes with its chunks. The new entry shares no chunk with the old. Under the
    /// lock.
    fn replace(
        &self,
        (at, old): (usize, EntryRef<'_>),
        made: *mut Entry,
        (guard, with): (&Guard, With<'_>),
    ) -> i64 {
        // SAFETY: it was made just now.
        let after = unsafe { EntryRef::from_raw(made) }.memory_bytes();
        let before = old.memory_bytes();
        self.buckets(guard).replace(at, made);
        // SAFETY: it was unlinked just now under the lock and is retired once.
        unsafe { with.1.retire(old.as_raw().cast(), EntryRef::free, before) };
        signed(after) - signed(before)
    }

    /// Replaces the buckets by ones for so many keys, without marks. Under the lock.
    fn rebuild(
        &self,
        writer: &mut Writer,
        hasher: &DefaultHashBuilder,
        wanted: usize,
        (guard, with): (&Guard, With<'_>),
    ) -> i64 {
        let old = self.buckets(guard);
        let (made, new) = Buckets::make_for(wanted);
        for (position, entry) in old.entries() {
            old.prefetch_ahead(position);
            // SAFETY: only the holder of the lock takes entries out.
            let key = unsafe { EntryRef::from_raw(entry) }.key();
            new.fill(hasher.hash_one(key), entry);
        }
        writer.used = writer.keys;
        let grown = new.memory_bytes() - old.memory_bytes();
        // AcqRel: pairs with the Acquire in `buckets`.
        let replaced = self.buckets.swap(made, Ordering::AcqRel);
        // SAFETY: they were unlinked just now under the lock, and own no entries.
        unsafe { with.1.retire(replaced.cast(), Buckets::free, unsigned(old.memory_bytes())) };
        grown
    }

    fn grow_by(&self, bytes: i64) {
        // Relaxed: a number to report.
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn unsigned(bytes: i64) -> usize {
    usize::try_from(bytes).expect("a size is not negative")
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

/// The oldest event time of a key.
fn oldest(entry: EntryRef<'_>) -> i64 {
    match entry.parts() {
        Parts::One(one) => one.event_time(0),
        Parts::Chunk(chunk) => chunk.filled().event_time(0),
        Parts::Spine(spine) => crate::entry::chunk_at(spine, 0).filled().event_time(0),
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        // What the shards lead to is freed when they are dropped, one after the other: a large index
        // gives its memory back as it goes.
        if let Some(account) = self.account.take() {
            for shard in std::mem::take(&mut self.shards) {
                // Relaxed: nobody else is left.
                let bytes = shard.memory_bytes.load(Ordering::Relaxed);
                drop(shard);
                account.charge(-bytes);
            }
            account.charge(-i64::try_from(Self::empty_bytes()).expect("small"));
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        let raw = *self.buckets.get_mut();
        // SAFETY: nobody else can reach the shard, so buckets and entries have one owner: here.
        unsafe {
            for (_, entry) in Bucket::from_raw(raw).entries() {
                EntryRef::free(entry.cast());
            }
            Buckets::free(raw.cast());
        }
    }
}
