//! In which order appends become visible.
//!
//! `append` begins and ends an append here. Several can be in flight; they become visible one
//! after the other, in the order in which they took their arrivals, so that what a reader sees is
//! always a prefix of all that arrived.
//!
//! An append that panics is in the log or in an index with a part of its rows, and nobody knows with
//! which. It never becomes visible, and with it nothing that arrived later: the table is damaged.
//! Readers go on with what was visible before; whoever waits behind it, and whoever comes, is
//! refused, until the table is emptied ([ADR 0019](../../../docs/adr/0019-memory-is-freed-by-who-writes.md)).

use std::{
    collections::VecDeque,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use lockstep_host::sync::{Condvar, Mutex, MutexGuard};

/// The appends of a table in order of arrival.
#[derive(Default)]
pub(crate) struct Sequence {
    appends: Mutex<Appends>,
    /// Some append became visible.
    advanced: Condvar,
    /// Rows with a smaller arrival are visible. Written under the lock.
    visible: AtomicU64,
}

#[derive(Default)]
struct Appends {
    /// The arrival time of the newest row: arrival times do not step back.
    arrival_ms_last: Option<i64>,
    /// Appends that are not visible, oldest first: where their arrivals end, and whether they are
    /// in every index.
    in_flight: VecDeque<(u64, bool)>,
    /// How many wait for an earlier append.
    waiting: usize,
    /// Whether an append has panicked.
    is_damaged: bool,
}

/// How often an append looks whether it is visible before it sleeps: for some microseconds.
const SPINS: usize = if cfg!(miri) { 1 } else { 256 };

/// An append that took its arrivals. [`Self::end`] makes it visible; dropped without it, it never
/// becomes visible, nor does what arrived later.
pub(crate) struct InFlight<'a> {
    sequence: &'a Sequence,
    end: u64,
    is_over: bool,
}

/// The right to take arrivals.
pub(crate) struct Turn<'a> {
    sequence: &'a Sequence,
    appends: MutexGuard<'a, Appends>,
}

impl Sequence {
    /// Waits for the turn to take arrivals; `None` when the table is damaged.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        let appends = self.appends.lock();
        (!appends.is_damaged).then_some(Turn { sequence: self, appends })
    }

    /// An append will not become visible.
    fn damage(&self) {
        self.appends.lock().is_damaged = true;
        self.advanced.notify_all();
    }

    /// Forgets appends that will never become visible: none of their rows is stored any more. No
    /// append is in flight.
    pub(crate) fn repair(&self) {
        let mut appends = self.appends.lock();
        appends.is_damaged = false;
        appends.in_flight.clear();
    }

    /// Rows with a smaller arrival are visible, in every series.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        // Acquire: pairs with the Release in `end`, which came after the rows were in every series.
        self.visible.load(Ordering::Acquire)
    }

    /// Makes an append visible as soon as those before it are; `false` when one of them panicked.
    #[must_use]
    fn end(&self, end: u64) -> bool {
        let mut appends = self.appends.lock();
        let own = appends.in_flight.iter_mut().find(|(other, _)| *other == end);
        own.expect("it is in flight until it is visible").1 = true;
        let mut visible = None;
        while let Some((end, true)) = appends.in_flight.front() {
            visible = Some(*end);
            appends.in_flight.pop_front();
        }
        if let Some(visible) = visible {
            // Relaxed: written under the lock.
            assert!(visible > self.visible.load(Ordering::Relaxed), "arrivals of a table ascend");
            // Release: pairs with the Acquire in `visible`.
            self.visible.store(visible, Ordering::Release);
            if appends.waiting > 0 {
                self.advanced.notify_all();
            }
            return true;
        }
        drop(appends);
        // Most often the earlier append is at its end as well: to sleep would take longer.
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
}

impl<'a> Turn<'a> {
    /// The time at which rows arrive: not before what arrived earlier.
    pub(crate) fn arrival_ms(&mut self, now_ms: i64) -> i64 {
        let arrival_ms = self.appends.arrival_ms_last.map_or(now_ms, |last| last.max(now_ms));
        self.appends.arrival_ms_last = Some(arrival_ms);
        arrival_ms
    }

    /// Takes the arrivals up to this one.
    pub(crate) fn take(&mut self, end: u64) -> InFlight<'a> {
        self.appends.in_flight.push_back((end, false));
        InFlight { sequence: self.sequence, end, is_over: false }
    }
}

impl InFlight<'_> {
    /// Makes the append visible as soon as those before it are, for which it waits; `false` when one
    /// of them panicked, so that it will never be visible.
    #[must_use]
    pub(crate) fn end(mut self) -> bool {
        self.is_over = true;
        self.sequence.end(self.end)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.sequence.damage();
        }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("visible", &self.visible()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{InFlight, Sequence};

    #[test]
    fn a_later_append_waits_for_an_earlier_one() {
        // A thread needs it for as long as the process may last.
        let sequence: &'static Sequence = Box::leak(Box::default());
        let first = take(sequence, 3);
        let second = take(sequence, 7);
        let ending = lockstep_host::spawn("second", move || (second.end(), sequence.visible()));
        assert_eq!(sequence.visible(), 0);
        assert!(first.end());
        assert_eq!(ending.unwrap().join().unwrap(), (true, 7));
        assert_eq!(sequence.visible(), 7);
    }

    fn take(sequence: &'static Sequence, end: u64) -> InFlight<'static> {
        sequence.turn().unwrap().take(end)
    }

    #[test]
    fn nothing_becomes_visible_after_an_append_that_panicked() {
        let sequence: &'static Sequence = Box::leak(Box::default());
        let [first, second, third] = [3, 7, 9].map(|end| take(sequence, end));
        let ending = lockstep_host::spawn("third", move || third.end());
        drop(second);
        assert!(!ending.unwrap().join().unwrap());
        assert!(first.end());
        assert_eq!(sequence.visible(), 3);
        assert!(sequence.turn().is_none());
        sequence.repair();
        assert!(take(sequence, 11).end());
        assert_eq!(sequence.visible(), 11);
    }

    #[test]
    fn arrival_times_do_not_step_back() {
        let sequence = Sequence::default();
        assert_eq!(sequence.turn().unwrap().arrival_ms(-5), -5);
        assert_eq!(sequence.turn().unwrap().arrival_ms(9), 9);
        assert_eq!(sequence.turn().unwrap().arrival_ms(2), 9);
    }
}
