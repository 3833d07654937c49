//! Queries: WITH, set operations, ORDER BY, LIMIT and OFFSET around SELECT.

use std::{collections::HashSet, sync::Arc};

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Union};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Settings, cast, scalar::feature_role::FeatureRole};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{self, ExprKind, SetExpr};

use crate::{
    Catalog, CatalogTable, SourceHandle, Written,
    binder::{Binder, BoundCommonTable, BoundRelation, planning},
    lineage::{leftmost_table, roles},
    scope::ScopeColumn,
    view::NamedObjects,
};

/// A query with its names resolved and its types known.
#[derive(Debug, Clone)]
pub struct BoundQuery {
    /// The logical plan. The fields of its schema have unique internal names.
    pub plan: LogicalPlan,
    /// The user's names of the columns, which may repeat, and their types.
    pub columns: Vec<(String, DataType)>,
    /// The leftmost stored table: in request mode, the request row is a row of it. `None` for a
    /// query without a table.
    pub request_table: Option<Arc<CatalogTable>>,
    /// Windows and joins as they were written.
    pub written: Written,
    /// The tables and views that its own text names, as (database, name): not what its views read.
    pub named: Vec<(String, String)>,
    /// The views that it reads, and those that they read.
    pub views: Vec<SourceHandle>,
    /// The files that it names, itself or by its views, also where no operator reads them.
    pub files: Vec<Arc<CatalogTable>>,
    /// The settings that it was bound with.
    pub settings: Settings,
}

impl BoundQuery {
    /// Returns the role of each column for a model; `None` for a column that no signature marks.
    pub fn roles(&self) -> Vec<Option<FeatureRole>> {
        roles(&self.plan)
    }
}

/// The settings and parameters that a query is bound with.
#[derive(Debug, Clone, Default)]
pub struct BindOptions {
    /// The session's settings.
    pub settings: Settings,
    /// The values of `?`, in order.
    pub parameters: Vec<(Value, DataType)>,
    /// Whether names and comparisons are as PostgreSQL's clients write them: a DATE that is compared with a
    /// TIMESTAMP is its midnight, and where no column has a name, the only one that has it in other capitals
    /// is meant. Both are errors otherwise.
    pub as_postgres: bool,
}

/// Binds a query.
pub fn bind(
    query: &ast::Query,
    catalog: &dyn Catalog,
    options: &BindOptions,
) -> Result<BoundQuery> {
    lockstep_host::with_large_stack(|| bind_query(query, catalog, options))
}

fn bind_query(
    query: &ast::Query,
    catalog: &dyn Catalog,
    options: &BindOptions,
) -> Result<BoundQuery> {
    let binder = Binder::new(catalog, options);
    let relation = binder.query(query)?;
    let columns = relation.scope.columns.into_iter().map(|c| (c.name, c.data_type)).collect();
    let request_table = leftmost_table(&relation.plan).cloned().map(Arc::new);
    let written = Written { span: query.span, ..binder.written.into_inner() };
    let settings = options.settings;
    let NamedObjects { named, views, files } = binder.named.into_inner();
    let (plan, named) = (relation.plan, named.into_iter().collect());
    Ok(BoundQuery { plan, columns, request_table, written, named, views, files, settings })
}

/// Binds a constant expression, such as a value of INSERT or a DEFAULT, and casts it to a type.
/// `None` where the expression is not a literal, a signed literal or NULL.
pub fn bind_constant(expr: &ast::Expr, options: &BindOptions) -> Option<Value> {
    let (scope, size) = (crate::scope::NameScope::default(), crate::size::Size::default());
    let mut binder = crate::expression::ExprBinder {
        scope: &scope,
        settings: options.settings,
        parameters: &options.parameters,
        aggregates: None,
        written: None,
        size: &size,
        non_list_calls: None,
        sub_queries: None,
        aliased: &[],
        as_postgres: options.as_postgres,
    };
    let bound = lockstep_host::with_large_stack(|| binder.bind(expr)).ok()?;
    crate::literal::constant(&bound.expr)
}

impl Binder<'_> {
    /// Binds a query, with its common tables in scope.
    pub(crate) fn query(&self, query: &ast::Query) -> Result<BoundRelation> {
        self.size.beside(|| self.query_inside(query))
    }

    fn query_inside(&self, query: &ast::Query) -> Result<BoundRelation> {
        let outer = self.common_tables.borrow().len();
        let mut names = HashSet::new();
        for table in &query.with {
            if !names.insert(&table.name.text) {
                let message =
                    format!("WITH query name `{}` specified more than once", table.name.text);
                return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(table.name.span).err();
            }
            let (mut relation, weight) = self.size.weighed(|| self.query(&table.query))?;
            relation.scope.rename(&table.columns)?;
            let name = table.name.text.clone();
            self.common_tables.borrow_mut().push(BoundCommonTable { name, relation, weight });
        }
        let result = self.body(query);
        debug_assert!(
            self.common_tables.borrow().len() >= outer,
            "a query removes only its own common tables"
        );
        self.common_tables.borrow_mut().truncate(outer);
        result
    }

    fn body(&self, query: &ast::Query) -> Result<BoundRelation> {
        let relation = match &query.body {
            SetExpr::Select(select) => self.select(select, &query.order_by)?,
            other => {
                let relation = self.set(other)?;
                self.order(relation, &query.order_by)?
            }
        };
        let Some(written) = query.limit.as_ref().or(query.offset.as_ref()) else {
            return Ok(relation);
        };
        self.size.add_operators(1, written.span)?;
        let count = |limit: &ast::RowLimit| usize::try_from(limit.count).unwrap_or(usize::MAX);
        let skipped = query.offset.as_ref().map_or(0, count);
        let builder =
            LogicalPlanBuilder::from(relation.plan).limit(skipped, query.limit.as_ref().map(count));
        let plan = builder.and_then(LogicalPlanBuilder::build).map_err(planning)?;
        Ok(BoundRelation { plan, scope: relation.scope })
    }

    fn set(&self, set: &SetExpr) -> Result<BoundRelation> {
        match set {
            SetExpr::Select(select) => self.size.beside(|| self.select(select, &[])),
            SetExpr::Query(query) => self.query(query),
            SetExpr::Union { all, sources } => {
                let bound = sources.iter().map(|source| self.set(source));
                let bound = bound.collect::<Result<Vec<_>>>()?;
                check_sides(&bound, sources)?;
                self.union(bound, *all)
            }
        }
    }

    /// Binds a UNION. All sources are projected to the same internal names, since a union keeps the
    /// names that its inputs have in common.
    fn union(&self, sources: Vec<BoundRelation>, all: bool) -> Result<BoundRelation> {
        debug_assert!(sources.len() >= 2, "a union has two sources or more");
        self.size.add_beside(sources.len(), Span::default())?;
        self.size.add_operators(if all { 2 } else { 3 }, Span::default())?;
        let relation = self.unique("union");
        let mut plans = Vec::with_capacity(sources.len());
        let mut scope = None;
        for source in sources {
            let columns = source.scope.columns.into_iter();
            let items = columns.map(|c| (c.name, Expr::Column(c.column), c.data_type)).collect();
            let items = if all { items } else { self.comparable(items, Span::default())? };
            let projected = self.project_as(source.plan, items, &relation)?;
            plans.push(Arc::new(projected.plan));
            scope.get_or_insert(projected.scope);
        }
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(plans).map_err(planning)?);
        let builder = LogicalPlanBuilder::from(union);
        let builder = if all { Ok(builder) } else { builder.distinct() };
        let plan = builder.and_then(LogicalPlanBuilder::build).map_err(planning)?;
        // A union drops the relation from its columns' names; without one they could meet a
        // column of the same name above.
        let columns = scope.expect("a union has sources").columns.into_iter();
        let items = columns
            .zip(plan.schema().columns())
            .map(|(known, column)| (known.name, Expr::Column(column), known.data_type))
            .collect();
        self.project(plan, items, "union")
    }
}

/// Fails where a side of a UNION has other columns than the first.
fn check_sides(sides: &[BoundRelation], written: &[SetExpr]) -> Result<()> {
    let first = &sides[0].scope.columns;
    for (side, written) in sides.iter().zip(written).skip(1) {
        let columns = &side.scope.columns;
        let differs = |(left, right): &(&ScopeColumn, &ScopeColumn)| {
            (&left.name, &left.data_type) != (&right.name, &right.data_type)
        };
        let differing = first.iter().zip(columns).position(|pair| differs(&pair));
        let (detail, hint) = match differing {
            Some(at) => {
                let (expected, found) = (&first[at], &columns[at]);
                let text = |column: &ScopeColumn| format!("`{}` {}", column.name, column.data_type);
                let detail = format!(
                    "Column {} is {}; on the first side it is {}.",
                    at + 1,
                    text(found),
                    text(expected)
                );
                (detail, side_hint(expected, found))
            }
            None if first.len() != columns.len() => {
                let (found, expected) = (columns.len(), first.len());
                let detail =
                    format!("This side has {found} columns; the first side has {expected}.");
                (detail, "Select the same columns on each side.".to_owned())
            }
            None => continue,
        };
        let message = "the sides of a UNION must have the same column names and types";
        return Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .at(span_of(written))
            .with_detail(detail)
            .with_hint(hint)
            .err();
    }
    Ok(())
}

/// Returns what to write for a column of a UNION that has another name or type than on the first side:
/// the narrower of two types becomes the wider one.
fn side_hint(expected: &ScopeColumn, found: &ScopeColumn) -> String {
    let is_name = |column: &&ScopeColumn| {
        let parsed = lockstep_sql::parse_expression(&column.name);
        parsed.is_ok_and(|expr| matches!(expr.kind, ExprKind::Column(path) if path.len() == 1))
    };
    let Some(name) = Some(expected).filter(is_name) else {
        return "Use the same column name (with AS) and type on each side.".to_owned();
    };
    let name = &name.name;
    let value = Some(found).filter(is_name).map_or("…", |found| found.name.as_str());
    if found.data_type == expected.data_type {
        return format!("Write `{value} AS {name}`.");
    }
    match cast::common_type([&expected.data_type, &found.data_type]) {
        Some(wide) if wide == found.data_type => {
            format!("Write `CAST({name} AS {wide}) AS {name}` on the first side.")
        }
        Some(wide) if wide == expected.data_type => {
            format!("Write `CAST({value} AS {wide}) AS {name}`.")
        }
        Some(wide) => format!("Write `CAST(… AS {wide}) AS {name}` on each side."),
        None => "Select values of one type on each side.".to_owned(),
    }
}

/// Returns where a side of a UNION is.
fn span_of(set: &SetExpr) -> Span {
    match set {
        SetExpr::Select(select) => select.span,
        SetExpr::Query(query) => query.span,
        SetExpr::Union { sources, .. } => sources.first().map_or_else(Span::default, span_of),
    }
}
