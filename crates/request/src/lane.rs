//! A lane: the values of one expression in the rows of a block.
//!
//! A scan collects rows into blocks ([`crate::block`]). A lane goes through a block once, leaves out
//! the rows that do not count, and passes the values to every state that folds them. How a column is
//! read is decided for a block and not for each row: a column of fixed width is read in place, and an
//! expression over such columns, with the condition of the lane, may be machine code.

mod fixed_width;
mod record_input;
mod row_input;

use lockstep_function::aggregate::state::{self, AggregateState};
use lockstep_row::{Arena, Datum, ShortText};

pub(crate) use self::{fixed_width::NullBits, record_input::RecordInput, row_input::RowInput};
use crate::{groups::GroupSet, row_context::RowContext};

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

/// Rows of a block, as lanes read them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRows<'r, 's> {
    pub(crate) rows: &'r [RowContext<'s, 's>],
    /// The bytes of the rows that are stored, which are all of them unless lanes read expressions.
    pub(crate) bytes: &'r [&'s [u8]],
}

/// Memory for the values of one lane.
pub(crate) struct LaneBuffers<'s> {
    /// Where expressions allocate.
    pub(crate) arena: &'s Arena,
    integers: NumberBuffer<i64>,
    floats: NumberBuffer<f64>,
    texts: [&'s str; LANE_ROWS],
    short_texts: [ShortText; LANE_ROWS],
}

impl<'s> LaneBuffers<'s> {
    /// Makes buffers for [`LANE_ROWS`] values.
    pub(crate) fn new(arena: &'s Arena) -> Self {
        Self {
            arena,
            integers: NumberBuffer::default(),
            floats: NumberBuffer::default(),
            texts: [""; LANE_ROWS],
            short_texts: [ShortText::default(); LANE_ROWS],
        }
    }

    /// Returns the first `count` values that were gathered for a lane of numbers or of rows, with that
    /// of the current row.
    #[inline]
    pub(crate) fn with_current(
        &mut self,
        class: LaneClass,
        count: usize,
        current: CurrentValue,
    ) -> state::ValueLane<'_> {
        match (class, current) {
            (LaneClass::Integers, CurrentValue::Integer(value)) => {
                state::ValueLane::Integers(self.integers.with_current(count, value))
            }
            (LaneClass::Floats, CurrentValue::Float(value)) => {
                state::ValueLane::Floats(self.floats.with_current(count, value))
            }
            (LaneClass::Integers, _) => state::ValueLane::Integers(&self.integers.0[..count]),
            (LaneClass::Floats, _) => state::ValueLane::Floats(&self.floats.0[..count]),
            (LaneClass::Rows, CurrentValue::None) => state::ValueLane::Rows(count),
            (LaneClass::Rows, _) => state::ValueLane::Rows(count + 1),
            (LaneClass::Texts, _) => {
                debug_assert!(false, "a text of the current row is added at once");
                state::ValueLane::Rows(0)
            }
        }
    }
}

/// Numbers of [`LANE_ROWS`] rows, and of the current row after them.
struct NumberBuffer<T>([T; LANE_ROWS + 1]);

impl<T: Default + Copy> Default for NumberBuffer<T> {
    fn default() -> Self {
        Self([T::default(); LANE_ROWS + 1])
    }
}

impl<T> NumberBuffer<T> {
    /// Returns the places for the numbers of rows.
    fn of_rows(&mut self) -> &mut [T; LANE_ROWS] {
        self.0.first_chunk_mut().expect("it has one place more")
    }

    /// Returns the numbers of the first `count` rows and that of the current row.
    fn with_current(&mut self, count: usize, current: T) -> &[T] {
        debug_assert!(count <= LANE_ROWS, "there is space for each row and the current one");
        self.0[count] = current;
        &self.0[..=count]
    }
}

/// What the current row adds to a lane when its value is added together with those of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum CurrentValue {
    /// Nothing: the row does not count, or was added.
    #[default]
    None,
    Integer(i64),
    Float(f64),
    /// A row that counts, in a lane whose values are not read.
    Row,
}

/// Values that machine code writes: 64 bits each, integers and DOUBLEs alike.
trait MachineWord: Copy {}
impl MachineWord for i64 {}
impl MachineWord for f64 {}

const _: () = assert!(size_of::<i64>() == size_of::<u64>() && size_of::<f64>() == size_of::<u64>());

impl ScanLane {
    /// Returns what a value of the current row adds to a lane of numbers or of rows; `None` is given
    /// where rows are counted.
    #[inline]
    pub(crate) fn current_value(&self, value: Option<Datum<'_>>) -> CurrentValue {
        let Some(value) = value else { return CurrentValue::Row };
        match (self.class, value) {
            (LaneClass::Texts, _) | (_, Datum::Null) => CurrentValue::None,
            (LaneClass::Rows, _) => CurrentValue::Row,
            (LaneClass::Integers, value) => {
                let value = as_integer(value).filter(|value| !self.skips_zeros || *value != 0);
                value.map_or(CurrentValue::None, CurrentValue::Integer)
            }
            (LaneClass::Floats, value) => {
                let value = value.as_f64().filter(|value| !self.skips_zeros || *value != 0.0);
                value.map_or(CurrentValue::None, CurrentValue::Float)
            }
        }
    }

    /// Adds the value of one row to a state; `None` where rows are counted.
    pub(crate) fn update_one(&self, state: &mut AggregateState, value: Option<Datum<'_>>) {
        match value {
            Some(Datum::String(text)) if self.class == LaneClass::Texts => {
                state.add(state::ValueLane::Texts(&[text]));
            }
            value => self.update_current(state, self.current_value(value)),
        }
    }

    /// Adds what the current row adds to a state.
    pub(crate) fn update_current(&self, state: &mut AggregateState, value: CurrentValue) {
        match value {
            CurrentValue::None => {}
            CurrentValue::Integer(value) => state.add(state::ValueLane::Integers(&[value])),
            CurrentValue::Float(value) => state.add(state::ValueLane::Floats(&[value])),
            CurrentValue::Row => state.add(state::ValueLane::Rows(1)),
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
