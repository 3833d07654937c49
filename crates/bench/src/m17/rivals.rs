//! The algorithms that M17 compares with, one joiner of each, with the watermark of [`lockstep_stream`].
//!
//! *Key-OIJ*, as Flink's interval join: for each key a buffer of probe rows as they arrive, which a base row scans
//! when the watermark has passed it. *`SplitJoin`*: all probe rows in one buffer, whatever their key, which each base
//! row scans. Both keep plain arrays of times and values, so that a scan
//! reads memory in order and the compiler can use vectors, add with one rounding for each row, and drop old rows when
//! the buffer has doubled.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{IntervalJoin, IntervalResult, StreamEvent};

/// The newest times of base rows and of probe rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamTimes([Option<i64>; 2]);

impl StreamTimes {
    pub(super) fn see(&mut self, event: &StreamEvent) {
        let newest = &mut self.0[usize::from(event.is_probe)];
        *newest = Some(newest.map_or(event.time, |newest| newest.max(event.time)));
    }

    /// Returns the time before which all rows have come.
    fn watermark(self, lateness: i64) -> i64 {
        let [Some(base), Some(probe)] = self.0 else { return i64::MIN };
        base.min(probe) - lateness
    }
}

/// Base rows that wait for the watermark.
#[derive(Default)]
struct WaitingRows {
    newest: StreamTimes,
    rows: BinaryHeap<Reverse<(i64, u64, u64)>>,
}

impl WaitingRows {
    fn see(&mut self, event: &StreamEvent) {
        self.newest.see(event);
        if !event.is_probe {
            self.rows.push(Reverse((event.time, event.number, event.key)));
        }
    }

    /// Returns the oldest time of a probe row that a base row may need.
    fn oldest(&self, lateness: i64, window: i64) -> i64 {
        let watermark = self.newest.watermark(lateness);
        let waiting = self.rows.peek().map_or(watermark, |Reverse(first)| first.0);
        watermark.min(waiting).saturating_sub(window)
    }

    /// Takes the next base row before the watermark: its time, number and key.
    fn next(&mut self, lateness: i64) -> Option<(i64, u64, u64)> {
        let Reverse(first) = self.rows.peek()?;
        if first.0 >= self.newest.watermark(lateness) {
            return None;
        }
        self.rows.pop().map(|Reverse(row)| row)
    }
}

/// Probe rows as they arrived.
#[derive(Default, Clone)]
struct ProbeBuffer {
    times: Vec<i64>,
    keys: Vec<u64>,
    values: Vec<f64>,
    drop_at: usize,
}

impl ProbeBuffer {
    /// Adds a row; drops those before a time when the buffer has doubled.
    fn push(&mut self, event: &StreamEvent, oldest: i64) {
        if self.times.len() >= self.drop_at.max(64) {
            let is_needed: Vec<bool> = self.times.iter().map(|time| *time >= oldest).collect();
            let mut needed = is_needed.iter();
            self.values.retain(|_| *needed.next().unwrap_or(&true));
            let mut needed = is_needed.iter();
            self.keys.retain(|_| *needed.next().unwrap_or(&true));
            self.times.retain(|time| *time >= oldest);
            self.drop_at = 2 * self.times.len();
        }
        self.times.push(event.time);
        self.keys.push(event.key);
        self.values.push(event.value);
    }

    /// Scans for rows of a key with a time of a window; `None` where all are of the key.
    fn scan(&self, key: Option<u64>, from: i64, to: i64) -> (i64, f64) {
        debug_assert_eq!(self.times.len(), self.values.len(), "each row has a value");
        let (mut count, mut sum) = (0, 0.0);
        match key {
            None => {
                for (time, value) in self.times.iter().zip(&self.values) {
                    let is_in = (*time >= from) & (*time <= to);
                    count += i64::from(is_in);
                    sum += if is_in { *value } else { 0.0 };
                }
            }
            Some(key) => {
                let rows = self.times.iter().zip(&self.values).zip(&self.keys);
                for ((time, value), of_row) in rows {
                    let is_in = (*of_row == key) & (*time >= from) & (*time <= to);
                    count += i64::from(is_in);
                    sum += if is_in { *value } else { 0.0 };
                }
            }
        }
        (count, sum)
    }
}

/// What scans have visited.
#[derive(Default)]
struct Visits {
    in_window: i64,
    visited: i64,
}

impl Visits {
    fn add(&mut self, in_window: i64, visited: usize) {
        debug_assert!(in_window >= 0, "a number of rows");
        self.in_window += in_window;
        self.visited += i64::try_from(visited).unwrap_or(0);
    }

    fn effectiveness(&self) -> f64 {
        self.in_window as f64 / self.visited.max(1) as f64
    }
}

/// Key-OIJ.
pub(super) struct KeyJoin {
    window: i64,
    lateness: i64,
    waiting: WaitingRows,
    keys: Vec<ProbeBuffer>,
    visits: Visits,
}

impl KeyJoin {
    pub(super) fn new(keys: u64, window: i64, lateness: i64) -> Self {
        let keys = vec![ProbeBuffer::default(); usize::try_from(keys).unwrap_or(0)];
        let (waiting, visits) = (WaitingRows::default(), Visits::default());
        Self { window, lateness, waiting, keys, visits }
    }
}

/// Returns the place of a key.
pub(super) fn place(key: u64) -> usize {
    usize::try_from(key).expect("keys are numbered from 0")
}

impl KeyJoin {
    /// Takes note of the newest times of all rows, where it has only some of them.
    pub(super) fn see_newest(&mut self, newest: StreamTimes) {
        self.waiting.newest = newest;
    }
}

impl IntervalJoin for KeyJoin {
    fn push(&mut self, event: StreamEvent, _emit: &mut dyn FnMut(IntervalResult)) {
        self.waiting.see(&event);
        if event.is_probe {
            let oldest = self.waiting.oldest(self.lateness, self.window);
            self.keys[place(event.key)].push(&event, oldest);
        }
    }

    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        while let Some((time, number, key)) = self.waiting.next(self.lateness) {
            let buffer = &self.keys[place(key)];
            let (count, sum) = buffer.scan(None, time - self.window, time);
            self.visits.add(count, buffer.times.len());
            emit(IntervalResult { number, count, sum });
        }
    }

    fn effectiveness(&self) -> Option<f64> {
        Some(self.visits.effectiveness())
    }
}

/// `SplitJoin`.
pub(super) struct SplitJoin {
    window: i64,
    lateness: i64,
    waiting: WaitingRows,
    rows: ProbeBuffer,
    visits: Visits,
}

impl SplitJoin {
    pub(super) fn new(window: i64, lateness: i64) -> Self {
        let (waiting, rows) = (WaitingRows::default(), ProbeBuffer::default());
        Self { window, lateness, waiting, rows, visits: Visits::default() }
    }
}

impl SplitJoin {
    /// Takes note of the newest times of all rows, where it has only some of them.
    pub(super) fn see_newest(&mut self, newest: StreamTimes) {
        self.waiting.newest = newest;
    }
}

impl IntervalJoin for SplitJoin {
    fn push(&mut self, event: StreamEvent, _emit: &mut dyn FnMut(IntervalResult)) {
        self.waiting.see(&event);
        if event.is_probe {
            let oldest = self.waiting.oldest(self.lateness, self.window);
            self.rows.push(&event, oldest);
        }
    }

    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        while let Some((time, number, key)) = self.waiting.next(self.lateness) {
            let (count, sum) = self.rows.scan(Some(key), time - self.window, time);
            self.visits.add(count, self.rows.times.len());
            emit(IntervalResult { number, count, sum });
        }
    }

    fn effectiveness(&self) -> Option<f64> {
        Some(self.visits.effectiveness())
    }
}
