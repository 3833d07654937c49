//! The table and its writers.
//!
//! # Life of a row
//!
//! Encoded and checked before anything else, with every row of its append; then, under the
//! writers' lock, given its arrival, put into every series, and at last made visible, with its
//! whole append, by one store of [`Table::visible`]. Readers compare arrivals with the value of
//! that moment, so they see all of an append in every index, or nothing of it.
//!
//! When no declared index keeps it any more, no snapshot shows it. [`Table::collect_expired`]
//! removes it later, as of a moment that lies before every snapshot that still lives: the moment
//! is noted first, and used when the epoch collector says that all guards of that time are gone.

use std::{
    collections::BTreeSet,
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering},
    },
};

use lockstep_host::{
    Clock,
    sync::{Mutex, MutexGuard},
};
use lockstep_row::{Datum, IndexSpec, Retention, RowCodec, RowView, TableSchema};
use lockstep_series::{RowHandle, RowRef, Series};

use crate::{
    Arrivals, Snapshot, TableError,
    state::{self, State},
};

/// A table. Shared by reference; every method takes `&self`.
pub struct Table {
    codec: RowCodec,
    clock: Arc<dyn Clock>,
    arrivals: Arc<Arrivals>,
    /// Never null. Replaced under the lock; what it pointed to is retired.
    state: AtomicPtr<State>,
    /// Rows with a smaller arrival are visible. Written under the lock.
    visible: AtomicU64,
    /// No snapshot is of an earlier time, in milliseconds: rows expired by then may be removed.
    now_ms_min: AtomicI64,
    writer: Mutex<Writer>,
    /// As of when rows may be removed: (visible arrival, now in ms) before every live snapshot.
    horizon: Arc<Mutex<Option<(u64, i64)>>>,
    /// Rows in the log and their bytes. Written under the lock.
    row_count: AtomicU64,
    row_bytes: AtomicU64,
}

/// What only writers need; whoever holds its lock is the writer.
struct Writer {
    /// The arrival time of the newest row: arrival times do not step back.
    arrival_ms_last: i64,
    /// Scratch.
    key: Vec<u8>,
}

/// How often the epoch collector is nudged before a collection gives up waiting for snapshots.
/// Garbage is free two epochs later; each nudge advances one at most.
const EPOCH_NUDGES: usize = 4;

impl Table {
    /// Makes an empty table with the schema's columns and indexes. Fails when an index is over a
    /// column that is missing or of the wrong type, or two indexes share a name.
    pub fn new(
        schema: TableSchema,
        clock: Arc<dyn Clock>,
        arrivals: Arc<Arrivals>,
    ) -> Result<Self, TableError> {
        for (position, spec) in schema.indexes.iter().enumerate() {
            state::check_spec(&schema.columns, spec)?;
            if schema.indexes[..position].iter().any(|other| other.name == spec.name) {
                return Err(TableError::IndexExists { name: spec.name.clone() });
            }
        }
        let codec = RowCodec::new(&schema);
        let state = Box::into_raw(Box::new(State::empty(Arc::new(schema))));
        Ok(Self {
            codec,
            clock,
            arrivals,
            state: AtomicPtr::new(state),
            visible: AtomicU64::new(0),
            now_ms_min: AtomicI64::new(i64::MIN),
            writer: Mutex::new(Writer { arrival_ms_last: i64::MIN, key: Vec::new() }),
            horizon: Arc::new(Mutex::new(None)),
            row_count: AtomicU64::new(0),
            row_bytes: AtomicU64::new(0),
        })
    }

    /// The schema as it is now. Indexes may be added, at the end; nothing else changes.
    pub fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.snapshot().state().schema)
    }

    /// Appends rows, all or none, and returns how many. They become visible at once, in every
    /// index. An empty append takes no arrival. An event time may be NULL, which sorts before
    /// every other and has expired wherever an index keeps rows for a time.
    pub fn append<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let encoded = self.encode(rows)?;
        Ok(self.store(&mut self.writer.lock(), encoded))
    }

    /// Appends rows like [`Self::append`], but refuses them when an event time of a declared index
    /// is NULL or negative.
    pub fn append_timed<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let encoded = self.encode(rows)?;
        let mut writer = self.writer.lock();
        self.check_event_times(self.locked_state(&writer), &encoded)?;
        Ok(self.store(&mut writer, encoded))
    }

    /// Appends the rows that are not stored yet, with the checks of [`Self::append_timed`], and
    /// returns how many they are. Reads, for each row, the rows of its key in the first declared
    /// index; the whole table when there is none.
    pub fn append_absent<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let mut encoded = self.encode(rows)?;
        let mut writer = self.writer.lock();
        self.check_event_times(self.locked_state(&writer), &encoded)?;
        {
            let snapshot = self.snapshot();
            let mut taken = BTreeSet::new();
            encoded.retain(|row| {
                taken.insert(row.get().bytes().to_vec()) && !snapshot.holds(row.get())
            });
        }
        Ok(self.store(&mut writer, encoded))
    }

    /// Gives rows their arrival and makes them visible. Under the lock.
    fn store(&self, writer: &mut MutexGuard<'_, Writer>, mut encoded: Vec<RowHandle>) -> u64 {
        let count = number(encoded.len());
        if count == 0 {
            return 0;
        }
        let state = self.locked_state(writer);
        writer.arrival_ms_last = writer.arrival_ms_last.max(self.clock.now_ms());
        let first = self.arrivals.take(count);
        // Relaxed: written under the lock.
        assert!(first >= self.visible.load(Ordering::Relaxed), "arrivals of a table ascend");
        for (row, arrival) in encoded.iter_mut().zip(first..) {
            row.place(arrival, writer.arrival_ms_last);
        }
        let bytes: u64 = encoded.iter().map(|row| row_size(row.get())).sum();
        for row in encoded {
            self.publish(state, row, &mut writer.key);
        }
        // Relaxed: numbers to report.
        self.row_count.fetch_add(count, Ordering::Relaxed);
        self.row_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Release: pairs with the Acquire in `snapshot`, which thereby finds the rows in every series.
        self.visible.store(first + count, Ordering::Release);
        count
    }

    fn encode<'r, R>(&self, rows: R) -> Result<Vec<RowHandle>, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        let mut bytes = Vec::new();
        let mut encoded = Vec::new();
        for (row, row_number) in rows.into_iter().zip(1..) {
            bytes.clear();
            self.codec
                .encode(row.as_ref(), &mut bytes)
                .map_err(|source| TableError::Row { row_number, source })?;
            encoded.push(RowHandle::new(&bytes));
        }
        Ok(encoded)
    }

    fn check_event_times(&self, state: &State, rows: &[RowHandle]) -> Result<(), TableError> {
        for spec in state.schema.indexes.iter().filter(|spec| spec.declared) {
            for (row, row_number) in rows.iter().zip(1..) {
                state::check_event_time(&state.schema, spec, self.view(row.get()), row_number)?;
            }
        }
        Ok(())
    }

    /// Puts a row into every series. Under the lock.
    fn publish(&self, state: &State, row: RowHandle, key: &mut Vec<u8>) {
        let arrival_ms = row.get().arrival_ms();
        for (spec, series) in state.schema.indexes.iter().zip(&state.indexes) {
            let view = self.view(row.get());
            state::encode_key(spec, view, key);
            series.insert(key, state::event_time(spec, view, arrival_ms), row.clone());
        }
        state.log.insert(&[], log_position(row.get()), row);
    }

    /// The position of the index over exactly these key columns (in any order) and this event
    /// time; when there is none, builds one from the rows that some declared index keeps, which
    /// are also the rows it will show. No key columns: the whole table is one key.
    ///
    /// Readers go on while it builds, writers wait. Panics when a column is out of range or of a
    /// type that cannot be a key or an event time: the plan has checked that.
    pub fn ensure_index(&self, keys: &[usize], event_time: Option<usize>) -> usize {
        if let Some(position) = self.schema().find_index(keys, event_time) {
            return position;
        }
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        if let Some(position) = schema.find_index(keys, event_time) {
            return position;
        }
        let position = schema.indexes.len();
        let is_taken = |name: &String| schema.indexes.iter().any(|spec| spec.name == *name);
        let mut names = (position..).map(|number| format!("auto_{number}"));
        let name = names.find(|name| !is_taken(name)).expect("there are more numbers than indexes");
        let spec = IndexSpec {
            name,
            keys: keys.to_vec(),
            event_time,
            retention: Retention::Forever,
            declared: false,
        };
        let checked = state::check_spec(&schema.columns, &spec);
        assert_eq!(checked, Ok(()), "the plan asks for indexes that the table can have");
        let series = self.build(&spec, &snapshot);
        self.replace_state(&writer, snapshot.state().with_index(spec, series));
        position
    }

    /// Adds a declared index, built from the live rows, and returns its position. From then on it
    /// has its say in which rows live: those of a table without declared indexes start to expire.
    pub fn add_declared_index(&self, spec: IndexSpec) -> Result<usize, TableError> {
        let spec = IndexSpec { declared: true, ..spec };
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        state::check_spec(&schema.columns, &spec)?;
        if schema.indexes.iter().any(|other| other.name == spec.name) {
            return Err(TableError::IndexExists { name: spec.name });
        }
        let position = schema.indexes.len();
        let mut state = snapshot.state().with_index(spec.clone(), self.build(&spec, &snapshot));
        if !snapshot.state().keeps_everything {
            self.leave_out_dead_rows(&mut state, &snapshot);
        }
        self.replace_state(&writer, state);
        Ok(position)
    }

    /// Makes an index keep rows by this rule from now on, as a declared one; the rule should keep
    /// what the index keeps already. Rows that expired everywhere stay so. Fails when the index
    /// was not declared and a stored row has no event time in it. Reads every row; readers go on,
    /// writers wait.
    pub fn widen_index(&self, index: usize, retention: Retention) -> Result<(), TableError> {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let old = snapshot.state();
        let mut schema = TableSchema::clone(&old.schema);
        let spec = &mut schema.indexes[index];
        (spec.retention, spec.declared) = (retention, true);
        for (row, row_number) in snapshot.scan().zip(1..) {
            state::check_event_time(&schema, &schema.indexes[index], row.row, row_number)?;
        }
        let mut indexes = old.indexes.clone();
        indexes[index] = Arc::new(self.build(&schema.indexes[index], &snapshot));
        let mut state = State::new(Arc::new(schema), indexes, Arc::clone(&old.log));
        if !old.keeps_everything {
            self.leave_out_dead_rows(&mut state, &snapshot);
        }
        self.replace_state(&writer, state);
        Ok(())
    }

    /// Rows that expired stay so, although the new index might keep them by its own rule.
    fn leave_out_dead_rows(&self, state: &mut State, snapshot: &Snapshot<'_>) {
        let log = Series::new();
        let (mut count, mut bytes) = (0, 0);
        for handle in snapshot.live_handles() {
            count += 1;
            bytes += row_size(handle.get());
            log.insert(&[], log_position(handle.get()), handle);
        }
        state.log = Arc::new(log);
        for (spec, series) in state.schema.indexes.iter().zip(&mut state.indexes) {
            if !spec.declared {
                *series = Arc::new(self.build(spec, snapshot));
            }
        }
        // Relaxed: numbers to report, written under the lock.
        self.row_count.store(count, Ordering::Relaxed);
        self.row_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Removes a declared index. Its place stays, as an index that keeps what the other declared
    /// indexes keep, so that what reads through it goes on. The last declared index stays.
    pub fn drop_declared_index(&self, name: &str) -> Result<(), TableError> {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let schema = snapshot.schema();
        let is_declared = |spec: &IndexSpec| spec.declared && spec.name == name;
        let Some(position) = schema.indexes.iter().position(is_declared) else {
            return Err(TableError::IndexMissing { name: name.to_owned() });
        };
        if schema.indexes.iter().filter(|spec| spec.declared).count() == 1 {
            return Err(TableError::LastIndex { name: name.to_owned() });
        }
        let mut state = snapshot.state().with_undeclared(position);
        let remaining = Snapshot::new(
            self,
            lockstep_series::pin(),
            NonNull::from(&state),
            (snapshot.visible_arrival(), snapshot.now_ms()),
        );
        let series = self.build(&state.schema.indexes[position], &remaining);
        drop(remaining);
        state.indexes[position] = Arc::new(series);
        self.replace_state(&writer, state);
        Ok(())
    }

    /// Removes the rows for which `is_deleted` holds, from every index at once, and returns how
    /// many. Snapshots taken before go on seeing them. Rebuilds every index from the rows that
    /// stay, so the time is linear in the rows of the table; readers go on, writers wait.
    pub fn delete(&self, mut is_deleted: impl FnMut(RowView<'_>) -> bool) -> u64 {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let mut deleted = 0;
        let mut kept = Vec::new();
        for handle in snapshot.live_handles() {
            if is_deleted(self.view(handle.get())) {
                deleted += 1;
            } else {
                kept.push(handle);
            }
        }
        if deleted == 0 {
            return 0;
        }
        let state = snapshot.state();
        let indexes = state.schema.indexes.iter();
        let indexes = indexes.map(|spec| Arc::new(self.series_of(spec, &kept))).collect();
        let log = Series::new();
        let bytes = kept.iter().map(|row| row_size(row.get())).sum();
        let count = number(kept.len());
        for row in kept {
            log.insert(&[], log_position(row.get()), row);
        }
        let state = State::new(Arc::clone(&state.schema), indexes, Arc::new(log));
        self.replace_state(&writer, state);
        // Relaxed: numbers to report, written under the lock.
        self.row_count.store(count, Ordering::Relaxed);
        self.row_bytes.store(bytes, Ordering::Relaxed);
        deleted
    }

    /// Makes the series of an index from the live rows.
    fn build(&self, spec: &IndexSpec, snapshot: &Snapshot<'_>) -> Series {
        self.series_of(spec, &snapshot.live_handles().collect::<Vec<_>>())
    }

    /// Makes the series of an index from rows in order of arrival.
    fn series_of(&self, spec: &IndexSpec, rows: &[RowHandle]) -> Series {
        let event_time =
            |row: &RowHandle| state::event_time(spec, self.view(row.get()), row.get().arrival_ms());
        let mut rows: Vec<(i64, RowHandle)> =
            rows.iter().map(|row| (event_time(row), row.clone())).collect();
        // In order, every row is an append. Stable: equal event times stay in order of arrival.
        rows.sort_by_key(|(event_time, _)| *event_time);
        let series = Series::new();
        let mut key = Vec::new();
        for (event_time, row) in rows {
            state::encode_key(spec, self.view(row.get()), &mut key);
            series.insert(&key, event_time, row);
        }
        series
    }

    /// Removes every row. Snapshots taken before go on seeing them.
    pub fn truncate(&self) {
        let writer = self.writer.lock();
        self.replace_state(&writer, State::empty(self.schema()));
        // Relaxed: numbers to report, written under the lock.
        self.row_count.store(0, Ordering::Relaxed);
        self.row_bytes.store(0, Ordering::Relaxed);
    }

    /// A consistent view of the table as it is now.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        let guard = lockstep_series::pin();
        loop {
            // Acquire: pairs with the Release in `replace_state`.
            let state = self.state.load(Ordering::Acquire);
            // Acquire: pairs with the Release in `append`.
            let visible = self.visible.load(Ordering::Acquire);
            // Acquire: pairs with the Release in `replace_state`. When an index was added in between,
            // rows visible now might be missing from the older state.
            if self.state.load(Ordering::Acquire) != state {
                continue;
            }
            // After the state: it may lack rows that had expired when it was made.
            // Acquire: pairs with the Release in `note_horizon`.
            let now_ms = self.clock.now_ms().max(self.now_ms_min.load(Ordering::Acquire));
            let state = NonNull::new(state).expect("there is always a state");
            return Snapshot::new(self, guard, state, (visible, now_ms));
        }
    }

    /// Rows held in memory, among them expired rows that were not collected yet.
    pub fn row_count(&self) -> u64 {
        // Relaxed: a number to report.
        self.row_count.load(Ordering::Relaxed)
    }

    /// Bytes of memory held by rows and indexes, without the allocator's own overhead.
    pub fn memory_bytes(&self) -> u64 {
        let snapshot = self.snapshot();
        let state = snapshot.state();
        let series = state.indexes.iter().chain([&state.log]);
        // Relaxed: a number to report.
        self.row_bytes.load(Ordering::Relaxed)
            + series.map(|series| series.memory_bytes()).sum::<u64>()
    }

    /// Removes expired rows that no snapshot can see any more, and returns how many. While there
    /// are older snapshots, rows that expired since wait for a later call. Reads every row when
    /// rows can expire at all; readers go on, writers wait.
    pub fn collect_expired(&self) -> u64 {
        if self.snapshot().state().keeps_everything {
            return 0;
        }
        self.note_horizon();
        nudge_epochs();
        let horizon = self.horizon.lock().take();
        let removed = horizon.map_or(0, |horizon| self.collect(horizon));
        nudge_epochs();
        removed
    }

    /// Notes the present as the moment as of which rows may be removed once every snapshot that
    /// lives now is gone.
    fn note_horizon(&self) {
        let guard = lockstep_series::pin();
        let snapshot = self.snapshot();
        let noted = (snapshot.visible_arrival(), snapshot.now_ms());
        // Release: pairs with the Acquire in `snapshot`.
        self.now_ms_min.fetch_max(noted.1, Ordering::Release);
        let horizon = Arc::clone(&self.horizon);
        guard.defer(move || {
            let mut horizon = horizon.lock();
            *horizon = (*horizon).max(Some(noted));
        });
        guard.flush();
    }

    fn collect(&self, (visible, now_ms): (u64, i64)) -> u64 {
        let writer = self.writer.lock();
        let state = self.locked_state(&writer);
        let guard = lockstep_series::pin();
        let past = Snapshot::new(self, guard, NonNull::from(state), (visible, now_ms));
        let indexes = || state.schema.indexes.iter().zip(&state.indexes);
        for (spec, series) in indexes().filter(|(spec, _)| spec.declared) {
            trim(series, spec.retention, (visible, now_ms));
        }
        let mut key = Vec::new();
        let mut is_kept = |row: RowRef<'_>| row.arrival() >= visible || past.is_live(row, &mut key);
        for (_, series) in indexes().filter(|(spec, _)| !spec.declared) {
            retain_rows(series, &mut is_kept);
        }
        let mut bytes = 0;
        let removed = retain_rows(&state.log, &mut |row| {
            let kept = is_kept(row);
            bytes += if kept { 0 } else { row_size(row) };
            kept
        });
        // Relaxed: numbers to report, written under the lock.
        self.row_count.fetch_sub(number(removed), Ordering::Relaxed);
        self.row_bytes.fetch_sub(bytes, Ordering::Relaxed);
        number(removed)
    }

    /// A row of this table, decoded as it is read.
    #[inline]
    pub(crate) fn view<'a>(&'a self, row: RowRef<'a>) -> RowView<'a> {
        // SAFETY: every row of the table was encoded by its codec, which never changes.
        unsafe { self.codec.view_trusted(row.bytes()) }
    }

    /// The state, which cannot change while the lock is held.
    fn locked_state<'a>(&'a self, _writer: &MutexGuard<'_, Writer>) -> &'a State {
        // Relaxed: only the holder of the lock replaces it.
        // SAFETY: never null; it is retired only by `replace_state`, whose callers hold the lock
        // and do not use an earlier state after it.
        unsafe { &*self.state.load(Ordering::Relaxed) }
    }

    fn replace_state(&self, _writer: &MutexGuard<'_, Writer>, state: State) {
        let guard = lockstep_series::pin();
        // Release: pairs with the Acquire in `snapshot`.
        let old = self.state.swap(Box::into_raw(Box::new(state)), Ordering::Release);
        // SAFETY: it was unlinked just now under the lock, and is retired once.
        unsafe { guard.defer_unchecked(move || drop(Box::from_raw(old))) };
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: snapshots borrow the table, so there are none, and this is the only owner.
        drop(unsafe { Box::from_raw(*self.state.get_mut()) });
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

/// Removes the rows that a declared index does not keep, as of a moment.
fn trim(series: &Series, retention: Retention, (visible, now_ms): (u64, i64)) {
    if retention == Retention::Forever {
        return;
    }
    series.retain(|| {
        let mut n = 0;
        move |event_time, row: RowRef<'_>| {
            if row.arrival() >= visible {
                return true;
            }
            n += 1;
            !retention.is_expired(event_time, n, now_ms)
        }
    });
}

/// Keeps the rows of every key for which `is_kept` holds.
fn retain_rows(series: &Series, is_kept: &mut dyn FnMut(RowRef<'_>) -> bool) -> usize {
    let is_kept = std::cell::RefCell::new(is_kept);
    series.retain(|| |_, row: RowRef<'_>| (is_kept.borrow_mut())(row))
}

/// Asks the epoch collector to go on, as far as living guards let it.
fn nudge_epochs() {
    for _ in 0..EPOCH_NUDGES {
        lockstep_series::pin().flush();
    }
}

/// Where a row stands in the log.
fn log_position(row: RowRef<'_>) -> i64 {
    i64::try_from(row.arrival()).expect("fewer rows arrive than 63 bits can count")
}

/// Bytes that a stored row takes.
fn row_size(row: RowRef<'_>) -> u64 {
    number(RowHandle::OVERHEAD + row.bytes().len())
}

fn number(count: usize) -> u64 {
    u64::try_from(count).expect("a count fits 64 bits")
}
