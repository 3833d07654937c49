//! Appending rows. First they are prepared, outside of any lock: encoded, checked, and memory is
//! reserved for them. Then they are applied: they take arrivals, are inserted into the log and every
//! index, and become visible. Only `Table::apply` adds rows to a table.
//!
//! `engine` calls it. Several appends run at the same time; only taking arrivals and copying the
//! encoded rows to the log is done by one after the other.

use std::{cell::Cell, collections::BTreeSet, ops::Range, sync::atomic::Ordering};

use lockstep_host::{CallStep, failpoint, query};
use lockstep_row::{Datum, IndexSpec, TableSchema};
use lockstep_series::{Guard, HashedKey, KeyRow, LogPosition, RowBatch, RowRef, Series};
use lockstep_wal::Group;

use crate::{
    ReadError, Snapshot, Table, TableError,
    record::{ROWS, RowsPayload, rows_of},
    state::{self, Index, TableState},
    table::{SharedLock, number},
};

/// How many rows are inserted into an index together: their buckets and entries are prefetched first,
/// so that the cache misses overlap.
pub(crate) const GROUP_ROWS: usize = 16;
/// How many rows are inserted into the indexes under one guard. The late ones among them are inserted
/// together at the end, in order, so that each chunk is copied once for several of them; then what was
/// replaced can be freed. Meanwhile an append takes 10 MiB for three indexes.
const GUARD_ROWS: usize = 1 << 16;
/// After how many late rows the chunks that they replaced are freed, so that the next ones reuse their
/// memory.
const FREED_ROWS: usize = 32;
/// So often an append to a disk table waits until rows have left memory, before it is refused.
const FLUSHES_MAX: usize = 4;
/// After how many rows the call checks whether it was interrupted.
const CHECKPOINT_ROWS: u64 = 1 << 10;
/// Scratch memory of more bytes than this is not kept.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// The outcome of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended {
    /// The number of rows that were accepted.
    pub rows: u64,
    /// How many of these had expired already when they arrived: no declared index keeps them, and
    /// no reader sees them.
    pub expired: u64,
    /// Number of rows whose event time, a TIMESTAMP, is in [`LIKE_SECONDS`](crate::LIKE_SECONDS).
    pub like_seconds: u64,
}

/// Rows that were appended to the log just now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivedRows {
    /// The position of the first of them.
    pub(crate) position: LogPosition,
    pub(crate) count: usize,
    /// When they arrived.
    pub(crate) arrival_ms: i64,
}

/// The arrivals of batches: that of the first row of each.
#[derive(Debug)]
pub(crate) enum FirstArrivals {
    One(u64),
    Several(Vec<u64>),
}

impl FirstArrivals {
    fn get(&self, at: usize) -> u64 {
        match self {
            Self::One(first) => {
                debug_assert_eq!(at, 0, "there is one batch");
                *first
            }
            Self::Several(firsts) => firsts[at],
        }
    }

    pub(crate) fn first(&self) -> u64 {
        self.get(0)
    }

    pub(crate) fn last(&self) -> u64 {
        match self {
            Self::One(first) => *first,
            Self::Several(firsts) => *firsts.last().expect("there are batches"),
        }
    }
}

/// The arrivals and the time of arrival of batches.
#[derive(Debug)]
pub(crate) struct StampedRows {
    pub(crate) firsts: FirstArrivals,
    pub(crate) arrival_ms: i64,
}

/// Memory that an append uses, kept by the thread for the next one.
#[derive(Default)]
struct AppendScratch {
    batch: RowBatch,
    memory: ApplyMemory,
}

/// Memory that [`Table::apply`] uses.
#[derive(Debug, Default)]
pub(crate) struct ApplyMemory {
    pub(crate) group_keys: GroupKeys,
    payload: RowsPayload,
}

/// The keys of the rows of a group that is to be inserted.
#[derive(Debug, Default)]
pub(crate) struct GroupKeys {
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// For each row: the hash, and where the key is.
    hashed: Vec<(u64, Range<usize>)>,
}

/// The index into which a group of rows is inserted.
pub(crate) struct InsertTarget<'a, 'g> {
    pub(crate) spec: &'a IndexSpec,
    pub(crate) series: &'a Series,
    /// Where late rows are collected, with the position of the index; `None` to insert them at once.
    pub(crate) late: Option<(usize, &'a mut LateRows<'g>)>,
}

/// A row that is older than another one of its key in an index.
struct LateRow<'g> {
    /// The position of the index.
    index: usize,
    hash: u64,
    /// Where the key is.
    key: Range<usize>,
    /// The number of late rows before it: rows of one time are in order of arrival.
    place: usize,
    row: KeyRow<'g>,
}

/// Late rows, which are inserted after the other rows of their guard.
#[derive(Default)]
pub(crate) struct LateRows<'g> {
    rows: Vec<LateRow<'g>>,
    /// Their keys, one after the other.
    keys: Vec<u8>,
}

/// The bytes that a slot of an index is expected to take without its record, when memory is reserved.
pub(crate) const SLOT_BYTES: usize = 16;

/// Memory of the budget that is reserved for a write. When it is dropped, the reservation is replaced
/// by what the write took.
pub(crate) struct Reservation<'a> {
    table: &'a Table,
    bytes: u64,
    /// The bytes that the write took.
    grown: i64,
}

impl<'a> Reservation<'a> {
    /// Reserves nothing, for rows that are stored whatever the limit: they had been accepted.
    pub(crate) fn of_restored(table: &'a Table) -> Self {
        Self { table, bytes: 0, grown: 0 }
    }

    /// Adds to what the write took.
    pub(crate) fn add(&mut self, grown: i64) {
        self.grown += grown;
    }

    /// Reserves so many bytes.
    pub(crate) fn new(table: &'a Table, bytes: u64) -> Result<Self, TableError> {
        if table.budget.reserve(bytes) {
            return Ok(Self { table, bytes, grown: 0 });
        }
        Err(table.budget.refuse(bytes))
    }

    /// Merges another reservation of the same table into this one.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.grown += std::mem::take(&mut other.grown);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.table.charge(self.grown, self.bytes);
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<AppendScratch>>> = const { Cell::new(None) };
}

/// Calls `body` with the thread's scratch memory, empty.
fn with_scratch<T>(body: impl FnOnce(&mut AppendScratch) -> T) -> T {
    // An append that `body` calls in turn finds none, and makes its own.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.batch.clear();
    let result = body(&mut scratch);
    let memory = &scratch.memory;
    let bytes = memory.group_keys.keys.capacity() + memory.payload.capacity_bytes();
    if scratch.batch.capacity_bytes() + bytes <= SCRATCH_BYTES_MAX {
        SCRATCH.set(Some(scratch));
    }
    result
}

impl Table {
    /// Appends rows, all or none. They become visible at once, in every index, unless the thread's
    /// call is interrupted before. An empty append takes no arrival. An event time may be NULL,
    /// which sorts before every other and has expired wherever an index keeps rows for a time.
    pub fn append<'r, R>(&self, rows: R) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        self.append_checked(rows, |_, _| Ok(()))
    }

    /// Appends rows like [`Self::append`], but refuses them when an event time of a declared index
    /// is NULL or negative.
    pub fn append_timed<'r, R>(&self, rows: R) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        self.append_checked(rows, |state, batch| self.check_event_times(&state.schema, batch, 0))
    }

    /// Appends rows that `check` accepts.
    fn append_checked<'r, R>(
        &self,
        rows: R,
        check: impl FnOnce(&TableState, &RowBatch) -> Result<(), TableError>,
    ) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch, 0)?;
            // Before any lock: the check for interrupts may run any code.
            let _commit = query::commit().map_err(TableError::Interrupted)?;
            let (shared, mut reservation) = self.begin(&scratch.batch)?;
            let state = self.shared_state(&shared);
            check(state, &scratch.batch)?;
            let AppendScratch { batch, memory } = scratch;
            self.apply_prepared(state, batch, memory, &mut reservation)
        })
    }

    /// Appends the rows that are not stored yet, with the checks of [`Self::append_timed`], and returns
    /// how many those are. Reads, for each row, the rows of its key in the first declared index; the
    /// whole table when there is none.
    pub fn append_absent<'r, R>(&self, rows: R) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch, 0)?;
            let mut taken = BTreeSet::new();
            self.append_retained(scratch, |_, snapshot, row| {
                Ok(taken.insert(row.bytes().to_vec()) && !snapshot.contains(row)?)
            })
        })
    }

    /// Appends the rows with keys that no stored row has, and of several with one key the first, with the
    /// checks of [`Self::append_timed`]. Returns how many those are. The keys are those of the declared
    /// indexes that keep one row of each; `columns`: of those over these columns, in any order.
    pub fn append_new_keys<'r, R>(
        &self,
        rows: R,
        columns: Option<&[usize]>,
    ) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            debug_assert!(columns.is_none_or(|columns| !columns.is_empty()), "a key has columns");
            self.encode(rows, &mut scratch.batch, 0)?;
            let mut taken = BTreeSet::new();
            self.append_retained(scratch, |schema, snapshot, row| {
                let unique = schema.indexes.iter().enumerate().filter(|(_, spec)| {
                    spec.keeps_one_row() && columns.is_none_or(|columns| spec.has_keys(columns))
                });
                let keys = unique.map(|(index, spec)| {
                    let mut key = Vec::new();
                    state::encode_key(spec, self.view(row), &mut key);
                    (index, key)
                });
                let keys: Vec<_> = keys.collect();
                let is_any_taken = keys.iter().try_fold(false, |any, key| {
                    Ok(any || taken.contains(key) || snapshot.contains_key(key.0, &key.1)?)
                });
                if is_any_taken? {
                    return Ok(false);
                }
                taken.extend(keys);
                Ok(true)
            })
        })
    }

    /// Appends the encoded rows that `retains` accepts, alone: nothing else is written meanwhile.
    fn append_retained(
        &self,
        scratch: &mut AppendScratch,
        mut retains: impl FnMut(&TableSchema, &Snapshot<'_>, RowRef<'_>) -> Result<bool, ReadError>,
    ) -> Result<Appended, TableError> {
        let _commit = query::commit().map_err(TableError::Interrupted)?;
        let exclusive = self.lock_exclusive();
        self.check_open()?;
        let state = self.exclusive_state(&exclusive);
        let AppendScratch { batch, memory } = scratch;
        self.check_event_times(&state.schema, batch, 0)?;
        {
            let snapshot = self.snapshot();
            let mut failed = None;
            batch.retain(|row| {
                if failed.is_some() {
                    return false;
                }
                let is_retained = retains(&state.schema, &snapshot, row);
                is_retained.unwrap_or_else(|error| {
                    failed = Some(error);
                    false
                })
            });
            if let Some(error) = failed {
                return Err(error.into());
            }
        }
        let reservation = self.try_reserve(state, batch);
        let mut reservation = reservation.map_err(|bytes| self.budget.refuse(bytes))?;
        self.apply_prepared(state, batch, memory, &mut reservation)
    }

    /// Encodes rows behind those of a batch; the first has the number after `row_number`.
    pub(crate) fn encode<'r, R>(
        &self,
        rows: R,
        batch: &mut RowBatch,
        row_number: u64,
    ) -> Result<(), TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        for (row, row_number) in rows.into_iter().zip(row_number + 1..) {
            batch
                .push(|out| self.codec.encode(row.as_ref(), out))
                .map_err(|source| TableError::Row { row_number, source })?;
            if row_number % CHECKPOINT_ROWS == 0 {
                query::checkpoint().map_err(TableError::Interrupted)?;
            }
        }
        Ok(())
    }

    /// Checks the event times of the declared indexes; the first row has the number after
    /// `row_number`.
    pub(crate) fn check_event_times(
        &self,
        schema: &TableSchema,
        batch: &RowBatch,
        row_number: u64,
    ) -> Result<(), TableError> {
        for spec in schema.indexes.iter().filter(|spec| spec.declared) {
            for (row, row_number) in batch.rows().zip(row_number + 1..) {
                state::check_event_time(schema, spec, self.view(row), row_number)?;
            }
        }
        Ok(())
    }

    /// Reserves memory for rows and locks the state. Removes expired rows before when it is time to, or
    /// when the budget is exhausted.
    fn begin(&self, batch: &RowBatch) -> Result<(SharedLock<'_>, Reservation<'_>), TableError> {
        self.wait_for_flush(number(batch.stored_size()));
        self.begin_now(batch)
    }

    /// Does what [`Self::begin`] does without waiting for a flush.
    fn begin_now(&self, batch: &RowBatch) -> Result<(SharedLock<'_>, Reservation<'_>), TableError> {
        self.collect_in_time();
        let shared = self.lock_shared();
        self.check_open()?;
        if let Ok(reservation) = self.try_reserve(self.shared_state(&shared), batch) {
            return Ok((shared, reservation));
        }
        drop(shared);
        self.collect_for_memory();
        // Frees what was replaced or removed and is still charged.
        lockstep_series::reclaim();
        let shared = self.lock_shared();
        self.check_open()?;
        if let Ok(reservation) = self.try_reserve(self.shared_state(&shared), batch) {
            return Ok((shared, reservation));
        }
        drop(shared);
        self.budget.give_up_levels();
        let mut flushes = 0;
        loop {
            let shared = self.lock_shared();
            self.check_open()?;
            let bytes = match self.try_reserve(self.shared_state(&shared), batch) {
                Ok(reservation) => return Ok((shared, reservation)),
                Err(bytes) => bytes,
            };
            let has_rows = self.shared_state(&shared).disk.is_some();
            drop(shared);
            // Rows that other appends have added meanwhile are flushed by the next one.
            flushes += 1;
            if !has_rows || flushes > FLUSHES_MAX || !self.budget.flush() {
                return Err(self.budget.refuse(bytes));
            }
            lockstep_series::reclaim();
        }
    }

    /// Counts rows that come into a disk table, and waits while more have come than the next flush is to take.
    fn wait_for_flush(&self, bytes: u64) {
        if !self.is_on_disk() {
            return;
        }
        // Relaxed, here and below: the number itself is all that is shared.
        let before = self.unfrozen_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > self.budget.unfrozen_max() && !self.budget.flush() {
            // Files cannot be written now: the budget alone limits the rows.
            self.unfrozen_bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Reserves memory as an append does, for rows that are applied later.
    pub(crate) fn reserve(&self, batch: &RowBatch) -> Result<Reservation<'_>, TableError> {
        // They are in no log yet, which a flush would take them from.
        Ok(self.begin_now(batch)?.1)
    }

    /// Reserves memory for rows. Fails with the bytes that they need.
    pub(crate) fn try_reserve(
        &self,
        state: &TableState,
        batch: &RowBatch,
    ) -> Result<Reservation<'_>, u64> {
        let slot = |index: &Index| SLOT_BYTES + index.projection.size();
        let slots = state.present().map(|(_, (_, index))| slot(index)).sum::<usize>();
        let bytes = number(batch.stored_size() + batch.len() * slots);
        if batch.is_empty() || self.budget.reserve(bytes) {
            return Ok(Reservation { table: self, bytes, grown: 0 });
        }
        Err(bytes)
    }

    /// Applies a batch, in parts where it is too large for one record of the log.
    fn apply_prepared(
        &self,
        state: &TableState,
        batch: &mut RowBatch,
        memory: &mut ApplyMemory,
        reservation: &mut Reservation<'_>,
    ) -> Result<Appended, TableError> {
        let part_bytes = self.arrivals.part_bytes();
        if self.log().is_none() || batch.stored_size() <= part_bytes {
            return self.apply(state, std::slice::from_mut(batch), memory, reservation);
        }
        let mut parts = std::mem::take(batch).split(part_bytes);
        self.apply(state, &mut parts, memory, reservation)
    }

    /// Gives prepared rows their arrivals and makes them visible, all at once. The state cannot change
    /// meanwhile. Of several batches each is freed as soon as it is stored. Where there is a log, the
    /// rows are in it before they are stored, and as durable as they are to be before they are visible.
    pub(crate) fn apply(
        &self,
        state: &TableState,
        batches: &mut [RowBatch],
        memory: &mut ApplyMemory,
        reservation: &mut Reservation<'_>,
    ) -> Result<Appended, TableError> {
        let count = batches.iter().map(RowBatch::len).sum::<usize>();
        if count == 0 {
            return Ok(Appended::default());
        }
        let ApplyMemory { group_keys, payload } = memory;
        let like_seconds = self.count_like_seconds(state, batches);
        let now_ms = self.clock.now_ms();
        if let (Some(log), [batch]) = (self.log(), &*batches) {
            payload.set(log.table, now_ms, batch);
        }
        // Dropped after the lock of the queue, which it takes when what follows panics.
        let in_flight;
        let arrived = {
            let mut queue = self.commit_queue.lock().ok_or_else(|| self.damaged())?;
            let arrival_ms = queue.arrival_ms(now_ms);
            let firsts = self.take_arrivals(batches, arrival_ms, payload)?;
            let last = batches.last().map_or(0, RowBatch::len);
            let end = firsts.last() + number(last);
            in_flight = queue.take_from(firsts.first(), end);
            let stamped = StampedRows { firsts, arrival_ms };
            failpoint::reach("table.rows_logged");
            self.store(state, batches, &stamped, reservation)
        };
        self.insert_everywhere(state, group_keys, arrived, reservation, |_| true);
        failpoint::reach("table.rows_stored");
        let mut durable = 0;
        if let Some(log) = self.log() {
            if log.waits_for_disk() {
                in_flight.stored();
            }
            // Dropped in flight when it fails: nothing that was not logged becomes visible.
            log.wait(in_flight.end()).map_err(TableError::Log)?;
            durable = log.log.durable_end();
        }
        if !in_flight.commit(durable) {
            return Err(self.damaged());
        }
        self.note_appended(count);
        let expired = self.count_expired(state, arrived);
        Ok(Appended { rows: number(count), expired, like_seconds })
    }

    /// Counts appended rows, after some of which expired ones are searched for.
    pub(crate) fn note_appended(&self, count: usize) {
        // Relaxed: when exactly a collection happens does not matter.
        self.rows_until_collection.fetch_sub(signed(count), Ordering::Relaxed);
    }

    /// Returns why the table takes no rows although it is not full.
    pub(crate) fn damaged(&self) -> TableError {
        // A log that has stopped says so, whatever became of the appends that waited for it.
        match self.log().map(|log| log.log.check()) {
            Some(Err(error)) => TableError::Log(error.into()),
            _ => TableError::Damaged,
        }
    }

    /// Takes the arrivals of batches, from the log where there is one.
    fn take_arrivals(
        &self,
        batches: &[RowBatch],
        arrival_ms: i64,
        payload: &mut RowsPayload,
    ) -> Result<FirstArrivals, TableError> {
        match (self.log(), batches) {
            (None, _) => {
                let count = batches.iter().map(RowBatch::len).sum::<usize>();
                let first = self.arrivals.take(number(count));
                if let [_] = batches {
                    return Ok(FirstArrivals::One(first));
                }
                let mut next = first;
                let firsts = batches.iter().map(|batch| {
                    let first = next;
                    next += number(batch.len());
                    first
                });
                Ok(FirstArrivals::Several(firsts.collect()))
            }
            (Some(log), [batch]) => {
                if payload.arrival_ms() != arrival_ms {
                    payload.set_arrival_ms(arrival_ms);
                }
                let group = Group::of(ROWS, rows_of(batch), payload.bytes());
                let mut positions = log.log.append(&group, &mut |_| ());
                if failpoint::is_seeded("rows_logged_twice") {
                    positions = log.log.append(&group, &mut |_| ());
                }
                let positions = positions.map_err(|error| TableError::Log(error.into()))?;
                Ok(FirstArrivals::One(positions.start))
            }
            (Some(log), _) => {
                let firsts = log.append_batches(batches, arrival_ms).map_err(TableError::Log)?;
                Ok(FirstArrivals::Several(firsts))
            }
        }
    }

    /// Copies batches to the table's rows, under the lock of the commit queue.
    pub(crate) fn store(
        &self,
        state: &TableState,
        batches: &mut [RowBatch],
        stamped: &StampedRows,
        reservation: &mut Reservation<'_>,
    ) -> ArrivedRows {
        let (mut start, mut count) = (None, 0);
        let are_several = batches.len() > 1;
        for (at, batch) in batches.iter_mut().enumerate().filter(|(_, batch)| !batch.is_empty()) {
            let first = stamped.firsts.get(at);
            let (position, grown) = state.log.append(batch, first, stamped.arrival_ms);
            start.get_or_insert(position);
            count += batch.len();
            reservation.grown += grown;
            if are_several {
                *batch = RowBatch::default();
            }
        }
        let position = start.expect("there are rows");
        ArrivedRows { position, count, arrival_ms: stamped.arrival_ms }
    }

    /// Inserts the rows of an append into every series, where `is_inserted` says so for the hash of
    /// their key.
    pub(crate) fn insert_everywhere(
        &self,
        state: &TableState,
        group_keys: &mut GroupKeys,
        ArrivedRows { mut position, count, arrival_ms }: ArrivedRows,
        reservation: &mut Reservation<'_>,
        is_inserted: impl Fn(u64) -> bool,
    ) {
        let mut left = count;
        while left > 0 {
            if count > GUARD_ROWS {
                query::report(CallStep::InsertRows, number(count - left), number(count));
            }
            let guard = lockstep_series::pin();
            let mut rows = state.log.rows_from(position, &guard);
            let mut guarded = left.min(GUARD_ROWS);
            left -= guarded;
            let mut late = LateRows::default();
            while guarded > 0 {
                let mut group = [None; GROUP_ROWS];
                let count = guarded.min(GROUP_ROWS);
                group[..count].fill_with(|| rows.next_row());
                guarded -= count;
                for (at, (spec, index)) in state.present() {
                    #[cfg(test)]
                    crate::tests::damage::before_index(at);
                    let group = group[..count].iter().flatten().copied();
                    let timed = group
                        .map(|row| (state::event_time(spec, self.view(row), || arrival_ms), row));
                    let late = Some((at, &mut late));
                    let target = InsertTarget { spec, series: &index.series, late };
                    reservation.grown +=
                        self.insert_chosen(target, timed, group_keys, &guard, &is_inserted);
                }
            }
            position = rows.position();
            reservation.grown += insert_late_rows(state, late, &guard);
        }
    }

    /// Inserts rows with their event times into a series, and returns how many bytes more it takes. The
    /// rows are in the log of the state to which the series belongs, or will belong. Late rows are
    /// collected where the target says so.
    pub(crate) fn insert_group<'g>(
        &self,
        target: InsertTarget<'_, 'g>,
        rows: impl Iterator<Item = (i64, RowRef<'g>)> + Clone,
        group_keys: &mut GroupKeys,
        guard: &Guard,
    ) -> i64 {
        self.insert_chosen(target, rows, group_keys, guard, &|_| true)
    }

    /// Inserts rows as [`Self::insert_group`] does, those for the hash of whose key `is_inserted` holds.
    fn insert_chosen<'g>(
        &self,
        target: InsertTarget<'_, 'g>,
        rows: impl Iterator<Item = (i64, RowRef<'g>)> + Clone,
        group_keys: &mut GroupKeys,
        guard: &Guard,
        is_inserted: &impl Fn(u64) -> bool,
    ) -> i64 {
        let InsertTarget { spec, series, mut late } = target;
        group_keys.keys.clear();
        group_keys.hashed.clear();
        for (_, row) in rows.clone() {
            let start = group_keys.keys.len();
            state::encode_key(spec, self.view(row), &mut group_keys.keys);
            let key = start..group_keys.keys.len();
            let hash = series.hash(&group_keys.keys[key.clone()]);
            if is_inserted(hash) {
                series.prefetch(hash, guard);
            }
            group_keys.hashed.push((hash, key));
        }
        if group_keys.hashed.len() > 1 {
            for (hash, _) in group_keys.hashed.iter().filter(|(hash, _)| is_inserted(*hash)) {
                series.prefetch_entry(*hash, guard);
            }
        }
        let mut grown = 0;
        for ((hash, key), (event_time, row)) in group_keys.hashed.iter().zip(rows) {
            if !is_inserted(*hash) {
                continue;
            }
            let key = HashedKey { hash: *hash, key: &group_keys.keys[key.clone()] };
            let row = KeyRow { event_time, row };
            // SAFETY: the row is in the state's log, whose blocks are retired only after no series points
            // to their rows, or together with the series (`retention`, `change`).
            grown += unsafe {
                match &mut late {
                    None => series.insert(key, row, guard),
                    Some((index, late)) => {
                        let inserted = series.insert_newest(key, row, guard);
                        inserted.unwrap_or_else(|| {
                            late.push(*index, key, row);
                            0
                        })
                    }
                }
            };
        }
        grown
    }
}

impl<'g> LateRows<'g> {
    /// Adds a row of an index.
    fn push(&mut self, index: usize, key: HashedKey<'_>, row: KeyRow<'g>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key.key);
        let (key, hash, place) = (start..self.keys.len(), key.hash, self.rows.len());
        self.rows.push(LateRow { index, hash, key, place, row });
    }
}

/// Inserts late rows into the series, those of a key together, and returns how many bytes more these
/// take.
fn insert_late_rows(state: &TableState, late: LateRows<'_>, guard: &Guard) -> i64 {
    let LateRows { mut rows, keys } = late;
    let key = |late: &LateRow<'_>| &keys[late.key.clone()];
    let position = |late: &LateRow<'_>| (late.row.event_time, late.place);
    rows.sort_unstable_by_key(|late| ((late.index, late.hash), position(late)));
    let mut grown = 0;
    let (mut run, mut replaced) = (Vec::new(), 0);
    for alike in rows.chunk_by_mut(|one, other| (one.index, one.hash) == (other.index, other.hash))
    {
        if alike.iter().any(|late| key(late) != key(&alike[0])) {
            // Two keys have the same hash.
            alike.sort_unstable_by_key(|late| (key(late), position(late)));
        }
        for rows in alike.chunk_by(|one, other| key(one) == key(other)) {
            if replaced >= FREED_ROWS {
                replaced = 0;
                // SAFETY: only rows of the log are used further, which are not replaced while an append
                // holds the schema lock.
                unsafe { guard.free_retired() };
            }
            replaced += rows.len();
            run.clear();
            run.extend(rows.iter().map(|late| late.row));
            let LateRow { index, hash, .. } = rows[0];
            let hashed = HashedKey { hash, key: key(&rows[0]) };
            // SAFETY: as in `insert_group`.
            grown += unsafe { state.indexes[index].series.insert_late(hashed, &run, guard) };
        }
    }
    grown
}

/// Converts a count to a signed one.
fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a count fits 63 bits")
}
