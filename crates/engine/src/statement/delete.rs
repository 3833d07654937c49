//! DELETE: removes the rows that a WHERE selects.
//!
//! Conditions are joined by AND, and each compares a column with a constant. Where the table has
//! declared indexes, the conditions must be on exactly the key of one of them, on its event time,
//! or on both, as in OpenMLDB. Without declared indexes any column may be compared.

use std::cmp::Ordering;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Compatibility;
use lockstep_plan::{BindOptions, bind_constant, quoted_name, text_constant};
use lockstep_row::{Arena, DataType, Datum, IndexSpec, RowView, TableSchema, Value, order_floats};
use lockstep_sql::ast::{BinaryOperator, Expr, ExprKind, Ident, ObjectName};
use lockstep_table::Table;
use serde::{Deserialize, Serialize};

use super::create_index::find_column;
use crate::{
    Output, Parameter, Session,
    append::table_error,
    inspect::declared_schema,
    literal::{ConstantPosition, coerce},
};

impl Session {
    /// Runs DELETE.
    pub(crate) fn delete(
        &self,
        name: &ObjectName,
        filter: Option<&Expr>,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.require_online("DELETE", name.name.span)?;
        let entry = self.find_entry(name)?;
        let options = self.bind_options(parameters);
        let deleted = entry.write(|table| delete(table, filter, &options))?;
        Ok(Output { rows_affected: Some(deleted), ..Output::of_message("DELETE") })
    }
}

/// `column operator value`; `column IS NULL` is an equality with NULL.
#[derive(Debug, Serialize, Deserialize)]
struct DeleteCondition {
    column: usize,
    #[serde(with = "operator_text")]
    operator: BinaryOperator,
    value: Value,
    #[serde(skip)]
    span: Span,
    /// Whether it is true for no row, as a comparison with NULL is.
    is_never: bool,
    /// Whether NaN is greater than every number, as it is by default; otherwise it has no order. A log
    /// that was written before NaN had an order has no such field, and removes the same rows again.
    #[serde(default)]
    is_nan_ordered: bool,
}

/// The operator of a condition as the log has it.
mod operator_text {
    use lockstep_sql::ast::BinaryOperator;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    const TEXTS: [(BinaryOperator, &str); 5] = [
        (BinaryOperator::Equal, "="),
        (BinaryOperator::Less, "<"),
        (BinaryOperator::LessOrEqual, "<="),
        (BinaryOperator::Greater, ">"),
        (BinaryOperator::GreaterOrEqual, ">="),
    ];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
    pub(super) fn serialize<S: Serializer>(
        operator: &BinaryOperator,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let found = TEXTS.iter().find(|(known, _)| known == operator);
        found.expect("a condition is a comparison").1.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BinaryOperator, D::Error> {
        let text = String::deserialize(from)?;
        let found = TEXTS.iter().find(|(_, known)| *known == text);
        found.map(|(operator, _)| *operator).ok_or_else(|| D::Error::custom("not a comparison"))
    }
}

/// Removes the rows that the filter selects, and returns how many they are.
fn delete(table: &Table, filter: Option<&Expr>, options: &BindOptions) -> Result<u64> {
    let Some(filter) = filter else {
        return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "DELETE requires a WHERE clause")
            .with_hint("Use TRUNCATE TABLE to remove all rows.")
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
    let logged = serde_json::to_vec(&conditions).expect("values are text and numbers");
    table.delete_logged(is_deleted, &logged).map_err(|error| table_error(&error))
}

/// The condition of a DELETE that the log has.
pub(crate) struct LoggedCondition {
    conditions: Vec<DeleteCondition>,
    arena: Arena,
}

impl LoggedCondition {
    /// Reads a condition.
    pub(crate) fn read(logged: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self { conditions: serde_json::from_slice(logged)?, arena: Arena::new() })
    }

    /// Whether it is one of a table's rows.
    pub(crate) fn is_of(&self, schema: &TableSchema) -> bool {
        self.conditions.iter().all(|condition| condition.column < schema.columns.len())
    }

    /// Whether it holds for a row.
    pub(crate) fn holds(&self, row: RowView<'_>) -> bool {
        self.conditions.iter().all(|condition| condition.holds(row, &self.arena))
    }
}

/// Collects the conditions of a chain of ANDs.
fn collect(
    expr: &Expr,
    schema: &TableSchema,
    options: &BindOptions,
    conditions: &mut Vec<DeleteCondition>,
) -> Result<()> {
    let (operator, left, right) = match &expr.kind {
        ExprKind::Binary { operator, left, right } => (operator, left, right),
        ExprKind::IsNull { operand, negated: false } => {
            let ExprKind::Column(path) = &operand.kind else { return not_a_condition(expr.span) };
            let column = column_of(path, schema, expr.span)?;
            let (operator, value) = (BinaryOperator::Equal, Value::Null);
            conditions.push(DeleteCondition {
                column,
                operator,
                value,
                span: expr.span,
                is_never: false,
                is_nan_ordered: false,
            });
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
            let position = ConstantPosition {
                column: &schema.columns[column].name,
                span: Some(constant.span),
            };
            coerce(value, to, options.settings, &position)?
        }
    };
    // OpenMLDB takes NULL for a key like any other.
    let is_never = is_standard && value == Value::Null;
    conditions.push(DeleteCondition {
        column,
        operator,
        value,
        span: expr.span,
        is_never,
        is_nan_ordered: is_standard,
    });
    Ok(())
}

fn column_of(path: &[Ident], schema: &TableSchema, span: Span) -> Result<usize> {
    let name = &path.last().expect("a name has at least one part").text;
    find_column(schema, name, span)
}

/// Whether a string constant is converted to this type when it is compared with it.
fn is_read_from_text(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::String | DataType::Array(_) | DataType::Map(..))
}

/// Refuses a string in double quotes that is also the name of a column.
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
        "DELETE supports only conditions `column = constant`, joined by AND",
    )
    .at(span)
    .with_detail("The event time of an index may also be compared with <, <=, > and >=.")
    .err()
}

/// Returns the operator that means the same with the operands exchanged.
fn mirrored(operator: BinaryOperator) -> BinaryOperator {
    match operator {
        BinaryOperator::Less => BinaryOperator::Greater,
        BinaryOperator::LessOrEqual => BinaryOperator::GreaterOrEqual,
        BinaryOperator::Greater => BinaryOperator::Less,
        BinaryOperator::GreaterOrEqual => BinaryOperator::LessOrEqual,
        other => other,
    }
}

/// Checks that a column has one `=`, or at most one lower and one upper bound.
fn check_repetition(conditions: &[DeleteCondition], schema: &TableSchema) -> Result<()> {
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
            let message = format!("DELETE has conflicting conditions on column `{name}`");
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(condition.span).err();
        }
    }
    Ok(())
}

/// Checks that the conditions are on the columns of some declared index, where there is one.
fn check_indexes(conditions: &[DeleteCondition], schema: &TableSchema, span: Span) -> Result<()> {
    let mut declared = schema.indexes.iter().filter(|index| index.declared).peekable();
    if declared.peek().is_none() {
        return check_ranges(conditions, schema);
    }
    if declared.any(|index| is_covered_by(conditions, index)) {
        return Ok(());
    }
    let shown = |index: &IndexSpec| {
        let name = |column: &usize| format!("`{}`", schema.columns[*column].name);
        let keys: Vec<String> = index.keys.iter().map(name).collect();
        let ts = index.event_time.as_ref().map(|ts| format!(" and event time {}", name(ts)));
        format!("{} ({}){}", index.name, keys.join(", "), ts.unwrap_or_default())
    };
    let indexes: Vec<String> = schema.indexes.iter().filter(|i| i.declared).map(shown).collect();
    Diagnostic::new(
        code::FEATURE_NOT_SUPPORTED,
        "the conditions of DELETE do not match the columns of an index",
    )
    .at(span)
    .with_detail(format!("The indexes are: {}.", indexes.join("; ")))
    .with_hint("Compare all key columns of one index with `=`, its event time, or both.")
    .err()
}

/// Whether the conditions are on exactly the index's key, its event time, or both.
fn is_covered_by(conditions: &[DeleteCondition], index: &IndexSpec) -> bool {
    let is_key = |condition: &&DeleteCondition| {
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

/// Checks, for a table without declared indexes, that the values of every compared column have an
/// order.
fn check_ranges(conditions: &[DeleteCondition], schema: &TableSchema) -> Result<()> {
    for condition in conditions {
        let column = &schema.columns[condition.column];
        if matches!(column.data_type, DataType::Array(_) | DataType::Map(..)) {
            let message = format!("DELETE cannot compare a column of type {}", column.data_type);
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message).at(condition.span).err();
        }
    }
    Ok(())
}

impl DeleteCondition {
    /// Whether the condition is true for a row. NULL equals NULL, as in entity keys (`= NULL` is
    /// excluded by `is_never`); a range is true for no NULL.
    fn holds(&self, row: RowView<'_>, arena: &Arena) -> bool {
        let stored: Datum<'_> = row.get(self.column);
        let value = self.value.as_datum(arena);
        if self.operator == BinaryOperator::Equal {
            return stored.is_bit_equal(&value)
                || self.order(stored, value) == Some(Ordering::Equal);
        }
        let Some(order) = self.order(stored, value) else { return false };
        match self.operator {
            BinaryOperator::Less => order.is_lt(),
            BinaryOperator::LessOrEqual => order.is_le(),
            BinaryOperator::Greater => order.is_gt(),
            _ => order.is_ge(),
        }
    }

    /// Compares two values of a column as WHERE does; `None` with NULL, and with a NaN that has no order.
    fn order(&self, left: Datum<'_>, right: Datum<'_>) -> Option<Ordering> {
        match (left, right) {
            (Datum::String(left), Datum::String(right)) => Some(left.cmp(right)),
            (Datum::Bool(left), Datum::Bool(right)) => Some(left.cmp(&right)),
            _ => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => {
                    let (left, right) = (left.as_f64()?, right.as_f64()?);
                    match self.is_nan_ordered {
                        true => Some(order_floats(left, right)),
                        false => left.partial_cmp(&right),
                    }
                }
            },
        }
    }
}
