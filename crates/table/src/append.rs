//! Appending rows: first they are prepared, which is to encode, check and reserve, outside of any
//! lock; then applied, which is to take arrivals, go into the log and every index, and become
//! visible. `Table::apply` is the only way in which rows come into a table.
//!
//! `engine` calls it. Several appends go on at the same time; only taking arrivals and copying the
//! encoded rows into the log is done one after the other.

use std::{cell::Cell, collections::BTreeSet, ops::Range, sync::atomic::Ordering};

use lockstep_host::query;
use lockstep_row::{Datum, IndexSpec, TableSchema};
use lockstep_series::{Guard, HashedKey, KeyRow, LogPosition, RowBatch, RowRef, Series};

use crate::{
    Table, TableError,
    state::{self, Index, State},
    table::{Shared, number},
};

/// How many rows are put into an index together: their memory is asked for first, so that the
/// waits for it overlap.
pub(crate) const GROUP_ROWS: usize = 16;
/// How many rows are put into the indexes under one guard. The late ones among them go in together
/// at the end, in order, so that what they replace is copied once; then it can be freed. So of a
/// large append with many late rows a chunk takes several at a time; 10 MiB are held for three
/// indexes meanwhile.
const GUARD_ROWS: usize = 1 << 16;
/// After how many late rows what they replaced is freed, so that the allocator has it at hand for
/// the next ones.
const FREED_ROWS: usize = 32;
/// After how many rows it is asked whether to go on.
const CHECKPOINT_ROWS: u64 = 1 << 10;
/// A scratch that holds on to more bytes than this is not kept.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// What an append came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended {
    /// Rows that were accepted.
    pub rows: u64,
    /// How many of these had expired already when they arrived: no declared index keeps them, and
    /// no reader sees them.
    pub expired: u64,
}

/// Rows that are in the log since a moment ago.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivedRows {
    /// Where the first of them lies.
    pub(crate) position: LogPosition,
    pub(crate) count: usize,
    /// When they arrived.
    pub(crate) arrival_ms: i64,
}

/// What an append needs besides the table; kept by the thread for the next one.
#[derive(Default)]
struct Scratch {
    batch: RowBatch,
    lookup: Lookup,
}

/// What is known of the rows of a group before they are inserted.
#[derive(Default)]
pub(crate) struct Lookup {
    /// The keys, one after the other.
    keys: Vec<u8>,
    /// For each row: hash, where the key is.
    pending: Vec<(u64, Range<usize>)>,
}

/// A row that is older than another one of its key in an index.
struct Late<'g> {
    /// The position of the index.
    index: usize,
    hash: u64,
    /// Where the key is.
    key: Range<usize>,
    row: KeyRow<'g>,
}

/// Late rows that wait until the others of their guard are in the indexes.
#[derive(Default)]
pub(crate) struct LateRows<'g> {
    rows: Vec<Late<'g>>,
    /// Their keys, one after the other.
    keys: Vec<u8>,
}

/// What a slot of an index is expected to take without its record, when a write asks for room.
pub(crate) const SLOT_BYTES: usize = 16;

/// Room in the memory budget, taken for a write; given back, or settled with what the write took,
/// when it is dropped.
pub(crate) struct Room<'a> {
    table: &'a Table,
    bytes: u64,
    /// What the write took.
    grown: i64,
}

impl<'a> Room<'a> {
    /// Takes so many bytes.
    pub(crate) fn take(table: &'a Table, bytes: u64) -> Result<Self, TableError> {
        if table.budget.reserve(bytes) {
            return Ok(Self { table, bytes, grown: 0 });
        }
        Err(table.budget.refuse(bytes))
    }

    /// Adds another room of the same table.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.grown += std::mem::take(&mut other.grown);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.table.charge(self.grown, self.bytes);
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lends the thread's scratch, empty.
fn with_scratch<T>(body: impl FnOnce(&mut Scratch) -> T) -> T {
    // What the caller's rows call in turn finds none, and makes its own.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.batch.clear();
    let result = body(&mut scratch);
    if scratch.batch.capacity_bytes() + scratch.lookup.keys.capacity() <= SCRATCH_BYTES_MAX {
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

    fn append_checked<'r, R>(
        &self,
        rows: R,
        check: impl FnOnce(&State, &RowBatch) -> Result<(), TableError>,
    ) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch, 0)?;
            // Before any lock: who is asked may run anything.
            let _commit = query::commit().map_err(TableError::Interrupted)?;
            let (shared, mut room) = self.begin(&scratch.batch)?;
            let state = self.shared_state(&shared);
            check(state, &scratch.batch)?;
            let Scratch { batch, lookup } = scratch;
            self.apply(state, std::slice::from_mut(batch), lookup, &mut room)
        })
    }

    /// Appends the rows that are not stored yet, with the checks of [`Self::append_timed`]; those
    /// are the rows that it returns. Reads, for each row, the rows of its key in the first declared
    /// index; the whole table when there is none.
    pub fn append_absent<'r, R>(&self, rows: R) -> Result<Appended, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch, 0)?;
            let _commit = query::commit().map_err(TableError::Interrupted)?;
            let alone = self.alone();
            self.check_open()?;
            let state = self.sole_state(&alone);
            let Scratch { batch, lookup } = scratch;
            self.check_event_times(&state.schema, batch, 0)?;
            {
                let snapshot = self.snapshot();
                let mut taken = BTreeSet::new();
                batch.retain(|row| taken.insert(row.bytes().to_vec()) && !snapshot.holds(row));
            }
            let room = self.take_room(state, batch);
            let mut room = room.map_err(|bytes| self.budget.refuse(bytes))?;
            self.apply(state, std::slice::from_mut(batch), lookup, &mut room)
        })
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

    /// Takes room in the memory budget for rows, and looks for expired ones when it is time to, or
    /// when there is no room.
    fn begin(&self, batch: &RowBatch) -> Result<(Shared<'_>, Room<'_>), TableError> {
        self.collect_in_time();
        let shared = self.share();
        self.check_open()?;
        if let Ok(room) = self.take_room(self.shared_state(&shared), batch) {
            return Ok((shared, room));
        }
        drop(shared);
        self.make_room();
        // What was replaced or removed and is still charged.
        lockstep_series::reclaim();
        let shared = self.share();
        self.check_open()?;
        match self.take_room(self.shared_state(&shared), batch) {
            Ok(room) => Ok((shared, room)),
            Err(bytes) => Err(self.budget.refuse(bytes)),
        }
    }

    /// Takes room as an append does, for rows that come later.
    pub(crate) fn reserve(&self, batch: &RowBatch) -> Result<Room<'_>, TableError> {
        Ok(self.begin(batch)?.1)
    }

    /// Takes room in the memory budget for rows, or says how much they need.
    pub(crate) fn take_room(&self, state: &State, batch: &RowBatch) -> Result<Room<'_>, u64> {
        let slot = |index: &Index| SLOT_BYTES + index.projection.size();
        let slots = state.present().map(|(_, (_, index))| slot(index)).sum::<usize>();
        let bytes = number(batch.stored_size() + batch.len() * slots);
        if batch.is_empty() || self.budget.reserve(bytes) {
            return Ok(Room { table: self, bytes, grown: 0 });
        }
        Err(bytes)
    }

    /// Gives prepared rows their arrival and makes them visible, all at once. The state cannot
    /// change meanwhile. Of several batches each is given up as soon as it is in the log.
    pub(crate) fn apply(
        &self,
        state: &State,
        batches: &mut [RowBatch],
        lookup: &mut Lookup,
        room: &mut Room<'_>,
    ) -> Result<Appended, TableError> {
        let count = batches.iter().map(RowBatch::len).sum::<usize>();
        if count == 0 {
            return Ok(Appended::default());
        }
        let in_flight;
        let mut arrived = None;
        {
            // Dropped before what is in flight, which takes the turn's lock when what follows panics.
            let mut turn = self.sequence.turn().ok_or(TableError::Damaged)?;
            let arrival_ms = turn.arrival_ms(self.clock.now_ms());
            let mut next = self.arrivals.take(number(count));
            in_flight = turn.take(next + number(count));
            let are_several = batches.len() > 1;
            for batch in batches.iter_mut().filter(|batch| !batch.is_empty()) {
                let (position, grown) = state.log.append(batch, next, arrival_ms);
                arrived.get_or_insert(ArrivedRows { position, count, arrival_ms });
                next += number(batch.len());
                room.grown += grown;
                if are_several {
                    *batch = RowBatch::default();
                }
            }
        }
        let arrived = arrived.expect("there are rows");
        self.publish(state, lookup, arrived, room);
        if !in_flight.end() {
            return Err(TableError::Damaged);
        }
        // Relaxed: when exactly a collection happens does not matter.
        self.until_collection.fetch_sub(signed(count), Ordering::Relaxed);
        Ok(Appended { rows: number(count), expired: self.count_expired(state, arrived) })
    }

    /// Puts the rows of an append into every series.
    fn publish(
        &self,
        state: &State,
        lookup: &mut Lookup,
        ArrivedRows { mut position, count, arrival_ms }: ArrivedRows,
        room: &mut Room<'_>,
    ) {
        let mut left = count;
        while left > 0 {
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
                    let into = (spec, &*index.series);
                    let with = (&mut *lookup, Some((at, &mut late)), &guard);
                    room.grown += self.insert_group(into, timed, with);
                }
            }
            position = rows.position();
            room.grown += publish_late(state, late, &guard);
        }
    }

    /// Puts some rows with their event times into a series, and returns how many bytes more it
    /// takes. The rows are in a log that the series shares a state with, or will. Late rows are put
    /// beside, where there is a place for them, with the position of the index.
    pub(crate) fn insert_group<'g>(
        &self,
        (spec, series): (&IndexSpec, &Series),
        rows: impl Iterator<Item = (i64, RowRef<'g>)> + Clone,
        (lookup, mut late, guard): (&mut Lookup, Option<(usize, &mut LateRows<'g>)>, &Guard),
    ) -> i64 {
        lookup.keys.clear();
        lookup.pending.clear();
        for (_, row) in rows.clone() {
            let start = lookup.keys.len();
            state::encode_key(spec, self.view(row), &mut lookup.keys);
            let key = start..lookup.keys.len();
            let hash = series.hash(&lookup.keys[key.clone()]);
            series.prefetch(hash, guard);
            lookup.pending.push((hash, key));
        }
        if lookup.pending.len() > 1 {
            for (hash, _) in &lookup.pending {
                series.prefetch_entry(*hash, guard);
            }
        }
        let mut grown = 0;
        for ((hash, key), (event_time, row)) in lookup.pending.iter().zip(rows) {
            let key = HashedKey { hash: *hash, key: &lookup.keys[key.clone()] };
            let row = KeyRow { event_time, row };
            // SAFETY: the row is in the state's log, whose blocks are retired only after every
            // series leads to none of their rows, or together with the series (`retention`,
            // `change`).
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
    fn push(&mut self, index: usize, key: HashedKey<'_>, row: KeyRow<'g>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key.key);
        self.rows.push(Late { index, hash: key.hash, key: start..self.keys.len(), row });
    }
}

/// Puts late rows into the series, those of a key together, and returns how many bytes more these
/// take.
fn publish_late(state: &State, late: LateRows<'_>, guard: &Guard) -> i64 {
    let LateRows { mut rows, keys } = late;
    let key = |late: &Late<'_>| &keys[late.key.clone()];
    // Rows arrive in the order in which their keys were written.
    let position = |late: &Late<'_>| (late.row.event_time, late.key.start);
    rows.sort_unstable_by_key(|late| ((late.index, late.hash), position(late)));
    let mut grown = 0;
    let (mut run, mut replaced) = (Vec::new(), 0);
    for alike in rows.chunk_by_mut(|one, other| (one.index, one.hash) == (other.index, other.hash))
    {
        if alike.iter().any(|late| key(late) != key(&alike[0])) {
            // Two keys have one hash.
            alike.sort_unstable_by_key(|late| (key(late), position(late)));
        }
        for rows in alike.chunk_by(|one, other| key(one) == key(other)) {
            if replaced >= FREED_ROWS {
                replaced = 0;
                // SAFETY: what is used further are rows of the log, which are not replaced while an
                // append shares the gate.
                unsafe { guard.free_retired() };
            }
            replaced += rows.len();
            run.clear();
            run.extend(rows.iter().map(|late| late.row));
            let Late { index, hash, .. } = rows[0];
            let place = HashedKey { hash, key: key(&rows[0]) };
            // SAFETY: as in `insert_group`.
            grown += unsafe { state.indexes[index].series.insert_late(place, &run, guard) };
        }
    }
    grown
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a count fits 63 bits")
}
