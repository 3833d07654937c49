//! Functions that test for NULL or choose a value, and the conversion of values to conditions.

use std::cmp::Ordering;

use lockstep_row::{DataType, Datum};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    arithmetic::{operator, promote},
    comparison::{NanOrder, compare, compare_with, comparison_types},
    signature::{ANY, BOOL, PLAIN, expect, expect_count},
};
use crate::{
    Compatibility, Settings,
    cast::{common_type, is_nonzero},
};

macro_rules! conditional {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "conditional",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    conditional!(
        "is_null",
        &["isnull"],
        "is_null(value) → BOOL",
        "Returns whether `value` is NULL. The result is never NULL.",
        &[("is_null(NULL)", "true"), ("is_null('')", "false")],
        is_null
    ),
    conditional!(
        "if_null",
        &["ifnull", "nvl"],
        "if_null(value, substitute) → their common type",
        "Returns `value`, or `substitute` if `value` is NULL.",
        &[("if_null(NULL, 2)", "2"), ("if_null(1, 'a')", "1")],
        if_null
    ),
    conditional!(
        "nvl2",
        &[],
        "nvl2(value, present, absent) → their common type",
        "Returns `present` if `value` is not NULL, otherwise `absent`.",
        &[("nvl2(1, 'a', 'b')", "a"), ("nvl2(NULL, 'a', 2)", "2")],
        nvl2
    ),
    conditional!(
        "coalesce",
        &[],
        "coalesce(value, …) → their common type",
        "Returns the first argument that is not NULL, or NULL if all arguments are NULL.",
        &[("coalesce(NULL, 2, 3.5)", "2"), ("coalesce(NULL, NULL)", "NULL")],
        coalesce
    ),
    conditional!(
        "nullif",
        &[],
        "nullif(value, other) → the type of `value`",
        "Returns NULL if `value` equals `other`, otherwise `value`.",
        &[("nullif(1, 1)", "NULL"), ("nullif('a', 'b')", "a"), ("nullif(1, NULL)", "1")],
        nullif
    ),
    conditional!(
        "if",
        &[],
        "if(condition BOOL, yes, no) → the common type of `yes` and `no`",
        "Returns `yes` if `condition` is true, and `no` if it is false or NULL.",
        &[("if(true, 'a', 'b')", "a"), ("if(NULL, 1, 2)", "2")],
        if_else
    ),
    conditional!(
        "identity",
        &[],
        "identity(value) → the type of `value`",
        "Returns `value` unchanged.",
        &[("identity(7)", "7")],
        identity
    ),
    conditional!(
        "minimum",
        &[],
        "minimum(a, b) → their common type",
        "Returns the smaller of `a` and `b`, or NULL if either is NULL. NaN is larger than every number.",
        &[("minimum(2, 1)", "1"), ("minimum('b', 'a')", "a"), ("minimum(1, NULL)", "NULL")],
        minimum
    ),
    conditional!(
        "maximum",
        &[],
        "maximum(a, b) → their common type",
        "Returns the larger of `a` and `b`, or NULL if either is NULL. NaN is larger than every number.",
        &[("maximum(2, 1.5)", "2"), ("maximum('a', 'b')", "b")],
        maximum
    ),
    conditional!(
        "least",
        &[],
        "least(value, …) → their common type",
        "Returns the smallest argument. NULL arguments are ignored; NULL if all arguments are NULL. NaN is larger than every number.",
        &[("least(3, 1, NULL)", "1")],
        least
    ),
    conditional!(
        "greatest",
        &[],
        "greatest(value, …) → their common type",
        "Returns the largest argument. NULL arguments are ignored; NULL if all arguments are NULL. NaN is larger than every number.",
        &[("greatest(3, 1.5, NULL)", "3")],
        greatest
    ),
];

pub(super) static OPERATORS: &[ScalarFunction] = &[
    operator!(
        "to_bool",
        "to_bool(value) → BOOL",
        "Returns the truth value of `value` as an operand of AND, OR, NOT, XOR and WHERE: a number other than 0, a STRING that is not empty, a TIMESTAMP other than 0 and every DATE are true.",
        &[
            ("to_bool('false')", "true"),
            ("to_bool('')", "false"),
            ("to_bool(0.0)", "false"),
            ("to_bool(date('1970-01-01'))", "true")
        ],
        to_bool
    ),
    operator!(
        "op_xor",
        "a XOR b → BOOL",
        "Returns whether exactly one of `a` and `b` is true. A number or TIMESTAMP other than 0, a STRING that is not empty and every DATE are true.",
        &[("1 XOR ''", "true"), ("true XOR NULL", "NULL")],
        xor
    ),
    operator!(
        "op_concat",
        "a || b → STRING",
        "Returns the concatenation of `a` and `b`, converted to STRING.",
        &[("'a' || 1", "a1")],
        super::conversion::concatenate
    ),
];

/// Converts a value to a condition.
fn truth(value: Datum<'_>) -> Option<bool> {
    Some(match value {
        Datum::Null | Datum::Array(_) | Datum::Map(_) => return None,
        Datum::Bool(value) => value,
        Datum::SmallInt(value) => value != 0,
        Datum::Int(value) => value != 0,
        Datum::BigInt(value) | Datum::Timestamp(value) => value != 0,
        Datum::Float(value) => is_nonzero(f64::from(value)),
        Datum::Double(value) => is_nonzero(value),
        Datum::String(text) => !text.is_empty(),
        Datum::Date(_) => true,
    })
}

fn to_bool(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[PLAIN])?;
    Ok(ScalarImplementation::new(arguments.types.to_vec(), DataType::Bool, |arguments, _| {
        Some(Datum::Bool(truth(arguments[0])?))
    }))
}

fn xor(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[PLAIN, PLAIN])?;
    Ok(ScalarImplementation::new(arguments.types.to_vec(), DataType::Bool, |arguments, _| {
        Some(Datum::Bool(truth(arguments[0])? ^ truth(arguments[1])?))
    }))
}

fn is_null(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[ANY])?;
    let form =
        ScalarImplementation::new(arguments.types.to_vec(), DataType::Bool, |arguments, _| {
            Some(Datum::Bool(arguments[0].is_null()))
        });
    Ok(form.passing_nulls())
}

/// Returns the common type of some arguments, or the error that there is none.
fn common(types: &[DataType]) -> Result<DataType, SignatureError> {
    common_type(types).ok_or_else(|| {
        let names: Vec<String> = types.iter().map(ToString::to_string).collect();
        SignatureError::Mismatch(format!("{} have no common type", names.join(" and ")))
    })
}

fn if_null(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    coalesce(arguments)
}

fn coalesce(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 1, usize::MAX)?;
    let result = common(arguments.types)?;
    let parameters = vec![result.clone(); arguments.types.len()];
    let form = ScalarImplementation::new(parameters, result, |arguments, _| {
        arguments.iter().copied().find(|value| !value.is_null())
    });
    Ok(form.passing_nulls())
}

fn nvl2(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 3, 3)?;
    let result = common(&arguments.types[1..])?;
    let parameters = vec![arguments.types[0].clone(), result.clone(), result.clone()];
    let form = ScalarImplementation::new(parameters, result, |arguments, _| {
        Some(if arguments[0].is_null() { arguments[2] } else { arguments[1] })
    });
    Ok(form.passing_nulls())
}

fn if_else(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[BOOL, ANY, ANY])?;
    let result = common(&arguments.types[1..])?;
    let parameters = vec![DataType::Bool, result.clone(), result.clone()];
    let form = ScalarImplementation::new(parameters, result, |arguments, _| {
        Some(if arguments[0] == Datum::Bool(true) { arguments[1] } else { arguments[2] })
    });
    Ok(form.passing_nulls())
}

fn identity(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[ANY])?;
    let result = arguments.types[0].clone();
    let form =
        ScalarImplementation::new(vec![result.clone()], result, |arguments, _| Some(arguments[0]));
    Ok(form)
}

/// Resolves `nullif`, which compares as `=` does but returns the value in its own type; so the row
/// form casts the arguments instead of the binder.
fn nullif(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    let [left, right] = arguments.types else { unreachable!("two arguments were checked") };
    let Some([as_left, as_right]) = comparison_types(left, right, arguments.settings) else {
        return Err(SignatureError::Mismatch(format!("cannot compare {left} with {right}")));
    };
    let cast_left = crate::cast::cast_form(left, &as_left, arguments.settings);
    let cast_right = crate::cast::cast_form(right, &as_right, arguments.settings);
    let (Some(cast_left), Some(cast_right)) = (cast_left, cast_right) else {
        return Err(SignatureError::Mismatch(format!("cannot compare {left} with {right}")));
    };
    let (parameters, result) = (arguments.types.to_vec(), left.clone());
    let nan = NanOrder::of(arguments.settings);
    let form = ScalarImplementation::new(parameters, result, move |arguments, arena| {
        if arguments[0].is_null() || arguments[1].is_null() {
            return Some(arguments[0]);
        }
        let left = cast_left(&arguments[..1], arena);
        let right = cast_right(&arguments[1..], arena);
        (compare_with(left, right, nan)? != Some(Ordering::Equal)).then_some(arguments[0])
    });
    Ok(form.passing_nulls())
}

/// Returns the type that `minimum` and its like compare and return: as operators promote; when the
/// session follows OpenMLDB, STRING where one side is.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
fn ordered_type(
    left: &DataType,
    right: &DataType,
    settings: &Settings,
) -> Result<DataType, SignatureError> {
    let by_text = settings.compatibility == Compatibility::OpenMldb;
    let is_text = |data_type: &DataType| *data_type == DataType::String;
    let plain =
        |data_type: &DataType| !matches!(data_type, DataType::Array(_) | DataType::Map(_, _));
    match (left, right) {
        (left, right) if left == right && plain(left) => Some(left.clone()),
        (DataType::Null, other) | (other, DataType::Null) if plain(other) => Some(other.clone()),
        (left, right) if plain(left) && plain(right) && (is_text(left) || is_text(right)) => {
            by_text.then_some(DataType::String)
        }
        (left, right) if left.is_number() && right.is_number() => common_type([left, right]),
        (left, right) => promote(left, right),
    }
    .ok_or_else(|| SignatureError::Mismatch(format!("cannot compare {left} with {right}")))
}

fn minimum(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    pick(arguments, Ordering::Less)
}

fn maximum(arguments: &CallArguments<'_>) -> Resolved {
    expect_count(arguments, 2, 2)?;
    pick(arguments, Ordering::Greater)
}

fn least(arguments: &CallArguments<'_>) -> Resolved {
    Ok(pick(arguments, Ordering::Less)?.passing_nulls())
}

fn greatest(arguments: &CallArguments<'_>) -> Resolved {
    Ok(pick(arguments, Ordering::Greater)?.passing_nulls())
}

/// Implements the choice of the least (or greatest) value that is not NULL.
fn pick(arguments: &CallArguments<'_>, wanted: Ordering) -> Resolved {
    expect_count(arguments, 1, usize::MAX)?;
    let result =
        arguments.types[1..].iter().try_fold(arguments.types[0].clone(), |left, right| {
            ordered_type(&left, right, arguments.settings)
        })?;
    let parameters = vec![result.clone(); arguments.types.len()];
    Ok(ScalarImplementation::new(parameters, result, move |arguments, _| {
        arguments
            .iter()
            .copied()
            .filter(|value| !value.is_null())
            .reduce(|best, value| if compare(value, best) == Some(wanted) { value } else { best })
    }))
}
