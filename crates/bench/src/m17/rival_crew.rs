//! The baselines with several joiners, each on a thread of its own.
//!
//! *Key-OIJ* sends a row to the joiner of its key. *`SplitJoin`* sends a probe row to one joiner in turn and a base row to
//! all, and adds what they found. As with Lockstep's joiners, rows are sent some hundred at once with the watermark, and
//! results are taken in rounds, one while the next one is computed.

use std::sync::mpsc::{Receiver, Sender, channel};

use lockstep_host::{JoinHandle, Threads};

use super::{
    IntervalJoin, IntervalResult, IntervalWorkload, ROWS_PER_ROUND, StreamEvent,
    rivals::{KeyJoin, SplitJoin, StreamTimes},
};

/// Rows are sent to the joiners when one of them has so many.
const ROWS_PER_MESSAGE: usize = 512;

/// How rows are divided among joiners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Division {
    /// By key.
    Keys,
    /// Probe rows in turn; base rows go to all.
    InTurn,
}

/// A join that is one of several joiners.
trait RivalJoiner: IntervalJoin + Send {
    /// Takes note of the newest times of all rows.
    fn see(&mut self, newest: StreamTimes);
}

impl RivalJoiner for KeyJoin {
    fn see(&mut self, newest: StreamTimes) {
        self.see_newest(newest);
    }
}

impl RivalJoiner for SplitJoin {
    fn see(&mut self, newest: StreamTimes) {
        self.see_newest(newest);
    }
}

/// What a joiner is told.
enum RivalMessage {
    /// To take rows, and to give what is final with these newest times.
    Rows(Vec<StreamEvent>, StreamTimes),
    /// To give its results.
    EndRound,
}

/// Several joiners.
pub(super) struct RivalCrew {
    division: Division,
    joiners: Vec<RivalThread>,
    /// The rows that are sent next.
    unsent: Vec<Vec<StreamEvent>>,
    newest: StreamTimes,
    /// The joiner of the next probe row, where they come in turn.
    next: usize,
    rows_of_round: u64,
    rounds: usize,
}

/// A joiner on a thread.
struct RivalThread {
    /// `None` when it is to end.
    messages: Option<Sender<RivalMessage>>,
    results: Receiver<Vec<IntervalResult>>,
    thread: Option<JoinHandle<()>>,
}

impl RivalThread {
    fn start(mut join: Box<dyn RivalJoiner>) -> Self {
        let (messages, inbox) = channel();
        let (outbox, results) = channel();
        let run = move || {
            let mut found: Vec<IntervalResult> = Vec::new();
            while let Ok(message) = inbox.recv() {
                match message {
                    RivalMessage::Rows(events, newest) => {
                        let mut emit = |result| found.push(result);
                        events.into_iter().for_each(|event| join.push(event, &mut emit));
                        join.see(newest);
                        join.advance(&mut emit);
                    }
                    RivalMessage::EndRound => {
                        // Who takes them may have ended.
                        let _sent = outbox.send(std::mem::take(&mut found));
                    }
                }
            }
        };
        let thread = Threads::System.spawn("rival-joiner", run).expect("a thread is started");
        Self { messages: Some(messages), results, thread: Some(thread) }
    }

    fn send(&self, message: RivalMessage) {
        let messages = self.messages.as_ref().expect("it has not ended");
        messages.send(message).expect("a joiner ends last");
    }
}

impl Drop for RivalThread {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

impl RivalCrew {
    pub(super) fn new(workload: &IntervalWorkload, division: Division, joiners: usize) -> Self {
        debug_assert!(joiners > 1, "one joiner needs no thread");
        let IntervalWorkload { keys, window, lateness, .. } = *workload;
        let join = |_| -> Box<dyn RivalJoiner> {
            match division {
                Division::Keys => Box::new(KeyJoin::new(keys, window, lateness)),
                Division::InTurn => Box::new(SplitJoin::new(window, lateness)),
            }
        };
        Self {
            division,
            joiners: (0..joiners).map(join).map(RivalThread::start).collect(),
            unsent: vec![Vec::new(); joiners],
            newest: StreamTimes::default(),
            next: 0,
            rows_of_round: 0,
            rounds: 0,
        }
    }

    fn send(&mut self) {
        for (joiner, unsent) in self.joiners.iter().zip(&mut self.unsent) {
            joiner.send(RivalMessage::Rows(std::mem::take(unsent), self.newest));
        }
    }

    fn end_round(&mut self) {
        self.send();
        self.joiners.iter().for_each(|joiner| joiner.send(RivalMessage::EndRound));
        (self.rows_of_round, self.rounds) = (0, self.rounds + 1);
    }

    /// Gives the results of the oldest round.
    fn take(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.rounds -= 1;
        let mut results =
            self.joiners.iter().map(|joiner| joiner.results.recv().expect("a joiner ends last"));
        match self.division {
            Division::Keys => results.flatten().for_each(emit),
            Division::InTurn => {
                let mut sums = results.next().unwrap_or_default();
                for of_joiner in results {
                    debug_assert_eq!(sums.len(), of_joiner.len(), "all have the same base rows");
                    for (sum, part) in sums.iter_mut().zip(of_joiner) {
                        debug_assert_eq!(sum.number, part.number, "in the same order");
                        sum.count += part.count;
                        sum.sum += part.sum;
                    }
                }
                sums.into_iter().for_each(emit);
            }
        }
    }
}

impl IntervalJoin for RivalCrew {
    fn push(&mut self, event: StreamEvent, _emit: &mut dyn FnMut(IntervalResult)) {
        self.newest.see(&event);
        self.rows_of_round += 1;
        let joiners = self.unsent.len();
        match self.division {
            Division::Keys => self.unsent[super::rivals::place(event.key) % joiners].push(event),
            Division::InTurn if event.is_probe => {
                self.next = (self.next + 1) % joiners;
                self.unsent[self.next].push(event);
            }
            Division::InTurn => self.unsent.iter_mut().for_each(|unsent| unsent.push(event)),
        }
    }

    fn advance(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        if self.rows_of_round >= ROWS_PER_ROUND {
            self.end_round();
            if self.rounds > 1 {
                self.take(emit);
            }
        } else if self.unsent.iter().any(|unsent| unsent.len() >= ROWS_PER_MESSAGE) {
            self.send();
        }
    }

    fn flush(&mut self, emit: &mut dyn FnMut(IntervalResult)) {
        self.end_round();
        while self.rounds > 0 {
            self.take(emit);
        }
    }

    fn effectiveness(&self) -> Option<f64> {
        None
    }
}
