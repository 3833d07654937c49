//! SELECT: the select list over FROM, WHERE, windows and groups.

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    common::{
        Column,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Sort, SortExpr},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, scalar::feature};
use lockstep_row::DataType;
use lockstep_sql::ast::{self, ExprKind, Literal, Select, SelectItem, UnaryOperator};

use crate::{
    binder::{Binder, BoundRelation, planning},
    call,
    expression::{Aggregates, ExprBinder, TypedExpr},
    from::From,
    group::{GroupCalls, has_group_aggregate, shared_window},
    scope::NameScope,
    sub_query::SelectSubQueries,
    window_calls::WindowCalls,
};

/// The select list: name, expression over the plan below, type.
pub(crate) type Items = Vec<(String, Expr, DataType)>;

impl Binder<'_> {
    /// Binds a SELECT with the ORDER BY after it.
    pub(crate) fn select(
        &self,
        select: &Select,
        order_by: &[ast::OrderBy],
    ) -> Result<BoundRelation> {
        unique_windows(&select.windows)?;
        let from = self.from(select.from.as_ref())?;
        self.size.add_operators(operators(select, order_by), select.span)?;
        let exprs = select.items.iter().filter_map(|item| match item {
            SelectItem::Expr { expr, .. } => Some(expr),
            SelectItem::Star { .. } => None,
        });
        let grouped = !select.group_by.is_empty()
            || select.having.is_some()
            || exprs
                .into_iter()
                .any(|expr| has_group_aggregate(expr) && self.window_of_item(expr).is_none());
        let below = if select.distinct { &[] } else { order_by };
        let relation = if grouped {
            self.grouped(select, below, from)?
        } else {
            self.windowed(select, below, from)?
        };
        if !select.distinct {
            return Ok(relation);
        }
        let distinct = LogicalPlanBuilder::from(relation.plan).distinct().map_err(planning)?;
        let plan = distinct.build().map_err(planning)?;
        self.order(BoundRelation { plan, scope: relation.scope }, order_by)
    }

    /// Binds a SELECT without groups: every input row gives one output row.
    fn windowed(
        &self,
        select: &Select,
        order_by: &[ast::OrderBy],
        from: From,
    ) -> Result<BoundRelation> {
        let scope = from.scope.clone();
        let filter = select.filter.as_ref();
        let sub_queries = SelectSubQueries::new(&from, filter);
        let (filter, joins) =
            self.with_sub_queries(Some(sub_queries), || self.condition(filter, &scope))?;
        let mut from = from;
        let (filter, of_filter) = self.below_filter(&mut from, filter, joins)?;
        let mut calls = WindowCalls::new(self, &select.windows, &from)?;
        let sub_queries = SelectSubQueries::new(&from, None);
        let ((items, sort), joins) = self.with_sub_queries(Some(sub_queries), || {
            let items = self.items(&select.items, &scope, &mut calls)?;
            let sort = self.sort_keys(order_by, &items, &scope, &mut calls)?;
            Ok((items, sort))
        })?;
        let items = if select.distinct { self.comparable(items, select.span)? } else { items };
        // A UNION source is matched with the columns of the join by position.
        let above = match calls.has_unions() {
            true => {
                calls.check_without(&of_filter, &joins)?;
                joins
            }
            false => {
                from.joins.extend(of_filter.into_iter().chain(joins));
                let items = items.iter().map(|(_, expr, _)| expr);
                let sort = sort.iter().map(|key| &key.expr);
                from.narrow(items.chain(sort).chain(&filter).chain(calls.expressions()))?;
                Vec::new()
            }
        };
        let plan = self.joined(above, calls.into_plan(from, filter)?)?;
        Ok(self.project(sorted(plan, sort), items, "select")?.qualified_like(&scope))
    }

    /// Binds a SELECT with GROUP BY, HAVING or aggregates over the whole input.
    fn grouped(
        &self,
        select: &Select,
        order_by: &[ast::OrderBy],
        from: From,
    ) -> Result<BoundRelation> {
        let sub_queries = SelectSubQueries::new(&from, select.filter.as_ref());
        let (filter, joins) = self.with_sub_queries(Some(sub_queries), || {
            self.condition(select.filter.as_ref(), &from.scope)
        })?;
        let mut from = from;
        from.joins.extend(joins);
        let input = self.whole(from)?;
        let input = match filter {
            Some(filter) => input.filtered(filter)?,
            None => input,
        };
        let (relation, _) =
            self.with_sub_queries(None, || self.over_groups(select, order_by, input))?;
        Ok(relation)
    }

    /// Binds WHERE.
    fn condition(&self, filter: Option<&ast::Expr>, scope: &NameScope) -> Result<Option<Expr>> {
        let bound = filter.map(|filter| self.scalar_binder(scope).condition(filter));
        Ok(bound.transpose()?.map(|bound| bound.expr))
    }

    /// Binds the select list, HAVING and ORDER BY over the groups of the kept rows.
    fn over_groups(
        &self,
        select: &Select,
        order_by: &[ast::OrderBy],
        input: BoundRelation,
    ) -> Result<BoundRelation> {
        let scope = input.scope.clone();
        let aliases = &select.items;
        let keys = select.group_by.iter().map(|key| self.group_key(key, &scope, aliases));
        let mut calls = GroupCalls::new(self, keys.collect::<Result<_>>()?, &scope);
        let items = self.items(&select.items, &scope, &mut calls)?;
        let having = match &select.having {
            Some(having) => {
                let plain = self.with_aggregates(&scope, &mut calls);
                let aliased = match self.settings.compatibility {
                    Compatibility::Standard => select.items.as_slice(),
                    Compatibility::OpenMldb => &[],
                };
                let mut binder = ExprBinder { aliased, ..plain };
                Some(binder.condition(having)?.expr)
            }
            None => None,
        };
        let sort = self.sort_keys(order_by, &items, &scope, &mut calls)?;
        if let Some(having) = select.having.as_ref().filter(|_| calls.is_empty()) {
            return Diagnostic::new(
                code::GROUPING_ERROR,
                "HAVING requires GROUP BY or an aggregate",
            )
            .at(having.span)
            .with_hint("Use WHERE for a condition on single rows.")
            .err();
        }
        let grouped = calls.group(input.plan)?;
        let items = items
            .into_iter()
            .zip(spans(&select.items, scope.columns.len()))
            .map(|((name, expr, data_type), span)| {
                Ok((name, grouped.over_groups(expr, span)?, data_type))
            })
            .collect::<Result<Items>>()?;
        let mut plan = grouped.plan.clone();
        if let Some(having) = having {
            let span = select.having.as_ref().map_or(select.span, |having| having.span);
            let having = grouped.over_groups(having, span)?;
            let builder = LogicalPlanBuilder::from(plan).filter(having).map_err(planning)?;
            plan = builder.build().map_err(planning)?;
        }
        let sort = sort
            .into_iter()
            .map(|key| {
                let expr = grouped.over_groups(key.expr, select.span)?;
                Ok(SortExpr { expr, ..key })
            })
            .collect::<Result<Vec<_>>>()?;
        let items = if select.distinct { self.comparable(items, select.span)? } else { items };
        self.project(sorted(plan, sort), items, "select")
    }

    /// Converts the items to the values that DISTINCT compares: a float has one zero and one NaN.
    pub(crate) fn comparable(&self, items: Items, span: Span) -> Result<Items> {
        let compared = items.into_iter().map(|(name, expr, data_type)| {
            if !data_type.is_float() {
                return Ok((name, expr, data_type));
            }
            let item = vec![TypedExpr { expr, data_type, span }];
            let key = call::operator("op_group_key", item, self.settings, span)?;
            Ok((name, key.expr, key.data_type))
        });
        compared.collect()
    }

    /// Binds a GROUP BY item: an expression, an alias of the select list, or a position in it.
    fn group_key(
        &self,
        key: &ast::Expr,
        scope: &NameScope,
        items: &[SelectItem],
    ) -> Result<TypedExpr> {
        if let ExprKind::QuotedText(text) = &key.kind
            && items.iter().any(|item| is_alias(item, text))
        {
            self.scalar_binder(scope).note_quoted_name(text, key.span)?;
        }
        if let Some(at) = self.position(key, "GROUP BY", scope, || width(items, scope))? {
            return self.listed(items, scope, at);
        }
        if let ExprKind::Column(path) = &key.kind
            && self.as_postgres
            && scope.find(path).is_err()
            && let Some(expr) = item_of_alias(items, path)
        {
            // Before a column that has the name in other capitals.
            return self.scalar_binder(scope).bind(expr);
        }
        let bound = self.scalar_binder(scope).bind(key);
        let (Err(_), ExprKind::Column(path)) = (&bound, &key.kind) else { return bound };
        match item_of_alias(items, path) {
            Some(expr) => self.scalar_binder(scope).bind(expr),
            None => bound,
        }
    }

    /// Returns which column of the select list, counted from 0, an item of ORDER BY or GROUP BY is the
    /// position of; `None` for an expression. Fails for a position that the list does not have, and for
    /// any other constant, which would neither sort nor group.
    fn position(
        &self,
        item: &ast::Expr,
        clause: &str,
        scope: &NameScope,
        width: impl FnOnce() -> Result<usize>,
    ) -> Result<Option<usize>> {
        if let Some(position) = whole_number(item) {
            let width = width()?;
            let at = usize::try_from(position).ok().and_then(|position| position.checked_sub(1));
            if let Some(at) = at.filter(|at| *at < width) {
                return Ok(Some(at));
            }
            let message = format!("{clause} position {position} is not in the select list");
            let columns =
                if width == 1 { "one column".to_owned() } else { format!("{width} columns") };
            return Diagnostic::new(code::INVALID_COLUMN_REFERENCE, message)
                .at(item.span)
                .with_detail(format!("The select list has {columns}, counted from 1."))
                .err();
        }
        if let ExprKind::QuotedText(text) = &item.kind
            && scope.has_name(text)
        {
            self.scalar_binder(scope).note_quoted_name(text, item.span)?;
        }
        let text = match &item.kind {
            ExprKind::Literal(Literal::String(text)) | ExprKind::QuotedText(text) => Some(text),
            ExprKind::Literal(_) | ExprKind::Parameter(_) => None,
            _ => return Ok(None),
        };
        let hint = match text.filter(|text| scope.has_name(text)) {
            Some(text) => format!("Write `{text}` for the column."),
            None => "Use a column, or an expression over columns.".to_owned(),
        };
        Diagnostic::new(code::SYNTAX_ERROR, format!("constant in {clause}"))
            .at(item.span)
            .with_detail("A constant is equal in all rows.")
            .with_hint(hint)
            .err()
    }

    /// Binds the column of a select list at a position that the list has.
    fn listed(&self, items: &[SelectItem], scope: &NameScope, at: usize) -> Result<TypedExpr> {
        let mut left = at;
        debug_assert!(!items.is_empty(), "the position is in the list");
        for item in items {
            match item {
                SelectItem::Expr { expr, .. } if left == 0 => {
                    return self.scalar_binder(scope).bind(expr);
                }
                SelectItem::Expr { .. } => left -= 1,
                SelectItem::Star { qualifier, span } => {
                    let mut columns = star(qualifier.as_ref(), *span, scope)?;
                    if left < columns.len() {
                        let (_, expr, data_type) = columns.swap_remove(left);
                        return Ok(TypedExpr { expr, data_type, span: *span });
                    }
                    left -= columns.len();
                }
            }
        }
        Diagnostic::internal("a position was not checked").err()
    }

    fn with_aggregates<'b>(
        &'b self,
        scope: &'b NameScope,
        aggregates: &'b mut dyn Aggregates,
    ) -> ExprBinder<'b> {
        let plain = self.scalar_binder(scope);
        ExprBinder { aggregates: Some(aggregates), ..plain }
    }

    fn items(
        &self,
        items: &[SelectItem],
        scope: &NameScope,
        aggregates: &mut dyn Aggregates,
    ) -> Result<Items> {
        let mut bound = Items::new();
        for item in items {
            match item {
                SelectItem::Star { qualifier, span } => {
                    bound.extend(star(qualifier.as_ref(), *span, scope)?);
                }
                SelectItem::Expr { expr, alias } => {
                    let name = match (alias, &expr.kind) {
                        (Some(alias), _) => alias.text.clone(),
                        (None, ExprKind::Column(path)) => {
                            path.last().expect("a name has a part").text.clone()
                        }
                        (None, _) => match self.settings.compatibility {
                            Compatibility::Standard => expr.name(),
                            Compatibility::OpenMldb => expr.openmldb_name(),
                        },
                    };
                    let result = self.whole_item(expr, scope, aggregates)?;
                    bound.push((name, result.expr, result.data_type));
                }
            }
        }
        Ok(bound)
    }

    /// Binds a select item. `lag` and signatures depend on whether they are the whole item.
    fn whole_item(
        &self,
        expr: &ast::Expr,
        scope: &NameScope,
        aggregates: &mut dyn Aggregates,
    ) -> Result<TypedExpr> {
        if let ExprKind::Call(call) = &expr.kind
            && !call.star
            && !call.distinct
            && let Some(signature) = feature::signature(&call.name.text)
        {
            return self
                .with_aggregates(scope, aggregates)
                .feature_column(signature, call, expr.span);
        }
        if let ExprKind::Call(call) = &expr.kind
            && let Some(bound) = aggregates.bind_whole(call, expr.span, scope)
        {
            return bound;
        }
        let mut binder = self.with_aggregates(scope, aggregates);
        binder.within(self.window_of_item(expr), |binder| binder.bind(expr))
    }

    /// Returns the window of the aggregates without OVER in a select item.
    fn window_of_item<'e>(&self, expr: &'e ast::Expr) -> Option<&'e ast::Over> {
        match self.settings.compatibility {
            Compatibility::Standard => None,
            Compatibility::OpenMldb => shared_window(expr),
        }
    }

    /// Binds ORDER BY over the plan below the select list: aliases and positions mean their items.
    fn sort_keys(
        &self,
        order_by: &[ast::OrderBy],
        items: &Items,
        scope: &NameScope,
        aggregates: &mut dyn Aggregates,
    ) -> Result<Vec<SortExpr>> {
        let mut keys = Vec::new();
        for order in order_by {
            if let ExprKind::QuotedText(text) = &order.expr.kind
                && items.iter().any(|(name, ..)| name == text)
            {
                self.scalar_binder(scope).note_quoted_name(text, order.expr.span)?;
            }
            let position = self.position(&order.expr, "ORDER BY", scope, || Ok(items.len()))?;
            let item = match (position, &order.expr.kind) {
                (Some(at), _) => items.get(at),
                (None, ExprKind::Column(path)) if path.len() == 1 => {
                    items.iter().find(|(name, ..)| *name == path[0].text)
                }
                _ => None,
            };
            let bound = match item {
                Some((_, expr, data_type)) => {
                    self.size.add_expressions(expression_count(expr), order.expr.span)?;
                    let (expr, data_type) = (expr.clone(), data_type.clone());
                    TypedExpr { expr, data_type, span: order.expr.span }
                }
                None => self.with_aggregates(scope, aggregates).bind(&order.expr)?,
            };
            keys.push(self.sort_key(bound, order)?);
        }
        Ok(keys)
    }

    /// Sorts a relation by its own columns.
    pub(crate) fn order(
        &self,
        relation: BoundRelation,
        order_by: &[ast::OrderBy],
    ) -> Result<BoundRelation> {
        let mut keys = Vec::new();
        for order in order_by {
            let (scope, columns) = (&relation.scope, &relation.scope.columns);
            let position = self.position(&order.expr, "ORDER BY", scope, || Ok(columns.len()))?;
            let column = position.and_then(|at| columns.get(at));
            let bound = match column {
                Some(column) => TypedExpr {
                    expr: Expr::Column(column.column.clone()),
                    data_type: column.data_type.clone(),
                    span: order.expr.span,
                },
                None => self.scalar_binder(&relation.scope).bind(&order.expr)?,
            };
            keys.push(self.sort_key(bound, order)?);
        }
        Ok(BoundRelation { plan: sorted(relation.plan, keys), scope: relation.scope })
    }

    /// Returns a sort key; unless NULLS FIRST or LAST is written, NULLs come last in ascending and first in
    /// descending order, as in PostgreSQL. A float has one zero and one NaN, which is the greatest: a sort
    /// compares bits.
    fn sort_key(&self, bound: TypedExpr, order: &ast::OrderBy) -> Result<SortExpr> {
        let span = bound.span;
        let bound = match bound.data_type.is_float() {
            true => call::operator("op_group_key", vec![bound], self.settings, span)?,
            false => bound,
        };
        Ok(SortExpr { expr: bound.expr, asc: !order.descending, nulls_first: order.nulls_first() })
    }
}

/// Returns the most operators that a SELECT has above its FROM and below its projection.
fn operators(select: &Select, order_by: &[ast::OrderBy]) -> usize {
    let clauses = [
        select.distinct,
        select.filter.is_some(),
        !select.group_by.is_empty(),
        select.having.is_some(),
        !order_by.is_empty(),
    ];
    // The windows above the joins and those below.
    clauses.iter().filter(|clause| **clause).count() + 2
}

/// Sorts the rows of a plan. DataFusion's builder would take a key that is also an expression of the plan's
/// top operator, such as the key of a window or the condition of WHERE, for a column of its output.
fn sorted(plan: LogicalPlan, keys: Vec<SortExpr>) -> LogicalPlan {
    if keys.is_empty() {
        return plan;
    }
    LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(plan), fetch: None })
}

/// Returns the item of a select list whose alias a name is.
pub(crate) fn item_of_alias<'i>(
    items: &'i [SelectItem],
    path: &[ast::Ident],
) -> Option<&'i ast::Expr> {
    let [name] = path else { return None };
    items.iter().find_map(|item| match item {
        SelectItem::Expr { expr, alias: Some(alias) } if alias.text == name.text => Some(expr),
        _ => None,
    })
}

fn is_alias(item: &SelectItem, name: &str) -> bool {
    matches!(item, SelectItem::Expr { alias: Some(alias), .. } if alias.text == name)
}

/// Returns the number of columns that a select list has.
fn width(items: &[SelectItem], scope: &NameScope) -> Result<usize> {
    items.iter().try_fold(0, |width, item| match item {
        SelectItem::Expr { .. } => Ok(width + 1),
        SelectItem::Star { qualifier, span } => {
            Ok(width + star(qualifier.as_ref(), *span, scope)?.len())
        }
    })
}

/// Returns the value of a whole number, with or without a sign.
fn whole_number(expr: &ast::Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Literal(Literal::Int(value)) => Some(i64::from(*value)),
        ExprKind::Literal(Literal::BigInt(value)) => Some(*value),
        ExprKind::Unary { operator: UnaryOperator::Minus, operand } => {
            whole_number(operand)?.checked_neg()
        }
        ExprKind::Unary { operator: UnaryOperator::Plus, operand } => whole_number(operand),
        _ => None,
    }
}

fn star(qualifier: Option<&ast::ObjectName>, span: Span, scope: &NameScope) -> Result<Items> {
    let columns = match qualifier {
        None => scope.columns.iter().collect(),
        Some(name) => {
            let database = name.database.as_ref().map(|database| database.text.as_str());
            scope.of_table(database, &name.name.text)
        }
    };
    if columns.is_empty() {
        let message = match qualifier {
            None => "`*` requires FROM".to_owned(),
            Some(name) => format!("table `{}` is not part of this query", name.name.text),
        };
        return Diagnostic::new(code::UNDEFINED_TABLE, message).at(span).err();
    }
    let item = |c: &crate::scope::ScopeColumn| {
        (c.name.clone(), Expr::Column(c.column.clone()), c.data_type.clone())
    };
    Ok(columns.into_iter().map(item).collect())
}

/// Returns the span of each output column; a star gives as many as the scope has columns.
fn spans(items: &[SelectItem], columns: usize) -> Vec<Span> {
    let of = |item: &SelectItem| match item {
        SelectItem::Star { span, .. } => vec![*span; columns],
        SelectItem::Expr { expr, .. } => vec![expr.span],
    };
    items.iter().flat_map(of).collect()
}

fn unique_windows(windows: &[ast::NamedWindow]) -> Result<()> {
    let mut seen = HashSet::new();
    for window in windows {
        if !seen.insert(&window.name.text) {
            let message = format!("window `{}` is already defined", window.name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(window.name.span).err();
        }
    }
    Ok(())
}

/// Returns the number of nodes of an expression.
pub(crate) fn expression_count(expr: &Expr) -> usize {
    let mut count = 0;
    let counted = expr.apply(|_| {
        count += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_or(usize::MAX, |_| count)
}

/// Returns whether an expression reads only columns in `columns`.
pub(crate) fn uses_only(expr: &Expr, columns: &HashSet<Column>) -> bool {
    expr.column_refs().into_iter().all(|column| columns.contains(column))
}

/// Returns the internal names of a relation's columns.
pub(crate) fn column_set(scope: &NameScope) -> HashSet<Column> {
    scope.columns.iter().map(|column| column.column.clone()).collect()
}
