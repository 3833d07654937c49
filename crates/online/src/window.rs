//! A scan: one walk through the rows of an entity key that serves all windows over the same
//! sources, partition and order.
//!
//! [`lockstep_plan::WindowAggregate`] says which rows a frame holds. The sources are merged newest
//! first; each group of calls follows the merged rows with a [`Progress`] of its own, and the walk
//! ends when no group can take another row. Groups are ordered by the reach of their frames, so
//! that those still in progress tend to be the first.
//!
//! # Cost
//!
//! One lookup for each source, one visit per row in reach of the longest frame, one call per row
//! and accumulator. Nothing is allocated per row: arguments go into one slice per scan, and
//! accumulators are kept between answers.

use std::{fmt, sync::Arc};

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_function::{Accumulator, Feeding, aggregate::MakeAccumulator};
use lockstep_plan::Frame as WindowFrame;
use lockstep_row::{Arena, Datum};

use crate::{
    context::Context,
    frame::{BoundExpr, Frame, Leaf},
    source::{Bounds, Candidate, Cursor, Source},
};

/// One walk and the windows it serves.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Position among the program's scans.
    pub(crate) id: usize,
    /// The partition of the current row.
    pub(crate) keys: Vec<BoundExpr>,
    /// The order value of the current row; `None` without ORDER BY.
    pub(crate) order: Option<BoundExpr>,
    /// The arguments of all calls over the current row.
    pub(crate) arguments: Vec<BoundExpr>,
    /// The main rows (unless they are left out), then the union sources.
    pub(crate) sources: Vec<ScanSource>,
    /// The windows.
    pub(crate) groups: Vec<Group>,
    /// The accumulators of all groups, group by group.
    pub(crate) calls: Arc<[Call]>,
}

/// A source of a scan.
#[derive(Debug)]
pub(crate) struct ScanSource {
    pub(crate) source: Source,
    /// The arguments of all calls over a row of the source.
    pub(crate) arguments: Vec<BoundExpr>,
    /// Whether these are rows of the current row's own chain.
    pub(crate) is_main: bool,
}

/// A window.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) frame: WindowFrame,
    pub(crate) max_size: u64,
    pub(crate) excludes_current_time: bool,
    pub(crate) excludes_current_row: bool,
    /// Its accumulators.
    pub(crate) calls: std::ops::Range<usize>,
}

/// An accumulator and where its value goes.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) make: Arc<MakeAccumulator>,
    /// Its arguments among those of the scan.
    pub(crate) arguments: std::ops::Range<usize>,
    /// Slots of the chain. Several calls that compute the same share an accumulator.
    pub(crate) outputs: Vec<usize>,
}

/// What a scan keeps between answers.
pub(crate) struct ScanScratch {
    accumulators: Vec<Box<dyn Accumulator>>,
    progress: Vec<Progress>,
}

/// How far a group has come. Order values of its frame are in `lower..=upper`; positions count
/// from 0, which is the current row.
#[derive(Debug, Clone, Copy)]
struct Progress {
    position: u64,
    taken: u64,
    upper: i64,
    lower: i64,
    is_done: bool,
}

impl ScanScratch {
    /// Makes the accumulators of a scan.
    pub(crate) fn new(calls: &[Call]) -> Self {
        let accumulators = calls.iter().map(|call| (call.make)(Feeding::NewestFirst)).collect();
        Self { accumulators, progress: Vec::new() }
    }

    fn begin(&mut self, groups: &[Group], order: Option<i64>) {
        for accumulator in &mut self.accumulators {
            accumulator.reset();
        }
        self.progress.clear();
        self.progress.extend(groups.iter().map(|group| Progress::new(group, order)));
    }
}

impl Progress {
    /// Before the first row. `order` is the current row's.
    fn new(group: &Group, order: Option<i64>) -> Self {
        let all = Self { position: 0, taken: 0, upper: i64::MAX, lower: i64::MIN, is_done: false };
        let Some(order) = order else { return all };
        match group.frame {
            WindowFrame::Rows { from, to } => {
                Self { upper: order, is_done: from.is_some_and(|from| from < to), ..all }
            }
            WindowFrame::Range { from, to } => {
                // An end beyond the range of the type is beyond every row.
                let upper = order.checked_sub(to);
                let lower = from.map_or(Some(i64::MIN), |from| {
                    let end = if from < 0 { None } else { Some(i64::MIN) };
                    order.checked_sub(from).or(end)
                });
                let is_done = from.is_some_and(|from| from < to);
                match (upper, lower) {
                    (Some(upper), Some(lower)) => Self { upper, lower, is_done, ..all },
                    _ => Self { is_done: true, ..all },
                }
            }
        }
    }

    /// Moves to the next older row; whether it is in the frame.
    #[inline]
    fn advance(&mut self, group: &Group, order: i64, current: i64) -> bool {
        if group.excludes_current_time && order == current {
            return false;
        }
        self.position += 1;
        let is_in = match group.frame {
            WindowFrame::Rows { from, to } => {
                self.is_done = from.is_some_and(|from| self.position >= from);
                self.position >= to && from.is_none_or(|from| self.position <= from)
            }
            WindowFrame::Range { .. } => {
                self.is_done = order < self.lower;
                order <= self.upper && !self.is_done
            }
        };
        if is_in {
            self.take(group);
        }
        is_in
    }

    #[inline]
    fn take(&mut self, group: &Group) {
        self.taken += 1;
        self.is_done |= self.taken >= group.max_size;
    }
}

impl Group {
    /// Whether the current row is in the frame.
    fn has_current_row(&self) -> bool {
        let reaches_it = match self.frame {
            WindowFrame::Rows { to, .. } => to == 0,
            WindowFrame::Range { from, to } => to <= 0 && from.is_none_or(|from| from >= 0),
        };
        reaches_it && !self.excludes_current_row
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
        let mut scratch = ctx.scans[self.id].borrow_mut();
        let current = Frame { leaf, slots };
        let order = match &self.order {
            Some(order) => order.eval(&current, ctx.arena).as_i64(),
            None => Some(0),
        };
        scratch.begin(&self.groups, order);
        let arguments = ctx.arena.alloc_slice_fill_copy(self.arguments.len(), Datum::Null);
        self.take_current_row(&mut scratch, &current, arguments, ctx.arena);
        if let Some(order) = order {
            let keys = self.keys.iter().map(|key| key.eval(&current, ctx.arena));
            let keys: &[_] = ctx.arena.alloc_slice_fill_iter(keys);
            self.take_history(&mut scratch, ctx, Current { keys, order, arrival }, arguments)?;
        }
        for (call, accumulator) in self.calls.iter().zip(&scratch.accumulators) {
            let value = accumulator.value(ctx.arena);
            for slot in &call.outputs {
                slots[*slot] = value;
            }
        }
        Ok(())
    }

    fn take_current_row<'s>(
        &'s self,
        scratch: &mut ScanScratch,
        current: &Frame<'_, 's>,
        arguments: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        evaluate(&self.arguments, current, arguments, arena);
        for (group, progress) in self.groups.iter().zip(&mut scratch.progress) {
            if group.has_current_row() && !progress.is_done {
                progress.take(group);
                self.add(&mut scratch.accumulators, group, arguments);
            }
        }
    }

    fn take_history<'s>(
        &'s self,
        scratch: &mut ScanScratch,
        ctx: &Context<'s>,
        current: Current<'s>,
        arguments: &mut [Datum<'s>],
    ) -> Result<()> {
        let Some(bounds) = self.bounds(&scratch.progress, current) else { return Ok(()) };
        if let [only] = &self.sources[..] {
            let rows = only.open(ctx, current.keys, bounds)?;
            return rows.visit(ctx, |frame, order| {
                let row = Row { source: only, frame, order, current: current.order };
                self.take_row(scratch, ctx.arena, &row, arguments)
            });
        }
        let mut merge = Merge::open(&self.sources, ctx, current.keys, bounds)?;
        while let Some((source, row)) = merge.next(ctx)? {
            let Candidate { frame, order: Some(order), .. } = &row else { break };
            let source = &self.sources[source];
            let row = Row { source, frame, order: *order, current: current.order };
            if !self.take_row(scratch, ctx.arena, &row, arguments) {
                break;
            }
        }
        Ok(())
    }

    /// Feeds one row to the groups whose frames hold it; whether there can be another.
    #[inline]
    fn take_row<'s>(
        &'s self,
        scratch: &mut ScanScratch,
        arena: &'s Arena,
        row: &Row<'_, 's>,
        arguments: &mut [Datum<'s>],
    ) -> bool {
        if let ([group], [progress]) = (&self.groups[..], &mut scratch.progress[..]) {
            if progress.advance(group, row.order, row.current) {
                self.add_row(&mut scratch.accumulators, row, arguments, arena);
            }
            return !progress.is_done;
        }
        let mut is_evaluated = false;
        let mut goes_on = false;
        for (group, progress) in self.groups.iter().zip(&mut scratch.progress) {
            if progress.is_done {
                continue;
            }
            if progress.advance(group, row.order, row.current) {
                if !is_evaluated {
                    evaluate(&row.source.arguments, row.frame, arguments, arena);
                    is_evaluated = true;
                }
                self.add(&mut scratch.accumulators, group, arguments);
            }
            goes_on |= !progress.is_done;
        }
        goes_on
    }

    /// Feeds a row to the accumulators of the only group. A single argument goes straight from the
    /// row to those that take it, and is not copied.
    #[inline]
    fn add_row<'s>(
        &'s self,
        accumulators: &mut [Box<dyn Accumulator>],
        row: &Row<'_, 's>,
        arguments: &mut [Datum<'s>],
        arena: &'s Arena,
    ) {
        let exprs = &row.source.arguments;
        let mut first = 0;
        while let Some(call) = self.calls.get(first) {
            let range = call.arguments.clone();
            let same = |other: &&Call| other.arguments == range;
            let end = first + self.calls[first..].iter().take_while(same).count();
            let fed = &mut accumulators[first..end];
            if let [expr] = &exprs[range.clone()] {
                let value = expr.eval(row.frame, arena);
                fed.iter_mut().for_each(|fed| fed.add(std::slice::from_ref(&value)));
            } else {
                evaluate(&exprs[range.clone()], row.frame, &mut arguments[range.clone()], arena);
                fed.iter_mut().for_each(|fed| fed.add(&arguments[range.clone()]));
            }
            first = end;
        }
    }

    #[inline]
    fn add(
        &self,
        accumulators: &mut [Box<dyn Accumulator>],
        group: &Group,
        arguments: &[Datum<'_>],
    ) {
        let range = group.calls.clone();
        for (call, accumulator) in self.calls[range.clone()].iter().zip(&mut accumulators[range]) {
            accumulator.add(&arguments[call.arguments.clone()]);
        }
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

/// A row that may belong to frames.
struct Row<'r, 's> {
    source: &'s ScanSource,
    frame: &'r Frame<'s, 's>,
    order: i64,
    /// The current row's order value.
    current: i64,
}

/// Where the current row stands.
#[derive(Clone, Copy)]
struct Current<'s> {
    keys: &'s [Datum<'s>],
    order: i64,
    arrival: u64,
}

impl ScanSource {
    fn open<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Cursor<'s>> {
        // Only rows of the current row's own chain can be newer than it at its own time.
        let tie = bounds.tie.filter(|_| self.is_main);
        self.source.open(ctx, keys, Bounds { tie, ..bounds })
    }
}

#[inline]
fn evaluate<'s>(
    exprs: &'s [BoundExpr],
    frame: &Frame<'_, 's>,
    arguments: &mut [Datum<'s>],
    arena: &'s Arena,
) {
    for (argument, expr) in arguments.iter_mut().zip(exprs) {
        *argument = expr.eval(frame, arena);
    }
}

/// Several sources as one, newest first; at equal order values the earlier source first.
struct Merge<'s> {
    cursors: ArenaVec<'s, (Cursor<'s>, Option<Candidate<'s>>)>,
}

impl<'s> Merge<'s> {
    fn open(
        sources: &'s [ScanSource],
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Self> {
        let mut cursors = ArenaVec::with_capacity_in(sources.len(), ctx.arena);
        for source in sources {
            let mut cursor = source.open(ctx, keys, bounds)?;
            let head = cursor.next(ctx)?;
            cursors.push((cursor, head));
        }
        Ok(Self { cursors })
    }

    #[inline]
    fn next(&mut self, ctx: &Context<'s>) -> Result<Option<(usize, Candidate<'s>)>> {
        let mut newest: Option<(usize, Option<i64>)> = None;
        for (index, (_, head)) in self.cursors.iter().enumerate() {
            if let Some(row) = head
                && newest.is_none_or(|(_, order)| row.order > order)
            {
                newest = Some((index, row.order));
            }
        }
        let Some((index, _)) = newest else { return Ok(None) };
        let (cursor, head) = &mut self.cursors[index];
        let next = cursor.next(ctx)?;
        let row = std::mem::replace(head, next);
        Ok(row.map(|row| (index, row)))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}
