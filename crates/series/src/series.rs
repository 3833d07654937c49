//! The series of an index: a hash map from entity keys to entries, which readers walk without a lock.
//!
//! `table` calls it. See rules 1, 5 and 6 of the crate's protocol.

use std::{
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicPtr, AtomicU8, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;
use lockstep_host::sync::Mutex;

use crate::{
    Account, Bounds, Guard, KeyNodes, KeyRow, LevelRows, Levels, Maintained, NodeFold,
    RecordFormat, RowAction, RowRef, SeriesRows, SortedKeys, Swap,
    buckets::{Buckets, BucketsRef, TAG_SHIFT, buckets_for},
    entry::{EntryRef, Inserted, KeyEntry, Remaining, WriteContext, single_footprint},
    guard::Retiring,
    levels::KeyRowsToFold,
    row_ref::prefetch,
    sync::leaf_rows,
};

/// How many writers can work at the same time. A power of two.
pub(crate) const SHARD_COUNT: usize = 64;
const SHARD_BITS: u32 = SHARD_COUNT.trailing_zeros();
const _: () = assert!(SHARD_BITS <= TAG_SHIFT, "the tag has bits that the shard does not");

/// The rows of one index by entity key, newest first. Points to rows; does not own them.
pub struct Series {
    hasher: DefaultHashBuilder,
    shards: Box<[Shard]>,
    /// How records are made, where the index includes columns.
    format: Option<Arc<RecordFormat>>,
    /// The account that is charged with the memory.
    account: OnceLock<Arc<dyn Account>>,
    /// The partial results over its rows.
    levels: Swap<Vec<Arc<Levels>>>,
    /// Which rows they are told of: [`ToldRows`].
    told: AtomicU8,
}

/// The rows that levels are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum ToldRows {
    /// There are no levels.
    None,
    /// Late rows, and that a key has many more.
    Late,
    /// All: some levels are over rows in parts.
    All,
}

/// An entity key and its hash.
#[derive(Debug, Clone, Copy)]
pub struct HashedKey<'k> {
    /// [`Series::hash`] of the key.
    pub hash: u64,
    /// The key's bytes.
    pub key: &'k [u8],
}

/// Aligned so that writers of different shards do not write one cache line.
#[repr(align(64))]
struct Shard {
    /// Held by whoever changes anything of the shard.
    writer: Mutex<ShardWriter>,
    /// Never null. Replaced under the lock; what it pointed to is retired.
    buckets: AtomicPtr<Buckets>,
    /// Bytes of buckets, entries, directories and chunks. Written under the lock.
    memory_bytes: AtomicI64,
}

/// The counts of a shard that only writers need.
struct ShardWriter {
    /// The number of keys.
    keys: usize,
    /// The number of buckets that are not empty: keys, and marks of removed keys.
    used: usize,
}

impl Series {
    /// Makes an empty series.
    pub fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Shard::new()).collect();
        Self {
            hasher: DefaultHashBuilder::default(),
            shards,
            format: None,
            account: OnceLock::new(),
            levels: Swap::new(Vec::new(), |_| 0),
            told: AtomicU8::new(ToldRows::None as u8),
        }
    }

    /// Makes an empty series that takes the place of this one: keys have the same hashes, and levels over rows in
    /// parts go on in it. Nobody inserts rows or changes the levels meanwhile.
    #[must_use]
    pub fn successor(&self) -> Self {
        let mut series = Self::new();
        series.hasher = self.hasher.clone();
        series.format.clone_from(&self.format);
        let guard = crate::pin();
        let goes_on = |levels: &&Arc<Levels>| levels.rows() == LevelRows::Parts;
        let levels = self.all_levels(&guard).iter().filter(goes_on).cloned();
        series.change_levels(|all| all.extend(levels));
        series
    }

    /// Makes an empty series that stores a record beside each slot.
    pub fn with_records(format: Arc<RecordFormat>) -> Self {
        let mut series = Self::new();
        series.format = Some(format);
        series
    }

    /// Charges an account with the memory that the series takes now; from here on also with what
    /// [`Self::retain`] and [`Self::trim`] make it take and with what is retired and waits to be
    /// freed, and discharges it when the series is dropped. What the insert methods return is charged
    /// by their caller. The first account stays.
    pub fn adopt(&self, account: &Arc<dyn Account>) {
        if self.account.set(Arc::clone(account)).is_ok() {
            account.charge(self.charged());
            self.all_levels(&crate::pin()).iter().for_each(|levels| levels.adopt(account));
        }
    }

    /// Returns what an account is charged with.
    fn charged(&self) -> i64 {
        i64::try_from(self.memory_bytes()).expect("a size fits 63 bits")
    }

    /// Returns the context of a change.
    fn context<'w>(&'w self, guard: &'w Guard) -> WriteContext<'w> {
        let retiring = Retiring::new(guard, self.account.get());
        WriteContext { format: self.format.as_deref(), retiring }
    }

    /// Hashes a key, for [`HashedKey`] and [`Self::prefetch`].
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Prefetches the home bucket of `hash`, before [`Self::insert`].
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        prefetch(self.shard(hash).buckets(guard).home_address(hash));
    }

    /// Prefetches the entry for `hash` if one of the first buckets of its probe leads to it.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64, guard: &Guard) {
        prefetch(self.shard(hash).buckets(guard).first_probed_entry(hash));
    }

    /// Inserts a row and returns how many bytes more (or less) the series takes. Readers see the
    /// row at once if it is within their [`Bounds`]. Two rows of one key must not have the same event
    /// time and arrival.
    ///
    /// # Safety
    ///
    /// The row is not freed as long as the series points to it, nor before all guards are gone
    /// that existed when it was removed, or when the series was dropped.
    pub unsafe fn insert(&self, key: HashedKey<'_>, row: KeyRow<'_>, guard: &Guard) -> i64 {
        // SAFETY: the caller's promise.
        unsafe { self.insert_newest(key, row, guard) }
            // SAFETY: as above.
            .unwrap_or_else(|| unsafe { self.insert_late(key, &[row], guard) })
    }

    /// Inserts a row as [`Self::insert`] does, unless it is late, older than another of its key: then
    /// changes nothing and returns `None`. Late rows are best collected, sorted, and inserted together.
    ///
    /// # Safety
    ///
    /// As of [`Self::insert`].
    pub unsafe fn insert_newest(
        &self,
        HashedKey { hash, key }: HashedKey<'_>,
        row: KeyRow<'_>,
        guard: &Guard,
    ) -> Option<i64> {
        let shard = self.shard(hash);
        debug_assert_eq!(hash, self.hash(key), "the hash is the key's");
        let context = self.context(guard);
        let mut writer = shard.writer.lock();
        let grown = match shard.find(hash, key, guard) {
            Some((at, entry)) => match entry.insert_newest(row, context) {
                Inserted::Grown(grown) => grown,
                Inserted::Replaced(made) => shard.replace(at, entry, made, context),
                Inserted::Late => return None,
            },
            None => {
                let entry = EntryRef::make(key, row.event_time, row.row);
                let bytes = signed(single_footprint(key.len()));
                bytes + shard.add(&mut writer, &self.hasher, hash, entry, context)
            }
        };
        shard.grow_by(grown);
        let told = self.told();
        if told > u8::from(grown == 0) {
            self.note_inserted(hash, key, row.event_time, grown, guard);
        }
        Some(grown)
    }

    /// Inserts rows of one key, in order of event time and arrival, wherever they belong. Each chunk
    /// that receives some is copied once. Returns what [`Self::insert`] does.
    ///
    /// # Safety
    ///
    /// As of [`Self::insert`].
    pub unsafe fn insert_late(
        &self,
        hashed_key @ HashedKey { hash, key }: HashedKey<'_>,
        run: &[KeyRow<'_>],
        guard: &Guard,
    ) -> i64 {
        debug_assert!(run.is_sorted_by_key(KeyRow::position), "a run is in order");
        let Some((first, rest)) = run.split_first() else { return 0 };
        let shard = self.shard(hash);
        let context = self.context(guard);
        let writer = shard.writer.lock();
        let Some((at, entry)) = shard.find(hash, key, guard) else {
            drop(writer);
            // SAFETY: the caller's promise. The key's first row is not late.
            let grown = unsafe { self.insert(hashed_key, *first, guard) };
            // SAFETY: as above.
            return grown + unsafe { self.insert_late(hashed_key, rest, guard) };
        };
        let grown = match entry.insert_late(run, context) {
            Inserted::Grown(grown) => grown,
            Inserted::Replaced(made) => shard.replace(at, entry, made, context),
            Inserted::Late => panic!("rows that are inserted as late ones are not refused"),
        };
        shard.grow_by(grown);
        if self.has_levels() {
            for levels in self.all_levels(guard) {
                levels.note_rows(hash, key, run.iter().map(|row| row.event_time), guard);
            }
            self.note_growth(hash, key, guard);
        }
        drop(writer);
        grown
    }

    /// Returns the rows of a key, newest first; `None` when there is none. Takes no lock and allocates
    /// nothing.
    #[inline]
    pub fn seek<'g>(
        &'g self,
        key: &[u8],
        bounds: Bounds,
        guard: &'g Guard,
    ) -> Option<SeriesRows<'g>> {
        let hash = self.hash(key);
        let (_, entry) = self.shard(hash).find(hash, key, guard)?;
        Some(SeriesRows::new(entry.rows(), bounds, self.format.as_deref()))
    }

    /// Returns the keys in the order of their bytes, those that it has when the call begins and maybe later
    /// ones. Takes no lock.
    pub fn sorted_keys(&self) -> SortedKeys {
        let mut keys = SortedKeys::default();
        for shard in &self.shards {
            let guard = crate::pin();
            for (_, entry) in shard.buckets(&guard).entries() {
                // SAFETY: the guard keeps what the buckets lead to from being freed.
                keys.push(unsafe { EntryRef::from_raw(entry) }.key());
            }
        }
        keys.sort();
        keys
    }

    /// Calls `visit` with the rows of each key, newest first, as [`Self::seek`] returns them. Takes no
    /// lock.
    pub fn for_each_key(&self, bounds: Bounds, mut visit: impl FnMut(SeriesRows<'_>)) {
        for shard in &self.shards {
            let guard = crate::pin();
            for (_, entry) in shard.buckets(&guard).entries() {
                // SAFETY: the guard keeps what the buckets lead to from being freed.
                let entry = unsafe { EntryRef::from_raw(entry) };
                visit(SeriesRows::new(entry.rows(), bounds, self.format.as_deref()));
            }
        }
    }

    /// Keeps, removes or moves each row, and removes keys without rows. `start_key` is called for each
    /// key and returns the function that decides on its rows, which is called with each row and its
    /// event time, newest first. Returns how many rows were removed. Readers are not blocked; the
    /// memory is freed when the guards that exist now are gone. Writers wait for one shard at a time.
    ///
    /// # Safety
    ///
    /// A row to which another one is moved fulfils what [`Self::insert`] demands.
    pub unsafe fn retain<'m, K>(&'m self, mut start_key: impl FnMut() -> K) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> RowAction<'m>,
    {
        self.retain_where(&mut start_key, |_| true)
    }

    /// Retains rows of the keys for whose oldest event time `is_touched` holds.
    fn retain_where<'m, K>(
        &'m self,
        start_key: &mut impl FnMut() -> K,
        is_touched: impl Fn(i64) -> bool,
    ) -> usize
    where
        K: FnMut(i64, RowRef<'_>) -> RowAction<'m>,
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

    /// Removes the rows that are expired by these bounds. Where retention goes by time alone, one row
    /// of each key without expired rows is read.
    pub fn trim(&self, bounds: Bounds) -> usize {
        if bounds.keeps_everything() {
            return 0;
        }
        let start_key = || {
            let mut passed = 0;
            move |event_time: i64, row: RowRef<'_>| {
                if !bounds.is_visible(row.arrival()) {
                    return RowAction::Keep;
                }
                passed += 1;
                if bounds.is_expired(event_time, passed) {
                    RowAction::Remove
                } else {
                    RowAction::Keep
                }
            }
        };
        let may_expire = |oldest: i64| bounds.counts_rows() || bounds.is_expired(oldest, 1);
        let mut start_key = start_key;
        self.retain_where(&mut start_key, may_expire)
    }

    /// Retains rows of a shard. Returns how many were removed and how many bytes more (or less) it
    /// takes.
    fn retain_in<'m, K>(
        &'m self,
        shard: &Shard,
        start_key: &mut impl FnMut() -> K,
        is_touched: impl Fn(i64) -> bool,
    ) -> (usize, i64)
    where
        K: FnMut(i64, RowRef<'_>) -> RowAction<'m>,
    {
        let mut writer = shard.writer.lock();
        let (mut rows_removed, mut grown) = (0, 0);
        let count = shard.buckets(&crate::pin()).len();
        for position in 0..count {
            // A guard for each key lets what was replaced be freed in between.
            let guard = crate::pin();
            let context = self.context(&guard);
            let Some(raw) = shard.buckets(&guard).entry(position) else { continue };
            // SAFETY: only the holder of the lock removes entries, and frees them by way of the guard.
            let entry = unsafe { EntryRef::from_raw(raw) };
            if !is_touched(entry.oldest_event_time()) {
                continue;
            }
            let before = entry.memory_bytes();
            let (mut decide, mut newest_removed) = (start_key(), None);
            let mut action = |event_time: i64, row: RowRef<'_>| {
                let action = decide(event_time, row);
                if matches!(action, RowAction::Remove) {
                    newest_removed = newest_removed.max(Some(event_time));
                }
                action
            };
            let retained = entry.retain(&mut action, context);
            rows_removed += retained.removed;
            let removed = newest_removed.filter(|_| self.has_levels());
            // The key is part of the entry, which may be retired below.
            let key = removed.map(|_| entry.key().to_vec());
            match retained.remaining {
                Remaining::Grown(more) => grown += more,
                Remaining::One(event_time, row) => {
                    let single = EntryRef::make(entry.key(), event_time, row);
                    grown += shard.replace(position, entry, single, context);
                }
                Remaining::Nothing => {
                    shard.buckets(&guard).remove(position);
                    writer.keys -= 1;
                    grown -= signed(before);
                    // SAFETY: it was unlinked just now under the lock and is retired once.
                    unsafe { context.retiring.retire(raw.cast(), EntryRef::free, before) };
                }
            }
            if let Some((key, newest)) = key.zip(removed) {
                let hash = self.hash(&key);
                for levels in self.all_levels(&guard) {
                    levels.note_removed(hash, &key, newest, &guard);
                }
            }
        }
        if count > buckets_for(writer.keys * 3) {
            let guard = crate::pin();
            let keys = writer.keys;
            grown += shard.rebuild(&mut writer, &self.hasher, keys, self.context(&guard));
        }
        shard.grow_by(grown);
        (rows_removed, grown)
    }

    /// Registers levels. Nothing is made of the rows that are there before [`Self::maintain`].
    pub fn add_levels(&self, levels: Arc<Levels>) {
        if let Some(account) = self.account.get() {
            levels.adopt(account);
        }
        self.change_levels(|all| all.push(levels));
    }

    /// Removes the levels with this number; readers that have them finish with them.
    pub fn remove_levels(&self, id: u64) {
        self.change_levels(|all| {
            all.iter().filter(|levels| levels.id() == id).for_each(|levels| levels.close());
            all.retain(|levels| levels.id() != id);
        });
    }

    fn change_levels(&self, change: impl FnOnce(&mut Vec<Arc<Levels>>)) {
        // One lock for all who change them: the first shard's.
        let _writer = self.shards[0].writer.lock();
        let guard = crate::pin();
        let mut all = self.all_levels(&guard).to_vec();
        change(&mut all);
        let told = all.iter().map(|levels| match levels.rows() {
            LevelRows::Series => ToldRows::Late,
            LevelRows::Parts => ToldRows::All,
        });
        let told = told.max().unwrap_or(ToldRows::None);
        // Relaxed: whoever has to know the levels takes a shard's lock after `maintain` did.
        self.told.store(told as u8, Ordering::Relaxed);
        self.levels.replace(all, &guard);
    }

    /// Returns the levels that are registered.
    pub fn all_levels<'g>(&'g self, guard: &'g Guard) -> &'g [Arc<Levels>] {
        self.levels.load(guard)
    }

    /// Returns the nodes of a key in the levels with this number; `None` when there are none. `key` is
    /// called where any key has some.
    #[inline]
    pub fn nodes<'g>(
        &'g self,
        id: u64,
        key: impl FnOnce() -> &'g [u8],
        guard: &'g Guard,
    ) -> Option<KeyNodes<'g>> {
        let levels = self.all_levels(guard).iter().find(|levels| levels.id() == id)?;
        levels.nodes(|key| self.hash(key), key, guard)
    }

    /// Makes nodes of one key that waits for it, of the rows of the series. Returns `None` when none waits.
    pub fn maintain(&self, levels: &Levels, fold: &mut dyn NodeFold) -> Option<Maintained> {
        debug_assert_eq!(levels.rows(), LevelRows::Series, "the series has the rows");
        let wanted = levels.take_wanted(|| self.long_keys());
        wanted.keys().iter().for_each(|key| self.add_level_key(levels, key));
        drop(wanted);
        let guard = crate::pin();
        let work = levels.next_key(&guard)?;
        let (hash, key) = (self.hash(work.key()), work.key());
        let entry = self.shard(hash).find(hash, key, &guard).map(|(_, entry)| entry);
        let format = self.format.as_deref();
        let rows = entry.map(|entry| KeyRowsToFold { rows: entry.rows(), format });
        Some(work.make(rows, fold, &guard))
    }

    /// Returns the keys with so many rows that nodes are made of them. Readers and writers go on.
    pub fn long_keys(&self) -> Vec<Box<[u8]>> {
        let mut long = Vec::new();
        for shard in &self.shards {
            let guard = crate::pin();
            // SAFETY: the guard keeps what the buckets lead to from being freed.
            let entries = shard
                .buckets(&guard)
                .entries()
                .map(|(_, entry)| unsafe { EntryRef::from_raw(entry) });
            long.extend(entries.filter(|entry| is_long(*entry)).map(|entry| entry.key().into()));
        }
        long
    }

    /// Makes the levels of a key. See rule 7 of `levels`.
    pub fn add_level_key(&self, levels: &Levels, key: &[u8]) {
        let (hash, guard) = (self.hash(key), crate::pin());
        let _writer = self.shard(hash).writer.lock();
        levels.add_key(hash, key, &guard);
    }

    #[inline]
    fn has_levels(&self) -> bool {
        self.told() != ToldRows::None as u8
    }

    /// Returns the [`ToldRows`].
    #[inline]
    fn told(&self) -> u8 {
        // Relaxed: rule 7 of `levels`.
        self.told.load(Ordering::Relaxed)
    }

    /// Tells the levels of a row that is not late in this series, which has grown by so many bytes. Under the
    /// shard's lock.
    #[cold]
    fn note_inserted(&self, hash: u64, key: &[u8], event_time: i64, grown: i64, guard: &Guard) {
        let in_parts = |levels: &&Arc<Levels>| levels.rows() == LevelRows::Parts;
        for levels in self.all_levels(guard).iter().filter(in_parts) {
            levels.note_rows(hash, key, std::iter::once(event_time), guard);
        }
        if grown != 0 {
            self.note_growth(hash, key, guard);
        }
    }

    /// Tells the levels that a key has more rows. Under the shard's lock.
    #[cold]
    fn note_growth(&self, hash: u64, key: &[u8], guard: &Guard) {
        let found = self.shard(hash).find(hash, key, guard);
        if found.is_some_and(|(_, entry)| is_long(entry)) {
            for levels in self.all_levels(guard) {
                levels.note_growth(hash, key, guard);
            }
        }
    }

    /// Returns the bytes of memory, without the rows, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        // Relaxed: a number to report.
        let shards = self.shards.iter().map(|shard| shard.memory_bytes.load(Ordering::Relaxed));
        let taken: i64 = shards.sum();
        u64::try_from(taken).expect("no shard returns more than it reserved") + Self::empty_bytes()
    }

    /// Returns the bytes of memory that every series takes beside its buckets.
    fn empty_bytes() -> u64 {
        let bytes = lockstep_host::memory::footprint(SHARD_COUNT * size_of::<Shard>());
        u64::try_from(bytes).expect("a size fits 64 bits")
    }

    /// Returns the number of entity keys.
    pub fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.writer.lock().keys).sum()
    }

    /// Computes [`Self::memory_bytes`] from each entry.
    #[cfg(test)]
    pub(crate) fn memory_bytes_counted(&self) -> u64 {
        let guard = crate::pin();
        let of_shard = |shard: &Shard| {
            let _writer = shard.writer.lock();
            let buckets = shard.buckets(&guard);
            // SAFETY: only the holder of the lock removes entries.
            let of_entry = |entry| unsafe { EntryRef::from_raw(entry) }.memory_bytes();
            let entries = buckets.entries().map(|(_, entry)| of_entry(entry)).sum::<usize>();
            u64::try_from(buckets.memory_bytes()).unwrap() + u64::try_from(entries).unwrap()
        };
        self.shards.iter().map(of_shard).sum::<u64>() + Self::empty_bytes()
    }

    /// Returns the shard of a hash.
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
            writer: Mutex::new(ShardWriter { keys: 0, used: 0 }),
            buckets: AtomicPtr::new(buckets),
            memory_bytes: AtomicI64::new(0),
        }
    }

    /// Returns the buckets as they are now. The guard keeps them from being freed.
    #[inline]
    fn buckets<'g>(&'g self, _guard: &'g Guard) -> BucketsRef<'g> {
        // Acquire: pairs with the Release in `rebuild`.
        // SAFETY: never null, and freed by the epoch collector after they were replaced.
        unsafe { BucketsRef::from_raw(self.buckets.load(Ordering::Acquire)) }
    }

    /// Finds the entry of a key and its bucket. The guard keeps it from being freed.
    #[inline]
    fn find<'g>(
        &'g self,
        hash: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Option<(usize, EntryRef<'g>)> {
        self.buckets(guard).find(hash, |entry| entry.key() == key)
    }

    /// Adds a key that is not there. Returns how many bytes more the buckets take. Under the lock.
    fn add(
        &self,
        writer: &mut ShardWriter,
        hasher: &DefaultHashBuilder,
        hash: u64,
        entry: *mut KeyEntry,
        context: WriteContext<'_>,
    ) -> i64 {
        let (mut grown, wanted) = (0, writer.keys + 1);
        let guard = context.retiring.guard();
        // At most three quarters are used, so that a probe is short.
        if (writer.used + 1) * 4 > self.buckets(guard).len() * 3 {
            grown = self.rebuild(writer, hasher, wanted, context);
        }
        self.buckets(guard).fill(hash, entry);
        writer.keys += 1;
        writer.used += 1;
        assert!(writer.used < self.buckets(guard).len(), "one bucket is empty at least");
        grown
    }

    /// Replaces an entry by another one of the same key, with which it shares no chunk. Returns how
    /// many bytes more (or less) the new one takes with its chunks. Under the lock.
    fn replace(
        &self,
        at: usize,
        old: EntryRef<'_>,
        made: *mut KeyEntry,
        context: WriteContext<'_>,
    ) -> i64 {
        // SAFETY: it was made just now.
        let new = unsafe { EntryRef::from_raw(made) };
        debug_assert_eq!(new.key(), old.key(), "an entry is replaced by one of its key");
        let (before, after) = (old.memory_bytes(), new.memory_bytes());
        self.buckets(context.retiring.guard()).replace(at, made);
        // SAFETY: it was unlinked just now under the lock and is retired once.
        unsafe { context.retiring.retire(old.as_raw().cast(), EntryRef::free, before) };
        signed(after) - signed(before)
    }

    /// Replaces the buckets by ones for so many keys, without marks. Returns how many bytes more (or
    /// less) they take. Under the lock.
    fn rebuild(
        &self,
        writer: &mut ShardWriter,
        hasher: &DefaultHashBuilder,
        wanted: usize,
        context: WriteContext<'_>,
    ) -> i64 {
        assert!(wanted >= writer.keys, "there is a bucket for each key");
        let old = self.buckets(context.retiring.guard());
        let (made, new) = Buckets::make_for_keys(wanted);
        for (position, entry) in old.entries() {
            old.prefetch_ahead(position);
            // SAFETY: only the holder of the lock removes entries.
            let key = unsafe { EntryRef::from_raw(entry) }.key();
            new.fill(hasher.hash_one(key), entry);
        }
        writer.used = writer.keys;
        let grown = new.memory_bytes() - old.memory_bytes();
        // AcqRel: pairs with the Acquire in `buckets`.
        let replaced = self.buckets.swap(made, Ordering::AcqRel);
        let bytes = unsigned(old.memory_bytes());
        // SAFETY: they were unlinked just now under the lock, and own no entries.
        unsafe { context.retiring.retire(replaced.cast(), Buckets::free, bytes) };
        grown
    }

    /// Adds to the bytes that the shard takes.
    fn grow_by(&self, bytes: i64) {
        // Relaxed: a number to report.
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Returns whether a key has so many rows that nodes of them are worth their memory.
fn is_long(entry: EntryRef<'_>) -> bool {
    let rows = entry.rows();
    rows.chunk_count() > 1 || rows.view(0).len() >= leaf_rows()
}

/// Converts a signed size.
fn unsigned(bytes: i64) -> usize {
    usize::try_from(bytes).expect("a size is not negative")
}

/// Converts a size to a signed one.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a size fits 63 bits")
}

impl Drop for Series {
    fn drop(&mut self) {
        // Each shard frees what it points to when it is dropped: the memory of a large index is given
        // back shard by shard.
        if let Some(account) = self.account.take() {
            for shard in std::mem::take(&mut self.shards) {
                // Relaxed: no other thread is left.
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
        // SAFETY: no other thread can reach the shard, so buckets and entries have one owner: here.
        unsafe {
            for (_, entry) in BucketsRef::from_raw(raw).entries() {
                EntryRef::free(entry.cast());
            }
            Buckets::free(raw.cast());
        }
    }
}
