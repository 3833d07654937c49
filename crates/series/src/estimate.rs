//! Estimates of the memory that a series and a log will take.
//!
//! `table` adds them up for ESTIMATE. Each function goes through the steps of inserting rows, without
//! rows: these are assumed to arrive in order of event time, spread evenly over keys.

use crate::{
    block::{TIME_ENTRY_SIZE, block_footprint, block_size},
    buckets::{buckets_footprint, buckets_for},
    chunk::{SlotLayout, capacity_for, chunk_footprint},
    directory::{directory_capacity, directory_footprint},
    entry::{first_capacity, grown_capacity, next_capacity, several_footprint, single_footprint},
    levels::{FAN_OUT, key_bytes, node_footprint, state_bytes_max},
    page::{GROUP_HEADER_BYTES, TIME_BYTES},
    row_ref::stored_size,
    series::{SHARD_COUNT, Series},
    sync::{CHUNK_ROWS_MAX, leaf_rows},
};

/// How many rows are assumed to arrive together, in one append and millisecond.
const ROWS_PER_APPEND: usize = 64;

/// Estimates the bytes that a log of so many rows of so many bytes takes.
pub fn log_bytes(rows: u64, row_size: usize) -> u64 {
    let row_size = stored_size(row_size);
    let (mut taken, mut left, mut blocks_made) = (0_usize, rows, 0_usize);
    while left > 0 {
        let size = block_size(taken, row_size);
        let held = (size * ROWS_PER_APPEND / (row_size * ROWS_PER_APPEND + TIME_ENTRY_SIZE)).max(1);
        // Blocks stop growing: the rest is in as many of the greatest as it takes.
        let is_greatest = size == block_size(usize::MAX / 2, row_size);
        let blocks = if is_greatest { usize_of(left.div_ceil(number(held))) } else { 1 };
        left = left.saturating_sub(number(held).saturating_mul(number(blocks)));
        taken = taken.saturating_add(block_footprint(size).saturating_mul(blocks));
        blocks_made += blocks;
    }
    number(taken.saturating_add(directory_footprint(grown_directory_capacity(blocks_made))))
}

/// Returns the bytes that a row of so many bytes takes where it is stored, in memory and in pages.
pub fn stored_row_bytes(row_size: usize) -> u64 {
    number(stored_size(row_size))
}

/// Estimates the bytes that the pages of an index of so many rows and keys take.
pub fn page_bytes(rows: u64, keys: u64, key_size: usize, row_size: usize) -> u64 {
    debug_assert!(rows == 0 || keys > 0, "each row has a key");
    let of_rows = rows.saturating_mul(number(TIME_BYTES) + stored_row_bytes(row_size));
    let of_keys = keys.min(rows).saturating_mul(number(GROUP_HEADER_BYTES + key_size));
    of_rows.saturating_add(of_keys)
}

/// The sizes that determine how much memory an index takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexShape {
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a record; 0 when no column is included.
    pub record_size: usize,
    /// Whether the rows of a key span more than 49 days by the hundred.
    pub is_wide: bool,
}

/// Estimates the bytes that an index of so many rows and keys takes.
pub fn series_bytes(rows: u64, keys: u64, shape: IndexShape) -> u64 {
    let empty = Series::new().memory_bytes();
    if rows == 0 || keys == 0 {
        return empty;
    }
    let keys = keys.min(rows);
    debug_assert!(keys > 0, "there are rows");
    let (least, more) = (rows / keys, rows % keys);
    let entries = |keys: u64, rows: u64| match keys {
        0 => 0,
        _ => entry_bytes(rows, shape).saturating_mul(keys),
    };
    let buckets = all_buckets_bytes(keys);
    let entries = entries(keys - more, least).saturating_add(entries(more, least + 1));
    empty.saturating_add(entries).saturating_add(buckets)
}

/// Estimates the bytes of an entry of so many rows with its chunks.
fn entry_bytes(rows: u64, shape: IndexShape) -> u64 {
    let IndexShape { key_size, record_size, is_wide } = shape;
    let slots = SlotLayout { is_wide, record_size };
    if rows == 1 {
        return number(single_footprint(key_size));
    }
    let made_for = |rows: usize| capacity_for(rows, slots);
    let max = number(CHUNK_ROWS_MAX);
    // Full chunks, and the newest one with the capacity to which it has grown.
    let (full, newest) = ((rows - 1) / max, usize_of((rows - 1) % max) + 1);
    let full = usize_of(full);
    let mut capacity = made_for(if full == 0 { first_capacity() } else { next_capacity(full) });
    while capacity < newest {
        capacity = made_for(grown_capacity(capacity, capacity + 1));
    }
    let mut bytes = several_footprint(key_size) + chunk_footprint(capacity, slots);
    bytes += full * chunk_footprint(CHUNK_ROWS_MAX, slots);
    if full > 0 {
        bytes += directory_footprint(grown_directory_capacity((full + 1).max(2)));
    }
    number(bytes)
}

/// The sizes that determine how much memory levels take.
pub struct LevelsShape<'f> {
    /// Bytes of a key.
    pub key_size: usize,
    /// Only keys with at least so many rows have levels.
    pub rows_min: u64,
    /// Returns the bytes of the states of so many rows.
    pub state_bytes: &'f mut dyn FnMut(u64) -> u64,
}

/// Estimates the bytes that levels over an index of so many rows and keys take, when all keys that can have
/// levels have them. States that may be too large to be stored are counted as large as they may be.
pub fn levels_bytes(rows: u64, keys: u64, mut shape: LevelsShape<'_>) -> u64 {
    if rows == 0 || keys == 0 {
        return 0;
    }
    let keys = keys.min(rows);
    debug_assert!(keys > 0, "there are rows");
    let (least, more) = (rows / keys, rows % keys);
    let mut of_keys = |keys: u64, rows: u64| match keys {
        0 => 0,
        _ => key_levels_bytes(rows, &mut shape).saturating_mul(keys),
    };
    of_keys(keys - more, least).saturating_add(of_keys(more, least + 1))
}

/// Estimates the bytes of the levels of a key of so many rows.
fn key_levels_bytes(rows: u64, shape: &mut LevelsShape<'_>) -> u64 {
    let leaf_rows = number(leaf_rows());
    if rows < leaf_rows.max(shape.rows_min) {
        return 0;
    }
    let mut bytes = number(key_bytes(shape.key_size));
    // A leaf is made when a newer row exists.
    let (mut nodes, mut node_rows, mut children) = ((rows - 1) / leaf_rows, leaf_rows, 0);
    while nodes > 0 {
        let states = (shape.state_bytes)(node_rows).min(state_bytes_max(node_rows));
        let node = number(node_footprint(usize_of(states), children));
        bytes = bytes.saturating_add(node.saturating_mul(nodes));
        children = FAN_OUT;
        nodes /= number(FAN_OUT);
        node_rows = node_rows.saturating_mul(number(FAN_OUT));
    }
    bytes
}

/// Returns the capacity of a directory to which `len` pointers were appended.
fn grown_directory_capacity(len: usize) -> usize {
    let mut capacity = if len > 0 { directory_capacity(1) } else { 0 };
    while capacity < len {
        capacity = directory_capacity(capacity + 1);
    }
    capacity
}

/// Estimates the bytes of the buckets of all shards: the keys of a shard vary about their mean.
fn all_buckets_bytes(keys: u64) -> u64 {
    let shards = number(SHARD_COUNT);
    let (mean, rest) = (keys / shards, keys % shards);
    let spread = mean.isqrt();
    let of_shard = |shard: u64| {
        // From one deviation below the mean to one above, evenly.
        let count = mean + u64::from(shard < rest) + spread * 2 * shard / shards;
        number(buckets_bytes(usize_of(count.saturating_sub(spread))))
    };
    (0..shards).map(of_shard).sum()
}

/// Returns the bytes of the buckets of a shard of so many keys.
fn buckets_bytes(keys: usize) -> usize {
    let mut len = 0;
    // The greatest number of keys that the buckets hold, then one more.
    while len * 3 / 4 < keys {
        len = buckets_for(len * 3 / 4 + 1);
    }
    buckets_footprint(len)
}

/// Converts a size.
fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a size fits 64 bits")
}

/// Converts a count.
fn usize_of(count: u64) -> usize {
    usize::try_from(count).expect("addresses have 64 bits")
}

impl std::fmt::Debug for LevelsShape<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LevelsShape")
            .field("key_size", &self.key_size)
            .field("rows_min", &self.rows_min)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{IndexShape, log_bytes, series_bytes};
    use crate::{HashedKey, KeyRow, RecordFormat, RowBatch, RowLog, Series, pin};

    /// The estimate and what is taken, in bytes, differ by this part at most: a tenth.
    fn is_near(estimated: u64, taken: u64) -> bool {
        estimated.abs_diff(taken) * 10 <= taken
    }

    fn check(rows: u64, keys: u64, (row_size, key_size, record_size): (usize, usize, usize)) {
        let series = match record_size {
            0 => Series::new(),
            size => Series::with_records(Arc::new(RecordFormat::new([1, size - 1], |_, _| ()))),
        };
        let log = RowLog::new();
        let mut batch = RowBatch::default();
        let mut arrival = 0;
        while arrival < rows {
            batch.clear();
            for _ in 0..100.min(rows - arrival) {
                let pushed: Result<(), ()> = batch.push(|out| {
                    out.extend(std::iter::repeat_n(7, row_size));
                    Ok(())
                });
                pushed.unwrap();
            }
            let time = i64::try_from(arrival).unwrap();
            let (position, _) = log.append(&batch, arrival, time);
            let guard = pin();
            let mut appended = log.rows_from(position, &guard);
            for _ in 0..batch.len() {
                let mut key = (arrival % keys).to_le_bytes().to_vec();
                key.resize(key_size.max(8), 0);
                let row = appended.next_row().unwrap();
                let time = i64::try_from(arrival).unwrap();
                let hashed = HashedKey { hash: series.hash(&key), key: &key };
                // SAFETY: the log is dropped after the series.
                unsafe { series.insert(hashed, KeyRow { event_time: time, row }, &guard) };
                arrival += 1;
            }
        }
        let shape = format!("{rows} rows of {row_size}, {keys} keys of {key_size}, {record_size}");
        let (estimated, taken) = (log_bytes(rows, row_size), log.memory_bytes());
        assert!(is_near(estimated, taken), "{shape}: rows {estimated}, {taken} taken");
        let estimated =
            series_bytes(rows, keys, IndexShape { key_size, record_size, is_wide: false });
        let taken = series.memory_bytes();
        assert!(is_near(estimated, taken), "{shape}: index {estimated}, {taken} taken");
        drop(series);
    }

    #[test]
    fn an_estimate_is_within_a_tenth_of_what_is_taken() {
        let most = if cfg!(miri) { 100 } else { u64::MAX };
        for rows in [1, 30, 1_000, 20_000, 70_001].into_iter().filter(|rows| *rows <= most) {
            for keys in [1, 10, 300, 9_000, 70_000] {
                if keys <= rows {
                    check(rows, keys, (60, 9, 0));
                    check(rows, keys, (250, 30, 0));
                    check(rows, keys, (60, 9, 17));
                    check(rows, keys, (60, 9, 64));
                }
            }
        }
    }
}
