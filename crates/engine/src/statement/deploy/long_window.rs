//! The rules of the option `long_windows`: which windows may be named there.
//!
//! The option makes pre-aggregates for all keys of the deployment, whatever the bucket. It is refused
//! for the windows for which OpenMLDB refuses it; `pre_aggregation` has no such limits. DEPLOY checks
//! this before it creates anything.

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::{BoundQuery, CatalogTable, WrittenCall, WrittenWindow};
use lockstep_row::DataType;
use lockstep_sql::ast::{self, BinaryOperator, ExprKind};

use super::options::LongWindow;

/// The aggregates that have pre-aggregates.
const FUNCTIONS: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "count_where",
    "sum_where",
    "avg_where",
    "min_where",
    "max_where",
];

/// Checks every window that the option names.
pub(super) fn check(long_windows: &[LongWindow], query: &BoundQuery) -> Result<()> {
    for long in long_windows {
        let windows = &query.written.windows;
        let is_named = |window: &&WrittenWindow| {
            window.name.as_ref().is_some_and(|name| name.text == long.name)
        };
        let mut found = windows.iter().filter(is_named).peekable();
        if found.peek().is_none() {
            let message = format!("long window `{}` does not exist in the query", long.name);
            let names = windows.iter().filter_map(|window| window.name.as_ref());
            return Diagnostic::new(code::UNDEFINED_OBJECT, message)
                .at(long.span)
                .with_nearest(&long.name, names.map(|name| name.text.as_str()))
                .err();
        }
        found.try_for_each(check_window)?;
    }
    Ok(())
}

/// Checks one window: over one stored table, with aggregates that have pre-aggregates.
fn check_window(window: &WrittenWindow) -> Result<()> {
    if !window.unions.is_empty() {
        return refused("a long window cannot have a UNION", window.spec.span);
    }
    let Some(table) = stored_table(&window.base) else {
        return refused("a long window requires a stored table", window.spec.span);
    };
    window.calls.iter().try_for_each(|call| check_call(call, table))
}

/// Checks one aggregate of a long window.
fn check_call(written: &WrittenCall, table: &CatalogTable) -> Result<()> {
    let name = written.function.name;
    if !FUNCTIONS.contains(&name) {
        let message = format!("function `{name}` is not supported in a long window");
        let error = Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(written.span);
        return error.with_hint(format!("Supported functions are {}.", FUNCTIONS.join(", "))).err();
    }
    if !written.is_whole_item {
        return refused(
            "an aggregate of a long window must be a complete item of the select list",
            written.span,
        );
    }
    let call = &written.call;
    let value = (!call.star).then(|| &call.arguments[0]);
    if let Some(value) = value
        && !matches!(value.kind, ExprKind::Column(_))
    {
        return refused(
            "the argument of an aggregate of a long window must be a column",
            value.span,
        );
    }
    if !name.ends_with("_where") {
        return Ok(());
    }
    if let Some(value) = value
        && name != "count_where"
        && !column_type(&written.arguments[0], table).is_some_and(is_number)
    {
        return refused(&format!("`{name}` in a long window requires a number"), value.span);
    }
    let condition = call.arguments.last().expect("a conditional aggregate has a condition");
    let filtered = written.arguments.last().expect("a conditional aggregate has a condition");
    check_condition(condition, filtered, table)
}

/// Checks that a condition is one comparison of a column and a constant.
fn check_condition(condition: &ast::Expr, bound: &Expr, table: &CatalogTable) -> Result<()> {
    let is_comparison = |operator: BinaryOperator| {
        matches!(
            operator,
            BinaryOperator::Equal
                | BinaryOperator::NotEqual
                | BinaryOperator::Less
                | BinaryOperator::LessOrEqual
                | BinaryOperator::Greater
                | BinaryOperator::GreaterOrEqual
        )
    };
    let is_right = match &condition.kind {
        ExprKind::Binary { operator, left, right } if is_comparison(*operator) => {
            (is_column(left) && is_constant(right)) || (is_constant(left) && is_column(right))
        }
        _ => false,
    };
    if !is_right {
        return refused(
            "a condition of a long window must compare one column with a constant",
            condition.span,
        );
    }
    let filter = bound.column_refs().into_iter().next().cloned().map(Expr::Column);
    match filter.and_then(|column| column_type(&column, table)) {
        Some(DataType::Date | DataType::Timestamp) => {
            refused("a condition of a long window cannot compare a date or a time", condition.span)
        }
        _ => Ok(()),
    }
}

fn is_column(expr: &ast::Expr) -> bool {
    matches!(expr.kind, ExprKind::Column(_))
}

fn is_constant(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::QuotedText(_) => true,
        ExprKind::Unary { operand, .. } => is_constant(operand),
        _ => false,
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_float()
}

/// Returns the type of the column that an expression refers to, through conversions.
fn column_type<'t>(expr: &Expr, table: &'t CatalogTable) -> Option<&'t DataType> {
    let column = expr.column_refs().into_iter().next()?;
    let position = table.schema.find_column(&column.name)?;
    Some(&table.schema.columns[position].data_type)
}

fn stored_table(plan: &LogicalPlan) -> Option<&CatalogTable> {
    let LogicalPlan::TableScan(scan) = plan else { return None };
    CatalogTable::of(scan.source.as_ref())
}

/// Fails with the error of a window that cannot be long.
fn refused<T>(message: &str, span: lockstep_diagnostic::Span) -> Result<T> {
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
        .at(span)
        .with_hint(
            "Remove the window from the option `long_windows`; other windows do not have these \
             limits.",
        )
        .err()
}
