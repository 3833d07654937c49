//! Rows and requests of M1, computed from their position.

use std::fmt::Write as _;

use lockstep_row::{Datum, calendar};

use super::M1Shape;
use crate::{draw::KeyedRandom, statement::PeerType};

/// Midsummer of 2024, in milliseconds since the epoch: the year is the same in every time zone.
pub(crate) const NOW_MS: i64 = 1_718_409_600_000;
/// Time between two rows of a key: a thousand of them fit 30 days.
const STEP_MS: i64 = 60_000;
/// How far a window reaches.
pub(crate) const REACH_MS: i64 = 30 * 86_400_000;
/// Number of requests.
pub(crate) const REQUESTS: usize = 4_096;

/// Distinct values of a string column that is no key.
const STRINGS: u64 = 100;
/// Chance of NULL, in percent, in the columns that have any.
const NULLS: u64 = 5;

/// The columns that have NULLs.
const NULL_TEXTS: [usize; 2] = [11, 12];
const NULL_DOUBLE: usize = 4;
const NULL_INT: usize = 3;

/// Columns of one kind, in the order of a row: strings, doubles, timestamps, bigints.
const KINDS: [(&str, PeerType, usize); 4] = [
    ("s", PeerType::Text(10), 15),
    ("d", PeerType::Double, 5),
    ("t", PeerType::Time, 5),
    ("i", PeerType::Int, 5),
];

/// Names and types of the 30 columns.
pub(crate) fn columns() -> impl Iterator<Item = (String, PeerType)> {
    KINDS.into_iter().flat_map(|(letter, kind, count)| {
        (0..count).map(move |number| (format!("col_{letter}{number}"), kind))
    })
}

/// One row of 30 columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct M1Row {
    /// Ten ASCII characters each.
    pub(crate) texts: [Option<[u8; 10]>; 15],
    /// With cents, and never whole.
    pub(crate) doubles: [Option<f64>; 5],
    /// The first one is the event time.
    pub(crate) times_ms: [i64; 5],
    /// Below a million.
    pub(crate) ints: [Option<i64>; 5],
}

/// Returns a text of a row as `str`.
pub(crate) fn text(bytes: &[u8; 10]) -> &str {
    std::str::from_utf8(bytes).expect("texts are ASCII")
}

impl M1Row {
    /// Returns the values in the order of the columns.
    pub(crate) fn datums(&self) -> [Datum<'_>; 30] {
        let mut datums = [Datum::Null; 30];
        for (datum, value) in datums.iter_mut().zip(&self.texts) {
            *datum = value.as_ref().map_or(Datum::Null, |bytes| Datum::String(text(bytes)));
        }
        for (datum, value) in datums[15..].iter_mut().zip(self.doubles) {
            *datum = value.map_or(Datum::Null, Datum::Double);
        }
        for (datum, value) in datums[20..].iter_mut().zip(self.times_ms) {
            *datum = Datum::Timestamp(value);
        }
        for (datum, value) in datums[25..].iter_mut().zip(self.ints) {
            *datum = value.map_or(Datum::Null, Datum::BigInt);
        }
        datums
    }

    /// Appends the row as a line of tab-separated text, as COPY and LOAD DATA read it.
    pub(crate) fn write_line(&self, line: &mut String) {
        write_line(&self.datums(), line);
    }
}

/// Appends values as a line of tab-separated text, as COPY and LOAD DATA read it.
pub(crate) fn write_line(datums: &[Datum<'_>], line: &mut String) {
    for (position, value) in datums.iter().enumerate() {
        line.push_str(if position == 0 { "" } else { "\t" });
        let written = match *value {
            Datum::String(text) => line.write_str(text),
            Datum::Double(value) => write!(line, "{value}"),
            Datum::Timestamp(ms) => line.write_str(&moment(ms)),
            _ => match value.as_i64() {
                Some(value) => write!(line, "{value}"),
                None => line.write_str("\\N"),
            },
        };
        written.expect("a string takes everything");
    }
    line.push('\n');
}

/// Formats a timestamp as SQL text, UTC.
pub(crate) fn moment(ms: i64) -> String {
    let (days, time) = calendar::split_ms(ms);
    let civil = calendar::civil_from_days(days);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        civil.year, civil.month, civil.day, time.hour, time.minute, time.second, time.millisecond
    )
}

/// One of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableName {
    /// `mt`.
    Main,
    /// `lt0`, `lt1`, …
    Side(usize),
}

impl TableName {
    /// Returns the name in SQL.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Main => "mt".to_owned(),
            Self::Side(number) => format!("lt{number}"),
        }
    }

    fn place(self) -> u64 {
        match self {
            Self::Main => 0,
            Self::Side(number) => 1 + u64::try_from(number).expect("a table's number fits"),
        }
    }
}

/// All rows and requests of a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    /// The parameters.
    pub(crate) shape: M1Shape,
}

impl Data {
    /// Returns the tables, main table first.
    pub(crate) fn tables(self) -> impl Iterator<Item = TableName> {
        std::iter::once(TableName::Main).chain((0..self.shape.joins).map(TableName::Side))
    }

    /// Returns the columns that a table has indexes on.
    pub(crate) fn index_columns(self, table: TableName) -> std::ops::Range<usize> {
        match table {
            TableName::Main => 0..self.shape.windows,
            TableName::Side(_) => 0..1,
        }
    }

    /// Returns the rows of a table in the order in which they arrive, event times ascending.
    pub(crate) fn rows(self, table: TableName) -> impl Iterator<Item = M1Row> {
        let M1Shape { hot_keys, background_keys, .. } = self.shape;
        let per_key = match table {
            TableName::Main => self.shape.window_rows,
            TableName::Side(_) => self.shape.side_rows(),
        };
        let background = (hot_keys..hot_keys + background_keys)
            .map(move |key| self.row(table, key, NOW_MS - REACH_MS + 1_000));
        let hot = (0..per_key).flat_map(move |number| {
            let steps = i64::try_from(per_key - number).expect("a count fits");
            (0..hot_keys).map(move |key| self.row(table, key, NOW_MS - steps * STEP_MS))
        });
        background.chain(hot)
    }

    /// Returns the requests: hot keys in a random order, later than every stored row.
    pub(crate) fn requests(self) -> Vec<M1Row> {
        let request = |number: usize| {
            let place = u64::try_from(number).expect("a count fits");
            let key = KeyedRandom::at(&[9, place]).index(0, self.shape.hot_keys);
            let later_ms = i64::try_from(number % 1_000).expect("it is below 1000");
            self.row(TableName::Main, key, NOW_MS + later_ms)
        };
        (0..REQUESTS).map(request).collect()
    }

    /// Returns a row to insert while requests run: a random key, two hundred rows in ten
    /// milliseconds; `late_percent` of a hundred rows are late, by up to an hour.
    pub(crate) fn inserted(self, number: usize, late_percent: u64) -> M1Row {
        let draw = KeyedRandom::at(&[8, u64::try_from(number).expect("a count fits")]);
        let key = draw.index(0, self.shape.hot_keys + self.shape.background_keys);
        let on_time_ms = NOW_MS + i64::try_from(number / 20).expect("a count fits");
        let late_ms = if draw.chance(1, late_percent) { draw.int(2, 3_600_000) } else { 0 };
        self.row(TableName::Main, key, on_time_ms - late_ms)
    }

    fn row(self, table: TableName, key: usize, time_ms: i64) -> M1Row {
        let key_place = u64::try_from(key).expect("a key fits");
        let draw = KeyedRandom::at(&[table.place(), key_place, time_ms.unsigned_abs()]);
        let mut row = M1Row::default();
        for (column, text) in (0..).zip(&mut row.texts) {
            *text = Some(numbered(*b"val", draw.below(column, STRINGS)));
        }
        for (number, text) in (0..).zip(&mut row.texts[..self.shape.windows.max(1)]) {
            *text = Some(numbered([b'k', b'1', b'0' + number], key_place));
        }
        for (column, value) in (20..).zip(&mut row.doubles) {
            let cents = draw.int(column, 1_000_000);
            *value = Some((cents - cents % 100 + 1 + cents % 99) as f64 / 100.0);
        }
        for (column, value) in (30..).zip(&mut row.ints) {
            *value = Some(draw.int(column, 1_000_000));
        }
        for (column, value) in (40..).zip(&mut row.times_ms) {
            *value = NOW_MS - draw.int(column, 8_640_000) * 1_000;
        }
        row.times_ms[0] = time_ms;
        for (column, position) in (50..).zip(NULL_TEXTS) {
            row.texts[position] = row.texts[position].filter(|_| !draw.chance(column, NULLS));
        }
        row.doubles[NULL_DOUBLE] = row.doubles[NULL_DOUBLE].filter(|_| !draw.chance(52, NULLS));
        row.ints[NULL_INT] = row.ints[NULL_INT].filter(|_| !draw.chance(53, NULLS));
        row
    }
}

/// Formats three letters and seven digits.
fn numbered(letters: [u8; 3], number: u64) -> [u8; 10] {
    let mut text = [b'0'; 10];
    text[..3].copy_from_slice(&letters);
    let mut rest = number;
    for digit in text[3..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("it is a digit");
        rest /= 10;
    }
    text
}
