//! Estimates of the memory and of the files that a table will take, before there are rows.
//!
//! `engine` answers ESTIMATE with it. Rows are assumed to arrive in order of event time, many in an
//! append, evenly spread over the keys of each index. [`TableShape::of_rows`] finds the sizes of rows
//! that are there.

use lockstep_row::{DataType, IndexSpec, TableSchema};
use lockstep_series::estimate::{
    IndexShape, LevelsShape, levels_bytes, log_bytes, page_bytes, series_bytes, stored_row_bytes,
};

use crate::{
    ReadError, Snapshot, TableMemory,
    disk::tuning,
    part::{BlockFootprint, block_footprint, fence_footprint, filter_bytes, time_columns},
    table::number,
};

/// How many rows are read to find the bytes of a STRING.
const SAMPLED_ROWS: u64 = 10_000;

/// The sizes by which a table's memory is estimated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableShape {
    /// The number of rows.
    pub rows: u64,
    /// The number of entity keys of each index; the last one also applies to the indexes that follow,
    /// and without a number there are as many keys as rows.
    pub keys: Vec<u64>,
    /// Bytes of a STRING, ARRAY or MAP.
    pub text_bytes: u64,
    /// Bytes of a record of each index, see `Projection::size`; no number for an index that
    /// includes no columns.
    pub record_sizes: Vec<usize>,
}

/// Estimates the memory of a table of this schema and these sizes.
pub fn estimate(schema: &TableSchema, shape: &TableShape) -> TableMemory {
    let index = |(at, spec): (usize, &IndexSpec)| {
        if spec.is_removed() {
            return 0;
        }
        let record_size = shape.record_sizes.get(at).copied().unwrap_or(0);
        let key_size = index_key_size(schema, spec, shape);
        let index = IndexShape { key_size, record_size, is_wide: false };
        series_bytes(shape.rows, shape.keys_of(at, spec), index)
    };
    TableMemory {
        rows: log_bytes(shape.rows, row_size(schema, shape)),
        indexes: schema.indexes.iter().enumerate().map(index).collect(),
        parts: 0,
    }
}

/// What a table takes whose rows are in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEstimate {
    /// The rows in order of arrival.
    pub rows: PartEstimate,
    /// The rows of each index by key.
    pub indexes: Vec<PartEstimate>,
}

/// What the files of a part of a table take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartEstimate {
    /// Bytes on the disk.
    pub files: u64,
    /// Bytes of memory while the files are open, without pages.
    pub memory: u64,
}

impl DiskEstimate {
    /// Returns what the table takes in all.
    pub fn total(&self) -> PartEstimate {
        self.indexes.iter().fold(self.rows, |sum, index| PartEstimate {
            files: sum.files.saturating_add(index.files),
            memory: sum.memory.saturating_add(index.memory),
        })
    }
}

/// Estimates what a table of this schema and these sizes takes when its rows are in files: those of a disk
/// table, and those that checkpoints write of a memory table. While files are merged there are more.
pub fn estimate_on_disk(schema: &TableSchema, shape: &TableShape) -> DiskEstimate {
    let row_size = row_size(schema, shape);
    let index = |(at, spec): (usize, &IndexSpec)| {
        if spec.is_removed() {
            return PartEstimate::default();
        }
        let (keys, key_size) = (shape.keys_of(at, spec), index_key_size(schema, spec, shape));
        let payload = page_bytes(shape.rows, keys, key_size, row_size);
        let filter = filter_bytes(keys.min(shape.rows));
        let fence = fence_footprint(key_size);
        let part = blocks_of(payload, tuning().page_bytes, fence);
        PartEstimate {
            files: part.files.saturating_add(filter),
            memory: part.memory.saturating_add(filter),
        }
    };
    let payload = shape.rows.saturating_mul(stored_row_bytes(row_size));
    DiskEstimate {
        rows: blocks_of(payload, tuning().block_bytes, block_footprint(time_columns(schema).len())),
        indexes: schema.indexes.iter().enumerate().map(index).collect(),
    }
}

/// Returns what so many bytes take in blocks of a size.
fn blocks_of(payload: u64, block_bytes: u64, each: BlockFootprint) -> PartEstimate {
    let blocks = payload.div_ceil(block_bytes.max(1));
    PartEstimate {
        files: payload.saturating_add(blocks.saturating_mul(each.files)),
        memory: blocks.saturating_mul(each.memory),
    }
}

/// What decides how much memory the levels of an index take.
pub struct LevelsNeed<'f> {
    /// The position of the index.
    pub index: usize,
    /// Only keys with at least so many rows have levels.
    pub rows_min: u64,
    /// Returns the bytes of the states of so many rows.
    pub state_bytes: &'f mut dyn FnMut(u64) -> u64,
}

/// Estimates the memory of levels of a table of this schema and these sizes, when all keys that can have
/// levels have them. States that may be too large to be stored are counted as large as they may be.
pub fn estimate_levels(schema: &TableSchema, shape: &TableShape, need: LevelsNeed<'_>) -> u64 {
    let LevelsNeed { index, rows_min, state_bytes } = need;
    let Some(spec) = schema.indexes.get(index).filter(|spec| !spec.is_removed()) else { return 0 };
    let key_size = index_key_size(schema, spec, shape);
    let levels = LevelsShape { key_size, rows_min, state_bytes };
    levels_bytes(shape.rows, shape.keys_of(index, spec), levels)
}

impl TableShape {
    /// Returns the sizes of the rows that are there: their number, the number of keys of each index, and the
    /// bytes of a STRING in the oldest ten thousand rows. In files, keys are counted in the run that has the most
    /// of them.
    pub fn of_rows(snapshot: &Snapshot<'_>) -> Result<Self, ReadError> {
        let (schema, state) = (snapshot.schema(), snapshot.state());
        let keys = |index: usize| {
            let runs = state.disk.iter().flat_map(|disk| disk.parts.runs(index));
            let in_files = runs.map(|run| run.counts().keys).max().unwrap_or(0);
            in_files.max(number(state.indexes[index].series.key_count()))
        };
        let (mut sampled, mut bytes, mut scan) = (0_u64, 0_u64, snapshot.scan());
        while sampled < SAMPLED_ROWS
            && let Some(row) = scan.next_row()?
        {
            sampled += 1;
            bytes += number(row.row.bytes().len());
        }
        let mut shape = Self {
            rows: snapshot.stored_row_count(),
            keys: (0..schema.indexes.len()).map(keys).collect(),
            ..Self::default()
        };
        let variable = schema.columns.iter().filter(|column| is_variable(&column.data_type));
        let variable = number(variable.count());
        if let Some(row_bytes) = bytes.checked_div(sampled)
            && variable > 0
        {
            let without = number(row_size(schema, &shape));
            shape.text_bytes = row_bytes.saturating_sub(without).div_ceil(variable);
        }
        Ok(shape)
    }

    /// Returns the number of entity keys of an index.
    fn keys_of(&self, index: usize, spec: &IndexSpec) -> u64 {
        let keys = self.keys.get(index).or(self.keys.last()).copied().unwrap_or(self.rows);
        if spec.keys.is_empty() { 1 } else { keys.max(1) }
    }
}

impl std::fmt::Debug for LevelsNeed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LevelsNeed")
            .field("index", &self.index)
            .field("rows_min", &self.rows_min)
            .finish_non_exhaustive()
    }
}

/// Returns the bytes of an entity key of an index.
fn index_key_size(schema: &TableSchema, spec: &IndexSpec, shape: &TableShape) -> usize {
    spec.keys.iter().map(|column| key_size(&schema.columns[*column].data_type, shape)).sum()
}

/// Returns the bytes of an encoded row: see the layout in `row`.
fn row_size(schema: &TableSchema, shape: &TableShape) -> usize {
    let text = usize::try_from(shape.text_bytes).unwrap_or(usize::MAX / 2);
    let types = || schema.columns.iter().map(|column| &column.data_type);
    let variable = types().filter(|data_type| is_variable(data_type)).count();
    let fixed: usize = types().filter_map(fixed_size).sum();
    let texts = variable.saturating_mul(text);
    let end = match texts {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    1 + schema.columns.len().div_ceil(8) + fixed + variable * end + texts
}

fn is_variable(data_type: &DataType) -> bool {
    fixed_size(data_type).is_none()
}

/// Returns the bytes of a value of fixed width.
fn fixed_size(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Bool => Some(1),
        DataType::SmallInt => Some(2),
        DataType::Int | DataType::Float | DataType::Date => Some(4),
        DataType::BigInt | DataType::Double | DataType::Timestamp => Some(8),
        DataType::String | DataType::Array(_) | DataType::Map(_, _) => None,
    }
}

/// Returns the bytes of a column's value within an entity key: see `row::key`.
fn key_size(data_type: &DataType, shape: &TableShape) -> usize {
    match data_type {
        DataType::Null => 1,
        DataType::Bool => 2,
        DataType::String | DataType::Array(_) | DataType::Map(_, _) => {
            5 + usize::try_from(shape.text_bytes).unwrap_or(usize::MAX / 2)
        }
        _ => 9,
    }
}
