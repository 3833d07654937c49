//! The operators `= != < <= > >=`, and the definition of equality that functions share.
//!
//! Numbers and BOOLs compare after promotion, TIMESTAMP with TIMESTAMP, DATE with DATE, and STRING
//! with STRING byte by byte; when the session follows OpenMLDB, a STRING with anything, by its
//! text. (A text that is written as a constant is read in the other side's type before it gets
//! here.) Floats have one order, PostgreSQL's: the two zeros are equal, and NaN is equal to itself and
//! greater than every number; when the session follows OpenMLDB, IEEE 754's, in which NaN differs from
//! everything.

use std::cmp::Ordering;

use lockstep_row::{DataType, Datum, order_floats};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    arithmetic::operator, signature::expect_count,
};
use crate::{Compatibility, Settings, cast::type_rank};

pub(super) static OPERATORS: &[ScalarFunction] = &[
    operator!(
        "op_eq",
        "a = b → BOOL",
        "Returns whether `a` equals `b`.",
        &[("1 = 1.0", "true"), ("'a' = 'b'", "false"), ("1 = NULL", "NULL")],
        equal
    ),
    operator!(
        "op_ne",
        "a != b → BOOL",
        "Returns whether `a` and `b` are different.",
        &[("1 != 2", "true")],
        not_equal
    ),
    operator!(
        "op_lt",
        "a < b → BOOL",
        "Returns whether `a` is less than `b`. A STRING is compared byte by byte.",
        &[("2 < 10", "true"), ("'b' < 'a'", "false")],
        less
    ),
    operator!(
        "op_le",
        "a <= b → BOOL",
        "Returns whether `a` is less than or equal to `b`.",
        &[("2 <= 2", "true")],
        less_or_equal
    ),
    operator!(
        "op_gt",
        "a > b → BOOL",
        "Returns whether `a` is greater than `b`.",
        &[("true > false", "true")],
        greater
    ),
    operator!(
        "op_ge",
        "a >= b → BOOL",
        "Returns whether `a` is greater than or equal to `b`.",
        &[("date('2020-05-22') >= date('2020-05-01')", "true")],
        greater_or_equal
    ),
    operator!(
        "op_group_key",
        "GROUP BY a → the type of `a`",
        "Returns the value by which GROUP BY compares `a`, a FLOAT or DOUBLE: -0.0 and 0.0 are one value, and so are all NaNs.",
        &[("op_group_key(-0.0)", "0"), ("op_group_key(1.5)", "1.5")],
        group_key
    ),
];

/// Returns the types that two values are cast to before they are compared; `None` for types that do
/// not compare.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
pub(super) fn comparison_types(
    left: &DataType,
    right: &DataType,
    settings: &Settings,
) -> Option<[DataType; 2]> {
    let both = |data_type: &DataType| Some([data_type.clone(), data_type.clone()]);
    match (left, right) {
        (DataType::Array(_) | DataType::Map(_, _), _)
        | (_, DataType::Array(_) | DataType::Map(_, _)) => None,
        (DataType::Null, other) | (other, DataType::Null) => both(other),
        (left, right) if left == right => both(left),
        (DataType::String, _) | (_, DataType::String)
            if settings.compatibility == Compatibility::OpenMldb =>
        {
            both(&DataType::String)
        }
        (DataType::Bool, other) | (other, DataType::Bool) if other.is_number() => both(other),
        (left, right) if left.is_number() && right.is_number() => {
            let is_float = |data_type: &DataType| *data_type == DataType::Float;
            let in_float = settings.compatibility == Compatibility::OpenMldb
                && ((is_float(left) && right.is_integer())
                    || (is_float(right) && left.is_integer()));
            // The comparison itself widens integers to 64 bits and floats to DOUBLE.
            if in_float { both(&DataType::Float) } else { Some([left.clone(), right.clone()]) }
        }
        _ => {
            debug_assert!(type_rank(left) == 0 || type_rank(right) == 0, "numbers compare");
            None
        }
    }
}

/// The order of NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NanOrder {
    /// Equal to itself and greater than every number.
    Greatest,
    /// Unordered, as in IEEE 754.
    Unordered,
}

impl NanOrder {
    /// Returns the order in a session with these settings.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "settings are passed by reference, as in `CallArguments`"
    )]
    pub(super) fn of(settings: &Settings) -> Self {
        match settings.compatibility {
            Compatibility::Standard => Self::Greatest,
            Compatibility::OpenMldb => Self::Unordered,
        }
    }
}

/// Compares two values that were cast to [`comparison_types`]; `None` where one is NULL.
pub(super) fn compare(left: Datum<'_>, right: Datum<'_>) -> Option<Ordering> {
    Some(match (left, right) {
        (Datum::Null, _) | (_, Datum::Null) => return None,
        (Datum::String(left), Datum::String(right)) => left.as_bytes().cmp(right.as_bytes()),
        (Datum::Bool(left), Datum::Bool(right)) => left.cmp(&right),
        (left, right) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => order_floats(left.as_f64()?, right.as_f64()?),
        },
    })
}

/// Compares as [`compare`] does, with `Some(None)` where a side is a NaN that is unordered.
#[expect(clippy::option_option, reason = "NULL and unordered are different answers")]
pub(super) fn compare_with(
    left: Datum<'_>,
    right: Datum<'_>,
    nan: NanOrder,
) -> Option<Option<Ordering>> {
    let order = compare(left, right)?;
    let is_unordered = nan == NanOrder::Unordered && (left.is_nan() || right.is_nan());
    Some((!is_unordered).then_some(order))
}

/// Returns whether two values are equal; NULL equals NULL and nothing else. Integers of different
/// widths compare by value; arrays and maps compare element by element.
pub(super) fn is_same(left: Datum<'_>, right: Datum<'_>) -> bool {
    match (left, right) {
        (Datum::Null, Datum::Null) => true,
        (Datum::Array(left), Datum::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_same(*l, *r))
        }
        (Datum::Map(left), Datum::Map(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(l, r)| is_same(l.0, r.0) && is_same(l.1, r.1))
        }
        (left, right) => compare(left, right) == Some(Ordering::Equal),
    }
}

fn comparison<F>(arguments: &CallArguments<'_>, holds: F) -> Resolved
where
    F: Fn(Option<Ordering>) -> bool + Copy + Send + Sync + 'static,
{
    expect_count(arguments, 2, 2)?;
    let (left, right) = (&arguments.types[0], &arguments.types[1]);
    let Some(types) = comparison_types(left, right, arguments.settings) else {
        return Err(SignatureError::Mismatch(format!("cannot compare {left} with {right}")));
    };
    let parameters = types.to_vec();
    let integers = types
        .iter()
        .all(|side| side.is_integer() || matches!(side, DataType::Timestamp | DataType::Date));
    if integers {
        return Ok(ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
            let order = arguments[0].as_i64()?.cmp(&arguments[1].as_i64()?);
            Some(Datum::Bool(holds(Some(order))))
        }));
    }
    let nan = NanOrder::of(arguments.settings);
    Ok(ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        Some(Datum::Bool(holds(compare_with(arguments[0], arguments[1], nan)?)))
    }))
}

fn group_key(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, 1)?;
    if !arguments.types[0].is_float() {
        let message = format!("{} is not a float", arguments.types[0]);
        return Err(SignatureError::Mismatch(message));
    }
    let form = |arguments: &[Datum<'_>]| match arguments[0] {
        Datum::Float(value) if value.is_nan() => Some(Datum::Float(f32::NAN)),
        Datum::Double(value) if value.is_nan() => Some(Datum::Double(f64::NAN)),
        // Adding zero makes the negative zero positive, and changes no other value.
        Datum::Float(value) => Some(Datum::Float(value + 0.0)),
        Datum::Double(value) => Some(Datum::Double(value + 0.0)),
        _ => None,
    };
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters.clone(), parameters[0].clone(), move |given, _| {
        form(given)
    }))
}

fn equal(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order == Some(Ordering::Equal))
}

fn not_equal(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order != Some(Ordering::Equal))
}

fn less(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order == Some(Ordering::Less))
}

fn less_or_equal(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order.is_some_and(Ordering::is_le))
}

fn greater(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order == Some(Ordering::Greater))
}

fn greater_or_equal(arguments: &CallArguments<'_>) -> Resolved {
    comparison(arguments, |order| order.is_some_and(Ordering::is_ge))
}
