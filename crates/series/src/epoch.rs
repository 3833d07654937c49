//! Who may still be reading: the moment at which each reader began, and whether all that were
//! there at a moment are gone.
//!
//! `guard` enters and leaves; `reclaim` asks. Holds no garbage and frees nothing.
//!
//! # Protocol
//!
//! `now` counts moments. A reader that enters writes the moment into its slot, then passes a fence,
//! then follows pointers. Whoever has unlinked something passes a fence and takes the moment, which
//! thereby ends: the garbage's moment. Garbage may be freed when no slot holds its moment or an
//! earlier one.
//!
//! 1. A reader that can still reach the garbage has a moment that is not later than the garbage's.
//!    With a later one it has read what was counted after the writer's fence, so its own fence comes
//!    after the writer's, and it finds the unlinked pointer gone.
//! 2. Who looks through the slots passes a fence first. A reader whose moment it misses passes its
//!    own fence later, and finds the pointer gone as well.
//! 3. A reader clears its slot by a Release store, which the search acquires: it frees after the
//!    reader's last access.
//!
//! Nobody waits for anybody. A reader that stays blocks what was unlinked since it entered, and
//! nothing that was unlinked before.
//!
//! `crates/series/model` explores it with the pointer that [`super::swap`] replaces.

use super::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence, store_and_fence};

/// The count of moments, and the slots of all threads that ever read.
pub(crate) struct Epochs<T> {
    /// The moment now; never 0.
    pub(crate) now: AtomicU64,
    /// The slot that was added last. Slots are never freed.
    pub(crate) slots: AtomicPtr<Slot<T>>,
}

/// Where one thread says since when it reads. Aligned so that no two share a cache line, nor a pair
/// of lines that the processor fetches together.
#[repr(align(128))]
pub(crate) struct Slot<T> {
    /// The moment at which the reader entered; 0: it does not read.
    began: AtomicU64,
    /// Whether some thread has it.
    is_taken: AtomicBool,
    /// The slot that was added before. Written before the slot is published.
    next: *mut Self,
    /// Touched only by the thread that has the slot.
    pub(crate) own: T,
}

// SAFETY: `own` is touched by one thread at a time, which `is_taken` hands from one to the next; the
// rest is atomic or does not change.
unsafe impl<T: Send> Sync for Slot<T> {}
// SAFETY: as above; `next` leads to a slot that is never freed.
unsafe impl<T: Send> Send for Slot<T> {}

impl<T: Default> Epochs<T> {
    /// Takes a slot for a thread: one that another has given back, or a new one.
    pub(crate) fn take_slot(&self) -> &'static Slot<T> {
        // Acquire: pairs with the Release below.
        let mut at = self.slots.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: slots are never freed.
            let slot: &'static Slot<T> = unsafe { &*at };
            // Acquire: pairs with the Release in `give_back`. Relaxed: nothing was taken.
            let taken =
                slot.is_taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return slot;
            }
            at = slot.next;
        }
        let made = Box::into_raw(Box::new(Slot {
            began: AtomicU64::new(0),
            is_taken: AtomicBool::new(true),
            next: std::ptr::null_mut(),
            own: T::default(),
        }));
        // Relaxed: the exchange below looks again.
        let mut newest = self.slots.load(Ordering::Relaxed);
        loop {
            // SAFETY: nobody else knows the slot yet.
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
    /// Begins to read: from here on, what can be reached is not freed.
    #[inline]
    pub(crate) fn enter(&self, slot: &Slot<T>) {
        // Relaxed: the fence orders it, see rule 1.
        let now = self.now.load(Ordering::Relaxed);
        // The store is a Release one: pairs with the Acquire in `oldest`, as the one in `leave`
        // before it does.
        store_and_fence(&slot.began, now);
    }

    /// Ends to read.
    #[inline]
    pub(crate) fn leave(&self, slot: &Slot<T>) {
        // Release: pairs with the Acquire in `oldest`.
        slot.began.store(0, Ordering::Release);
    }

    /// Ends the present moment and returns it: that of what the caller has unlinked so far.
    pub(crate) fn end_moment(&self) -> u64 {
        fence(Ordering::SeqCst);
        // Relaxed: the fence orders it, see rule 1.
        self.now.fetch_add(1, Ordering::Relaxed)
    }

    /// The moment at which the oldest reader entered; `u64::MAX` when nobody reads. What an earlier
    /// moment ended with, and the caller knows of, can be freed.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest_but(None)
    }

    /// As [`Self::oldest`], as if the thread with this slot did not read.
    pub(crate) fn oldest_but(&self, but: Option<&Slot<T>>) -> u64 {
        fence(Ordering::SeqCst);
        let mut oldest = u64::MAX;
        // Acquire: pairs with the Release in `take_slot`.
        let mut at = self.slots.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: slots are never freed.
            let slot = unsafe { &*at };
            // Acquire: pairs with the Release in `leave` and `enter`.
            let began = slot.began.load(Ordering::Acquire);
            if began != 0 && !but.is_some_and(|but| std::ptr::eq(but, slot)) {
                oldest = oldest.min(began);
            }
            at = slot.next;
        }
        oldest
    }

    /// Gives a slot back for another thread. The caller does not read and forgets the slot.
    pub(crate) fn give_back(&self, slot: &Slot<T>) {
        // Relaxed: only the caller writes it.
        debug_assert_eq!(slot.began.load(Ordering::Relaxed), 0, "nobody reads");
        // Release: pairs with the Acquire in `take_slot`.
        slot.is_taken.store(false, Ordering::Release);
    }
}
