//! Windows over a part that does not fit into the query's memory, as the rows of one frequent key
//! may not.
//!
//! The rows of all sources are sorted outside memory by (hash of the key, order value, source,
//! number), which is the order of the rows of each key, and read in time slices. The main rows of a
//! slice are its current rows. Before them are the rows of earlier slices that their frames may
//! hold; frames only move forward, so the others are not needed any more.
//!
//! *Cost*: a sort on disk, and for each slice the rows of one frame of its first key, which are
//! added again. The memory that is needed is that of the longest frame and of a slice; a frame
//! without a beginning holds all rows of a key.

use std::{fmt, hash::BuildHasher, ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array, UInt64Array},
    compute::{SortOptions, concat_batches, sort_to_indices, take, take_record_batch},
    datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type, UInt64Type},
};
use datafusion::{
    common::internal_datafusion_err,
    error::{DataFusionError, Result},
    execution::{
        TaskContext,
        memory_pool::{MemoryLimit, MemoryReservation},
    },
    physical_expr::{LexOrdering, PhysicalSortExpr, expressions::Column},
    physical_plan::{ExecutionPlan, SendableRecordBatchStream, sorts::sort::SortExec},
};
use futures::StreamExt;
use hashbrown::DefaultHashBuilder;
use tokio::runtime::Handle;

use super::{
    exec::{CurrentRows, WindowWork},
    on_disk::{PartRows, SharedOrder, write_results},
    partition::{Ordering, order_values},
    slide::first_needed,
};
use crate::{
    external_sort::ExternalSort,
    key_index::for_each_key,
    operator::batch_bytes,
    source::{BlockingScan, SourceBatches, SourceExec},
    spill::{SpilledRows, is_out_of_memory},
};

/// The columns of sorted rows, before the expressions.
const HASH: usize = 0;
const ORDER: usize = 1;
const SOURCE: usize = 2;
const NUMBER: usize = 3;

/// A slice takes at most this fraction of the memory: beside its rows there are those that an
/// earlier slice left, their order and the results.
const SLICE_SHARE: usize = 8;
/// The sort that the slices come from takes at most this fraction.
const SORT_SHARE: usize = 4;
/// What the memory counts as where it has no limit.
const UNLIMITED_BYTES: usize = 512 << 20;

/// Computes a part in time slices. `files` are the rows of its sources, the main rows first. Returns
/// the files of the results. Blocks.
pub(super) fn in_slices(
    order: &SharedOrder,
    files: &[&SpilledRows],
    context: &Arc<TaskContext>,
    memory: &MemoryReservation,
) -> Result<Vec<SpilledRows>> {
    let scan = SpilledPartScan::new(order, files)?;
    let schema = Arc::clone(&scan.schema);
    let bytes = match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => UNLIMITED_BYTES,
    };
    let mut sorted = SortedRows::new(scan, order, context, bytes / SORT_SHARE)?;
    let mut limit = SliceLimit {
        rows: order.spec.options.slice_rows.unwrap_or(usize::MAX),
        bytes: (bytes / SLICE_SHARE).max(1),
    };
    let mut results = Vec::new();
    let mut kept = RecordBatch::new_empty(Arc::clone(&schema));
    loop {
        order.spec.options.check()?;
        let fresh = sorted.take(limit)?;
        if fresh.is_empty() {
            return Ok(results);
        }
        let slice = Slice { order, schema: &schema, kept: &kept, fresh: &fresh };
        match slice.compute(context, memory) {
            Ok((files, needed)) => {
                results.extend(files);
                kept = needed;
            }
            Err(error) if is_out_of_memory(&error) && fresh.len() > 1 => {
                limit.bytes = (limit.bytes / 2).max(1);
                sorted.put_back(fresh);
            }
            Err(error) => return Err(error),
        }
        memory.free();
    }
}

/// How large a slice may be.
#[derive(Debug, Clone, Copy)]
struct SliceLimit {
    rows: usize,
    bytes: usize,
}

/// The rows that are computed together.
struct Slice<'s> {
    order: &'s SharedOrder,
    schema: &'s SchemaRef,
    /// Rows of earlier slices, which frames may hold.
    kept: &'s RecordBatch,
    fresh: &'s [RecordBatch],
}

impl Slice<'_> {
    /// Computes the main rows. Returns their results, and the rows that later frames may hold.
    fn compute(
        &self,
        context: &TaskContext,
        memory: &MemoryReservation,
    ) -> Result<(Option<SpilledRows>, RecordBatch)> {
        let pieces = std::iter::once(self.kept).chain(self.fresh);
        memory.try_grow(pieces.clone().map(batch_bytes).sum())?;
        let rows = concat_batches(self.schema, pieces)?;
        let stacked = StackedRows::new(&rows, self.order);
        let part = PartRows::new(self.order, &stacked.sources(&rows, self.order)?);
        memory.try_grow(part.columns.bytes())?;
        let passed = stacked.main().iter().filter(|row| (**row as usize) < self.kept.num_rows());
        let current = CurrentRows::of_part(passed.count());
        let work = WindowWork::new(&self.order.spec, &part.columns, current, memory)?;
        let count = part.numbers.len() - current.passed;
        let results = match count {
            0 => None,
            _ => {
                let numbers = part.numbers.slice(current.passed, count);
                let by_number = sort_to_indices(&numbers, None, None)?;
                let ascending = |column: &ArrayRef| Ok(take(column, &by_number, None)?);
                let calls = work.compute(memory)?;
                let calls = calls.iter().map(ascending).collect::<Result<Vec<_>>>()?;
                Some(write_results(&ascending(&numbers)?, calls, &context.runtime_env())?)
            }
        };
        let [ordering] = work.orderings.as_slice() else {
            return Err(internal_datafusion_err!("the windows of a part share their order"));
        };
        let needed = stacked.needed(&rows, ordering, self.order);
        Ok((results, take_record_batch(&rows, &UInt32Array::from(needed))?))
    }
}

/// The rows of a slice by source: the positions of all rows, in the order of the row numbers of an
/// [`Ordering`].
struct StackedRows {
    positions: Vec<u32>,
    /// The end of each source in `positions`; the main rows are the last ones.
    ends: Vec<usize>,
}

impl StackedRows {
    fn new(rows: &RecordBatch, order: &SharedOrder) -> Self {
        let sources = rows.column(SOURCE).as_primitive::<UInt32Type>().values();
        let mut positions = Vec::with_capacity(sources.len());
        let mut ends = Vec::with_capacity(order.unions.len() + 1);
        for source in 0..=u32::try_from(order.unions.len()).expect("a window has few sources") {
            let of_source = (0_u32..).zip(sources).filter(|(_, of_row)| **of_row == source);
            positions.extend(of_source.map(|(row, _)| row));
            ends.push(positions.len());
        }
        debug_assert_eq!(positions.len(), sources.len(), "each row has a source");
        Self { positions, ends }
    }

    /// Returns the positions of the rows of a source, in the order of their stack.
    fn source(&self, at: usize) -> &[u32] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.positions[start..self.ends[at]]
    }

    fn main(&self) -> &[u32] {
        self.source(self.ends.len() - 1)
    }

    /// Returns the columns of each source, the main rows first, then the UNION sources in the order in
    /// which they were split.
    fn sources(&self, rows: &RecordBatch, order: &SharedOrder) -> Result<Vec<Vec<ArrayRef>>> {
        let unions = order.sources().map(|union| self.source(stack_position(order, union)));
        std::iter::once(self.main())
            .chain(unions)
            .map(|positions| {
                let positions = UInt32Array::from(positions.to_vec());
                let columns = &rows.columns()[NUMBER..];
                columns.iter().map(|column| Ok(take(column, &positions, None)?)).collect()
            })
            .collect()
    }

    /// Returns the positions of the rows that frames of later rows may hold: of keys with the greatest
    /// hash, since all rows of the others have been read.
    fn needed(&self, rows: &RecordBatch, ordering: &Ordering, order: &SharedOrder) -> Vec<u32> {
        let hashes = rows.column(HASH).as_primitive::<UInt64Type>().values();
        let Some(last) = hashes.last() else { return Vec::new() };
        let position = |at: usize| self.positions[ordering.rows[at] as usize];
        let mut needed = Vec::new();
        for key in 0..ordering.key_count() {
            let key = ordering.key(key);
            // A key may have rows without an order value only.
            if key.is_empty() || hashes[position(key.start) as usize] != *last {
                continue;
            }
            let windows = order.spec.groups.iter().map(|shape| &shape.group.window);
            let first = windows.map(|window| first_needed(window, ordering, key.clone())).min();
            let rest: Range<usize> = first.unwrap_or(key.start)..key.end;
            needed.extend(rest.map(position));
        }
        needed.sort_unstable();
        needed
    }
}

/// Returns where the rows of a UNION source are among those of all sources: the last written source
/// is first.
fn stack_position(order: &SharedOrder, union: usize) -> usize {
    let written = order.unions.iter().position(|source| *source == union);
    order.unions.len() - 1 - written.expect("the source is one of the windows")
}

/// The rows of a part with what they are sorted by, source by source.
struct SpilledPartScan {
    sources: Vec<ScannedSource>,
    /// The positions of the key and of the order among the columns of a source.
    key: Vec<usize>,
    order: Option<usize>,
    hasher: DefaultHashBuilder,
    schema: SchemaRef,
}

#[derive(Clone)]
struct ScannedSource {
    rows: SpilledRows,
    stack_position: u32,
}

impl SpilledPartScan {
    fn new(order: &SharedOrder, files: &[&SpilledRows]) -> Result<Self> {
        let unions = order.sources().map(|union| stack_position(order, union));
        let positions = std::iter::once(order.unions.len()).chain(unions);
        let sources = files.iter().zip(positions).map(|(rows, position)| ScannedSource {
            rows: (*rows).clone(),
            stack_position: u32::try_from(position).expect("a window has few sources"),
        });
        let column_of = |expr: &usize| {
            1 + order.exprs.binary_search(expr).expect("the expressions of a part have its key")
        };
        let columns = [
            Field::new("__hash", DataType::UInt64, false),
            Field::new("__order", DataType::Int64, true),
            Field::new("__source", DataType::UInt32, false),
        ];
        let main = files[0].read(None)?.next().transpose()?;
        let main = main.ok_or_else(|| internal_datafusion_err!("a part has main rows"))?.schema();
        let fields = columns.into_iter().map(Arc::new).chain(main.fields().iter().cloned());
        Ok(Self {
            sources: sources.collect(),
            key: order.key.iter().map(column_of).collect(),
            order: order.order.as_ref().map(column_of),
            hasher: DefaultHashBuilder::default(),
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        })
    }
}

/// Adds what rows are sorted by.
struct SortColumns {
    key: Vec<usize>,
    order: Option<usize>,
    hasher: DefaultHashBuilder,
    schema: SchemaRef,
}

impl SortColumns {
    fn added(&self, batch: &RecordBatch, source: u32) -> Result<RecordBatch> {
        let count = batch.num_rows();
        let key: Vec<ArrayRef> = self.key.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let mut hashes = Vec::with_capacity(count);
        for_each_key(&key, count, |key| hashes.push(self.hasher.hash_one(key)));
        let orders = match self.order {
            None => Int64Array::from(vec![0; count]),
            Some(at) => {
                let column = batch.column(at);
                Int64Array::new(order_values(column).into(), column.logical_nulls())
            }
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(hashes)),
            Arc::new(orders),
            Arc::new(UInt32Array::from(vec![source; count])),
        ];
        columns.extend(batch.columns().iter().cloned());
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

impl fmt::Debug for SpilledPartScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpilledPartScan")
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for SpilledPartScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a part of a window's rows, from disk")
    }
}

impl BlockingScan for SpilledPartScan {
    fn open(&self) -> Result<SourceBatches> {
        let columns = SortColumns {
            key: self.key.clone(),
            order: self.order,
            hasher: self.hasher.clone(),
            schema: Arc::clone(&self.schema),
        };
        let sources = self.sources.iter().map(|source| {
            Ok::<_, DataFusionError>((source.rows.read(None)?, source.stack_position))
        });
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let batches = sources.into_iter().flat_map(|(rows, at)| rows.map(move |rows| (rows, at)));
        Ok(Box::new(batches.map(move |(batch, at)| columns.added(&batch?, at))))
    }

    fn limit(&self) -> Option<usize> {
        None
    }

    fn row_count(&self) -> Option<usize> {
        None
    }
}

/// The rows of a part in the order in which they are computed.
struct SortedRows {
    stream: SendableRecordBatchStream,
    runtime: Handle,
    /// Rows that were read and not computed; the next ones are the last.
    waiting: Vec<RecordBatch>,
}

impl SortedRows {
    fn new(
        scan: SpilledPartScan,
        order: &SharedOrder,
        context: &Arc<TaskContext>,
        bytes: usize,
    ) -> Result<Self> {
        let schema = Arc::clone(&scan.schema);
        let by = [HASH, ORDER, SOURCE, NUMBER].map(|column| {
            let expr = Arc::new(Column::new(schema.field(column).name(), column));
            PhysicalSortExpr::new(expr, SortOptions { descending: false, nulls_first: true })
        });
        let by =
            LexOrdering::new(by).ok_or_else(|| internal_datafusion_err!("an order has columns"))?;
        let scan = SourceExec::new(Arc::new(scan), schema, order.spec.options.context.clone());
        let sort = SortExec::new(by, Arc::new(scan));
        let sort: Arc<dyn ExecutionPlan> = match ExternalSort::of(&sort, bytes, &order.spec.options)
        {
            Some(external) => Arc::new(external),
            None => Arc::new(sort),
        };
        let stream = sort.execute(0, Arc::clone(context))?;
        Ok(Self { stream, runtime: Handle::current(), waiting: Vec::new() })
    }

    /// Returns the next rows: at least one, unless there are none.
    fn take(&mut self, limit: SliceLimit) -> Result<Vec<RecordBatch>> {
        let (mut taken, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows < limit.rows && (bytes < limit.bytes || taken.is_empty()) {
            let batch = match self.waiting.pop() {
                Some(batch) => batch,
                None => match self.runtime.block_on(self.stream.next()) {
                    Some(batch) => batch?,
                    None => break,
                },
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let count = batch.num_rows().min(limit.rows - rows);
            if count < batch.num_rows() {
                self.waiting.push(batch.slice(count, batch.num_rows() - count));
            }
            let batch = batch.slice(0, count);
            rows += count;
            bytes += batch_bytes(&batch);
            taken.push(batch);
        }
        Ok(taken)
    }

    /// Takes rows back, which are the next ones then.
    fn put_back(&mut self, rows: Vec<RecordBatch>) {
        self.waiting.extend(rows.into_iter().rev());
    }
}
