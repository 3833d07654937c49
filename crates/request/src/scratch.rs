//! The scratch memory of answers, and the pool that reuses it.
//!
//! A program has a [`ScratchPool`], so that an answer allocates only where the memory of an earlier
//! one does not suffice. No thread waits for another. Memory goes back to the pool with up to
//! [`POOLED_BYTES_MAX`], and is reserved in the memory budget of the tables when it has more than
//! [`UNRESERVED_BYTES_MAX`].

use std::{
    cell::RefCell,
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_host::sync::Mutex;
use lockstep_row::Arena;
use lockstep_table::MemoryBudget;

use crate::window::ScanScratch;

/// The memory of one answer.
#[derive(Default)]
pub(crate) struct AnswerScratch {
    pub(crate) arena: Arena,
    pub(crate) scans: Vec<RefCell<ScanScratch>>,
    pub(crate) key_buffers: RefCell<[Vec<u8>; 2]>,
    /// What is reserved for it while it is in the pool.
    reservation: MemoryReservation,
}

/// The most bytes of one answer's memory that go back to the pool; with more it is freed.
const POOLED_BYTES_MAX: usize = 16 << 20;
/// Memory of up to this many bytes is not reserved: every program has some.
const UNRESERVED_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(UNRESERVED_BYTES_MAX < POOLED_BYTES_MAX);

/// Bytes that are reserved in a memory budget until this is dropped.
#[derive(Default)]
struct MemoryReservation {
    budget: Option<Arc<MemoryBudget>>,
    bytes: u64,
}

impl MemoryReservation {
    /// Changes the reservation to this many bytes. Returns whether the budget allows it.
    fn resize(&mut self, bytes: u64) -> bool {
        let Some(budget) = &self.budget else { return true };
        if bytes > self.bytes && !budget.take(bytes - self.bytes) {
            return false;
        }
        if bytes < self.bytes {
            budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            budget.give_back(self.bytes);
        }
    }
}

impl AnswerScratch {
    /// Makes scratch memory that reserves its bytes in this budget.
    pub(crate) fn new(scans: Vec<RefCell<ScanScratch>>, budget: Option<Arc<MemoryBudget>>) -> Self {
        Self { scans, reservation: MemoryReservation { budget, bytes: 0 }, ..Self::default() }
    }

    /// Reserves what the memory takes in the pool. Returns whether it may go back there.
    fn reserve_for_pool(&mut self) -> bool {
        let scans = self.scans.iter_mut().map(|scan| scan.get_mut().retained_bytes());
        let bytes = scans.sum::<usize>() + self.arena.allocated_bytes();
        if bytes > POOLED_BYTES_MAX {
            return false;
        }
        let reserved = if bytes > UNRESERVED_BYTES_MAX { bytes as u64 } else { 0 };
        reserved == self.reservation.bytes || self.reservation.resize(reserved)
    }
}

/// The memory of past answers, for the next ones: of as many threads as there are slots, each of
/// which gets what it returned.
#[derive(Default)]
pub(crate) struct ScratchPool {
    slots: [PoolSlot; SLOT_COUNT],
}

/// When more threads than this answer at once, the others allocate.
const SLOT_COUNT: usize = 16;

/// The memory of one thread. Aligned so that threads with different slots do not write to the same
/// cache line. The lock is only tried.
#[derive(Default)]
#[repr(align(64))]
struct PoolSlot(Mutex<Option<AnswerScratch>>);

/// The number of the next thread that answers for the first time.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Relaxed: a number that differs from those of most other threads.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl ScratchPool {
    /// Takes scratch memory out of the pool, or makes some.
    pub(crate) fn acquire(&self, make: impl FnOnce() -> AnswerScratch) -> PooledScratch<'_> {
        let take = |slot: &PoolSlot| slot.0.try_lock()?.take();
        let pooled = self.slots().find_map(take);
        PooledScratch { pool: self, scratch: pooled.unwrap_or_else(make) }
    }

    /// Returns all slots, the thread's own first.
    fn slots(&self) -> impl Iterator<Item = &PoolSlot> {
        let own = THREAD.with(|number| number % SLOT_COUNT);
        self.slots[own..].iter().chain(&self.slots[..own])
    }
}

/// Scratch memory that goes back to its pool when it is dropped.
pub(crate) struct PooledScratch<'p> {
    pool: &'p ScratchPool,
    scratch: AnswerScratch,
}

impl Deref for PooledScratch<'_> {
    type Target = AnswerScratch;

    fn deref(&self) -> &AnswerScratch {
        &self.scratch
    }
}

impl DerefMut for PooledScratch<'_> {
    fn deref_mut(&mut self) -> &mut AnswerScratch {
        &mut self.scratch
    }
}

impl Drop for PooledScratch<'_> {
    fn drop(&mut self) {
        // After a panic the memory is not used again.
        if std::thread::panicking() || !self.scratch.reserve_for_pool() {
            return;
        }
        let free =
            self.pool.slots().find_map(|slot| slot.0.try_lock().filter(|slot| slot.is_none()));
        if let Some(mut free) = free {
            *free = Some(std::mem::take(&mut self.scratch));
        }
    }
}

impl fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_table::MemoryBudget;

    use super::{AnswerScratch, POOLED_BYTES_MAX, ScratchPool, UNRESERVED_BYTES_MAX};

    #[test]
    fn the_memory_of_an_answer_is_reserved_and_limited() {
        let budget: Arc<MemoryBudget> = Arc::default();
        let pool = ScratchPool::default();
        let make = || AnswerScratch::new(Vec::new(), Some(Arc::clone(&budget)));
        let reserved_after = |bytes: usize| {
            let scratch = pool.acquire(make);
            scratch.arena.alloc_slice_fill_copy(bytes, 0_u8);
            drop(scratch);
            usize::try_from(budget.memory_use().used).unwrap()
        };
        assert_eq!(reserved_after(1_000), 0);
        let reserved = reserved_after(2 * UNRESERVED_BYTES_MAX);
        assert!((2 * UNRESERVED_BYTES_MAX..POOLED_BYTES_MAX).contains(&reserved), "{reserved}");
        assert_eq!(reserved_after(POOLED_BYTES_MAX), 0, "it is freed, and the next one is new");
        assert_eq!(reserved_after(1_000), 0);
        // When the budget does not allow it, the memory is freed.
        budget.set_limit(Some(1));
        assert_eq!(reserved_after(2 * UNRESERVED_BYTES_MAX), 0);
        budget.set_limit(None);
        reserved_after(2 * UNRESERVED_BYTES_MAX);
        drop(pool);
        assert_eq!(budget.memory_use().used, 0);
    }
}
