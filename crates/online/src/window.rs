//! A scan: one walk through the rows of an entity key that serves all windows over the same
//! sources, partition and order.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. The sources are merged newest
//! first; each group of calls follows the merged rows with a [`Progress`] of its own, and the walk
//! ends when no group can take another row. Groups are ordered by the reach of their frames, so
//! that those still in progress tend to be the first.
//!
//! Rows are collected into blocks; a block ends where the set of groups that take its rows
//! changes. What the groups compute from a block is in [`crate::fold`], where groups that begin at
//! the same row share states. Where an index includes all that the windows read, whole runs of its
//! slots are taken instead, and the rows are left alone. Runs of several sources are merged by event
//! time; what comes of one source while the groups stay the same is fed at once, which is right as
//! long as no call asks for the order of the rows.
//!
//! # Cost
//!
//! One lookup for each source, and one visit per row in reach of the longest frame; of an index that
//! includes the columns, a binary search per chunk and window, or of several sources a visit per
//! event time, and the records of the rows. Nothing is allocated per row, and states are kept
//! between answers.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::{Arena, Datum};
use lockstep_table::{KeyRows, Run, StoredRow};

use crate::{
    context::{Context, ROWS_PER_CHECKPOINT, checkpoint},
    fold::{CurrentInputs, FoldScratch, Folding, SourceInputs},
    frame::{BoundExpr, Frame, Leaf},
    lane::{BLOCK_ROWS, Buffers, Input, LANE_ROWS},
    progress::{Group, Progress, count_since},
    source::{Bounds, Candidate, Cursor, Met, Order, Rows, Source},
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
    pub(crate) source: Source,
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
                progress.take(group);
                takers |= 1 << at;
            }
        }
        if takers != 0 {
            self.folding.leave(folds, takers, slots, arena);
            let current = Frame { leaf, slots };
            self.folding.add_current(folds, takers, (&self.inputs, &current), arena);
        }
    }

    fn take_history<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        ctx: &Context<'s>,
        current: Current<'s>,
    ) -> Result<()> {
        let Some(bounds) = self.bounds(progress, current) else { return Ok(()) };
        if self.sources.iter().any(|source| source.request.is_some()) {
            let mut requests = ArenaVec::with_capacity_in(self.sources.len(), ctx.arena);
            for source in &self.sources {
                requests.push(source.request_row(ctx, current.keys, bounds)?);
            }
            if requests.iter().any(Option::is_some) {
                let merge = Merge::open(&self.sources, ctx, current.keys, (bounds, &requests))?;
                return self.take_merged(block, progress, (ctx, merge), current.order);
            }
        }
        if let [only] = &self.sources[..] {
            let rows = only.open(ctx, current.keys, bounds)?;
            if !only.inputs.records.is_empty()
                && let Some((rows, order)) = rows.runs(ctx)
            {
                return self.take_runs(block, progress, (rows, order), current.order);
            }
            let (mut seen, mut outcome) = (0, Ok(()));
            rows.visit(ctx, |frame, order| {
                let (takers, goes_on) = self.advance(progress, order, current.order);
                block.push(0, takers, frame);
                seen += 1;
                if seen % ROWS_PER_CHECKPOINT == 0 {
                    outcome = checkpoint();
                }
                goes_on && outcome.is_ok()
            })?;
            return outcome;
        }
        if let Some(streams) = self.streams(ctx, current.keys, bounds)? {
            self.take_streams(block, progress, streams, current.order);
            return Ok(());
        }
        let merge = Merge::open(&self.sources, ctx, current.keys, (bounds, &[]))?;
        self.take_merged(block, progress, (ctx, merge), current.order)
    }

    /// Takes rows of all sources one by one, newest first.
    fn take_merged<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        (ctx, mut merge): (&Context<'s>, Merge<'s>),
        current: i64,
    ) -> Result<()> {
        let mut seen = 0;
        while let Some((source, met)) = merge.next(ctx)? {
            seen += 1;
            if seen % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            // A row of NULL stands among those of the least value, by arrival.
            let Candidate { frame, order: Some(order), .. } = &met.row else { continue };
            let (takers, goes_on) = self.advance(progress, *order, current);
            match &self.sources[source].request {
                Some(inputs) if met.is_request => block.push_request(takers, inputs, frame),
                _ => block.push(source, takers, frame),
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Takes the rows of the only source run by run, from records where there are some.
    fn take_runs<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        (mut rows, order): (KeyRows<'s>, &Order),
        current: i64,
    ) -> Result<()> {
        let mut seen = 0;
        while let Some(run) = rows.next_run() {
            seen += run.len();
            if seen > ROWS_PER_CHECKPOINT {
                seen = 0;
                checkpoint()?;
            }
            rows.prefetch_next_run(&self.sources[0].inputs.fields);
            // NULL stands at the end of time as the least value does.
            let timed = count_since(&run, i64::MIN + 1);
            self.take_run(block, progress, &run.slice(0..timed), current);
            for at in timed..run.len() {
                let row = run.stored_row(at);
                let Some(value) = order.of(&row) else { continue };
                let (takers, _) = self.advance(progress, value, current);
                block.push(0, takers, &stored_frame(row));
            }
            if progress.iter().all(|progress| progress.is_done) {
                break;
            }
        }
        Ok(())
    }

    /// The sources to be merged run by run; `None` where rows have to be asked for something, or
    /// their order among the sources matters.
    fn streams<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Option<ArenaVec<'s, Stream<'s>>>> {
        let is_run = |source: &ScanSource| source.source.run_index().is_some();
        if self.folding.asks_for_order() || !self.sources.iter().all(is_run) {
            return Ok(None);
        }
        let mut streams = ArenaVec::with_capacity_in(self.sources.len(), ctx.arena);
        for source in &self.sources {
            let cursor = source.open(ctx, keys, bounds)?;
            let Some((rows, order)) = cursor.runs(ctx) else { return Ok(None) };
            streams.push(Stream::new(rows, order, &source.inputs));
        }
        Ok(Some(streams))
    }

    /// Takes the rows of several sources, newest first; at equal order values those of the earlier
    /// source first.
    fn take_streams<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        mut streams: ArenaVec<'s, Stream<'s>>,
        current: i64,
    ) {
        let mut takers = 0;
        loop {
            let mut newest: Option<(usize, i64)> = None;
            for (source, stream) in streams.iter().enumerate() {
                if let Some(order) = stream.head
                    && newest.is_none_or(|(_, newest)| order > newest)
                {
                    newest = Some((source, order));
                }
            }
            let Some((source, order)) = newest else { break };
            let (wanted_by, goes_on) = self.advance(progress, order, current);
            if wanted_by != takers {
                for (source, stream) in streams.iter_mut().enumerate() {
                    stream.feed(block, (source, takers));
                }
                takers = wanted_by;
            }
            streams[source].pass(block, (source, takers));
            if !goes_on {
                break;
            }
        }
        for (source, stream) in streams.iter_mut().enumerate() {
            stream.feed(block, (source, takers));
        }
    }

    /// Takes stretches of a run that the same groups take.
    fn take_run<'s>(
        &'s self,
        block: &mut Block<'_, 's>,
        progress: &mut [Progress],
        run: &Run<'s>,
        current: i64,
    ) {
        let groups = self.groups.iter().zip(progress);
        let spans = groups.map(|(group, progress)| progress.span(group, run, current));
        let spans = block.arena.alloc_slice_fill_iter(spans.map(|span| (span.start, span.end)));
        let mut at = 0;
        while at < run.len() {
            let (mut takers, mut until) = (0, run.len());
            for (group, (start, end)) in spans.iter().enumerate() {
                if at < *start {
                    until = until.min(*start);
                } else if at < *end {
                    until = until.min(*end);
                    takers |= 1 << group;
                }
            }
            if takers != 0 {
                block.push_run(0, takers, &run.slice(at..until));
            }
            at = until;
        }
    }

    /// Moves all groups to a row: which take it, a bit each, and whether there can be another.
    #[inline(always)]
    fn advance(&self, progress: &mut [Progress], order: i64, current: i64) -> (u64, bool) {
        if let ([group], [progress]) = (&self.groups[..], &mut *progress) {
            let is_in = progress.advance(group, order, current);
            return (is_in.into(), !progress.is_done);
        }
        let (mut takers, mut goes_on) = (0, false);
        for (at, (group, progress)) in self.groups.iter().zip(progress).enumerate() {
            if progress.is_done {
                continue;
            }
            takers |= u64::from(progress.advance(group, order, current)) << at;
            goes_on |= !progress.is_done;
        }
        (takers, goes_on)
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

/// Rows that the same groups take, from one source.
struct Block<'b, 's> {
    scan: &'s Scan,
    folds: &'b mut FoldScratch,
    /// Where answers go.
    slots: &'b mut [Datum<'s>],
    arena: &'s Arena,
    rows: ArenaVec<'s, Frame<'s, 's>>,
    buffers: Buffers<'s>,
    source: usize,
    takers: u64,
}

impl<'b, 's> Block<'b, 's> {
    fn new(
        scan: &'s Scan,
        folds: &'b mut FoldScratch,
        slots: &'b mut [Datum<'s>],
        arena: &'s Arena,
    ) -> Self {
        let rows = ArenaVec::with_capacity_in(BLOCK_ROWS, arena);
        Self { scan, folds, slots, arena, rows, buffers: Buffers::new(), source: 0, takers: 0 }
    }

    #[inline(always)]
    fn push(&mut self, source: usize, takers: u64, row: &Frame<'s, 's>) {
        if takers == 0 {
            return;
        }
        let differs = takers != self.takers || source != self.source;
        if differs || self.rows.len() == BLOCK_ROWS {
            self.flush();
            (self.source, self.takers) = (source, takers);
        }
        self.scan.sources[source].inputs.prefetch(row);
        self.rows.push(*row);
    }

    /// The request row, which is no stored row: expressions read it.
    fn push_request(&mut self, takers: u64, inputs: &'s CurrentInputs, row: &Frame<'s, 's>) {
        if takers == 0 {
            return;
        }
        self.flush();
        self.scan.folding.leave(self.folds, takers, self.slots, self.arena);
        self.scan.folding.add_current(self.folds, takers, (inputs, row), self.arena);
    }

    /// Rows of one source that follow each other.
    fn push_run(&mut self, source: usize, takers: u64, run: &Run<'s>) {
        let inputs = &self.scan.sources[source].inputs;
        for start in (0..run.len()).step_by(LANE_ROWS) {
            let part = run.slice(start..run.len().min(start + LANE_ROWS));
            let records = part.records().filter(|_| !inputs.records.is_empty());
            let Some(records) = records else {
                let rows = (0..part.len()).map(|at| stored_frame(part.stored_row(at)));
                rows.for_each(|row| self.push(source, takers, &row));
                continue;
            };
            self.flush();
            self.scan.folding.leave(self.folds, takers, self.slots, self.arena);
            let buffers = (&mut self.buffers, self.arena);
            self.scan.folding.add_records(self.folds, takers, (inputs, &part, records), buffers);
        }
    }

    #[inline(never)]
    fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let inputs = &self.scan.sources[self.source].inputs;
        self.scan.folding.leave(self.folds, self.takers, self.slots, self.arena);
        let buffers = (&mut self.buffers, self.arena);
        self.scan.folding.add(self.folds, self.takers, (inputs, &self.rows), buffers);
        self.rows.clear();
    }
}

/// A row of a table that is a row of its source as it is.
fn stored_frame<'s>(row: StoredRow<'s>) -> Frame<'s, 's> {
    Frame { leaf: Leaf::Stored(row.row), slots: &[] }
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

    fn open<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Cursor<'s>> {
        self.source.open(ctx, keys, self.bounds(bounds))
    }

    fn request_row<'s>(
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

/// A source whose runs are merged with those of others.
struct Stream<'s> {
    rows: KeyRows<'s>,
    order: &'s Order,
    inputs: &'s SourceInputs,
    /// The run that was come to.
    run: Option<Run<'s>>,
    /// Its next row.
    next: usize,
    /// From this row of it on, those before the next one were not fed yet.
    waiting: usize,
    /// The order value of the next row; `None` when there is none.
    head: Option<i64>,
}

impl<'s> Stream<'s> {
    fn new(rows: KeyRows<'s>, order: &'s Order, inputs: &'s SourceInputs) -> Self {
        let mut stream = Self { rows, order, inputs, run: None, next: 0, waiting: 0, head: None };
        stream.enter();
        stream
    }

    /// Comes to the next run that has a row whose order value is not NULL.
    fn enter(&mut self) {
        self.head = None;
        while self.head.is_none() {
            self.run = self.rows.next_run();
            self.rows.prefetch_next_run(&self.inputs.fields);
            (self.next, self.waiting) = (0, 0);
            if self.run.is_none() {
                return;
            }
            self.look();
        }
    }

    /// Finds the order value of the next row, past those that have none: NULL stands at the end of
    /// time as the least value does, and among its rows by arrival. None of these waits.
    #[inline]
    fn look(&mut self) {
        self.head = None;
        let Some(run) = &self.run else { return };
        while self.head.is_none() && self.next < run.len() {
            self.head = match run.event_time(self.next) {
                i64::MIN => self.order.of(&run.stored_row(self.next)),
                order => Some(order),
            };
            if self.head.is_none() {
                self.next += 1;
                self.waiting = self.next;
            }
        }
    }

    /// Goes on to the row after the next one, which these groups take.
    #[inline]
    fn pass<'b>(&mut self, block: &mut Block<'b, 's>, to: (usize, u64)) {
        self.next += 1;
        let may_be_null = |run: &Run<'s>| run.event_time(self.next) == i64::MIN;
        if self.run.as_ref().is_some_and(|run| self.next == run.len() || may_be_null(run)) {
            self.feed(block, to);
        }
        self.look();
        if self.head.is_none() {
            self.enter();
        }
    }

    /// Feeds the rows that wait, which are of a source and which these groups take.
    fn feed<'b>(&mut self, block: &mut Block<'b, 's>, (source, takers): (usize, u64)) {
        let waiting = self.waiting..self.next;
        self.waiting = self.next;
        if let Some(run) = self.run.as_ref().filter(|_| takers != 0 && !waiting.is_empty()) {
            block.push_run(source, takers, &run.slice(waiting));
        }
    }
}

/// Several sources as one, newest first; at equal order values the earlier source first.
struct Merge<'s> {
    sources: ArenaVec<'s, (Rows<'s>, Option<Met<'s>>)>,
}

impl<'s> Merge<'s> {
    fn open(
        sources: &'s [ScanSource],
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        (bounds, requests): (Bounds, &[Option<Candidate<'s>>]),
    ) -> Result<Self> {
        let mut merged = ArenaVec::with_capacity_in(sources.len(), ctx.arena);
        for (at, source) in sources.iter().enumerate() {
            let request = requests.get(at).copied().flatten();
            let mut rows = Rows::new(source.open(ctx, keys, bounds)?, request);
            let head = rows.next(ctx)?;
            merged.push((rows, head));
        }
        Ok(Self { sources: merged })
    }

    #[inline]
    fn next(&mut self, ctx: &Context<'s>) -> Result<Option<(usize, Met<'s>)>> {
        let mut newest: Option<(usize, Option<i64>)> = None;
        for (index, (_, head)) in self.sources.iter().enumerate() {
            if let Some(met) = head
                && newest.is_none_or(|(_, order)| met.row.order > order)
            {
                newest = Some((index, met.row.order));
            }
        }
        let Some((index, _)) = newest else { return Ok(None) };
        let (rows, head) = &mut self.sources[index];
        let next = rows.next(ctx)?;
        let met = std::mem::replace(head, next);
        Ok(met.map(|met| (index, met)))
    }
}
