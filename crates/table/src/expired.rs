//! Which rows of an append had expired before they arrived.
//!
//! `append` asks when its rows are visible. By far the most rows are told by themselves: they are
//! young enough, or newer than every other row; the others are looked up.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicI64, Ordering},
};

use lockstep_row::{IndexSpec, Retention, RowView};
use lockstep_series::RowRef;

use crate::{
    Snapshot, Table,
    append::ArrivedRows,
    state::{self, State},
    table::number,
};

/// The greatest event time that was looked at in each declared index.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    of_index: Vec<AtomicI64>,
}

impl Newest {
    pub(crate) fn new(indexes: usize) -> Self {
        Self { of_index: (0..indexes).map(|_| AtomicI64::new(i64::MIN)).collect() }
    }

    /// What is known of another state's indexes that is still so. Of an index that has not been
    /// asked for each row nothing is: then every row is looked up.
    pub(crate) fn after(before: &State, state: &State) -> Self {
        let event_time_max = |at: usize| {
            let spec = &state.schema.indexes[at];
            let was_asked = !before.keeps_everything && before.declared.contains(&at);
            let same = before.schema.indexes.get(at).filter(|held| {
                was_asked && counts(held.retention) && held.event_time == spec.event_time
            });
            // Relaxed: nobody appends meanwhile.
            same.map_or(i64::MAX, |_| before.newest.of_index[at].load(Ordering::Relaxed))
        };
        let indexes = 0..state.schema.indexes.len();
        Self { of_index: indexes.map(|at| AtomicI64::new(event_time_max(at))).collect() }
    }

    /// Whether no row was newer in an index; remembers this one.
    fn is_newest(&self, index: usize, event_time: i64) -> bool {
        // Relaxed: a row that is wrongly called newer than all is only not counted as expired.
        event_time >= self.of_index[index].fetch_max(event_time, Ordering::Relaxed)
    }
}

impl Table {
    /// How many of the rows, which are visible now, no declared index kept when they arrived. Rows
    /// that arrived after one, in the same append, do not count against it.
    pub(crate) fn count_expired(&self, state: &State, arrived: ArrivedRows) -> u64 {
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
                is_surely_kept((spec, view, arrival_ms), now_ms, (&state.newest, *index))
            };
            // Each is asked, so that each remembers the row.
            if state.declared.iter().map(is_kept).fold(false, |any, is_kept| any | is_kept) {
                return false;
            }
            let moment = (row.arrival() + 1, now_ms);
            let then = Snapshot::new(self, lockstep_series::pin(), NonNull::from(state), moment);
            !then.is_live(row, &mut key)
        };
        let rows = state.log.rows_from(position, &guard).take(count).map(|found| found.row);
        number(rows.map(is_expired).filter(|expired| *expired).count())
    }
}

/// Whether an index keeps a row, as far as the row alone tells.
fn is_surely_kept(
    (spec, row, arrival_ms): (&IndexSpec, RowView<'_>, i64),
    now_ms: i64,
    (newest, index): (&Newest, usize),
) -> bool {
    let event_time = state::event_time(spec, row, || arrival_ms);
    let retention = spec.retention;
    // First, so that no row is forgotten.
    let is_newest = counts(retention) && newest.is_newest(index, event_time);
    let position = if is_newest { 1 } else { u64::MAX };
    !retention.is_expired(event_time, position, now_ms)
}

/// Whether a rule keeps rows by number.
fn counts(retention: Retention) -> bool {
    !matches!(retention, Retention::Forever | Retention::Absolute { .. })
}
