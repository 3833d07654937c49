//! The context of one answer: the request row, the snapshots it is answered over, scratch memory, and
//! the results of sub-plans that batch mode runs.

use std::{
    cell::{OnceCell, RefCell},
    sync::OnceLock,
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::query;
use lockstep_row::Arena;
use lockstep_table::Snapshot;

use crate::{
    compile::ProgramTable,
    materialise::{Materialised, MaterialisedRows, PlanRunner, SeenSnapshots},
    row_cache::RowCache,
    row_context::{ArrivedRow, LeafRow},
    shared::SharedResults,
    source::SourceRow,
    window::ScanScratch,
};

/// The arrival of a request row that is not stored: it comes after all stored rows.
pub(crate) const REQUEST_ARRIVAL: u64 = u64::MAX;

/// The request row as a row of a source, once it was computed; `None` when the chain of the source
/// dropped it.
pub(crate) type CachedRequestRow<'s> = OnceCell<Option<SourceRow<'s>>>;

/// The results of materialised plans, once they were run.
pub(crate) type MaterialisedResults = Vec<OnceLock<MaterialisedRows>>;

/// Everything that evaluation needs besides the row. `'s` is the time of one answer.
pub(crate) struct AnswerContext<'s> {
    pub(crate) request: ArrivedRow<'s>,
    /// The request row as a row of each source that may have it.
    pub(crate) request_rows: &'s [CachedRequestRow<'s>],
    /// For each source that has windows.
    pub(crate) row_caches: &'s [RowCache<'s>],
    /// For each table of the program, all taken at the start.
    pub(crate) snapshots: &'s [Snapshot<'s>],
    /// Holds values until the answer is returned.
    pub(crate) arena: &'s Arena,
    /// For each scan of the program.
    pub(crate) scans: &'s [RefCell<ScanScratch>],
    /// Buffers for two encoded keys.
    pub(crate) key_buffers: &'s RefCell<[Vec<u8>; 2]>,
    /// The tables of the program, parallel to `snapshots`.
    pub(crate) tables: &'s [ProgramTable],
    /// The plans that batch mode runs.
    pub(crate) materialised: &'s [Materialised],
    /// Parallel to `materialised`.
    pub(crate) results: &'s [OnceLock<MaterialisedRows>],
    pub(crate) batch: &'s dyn PlanRunner,
    /// Whether nodes of pre-aggregates are taken in place of rows.
    pub(crate) takes_nodes: bool,
    /// The results of earlier requests of the same batch.
    pub(crate) shared: Option<SharedResults<'s>>,
}

impl<'s> AnswerContext<'s> {
    /// Returns the rows of a materialised plan, which is run the first time.
    pub(crate) fn materialised_rows(&self, index: usize) -> Result<&'s MaterialisedRows> {
        if let Some(rows) = self.results[index].get() {
            return Ok(rows);
        }
        let request = match self.request.leaf {
            LeafRow::Values(row) if self.request.arrival == REQUEST_ARRIVAL => Some(row),
            LeafRow::Values(_) | LeafRow::Stored(_) => None,
        };
        let seen = SeenSnapshots::new(self.tables, self.snapshots);
        let rows = self.materialised[index].rows(request, self.batch, seen)?;
        Ok(self.results[index].get_or_init(|| rows))
    }
}

/// After how many rows of a scan a [`checkpoint`] is due.
pub(crate) const ROWS_PER_CHECKPOINT: usize = 1 << 10;

/// Fails when the call was cancelled or has run out of time. To be called every few microseconds of
/// work.
#[inline]
pub(crate) fn checkpoint() -> Result<()> {
    match query::checkpoint() {
        Ok(()) => Ok(()),
        Err(interrupt) => Diagnostic::interrupted(interrupt.limit_ms()).err(),
    }
}
