//! GROUP BY: the aggregates over groups, and expressions over keys and aggregates.

use std::collections::{HashMap, HashSet};

use datafusion::{
    common::{
        Column,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, aggregate, scalar, udf};
use lockstep_sql::ast::{self, ExprKind, Over};

use crate::{
    binder::{Binder, planning},
    call,
    expression::{Aggregates, TypedExpr},
    rank::Numbering,
    scope::NameScope,
    window_calls::bind_aggregate,
};

/// The aggregates of a grouped SELECT. Until the plan exists, each is represented by a placeholder:
/// a column without relation, named by its position.
pub(crate) struct GroupCalls<'a> {
    binder: &'a Binder<'a>,
    keys: Vec<TypedExpr>,
    calls: Vec<Expr>,
    /// The positions of the calls.
    positions: HashMap<Expr, usize>,
    /// The names that an unqualified column of the groups may not have.
    taken: HashSet<String>,
}

/// The plan with the groups, and the columns that replace keys and placeholders above it.
pub(crate) struct Grouped {
    pub(crate) plan: LogicalPlan,
    keys: HashMap<Expr, Column>,
    calls: Vec<Column>,
}

impl<'a> GroupCalls<'a> {
    pub(crate) fn new(binder: &'a Binder<'a>, keys: Vec<TypedExpr>, scope: &NameScope) -> Self {
        let taken = scope.columns.iter().map(|column| column.column.name.clone()).collect();
        Self { binder, keys, calls: Vec::new(), positions: HashMap::new(), taken }
    }

    /// Returns whether there is neither a key nor an aggregate.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.calls.is_empty()
    }

    /// Puts the groups on top of the input.
    pub(crate) fn group(mut self, input: LogicalPlan) -> Result<Grouped> {
        let mut keys: Vec<Expr> = Vec::new();
        let mut known: HashSet<Expr> = HashSet::new();
        let mut grouped: Vec<Expr> = Vec::new();
        for key in std::mem::take(&mut self.keys) {
            if !known.insert(key.expr.clone()) {
                continue;
            }
            keys.push(key.expr.clone());
            let (settings, span) = (self.binder.settings, key.span);
            if key.data_type.is_float() && settings.compatibility == Compatibility::OpenMldb {
                let message = format!("cannot group by type {}", key.data_type);
                return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(span).err();
            }
            let key = match key.data_type.is_float() {
                // The two zeros are one group, and so are all NaNs.
                true => call::operator("op_group_key", vec![key], settings, span)?,
                false => key,
            };
            let is_column = matches!(key.expr, Expr::Column(_));
            grouped.push(if is_column { key.expr } else { self.named(key.expr) });
        }
        let call_count = self.calls.len();
        let plan = LogicalPlanBuilder::from(input)
            .aggregate(grouped, self.calls)
            .and_then(LogicalPlanBuilder::build)
            .map_err(planning)?;
        debug_assert_eq!(plan.schema().fields().len(), keys.len() + call_count, "keys and calls");
        let mut columns = plan.schema().columns().into_iter();
        let keys = keys.into_iter().zip(columns.by_ref()).collect();
        Ok(Grouped { calls: columns.collect(), keys, plan })
    }
}

impl Grouped {
    /// Rewrites an expression over the input, with its placeholders, into one over the groups.
    pub(crate) fn over_groups(&self, expr: Expr, span: Span) -> Result<Expr> {
        let mut stray = None;
        let rewritten = expr
            .transform_down(|expr| {
                if let Some(column) = self.keys.get(&expr) {
                    let column = Expr::Column(column.clone());
                    return Ok(Transformed::new(column, true, TreeNodeRecursion::Jump));
                }
                let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
                match placeholder_position(column) {
                    Some(position) => {
                        let column = Expr::Column(self.calls[position].clone());
                        Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
                    }
                    None => {
                        stray.get_or_insert_with(|| column.name.clone());
                        Ok(Transformed::no(expr))
                    }
                }
            })
            .map_err(planning)?;
        match stray {
            None => Ok(rewritten.data),
            Some(name) => Diagnostic::new(
                code::GROUPING_ERROR,
                format!("column `{name}` must appear in GROUP BY or be used in an aggregate"),
            )
            .at(span)
            .err(),
        }
    }
}

impl GroupCalls<'_> {
    /// Gives an expression over the groups a unique name: `count(*)` and `count(true)` would have
    /// the same, and a column of FROM may have it too.
    fn named(&mut self, expr: Expr) -> Expr {
        let name = expr.schema_name().to_string();
        if self.taken.insert(name.clone()) {
            return expr;
        }
        let mut number = self.taken.len();
        loop {
            let numbered = format!("{name} {number}");
            if self.taken.insert(numbered.clone()) {
                return expr.alias(numbered);
            }
            number += 1;
        }
    }
}

impl Aggregates for GroupCalls<'_> {
    fn accepts(&self, over: Option<&Over>) -> bool {
        over.is_none()
    }

    fn bind(&mut self, call: &ast::Call, span: Span, scope: &NameScope) -> Result<TypedExpr> {
        if call.over.is_some() {
            return windows_do_not_mix(span);
        }
        let aggregate = bind_aggregate(self.binder, call, span, scope, None)?;
        let expr = udf::aggregate_call(
            aggregate.function,
            aggregate.bound,
            &aggregate.constants,
            &self.binder.settings,
            aggregate.arguments,
        );
        let position = match self.positions.get(&expr) {
            Some(position) => *position,
            None => {
                let position = self.calls.len();
                self.positions.insert(expr.clone(), position);
                let expr = self.named(expr);
                self.calls.push(expr);
                position
            }
        };
        Ok(TypedExpr {
            expr: Expr::Column(placeholder(position)),
            data_type: aggregate.returns,
            span,
        })
    }

    fn bind_rank(
        &mut self,
        _: Numbering,
        _: &ast::Call,
        span: Span,
        _: &NameScope,
    ) -> Option<Result<TypedExpr>> {
        Some(windows_do_not_mix(span))
    }

    fn enter(&mut self, over: &Over) -> Result<()> {
        windows_do_not_mix(over.span())
    }

    fn leave(&mut self) {}
}

fn windows_do_not_mix<T>(span: Span) -> Result<T> {
    Diagnostic::new(code::WINDOWING_ERROR, "groups and windows cannot be combined in a SELECT")
        .at(span)
        .with_hint("Compute either the groups or the windows in a subquery.")
        .err()
}

const PLACEHOLDER: &str = "\u{0}aggregate ";

fn placeholder(position: usize) -> Column {
    Column::new_unqualified(format!("{PLACEHOLDER}{position}"))
}

fn placeholder_position(column: &Column) -> Option<usize> {
    column.name.strip_prefix(PLACEHOLDER)?.parse().ok()
}

/// Returns whether an expression has an aggregate without OVER.
pub(crate) fn has_group_aggregate(expr: &ast::Expr) -> bool {
    let mut found = false;
    for_each_outer_call(expr, |call| {
        let name = &call.name.text;
        let is_aggregate = aggregate::find(name).is_some_and(|found| found.name != "lag");
        found |= call.over.is_none() && is_aggregate && scalar::find(name).is_none();
    });
    found
}

/// Returns the window of an expression that has one OVER, or several equal ones, and aggregates
/// without: OpenMLDB computes all of them over that window, as in `max(x) - min(x) OVER w`.
pub(crate) fn shared_window(expr: &ast::Expr) -> Option<&Over> {
    let mut windows = Vec::new();
    for_each_outer_call(expr, |call| windows.extend(&call.over));
    let (first, others) = windows.split_first()?;
    let is_shared = others.iter().all(|over| over == first) && has_group_aggregate(expr);
    is_shared.then_some(first)
}

/// Visits the calls of an expression, but not those within the arguments of a call with OVER.
fn for_each_outer_call<'e>(expr: &'e ast::Expr, mut visit: impl FnMut(&'e ast::Call)) {
    let mut stack = vec![expr];
    while let Some(expr) = stack.pop() {
        match &expr.kind {
            ExprKind::Call(call) => {
                visit(call);
                if call.over.is_none() {
                    stack.extend(&call.arguments);
                }
            }
            ExprKind::Unary { operand, .. }
            | ExprKind::IsNull { operand, .. }
            | ExprKind::Cast { operand, .. } => stack.push(operand),
            ExprKind::Binary { left, right, .. } => stack.extend([left.as_ref(), right.as_ref()]),
            ExprKind::Between { operand, low, high, .. } => {
                stack.extend([operand.as_ref(), low.as_ref(), high.as_ref()]);
            }
            ExprKind::InList { operand, items, .. } => {
                stack.push(operand);
                stack.extend(items);
            }
            ExprKind::Like { operand, pattern, escape, .. } => {
                stack.extend([operand.as_ref(), pattern.as_ref()]);
                stack.extend(escape.as_deref());
            }
            ExprKind::Case { operand, branches, otherwise } => {
                stack.extend(operand.as_deref());
                stack.extend(otherwise.as_deref());
                stack.extend(branches.iter().flat_map(|(when, then)| [when, then]));
            }
            ExprKind::Index { operand, index } => {
                stack.extend([operand.as_ref(), index.as_ref()]);
            }
            ExprKind::Array { items, .. } => stack.extend(items),
            ExprKind::Column(_)
            | ExprKind::Literal(_)
            | ExprKind::QuotedText(_)
            | ExprKind::Parameter(_)
            | ExprKind::SubQuery { .. } => {}
        }
    }
}
