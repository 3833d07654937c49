//! What depends on the path of the values through time: `ew_avg` and `drawdown`.
//!
//! Both are defined from the newest row to the oldest, as one run of float operations. Newest
//! first does the run as rows come; sliding keeps the values and does the same run when it is
//! asked, which costs O(rows of the frame).

use std::collections::VecDeque;

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding,
    signature::{NUMBER, bound, expect, expect_constant, expect_count, wrong_constant},
};
use crate::{Arguments, SignatureError};

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

fn bind_ew_avg(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
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
    let make = move |feeding| Path::new(feeding, empty);
    Ok(bound(vec![DataType::Double, DataType::Double], DataType::Double, make))
}

fn bind_drawdown(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    expect(arguments, 0, &NUMBER)?;
    let empty = Drawdown { later_min: None, greatest: 0.0, count: 0 };
    Ok(bound(vec![DataType::Double], DataType::Double, move |feeding| Path::new(feeding, empty)))
}

/// A run over values from the newest to the oldest.
trait Run: Copy + Send + Sync {
    fn step(&mut self, value: f64);
    fn answer(&self) -> Option<f64>;
}

struct Path<R> {
    feeding: Feeding,
    empty: R,
    run: R,
    /// Sliding: the values, oldest first.
    values: VecDeque<f64>,
}

impl<R: Run> Path<R> {
    fn new(feeding: Feeding, empty: R) -> Self {
        Self { feeding, empty, run: empty, values: VecDeque::new() }
    }
}

impl<R: Run> Accumulator for Path<R> {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let Some(value) = arguments[0].as_f64() else { return };
        match self.feeding {
            Feeding::NewestFirst => self.run.step(value),
            Feeding::Sliding => self.values.push_back(value),
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if !arguments[0].is_null() {
            self.values.pop_front();
        }
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        let mut run = self.run;
        self.values.iter().rev().for_each(|value| run.step(*value));
        let canonical = |answer: f64| if answer.is_nan() { f64::NAN } else { answer };
        run.answer().map_or(Datum::Null, |answer| Datum::Double(canonical(answer)))
    }

    fn reset(&mut self) {
        self.run = self.empty;
        self.values.clear();
    }
}

#[derive(Clone, Copy)]
struct WeightedMean {
    decay: f64,
    /// Of the next value.
    weight: f64,
    weights: f64,
    sum: f64,
    count: u64,
}

impl Run for WeightedMean {
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

impl Run for Drawdown {
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
            // From infinity every fall is a fall by everything.
            let fall = if value.is_infinite() { 1.0 } else { (value - later_min) / value };
            self.greatest = self.greatest.max(fall);
        }
    }

    fn answer(&self) -> Option<f64> {
        (self.count > 0).then_some(self.greatest)
    }
}
