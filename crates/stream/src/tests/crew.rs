//! Joiners that do what they are told on the thread of the test, in an order that is drawn: every order in which threads
//! may do it can be drawn, and is the same each time.

use std::collections::VecDeque;

use lockstep_diagnostic::Result;

use crate::{
    JoinerOutput,
    crew::{Crew, JoinerCrew, JoinerMessage, handle},
    joiner::{Joiner, JoinerSize, RoundResult},
    schedule::Schedule,
};

/// Joiners with the messages that they were sent.
#[derive(Debug)]
pub(super) struct SteppedJoiners<O: JoinerOutput> {
    joiners: Vec<SteppedJoiner<O>>,
    random: u64,
}

#[derive(Debug)]
struct SteppedJoiner<O: JoinerOutput> {
    joiner: Joiner<O>,
    messages: VecDeque<JoinerMessage>,
    results: VecDeque<Result<RoundResult<O::Rows>>>,
}

impl<O: JoinerOutput> SteppedJoiners<O> {
    /// Makes a crew of joiners whose teams change after each row.
    pub(super) fn crew(
        joiners: Vec<Joiner<O>>,
        mut schedule: Schedule,
        seed: u64,
    ) -> JoinerCrew<O> {
        schedule.draw_changes(seed);
        let count = joiners.len();
        let stepped = |joiner| {
            let (messages, results) = (VecDeque::new(), VecDeque::new());
            SteppedJoiner { joiner, messages, results }
        };
        let joiners = joiners.into_iter().map(stepped).collect();
        JoinerCrew::new(schedule, count, Box::new(Self { joiners, random: seed }))
    }

    fn draw(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % end
    }

    /// Lets a joiner do what it was told next, if it can.
    fn step(&mut self, joiner: usize) {
        let SteppedJoiner { joiner, messages, results } = &mut self.joiners[joiner];
        match messages.pop_front() {
            None => {}
            Some(JoinerMessage::Install { partition, member, copy }) => match copy.try_recv() {
                Ok(copy) => joiner.install(partition, copy),
                Err(_) => {
                    messages.push_front(JoinerMessage::Install { partition, member, copy });
                }
            },
            Some(message) => handle(joiner, message, |result| results.push_back(result)),
        }
    }

    /// Lets joiners take steps in some order until something is so.
    fn step_until(&mut self, is_so: impl Fn(&Self) -> bool) {
        let mut steps = 0;
        while !is_so(self) {
            let joiner = self.draw(self.joiners.len());
            self.step(joiner);
            steps += 1;
            assert!(steps < 1_000_000, "the joiners wait for each other");
        }
    }
}

impl<O: JoinerOutput> Crew<O> for SteppedJoiners<O> {
    fn send(&mut self, joiner: usize, message: JoinerMessage) {
        self.joiners[joiner].messages.push_back(message);
        for _ in 0..self.draw(4) {
            let joiner = self.draw(self.joiners.len());
            self.step(joiner);
        }
    }

    fn receive(&mut self, joiner: usize) -> Result<RoundResult<O::Rows>> {
        self.step_until(|own| !own.joiners[joiner].results.is_empty());
        self.joiners[joiner].results.pop_front().unwrap()
    }

    fn sizes(&mut self, joiners: usize) -> Vec<JoinerSize> {
        assert_eq!(joiners, self.joiners.len());
        self.step_until(|own| own.joiners.iter().all(|joiner| joiner.messages.is_empty()));
        self.joiners.iter().map(|stepped| stepped.joiner.size()).collect()
    }
}
