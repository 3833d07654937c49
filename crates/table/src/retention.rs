//! Retention: what no declared index keeps any more is removed from memory.
//!
//! A removed row must not be missed by any snapshot. So rows are removed as of a moment that lies
//! before every snapshot that still lives: the moment is noted first, and used when all guards of that
//! time are gone.
//!
//! Readers and appends go on: only the log's blocks are exchanged while no append is in flight. The
//! rows to remove are found by going through the keys of one index that tells by itself what is
//! live, which looks at no row that it keeps by number; only where there is none, each row is
//! looked for. A row that was removed can go on taking room in its block, as long as half of the
//! block is kept; it is remembered as gone.
//!
//! Who runs it: a thread of the table (`upkeep`), or, where it has none, the append that finds that
//! it is time to.

use std::{
    ptr::NonNull,
    sync::{Arc, atomic::Ordering},
};

use lockstep_row::Retention;
use lockstep_series::{Bounds, RowAction, RowRef, SeriesRows};

use crate::{
    Snapshot, Table,
    arrival_set::ArrivalSet,
    build::Walk,
    change::Changing,
    state::{Index, State},
    table::{COLLECTION_ROWS_MIN, number},
};

/// So many rows may be appended after a collection that found rows it could not remove yet.
const RETRY_ROWS: i64 = COLLECTION_ROWS_MIN / 8;
/// The thread looks for expired rows when so many times fewer rows came than there are.
const COLLECTION_PART: i64 = 8;
/// Rows that may be appended beyond what a collection is due at; then appends wait for it.
const RUN_AHEAD_ROWS: i64 = 1 << 18;
/// A full table without expired rows is not looked through again for so long, unless rows came.
const FRUITLESS_PAUSE_MS: i64 = 100;

/// A moment as of which rows may be removed: what is visible, and now in milliseconds.
pub(crate) type Horizon = (u64, i64);

impl Table {
    /// Removes expired rows that no snapshot can see any more, and returns how many. While there
    /// are older snapshots, rows that expired since wait for a later call. Reads every row when
    /// rows can expire at all; readers and writers go on.
    pub fn collect_expired(&self) -> u64 {
        if self.snapshot().state().keeps_everything {
            // Relaxed: when exactly a collection happens does not matter.
            self.until_collection.store(i64::MAX, Ordering::Relaxed);
            return 0;
        }
        self.note_horizon();
        lockstep_series::reclaim_small();
        self.change(|changing| {
            let horizon = self.horizon.lock().take();
            if horizon.is_none() {
                // Relaxed: as above.
                self.until_collection.store(RETRY_ROWS, Ordering::Relaxed);
            }
            horizon.map_or(0, |horizon| self.collect(changing, horizon))
        })
    }

    /// Sees to it that expired rows are looked for when it is time to.
    pub(crate) fn collect_in_time(&self) {
        // Relaxed: when exactly a collection happens does not matter.
        let left = self.until_collection.load(Ordering::Relaxed);
        if left > 0 {
            return;
        }
        match self.upkeep.wake() {
            Some(runs) if left < -RUN_AHEAD_ROWS => self.upkeep.wait_for_run(runs),
            Some(_) => {}
            None => {
                self.collect_expired();
            }
        }
    }

    /// Looks for expired rows because the memory budget has no room: one append at a time, and not
    /// again for appends that were refused in the meantime.
    pub(crate) fn make_room(&self) {
        // Relaxed: written under the lock, which the second look takes.
        let begun = self.collections.load(Ordering::Relaxed);
        let _only = self.collecting.lock();
        // Relaxed: as above.
        if self.collections.load(Ordering::Relaxed) != begun || self.is_clean() {
            return;
        }
        self.collections.fetch_add(1, Ordering::Relaxed);
        match self.upkeep.wake() {
            Some(runs) => self.upkeep.wait_for_run(runs),
            None => {
                self.collect_expired();
            }
        }
    }

    /// Whether it was found a moment ago that nothing has expired.
    fn is_clean(&self) -> bool {
        self.clean.lock().is_some_and(|(visible, now_ms)| {
            let age_ms = self.clock.now_ms().saturating_sub(now_ms);
            visible == self.sequence.visible() && (0..FRUITLESS_PAUSE_MS).contains(&age_ms)
        })
    }

    /// Notes the present as the moment as of which rows may be removed once every snapshot that
    /// lives now is gone.
    fn note_horizon(&self) {
        let guard = lockstep_series::pin();
        let snapshot = self.snapshot();
        let noted = (snapshot.visible_arrival(), snapshot.now_ms());
        // Release: pairs with the Acquire in `snapshot`.
        self.now_ms_min.fetch_max(noted.1, Ordering::Release);
        let horizon = Arc::clone(&self.horizon);
        guard.defer(move || {
            let mut horizon = horizon.lock();
            *horizon = (*horizon).max(Some(noted));
        });
    }

    fn collect(&self, changing: &Changing<'_>, horizon: Horizon) -> u64 {
        let state = changing.state();
        let (visible, now_ms) = horizon;
        let dead = self.find_dead(&state, horizon);
        *self.clean.lock() = dead.is_empty().then_some(horizon);
        let removed = if dead.is_empty() {
            0
        } else {
            let is_kept = |row: RowRef<'_>| !dead.contains(row.arrival());
            let fate =
                |row: RowRef<'_>| if is_kept(row) { RowAction::Keep } else { RowAction::Remove };
            for (at, (_, index)) in state.present() {
                let Some(retention) = state.live_retentions[at] else {
                    let fate = |_, row: RowRef<'_>| fate(row);
                    // SAFETY: no row moves.
                    unsafe { index.series.retain(|| fate) };
                    continue;
                };
                index.series.trim(Bounds::new(visible, retention, now_ms));
            }
            self.remove_from_log(&state, &dead)
        };
        let guard = lockstep_series::pin();
        let rows = i64::try_from(state.log.row_count(&guard)).unwrap_or(i64::MAX);
        // A thread of its own looks more often, since nobody waits for it.
        let left = if self.upkeep.is_there() { rows / COLLECTION_PART } else { rows };
        // Relaxed: when exactly a collection happens does not matter.
        self.until_collection.store(left.max(COLLECTION_ROWS_MIN), Ordering::Relaxed);
        removed
    }

    /// Removes rows from the log to which no series leads any more.
    fn remove_from_log(&self, state: &State, dead: &ArrivalSet) -> u64 {
        let mut gone = ArrivalSet::clone(&self.gone.lock());
        gone.extend(dead);
        let guard = lockstep_series::pin();
        let is_kept = |row: RowRef<'_>| !gone.contains(row.arrival());
        let full = {
            let _alone = self.alone();
            state.log.seal(&mut |found| is_kept(found.row), &guard)
        };
        let mut plan = state.log.plan_full(full, &mut |found| is_kept(found.row), &guard);
        if plan.moves_rows() {
            let fate =
                |_, row: RowRef<'_>| plan.moved(row).map_or(RowAction::Keep, RowAction::Move);
            for (_, (_, Index { series, .. })) in state.present() {
                // SAFETY: the plan's blocks become the log's below.
                unsafe { series.retain(|| fate) };
            }
        }
        let alone = self.alone();
        state.log.plan_rest(&mut plan, &mut |found| is_kept(found.row), &guard);
        // SAFETY: the gate keeps appends away. No series leads to a row that is gone: each was
        // removed from all of them, by the rule that tells in an index what is live or one by one;
        // nor to the old place of a moved one.
        unsafe { state.log.install(&plan, &guard) };
        drop(alone);
        let oldest = state.log.rows(u64::MAX, &guard).next().map(|found| found.row.arrival());
        gone.forget_before(oldest.unwrap_or(u64::MAX));
        *self.gone.lock() = Arc::new(gone);
        number(plan.removed_count())
    }

    /// The rows that are in the series and were not live at a moment.
    fn find_dead(&self, state: &State, (visible, now_ms): Horizon) -> ArrivalSet {
        let mut dead = ArrivalSet::default();
        let rules = &state.live_retentions;
        let found = state.present().find_map(|(at, (_, index))| Some((index, rules[at]?)));
        if let Some((index, retention)) = found {
            index.series.for_each_key(Bounds::visible(visible), |rows| {
                find_expired(rows, (retention, now_ms), &mut dead);
            });
            return dead;
        }
        let mut key = Vec::new();
        let walked =
            Walk::new(self, &state.log).uninterrupted().rows_until(visible, &mut |found| {
                let guard = lockstep_series::pin();
                let past = Snapshot::new(self, guard, NonNull::from(state), (visible, now_ms));
                if !past.is_live(found.row, &mut key) {
                    dead.insert(found.row.arrival());
                }
            });
        walked.expect("no interrupt ends it");
        dead
    }
}

/// Adds the rows of a key that a rule calls expired.
fn find_expired(
    mut rows: SeriesRows<'_>,
    (retention, now_ms): (Retention, i64),
    dead: &mut ArrivalSet,
) {
    let mut passed = 0;
    while let Some(run) = rows.next_run() {
        let count = number(run.len());
        // Expiry is monotone in a key.
        if retention.is_expired(run.event_time(run.len() - 1), passed + count, now_ms) {
            for (at, n) in (0..run.len()).zip(passed + 1..) {
                if retention.is_expired(run.event_time(at), n, now_ms) {
                    dead.insert(run.row(at).arrival());
                }
            }
        }
        passed += count;
    }
}
