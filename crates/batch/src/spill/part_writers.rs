//! Rows that are split by a hash of their keys into files.
//!
//! An operator may split its rows several times, by other keys each time. Its own task finds the part of each
//! row; a few other threads share the parts of all splits, and take, compress and write their rows.
//!
//! *Cost*: about three batches, which the threads share, beside the rows that wait in the writers.

use std::{hash::BuildHasher as _, num::NonZeroUsize, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::SchemaRef,
};
use datafusion::{
    common::{internal_err, runtime::SpawnedTask},
    error::{DataFusionError, Result},
    execution::TaskContext,
};
use hashbrown::DefaultHashBuilder;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::{SpillWriter, SpilledRows};
use crate::{key_index::for_each_key, operator::row_bytes};

/// The parts into which rows are split by their keys.
pub(crate) const PARTS: usize = 64;
/// The most threads that write: of more, each would have little to do.
const WRITERS_MAX: usize = 8;
/// The most batches that wait for a thread.
const WAITING_BATCHES: usize = 1;

/// Rows of a split.
struct SplitBatch {
    split: usize,
    batch: RecordBatch,
    /// For each part the rows that are of it.
    rows: Vec<UInt32Array>,
}

/// A thread that writes some parts of each split.
struct WritingTask {
    batches: Sender<Arc<SplitBatch>>,
    task: SpawnedTask<Result<Vec<Vec<SpilledRows>>>>,
}

/// Writers that split rows into [`PARTS`] files, each of several splits of an operator.
pub(crate) struct PartWriters {
    schemas: Vec<SchemaRef>,
    hasher: DefaultHashBuilder,
    threads: NonZeroUsize,
    context: Arc<TaskContext>,
    /// Started with the first rows.
    tasks: Vec<WritingTask>,
}

impl PartWriters {
    /// Makes the writers of the rows of each split. Rows of equal keys are in parts of the same number wherever
    /// the hasher is the same.
    pub(crate) fn new(
        schemas: Vec<SchemaRef>,
        hasher: &DefaultHashBuilder,
        threads: NonZeroUsize,
        context: &Arc<TaskContext>,
    ) -> Self {
        let (hasher, context) = (hasher.clone(), Arc::clone(context));
        Self { schemas, hasher, threads, context, tasks: Vec::new() }
    }

    /// Adds rows to a split, each to the part of its key.
    pub(crate) async fn write(
        &mut self,
        split: usize,
        keys: &[ArrayRef],
        batch: RecordBatch,
    ) -> Result<()> {
        debug_assert_eq!(batch.schema(), self.schemas[split], "the columns of the split");
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        let mut row = 0;
        for_each_key(keys, batch.num_rows(), |key| {
            let part = self.hasher.hash_one(key) % (PARTS as u64);
            rows[usize::try_from(part).expect("a part's number is small")].push(row);
            row += 1;
        });
        let rows = rows.into_iter().map(UInt32Array::from).collect();
        if self.tasks.is_empty() {
            self.start();
        }
        let batch = Arc::new(SplitBatch { split, batch, rows });
        let mut are_there = true;
        for task in &self.tasks {
            are_there &= task.batches.send(Arc::clone(&batch)).await.is_ok();
        }
        if are_there {
            return Ok(());
        }
        self.end().await?;
        internal_err!("a writer of parts ended early")
    }

    fn start(&mut self) {
        debug_assert!(self.tasks.is_empty(), "the writers are started once");
        let parts_each = PARTS.div_ceil(self.threads.get().min(WRITERS_MAX));
        let env = self.context.runtime_env();
        for first in (0..PARTS).step_by(parts_each) {
            let parts = first..PARTS.min(first + parts_each);
            let writer = |schema: &SchemaRef| {
                let count = self.schemas.len() * PARTS;
                SpillWriter::new(&env, schema).of_many(count, row_bytes(schema), &self.context)
            };
            let of_split = |schema| parts.clone().map(|_| writer(schema)).collect();
            let writers: Vec<Vec<SpillWriter>> = self.schemas.iter().map(of_split).collect();
            let (batches, receiver) = mpsc::channel(WAITING_BATCHES);
            let write = move || write_parts(receiver, first, writers);
            self.tasks.push(WritingTask { batches, task: SpawnedTask::spawn_blocking(write) });
        }
    }

    /// Completes the files. Returns those of each split, by part; none where no rows were written.
    pub(crate) async fn finish(mut self) -> Result<Vec<Vec<SpilledRows>>> {
        if self.tasks.is_empty() {
            self.start();
        }
        self.end().await
    }

    async fn end(&mut self) -> Result<Vec<Vec<SpilledRows>>> {
        let tasks = std::mem::take(&mut self.tasks);
        let tasks: Vec<_> = tasks.into_iter().map(|WritingTask { task, .. }| task).collect();
        let mut splits = vec![Vec::with_capacity(PARTS); self.schemas.len()];
        for task in tasks {
            let joined = task.join().await;
            let parts = joined.map_err(|cause| DataFusionError::External(Box::new(cause)))??;
            for (split, parts) in splits.iter_mut().zip(parts) {
                split.extend(parts);
            }
        }
        debug_assert!(splits.iter().all(|parts| parts.len() == PARTS), "each part has a file");
        Ok(splits)
    }
}

/// Writes the rows of some parts, from the first one on, of each split. Blocks.
fn write_parts(
    mut batches: Receiver<Arc<SplitBatch>>,
    first: usize,
    mut writers: Vec<Vec<SpillWriter>>,
) -> Result<Vec<Vec<SpilledRows>>> {
    while let Some(split) = batches.blocking_recv() {
        for (writer, rows) in writers[split.split].iter_mut().zip(&split.rows[first..]) {
            if !rows.is_empty() {
                writer.write(take_record_batch(&split.batch, rows)?)?;
            }
        }
    }
    let finish = |writers: Vec<SpillWriter>| writers.into_iter().map(SpillWriter::finish).collect();
    writers.into_iter().map(finish).collect()
}
