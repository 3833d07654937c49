//! `drawdown`: the greatest relative fall from a value to a later one.
//!
//! The state of some rows is their greatest and their least value and the steepest fall among them;
//! the steepest fall of two neighbours is that of the older, that of the newer, or that from the
//! greatest value of the older to the least of the newer. Which of two falls is steeper is decided
//! exactly: `(e - l) / e` grows as `l / e` shrinks, and `l₁·e₂ < l₂·e₁` compares products of 106 bits.
//! Of equally steep falls the one from the greater value is taken, so that the pair, and with it
//! the rounded result, does not depend on how the rows were split.

use lockstep_row::{DataType, Datum};

use super::{
    AggregateFunction, BoundAggregate,
    encoding::{StateReader, put_unsigned},
    signature::{NUMBER, bound_fold, expect, expect_count},
    state::{AnswerKind, Fold, RowsEnd, StateClass, StateKind},
};
use crate::{CallArguments, SignatureError};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[AggregateFunction {
    name: "drawdown",
    aliases: &[],
    category: "order in time",
    signature: "drawdown(x number) → DOUBLE",
    doc: "Returns the largest relative fall from a value to a later value, `(earlier - later) / \
          earlier`; 0 if the values never fall. NULL, NaN and negative values are skipped. NULL if \
          there are no other values.",
    examples: &[("drawdown(y)", "0.9375")],
    is_ordered: true,
    class: StateClass::Ordered,
    bind: bind_drawdown,
}];

fn bind_drawdown(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    expect(arguments, 0, &NUMBER)?;
    let fold = Fold::new(Some(0), StateKind::Drawdown, AnswerKind::Drawdown);
    Ok(bound_fold(vec![DataType::Double], DataType::Double, fold))
}

/// A fall from an earlier value to a later, lesser one. Both are at least 0.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Fall {
    earlier: f64,
    later: f64,
}

impl Fall {
    /// Makes the fall between two values; `None` where the later one is not less.
    fn between(earlier: f64, later: f64) -> Option<Self> {
        (later < earlier).then_some(Self { earlier, later })
    }

    /// Returns the steeper one, or of equal ones that from the greater value.
    fn steeper(self, other: Self) -> Self {
        // A fall from infinity is one by the whole value, as one to zero is.
        let later = |fall: Self| if fall.earlier.is_infinite() { 0.0 } else { fall.later };
        let own = Product::of(later(self), other.earlier.min(f64::MAX));
        let others = Product::of(later(other), self.earlier.min(f64::MAX));
        match own.cmp(&others) {
            std::cmp::Ordering::Less => self,
            std::cmp::Ordering::Greater => other,
            std::cmp::Ordering::Equal if other.earlier > self.earlier => other,
            std::cmp::Ordering::Equal => self,
        }
    }

    fn size(self) -> f64 {
        if self.earlier.is_infinite() { 1.0 } else { (self.earlier - self.later) / self.earlier }
    }
}

/// The exact product of two finite numbers that are at least 0: `significand * 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Product {
    /// Has its highest bit set, except for zero.
    significand: u128,
    exponent: i32,
}

impl Product {
    fn of(left: f64, right: f64) -> Self {
        let (left, left_exponent) = decompose(left);
        let (right, right_exponent) = decompose(right);
        let significand = u128::from(left) * u128::from(right);
        let shift = significand.leading_zeros();
        if significand == 0 {
            return Self { significand: 0, exponent: i32::MIN };
        }
        let moved = shift.cast_signed();
        Self { significand: significand << shift, exponent: left_exponent + right_exponent - moved }
    }

    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.exponent, self.significand).cmp(&(other.exponent, other.significand))
    }
}

/// Returns the significand of a finite number and the exponent of its last place.
fn decompose(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    let exponent = ((bits >> 52) & 0x7ff) as i32;
    debug_assert!(exponent < 0x7ff && value >= 0.0, "the number is finite and not negative");
    if exponent == 0 { (fraction, -1074) } else { (fraction | (1 << 52), exponent - 1075) }
}

/// The state: the number of values, the extremes of those that count, and the steepest fall.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Drawdown {
    count: u64,
    extremes: Option<Extremes>,
    steepest: Option<Fall>,
}

/// The least and the greatest value.
#[derive(Debug, Clone, Copy)]
struct Extremes {
    least: f64,
    greatest: f64,
}

impl Drawdown {
    /// Returns the state of one value.
    fn of(value: f64) -> Self {
        // Adding 0.0 makes -0.0 a plain zero.
        let value = value + 0.0;
        let counts = !value.is_nan() && value >= 0.0;
        let extremes = counts.then_some(Extremes { least: value, greatest: value });
        Self { count: 1, extremes, steepest: None }
    }

    pub(super) fn add(&mut self, value: f64, end: RowsEnd) {
        self.merge(&Self::of(value), end);
    }

    pub(super) fn merge(&mut self, other: &Self, end: RowsEnd) {
        let (older, newer) = match end {
            RowsEnd::Newest => (*self, *other),
            RowsEnd::Oldest => (*other, *self),
        };
        self.count = older.count + newer.count;
        let across = older.extremes.zip(newer.extremes);
        let across = across.and_then(|(older, newer)| Fall::between(older.greatest, newer.least));
        let falls = [older.steepest, newer.steepest, across].into_iter().flatten();
        self.steepest = falls.reduce(Fall::steeper);
        self.extremes = match (older.extremes, newer.extremes) {
            (Some(older), Some(newer)) => Some(Extremes {
                least: older.least.min(newer.least),
                greatest: older.greatest.max(newer.greatest),
            }),
            (one, other) => one.or(other),
        };
    }

    pub(super) fn answer(&self) -> Datum<'static> {
        if self.extremes.is_none() {
            return Datum::Null;
        }
        Datum::Double(self.steepest.map_or(0.0, Fall::size))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_unsigned(out, self.count.into());
        let extremes = self.extremes.map(|extremes| [extremes.least, extremes.greatest]);
        let steepest = self.steepest.map(|fall| [fall.earlier, fall.later]);
        for pair in [extremes, steepest] {
            out.push(u8::from(pair.is_some()));
            for value in pair.into_iter().flatten() {
                out.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
    }

    pub(super) fn decode(reader: &mut StateReader<'_>) -> Option<Self> {
        let count = reader.rows()?;
        let mut pair = || -> Option<Option<[f64; 2]>> {
            if reader.byte()? == 0 {
                return Some(None);
            }
            let values = [reader.array()?, reader.array()?].map(f64::from_le_bytes);
            values.iter().all(|value| *value >= 0.0).then_some(Some(values))
        };
        let extremes = pair()?.map(|[least, greatest]| Extremes { least, greatest });
        let steepest = pair()?.map(|[earlier, later]| Fall { earlier, later });
        Some(Self { count, extremes, steepest })
    }
}

/// The rows of a sliding frame as two stacks: those of the older part as the state of each row and
/// all newer rows of the part, so that removing the oldest row pops one. A row is moved from the
/// newer part to the older one once (Tangwongsan, Hirzel, Schneider, Wu: "General incremental
/// sliding-window aggregation", 2015).
#[derive(Debug, Default)]
pub(super) struct SlidingDrawdown {
    /// The last entry is the state of the whole older part.
    older: Vec<Drawdown>,
    /// The values of the newer part, oldest first.
    newer: Vec<f64>,
    newer_state: Drawdown,
}

impl SlidingDrawdown {
    pub(super) fn add(&mut self, value: f64) {
        self.newer.push(value);
        self.newer_state.add(value, RowsEnd::Newest);
    }

    pub(super) fn remove(&mut self) {
        if self.older.is_empty() {
            let mut state = Drawdown::default();
            self.older.extend(self.newer.drain(..).rev().map(|value| {
                state.add(value, RowsEnd::Oldest);
                state
            }));
            self.newer_state = Drawdown::default();
        }
        let removed = self.older.pop();
        debug_assert!(removed.is_some(), "a value that leaves was added");
    }

    pub(super) fn answer(&self) -> Datum<'static> {
        self.answer_with(None)
    }

    /// Returns the result over its values and one more at the newest end, if one is given.
    pub(super) fn answer_with(&self, value: Option<f64>) -> Datum<'static> {
        let mut all = self.older.last().copied().unwrap_or_default();
        all.merge(&self.newer_state, RowsEnd::Newest);
        value.into_iter().for_each(|value| all.add(value, RowsEnd::Newest));
        all.answer()
    }

    pub(super) fn reset(&mut self) {
        self.older.clear();
        self.newer.clear();
        self.newer_state = Drawdown::default();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + self.older.capacity() * size_of::<Drawdown>()
            + self.newer.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::any, prop_assert_eq, proptest};

    use super::{Drawdown, Fall, RowsEnd};

    proptest! {
        #[test]
        fn the_steepest_fall_is_that_of_all_pairs(
            values in vec((any::<u16>(), -3_i32..3), 0..12), split in 0_usize..12,
        ) {
            let values = values.iter().map(|(bits, power)| {
                libm::scalbn(f64::from(*bits) * 0.1, *power)
            });
            let values: Vec<f64> = values.collect();
            let pairs = values.iter().enumerate().flat_map(|(at, earlier)| {
                values[at + 1..].iter().filter_map(|later| Fall::between(*earlier, *later))
            });
            let expected = pairs.reduce(Fall::steeper);
            let mut parts = [Drawdown::default(), Drawdown::default()];
            let split = split.min(values.len());
            values[..split].iter().for_each(|value| parts[0].add(*value, RowsEnd::Newest));
            values[split..].iter().rev().for_each(|value| parts[1].add(*value, RowsEnd::Oldest));
            let [mut older, newer] = parts;
            older.merge(&newer, RowsEnd::Newest);
            prop_assert_eq!(older.steepest, expected);
        }
    }

    #[test]
    fn a_fall_from_infinity_is_by_the_whole_value() {
        let mut state = Drawdown::default();
        for value in [f64::INFINITY, 3.0, f64::MAX, 0.0] {
            state.add(value, RowsEnd::Newest);
        }
        let steepest = state.steepest.unwrap();
        assert_eq!(steepest.size().to_bits(), 1.0_f64.to_bits());
    }
}
