//! The public face: a compiled program, which answers requests.
//!
//! `engine` compiles one per deployment and shares it between threads. The interpreter behind it
//! may be replaced by compiled code; this interface stays.

use std::{cell::OnceCell, cell::RefCell, sync::Arc};

use bumpalo::collections::Vec as ArenaVec;
use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::value_limit;
use lockstep_plan::CatalogTable;
use lockstep_row::{Arena, DataType, Datum, TableSchema, arrow};
use lockstep_table::{Snapshot, Table};

use crate::{
    chain::{Chain, LeafKind},
    compile::{Compiler, Parts, Tables},
    context::{Context, Lent, Results, STORED_LATER, Scratch, ScratchPool},
    frame::{Cells, Leaf, Place},
    kept::KeptFrames,
    materialise::{BatchFallback, copy_into},
    shared::Shared,
    trace::{self, Role},
    whole::{self, RequestTable},
    window::ScanScratch,
};

/// A plan that answers requests: given one row of the left-most table, the row of the plan's
/// output that batch mode would compute for it.
///
/// The request row is not stored; it comes after every stored row of its event time.
#[derive(Debug)]
pub struct Program {
    chain: Chain,
    places: Vec<Place>,
    output: Vec<(String, DataType)>,
    parts: Parts,
    batch: Arc<dyn BatchFallback>,
    scratch: ScratchPool,
    whole: Option<Whole>,
}

/// How a plan is compiled. Answers are the same, bit for bit, whatever is chosen here, but for
/// `own_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says of one thing whether it is done")]
pub struct Options {
    /// Whether aggregates that have a fold are computed block by block, in states that they
    /// share. Otherwise each call has an accumulator, which is fed row by row.
    pub folds: bool,
    /// Whether expressions that have a machine form are compiled to machine code. Otherwise each
    /// of them is a tree of row forms.
    pub machine_code: bool,
    /// Whether indexes may be made to include the columns that windows read. Otherwise windows
    /// use what indexes include already.
    pub includes: bool,
    /// Whether a window or a join that reads an index sees only the rows that this index keeps, as
    /// the reference has it. Otherwise it sees every live row, as batch mode does. The same where
    /// all indexes of a table keep the same rows.
    pub own_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { folds: true, machine_code: true, includes: false, own_only: false }
    }
}

/// A plan that batch mode runs for each request.
#[derive(Debug)]
struct Whole {
    plan: LogicalPlan,
    input: Option<CatalogTable>,
    request_table: RequestTable,
}

impl Program {
    /// Compiles a plan. Builds the indexes it needs, so it may take long on a large table. A plan
    /// whose answer depends on more than the rows of a few keys (an aggregate of the whole table,
    /// a join that is no LAST JOIN) is run in batch mode for each request;
    /// [`Program::is_compiled`] tells.
    pub fn compile(
        plan: &LogicalPlan,
        tables: &dyn Tables,
        batch: Arc<dyn BatchFallback>,
    ) -> Result<Self> {
        Self::compile_with(plan, tables, batch, Options::default())
    }

    /// The same, with a say in how.
    pub fn compile_with(
        plan: &LogicalPlan,
        tables: &dyn Tables,
        batch: Arc<dyn BatchFallback>,
        options: Options,
    ) -> Result<Self> {
        lockstep_host::with_large_stack(|| Self::compile_here(plan, tables, batch, options))
    }

    fn compile_here(
        plan: &LogicalPlan,
        tables: &dyn Tables,
        batch: Arc<dyn BatchFallback>,
        options: Options,
    ) -> Result<Self> {
        if whole::reads_all_rows(plan) {
            return Self::whole(plan, batch);
        }
        let mut compiler = Compiler::new(tables, RequestTable::of(plan), options);
        let line = compiler.parts.explain.open();
        let needed = vec![true; plan.schema().fields().len()];
        let (chain, places) = compiler.chain(plan, &needed, Role::Request)?;
        let mut parts = compiler.parts;
        let text = match chain.leaf {
            LeafKind::Table(table) => {
                let table = &parts.tables[table].0;
                format!("request row of {}.{}", table.database, table.name)
            }
            LeafKind::Nothing | LeafKind::Materialised(_) => "one row without columns".to_owned(),
        };
        parts.explain.close(line, text);
        let output = output(plan)?;
        let scratch = ScratchPool::default();
        Ok(Self { chain, places, output, parts, batch, scratch, whole: None })
    }

    fn whole(plan: &LogicalPlan, batch: Arc<dyn BatchFallback>) -> Result<Self> {
        let input = trace::leftmost_table(plan).cloned();
        let request_table = RequestTable::of(plan);
        whole::check(plan, &request_table)?;
        let mut parts = Parts::default();
        let line = parts.explain.open();
        let text = "batch mode, over all rows and the request row, for each request".to_owned();
        parts.explain.close(line, text);
        Ok(Self {
            chain: Chain { leaf: LeafKind::Nothing, steps: Vec::new(), slot_count: 0 },
            places: Vec::new(),
            output: output(plan)?,
            parts,
            batch,
            scratch: ScratchPool::default(),
            whole: Some(Whole { plan: plan.clone(), input, request_table }),
        })
    }

    /// Whether a request reads only rows of its keys. Otherwise each request costs what the query
    /// costs in batch mode.
    pub fn is_compiled(&self) -> bool {
        self.whole.is_none()
    }

    /// The table whose rows are the request rows; `None` for a query without a table, whose
    /// request row has no columns.
    pub fn input(&self) -> Option<&TableSchema> {
        if let Some(whole) = &self.whole {
            return whole.input.as_ref().map(|table| table.schema.as_ref());
        }
        let LeafKind::Table(table) = self.chain.leaf else { return None };
        Some(&self.parts.tables[table].0.schema)
    }

    /// The identity of that table within its engine.
    pub fn input_table(&self) -> Option<u64> {
        if let Some(whole) = &self.whole {
            return whole.input.as_ref().map(|table| table.id);
        }
        let LeafKind::Table(table) = self.chain.leaf else { return None };
        Some(self.parts.tables[table].0.id)
    }

    /// The columns of an answer.
    pub fn output(&self) -> &[(String, DataType)] {
        &self.output
    }

    /// Answers one request: the output row, or `None` when the query has none for it. The caller
    /// has checked the request's values against [`Program::input`]. The answer lives in the arena.
    /// A join that is no LAST JOIN may have several rows for one request, which is an error here;
    /// see [`Program::answer_rows`].
    pub fn answer<'a>(
        &self,
        request: &[Datum<'_>],
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        if self.whole.is_none() {
            return self.answer_at(request, STORED_LATER, arena);
        }
        let mut answers = Vec::new();
        self.answer_rows(request, arena, |row| answers.push(row))?;
        match answers.as_slice() {
            [] => Ok(None),
            [row] => Ok(Some(row)),
            rows => {
                let message = format!("the request has {} rows for an answer", rows.len());
                Diagnostic::new(code::CARDINALITY_VIOLATION, message)
                    .with_hint("Ask for the answer as a table, or make the join a LAST JOIN.")
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
        mut give: impl FnMut(&'a [Datum<'a>]),
    ) -> Result<()> {
        let Some(whole) = &self.whole else {
            let answer = self.answer_at(request, STORED_LATER, arena)?;
            answer.into_iter().for_each(give);
            return Ok(());
        };
        self.check_width(request)?;
        let batch = self.batch.as_ref();
        let rows = whole::answer(&whole.plan, &whole.request_table, request, batch)?;
        let read = Arena::new();
        for row in rows.iter(&read) {
            let values = row.iter().map(|value| copy_into(*value, arena));
            give(arena.alloc_slice_fill_iter(values));
        }
        Ok(())
    }

    /// Answers a request as a row that arrived before the stored rows of its own event time whose
    /// arrival is `arrival` or later. With a stored row and its own arrival, this is what batch
    /// mode gives for that row: where the query reads the table of the request once more, it reads
    /// the stored rows, of which this is one. Only for programs that are compiled.
    pub fn answer_at<'a>(
        &self,
        request: &[Datum<'_>],
        arrival: u64,
        arena: &'a Arena,
    ) -> Result<Option<&'a [Datum<'a>]>> {
        if self.whole.is_some() {
            return Diagnostic::unsupported("only a compiled program answers for earlier rows")
                .err();
        }
        self.check_width(request)?;
        let mut scratch = self.lend_scratch();
        scratch.arena.reset();
        let mut snapshots = ArenaVec::with_capacity_in(self.parts.tables.len(), arena);
        snapshots.extend(self.snapshots());
        let results = self.no_results();
        let ctx =
            self.context((Leaf::Values(request), arrival), (&*scratch, &snapshots, &results), None);
        Ok(self.answer_one(&ctx)?.map(|values| {
            &*arena.alloc_slice_fill_iter(values.map(|value| copy_into(value, arena)))
        }))
    }

    /// What an answer does: which tables it reads by which indexes, which windows share a scan,
    /// and where it falls back on something slower. Several lines.
    pub fn explain(&self) -> String {
        self.parts.explain.to_string()
    }

    /// The tables that it reads, with their identities within the engine.
    pub fn tables(&self) -> impl Iterator<Item = (u64, &Arc<Table>)> {
        self.parts.tables.iter().map(|(table, stored)| (table.id, stored))
    }

    /// The plans that batch mode runs for it.
    pub(crate) fn materialised(&self) -> impl Iterator<Item = &LogicalPlan> {
        self.parts.materialised.iter().map(|materialised| &materialised.plan)
    }

    /// How many steps have results that requests share; `None` when there is none.
    pub(crate) fn shared_steps(&self) -> Option<usize> {
        (self.parts.shared_steps > 0).then_some(self.parts.shared_steps)
    }

    /// Whether the plans that are run as a whole give the same rows for every request.
    pub(crate) fn shares_results(&self) -> bool {
        self.parts.materialised.iter().all(|plan| plan.request_table.is_none())
    }

    pub(crate) fn snapshots(&self) -> impl Iterator<Item = Snapshot<'_>> {
        self.parts.tables.iter().map(|(_, table)| table.snapshot())
    }

    pub(crate) fn no_results(&self) -> Results {
        self.parts.materialised.iter().map(|_| OnceCell::new()).collect()
    }

    pub(crate) fn context<'s>(
        &'s self,
        request: (Leaf<'s>, u64),
        (scratch, snapshots, results): (&'s Scratch, &'s [Snapshot<'s>], &'s Results),
        shared: Option<Shared<'s>>,
    ) -> Context<'s> {
        let request_rows =
            scratch.arena.alloc_slice_fill_with(self.parts.request_rows, |_| OnceCell::new());
        let kept_frames =
            scratch.arena.alloc_slice_fill_with(self.parts.kept_sources, |_| KeptFrames::default());
        Context {
            request,
            request_rows,
            kept_frames,
            snapshots,
            arena: &scratch.arena,
            scans: &scratch.scans,
            key_buffers: &scratch.key_buffers,
            materialised: &self.parts.materialised,
            results,
            batch: self.batch.as_ref(),
            shared,
        }
    }

    /// The values of the answer; `None` when there is none.
    pub(crate) fn answer_one<'s>(
        &'s self,
        ctx: &Context<'s>,
    ) -> Result<Option<impl ExactSizeIterator<Item = Datum<'s>> + use<'s>>> {
        let (leaf, arrival) = ctx.request;
        let frame = self.chain.run(ctx, leaf, arrival)?;
        value_limit::check()?;
        let Some(frame) = frame else { return Ok(None) };
        let arena = ctx.arena;
        Ok(Some(self.places.iter().map(move |place| frame.get(*place, arena))))
    }

    pub(crate) fn check_width(&self, request: &[Datum<'_>]) -> Result<()> {
        let width = self.input().map_or(0, |schema| schema.columns.len());
        if request.len() == width {
            return Ok(());
        }
        let found = request.len();
        Diagnostic::internal(format!("a request row has {width} values, this one has {found}"))
            .err()
    }

    /// Scratch memory for an answer.
    pub(crate) fn lend_scratch(&self) -> Lent<'_> {
        self.scratch.lend(|| self.new_scratch())
    }

    fn new_scratch(&self) -> Scratch {
        let scans = self.parts.scans.iter();
        let scans = scans.map(|folding| RefCell::new(ScanScratch::new(folding))).collect();
        let budget = self.parts.tables.first().map(|(_, table)| Arc::clone(table.budget()));
        Scratch::new(scans, budget)
    }
}

fn output(plan: &LogicalPlan) -> Result<Vec<(String, DataType)>> {
    let fields = plan.schema().fields().iter();
    fields
        .map(|field| match arrow::data_type(field.data_type()) {
            Some(data_type) => Ok((field.name().clone(), data_type)),
            None => {
                let (name, found) = (field.name(), field.data_type());
                let message = format!("column `{name}` has no type of the dialect: {found}");
                Diagnostic::internal(message).err()
            }
        })
        .collect()
}
