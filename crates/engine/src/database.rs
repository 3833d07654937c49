//! The engine: the catalog, the clock and the memory budget, which all sessions share.

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
    append::table_error,
    catalog::{CatalogCommand, Objects, QualifiedName, TableEntry, TableReference},
    context,
    deployment::tables_of,
    job::Jobs,
    request_cache::RequestCache,
    variables::Variables,
};

/// A database engine: several databases of tables and deployments. Cheap to clone; all clones
/// are the same engine.
#[derive(Clone)]
pub struct Database {
    state: Arc<EngineState>,
}

struct EngineState {
    /// The catalog. Only [`Database::commit`] changes it.
    objects: RwLock<Objects>,
    jobs: Mutex<Jobs>,
    /// Compiled requests of queries without a deployment.
    requests: RequestCache,
    arrivals: Arc<Arrivals>,
    budget: Arc<MemoryBudget>,
    clock: Arc<dyn Clock>,
    started_ms: i64,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.state.objects.read();
        f.debug_struct("Database").field("databases", &objects.databases().len()).finish()
    }
}

impl Database {
    /// Makes an empty engine, whose data is in memory only.
    pub fn in_memory() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// Makes an empty engine whose retention uses this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let budget = Arc::new(MemoryBudget::default());
        budget.observe(|now| lockstep_host::log::warn(&alert(now)));
        let state = EngineState {
            objects: RwLock::new(Objects::new()),
            jobs: Mutex::default(),
            requests: RequestCache::default(),
            arrivals: Arc::new(Arrivals::default()),
            budget,
            started_ms: clock.now_ms(),
            clock,
        };
        Self { state: Arc::new(state) }
    }

    /// Opens a session with the current database `default` and the global variables.
    pub fn session(&self) -> Session {
        Session::new(self.clone())
    }

    /// Returns the bytes that the tables hold, and the most that they may hold (`max_memory`).
    /// First frees removed rows that no reader uses any more.
    pub fn memory_use(&self) -> MemoryUse {
        lockstep_table::reclaim();
        self.state.budget.memory_use()
    }

    /// Limits the bytes that the tables may hold, as SET GLOBAL `max_memory` does; `None` is no
    /// limit. Rows that are stored already stay; reads, deletes and retention go on.
    pub fn set_max_memory(&self, bytes: Option<u64>) {
        // In a context of its own: the call that the thread runs may be interrupted.
        let set = QueryContext::new().run(|| self.commit(Variables::max_memory_command(bytes)));
        set.expect("a number of bytes is a value of the variable");
    }

    /// Applies the global variables to the memory budget.
    fn apply_variables(&self, variables: &Variables) {
        self.state.budget.set_limit(variables.max_memory());
        self.state.budget.set_alert_ppm(variables.memory_alert_ppm());
    }

    /// Locks the catalog for reading.
    pub(crate) fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.state.objects.read()
    }

    /// Applies a command to the catalog. A command that depends on a definition that was dropped
    /// meanwhile fails with [`lockstep_diagnostic::code::STALE_DEFINITION`] and changes nothing;
    /// see `session::retried`. A command of an interrupted call changes nothing either.
    pub(crate) fn commit(&self, command: CatalogCommand) -> Result<()> {
        let _commit = context::commit()?;
        let mut objects = self.state.objects.write();
        let is_setting = matches!(command, CatalogCommand::SetVariable { .. });
        let removed = objects.apply(command)?;
        if is_setting {
            self.apply_variables(objects.variables());
        }
        drop(objects);
        self.state.requests.remove_stale();
        // Without the lock, since freeing a table or the indexes of a deployment takes time.
        removed.release();
        Ok(())
    }

    /// Returns the cache of compiled requests of queries.
    pub(crate) fn requests(&self) -> &RequestCache {
        &self.state.requests
    }

    /// Locks the record of jobs.
    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.state.jobs.lock()
    }

    /// Makes a table that is not in the catalog.
    pub(crate) fn make_table(&self, schema: TableSchema) -> Result<Table, TableError> {
        Table::with_budget(
            schema,
            Arc::clone(&self.state.clock),
            Arc::clone(&self.state.arrivals),
            Arc::clone(&self.state.budget),
        )
    }

    /// Returns the clock of all tables and sessions.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.state.clock
    }

    /// Makes empty tables with the indexes of these and the columns that they include. EXPLAIN
    /// compiles a program against them, so that nothing is built for these.
    pub(crate) fn empty_copies_of(&self, entries: &[TableEntry]) -> Result<TableSet> {
        let empty_copy = |entry: &TableEntry| {
            let snapshot = entry.table.snapshot();
            let mut schema = snapshot.schema().clone();
            let present: Vec<usize> =
                (0..schema.indexes.len()).filter(|at| !schema.indexes[*at].is_removed()).collect();
            schema.indexes.retain(|index| !index.is_removed());
            let clock = Arc::clone(&self.state.clock);
            let copy = Table::new(schema, clock, Arc::default());
            let copy = copy.map_err(|error| table_error(&error))?;
            for (index, original) in present.into_iter().enumerate() {
                if let Some(projection) = snapshot.projection(original) {
                    copy.include(index, &projection.columns().collect::<Vec<_>>());
                }
            }
            Ok((entry.id, Arc::new(copy)))
        };
        Ok(TableSet { by_id: entries.iter().map(empty_copy).collect::<Result<_>>()?, owner: None })
    }

    /// Returns the current time, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.state.clock.now_ms()
    }

    /// Returns when the engine was started, in milliseconds since the epoch.
    pub(crate) fn started_ms(&self) -> i64 {
        self.state.started_ms
    }

    /// Returns the catalog entries of the tables that a plan reads; an error when one of them was
    /// dropped after the plan was bound.
    pub(crate) fn entries_of(&self, plan: &LogicalPlan) -> Result<Vec<TableEntry>> {
        let named = tables_of(plan);
        let objects = self.objects();
        let entry = |table| objects.entry(&TableReference::of(table)).cloned();
        named.iter().map(|table| entry(table)).collect()
    }
}

/// Writes the line that is logged when the use of memory exceeds the alert threshold.
fn alert(now: MemoryUse) -> String {
    let limit = now.limit.unwrap_or(0);
    format!(
        "tables hold {} of the {limit} bytes that max_memory allows; above it, writes are refused",
        now.used
    )
}

/// The tables that a plan may read, by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableSet {
    pub(crate) by_id: BTreeMap<u64, Arc<Table>>,
    /// The deployment or procedure that SHOW INDEXES lists as a user of the indexes.
    pub(crate) owner: Option<String>,
}

impl TableSet {
    /// Makes the set of these tables.
    pub(crate) fn of(entries: &[TableEntry]) -> Self {
        let tables = entries.iter().map(|entry| (entry.id, Arc::clone(&entry.table)));
        Self { by_id: tables.collect(), owner: None }
    }

    /// Names the deployment or procedure whose program reads the tables.
    pub(crate) fn owned_by(self, owner: &QualifiedName) -> Self {
        Self { owner: Some(owner.to_string()), ..self }
    }

    pub(crate) fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or("a request")
    }
}

impl lockstep_batch::StoredTables for TableSet {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }
}

impl lockstep_request::TableResolver for TableSet {
    fn table(&self, id: u64) -> Option<Arc<Table>> {
        self.by_id.get(&id).cloned()
    }

    fn owner(&self) -> &str {
        self.owner()
    }
}
