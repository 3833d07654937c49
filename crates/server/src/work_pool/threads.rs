//! The threads of a pool: a bounded queue of work, and permits to run it.
//!
//! Work runs while it has one of the pool's permits. Work that has to wait for its client parks: it gives
//! its permit to other work, which runs on another thread, and takes one again before it goes on, ahead of
//! work that has not begun. So a client that reads or sends slowly costs a thread that sleeps, and no
//! permit.
//!
//! A write holds the lock of its table while it is parked, and those that have the permits may wait for
//! that lock: behind an ALTER TABLE, which keeps new writers out. It therefore waits for a permit for
//! [`WRITE_PERMIT_WAIT`] only, and then goes on without one.
//!
//! Work that was interrupted and goes on all the same, as a call of the system may that never returns, is
//! given up after [`STUCK_AFTER`]: its caller is told, its permit goes to other work, and another thread
//! takes the place of its own ([`PoolThreads::give_up_stuck`]). The thread ends with its work.
//!
//! # Invariants
//!
//! - At most as many works run as there are permits, besides writes that have waited so long for one, and
//!   those that were given up.
//! - There are as many threads as permits besides those whose work is parked, wants its permit again, or
//!   was given up.
//! - At most [`PARKED_MAX`] works are parked; where there are as many, the next one waits with its permit.

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use lockstep_host::{
    Clock, QueryContext,
    sync::{Condvar, Mutex, MutexGuard},
};

use super::{NoResult, PoolSize, WorkClass};

/// The most works of a pool that are parked: each has a thread that sleeps.
const PARKED_MAX: usize = 256;

/// How long a write that was parked waits for a permit.
const WRITE_PERMIT_WAIT: Duration = Duration::from_millis(100);

/// How long a thread that is one too many waits for work before it ends.
const SPARE_IDLE: Duration = Duration::from_secs(10);

/// How long work may go on after it was interrupted, until it is given up.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(5);

/// The most works of a pool that are given up: each has a thread that may never end.
const GIVEN_UP_MAX: usize = 256;

/// What a thread runs.
pub(super) struct Work {
    pub(super) run: Box<dyn FnOnce() + Send>,
    /// What interrupts it.
    pub(super) context: QueryContext,
    /// Tells its caller that it was given up.
    pub(super) give_up: Box<dyn FnOnce() + Send>,
}

/// Work that a thread runs.
struct RunningWork {
    context: QueryContext,
    give_up: Option<Box<dyn FnOnce() + Send>>,
    began_ns: u64,
    /// Since when it is known to be interrupted.
    interrupted_ns: Option<u64>,
    is_parked: bool,
}

thread_local! {
    /// The number of the work that the thread runs.
    static WORK: Cell<u64> = const { Cell::new(0) };
}

/// The threads of a pool and what they share.
pub(super) struct PoolThreads {
    class: WorkClass,
    permits: usize,
    /// The most works that wait for a permit and have not begun.
    queue_max: usize,
    leaves_tasks: bool,
    clock: Arc<dyn Clock>,
    state: Mutex<PoolState>,
    /// Wakes threads without work.
    has_work: Condvar,
    /// Wakes works that want their permit again.
    has_permit: Condvar,
    /// Wakes who waits for the end of the threads.
    has_ended: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Work>,
    /// Works with a permit, and writes that go on without one.
    running: usize,
    /// Works that wait for their clients.
    parked: usize,
    /// Works that want their permit again.
    returning: usize,
    /// Works that were given up and have not ended.
    given_up: usize,
    /// Threads that have not ended.
    threads: usize,
    /// The works that have begun and not ended, by their numbers.
    works: BTreeMap<u64, RunningWork>,
    last_work: u64,
    is_closed: bool,
}

impl PoolState {
    /// Returns the threads that run work or wait for some.
    fn active_threads(&self) -> usize {
        let others = self.parked + self.returning + self.given_up;
        debug_assert!(others <= self.threads, "each work has a thread");
        self.threads - others
    }

    /// Notes that a work begins, and returns its number.
    fn begin(
        &mut self,
        context: &QueryContext,
        give_up: Box<dyn FnOnce() + Send>,
        now_ns: u64,
    ) -> u64 {
        self.running += 1;
        self.last_work += 1;
        let work = RunningWork {
            context: context.clone(),
            give_up: Some(give_up),
            began_ns: now_ns,
            interrupted_ns: None,
            is_parked: false,
        };
        self.works.insert(self.last_work, work);
        self.last_work
    }

    /// Returns whether a work was given up.
    fn is_given_up(&self, number: u64) -> bool {
        self.works.get(&number).is_some_and(|work| work.give_up.is_none())
    }

    fn set_parked(&mut self, number: u64, is_parked: bool) {
        if let Some(work) = self.works.get_mut(&number) {
            work.is_parked = is_parked;
        }
    }
}

impl PoolThreads {
    /// Starts as many threads as there are permits.
    pub(super) fn start(
        class: WorkClass,
        size: PoolSize,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Arc<Self>> {
        assert!(size.threads > 0, "a pool has a thread");
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let pool = Arc::new(Self {
            class,
            permits: count(size.threads),
            queue_max: count(size.queue),
            leaves_tasks: size.leaves_tasks,
            clock,
            state: Mutex::default(),
            has_work: Condvar::new(),
            has_permit: Condvar::new(),
            has_ended: Condvar::new(),
        });
        let started = (0..size.threads).try_for_each(|_| pool.start_thread(&mut pool.state.lock()));
        if let Err(error) = started {
            pool.begin_close(&mut pool.state.lock());
            return Err(error);
        }
        Ok(pool)
    }

    /// Starts a thread, which ends when the pool is closed, or when it is one too many.
    fn start_thread(self: &Arc<Self>, state: &mut PoolState) -> io::Result<()> {
        let (pool, name) = (Arc::clone(self), self.class.name());
        let body = move || {
            if pool.leaves_tasks {
                lockstep_host::leave_tasks_to_idle_threads();
            }
            pool.serve();
        };
        let started = match self.class {
            WorkClass::Analytics => lockstep_host::spawn_background(name, body),
            WorkClass::Requests | WorkClass::Writes | WorkClass::Logins => {
                lockstep_host::spawn(name, body)
            }
        };
        // `close` waits for the count of threads.
        drop(started?);
        state.threads += 1;
        Ok(())
    }

    /// Adds work to the queue. Fails where it has no place.
    pub(super) fn submit(&self, work: Work) -> Result<(), NoResult> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(NoResult::Closed);
        }
        // What begins at once needs no place.
        let free = self.permits.saturating_sub(state.running);
        if state.queue.len() >= self.queue_max.saturating_add(free) {
            return Err(NoResult::Overloaded);
        }
        state.queue.push_back(work);
        self.wake(&state);
        Ok(())
    }

    /// Runs work until there is none for this thread any more.
    fn serve(&self) {
        while let Some((number, run)) = self.next_work() {
            WORK.set(number);
            // The caller sees a panic: its work has no result.
            let _panicked = catch_unwind(AssertUnwindSafe(run));
            let mut state = self.state.lock();
            if state.is_given_up(number) {
                assert!(state.given_up > 0, "this work was counted");
                state.given_up -= 1;
            } else {
                assert!(state.running > 0, "this work has run");
                state.running -= 1;
            }
            state.works.remove(&number);
            self.wake(&state);
        }
    }

    /// Waits for work and a permit to run it; `None` where the thread ends.
    fn next_work(&self) -> Option<(u64, Box<dyn FnOnce() + Send>)> {
        let mut state = self.state.lock();
        let mut has_waited = false;
        loop {
            let has_permit = state.running < self.permits && state.returning == 0;
            if has_permit && let Some(Work { run, context, give_up }) = state.queue.pop_front() {
                let number = state.begin(&context, give_up, self.clock.monotonic_ns());
                self.wake(&state);
                return Some((number, run));
            }
            let is_spare = state.active_threads() > self.permits;
            let is_over = state.is_closed && state.queue.is_empty();
            if is_over || (is_spare && has_waited) {
                state.threads -= 1;
                self.has_ended.notify_all();
                return None;
            }
            (state, has_waited) = if is_spare {
                self.has_work.wait_for(state, SPARE_IDLE)
            } else {
                (self.has_work.wait(state), false)
            };
        }
    }

    /// Wakes whoever can go on after a change.
    fn wake(&self, state: &PoolState) {
        let is_in_excess = state.running > self.permits;
        assert!(!is_in_excess || self.class == WorkClass::Writes, "work runs with a permit");
        if state.is_closed {
            self.has_work.notify_all();
        }
        if state.running < self.permits && state.returning > 0 {
            self.has_permit.notify_one();
        } else if (state.running < self.permits && !state.queue.is_empty())
            // So that it waits for some time only.
            || state.active_threads() > self.permits
        {
            self.has_work.notify_one();
        }
    }

    /// Waits for a client on the thread of a work, which is without a permit meanwhile.
    pub(super) fn parked<T>(self: &Arc<Self>, wait: impl FnOnce() -> T) -> T {
        if !self.give_permit() {
            return wait();
        }
        let _permit = PermitAfter(self);
        wait()
    }

    /// Gives the permit of a work away. Returns whether it is: the work has to take one again.
    fn give_permit(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let is_given_up = state.is_given_up(WORK.get());
        assert!(is_given_up || state.running > 0, "work that runs parks");
        if is_given_up || state.is_closed || state.parked + state.returning >= PARKED_MAX {
            return false;
        }
        let has_thread = state.active_threads() > self.permits;
        if !has_thread && self.start_thread(&mut state).is_err() {
            return false;
        }
        state.running -= 1;
        state.parked += 1;
        state.set_parked(WORK.get(), true);
        self.wake(&state);
        true
    }

    /// Takes a permit for a work that was parked; waits for one. A write goes on without one where none
    /// is given back for a time.
    fn take_permit(&self) {
        let mut state = self.state.lock();
        assert!(state.parked > 0, "this work was parked");
        state.parked -= 1;
        state.returning += 1;
        let mut is_late = false;
        while state.running >= self.permits && !is_late {
            (state, is_late) = match self.class {
                WorkClass::Writes => self.has_permit.wait_for(state, WRITE_PERMIT_WAIT),
                WorkClass::Requests | WorkClass::Analytics | WorkClass::Logins => {
                    (self.has_permit.wait(state), false)
                }
            };
        }
        state.returning -= 1;
        state.running += 1;
        state.set_parked(WORK.get(), false);
        self.wake(&state);
    }

    /// Gives up the works that go on although they were interrupted [`STUCK_AFTER`] ago. Called now and
    /// then. Returns how long each of them has run.
    pub(super) fn give_up_stuck(self: &Arc<Self>) -> Vec<Duration> {
        let now_ns = self.clock.monotonic_ns();
        let mut told = Vec::new();
        let mut state = self.state.lock();
        let mut left = GIVEN_UP_MAX.saturating_sub(state.given_up);
        for work in state.works.values_mut().filter(|work| !work.is_parked) {
            if work.context.check().is_err() {
                let since_ns = *work.interrupted_ns.get_or_insert(now_ns);
                let is_stuck =
                    u128::from(now_ns.saturating_sub(since_ns)) >= STUCK_AFTER.as_nanos();
                if is_stuck
                    && left > 0
                    && let Some(give_up) = work.give_up.take()
                {
                    left -= 1;
                    told.push((
                        give_up,
                        Duration::from_nanos(now_ns.saturating_sub(work.began_ns)),
                    ));
                }
            }
        }
        assert!(told.len() <= state.running, "each of them has run");
        state.running -= told.len();
        state.given_up += told.len();
        for _ in &told {
            // Where the machine gives no thread, the pool has one fewer until the work ends.
            let _refused = self.start_thread(&mut state);
            self.wake(&state);
        }
        drop(state);
        let tell = |(give_up, ran): (Box<dyn FnOnce() + Send>, Duration)| {
            give_up();
            ran
        };
        told.into_iter().map(tell).collect()
    }

    /// Ends the threads after the work that they have, and waits for them, until a time of the clock.
    /// Returns the number of those that have not ended.
    pub(super) fn close_until(&self, deadline_ns: u64) -> usize {
        let mut state = self.state.lock();
        self.begin_close(&mut state);
        while state.threads > 0 {
            let left_ns = deadline_ns.saturating_sub(self.clock.monotonic_ns());
            if left_ns == 0 {
                return state.threads;
            }
            (state, _) = self.has_ended.wait_for(state, Duration::from_nanos(left_ns));
        }
        debug_assert!(state.queue.is_empty(), "what was submitted has run");
        0
    }

    fn begin_close(&self, state: &mut MutexGuard<'_, PoolState>) {
        state.is_closed = true;
        self.has_work.notify_all();
    }
}

/// Takes the permit of a work again, also where its waiting has panicked.
struct PermitAfter<'p>(&'p PoolThreads);

impl Drop for PermitAfter<'_> {
    fn drop(&mut self) {
        self.0.take_permit();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use lockstep_host::{QueryContext, SystemClock};

    use super::{NoResult, PARKED_MAX, PoolSize, PoolThreads, Work, WorkClass};

    fn pool_of(class: WorkClass, threads: u64, queue: u64) -> Arc<PoolThreads> {
        let size = PoolSize { threads, queue, leaves_tasks: false };
        PoolThreads::start(class, size, Arc::new(SystemClock::new())).unwrap()
    }

    fn pool(threads: u64, queue: u64) -> Arc<PoolThreads> {
        pool_of(WorkClass::Analytics, threads, queue)
    }

    fn submit(pool: &PoolThreads, work: impl FnOnce() + Send + 'static) -> Result<(), NoResult> {
        let (context, give_up) = (QueryContext::new(), Box::new(|| ()));
        pool.submit(Work { run: Box::new(work), context, give_up })
    }

    fn close(pool: &PoolThreads) {
        assert_eq!(pool.close_until(u64::MAX), 0);
    }

    /// Parks so many works, one after another; returns what lets them go on.
    fn park(pool: &Arc<PoolThreads>, count: usize) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel();
        let released = Arc::new(lockstep_host::sync::Mutex::new(released));
        let (parked, is_parked) = mpsc::channel();
        for _ in 0..count {
            let (shared, parked, released) =
                (Arc::clone(pool), parked.clone(), Arc::clone(&released));
            let work = move || {
                shared.parked(|| {
                    parked.send(()).unwrap();
                    // Ends when the sender does.
                    let _ended = released.lock().recv();
                });
            };
            submit(pool, work).unwrap();
            is_parked.recv().unwrap();
        }
        release
    }

    /// Runs a work and waits for it.
    fn run(pool: &PoolThreads) {
        let (done, is_done) = mpsc::channel();
        submit(pool, move || done.send(()).unwrap()).unwrap();
        is_done.recv().unwrap();
    }

    #[test]
    fn work_that_is_parked_leaves_its_permit_to_others() {
        let pool = pool(2, 1);
        let release = park(&pool, 8);
        run(&pool);
        assert_eq!(pool.state.lock().parked, 8);
        drop(release);
        close(&pool);
        let state = pool.state.lock();
        assert_eq!((state.running, state.parked, state.returning, state.threads), (0, 0, 0, 0));
    }

    #[test]
    fn parked_work_goes_on_before_work_that_has_not_begun() {
        let pool = pool(1, 4);
        let (order, received) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let (parked, is_parked) = mpsc::channel();
        let (shared, first) = (Arc::clone(&pool), order.clone());
        let work = move || {
            shared.parked(|| {
                parked.send(()).unwrap();
                released.recv().unwrap();
            });
            first.send("parked").unwrap();
        };
        submit(&pool, work).unwrap();
        is_parked.recv().unwrap();
        let (shared, second) = (Arc::clone(&pool), order.clone());
        let work = move || {
            release.send(()).unwrap();
            while shared.state.lock().returning == 0 {
                std::hint::spin_loop();
            }
            second.send("running").unwrap();
        };
        submit(&pool, work).unwrap();
        submit(&pool, move || order.send("queued").unwrap()).unwrap();
        assert_eq!(received.iter().collect::<Vec<_>>(), ["running", "parked", "queued"]);
        close(&pool);
    }

    #[test]
    fn a_write_goes_on_where_the_others_wait_for_it() {
        let pool = pool_of(WorkClass::Writes, 1, 1);
        let (release, released) = mpsc::channel::<()>();
        let (parked, is_parked) = mpsc::channel();
        let (unlock, unlocked) = mpsc::channel::<()>();
        let shared = Arc::clone(&pool);
        let holder = move || {
            shared.parked(|| {
                parked.send(()).unwrap();
                released.recv().unwrap();
            });
            unlock.send(()).unwrap();
        };
        submit(&pool, holder).unwrap();
        is_parked.recv().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let waiter = move || {
            begun.send(()).unwrap();
            unlocked.recv().unwrap();
        };
        submit(&pool, waiter).unwrap();
        has_begun.recv().unwrap();
        // The other has the only permit.
        release.send(()).unwrap();
        run(&pool);
        close(&pool);
        let state = pool.state.lock();
        assert_eq!((state.running, state.parked, state.returning, state.threads), (0, 0, 0, 0));
    }

    #[test]
    fn there_is_a_limit_of_parked_work() {
        let pool = pool(1, 1);
        let release = park(&pool, PARKED_MAX);
        // It waits with its permit, so that the next one waits in the queue.
        let last = park(&pool, 1);
        submit(&pool, || ()).unwrap();
        assert_eq!(submit(&pool, || ()), Err(NoResult::Overloaded));
        drop((release, last));
        close(&pool);
        assert_eq!(submit(&pool, || ()), Err(NoResult::Closed));
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = pool(1, 1);
        submit(&pool, || std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
        run(&pool);
        close(&pool);
    }
}
