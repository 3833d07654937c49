//! The values that a call folds, read from its argument a block at a time.
//!
//! Frames move along the candidates of a key, and each candidate is added once and removed once. A
//! [`CallLane`] gathers the values of the next [`BLOCK_ROWS`] candidates for each of the two, by the
//! type of the column and without the rows that do not count; the state takes them as a lane. The reads
//! of a gather do not wait for each other, although candidates are anywhere in the column.

use std::ops::Range;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray, StringArray},
    buffer::NullBuffer,
    datatypes::{
        ArrowPrimitiveType, DataType as ArrowType, Date32Type, Float32Type, Float64Type, Int16Type,
        Int32Type, Int64Type, TimeUnit, TimestampMillisecondType,
    },
};
use lockstep_function::{
    BoundAggregate, StateForm,
    aggregate::state::{StateKind, ValueLane},
};
use lockstep_row::ShortText;

/// How many candidates are gathered together.
const BLOCK_ROWS: usize = if cfg!(test) { 8 } else { 512 };

/// The values of one call.
#[derive(Debug)]
pub(super) struct CallLane<'a> {
    source: FoldedColumn<'a>,
    added: LaneBlock<'a>,
    removed: LaneBlock<'a>,
}

/// Where the values are, and which count.
#[derive(Debug)]
struct FoldedColumn<'a> {
    values: LaneValues<'a>,
    /// The NULLs of the argument, which do not count.
    nulls: Option<&'a NullBuffer>,
    /// The rows that count.
    condition: Option<&'a BooleanArray>,
    /// Whether rows whose value is zero do not count.
    excludes_zero: bool,
}

/// The values of a column.
#[derive(Debug, Clone, Copy)]
enum LaneValues<'a> {
    /// Rows are counted.
    Rows,
    SmallInts(&'a [i16]),
    Ints(&'a [i32]),
    BigInts(&'a [i64]),
    Floats(&'a [f32]),
    Doubles(&'a [f64]),
    /// Integers that are folded as floats.
    SmallIntsAsFloats(&'a [i16]),
    IntsAsFloats(&'a [i32]),
    BigIntsAsFloats(&'a [i64]),
    Texts(&'a StringArray),
}

/// The values of consecutive candidates.
#[derive(Debug, Default)]
struct LaneBlock<'a> {
    /// The positions of the candidates.
    candidates: Range<usize>,
    /// For each candidate how many before it count, and at the end how many do; empty where all do.
    places: Vec<usize>,
    integers: Vec<i64>,
    floats: Vec<f64>,
    texts: Vec<&'a str>,
    /// The same texts, where all of them are short.
    short_texts: Vec<ShortText>,
}

impl<'a> CallLane<'a> {
    /// Returns the lane of a call, or `None` where its state takes rows, or values of a type
    /// that lanes do not have.
    pub(super) fn of(bound: &BoundAggregate, arguments: &'a [ArrayRef]) -> Option<Self> {
        let fold = match &bound.state {
            StateForm::Fold(fold) if fold.takes_blocks() => fold,
            StateForm::Fold(_) | StateForm::Rows(_) => return None,
        };
        let value: Option<&'a dyn Array> = fold.value.map(|value| arguments[value].as_ref());
        let condition = match fold.condition {
            None => None,
            Some(condition) => Some(arguments[condition.argument].as_boolean_opt()?),
        };
        let excludes_zero = fold.condition.is_some_and(|condition| condition.excludes_zero);
        let values = match (fold.state, value) {
            (StateKind::Drawdown, _) => return None,
            // Whether a value is zero is read of the value.
            (StateKind::Count, _) if !excludes_zero => LaneValues::Rows,
            (StateKind::Moments, Some(value)) => LaneValues::of(value)?.as_floats()?,
            (_, Some(value)) => LaneValues::of(value)?,
            (_, None) => return None,
        };
        let nulls = value.and_then(Array::nulls).filter(|nulls| nulls.null_count() > 0);
        if value.is_some_and(|value| *value.data_type() == ArrowType::Null) {
            return None;
        }
        debug_assert!(
            !(excludes_zero && matches!(values, LaneValues::Texts(_))),
            "the zeros that do not count are numbers"
        );
        let source = FoldedColumn { values, nulls, condition, excludes_zero };
        Some(Self { source, added: LaneBlock::default(), removed: LaneBlock::default() })
    }

    /// Forgets the candidates of the key before.
    pub(super) fn clear(&mut self) {
        self.added.candidates = 0..0;
        self.removed.candidates = 0..0;
    }

    /// Calls a function with the values of some candidates, which are added. No later one is read than
    /// `end`.
    #[inline]
    pub(super) fn add(
        &mut self,
        candidates: &[u32],
        range: Range<usize>,
        end: usize,
        apply: impl FnMut(ValueLane<'_>),
    ) {
        self.source.for_each(&mut self.added, (candidates, range, end), apply);
    }

    /// Calls a function with the values of some candidates, which are removed. No later one is read
    /// than `end`.
    #[inline]
    pub(super) fn remove(
        &mut self,
        candidates: &[u32],
        range: Range<usize>,
        end: usize,
        apply: impl FnMut(ValueLane<'_>),
    ) {
        self.source.for_each(&mut self.removed, (candidates, range, end), apply);
    }

    /// Returns whether a row may count, before its value is read.
    #[inline]
    pub(super) fn counts(&self, row: u32) -> bool {
        self.source.all_count() || self.source.counts(row as usize)
    }
}

impl<'a> FoldedColumn<'a> {
    #[inline]
    fn for_each(
        &self,
        block: &mut LaneBlock<'a>,
        (candidates, mut range, end): (&[u32], Range<usize>, usize),
        mut apply: impl FnMut(ValueLane<'_>),
    ) {
        debug_assert!(range.end <= end && end <= candidates.len(), "candidates are read in order");
        if range.is_empty() {
            return;
        }
        if matches!(self.values, LaneValues::Rows) && self.all_count() {
            apply(ValueLane::Rows(range.len()));
            return;
        }
        while !range.is_empty() {
            if !block.candidates.contains(&range.start) {
                let next = range.start..end.min(range.start + BLOCK_ROWS);
                self.fill(block, candidates, next);
            }
            let known = range.start..range.end.min(block.candidates.end);
            range.start = known.end;
            let counted = block.place(known.start)..block.place(known.end);
            if !counted.is_empty() {
                apply(match self.values {
                    LaneValues::Rows => ValueLane::Rows(counted.len()),
                    LaneValues::Texts(_) => block.texts(counted),
                    values if values.are_floats() => ValueLane::Floats(&block.floats[counted]),
                    _ => ValueLane::Integers(&block.integers[counted]),
                });
            }
        }
    }

    /// Returns whether every row counts.
    fn all_count(&self) -> bool {
        self.nulls.is_none() && self.condition.is_none()
    }

    /// Returns whether a row counts, whatever its value.
    fn counts(&self, row: usize) -> bool {
        let is_true = |condition: &BooleanArray| condition.is_valid(row) && condition.value(row);
        self.nulls.is_none_or(|nulls| nulls.is_valid(row)) && self.condition.is_none_or(is_true)
    }

    /// Gathers the values of some candidates.
    fn fill(&self, block: &mut LaneBlock<'a>, candidates: &[u32], range: Range<usize>) {
        let rows = candidates[range.clone()].iter().map(|row| *row as usize);
        let LaneBlock { places, integers, floats, texts, .. } = block;
        match self.values {
            LaneValues::Rows => {
                places.clear();
                places.push(0);
                let mut count = 0;
                for row in rows {
                    count += usize::from(self.counts(row));
                    places.push(count);
                }
            }
            LaneValues::SmallInts(values) => {
                self.gather(rows, |row| i64::from(values[row]), integers, places);
            }
            LaneValues::Ints(values) => {
                self.gather(rows, |row| i64::from(values[row]), integers, places);
            }
            LaneValues::BigInts(values) => self.gather(rows, |row| values[row], integers, places),
            LaneValues::Floats(values) => {
                self.gather(rows, |row| f64::from(values[row]), floats, places);
            }
            LaneValues::Doubles(values) => self.gather(rows, |row| values[row], floats, places),
            LaneValues::SmallIntsAsFloats(values) => {
                self.gather(rows, |row| f64::from(values[row]), floats, places);
            }
            LaneValues::IntsAsFloats(values) => {
                self.gather(rows, |row| f64::from(values[row]), floats, places);
            }
            LaneValues::BigIntsAsFloats(values) => {
                #[expect(clippy::cast_precision_loss, reason = "as `Datum::as_f64` rounds")]
                self.gather(rows, |row| values[row] as f64, floats, places);
            }
            LaneValues::Texts(values) => {
                self.gather(rows, |row| values.value(row), texts, places);
                block.short_texts.clear();
                block.short_texts.extend(block.texts.iter().map_while(|text| ShortText::new(text)));
            }
        }
        block.candidates = range;
    }

    /// Gathers the values of the rows that count.
    fn gather<T: Default + PartialEq>(
        &self,
        rows: impl Iterator<Item = usize>,
        value: impl Fn(usize) -> T,
        values: &mut Vec<T>,
        places: &mut Vec<usize>,
    ) {
        values.clear();
        places.clear();
        if self.all_count() {
            values.extend(rows.map(value));
            return;
        }
        places.push(0);
        for row in rows {
            if self.counts(row) {
                let value = value(row);
                if !(self.excludes_zero && value == T::default()) {
                    values.push(value);
                }
            }
            places.push(values.len());
        }
    }
}

impl<'a> LaneValues<'a> {
    /// Returns the values of a column, unless lanes do not have its type.
    fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            ArrowType::Int16 => Self::SmallInts(slice::<Int16Type>(array)),
            ArrowType::Int32 => Self::Ints(slice::<Int32Type>(array)),
            ArrowType::Date32 => Self::Ints(slice::<Date32Type>(array)),
            ArrowType::Int64 => Self::BigInts(slice::<Int64Type>(array)),
            ArrowType::Timestamp(TimeUnit::Millisecond, None) => {
                Self::BigInts(slice::<TimestampMillisecondType>(array))
            }
            ArrowType::Float32 => Self::Floats(slice::<Float32Type>(array)),
            ArrowType::Float64 => Self::Doubles(slice::<Float64Type>(array)),
            ArrowType::Utf8 => Self::Texts(array.as_string()),
            _ => return None,
        })
    }

    /// Returns them as floats.
    fn as_floats(self) -> Option<Self> {
        Some(match self {
            Self::SmallInts(values) => Self::SmallIntsAsFloats(values),
            Self::Ints(values) => Self::IntsAsFloats(values),
            Self::BigInts(values) => Self::BigIntsAsFloats(values),
            Self::Floats(_) | Self::Doubles(_) => self,
            _ => return None,
        })
    }

    /// Returns whether the state is given floats.
    fn are_floats(self) -> bool {
        match self {
            Self::Rows | Self::SmallInts(_) | Self::Ints(_) | Self::BigInts(_) | Self::Texts(_) => {
                false
            }
            Self::Floats(_)
            | Self::Doubles(_)
            | Self::SmallIntsAsFloats(_)
            | Self::IntsAsFloats(_)
            | Self::BigIntsAsFloats(_) => true,
        }
    }
}

impl LaneBlock<'_> {
    /// Returns how many candidates of the block before this one count.
    fn place(&self, candidate: usize) -> usize {
        let at = candidate - self.candidates.start;
        if self.places.is_empty() { at } else { self.places[at] }
    }

    /// Returns some of the texts.
    fn texts(&self, counted: Range<usize>) -> ValueLane<'_> {
        if self.short_texts.len() == self.texts.len() {
            ValueLane::ShortTexts(&self.short_texts[counted])
        } else {
            ValueLane::Texts(&self.texts[counted])
        }
    }
}

fn slice<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    let array: &PrimitiveArray<T> = array.as_primitive();
    array.values()
}
