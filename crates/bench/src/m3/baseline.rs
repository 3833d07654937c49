//! The speed-of-light baseline of M3: for each key, arrays of times and values in the order of
//! time.
//!
//! Windows nest, so one walk from the newest row back serves all: at the end of each window the
//! counts so far are its counts. Values are eight bytes, read as big-endian numbers, whose order is
//! that of the texts. Concurrency is one lock for each key.

use std::{
    hint::black_box,
    sync::atomic::{AtomicUsize, Ordering},
};

use lockstep_host::sync::Mutex;
use lockstep_row::{Arena, Datum};

use super::{Event, M3Shape, TOP};
use crate::{
    answer::AnswerValue,
    error::Result,
    system::{Client, System},
};

/// Slots for counting: more than twice the values of a column.
const SLOTS: usize = 256;

#[derive(Debug, Default)]
struct KeyEvents {
    times_ms: Vec<i64>,
    /// One array for each column.
    values: Vec<Vec<u64>>,
}

impl KeyEvents {
    fn push(&mut self, event: &Event, columns: usize) {
        debug_assert!(columns <= event.values.len(), "{columns} columns");
        self.times_ms.push(event.time_ms);
        self.values.resize_with(columns, Vec::new);
        for (values, value) in self.values.iter_mut().zip(event.values) {
            values.push(u64::from_be_bytes(value));
        }
    }
}

/// The rows of each key as arrays.
#[derive(Debug)]
pub(crate) struct M3Baseline {
    shape: M3Shape,
    keys: Vec<Mutex<KeyEvents>>,
    next: AtomicUsize,
}

impl M3Baseline {
    /// Fills the arrays.
    pub(crate) fn new(shape: M3Shape) -> Self {
        let mut keys: Vec<Mutex<KeyEvents>> = Vec::new();
        keys.resize_with(shape.keys, Mutex::default);
        for event in shape.stored() {
            keys[event.key].get_mut().push(&event, shape.columns);
        }
        Self { shape, keys, next: AtomicUsize::new(0) }
    }
}

impl System for M3Baseline {
    fn name(&self) -> &'static str {
        "speed_of_light"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(M3BaselineClient {
            baseline: self,
            arena: Arena::new(),
            counts: CountedValues::new(),
        }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some((8 + 8 * self.shape.columns) as f64)
    }
}

struct M3BaselineClient<'a> {
    baseline: &'a M3Baseline,
    arena: Arena,
    counts: CountedValues,
}

impl M3BaselineClient<'_> {
    fn operate<T>(&mut self, take: impl FnOnce(&[Datum<'_>]) -> T) -> T {
        let M3Baseline { shape, keys, next } = self.baseline;
        // Relaxed: only uniqueness matters.
        let event = shape.event(next.fetch_add(1, Ordering::Relaxed));
        let key = event.key_text();
        self.arena.reset();
        let mut rows = keys[event.key].lock();
        rows.push(&event, shape.columns);
        let answer = self.arena.alloc_slice_fill_default(1 + shape.windows * shape.columns);
        answer[0] = Datum::String(&key);
        for (column, values) in rows.values.iter().enumerate() {
            self.counts.clear();
            let mut row = values.len();
            for window in 0..shape.windows {
                let since_ms = M3Shape::since_ms(window, &event);
                while row > 0 && rows.times_ms[row - 1] >= since_ms {
                    row -= 1;
                    self.counts.add(values[row]);
                }
                let text = self.counts.top(&self.arena);
                answer[1 + window * shape.columns + column] = Datum::String(text);
            }
        }
        take(answer)
    }
}

impl Client for M3BaselineClient<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        self.operate(|answer| {
            black_box(answer);
        });
        Ok(())
    }

    fn answer(&mut self, _request: usize) -> Result<Vec<AnswerValue>> {
        Ok(self.operate(|answer| answer.iter().map(AnswerValue::from).collect()))
    }
}

/// The number of occurrences of each value.
pub(super) struct CountedValues {
    /// Values and counts; a count of 0 is an empty slot.
    slots: [(u64, u32); SLOTS],
    used: Vec<usize>,
}

impl CountedValues {
    pub(super) fn new() -> Self {
        Self { slots: [(0, 0); SLOTS], used: Vec::with_capacity(SLOTS) }
    }

    pub(super) fn clear(&mut self) {
        for slot in self.used.drain(..) {
            self.slots[slot].1 = 0;
        }
    }

    #[inline]
    pub(super) fn add(&mut self, value: u64) {
        let mut place = (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
        loop {
            let slot = &mut self.slots[place % SLOTS];
            if slot.1 == 0 {
                *slot = (value, 1);
                self.used.push(place % SLOTS);
                return;
            }
            if slot.0 == value {
                slot.1 += 1;
                return;
            }
            place += 1;
        }
    }

    /// Returns the most frequent values, joined by commas; of equally frequent ones the least
    /// first.
    pub(super) fn top<'b>(&self, arena: &'b Arena) -> &'b str {
        let mut best = [(0_u32, u64::MAX); TOP];
        for slot in &self.used {
            let (value, count) = self.slots[*slot];
            let mut found = (count, value);
            for place in &mut best {
                let is_before = found.0 > place.0 || (found.0 == place.0 && found.1 < place.1);
                if is_before {
                    std::mem::swap(&mut found, place);
                }
            }
        }
        let mut text = bumpalo::collections::String::with_capacity_in(9 * TOP, arena);
        for (place, (count, value)) in best.into_iter().enumerate() {
            text.push_str(if place == 0 { "" } else { "," });
            let bytes = value.to_be_bytes();
            let value = std::str::from_utf8(&bytes).unwrap_or_default();
            text.push_str(if count == 0 { "NULL" } else { value });
        }
        text.into_bump_str()
    }
}
