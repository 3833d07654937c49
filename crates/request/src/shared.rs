//! The results that the requests of a batch share: a scan or a join is done once for the requests
//! that agree on all that it depends on.
//!
//! A ranking service asks for hundreds of candidates of one user at once, and the windows over the
//! user's history are the same for all of them. A step of the request's own chain depends on the
//! tables, which a batch reads at one moment, and on some values of the request. The last results of
//! each such step are stored with these values, which are compared bit by bit. They are allocated in
//! the arena of the answers and are freed with it.

use std::cell::RefCell;

use lockstep_row::{Arena, Datum};

/// How many results of a step are stored: requests of a few users may alternate.
const RESULTS_PER_STEP: usize = 8;

/// What a step computed from some values.
#[derive(Clone, Copy)]
struct StepResult<'s> {
    inputs: &'s [Datum<'s>],
    outputs: &'s [Datum<'s>],
}

/// The last results of a step.
#[derive(Default)]
struct StepResults<'s> {
    results: [Option<StepResult<'s>>; RESULTS_PER_STEP],
    /// The one that is replaced next.
    next: usize,
}

/// The results of all shared steps of a program, by the number of the step.
#[derive(Clone, Copy)]
pub(crate) struct SharedResults<'s>(&'s [RefCell<StepResults<'s>>]);

impl<'s> SharedResults<'s> {
    /// Allocates an empty table for this many steps.
    pub(crate) fn new_in(arena: &'s Arena, steps: usize) -> Self {
        Self(arena.alloc_slice_fill_with(steps, |_| RefCell::default()))
    }

    /// Finds what a step computed from the same values.
    pub(crate) fn find(&self, step: usize, inputs: &[Datum<'_>]) -> Option<&'s [Datum<'s>]> {
        let is_same = |result: &&StepResult<'s>| {
            debug_assert_eq!(
                result.inputs.len(),
                inputs.len(),
                "a step has as many inputs each time"
            );
            let mut pairs = result.inputs.iter().zip(inputs);
            pairs.all(|(stored, input)| stored.is_bit_equal(input))
        };
        let step = self.0[step].borrow();
        step.results.iter().flatten().find(is_same).map(|result| result.outputs)
    }

    /// Stores what a step computed. A step has as many inputs each time.
    pub(crate) fn insert(&self, step: usize, inputs: &'s [Datum<'s>], outputs: &'s [Datum<'s>]) {
        let mut step = self.0[step].borrow_mut();
        let next = step.next;
        step.results[next] = Some(StepResult { inputs, outputs });
        step.next = (next + 1) % RESULTS_PER_STEP;
    }
}
