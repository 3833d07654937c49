//! How far a call is, for the program that makes it.
//!
//! A [`PyProgress`] is entered before a call of the same thread and left after it; any thread reads it
//! meanwhile, which calls nothing of the program. A callback of the program is called by the work
//! itself: an exception that it raises stops the work, and the call raises it.

use std::{cell::RefCell, sync::Arc};

use lockstep_diagnostic::Result;
use lockstep_engine::ProgressCallback;
use lockstep_host::{CallProgress, QueryContext, query, sync::Mutex};
use pyo3::prelude::*;

use crate::call::detached;

thread_local! {
    /// The innermost is the last.
    static ENTERED: RefCell<Vec<Arc<CallProgress>>> = const { RefCell::new(Vec::new()) };
}

/// The current step of a call, and its progress.
#[pyclass(frozen, name = "Progress", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PyProgress {
    progress: Arc<CallProgress>,
}

#[pymethods]
impl PyProgress {
    #[new]
    fn new() -> Self {
        Self { progress: Arc::default() }
    }

    /// Makes the calls of this thread report to this object until `leave`.
    fn enter(&self) {
        ENTERED.with_borrow_mut(|entered| entered.push(Arc::clone(&self.progress)));
    }

    /// Ends the reporting started by the last `enter`.
    #[staticmethod]
    fn leave() {
        ENTERED.with_borrow_mut(Vec::pop);
    }

    /// Returns the current step and the fraction done, from 0 to 1; `None` if unknown.
    fn get(&self) -> Option<(&'static str, f64)> {
        self.progress.get().map(|(step, fraction)| (step.text(), fraction))
    }
}

/// Returns the context of a call of this thread, for whoever looks.
pub(crate) fn watched(context: QueryContext) -> QueryContext {
    match ENTERED.with_borrow(|entered| entered.last().cloned()) {
        Some(progress) => context.watched(progress),
        None => context,
    }
}

/// Runs `work` as [`detached`] does, with a function of the program that is called with the fraction
/// that is done. Where it raises, the work is cancelled and the call raises that.
pub(crate) fn reporting<T: Send>(
    py: Python<'_>,
    text: Option<&str>,
    callback: Option<Py<PyAny>>,
    work: impl FnOnce(Option<ProgressCallback>) -> Result<T> + Send,
) -> PyResult<T> {
    let Some(callback) = callback else { return detached(py, text, || work(None)) };
    let calls = Arc::new(Mutex::new(CallbackState::default()));
    let outcome = detached(py, text, || {
        let (context, calls) = (query::current(), Arc::clone(&calls));
        work(Some(Arc::new(move |fraction| {
            // Held while the program's function runs: threads of the work call it one after the other, and not
            // again after an exception.
            let mut calls = calls.lock();
            if calls.is_over {
                return;
            }
            let called = Python::attach(|py| callback.call1(py, (fraction,)).map(drop));
            if let Err(error) = called {
                *calls = CallbackState { is_over: true, raised: Some(error) };
                if let Some(context) = &context {
                    context.cancel();
                }
            }
        })))
    });
    // A thread of the work may still be in the function, for which it needs what this one has.
    let raised = py.detach(|| {
        let mut calls = calls.lock();
        calls.is_over = true;
        calls.raised.take()
    });
    raised.map_or(outcome, Err)
}

/// The calls of a function of the program.
#[derive(Default)]
struct CallbackState {
    /// Whether it is not called any more: the work has ended, or it raised.
    is_over: bool,
    raised: Option<PyErr>,
}
