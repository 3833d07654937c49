//! The queue of garbage that could not be freed at once.
//!
//! A thread that has replaced something frees it itself when its guards are gone, if no other thread
//! reads (`guard`). What may still be read, and what takes long to free, is handed over to this queue
//! and freed by a background thread, which is started when there is something to free and ends when
//! there has been nothing for a while. Readers never free anything.
//!
//! Where there is no such thread (under Miri, in a process that was forked, when the machine gives
//! none) nothing is lost: threads that write free small garbage when too much of it waits, and
//! [`reclaim`] frees everything. No lock is held here that a forked process could find locked for
//! ever: the owner of the list of pending batches is identified by its process.

use std::{
    cell::UnsafeCell,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    },
};

use crate::guard::EPOCHS;

/// An account that is charged with memory.
pub trait Account: Send + Sync {
    /// Charges so many bytes more (or less).
    fn charge(&self, bytes: i64);
}

/// An object of more bytes is not freed by the thread that has retired it: with so many, freeing takes
/// some microseconds.
pub(crate) const FREED_AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// When so many bytes of small garbage wait, threads that write help to free it.
const WAITING_BYTES_MAX: u64 = 16 << 20;
/// How long the background thread waits for readers before it looks again.
const READERS_WAIT_MS: u32 = 2;
/// How long the background thread waits for garbage before it looks again, and how often before it
/// ends.
const IDLE_WAIT_MS: u32 = 5;
const IDLE_WAITS_MAX: u32 = 200;

/// An object to free, and the function that frees it.
pub(crate) struct Garbage {
    pub(crate) pointer: *mut u8,
    pub(crate) free: unsafe fn(*mut u8),
}

/// Garbage that is charged to one account.
pub(crate) struct GarbageBatch {
    pub(crate) account: Option<Arc<dyn Account>>,
    garbage: Vec<Garbage>,
    /// The bytes with which the account is charged.
    pub(crate) bytes: u64,
    /// Whether it takes long to free it.
    pub(crate) is_large: bool,
    /// The epoch in which it could last be reached.
    epoch: u64,
    /// The batch below it in the stack.
    next: *mut Self,
}

// SAFETY: garbage cannot be reached any more, and may be freed on any thread; `next` is touched by
// whoever has the stack.
unsafe impl Send for GarbageBatch {}

impl GarbageBatch {
    /// Makes an empty batch in a buffer.
    pub(crate) fn new(buffer: Vec<Garbage>, account: Option<Arc<dyn Account>>) -> Self {
        let (bytes, is_large, epoch) = (0, false, 0);
        Self { account, garbage: buffer, bytes, is_large, epoch, next: ptr::null_mut() }
    }

    /// Adds garbage of so many charged bytes.
    #[inline]
    pub(crate) fn push(&mut self, garbage: Garbage, bytes: u64) {
        self.garbage.push(garbage);
        self.bytes += bytes;
    }

    /// Frees the garbage.
    ///
    /// # Safety
    ///
    /// All guards are gone of the epoch in which it could be reached.
    pub(crate) unsafe fn free(&mut self) {
        for Garbage { pointer, free } in self.garbage.drain(..) {
            // SAFETY: the caller's promise, and that of whoever has retired it.
            unsafe { free(pointer) };
        }
    }

    /// Returns the buffer of a batch that was freed.
    pub(crate) fn into_buffer(self) -> Vec<Garbage> {
        assert!(self.garbage.is_empty(), "what was retired is freed");
        self.garbage
    }

    /// Charges the account (1) or discharges it (-1).
    fn charge(&self, sign: i64) {
        debug_assert!(sign.abs() == 1, "the bytes are charged or discharged once");
        if let (Some(account), 1..) = (&self.account, self.bytes) {
            account.charge(sign * i64::try_from(self.bytes).expect("a size fits 63 bits"));
        }
    }
}

/// The garbage of the process that waits to be freed.
struct ReclaimQueue {
    /// A stack of batches that were handed over since a thread looked.
    incoming: AtomicPtr<GarbageBatch>,
    /// The process whose thread has `pending`; 0: none.
    owner: AtomicU32,
    /// Batches that a reader could still reach.
    pending: UnsafeCell<Vec<GarbageBatch>>,
    /// Bytes of small garbage.
    small_bytes: AtomicU64,
    /// The number of batches that are not freed: process in the high half, count in the low.
    unfreed: AtomicU64,
    /// The process whose background thread runs; 0: none.
    worker: AtomicU32,
}

// SAFETY: `pending` is touched by the owner.
unsafe impl Sync for ReclaimQueue {}

static QUEUE: ReclaimQueue = ReclaimQueue {
    incoming: AtomicPtr::new(ptr::null_mut()),
    owner: AtomicU32::new(0),
    pending: UnsafeCell::new(Vec::new()),
    small_bytes: AtomicU64::new(0),
    unfreed: AtomicU64::new(0),
    worker: AtomicU32::new(0),
};

/// Hands over garbage that could last be reached in this epoch.
pub(crate) fn hand_over(mut batch: GarbageBatch, epoch: u64) {
    batch.charge(1);
    batch.epoch = epoch;
    if !batch.is_large {
        // Relaxed: an estimate.
        QUEUE.small_bytes.fetch_add(batch.bytes, Ordering::Relaxed);
    }
    add_unfreed(1);
    let batch = Box::into_raw(Box::new(batch));
    // Relaxed: the exchange below looks again.
    let mut top = QUEUE.incoming.load(Ordering::Relaxed);
    loop {
        // SAFETY: no other thread knows the batch yet.
        unsafe { (*batch).next = top };
        // SeqCst: pairs with the fence of a worker that ends, and with the Acquire in `take`.
        // Relaxed: see above.
        match QUEUE.incoming.compare_exchange(top, batch, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => top = found,
        }
    }
    start_worker();
}

/// Adds to the number of batches of this process that are not freed, and returns the number before.
fn add_unfreed(more: i64) -> u64 {
    let own = u64::from(std::process::id()) << 32;
    let count = |unfreed: u64| if unfreed >> 32 << 32 == own { unfreed - own } else { 0 };
    let update = |unfreed: u64| Some(own | count(unfreed).saturating_add_signed(more));
    // AcqRel: a caller of `reclaim` that finds nothing left has seen what was freed.
    let before = QUEUE.unfreed.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    count(before.unwrap_or(0))
}

/// The batches to free.
#[derive(Clone, Copy, PartialEq)]
enum BatchFilter {
    /// Those that do not take long.
    Small,
    All,
}

/// Frees the batches that cannot be reached any more, unless another thread is doing so.
fn free_ready(filter: BatchFilter) {
    let Some(ready) = take(filter) else { return };
    let has_large = ready.iter().any(|batch| batch.is_large);
    for mut batch in ready {
        // SAFETY: `take` has seen that all guards are gone of its epoch.
        unsafe { batch.free() };
        batch.charge(-1);
        if !batch.is_large {
            // Relaxed: an estimate.
            QUEUE.small_bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
        }
        add_unfreed(-1);
    }
    if has_large {
        lockstep_host::memory::give_back();
    }
}

/// Removes the batches that cannot be reached any more from the queue; `None` when another thread is
/// doing so.
fn take(filter: BatchFilter) -> Option<Vec<GarbageBatch>> {
    let own = std::process::id();
    // Relaxed: the exchange below looks again.
    let owner = QUEUE.owner.load(Ordering::Relaxed);
    if owner == own {
        return None;
    }
    // Acquire: pairs with the Release below. Relaxed: another thread was faster.
    let taken = QUEUE.owner.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed);
    taken.ok()?;
    // SAFETY: this thread is the owner until the store below.
    let pending = unsafe { &mut *QUEUE.pending.get() };
    if owner != 0 {
        // A thread of the process that this one was forked from was the owner: the list may be in any
        // state, and is not used here. What is in it stays where it is.
        // SAFETY: the old list is forgotten, not dropped.
        unsafe { ptr::write(pending, Vec::new()) };
    }
    // Acquire: pairs with the SeqCst exchange in `hand_over`.
    let mut top = QUEUE.incoming.swap(ptr::null_mut(), Ordering::Acquire);
    while !top.is_null() {
        // SAFETY: it is from a box, and the stack pointed to it once.
        let batch = unsafe { Box::from_raw(top) };
        top = batch.next;
        pending.push(*batch);
    }
    let oldest = EPOCHS.oldest();
    let is_ready = |batch: &mut GarbageBatch| {
        batch.epoch < oldest && (filter == BatchFilter::All || !batch.is_large)
    };
    let ready = pending.extract_if(.., is_ready).collect();
    // Release: pairs with the Acquire above.
    QUEUE.owner.store(0, Ordering::Release);
    Some(ready)
}

/// Frees small garbage when too much of it waits.
pub(crate) fn help() {
    // Relaxed: an estimate.
    if QUEUE.small_bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
        free_ready(BatchFilter::Small);
    }
}

/// Frees the small garbage that cannot be reached any more. Does not wait.
pub fn reclaim_small() {
    free_ready(BatchFilter::Small);
}

/// Frees everything that cannot be reached any more, also what other threads have retired, and waits
/// for what others are freeing. Returns whether nothing is left: what a guard can still reach stays,
/// and what a thread has retired under a guard that it still holds.
pub fn reclaim() -> bool {
    loop {
        let before = add_unfreed(0);
        free_ready(BatchFilter::All);
        let unfreed = add_unfreed(0);
        if unfreed == 0 {
            return true;
        }
        if unfreed == before && is_blocked() {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Returns whether all batches that are left wait for readers.
fn is_blocked() -> bool {
    let own = std::process::id();
    // Acquire: pairs with the Release in `take`. Relaxed: another thread is doing so.
    let taken = QUEUE.owner.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    // SAFETY: this thread is the owner until the store below.
    let pending = unsafe { &*QUEUE.pending.get() };
    let oldest = EPOCHS.oldest();
    let waiting = pending.iter().filter(|batch| batch.epoch >= oldest).count();
    // Release: pairs with the Acquire in `take`.
    QUEUE.owner.store(0, Ordering::Release);
    // A process that was forked also counts what its parent had.
    u64::try_from(waiting).is_ok_and(|waiting| waiting >= add_unfreed(0))
}

/// Starts the background thread, unless it runs.
fn start_worker() {
    if cfg!(miri) {
        // Miri wants every thread to end before the program does.
        return;
    }
    let own = std::process::id();
    // SeqCst: pairs with the store and the fence of a worker that ends.
    let worker = QUEUE.worker.load(Ordering::SeqCst);
    if worker == own {
        return;
    }
    // SeqCst: as above. Relaxed: another thread has started it.
    let won = QUEUE.worker.compare_exchange(worker, own, Ordering::SeqCst, Ordering::Relaxed);
    if won.is_ok() && lockstep_host::spawn("reclaimer", work).is_err() {
        // Nothing is freed in the background then: see `help` and `reclaim`.
        // SeqCst: as above.
        QUEUE.worker.store(0, Ordering::SeqCst);
    }
}

/// Runs the background thread.
fn work() {
    let mut idle = 0;
    loop {
        free_ready(BatchFilter::All);
        if add_unfreed(0) > 0 {
            idle = 0;
            lockstep_host::pause(READERS_WAIT_MS);
            continue;
        }
        idle += 1;
        if idle < IDLE_WAITS_MAX {
            lockstep_host::pause(IDLE_WAIT_MS);
            continue;
        }
        // SeqCst: pairs with the load in `start_worker`: either it finds no worker, or the worker
        // finds what it has pushed.
        QUEUE.worker.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        if !QUEUE.incoming.load(Ordering::Relaxed).is_null() {
            start_worker();
        }
        return;
    }
}
