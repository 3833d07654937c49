//! Aggregates inside the arguments of an aggregate: bound to the same window or group, and made
//! one aggregate together with the outer one (`lockstep_function::NestedAggregate`).

use std::collections::HashMap;

use arrow::datatypes::Field;
use datafusion::{
    common::{
        Column, DFSchema, ScalarValue, TableReference,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::Expr,
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{BoundAggregate, InnerAggregate, NestedAggregate, RowExpr};
use lockstep_row::{DataType, arrow::arrow_type};
use lockstep_sql::ast::{self, Over};

use crate::{
    binder::{Binder, planning},
    expression::{Aggregates, Bound},
    scope::Scope,
    window_calls::{Aggregate, bind_aggregate},
};

/// Tells whether an OVER clause means the window of the outer aggregate; asked with errors.
pub(crate) type IsSameWindow<'a> = &'a mut dyn FnMut(&Over) -> Result<bool>;

/// Collects the aggregates among the arguments of another.
pub(crate) struct InnerCalls<'a, 'b> {
    binder: &'a Binder<'a>,
    is_same_window: IsSameWindow<'b>,
    calls: Vec<(BoundAggregate, Vec<Expr>)>,
}

const PLACEHOLDER: &str = "\u{0}inner ";

fn placeholder(position: usize) -> Column {
    Column::new_unqualified(format!("{PLACEHOLDER}{position}"))
}

impl<'a, 'b> InnerCalls<'a, 'b> {
    pub(crate) fn new(binder: &'a Binder<'a>, is_same_window: IsSameWindow<'b>) -> Self {
        Self { binder, is_same_window, calls: Vec::new() }
    }

    /// The type of the items when an argument is nothing but an inner aggregate that gives a list,
    /// which the outer one then takes item by item.
    pub(crate) fn items(&self, arguments: &[Bound]) -> Option<DataType> {
        let [Bound { expr: Expr::Column(column), data_type: DataType::Array(item), .. }] =
            arguments
        else {
            return None;
        };
        (*column == placeholder(0) && self.calls.len() == 1).then(|| item.as_ref().clone())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes one aggregate of the outer and the inner ones; also gives its arguments. `of_items`
    /// tells that the outer one takes the items of a list.
    pub(crate) fn compose(
        self,
        outer: BoundAggregate,
        arguments: &[Expr],
        of_items: bool,
        scope: &Scope,
    ) -> Result<(BoundAggregate, Vec<Expr>)> {
        let label = format!("{arguments:?} of {:?}", self.calls);
        let inner = self.calls.iter().flat_map(|(_, arguments)| arguments);
        let columns = columns_of(arguments.iter().chain(inner), scope)?;
        let inner_types = self.calls.iter().enumerate();
        let inner_types = inner_types
            .map(|(position, (bound, _))| (placeholder(position), bound.returns.clone()));
        let schema = schema_of(columns.iter().cloned().chain(inner_types))?;
        let compile = |exprs: &[Expr]| -> Result<Vec<RowExpr>> {
            exprs.iter().map(|expr| RowExpr::compile(expr, &schema)).collect()
        };
        let arguments = if of_items { Vec::new() } else { compile(arguments)? };
        let inner = self.calls.into_iter().map(|(bound, arguments)| {
            Ok(InnerAggregate { bound, arguments: compile(&arguments)? })
        });
        let inner = inner.collect::<Result<_>>()?;
        let types = columns.iter().map(|(_, data_type)| data_type.clone()).collect();
        let nested = NestedAggregate { columns: types, inner, outer, arguments };
        let label = Expr::Literal(ScalarValue::Utf8(Some(label)), None);
        let columns = columns.into_iter().map(|(column, _)| Expr::Column(column));
        Ok((nested.bind(), std::iter::once(label).chain(columns).collect()))
    }
}

impl Aggregates for InnerCalls<'_, '_> {
    fn takes(&self, over: Option<&Over>) -> bool {
        over.is_some()
    }

    fn bind(&mut self, call: &ast::Call, span: Span, scope: &Scope) -> Result<Bound> {
        if let Some(over) = &call.over {
            self.check(over)?;
        }
        let (aggregate, arguments) =
            bind_aggregate(self.binder, call, span, scope, self.is_same_window)?;
        let Aggregate { bound, returns, .. } = aggregate;
        let expr = Expr::Column(placeholder(self.calls.len()));
        self.calls.push((bound, arguments));
        Ok(Bound { expr, data_type: returns, span })
    }

    fn enter(&mut self, over: &Over) -> Result<()> {
        self.check(over)
    }

    fn leave(&mut self) {}
}

impl InnerCalls<'_, '_> {
    fn check(&mut self, over: &Over) -> Result<()> {
        if (self.is_same_window)(over)? {
            return Ok(());
        }
        let span = match over {
            Over::Named(name) => name.span,
            Over::Spec(spec) => spec.span,
        };
        Diagnostic::new(
            code::WINDOWING_ERROR,
            "an aggregate inside another is over the same window or group",
        )
        .at(span)
        .with_hint("Compute the inner aggregate in a sub-query.")
        .err()
    }
}

/// The columns that the expressions read, each once, with their types.
fn columns_of<'e>(
    exprs: impl Iterator<Item = &'e Expr>,
    scope: &Scope,
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
