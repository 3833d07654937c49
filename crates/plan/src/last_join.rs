//! LAST JOIN: what ON says is sorted into keys, a bound on the order column, and the rest.

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    common::{Column, DFSchema},
    logical_expr::{Expr, Extension, LogicalPlan, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::DataType;
use lockstep_sql::ast::{self, BinaryOperator, ExprKind};

use crate::{
    CatalogTable, LastJoin, TimeBound,
    binder::{Binder, Relation, planning},
    call,
    expression::{Bound, binary},
    scope::Scope,
};

/// A LAST JOIN whose left side is not fixed yet.
#[derive(Debug)]
pub(crate) struct PendingLastJoin {
    pub(crate) right: Relation,
    keys: Vec<(Expr, Expr)>,
    order_by: Option<Expr>,
    time_bound: Option<TimeBound>,
    filter: Option<Expr>,
}

impl PendingLastJoin {
    /// Puts the join on top of its left side.
    pub(crate) fn onto(self, left: LogicalPlan) -> Result<LogicalPlan> {
        let right = self.right.plan;
        let nullable = right.schema().iter().map(|(qualifier, field)| {
            (qualifier.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
        });
        let fields = left.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f)));
        let schema = DFSchema::new_with_metadata(
            fields.chain(nullable).collect(),
            left.schema().metadata().clone(),
        )
        .map_err(planning)?;
        let node = LastJoin {
            left,
            right,
            keys: self.keys,
            order_by: self.order_by,
            time_bound: self.time_bound,
            filter: self.filter,
            schema: Arc::new(schema),
        };
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    }
}

/// Which sides of a join an expression looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Both,
}

impl Binder<'_> {
    /// Binds the ON and ORDER BY of a LAST JOIN.
    pub(crate) fn last_join(
        &self,
        left: &Scope,
        right: Relation,
        join: &ast::Join,
    ) -> Result<PendingLastJoin> {
        let Some(on) = &join.on else {
            return Diagnostic::new(code::SYNTAX_ERROR, "LAST JOIN needs an ON condition")
                .at(join.span)
                .err();
        };
        let order = self.join_order(&right.scope, &join.order_by)?;
        let both = left.join(&right.scope);
        let rights: HashSet<&Column> = right.scope.columns.iter().map(|c| &c.column).collect();
        let mut keys = Vec::new();
        let mut rest = Vec::new();
        for part in conjuncts(on) {
            match self.key_pair(part, &both, &rights)? {
                Some(pair) => keys.push(pair),
                None => rest.push(part),
            }
        }
        let order = order.or_else(|| implied_order(&right, &keys));
        let mut time_bound = None;
        let mut filter: Option<Expr> = None;
        for part in rest {
            if let (None, Some(order)) = (&time_bound, &order) {
                time_bound = self.time_bound(part, &both, &rights, order)?;
                if time_bound.is_some() {
                    continue;
                }
            }
            let condition = self.scalar_binder(&both).condition(part)?.expr;
            filter = Some(match filter {
                Some(filter) => binary(filter, Operator::And, condition),
                None => condition,
            });
        }
        let order_by = order.map(|bound| bound.expr);
        Ok(PendingLastJoin { right, keys, order_by, time_bound, filter })
    }

    fn join_order(&self, right: &Scope, order_by: &[ast::OrderBy]) -> Result<Option<Bound>> {
        let [item] = order_by else {
            let Some(second) = order_by.get(1) else { return Ok(None) };
            return Diagnostic::unsupported("LAST JOIN orders by one column")
                .at(second.expr.span)
                .err();
        };
        let bound = self.scalar_binder(right).bind(&item.expr)?;
        if !is_order_type(&bound.data_type) {
            let message = format!(
                "LAST JOIN orders by SMALLINT, INT, BIGINT or TIMESTAMP, not {}",
                bound.data_type
            );
            return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(item.expr.span).err();
        }
        Ok(Some(bound))
    }

    /// Reads `left = right` (or mirrored) as a key pair.
    fn key_pair(
        &self,
        part: &ast::Expr,
        both: &Scope,
        rights: &HashSet<&Column>,
    ) -> Result<Option<(Expr, Expr)>> {
        let ExprKind::Binary { operator: BinaryOperator::Equal, left, right } = &part.kind else {
            return Ok(None);
        };
        let (l, r) = (self.scalar_binder(both).bind(left)?, self.scalar_binder(both).bind(right)?);
        let (l, r) = match (side(&l.expr, rights), side(&r.expr, rights)) {
            (Side::Left, Side::Right) => (l, r),
            (Side::Right, Side::Left) => (r, l),
            _ => return Ok(None),
        };
        // Refuses the pairs of types that the operator refuses.
        call::comparison(Operator::Eq, l.clone(), r.clone(), self.settings, part.span)?;
        if l.data_type.is_float() || r.data_type.is_float() {
            return Ok(None);
        }
        let alike =
            l.data_type == r.data_type || (l.data_type.is_integer() && r.data_type.is_integer());
        if alike {
            return Ok(Some((l.expr, r.expr)));
        }
        let to = if l.data_type == DataType::String || r.data_type == DataType::String {
            DataType::String
        } else {
            call::common_type([&l.data_type, &r.data_type].into_iter())
        };
        if to == DataType::String || to.is_integer() {
            let l = call::cast(l, &to, self.settings, part.span)?;
            let r = call::cast(r, &to, self.settings, part.span)?;
            return Ok(Some((l.expr, r.expr)));
        }
        Ok(None)
    }

    /// Reads `right.order <= left` (or mirrored, or `<`) as the bound of the order column.
    fn time_bound(
        &self,
        part: &ast::Expr,
        both: &Scope,
        rights: &HashSet<&Column>,
        order: &Bound,
    ) -> Result<Option<TimeBound>> {
        let ExprKind::Binary { operator, left, right } = &part.kind else { return Ok(None) };
        let (small, large, inclusive) = match operator {
            BinaryOperator::LessOrEqual => (left, right, true),
            BinaryOperator::Less => (left, right, false),
            BinaryOperator::GreaterOrEqual => (right, left, true),
            BinaryOperator::Greater => (right, left, false),
            _ => return Ok(None),
        };
        let small = self.scalar_binder(both).bind(small)?;
        let large = self.scalar_binder(both).bind(large)?;
        let fits = small.expr == order.expr
            && side(&large.expr, rights) == Side::Left
            && (small.data_type == large.data_type
                || (small.data_type.is_integer() && large.data_type.is_integer()));
        Ok(fits.then_some(TimeBound { left: large.expr, inclusive }))
    }
}

/// Whether rows can be ordered by values of this type.
pub(crate) fn is_order_type(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Timestamp
}

/// The parts of a condition that AND joins, left to right.
fn conjuncts(on: &ast::Expr) -> Vec<&ast::Expr> {
    let mut parts = Vec::new();
    let mut stack = vec![on];
    while let Some(expr) = stack.pop() {
        match &expr.kind {
            ExprKind::Binary { operator: BinaryOperator::And, left, right } => {
                stack.push(right);
                stack.push(left);
            }
            _ => parts.push(expr),
        }
    }
    parts
}

/// Constants count as the left side: they are known before the right side is looked at.
fn side(expr: &Expr, rights: &HashSet<&Column>) -> Side {
    let columns = expr.column_refs();
    let on_right = columns.iter().filter(|column| rights.contains(*column)).count();
    match on_right {
        0 => Side::Left,
        all if all == columns.len() => Side::Right,
        _ => Side::Both,
    }
}

/// Without ORDER BY, the newest row is the one that the table's own index over the key columns
/// has first, so that declaring an index's event time is enough to order by it.
fn implied_order(right: &Relation, keys: &[(Expr, Expr)]) -> Option<Bound> {
    let (table, relation) = base_table(&right.plan)?;
    let positions: Vec<usize> = keys
        .iter()
        .filter_map(|(_, right)| match right {
            Expr::Column(column)
                if column.relation.as_ref().map(|r| r.table()) == Some(relation) =>
            {
                table.schema.find_column(&column.name)
            }
            _ => None,
        })
        .collect();
    let covered = |index: &&lockstep_row::IndexSpec| {
        index.declared && index.keys.iter().all(|key| positions.contains(key))
    };
    let exact =
        |index: &&lockstep_row::IndexSpec| covered(index) && index.keys.len() == positions.len();
    let indexes = &table.schema.indexes;
    let index = indexes.iter().find(exact).or_else(|| indexes.iter().find(covered))?;
    let event_time = index.event_time?;
    let column = &table.schema.columns[event_time];
    let visible = right.scope.columns.iter().find(|c| {
        c.column.name == column.name
            && c.column.relation.as_ref().map(|r| r.table()) == Some(relation)
    })?;
    Some(Bound {
        expr: Expr::Column(visible.column.clone()),
        data_type: visible.data_type.clone(),
        span: Span::default(),
    })
}

/// The stored table that a plan filters, if it does nothing else.
fn base_table(plan: &LogicalPlan) -> Option<(&CatalogTable, &str)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            Some((CatalogTable::of(scan.source.as_ref())?, scan.table_name.table()))
        }
        LogicalPlan::Filter(filter) => base_table(&filter.input),
        _ => None,
    }
}
