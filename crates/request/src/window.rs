//! A scan: reads the rows of an entity key once for all windows over the same sources, partition
//! and order.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. The sources are merged newest
//! first ([`crate::merge`]), and one loop takes the rows: rows of one source, as many at once as all
//! window groups treat alike ([`crate::progress`]). The scan ends when no group can take another row.
//! Groups are ordered by the reach of their frames, so that the groups that go on longest tend to be
//! the first.
//!
//! Rows are collected into blocks ([`crate::block`]); a block ends where the set of groups that take
//! its rows changes. [`crate::aggregates`] computes from a block; groups whose frames begin at the
//! same row share states. Where an index includes all columns that the windows read, whole runs of
//! its slots are taken instead and the rows are not read. Rows of one source are added together as
//! long as the groups stay the same, which gives the same results as long as no call depends on the
//! order of the rows.
//!
//! # Cost
//!
//! One lookup for each source, and one visit for each row in reach of the longest frame. Of an index
//! that includes the columns: a binary search for each chunk in which a frame ends, or with several
//! sources a visit for each event time, and the records of the rows. Which groups take a row is
//! decided where that changes: twice for each group. Nothing is allocated for a row, and states are
//! reused by the next answer.

use std::sync::Arc;

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};

use crate::{
    aggregates::{AggregateScratch, ScanAggregates},
    block::RowBlock,
    context::{AnswerContext, ROWS_PER_CHECKPOINT, checkpoint},
    groups::GroupSet,
    inputs::{CurrentInputs, SourceInputs},
    lane::RowInput,
    merge::Merge,
    pre_aggregate::PreAggregate,
    progress::{FrameProgress, FrameSpec, ScanProgress},
    row_context::{BoundExpr, RowContextMut},
    source::{KeyedSource, RowPosition, SourceBounds, SourceCursor, SourceRow},
};

/// A scan and the windows that it computes.
#[derive(Debug)]
pub(crate) struct WindowScan {
    /// The position of the scan among the program's.
    pub(crate) id: usize,
    /// The partition of the current row.
    pub(crate) keys: Vec<BoundExpr>,
    /// The order value of the current row; `None` without ORDER BY.
    pub(crate) order: Option<BoundExpr>,
    /// The order value of the current row without ORDER BY: no row of a source has a greater one.
    pub(crate) unordered: i64,
    /// What is read of the current row.
    pub(crate) inputs: CurrentInputs,
    /// The rows of the main table, unless `INSTANCE_NOT_IN_WINDOW` excludes them, then the union
    /// sources.
    pub(crate) sources: Vec<Arc<ScanSource>>,
    /// For each source, the pre-aggregate of its rows.
    pub(crate) pre_aggregates: Vec<Option<Arc<PreAggregate>>>,
    /// The frame of each window group.
    pub(crate) groups: Vec<FrameSpec>,
    /// The groups whose frames have the current row.
    pub(crate) with_current_row: GroupSet,
    /// What the windows compute.
    pub(crate) aggregates: Arc<ScanAggregates>,
    /// The number of the scan among the steps whose results requests share.
    pub(crate) shared: Option<usize>,
}

/// A source of a scan.
#[derive(Debug)]
pub(crate) struct ScanSource {
    pub(crate) source: Arc<KeyedSource>,
    /// What is read of its rows.
    pub(crate) inputs: SourceInputs,
    /// What is read of the request row, where that may be a row of the source.
    pub(crate) request: Option<CurrentInputs>,
    /// Whether its rows come from the current row's own chain.
    pub(crate) is_main: bool,
}

/// The memory of a scan, which one answer after the other uses.
pub(crate) struct ScanScratch {
    aggregates: AggregateScratch,
    progress: Vec<FrameProgress>,
}

impl ScanScratch {
    /// Makes the states of a scan.
    pub(crate) fn new(aggregates: &ScanAggregates) -> Self {
        Self { aggregates: AggregateScratch::new(aggregates), progress: Vec::new() }
    }

    /// Estimates the bytes that are retained between answers.
    pub(crate) fn retained_bytes(&self) -> usize {
        self.aggregates.retained_bytes()
    }

    fn begin(&mut self, groups: &[FrameSpec], order: Option<i64>) {
        self.aggregates.reset();
        self.progress.clear();
        self.progress.extend(groups.iter().map(|group| FrameProgress::new(group, order)));
    }
}

impl WindowScan {
    /// Computes the windows of the current row into its slots.
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: &mut RowContextMut<'_, 's>,
        arrival: u64,
    ) -> Result<()> {
        let Some((shared, step)) = ctx.shared.zip(self.shared) else {
            return self.compute(ctx, row, arrival);
        };
        let current = row.as_row();
        let own = self.aggregates.current_exprs(&self.inputs, self.with_current_row);
        let exprs = self.keys.iter().chain(&self.order).chain(own);
        let inputs = exprs.map(|expr| expr.eval(&current, ctx.arena));
        let inputs = ArenaVec::from_iter_in(inputs, ctx.arena).into_bump_slice();
        if let Some(values) = shared.find(step, inputs) {
            let slots = self.aggregates.slots();
            slots.zip(values).for_each(|(slot, value)| row.slots[slot] = *value);
            return Ok(());
        }
        self.compute(ctx, row, arrival)?;
        let values = self.aggregates.slots().map(|slot| row.slots[slot]);
        shared.insert(step, inputs, ArenaVec::from_iter_in(values, ctx.arena).into_bump_slice());
        Ok(())
    }

    fn compute<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: &mut RowContextMut<'_, 's>,
        arrival: u64,
    ) -> Result<()> {
        let mut scratch = ctx.scans[self.id].borrow_mut();
        let order = match &self.order {
            Some(order) => order.eval(&row.as_row(), ctx.arena).as_i64(),
            None => Some(self.unordered),
        };
        scratch.begin(&self.groups, order);
        let ScanScratch { aggregates, progress } = &mut *scratch;
        self.take_current_row(aggregates, progress, row, ctx.arena);
        if let Some(order) = order {
            let keys = self.keys.iter().map(|key| key.eval(&row.as_row(), ctx.arena));
            let keys: &[_] = ctx.arena.alloc_slice_fill_iter(keys);
            let current = CurrentRowKey { keys, position: RowPosition { order, arrival } };
            let mut block =
                RowBlock::new(&self.aggregates, &self.sources, aggregates, row.slots, ctx.arena);
            self.take_history(&mut block, progress, ctx, current)?;
            block.flush();
        }
        self.aggregates.finalize(aggregates, GroupSet::ALL, row.slots, ctx.arena);
        Ok(())
    }

    /// Adds the current row to the groups whose frames have it.
    fn take_current_row<'s>(
        &'s self,
        scratch: &mut AggregateScratch,
        progress: &mut [FrameProgress],
        row: &mut RowContextMut<'_, 's>,
        arena: &'s Arena,
    ) {
        let mut groups = GroupSet::NONE;
        for (at, (group, progress)) in self.groups.iter().zip(progress).enumerate() {
            if self.with_current_row.contains(at) && !progress.is_done {
                progress.take(group, 1);
                groups |= GroupSet::of(at);
            }
        }
        if !groups.is_empty() {
            self.aggregates.finalize_ended(scratch, groups, row.slots, arena);
            let current = row.as_row();
            self.aggregates.begin_with_current(scratch, groups, &self.inputs, &current, arena);
        }
    }

    /// Takes the rows of all sources, newest first, until no group can take another.
    fn take_history<'s>(
        &'s self,
        block: &mut RowBlock<'_, 's>,
        progress: &mut [FrameProgress],
        ctx: &AnswerContext<'s>,
        current: CurrentRowKey<'s>,
    ) -> Result<()> {
        let Some(bounds) = self.bounds(progress, current.position) else { return Ok(()) };
        let mut merge = Merge::open(self, ctx, current.keys, bounds)?;
        let mut frames = ScanProgress::new(&self.groups, progress, current.position.order);
        let mut seen = 0;
        while let Some(head) = merge.head(ctx)? {
            let Some(span) = frames.span_at(head.order) else { break };
            let rows = merge.take(ctx, block, head, span)?;
            if !frames.pass(rows) {
                break;
            }
            seen += rows;
            if seen >= ROWS_PER_CHECKPOINT {
                seen = 0;
                checkpoint()?;
            }
        }
        merge.finish(ctx, block);
        Ok(())
    }

    /// Returns the bounds of the rows that some group can take; `None` when no group takes more.
    fn bounds(&self, progress: &[FrameProgress], current: RowPosition) -> Option<SourceBounds> {
        let open = || progress.iter().filter(|progress| !progress.is_done);
        let upper = open().map(|progress| progress.upper).max()?;
        let lower = open().map(|progress| progress.lower).min()?;
        let excludes_time = self.groups.iter().all(|group| group.excludes_current_time);
        let newest = if excludes_time { current.order.checked_sub(1)? } else { current.order };
        Some(SourceBounds { upper: Some(upper.min(newest)), lower, before: Some(current) })
    }
}

/// The partition of the current row and its position in the order of the window.
#[derive(Clone, Copy)]
struct CurrentRowKey<'s> {
    keys: &'s [Datum<'s>],
    position: RowPosition,
}

impl ScanSource {
    /// Counts the values of its rows that machine code computes.
    pub(crate) fn machine_values(&self) -> usize {
        let is_machine = |input: &&RowInput| matches!(input, RowInput::Machine { .. });
        self.inputs.lanes.iter().filter(is_machine).count()
    }

    /// Opens a cursor; see [`KeyedSource::open`].
    pub(crate) fn open<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<SourceCursor<'s>> {
        self.source.open(ctx, keys, self.bounds(bounds))
    }

    /// Returns the request row if it is a row of the source; see [`KeyedSource::request_row`].
    pub(crate) fn request_row<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &[Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<Option<SourceRow<'s>>> {
        self.source.request_row(ctx, keys, self.bounds(bounds))
    }

    /// Returns the bounds for this source. Only rows of the current row's own chain can be newer than
    /// it at its own time.
    fn bounds(&self, bounds: SourceBounds) -> SourceBounds {
        SourceBounds { before: bounds.before.filter(|_| self.is_main), ..bounds }
    }
}
