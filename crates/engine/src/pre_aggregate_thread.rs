//! The thread that makes the nodes of pre-aggregates, behind the writes and beside the requests.
//!
//! Deployments register the pre-aggregates of their programs; writers and readers that leave work for
//! them wake the thread. After it has caught up it lets rows arrive for some milliseconds, since each
//! late row costs a node of every level, which those that come together share (ADR 0052). It has a low
//! priority, keeps no deployment alive, and ends with the engine. Where the machine gives no thread,
//! nodes are made by [`PreAggregateWork::run`] alone, and answers read rows until then.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::{
    Threads,
    sync::{Condvar, Mutex},
};
use lockstep_request::{CheckShare, PreAggregate};
use lockstep_table::LevelsWaker;

use crate::{PreparedRequest, WeakRequest};

/// How many steps are made for one pre-aggregate before the next one's turn. A step folds some ten
/// thousand rows at most.
const STEPS_PER_TURN: usize = 64;

/// The pre-aggregates of an engine, and its thread for them.
pub(crate) struct PreAggregateWork {
    registered: Mutex<Vec<Weak<PreAggregate>>>,
    /// The requests whose answers may be checked.
    checked: Mutex<Vec<WeakRequest>>,
    /// The share of the answers that are checked, in millionths.
    check_share: CheckShare,
    signal: Mutex<WorkSignal>,
    /// Notified when the signal changed.
    changed: Condvar,
    /// Whether there is work that the thread has not seen, so that most calls of `wake` do nothing.
    is_signalled: AtomicBool,
    threads: Threads,
}

/// The pre-aggregates of all deployments together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PreAggregateFigures {
    /// The bytes that they take.
    pub memory_bytes: u64,
    /// How many answers were computed again from rows alone (`pre_aggregation_check`).
    pub answers_checked: u64,
    /// How many of these differed.
    pub differences: u64,
}

/// The outcome of a turn of all pre-aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turned {
    /// There was nothing to do.
    Idle,
    /// Nodes were made, and little is left.
    CaughtUp,
    /// A key has many rows that no node has, or many keys wait.
    Behind,
}

/// What the thread waits for.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags")]
struct WorkSignal {
    has_work: bool,
    is_started: bool,
    is_over: bool,
}

impl PreAggregateWork {
    /// Makes it without pre-aggregates. The thread starts with the first of them.
    pub(crate) fn new(threads: Threads) -> Self {
        Self {
            registered: Mutex::default(),
            checked: Mutex::default(),
            check_share: CheckShare::default(),
            signal: Mutex::default(),
            changed: Condvar::new(),
            is_signalled: AtomicBool::new(false),
            threads,
        }
    }

    /// Returns the function that wakes the thread.
    pub(crate) fn waker(self: &Arc<Self>) -> LevelsWaker {
        let work = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(work) = work.upgrade() {
                work.wake();
            }
        })
    }

    /// Returns the share of the answers that are checked.
    pub(crate) fn check_share(&self) -> &CheckShare {
        &self.check_share
    }

    /// Registers the pre-aggregates of a deployment, whose nodes are made from now on.
    pub(crate) fn register(self: &Arc<Self>, request: &PreparedRequest) {
        let made = request.pre_aggregates();
        if made.is_empty() {
            return;
        }
        {
            let mut registered = self.registered.lock();
            registered.retain(|known| known.strong_count() > 0);
            registered.extend(made.iter().map(Arc::downgrade));
            let mut checked = self.checked.lock();
            checked.retain(WeakRequest::is_held);
            checked.push(request.downgrade());
        }
        let is_first = !std::mem::replace(&mut self.signal.lock().is_started, true);
        if is_first {
            let work = Arc::downgrade(self);
            let run = move || while work.upgrade().is_some_and(|work| work.next_turn()) {};
            let started = self.threads.spawn_background("lockstep-pre-aggregates", run);
            if started.is_err() && self.threads == Threads::System {
                lockstep_host::log::warn(
                    "could not start the pre-aggregate thread; requests read rows instead",
                );
            }
        }
        self.wake();
    }

    /// Returns the figures of all pre-aggregates.
    pub(crate) fn figures(&self) -> PreAggregateFigures {
        let registered = self.registered.lock().clone();
        let bytes = registered.iter().filter_map(Weak::upgrade).map(|one| one.usage().size.bytes);
        let memory_bytes = bytes.sum();
        let mut figures = PreAggregateFigures { memory_bytes, ..PreAggregateFigures::default() };
        let checked = self.checked.lock().clone();
        for outcome in checked.iter().filter_map(|request| Some(request.upgrade()?.check_outcome()))
        {
            figures.answers_checked += outcome.checked;
            figures.differences += outcome.differences;
        }
        debug_assert!(figures.differences <= figures.answers_checked, "each was checked");
        figures
    }

    /// Wakes the thread.
    fn wake(&self) {
        // AcqRel: what was put into a queue before is seen by the thread that resets it.
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            self.signal.lock().has_work = true;
            self.changed.notify_all();
        }
    }

    /// Ends the thread after its current step.
    pub(crate) fn end(&self) {
        self.signal.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Makes all nodes for which there is work now.
    pub(crate) fn run(&self) {
        while self.take_turns() != Turned::Idle {}
    }

    /// Waits for work and does it. Returns `false` when there will be none.
    fn next_turn(&self) -> bool {
        {
            let mut signal = self.signal.lock();
            if !signal.has_work && !signal.is_over {
                // Not for ever: the thread must find out that the engine is gone.
                signal = self.changed.wait_for(signal, WAIT).0;
            }
            if signal.is_over {
                return false;
            }
            if !std::mem::take(&mut signal.has_work) {
                return true;
            }
        }
        // AcqRel: as in `wake`.
        self.is_signalled.swap(false, Ordering::AcqRel);
        loop {
            let turned = self.take_turns();
            let mut signal = self.signal.lock();
            if turned == Turned::CaughtUp && !signal.is_over {
                signal = self.changed.wait_for(signal, REST).0;
            }
            if turned == Turned::Idle || signal.is_over {
                return true;
            }
        }
    }

    /// Checks the answers that were drawn for it.
    fn check_answers(&self) {
        // Relaxed: a setting.
        if self.check_share.load(Ordering::Relaxed) > 0 {
            let checked = self.checked.lock().clone();
            for request in checked.iter().filter_map(WeakRequest::upgrade) {
                request.check_samples();
            }
        }
    }

    /// Gives each pre-aggregate a turn.
    fn take_turns(&self) -> Turned {
        let registered = self.registered.lock().clone();
        self.check_answers();
        let mut turned = Turned::Idle;
        for pre_aggregate in registered.iter().filter_map(Weak::upgrade) {
            for _ in 0..STEPS_PER_TURN {
                match pre_aggregate.maintain() {
                    Some(made) if made.is_unfinished => turned = Turned::Behind,
                    Some(_) if turned == Turned::Idle => turned = Turned::CaughtUp,
                    Some(_) => {}
                    None => break,
                }
            }
            if pre_aggregate.usage().size.waiting > STEPS_PER_TURN as u64 {
                turned = Turned::Behind;
            }
        }
        turned
    }
}

/// How long the thread lets rows arrive after it has caught up.
const REST: std::time::Duration = std::time::Duration::from_millis(5);
/// How long the thread waits before it looks whether the engine is still there.
const WAIT: std::time::Duration = std::time::Duration::from_millis(500);

impl fmt::Debug for PreAggregateWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.registered.lock().len();
        f.debug_struct("PreAggregateWork").field("registered", &count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lockstep_host::{Host, Threads};
    use lockstep_row::Datum;

    use super::{STEPS_PER_TURN, Turned};
    use crate::Database;

    /// Many short keys take many steps, none of which is unfinished.
    #[test]
    fn a_turn_that_leaves_many_keys_is_not_followed_by_a_rest() {
        let host = Host { threads: Threads::None, ..Host::default() };
        let database = Database::empty(host, true);
        let session = database.session();
        let script = "CREATE TABLE t (k BIGINT, ts TIMESTAMP, x BIGINT, INDEX(KEY=k, TS=ts));
            SET pre_aggregation = 'always';
            DEPLOY d AS SELECT k, sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
                ROWS_RANGE BETWEEN 5d PRECEDING AND CURRENT ROW)";
        session.execute(script).expect("a deployment");
        let work = database.pre_aggregate_work();
        assert_eq!(work.take_turns(), Turned::Idle);
        let keys = i64::try_from(STEPS_PER_TURN).expect("a count") * 3;
        let appender = session.appender("t").expect("a table");
        for key in 0..keys {
            let row = |at| [Datum::BigInt(key), Datum::Timestamp(at), Datum::BigInt(at)];
            appender.append((0..400).map(row)).expect("rows");
        }
        let turns: Vec<Turned> = (0..5).map(|_| work.take_turns()).collect();
        let expected =
            [Turned::Behind, Turned::CaughtUp, Turned::CaughtUp, Turned::Idle, Turned::Idle];
        assert_eq!(turns, expected);
    }
}
