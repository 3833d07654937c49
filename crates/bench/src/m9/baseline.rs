//! The speed of light of M9: rows sorted by time once and by key for each window, with radix sorts, and
//! frames that slide over arrays.
//!
//! Each window is sorted and slid by a thread of its own; a window alone has two threads, each with the
//! half of its keys that has as many rows as the other. Two threads encode the columns of the result, which
//! is written from these arrays with the library and the options that Lockstep writes Parquet with.

use std::{collections::VecDeque, fs::File, sync::Arc};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch},
    datatypes::{DataType, Field, Schema},
};
use lockstep_engine::Database;
use lockstep_row::{Arena, arrow::ColumnReader};
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves},
    },
    basic::Compression,
    errors::ParquetError,
    file::properties::WriterProperties,
};

use crate::error::{Error, Result};

/// The bits that one pass of a sort looks at.
const RADIX_BITS: u32 = 11;
const DIGIT: u64 = (1 << RADIX_BITS) - 1;
/// The rows of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// The rows, by column.
pub(super) struct M9Rows {
    ids: Vec<i64>,
    times: Vec<i64>,
    values: Vec<i64>,
    /// The keys of each window.
    keys: Vec<Vec<i64>>,
    frame_ms: i64,
}

/// The five aggregates of a window, by row.
#[derive(Debug, Default, Clone)]
struct M9Columns {
    count: Vec<i64>,
    total: Vec<i64>,
    mean: Vec<f64>,
    least: Vec<i64>,
    greatest: Vec<i64>,
}

/// The aggregates of one frame, with the row that they belong to.
#[derive(Clone, Copy)]
struct FrameResult {
    row: u32,
    count: i64,
    total: i64,
    least: i64,
    greatest: i64,
}

impl M9Rows {
    /// Reads the rows of a file.
    pub(super) fn read(file: &str, keys: &[&str], frame_ms: u64) -> Result<Self> {
        let mut columns = ["id", "ts", "v"].to_vec();
        columns.extend(keys);
        let query = format!("SELECT {} FROM '{file}'", columns.join(", "));
        let output = Database::in_memory().session().execute(&query)?;
        let mut read: Vec<Vec<i64>> = vec![Vec::new(); columns.len()];
        let arena = Arena::new();
        for batch in &output.batches {
            for (column, values) in batch.columns().iter().zip(&mut read) {
                let reader = ColumnReader::new(column.as_ref());
                let rows = 0..batch.num_rows();
                values.extend(rows.map(|row| reader.get(row, &arena).as_i64().unwrap_or_default()));
            }
        }
        let keys = read.split_off(3);
        let [ids, times, values] = read
            .try_into()
            .map_err(|_others| Error::Page { message: format!("{file} has unexpected columns") })?;
        let frame_ms = i64::try_from(frame_ms).expect("a frame is within all time");
        Ok(Self { ids, times, values, keys, frame_ms })
    }

    /// Computes the windows and writes the result.
    pub(super) fn write(&self, file: &str) -> Result<()> {
        let rows = u32::try_from(self.ids.len()).expect("rows are in memory");
        let by_time = sorted((0..rows).collect(), &self.times);
        let windows: Vec<M9Columns> = match self.keys.as_slice() {
            [keys] => vec![self.in_halves(keys, &by_time)],
            several => std::thread::scope(|scope| {
                let by_time = &by_time;
                let threads: Vec<_> = several
                    .iter()
                    .map(|keys| scope.spawn(|| self.slide(keys, by_time.clone())))
                    .collect();
                let results = threads.into_iter().map(|thread| thread.join().expect("it slides"));
                results.map(|results| self.placed(&[results])).collect()
            }),
        };
        let batch =
            self.batch(windows).map_err(|error| Error::Page { message: error.to_string() })?;
        write_parquet(file, &batch).map_err(|error| Error::Page { message: error.to_string() })
    }

    /// Slides over two halves of the rows at once, each with its own keys.
    fn in_halves(&self, keys: &[i64], by_time: &[u32]) -> M9Columns {
        let mut sorted = keys.to_vec();
        let middle = sorted.len() / 2;
        let (_, border, _) = sorted.select_nth_unstable(middle);
        let border = *border;
        let half = |is_low: bool| {
            let is_in = |row: &&u32| (keys[**row as usize] < border) == is_low;
            self.slide(keys, by_time.iter().filter(is_in).copied().collect())
        };
        let results = std::thread::scope(|scope| {
            let low = scope.spawn(|| half(true));
            let high = half(false);
            [low.join().expect("it slides"), high]
        });
        self.placed(&results)
    }

    /// Computes the frames of rows in the order of their times, in the order of key and time.
    fn slide(&self, keys: &[i64], rows: Vec<u32>) -> Vec<FrameResult> {
        let order = sorted(rows, keys);
        let mut results = Vec::with_capacity(order.len());
        let (mut first, mut total) = (0, 0_i64);
        let (mut least, mut greatest) = (VecDeque::new(), VecDeque::new());
        let gathered = |values: &[i64]| -> Vec<i64> {
            order.iter().map(|row| values[*row as usize]).collect()
        };
        let (keys, times, values) = (gathered(keys), gathered(&self.times), gathered(&self.values));
        for (at, row) in order.iter().enumerate() {
            if keys[first] != keys[at] {
                (first, total) = (at, 0);
                least.clear();
                greatest.clear();
            }
            let value = values[at];
            total += value;
            while least.back().is_some_and(|(_, other)| *other >= value) {
                least.pop_back();
            }
            least.push_back((at, value));
            while greatest.back().is_some_and(|(_, other)| *other <= value) {
                greatest.pop_back();
            }
            greatest.push_back((at, value));
            while times[first] < times[at] - self.frame_ms {
                total -= values[first];
                first += 1;
            }
            while least[0].0 < first {
                least.pop_front();
            }
            while greatest[0].0 < first {
                greatest.pop_front();
            }
            let count = i64::try_from(at - first + 1).expect("rows are in memory");
            let (least, greatest) = (least[0].1, greatest[0].1);
            results.push(FrameResult { row: *row, count, total, least, greatest });
        }
        results
    }

    /// Brings results into the order of the rows.
    fn placed(&self, parts: &[Vec<FrameResult>]) -> M9Columns {
        let frames = parts.iter().map(Vec::len).sum::<usize>();
        debug_assert_eq!(frames, self.ids.len(), "each row has a frame");
        let rows = self.ids.len();
        let mut columns = M9Columns {
            count: vec![0; rows],
            total: vec![0; rows],
            mean: vec![0.0; rows],
            least: vec![0; rows],
            greatest: vec![0; rows],
        };
        for result in parts.iter().flatten() {
            let row = result.row as usize;
            columns.count[row] = result.count;
            columns.total[row] = result.total;
            columns.mean[row] = result.total as f64 / result.count as f64;
            columns.least[row] = result.least;
            columns.greatest[row] = result.greatest;
        }
        columns
    }

    fn batch(&self, windows: Vec<M9Columns>) -> Result<RecordBatch, arrow::error::ArrowError> {
        let mut fields = vec![Field::new("id", DataType::Int64, false)];
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(self.ids.clone()))];
        for (number, window) in (1..).zip(windows) {
            let mut add = |name: &str, values: Vec<i64>| {
                fields.push(Field::new(format!("{name}{number}"), DataType::Int64, false));
                columns.push(Arc::new(Int64Array::from(values)));
            };
            add("n", window.count);
            add("total", window.total);
            add("least", window.least);
            add("greatest", window.greatest);
            fields.push(Field::new(format!("mean{number}"), DataType::Float64, false));
            columns.push(Arc::new(Float64Array::from(window.mean)));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
    }
}

/// Sorts rows by their values, in a stable radix sort.
fn sorted(mut rows: Vec<u32>, values: &[i64]) -> Vec<u32> {
    debug_assert!(rows.iter().all(|row| (*row as usize) < values.len()), "each row has a value");
    let least = values.iter().copied().min().unwrap_or(0);
    let distance = |row: u32| values[row as usize].abs_diff(least);
    let greatest = rows.iter().map(|row| distance(*row)).max().unwrap_or(0);
    let mut moved = vec![0; rows.len()];
    for shift in (0..u64::BITS - greatest.leading_zeros()).step_by(RADIX_BITS as usize) {
        let digit = |row: u32| (distance(row) >> shift & DIGIT) as usize;
        let mut ends = vec![0_usize; 1 << RADIX_BITS];
        rows.iter().for_each(|row| ends[digit(*row)] += 1);
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        for row in &rows {
            let place = &mut ends[digit(*row)];
            moved[*place] = *row;
            *place += 1;
        }
        std::mem::swap(&mut rows, &mut moved);
    }
    rows
}

/// Writes a batch, with two threads that each encode half of the columns.
#[expect(clippy::disallowed_methods, reason = "no fault is injected into a measurement")]
fn write_parquet(path: &str, batch: &RecordBatch) -> Result<(), ParquetError> {
    let schema = batch.schema();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let writer = ArrowWriter::try_new(File::create(path)?, Arc::clone(&schema), Some(properties))?;
    let (mut file, factory) = writer.into_serialized_writer()?;
    for (number, start) in (0..batch.num_rows()).step_by(GROUP_ROWS).enumerate() {
        let rows = batch.slice(start, GROUP_ROWS.min(batch.num_rows() - start));
        let mut writers = factory.create_column_writers(number)?;
        let others = writers.split_off(writers.len() / 2);
        let encode = |first: usize, writers: Vec<ArrowColumnWriter>| {
            let columns = writers.into_iter().zip(first..);
            columns.map(|(writer, at)| encoded(writer, schema.field(at), rows.column(at))).collect()
        };
        let middle = writers.len();
        let (left, right): (Result<Vec<_>, _>, Result<Vec<_>, _>) = std::thread::scope(|scope| {
            let left = scope.spawn(|| encode(0, writers));
            let right = encode(middle, others);
            (left.join().expect("it encodes"), right)
        });
        let mut group = file.next_row_group()?;
        for chunk in left?.into_iter().chain(right?) {
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

fn encoded(
    mut writer: ArrowColumnWriter,
    field: &Field,
    column: &ArrayRef,
) -> Result<ArrowColumnChunk, ParquetError> {
    for leaf in compute_leaves(field, column)? {
        writer.write(&leaf)?;
    }
    writer.close()
}
