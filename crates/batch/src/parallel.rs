//! A fixed number of threads that take tasks from one counter.
//!
//! The window and join operators call it from a blocking task; the threads live as long as the
//! call. Results come back in the order of the tasks, whichever thread ran them.
//!
//! A caller may leave the tasks to threads that only have a processor while nobody else needs it
//! ([`lockstep_host::leave_tasks_to_idle_threads`]).

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use datafusion::error::{DataFusionError, Result};

/// Runs `body` for the tasks `0..count` on up to `threads` threads, the caller's among them unless it
/// leaves its tasks to others, and stops early at the first error. A panic of a task is an error of the
/// query, not of the process.
pub(crate) fn run<T: Send>(
    threads: NonZeroUsize,
    count: usize,
    body: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let work = || {
        let mut done = Vec::new();
        // Relaxed: results are handed over by joining the thread; the flag only saves work.
        while !failed.load(Ordering::Relaxed) {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= count {
                break;
            }
            match body(task) {
                Ok(result) => done.push((task, result)),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(done)
    };
    let leaves_tasks = lockstep_host::leaves_tasks_to_idle_threads();
    let helper_count = threads.get().min(count).saturating_sub(usize::from(!leaves_tasks));
    let help = || {
        if leaves_tasks {
            lockstep_host::become_idle();
        }
        work()
    };
    let mut results = thread::scope(|scope| {
        let helpers: Vec<_> = (0..helper_count)
            .filter_map(|_| {
                // Without another thread, the caller runs all tasks.
                thread::Builder::new().name("batch".to_owned()).spawn_scoped(scope, help).ok()
            })
            .collect();
        let mut results = if leaves_tasks && !helpers.is_empty() { Ok(Vec::new()) } else { work() };
        for helper in helpers {
            let joined = helper.join().unwrap_or_else(|_| Err(panicked()));
            results = match (results, joined) {
                (Ok(mut all), Ok(done)) => {
                    all.extend(done);
                    Ok(all)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        results
    })?;
    results.sort_unstable_by_key(|(task, _)| *task);
    debug_assert_eq!(results.len(), count, "each task ran once");
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

fn panicked() -> DataFusionError {
    DataFusionError::Internal("a task of the operator panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use datafusion::error::DataFusionError;

    use super::run;

    const THREADS: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

    #[test]
    fn results_come_in_the_order_of_the_tasks() {
        let squares = run(THREADS, 100, |task| Ok(task * task)).unwrap();
        assert_eq!(squares, (0..100).map(|task| task * task).collect::<Vec<_>>());
    }

    #[test]
    fn a_caller_may_leave_the_tasks_to_others() {
        let threads = || run(THREADS, 20, |_| Ok(std::thread::current().id()));
        let low = lockstep_host::spawn("low", move || {
            lockstep_host::leave_tasks_to_idle_threads();
            (std::thread::current().id(), threads().unwrap())
        });
        let (caller, of_tasks) = low.unwrap().join().unwrap();
        assert_eq!(of_tasks.len(), 20);
        assert!(!of_tasks.contains(&caller));
        let alone = run(NonZeroUsize::MIN, 3, |_| Ok(std::thread::current().id())).unwrap();
        assert_eq!(alone, [std::thread::current().id(); 3]);
    }

    #[test]
    fn one_failed_task_fails_the_run() {
        let result = run(THREADS, 100, |task| match task {
            57 => Err(DataFusionError::Execution("no".to_owned())),
            _ => Ok(task),
        });
        assert!(result.is_err());
    }
}
