//! Pools of threads with a bounded queue: the admission of calls that may take long.
//!
//! Each class of calls has a pool of its own, so that one class never waits for another: requests of
//! many rows, writes, analytics, whose threads have a low priority, and the verification of passwords,
//! which is slow by design. A request of one row needs no pool. What neither runs nor fits the queue is
//! refused at once. Knows no protocol.

mod threads;

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;

use self::threads::PoolThreads;

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
}

/// The pools of all classes.
#[derive(Debug)]
pub(crate) struct WorkPools {
    pools: [WorkPool; CLASSES],
}

impl WorkPools {
    /// Starts the threads of all classes, whose sizes are in the order of [`WorkClass::ALL`].
    pub(crate) fn start(sizes: [PoolSize; CLASSES]) -> io::Result<Self> {
        let [requests, writes, analytics, logins] = sizes;
        let pools = [
            WorkPool::start(WorkClass::Requests, requests)?,
            WorkPool::start(WorkClass::Writes, writes)?,
            WorkPool::start(WorkClass::Analytics, analytics)?,
            WorkPool::start(WorkClass::Logins, logins)?,
        ];
        Ok(Self { pools })
    }

    /// Runs work on a thread of its class. Dropping the future does not stop the work, whose context
    /// the caller cancels.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        self.pools[class.position()].run(work).await
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

    /// Ends the threads after the work that they have, and waits for them.
    pub(crate) fn close(&self) {
        self.pools.iter().for_each(|pool| pool.threads.close());
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
    fn start(class: WorkClass, size: PoolSize) -> io::Result<Self> {
        Ok(Self { threads: PoolThreads::start(class, size)?, in_progress: Arc::default() })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoResult> {
        let receiver = self.submit(work)?;
        // The sender is dropped without a value where the work panics.
        receiver.await.map_err(|_error| NoResult::Closed)
    }

    fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, NoResult> {
        let (give, receiver) = oneshot::channel();
        let count = InProgress::begin(&self.in_progress);
        let work = move || {
            let result = work();
            drop(count);
            // The caller may be gone.
            let _given = give.send(result);
        };
        self.threads.submit(Box::new(work))?;
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
    use std::sync::mpsc;

    use super::{NoResult, PoolSize, WorkClass, WorkPool};

    #[test]
    fn what_does_not_fit_is_refused_at_once() {
        let pool = WorkPool::start(
            WorkClass::Analytics,
            PoolSize { threads: 1, queue: 1, leaves_tasks: false },
        )
        .unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let first = pool.submit(move || {
            begun.send(()).unwrap();
            released.recv().unwrap();
            1
        });
        has_begun.recv().unwrap();
        let second = pool.submit(|| 2).unwrap();
        assert_eq!(pool.submit(|| 3).unwrap_err(), NoResult::Overloaded);
        assert_eq!(pool.in_progress.load(std::sync::atomic::Ordering::Relaxed), 2);
        release.send(()).unwrap();
        assert_eq!((first.unwrap().blocking_recv(), second.blocking_recv()), (Ok(1), Ok(2)));
        pool.threads.close();
        assert_eq!(pool.submit(|| 4).unwrap_err(), NoResult::Closed);
    }
}
