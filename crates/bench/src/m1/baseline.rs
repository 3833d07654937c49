//! The speed-of-light baseline of M1: the same answer from loops over arrays.
//!
//! For each window and key, the columns that the window reads are arrays, oldest row first; texts
//! are inline, 16 bytes each; the NULL flags of a row are one byte. There is no schema, no codec
//! and no retention; concurrency is one lock for each key, and a row is inserted at its position in
//! the arrays. The semantics are complete: the frame is found by event time, the mean is the
//! exactly rounded sum of [`ExactSum`], distinct values are counted as values.

use std::{collections::HashMap, hint::black_box};

use lockstep_function::exact_sum::ExactSum;
use lockstep_host::sync::RwLock;
use lockstep_row::{Arena, Datum, calendar};

use super::{
    Data, M1Shape,
    data::{M1Row, REACH_MS, TableName, text},
    query::{AGGREGATES, OWN_SCALARS, scalar_count},
};
use crate::{
    answer::AnswerValue,
    error::Result,
    system::{Client, System},
};

pub(super) const HAS_S11: u8 = 1;
pub(super) const HAS_S12: u8 = 2;
pub(super) const HAS_I3: u8 = 4;
pub(super) const HAS_D4: u8 = 8;

/// The columns of one key that a window reads, oldest first.
#[derive(Debug, Default)]
struct WindowRows {
    times_ms: Vec<i64>,
    s13: Vec<u128>,
    i1: Vec<i64>,
    d4: Vec<f64>,
    present: Vec<u8>,
}

/// The columns of the newest row of one key that the scalars read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SideRow {
    pub(super) s1: [u8; 10],
    pub(super) s2: [u8; 10],
    pub(super) s3: [u8; 10],
    pub(super) t1_ms: i64,
    pub(super) i1: i64,
    pub(super) i2: i64,
    pub(super) d0: f64,
}

/// The rows of each key.
type WindowArrays = HashMap<[u8; 10], RwLock<WindowRows>>;

/// The rows of all tables as arrays.
#[derive(Debug)]
pub(crate) struct M1Baseline<'a> {
    shape: M1Shape,
    windows: Vec<WindowArrays>,
    sides: Vec<HashMap<[u8; 10], SideRow>>,
    requests: &'a [M1Row],
    bytes_per_row: f64,
}

impl<'a> M1Baseline<'a> {
    /// Fills the arrays.
    pub(crate) fn new(data: Data, requests: &'a [M1Row]) -> Self {
        let shape = data.shape;
        assert!((1..=10).contains(&shape.windows), "each window has a key column");
        assert!(shape.joins <= 3, "there are three side tables");
        let mut windows: Vec<WindowArrays> = Vec::new();
        windows.resize_with(shape.windows, HashMap::new);
        for row in data.rows(TableName::Main) {
            for (column, window) in windows.iter_mut().enumerate() {
                window.entry(key_of(&row, column)).or_default().write().insert(&row);
            }
        }
        let newest = |join: usize| {
            let rows = data.rows(TableName::Side(join));
            rows.map(|row| (key_of(&row, 0), SideRow::of(&row))).collect()
        };
        let sides: Vec<HashMap<[u8; 10], SideRow>> = (0..shape.joins).map(newest).collect();
        let entries = windows.iter().flat_map(HashMap::values).map(|rows| rows.read().i1.len());
        let bytes = entries.sum::<usize>() * (8 + 16 + 8 + 8 + 1)
            + sides.iter().map(HashMap::len).sum::<usize>() * size_of::<SideRow>();
        Self { shape, windows, sides, requests, bytes_per_row: bytes as f64 / shape.rows() as f64 }
    }
}

impl M1Baseline<'_> {
    /// Inserts a row of a key that has rows.
    pub(crate) fn insert(&self, row: &M1Row) {
        for (column, window) in self.windows.iter().enumerate() {
            if let Some(rows) = window.get(&key_of(row, column)) {
                rows.write().insert(row);
            }
        }
    }
}

fn key_of(row: &M1Row, column: usize) -> [u8; 10] {
    row.texts[column].expect("keys are never NULL")
}

impl SideRow {
    fn of(row: &M1Row) -> Self {
        let text = |column: usize| row.texts[column].expect("only two columns have NULLs");
        let int = |column: usize| row.ints[column].expect("only one column has NULLs");
        Self {
            s1: text(1),
            s2: text(2),
            s3: text(3),
            t1_ms: row.times_ms[1],
            i1: int(1),
            i2: int(2),
            d0: row.doubles[0].expect("only one column has NULLs"),
        }
    }
}

impl WindowRows {
    fn insert(&mut self, row: &M1Row) {
        let time_ms = row.times_ms[0];
        let at = match self.times_ms.last() {
            Some(last) if *last > time_ms => {
                self.times_ms.partition_point(|earlier| *earlier <= time_ms)
            }
            _ => self.times_ms.len(),
        };
        debug_assert!(at == 0 || self.times_ms[at - 1] <= time_ms, "rows are in order of time");
        self.times_ms.insert(at, time_ms);
        self.s13.insert(at, wide(row.texts[13].expect("it has no NULLs")));
        self.i1.insert(at, row.ints[1].expect("it has no NULLs"));
        self.d4.insert(at, row.doubles[4].unwrap_or_default());
        self.present.insert(at, present(row));
        debug_assert_eq!(self.times_ms.len(), self.present.len());
    }
}

pub(super) fn wide(text: [u8; 10]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&text);
    u128::from_le_bytes(bytes)
}

pub(super) fn present(row: &M1Row) -> u8 {
    let bit = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
    bit(row.texts[11].is_some(), HAS_S11)
        | bit(row.texts[12].is_some(), HAS_S12)
        | bit(row.ints[3].is_some(), HAS_I3)
        | bit(row.doubles[4].is_some(), HAS_D4)
}

impl System for M1Baseline<'_> {
    fn name(&self) -> &'static str {
        "speed_of_light"
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let texts = Texts::for_values(self.shape.window_rows);
        Ok(Box::new(M1BaselineClient { baseline: self, texts, arena: Arena::new() }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        Some(self.bytes_per_row)
    }
}

struct M1BaselineClient<'a> {
    baseline: &'a M1Baseline<'a>,
    texts: Texts,
    arena: Arena,
}

impl Client for M1BaselineClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.arena.reset();
        let row = &self.baseline.requests[request];
        black_box(self.baseline.answer(row, &mut self.texts, &self.arena));
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.arena.reset();
        let row = &self.baseline.requests[request];
        let answer = self.baseline.answer(row, &mut self.texts, &self.arena);
        Ok(answer.iter().map(AnswerValue::from).collect())
    }
}

impl M1Baseline<'_> {
    fn answer<'b>(
        &'b self,
        row: &'b M1Row,
        texts: &mut Texts,
        arena: &'b Arena,
    ) -> &'b [Datum<'b>] {
        let columns = AGGREGATES * self.shape.windows + scalar_count(self.shape);
        let answer = arena.alloc_slice_fill_default(columns);
        let (own, rest) = answer.split_at_mut(OWN_SCALARS);
        own.copy_from_slice(&scalars(row, arena));
        let (folds, joined) = rest.split_at_mut(AGGREGATES * self.shape.windows);
        let windows = self.windows.iter().zip(folds.as_chunks_mut().0).enumerate();
        for (column, (window, fold)) in windows {
            *fold = match window.get(&key_of(row, column)) {
                Some(rows) => rows.read().fold(row, self.shape.window_rows - 1, texts),
                None => WindowRows::default().fold(row, 0, texts),
            };
        }
        let mut joined = joined.iter_mut();
        for (join, side) in self.sides.iter().enumerate() {
            let scalars = side_scalars(join, side.get(&key_of(row, 0)), row, arena);
            for (value, place) in scalars.into_iter().flatten().zip(joined.by_ref()) {
                *place = value;
            }
        }
        answer
    }
}

pub(super) fn scalars<'b>(row: &'b M1Row, arena: &'b Arena) -> [Datum<'b>; OWN_SCALARS] {
    let text_of = |column: usize| text(row.texts[column].as_ref().expect("it has no NULLs"));
    let int = |column: usize| row.ints[column];
    let double = row.doubles[0].expect("it has no NULLs");
    [
        Datum::String(text_of(0)),
        Datum::String(bumpalo::format!(in arena, "{}{}", text_of(1), double).into_bump_str()),
        Datum::String(upper(text_of(2), arena)),
        Datum::String(&text_of(3)[2..]),
        year(row.times_ms[0]),
        Datum::String(bumpalo::format!(in arena, "{}", int(2).expect("no NULLs")).into_bump_str()),
        int(1).zip(int(3)).map_or(Datum::Null, |(left, right)| Datum::BigInt(left + right)),
    ]
}

pub(super) fn side_scalars<'b>(
    join: usize,
    side: Option<&'b SideRow>,
    row: &'b M1Row,
    arena: &'b Arena,
) -> [Option<Datum<'b>>; 4] {
    let Some(side) = side else {
        return [
            Some(Datum::Null),
            Some(Datum::Null),
            Some(Datum::Null),
            (join == 0).then_some(Datum::Null),
        ];
    };
    if join == 0 {
        let own = text(row.texts[2].as_ref().expect("it has no NULLs"));
        let both = bumpalo::format!(in arena, "{}{}", text(&side.s1), own);
        return [
            Some(Datum::String(text(&side.s3))),
            Some(Datum::String(both.into_bump_str())),
            Some(year(side.t1_ms)),
            Some(row.ints[1].map_or(Datum::Null, |value| Datum::BigInt(side.i1 + value))),
        ];
    }
    let number = bumpalo::format!(in arena, "{}", side.i2);
    [
        Some(Datum::String(upper(text(&side.s2), arena))),
        Some(Datum::Double(side.d0 * 2.0)),
        Some(Datum::String(number.into_bump_str())),
        None,
    ]
}

fn upper<'b>(text: &str, arena: &'b Arena) -> &'b str {
    let copy = arena.alloc_str(text);
    copy.make_ascii_uppercase();
    copy
}

fn year<'b>(ms: i64) -> Datum<'b> {
    let year = calendar::civil_from_days(calendar::split_ms(ms).0).year;
    Datum::Int(i32::try_from(year).expect("a year of our data"))
}

impl WindowRows {
    /// Returns the six aggregates over the request and at most `stored_max` rows before it.
    fn fold<'b>(
        &self,
        row: &M1Row,
        stored_max: usize,
        texts: &mut Texts,
    ) -> [Datum<'b>; AGGREGATES] {
        let now_ms = row.times_ms[0];
        let from = self.times_ms.partition_point(|time_ms| *time_ms < now_ms - REACH_MS);
        let to = self.times_ms.partition_point(|time_ms| *time_ms <= now_ms);
        let frame = from.max(to.saturating_sub(stored_max))..to;

        texts.clear();
        texts.insert(wide(row.texts[13].expect("it has no NULLs")));
        self.s13[frame.clone()].iter().for_each(|value| texts.insert(*value));
        let sum = self.i1[frame.clone()].iter().sum::<i64>() + row.ints[1].unwrap_or_default();

        let own = present(row);
        let flags = &self.present[frame.clone()];
        let count = |bit: u8| {
            let stored: usize = flags.iter().map(|flags| usize::from(flags & bit != 0)).sum();
            i64::try_from(stored + usize::from(own & bit != 0)).expect("a count fits")
        };
        let mut total = ExactSum::new();
        row.doubles[4].iter().for_each(|value| total.add(*value));
        for (value, flags) in self.d4[frame].iter().zip(flags) {
            if flags & HAS_D4 != 0 {
                total.add(*value);
            }
        }
        let newest_then = |bit: u8| match own & bit {
            0 => Datum::Null,
            _ => Datum::BigInt(count(bit)),
        };
        [
            Datum::BigInt(i64::try_from(texts.count).expect("a count fits")),
            Datum::BigInt(sum),
            Datum::BigInt(count(HAS_S11)),
            match count(HAS_D4) {
                0 => Datum::Null,
                count => Datum::Double(total.to_f64() / count as f64),
            },
            newest_then(HAS_S12),
            newest_then(HAS_I3),
        ]
    }
}

/// A set of texts that is cleared in constant time.
pub(super) struct Texts {
    slots: Vec<(u128, u64)>,
    generation: u64,
    count: usize,
}

impl Texts {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn for_values(count: usize) -> Self {
        let slots = vec![(0, 0); (2 * count).next_power_of_two()];
        Self { slots, generation: 0, count: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.generation += 1;
        self.count = 0;
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a hash is cut to its halves on purpose")]
    pub(super) fn insert(&mut self, value: u128) {
        let mixed = (value as u64 ^ (value >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mask = self.slots.len() - 1;
        let mut place = (mixed >> 32) as usize & mask;
        loop {
            let slot = &mut self.slots[place];
            if slot.1 != self.generation {
                *slot = (value, self.generation);
                self.count += 1;
                return;
            }
            if slot.0 == value {
                return;
            }
            place = (place + 1) & mask;
        }
    }
}
