//! `count_where`, `sum_where`, …: a statistic over the rows whose condition is true.

use lockstep_row::DataType;

use super::{
    AggregateFunction, BindAggregate, BoundAggregate, StateForm, extreme,
    signature::{BOOL, NUMBER, expect, expect_count, leading},
    state::{RowCondition, StateClass},
    total,
};
use crate::{CallArguments, Compatibility, SignatureError};

macro_rules! where_form {
    ($name:literal, $class:ident, $signature:literal, $more:literal, $example:expr, $bind:expr) => {
        AggregateFunction {
            name: concat!($name, "_where"),
            aliases: &[],
            category: "conditions",
            signature: concat!($name, "_where(", $signature),
            doc: concat!(
                "Returns `",
                $name,
                "` over the rows for which `condition` is true, not false or NULL. If there are \
                 no such rows, the result is the same as for `",
                $name,
                "` over no rows.",
                $more
            ),
            examples: &[$example],
            is_ordered: false,
            class: StateClass::$class,
            bind: $bind,
        }
    };
}

pub(super) static FUNCTIONS: &[AggregateFunction] = &[
    where_form!(
        "count",
        Retractable,
        "x ANY|*, condition BOOL) → BIGINT",
        "",
        ("count_where(x, ok)", "3"),
        bind_count
    ),
    where_form!(
        "sum",
        Retractable,
        "x number, condition BOOL) → the type of `sum(x)`",
        " With `compatibility = 'openmldb'` values that are 0 are skipped.",
        ("sum_where(x, ok)", "7"),
        |arguments| { bind_total(arguments, total::bind_sum) }
    ),
    where_form!(
        "avg",
        Retractable,
        "x number, condition BOOL) → DOUBLE",
        " With `compatibility = 'openmldb'` values that are 0 are skipped.",
        ("avg_where(x, y > 1)", "3"),
        |arguments| { bind_total(arguments, total::bind_avg) }
    ),
    where_form!(
        "min",
        Mergeable,
        "x number, condition BOOL) → the type of `x`",
        "",
        ("min_where(x, ok)", "1"),
        |arguments| { bind(arguments, extreme::bind_min) }
    ),
    where_form!(
        "max",
        Mergeable,
        "x number, condition BOOL) → the type of `x`",
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
    let BoundAggregate { mut parameters, returns, mut state } = base;
    parameters.push(DataType::Bool);
    match &mut state {
        StateForm::Fold(fold) => fold.condition = Some(condition),
        StateForm::Rows(_) => debug_assert!(false, "only folds are restricted to some rows"),
    }
    BoundAggregate { parameters, returns, state }
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
