//! The speed of light of M9: rows sorted by key and time once for each window, frames that slide over arrays.
//!
//! Each window is sorted and slid by a thread of its own; a window of one of several keys has two threads,
//! each with the half of its keys that has as many rows as the other. The result is written as the other
//! systems write it.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{ArrayRef, Float64Array, Int64Array, RecordBatch},
    datatypes::{DataType, Field, Schema},
};
use lockstep_engine::Database;
use lockstep_row::{Arena, arrow::ColumnReader};

use crate::error::{Error, Result};

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
    row: usize,
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
            .map_err(|_others| Error::Page { message: format!("{file} has other columns") })?;
        let frame_ms = i64::try_from(frame_ms).expect("a frame is within all time");
        Ok(Self { ids, times, values, keys, frame_ms })
    }

    /// Computes the windows and writes the result.
    pub(super) fn write(&self, file: &str) -> Result<()> {
        let windows: Vec<M9Columns> = match self.keys.as_slice() {
            [keys] => vec![self.in_halves(keys)],
            several => std::thread::scope(|scope| {
                let threads: Vec<_> = several
                    .iter()
                    .map(|keys| scope.spawn(|| self.placed(&self.slide(keys, |_| true))))
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("it slides")).collect()
            }),
        };
        let batch =
            self.batch(windows).map_err(|error| Error::Page { message: error.to_string() })?;
        let session = Database::in_memory().session();
        let schema = batch.schema();
        let mut batches = std::iter::once(Ok(batch));
        session.create_table_of(
            "result",
            &schema,
            &mut batches,
            None,
            lockstep_engine::IfExists::Fail,
        )?;
        let options = "OPTIONS(format = 'parquet', mode = 'overwrite')";
        session.execute(&format!("SELECT * FROM result INTO OUTFILE '{file}' {options}"))?;
        Ok(())
    }

    /// Slides over two halves of the rows at once, each with its own keys.
    fn in_halves(&self, keys: &[i64]) -> M9Columns {
        let mut sorted = keys.to_vec();
        let middle = sorted.len() / 2;
        let (_, border, _) = sorted.select_nth_unstable(middle);
        let border = *border;
        let (low, high) = std::thread::scope(|scope| {
            let low = scope.spawn(|| self.slide(keys, |key| key < border));
            let high = self.slide(keys, |key| key >= border);
            (low.join().expect("it slides"), high)
        });
        self.placed(&[low, high].concat())
    }

    /// Computes the frames of the keys that are taken, in the order of key and time.
    fn slide(&self, keys: &[i64], takes: impl Fn(i64) -> bool) -> Vec<FrameResult> {
        let rows = 0..keys.len();
        let mut order: Vec<(i64, i64, usize)> = rows
            .filter(|row| takes(keys[*row]))
            .map(|row| (keys[row], self.times[row], row))
            .collect();
        order.sort_unstable();
        let mut results = Vec::with_capacity(order.len());
        let (mut first, mut total) = (0, 0_i64);
        let (mut least, mut greatest) = (VecDeque::new(), VecDeque::new());
        for (at, (key, time, row)) in order.iter().enumerate() {
            if order[first].0 != *key {
                (first, total) = (at, 0);
                least.clear();
                greatest.clear();
            }
            let value = self.values[*row];
            total += value;
            while least.back().is_some_and(|(_, other)| *other >= value) {
                least.pop_back();
            }
            least.push_back((at, value));
            while greatest.back().is_some_and(|(_, other)| *other <= value) {
                greatest.pop_back();
            }
            greatest.push_back((at, value));
            while order[first].1 < time - self.frame_ms {
                total -= self.values[order[first].2];
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
    fn placed(&self, results: &[FrameResult]) -> M9Columns {
        debug_assert_eq!(results.len(), self.ids.len(), "each row has a frame");
        let rows = self.ids.len();
        let mut columns = M9Columns {
            count: vec![0; rows],
            total: vec![0; rows],
            mean: vec![0.0; rows],
            least: vec![0; rows],
            greatest: vec![0; rows],
        };
        for result in results {
            columns.count[result.row] = result.count;
            columns.total[result.row] = result.total;
            columns.mean[result.row] = result.total as f64 / result.count as f64;
            columns.least[result.row] = result.least;
            columns.greatest[result.row] = result.greatest;
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
