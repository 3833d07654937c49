//! `min` and `max`.
//!
//! A sliding accumulator has a monotonic queue: the values that can still become the result, each
//! better than all after it. A row enters and leaves it once, so a step costs O(1) on average.

use std::{cmp::Ordering, collections::VecDeque};

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding,
    fold::{AnswerKind, StateKind},
    key::{Key, KeyRef},
    signature::{ORDERABLE, bound, expect, expect_count},
};
use crate::{CallArguments, SignatureError};

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

pub(super) fn bind_min(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, Ordering::Less)
}

pub(super) fn bind_max(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    bind(arguments, Ordering::Greater)
}

fn bind(arguments: &CallArguments<'_>, better: Ordering) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=1)?;
    let data_type = expect(arguments, 0, &ORDERABLE)?;
    let returns = data_type.clone();
    let make = move |feeding| ExtremeAccumulator {
        data_type: data_type.clone(),
        better,
        feeding,
        queue: VecDeque::new(),
        added: 0,
        removed: 0,
    };
    let state = if better == Ordering::Less { StateKind::Least } else { StateKind::Greatest };
    let answer = AnswerKind::Extreme(returns.clone());
    Ok(bound(vec![returns.clone()], returns, make).with_fold(state, answer))
}

struct ExtremeAccumulator {
    data_type: DataType,
    /// The order of a better value to a worse one.
    better: Ordering,
    feeding: Feeding,
    /// Values with their numbers among all that were added. With [`Feeding::NewestFirst`], only the
    /// best one.
    queue: VecDeque<(u64, Key)>,
    added: u64,
    removed: u64,
}

impl Accumulator for ExtremeAccumulator {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        let Some(key) = KeyRef::of(arguments[0]) else { return };
        let number = self.added;
        self.added += 1;
        if self.feeding == Feeding::NewestFirst && !self.queue.is_empty() {
            if key.cmp(&self.queue[0].1.as_ref()) == self.better {
                self.queue[0].1 = key.to_key();
            }
            return;
        }
        let is_beaten = |(_, earlier): &mut (u64, Key)| earlier.as_ref().cmp(&key) != self.better;
        while self.queue.pop_back_if(is_beaten).is_some() {}
        self.queue.push_back((number, key.to_key()));
        debug_assert!(self.queue.len() as u64 <= self.added, "each entry was added");
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        debug_assert_eq!(self.feeding, Feeding::Sliding, "only sliding removes rows");
        if arguments[0].is_null() {
            return;
        }
        debug_assert!(self.removed < self.added, "a value that leaves was added");
        let number = self.removed;
        self.queue.pop_front_if(|(front, _)| *front == number);
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
