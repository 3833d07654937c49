//! The step of a LAST JOIN: finds the newest matching row of the right side.
//!
//! [`lockstep_plan::LastJoin`] says which row that is.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::Datum;

use crate::{
    context::{Context, ROWS_PER_CHECKPOINT, checkpoint},
    frame::{BoundExpr, Cells, Frame, Leaf, Pair, Place},
    source::{Bounds, Order, Rows, Source},
};

/// A LAST JOIN.
#[derive(Debug)]
pub(crate) struct JoinStep {
    /// The keys of the left row.
    pub(crate) keys: Vec<BoundExpr>,
    /// The right side.
    pub(crate) right: std::sync::Arc<Source>,
    /// An upper end for the order of the right side.
    pub(crate) time_bound: Option<UpperEnd>,
    /// What must be true of the pair.
    pub(crate) filter: Option<BoundExpr>,
    /// Which slots of the left row take which values of the right row.
    pub(crate) outputs: Vec<(usize, Place)>,
    /// Its number among the steps whose results requests share.
    pub(crate) shared: Option<usize>,
}

/// An upper end, from the left row.
#[derive(Debug)]
pub(crate) struct UpperEnd {
    pub(crate) left: BoundExpr,
    pub(crate) is_inclusive: bool,
}

impl JoinStep {
    /// Copies the values of the match into the left row's slots; without one they stay NULL.
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        slots: &mut [Datum<'s>],
    ) -> Result<()> {
        let left = Frame { leaf, slots };
        let upper = match &self.time_bound {
            None => None,
            Some(end) => match end.value(ctx, &left) {
                // A comparison with NULL is not true, and nothing is before the beginning.
                None => return Ok(()),
                upper => upper,
            },
        };
        let keys = self.keys.iter().map(|key| key.eval(&left, ctx.arena));
        let keys: &[_] = ctx.arena.alloc_slice_fill_iter(keys);
        let Some((shared, step)) = ctx.shared.zip(self.shared) else {
            return self.fill(ctx, (leaf, slots), keys, Bounds::up_to(upper));
        };
        let end = upper.map_or(Datum::Null, Datum::BigInt);
        let inputs = keys.iter().copied().chain([end]);
        let inputs = ArenaVec::from_iter_in(inputs, ctx.arena).into_bump_slice();
        if let Some(outputs) = shared.find(step, inputs) {
            self.outputs.iter().zip(outputs).for_each(|((slot, _), value)| slots[*slot] = *value);
            return Ok(());
        }
        self.fill(ctx, (leaf, &mut *slots), keys, Bounds::up_to(upper))?;
        let outputs = self.outputs.iter().map(|(slot, _)| slots[*slot]);
        shared.keep(step, inputs, ctx.arena.alloc_slice_fill_iter(outputs));
        Ok(())
    }

    fn fill<'s>(
        &'s self,
        ctx: &Context<'s>,
        (leaf, slots): (Leaf<'s>, &mut [Datum<'s>]),
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<()> {
        let right = self.find(ctx, &Frame { leaf, slots }, keys, bounds)?;
        let Some(right) = right else { return Ok(()) };
        for (slot, place) in &self.outputs {
            slots[*slot] = right.get(*place, ctx.arena);
        }
        Ok(())
    }

    fn find<'s>(
        &'s self,
        ctx: &Context<'s>,
        left: &Frame<'_, 's>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Option<Frame<'s, 's>>> {
        let is_match = |right: Frame<'s, 's>| {
            let pair = Pair { left: *left, right };
            self.filter.as_ref().is_none_or(|filter| filter.is_true(&pair, ctx.arena))
        };
        let request = self.right.request_row(ctx, keys, bounds)?;
        // By arrival the request row is the newest: nothing has to be looked up when it matches.
        if let Some(row) = request.filter(|_| matches!(self.right.order, Order::Arrival))
            && is_match(row.frame)
        {
            return Ok(Some(row.frame));
        }
        let mut rows = Rows::new(self.right.open(ctx, keys, bounds)?, request);
        let (mut seen, mut of_null) = (0, None);
        while let Some(row) = rows.next(ctx)? {
            let may_be_newest = row.order.is_some() || of_null.is_none();
            if may_be_newest && is_match(row.frame) {
                if row.order.is_some() {
                    return Ok(Some(row.frame));
                }
                // NULL is older than the least value, among whose rows it stands by arrival.
                of_null = Some(row.frame);
            }
            seen += 1;
            if seen % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
        }
        Ok(of_null)
    }
}

impl UpperEnd {
    fn value<'s>(&'s self, ctx: &Context<'s>, left: &Frame<'_, 's>) -> Option<i64> {
        let value = self.left.eval(left, ctx.arena).as_i64()?;
        if self.is_inclusive { Some(value) } else { value.checked_sub(1) }
    }
}
