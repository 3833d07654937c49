//! Group commit: who syncs the log, and for whom.
//!
//! Threads that wait for the disk share syncs. One of them, the leader, syncs for all that have
//! appended before; who appends meanwhile waits for the next leader.
//!
//! # Gathering
//!
//! Writers that come back as soon as they are acknowledged would fall into two halves that take
//! turns, each waiting for the sync of the other. So a leader first waits until as many threads are
//! there as took part in the last sync or waited during it, for a quarter of a sync's time at most.
//! Where they do not come, leaders stop gathering for a while: one writer alone, and writers that think
//! for long between their rows, wait for nobody. (PostgreSQL's `commit_delay` is the same idea with
//! constants to be set by hand.)

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use lockstep_host::{
    Clock, file,
    sync::{Condvar, Mutex, MutexGuard},
};

use crate::Error;

/// A leader gathers for this part of the time that a sync takes.
const GATHERING_SHARE: u64 = 4;
/// The most leaders in a row that do not gather after one that gathered in vain.
const UNGATHERED_MAX: u32 = 64;

/// The threads that wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    state: Mutex<GroupState>,
    /// Notified when a sync has ended.
    synced: Condvar,
    /// Notified when everybody is there whom a leader gathers.
    gathered: Condvar,
    /// The sync that failed, after which no write is accepted.
    failure: OnceLock<Arc<file::Error>>,
}

#[derive(Debug, Default)]
struct GroupState {
    has_leader: bool,
    is_gathering: bool,
    /// The number of the group that is forming.
    group: u64,
    /// The threads in it.
    joined: u32,
    /// The threads that the next leader gathers.
    expected: u32,
    /// How long a sync takes: the mean of the last ones, in nanoseconds.
    sync_ns: u64,
    /// Leaders that will not gather.
    ungathered: u32,
    /// What `ungathered` becomes when a leader gathers in vain.
    ungathered_next: u32,
}

impl GroupCommit {
    /// Fails when a sync failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::Stopped { source: Arc::clone(failure) }),
        }
    }

    /// Accepts no write from now on.
    pub(crate) fn stop(&self, error: file::Error) {
        // Under the lock, so that nobody begins to wait who has not seen it.
        let state = self.state.lock();
        self.failure.get_or_init(|| Arc::new(error));
        drop(state);
        self.synced.notify_all();
    }

    /// Calls `sync`, or waits for others who do, until `is_done`. What is waited for was appended
    /// before the call.
    pub(crate) fn wait_until(
        &self,
        clock: &dyn Clock,
        is_done: &dyn Fn() -> bool,
        sync: &dyn Fn() -> Result<(), file::Error>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        let group = state.group;
        state.joined += 1;
        if state.is_gathering && state.joined >= state.expected {
            self.gathered.notify_all();
        }
        let ended = loop {
            if is_done() {
                break Ok(());
            }
            if let Err(stopped) = self.check() {
                break Err(stopped);
            }
            if state.has_leader {
                state = self.synced.wait(state);
                continue;
            }
            state.has_leader = true;
            state = self.gather(clock, state);
            let joined = state.begin_group();
            drop(state);
            let began_ns = clock.monotonic_ns();
            let result = sync();
            let sync_ns = clock.monotonic_ns().saturating_sub(began_ns);
            if let Err(error) = result {
                self.stop(error);
            }
            state = self.state.lock();
            state.end_group(joined, sync_ns);
            self.synced.notify_all();
        };
        if state.group == group {
            // The sync that was under way when this thread joined was enough for it.
            state.joined -= 1;
        }
        ended
    }

    /// Waits for the threads that are expected, but not for long.
    fn gather<'q>(
        &'q self,
        clock: &dyn Clock,
        mut state: MutexGuard<'q, GroupState>,
    ) -> MutexGuard<'q, GroupState> {
        if state.joined >= state.expected {
            return state;
        }
        if state.ungathered > 0 {
            state.ungathered -= 1;
            return state;
        }
        let until_ns = clock.monotonic_ns() + state.sync_ns / GATHERING_SHARE;
        state.is_gathering = true;
        let mut is_over = false;
        while state.joined < state.expected && !is_over {
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
            (state, is_over) = self.gathered.wait_for(state, Duration::from_nanos(left_ns));
        }
        state.is_gathering = false;
        if state.joined >= state.expected {
            state.ungathered_next = 0;
        } else {
            state.ungathered = state.ungathered_next;
            state.ungathered_next = (2 * state.ungathered_next).clamp(1, UNGATHERED_MAX);
        }
        state
    }
}

impl GroupState {
    /// Closes the group that was forming; who comes from now on is in the next one. Returns how many
    /// threads were in it.
    fn begin_group(&mut self) -> u32 {
        self.group += 1;
        std::mem::take(&mut self.joined)
    }

    /// Lets a next leader be, after a sync for so many threads.
    fn end_group(&mut self, joined: u32, sync_ns: u64) {
        self.has_leader = false;
        self.expected = joined + self.joined;
        self.sync_ns = if self.sync_ns == 0 { sync_ns } else { (7 * self.sync_ns + sync_ns) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    };

    use lockstep_host::{ManualClock, pause};

    use super::GroupCommit;

    /// A log that counts what was appended and what is durable.
    #[derive(Default)]
    struct CountingLog {
        queue: GroupCommit,
        clock: ManualClock,
        appended: AtomicU64,
        durable: AtomicU64,
        syncs: AtomicU32,
    }

    impl CountingLog {
        /// Appends and waits. The first sync goes on until `others` have joined the next group; by the
        /// clock each takes `sync_ms`.
        fn write(&self, others: u32, sync_ms: u32) {
            let end = self.appended.fetch_add(1, Ordering::SeqCst) + 1;
            let sync = || {
                let synced = self.appended.load(Ordering::SeqCst);
                let is_first = self.syncs.fetch_add(1, Ordering::SeqCst) == 0;
                while is_first && self.queue.state.lock().joined < others {
                    pause(1);
                }
                self.clock.advance_ms(sync_ms);
                self.durable.store(synced, Ordering::SeqCst);
                Ok(())
            };
            let is_done = || self.durable.load(Ordering::SeqCst) >= end;
            self.queue.wait_until(&self.clock, &is_done, &sync).unwrap();
            assert!(is_done());
        }
    }

    /// Lets one thread write `own` rows while others, who join its first sync, write one row each.
    fn run(own: u32, others: u32, sync_ms: u32) -> CountingLog {
        let log = Arc::new(CountingLog::default());
        let shared = Arc::clone(&log);
        let first = lockstep_host::spawn("first", move || {
            (0..own).for_each(|_| shared.write(others, sync_ms));
        });
        while log.syncs.load(Ordering::SeqCst) == 0 {
            pause(1);
        }
        let threads = (0..others).map(|_| {
            let log = Arc::clone(&log);
            lockstep_host::spawn("other", move || log.write(others, sync_ms)).unwrap()
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().chain(first).for_each(|thread| thread.join().unwrap());
        Arc::into_inner(log).unwrap()
    }

    #[test]
    fn a_leader_waits_for_the_writers_that_come_back() {
        // By the clock a sync takes 1,000 s, so the leader of the others gathers for as long as it needs.
        let log = run(2, 3, 1_000_000);
        assert_eq!(log.syncs.load(Ordering::SeqCst), 2, "all four writers share the second sync");
        assert_eq!(log.durable.load(Ordering::SeqCst), 5);
    }

    #[test]
    fn a_leader_that_gathers_in_vain_goes_on_and_the_next_ones_do_not_gather() {
        // The first thread does not come back, and by the clock a sync takes 1 ms.
        let log = run(1, 3, 1);
        assert_eq!(log.syncs.load(Ordering::SeqCst), 2);
        let state = log.queue.state.lock();
        assert_eq!((state.ungathered, state.ungathered_next, state.joined), (0, 1, 0));
        assert_eq!(state.expected, 3, "those that the last sync was for");
    }

    #[test]
    fn a_writer_alone_waits_for_nobody() {
        // A leader that gathered would wait for 250 s.
        let log = run(20, 0, 1_000_000);
        assert_eq!(log.syncs.load(Ordering::SeqCst), 20);
        assert_eq!(log.queue.state.lock().expected, 1);
    }
}
