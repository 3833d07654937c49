//! `ew_avg`: the exponentially weighted mean.
//!
//! It is defined as one sequence of float operations over the values from the newest to the oldest.
//! Each rounds, so that two such sequences have no result in common: the values are the state. Where
//! rows are added from the newest to the oldest each is processed when it is added; a sliding state
//! stores the values and processes all of them for each result, which costs O(rows of the frame).

use std::collections::VecDeque;

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    AggregateFunction, BoundAggregate,
    signature::{NUMBER, bound_rows, expect, expect_constant, expect_count, wrong_constant},
    state::{RowState, RowsEnd, StateClass},
};
use crate::{CallArguments, SignatureError};

const CLASS: StateClass = StateClass::Rows("each step of the mean is rounded");

pub(super) static FUNCTIONS: &[AggregateFunction] = &[AggregateFunction {
    name: "ew_avg",
    aliases: &[],
    category: "order in time",
    signature: "ew_avg(x number, alpha constant number) → DOUBLE",
    doc: "Returns the exponentially weighted mean: the newest value has the weight 1, and each \
          older value has the weight of the value after it times `1 - alpha`. NULL values are \
          skipped and do not reduce the weight of older values; a NULL `alpha` is treated as 0. \
          NULL if there are no values.",
    examples: &[("ew_avg(y, 0.5)", "3.066666666666667")],
    is_ordered: true,
    class: CLASS,
    bind: bind_ew_avg,
}];

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
    let parameters = vec![DataType::Double, DataType::Double];
    let make = move |_used| WeightedValues { empty, scanned: empty, values: VecDeque::new() };
    Ok(bound_rows(parameters, DataType::Double, CLASS, make))
}

/// The state: the mean of the values from the newest on that were added at the oldest end, or all
/// values.
struct WeightedValues {
    empty: WeightedMean,
    scanned: WeightedMean,
    /// The values that were added at the newest end, oldest first.
    values: VecDeque<f64>,
}

impl RowState for WeightedValues {
    fn add(&mut self, arguments: &[Datum<'_>], end: RowsEnd) {
        let Some(value) = arguments[0].as_f64() else { return };
        debug_assert!(self.scanned.count == 0 || end == RowsEnd::Oldest, "one end grows");
        match end {
            RowsEnd::Newest => self.values.push_back(value),
            RowsEnd::Oldest if self.values.is_empty() => self.scanned.step(value),
            RowsEnd::Oldest => self.values.push_front(value),
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if !arguments[0].is_null() {
            let removed = self.values.pop_front();
            debug_assert!(removed.is_some(), "a value that leaves was added");
        }
    }

    fn value<'a>(&self, _arena: &'a Arena) -> Datum<'a> {
        let mut scan = self.scanned;
        self.values.iter().rev().for_each(|value| scan.step(*value));
        let canonical = |answer: f64| if answer.is_nan() { f64::NAN } else { answer };
        scan.answer().map_or(Datum::Null, |answer| Datum::Double(canonical(answer)))
    }

    fn value_with<'a>(&mut self, arguments: &[Datum<'_>], arena: &'a Arena) -> Datum<'a> {
        self.add(arguments, RowsEnd::Newest);
        let found = self.value(arena);
        if !arguments[0].is_null() {
            self.values.pop_back();
        }
        found
    }

    fn heap_bytes(&self) -> usize {
        self.values.capacity() * size_of::<f64>()
    }

    fn reset(&mut self) {
        self.scanned = self.empty;
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

impl WeightedMean {
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
