//! A stand-in for the epoch collector: frees what was retired when the execution is over.

use std::cell::RefCell;

/// Keeps what was retired; whoever holds one is the writer.
#[derive(Default)]
pub(crate) struct Guard {
    retired: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl Guard {
    /// Frees something when the execution is over.
    ///
    /// # Safety
    ///
    /// As of the epoch collector's.
    pub(crate) unsafe fn defer_unchecked<F, R>(&self, free: F)
    where
        F: FnOnce() -> R + 'static,
    {
        self.retired.borrow_mut().push(Box::new(move || drop(free())));
    }

    /// The execution is over.
    pub(crate) fn free(self) {
        self.retired.into_inner().into_iter().for_each(|free| free());
    }
}
