//! A directory: an array of pointers, to the chunks of a key or to the blocks of a log.
//!
//! `entry` and `log` write under a lock; their readers walk it. Owns nothing that it points to. Rules
//! 3 to 5 of the crate's protocol.

use std::ptr;

use lockstep_host::memory::footprint;

use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// An array of pointers, oldest first, to which pointers are appended until it is full.
pub(crate) struct Directory<T> {
    /// The number of pointers. Grows only.
    len: AtomicUsize,
    /// Not null below `len`. Replaced under the lock when what one points to is copied.
    pointers: Box<[AtomicPtr<T>]>,
}

/// A pointer that replaces the one at a position, alone or together with those that follow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replacement<T> {
    /// The position of the pointer that is replaced.
    pub(crate) at: usize,
    pub(crate) pointer: *mut T,
}

impl<T> Directory<T> {
    /// Makes a directory of this capacity.
    pub(crate) fn make(pointers: &[*mut T], capacity: usize) -> *mut Self {
        assert!(pointers.len() <= capacity, "the pointers fit");
        let empty = (pointers.len()..capacity).map(|_| ptr::null_mut());
        let filled = pointers.iter().copied().chain(empty).map(AtomicPtr::new).collect();
        Box::into_raw(Box::new(Self { len: AtomicUsize::new(pointers.len()), pointers: filled }))
    }

    /// Makes a directory in which some pointers are replaced, each by one or several. Those are given
    /// in order.
    pub(crate) fn replacing(&self, made: &[Replacement<T>]) -> *mut Self {
        let mut pointers = Vec::with_capacity(self.len() + made.len());
        let mut from = 0;
        for made in made.chunk_by(|one, other| one.at == other.at) {
            let at = made[0].at;
            pointers.extend((from..at).map(|at| self.get(at)));
            pointers.extend(made.iter().map(|made| made.pointer));
            from = at + 1;
        }
        pointers.extend((from..self.len()).map(|at| self.get(at)));
        Self::make(&pointers, directory_capacity(pointers.len()))
    }

    /// Frees a directory, not what it points to.
    ///
    /// # Safety
    ///
    /// It is from [`Self::make`]; no other thread can reach it, and it is freed once.
    pub(crate) unsafe fn free(directory: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(directory.cast::<Self>()) });
    }

    /// Returns the bytes of memory that it takes, without what it points to.
    pub(crate) fn memory_bytes(&self) -> usize {
        directory_footprint(self.pointers.len())
    }

    /// Returns the number of pointers.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.len.load(Ordering::Acquire)
    }

    /// Returns a pointer below the length.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> *mut T {
        // Acquire: pairs with the Release in `replace`, and with `len` for the first one.
        let pointer = self.pointers[at].load(Ordering::Acquire);
        debug_assert!(!pointer.is_null(), "below the length there are pointers");
        pointer
    }

    /// Returns all pointers.
    pub(crate) fn to_vec(&self) -> Vec<*mut T> {
        (0..self.len()).map(|at| self.get(at)).collect()
    }

    /// Counts the first `count` pointers for which `is_before` holds; it holds for a prefix.
    #[inline]
    pub(crate) fn partition_point(
        &self,
        count: usize,
        is_before: impl Fn(*mut T) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends a pointer. Returns `false` when the directory is full. Under the lock.
    #[must_use]
    pub(crate) fn push(&self, pointer: *mut T) -> bool {
        // Relaxed: only the holder of the lock writes.
        let len = self.len.load(Ordering::Relaxed);
        let Some(slot) = self.pointers.get(len) else { return false };
        debug_assert!(!pointer.is_null(), "a directory points to something");
        // Release: pairs with the Acquire in `get`.
        slot.store(pointer, Ordering::Release);
        // Release: pairs with the Acquire in `len`.
        self.len.store(len + 1, Ordering::Release);
        true
    }

    /// Replaces a pointer below the length, and returns the old one. Under the lock.
    pub(crate) fn replace(&self, at: usize, pointer: *mut T) -> *mut T {
        debug_assert!(!pointer.is_null(), "a directory points to something");
        // AcqRel: pairs with the Acquire in `get`.
        self.pointers[at].swap(pointer, Ordering::AcqRel)
    }
}

/// Returns the bytes of memory that a directory of this capacity takes.
pub(crate) const fn directory_footprint(capacity: usize) -> usize {
    footprint(size_of::<Directory<u8>>()) + footprint(capacity * size_of::<*mut u8>())
}

/// Returns the capacity of a directory that is made for `len` pointers because the one before was
/// full.
pub(crate) fn directory_capacity(len: usize) -> usize {
    // Half as much again: directories are small beside what they lead to.
    (len + len / 2 + 1).next_multiple_of(2)
}
