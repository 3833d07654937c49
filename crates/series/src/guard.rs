//! Guards: whoever holds one keeps what it can reach from being freed. And the garbage of a thread:
//! what it has unlinked, until its guards are gone.
//!
//! Everything that reads or writes here holds a guard. A reader's guard costs an exchange on a cache
//! line of its thread, and nothing more when it is dropped: a thread frees only what it has retired
//! itself (`reclaim`). See rule 6 of the crate's protocol.

use std::{
    cell::{Cell, RefCell},
    fmt,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU64},
    },
};

use crate::{
    epoch::{Epochs, ReaderSlot},
    reclaim::{self, Account, Garbage, GarbageBatch},
};

/// The epochs of the process.
pub(crate) static EPOCHS: Epochs<ThreadState> =
    Epochs { now: AtomicU64::new(1), slots: AtomicPtr::new(std::ptr::null_mut()) };

/// A thread that holds its guards for long hands over what it has retired when it exceeds so many bytes.
const RETIRED_BYTES_MAX: u64 = 1 << 20;

/// A thread keeps the buffer of a batch that was freed for the next one, up to so many objects.
const SPARE_CAPACITY_MAX: usize = 1024;

/// The state of a thread that reads or writes.
#[derive(Default)]
pub(crate) struct ThreadState {
    /// The number of its guards.
    depth: Cell<usize>,
    /// Whether the thread has ended: its last guard gives the slot back.
    is_orphan: Cell<bool>,
    /// Whether `retired` holds garbage.
    has_retired: Cell<bool>,
    /// What it has unlinked since it held no guard, by account.
    retired: RefCell<Vec<GarbageBatch>>,
    /// The buffer of a batch that was freed.
    spare: Cell<Vec<Garbage>>,
}

/// Keeps everything that its holder can reach from being freed. To be held briefly, and not across
/// many changes: what is replaced meanwhile is not freed before.
pub struct Guard {
    slot: &'static ReaderSlot<ThreadState>,
    /// Not to be sent to another thread.
    _thread: PhantomData<*mut ()>,
}

/// The slot of the current thread.
struct ThreadSlot(&'static ReaderSlot<ThreadState>);

thread_local! {
    static THREAD_SLOT: ThreadSlot = ThreadSlot(EPOCHS.take_slot());
}

/// Makes a guard, under which the thread reads or writes.
#[inline]
pub fn pin() -> Guard {
    let slot = THREAD_SLOT.try_with(|slot| slot.0).unwrap_or_else(|_| {
        // The thread is ending, and its slot was given back.
        let slot = EPOCHS.take_slot();
        slot.data.is_orphan.set(true);
        slot
    });
    let depth = slot.data.depth.get();
    slot.data.depth.set(depth + 1);
    if depth == 0 {
        EPOCHS.enter(slot);
    }
    Guard { slot, _thread: PhantomData }
}

impl Guard {
    /// Calls a function when all guards are gone that exist now, on this thread or on another one. It
    /// should not take long.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, call: F) {
        let call = Box::into_raw(Box::new(call));
        // SAFETY: it is from a box of this type, and is called once.
        unsafe { Retiring::new(self, None).retire(call.cast(), call_box::<F>, 0) };
    }

    /// Frees what this thread has retired, if no other thread may be reading it and this guard is the
    /// thread's only one: the next change then finds memory that is still in the processor's caches.
    ///
    /// # Safety
    ///
    /// Nothing is used further that was reached by way of the guard and has been replaced since.
    pub unsafe fn free_retired(&self) {
        if self.slot.data.has_retired.get() && self.slot.data.depth.get() == 1 {
            self.slot.data.free_retired(Some(self.slot));
        }
    }

    /// Hands over what this thread has retired, so that other threads may free it.
    pub fn flush(&self) {
        self.slot.data.hand_over();
    }
}

/// Calls the function that a box holds.
///
/// # Safety
///
/// The pointer is from a box of this type, and is not used again.
unsafe fn call_box<F: FnOnce()>(call: *mut u8) {
    // SAFETY: the caller's promise.
    let call = unsafe { Box::from_raw(call.cast::<F>()) };
    call();
}

impl ThreadState {
    /// Stores garbage until the thread's guards are gone.
    fn push(&self, garbage: Garbage, bytes: u64, account: Option<&Arc<dyn Account>>) {
        self.has_retired.set(true);
        let mut retired = self.retired.borrow_mut();
        let is_of = |batch: &GarbageBatch| match (&batch.account, account) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        match retired.last_mut() {
            Some(batch) if is_of(batch) => batch.push(garbage, bytes),
            _ => {
                let mut batch = GarbageBatch::new(self.spare.take(), account.map(Arc::clone));
                batch.push(garbage, bytes);
                retired.push(batch);
            }
        }
        let is_much = retired.last().is_some_and(|batch| batch.bytes > RETIRED_BYTES_MAX);
        drop(retired);
        if is_much && self.depth.get() > 1 {
            self.hand_over();
        }
    }

    /// Hands over what was retired.
    fn hand_over(&self) {
        if self.has_retired.replace(false) {
            let epoch = EPOCHS.advance();
            for batch in self.retired.take() {
                reclaim::hand_over(batch, epoch);
            }
        }
    }

    /// Frees what was retired, or hands it over when a thread may be reading it. The thread with the
    /// excepted slot is not counted.
    fn free_retired(&self, excepted: Option<&ReaderSlot<Self>>) {
        self.has_retired.set(false);
        let epoch = EPOCHS.advance();
        let mut batches = self.retired.take();
        if epoch < EPOCHS.oldest_except(excepted) {
            for mut batch in batches.drain(..) {
                // SAFETY: all guards are gone of the epoch in which the garbage could be reached.
                unsafe { batch.free() };
                let buffer = batch.into_buffer();
                if buffer.capacity() <= SPARE_CAPACITY_MAX {
                    self.spare.set(buffer);
                }
            }
            // Freeing may have retired something in turn.
            if self.retired.borrow().is_empty() {
                *self.retired.borrow_mut() = batches;
            }
        } else {
            batches.drain(..).for_each(|batch| reclaim::hand_over(batch, epoch));
        }
        reclaim::help();
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let thread = &self.slot.data;
        debug_assert!(thread.depth.get() > 0, "a guard is dropped once");
        let depth = thread.depth.get() - 1;
        thread.depth.set(depth);
        if depth > 0 {
            return;
        }
        EPOCHS.leave(self.slot);
        if thread.has_retired.get() {
            thread.free_retired(None);
        }
        if thread.is_orphan.get() {
            abandon(self.slot);
        }
    }
}

/// Gives back the slot of a thread that has ended.
#[cold]
fn abandon(slot: &'static ReaderSlot<ThreadState>) {
    debug_assert_eq!(slot.data.depth.get(), 0, "its last guard is gone");
    slot.data.hand_over();
    slot.data.is_orphan.set(false);
    EPOCHS.give_back(slot);
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        if self.0.data.depth.get() > 0 {
            self.0.data.is_orphan.set(true);
        } else {
            abandon(self.0);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

/// The right to retire: a guard, and the account that is charged with what waits to be freed.
#[derive(Clone, Copy)]
pub(crate) struct Retiring<'w> {
    guard: &'w Guard,
    account: Option<&'w Arc<dyn Account>>,
}

impl<'w> Retiring<'w> {
    /// Retires under a guard.
    pub(crate) fn new(guard: &'w Guard, account: Option<&'w Arc<dyn Account>>) -> Self {
        Self { guard, account }
    }

    /// Returns the guard.
    #[inline]
    pub(crate) fn guard(self) -> &'w Guard {
        self.guard
    }

    /// Frees something when all guards are gone that exist now. It takes so many bytes, which are
    /// charged until then.
    ///
    /// # Safety
    ///
    /// It was unlinked before, so that it cannot be reached by a guard that is made now; `free` may be
    /// called with it, once, on any thread.
    pub(crate) unsafe fn retire(self, pointer: *mut u8, free: unsafe fn(*mut u8), bytes: usize) {
        let bytes = u64::try_from(bytes).expect("a size fits 64 bits");
        self.guard.slot.data.push(Garbage { pointer, free }, bytes, self.account);
    }

    /// Retires something, of about so many bytes, that charges and discharges an account itself. This
    /// thread frees it only when it is small.
    ///
    /// # Safety
    ///
    /// As of [`Self::retire`].
    pub(crate) unsafe fn retire_whole(
        self,
        pointer: *mut u8,
        free: unsafe fn(*mut u8),
        bytes: u64,
    ) {
        let garbage = Garbage { pointer, free };
        if bytes <= reclaim::FREED_AT_ONCE_BYTES_MAX {
            self.guard.slot.data.push(garbage, 0, None);
            return;
        }
        let mut batch = GarbageBatch::new(Vec::new(), None);
        batch.push(garbage, 0);
        batch.is_large = true;
        reclaim::hand_over(batch, EPOCHS.advance());
    }
}
