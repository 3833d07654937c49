//! Queries: WITH, set operations, VALUES, ORDER BY and LIMIT around SELECT.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::with_large_stack;
use sqlparser::ast::{
    Cte, Expr, LimitClause, OrderByExpr, OrderByKind, Query, SetExpr, SetOperator, SetQuantifier,
    Value, ValueWithSpan, Values,
};

use super::{
    evaluation::Evaluator,
    from::{folded, unsupported},
    relation::{CatalogRelation, CatalogRow},
    scope::Scope,
    value::{CatalogValue, row_bytes},
};
use crate::postgres::types::{Oid, oid};

/// A term of ORDER BY.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortTerm<'q> {
    pub(super) expr: &'q Expr,
    is_descending: bool,
    are_nulls_first: bool,
}

impl<'q> SortTerm<'q> {
    /// Reads a term.
    pub(super) fn new(term: &'q OrderByExpr) -> Self {
        let is_descending = term.options.asc == Some(false);
        let are_nulls_first = term.options.nulls_first.unwrap_or(is_descending);
        Self { expr: &term.expr, is_descending, are_nulls_first }
    }

    /// Compares two values by the term.
    fn compare(self, left: &CatalogValue, right: &CatalogValue) -> Ordering {
        let nulls = if self.are_nulls_first { Ordering::Less } else { Ordering::Greater };
        match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => nulls,
            (false, true) => nulls.reverse(),
            (false, false) => {
                let ordering = left.compare(right).unwrap_or(Ordering::Equal);
                if self.is_descending { ordering.reverse() } else { ordering }
            }
        }
    }
}

/// Compares the values of the terms of ORDER BY.
pub(super) fn compare_keys(
    left: &[CatalogValue],
    right: &[CatalogValue],
    terms: &[SortTerm<'_>],
) -> Ordering {
    debug_assert!(left.len() == terms.len() && right.len() == terms.len(), "a key has each term");
    let pairs = left.iter().zip(right).zip(terms);
    let mut orderings = pairs.map(|((left, right), term)| term.compare(left, right));
    orderings.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns the text by which rows are the same.
pub(super) fn row_key(row: &[CatalogValue]) -> String {
    let keys: Vec<String> = row.iter().map(CatalogValue::key).collect();
    keys.join("\u{1}")
}

/// Returns the column that a term of ORDER BY or GROUP BY names by its number or its name.
pub(super) fn output_column(expr: &Expr, columns: &[(String, Oid)]) -> Option<usize> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Number(number, _), .. }) => {
            let number: usize = number.parse().ok()?;
            number.checked_sub(1).filter(|at| *at < columns.len())
        }
        Expr::Identifier(name) => {
            let name = folded(name);
            columns.iter().position(|(column, _)| *column == name)
        }
        _ => None,
    }
}

impl Evaluator<'_> {
    /// Runs a query.
    pub(super) fn query(
        &mut self,
        query: &Query,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        with_large_stack(|| {
            let (before, held) = (self.named.len(), self.held());
            let result = self.query_with_names(query, outer);
            self.named.truncate(before);
            self.release_to(held);
            result
        })
    }

    fn query_with_names(
        &mut self,
        query: &Query,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                let relation = self.named_query(cte, with.recursive, outer)?;
                self.hold_relation(&relation)?;
                self.named.push((folded(&cte.alias.name), relation));
            }
        }
        let terms = match query.order_by.as_ref().map(|order| &order.kind) {
            None => Vec::new(),
            Some(OrderByKind::Expressions(terms)) => terms.iter().map(SortTerm::new).collect(),
            Some(OrderByKind::All(_)) => return unsupported("ORDER BY ALL"),
        };
        let result = match query.body.as_ref() {
            SetExpr::Select(select) => self.select(select, &terms, outer)?,
            other => sorted(self.set_operation(other, outer)?, &terms)?,
        };
        self.limited(query, result, outer)
    }

    /// Runs a query of WITH.
    fn named_query(
        &mut self,
        cte: &Cte,
        is_recursive: bool,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let name = folded(&cte.alias.name);
        let given: Vec<String> = cte.alias.columns.iter().map(|c| folded(&c.name)).collect();
        let renamed = |relation: CatalogRelation| {
            if given.is_empty() {
                return relation;
            }
            let mut list = relation.columns.list.clone();
            for ((column, _), given) in list.iter_mut().zip(&given) {
                column.clone_from(given);
            }
            CatalogRelation::of(list, relation.rows.to_vec())
        };
        let SetExpr::SetOperation { left, right, set_quantifier, op: SetOperator::Union } =
            cte.query.body.as_ref()
        else {
            return Ok(renamed(self.query(&cte.query, outer)?));
        };
        if !is_recursive {
            return Ok(renamed(self.query(&cte.query, outer)?));
        }
        let mut found = renamed(self.set_operation(left, outer)?);
        let is_distinct = *set_quantifier != SetQuantifier::All;
        let keys = found.rows.iter().filter(|_| is_distinct).map(|row| row_key(row));
        let mut seen: HashSet<String> = keys.collect();
        let list = found.columns.list.clone();
        let mut rows = found.rows.to_vec();
        while !found.rows.is_empty() {
            self.step()?;
            let held = self.held();
            self.named.push((name.clone(), found));
            let next = self.set_operation(right, outer);
            self.named.pop();
            let next = next?;
            check_width(&next, &list, SetOperator::Union)?;
            let mut next = next.rows.to_vec();
            if is_distinct {
                self.work(next.iter().map(|row| row_bytes(row)).sum())?;
                next.retain(|row| seen.insert(row_key(row)));
            }
            rows.extend(next.iter().cloned());
            found = CatalogRelation::of(list.clone(), next);
            self.release_to(held);
            // With their keys.
            self.hold_relation(&found)?;
            if is_distinct {
                self.hold_relation(&found)?;
            }
        }
        Ok(CatalogRelation::of(list, rows))
    }

    fn set_operation(
        &mut self,
        body: &SetExpr,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], outer),
            SetExpr::Query(query) => self.query(query, outer),
            SetExpr::Values(values) => self.values(values, outer),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let left = with_large_stack(|| self.set_operation(left, outer))?;
                let right = self.set_operation(right, outer)?;
                if *op != SetOperator::Union || *set_quantifier != SetQuantifier::All {
                    // The keys of the rows.
                    self.hold_relation(&left)?;
                    self.hold_relation(&right)?;
                }
                combined(&left, &right, *op, *set_quantifier)
            }
            _ => unsupported("this statement"),
        }
    }

    fn values(&mut self, values: &Values, outer: Option<&Scope<'_>>) -> Result<CatalogRelation> {
        let scope = Scope::new(&[], &[], outer);
        let mut rows = Vec::new();
        for given in &values.rows {
            let row = given.iter().map(|expr| self.value(expr, &scope));
            let row = CatalogRow::from(row.collect::<Result<Vec<_>>>()?);
            self.hold(row.len() * size_of::<CatalogValue>())?;
            rows.push(row);
        }
        let width = rows.first().map_or(0, |row| row.len());
        if rows.iter().any(|row| row.len() != width) {
            let message = "VALUES lists must all be the same length";
            return Diagnostic::new(code::SYNTAX_ERROR, message).err();
        }
        let list = (0..width).map(|at| {
            let known = rows.iter().find_map(|row| row.get(at)?.oid());
            (format!("column{}", at + 1), known.unwrap_or(oid::TEXT))
        });
        Ok(CatalogRelation::of(list.collect(), rows))
    }

    /// Returns the rows that LIMIT, OFFSET and FETCH leave.
    fn limited(
        &mut self,
        query: &Query,
        result: CatalogRelation,
        outer: Option<&Scope<'_>>,
    ) -> Result<CatalogRelation> {
        let (limit, offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        };
        let fetch = query.fetch.as_ref().map(|fetch| fetch.quantity.as_ref());
        if limit.is_none() && offset.is_none() && fetch.is_none() {
            return Ok(result);
        }
        let scope = Scope::new(&[], &[], outer);
        let mut number = |expr: Option<&Expr>| -> Result<Option<usize>> {
            let Some(expr) = expr else { return Ok(None) };
            Ok(self.value(expr, &scope)?.number().and_then(|number| usize::try_from(number).ok()))
        };
        let offset = number(offset)?.unwrap_or(0);
        let limit = match fetch {
            // FETCH FIRST ROW ONLY.
            Some(None) => Some(1),
            Some(quantity) => number(quantity)?,
            None => number(limit)?,
        };
        let rows = result.rows.iter().skip(offset).take(limit.unwrap_or(usize::MAX)).cloned();
        Ok(CatalogRelation::of(result.columns.list.clone(), rows.collect()))
    }
}

/// Fails where a query of a set operation has another number of columns than the first.
fn check_width(
    relation: &CatalogRelation,
    list: &[(String, Oid)],
    operator: SetOperator,
) -> Result<()> {
    if relation.columns.list.len() == list.len() {
        return Ok(());
    }
    let message = format!("each {operator} query must have the same number of columns");
    Diagnostic::new(code::SYNTAX_ERROR, message).err()
}

/// Combines the rows of two queries.
fn combined(
    left: &CatalogRelation,
    right: &CatalogRelation,
    operator: SetOperator,
    quantifier: SetQuantifier,
) -> Result<CatalogRelation> {
    check_width(right, &left.columns.list, operator)?;
    let is_all = quantifier == SetQuantifier::All;
    let mut counts: HashMap<String, usize> = HashMap::new();
    for row in right.rows.iter().filter(|_| operator != SetOperator::Union) {
        *counts.entry(row_key(row)).or_default() += 1;
    }
    let mut take = |row: &CatalogRow| match counts.get_mut(&row_key(row)) {
        Some(count) if *count > 0 => {
            *count -= usize::from(is_all);
            true
        }
        _ => false,
    };
    let mut rows: Vec<CatalogRow> = match operator {
        SetOperator::Union => left.rows.iter().chain(right.rows.iter()).cloned().collect(),
        SetOperator::Intersect => left.rows.iter().filter(|row| take(row)).cloned().collect(),
        SetOperator::Except | SetOperator::Minus => {
            left.rows.iter().filter(|row| !take(row)).cloned().collect()
        }
    };
    if !is_all {
        let mut seen = HashSet::new();
        rows.retain(|row| seen.insert(row_key(row)));
    }
    let columns = left.columns.list.iter().zip(&right.columns.list);
    let list = columns.map(|((name, left), (_, right))| {
        // A NULL of one side has the type of the other.
        (name.clone(), if *left == oid::UNKNOWN { *right } else { *left })
    });
    Ok(CatalogRelation::of(list.collect(), rows))
}

/// Sorts the rows of a set operation by its columns.
fn sorted(result: CatalogRelation, terms: &[SortTerm<'_>]) -> Result<CatalogRelation> {
    if terms.is_empty() {
        return Ok(result);
    }
    let mut positions = Vec::new();
    for term in terms {
        let Some(at) = output_column(term.expr, &result.columns.list) else {
            let message = "invalid UNION/INTERSECT/EXCEPT ORDER BY clause";
            return Diagnostic::new(code::UNDEFINED_COLUMN, message)
                .with_detail("Only result column names can be used.")
                .err();
        };
        positions.push(at);
    }
    let key = |row: &CatalogRow| -> Vec<CatalogValue> {
        positions.iter().map(|at| row[*at].clone()).collect()
    };
    let mut rows = result.rows.to_vec();
    rows.sort_by(|left, right| compare_keys(&key(left), &key(right), terms));
    Ok(CatalogRelation::of(result.columns.list.clone(), rows))
}
