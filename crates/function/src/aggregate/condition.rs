//! `count_where`, `sum_where`, …: a statistic over the rows whose condition is true.

use std::sync::Arc;

use lockstep_row::{Arena, DataType, Datum};

use super::{
    Accumulator, AggregateFunction, BindAggregate, BoundAggregate, extreme,
    fold::{Fold, RowCondition},
    signature::{BOOL, NUMBER, bound, expect, expect_count, leading},
    total,
};
use crate::{CallArguments, Compatibility, SignatureError};

macro_rules! where_form {
    ($name:literal, $signature:literal, $more:literal, $example:expr, $bind:expr) => {
        AggregateFunction {
            name: concat!($name, "_where"),
            aliases: &[],
            category: "conditions",
            signature: concat!($name, "_where(", $signature),
            doc: concat!(
                "`",
                $name,
                "` over the rows whose condition is true; a condition that is NULL is not. When \
                 no row is left the result is that of `",
                $name,
                "` over no rows.",
                $more
            ),
            examples: &[$example],
            is_ordered: false,
            bind: $bind,
        }
    };
}

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    where_form!(
        "count",
        "x ANY|*, condition BOOL) → BIGINT",
        "",
        ("count_where(x, ok)", "3"),
        bind_count
    ),
    where_form!(
        "sum",
        "x number, condition BOOL) → as sum",
        " With `compatibility = 'openmldb'` a value of 0 is passed over.",
        ("sum_where(x, ok)", "7"),
        |arguments| { bind_total(arguments, total::bind_sum) }
    ),
    where_form!(
        "avg",
        "x number, condition BOOL) → DOUBLE",
        " With `compatibility = 'openmldb'` a value of 0 is passed over.",
        ("avg_where(x, y > 1)", "3"),
        |arguments| { bind_total(arguments, total::bind_avg) }
    ),
    where_form!(
        "min",
        "x number, condition BOOL) → the type of x",
        "",
        ("min_where(x, ok)", "1"),
        |arguments| { bind(arguments, extreme::bind_min) }
    ),
    where_form!(
        "max",
        "x number, condition BOOL) → the type of x",
        "",
        ("max_where(x, ok)", "4"),
        |arguments| { bind(arguments, extreme::bind_max) }
    ),
];

/// Binds `count_where`; the arguments of `count_where(*, condition)` are only the condition.
fn bind_count(arguments: &CallArguments<'_>) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 1..=2)?;
    filtered(arguments, total::bind_count)
}

fn bind(
    arguments: &CallArguments<'_>,
    base: BindAggregate,
) -> Result<BoundAggregate, SignatureError> {
    expect_count(arguments, 2..=2)?;
    expect(arguments, 0, &NUMBER)?;
    filtered(arguments, base)
}

fn filtered(
    arguments: &CallArguments<'_>,
    base: BindAggregate,
) -> Result<BoundAggregate, SignatureError> {
    debug_assert!(!arguments.types.is_empty(), "the last argument is the condition");
    let last = arguments.types.len() - 1;
    expect(arguments, last, &BOOL)?;
    let base = base(&leading(arguments, last))?;
    Ok(with_condition(base, RowCondition { argument: last, excludes_zero: false }))
}

/// Restricts an aggregate to the rows for which the condition holds.
fn with_condition(base: BoundAggregate, condition: RowCondition) -> BoundAggregate {
    let BoundAggregate { mut parameters, returns, make, fold } = base;
    parameters.push(DataType::Bool);
    let make = move |feeding| ConditionalAccumulator {
        inner: Arc::clone(&make)(feeding),
        excludes_zero: condition.excludes_zero,
    };
    let fold = fold.map(|fold| Fold { condition: Some(condition), ..fold });
    BoundAggregate { fold, ..bound(parameters, returns, make) }
}

/// Binds `sum_where` and `avg_where`; with `compatibility = 'openmldb'` rows whose value is 0 do
/// not count.
fn bind_total(
    arguments: &CallArguments<'_>,
    base: BindAggregate,
) -> Result<BoundAggregate, SignatureError> {
    let bound_alike = bind(arguments, base)?;
    if arguments.settings.compatibility == Compatibility::Standard {
        return Ok(bound_alike);
    }
    let base = base(&leading(arguments, 1))?;
    Ok(with_condition(base, RowCondition { argument: 1, excludes_zero: true }))
}

struct ConditionalAccumulator {
    inner: Box<dyn Accumulator>,
    /// Whether rows whose value is 0 do not count.
    excludes_zero: bool,
}

impl ConditionalAccumulator {
    /// Returns the arguments of the statistic, if the row counts.
    fn counted<'a, 'b>(&self, arguments: &'b [Datum<'a>]) -> Option<&'b [Datum<'a>]> {
        let [values @ .., Datum::Bool(true)] = arguments else { return None };
        let is_zero = || match values.first() {
            Some(Datum::Float(value)) => *value == 0.0,
            Some(Datum::Double(value)) => *value == 0.0,
            Some(value) => value.as_i64() == Some(0),
            None => false,
        };
        (!self.excludes_zero || !is_zero()).then_some(values)
    }
}

impl Accumulator for ConditionalAccumulator {
    fn add(&mut self, arguments: &[Datum<'_>]) {
        if let Some(values) = self.counted(arguments) {
            self.inner.add(values);
        }
    }

    fn remove(&mut self, arguments: &[Datum<'_>]) {
        if let Some(values) = self.counted(arguments) {
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
