//! The rows of all sources of a scan as one sequence, newest first; at equal order values those of
//! the earlier source first.
//!
//! Each source is a stream, which says the order value of its next row and gives rows on request: as
//! many of them as the groups treat alike and no other stream has one in between. What the rows come
//! from differs: runs of an index, stored rows, computed rows, the request row. `window` asks; which
//! groups take the rows is decided in [`crate::progress`].
//!
//! # Cost
//!
//! A comparison per stream wherever the stream changes. Streams of runs search for the end of what
//! they give and feed it when it ends, or the groups that take it change, however rows of other
//! streams lie between (ADR 0016); where a call asks for the order of rows, also when another stream
//! has its turn.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::Datum;
use lockstep_table::{KeyRows, KeyRun, StoredRow};

use crate::{
    block::{Block, stored_frame},
    context::{Context, ROWS_PER_CHECKPOINT},
    fold::{CurrentInputs, SourceInputs},
    frame::Frame,
    progress::Stage,
    source::{Bounds, Candidate, Cursor, Order, Walk},
    window::{Scan, ScanSource},
};

/// Several sources as one.
pub(crate) struct Merge<'s> {
    /// The order value of the next row of each stream; `None`: there is no row.
    heads: ArenaVec<'s, Option<i64>>,
    /// The stream whose next row is not known.
    not_known: Option<usize>,
    streams: ArenaVec<'s, Stream<'s>>,
    /// Whether rows are to be fed in their order.
    keeps_order: bool,
    /// The groups that take what was taken last, a bit each.
    takers: u64,
    /// The stream of what was taken last.
    last: usize,
}

/// The next row of a [`Merge`].
#[derive(Clone, Copy)]
pub(crate) struct Head {
    stream: usize,
    pub(crate) order: i64,
    /// Rows of the stream come before those of the others down to this order value.
    lowest: i64,
}

/// What is known of the next row of a stream.
#[derive(Clone, Copy)]
enum Next {
    /// Nothing: it may have to be computed.
    NotKnown,
    /// Its order value; `None`: there is no row.
    Known(Option<i64>),
}

/// How many rows are to be taken of a stream: as many as there are of `lowest` or newer, of which
/// the next one is, but not more than `rows`, which is not 0.
#[derive(Clone, Copy)]
struct Limit {
    rows: usize,
    lowest: i64,
}

impl<'s> Merge<'s> {
    /// Begins at the newest wanted rows of a key.
    pub(crate) fn open(
        scan: &'s Scan,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Self> {
        let keeps_order = scan.folding.asks_for_order();
        let defers = scan.sources.len() > 1 && !keeps_order;
        let mut streams = ArenaVec::with_capacity_in(scan.sources.len(), ctx.arena);
        for (at, source) in scan.sources.iter().enumerate() {
            // It is the newest at its time.
            if let Some(inputs) = &source.request
                && let Some(row) = source.request_row(ctx, keys, bounds)?
            {
                streams.push(Stream::new(at, Rows::Request { row: Some(row), inputs }));
            }
            let takes_runs = defers || !source.inputs.records.is_empty();
            let cursor = source.open(ctx, keys, bounds)?;
            streams.push(Stream::new(at, Rows::new(ctx, source, cursor, takes_runs)));
        }
        let mut heads = ArenaVec::with_capacity_in(streams.len(), ctx.arena);
        for stream in &mut streams {
            heads.push(stream.look(ctx)?);
        }
        Ok(Self { heads, not_known: None, streams, keeps_order, takers: 0, last: 0 })
    }

    /// Where the next row is.
    #[inline]
    pub(crate) fn head(&mut self, ctx: &Context<'s>) -> Result<Option<Head>> {
        if let Some(stream) = self.not_known {
            self.heads[stream] = self.streams[stream].look(ctx)?;
            self.not_known = None;
        }
        Ok(self.newest())
    }

    #[inline]
    fn newest(&self) -> Option<Head> {
        let mut newest: Option<Head> = None;
        for (stream, order) in self.heads.iter().enumerate() {
            let Some(order) = *order else { continue };
            match &mut newest {
                // At equal order values the earlier stream comes first.
                Some(head) if order <= head.order => head.lowest = head.lowest.max(order),
                Some(head) => *head = Head { stream, order, lowest: head.order + 1 },
                None => newest = Some(Head { stream, order, lowest: i64::MIN }),
            }
        }
        newest
    }

    /// Takes rows for which the stage holds, from the next one on; how many.
    #[inline]
    pub(crate) fn take(
        &mut self,
        ctx: &Context<'s>,
        block: &mut Block<'_, 's>,
        (mut head, stage): (Head, Stage),
    ) -> Result<usize> {
        if stage.takers != self.takers {
            self.feed(block);
            self.takers = stage.takers;
        }
        let rows = usize::try_from(stage.rows).unwrap_or(usize::MAX).min(ROWS_PER_CHECKPOINT);
        let mut taken = 0;
        loop {
            if self.keeps_order && head.stream != self.last {
                self.streams[self.last].feed(block, self.takers);
                self.last = head.stream;
            }
            let limit = Limit { rows: rows - taken, lowest: stage.lowest.max(head.lowest) };
            let stream = &mut self.streams[head.stream];
            let (count, next) = stream.take(ctx, (block, self.takers), limit)?;
            taken += count;
            match next {
                Next::Known(order) => self.heads[head.stream] = order,
                Next::NotKnown => self.not_known = Some(head.stream),
            }
            if taken == rows {
                return Ok(taken);
            }
            match self.head(ctx)? {
                Some(next) if next.order >= stage.lowest => head = next,
                _ => return Ok(taken),
            }
        }
    }

    /// Feeds what was taken and waits.
    pub(crate) fn feed(&mut self, block: &mut Block<'_, 's>) {
        for stream in &mut self.streams {
            stream.feed(block, self.takers);
        }
    }
}

/// The rows of a source on their way into the merge.
struct Stream<'s> {
    /// Which source it is.
    source: usize,
    rows: Rows<'s>,
}

/// What the rows of a stream come from.
enum Rows<'s> {
    /// Runs of an index.
    Runs(Runs<'s>),
    /// Rows of a table, and the next one.
    Stored { walk: Walk<'s>, next: Option<StoredRow<'s>> },
    /// Rows that are computed, and the next one.
    Computed { cursor: Cursor<'s>, next: Option<Frame<'s, 's>> },
    /// The request row, as a row of the source.
    Request { row: Option<Candidate<'s>>, inputs: &'s CurrentInputs },
}

impl<'s> Rows<'s> {
    // Here and below: what is made is large, and would be moved once more by each call.
    #[inline(always)]
    fn new(
        ctx: &Context<'s>,
        source: &'s ScanSource,
        cursor: Cursor<'s>,
        takes_runs: bool,
    ) -> Self {
        let walk = match cursor {
            Cursor::Walk(walk) if walk.is_plain() => walk,
            cursor => return Self::Computed { cursor, next: None },
        };
        match &source.source.order {
            order @ Order::Index { .. } if takes_runs => {
                Self::Runs(Runs::new(walk.into_runs(ctx), order, &source.inputs))
            }
            _ => Self::Stored { walk, next: None },
        }
    }

    /// Takes rows one by one; see [`Stream::take`].
    #[inline(never)]
    fn take(
        &mut self,
        ctx: &Context<'s>,
        block: &mut Block<'_, 's>,
        (source, takers): (usize, u64),
        limit: Limit,
    ) -> Result<(usize, Next)> {
        let mut taken = 0;
        match self {
            Self::Runs(runs) => Ok(runs.take(block, (source, takers), limit)),
            Self::Stored { walk, next } => {
                let Some(mut row) = next.take() else { return Ok((0, Next::Known(None))) };
                loop {
                    block.push(source, takers, &stored_frame(row));
                    taken += 1;
                    if taken == limit.rows {
                        return Ok((taken, Next::NotKnown));
                    }
                    match walk.next_stored() {
                        Some((older, Some(order))) if order >= limit.lowest => row = older,
                        Some((older, order)) => {
                            *next = Some(older);
                            return Ok((taken, Next::Known(order)));
                        }
                        None => return Ok((taken, Next::Known(None))),
                    }
                }
            }
            Self::Computed { cursor, next } => {
                let Some(row) = next.take() else { return Ok((0, Next::Known(None))) };
                block.push(source, takers, &row);
                taken += 1;
                while taken < limit.rows {
                    match cursor.next(ctx)? {
                        Some(Candidate { frame, order: Some(order), .. })
                            if order >= limit.lowest =>
                        {
                            block.push(source, takers, &frame);
                            taken += 1;
                        }
                        Some(row) => {
                            *next = Some(row.frame);
                            return Ok((taken, Next::Known(row.order)));
                        }
                        None => return Ok((taken, Next::Known(None))),
                    }
                }
                Ok((taken, Next::NotKnown))
            }
            Self::Request { row, inputs } => {
                let row = row.take();
                row.iter().for_each(|row| block.push_request(takers, inputs, &row.frame));
                Ok((1, Next::Known(None)))
            }
        }
    }
}

impl<'s> Stream<'s> {
    #[inline(always)]
    fn new(source: usize, rows: Rows<'s>) -> Self {
        Self { source, rows }
    }

    /// Looks for the next row.
    #[inline(never)]
    fn look(&mut self, ctx: &Context<'s>) -> Result<Option<i64>> {
        Ok(match &mut self.rows {
            Rows::Runs(runs) => runs.look(),
            Rows::Stored { walk, next } => {
                let (row, order) = walk.next_stored().unzip();
                *next = row;
                order.flatten()
            }
            Rows::Computed { cursor, next } => {
                let row = cursor.next(ctx)?;
                *next = row.map(|row| row.frame);
                row.and_then(|row| row.order)
            }
            Rows::Request { row, .. } => row.and_then(|row| row.order),
        })
    }

    /// Takes rows, from the next one on, which these groups take: how many, and what is next.
    #[inline]
    fn take(
        &mut self,
        ctx: &Context<'s>,
        (block, takers): (&mut Block<'_, 's>, u64),
        limit: Limit,
    ) -> Result<(usize, Next)> {
        match &mut self.rows {
            Rows::Runs(runs) => Ok(runs.take(block, (self.source, takers), limit)),
            rows => rows.take(ctx, block, (self.source, takers), limit),
        }
    }

    /// Feeds the rows that wait, which these groups take.
    #[inline]
    fn feed(&mut self, block: &mut Block<'_, 's>, takers: u64) {
        if let Rows::Runs(runs) = &mut self.rows {
            runs.feed(block, (self.source, takers));
        }
    }
}

/// The runs of a key in an index by event time.
struct Runs<'s> {
    rows: KeyRows<'s>,
    order: &'s Order,
    inputs: &'s SourceInputs,
    /// The run that was come to.
    run: Option<KeyRun<'s>>,
    /// How many of its rows have an event time above the least, at which NULL stands, too.
    timed: usize,
    /// Its next row.
    next: usize,
    /// From this row of it on, those before the next one were taken but not fed yet.
    waiting: usize,
}

impl<'s> Runs<'s> {
    #[inline(always)]
    fn new(rows: KeyRows<'s>, order: &'s Order, inputs: &'s SourceInputs) -> Self {
        Self { rows, order, inputs, run: None, timed: 0, next: 0, waiting: 0 }
    }

    /// The order value of the next row, which may be in the next run.
    fn look(&mut self) -> Option<i64> {
        loop {
            let next = self.run.as_ref().and_then(|run| self.row_of(run));
            if let Some((at, order)) = next {
                if at > self.next {
                    // Rows of NULL are passed over; nothing waits before them.
                    (self.next, self.waiting) = (at, at);
                }
                return Some(order);
            }
            let run = self.rows.next_run()?;
            self.rows.prefetch_next_run(&self.inputs.fields);
            (self.timed, self.next, self.waiting) = (count_since(&run, i64::MIN + 1), 0, 0);
            self.run = Some(run);
        }
    }

    /// The next row of the run whose order value is not NULL, and its order value.
    #[inline]
    fn row_of(&self, run: &KeyRun<'s>) -> Option<(usize, i64)> {
        if self.next < self.timed {
            return Some((self.next, run.event_time(self.next)));
        }
        let mut rest = self.next..run.len();
        rest.find_map(|at| Some((at, self.order.of(&run.stored_row(at))?)))
    }

    /// See [`Stream::take`]. A row of the least event time is taken alone: the next one may be NULL.
    #[inline]
    fn take<'b>(
        &mut self,
        block: &mut Block<'b, 's>,
        to: (usize, u64),
        limit: Limit,
    ) -> (usize, Next) {
        let start = self.next;
        if let Some(run) = self.run.as_ref().filter(|_| start + 1 < self.timed) {
            let second = run.event_time(start + 1);
            // Streams tend to take turns.
            if second < limit.lowest || limit.rows == 1 {
                self.next += 1;
                return (1, Next::Known(Some(second)));
            }
            let end = start + (self.timed - start).min(limit.rows);
            self.next = if run.event_time(end - 1) >= limit.lowest {
                end
            } else {
                start + count_since(&run.slice(start..end), limit.lowest)
            };
            if self.next < self.timed {
                return (self.next - start, Next::Known(Some(run.event_time(self.next))));
            }
        } else {
            self.next += 1;
        }
        self.feed(block, to);
        (self.next - start, Next::NotKnown)
    }

    #[inline(never)]
    fn feed<'b>(&mut self, block: &mut Block<'b, 's>, (source, takers): (usize, u64)) {
        let waiting = self.waiting..self.next;
        self.waiting = self.next;
        if let Some(run) = self.run.as_ref().filter(|_| takers != 0 && !waiting.is_empty()) {
            block.push_run(source, takers, &run.slice(waiting));
        }
    }
}

/// How many of the newest rows of a run are of this order value or newer.
fn count_since(run: &KeyRun<'_>, order: i64) -> usize {
    // Most runs lie within a frame as a whole.
    match run.len().checked_sub(1) {
        Some(oldest) if run.event_time(oldest) < order => {
            run.partition_point(|of_row| of_row >= order)
        }
        _ => run.len(),
    }
}
