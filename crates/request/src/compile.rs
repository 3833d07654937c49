//! The compiler: a logical plan to chains of steps.
//!
//! Goes down a plan with the columns that are needed above, and comes up with the place of each;
//! what nobody needs is never compiled. Asks tables for indexes, reads no rows.

mod fold;
mod group;
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
use lockstep_table::{IndexHold, IndexNeed, Table, TableError};

use crate::{
    chain::{Chain, LeafKind, Step},
    computation::Computation,
    explain::Explain,
    fold::Folding,
    frame::{BoundExpr, Place},
    machine::{self, Node},
    materialise::Materialised,
    program::Options,
    trace::{self, Role},
    whole::RequestTable,
};

/// Finds the stored rows of a table of the plan.
pub trait Tables {
    /// The table with this [`CatalogTable::id`].
    fn table(&self, id: u64) -> Option<Arc<Table>>;

    /// Who a table is told that a program's indexes are held by; see [`Table::holders`].
    fn owner(&self) -> &str {
        "a request"
    }
}

/// Everything that chains refer to by position.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) tables: Vec<(CatalogTable, Arc<Table>)>,
    /// The indexes that chains read through: they stay as long as the program does.
    pub(crate) holds: Vec<IndexHold>,
    /// What each scan computes.
    pub(crate) scans: Vec<Arc<Folding>>,
    pub(crate) materialised: Vec<Materialised>,
    pub(crate) explain: Explain,
    /// How many steps give requests that agree on what they depend on the same results.
    pub(crate) shared_steps: usize,
    /// In how many places the request row is looked at as a row of its table.
    pub(crate) requests_seen: usize,
    /// How many of them are sources that compute their rows one by one.
    pub(crate) request_rows: usize,
    /// How many sources have rows with windows, which are kept for an answer.
    pub(crate) kept_sources: usize,
}

/// A chain in the making.
#[derive(Debug)]
struct Draft {
    leaf: LeafKind,
    steps: Vec<Step>,
    slot_count: usize,
    /// The place of each column of the plan so far.
    layout: Vec<Place>,
}

/// What the windows are ordered by whose history rows are being compiled, from the outermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum History {
    /// Rows of no history.
    None,
    /// All by arrival, or all by this column of the leaf table: a row is in the history of another
    /// only when it comes before it.
    Ordered(Option<usize>),
    /// By different things.
    Mixed,
}

pub(crate) struct Compiler<'c> {
    tables: &'c dyn Tables,
    request_table: RequestTable,
    options: Options,
    /// What the windows are ordered by whose history is being compiled.
    history: History,
    /// Sources with windows that were compiled, which serve again where the same is asked for.
    sources: HashMap<source::SourceKey, source::Compiled>,
    /// Nodes that are no part of the plan; they stay, since a key of `sources` is made of addresses.
    made: Vec<Arc<WindowAggregate>>,
    pub(crate) parts: Parts,
}

impl Compiler<'_> {
    /// Holds an index of a table, which is built when there is none; gives the position of the hold.
    fn hold(&mut self, table: usize, need: &IndexNeed) -> Result<usize> {
        let (catalog_table, held) = &self.parts.tables[table];
        let hold = held.hold(need, self.tables.owner());
        self.parts.holds.push(hold.map_err(|error| refused(&error, catalog_table))?);
        Ok(self.parts.holds.len() - 1)
    }
    /// A number for a step whose results requests share: it has to be the request's own, and to
    /// look at nothing else of the request than its own expressions do. `seen_before` is in how many
    /// places the request row was looked at before the step was compiled.
    fn shared_step(&mut self, role: Role, seen_before: usize) -> Option<usize> {
        if role != Role::Request || self.parts.requests_seen > seen_before {
            return None;
        }
        self.parts.shared_steps += 1;
        Some(self.parts.shared_steps - 1)
    }
}

impl<'c> Compiler<'c> {
    /// `request_table` is the table of the request rows.
    pub(crate) fn new(
        tables: &'c dyn Tables,
        request_table: RequestTable,
        options: Options,
    ) -> Self {
        let history = History::None;
        let (sources, made, parts) = (HashMap::new(), Vec::new(), Parts::default());
        Self { tables, request_table, options, history, sources, made, parts }
    }

    /// Compiles a plan into a chain; also gives the places of the `needed` columns.
    pub(crate) fn chain(
        &mut self,
        plan: &LogicalPlan,
        needed: &[bool],
        role: Role,
    ) -> Result<(Chain, Vec<Place>)> {
        let mut draft = Draft::new();
        self.grow(plan, needed, role, &mut draft)?;
        let Draft { leaf, steps, slot_count, layout } = draft;
        Ok((Chain { leaf, steps, slot_count }, layout))
    }

    /// Adds the steps of a plan to the draft and leaves the plan's columns in the draft's layout.
    fn grow(
        &mut self,
        plan: &LogicalPlan,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
    ) -> Result<()> {
        match plan {
            LogicalPlan::TableScan(scan) => self.table_scan(scan, draft),
            LogicalPlan::EmptyRelation(empty) => {
                draft.stop_unless(empty.produce_one_row);
                Ok(())
            }
            LogicalPlan::SubqueryAlias(node) => self.grow(&node.input, needed, role, draft),
            LogicalPlan::Projection(node) => self.projection(node, needed, role, draft),
            LogicalPlan::Filter(node) => {
                let schema = node.input.schema();
                let mut below = needed.to_vec();
                trace::mark_columns(&node.predicate, schema, &mut below);
                self.grow(&node.input, &below, role, draft)?;
                let predicate = BoundExpr::bind(&node.predicate, schema, &draft.layout)?;
                draft.steps.push(Step::Filter(predicate));
                Ok(())
            }
            // The order of one row, and its distinctness, are no question.
            LogicalPlan::Sort(node) => {
                self.grow(&node.input, needed, role, draft)?;
                draft.stop_unless(role != Role::Request || node.fetch != Some(0));
                Ok(())
            }
            LogicalPlan::Distinct(node) => self.grow(node.input(), needed, role, draft),
            LogicalPlan::Limit(node) => self.limit(node, needed, role, draft),
            LogicalPlan::Aggregate(node) => self.group(node, needed, role, draft),
            // The request row is a row of the first input; others have no say in its answer.
            LogicalPlan::Union(node) => self.grow(&node.inputs[0], needed, role, draft),
            _ => match (trace::window(plan), trace::last_join(plan)) {
                (Some(node), _) => self.windows(node, needed, role, draft),
                (_, Some(node)) => self.last_join(node, needed, role, draft),
                _ => unsupported(plan).err(),
            },
        }
    }

    fn table_scan(&mut self, scan: &TableScan, draft: &mut Draft) -> Result<()> {
        let Some(catalog_table) = CatalogTable::of(scan.source.as_ref()) else {
            let name = &scan.table_name;
            return Diagnostic::internal(format!("`{name}` is not a table of the catalog")).err();
        };
        draft.leaf = LeafKind::Table(self.table(catalog_table)?);
        let places: Vec<Place> = (0..catalog_table.schema.columns.len()).map(Place::Leaf).collect();
        if !scan.filters.is_empty() {
            let name = scan.table_name.clone();
            let schema = DFSchema::try_from_qualified_schema(name, &catalog_table.arrow_schema)
                .map_err(|error| Diagnostic::internal(error.to_string()))?;
            for filter in &scan.filters {
                draft.steps.push(Step::Filter(BoundExpr::bind(filter, &schema, &places)?));
            }
        }
        draft.layout = match &scan.projection {
            Some(projection) => projection.iter().map(|column| places[*column]).collect(),
            None => places,
        };
        Ok(())
    }

    /// The position of a table in the program.
    fn table(&mut self, catalog_table: &CatalogTable) -> Result<usize> {
        let tables = &mut self.parts.tables;
        if let Some(position) = tables.iter().position(|(seen, _)| seen.id == catalog_table.id) {
            return Ok(position);
        }
        let Some(table) = self.tables.table(catalog_table.id) else {
            let (database, name) = (&catalog_table.database, &catalog_table.name);
            let message = format!("table `{database}.{name}` does not exist any more");
            return Diagnostic::new(code::UNDEFINED_TABLE, message).err();
        };
        tables.push((catalog_table.clone(), table));
        Ok(tables.len() - 1)
    }

    fn projection(
        &mut self,
        node: &Projection,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
    ) -> Result<()> {
        let schema = node.input.schema();
        let mut below = vec![false; schema.fields().len()];
        let is_needed = |position: usize| needed.get(position).copied().unwrap_or(false);
        for (position, expr) in node.expr.iter().enumerate() {
            if is_needed(position) {
                trace::mark_columns(expr, schema, &mut below);
            }
        }
        self.grow(&node.input, &below, role, draft)?;
        let mut layout = Vec::with_capacity(node.expr.len());
        let mut computed_together = Vec::new();
        // What is computed twice is computed once.
        let mut computed: HashMap<&Expr, Place> = HashMap::new();
        for (position, expr) in node.expr.iter().enumerate() {
            let expr = unaliased(expr);
            layout.push(if !is_needed(position) {
                Place::Absent
            } else if let Some(place) = computed.get(expr) {
                *place
            } else {
                match BoundExpr::bind(expr, schema, &draft.layout)? {
                    BoundExpr::Place(place) => place,
                    bound @ BoundExpr::Computed { .. } => {
                        let slot = draft.new_slot();
                        computed_together.push((slot, expr, bound));
                        computed.insert(expr, Place::Slot(slot));
                        Place::Slot(slot)
                    }
                }
            });
        }
        self.compute(computed_together, schema, draft);
        draft.layout = layout;
        Ok(())
    }

    /// Adds the steps that fill slots with expressions over the columns of `schema`: one in machine
    /// code for those that have a machine form (several where they are many), then one for each of
    /// the others.
    fn compute(
        &mut self,
        exprs: Vec<(usize, &Expr, BoundExpr)>,
        schema: &DFSchema,
        draft: &mut Draft,
    ) {
        let lowered: Vec<Option<Node>> =
            exprs.iter().map(|(_, expr, _)| self.machine_form(expr, schema)).collect();
        let mut computed = HashSet::new();
        let mut together = Together::default();
        for ((slot, expr, _), node) in exprs.iter().zip(lowered) {
            let Some(node) = node else { continue };
            if together.operations + node.size() > OPERATIONS_MAX {
                computed.extend(self.compute_together(std::mem::take(&mut together), draft));
            }
            together.operations += node.size();
            together.nodes.push(node);
            together.slots.push(*slot);
            together.names.push(expr.to_string());
        }
        computed.extend(self.compute_together(together, draft));
        for (slot, _, expr) in exprs {
            if !computed.contains(&slot) {
                draft.steps.push(Step::Compute { slot, expr });
            }
        }
    }

    /// Adds a step in machine code and gives the slots that it fills.
    fn compute_together(&mut self, together: Together, draft: &mut Draft) -> Vec<usize> {
        let Together { nodes, slots, names, .. } = together;
        if nodes.is_empty() {
            return Vec::new();
        }
        let layout = &draft.layout;
        let Some(computation) = Computation::compile(nodes, slots.clone().into(), layout) else {
            return Vec::new();
        };
        let line = self.parts.explain.open();
        let names = names.join(", ");
        self.parts.explain.close(line, format!("computes in machine code: {names}"));
        draft.steps.push(Step::ComputeAll(computation));
        slots
    }

    /// The machine form of an expression that has one, and reads something.
    fn machine_form(&self, expr: &Expr, schema: &DFSchema) -> Option<Node> {
        if !self.options.machine_code {
            return None;
        }
        let is_worth_it = |node: &Node| node.reads_columns() && node.size() <= OPERATIONS_MAX;
        machine::lower(expr, schema).filter(is_worth_it)
    }

    fn limit(
        &mut self,
        node: &Limit,
        needed: &[bool],
        role: Role,
        draft: &mut Draft,
    ) -> Result<()> {
        self.grow(&node.input, needed, role, draft)?;
        let Some(admits) = trace::admits_one_row(node) else {
            return Diagnostic::unsupported("LIMIT takes a constant").err();
        };
        draft.stop_unless(role != Role::Request || admits);
        Ok(())
    }
}

/// The most operations of one piece of machine code: the time to make it grows faster than they do.
const OPERATIONS_MAX: usize = 2_000;

/// Expressions that one piece of machine code computes.
#[derive(Default)]
struct Together {
    nodes: Vec<Node>,
    slots: Vec<usize>,
    names: Vec<String>,
    operations: usize,
}

impl Draft {
    fn new() -> Self {
        Self { leaf: LeafKind::Nothing, steps: Vec::new(), slot_count: 0, layout: Vec::new() }
    }

    fn new_slot(&mut self) -> usize {
        self.slot_count += 1;
        self.slot_count - 1
    }

    fn stop_unless(&mut self, goes_on: bool) {
        if !goes_on {
            self.steps.push(Step::Stop);
        }
    }
}

/// An expression without the name that it is given.
fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// The chain of the request row goes through this node, which nobody sent here.
fn unsupported(plan: &LogicalPlan) -> Diagnostic {
    Diagnostic::internal(format!("no chain goes through `{}`", plan.display()))
}

/// Why a table does not give an index.
fn refused(error: &TableError, table: &CatalogTable) -> Box<Diagnostic> {
    let name = format!("{}.{}", table.database, table.name);
    Box::new(match error {
        TableError::Dropped => {
            let message = format!("table `{name}` was dropped since this was prepared");
            Diagnostic::new(code::STALE_DEFINITION, message)
                .with_kind(Kind::PrepareAgain)
                .with_hint("Prepare it again.")
        }
        TableError::OutOfMemory { .. } => {
            let message = format!("an index of table `{name}` has no room: {error}");
            Diagnostic::new(code::OUT_OF_MEMORY, message).with_kind(Kind::FreeResources).with_hint(
                "Delete rows, or SET GLOBAL max_memory; SHOW MEMORY says what holds how much.",
            )
        }
        _ => Diagnostic::internal(error.to_string()),
    })
}
