//! The engine: what all sessions share.

use std::{collections::BTreeMap, fmt, sync::Arc};

use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::Result;
use lockstep_host::{
    Clock, QueryContext, SystemClock,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard},
};
use lockstep_row::TableSchema;
use lockstep_table::{Arrivals, MemoryBudget, MemoryUse, Table, TableError};

use crate::{
    Session,
    append::refused,
    catalog::{CatalogCommand, Objects, QualifiedName, TableEntry, TableReference},
    context,
    deployment::tables_of,
    job::Jobs,
    request_cache::RequestCache,
    settings::Variables,
};

/// A database engine: several databases of tables and deployments. Cheap to clone; all clones
/// are the same engine.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

struct Shared {
    /// The catalog. Changed by [`Database::commit`] only.
    objects: RwLock<Objects>,
    jobs: Mutex<Jobs>,
    /// Compiled requests of queries that are no deployments.
    requests: RequestCache,
    arrivals: Arc<Arrivals>,
    budget: Arc<MemoryBudget>,
    clock: Arc<dyn Clock>,
    started_ms: i64,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.shared.objects.read();
        f.debug_struct("Database").field("databases", &objects.databases().len()).finish()
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
            jobs: Mutex::default(),
            requests: RequestCache::default(),
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

    /// Bytes that the tables hold, and the most that they may hold (`max_memory`). Frees first what
    /// was removed and nobody reads any more; what somebody still reads is held.
    pub fn memory_use(&self) -> MemoryUse {
        lockstep_table::reclaim();
        self.shared.budget.memory_use()
    }

    /// Lets the tables hold so many bytes at most, as SET GLOBAL `max_memory` does; `None`: as
    /// many as they want. What they hold already stays; reads, deletes and retention go on.
    pub fn set_max_memory(&self, bytes: Option<u64>) {
        // Not a part of what the thread may be running, which may be interrupted.
        let set = QueryContext::new().run(|| self.commit(Variables::max_memory_command(bytes)));
        set.expect("a number of bytes is a value of the variable");
    }

    /// Goes by the global variables from now on.
    fn go_by(&self, variables: &Variables) {
        self.shared.budget.set_limit(variables.max_memory());
        self.shared.budget.set_alert_ppm(variables.memory_alert_ppm());
    }

    /// The catalog, to look something up.
    pub(crate) fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.shared.objects.read()
    }

    /// Changes the catalog. A command that rests on what is gone meanwhile fails with
    /// [`lockstep_diagnostic::code::STALE_DEFINITION`] and changes nothing; see
    /// `session::retried`. So does one of a call that was interrupted.
    pub(crate) fn commit(&self, command: CatalogCommand) -> Result<()> {
        let _commit = context::commit()?;
        let mut objects = self.shared.objects.write();
        let is_setting = matches!(command, CatalogCommand::SetVariable { .. });
        let removed = objects.apply(command)?;
        if is_setting {
            self.go_by(objects.variables());
        }
        drop(objects);
        self.shared.requests.forget_stale();
        // Without the lock: to free a table, or the indexes that a deployment held, takes time.
        removed.release();
        Ok(())
    }

    /// Compiled requests of queries that are no deployments.
    pub(crate) fn requests(&self) -> &RequestCache {
        &self.shared.requests
    }

    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.shared.jobs.lock()
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

    /// What all tables and sessions take the time from.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Empty tables with the indexes of these, and what they include: a program that is compiled
    /// against them says what one of these would do, and changes nothing of them.
    pub(crate) fn shadows_of(&self, entries: &[TableEntry]) -> Result<Tables> {
        let shadow = |entry: &TableEntry| {
            let snapshot = entry.table.snapshot();
            let mut schema = snapshot.schema().clone();
            let present: Vec<usize> =
                (0..schema.indexes.len()).filter(|at| !schema.indexes[*at].is_removed()).collect();
            schema.indexes.retain(|index| !index.is_removed());
            let clock = Arc::clone(&self.shared.clock);
            let shadow = Table::new(schema, clock, Arc::default());
            let shadow = shadow.map_err(|error| refused(&error))?;
            for (index, original) in present.into_iter().enumerate() {
                if let Some(projection) = snapshot.projection(original) {
                    shadow.include(index, &projection.columns().collect::<Vec<_>>());
                }
            }
            Ok((entry.id, Arc::new(shadow)))
        };
        Ok(Tables { by_id: entries.iter().map(shadow).collect::<Result<_>>()?, owner: None })
    }

    /// The present, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.shared.clock.now_ms()
    }

    /// When the engine was made, in milliseconds since the epoch.
    pub(crate) fn started_ms(&self) -> i64 {
        self.shared.started_ms
    }

    /// What the catalog has of the tables that a plan names; an error when one of them was dropped
    /// after the plan was bound.
    pub(crate) fn entries_of(&self, plan: &LogicalPlan) -> Result<Vec<TableEntry>> {
        let named = tables_of(plan);
        let objects = self.objects();
        let entry = |table| objects.entry(&TableReference::of(table)).cloned();
        named.iter().map(|table| entry(table)).collect()
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
    /// Who SHOW INDEXES says that a compiled program's indexes are held by.
    pub(crate) owner: Option<String>,
}

impl Tables {
    pub(crate) fn of(entries: &[TableEntry]) -> Self {
        let tables = entries.iter().map(|entry| (entry.id, Arc::clone(&entry.table)));
        Self { by_id: tables.collect(), owner: None }
    }

    /// The same tables, for a program that belongs to a deployment or a procedure.
    pub(crate) fn owned_by(self, owner: &QualifiedName) -> Self {
        Self { owner: Some(owner.to_string()), ..self }
    }

    pub(crate) fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or("a request")
    }
}

impl lockstep_batch::StoredTables for Tables {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }
}

impl lockstep_request::TableResolver for Tables {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }

    fn owner(&self) -> &str {
        self.owner()
    }
}
