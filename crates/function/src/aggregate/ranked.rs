//! Order statistics: `median`, `percentile` and `top`.
//!
//! A sliding accumulator has the values sorted. With [`Feeding::NewestFirst`], `median` and
//! `percentile` sort or select once, when the result is computed, and `top` has only the `k`
//! greatest values.

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding,
    key::{Key, KeyRef, wrapped_integer},
    signature::{
        NUMBER, ORDERABLE, bound, expect, expect_constant, expect_count, expect_size,
        wrong_constant,
    },
};
use crate::{CallArguments, Compatibility, SignatureError, item_text::ItemPrinter};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "median",
        aliases: &[],
        category: "statistics",
        signature: "median(x number) → DOUBLE",
        doc: "The middle one of the values that are not NULL, or the mean of the two middle ones; \
              NULL when there are none. With `compatibility = 'openmldb'` two integers are added \
              in their own type, which may wrap.",
        examples: &[("median(x)", "3")],
        is_ordered: false,
        bind: bind_median,
    },
    AggregateFunction {
        name: "percentile",
        aliases: &["percentile_cont"],
        category: "statistics",
        signature: "percentile(x number, p constant number) → DOUBLE",
        doc: "The value below which the share `p`, 0 to 1, of the values lies that are not NULL; \
              between two values it is interpolated on a straight line. NULL when there are none \
              and where `p` is NULL. It is exact: `percentile(x, 0.5)` is `median(x)`.",
        examples: &[("percentile(x, 0.5)", "3"), ("percentile(y, 0.25)", "1.625")],
        is_ordered: false,
        bind: bind_percentile,
    },
    AggregateFunction {
        name: "top",
        aliases: &[],
        category: "frequency",
        signature: "top(x number|TIMESTAMP|DATE|STRING, k constant integer) → STRING",
        doc: "The `k` greatest values, greatest first, joined by commas; equal values stay. \
              An empty string when there is no value that is not NULL. With \
              `compatibility = 'openmldb'` floats have six decimals.",
        examples: &[("top(x, 2)", "4,4"), ("top(c, 3)", "b,b,a")],
        is_ordered: false,
        bind: bind_top,
    },
];

fn bind_median(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &NUMBER)?;
    let wraps = arguments.settings.compatibility == Compatibility::OpenMldb;
    let parameters = vec![data_type.clone()];
    let make = move |feeding| Median {
        ranked: Ranked::new(feeding, None),
        data_type: data_type.clone(),
        wraps,
    };
    Ok(bound(parameters, DataType::Double, make))
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
    let make = move |feeding| Percentile { ranked: Ranked::new(feeding, None), share };
    Ok(bound(vec![data_type, DataType::Double], DataType::Double, make))
}

fn bind_top(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let count = expect_size(arguments, 1)?;
    let printer = ItemPrinter::new(*arguments.settings);
    let parameters = vec![data_type.clone(), DataType::BigInt];
    let make = move |feeding| Top {
        ranked: Ranked::new(feeding, Some(count)),
        data_type: data_type.clone(),
        count,
        printer,
    };
    Ok(bound(parameters, DataType::String, make))
}

/// The values of a frame.
struct Ranked {
    feeding: Feeding,
    /// The number of greatest values that are stored; all values when `None`.
    limit: Option<usize>,
    /// Ascending, except with [`Feeding::NewestFirst`] and without a limit.
    keys: Vec<Key>,
}

impl Ranked {
    fn new(feeding: Feeding, limit: Option<usize>) -> Self {
        Self { feeding, limit, keys: Vec::new() }
    }

    fn add(&mut self, value: Datum<'_>) {
        let Some(key) = KeyRef::of(value) else { return };
        match (self.feeding, self.limit) {
            (Feeding::NewestFirst, None) => self.keys.push(key.to_key()),
            (Feeding::Sliding, _) => self.insert(key),
            (Feeding::NewestFirst, Some(limit)) => {
                let is_full = self.keys.len() >= limit;
                if is_full && self.keys.first().is_none_or(|least| key <= least.as_ref()) {
                    return;
                }
                if is_full {
                    self.keys.remove(0);
                }
                self.insert(key);
            }
        }
    }

    fn insert(&mut self, key: KeyRef<'_>) {
        let position = self.keys.partition_point(|other| other.as_ref() <= key);
        self.keys.insert(position, key.to_key());
        debug_assert!(
            self.feeding == Feeding::Sliding
                || self.limit.is_none_or(|limit| self.keys.len() <= limit),
            "only the greatest values are stored"
        );
    }

    fn remove(&mut self, value: Datum<'_>) {
        debug_assert_eq!(self.feeding, Feeding::Sliding, "only sliding removes rows");
        let Some(key) = KeyRef::of(value) else { return };
        let position = self.keys.partition_point(|other| other.as_ref() < key);
        debug_assert!(self.keys[position].as_ref() == key, "a value that leaves was added");
        self.keys.remove(position);
    }
}

struct Median {
    ranked: Ranked,
    data_type: DataType,
    wraps: bool,
}

impl Median {
    fn middle(&self, lower: &Key, upper: &Key) -> f64 {
        match (lower, upper) {
            (Key::Integer(lower), Key::Integer(upper)) => {
                let sum = i128::from(*lower) + i128::from(*upper);
                #[expect(clippy::cast_precision_loss, reason = "rounds to DOUBLE once")]
                let sum = if self.wraps && lower != upper {
                    wrapped_integer(sum, &self.data_type).as_i64().unwrap_or(0) as f64
                } else {
                    sum as f64
                };
                sum / 2.0
            }
            (Key::Float(lower), Key::Float(upper)) => {
                let (lower, upper) = (lower.get(), upper.get());
                let sum = lower + upper;
                match sum {
                    sum if sum.is_nan() => f64::NAN,
                    sum if sum.is_infinite() => lower / 2.0 + upper / 2.0,
                    sum => sum / 2.0,
                }
            }
            _ => f64::NAN,
        }
    }
}

impl Accumulator for Median {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.add(arguments[0]);
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.remove(arguments[0]);
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        let keys = &self.ranked.keys;
        let half = keys.len() / 2;
        let is_odd = keys.len() % 2 == 1;
        if keys.is_empty() {
            return Datum::Null;
        }
        if self.ranked.feeding == Feeding::Sliding {
            let lower = &keys[if is_odd { half } else { half - 1 }];
            return Datum::Double(self.middle(lower, &keys[half]));
        }
        let mut keys = keys.clone();
        let (below, upper, _) = keys.select_nth_unstable(half);
        let lower = below.iter().max().filter(|_| !is_odd).unwrap_or(upper);
        Datum::Double(self.middle(lower, upper))
    }

    fn reset(&mut self) {
        self.ranked.keys.clear();
    }
}

struct Percentile {
    ranked: Ranked,
    /// `None` for NULL.
    share: Option<f64>,
}

impl Percentile {
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
}

impl Accumulator for Percentile {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.add(arguments[0]);
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.remove(arguments[0]);
    }

    #[expect(clippy::cast_precision_loss, reason = "a frame has fewer than 2^53 rows")]
    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        let keys = &self.ranked.keys;
        let (Some(share), Some(last)) = (self.share, keys.len().checked_sub(1)) else {
            return Datum::Null;
        };
        let position = share * last as f64;
        if self.ranked.feeding == Feeding::Sliding {
            return Datum::Double(Self::between(keys, position));
        }
        let mut keys = keys.clone();
        keys.sort_unstable();
        Datum::Double(Self::between(&keys, position))
    }

    fn reset(&mut self) {
        self.ranked.keys.clear();
    }
}

struct Top {
    ranked: Ranked,
    data_type: DataType,
    count: usize,
    printer: ItemPrinter,
}

impl Accumulator for Top {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.add(arguments[0]);
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        self.ranked.remove(arguments[0]);
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let mut list = self.printer.list(arena);
        for key in self.ranked.keys.iter().rev().take(self.count) {
            list.push(|out| self.printer.write(key.as_ref().datum(&self.data_type), out));
        }
        list.finish()
    }

    fn reset(&mut self) {
        self.ranked.keys.clear();
    }
}
