//! Retention: rows that no declared index keeps any more are removed from memory.
//!
//! No existing snapshot may miss a removed row. So rows are removed as of a horizon that is earlier
//! than every snapshot: the horizon is noted first, and used when all guards of that time are gone.
//!
//! Readers and appends go on: only the log's blocks are replaced while no append is in flight. The
//! rows to remove are found by reading the keys of one index whose rule alone decides which of its
//! rows are live; only where there is none, each row is looked up in every declared index. A removed
//! row may stay in its block as long as half of the block is kept; it is then in `removed_rows`.
//!
//! A thread of the table runs it (`expiry_thread`), or, where there is none, the append that finds
//! that it is time to.

use std::sync::{Arc, atomic::Ordering};

use lockstep_row::Retention;
use lockstep_series::{Bounds, RowAction, RowRef, SeriesRows};
use serde::{Deserialize, Serialize};

use crate::{
    Snapshot, Table,
    arrival_set::ArrivalSet,
    build::LogScan,
    change::ChangeGuard,
    state::{Index, TableState},
    table::{COLLECTION_ROWS_MIN, number},
};

/// So many rows may be appended after a collection that could not remove rows yet.
const RETRY_ROWS: i64 = COLLECTION_ROWS_MIN / 8;
/// The thread searches for expired rows when this part of the table's rows was appended.
const COLLECTION_PART: i64 = 8;
/// So many rows may be appended after a collection is due; then appends wait for it.
const RUN_AHEAD_ROWS: i64 = 1 << 18;
/// A full table without expired rows is not searched again for so long, unless rows were appended.
const FRUITLESS_PAUSE_MS: i64 = 100;

/// The snapshot as of which rows may be removed. Ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Horizon {
    /// Rows with a smaller arrival are visible.
    pub visible_arrival: u64,
    /// The time, in milliseconds since the epoch.
    pub now_ms: i64,
}

impl Table {
    /// Removes expired rows that no snapshot can see any more, and returns how many. Rows that a
    /// snapshot may still see are left to a later call. Reads every row when rows can expire at all;
    /// readers and writers go on.
    pub fn collect_expired(&self) -> u64 {
        let collects = {
            let snapshot = self.snapshot();
            let state = snapshot.state();
            // Expired rows of a disk table leave memory with the others, and the disk when files are merged.
            !state.keeps_everything && state.disk.is_none()
        };
        if !collects {
            // Relaxed: when exactly a collection happens does not matter.
            self.rows_until_collection.store(i64::MAX, Ordering::Relaxed);
            return 0;
        }
        self.note_horizon();
        lockstep_series::reclaim_small();
        self.change(|change| {
            let horizon = self.horizon.lock().take();
            if horizon.is_none() {
                // Relaxed: as above.
                self.rows_until_collection.store(RETRY_ROWS, Ordering::Relaxed);
            }
            horizon.map_or(0, |horizon| self.collect(change, horizon))
        })
    }

    /// Collects expired rows, or lets the thread do so, when it is time to.
    pub(crate) fn collect_in_time(&self) {
        // Relaxed: when exactly a collection happens does not matter.
        let left = self.rows_until_collection.load(Ordering::Relaxed);
        if left > 0 {
            return;
        }
        match self.expiry_thread.wake() {
            Some(runs) if left < -RUN_AHEAD_ROWS => self.expiry_thread.wait_for_run(runs),
            Some(_) => {}
            None => {
                self.collect_expired();
            }
        }
    }

    /// Collects expired rows because the memory budget is exhausted: for one append at a time, and not
    /// again for appends that were refused in the meantime.
    pub(crate) fn collect_for_memory(&self) {
        // Relaxed: written under the lock, under which it is read again.
        let begun = self.collections.load(Ordering::Relaxed);
        let _only = self.collecting.lock();
        // Relaxed: as above.
        if self.collections.load(Ordering::Relaxed) != begun || self.is_clean() {
            return;
        }
        self.collections.fetch_add(1, Ordering::Relaxed);
        match self.expiry_thread.wake() {
            Some(runs) => self.expiry_thread.wait_for_run(runs),
            None => {
                self.collect_expired();
            }
        }
    }

    /// Returns whether a recent search found that nothing has expired.
    fn is_clean(&self) -> bool {
        self.found_clean_at.lock().is_some_and(|found| {
            let age_ms = self.clock.now_ms().saturating_sub(found.now_ms);
            found.visible_arrival == self.commit_queue.visible()
                && (0..FRUITLESS_PAUSE_MS).contains(&age_ms)
        })
    }

    /// Notes that rows are removed that had expired at a horizon, although snapshots may have shown them that are of
    /// an earlier time, or do not show all rows that arrived before it.
    pub(crate) fn note_removal(&self, horizon: Horizon) {
        // Release: pairs with the Acquire in `Snapshot::is_complete_at`.
        self.removed_before.fetch_max(horizon.visible_arrival, Ordering::Release);
        self.note_time(horizon.now_ms);
    }

    /// Notes a time before which no snapshot is to be from now on.
    pub(crate) fn note_time(&self, now_ms: i64) {
        // Release: pairs with the Acquire in `snapshot`.
        self.now_ms_min.fetch_max(now_ms, Ordering::Release);
    }

    /// Notes the present as the horizon as of which rows may be removed once every snapshot that exists
    /// now is gone.
    fn note_horizon(&self) {
        let guard = lockstep_series::pin();
        let snapshot = self.snapshot();
        let noted =
            Horizon { visible_arrival: snapshot.visible_arrival(), now_ms: snapshot.now_ms() };
        // Release: pairs with the Acquire in `snapshot`.
        self.now_ms_min.fetch_max(noted.now_ms, Ordering::Release);
        let horizon = Arc::clone(&self.horizon);
        guard.defer(move || {
            let mut horizon = horizon.lock();
            *horizon = (*horizon).max(Some(noted));
        });
    }

    /// Removes the rows that were expired at the horizon, and returns how many.
    fn collect(&self, change: &ChangeGuard<'_>, horizon: Horizon) -> u64 {
        let state = change.state();
        if state.disk.is_some() {
            return 0;
        }
        let Horizon { visible_arrival: visible, now_ms } = horizon;
        let expired = self.find_expired(&state, horizon);
        *self.found_clean_at.lock() = expired.is_empty().then_some(horizon);
        let removed = if expired.is_empty() {
            0
        } else {
            let is_kept = |row: RowRef<'_>| !expired.contains(row.arrival());
            let action =
                |row: RowRef<'_>| if is_kept(row) { RowAction::Keep } else { RowAction::Remove };
            for (at, (_, index)) in state.present() {
                let Some(retention) = state.live_retentions[at] else {
                    let action = |_, row: RowRef<'_>| action(row);
                    // SAFETY: no row moves.
                    unsafe { index.series.retain(|| action) };
                    continue;
                };
                index.series.trim(Bounds::new(visible, retention, now_ms));
            }
            self.remove_from_log(&state, &expired)
        };
        let guard = lockstep_series::pin();
        let rows = i64::try_from(state.log.row_count(&guard)).unwrap_or(i64::MAX);
        // A thread of its own searches more often, since no append waits for it.
        let left = if self.expiry_thread.is_there() { rows / COLLECTION_PART } else { rows };
        // Relaxed: when exactly a collection happens does not matter.
        self.rows_until_collection.store(left.max(COLLECTION_ROWS_MIN), Ordering::Relaxed);
        removed
    }

    /// Removes rows from the log to which no series points any more. Returns how many.
    fn remove_from_log(&self, state: &TableState, expired: &ArrivalSet) -> u64 {
        let mut removed_rows = ArrivalSet::clone(&self.removed_rows.lock());
        removed_rows.extend(expired);
        let guard = lockstep_series::pin();
        let is_kept = |row: RowRef<'_>| !removed_rows.contains(row.arrival());
        let full = {
            let _exclusive = self.lock_exclusive();
            state.log.seal(&mut |found| is_kept(found.row), &guard)
        };
        let mut plan = state.log.plan_full(full, &mut |found| is_kept(found.row), &guard);
        if plan.moves_rows() {
            let action =
                |_, row: RowRef<'_>| plan.moved(row).map_or(RowAction::Keep, RowAction::Move);
            for (_, (_, Index { series, .. })) in state.present() {
                // SAFETY: the plan's blocks become the log's below.
                unsafe { series.retain(|| action) };
            }
        }
        let exclusive = self.lock_exclusive();
        self.hold_for_tails(state);
        state.log.plan_rest(&mut plan, &mut |found| is_kept(found.row), &guard);
        // SAFETY: the exclusive lock keeps appends away. No series points to a removed row: each was
        // removed from all of them, by the rule of an index or one by one; nor to the old address of a
        // moved one.
        unsafe { state.log.install(&plan, &guard) };
        drop(exclusive);
        let oldest = state.log.rows(u64::MAX, &guard).next().map(|found| found.row.arrival());
        removed_rows.forget_before(oldest.unwrap_or(u64::MAX));
        *self.removed_rows.lock() = Arc::new(removed_rows);
        number(plan.removed_count())
    }

    /// Finds the rows that are in the series and were not live at the horizon.
    fn find_expired(&self, state: &TableState, horizon: Horizon) -> ArrivalSet {
        let Horizon { visible_arrival: visible, now_ms } = horizon;
        let mut expired = ArrivalSet::default();
        let rules = &state.live_retentions;
        let found = state.present().find_map(|(at, (_, index))| Some((index, rules[at]?)));
        if let Some((index, retention)) = found {
            index.series.for_each_key(Bounds::visible(visible), |rows| {
                add_expired(rows, retention, now_ms, &mut expired);
            });
            return expired;
        }
        let mut key = Vec::new();
        let walked =
            LogScan::new(self, &state.log).uninterrupted().rows_until(visible, &mut |found| {
                let past = Snapshot::as_of(self, state, horizon);
                // A row that cannot be looked up stays.
                if past.is_live(found.row, &mut key) == Ok(false) {
                    expired.insert(found.row.arrival());
                }
            });
        walked.expect("no interrupt ends it");
        expired
    }
}

/// Adds the rows of a key that are expired by a rule.
fn add_expired(
    mut rows: SeriesRows<'_>,
    retention: Retention,
    now_ms: i64,
    expired: &mut ArrivalSet,
) {
    let mut passed = 0;
    while let Some(run) = rows.next_run() {
        let count = number(run.len());
        // Expiry is monotone in a key.
        if retention.is_expired(run.event_time(run.len() - 1), passed + count, now_ms) {
            for (at, n) in (0..run.len()).zip(passed + 1..) {
                if retention.is_expired(run.event_time(at), n, now_ms) {
                    expired.insert(run.row(at).arrival());
                }
            }
        }
        passed += count;
    }
}
