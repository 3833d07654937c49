//! Mathematical functions. FLOAT arguments give FLOAT where the function is continuous, everything
//! else DOUBLE; outside a function's domain the result is NaN or an infinity, as in IEEE 754.
//! Exponentials, logarithms, powers and trigonometric functions are those of CORE-MATH, which
//! rounds the exact result once: they have the same bits on every machine (ADR 0057).

use lockstep_row::{DataType, Datum, Value};

use super::{
    CallArguments, Resolved, ScalarFunction, ScalarImplementation, arithmetic,
    signature::{
        INTEGER, NUMBER, NUMBER_OR_BOOL, ScalarTypeClass, expect, expect_between, type_or,
    },
};
use crate::{
    Compatibility,
    cast::{exact_integer, low_bits, narrow_to_i32},
};

macro_rules! math {
    ($name:literal, $aliases:expr, $signature:literal, $doc:literal, $examples:expr, $resolve:expr) => {
        ScalarFunction {
            name: $name,
            aliases: $aliases,
            category: "mathematics",
            signature: $signature,
            doc: $doc,
            examples: $examples,
            resolve: $resolve,
        }
    };
}

pub(super) static FUNCTIONS: &[ScalarFunction] = &[
    math!(
        "abs",
        &[],
        "abs(x) → INT, BIGINT or DOUBLE",
        "Returns the absolute value of `x`: INT for SMALLINT and INT, BIGINT for BIGINT, otherwise DOUBLE. NULL for the smallest INT or BIGINT, whose absolute value is out of range.",
        &[("abs(-2)", "2"), ("abs(-0.5)", "0.5"), ("abs(true)", "1")],
        abs
    ),
    math!(
        "sign",
        &["signum"],
        "sign(x) → INT, BIGINT or DOUBLE",
        "Returns -1, 0 or 1 if `x` is negative, zero or positive, and NaN for NaN. The types are the same as for `abs`.",
        &[("sign(-2)", "-1"), ("sign(0.0)", "0"), ("sign(1.5)", "1")],
        sign
    ),
    math!(
        "ceil",
        &["ceiling"],
        "ceil(x) → BIGINT or DOUBLE",
        "Returns the smallest integer that is greater than or equal to `x`, as BIGINT if `x` is an integer, otherwise as DOUBLE.",
        &[("ceil(1.2)", "2"), ("ceil(-1.2)", "-1"), ("ceil(3)", "3")],
        |arguments| whole(arguments, f64::ceil)
    ),
    math!(
        "floor",
        &[],
        "floor(x) → BIGINT or DOUBLE",
        "Returns the largest integer that is less than or equal to `x`, as BIGINT if `x` is an integer, otherwise as DOUBLE.",
        &[("floor(1.8)", "1"), ("floor(-1.2)", "-2")],
        |arguments| whole(arguments, f64::floor)
    ),
    math!(
        "round",
        &[],
        "round(x[, digits INT]) → the type of `x`",
        "Rounds `x` to `digits` decimal places (0 by default); ties are rounded away from zero. Negative `digits` round before the decimal point; an integer `x` changes only then, and is NULL if the result is out of range.",
        &[
            ("round(2.5)", "3"),
            ("round(-2.5)", "-3"),
            ("round(3.14159, 2)", "3.14"),
            ("round(1250, -2)", "1300")
        ],
        round
    ),
    math!(
        "truncate",
        &[],
        "truncate(x) → INT, BIGINT or DOUBLE",
        "Returns `x` truncated toward zero to an integer: INT for SMALLINT and INT, BIGINT for BIGINT, otherwise DOUBLE.",
        &[("truncate(1.9)", "1"), ("truncate(-1.9)", "-1")],
        truncate
    ),
    math!(
        "acos",
        &[],
        "acos(x) → FLOAT or DOUBLE",
        "Returns the arc cosine of `x`, in radians; NaN if `x` is outside [-1, 1].",
        &[("acos(1)", "0"), ("acos(2)", "NaN")],
        |arguments| real(arguments, NUMBER, core_math::acosf, core_math::acos)
    ),
    math!(
        "asin",
        &[],
        "asin(x) → FLOAT or DOUBLE",
        "Returns the arc sine of `x`, in radians; NaN if `x` is outside [-1, 1].",
        &[("asin(0)", "0")],
        |arguments| real(arguments, NUMBER, core_math::asinf, core_math::asin)
    ),
    math!(
        "atan",
        &[],
        "atan(x), atan(y, x) → FLOAT or DOUBLE",
        "Returns the arc tangent of `x`, in radians; with two arguments, the same as `atan2`.",
        &[("atan(0)", "0"), ("atan(1, 1)", "0.7853981633974483")],
        atan
    ),
    math!(
        "atan2",
        &[],
        "atan2(y, x) → FLOAT or DOUBLE",
        "Returns the angle between the positive x axis and the point (`x`, `y`), in radians.",
        &[("atan2(2, 2)", "0.7853981633974483")],
        |arguments| real_pair(arguments, atan2f, atan2)
    ),
    math!(
        "cos",
        &[],
        "cos(x) → FLOAT or DOUBLE",
        "Returns the cosine of `x`, an angle in radians.",
        &[("cos(0)", "1")],
        |arguments| real(arguments, NUMBER, core_math::cosf, core_math::cos)
    ),
    math!(
        "cot",
        &[],
        "cot(x) → FLOAT or DOUBLE",
        "Returns the cotangent of `x`, an angle in radians; infinite at 0.",
        &[("cot(0)", "Infinity")],
        |arguments| real(
            arguments,
            NUMBER,
            |x| 1.0 / core_math::tanf(x),
            |x| 1.0 / core_math::tan(x)
        )
    ),
    math!(
        "sin",
        &[],
        "sin(x) → FLOAT or DOUBLE",
        "Returns the sine of `x`, an angle in radians.",
        &[("sin(0)", "0")],
        |arguments| real(arguments, NUMBER, core_math::sinf, core_math::sin)
    ),
    math!(
        "tan",
        &[],
        "tan(x) → FLOAT or DOUBLE",
        "Returns the tangent of `x`, an angle in radians.",
        &[("tan(0)", "0")],
        |arguments| real(arguments, NUMBER, core_math::tanf, core_math::tan)
    ),
    math!(
        "degrees",
        &[],
        "degrees(x) → DOUBLE",
        "Converts `x` from radians to degrees.",
        &[("degrees(0)", "0")],
        |arguments| double(arguments, f64::to_degrees)
    ),
    math!(
        "radians",
        &[],
        "radians(x) → DOUBLE",
        "Converts `x` from degrees to radians.",
        &[("radians(180)", "3.141592653589793")],
        |arguments| double(arguments, f64::to_radians)
    ),
    math!(
        "exp",
        &[],
        "exp(x) → FLOAT or DOUBLE",
        "Returns e raised to the power of `x`.",
        &[("exp(0)", "1")],
        |arguments| real(arguments, NUMBER, core_math::expf, core_math::exp)
    ),
    math!(
        "ln",
        &[],
        "ln(x) → FLOAT or DOUBLE",
        "Returns the natural logarithm of `x`; -Infinity if `x` is 0, and NaN if `x` is negative.",
        &[("ln(1)", "0"), ("ln(0)", "-Infinity"), ("ln(-1)", "NaN")],
        |arguments| real(arguments, NUMBER_OR_BOOL, core_math::logf, core_math::log)
    ),
    math!(
        "log",
        &[],
        "log(x), log(base, x) → FLOAT or DOUBLE",
        "Returns the natural logarithm of `x`, or its logarithm to base `base`, computed as `ln(x) / ln(base)`. NULL if `base` is 1.",
        &[("log(1)", "0"), ("log(2, 8)", "3"), ("log(1, 8)", "NULL")],
        log
    ),
    math!(
        "log2",
        &[],
        "log2(x) → FLOAT or DOUBLE",
        "Returns the logarithm of `x` to base 2; -Infinity if `x` is 0, and NaN if `x` is negative.",
        &[("log2(8)", "3")],
        |arguments| real(arguments, NUMBER_OR_BOOL, core_math::log2f, core_math::log2)
    ),
    math!(
        "log10",
        &[],
        "log10(x) → FLOAT or DOUBLE",
        "Returns the logarithm of `x` to base 10; -Infinity if `x` is 0, and NaN if `x` is negative.",
        &[("log10(1000)", "3")],
        |arguments| real(arguments, NUMBER_OR_BOOL, core_math::log10f, core_math::log10)
    ),
    math!(
        "pow",
        &["power"],
        "pow(x, y) → FLOAT or DOUBLE",
        "Returns `x` raised to the power of `y`.",
        &[("pow(2, 10)", "1024"), ("pow(2, -1)", "0.5")],
        |arguments| {
            real_pair(
                arguments,
                |x, y| Some(core_math::powf(x, y)),
                |x, y| Some(core_math::pow(x, y)),
            )
        }
    ),
    math!(
        "sqrt",
        &[],
        "sqrt(x) → FLOAT or DOUBLE",
        "Returns the square root of `x`; NaN if `x` is negative.",
        &[("sqrt(9)", "3"), ("sqrt(-1)", "NaN")],
        |arguments| real(arguments, NUMBER, f32::sqrt, f64::sqrt)
    ),
    math!(
        "add",
        &[],
        "add(a, b) → the type of `a + b`",
        "Returns `a + b`.",
        &[("add(1, 2)", "3")],
        arithmetic::add
    ),
    math!(
        "inc",
        &[],
        "inc(x) → the type of `x`",
        "Returns `x + 1`; NULL if an integer result is out of range of its type.",
        &[("inc(1)", "2"), ("inc(1.5)", "2.5")],
        inc
    ),
    math!(
        "mod",
        &[],
        "mod(a, b) → the type of `a % b`",
        "Returns the remainder of the division of `a` by `b`, with the sign of `a`. NULL if `b` is 0.",
        &[("mod(7, 3)", "1"), ("mod(-7, 3)", "-1")],
        arithmetic::modulo
    ),
    math!(
        "pmod",
        &[],
        "pmod(a, b) → the type of `a % b`",
        "Returns the remainder of the division of `a` by `b`, plus `b` if it is negative, so that the result is not negative for a positive `b`. NULL if `b` is 0.",
        &[("pmod(-7, 3)", "2"), ("pmod(7, 0)", "NULL")],
        arithmetic::positive_modulo
    ),
];

/// Implements a function of one number: FLOAT for FLOAT, otherwise DOUBLE.
fn real(
    arguments: &CallArguments<'_>,
    class: ScalarTypeClass,
    single: fn(f32) -> f32,
    double: fn(f64) -> f64,
) -> Resolved {
    expect(arguments, &[class])?;
    if arguments.types[0] == DataType::Float {
        let parameters = vec![DataType::Float];
        return Ok(ScalarImplementation::new(parameters, DataType::Float, move |arguments, _| {
            let Datum::Float(x) = arguments[0] else { return None };
            Some(Datum::Float(single(x)))
        }));
    }
    Ok(ScalarImplementation::new(vec![DataType::Double], DataType::Double, move |arguments, _| {
        Some(Datum::Double(double(arguments[0].as_f64()?)))
    }))
}

/// Implements a function of one number whose result is always DOUBLE.
fn double(arguments: &CallArguments<'_>, compute: fn(f64) -> f64) -> Resolved {
    expect(arguments, &[NUMBER])?;
    Ok(ScalarImplementation::new(vec![DataType::Double], DataType::Double, move |arguments, _| {
        Some(Datum::Double(compute(arguments[0].as_f64()?)))
    }))
}

/// Implements a function of two numbers: FLOAT for two FLOATs, otherwise DOUBLE. NULL where
/// `single` or `double` returns `None`.
fn real_pair(
    arguments: &CallArguments<'_>,
    single: fn(f32, f32) -> Option<f32>,
    double: fn(f64, f64) -> Option<f64>,
) -> Resolved {
    expect(arguments, &[NUMBER_OR_BOOL, NUMBER_OR_BOOL])?;
    if arguments.types.iter().all(|data_type| *data_type == DataType::Float) {
        let parameters = arguments.types.to_vec();
        return Ok(ScalarImplementation::new(parameters, DataType::Float, move |arguments, _| {
            let (Datum::Float(a), Datum::Float(b)) = (arguments[0], arguments[1]) else {
                return None;
            };
            Some(Datum::Float(single(a, b)?))
        }));
    }
    let parameters = vec![DataType::Double; 2];
    Ok(ScalarImplementation::new(parameters, DataType::Double, move |arguments, _| {
        Some(Datum::Double(double(arguments[0].as_f64()?, arguments[1].as_f64()?)?))
    }))
}

fn atan2f(y: f32, x: f32) -> Option<f32> {
    Some(core_math::atan2f(y, x))
}

fn atan2(y: f64, x: f64) -> Option<f64> {
    Some(core_math::atan2(y, x))
}

fn atan(arguments: &CallArguments<'_>) -> Resolved {
    if arguments.types.len() == 2 {
        return real_pair(arguments, atan2f, atan2);
    }
    real(arguments, NUMBER, core_math::atanf, core_math::atan)
}

fn log(arguments: &CallArguments<'_>) -> Resolved {
    if arguments.types.len() == 2 {
        return real_pair(
            arguments,
            |base, x| {
                let base = core_math::logf(base);
                (base != 0.0).then(|| core_math::logf(x) / base)
            },
            |base, x| {
                let base = core_math::log(base);
                (base != 0.0).then(|| core_math::log(x) / base)
            },
        );
    }
    real(arguments, NUMBER_OR_BOOL, core_math::logf, core_math::log)
}

fn abs(arguments: &CallArguments<'_>) -> Resolved {
    narrow_or_double(arguments, |x| x.abs(), f64::abs)
}

fn truncate(arguments: &CallArguments<'_>) -> Resolved {
    narrow_or_double(arguments, |x| x, f64::trunc)
}

fn sign(arguments: &CallArguments<'_>) -> Resolved {
    let double = |x: f64| if x == 0.0 || x.is_nan() { x } else { x.signum() };
    narrow_or_double(arguments, i128::signum, double)
}

/// Converts an integer to an integer type; where it does not fit NULL, or the low bits with
/// `compatibility = 'openmldb'`.
fn fit<'a>(value: i128, to: &DataType, compatibility: Compatibility) -> Option<Datum<'a>> {
    match (i64::try_from(value), compatibility) {
        (Ok(value), Compatibility::Standard) => exact_integer(value, to),
        (Err(_), Compatibility::Standard) => None,
        (Ok(value), Compatibility::OpenMldb) => Some(low_bits(value, to)),
        (Err(_), Compatibility::OpenMldb) => {
            let low = value.to_le_bytes().first_chunk().copied().expect("8 of its 16 bytes");
            Some(low_bits(i64::from_le_bytes(low), to))
        }
    }
}

/// Implements a function whose result is INT for SMALLINT and INT, BIGINT for BIGINT, otherwise
/// DOUBLE.
fn narrow_or_double(
    arguments: &CallArguments<'_>,
    integer: fn(i128) -> i128,
    double: fn(f64) -> f64,
) -> Resolved {
    expect(arguments, &[NUMBER_OR_BOOL])?;
    let result = match arguments.types[0] {
        DataType::SmallInt | DataType::Int => DataType::Int,
        DataType::BigInt => DataType::BigInt,
        _ => {
            let parameters = vec![DataType::Double];
            return Ok(ScalarImplementation::new(
                parameters,
                DataType::Double,
                move |arguments, _| Some(Datum::Double(double(arguments[0].as_f64()?))),
            ));
        }
    };
    let (to, compatibility) = (result.clone(), arguments.settings.compatibility);
    let parameters = arguments.types.to_vec();
    Ok(ScalarImplementation::new(parameters, result, move |arguments, _| {
        fit(integer(i128::from(arguments[0].as_i64()?)), &to, compatibility)
    }))
}

/// Implements a function that returns integers unchanged as BIGINT, and DOUBLE otherwise.
fn whole(arguments: &CallArguments<'_>, compute: fn(f64) -> f64) -> Resolved {
    expect(arguments, &[NUMBER_OR_BOOL])?;
    if arguments.types[0].is_integer() {
        let parameters = arguments.types.to_vec();
        return Ok(ScalarImplementation::new(parameters, DataType::BigInt, |arguments, _| {
            Some(Datum::BigInt(arguments[0].as_i64()?))
        }));
    }
    Ok(ScalarImplementation::new(vec![DataType::Double], DataType::Double, move |arguments, _| {
        Some(Datum::Double(compute(arguments[0].as_f64()?)))
    }))
}

fn inc(arguments: &CallArguments<'_>) -> Resolved {
    expect(arguments, &[NUMBER])?;
    let one = [type_or(arguments, 0, DataType::Int), DataType::SmallInt];
    let constants = [None, Some(Value::SmallInt(1))];
    let with = CallArguments { types: &one, constants: &constants, settings: arguments.settings };
    let sum = arithmetic::add(&with)?;
    let parameters = vec![one[0].clone()];
    let row = sum.row;
    let is_float = one[0].is_float();
    Ok(ScalarImplementation::new(parameters, sum.returns, move |arguments, arena| {
        let one = match arguments[0] {
            Datum::Float(_) => Datum::Float(1.0),
            _ if is_float => Datum::Double(1.0),
            _ => Datum::SmallInt(1),
        };
        Some(row(&[arguments[0], one], arena))
    }))
}

fn round(arguments: &CallArguments<'_>) -> Resolved {
    expect_between(arguments, 1, &[NUMBER, INTEGER])?;
    let result = type_or(arguments, 0, DataType::Double);
    let mut parameters = vec![result.clone()];
    parameters.extend(arguments.types.get(1).map(|_| DataType::Int));
    let (to, compatibility) = (result.clone(), arguments.settings.compatibility);
    Ok(ScalarImplementation::new(parameters, result, move |arguments, _| {
        let digits = match arguments.get(1) {
            Some(digits) => narrow_to_i32(digits.as_i64()?),
            None => 0,
        };
        Some(match arguments[0] {
            Datum::Float(x) => {
                Datum::Float(crate::cast::f64_to_f32(round_double(f64::from(x), digits)))
            }
            Datum::Double(x) => Datum::Double(round_double(x, digits)),
            integer => {
                return fit(round_integer(integer.as_i64()?, digits), &to, compatibility);
            }
        })
    }))
}

/// Rounds to a number of digits before the decimal point.
fn round_integer(x: i64, digits: i32) -> i128 {
    let x = i128::from(x);
    let Ok(zeros) = u32::try_from(-i64::from(digits)) else { return x };
    let Some(unit) = 10_i128.checked_pow(zeros).filter(|unit| *unit <= 10_i128.pow(20)) else {
        return 0;
    };
    (x + x.signum() * (unit / 2)) / unit * unit
}

/// Computes a power by repeated squaring, in the same order of operations on every machine.
fn power_of_ten(exponent: u32) -> f64 {
    let (mut power, mut square, mut rest) = (1.0, 10.0, exponent);
    loop {
        if rest % 2 == 1 {
            power *= square;
        }
        rest /= 2;
        if rest == 0 {
            return power;
        }
        square *= square;
    }
}

/// Rounds to a number of decimals; a value that scaling would overflow is returned unchanged.
fn round_double(x: f64, digits: i32) -> f64 {
    if digits == 0 {
        return x.round();
    }
    let scale = power_of_ten(digits.clamp(-308, 308).unsigned_abs());
    if digits < 0 {
        return (x / scale).round() * scale;
    }
    let scaled = x * scale;
    if scaled.is_finite() { scaled.round() / scale } else { x }
}
