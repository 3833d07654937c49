//! Answers for stored rows, each at its own position: what VERIFY compares with batch mode.
//!
//! The program is the one that serves requests, over the same indexes and the columns that they
//! include. A window sees the rows before the row's own position in the order of that window, (order
//! value, arrival); a join and a union source see what they see in batch mode. All rows are answered
//! over one view of the tables, which the caller has taken.

use std::cell::OnceCell;

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use crate::{
    context::MaterialisedResults,
    materialise::MaterialisedRows,
    program::{AnswerView, Program},
    row_context::ArrivedRow,
    scratch::PooledScratch,
};

/// Answers for stored rows over one view of the tables. While it exists, no removed row is freed.
pub struct Replay<'p> {
    program: &'p Program,
    scratch: PooledScratch<'p>,
    snapshots: Vec<Snapshot<'p>>,
    results: MaterialisedResults,
    takes_nodes: bool,
}

impl Program {
    /// Begins to answer for stored rows over these snapshots, one for each of [`Self::tables`]. `run`
    /// runs plans in batch mode over the same snapshots. Fails for programs that are not compiled.
    pub fn replay<'p>(
        &'p self,
        snapshots: Vec<Snapshot<'p>>,
        run: &mut dyn FnMut(&LogicalPlan) -> Result<Vec<RecordBatch>>,
    ) -> Result<Replay<'p>> {
        if !self.is_compiled() {
            let message = "batch mode answers each request of this query";
            return Diagnostic::internal(message).err();
        }
        if snapshots.len() != self.tables().count() {
            return Diagnostic::internal("a replay needs a snapshot of each table of the program")
                .err();
        }
        let results = self.materialised().map(|plan| {
            let rows = MaterialisedRows::from_batches(&run(plan)?);
            Ok(OnceCell::from(rows))
        });
        let results = results.collect::<Result<_>>()?;
        let scratch = self.acquire_scratch();
        Ok(Replay { program: self, scratch, snapshots, results, takes_nodes: true })
    }
}

impl Replay<'_> {
    /// Takes no nodes of pre-aggregates: for snapshots that were cut, since nodes have later rows.
    #[must_use]
    pub fn without_nodes(self) -> Self {
        Self { takes_nodes: false, ..self }
    }

    /// Answers for a row that is stored with this arrival; `None` when the query has no row for it.
    /// The answer is allocated in the arena.
    pub fn answer<'a>(
        &mut self,
        row: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        self.program.check_width(row)?;
        self.scratch.arena.reset();
        let (scratch, snapshots, takes_nodes) =
            (&*self.scratch, &self.snapshots[..], self.takes_nodes);
        let view = AnswerView { scratch, snapshots, results: &self.results, takes_nodes };
        let ctx = self.program.context(ArrivedRow::values(row, arrival), view, None);
        let answer = self.program.answer_one(&ctx)?;
        Ok(answer.map(|answer| answer.copy_into(arena)))
    }
}

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}
