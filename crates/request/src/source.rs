//! A row source: the rows that a window or a LAST JOIN looks through, newest first.
//!
//! # Cost
//!
//! Through an index that holds the order too, one lookup, one binary search, and then only rows
//! that somebody asks for; nothing is allocated per row when the source is a plain table. Through
//! an index without the order, all rows of the key are sorted. Without an index, all live rows of
//! the leaf are computed first. A row that has windows of its own is computed once for an answer,
//! however many frames it is in. The request row, where it counts as a row of the source, goes through
//! the source's chain once for an answer.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::{Datum, key::encode_key};
use lockstep_table::{KeyRows, StoredRow};

use crate::{
    chain::{Chain, LeafKind},
    context::{Context, ROWS_PER_CHECKPOINT, STORED_LATER, checkpoint},
    frame::{BoundExpr, Cells, Frame, Leaf, Place},
};

/// How the rows of one key are found.
#[derive(Debug)]
pub(crate) enum Access {
    /// By an index of the leaf table.
    Index {
        /// Its position in the table.
        index: usize,
        /// For each of its key columns, which of the wanted key values it takes.
        keys: Vec<usize>,
        /// Whether the rows are those that this index keeps, and not all that are live.
        own_only: bool,
    },
    /// By looking at every row of the leaf.
    All,
}

/// By what newer and older is decided.
#[derive(Debug)]
pub(crate) enum Order {
    /// By arrival alone: every row's order value is 0.
    Arrival,
    /// By the index's event-time column.
    Index {
        /// Its position in the table.
        column: usize,
    },
    /// By an expression over the chain.
    Computed(BoundExpr),
}

/// A row source.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) chain: Chain,
    pub(crate) access: Access,
    /// Keys that the access path does not settle: which key, and its value in a row.
    pub(crate) residual: Vec<(usize, BoundExpr)>,
    pub(crate) order: Order,
    /// Set when the request row counts as a row of the source.
    pub(crate) request: Option<RequestRow>,
    /// Its number among the sources whose rows are kept for an answer: those with windows.
    pub(crate) kept: Option<usize>,
}

/// What has to be known of the request row as a row of the source.
#[derive(Debug)]
pub(crate) struct RequestRow {
    /// Its number among the program's, by which a [`Context`] keeps the row.
    pub(crate) id: usize,
    pub(crate) keys: Vec<BoundExpr>,
    pub(crate) order: Option<BoundExpr>,
}

/// Which rows of a key are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Only rows whose order value is at most this, and not NULL. `None`: every row.
    pub(crate) upper: Option<i64>,
    /// No rows whose order value is less than this.
    pub(crate) lower: i64,
    /// (order value, arrival): no rows with this order value that arrived then or later.
    pub(crate) tie: Option<(i64, u64)>,
}

impl Bounds {
    /// Every row up to `upper`.
    pub(crate) fn up_to(upper: Option<i64>) -> Self {
        Self { upper, lower: i64::MIN, tie: None }
    }

    #[inline]
    fn admit(&self, order: Option<i64>, arrival: u64) -> bool {
        match order {
            None => self.upper.is_none(),
            Some(order) => {
                order >= self.lower
                    && self.upper.is_none_or(|upper| order <= upper)
                    && self.tie.is_none_or(|(tie, end)| order != tie || arrival < end)
            }
        }
    }
}

/// A row of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'s> {
    pub(crate) frame: Frame<'s, 's>,
    /// The order value; `None` is NULL, the oldest.
    pub(crate) order: Option<i64>,
    pub(crate) arrival: u64,
}

impl Candidate<'_> {
    /// Whether it comes before another row of the same source.
    pub(crate) fn is_newer(&self, other: &Candidate<'_>) -> bool {
        (self.order, self.arrival) >= (other.order, other.arrival)
    }
}

impl Source {
    /// Begins at the newest wanted row of a key.
    pub(crate) fn open<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Cursor<'s>> {
        let (LeafKind::Table(table), Access::Index { index, keys: positions, own_only }) =
            (self.chain.leaf, &self.access)
        else {
            return self.open_all(ctx, keys, bounds);
        };
        let mut rows = {
            let mut buffers = ctx.key_buffers.borrow_mut();
            let [key, _] = &mut *buffers;
            key.clear();
            encode_key(positions.iter().map(|position| keys[*position]), key);
            let snapshot = &ctx.snapshots[table];
            if *own_only { snapshot.rows_kept_by(*index, key) } else { snapshot.rows(*index, key) }
        };
        match (&self.order, bounds.upper) {
            (Order::Computed(_), _) => return self.sort(ctx, keys, bounds, rows),
            (Order::Index { .. }, Some(upper)) => rows.seek(upper),
            (Order::Index { .. }, None) | (Order::Arrival, _) => {}
        }
        Ok(Cursor::Walk(Walk { source: self, rows, keys, bounds }))
    }

    /// The index whose runs are the rows of the source as they are, in its order.
    pub(crate) fn run_index(&self) -> Option<usize> {
        match (&self.access, &self.order) {
            (Access::Index { index, .. }, Order::Index { .. }) if self.is_plain() => Some(*index),
            _ => None,
        }
    }

    /// The request row as a row of the source, when it counts as one and is wanted. A request row
    /// that is stored is found among the others.
    pub(crate) fn request_row<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &[Datum<'s>],
        bounds: Bounds,
    ) -> Result<Option<Candidate<'s>>> {
        let Some(row) = &self.request else { return Ok(None) };
        if ctx.request.1 != STORED_LATER {
            return Ok(None);
        }
        let Some(candidate) = self.kept_request_row(ctx, row)? else { return Ok(None) };
        if !bounds.admit(candidate.order, candidate.arrival) {
            return Ok(None);
        }
        let mut pairs = row.keys.iter().zip(keys);
        let has_keys =
            pairs.all(|(expr, key)| is_same_key(expr.eval(&candidate.frame, ctx.arena), *key, ctx));
        Ok(has_keys.then_some(candidate))
    }

    /// The request row at the end of the chain; it goes through it once for an answer.
    fn kept_request_row<'s>(
        &'s self,
        ctx: &Context<'s>,
        row: &'s RequestRow,
    ) -> Result<Option<Candidate<'s>>> {
        let kept = &ctx.request_rows[row.id];
        if let Some(candidate) = kept.get() {
            return Ok(*candidate);
        }
        let (leaf, arrival) = ctx.request;
        let frame = self.chain.run(ctx, leaf, arrival)?;
        let candidate = frame.map(|frame| {
            let order = match &row.order {
                Some(order) => order.eval(&frame, ctx.arena).as_i64(),
                None => Some(0),
            };
            Candidate { frame, order, arrival }
        });
        Ok(*kept.get_or_init(|| candidate))
    }

    /// Takes a leaf row through the chain, once for an answer where that walks through other rows.
    #[inline]
    fn row<'s>(
        &'s self,
        ctx: &Context<'s>,
        leaf: Leaf<'s>,
        arrival: u64,
    ) -> Result<Option<Frame<'s, 's>>> {
        let Some(number) = self.kept else { return self.chain.run(ctx, leaf, arrival) };
        let kept = &ctx.kept_frames[number];
        if let Some(frame) = kept.get(arrival) {
            return Ok(frame);
        }
        let frame = self.chain.run(ctx, leaf, arrival)?;
        kept.insert(arrival, frame, ctx.arena);
        Ok(frame)
    }

    fn open_all<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
    ) -> Result<Cursor<'s>> {
        match self.chain.leaf {
            LeafKind::Nothing => Ok(Cursor::Sorted(ArenaVec::new_in(ctx.arena).into_iter())),
            LeafKind::Table(table) => self.sort(ctx, keys, bounds, ctx.snapshots[table].scan()),
            LeafKind::Materialised(index) => {
                let rows = ctx.materialised_rows(index)?.iter(ctx.arena);
                let leaves = (0_u64..).zip(rows).map(|(arrival, row)| (Leaf::Values(row), arrival));
                self.sort_leaves(ctx, keys, bounds, leaves)
            }
        }
    }

    fn sort<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
        rows: impl Iterator<Item = StoredRow<'s>>,
    ) -> Result<Cursor<'s>> {
        let leaves = rows.map(|row| (Leaf::Stored(row.row), row.arrival));
        self.sort_leaves(ctx, keys, bounds, leaves)
    }

    fn sort_leaves<'s>(
        &'s self,
        ctx: &Context<'s>,
        keys: &'s [Datum<'s>],
        bounds: Bounds,
        leaves: impl Iterator<Item = (Leaf<'s>, u64)>,
    ) -> Result<Cursor<'s>> {
        let mut candidates = ArenaVec::new_in(ctx.arena);
        for (seen, (leaf, arrival)) in (1_usize..).zip(leaves) {
            if seen % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            let Some(frame) = self.row(ctx, leaf, arrival)? else { continue };
            let order = match &self.order {
                Order::Arrival => Some(0),
                Order::Index { column } => frame.get(Place::Leaf(*column), ctx.arena).as_i64(),
                Order::Computed(expr) => expr.eval(&frame, ctx.arena).as_i64(),
            };
            if bounds.admit(order, arrival) && self.has_keys(ctx, &frame, keys) {
                candidates.push(Candidate { frame, order, arrival });
            }
        }
        candidates.sort_unstable_by_key(|row| std::cmp::Reverse((row.order, row.arrival)));
        Ok(Cursor::Sorted(candidates.into_iter()))
    }

    /// Whether each row found is a row of the source without another look.
    #[inline]
    fn is_plain(&self) -> bool {
        self.chain.steps.is_empty() && self.residual.is_empty()
    }

    /// Checks the keys that the access path left open.
    #[inline]
    fn has_keys<'s>(
        &'s self,
        ctx: &Context<'s>,
        frame: &Frame<'_, 's>,
        keys: &[Datum<'s>],
    ) -> bool {
        self.residual
            .iter()
            .all(|(key, expr)| is_same_key(expr.eval(frame, ctx.arena), keys[*key], ctx))
    }
}

/// The rows of one key, newest first.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a walk, and most are the large one"
)]
pub(crate) enum Cursor<'s> {
    /// As the index gives them.
    Walk(Walk<'s>),
    /// Computed and sorted before the first one was asked for.
    Sorted(bumpalo::collections::vec::IntoIter<'s, Candidate<'s>>),
}

/// The rows of one key, newest first, with the request row in its place among them.
#[derive(Debug)]
pub(crate) struct Rows<'s> {
    cursor: Cursor<'s>,
    /// The request row until its turn comes.
    request: Option<Candidate<'s>>,
    /// The stored row that follows it.
    ahead: Option<Candidate<'s>>,
}

impl<'s> Rows<'s> {
    /// `request` is a row of the same source.
    pub(crate) fn new(cursor: Cursor<'s>, request: Option<Candidate<'s>>) -> Self {
        Self { cursor, request, ahead: None }
    }

    /// The next older row.
    #[inline]
    pub(crate) fn next(&mut self, ctx: &Context<'s>) -> Result<Option<Candidate<'s>>> {
        let stored = match self.ahead.take() {
            Some(row) => Some(row),
            None => self.cursor.next(ctx)?,
        };
        let is_next = |row: &mut Candidate<'_>| stored.is_none_or(|other| row.is_newer(&other));
        if let Some(row) = self.request.take_if(is_next) {
            self.ahead = stored;
            return Ok(Some(row));
        }
        Ok(stored)
    }
}

/// See [`Cursor::Walk`].
#[derive(Debug)]
pub(crate) struct Walk<'s> {
    source: &'s Source,
    rows: KeyRows<'s>,
    keys: &'s [Datum<'s>],
    bounds: Bounds,
}

impl<'s> Cursor<'s> {
    /// The next older row.
    #[inline]
    pub(crate) fn next(&mut self, ctx: &Context<'s>) -> Result<Option<Candidate<'s>>> {
        match self {
            Self::Walk(walk) => walk.next(ctx),
            Self::Sorted(rows) => Ok(rows.next()),
        }
    }
}

impl<'s> Walk<'s> {
    /// Whether each row of the leaf is a row of the source as it is.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.source.is_plain()
    }

    /// The rows, to be taken in runs: the walk [is plain](Self::is_plain), and the order that of an
    /// index by event time.
    #[inline(always)]
    pub(crate) fn into_runs(mut self, ctx: &Context<'s>) -> KeyRows<'s> {
        debug_assert!(self.source.run_index().is_some(), "nothing is to be asked of each row");
        // Rows of the current row's time that are not before it are the newest ones wanted.
        if let Some((time, arrival)) = self.bounds.tie
            && self.bounds.upper == Some(time)
            && let LeafKind::Table(table) = self.source.chain.leaf
            && arrival < ctx.snapshots[table].visible_arrival()
        {
            self.rows.seek_before(time, arrival);
        }
        self.rows
    }

    /// The next older row of the leaf that is within the bounds, and its order value. There may be
    /// more to ask of it, unless the walk [is plain](Self::is_plain).
    #[inline]
    pub(crate) fn next_stored(&mut self) -> Option<(StoredRow<'s>, Option<i64>)> {
        for row in self.rows.by_ref() {
            let order = self.source.order.of(&row);
            if order.is_some_and(|order| order < self.bounds.lower) {
                return None;
            }
            if self.bounds.admit(order, row.arrival) {
                return Some((row, order));
            }
        }
        None
    }

    #[inline]
    fn next(&mut self, ctx: &Context<'s>) -> Result<Option<Candidate<'s>>> {
        let mut passed_over = 0;
        while let Some((row, order)) = self.next_stored() {
            let leaf = Leaf::Stored(row.row);
            let frame = self.source.row(ctx, leaf, row.arrival)?;
            if let Some(frame) = frame.filter(|f| self.source.has_keys(ctx, f, self.keys)) {
                return Ok(Some(Candidate { frame, order, arrival: row.arrival }));
            }
            passed_over += 1;
            if passed_over % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
        }
        Ok(None)
    }
}

impl Order {
    /// The order value of a row met in an index.
    #[inline]
    pub(crate) fn of(&self, row: &StoredRow<'_>) -> Option<i64> {
        match self {
            // NULL has the least event time within an index, and so has that value itself.
            Self::Index { column } if row.event_time == i64::MIN => row.row.get(*column).as_i64(),
            Self::Index { .. } => Some(row.event_time),
            Self::Arrival | Self::Computed(_) => Some(0),
        }
    }
}

/// Whether two values are one key.
fn is_same_key(left: Datum<'_>, right: Datum<'_>, ctx: &Context<'_>) -> bool {
    let mut buffers = ctx.key_buffers.borrow_mut();
    let [left_key, right_key] = &mut *buffers;
    left_key.clear();
    right_key.clear();
    encode_key([left], left_key);
    encode_key([right], right_key);
    left_key == right_key
}
