//! Counting the rows of an append that had expired before they arrived.
//!
//! `append` calls it when its rows are visible. By far the most rows are known to be kept by their
//! event times: they are young enough, or newer than every other row; the others are looked up.

use std::sync::atomic::{AtomicI64, Ordering};

use lockstep_series::RowRef;

use crate::{
    Snapshot, Table,
    append::ArrivedRows,
    retention::Horizon,
    state::{self, TableState},
    table::number,
};

/// The greatest event time of the rows of each declared index.
#[derive(Debug, Default)]
pub(crate) struct NewestTimes {
    of_index: Vec<AtomicI64>,
}

impl NewestTimes {
    /// Starts without rows.
    pub(crate) fn new(indexes: usize) -> Self {
        Self { of_index: (0..indexes).map(|_| AtomicI64::new(i64::MIN)).collect() }
    }

    /// Carries over what is known from the state before. Where an index was not updated with each row,
    /// nothing is known: then every row is looked up.
    pub(crate) fn after(before: &TableState, state: &TableState) -> Self {
        let event_time_max = |at: usize| {
            let spec = &state.schema.indexes[at];
            let was_updated = !before.keeps_everything && before.declared.contains(&at);
            let same = before.schema.indexes.get(at).filter(|held| {
                was_updated
                    && state::counts_rows(held.retention)
                    && held.event_time == spec.event_time
            });
            // Relaxed: no append is in flight.
            same.map_or(i64::MAX, |_| before.newest.of_index[at].load(Ordering::Relaxed))
        };
        let indexes = 0..state.schema.indexes.len();
        Self { of_index: indexes.map(|at| AtomicI64::new(event_time_max(at))).collect() }
    }

    /// Notes that there may be rows as new as this in an index.
    pub(crate) fn note(&self, index: usize, event_time: i64) {
        // Relaxed: no append is in flight.
        self.of_index[index].fetch_max(event_time, Ordering::Relaxed);
    }

    /// Returns whether no row was newer in an index, and updates the greatest event time.
    fn is_newest(&self, index: usize, event_time: i64) -> bool {
        // Relaxed: a row that is wrongly found newer than all others is only not counted as expired.
        event_time >= self.of_index[index].fetch_max(event_time, Ordering::Relaxed)
    }
}

impl Table {
    /// Counts the rows of an append, visible now, that no declared index kept when they arrived. Rows
    /// that arrived later in the same append do not displace a row.
    pub(crate) fn count_expired(&self, state: &TableState, arrived: ArrivedRows) -> u64 {
        if state.keeps_everything {
            return 0;
        }
        let guard = lockstep_series::pin();
        let now_ms = self.snapshot().now_ms();
        let ArrivedRows { position, count, arrival_ms } = arrived;
        let mut key = Vec::new();
        let is_expired = |row: RowRef<'_>| {
            let view = self.view(row);
            let is_kept = |index: &usize| {
                let spec = &state.schema.indexes[*index];
                let event_time = state::event_time(spec, view, || arrival_ms);
                // First, so that the greatest event time is updated.
                let retention = spec.retention;
                let is_newest =
                    state::counts_rows(retention) && state.newest.is_newest(*index, event_time);
                let position = if is_newest { 1 } else { u64::MAX };
                !retention.is_expired(event_time, position, now_ms)
            };
            // Every index is updated with the row.
            if state.declared.iter().map(is_kept).fold(false, |any, is_kept| any | is_kept) {
                return false;
            }
            let visible_arrival = row.arrival() + 1;
            let horizon = Horizon { visible_arrival, now_ms };
            let then = Snapshot::as_of(self, state, horizon);
            // The rows are stored: a disk that fails now changes only this count.
            then.is_live(row, &mut key) == Ok(false)
        };
        let rows = state.log.rows_from(position, &guard).take(count).map(|found| found.row);
        number(rows.map(is_expired).filter(|expired| *expired).count())
    }
}
