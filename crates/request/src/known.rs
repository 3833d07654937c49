//! Answers for stored rows as requests at the moments at which they arrived: what an as-known training
//! set has, and what VERIFY compares where only batch mode can say what an answer is.
//!
//! A row is a request over snapshots that end before it ([`lockstep_table::Snapshot::before`]), so
//! the answer is by definition what a request at that moment was given. Batch mode runs parts of a
//! query, or all of it, over the same snapshots. (ADR 0040)
//!
//! *Cost*: a request for each row, without nodes of pre-aggregates, which have later rows too; what
//! batch mode runs for a request is run for each row.

use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use crate::{
    context::REQUEST_ARRIVAL,
    materialise::PlanRunner,
    program::{AnswerView, Program},
    row_context::ArrivedRow,
    scratch::PooledScratch,
};

/// The moment of a request: the tables as they were.
#[derive(Clone, Copy)]
pub struct KnownMoment<'s> {
    /// A snapshot for each of [`Program::tables`].
    pub snapshots: &'s [Snapshot<'s>],
    /// Runs plans over the same rows.
    pub batch: &'s dyn PlanRunner,
}

impl std::fmt::Debug for KnownMoment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownMoment").field("snapshots", &self.snapshots).finish_non_exhaustive()
    }
}

/// Answers to requests, each at a moment of its own.
pub struct KnownAnswers<'p> {
    program: &'p Program,
    scratch: PooledScratch<'p>,
}

impl Program {
    /// Begins to answer requests at moments that the caller gives.
    pub fn known_answers(&self) -> KnownAnswers<'_> {
        KnownAnswers { program: self, scratch: self.acquire_scratch() }
    }
}

impl KnownAnswers<'_> {
    /// Answers a request row at a moment: passes each row of the answer to `emit`.
    pub fn answer(
        &mut self,
        request: &[Datum<'_>],
        moment: KnownMoment<'_>,
        emit: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        self.program.check_width(request)?;
        if let Some(all_rows) = &self.program.all_rows {
            let rows = all_rows.answer(request, moment.batch)?;
            let read = Arena::new();
            rows.iter(&read).for_each(emit);
            return Ok(());
        }
        self.scratch.arena.reset();
        let results = self.program.no_results();
        let (scratch, snapshots) = (&*self.scratch, moment.snapshots);
        let view = AnswerView { scratch, snapshots, results: &results, takes_nodes: false };
        let mut ctx =
            self.program.context(ArrivedRow::values(request, REQUEST_ARRIVAL), view, None);
        ctx.batch = moment.batch;
        if let Some(answer) = self.program.answer_one(&ctx)? {
            let values = answer.values().map(Datum::with_one_nan);
            emit(scratch.arena.alloc_slice_fill_iter(values));
        }
        Ok(())
    }
}

impl std::fmt::Debug for KnownAnswers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownAnswers").finish_non_exhaustive()
    }
}
