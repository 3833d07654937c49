//! What one answer works with: the snapshots it reads, its scratch memory, and the results of
//! sub-plans that had to be run as a whole.
//!
//! Scratch memory is kept between answers in a [`ScratchPool`], so that an answer allocates only
//! where it has to grow. Nobody waits for it.

use std::{
    cell::{OnceCell, RefCell},
    fmt,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicUsize, Ordering},
};

use lockstep_diagnostic::Result;
use lockstep_host::sync::Mutex;
use lockstep_row::Arena;
use lockstep_table::Snapshot;

use crate::{
    frame::Leaf,
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

/// The memory of one answer.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) arena: Arena,
    pub(crate) scans: Vec<RefCell<ScanScratch>>,
    pub(crate) key_buffers: RefCell<[Vec<u8>; 2]>,
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
        if std::thread::panicking() {
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
