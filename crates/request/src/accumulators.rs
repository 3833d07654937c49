//! The calls of a scan whose aggregate has no fold: an accumulator each, which is updated row by row.
//!
//! [`crate::aggregates`] decides which rows an accumulator is given.

use std::{fmt, ops::Range, sync::Arc};

use lockstep_function::{Accumulator, Feeding, aggregate::MakeAccumulator};
use lockstep_row::{Arena, Datum};

use crate::{
    groups::GroupSet,
    row_context::{BoundExpr, RowContext},
};

/// A call that has an accumulator.
pub(crate) struct AccumulatorCall {
    pub(crate) name: &'static str,
    /// The window groups that it is computed for.
    pub(crate) groups: GroupSet,
    pub(crate) make: Arc<MakeAccumulator>,
    /// Its arguments among those of the scan.
    pub(crate) arguments: Range<usize>,
    pub(crate) outputs: Vec<CallOutput>,
}

/// Where one window group's value of a call goes.
#[derive(Debug)]
pub(crate) struct CallOutput {
    pub(crate) group: usize,
    /// The slot of the chain.
    pub(crate) slot: usize,
}

/// The accumulators of a scan, parallel to its calls.
pub(crate) struct Accumulators {
    accumulators: Vec<Box<dyn Accumulator>>,
    /// How many rows have been added since the last reset.
    row_count: usize,
    /// The most rows that were added before a reset.
    row_count_max: usize,
}

/// About how many bytes an accumulator retains for each row that was added.
const RETAINED_BYTES_PER_ROW: usize = 64;

impl Accumulators {
    /// Makes an accumulator for each call.
    pub(crate) fn new(calls: &[AccumulatorCall]) -> Self {
        let accumulators = calls.iter().map(|call| (call.make)(Feeding::NewestFirst)).collect();
        Self { accumulators, row_count: 0, row_count_max: 0 }
    }

    /// Estimates the bytes that are retained between answers.
    pub(crate) fn retained_bytes(&self) -> usize {
        let rows = self.row_count.max(self.row_count_max);
        self.accumulators.len() * rows * RETAINED_BYTES_PER_ROW
    }

    /// Forgets all rows.
    pub(crate) fn reset(&mut self) {
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.reset());
        self.row_count_max = self.row_count_max.max(self.row_count);
        self.row_count = 0;
    }

    /// Adds a row to the accumulators of these groups. Calls with the same arguments follow each
    /// other, so that their arguments are evaluated once.
    pub(crate) fn update<'s>(
        &mut self,
        calls: &[AccumulatorCall],
        groups: GroupSet,
        arguments: &'s [BoundExpr],
        row: &RowContext<'_, 's>,
        arena: &'s Arena,
    ) {
        const STACK_ARGUMENTS: usize = 6;
        debug_assert_eq!(calls.len(), self.accumulators.len(), "each call has an accumulator");
        self.row_count += 1;
        let mut stack = [Datum::Null; STACK_ARGUMENTS];
        let mut evaluated: Option<&Range<usize>> = None;
        let mut long: &mut [Datum<'s>] = &mut [];
        for (call, accumulator) in calls.iter().zip(&mut self.accumulators) {
            if !groups.intersects(call.groups) {
                continue;
            }
            let count = call.arguments.len();
            if count > STACK_ARGUMENTS && long.len() < count {
                long = arena.alloc_slice_fill_copy(count, Datum::Null);
                evaluated = None;
            }
            let values =
                if count > STACK_ARGUMENTS { &mut long[..count] } else { &mut stack[..count] };
            if evaluated != Some(&call.arguments) {
                for (value, expr) in values.iter_mut().zip(&arguments[call.arguments.clone()]) {
                    *value = expr.eval(row, arena);
                }
                evaluated = Some(&call.arguments);
            }
            accumulator.add(values);
        }
    }

    /// Writes the values of these groups' calls into their slots.
    pub(crate) fn finalize<'s>(
        &self,
        calls: &[AccumulatorCall],
        groups: GroupSet,
        slots: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        for (call, accumulator) in calls.iter().zip(&self.accumulators) {
            if !groups.intersects(call.groups) {
                continue;
            }
            let value = accumulator.value(arena);
            for output in call.outputs.iter().filter(|output| groups.contains(output.group)) {
                slots[output.slot] = value;
            }
        }
    }
}

impl fmt::Debug for AccumulatorCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccumulatorCall")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
