//! BETWEEN, IN and the simple CASE as functions, so that their operand is computed once.
//!
//! The binder emits several comparisons while the operand is as small as a column; for a larger one
//! it emits these functions, since each comparison would have a copy of the operand, and nested
//! ones copies of copies. The result is the same: every pair is compared as by `=`, `<` and the
//! like, and NULL is handled as by AND and OR.

use std::{cmp::Ordering, sync::Arc};

use lockstep_row::{Arena, DataType, Datum};

use super::{
    CallArguments, Resolved, RowForm, ScalarFunction, ScalarImplementation, SignatureError,
    arithmetic::operator,
    comparison::{NanOrder, compare_with, comparison_types},
    signature::expect_count,
};
use crate::{Settings, cast::cast_form};

pub(super) static OPERATORS: &[ScalarFunction] = &[
    operator!(
        "op_between",
        "a BETWEEN low AND high → BOOL",
        "Returns whether `a` is greater than or equal to `low` and less than or equal to `high`.",
        &[("op_between(2, 1, 2)", "true"), ("op_between(2, 3, NULL)", "false")],
        between
    ),
    operator!(
        "op_not_between",
        "a NOT BETWEEN low AND high → BOOL",
        "Returns whether `a` is less than `low` or greater than `high`.",
        &[("op_not_between(2, 3, NULL)", "true")],
        not_between
    ),
    operator!(
        "op_in",
        "a IN (item, …) → BOOL",
        "Returns whether `a` equals one of the items. NULL if it does not and an item is NULL.",
        &[("op_in(2, 1, 2.0)", "true"), ("op_in(2, 1, NULL)", "NULL")],
        in_list
    ),
    operator!(
        "op_case",
        "CASE a WHEN value THEN result … [ELSE result] END → the common type of the results",
        "Returns the `result` of the first `value` that equals `a`, or the `result` of ELSE (NULL without ELSE) if no `value` does.",
        &[("op_case(2, 1, 'one', 2.0, 'two')", "two"), ("op_case(3, 1, 'one')", "NULL")],
        case
    ),
];

/// A comparison of the operand with one other value: the casts of both to a common type, and the order
/// of NaN.
struct OperandComparison {
    operand: Option<Arc<RowForm>>,
    other: Option<Arc<RowForm>>,
    nan: NanOrder,
}

impl OperandComparison {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "settings are passed by reference, as in `CallArguments`"
    )]
    fn new(
        operand: &DataType,
        other: &DataType,
        settings: &Settings,
    ) -> Result<Self, SignatureError> {
        let mismatch =
            || SignatureError::Mismatch(format!("cannot compare {operand} with {other}"));
        let [to_operand, to_other] =
            comparison_types(operand, other, settings).ok_or_else(mismatch)?;
        let form = |from: &DataType, to: &DataType| {
            if from == to {
                return Ok(None);
            }
            cast_form(from, to, settings).ok_or_else(mismatch).map(Some)
        };
        Ok(Self {
            operand: form(operand, &to_operand)?,
            other: form(other, &to_other)?,
            nan: NanOrder::of(settings),
        })
    }

    /// Compares two values; `None` where one is NULL, `Some(None)` where one is a NaN that is unordered.
    #[expect(clippy::option_option, reason = "NULL and unordered are different answers")]
    fn order<'a>(
        &self,
        operand: Datum<'a>,
        other: Datum<'a>,
        arena: &'a Arena,
    ) -> Option<Option<Ordering>> {
        if operand.is_null() || other.is_null() {
            return None;
        }
        let cast = |form: &Option<Arc<RowForm>>, value: Datum<'a>| match form {
            Some(form) => form(&[value], arena),
            None => value,
        };
        compare_with(cast(&self.operand, operand), cast(&self.other, other), self.nan)
    }
}

/// Returns the comparisons of the first argument with some of the others.
fn comparisons<'t>(
    arguments: &'t CallArguments<'_>,
    others: impl Iterator<Item = &'t DataType>,
) -> Result<Vec<OperandComparison>, SignatureError> {
    others
        .map(|other| OperandComparison::new(&arguments.types[0], other, arguments.settings))
        .collect()
}

fn between(arguments: &CallArguments<'_>) -> Resolved {
    let ends = ends(arguments)?;
    Ok(condition(arguments, move |arguments, arena| {
        let is_above = ends[0].order(arguments[0], arguments[1], arena).map(is_at_least);
        let is_below = ends[1].order(arguments[0], arguments[2], arena).map(is_at_most);
        match (is_above, is_below) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }))
}

fn not_between(arguments: &CallArguments<'_>) -> Resolved {
    let ends = ends(arguments)?;
    Ok(condition(arguments, move |arguments, arena| {
        let is_below = ends[0].order(arguments[0], arguments[1], arena).map(is_less);
        let is_above = ends[1].order(arguments[0], arguments[2], arena).map(is_greater);
        match (is_below, is_above) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }))
}

fn ends(arguments: &CallArguments<'_>) -> Result<[OperandComparison; 2], SignatureError> {
    expect_count(arguments, 3, 3)?;
    let [operand, low, high] = arguments.types else { unreachable!("three were checked") };
    Ok([
        OperandComparison::new(operand, low, arguments.settings)?,
        OperandComparison::new(operand, high, arguments.settings)?,
    ])
}

fn in_list(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, usize::MAX)?;
    let tests = comparisons(arguments, arguments.types[1..].iter())?;
    Ok(condition(arguments, move |arguments, arena| {
        let mut answer = Some(false);
        for (test, item) in tests.iter().zip(&arguments[1..]) {
            match test.order(arguments[0], *item, arena) {
                Some(Some(Ordering::Equal)) => return Some(true),
                Some(_) => {}
                None => answer = None,
            }
        }
        answer
    }))
}

/// Resolves the simple CASE. The arguments are the operand, then values and results in turn, then
/// the result of ELSE. The results have one type, that of the last argument.
fn case(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 3, usize::MAX)?;
    let pairs = (arguments.types.len() - 1) / 2;
    let values = arguments.types[1..=2 * pairs].iter().step_by(2);
    let tests = comparisons(arguments, values)?;
    debug_assert_eq!(tests.len(), pairs, "each value is compared");
    let result = arguments.types[2].clone();
    let form = ScalarImplementation::new(arguments.types.to_vec(), result, move |given, arena| {
        let is_it = |position: &usize| {
            let value = given[1 + 2 * position];
            tests[*position].order(given[0], value, arena) == Some(Some(Ordering::Equal))
        };
        match (0..tests.len()).find(is_it) {
            Some(position) => Some(given[2 + 2 * position]),
            None => given.get(1 + 2 * tests.len()).copied(),
        }
    });
    Ok(form.passing_nulls())
}

/// Makes an implementation from a condition that is called with NULLs too.
fn condition<F>(arguments: &CallArguments<'_>, holds: F) -> ScalarImplementation
where
    F: for<'a> Fn(&[Datum<'a>], &'a Arena) -> Option<bool> + Send + Sync + 'static,
{
    let parameters = arguments.types.to_vec();
    ScalarImplementation::new(parameters, DataType::Bool, move |arguments, arena| {
        holds(arguments, arena).map(Datum::Bool)
    })
    .passing_nulls()
}

fn is_at_least(order: Option<Ordering>) -> bool {
    order.is_some_and(Ordering::is_ge)
}

fn is_at_most(order: Option<Ordering>) -> bool {
    order.is_some_and(Ordering::is_le)
}

fn is_less(order: Option<Ordering>) -> bool {
    order == Some(Ordering::Less)
}

fn is_greater(order: Option<Ordering>) -> bool {
    order == Some(Ordering::Greater)
}
