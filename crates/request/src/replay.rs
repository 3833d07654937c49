//! Stored rows as requests, each in its own place: what VERIFY compares with batch mode.
//!
//! The program is the one that serves, over the same indexes and what they include. A window sees
//! the rows before the row's own place in the order of that window, (order value, arrival); a join
//! and a union source see what they see in batch mode. All over one view of the tables, which the
//! caller has taken.

use std::cell::OnceCell;

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use crate::{
    context::{Lent, Results},
    frame::Leaf,
    materialise::{MaterialisedRows, copy_into},
    program::Program,
};

/// Answers for stored rows. While it lives, no removed row is freed.
pub struct Replay<'p> {
    program: &'p Program,
    scratch: Lent<'p>,
    snapshots: Vec<Snapshot<'p>>,
    results: Results,
}

impl Program {
    /// Begins to replay rows over these views of the tables, in the order of [`Self::tables`].
    /// `run` runs what batch mode has to, over the same views. Only for programs that are
    /// compiled.
    pub fn replay<'p>(
        &'p self,
        snapshots: Vec<Snapshot<'p>>,
        run: &mut dyn FnMut(&LogicalPlan) -> Result<Vec<RecordBatch>>,
    ) -> Result<Replay<'p>> {
        if !self.is_compiled() {
            let message = "each request runs the whole query: it is batch mode that answers";
            return Diagnostic::unsupported(message).err();
        }
        if snapshots.len() != self.tables().count() {
            return Diagnostic::internal("a replay has a view of each table").err();
        }
        let results = self.materialised().map(|plan| {
            let rows = MaterialisedRows::kept(&run(plan)?);
            Ok(OnceCell::from(rows))
        });
        let results = results.collect::<Result<_>>()?;
        Ok(Replay { program: self, scratch: self.lend_scratch(), snapshots, results })
    }
}

impl Replay<'_> {
    /// The answer for a row that is stored with this arrival; `None` when the query has none for
    /// it. The answer lives in the arena.
    pub fn answer<'a>(
        &mut self,
        row: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        self.program.check_width(row)?;
        self.scratch.arena.reset();
        let view = (&*self.scratch, &self.snapshots[..], &self.results);
        let ctx = self.program.context((Leaf::Values(row), arrival), view, None);
        let answer = self.program.answer_one(&ctx)?;
        Ok(answer.map(|values| {
            &*arena.alloc_slice_fill_iter(values.map(|value| copy_into(value, arena)))
        }))
    }
}

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}
