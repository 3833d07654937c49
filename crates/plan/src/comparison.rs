//! Comparisons: the common type of both sides, and operands that several comparisons share.
//!
//! A constant STRING (a literal, or the value of a `?`) takes the type of the other side; any other
//! STRING compares with STRINGs only. With `compatibility = 'openmldb'` a STRING compares with any
//! type, by its text.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{
    CallArguments, Compatibility, Settings,
    cast::{TextError, read_constant},
    scalar as scalars,
};
use lockstep_row::{DataType, Value};

use crate::{
    call,
    expression::{TypedExpr, binary},
    literal::{constant, scalar_value},
};

/// An operand of at most so many expressions is copied into each comparison, so that filters and
/// joins are optimised; a larger one is computed once. An operand that contains two such copies is
/// itself larger than this, so copies do not multiply.
const COPIED_EXPRESSIONS_MAX: usize = 8;

/// The most characters of a constant that an error message shows.
const MESSAGE_CHARS_MAX: usize = 40;

/// Functions that compare their arguments with each other, as operators do.
pub(crate) const COMPARING: [&str; 5] = ["nullif", "minimum", "maximum", "least", "greatest"];

/// Binds a comparison: as DataFusion's own where that means what the dialect means (both sides of
/// one type that is not a float), so that joins and filters are optimised; else as our function.
pub(crate) fn comparison(
    operator: Operator,
    left: TypedExpr,
    right: TypedExpr,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    let (left, right) = agree(left, right, settings, span)?;
    let right = integer_beside(right, &left);
    let left = integer_beside(left, &right);
    let name = match operator {
        Operator::Eq => "op_eq",
        Operator::NotEq => "op_ne",
        Operator::Lt => "op_lt",
        Operator::LtEq => "op_le",
        Operator::Gt => "op_gt",
        _ => "op_ge",
    };
    let function = scalars::operator(name).expect("the comparisons are declared");
    let types = [left.data_type.clone(), right.data_type.clone()];
    let with = CallArguments { types: &types, constants: &[None, None], settings: &settings };
    let native = match (function.resolve)(&with) {
        Ok(form) => match form.parameters.as_slice() {
            [l, r] if l == r && !l.is_float() && is_native(l) => Some(form.parameters),
            _ => None,
        },
        Err(_) => None,
    };
    let Some(parameters) = native else {
        let called = call::operator(name, vec![left, right], settings, span);
        return called.map_err(|error| match types {
            [DataType::Date, DataType::Timestamp] | [DataType::Timestamp, DataType::Date] => {
                Box::new(error.with_hint(
                    "Write timestamp(d) for midnight of a DATE, or date(t) for the day of a \
                     TIMESTAMP.",
                ))
            }
            _ => error,
        });
    };
    let mut sides = call::cast_all(vec![left, right], &parameters, settings)?.into_iter();
    let (left, right) = (sides.next(), sides.next());
    let expr = binary(
        left.expect("a comparison has two sides"),
        operator,
        right.expect("a comparison has two sides"),
    );
    Ok(TypedExpr { expr, data_type: DataType::Bool, span })
}

/// Returns the sides of a comparison with the midnight of a DATE that is beside a TIMESTAMP.
pub(crate) fn with_midnight(
    left: TypedExpr,
    right: TypedExpr,
    settings: Settings,
) -> Result<(TypedExpr, TypedExpr)> {
    let midnight = |side: TypedExpr| -> Result<TypedExpr> {
        let span = side.span;
        let mut cast = call::cast_all(vec![side], &[DataType::Timestamp], settings)?;
        let expr = cast.pop().expect("one for the side");
        Ok(TypedExpr { expr, data_type: DataType::Timestamp, span })
    };
    match (&left.data_type, &right.data_type) {
        (DataType::Date, DataType::Timestamp) => Ok((midnight(left)?, right)),
        (DataType::Timestamp, DataType::Date) => Ok((left, midnight(right)?)),
        _ => Ok((left, right)),
    }
}

/// Returns a constant integer as one of the other side's integer type, if that holds it; anything else
/// as it is. The comparison is then one of a single type, which sources decide by their statistics.
fn integer_beside(side: TypedExpr, other: &TypedExpr) -> TypedExpr {
    let to = &other.data_type;
    if side.data_type == *to || !to.is_integer() {
        return side;
    }
    let value = match constant(&side.expr) {
        Some(Value::SmallInt(value)) => i64::from(value),
        Some(Value::Int(value)) => i64::from(value),
        Some(Value::BigInt(value)) => value,
        _ => return side,
    };
    let converted = match to {
        DataType::SmallInt => i16::try_from(value).ok().map(Value::SmallInt),
        DataType::Int => i32::try_from(value).ok().map(Value::Int),
        _ => Some(Value::BigInt(value)),
    };
    let Some(converted) = converted else { return side };
    let expr = Expr::Literal(scalar_value(&converted, to), None);
    debug_assert_eq!(constant(&expr), Some(converted), "the literal has the value");
    TypedExpr { expr, data_type: to.clone(), span: side.span }
}

/// Returns whether Arrow compares values of this type as the dialect does.
fn is_native(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Null | DataType::Array(_) | DataType::Map(..))
}

/// Returns the number of expressions of an operand that is small enough to be copied into each of
/// several comparisons; `None` for a larger one.
pub(crate) fn small_size(operand: &TypedExpr) -> Option<usize> {
    let mut expressions = 0;
    let counted = operand.expr.apply(|_| {
        expressions += 1;
        let is_small = expressions <= COPIED_EXPRESSIONS_MAX;
        Ok(if is_small { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    (counted.is_ok() && expressions <= COPIED_EXPRESSIONS_MAX).then_some(expressions)
}

/// Converts a constant STRING to the type of the other side.
pub(crate) fn agree(
    left: TypedExpr,
    right: TypedExpr,
    settings: Settings,
    span: Span,
) -> Result<(TypedExpr, TypedExpr)> {
    if settings.compatibility == Compatibility::OpenMldb {
        return Ok((left, right));
    }
    let is_text = |side: &TypedExpr| side.data_type == DataType::String;
    match (is_text(&left), is_text(&right)) {
        (true, false) => Ok((text_beside(left, &right, settings, span)?, right)),
        (false, true) => {
            let right = text_beside(right, &left, settings, span)?;
            Ok((left, right))
        }
        _ => Ok((left, right)),
    }
}

/// Converts the constant STRINGs among arguments that are compared with each other to the type of
/// the other arguments.
pub(crate) fn agree_all(
    arguments: Vec<TypedExpr>,
    settings: Settings,
    span: Span,
) -> Result<Vec<TypedExpr>> {
    if settings.compatibility == Compatibility::OpenMldb {
        return Ok(arguments);
    }
    let is_other =
        |argument: &&TypedExpr| !matches!(argument.data_type, DataType::String | DataType::Null);
    let Some(other) = arguments.iter().find(is_other).cloned() else { return Ok(arguments) };
    let types = arguments.iter().filter(is_other).map(|argument| &argument.data_type);
    let data_type = call::common_type(types);
    let other = TypedExpr { data_type, ..other };
    let agreed = arguments.into_iter().map(|argument| match argument.data_type {
        DataType::String => text_beside(argument, &other, settings, span),
        _ => Ok(argument),
    });
    agreed.collect()
}

/// Converts a STRING to the type of the value that it is compared with.
fn text_beside(
    text: TypedExpr,
    other: &TypedExpr,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    let to = &other.data_type;
    if matches!(to, DataType::String | DataType::Null | DataType::Array(_) | DataType::Map(..)) {
        return Ok(text);
    }
    let Some(Value::String(written)) = constant(&text.expr) else {
        return Diagnostic::new(
            code::DATATYPE_MISMATCH,
            format!("cannot compare STRING with {to}"),
        )
        .at(span)
        .with_hint(format!(
            "Cast the string with CAST(… AS {to}), or the other operand with CAST(… AS STRING)."
        ))
        .err();
    };
    let (value, data_type) = text_constant(&written, to, settings, text.span)?;
    let expr = Expr::Literal(scalar_value(&value, &data_type), None);
    Ok(TypedExpr { expr, data_type, span: text.span })
}

/// Reads a constant STRING that is compared with values of type `to`: its value and type, which is
/// wider than `to` where the text is a number that `to` does not hold.
pub fn text_constant(
    written: &str,
    to: &DataType,
    settings: Settings,
    span: Span,
) -> Result<(Value, DataType)> {
    read_constant(written, to, &settings)
        .or_else(|error| not_a_value(written, to, error, settings, span))
}

fn not_a_value<T>(
    written: &str,
    to: &DataType,
    error: TextError,
    settings: Settings,
    span: Span,
) -> Result<T> {
    let cut = if written.chars().count() > MESSAGE_CHARS_MAX { "…" } else { "" };
    let shown: String = written.chars().take(MESSAGE_CHARS_MAX).collect();
    let (code, message) = match (error, to) {
        (TextError::Range, _) => {
            (code::OUT_OF_RANGE, format!("value '{shown}{cut}' is out of range for type {to}"))
        }
        (TextError::TimeOfDay, _) => (
            code::INVALID_DATETIME,
            format!("invalid input syntax for type DATE: '{shown}{cut}' has a time of day"),
        ),
        (TextError::Form, DataType::Timestamp | DataType::Date) => {
            (code::INVALID_DATETIME, format!("invalid input syntax for type {to}: '{shown}{cut}'"))
        }
        (TextError::Form, _) => {
            (code::INVALID_TEXT, format!("invalid input syntax for type {to}: '{shown}{cut}'"))
        }
    };
    let is_time = read_constant(written, &DataType::Timestamp, &settings).is_ok();
    let hint = match (error, to) {
        (TextError::TimeOfDay, _) => {
            "Write only the day, or compare times with CAST(… AS TIMESTAMP).".to_owned()
        }
        (_, DataType::Timestamp) => {
            "Write '2024-01-31' or '2024-01-31 12:00:00', or milliseconds as a number.".to_owned()
        }
        (_, DataType::Date) => "Write '2024-01-31'.".to_owned(),
        (_, to) if to.is_integer() && is_time => {
            format!("For milliseconds, write bigint(timestamp('{shown}')).")
        }
        _ => "To compare strings, cast the other operand with CAST(… AS STRING).".to_owned(),
    };
    Diagnostic::new(code, message).at(span).with_hint(hint).err()
}
