//! Guards: whoever holds one keeps what it can reach from being freed; and what a thread has
//! unlinked, until its guards are gone.
//!
//! Everything that reads or writes here holds a guard. A reader's guard costs an exchange on a line
//! of its own, and nothing more when it is dropped: a thread frees only what it has retired itself
//! (`reclaim`). See rule 6 of the crate's protocol.

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
    epoch::{Epochs, Slot},
    reclaim::{self, Account, Batch, Garbage},
};

/// The moments of the process.
pub(crate) static EPOCHS: Epochs<Own> =
    Epochs { now: AtomicU64::new(1), slots: AtomicPtr::new(std::ptr::null_mut()) };

/// A thread that keeps its guards hands over what it has retired when it is more bytes than this.
const RETIRED_BYTES_MAX: u64 = 1 << 20;

/// A thread keeps the room of a batch of so many objects for the next one.
const ROOM_MAX: usize = 1024;

/// What a thread that reads or writes has for itself.
#[derive(Default)]
pub(crate) struct Own {
    /// Its guards.
    depth: Cell<usize>,
    /// Whether the thread's end was seen: the last guard gives the slot back.
    is_orphan: Cell<bool>,
    /// Whether there is garbage.
    has_retired: Cell<bool>,
    /// What it has unlinked since it had no guards, by account.
    retired: RefCell<Vec<Batch>>,
    /// Room of a batch that was freed.
    room: Cell<Vec<Garbage>>,
}

/// Keeps everything that its holder can reach from being freed. Do not keep it long, nor across
/// many changes: what is replaced meanwhile waits for it.
pub struct Guard {
    slot: &'static Slot<Own>,
    /// It belongs to its thread.
    _thread: PhantomData<*mut ()>,
}

/// The thread's slot.
struct Place(&'static Slot<Own>);

thread_local! {
    static PLACE: Place = Place(EPOCHS.take_slot());
}

/// Begins to read or to write.
#[inline]
pub fn pin() -> Guard {
    let slot = PLACE.try_with(|place| place.0).unwrap_or_else(|_| {
        // The thread is at its end.
        let slot = EPOCHS.take_slot();
        slot.own.is_orphan.set(true);
        slot
    });
    let depth = slot.own.depth.get();
    slot.own.depth.set(depth + 1);
    if depth == 0 {
        EPOCHS.enter(slot);
    }
    Guard { slot, _thread: PhantomData }
}

impl Guard {
    /// Calls something when all guards are gone that there are now, on this thread or on another
    /// one. It should not take long.
    pub fn defer<F: FnOnce() + Send + 'static>(&self, call: F) {
        let call = Box::into_raw(Box::new(call));
        // SAFETY: it came out of a box of this type, and is called once.
        unsafe { Retiring::new(self, None).retire(call.cast(), call_box::<F>, 0) };
    }

    /// Frees what this thread has retired, if no other thread may be reading it and this guard is the
    /// thread's only one: so that what is freed is near at hand when the next change needs memory.
    ///
    /// # Safety
    ///
    /// Of what was reached by way of the guard, only that is used further which was not replaced
    /// since.
    pub unsafe fn free_retired(&self) {
        if self.slot.own.has_retired.get() && self.slot.own.depth.get() == 1 {
            self.slot.own.free_retired(Some(self.slot));
        }
    }

    /// Lets go of what this thread has retired, so that others may free it.
    pub fn flush(&self) {
        self.slot.own.hand_over();
    }
}

/// Calls what a box holds.
///
/// # Safety
///
/// The pointer came out of a box of this type, and is not used again.
unsafe fn call_box<F: FnOnce()>(call: *mut u8) {
    // SAFETY: the caller's promise.
    let call = unsafe { Box::from_raw(call.cast::<F>()) };
    call();
}

impl Own {
    /// Keeps garbage until the thread's guards are gone.
    fn push(&self, garbage: Garbage, bytes: u64, account: Option<&Arc<dyn Account>>) {
        self.has_retired.set(true);
        let mut retired = self.retired.borrow_mut();
        let is_of = |batch: &Batch| match (&batch.account, account) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        match retired.last_mut() {
            Some(batch) if is_of(batch) => batch.push(garbage, bytes),
            _ => {
                let mut batch = Batch::new(self.room.take(), account.map(Arc::clone));
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

    /// Lets others free what was retired.
    fn hand_over(&self) {
        if self.has_retired.replace(false) {
            let moment = EPOCHS.end_moment();
            for batch in self.retired.take() {
                reclaim::hand_over(batch, moment);
            }
        }
    }

    /// Frees what was retired, or lets others do so when somebody may read it, but for the thread with
    /// this slot.
    fn free_retired(&self, but: Option<&Slot<Self>>) {
        self.has_retired.set(false);
        let moment = EPOCHS.end_moment();
        let mut batches = self.retired.take();
        if moment < EPOCHS.oldest_but(but) {
            for mut batch in batches.drain(..) {
                // SAFETY: all guards are gone of the moment at which the garbage could be reached.
                unsafe { batch.free() };
                let room = batch.into_room();
                if room.capacity() <= ROOM_MAX {
                    self.room.set(room);
                }
            }
            // What was freed may have retired something in turn.
            if self.retired.borrow().is_empty() {
                *self.retired.borrow_mut() = batches;
            }
        } else {
            batches.drain(..).for_each(|batch| reclaim::hand_over(batch, moment));
        }
        reclaim::help();
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let own = &self.slot.own;
        let depth = own.depth.get() - 1;
        own.depth.set(depth);
        if depth > 0 {
            return;
        }
        EPOCHS.leave(self.slot);
        if own.has_retired.get() {
            own.free_retired(None);
        }
        if own.is_orphan.get() {
            abandon(self.slot);
        }
    }
}

/// Gives the slot of a thread that has ended back.
#[cold]
fn abandon(slot: &'static Slot<Own>) {
    slot.own.hand_over();
    slot.own.is_orphan.set(false);
    EPOCHS.give_back(slot);
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.own.depth.get() > 0 {
            self.0.own.is_orphan.set(true);
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

/// The right to retire: a guard, and who is charged with what waits to be freed.
#[derive(Clone, Copy)]
pub(crate) struct Retiring<'w> {
    guard: &'w Guard,
    account: Option<&'w Arc<dyn Account>>,
}

impl<'w> Retiring<'w> {
    pub(crate) fn new(guard: &'w Guard, account: Option<&'w Arc<dyn Account>>) -> Self {
        Self { guard, account }
    }

    /// Frees something when all guards are gone that there are now. It takes so many bytes, which
    /// stay charged as long as it waits for others.
    ///
    /// # Safety
    ///
    /// It was unlinked before, so that a guard that is made now does not lead to it; `free` may be
    /// called with it, once, on any thread.
    pub(crate) unsafe fn retire(self, pointer: *mut u8, free: unsafe fn(*mut u8), bytes: usize) {
        let bytes = u64::try_from(bytes).expect("a size fits 64 bits");
        self.guard.slot.own.push(Garbage { pointer, free }, bytes, self.account);
    }

    /// As [`Self::retire`], of something that charges and discharges what it takes itself, of about
    /// so many bytes. This thread frees it only when it is small.
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
            self.guard.slot.own.push(garbage, 0, None);
            return;
        }
        let mut batch = Batch::new(Vec::new(), None);
        batch.push(garbage, 0);
        batch.is_large = true;
        reclaim::hand_over(batch, EPOCHS.end_moment());
    }
}
