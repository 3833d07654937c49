//! Making what is stored of an index, or of a whole table, while appends go on.
//!
//! `change` calls it. An index is built of the rows that are visible when it is begun, in order of
//! event time, where every row is an append; then of those that became visible meanwhile, until
//! few are left; and these are added while no append is in flight, which takes no longer than
//! [`CATCH_UP_ROWS`] rows take. Until then the call may be interrupted, and nothing has changed.
//!
//! No guard is held for longer than a step: who holds one keeps everything that others replace
//! from being freed.

use std::sync::Arc;

use lockstep_host::query;
use lockstep_row::IndexSpec;
use lockstep_series::{LogPosition, LogRow, RowLog, RowRef};

use crate::{
    Table, TableError,
    append::{GROUP_ROWS, Lookup},
    arrival_set::ArrivalSet,
    change::Changing,
    draft::{Draft, DraftedIndex},
    state::{self, Index, Origin, State},
    table::Alone,
};

/// Rows that are gone through under one guard.
const STEP_ROWS: usize = 4096;
/// With so few rows left to catch up with, appends may wait for them.
const CATCH_UP_ROWS: usize = 1024;
/// How often a build catches up with appends before they wait for it all the same.
const CATCH_UPS_MAX: usize = 32;
/// Rows that are inserted under one guard.
const GUARD_ROWS: usize = 256;

const TO_ITS_END: &str = "no interrupt ends what appends wait for";

/// Goes through the rows of a log in order of arrival, without those that are gone. Nobody removes
/// rows from the log meanwhile.
pub(crate) struct Walk<'c> {
    table: &'c Table,
    log: &'c RowLog,
    gone: Arc<ArrivalSet>,
    position: LogPosition,
    /// Whether the call may be interrupted; not while appends wait.
    may_end: bool,
}

/// An index that is being built of the rows of a log.
pub(crate) struct Build<'c> {
    walk: Walk<'c>,
    filling: Filling,
}

/// All indexes of a table, and its log, that are being made of the rows that are kept.
pub(crate) struct Remake<'c> {
    walk: Walk<'c>,
    log: RowLog,
    fillings: Vec<Filling>,
}

/// An index that gets rows.
struct Filling {
    spec: IndexSpec,
    index: Index,
    lookup: Lookup,
}

/// Whether a row is kept.
pub(crate) type IsKept<'f> = &'f mut dyn FnMut(RowRef<'_>) -> bool;

impl<'c> Walk<'c> {
    pub(crate) fn new(table: &'c Table, log: &'c RowLog) -> Self {
        let gone = Arc::clone(&table.gone.lock());
        Self { table, log, gone, position: LogPosition::START, may_end: true }
    }

    /// Lets no interrupt end it.
    pub(crate) fn uninterrupted(mut self) -> Self {
        self.may_end = false;
        self
    }

    /// Asks whether the call is to go on.
    fn checkpoint(&self) -> Result<(), TableError> {
        if self.may_end { query::checkpoint().map_err(TableError::Interrupted) } else { Ok(()) }
    }

    /// Goes on to the rows with an arrival less than `visible`, and returns how many there were.
    pub(crate) fn rows_until(
        &mut self,
        visible: u64,
        visit: &mut dyn FnMut(LogRow<'_>),
    ) -> Result<usize, TableError> {
        let mut count = 0;
        loop {
            self.checkpoint()?;
            let guard = lockstep_series::pin();
            let mut rows = self.log.rows_between(self.position, visible, &guard);
            let mut step = 0;
            for found in rows.by_ref().take(STEP_ROWS) {
                step += 1;
                if !self.gone.contains(found.row.arrival()) {
                    visit(found);
                }
            }
            self.position = rows.position();
            count += step;
            if step < STEP_ROWS {
                return Ok(count);
            }
        }
    }

    /// Goes on to what becomes visible, until few rows are left.
    pub(crate) fn catch_up(&mut self, visit: &mut dyn FnMut(LogRow<'_>)) -> Result<(), TableError> {
        for _ in 0..CATCH_UPS_MAX {
            if self.rows_until(self.table.sequence.visible(), visit)? <= CATCH_UP_ROWS {
                break;
            }
        }
        Ok(())
    }
}

impl<'c> Build<'c> {
    /// Builds an index of the rows that are visible by now. Nobody else changes the table until it
    /// is finished.
    pub(crate) fn start(
        changing: &'c Changing<'_>,
        state: &'c State,
        drafted: &DraftedIndex,
    ) -> Result<Self, TableError> {
        let table = changing.table;
        let mut walk = Walk::new(table, &state.log);
        let mut filling = Filling::new(drafted);
        filling.fill(&mut walk, table.sequence.visible())?;
        walk.catch_up(&mut |found| filling.insert(table, found))?;
        Ok(Self { walk: walk.uninterrupted(), filling })
    }

    /// Adds the rows that are left, and gives the index away.
    pub(crate) fn finish(self, _alone: &Alone<'_>) -> Index {
        let Self { mut walk, mut filling } = self;
        let table = walk.table;
        let rest = walk.rows_until(u64::MAX, &mut |found| filling.insert(table, found));
        rest.expect(TO_ITS_END);
        filling.index
    }
}

impl<'c> Remake<'c> {
    /// Makes indexes of the rows that are visible by now and kept. Each row is asked for once.
    /// Nobody else changes the table until it is finished.
    pub(crate) fn start(
        changing: &'c Changing<'_>,
        state: &'c State,
        draft: &Draft,
        is_kept: IsKept<'_>,
    ) -> Result<Self, TableError> {
        let table = changing.table;
        let mut walk = Walk::new(table, &state.log);
        let visible = table.sequence.visible();
        let (log, position) = {
            let guard = lockstep_series::pin();
            let gone = Arc::clone(&walk.gone);
            let mut is_left = |row: RowRef<'_>| !gone.contains(row.arrival()) && is_kept(row);
            let (mut seen, mut goes_on) = (0, Ok(()));
            let mut is_copied = |found: LogRow<'_>| {
                seen += 1;
                if seen % STEP_ROWS == 0 && goes_on.is_ok() {
                    goes_on = walk.checkpoint();
                }
                goes_on.is_ok() && is_left(found.row)
            };
            let filtered = state.log.filtered(visible, &mut is_copied, &guard);
            goes_on?;
            filtered
        };
        walk.position = position;
        let mut fillings: Vec<Filling> = draft.indexes.iter().map(Filling::new).collect();
        for filling in &mut fillings {
            filling.fill(&mut Walk::whole(table, &log), u64::MAX)?;
        }
        let mut made = Self { walk, log, fillings };
        made.follow(is_kept, |walk, visit| walk.catch_up(visit))?;
        made.walk = made.walk.uninterrupted();
        Ok(made)
    }

    /// Adds the rows that are left, and gives the indexes and the log away.
    pub(crate) fn finish(
        mut self,
        is_kept: IsKept<'_>,
        _alone: &Alone<'_>,
    ) -> (Vec<Index>, RowLog) {
        let rest = self.follow(is_kept, |walk, visit| walk.rows_until(u64::MAX, visit));
        rest.expect(TO_ITS_END);
        (self.fillings.into_iter().map(|filling| filling.index).collect(), self.log)
    }

    fn follow<T>(
        &mut self,
        is_kept: IsKept<'_>,
        go: impl FnOnce(&mut Walk<'_>, &mut dyn FnMut(LogRow<'_>)) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let Self { walk, log, fillings } = self;
        let table = walk.table;
        go(walk, &mut |found| {
            if !is_kept(found.row) {
                return;
            }
            let guard = lockstep_series::pin();
            let copy = LogRow { row: log.push(found, &guard), arrival_ms: found.arrival_ms };
            fillings.iter_mut().for_each(|filling| filling.insert(table, copy));
        })
    }
}

impl<'c> Walk<'c> {
    /// A walk over a log that has no rows that are gone.
    fn whole(table: &'c Table, log: &'c RowLog) -> Self {
        Self { table, log, gone: Arc::default(), position: LogPosition::START, may_end: true }
    }
}

impl Filling {
    fn new(drafted: &DraftedIndex) -> Self {
        let index = Index::empty(&drafted.projection, drafted.origin);
        Self { spec: drafted.spec.clone(), index, lookup: Lookup::default() }
    }

    /// Inserts all rows of a walk up to an arrival, in order of event time.
    fn fill(&mut self, walk: &mut Walk<'_>, visible: u64) -> Result<(), TableError> {
        let Self { spec, index, lookup } = self;
        if index.origin == Origin::Removed {
            return Ok(());
        }
        let table = walk.table;
        let mut rows: Vec<(i64, RowRef<'_>)> = Vec::new();
        walk.rows_until(visible, &mut |found| {
            let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
            // SAFETY: nobody removes rows from the log until the build is finished.
            rows.push((event_time, unsafe { found.row.for_longer() }));
        })?;
        if !rows.is_sorted_by_key(|(event_time, _)| *event_time) {
            // Stable: equal event times stay in order of arrival.
            rows.sort_by_key(|(event_time, _)| *event_time);
        }
        for some in rows.chunks(GUARD_ROWS) {
            walk.checkpoint()?;
            let guard = lockstep_series::pin();
            for group in some.chunks(GROUP_ROWS) {
                let into = (&*spec, &*index.series);
                table.insert_group(into, group.iter().copied(), (lookup, None, &guard));
            }
        }
        Ok(())
    }

    fn insert(&mut self, table: &Table, found: LogRow<'_>) {
        let Self { spec, index, lookup } = self;
        if index.origin == Origin::Removed {
            return;
        }
        let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
        let guard = lockstep_series::pin();
        let row = std::iter::once((event_time, found.row));
        table.insert_group((&*spec, &*index.series), row, (lookup, None, &guard));
    }
}
