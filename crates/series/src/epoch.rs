//! Epoch-based reclamation: the epoch in which each reader entered, and whether all readers of an
//! epoch have left.
//!
//! `guard` enters and leaves; `reclaim` asks. Holds no garbage and frees nothing.
//!
//! # Protocol
//!
//! `now` counts epochs. A reader that enters writes the epoch into its slot, then passes a fence,
//! then follows pointers. A writer that has unlinked something passes a fence and advances the epoch;
//! the one that ends is the garbage's epoch. Garbage may be freed when no slot holds its epoch or an
//! earlier one.
//!
//! 1. A reader that can still reach the garbage has an epoch that is not later than the garbage's.
//!    With a later one it has read what was counted after the writer's fence, so its own fence comes
//!    after the writer's, and it does not find the unlinked pointer.
//! 2. Whoever searches the slots passes a fence first. A reader whose epoch the search misses passes
//!    its own fence later, and does not find the pointer either.
//! 3. A reader clears its slot by a Release store, which the search acquires: it frees after the
//!    reader's last access.
//!
//! No thread waits for another. A reader that stays blocks what was unlinked since it entered, and
//! nothing that was unlinked before.
//!
//! `crates/series/model` explores it with the pointer that [`crate::swap`] replaces.

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence, store_and_fence};

/// The count of epochs, and the slots of all threads that ever read.
pub(crate) struct Epochs<T> {
    /// The current epoch; never 0.
    pub(crate) now: AtomicU64,
    /// The slot that was added last. Slots are never freed.
    pub(crate) slots: AtomicPtr<ReaderSlot<T>>,
}

/// The slot in which one thread writes since when it reads. Aligned so that no two share a cache line,
/// nor a pair of lines that the processor fetches together.
#[repr(align(128))]
pub(crate) struct ReaderSlot<T> {
    /// The epoch in which the reader entered; 0: it does not read.
    entered: AtomicU64,
    /// Whether a thread uses it.
    is_taken: AtomicBool,
    /// The slot that was added before. Written before the slot is published.
    next: *mut Self,
    /// Touched only by the thread that has the slot.
    pub(crate) data: T,
}

// SAFETY: `data` is touched by one thread at a time, which `is_taken` hands from one to the next; the
// rest is atomic or does not change.
unsafe impl<T: Send> Sync for ReaderSlot<T> {}
// SAFETY: as above; `next` points to a slot that is never freed.
unsafe impl<T: Send> Send for ReaderSlot<T> {}

impl<T: Default> Epochs<T> {
    /// Reserves a slot for a thread: one that another has given back, or a new one.
    pub(crate) fn take_slot(&self) -> &'static ReaderSlot<T> {
        // Acquire: pairs with the Release below.
        let mut at = self.slots.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: slots are never freed.
            let slot: &'static ReaderSlot<T> = unsafe { &*at };
            // Acquire: pairs with the Release in `give_back`. Relaxed: nothing was taken.
            let taken =
                slot.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return slot;
            }
            at = slot.next;
        }
        let made = Box::into_raw(Box::new(ReaderSlot {
            entered: AtomicU64::new(0),
            is_taken: AtomicBool::new(true),
            next: std::ptr::null_mut(),
            data: T::default(),
        }));
        // Relaxed: the exchange below looks again.
        let mut newest = self.slots.load(Ordering::Relaxed);
        loop {
            // SAFETY: no other thread knows the slot yet.
            unsafe { (*made).next = newest };
            // Release: pairs with the Acquire in `take_slot` and `oldest`. Relaxed: see above.
            match self.slots.compare_exchange(newest, made, Ordering::Release, Ordering::Relaxed) {
                // SAFETY: slots are never freed.
                Ok(_) => return unsafe { &*made },
                Err(found) => newest = found,
            }
        }
    }
}

impl<T> Epochs<T> {
    /// Enters: from here on, what can be reached is not freed. The slot's thread does not read yet.
    #[inline]
    pub(crate) fn enter(&self, slot: &ReaderSlot<T>) {
        // Relaxed: the fence orders it, see rule 1.
        let now = self.now.load(Ordering::Relaxed);
        // The store is a Release one: pairs with the Acquire in `oldest`, as the one in `leave`
        // before it does.
        store_and_fence(&slot.entered, now);
    }

    /// Leaves: nothing is reached any more.
    #[inline]
    pub(crate) fn leave(&self, slot: &ReaderSlot<T>) {
        // Release: pairs with the Acquire in `oldest`.
        slot.entered.store(0, Ordering::Release);
    }

    /// Advances the epoch and returns the one that ends: that of what the caller has unlinked so far.
    pub(crate) fn advance(&self) -> u64 {
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it, see rule 1.
        self.now.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the epoch in which the oldest reader entered; `u64::MAX` when no thread reads. Garbage
    /// of earlier epochs can be freed.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest_except(None)
    }

    /// Returns what [`Self::oldest`] does, as if the thread with this slot did not read.
    pub(crate) fn oldest_except(&self, excepted: Option<&ReaderSlot<T>>) -> u64 {
        fence(Ordering::SeqCst);
        let mut oldest = u64::MAX;
        // Acquire: pairs with the Release in `take_slot`.
        let mut at = self.slots.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: slots are never freed.
            let slot = unsafe { &*at };
            // Acquire: pairs with the Release in `leave` and `enter`.
            let entered = slot.entered.load(Ordering::Acquire);
            if entered != 0 && !excepted.is_some_and(|excepted| std::ptr::eq(excepted, slot)) {
                oldest = oldest.min(entered);
            }
            at = slot.next;
        }
        oldest
    }

    /// Gives a slot back for another thread. The caller does not read and forgets the slot.
    pub(crate) fn give_back(&self, slot: &ReaderSlot<T>) {
        // Relaxed: only the caller writes it.
        debug_assert_eq!(slot.entered.load(Ordering::Relaxed), 0, "the thread does not read");
        // Release: pairs with the Acquire in `take_slot`.
        slot.is_taken.store(false, Ordering::Release);
    }
}
