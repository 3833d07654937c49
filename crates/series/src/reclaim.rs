//! Freeing what was retired and could not be freed at once.
//!
//! A thread that has replaced something frees it itself when its guards are gone, if nobody reads
//! (`guard`). What somebody may still read, and what is so large that to free it takes long, comes
//! here, and is freed by a thread that is started when there is something to free and ends when
//! there has been nothing for a while. Readers free nothing, ever.
//!
//! Where there is no such thread (under Miri, in a process that was forked, when the machine gives
//! none) nothing is lost: threads that write free what is small when too much of it waits, and
//! [`reclaim`] frees everything. No lock is held here that a forked process could find locked
//! for ever: what guards the list of what waits names the process.

use std::{
    cell::UnsafeCell,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    },
};

use crate::guard::EPOCHS;

/// Who is charged with memory.
pub trait Account: Send + Sync {
    /// Charges so many bytes more (or less).
    fn charge(&self, bytes: i64);
}

/// Something of more bytes is not freed on the thread that has retired it, which takes some
/// microseconds with so many.
pub(crate) const FREED_AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// When so many bytes of small garbage wait, threads that write help to free it.
const WAITING_BYTES_MAX: u64 = 16 << 20;
/// How long the thread waits for readers before it looks again.
const READERS_WAIT_MS: u32 = 2;
/// How long the thread waits for garbage before it looks again, and how often before it ends.
const IDLE_WAIT_MS: u32 = 5;
const IDLE_WAITS_MAX: u32 = 200;

/// Something to free, and how.
pub(crate) struct Garbage {
    pub(crate) pointer: *mut u8,
    pub(crate) free: unsafe fn(*mut u8),
}

/// Garbage that is charged to one account.
pub(crate) struct Batch {
    pub(crate) account: Option<Arc<dyn Account>>,
    garbage: Vec<Garbage>,
    /// What it takes, as far as the account is charged for it.
    pub(crate) bytes: u64,
    /// Whether it takes long to free it.
    pub(crate) is_large: bool,
    /// When it could last be reached.
    moment: u64,
    /// The batch below it in the stack.
    next: *mut Self,
}

// SAFETY: garbage is what nobody can reach, and may be freed on any thread; `next` is touched by who
// has the stack.
unsafe impl Send for Batch {}

impl Batch {
    pub(crate) fn new(room: Vec<Garbage>, account: Option<Arc<dyn Account>>) -> Self {
        let (bytes, is_large, moment) = (0, false, 0);
        Self { account, garbage: room, bytes, is_large, moment, next: ptr::null_mut() }
    }

    #[inline]
    pub(crate) fn push(&mut self, garbage: Garbage, bytes: u64) {
        self.garbage.push(garbage);
        self.bytes += bytes;
    }

    /// Frees the garbage.
    ///
    /// # Safety
    ///
    /// All guards are gone of the moment at which it could be reached.
    pub(crate) unsafe fn free(&mut self) {
        for Garbage { pointer, free } in self.garbage.drain(..) {
            // SAFETY: the caller's promise, and that of who has retired it.
            unsafe { free(pointer) };
        }
    }

    /// The room of a batch that was freed.
    pub(crate) fn into_room(self) -> Vec<Garbage> {
        assert!(self.garbage.is_empty(), "what was retired is freed");
        self.garbage
    }

    fn charge(&self, sign: i64) {
        if let (Some(account), 1..) = (&self.account, self.bytes) {
            account.charge(sign * i64::try_from(self.bytes).expect("a size fits 63 bits"));
        }
    }
}

/// What waits to be freed.
struct Waiting {
    /// A stack of batches that came since somebody looked.
    incoming: AtomicPtr<Batch>,
    /// The process whose thread has `kept`; 0: nobody.
    holder: AtomicU32,
    /// Batches that somebody could still reach.
    kept: UnsafeCell<Vec<Batch>>,
    /// Bytes of small garbage.
    small_bytes: AtomicU64,
    /// How many batches there are that are not freed: process in the high half, count in the low.
    left: AtomicU64,
    /// The process that has a thread that frees; 0: none.
    worker: AtomicU32,
}

// SAFETY: `kept` is touched by who is the holder.
unsafe impl Sync for Waiting {}

static WAITING: Waiting = Waiting {
    incoming: AtomicPtr::new(ptr::null_mut()),
    holder: AtomicU32::new(0),
    kept: UnsafeCell::new(Vec::new()),
    small_bytes: AtomicU64::new(0),
    left: AtomicU64::new(0),
    worker: AtomicU32::new(0),
};

/// Gives garbage away that could last be reached at this moment.
pub(crate) fn hand_over(mut batch: Batch, moment: u64) {
    batch.charge(1);
    batch.moment = moment;
    if !batch.is_large {
        // Relaxed: a number to go by.
        WAITING.small_bytes.fetch_add(batch.bytes, Ordering::Relaxed);
    }
    count_left(1);
    let batch = Box::into_raw(Box::new(batch));
    // Relaxed: the exchange below looks again.
    let mut top = WAITING.incoming.load(Ordering::Relaxed);
    loop {
        // SAFETY: nobody else knows the batch yet.
        unsafe { (*batch).next = top };
        // SeqCst: pairs with the fence of a worker that ends, and with the Acquire in `take`.
        // Relaxed: see above.
        match WAITING.incoming.compare_exchange(top, batch, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => top = found,
        }
    }
    start_worker();
}

/// Adds to the number of batches of this process that are not freed, and returns what it was.
fn count_left(more: i64) -> u64 {
    let own = u64::from(std::process::id()) << 32;
    let count = |left: u64| if left >> 32 << 32 == own { left - own } else { 0 };
    let update = |left: u64| Some(own | count(left).saturating_add_signed(more));
    // AcqRel: who finds nothing left, in `reclaim`, has seen what was freed.
    let before = WAITING.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    count(before.unwrap_or(0))
}

/// Which garbage to free.
#[derive(Clone, Copy, PartialEq)]
enum Which {
    Small,
    All,
}

/// Frees what waits and nobody can reach any more, unless another thread is about to.
fn free_ready(which: Which) {
    let Some(ready) = take(which) else { return };
    let has_large = ready.iter().any(|batch| batch.is_large);
    for mut batch in ready {
        // SAFETY: `take` has seen that all guards are gone of its moment.
        unsafe { batch.free() };
        batch.charge(-1);
        if !batch.is_large {
            // Relaxed: a number to go by.
            WAITING.small_bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
        }
        count_left(-1);
    }
    if has_large {
        lockstep_host::memory::give_back();
    }
}

/// Takes the batches that nobody can reach any more; `None` when another thread is at it.
fn take(which: Which) -> Option<Vec<Batch>> {
    let own = std::process::id();
    // Relaxed: the exchange below looks again.
    let holder = WAITING.holder.load(Ordering::Relaxed);
    if holder == own {
        return None;
    }
    // Acquire: pairs with the Release below. Relaxed: somebody else was faster.
    let taken = WAITING.holder.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed);
    taken.ok()?;
    // SAFETY: this thread is the holder until the store below.
    let kept = unsafe { &mut *WAITING.kept.get() };
    if holder != 0 {
        // The process that this one was forked from had a holder: the list may be in any state, and
        // nobody goes on with it here. What is in it stays where it is.
        // SAFETY: the old list is forgotten, not dropped.
        unsafe { ptr::write(kept, Vec::new()) };
    }
    // Acquire: pairs with the SeqCst exchange in `hand_over`.
    let mut top = WAITING.incoming.swap(ptr::null_mut(), Ordering::Acquire);
    while !top.is_null() {
        // SAFETY: it came out of a box, and the stack led to it once.
        let batch = unsafe { Box::from_raw(top) };
        top = batch.next;
        kept.push(*batch);
    }
    let oldest = EPOCHS.oldest();
    let is_ready =
        |batch: &mut Batch| batch.moment < oldest && (which == Which::All || !batch.is_large);
    let ready = kept.extract_if(.., is_ready).collect();
    // Release: pairs with the Acquire above.
    WAITING.holder.store(0, Ordering::Release);
    Some(ready)
}

/// Frees small garbage when too much of it waits.
pub(crate) fn help() {
    // Relaxed: a number to go by.
    if WAITING.small_bytes.load(Ordering::Relaxed) > WAITING_BYTES_MAX {
        free_ready(Which::Small);
    }
}

/// Frees what is small, waits, and cannot be reached any more; waits for nobody.
pub fn reclaim_small() {
    free_ready(Which::Small);
}

/// Frees everything that nobody can reach any more, also what other threads have retired, and waits
/// for what others are freeing. Returns whether nothing is left: what a guard can still reach stays,
/// and what a thread has retired under a guard that it still holds.
pub fn reclaim() -> bool {
    loop {
        let before = count_left(0);
        free_ready(Which::All);
        let left = count_left(0);
        if left == 0 {
            return true;
        }
        if left == before && is_blocked() {
            return false;
        }
        std::thread::yield_now();
    }
}

/// Whether all that is left waits for readers.
fn is_blocked() -> bool {
    let own = std::process::id();
    // Acquire: pairs with the Release in `take`. Relaxed: somebody else is at it.
    let taken = WAITING.holder.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    // SAFETY: this thread is the holder until the store below.
    let kept = unsafe { &*WAITING.kept.get() };
    let oldest = EPOCHS.oldest();
    let waiting = kept.iter().filter(|batch| batch.moment >= oldest).count();
    // Release: pairs with the Acquire in `take`.
    WAITING.holder.store(0, Ordering::Release);
    // In a process that was forked there is also what its parent had.
    u64::try_from(waiting).is_ok_and(|waiting| waiting >= count_left(0))
}

/// Starts the thread that frees, unless there is one.
fn start_worker() {
    if cfg!(miri) {
        // Miri wants every thread to end before the program does.
        return;
    }
    let own = std::process::id();
    // SeqCst: pairs with the store and the fence of a worker that ends.
    let worker = WAITING.worker.load(Ordering::SeqCst);
    if worker == own {
        return;
    }
    // SeqCst: as above. Relaxed: somebody else has started it.
    let won = WAITING.worker.compare_exchange(worker, own, Ordering::SeqCst, Ordering::Relaxed);
    if won.is_ok() && lockstep_host::spawn("reclaimer", work).is_err() {
        // Nobody frees it in the background then: see `help` and `reclaim`.
        // SeqCst: as above.
        WAITING.worker.store(0, Ordering::SeqCst);
    }
}

/// The thread that frees.
fn work() {
    let mut idle = 0;
    loop {
        free_ready(Which::All);
        if count_left(0) > 0 {
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
        WAITING.worker.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it.
        if !WAITING.incoming.load(Ordering::Relaxed).is_null() {
            start_worker();
        }
        return;
    }
}
