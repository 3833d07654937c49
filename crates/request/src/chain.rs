//! A chain: what happens to one leaf row until it is a row of the plan's output.
//!
//! The request row goes through the main chain; rows of a source go through the source's own. A
//! chain never looks at another row by itself, its window and join steps do.

use lockstep_diagnostic::Result;
use lockstep_row::Datum;

use crate::{
    computation::Computation,
    context::Context,
    frame::{BoundExpr, Frame, Leaf},
    join::JoinStep,
    window::Scan,
};

/// Where leaf rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// Nowhere: a query without a table has one row without columns, and no history.
    Nothing,
    /// A table of the program.
    Table(usize),
    /// A materialised plan of the program.
    Materialised(usize),
}

/// The steps from a leaf row to an output row.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) leaf: LeafKind,
    pub(crate) steps: Vec<Step>,
    pub(crate) slot_count: usize,
}

/// One step. Slots that nobody reads have no step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Fills a slot.
    Compute { slot: usize, expr: BoundExpr },
    /// Fills several slots by machine code.
    ComputeAll(Computation),
    /// Lets the row through when this is true.
    Filter(BoundExpr),
    /// Fills the slots of window aggregates.
    Scan(Box<Scan>),
    /// Fills the slots of right columns.
    Join(Box<JoinStep>),
    /// Lets nothing through.
    Stop,
}

impl Chain {
    /// Whether to take a row through it is to walk through others.
    pub(crate) fn has_windows(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Scan(_)))
    }

    /// Takes a leaf row through the chain; `None` when it does not come out. `arrival` is the
    /// row's place among the rows of its table; a request row comes after all of them.
    #[inline]
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        arrival: u64,
    ) -> Result<Option<Frame<'s, 's>>> {
        if self.steps.is_empty() {
            return Ok(Some(Frame { leaf, slots: &[] }));
        }
        self.run_steps(ctx, leaf, arrival)
    }

    fn run_steps<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        arrival: u64,
    ) -> Result<Option<Frame<'s, 's>>> {
        let slots = ctx.arena.alloc_slice_fill_copy(self.slot_count, Datum::Null);
        for step in &self.steps {
            match step {
                Step::Compute { slot, expr } => {
                    slots[*slot] = expr.eval(&Frame { leaf, slots }, ctx.arena);
                }
                Step::ComputeAll(computation) => computation.run(leaf, slots, ctx.arena),
                Step::Filter(predicate) => {
                    if !predicate.is_true(&Frame { leaf, slots }, ctx.arena) {
                        return Ok(None);
                    }
                }
                Step::Scan(scan) => scan.run(ctx, leaf, arrival, slots)?,
                Step::Join(join) => join.run(ctx, leaf, slots)?,
                Step::Stop => return Ok(None),
            }
        }
        Ok(Some(Frame { leaf, slots }))
    }
}
