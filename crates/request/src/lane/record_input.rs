//! Where the values of a lane are in the records of an index that includes its columns, and how they
//! are gathered.

use std::sync::Arc;

use lockstep_function::aggregate::state;
use lockstep_row::{FixedColumn, TextCell, TextColumn};
use lockstep_table::{KeyRun, RecordField, Records};

use super::{
    LANE_ROWS, LaneBuffers, LaneClass, MachineWord, ScanLane,
    fixed_width::{FixedWidthValues, NullBits, gather_numbers},
};
use crate::{inputs::RecordRun, machine::LaneProgram};

/// Where the values of a lane are in the records of an index that includes them.
#[derive(Debug)]
pub(crate) enum RecordInput {
    /// Nowhere: the lane counts rows, and every row counts.
    Nothing,
    Fixed(FixedColumn),
    /// A text, which is in the record when it is short, and otherwise in the row.
    Text {
        cell: TextCell,
        column: TextColumn,
    },
    /// A column of which only whether it is NULL is read.
    Presence {
        /// The offset in the record of the byte with the NULL bit.
        null_byte: usize,
        null_mask: u8,
    },
    /// Computed by machine code, which leaves out the rows for which the condition is not true.
    Machine(Arc<LaneProgram>),
}

impl RecordInput {
    /// Gathers the values that are not NULL, of at most [`LANE_ROWS`] rows, for a lane of numbers, or
    /// counts them for a lane of rows; returns how many there are.
    #[inline]
    pub(crate) fn gather(
        &self,
        lane: &ScanLane,
        rows: RecordRun<'_, '_>,
        buffers: &mut LaneBuffers<'_>,
    ) -> usize {
        let RecordRun { run, records } = rows;
        debug_assert!(records.len() <= LANE_ROWS, "the buffers have space for each row");
        debug_assert_eq!(records.len(), run.len(), "each row has a record");
        match (lane.class, self) {
            (LaneClass::Rows, input) => input.count(records),
            (_, Self::Fixed(column)) => {
                gather_numbers(*column, lane, FixedWidthValues::Records(records), buffers)
            }
            (LaneClass::Integers, Self::Machine(program)) => {
                run_program(program, records, buffers.integers.of_rows()).len()
            }
            (LaneClass::Floats, Self::Machine(program)) => {
                run_program(program, records, buffers.floats.of_rows()).len()
            }
            _ => {
                debug_assert!(false, "the record has numbers");
                0
            }
        }
    }

    /// Gathers the texts that are not NULL, of at most [`LANE_ROWS`] rows.
    pub(crate) fn gather_texts<'b, 's: 'b>(
        &'s self,
        rows: RecordRun<'_, 's>,
        buffers: &'b mut LaneBuffers<'s>,
    ) -> state::ValueLane<'b> {
        let RecordRun { run, records } = rows;
        debug_assert!(records.len() <= LANE_ROWS, "the buffers have space for each row");
        let Self::Text { cell, column } = self else {
            debug_assert!(false, "the record has texts");
            return state::ValueLane::Texts(&[]);
        };
        let LaneBuffers { texts, short_texts, .. } = buffers;
        let Some(found) = TextCell::texts(records.field(cell.at(), TextCell::WIDTH)) else {
            return state::ValueLane::Texts(gather_texts(*column, run, texts));
        };
        let nulls = NullBits::of(records, cell.null_bit());
        if !nulls.any() {
            return state::ValueLane::ShortTexts(found);
        }
        let count = nulls.leave_out(found.iter().copied(), short_texts);
        state::ValueLane::ShortTexts(&short_texts[..count])
    }

    /// Counts the rows whose value is not NULL.
    fn count(&self, records: Records<'_>) -> usize {
        match self {
            Self::Nothing => records.len(),
            Self::Presence { null_byte, null_mask } => {
                NullBits::of(records, (*null_byte, *null_mask)).count_present()
            }
            Self::Fixed(column) => NullBits::of(records, column.null_bit()).count_present(),
            Self::Text { cell, .. } => NullBits::of(records, cell.null_bit()).count_present(),
            Self::Machine(program) => run_program(program, records, &mut [0; LANE_ROWS]).len(),
        }
    }

    /// Returns the fields of the records that are read.
    pub(crate) fn fields(&self) -> Vec<RecordField> {
        let field = |offset, width| RecordField { offset, width };
        let of_fixed = |column: &FixedColumn| {
            [field(column.null_bit().0, 1), field(column.at(), column.kind().size())]
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Presence { null_byte, .. } => vec![field(*null_byte, 1)],
            Self::Fixed(column) => of_fixed(column).to_vec(),
            Self::Text { cell, .. } => {
                vec![field(cell.null_bit().0, 1), field(cell.at(), TextCell::WIDTH)]
            }
            Self::Machine(program) => program.columns().flat_map(of_fixed).collect(),
        }
    }
}

/// Computes the values of the rows that count from their records.
fn run_program<'b, T: MachineWord>(
    program: &LaneProgram,
    records: Records<'_>,
    out: &'b mut [T; LANE_ROWS],
) -> &'b [T] {
    assert!(records.len() <= LANE_ROWS, "there is space for a value of each record");
    // SAFETY: `out` has space for a value of each record, of 64 bits.
    let count = unsafe { program.run_records(records, out.as_mut_ptr().cast()) };
    &out[..count]
}

/// Gathers the texts of the rows of a run that are not NULL.
fn gather_texts<'b, 's>(
    column: TextColumn,
    run: &KeyRun<'s>,
    out: &'b mut [&'s str; LANE_ROWS],
) -> &'b [&'s str] {
    let mut count = 0;
    for text in (0..run.len()).filter_map(|row| run.row(row).text(column)) {
        out[count] = text;
        count += 1;
    }
    &out[..count]
}
