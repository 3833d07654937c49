//! The speed-of-light baseline of M6: the row's bytes appended to one array, and for each index a
//! hash table of arrays of (event time, offset), in order of event time. Concurrency is one lock.

use std::collections::HashMap;

use lockstep_host::sync::Mutex;

use super::{M6Shape, Numbers, OwnPuts, Put};
use crate::{
    answer::AnswerValue,
    error::Result,
    system::{Client, System},
};

/// Bytes of a row: three keys, an event time, four values.
const ROW_BYTES: usize = 3 * 8 + 8 + 4 * 8;

/// For each key, the event times and offsets of its rows, oldest first.
type BaselineIndex = HashMap<[u8; 8], Vec<(i64, usize)>>;

#[derive(Debug, Default)]
struct BaselineRows {
    bytes: Vec<u8>,
    indexes: Vec<BaselineIndex>,
}

impl BaselineRows {
    fn insert(&mut self, put: &Put) {
        let place = self.bytes.len();
        put.keys.iter().for_each(|key| self.bytes.extend(key));
        self.bytes.extend(put.time_ms.to_le_bytes());
        put.doubles.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
        put.ints.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
        debug_assert_eq!(self.bytes.len(), place + ROW_BYTES);
        for (index, key) in self.indexes.iter_mut().zip(put.keys) {
            let entries = index.entry(key).or_default();
            let is_late = entries.last().is_some_and(|(time_ms, _)| *time_ms > put.time_ms);
            if is_late {
                let at = entries.partition_point(|(time_ms, _)| *time_ms <= put.time_ms);
                entries.insert(at, (put.time_ms, place));
            } else {
                entries.push((put.time_ms, place));
            }
        }
    }
}

/// The rows and indexes as arrays.
#[derive(Debug)]
pub(crate) struct M6Baseline {
    shape: M6Shape,
    rows: Mutex<BaselineRows>,
    numbers: Numbers,
}

impl M6Baseline {
    /// Creates the empty arrays.
    pub(crate) fn new(shape: M6Shape) -> Self {
        assert!((1..=3).contains(&shape.indexes), "each index has a key column");
        let mut rows = BaselineRows::default();
        rows.indexes.resize_with(shape.indexes, HashMap::new);
        Self { shape, rows: Mutex::new(rows), numbers: Numbers::default() }
    }
}

impl System for M6Baseline {
    fn name(&self) -> &'static str {
        "speed_of_light"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(M6BaselineClient { baseline: self, own: self.numbers.begin(self.shape) }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some((ROW_BYTES + self.shape.indexes * size_of::<(i64, usize)>()) as f64)
    }
}

struct M6BaselineClient<'a> {
    baseline: &'a M6Baseline,
    own: OwnPuts<'a>,
}

impl Client for M6BaselineClient<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        for _ in 0..self.baseline.shape.batch {
            let (_, put) = self.own.take();
            self.baseline.rows.lock().insert(&put);
        }
        Ok(())
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        let (_, put) = self.own.take();
        let mut rows = self.baseline.rows.lock();
        rows.insert(&put);
        let count = rows.indexes[0].get(&put.keys[0]).map_or(0, Vec::len);
        Ok(vec![AnswerValue::Int(i64::try_from(count).expect("a count fits"))])
    }
}
