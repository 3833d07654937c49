//! Aggregates inside the arguments of an aggregate: bound over the same window or group, and
//! combined with the outer one into one aggregate (`lockstep_function::NestedAggregate`).

use std::collections::HashMap;

use arrow::datatypes::Field;
use datafusion::{
    common::{
        Column, DFSchema, ScalarValue, TableReference,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        BinaryExpr, Expr, Operator, lit,
        utils::{conjunction, split_conjunction},
    },
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{
    BoundAggregate, Compatibility, InnerAggregate, NestedAggregate, OuterArguments, RowExpr,
    udf::as_scalar,
};
use lockstep_row::{DataType, arrow::arrow_type};
use lockstep_sql::ast::{self, Over};

use crate::{
    binder::{Binder, planning},
    expression::{Aggregates, TypedExpr},
    scope::NameScope,
    window_calls::bind_aggregate,
};

/// Returns whether an OVER clause means the window of the outer aggregate; `None` for an aggregate over
/// groups.
pub(crate) type IsSameWindow<'a> = Option<&'a mut dyn FnMut(&Over) -> Result<bool>>;

/// The aggregates among the arguments of an outer aggregate.
pub(crate) struct InnerCalls<'a, 'b> {
    binder: &'a Binder<'a>,
    is_same_window: IsSameWindow<'b>,
    calls: Vec<InnerCall>,
}

/// A bound inner aggregate.
#[derive(Debug)]
struct InnerCall {
    span: Span,
    bound: BoundAggregate,
    arguments: Vec<Expr>,
}

/// The outer aggregate, whose arguments have the inner ones as placeholders.
pub(crate) struct OuterAggregate<'a> {
    /// The call as it was written.
    pub(crate) call: &'a ast::Call,
    pub(crate) bound: BoundAggregate,
    pub(crate) arguments: &'a [Expr],
    /// Whether it takes the items of a list.
    pub(crate) takes_items: bool,
}

/// An outer aggregate together with its inner ones.
pub(crate) struct ComposedAggregate {
    pub(crate) bound: BoundAggregate,
    pub(crate) arguments: Vec<Expr>,
}

const PLACEHOLDER: &str = "\u{0}inner ";

fn placeholder(position: usize) -> Column {
    Column::new_unqualified(format!("{PLACEHOLDER}{position}"))
}

impl<'a, 'b> InnerCalls<'a, 'b> {
    pub(crate) fn new(binder: &'a Binder<'a>, is_same_window: IsSameWindow<'b>) -> Self {
        Self { binder, is_same_window, calls: Vec::new() }
    }

    /// Returns the item type when the first argument is the only inner aggregate and returns a list,
    /// which the outer one then takes item by item.
    pub(crate) fn items(&self, arguments: &[TypedExpr]) -> Option<DataType> {
        let [TypedExpr { expr: Expr::Column(column), data_type: DataType::Array(item), .. }, ..] =
            arguments
        else {
            return None;
        };
        (*column == placeholder(0) && self.calls.len() == 1).then(|| item.as_ref().clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Fails for an inner aggregate over groups, which standard SQL does not have: its one value would
    /// be repeated for each row of the group. The items of a list that it returns are other rows.
    pub(crate) fn check_levels(&self, takes_items: bool) -> Result<()> {
        let Some(inner) = self.calls.first() else { return Ok(()) };
        if self.is_same_window.is_some() || takes_items {
            return Ok(());
        }
        Diagnostic::new(code::GROUPING_ERROR, "aggregates over groups cannot be nested")
            .at(inner.span)
            .with_hint("Compute the inner aggregate in a subquery in FROM.")
            .err()
    }

    /// Combines the outer aggregate and the inner ones into one.
    pub(crate) fn compose(
        self,
        outer: OuterAggregate<'_>,
        scope: &NameScope,
    ) -> Result<ComposedAggregate> {
        let OuterAggregate { call, bound: outer, arguments, takes_items } = outer;
        debug_assert!(!self.calls.is_empty(), "an aggregate without inner ones is not composed");
        debug_assert!(!takes_items || !arguments.is_empty(), "the list is an argument");
        let identity = format!("{arguments:?} of {:?}", self.calls);
        let label = NestedAggregate::label(&ast::Call { over: None, ..call.clone() }, &identity);
        let inner = self.calls.iter().flat_map(|call| &call.arguments);
        let columns = columns_of(arguments.iter().chain(inner), scope)?;
        let inner_types = self.calls.iter().enumerate();
        let inner_types =
            inner_types.map(|(position, call)| (placeholder(position), call.bound.returns.clone()));
        let schema = schema_of(columns.iter().cloned().chain(inner_types))?;
        let compile = |exprs: &[Expr]| -> Result<Vec<RowExpr>> {
            exprs.iter().map(|expr| RowExpr::compile(expr, &schema)).collect()
        };
        let matching = if takes_items { None } else { matching(&outer, arguments) };
        let arguments = match matching {
            None if takes_items => {
                let others = &arguments[1..];
                let is_of_row = |column: &Column| !is_placeholder(column);
                let has_columns = others.iter().any(|expr| reads(expr, is_of_row));
                OuterArguments::Items { others: compile(others)?, has_columns }
            }
            None => OuterArguments::Rows(compile(arguments)?),
            Some(Matching { row_keys, frame_keys, arguments: of_row }) => {
                let (row_keys, frame_keys) = (compile(&row_keys)?, compile(&frame_keys)?);
                let mut pairs = row_keys.iter().zip(&frame_keys);
                // In a key NaN equals NaN, which it does not in OpenMLDB.
                let settings = self.binder.settings;
                let has_nan = |row: &RowExpr| {
                    settings.compatibility == Compatibility::OpenMldb && row.data_type().is_float()
                };
                let is_key = |(row, frame): (&RowExpr, &RowExpr)| {
                    row.data_type() == frame.data_type() && !has_nan(row)
                };
                if pairs.all(is_key) {
                    let arguments = compile(&of_row)?;
                    OuterArguments::Matching { row_keys, frame_keys, arguments }
                } else {
                    OuterArguments::Rows(compile(arguments)?)
                }
            }
        };
        let inner = self.calls.into_iter().map(|call| {
            Ok(InnerAggregate { bound: call.bound, arguments: compile(&call.arguments)? })
        });
        let inner = inner.collect::<Result<_>>()?;
        let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
        let nested = NestedAggregate { columns: types, inner, outer, arguments };
        let label = Expr::Literal(ScalarValue::Utf8(Some(label)), None);
        let columns = columns.into_iter().map(|(column, _)| Expr::Column(column));
        let arguments = std::iter::once(label).chain(columns).collect();
        Ok(ComposedAggregate { bound: nested.bind(), arguments })
    }
}

impl Aggregates for InnerCalls<'_, '_> {
    /// Returns true: without OVER a call is over the frame of the outer one, so `at(x, 0)`, which
    /// is also a function of lists, is `lag(x, 0)` here unless `x` is a list.
    fn accepts(&self, _: Option<&Over>) -> bool {
        true
    }

    fn bind(&mut self, call: &ast::Call, span: Span, scope: &NameScope) -> Result<TypedExpr> {
        if let Some(over) = &call.over {
            self.check(over)?;
        }
        let is_same_window =
            self.is_same_window.as_mut().map(|is_same_window| &mut **is_same_window as _);
        let aggregate = bind_aggregate(self.binder, call, span, scope, is_same_window)?;
        let expr = Expr::Column(placeholder(self.calls.len()));
        self.calls.push(InnerCall { span, bound: aggregate.bound, arguments: aggregate.arguments });
        Ok(TypedExpr { expr, data_type: aggregate.returns, span })
    }

    fn enter(&mut self, over: &Over) -> Result<()> {
        self.check(over)
    }

    fn leave(&mut self) {}
}

impl InnerCalls<'_, '_> {
    fn check(&mut self, over: &Over) -> Result<()> {
        if let Some(is_same_window) = &mut self.is_same_window
            && is_same_window(over)?
        {
            return Ok(());
        }
        let (code, message) = match self.is_same_window {
            Some(_) => (code::WINDOWING_ERROR, "nested aggregates must use the same window"),
            None => (code::GROUPING_ERROR, "an aggregate over groups cannot contain a window"),
        };
        Diagnostic::new(code, message)
            .at(over.span())
            .with_hint("Compute the inner aggregate in a subquery.")
            .err()
    }
}

/// The arguments of an outer aggregate whose condition requires expressions over the row to equal
/// expressions over the inner values.
struct Matching {
    row_keys: Vec<Expr>,
    frame_keys: Vec<Expr>,
    /// The arguments, with the rest of the condition.
    arguments: Vec<Expr>,
}

/// Extracts the equalities from the condition of an aggregate; `None` when it has no condition, or
/// when anything else depends on the inner values.
fn matching(outer: &BoundAggregate, arguments: &[Expr]) -> Option<Matching> {
    let condition = outer.condition()?.argument;
    let (mut row_keys, mut frame_keys, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for part in split_conjunction(arguments.get(condition)?) {
        if !reads(part, is_placeholder) {
            rest.push(part.clone());
            continue;
        }
        let (left, right) = equality(part)?;
        let is_of_row = |expr: &Expr| !reads(expr, is_placeholder);
        let is_of_frame = |expr: &Expr| !reads(expr, |column| !is_placeholder(column));
        let (row, frame) = match (left, right) {
            (row, frame) if is_of_row(row) && is_of_frame(frame) => (row, frame),
            (frame, row) if is_of_row(row) && is_of_frame(frame) => (row, frame),
            _ => return None,
        };
        row_keys.push(row.clone());
        frame_keys.push(frame.clone());
    }
    let mut arguments = arguments.to_vec();
    arguments[condition] = conjunction(rest).unwrap_or_else(|| lit(true));
    let slides = !row_keys.is_empty() && !arguments.iter().any(|expr| reads(expr, is_placeholder));
    slides.then_some(Matching { row_keys, frame_keys, arguments })
}

/// Returns the sides of an equality.
fn equality(expr: &Expr) -> Option<(&Expr, &Expr)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => Some((left, right)),
        Expr::ScalarFunction(call) if as_scalar(&call.func)?.is_equality() => {
            let [left, right] = call.args.as_slice() else { return None };
            Some((left, right))
        }
        _ => None,
    }
}

fn is_placeholder(column: &Column) -> bool {
    column.relation.is_none() && column.name.starts_with(PLACEHOLDER)
}

/// Returns whether an expression reads a column for which `is_meant` is true.
fn reads(expr: &Expr, is_meant: impl Fn(&Column) -> bool) -> bool {
    expr.column_refs().into_iter().any(is_meant)
}

/// Returns the columns that the expressions read, each once, with their types.
fn columns_of<'e>(
    exprs: impl Iterator<Item = &'e Expr>,
    scope: &NameScope,
) -> Result<Vec<(Column, DataType)>> {
    let mut columns: Vec<(Column, DataType)> = Vec::new();
    for expr in exprs {
        let visited = expr.apply(|expr| {
            if let Expr::Column(column) = expr
                && columns.iter().all(|(known, _)| known != column)
                && let Some(found) = scope.columns.iter().find(|known| known.column == *column)
            {
                columns.push((column.clone(), found.data_type.clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        visited.map_err(planning)?;
    }
    Ok(columns)
}

fn schema_of(columns: impl Iterator<Item = (Column, DataType)>) -> Result<DFSchema> {
    let fields = columns.map(|(column, data_type)| {
        let relation: Option<TableReference> = column.relation;
        (relation, Field::new(column.name, arrow_type(&data_type), true).into())
    });
    DFSchema::new_with_metadata(fields.collect(), HashMap::new()).map_err(planning)
}
