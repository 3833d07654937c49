//! A batch of requests, answered over one view of the tables.

use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use crate::{
    context::{MaterialisedResults, REQUEST_ARRIVAL, checkpoint},
    program::{AnswerView, Program},
    row_context::ArrivedRow,
    scratch::PooledScratch,
    shared::SharedResults,
};

/// After how many requests a [`checkpoint`] is due.
const REQUESTS_PER_CHECKPOINT: usize = 16;

/// With more scratch memory than this in use, the arena is reset before the next request. The results
/// that requests share are freed with it.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Answers requests over the tables as they were when it was made. While it exists, no removed row is
/// freed. It cannot be sent to another thread.
pub struct RequestBatch<'p> {
    program: &'p Program,
    scratch: PooledScratch<'p>,
    snapshots: Vec<Snapshot<'p>>,
    results: MaterialisedResults,
}

impl Program {
    /// Begins a batch of requests over the tables as they are now.
    pub fn batch(&self) -> RequestBatch<'_> {
        let mut snapshots: Vec<Snapshot<'_>> = self.snapshots().collect();
        Snapshot::align(&mut snapshots);
        RequestBatch {
            program: self,
            scratch: self.acquire_scratch(),
            snapshots,
            results: self.no_results(),
        }
    }
}

impl<'p> RequestBatch<'p> {
    /// Returns the snapshots that requests read, one for each of [`Program::tables`].
    pub fn snapshots(&self) -> &[Snapshot<'p>] {
        debug_assert_eq!(self.snapshots.len(), self.program.tables().count(), "one of each");
        &self.snapshots
    }

    /// Answers requests in their order; none sees another. A request has no answer, one or several,
    /// as [`Program::answer_rows`] says. Stops at the first error.
    ///
    /// *Cost*: what [`Program::answer`] costs for each, but a window or a LAST JOIN is computed once
    /// for requests of one call, not too far apart, that agree on all that it depends on.
    pub fn answer(
        &mut self,
        requests: &[&[Datum<'_>]],
        mut emit: impl FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        if !self.program.is_compiled() {
            let mut arena = Arena::new();
            for request in requests {
                self.program.answer_rows(request, &arena, &mut emit)?;
                arena.reset();
            }
            return Ok(());
        }
        if !self.program.shares_results() {
            return self.answer_separately(requests, &mut emit);
        }
        let mut ahead = requests;
        while !ahead.is_empty() {
            self.scratch.arena.reset();
            self.snapshots.iter_mut().for_each(Snapshot::release_pages);
            let count = self.answer_first(ahead, &mut emit)?;
            ahead = &ahead[count..];
        }
        Ok(())
    }

    /// Answers requests that share nothing but the view of the tables.
    fn answer_separately(
        &mut self,
        requests: &[&[Datum<'_>]],
        emit: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        for (count, request) in (1..).zip(requests) {
            self.program.check_width(request)?;
            if count % REQUESTS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            self.scratch.arena.reset();
            self.snapshots.iter_mut().for_each(Snapshot::release_pages);
            let results = self.program.no_results();
            let request = ArrivedRow::values(request, REQUEST_ARRIVAL);
            let (scratch, snapshots) = (&*self.scratch, &self.snapshots[..]);
            let view = AnswerView { scratch, snapshots, results: &results, takes_nodes: true };
            let ctx = self.program.context(request, view, None);
            if let Some(answer) = self.program.answer_one(&ctx)? {
                let values = answer.values().map(Datum::with_one_nan);
                emit(self.scratch.arena.alloc_slice_fill_iter(values));
            }
        }
        Ok(())
    }

    /// Answers requests until scratch memory is full, and returns how many.
    fn answer_first(
        &self,
        requests: &[&[Datum<'_>]],
        emit: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<usize> {
        let arena = &self.scratch.arena;
        let steps = self.program.shared_steps().filter(|_| requests.len() > 1);
        let shared = steps.map(|steps| SharedResults::new_in(arena, steps));
        for (count, request) in (1..).zip(requests) {
            self.program.check_width(request)?;
            if count % REQUESTS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            let request = ArrivedRow::values(request, REQUEST_ARRIVAL);
            let (scratch, snapshots) = (&*self.scratch, &self.snapshots[..]);
            let results = &self.results;
            let view = AnswerView { scratch, snapshots, results, takes_nodes: true };
            let ctx = self.program.context(request, view, shared);
            if let Some(answer) = self.program.answer_one(&ctx)? {
                emit(arena.alloc_slice_fill_iter(answer.values().map(Datum::with_one_nan)));
            }
            let is_full = arena.allocated_bytes() - arena.chunk_capacity() > SCRATCH_BYTES_MAX;
            if is_full || snapshots.iter().any(Snapshot::has_many_pages) {
                return Ok(count);
            }
        }
        Ok(requests.len())
    }
}

impl std::fmt::Debug for RequestBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBatch").finish_non_exhaustive()
    }
}
