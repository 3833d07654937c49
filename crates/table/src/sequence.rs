//! In which order appends become visible.
//!
//! `append` begins and ends an append here. Several can be in flight; they become visible one
//! after the other, in the order in which they took their arrivals, so that what a reader sees is
//! always a prefix of all that arrived.

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
}

/// How often an append looks whether it is visible before it sleeps: for some microseconds.
const SPINS: usize = if cfg!(miri) { 1 } else { 256 };

/// An append that took its arrivals. It becomes visible when it is dropped, which waits for the
/// appends before it.
pub(crate) struct InFlight<'a> {
    sequence: &'a Sequence,
    end: u64,
}

/// The right to take arrivals.
pub(crate) struct Turn<'a> {
    sequence: &'a Sequence,
    appends: MutexGuard<'a, Appends>,
}

impl Sequence {
    /// Waits for the turn to take arrivals.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { sequence: self, appends: self.appends.lock() }
    }

    /// Rows with a smaller arrival are visible, in every series.
    #[inline]
    pub(crate) fn visible(&self) -> u64 {
        // Acquire: pairs with the Release in `end`, which came after the rows were in every series.
        self.visible.load(Ordering::Acquire)
    }

    /// Makes an append visible as soon as those before it are.
    fn end(&self, end: u64) {
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
            return;
        }
        drop(appends);
        // Most often the earlier append is at its end as well: to sleep would take longer.
        for _ in 0..SPINS {
            if self.visible() >= end {
                return;
            }
            std::hint::spin_loop();
        }
        let mut appends = self.appends.lock();
        appends.waiting += 1;
        // Relaxed: written under the lock.
        while self.visible.load(Ordering::Relaxed) < end {
            appends = self.advanced.wait(appends);
        }
        appends.waiting -= 1;
    }
}

impl<'a> Turn<'a> {
    /// The time at which rows arrive: not before what arrived earlier.
    pub(crate) fn arrival_ms(&mut self, now_ms: i64) -> i64 {
        let arrival_ms = self.appends.arrival_ms_last.map_or(now_ms, |last| last.max(now_ms));
        self.appends.arrival_ms_last = Some(arrival_ms);
        arrival_ms
    }

    /// Says that the rows up to this arrival are in the log, and lets others have their turn.
    pub(crate) fn end_at(mut self, end: u64) -> InFlight<'a> {
        self.appends.in_flight.push_back((end, false));
        InFlight { sequence: self.sequence, end }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.sequence.end(self.end);
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("visible", &self.visible()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Sequence;

    #[test]
    fn a_later_append_waits_for_an_earlier_one() {
        // A thread needs it for as long as the process may last.
        let sequence: &'static Sequence = Box::leak(Box::default());
        let first = sequence.turn().end_at(3);
        let second = sequence.turn().end_at(7);
        let ending = lockstep_host::spawn("second", move || {
            drop(second);
            sequence.visible()
        });
        assert_eq!(sequence.visible(), 0);
        drop(first);
        assert_eq!(ending.unwrap().join().unwrap(), 7);
        assert_eq!(sequence.visible(), 7);
    }

    #[test]
    fn arrival_times_do_not_step_back() {
        let sequence = Sequence::default();
        assert_eq!(sequence.turn().arrival_ms(-5), -5);
        assert_eq!(sequence.turn().arrival_ms(9), 9);
        assert_eq!(sequence.turn().arrival_ms(2), 9);
    }
}
