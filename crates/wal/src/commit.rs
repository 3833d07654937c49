//! Group commit: who syncs the log, and for whom.
//!
//! Threads that wait for the disk share syncs. One of them, the leader, syncs for all that have
//! appended before; who appends meanwhile waits for the next leader.
//!
//! # Waking
//!
//! Each waiting thread sleeps by itself. A leader that has synced takes the threads that it synced for
//! off the list, makes one of the others the next leader, and wakes these threads only, without the
//! lock: a thread that is woken returns at once. (Threads that all wait for one signal wake together,
//! and pass the lock on one by one: with 32 of them that took eight times as long as the sync.)
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

/// The threads that wait for the disk, each until a `T` is there.
#[derive(Debug)]
pub(crate) struct GroupCommit<T> {
    state: Mutex<GroupState<T>>,
    /// Notified when everybody is there whom a leader gathers.
    gathered: Condvar,
    /// The sync that failed, after which no write is accepted.
    failure: OnceLock<Arc<file::Error>>,
}

#[derive(Debug)]
struct GroupState<T> {
    has_leader: bool,
    is_gathering: bool,
    /// The threads that wait, beside the leader, in the order in which they began.
    waiting: Vec<Waiter<T>>,
    /// The threads that the next leader gathers, with itself.
    expected: usize,
    /// How long a sync takes: the mean of the last ones, in nanoseconds.
    sync_ns: u64,
    /// Leaders that will not gather.
    ungathered: u32,
    /// What `ungathered` becomes when a leader gathers in vain.
    ungathered_next: u32,
}

/// A thread that waits.
#[derive(Debug)]
struct Waiter<T> {
    target: T,
    signal: Arc<WaitSignal>,
}

/// What a thread sleeps on.
#[derive(Debug, Default)]
struct WaitSignal {
    wake: Mutex<Option<WakeReason>>,
    woken: Condvar,
}

/// Why a thread wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    /// What it waits for is there.
    Synced,
    /// It is the leader.
    Leads,
    /// The log has stopped.
    Stopped,
}

impl WaitSignal {
    fn wake(&self, why: WakeReason) {
        *self.wake.lock() = Some(why);
        self.woken.notify_one();
    }

    fn wait(&self) -> WakeReason {
        let mut wake = self.wake.lock();
        loop {
            match *wake {
                Some(why) => return why,
                None => wake = self.woken.wait(wake),
            }
        }
    }
}

impl<T> Default for GroupCommit<T> {
    fn default() -> Self {
        let state = GroupState {
            has_leader: false,
            is_gathering: false,
            waiting: Vec::new(),
            expected: 0,
            sync_ns: 0,
            ungathered: 0,
            ungathered_next: 0,
        };
        Self { state: Mutex::new(state), gathered: Condvar::new(), failure: OnceLock::new() }
    }
}

impl<T: Copy> GroupCommit<T> {
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
        let mut state = self.state.lock();
        self.failure.get_or_init(|| Arc::new(error));
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(|waiter| waiter.signal.wake(WakeReason::Stopped));
    }

    /// Calls `sync`, or waits for others who do, until `is_done` for the target. What is waited for was
    /// appended before the call. `is_done` is called under the lock.
    pub(crate) fn wait_until(
        &self,
        clock: &dyn Clock,
        target: T,
        is_done: &dyn Fn(T) -> bool,
        sync: &dyn Fn() -> Result<(), file::Error>,
    ) -> Result<(), Error> {
        if is_done(target) {
            return Ok(());
        }
        let mut state = self.state.lock();
        // A sync that ends later finds the thread among those that wait.
        if is_done(target) {
            return Ok(());
        }
        self.check()?;
        if state.has_leader {
            let signal = Arc::new(WaitSignal::default());
            state.waiting.push(Waiter { target, signal: Arc::clone(&signal) });
            if state.is_gathering && state.is_complete() {
                self.gathered.notify_all();
            }
            drop(state);
            match signal.wait() {
                WakeReason::Synced => return Ok(()),
                WakeReason::Stopped => return self.check(),
                WakeReason::Leads => {}
            }
        } else {
            state.has_leader = true;
            drop(state);
        }
        match self.lead(clock, is_done, sync) {
            Err(error) if !is_done(target) => Err(error),
            Ok(()) | Err(_) => {
                assert!(is_done(target), "a sync is for all that was appended before");
                Ok(())
            }
        }
    }

    /// Syncs as the leader, and hands over to the next one.
    fn lead(
        &self,
        clock: &dyn Clock,
        is_done: &dyn Fn(T) -> bool,
        sync: &dyn Fn() -> Result<(), file::Error>,
    ) -> Result<(), Error> {
        drop(self.gather(clock, self.state.lock()));
        let began_ns = clock.monotonic_ns();
        let result = self.check().and_then(|()| {
            sync().map_err(|error| {
                self.stop(error);
                self.check().expect_err("the log has stopped")
            })
        });
        let sync_ns = clock.monotonic_ns().saturating_sub(began_ns);
        let mut state = self.state.lock();
        let (synced, next) = state.end_group(sync_ns, is_done);
        drop(state);
        // First, since the disk is idle until it has begun.
        if let Some(next) = next {
            next.wake(WakeReason::Leads);
        }
        synced.iter().for_each(|waiter| waiter.signal.wake(WakeReason::Synced));
        result
    }

    /// Waits for the threads that are expected, but not for long.
    fn gather<'q>(
        &'q self,
        clock: &dyn Clock,
        mut state: MutexGuard<'q, GroupState<T>>,
    ) -> MutexGuard<'q, GroupState<T>> {
        debug_assert!(state.has_leader, "a leader gathers");
        if state.is_complete() {
            return state;
        }
        if state.ungathered > 0 {
            state.ungathered -= 1;
            return state;
        }
        let until_ns = clock.monotonic_ns() + state.sync_ns / GATHERING_SHARE;
        state.is_gathering = true;
        let mut is_over = false;
        while !state.is_complete() && !is_over {
            let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
            (state, is_over) = self.gathered.wait_for(state, Duration::from_nanos(left_ns));
        }
        state.is_gathering = false;
        if state.is_complete() {
            state.ungathered_next = 0;
        } else {
            state.ungathered = state.ungathered_next;
            state.ungathered_next = (2 * state.ungathered_next).clamp(1, UNGATHERED_MAX);
        }
        state
    }
}

impl<T: Copy> GroupState<T> {
    /// Returns whether everybody is there whom a leader gathers.
    fn is_complete(&self) -> bool {
        self.waiting.len() + 1 >= self.expected
    }

    /// Ends a sync: returns the threads that need no other one, and the next leader.
    fn end_group(
        &mut self,
        sync_ns: u64,
        is_done: &dyn Fn(T) -> bool,
    ) -> (Vec<Waiter<T>>, Option<Arc<WaitSignal>>) {
        self.expected = self.waiting.len() + 1;
        self.sync_ns = if self.sync_ns == 0 { sync_ns } else { (7 * self.sync_ns + sync_ns) / 8 };
        let synced = self.waiting.extract_if(.., |waiter| is_done(waiter.target)).collect();
        self.has_leader = !self.waiting.is_empty();
        let next = self.has_leader.then(|| self.waiting.remove(0).signal);
        (synced, next)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicU32, AtomicU64, Ordering},
        },
    };

    use lockstep_host::{ManualClock, file, pause};

    use super::GroupCommit;
    use crate::Error;

    /// A log that counts what was appended and what is durable.
    #[derive(Default)]
    struct CountingLog {
        queue: GroupCommit<u64>,
        clock: ManualClock,
        appended: AtomicU64,
        durable: AtomicU64,
        syncs: AtomicU32,
    }

    impl CountingLog {
        /// Appends and waits. The first sync goes on until `others` wait for the next one; by the
        /// clock each takes `sync_ms`.
        fn write(&self, others: usize, sync_ms: u32) {
            let end = self.appended.fetch_add(1, Ordering::SeqCst) + 1;
            let sync = || {
                let synced = self.appended.load(Ordering::SeqCst);
                let is_first = self.syncs.fetch_add(1, Ordering::SeqCst) == 0;
                while is_first && self.queue.state.lock().waiting.len() < others {
                    pause(1);
                }
                self.clock.advance_ms(sync_ms);
                self.durable.store(synced, Ordering::SeqCst);
                Ok(())
            };
            let is_done = |end| self.durable.load(Ordering::SeqCst) >= end;
            self.queue.wait_until(&self.clock, end, &is_done, &sync).unwrap();
            assert!(is_done(end));
        }
    }

    /// Lets one thread write `own` rows while others, who join its first sync, write one row each.
    fn run(own: u32, others: usize, sync_ms: u32) -> CountingLog {
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
        assert_eq!((state.ungathered, state.ungathered_next), (0, 1));
        assert!(state.waiting.is_empty() && !state.has_leader);
        assert_eq!(state.expected, 3, "those that the last sync was for");
    }

    #[test]
    fn a_failed_sync_wakes_all_who_wait() {
        let queue: Arc<GroupCommit<u64>> = Arc::default();
        let write = |queue: &GroupCommit<u64>, others: usize| {
            let sync = || {
                while queue.state.lock().waiting.len() < others {
                    pause(1);
                }
                let failed = std::io::Error::from_raw_os_error(5);
                Err(file::Error::io(file::Operation::SyncData, Path::new("log"), failed))
            };
            queue.wait_until(&ManualClock::default(), 1, &|_| false, &sync).unwrap_err()
        };
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let queue = Arc::clone(&queue);
                lockstep_host::spawn("writer", move || write(&queue, 3)).unwrap()
            })
            .collect();
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Error::Stopped { .. }));
        }
        assert!(matches!(write(&queue, 0), Error::Stopped { .. }), "nor is a later one accepted");
        assert!(!queue.state.lock().has_leader);
    }

    #[test]
    fn a_writer_alone_waits_for_nobody() {
        // A leader that gathered would wait for 250 s.
        let log = run(20, 0, 1_000_000);
        assert_eq!(log.syncs.load(Ordering::SeqCst), 20);
        assert_eq!(log.queue.state.lock().expected, 1);
    }
}
