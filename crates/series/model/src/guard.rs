//! A stand-in for guards: with moments, as the crate's, or without, where what is retired is freed
//! when the execution is over.

use std::cell::RefCell;

use crate::epoch::{Epochs, Slot};

/// Nobody is charged here.
pub(crate) enum Account {}

/// Something to free, and how.
pub(crate) type Garbage = (*mut u8, unsafe fn(*mut u8));

/// Keeps what was retired under it.
#[derive(Default)]
pub(crate) struct Guard {
    retired: RefCell<Vec<Garbage>>,
    moments: Option<(&'static Epochs<()>, &'static Slot<()>)>,
}

impl Guard {
    /// Begins to read or to write, with moments.
    pub(crate) fn enter(epochs: &'static Epochs<()>) -> Self {
        let slot = epochs.take_slot();
        epochs.enter(slot);
        Self { retired: RefCell::default(), moments: Some((epochs, slot)) }
    }

    /// Ends it, and frees what was retired if nobody may read it; else it is returned.
    pub(crate) fn leave(self) -> Vec<Garbage> {
        let (epochs, slot) = self.moments.expect("it was entered");
        epochs.leave(slot);
        epochs.give_back(slot);
        let retired = self.retired.into_inner();
        if retired.is_empty() || epochs.end_moment() >= epochs.oldest() {
            return retired;
        }
        free(retired);
        Vec::new()
    }

    /// The execution is over.
    pub(crate) fn free(self) {
        free(self.retired.into_inner());
    }
}

/// Frees what nobody can reach.
pub(crate) fn free(retired: Vec<Garbage>) {
    for (pointer, free) in retired {
        // SAFETY: nobody can reach it, and it was retired once.
        unsafe { free(pointer) };
    }
}

/// A guard of who is alone.
pub(crate) fn pin() -> Guard {
    Guard::default()
}

/// The right to retire.
#[derive(Clone, Copy)]
pub(crate) struct Retiring<'w> {
    guard: &'w Guard,
}

impl<'w> Retiring<'w> {
    pub(crate) fn new(guard: &'w Guard, _account: Option<&'w Account>) -> Self {
        Self { guard }
    }

    /// Frees something when it is time to.
    ///
    /// # Safety
    ///
    /// As of the crate's.
    pub(crate) unsafe fn retire(self, pointer: *mut u8, free: unsafe fn(*mut u8), _bytes: usize) {
        self.guard.retired.borrow_mut().push((pointer, free));
    }

    /// As [`Self::retire`].
    ///
    /// # Safety
    ///
    /// As of the crate's.
    pub(crate) unsafe fn retire_whole(
        self,
        pointer: *mut u8,
        free: unsafe fn(*mut u8),
        _bytes: u64,
    ) {
        self.guard.retired.borrow_mut().push((pointer, free));
    }
}
