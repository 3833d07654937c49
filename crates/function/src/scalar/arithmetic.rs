//! The operators `+ - * / DIV % & | ^ ~` and the signs.
//!
//! Result types: the wider of SMALLINT < INT < BIGINT < FLOAT < DOUBLE, where INT and BIGINT with
//! FLOAT are DOUBLE; BOOL takes the other side's type. An integer or TIMESTAMP out of range is
//! NULL, and so is a division by zero, of floats too.
//!
//! With `compatibility = 'openmldb'` INT and BIGINT with FLOAT are FLOAT, and integers wrap at the
//! width of the result: they are computed in 64 bits and truncated to the low bits at the end,
//! which is the same as wrapping at each step.

use lockstep_row::{DataType, Datum};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, SignatureError,
    signature::{INTEGER, NUMBER, NUMBER_OR_BOOL, expect},
};
use crate::{
    Compatibility, Settings,
    cast::{common_type_strict, narrow_to_i16, narrow_to_i32, type_rank},
};

macro_rules! operator {
    ($name:literal, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: &[],
            category: "operator",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}
pub(super) use operator;

pub(super) static OPERATORS: &[ScalarFunction] = &[
    operator!(
        "op_add",
        "a + b → the wider type; TIMESTAMP + integer → TIMESTAMP",
        "Returns the sum of two numbers, or a TIMESTAMP plus milliseconds. NULL if a sum that is an integer or a TIMESTAMP is out of range.",
        &[("1 + 2", "3"), ("1 + 0.5", "1.5"), ("2147483647 + 1", "NULL"), ("1 + NULL", "NULL")],
        add
    ),
    operator!(
        "op_subtract",
        "a - b → the wider type; TIMESTAMP - integer → TIMESTAMP; TIMESTAMP - TIMESTAMP → BIGINT",
        "Returns the difference of two numbers, a TIMESTAMP minus milliseconds, or the milliseconds between two TIMESTAMPs. NULL if a difference that is an integer or a TIMESTAMP is out of range.",
        &[
            ("1 - 2", "-1"),
            ("timestamp(1000) - 1000", "1970-01-01 00:00:00"),
            ("timestamp(3000) - timestamp(1000)", "2000"),
        ],
        subtract
    ),
    operator!(
        "op_multiply",
        "a * b → the wider type",
        "Returns the product of two numbers. NULL if a product that is an integer is out of range.",
        &[("6 * 7", "42"), ("int16(300) * int16(300)", "NULL")],
        multiply
    ),
    operator!(
        "op_divide",
        "a / b → DOUBLE",
        "Returns the quotient of two numbers as DOUBLE. NULL if `b` is 0.",
        &[("7 / 2", "3.5"), ("7 / 0", "NULL"), ("1.5 / 0.0", "NULL")],
        divide
    ),
    operator!(
        "op_int_divide",
        "a DIV b → the wider integer type",
        "Returns the quotient of two integers, truncated toward zero. NULL if `b` is 0 or the result is out of range.",
        &[("7 DIV 2", "3"), ("-7 DIV 2", "-3"), ("7 DIV 0", "NULL")],
        integer_divide
    ),
    operator!(
        "op_modulo",
        "a % b → the wider type",
        "Returns the remainder of the division of `a` by `b`, whose quotient is truncated toward zero. It has the sign of `a`. NULL if `b` is 0.",
        &[("7 % 3", "1"), ("-7 % 3", "-1"), ("7.5 % 2", "1.5"), ("7 % 0", "NULL")],
        modulo
    ),
    operator!(
        "op_bit_and",
        "a & b → the wider integer type",
        "Returns the bitwise AND of two integers.",
        &[("6 & 3", "2")],
        bit_and
    ),
    operator!(
        "op_bit_or",
        "a | b → the wider integer type",
        "Returns the bitwise OR of two integers.",
        &[("6 | 3", "7")],
        bit_or
    ),
    operator!(
        "op_bit_xor",
        "a ^ b → the wider integer type",
        "Returns the bitwise exclusive OR of two integers.",
        &[("6 ^ 3", "5")],
        bit_xor
    ),
    operator!(
        "op_bit_not",
        "~a → the same type",
        "Returns the bitwise NOT of an integer.",
        &[("op_bit_not(3)", "-4")],
        bit_not
    ),
    operator!(
        "op_negate",
        "-a → the same type",
        "Returns the negation of `a`. NULL for the smallest integer of its type, whose negation is out of range. A BOOL is returned unchanged.",
        &[("op_negate(3)", "-3"), ("op_negate(1.5)", "-1.5"), ("op_negate(true)", "true")],
        negate
    ),
    operator!(
        "op_plus",
        "+a → the same type",
        "Returns `a` unchanged.",
        &[("op_plus(3)", "3")],
        plus
    ),
];

/// Returns the common type of a pair of numbers or BOOLs; `None` for other types. A NULL
/// literal takes the other side's type, and two of them are INT.
pub(super) fn promote(left: &DataType, right: &DataType) -> Option<DataType> {
    match (left, right) {
        (DataType::Null, DataType::Null) => Some(DataType::Int),
        (DataType::Null, other) | (other, DataType::Null) => {
            (type_rank(other) > 0).then(|| other.clone())
        }
        (left, right) if type_rank(left) > 0 && type_rank(right) > 0 => {
            Some(if type_rank(left) >= type_rank(right) { left } else { right }.clone())
        }
        _ => None,
    }
}

/// Returns the common type as [`promote`] does, except that an INT or BIGINT with a FLOAT is DOUBLE
/// unless `compatibility = 'openmldb'`: a FLOAT does not hold every INT.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
fn promote_in(types: &[DataType], settings: &Settings) -> Option<DataType> {
    let result = promote(&types[0], &types[1])?;
    let is_wide = |side: &DataType| matches!(side, DataType::Int | DataType::BigInt);
    let loses = result == DataType::Float && types.iter().any(is_wide);
    Some(match settings.compatibility {
        Compatibility::Standard if loses => DataType::Double,
        _ => result,
    })
}

fn mismatch(arguments: &CallArguments<'_>, sign: &str) -> SignatureError {
    let (left, right) = (&arguments.types[0], &arguments.types[1]);
    SignatureError::Mismatch(format!("{left} {sign} {right} is not supported"))
}

/// Returns the parameter types of a promoted operation. Integers that are narrower than the result,
/// and numbers in a DOUBLE operation, are widened by the row form itself.
fn parameters(types: &[DataType], result: &DataType) -> Vec<DataType> {
    let widened_by_form = |data_type: &DataType| match result {
        DataType::Int | DataType::BigInt | DataType::SmallInt => data_type.is_integer(),
        DataType::Double => data_type.is_number(),
        _ => false,
    };
    types
        .iter()
        .map(|data_type| if widened_by_form(data_type) { data_type } else { result }.clone())
        .collect()
}

/// An operation on integers of 64 bits; `None` for NULL.
type IntegerKernel = fn(i64, i64) -> Option<i64>;

/// The checked and the wrapping form of an operation on integers.
#[derive(Clone, Copy)]
struct IntegerKernels {
    /// Returns `None` where the result exceeds 64 bits.
    checked: IntegerKernel,
    /// Returns the low 64 bits of the result.
    wrapping: IntegerKernel,
}

impl IntegerKernels {
    /// Makes the forms of an operation whose result always fits.
    fn closed(compute: IntegerKernel) -> Self {
        Self { checked: compute, wrapping: compute }
    }
}

/// Implements an operation on integers, in the result's type.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "settings are passed by reference, as in `CallArguments`"
)]
fn on_integers(
    parameters: Vec<DataType>,
    result: DataType,
    kernels: IntegerKernels,
    settings: &Settings,
) -> ScalarImplementation {
    match settings.compatibility {
        Compatibility::Standard => checked_integers(parameters, result, kernels.checked),
        Compatibility::OpenMldb => wrapping_integers(parameters, result, kernels.wrapping),
    }
}

fn on_bools(parameters: Vec<DataType>, compute: IntegerKernel) -> ScalarImplementation {
    ScalarImplementation::new(parameters, DataType::Bool, move |arguments, _| {
        let (left, right) = (arguments[0].as_bool()?, arguments[1].as_bool()?);
        Some(Datum::Bool(compute(i64::from(left), i64::from(right))? & 1 == 1))
    })
}

fn checked_integers(
    parameters: Vec<DataType>,
    result: DataType,
    compute: IntegerKernel,
) -> ScalarImplementation {
    let pair =
        move |arguments: &[Datum<'_>]| compute(arguments[0].as_i64()?, arguments[1].as_i64()?);
    match result {
        DataType::Bool => on_bools(parameters, compute),
        DataType::SmallInt => ScalarImplementation::new(parameters, result, move |arguments, _| {
            Some(Datum::SmallInt(i16::try_from(pair(arguments)?).ok()?))
        }),
        DataType::Int => ScalarImplementation::new(parameters, result, move |arguments, _| {
            Some(Datum::Int(i32::try_from(pair(arguments)?).ok()?))
        }),
        other => in_64_bits(parameters, other, compute),
    }
}

fn wrapping_integers(
    parameters: Vec<DataType>,
    result: DataType,
    compute: IntegerKernel,
) -> ScalarImplementation {
    let pair =
        move |arguments: &[Datum<'_>]| compute(arguments[0].as_i64()?, arguments[1].as_i64()?);
    match result {
        DataType::Bool => on_bools(parameters, compute),
        DataType::SmallInt => ScalarImplementation::new(parameters, result, move |arguments, _| {
            Some(Datum::SmallInt(narrow_to_i16(pair(arguments)?)))
        }),
        DataType::Int => ScalarImplementation::new(parameters, result, move |arguments, _| {
            Some(Datum::Int(narrow_to_i32(pair(arguments)?)))
        }),
        other => in_64_bits(parameters, other, compute),
    }
}

/// Implements an operation whose result is a TIMESTAMP, or a BIGINT for every other type.
fn in_64_bits(
    parameters: Vec<DataType>,
    result: DataType,
    compute: IntegerKernel,
) -> ScalarImplementation {
    let pair =
        move |arguments: &[Datum<'_>]| compute(arguments[0].as_i64()?, arguments[1].as_i64()?);
    match result {
        DataType::Timestamp => {
            ScalarImplementation::new(parameters, result, move |arguments, _| {
                Some(Datum::Timestamp(pair(arguments)?))
            })
        }
        _ => ScalarImplementation::new(parameters, DataType::BigInt, move |arguments, _| {
            Some(Datum::BigInt(pair(arguments)?))
        }),
    }
}

/// The forms of one operation: on integers, on FLOATs and on DOUBLEs.
#[derive(Clone, Copy)]
struct Kernels<S, D> {
    integers: IntegerKernels,
    singles: S,
    doubles: D,
}

/// Implements an operation on numbers and BOOLs of a common type.
fn on_numbers<S, D>(arguments: &CallArguments<'_>, sign: &str, kernels: Kernels<S, D>) -> Resolved
where
    S: Fn(f32, f32) -> Option<f32> + Copy + Send + Sync + 'static,
    D: Fn(f64, f64) -> Option<f64> + Copy + Send + Sync + 'static,
{
    let result =
        promote_in(arguments.types, arguments.settings).ok_or_else(|| mismatch(arguments, sign))?;
    let parameters = parameters(arguments.types, &result);
    let Kernels { integers, singles, doubles } = kernels;
    Ok(match result {
        DataType::Double => ScalarImplementation::new(parameters, result, move |arguments, _| {
            Some(Datum::Double(doubles(arguments[0].as_f64()?, arguments[1].as_f64()?)?))
        }),
        DataType::Float => ScalarImplementation::new(parameters, result, move |arguments, _| {
            let (Datum::Float(left), Datum::Float(right)) = (arguments[0], arguments[1]) else {
                return None;
            };
            Some(Datum::Float(singles(left, right)?))
        }),
        result => on_integers(parameters, result, integers, arguments.settings),
    })
}

const ADDITION: IntegerKernels = IntegerKernels {
    checked: i64::checked_add,
    wrapping: |left, right| Some(left.wrapping_add(right)),
};

const SUBTRACTION: IntegerKernels = IntegerKernels {
    checked: i64::checked_sub,
    wrapping: |left, right| Some(left.wrapping_sub(right)),
};

const MULTIPLICATION: IntegerKernels = IntegerKernels {
    checked: i64::checked_mul,
    wrapping: |left, right| Some(left.wrapping_mul(right)),
};

const DIVISION: IntegerKernels = IntegerKernels {
    checked: i64::checked_div,
    wrapping: |left, right| (right != 0).then(|| left.wrapping_div(right)),
};

/// Implements adding milliseconds to a TIMESTAMP, or subtracting them; `None` where neither side is
/// a TIMESTAMP. The milliseconds between two TIMESTAMPs are BIGINT, which OpenMLDB does not have.
fn on_timestamp(arguments: &CallArguments<'_>, is_addition: bool) -> Option<Resolved> {
    let [left, right] = arguments.types else { return None };
    if *left != DataType::Timestamp && *right != DataType::Timestamp {
        return None;
    }
    let counts = |data_type: &DataType| {
        data_type.is_integer() || matches!(data_type, DataType::Bool | DataType::Null)
    };
    let timestamp = |data_type: &DataType| *data_type == DataType::Timestamp;
    let is_difference = !is_addition
        && timestamp(left)
        && timestamp(right)
        && arguments.settings.compatibility == Compatibility::Standard;
    let is_legal = if is_addition {
        (counts(left) || timestamp(left)) && (counts(right) || timestamp(right))
    } else {
        is_difference || (timestamp(left) && counts(right))
    };
    if !is_legal {
        return Some(Err(mismatch(arguments, if is_addition { "+" } else { "-" })));
    }
    let parameters = arguments
        .types
        .iter()
        .map(
            |side| {
                if side.is_integer() || timestamp(side) { side.clone() } else { DataType::BigInt }
            },
        )
        .collect();
    let kernels = if is_addition { ADDITION } else { SUBTRACTION };
    let result = if is_difference { DataType::BigInt } else { DataType::Timestamp };
    Some(Ok(on_integers(parameters, result, kernels, arguments.settings)))
}

/// Resolves `+`; also the function `add`.
pub(super) fn add(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    on_timestamp(arguments, true).unwrap_or_else(|| {
        let kernels = Kernels {
            integers: ADDITION,
            singles: |left, right| Some(left + right),
            doubles: |left, right| Some(left + right),
        };
        on_numbers(arguments, "+", kernels)
    })
}

fn subtract(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    on_timestamp(arguments, false).unwrap_or_else(|| {
        let kernels = Kernels {
            integers: SUBTRACTION,
            singles: |left, right| Some(left - right),
            doubles: |left, right| Some(left - right),
        };
        on_numbers(arguments, "-", kernels)
    })
}

fn multiply(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    let kernels = Kernels {
        integers: MULTIPLICATION,
        singles: |left, right| Some(left * right),
        doubles: |left, right| Some(left * right),
    };
    on_numbers(arguments, "*", kernels)
}

fn divide(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    promote(&arguments.types[0], &arguments.types[1]).ok_or_else(|| mismatch(arguments, "/"))?;
    let parameters = parameters(arguments.types, &DataType::Double);
    Ok(ScalarImplementation::new(parameters, DataType::Double, |arguments, _| {
        let divisor = nonzero(arguments[1].as_f64()?)?;
        Some(Datum::Double(arguments[0].as_f64()? / divisor))
    }))
}

fn integer_divide(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    let result = promote(&arguments.types[0], &arguments.types[1])
        .filter(|result| !result.is_float())
        .ok_or_else(|| mismatch(arguments, "DIV"))?;
    let parameters = parameters(arguments.types, &result);
    Ok(on_integers(parameters, result, DIVISION, arguments.settings))
}

/// Resolves `%`, the remainder; also the function `mod`.
pub(super) fn modulo(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    let kernels = Kernels {
        integers: IntegerKernels::closed(|left, right| {
            (right != 0).then(|| left.wrapping_rem(right))
        }),
        singles: |left: f32, right: f32| {
            nonzero(f64::from(right))?;
            Some(left % right)
        },
        doubles: |left, right| Some(left % nonzero(right)?),
    };
    on_numbers(arguments, "%", kernels)
}

/// Resolves `pmod`, the remainder made non-negative.
pub(super) fn positive_modulo(arguments: &CallArguments<'_>) -> Resolved {
    super::signature::expect_count(arguments, 2, 2)?;
    let kernels = Kernels {
        integers: IntegerKernels::closed(|left, right| {
            let rest = (right != 0).then(|| left.wrapping_rem(right))?;
            Some(if rest < 0 { right.wrapping_add(rest).wrapping_rem(right) } else { rest })
        }),
        singles: |left: f32, right: f32| {
            nonzero(f64::from(right))?;
            let rest = left % right;
            Some(if rest < 0.0 { (right + rest) % right } else { rest })
        },
        doubles: |left: f64, right: f64| {
            let rest = left % nonzero(right)?;
            Some(if rest < 0.0 { (right + rest) % right } else { rest })
        },
    };
    on_numbers(arguments, "%", kernels)
}

/// Returns a divisor, or `None` for zero.
fn nonzero(divisor: f64) -> Option<f64> {
    (divisor != 0.0).then_some(divisor)
}

fn on_bits(arguments: &CallArguments<'_>, compute: IntegerKernel) -> Resolved {
    expect(arguments, &[INTEGER, INTEGER])?;
    let result = common_type_strict(&arguments.types[0], &arguments.types[1])
        .filter(|result| *result != DataType::Null)
        .unwrap_or(DataType::Int);
    let (parameters, kernels) =
        (parameters(arguments.types, &result), IntegerKernels::closed(compute));
    Ok(on_integers(parameters, result, kernels, arguments.settings))
}

fn bit_and(arguments: &CallArguments<'_>) -> Resolved {
    on_bits(arguments, |left, right| Some(left & right))
}

fn bit_or(arguments: &CallArguments<'_>) -> Resolved {
    on_bits(arguments, |left, right| Some(left | right))
}

fn bit_xor(arguments: &CallArguments<'_>) -> Resolved {
    on_bits(arguments, |left, right| Some(left ^ right))
}

fn bit_not(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[INTEGER])?;
    // In OpenMLDB the complement of a NULL literal is a BOOL.
    let result = super::signature::type_or(arguments, 0, DataType::Bool);
    Ok(ScalarImplementation::new(vec![result.clone()], result, |arguments, _| {
        Some(match arguments[0] {
            Datum::SmallInt(value) => Datum::SmallInt(!value),
            Datum::Int(value) => Datum::Int(!value),
            Datum::BigInt(value) => Datum::BigInt(!value),
            _ => return None,
        })
    }))
}

fn negate(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[NUMBER_OR_BOOL])?;
    let result = super::signature::type_or(arguments, 0, DataType::Int);
    let wraps = arguments.settings.compatibility == Compatibility::OpenMldb;
    Ok(ScalarImplementation::new(vec![result.clone()], result, move |arguments, _| {
        Some(match arguments[0] {
            Datum::SmallInt(i16::MIN) | Datum::Int(i32::MIN) | Datum::BigInt(i64::MIN)
                if !wraps =>
            {
                return None;
            }
            Datum::SmallInt(value) => Datum::SmallInt(value.wrapping_neg()),
            Datum::Int(value) => Datum::Int(value.wrapping_neg()),
            Datum::BigInt(value) => Datum::BigInt(value.wrapping_neg()),
            Datum::Float(value) => Datum::Float(-value),
            Datum::Double(value) => Datum::Double(-value),
            Datum::Bool(value) => Datum::Bool(value),
            _ => return None,
        })
    }))
}

fn plus(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[NUMBER])?;
    let result = super::signature::type_or(arguments, 0, DataType::Int);
    Ok(ScalarImplementation::new(vec![result.clone()], result, |arguments, _| Some(arguments[0])))
}
