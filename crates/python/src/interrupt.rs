//! Interrupts of calls that run on other threads than Python's main one.
//!
//! Signals reach the main thread only. A program that runs calls on threads of its own, such as an
//! asyncio program, ends one with `interrupt`, which takes the identifier of the thread. `call`
//! lists here what runs; `python/lockstep/_async.py` interrupts it. (ADR 0022)
//!
//! **Cost**: a lock and an entry of a map for each call on such a thread that may last.

use std::collections::BTreeMap;

use lockstep_engine::QueryContext;
use lockstep_host::sync::Mutex;
use pyo3::prelude::*;

/// The calls that run, by the identifier of their thread.
static RUNNING: Mutex<BTreeMap<u64, QueryContext>> = Mutex::new(BTreeMap::new());

/// Cancels the call running on a thread; returns whether one was running. A change that is being made
/// visible is completed. `thread` is the thread's identifier from `threading.get_ident`.
#[pyfunction]
pub(crate) fn interrupt(thread: u64) -> bool {
    let running = RUNNING.lock();
    let found = running.get(&thread);
    if let Some(context) = found {
        context.cancel();
    }
    found.is_some()
}

/// Lists the call of a thread until it is dropped.
pub(crate) struct ListedCall {
    thread: u64,
    /// The call within which this one began, if there is one.
    outer: Option<QueryContext>,
}

impl ListedCall {
    /// Lists a call of the thread, which `interrupt` cancels from now on.
    pub(crate) fn new(thread: u64, context: &QueryContext) -> Self {
        assert_ne!(thread, 0, "Python identifies a thread that runs by a number");
        let outer = RUNNING.lock().insert(thread, context.clone());
        Self { thread, outer }
    }
}

impl Drop for ListedCall {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        match self.outer.take() {
            Some(outer) => running.insert(self.thread, outer),
            None => running.remove(&self.thread),
        };
    }
}
