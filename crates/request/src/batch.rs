//! Many requests over one view of the tables.

use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};
use lockstep_table::Snapshot;

use crate::{
    context::{Lent, Results, STORED_LATER, checkpoint},
    frame::Leaf,
    program::Program,
    shared::Shared,
};

/// After how many requests it is asked whether to go on.
const REQUESTS_PER_CHECKPOINT: usize = 16;

/// Scratch memory is given back when an answer leaves more than this behind. What requests share
/// goes with it.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// Requests that see the tables as of one moment, that at which it was made. While it lives, no
/// removed row is freed. It cannot be sent to another thread.
pub struct Batch<'p> {
    program: &'p Program,
    scratch: Lent<'p>,
    snapshots: Vec<Snapshot<'p>>,
    results: Results,
}

impl Program {
    /// Begins a batch.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            program: self,
            scratch: self.lend_scratch(),
            snapshots: self.snapshots().collect(),
            results: self.no_results(),
        }
    }
}

impl Batch<'_> {
    /// Answers requests in their order; none sees another. A request has no answer, one or several,
    /// as [`Program::answer_rows`] says. An error ends it.
    ///
    /// *Cost*: what [`Program::answer`] costs for each, but a window or a LAST JOIN is computed once
    /// for requests of one call, not too far apart, that agree on all that it depends on.
    pub fn answer(
        &mut self,
        requests: &[&[Datum<'_>]],
        mut give: impl FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        if !self.program.is_compiled() {
            let mut arena = Arena::new();
            for request in requests {
                self.program.answer_rows(request, &arena, &mut give)?;
                arena.reset();
            }
            return Ok(());
        }
        if !self.program.shares_results() {
            return self.answer_apart(requests, &mut give);
        }
        let mut ahead = requests;
        while !ahead.is_empty() {
            self.scratch.arena.reset();
            let count = self.answer_some(ahead, &mut give)?;
            ahead = &ahead[count..];
        }
        Ok(())
    }

    /// Answers requests that share nothing but the view.
    fn answer_apart(
        &mut self,
        requests: &[&[Datum<'_>]],
        give: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<()> {
        for (count, request) in (1..).zip(requests) {
            self.program.check_width(request)?;
            if count % REQUESTS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            self.scratch.arena.reset();
            let results = self.program.no_results();
            let view = (&*self.scratch, &self.snapshots[..], &results);
            let request = (Leaf::Values(request), STORED_LATER);
            let ctx = self.program.context(request, view, None);
            if let Some(values) = self.program.answer_one(&ctx)? {
                give(self.scratch.arena.alloc_slice_fill_iter(values));
            }
        }
        Ok(())
    }

    /// Answers the first requests, until scratch memory is full, and returns how many.
    fn answer_some(
        &self,
        requests: &[&[Datum<'_>]],
        give: &mut dyn FnMut(&[Datum<'_>]),
    ) -> Result<usize> {
        let arena = &self.scratch.arena;
        let steps = self.program.shared_steps().filter(|_| requests.len() > 1);
        let shared = steps.map(|steps| Shared::new_in(arena, steps));
        for (count, request) in (1..).zip(requests) {
            self.program.check_width(request)?;
            if count % REQUESTS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            let request = (Leaf::Values(request), STORED_LATER);
            let view = (&*self.scratch, &self.snapshots[..], &self.results);
            let ctx = self.program.context(request, view, shared);
            if let Some(values) = self.program.answer_one(&ctx)? {
                give(arena.alloc_slice_fill_iter(values.map(Datum::with_one_nan)));
            }
            if arena.allocated_bytes() - arena.chunk_capacity() > SCRATCH_BYTES_MAX {
                return Ok(count);
            }
        }
        Ok(requests.len())
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}
