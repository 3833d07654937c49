//! Blocks of rows on their way from the sources of a scan to what its windows compute: a block ends
//! where the groups that take its rows, or the source, change.
//!
//! `merge` feeds them; what is computed from a block is in [`crate::fold`].

use bumpalo::collections::Vec as ArenaVec;
use lockstep_row::{Arena, Datum};
use lockstep_table::{KeyRun, StoredRow};

use crate::{
    fold::{CurrentInputs, FoldScratch},
    frame::{Frame, Leaf},
    lane::{BLOCK_ROWS, Buffers, LANE_ROWS},
    window::Scan,
};

/// Rows that the same groups take, from one source.
pub(crate) struct Block<'b, 's> {
    scan: &'s Scan,
    folds: &'b mut FoldScratch,
    /// Where answers go.
    slots: &'b mut [Datum<'s>],
    arena: &'s Arena,
    rows: ArenaVec<'s, Frame<'s, 's>>,
    buffers: Buffers<'s>,
    source: usize,
    takers: u64,
}

impl<'b, 's> Block<'b, 's> {
    pub(crate) fn new(
        scan: &'s Scan,
        folds: &'b mut FoldScratch,
        slots: &'b mut [Datum<'s>],
        arena: &'s Arena,
    ) -> Self {
        let rows = ArenaVec::with_capacity_in(BLOCK_ROWS, arena);
        Self { scan, folds, slots, arena, rows, buffers: Buffers::new(), source: 0, takers: 0 }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, source: usize, takers: u64, row: &Frame<'s, 's>) {
        if takers == 0 {
            return;
        }
        let differs = takers != self.takers || source != self.source;
        if differs || self.rows.len() == BLOCK_ROWS {
            self.flush();
            (self.source, self.takers) = (source, takers);
        }
        self.scan.sources[source].inputs.prefetch(row);
        self.rows.push(*row);
    }

    /// The request row, which is no stored row: expressions read it.
    pub(crate) fn push_request(
        &mut self,
        takers: u64,
        inputs: &'s CurrentInputs,
        row: &Frame<'s, 's>,
    ) {
        if takers == 0 {
            return;
        }
        self.flush();
        self.scan.folding.leave(self.folds, takers, self.slots, self.arena);
        self.scan.folding.add_current(self.folds, takers, (inputs, row), self.arena);
    }

    /// Rows of one source that follow each other.
    pub(crate) fn push_run(&mut self, source: usize, takers: u64, run: &KeyRun<'s>) {
        let inputs = &self.scan.sources[source].inputs;
        for start in (0..run.len()).step_by(LANE_ROWS) {
            let part = run.slice(start..run.len().min(start + LANE_ROWS));
            let records = part.records().filter(|_| !inputs.records.is_empty());
            let Some(records) = records else {
                let rows = (0..part.len()).map(|at| stored_frame(part.stored_row(at)));
                rows.for_each(|row| self.push(source, takers, &row));
                continue;
            };
            self.flush();
            self.scan.folding.leave(self.folds, takers, self.slots, self.arena);
            let buffers = (&mut self.buffers, self.arena);
            self.scan.folding.add_records(self.folds, takers, (inputs, &part, records), buffers);
        }
    }

    #[inline(never)]
    pub(crate) fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let inputs = &self.scan.sources[self.source].inputs;
        self.scan.folding.leave(self.folds, self.takers, self.slots, self.arena);
        let buffers = (&mut self.buffers, self.arena);
        self.scan.folding.add(self.folds, self.takers, (inputs, &self.rows), buffers);
        self.rows.clear();
    }
}

/// A row of a table that is a row of its source as it is.
pub(crate) fn stored_frame<'s>(row: StoredRow<'s>) -> Frame<'s, 's> {
    Frame { leaf: Leaf::Stored(row.row), slots: &[] }
}
