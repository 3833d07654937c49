//! Comparisons: what both sides are brought to, and operands that several comparisons share.
//!
//! A text that is written as a constant (a literal, or the value of a `?`) takes the type of what it
//! is compared with; any other text compares with texts only. `compatibility = 'openmldb'` compares
//! a text with anything, by its text.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{
    Arguments, Compatibility, Settings,
    cast::{TextError, read_constant},
    scalar as scalars,
};
use lockstep_row::{DataType, Value};

use crate::{
    call,
    expression::{Bound, binary, constant, scalar_value},
};

/// An operand of at most so many expressions is copied into each comparison, which leaves room for
/// optimisation; a larger one is computed once. Copies of copies stay few: what holds two of this
/// size is larger itself.
const COPIED_EXPRESSIONS_MAX: usize = 8;

/// A text in an error message is cut here.
const MESSAGE_CHARS_MAX: usize = 40;

/// Functions that compare their arguments with each other, as operators do.
pub(crate) const COMPARING: [&str; 5] = ["nullif", "minimum", "maximum", "least", "greatest"];

/// Binds a comparison: natively where DataFusion's meaning is the dialect's (both sides of one
/// type that is not a float, so that joins and filters are optimised), as our function elsewhere.
pub(crate) fn comparison(
    operator: Operator,
    left: Bound,
    right: Bound,
    settings: Settings,
    span: Span,
) -> Result<Bound> {
    let (left, right) = agree(left, right, settings, span)?;
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
    let with = Arguments { types: &types, constants: &[None, None], settings: &settings };
    let native = match (function.resolve)(&with) {
        Ok(form) => match form.parameters.as_slice() {
            [l, r] if l == r && !l.is_float() && is_native(l) => Some(form.parameters),
            _ => None,
        },
        Err(_) => None,
    };
    let Some(parameters) = native else {
        return call::operator(name, vec![left, right], settings, span);
    };
    let mut sides = call::cast_all(vec![left, right], &parameters, settings)?.into_iter();
    let (left, right) = (sides.next(), sides.next());
    let expr = binary(
        left.expect("a comparison has two sides"),
        operator,
        right.expect("a comparison has two sides"),
    );
    Ok(Bound { expr, data_type: DataType::Bool, span })
}

/// Whether Arrow compares values of this type as the dialect does.
fn is_native(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Null | DataType::Array(_) | DataType::Map(..))
}

/// How many expressions an operand is that may be copied into each of several comparisons; `None`
/// for one that is too large for it.
pub(crate) fn small_size(operand: &Bound) -> Option<usize> {
    let mut expressions = 0;
    let counted = operand.expr.apply(|_| {
        expressions += 1;
        let is_small = expressions <= COPIED_EXPRESSIONS_MAX;
        Ok(if is_small { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    (counted.is_ok() && expressions <= COPIED_EXPRESSIONS_MAX).then_some(expressions)
}

/// Gives a text constant the type of the other side.
pub(crate) fn agree(
    left: Bound,
    right: Bound,
    settings: Settings,
    span: Span,
) -> Result<(Bound, Bound)> {
    if settings.compatibility == Compatibility::OpenMldb {
        return Ok((left, right));
    }
    let is_text = |side: &Bound| side.data_type == DataType::String;
    match (is_text(&left), is_text(&right)) {
        (true, false) => Ok((text_beside(left, &right, settings, span)?, right)),
        (false, true) => {
            let right = text_beside(right, &left, settings, span)?;
            Ok((left, right))
        }
        _ => Ok((left, right)),
    }
}

/// Gives the text constants among arguments that are compared with each other the type of the rest.
pub(crate) fn agree_all(
    arguments: Vec<Bound>,
    settings: Settings,
    span: Span,
) -> Result<Vec<Bound>> {
    if settings.compatibility == Compatibility::OpenMldb {
        return Ok(arguments);
    }
    let is_other =
        |argument: &&Bound| !matches!(argument.data_type, DataType::String | DataType::Null);
    let Some(other) = arguments.iter().find(is_other).cloned() else { return Ok(arguments) };
    let types = arguments.iter().filter(is_other).map(|argument| &argument.data_type);
    let data_type = call::common_type(types);
    let other = Bound { data_type, ..other };
    let agreed = arguments.into_iter().map(|argument| match argument.data_type {
        DataType::String => text_beside(argument, &other, settings, span),
        _ => Ok(argument),
    });
    agreed.collect()
}

/// A text as it is compared with a value of another type.
fn text_beside(text: Bound, other: &Bound, settings: Settings, span: Span) -> Result<Bound> {
    let to = &other.data_type;
    if matches!(to, DataType::String | DataType::Null | DataType::Array(_) | DataType::Map(..)) {
        return Ok(text);
    }
    let Some(Value::String(written)) = constant(&text.expr) else {
        return Diagnostic::new(
            code::DATATYPE_MISMATCH,
            format!("STRING does not compare with {to}"),
        )
        .at(span)
        .with_hint(format!(
            "Write CAST(… AS {to}) around the text, or CAST(… AS STRING) around the other side."
        ))
        .err();
    };
    let (value, data_type) = text_constant(&written, to, settings, text.span)?;
    let expr = Expr::Literal(scalar_value(&value, &data_type), None);
    Ok(Bound { expr, data_type, span: text.span })
}

/// The value and the type of a text that is written where a value of type `to` is compared: of
/// that type, or of a wider one where the text is a number that `to` does not hold.
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
            (code::OUT_OF_RANGE, format!("'{shown}{cut}' is out of range of {to}"))
        }
        (TextError::TimeOfDay, _) => (
            code::INVALID_DATETIME,
            format!("'{shown}{cut}' has a time of day, and is compared with a DATE"),
        ),
        (TextError::Form, DataType::Timestamp | DataType::Date) => {
            (code::INVALID_DATETIME, format!("'{shown}{cut}' is not a value of type {to}"))
        }
        (TextError::Form, _) => {
            (code::INVALID_TEXT, format!("'{shown}{cut}' is not a value of type {to}"))
        }
    };
    let is_time = read_constant(written, &DataType::Timestamp, &settings).is_ok();
    let hint = match (error, to) {
        (TextError::TimeOfDay, _) => {
            "Write the day alone, or compare times: CAST(… AS TIMESTAMP).".to_owned()
        }
        (_, DataType::Timestamp) => {
            "Write '2024-01-31' or '2024-01-31 12:00:00'; milliseconds are a number.".to_owned()
        }
        (_, DataType::Date) => "Write '2024-01-31'.".to_owned(),
        (_, to) if to.is_integer() && is_time => {
            format!("For milliseconds, write bigint(timestamp('{shown}')).")
        }
        _ => "To compare texts, write CAST(… AS STRING) around the other side.".to_owned(),
    };
    Diagnostic::new(code, message).at(span).with_hint(hint).err()
}
