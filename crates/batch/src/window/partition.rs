//! The sorted rows of a window: those of each entity key in event order, oldest first.
//!
//! Made once for all groups that partition and order alike over the same sources.

use std::{mem, num::NonZeroUsize, ops::Range};

use arrow::{
    array::{Array, ArrayRef, AsArray, PrimitiveArray},
    datatypes::{
        ArrowPrimitiveType, DataType as ArrowType, Int64Type, TimeUnit, TimestampMillisecondType,
    },
};
use datafusion::error::Result;
use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, arrow::ColumnReader};

use crate::{key_numbers::KeyNumbers, parallel};

/// The rows of UNION sources, key by key.
#[derive(Debug, Default)]
struct OtherRows {
    rows: Vec<u32>,
    orders: Vec<i64>,
    /// The start of each key's rows, followed by the end.
    starts: Vec<usize>,
}

/// How an [`Ordering`] is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct OrderingOptions {
    /// Whether [`Ordering::candidates`] is called without the main rows.
    pub(super) with_others: bool,
    /// The threads that sort.
    pub(super) threads: NonZeroUsize,
}

/// A thread sorts the rows of several keys, about so many.
const ROWS_SORTED_AT_ONCE: usize = 1 << 16;

/// Runs of at least so many rows on average are merged.
const ROWS_PER_RUN: usize = 32;

/// The rows of a window, key by key. Positions are those of `rows` and `orders`.
#[derive(Debug)]
pub(super) struct Ordering {
    /// Row numbers: the keys one after the other, each in event order.
    pub(super) rows: Vec<u32>,
    /// The order value of each.
    pub(super) orders: Vec<i64>,
    /// The start of each key's rows, followed by the end.
    starts: Vec<usize>,
    /// The rows that are no main rows, where some window may hold no others.
    others: Option<OtherRows>,
    /// Main rows whose order value is NULL; they are in no other row's frame, and their own frames
    /// have no other row.
    pub(super) unordered: Vec<u32>,
    /// The numbers of the main rows.
    pub(super) main: Range<u32>,
    /// The number of the first main row that is a current row; those before it are only candidates.
    pub(super) first_current: u32,
    /// The number after that of the last one; those from it on are candidates, and current rows later.
    end_current: u32,
}

impl Ordering {
    /// Sorts rows by their keys and by their order values; without an order, by row number. Fewer
    /// than 2^32 rows, of which the main ones are the last; the main rows from `first_current` on
    /// are current rows.
    pub(super) fn new(
        keys: &[ArrayRef],
        order: Option<&ArrayRef>,
        main: Range<u32>,
        first_current: u32,
        OrderingOptions { with_others, threads }: OrderingOptions,
    ) -> Result<Self> {
        let row_count = main.end as usize;
        debug_assert!(
            main.contains(&first_current) || first_current == main.end,
            "the current rows are main rows"
        );
        let KeyNumbers { rows: numbers, count } = KeyNumbers::of(keys, row_count);
        let is_ordered = |row: usize| order.is_none_or(|order| !is_null(order, row));
        let mut starts = vec![0_usize; count + 1];
        for (row, number) in numbers.iter().enumerate() {
            starts[*number as usize + 1] += usize::from(is_ordered(row));
        }
        for key in 1..starts.len() {
            starts[key] += starts[key - 1];
        }
        let values = order.map(order_values);
        let ordered_count = starts.last().copied().unwrap_or(0);
        let mut entries = vec![(0_i64, 0_u32); ordered_count];
        let mut ends = starts.clone();
        let mut unordered = Vec::new();
        for (row, number) in (0_u32..).zip(&numbers) {
            if is_ordered(row as usize) {
                let end = &mut ends[*number as usize];
                entries[*end] = (values.as_ref().map_or(0, |values| values[row as usize]), row);
                *end += 1;
            } else if main.contains(&row) {
                unordered.push(row);
            }
        }
        debug_assert_eq!(
            ends[..starts.len() - 1],
            starts[1..],
            "the rows of each key fill its range"
        );
        drop((numbers, values, ends));
        sort_keys(&mut entries, &starts, threads)?;
        let (orders, rows) = entries.into_iter().unzip();
        let (others, end_current) = (None, main.end);
        let mut ordering =
            Self { rows, orders, starts, others, unordered, main, first_current, end_current };
        ordering.others = with_others.then(|| ordering.other_rows());
        Ok(ordering)
    }

    /// Returns about how many bytes [`Self::new`] takes for so many rows, with what it returns: the entries
    /// that it sorts, beside the numbers of the keys and the order values, or beside the result.
    pub(super) fn sort_bytes(row_count: usize) -> usize {
        let entry = size_of::<(i64, u32)>();
        row_count * (entry + size_of::<i64>() + size_of::<u32>())
    }

    /// Returns the number of bytes of the row numbers and order values.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |rows: &[u32], orders: &[i64]| size_of_val(rows) + size_of_val(orders);
        let others = self.others.as_ref().map_or(0, |others| bytes(&others.rows, &others.orders));
        bytes(&self.rows, &self.orders) + others
    }

    fn other_rows(&self) -> OtherRows {
        let count = self.rows.len() - self.main.len().min(self.rows.len());
        let mut others = OtherRows {
            rows: Vec::with_capacity(count),
            orders: Vec::with_capacity(count),
            starts: Vec::with_capacity(self.starts.len()),
        };
        for key in 0..self.key_count() {
            others.starts.push(others.rows.len());
            for at in self.key(key) {
                if !self.main.contains(&self.rows[at]) {
                    others.rows.push(self.rows[at]);
                    others.orders.push(self.orders[at]);
                }
            }
        }
        others.starts.push(others.rows.len());
        others
    }

    /// Returns the rows of a key that frames may hold, and their order values: all, or those that are no
    /// main rows.
    pub(super) fn candidates(&self, key: usize, without_main: bool) -> (&[u32], &[i64]) {
        match &self.others {
            Some(others) if without_main => {
                let range = others.starts[key]..others.starts[key + 1];
                (&others.rows[range.clone()], &others.orders[range])
            }
            others => {
                debug_assert!(others.is_some() || !without_main, "the other rows are kept");
                (&self.rows[self.key(key)], &self.orders[self.key(key)])
            }
        }
    }

    /// Returns whether a row is a current row.
    pub(super) fn is_current(&self, row: u32) -> bool {
        self.current().contains(&row)
    }

    /// Returns the numbers of the current rows.
    pub(super) fn current(&self) -> Range<u32> {
        self.first_current..self.end_current
    }

    /// Returns whether a row is a main row that is a current row later.
    pub(super) fn is_later(&self, row: u32) -> bool {
        (self.end_current..self.main.end).contains(&row)
    }

    /// Leaves the main rows from a number on for later.
    pub(super) fn end_before(&mut self, row: u32) {
        debug_assert!(self.main.contains(&row), "it is a main row");
        self.end_current = row.max(self.first_current);
    }

    /// Returns the number of keys.
    pub(super) fn key_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the positions of a key's rows.
    pub(super) fn key(&self, key: usize) -> Range<usize> {
        self.starts[key]..self.starts[key + 1]
    }

    /// Splits the rows into tasks of at least `row_count` rows, but for the last ones. A key, by its
    /// number, that `slice_count` splits is cut into so many time slices.
    pub(super) fn chunks(
        &self,
        row_count: usize,
        slice_count: impl Fn(usize) -> usize,
    ) -> Vec<WindowChunk> {
        let mut chunks = Vec::new();
        let mut first = 0;
        let whole = |keys: Range<usize>| WindowChunk {
            rows: self.starts[keys.start]..self.starts[keys.end],
            keys,
        };
        for key in 0..self.key_count() {
            let rows = self.key(key);
            let slices = slice_count(key);
            if slices > 1 {
                if first < key {
                    chunks.push(whole(first..key));
                }
                let slice_rows = rows.len().div_ceil(slices);
                chunks.extend(rows.clone().step_by(slice_rows).map(|start| WindowChunk {
                    keys: key..key + 1,
                    rows: start..rows.end.min(start + slice_rows),
                }));
                first = key + 1;
            } else if rows.end - self.starts[first] >= row_count {
                chunks.push(whole(first..key + 1));
                first = key + 1;
            }
        }
        if first < self.key_count() {
            chunks.push(whole(first..self.key_count()));
        }
        debug_assert_eq!(
            chunks.iter().map(|chunk| chunk.rows.len()).sum::<usize>(),
            self.rows.len(),
            "each row is in one task"
        );
        chunks
    }
}

/// The rows of some keys, or the rows of a key in a time slice.
#[derive(Debug, Clone)]
pub(super) struct WindowChunk {
    pub(super) keys: Range<usize>,
    /// Their positions in the ordering.
    pub(super) rows: Range<usize>,
}

/// Sorts the rows of each key.
fn sort_keys(
    mut entries: &mut [(i64, u32)],
    starts: &[usize],
    threads: NonZeroUsize,
) -> Result<()> {
    let mut tasks = Vec::new();
    let (mut first, mut start) = (0, 0);
    for key in 1..starts.len() {
        if starts[key] - start >= ROWS_SORTED_AT_ONCE || key + 1 == starts.len() {
            let (rows, rest) = mem::take(&mut entries).split_at_mut(starts[key] - start);
            tasks.push((Mutex::new(rows), &starts[first..=key]));
            (entries, first, start) = (rest, key, starts[key]);
        }
    }
    parallel::run(threads, tasks.len(), |task| {
        let (rows, bounds) = &tasks[task];
        let mut rows = rows.lock();
        for key in bounds.windows(2) {
            sort(&mut rows[key[0] - bounds[0]..key[1] - bounds[0]]);
        }
        Ok(())
    })?;
    Ok(())
}

/// Sorts the rows of a key, which are in the order of their sources: where each source is nearly in
/// event order, they are a few ascending runs, which are merged.
fn sort(entries: &mut [(i64, u32)]) {
    let descents = entries.windows(2).filter(|pair| pair[0] > pair[1]).count();
    match descents {
        0 => {}
        _ if descents <= entries.len() / ROWS_PER_RUN => entries.sort(),
        _ => entries.sort_unstable(),
    }
}

/// Returns whether a value is NULL; an Arrow column of type NULL has no null buffer.
fn is_null(array: &ArrayRef, row: usize) -> bool {
    array.is_null(row) || *array.data_type() == arrow::datatypes::DataType::Null
}

/// Returns the order values as integers, 0 where NULL.
pub(crate) fn order_values(array: &ArrayRef) -> Vec<i64> {
    match array.data_type() {
        ArrowType::Int64 => return integers::<Int64Type>(array),
        ArrowType::Timestamp(TimeUnit::Millisecond, None) => {
            return integers::<TimestampMillisecondType>(array);
        }
        _ => {}
    }
    let reader = ColumnReader::new(array);
    // Order values are integers: nothing is ever laid out in the arena.
    let arena = Arena::new();
    (0..array.len()).map(|row| reader.get(row, &arena).as_i64().unwrap_or(0)).collect()
}

/// Returns the values of a column, 0 where NULL.
fn integers<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> Vec<i64> {
    let column: &PrimitiveArray<T> = array.as_primitive();
    match column.nulls() {
        None => column.values().to_vec(),
        Some(_) => column.iter().map(Option::unwrap_or_default).collect(),
    }
}
