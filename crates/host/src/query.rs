//! The context of one call into the engine: who may cancel it, until when it may run, and how much
//! memory it may take.
//!
//! A front end makes a [`QueryContext`] and runs the call under it; every layer below asks at its
//! [`checkpoint`]s whether to go on. The context is the thread's, so that nothing between the front
//! end and the innermost loop has to pass it on; work on other threads is given a clone. Knows
//! nothing of what is run. (ADR 0022)
//!
//! # Life of a write
//!
//! A write that is interrupted has changed nothing. What makes its change visible calls [`commit`]
//! first: from then on no checkpoint fails, and the call returns what it wrote.
//!
//! # Cost
//!
//! Without a context a checkpoint reads a thread-local. With one it reads flags, and the clock where
//! there is a deadline or somebody to be asked.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use crate::{Clock, thread::is_background};

/// Why a call does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Somebody cancelled it.
    Cancelled,
    /// It ran longer than it may.
    TimedOut {
        /// How long it may run.
        limit_ms: u64,
    },
}

impl Interrupt {
    /// The limit that was exceeded; `None` when somebody cancelled the call.
    pub fn limit_ms(self) -> Option<u64> {
        match self {
            Self::Cancelled => None,
            Self::TimedOut { limit_ms } => Some(limit_ms),
        }
    }
}

/// What a call may use; `None`: as much as it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryLimits {
    /// How long it may run.
    pub timeout_ms: Option<u64>,
    /// How many bytes of memory it may hold while it runs.
    pub memory_bytes: Option<u64>,
}

impl QueryLimits {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The context of one call. A clone is the same context.
#[derive(Clone)]
pub struct QueryContext {
    inner: Arc<Inner>,
}

struct Inner {
    /// The bits below.
    state: AtomicU8,
    /// What interrupts it interrupts this one, too.
    parent: Option<QueryContext>,
    /// Whether its changes are the parent's.
    is_part: bool,
    deadline: Option<Deadline>,
    memory_bytes: Option<u64>,
    poll: Option<Poll>,
}

/// Somebody wants the call to end.
const CANCELLED: u8 = 1;
/// A change is being made visible: nothing interrupts it.
const COMMITTING: u8 = 2;
/// A change was made visible.
const COMMITTED: u8 = 4;

struct Deadline {
    clock: Arc<dyn Clock>,
    at_ns: u64,
    limit_ms: u64,
}

/// Somebody who is asked now and then whether the call should end.
struct Poll {
    clock: Arc<dyn Clock>,
    interval_ns: u64,
    /// When to ask next; 0 before the first checkpoint.
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

    /// Makes a context that asks `should_end` at checkpoints of the call's own thread, every
    /// `interval_ms` at most and not before it has lasted so long; what says yes cancels it.
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

    /// Makes a context with limits of its own within the thread's current one, if there is one. Its
    /// time begins now.
    pub fn limited(clock: &Arc<dyn Clock>, limits: QueryLimits) -> Self {
        let deadline = limits.timeout_ms.map(|limit_ms| Deadline {
            clock: Arc::clone(clock),
            at_ns: clock.monotonic_ns().saturating_add(limit_ms.saturating_mul(1_000_000)),
            limit_ms,
        });
        Self::with(current(), deadline, limits.memory_bytes, None)
    }

    /// Makes a context that can be cancelled by itself within the thread's current one.
    pub fn nested() -> Self {
        Self::with(current(), None, None, None)
    }

    /// Makes a nested context whose changes nobody sees, so that they are none of the call.
    pub fn scratch() -> Self {
        let inner = Inner { is_part: false, ..Inner::new(current()) };
        Self { inner: Arc::new(inner) }
    }

    fn with(
        parent: Option<Self>,
        deadline: Option<Deadline>,
        memory_bytes: Option<u64>,
        poll: Option<Poll>,
    ) -> Self {
        let inner = Inner { deadline, memory_bytes, poll, ..Inner::new(parent) };
        Self { inner: Arc::new(inner) }
    }

    /// Runs a call: while it lasts, this is the context of the thread.
    pub fn run<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(Some(self.clone()));
        let _restoring = Restoring(before);
        call()
    }

    /// Wants the call to end. May be called from any thread.
    pub fn cancel(&self) {
        // Relaxed: a flag that stands for nothing else.
        self.inner.state.fetch_or(CANCELLED, Ordering::Relaxed);
    }

    /// Whether the call has made a change visible.
    pub fn has_committed(&self) -> bool {
        // Relaxed: asked by the call's own thread.
        self.inner.state.load(Ordering::Relaxed) & COMMITTED != 0
    }

    /// The bytes of memory that the call may hold.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.chain().filter_map(|context| context.inner.memory_bytes).min()
    }

    /// Whether the call should go on. For other threads than the call's own.
    pub fn check(&self) -> Result<(), Interrupt> {
        for context in self.chain() {
            // Relaxed: a flag that stands for nothing else.
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

    /// The same on the call's own thread, where those are asked who may want it to end.
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

    /// This context, then the one around it, and so on.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |context| context.inner.parent.as_ref())
    }
}

impl Inner {
    fn new(parent: Option<QueryContext>) -> Self {
        let state = AtomicU8::new(0);
        Self { state, parent, is_part: true, deadline: None, memory_bytes: None, poll: None }
    }
}

impl Poll {
    fn is_due(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        // Relaxed: only the call's own thread asks.
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

/// The context of the call that this thread runs.
pub fn current() -> Option<QueryContext> {
    CURRENT.with_borrow(Option::clone)
}

/// Asks whether the call that this thread runs should go on. To be called every few microseconds
/// of work, by whatever may last long.
#[inline]
pub fn checkpoint() -> Result<(), Interrupt> {
    // Who is asked may run another call on this thread, so the context is not borrowed meanwhile.
    match CURRENT.with_borrow(Option::clone) {
        None => Ok(()),
        Some(context) if is_background() => context.check(),
        Some(context) => context.poll(),
    }
}

/// Begins to make a change visible, unless the call was interrupted: who may want it to end is asked
/// once more. Until the result is dropped no
/// checkpoint of the call fails.
pub fn commit() -> Result<Commit, Interrupt> {
    let Some(context) = current() else { return Ok(Commit { begun: Vec::new() }) };
    // The last chance to be told.
    for asked in context.chain() {
        if let Some(poll) = &asked.inner.poll
            && (poll.should_end)()
        {
            asked.cancel();
        }
    }
    context.check()?;
    let part = context.chain().take_while(|context| context.inner.is_part).count();
    let begins = |context: &&QueryContext| {
        // Relaxed: read by the call's own thread, and by who may be late by a moment.
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

/// Puts a thread's context back.
struct Restoring(Option<QueryContext>);

impl Drop for Restoring {
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
    fn who_may_end_a_call_is_asked_now_and_then() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let manual = Arc::new(ManualClock::new(0));
        manual.advance_ms(1);
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as Arc<dyn Clock>;
        let should_end = || ASKED.fetch_add(1, Ordering::Relaxed) == 1;
        QueryContext::polling(clock, 50, should_end).run(|| {
            let check = |advanced_ms, expected_asked, expected| {
                manual.advance_ms(advanced_ms);
                assert_eq!(checkpoint(), expected);
                assert_eq!(ASKED.load(Ordering::Relaxed), expected_asked);
            };
            check(0, 0, Ok(()));
            check(49, 0, Ok(()));
            check(1, 1, Ok(()));
            check(0, 1, Ok(()));
            check(50, 2, Err(Interrupt::Cancelled));
        });
    }
}
