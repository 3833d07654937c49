//! Execution of a bound plan.
//!
//! *Life of a query*: rewrite the plan ([`lower`]); let DataFusion optimise it; take the snapshots
//! of all tables and hold their rows, on the caller's thread; plan and run on the runtime that all
//! queries share, while the caller waits. The plan is typed already, so
//! DataFusion's analyzer, which would add conversions, has no rules.
//!
//! The caller's thread checks every few milliseconds whether its call was interrupted. If it was,
//! it returns immediately: the task ends at its next await, operators of this crate at their next
//! check.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::{
    common::Result as DataFusionResult,
    execution::{
        SessionState, SessionStateBuilder, TaskContext,
        config::SessionConfig,
        disk_manager::DiskManagerBuilder,
        memory_pool::{
            GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation, TrackConsumersPool,
            UnboundedMemoryPool,
        },
        runtime_env::RuntimeEnvBuilder,
    },
    logical_expr::LogicalPlan,
    optimizer::{Optimizer, OptimizerRule},
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizer},
    physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable},
};
use futures::StreamExt;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::value_limit;
use lockstep_host::{
    CallStep, PerProcess, QueryContext, query,
    temporary::{TemporaryFiles, TemporaryStorage},
};
use lockstep_row::arrow::with_one_nan;
use lockstep_table::{Snapshot, Table};
use tokio::runtime::{Builder, Runtime};

use crate::{
    checked_rules::{CheckedLogicalRule, CheckedPhysicalRule},
    error::{from_datafusion, interrupted},
    filter_pushdown::FilterPushdown,
    group_by::GroupsInOrder,
    in_order::PreserveOrder,
    interruptible::Interruptible,
    joins_on_disk::{JoinsOnDisk, has_hash_join},
    lower::lower,
    machine_memory::MachinePool,
    operator::{self, BATCH_ROWS, OperatorOptions, PARALLEL_ROWS_MIN, WindowSkew, batch_bytes},
    planner::BatchPlanner,
    point_query::PointQuery,
    shared_rows::{SharedPlan, columns_read, part_name, share, with_columns},
    sort_memory::SortMemory,
    spill,
    table_reads::{self, IndexRead, limit_scans, read_tables},
    temporary::{QueryFiles, RemoveOnDrop},
};

/// The most batches that wait for the consumer of a query.
const BATCHES_AHEAD: usize = 4;

/// How many of the consumers that hold the most an error about memory names.
const CONSUMERS_NAMED: NonZeroUsize = NonZeroUsize::new(5).expect("it is above 0");

/// The interval at which the caller's thread checks whether its call was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A row of a batch for so many bytes of memory, and at least so many.
const BATCH_SHARE_BYTES: usize = 8 << 10;
const BATCH_ROWS_MIN: usize = 256;

/// The stack of a runtime thread: plans are trees, and they are walked by recursion.
const STACK_BYTES: usize = 16 << 20;

/// The stored tables that a plan may read.
pub trait StoredTables {
    /// Returns the table with this [`CatalogTable::id`].
    fn table(&self, id: u64) -> Option<Arc<Table>>;

    /// Returns the snapshot of a table that is to be read; `None` for the current rows.
    fn view(&self, id: u64) -> Option<&Snapshot<'_>> {
        let _ = id;
        None
    }
}

/// A receiver of a query's progress.
pub trait ProgressListener: Send + Sync {
    /// Reports that `done` of `total` parts of an operator's work are complete.
    /// Called from several threads, a few hundred times at most.
    fn report(&self, step: CallStep, done: u64, total: u64);
}

/// The options of running a query.
#[derive(Clone, Default)]
pub struct ExecuteOptions {
    /// The most threads of one operator; as many as the machine has when `None`.
    pub threads: Option<NonZeroUsize>,
    /// The most bytes of memory of a query; the limit of the thread's [`QueryContext`] when `None`.
    /// Counts the memory that operators and the result hold for long, not every passing batch.
    pub memory_bytes: Option<usize>,
    /// Receives the progress of the query.
    pub progress: Option<Arc<dyn ProgressListener>>,
    /// By table id, the declared index whose retention decides which rows are visible. Without an
    /// entry, a row is visible that any declared index retains.
    pub read_through: BTreeMap<u64, usize>,
    /// Where the rows go that do not fit into memory, and what they count against.
    pub temporary: TemporaryStorage,
    /// Whether operators take their rows to disk although they fit into memory, for tests.
    pub on_disk: bool,
    /// When windows cut the rows of one key into time slices.
    pub window_skew: WindowSkew,
    /// The rows of a time slice of a window on disk, which every part is cut into, for tests.
    pub slice_rows: Option<usize>,
    /// From how many rows a table is decoded, and groups are computed, by several threads, for tests.
    pub parallel_rows_min: Option<usize>,
}

impl fmt::Debug for ExecuteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecuteOptions")
            .field("threads", &self.threads)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

/// Runs a plan and returns its rows, which may be no batch at all. Blocks; may be called from any
/// thread, also from many at once. Ends when the thread's [`QueryContext`] is interrupted.
pub fn execute(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    execute_counting(plan, tables, options, &mut |batch, result| {
        result.try_grow(batch_bytes(&batch)).map_err(|error| from_datafusion(&error))?;
        batches.push(batch);
        Ok(())
    })?;
    Ok(batches)
}

/// Runs a plan and passes each batch to `consume` when it is computed; an error of `consume` ends
/// the query. For results that need not fit in memory.
pub fn execute_each(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
    consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    execute_counting(plan, tables, options, &mut |batch, _| consume(batch))
}

/// The consumer of a query's batches, with the reservation for the batches that it holds.
type ConsumeCounted<'c> = &'c mut dyn FnMut(RecordBatch, &MemoryReservation) -> Result<()>;

fn execute_counting(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
    consume: ConsumeCounted<'_>,
) -> Result<()> {
    if let Some(batch) = answer_by_key(plan, tables, options)? {
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let result = MemoryConsumer::new("result").register(&unlimited);
        return match batch.num_rows() {
            0 => Ok(()),
            _ => consume(with_one_nan_in(&batch)?, &result),
        };
    }
    let context = QueryContext::nested();
    let files = options.temporary.files();
    // Tasks that were aborted may still have files; nobody waits for those.
    let _removed = RemoveOnDrop(Arc::clone(&files));
    let outcome = context.run(|| {
        let query = OptimisedQuery::new(
            plan,
            tables,
            options,
            &RunContext { context: context.clone(), files },
        )?;
        let pool = &query.state.runtime_env().memory_pool;
        let result = MemoryConsumer::new("result").register(pool);
        let (sender, receiver) = mpsc::sync_channel(BATCHES_AHEAD);
        let task = runtime()?.spawn(async move {
            let send = |batch| tokio::task::block_in_place(|| sender.send(batch).is_ok());
            if let Err(error) = query.run(&send).await {
                send(Err(error));
            }
            send(Ok(None));
        });
        let outcome = receive(&receiver, &context, &mut |batch| consume(batch, &result));
        task.abort();
        outcome
    });
    // The operators on other threads check this: those whose rows nobody wants end, too.
    context.cancel();
    outcome
}

/// Computes a query that reads a few rows by key; `None` for any other.
fn answer_by_key(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
) -> Result<Option<RecordBatch>> {
    if options.on_disk || spill::always().0 {
        return Ok(None);
    }
    let Some(query) = PointQuery::of(plan) else { return Ok(None) };
    query::checkpoint().map_err(interrupted)?;
    lockstep_host::with_large_stack(|| query.answer(tables, options))
        .map_err(|error| from_datafusion(&error))
}

/// Returns whether a query only reads a few rows of one table by the keys of a declared index: it then
/// takes microseconds, whatever the size of the table.
pub fn is_answered_by_key(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
) -> bool {
    PointQuery::of(plan).is_some_and(|query| query.is_answered(tables, options))
}

/// Passes the batches of a query to `consume` until its end, or until the call is interrupted.
fn receive(
    receiver: &Receiver<BatchMessage>,
    context: &QueryContext,
    consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(Ok(Some(batch))) => consume(with_one_nan_in(&batch)?)?,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(from_datafusion(&error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Diagnostic::internal("batch execution ended early").err();
            }
        }
        context.poll().map_err(interrupted)?;
    }
}

/// Returns the batch with every NaN replaced by one bit pattern: machines differ in the sign and
/// the payload of the NaNs that they compute.
fn with_one_nan_in(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(with_one_nan).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
        .map_err(|error| crate::error::from_arrow(&error))
}

/// Returns the optimised logical plan and the physical plan as text.
pub fn explain(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
) -> Result<String> {
    let (context, files) = (QueryContext::nested(), options.temporary.files());
    let run = RunContext { context: context.clone(), files };
    let query = OptimisedQuery::new(plan, tables, options, &run)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        let physical = query.state.query_planner().create_physical_plan(&query.plan, &query.state);
        let text = physical.await.map(|physical| {
            let mut text = query.plan.display_indent().to_string();
            for (number, part) in query.parts.iter().enumerate() {
                text.push_str(&format!("\n\n{}:\n{}", part_name(number), part.display_indent()));
            }
            format!("{text}\n\n{}", displayable(physical.as_ref()).indent(false))
        });
        // Sending fails only when the caller has gone.
        drop(sender.send(text));
    });
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(text) => return text.map_err(|error| from_datafusion(&error)),
            Err(RecvTimeoutError::Timeout) => context.poll().map_err(interrupted)?,
            Err(RecvTimeoutError::Disconnected) => {
                return Diagnostic::internal("planning ended early").err();
            }
        }
    }
}

type BatchMessage = DataFusionResult<Option<RecordBatch>>;

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// What one run of a query has for itself.
struct RunContext {
    /// Interrupts it.
    context: QueryContext,
    files: Arc<TemporaryFiles>,
}

/// What a query is optimised with.
struct Optimising {
    builder: SessionStateBuilder,
    state: SessionState,
    operators: OperatorOptions,
}

impl Optimising {
    fn new(options: &ExecuteOptions, run: &RunContext) -> DataFusionResult<Self> {
        let context = &run.context;
        let (is_spilling, slice_rows) = spill::always();
        let parallel_rows_min = options.parallel_rows_min.or_else(operator::parallel_rows_min);
        let operators = OperatorOptions {
            threads: options.threads.unwrap_or_else(machine_threads),
            progress: options.progress.clone(),
            context: context.clone(),
            on_disk: options.on_disk || is_spilling,
            window_skew: options.window_skew,
            slice_rows: options.slice_rows.or(slice_rows),
            parallel_rows_min: parallel_rows_min.unwrap_or(PARALLEL_ROWS_MIN),
        };
        let allowed = context.memory_bytes();
        let allowed = allowed.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let builder = session(options.memory_bytes.or(allowed), run, &operators)?;
        let state = builder.clone().build();
        Ok(Self { builder, state, operators })
    }
}

/// Optimises a plan and the parts of it that are computed once, with the columns that are read of them.
fn optimise(plan: &LogicalPlan, state: &SessionState) -> DataFusionResult<SharedPlan> {
    let optimised = |plan: LogicalPlan| {
        let lowered = lower(plan)?;
        let optimise = || state.optimizer().optimize(lowered, state, |_, _| {});
        limit_scans(value_limit::while_planning(optimise)?)
    };
    let SharedPlan { plan, mut parts } = share(plan)?;
    let plan = optimised(plan)?;
    // Those that read a part are after it.
    for part in (0..parts.len()).rev() {
        let readers = std::iter::once(&plan).chain(&parts[part + 1..]);
        let columns = columns_read(part, readers)?;
        parts[part] = optimised(with_columns(parts[part].clone(), &columns)?)?;
    }
    Ok(SharedPlan { plan, parts })
}

/// Returns the reads by key of a query, as it runs over the tables as they are now.
pub fn index_reads(
    plan: &LogicalPlan,
    tables: &dyn StoredTables,
    options: &ExecuteOptions,
) -> Result<Vec<IndexRead>> {
    let (context, files) = (QueryContext::nested(), options.temporary.files());
    let run = RunContext { context, files };
    let reads = || {
        let SharedPlan { plan, parts } = optimise(plan, &Optimising::new(options, &run)?.state)?;
        let plans = std::iter::once(&plan).chain(&parts);
        table_reads::index_reads(plans, tables, &options.read_through)
    };
    lockstep_host::with_large_stack(reads).map_err(|error| from_datafusion(&error))
}

/// An optimised query, and the rows of its tables.
struct OptimisedQuery {
    plan: LogicalPlan,
    /// The parts that are computed once for several scans.
    parts: Arc<Vec<LogicalPlan>>,
    state: SessionState,
}

impl OptimisedQuery {
    fn new(
        plan: &LogicalPlan,
        tables: &dyn StoredTables,
        options: &ExecuteOptions,
        run: &RunContext,
    ) -> Result<Self> {
        lockstep_host::with_large_stack(|| Self::optimised(plan, tables, options, run))
            .map_err(|error| from_datafusion(&error))
    }

    fn optimised(
        plan: &LogicalPlan,
        tables: &dyn StoredTables,
        options: &ExecuteOptions,
        run: &RunContext,
    ) -> DataFusionResult<Self> {
        let Optimising { builder, state, operators } = Optimising::new(options, run)?;
        let SharedPlan { plan, parts } = optimise(plan, &state)?;
        let plans = std::iter::once(&plan).chain(&parts);
        let tables = read_tables(plans, tables, &options.read_through, &state)?;
        let parts = Arc::new(parts);
        let planner = BatchPlanner {
            tables: Arc::new(tables),
            parts: Arc::clone(&parts),
            shared: Arc::default(),
            options: operators,
        };
        let state = builder.with_query_planner(Arc::new(planner)).build();
        Ok(Self { plan, parts, state })
    }

    /// Sends the batches one by one until the receiver has gone. Where a join does not fit into the
    /// memory, the query is planned again with joins on disk.
    async fn run(&self, send: &(dyn Fn(BatchMessage) -> bool + Sync)) -> DataFusionResult<()> {
        let planner = self.state.query_planner();
        let physical = planner.create_physical_plan(&self.plan, &self.state).await?;
        let sent = AtomicBool::new(false);
        let send_and_note = |batch| {
            // Relaxed: read when the plan has ended.
            sent.store(true, Ordering::Relaxed);
            send(batch)
        };
        let joins = has_hash_join(&physical);
        match self.send_all(physical, &send_and_note).await {
            Err(error)
                if joins && spill::is_out_of_memory(&error) && !sent.load(Ordering::Relaxed) =>
            {
                let mut state = self.state.clone();
                state.config_mut().options_mut().optimizer.prefer_hash_join = false;
                let physical = planner.create_physical_plan(&self.plan, &state).await?;
                self.send_all(physical, send).await
            }
            outcome => outcome,
        }
    }

    async fn send_all(
        &self,
        physical: Arc<dyn ExecutionPlan>,
        send: &(dyn Fn(BatchMessage) -> bool + Sync),
    ) -> DataFusionResult<()> {
        let context = Arc::new(TaskContext::from(&self.state));
        for partition in 0..physical.output_partitioning().partition_count() {
            let mut stream = physical.execute(partition, Arc::clone(&context))?;
            while let Some(batch) = stream.next().await {
                let batch = batch?;
                if batch.num_rows() > 0 && !send(Ok(Some(batch))) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn session(
    memory_bytes: Option<usize>,
    run: &RunContext,
    operators: &OperatorOptions,
) -> DataFusionResult<SessionStateBuilder> {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS)
        .with_collect_statistics(false);
    // The two schemas differ where the plan knows that a CASE is never NULL and its physical
    // expression does not.
    config.options_mut().execution.skip_physical_aggregate_schema_check = true;
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.prefer_hash_join = !operators.on_disk;
    optimizer.enable_round_robin_repartition = false;
    optimizer.repartition_joins = false;
    optimizer.repartition_aggregations = false;
    optimizer.repartition_sorts = false;
    let files = Arc::new(QueryFiles::new(Arc::clone(&run.files)));
    let disk = DiskManagerBuilder::default().with_temp_file_factory(files);
    let mut runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
    let mut pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
    if let Some(bytes) = memory_bytes {
        // Sorts and joins hold some batches, which are to be small beside the memory.
        config =
            config.with_batch_size((bytes / BATCH_SHARE_BYTES).clamp(BATCH_ROWS_MIN, BATCH_ROWS));
        let limited = GreedyMemoryPool::new(bytes);
        pool = Arc::new(TrackConsumersPool::new(limited, CONSUMERS_NAMED));
    }
    runtime = runtime.with_memory_pool(Arc::new(MachinePool(pool)));
    let mut rules: Vec<PhysicalRule> = vec![Arc::new(PreserveOrder::UnionsAndJoins)];
    // No scan accepts a filter, and pushing filters through a projection is quadratic in its
    // columns. The second run of ProjectionPushdown pushes projections below filters that got a
    // projection in the first run, and then takes the columns of a filter's condition for those of
    // its output.
    let mut pushdowns = 0;
    let is_useful = |rule: &PhysicalRule| {
        pushdowns += usize::from(rule.name() == "ProjectionPushdown");
        let is_second = rule.name() == "ProjectionPushdown" && pushdowns > 1;
        // Windows number rows below sorts here, and no limit is to get there.
        let passes_windows = rule.name() == "LimitPushPastWindows";
        !rule.name().starts_with("FilterPushdown") && !is_second && !passes_windows
    };
    for rule in PhysicalOptimizer::new().rules.into_iter().filter(is_useful) {
        if rule.name() == "EnsureRequirements" {
            // It removes sorts above joins whose rows are in order, which depends on the join.
            rules.push(Arc::new(JoinsOnDisk));
        }
        rules.push(rule);
    }
    debug_assert!(rules.iter().any(|rule| rule.name() == "JoinsOnDisk"), "sorts are enforced");
    rules.push(Arc::new(PreserveOrder::CoalescedPartitions));
    rules.push(Arc::new(GroupsInOrder { options: operators.clone() }));
    let sorts_on_disk = operators.on_disk.then_some(usize::MAX);
    rules.extend(memory_bytes.or(sorts_on_disk).map(|bytes| -> PhysicalRule {
        Arc::new(SortMemory { bytes, options: operators.clone() })
    }));
    rules.push(Arc::new(Interruptible { context: run.context.clone() }));
    let checked_physical = |rule: PhysicalRule| -> PhysicalRule {
        Arc::new(CheckedPhysicalRule { rule, context: run.context.clone() })
    };
    // The rule replaces a UNION of which only one side has rows by a projection whose columns have
    // no qualifier, so that a condition pushed below it takes the table's columns of the same name.
    let logical = Optimizer::new().rules.into_iter();
    let is_right = |rule: &LogicalRule| rule.name() != "propagate_empty_relation";
    let own = |rule: LogicalRule| -> LogicalRule {
        match rule.name() {
            "push_down_filter" => Arc::new(FilterPushdown::default()),
            _ => rule,
        }
    };
    let checked = |rule: LogicalRule| -> LogicalRule {
        Arc::new(CheckedLogicalRule { rule, context: run.context.clone() })
    };
    Ok(SessionStateBuilder::new()
        .with_config(config)
        .with_optimizer_rules(logical.filter(is_right).map(own).map(checked).collect())
        .with_runtime_env(runtime.build_arc()?)
        .with_analyzer_rules(Vec::new())
        .with_physical_optimizer_rules(rules.into_iter().map(checked_physical).collect()))
}

/// Returns the number of threads that the machine runs at once.
pub(crate) fn machine_threads() -> NonZeroUsize {
    lockstep_host::Threads::System.count()
}

/// The most threads of all queries of the process that wait for disks and for each other.
const BLOCKING_THREADS_MAX: usize = 1 << 13;

/// Returns the runtime of all queries of the process, which the first one starts.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<Runtime> = PerProcess::new();
    let make = || {
        Builder::new_multi_thread()
            .worker_threads(machine_threads().get())
            // Threads that wait for rows must not keep those from starting that make them.
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("batch")
            .thread_stack_size(STACK_BYTES)
            .enable_all()
            .build()
    };
    RUNTIME.get_or_make(make).map_err(|error| {
        let message = "could not start a thread for batch execution";
        let diagnostic = Diagnostic::new(lockstep_diagnostic::code::OUT_OF_MEMORY, message)
            .with_kind(lockstep_diagnostic::Kind::FreeResources)
            .with_detail(format!("{error}."));
        Box::new(diagnostic)
    })
}
