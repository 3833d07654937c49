//! What one answer works with: the snapshots it reads, its scratch memory, and the results of
//! sub-plans that had to be run as a whole.
//!
//! Scratch memory is kept between answers in a [`ScratchPool`], so that an answer allocates only
//! where it has to grow. Nobody waits for it. What an answer leaves behind is kept up to
//! [`KEPT_BYTES_MAX`], and charged to the memory budget of the tables where it is more than
//! [`UNCHARGED_BYTES_MAX`].

use std::{
    cell::{OnceCell, RefCell},
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::{query, sync::Mutex};
use lockstep_row::Arena;
use lockstep_table::{MemoryBudget, Snapshot};

use crate::{
    frame::Leaf,
    kept::KeptFrames,
    materialise::{BatchFallback, Materialised, MaterialisedRows},
    shared::Shared,
    source::Candidate,
    window::ScanScratch,
};

/// The arrival of a request row that is not stored: it comes after all stored rows.
pub(crate) const STORED_LATER: u64 = u64::MAX;

/// The request row as a row of a source, once somebody has asked; `None` when it is none of its.
pub(crate) type KeptRequestRow<'s> = OnceCell<Option<Candidate<'s>>>;

/// Everything that evaluation needs besides the row. `'s` is the time of one answer.
pub(crate) struct Context<'s> {
    /// The request row and its arrival.
    pub(crate) request: (Leaf<'s>, u64),
    /// The request row as a row of each source that holds it.
    pub(crate) request_rows: &'s [KeptRequestRow<'s>],
    /// The rows of each source that has windows.
    pub(crate) kept_frames: &'s [KeptFrames<'s>],
    /// One for each table of the program, all taken at the start.
    pub(crate) snapshots: &'s [Snapshot<'s>],
    /// Values that live until the answer is given.
    pub(crate) arena: &'s Arena,
    /// For each scan of the program.
    pub(crate) scans: &'s [RefCell<ScanScratch>],
    /// Where keys are encoded.
    pub(crate) key_buffers: &'s RefCell<[Vec<u8>; 2]>,
    /// The plans that are run as a whole.
    pub(crate) materialised: &'s [Materialised],
    /// Their results, as far as somebody asked.
    pub(crate) results: &'s [OnceCell<MaterialisedRows>],
    /// Runs them.
    pub(crate) batch: &'s dyn BatchFallback,
    /// What earlier requests of the same batch have found.
    pub(crate) shared: Option<Shared<'s>>,
}

/// The results of plans that are run as a whole, as far as somebody asked.
pub(crate) type Results = Vec<OnceCell<MaterialisedRows>>;

impl<'s> Context<'s> {
    /// The rows of a materialised plan; it runs when somebody asks for the first time.
    pub(crate) fn materialised_rows(&self, index: usize) -> Result<&'s MaterialisedRows> {
        if let Some(rows) = self.results[index].get() {
            return Ok(rows);
        }
        let (leaf, arrival) = self.request;
        let request = match leaf {
            Leaf::Values(row) if arrival == STORED_LATER => Some(row),
            Leaf::Values(_) | Leaf::Stored(_) => None,
        };
        let rows = self.materialised[index].rows(request, self.batch)?;
        Ok(self.results[index].get_or_init(|| rows))
    }
}

/// After how many rows of a walk it is asked whether to go on.
pub(crate) const ROWS_PER_CHECKPOINT: usize = 1 << 10;

/// Ends an answer whose call was interrupted. To be asked every few microseconds of work.
#[inline]
pub(crate) fn checkpoint() -> Result<()> {
    match query::checkpoint() {
        Ok(()) => Ok(()),
        Err(interrupt) => Diagnostic::interrupted(interrupt.limit_ms()).err(),
    }
}

/// The memory of one answer.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) arena: Arena,
    pub(crate) scans: Vec<RefCell<ScanScratch>>,
    pub(crate) key_buffers: RefCell<[Vec<u8>; 2]>,
    /// What of it is charged.
    charge: Charge,
}

/// The most bytes that are kept of the memory of one answer; with more it is freed.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// Memory of answers up to this many bytes is not charged: every program has it.
const UNCHARGED_BYTES_MAX: usize = 1 << 20;

/// Room in a memory budget.
#[derive(Default)]
struct Charge {
    budget: Option<Arc<MemoryBudget>>,
    bytes: u64,
}

impl Charge {
    /// Takes room for so many bytes in place of what it has; whether there is any.
    fn set(&mut self, bytes: u64) -> bool {
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

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            budget.give_back(self.bytes);
        }
    }
}

impl Scratch {
    /// Memory that is charged to this budget.
    pub(crate) fn new(scans: Vec<RefCell<ScanScratch>>, budget: Option<Arc<MemoryBudget>>) -> Self {
        Self { scans, charge: Charge { budget, bytes: 0 }, ..Self::default() }
    }

    /// Whether it may be kept: it is not too much, and there is room for it.
    fn may_be_kept(&mut self) -> bool {
        let scans: usize = self.scans.iter_mut().map(|scan| scan.get_mut().kept_bytes()).sum();
        let bytes = scans + self.arena.allocated_bytes();
        if bytes > KEPT_BYTES_MAX {
            return false;
        }
        let charged = if bytes > UNCHARGED_BYTES_MAX { bytes as u64 } else { 0 };
        charged == self.charge.bytes || self.charge.set(charged)
    }
}

/// Memory of answers that are over, for those to come: of as many threads as there are slots, each
/// of which gets what it gave back.
#[derive(Default)]
pub(crate) struct ScratchPool {
    slots: [Slot; SLOT_COUNT],
}

/// Answers that are given at once by more threads than this allocate.
const SLOT_COUNT: usize = 16;

/// Aligned so that threads that use different ones do not write one cache line. The lock is only
/// tried.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Scratch>>);

/// The number of the next thread that asks for its own.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Relaxed: a number that differs from those of most other threads.
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl ScratchPool {
    /// Lends scratch memory, or makes it.
    pub(crate) fn lend(&self, make: impl FnOnce() -> Scratch) -> Lent<'_> {
        let take = |slot: &Slot| slot.0.try_lock()?.take();
        let kept = self.slots().find_map(take);
        Lent { pool: self, scratch: kept.unwrap_or_else(make) }
    }

    /// All slots, the thread's own first.
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let own = THREAD.with(|number| number % SLOT_COUNT);
        self.slots[own..].iter().chain(&self.slots[..own])
    }
}

/// Scratch memory that goes back to its pool.
pub(crate) struct Lent<'p> {
    pool: &'p ScratchPool,
    scratch: Scratch,
}

impl Deref for Lent<'_> {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.scratch
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // What a panic leaves behind is not used again.
        if std::thread::panicking() || !self.scratch.may_be_kept() {
            return;
        }
        let free =
            self.pool.slots().find_map(|slot| slot.0.try_lock().filter(|kept| kept.is_none()));
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

    use super::{KEPT_BYTES_MAX, Scratch, ScratchPool, UNCHARGED_BYTES_MAX};

    #[test]
    fn what_an_answer_leaves_behind_is_charged_and_limited() {
        let budget: Arc<MemoryBudget> = Arc::default();
        let pool = ScratchPool::default();
        let make = || Scratch::new(Vec::new(), Some(Arc::clone(&budget)));
        let leave = |bytes: usize| {
            let lent = pool.lend(make);
            lent.arena.alloc_slice_fill_copy(bytes, 0_u8);
            drop(lent);
            usize::try_from(budget.memory_use().used).unwrap()
        };
        assert_eq!(leave(1_000), 0);
        let charged = leave(2 * UNCHARGED_BYTES_MAX);
        assert!((2 * UNCHARGED_BYTES_MAX..KEPT_BYTES_MAX).contains(&charged), "{charged}");
        assert_eq!(leave(KEPT_BYTES_MAX), 0, "it is freed, and the next answer begins anew");
        assert_eq!(leave(1_000), 0);
        // Without room it is not kept.
        budget.set_limit(Some(1));
        assert_eq!(leave(2 * UNCHARGED_BYTES_MAX), 0);
        budget.set_limit(None);
        leave(2 * UNCHARGED_BYTES_MAX);
        drop(pool);
        assert_eq!(budget.memory_use().used, 0);
    }
}
