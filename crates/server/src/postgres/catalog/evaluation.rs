//! The evaluator of catalog queries: it walks the tree that `sqlparser` makes of PostgreSQL's SQL.
//!
//! | file | what it has |
//! |---|---|
//! | `query` | WITH, set operations, VALUES, ORDER BY, LIMIT |
//! | `projection` | SELECT: groups, window functions, the select list, DISTINCT |
//! | `from`, `source`, `join` | FROM, its sides, joins and WHERE |
//! | `evaluation`, `operator`, `function`, `aggregate` | the value of an expression |
//! | `scope`, `analysis`, `static_type` | names, what an expression contains, types without values |
//! | `limits` | rows, work, memory and the sizes of values |
//!
//! Inner queries are run for each row, so that they may be correlated wherever they are.
//! *Cost*: what the joins need, up to a limit of steps; it is cancelled like every statement.
//! *Memory*: [`Evaluator::value`] counts the value that it computes as kept. A caller that drops the value
//! releases it.

use std::{collections::BTreeMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Session;
use lockstep_function::scalar::CaseSensitivity;
use lockstep_host::{query::current, with_large_stack};
use sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArguments, Query, Subscript,
    TrimWhereField, UnaryOperator, Value,
};

use super::{
    aggregate::is_aggregate,
    analysis::{function_name, has_set, is_set},
    from::unsupported,
    limits::CatalogUsage,
    operator::{Quantifier, like, negation, operate, quantified},
    relation::CatalogRelation,
    scope::{Scope, SetPosition},
    source::arguments_of,
    static_type::type_word,
    tables::make_table,
    value::CatalogValue,
};

/// Runs catalog queries of a session.
pub(super) struct Evaluator<'s> {
    pub(super) session: &'s Session,
    pub(super) parameters: Vec<CatalogValue>,
    /// The queries of WITH that are in force, the innermost last.
    pub(super) named: Vec<(String, CatalogRelation)>,
    relations: BTreeMap<String, CatalogRelation>,
    pub(super) usage: CatalogUsage,
}

impl<'s> Evaluator<'s> {
    pub(super) fn new(session: &'s Session, parameters: Vec<CatalogValue>) -> Self {
        let usage = CatalogUsage::new(current().and_then(|context| context.memory_bytes()));
        Self { session, parameters, named: Vec::new(), relations: BTreeMap::new(), usage }
    }

    /// Returns a table: one of WITH, or one of the catalogs.
    pub(super) fn relation(&mut self, name: &str) -> Result<CatalogRelation> {
        let named = self.named.iter().rev().find(|(known, _)| known == name);
        if let Some(found) = named.map(|(_, relation)| relation).or(self.relations.get(name)) {
            return Ok(found.clone());
        }
        let made = make_table(self.session, name)?;
        self.relations.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    /// Computes an expression. A value that is not one of a row is counted as kept.
    pub(super) fn value(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        self.work(0)?;
        Ok(match expr {
            Expr::Identifier(name) => match scope.column(None, &name.value) {
                Ok(value) => value,
                Err(error) => scope.only_value(&name.value).ok_or(error)?,
            },
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, name] => scope.column(Some(&table.value), &name.value)?,
                _ => CatalogValue::Null,
            },
            Expr::Value(value) => {
                let value = self.constant(&value.value)?;
                self.hold(value.heap_bytes())?;
                value
            }
            Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => self.value(inner, scope)?,
            other => {
                let held = self.held();
                let value = with_large_stack(|| self.compound(other, scope))?;
                // Its parts are dropped.
                self.release_to(held);
                self.hold_value(&value)?;
                value
            }
        })
    }

    /// Computes an expression for a moment: its value is not counted as kept.
    pub(super) fn moment(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        let held = self.held();
        let value = self.value(expr, scope)?;
        self.release_to(held);
        Ok(value)
    }

    /// Computes an expression that has parts.
    fn compound(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        Ok(match expr {
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right, scope)?,
            Expr::UnaryOp { op, expr } => {
                let value = self.value(expr, scope)?;
                signed(*op, value)?
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let operand = operand.as_ref().map(|o| self.value(o, scope)).transpose()?;
                for when in conditions {
                    let found = self.value(&when.condition, scope)?;
                    let holds = match &operand {
                        None => found.is_true(),
                        Some(operand) => operate(operand, &BinaryOperator::Eq, &found)?.is_true(),
                    };
                    if holds {
                        return self.value(&when.result, scope);
                    }
                }
                match else_result {
                    Some(result) => self.value(result, scope)?,
                    None => CatalogValue::Null,
                }
            }
            Expr::Function(function) => self.function(function, scope)?,
            Expr::Cast { expr, data_type, .. } => {
                let value = self.value(expr, scope)?;
                self.cast(value, &type_word(data_type))?
            }
            Expr::TypedString(typed) => {
                let value = self.constant(&typed.value.value)?;
                self.cast(value, &type_word(&typed.data_type))?
            }
            Expr::Subquery(query) => self.only_row(query, scope)?,
            Expr::Array(_) | Expr::Tuple(_) | Expr::CompoundFieldAccess { .. } => {
                self.nested(expr, scope)?
            }
            Expr::Substring { .. } | Expr::Trim { .. } | Expr::Position { .. } => {
                self.text_part(expr, scope)?
            }
            Expr::AtTimeZone { timestamp, .. } => self.value(timestamp, scope)?,
            other => self.condition(other, scope)?,
        })
    }

    /// Returns the value of a query that has one column and at most one row.
    fn only_row(&mut self, query: &Query, scope: &Scope<'_>) -> Result<CatalogValue> {
        let rows = self.query(query, Some(scope))?.rows;
        if rows.len() > 1 {
            let message = "more than one row returned by a subquery used as an expression";
            return Diagnostic::new(code::CARDINALITY_VIOLATION, message).err();
        }
        Ok(rows.first().map_or(CatalogValue::Null, |row| only(row)))
    }

    /// Computes an array, a record, or a part of one.
    fn nested(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        Ok(match expr {
            Expr::Array(array) => {
                let items = array.elem.iter().map(|item| self.value(item, scope));
                CatalogValue::array(items.collect::<Result<Vec<_>>>()?)
            }
            Expr::Tuple(items) => {
                let items = items.iter().map(|item| Ok(("", self.value(item, scope)?)));
                CatalogValue::Record(items.collect::<Result<Vec<_>>>()?.into())
            }
            Expr::CompoundFieldAccess { root, access_chain } => {
                let (mut value, rest) = match (root.as_ref(), access_chain.as_slice()) {
                    // `table.column[1]`.
                    (
                        Expr::Identifier(table),
                        [AccessExpr::Dot(Expr::Identifier(name)), rest @ ..],
                    ) => (scope.column(Some(&table.value), &name.value)?, rest),
                    (root, accesses) => (self.value(root, scope)?, accesses),
                };
                for access in rest {
                    value = self.access(&value, access, scope)?;
                }
                value
            }
            other => return unsupported(&format!("the expression {other}")),
        })
    }

    /// Computes a function that is written with words between its arguments.
    fn text_part(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        match expr {
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let mut parts = vec![expr.as_ref()];
                parts.extend(substring_from.as_deref());
                parts.extend(substring_for.as_deref());
                self.call_with("substring", &parts, scope)
            }
            Expr::Trim { expr, trim_what, trim_where, .. } => {
                let mut parts = vec![expr.as_ref()];
                parts.extend(trim_what.as_deref());
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                self.call_with(name, &parts, scope)
            }
            Expr::Position { expr, r#in } => self.call_with("strpos", &[r#in, expr], scope),
            other => unsupported(&format!("the expression {other}")),
        }
    }

    fn constant(&self, value: &Value) -> Result<CatalogValue> {
        Ok(match value {
            Value::Null => CatalogValue::Null,
            Value::Boolean(value) => CatalogValue::Bool(*value),
            Value::Number(text, _) => match text.parse() {
                Ok(number) => CatalogValue::Number(number),
                Err(_) => text.parse().map_or(CatalogValue::Null, CatalogValue::Real),
            },
            Value::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|name| name.parse::<usize>().ok());
                let value = number.and_then(|number| self.parameters.get(number.checked_sub(1)?));
                value.cloned().unwrap_or(CatalogValue::Null)
            }
            Value::DollarQuotedString(text) => CatalogValue::text(&text.value),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => CatalogValue::text(text),
            other => return unsupported(&format!("the constant {other}")),
        })
    }

    /// Computes an operator of two operands. AND and OR do not compute the second where the first decides.
    fn binary(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        let left = self.value(left, scope)?;
        let decided = match (operator, &left) {
            (BinaryOperator::And, CatalogValue::Bool(false)) => Some(false),
            (BinaryOperator::Or, CatalogValue::Bool(true)) => Some(true),
            _ => None,
        };
        if let Some(value) = decided {
            return Ok(CatalogValue::Bool(value));
        }
        let right = self.value(right, scope)?;
        operate(&left, operator, &right)
    }

    /// Computes IS DISTINCT FROM: `if_same` where both are the same. The parser takes an AND or OR behind
    /// the second operand for a part of it.
    fn sameness(
        &mut self,
        left: &Expr,
        right: &Expr,
        if_same: CatalogValue,
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        if let Expr::BinaryOp { left: operand, op, right: behind } = right
            && matches!(op, BinaryOperator::And | BinaryOperator::Or)
        {
            let first = self.sameness(left, operand, if_same, scope)?;
            let second = self.value(behind, scope)?;
            return operate(&first, op, &second);
        }
        let (left, right) = (self.value(left, scope)?, self.value(right, scope)?);
        let are_same = left.is_null() && right.is_null()
            || operate(&left, &BinaryOperator::Eq, &right)?.is_true();
        Ok(if are_same { if_same } else { negation(&if_same) })
    }

    /// Computes an expression whose value is true, false or NULL.
    fn condition(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        let is = |holds: bool| Ok(CatalogValue::Bool(holds));
        match expr {
            Expr::IsNull(inner) => is(self.value(inner, scope)?.is_null()),
            Expr::IsNotNull(inner) => is(!self.value(inner, scope)?.is_null()),
            Expr::IsTrue(inner) => is(self.value(inner, scope)?.is_true()),
            Expr::IsNotTrue(inner) => is(!self.value(inner, scope)?.is_true()),
            Expr::IsFalse(inner) => is(self.value(inner, scope)? == CatalogValue::Bool(false)),
            Expr::IsNotFalse(inner) => is(self.value(inner, scope)? != CatalogValue::Bool(false)),
            Expr::IsDistinctFrom(left, right) => {
                self.sameness(left, right, CatalogValue::Bool(false), scope)
            }
            Expr::IsNotDistinctFrom(left, right) => {
                self.sameness(left, right, CatalogValue::Bool(true), scope)
            }
            Expr::Exists { subquery, negated } => {
                let rows = self.query(subquery, Some(scope))?.rows;
                is(rows.is_empty() == *negated)
            }
            Expr::InList { negated, .. }
            | Expr::InSubquery { negated, .. }
            | Expr::Between { negated, .. }
            | Expr::Like { negated, .. }
            | Expr::ILike { negated, .. } => {
                let value = self.comparison(expr, scope)?;
                Ok(if *negated { negation(&value) } else { value })
            }
            other => self.comparison(other, scope),
        }
    }

    /// Compares a value with others, without the NOT that is written between them.
    fn comparison(&mut self, expr: &Expr, scope: &Scope<'_>) -> Result<CatalogValue> {
        let equal = BinaryOperator::Eq;
        match expr {
            Expr::InList { expr, list, .. } => {
                let value = self.value(expr, scope)?;
                let mut has_null = false;
                for member in list {
                    let found = operate(&value, &equal, &self.moment(member, scope)?)?;
                    if found.is_true() {
                        return Ok(found);
                    }
                    has_null |= found.is_null();
                }
                Ok(if has_null { CatalogValue::Null } else { CatalogValue::Bool(false) })
            }
            Expr::InSubquery { expr, subquery, .. } => {
                let value = self.value(expr, scope)?;
                let rows = self.query(subquery, Some(scope))?.rows;
                let members: Vec<CatalogValue> = rows.iter().map(|row| only(row)).collect();
                quantified(&value, &equal, &members, Quantifier::Any)
            }
            Expr::AnyOp { left, compare_op, right, .. } => {
                let (value, members) = self.members(left, right, scope)?;
                let Some(members) = members else { return Ok(CatalogValue::Null) };
                quantified(&value, compare_op, &members, Quantifier::Any)
            }
            Expr::AllOp { left, compare_op, right } => {
                let (value, members) = self.members(left, right, scope)?;
                let Some(members) = members else { return Ok(CatalogValue::Null) };
                quantified(&value, compare_op, &members, Quantifier::All)
            }
            Expr::Between { expr, low, high, .. } => {
                let value = self.value(expr, scope)?;
                let low = operate(&value, &BinaryOperator::GtEq, &self.value(low, scope)?)?;
                let high = operate(&value, &BinaryOperator::LtEq, &self.value(high, scope)?)?;
                operate(&low, &BinaryOperator::And, &high)
            }
            Expr::Like { expr: operand, pattern, escape_char, .. }
            | Expr::ILike { expr: operand, pattern, escape_char, .. } => {
                let case = match expr {
                    Expr::ILike { .. } => CaseSensitivity::Insensitive,
                    _ => CaseSensitivity::Sensitive,
                };
                let escape = escape_char.as_ref().map(|value| self.constant(&value.value));
                let escape = escape.transpose()?.map(|escape| escape.display());
                let (text, pattern) = (self.value(operand, scope)?, self.value(pattern, scope)?);
                like(&text, &pattern, escape.as_deref(), case)
            }
            other => unsupported(&format!("the expression {other}")),
        }
    }

    /// Returns the operand of ANY or ALL, and the members of its array or query; `None` of a NULL.
    fn members(
        &mut self,
        left: &Expr,
        right: &Expr,
        scope: &Scope<'_>,
    ) -> Result<(CatalogValue, Option<Vec<CatalogValue>>)> {
        let value = self.value(left, scope)?;
        let mut inner = right;
        while let Expr::Nested(expr) = inner {
            inner = expr;
        }
        if let Expr::Subquery(query) = inner {
            let rows = self.query(query, Some(scope))?.rows;
            return Ok((value, Some(rows.iter().map(|row| only(row)).collect())));
        }
        let members = match self.value(inner, scope)? {
            CatalogValue::Null => None,
            array => Some(array.elements()?.unwrap_or_else(|| vec![array])),
        };
        Ok((value, members))
    }

    /// Returns a field of a record, or an element or a part of an array.
    fn access(
        &mut self,
        value: &CatalogValue,
        access: &AccessExpr,
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        match (value, access) {
            (CatalogValue::Record(fields), AccessExpr::Dot(Expr::Identifier(name))) => {
                let found =
                    fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(&name.value));
                Ok(found.map_or(CatalogValue::Null, |(_, value)| value.clone()))
            }
            (CatalogValue::Array(array), AccessExpr::Subscript(Subscript::Index { index })) => {
                let at = self.value(index, scope)?.number();
                let at = at.and_then(|at| at.checked_sub(array.first));
                let item = at.and_then(|at| array.items.get(usize::try_from(at).ok()?));
                Ok(item.cloned().unwrap_or(CatalogValue::Null))
            }
            (
                CatalogValue::Array(array),
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }),
            ) => {
                let mut bound = |bound: &Option<Expr>, default: i64| -> Result<i64> {
                    let Some(expr) = bound else { return Ok(default) };
                    Ok(self.value(expr, scope)?.number().unwrap_or(default))
                };
                let (lower, upper) = (bound(lower_bound, 0)?, bound(upper_bound, i64::MAX)?);
                let items = (array.first..).zip(&array.items);
                let kept = items.filter(|(at, _)| (lower..=upper).contains(at));
                Ok(CatalogValue::array(kept.map(|(_, item)| item.clone()).collect()))
            }
            (CatalogValue::Null, _) => Ok(CatalogValue::Null),
            _ => unsupported("field access on a value that is neither a record nor an array"),
        }
    }

    /// Computes a function, an aggregate, a window function, or one that returns a set.
    fn function(&mut self, function: &Function, scope: &Scope<'_>) -> Result<CatalogValue> {
        let name = function_name(function);
        if function.over.is_some() {
            return self.window(function, scope);
        }
        if let FunctionArguments::Subquery(query) = &function.args {
            if name != "array" {
                return unsupported(&format!("a subquery as the argument of {name}"));
            }
            let rows = self.query(query, Some(scope))?.rows;
            return Ok(CatalogValue::array(rows.iter().map(|row| only(row)).collect()));
        }
        if is_aggregate(&name)
            && let Some(group) = scope.group
        {
            return self.aggregate(function, group, scope);
        }
        let arguments = match &function.args {
            FunctionArguments::List(list) => arguments_of(&list.args)?,
            _ => Vec::new(),
        };
        if is_set(&name) {
            let Some(position) = scope.set else {
                return unsupported(&format!("{name} in this position"));
            };
            return self.element(function, &name, &arguments, position, scope);
        }
        self.call_with(&name, &arguments, scope)
    }

    /// Returns the element of a function that returns a set, in the row of a position. The elements are
    /// computed once, unless its arguments are such functions themselves.
    fn element(
        &mut self,
        function: &Function,
        name: &str,
        arguments: &[&Expr],
        position: &SetPosition<'_>,
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        let known = position.elements(function);
        let elements = match known {
            Some(elements) => elements,
            None => {
                let values = arguments.iter().map(|argument| self.value(argument, scope));
                let values = values.collect::<Result<Vec<_>>>()?;
                let elements: Arc<[CatalogValue]> = self.set(name, &values)?.into();
                if !arguments.iter().any(|argument| has_set(argument)) {
                    position.keep(function, &elements);
                }
                elements
            }
        };
        position.count.set(position.count.get().max(elements.len()));
        Ok(elements.get(position.at).cloned().unwrap_or(CatalogValue::Null))
    }

    fn call_with(
        &mut self,
        name: &str,
        arguments: &[&Expr],
        scope: &Scope<'_>,
    ) -> Result<CatalogValue> {
        if name == "coalesce" {
            for argument in arguments {
                let value = self.value(argument, scope)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            return Ok(CatalogValue::Null);
        }
        let values = arguments.iter().map(|argument| self.value(argument, scope));
        let values = values.collect::<Result<Vec<_>>>()?;
        self.call(name, &values)
    }
}

/// Applies an operator of one operand.
fn signed(operator: UnaryOperator, value: CatalogValue) -> Result<CatalogValue> {
    Ok(match (operator, value) {
        (UnaryOperator::Not, value) => negation(&value),
        (UnaryOperator::Plus, value) => value,
        (UnaryOperator::Minus, CatalogValue::Real(number)) => CatalogValue::Real(-number),
        (UnaryOperator::Minus, other) => {
            let number = other.number().map(i64::wrapping_neg);
            number.map_or(CatalogValue::Null, CatalogValue::Number)
        }
        (other, _) => return unsupported(&format!("the operator {other}")),
    })
}

/// Returns the first value of a row.
fn only(row: &[CatalogValue]) -> CatalogValue {
    row.first().cloned().unwrap_or(CatalogValue::Null)
}
