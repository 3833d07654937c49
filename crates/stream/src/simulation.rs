//! Joiners as they would run on threads of their own, each on a core of its own: a discrete-event simulation.
//!
//! Each message is handled at once, on the thread that sends it, and timed; the time that it took is added to the clock of
//! its joiner, which begins when the message was sent or when the one before it was done, whichever is later. A joiner
//! that waits for the copy of another one goes on when that one has made it, and the thread that passes rows waits for
//! the results of a round as it would for threads. So the times are measured, and only that they pass at once is
//! simulated; what cores share, caches and memory, is not.

use std::{collections::VecDeque, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_host::Clock;

use crate::{
    JoinerOutput,
    crew::{Crew, JoinerMessage, handle},
    joiner::{Joiner, JoinerSize, RoundResult},
};

/// How long simulated threads have been busy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulatedTimes {
    /// When all of them had done what they had to.
    pub elapsed_ns: u64,
    /// How long the thread was busy that passes rows.
    pub passing_ns: u64,
    /// How long each joiner was busy.
    pub joiners_ns: Vec<u64>,
}

/// Joiners with clocks of their own.
#[derive(Debug)]
pub(crate) struct SimulatedCrew<O: JoinerOutput> {
    joiners: Vec<SimulatedJoiner<O>>,
    clock: Arc<dyn Clock>,
    /// When the thread that passes rows went on last, by the clock.
    went_on_ns: u64,
    /// Its simulated time, and how much of it was busy.
    now_ns: u64,
    busy_ns: u64,
}

#[derive(Debug)]
struct SimulatedJoiner<O: JoinerOutput> {
    joiner: Joiner<O>,
    /// When it is done with what it was sent.
    done_ns: u64,
    busy_ns: u64,
    /// What it gave at the end of rounds, and when.
    results: VecDeque<(u64, Result<RoundResult<O::Rows>>)>,
}

impl<O: JoinerOutput> SimulatedCrew<O> {
    pub(crate) fn new(joiners: Vec<Joiner<O>>, clock: Arc<dyn Clock>) -> Self {
        let joiner =
            |joiner| SimulatedJoiner { joiner, done_ns: 0, busy_ns: 0, results: VecDeque::new() };
        let joiners = joiners.into_iter().map(joiner).collect();
        Self { joiners, went_on_ns: clock.monotonic_ns(), clock, now_ns: 0, busy_ns: 0 }
    }

    /// Takes note of what the thread that passes rows has done since it went on.
    fn stop(&mut self) {
        let busy_ns = self.clock.monotonic_ns() - self.went_on_ns;
        self.now_ns += busy_ns;
        self.busy_ns += busy_ns;
    }

    fn go_on(&mut self) {
        self.went_on_ns = self.clock.monotonic_ns();
    }

    /// Lets a joiner do something that it cannot begin before a time.
    fn work(
        &mut self,
        joiner: usize,
        not_before_ns: u64,
        work: impl FnOnce(&mut SimulatedJoiner<O>),
    ) {
        let own = &mut self.joiners[joiner];
        let begun_ns = self.clock.monotonic_ns();
        work(own);
        let took_ns = self.clock.monotonic_ns() - begun_ns;
        own.done_ns = own.done_ns.max(not_before_ns) + took_ns;
        own.busy_ns += took_ns;
        for (given_ns, _) in own.results.iter_mut().filter(|(given_ns, _)| *given_ns == u64::MAX) {
            *given_ns = own.done_ns;
        }
    }
}

impl<O: JoinerOutput> Crew<O> for SimulatedCrew<O> {
    fn send(&mut self, joiner: usize, message: JoinerMessage) {
        self.stop();
        let now_ns = self.now_ns;
        if let JoinerMessage::Install { partition, member, copy } = message {
            let copy = copy.recv().expect("the other one made it before");
            let made_ns = self.joiners[member].done_ns;
            self.work(joiner, now_ns.max(made_ns), |own| own.joiner.install(partition, copy));
        } else {
            self.work(joiner, now_ns, |own| {
                let SimulatedJoiner { joiner, results, .. } = own;
                handle(joiner, message, |result| results.push_back((u64::MAX, result)));
            });
        }
        self.go_on();
    }

    fn receive(&mut self, joiner: usize) -> Result<RoundResult<O::Rows>> {
        self.stop();
        let (given_ns, result) = self.joiners[joiner].results.pop_front().expect("a round ended");
        debug_assert_ne!(given_ns, u64::MAX, "its time was noted");
        self.now_ns = self.now_ns.max(given_ns);
        self.go_on();
        result
    }

    fn sizes(&mut self, _joiners: usize) -> Vec<JoinerSize> {
        self.joiners.iter().map(|own| own.joiner.size()).collect()
    }

    fn simulated(&self) -> Option<SimulatedTimes> {
        let done = self.joiners.iter().map(|own| own.done_ns);
        Some(SimulatedTimes {
            elapsed_ns: done.fold(self.now_ns, u64::max),
            passing_ns: self.busy_ns,
            joiners_ns: self.joiners.iter().map(|own| own.busy_ns).collect(),
        })
    }
}
