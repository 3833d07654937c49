//! The plan of a continuous query: what is computed of each row as it arrives, which windows are computed over these
//! rows, and what is computed of each main row with their results.
//!
//! A query is cut at its windows. What is below, filters and projections over one table for each source, becomes a
//! plan of a row of this table, and so does what is above, over the rows that the windows give; request mode compiles
//! both. The windows themselves are those of `lockstep_stream`.

use std::sync::Arc;

use datafusion::{
    common::{DFSchemaRef, Result as PlanResult},
    logical_expr::{
        Expr, Extension, LogicalPlan, LogicalPlanBuilder, Projection, TableSource, expr::Alias,
    },
};
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::{
    BoundQuery, CatalogTable, Window, WindowAggregate, WindowGroup,
    lineage::{column, last_join, leftmost_table, window},
};
use lockstep_row::{Column, TableSchema, arrow};
use lockstep_stream::{CallSpec, GroupSpec, ScanSpec, WindowJoinSpec};

use crate::system;

/// A query that is cut at its windows.
#[derive(Debug)]
pub(super) struct ContinuousPlan {
    /// What is computed of the rows of each source; the first one has the main rows.
    pub(super) sources: Vec<SourcePlan>,
    /// The windows.
    pub(super) join: WindowJoinSpec,
    /// How many columns a row of a source has.
    pub(super) width: usize,
    /// What is computed of a main row and the results of its windows, over [`Self::joined`].
    pub(super) output: LogicalPlan,
    /// The rows that the windows give, as a table that stores none.
    pub(super) joined: CatalogTable,
}

/// A plan over one row of a table.
#[derive(Debug)]
pub(super) struct SourcePlan {
    /// The id of the table.
    pub(super) table: u64,
    pub(super) plan: LogicalPlan,
}

/// The id of the table of the rows that windows give: no table of a catalog has it.
const JOINED_ID: u64 = u64::MAX;

impl ContinuousPlan {
    /// Cuts a query. Fails where it is none that can be computed row by row.
    pub(super) fn new(query: &BoundQuery) -> Result<Self> {
        if let Some(source) = query.files.first() {
            return Diagnostic::unsupported("a continuous query cannot read files")
                .with_detail(format!("The query reads `{}`.", source.name))
                .with_hint("Load the files into a table, and read that.")
                .err();
        }
        let node = windows_of(&query.plan)?;
        let exprs = RowExprs::new(node)?;
        let unions = node.unions.iter().map(|union| as_input(union, node).map_err(planning));
        let inputs = std::iter::once(Ok(node.input.clone())).chain(unions);
        let sources = inputs.map(|input| exprs.source(&input?)).collect::<Result<_>>()?;
        let joined = joined_table(&node.schema)?;
        let rows = scan_as(&joined, &node.schema).map_err(planning)?;
        let output = with_windows(&query.plan, &rows).map_err(planning)?;
        let join = exprs.join_spec(node)?;
        Ok(Self { sources, join, width: exprs.width(), output, joined })
    }
}

/// Finds the windows of a query, above which there are only filters and projections.
pub(super) fn windows_of(plan: &LogicalPlan) -> Result<&WindowAggregate> {
    if let Some(node) = window(plan) {
        return Ok(node);
    }
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            windows_of(plan.inputs()[0])
        }
        LogicalPlan::TableScan(_) => Diagnostic::unsupported("a continuous query has windows")
            .with_hint("Aggregate over a window, or read the table itself.")
            .err(),
        other => refused(other).err(),
    }
}

/// Makes the error for an operator that no continuous query has.
fn refused(plan: &LogicalPlan) -> Diagnostic {
    let what = match plan {
        _ if last_join(plan).is_some() => "LAST JOIN",
        _ if window(plan).is_some() => "a window over windows",
        LogicalPlan::Sort(_) => "ORDER BY",
        LogicalPlan::Limit(_) => "LIMIT",
        LogicalPlan::Aggregate(_) => "GROUP BY",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Join(_) => "JOIN",
        LogicalPlan::Union(_) => "UNION of queries",
        _ => "this query",
    };
    Diagnostic::unsupported(format!("{what} is not supported in a continuous query"))
        .with_hint("A continuous query has one SELECT with windows, over tables and their filters.")
}

/// Fails unless each row of a plan is computed of one row of a stored table.
fn check_source(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::TableScan(_) => Ok(()),
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            check_source(plan.inputs()[0])
        }
        other => refused(other).err(),
    }
}

/// Returns a plan with its windows replaced by rows of the same columns.
fn with_windows(plan: &LogicalPlan, rows: &LogicalPlan) -> PlanResult<LogicalPlan> {
    if let LogicalPlan::Extension(Extension { .. }) = plan {
        return Ok(rows.clone());
    }
    let inputs = plan.inputs().into_iter().map(|input| with_windows(input, rows));
    let inputs = inputs.collect::<PlanResult<_>>()?;
    plan.with_new_exprs(plan.expressions(), inputs)
}

/// Returns a UNION source whose columns are called as those of the main rows.
fn as_input(union: &LogicalPlan, node: &WindowAggregate) -> PlanResult<LogicalPlan> {
    let columns = union.schema().columns().into_iter().map(Expr::Column).collect();
    let schema = Arc::clone(node.input.schema());
    Projection::try_new_with_schema(columns, Arc::new(union.clone()), schema)
        .map(LogicalPlan::Projection)
}

/// Makes the table of the rows that windows give.
fn joined_table(schema: &DFSchemaRef) -> Result<CatalogTable> {
    let column = |(at, field): (usize, &Arc<datafusion::arrow::datatypes::Field>)| {
        let data_type = arrow::data_type(field.data_type());
        let data_type = data_type.ok_or_else(|| {
            Box::new(Diagnostic::internal(format!("a column of type {}", field.data_type())))
        })?;
        Ok(Column::new(format!("c{at}"), data_type))
    };
    let columns = schema.fields().iter().enumerate().map(column).collect::<Result<_>>()?;
    let schema = TableSchema { columns, indexes: Vec::new() };
    Ok(CatalogTable {
        id: JOINED_ID,
        database: String::new(),
        name: "joined".to_owned(),
        arrow_schema: arrow::arrow_schema(&schema),
        schema: Arc::new(schema),
        source: None,
    })
}

/// Reads a table with the columns of a schema.
fn scan_as(table: &CatalogTable, schema: &DFSchemaRef) -> PlanResult<LogicalPlan> {
    let source: Arc<dyn TableSource> = Arc::new(table.clone());
    let scan = LogicalPlanBuilder::scan(table.name.as_str(), source, None)?.build()?;
    let columns = scan.schema().columns().into_iter().map(Expr::Column).collect();
    Projection::try_new_with_schema(columns, Arc::new(scan), Arc::clone(schema))
        .map(LogicalPlan::Projection)
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
fn planning(error: datafusion::error::DataFusionError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}

/// The columns of the rows of all sources: those of the windows' input, and what keys, times and arguments are
/// computed to.
struct RowExprs<'n> {
    schema: &'n DFSchemaRef,
    computed: Vec<&'n Expr>,
}

impl<'n> RowExprs<'n> {
    fn new(node: &'n WindowAggregate) -> Result<Self> {
        let mut exprs = Self { schema: node.input.schema(), computed: Vec::new() };
        for WindowGroup { window, calls, .. } in &node.groups {
            let arguments = calls.iter().flat_map(|call| &call.arguments);
            for expr in window.partition_by.iter().chain(&window.order_by).chain(arguments) {
                if exprs.position(expr).is_none() {
                    exprs.computed.push(expr);
                }
            }
        }
        Ok(exprs)
    }

    /// Counts the columns.
    fn width(&self) -> usize {
        self.schema.fields().len() + self.computed.len()
    }

    /// Returns the position of the column that has the values of an expression.
    fn position(&self, expr: &Expr) -> Option<usize> {
        let computed = || self.computed.iter().position(|known| *known == expr);
        column(expr, self.schema).or_else(|| computed().map(|at| self.schema.fields().len() + at))
    }

    fn column_of(&self, expr: &Expr) -> Result<usize> {
        let position = self.position(expr);
        position.ok_or_else(|| Box::new(Diagnostic::internal("a window reads no other expression")))
    }

    /// Makes the plan of the rows of a source.
    fn source(&self, input: &LogicalPlan) -> Result<SourcePlan> {
        check_source(input)?;
        let table = leftmost_table(input).filter(|table| !system::is_system(table.id));
        let Some(table) = table else {
            return Diagnostic::unsupported("a continuous query cannot read a system table").err();
        };
        let columns = self.schema.columns().into_iter().map(Expr::Column);
        let computed = self.computed.iter().enumerate().map(|(at, expr)| {
            let relation: Option<&str> = None;
            Expr::Alias(Alias::new((*expr).clone(), relation, format!("__computed_{at}")))
        });
        let exprs = columns.chain(computed).collect();
        let plan = Projection::try_new(exprs, Arc::new(input.clone())).map_err(planning)?;
        Ok(SourcePlan { table: table.id, plan: LogicalPlan::Projection(plan) })
    }

    /// Makes the windows over these columns.
    fn join_spec(&self, node: &WindowAggregate) -> Result<WindowJoinSpec> {
        let order = self.order(node)?;
        let mut scans: Vec<(&WindowGroup, ScanSpec)> = Vec::new();
        let mut output = 0;
        for group in &node.groups {
            let calls = group.calls.iter().map(|call| {
                output += 1;
                let arguments = call.arguments.iter().map(|expr| self.column_of(expr));
                let arguments = arguments.collect::<Result<_>>()?;
                Ok(CallSpec { bound: call.bound.clone(), arguments, output: output - 1 })
            });
            let calls = calls.collect::<Result<_>>()?;
            let spec = GroupSpec { window: group.window.clone(), calls };
            let mut unions = group.unions.clone();
            unions.sort_unstable();
            if unions.windows(2).any(|pair| pair[0] == pair[1]) {
                return Diagnostic::unsupported(
                    "a continuous query cannot name a UNION source twice",
                )
                .err();
            }
            match scans.iter_mut().find(|(known, _)| is_same_scan(known, group)) {
                Some((_, scan)) => scan.groups.push(spec),
                None => {
                    let keys = group.window.partition_by.iter().map(|key| self.column_of(key));
                    let scan = ScanSpec {
                        keys: keys.collect::<Result<_>>()?,
                        unions: group.unions.iter().map(|union| union + 1).collect(),
                        without_main: group.window.instance_not_in_window,
                        groups: vec![spec],
                    };
                    scans.push((group, scan));
                }
            }
        }
        debug_assert_eq!(
            self.schema.fields().len() + output,
            node.schema.fields().len(),
            "all calls"
        );
        let scans = scans.into_iter().map(|(_, scan)| scan).collect();
        Ok(WindowJoinSpec { sources: node.unions.len() + 1, order, scans })
    }

    /// Returns the column with the event time, by which all windows are ordered.
    fn order(&self, node: &WindowAggregate) -> Result<usize> {
        let mut orders = node.groups.iter().map(|group| group.window.order_by.as_ref());
        let first = orders.next().flatten();
        let Some(first) = first.filter(|first| orders.all(|order| order == Some(*first))) else {
            let message = "all windows of a continuous query require ORDER BY the same event time";
            return Diagnostic::new(code::WINDOWING_ERROR, message).err();
        };
        self.column_of(first)
    }
}

/// Returns whether two groups are over the same keys and sources.
fn is_same_scan(left: &WindowGroup, right: &WindowGroup) -> bool {
    let of = |group: &WindowGroup| {
        let Window { partition_by, instance_not_in_window, .. } = &group.window;
        (group.unions.clone(), partition_by.clone(), *instance_not_in_window)
    };
    of(left) == of(right)
}
