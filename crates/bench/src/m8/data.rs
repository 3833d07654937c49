//! The rows and requests of M8: keys of a hundred days of rows, of which a window holds ninety.
//!
//! Every system is loaded with these. Keys differ in how many rows their windows hold, thus in the
//! time between two rows; a row is computed from its key and its number.

use lockstep_row::Datum;

use crate::draw::KeyedRandom;

/// The event time of each key's first row: a midnight, in milliseconds since the epoch.
pub(super) const START_MS: i64 = 1_711_929_600_000;
/// An hour.
pub(super) const HOUR_MS: i64 = 3_600_000;
/// A day.
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;
/// The days of a window.
pub(super) const WINDOW_DAYS: i64 = 90;
/// The days of which a key holds rows.
const KEPT_DAYS: i64 = 100;
/// The event time after each key's last row.
pub(super) const END_MS: i64 = START_MS + KEPT_DAYS * DAY_MS;
/// The values of `item`.
const ITEMS: u32 = 500;
/// Rows whose item is greater count for the sums of categories.
pub(super) const ITEM_MIN: i64 = 100;
/// A late row arrives after this many later rows, at least, and at most after three times as many.
const LATE_ROWS: usize = 500;
/// Of a hundred rows, those that are there before a deployment; the others come after.
const EARLY_PERCENT: usize = 98;

/// The values of `category`.
pub(super) const CATEGORIES: [&str; 16] = [
    "books", "cameras", "cars", "clothes", "films", "flowers", "food", "games", "garden", "music",
    "phones", "shoes", "sports", "tickets", "tools", "travel",
];

/// Keys with the same number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeySet {
    /// Rows of a window of each key.
    pub(super) window_rows: usize,
    /// Keys.
    pub(super) keys: usize,
}

/// Which rows are inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataPart {
    /// Those that are there before a deployment.
    Early,
    /// Those that come after.
    Further,
}

/// One row, without its key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EventRow {
    /// The event time.
    pub(super) time_ms: i64,
    /// An amount of money with two decimals.
    pub(super) amount: f64,
    /// A number of pieces.
    pub(super) units: i64,
    /// Which item; low numbers are frequent.
    pub(super) item: i64,
    /// An index of [`CATEGORIES`]; low ones are frequent.
    pub(super) category: usize,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LongRequest {
    /// The key.
    pub(super) key: String,
    /// The event time, where the window ends.
    pub(super) time_ms: i64,
}

impl EventRow {
    /// Returns the values in the order of the columns.
    pub(super) fn datums<'k>(&self, key: &'k str) -> [Datum<'k>; 6] {
        [
            Datum::String(key),
            Datum::Timestamp(self.time_ms),
            Datum::Double(self.amount),
            Datum::BigInt(self.units),
            Datum::BigInt(self.item),
            Datum::String(CATEGORIES[self.category]),
        ]
    }

    /// Returns the values of a position.
    pub(super) fn at(place: &[u64], time_ms: i64) -> Self {
        let draw = KeyedRandom::at(place);
        let cents = i32::try_from(draw.int(0, 1_000_000)).expect("a million fits");
        let category = draw.index(4, CATEGORIES.len()).min(draw.index(5, CATEGORIES.len()));
        Self {
            time_ms,
            amount: f64::from(cents) / 100.0,
            units: 1 + draw.int(1, 20),
            item: draw.int(2, ITEMS).min(draw.int(3, ITEMS)),
            category,
        }
    }
}

impl LongRequest {
    /// Returns the request row: its values are NULL, so that only stored rows count.
    pub(super) fn datums(&self) -> Vec<Datum<'_>> {
        let (key, time) = (Datum::String(&self.key), Datum::Timestamp(self.time_ms));
        vec![key, time, Datum::Null, Datum::Null, Datum::Null, Datum::Null]
    }

    /// Returns the event time at which the window begins, inclusive.
    pub(super) fn since_ms(&self) -> i64 {
        self.time_ms - WINDOW_DAYS * DAY_MS
    }
}

impl KeySet {
    /// Returns how many rows each key holds.
    pub(super) fn key_rows(self) -> usize {
        let days = |days: i64| usize::try_from(days).expect("a few days");
        self.window_rows * days(KEPT_DAYS) / days(WINDOW_DAYS)
    }

    /// Returns how many rows all keys hold.
    pub(super) fn rows(self) -> usize {
        self.keys * self.key_rows()
    }

    /// Returns how many rows of all keys are there before a deployment.
    pub(super) fn early_rows(self) -> usize {
        self.keys * (self.key_rows() * EARLY_PERCENT / 100)
    }

    /// Returns a key as text.
    pub(super) fn key(self, number: usize) -> String {
        format!("w{}_{number}", self.window_rows)
    }

    /// Returns a row of a key; rows are numbered in the order of event time.
    pub(super) fn row(self, key: usize, number: usize) -> EventRow {
        assert!(number < self.key_rows(), "rows are numbered from 0");
        let count = |count: usize| i64::try_from(count).expect("a count fits");
        let ms = count(number) * KEPT_DAYS * DAY_MS / count(self.key_rows());
        EventRow::at(&self.place(key, number), START_MS + ms)
    }

    fn place(self, key: usize, number: usize) -> [u64; 4] {
        let part = |part: usize| u64::try_from(part).expect("a count fits");
        [80, part(self.window_rows), part(key), part(number)]
    }

    /// Returns the numbers of a part of a key's rows, in the order in which they arrive.
    pub(super) fn arrivals(
        self,
        key: usize,
        late_percent: u64,
        part: DataPart,
    ) -> impl Iterator<Item = usize> {
        let rows = self.key_rows();
        let is_late = move |number: &usize| {
            KeyedRandom::at(&self.place(key, *number)).chance(6, late_percent)
        };
        let block = move |number: usize| {
            let start = number * 2 * LATE_ROWS;
            start.min(rows)..(start + 2 * LATE_ROWS).min(rows)
        };
        // Late rows of a block arrive in the middle of the next one.
        let order = (0..=rows / (2 * LATE_ROWS) + 1).flat_map(move |number| {
            let (before, own) = (number.checked_sub(1).map_or(0..0, block), block(number));
            let middle = (own.start + LATE_ROWS).min(own.end);
            let in_order = move |number: &usize| !is_late(number);
            let late = before.filter(is_late);
            (own.start..middle)
                .filter(in_order)
                .chain(late)
                .chain((middle..own.end).filter(in_order))
        });
        let early = rows * EARLY_PERCENT / 100;
        assert!((1..=rows).contains(&early), "there are rows before a deployment");
        let (skipped, taken) = match part {
            DataPart::Early => (0, early),
            DataPart::Further => (early, rows - early),
        };
        order.skip(skipped).take(taken)
    }

    /// Returns requests: random keys, and windows that end in the last ten days.
    pub(super) fn requests(self, count: usize) -> Vec<LongRequest> {
        let request = |number: usize| {
            let draw = KeyedRandom::at(&self.place(usize::MAX, number));
            let last_days_ms = u32::try_from((KEPT_DAYS - WINDOW_DAYS) * DAY_MS);
            let back_ms = draw.int(0, last_days_ms.expect("ten days fit"));
            LongRequest { key: self.key(draw.index(1, self.keys)), time_ms: END_MS - 1 - back_ms }
        };
        assert!(self.keys > 0, "requests are for keys");
        (0..count).map(request).collect()
    }
}
