//! The commit queue: appends become visible in the order of their arrivals.
//!
//! `append` enters and commits an append here. Several can be in flight; they become visible one after
//! the other, in the order in which they took their arrivals, so that what a reader sees is always a
//! prefix of all that arrived.
//!
//! When an append panics, an unknown part of its rows is in the log and in the indexes. It never
//! becomes visible, nor does anything that arrived later: the table is damaged. Readers see what was
//! visible before; appends that wait behind it, and later ones, are refused until the table is emptied
//! ([ADR 0019](../../../docs/adr/0019-memory-is-freed-by-who-writes.md)).
//!
//! An append that waits for the disk says before that its rows are stored. Who comes first after a sync
//! makes all appends visible that the sync was for, and the others find theirs visible; one by one they
//! would wait for each other's threads to wake.
//!
//! An append over several tables takes its arrivals under the locks of all their queues, so that such
//! appends are in the same order in each. It becomes visible when it is the oldest one in all of them.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_host::sync::{Condvar, Mutex, MutexGuard};

use crate::{TailSignal, publication::Publications};

/// The appends of a table in order of arrival.
#[derive(Default)]
pub(crate) struct CommitQueue {
    appends: Mutex<QueueState>,
    /// Notified when an append became visible.
    advanced: Condvar,
    /// Rows with a smaller arrival are visible. Written under the lock.
    visible: AtomicU64,
}

/// The state that the queue's lock guards.
#[derive(Default)]
struct QueueState {
    /// The arrival time of the newest row: arrival times do not step back.
    arrival_ms_last: Option<i64>,
    /// Appends that are not visible yet, oldest first.
    in_flight: VecDeque<QueuedAppend>,
    /// The number of threads that wait for an earlier append.
    waiting: usize,
    /// Who is told when an append becomes visible.
    listeners: Vec<Weak<TailSignal>>,
    /// Whether an append has panicked.
    is_damaged: bool,
}

/// An append in the queue.
struct QueuedAppend {
    /// Its first arrival.
    start: u64,
    /// One past its last arrival.
    end: u64,
    state: AppendState,
}

/// How far an append is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppendState {
    /// Its rows are not in every index.
    Taken,
    /// Its rows are in every index, and wait until the log is on the disk up to its end.
    Stored,
    /// It becomes visible when it is the oldest one.
    Applied,
}

impl QueuedAppend {
    /// Returns whether it may become visible, where the log is on the disk up to `durable`.
    fn is_ready(&self, durable: u64) -> bool {
        match self.state {
            AppendState::Taken => false,
            AppendState::Stored => self.end <= durable,
            AppendState::Applied => true,
        }
    }
}

/// How often an append checks whether it is visible before it sleeps: for some microseconds.
const SPINS: usize = if cfg!(miri) { 1 } else { 256 };

/// An append that took its arrivals. [`Self::commit`] makes it visible; dropped without it, it never
/// becomes visible, nor does what arrived later.
pub(crate) struct InFlightAppend<'a> {
    queue: &'a CommitQueue,
    end: u64,
    is_ended: bool,
}

/// The lock of the queue, under which arrivals are taken.
pub(crate) struct QueueLock<'a> {
    queue: &'a CommitQueue,
    appends: MutexGuard<'a, QueueState>,
}

impl QueueState {
    fn wake_listeners(&self) {
        self.listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.raise());
    }

    /// Returns the append that ends before `end`, unless it is visible.
    fn find(&mut self, end: u64) -> Option<&mut QueuedAppend> {
        self.in_flight.iter_mut().find(|append| append.end == end)
    }
}

impl CommitQueue {
    /// Locks the queue to take arrivals; `None` when the table is damaged.
    pub(crate) fn lock(&self) -> Option<QueueLock<'_>> {
        let appends = self.appends.lock();
        (!appends.is_damaged).then_some(QueueLock { queue: self, appends })
    }

    /// Returns the first arrival of the appends that are not visible yet; where there are none, what
    /// `next` returns while nobody takes an arrival.
    pub(crate) fn first_in_flight(&self, next: impl FnOnce() -> u64) -> u64 {
        let appends = self.appends.lock();
        appends.in_flight.front().map_or_else(next, |append| append.start)
    }

    /// Raises a signal from now on whenever an append becomes visible, as long as somebody has the signal.
    pub(crate) fn add_listener(&self, signal: &Arc<TailSignal>) {
        let mut appends = self.appends.lock();
        appends.listeners.retain(|listener| listener.strong_count() > 0);
        let is_there =
            appends.listeners.iter().any(|listener| listener.as_ptr() == Arc::as_ptr(signal));
        if !is_there {
            appends.listeners.push(Arc::downgrade(signal));
        }
    }

    /// Raises the signals of those who wait for rows.
    pub(crate) fn wake_listeners(&self) {
        self.appends.lock().wake_listeners();
    }

    /// Marks the table as damaged: an append will not become visible.
    fn damage(&self) {
        self.appends.lock().is_damaged = true;
        self.advanced.notify_all();
    }

    /// Removes appends that will never become visible: none of their rows is stored any more. No append
    /// is in flight.
    pub(crate) fn repair(&self) {
        let mut appends = self.appends.lock();
        appends.is_damaged = false;
        appends.in_flight.clear();
    }

    /// Returns the visible arrival: rows with a smaller one are visible, in every series.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        // Acquire: pairs with the Release in `commit`, which follows the inserts into every series.
        self.visible.load(Ordering::Acquire)
    }

    /// Makes an append visible as soon as those before it are; `durable` is up to where the log is on
    /// the disk. Returns `false` when one of them panicked.
    #[must_use]
    fn commit(&self, end: u64, durable: u64) -> bool {
        if self.visible() >= end {
            // Another append did, after the sync that both waited for.
            return true;
        }
        let mut appends = self.appends.lock();
        if let Some(own) = appends.find(end) {
            own.state = AppendState::Applied;
        }
        self.advance(&mut appends, durable);
        // Relaxed: written under the lock.
        if self.visible.load(Ordering::Relaxed) >= end {
            return true;
        }
        drop(appends);
        // Most often the earlier append is about to commit as well: to sleep would take longer.
        for _ in 0..SPINS {
            if self.visible() >= end {
                return true;
            }
            std::hint::spin_loop();
        }
        let mut appends = self.appends.lock();
        appends.waiting += 1;
        // Relaxed: written under the lock.
        while self.visible.load(Ordering::Relaxed) < end && !appends.is_damaged {
            appends = self.advanced.wait(appends);
        }
        appends.waiting -= 1;
        // Relaxed: as above.
        self.visible.load(Ordering::Relaxed) >= end
    }

    /// Makes the appends at the front visible that may be. Returns whether there are any.
    fn advance(&self, appends: &mut QueueState, durable: u64) -> bool {
        let mut visible = None;
        while let Some(append) = appends.in_flight.pop_front_if(|append| append.is_ready(durable)) {
            visible = Some(append.end);
        }
        let Some(visible) = visible else { return false };
        // Relaxed: written under the lock.
        assert!(visible > self.visible.load(Ordering::Relaxed), "arrivals of a table ascend");
        // Release: pairs with the Acquire in `visible`.
        self.visible.store(visible, Ordering::Release);
        if appends.waiting > 0 {
            self.advanced.notify_all();
        }
        appends.wake_listeners();
        true
    }

    /// Waits until the append that ends before `end` is the oldest one in flight. Returns `false` when
    /// an earlier one panicked.
    #[must_use]
    fn wait_for_front(&self, end: u64) -> bool {
        let mut appends = self.appends.lock();
        loop {
            if appends.in_flight.front().is_some_and(|append| append.end == end) {
                return true;
            }
            if appends.is_damaged {
                return false;
            }
            appends.waiting += 1;
            appends = self.advanced.wait(appends);
            appends.waiting -= 1;
        }
    }
}

impl<'a> QueueLock<'a> {
    /// Returns the time at which rows arrive: not before what arrived earlier.
    pub(crate) fn arrival_ms(&mut self, now_ms: i64) -> i64 {
        let arrival_ms = self.appends.arrival_ms_last.map_or(now_ms, |last| last.max(now_ms));
        self.appends.arrival_ms_last = Some(arrival_ms);
        arrival_ms
    }

    /// Enters an append whose arrivals end before `end`.
    pub(crate) fn take(&mut self, end: u64) -> InFlightAppend<'a> {
        self.take_from(end - 1, end)
    }

    /// Enters an append whose arrivals begin at `start` and end before `end`.
    pub(crate) fn take_from(&mut self, start: u64, end: u64) -> InFlightAppend<'a> {
        let last = self.appends.in_flight.back();
        assert!(last.is_none_or(|last| last.end < end), "arrivals of a table ascend");
        self.appends.in_flight.push_back(QueuedAppend { start, end, state: AppendState::Taken });
        InFlightAppend { queue: self.queue, end, is_ended: false }
    }
}

impl InFlightAppend<'_> {
    /// Returns the arrival after its last row.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Says that the rows are in every index, before waiting until the log is on the disk up to them.
    pub(crate) fn stored(&self) {
        let mut appends = self.queue.appends.lock();
        let own = appends.find(self.end).expect("it is in flight until it is visible");
        own.state = AppendState::Stored;
    }

    /// Makes the append visible as soon as those before it are, for which it waits; `durable` is up to
    /// where the log is on the disk. Returns `false` when one of them panicked, so that it will never be
    /// visible.
    #[must_use]
    pub(crate) fn commit(mut self, durable: u64) -> bool {
        self.is_ended = true;
        self.queue.commit(self.end, durable)
    }

    /// Makes appends of several tables, which took their arrivals together, visible together, as soon
    /// as those before each are. They are in the order in which their queues are locked. Returns
    /// `false` when one before panicked: then none of them will be visible.
    #[must_use]
    pub(crate) fn commit_all(mut appends: Vec<Self>, publications: &Publications) -> bool {
        // Nothing overtakes an append that is the oldest one, so all are in the end.
        if !appends.iter().all(|append| append.queue.wait_for_front(append.end)) {
            return false;
        }
        let queues = appends.iter().map(|append| append.queue).collect::<Vec<_>>();
        let mut locked: Vec<_> = queues.iter().map(|queue| queue.appends.lock()).collect();
        publications.publish(|| {
            for (append, state) in appends.iter_mut().zip(&mut locked) {
                let oldest = state.in_flight.front_mut().expect("it was waited for");
                assert_eq!(oldest.end, append.end, "the oldest append stays the oldest");
                oldest.state = AppendState::Applied;
                append.is_ended = append.queue.advance(state, 0);
            }
        });
        true
    }
}

impl Drop for InFlightAppend<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.queue.damage();
        }
    }
}

impl fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitQueue").field("visible", &self.visible()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{CommitQueue, InFlightAppend};

    #[test]
    fn a_later_append_waits_for_an_earlier_one() {
        // The thread needs a `'static` queue.
        let queue: &'static CommitQueue = Box::leak(Box::default());
        let first = take(queue, 3);
        let second = take(queue, 7);
        let ending = lockstep_host::spawn("second", move || (second.commit(0), queue.visible()));
        assert_eq!(queue.visible(), 0);
        assert!(first.commit(0));
        assert_eq!(ending.unwrap().join().unwrap(), (true, 7));
        assert_eq!(queue.visible(), 7);
    }

    fn take(queue: &'static CommitQueue, end: u64) -> InFlightAppend<'static> {
        queue.lock().unwrap().take(end)
    }

    #[test]
    fn what_a_sync_was_for_becomes_visible_together() {
        let queue: &'static CommitQueue = Box::leak(Box::default());
        let [first, second, third] = [3, 7, 9].map(|end| take(queue, end));
        let fourth = take(queue, 12);
        first.stored();
        third.stored();
        fourth.stored();
        // The first one is on the disk, but the second one, which is in no index, stands before the others.
        assert!(first.commit(9));
        assert_eq!(queue.visible(), 3);
        second.stored();
        assert_eq!(queue.visible(), 3, "stored rows wait for the disk");
        assert!(second.commit(9));
        assert_eq!(queue.visible(), 9, "the fourth one is not on the disk");
        assert!(third.commit(9), "it is visible already");
        assert!(fourth.commit(12));
        assert_eq!(queue.visible(), 12);
    }

    #[test]
    fn nothing_becomes_visible_after_an_append_that_panicked() {
        let queue: &'static CommitQueue = Box::leak(Box::default());
        let [first, second, third] = [3, 7, 9].map(|end| take(queue, end));
        let ending = lockstep_host::spawn("third", move || third.commit(0));
        drop(second);
        assert!(!ending.unwrap().join().unwrap());
        assert!(first.commit(0));
        assert_eq!(queue.visible(), 3);
        assert!(queue.lock().is_none());
        queue.repair();
        assert!(take(queue, 11).commit(0));
        assert_eq!(queue.visible(), 11);
    }

    #[test]
    fn arrival_times_do_not_step_back() {
        let queue = CommitQueue::default();
        assert_eq!(queue.lock().unwrap().arrival_ms(-5), -5);
        assert_eq!(queue.lock().unwrap().arrival_ms(9), 9);
        assert_eq!(queue.lock().unwrap().arrival_ms(2), 9);
    }
}
