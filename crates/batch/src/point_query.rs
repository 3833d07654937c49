//! Queries that read a few rows by key, computed on the caller's thread.
//!
//! A SELECT of one table whose WHERE has the keys of a declared index needs neither an optimizer nor
//! other threads: planning would take a thousand times as long as reading. Filters, select lists,
//! ORDER BY and LIMIT above the scan are evaluated one after the other on one batch, by the same
//! functions as the operators. Any other query, and one that finds more rows than a batch has, runs
//! as usual.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array},
    compute::{SortColumn, SortOptions, filter_record_batch, lexsort_to_indices, take},
    datatypes::{DataType as ArrowType, Schema},
};
use datafusion::{
    common::{DFSchema, DFSchemaRef, Result, internal_err},
    execution::context::ExecutionProps,
    logical_expr::{
        Expr, FetchType, LogicalPlan, Projection, SkipType, Sort, TableScan,
        physical_planning_context::PhysicalPlanningContext,
    },
    physical_expr::create_physical_expr,
};
use lockstep_host::query;
use lockstep_plan::{CatalogTable, KeyRead, mark_columns};
use lockstep_row::{Arena, arrow::ColumnBuilder};
use lockstep_table::{Snapshot, StoredRow};

use crate::{
    ExecuteOptions, StoredTables,
    error::into_datafusion,
    operator::{BATCH_ROWS, batch_bytes},
    table_reads::look_up,
};

/// The part of a query's memory that the rows may take; more run as usual, where memory is counted.
const MEMORY_PART: usize = 16;

/// A query that may be answered by key.
pub(crate) struct PointQuery<'p> {
    table: &'p CatalogTable,
    scan: &'p TableScan,
    /// The operators above the scan, innermost first.
    steps: Vec<PointStep<'p>>,
}

/// One operator.
enum PointStep<'p> {
    Filter(&'p Expr),
    Project(&'p Projection),
    Sort(&'p Sort),
    Limit { skip: usize, fetch: usize },
}

impl<'p> PointQuery<'p> {
    /// Returns the query of a plan; `None` where it has another operator, or no condition on the table.
    pub(crate) fn of(plan: &'p LogicalPlan) -> Option<Self> {
        let mut steps = Vec::new();
        let mut node = plan;
        let scan = loop {
            let (step, input) = match node {
                LogicalPlan::Filter(filter) => {
                    (PointStep::Filter(&filter.predicate), &filter.input)
                }
                LogicalPlan::Projection(project) => (PointStep::Project(project), &project.input),
                LogicalPlan::Sort(sort) => (PointStep::Sort(sort), &sort.input),
                LogicalPlan::Limit(limit) => {
                    let SkipType::Literal(skip) = limit.get_skip_type().ok()? else { return None };
                    let FetchType::Literal(fetch) = limit.get_fetch_type().ok()? else {
                        return None;
                    };
                    let fetch = fetch.unwrap_or(usize::MAX);
                    (PointStep::Limit { skip, fetch }, &limit.input)
                }
                LogicalPlan::TableScan(scan) => break scan,
                _ => return None,
            };
            steps.push(step);
            node = input;
        };
        steps.reverse();
        limit_first(&mut steps);
        let table = CatalogTable::of(scan.source.as_ref())?;
        let is_plain = table.source.is_none()
            && scan.projection.is_none()
            && scan.filters.is_empty()
            && scan.fetch.is_none();
        let has_condition = matches!(steps.first(), Some(PointStep::Filter(_)));
        (is_plain && has_condition).then_some(Self { table, scan, steps })
    }

    /// Returns whether the query is answered by key from the tables as they are now.
    pub(crate) fn is_answered(&self, tables: &dyn StoredTables, options: &ExecuteOptions) -> bool {
        let found = self.with_rows(tables, options, |rows| Ok(rows.is_some()));
        found.unwrap_or(false)
    }

    /// Computes the rows; `None` where the query has to run as usual.
    pub(crate) fn answer(
        &self,
        tables: &dyn StoredTables,
        options: &ExecuteOptions,
    ) -> Result<Option<RecordBatch>> {
        let limited = || query::current().and_then(|context| context.memory_bytes());
        let allowed = options.memory_bytes.map_or_else(limited, to_u64);
        let is_small = |batch: &RecordBatch| {
            let bytes = to_u64(batch_bytes(batch).saturating_mul(MEMORY_PART));
            allowed.is_none_or(|allowed| bytes.is_some_and(|bytes| bytes <= allowed))
        };
        let needed = self.needed_columns();
        let decoded = self.with_rows(tables, options, |rows| {
            rows.map(|rows| self.decode(&rows, &needed)).transpose()
        })?;
        let Some(mut batch) = decoded.filter(&is_small) else { return Ok(None) };
        let mut schema: DFSchemaRef = Arc::new(DFSchema::try_from_qualified_schema(
            self.scan.table_name.clone(),
            &batch.schema(),
        )?);
        for step in &self.steps {
            match step {
                PointStep::Filter(predicate) => batch = passing(&batch, predicate, &schema)?,
                PointStep::Sort(sort) => match sorted(&batch, sort, &schema)? {
                    Some(sorted) => batch = sorted,
                    None => return Ok(None),
                },
                PointStep::Limit { skip, fetch } => {
                    let skip = batch.num_rows().min(*skip);
                    batch = batch.slice(skip, (batch.num_rows() - skip).min(*fetch));
                }
                PointStep::Project(projection) => {
                    batch = projected(&batch, projection, &schema)?;
                    schema = Arc::clone(&projection.schema);
                }
            }
            if !is_small(&batch) {
                return Ok(None);
            }
        }
        Ok(Some(batch))
    }

    /// Passes the rows of the keys to `body`, or `None` where they are not read by key.
    fn with_rows<T>(
        &self,
        tables: &dyn StoredTables,
        options: &ExecuteOptions,
        body: impl FnOnce(Option<Vec<StoredRow<'_>>>) -> Result<T>,
    ) -> Result<T> {
        let kept_by = options.read_through.get(&self.table.id).copied();
        if let Some(snapshot) = tables.view(self.table.id) {
            return body(self.rows(snapshot, kept_by)?);
        }
        match tables.table(self.table.id) {
            Some(table) => {
                let snapshot = table.snapshot();
                body(self.rows(&snapshot, kept_by)?)
            }
            // The usual way has the error.
            None => body(None),
        }
    }

    /// Returns the rows of the keys; `None` where they are too many, or not read by key.
    fn rows<'s>(
        &self,
        snapshot: &'s Snapshot<'s>,
        kept_by: Option<usize>,
    ) -> Result<Option<Vec<StoredRow<'s>>>> {
        let conditions = self.steps.iter().map_while(|step| match step {
            PointStep::Filter(predicate) => Some(*predicate),
            _ => None,
        });
        match KeyRead::find(snapshot.schema(), conditions, kept_by) {
            Some(read) => {
                look_up(snapshot, &read, kept_by.is_some(), BATCH_ROWS).map_err(into_datafusion)
            }
            None => Ok(None),
        }
    }

    /// Returns the positions of the table's columns that the operators read.
    fn needed_columns(&self) -> Vec<usize> {
        let schema = self.scan.projected_schema.as_ref();
        let mut needed = vec![false; schema.fields().len()];
        for step in &self.steps {
            match step {
                PointStep::Filter(predicate) => mark_columns(predicate, schema, &mut needed),
                PointStep::Sort(sort) => {
                    sort.expr.iter().for_each(|key| mark_columns(&key.expr, schema, &mut needed));
                }
                PointStep::Limit { .. } => {}
                PointStep::Project(projection) => {
                    projection.expr.iter().for_each(|expr| mark_columns(expr, schema, &mut needed));
                    return positions(&needed);
                }
            }
        }
        (0..needed.len()).collect()
    }

    /// Returns some columns of rows.
    fn decode(&self, rows: &[StoredRow<'_>], columns: &[usize]) -> Result<RecordBatch> {
        debug_assert!(rows.len() <= BATCH_ROWS, "a batch has a limit");
        let types = columns.iter().map(|column| &self.table.schema.columns[*column].data_type);
        let mut builders: Vec<ColumnBuilder> =
            types.map(|data_type| ColumnBuilder::new(data_type, rows.len())).collect();
        let mut arena = Arena::new();
        for stored in rows {
            for (builder, column) in builders.iter_mut().zip(columns) {
                builder.push(stored.row.get_in(*column, &arena));
            }
            arena.reset();
        }
        let schema = Arc::new(self.table.arrow_schema.project(columns)?);
        let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
        batch_of(&schema, arrays, rows.len())
    }
}

/// Moves each LIMIT below the select lists under it, which are then computed for fewer rows.
fn limit_first(steps: &mut [PointStep<'_>]) {
    let limits = |steps: &[PointStep<'_>]| {
        steps.iter().filter(|step| matches!(step, PointStep::Limit { .. })).count()
    };
    let before = limits(steps);
    for end in 1..steps.len() {
        let mut at = end;
        while at > 0
            && matches!(steps[at], PointStep::Limit { .. })
            && matches!(steps[at - 1], PointStep::Project(_))
        {
            steps.swap(at - 1, at);
            at -= 1;
        }
    }
    debug_assert_eq!(limits(steps), before, "steps change places only");
}

fn positions(needed: &[bool]) -> Vec<usize> {
    (0..needed.len()).filter(|column| needed[*column]).collect()
}

fn to_u64(bytes: usize) -> Option<u64> {
    u64::try_from(bytes).ok()
}

fn batch_of(schema: &Arc<Schema>, arrays: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(row_count));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}

/// Evaluates an expression for each row.
fn evaluated(batch: &RecordBatch, expr: &Expr, schema: &DFSchema) -> Result<ArrayRef> {
    let context = PhysicalPlanningContext::default();
    let physical = create_physical_expr(expr, schema, &ExecutionProps::new(), &context)?;
    physical.evaluate(batch)?.into_array(batch.num_rows())
}

/// Returns the rows for which a condition is true.
fn passing(batch: &RecordBatch, predicate: &Expr, schema: &DFSchema) -> Result<RecordBatch> {
    let passes = evaluated(batch, predicate, schema)?;
    match passes.as_boolean_opt() {
        Some(passes) => Ok(filter_record_batch(batch, passes)?),
        None => internal_err!("a condition is BOOL"),
    }
}

fn projected(
    batch: &RecordBatch,
    projection: &Projection,
    schema: &DFSchema,
) -> Result<RecordBatch> {
    let arrays = projection.expr.iter().map(|expr| evaluated(batch, expr, schema));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    batch_of(projection.schema.inner(), arrays, batch.num_rows())
}

/// Sorts rows, those with equal values in their order; `None` where a value has no order here.
fn sorted(batch: &RecordBatch, sort: &Sort, schema: &DFSchema) -> Result<Option<RecordBatch>> {
    let mut columns = Vec::with_capacity(sort.expr.len() + 1);
    for key in &sort.expr {
        let values = evaluated(batch, &key.expr, schema)?;
        let has_order = values.data_type().is_primitive()
            || matches!(values.data_type(), ArrowType::Utf8 | ArrowType::Boolean);
        if !has_order {
            return Ok(None);
        }
        let options = SortOptions { descending: !key.asc, nulls_first: key.nulls_first };
        columns.push(SortColumn { values, options: Some(options) });
    }
    let numbers = (0..).take(batch.num_rows());
    let values: ArrayRef = Arc::new(UInt64Array::from_iter_values(numbers));
    columns.push(SortColumn { values, options: None });
    let indices = lexsort_to_indices(&columns, sort.fetch)?;
    let arrays = batch.columns().iter().map(|column| take(column.as_ref(), &indices, None));
    let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
    batch_of(&batch.schema(), arrays, indices.len()).map(Some)
}
