//! What a series and a log of a given shape will take, by the rules that make them.
//!
//! `table` adds it up for ESTIMATE. Each function goes through the steps that inserting rows
//! would, without rows: rows are taken to come in order of event time, spread evenly over keys.

use crate::{
    block::{RUN_SIZE, block_footprint, block_size},
    buckets::{buckets_footprint, buckets_for},
    chunk::{SlotShape, capacity_for, chunk_footprint},
    entry::{first_room, grown_room, opened_room, several_footprint, single_footprint},
    row_ref::stored_size,
    series::{SHARD_COUNT, Series},
    spine::{spine_capacity, spine_footprint},
    sync::CHUNK_ROWS_MAX,
};

/// How many rows arrive together, in one append and millisecond, when nothing is said about it.
const ROWS_PER_RUN: usize = 64;

/// Bytes that a log of so many rows of so many bytes takes.
pub fn log_bytes(rows: u64, row_size: usize) -> u64 {
    let row_size = stored_size(row_size);
    let (mut taken, mut left, mut parts) = (0_usize, rows, 0_usize);
    while left > 0 {
        let size = block_size(taken, row_size);
        let held = (size * ROWS_PER_RUN / (row_size * ROWS_PER_RUN + RUN_SIZE)).max(1);
        // Blocks stop growing: the rest is as many of the greatest as it takes.
        let is_greatest = size == block_size(usize::MAX / 2, row_size);
        let blocks = if is_greatest { usize_of(left.div_ceil(number(held))) } else { 1 };
        left = left.saturating_sub(number(held).saturating_mul(number(blocks)));
        taken = taken.saturating_add(block_footprint(size).saturating_mul(blocks));
        parts += blocks;
    }
    number(taken.saturating_add(spine_footprint(spine_room(parts))))
}

/// What each key and each slot of an index takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexShape {
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a record; 0 when no column is included.
    pub record_size: usize,
    /// Whether the rows of a key span more than 49 days by the hundred.
    pub is_wide: bool,
}

/// Bytes that an index of so many rows and keys takes.
pub fn series_bytes(rows: u64, keys: u64, shape: IndexShape) -> u64 {
    let empty = Series::new().memory_bytes();
    if rows == 0 || keys == 0 {
        return empty;
    }
    let keys = keys.min(rows);
    let (least, more) = (rows / keys, rows % keys);
    let entries = |keys: u64, rows: u64| match keys {
        0 => 0,
        _ => entry_bytes(rows, shape).saturating_mul(keys),
    };
    let buckets = all_buckets_bytes(keys);
    let entries = entries(keys - more, least).saturating_add(entries(more, least + 1));
    empty.saturating_add(entries).saturating_add(buckets)
}

/// Bytes of an entry of so many rows with its chunks.
fn entry_bytes(rows: u64, shape: IndexShape) -> u64 {
    let IndexShape { key_size, record_size, is_wide } = shape;
    let slots = SlotShape { is_wide, record_size };
    if rows == 1 {
        return number(single_footprint(key_size));
    }
    let room = |rows: usize| capacity_for(rows, slots);
    let max = number(CHUNK_ROWS_MAX);
    // Chunks that are full, and what the rows in the newest one have made of it.
    let (full, newest) = ((rows - 1) / max, usize_of((rows - 1) % max) + 1);
    let full = usize_of(full);
    let mut capacity = room(if full == 0 { first_room() } else { opened_room(full) });
    while capacity < newest {
        capacity = room(grown_room(capacity, capacity + 1));
    }
    let mut bytes = several_footprint(key_size) + chunk_footprint(capacity, slots);
    bytes += full * chunk_footprint(CHUNK_ROWS_MAX, slots);
    if full > 0 {
        bytes += spine_footprint(spine_room((full + 1).max(2)));
    }
    number(bytes)
}

/// The room of a spine that has come to have so many parts.
fn spine_room(parts: usize) -> usize {
    let mut room = if parts > 0 { spine_capacity(1) } else { 0 };
    while room < parts {
        room = spine_capacity(room + 1);
    }
    room
}

/// Bytes of the buckets of all shards: the keys of a shard vary about their mean.
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

/// Bytes of the buckets of a shard of so many keys.
fn buckets_bytes(keys: usize) -> usize {
    let mut len = 0;
    // The greatest number of keys that the buckets hold, then one more.
    while len * 3 / 4 < keys {
        len = buckets_for(len * 3 / 4 + 1);
    }
    buckets_footprint(len)
}

fn number(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a size fits 64 bits")
}

fn usize_of(count: u64) -> usize {
    usize::try_from(count).expect("addresses have 64 bits")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{IndexShape, log_bytes, series_bytes};
    use crate::{Included, RowBatch, RowLog, Series, pin};

    /// The estimate and what is taken, in bytes, differ by this part at most: a tenth.
    fn is_near(estimated: u64, taken: u64) -> bool {
        estimated.abs_diff(taken) * 10 <= taken
    }

    fn check(rows: u64, keys: u64, (row_size, key_size, record_size): (usize, usize, usize)) {
        let series = match record_size {
            0 => Series::new(),
            size => Series::including(Arc::new(Included::new([1, size - 1], |_, _| ()))),
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
                // SAFETY: the log is dropped after the series.
                unsafe { series.insert((series.hash(&key), &key), time, row, &guard) };
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
