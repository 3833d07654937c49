//! GROUP BY of more groups than fit into the query's memory.
//!
//! The rows are split by a hash of the group's key into files, with their numbers. One part at a time is
//! grouped, with the least number of its rows as one more aggregate; its groups go to a file in the order of
//! that number, and come back in the order of the first rows of all groups.
//!
//! *Cost*: each row is written and read once, each group as well. The memory that is needed is that of the
//! states of one part, which has about one in 64 of the groups.

use std::{fmt, sync::Arc};

use arrow::{
    array::RecordBatch,
    compute::{concat_batches, sort_to_indices, take_record_batch},
    datatypes::SchemaRef,
};
use datafusion::{
    common::stats::Precision,
    error::Result,
    execution::TaskContext,
    physical_expr::PhysicalExpr,
    physical_plan::{ExecutionPlan, aggregates::AggregateExec},
};
use futures::StreamExt;
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::Sender;

use super::{NUMBER, numbered_groups, numbered_last, with_number};
use crate::{
    operator::{BATCH_ROWS, OperatorOptions, compute},
    source::{BlockingScan, SourceBatches, SourceExec},
    spill::{PartWriters, RestoredOrder, SpillWriter, SpilledRows},
};

/// Groups part by part, and sends the groups in the order of their first rows.
pub(super) async fn on_disk(
    aggregate: &AggregateExec,
    input: &Arc<dyn ExecutionPlan>,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
    sender: &Sender<Result<RecordBatch>>,
) -> Result<()> {
    let schema = numbered_last(&input.schema());
    let parts = split(aggregate, input, &schema, (options, context)).await?;
    let mut grouped = Vec::with_capacity(parts.len());
    for part in parts {
        options.check()?;
        if part.row_count() > 0 {
            grouped.push(group_part(aggregate, part, &schema, (options, context)).await?);
        }
    }
    let (options, schema, sender) = (options.clone(), aggregate.schema(), sender.clone());
    compute(move || {
        let mut restored = RestoredOrder::new(&grouped)?;
        while let Some(columns) = restored.next_numbered(BATCH_ROWS)? {
            options.check()?;
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns)?;
            if sender.blocking_send(Ok(batch)).is_err() {
                break;
            }
        }
        Ok(())
    })
    .await
}

/// Splits the rows of the input by a hash of their group's key.
async fn split(
    aggregate: &AggregateExec,
    input: &Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
) -> Result<Vec<SpilledRows>> {
    let hasher = DefaultHashBuilder::default();
    let keys: Vec<Arc<dyn PhysicalExpr>> = aggregate.group_expr().input_exprs();
    debug_assert!(!keys.is_empty(), "there is a key to group by");
    let threads = options.threads;
    let mut writers = PartWriters::new(vec![Arc::clone(schema)], &hasher, threads, context);
    let mut stream = input.execute(0, Arc::clone(context))?;
    let mut start = 0_u64;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        options.check()?;
        let count = batch.num_rows();
        let values = keys.iter().map(|key| key.evaluate(&batch)?.into_array(count));
        let values = values.collect::<Result<Vec<_>>>()?;
        writers.write(0, &values, with_number(&batch, start, schema)?).await?;
        start += u64::try_from(count).unwrap_or(0);
    }
    Ok(writers.finish().await?.swap_remove(0))
}

/// Groups the rows of a part. The groups are written with the numbers of their first rows before them, in the
/// order of these.
async fn group_part(
    aggregate: &AggregateExec,
    rows: SpilledRows,
    schema: &SchemaRef,
    (options, context): (&OperatorOptions, &Arc<TaskContext>),
) -> Result<SpilledRows> {
    let scan = Arc::new(PartScan { rows });
    let source = SourceExec::new(scan, Arc::clone(schema), options.context.clone());
    let part = numbered_groups(aggregate, Arc::new(source), schema)?;
    let mut stream = part.execute(0, Arc::clone(context))?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch?);
    }
    let env = context.runtime_env();
    compute(move || {
        let all = concat_batches(&part.schema(), &batches)?;
        drop(batches);
        let last = all.num_columns() - 1;
        debug_assert_eq!(
            all.schema().field(last).name(),
            NUMBER,
            "the first row is the last column"
        );
        let order = sort_to_indices(all.column(last), None, None)?;
        let columns: Vec<usize> = std::iter::once(last).chain(0..last).collect();
        let sorted = take_record_batch(&all.project(&columns)?, &order)?;
        let mut writer = SpillWriter::new(&env, &sorted.schema());
        for start in (0..sorted.num_rows()).step_by(BATCH_ROWS) {
            writer.write(sorted.slice(start, BATCH_ROWS.min(sorted.num_rows() - start)))?;
        }
        writer.finish()
    })
    .await
}

/// The rows of a part.
#[derive(Debug)]
struct PartScan {
    rows: SpilledRows,
}

impl fmt::Display for PartScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a partition of the rows, from disk")
    }
}

impl BlockingScan for PartScan {
    fn open(&self) -> Result<SourceBatches> {
        Ok(Box::new(self.rows.read(None)?))
    }

    fn limit(&self) -> Option<usize> {
        None
    }

    fn row_count(&self) -> Precision<usize> {
        self.rows.precise_count()
    }
}
