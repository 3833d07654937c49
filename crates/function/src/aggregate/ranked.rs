//! Order statistics: `median`, `percentile` and `top`.
//!
//! A sliding state has the values sorted. Otherwise `median` and `percentile` sort or select once,
//! when the result is computed, and `top` has only the `k` greatest values.

use std::any::Any;

use lockstep_row::{Arena, DataType, Datum};

use super::{
    AggregateFunction, BoundAggregate,
    encoding::{StateReader, put_count, put_key},
    key::{Key, KeyRef, wrapped_integer},
    signature::{
        NUMBER, ORDERABLE, bound_rows, expect, expect_constant, expect_count, expect_size,
        wrong_constant,
    },
    state::{PartialState, RowState, RowsEnd, StateClass, StateUse},
};
use crate::{CallArguments, Compatibility, SignatureError, item_text::ItemPrinter};

const CLASS: StateClass = StateClass::Mergeable;

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "median",
        aliases: &[],
        category: "statistics",
        signature: "median(x number) → DOUBLE",
        doc: "Returns the middle one of the values that are not NULL, or the mean of the two \
              middle values. NULL if there are no such values. With `compatibility = 'openmldb'` \
              two integers are added in their own type, which may wrap.",
        examples: &[("median(x)", "3")],
        is_ordered: false,
        class: CLASS,
        bind: bind_median,
    },
    AggregateFunction {
        name: "percentile",
        aliases: &["percentile_cont"],
        category: "statistics",
        signature: "percentile(x number, p constant number) → DOUBLE",
        doc: "Returns the quantile `p`, which is from 0 to 1, of the values that are not NULL, \
              with linear interpolation between two values. NULL if there are no such values or \
              `p` is NULL. The result is exact: `percentile(x, 0.5)` is `median(x)`.",
        examples: &[("percentile(x, 0.5)", "3"), ("percentile(y, 0.25)", "1.625")],
        is_ordered: false,
        class: CLASS,
        bind: bind_percentile,
    },
    AggregateFunction {
        name: "top",
        aliases: &[],
        category: "frequency",
        signature: "top(x number|TIMESTAMP|DATE|STRING, k constant integer) → STRING",
        doc: "Returns the `k` largest values, separated by commas, in descending order; equal \
              values are repeated. Empty if there is no value that is not NULL. With \
              `compatibility = 'openmldb'` floats have six decimals.",
        examples: &[("top(x, 2)", "4,4"), ("top(c, 3)", "b,b,a")],
        is_ordered: false,
        class: CLASS,
        bind: bind_top,
    },
];

fn bind_median(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &NUMBER)?;
    let wraps = arguments.settings.compatibility == Compatibility::OpenMldb;
    let parameters = vec![data_type.clone()];
    let answer = RankedAnswer::Median { data_type, wraps };
    Ok(bind_ranked(parameters, DataType::Double, answer))
}

fn bind_percentile(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    const RANGE: &str = "a constant number from 0 to 1";
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &NUMBER)?;
    expect(arguments, 1, &NUMBER)?;
    let share = expect_constant(arguments, 1, RANGE)?.as_scalar().and_then(|share| share.as_f64());
    if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(wrong_constant(1, RANGE));
    }
    let parameters = vec![data_type, DataType::Double];
    Ok(bind_ranked(parameters, DataType::Double, RankedAnswer::Percentile(share)))
}

fn bind_top(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let count = expect_size(arguments, 1)?;
    let printer = ItemPrinter::new(*arguments.settings);
    let parameters = vec![data_type.clone(), DataType::BigInt];
    let answer = RankedAnswer::Top { data_type, count, printer };
    Ok(bind_ranked(parameters, DataType::String, answer))
}

fn bind_ranked(
    parameters: Vec<DataType>,
    returns: DataType,
    answer: RankedAnswer,
) -> BoundAggregate {
    bound_rows(parameters, returns, CLASS, move |used| Ranked {
        used,
        answer: answer.clone(),
        keys: Vec::new(),
        text_bytes: 0,
    })
}

/// The result that is computed from the values.
#[derive(Debug, Clone)]
enum RankedAnswer {
    /// The type of the values, and whether the sum of two of them wraps.
    Median {
        data_type: DataType,
        wraps: bool,
    },
    /// `None` for NULL.
    Percentile(Option<f64>),
    Top {
        data_type: DataType,
        count: usize,
        printer: ItemPrinter,
    },
}

/// The state: the values.
struct Ranked {
    used: StateUse,
    answer: RankedAnswer,
    /// Sorted for `top`, and where values are removed.
    keys: Vec<Key>,
    /// The bytes of the keys that are texts.
    text_bytes: usize,
}

impl Ranked {
    /// Returns the number of greatest values that are stored; `None` when all are.
    fn limit(&self) -> Option<usize> {
        match (self.used, &self.answer) {
            (StateUse::Fold, RankedAnswer::Top { count, .. }) => Some(*count),
            _ => None,
        }
    }

    fn add_key(&mut self, key: KeyRef<'_>) {
        match self.limit() {
            None if self.used == StateUse::Fold => {
                self.text_bytes += key.text_bytes();
                self.keys.push(key.to_key());
            }
            None => self.insert(key),
            Some(limit) => {
                let is_full = self.keys.len() >= limit;
                if is_full && self.keys.first().is_none_or(|least| key <= least.as_ref()) {
                    return;
                }
                if is_full {
                    self.text_bytes -= self.keys.remove(0).as_ref().text_bytes();
                }
                self.insert(key);
            }
        }
    }

    fn insert(&mut self, key: KeyRef<'_>) {
        let position = self.keys.partition_point(|other| other.as_ref() <= key);
        self.text_bytes += key.text_bytes();
        self.keys.insert(position, key.to_key());
        debug_assert!(
            self.limit().is_none_or(|limit| self.keys.len() <= limit),
            "only the greatest values are stored"
        );
    }
}

impl RowState for Ranked {
    fn add(&mut self, arguments: &[Datum<'_>], _end: RowsEnd) {
        KeyRef::of(arguments[0]).into_iter().for_each(|key| self.add_key(key));
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        debug_assert_eq!(self.used, StateUse::Slide, "only sliding removes rows");
        let Some(key) = KeyRef::of(arguments[0]) else { return };
        let position = self.keys.partition_point(|other| other.as_ref() < key);
        debug_assert!(self.keys[position].as_ref() == key, "a value that leaves was added");
        self.text_bytes -= self.keys.remove(position).as_ref().text_bytes();
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let is_sorted = self.used == StateUse::Slide;
        match &self.answer {
            RankedAnswer::Median { data_type, wraps } => {
                median(&self.keys, is_sorted, |lower, upper| {
                    middle(lower, upper, data_type, *wraps)
                })
            }
            RankedAnswer::Percentile(share) => percentile(&self.keys, is_sorted, *share),
            RankedAnswer::Top { data_type, count, printer } => {
                let mut list = printer.list(arena);
                for key in self.keys.iter().rev().take(*count) {
                    list.push(|out| printer.write(key.as_ref().datum(data_type), out));
                }
                list.finish()
            }
        }
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        self.add(arguments, RowsEnd::Newest);
        let found = self.value(arena);
        self.remove(arguments);
        found
    }

    fn heap_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<Key>() + self.text_bytes
    }

    fn reset(&mut self) {
        self.keys.clear();
        self.text_bytes = 0;
    }

    fn as_partial(&self) -> Option<&dyn PartialState> {
        Some(self)
    }

    fn as_partial_mut(&mut self) -> Option<&mut dyn PartialState> {
        Some(self)
    }
}

impl PartialState for Ranked {
    fn merge(&mut self, other: &dyn Any, _end: RowsEnd) {
        let Some(other) = other.downcast_ref::<Self>() else {
            debug_assert!(false, "states of one aggregate are merged");
            return;
        };
        other.keys.iter().for_each(|key| self.add_key(key.as_ref()));
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.keys.len());
        self.keys.iter().for_each(|key| put_key(out, key.as_ref()));
    }

    fn decode(&mut self, reader: &mut StateReader<'_>) -> Option<()> {
        for _ in 0..reader.count()? {
            self.add_key(reader.key()?);
        }
        Some(())
    }
}

fn median(keys: &[Key], is_sorted: bool, middle: impl Fn(&Key, &Key) -> f64) -> Datum<'static> {
    let half = keys.len() / 2;
    let is_odd = keys.len() % 2 == 1;
    if keys.is_empty() {
        return Datum::Null;
    }
    if is_sorted {
        let lower = &keys[if is_odd { half } else { half - 1 }];
        return Datum::Double(middle(lower, &keys[half]));
    }
    let mut keys = keys.to_vec();
    let (below, upper, _) = keys.select_nth_unstable(half);
    let lower = below.iter().max().filter(|_| !is_odd).unwrap_or(upper);
    Datum::Double(middle(lower, upper))
}

/// Returns the mean of the two middle values, or of one with itself.
fn middle(lower: &Key, upper: &Key, data_type: &DataType, wraps: bool) -> f64 {
    match (lower, upper) {
        (Key::Integer(lower), Key::Integer(upper)) => {
            let sum = i128::from(*lower) + i128::from(*upper);
            #[expect(clippy::cast_precision_loss, reason = "rounds to DOUBLE once")]
            let sum = if wraps && lower != upper {
                wrapped_integer(sum, data_type).as_i64().unwrap_or(0) as f64
            } else {
                sum as f64
            };
            sum / 2.0
        }
        (Key::Float(lower), Key::Float(upper)) => {
            let (lower, upper) = (lower.get(), upper.get());
            match lower + upper {
                sum if sum.is_nan() => f64::NAN,
                sum if sum.is_infinite() => lower / 2.0 + upper / 2.0,
                sum => sum / 2.0,
            }
        }
        _ => f64::NAN,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a frame has fewer than 2^53 rows")]
fn percentile(keys: &[Key], is_sorted: bool, share: Option<f64>) -> Datum<'static> {
    let (Some(share), Some(last)) = (share, keys.len().checked_sub(1)) else {
        return Datum::Null;
    };
    let position = share * last as f64;
    if is_sorted {
        return Datum::Double(between(keys, position));
    }
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    Datum::Double(between(&keys, position))
}

/// Interpolates between the two values next to a fractional position among sorted keys.
fn between(keys: &[Key], position: f64) -> f64 {
    debug_assert!(!keys.is_empty(), "there is a value");
    debug_assert!(position >= 0.0, "a position is an index, or between two");
    let number = |index: usize| match &keys[index.min(keys.len() - 1)] {
        #[expect(clippy::cast_precision_loss, reason = "rounds to DOUBLE")]
        Key::Integer(value) => *value as f64,
        Key::Float(value) => value.get(),
        Key::Text(_) => f64::NAN,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position lies between 0 and the number of keys"
    )]
    let below = position.floor() as usize;
    let (lower, upper, part) = (number(below), number(below + 1), position.fract());
    if part == 0.0 || lower.total_cmp(&upper).is_eq() {
        return lower;
    }
    let value = lower * (1.0 - part) + upper * part;
    if value.is_nan() { f64::NAN } else { value }
}
