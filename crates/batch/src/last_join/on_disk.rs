//! LAST JOIN over more rows than fit into the query's memory.
//!
//! Both sides are split by a hash of the key into files, the left rows with their numbers; one part
//! at a time is joined as it would be in memory, and its rows go to a file, from which they come
//! back in the order of the left rows.
//!
//! *Cost*: each row is written and read once, each joined row as well. The memory that is needed is
//! that of the right rows of the largest part, which is never less than that of the most frequent
//! key.

use std::{hash::BuildHasher, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array},
    compute::concat_batches,
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::{
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryReservation},
        runtime_env::RuntimeEnv,
    },
    physical_expr::PhysicalExpr,
    physical_plan::{ExecutionPlan, ExecutionPlanProperties},
};
use futures::StreamExt;
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::Sender;

use lockstep_host::CallStep;

use super::{LastJoinSpec, RightRows, evaluate_all};
use crate::{
    key_index::for_each_key,
    operator::{BATCH_ROWS, batch_bytes, compute},
    spill::{PARTS, PartWriters, RestoredOrder, SpillWriter, SpilledRows},
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
    let memory = MemoryConsumer::new("LAST JOIN part").register(context.memory_pool());
    let env = context.runtime_env();
    compute(move || {
        let joined = join_parts(&spec, &left, &right, &memory, &env)?;
        let mut restored = RestoredOrder::new(&joined)?;
        let mut start = 0;
        while start < left.row_count {
            spec.options.check()?;
            let count = usize::try_from(left.row_count - start).unwrap_or(usize::MAX);
            let count = count.min(BATCH_ROWS);
            let columns = restored.next_rows(start, count)?;
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let schema = Arc::clone(&spec.pair_schema);
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
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
    let mut writers = PartWriters::new(&context.runtime_env(), &schema);
    let mut start = 0_u64;
    for partition in 0..input.output_partitioning().partition_count() {
        let mut stream = input.execute(partition, Arc::clone(context))?;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            spec.options.check()?;
            let end = start + u64::try_from(batch.num_rows()).unwrap_or(0);
            let mut parts = Vec::with_capacity(batch.num_rows());
            for_each_key(&evaluate_all(keys, &batch)?, batch.num_rows(), |key| {
                let part = hasher.hash_one(key) % (PARTS as u64);
                parts.push(u32::try_from(part).expect("a part's number is small"));
            });
            let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(start..end));
            writers.write(&with_numbers(&schema, &batch, numbers)?, &parts)?;
            start = end;
        }
    }
    Ok(SplitSide { parts: writers.finish()?, schema: input.schema(), row_count: start })
}

/// Joins every part, and returns the files of the joined rows with the numbers of the left ones.
fn join_parts(
    spec: &LastJoinSpec,
    left: &SplitSide,
    right: &SplitSide,
    memory: &MemoryReservation,
    env: &Arc<RuntimeEnv>,
) -> Result<Vec<SpilledRows>> {
    debug_assert_eq!(left.parts.len(), right.parts.len(), "both sides are split alike");
    let schema = numbered(&spec.pair_schema);
    let total = u64::try_from(left.parts.len()).unwrap_or(u64::MAX);
    let mut joined = Vec::with_capacity(left.parts.len());
    for (done, (left_rows, right_rows)) in (1..).zip(left.parts.iter().zip(&right.parts)) {
        let mut batches = Vec::new();
        for batch in right_rows.read(None)? {
            let batch = without_number(&right.schema, &batch?)?;
            memory.try_grow(batch_bytes(&batch))?;
            batches.push(batch);
        }
        let right_rows = RightRows::new(spec, concat_batches(&right.schema, &batches)?)?;
        drop(batches);
        let mut writer = SpillWriter::new(env, &schema);
        for batch in left_rows.read(None)? {
            spec.options.check()?;
            let batch = batch?;
            let rows = without_number(&left.schema, &batch)?;
            let matches = right_rows.find_matches(spec, &rows)?;
            let columns = rows.columns().to_vec();
            let pairs = right_rows.pair(&spec.pair_schema, columns, &matches)?;
            writer.write(with_numbers(&schema, &pairs, Arc::clone(batch.column(0)))?)?;
        }
        joined.push(writer.finish()?);
        memory.free();
        spec.options.report(CallStep::JoinRows, done, total);
    }
    Ok(joined)
}

/// Returns rows without the numbers before them.
fn without_number(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns()[1..].to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
