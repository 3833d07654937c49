//! The step of a LAST JOIN: finds the newest matching row of the right side.
//!
//! [`lockstep_plan::LastJoin`] says which row that is.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::Datum;

use crate::{
    context::{AnswerContext, ROWS_PER_CHECKPOINT, checkpoint},
    row_context::{BoundExpr, ColumnLookup, JoinPair, RowContext, RowContextMut, ValueLocation},
    source::{KeyedSource, Order, RowsWithRequest, SourceBounds},
};

/// A LAST JOIN.
#[derive(Debug)]
pub(crate) struct JoinStep {
    /// The keys, computed from the left row.
    pub(crate) keys: Vec<BoundExpr>,
    /// The right side.
    pub(crate) right: std::sync::Arc<KeyedSource>,
    /// The upper bound of the order value of the right row.
    pub(crate) time_bound: Option<TimeUpperBound>,
    /// A condition on the left and the right row.
    pub(crate) filter: Option<BoundExpr>,
    pub(crate) outputs: Vec<JoinOutput>,
    /// The number of the step among those whose results requests share.
    pub(crate) shared: Option<usize>,
}

/// A column of the right row, which is copied into a slot of the left row.
#[derive(Debug)]
pub(crate) struct JoinOutput {
    pub(crate) slot: usize,
    pub(crate) right: ValueLocation,
}

/// An upper bound of order values, computed from the left row.
#[derive(Debug)]
pub(crate) struct TimeUpperBound {
    pub(crate) left: BoundExpr,
    pub(crate) is_inclusive: bool,
}

impl JoinStep {
    /// Copies columns of the match into slots of the left row; without a match they stay NULL.
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: &mut RowContextMut<'_, 's>,
    ) -> Result<()> {
        let left = row.as_row();
        let upper = match &self.time_bound {
            None => None,
            Some(bound) => match bound.greatest(ctx, &left) {
                // A comparison with NULL is not true, and no value is below the least one.
                None => return Ok(()),
                upper => upper,
            },
        };
        let keys = self.keys.iter().map(|key| key.eval(&left, ctx.arena));
        let keys: &[_] = ctx.arena.alloc_slice_fill_iter(keys);
        let Some((shared, step)) = ctx.shared.zip(self.shared) else {
            return self.fill(ctx, row, keys, SourceBounds::up_to(upper));
        };
        let end = upper.map_or(Datum::Null, Datum::BigInt);
        let inputs = keys.iter().copied().chain([end]);
        let inputs = ArenaVec::from_iter_in(inputs, ctx.arena).into_bump_slice();
        if let Some(values) = shared.find(step, inputs) {
            for (output, value) in self.outputs.iter().zip(values) {
                row.slots[output.slot] = *value;
            }
            return Ok(());
        }
        self.fill(ctx, row, keys, SourceBounds::up_to(upper))?;
        let values = self.outputs.iter().map(|output| row.slots[output.slot]);
        shared.insert(step, inputs, ctx.arena.alloc_slice_fill_iter(values));
        Ok(())
    }

    fn fill<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: &mut RowContextMut<'_, 's>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<()> {
        let right = self.find(ctx, &row.as_row(), keys, bounds)?;
        let Some(right) = right else { return Ok(()) };
        for output in &self.outputs {
            row.slots[output.slot] = right.get(output.right, ctx.arena);
        }
        Ok(())
    }

    /// Finds the newest right row that matches.
    fn find<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        left: &RowContext<'_, 's>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<Option<RowContext<'s, 's>>> {
        let is_match = |right: RowContext<'s, 's>| {
            let pair = JoinPair { left: *left, right };
            self.filter.as_ref().is_none_or(|filter| filter.is_true(&pair, ctx.arena))
        };
        let request = self.right.request_row(ctx, keys, bounds)?;
        // By arrival the request row is the newest: when it matches, no other row has to be read.
        if let Some(request) = request.filter(|_| matches!(self.right.order, Order::Arrival))
            && is_match(request.row)
        {
            return Ok(Some(request.row));
        }
        let mut rows = RowsWithRequest::new(self.right.open(ctx, keys, bounds)?, request);
        let (mut seen, mut newest_of_null) = (0, None);
        while let Some(right) = rows.next(ctx)? {
            let may_be_newest = right.order.is_some() || newest_of_null.is_none();
            if may_be_newest && is_match(right.row) {
                if right.order.is_some() {
                    return Ok(Some(right.row));
                }
                // NULL is older than the least value; an index has the rows of both in one order, by
                // arrival.
                newest_of_null = Some(right.row);
            }
            seen += 1;
            if seen % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
        }
        Ok(newest_of_null)
    }
}

impl TimeUpperBound {
    /// Returns the greatest order value within the bound; `None` when there is none.
    fn greatest<'s>(&'s self, ctx: &AnswerContext<'s>, left: &RowContext<'_, 's>) -> Option<i64> {
        let value = self.left.eval(left, ctx.arena).as_i64()?;
        if self.is_inclusive { Some(value) } else { value.checked_sub(1) }
    }
}
