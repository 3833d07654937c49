//! Pools of threads with a bounded queue: the admission of calls that may take long.
//!
//! Each class of calls has a pool of its own, so that one class never waits for another: requests of
//! many rows, writes, analytics, whose threads have a low priority, and the verification of passwords,
//! which is slow by design. A request of one row needs no pool. What neither runs nor fits the queue is
//! refused at once. Work that does not end although it was interrupted is given up, so that no class is
//! without threads. Knows no protocol.

mod threads;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lockstep_diagnostic::{Diagnostic, code};
use lockstep_host::{Clock, QueryContext, SystemClock, sync::Mutex};
use tokio::sync::oneshot;

use self::threads::{PoolThreads, Work};

/// The number of classes.
const CLASSES: usize = 4;

/// A class of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkClass {
    /// Requests of many rows.
    Requests,
    /// Rows into tables.
    Writes,
    /// All other SQL.
    Analytics,
    /// The verification of what clients show to log in.
    Logins,
}

impl WorkClass {
    /// All classes, in the order of [`Self::position`].
    pub(crate) const ALL: [Self; CLASSES] =
        [Self::Requests, Self::Writes, Self::Analytics, Self::Logins];

    /// Returns its name in metrics and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Writes => "writes",
            Self::Analytics => "analytics",
            Self::Logins => "logins",
        }
    }

    fn position(self) -> usize {
        self as usize
    }
}

/// The size of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolSize {
    pub(crate) threads: u64,
    pub(crate) queue: u64,
    /// Whether the threads leave what they compute to threads that have a processor only while nothing
    /// else needs it.
    pub(crate) leaves_tasks: bool,
}

/// Why a pool has no result for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// All threads work, and the queue is full.
    Overloaded,
    /// The pool was closed.
    Closed,
    /// The call was interrupted and did not end.
    Stuck,
}

/// Makes the error of a call that was interrupted and did not end.
pub(crate) fn stuck() -> Diagnostic {
    Diagnostic::new(code::QUERY_CANCELED, "the call was cancelled but is still running")
        .with_detail(
            "The thread of the call is waiting for the operating system, for example for a disk. \
             A change may still take effect.",
        )
        .with_hint("Check the files and disks that the call uses.")
}

/// The pools of all classes.
pub(crate) struct WorkPools {
    pools: [WorkPool; CLASSES],
    clock: Arc<dyn Clock>,
}

impl WorkPools {
    /// Starts the threads of all classes, whose sizes are in the order of [`WorkClass::ALL`].
    pub(crate) fn start(sizes: [PoolSize; CLASSES]) -> io::Result<Self> {
        let [requests, writes, analytics, logins] = sizes;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let start = |class, size| WorkPool::start(class, size, Arc::clone(&clock));
        let pools = [
            start(WorkClass::Requests, requests)?,
            start(WorkClass::Writes, writes)?,
            start(WorkClass::Analytics, analytics)?,
            start(WorkClass::Logins, logins)?,
        ];
        Ok(Self { pools, clock })
    }

    /// Runs work on a thread of its class. Dropping the future does not stop the work, whose context the
    /// caller cancels; once that is interrupted, the work has some seconds to end.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: WorkClass,
        context: &QueryContext,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        self.pools[class.position()].run(context, work).await
    }

    /// Gives up the works that were interrupted and have not ended: their callers are told, and other
    /// threads take the place of theirs. Called now and then. Returns the class of each of them, and how
    /// long it has run.
    pub(crate) fn give_up_stuck(&self) -> Vec<(WorkClass, Duration)> {
        let of_class = |(class, pool): (WorkClass, &WorkPool)| {
            pool.threads.give_up_stuck().into_iter().map(move |ran| (class, ran))
        };
        WorkClass::ALL.into_iter().zip(&self.pools).flat_map(of_class).collect()
    }

    /// Lets work of a class wait for its client, on the thread that it has. Other work of the class runs
    /// meanwhile, so that slow clients do not stop it; before the work goes on it waits for its turn, a
    /// write for a short time only.
    pub(crate) fn parked<T>(&self, class: WorkClass, wait: impl FnOnce() -> T) -> T {
        self.pools[class.position()].threads.parked(wait)
    }

    /// Returns how many calls wait or run, for each class.
    pub(crate) fn in_progress(&self) -> impl Iterator<Item = (WorkClass, u64)> {
        // Relaxed: a figure for people.
        WorkClass::ALL.into_iter().zip(&self.pools).map(|(class, pool)| {
            let count = pool.in_progress.load(Ordering::Relaxed);
            (class, count)
        })
    }

    /// Ends the threads after the work that they have, and waits for them for some time. Returns the
    /// classes with threads that have not ended, and how many those are.
    pub(crate) fn close(&self, timeout: Duration) -> Vec<(WorkClass, usize)> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = self.clock.monotonic_ns().saturating_add(timeout_ns);
        let pools = WorkClass::ALL.into_iter().zip(&self.pools);
        let left = pools.map(|(class, pool)| (class, pool.threads.close_until(deadline_ns)));
        left.filter(|(_, threads)| *threads > 0).collect()
    }
}

impl fmt::Debug for WorkPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkPools").field("pools", &self.pools).finish_non_exhaustive()
    }
}

/// The threads and the queue of one class.
struct WorkPool {
    threads: Arc<PoolThreads>,
    /// Calls that wait or run.
    in_progress: Arc<AtomicU64>,
}

impl fmt::Debug for WorkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkPool").field("in_progress", &self.in_progress).finish_non_exhaustive()
    }
}

impl WorkPool {
    fn start(class: WorkClass, size: PoolSize, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let threads = PoolThreads::start(class, size, clock)?;
        Ok(Self { threads, in_progress: Arc::default() })
    }

    async fn run<T: Send + 'static>(
        &self,
        context: &QueryContext,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let receiver = self.submit(context, work)?;
        // The sender is dropped without a value where the work panics.
        receiver.await.unwrap_or(Err(NoResult::Closed))
    }

    fn submit<T: Send + 'static>(
        &self,
        context: &QueryContext,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, NoResult>>, NoResult> {
        let (sender, receiver) = oneshot::channel();
        let count = InProgress::begin(&self.in_progress);
        // One of the two takes it.
        let sender = Arc::new(Mutex::new(Some(sender)));
        let other = Arc::clone(&sender);
        let run = move || {
            let result = work();
            drop(count);
            if let Some(sender) = sender.lock().take() {
                // The caller may be gone.
                let _given = sender.send(Ok(result));
            }
        };
        let give_up = move || {
            if let Some(sender) = other.lock().take() {
                let _given = sender.send(Err(NoResult::Stuck));
            }
        };
        let (run, give_up, context) = (Box::new(run), Box::new(give_up), context.clone());
        self.threads.submit(Work { run, context, give_up })?;
        Ok(receiver)
    }
}

/// Counts a call while it waits or runs.
struct InProgress(Arc<AtomicU64>);

impl InProgress {
    fn begin(count: &Arc<AtomicU64>) -> Self {
        // Relaxed: a figure for people.
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use lockstep_host::{ManualClock, QueryContext};

    use super::{NoResult, PoolSize, WorkClass, WorkPool, threads::STUCK_AFTER};

    fn pool(queue: u64, clock: &Arc<ManualClock>) -> WorkPool {
        let size = PoolSize { threads: 1, queue, leaves_tasks: false };
        WorkPool::start(WorkClass::Analytics, size, Arc::clone(clock) as _).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_refused_at_once() {
        let clock = Arc::new(ManualClock::new(0));
        let (pool, context) = (pool(1, &clock), QueryContext::new());
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let first = pool.submit(&context, move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
            1
        });
        has_begun.recv().unwrap();
        let second = pool.submit(&context, || 2).unwrap();
        assert_eq!(pool.submit(&context, || 3).unwrap_err(), NoResult::Overloaded);
        assert_eq!(pool.in_progress.load(std::sync::atomic::Ordering::Relaxed), 2);
        release.send(()).unwrap();
        let answers = (first.unwrap().blocking_recv(), second.blocking_recv());
        assert_eq!(answers, (Ok(Ok(1)), Ok(Ok(2))));
        assert_eq!(pool.threads.close_until(u64::MAX), 0);
        assert_eq!(pool.submit(&context, || 4).unwrap_err(), NoResult::Closed);
    }

    #[test]
    fn what_does_not_end_is_given_up_and_the_others_run() {
        let clock = Arc::new(ManualClock::new(0));
        let (pool, context) = (pool(1, &clock), QueryContext::new());
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let stuck = pool.submit(&context, move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
            1
        });
        has_begun.recv().unwrap();
        let other = QueryContext::new();
        let next = pool.submit(&other, || 2).unwrap();
        // It runs, and nobody has interrupted it.
        let seconds = u64::try_from(STUCK_AFTER.as_millis()).unwrap();
        clock.advance_ms(seconds.try_into().unwrap());
        assert_eq!(pool.threads.give_up_stuck(), []);
        context.cancel();
        assert_eq!(pool.threads.give_up_stuck(), []);
        clock.advance_ms(seconds.try_into().unwrap());
        assert_eq!(pool.threads.give_up_stuck(), [2 * STUCK_AFTER]);
        assert_eq!(stuck.unwrap().blocking_recv(), Ok(Err(NoResult::Stuck)));
        assert_eq!(next.blocking_recv(), Ok(Ok(2)));
        assert_eq!(pool.threads.give_up_stuck(), []);
        // Its thread does not end, which keeps nobody waiting.
        assert_eq!(pool.threads.close_until(0), 2);
        release.send(()).unwrap();
        assert_eq!(pool.threads.close_until(u64::MAX), 0);
    }
}
