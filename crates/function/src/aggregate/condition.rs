//! `*_where`: a statistic over the rows whose condition is true.

use std::sync::Arc;

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BindAggregate, BoundAggregate, extreme,
    signature::{BOOL, NUMBER, bound, expect, expect_count, leading},
    total,
};
use crate::{Arguments, SignatureError};

macro_rules! where_form {
    ($name:literal, $signature:literal, $bind:expr) => {
        AggregateFunction {
            name: concat!($name, "_where"),
            aliases: &[],
            signature: concat!($name, "_where(", $signature),
            doc: concat!(
                "`",
                $name,
                "` over the rows whose condition is true; a condition that is NULL is not. When \
                 no row is left the result is that of `",
                $name,
                "` over no rows."
            ),
            is_ordered: false,
            bind: $bind,
        }
    };
}

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    where_form!("count", "x ANY|*, condition BOOL) → BIGINT", bind_count),
    where_form!("sum", "x number, condition BOOL) → as sum", |arguments| {
        bind(arguments, total::bind_sum)
    }),
    where_form!("avg", "x number, condition BOOL) → DOUBLE", |arguments| {
        bind(arguments, total::bind_avg)
    }),
    where_form!("min", "x number, condition BOOL) → the type of x", |arguments| {
        bind(arguments, extreme::bind_min)
    }),
    where_form!("max", "x number, condition BOOL) → the type of x", |arguments| {
        bind(arguments, extreme::bind_max)
    }),
];

/// `count_where(*, condition)` binds with the condition alone.
fn bind_count(arguments: &Arguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=2)?;
    filtered(arguments, total::bind_count)
}

fn bind(arguments: &Arguments<'_>, base: BindAggregate) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    expect(arguments, 0, &NUMBER)?;
    filtered(arguments, base)
}

fn filtered(
    arguments: &Arguments<'_>,
    base: BindAggregate,
) -> Result<BoundAggregate, SignatureError> {
    let last = arguments.types.len() - 1;
    expect(arguments, last, &BOOL)?;
    let BoundAggregate { mut parameters, returns, make } = base(&leading(arguments, last))?;
    parameters.push(DataType::Bool);
    Ok(bound(parameters, returns, move |feeding| Where { inner: Arc::clone(&make)(feeding) }))
}

struct Where {
    inner: Box<dyn Accumulator>,
}

impl Accumulator for Where {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        if let [values @ .., Datum::Bool(true)] = arguments {
            self.inner.add(values);
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if let [values @ .., Datum::Bool(true)] = arguments {
            self.inner.remove(values);
        }
    }

    fn value<'a>(&self, arena: &'a Arena) -> Datum<'a> {
        self.inner.value(arena)
    }

    fn reset(&mut self) {
        self.inner.reset();
    }
}
