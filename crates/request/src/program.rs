//! A compiled program, which answers requests: the interface of this crate.
//!
//! `engine` compiles one for each deployment and shares it between threads.

use std::{
    cell::{OnceCell, RefCell},
    fmt::Write,
    sync::{Arc, OnceLock},
};

use bumpalo::collections::Vec as ArenaVec;
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::value_limit;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, Datum, TableSchema, arrow};
use lockstep_table::{Snapshot, Table};

use crate::{
    all_rows::{self, RequestTable},
    chain::{Chain, ChainStep, LeafKind},
    compile::{CompiledChain, Compiler, ProgramResources, TableResolver},
    context::{AnswerContext, MaterialisedResults, REQUEST_ARRIVAL},
    materialise::{BatchFallback, MaterialisedRows, PlanRunner, copy_to},
    pre_aggregate::{PreAggregate, PreAggregation},
    row_cache::RowCache,
    row_context::{ArrivedRow, ColumnLookup, LeafRow, RowContext, ValueLocation},
    scratch::{AnswerScratch, PooledScratch, ScratchPool},
    shadow_check::ShadowCheck,
    shared::SharedResults,
    trace::{self, ChainRole},
    window::ScanScratch,
};

/// A compiled plan: for one row of its left-most table, it computes the row of the plan's output that
/// batch mode would compute for it.
///
/// The request row is not stored; it comes after every stored row of its event time.
#[derive(Debug)]
pub struct Program {
    chain: Chain,
    /// The location of each column of an answer.
    locations: Vec<ValueLocation>,
    output: Vec<(String, DataType)>,
    resources: ProgramResources,
    batch: Arc<dyn BatchFallback>,
    scratch: ScratchPool,
    /// Set where answers may take nodes of pre-aggregates.
    shadow_check: Option<ShadowCheck>,
    /// Set when batch mode answers the requests; then the chain has no steps.
    pub(crate) all_rows: Option<AllRowsPlan>,
}

/// How a plan is compiled. Answers are the same, bit for bit, whatever is chosen here, except for
/// `index_rows_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent option")]
pub struct CompileOptions {
    /// Whether aggregates that have a fold are computed block by block, in states that calls share.
    /// Otherwise each call has a state that is updated row by row.
    pub folds: bool,
    /// Whether expressions are compiled to machine code where that is possible. Otherwise each of
    /// them is interpreted.
    pub machine_code: bool,
    /// Whether indexes may be made to include the columns that windows read. Otherwise windows
    /// use what indexes include already.
    pub includes: bool,
    /// For which keys windows of many rows have pre-aggregates.
    pub pre_aggregation: PreAggregation,
    /// Whether a window or a join that reads an index sees only the rows that this index retains, as
    /// in OpenMLDB. Otherwise it sees every live row, as batch mode does. It makes no difference
    /// where all indexes of a table retain the same rows.
    pub index_rows_only: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            folds: true,
            machine_code: true,
            includes: false,
            pre_aggregation: PreAggregation::Off,
            index_rows_only: false,
        }
    }
}

/// A plan that batch mode runs for each request.
#[derive(Debug)]
pub(crate) struct AllRowsPlan {
    plan: LogicalPlan,
    /// The left-most table.
    input: Option<CatalogTable>,
    request_table: RequestTable,
}

impl AllRowsPlan {
    /// Answers one request row.
    pub(crate) fn answer(
        &self,
        request: &[Datum<'_>],
        batch: &dyn PlanRunner,
    ) -> Result<MaterialisedRows> {
        all_rows::answer(&self.plan, &self.request_table, request, batch)
    }
}

impl Program {
    /// Compiles a plan. Builds the indexes it needs, so it may take long on a large table. A plan
    /// whose answer depends on more than the rows of a few keys (an aggregate of the whole table,
    /// a join that is no LAST JOIN) is run in batch mode for each request;
    /// [`Program::is_compiled`] tells.
    pub fn compile(
        plan: &LogicalPlan,
        tables: &dyn TableResolver,
        batch: Arc<dyn BatchFallback>,
    ) -> Result<Self> {
        Self::compile_with(plan, tables, batch, CompileOptions::default())
    }

    /// Compiles a plan with options; see [`Program::compile`].
    pub fn compile_with(
        plan: &LogicalPlan,
        tables: &dyn TableResolver,
        batch: Arc<dyn BatchFallback>,
        options: CompileOptions,
    ) -> Result<Self> {
        lockstep_host::with_large_stack(|| Self::compile_here(plan, tables, batch, options))
    }

    fn compile_here(
        plan: &LogicalPlan,
        tables: &dyn TableResolver,
        batch: Arc<dyn BatchFallback>,
        options: CompileOptions,
    ) -> Result<Self> {
        trace::refuse_offset(plan)?;
        if all_rows::reads_all_rows(plan) {
            return Self::all_rows(plan, batch);
        }
        let mut compiler = Compiler::new(tables, RequestTable::of(plan), options);
        let line = compiler.resources.explain.open();
        let needed = vec![true; plan.schema().fields().len()];
        let CompiledChain { chain, locations } =
            compiler.chain(plan, &needed, ChainRole::Request)?;
        let mut resources = compiler.resources;
        let text = match chain.leaf {
            LeafKind::Table(table) => {
                let table = &resources.tables[table].catalog;
                format!("request row of {}.{}", table.database, table.name)
            }
            LeafKind::Nothing | LeafKind::Materialised(_) => "one row without columns".to_owned(),
        };
        resources.explain.close(line, text);
        let output = output(plan)?;
        let scratch = ScratchPool::default();
        assert_eq!(locations.len(), output.len(), "each column of an answer has a location");
        // What batch mode runs shows the rows as they are then.
        let is_checked = !resources.pre_aggregates.is_empty() && resources.materialised.is_empty();
        let shadow_check =
            is_checked.then(|| ShadowCheck::new(tables.check_share(), tables.wake()));
        Ok(Self {
            chain,
            locations,
            output,
            resources,
            batch,
            scratch,
            shadow_check,
            all_rows: None,
        })
    }

    /// Makes a program whose requests batch mode answers.
    fn all_rows(plan: &LogicalPlan, batch: Arc<dyn BatchFallback>) -> Result<Self> {
        let input = trace::leftmost_table(plan).cloned();
        let request_table = RequestTable::of(plan);
        all_rows::check(plan, &request_table)?;
        let mut resources = ProgramResources::default();
        let line = resources.explain.open();
        let text = "batch mode, over all rows and the request row, for each request".to_owned();
        resources.explain.close(line, text);
        Ok(Self {
            chain: Chain { leaf: LeafKind::Nothing, steps: Vec::new(), slot_count: 0 },
            locations: Vec::new(),
            output: output(plan)?,
            resources,
            batch,
            scratch: ScratchPool::default(),
            shadow_check: None,
            all_rows: Some(AllRowsPlan { plan: plan.clone(), input, request_table }),
        })
    }

    /// Returns whether a request reads only rows of its keys. Otherwise each request costs what the
    /// query costs in batch mode.
    pub fn is_compiled(&self) -> bool {
        self.all_rows.is_none()
    }

    /// Returns the schema of the request rows, that of the left-most table; `None` for a query without
    /// a table, whose request row has no columns.
    pub fn input(&self) -> Option<&TableSchema> {
        self.input_catalog_table().map(|table| table.schema.as_ref())
    }

    /// Returns the identity of that table within its engine.
    pub fn input_table(&self) -> Option<u64> {
        self.input_catalog_table().map(|table| table.id)
    }

    fn input_catalog_table(&self) -> Option<&CatalogTable> {
        if let Some(all_rows) = &self.all_rows {
            return all_rows.input.as_ref();
        }
        let LeafKind::Table(table) = self.chain.leaf else { return None };
        Some(&self.resources.tables[table].catalog)
    }

    /// Returns the names and types of the columns of an answer.
    pub fn output(&self) -> &[(String, DataType)] {
        &self.output
    }

    /// Answers one request: the output row, or `None` when the query has none for it. The caller
    /// has checked the request's values against [`Program::input`]. The answer is allocated in the
    /// arena. A join that is no LAST JOIN may have several rows for one request, which is an error here;
    /// see [`Program::answer_rows`].
    pub fn answer<'a>(
        &self,
        request: &[Datum<'_>],
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        if self.is_compiled() {
            return self.answer_at(request, REQUEST_ARRIVAL, arena);
        }
        let mut answers = Vec::new();
        self.answer_rows(request, arena, |row| answers.push(row))?;
        match answers.as_slice() {
            [] => Ok(None),
            [row] => Ok(Some(row)),
            rows => {
                let message = format!("the query returns {} rows for one request", rows.len());
                Diagnostic::new(code::CARDINALITY_VIOLATION, message)
                    .with_hint("Fetch the result as a table, or use a LAST JOIN.")
                    .err()
            }
        }
    }

    /// Answers one request with all rows that the query has for it: at most one, unless the query
    /// has a join that is no LAST JOIN.
    pub fn answer_rows<'a>(
        &self,
        request: &[Datum<'_>],
        arena: &'a Arena,
        mut emit: impl FnMut(&'a [Datum<'a>]),
    ) -> Result<()> {
        let Some(all_rows) = &self.all_rows else {
            let answer = self.answer_at(request, REQUEST_ARRIVAL, arena)?;
            answer.into_iter().for_each(emit);
            return Ok(());
        };
        self.check_width(request)?;
        let rows = all_rows.answer(request, self.batch.as_ref())?;
        let read = Arena::new();
        for row in rows.iter(&read) {
            let copies = arena.alloc_slice_fill_copy(row.len(), Datum::Null);
            copies.iter_mut().zip(row).for_each(|(copy, value)| copy_to(value, copy, arena));
            emit(copies);
        }
        Ok(())
    }

    /// Answers a request as a row that arrived before the stored rows of its own event time whose
    /// arrival is `arrival` or later. With a stored row and its own arrival, this is what batch
    /// mode gives for that row: where the query reads the table of the request once more, it reads
    /// the stored rows, of which this is one. Fails for programs that are not compiled.
    pub fn answer_at<'a>(
        &self,
        request: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        self.answer_over(request, arrival, arena, |_| ())
    }

    /// Answers one request as [`Self::answer`] does, and passes on the snapshots that it reads, one for
    /// each of [`Self::tables`]. Fails for programs that are not compiled.
    pub fn answer_seeing<'a>(
        &self,
        request: &[Datum<'_>],
        arena: &'a Arena,
        see: impl FnOnce(&[Snapshot<'_>]),
    ) -> Result<Option<&'a [Datum<'a>]>> {
        self.answer_over(request, REQUEST_ARRIVAL, arena, see)
    }

    #[inline]
    fn answer_over<'a>(
        &self,
        request: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
        see: impl FnOnce(&[Snapshot<'_>]),
    ) -> Result<Option<&'a [Datum<'a>]>> {
        if !self.is_compiled() {
            let message =
                "a query that reads all rows of its tables cannot be computed for a stored row";
            return Diagnostic::unsupported(message).err();
        }
        self.check_width(request)?;
        let mut scratch = self.acquire_scratch();
        scratch.arena.reset();
        let mut snapshots = ArenaVec::with_capacity_in(self.resources.tables.len(), arena);
        snapshots.extend(self.snapshots());
        Snapshot::align(&mut snapshots);
        debug_assert_eq!(snapshots.len(), self.resources.tables.len(), "one of each table");
        see(&snapshots);
        let results = self.no_results();
        let request = ArrivedRow::values(request, arrival);
        let view = AnswerView {
            scratch: &scratch,
            snapshots: &snapshots,
            results: &results,
            takes_nodes: true,
        };
        let ctx = self.context(request, view, None);
        Ok(self.answer_one(&ctx)?.map(|answer| answer.copy_into(arena)))
    }

    /// Describes how a request is answered: which tables it reads by which indexes, which windows
    /// share a scan, and where it falls back to something slower. Several lines.
    pub fn explain(&self) -> String {
        let mut text = self.resources.explain.to_string();
        for pre_aggregate in self.pre_aggregates() {
            let (name, usage) = (pre_aggregate.name(), pre_aggregate.usage());
            if usage.size.keys > 0 {
                // A text takes what is written to it.
                let _written = writeln!(text, "pre-aggregates of {}: {usage}", name.table);
            }
        }
        text
    }

    /// Returns the pre-aggregates of its windows.
    pub fn pre_aggregates(&self) -> &[Arc<PreAggregate>] {
        &self.resources.pre_aggregates
    }

    pub(crate) fn shadow_check(&self) -> Option<&ShadowCheck> {
        self.shadow_check.as_ref()
    }

    /// Returns the tables that it reads, with their identities within the engine.
    pub fn tables(&self) -> impl Iterator<Item = (u64, &Arc<Table>)> {
        self.resources.tables.iter().map(|table| (table.catalog.id, &table.stored))
    }

    /// Returns the plans that batch mode runs for it.
    pub(crate) fn materialised(&self) -> impl Iterator<Item = &LogicalPlan> {
        self.resources.materialised.iter().map(|materialised| &materialised.plan)
    }

    /// Counts the steps whose results requests share; `None` when there is none.
    pub(crate) fn shared_steps(&self) -> Option<usize> {
        let count = self.resources.shared_step_count;
        (count > 0).then_some(count)
    }

    /// Returns whether the plans that batch mode runs give the same rows for every request.
    pub(crate) fn shares_results(&self) -> bool {
        self.resources.materialised.iter().all(|plan| plan.request_table.is_none())
    }

    /// Takes a snapshot of each table. The caller aligns them.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = Snapshot<'_>> {
        self.resources.tables.iter().map(|table| table.stored.snapshot())
    }

    /// Makes empty cells for the results of the plans that batch mode runs.
    pub(crate) fn no_results(&self) -> MaterialisedResults {
        self.resources.materialised.iter().map(|_| OnceLock::new()).collect()
    }

    /// Makes the context of an answer.
    pub(crate) fn context<'s>(
        &'s self,
        request: ArrivedRow<'s>,
        view: AnswerView<'s>,
        shared: Option<SharedResults<'s>>,
    ) -> AnswerContext<'s> {
        let AnswerView { scratch, snapshots, results, takes_nodes } = view;
        assert_eq!(snapshots.len(), self.resources.tables.len(), "a snapshot of each table");
        let arena = &scratch.arena;
        let request_row_count = self.resources.request_row_count;
        let request_rows = arena.alloc_slice_fill_with(request_row_count, |_| OnceCell::new());
        let row_cache_count = self.resources.row_cache_count;
        let row_caches = arena.alloc_slice_fill_with(row_cache_count, |_| RowCache::default());
        AnswerContext {
            request,
            request_rows,
            row_caches,
            snapshots,
            arena,
            scans: &scratch.scans,
            key_buffers: &scratch.key_buffers,
            tables: &self.resources.tables,
            materialised: &self.resources.materialised,
            results,
            batch: self.batch.as_ref(),
            takes_nodes,
            shared,
        }
    }

    /// Makes the context of a row for which no others are read ([`crate::SingleRowProgram`]).
    pub(crate) fn context_of_row<'s>(
        &'s self,
        row: ArrivedRow<'s>,
        scratch: &'s AnswerScratch,
    ) -> AnswerContext<'s> {
        debug_assert!(self.resources.scans.is_empty(), "no other rows are read");
        AnswerContext {
            request: row,
            request_rows: &[],
            row_caches: &[],
            snapshots: &[],
            arena: &scratch.arena,
            scans: &[],
            key_buffers: &scratch.key_buffers,
            tables: &[],
            materialised: &[],
            results: &[],
            batch: self.batch.as_ref(),
            takes_nodes: false,
            shared: None,
        }
    }

    /// Returns the steps from a row to its answer, and where each column of the answer is; `None` where batch mode
    /// answers.
    pub(crate) fn steps(&self) -> Option<(&[ChainStep], &[ValueLocation])> {
        self.is_compiled().then_some((&self.chain.steps, &self.locations))
    }

    /// Computes the values of the answer; `None` when the query has no row for the request.
    pub(crate) fn answer_one<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
    ) -> Result<Option<AnswerRow<'s>>> {
        let row = self.chain.run(ctx, ctx.request)?;
        value_limit::check()?;
        let answer = row.map(|row| AnswerRow { row, locations: &self.locations, arena: ctx.arena });
        if let Some(check) = &self.shadow_check {
            check.offer(ctx, answer.as_ref());
        }
        Ok(answer)
    }

    /// Checks that a request row has as many values as its table has columns.
    pub(crate) fn check_width(&self, request: &[Datum<'_>]) -> Result<()> {
        let width = self.input().map_or(0, |schema| schema.columns.len());
        if request.len() == width {
            return Ok(());
        }
        let found = request.len();
        let message = format!("expected {width} values in the request row, found {found}");
        Diagnostic::internal(message).err()
    }

    /// Acquires scratch memory for an answer.
    pub(crate) fn acquire_scratch(&self) -> PooledScratch<'_> {
        self.scratch.acquire(|| self.new_scratch())
    }

    pub(crate) fn new_scratch(&self) -> AnswerScratch {
        let scans = self.resources.scans.iter();
        let scans = scans.map(|scan| RefCell::new(ScanScratch::new(scan))).collect();
        let budget = self.resources.tables.first();
        let budget = budget.map(|table| Arc::clone(table.stored.budget()));
        AnswerScratch::new(scans, budget)
    }
}

/// The row of an answer, in the scratch memory of the answer.
#[derive(Debug)]
pub(crate) struct AnswerRow<'s> {
    row: RowContext<'s, 's>,
    /// The location of each column.
    locations: &'s [ValueLocation],
    arena: &'s Arena,
}

impl<'s> AnswerRow<'s> {
    /// Returns the values.
    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = Datum<'s>> {
        self.locations.iter().map(|location| self.row.get(*location, self.arena))
    }

    /// Returns the values, each with its location.
    pub(crate) fn located(&self) -> impl Iterator<Item = (ValueLocation, Datum<'s>)> {
        self.locations.iter().copied().zip(self.values())
    }

    /// Copies the values, with everything that they point to, into an arena.
    pub(crate) fn copy_into<'a>(&self, arena: &'a Arena) -> &'a [Datum<'a>] {
        debug_assert!(
            !self.locations.contains(&ValueLocation::Absent),
            "each column of an answer is computed"
        );
        let copies = arena.alloc_slice_fill_copy(self.locations.len(), Datum::Null);
        for (copy, location) in copies.iter_mut().zip(self.locations) {
            match (*location, self.row.leaf) {
                (ValueLocation::Slot(slot), _) => copy_to(&self.row.slots[slot], copy, arena),
                (ValueLocation::Leaf(column), LeafRow::Values(values)) => {
                    copy_to(&values[column], copy, arena);
                }
                (location, _) => copy_to(&self.row.get(location, self.arena), copy, arena),
            }
        }
        copies
    }
}

/// What an answer reads and writes besides its request row.
#[derive(Clone, Copy)]
pub(crate) struct AnswerView<'s> {
    pub(crate) scratch: &'s AnswerScratch,
    /// For each table of the program.
    pub(crate) snapshots: &'s [Snapshot<'s>],
    pub(crate) results: &'s MaterialisedResults,
    /// Whether nodes of pre-aggregates are taken in place of rows.
    pub(crate) takes_nodes: bool,
}

/// Returns the names and types of the columns of a plan.
fn output(plan: &LogicalPlan) -> Result<Vec<(String, DataType)>> {
    let fields = plan.schema().fields().iter();
    fields
        .map(|field| match arrow::data_type(field.data_type()) {
            Some(data_type) => Ok((field.name().clone(), data_type)),
            None => {
                let (name, found) = (field.name(), field.data_type());
                let message =
                    format!("column `{name}` has a type that Lockstep does not support: {found}");
                Diagnostic::internal(message).err()
            }
        })
        .collect()
}
