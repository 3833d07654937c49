//! One call into the engine: the interpreter is released while it works, and Ctrl-C reaches it.
//!
//! Python runs the handlers of signals on its main thread only, and only when somebody lets it. So
//! the engine's checkpoints let it every [`POLL_INTERVAL_MS`]; what a handler raises interrupts the
//! call and is raised by it. A write lets it once more before its change becomes visible. When that
//! has happened it gives its result instead, since who would try again would do it twice; the Ctrl-C
//! is then raised by the next write, if one follows at once, before it changes anything. (ADR 0022)

use std::{cell::RefCell, ffi::CString, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_engine::QueryContext;
use lockstep_host::{Clock, SystemClock};
use pyo3::{exceptions::PyKeyboardInterrupt, prelude::*, sync::PyOnceLock, types::PyType};

use crate::error::raise;

/// How often a call lets Python run the handlers of signals; what is over sooner never does.
const POLL_INTERVAL_MS: u32 = 50;

/// How long a Ctrl-C that came too late for one write waits for another.
const LATE_NS: u64 = 1_000_000_000;

const LATE: &str = "the interrupt came when the write was done: the call returned its result";

thread_local! {
    static THREAD: RefCell<Signals> = RefCell::new(Signals::default());
}

/// What came of signals during the calls of a thread.
struct Signals {
    clock: SystemClock,
    /// Whether Python runs handlers on this thread; unknown before the first call.
    is_main: Option<bool>,
    /// What a handler raised while a call worked.
    raised: Option<PyErr>,
    /// When a Ctrl-C came too late for a write.
    late_ns: Option<u64>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { clock: SystemClock::new(), is_main: None, raised: None, late_ns: None }
    }
}

/// Runs `work`, which may last, with the interpreter released. A panic inside becomes an internal
/// error; `text` is the SQL that a diagnostic's position refers to.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    text: Option<&str>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let context = if is_main_thread(py)? {
        QueryContext::polling(Arc::new(SystemClock::new()), POLL_INTERVAL_MS, signal_raises)
    } else {
        QueryContext::new()
    };
    let outcome = py.detach(|| context.run(|| lockstep_cli::guarded(work)));
    let raised = THREAD.with_borrow_mut(|signals| signals.raised.take());
    match outcome {
        Ok(value) if context.has_committed() => {
            let raised = raised.map_or_else(|| py.check_signals(), Err);
            raised.or_else(|error| put_off(py, error)).map(|()| value)
        }
        Ok(value) => raised.map_or(Ok(value), Err),
        Err(diagnostic) => Err(raised.unwrap_or_else(|| raise(py, &diagnostic, text))),
    }
}

/// The same for what may write: a Ctrl-C that came too late for the write before it ends it.
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

/// The same for work of microseconds: no signal reaches it.
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

/// Whether the handler of a signal that came raises something.
fn signal_raises() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            THREAD.with_borrow_mut(|signals| signals.raised = Some(error));
            true
        }
    })
}

/// Lets a Ctrl-C that came too late pass, and says so. What other handlers raise is raised at once.
fn put_off(py: Python<'_>, error: PyErr) -> PyResult<()> {
    static WARNING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if !error.is_instance_of::<PyKeyboardInterrupt>(py) {
        return Err(error);
    }
    THREAD.with_borrow_mut(|signals| {
        signals.late_ns = Some(signals.clock.monotonic_ns());
    });
    let class = WARNING.import(py, "lockstep._error", "LockstepWarning")?;
    let text = CString::new(LATE).expect("it has no zero byte");
    // A program that makes errors of warnings must not lose the result either.
    if let Err(error) = PyErr::warn(py, class, &text, 1) {
        error.write_unraisable(py, None);
    }
    Ok(())
}
