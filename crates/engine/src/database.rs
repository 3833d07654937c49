//! The engine: the catalog, the clock and the memory budget, which all sessions share.

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{
    Clock, FileAccess, Host, QueryContext, Threads, failpoint,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard},
    temporary::{TemporarySpace, TemporaryStorage},
};
use lockstep_plan::{CatalogTable, stored_tables};
use lockstep_request::CheckShare;
use lockstep_row::TableSchema;
use lockstep_table::{
    Arrivals, FlushCall, LevelsWaker, MemoryBudget, MemoryUse, Table, TableError,
    part::PageCacheUse,
};
use lockstep_wal::DatabaseDirectory;

use crate::{
    ClientInfo, Opened, Session,
    access::{Caller, FileFolders},
    append::table_error,
    audit::CallRecords,
    catalog::{CatalogCommand, CatalogRecord, Objects, QualifiedName, TableEntry, TableReference},
    connector::{Connector, ProcessGroups},
    context,
    deployment::source_of,
    entrance::QueryMemory,
    job::{JobList, Jobs},
    load_thread,
    log_error::log_error,
    named_source::not_stored,
    offline_data::OfflineData,
    pre_aggregate_thread::{PreAggregateFigures, PreAggregateWork},
    request_cache::RequestCache,
    session_list::SessionList,
    statement::TableOptions,
    store::OpenDirectory,
    stream::Stream,
    system,
    user::User,
    variables::{Variables, memory_without_limit},
    worker::Worker,
};

/// Disk tables are flushed when they have this part of the memory limit in rows that are in no file.
const UNFLUSHED_PART: u64 = 8;
/// They are flushed when these rows take so many bytes, whatever the limit.
const UNFLUSHED_BYTES_MAX: u64 = 128 << 20;

/// SHOW MEMORY waits so long for readers that keep removed rows.
const FREED_WAIT_MS: u32 = 50;

/// A database engine: several databases of tables and deployments. Cheap to clone; all clones
/// are the same engine.
#[derive(Clone)]
pub struct Database {
    state: Arc<EngineState>,
    /// What a user of the engine has and its own threads have not.
    owner: Option<Arc<EngineOwner>>,
    /// The catalog that is read instead of the engine's; nothing is committed to it.
    planned: Option<Arc<RwLock<Objects>>>,
}

/// Closes the engine's directory when the last user is gone, after a checkpoint that is being written.
struct EngineOwner(Arc<EngineState>);

impl Drop for EngineOwner {
    fn drop(&mut self) {
        Database::unowned(Arc::clone(&self.0)).end_work();
        self.0.pre_aggregates.end();
        // What deployments release is removed with the tables: no index is built without it.
        let objects = self.0.objects.read();
        let databases = objects.databases().values();
        databases
            .flat_map(|found| found.tables.values())
            .for_each(|entry| entry.table.defer_removal());
        drop(objects);
        // Before the deployments are dropped: what they release is not a change of the tables.
        if let Some(store) = self.0.store.get() {
            // A failed sync is in the log's state; there is nobody left to tell.
            let _closed = store.close();
        }
    }
}

pub(crate) struct EngineState {
    /// The catalog. Only [`Database::commit`] changes it.
    objects: RwLock<Objects>,
    /// Held by whoever changes the catalog, from its check to its change.
    catalog_changes: Mutex<()>,
    /// The id that the next table gets.
    next_table_id: AtomicU64,
    /// The directory; an engine in memory has none, nor has one that is being opened.
    store: OnceLock<OpenDirectory>,
    /// Where disk tables put their rows, also while the directory is being opened.
    directory: OnceLock<Weak<DatabaseDirectory>>,
    /// Whether every table is a disk table: set by tests.
    is_all_on_disk: AtomicBool,
    opened: OnceLock<Opened>,
    is_closed: AtomicBool,
    /// Tables whose rows are logged, and which belong to no table of the catalog yet, or did not.
    being_loaded: Mutex<BTreeMap<u64, Weak<Table>>>,
    jobs: JobList,
    /// Compiled requests of queries without a deployment.
    requests: RequestCache,
    pre_aggregates: Arc<PreAggregateWork>,
    arrivals: Arc<Arrivals>,
    budget: Arc<MemoryBudget>,
    host: Host,
    started_ms: i64,
    sessions: SessionList,
    records: CallRecords,
    query_memory: QueryMemory,
    /// The number of changes of users and privileges.
    users_version: Arc<AtomicU64>,
    /// From how many nanoseconds a call is recorded as slow; 0: none is.
    slow_request_ns: AtomicU64,
    file_folders: RwLock<Arc<FileFolders>>,
    temp_folders: RwLock<Arc<FileFolders>>,
    temporary: Arc<TemporarySpace>,
    groups: ProcessGroups,
    /// From which the salts of names that no user has are made; that of a directory is its id.
    secret: [u8; 16],
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.state.objects.read();
        f.debug_struct("Database")
            .field("databases", &objects.databases().len())
            .field("is_owned", &self.owner.is_some())
            .finish()
    }
}

impl Database {
    /// Makes an empty engine, whose data is in memory only.
    pub fn in_memory() -> Self {
        Self::empty(Host::default(), true)
    }

    /// Makes an empty engine whose retention uses this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::empty(Host { clock, ..Host::default() }, true)
    }

    /// Makes an empty engine, which may get a directory.
    pub(crate) fn empty(host: Host, is_in_memory: bool) -> Self {
        let budget = Arc::new(MemoryBudget::default());
        budget.observe(|now| lockstep_host::log::warn(&alert(now)));
        let pre_aggregates = Arc::new(PreAggregateWork::new(host.threads));
        let wake = pre_aggregates.waker();
        budget.observe_spare(move || wake());
        let state = EngineState {
            objects: RwLock::new(Objects::new(is_in_memory)),
            catalog_changes: Mutex::new(()),
            next_table_id: AtomicU64::new(1),
            store: OnceLock::new(),
            directory: OnceLock::new(),
            is_all_on_disk: AtomicBool::new(false),
            opened: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            being_loaded: Mutex::default(),
            jobs: JobList::default(),
            requests: RequestCache::default(),
            pre_aggregates,
            arrivals: Arc::new(Arrivals::default()),
            budget,
            started_ms: host.clock.now_ms(),
            sessions: SessionList::default(),
            records: CallRecords::default(),
            query_memory: QueryMemory::default(),
            users_version: Arc::default(),
            slow_request_ns: AtomicU64::new(0),
            file_folders: RwLock::default(),
            temp_folders: RwLock::default(),
            temporary: Arc::default(),
            groups: ProcessGroups::default(),
            secret: host.random.id(),
            host,
        };
        let state = Arc::new(state);
        let owner = Some(Arc::new(EngineOwner(Arc::clone(&state))));
        Self { state, owner, planned: None }
    }

    /// Returns the engine for a thread of its own, which does not keep it open.
    pub(crate) fn unowned(state: Arc<EngineState>) -> Self {
        Self { state, owner: None, planned: None }
    }

    /// Opens a session of the process itself, with the current database `default` and the global
    /// variables. It is the owner's: no privilege restricts it.
    pub fn session(&self) -> Session {
        Session::new(self.clone(), Caller::default(), ClientInfo::default())
    }

    /// Lists the folders in which statements of users may read and write files: LOAD DATA, INTO OUTFILE,
    /// BACKUP and the like. None, unless this is called. The directory of the database is none of them,
    /// also below one. Sessions of the process itself are free.
    pub fn set_file_folders(&self, folders: &[PathBuf]) -> Result<()> {
        let mut listed = FileFolders::new(folders)?;
        if let Some(store) = self.store() {
            let own = FileAccess::default().resolve(store.path());
            let own = own.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
            listed = listed.without(&own);
        }
        *self.state.file_folders.write() = Arc::new(listed);
        Ok(())
    }

    /// Returns the groups of Kafka in which this process works.
    pub(crate) fn groups(&self) -> &ProcessGroups {
        &self.state.groups
    }

    pub(crate) fn file_folders(&self) -> Arc<FileFolders> {
        Arc::clone(&self.state.file_folders.read())
    }

    /// Returns the files that the calls of a caller may open.
    pub(crate) fn file_access(&self, caller: &Caller) -> FileAccess {
        match caller.is_process() {
            true => FileAccess::default(),
            false => self.file_folders().access(),
        }
    }

    pub(crate) fn temp_folders(&self) -> Arc<FileFolders> {
        Arc::clone(&self.state.temp_folders.read())
    }

    pub(crate) fn replace_temp_folders(&self, folders: FileFolders) {
        *self.state.temp_folders.write() = Arc::new(folders);
    }

    pub(crate) fn temporary_space(&self) -> &Arc<TemporarySpace> {
        &self.state.temporary
    }

    pub(crate) fn pre_aggregate_work(&self) -> &Arc<PreAggregateWork> {
        &self.state.pre_aggregates
    }

    /// Returns the memory and the checks of all pre-aggregates.
    pub fn pre_aggregate_figures(&self) -> PreAggregateFigures {
        self.state.pre_aggregates.figures()
    }

    /// Makes the partial results of all pre-aggregates that wait for it, as a thread of its own does
    /// otherwise. For tests and simulations.
    #[doc(hidden)]
    pub fn make_pre_aggregates(&self) {
        self.state.pre_aggregates.run();
    }

    pub(crate) fn session_list(&self) -> &SessionList {
        &self.state.sessions
    }

    pub(crate) fn records(&self) -> &CallRecords {
        &self.state.records
    }

    pub(crate) fn query_memory(&self) -> &QueryMemory {
        &self.state.query_memory
    }

    /// Returns the number of changes of users and privileges so far. Who keeps what a user has proved
    /// lets the user prove it again once the number has moved. It costs an atomic load.
    #[inline]
    pub fn users_version(&self) -> u64 {
        // Acquire: pairs with the Release in `commit`, so that who sees the number sees the users.
        self.state.users_version.load(Ordering::Acquire)
    }

    /// Returns the number of [`Self::users_version`], for what does not keep the engine.
    pub(crate) fn shared_users_version(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.state.users_version)
    }

    /// Returns a reference that does not keep the engine.
    pub(crate) fn downgrade(&self) -> Weak<EngineState> {
        Arc::downgrade(&self.state)
    }

    #[inline]
    pub(crate) fn slow_request_ns(&self) -> u64 {
        // Relaxed: the number itself is all that is shared.
        self.state.slow_request_ns.load(Ordering::Relaxed)
    }

    /// Returns bytes that clients do not know, the same each time the directory is opened.
    pub(crate) fn secret(&self) -> [u8; 16] {
        self.store().map_or(self.state.secret, OpenDirectory::database_id)
    }

    /// Returns the engine for what does not keep it open.
    pub(crate) fn as_unowned(&self) -> Self {
        Self::unowned(Arc::clone(&self.state))
    }

    /// Returns the bytes that the tables hold, and the most that they may hold (`max_memory`).
    /// First frees removed rows that no reader uses any more.
    pub fn memory_use(&self) -> MemoryUse {
        lockstep_table::reclaim();
        self.state.budget.memory_use()
    }

    /// Waits a moment for readers that keep removed rows from being freed: a thread may be interrupted while it reads.
    pub(crate) fn await_freed_memory(&self) {
        for _ in 0..FREED_WAIT_MS {
            if lockstep_table::reclaim() {
                break;
            }
            lockstep_host::pause(1);
        }
    }

    /// Limits the bytes that the tables may hold, as SET GLOBAL `max_memory` does; `None` is no
    /// limit. Rows that are stored already stay; reads, deletes and retention go on.
    pub fn set_max_memory(&self, bytes: Option<u64>) {
        // In a context of its own: the call that the thread runs may be interrupted.
        let set = QueryContext::new().run(|| self.commit(&Variables::max_memory_command(bytes)));
        set.expect("a number of bytes is a value of the variable");
    }

    /// Applies the global variables to the memory budget and the log.
    fn apply_variables(&self, variables: &Variables) {
        self.state.budget.set_limit(variables.max_memory());
        self.state.budget.set_page_cache(variables.page_cache_bytes());
        self.state.budget.set_alert_ppm(variables.memory_alert_ppm());
        self.state.temporary.set_limit(variables.max_temp_directory_size());
        if let Some(store) = self.store() {
            store.set_durability_window_ms(variables.durability_window_ms());
        }
        let share = variables.pre_aggregation_check_ppm();
        // Relaxed: the number itself is all that is shared.
        self.state.pre_aggregates.check_share().store(share, Ordering::Relaxed);
        let slow_ns = variables.slow_request_ms().saturating_mul(1_000_000);
        // Relaxed: the number itself is all that is shared.
        self.state.slow_request_ns.store(slow_ns, Ordering::Relaxed);
    }

    /// Returns the engine with another catalog than its own, which queries are compiled against before
    /// a command makes it the engine's.
    pub(crate) fn with_planned(&self, objects: Objects) -> Self {
        let planned = Some(Arc::new(RwLock::new(objects)));
        Self { state: Arc::clone(&self.state), owner: None, planned }
    }

    /// Locks the catalog for reading.
    pub(crate) fn objects(&self) -> RwLockReadGuard<'_, Objects> {
        self.planned.as_deref().unwrap_or(&self.state.objects).read()
    }

    /// Locks the catalog for reading unless that would have to wait.
    pub(crate) fn try_objects(&self) -> Option<RwLockReadGuard<'_, Objects>> {
        self.planned.as_deref().unwrap_or(&self.state.objects).try_read()
    }

    /// Applies a command to the catalog. A command that depends on a definition that was dropped
    /// meanwhile fails with [`lockstep_diagnostic::code::STALE_DEFINITION`] and changes nothing;
    /// see `session::retried`. A command of an interrupted call changes nothing either.
    ///
    /// Where there is a directory, the command is in its log before anybody sees what it does.
    pub(crate) fn commit(&self, command: &CatalogCommand) -> Result<()> {
        debug_assert!(self.planned.is_none(), "a planned catalog is not changed");
        command.check_names()?;
        let _commit = context::commit()?;
        let changing = self.state.catalog_changes.lock();
        let is_setting = matches!(command, CatalogCommand::SetVariable { .. });
        let is_of_users = matches!(command, CatalogCommand::ChangeUsers(_));
        let removed = if self.store().is_some() {
            // Readers go on with the catalog as it is while the log is waited for.
            let mut next = self.objects().clone();
            let removed = next.apply(command)?;
            let record = CatalogRecord::of(command, &next);
            // Rows that were added to those of a table are in the log: nothing may fail any more.
            if !self.objects().says(&record) && !failpoint::is_seeded("catalog_not_logged") {
                // Before the table that they read: without that one they change nothing.
                for reader in command.compiled_readers() {
                    self.log_record(&reader.record())?;
                }
                self.log_record(&record)?;
            }
            failpoint::reach("catalog.logged");
            let mut objects = self.state.objects.write();
            *objects = next;
            removed.mark();
            removed
        } else {
            let mut objects = self.state.objects.write();
            let removed = objects.apply(command)?;
            removed.mark();
            removed
        };
        if is_of_users {
            // Release: pairs with the Acquire in `users_version`.
            self.state.users_version.fetch_add(1, Ordering::Release);
        }
        if is_setting {
            self.apply_variables(self.objects().variables());
        }
        drop(changing);
        self.state.requests.remove_stale();
        // Without the lock, since freeing a table or the indexes of a deployment takes time.
        removed.release();
        Ok(())
    }

    /// Gives the engine its directory, from which it was read: changes are logged from now on.
    pub(crate) fn continue_in(&self, store: OpenDirectory, opened: Opened) {
        self.state.arrivals.continue_in(store.log());
        assert!(self.state.store.set(store).is_ok(), "an engine has one directory");
        assert!(self.state.opened.set(opened).is_ok(), "an engine is opened once");
        self.apply_variables(self.objects().variables());
        let tables: Vec<Arc<Table>> = {
            let objects = self.objects();
            let databases = objects.databases().values();
            let entries = databases.flat_map(|found| found.tables.values());
            entries.map(|entry| Arc::clone(&entry.table)).collect()
        };
        tables.iter().for_each(|table| table.remove_unheld());
    }

    /// Starts the thread that writes checkpoints, if the directory may be written.
    pub(crate) fn start_checkpoints(&self) {
        if let Some(store) = self.store().filter(|store| !store.is_read_only()) {
            let flush = Arc::clone(store.checkpoints().flush_request());
            self.state.budget.flush_with(move |call| match call {
                FlushCall::Wait => flush.wait(),
                FlushCall::Begin => {
                    flush.begin();
                    true
                }
            });
            store.checkpoints().start(self.host().threads, Arc::downgrade(&self.state));
        }
    }

    /// Starts the streams, sources and sinks that were not stopped.
    pub(crate) fn start_work(&self) {
        let (streams, connectors) = self.work();
        streams.iter().for_each(|stream| Worker::start(stream, self));
        connectors.iter().for_each(|connector| Worker::start(connector, self));
    }

    /// Returns the streams, and the sources and sinks.
    fn work(&self) -> (Vec<Arc<Stream>>, Vec<Arc<Connector>>) {
        let objects = self.objects();
        (objects.streams().cloned().collect(), objects.connectors().cloned().collect())
    }

    /// Waits until all streams have read the rows that are stored now; in an engine without threads, runs them. For tests
    /// and simulations.
    #[doc(hidden)]
    pub fn settle_streams(&self) {
        let streams: Vec<Arc<Stream>> = self.objects().streams().cloned().collect();
        // What one writes another one may read.
        for _ in &streams {
            streams.iter().for_each(|stream| match self.host().threads {
                Threads::System => stream.worker.settle(),
                Threads::None => Worker::run_here(&**stream, self),
            });
        }
    }

    /// Ends the threads of all streams, sources and sinks, which go on when the directory is opened again.
    pub(crate) fn end_work(&self) {
        let (streams, connectors) = self.work();
        connectors.iter().for_each(|connector| Worker::end(&**connector));
        streams.iter().for_each(|stream| Worker::end(&**stream));
    }

    /// Starts the thread that puts memory tables into memory which were opened from their files.
    pub(crate) fn start_loading(&self) {
        if let Some(store) = self.store().filter(|_| !self.tables_to_load().is_empty()) {
            let is_over = store.checkpoints().is_over();
            load_thread::start(self.host().threads, Arc::downgrade(&self.state), is_over);
        }
    }

    /// Puts memory tables into memory which were opened from their files, as a thread does otherwise.
    #[doc(hidden)]
    pub fn load_tables(&self) -> Result<()> {
        let load = |table: &Arc<Table>| table.load_files().map_err(|error| table_error(&error));
        self.tables_to_load().iter().try_for_each(load)
    }

    /// Returns how many rows of memory tables are still read from their files.
    pub fn rows_to_load(&self) -> u64 {
        self.tables_to_load().iter().map(|table| table.rows_to_load()).sum()
    }

    /// Returns the memory tables that are still read from their files, the smallest first.
    pub(crate) fn tables_to_load(&self) -> Vec<Arc<Table>> {
        let mut tables = self.stored_tables();
        tables.retain(|table| table.is_on_disk() && table.is_of_memory());
        tables.sort_by_key(|table| table.rows_to_load());
        tables
    }

    /// Returns whether it has a directory.
    pub(crate) fn has_directory(&self) -> bool {
        self.state.directory.get().is_some()
    }

    /// Returns the contents and the work of the page cache of disk tables.
    pub fn page_cache(&self) -> PageCacheUse {
        self.state.budget.page_cache().cache_use()
    }

    /// Merges files of disk tables until none are to be merged, for tests that do not wait for the thread.
    #[doc(hidden)]
    pub fn compact_disk_tables(&self) -> Result<()> {
        for table in self.stored_tables() {
            while table.compact(&mut || Ok(())).map_err(|error| table_error(&error))? {}
        }
        Ok(())
    }

    /// Returns the tables, those of offline rows and of the progress of streams included.
    pub(crate) fn stored_tables(&self) -> Vec<Arc<Table>> {
        let objects = self.objects();
        let entries = objects.databases().values().flat_map(|found| found.tables.values());
        let tables = entries.flat_map(|entry| {
            let offline = entry.offline.logged_rows().map(|(_, rows)| rows);
            std::iter::once(&entry.table).chain(offline)
        });
        tables.chain(objects.streams().map(|stream| stream.progress.table())).cloned().collect()
    }

    /// Returns whether disk tables have so many rows in memory that they are to be flushed.
    pub(crate) fn disk_tables_are_full(&self) -> bool {
        let in_memory =
            self.stored_tables().iter().map(|table| table.unflushed_bytes()).sum::<u64>();
        in_memory > self.unflushed_max()
    }

    /// Returns how many bytes of rows of disk tables are in memory when they are flushed. When a table has got twice
    /// as many since its last flush has begun, writes to it wait.
    fn unflushed_max(&self) -> u64 {
        let limit = self.memory_use().limit.unwrap_or_else(memory_without_limit);
        (limit / UNFLUSHED_PART).min(UNFLUSHED_BYTES_MAX)
    }

    /// Lets writes to disk tables wait for flushes as the memory limit is now.
    pub(crate) fn pace_writes(&self) {
        self.state.budget.set_unfrozen_max(2 * self.unflushed_max());
    }

    /// Locks the catalog against changes.
    pub(crate) fn lock_catalog_changes(&self) -> MutexGuard<'_, ()> {
        self.state.catalog_changes.lock()
    }

    /// Returns the order of arrival.
    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.state.arrivals
    }

    /// Returns the id that the next table gets.
    pub(crate) fn next_table_id(&self) -> u64 {
        // Relaxed: the number itself is all that is shared.
        self.state.next_table_id.load(Ordering::Relaxed)
    }

    /// Notes a table whose rows are logged, and which no table of the catalog has as its offline rows
    /// yet.
    pub(crate) fn note_being_loaded(&self, id: u64, table: &Arc<Table>) {
        self.state.being_loaded.lock().insert(id, Arc::downgrade(table));
    }

    /// Returns the tables whose rows are being loaded.
    pub(crate) fn tables_being_loaded(&self) -> BTreeMap<u64, Arc<Table>> {
        let mut being_loaded = self.state.being_loaded.lock();
        being_loaded.retain(|_, table| table.strong_count() > 0);
        let tables = being_loaded.iter();
        tables.filter_map(|(id, table)| Some((*id, table.upgrade()?))).collect()
    }

    /// Returns the directory.
    pub(crate) fn store(&self) -> Option<&OpenDirectory> {
        self.state.store.get()
    }

    /// Returns what opening the directory has done; `None` for an engine in memory.
    pub fn opened(&self) -> Option<&Opened> {
        self.state.opened.get()
    }

    /// Sets the offline data of a table while a directory is opened.
    pub(crate) fn restore_offline(&self, table: u64, data: OfflineData) {
        if let Some(entry) = self.state.objects.write().entry_of_id(table) {
            entry.offline = Arc::new(data);
        }
    }

    /// Sets the options of a table while a directory is opened.
    pub(crate) fn restore_options(&self, table: u64, options: &TableOptions) {
        if let Some(entry) = self.state.objects.write().entry_of_id(table) {
            entry.options = options.clone();
        }
    }

    /// Sets users while a directory is opened.
    pub(crate) fn restore_users(&self, users: BTreeMap<String, Option<User>>) {
        self.state.objects.write().users_mut().restore(users);
    }

    /// Sets the id that the next table gets.
    pub(crate) fn set_next_table_id(&self, id: u64) {
        // Relaxed: the number itself is all that is shared.
        self.state.next_table_id.store(id, Ordering::Relaxed);
    }

    /// Makes every later statement fail.
    pub(crate) fn mark_closed(&self) {
        // Relaxed: it guards no data.
        self.state.is_closed.store(true, Ordering::Relaxed);
    }

    /// Fails once the engine was closed, and in a process that was forked from the one that opened its
    /// directory. Statements call it themselves; a program that keeps a
    /// [`PreparedRequest`](crate::PreparedRequest) calls it before each answer. Costs some loads.
    pub fn check_open(&self) -> Result<()> {
        if let Some(store) = self.store() {
            store.check_owner().map_err(|error| log_error(&error))?;
        }
        // Relaxed: as above.
        if !self.state.is_closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        Diagnostic::new(code::DATABASE_CLOSED, "the database was closed")
            .with_hint("Connect to the database again.")
            .err()
    }

    /// Returns the cache of compiled requests of queries.
    pub(crate) fn requests(&self) -> &RequestCache {
        &self.state.requests
    }

    /// Locks the record of jobs.
    pub(crate) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.state.jobs.lock()
    }

    pub(crate) fn job_list(&self) -> &JobList {
        &self.state.jobs
    }

    /// Makes a table that is not in the catalog yet, with an id for the catalog and the log.
    pub(crate) fn make_table(&self, schema: TableSchema) -> Result<Table, TableError> {
        let table = self.make_unlogged_table(schema)?;
        // Relaxed: as above.
        Ok(table.logged_as(self.state.next_table_id.fetch_add(1, Ordering::Relaxed)))
    }

    /// Makes a table that is in neither.
    pub(crate) fn make_unlogged_table(&self, schema: TableSchema) -> Result<Table, TableError> {
        let table = Table::with_budget(
            schema,
            Arc::clone(&self.state.host.clock),
            Arc::clone(&self.state.arrivals),
            Arc::clone(&self.state.budget),
        )?;
        if let Some(directory) = self.state.directory.get().and_then(Weak::upgrade) {
            table.set_directory(&directory);
            // Relaxed: set before there is a table.
            if self.state.is_all_on_disk.load(Ordering::Relaxed) {
                table.move_to_disk()?;
            }
        }
        Ok(table)
    }

    /// Sets the directory in which disk tables put their rows.
    pub(crate) fn set_directory(&self, directory: &Arc<DatabaseDirectory>, is_all_on_disk: bool) {
        // Relaxed: as above.
        self.state.is_all_on_disk.store(is_all_on_disk, Ordering::Relaxed);
        let set = self.state.directory.set(Arc::downgrade(directory));
        assert!(set.is_ok(), "an engine has one directory");
    }

    /// Returns the machine.
    pub(crate) fn host(&self) -> &Host {
        &self.state.host
    }

    /// Returns the clock of all tables and sessions.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.state.host.clock
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
            let clock = Arc::clone(&self.state.host.clock);
            let copy = Table::new(schema, clock, Arc::default());
            let copy = copy.map_err(|error| table_error(&error))?;
            for (index, original) in present.into_iter().enumerate() {
                if let Some(projection) = snapshot.projection(original) {
                    copy.include(index, &projection.columns().collect::<Vec<_>>());
                }
            }
            Ok((entry.id, Arc::new(copy)))
        };
        Ok(TableSet {
            by_id: entries.iter().map(empty_copy).collect::<Result<_>>()?,
            ..TableSet::default()
        })
    }

    /// Returns the current time, in milliseconds since the epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.state.host.clock.now_ms()
    }

    /// Returns when the engine was started, in milliseconds since the epoch.
    pub(crate) fn started_ms(&self) -> i64 {
        self.state.started_ms
    }

    /// Returns the catalog entries of the tables that a plan reads; an error when one of them was
    /// dropped after the plan was bound, or is a system table.
    pub(crate) fn entries_of(&self, plan: &LogicalPlan) -> Result<Vec<TableEntry>> {
        match source_of(plan) {
            Some(source) => not_stored(&source.name).err(),
            None => self.stored_entries_of(plan),
        }
    }

    /// Returns the entries of the stored tables that a plan reads beside files and objects.
    pub(crate) fn stored_entries_of(&self, plan: &LogicalPlan) -> Result<Vec<TableEntry>> {
        let named = stored_tables(plan);
        if let Some(table) = named.iter().find(|table| system::is_system(table.id)) {
            return system::read_only(&table.name).err();
        }
        let objects = self.objects();
        named.iter().map(|table| objects.entry(&TableReference::of(table)).cloned()).collect()
    }

    /// Returns the same with the system tables, which have the rows that a caller sees now.
    pub(crate) fn entries_for(
        &self,
        plan: &LogicalPlan,
        caller: &Caller,
    ) -> Result<Vec<TableEntry>> {
        let entry = |table: &Arc<CatalogTable>| match system::is_system(table.id) {
            true => self.system_entry(table, caller),
            false => self.objects().entry(&TableReference::of(table)).cloned(),
        };
        stored_tables(plan).iter().map(entry).collect()
    }
}

/// Writes the line that is logged when the use of memory exceeds the alert threshold.
fn alert(now: MemoryUse) -> String {
    let limit = now.limit.unwrap_or(0);
    format!(
        "tables use {} of {limit} bytes of max_memory; writes that would exceed it are rejected",
        now.used
    )
}

/// The tables that a plan may read, by id.
#[derive(Clone, Default)]
pub(crate) struct TableSet {
    pub(crate) by_id: BTreeMap<u64, Arc<Table>>,
    /// The deployment or procedure that SHOW INDEXES lists as a user of the indexes.
    pub(crate) owner: Option<String>,
    /// Who makes the pre-aggregates over the tables.
    pub(crate) pre_aggregates: Option<Arc<PreAggregateWork>>,
    /// Where the rows go that do not fit into the memory of a request's parts in batch mode.
    pub(crate) temporary: TemporaryStorage,
}

impl TableSet {
    /// Makes the set of these tables.
    pub(crate) fn of(entries: &[TableEntry]) -> Self {
        let tables = entries.iter().map(|entry| (entry.id, Arc::clone(&entry.table)));
        Self { by_id: tables.collect(), ..Self::default() }
    }

    /// Names the deployment or procedure whose program reads the tables.
    pub(crate) fn owned_by(self, owner: &QualifiedName) -> Self {
        Self { owner: Some(owner.to_string()), ..self }
    }

    /// Says who makes the pre-aggregates over the tables.
    pub(crate) fn with_pre_aggregates(self, work: &Arc<PreAggregateWork>) -> Self {
        Self { pre_aggregates: Some(Arc::clone(work)), ..self }
    }

    /// Says where rows go that do not fit into memory.
    pub(crate) fn spilling_to(self, temporary: TemporaryStorage) -> Self {
        Self { temporary, ..self }
    }

    pub(crate) fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or("a request")
    }
}

impl fmt::Debug for TableSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSet")
            .field("by_id", &self.by_id)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
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

    fn wake(&self) -> LevelsWaker {
        self.pre_aggregates
            .as_ref()
            .map_or_else(|| -> LevelsWaker { Arc::new(|| ()) }, |work| work.waker())
    }

    fn check_share(&self) -> CheckShare {
        let work = self.pre_aggregates.as_ref();
        work.map_or_else(CheckShare::default, |work| Arc::clone(work.check_share()))
    }

    fn refusal(&self, error: &TableError) -> Box<Diagnostic> {
        table_error(error)
    }
}

#[cfg(test)]
mod tests;
