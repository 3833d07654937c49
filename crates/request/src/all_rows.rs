//! Requests that batch mode answers over all rows: GROUP BY over a sub-query with windows, an aggregate
//! of the whole table, a join with many matches, windows over a UNION or DISTINCT.
//!
//! By definition the answer is what batch mode gives for the request row when it is the latest arrival
//! of its table. So the plan is rewritten: every scan of that table gives the request row too, and a
//! column marks the rows that come from the request row of the left-most scan. Batch mode runs the
//! plan, and the marked rows are the answer. A group is marked when the request row is in it. This is
//! exact and as slow as batch mode; the compiler does it only where it cannot make a chain.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType as ArrowType, Field};
use datafusion::{
    common::{
        Column, DFSchema, DFSchemaRef, DataFusionError, Result as PlanResult, ScalarValue,
        internal_datafusion_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Aggregate, Distinct, EmptyRelation, Expr, Extension, LogicalPlan, LogicalPlanBuilder,
        Projection, SubqueryAlias, TableScan, Union, lit, when,
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{CallArguments, Settings, aggregate, udf::aggregate_call};
use lockstep_plan::{CatalogTable, LastJoin, WindowAggregate, schema_of_unique};
use lockstep_row::{
    DataType, Datum,
    arrow::{ColumnBuilder, arrow_type},
};

use crate::{
    materialise::{MaterialisedRows, PlanRunner, SeenSnapshots},
    plan_size,
    row_numbers::number_scan,
    trace,
};

/// The name of the mark, which is always the last column: 1 for the request row and rows that come from
/// it, 0 or NULL for all others.
pub(crate) const MARK: &str = "__request";

/// Returns whether each request for a plan runs it in batch mode, over all rows of its tables.
pub fn reads_all_rows(plan: &LogicalPlan) -> bool {
    lockstep_host::with_large_stack(|| is_needed(plan, false) || plan_size::is_too_large(plan))
}

/// Returns whether a plan needs all rows to answer for one. `in_window`: whether rows of the plan are
/// the history of a window above it.
fn is_needed(plan: &LogicalPlan, in_window: bool) -> bool {
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

/// The table of the request rows.
#[derive(Debug, Clone)]
pub(crate) struct RequestTable {
    /// `None` where a query has no table; then its request row has no columns.
    id: Option<u64>,
    types: Vec<DataType>,
}

impl RequestTable {
    /// Finds the left-most table of a plan.
    pub(crate) fn of(plan: &LogicalPlan) -> Self {
        let table = trace::leftmost_table(plan);
        let columns = table.iter().flat_map(|table| &table.schema.columns);
        let types = columns.map(|column| column.data_type.clone()).collect();
        Self { id: table.map(|table| table.id), types }
    }

    /// Returns whether a table of a plan is this one.
    pub(crate) fn is(&self, table: &CatalogTable) -> bool {
        self.id == Some(table.id)
    }

    /// Returns whether a plan reads it anywhere.
    pub(crate) fn is_read_by(&self, plan: &LogicalPlan) -> bool {
        let mut found = false;
        let walked = plan.apply(|node| {
            found |= matches!(node, LogicalPlan::TableScan(scan) if self.is_scanned_by(scan));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        debug_assert!(walked.is_ok(), "the closure returns no error");
        found
    }

    /// Rewrites a plan so that each scan of the table gives the request row too, as its latest row.
    pub(crate) fn with_row(
        &self,
        plan: &LogicalPlan,
        request: &[Datum<'_>],
    ) -> Result<LogicalPlan> {
        let values = self.values(request).map_err(planning)?;
        RequestConstants { table: self, values: &values }
            .add_to_scans(plan.clone())
            .map_err(planning)
    }

    fn is_scanned_by(&self, scan: &TableScan) -> bool {
        CatalogTable::of(scan.source.as_ref()).is_some_and(|table| self.is(table))
    }

    fn values(&self, request: &[Datum<'_>]) -> PlanResult<Vec<ScalarValue>> {
        let row = self.types.iter().zip(request);
        row.map(|(data_type, value)| scalar(data_type, *value)).collect()
    }
}

/// Answers one request row of a table by running a plan.
pub(crate) fn answer(
    plan: &LogicalPlan,
    table: &RequestTable,
    request: &[Datum<'_>],
    batch: &dyn PlanRunner,
) -> Result<MaterialisedRows> {
    let values = table.values(request).map_err(planning)?;
    let row = MarkedRow::Request(RequestConstants { table, values: &values });
    let plan = marked_rows(plan, row).map_err(planning)?;
    MaterialisedRows::run(&plan, batch, SeenSnapshots::default())
}

/// Rewrites a plan to give only the rows that come from the last row of its left-most table, of which
/// there are `rows`: by definition the answer to a request for that row before it was stored, where
/// nothing else arrived since.
pub fn answer_of_last_row(plan: &LogicalPlan, rows: u64) -> Result<LogicalPlan> {
    let number = i64::try_from(rows).unwrap_or(i64::MAX);
    lockstep_host::with_large_stack(|| marked_rows(plan, MarkedRow::Stored { number }))
        .map_err(planning)
}

/// Checks that a plan can be rewritten, which does not depend on the request.
pub(crate) fn check(plan: &LogicalPlan, table: &RequestTable) -> Result<()> {
    let values = table.types.iter().map(|data_type| scalar(data_type, Datum::Null));
    let values = values.collect::<PlanResult<Vec<_>>>().map_err(planning)?;
    let row = MarkedRow::Request(RequestConstants { table, values: &values });
    marked_rows(plan, row).map(|_| ()).map_err(planning)
}

/// Reports an error of the planner as an internal one.
#[expect(clippy::needless_pass_by_value, reason = "used as the argument of map_err")]
pub(crate) fn planning(error: DataFusionError) -> Box<Diagnostic> {
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

/// The row of the left-most table of which a plan marks what comes from it.
#[derive(Clone, Copy)]
enum MarkedRow<'r> {
    /// The request row, which is added to the rows of its table.
    Request(RequestConstants<'r>),
    /// The stored row with this number, from 1 in order of arrival.
    Stored {
        /// The number.
        number: i64,
    },
}

impl MarkedRow<'_> {
    /// Adds the row to each scan of its table, unless it is stored.
    fn add_to_scans(self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        match self {
            Self::Request(row) => row.add_to_scans(plan),
            Self::Stored { .. } => Ok(plan),
        }
    }
}

/// The values of a request row as constants of a plan.
#[derive(Clone, Copy)]
struct RequestConstants<'r> {
    table: &'r RequestTable,
    values: &'r [ScalarValue],
}

impl RequestConstants<'_> {
    /// Adds the row to each scan of its table.
    fn add_to_scans(self, plan: LogicalPlan) -> PlanResult<LogicalPlan> {
        let rewritten = plan.transform_up(|node| match &node {
            LogicalPlan::TableScan(scan) if self.table.is_scanned_by(scan) => {
                let rows = self.with_scan(scan, node.clone(), self.row(scan)?, &[])?;
                Ok(Transformed::yes(rows))
            }
            _ => Ok(Transformed::no(node)),
        });
        Ok(rewritten?.data)
    }

    /// Makes the row as a scan gives it.
    fn row(self, scan: &TableScan) -> PlanResult<LogicalPlan> {
        let value = |position: usize| {
            let column = scan.projection.as_ref().map_or(position, |columns| columns[position]);
            self.values.get(column).cloned().ok_or_else(|| {
                internal_datafusion_err!("the request row has no value for column {column}")
            })
        };
        let fields = scan.projected_schema.fields().iter().enumerate();
        let values = fields
            .map(|(at, field)| Ok(Expr::Literal(value(at)?, None).alias(field.name())))
            .collect::<PlanResult<Vec<_>>>()?;
        let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
        project(LogicalPlan::EmptyRelation(nothing), values)
    }

    /// Makes the rows of a scan followed by the request row, both with the columns `more` added.
    fn with_scan(
        self,
        scan: &TableScan,
        stored: LogicalPlan,
        row: LogicalPlan,
        more: &[QualifiedField],
    ) -> PlanResult<LogicalPlan> {
        let fields = scan.projected_schema.fields().iter();
        let fields = fields.map(|field| (None, Arc::clone(field))).chain(more.iter().cloned());
        let schema = DFSchema::new_with_metadata(fields.collect(), HashMap::new())?;
        let inputs = vec![Arc::new(stored), Arc::new(row)];
        let union = Arc::new(LogicalPlan::Union(Union { inputs, schema: Arc::new(schema) }));
        Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(union, scan.table_name.clone())?))
    }
}

/// Rewrites a plan to give only the rows that come from the request row.
fn marked_rows(plan: &LogicalPlan, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let marked = mark(plan, row)?;
    let mark = mark_of(marked.schema())?;
    LogicalPlanBuilder::from(marked).filter(mark.eq(lit(1_i32)))?.project(columns)?.build()
}

/// Adds the request row to the left-most table and the mark to the output.
fn mark(plan: &LogicalPlan, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
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
        // A request has its answer even if a LIMIT would leave it out in batch mode.
        LogicalPlan::Limit(node) if trace::admits_one_row(node) == Some(true) => {
            mark(&node.input, row)
        }
        LogicalPlan::Extension(_) => mark_extension(plan, row),
        _ => {
            let Some((first, others)) = plan.inputs().split_first().map(|(f, o)| (*f, o.to_vec()))
            else {
                return with_mark(plan.clone(), 1);
            };
            let mut inputs = vec![mark(first, row)?];
            for other in others {
                inputs.push(row.add_to_scans(other.clone())?);
            }
            mark_last(plan.with_new_exprs(plan.expressions(), inputs)?)
        }
    }
}

fn mark_scan(plan: &LogicalPlan, scan: &TableScan, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    match row {
        MarkedRow::Request(row) => {
            let (stored, request) = (with_mark(plan.clone(), 0)?, with_mark(row.row(scan)?, 1)?);
            row.with_scan(scan, stored, request, &[mark_field()])
        }
        MarkedRow::Stored { number } => {
            let numbered = number_scan(plan)?;
            let is_marked = mark_of(numbered.schema())?.eq(lit(number));
            let mark = when(is_marked, lit(1_i32)).otherwise(lit(0_i32))?.alias(MARK);
            let columns = plan.schema().columns().into_iter().map(Expr::Column);
            project(numbered, columns.chain([mark]).collect())
        }
    }
}

/// Marks each group that has a marked row; without keys the only group is always marked.
fn mark_groups(node: &Aggregate, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    let input = mark(&node.input, row)?;
    let mut calls = node.aggr_expr.clone();
    let settings = Settings::default();
    let max = aggregate::find("max").expect("max is an aggregate");
    let arguments =
        CallArguments { types: &[DataType::Int], constants: &[None], settings: &settings };
    let bound = (max.bind)(&arguments).expect("max takes INT");
    calls.push(aggregate_call(max, bound, &[None], &settings, vec![mark_of(input.schema())?]));
    let groups = Aggregate::try_new(Arc::new(input), node.group_expr.clone(), calls)?;
    let mut columns = groups.schema.columns();
    let marks = columns.pop().expect("the marks were added last");
    let marks = if node.group_expr.is_empty() { lit(1_i32) } else { Expr::Column(marks) };
    let exprs = columns.into_iter().map(Expr::Column).chain([marks.alias(MARK)]).collect();
    project(LogicalPlan::Aggregate(groups), exprs)
}

/// Marks rows of the first input, which the request row is a row of.
fn mark_union(node: &Union, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for (position, input) in node.inputs.iter().enumerate() {
        inputs.push(Arc::new(match position {
            0 => mark(input, row)?,
            _ => with_mark(row.add_to_scans(LogicalPlan::clone(input))?, 0)?,
        }));
    }
    Ok(LogicalPlan::Union(Union { inputs, schema: followed_by(&node.schema, [mark_field()])? }))
}

fn mark_extension(plan: &LogicalPlan, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    if let Some(node) = trace::window(plan) {
        let input = mark(&node.input, row)?;
        let calls = fields(&node.schema).skip(node.input.schema().fields().len());
        let schema = followed_by(input.schema(), calls)?;
        let unions = node.unions.iter().map(|union| row.add_to_scans(union.clone()));
        let unions = unions.collect::<PlanResult<_>>()?;
        return mark_last(extension(WindowAggregate { input, unions, schema, ..node.clone() }));
    }
    if trace::last_join(plan).is_some() {
        return mark_last(mark_joins(plan, row)?);
    }
    Err(internal_datafusion_err!("request mode does not support this plan node"))
}

/// Marks a chain of LAST JOINs. The mark is behind the columns of the left-most input, and is moved to
/// the end once for the chain, as in [`crate::row_numbers`].
fn mark_joins(plan: &LogicalPlan, row: MarkedRow<'_>) -> PlanResult<LogicalPlan> {
    let Some(node) = trace::last_join(plan) else { return mark(plan, row) };
    let left = mark_joins(&node.left, row)?;
    let right = fields(&node.schema).skip(node.left.schema().fields().len());
    let schema = followed_by(left.schema(), right)?;
    let right = row.add_to_scans(node.right.clone())?;
    Ok(extension(LastJoin { left, right, schema, ..node.clone() }))
}

/// Makes a plan of one of our nodes.
pub(crate) fn extension(
    node: impl datafusion::logical_expr::UserDefinedLogicalNode + 'static,
) -> LogicalPlan {
    LogicalPlan::Extension(Extension { node: Arc::new(node) })
}

/// A column of a schema, with the table that qualifies it.
pub(crate) type QualifiedField = (Option<datafusion::common::TableReference>, Arc<Field>);

/// Returns the columns of a schema.
pub(crate) fn fields(schema: &DFSchema) -> impl Iterator<Item = QualifiedField> + '_ {
    schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
}

/// Adds columns to the end of a schema.
pub(crate) fn followed_by(
    schema: &DFSchema,
    more: impl IntoIterator<Item = QualifiedField>,
) -> PlanResult<DFSchemaRef> {
    Ok(Arc::new(schema_of_unique(fields(schema).chain(more))?))
}

fn mark_field() -> QualifiedField {
    (None, Arc::new(Field::new(MARK, ArrowType::Int32, true)))
}

/// Finds the mark among the columns of a rewritten plan.
pub(crate) fn mark_of(schema: &DFSchema) -> PlanResult<Expr> {
    let found = schema.columns().into_iter().find(|column| column.name == MARK);
    found
        .map(Expr::Column)
        .ok_or_else(|| internal_datafusion_err!("the plan has no column `{MARK}`"))
}

/// Adds the same mark to all rows.
fn with_mark(plan: LogicalPlan, mark: i32) -> PlanResult<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let exprs = columns.chain([lit(mark).alias(MARK)]).collect();
    project(plan, exprs)
}

/// Moves the mark to the end of the columns.
pub(crate) fn mark_last(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let is_mark = |column: &Column| column.name == MARK;
    let columns = plan.schema().columns();
    if columns.last().is_some_and(is_mark) {
        return Ok(plan);
    }
    let (mark, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(is_mark);
    project(plan, others.into_iter().chain(mark).map(Expr::Column).collect())
}

/// Makes a projection.
pub(crate) fn project(input: LogicalPlan, exprs: Vec<Expr>) -> PlanResult<LogicalPlan> {
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
}
