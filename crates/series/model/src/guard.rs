//! The model's guards: with epochs, as the crate's, or without, where what is retired is freed when
//! the execution is over.

use std::cell::RefCell;

use crate::epoch::{Epochs, ReaderSlot};

/// No account is charged here.
pub(crate) enum Account {}

/// An object to free, and the function that frees it.
pub(crate) type Garbage = (*mut u8, unsafe fn(*mut u8));

/// Stores what was retired under it.
#[derive(Default)]
pub(crate) struct Guard {
    retired: RefCell<Vec<Garbage>>,
    reader: Option<(&'static Epochs<()>, &'static ReaderSlot<()>)>,
}

impl Guard {
    /// Makes a guard with an epoch, under which the thread reads or writes.
    pub(crate) fn enter(epochs: &'static Epochs<()>) -> Self {
        let slot = epochs.take_slot();
        epochs.enter(slot);
        Self { retired: RefCell::default(), reader: Some((epochs, slot)) }
    }

    /// Drops the guard, and frees what was retired if no thread may read it; else returns it.
    pub(crate) fn leave(self) -> Vec<Garbage> {
        let (epochs, slot) = self.reader.expect("it was entered");
        epochs.leave(slot);
        epochs.give_back(slot);
        let retired = self.retired.into_inner();
        if retired.is_empty() || epochs.advance() >= epochs.oldest() {
            return retired;
        }
        free(retired);
        Vec::new()
    }

    /// Frees what was retired, at the end of the execution.
    pub(crate) fn free(self) {
        free(self.retired.into_inner());
    }
}

/// Frees garbage.
pub(crate) fn free(retired: Vec<Garbage>) {
    for (pointer, free) in retired {
        // SAFETY: no thread can reach it, and it was retired once.
        unsafe { free(pointer) };
    }
}

/// Makes a guard without an epoch, for a thread that no other runs beside.
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

    /// Retires an object.
    ///
    /// # Safety
    ///
    /// As of the crate's.
    pub(crate) unsafe fn retire(self, pointer: *mut u8, free: unsafe fn(*mut u8), _bytes: usize) {
        self.guard.retired.borrow_mut().push((pointer, free));
    }

    /// Retires an object that charges no account.
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
