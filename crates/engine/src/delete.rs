//! DELETE: which rows a WHERE of the dialect chooses, and their removal.
//!
//! `session` calls it. Conditions are joined by AND; each compares a column with a constant. Where
//! the table has declared indexes they name exactly the key of one of them, its event time, or
//! both, so that a DELETE says what it means in the terms of the table. Without declared indexes
//! any column may be compared.

use std::cmp::Ordering;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Compatibility;
use lockstep_plan::{BindOptions, bind_constant, quoted_name, text_constant};
use lockstep_row::{Arena, DataType, Datum, IndexSpec, RowView, TableSchema, Value};
use lockstep_sql::ast::{BinaryOperator, Expr, ExprKind, Ident};
use lockstep_table::Table;

use crate::{
    append, create_table,
    inspect::declared_schema,
    literal::{Place, coerce},
};

/// `column operator value`; `column IS NULL` is an equality with NULL.
#[derive(Debug)]
struct Condition {
    column: usize,
    operator: BinaryOperator,
    value: Value,
    span: Span,
    /// Whether no row can fulfil it: nothing compares with NULL.
    is_never: bool,
}

/// Runs a DELETE and returns how many rows it removed.
pub(crate) fn delete(table: &Table, filter: Option<&Expr>, options: &BindOptions) -> Result<u64> {
    let Some(filter) = filter else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "DELETE needs a WHERE")
            .with_hint("TRUNCATE TABLE removes every row.")
            .err();
    };
    let schema = declared_schema(table);
    let mut conditions = Vec::new();
    collect(filter, &schema, options, &mut conditions)?;
    check_repetition(&conditions, &schema)?;
    check_indexes(&conditions, &schema, filter.span)?;
    if conditions.iter().any(|condition| condition.is_never) {
        return Ok(0);
    }
    let arena = Arena::new();
    let is_deleted =
        |row: RowView<'_>| conditions.iter().all(|condition| condition.holds(row, &arena));
    table.delete(is_deleted).map_err(|error| append::refused(&error))
}

/// Splits a chain of ANDs.
fn collect(
    expr: &Expr,
    schema: &TableSchema,
    options: &BindOptions,
    conditions: &mut Vec<Condition>,
) -> Result<()> {
    let (operator, left, right) = match &expr.kind {
        ExprKind::Binary { operator, left, right } => (operator, left, right),
        ExprKind::IsNull { operand, negated: false } => {
            let ExprKind::Column(path) = &operand.kind else { return not_a_condition(expr.span) };
            let column = column_of(path, schema, expr.span)?;
            let (operator, value) = (BinaryOperator::Equal, Value::Null);
            let condition = Condition { column, operator, value, span: expr.span, is_never: false };
            conditions.push(condition);
            return Ok(());
        }
        _ => return not_a_condition(expr.span),
    };
    if *operator == BinaryOperator::And {
        collect(left, schema, options, conditions)?;
        return collect(right, schema, options, conditions);
    }
    for side in [left, right] {
        refuse_quoted_name(side, schema, options)?;
    }
    let (column, operator, constant) = match (&left.kind, &right.kind) {
        (ExprKind::Column(path), _) => (path, *operator, right),
        (_, ExprKind::Column(path)) => (path, mirrored(*operator), left),
        _ => return not_a_condition(expr.span),
    };
    let is_comparison = matches!(
        operator,
        BinaryOperator::Equal
            | BinaryOperator::Less
            | BinaryOperator::LessOrEqual
            | BinaryOperator::Greater
            | BinaryOperator::GreaterOrEqual
    );
    let Some(value) = bind_constant(constant, options).filter(|_| is_comparison) else {
        return not_a_condition(expr.span);
    };
    let column = column_of(column, schema, expr.span)?;
    let is_standard = options.settings.compatibility == Compatibility::Standard;
    let to = &schema.columns[column].data_type;
    let value = match &value {
        Value::String(text) if is_standard && is_read_from_text(to) => {
            text_constant(text, to, options.settings, constant.span)?.0
        }
        value => {
            let place = Place { column: &schema.columns[column].name, span: Some(constant.span) };
            coerce(value, to, options.settings, &place)?
        }
    };
    // OpenMLDB takes NULL for a key like any other.
    let is_never = is_standard && value == Value::Null;
    conditions.push(Condition { column, operator, value, span: expr.span, is_never });
    Ok(())
}

fn column_of(path: &[Ident], schema: &TableSchema, span: Span) -> Result<usize> {
    let name = &path.last().expect("a name has at least one part").text;
    create_table::find_column(schema, name, span)
}

/// Whether a text constant takes this type when it is compared with it.
fn is_read_from_text(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::String | DataType::Array(_) | DataType::Map(..))
}

/// A text in double quotes may be meant for a column.
fn refuse_quoted_name(side: &Expr, schema: &TableSchema, options: &BindOptions) -> Result<()> {
    match &side.kind {
        ExprKind::QuotedText(text)
            if options.settings.compatibility == Compatibility::Standard
                && schema.find_column(text).is_some() =>
        {
            quoted_name(text, side.span).err()
        }
        _ => Ok(()),
    }
}

fn not_a_condition<T>(span: Span) -> Result<T> {
    Diagnostic::new(
        code::FEATURE_NOT_SUPPORTED,
        "DELETE takes conditions `column = constant`, joined by AND",
    )
    .at(span)
    .with_detail("The event time of an index may also be compared with <, <=, > and >=.")
    .err()
}

fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    match operator {
        BinaryOperator::Less => BinaryOperator::Greater,
        BinaryOperator::LessOrEqual => BinaryOperator::GreaterOrEqual,
        BinaryOperator::Greater => BinaryOperator::Less,
        BinaryOperator::GreaterOrEqual => BinaryOperator::LessOrEqual,
        other => other,
    }
}

/// A column has one `=`, or at most one lower and one upper bound.
fn check_repetition(conditions: &[Condition], schema: &TableSchema) -> Result<()> {
    let side = |operator: BinaryOperator| match operator {
        BinaryOperator::Less | BinaryOperator::LessOrEqual => Some(Ordering::Less),
        BinaryOperator::Greater | BinaryOperator::GreaterOrEqual => Some(Ordering::Greater),
        _ => None,
    };
    for (at, condition) in conditions.iter().enumerate() {
        let mut earlier = conditions[..at].iter().filter(|other| other.column == condition.column);
        let is_repeated = earlier.any(|other| {
            let sides = (side(other.operator), side(condition.operator));
            sides.0.is_none() || sides.1.is_none() || sides.0 == sides.1
        });
        if is_repeated {
            let name = &schema.columns[condition.column].name;
            let message = format!("DELETE has two conditions on `{name}` that exclude each other");
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(condition.span).err();
        }
    }
    Ok(())
}

/// Some declared index must be able to say which rows are meant.
fn check_indexes(conditions: &[Condition], schema: &TableSchema, span: Span) -> Result<()> {
    let mut declared = schema.indexes.iter().filter(|index| index.declared).peekable();
    if declared.peek().is_none() {
        return check_ranges(conditions, schema);
    }
    if declared.any(|index| serves(index, conditions)) {
        return Ok(());
    }
    let shown = |index: &IndexSpec| {
        let name = |column: &usize| format!("`{}`", schema.columns[*column].name);
        let keys: Vec<String> = index.keys.iter().map(name).collect();
        let ts = index.event_time.as_ref().map(|ts| format!(" and event time {}", name(ts)));
        format!("{} ({}){}", index.name, keys.join(", "), ts.unwrap_or_default())
    };
    let indexes: Vec<String> = schema.indexes.iter().filter(|i| i.declared).map(shown).collect();
    Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "no index says which rows to delete")
        .at(span)
        .with_detail(format!("The indexes are: {}.", indexes.join("; ")))
        .with_hint("Name all key columns of one index with `=`, its event time, or both.")
        .err()
}

/// Whether the conditions are on exactly the index's key, its event time, or both.
fn serves(index: &IndexSpec, conditions: &[Condition]) -> bool {
    let is_key = |condition: &&Condition| {
        index.keys.contains(&condition.column) && condition.operator == BinaryOperator::Equal
    };
    let keys = conditions.iter().filter(is_key).count();
    let times = conditions
        .iter()
        .filter(|condition| !is_key(condition))
        .filter(|condition| index.event_time == Some(condition.column))
        .count();
    keys + times == conditions.len() && (keys == index.keys.len() || keys == 0)
}

/// Without declared indexes any column whose values have an order may be compared.
fn check_ranges(conditions: &[Condition], schema: &TableSchema) -> Result<()> {
    for condition in conditions {
        let column = &schema.columns[condition.column];
        if matches!(column.data_type, DataType::Array(_) | DataType::Map(..)) {
            let message = format!("DELETE does not compare a {}", column.data_type);
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(condition.span).err();
        }
    }
    Ok(())
}

impl Condition {
    /// NULL equals NULL here, as in entity keys (what it says of `= NULL` was settled before); a
    /// range holds for no NULL.
    fn holds(&self, row: RowView<'_>, arena: &Arena) -> bool {
        let stored: Datum<'_> = row.get(self.column);
        let value = self.value.as_datum(arena);
        if self.operator == BinaryOperator::Equal {
            return stored.is_bit_equal(&value) || order(stored, value) == Some(Ordering::Equal);
        }
        let Some(order) = order(stored, value) else { return false };
        match self.operator {
            BinaryOperator::Less => order.is_lt(),
            BinaryOperator::LessOrEqual => order.is_le(),
            BinaryOperator::Greater => order.is_gt(),
            _ => order.is_ge(),
        }
    }
}

/// The order of two values of a column, as WHERE has it; `None` with NULL or NaN.
fn order(left: Datum<'_>, right: Datum<'_>) -> Option<Ordering> {
    match (left, right) {
        (Datum::String(left), Datum::String(right)) => Some(left.cmp(right)),
        (Datum::Bool(left), Datum::Bool(right)) => Some(left.cmp(&right)),
        _ => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
    }
}
