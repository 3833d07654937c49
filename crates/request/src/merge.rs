//! A merge of the sources of a scan into one sequence of rows, newest first; at equal order values
//! the rows of the earlier source come first.
//!
//! Each source is a stream, which knows the order value of its next row and gives several rows at
//! once: as many as the window groups treat alike and no other stream has a row between. Rows come
//! from runs of an index, from stored rows, from computed rows, or are the request row.
//! [`crate::window`] takes them; [`crate::progress`] decides which groups take which rows.
//!
//! # Cost
//!
//! A comparison for each stream wherever the stream changes. A stream of runs finds by binary search
//! where the rows that it gives end, and adds them to the groups when the run ends or the groups
//! change, even if rows of other streams lie between (ADR 0016). Where a call depends on the order of
//! rows, it also adds them when another stream takes over.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::Datum;
use lockstep_table::{KeyNodes, KeyRows, KeyRun, NodeSpan, StoredRow};

use crate::{
    block::{RowBlock, stored_row},
    context::{AnswerContext, ROWS_PER_CHECKPOINT},
    groups::GroupSet,
    inputs::{CurrentInputs, SourceInputs},
    pre_aggregate::{NodeDictionaries, PreAggregate},
    progress::FrameSpan,
    row_context::RowContext,
    source::{IndexCursor, Order, SourceBounds, SourceCursor, SourceRow},
    window::{ScanSource, WindowScan},
};

/// The rows of several sources in one order.
pub(crate) struct Merge<'s> {
    /// The order value of the next row of each stream; `None`: there is no row.
    heads: ArenaVec<'s, Option<i64>>,
    /// The stream whose entry in `heads` is out of date.
    unread: Option<usize>,
    streams: ArenaVec<'s, MergeStream<'s>>,
    /// Whether rows have to be added to the groups in their order.
    keeps_order: bool,
    /// The groups that the last rows were taken for.
    groups: GroupSet,
    /// The stream of the last rows.
    last: usize,
}

/// The next row of a [`Merge`].
#[derive(Clone, Copy)]
pub(crate) struct MergeHead {
    stream: usize,
    pub(crate) order: i64,
    /// Rows of the stream come before those of the others down to this order value.
    lowest: i64,
}

/// What is known of the next row of a stream.
#[derive(Clone, Copy)]
enum NextRow {
    /// Nothing: it may have to be computed.
    Unread,
    /// Its order value; `None`: there is no row.
    Read(Option<i64>),
}

/// How many rows to take of a stream: those whose order value is `lowest` or newer, of which the
/// next one is, but not more than `rows`, which is not 0.
#[derive(Clone, Copy)]
struct TakeLimit {
    rows: usize,
    lowest: i64,
    /// How many rows to take at most where nodes are taken in place of rows.
    node_rows: u64,
    /// No node with an older row is taken.
    node_lowest: i64,
}

/// The outcome of taking rows of a stream.
#[derive(Clone, Copy)]
struct RowsTaken {
    /// How many rows were taken.
    rows: usize,
    next: NextRow,
}

impl<'s> Merge<'s> {
    /// Opens all sources at the newest row of a key within the bounds.
    pub(crate) fn open(
        scan: &'s WindowScan,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<Self> {
        let keeps_order = scan.aggregates.depends_on_order();
        let defers = scan.sources.len() > 1 && !keeps_order;
        let mut streams = ArenaVec::with_capacity_in(scan.sources.len(), ctx.arena);
        for (position, source) in scan.sources.iter().enumerate() {
            // The request row is the newest row at its time.
            if let Some(inputs) = &source.request
                && let Some(row) = source.request_row(ctx, keys, bounds)?
            {
                let rows = StreamRows::Request { row: Some(row), inputs };
                streams.push(MergeStream::new(position, rows));
            }
            let pre_aggregate = scan.pre_aggregates[position].as_deref();
            let pre_aggregate = pre_aggregate.filter(|_| ctx.takes_nodes);
            let takes_runs = defers || source.inputs.records.is_some() || pre_aggregate.is_some();
            let cursor = source.open(ctx, keys, bounds)?;
            let mut rows = StreamRows::new(ctx, source, cursor, takes_runs);
            if let (Some(pre_aggregate), StreamRows::Runs(runs)) = (pre_aggregate, &mut rows) {
                runs.nodes = Some(StreamNodes::open(ctx, source, keys, pre_aggregate));
            }
            streams.push(MergeStream::new(position, rows));
        }
        let mut heads = ArenaVec::with_capacity_in(streams.len(), ctx.arena);
        for stream in &mut streams {
            heads.push(stream.read_next(ctx)?);
        }
        Ok(Self { heads, unread: None, streams, keeps_order, groups: GroupSet::NONE, last: 0 })
    }

    /// Finds the next row; `None` after the last one.
    #[inline]
    pub(crate) fn head(&mut self, ctx: &AnswerContext<'s>) -> Result<Option<MergeHead>> {
        if let Some(stream) = self.unread {
            self.heads[stream] = self.streams[stream].read_next(ctx)?;
            self.unread = None;
        }
        Ok(self.newest())
    }

    #[inline]
    fn newest(&self) -> Option<MergeHead> {
        let mut newest: Option<MergeHead> = None;
        for (stream, order) in self.heads.iter().enumerate() {
            let Some(order) = *order else { continue };
            match &mut newest {
                // At equal order values the earlier stream comes first.
                Some(head) if order <= head.order => head.lowest = head.lowest.max(order),
                Some(head) => *head = MergeHead { stream, order, lowest: head.order + 1 },
                None => newest = Some(MergeHead { stream, order, lowest: i64::MIN }),
            }
        }
        newest
    }

    /// Takes rows of a span of the frames, from `head` on, and returns how many.
    #[inline]
    pub(crate) fn take(
        &mut self,
        ctx: &AnswerContext<'s>,
        block: &mut RowBlock<'_, 's>,
        mut head: MergeHead,
        span: FrameSpan,
    ) -> Result<usize> {
        debug_assert!(span.contains(head.order), "the next row is in the span");
        if span.groups != self.groups {
            self.flush(block);
            self.groups = span.groups;
        }
        let rows = usize::try_from(span.rows).unwrap_or(usize::MAX).min(ROWS_PER_CHECKPOINT);
        let mut taken = 0;
        loop {
            if self.keeps_order && head.stream != self.last {
                self.streams[self.last].flush(block, self.groups);
                self.last = head.stream;
            }
            let lowest = span.lowest.max(head.lowest);
            // Rows of other sources may lie between, where neither their order nor their number matters.
            let mixes = !self.keeps_order && span.is_unlimited();
            let limit = TakeLimit {
                rows: rows - taken,
                lowest,
                node_rows: span.rows - taken as u64,
                node_lowest: if mixes { span.lowest } else { lowest },
            };
            let stream = &mut self.streams[head.stream];
            let of_stream = stream.take(ctx, block, self.groups, limit)?;
            debug_assert!(of_stream.rows > 0, "at least the next row");
            debug_assert!(of_stream.rows as u64 <= limit.node_rows, "no more than the span has");
            taken += of_stream.rows;
            match of_stream.next {
                NextRow::Read(order) => self.heads[head.stream] = order,
                NextRow::Unread => self.unread = Some(head.stream),
            }
            if taken >= rows {
                return Ok(taken);
            }
            match self.head(ctx)? {
                Some(next) if next.order >= span.lowest => head = next,
                _ => return Ok(taken),
            }
        }
    }

    /// Adds the rows that were taken and not added yet.
    fn flush(&mut self, block: &mut RowBlock<'_, 's>) {
        for stream in &mut self.streams {
            stream.flush(block, self.groups);
        }
    }

    /// Ends the merge, and adds the rows that were taken and not added yet.
    pub(crate) fn finish(mut self, ctx: &AnswerContext<'s>, block: &mut RowBlock<'_, 's>) {
        self.flush(block);
        for stream in &self.streams {
            if let StreamRows::Runs(IndexRuns { nodes: Some(nodes), .. }) = &stream.rows {
                nodes.finish(ctx);
            }
        }
    }
}

/// The rows of a source on their way into the merge.
struct MergeStream<'s> {
    /// The position of the source in the scan.
    source: usize,
    rows: StreamRows<'s>,
}

/// Where the rows of a stream come from.
enum StreamRows<'s> {
    /// Runs of an index.
    Runs(IndexRuns<'s>),
    /// Rows of a table, and the next one.
    Stored { cursor: IndexCursor<'s>, next: Option<StoredRow<'s>> },
    /// Rows that are computed, and the next one.
    Computed { cursor: SourceCursor<'s>, next: Option<RowContext<'s, 's>> },
    /// The request row, as a row of the source.
    Request { row: Option<SourceRow<'s>>, inputs: &'s CurrentInputs },
}

impl<'s> StreamRows<'s> {
    // Inlined here and below: the values are large, and each call would move them once more.
    #[inline(always)]
    fn new(
        ctx: &AnswerContext<'s>,
        source: &'s ScanSource,
        cursor: SourceCursor<'s>,
        takes_runs: bool,
    ) -> Self {
        let cursor = match cursor {
            SourceCursor::Index(cursor) if cursor.is_plain() => cursor,
            cursor => return Self::Computed { cursor, next: None },
        };
        if takes_runs && cursor.takes_runs(ctx) {
            let order = &source.source.order;
            Self::Runs(IndexRuns::new(cursor.into_runs(ctx), order, &source.inputs))
        } else {
            Self::Stored { cursor, next: None }
        }
    }

    /// Takes rows one by one; see [`MergeStream::take`].
    #[inline(never)]
    fn take(
        &mut self,
        ctx: &AnswerContext<'s>,
        block: &mut RowBlock<'_, 's>,
        source: usize,
        groups: GroupSet,
        limit: TakeLimit,
    ) -> Result<RowsTaken> {
        let mut rows = 0;
        match self {
            Self::Runs(runs) => Ok(runs.take(block, source, groups, limit)),
            Self::Stored { cursor, next } => {
                let Some(mut row) = next.take() else { return Ok(RowsTaken::NONE) };
                loop {
                    block.push(source, groups, &stored_row(row));
                    rows += 1;
                    if rows == limit.rows {
                        return Ok(RowsTaken { rows, next: NextRow::Unread });
                    }
                    match cursor.next_stored()? {
                        Some((older, Some(order))) if order >= limit.lowest => row = older,
                        Some((older, order)) => {
                            *next = Some(older);
                            return Ok(RowsTaken { rows, next: NextRow::Read(order) });
                        }
                        None => return Ok(RowsTaken { rows, next: NextRow::Read(None) }),
                    }
                }
            }
            Self::Computed { cursor, next } => {
                let Some(row) = next.take() else { return Ok(RowsTaken::NONE) };
                block.push(source, groups, &row);
                rows += 1;
                while rows < limit.rows {
                    match cursor.next(ctx)? {
                        Some(SourceRow { row, order: Some(order), .. })
                            if order >= limit.lowest =>
                        {
                            block.push(source, groups, &row);
                            rows += 1;
                        }
                        Some(older) => {
                            *next = Some(older.row);
                            return Ok(RowsTaken { rows, next: NextRow::Read(older.order) });
                        }
                        None => return Ok(RowsTaken { rows, next: NextRow::Read(None) }),
                    }
                }
                Ok(RowsTaken { rows, next: NextRow::Unread })
            }
            Self::Request { row, inputs } => {
                let row = row.take();
                row.iter().for_each(|row| block.push_request(groups, inputs, &row.row));
                Ok(RowsTaken { rows: 1, next: NextRow::Read(None) })
            }
        }
    }
}

impl RowsTaken {
    /// There was no row.
    const NONE: Self = Self { rows: 0, next: NextRow::Read(None) };
}

impl<'s> MergeStream<'s> {
    #[inline(always)]
    fn new(source: usize, rows: StreamRows<'s>) -> Self {
        Self { source, rows }
    }

    /// Reads the next row and returns its order value; `None`: there is no row.
    #[inline(never)]
    fn read_next(&mut self, ctx: &AnswerContext<'s>) -> Result<Option<i64>> {
        Ok(match &mut self.rows {
            StreamRows::Runs(runs) => runs.read_next()?,
            StreamRows::Stored { cursor, next } => {
                let (row, order) = cursor.next_stored()?.unzip();
                *next = row;
                order.flatten()
            }
            StreamRows::Computed { cursor, next } => {
                let row = cursor.next(ctx)?;
                *next = row.map(|row| row.row);
                row.and_then(|row| row.order)
            }
            StreamRows::Request { row, .. } => row.and_then(|row| row.order),
        })
    }

    /// Takes rows for these groups, from the next one on.
    #[inline]
    fn take(
        &mut self,
        ctx: &AnswerContext<'s>,
        block: &mut RowBlock<'_, 's>,
        groups: GroupSet,
        limit: TakeLimit,
    ) -> Result<RowsTaken> {
        match &mut self.rows {
            StreamRows::Runs(runs) => Ok(runs.take(block, self.source, groups, limit)),
            rows => rows.take(ctx, block, self.source, groups, limit),
        }
    }

    /// Adds the rows that were taken for these groups and not added yet.
    #[inline]
    fn flush(&mut self, block: &mut RowBlock<'_, 's>, groups: GroupSet) {
        if let StreamRows::Runs(runs) = &mut self.rows {
            runs.flush(block, self.source, groups);
        }
    }
}

/// The runs of a key in an index by event time.
///
/// Rows `flushed..next` of the current run were taken and are not added to the groups yet.
struct IndexRuns<'s> {
    rows: KeyRows<'s>,
    order: &'s Order,
    inputs: &'s SourceInputs,
    /// The current run; `None` before the first.
    run: Option<KeyRun<'s>>,
    /// How many of its rows have an event time above the least one, which NULL is stored as, too; all where
    /// NULL is in the order like any other value.
    timed: usize,
    /// Its next row.
    next: usize,
    /// The first row that is not added yet.
    flushed: usize,
    /// All rows with a smaller event time are still to be taken.
    below: i64,
    /// The nodes that may be taken in place of rows.
    nodes: Option<StreamNodes<'s>>,
}

/// The nodes of a key, in place of rows of a stream.
struct StreamNodes<'s> {
    /// `None` where the key has none.
    nodes: Option<KeyNodes<'s>>,
    pre_aggregate: &'s PreAggregate,
    source: &'s ScanSource,
    keys: &'s [Datum<'s>],
    /// Rows with a smaller arrival are visible.
    visible: u64,
    /// Down to this event time rows are read.
    read_until: i64,
    /// How many rows were taken as nodes, and how many were read.
    rows_in_nodes: u64,
    rows_read: u64,
}

impl<'s> StreamNodes<'s> {
    fn open(
        ctx: &AnswerContext<'s>,
        source: &'s ScanSource,
        keys: &'s [Datum<'s>],
        pre_aggregate: &'s PreAggregate,
    ) -> Self {
        let nodes = source.source.nodes(ctx, keys, pre_aggregate.levels());
        let visible = source.source.visible_arrival(ctx);
        let read_until = if nodes.is_some() { i64::MAX } else { i64::MIN };
        Self {
            nodes,
            pre_aggregate,
            source,
            keys,
            visible,
            read_until,
            rows_in_nodes: 0,
            rows_read: 0,
        }
    }

    /// Reports what was read.
    fn finish(&self, ctx: &AnswerContext<'s>) {
        self.pre_aggregate.note(self.rows_in_nodes, self.rows_read, || {
            self.nodes.is_none().then(|| self.source.source.index_key(ctx, self.keys))
        });
    }
}

impl<'s> IndexRuns<'s> {
    #[inline(always)]
    fn new((rows, below): (KeyRows<'s>, i64), order: &'s Order, inputs: &'s SourceInputs) -> Self {
        Self { rows, order, inputs, run: None, timed: 0, next: 0, flushed: 0, below, nodes: None }
    }

    /// Finds the next row, which may be in the next run, and returns its order value.
    fn read_next(&mut self) -> Result<Option<i64>> {
        loop {
            let next = self.run.as_ref().and_then(|run| self.row_of(run));
            if let Some((row, order)) = next {
                if row > self.next {
                    // Rows of NULL are skipped; no row before them is to be added.
                    (self.next, self.flushed) = (row, row);
                }
                return Ok(Some(order));
            }
            let Some(run) = self.rows.next_run()? else { return Ok(None) };
            let fields = self.inputs.records.as_ref().map(|records| &records.fields[..]);
            self.rows.prefetch_next_run(fields.unwrap_or_default());
            let timed = match self.order {
                Order::Stored => run.len(),
                _ => count_since(&run, i64::MIN + 1),
            };
            (self.timed, self.next, self.flushed) = (timed, 0, 0);
            self.run = Some(run);
        }
    }

    /// Finds the next row of the run whose order value is not NULL, and its order value.
    #[inline]
    fn row_of(&self, run: &KeyRun<'s>) -> Option<(usize, i64)> {
        if self.next < self.timed {
            return Some((self.next, run.event_time(self.next)));
        }
        let mut rest = self.next..run.len();
        rest.find_map(|row| Some((row, self.order.of(&run.stored_row(row))?)))
    }

    /// Takes rows; see [`MergeStream::take`]. A row of the least event time is taken by itself: the
    /// one after it may be NULL.
    #[inline]
    fn take<'b>(
        &mut self,
        block: &mut RowBlock<'b, 's>,
        source: usize,
        groups: GroupSet,
        mut limit: TakeLimit,
    ) -> RowsTaken {
        if self.nodes.is_some() {
            if let Some(taken) = self.take_nodes(block, source, groups, limit) {
                return taken;
            }
            let read_until = self.nodes.as_ref().map_or(i64::MIN, |nodes| nodes.read_until);
            limit.lowest = limit.lowest.max(read_until);
            let taken = self.take_rows(block, source, groups, limit);
            if let (Some(run), Some(last)) = (&self.run, self.next.checked_sub(1)) {
                self.below = run.event_time(last);
            }
            return taken;
        }
        self.take_rows(block, source, groups, limit)
    }

    /// Takes nodes in place of rows; `None` when none can be taken from the next row on.
    #[inline(never)]
    fn take_nodes<'b>(
        &mut self,
        block: &mut RowBlock<'b, 's>,
        source: usize,
        groups: GroupSet,
        limit: TakeLimit,
    ) -> Option<RowsTaken> {
        let (run, stream) = (self.run.as_ref()?, self.nodes.as_ref()?);
        let next = (self.next < self.timed).then(|| run.event_time(self.next))?;
        let nodes = stream.nodes.filter(|_| next < stream.read_until)?;
        let (pre_aggregate, visible) = (stream.pre_aggregate, stream.visible);
        let in_run = (run.len() - self.next) as u64;
        self.flush(block, source, groups);
        if !block.takes_nodes(groups) {
            return None;
        }
        let (lowest, below) = (limit.node_lowest, self.below);
        let span = NodeSpan { next, below, lowest, rows: limit.node_rows, visible };
        let (rows, mut seen) = (&self.rows, 0);
        let taken = nodes.take(span, |node| {
            let end = seen + node.rows();
            // The rows of the run are those that are kept.
            let is_kept = end <= in_run || rows.keeps_after(node.oldest(), end - in_run - 1);
            if is_kept {
                seen = end;
                block.push_node(groups, pre_aggregate.layout(), node);
            }
            is_kept
        });
        if taken.rows > 0 && !groups.is_empty() {
            let dictionaries = NodeDictionaries::of_nodes(nodes);
            block.end_nodes(groups, pre_aggregate.layout(), dictionaries);
        }
        let stream = self.nodes.as_mut()?;
        stream.read_until = taken.read_until;
        stream.rows_in_nodes += taken.rows;
        if taken.rows == 0 {
            return None;
        }
        self.below = taken.below;
        self.skip_to(taken.below, taken.rows);
        let rows = usize::try_from(taken.rows).expect("a count of rows");
        Some(RowsTaken { rows, next: NextRow::Unread })
    }

    /// Skips so many rows, those that are not older than an event time.
    fn skip_to(&mut self, below: i64, rows: u64) {
        let Some(run) = &self.run else { return };
        let left = run.slice(self.next..run.len());
        let newer = count_since(&left, below);
        if newer < left.len() {
            self.next += newer;
            self.flushed = self.next;
            return;
        }
        let in_run = left.len() as u64;
        self.run = None;
        (self.timed, self.next, self.flushed) = (0, 0, 0);
        debug_assert!(rows >= in_run, "the rows of the run are among them");
        self.rows.skip_to(below.saturating_sub(1), rows.saturating_sub(in_run));
    }

    /// Takes rows one by one; see [`MergeStream::take`].
    #[inline]
    fn take_rows<'b>(
        &mut self,
        block: &mut RowBlock<'b, 's>,
        source: usize,
        groups: GroupSet,
        limit: TakeLimit,
    ) -> RowsTaken {
        let start = self.next;
        if let Some(run) = self.run.as_ref().filter(|_| start + 1 < self.timed) {
            let second = run.event_time(start + 1);
            // Where streams alternate, one row is all there is to take.
            if second < limit.lowest || limit.rows == 1 {
                self.next += 1;
                return RowsTaken { rows: 1, next: NextRow::Read(Some(second)) };
            }
            let end = start + (self.timed - start).min(limit.rows);
            self.next = if run.event_time(end - 1) >= limit.lowest {
                end
            } else {
                start + count_since(&run.slice(start..end), limit.lowest)
            };
            if self.next < self.timed {
                let next = NextRow::Read(Some(run.event_time(self.next)));
                return RowsTaken { rows: self.next - start, next };
            }
        } else {
            self.next += 1;
        }
        self.flush(block, source, groups);
        RowsTaken { rows: self.next - start, next: NextRow::Unread }
    }

    #[inline(never)]
    fn flush<'b>(&mut self, block: &mut RowBlock<'b, 's>, source: usize, groups: GroupSet) {
        debug_assert!(self.flushed <= self.next, "only rows that were taken are added");
        let rows = self.flushed..self.next;
        self.flushed = self.next;
        if let Some(nodes) = &mut self.nodes {
            nodes.rows_read += rows.len() as u64;
        }
        if let Some(run) = self.run.as_ref().filter(|_| !groups.is_empty() && !rows.is_empty()) {
            block.push_run(source, groups, &run.slice(rows));
        }
    }
}

/// Counts the rows of a run whose event time is this one or newer; they are its first rows.
fn count_since(run: &KeyRun<'_>, event_time: i64) -> usize {
    // Most runs lie within a frame as a whole.
    match run.len().checked_sub(1) {
        Some(oldest) if run.event_time(oldest) < event_time => {
            run.partition_point(|of_row| of_row >= event_time)
        }
        _ => run.len(),
    }
}
