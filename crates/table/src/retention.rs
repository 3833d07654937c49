//! Retention: what no declared index keeps any more is removed from memory.
//!
//! A removed row must not be missed by any snapshot. So rows are removed as of a moment that lies
//! before every snapshot that still lives: the moment is noted first, and used when all guards of that
//! time are gone.

use std::{
    cell::RefCell,
    ptr::NonNull,
    sync::{Arc, atomic::Ordering},
};

use lockstep_series::{Bounds, Fate, RowRef};

use crate::{
    Snapshot, Table,
    state::{Index, Origin},
    table::{COLLECTION_ROWS_MIN, number},
};

impl Table {
    /// Removes expired rows that no snapshot can see any more, and returns how many. While there
    /// are older snapshots, rows that expired since wait for a later call. Reads every row when
    /// rows can expire at all; readers go on, writers wait.
    pub fn collect_expired(&self) -> u64 {
        if self.snapshot().state().keeps_everything {
            // Relaxed: when exactly a collection happens does not matter.
            self.until_collection.store(i64::MAX, Ordering::Relaxed);
            return 0;
        }
        self.note_horizon();
        lockstep_series::reclaim_small();
        self.change(|_| {
            let horizon = self.horizon.lock().take();
            horizon.map_or(0, |horizon| self.collect(horizon))
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

    fn collect(&self, (visible, now_ms): (u64, i64)) -> u64 {
        let alone = self.alone();
        let state = self.sole_state(&alone);
        let guard = lockstep_series::pin();
        let past_guard = lockstep_series::pin();
        let past = Snapshot::new(self, past_guard, NonNull::from(state), (visible, now_ms));
        let mut key = Vec::new();
        let mut is_kept = |row: RowRef<'_>| row.arrival() >= visible || past.is_live(row, &mut key);
        // The log first: whether a row is live is looked up in the series, as they are.
        let plan = state.log.plan(&mut |found| is_kept(found.row), &guard);
        for (index, Index { series, origin, .. }) in state.indexes.iter().enumerate() {
            if *origin == Origin::Removed {
                continue;
            }
            if let Some(retention) = state.live_retentions[index] {
                series.trim(Bounds::new(visible, retention, now_ms));
                continue;
            }
            // A series that has lost dead rows still tells of every live row that it keeps it.
            let is_kept = RefCell::new(&mut is_kept);
            let fate = |_, row: RowRef<'_>| {
                if (is_kept.borrow_mut())(row) { Fate::Keep } else { Fate::Remove }
            };
            // SAFETY: no row moves.
            unsafe { series.retain(|| fate) };
        }
        if plan.moves_rows() {
            let fate = |_, row: RowRef<'_>| plan.moved(row).map_or(Fate::Keep, Fate::Move);
            for (_, Index { series, .. }) in state.present() {
                // SAFETY: the plan's blocks become the log's below.
                unsafe { series.retain(|| fate) };
            }
        }
        // SAFETY: the gate keeps appends away. No series keeps a row that is not live: `trim` goes
        // by the rule by which the index shows rows, for the others each row was asked for.
        unsafe { state.log.install(&plan, &guard) };
        let left = i64::try_from(state.log.row_count(&guard)).unwrap_or(i64::MAX);
        // Relaxed: when exactly a collection happens does not matter.
        self.until_collection.store(left.max(COLLECTION_ROWS_MIN), Ordering::Relaxed);
        number(plan.removed_count())
    }
}
