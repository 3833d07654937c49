//! Answers for stored rows, each at its own position: what VERIFY compares with batch mode.
//!
//! The program is the one that serves requests, over the same indexes and the columns that they
//! include. A window sees the rows before the row's own position in the order of that window, (order
//! value, arrival); a join and a union source see what they see in batch mode. All rows are answered
//! over one view of the tables, which the caller has taken.

use std::sync::OnceLock;

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

/// A program with what batch mode computes for it over the tables as they are at one moment: what
/// replays over that moment share, also those of other threads.
#[derive(Debug)]
pub struct ReplayProgram<'p> {
    program: &'p Program,
    results: MaterialisedResults,
}

/// Answers for stored rows over one view of the tables. While it exists, no removed row is freed.
pub struct Replay<'p> {
    program: &'p Program,
    scratch: PooledScratch<'p>,
    snapshots: Vec<Snapshot<'p>>,
    results: &'p MaterialisedResults,
    takes_nodes: bool,
}

impl Program {
    /// Prepares answers for stored rows. `run` runs plans in batch mode over the tables as the answers
    /// are to see them. Fails for programs that are not compiled.
    pub fn for_replay(
        &self,
        run: &mut dyn FnMut(&LogicalPlan) -> Result<Vec<RecordBatch>>,
    ) -> Result<ReplayProgram<'_>> {
        if !self.is_compiled() {
            let message = "batch mode answers each request of this query";
            return Diagnostic::internal(message).err();
        }
        let results = self.materialised().map(|plan| {
            let rows = MaterialisedRows::from_batches(&run(plan)?);
            Ok(OnceLock::from(rows))
        });
        Ok(ReplayProgram { program: self, results: results.collect::<Result<_>>()? })
    }
}

impl ReplayProgram<'_> {
    /// Begins to answer over snapshots of that moment, one for each of [`Program::tables`].
    pub fn over<'s>(&'s self, snapshots: Vec<Snapshot<'s>>) -> Result<Replay<'s>> {
        let Self { program, results } = self;
        if snapshots.len() != program.tables().count() {
            return Diagnostic::internal("a replay needs a snapshot of each table of the program")
                .err();
        }
        let scratch = program.acquire_scratch();
        Ok(Replay { program, scratch, snapshots, results, takes_nodes: true })
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
        self.snapshots.iter_mut().for_each(Snapshot::release_pages);
        let (scratch, snapshots, takes_nodes) =
            (&*self.scratch, &self.snapshots[..], self.takes_nodes);
        let view = AnswerView { scratch, snapshots, results: self.results, takes_nodes };
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
