//! Parts of a query that several others read, as the common tables of WITH are: computed once.
//!
//! The binder copies a common table into each use of it, but the copies share their nodes. Before the
//! plan is optimised, [`share`] finds the nodes that several others have as input, and replaces those
//! that are worth it by scans of [`SharedSource`]s. A part is computed with the columns that any scan
//! of it reads, by the first that wants its rows, and kept in memory or, where it does not fit, on
//! disk. A use below a filter stays a copy: conditions go further down, and may leave little to do.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    pin::pin,
    sync::Arc,
};

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema, SchemaRef},
};
use datafusion::{
    common::{
        Column, DataFusionError, Result, TableReference, internal_err, resources_err,
        runtime::SpawnedTask, stats::Precision, tree_node::TreeNodeRecursion,
    },
    datasource::{memory::MemorySourceConfig, source::DataSourceExec},
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    logical_expr::{
        Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableScanBuilder, TableSource,
    },
    physical_expr::PhysicalExpr,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::{
    operator::{OperatorOptions, rows_in_order, single_partition},
    scan::projection,
    source::{BlockingScan, SourceBatches, SourceExec},
    spill::{SpillWriter, SpilledRows, is_out_of_memory},
};

/// A plan whose shared parts are scans, and these parts; one that reads another is after it.
pub(crate) struct SharedPlan {
    pub(crate) plan: LogicalPlan,
    pub(crate) parts: Vec<LogicalPlan>,
}

/// The source of the scans of a shared part; its columns have the names of their positions.
#[derive(Debug)]
pub(crate) struct SharedSource {
    /// Position of the part in [`SharedPlan::parts`].
    pub(crate) part: usize,
    schema: SchemaRef,
}

impl SharedSource {
    /// Returns the source of a scan of a shared part; `None` for another scan.
    pub(crate) fn of(scan: &TableScan) -> Option<&Self> {
        let any: &dyn Any = scan.source.as_ref();
        any.downcast_ref()
    }
}

impl TableSource for SharedSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Replaces the parts of a plan that several others read by scans.
pub(crate) fn share(plan: &LogicalPlan) -> Result<SharedPlan> {
    let mut uses = Uses::default();
    uses.count(plan, false);
    let mut shared = HashSet::new();
    for (address, (node, count)) in uses.counts {
        if count > 1 && is_worth_sharing(node)? {
            shared.insert(address);
        }
    }
    let mut sharing = Sharing { shared, known: HashMap::new(), parts: Vec::new() };
    let replaced = match sharing.shared.is_empty() {
        true => None,
        false => sharing.replaced(plan, false)?,
    };
    debug_assert_eq!(replaced.is_some(), !sharing.parts.is_empty(), "a part has scans");
    Ok(SharedPlan { plan: replaced.unwrap_or_else(|| plan.clone()), parts: sharing.parts })
}

/// Returns a part with the columns that scans read, whose names are the positions of the columns.
pub(crate) fn with_columns(part: LogicalPlan, columns: &BTreeSet<usize>) -> Result<LogicalPlan> {
    let all = part.schema().columns();
    debug_assert!(columns.iter().all(|at| *at < all.len()), "a scan reads columns of the part");
    debug_assert!(!columns.is_empty(), "rows without columns cannot be counted");
    let exprs = columns.iter().map(|at| Expr::Column(all[*at].clone()).alias(name_of(*at)));
    let exprs = exprs.collect::<Vec<_>>();
    LogicalPlanBuilder::from(part).project(exprs)?.build()
}

/// Returns the columns of a part that the scans of optimised plans read; at least one.
pub(crate) fn columns_read<'p>(
    part: usize,
    plans: impl Iterator<Item = &'p LogicalPlan>,
) -> Result<BTreeSet<usize>> {
    let mut columns = BTreeSet::new();
    for plan in plans {
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && SharedSource::of(scan).is_some_and(|source| source.part == part)
            {
                columns.extend(projection(scan));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if columns.is_empty() {
        columns.insert(0);
    }
    Ok(columns)
}

/// Returns the name of a part in plans.
pub(crate) fn part_name(part: usize) -> String {
    format!("__shared_{part}")
}

fn name_of(column: usize) -> String {
    format!("c{column}")
}

/// The address of a node, which the copies of a common table share.
fn address(plan: &LogicalPlan) -> *const LogicalPlan {
    plan
}

/// The nodes that are used where no filter goes below them, and how often.
#[derive(Default)]
struct Uses<'p> {
    counts: BTreeMap<*const LogicalPlan, (&'p LogicalPlan, usize)>,
    seen: HashSet<*const LogicalPlan>,
}

impl<'p> Uses<'p> {
    /// Counts the uses below a node, once for each node.
    fn count(&mut self, plan: &'p LogicalPlan, is_filtered: bool) {
        let is_filtered = is_below_filter(plan, is_filtered);
        for input in plan.inputs() {
            if !is_filtered {
                self.counts.entry(address(input)).or_insert((input, 0)).1 += 1;
            }
            if self.seen.insert(address(input)) {
                self.count(input, is_filtered);
            }
        }
    }
}

/// Returns whether a filter goes below a node, or is it.
fn is_below_filter(plan: &LogicalPlan, is_filtered: bool) -> bool {
    match plan {
        LogicalPlan::Filter(_) => true,
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => is_filtered,
        _ => false,
    }
}

/// Returns whether a node computes enough to be computed once, and the same each time.
fn is_worth_sharing(plan: &LogicalPlan) -> Result<bool> {
    if plan.schema().fields().is_empty() {
        return Ok(false);
    }
    let (mut is_large, mut is_volatile) = (false, false);
    plan.apply_with_subqueries(|node| {
        is_large |= matches!(
            node,
            LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Extension(_)
        );
        is_volatile |= node.expressions().iter().any(Expr::is_volatile);
        Ok(if is_volatile { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_large && !is_volatile)
}

/// The replacement of shared parts.
struct Sharing {
    shared: HashSet<*const LogicalPlan>,
    /// The positions of parts by the addresses of their nodes.
    known: HashMap<*const LogicalPlan, usize>,
    parts: Vec<LogicalPlan>,
}

impl Sharing {
    /// Returns a plan with scans in the place of the shared parts below it; `None` where it has none.
    fn replaced(&mut self, plan: &LogicalPlan, is_filtered: bool) -> Result<Option<LogicalPlan>> {
        let is_filtered = is_below_filter(plan, is_filtered);
        let (mut inputs, mut has_changed) = (Vec::new(), false);
        for input in plan.inputs() {
            let replaced = match !is_filtered && self.shared.contains(&address(input)) {
                true => Some(self.scan(input)?),
                false => self.replaced(input, is_filtered)?,
            };
            has_changed |= replaced.is_some();
            inputs.push(replaced.unwrap_or_else(|| input.clone()));
        }
        has_changed.then(|| plan.with_new_exprs(plan.expressions(), inputs)).transpose()
    }

    /// Returns the columns of a shared part from a scan of it.
    fn scan(&mut self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let part = match self.known.get(&address(plan)) {
            Some(part) => *part,
            None => {
                debug_assert!(self.shared.contains(&address(plan)), "others read it, too");
                let replaced = self.replaced(plan, false)?;
                self.parts.push(replaced.unwrap_or_else(|| plan.clone()));
                let part = self.parts.len() - 1;
                self.known.insert(address(plan), part);
                part
            }
        };
        let fields = plan.schema().fields().iter().enumerate();
        let fields =
            fields.map(|(at, field)| Field::new(name_of(at), field.data_type().clone(), true));
        let source =
            SharedSource { part, schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())) };
        let name = TableReference::bare(part_name(part));
        let scan = TableScanBuilder::new(name.clone(), Arc::new(source)).build()?;
        let columns = plan.schema().iter().enumerate().map(|(at, (qualifier, field))| {
            let column = Expr::Column(Column::new(Some(name.clone()), name_of(at)));
            column.alias_qualified(qualifier.cloned(), field.name())
        });
        let columns = columns.collect::<Vec<_>>();
        LogicalPlanBuilder::from(LogicalPlan::TableScan(scan)).project(columns)?.build()
    }
}

/// A shared part of a physical plan, and its rows once they are computed.
#[derive(Debug)]
pub(crate) struct SharedPart {
    plan: Arc<dyn ExecutionPlan>,
    options: OperatorOptions,
    rows: OnceCell<ComputedRows>,
}

/// The rows of a part.
#[derive(Debug)]
struct ComputedRows {
    rows: StoredBatches,
    _memory: MemoryReservation,
}

/// Rows in memory, or on disk where they do not fit.
#[derive(Debug)]
enum StoredBatches {
    InMemory(Vec<RecordBatch>),
    OnDisk(SpilledRows),
}

impl SharedPart {
    /// Makes the part that a plan computes.
    pub(crate) fn new(plan: Arc<dyn ExecutionPlan>, options: OperatorOptions) -> Self {
        Self { plan, options, rows: OnceCell::new() }
    }

    /// Returns the plan.
    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Returns the operator that reads the columns which a scan reads of a part.
    pub(crate) fn read(self: &Arc<Self>, scan: &TableScan) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.plan.schema();
        let positions =
            projection(scan).into_iter().map(|column| schema.index_of(&name_of(column)));
        let columns = positions.collect::<std::result::Result<Vec<_>, _>>()?;
        let schema = Arc::new(schema.project(&columns)?);
        debug_assert_eq!(schema.fields().len(), columns.len(), "each column is read");
        let (shared, fetch) = (Arc::clone(self), scan.fetch);
        let properties = single_partition(&schema);
        Ok(Arc::new(SharedExec { shared, columns, fetch, schema, properties }))
    }

    /// Computes the rows, if no other operator has.
    async fn compute(&self, context: &Arc<TaskContext>) -> Result<&ComputedRows> {
        self.rows.get_or_try_init(|| self.collect(Arc::clone(context))).await
    }

    async fn collect(&self, context: Arc<TaskContext>) -> Result<ComputedRows> {
        let env = context.runtime_env();
        let memory = MemoryConsumer::new("shared rows").register(&env.memory_pool);
        let schema = self.plan.schema();
        let writer = self.options.on_disk.then(|| SpillWriter::new(&env, &schema));
        let mut target = BatchStore { batches: Vec::new(), writer, schema, memory, env: &env };
        let mut batches = pin!(rows_in_order(Arc::clone(&self.plan), context));
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            self.options.check()?;
            if batch.num_rows() > 0 {
                tokio::task::block_in_place(|| target.push(batch))?;
            }
        }
        target.finish()
    }
}

impl StoredBatches {
    /// Returns a source of some columns, at most `limit` rows. `schema` is that of all columns.
    fn source(
        &self,
        schema: &SchemaRef,
        columns: Vec<usize>,
        limit: Option<usize>,
        options: &OperatorOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match self {
            Self::InMemory(batches) => {
                let partitions = [batches.clone()];
                let source =
                    MemorySourceConfig::try_new(&partitions, Arc::clone(schema), Some(columns))?
                        .with_limit(limit);
                Ok(DataSourceExec::from_data_source(source))
            }
            Self::OnDisk(rows) => {
                let schema = Arc::new(schema.project(&columns)?);
                let scan = SpilledScan { rows: rows.clone(), columns, limit };
                let context = options.context.clone();
                Ok(Arc::new(SourceExec::new(Arc::new(scan), schema, context)))
            }
        }
    }
}

/// Some columns of a part on disk.
#[derive(Debug)]
struct SpilledScan {
    rows: SpilledRows,
    columns: Vec<usize>,
    limit: Option<usize>,
}

impl fmt::Display for SpilledScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} columns of a part, from disk", self.columns.len())
    }
}

impl BlockingScan for SpilledScan {
    fn open(&self) -> Result<SourceBatches> {
        Ok(Box::new(self.rows.read(Some(self.columns.clone()))?))
    }

    fn limit(&self) -> Option<usize> {
        self.limit
    }

    fn row_count(&self) -> Precision<usize> {
        self.rows.precise_count()
    }
}

/// Where the rows of a part go.
struct BatchStore<'e> {
    batches: Vec<RecordBatch>,
    /// Takes the batches when the memory is used up.
    writer: Option<SpillWriter>,
    schema: SchemaRef,
    /// Counts the batches in memory.
    memory: MemoryReservation,
    env: &'e Arc<RuntimeEnv>,
}

impl BatchStore<'_> {
    /// Returns the rows.
    fn finish(self) -> Result<ComputedRows> {
        let rows = match self.writer {
            Some(writer) => StoredBatches::OnDisk(writer.finish()?),
            None => StoredBatches::InMemory(self.batches),
        };
        Ok(ComputedRows { rows, _memory: self.memory })
    }

    /// Adds a batch, in memory or on disk.
    fn push(&mut self, batch: RecordBatch) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            return writer.write(batch);
        }
        match self.try_grow(batch.get_array_memory_size()) {
            Ok(()) => {
                self.batches.push(batch);
                Ok(())
            }
            Err(error) if is_out_of_memory(&error) => self.move_to_disk(batch),
            Err(error) => Err(error),
        }
    }

    /// Counts a batch. Rows that stay leave half of the query's memory to its operators, which would otherwise
    /// find it used up until the query ends.
    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.memory.try_grow(bytes)?;
        let pool = &self.env.memory_pool;
        match pool.memory_limit() {
            MemoryLimit::Finite(limit) if pool.reserved() > limit / 2 => {
                self.memory.shrink(bytes);
                resources_err!("The rows of common tables exceed half of the query's memory")
            }
            _ => Ok(()),
        }
    }

    /// Writes the batches to a file, and the ones that follow.
    fn move_to_disk(&mut self, last: RecordBatch) -> Result<()> {
        let mut writer = SpillWriter::new(self.env, &self.schema);
        for batch in std::mem::take(&mut self.batches) {
            writer.write(batch)?;
        }
        self.memory.free();
        writer.write(last)?;
        self.writer = Some(writer);
        Ok(())
    }
}

/// Reads columns of a shared part, which the first one of its readers computes.
#[derive(Debug)]
pub(crate) struct SharedExec {
    shared: Arc<SharedPart>,
    columns: Vec<usize>,
    fetch: Option<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl SharedExec {
    /// Returns the shared part.
    pub(crate) fn shared(&self) -> &SharedPart {
        &self.shared
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedExec: {} columns of {}", self.columns.len(), self.shared.plan.name())
    }
}

impl ExecutionPlan for SharedExec {
    fn name(&self) -> &'static str {
        "SharedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("shared rows have no input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (shared, columns, fetch) = (Arc::clone(&self.shared), self.columns.clone(), self.fetch);
        let read = async move {
            let (part, env) = (Arc::clone(&shared), Arc::clone(&context));
            // In a task of its own: an operator may leave its input alone in the middle of a poll, and
            // wait for another that reads the part, too.
            let compute = async move { part.compute(&env).await.map(|_computed| ()) };
            let computed = SpawnedTask::spawn(compute).join().await;
            computed.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))??;
            let computed = shared.compute(&context).await?;
            let schema = shared.plan.schema();
            computed.rows.source(&schema, columns, fetch, &shared.options)?.execute(0, context)
        };
        let batches = stream::once(read).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches)))
    }
}
