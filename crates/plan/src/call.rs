//! Calls: functions, operators and casts, resolved by the declarations of the function library.

use datafusion::logical_expr::Expr;
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{
    CallArguments, ScalarFunction, Settings, SignatureError, aggregate, cast as casts,
    scalar as scalars, udf,
};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast;

use crate::{
    comparison::{self, COMPARING},
    expression::TypedExpr,
    literal::{constant, scalar_value},
};

/// Binds a call of a scalar function by its name.
pub(crate) fn scalar(
    name: &str,
    arguments: Vec<TypedExpr>,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    let function = scalars::find(name).expect("the caller found it");
    let arguments = match COMPARING.contains(&function.name) {
        true => comparison::agree_all(arguments, settings, span)?,
        false => arguments,
    };
    resolve(function, &format!("function `{name}`"), arguments, settings, span)
}

/// Binds an operator, or a function that has syntax of its own.
pub(crate) fn operator(
    name: &'static str,
    arguments: Vec<TypedExpr>,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    let Some(function) = scalars::operator(name).or_else(|| scalars::find(name)) else {
        return Diagnostic::internal(format!("`{name}` is not declared")).at(span).err();
    };
    let shown = format!("operator {}", symbol(name));
    resolve(function, &shown, arguments, settings, span)
}

fn resolve(
    function: &'static ScalarFunction,
    shown: &str,
    arguments: Vec<TypedExpr>,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    let types: Vec<DataType> = arguments.iter().map(|a| a.data_type.clone()).collect();
    let constants: Vec<Option<Value>> = arguments.iter().map(|a| constant(&a.expr)).collect();
    let call = CallArguments { types: &types, constants: &constants, settings: &settings };
    let implementation = (function.resolve)(&call).map_err(|error| {
        Box::new(signature(shown, &error, &arguments, function.signature, span))
    })?;
    let arguments = cast_all(arguments, &implementation.parameters, settings)?;
    let data_type = implementation.returns.clone();
    let expr = udf::scalar_call(function.name, implementation, &constants, &settings, arguments);
    Ok(TypedExpr { expr, data_type, span })
}

/// Casts each argument to its parameter's type.
pub(crate) fn cast_all(
    arguments: Vec<TypedExpr>,
    parameters: &[DataType],
    settings: Settings,
) -> Result<Vec<Expr>> {
    arguments
        .into_iter()
        .zip(parameters)
        .map(|(argument, to)| {
            let span = argument.span;
            cast(argument, to, settings, span).map(|bound| bound.expr)
        })
        .collect()
}

/// Binds CAST, explicit or implied. A NULL literal takes the type as it is.
pub(crate) fn cast(
    operand: TypedExpr,
    to: &DataType,
    settings: Settings,
    span: Span,
) -> Result<TypedExpr> {
    if operand.data_type == *to {
        return Ok(operand);
    }
    if constant(&operand.expr) == Some(Value::Null) {
        let expr = Expr::Literal(scalar_value(&Value::Null, to), None);
        return Ok(TypedExpr { expr, data_type: to.clone(), span });
    }
    let from = operand.data_type.clone();
    let Some(implementation) = casts::implementation(&from, to, &settings) else {
        return Diagnostic::new(
            code::DATATYPE_MISMATCH,
            format!("cannot cast type {from} to {to}"),
        )
        .at(span)
        .err();
    };
    let constants = [constant(&operand.expr)];
    let name = format!("cast_{}", to.to_string().to_lowercase());
    let arguments = vec![operand.expr];
    let expr = udf::scalar_call(&name, implementation, &constants, &settings, arguments);
    Ok(TypedExpr { expr, data_type: to.clone(), span })
}

/// Returns the common type of the branches of a CASE.
pub(crate) fn common_type<'a>(types: impl Iterator<Item = &'a DataType>) -> DataType {
    casts::common_type(types).unwrap_or(DataType::String)
}

/// Returns the error of an aggregate where none may be, or none without OVER (`takes_over`).
pub(crate) fn misplaced(call: &ast::Call, takes_over: bool, span: Span) -> Result<TypedExpr> {
    let name = &call.name.text;
    let hint = match takes_over {
        true => "Compute the aggregate in a subquery, or specify its window with OVER.",
        false => "Compute the aggregate in a subquery in FROM.",
    };
    Diagnostic::new(code::GROUPING_ERROR, format!("aggregate `{name}` is not allowed here"))
        .at(span)
        .with_hint(hint)
        .err()
}

/// Returns whether a function takes the arguments of a call that names another one.
pub(crate) fn takes(
    name: &str,
    call: &ast::Call,
    arguments: &[TypedExpr],
    settings: Settings,
    has_aggregates: bool,
) -> bool {
    let types: Vec<DataType> = arguments.iter().map(|a| a.data_type.clone()).collect();
    let constants: Vec<Option<Value>> = arguments.iter().map(|a| constant(&a.expr)).collect();
    let with = CallArguments { types: &types, constants: &constants, settings: &settings };
    if let Some(function) = scalars::find(name)
        && !call.star
        && !call.distinct
        && (function.resolve)(&with).is_ok()
    {
        return true;
    }
    has_aggregates && aggregate::find(name).is_some_and(|function| (function.bind)(&with).is_ok())
}

/// Turns a signature error into a diagnostic that points at the argument.
pub(crate) fn signature(
    shown: &str,
    error: &SignatureError,
    arguments: &[TypedExpr],
    form: &str,
    span: Span,
) -> Diagnostic {
    let at = match error {
        SignatureError::Type { position, .. } | SignatureError::Constant { position, .. } => {
            arguments.get(position.saturating_sub(1)).map_or(span, |argument| argument.span)
        }
        SignatureError::Count { .. } | SignatureError::Mismatch(_) => span,
    };
    let code = match error {
        SignatureError::Count { .. } => code::UNDEFINED_FUNCTION,
        SignatureError::Constant { .. } => code::INVALID_PARAMETER,
        SignatureError::Type { .. } | SignatureError::Mismatch(_) => code::DATATYPE_MISMATCH,
    };
    Diagnostic::new(code, format!("{shown}: {error}"))
        .at(at)
        .with_hint(format!("The signature is {form}."))
}

/// Returns the SQL spelling of an operator.
fn symbol(name: &str) -> &str {
    match name {
        "op_add" | "op_plus" => "+",
        "op_subtract" | "op_negate" => "-",
        "op_multiply" => "*",
        "op_divide" => "/",
        "op_int_divide" => "DIV",
        "op_modulo" => "%",
        "op_bit_and" => "&",
        "op_bit_or" => "|",
        "op_bit_xor" => "^",
        "op_bit_not" => "~",
        "op_xor" => "XOR",
        "op_concat" => "||",
        "op_eq" => "=",
        "op_ne" => "!=",
        "op_lt" => "<",
        "op_le" => "<=",
        "op_gt" => ">",
        "op_ge" => ">=",
        "op_between" => "BETWEEN",
        "op_not_between" => "NOT BETWEEN",
        "op_in" => "IN",
        "op_case" => "CASE",
        "op_like" => "LIKE",
        "op_ilike" => "ILIKE",
        "op_rlike" => "RLIKE",
        "element_at" => "[]",
        other => other,
    }
}
