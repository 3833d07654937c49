//! The aggregates that depend on the order of the values in time: `ew_avg` and `drawdown`.
//!
//! Both are defined as one sequence of float operations over the values from the newest to the
//! oldest. With [`Feeding::NewestFirst`] each value is processed when it is added; a sliding
//! accumulator stores the values and processes all of them for each result, which costs O(rows of
//! the frame).

use std::collections::VecDeque;

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding,
    signature::{NUMBER, bound, expect, expect_constant, expect_count, wrong_constant},
};
use crate::{CallArguments, SignatureError};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "ew_avg",
        aliases: &[],
        category: "order in time",
        signature: "ew_avg(x number, alpha constant number) → DOUBLE",
        doc: "The exponentially weighted mean: the newest value weighs 1, each older one \
              `1 - alpha` times the one after it. NULL is skipped and does not age what is older; \
              an `alpha` that is NULL is 0. NULL when there is no value.",
        examples: &[("ew_avg(y, 0.5)", "3.066666666666667")],
        is_ordered: true,
        bind: bind_ew_avg,
    },
    AggregateFunction {
        name: "drawdown",
        aliases: &[],
        category: "order in time",
        signature: "drawdown(x number) → DOUBLE",
        doc: "The greatest relative fall from a value to a later one, `(earlier - later) / \
              earlier`; 0 when the values never fall. NULL, NaN and negative values are skipped; \
              NULL when every value is NULL.",
        examples: &[("drawdown(y)", "0.9375")],
        is_ordered: true,
        bind: bind_drawdown,
    },
];

fn bind_ew_avg(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    expect(arguments, 0, &NUMBER)?;
    expect(arguments, 1, &NUMBER)?;
    let alpha = match expect_constant(arguments, 1, "a constant number")? {
        Value::Null => 0.0,
        number => number
            .as_scalar()
            .and_then(|number| number.as_f64())
            .ok_or_else(|| wrong_constant(1, "a constant number"))?,
    };
    let empty = WeightedMean { decay: 1.0 - alpha, weight: 1.0, weights: 0.0, sum: 0.0, count: 0 };
    let make = move |feeding| ScanAccumulator::new(feeding, empty);
    Ok(bound(vec![DataType::Double, DataType::Double], DataType::Double, make))
}

fn bind_drawdown(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    expect(arguments, 0, &NUMBER)?;
    let empty = Drawdown { later_min: None, greatest: 0.0, count: 0 };
    Ok(bound(vec![DataType::Double], DataType::Double, move |feeding| {
        ScanAccumulator::new(feeding, empty)
    }))
}

/// A computation over values from the newest to the oldest.
trait ValueScan: Copy + Send + Sync {
    fn step(&mut self, value: f64);
    fn answer(&self) -> Option<f64>;
}

struct ScanAccumulator<R> {
    feeding: Feeding,
    empty: R,
    scan: R,
    /// With [`Feeding::Sliding`]: the values, oldest first.
    values: VecDeque<f64>,
}

impl<R: ValueScan> ScanAccumulator<R> {
    fn new(feeding: Feeding, empty: R) -> Self {
        Self { feeding, empty, scan: empty, values: VecDeque::new() }
    }
}

impl<R: ValueScan> Accumulator for ScanAccumulator<R> {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let Some(value) = arguments[0].as_f64() else { return };
        match self.feeding {
            Feeding::NewestFirst => self.scan.step(value),
            Feeding::Sliding => self.values.push_back(value),
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        debug_assert_eq!(self.feeding, Feeding::Sliding, "only sliding removes rows");
        if !arguments[0].is_null() {
            let removed = self.values.pop_front();
            debug_assert!(removed.is_some(), "a value that leaves was added");
        }
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        let mut scan = self.scan;
        self.values.iter().rev().for_each(|value| scan.step(*value));
        let canonical = |answer: f64| if answer.is_nan() { f64::NAN } else { answer };
        scan.answer().map_or(Datum::Null, |answer| Datum::Double(canonical(answer)))
    }

    fn reset(&mut self) {
        self.scan = self.empty;
        self.values.clear();
    }
}

#[derive(Clone, Copy)]
struct WeightedMean {
    decay: f64,
    /// The weight of the next value.
    weight: f64,
    weights: f64,
    sum: f64,
    count: u64,
}

impl ValueScan for WeightedMean {
    fn step(&mut self, value: f64) {
        self.sum += self.weight * value;
        self.weights += self.weight;
        self.weight *= self.decay;
        self.count += 1;
    }

    fn answer(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.weights)
    }
}

#[derive(Clone, Copy)]
struct Drawdown {
    /// The least of the later values that count.
    later_min: Option<f64>,
    greatest: f64,
    count: u64,
}

impl ValueScan for Drawdown {
    fn step(&mut self, value: f64) {
        self.count += 1;
        if value.is_nan() || value < 0.0 {
            return;
        }
        // Adding 0.0 makes -0.0 a plain zero.
        let value = value + 0.0;
        let Some(later_min) = self.later_min else {
            self.later_min = Some(value);
            return;
        };
        if value <= later_min {
            self.later_min = Some(value);
        } else {
            // A fall from infinity is a fall by the whole value.
            let fall = if value.is_infinite() { 1.0 } else { (value - later_min) / value };
            self.greatest = self.greatest.max(fall);
        }
    }

    fn answer(&self) -> Option<f64> {
        (self.count > 0).then_some(self.greatest)
    }
}
