//! The buckets of a shard's hash table: open addressing with linear probing, one word for each key.
//!
//! `series` fills and replaces them under the shard's lock; readers probe them under a guard. See
//! rules 1 and 5 of the crate's protocol.
//!
//! A bucket is empty (null), or the address of an entry with 16 bits of the key's hash above it,
//! so that a probe touches hardly any entry but its own; or the mark of a removed entry, which
//! stays until the buckets are replaced. At least one bucket is always empty.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::atomic::{AtomicPtr, Ordering},
};

use lockstep_host::memory::{footprint, usable_size};

use crate::{
    entry::{EntryRef, KeyEntry},
    row_ref::{ADDRESS_BITS, prefetch},
};

/// Where the tag begins within a hash: above the bits that pick the shard. The highest bits pick the
/// bucket.
pub(crate) const TAG_SHIFT: u32 = 8;
/// How far ahead of a walk over all buckets entries are prefetched.
const PREFETCH_DISTANCE: usize = 16;

/// The number of buckets, which precedes them in one allocation.
#[repr(C)]
pub(crate) struct Buckets {
    len: usize,
}

/// Its address marks a removed entry; it is never read through.
static REMOVED: u64 = 0;

/// Returns the mark of a removed entry.
fn removed() -> *mut KeyEntry {
    ptr::from_ref(&REMOVED).cast_mut().cast()
}

/// A reference to the buckets of a shard. Whoever has one holds a guard or the lock for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct BucketsRef<'a> {
    buckets: NonNull<Buckets>,
    _buckets: PhantomData<&'a Buckets>,
}

/// Returns the layout of so many buckets.
fn layout(len: usize) -> Layout {
    Layout::from_size_align(size_of::<Buckets>() + len * BUCKET_SIZE, align_of::<Buckets>())
        .expect("buckets are fewer than half of the address space")
}

const BUCKET_SIZE: usize = size_of::<*mut KeyEntry>();

/// Returns how many buckets are made for so many keys: half of them stay empty, and none of the
/// allocator's memory is wasted.
pub(crate) const fn buckets_for(keys: usize) -> usize {
    if keys == 0 {
        return 0;
    }
    (usable_size(size_of::<Buckets>() + keys * 2 * BUCKET_SIZE) - size_of::<Buckets>())
        / BUCKET_SIZE
}

/// Returns the bytes of memory that so many buckets take.
pub(crate) const fn buckets_footprint(len: usize) -> usize {
    if len == 0 { 0 } else { footprint(size_of::<Buckets>() + len * BUCKET_SIZE) }
}

/// No buckets, and no allocation.
static NONE: Buckets = Buckets { len: 0 };

impl Buckets {
    /// Makes empty buckets.
    pub(crate) fn make(len: usize) -> *mut Self {
        if len == 0 {
            return ptr::from_ref(&NONE).cast_mut();
        }
        let layout = layout(len);
        // SAFETY: the layout is not empty.
        let allocated = unsafe { alloc_zeroed(layout) }.cast::<Self>();
        let Some(buckets) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        // SAFETY: the allocation holds the length, for which it is aligned; then null pointers.
        unsafe { buckets.write(Self { len }) };
        buckets.as_ptr()
    }

    /// Makes empty buckets for so many keys.
    pub(crate) fn make_for_keys<'a>(keys: usize) -> (*mut Self, BucketsRef<'a>) {
        let made = Self::make(buckets_for(keys));
        // SAFETY: they were made just now.
        (made, unsafe { BucketsRef::from_raw(made) })
    }

    /// Frees buckets, not the entries.
    ///
    /// # Safety
    ///
    /// They are from [`Self::make`]; no other thread can reach them, and they are freed once.
    pub(crate) unsafe fn free(buckets: *mut u8) {
        let buckets = buckets.cast::<Self>();
        // SAFETY: the caller's promise.
        let len = unsafe { &*buckets }.len;
        if len > 0 {
            // SAFETY: `make` has allocated with the same layout.
            unsafe { dealloc(buckets.cast(), layout(len)) };
        }
    }
}

impl<'a> BucketsRef<'a> {
    /// Refers to buckets that [`Buckets::make`] gave away.
    ///
    /// # Safety
    ///
    /// They are not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(buckets: *mut Buckets) -> Self {
        // SAFETY: `make` gives no null.
        Self { buckets: unsafe { NonNull::new_unchecked(buckets) }, _buckets: PhantomData }
    }

    /// Returns the number of buckets.
    #[inline]
    pub(crate) fn len(self) -> usize {
        // SAFETY: whoever has buckets keeps them from being freed.
        unsafe { self.buckets.as_ref() }.len
    }

    /// Returns the bytes of memory that they take.
    pub(crate) fn memory_bytes(self) -> i64 {
        i64::try_from(buckets_footprint(self.len())).expect("a size fits 63 bits")
    }

    /// Finds the entry of a hash for which `is_it` holds, and its bucket.
    #[inline]
    pub(crate) fn find(
        self,
        hash: u64,
        is_it: impl Fn(EntryRef<'a>) -> bool,
    ) -> Option<(usize, EntryRef<'a>)> {
        if self.len() == 0 {
            return None;
        }
        let tag = tag(hash);
        let mut at = self.home(hash);
        loop {
            // Acquire: pairs with the Release in `fill` and `replace`.
            let bucket = self.bucket(at).load(Ordering::Acquire);
            if bucket.is_null() {
                return None;
            }
            if bucket.addr() >> ADDRESS_BITS == tag && bucket != removed() {
                // SAFETY: an entry is freed by way of the guard after it was taken out.
                let entry = unsafe { EntryRef::from_raw(untagged(bucket)) };
                if is_it(entry) {
                    return Some((at, entry));
                }
            }
            at = self.after(at);
        }
    }

    /// Returns the address of the hash's home bucket, to be prefetched.
    #[inline]
    pub(crate) fn home_address(self, hash: u64) -> *const u8 {
        if self.len() == 0 {
            return self.buckets.as_ptr().cast_const().cast();
        }
        ptr::from_ref(self.bucket(self.home(hash))).cast()
    }

    /// Returns the address of the entry that a probe for the hash meets first, to be prefetched; null
    /// when it is not within the first few buckets.
    #[inline]
    pub(crate) fn first_probed_entry(self, hash: u64) -> *const u8 {
        if self.len() == 0 {
            return ptr::null();
        }
        let tag = tag(hash);
        let mut at = self.home(hash);
        for _ in 0..4 {
            // Relaxed: nothing is read through it.
            let bucket = self.bucket(at).load(Ordering::Relaxed);
            if bucket.is_null() || bucket.addr() >> ADDRESS_BITS == tag {
                return untagged(bucket).cast_const().cast();
            }
            at = self.after(at);
        }
        ptr::null()
    }

    /// Returns the entry in a bucket. Under the lock, or under a guard by a reader that walks over all.
    #[inline]
    pub(crate) fn entry(self, position: usize) -> Option<*mut KeyEntry> {
        // Acquire: pairs with the Release in `fill` and `replace`, for readers without the lock.
        let bucket = self.bucket(position).load(Ordering::Acquire);
        (!bucket.is_null() && bucket != removed()).then(|| untagged(bucket))
    }

    /// Returns all entries and their positions. As of [`Self::entry`]: without the lock a key that is removed
    /// and inserted again meanwhile may be met twice.
    pub(crate) fn entries(self) -> impl Iterator<Item = (usize, *mut KeyEntry)> {
        (0..self.len()).filter_map(move |at| Some((at, self.entry(at)?)))
    }

    /// Prefetches the entry that a walk over all buckets will meet.
    #[inline]
    pub(crate) fn prefetch_ahead(self, position: usize) {
        let ahead = position + PREFETCH_DISTANCE;
        if ahead < self.len()
            && let Some(entry) = self.entry(ahead)
        {
            prefetch(entry.cast_const());
        }
    }

    /// Stores an entry in the first empty bucket of its hash. Under the lock.
    pub(crate) fn fill(self, hash: u64, entry: *mut KeyEntry) {
        let tag = tag(hash);
        assert!(entry.addr() >> ADDRESS_BITS == 0, "addresses leave bits for a tag");
        let mut at = self.home(hash);
        // Relaxed: only the holder of the lock writes.
        while !self.bucket(at).load(Ordering::Relaxed).is_null() {
            at = self.after(at);
        }
        let tagged = entry.map_addr(|address| address | tag << ADDRESS_BITS);
        // Release: pairs with the Acquire in `find`.
        self.bucket(at).store(tagged, Ordering::Release);
    }

    /// Replaces an entry by another one of the same key. Under the lock.
    pub(crate) fn replace(self, position: usize, entry: *mut KeyEntry) {
        debug_assert!(self.entry(position).is_some(), "an entry is replaced");
        assert!(entry.addr() >> ADDRESS_BITS == 0, "addresses leave bits for a tag");
        let bucket = self.bucket(position);
        // Relaxed: only the holder of the lock writes.
        let tag = bucket.load(Ordering::Relaxed).addr() >> ADDRESS_BITS;
        let tagged = entry.map_addr(|address| address | tag << ADDRESS_BITS);
        // Release: pairs with the Acquire in `find`.
        bucket.store(tagged, Ordering::Release);
    }

    /// Marks an entry as removed. Under the lock.
    pub(crate) fn remove(self, position: usize) {
        debug_assert!(self.entry(position).is_some(), "an entry is removed once");
        // Relaxed: readers need nothing of what the mark says, only not the entry.
        self.bucket(position).store(removed(), Ordering::Relaxed);
    }

    /// Returns the word of a bucket.
    #[inline]
    fn bucket(self, at: usize) -> &'a AtomicPtr<KeyEntry> {
        debug_assert!(at < self.len(), "positions are below the length");
        // SAFETY: so many pointers follow the length in one allocation, which is not freed during 'a.
        unsafe { &*self.buckets.as_ptr().add(1).cast::<AtomicPtr<KeyEntry>>().add(at) }
    }

    /// Returns the home bucket of a hash: the hash as a fraction of the length.
    #[inline]
    fn home(self, hash: u64) -> usize {
        let len = u128::try_from(self.len()).expect("a length fits 128 bits");
        usize::try_from((u128::from(hash) * len) >> 64).expect("less than the length")
    }

    /// Returns the position that a probe visits next.
    #[inline]
    fn after(self, at: usize) -> usize {
        if at + 1 == self.len() { 0 } else { at + 1 }
    }
}

/// Returns the 16 bits of a hash that are stored above the address.
#[inline]
fn tag(hash: u64) -> usize {
    usize::try_from(hash >> TAG_SHIFT & 0xffff).expect("it has 16 bits")
}

/// Returns an entry's address without the tag.
#[inline]
fn untagged(bucket: *mut KeyEntry) -> *mut KeyEntry {
    bucket.map_addr(|address| address & ((1 << ADDRESS_BITS) - 1))
}

const _: () = assert!(size_of::<AtomicPtr<KeyEntry>>() == BUCKET_SIZE, "zeros are empty buckets");
const _: () = assert!(align_of::<Buckets>() == BUCKET_SIZE, "buckets follow the length aligned");
