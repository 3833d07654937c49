//! The table: what it is made of, and the view that readers take of it.
//!
//! # Life of a row
//!
//! Encoded and checked before anything else, with every row of its append (`append`). Then, in its
//! turn (`sequence`), it gets its arrival and its place in the log. Then it is put into every
//! series, while other appends do the same; and at last it is made visible, with its whole
//! append, by one store of the visible arrival, after the appends before it. Readers compare
//! arrivals with the value of that moment, so they see all of an append in every index, or nothing
//! of it.
//!
//! What changes more than rows (`change`: indexes, DELETE; `retention`) makes another state while
//! appends go on, one change at a time, under the lock of changes. At last it waits until no append
//! is in flight, and lets none begin: it holds the gate alone, which appends share. It adds what
//! arrived meanwhile and puts the state in place of the old one; readers that have the old one go on
//! with it.
//!
//! When no declared index keeps a row any more, no snapshot shows it. [`Table::collect_expired`]
//! removes it later.

use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use lockstep_host::{
    Clock,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use lockstep_row::{IndexSpec, RowCodec, RowView, TableSchema};
use lockstep_series::{Account, RowRef, Swap};

use crate::{
    Arrivals, MemoryBudget, Snapshot, TableError,
    arrival_set::ArrivalSet,
    expired::Newest,
    hold::Holds,
    retention::Horizon,
    sequence::Sequence,
    state::{self, Index, State},
    upkeep::Upkeep,
};

/// A table. Shared by reference; every method takes `&self`.
pub struct Table {
    pub(crate) codec: RowCodec,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) arrivals: Arc<Arrivals>,
    /// Replaced by who holds the gate alone.
    state: Swap<State>,
    /// Shared by appends; held alone by what replaces the state, or the log's blocks.
    gate: RwLock<()>,
    pub(crate) sequence: Sequence,
    /// No snapshot is of an earlier time, in milliseconds: rows expired by then may be removed.
    pub(crate) now_ms_min: AtomicI64,
    /// As of when rows may be removed: (visible arrival, now in ms) before every live snapshot.
    pub(crate) horizon: Arc<Mutex<Option<Horizon>>>,
    pub(crate) budget: Arc<MemoryBudget>,
    /// The budget, as what the state consists of charges it.
    account: Arc<dyn Account>,
    /// Rows that may be appended before expired ones are looked for.
    pub(crate) until_collection: AtomicI64,
    /// Rows that are in no series any more and still in their blocks. Changed by who changes the
    /// table.
    pub(crate) gone: Mutex<Arc<ArrivalSet>>,
    /// Held by an append that looks for expired rows because there is no room.
    pub(crate) collecting: Mutex<()>,
    /// How often one did.
    pub(crate) collections: AtomicU64,
    /// A moment at which nothing was to be removed.
    pub(crate) clean: Mutex<Option<Horizon>>,
    pub(crate) upkeep: Upkeep,
    /// Held by who changes what the table is made of. Taken before the gate.
    changes: Mutex<()>,
    /// Who needs what. Held for a moment, and never while another lock is waited for.
    pub(crate) holds: Mutex<Holds>,
    /// Whether the table was dropped. Written by who holds the gate alone.
    is_closed: AtomicBool,
}

/// So many rows are appended at least before expired ones are looked for.
pub(crate) const COLLECTION_ROWS_MIN: i64 = 1 << 16;

/// No other append is in flight, and none begins.
pub(crate) type Alone<'a> = RwLockWriteGuard<'a, ()>;
/// The state does not change.
pub(crate) type Shared<'a> = RwLockReadGuard<'a, ()>;

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

    /// The budget that its memory is charged to.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Makes an empty table as [`Self::new`] does that charges its memory to a budget.
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
        let codec = RowCodec::new(&schema);
        let account: Arc<dyn Account> = Arc::<MemoryBudget>::clone(&budget);
        let state = State::empty(Arc::new(schema));
        state.adopt(&account);
        Ok(Self {
            codec,
            clock,
            arrivals,
            state: Swap::new(state, State::memory_bytes),
            gate: RwLock::new(()),
            sequence: Sequence::default(),
            now_ms_min: AtomicI64::new(i64::MIN),
            horizon: Arc::new(Mutex::new(None)),
            budget,
            account,
            until_collection: AtomicI64::new(COLLECTION_ROWS_MIN),
            gone: Mutex::default(),
            collecting: Mutex::new(()),
            collections: AtomicU64::new(0),
            clean: Mutex::new(None),
            upkeep: Upkeep::default(),
            changes: Mutex::new(()),
            holds: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// The schema as it is now. Indexes come and go, nothing else changes; one that goes leaves its
    /// place.
    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.snapshot().state().schema)
    }

    /// A consistent view of the table as it is now.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let guard = lockstep_series::pin();
        // Before the state, which has every row that was visible when it was put in place.
        let visible = self.sequence.visible();
        let state = self.state.load(&guard);
        let visible = visible.max(state.visible_min);
        let state = NonNull::from(state);
        // After the state: it may lack rows that had expired when it was made.
        // Acquire: pairs with the Release in `note_horizon`.
        let now_ms = self.clock.now_ms().max(self.now_ms_min.load(Ordering::Acquire));
        Snapshot::new(self, guard, state, (visible, now_ms))
    }

    /// Rows held in memory, among them expired rows that were not collected yet.
    pub fn row_count(&self) -> u64 {
        number(self.snapshot().log_row_count())
    }

    /// Bytes of memory held by rows and indexes, with the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        self.memory().total()
    }

    /// Bytes of memory by what holds them.
    pub fn memory(&self) -> TableMemory {
        let snapshot = self.snapshot();
        let state = snapshot.state();
        TableMemory {
            rows: state.log.memory_bytes(),
            indexes: state.indexes.iter().map(Index::memory_bytes).collect(),
        }
    }

    /// Charges the budget with what a write took more (or less) than was reserved for it.
    pub(crate) fn charge(&self, grown: i64, reserved: u64) {
        self.budget.charge(grown.saturating_sub_unsigned(reserved));
    }

    /// A row of this table, decoded as it is read.
    #[inline]
    pub(crate) fn view<'a>(&'a self, row: RowRef<'a>) -> RowView<'a> {
        // SAFETY: every row of the table was encoded by its codec, which never changes.
        unsafe { self.codec.view_trusted(row.bytes()) }
    }

    /// Closes the table, which is being dropped: it has no rows from then on, and refuses further
    /// ones. Appends that were accepted before are ordered before it. Snapshots taken before go on
    /// seeing their rows.
    pub fn close(&self) {
        self.change(|changing| {
            let state = changing.state().emptied();
            let alone = self.alone();
            // Relaxed: read by who shares the gate.
            self.is_closed.store(true, Ordering::Relaxed);
            self.replace_state(&alone, state);
        });
    }

    /// Whether the table was dropped.
    pub fn is_closed(&self) -> bool {
        // Relaxed: whoever relies on it shares the gate, or holds the lock of changes.
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Refuses a table that was dropped. Whoever calls it shares the gate or holds the lock of
    /// changes.
    pub(crate) fn check_open(&self) -> Result<(), TableError> {
        if self.is_closed() { Err(TableError::Dropped) } else { Ok(()) }
    }

    /// Waits until nobody changes what the table is made of.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// The same, unless somebody does.
    pub(crate) fn try_lock_changes(&self) -> Option<MutexGuard<'_, ()>> {
        self.changes.try_lock()
    }

    /// Waits until the state can be relied on not to change.
    pub(crate) fn share(&self) -> Shared<'_> {
        self.gate.read()
    }

    /// Waits until no append is in flight.
    pub(crate) fn alone(&self) -> Alone<'_> {
        self.gate.write()
    }

    /// The state, which cannot change while the gate is shared.
    pub(crate) fn shared_state<'a>(&'a self, _shared: &'a Shared<'_>) -> &'a State {
        // SAFETY: it is replaced only by who holds the gate alone.
        unsafe { self.state.load_unguarded() }
    }

    /// The state, which only the holder of the gate replaces.
    pub(crate) fn sole_state<'a>(&'a self, _alone: &'a Alone<'_>) -> &'a State {
        // SAFETY: it is replaced only by `replace_state`, whose callers hold the gate alone and do
        // not use an earlier state after it.
        unsafe { self.state.load_unguarded() }
    }

    /// Puts another state in place.
    pub(crate) fn replace_state(&self, _alone: &Alone<'_>, mut state: State) {
        state.visible_min = self.sequence.visible();
        let log = {
            let snapshot = self.snapshot();
            let before = snapshot.state();
            state.newest = Arc::new(Newest::after(before, &state));
            Arc::clone(&before.log)
        };
        if !Arc::ptr_eq(&state.log, &log) {
            // Another log has only rows that are in its series.
            *self.gone.lock() = Arc::default();
        }
        state.adopt(&self.account);
        self.state.replace(state, &lockstep_series::pin());
        // Relaxed: when exactly a collection happens does not matter.
        self.until_collection.store(COLLECTION_ROWS_MIN, Ordering::Relaxed);
    }
}

/// Bytes of memory that a table holds, with the allocator's own overhead. Memory that was replaced
/// and waits for its last reader is not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMemory {
    /// Rows, with what is stored of each beside its columns.
    pub rows: u64,
    /// Each index, in the order of the schema.
    pub indexes: Vec<u64>,
}

impl TableMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.rows + self.indexes.iter().sum::<u64>()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.upkeep.end();
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

pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).expect("a count fits 64 bits")
}
