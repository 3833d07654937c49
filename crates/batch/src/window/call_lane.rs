//! The values that a call folds, read from its argument a block at a time.
//!
//! Frames move along the candidates of a key, and each candidate is added once and removed once. A
//! [`CallLane`] gathers the values of the next [`BLOCK_ROWS`] candidates for each of the two, by the
//! type of the column and without the rows that do not count; the state takes them as a lane. The reads
//! of a gather do not wait for each other, although candidates are anywhere in the column.

use std::{mem, ops::Range, ptr};

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
pub(super) const BLOCK_ROWS: usize = if cfg!(test) { 8 } else { 2048 };

/// The values that one state takes, or several.
#[derive(Debug)]
pub(super) struct CallLane<'a> {
    source: FoldedColumn<'a>,
    added: LaneBlock<'a>,
    removed: LaneBlock<'a>,
}

/// Some candidates of a key.
#[derive(Debug)]
pub(super) struct FoldedRange<'c> {
    /// All candidates of the key.
    pub(super) candidates: &'c [u32],
    /// Which of them.
    pub(super) range: Range<usize>,
    /// No candidate is read from this one on.
    pub(super) read_end: usize,
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
    places: Vec<u32>,
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

    /// Returns whether only the rows that count matter, not their values.
    pub(super) fn counts_rows(&self) -> bool {
        matches!(self.source.values, LaneValues::Rows)
    }

    /// Returns whether it has the values of another lane, or counts the rows that the other one counts.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let (own, other) = (&self.source, &other.source);
        let same_rows = is_same(own.nulls, other.nulls)
            && is_same(own.condition, other.condition)
            && own.excludes_zero == other.excludes_zero;
        let same_values = match other.values {
            LaneValues::Rows => !own.excludes_zero,
            values => own.values.place() == values.place(),
        };
        same_rows && same_values
    }

    /// Calls a function with the values of some candidates, which are added; with their number where
    /// `counts_rows` is true.
    #[inline]
    pub(super) fn add(
        &mut self,
        range: FoldedRange<'_>,
        counts_rows: bool,
        apply: impl FnMut(ValueLane<'_>),
    ) {
        self.source.for_each(&mut self.added, range, counts_rows, apply);
    }

    /// Calls a function with the values of some candidates, which are removed; with their number where
    /// `counts_rows` is true.
    #[inline]
    pub(super) fn remove(
        &mut self,
        range: FoldedRange<'_>,
        counts_rows: bool,
        apply: impl FnMut(ValueLane<'_>),
    ) {
        self.source.for_each(&mut self.removed, range, counts_rows, apply);
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
        range: FoldedRange<'_>,
        counts_rows: bool,
        mut apply: impl FnMut(ValueLane<'_>),
    ) {
        let FoldedRange { candidates, mut range, read_end: end } = range;
        debug_assert!(range.end <= end && end <= candidates.len(), "candidates are read in order");
        if range.is_empty() {
            return;
        }
        if counts_rows && self.all_count() {
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
                    _ if counts_rows => ValueLane::Rows(counted.len()),
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
    #[inline]
    fn counts(&self, row: usize) -> bool {
        let is_true = |condition: &BooleanArray| condition.is_valid(row) & condition.value(row);
        self.nulls.is_none_or(|nulls| nulls.is_valid(row)) & self.condition.is_none_or(is_true)
    }

    /// Gathers the values of some candidates.
    fn fill(&self, block: &mut LaneBlock<'a>, candidates: &[u32], range: Range<usize>) {
        let rows = candidates[range.clone()].iter().map(|row| *row as usize);
        let LaneBlock { places, integers, floats, texts, .. } = block;
        match self.values {
            LaneValues::Rows => {
                let mut count = 0;
                places.clear();
                places.push(0);
                places.extend(rows.map(|row| {
                    count += u32::from(self.counts(row));
                    count
                }));
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
    fn gather<T: Copy + Default + PartialEq>(
        &self,
        rows: impl ExactSizeIterator<Item = usize>,
        value: impl Fn(usize) -> T,
        values: &mut Vec<T>,
        places: &mut Vec<u32>,
    ) {
        values.clear();
        places.clear();
        if self.all_count() {
            values.extend(rows.map(value));
            return;
        }
        // Without a branch for each row: which ones count follows no pattern.
        values.resize(rows.len(), T::default());
        let mut count = 0;
        places.push(0);
        places.extend(rows.map(|row| {
            let value = value(row);
            let is_excluded = self.excludes_zero & (value == T::default());
            values[count as usize] = value;
            count += u32::from(self.counts(row) & !is_excluded);
            count
        }));
        values.truncate(count as usize);
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

    /// Returns where they are, and how they are read.
    fn place(self) -> (mem::Discriminant<Self>, *const u8) {
        let place = match self {
            Self::Rows => ptr::null(),
            Self::SmallInts(values) | Self::SmallIntsAsFloats(values) => values.as_ptr().cast(),
            Self::Ints(values) | Self::IntsAsFloats(values) => values.as_ptr().cast(),
            Self::BigInts(values) | Self::BigIntsAsFloats(values) => values.as_ptr().cast(),
            Self::Floats(values) => values.as_ptr().cast(),
            Self::Doubles(values) => values.as_ptr().cast(),
            Self::Texts(values) => ptr::from_ref(values).cast(),
        };
        (mem::discriminant(&self), place)
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
        if self.places.is_empty() { at } else { self.places[at] as usize }
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

/// Returns whether two parts of a column are one.
fn is_same<T>(left: Option<&T>, right: Option<&T>) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => ptr::eq(left, right),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn slice<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
    let array: &PrimitiveArray<T> = array.as_primitive();
    array.values()
}
