//! What one answer works with: the snapshots it reads, its scratch memory, and the results of
//! sub-plans that had to be run as a whole.
//!
//! Scratch memory is kept between answers in a [`ScratchPool`], so that an answer allocates only
//! where it has to grow.

use std::{cell::OnceCell, cell::RefCell, fmt};

use lockstep_diagnostic::Result;
use lockstep_host::sync::Mutex;
use lockstep_row::Arena;
use lockstep_table::Snapshot;

use crate::{
    frame::Leaf,
    materialise::{BatchFallback, Materialised, MaterialisedRows},
    shared::Shared,
    window::ScanScratch,
};

/// Everything that evaluation needs besides the row. `'s` is the time of one answer.
pub(crate) struct Context<'s> {
    /// The request row and its arrival.
    pub(crate) request: (Leaf<'s>, u64),
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
        let rows = self.materialised[index].rows(self.batch)?;
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

/// Memory of answers that are over, for those to come. As many as were ever given at once.
#[derive(Default)]
pub(crate) struct ScratchPool(Mutex<Vec<Scratch>>);

impl ScratchPool {
    /// Takes scratch memory, or makes it.
    pub(crate) fn take(&self, make: impl FnOnce() -> Scratch) -> Scratch {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(make)
    }

    /// Keeps scratch memory for the next answer.
    pub(crate) fn put(&self, scratch: Scratch) {
        self.0.lock().push(scratch);
    }
}

impl fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPool").finish_non_exhaustive()
    }
}
