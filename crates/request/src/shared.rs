//! What the requests of a batch share: a scan or a join is done once for those that agree on all
//! that it depends on.
//!
//! Who ranks asks for hundreds of candidates of one user at once, and the windows over the user's
//! history are the same for all of them. A step of the request's own chain depends on the tables,
//! which a batch sees as of one moment, and on some values of the request. The last results of each
//! such step are kept beside these values, which are compared bit by bit. They lie in the arena of
//! the answers, and go with it.

use std::cell::RefCell;

use lockstep_row::{Arena, Datum};

/// Results of a step that are kept: requests of a few users may come in turn.
const KEPT: usize = 8;

/// What a step made of some values.
#[derive(Clone, Copy)]
struct Found<'s> {
    inputs: &'s [Datum<'s>],
    outputs: &'s [Datum<'s>],
}

/// The last results of a step.
#[derive(Default)]
struct Results<'s> {
    found: [Option<Found<'s>>; KEPT],
    /// The one to be forgotten next.
    next: usize,
}

/// The results of the steps of a program; see the module.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'s>(&'s [RefCell<Results<'s>>]);

impl<'s> Shared<'s> {
    /// Nothing yet of so many steps.
    pub(crate) fn new_in(arena: &'s Arena, steps: usize) -> Self {
        Self(arena.alloc_slice_fill_with(steps, |_| RefCell::default()))
    }

    /// What a step made of the same values.
    pub(crate) fn find(&self, step: usize, inputs: &[Datum<'_>]) -> Option<&'s [Datum<'s>]> {
        let is_same = |found: &&Found<'s>| {
            let mut pairs = found.inputs.iter().zip(inputs);
            pairs.all(|(kept, input)| kept.is_bit_equal(input))
        };
        let results = self.0[step].borrow();
        results.found.iter().flatten().find(is_same).map(|found| found.outputs)
    }

    /// Keeps what a step has made. A step has as many inputs each time.
    pub(crate) fn keep(&self, step: usize, inputs: &'s [Datum<'s>], outputs: &'s [Datum<'s>]) {
        let mut results = self.0[step].borrow_mut();
        let at = results.next;
        results.found[at] = Some(Found { inputs, outputs });
        results.next = (at + 1) % KEPT;
    }
}
