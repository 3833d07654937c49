//! Blocks of work that several threads do, and whose results one thread consumes in the order of the
//! blocks.
//!
//! The calling thread makes the blocks, does some of them itself and consumes the results; the others live
//! as long as the call. Few blocks are made before the first result is consumed, so that a source of
//! any size is worked on in the memory of some blocks.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    ops::ControlFlow,
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

use crate::{
    query::{self, QueryContext},
    sync::{Condvar, Mutex},
    thread::{become_background, become_idle, is_background, leaves_tasks_to_idle_threads},
};

/// So many blocks for each thread are made before the first of them is consumed.
const BLOCKS_AHEAD: usize = 3;

/// How often the caller checks whether its call was cancelled while it waits.
const WAIT: Duration = Duration::from_millis(5);

/// Works on each block, on up to `threads` threads, and passes the results to `consume` in the order of the
/// blocks, until there are no more or it breaks. Each thread makes a worker of its own; the caller's
/// makes one too, unless it leaves its tasks to idle threads. The context of the call is set on all of
/// them. A panic of a worker is one of the caller.
pub fn in_order<B: Send, R: Send, W: FnMut(B) -> R>(
    threads: NonZeroUsize,
    blocks: impl Iterator<Item = B>,
    worker: impl Fn() -> W + Sync,
    mut consume: impl FnMut(R) -> ControlFlow<()>,
) {
    let mut blocks = blocks.fuse();
    let first = blocks.next();
    let second = first.as_ref().and_then(|_| blocks.next());
    let is_one = threads.get() == 1 || second.is_none();
    let mut blocks = first.into_iter().chain(second).chain(blocks);
    // There are two at least.
    let blocks_max = blocks.size_hint().1.unwrap_or(usize::MAX);
    if is_one {
        let mut own = worker();
        let _break = blocks.try_for_each(|block| consume(own(block)));
        return;
    }
    let work = OrderedWork { state: Mutex::default(), changed: Condvar::new() };
    let (leaves_tasks, context) = (leaves_tasks_to_idle_threads(), query::current());
    let help = || {
        become_background();
        if leaves_tasks {
            become_idle();
        }
        work.help(worker(), context.as_ref());
    };
    thread::scope(|scope| {
        let _end = EndHelpers(&work);
        let helper_count = threads.get().min(blocks_max) - usize::from(!leaves_tasks);
        let started = (0..helper_count).filter(|_| {
            let builder = thread::Builder::new().name("blocks".to_owned());
            builder.spawn_scoped(scope, help).is_ok()
        });
        // Without another thread, the caller does everything.
        let has_helpers = started.count() > 0;
        let mut own = (!leaves_tasks || !has_helpers).then(&worker);
        let ahead = threads.get() * BLOCKS_AHEAD;
        let (mut made, mut consumed) = (0, 0);
        loop {
            while made - consumed < ahead
                && let Some(block) = blocks.next()
            {
                work.give(made, block);
                made += 1;
            }
            if made == consumed {
                return;
            }
            match work.take_result(consumed) {
                Some(Ok(result)) => {
                    consumed += 1;
                    if consume(result).is_break() {
                        return;
                    }
                }
                Some(Err(panic)) => panic::resume_unwind(panic),
                None => match own.as_mut().and_then(|own| Some((own, work.take_block()?))) {
                    Some((own, (number, block))) => work.put_result(number, Ok(own(block))),
                    None => work.wait_for(consumed, context.as_ref()),
                },
            }
        }
    });
}

/// What the threads of a call share.
struct OrderedWork<B, R> {
    state: Mutex<BlocksState<B, R>>,
    changed: Condvar,
}

struct BlocksState<B, R> {
    /// Blocks, with their numbers, that nobody has begun.
    blocks: VecDeque<(usize, B)>,
    /// Results that are not consumed, by the number of the block.
    results: BTreeMap<usize, thread::Result<R>>,
    is_over: bool,
}

impl<B, R> Default for BlocksState<B, R> {
    fn default() -> Self {
        Self { blocks: VecDeque::new(), results: BTreeMap::new(), is_over: false }
    }
}

impl<B, R> OrderedWork<B, R> {
    fn give(&self, number: usize, block: B) {
        self.state.lock().blocks.push_back((number, block));
        self.changed.notify_all();
    }

    fn take_block(&self) -> Option<(usize, B)> {
        self.state.lock().blocks.pop_front()
    }

    fn take_result(&self, number: usize) -> Option<thread::Result<R>> {
        self.state.lock().results.remove(&number)
    }

    fn put_result(&self, number: usize, result: thread::Result<R>) {
        let before = self.state.lock().results.insert(number, result);
        debug_assert!(before.is_none(), "a block has one result");
        self.changed.notify_all();
    }

    /// Waits for a result, or a little. Cancels the call where its poll function says so, unless the call is that of
    /// another thread.
    fn wait_for(&self, number: usize, context: Option<&QueryContext>) {
        let state = self.state.lock();
        if !state.results.contains_key(&number) {
            drop(self.changed.wait_for(state, WAIT));
        }
        if let Some(context) = context.filter(|_| !is_background()) {
            // The workers see it at their checkpoints.
            let _interrupt = context.poll();
        }
    }

    /// Works on blocks until the call is over.
    fn help(&self, mut worker: impl FnMut(B) -> R, context: Option<&QueryContext>) {
        while let Some((number, block)) = self.next_block() {
            let work = || worker(block);
            let work = AssertUnwindSafe(|| match context {
                Some(context) => context.run(work),
                None => work(),
            });
            let result = panic::catch_unwind(work);
            let is_last = result.is_err();
            self.put_result(number, result);
            if is_last {
                return;
            }
        }
    }

    fn next_block(&self) -> Option<(usize, B)> {
        let mut state = self.state.lock();
        while !state.is_over {
            if let Some(block) = state.blocks.pop_front() {
                return Some(block);
            }
            state = self.changed.wait_for(state, WAIT_OF_HELPER).0;
        }
        None
    }
}

/// A helper is woken when there is a block.
const WAIT_OF_HELPER: Duration = Duration::from_secs(1);

/// Ends the helpers, also when the caller panics.
struct EndHelpers<'w, B, R>(&'w OrderedWork<B, R>);

impl<B, R> Drop for EndHelpers<'_, B, R> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_over = true;
        state.blocks.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        num::NonZeroUsize,
        ops::ControlFlow,
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{Arc, Barrier},
        thread,
    };

    use super::{BLOCKS_AHEAD, in_order};
    use crate::{QueryContext, SystemClock, query, sync::Mutex};

    const THREADS: NonZeroUsize = NonZeroUsize::new(3).expect("three is not zero");

    #[test]
    fn results_come_in_the_order_of_the_blocks() {
        for threads in [NonZeroUsize::MIN, THREADS] {
            let mut found = Vec::new();
            in_order(
                threads,
                0..100_u64,
                || |block| block * block,
                |result| {
                    found.push(result);
                    ControlFlow::Continue(())
                },
            );
            assert_eq!(found, (0..100).map(|block| block * block).collect::<Vec<_>>());
        }
    }

    #[test]
    fn several_threads_work_at_once() {
        let (together, ids) = (Barrier::new(3), Mutex::new(BTreeSet::new()));
        let worker = || {
            |_| {
                together.wait();
                ids.lock().insert(format!("{:?}", thread::current().id()));
            }
        };
        in_order(THREADS, 0..6, worker, |()| ControlFlow::Continue(()));
        assert_eq!(ids.lock().len(), 3);
    }

    #[test]
    fn few_blocks_are_made_before_the_first_is_consumed() {
        let (mut consumed, made) = (0, std::cell::Cell::new(0));
        let blocks = (0..).inspect(|_| made.set(made.get() + 1));
        in_order(
            THREADS,
            blocks,
            || |block| block,
            |block: usize| {
                consumed += 1;
                assert!(made.get() <= block + 3 + THREADS.get() * BLOCKS_AHEAD);
                if consumed == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(consumed, 50);
    }

    #[test]
    fn a_panic_of_a_worker_is_one_of_the_caller() {
        let run = || {
            let worker = || |block| assert_ne!(block, 57, "a block that panics");
            in_order(THREADS, 0..100, worker, |()| ControlFlow::Continue(()));
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("a block that panics"));
    }

    #[test]
    fn the_poll_function_of_the_call_is_called_on_its_own_thread() {
        let (own, polled) = (thread::current().id(), Arc::new(Mutex::new(BTreeSet::new())));
        let seen = Arc::clone(&polled);
        let context = QueryContext::polling(Arc::new(SystemClock::new()), 1, move || {
            seen.lock().insert(thread::current().id() == own);
            true
        });
        // Each worker goes on until it sees that the call was cancelled.
        let worker = || {
            |_| {
                while query::checkpoint().is_ok() {
                    thread::yield_now();
                }
            }
        };
        context.run(|| in_order(THREADS, 0..9, worker, |()| ControlFlow::Continue(())));
        assert_eq!(*polled.lock(), BTreeSet::from([true]));
    }
}
