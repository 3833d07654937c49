//! Windows over a part that does not fit into the query's memory, as the rows of one frequent key
//! may not.
//!
//! The rows of all sources are sorted outside memory by (hash of the key, order value, source,
//! number), which is the order of the rows of each key, and read in time slices. The main rows of a
//! slice are its current rows. Before them are the rows of earlier slices that their frames may
//! hold; frames only move forward, so the others are not needed any more. Main rows whose frames go on after
//! the rows that were read (FOLLOWING) are left for the next slice.
//!
//! *Cost*: a sort on disk, and for each slice the rows of one frame of its first key, which are
//! added again; a window without a beginning goes on with its states instead ([`super::carried`]). The
//! memory that is needed is that of a slice, of the longest frame that has a beginning, and of the
//! states.

use std::{fmt, hash::BuildHasher, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, UInt32Array},
    compute::{SortOptions, interleave, interleave_record_batch, sort_to_indices, take},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt32Type},
};
use datafusion::{
    common::{internal_datafusion_err, stats::Precision},
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
    carried::CarriedKeys,
    exec::{CurrentRows, WindowWork},
    on_disk::{PartRows, SharedOrder, write_results},
    partition::{Ordering, order_values},
    slide::slide_bytes,
};
use crate::{
    external_sort::ExternalSort,
    key_index::for_each_key,
    operator::{LONG_BYTES, array_bytes, batch_bytes},
    source::{BlockingScan, SourceBatches, SourceExec},
    spill::{SpilledRows, give_back_freed, is_out_of_memory},
};

/// The columns of sorted rows, before the expressions.
const HASH: usize = 0;
const ORDER: usize = 1;
const SOURCE: usize = 2;
const NUMBER: usize = 3;

/// The sort that the slices come from takes at most this fraction of the memory.
const SORT_SHARE: usize = 4;
/// What sorting a number takes: it and its position, the position alone, and it in its place.
const SORTED_NUMBER_BYTES: usize = 16 + 4 + 8;
/// The bits of a key's hash. Rows of keys of one hash are sorted together, so that more keys go on in the next
/// slice than have to.
const HASH_BITS: u32 = 32;
/// The same for tests, in which keys are few: some of them share a hash.
const TESTED_HASH_BITS: u32 = 2;
/// A slice is at least one batch, however often it is halved.
const HALVINGS_MAX: u32 = 40;
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
    let pool = context.memory_pool();
    let limit = match pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes,
        MemoryLimit::Infinite | MemoryLimit::Unknown => UNLIMITED_BYTES,
    };
    let mut sorted = SortedRows::new(scan, order, context, limit / SORT_SHARE)?;
    let rows = order.spec.options.slice_rows.unwrap_or(usize::MAX);
    let mut halvings = 0;
    let mut results = Vec::new();
    let mut kept = NeededRows { rows: RecordBatch::new_empty(Arc::clone(&schema)), left: 0 };
    let mut carried = CarriedKeys::new(&order.spec.groups);
    let of_states = memory.new_empty();
    loop {
        order.spec.options.check()?;
        // The sort takes its memory when it is read.
        sorted.wait_for_rows()?;
        let free = limit.saturating_sub(pool.reserved());
        let of_kept =
            copies(order) * batch_bytes(&kept.rows) + Ordering::sort_bytes(kept.rows.num_rows());
        let bytes = free.saturating_sub(of_kept) >> halvings.min(HALVINGS_MAX);
        let (copies, row_bytes) = (copies(order), fresh_row_bytes(order));
        let fresh = sorted.take(SliceLimit { rows, bytes, copies, row_bytes })?;
        if fresh.is_empty() && kept.left == 0 {
            return Ok(results);
        }
        let slice = Slice { order, kept: &kept, fresh: &fresh };
        match slice.compute(&mut carried, context, memory) {
            Ok((files, needed)) => {
                results.extend(files);
                kept = needed;
                // Results may have been longer than a slice reckons with.
                halvings += u32::from(pool.reserved() > limit && fresh.len() > 1);
                memory.free();
                of_states.try_resize(carried.bytes())?;
            }
            Err(error) if is_out_of_memory(&error) && fresh.len() > 1 => {
                halvings += 1;
                sorted.put_back(fresh);
            }
            Err(error) => return Err(error),
        }
        memory.free();
        give_back_freed(context);
    }
}

/// Rows of a slice that the next one needs.
struct NeededRows {
    rows: RecordBatch,
    /// How many of its main rows, the last ones, are still to be computed.
    left: usize,
}

/// How large a slice may be.
#[derive(Debug, Clone, Copy)]
struct SliceLimit {
    rows: usize,
    /// The memory in which it is computed.
    bytes: usize,
    /// How often the values are there.
    copies: usize,
    /// What each row takes beside.
    row_bytes: usize,
}

/// Returns how often the values of a slice are in memory: as they were read, by source, and those of several sources
/// once more.
fn copies(order: &SharedOrder) -> usize {
    2 + usize::from(!order.unions.is_empty())
}

/// Returns about what a main row takes while it is computed, beside its values: its place in the order and
/// its frame, and its results three times, of the threads, in order, and by number.
fn fresh_row_bytes(order: &SharedOrder) -> usize {
    let calls = order.spec.groups.iter().flat_map(|shape| &shape.group.calls);
    let results: usize = calls.clone().map(|call| result_bytes(&call.bound.returns)).sum();
    // Calls of one key may be tasks of their own.
    let tasks = calls.count().min(order.spec.options.threads.get());
    Ordering::sort_bytes(1) + slide_bytes(1) * tasks + 3 * results
}

fn result_bytes(data_type: &lockstep_row::DataType) -> usize {
    use lockstep_row::DataType as T;
    match data_type {
        T::String | T::Array(_) | T::Map(..) => LONG_BYTES,
        T::Null
        | T::Bool
        | T::SmallInt
        | T::Int
        | T::BigInt
        | T::Float
        | T::Double
        | T::Timestamp
        | T::Date => size_of::<u64>(),
    }
}

/// The rows that are computed together.
struct Slice<'s> {
    order: &'s SharedOrder,
    /// Rows of earlier slices, which frames may hold.
    kept: &'s NeededRows,
    /// None after the last row.
    fresh: &'s [RecordBatch],
}

impl Slice<'_> {
    /// Computes the main rows. Returns their results, and the rows that later frames may hold.
    fn compute(
        &self,
        carried: &mut CarriedKeys<'_>,
        context: &TaskContext,
        memory: &MemoryReservation,
    ) -> Result<(Option<SpilledRows>, NeededRows)> {
        let kept = &self.kept.rows;
        let pieces = std::iter::once(kept).chain(self.fresh);
        // The values are there twice: as they were read, and by source.
        memory.try_grow(2 * pieces.clone().map(batch_bytes).sum::<usize>())?;
        let stacked = StackedRows::new(pieces.collect(), self.order);
        let part = PartRows::new(self.order, &stacked.sources(self.order)?);
        let of_kept = stacked.main().iter().filter(|row| (**row as usize) < kept.num_rows());
        let current = CurrentRows::of_part(of_kept.count() - self.kept.left);
        let mut work = WindowWork::new(&self.order.spec, &part.columns, current, memory)?;
        let (mut unfinished, mut left) = (Vec::new(), 0);
        if let ([ordering], false) = (work.orderings.as_slice(), self.fresh.is_empty()) {
            unfinished = stacked.unfinished(ordering);
            left = work.leave_incomplete(&unfinished, stacked.last_order());
        }
        let [ordering] = work.orderings.as_slice() else {
            return Err(internal_datafusion_err!("the windows of a part share their order"));
        };
        carried.begin_slice(ordering, &unfinished, |key| {
            let first = stacked.positions[ordering.rows[ordering.key(key).start] as usize];
            ((first as usize) < kept.num_rows()).then_some(first)
        });
        let count = part.numbers.len() - current.passed - left;
        let results = match count {
            // The states of windows without a beginning take rows of other sources, too.
            0 if !carried.are_changed() => None,
            _ => {
                // What the rows are sorted by.
                memory.try_grow(count * SORTED_NUMBER_BYTES)?;
                let calls = work.compute(Some(carried), memory)?;
                let numbers = part.numbers.slice(current.passed, count);
                // Their results a second time.
                let bytes = calls.iter().map(|column| array_bytes(column.as_ref())).sum();
                carried.count(memory, bytes)?;
                let by_number = sort_to_indices(&numbers, None, None)?;
                let ascending = |column: &ArrayRef| Ok(take(column, &by_number, None)?);
                let calls = calls.iter().map(ascending).collect::<Result<Vec<_>>>()?;
                let numbers = ascending(&numbers)?;
                Some(write_results(&numbers, calls, self.order.order_count, context)?)
            }
        };
        let ranges = carried.end_slice(ordering, &unfinished);
        let position = |at: usize| stacked.positions[ordering.rows[at] as usize];
        let mut needed: Vec<u32> = ranges.iter().cloned().flatten().map(position).collect();
        needed.sort_unstable();
        carried.set_first_rows(ranges.iter().map(|rows| {
            let row = needed.binary_search(&position(rows.start)).expect("the row is kept");
            u32::try_from(row).expect("a slice is small")
        }));
        Ok((results, NeededRows { rows: stacked.rows(&needed)?, left }))
    }
}

/// The rows of a slice by source: the positions of all rows, in the order of the row numbers of an
/// [`Ordering`].
struct StackedRows<'s> {
    pieces: Vec<&'s RecordBatch>,
    /// The position of the first row of each piece.
    starts: Vec<u32>,
    positions: Vec<u32>,
    /// The end of each source in `positions`; the main rows are the last ones.
    ends: Vec<usize>,
}

impl<'s> StackedRows<'s> {
    fn new(pieces: Vec<&'s RecordBatch>, order: &SharedOrder) -> Self {
        let mut starts = Vec::with_capacity(pieces.len());
        let mut row_count = 0;
        for piece in &pieces {
            starts.push(row_count);
            row_count += u32::try_from(piece.num_rows()).expect("a slice is small");
        }
        let mut positions = Vec::with_capacity(row_count as usize);
        let mut ends = Vec::with_capacity(order.unions.len() + 1);
        for source in 0..=u32::try_from(order.unions.len()).expect("a window has few sources") {
            for (piece, start) in pieces.iter().zip(&starts) {
                let sources = piece.column(SOURCE).as_primitive::<UInt32Type>().values();
                let of_source = (*start..).zip(sources).filter(|(_, of_row)| **of_row == source);
                positions.extend(of_source.map(|(row, _)| row));
            }
            ends.push(positions.len());
        }
        debug_assert_eq!(positions.len(), row_count as usize, "each row has a source");
        Self { pieces, starts, positions, ends }
    }

    /// Returns the positions of the rows of a source, in the order of their stack.
    fn source(&self, at: usize) -> &[u32] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.positions[start..self.ends[at]]
    }

    fn main(&self) -> &[u32] {
        self.source(self.ends.len() - 1)
    }

    /// Returns the piece and the row there of a position.
    fn place(&self, position: u32) -> (usize, usize) {
        let piece = self.starts.partition_point(|start| *start <= position) - 1;
        (piece, (position - self.starts[piece]) as usize)
    }

    /// Returns the places of positions that ascend.
    fn places(&self, positions: &[u32]) -> Vec<(usize, usize)> {
        let mut piece = 0;
        let place = |position: &u32| {
            while self.starts.get(piece + 1).is_some_and(|next| next <= position) {
                piece += 1;
            }
            (piece, (position - self.starts[piece]) as usize)
        };
        positions.iter().map(place).collect()
    }

    /// Returns the rows at positions that ascend.
    fn rows(&self, positions: &[u32]) -> Result<RecordBatch> {
        Ok(interleave_record_batch(&self.pieces, &self.places(positions))?)
    }

    /// Returns the columns of each source, the main rows first, then the UNION sources in the order in
    /// which they were split.
    fn sources(&self, order: &SharedOrder) -> Result<Vec<Vec<ArrayRef>>> {
        let width = self.pieces.first().map_or(0, |piece| piece.num_columns());
        let unions = order.sources().map(|union| self.source(stack_position(order, union)));
        std::iter::once(self.main())
            .chain(unions)
            .map(|positions| {
                let places = self.places(positions);
                let column = |at: usize| {
                    let parts: Vec<&dyn Array> =
                        self.pieces.iter().map(|piece| piece.column(at).as_ref()).collect();
                    Ok(interleave(&parts, &places)?)
                };
                (NUMBER..width).map(column).collect()
            })
            .collect()
    }

    /// Returns the order value of the last row; the least one where it is NULL.
    fn last_order(&self) -> i64 {
        let last = self.pieces.iter().rev().find(|piece| piece.num_rows() > 0);
        let Some(orders) = last.map(|piece| piece.column(ORDER).as_primitive::<Int64Type>()) else {
            return i64::MIN;
        };
        let at = orders.len() - 1;
        if orders.is_null(at) { i64::MIN } else { orders.value(at) }
    }

    /// Returns the keys that may have more rows in the next slice: those with the greatest hash, since all
    /// rows of the others have been read.
    fn unfinished(&self, ordering: &Ordering) -> Vec<usize> {
        let hash = |position: u32| {
            let (piece, row) = self.place(position);
            self.pieces[piece].column(HASH).as_primitive::<UInt32Type>().value(row)
        };
        let Some(last) = self.positions.len().checked_sub(1) else { return Vec::new() };
        let last = hash(u32::try_from(last).expect("a slice is small"));
        let is_unfinished = |number: &usize| {
            // A key may have rows without an order value only.
            let first = ordering.key(*number).next();
            first.is_some_and(|at| hash(self.positions[ordering.rows[at] as usize]) == last)
        };
        (0..ordering.key_count()).filter(is_unfinished).collect()
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
    hash_bits: u32,
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
            Field::new("__hash", DataType::UInt32, false),
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
            hash_bits: match order.spec.options.slice_rows {
                Some(_) => TESTED_HASH_BITS,
                None => HASH_BITS,
            },
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        })
    }
}

/// Adds what rows are sorted by.
struct SortColumns {
    key: Vec<usize>,
    order: Option<usize>,
    hasher: DefaultHashBuilder,
    hash_bits: u32,
    schema: SchemaRef,
}

impl SortColumns {
    fn added(&self, batch: &RecordBatch, source: u32) -> Result<RecordBatch> {
        let count = batch.num_rows();
        let key: Vec<ArrayRef> = self.key.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let mut hashes = Vec::with_capacity(count);
        let unused_bits = u64::BITS - self.hash_bits;
        for_each_key(&key, count, |key| {
            let hash = self.hasher.hash_one(key) >> unused_bits;
            hashes.push(u32::try_from(hash).expect("a hash has 32 bits at most"));
        });
        let orders = match self.order {
            None => Int64Array::from(vec![0; count]),
            Some(at) => {
                let column = batch.column(at);
                Int64Array::new(order_values(column).into(), column.logical_nulls())
            }
        };
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(hashes)),
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
        write!(f, "a partition of a window's rows, from disk")
    }
}

impl BlockingScan for SpilledPartScan {
    fn open(&self) -> Result<SourceBatches> {
        let columns = SortColumns {
            key: self.key.clone(),
            order: self.order,
            hasher: self.hasher.clone(),
            hash_bits: self.hash_bits,
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

    fn row_count(&self) -> Precision<usize> {
        Precision::Absent
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

    /// Waits until there are rows, or none are left.
    fn wait_for_rows(&mut self) -> Result<()> {
        if self.waiting.is_empty()
            && let Some(batch) = self.runtime.block_on(self.stream.next())
        {
            self.waiting.push(batch?);
        }
        Ok(())
    }

    /// Returns the next rows: at least one, unless there are none.
    fn take(&mut self, limit: SliceLimit) -> Result<Vec<RecordBatch>> {
        let (mut taken, mut rows, mut bytes) = (Vec::new(), 0_usize, 0_usize);
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
            bytes += limit.copies * batch_bytes(&batch) + count * limit.row_bytes;
            taken.push(batch);
        }
        Ok(taken)
    }

    /// Takes rows back, which are the next ones then.
    fn put_back(&mut self, rows: Vec<RecordBatch>) {
        self.waiting.extend(rows.into_iter().rev());
    }
}
