//! A value that readers reach by a pointer, and that a writer replaces as a whole (read-copy-update).
//!
//! `table` stores its state in one. Rule 6 of the crate's protocol; `crates/series/model` explores
//! it together with `epoch`.

use std::fmt;

use crate::{
    guard::{Guard, Retiring, pin},
    sync::{AtomicPtr, Ordering},
};

/// A value of which readers see one version or the next one.
pub struct Swap<T> {
    /// Never null. From a box.
    current: AtomicPtr<T>,
    /// Returns about how many bytes are freed with a value.
    weigh: fn(&T) -> u64,
}

impl<T: Send + Sync + 'static> Swap<T> {
    /// Starts with a value. `weigh` returns about how many bytes are freed when a value is dropped: a
    /// large one is not dropped on the thread that replaces it.
    pub fn new(value: T, weigh: fn(&T) -> u64) -> Self {
        Self { current: AtomicPtr::new(Box::into_raw(Box::new(value))), weigh }
    }

    /// Returns the current value, which stays as it is until the guard is dropped.
    #[inline]
    pub fn load<'g>(&self, _guard: &'g Guard) -> &'g T {
        // Acquire: pairs with the Release in `replace`.
        // SAFETY: never null, and freed by way of the guards after it was replaced.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the current value without a guard.
    ///
    /// # Safety
    ///
    /// [`Self::replace`] is not called as long as the value is used.
    #[inline]
    pub unsafe fn load_unguarded(&self) -> &T {
        // Acquire: pairs with the Release in `replace`.
        // SAFETY: never null; the caller's promise.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Replaces the value. The old one is dropped when no reader has it any more.
    pub fn replace(&self, value: T, guard: &Guard) {
        self.replace_weighing(value, self.weigh, guard);
    }

    /// Replaces the value by one that shares much with it; `weigh` returns how many bytes are freed with
    /// the old one.
    pub(crate) fn replace_weighing(&self, value: T, weigh: impl FnOnce(&T) -> u64, guard: &Guard) {
        // AcqRel: the Release pairs with the Acquire in `load`.
        let old = self.current.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        // SAFETY: it is from a box, and the guard keeps it from being freed.
        let bytes = weigh(unsafe { &*old });
        // SAFETY: it was unlinked just now, is from a box, and is retired once.
        unsafe { Retiring::new(guard, None).retire_whole(old.cast(), drop_box::<T>, bytes) };
    }
}

/// Drops a value that a box held.
///
/// # Safety
///
/// The pointer is from a box of this type, and is not used again.
unsafe fn drop_box<T>(value: *mut u8) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

impl<T> Drop for Swap<T> {
    fn drop(&mut self) {
        let guard = pin();
        // Acquire: pairs with the Release in `replace`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: never null.
        let bytes = (self.weigh)(unsafe { &*current });
        // SAFETY: no other thread can reach it any more; it is from a box, and is retired once.
        unsafe { Retiring::new(&guard, None).retire_whole(current.cast(), drop_box::<T>, bytes) };
    }
}

impl<T> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swap").finish_non_exhaustive()
    }
}
