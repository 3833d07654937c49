//! The table: its state, its locks, and the snapshots that readers take of it.
//!
//! # Life of a row
//!
//! It is encoded and checked first, with every row of its append (`append`). Then, under the lock of
//! the commit queue (`commit_queue`), it gets its arrival and is copied to the log. Then it is inserted
//! into every series, while other appends do the same; and finally it becomes visible, with its whole
//! append, by one store of the visible arrival, after the appends before it. Readers compare arrivals
//! with the visible arrival that they have loaded, so they see all of an append in every index, or
//! nothing of it.
//!
//! A change of more than rows (`change`: indexes, DELETE; `retention`) makes another state while
//! appends go on, one change at a time, under the change lock. At its end it takes the schema lock
//! exclusively, which appends share: no append is in flight, and none begins. It adds the rows that
//! arrived meanwhile and replaces the state; readers that have the old one continue with it.
//!
//! When no declared index keeps a row any more, no snapshot shows it. [`Table::collect_expired`]
//! removes it later.

use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use lockstep_host::{
    Clock,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use lockstep_row::{IndexSpec, RowCodec, RowView, TableSchema};
use lockstep_series::{Account, Guard, RowRef, Swap};
use lockstep_wal::DatabaseDirectory;

use crate::{
    Arrivals, LoggedIndexes, MemoryBudget, Snapshot, TableError, TableParts,
    arrival_set::ArrivalSet,
    commit_queue::CommitQueue,
    expired::NewestTimes,
    expiry_thread::ExpiryThread,
    hold::Holds,
    levels::LevelsSpec,
    part::bug::{self, PartBug},
    retention::Horizon,
    state::{self, Index, TableState},
    tail::TailState,
};

/// A table. Shared by reference; every method takes `&self`.
pub struct Table {
    /// The id under which its changes are logged; `None` for a table that is not in the log.
    pub(crate) log_id: Option<u64>,
    pub(crate) codec: Arc<RowCodec>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) arrivals: Arc<Arrivals>,
    /// Replaced under the exclusive schema lock.
    state: Swap<TableState>,
    /// Shared by appends; exclusive for whoever replaces the state, or the log's blocks.
    schema_lock: RwLock<()>,
    pub(crate) commit_queue: CommitQueue,
    /// No snapshot has an earlier time, in milliseconds: rows expired by then may be removed.
    pub(crate) now_ms_min: AtomicI64,
    /// The horizon as of which rows may be removed: no snapshot is older.
    pub(crate) horizon: Arc<Mutex<Option<Horizon>>>,
    pub(crate) budget: Arc<MemoryBudget>,
    /// The budget, as the account that series and logs charge.
    pub(crate) account: Arc<dyn Account>,
    /// The number of rows that may be appended before expired ones are searched for.
    pub(crate) rows_until_collection: AtomicI64,
    /// Rows that were removed from every series and are still in their blocks. Changed under the change
    /// lock.
    pub(crate) removed_rows: Mutex<Arc<ArrivalSet>>,
    /// Held by an append that searches for expired rows because the budget is exhausted.
    pub(crate) collecting: Mutex<()>,
    /// How often an append did so.
    pub(crate) collections: AtomicU64,
    /// The horizon at which nothing was to be removed, when a search found nothing.
    pub(crate) found_clean_at: Mutex<Option<Horizon>>,
    pub(crate) expiry_thread: ExpiryThread,
    /// Held by whoever changes the state. Taken before the schema lock.
    changes: Mutex<()>,
    /// Who follows its rows. Locked before the place of each.
    pub(crate) tails: Mutex<Vec<Weak<TailState>>>,
    /// The levels of its indexes. Locked briefly, by holders of the schema lock.
    pub(crate) levels: Mutex<Vec<LevelsSpec>>,
    /// The holds of the table. Locked briefly, and never while waiting for another lock.
    pub(crate) holds: Mutex<Holds>,
    /// The indexes as they became when something was released while the log took nothing. Locked by
    /// the holder of the change lock.
    pub(crate) unlogged_indexes: Mutex<Option<LoggedIndexes>>,
    /// How often rows were removed otherwise than by expiring. Written under the exclusive schema lock.
    pub(crate) generation: AtomicU64,
    /// Where a disk table may put rows; empty for a table without a directory.
    pub(crate) directory: OnceLock<Weak<DatabaseDirectory>>,
    /// Snapshots that do not show all rows with a smaller arrival may lack rows that these have displaced.
    pub(crate) removed_before: AtomicU64,
    /// Whether the state has rows on a disk. Written under the exclusive schema lock.
    pub(crate) is_on_disk: AtomicBool,
    /// About how many bytes of rows have come into a disk table since its rows were frozen last.
    pub(crate) unfrozen_bytes: AtomicU64,
    /// Whether the rows of a memory table are on a disk and are still to be put into memory.
    pub(crate) is_to_load: AtomicBool,
    /// The rows of it that were copied into memory so far.
    pub(crate) loaded_rows: AtomicU64,
    /// The files of a memory table; `None` where no checkpoint has written it as it is. Replaced by holders of the
    /// change lock or of the exclusive schema lock.
    pub(crate) checkpointed: Mutex<Option<Arc<TableParts>>>,
    /// Held by who merges files.
    pub(crate) compacting: Mutex<()>,
    /// Whether the table was dropped. Written under the exclusive schema lock.
    is_closed: AtomicBool,
}

/// At least so many rows are appended before expired ones are searched for.
pub(crate) const COLLECTION_ROWS_MIN: i64 = 1 << 16;

/// The exclusive schema lock: no other append is in flight, and none begins.
pub(crate) type ExclusiveLock<'a> = RwLockWriteGuard<'a, ()>;
/// The shared schema lock: the state does not change.
pub(crate) type SharedLock<'a> = RwLockReadGuard<'a, ()>;

impl Table {
    /// Makes an empty table with the schema's columns and indexes, and a memory budget of its own
    /// without a limit. Fails when an index is over a column that is missing or of the wrong type,
    /// or two indexes share a name.
    pub fn new(
        schema: TableSchema,
        clock: Arc<dyn Clock>,
        arrivals: Arc<Arrivals>,
    ) -> Result<Self, TableError> {
        Self::with_budget(schema, clock, arrivals, Arc::default())
    }

    /// Returns the budget to which its memory is charged.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Makes an empty table as [`Self::new`] does, which charges its memory to a budget.
    pub fn with_budget(
        schema: TableSchema,
        clock: Arc<dyn Clock>,
        arrivals: Arc<Arrivals>,
        budget: Arc<MemoryBudget>,
    ) -> Result<Self, TableError> {
        for (position, spec) in schema.indexes.iter().enumerate() {
            state::check_spec(&schema.columns, spec)?;
            let is_taken = |other: &IndexSpec| !other.is_removed() && other.name == spec.name;
            if schema.indexes[..position].iter().any(is_taken) {
                return Err(TableError::IndexExists { name: spec.name.clone() });
            }
        }
        let codec = Arc::new(RowCodec::new(&schema));
        let account: Arc<dyn Account> = Arc::<MemoryBudget>::clone(&budget);
        let state = TableState::empty(Arc::new(schema));
        state.adopt(&account);
        Ok(Self {
            log_id: None,
            codec,
            clock,
            arrivals,
            state: Swap::new(state, TableState::memory_bytes),
            schema_lock: RwLock::new(()),
            commit_queue: CommitQueue::default(),
            now_ms_min: AtomicI64::new(i64::MIN),
            horizon: Arc::new(Mutex::new(None)),
            budget,
            account,
            rows_until_collection: AtomicI64::new(COLLECTION_ROWS_MIN),
            removed_rows: Mutex::default(),
            collecting: Mutex::new(()),
            collections: AtomicU64::new(0),
            found_clean_at: Mutex::new(None),
            expiry_thread: ExpiryThread::default(),
            changes: Mutex::new(()),
            tails: Mutex::default(),
            levels: Mutex::default(),
            holds: Mutex::default(),
            unlogged_indexes: Mutex::default(),
            generation: AtomicU64::new(0),
            directory: OnceLock::new(),
            removed_before: AtomicU64::new(0),
            is_on_disk: AtomicBool::new(false),
            unfrozen_bytes: AtomicU64::new(0),
            is_to_load: AtomicBool::new(false),
            loaded_rows: AtomicU64::new(0),
            checkpointed: Mutex::default(),
            compacting: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Gives the table the id under which its changes are in the log, if the engine has one.
    #[must_use]
    pub fn logged_as(mut self, id: u64) -> Self {
        self.log_id = Some(id);
        self
    }

    /// Returns the id under which its changes are in the log.
    pub fn log_id(&self) -> Option<u64> {
        self.log_id
    }

    /// Returns the schema as it is now. Only indexes are added and removed; the position of a removed
    /// one stays empty.
    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.snapshot().state().schema)
    }

    /// Takes a consistent snapshot of the table as it is now.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let guard = lockstep_series::pin();
        let (state, visible) = self.current(&guard);
        let state = NonNull::from(state);
        // After the state: it may lack rows that had expired when it was made.
        // Acquire: pairs with the Release in `note_horizon`.
        let now_ms = self.clock.now_ms().max(self.now_ms_min.load(Ordering::Acquire));
        let horizon = Horizon { visible_arrival: visible, now_ms };
        Snapshot::new(self, guard, state, horizon)
    }

    /// Returns the state, and the visible arrival.
    #[inline]
    pub(crate) fn current<'g>(&self, guard: &'g Guard) -> (&'g TableState, u64) {
        // Before the state, which has every row that was visible when it was installed.
        let visible = self.commit_queue.visible();
        let state = self.state.load(guard);
        (state, visible.max(state.visible_min))
    }

    /// Returns the number of stored rows, among them expired rows that were not removed yet.
    pub fn row_count(&self) -> u64 {
        self.snapshot().stored_row_count()
    }

    /// Returns the bytes of memory of rows and indexes, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        self.memory().total()
    }

    /// Returns the bytes of memory of the rows and of each index.
    pub fn memory(&self) -> TableMemory {
        let snapshot = self.snapshot();
        let state = snapshot.state();
        let disk = state.disk.as_ref();
        let frozen = disk.and_then(|disk| disk.frozen.as_ref());
        let checkpointed = self.checkpointed();
        let parts = disk.map(|disk| &disk.parts).or(checkpointed.as_ref());
        let parts = parts.map_or(0, |parts| parts.memory_bytes());
        let rows = state.log.memory_bytes() + frozen.map_or(0, |frozen| frozen.log.memory_bytes());
        let frozen = |at: usize| frozen.and_then(|frozen| frozen.indexes.get(at));
        let of_index = |(at, index): (usize, &Index)| {
            index.memory_bytes() + frozen(at).map_or(0, Index::memory_bytes)
        };
        let indexes = state.indexes.iter().enumerate().map(of_index).collect();
        TableMemory { rows, indexes, parts }
    }

    /// Charges the budget with what a write took beyond (or below) its reservation.
    pub(crate) fn charge(&self, grown: i64, reserved: u64) {
        self.budget.charge(grown.saturating_sub_unsigned(reserved));
    }

    /// Returns a view of a row of this table.
    #[inline]
    pub(crate) fn view<'a>(&'a self, row: RowRef<'a>) -> RowView<'a> {
        // SAFETY: every row of the table was encoded by its codec, which never changes.
        unsafe { self.codec.view_trusted(row.bytes()) }
    }

    /// Closes the table, which is being dropped: it has no rows from then on, and refuses further
    /// ones. Appends that were accepted before precede it. Snapshots taken before still show their
    /// rows.
    pub fn close(&self) {
        self.change(|change| {
            let state = change.state().emptied();
            let exclusive = self.lock_exclusive();
            // Relaxed: read under the schema lock.
            self.is_closed.store(true, Ordering::Relaxed);
            self.replace_state(&exclusive, state);
        });
        self.commit_queue.wake_listeners();
    }

    /// Returns whether the table was dropped.
    pub fn is_closed(&self) -> bool {
        // Relaxed: whoever relies on it holds the schema lock or the change lock.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Fails when the table was dropped. The caller holds the schema lock or the change lock.
    pub(crate) fn check_open(&self) -> Result<(), TableError> {
        if self.is_closed() { Err(TableError::Dropped) } else { Ok(()) }
    }

    /// Takes the change lock.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Takes the change lock if it is free.
    pub(crate) fn try_lock_changes(&self) -> Option<MutexGuard<'_, ()>> {
        self.changes.try_lock()
    }

    /// Takes the schema lock shared: the state does not change.
    pub(crate) fn lock_shared(&self) -> SharedLock<'_> {
        self.schema_lock.read()
    }

    /// Takes the schema lock exclusively: waits until no append is in flight.
    pub(crate) fn lock_exclusive(&self) -> ExclusiveLock<'_> {
        self.schema_lock.write()
    }

    /// Returns the state, which cannot change while the schema lock is shared.
    pub(crate) fn shared_state<'a>(&'a self, _shared: &'a SharedLock<'_>) -> &'a TableState {
        // SAFETY: it is replaced only under the exclusive schema lock.
        unsafe { self.state.load_unguarded() }
    }

    /// Returns the state, which only the holder of the exclusive lock replaces.
    pub(crate) fn exclusive_state<'a>(
        &'a self,
        _exclusive: &'a ExclusiveLock<'_>,
    ) -> &'a TableState {
        // SAFETY: it is replaced only by `replace_state`, whose callers hold the schema lock exclusively
        // and do not use an earlier state after it.
        unsafe { self.state.load_unguarded() }
    }

    /// Replaces the state.
    pub(crate) fn replace_state(&self, exclusive: &ExclusiveLock<'_>, state: TableState) {
        if !Arc::ptr_eq(&state.log, &self.exclusive_state(exclusive).log) {
            self.hold_for_tails(self.exclusive_state(exclusive));
            // A new log has only rows that are in its series.
            *self.removed_rows.lock() = Arc::default();
            if !bug::is_seeded(PartBug::FilesOfRemovedRows) {
                self.set_checkpointed(None);
            }
            // Relaxed: written under the exclusive schema lock.
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        self.put_state(exclusive, state);
    }

    /// Replaces the state by one that has all rows of the log elsewhere.
    pub(crate) fn replace_copied(&self, exclusive: &ExclusiveLock<'_>, state: TableState) {
        *self.removed_rows.lock() = Arc::default();
        self.put_state(exclusive, state);
    }

    fn put_state(&self, exclusive: &ExclusiveLock<'_>, mut state: TableState) {
        state.visible_min = self.commit_queue.visible();
        assert_eq!(state.schema.indexes.len(), state.indexes.len(), "each index has its series");
        self.settle_checkpointed(self.exclusive_state(exclusive), &state);
        state.newest = Arc::new(NewestTimes::after(self.exclusive_state(exclusive), &state));
        state.adopt(&self.account);
        self.give_levels(&state);
        // Relaxed: who relies on it holds the change lock.
        self.is_on_disk.store(state.disk.is_some(), Ordering::Relaxed);
        self.state.replace(state, &lockstep_series::pin());
        // Relaxed: when exactly a collection happens does not matter.
        self.rows_until_collection.store(COLLECTION_ROWS_MIN, Ordering::Relaxed);
    }
}

/// The bytes of memory of a table, with the allocator's own overhead, without memory that was replaced
/// and is still read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMemory {
    /// The rows, with what is stored of each beside its columns.
    pub rows: u64,
    /// Each index, in the order of the schema.
    pub indexes: Vec<u64>,
    /// What is known of the files of a disk table: where pages are, and filters of keys.
    pub parts: u64,
}

impl TableMemory {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.rows + self.indexes.iter().sum::<u64>() + self.parts
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.expiry_thread.end();
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("row_count", &self.row_count())
            .field("schema", &self.schema())
            .finish_non_exhaustive()
    }
}

/// Converts a count.
pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).expect("a count fits 64 bits")
}
