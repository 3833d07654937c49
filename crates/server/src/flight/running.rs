//! The calls that run, by their ids, so that another call of the same user can cancel them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use lockstep_engine::QueryContext;
use lockstep_host::sync::Mutex;

/// The calls of a user with an id.
type CallKey = (String, String);

/// The contexts of calls by their ids, each with its number: an id may be given twice.
type CallTable = Mutex<HashMap<CallKey, Vec<(u64, QueryContext)>>>;

/// The calls that run.
#[derive(Debug, Default)]
pub(crate) struct RunningFlightCalls {
    by_id: Arc<CallTable>,
    count: AtomicU64,
}

impl RunningFlightCalls {
    /// Adds a call until the result is dropped, which cancels it if it still runs.
    pub(crate) fn begin(&self, user: &str, id: &str, context: &QueryContext) -> RunningFlightCall {
        let key = (user.to_owned(), id.to_owned());
        // Relaxed: the number itself is all that is shared.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.by_id.lock().entry(key.clone()).or_default().push((number, context.clone()));
        RunningFlightCall { by_id: Arc::clone(&self.by_id), key, number, context: context.clone() }
    }

    /// Cancels the calls of a user that have an id. Returns whether there was one.
    pub(crate) fn cancel(&self, user: &str, id: &str) -> bool {
        let calls = self.by_id.lock();
        let found = calls.get(&(user.to_owned(), id.to_owned()));
        found.into_iter().flatten().for_each(|(_, context)| context.cancel());
        found.is_some()
    }
}

/// A call that runs.
#[derive(Debug)]
pub(crate) struct RunningFlightCall {
    by_id: Arc<CallTable>,
    key: CallKey,
    number: u64,
    context: QueryContext,
}

impl Drop for RunningFlightCall {
    fn drop(&mut self) {
        // Where the caller is gone, what runs for it ends.
        self.context.cancel();
        let mut calls = self.by_id.lock();
        if let Some(found) = calls.get_mut(&self.key) {
            found.retain(|(number, _)| *number != self.number);
            if found.is_empty() {
                calls.remove(&self.key);
            }
        }
    }
}
