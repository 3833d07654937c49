//! Aggregates over aggregates of the same frame: `count_where(id, c = last_value(c)) OVER w`.
//!
//! The inner aggregate is computed once for a frame and is then a constant for each of its rows.
//! So the outer one cannot slide: its accumulator keeps the rows of the frame and folds them when
//! its value is asked for. A value costs a pass over the frame; what is fed costs a copy of the
//! columns that the expressions read. The binder of `plan` makes these.

use std::{collections::VecDeque, sync::Arc};

use lockstep_row::{Arena, DataType, Datum, Value};

use crate::{Accumulator, BoundAggregate, Feeding, row_expr::RowExpr};

/// An inner aggregate; its arguments are over the columns.
#[derive(Debug)]
pub struct InnerAggregate {
    /// The aggregate.
    pub bound: BoundAggregate,
    /// Its arguments.
    pub arguments: Vec<RowExpr>,
}

/// An aggregate whose arguments hold aggregates.
#[derive(Debug)]
pub struct NestedAggregate {
    /// The types of the columns that the expressions read.
    pub columns: Vec<DataType>,
    /// The inner aggregates.
    pub inner: Vec<InnerAggregate>,
    /// The outer aggregate.
    pub outer: BoundAggregate,
    /// Its arguments, over the columns followed by the values of the inner aggregates. Empty when
    /// the outer aggregate is fed the items of the list that the first inner one gives.
    pub arguments: Vec<RowExpr>,
}

impl NestedAggregate {
    /// As an aggregate of its own. Its first argument is a text that tells it from others over the
    /// same columns and is not read; the columns follow.
    pub fn bind(self) -> BoundAggregate {
        let label = std::iter::once(DataType::String);
        let parameters = label.chain(self.columns.iter().cloned()).collect();
        let returns = self.outer.returns.clone();
        let shared = Arc::new(self);
        let make = move |feeding| -> Box<dyn Accumulator> {
            Box::new(Frame { of: Arc::clone(&shared), feeding, rows: VecDeque::new() })
        };
        BoundAggregate { parameters, returns, make: Arc::new(make), fold: None }
    }
}

/// The rows of a frame, in the order in which they were fed.
struct Frame {
    of: Arc<NestedAggregate>,
    feeding: Feeding,
    rows: VecDeque<Vec<Value>>,
}

impl Frame {
    fn feed_items(&self, outer: &mut dyn Accumulator, list: Datum<'_>) {
        let Datum::Array(items) = list else { return };
        // A list has its newest item first.
        match self.feeding {
            Feeding::NewestFirst => items.iter().for_each(|item| outer.add(&[*item])),
            Feeding::Sliding => items.iter().rev().for_each(|item| outer.add(&[*item])),
        }
    }
}

impl Accumulator for Frame {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let columns = arguments.iter().skip(1);
        self.rows.push_back(columns.map(|value| value.to_value()).collect());
    }

    fn remove(&mut self, _arguments: &[Datum<'_>]) {
        self.rows.pop_front();
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let scratch = Arena::new();
        let rows: Vec<Vec<Datum<'_>>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|value| value.as_datum(&scratch)).collect())
            .collect();
        let inner: Vec<Datum<'_>> = self
            .of
            .inner
            .iter()
            .map(|inner| {
                let mut accumulator = (inner.bound.make)(self.feeding);
                rows.iter()
                    .for_each(|row| add(accumulator.as_mut(), &inner.arguments, row, &scratch));
                accumulator.value(&scratch)
            })
            .collect();
        let mut outer = (self.of.outer.make)(self.feeding);
        if self.of.arguments.is_empty() {
            let list = inner.first().copied().unwrap_or(Datum::Null);
            self.feed_items(outer.as_mut(), list);
        } else {
            for row in &rows {
                let row: Vec<Datum<'_>> = row.iter().chain(&inner).copied().collect();
                add(outer.as_mut(), &self.of.arguments, &row, &scratch);
            }
        }
        outer.value(arena)
    }

    fn reset(&mut self) {
        self.rows.clear();
    }
}

fn add<'a>(
    accumulator: &mut dyn Accumulator,
    arguments: &'a [RowExpr],
    row: &[Datum<'a>],
    arena: &'a Arena,
) {
    let values: Vec<Datum<'_>> = arguments.iter().map(|expr| expr.eval(&row, arena)).collect();
    accumulator.add(&values);
}
