//! Pointers to parts that follow each other: the chunks of a key, the blocks of a log.
//!
//! `entry` and `log` write under a lock; their readers walk it. Owns none of the parts. Rules 3 to
//! 5 of the crate's protocol.

use std::ptr;

use lockstep_host::memory::footprint;

use super::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Pointers to parts, oldest first.
pub(crate) struct Spine<T> {
    /// How many parts there are. Grows only.
    len: AtomicUsize,
    /// Not null below `len`. Replaced under the lock when a part is copied.
    parts: Box<[AtomicPtr<T>]>,
}

impl<T> Spine<T> {
    /// Makes a spine of some parts with room for more.
    pub(crate) fn make(parts: &[*mut T], capacity: usize) -> *mut Self {
        let empty = (parts.len()..capacity).map(|_| ptr::null_mut());
        let filled = parts.iter().copied().chain(empty).map(AtomicPtr::new).collect();
        Box::into_raw(Box::new(Self { len: AtomicUsize::new(parts.len()), parts: filled }))
    }

    /// Makes a spine of the same parts but for some: each pair, in order, is the place of a part that
    /// goes and one of those, in order, that come in its place.
    pub(crate) fn replacing(&self, made: &[(usize, *mut T)]) -> *mut Self {
        let mut parts = Vec::with_capacity(self.len() + made.len());
        let mut from = 0;
        for made in made.chunk_by(|one, other| one.0 == other.0) {
            let at = made[0].0;
            parts.extend((from..at).map(|at| self.part(at)));
            parts.extend(made.iter().map(|(_, part)| *part));
            from = at + 1;
        }
        parts.extend((from..self.len()).map(|at| self.part(at)));
        Self::make(&parts, spine_capacity(parts.len()))
    }

    /// Frees a spine, not its parts.
    ///
    /// # Safety
    ///
    /// It came out of [`Self::make`]; nobody can reach it any more, and it is freed once.
    pub(crate) unsafe fn free(spine: *mut u8) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(spine.cast::<Self>()) });
    }

    /// Bytes of memory that it takes, without the parts.
    pub(crate) fn memory_bytes(&self) -> usize {
        spine_footprint(self.parts.len())
    }

    /// How many parts there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`.
        self.len.load(Ordering::Acquire)
    }

    /// A part below the length.
    #[inline]
    pub(crate) fn part(&self, at: usize) -> *mut T {
        // Acquire: pairs with the Release in `replace`, and with `len` for the first one.
        let part = self.parts[at].load(Ordering::Acquire);
        debug_assert!(!part.is_null(), "below the length there are parts");
        part
    }

    /// All parts.
    pub(crate) fn to_vec(&self) -> Vec<*mut T> {
        (0..self.len()).map(|at| self.part(at)).collect()
    }

    /// How many of the first `count` parts `is_before` holds for; it holds for a prefix.
    #[inline]
    pub(crate) fn partition_point(
        &self,
        count: usize,
        is_before: impl Fn(*mut T) -> bool,
    ) -> usize {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.part(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Appends a part; false when there is no room. Under the lock.
    #[must_use]
    pub(crate) fn push(&self, part: *mut T) -> bool {
        // Relaxed: only the holder of the lock writes.
        let len = self.len.load(Ordering::Relaxed);
        let Some(place) = self.parts.get(len) else { return false };
        // Release: pairs with the Acquire in `part`.
        place.store(part, Ordering::Release);
        // Release: pairs with the Acquire in `len`.
        self.len.store(len + 1, Ordering::Release);
        true
    }

    /// Puts another part in the place of one, which it returns. Under the lock.
    pub(crate) fn replace(&self, at: usize, part: *mut T) -> *mut T {
        // AcqRel: pairs with the Acquire in `part`.
        self.parts[at].swap(part, Ordering::AcqRel)
    }
}

/// Bytes of memory that a spine with room for so many parts takes.
pub(crate) const fn spine_footprint(capacity: usize) -> usize {
    footprint(size_of::<Spine<u8>>()) + footprint(capacity * size_of::<*mut u8>())
}

/// The room of a spine that is made because the one before was full.
pub(crate) fn spine_capacity(len: usize) -> usize {
    // Half as much again: spines are small beside what they lead to.
    (len + len / 2 + 1).next_multiple_of(2)
}
