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
//! # Invariants
//!
//! - At most as many works run as there are permits, besides writes that have waited so long for one.
//! - There are as many threads as permits besides those whose work is parked or wants its permit again.
//! - At most [`PARKED_MAX`] works are parked; where there are as many, the next one waits with its permit.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use lockstep_host::sync::{Condvar, Mutex};

use super::{NoResult, PoolSize, WorkClass};

/// The most works of a pool that are parked: each has a thread that sleeps.
const PARKED_MAX: usize = 256;

/// How long a write that was parked waits for a permit.
const WRITE_PERMIT_WAIT: Duration = Duration::from_millis(100);

/// How long a thread that is one too many waits for work before it ends.
const SPARE_IDLE: Duration = Duration::from_secs(10);

/// What a thread runs.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// The threads of a pool and what they share.
pub(super) struct PoolThreads {
    class: WorkClass,
    permits: usize,
    /// The most works that wait for a permit and have not begun.
    queue_max: usize,
    leaves_tasks: bool,
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
    /// Threads that have not ended.
    threads: usize,
    is_closed: bool,
}

impl PoolState {
    /// Returns the threads that run work or wait for some.
    fn active_threads(&self) -> usize {
        debug_assert!(self.parked + self.returning <= self.threads, "each work has a thread");
        self.threads - self.parked - self.returning
    }
}

impl PoolThreads {
    /// Starts as many threads as there are permits.
    pub(super) fn start(class: WorkClass, size: PoolSize) -> io::Result<Arc<Self>> {
        assert!(size.threads > 0, "a pool has a thread");
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let pool = Arc::new(Self {
            class,
            permits: count(size.threads),
            queue_max: count(size.queue),
            leaves_tasks: size.leaves_tasks,
            state: Mutex::default(),
            has_work: Condvar::new(),
            has_permit: Condvar::new(),
            has_ended: Condvar::new(),
        });
        let started = (0..size.threads).try_for_each(|_| pool.start_thread(&mut pool.state.lock()));
        if let Err(error) = started {
            pool.close();
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
        while let Some(work) = self.next_work() {
            // The caller sees a panic: its work has no result.
            let _panicked = catch_unwind(AssertUnwindSafe(work));
            let mut state = self.state.lock();
            assert!(state.running > 0, "this work has run");
            state.running -= 1;
            self.wake(&state);
        }
    }

    /// Waits for work and a permit to run it; `None` where the thread ends.
    fn next_work(&self) -> Option<Work> {
        let mut state = self.state.lock();
        let mut has_waited = false;
        loop {
            let has_permit = state.running < self.permits && state.returning == 0;
            if has_permit && let Some(work) = state.queue.pop_front() {
                state.running += 1;
                self.wake(&state);
                return Some(work);
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
        assert!(state.running > 0, "work that runs parks");
        if state.is_closed || state.parked + state.returning >= PARKED_MAX {
            return false;
        }
        let has_thread = state.active_threads() > self.permits;
        if !has_thread && self.start_thread(&mut state).is_err() {
            return false;
        }
        state.running -= 1;
        state.parked += 1;
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
        self.wake(&state);
    }

    /// Ends the threads after the work that they have, and waits for them.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.has_work.notify_all();
        while state.threads > 0 {
            state = self.has_ended.wait(state);
        }
        debug_assert!(state.queue.is_empty(), "what was submitted has run");
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

    use super::{NoResult, PARKED_MAX, PoolSize, PoolThreads, WorkClass};

    fn pool(threads: u64, queue: u64) -> Arc<PoolThreads> {
        PoolThreads::start(WorkClass::Analytics, PoolSize { threads, queue, leaves_tasks: false })
            .unwrap()
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
            pool.submit(Box::new(work)).unwrap();
            is_parked.recv().unwrap();
        }
        release
    }

    /// Runs a work and waits for it.
    fn run(pool: &PoolThreads) {
        let (done, is_done) = mpsc::channel();
        pool.submit(Box::new(move || done.send(()).unwrap())).unwrap();
        is_done.recv().unwrap();
    }

    #[test]
    fn work_that_is_parked_leaves_its_permit_to_others() {
        let pool = pool(2, 1);
        let release = park(&pool, 8);
        run(&pool);
        assert_eq!(pool.state.lock().parked, 8);
        drop(release);
        pool.close();
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
        pool.submit(Box::new(work)).unwrap();
        is_parked.recv().unwrap();
        let (shared, second) = (Arc::clone(&pool), order.clone());
        let work = move || {
            release.send(()).unwrap();
            while shared.state.lock().returning == 0 {
                std::hint::spin_loop();
            }
            second.send("running").unwrap();
        };
        pool.submit(Box::new(work)).unwrap();
        pool.submit(Box::new(move || order.send("queued").unwrap())).unwrap();
        assert_eq!(received.iter().collect::<Vec<_>>(), ["running", "parked", "queued"]);
        pool.close();
    }

    #[test]
    fn a_write_goes_on_where_the_others_wait_for_it() {
        let size = PoolSize { threads: 1, queue: 1, leaves_tasks: false };
        let pool = PoolThreads::start(WorkClass::Writes, size).unwrap();
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
        pool.submit(Box::new(holder)).unwrap();
        is_parked.recv().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let waiter = move || {
            begun.send(()).unwrap();
            unlocked.recv().unwrap();
        };
        pool.submit(Box::new(waiter)).unwrap();
        has_begun.recv().unwrap();
        // The other has the only permit.
        release.send(()).unwrap();
        run(&pool);
        pool.close();
        let state = pool.state.lock();
        assert_eq!((state.running, state.parked, state.returning, state.threads), (0, 0, 0, 0));
    }

    #[test]
    fn there_is_a_limit_of_parked_work() {
        let pool = pool(1, 1);
        let release = park(&pool, PARKED_MAX);
        // It waits with its permit, so that the next one waits in the queue.
        let last = park(&pool, 1);
        pool.submit(Box::new(|| ())).unwrap();
        assert_eq!(pool.submit(Box::new(|| ())), Err(NoResult::Overloaded));
        drop((release, last));
        pool.close();
        assert_eq!(pool.submit(Box::new(|| ())), Err(NoResult::Closed));
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = pool(1, 1);
        pool.submit(Box::new(|| std::panic::resume_unwind(Box::new("on purpose")))).unwrap();
        run(&pool);
        pool.close();
    }
}
