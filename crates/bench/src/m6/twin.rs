//! The speed of light of M6: the row's bytes appended to one array, and for each index a hash
//! table of arrays of (event time, place), in order of event time. One lock stands for concurrency.

use std::collections::HashMap;

use lockstep_host::sync::Mutex;

use super::{Numbers, OwnPuts, Put, Shape};
use crate::{
    cell::Cell,
    error::Result,
    system::{Client, System},
};

/// Bytes of a row: three keys, an event time, four values.
const ROW_BYTES: usize = 3 * 8 + 8 + 4 * 8;

/// For each key, the event times and places of its rows, oldest first.
type Index = HashMap<[u8; 8], Vec<(i64, usize)>>;

#[derive(Debug, Default)]
struct Rows {
    bytes: Vec<u8>,
    indexes: Vec<Index>,
}

impl Rows {
    fn insert(&mut self, put: &Put) {
        let place = self.bytes.len();
        put.keys.iter().for_each(|key| self.bytes.extend(key));
        self.bytes.extend(put.time_ms.to_le_bytes());
        put.doubles.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
        put.ints.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
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

/// The arrays.
#[derive(Debug)]
pub(crate) struct Twin {
    shape: Shape,
    rows: Mutex<Rows>,
    numbers: Numbers,
}

impl Twin {
    /// No rows.
    pub(crate) fn new(shape: Shape) -> Self {
        let mut rows = Rows::default();
        rows.indexes.resize_with(shape.indexes, HashMap::new);
        Self { shape, rows: Mutex::new(rows), numbers: Numbers::default() }
    }
}

impl System for Twin {
    fn name(&self) -> &'static str {
        "speed_of_light"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(Writer { twin: self, own: self.numbers.begin(self.shape) }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some((ROW_BYTES + self.shape.indexes * size_of::<(i64, usize)>()) as f64)
    }
}

struct Writer<'a> {
    twin: &'a Twin,
    own: OwnPuts<'a>,
}

impl Client for Writer<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        for _ in 0..self.twin.shape.batch {
            let (_, put) = self.own.take();
            self.twin.rows.lock().insert(&put);
        }
        Ok(())
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<Cell>> {
        let (_, put) = self.own.take();
        let mut rows = self.twin.rows.lock();
        rows.insert(&put);
        let count = rows.indexes[0].get(&put.keys[0]).map_or(0, Vec::len);
        Ok(vec![Cell::Int(i64::try_from(count).expect("a count fits"))])
    }
}
