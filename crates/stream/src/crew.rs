//! Several joiners, each on its thread: rows on their way to them, changes of their teams, and what they give.
//!
//! Joiners share no memory: each owns what it has, and gets messages in order. All are told the same watermarks, each
//! behind the rows before it. Before a team changes, all joiners are sent the rows so far: a new member then waits for
//! the copy that another one makes behind the same rows, which is why no row is missed or had twice.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::Threads;
use lockstep_row::{Datum, Value};

use crate::{
    bug::{self, StreamBug},
    join::TeamCounts,
    joiner::{GivenMainRows, Joiner, JoinerOutput, JoinerSize, PartitionCopy, RoundResult},
    reorder::{UnsettledRow, UnsettledRows},
    schedule::{RowRoute, Schedule, TeamChange},
    simulation::SimulatedTimes,
    watermark::PassedTimes,
};

/// Rows are sent to the joiners when one of them has so many.
const ROWS_PER_MESSAGE: usize = if cfg!(test) { 1 } else { 512 };

/// What a joiner is told.
#[derive(Debug)]
pub(crate) enum JoinerMessage {
    /// To take rows, and a main row without an event time or several, and to give what is final when these times were
    /// passed.
    Rows { rows: UnsettledRows, unordered: Vec<(u64, Vec<Value>)>, passed: PassedTimes },
    /// To give what it has joined; it tells what LAST JOINs hold of the partitions with its number.
    EndRound { tellers: Vec<u8> },
    /// That main rows were given before.
    BeginReplay(GivenMainRows),
    /// To copy a partition for another joiner.
    Copy { partition: u16, to: Sender<PartitionCopy> },
    /// To wait for the copy of a partition that another joiner makes.
    Install { partition: u16, member: usize, copy: Receiver<PartitionCopy> },
    /// To drop a partition.
    Forget { partition: u16 },
    /// To say what it has.
    Measure(Sender<JoinerSize>),
}

/// Runs joiners.
pub(crate) trait Crew<O: JoinerOutput>: std::fmt::Debug {
    /// Sends a message to a joiner. What becomes of one that has ended is known by [`Self::receive`].
    fn send(&mut self, joiner: usize, message: JoinerMessage);
    /// Waits for what a joiner gives at the end of a round.
    fn receive(&mut self, joiner: usize) -> Result<RoundResult<O::Rows>>;
    /// Waits for what each joiner has.
    fn sizes(&mut self, joiners: usize) -> Vec<JoinerSize>;
    /// Returns how long the threads were busy, if they are simulated.
    fn simulated(&self) -> Option<SimulatedTimes> {
        None
    }
}

/// Joiners, and the rows that are on their way to them.
#[derive(Debug)]
pub(crate) struct JoinerCrew<O> {
    schedule: Schedule,
    /// The rows that are sent next, by their joiners.
    unsent: Vec<UnsettledRows>,
    /// The most rows of one of them.
    unsent_max: usize,
    /// The main rows without an event time that are sent next.
    unordered: Vec<Vec<(u64, Vec<Value>)>>,
    crew: Box<dyn Crew<O>>,
}

impl<O: JoinerOutput> JoinerCrew<O> {
    pub(crate) fn new(schedule: Schedule, joiners: usize, crew: Box<dyn Crew<O>>) -> Self {
        Self {
            schedule,
            unsent: (0..joiners).map(|_| UnsettledRows::default()).collect(),
            unsent_max: 0,
            unordered: vec![Vec::new(); joiners],
            crew,
        }
    }

    /// Starts joiners on threads.
    pub(crate) fn start(
        schedule: Schedule,
        joiners: Vec<Joiner<O>>,
        threads: Threads,
    ) -> io::Result<Self> {
        let count = joiners.len();
        let started = joiners.into_iter().map(|joiner| JoinerThread::start(joiner, threads));
        let started = started.collect::<io::Result<Vec<_>>>()?;
        Ok(Self::new(schedule, count, Box::new(JoinerThreads(started))))
    }

    pub(crate) fn begin_replay(&mut self, given: &GivenMainRows) {
        for joiner in 0..self.unsent.len() {
            self.crew.send(joiner, JoinerMessage::BeginReplay(given.clone()));
        }
    }

    /// Takes a row, whose partition is not known yet.
    pub(crate) fn push(&mut self, row: UnsettledRow, columns: &[Datum<'_>]) {
        let RowRoute { partition, computed_by, others } =
            self.schedule.route(row.source.into(), columns);
        let mut left = others | computed_by.map_or(0, |joiner| 1 << joiner);
        while left > 0 {
            let joiner = left.trailing_zeros() as usize;
            left &= left - 1;
            let row = UnsettledRow { partition, is_computed: computed_by == Some(joiner), ..row };
            let unsent = &mut self.unsent[joiner];
            unsent.push(row, columns.iter().map(Datum::to_value));
            self.unsent_max = self.unsent_max.max(unsent.entries.len());
        }
    }

    /// Takes a main row without an event time.
    pub(crate) fn join_unordered(&mut self, arrival: u64, columns: &[Datum<'_>]) {
        let joiner = self.schedule.route(0, columns).computed_by.unwrap_or(0);
        debug_assert!(joiner < self.unordered.len(), "it is one of them");
        self.unordered[joiner].push((arrival, columns.iter().map(Datum::to_value).collect()));
    }

    /// Sends the rows if they are many, and changes teams now and then. `newest` is the newest event time of all rows.
    pub(crate) fn advance(&mut self, passed: PassedTimes, newest: Option<i64>) {
        let is_due = self.schedule.is_due();
        if !is_due && self.unsent_max < ROWS_PER_MESSAGE {
            return;
        }
        // All joiners have the same rows before a change.
        if !bug::is_seeded(StreamBug::TeamChangedWithRowsUnsent) {
            self.send(passed);
        }
        if !is_due {
            return;
        }
        for change in self.schedule.change(passed, newest) {
            match change {
                TeamChange::Join { partition, from, to } => {
                    let (sender, receiver) = channel();
                    self.crew.send(from, JoinerMessage::Copy { partition, to: sender });
                    let (member, copy) = (from, receiver);
                    self.crew.send(to, JoinerMessage::Install { partition, member, copy });
                }
                TeamChange::Forget { partition, joiner } => {
                    self.crew.send(joiner, JoinerMessage::Forget { partition });
                }
            }
        }
    }

    /// Sends all rows, and ends a round.
    pub(crate) fn end_round(&mut self, passed: PassedTimes) {
        self.send(passed);
        let tellers = self.schedule.tellers();
        for joiner in 0..self.unsent.len() {
            self.crew.send(joiner, JoinerMessage::EndRound { tellers: tellers.clone() });
        }
    }

    /// Waits for what the joiners give at the end of a round.
    pub(crate) fn receive(&mut self) -> Vec<Result<RoundResult<O::Rows>>> {
        (0..self.unsent.len()).map(|joiner| self.crew.receive(joiner)).collect()
    }

    pub(crate) fn teams(&self) -> TeamCounts {
        TeamCounts {
            joiners: self.unsent.len(),
            shared_partitions: self.schedule.shared(),
            imbalance: Some(self.schedule.imbalance()),
        }
    }

    /// Waits for what each joiner has.
    pub(crate) fn sizes(&mut self) -> Vec<JoinerSize> {
        self.crew.sizes(self.unsent.len())
    }

    pub(crate) fn simulated(&self) -> Option<SimulatedTimes> {
        self.crew.simulated()
    }

    fn send(&mut self, passed: PassedTimes) {
        debug_assert_eq!(self.unsent.len(), self.unordered.len(), "each joiner has both");
        self.unsent_max = 0;
        for joiner in 0..self.unsent.len() {
            let rows = std::mem::take(&mut self.unsent[joiner]);
            let unordered = std::mem::take(&mut self.unordered[joiner]);
            self.crew.send(joiner, JoinerMessage::Rows { rows, unordered, passed });
        }
    }
}

/// Joiners on threads.
#[derive(Debug)]
struct JoinerThreads<R>(Vec<JoinerThread<R>>);

/// A joiner on a thread.
#[derive(Debug)]
struct JoinerThread<R> {
    /// `None` when it is to end.
    messages: Option<Sender<JoinerMessage>>,
    results: Receiver<Result<RoundResult<R>>>,
    thread: Option<JoinHandle<()>>,
}

impl<R: Send + 'static> JoinerThread<R> {
    fn start<O: JoinerOutput<Rows = R>>(joiner: Joiner<O>, threads: Threads) -> io::Result<Self> {
        let (messages, inbox) = channel();
        let (outbox, results) = channel();
        let thread = threads.spawn("lockstep-joiner", move || run(joiner, &inbox, &outbox))?;
        Ok(Self { messages: Some(messages), results, thread: Some(thread) })
    }
}

impl<R> Drop for JoinerThread<R> {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A panic was told to whoever waited for a result.
            let _ended = thread.join();
        }
    }
}

impl<O: JoinerOutput> Crew<O> for JoinerThreads<O::Rows> {
    fn send(&mut self, joiner: usize, message: JoinerMessage) {
        if let Some(messages) = &self.0[joiner].messages {
            // One that has ended gives no result.
            let _sent = messages.send(message);
        }
    }

    fn receive(&mut self, joiner: usize) -> Result<RoundResult<O::Rows>> {
        self.0[joiner].results.recv().unwrap_or_else(|_| Err(ended()))
    }

    fn sizes(&mut self, joiners: usize) -> Vec<JoinerSize> {
        let ask = |joiner| {
            let (sender, size) = channel();
            <Self as Crew<O>>::send(self, joiner, JoinerMessage::Measure(sender));
            size
        };
        let sizes: Vec<Receiver<JoinerSize>> = (0..joiners).map(ask).collect();
        sizes.iter().map(|size| size.recv().unwrap_or_default()).collect()
    }
}

/// Makes the error of a joiner whose thread has ended.
fn ended() -> Box<Diagnostic> {
    Box::new(Diagnostic::internal("a joiner of the stream has ended"))
}

/// Does what a joiner is told, until nobody tells it more.
fn run<O: JoinerOutput>(
    mut joiner: Joiner<O>,
    messages: &Receiver<JoinerMessage>,
    results: &Sender<Result<RoundResult<O::Rows>>>,
) {
    while let Ok(message) = messages.recv() {
        if let JoinerMessage::Install { partition, copy, .. } = message {
            // The other one has ended where there is none.
            let Ok(copy) = copy.recv() else { return };
            joiner.install(partition, copy);
            continue;
        }
        handle(&mut joiner, message, |result| {
            let _taken = results.send(result);
        });
    }
}

/// Does what a message says, unless it is to wait for another joiner.
pub(crate) fn handle<O: JoinerOutput>(
    joiner: &mut Joiner<O>,
    message: JoinerMessage,
    give: impl FnOnce(Result<RoundResult<O::Rows>>),
) {
    match message {
        JoinerMessage::Rows { rows, unordered, passed } => {
            for (arrival, columns) in unordered {
                joiner.join_unordered(arrival, columns);
            }
            joiner.extend(rows);
            joiner.advance(passed);
        }
        JoinerMessage::EndRound { tellers } => {
            let number = joiner.number();
            let twice = bug::is_seeded(StreamBug::HeldTwice);
            give(joiner.end_round(|partition| twice || tellers[partition] == number));
        }
        JoinerMessage::BeginReplay(given) => joiner.begin_replay(given),
        // Who waits for them may have ended.
        JoinerMessage::Copy { partition, to } => {
            let _taken = to.send(joiner.copy_of(partition));
        }
        JoinerMessage::Measure(to) => {
            let _taken = to.send(joiner.size());
        }
        JoinerMessage::Forget { partition } => joiner.forget(partition),
        JoinerMessage::Install { .. } => unreachable!("a crew waits for the copy"),
    }
}
