//! The thread that removes a table's expired rows.
//!
//! A table that is shared ([`Table::shared`]) starts it when an append finds that it is time to
//! look for expired rows, and goes on; where a thread is not to be had, appends do it themselves.
//! It holds the table only while it works, and ends with it. Its priority is low; where writers have
//! run far ahead they wait for it, and so leave it the processors.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use lockstep_host::sync::{Condvar, Mutex};

use crate::Table;

/// How a table and its thread reach each other.
#[derive(Default)]
pub(crate) struct Upkeep {
    table: OnceLock<Weak<Table>>,
    is_started: AtomicBool,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Signal {
    wanted: Mutex<Wanted>,
    /// Something of it changed.
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    is_wanted: bool,
    /// Whether the table, or the thread, has ended.
    is_over: bool,
    /// How often the thread has done its work.
    runs: u64,
}

/// How often the thread had done its work at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Runs(u64);

/// Says that the thread ends, however it does.
struct Ending(Arc<Signal>);

impl Table {
    /// Shares the table, so that a thread of its own can remove expired rows from it.
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        let table = Arc::new(self);
        assert!(table.upkeep.table.set(Arc::downgrade(&table)).is_ok(), "it was not shared before");
        table
    }
}

impl Upkeep {
    /// Whether the table is shared, so that there can be a thread.
    pub(crate) fn is_there(&self) -> bool {
        self.table.get().is_some()
    }

    /// Has the thread do its work, and gives how often it had done it before; `None` where there is
    /// none to be had.
    pub(crate) fn wake(&self) -> Option<Runs> {
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
            Runs(wanted.runs)
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

    /// Waits until the thread has done its work once more than at the moment of [`Self::wake`]: it
    /// may have done so already.
    pub(crate) fn wait_for_run(&self, Runs(runs): Runs) {
        let mut wanted = self.signal.wanted.lock();
        while wanted.runs == runs && !wanted.is_over {
            wanted = self.signal.changed.wait(wanted);
        }
    }

    /// Ends the thread when it has done what it is doing.
    pub(crate) fn end(&self) {
        self.signal.end();
    }
}

impl Signal {
    fn run(self: Arc<Self>, table: &Weak<Table>) {
        let ending = Ending(self);
        while ending.0.next() {
            let Some(table) = table.upgrade() else { return };
            table.collect_expired();
            drop(table);
            ending.0.wanted.lock().runs += 1;
            ending.0.changed.notify_all();
        }
    }

    /// Waits for work; `false` when there will be none.
    fn next(&self) -> bool {
        let mut wanted = self.wanted.lock();
        while !wanted.is_wanted && !wanted.is_over {
            wanted = self.changed.wait(wanted);
        }
        wanted.is_wanted = false;
        !wanted.is_over
    }

    fn end(&self) {
        self.wanted.lock().is_over = true;
        self.changed.notify_all();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upkeep").field("is_started", &self.is_started).finish_non_exhaustive()
    }
}
