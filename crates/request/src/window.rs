//! A scan: one walk through the rows of an entity key that serves all windows over the same
//! sources, partition and order.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. The sources are merged newest
//! first ([`crate::merge`]), and there is one loop over what they give: rows of one source, as many at
//! once as all groups treat alike ([`crate::progress`]). The walk ends when no group can take another
//! row. Groups are ordered by the reach of their frames, so that those still in progress tend to be
//! the first.
//!
//! Rows are collected into blocks; a block ends where the set of groups that take its rows
//! changes. What the groups compute from a block is in [`crate::fold`], where groups that begin at
//! the same row share states. Where an index includes all that the windows read, whole runs of its
//! slots are taken instead, and the rows are left alone. What comes of one source while the groups
//! stay the same is fed at once, which is right as long as no call asks for the order of the rows.
//!
//! # Cost
//!
//! One lookup for each source, and one visit per row in reach of the longest frame; of an index that
//! includes the columns, a binary search per chunk in which a frame ends, or of several sources a
//! visit per event time, and the records of the rows. What a row is to the groups is decided where
//! that changes: twice for each group. Nothing is allocated per row, and states are kept between
//! answers.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};

use crate::{
    block::Block,
    context::{Context, ROWS_PER_CHECKPOINT, checkpoint},
    fold::{CurrentInputs, FoldScratch, Folding, SourceInputs},
    frame::{BoundExpr, Frame, Leaf},
    lane::Input,
    merge::Merge,
    progress::{Frames, Group, Progress},
    source::{Bounds, Candidate, Cursor, Source},
};

/// The most groups of a scan: a block knows its groups by a bit each.
pub(crate) const GROUPS_MAX: usize = 64;

/// One walk and the windows it serves.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Position among the program's scans.
    pub(crate) id: usize,
    /// The partition of the current row.
    pub(crate) keys: Vec<BoundExpr>,
    /// The order value of the current row; `None` without ORDER BY.
    pub(crate) order: Option<BoundExpr>,
    /// What is read of the current row.
    pub(crate) inputs: CurrentInputs,
    /// The main rows (unless they are left out), then the union sources.
    pub(crate) sources: Vec<ScanSource>,
    /// The windows.
    pub(crate) groups: Vec<Group>,
    /// Those of them that the current row is in, a bit each.
    pub(crate) with_current_row: u64,
    /// What they compute.
    pub(crate) folding: std::sync::Arc<Folding>,
    /// Its number among the steps whose results requests share.
    pub(crate) shared: Option<usize>,
}

/// A source of a scan.
#[derive(Debug)]
pub(crate) struct ScanSource {
    pub(crate) source: std::sync::Arc<Source>,
    /// What is read of its rows.
    pub(crate) inputs: SourceInputs,
    /// What is read of the request row, where it may be one of them.
    pub(crate) request: Option<CurrentInputs>,
    /// Whether these are rows of the current row's own chain.
    pub(crate) is_main: bool,
}

/// What a scan keeps between answers.
pub(crate) struct ScanScratch {
    folds: FoldScratch,
    progress: Vec<Progress>,
}

impl ScanScratch {
    /// Makes the states of a scan.
    pub(crate) fn new(folding: &Folding) -> Self {
        Self { folds: FoldScratch::new(folding), progress: Vec::new() }
    }

    /// About how many bytes are kept for answers to come.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.folds.kept_bytes()
    }

    fn begin(&mut self, groups: &[Group], order: Option<i64>) {
        self.folds.reset();
        self.progress.clear();
        self.progress.extend(groups.iter().map(|group| Progress::new(group, order)));
    }
}

impl Scan {
    /// Computes the windows of the current row into its slots.
    pub(crate) fn run<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        arrival: u64,
        slots: &mut [Datum<'s>],
    ) -> Result<()> {
        let Some((shared, step)) = ctx.shared.zip(self.shared) else {
            return self.compute(ctx, leaf, arrival, slots);
        };
        let current = Frame { leaf, slots };
        let own = self.folding.current_exprs(&self.inputs, self.with_current_row);
        let exprs = self.keys.iter().chain(&self.order).chain(own);
        let inputs = exprs.map(|expr| expr.eval(&current, ctx.arena));
        let inputs = ArenaVec::from_iter_in(inputs, ctx.arena).into_bump_slice();
        if let Some(outputs) = shared.find(step, inputs) {
            self.folding.slots().zip(outputs).for_each(|(slot, value)| slots[slot] = *value);
            return Ok(());
        }
        self.compute(ctx, leaf, arrival, slots)?;
        let outputs = self.folding.slots().map(|slot| slots[slot]);
        shared.keep(step, inputs, ArenaVec::from_iter_in(outputs, ctx.arena).into_bump_slice());
        Ok(())
    }

    fn compute<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        arrival: u64,
        slots: &mut [Datum<'s>],
    ) -> Result<()> {
        let mut scratch = ctx.scans[self.id].borrow_mut();
        let order = match &self.order {
            Some(order) => order.eval(&Frame { leaf, slots }, ctx.arena).as_i64(),
            None => Some(0),
        };
        scratch.begin(&self.groups, order);
        let ScanScratch { folds, progress } = &mut *scratch;
        self.take_current_row(folds, progress, (leaf, slots), ctx.arena);
        if let Some(order) = order {
            let current = Frame { leaf, slots };
            let keys = self.keys.iter().map(|key| key.eval(&current, ctx.arena));
            let keys: &[_] = ctx.arena.alloc_slice_fill_iter(keys);
            let mut block = Block::new(self, folds, slots, ctx.arena);
            self.take_history(&mut block, progress, ctx, Current { keys, order, arrival })?;
            block.flush();
        }
        self.folding.answer(folds, u64::MAX, slots, ctx.arena);
        Ok(())
    }

    fn take_current_row<'s>(
        &'s self,
        folds: &mut FoldScratch,
        progress: &mut [Progress],
        (leaf, slots): (Leaf<'s>, &mut [Datum<'s>]),
        arena: &'s Arena,
    ) {
        let mut takers = 0;
        for (at, (group, progress)) in self.groups.iter().zip(progress).enumerate() {
            if self.with_current_row & 1 << at != 0 && !progress.is_done {
                progress.take(group, 1);
                takers |= 1 << at;
            }
        }
        if takers != 0 {
            self.folding.leave(folds, takers, slots, arena);
            let current = Frame { leaf, slots };
            self.folding.add_current(folds, takers, (&self.inputs, &current), arena);
        }
    }

    /// Walks through the rows of all sources, newest first, as far as some group can take another.
    fn take_history<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        ctx: &Context<'s>,
        current: Current<'s>,
    ) -> Result<()> {
        let Some(bounds) = self.bounds(progress, current) else { return Ok(()) };
        let mut merge = Merge::open(self, ctx, current.keys, bounds)?;
        let mut frames = Frames::new(&self.groups, progress, current.order);
        let mut seen = 0;
        while let Some(head) = merge.head(ctx)? {
            let Some(stage) = frames.reach(head.order) else { break };
            let rows = merge.take(ctx, block, (head, stage))?;
            if !frames.pass(rows) {
                break;
            }
            seen += rows;
            if seen >= ROWS_PER_CHECKPOINT {
                seen = 0;
                checkpoint()?;
            }
        }
        merge.feed(block);
        Ok(())
    }

    /// What the groups still want; `None` when they want nothing.
    fn bounds(&self, progress: &[Progress], current: Current<'_>) -> Option<Bounds> {
        let open = || progress.iter().filter(|progress| !progress.is_done);
        let upper = open().map(|progress| progress.upper).max()?;
        let lower = open().map(|progress| progress.lower).min()?;
        let at_current_time = self.groups.iter().all(|group| group.excludes_current_time);
        let newest = if at_current_time { current.order.checked_sub(1)? } else { current.order };
        Some(Bounds {
            upper: Some(upper.min(newest)),
            lower,
            tie: Some((current.order, current.arrival)),
        })
    }
}

/// Where the current row stands.
#[derive(Clone, Copy)]
struct Current<'s> {
    keys: &'s [Datum<'s>],
    order: i64,
    arrival: u64,
}

impl ScanSource {
    /// How many values of its rows machine code computes.
    pub(crate) fn machine_values(&self) -> usize {
        let is_machine = |input: &&Input| matches!(input, Input::Machine { .. });
        self.inputs.lanes.iter().filter(is_machine).count()
    }

    pub(crate) fn open<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Cursor<'s>> {
        self.source.open(ctx, keys, self.bounds(bounds))
    }

    pub(crate) fn request_row<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &[Datum<'s>],
        bounds: Bounds,
    ) -> Result<Option<Candidate<'s>>> {
        self.source.request_row(ctx, keys, self.bounds(bounds))
    }

    /// Only rows of the current row's own chain can be newer than it at its own time.
    fn bounds(&self, bounds: Bounds) -> Bounds {
        Bounds { tie: bounds.tie.filter(|_| self.is_main), ..bounds }
    }
}
