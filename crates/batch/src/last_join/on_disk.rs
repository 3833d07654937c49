//! LAST JOIN over more rows than fit into the query's memory.
//!
//! Both sides are split by a hash of the key into files, the left rows with their numbers; each
//! part is joined as it would be in memory, by a thread beside others where its right rows fit so, and its rows
//! go to a file, from which they come back in the order of the left rows.
//!
//! Where the right rows of a part do not fit into memory, the left ones are joined with as many of them
//! at a time as do: the newest right row of a left row is the newest of those that are found among
//! each of them.
//!
//! *Cost*: each row is written and read once, each joined row as well; once more for each further time
//! that the right rows of a part have to be read in.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions,
        UInt64Array,
    },
    compute::{concat_batches, kernels::zip::zip, or},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use datafusion::{
    common::internal_err,
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    physical_expr::PhysicalExpr,
    physical_plan::ExecutionPlan,
};
use futures::StreamExt;
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::Sender;

use lockstep_host::CallStep;

use super::{LastJoinSpec, RightRows, evaluate, evaluate_all, order_values, take_columns};
use crate::{
    operator::{BATCH_ROWS, batch_bytes, compute, row_bytes, rows_in_order},
    parallel,
    spill::{PartWriters, RestoredOrder, SpillReader, SpillWriter, SpilledRows, is_out_of_memory},
};

/// One side of a join, split by its keys.
struct SplitSide {
    parts: Vec<SpilledRows>,
    schema: SchemaRef,
    row_count: u64,
}

/// Joins part by part, and sends the rows in the order of the left ones.
pub(super) async fn on_disk(
    spec: Arc<LastJoinSpec>,
    inputs: [Arc<dyn ExecutionPlan>; 2],
    context: Arc<TaskContext>,
    sender: Sender<Result<RecordBatch>>,
) -> Result<()> {
    let hasher = DefaultHashBuilder::default();
    let [left, right] = &inputs;
    let right = split(&spec, right, (&spec.right_keys, &hasher), &context).await?;
    let left = split(&spec, left, (&spec.left_keys, &hasher), &context).await?;
    let memory = MemoryConsumer::new("LAST JOIN partition").register(context.memory_pool());
    let env = context.runtime_env();
    compute(move || {
        let joined = DiskJoin::new(&spec, [&left, &right], &memory, &env).join_parts()?;
        let mut restored = RestoredOrder::new(&joined)?;
        let mut start = 0;
        while start < left.row_count {
            spec.options.check()?;
            let count = usize::try_from(left.row_count - start).unwrap_or(usize::MAX);
            let count = count.min(BATCH_ROWS);
            let columns = restored.next_rows(start, count)?;
            let batch = record_batch(&spec.pair_schema, columns, count)?;
            if sender.blocking_send(Ok(batch)).is_err() {
                break;
            }
            start += u64::try_from(count).unwrap_or(u64::MAX);
        }
        Ok(())
    })
    .await
}

/// Returns the schema of rows with their numbers before them.
fn numbered(schema: &SchemaRef) -> SchemaRef {
    let number = Arc::new(Field::new("__number", DataType::UInt64, false));
    let fields = std::iter::once(number).chain(schema.fields().iter().cloned());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns rows with their numbers before them.
fn with_numbers(schema: &SchemaRef, batch: &RecordBatch, numbers: ArrayRef) -> Result<RecordBatch> {
    let columns = std::iter::once(numbers).chain(batch.columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Splits the rows of an input by a hash of their keys.
async fn split(
    spec: &LastJoinSpec,
    input: &Arc<dyn ExecutionPlan>,
    (keys, hasher): (&[Arc<dyn PhysicalExpr>], &DefaultHashBuilder),
    context: &Arc<TaskContext>,
) -> Result<SplitSide> {
    let schema = numbered(&input.schema());
    let threads = spec.options.threads;
    let mut writers = PartWriters::new(vec![Arc::clone(&schema)], hasher, threads, context);
    let mut start = 0_u64;
    let mut rows = pin!(rows_in_order(Arc::clone(input), Arc::clone(context)));
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        spec.options.check()?;
        let end = start + u64::try_from(batch.num_rows()).unwrap_or(0);
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(start..end));
        let keys = evaluate_all(keys, &batch)?;
        writers.write(0, &keys, with_numbers(&schema, &batch, numbers)?).await?;
        start = end;
    }
    let parts = writers.finish().await?.swap_remove(0);
    Ok(SplitSide { parts, schema: input.schema(), row_count: start })
}

/// The two sides of a join, split alike.
struct DiskJoin<'w> {
    spec: &'w LastJoinSpec,
    left: &'w SplitSide,
    right: &'w SplitSide,
    /// The joined rows with the numbers of the left ones.
    joined_schema: SchemaRef,
    /// The same, and for each row what its right row is compared by: [`FoundRows`].
    found_schema: SchemaRef,
    memory: &'w MemoryReservation,
    env: &'w Arc<RuntimeEnv>,
}

impl<'w> DiskJoin<'w> {
    fn new(
        spec: &'w LastJoinSpec,
        [left, right]: [&'w SplitSide; 2],
        memory: &'w MemoryReservation,
        env: &'w Arc<RuntimeEnv>,
    ) -> Self {
        debug_assert_eq!(left.parts.len(), right.parts.len(), "both sides are split alike");
        let joined_schema = numbered(&spec.pair_schema);
        let compared = [
            Field::new("__order", DataType::Int64, true),
            Field::new("__is_found", DataType::Boolean, false),
        ];
        let fields = joined_schema.fields().iter().cloned();
        let fields = fields.chain(compared.into_iter().map(Arc::new)).collect::<Vec<_>>();
        let found_schema = Arc::new(Schema::new(fields));
        Self { spec, left, right, joined_schema, found_schema, memory, env }
    }

    /// Joins every part, and returns the files of the joined rows with the numbers of the left ones. Parts
    /// whose right rows fit into memory beside those of others are joined by one thread each.
    fn join_parts(&self) -> Result<Vec<SpilledRows>> {
        let options = &self.spec.options;
        let parts: Vec<_> = self.left.parts.iter().zip(&self.right.parts).collect();
        let total = u64::try_from(parts.len()).unwrap_or(u64::MAX);
        let done = AtomicU64::new(0);
        // Relaxed: a number to look at.
        let report = || options.report(CallStep::JoinRows, done.fetch_add(1, Relaxed) + 1, total);
        let beside_others = parallel::run(options.threads, parts.len(), |at| {
            options.check()?;
            let (left_rows, right_rows) = parts[at];
            if !self.fits_beside_others(right_rows) {
                return Ok(None);
            }
            match self.join_part(left_rows, right_rows, &self.memory.new_empty()) {
                Err(error) if is_out_of_memory(&error) => Ok(None),
                Err(error) => Err(error),
                Ok(joined) => {
                    report();
                    Ok(Some(joined))
                }
            }
        })?;
        let rest = |((left_rows, right_rows), joined): ((&_, &_), Option<SpilledRows>)| match joined
        {
            Some(joined) => Ok(joined),
            None => {
                let joined = self.join_part(left_rows, right_rows, self.memory)?;
                report();
                Ok(joined)
            }
        };
        parts.into_iter().zip(beside_others).map(rest).collect()
    }

    /// Returns whether some right rows take at most about half of what each thread may.
    fn fits_beside_others(&self, right_rows: &SpilledRows) -> bool {
        let MemoryLimit::Finite(limit) = self.env.memory_pool.memory_limit() else { return true };
        let rows = usize::try_from(right_rows.row_count()).unwrap_or(usize::MAX);
        let of_row = 2 * row_bytes(&self.right.schema) + BYTES_PER_RIGHT_ROW;
        rows.saturating_mul(of_row) <= limit / (2 * self.spec.options.threads.get())
    }

    /// Joins a part with as many of its right rows at a time as fit into memory. Later ones replace what
    /// was found among the earlier ones, unless that is newer.
    fn join_part(
        &self,
        left_rows: &SpilledRows,
        right_rows: &SpilledRows,
        memory: &MemoryReservation,
    ) -> Result<SpilledRows> {
        let mut chunks = RightChunks::new(self, right_rows, memory)?;
        let mut found: Option<SpilledRows> = None;
        loop {
            let chunk = RightRows::new(self.spec, chunks.next_chunk()?)?;
            let is_last = chunks.is_at_end()?;
            let left_rows = found.as_ref().map_or(LeftRows::Fresh(left_rows), LeftRows::Found);
            let joined = self.join_chunk(left_rows, &chunk, is_last)?;
            drop(chunk);
            memory.free();
            if is_last {
                return Ok(joined);
            }
            found = Some(joined);
        }
    }

    /// Joins left rows, with what was found so far, with some right rows.
    fn join_chunk(
        &self,
        left_rows: LeftRows<'_>,
        right: &RightRows,
        is_last: bool,
    ) -> Result<SpilledRows> {
        let schema = if is_last { &self.joined_schema } else { &self.found_schema };
        let left_end = 1 + self.left.schema.fields().len();
        let mut writer = SpillWriter::new(self.env, schema);
        let (LeftRows::Fresh(rows) | LeftRows::Found(rows)) = left_rows;
        for batch in rows.read(None)? {
            self.spec.options.check()?;
            let batch = batch?;
            let left = batch.columns()[1..left_end].to_vec();
            let left = record_batch(&self.left.schema, left, batch.num_rows())?;
            let mut found = FoundRows::find(self.spec, &left, right, &self.right.schema)?;
            if let LeftRows::Found(_) = left_rows {
                found = found.or_newer(&FoundRows::read(&batch.columns()[left_end..])?)?;
            }
            let mut columns = batch.columns()[..left_end].to_vec();
            columns.extend(found.columns);
            if !is_last {
                columns.extend([found.orders as ArrayRef, found.is_found as ArrayRef]);
            }
            writer.write(record_batch(schema, columns, batch.num_rows())?)?;
        }
        writer.finish()
    }
}

/// The left rows of a part, with their numbers.
#[derive(Clone, Copy)]
enum LeftRows<'r> {
    /// As they were split.
    Fresh(&'r SpilledRows),
    /// With what was found among the right rows so far.
    Found(&'r SpilledRows),
}

/// The newest right row of each of some left rows among the right rows so far.
struct FoundRows {
    /// The right columns; NULL where there is no row.
    columns: Vec<ArrayRef>,
    /// The order values of the right rows.
    orders: Arc<Int64Array>,
    is_found: Arc<BooleanArray>,
}

impl FoundRows {
    fn find(
        spec: &LastJoinSpec,
        left: &RecordBatch,
        right: &RightRows,
        right_schema: &SchemaRef,
    ) -> Result<Self> {
        let matches = right.find_matches(spec, left)?;
        let columns = take_columns(&right.rows, &matches)?;
        let orders = match &spec.order_by {
            Some(order_by) => {
                let rows = record_batch(right_schema, columns.clone(), left.num_rows())?;
                order_values(&evaluate(order_by, &rows)?)
            }
            None => vec![Some(0); left.num_rows()],
        };
        let is_found = BooleanArray::from_iter(matches.iter().map(|row| Some(row.is_some())));
        Ok(Self { columns, orders: Arc::new(orders.into()), is_found: Arc::new(is_found) })
    }

    /// Reads what was written: the right columns, the order values, and whether there is a row.
    fn read(columns: &[ArrayRef]) -> Result<Self> {
        let (columns, compared) = columns.split_at(columns.len().saturating_sub(2));
        let [orders, is_found] = compared else {
            return internal_err!("what was found has its order values");
        };
        let orders = Arc::new(orders.as_primitive::<Int64Type>().clone());
        let is_found = Arc::new(is_found.as_boolean().clone());
        Ok(Self { columns: columns.to_vec(), orders, is_found })
    }

    /// Returns for each left row the newer one of the two right rows: this one, which arrived later, where
    /// they are equally new. NULL is older than every value.
    fn or_newer(self, earlier: &Self) -> Result<Self> {
        let order = |of: &Self, row: usize| of.orders.is_valid(row).then(|| of.orders.value(row));
        let is_kept = |row: usize| {
            self.is_found.value(row)
                && (!earlier.is_found.value(row) || order(&self, row) >= order(earlier, row))
        };
        let kept: BooleanArray = (0..self.is_found.len()).map(|row| Some(is_kept(row))).collect();
        let chosen = |own: &dyn Array, other: &dyn Array| zip(&kept, &own, &other);
        let columns = self.columns.iter().zip(&earlier.columns);
        Ok(Self {
            columns: columns.map(|(own, other)| Ok(chosen(own, other)?)).collect::<Result<_>>()?,
            orders: Arc::new(chosen(&*self.orders, &*earlier.orders)?.as_primitive().clone()),
            is_found: Arc::new(or(&self.is_found, &earlier.is_found)?),
        })
    }
}

/// Beside its columns, which are copied once, a right row takes about so many bytes: its key, its order
/// value and its number.
const BYTES_PER_RIGHT_ROW: usize = 64;

/// The right rows of a part, in their order.
struct RightChunks<'w> {
    join: &'w DiskJoin<'w>,
    memory: &'w MemoryReservation,
    rows: SpillReader,
    /// What was read and is not in a chunk.
    next: Option<RecordBatch>,
}

impl<'w> RightChunks<'w> {
    fn new(
        join: &'w DiskJoin<'w>,
        rows: &SpilledRows,
        memory: &'w MemoryReservation,
    ) -> Result<Self> {
        Ok(Self { join, memory, rows: rows.read(None)?, next: None })
    }

    /// Returns whether there are no more rows.
    fn is_at_end(&mut self) -> Result<bool> {
        if self.next.is_none() {
            self.next = self.rows.next().transpose()?;
        }
        Ok(self.next.is_none())
    }

    /// Returns as many rows as fit into memory.
    fn next_chunk(&mut self) -> Result<RecordBatch> {
        let schema = &self.join.right.schema;
        let rows_max = self.join.spec.options.slice_rows.unwrap_or(usize::MAX);
        let (mut chunk, mut rows) = (Vec::new(), 0);
        while rows < rows_max && !self.is_at_end()? {
            let Some(batch) = self.next.take() else { break };
            let count = batch.num_rows().min(rows_max - rows);
            let taken = without_number(schema, &batch.slice(0, count))?;
            let bytes = 2 * batch_bytes(&taken) + count * BYTES_PER_RIGHT_ROW;
            if let Err(error) = self.memory.try_grow(bytes) {
                if chunk.is_empty() {
                    return Err(error);
                }
                self.next = Some(batch);
                break;
            }
            rows += count;
            chunk.push(taken);
            let rest = batch.num_rows() - count;
            self.next = (rest > 0).then(|| batch.slice(count, rest));
        }
        Ok(concat_batches(schema, &chunk)?)
    }
}

/// Makes a batch, which may be without columns.
fn record_batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Returns rows without the numbers before them.
fn without_number(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    record_batch(schema, batch.columns()[1..].to_vec(), batch.num_rows())
}
