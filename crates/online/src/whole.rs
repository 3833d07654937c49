//! Requests that one row cannot answer: GROUP BY over a sub-query with windows, an aggregate of
//! the whole table, a join with many matches, windows over a UNION or DISTINCT.
//!
//! The answer is, by definition, what batch mode gives for the request row when it is the latest
//! arrival of its table. So that is what happens here: the plan is rewritten so that its left-most
//! table holds the request row too and so that a mark follows that row upwards, batch mode runs it,
//! and the marked rows are the answer. A group is marked when the request row is in it. Exact, and
//! as slow as batch mode; the compiler takes this way only where no chain of steps will do.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::{
    common::{
        Column, DFSchema, DFSchemaRef, DataFusionError, Result as PlanResult, ScalarValue,
        internal_datafusion_err,
    },
    logical_expr::{
        Aggregate, Distinct, EmptyRelation, Expr, Extension, LogicalPlan, LogicalPlanBuilder,
        Projection, SubqueryAlias, TableScan, Union, lit,
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Arguments, Settings, aggregate, udf::aggregate_call};
use lockstep_plan::{LastJoin, WindowAggregate};
use lockstep_row::{
    DataType, Datum,
    arrow::{ColumnBuilder, arrow_type},
};

use crate::{
    materialise::{BatchFallback, Materialised, MaterialisedRows},
    trace,
};

/// The mark: 1 for the request row and what came of it, 0 (or NULL) for everything else. Always
/// the last column.
const MARK: &str = "__request";

/// Whether each request for a plan runs it in batch mode, over all rows of its tables.
pub fn reads_all_rows(plan: &LogicalPlan) -> bool {
    is_needed(plan, false)
}

/// Whether a plan needs all rows to answer for one. `in_window` tells whether rows of the plan are
/// the history of a window above it.
pub(crate) fn is_needed(plan: &LogicalPlan, in_window: bool) -> bool {
    let input = |in_window| plan.inputs().first().is_some_and(|input| is_needed(input, in_window));
    match plan {
        LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) => false,
        LogicalPlan::Union(_) => in_window || input(false),
        LogicalPlan::Distinct(_) => in_window || input(false),
        LogicalPlan::Aggregate(node) => in_window || !trace::is_keyed_group(node) || input(false),
        LogicalPlan::Join(_) | LogicalPlan::Values(_) => true,
        LogicalPlan::Extension(_) => input(in_window || trace::window(plan).is_some()),
        _ => input(in_window),
    }
}

/// Runs a plan for one request row whose columns have these types.
pub(crate) fn answer(
    plan: &LogicalPlan,
    types: &[DataType],
    request: &[Datum<'_>],
    batch: &dyn BatchFallback,
) -> Result<MaterialisedRows> {
    let row = types.iter().zip(request).map(|(data_type, value)| scalar(data_type, *value));
    let row = row.collect::<PlanResult<Vec<_>>>().map_err(planning)?;
    Materialised { plan: marked_rows(plan, &row).map_err(planning)? }.rows(batch)
}

/// Checks that a plan can be rewritten, which depends on its shape only.
pub(crate) fn check(plan: &LogicalPlan, types: &[DataType]) -> Result<()> {
    let row = types.iter().map(|data_type| scalar(data_type, Datum::Null));
    let row = row.collect::<PlanResult<Vec<_>>>().map_err(planning)?;
    marked_rows(plan, &row).map(|_| ()).map_err(planning)
}

#[expect(clippy::needless_pass_by_value, reason = "used as the argument of map_err")]
fn planning(error: DataFusionError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}

fn scalar(data_type: &DataType, value: Datum<'_>) -> PlanResult<ScalarValue> {
    if value.is_null() {
        return ScalarValue::try_from(&arrow_type(data_type));
    }
    let mut builder = ColumnBuilder::new(data_type, 1);
    builder.push(value);
    ScalarValue::try_from_array(builder.finish().as_ref(), 0)
}

/// The rows of a plan that come of the request row.
fn marked_rows(plan: &LogicalPlan, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let marked = mark(plan, row)?;
    let mark = mark_of(marked.schema())?;
    LogicalPlanBuilder::from(marked).filter(mark.eq(lit(1_i32)))?.project(columns)?.build()
}

/// Adds the request row to the left-most table and the mark to the output.
fn mark(plan: &LogicalPlan, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    match plan {
        LogicalPlan::TableScan(scan) => mark_scan(plan, scan, row),
        LogicalPlan::Projection(node) => {
            let input = mark(&node.input, row)?;
            let mut exprs = node.expr.clone();
            exprs.push(mark_of(input.schema())?);
            project(input, exprs)
        }
        LogicalPlan::Aggregate(node) => mark_groups(node, row),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let columns = input.schema().columns().into_iter().map(Expr::Column).collect();
            let groups = Aggregate::try_new(Arc::clone(input), columns, Vec::new())?;
            mark_groups(&groups, row)
        }
        LogicalPlan::Union(node) => mark_union(node, row),
        // A request has its answer whatever the number of rows is that batch mode would stop at.
        LogicalPlan::Limit(node) if trace::admits_one_row(node) == Some(true) => {
            mark(&node.input, row)
        }
        LogicalPlan::Extension(_) => mark_extension(plan, row),
        _ => {
            let Some((first, others)) = plan.inputs().split_first().map(|(f, o)| (*f, o.to_vec()))
            else {
                return with_mark(plan.clone(), 1);
            };
            let inputs = std::iter::once(mark(first, row)?).chain(others.into_iter().cloned());
            mark_last(plan.with_new_exprs(plan.expressions(), inputs.collect())?)
        }
    }
}

fn mark_scan(plan: &LogicalPlan, scan: &TableScan, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    let fields = scan.projected_schema.fields();
    let value = |position: usize| {
        let column = scan.projection.as_ref().map_or(position, |columns| columns[position]);
        row.get(column).cloned().ok_or_else(|| {
            internal_datafusion_err!("the request row has no value for column {column}")
        })
    };
    let values = fields
        .iter()
        .enumerate()
        .map(|(position, field)| Ok(Expr::Literal(value(position)?, None).alias(field.name())));
    let values = values.collect::<PlanResult<Vec<_>>>()?;
    let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
    let request = with_mark(project(LogicalPlan::EmptyRelation(nothing), values)?, 1)?;
    let stored = with_mark(plan.clone(), 0)?;
    let fields =
        fields.iter().map(|field| (None, Arc::new(Field::clone(field).with_nullable(true))));
    let schema =
        DFSchema::new_with_metadata(fields.chain([mark_field()]).collect(), HashMap::new())?;
    let union =
        Union { inputs: vec![Arc::new(stored), Arc::new(request)], schema: Arc::new(schema) };
    let union = Arc::new(LogicalPlan::Union(union));
    Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(union, scan.table_name.clone())?))
}

/// A group is marked when one of its rows is; the only group of a plan without keys always is.
fn mark_groups(node: &Aggregate, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    let input = mark(&node.input, row)?;
    let mut calls = node.aggr_expr.clone();
    let settings = Settings::default();
    let max = aggregate::find("max").expect("max is an aggregate");
    let arguments = Arguments { types: &[DataType::Int], constants: &[None], settings: &settings };
    let bound = (max.bind)(&arguments).expect("max takes INT");
    calls.push(aggregate_call(max, bound, &[None], &settings, vec![mark_of(input.schema())?]));
    let groups = Aggregate::try_new(Arc::new(input), node.group_expr.clone(), calls)?;
    let mut columns = groups.schema.columns();
    let marks = columns.pop().expect("the marks were added last");
    let marks = if node.group_expr.is_empty() { lit(1_i32) } else { Expr::Column(marks) };
    let exprs = columns.into_iter().map(Expr::Column).chain([marks.alias(MARK)]).collect();
    project(LogicalPlan::Aggregate(groups), exprs)
}

/// The request row comes out of the first input; the other inputs are other rows.
fn mark_union(node: &Union, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for (position, input) in node.inputs.iter().enumerate() {
        inputs.push(Arc::new(match position {
            0 => mark(input, row)?,
            _ => with_mark(LogicalPlan::clone(input), 0)?,
        }));
    }
    Ok(LogicalPlan::Union(Union { inputs, schema: followed_by(&node.schema, [mark_field()])? }))
}

fn mark_extension(plan: &LogicalPlan, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
    if let Some(node) = trace::window(plan) {
        let input = mark(&node.input, row)?;
        let calls = fields(&node.schema).skip(node.input.schema().fields().len());
        let schema = followed_by(input.schema(), calls)?;
        return mark_last(extension(WindowAggregate { input, schema, ..node.clone() }));
    }
    if let Some(node) = trace::last_join(plan) {
        let left = mark(&node.left, row)?;
        let right = fields(&node.schema).skip(node.left.schema().fields().len());
        let schema = followed_by(left.schema(), right)?;
        return mark_last(extension(LastJoin { left, schema, ..node.clone() }));
    }
    Err(internal_datafusion_err!("a node that request mode does not know"))
}

fn extension(node: impl datafusion::logical_expr::UserDefinedLogicalNode + 'static) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

type QualifiedField = (Option<datafusion::common::TableReference>, Arc<Field>);

fn fields(schema: &DFSchema) -> impl Iterator<Item = QualifiedField> + '_ {
    schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
}

fn followed_by(
    schema: &DFSchema,
    more: impl IntoIterator<Item = QualifiedField>,
) -> PlanResult<DFSchemaRef> {
    let fields = fields(schema).chain(more).collect();
    Ok(Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?))
}

fn mark_field() -> QualifiedField {
    (None, Arc::new(Field::new(MARK, ArrowType::Int32, true)))
}

/// The mark among the columns of a marked plan.
fn mark_of(schema: &DFSchema) -> PlanResult<Expr> {
    let found = schema.columns().into_iter().find(|column| column.name == MARK);
    found.map(Expr::Column).ok_or_else(|| internal_datafusion_err!("the mark was lost"))
}

/// Adds the same mark to all rows.
fn with_mark(plan: LogicalPlan, mark: i32) -> PlanResult<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let exprs = columns.chain([lit(mark).alias(MARK)]).collect();
    project(plan, exprs)
}

/// Moves the mark behind the other columns.
fn mark_last(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let is_mark = |column: &Column| column.name == MARK;
    let columns = plan.schema().columns();
    if columns.last().is_some_and(is_mark) {
        return Ok(plan);
    }
    let (mark, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(is_mark);
    project(plan, others.into_iter().chain(mark).map(Expr::Column).collect())
}

fn project(input: LogicalPlan, exprs: Vec<Expr>) -> PlanResult<LogicalPlan> {
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
}
