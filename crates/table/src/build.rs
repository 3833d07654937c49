//! Making what is stored of an index while appends go on.
//!
//! `change` calls it. An index is built of the rows that are visible when it is begun, in order of
//! event time, where every row is an append; then of those that became visible meanwhile, until
//! few are left; and these are added while no append is in flight, which takes no longer than
//! [`CATCH_UP_ROWS`] rows take.
//!
//! No guard is held for longer than a step: who holds one keeps everything that others replace
//! from being freed.

use lockstep_row::IndexSpec;
use lockstep_series::{LogPosition, LogRow, RowLog, RowRef};

use crate::{
    Table,
    append::{GROUP_ROWS, Lookup},
    change::Changing,
    draft::DraftedIndex,
    state::{self, Index, State},
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

/// Goes through the rows of a log in order of arrival. Nobody removes rows from the log meanwhile.
pub(crate) struct Walk<'c> {
    table: &'c Table,
    log: &'c RowLog,
    position: LogPosition,
}

/// An index that is being built.
pub(crate) struct Build<'c> {
    walk: Walk<'c>,
    spec: IndexSpec,
    index: Index,
    lookup: Lookup,
}

impl<'c> Walk<'c> {
    pub(crate) fn new(table: &'c Table, log: &'c RowLog) -> Self {
        Self { table, log, position: LogPosition::START }
    }

    /// Goes on to the rows with an arrival less than `visible`, and returns how many there were.
    pub(crate) fn rows_until(&mut self, visible: u64, visit: &mut dyn FnMut(LogRow<'_>)) -> usize {
        let mut count = 0;
        loop {
            let guard = lockstep_series::pin();
            let mut rows = self.log.rows_between(self.position, visible, &guard);
            let step = rows.by_ref().take(STEP_ROWS).map(&mut *visit).count();
            self.position = rows.position();
            count += step;
            if step < STEP_ROWS {
                return count;
            }
        }
    }

    /// Goes on to what becomes visible, until few rows are left.
    pub(crate) fn catch_up(&mut self, visit: &mut dyn FnMut(LogRow<'_>)) {
        for _ in 0..CATCH_UPS_MAX {
            if self.rows_until(self.table.sequence.visible(), visit) <= CATCH_UP_ROWS {
                return;
            }
        }
    }
}

impl<'c> Build<'c> {
    /// Builds an index of the rows that are visible by now. Nobody else changes the table until it
    /// is finished.
    pub(crate) fn start(
        changing: &'c Changing<'_>,
        state: &'c State,
        drafted: &DraftedIndex,
    ) -> Self {
        let table = changing.table;
        let index = Index::empty(&drafted.projection, drafted.origin);
        let (spec, lookup) = (drafted.spec.clone(), Lookup::default());
        let mut build = Self { walk: Walk::new(table, &state.log), spec, index, lookup };
        build.fill(table.sequence.visible());
        let Self { walk, spec, index, lookup } = &mut build;
        walk.catch_up(&mut |found| insert(table, (spec, index), found, lookup));
        build
    }

    /// Adds the rows that are left, and gives the index away.
    pub(crate) fn finish(mut self, _alone: &Alone<'_>) -> Index {
        let Self { walk, spec, index, lookup } = &mut self;
        let table = walk.table;
        walk.rows_until(u64::MAX, &mut |found| insert(table, (spec, index), found, lookup));
        self.index
    }

    /// Inserts all rows that are visible, in order of event time.
    fn fill(&mut self, visible: u64) {
        let Self { walk, spec, index, lookup } = self;
        let table = walk.table;
        let mut rows: Vec<(i64, RowRef<'_>)> = Vec::new();
        walk.rows_until(visible, &mut |found| {
            let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
            // SAFETY: nobody removes rows from the log until the build is finished.
            rows.push((event_time, unsafe { found.row.for_longer() }));
        });
        if !rows.is_sorted_by_key(|(event_time, _)| *event_time) {
            // Stable: equal event times stay in order of arrival.
            rows.sort_by_key(|(event_time, _)| *event_time);
        }
        for some in rows.chunks(GUARD_ROWS) {
            let guard = lockstep_series::pin();
            for group in some.chunks(GROUP_ROWS) {
                let into = (&*spec, &*index.series);
                table.insert_group(into, group.iter().copied(), (lookup, None, &guard));
            }
        }
    }
}

fn insert(
    table: &Table,
    (spec, index): (&IndexSpec, &Index),
    found: LogRow<'_>,
    lookup: &mut Lookup,
) {
    let event_time = state::event_time(spec, table.view(found.row), || found.arrival_ms);
    let guard = lockstep_series::pin();
    let row = std::iter::once((event_time, found.row));
    table.insert_group((spec, &*index.series), row, (lookup, None, &guard));
}

impl Table {
    /// An index with all rows of a log that nobody appends to.
    pub(crate) fn filled(&self, log: &RowLog, spec: &IndexSpec, index: Index) -> Index {
        let walk = Walk::new(self, log);
        let mut build = Build { walk, spec: spec.clone(), index, lookup: Lookup::default() };
        build.fill(u64::MAX);
        build.index
    }
}
