//! The window operator's plan node: reads its inputs, splits the work into tasks, restores the
//! order of the results.

use std::{
    fmt,
    num::NonZeroUsize,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrow::{
    array::{Array, ArrayRef, RecordBatch, UInt32Array},
    compute::{concat, take},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{internal_err, tree_node::TreeNodeRecursion},
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_expr::PhysicalExpr,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream, execution_plan::apply_expression_roots,
        stream::RecordBatchReceiverStream,
    },
};
use hashbrown::HashMap;
use lockstep_function::value_limit;
use lockstep_host::CallStep;
use lockstep_plan::{Window, has_beginning};

use super::{
    carried::CarriedKeys,
    columns::WindowColumns,
    frames::{first_incomplete, rows_before},
    on_disk::on_disk,
    partition::{Ordering, OrderingOptions, WindowChunk},
    shared_state::{SharedState, shared_states},
    slide::{SlideOptions, TaskOutput, WindowCall, slide, slide_bytes},
};
use crate::{
    error::into_datafusion,
    lower::GroupShape,
    operator::{
        BATCHES_AHEAD, OperatorOptions, WindowSkew, array_bytes, batch_bytes, compute, read_all,
        send_all, single_partition,
    },
    parallel,
    spill::{give_back_freed, is_out_of_memory},
};

/// The approximate number of rows of a task, when there are enough keys.
const TASK_ROWS: usize = 16_384;
/// A key with the rows of two of so many equal parts for each thread is cut into time slices.
const SLICES_PER_THREAD: usize = 4;

/// The description of a window operator.
#[derive(Debug, Clone)]
pub(crate) struct WindowOperatorSpec {
    /// The distinct expressions of all groups, over the input.
    pub(crate) exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// For each UNION source which expressions its columns are.
    pub(crate) union_exprs: Vec<Vec<usize>>,
    /// The windows.
    pub(crate) groups: Vec<GroupShape>,
    /// Threads and progress.
    pub(crate) options: OperatorOptions,
}

/// The window operator. Emits the main rows in their order, with one column for each call.
#[derive(Debug)]
pub(crate) struct WindowExec {
    spec: Arc<WindowOperatorSpec>,
    /// The main input, then the UNION sources.
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl WindowExec {
    /// Makes the operator; `inputs` are the main input and the UNION sources.
    pub(crate) fn new(
        spec: Arc<WindowOperatorSpec>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
        schema: SchemaRef,
    ) -> Self {
        let properties = single_partition(&schema);
        Self { spec, inputs, schema, properties }
    }
}

impl DisplayAs for WindowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: usize = self.spec.groups.iter().map(|group| group.arguments.len()).sum();
        write!(f, "WindowExec: {} windows, {calls} calls", self.spec.groups.len())
    }
}

impl ExecutionPlan for WindowExec {
    fn name(&self) -> &'static str {
        "WindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; self.inputs.len()]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(&self.spec.exprs, f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != self.inputs.len() {
            return internal_err!("a window keeps its number of inputs");
        }
        Ok(Arc::new(Self::new(Arc::clone(&self.spec), children, Arc::clone(&self.schema))))
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
        let (inputs, schema) = (self.inputs.clone(), Arc::clone(&self.schema));
        let spec = Arc::clone(&self.spec);
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&schema), BATCHES_AHEAD);
        let sender = stream.tx();
        stream.spawn(async move {
            match in_memory(&spec, &schema, inputs.clone(), &context).await {
                Err(error) if is_out_of_memory(&error) => {
                    give_back_freed(&context);
                    on_disk(spec, schema, inputs, context, sender).await
                }
                Err(error) => Err(error),
                Ok((batches, memory)) => {
                    send_all(&sender, batches, &memory).await;
                    Ok(())
                }
            }
        });
        Ok(stream.build())
    }
}

/// Computes the windows with all rows in memory. Returns also the memory that the rows take.
async fn in_memory(
    spec: &Arc<WindowOperatorSpec>,
    schema: &SchemaRef,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    context: &Arc<TaskContext>,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    spec.options.check_in_memory()?;
    let memory = MemoryConsumer::new("window").register(context.memory_pool());
    let mut sources = Vec::with_capacity(inputs.len());
    for input in inputs {
        sources.push(read_all(input, Arc::clone(context), |bytes| memory.try_grow(bytes)).await?);
    }
    let (spec, schema) = (Arc::clone(spec), Arc::clone(schema));
    compute(move || {
        let unions = sources.split_off(1);
        let main = sources.pop().unwrap_or_default();
        let batches = run(&spec, &schema, WindowInputs { main, unions }, &memory)?;
        Ok((batches, memory))
    })
    .await
}

/// The rows of an operator's inputs.
struct WindowInputs {
    main: Vec<RecordBatch>,
    /// For each UNION source its batches.
    unions: Vec<Vec<RecordBatch>>,
}

/// Computes all calls of all groups and appends them to the main rows.
fn run(
    spec: &WindowOperatorSpec,
    schema: &SchemaRef,
    inputs: WindowInputs,
    memory: &MemoryReservation,
) -> Result<Vec<RecordBatch>> {
    let WindowInputs { main, unions } = inputs;
    if main.is_empty() {
        return Ok(Vec::new());
    }
    let threads = spec.options.threads;
    let of_rows = memory.size();
    let unions_bytes: usize = unions.iter().flatten().map(batch_bytes).sum();
    let columns =
        WindowColumns::new(&spec.exprs, &main, &unions, &spec.union_exprs, threads, memory)?;
    drop(unions);
    memory.shrink(unions_bytes);
    let results = compute_calls(spec, columns, CurrentRows::ALL, memory)?;
    let of_results: usize = results.iter().map(|column| array_bytes(column.as_ref())).sum();
    // The columns and their orderings are gone.
    memory.try_resize(of_rows - unions_bytes + of_results)?;
    append_columns(schema, &main, &results)
}

/// The main rows that are current rows of a computation.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentRows {
    /// How many main rows at the beginning are none.
    pub(super) passed: usize,
    /// Whether they are all rows of the operator, so that its progress is that of the computation.
    is_whole: bool,
}

impl CurrentRows {
    const ALL: Self = Self { passed: 0, is_whole: true };

    /// Returns the main rows of a part of the work, without a number of them at the beginning.
    pub(super) fn of_part(passed: usize) -> Self {
        Self { passed, is_whole: false }
    }
}

/// Computes all calls of all groups, in the order of the current rows.
fn compute_calls(
    spec: &WindowOperatorSpec,
    columns: WindowColumns,
    current: CurrentRows,
    memory: &MemoryReservation,
) -> Result<Vec<ArrayRef>> {
    let work = WindowWork::new(spec, &columns, current, memory)?;
    drop(columns);
    work.compute(None, memory)
}

/// A group with the columns of its calls.
#[derive(Debug)]
struct GroupColumns<'a> {
    shape: &'a GroupShape,
    ordering: usize,
    calls: Vec<WindowCall<'a>>,
    states: Vec<SharedState>,
}

/// The sorted rows of all groups.
#[derive(Debug)]
pub(super) struct WindowWork<'a> {
    spec: &'a WindowOperatorSpec,
    pub(super) orderings: Vec<Ordering>,
    groups: Vec<GroupColumns<'a>>,
    current: CurrentRows,
}

/// A unit of parallel work: some states of a group for some rows.
#[derive(Debug)]
struct WindowTask {
    group: usize,
    rows: WindowChunk,
    states: Range<usize>,
    with_unordered: bool,
}

/// The properties that two groups must have in common to share an ordering.
pub(super) type OrderingKey<'a> = (&'a [usize], Option<usize>, &'a [usize]);

/// Returns what the ordering of a group depends on.
pub(super) fn ordering_key(shape: &GroupShape) -> OrderingKey<'_> {
    (&shape.partition_by, shape.order_by, &shape.group.unions)
}

impl<'a> WindowWork<'a> {
    /// Sorts the rows, and counts their memory. About what it takes on the way is counted while it does.
    pub(super) fn new(
        spec: &'a WindowOperatorSpec,
        columns: &WindowColumns,
        current: CurrentRows,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        let stacked = stacked_columns(spec, columns, memory)?;
        let column = |expr: usize, unions: &'a [usize]| Arc::clone(&stacked[&(expr, unions)]);
        let mut keys: Vec<OrderingKey<'a>> = Vec::new();
        let mut groups = Vec::with_capacity(spec.groups.len());
        for shape in &spec.groups {
            let key = ordering_key(shape);
            let ordering = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
                keys.push(key);
                keys.len() - 1
            });
            let unions = shape.group.unions.as_slice();
            let calls = shape.group.calls.iter().zip(&shape.arguments).map(|(call, arguments)| {
                WindowCall {
                    bound: &call.bound,
                    arguments: arguments.iter().map(|expr| column(*expr, unions)).collect(),
                }
            });
            let states = shared_states(shape);
            groups.push(GroupColumns { shape, ordering, calls: calls.collect(), states });
        }
        let orderings = parallel::run(spec.options.threads, keys.len(), |at| {
            spec.options.check()?;
            let (partition_by, order_by, unions) = keys[at];
            let Ok(row_count) = u32::try_from(columns.row_count(unions)) else {
                return internal_err!("a window is over fewer than 2^32 rows");
            };
            let main = columns.main_rows(unions);
            let partition_by: Vec<_> =
                partition_by.iter().map(|expr| column(*expr, unions)).collect();
            let order = order_by.map(|expr| column(expr, unions));
            let sorting = memory.new_empty();
            sorting.try_grow(Ordering::sort_bytes(row_count as usize))?;
            let first_current = u32::try_from(main.start + current.passed).unwrap_or(row_count);
            let main = u32::try_from(main.start).unwrap_or(row_count)..row_count;
            let mut shapes = spec.groups.iter().filter(|shape| ordering_key(shape) == keys[at]);
            let with_others = shapes.any(|shape| shape.group.window.instance_not_in_window);
            let threads = spec.options.threads.get() / keys.len();
            let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
            let options = OrderingOptions { with_others, threads };
            let order = order.as_ref();
            let ordering = Ordering::new(&partition_by, order, main, first_current, options)?;
            drop(sorting);
            memory.try_grow(ordering.bytes())?;
            Ok(ordering)
        })?;
        Ok(Self { spec, orderings, groups, current })
    }

    /// Leaves main rows for later whose frames may hold rows that come after those that are here, of the keys that
    /// go on; `last_order` is the order value of the last row. There is one ordering. Returns how many main rows are
    /// left.
    pub(super) fn leave_incomplete(&mut self, keys: &[usize], last_order: i64) -> usize {
        let [ordering] = self.orderings.as_mut_slice() else { return 0 };
        let windows = self.groups.iter().map(|group| &group.shape.group.window);
        let first =
            windows.filter_map(|window| first_incomplete(window, ordering, keys, last_order));
        let Some(first) = first.min() else { return 0 };
        ordering.end_before(first);
        (ordering.main.end - first) as usize
    }

    /// Computes all calls, in the order of the current rows; those of keys that go on in other time slices
    /// with the states that are carried. Where states are changed, memory that the results take beyond
    /// what is free is counted and is no error.
    pub(super) fn compute(
        &self,
        carried: Option<&CarriedKeys<'_>>,
        memory: &MemoryReservation,
    ) -> Result<Vec<ArrayRef>> {
        let options = &self.spec.options;
        let count = |memory: &MemoryReservation, bytes: usize| match carried {
            Some(carried) => carried.count(memory, bytes),
            None => memory.try_grow(bytes),
        };
        let tasks = self.tasks(carried);
        let (done, total) = (AtomicU64::new(0), u64::try_from(tasks.len()).unwrap_or(u64::MAX));
        let frames = memory.new_empty();
        frames.try_grow(slide_bytes(self.rows_at_once(&tasks)))?;
        let outputs = parallel::run(options.threads, tasks.len(), |at| {
            let outputs = self.slide(&tasks[at], carried);
            value_limit::check().map_err(into_datafusion)?;
            options.check()?;
            let bytes = outputs.columns.iter().map(|column| array_bytes(column.as_ref())).sum();
            count(memory, bytes)?;
            if self.current.is_whole {
                // Relaxed: a number to look at.
                options.report(CallStep::ComputeWindows, done.fetch_add(1, Relaxed) + 1, total);
            }
            Ok(outputs)
        })?;
        drop(frames);
        // The results are there twice until they are in order, and a call's once more for each thread.
        let positions = memory.new_empty();
        let current = self.orderings.iter().map(|ordering| ordering.current().len()).max();
        let of_columns = self.result_bytes(&tasks, &outputs);
        let of_results: usize = of_columns.iter().sum();
        let at_once: usize = of_columns.iter().take(options.threads.get()).sum();
        count(&positions, current.unwrap_or(0) * size_of::<u32>())?;
        count(&positions, of_results + at_once)?;
        self.in_main_order(&tasks, &outputs)
    }

    /// Returns the bytes of the results of each call, the most first.
    fn result_bytes(&self, tasks: &[WindowTask], outputs: &[TaskOutput]) -> Vec<usize> {
        let mut bytes = HashMap::new();
        for (task, output) in tasks.iter().zip(outputs) {
            for (at, column) in output.columns.iter().enumerate() {
                *bytes.entry((task.group, task.states.start, at)).or_insert(0) +=
                    array_bytes(column.as_ref());
            }
        }
        let mut bytes: Vec<usize> = bytes.into_values().collect();
        bytes.sort_unstable_by(|left, right| right.cmp(left));
        bytes
    }

    /// Returns the most rows that are computed at once: those of the longest tasks, one for each thread.
    fn rows_at_once(&self, tasks: &[WindowTask]) -> usize {
        let rows = |task: &WindowTask| {
            let current = self.orderings[self.groups[task.group].ordering].current().len();
            task.rows.rows.len().min(current)
        };
        let mut rows: Vec<usize> = tasks.iter().map(rows).collect();
        rows.sort_unstable_by(|left, right| right.cmp(left));
        rows.iter().take(self.spec.options.threads.get()).sum()
    }

    /// Returns how many time slices the rows of a key are cut into: several where the key has so
    /// many rows that other threads would wait for it, and the rows before each slice that its first
    /// frame holds, which are added again, are few beside its own.
    fn slice_count(&self, window: &Window, ordering: &Ordering, key: Range<usize>) -> usize {
        let threads = self.spec.options.threads.get();
        let fair_rows = ordering.rows.len().div_ceil(SLICES_PER_THREAD * threads).max(1);
        let orders = &ordering.orders[key];
        let added_again = |slices: usize| -> usize {
            let starts = (1..slices).map(|slice| slice * orders.len().div_ceil(slices));
            starts.map(|at| rows_before(window, orders, at.min(orders.len() - 1))).sum()
        };
        match self.spec.options.window_skew {
            WindowSkew::Off => 1,
            WindowSkew::Always => orders.len() / fair_rows,
            WindowSkew::Auto if threads == 1 => 1,
            WindowSkew::Auto => {
                let mut slices = orders.len() / fair_rows.max(TASK_ROWS);
                while slices > 1 && added_again(slices) > orders.len() / 2 {
                    slices /= 2;
                }
                slices
            }
        }
    }

    /// Splits the work by keys and time slices, and by states as well where there are few of them.
    fn tasks(&self, carried: Option<&CarriedKeys<'_>>) -> Vec<WindowTask> {
        let threads = self.spec.options.threads.get();
        let mut tasks = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let ordering = &self.orderings[group.ordering];
            let window = &group.shape.group.window;
            let slice_count = |number: usize| {
                let is_carried = || carried.is_some_and(|keys| keys.group(number, at).is_some());
                match !has_beginning(window) && is_carried() {
                    true => 1,
                    false => self.slice_count(window, ordering, ordering.key(number)),
                }
            };
            let mut chunks = ordering.chunks(TASK_ROWS, slice_count);
            if chunks.is_empty() {
                // Where every order value is NULL, no row has a key.
                chunks.push(WindowChunk { keys: 0..0, rows: 0..0 });
            }
            let state_count = group.states.len();
            let parts = (2 * threads).div_ceil(chunks.len()).clamp(1, state_count.max(1));
            let states_per_part = state_count.div_ceil(parts).max(1);
            for (number, rows) in chunks.into_iter().enumerate() {
                for first in (0..state_count).step_by(states_per_part) {
                    let states = first..(first + states_per_part).min(state_count);
                    let rows = rows.clone();
                    tasks.push(WindowTask { group: at, rows, states, with_unordered: number == 0 });
                }
            }
        }
        tasks
    }

    fn slide(&self, task: &WindowTask, carried: Option<&CarriedKeys<'_>>) -> TaskOutput {
        let group = &self.groups[task.group];
        let ordering = &self.orderings[group.ordering];
        let options = SlideOptions {
            with_unordered: task.with_unordered,
            is_interrupted: &|| self.spec.options.is_interrupted(),
            carried: &|key| Some((carried?.group(key, task.group)?, task.states.start)),
        };
        let states = (group.calls.as_slice(), &group.states[task.states.clone()]);
        slide(&group.shape.group.window, ordering, &task.rows, states, options)
    }

    /// Returns the columns of all calls, in the order of the current rows.
    fn in_main_order(&self, tasks: &[WindowTask], outputs: &[TaskOutput]) -> Result<Vec<ArrayRef>> {
        let mut columns = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let current = self.orderings[group.ordering].current();
            let of_group = || tasks.iter().zip(outputs).filter(move |(task, _)| task.group == at);
            // Where each row's result is among those of all tasks, one after the other.
            let mut positions = vec![0; current.len()];
            let mut place = 0;
            for (_, outputs) in of_group().filter(|(task, _)| task.states.start == 0) {
                for row in &outputs.rows {
                    positions[(row - current.start) as usize] = place;
                    place += 1;
                }
            }
            let positions = UInt32Array::from(positions);
            let mut parts: Vec<Vec<&dyn Array>> = vec![Vec::new(); group.calls.len()];
            for (task, outputs) in of_group() {
                let calls = group.states[task.states.clone()].iter().flat_map(|state| &state.calls);
                for (call, column) in calls.zip(&outputs.columns) {
                    parts[*call].push(column.as_ref());
                }
            }
            columns.extend(parallel::run(self.spec.options.threads, parts.len(), |call| {
                Ok(take(&concat(&parts[call])?, &positions, None)?)
            })?);
        }
        Ok(columns)
    }
}

/// Evaluates every expression of every group over all rows of the group's sources.
fn stacked_columns<'a>(
    spec: &'a WindowOperatorSpec,
    columns: &WindowColumns,
    memory: &MemoryReservation,
) -> Result<HashMap<(usize, &'a [usize]), ArrayRef>> {
    let mut stacked = HashMap::new();
    for shape in &spec.groups {
        let unions = shape.group.unions.as_slice();
        let window = shape.partition_by.iter().chain(&shape.order_by);
        for expr in window.chain(shape.arguments.iter().flatten()) {
            if !stacked.contains_key(&(*expr, unions)) {
                memory.try_grow(columns.stacked_bytes(*expr, unions))?;
                stacked.insert((*expr, unions), columns.stacked(*expr, unions)?);
            }
        }
    }
    Ok(stacked)
}

fn append_columns(
    schema: &SchemaRef,
    main: &[RecordBatch],
    results: &[ArrayRef],
) -> Result<Vec<RecordBatch>> {
    let row_count: usize = main.iter().map(RecordBatch::num_rows).sum();
    debug_assert!(
        results.iter().all(|column| column.len() == row_count),
        "each main row has a result of each call"
    );
    let mut start = 0;
    main.iter()
        .map(|batch| {
            let mut columns = batch.columns().to_vec();
            columns.extend(results.iter().map(|column| column.slice(start, batch.num_rows())));
            start += batch.num_rows();
            Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
        })
        .collect()
}
