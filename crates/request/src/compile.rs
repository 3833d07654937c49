//! The compiler: a logical plan to chains of steps.
//!
//! Goes down a plan with the columns that are needed above, and returns with the location of each;
//! columns that are not needed are never compiled. Asks tables for indexes, reads no rows.

mod aggregates;
mod group;
mod inputs;
mod join;
mod lane;
mod source;
mod window;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, Limit, LogicalPlan, Projection, TableScan},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_plan::{CatalogTable, WindowAggregate};
use lockstep_table::{IndexHold, IndexNeed, LevelsWaker, Table, TableError};

use crate::{
    aggregates::ScanAggregates,
    all_rows::RequestTable,
    chain::{Chain, ChainStep, LeafKind},
    computation::Computation,
    explain::Explain,
    machine::{self, MachineExpr},
    materialise::Materialised,
    pre_aggregate::PreAggregate,
    program::CompileOptions,
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    shadow_check::CheckShare,
    trace::{self, ChainRole},
};

/// Finds the stored tables of a plan.
pub trait TableResolver {
    /// Finds the table with this [`CatalogTable::id`].
    fn table(&self, id: u64) -> Option<Arc<Table>>;

    /// Names the owner of the program's indexes, which [`Table::holders`] lists.
    fn owner(&self) -> &str {
        "a request"
    }

    /// Returns the share of the answers with pre-aggregates that are checked, in millionths.
    fn check_share(&self) -> CheckShare {
        CheckShare::default()
    }

    /// Returns the function that is called when pre-aggregates have work.
    fn wake(&self) -> LevelsWaker {
        Arc::new(|| ())
    }

    /// Explains why a table cannot be given an index, where that is neither for lack of memory nor
    /// because the table was dropped.
    fn refusal(&self, error: &TableError) -> Box<Diagnostic> {
        Box::new(Diagnostic::internal(error.to_string()))
    }
}

/// Everything that chains refer to by position or by number.
#[derive(Debug, Default)]
pub(crate) struct ProgramResources {
    pub(crate) tables: Vec<ProgramTable>,
    // Dropped before the holds of their indexes.
    /// The pre-aggregates of the windows.
    pub(crate) pre_aggregates: Vec<Arc<PreAggregate>>,
    /// The indexes that chains read through: they are held as long as the program exists.
    pub(crate) holds: Vec<IndexHold>,
    /// What each scan computes.
    pub(crate) scans: Vec<Arc<ScanAggregates>>,
    pub(crate) materialised: Vec<Materialised>,
    pub(crate) explain: Explain,
    /// How many steps have results that requests share.
    pub(crate) shared_step_count: usize,
    /// In how many places the request row is read as a row of its table.
    pub(crate) request_read_count: usize,
    /// How many of these are sources that compute their rows one by one.
    pub(crate) request_row_count: usize,
    /// How many sources have a cache of their rows.
    pub(crate) row_cache_count: usize,
}

/// A table that a program reads.
#[derive(Debug)]
pub(crate) struct ProgramTable {
    pub(crate) catalog: CatalogTable,
    pub(crate) stored: Arc<Table>,
}

/// A chain, and the location of each column of the plan it was compiled from.
#[derive(Debug)]
pub(crate) struct CompiledChain {
    pub(crate) chain: Chain,
    pub(crate) locations: Vec<ValueLocation>,
}

/// A chain to which steps are added.
#[derive(Debug)]
struct ChainBuilder {
    leaf: LeafKind,
    steps: Vec<ChainStep>,
    slot_count: usize,
    /// The location of each column of the plan so far.
    locations: Vec<ValueLocation>,
}

/// The order of the windows, from the outermost one on, whose history is being compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum HistoryOrder {
    /// There is no window.
    None,
    /// All windows by arrival, or all by this column of the leaf table: a row is in the history of
    /// another only when it comes before it.
    Ordered(Option<usize>),
    /// Windows by different columns or expressions.
    Mixed,
}

/// Compiles one plan.
pub(crate) struct Compiler<'c> {
    tables: &'c dyn TableResolver,
    request_table: RequestTable,
    options: CompileOptions,
    /// The order of the windows whose history is being compiled.
    history: HistoryOrder,
    /// The sources with windows that were compiled; they are reused where the same is needed again.
    sources: HashMap<source::SourceKey, source::CompiledSource>,
    /// Nodes that are not in the plan. They are stored because a key of `sources` has their
    /// addresses.
    rewritten: Vec<Arc<WindowAggregate>>,
    pub(crate) resources: ProgramResources,
}

impl Compiler<'_> {
    /// Holds an index of a table, which is built if there is none, and returns the position of the
    /// hold.
    fn hold(&mut self, table: usize, need: &IndexNeed) -> Result<usize> {
        let ProgramTable { catalog, stored } = &self.resources.tables[table];
        let hold = stored.hold(need, self.tables.owner());
        self.resources.holds.push(hold.map_err(|error| hold_error(&error, catalog, self.tables))?);
        Ok(self.resources.holds.len() - 1)
    }

    /// Returns a number for a step whose results requests can share: the step belongs to the request's
    /// own chain and reads nothing of the request but its own expressions. `read_count_before` is
    /// [`ProgramResources::request_read_count`] before the step was compiled.
    fn shared_step(&mut self, role: ChainRole, read_count_before: usize) -> Option<usize> {
        if role != ChainRole::Request || self.resources.request_read_count > read_count_before {
            return None;
        }
        self.resources.shared_step_count += 1;
        Some(self.resources.shared_step_count - 1)
    }
}

impl<'c> Compiler<'c> {
    /// Makes a compiler. `request_table` is the table of the request rows.
    pub(crate) fn new(
        tables: &'c dyn TableResolver,
        request_table: RequestTable,
        options: CompileOptions,
    ) -> Self {
        let history = HistoryOrder::None;
        let (sources, resources) = (HashMap::new(), ProgramResources::default());
        Self { tables, request_table, options, history, sources, rewritten: Vec::new(), resources }
    }

    /// Compiles a plan into a chain that computes the `needed` columns.
    pub(crate) fn chain(
        &mut self,
        plan: &LogicalPlan,
        needed: &[bool],
        role: ChainRole,
    ) -> Result<CompiledChain> {
        let mut builder = ChainBuilder::new();
        self.add_steps(plan, needed, role, &mut builder)?;
        let ChainBuilder { leaf, steps, slot_count, locations } = builder;
        assert_eq!(locations.len(), plan.schema().fields().len(), "each column has a location");
        Ok(CompiledChain { chain: Chain { leaf, steps, slot_count }, locations })
    }

    /// Adds the steps of a plan to a chain, and sets the chain's locations to those of the plan's
    /// columns.
    fn add_steps(
        &mut self,
        plan: &LogicalPlan,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        match plan {
            LogicalPlan::TableScan(scan) => self.table_scan(scan, builder),
            LogicalPlan::EmptyRelation(empty) => {
                builder.stop_unless(empty.produce_one_row);
                Ok(())
            }
            LogicalPlan::SubqueryAlias(node) => self.add_steps(&node.input, needed, role, builder),
            LogicalPlan::Projection(node) => self.projection(node, needed, role, builder),
            LogicalPlan::Filter(node) => {
                let schema = node.input.schema();
                let mut below = needed.to_vec();
                trace::mark_columns(&node.predicate, schema, &mut below);
                self.add_steps(&node.input, &below, role, builder)?;
                let predicate = BoundExpr::bind(&node.predicate, builder.layout(schema))?;
                builder.steps.push(ChainStep::Filter(predicate));
                Ok(())
            }
            // One row is sorted and distinct.
            LogicalPlan::Sort(node) => {
                self.add_steps(&node.input, needed, role, builder)?;
                builder.stop_unless(role != ChainRole::Request || node.fetch != Some(0));
                Ok(())
            }
            LogicalPlan::Distinct(node) => self.add_steps(node.input(), needed, role, builder),
            LogicalPlan::Limit(node) => self.limit(node, needed, role, builder),
            LogicalPlan::Aggregate(node) => self.group(node, needed, role, builder),
            // The request row is a row of the first input; the others do not change its answer.
            LogicalPlan::Union(node) => self.add_steps(&node.inputs[0], needed, role, builder),
            _ => match (trace::window(plan), trace::last_join(plan)) {
                (Some(node), _) => self.windows(node, needed, role, builder),
                (_, Some(node)) => self.last_join(node, needed, role, builder),
                _ => unsupported(plan).err(),
            },
        }
    }

    fn table_scan(&mut self, scan: &TableScan, builder: &mut ChainBuilder) -> Result<()> {
        let Some(catalog_table) = CatalogTable::of(scan.source.as_ref()) else {
            let name = &scan.table_name;
            return Diagnostic::internal(format!("`{name}` is not a table of the catalog")).err();
        };
        builder.leaf = LeafKind::Table(self.table(catalog_table)?);
        let columns = 0..catalog_table.schema.columns.len();
        let locations: Vec<ValueLocation> = columns.map(ValueLocation::Leaf).collect();
        if !scan.filters.is_empty() {
            let name = scan.table_name.clone();
            let schema = DFSchema::try_from_qualified_schema(name, &catalog_table.arrow_schema)
                .map_err(|error| Diagnostic::internal(error.to_string()))?;
            let layout = ColumnLayout::new(&schema, &locations);
            for filter in &scan.filters {
                builder.steps.push(ChainStep::Filter(BoundExpr::bind(filter, layout)?));
            }
        }
        builder.locations = match &scan.projection {
            Some(projection) => projection.iter().map(|column| locations[*column]).collect(),
            None => locations,
        };
        Ok(())
    }

    /// Returns the position of a table in the program.
    fn table(&mut self, catalog_table: &CatalogTable) -> Result<usize> {
        let tables = &mut self.resources.tables;
        let is_same = |table: &ProgramTable| table.catalog.id == catalog_table.id;
        if let Some(position) = tables.iter().position(is_same) {
            return Ok(position);
        }
        let Some(stored) = self.tables.table(catalog_table.id) else {
            let (database, name) = (&catalog_table.database, &catalog_table.name);
            let message = format!("table `{database}.{name}` no longer exists");
            return Diagnostic::new(code::UNDEFINED_TABLE, message).err();
        };
        tables.push(ProgramTable { catalog: catalog_table.clone(), stored });
        Ok(tables.len() - 1)
    }

    fn projection(
        &mut self,
        node: &Projection,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        let schema = node.input.schema();
        let mut below = vec![false; schema.fields().len()];
        let is_needed = |position: usize| needed.get(position).copied().unwrap_or(false);
        for (position, expr) in node.expr.iter().enumerate() {
            if is_needed(position) {
                trace::mark_columns(expr, schema, &mut below);
            }
        }
        self.add_steps(&node.input, &below, role, builder)?;
        let mut locations = Vec::with_capacity(node.expr.len());
        let mut computed = Vec::new();
        // An expression that occurs twice is computed once.
        let mut location_of: HashMap<&Expr, ValueLocation> = HashMap::new();
        for (position, expr) in node.expr.iter().enumerate() {
            let expr = unaliased(expr);
            locations.push(if !is_needed(position) {
                ValueLocation::Absent
            } else if let Some(location) = location_of.get(expr) {
                *location
            } else {
                match BoundExpr::bind(expr, builder.layout(schema))? {
                    BoundExpr::Column(location) => location,
                    bound @ BoundExpr::Computed { .. } => {
                        let slot = builder.new_slot();
                        computed.push(ComputedSlot { slot, expr, bound });
                        location_of.insert(expr, ValueLocation::Slot(slot));
                        ValueLocation::Slot(slot)
                    }
                }
            });
        }
        self.compute(computed, schema, builder);
        builder.locations = locations;
        Ok(())
    }

    /// Adds the steps that compute expressions over the columns of `schema`: machine code for those
    /// that can be machine code, in several steps where they are many, then a step for each of the
    /// others.
    fn compute(
        &mut self,
        exprs: Vec<ComputedSlot<'_>>,
        schema: &DFSchema,
        builder: &mut ChainBuilder,
    ) {
        let lowered: Vec<Option<MachineExpr>> =
            exprs.iter().map(|computed| self.machine_form(computed.expr, schema)).collect();
        let mut filled = HashSet::new();
        let mut draft = ComputationDraft::default();
        for (ComputedSlot { slot, expr, .. }, lowered) in exprs.iter().zip(lowered) {
            let Some(lowered) = lowered else { continue };
            if draft.operations + lowered.size() > OPERATIONS_MAX {
                filled.extend(self.compute_together(std::mem::take(&mut draft), builder));
            }
            draft.operations += lowered.size();
            draft.exprs.push(lowered);
            draft.slots.push(*slot);
            draft.names.push(expr.to_string());
        }
        filled.extend(self.compute_together(draft, builder));
        for ComputedSlot { slot, bound, .. } in exprs {
            if !filled.contains(&slot) {
                builder.steps.push(ChainStep::Compute { slot, expr: bound });
            }
        }
    }

    /// Adds a step in machine code and returns the slots that it fills.
    fn compute_together(
        &mut self,
        draft: ComputationDraft,
        builder: &mut ChainBuilder,
    ) -> Vec<usize> {
        let ComputationDraft { exprs, slots, names, .. } = draft;
        if exprs.is_empty() {
            return Vec::new();
        }
        let locations = &builder.locations;
        let Some(computation) = Computation::compile(exprs, slots.clone().into(), locations) else {
            return Vec::new();
        };
        let line = self.resources.explain.open();
        let names = names.join(", ");
        self.resources.explain.close(line, format!("computes in machine code: {names}"));
        builder.steps.push(ChainStep::ComputeAll(computation));
        slots
    }

    /// Lowers an expression that can be machine code, unless it is constant or too large.
    fn machine_form(&self, expr: &Expr, schema: &DFSchema) -> Option<MachineExpr> {
        if !self.options.machine_code {
            return None;
        }
        let is_suitable =
            |expr: &MachineExpr| expr.reads_columns() && expr.size() <= OPERATIONS_MAX;
        machine::lower(expr, schema).filter(is_suitable)
    }

    fn limit(
        &mut self,
        node: &Limit,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        self.add_steps(&node.input, needed, role, builder)?;
        let Some(admits) = trace::admits_one_row(node) else {
            return Diagnostic::unsupported("LIMIT must be a constant").err();
        };
        builder.stop_unless(role != ChainRole::Request || admits);
        Ok(())
    }
}

/// The most operations of one piece of machine code: the time to compile it grows faster than they
/// do.
const OPERATIONS_MAX: usize = 2_000;

/// An expression of a projection, and the slot for its values.
struct ComputedSlot<'c> {
    slot: usize,
    expr: &'c Expr,
    bound: BoundExpr,
}

/// Expressions that one piece of machine code is to compute.
#[derive(Default)]
struct ComputationDraft {
    exprs: Vec<MachineExpr>,
    slots: Vec<usize>,
    names: Vec<String>,
    operations: usize,
}

impl ChainBuilder {
    fn new() -> Self {
        Self { leaf: LeafKind::Nothing, steps: Vec::new(), slot_count: 0, locations: Vec::new() }
    }

    /// Pairs the schema of the plan so far with the locations of its columns.
    fn layout<'l>(&'l self, schema: &'l DFSchema) -> ColumnLayout<'l> {
        ColumnLayout::new(schema, &self.locations)
    }

    fn new_slot(&mut self) -> usize {
        self.slot_count += 1;
        self.slot_count - 1
    }

    fn stop_unless(&mut self, goes_on: bool) {
        if !goes_on {
            self.steps.push(ChainStep::Stop);
        }
    }
}

/// Removes the aliases of an expression.
fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Reports a node that [`crate::all_rows::reads_all_rows`] should have sent to batch mode.
fn unsupported(plan: &LogicalPlan) -> Diagnostic {
    Diagnostic::internal(format!("request mode does not support plan node `{}`", plan.display()))
}

/// Explains why a table does not provide an index.
fn hold_error(
    error: &TableError,
    table: &CatalogTable,
    tables: &dyn TableResolver,
) -> Box<Diagnostic> {
    let name = format!("{}.{}", table.database, table.name);
    Box::new(match error {
        TableError::Dropped => {
            let message = format!("table `{name}` was dropped after the query was prepared");
            Diagnostic::new(code::STALE_DEFINITION, message)
                .with_kind(Kind::PrepareAgain)
                .with_hint("Prepare the query again.")
        }
        TableError::OutOfMemory { .. } | TableError::MachineFull { .. } => {
            let message = format!("could not build an index on table `{name}`: {error}");
            Diagnostic::new(code::OUT_OF_MEMORY, message).with_kind(Kind::FreeResources).with_hint(
                "Delete rows, or raise max_memory with SET GLOBAL; SHOW MEMORY lists memory use.",
            )
        }
        _ => return tables.refusal(error),
    })
}
