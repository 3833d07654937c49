//! The speed-of-light baseline of M2: for each key one array of values for each column, and exact
//! sums.

use std::{collections::HashMap, hint::black_box};

use lockstep_function::exact_sum::ExactSum;
use lockstep_row::{Arena, Datum};

use super::{M2Row, M2Shape, Number, REACH_MS, ROWS_PER_KEY};
use crate::{
    answer::AnswerValue,
    error::Result,
    system::{Client, System},
};

/// The columns of one key, oldest row first: the bits of a column's values one after another.
#[derive(Debug, Default)]
struct KeyColumns {
    times_ms: Vec<i64>,
    values: Vec<[u64; ROWS_PER_KEY]>,
}

/// The stored rows as arrays.
#[derive(Debug)]
pub(crate) struct M2Baseline<'a> {
    shape: M2Shape,
    keys: HashMap<String, KeyColumns>,
    requests: &'a [M2Row],
}

impl<'a> M2Baseline<'a> {
    /// Fills the arrays.
    pub(crate) fn new(shape: M2Shape, requests: &'a [M2Row]) -> Self {
        let mut keys: HashMap<String, KeyColumns> = HashMap::new();
        for row in shape.stored() {
            let rows = keys.entry(row.key_text.clone()).or_default();
            assert!(rows.times_ms.len() < ROWS_PER_KEY, "a key has {ROWS_PER_KEY} rows");
            rows.values.resize(shape.columns, [0; ROWS_PER_KEY]);
            for (values, value) in rows.values.iter_mut().zip(&row.values) {
                values[rows.times_ms.len()] = match value {
                    Number::Int(value) => value.cast_unsigned(),
                    Number::Double(value) => value.to_bits(),
                };
            }
            rows.times_ms.push(row.time_ms);
        }
        Self { shape, keys, requests }
    }

    fn answer<'b>(&'b self, row: &'b M2Row, arena: &'b Arena) -> &'b [Datum<'b>] {
        let answer = arena.alloc_slice_fill_default(1 + self.shape.features());
        answer[0] = Datum::String(&row.key_text);
        let none = KeyColumns::default();
        let rows = self.keys.get(&row.key_text).unwrap_or(&none);
        let from = rows.times_ms.partition_point(|time_ms| *time_ms < row.time_ms - REACH_MS);
        let to = rows.times_ms.partition_point(|time_ms| *time_ms <= row.time_ms);
        let (folds, pairs) = answer[1..].split_at_mut(2 * self.shape.columns);
        let columns = folds.as_chunks_mut().0.iter_mut().zip(&rows.values).zip(&row.values);
        for ((fold, stored), own) in columns {
            *fold = fold_column(&stored[from..to], *own);
        }
        for (pair, column) in pairs.iter_mut().zip(self.shape.paired()) {
            *pair = match (row.values[column], row.values[column + 2]) {
                (Number::Int(left), Number::Int(right)) => Datum::BigInt(left + right),
                (Number::Double(left), Number::Double(right)) => Datum::Double(left + right),
                _ => Datum::Null,
            };
        }
        answer
    }
}

fn fold_column<'b>(stored: &[u64], own: Number) -> [Datum<'b>; 2] {
    match own {
        Number::Int(own) => {
            let stored = stored.iter().map(|bits| bits.cast_signed());
            let sum = own + stored.clone().sum::<i64>();
            [Datum::BigInt(sum), Datum::BigInt(stored.fold(own, i64::max))]
        }
        Number::Double(own) => {
            let mut sum = ExactSum::new();
            sum.add(own);
            let mut greatest = own;
            for bits in stored {
                let value = f64::from_bits(*bits);
                sum.add(value);
                greatest = greatest.max(value);
            }
            [Datum::Double(sum.to_f64()), Datum::Double(greatest)]
        }
    }
}

impl System for M2Baseline<'_> {
    fn name(&self) -> &'static str {
        "speed_of_light"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(M2BaselineClient { baseline: self, arena: Arena::new() }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some((8 + 8 * self.shape.columns) as f64)
    }
}

struct M2BaselineClient<'a> {
    baseline: &'a M2Baseline<'a>,
    arena: Arena,
}

impl Client for M2BaselineClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.arena.reset();
        black_box(self.baseline.answer(&self.baseline.requests[request], &self.arena));
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.arena.reset();
        let answer = self.baseline.answer(&self.baseline.requests[request], &self.arena);
        Ok(answer.iter().map(AnswerValue::from).collect())
    }
}
