//! Estimates of the memory of pre-aggregates: the sizes of the states of nodes are those of states that are
//! made of sample values.
//!
//! `engine` answers ESTIMATE with it. The values of a column are all different; where that makes sets so
//! large that they are not stored, they are counted as large as a node may have them.

use lockstep_function::{
    AggregateState, BoundAggregate, PickedRow, RowsEnd, StateUse,
    aggregate::state::{StateKind, ValueLane},
};
use lockstep_row::{DataType, Datum, TableSchema};
use lockstep_table::{LevelKeys, LevelsNeed, TableShape, estimate_levels};

use super::{PreAggregate, WANTED_ROWS_MIN};
use crate::lane::{LaneClass, ScanLane};

/// States are made of so many rows at most; beyond them, they are assumed to grow as they did.
const SAMPLE_ROWS: u64 = 1 << 10;
/// The bytes of the value of one row, with its type.
const VALUE_BYTES: u64 = 10;
/// The most bytes of a text of the sample: longer ones make sets that are too large anyway.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// Values of columns, all different.
struct SampleValues {
    integers: Vec<i64>,
    floats: Vec<f64>,
    texts: Vec<String>,
}

impl PreAggregate {
    /// Estimates the bytes that its levels take over a table of this schema and these sizes, when all keys
    /// have them that can: with `pre_aggregation='auto'`, those of which a request reads enough rows.
    pub fn estimate(&self, schema: &TableSchema, shape: &TableShape) -> u64 {
        let rows_min = match self.keys {
            LevelKeys::OnDemand => WANTED_ROWS_MIN,
            LevelKeys::All => 0,
        };
        let values = SampleValues::new(SAMPLE_ROWS, shape.text_bytes);
        let state_bytes = &mut |rows| grown(rows, |sample| self.state_bytes(&values, sample));
        let need = LevelsNeed { index: self.hold.index(), rows_min, state_bytes };
        estimate_levels(schema, shape, need)
    }

    /// Returns the bytes of the encoded states of so many rows of the sample.
    fn state_bytes(&self, values: &SampleValues, rows: usize) -> u64 {
        let aggregates = &self.aggregates;
        let of_lane = |lane: &ScanLane| -> u64 {
            let kinds = lane.states.iter().map(|of_lane| aggregates.states[of_lane.state]);
            kinds.map(|kind| values.lane_state_bytes(kind, lane.class, rows)).sum()
        };
        let lanes: u64 = aggregates.lanes.iter().map(of_lane).sum();
        let calls = aggregates.calls.iter();
        let calls: u64 = calls.map(|call| values.call_state_bytes(&call.bound, rows)).sum();
        let oldest = aggregates.picks.iter().filter(|pick| pick.row == PickedRow::Oldest).count();
        lanes + calls + oldest as u64 * VALUE_BYTES
    }
}

/// Returns the bytes of so many rows, from those of a sample of them: what is larger grows as it did within
/// the sample.
fn grown(rows: u64, bytes: impl Fn(usize) -> u64) -> u64 {
    let sample = rows.min(SAMPLE_ROWS);
    let of_sample = |rows: u64| bytes(usize::try_from(rows).expect("a sample is small"));
    let found = of_sample(sample);
    if rows == sample {
        return found;
    }
    let half = sample / 2;
    debug_assert!(half > 0, "a sample has some rows");
    let per_half = found.saturating_sub(of_sample(half));
    // States that are as large for half of the rows stay so, but for the bits of their counts.
    if per_half * 16 < found {
        return found + per_half;
    }
    found.saturating_add((rows - sample).div_ceil(half).saturating_mul(per_half))
}

impl SampleValues {
    /// Makes so many values; texts are of so many bytes, but for what tells them apart.
    fn new(count: u64, text_bytes: u64) -> Self {
        let count = i32::try_from(count).expect("a sample is small");
        let width = usize::try_from(text_bytes).unwrap_or(TEXT_BYTES_MAX).min(TEXT_BYTES_MAX);
        Self {
            integers: (0..count).map(|at| 10_000 + i64::from(at) * 37).collect(),
            floats: (0..count).map(|at| 1_000.0 + f64::from(at) * 0.37).collect(),
            texts: (0..count).map(|at| format!("{at:0>width$}")).collect(),
        }
    }

    /// Returns the bytes of an encoded state that folds values of a lane.
    fn lane_state_bytes(&self, kind: StateKind, class: LaneClass, rows: usize) -> u64 {
        let mut state = AggregateState::new(kind, StateUse::Fold);
        let texts: Vec<&str> = self.texts[..rows].iter().map(String::as_str).collect();
        state.add(match class {
            LaneClass::Rows => ValueLane::Rows(rows),
            LaneClass::Integers => ValueLane::Integers(&self.integers[..rows]),
            LaneClass::Floats => ValueLane::Floats(&self.floats[..rows]),
            LaneClass::Texts => ValueLane::Texts(&texts),
        });
        encoded_bytes(&state)
    }

    /// Returns the bytes of an encoded state that takes rows one by one.
    fn call_state_bytes(&self, bound: &BoundAggregate, rows: usize) -> u64 {
        let mut state = bound.new_state(StateUse::Fold);
        for row in 0..rows {
            let datum = |data_type: &DataType| self.datum(data_type, row);
            let arguments: Vec<_> = bound.parameters.iter().map(datum).collect();
            bound.add(&mut state, &arguments, RowsEnd::Oldest);
        }
        encoded_bytes(&state)
    }

    /// Returns a value of a type.
    fn datum(&self, data_type: &DataType, row: usize) -> Datum<'_> {
        let integer = self.integers[row];
        let small = i32::try_from(integer).unwrap_or(i32::MAX);
        match data_type {
            DataType::Bool => Datum::Bool(true),
            DataType::SmallInt => Datum::SmallInt(i16::try_from(small).unwrap_or(i16::MAX)),
            DataType::Int => Datum::Int(small),
            DataType::BigInt => Datum::BigInt(integer),
            DataType::Float => Datum::Float(f32::from(u16::try_from(row).unwrap_or(u16::MAX))),
            DataType::Double => Datum::Double(self.floats[row]),
            DataType::String => Datum::String(&self.texts[row]),
            DataType::Timestamp => Datum::Timestamp(integer),
            DataType::Date => Datum::Date(small),
            DataType::Null | DataType::Array(_) | DataType::Map(_, _) => Datum::Null,
        }
    }
}

/// Returns the bytes of an encoded state.
fn encoded_bytes(state: &AggregateState) -> u64 {
    let mut bytes = Vec::new();
    let is_encoded = state.encode(&mut bytes);
    debug_assert!(is_encoded, "a state of a node is encoded");
    bytes.len() as u64
}
