//! The context of one call into the engine: its cancellation, its deadline, its memory limit, and the
//! files that it may open.
//!
//! A front end makes a [`QueryContext`] and runs the call under it; every layer below checks at its
//! [`checkpoint`]s whether the call was interrupted. The context belongs to the thread, so that nothing
//! between the front end and the innermost loop has to pass it on; work on other threads gets a clone.
//! Knows nothing of what is run. (ADR 0022)
//!
//! # Life of a write
//!
//! A write that is interrupted has changed nothing. It calls [`commit`] before it makes its change
//! visible: from then on no checkpoint fails, and the call returns what it wrote.
//!
//! # Cost
//!
//! Without a context a checkpoint reads a thread-local. With one it reads flags, and the clock where
//! there is a deadline or a poll function.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use crate::{
    Clock, FileAccess,
    progress::{CallProgress, CallStep},
    thread::is_background,
};

/// The reason why a call was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// It was cancelled.
    Cancelled,
    /// It ran longer than it may.
    TimedOut {
        /// How long it may run.
        limit_ms: u64,
    },
}

impl Interrupt {
    /// Returns the limit that was exceeded; `None` when the call was cancelled.
    pub fn limit_ms(self) -> Option<u64> {
        match self {
            Self::Cancelled => None,
            Self::TimedOut { limit_ms } => Some(limit_ms),
        }
    }
}

/// The limits of a call; `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryLimits {
    /// How long it may run.
    pub timeout_ms: Option<u64>,
    /// How many bytes of memory it may hold while it runs.
    pub memory_bytes: Option<u64>,
}

impl QueryLimits {
    /// Returns whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The context of one call. A clone is the same context.
#[derive(Clone)]
pub struct QueryContext {
    inner: Arc<ContextState>,
}

/// The state that the clones of a context share.
struct ContextState {
    /// The bits below.
    state: AtomicU8,
    /// An interrupt of the parent interrupts this context, too.
    parent: Option<QueryContext>,
    /// Whether its changes count as the parent's.
    is_part: bool,
    deadline: Option<Deadline>,
    memory_bytes: Option<u64>,
    poll: Option<Poll>,
    /// Who looks how far the call is.
    progress: Option<Arc<CallProgress>>,
    /// The files that it may open; `None`: those of the parent.
    files: Option<FileAccess>,
}

/// The call was cancelled.
const CANCELLED: u8 = 1;
/// A change is being made visible: nothing interrupts it.
const COMMITTING: u8 = 2;
/// A change was made visible.
const COMMITTED: u8 = 4;

/// The time at which a call is interrupted.
struct Deadline {
    clock: Arc<dyn Clock>,
    at_ns: u64,
    limit_ms: u64,
}

/// A function that is called now and then to check whether the call should end.
struct Poll {
    clock: Arc<dyn Clock>,
    interval_ns: u64,
    /// When to call it next; 0 before the first checkpoint.
    next_ns: AtomicU64,
    should_end: Box<dyn Fn() -> bool + Send + Sync>,
}

thread_local! {
    static CURRENT: RefCell<Option<QueryContext>> = const { RefCell::new(None) };
}

impl QueryContext {
    /// Makes a context without limits.
    pub fn new() -> Self {
        Self::with(None, None, None, None)
    }

    /// Makes a context that calls `should_end` at checkpoints of the call's own thread, every
    /// `interval_ms` at most and not before it has lasted so long; `true` cancels it.
    pub fn polling(
        clock: Arc<dyn Clock>,
        interval_ms: u32,
        should_end: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let poll = Poll {
            clock,
            interval_ns: u64::from(interval_ms) * 1_000_000,
            next_ns: AtomicU64::new(0),
            should_end: Box::new(should_end),
        };
        Self::with(None, None, None, Some(poll))
    }

    /// Makes a context with further limits within the thread's current one, if there is one. Its time
    /// begins now.
    pub fn limited(clock: &Arc<dyn Clock>, limits: QueryLimits) -> Self {
        let deadline = limits.timeout_ms.map(|limit_ms| Deadline {
            clock: Arc::clone(clock),
            at_ns: clock.monotonic_ns().saturating_add(limit_ms.saturating_mul(1_000_000)),
            limit_ms,
        });
        Self::with(current(), deadline, limits.memory_bytes, None)
    }

    /// Makes a context that can be cancelled separately within the thread's current one.
    pub fn nested() -> Self {
        Self::with(current(), None, None, None)
    }

    /// Makes a nested context whose changes are discarded, so that they do not count as the call's.
    pub fn scratch() -> Self {
        let inner = ContextState { is_part: false, ..ContextState::new(current()) };
        Self { inner: Arc::new(inner) }
    }

    /// Returns this context with somebody who looks how far the call is.
    #[must_use]
    pub fn watched(self, progress: Arc<CallProgress>) -> Self {
        let inner = ContextState { progress: Some(progress), ..ContextState::new(Some(self)) };
        Self { inner: Arc::new(inner) }
    }

    /// Makes a context within the thread's current one that opens these files only.
    pub fn opening(files: FileAccess) -> Self {
        let inner = ContextState { files: Some(files), ..ContextState::new(current()) };
        Self { inner: Arc::new(inner) }
    }

    /// Makes a context of these parts.
    fn with(
        parent: Option<Self>,
        deadline: Option<Deadline>,
        memory_bytes: Option<u64>,
        poll: Option<Poll>,
    ) -> Self {
        let inner = ContextState { deadline, memory_bytes, poll, ..ContextState::new(parent) };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a call: while it lasts, this is the context of the thread.
    pub fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self.clone()));
        let _restore = RestoreOnDrop(before);
        call()
    }

    /// Works for a call that another thread runs: while it lasts, this is the context of the thread, which only
    /// checks whether the call was cancelled.
    pub fn run_in_background<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restore = crate::thread::BackgroundScope::begin();
        self.run(work)
    }

    /// Cancels the call. May be called from any thread.
    pub fn cancel(&self) {
        // Relaxed: a flag that publishes nothing else.
        self.inner.state.fetch_or(CANCELLED, Ordering::Relaxed);
    }

    /// Returns whether the call has made a change visible.
    pub fn has_committed(&self) -> bool {
        // Relaxed: called by the call's own thread.
        self.inner.state.load(Ordering::Relaxed) & COMMITTED != 0
    }

    /// Returns the bytes of memory that the call may hold.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.chain().filter_map(|context| context.inner.memory_bytes).min()
    }

    /// Notes that `done` of `total` parts of a step are done, for whoever looks.
    pub fn report(&self, step: CallStep, done: u64, total: u64) {
        self.watchers().for_each(|progress| progress.set(step, done, total));
    }

    fn watchers(&self) -> impl Iterator<Item = &CallProgress> {
        self.chain().filter_map(|context| context.inner.progress.as_deref())
    }

    /// Returns the files that the call may open.
    pub fn file_access(&self) -> FileAccess {
        self.chain().find_map(|context| context.inner.files.clone()).unwrap_or_default()
    }

    /// Fails when the call was interrupted. For other threads than the call's own.
    pub fn check(&self) -> Result<(), Interrupt> {
        for context in self.chain() {
            // Relaxed: a flag that publishes nothing else.
            let state = context.inner.state.load(Ordering::Relaxed);
            if state & COMMITTING != 0 {
                return Ok(());
            }
            if state & CANCELLED != 0 {
                return Err(Interrupt::Cancelled);
            }
            if let Some(Deadline { clock, at_ns, limit_ms }) = &context.inner.deadline
                && clock.monotonic_ns() >= *at_ns
            {
                return Err(Interrupt::TimedOut { limit_ms: *limit_ms });
            }
        }
        Ok(())
    }

    /// Fails when the call was interrupted, after calling the poll functions. For the call's own thread.
    pub fn poll(&self) -> Result<(), Interrupt> {
        for context in self.chain() {
            if let Some(poll) = &context.inner.poll
                && poll.is_due()
                && (poll.should_end)()
            {
                context.cancel();
            }
        }
        self.check()
    }

    /// Returns this context, then its parent, and so on.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |context| context.inner.parent.as_ref())
    }
}

impl ContextState {
    /// Makes the state of a context without limits.
    fn new(parent: Option<QueryContext>) -> Self {
        let state = AtomicU8::new(0);
        Self {
            state,
            parent,
            is_part: true,
            deadline: None,
            memory_bytes: None,
            poll: None,
            progress: None,
            files: None,
        }
    }
}

impl Poll {
    /// Returns whether the interval has passed, and starts the next one.
    fn is_due(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        // Relaxed: only the call's own thread polls.
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        if next_ns != 0 && now_ns < next_ns {
            return false;
        }
        // Relaxed: as above.
        self.next_ns.store(now_ns.saturating_add(self.interval_ns), Ordering::Relaxed);
        next_ns != 0
    }
}

impl Default for QueryContext {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QueryContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.check();
        f.debug_struct("QueryContext").field("check", &outcome).finish_non_exhaustive()
    }
}

/// Returns the context of the call that this thread runs.
pub fn current() -> Option<QueryContext> {
    CURRENT.with_borrow(Option::clone)
}

/// Returns the files that the thread's call may open; every file without a call.
pub fn file_access() -> FileAccess {
    CURRENT
        .with_borrow(|current| current.as_ref().map(QueryContext::file_access))
        .unwrap_or_default()
}

/// Notes that `done` of `total` parts of a step of this thread's call are done, for whoever looks. To be
/// called every few thousand rows.
pub fn report(step: CallStep, done: u64, total: u64) {
    CURRENT.with_borrow(|current| {
        if let Some(context) = current {
            context.report(step, done, total);
        }
    });
}

/// Notes that this thread's call has loaded, written or passed on so many more rows.
pub fn report_rows(count: u64) {
    tell_watchers(|progress| progress.add_rows(count));
}

/// Notes that this thread's call has found a page of a table in the page cache.
pub fn report_cached_page() {
    tell_watchers(CallProgress::add_cached_page);
}

/// Notes that this thread's call has read a block of a table's file.
pub fn report_block(bytes: u64) {
    debug_assert!(u32::try_from(bytes).is_ok(), "the length of a block has 32 bits");
    tell_watchers(|progress| progress.add_block(bytes));
}

fn tell_watchers(tell: impl Fn(&CallProgress)) {
    CURRENT.with_borrow(|current| {
        if let Some(context) = current {
            context.watchers().for_each(tell);
        }
    });
}

/// Fails when the call that this thread runs was interrupted. To be called every few microseconds of
/// work, by whatever may last long.
#[inline]
pub fn checkpoint() -> Result<(), Interrupt> {
    // A poll function may run another call on this thread, so the context is not borrowed meanwhile.
    match CURRENT.with_borrow(Option::clone) {
        None => Ok(()),
        Some(context) if is_background() => context.check(),
        Some(context) => context.poll(),
    }
}

/// Begins to make a change visible, unless the call was interrupted: the poll functions are called once
/// more. Until the result is dropped no checkpoint of the call fails.
pub fn commit() -> Result<Commit, Interrupt> {
    let Some(context) = current() else { return Ok(Commit { begun: Vec::new() }) };
    // The last chance to interrupt the call.
    for polled in context.chain() {
        if let Some(poll) = &polled.inner.poll
            && (poll.should_end)()
        {
            polled.cancel();
        }
    }
    context.check()?;
    let part = context.chain().take_while(|context| context.inner.is_part).count();
    let begins = |context: &&QueryContext| {
        // Relaxed: read by the call's own thread, and by others that may be late.
        let before = context.inner.state.fetch_or(COMMITTING | COMMITTED, Ordering::Relaxed);
        before & COMMITTING == 0
    };
    let begun = context.chain().take(part + 1).filter(begins).cloned().collect();
    Ok(Commit { begun })
}

/// A change that is being made visible; see [`commit`].
#[derive(Debug)]
#[must_use]
pub struct Commit {
    begun: Vec<QueryContext>,
}

impl Drop for Commit {
    fn drop(&mut self) {
        for context in &self.begun {
            // Relaxed: as in `commit`.
            context.inner.state.fetch_and(!COMMITTING, Ordering::Relaxed);
        }
    }
}

/// Restores a thread's context when it is dropped.
struct RestoreOnDrop(Option<QueryContext>);

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        drop(CURRENT.replace(self.0.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::{Interrupt, QueryContext, QueryLimits, checkpoint, commit, current};
    use crate::{Clock, ManualClock};

    fn limited(clock: &Arc<dyn Clock>, timeout_ms: u64) -> QueryContext {
        let limits = QueryLimits { timeout_ms: Some(timeout_ms), memory_bytes: Some(7) };
        QueryContext::limited(clock, limits)
    }

    #[test]
    fn a_thread_has_a_context_while_a_call_runs() {
        assert!(current().is_none());
        assert_eq!(checkpoint(), Ok(()));
        let context = QueryContext::new();
        context.run(|| {
            assert_eq!(checkpoint(), Ok(()));
            context.cancel();
            assert_eq!(checkpoint(), Err(Interrupt::Cancelled));
            QueryContext::nested().run(|| assert_eq!(checkpoint(), Err(Interrupt::Cancelled)));
        });
        assert_eq!(checkpoint(), Ok(()));
    }

    #[test]
    fn a_deadline_is_kept_by_the_clock_and_by_what_is_nested() {
        let manual = Arc::new(ManualClock::new(0));
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as Arc<dyn Clock>;
        limited(&clock, 10).run(|| {
            let inner = limited(&clock, 1_000);
            inner.run(|| {
                assert_eq!(checkpoint(), Ok(()));
                assert_eq!(inner.memory_bytes(), Some(7));
                manual.advance_ms(10);
                assert_eq!(checkpoint(), Err(Interrupt::TimedOut { limit_ms: 10 }));
                assert_eq!(Interrupt::TimedOut { limit_ms: 10 }.limit_ms(), Some(10));
            });
        });
    }

    #[test]
    fn a_nested_call_is_cancelled_by_itself() {
        QueryContext::new().run(|| {
            let nested = QueryContext::nested();
            nested.cancel();
            assert_eq!(nested.check(), Err(Interrupt::Cancelled));
            assert_eq!(checkpoint(), Ok(()));
        });
    }

    #[test]
    fn a_commit_is_not_interrupted_and_what_follows_it_is() {
        let context = QueryContext::new();
        context.run(|| {
            QueryContext::nested().run(|| {
                let outer = commit().unwrap();
                context.cancel();
                drop(commit().unwrap());
                assert_eq!(checkpoint(), Ok(()));
                assert_eq!(context.check(), Ok(()));
                drop(outer);
            });
            assert_eq!(checkpoint(), Err(Interrupt::Cancelled));
            assert_eq!(commit().unwrap_err(), Interrupt::Cancelled);
        });
        assert!(context.has_committed());
        let context = QueryContext::new();
        context.run(|| QueryContext::scratch().run(|| drop(commit().unwrap())));
        assert!(!context.has_committed());
    }

    #[test]
    fn the_poll_function_is_called_now_and_then() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let manual = Arc::new(ManualClock::new(0));
        manual.advance_ms(1);
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as Arc<dyn Clock>;
        let should_end = || CALLS.fetch_add(1, Ordering::Relaxed) == 1;
        QueryContext::polling(clock, 50, should_end).run(|| {
            let check = |advanced_ms, expected_calls, expected| {
                manual.advance_ms(advanced_ms);
                assert_eq!(checkpoint(), expected);
                assert_eq!(CALLS.load(Ordering::Relaxed), expected_calls);
            };
            check(0, 0, Ok(()));
            check(49, 0, Ok(()));
            check(1, 1, Ok(()));
            check(0, 1, Ok(()));
            check(50, 2, Err(Interrupt::Cancelled));
        });
    }
}
