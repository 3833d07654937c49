//! The thread that removes a table's expired rows.
//!
//! A table that is shared ([`Table::shared`]) starts it when an append finds that it is time to
//! search for expired rows; where the machine gives no thread, appends search themselves. It keeps
//! the table alive only while it works, and ends with it. Its priority is low; where writers have run
//! far ahead they wait for it, and so leave it the processors.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::{
    Threads,
    sync::{Condvar, Mutex},
};

use crate::Table;

/// The table's handle of its thread.
#[derive(Default)]
pub(crate) struct ExpiryThread {
    table: OnceLock<Weak<Table>>,
    is_started: AtomicBool,
    signal: Arc<Signal>,
}

/// The signal between the table and its thread.
#[derive(Default)]
struct Signal {
    wanted: Mutex<WorkState>,
    /// Notified when the state changed.
    changed: Condvar,
}

/// The state that the signal's lock guards.
#[derive(Default)]
struct WorkState {
    is_wanted: bool,
    /// Whether the table, or the thread, has ended.
    is_over: bool,
    /// How often the thread has collected expired rows.
    runs: u64,
}

/// How often the thread had collected expired rows at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunCount(u64);

/// Marks the thread as ended when it is dropped, also by a panic.
struct EndOnDrop(Arc<Signal>);

impl Table {
    /// Shares the table, so that a thread of its own can remove expired rows where there are threads.
    #[must_use]
    pub fn shared(self, threads: Threads) -> Arc<Self> {
        let table = Arc::new(self);
        if threads == Threads::None {
            return table;
        }
        assert!(
            table.expiry_thread.table.set(Arc::downgrade(&table)).is_ok(),
            "it was not shared before"
        );
        table
    }
}

impl ExpiryThread {
    /// Returns whether the table is shared, so that there can be a thread.
    pub(crate) fn is_there(&self) -> bool {
        self.table.get().is_some()
    }

    /// Wakes the thread, which collects expired rows, and returns how often it had done so before;
    /// `None` where there is no thread.
    pub(crate) fn wake(&self) -> Option<RunCount> {
        let table = self.table.get()?;
        let runs = {
            let mut wanted = self.signal.wanted.lock();
            if wanted.is_over {
                return None;
            }
            if !wanted.is_wanted {
                wanted.is_wanted = true;
                self.signal.changed.notify_all();
            }
            RunCount(wanted.runs)
        };
        // Relaxed: it guards no data.
        if self.is_started.swap(true, Ordering::Relaxed) {
            return Some(runs);
        }
        let (signal, table) = (Arc::clone(&self.signal), Weak::clone(table));
        let started =
            lockstep_host::spawn_background("lockstep-expiry", move || signal.run(&table));
        if started.is_err() {
            self.end();
        }
        started.is_ok().then_some(runs)
    }

    /// Waits until the thread has collected expired rows once more than at [`Self::wake`]: it may have
    /// done so already.
    pub(crate) fn wait_for_run(&self, RunCount(runs): RunCount) {
        let mut wanted = self.signal.wanted.lock();
        while wanted.runs == runs && !wanted.is_over {
            wanted = self.signal.changed.wait(wanted);
        }
    }

    /// Ends the thread after its current work.
    pub(crate) fn end(&self) {
        self.signal.end();
    }
}

impl Signal {
    /// Runs the thread.
    fn run(self: Arc<Self>, table: &Weak<Table>) {
        let ending = EndOnDrop(self);
        while ending.0.next() {
            let Some(table) = table.upgrade() else { return };
            table.collect_expired();
            drop(table);
            ending.0.wanted.lock().runs += 1;
            ending.0.changed.notify_all();
        }
    }

    /// Waits for work. Returns `false` when there will be none.
    fn next(&self) -> bool {
        let mut wanted = self.wanted.lock();
        while !wanted.is_wanted && !wanted.is_over {
            wanted = self.changed.wait(wanted);
        }
        wanted.is_wanted = false;
        !wanted.is_over
    }

    /// Ends the thread, and wakes those that wait for it.
    fn end(&self) {
        self.wanted.lock().is_over = true;
        self.changed.notify_all();
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for ExpiryThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryThread").field("is_started", &self.is_started).finish_non_exhaustive()
    }
}
