//! The operators of catalog queries.

use std::cmp::Ordering;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::{
    scalar::{CaseSensitivity, has_match, is_like},
    value_limit,
};
use sqlparser::ast::BinaryOperator;

use super::{
    from::unsupported,
    limits::{LimitedText, check_element, check_items},
    value::CatalogValue,
};

/// The most bytes of a text that is matched with a regular expression, and of the expression: the time
/// is the product of both, and a match cannot be interrupted.
const MATCHED_BYTES_MAX: usize = 64 << 10;
const EXPRESSION_BYTES_MAX: usize = 4 << 10;

/// Whether one member has to fit, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    Any,
    All,
}

/// Returns the negation of a condition.
pub(super) fn negation(value: &CatalogValue) -> CatalogValue {
    match value {
        CatalogValue::Bool(value) => CatalogValue::Bool(!value),
        CatalogValue::Text(text) if &**text == "t" || &**text == "f" => {
            CatalogValue::Bool(&**text == "f")
        }
        _ => CatalogValue::Null,
    }
}

/// Applies an operator; NULL where an operand is.
pub(super) fn operate(
    left: &CatalogValue,
    operator: &BinaryOperator,
    right: &CatalogValue,
) -> Result<CatalogValue> {
    use BinaryOperator as Op;
    if let Op::PGCustomBinaryOperator(parts) = operator {
        let name = parts.last().map_or("", String::as_str);
        let Some(operator) = named_operator(name) else {
            return unsupported(&format!("the operator {name}"));
        };
        return operate(left, &operator, right);
    }
    if matches!(operator, Op::And | Op::Or) {
        let wanted = CatalogValue::Bool(*operator == Op::Or);
        return Ok(if *left == wanted || *right == wanted {
            wanted
        } else if left.is_null() || right.is_null() {
            CatalogValue::Null
        } else {
            negation(&wanted)
        });
    }
    if left.is_null() || right.is_null() {
        return Ok(CatalogValue::Null);
    }
    let ordering = || left.compare(right);
    let is = |holds: bool| Ok(CatalogValue::Bool(holds));
    match operator {
        Op::Eq => is(ordering() == Some(Ordering::Equal)),
        Op::NotEq => is(ordering() != Some(Ordering::Equal)),
        Op::Lt => is(ordering() == Some(Ordering::Less)),
        Op::LtEq => is(ordering().is_some_and(Ordering::is_le)),
        Op::Gt => is(ordering() == Some(Ordering::Greater)),
        Op::GtEq => is(ordering().is_some_and(Ordering::is_ge)),
        Op::PGRegexMatch => is(fits(left, right, CaseSensitivity::Sensitive)?),
        Op::PGRegexIMatch => is(fits(left, right, CaseSensitivity::Insensitive)?),
        Op::PGRegexNotMatch => is(!fits(left, right, CaseSensitivity::Sensitive)?),
        Op::PGRegexNotIMatch => is(!fits(left, right, CaseSensitivity::Insensitive)?),
        Op::PGLikeMatch => like(left, right, None, CaseSensitivity::Sensitive),
        Op::PGILikeMatch => like(left, right, None, CaseSensitivity::Insensitive),
        Op::PGNotLikeMatch => Ok(negation(&like(left, right, None, CaseSensitivity::Sensitive)?)),
        Op::PGNotILikeMatch => {
            Ok(negation(&like(left, right, None, CaseSensitivity::Insensitive)?))
        }
        Op::PGStartsWith => is(left.shown().starts_with(&*right.shown())),
        Op::StringConcat => concatenated(left, right),
        Op::PGOverlap | Op::AtArrow | Op::ArrowAt => is(overlaps(left, operator, right)?),
        _ => arithmetic(left, operator, right),
    }
}

/// Returns the operator that `OPERATOR(pg_catalog.…)` names.
fn named_operator(name: &str) -> Option<BinaryOperator> {
    use BinaryOperator as Op;
    Some(match name {
        "=" => Op::Eq,
        "<>" | "!=" => Op::NotEq,
        "<" => Op::Lt,
        "<=" => Op::LtEq,
        ">" => Op::Gt,
        ">=" => Op::GtEq,
        "~" => Op::PGRegexMatch,
        "~*" => Op::PGRegexIMatch,
        "!~" => Op::PGRegexNotMatch,
        "!~*" => Op::PGRegexNotIMatch,
        "~~" => Op::PGLikeMatch,
        "~~*" => Op::PGILikeMatch,
        "!~~" => Op::PGNotLikeMatch,
        "!~~*" => Op::PGNotILikeMatch,
        "||" => Op::StringConcat,
        "+" => Op::Plus,
        "-" => Op::Minus,
        "*" => Op::Multiply,
        "/" => Op::Divide,
        "@>" => Op::AtArrow,
        "<@" => Op::ArrowAt,
        "&&" => Op::PGOverlap,
        _ => return None,
    })
}

fn arithmetic(
    left: &CatalogValue,
    operator: &BinaryOperator,
    right: &CatalogValue,
) -> Result<CatalogValue> {
    use BinaryOperator as Op;
    let is_real = matches!(left, CatalogValue::Real(_)) || matches!(right, CatalogValue::Real(_));
    if is_real
        && let (Some(a), Some(b)) = (left.real(), right.real())
        && matches!(operator, Op::Plus | Op::Minus | Op::Multiply | Op::Divide)
    {
        return Ok(CatalogValue::Real(match operator {
            Op::Plus => a + b,
            Op::Minus => a - b,
            Op::Multiply => a * b,
            _ => a / b,
        }));
    }
    let (Some(a), Some(b)) = (left.number(), right.number()) else { return Ok(CatalogValue::Null) };
    let shift = u32::try_from(b).unwrap_or(u32::MAX);
    let found = match operator {
        Op::Plus => a.checked_add(b),
        Op::Minus => a.checked_sub(b),
        Op::Multiply => a.checked_mul(b),
        Op::Divide => a.checked_div(b),
        Op::Modulo => a.checked_rem(b),
        Op::BitwiseAnd => Some(a & b),
        Op::BitwiseOr => Some(a | b),
        Op::PGBitwiseShiftLeft => a.checked_shl(shift),
        Op::PGBitwiseShiftRight => a.checked_shr(shift),
        other => return unsupported(&format!("the operator {other}")),
    };
    Ok(found.map_or(CatalogValue::Null, CatalogValue::Number))
}

/// Returns whether a regular expression matches some characters of a text.
fn fits(text: &CatalogValue, pattern: &CatalogValue, case: CaseSensitivity) -> Result<bool> {
    let (text, pattern) = (text.shown(), pattern.shown());
    if text.len() > MATCHED_BYTES_MAX || pattern.len() > EXPRESSION_BYTES_MAX {
        let message = "the string or the pattern of a regular expression match is too long";
        return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message)
            .with_detail(format!(
                "In catalog queries, the string is limited to {MATCHED_BYTES_MAX} bytes and the \
                 pattern to {EXPRESSION_BYTES_MAX} bytes."
            ))
            .err();
    }
    match has_match(&text, &pattern, case) {
        Some(fits) => Ok(fits),
        None => {
            let message = format!("invalid regular expression: '{pattern}'");
            Diagnostic::new(code::INVALID_PARAMETER, message).err()
        }
    }
}

/// Compares a text with a pattern of LIKE; NULL where one is. The escape character is a backslash unless
/// another one is given.
pub(super) fn like(
    text: &CatalogValue,
    pattern: &CatalogValue,
    escape: Option<&str>,
    case: CaseSensitivity,
) -> Result<CatalogValue> {
    if text.is_null() || pattern.is_null() {
        return Ok(CatalogValue::Null);
    }
    let escape = escape.unwrap_or("\\");
    let holds = is_like(&text.shown(), &pattern.shown(), escape, case);
    // A long match may have been interrupted.
    value_limit::check()?;
    Ok(CatalogValue::Bool(holds))
}

/// Joins texts or arrays.
fn concatenated(left: &CatalogValue, right: &CatalogValue) -> Result<CatalogValue> {
    let (a, b) = match (left, right) {
        (CatalogValue::Array(a), CatalogValue::Array(b)) => {
            (a.items.as_slice(), b.items.as_slice())
        }
        (CatalogValue::Array(a), item) => (a.items.as_slice(), std::slice::from_ref(item)),
        (item, CatalogValue::Array(b)) => (std::slice::from_ref(item), b.items.as_slice()),
        _ => {
            let parts = [left.shown(), right.shown()].into_iter();
            return Ok(LimitedText::default().join(parts, "")?.value());
        }
    };
    check_items(a.len() + b.len())?;
    Ok(CatalogValue::array([a, b].concat()))
}

/// Compares arrays as sets.
fn overlaps(left: &CatalogValue, operator: &BinaryOperator, right: &CatalogValue) -> Result<bool> {
    let (Some(left), Some(right)) = (left.elements()?, right.elements()?) else {
        return Ok(false);
    };
    let (items, list) = match operator {
        BinaryOperator::AtArrow => (&right, &left),
        _ => (&left, &right),
    };
    // Whether one item that is in the list, or is not, decides.
    let decides = !matches!(operator, BinaryOperator::AtArrow | BinaryOperator::ArrowAt);
    for item in items {
        let mut is_listed = false;
        for (at, other) in list.iter().enumerate() {
            check_element(at)?;
            if other.compare(item) == Some(Ordering::Equal) {
                is_listed = true;
                break;
            }
        }
        if is_listed == decides {
            return Ok(decides);
        }
    }
    Ok(!decides)
}

/// Compares a value with the members of a list.
pub(super) fn quantified(
    value: &CatalogValue,
    operator: &BinaryOperator,
    members: &[CatalogValue],
    quantifier: Quantifier,
) -> Result<CatalogValue> {
    let decides = CatalogValue::Bool(quantifier == Quantifier::Any);
    let mut has_null = false;
    for (at, member) in members.iter().enumerate() {
        check_element(at)?;
        let found = operate(value, operator, member)?;
        if found == decides {
            return Ok(decides);
        }
        has_null |= found.is_null();
    }
    Ok(if has_null { CatalogValue::Null } else { negation(&decides) })
}

#[cfg(test)]
mod tests {
    use sqlparser::ast::BinaryOperator;

    use super::{CatalogValue, Quantifier, operate, quantified};

    #[test]
    fn null_is_neither_true_nor_false() {
        let (yes, no) = (CatalogValue::Bool(true), CatalogValue::Bool(false));
        let null = CatalogValue::Null;
        for (left, operator, right, expected) in [
            (&yes, BinaryOperator::And, &null, &null),
            (&null, BinaryOperator::And, &no, &no),
            (&null, BinaryOperator::Or, &yes, &yes),
            (&no, BinaryOperator::Or, &no, &no),
            (&null, BinaryOperator::Eq, &null, &null),
        ] {
            assert_eq!(operate(left, &operator, right).unwrap(), *expected, "{operator}");
        }
        let members = [CatalogValue::Number(1), CatalogValue::Null];
        let any = |value: i64| {
            let value = CatalogValue::Number(value);
            quantified(&value, &BinaryOperator::Eq, &members, Quantifier::Any).unwrap()
        };
        assert_eq!((any(1), any(2)), (yes, null));
    }
}
