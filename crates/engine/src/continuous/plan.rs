//! The plan of a continuous query: what is computed of each row as it arrives, which windows are computed over these
//! rows, and what is computed of each main row with their results.
//!
//! A query is cut at its windows. What is below, filters and projections over one table for each source, becomes a
//! plan of a row of this table, and so does what is above, over the rows that the windows give; request mode compiles
//! both. The windows themselves are those of `lockstep_stream`. Where main rows are joined by LAST JOINs, it is cut there
//! as well ([`last_join`](super::last_join)); a query with LAST JOINs needs no windows.

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
    lineage::{column, last_join, leftmost_table, to_leaf, window},
};
use lockstep_row::{Column, TableSchema, arrow};
use lockstep_stream::{CallSpec, GroupSpec, LookupSpec, ScanSpec, SourceShape, WindowJoinSpec};

use super::{
    last_join::{JoinChain, JoinPlans, main_column, several_times, topmost_join},
    one_level::at_one_level,
};
use crate::system;

/// A query that is cut at its windows.
#[derive(Debug)]
pub(super) struct ContinuousPlan {
    /// What is computed of the rows of each source; the first one has the main rows.
    pub(super) sources: Vec<SourcePlan>,
    /// The LAST JOINs and the windows.
    pub(super) join: WindowJoinSpec,
    /// What is computed of a main row that LAST JOINs have joined; `None` where there are none.
    pub(super) joined_main: Option<JoinedMain>,
    /// How many columns of a main row [`Self::joined`] has before the results of its windows; after them it has those
    /// that LAST JOINs above the windows add.
    pub(super) columns: usize,
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
    /// Computes the event time of each row, also of those that conditions leave out; `None` where there are none.
    pub(super) times: Option<LogicalPlan>,
}

/// The sources of a query, for whoever divides their rows.
#[derive(Debug)]
pub(crate) struct DividedSources {
    /// The ids of their tables, that of the main rows first.
    pub(crate) tables: Vec<u64>,
    /// The windows and the LAST JOINs.
    pub(crate) meetings: Vec<Meeting>,
}

/// Rows that meet: for each source its number, and the columns of its table by which they do; `None` for what is
/// computed.
pub(crate) type Meeting = Vec<(usize, Vec<Option<usize>>)>;

/// What is computed of joined main rows: rows of the windows.
#[derive(Debug)]
pub(super) struct JoinedMain {
    pub(super) plan: LogicalPlan,
    /// The joined rows, as a table that stores none.
    pub(super) table: CatalogTable,
    /// How many columns of a main row come first in a joined row, and how many then do not.
    pub(super) main_columns: (usize, usize),
}

/// The parts of a query: main rows, the windows over them, and LAST JOINs above these.
pub(super) struct QueryParts<'q> {
    pub(super) input: &'q LogicalPlan,
    pub(super) unions: &'q [LogicalPlan],
    pub(super) groups: &'q [WindowGroup],
    pub(super) output_joins: JoinChain<'q>,
    /// The columns of the rows that all of these give.
    schema: &'q DFSchemaRef,
}

/// The id of the table of the rows that windows give: no table of a catalog has it.
const JOINED_ID: u64 = u64::MAX;

/// The id of the table of the rows that LAST JOINs give.
const JOINED_MAIN_ID: u64 = u64::MAX - 1;

impl ContinuousPlan {
    /// Cuts a query. Fails where it is none that can be computed row by row.
    pub(super) fn new(query: &BoundQuery) -> Result<Self> {
        if let Some(source) = query.files.first() {
            return Diagnostic::unsupported("a continuous query cannot read files")
                .with_detail(format!("The query reads `{}`.", source.name))
                .with_hint("Load the files into a table, and read that.")
                .err();
        }
        let plan = at_one_level(&query.plan).map_err(planning)?;
        let parts = parts_of(&plan)?;
        let exprs = RowExprs::of_windows(&parts);
        let unions = parts.unions.iter().map(|union| as_input(union, parts.input));
        let unions = unions.map(|union| exprs.source(&union.map_err(planning)?));
        let unions: Vec<SourcePlan> = unions.collect::<Result<_>>()?;
        let order = exprs.order(parts.groups)?;
        let row = order.map(|order| SourceShape { width: exprs.width(), order });
        let (main, joined_main, below) = exprs.main_rows(&parts, row)?;
        // Without windows there are none.
        let of_unions = unions.into_iter().zip(row.into_iter().cycle());
        let mut sources: Vec<_> = std::iter::once(main).chain(of_unions).collect();
        sources.extend(below.sources);
        let above = exprs.output_lookups(&parts, order, sources.len())?;
        sources.extend(above.sources);
        for (source, SourceShape { order, .. }) in &mut sources {
            source.times = times_of(&source.plan, *order).map_err(planning)?;
        }
        let (sources, of_rows): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
        let main_column = |at: usize| match &joined_main {
            None => Some(at),
            Some(JoinedMain { plan, main_columns: (stored, _), .. }) => {
                to_leaf(plan, at).filter(|column| column < stored)
            }
        };
        let main_columns = (0..exprs.width()).map(main_column).collect();
        let join = WindowJoinSpec {
            sources: of_rows,
            lookups: below.lookups,
            width: exprs.width(),
            main_columns,
            output_lookups: above.lookups,
            scans: exprs.scans(&parts)?,
        };
        let joined = table_of(JOINED_ID, parts.schema)?;
        let rows = scan_as(&joined, parts.schema).map_err(planning)?;
        let output = with_rows(&plan, &rows).map_err(planning)?;
        let columns = parts.input.schema().fields().len();
        Ok(Self { sources, join, joined_main, columns, output, joined })
    }
}

/// Returns the sources of a query, and which of their rows meet.
pub(crate) fn divided_sources(query: &BoundQuery) -> Result<DividedSources> {
    let ContinuousPlan { sources, join, .. } = ContinuousPlan::new(query)?;
    let of_source = |source: usize, at: usize| to_leaf(&sources[source].plan, at);
    let of_main = |at: usize| (at < join.sources[0].width).then(|| of_source(0, at)).flatten();
    // Rows of the windows, which LAST JOINs below them may have made of main rows.
    let of_rows = |at: usize| join.main_columns[at].and_then(of_main);
    let of_scan = |scan: &ScanSpec| {
        let of_union =
            |union: &usize| (*union, scan.keys.iter().map(|key| of_source(*union, *key)).collect());
        let main = (0, scan.keys.iter().map(|key| of_rows(*key)).collect());
        std::iter::once(main).chain(scan.unions.iter().map(of_union)).collect::<Meeting>()
    };
    let of_lookup = |lookup: &LookupSpec, of_main: &dyn Fn(usize) -> Option<usize>| {
        let right = lookup.keys.iter().map(|key| of_source(lookup.source, *key)).collect();
        let main = lookup.main_keys.iter().map(|key| of_main(*key)).collect();
        vec![(0, main), (lookup.source, right)]
    };
    let below = join.lookups.iter().map(|lookup| of_lookup(lookup, &of_main));
    let above = join.output_lookups.iter().map(|lookup| of_lookup(lookup, &of_rows));
    let meetings = join.scans.iter().map(of_scan).chain(below).chain(above).collect();
    Ok(DividedSources { tables: sources.iter().map(|source| source.table).collect(), meetings })
}

/// Finds the windows of a query or, where it has none, its LAST JOINs, above which there are only filters and
/// projections.
pub(super) fn parts_of(plan: &LogicalPlan) -> Result<QueryParts<'_>> {
    let output_joins = JoinChain::of(plan)?;
    if let Some(WindowAggregate { input, unions, groups, .. }) = window(output_joins.base) {
        return Ok(QueryParts { input, unions, groups, output_joins, schema: plan.schema() });
    }
    if last_join(plan).is_some() {
        let output_joins = JoinChain::none(plan);
        let schema = plan.schema();
        return Ok(QueryParts { input: plan, unions: &[], groups: &[], output_joins, schema });
    }
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            parts_of(plan.inputs()[0])
        }
        LogicalPlan::TableScan(_) => {
            Diagnostic::unsupported("a continuous query has windows or LAST JOINs")
                .with_hint("Aggregate over a window, or read the table itself.")
                .err()
        }
        other => refused(other).err(),
    }
}

/// Makes the error for an operator that no continuous query has.
fn refused(plan: &LogicalPlan) -> Diagnostic {
    let what = match plan {
        _ if last_join(plan).is_some() => "LAST JOIN",
        _ if window(plan).is_some() => "a window in a subquery",
        LogicalPlan::Sort(_) => "ORDER BY",
        LogicalPlan::Limit(_) => "LIMIT",
        LogicalPlan::Aggregate(_) => "GROUP BY",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Join(_) => "JOIN",
        LogicalPlan::Union(_) => "UNION of queries",
        _ => "this query",
    };
    Diagnostic::unsupported(format!("{what} is not supported in a continuous query")).with_hint(
        "A continuous query has one SELECT with LAST JOINs and windows, over tables and their \
             filters.",
    )
}

/// Fails unless each row of a plan is computed of one row of a stored table.
pub(super) fn check_source(plan: &LogicalPlan) -> Result<()> {
    match plan {
        LogicalPlan::TableScan(_) => Ok(()),
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            check_source(plan.inputs()[0])
        }
        other => refused(other).err(),
    }
}

/// Returns the plan of a column of the rows of a table that no condition leaves out; `None` without conditions.
fn times_of(plan: &LogicalPlan, order: usize) -> PlanResult<Option<LogicalPlan>> {
    let Some(rows) = without_filters(plan)? else { return Ok(None) };
    let time = rows.schema().columns().into_iter().nth(order).map(Expr::Column);
    let plan = Projection::try_new(time.into_iter().collect(), Arc::new(rows))?;
    Ok(Some(LogicalPlan::Projection(plan)))
}

/// Returns a plan without its filters; `None` if it has none.
fn without_filters(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let below = without_filters(&filter.input)?;
            Ok(Some(below.unwrap_or_else(|| filter.input.as_ref().clone())))
        }
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let Some(input) = without_filters(plan.inputs()[0])? else { return Ok(None) };
            plan.with_new_exprs(plan.expressions(), vec![input]).map(Some)
        }
        _ => Ok(None),
    }
}

/// Returns a plan with its windows, or its topmost LAST JOIN, replaced by rows of the same columns.
fn with_rows(plan: &LogicalPlan, rows: &LogicalPlan) -> PlanResult<LogicalPlan> {
    if let LogicalPlan::Extension(Extension { .. }) = plan {
        return Ok(rows.clone());
    }
    let inputs = plan.inputs().into_iter().map(|input| with_rows(input, rows));
    let inputs = inputs.collect::<PlanResult<_>>()?;
    plan.with_new_exprs(plan.expressions(), inputs)
}

/// Returns a UNION source whose columns are called as those of the main rows.
fn as_input(union: &LogicalPlan, input: &LogicalPlan) -> PlanResult<LogicalPlan> {
    let columns = union.schema().columns().into_iter().map(Expr::Column).collect();
    let schema = Arc::clone(input.schema());
    Projection::try_new_with_schema(columns, Arc::new(union.clone()), schema)
        .map(LogicalPlan::Projection)
}

/// Makes a table of rows with these columns, which stores none.
fn table_of(id: u64, schema: &DFSchemaRef) -> Result<CatalogTable> {
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
        id,
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
pub(super) fn planning(error: datafusion::error::DataFusionError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(error.to_string()))
}

/// The columns of the rows of a source: those of a plan, and what some expressions are computed to.
pub(super) struct RowExprs<'n> {
    schema: &'n DFSchemaRef,
    computed: Vec<&'n Expr>,
}

impl<'n> RowExprs<'n> {
    /// Adds expressions to the columns of a plan.
    pub(super) fn of(schema: &'n DFSchemaRef, exprs: impl Iterator<Item = &'n Expr>) -> Self {
        let mut row = Self { schema, computed: Vec::new() };
        for expr in exprs {
            if row.position(expr).is_none() {
                row.computed.push(expr);
            }
        }
        row
    }

    /// Adds the keys, times and arguments of windows.
    fn of_windows(parts: &QueryParts<'n>) -> Self {
        let exprs = parts.groups.iter().flat_map(|WindowGroup { window, calls, .. }| {
            let arguments = calls.iter().flat_map(|call| &call.arguments);
            window.partition_by.iter().chain(&window.order_by).chain(arguments)
        });
        let schema = parts.input.schema();
        Self::of(schema, exprs.chain(parts.output_joins.exprs(schema)))
    }

    /// Counts the columns.
    pub(super) fn width(&self) -> usize {
        self.schema.fields().len() + self.computed.len()
    }

    /// Returns the position of the column that has the values of an expression.
    pub(super) fn position(&self, expr: &Expr) -> Option<usize> {
        let computed = || self.computed.iter().position(|known| *known == expr);
        column(expr, self.schema).or_else(|| computed().map(|at| self.schema.fields().len() + at))
    }

    pub(super) fn column_of(&self, expr: &Expr) -> Result<usize> {
        let position = self.position(expr);
        position.ok_or_else(|| Box::new(Diagnostic::internal("no other expression is read")))
    }

    /// Makes the plan of the rows of a source.
    pub(super) fn source(&self, input: &LogicalPlan) -> Result<SourcePlan> {
        check_source(input)?;
        let table = leftmost_table(input).filter(|table| !system::is_system(table.id));
        let Some(table) = table else {
            return Diagnostic::unsupported("a continuous query cannot read a system table").err();
        };
        Ok(SourcePlan { table: table.id, plan: self.over(input)?, times: None })
    }

    /// Makes the plan of main rows, and of the LAST JOINs below the windows, whose rows these columns are.
    fn main_rows(
        &self,
        parts: &QueryParts<'n>,
        row: Option<SourceShape>,
    ) -> Result<((SourcePlan, SourceShape), Option<JoinedMain>, JoinPlans)> {
        let Some(joined) = topmost_join(parts.input) else {
            let row = row.ok_or_else(|| Box::new(Diagnostic::internal("there are no windows")))?;
            return Ok(((self.source(parts.input)?, row), None, JoinPlans::default()));
        };
        let chain = JoinChain::of(joined)?;
        let schema = chain.base.schema();
        let main = RowExprs::of(schema, chain.exprs(schema));
        let order = chain.event_time(&main)?;
        if row.is_some_and(|row| main_column(parts.input, row.order) != Some(order)) {
            return several_times().err();
        }
        let source = (main.source(chain.base)?, SourceShape { width: main.width(), order });
        let lookups = chain.lookups(&main, parts.unions.len() + 1)?;
        let main_columns = (schema.fields().len(), main.width() - schema.fields().len());
        let joined = self.joined_main(parts.input, joined, main_columns)?;
        Ok((source, Some(joined), lookups))
    }

    /// Makes the LAST JOINs above the windows, which join rows with these columns.
    fn output_lookups(
        &self,
        parts: &QueryParts<'_>,
        order: Option<usize>,
        first_source: usize,
    ) -> Result<JoinPlans> {
        let chain = &parts.output_joins;
        if chain.is_empty() {
            return Ok(JoinPlans::default());
        }
        if order != Some(chain.event_time(self)?) {
            return several_times().err();
        }
        chain.lookups(self, first_source)
    }

    /// Makes the plan of joined main rows.
    fn joined_main(
        &self,
        input: &LogicalPlan,
        join: &LogicalPlan,
        main_columns: (usize, usize),
    ) -> Result<JoinedMain> {
        let table = table_of(JOINED_MAIN_ID, join.schema())?;
        let rows = scan_as(&table, join.schema()).map_err(planning)?;
        let input = with_rows(input, &rows).map_err(planning)?;
        check_source(&input)?;
        Ok(JoinedMain { plan: self.over(&input)?, table, main_columns })
    }

    /// Computes the columns over an input.
    fn over(&self, input: &LogicalPlan) -> Result<LogicalPlan> {
        let columns = self.schema.columns().into_iter().map(Expr::Column);
        let computed = self.computed.iter().enumerate().map(|(at, expr)| {
            let relation: Option<&str> = None;
            Expr::Alias(Alias::new((*expr).clone(), relation, format!("__computed_{at}")))
        });
        let exprs = columns.chain(computed).collect();
        let plan = Projection::try_new(exprs, Arc::new(input.clone())).map_err(planning)?;
        Ok(LogicalPlan::Projection(plan))
    }

    /// Makes the windows over these columns.
    fn scans(&self, parts: &QueryParts<'_>) -> Result<Vec<ScanSpec>> {
        let mut scans: Vec<(&WindowGroup, ScanSpec)> = Vec::new();
        let mut output = 0;
        for group in parts.groups {
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
            output,
            parts.groups.iter().map(|group| group.calls.len()).sum::<usize>(),
            "all calls"
        );
        Ok(scans.into_iter().map(|(_, scan)| scan).collect())
    }

    /// Returns the column with the event time, by which all windows are ordered; `None` without windows.
    fn order(&self, groups: &[WindowGroup]) -> Result<Option<usize>> {
        let mut orders = groups.iter().map(|group| group.window.order_by.as_ref());
        let Some(first) = orders.next() else { return Ok(None) };
        let Some(first) = first.filter(|first| orders.all(|order| order == Some(*first))) else {
            let message = "all windows of a continuous query require ORDER BY the same event time";
            return Diagnostic::new(code::WINDOWING_ERROR, message).err();
        };
        self.column_of(first).map(Some)
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
