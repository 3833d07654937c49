//! `min` and `max`.
//!
//! The state is the best value. A sliding one is a monotonic queue: the values that can still become
//! the result, each better than all after it. A row enters and leaves it once, so a step costs O(1)
//! on average.

use std::collections::VecDeque;

use lockstep_row::{Arena, DataType, Datum, ShortText};

use super::{
    AggregateFunction, BoundAggregate,
    encoding::{StateReader, put_key},
    key::{Key, KeyRef, TotalFloat},
    signature::{ORDERABLE, bound_fold, expect, expect_count},
    state::{AnswerKind, Fold, StateClass, StateKind, ValueLane},
};
use crate::{CallArguments, SignatureError};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "min",
        aliases: &[],
        category: "statistics",
        signature: "min(x number|TIMESTAMP|DATE|STRING) → the type of `x`",
        doc: "Returns the smallest value that is not NULL, or NULL if there is no such value. \
              Strings are compared byte by byte. NaN is larger than every number, and -0.0 is \
              smaller than 0.0.",
        examples: &[("min(x)", "1"), ("min(c)", "a")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_min,
    },
    AggregateFunction {
        name: "max",
        aliases: &[],
        category: "statistics",
        signature: "max(x number|TIMESTAMP|DATE|STRING) → the type of `x`",
        doc: "Returns the largest value that is not NULL, or NULL if there is no such value. \
              Strings are compared byte by byte. NaN is larger than every number, and 0.0 is \
              larger than -0.0.",
        examples: &[("max(x)", "4"), ("max(c)", "b")],
        is_ordered: false,
        class: StateClass::Mergeable,
        bind: bind_max,
    },
];

pub(super) fn bind_min(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, StateKind::Least)
}

pub(super) fn bind_max(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, StateKind::Greatest)
}

fn bind(arguments: &CallArguments<'_>, state: StateKind) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let fold = Fold::new(Some(0), state, AnswerKind::Extreme(data_type.clone()));
    Ok(bound_fold(vec![data_type.clone()], data_type, fold))
}

/// The state of the least or greatest value.
#[derive(Debug)]
pub(super) struct ExtremeState {
    is_least: bool,
    best: Best,
}

/// The best value so far.
#[derive(Debug)]
enum Best {
    None,
    Integer(i64),
    Float(TotalFloat),
    /// The text, and whether there is one: the buffer is reused.
    Text(String, bool),
}

impl Best {
    /// Returns the value, if there is one.
    fn key(&self) -> Option<KeyRef<'_>> {
        Some(match self {
            Self::None | Self::Text(_, false) => return None,
            Self::Integer(value) => KeyRef::Integer(*value),
            Self::Float(value) => KeyRef::Float(*value),
            Self::Text(text, true) => KeyRef::Text(text),
        })
    }

    fn clear(&mut self) {
        match self {
            Self::Text(_, is_there) => *is_there = false,
            other => *other = Self::None,
        }
    }
}

impl ExtremeState {
    pub(super) fn new(is_least: bool) -> Self {
        Self { is_least, best: Best::None }
    }

    pub(super) fn is_least(&self) -> bool {
        self.is_least
    }

    /// Adds one value.
    pub(super) fn add_key(&mut self, key: KeyRef<'_>) {
        match key {
            KeyRef::Integer(value) => self.add_integer(value),
            KeyRef::Float(value) => self.add_float(value),
            KeyRef::Text(text) => self.add_text(text),
        }
    }

    /// Adds the values of another state.
    pub(super) fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.is_least, other.is_least, "states of one aggregate are merged");
        other.best.key().into_iter().for_each(|key| self.add_key(key));
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.best.key().is_some()));
        self.best.key().into_iter().for_each(|key| put_key(out, key));
    }

    pub(super) fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        if reader.byte()? != 0 {
            self.add_key(reader.key()?);
        }
        Some(())
    }

    pub(super) fn reset(&mut self) {
        self.best.clear();
    }

    /// Writes the result to `out`; see
    /// [`AggregateState::write_answer`](super::state::AggregateState::write_answer).
    #[inline]
    pub(super) fn write_answer<'a>(
        &self,
        data_type: &DataType,
        arena: &'a Arena,
        out: &mut Datum<'a>,
    ) {
        match (&self.best, data_type) {
            (Best::Integer(value), DataType::BigInt) => *out = Datum::BigInt(*value),
            (Best::Float(value), DataType::Double) => *out = Datum::Double(value.get()),
            _ => *out = self.answer(data_type, arena),
        }
    }

    fn add_integer(&mut self, value: i64) {
        match &mut self.best {
            Best::Integer(known) if self.is_least => *known = value.min(*known),
            Best::Integer(known) => *known = value.max(*known),
            other => *other = Best::Integer(value),
        }
    }

    fn add_float(&mut self, value: TotalFloat) {
        match &mut self.best {
            Best::Float(known) if self.is_least => *known = value.min(*known),
            Best::Float(known) => *known = value.max(*known),
            other => *other = Best::Float(value),
        }
    }

    pub(super) fn add(&mut self, lane: ValueLane<'_>) {
        match lane {
            ValueLane::Integers(values) => {
                let Some(first) = values.first().copied() else { return };
                let better = if self.is_least { i64::min } else { i64::max };
                self.add_integer(values.iter().copied().fold(first, better));
            }
            ValueLane::Floats(values) => {
                let Some(best) = best_float(values, self.is_least) else { return };
                self.add_float(best);
            }
            ValueLane::Texts(values) => {
                let texts = values.iter();
                let best = if self.is_least { texts.min() } else { texts.max() };
                let Some(best) = best.copied() else { return };
                self.add_text(best);
            }
            ValueLane::ShortTexts(values) => {
                let texts = values.iter().map(ShortText::as_str);
                let best = if self.is_least { texts.min() } else { texts.max() };
                best.into_iter().for_each(|best| self.add_text(best));
            }
            ValueLane::Rows(_) => debug_assert!(false, "an extreme is of values"),
        }
    }

    fn add_text(&mut self, text: &str) {
        match &mut self.best {
            Best::Text(known, true) => {
                let known_text = known.as_str();
                let is_better = if self.is_least { text < known_text } else { text > known_text };
                if is_better {
                    known.clear();
                    known.push_str(text);
                }
            }
            Best::Text(buffer, is_there) => {
                buffer.clear();
                buffer.push_str(text);
                *is_there = true;
            }
            other => *other = Best::Text(text.to_owned(), true),
        }
    }

    pub(super) fn answer<'a>(&self, data_type: &DataType, arena: &'a Arena) -> Datum<'a> {
        self.best.key().map_or(Datum::Null, |key| key.datum_in(data_type, arena))
    }
}

/// Returns the least or greatest float in the total order. Float comparisons find it, unless there
/// are NaN or zeros, which they do not order: then the values are compared again.
fn best_float(values: &[f64], is_least: bool) -> Option<TotalFloat> {
    let (best, has_nan) = match is_least {
        true => best_number(values, |value, best| value < best),
        false => best_number(values, |value, best| value > best),
    }?;
    if !has_nan && best != 0.0 {
        return Some(TotalFloat::new(best));
    }
    let values = values.iter().map(|value| TotalFloat::new(*value));
    if is_least { values.min() } else { values.max() }
}

/// Returns the best of some values that are no NaN, and whether one of them is NaN. Four searches go
/// on side by side, so that none waits for the comparison before it.
#[inline]
fn best_number(values: &[f64], is_better: impl Fn(f64, f64) -> bool) -> Option<(f64, bool)> {
    const SEARCHES: usize = 4;
    let better = |value: f64, best: f64| if is_better(value, best) { value } else { best };
    let mut best = [*values.first()?; SEARCHES];
    let mut has_nan = false;
    let (blocks, rest) = values.as_chunks::<SEARCHES>();
    for block in blocks {
        for (best, value) in best.iter_mut().zip(block) {
            has_nan |= value.is_nan();
            *best = better(*value, *best);
        }
    }
    for value in rest {
        has_nan |= value.is_nan();
        best[0] = better(*value, best[0]);
    }
    Some((best.into_iter().fold(best[0], |all, one| better(one, all)), has_nan))
}

/// The values of a sliding frame that can still become the result.
#[derive(Debug)]
pub(super) struct ExtremeQueue {
    is_least: bool,
    /// Each value with its number among all that were added, the best and oldest first.
    queue: VecDeque<(u64, Key)>,
    added: u64,
    removed: u64,
}

impl ExtremeQueue {
    pub(super) fn new(is_least: bool) -> Self {
        Self { is_least, queue: VecDeque::new(), added: 0, removed: 0 }
    }

    pub(super) fn add(&mut self, key: KeyRef<'_>) {
        let is_least = self.is_least;
        let is_beaten = |(_, earlier): &mut (u64, Key)| beats(key, earlier.as_ref(), is_least);
        while self.queue.pop_back_if(is_beaten).is_some() {}
        self.queue.push_back((self.added, key.to_key()));
        self.added += 1;
        debug_assert!(self.queue.len() as u64 <= self.added, "each entry was added");
    }

    /// Removes the oldest value.
    pub(super) fn remove(&mut self) {
        debug_assert!(self.removed < self.added, "a value that leaves was added");
        let number = self.removed;
        self.queue.pop_front_if(|(front, _)| *front == number);
        self.removed += 1;
    }

    pub(super) fn answer<'a>(&self, data_type: &DataType, arena: &'a Arena) -> Datum<'a> {
        self.best().map_or(Datum::Null, |key| key.datum_in(data_type, arena))
    }

    /// Returns the result over its values and one more.
    pub(super) fn answer_with<'a>(
        &self,
        key: KeyRef<'_>,
        data_type: &DataType,
        arena: &'a Arena,
    ) -> Datum<'a> {
        let best = self.best().filter(|best| !beats(key, *best, self.is_least)).unwrap_or(key);
        best.datum_in(data_type, arena)
    }

    fn best(&self) -> Option<KeyRef<'_>> {
        self.queue.front().map(|(_, key)| key.as_ref())
    }

    pub(super) fn reset(&mut self) {
        self.queue.clear();
        (self.added, self.removed) = (0, 0);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.queue.capacity() * size_of::<(u64, Key)>()
    }
}

/// Returns whether a value that is added keeps an earlier one from ever becoming the result.
#[inline]
fn beats(key: KeyRef<'_>, earlier: KeyRef<'_>, is_least: bool) -> bool {
    if is_least { key <= earlier } else { key >= earlier }
}
