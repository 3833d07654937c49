//! The evaluator of catalog queries: nested loops over small tables.
//!
//! A condition is checked as soon as the tables that it names are there, so that joins stay small.
//! *Cost*: what the joins need, up to a limit of steps; it is cancelled like every statement.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Session;
use lockstep_host::query::checkpoint;
use lockstep_row::Value;

use super::{
    expression::{
        CatalogExpr, CatalogSelectItem, MemberList, Operator, SelectQuery, Source, SourceRows,
        UnionKind,
    },
    function::{aggregate, call, is_aggregate},
    pattern::Pattern,
    tables::{CatalogRelation, make_table},
};
use crate::postgres::types::{Oid, oid};

/// The most rows that joins of a query look at.
const STEPS_MAX: u64 = 20_000_000;

/// A table in FROM.
struct BoundTable {
    alias: String,
    table: Arc<CatalogRelation>,
}

/// The row of each table; `None` where a LEFT JOIN has found none.
type RowPositions = Vec<Option<usize>>;

/// The tables that an expression sees.
struct Scope<'a> {
    tables: &'a [BoundTable],
    rows: &'a [Option<usize>],
    outer: Option<&'a Self>,
}

/// Runs catalog queries of a session.
pub(super) struct Evaluator<'s> {
    pub(super) session: &'s Session,
    pub(super) parameters: &'s [Value],
    tables: BTreeMap<String, Arc<CatalogRelation>>,
    steps: u64,
}

impl<'s> Evaluator<'s> {
    pub(super) fn new(session: &'s Session, parameters: &'s [Value]) -> Self {
        Self { session, parameters, tables: BTreeMap::new(), steps: 0 }
    }

    /// Runs a query.
    pub(super) fn run(&mut self, query: &SelectQuery) -> Result<CatalogRelation> {
        self.select(query, None)
    }

    /// Returns a table of the catalogs.
    pub(super) fn table(&mut self, name: &str) -> Result<Arc<CatalogRelation>> {
        if let Some(found) = self.tables.get(name) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(make_table(self.session, name)?);
        self.tables.insert(name.to_owned(), Arc::clone(&made));
        Ok(made)
    }

    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let message = "the query of the catalogs has too many rows to look at";
            return Diagnostic::new(code::STATEMENT_TOO_COMPLEX, message).err();
        }
        if self.steps.is_multiple_of(1_024)
            && let Err(interrupt) = checkpoint()
        {
            return Diagnostic::interrupted(interrupt.limit_ms()).err();
        }
        Ok(())
    }

    fn select(
        &mut self,
        query: &SelectQuery,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let mut tables = Vec::new();
        let mut rows: Vec<RowPositions> = vec![Vec::new()];
        let mut conditions = query.filter.as_ref().map(CatalogExpr::conjuncts).unwrap_or_default();
        for source in &query.from {
            let table = self.source(source, outer)?;
            tables.push(BoundTable { alias: source.alias.clone(), table });
            let (ready, later): (Vec<&CatalogExpr>, Vec<&CatalogExpr>) =
                conditions.into_iter().partition(|expr| is_bound(expr, &tables));
            conditions = later;
            rows = self.join((&tables, source), rows, &ready, outer)?;
        }
        let mut kept = Vec::new();
        for row in rows {
            let scope = Scope { tables: &tables, rows: &row, outer };
            if self.all_true(&conditions, &scope)? {
                kept.push(row);
            }
        }
        let mut result = self.project(query, &tables, &kept, outer)?;
        if let Some((other, kind)) = &query.union {
            result.rows.extend(self.select(other, outer)?.rows);
            if *kind == UnionKind::Distinct {
                unique(&mut result.rows);
            }
        }
        self.limit(query, &mut result, outer)?;
        Ok(result)
    }

    /// Returns the rows of a source.
    fn source(
        &mut self,
        source: &Source,
        outer: Option<&Scope<'_>>,
    ) -> Result<Arc<CatalogRelation>> {
        match &source.rows {
            SourceRows::Table(name) => self.table(name),
            SourceRows::Query(query) => self.select(query, outer).map(Arc::new),
            SourceRows::Function { name, arguments } => {
                let scope = Scope { tables: &[], rows: &[], outer };
                let values = arguments
                    .iter()
                    .map(|argument| self.value(argument, &scope))
                    .collect::<Result<Vec<_>>>()?;
                let value = if name == "generate_series" {
                    series(&values)
                } else if name == "unnest" {
                    values.into_iter().next().unwrap_or_default()
                } else {
                    call(self, name, &values)?
                };
                let rows = match value {
                    Value::Array(items) => items.into_iter().map(|item| vec![item]).collect(),
                    Value::Null => Vec::new(),
                    one => vec![vec![one]],
                };
                let columns = vec![(source.alias.clone(), oid::TEXT)];
                Ok(Arc::new(CatalogRelation { columns, rows, has_any_column: false }))
            }
        }
    }

    /// Joins rows with those of the last table.
    fn join(
        &mut self,
        (tables, source): (&[BoundTable], &Source),
        before: Vec<RowPositions>,
        conditions: &[&CatalogExpr],
        outer: Option<&Scope<'_>>,
    ) -> Result<Vec<RowPositions>> {
        let count = tables.last().map_or(0, |table| table.table.rows.len());
        let mut after = Vec::new();
        for left in before {
            let mut is_alone = true;
            let mut row = left.clone();
            row.push(None);
            for position in 0..count {
                self.step()?;
                *row.last_mut().expect("a position was pushed") = Some(position);
                let scope = Scope { tables, rows: &row, outer };
                let on = source.on.as_ref().map_or(Ok(true), |on| self.is_true(on, &scope))?;
                if !on {
                    continue;
                }
                is_alone = false;
                if self.all_true(conditions, &scope)? {
                    after.push(row.clone());
                }
            }
            if source.is_left && is_alone {
                *row.last_mut().expect("a position was pushed") = None;
                let scope = Scope { tables, rows: &row, outer };
                if self.all_true(conditions, &scope)? {
                    after.push(row);
                }
            }
        }
        Ok(after)
    }

    fn all_true(&mut self, conditions: &[&CatalogExpr], scope: &Scope<'_>) -> Result<bool> {
        for condition in conditions {
            if !self.is_true(condition, scope)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_true(&mut self, expr: &CatalogExpr, scope: &Scope<'_>) -> Result<bool> {
        Ok(self.value(expr, scope)? == Value::Bool(true))
    }

    /// Computes the columns of the rows, in their order.
    fn project(
        &mut self,
        query: &SelectQuery,
        tables: &[BoundTable],
        rows: &[RowPositions],
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let items = expanded(&query.items, tables);
        let mut columns: Vec<(String, Oid)> = items
            .iter()
            .map(|(expr, name)| (name.clone(), static_type(expr, tables).unwrap_or(oid::UNKNOWN)))
            .collect();
        let is_aggregated = items.iter().any(|(expr, _)| is_aggregate(expr));
        let mut sorted: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
        if is_aggregated {
            let row = items.iter().map(|(expr, _)| self.aggregated(expr, tables, rows, outer));
            sorted.push((Vec::new(), row.collect::<Result<Vec<_>>>()?));
        } else {
            for row in rows {
                self.step()?;
                let scope = Scope { tables, rows: row, outer };
                let values = items.iter().map(|(expr, _)| self.value(expr, &scope));
                let values = values.collect::<Result<Vec<_>>>()?;
                let keys = self.sort_keys(query, &columns, &values, &scope)?;
                sorted.push((keys, values));
            }
        }
        let descending: Vec<bool> = query.order.iter().map(|term| term.is_descending).collect();
        sorted.sort_by(|(left, _), (right, _)| compare_keys(left, right, &descending));
        let mut rows: Vec<Vec<Value>> = sorted.into_iter().map(|(_, values)| values).collect();
        if query.is_distinct {
            unique(&mut rows);
        }
        for (at, column) in columns.iter_mut().enumerate() {
            if column.1 == oid::UNKNOWN {
                column.1 = value_type(rows.iter().map(|row| &row[at]));
            }
        }
        Ok(CatalogRelation { columns, rows, has_any_column: false })
    }

    fn sort_keys(
        &mut self,
        query: &SelectQuery,
        columns: &[(String, Oid)],
        values: &[Value],
        scope: &Scope<'_>,
    ) -> Result<Vec<Value>> {
        let mut keys = Vec::with_capacity(query.order.len());
        for term in &query.order {
            let column = match &term.expr {
                CatalogExpr::Constant(Value::BigInt(number)) => {
                    usize::try_from(*number).ok().and_then(|number| number.checked_sub(1))
                }
                CatalogExpr::Column { table: None, name } => {
                    columns.iter().position(|(column, _)| column.eq_ignore_ascii_case(name))
                }
                _ => None,
            };
            keys.push(match column.and_then(|at| values.get(at)) {
                Some(value) => value.clone(),
                None => self.value(&term.expr, scope)?,
            });
        }
        Ok(keys)
    }

    fn aggregated(
        &mut self,
        expr: &CatalogExpr,
        tables: &[BoundTable],
        rows: &[RowPositions],
        outer: Option<&Scope<'_>>,
    ) -> Result<Value> {
        match expr {
            CatalogExpr::Call { name, arguments } if is_aggregate(expr) => {
                let mut values = Vec::with_capacity(rows.len());
                for row in rows {
                    let scope = Scope { tables, rows: row, outer };
                    let first = arguments.first();
                    values.push(first.map_or(Ok(Value::Bool(true)), |e| self.value(e, &scope))?);
                }
                Ok(aggregate(name, &values))
            }
            CatalogExpr::Cast { operand, data_type } => {
                let value = self.aggregated(operand, tables, rows, outer)?;
                self.cast(value, *data_type)
            }
            other => {
                let empty = vec![None; tables.len()];
                let row = rows.first().unwrap_or(&empty);
                self.value(other, &Scope { tables, rows: row, outer })
            }
        }
    }

    fn limit(
        &mut self,
        query: &SelectQuery,
        result: &mut CatalogRelation,
        outer: Option<&Scope<'_>>,
    ) -> Result<()> {
        let scope = Scope { tables: &[], rows: &[], outer };
        let mut number = |expr: &Option<CatalogExpr>| -> Result<Option<usize>> {
            let Some(expr) = expr else { return Ok(None) };
            let value = self.value(expr, &scope)?;
            Ok(integer(&value).and_then(|number| usize::try_from(number).ok()))
        };
        if let Some(offset) = number(&query.offset)? {
            result.rows.drain(..offset.min(result.rows.len()));
        }
        if let Some(limit) = number(&query.limit)? {
            result.rows.truncate(limit);
        }
        Ok(())
    }

    /// Computes an expression.
    fn value(&mut self, expr: &CatalogExpr, scope: &Scope<'_>) -> Result<Value> {
        Ok(match expr {
            CatalogExpr::Constant(value) => value.clone(),
            CatalogExpr::Parameter(number) => {
                self.parameters.get(usize::from(*number) - 1).cloned().unwrap_or_default()
            }
            CatalogExpr::Column { table, name } => column(table.as_deref(), name, scope)?,
            CatalogExpr::Not(operand) => match self.value(operand, scope)? {
                Value::Bool(value) => Value::Bool(!value),
                _ => Value::Null,
            },
            CatalogExpr::Negative(operand) => {
                integer(&self.value(operand, scope)?).map_or(Value::Null, |n| Value::BigInt(-n))
            }
            CatalogExpr::IsNull(operand) => Value::Bool(self.value(operand, scope)? == Value::Null),
            CatalogExpr::Binary { operator, left, right } => {
                self.binary(*operator, left, right, scope)?
            }
            CatalogExpr::Any { operator, left, right } => {
                self.any(*operator, left, right, scope)?
            }
            CatalogExpr::Case { operand, branches, otherwise } => {
                let operand = operand.as_ref().map(|o| self.value(o, scope)).transpose()?;
                for (condition, result) in branches {
                    let found = self.value(condition, scope)?;
                    let holds = match &operand {
                        None => found == Value::Bool(true),
                        Some(operand) => compare(operand, &found) == Some(Ordering::Equal),
                    };
                    if holds {
                        return self.value(result, scope);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::Null), |expr| self.value(expr, scope))?
            }
            CatalogExpr::Call { name, arguments } => {
                let values = arguments.iter().map(|argument| self.value(argument, scope));
                let values = values.collect::<Result<Vec<_>>>()?;
                call(self, name, &values)?
            }
            CatalogExpr::Cast { operand, data_type } => {
                let value = self.value(operand, scope)?;
                self.cast(value, *data_type)?
            }
            CatalogExpr::Scalar(query) => {
                let rows = self.select(query, Some(scope))?.rows;
                rows.into_iter().next().and_then(|row| row.into_iter().next()).unwrap_or_default()
            }
            CatalogExpr::Exists(query) => {
                Value::Bool(!self.select(query, Some(scope))?.rows.is_empty())
            }
            CatalogExpr::ArrayOf(query) => {
                let rows = self.select(query, Some(scope))?.rows;
                Value::Array(rows.into_iter().filter_map(|row| row.into_iter().next()).collect())
            }
            CatalogExpr::Array(items) => {
                let items = items.iter().map(|item| self.value(item, scope));
                Value::Array(items.collect::<Result<Vec<_>>>()?)
            }
            CatalogExpr::Element { array, index } => {
                let (array, index) = (self.value(array, scope)?, self.value(index, scope)?);
                match (array, integer(&index).and_then(|at| usize::try_from(at).ok())) {
                    // PostgreSQL counts from 1.
                    (Value::Array(items), Some(at)) if at > 0 => {
                        items.get(at - 1).cloned().unwrap_or_default()
                    }
                    _ => Value::Null,
                }
            }
        })
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &CatalogExpr,
        right: &CatalogExpr,
        scope: &Scope<'_>,
    ) -> Result<Value> {
        let left = self.value(left, scope)?;
        let decided = match (operator, &left) {
            (Operator::And, Value::Bool(false)) => Some(false),
            (Operator::Or, Value::Bool(true)) => Some(true),
            _ => None,
        };
        if let Some(value) = decided {
            return Ok(Value::Bool(value));
        }
        let right = self.value(right, scope)?;
        Ok(operate(operator, &left, &right))
    }

    fn any(
        &mut self,
        operator: Operator,
        left: &CatalogExpr,
        right: &MemberList,
        scope: &Scope<'_>,
    ) -> Result<Value> {
        let left = self.value(left, scope)?;
        let mut members = Vec::new();
        match right {
            MemberList::Query(query) => {
                let rows = self.select(query, Some(scope))?.rows;
                members.extend(rows.into_iter().filter_map(|row| row.into_iter().next()));
            }
            MemberList::List(list) => {
                for expr in list {
                    match self.value(expr, scope)? {
                        Value::Array(items) if !matches!(left, Value::Array(_)) => {
                            members.extend(items);
                        }
                        Value::String(text) if list.len() == 1 && text.starts_with('{') => {
                            let inner = text.trim_matches(['{', '}']);
                            let items = inner.split(',').filter(|item| !item.is_empty());
                            members.extend(items.map(|item| Value::String(item.into())));
                        }
                        value => members.push(value),
                    }
                }
            }
        }
        if left == Value::Null {
            return Ok(Value::Null);
        }
        let found = members.iter().map(|member| operate(operator, &left, member));
        let mut result = Value::Bool(false);
        for value in found {
            match value {
                Value::Bool(true) => return Ok(value),
                Value::Null => result = Value::Null,
                _ => {}
            }
        }
        Ok(result)
    }

    /// Converts a value. The name of a table becomes its number.
    fn cast(&mut self, value: Value, data_type: Oid) -> Result<Value> {
        Ok(match (data_type, value) {
            (_, Value::Null) => Value::Null,
            (oid::REGCLASS, Value::String(text)) => self.object_number(&text)?,
            (oid::OID | oid::INT2 | oid::INT4 | oid::INT8, value) => match integer(&value) {
                Some(number) => Value::BigInt(number),
                None => return super::invalid_number(&display(&value)),
            },
            (oid::BOOL, Value::String(text)) => Value::Bool(text.starts_with(['t', 'T', '1', 'y'])),
            (oid::TEXT | oid::NAME | oid::VARCHAR | oid::CHAR, value) => {
                Value::String(display(&value).into())
            }
            (_, value) => value,
        })
    }

    fn object_number(&mut self, text: &str) -> Result<Value> {
        if let Ok(number) = text.parse() {
            return Ok(Value::BigInt(number));
        }
        let name = text.rsplit('.').next().unwrap_or_default().trim_matches('"');
        for table in ["pg_class", "pg_type", "pg_namespace", "pg_proc"] {
            let table = self.table(table)?;
            let row = table.rows.iter().find(|row| row[1] == Value::String(name.into()));
            if let Some(row) = row {
                return Ok(row[0].clone());
            }
        }
        let message = format!("relation \"{text}\" does not exist");
        Diagnostic::new(code::UNDEFINED_TABLE, message).err()
    }
}

/// Returns the whole numbers from the first to the second.
fn series(values: &[Value]) -> Value {
    let bound = |at: usize| values.get(at).and_then(integer).unwrap_or(0);
    let (first, last) = (bound(0), bound(1).min(bound(0).saturating_add(10_000)));
    Value::Array((first..=last).map(Value::BigInt).collect())
}

/// Returns whether all columns of an expression are those of tables, and it has no inner query.
fn is_bound(expr: &CatalogExpr, tables: &[BoundTable]) -> bool {
    let mut all = true;
    let has_query = expr.columns(&mut |table, name| {
        all &= tables.iter().any(|bound| match table {
            Some(table) => bound.alias.eq_ignore_ascii_case(table),
            None => bound.table.position(name).is_some(),
        });
    });
    all && !has_query
}

/// Returns the value of a column, of the innermost query that has it.
fn column(table: Option<&str>, name: &str, scope: &Scope<'_>) -> Result<Value> {
    for (at, bound) in scope.tables.iter().enumerate() {
        if at >= scope.rows.len() || table.is_some_and(|t| !bound.alias.eq_ignore_ascii_case(t)) {
            continue;
        }
        let position = bound.table.position(name);
        if let Some(position) = position {
            let row = scope.rows[at].and_then(|row| bound.table.rows.get(row));
            return Ok(row.map(|row| row[position].clone()).unwrap_or_default());
        }
        if bound.table.has_any_column && table.is_some() {
            return Ok(Value::Null);
        }
    }
    if let Some(outer) = scope.outer {
        return column(table, name, outer);
    }
    if table.is_none() && scope.tables.iter().any(|bound| bound.table.has_any_column) {
        return Ok(Value::Null);
    }
    let qualified = table.map_or_else(|| name.to_owned(), |table| format!("{table}.{name}"));
    let message = format!("the catalogs have no column {qualified}");
    Diagnostic::new(code::UNDEFINED_COLUMN, message)
        .with_hint("The catalogs have what tools ask for; DESC and SHOW say what there is.")
        .err()
}

/// Replaces `*` by the columns.
fn expanded(items: &[CatalogSelectItem], tables: &[BoundTable]) -> Vec<(CatalogExpr, String)> {
    let mut all = Vec::new();
    for item in items {
        match item {
            CatalogSelectItem::Expr { expr, name } => all.push((expr.clone(), name.clone())),
            CatalogSelectItem::All(wanted) => {
                let fits = |bound: &&BoundTable| {
                    wanted.as_ref().is_none_or(|wanted| bound.alias.eq_ignore_ascii_case(wanted))
                };
                for bound in tables.iter().filter(fits) {
                    all.extend(bound.table.columns.iter().map(|(name, _)| {
                        let table = Some(bound.alias.clone());
                        (CatalogExpr::Column { table, name: name.clone() }, name.clone())
                    }));
                }
            }
        }
    }
    all
}

/// Returns the type of an expression, where it does not depend on values.
fn static_type(expr: &CatalogExpr, tables: &[BoundTable]) -> Option<Oid> {
    match expr {
        CatalogExpr::Column { table, name } => tables.iter().find_map(|bound| {
            let is_table = table.as_ref().is_none_or(|t| bound.alias.eq_ignore_ascii_case(t));
            let position = is_table.then(|| bound.table.position(name)).flatten()?;
            Some(bound.table.columns[position].1)
        }),
        CatalogExpr::Cast { data_type: oid::UNKNOWN, .. } => None,
        CatalogExpr::Cast { data_type: oid::REGCLASS, .. } => Some(oid::OID),
        CatalogExpr::Cast { data_type, .. } => Some(*data_type),
        CatalogExpr::Not(_)
        | CatalogExpr::IsNull(_)
        | CatalogExpr::Any { .. }
        | CatalogExpr::Exists(_) => Some(oid::BOOL),
        CatalogExpr::Case { branches, otherwise, .. } => branches
            .iter()
            .map(|(_, value)| value)
            .chain(otherwise.as_deref())
            .find_map(|value| static_type(value, tables)),
        CatalogExpr::Constant(Value::String(_)) => Some(oid::TEXT),
        CatalogExpr::Binary { operator: Operator::Concatenate, .. } => Some(oid::TEXT),
        CatalogExpr::Call { name, arguments } if name == "coalesce" => {
            arguments.iter().find_map(|argument| static_type(argument, tables))
        }
        _ => None,
    }
}

/// Returns the type of values.
fn value_type<'v>(values: impl Iterator<Item = &'v Value>) -> Oid {
    let mut found = oid::TEXT;
    for value in values {
        found = match value {
            Value::Null => continue,
            Value::Bool(_) => oid::BOOL,
            Value::BigInt(number) if i32::try_from(*number).is_ok() => oid::INT4,
            Value::BigInt(_) => return oid::INT8,
            Value::Double(_) => oid::FLOAT8,
            Value::Array(_) => oid::TEXT_ARRAY,
            _ => oid::TEXT,
        };
    }
    found
}

/// Applies an operator; NULL where an operand is.
fn operate(operator: Operator, left: &Value, right: &Value) -> Value {
    if operator == Operator::And || operator == Operator::Or {
        // The left operand has not decided.
        return match (operator, left, right) {
            (Operator::And, _, Value::Bool(false)) => Value::Bool(false),
            (Operator::Or, _, Value::Bool(true)) => Value::Bool(true),
            (_, Value::Null, _) => Value::Null,
            (_, _, other) => other.clone(),
        };
    }
    if *left == Value::Null || *right == Value::Null {
        return Value::Null;
    }
    let ordering = || compare(left, right);
    let numbers = || Some((integer(left)?, integer(right)?));
    let number = |found: Option<i64>| found.map_or(Value::Null, Value::BigInt);
    let texts = || (display(left), display(right));
    match operator {
        Operator::Equal => Value::Bool(ordering() == Some(Ordering::Equal)),
        Operator::NotEqual => Value::Bool(ordering() != Some(Ordering::Equal)),
        Operator::Less => Value::Bool(ordering() == Some(Ordering::Less)),
        Operator::LessOrEqual => Value::Bool(ordering().is_some_and(Ordering::is_le)),
        Operator::Greater => Value::Bool(ordering() == Some(Ordering::Greater)),
        Operator::GreaterOrEqual => Value::Bool(ordering().is_some_and(Ordering::is_ge)),
        Operator::Matches | Operator::MatchesAnyCase => {
            let (text, pattern) = texts();
            let pattern = Pattern::new(&pattern, operator == Operator::MatchesAnyCase);
            Value::Bool(pattern.is_some_and(|pattern| pattern.matches(&text)))
        }
        Operator::Like | Operator::LikeAnyCase => {
            let (text, pattern) = texts();
            Value::Bool(Pattern::like(&pattern, operator == Operator::LikeAnyCase).matches(&text))
        }
        Operator::Concatenate => {
            let (left, right) = texts();
            Value::String((left + &right).into())
        }
        Operator::Add => number(numbers().and_then(|(a, b)| a.checked_add(b))),
        Operator::Subtract => number(numbers().and_then(|(a, b)| a.checked_sub(b))),
        Operator::Multiply => number(numbers().and_then(|(a, b)| a.checked_mul(b))),
        Operator::Divide => number(numbers().and_then(|(a, b)| a.checked_div(b))),
        Operator::BitAnd => number(numbers().map(|(a, b)| a & b)),
        Operator::And | Operator::Or => Value::Null,
    }
}

/// Compares values; a number and a text compare as numbers.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::String(b)) => Some(a.cmp(&b.starts_with(['t', 'T']))),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare(a, b));
            let unequal = pairs.into_iter().find(|found| *found != Some(Ordering::Equal));
            unequal.unwrap_or_else(|| Some(a.len().cmp(&b.len())))
        }
        _ => match (integer(left), integer(right)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => (display(left) == display(right)).then_some(Ordering::Equal),
        },
    }
}

/// Returns a whole number, or the one that a text has.
pub(super) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(value) => Some(i64::from(*value)),
        other => other.as_scalar().and_then(|scalar| scalar.as_i64()),
    }
}

/// Returns the text of a value.
pub(super) fn display(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
        Value::BigInt(number) => number.to_string(),
        Value::Double(number) => number.to_string(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(display).collect();
            format!("{{{}}}", items.join(","))
        }
        other => format!("{other:?}"),
    }
}

fn compare_keys(left: &[Value], right: &[Value], descending: &[bool]) -> Ordering {
    for ((left, right), is_descending) in left.iter().zip(right).zip(descending) {
        let ordering = match (left, right) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            _ => compare(left, right).unwrap_or(Ordering::Equal),
        };
        let ordering = if *is_descending { ordering.reverse() } else { ordering };
        if ordering != Ordering::Equal {
            return ordering;
        }
    }
    Ordering::Equal
}

/// Removes rows that repeat.
fn unique(rows: &mut Vec<Vec<Value>>) {
    let mut seen: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
    rows.retain(|row| seen.insert(format!("{row:?}")));
}
