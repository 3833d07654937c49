//! A row source: the rows with one key that a window or a LAST JOIN reads, newest first.
//!
//! # Cost
//!
//! Through an index that has the order too: one lookup, one binary search, and then only the rows
//! that are read; nothing is allocated for a row when the source is a plain table. Through an
//! index without the order, all rows of the key are sorted. Without an index, all live rows of the
//! leaf are computed first. A row that has windows of its own is computed once for an answer, however
//! many frames it is in ([`crate::row_cache`]). The request row, where it is a row of the source, goes
//! through the chain of the source once for an answer.

use bumpalo::collections::Vec as ArenaVec;
use lockstep_diagnostic::Result;
use lockstep_row::{Datum, key::encode_key};
use lockstep_table::{KeyNodes, KeyRows, ReadError, StoredRow};

use crate::{
    chain::{Chain, LeafKind},
    context::{AnswerContext, REQUEST_ARRIVAL, ROWS_PER_CHECKPOINT, checkpoint},
    row_context::{ArrivedRow, BoundExpr, ColumnLookup, RowContext, ValueLocation},
};

/// How the rows of a key are found.
#[derive(Debug)]
pub(crate) enum AccessPath {
    /// Through an index of the leaf table.
    Index {
        /// The position of the index in the table.
        index: usize,
        /// For each key column of the index, the position of its value among the keys of the source.
        keys: Vec<usize>,
        /// Whether only the rows that this index retains are read, and not all live rows.
        retained_only: bool,
    },
    /// By reading every row of the leaf.
    All,
}

/// What decides which of two rows is newer.
#[derive(Debug)]
pub(crate) enum Order {
    /// Arrival alone: every row's order value is 0.
    Arrival,
    /// That of the index, whose event times are the order values, NULL being the least. For frames of all
    /// rows: of an index by arrival, or of any index where the order does not matter.
    Stored,
    /// The event-time column of the index.
    Index {
        /// The position of the column in the table.
        column: usize,
    },
    /// An expression over the columns of the chain.
    Computed(BoundExpr),
}

/// The rows of a plan, to be found by key.
#[derive(Debug)]
pub(crate) struct KeyedSource {
    pub(crate) chain: Chain,
    pub(crate) access: AccessPath,
    /// The keys that the access path does not compare.
    pub(crate) residual: Vec<ResidualKey>,
    pub(crate) order: Order,
    /// Set when the request row is a row of the source.
    pub(crate) request: Option<RequestRow>,
    /// The number of the source among those with a [`RowCache`](crate::row_cache::RowCache), which
    /// have windows.
    pub(crate) cache: Option<usize>,
}

/// A key that is compared with its value in each row.
#[derive(Debug)]
pub(crate) struct ResidualKey {
    /// The position of the key among those of the source.
    pub(crate) key: usize,
    pub(crate) expr: BoundExpr,
}

/// The request row as a row of a source.
#[derive(Debug)]
pub(crate) struct RequestRow {
    /// The number of the row in [`AnswerContext::request_rows`].
    pub(crate) id: usize,
    pub(crate) keys: Vec<BoundExpr>,
    pub(crate) order: Option<BoundExpr>,
}

/// The range of the rows of a key that are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceBounds {
    /// Only rows whose order value is at most this, and not NULL. `None`: every row.
    pub(crate) upper: Option<i64>,
    /// No rows whose order value is less than this.
    pub(crate) lower: i64,
    /// No rows with the order value of this position that arrived then or later.
    pub(crate) before: Option<RowPosition>,
}

/// The position of a row in the order of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPosition {
    pub(crate) order: i64,
    pub(crate) arrival: u64,
}

impl SourceBounds {
    /// Includes every row up to `upper`.
    pub(crate) fn up_to(upper: Option<i64>) -> Self {
        Self { upper, lower: i64::MIN, before: None }
    }

    #[inline]
    fn contains(&self, order: Option<i64>, arrival: u64) -> bool {
        match order {
            None => self.upper.is_none(),
            Some(order) => {
                order >= self.lower
                    && self.upper.is_none_or(|upper| order <= upper)
                    && self.before.is_none_or(|end| order != end.order || arrival < end.arrival)
            }
        }
    }
}

/// A row of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceRow<'s> {
    pub(crate) row: RowContext<'s, 's>,
    /// The order value; `None` is NULL, the oldest.
    pub(crate) order: Option<i64>,
    pub(crate) arrival: u64,
}

impl SourceRow<'_> {
    /// Returns whether it comes before another row of the same source.
    pub(crate) fn is_newer(&self, other: &SourceRow<'_>) -> bool {
        (self.order, self.arrival) >= (other.order, other.arrival)
    }
}

impl KeyedSource {
    /// Opens a cursor at the newest row of a key within the bounds.
    pub(crate) fn open<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<SourceCursor<'s>> {
        let (LeafKind::Table(table), AccessPath::Index { index, keys: positions, retained_only }) =
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
            if *retained_only {
                snapshot.rows_kept_by(*index, key)
            } else {
                snapshot.rows(*index, key)
            }
        };
        match (&self.order, bounds.upper) {
            (Order::Computed(_), _) => return self.sort(ctx, keys, bounds, rows),
            (Order::Index { .. }, Some(upper)) => rows.seek(upper),
            (Order::Index { .. }, None) | (Order::Arrival | Order::Stored, _) => {}
        }
        Ok(SourceCursor::Index(IndexCursor { source: self, rows, keys, bounds }))
    }

    /// Finds the nodes of a key in levels of the source's index.
    #[inline]
    pub(crate) fn nodes<'s>(
        &self,
        ctx: &AnswerContext<'s>,
        keys: &[Datum<'s>],
        levels: u64,
    ) -> Option<KeyNodes<'s>> {
        let (LeafKind::Table(table), AccessPath::Index { index, .. }) =
            (self.chain.leaf, &self.access)
        else {
            return None;
        };
        ctx.snapshots[table].nodes(*index, levels, || self.index_key(ctx, keys))
    }

    /// Encodes a key as the index of the source has it.
    pub(crate) fn index_key<'s>(&self, ctx: &AnswerContext<'s>, keys: &[Datum<'s>]) -> &'s [u8] {
        let AccessPath::Index { keys: positions, .. } = &self.access else { return &[] };
        let mut buffers = ctx.key_buffers.borrow_mut();
        let [key, _] = &mut *buffers;
        key.clear();
        encode_key(positions.iter().map(|position| keys[*position]), key);
        ctx.arena.alloc_slice_copy(key)
    }

    /// Returns the arrival below which rows of the leaf table are visible; 0 without one.
    pub(crate) fn visible_arrival(&self, ctx: &AnswerContext<'_>) -> u64 {
        match self.chain.leaf {
            LeafKind::Table(table) => ctx.snapshots[table].visible_arrival(),
            LeafKind::Nothing | LeafKind::Materialised(_) => 0,
        }
    }

    /// Returns the index whose runs are the rows of the source as they are, in its order.
    pub(crate) fn run_index(&self) -> Option<usize> {
        match (&self.access, &self.order) {
            (AccessPath::Index { index, .. }, Order::Index { .. } | Order::Stored)
                if self.is_plain() =>
            {
                Some(*index)
            }
            _ => None,
        }
    }

    /// Returns the request row if it is a row of the source with these keys and within the bounds.
    /// A request row that is stored is found among the stored rows instead.
    pub(crate) fn request_row<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &[Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<Option<SourceRow<'s>>> {
        let Some(row) = &self.request else { return Ok(None) };
        if ctx.request.arrival != REQUEST_ARRIVAL {
            return Ok(None);
        }
        let Some(request) = self.cached_request_row(ctx, row)? else { return Ok(None) };
        if !bounds.contains(request.order, request.arrival) {
            return Ok(None);
        }
        let mut pairs = row.keys.iter().zip(keys);
        let has_keys =
            pairs.all(|(expr, key)| is_same_key(expr.eval(&request.row, ctx.arena), *key, ctx));
        Ok(has_keys.then_some(request))
    }

    /// Runs the request row through the chain, once for an answer.
    fn cached_request_row<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        request: &'s RequestRow,
    ) -> Result<Option<SourceRow<'s>>> {
        let cached = &ctx.request_rows[request.id];
        if let Some(row) = cached.get() {
            return Ok(*row);
        }
        let row = self.chain.run(ctx, ctx.request)?;
        let row = row.map(|row| {
            let order = match &request.order {
                Some(order) => order.eval(&row, ctx.arena).as_i64(),
                None => Some(0),
            };
            SourceRow { row, order, arrival: ctx.request.arrival }
        });
        Ok(*cached.get_or_init(|| row))
    }

    /// Runs a leaf row through the chain, once for an answer where the chain has windows.
    #[inline]
    fn row<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: ArrivedRow<'s>,
    ) -> Result<Option<RowContext<'s, 's>>> {
        let Some(cache) = self.cache else { return self.chain.run(ctx, row) };
        let cache = &ctx.row_caches[cache];
        if let Some(cached) = cache.get(row.arrival) {
            return Ok(cached);
        }
        let computed = self.chain.run(ctx, row)?;
        cache.insert(row.arrival, computed, ctx.arena);
        Ok(computed)
    }

    fn open_all<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
    ) -> Result<SourceCursor<'s>> {
        match self.chain.leaf {
            LeafKind::Nothing => Ok(SourceCursor::Sorted(ArenaVec::new_in(ctx.arena).into_iter())),
            LeafKind::Table(table) => {
                self.sort(ctx, keys, bounds, ctx.snapshots[table].scan().kept_rows())
            }
            LeafKind::Materialised(index) => {
                let rows = ctx.materialised_rows(index)?.iter(ctx.arena);
                let leaves = (0_u64..).zip(rows);
                let leaves = leaves.map(|(arrival, row)| Ok(ArrivedRow::values(row, arrival)));
                self.sort_leaves(ctx, keys, bounds, leaves)
            }
        }
    }

    fn sort<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
        rows: impl Iterator<Item = Result<StoredRow<'s>, ReadError>>,
    ) -> Result<SourceCursor<'s>> {
        let leaves = rows.map(|row| Ok(ArrivedRow::stored(&row?)));
        self.sort_leaves(ctx, keys, bounds, leaves)
    }

    fn sort_leaves<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        keys: &'s [Datum<'s>],
        bounds: SourceBounds,
        leaves: impl Iterator<Item = Result<ArrivedRow<'s>>>,
    ) -> Result<SourceCursor<'s>> {
        let mut sorted = ArenaVec::new_in(ctx.arena);
        for (seen, leaf) in (1_usize..).zip(leaves) {
            if seen % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
            let leaf = leaf?;
            let arrival = leaf.arrival;
            let Some(row) = self.row(ctx, leaf)? else { continue };
            let order = match &self.order {
                Order::Arrival | Order::Stored => Some(0),
                Order::Index { column } => {
                    row.get(ValueLocation::Leaf(*column), ctx.arena).as_i64()
                }
                Order::Computed(expr) => expr.eval(&row, ctx.arena).as_i64(),
            };
            if bounds.contains(order, arrival) && self.has_keys(ctx, &row, keys) {
                sorted.push(SourceRow { row, order, arrival });
            }
        }
        sorted.sort_unstable_by_key(|row| std::cmp::Reverse((row.order, row.arrival)));
        Ok(SourceCursor::Sorted(sorted.into_iter()))
    }

    /// Returns whether each leaf row found is a row of the source as it is.
    #[inline]
    fn is_plain(&self) -> bool {
        self.chain.steps.is_empty() && self.residual.is_empty()
    }

    /// Compares the keys that the access path does not.
    #[inline]
    fn has_keys<'s>(
        &'s self,
        ctx: &AnswerContext<'s>,
        row: &RowContext<'_, 's>,
        keys: &[Datum<'s>],
    ) -> bool {
        self.residual.iter().all(|residual| {
            is_same_key(residual.expr.eval(row, ctx.arena), keys[residual.key], ctx)
        })
    }
}

/// The rows of one key, newest first.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each scan, and most are the large variant"
)]
pub(crate) enum SourceCursor<'s> {
    /// Read from an index.
    Index(IndexCursor<'s>),
    /// Computed and sorted before the first one is read.
    Sorted(bumpalo::collections::vec::IntoIter<'s, SourceRow<'s>>),
}

/// The rows of one key and the request row, newest first.
#[derive(Debug)]
pub(crate) struct RowsWithRequest<'s> {
    cursor: SourceCursor<'s>,
    /// The request row, until it has been returned.
    request: Option<SourceRow<'s>>,
    /// The row after the request row, which has been read already.
    ahead: Option<SourceRow<'s>>,
}

impl<'s> RowsWithRequest<'s> {
    /// Adds the request row, if it is a row of the same source, to the rows of a cursor.
    pub(crate) fn new(cursor: SourceCursor<'s>, request: Option<SourceRow<'s>>) -> Self {
        Self { cursor, request, ahead: None }
    }

    /// Returns the next older row.
    #[inline]
    pub(crate) fn next(&mut self, ctx: &AnswerContext<'s>) -> Result<Option<SourceRow<'s>>> {
        let stored = match self.ahead.take() {
            Some(row) => Some(row),
            None => self.cursor.next(ctx)?,
        };
        let is_next = |row: &mut SourceRow<'_>| stored.is_none_or(|other| row.is_newer(&other));
        if let Some(row) = self.request.take_if(is_next) {
            self.ahead = stored;
            return Ok(Some(row));
        }
        Ok(stored)
    }
}

/// The rows of one key in an index, newest first.
#[derive(Debug)]
pub(crate) struct IndexCursor<'s> {
    source: &'s KeyedSource,
    rows: KeyRows<'s>,
    keys: &'s [Datum<'s>],
    bounds: SourceBounds,
}

impl<'s> SourceCursor<'s> {
    /// Returns the next older row.
    #[inline]
    pub(crate) fn next(&mut self, ctx: &AnswerContext<'s>) -> Result<Option<SourceRow<'s>>> {
        match self {
            Self::Index(cursor) => cursor.next(ctx),
            Self::Sorted(rows) => Ok(rows.next()),
        }
    }
}

impl<'s> IndexCursor<'s> {
    /// Returns whether each stored row is a row of the source as it is.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.source.is_plain()
    }

    /// Returns whether the rows may be read in runs. Rows that arrived after the current one, which is
    /// stored, are not those of a time where the order is that of the index: they are left out one by one.
    #[inline]
    pub(crate) fn takes_runs(&self, ctx: &AnswerContext<'s>) -> bool {
        match (&self.source.order, self.source.chain.leaf) {
            (Order::Index { .. }, _) => true,
            (Order::Stored, LeafKind::Table(table)) => {
                let visible = ctx.snapshots[table].visible_arrival();
                self.bounds.before.is_none_or(|end| end.arrival >= visible)
            }
            _ => false,
        }
    }

    /// Returns the rows, to be read in runs, and the event time below which none was skipped. The cursor
    /// [is plain](Self::is_plain), and the order is the event time of the index.
    #[inline(always)]
    pub(crate) fn into_runs(mut self, ctx: &AnswerContext<'s>) -> (KeyRows<'s>, i64) {
        debug_assert!(
            self.source.run_index().is_some(),
            "no row is computed or compared by itself"
        );
        // Rows of the current row's time that are not before it are the newest ones in the bounds.
        if let Some(RowPosition { order, arrival }) = self.bounds.before
            && self.bounds.upper == Some(order)
            && let LeafKind::Table(table) = self.source.chain.leaf
            && arrival < ctx.snapshots[table].visible_arrival()
        {
            self.rows.seek_before(order, arrival);
            return (self.rows, order);
        }
        let below = self.bounds.upper.map_or(i64::MAX, |upper| upper.saturating_add(1));
        (self.rows, below)
    }

    /// Returns the next older stored row within the bounds, and its order value. It still has to go
    /// through the chain and its keys have to be compared, unless the cursor
    /// [is plain](Self::is_plain).
    #[inline]
    pub(crate) fn next_stored(
        &mut self,
    ) -> Result<Option<(StoredRow<'s>, Option<i64>)>, ReadError> {
        for row in self.rows.by_ref() {
            let row = row?;
            let order = self.source.order.of(&row);
            if order.is_some_and(|order| order < self.bounds.lower) {
                return Ok(None);
            }
            let is_contained = match self.source.order {
                Order::Stored => self.bounds.before.is_none_or(|end| row.arrival < end.arrival),
                _ => self.bounds.contains(order, row.arrival),
            };
            if is_contained {
                return Ok(Some((row, order)));
            }
        }
        Ok(None)
    }

    #[inline]
    fn next(&mut self, ctx: &AnswerContext<'s>) -> Result<Option<SourceRow<'s>>> {
        let mut skipped = 0;
        while let Some((stored, order)) = self.next_stored()? {
            let row = self.source.row(ctx, ArrivedRow::stored(&stored))?;
            if let Some(row) = row.filter(|row| self.source.has_keys(ctx, row, self.keys)) {
                return Ok(Some(SourceRow { row, order, arrival: stored.arrival }));
            }
            skipped += 1;
            if skipped % ROWS_PER_CHECKPOINT == 0 {
                checkpoint()?;
            }
        }
        Ok(None)
    }
}

impl Order {
    /// Returns the order value of a row that an index gave.
    #[inline]
    pub(crate) fn of(&self, row: &StoredRow<'_>) -> Option<i64> {
        match self {
            // NULL is stored in an index as the least event time, which is a value, too.
            Self::Index { column } if row.event_time == i64::MIN => row.row.get(*column).as_i64(),
            Self::Index { .. } | Self::Stored => Some(row.event_time),
            Self::Arrival | Self::Computed(_) => Some(0),
        }
    }
}

/// Returns whether two values are the same key.
fn is_same_key(left: Datum<'_>, right: Datum<'_>, ctx: &AnswerContext<'_>) -> bool {
    let mut buffers = ctx.key_buffers.borrow_mut();
    let [left_key, right_key] = &mut *buffers;
    left_key.clear();
    right_key.clear();
    encode_key([left], left_key);
    encode_key([right], right_key);
    left_key == right_key
}
