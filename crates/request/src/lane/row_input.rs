//! Where the values of a lane are in the rows of one source, and how they are gathered.

use std::sync::Arc;

use lockstep_function::aggregate::state;
use lockstep_row::{Arena, Datum, FixedColumn, TextColumn};

use super::{
    LANE_ROWS, LaneBuffers, LaneClass, LaneRows, MachineWord, ScanLane, as_integer,
    fixed_width::{FixedWidthValues, gather_numbers},
};
use crate::{
    machine::LaneProgram,
    row_context::{BoundExpr, ColumnLookup, LeafRow, RowContext, ValueLocation},
};

/// Where the values of a lane are in the rows of one source.
#[derive(Debug)]
pub(crate) enum RowInput {
    /// Nowhere: the lane counts rows, and every row counts.
    Nothing,
    /// A column of fixed width, which is read in place.
    Fixed(FixedColumn),
    /// A STRING column, which is read in place.
    Text(TextColumn),
    /// A column of which only whether it is NULL is read.
    Presence(usize),
    /// Computed by machine code from columns of fixed width.
    Machine {
        program: Arc<LaneProgram>,
        /// Whether the code leaves out the rows for which the condition of the lane is not true.
        tests_condition: bool,
    },
    /// Anything else.
    Expr(BoundExpr),
}

impl RowInput {
    /// Gathers the values that are not NULL, of at most [`LANE_ROWS`] rows, for a lane of numbers, or
    /// counts them for a lane of rows; returns how many there are. The rows are stored rows, unless the
    /// input is an expression.
    #[inline]
    pub(crate) fn gather<'s>(
        &'s self,
        lane: &ScanLane,
        rows: LaneRows<'_, 's>,
        buffers: &mut LaneBuffers<'s>,
    ) -> usize {
        debug_assert!(rows.rows.len() <= LANE_ROWS, "the buffers have space for each row");
        match self {
            Self::Fixed(column) if lane.class != LaneClass::Rows => {
                gather_numbers(*column, lane, FixedWidthValues::Rows(rows.bytes), buffers)
            }
            _ => self.gather_computed(lane, rows, buffers),
        }
    }

    /// Gathers values that are no column of fixed width, or counts rows.
    fn gather_computed<'s>(
        &'s self,
        lane: &ScanLane,
        LaneRows { rows, bytes }: LaneRows<'_, 's>,
        buffers: &mut LaneBuffers<'s>,
    ) -> usize {
        let LaneBuffers { arena, integers, floats, .. } = buffers;
        let (integers, floats) = (integers.of_rows(), floats.of_rows());
        let arena: &'s Arena = arena;
        match (lane.class, self) {
            (LaneClass::Rows, input) => input.count(rows, bytes, arena),
            (LaneClass::Integers, Self::Machine { program, .. }) => {
                run_program(program, bytes, integers).len()
            }
            (LaneClass::Floats, Self::Machine { program, .. }) => {
                run_program(program, bytes, floats).len()
            }
            (LaneClass::Integers, Self::Expr(expr)) => {
                let count = evaluate(rows, expr, arena, integers, as_integer);
                lane.counted(integers, count).len()
            }
            (LaneClass::Floats, Self::Expr(expr)) => {
                let count = evaluate(rows, expr, arena, floats, |value| value.as_f64());
                lane.counted(floats, count).len()
            }
            (
                LaneClass::Integers | LaneClass::Floats | LaneClass::Texts,
                Self::Nothing
                | Self::Presence(_)
                | Self::Fixed(_)
                | Self::Text(_)
                | Self::Machine { .. }
                | Self::Expr(_),
            ) => {
                debug_assert!(false, "the input has numbers");
                0
            }
        }
    }

    /// Gathers the texts that are not NULL, of at most [`LANE_ROWS`] rows.
    pub(crate) fn gather_texts<'b, 's>(
        &'s self,
        rows: LaneRows<'_, 's>,
        buffers: &'b mut LaneBuffers<'s>,
    ) -> state::ValueLane<'b> {
        let LaneRows { rows, .. } = rows;
        debug_assert!(rows.len() <= LANE_ROWS, "the buffers have space for each row");
        let LaneBuffers { arena, texts, .. } = buffers;
        let count = match self {
            Self::Text(column) => {
                let mut count = 0;
                for row in rows {
                    let LeafRow::Stored(view) = row.leaf else { continue };
                    if let Some(text) = view.text(*column) {
                        texts[count] = text;
                        count += 1;
                    }
                }
                count
            }
            Self::Expr(expr) => evaluate(rows, expr, arena, texts, |value| value.as_str()),
            Self::Nothing | Self::Presence(_) | Self::Fixed(_) | Self::Machine { .. } => {
                debug_assert!(false, "the input has texts");
                0
            }
        };
        state::ValueLane::Texts(&texts[..count])
    }

    /// Counts the rows whose value is not NULL.
    fn count<'s>(
        &'s self,
        rows: &[RowContext<'s, 's>],
        bytes: &[&'s [u8]],
        arena: &'s Arena,
    ) -> usize {
        let is_present = |row: &&RowContext<'s, 's>| match (self, row.leaf) {
            (Self::Nothing, _) => true,
            (Self::Fixed(column), LeafRow::Stored(view)) => !column.is_null(view.bytes()),
            (Self::Presence(column), LeafRow::Stored(view)) => !view.is_null(*column),
            (Self::Expr(expr), _) => !expr.eval(*row, arena).is_null(),
            (Self::Machine { .. }, _) => {
                debug_assert!(false, "machine code counts by itself");
                false
            }
            (Self::Text(column), LeafRow::Stored(view)) => view.text(*column).is_some(),
            (Self::Fixed(_) | Self::Presence(_) | Self::Text(_), LeafRow::Values(_)) => {
                debug_assert!(false, "only stored rows are read in place");
                false
            }
        };
        match self {
            Self::Nothing => rows.len(),
            Self::Machine { program, .. } => run_program(program, bytes, &mut [0; LANE_ROWS]).len(),
            _ => rows.iter().filter(is_present).count(),
        }
    }

    /// Returns whether it leaves out the rows for which the condition of the lane is not true.
    pub(crate) fn tests_condition(&self) -> bool {
        matches!(self, Self::Machine { tests_condition: true, .. })
    }
}

/// Computes the values of the rows that count.
fn run_program<'b, T: MachineWord>(
    program: &LaneProgram,
    rows: &[&[u8]],
    out: &'b mut [T; LANE_ROWS],
) -> &'b [T] {
    let mut starts = [std::ptr::null(); LANE_ROWS];
    for (start, bytes) in starts.iter_mut().zip(rows) {
        *start = bytes.as_ptr();
    }
    // SAFETY: the rows are of the source that the program was made for, so its columns are where it
    // reads; and `out` has space for a value of each row, of 64 bits.
    let count = unsafe { program.run(&starts[..rows.len()], out.as_mut_ptr().cast()) };
    &out[..count]
}

/// Evaluates an expression for each row, writes the values that are not NULL, and returns how many
/// there are.
fn evaluate<'s, T>(
    rows: &[RowContext<'s, 's>],
    expr: &'s BoundExpr,
    arena: &'s Arena,
    out: &mut [T; LANE_ROWS],
    convert: impl Fn(Datum<'s>) -> Option<T>,
) -> usize {
    let mut count = 0;
    for row in rows {
        let value = match (expr, row.leaf) {
            (BoundExpr::Column(ValueLocation::Leaf(column)), LeafRow::Stored(view)) => {
                view.get_in(*column, arena)
            }
            (BoundExpr::Column(location), _) => row.get(*location, arena),
            (expr, _) => expr.eval(row, arena),
        };
        if let Some(value) = convert(value) {
            out[count] = value;
            count += 1;
        }
    }
    count
}
