//! A chain: the steps that turn one leaf row into a row of the plan's output.
//!
//! The request row goes through the main chain; rows of a source go through the source's own. Only
//! window and join steps read other rows.

use lockstep_diagnostic::Result;
use lockstep_row::Datum;

use crate::{
    computation::Computation,
    context::AnswerContext,
    join::JoinStep,
    row_context::{ArrivedRow, BoundExpr, RowContext, RowContextMut},
    window::WindowScan,
};

/// What the leaf rows of a chain are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// A query without a table has one row without columns, and no history.
    Nothing,
    /// Rows of this table of the program.
    Table(usize),
    /// Rows of this materialised plan of the program.
    Materialised(usize),
}

/// The steps from a leaf row to an output row.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) leaf: LeafKind,
    pub(crate) steps: Vec<ChainStep>,
    pub(crate) slot_count: usize,
}

/// One step of a chain. Slots that nothing reads have no step.
#[derive(Debug)]
pub(crate) enum ChainStep {
    /// Fills a slot.
    Compute { slot: usize, expr: BoundExpr },
    /// Fills several slots by machine code.
    ComputeAll(Computation),
    /// Keeps the row when this is true.
    Filter(BoundExpr),
    /// Fills the slots of window aggregates.
    Scan(Box<WindowScan>),
    /// Fills the slots of right columns.
    Join(Box<JoinStep>),
    /// Drops every row.
    Stop,
}

impl Chain {
    /// Returns whether a row cannot go through the chain without reading the history of windows.
    pub(crate) fn has_windows(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, ChainStep::Scan(_)))
    }

    /// Runs the steps for a leaf row. Returns `None` when a step drops it.
    #[inline]
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: ArrivedRow<'s>,
    ) -> Result<Option<RowContext<'s, 's>>> {
        if self.steps.is_empty() {
            debug_assert_eq!(self.slot_count, 0, "only a step fills a slot");
            return Ok(Some(RowContext { leaf: row.leaf, slots: &[] }));
        }
        self.run_steps(ctx, row)
    }

    fn run_steps<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: ArrivedRow<'s>,
    ) -> Result<Option<RowContext<'s, 's>>> {
        let ArrivedRow { leaf, arrival } = row;
        let slots = ctx.arena.alloc_slice_fill_copy(self.slot_count, Datum::Null);
        let mut row = RowContextMut { leaf, slots };
        for step in &self.steps {
            match step {
                ChainStep::Compute { slot, expr } => {
                    row.slots[*slot] = expr.eval(&row.as_row(), ctx.arena);
                }
                ChainStep::ComputeAll(computation) => computation.run(&mut row, ctx.arena),
                ChainStep::Filter(predicate) => {
                    if !predicate.is_true(&row.as_row(), ctx.arena) {
                        return Ok(None);
                    }
                }
                ChainStep::Scan(scan) => scan.run(ctx, &mut row, arrival)?,
                ChainStep::Join(join) => join.run(ctx, &mut row)?,
                ChainStep::Stop => return Ok(None),
            }
        }
        Ok(Some(RowContext { leaf, slots: row.slots }))
    }
}
