//! Cancelling what a connection runs: a request on another connection names its number and its key.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use lockstep_host::{QueryContext, sync::Mutex};

/// What a client sends to cancel, and what it was told when its session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CancelKey {
    pub(crate) process: i32,
    pub(crate) secret: i32,
}

/// The call that a connection runs, and those that it is a part of: of a COPY the whole, and the append of
/// some of its rows.
#[derive(Debug, Default)]
pub(crate) struct CancellableCall(Mutex<Vec<QueryContext>>);

impl CancellableCall {
    /// Notes the call until the result is dropped, which cancels it unless it has ended.
    pub(crate) fn begin(self: &Arc<Self>, context: &QueryContext) -> CallGuard {
        self.0.lock().push(context.clone());
        CallGuard { running: Arc::clone(self), context: context.clone() }
    }

    fn cancel(&self) {
        self.0.lock().iter().for_each(QueryContext::cancel);
    }
}

/// A call that can be cancelled.
#[derive(Debug)]
pub(crate) struct CallGuard {
    running: Arc<CancellableCall>,
    context: QueryContext,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let ended = self.running.0.lock().pop();
        debug_assert!(ended.is_some(), "a call ends before the one that it is a part of");
        // Where the call has ended, nothing is cancelled.
        self.context.cancel();
    }
}

/// The keys of all connections.
#[derive(Debug, Default)]
pub(crate) struct CancelKeys {
    by_process: Mutex<HashMap<i32, CancelEntry>>,
}

#[derive(Debug)]
struct CancelEntry {
    secret: i32,
    running: Weak<CancellableCall>,
}

impl CancelKeys {
    /// Makes the key of a connection, whose number is that of its session where nobody has it.
    pub(crate) fn register(&self, session: u64, running: &Arc<CancellableCall>) -> CancelKey {
        let [a, b, c, d, ..] = lockstep_host::random::id();
        let secret = i32::from_be_bytes([a, b, c, d]);
        let mut process = i32::try_from(session & 0x7fff_ffff).unwrap_or(1);
        let mut by_process = self.by_process.lock();
        while by_process.contains_key(&process) {
            process = process.checked_add(1).unwrap_or(1);
        }
        by_process.insert(process, CancelEntry { secret, running: Arc::downgrade(running) });
        CancelKey { process, secret }
    }

    /// Forgets the key of a connection that has ended.
    pub(crate) fn remove(&self, key: CancelKey) {
        self.by_process.lock().remove(&key.process);
    }

    /// Cancels what a connection runs, if the key is right. Says nothing otherwise.
    pub(crate) fn cancel(&self, key: CancelKey) {
        let found = {
            let by_process = self.by_process.lock();
            let entry = by_process.get(&key.process).filter(|entry| entry.secret == key.secret);
            entry.and_then(|entry| entry.running.upgrade())
        };
        if let Some(running) = found {
            running.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_host::QueryContext;

    use super::{CancelKey, CancelKeys, CancellableCall};

    #[test]
    fn the_key_has_to_be_right() {
        let (keys, running) = (CancelKeys::default(), Arc::<CancellableCall>::default());
        let key = keys.register(7, &running);
        assert_eq!(key.process, 7);
        assert_ne!(keys.register(7, &running).process, 7);
        let context = QueryContext::new();
        let guard = running.begin(&context);
        keys.cancel(CancelKey { secret: key.secret.wrapping_add(1), ..key });
        assert!(context.check().is_ok());
        keys.cancel(key);
        assert!(context.check().is_err());
        drop(guard);
        keys.cancel(key);
        keys.remove(key);
        keys.cancel(key);
    }
}
