//! The compiler from a DataFusion expression to a row expression.
//!
//! [`RowExpr::compile`] calls it. A form that has no native evaluation becomes a [`Vectorised`]
//! leaf, with everything below it.

use datafusion::{
    common::{
        Column, DFSchema, ScalarValue,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    error::DataFusionError,
    logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator, expr::ScalarFunction},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::{
    Arena, DataType, Value,
    arrow::{ColumnReader, data_type},
};

use super::{ComparisonOperator, RowExpr, RowNode, is_native, vectorised::Vectorised};
use crate::udf::as_scalar;

pub(super) fn compile(expr: &Expr, schema: &DFSchema) -> Result<RowExpr> {
    let node = node(expr, schema)?;
    Ok(RowExpr { node, data_type: type_of(expr, schema)?, columns: columns_of(expr, schema)? })
}

/// Returns the positions of the columns that an expression reads, ascending.
pub(super) fn columns_of(expr: &Expr, schema: &DFSchema) -> Result<Vec<usize>> {
    let mut names: Vec<&Column> = Vec::new();
    expr.apply(|expr| {
        if let Expr::Column(column) = expr {
            names.push(column);
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(|error| defect(&error))?;
    let mut columns =
        names.into_iter().map(|name| position(name, schema)).collect::<Result<Vec<usize>>>()?;
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}

/// Returns the type of an expression. Conditions are BOOL whatever their operands: DataFusion would
/// derive the types of all operands, and build their names, again at each level.
pub(super) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    let is_truth = match expr {
        Expr::BinaryExpr(binary) => {
            use Operator::{And, Eq, Gt, GtEq, Lt, LtEq, NotEq, Or};
            matches!(binary.op, And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq)
        }
        Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        _ => false,
    };
    if is_truth {
        return Ok(DataType::Bool);
    }
    let arrow_type = expr.get_type(schema).map_err(|error| defect(&error))?;
    data_type(&arrow_type).ok_or_else(|| {
        Box::new(Diagnostic::internal(format!(
            "an expression has the unsupported Arrow type {arrow_type}"
        )))
    })
}

pub(super) fn defect(error: &DataFusionError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.strip_backtrace()))
}

fn node(expr: &Expr, schema: &DFSchema) -> Result<RowNode> {
    let boxed = |expr: &Expr| node(expr, schema).map(Box::new);
    Ok(match expr {
        Expr::Alias(alias) => node(&alias.expr, schema)?,
        Expr::Column(column) => RowNode::Column(position(column, schema)?),
        Expr::Literal(value, _) => match literal(value) {
            Some(value) => RowNode::Literal(value),
            None => vectorised(expr, schema)?,
        },
        Expr::BinaryExpr(binary) => match native_binary(binary, schema)? {
            Some(node) => node,
            None => vectorised(expr, schema)?,
        },
        Expr::Not(operand) if type_of(operand, schema)? == DataType::Bool => {
            RowNode::Not(boxed(operand)?)
        }
        Expr::IsNull(operand) => RowNode::IsNull(boxed(operand)?),
        Expr::IsNotNull(operand) => RowNode::IsNotNull(boxed(operand)?),
        Expr::Case(case) => match native_case(case, schema)? {
            Some(node) => node,
            None => vectorised(expr, schema)?,
        },
        Expr::ScalarFunction(call) => match native_call(call, schema)? {
            Some(node) => node,
            None => vectorised(expr, schema)?,
        },
        other => vectorised(other, schema)?,
    })
}

fn vectorised(expr: &Expr, schema: &DFSchema) -> Result<RowNode> {
    Vectorised::new(expr, schema).map(Box::new).map(RowNode::Vectorised)
}

fn position(column: &Column, schema: &DFSchema) -> Result<usize> {
    schema.index_of_column(column).map_err(|error| defect(&error))
}

/// Returns the value of a literal; `None` for one of a type that the dialect does not have.
fn literal(value: &ScalarValue) -> Option<Value> {
    data_type(&value.data_type())?;
    let array = value.to_array().ok()?;
    let arena = Arena::new();
    Some(ColumnReader::new(array.as_ref()).get(0, &arena).to_value())
}

fn native_binary(binary: &BinaryExpr, schema: &DFSchema) -> Result<Option<RowNode>> {
    let BinaryExpr { left, op, right } = binary;
    let (left_type, right_type) = (type_of(left, schema)?, type_of(right, schema)?);
    let same =
        |is_right_type: fn(&DataType) -> bool| left_type == right_type && is_right_type(&left_type);
    let comparison = match op {
        Operator::And | Operator::Or => None,
        Operator::Eq => Some(ComparisonOperator::Equal),
        Operator::NotEq => Some(ComparisonOperator::NotEqual),
        Operator::Lt => Some(ComparisonOperator::Less),
        Operator::LtEq => Some(ComparisonOperator::LessOrEqual),
        Operator::Gt => Some(ComparisonOperator::Greater),
        Operator::GtEq => Some(ComparisonOperator::GreaterOrEqual),
        _ => return Ok(None),
    };
    let is_logic = comparison.is_none();
    if !same(if is_logic { |side| *side == DataType::Bool } else { is_native }) {
        return Ok(None);
    }
    let sides = Box::new([node(left, schema)?, node(right, schema)?]);
    Ok(Some(match (comparison, op) {
        (Some(comparison), _) => RowNode::Compare(comparison, sides),
        (None, Operator::And) => RowNode::And(sides),
        (None, _) => RowNode::Or(sides),
    }))
}

/// Compiles a searched CASE whose conditions are BOOL and whose branches have one type; `None` for
/// any other CASE.
fn native_case(case: &Case, schema: &DFSchema) -> Result<Option<RowNode>> {
    if case.expr.is_some() {
        return Ok(None);
    }
    let mut results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let result_types: Vec<DataType> =
        results.by_ref().map(|then| type_of(then, schema)).collect::<Result<_>>()?;
    if result_types.windows(2).any(|pair| pair[0] != pair[1]) {
        return Ok(None);
    }
    let mut branches = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in &case.when_then_expr {
        if type_of(when, schema)? != DataType::Bool {
            return Ok(None);
        }
        branches.push((node(when, schema)?, node(then, schema)?));
    }
    let otherwise = case.else_expr.as_ref().map(|expr| node(expr, schema).map(Box::new));
    Ok(Some(RowNode::Case { branches, otherwise: otherwise.transpose()? }))
}

fn native_call(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<RowNode>> {
    let Some(udf) = as_scalar(&call.func) else { return Ok(None) };
    let arguments = call.args.iter().map(|argument| node(argument, schema));
    let arguments = arguments.collect::<Result<Vec<_>>>()?;
    Ok(Some(RowNode::Call { implementation: udf.implementation().clone(), arguments }))
}
