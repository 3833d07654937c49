//! LAST JOIN: splits ON into key pairs, a bound on the order column, and the remaining filter.

use std::{collections::HashSet, sync::Arc};

use arrow::datatypes::{FieldRef, Schema};
use datafusion::{
    common::{Column, DFSchema, Result as DataFusionResult, TableReference},
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::DataType;
use lockstep_sql::ast::{self, BinaryOperator, ExprKind};

use crate::{
    Catalog, DeclaredIndex, LastJoin, TimeBound,
    binder::{Binder, BoundRelation, planning},
    call, comparison,
    expression::{TypedExpr, binary},
    lineage::{StoredColumn, stored_columns},
    scope::NameScope,
    written::{JoinForm, WrittenJoin},
};

/// A bound LAST JOIN without its left side.
#[derive(Debug)]
pub(crate) struct PendingLastJoin {
    pub(crate) span: Span,
    pub(crate) right: BoundRelation,
    keys: Vec<(Expr, Expr)>,
    order_by: Option<Expr>,
    time_bound: Option<TimeBound>,
    filter: Option<Expr>,
}

impl PendingLastJoin {
    /// Joins the last row of a relation, whatever the left row.
    pub(crate) fn without_keys(span: Span, right: BoundRelation) -> Self {
        Self { span, right, keys: Vec::new(), order_by: None, time_bound: None, filter: None }
    }

    /// Returns the columns that the join adds.
    pub(crate) fn columns(&self) -> Vec<Column> {
        self.right.plan.schema().columns()
    }

    /// Returns the columns that the join itself reads, of both sides.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &Column> {
        let keys = self.keys.iter().flat_map(|(left, right)| [left, right]);
        let bound = self.time_bound.iter().map(|bound| &bound.left);
        keys.chain(&self.order_by).chain(bound).chain(&self.filter).flat_map(Expr::column_refs)
    }

    /// Removes the columns of the right side that are not in `read`.
    pub(crate) fn narrow(&mut self, read: &HashSet<Column>) -> Result<()> {
        let columns = self.right.plan.schema().columns();
        let width = columns.len();
        let mut kept: Vec<Expr> =
            columns.into_iter().filter(|column| read.contains(column)).map(Expr::Column).collect();
        if kept.is_empty() {
            kept.extend(self.right.plan.schema().columns().into_iter().take(1).map(Expr::Column));
        }
        if kept.len() == width {
            return Ok(());
        }
        let builder = LogicalPlanBuilder::from(self.right.plan.clone()).project(kept);
        self.right.plan = builder.and_then(LogicalPlanBuilder::build).map_err(planning)?;
        Ok(())
    }

    /// Puts the join on top of its left side.
    pub(crate) fn onto(self, left: LogicalPlan) -> Result<LogicalPlan> {
        let right = self.right.plan;
        let nullable = right.schema().iter().map(|(qualifier, field)| {
            (qualifier.cloned(), Arc::new(field.as_ref().clone().with_nullable(true)))
        });
        let fields = left.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f)));
        let schema = schema_of_unique(fields.chain(nullable)).map_err(planning)?;
        debug_assert_eq!(
            schema.fields().len(),
            left.schema().fields().len() + right.schema().fields().len(),
            "a LAST JOIN has the columns of both sides"
        );
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

/// Returns a schema of fields whose names are known to be unique, as those of a bound plan are.
/// Checking them at each join of a chain would take longer than the rest of planning the chain.
pub fn schema_of_unique(
    fields: impl Iterator<Item = (Option<TableReference>, FieldRef)>,
) -> DataFusionResult<DFSchema> {
    let (qualifiers, fields): (Vec<_>, Vec<_>) = fields.unzip();
    DFSchema::try_from(Schema::new(fields))?.with_field_specific_qualified_schema(qualifiers)
}

/// The sides of a join that an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JoinSide {
    Left,
    Right,
    Both,
}

impl Binder<'_> {
    /// Binds the ON and ORDER BY of a LAST JOIN; `both` are the columns of both sides.
    pub(crate) fn last_join(
        &self,
        both: &NameScope,
        right: BoundRelation,
        join: &ast::Join,
    ) -> Result<PendingLastJoin> {
        let Some(on) = &join.on else {
            return Diagnostic::internal("a LAST JOIN has no ON condition").err();
        };
        let (order, descending_time) = match self.join_order(&right.scope, &join.order_by)? {
            Some((order, descending_time)) => (Some(order), descending_time),
            None => (None, None),
        };
        let rights: HashSet<&Column> = right.scope.columns.iter().map(|c| &c.column).collect();
        let mut keys = Vec::new();
        let mut rest = Vec::new();
        for part in conjuncts(on) {
            match self.key_pair(part, both, &rights)? {
                Some(pair) => keys.push(pair),
                None => rest.push(part),
            }
        }
        let order = order.or_else(|| implied_order(&right, &keys, self.catalog));
        let (mut is_bounded, mut is_later) = (false, false);
        let mut time_bound = None;
        let mut filter: Option<Expr> = None;
        let mut compared_time = None;
        for part in rest {
            if let Some(order) = &order {
                is_later |= self.requires_later(part, both, &rights, order)?;
            }
            if let (None, Some(order)) = (&time_bound, &order) {
                time_bound = self.time_bound(part, both, &rights, order)?;
                if time_bound.is_some() {
                    continue;
                }
            }
            let condition = self.scalar_binder(both).condition(part)?.expr;
            is_bounded |= order.as_ref().is_some_and(|order| compares(&condition, order, &rights));
            if order.is_none() && side(&condition, &rights) == JoinSide::Both {
                compared_time = compared_time.or_else(|| time_of(&condition, &right.scope));
            }
            filter = Some(match filter {
                Some(filter) => binary(filter, Operator::And, condition),
                None => condition,
            });
        }
        let order_by = order.map(|bound| bound.expr);
        self.written.borrow_mut().joins.push(WrittenJoin {
            span: join.span,
            form: JoinForm::LastJoin,
            right: right.plan.clone(),
            keys: keys.iter().map(|(_, right)| right.clone()).collect(),
            order_by: order_by.clone(),
            is_bounded: is_bounded || time_bound.is_some(),
            is_later,
            name: right_name(&right.scope),
            descending_time,
            compared_time,
        });
        Ok(PendingLastJoin { span: join.span, right, keys, order_by, time_bound, filter })
    }

    /// Binds ORDER BY of a LAST JOIN. The second value is its position if it sorts a TIMESTAMP descending.
    fn join_order(
        &self,
        right: &NameScope,
        order_by: &[ast::OrderBy],
    ) -> Result<Option<(TypedExpr, Option<Span>)>> {
        let [item] = order_by else {
            let Some(second) = order_by.get(1) else { return Ok(None) };
            return Diagnostic::unsupported(
                "LAST JOIN with more than one ORDER BY column is not supported",
            )
            .at(second.expr.span)
            .err();
        };
        if item.nulls.is_some() {
            return Diagnostic::unsupported("NULLS FIRST or LAST in a LAST JOIN is not supported")
                .at(item.expr.span)
                .with_hint(
                    "Omit NULLS FIRST or NULLS LAST; NULLs are sorted before all other values.",
                )
                .err();
        }
        let bound = self.scalar_binder(right).bind(&item.expr)?;
        if bound.expr.column_refs().is_empty() {
            let message =
                "ORDER BY of LAST JOIN requires a column of the right side, not a constant";
            return Diagnostic::new(code::INVALID_COLUMN_REFERENCE, message)
                .at(item.expr.span)
                .err();
        }
        if !is_order_type(&bound.data_type) {
            let message = format!(
                "ORDER BY of LAST JOIN must be of type SMALLINT, INT, BIGINT or TIMESTAMP, not {}",
                bound.data_type
            );
            let error = Diagnostic::new(code::DATATYPE_MISMATCH, message).at(item.expr.span);
            return match order_hint(&bound.data_type) {
                Some(hint) => error.with_hint(hint).err(),
                None => error.err(),
            };
        }
        if !item.descending {
            return Ok(Some((bound, None)));
        }
        let descending_time = (bound.data_type == DataType::Timestamp).then_some(item.expr.span);
        // Descending, the last row is the one with the least value. The complement turns the
        // order of integers around, of the least one too, which a sign would not.
        let bound = call::cast(bound, &DataType::BigInt, self.settings, item.expr.span)?;
        let order = call::operator("op_bit_not", vec![bound], self.settings, item.expr.span)?;
        Ok(Some((order, descending_time)))
    }

    /// Binds `left = right` (or mirrored) as a key pair; `None` for any other condition.
    fn key_pair(
        &self,
        part: &ast::Expr,
        both: &NameScope,
        rights: &HashSet<&Column>,
    ) -> Result<Option<(Expr, Expr)>> {
        let ExprKind::Binary { operator: BinaryOperator::Equal, left, right } = &part.kind else {
            return Ok(None);
        };
        let (l, r) = (self.scalar_binder(both).bind(left)?, self.scalar_binder(both).bind(right)?);
        match (side(&l.expr, rights), side(&r.expr, rights)) {
            (JoinSide::Left, JoinSide::Right) => self.equal_pair(l, r, part.span),
            (JoinSide::Right, JoinSide::Left) => self.equal_pair(r, l, part.span),
            _ => Ok(None),
        }
    }

    /// Converts the two sides of an equality to what an index compares; `None` for values that no
    /// index holds.
    fn equal_pair(&self, l: TypedExpr, r: TypedExpr, span: Span) -> Result<Option<(Expr, Expr)>> {
        let (l, r) = comparison::agree(l, r, self.settings, span)?;
        // Refuses the pairs of types that the operator refuses.
        comparison::comparison(Operator::Eq, l.clone(), r.clone(), self.settings, span)?;
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
            let l = call::cast(l, &to, self.settings, span)?;
            let r = call::cast(r, &to, self.settings, span)?;
            return Ok(Some((l.expr, r.expr)));
        }
        Ok(None)
    }

    /// Returns whether a condition requires the order column to be at or after a column of the left
    /// side.
    fn requires_later(
        &self,
        part: &ast::Expr,
        both: &NameScope,
        rights: &HashSet<&Column>,
        order: &TypedExpr,
    ) -> Result<bool> {
        let (earlier, later) = match &part.kind {
            ExprKind::Binary {
                operator: BinaryOperator::Less | BinaryOperator::LessOrEqual,
                left,
                right,
            } => (left, right),
            ExprKind::Binary {
                operator: BinaryOperator::Greater | BinaryOperator::GreaterOrEqual,
                left,
                right,
            } => (right, left),
            ExprKind::Between { operand, negated: false, low, .. } => (low, operand),
            _ => return Ok(false),
        };
        let earlier = self.scalar_binder(both).bind(earlier)?;
        let later = self.scalar_binder(both).bind(later)?;
        let is_of_left = matches!(&earlier.expr, Expr::Column(column) if !rights.contains(column));
        Ok(is_of_left && later.expr == order.expr)
    }

    /// Binds `right.order <= left` (or mirrored, or `<`) as the bound of the order column; `None`
    /// for any other condition.
    fn time_bound(
        &self,
        part: &ast::Expr,
        both: &NameScope,
        rights: &HashSet<&Column>,
        order: &TypedExpr,
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
            && side(&large.expr, rights) == JoinSide::Left
            && (small.data_type == large.data_type
                || (small.data_type.is_integer() && large.data_type.is_integer()));
        Ok(fits.then_some(TimeBound { left: large.expr, inclusive }))
    }
}

impl Binder<'_> {
    /// Joins the last row of `right` whose `value` is equal to the operand.
    pub(crate) fn looked_up(
        &self,
        right: BoundRelation,
        operand: TypedExpr,
        value: TypedExpr,
        span: Span,
    ) -> Result<PendingLastJoin> {
        let pair = self.equal_pair(operand.clone(), value.clone(), span)?;
        let filter = match pair {
            Some(_) => None,
            None => {
                let (l, r) = comparison::agree(operand, value, self.settings, span)?;
                Some(comparison::comparison(Operator::Eq, l, r, self.settings, span)?.expr)
            }
        };
        let keys: Vec<(Expr, Expr)> = pair.into_iter().collect();
        let order_by = implied_order(&right, &keys, self.catalog).map(|order| order.expr);
        self.written.borrow_mut().joins.push(WrittenJoin {
            span,
            form: JoinForm::In,
            right: right.plan.clone(),
            keys: keys.iter().map(|(_, right)| right.clone()).collect(),
            order_by: order_by.clone(),
            is_bounded: false,
            is_later: false,
            name: right_name(&right.scope),
            descending_time: None,
            compared_time: None,
        });
        Ok(PendingLastJoin { span, right, keys, order_by, time_bound: None, filter })
    }
}

/// Returns the one name that qualifies all columns of a relation, if there is one.
fn right_name(right: &NameScope) -> Option<String> {
    let mut names = right.columns.iter().map(|column| column.qualifier.as_ref().map(|q| &q.table));
    let first = names.next()??;
    names.all(|name| name == Some(first)).then(|| first.clone())
}

/// Returns whether a condition of ON reads the order column and the left side.
fn compares(condition: &Expr, order: &TypedExpr, rights: &HashSet<&Column>) -> bool {
    let ordered = order.expr.column_refs();
    side(condition, rights) == JoinSide::Both
        && condition.column_refs().iter().any(|column| ordered.contains(column))
}

/// Returns the name of the first TIMESTAMP column of the right side that a condition reads.
fn time_of(condition: &Expr, right: &NameScope) -> Option<String> {
    let read = condition.column_refs();
    let mut columns = right.columns.iter();
    let found = columns
        .find(|found| found.data_type == DataType::Timestamp && read.contains(&found.column))?;
    Some(found.name.clone())
}

/// Returns whether rows can be ordered by values of this type.
pub(crate) fn is_order_type(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Timestamp
}

/// Returns what to write to order by values of a type that [`is_order_type`] refuses.
pub(crate) fn order_hint(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Date | DataType::String => Some("Write ORDER BY timestamp(x)."),
        _ => None,
    }
}

/// Returns the parts of a condition that AND joins, left to right.
pub(crate) fn conjuncts(on: &ast::Expr) -> Vec<&ast::Expr> {
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

/// Returns which sides an expression reads. A constant counts as the left side: its value is known
/// before the right side is read.
fn side(expr: &Expr, rights: &HashSet<&Column>) -> JoinSide {
    let columns = expr.column_refs();
    let on_right = columns.iter().filter(|column| rights.contains(*column)).count();
    match on_right {
        0 => JoinSide::Left,
        all if all == columns.len() => JoinSide::Right,
        _ => JoinSide::Both,
    }
}

/// Returns the order of a LAST JOIN without ORDER BY: the event time of the declared index over the
/// key columns. Every input of a UNION must have such an index, and the union must have their event
/// times in one column.
fn implied_order(
    right: &BoundRelation,
    keys: &[(Expr, Expr)],
    catalog: &dyn Catalog,
) -> Option<TypedExpr> {
    let key_columns: Vec<Vec<StoredColumn<'_>>> = keys
        .iter()
        .filter_map(|(_, right_key)| match right_key {
            Expr::Column(column) => stored_columns(&right.plan, column),
            _ => None,
        })
        .collect();
    let sources = key_columns.first()?.len();
    let times: Vec<StoredColumn<'_>> = (0..sources)
        .map(|source| {
            let columns: Vec<StoredColumn<'_>> =
                key_columns.iter().map(|key| key[source]).collect();
            Some(StoredColumn { column: event_time(&columns, catalog)?, ..columns[0] })
        })
        .collect::<Option<_>>()?;
    let visible = right
        .scope
        .columns
        .iter()
        .find(|c| stored_columns(&right.plan, &c.column).as_ref() == Some(&times))?;
    is_order_type(&visible.data_type).then(|| TypedExpr {
        expr: Expr::Column(visible.column.clone()),
        data_type: visible.data_type.clone(),
        span: Span::default(),
    })
}

/// Returns the event-time column of the declared index over these key columns of one table.
fn event_time(keys: &[StoredColumn<'_>], catalog: &dyn Catalog) -> Option<usize> {
    let indexes = catalog.declared_indexes(keys.first()?.table);
    let covered = |index: &&DeclaredIndex| {
        index.keys.iter().all(|key| keys.iter().any(|known| known.column == *key))
    };
    let exact = |index: &&DeclaredIndex| covered(index) && index.keys.len() == keys.len();
    let index = indexes.iter().find(exact).or_else(|| indexes.iter().find(covered))?;
    index.event_time
}
