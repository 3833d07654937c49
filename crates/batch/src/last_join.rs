//! The LAST JOIN operator: each left row with its newest matching right row.
//!
//! `planner` makes it. `lockstep_plan` states which right row matches. The right rows of each key
//! are sorted once; for a left row, the operator looks up its key, finds the time bound by binary
//! search and goes on towards older rows. Where ON has more conditions, all rows of a left batch
//! are tested together: each round tests the next candidates of every row that has no match yet,
//! twice as many as the round before, so that conditions are evaluated over columns.
//!
//! *Cost*: O(right · log right) once, then O(log right) for each left row without further
//! conditions; with them, at most about twice the candidates that testing row by row would need.
//! The right rows are held in memory, and the left ones pass; where the right rows take more than half
//! of the memory that is free, both inputs are split to disk (`on_disk`).

use std::{fmt, pin::pin, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array},
    compute::{concat_batches, take},
    datatypes::SchemaRef,
};
use datafusion::{
    common::{internal_err, resources_err, stats::Precision, tree_node::TreeNodeRecursion},
    error::Result,
    execution::{
        TaskContext,
        memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation},
    },
    physical_expr::PhysicalExpr,
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        ReplaceChildrenOptions, SendableRecordBatchStream,
        execution_plan::apply_expression_roots,
        statistics::{StatisticsArgs, StatisticsContext},
        stream::RecordBatchReceiverStream,
    },
};
use futures::StreamExt;
use lockstep_host::CallStep;
use lockstep_row::{Arena, arrow::ColumnReader};
use tokio::sync::mpsc::Sender;

mod on_disk;

use on_disk::on_disk;

use crate::{
    key_index::KeyIndex,
    operator::{
        BATCH_ROWS, BATCHES_AHEAD, OperatorOptions, batch_bytes, compute, read_all, rows_in_order,
        single_partition,
    },
    spill::{give_back_freed, is_out_of_memory},
};

/// The description of a LAST JOIN operator.
#[derive(Debug)]
pub(crate) struct LastJoinSpec {
    /// Over the left columns.
    pub(crate) left_keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Over the right columns, as many.
    pub(crate) right_keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Over the right columns.
    pub(crate) order_by: Option<Arc<dyn PhysicalExpr>>,
    /// Over the left columns, and whether an order value equal to it is included.
    pub(crate) time_bound: Option<(Arc<dyn PhysicalExpr>, bool)>,
    /// Over the columns of both sides, left first.
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
    /// The schema that `filter` was made for.
    pub(crate) pair_schema: SchemaRef,
    /// Threads and progress.
    pub(crate) options: OperatorOptions,
}

/// The LAST JOIN operator. Emits the left rows in their order.
#[derive(Debug)]
pub(crate) struct LastJoinExec {
    spec: Arc<LastJoinSpec>,
    /// Left, then right.
    inputs: [Arc<dyn ExecutionPlan>; 2],
    properties: Arc<PlanProperties>,
}

impl LastJoinExec {
    /// Makes the operator; `inputs` are the left and the right one.
    pub(crate) fn new(spec: Arc<LastJoinSpec>, inputs: [Arc<dyn ExecutionPlan>; 2]) -> Self {
        let properties = single_partition(&spec.pair_schema);
        Self { spec, inputs, properties }
    }
}

impl DisplayAs for LastJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LastJoinExec: {} keys", self.spec.left_keys.len())?;
        for (is_there, name) in [
            (self.spec.order_by.is_some(), ", ordered"),
            (self.spec.time_bound.is_some(), ", time bound"),
            (self.spec.filter.is_some(), ", filter"),
        ] {
            if is_there {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for LastJoinExec {
    fn name(&self) -> &'static str {
        "LastJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false; 2]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let spec = &self.spec;
        let bound = spec.time_bound.iter().map(|(left, _)| left);
        let keys = spec.left_keys.iter().chain(&spec.right_keys);
        apply_expression_roots(keys.chain(&spec.order_by).chain(bound).chain(&spec.filter), f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 2]>::try_from(children) {
            Ok(inputs) => Ok(Arc::new(Self::new(Arc::clone(&self.spec), inputs))),
            Err(_) => internal_err!("a LAST JOIN has two inputs"),
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
        let (inputs, spec) = (self.inputs.clone(), Arc::clone(&self.spec));
        let schema = Arc::clone(&self.spec.pair_schema);
        let mut stream = RecordBatchReceiverStream::builder(schema, BATCHES_AHEAD);
        let sender = stream.tx();
        stream.spawn(async move {
            let mut is_sent = false;
            match in_memory(&spec, inputs.clone(), &context, (&sender, &mut is_sent)).await {
                Err(error) if is_out_of_memory(&error) && !is_sent => {
                    give_back_freed(&context);
                    on_disk(spec, inputs, context, sender).await
                }
                outcome => outcome,
            }
        });
        Ok(stream.build())
    }
}

/// Joins with the right rows in memory, and sends each batch of left rows with them; says whether any was
/// sent.
async fn in_memory(
    spec: &Arc<LastJoinSpec>,
    [left, right]: [Arc<dyn ExecutionPlan>; 2],
    context: &Arc<TaskContext>,
    (sender, is_sent): (&Sender<Result<RecordBatch>>, &mut bool),
) -> Result<()> {
    spec.options.check_in_memory()?;
    let right = Arc::new(IndexedRight::read(spec, right, context).await?);
    let progress = LeftProgress::new(&left);
    let join = |batch: Result<RecordBatch>| {
        let (spec, right) = (Arc::clone(spec), Arc::clone(&right));
        async move {
            let batch = batch?;
            compute(move || right.join(&spec, &batch)).await
        }
    };
    let left = rows_in_order(left, Arc::clone(context));
    let mut joined = pin!(left.map(join).buffered(spec.options.threads.get()));
    let mut done = 0;
    while let Some(batch) = joined.next().await {
        let batch = batch?;
        let rows = batch.num_rows();
        done += rows;
        if sender.send(Ok(batch)).await.is_err() {
            break;
        }
        *is_sent |= rows > 0;
        progress.report(&spec.options, done);
    }
    Ok(())
}

/// How many left rows there are, where that is known.
struct LeftProgress {
    row_count: Option<usize>,
}

impl LeftProgress {
    fn new(left: &Arc<dyn ExecutionPlan>) -> Self {
        let statistics = StatisticsContext::new().compute(left.as_ref(), &StatisticsArgs::new());
        let row_count = statistics.ok().and_then(|of| match of.num_rows {
            // Of a stored table it is the number of rows with expired ones.
            Precision::Exact(rows) | Precision::Inexact(rows) => Some(rows),
            Precision::Absent => None,
        });
        Self { row_count }
    }

    fn report(&self, options: &OperatorOptions, done: usize) {
        let number = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        if let Some(total) = self.row_count {
            options.report(CallStep::JoinRows, number(done.min(total)), number(total));
        }
    }
}

/// The right rows of a join with their memory.
struct IndexedRight {
    rows: RightRows,
    _memory: MemoryReservation,
}

impl IndexedRight {
    /// Reads and indexes them, where they take at most half of the memory that is free: the operators above
    /// and below this one need theirs while the left rows pass.
    async fn read(
        spec: &Arc<LastJoinSpec>,
        right: Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let pool = Arc::clone(context.memory_pool());
        let memory = MemoryConsumer::new("LAST JOIN").register(&pool);
        let count = move |memory: &MemoryReservation, bytes: usize| {
            memory.try_grow(bytes)?;
            let others = pool.reserved().saturating_sub(memory.size());
            match pool.memory_limit() {
                MemoryLimit::Finite(limit) if memory.size() > limit.saturating_sub(others) / 2 => {
                    resources_err!(
                        "The right side of a LAST JOIN exceeds half of the free query memory"
                    )
                }
                _ => Ok(()),
            }
        };
        let schema = right.schema();
        let batches = read_all(right, Arc::clone(context), |bytes| count(&memory, bytes)).await?;
        let spec = Arc::clone(spec);
        compute(move || {
            let row_count: usize = batches.iter().map(RecordBatch::num_rows).sum();
            let copied = memory.new_empty();
            if batches.len() > 1 {
                copied.try_grow(batches.iter().map(batch_bytes).sum())?;
            }
            count(&memory, row_count * RightRows::ROW_BYTES)?;
            let rows = match <[RecordBatch; 1]>::try_from(batches) {
                Ok([only]) => only,
                Err(batches) => concat_batches(&schema, &batches)?,
            };
            drop(copied);
            let rows = RightRows::new(&spec, rows)?;
            // What sorting them took is gone.
            memory.try_resize(rows.bytes())?;
            Ok(Self { rows, _memory: memory })
        })
        .await
    }

    /// Joins a batch of left rows.
    fn join(&self, spec: &LastJoinSpec, left: &RecordBatch) -> Result<RecordBatch> {
        spec.options.check()?;
        let matches = self.rows.find_matches(spec, left)?;
        self.rows.pair(&spec.pair_schema, left.columns().to_vec(), &matches)
    }
}

fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

fn evaluate_all(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| evaluate(expr, batch)).collect()
}

/// Returns the order values of a column; NULL is older than every value.
fn order_values(array: &ArrayRef) -> Vec<Option<i64>> {
    let reader = ColumnReader::new(array);
    // Order values are integers: nothing is ever laid out in the arena.
    let arena = Arena::new();
    (0..array.len()).map(|row| reader.get(row, &arena).as_i64()).collect()
}

/// The right rows, oldest first within each key.
struct RightRows {
    rows: RecordBatch,
    index: KeyIndex,
    /// Where each key's rows begin, followed by the end.
    starts: Vec<usize>,
    /// Where those of them begin that have an order value.
    dated_starts: Vec<usize>,
    /// The row numbers, the keys one after the other.
    row_numbers: Vec<u32>,
    /// Their order values; any where there is none.
    orders: Vec<i64>,
}

/// The untested candidates of a left row: positions in [`RightRows::row_numbers`], of which the last is
/// the newest.
#[derive(Debug, Clone, Copy)]
struct CandidateRange {
    left: u32,
    start: usize,
    end: usize,
}

/// Row numbers of candidate pairs.
struct CandidatePairs {
    left_rows: UInt32Array,
    right_rows: UInt32Array,
}

impl RightRows {
    /// About what a row takes beside its values while it is indexed: its place in the order, its order value,
    /// the number of its key.
    const ROW_BYTES: usize = size_of::<(Option<i64>, u32)>()
        + size_of::<Option<i64>>()
        + size_of::<i64>()
        + 2 * size_of::<u32>();

    fn new(spec: &LastJoinSpec, rows: RecordBatch) -> Result<Self> {
        let Ok(row_count) = u32::try_from(rows.num_rows()) else {
            return internal_err!("the right side of a LAST JOIN has fewer than 2^32 rows");
        };
        let mut index = KeyIndex::default();
        let numbers = index.insert(&evaluate_all(&spec.right_keys, &rows)?, rows.num_rows());
        let orders = match &spec.order_by {
            Some(order_by) => order_values(&evaluate(order_by, &rows)?),
            None => vec![Some(0); rows.num_rows()],
        };
        let mut starts = vec![0; index.len() + 1];
        for number in &numbers {
            starts[*number as usize + 1] += 1;
        }
        for key in 1..starts.len() {
            starts[key] += starts[key - 1];
        }
        let mut ends = starts.clone();
        let mut order = vec![(None, 0); rows.num_rows()];
        for row in 0..row_count {
            let end = &mut ends[numbers[row as usize] as usize];
            order[*end] = (orders[row as usize], row);
            *end += 1;
        }
        debug_assert_eq!(ends[..index.len()], starts[1..], "the rows of each key fill its range");
        let mut dated_starts = Vec::with_capacity(index.len());
        for bounds in starts.windows(2) {
            let key = &mut order[bounds[0]..bounds[1]];
            if !key.is_sorted() {
                key.sort_unstable();
            }
            dated_starts.push(bounds[0] + key.partition_point(|(order, _)| order.is_none()));
        }
        let row_numbers = order.iter().map(|(_, row)| *row).collect();
        let orders = order.iter().map(|(order, _)| order.unwrap_or_default()).collect();
        Ok(Self { rows, index, starts, dated_starts, row_numbers, orders })
    }

    /// Returns the bytes that the rows take, with where they are found; without their keys.
    fn bytes(&self) -> usize {
        let of_rows = self.row_numbers.len() * (size_of::<u32>() + size_of::<i64>());
        let of_keys = (self.starts.len() + self.dated_starts.len()) * size_of::<usize>();
        batch_bytes(&self.rows) + of_rows + of_keys
    }

    /// Returns for each left row the number of its right row, or NULL.
    fn find_matches(&self, spec: &LastJoinSpec, left: &RecordBatch) -> Result<UInt32Array> {
        let ranges = self.ranges(spec, left)?;
        let mut matches = vec![None; left.num_rows()];
        match &spec.filter {
            None => {
                for range in ranges {
                    matches[range.left as usize] = Some(self.row_numbers[range.end - 1]);
                }
            }
            Some(filter) => self.match_filtered(spec, filter, left, ranges, &mut matches)?,
        }
        Ok(UInt32Array::from(matches))
    }

    /// Returns the candidates of each left row that has any.
    fn ranges(&self, spec: &LastJoinSpec, left: &RecordBatch) -> Result<Vec<CandidateRange>> {
        let keys = evaluate_all(&spec.left_keys, left)?;
        let numbers = self.index.find(&keys, left.num_rows());
        let bounds = match &spec.time_bound {
            Some((bound, inclusive)) => Some((order_values(&evaluate(bound, left)?), *inclusive)),
            None => None,
        };
        let mut ranges = Vec::with_capacity(left.num_rows());
        for ((row, left), number) in numbers
            .iter()
            .enumerate()
            .zip(0_u32..)
            .map(|((row, number), left)| ((row, left), number))
        {
            let Some(number) = number else { continue };
            let number = *number as usize;
            let (mut start, mut end) = (self.starts[number], self.starts[number + 1]);
            if let Some((bounds, inclusive)) = &bounds {
                let Some(bound) = bounds[row] else { continue };
                start = self.dated_starts[number];
                let is_in_time =
                    |order: &i64| if *inclusive { *order <= bound } else { *order < bound };
                end = start + self.orders[start..end].partition_point(is_in_time);
            }
            if start < end {
                ranges.push(CandidateRange { left, start, end });
            }
        }
        Ok(ranges)
    }

    fn match_filtered(
        &self,
        spec: &LastJoinSpec,
        filter: &Arc<dyn PhysicalExpr>,
        left: &RecordBatch,
        mut ranges: Vec<CandidateRange>,
        matches: &mut [Option<u32>],
    ) -> Result<()> {
        let mut width = 1;
        while !ranges.is_empty() {
            let mut unmatched = Vec::new();
            let ranges_per_test = (BATCH_ROWS / width).max(1);
            for some in ranges.chunks(ranges_per_test) {
                spec.options.check()?;
                let CandidatePairs { left_rows, right_rows } = self.next_pairs(some, width);
                let columns = take_columns(left, &left_rows)?;
                let pairs = self.pair(&spec.pair_schema, columns, &right_rows)?;
                let verdict = evaluate(filter, &pairs)?;
                let is_true = verdicts(verdict.as_ref());
                let mut pair = 0;
                for range in some {
                    let count = width.min(range.end - range.start);
                    let rest = CandidateRange { end: range.end - count, ..*range };
                    match (pair..pair + count).find(|pair| is_true(*pair)) {
                        Some(pair) => matches[range.left as usize] = Some(right_rows.value(pair)),
                        None => unmatched.extend((rest.start < rest.end).then_some(rest)),
                    }
                    pair += count;
                }
            }
            ranges = unmatched;
            width = (width * 2).min(BATCH_ROWS);
        }
        Ok(())
    }

    /// Returns up to `width` untested candidates of each range, newest first.
    fn next_pairs(&self, ranges: &[CandidateRange], width: usize) -> CandidatePairs {
        let mut left_rows = Vec::new();
        let mut right_rows = Vec::new();
        for range in ranges {
            let count = width.min(range.end - range.start);
            for row in self.row_numbers[range.end - count..range.end].iter().rev() {
                left_rows.push(range.left);
                right_rows.push(*row);
            }
        }
        CandidatePairs { left_rows: left_rows.into(), right_rows: right_rows.into() }
    }

    /// Returns a batch of left columns followed by the right columns of some rows.
    fn pair(
        &self,
        schema: &SchemaRef,
        mut columns: Vec<ArrayRef>,
        right_rows: &UInt32Array,
    ) -> Result<RecordBatch> {
        columns.extend(take_columns(&self.rows, right_rows)?);
        debug_assert_eq!(columns.len(), schema.fields().len(), "the columns of both sides");
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(right_rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }
}

/// Returns a function that tells whether a condition is true for a pair; NULL is not true.
fn verdicts(verdict: &dyn Array) -> impl Fn(usize) -> bool + '_ {
    let values = verdict.as_boolean_opt();
    move |pair| values.is_some_and(|values| values.is_valid(pair) && values.value(pair))
}

fn take_columns(batch: &RecordBatch, rows: &UInt32Array) -> Result<Vec<ArrayRef>> {
    batch.columns().iter().map(|column| Ok(take(column, rows, None)?)).collect()
}
