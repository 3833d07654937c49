//! One call into the engine: the interpreter is released while it works, and Ctrl-C reaches it.
//!
//! Python runs the handlers of signals on its main thread only, and only when native code calls
//! `check_signals`. The engine's checkpoints call it every [`POLL_INTERVAL_MS`]; an exception of a
//! handler interrupts the call, which raises it. A write calls it once more before its change
//! becomes visible. After that the write returns its result, since a caller that repeated it would
//! write twice; a Ctrl-C that arrived too late is then raised by the next write, if one follows
//! within [`LATE_NS`], before it changes anything. (ADR 0022)
//!
//! A call on another thread is ended by `interrupt`, with the identifier of its thread.

use std::{cell::RefCell, ffi::CString, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_engine::QueryContext;
use lockstep_host::{Clock, SystemClock};
use pyo3::{exceptions::PyKeyboardInterrupt, prelude::*, sync::PyOnceLock, types::PyType};

use crate::{backend::take_has_written, error::raise, interrupt::ListedCall, progress};

/// How often a call lets Python run the handlers of signals. A shorter call never does.
const POLL_INTERVAL_MS: u32 = 50;

/// How long a Ctrl-C that arrived too late for one write waits for another.
const LATE_NS: u64 = 1_000_000_000;

const LATE: &str =
    "the interrupt arrived after the write was complete: the call returned its result";

thread_local! {
    static THREAD: RefCell<ThreadSignals> = RefCell::new(ThreadSignals::default());
}

/// The signals that arrived during the calls of a thread.
struct ThreadSignals {
    clock: SystemClock,
    /// Whether Python runs handlers on this thread; unknown before the first call.
    is_main: Option<bool>,
    /// What Python calls the thread; 0 before the first call on another thread than the main one.
    identifier: u64,
    /// The exception that a handler raised during a call.
    raised: Option<PyErr>,
    /// When a Ctrl-C arrived too late for a write.
    late_ns: Option<u64>,
}

impl Default for ThreadSignals {
    fn default() -> Self {
        Self {
            clock: SystemClock::new(),
            is_main: None,
            identifier: 0,
            raised: None,
            late_ns: None,
        }
    }
}

/// Runs `work`, which may take long, with the interpreter released. A panic inside becomes an
/// internal error; `text` is the SQL that a diagnostic's position refers to.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    text: Option<&str>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let is_main = is_main_thread(py)?;
    let context = if is_main {
        QueryContext::polling(Arc::new(SystemClock::new()), POLL_INTERVAL_MS, signal_raises)
    } else {
        QueryContext::new()
    };
    let listed = match is_main {
        true => None,
        false => Some(ListedCall::new(thread_identifier(py)?, &context)),
    };
    let _earlier = take_has_written();
    let watched = progress::watched(context.clone());
    let outcome = py.detach(|| watched.run(|| lockstep_cli::guarded(work)));
    // What was changed on a server is changed, too.
    let has_written = take_has_written() || context.has_committed();
    drop(listed);
    let raised = THREAD.with_borrow_mut(|signals| signals.raised.take());
    match outcome {
        Ok(value) if has_written => {
            let raised = raised.map_or_else(|| py.check_signals(), Err);
            raised.or_else(|error| defer(py, error)).map(|()| value)
        }
        Ok(value) => raised.map_or(Ok(value), Err),
        Err(diagnostic) => Err(raised.unwrap_or_else(|| raise(py, &diagnostic, text))),
    }
}

/// Runs `work` as [`detached`] does, where it may write: a Ctrl-C that arrived too late for the
/// previous write interrupts it.
pub(crate) fn writing<T: Send>(
    py: Python<'_>,
    text: Option<&str>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let late = THREAD.with_borrow_mut(|signals| {
        let late_ns = signals.late_ns.take()?;
        (signals.clock.monotonic_ns() - late_ns < LATE_NS).then_some(())
    });
    match late {
        Some(()) => Err(PyKeyboardInterrupt::new_err(())),
        None => detached(py, text, work),
    }
}

/// Runs work of microseconds with the interpreter released. No signal interrupts it.
pub(crate) fn briefly_detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| lockstep_cli::guarded(work)).map_err(|diagnostic| raise(py, &diagnostic, None))
}

/// Runs short work without releasing the interpreter. A panic inside becomes an internal error.
pub(crate) fn attached<T>(py: Python<'_>, work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    lockstep_cli::guarded(work).map_err(|diagnostic| raise(py, &diagnostic, None))
}

/// Whether Python runs signal handlers on this thread; cached for each thread.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    if let Some(is_main) = THREAD.with_borrow(|signals| signals.is_main) {
        return Ok(is_main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    let is_main = main.is(&threading.call_method0("current_thread")?);
    THREAD.with_borrow_mut(|signals| signals.is_main = Some(is_main));
    Ok(is_main)
}

/// Returns what Python calls this thread; cached for each thread.
fn thread_identifier(py: Python<'_>) -> PyResult<u64> {
    let known = THREAD.with_borrow(|signals| signals.identifier);
    if known != 0 {
        return Ok(known);
    }
    let identifier = py.import("threading")?.call_method0("get_ident")?.extract()?;
    THREAD.with_borrow_mut(|signals| signals.identifier = identifier);
    Ok(identifier)
}

/// Runs the handlers of signals that arrived; whether one raised an exception.
fn signal_raises() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            THREAD.with_borrow_mut(|signals| signals.raised = Some(error));
            true
        }
    })
}

/// Defers a Ctrl-C that arrived too late, with a warning. An exception of another handler is raised
/// at once.
fn defer(py: Python<'_>, error: PyErr) -> PyResult<()> {
    static WARNING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if !error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Err(error);
    }
    THREAD.with_borrow_mut(|signals| {
        signals.late_ns = Some(signals.clock.monotonic_ns());
    });
    let class = WARNING.import(py, "lockstep._error", "LockstepWarning")?;
    let text = CString::new(LATE).expect("it has no zero byte");
    // A program that turns warnings into errors must not lose the result either.
    if let Err(error) = PyErr::warn(py, class, &text, 1) {
        error.write_unraisable(py, None);
    }
    Ok(())
}
