//! `x IN (SELECT …)`: LAST JOINs below the SELECT whose columns no name reaches.
//!
//! A LAST JOIN never changes how often a row occurs, takes the row of a key from an index, and is the
//! same in batch and request mode; so a value is looked up as a LAST JOIN looks a row up.
//!
//! In standard SQL, IN is unknown where no row is equal and a NULL is among the values compared. Two
//! further joins, each of at most one row, decide that. They are left out where unknown is as good as
//! false (a part of WHERE), and where the columns cannot hold NULL.

use datafusion::{
    common::ScalarValue,
    logical_expr::{Case, Expr, LogicalPlan, LogicalPlanBuilder, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::DataType;
use lockstep_sql::ast::{self, ExprKind};

use crate::{
    CatalogTable,
    binder::{Binder, BoundRelation, planning},
    expression::{SubQueries, TypedExpr, binary},
    from::From,
    last_join::{PendingLastJoin, conjuncts},
    lineage::{column, stored_columns},
    scope::NameScope,
    select::{column_set, uses_only},
};

/// The sub-queries of one SELECT.
#[derive(Debug)]
pub(crate) struct SelectSubQueries {
    /// The plan of the leftmost table.
    base: LogicalPlan,
    /// The columns that an operand may read.
    columns: std::collections::HashSet<datafusion::common::Column>,
    /// The columns of FROM, which a sub-query cannot read.
    scope: NameScope,
    /// The expressions that decide alone whether WHERE keeps a row: unknown is false there.
    conditions: Vec<Span>,
    /// The joins so far.
    joins: Vec<PendingLastJoin>,
}

impl SelectSubQueries {
    /// Makes the sub-queries of a SELECT over `from` with this WHERE.
    pub(crate) fn new(from: &From, filter: Option<&ast::Expr>) -> Self {
        let parts = filter.map_or_else(Vec::new, conjuncts).into_iter();
        let is_in =
            |part: &&ast::Expr| matches!(part.kind, ExprKind::InList { negated: false, .. });
        Self {
            base: from.base.plan.clone(),
            columns: column_set(&from.scope),
            scope: from.scope.clone(),
            conditions: parts.filter(is_in).map(|part| part.span).collect(),
            joins: Vec::new(),
        }
    }
}

impl Binder<'_> {
    /// Binds a part of a SELECT in which `x IN (SELECT …)` may stand, or may not for `None`. The
    /// second value is the joins that it needs.
    pub(crate) fn with_sub_queries<T>(
        &self,
        allowed: Option<SelectSubQueries>,
        bind: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<PendingLastJoin>)> {
        self.sub_queries.borrow_mut().push(allowed);
        let bound = bind();
        let ended = self.sub_queries.borrow_mut().pop().flatten();
        Ok((bound?, ended.map_or_else(Vec::new, |ended| ended.joins)))
    }

    /// Puts the joins of WHERE below it. Where both read the leftmost table only, they go below the
    /// windows, whose rows are then those that WHERE keeps. Returns what is left for WHERE, and the
    /// joins that it needs.
    pub(crate) fn below_filter(
        &self,
        from: &mut From,
        filter: Option<Expr>,
        joins: Vec<PendingLastJoin>,
    ) -> Result<(Option<Expr>, Vec<PendingLastJoin>)> {
        if joins.is_empty() {
            return Ok((filter, joins));
        }
        let base = column_set(&from.base.scope);
        let mut low = base;
        low.extend(joins.iter().flat_map(PendingLastJoin::columns));
        let is_low = joins.iter().all(|join| join.reads().all(|column| low.contains(column)))
            && filter.as_ref().is_none_or(|filter| uses_only(filter, &low));
        if !is_low {
            return Ok((filter, joins));
        }
        let kept = from.base.scope.columns.iter().map(|known| Expr::Column(known.column.clone()));
        let joined = self.joined(joins, from.base.plan.clone())?;
        let builder = LogicalPlanBuilder::from(joined);
        let builder = match filter {
            Some(filter) => builder.filter(filter).map_err(planning)?,
            None => builder,
        };
        from.base.plan =
            builder.project(kept).and_then(LogicalPlanBuilder::build).map_err(planning)?;
        Ok((None, Vec::new()))
    }

    /// Binds the query after IN, which has one column.
    fn values(&self, query: &ast::Query, span: Span) -> Result<BoundRelation> {
        let (relation, _) = self.with_sub_queries(None, || self.query(query))?;
        let count = relation.scope.columns.len();
        if count == 1 {
            return Ok(relation);
        }
        let message = format!("subquery of IN must return one column, not {count}");
        Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err()
    }

    /// Joins the last row of a query that is kept by `is_kept`, whatever the row; returns an
    /// expression that is true where there is one.
    fn any_row(
        &self,
        query: &ast::Query,
        is_kept: impl FnOnce(Expr) -> Option<Expr>,
        span: Span,
    ) -> Result<Expr> {
        let values = self.values(query, span)?;
        let value = Expr::Column(values.scope.columns[0].column.clone());
        let values = match is_kept(value.clone()) {
            Some(condition) => values.filtered(condition)?,
            None => values,
        };
        let limited = LogicalPlanBuilder::from(values.plan).limit(0, Some(1));
        let plan = limited.and_then(LogicalPlanBuilder::build).map_err(planning)?;
        let marker = vec![("any".to_owned(), Expr::IsNull(Box::new(value)), DataType::Bool)];
        let right = self.project(plan, marker, "any")?;
        let found = Expr::Column(right.scope.columns[0].column.clone());
        self.add_join(PendingLastJoin::without_keys(span, right), span)?;
        Ok(Expr::IsNotNull(Box::new(found)))
    }

    fn add_join(&self, join: PendingLastJoin, span: Span) -> Result<()> {
        self.size.add_join(span)?;
        if let Some(Some(select)) = self.sub_queries.borrow_mut().last_mut() {
            select.joins.push(join);
        }
        Ok(())
    }
}

impl SubQueries for Binder<'_> {
    fn contains(&self, operand: TypedExpr, query: &ast::Query, span: Span) -> Result<TypedExpr> {
        let (is_of_from, is_condition, base) = match self.sub_queries.borrow().last() {
            Some(Some(select)) => {
                let is_condition = select.conditions.contains(&span);
                (uses_only(&operand.expr, &select.columns), is_condition, select.base.clone())
            }
            _ => return not_here(span).err(),
        };
        if !is_of_from {
            let message =
                "IN (SELECT …) is not supported for an operand computed over a window or a group";
            return Diagnostic::unsupported(message)
                .at(operand.span)
                .with_hint("Compute the operand in a subquery in FROM, and apply IN to the result.")
                .err();
        }
        let right = self.values(query, span)?;
        let found = right.scope.columns[0].clone();
        let value = TypedExpr {
            expr: Expr::Column(found.column.clone()),
            data_type: found.data_type,
            span,
        };
        let operand_is_null = match &operand.expr {
            Expr::Column(column) if is_never_null(&base, column) => None,
            expr => Some(Expr::IsNull(Box::new(expr.clone()))),
        };
        let value_is_null = !is_never_null(&right.plan, &found.column);
        let is_equal = Expr::IsNotNull(Box::new(value.expr.clone()));
        let join = self.looked_up(right, operand, value, span)?;
        self.add_join(join, span)?;
        if is_condition || (operand_is_null.is_none() && !value_is_null) {
            return Ok(TypedExpr { expr: is_equal, data_type: DataType::Bool, span });
        }
        let unknown_operand = match operand_is_null {
            Some(is_null) => {
                let any = self.any_row(query, |_| None, span)?;
                Some(binary(is_null, Operator::And, any))
            }
            None => None,
        };
        let unknown_value = match value_is_null {
            true => {
                let is_null = |value| Some(Expr::IsNull(Box::new(value)));
                Some(self.any_row(query, is_null, span)?)
            }
            false => None,
        };
        let unknown = unknown_operand.into_iter().chain(unknown_value);
        let unknown = unknown.reduce(|left, right| binary(left, Operator::Or, right));
        let unknown = unknown.expect("one of the two can be NULL");
        let truth = |value| Box::new(Expr::Literal(ScalarValue::Boolean(value), None));
        let branches =
            vec![(Box::new(is_equal), truth(Some(true))), (Box::new(unknown), truth(None))];
        let case =
            Case { expr: None, when_then_expr: branches, else_expr: Some(truth(Some(false))) };
        Ok(TypedExpr { expr: Expr::Case(case), data_type: DataType::Bool, span })
    }

    fn is_of_outer_query(&self, path: &[ast::Ident]) -> bool {
        let queries = self.sub_queries.borrow();
        queries.iter().flatten().any(|select| select.scope.find(path).is_ok())
    }
}

/// Makes the error for a sub-query where none may stand.
pub(crate) fn not_here(span: Span) -> Diagnostic {
    Diagnostic::unsupported("subqueries are not allowed here").at(span).with_hint(
        "Use `x IN (SELECT …)`, which is allowed in WHERE and in a select list without GROUP BY, \
         or LAST JOIN to look up a row in another table.",
    )
}

/// Returns whether a column cannot be NULL: it is a copy of NOT NULL columns, or a filter leaves NULL
/// out.
fn is_never_null(plan: &LogicalPlan, wanted: &datafusion::common::Column) -> bool {
    let is_stored = stored_columns(plan, wanted).is_some_and(|copied| {
        let nullable = |table: &CatalogTable, column: usize| {
            table.schema.columns.get(column).is_none_or(|column| column.nullable)
        };
        copied.iter().all(|copied| !nullable(copied.table, copied.column))
    });
    is_stored || leaves_null_out(plan, wanted)
}

/// Returns whether a filter below projections requires that a column is not NULL.
fn leaves_null_out(plan: &LogicalPlan, wanted: &datafusion::common::Column) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let at = projection.schema.maybe_index_of_column(wanted);
            let input = projection.input.schema();
            let below = at.and_then(|at| column(projection.expr.get(at)?, input));
            below.is_some_and(|below| leaves_null_out(&projection.input, &input.columns()[below]))
        }
        LogicalPlan::Filter(filter) => {
            let requires = |part: &&Expr| {
                matches!(part, Expr::IsNotNull(operand)
                    if matches!(operand.as_ref(), Expr::Column(column) if column == wanted))
            };
            datafusion::logical_expr::utils::split_conjunction(&filter.predicate)
                .iter()
                .any(requires)
                || leaves_null_out(&filter.input, wanted)
        }
        _ => false,
    }
}

/// Returns the query of `IN (SELECT …)`.
pub(crate) fn only_query(items: &[ast::Expr]) -> Option<&ast::Query> {
    match items {
        [ast::Expr { kind: ExprKind::SubQuery { exists: false, query }, .. }] => Some(query),
        _ => None,
    }
}
