//! `min` and `max`.
//!
//! Sliding keeps a monotonic queue: the values that could still become the answer, each better
//! than all that came after it. A row enters and leaves it once, so a step costs O(1) on average.

use std::{cmp::Ordering, collections::VecDeque};

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding,
    fold::{Asked, StateKind},
    key::{Key, KeyRef},
    signature::{ORDERABLE, bound, expect, expect_count},
};
use crate::{Arguments, SignatureError};

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    AggregateFunction {
        name: "min",
        aliases: &[],
        category: "statistics",
        signature: "min(x number|TIMESTAMP|DATE|STRING) → the type of x",
        doc: "The least value that is not NULL; NULL when there is none. Strings compare by their \
              bytes. NaN is greater than every number, and -0.0 is less than 0.0.",
        examples: &[("min(x)", "1"), ("min(c)", "a")],
        is_ordered: false,
        bind: bind_min,
    },
    AggregateFunction {
        name: "max",
        aliases: &[],
        category: "statistics",
        signature: "max(x number|TIMESTAMP|DATE|STRING) → the type of x",
        doc: "The greatest value that is not NULL; NULL when there is none. Strings compare by \
              their bytes. NaN is greater than every number, and 0.0 is greater than -0.0.",
        examples: &[("max(x)", "4"), ("max(c)", "b")],
        is_ordered: false,
        bind: bind_max,
    },
];

pub(super) fn bind_min(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, Ordering::Less)
}

pub(super) fn bind_max(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, Ordering::Greater)
}

fn bind(arguments: &Arguments<'_>, better: Ordering) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let returns = data_type.clone();
    let make = move |feeding| Extreme {
        data_type: data_type.clone(),
        better,
        feeding,
        queue: VecDeque::new(),
        added: 0,
        removed: 0,
    };
    let state = if better == Ordering::Less { StateKind::Least } else { StateKind::Greatest };
    let asked = Asked::Extreme(returns.clone());
    Ok(bound(vec![returns.clone()], returns, make).folded(state, asked))
}

struct Extreme {
    data_type: DataType,
    /// How a value compares with those it beats.
    better: Ordering,
    feeding: Feeding,
    /// Values with their place among all that were added. Newest first: the best one alone.
    queue: VecDeque<(u64, Key)>,
    added: u64,
    removed: u64,
}

impl Accumulator for Extreme {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let Some(key) = KeyRef::of(arguments[0]) else { return };
        let place = self.added;
        self.added += 1;
        if self.feeding == Feeding::NewestFirst && !self.queue.is_empty() {
            if key.cmp(&self.queue[0].1.as_ref()) == self.better {
                self.queue[0].1 = key.to_key();
            }
            return;
        }
        let is_beaten = |(_, kept): &mut (u64, Key)| kept.as_ref().cmp(&key) != self.better;
        while self.queue.pop_back_if(is_beaten).is_some() {}
        self.queue.push_back((place, key.to_key()));
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if arguments[0].is_null() {
            return;
        }
        let place = self.removed;
        self.queue.pop_front_if(|(front, _)| *front == place);
        self.removed += 1;
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        let best = self.queue.front();
        best.map_or(Datum::Null, |(_, key)| key.as_ref().datum_in(&self.data_type, arena))
    }

    fn reset(&mut self) {
        self.queue.clear();
        (self.added, self.removed) = (0, 0);
    }
}
