//! Literals and type names: from the syntax tree to DataFusion, and from DataFusion to values.

use arrow::datatypes::DataType as ArrowType;
use datafusion::{common::ScalarValue, logical_expr::Expr};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{self, Literal};

use crate::elsewhere;

/// Returns the type that a type name means, without its length. Types within it have none.
pub fn type_of(name: &ast::TypeName) -> Result<DataType> {
    let sized = name.arguments.iter().find(|argument| argument.length.is_some());
    if let Some(sized) = sized {
        let message = "the length of a string within another type is not supported";
        let error = Diagnostic::unsupported(message).at(sized.name.span);
        return error.with_hint("Write STRING.").err();
    }
    let arguments = name.arguments.iter().map(type_of).collect::<Result<Vec<_>>>()?;
    let lower = name.name.text.to_ascii_lowercase();
    let found = match (lower.as_str(), arguments.as_slice()) {
        ("array", [element]) => Some(DataType::Array(Box::new(element.clone()))),
        ("map", [key, value]) => {
            Some(DataType::Map(Box::new(key.clone()), Box::new(value.clone())))
        }
        (other, []) => DataType::from_name(other),
        _ => None,
    };
    let Some(found) = found else {
        let names =
            ["bool", "smallint", "int", "bigint", "float", "double", "string", "timestamp", "date"];
        let message = format!("type `{}` does not exist", name.name.text);
        let unknown = Diagnostic::new(code::UNDEFINED_OBJECT, message).at(name.name.span);
        return match elsewhere::type_hint(&name.name.text) {
            Some(hint) => unknown.with_hint(hint).err(),
            None => unknown.with_nearest(&name.name.text, names).err(),
        };
    };
    Ok(found)
}

/// Converts a literal of the syntax tree.
pub(crate) fn literal(value: &Literal, span: Span) -> Result<(Expr, DataType)> {
    let (value, data_type) = match value {
        Literal::Null => (ScalarValue::Null, DataType::Null),
        Literal::Bool(value) => (ScalarValue::Boolean(Some(*value)), DataType::Bool),
        Literal::Int(value) => (ScalarValue::Int32(Some(*value)), DataType::Int),
        Literal::BigInt(value) => (ScalarValue::Int64(Some(*value)), DataType::BigInt),
        Literal::Float(value) => (ScalarValue::Float32(Some(*value)), DataType::Float),
        Literal::Double(value) => (ScalarValue::Float64(Some(*value)), DataType::Double),
        Literal::String(text) => (ScalarValue::Utf8(Some(text.clone())), DataType::String),
        Literal::Interval(_) => {
            return Diagnostic::new(
                code::SYNTAX_ERROR,
                "an interval is allowed only in a window frame, a TTL or an option",
            )
            .at(span)
            .with_hint("Write the milliseconds as a number.")
            .err();
        }
    };
    Ok((Expr::Literal(value, None), data_type))
}

/// Returns the literal with its sign changed; `None` where it has none, or on overflow.
pub(crate) fn negate(value: &Literal) -> Option<Literal> {
    Some(match value {
        Literal::Int(value) => Literal::Int(value.checked_neg()?),
        Literal::BigInt(value) => match value.checked_neg()? {
            small if small == i64::from(i32::MIN) => Literal::Int(i32::MIN),
            negated => Literal::BigInt(negated),
        },
        Literal::Float(value) => Literal::Float(-value),
        Literal::Double(value) => Literal::Double(-value),
        _ => return None,
    })
}

/// Returns the value of a literal; `None` for any other expression.
pub(crate) fn constant(expr: &Expr) -> Option<Value> {
    let Expr::Literal(value, _) = expr else { return None };
    Some(match value {
        ScalarValue::Boolean(Some(value)) => Value::Bool(*value),
        ScalarValue::Int16(Some(value)) => Value::SmallInt(*value),
        ScalarValue::Int32(Some(value)) => Value::Int(*value),
        ScalarValue::Int64(Some(value)) => Value::BigInt(*value),
        ScalarValue::Float32(Some(value)) => Value::Float(*value),
        ScalarValue::Float64(Some(value)) => Value::Double(*value),
        ScalarValue::Utf8(Some(text)) => Value::String(text.as_str().into()),
        ScalarValue::TimestampMillisecond(Some(value), _) => Value::Timestamp(*value),
        ScalarValue::Date32(Some(value)) => Value::Date(*value),
        other if other.is_null() => Value::Null,
        _ => return None,
    })
}

/// Converts a value to a literal of DataFusion.
pub(crate) fn scalar_value(value: &Value, data_type: &DataType) -> ScalarValue {
    match value {
        Value::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Value::SmallInt(value) => ScalarValue::Int16(Some(*value)),
        Value::Int(value) => ScalarValue::Int32(Some(*value)),
        Value::BigInt(value) => ScalarValue::Int64(Some(*value)),
        Value::Float(value) => ScalarValue::Float32(Some(*value)),
        Value::Double(value) => ScalarValue::Float64(Some(*value)),
        Value::String(text) => ScalarValue::Utf8(Some(text.to_string())),
        Value::Timestamp(value) => ScalarValue::TimestampMillisecond(Some(*value), None),
        Value::Date(value) => ScalarValue::Date32(Some(*value)),
        Value::Null | Value::Array(_) | Value::Map(_) => {
            let arrow = lockstep_row::arrow::arrow_type(data_type);
            ScalarValue::try_from(&arrow).unwrap_or_else(|_| {
                ScalarValue::try_from(&ArrowType::Null).expect("NULL has a NULL")
            })
        }
    }
}
