//! The engine: what all sessions share.

use std::{collections::BTreeMap, fmt, sync::Arc};

use lockstep_host::{
    Clock, SystemClock,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use lockstep_row::TableSchema;
use lockstep_table::{Arrivals, MemoryBudget, MemoryUse, Table, TableError};

use crate::{Session, catalog::Objects, settings::Variables};

/// A database engine: several databases of tables and deployments. Cheap to clone; all clones
/// are the same engine.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

struct Shared {
    objects: RwLock<Objects>,
    arrivals: Arc<Arrivals>,
    budget: Arc<MemoryBudget>,
    clock: Arc<dyn Clock>,
    started_ms: i64,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.shared.objects.read();
        f.debug_struct("Database").field("databases", &objects.databases.len()).finish()
    }
}

impl Database {
    /// Makes an empty engine that lives in memory.
    pub fn in_memory() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// Makes an empty engine in memory whose retention follows this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let budget = Arc::new(MemoryBudget::default());
        budget.observe(|now| lockstep_host::log::warn(&alert(now)));
        let shared = Shared {
            objects: RwLock::new(Objects::new()),
            arrivals: Arc::new(Arrivals::default()),
            budget,
            started_ms: clock.now_ms(),
            clock,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Opens a session: current database `default`, default settings.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// Bytes that the tables hold, and the most that they may hold (`max_memory`).
    pub fn memory_use(&self) -> MemoryUse {
        self.shared.budget.memory_use()
    }

    /// Lets the tables hold so many bytes at most, as SET GLOBAL `max_memory` does; `None`: as
    /// many as they want. What they hold already stays; reads, deletes and retention go on.
    pub fn set_max_memory(&self, bytes: Option<u64>) {
        self.objects_mut().variables.set_max_memory(bytes);
        self.shared.budget.set_limit(bytes);
    }

    /// Goes by the global variables from now on.
    pub(crate) fn apply(&self, variables: &Variables) {
        self.shared.budget.set_limit(variables.max_memory());
        self.shared.budget.set_alert_ppm(variables.memory_alert_ppm());
    }

    pub(crate) fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.shared.objects.read()
    }

    pub(crate) fn objects_mut(&self) -> RwLockWriteGuard<'_, Objects> {
        self.shared.objects.write()
    }

    /// Makes a table that no name refers to yet.
    pub(crate) fn make_table(&self, schema: TableSchema) -> Result<Table, TableError> {
        Table::with_budget(
            schema,
            Arc::clone(&self.shared.clock),
            Arc::clone(&self.shared.arrivals),
            Arc::clone(&self.shared.budget),
        )
    }

    /// The present, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// When the engine was made, in milliseconds since the epoch.
    pub(crate) fn started_ms(&self) -> i64 {
        self.shared.started_ms
    }

    /// The tables as they are now, for an executor.
    pub(crate) fn tables(&self) -> Tables {
        Tables { by_id: self.objects().tables_by_id() }
    }
}

/// The line that is logged when the use of memory passes the alert threshold.
fn alert(now: MemoryUse) -> String {
    let limit = now.limit.unwrap_or(0);
    format!(
        "tables hold {} of the {limit} bytes that max_memory allows; above it, writes are refused",
        now.used
    )
}

/// The tables that a plan may name, by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub(crate) by_id: BTreeMap<u64, Arc<Table>>,
}

impl lockstep_offline::Tables for Tables {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }
}

impl lockstep_online::Tables for Tables {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }
}
