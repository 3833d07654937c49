//! A lane: the values of one expression in the rows of a block.
//!
//! A scan collects rows into blocks ([`crate::block`]). A lane goes through a block once, leaves out
//! the rows that do not count, and passes the values to every state that folds them. How a column is
//! read is decided for a block and not for each row: a column of fixed width is read in place, and an
//! expression over such columns, with the condition of the lane, may be machine code.

mod fixed_width;
mod record_input;
mod row_input;

use lockstep_function::aggregate::fold::{self, FoldState};
use lockstep_row::{Arena, Datum, ShortText};

pub(crate) use self::{record_input::RecordInput, row_input::RowInput};
use crate::groups::GroupSet;

/// The most rows of a block: few enough that their cache lines are still cached when the next lane
/// reads them.
pub(crate) const BLOCK_ROWS: usize = 64;
/// The most rows that a lane is given at once: those of a block, or of a run of records, of which
/// more fit into the cache.
pub(crate) const LANE_ROWS: usize = 128;

const _: () = assert!(BLOCK_ROWS <= LANE_ROWS);

/// What the values of a lane are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneClass {
    /// Values are not read, only which rows count.
    Rows,
    Integers,
    Floats,
    Texts,
}

/// A lane of a scan, whatever the source of the rows.
#[derive(Debug)]
pub(crate) struct ScanLane {
    pub(crate) class: LaneClass,
    /// The position of the condition, among those of the scan, for which rows count.
    pub(crate) condition: Option<usize>,
    /// Whether zeros do not count.
    pub(crate) skips_zeros: bool,
    /// The window groups that have a state of the lane.
    pub(crate) groups: GroupSet,
    pub(crate) states: Vec<LaneState>,
}

/// A state that folds the values of a lane.
#[derive(Debug)]
pub(crate) struct LaneState {
    /// The window groups that the state belongs to.
    pub(crate) groups: GroupSet,
    pub(crate) state: usize,
}

/// Memory for the values of one lane.
pub(crate) struct LaneBuffers<'s> {
    /// Where expressions allocate.
    pub(crate) arena: &'s Arena,
    integers: [i64; LANE_ROWS],
    floats: [f64; LANE_ROWS],
    texts: [&'s str; LANE_ROWS],
    short_texts: [ShortText; LANE_ROWS],
}

impl<'s> LaneBuffers<'s> {
    /// Makes buffers for [`LANE_ROWS`] values.
    pub(crate) fn new(arena: &'s Arena) -> Self {
        Self {
            arena,
            integers: [0; LANE_ROWS],
            floats: [0.0; LANE_ROWS],
            texts: [""; LANE_ROWS],
            short_texts: [ShortText::default(); LANE_ROWS],
        }
    }
}

/// Values that machine code writes: 64 bits each, integers and DOUBLEs alike.
trait MachineWord: Copy {}
impl MachineWord for i64 {}
impl MachineWord for f64 {}

const _: () = assert!(size_of::<i64>() == size_of::<u64>() && size_of::<f64>() == size_of::<u64>());

impl ScanLane {
    /// Adds the value of one row to a state; `None` where rows are counted.
    pub(crate) fn update_one(&self, state: &mut FoldState, value: Option<Datum<'_>>) {
        let Some(value) = value else { return state.add(fold::ValueLane::Rows(1)) };
        match (self.class, value) {
            (_, Datum::Null) => {}
            (LaneClass::Rows, _) => state.add(fold::ValueLane::Rows(1)),
            (LaneClass::Texts, Datum::String(text)) => state.add(fold::ValueLane::Texts(&[text])),
            (LaneClass::Integers, value) => {
                let value = as_integer(value).filter(|value| !self.skips_zeros || *value != 0);
                value.into_iter().for_each(|value| state.add(fold::ValueLane::Integers(&[value])));
            }
            (LaneClass::Floats, value) => {
                let value = value.as_f64().filter(|value| !self.skips_zeros || *value != 0.0);
                value.into_iter().for_each(|value| state.add(fold::ValueLane::Floats(&[value])));
            }
            (LaneClass::Texts, _) => debug_assert!(false, "a lane of texts has texts"),
        }
    }

    /// Returns the first `count` values, without zeros where the lane skips them.
    fn counted<'b, T: Default + PartialEq + Copy>(
        &self,
        values: &'b mut [T; LANE_ROWS],
        count: usize,
    ) -> &'b [T] {
        if !self.skips_zeros {
            return &values[..count];
        }
        let mut counted = 0;
        for at in 0..count {
            values[counted] = values[at];
            counted += usize::from(values[at] != T::default());
        }
        &values[..counted]
    }
}

/// Returns an integer, or a BOOL as 0 or 1.
fn as_integer(value: Datum<'_>) -> Option<i64> {
    match value {
        Datum::Bool(value) => Some(i64::from(value)),
        other => other.as_i64(),
    }
}
