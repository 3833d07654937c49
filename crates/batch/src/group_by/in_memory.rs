//! GROUP BY with the states of all groups in memory, by several threads.
//!
//! The rows are split by a hash of their group's key, so that a thread has all rows of its groups, in their
//! order. It counts rows as well: the number of the first row of each group is one more aggregate, by which
//! the groups of all threads are merged. A few rows are grouped by one thread.
//!
//! *Cost*: besides grouping, a hash and a copy of each row, and a merge of the groups.

use std::{error::Error, fmt, hash::BuildHasher, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array, UInt64Array},
    compute::{interleave, take_record_batch},
    datatypes::{SchemaRef, UInt64Type},
};
use datafusion::{
    common::{internal_datafusion_err, internal_err, runtime::SpawnedTask},
    error::{DataFusionError, Result},
    execution::{
        TaskContext,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        runtime_env::RuntimeEnvBuilder,
    },
    physical_expr::PhysicalExpr,
    physical_plan::{
        ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, SendableRecordBatchStream,
        aggregates::AggregateExec, common::spawn_buffered,
    },
};
use futures::{Stream, StreamExt, future, stream};
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::{numbered_groups, numbered_last, with_number};
use crate::{
    key_index::for_each_key,
    operator::{BATCH_ROWS, BATCHES_AHEAD, OperatorOptions, RowStream, given, with_runtime},
};

/// Groups the rows of an input, and sends the groups. The error for too little memory comes before the first
/// group, since groups are passed on when all rows were read.
pub(super) async fn in_memory(
    aggregate: &AggregateExec,
    input: &Arc<dyn ExecutionPlan>,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
    sender: &Sender<Result<RecordBatch>>,
) -> Result<()> {
    options.check_in_memory()?;
    let mut rows = input.execute(0, Arc::clone(context))?;
    let (mut first, mut count) = (Vec::new(), 0);
    let threads = options.threads.get();
    while threads > 1 && count < options.parallel_rows_min {
        let Some(batch) = rows.next().await.transpose()? else { break };
        count += batch.num_rows();
        first.push(batch);
    }
    let rows: RowStream = stream::iter(first.into_iter().map(Ok)).chain(rows).boxed();
    let context = without_disk(context)?;
    if threads > 1 && count >= options.parallel_rows_min {
        return in_parallel(aggregate, rows, (options, &context), sender).await;
    }
    let recomputed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let groups: Arc<dyn ExecutionPlan> = Arc::new(aggregate.clone());
    let groups = groups.replace_children(vec![given(rows, &input.schema())?], recomputed)?;
    let mut groups = groups.execute(0, context)?;
    while let Some(batch) = groups.next().await {
        if sender.send(Ok(batch?)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Returns the context of operators that may not use the disk.
fn without_disk(context: &TaskContext) -> Result<Arc<TaskContext>> {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env())
        .with_disk_manager_builder(disk)
        .build_arc()?;
    Ok(Arc::new(with_runtime(context, context.session_config().clone(), runtime)))
}

/// A message to a thread that groups: rows, or that there are no more.
type PartMessage = Option<RecordBatch>;

/// Groups the rows on as many threads as there are, and sends the groups in the order of their first rows.
async fn in_parallel(
    aggregate: &AggregateExec,
    rows: RowStream,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
    sender: &Sender<Result<RecordBatch>>,
) -> Result<()> {
    let schema = numbered_last(&aggregate.input().schema());
    let (mut parts, mut senders) = (Vec::new(), Vec::new());
    for _ in 0..options.threads.get() {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let input = given(until_the_end(receiver).boxed(), &schema)?;
        let groups = numbered_groups(aggregate, input, &schema)?;
        let groups = spawn_buffered(groups.execute(0, Arc::clone(context))?, BATCHES_AHEAD);
        senders.push(sender);
        parts.push(NumberedGroups { groups, current: None });
    }
    let split = RowSplit {
        keys: aggregate.group_expr().input_exprs(),
        schema,
        senders,
        options: options.clone(),
    };
    let split = SpawnedTask::spawn(split.run(rows));
    let merged = merge(parts, &aggregate.schema(), sender).await;
    match (merged, split.join_unwind().await) {
        // What ended the rows is the reason for what ended the groups.
        (Err(_), Ok(Err(error))) => Err(error),
        (merged, Ok(_)) => merged,
        (_, Err(_)) => internal_err!("the rows of a GROUP BY were not split"),
    }
}

/// Returns the rows of the messages; fails where the sender has gone before the end.
fn until_the_end(
    mut receiver: Receiver<PartMessage>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut is_over = false;
    stream::poll_fn(move |cx| {
        if is_over {
            return std::task::Poll::Ready(None);
        }
        receiver.poll_recv(cx).map(|message| {
            is_over = !matches!(message, Some(Some(_)));
            match message {
                Some(rows) => rows.map(Ok),
                None => Some(Err(DataFusionError::External(Box::new(RowsEndedEarly)))),
            }
        })
    })
}

/// The error of a part whose rows ended before their end, because another part or the input has failed.
#[derive(Debug)]
struct RowsEndedEarly;

impl RowsEndedEarly {
    fn is(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::External(error) if error.is::<Self>())
    }
}

impl fmt::Display for RowsEndedEarly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rows of a GROUP BY ended early")
    }
}

impl Error for RowsEndedEarly {}

/// The task that splits the rows.
struct RowSplit {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    senders: Vec<Sender<PartMessage>>,
    options: OperatorOptions,
}

impl RowSplit {
    /// Sends each row to the part of its group, and its end to each part, unless a part has failed.
    async fn run(self, mut rows: RowStream) -> Result<()> {
        let hasher = DefaultHashBuilder::default();
        let part_count = u64::try_from(self.senders.len()).unwrap_or(1);
        let mut start = 0_u64;
        while let Some(batch) = rows.next().await {
            let batch = with_number(&batch?, start, &self.schema)?;
            self.options.check()?;
            let count = batch.num_rows();
            start += u64::try_from(count).unwrap_or(0);
            let values = self.keys.iter().map(|key| key.evaluate(&batch)?.into_array(count));
            let mut parts: Vec<Vec<u32>> = vec![Vec::new(); self.senders.len()];
            let mut row = 0;
            for_each_key(&values.collect::<Result<Vec<_>>>()?, count, |key| {
                let part = hasher.hash_one(key) % part_count;
                parts[usize::try_from(part).expect("a part's number is small")].push(row);
                row += 1;
            });
            for (sender, rows) in self.senders.iter().zip(parts) {
                let rows = take_record_batch(&batch, &UInt32Array::from(rows))?;
                if rows.num_rows() > 0 && sender.send(Some(rows)).await.is_err() {
                    return Ok(());
                }
            }
        }
        for sender in &self.senders {
            if sender.send(None).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The groups of a thread, with the numbers of their first rows in the last column.
struct NumberedGroups {
    groups: SendableRecordBatchStream,
    /// The batch that is read, its numbers, and the first group of it that was not passed on.
    current: Option<(RecordBatch, UInt64Array, usize)>,
}

impl NumberedGroups {
    async fn read(&mut self) -> Result<()> {
        self.current = None;
        while let Some(batch) = self.groups.next().await.transpose()? {
            if batch.num_rows() > 0 {
                let numbers = batch.columns().last();
                let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>());
                let numbers =
                    numbers.ok_or_else(|| internal_datafusion_err!("groups have numbers"))?;
                self.current = Some((batch.clone(), numbers.clone(), 0));
                break;
            }
        }
        Ok(())
    }

    fn next_number(&self) -> Option<u64> {
        self.current.as_ref().map(|(_, numbers, row)| numbers.value(*row))
    }
}

/// Reads the first groups of each part, for which it has read all rows. Where a part has failed the others
/// fail for it, so the error is that of the part which was the first.
async fn read_all(parts: &mut [NumberedGroups]) -> Result<()> {
    let outcomes = future::join_all(parts.iter_mut().map(NumberedGroups::read)).await;
    let (followers, causes): (Vec<_>, Vec<_>) =
        outcomes.into_iter().filter_map(Result::err).partition(RowsEndedEarly::is);
    causes.into_iter().chain(followers).next().map_or(Ok(()), Err)
}

/// Sends the groups of all parts in the order of their numbers.
async fn merge(
    mut parts: Vec<NumberedGroups>,
    schema: &SchemaRef,
    sender: &Sender<Result<RecordBatch>>,
) -> Result<()> {
    read_all(&mut parts).await?;
    loop {
        let mut pieces: Vec<RecordBatch> = Vec::new();
        // For each part the piece that its current batch is.
        let mut piece_of: Vec<Option<usize>> = vec![None; parts.len()];
        let mut positions: Vec<(usize, usize)> = Vec::with_capacity(BATCH_ROWS);
        while positions.len() < BATCH_ROWS {
            let numbers = parts.iter().enumerate();
            let least = numbers.filter_map(|(at, part)| Some((part.next_number()?, at))).min();
            let Some((_, at)) = least else { break };
            let Some((batch, _, row)) = &mut parts[at].current else { break };
            let piece = *piece_of[at].get_or_insert_with(|| {
                pieces.push(batch.clone());
                pieces.len() - 1
            });
            positions.push((piece, *row));
            *row += 1;
            if *row == batch.num_rows() {
                piece_of[at] = None;
                parts[at].read().await?;
            }
        }
        if positions.is_empty() {
            return Ok(());
        }
        let column = |at: usize| -> Result<ArrayRef> {
            let parts: Vec<&dyn Array> =
                pieces.iter().map(|piece| piece.column(at).as_ref()).collect();
            Ok(interleave(&parts, &positions)?)
        };
        let columns = (0..schema.fields().len()).map(column).collect::<Result<_>>()?;
        let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if sender.send(Ok(batch)).await.is_err() {
            return Ok(());
        }
    }
}
