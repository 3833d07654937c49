//! Windows over more rows than fit into the query's memory.
//!
//! The main rows are written to one file. For each set of windows with the same key, order and
//! sources, the rows of those sources are split by a hash of the key into files, with only the
//! columns that the windows read and the row number. Then each part is computed as it would be
//! in memory, by a thread beside others where it fits so: all rows of a key are in it, in their order, so that the values are the same
//! bits. A part that does not fit is computed in time slices ([`super::slices_on_disk`]). Results go
//! to files with the numbers of their main rows, and at the end the main rows are read again with
//! their results beside them.
//!
//! *Cost*: each row is written and read twice.

use std::{
    num::NonZeroUsize,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrow::{
    array::{ArrayRef, NullArray, RecordBatch, UInt64Array, new_empty_array},
    compute::concat,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::{
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
    },
    physical_plan::ExecutionPlan,
};
use futures::StreamExt;
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::Sender;

use lockstep_host::CallStep;

use super::{
    columns::WindowColumns,
    exec::{CurrentRows, OrderingKey, WindowOperatorSpec, WindowWork, ordering_key},
    slices_on_disk::in_slices,
};
use crate::{
    operator::{BATCH_ROWS, batch_bytes, compute, row_bytes, rows_in_order},
    parallel,
    spill::{
        PARTS, PartWriters, RestoredOrder, SpillWriter, SpilledRows, give_back_freed,
        is_out_of_memory,
    },
};

/// A part is computed by one thread, beside others, that has at most so many times the mean number of rows,
const SMALL_PART: u64 = 2;
/// or so many rows.
const SMALL_ROWS: u64 = 1024;

/// The windows of one key, order and list of sources.
pub(super) struct SharedOrder {
    /// The operator with only these windows.
    pub(super) spec: WindowOperatorSpec,
    /// The positions of the operator's calls that they compute.
    calls: Vec<usize>,
    /// The expressions that they read.
    pub(super) exprs: Vec<usize>,
    /// The expressions of the key.
    pub(super) key: Vec<usize>,
    /// The expression of the order.
    pub(super) order: Option<usize>,
    /// The UNION sources.
    pub(super) unions: Vec<usize>,
    /// How many such sets the operator has.
    pub(super) order_count: usize,
}

/// The rows of one part, by source: the main rows first, then the UNION sources of the windows.
struct PartFiles {
    sources: Vec<Vec<SpilledRows>>,
}

impl PartFiles {
    /// Returns the files of a part, by source.
    fn part(&self, part: usize) -> Vec<&SpilledRows> {
        self.sources.iter().map(|files| &files[part]).collect()
    }
}

/// Computes the windows part by part, and sends the main rows with their results.
pub(super) async fn on_disk(
    spec: Arc<WindowOperatorSpec>,
    schema: SchemaRef,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    context: Arc<TaskContext>,
    sender: Sender<Result<RecordBatch>>,
) -> Result<()> {
    let orders = shared_orders(&spec);
    let hasher = DefaultHashBuilder::default();
    let mut main_rows = None;
    let mut files: Vec<PartFiles> =
        orders.iter().map(|_| PartFiles { sources: Vec::new() }).collect();
    for (source, input) in inputs.iter().enumerate() {
        let reads = |order: &&SharedOrder| source == 0 || order.unions.contains(&(source - 1));
        let splits = orders.iter().filter(reads);
        let splits = splits.map(|order| SourceSplit::new(&spec, order, source, &input.schema()));
        let splits = splits.collect::<Result<Vec<_>>>()?;
        let schemas = splits.iter().map(|split| Arc::clone(&split.schema)).collect();
        let mut writers = PartWriters::new(schemas, &hasher, spec.options.threads, &context);
        let mut payload = match source {
            0 => Some(SpillWriter::new(&context.runtime_env(), &input.schema())),
            _ => None,
        };
        let mut start = 0_u64;
        let mut rows = pin!(rows_in_order(Arc::clone(input), Arc::clone(&context)));
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            spec.options.check()?;
            for (at, split) in splits.iter().enumerate() {
                let (keys, rows) = split.rows_of(&batch, start)?;
                writers.write(at, &keys, rows).await?;
            }
            start += u64::try_from(batch.num_rows()).unwrap_or(0);
            if let Some(payload) = &mut payload {
                payload.write(batch)?;
            }
        }
        let reading = files.iter_mut().zip(&orders).filter(|(_, order)| reads(order));
        for ((files, _), parts) in reading.zip(writers.finish().await?) {
            files.sources.push(parts);
        }
        if let Some(payload) = payload {
            main_rows = Some(payload.finish()?);
        }
    }
    let memory = MemoryConsumer::new("window partition").register(context.memory_pool());
    compute(move || {
        let work = DiskWork { spec: &spec, orders: &orders, files: &files, context: &context };
        let results = work.compute(&memory)?;
        let Some(main_rows) = main_rows else { return Ok(()) };
        work.send(&main_rows, &results, &schema, &sender)
    })
    .await
}

/// Returns the sets of windows that share their rows.
fn shared_orders(spec: &WindowOperatorSpec) -> Vec<SharedOrder> {
    let mut keys: Vec<OrderingKey<'_>> = Vec::new();
    let mut orders: Vec<SharedOrder> = Vec::new();
    let mut call = 0;
    for shape in &spec.groups {
        let key = ordering_key(shape);
        let at = keys.iter().position(|known| *known == key).unwrap_or_else(|| {
            keys.push(key);
            orders.push(SharedOrder {
                spec: WindowOperatorSpec { groups: Vec::new(), ..spec.clone() },
                calls: Vec::new(),
                exprs: Vec::new(),
                key: shape.partition_by.clone(),
                order: shape.order_by,
                unions: shape.group.unions.clone(),
                order_count: 0,
            });
            orders.len() - 1
        });
        let order = &mut orders[at];
        order.calls.extend(call..call + shape.arguments.len());
        call += shape.arguments.len();
        order.exprs.extend(shape.partition_by.iter().chain(&shape.order_by));
        order.exprs.extend(shape.arguments.iter().flatten());
        order.spec.groups.push(shape.clone());
    }
    let order_count = orders.len();
    for order in &mut orders {
        order.order_count = order_count;
        order.exprs.sort_unstable();
        order.exprs.dedup();
    }
    orders
}

/// Splits the rows of a source for one set of windows.
struct SourceSplit<'o> {
    spec: &'o WindowOperatorSpec,
    order: &'o SharedOrder,
    /// 0 for the main rows, else the number of the UNION source and one.
    source: usize,
    schema: SchemaRef,
}

impl<'o> SourceSplit<'o> {
    fn new(
        spec: &'o WindowOperatorSpec,
        order: &'o SharedOrder,
        source: usize,
        input: &SchemaRef,
    ) -> Result<Self> {
        let number = Field::new("__number", DataType::UInt64, false);
        let fields = order.exprs.iter().map(|expr| {
            let data_type = match source {
                0 => spec.exprs[*expr].data_type(input)?,
                _ => {
                    let position = position_in(&spec.union_exprs[source - 1], *expr);
                    input.field(position).data_type().clone()
                }
            };
            Ok(Field::new(format!("__{expr}"), data_type, true))
        });
        let fields = std::iter::once(Ok(number)).chain(fields).collect::<Result<Vec<_>>>()?;
        Ok(Self { spec, order, source, schema: Arc::new(Schema::new(fields)) })
    }

    /// Returns the keys of the rows of a batch, and the rows as they are split, with their numbers.
    fn rows_of(&self, batch: &RecordBatch, start: u64) -> Result<(Vec<ArrayRef>, RecordBatch)> {
        let rows = batch.num_rows();
        let column = |expr: &usize| -> Result<ArrayRef> {
            match self.source {
                0 => self.spec.exprs[*expr].evaluate(batch)?.into_array(rows),
                _ => {
                    let position = position_in(&self.spec.union_exprs[self.source - 1], *expr);
                    Ok(Arc::clone(batch.column(position)))
                }
            }
        };
        let key = self.order.key.iter().map(column).collect::<Result<Vec<_>>>()?;
        let numbers = start..start + u64::try_from(rows).unwrap_or(0);
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(numbers));
        let columns = std::iter::once(Ok(numbers)).chain(self.order.exprs.iter().map(column));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok((key, RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }
}

/// Returns the position of an expression among the columns of a UNION source.
fn position_in(union_exprs: &[usize], expr: usize) -> usize {
    union_exprs.binary_search(&expr).expect("a UNION source has the expressions of its windows")
}

/// The split rows of an operator.
struct DiskWork<'w> {
    spec: &'w WindowOperatorSpec,
    orders: &'w [SharedOrder],
    /// For each order its files.
    files: &'w [PartFiles],
    context: &'w Arc<TaskContext>,
}

impl DiskWork<'_> {
    /// Computes every part, and returns for each order the files of its results.
    fn compute(&self, memory: &MemoryReservation) -> Result<Vec<Vec<SpilledRows>>> {
        let total = u64::try_from(self.orders.len() * PARTS).unwrap_or(u64::MAX);
        let done = AtomicU64::new(0);
        // Relaxed: a number to look at.
        let report = || {
            let done = done.fetch_add(1, Relaxed) + 1;
            self.spec.options.report(CallStep::ComputeWindows, done, total);
        };
        let mut results = Vec::with_capacity(self.orders.len());
        for (order, files) in self.orders.iter().zip(self.files) {
            let of_small = self.compute_small_parts(order, files, &report, memory)?;
            let mut parts = Vec::with_capacity(PARTS);
            for (part, computed) in of_small.into_iter().enumerate() {
                if let Some(files) = computed {
                    parts.push(files);
                    continue;
                }
                self.spec.options.check()?;
                parts.extend(self.compute_part(order, &files.part(part), memory)?);
                memory.free();
                report();
            }
            results.push(parts);
        }
        Ok(results)
    }

    /// Computes the parts that have no more rows than most, each by one thread. Returns `None` for the other
    /// parts, and for those that did not fit into memory beside each other.
    fn compute_small_parts(
        &self,
        order: &SharedOrder,
        files: &PartFiles,
        report: &(dyn Fn() + Sync),
        memory: &MemoryReservation,
    ) -> Result<Vec<Option<SpilledRows>>> {
        let rows = |part: usize| files.part(part).iter().map(|rows| rows.row_count()).sum::<u64>();
        let mean_rows = (0..PARTS).map(rows).sum::<u64>() / PARTS as u64;
        let small_rows = (SMALL_PART * mean_rows).max(SMALL_ROWS);
        let options = &self.spec.options;
        let mut by_one_thread = order.spec.clone();
        by_one_thread.options.threads = NonZeroUsize::MIN;
        parallel::run(options.threads, PARTS, |part| {
            options.check()?;
            let files = files.part(part);
            let is_small = rows(part) <= small_rows && files[0].row_count() > 0;
            if !is_small || options.slice_rows.is_some() {
                return Ok(None);
            }
            let memory = memory.new_empty();
            match self.compute_at_once(order, &by_one_thread, &files, &memory) {
                Ok(results) => {
                    report();
                    Ok(Some(results))
                }
                Err(error) if is_out_of_memory(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Computes one part, at once where it fits into memory. Returns the files of its results.
    fn compute_part(
        &self,
        order: &SharedOrder,
        files: &[&SpilledRows],
        memory: &MemoryReservation,
    ) -> Result<Vec<SpilledRows>> {
        if files[0].row_count() == 0 {
            return Ok(Vec::new());
        }
        if self.spec.options.slice_rows.is_none() {
            match self.compute_at_once(order, &order.spec, files, memory) {
                Err(error) if is_out_of_memory(&error) => {
                    memory.free();
                    give_back_freed(self.context);
                }
                outcome => return outcome.map(|results| vec![results]),
            }
        }
        in_slices(order, files, self.context, memory)
    }

    fn compute_at_once(
        &self,
        order: &SharedOrder,
        spec: &WindowOperatorSpec,
        files: &[&SpilledRows],
        memory: &MemoryReservation,
    ) -> Result<SpilledRows> {
        let read = |rows: &&SpilledRows| read_part(rows, memory);
        let sources = files.iter().map(read).collect::<Result<Vec<_>>>()?;
        let rows = PartRows::new(order, &sources);
        drop(sources);
        let work = WindowWork::new(spec, &rows.columns, CurrentRows::of_part(0), memory)?;
        let calls = work.compute(None, memory)?;
        write_results(&rows.numbers, calls, order.order_count, self.context)
    }

    /// Sends the main rows with their results.
    fn send(
        &self,
        main_rows: &SpilledRows,
        results: &[Vec<SpilledRows>],
        schema: &SchemaRef,
        sender: &Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let mut restored =
            results.iter().map(|files| RestoredOrder::new(files)).collect::<Result<Vec<_>>>()?;
        let call_count = self.orders.iter().map(|order| order.calls.len()).sum();
        let mut start = 0;
        for batch in main_rows.read(None)? {
            let batch = batch?;
            self.spec.options.check()?;
            let mut calls: Vec<Option<ArrayRef>> = vec![None; call_count];
            for (order, restored) in self.orders.iter().zip(&mut restored) {
                let columns = restored.next_rows(start, batch.num_rows())?;
                for (call, column) in order.calls.iter().zip(columns) {
                    calls[*call] = Some(column);
                }
            }
            start += u64::try_from(batch.num_rows()).unwrap_or(0);
            let mut columns = batch.columns().to_vec();
            columns.extend(calls.into_iter().flatten());
            let whole = RecordBatch::try_new(Arc::clone(schema), columns)?;
            if sender.blocking_send(Ok(whole)).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// The rows of a part, or of a time slice of one.
pub(super) struct PartRows {
    /// The numbers of the main rows.
    pub(super) numbers: ArrayRef,
    /// The values of the expressions.
    pub(super) columns: WindowColumns,
}

impl PartRows {
    /// Takes for each source the columns of its rows, the number first; the main rows, of which
    /// there may be none, are first. A UNION source without rows may be without columns.
    pub(super) fn new(order: &SharedOrder, sources: &[Vec<ArrayRef>]) -> Self {
        let main = &sources[0];
        let numbers = Arc::clone(&main[0]);
        let (expr_count, union_count) = (order.spec.exprs.len(), order.spec.union_exprs.len());
        let nothing: ArrayRef = Arc::new(NullArray::new(0));
        let mut by_expr = vec![nothing; expr_count];
        for (expr, column) in order.exprs.iter().zip(&main[1..]) {
            by_expr[*expr] = Arc::clone(column);
        }
        let (mut unions, mut counts) =
            (vec![vec![None; expr_count]; union_count], vec![0; union_count]);
        for (union, columns) in order.sources().zip(&sources[1..]) {
            counts[union] = columns.first().map_or(0, |column| column.len());
            for (at, expr) in order.exprs.iter().enumerate() {
                let column = columns.get(at + 1).cloned();
                let empty = || new_empty_array(by_expr[*expr].data_type());
                unions[union][*expr] = Some(column.unwrap_or_else(empty));
            }
        }
        let columns = WindowColumns::evaluated(by_expr, numbers.len(), unions, counts);
        Self { numbers, columns }
    }
}

impl SharedOrder {
    /// Returns the UNION sources in the order in which their rows were split.
    pub(super) fn sources(&self) -> impl Iterator<Item = usize> {
        let mut sorted = self.unions.clone();
        sorted.sort_unstable();
        sorted.into_iter()
    }
}

/// Writes the results of some main rows, whose numbers ascend; beside those of so many sets of windows.
pub(super) fn write_results(
    numbers: &ArrayRef,
    calls: Vec<ArrayRef>,
    order_count: usize,
    context: &TaskContext,
) -> Result<SpilledRows> {
    let columns: Vec<ArrayRef> = std::iter::once(Arc::clone(numbers)).chain(calls).collect();
    let fields = columns.iter().enumerate();
    let fields = fields
        .map(|(at, column)| Field::new(at.to_string(), column.data_type().clone(), true))
        .collect::<Vec<_>>();
    let schema = Arc::new(Schema::new(fields));
    let result = RecordBatch::try_new(Arc::clone(&schema), columns)?;
    // At the end one batch of each file is in memory.
    let writer = SpillWriter::new(&context.runtime_env(), &schema);
    let mut writer = writer.of_many(order_count * PARTS, row_bytes(&schema), context);
    for start in (0..result.num_rows()).step_by(BATCH_ROWS) {
        let count = BATCH_ROWS.min(result.num_rows() - start);
        writer.write(result.slice(start, count))?;
    }
    writer.finish()
}

/// Reads the rows of a part, and counts their bytes in `memory`; no columns where it has no rows.
fn read_part(rows: &SpilledRows, memory: &MemoryReservation) -> Result<Vec<ArrayRef>> {
    let mut batches = Vec::new();
    for batch in rows.read(None)? {
        let batch = batch?;
        memory.try_grow(batch_bytes(&batch))?;
        batches.push(batch);
    }
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    // The rows are there twice until their columns are whole.
    let copied = memory.new_empty();
    if batches.len() > 1 {
        copied.try_grow(batches.iter().map(batch_bytes).sum())?;
    }
    (0..first.num_columns())
        .map(|at| {
            let parts: Vec<_> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            Ok(concat(&parts)?)
        })
        .collect()
}
