//! Appending rows: encode, take a place in the log, go into every index, become visible.
//!
//! `engine` calls it. Several appends go on at the same time; only taking arrivals and copying the
//! encoded rows into the log is done one after the other.

use std::{cell::Cell, collections::BTreeSet, ops::Range, sync::atomic::Ordering};

use lockstep_row::{Datum, IndexSpec};
use lockstep_series::{Guard, LogPosition, RowBatch, RowRef, Series};

use crate::{
    Table, TableError,
    state::{self, Index, State},
    table::{Shared, number},
};

/// How many rows are put into an index together: their memory is asked for first, so that the
/// waits for it overlap.
pub(crate) const GROUP_ROWS: usize = 16;
/// After how many rows the epoch collector is let go on.
const GUARD_ROWS: usize = 256;
/// A scratch that holds on to more bytes than this is not kept.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

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

    /// Settles it with what the write took.
    pub(crate) fn end(mut self, grown: i64) {
        self.grown = grown;
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
    /// Appends rows, all or none, and returns how many. They become visible at once, in every
    /// index. An empty append takes no arrival. An event time may be NULL, which sorts before
    /// every other and has expired wherever an index keeps rows for a time.
    pub fn append<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch)?;
            let (shared, room) = self.begin(&scratch.batch)?;
            Ok(self.store(self.shared_state(&shared), scratch, room))
        })
    }

    /// Appends rows like [`Self::append`], but refuses them when an event time of a declared index
    /// is NULL or negative.
    pub fn append_timed<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch)?;
            let (shared, room) = self.begin(&scratch.batch)?;
            let state = self.shared_state(&shared);
            self.check_event_times(state, &scratch.batch)?;
            Ok(self.store(state, scratch, room))
        })
    }

    /// Appends the rows that are not stored yet, with the checks of [`Self::append_timed`], and
    /// returns how many they are. Reads, for each row, the rows of its key in the first declared
    /// index; the whole table when there is none.
    pub fn append_absent<'r, R>(&self, rows: R) -> Result<u64, TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        with_scratch(|scratch| {
            self.encode(rows, &mut scratch.batch)?;
            let alone = self.alone();
            self.check_open()?;
            let state = self.sole_state(&alone);
            self.check_event_times(state, &scratch.batch)?;
            {
                let snapshot = self.snapshot();
                let mut taken = BTreeSet::new();
                scratch
                    .batch
                    .retain(|row| taken.insert(row.bytes().to_vec()) && !snapshot.holds(row));
            }
            let room = self.take_room(state, &scratch.batch);
            let room = room.map_err(|bytes| self.budget.refuse(bytes))?;
            Ok(self.store(state, scratch, room))
        })
    }

    fn encode<'r, R>(&self, rows: R, batch: &mut RowBatch) -> Result<(), TableError>
    where
        R: IntoIterator,
        R::Item: AsRef<[Datum<'r>]>,
    {
        for (row, row_number) in rows.into_iter().zip(1..) {
            batch
                .push(|out| self.codec.encode(row.as_ref(), out))
                .map_err(|source| TableError::Row { row_number, source })?;
        }
        Ok(())
    }

    fn check_event_times(&self, state: &State, batch: &RowBatch) -> Result<(), TableError> {
        for spec in state.schema.indexes.iter().filter(|spec| spec.declared) {
            for (row, row_number) in batch.rows().zip(1..) {
                state::check_event_time(&state.schema, spec, self.view(row), row_number)?;
            }
        }
        Ok(())
    }

    /// Takes room in the memory budget for rows, and looks for expired ones when it is time to, or
    /// when there is no room.
    fn begin(&self, batch: &RowBatch) -> Result<(Shared<'_>, Room<'_>), TableError> {
        // Relaxed: when exactly a collection happens does not matter.
        if self.until_collection.load(Ordering::Relaxed) <= 0 {
            self.collect_expired();
        }
        let shared = self.share();
        self.check_open()?;
        if let Ok(room) = self.take_room(self.shared_state(&shared), batch) {
            return Ok((shared, room));
        }
        drop(shared);
        self.collect_expired();
        let shared = self.share();
        self.check_open()?;
        match self.take_room(self.shared_state(&shared), batch) {
            Ok(room) => Ok((shared, room)),
            Err(bytes) => Err(self.budget.refuse(bytes)),
        }
    }

    /// Takes room in the memory budget for rows, or says how much they need.
    fn take_room(&self, state: &State, batch: &RowBatch) -> Result<Room<'_>, u64> {
        let slot = |index: &Index| SLOT_BYTES + index.projection.size();
        let slots = state.present().map(|(_, index)| slot(index)).sum::<usize>();
        let bytes = number(batch.stored_size() + batch.len() * slots);
        if batch.is_empty() || self.budget.reserve(bytes) {
            return Ok(Room { table: self, bytes, grown: 0 });
        }
        Err(bytes)
    }

    /// Gives the rows of the scratch their arrival and makes them visible. The state cannot
    /// change meanwhile.
    fn store(&self, state: &State, scratch: &mut Scratch, mut room: Room<'_>) -> u64 {
        let count = number(scratch.batch.len());
        if count == 0 {
            return 0;
        }
        let mut turn = self.sequence.turn();
        let arrival_ms = turn.arrival_ms(self.clock.now_ms());
        let first = self.arrivals.take(count);
        let (position, grown) = state.log.append(&scratch.batch, first, arrival_ms);
        // Dropped last, also when what follows panics: later appends wait for it.
        let _in_flight = turn.end_at(first + count);
        room.grown = grown + self.publish(state, scratch, (position, arrival_ms));
        // Relaxed: when exactly a collection happens does not matter.
        self.until_collection.fetch_sub(signed(scratch.batch.len()), Ordering::Relaxed);
        count
    }

    /// Puts the rows of an append into every series, and returns how many bytes more these take.
    fn publish(
        &self,
        state: &State,
        scratch: &mut Scratch,
        (mut position, arrival_ms): (LogPosition, i64),
    ) -> i64 {
        let mut grown = 0;
        let mut left = scratch.batch.len();
        while left > 0 {
            let guard = lockstep_series::pin();
            let mut rows = state.log.rows_from(position, &guard);
            let mut guarded = left.min(GUARD_ROWS);
            left -= guarded;
            while guarded > 0 {
                let mut group = [None; GROUP_ROWS];
                let count = guarded.min(GROUP_ROWS);
                group[..count].fill_with(|| rows.next_row());
                guarded -= count;
                for (spec, index) in state.present() {
                    let group = group[..count].iter().flatten().copied();
                    let timed = group
                        .map(|row| (state::event_time(spec, self.view(row), || arrival_ms), row));
                    let into = (spec, &*index.series);
                    grown += self.insert_group(into, timed, (&mut scratch.lookup, &guard));
                }
            }
            position = rows.position();
            if scratch.batch.len() > 1 {
                // What late rows left is freed now: by itself the collector looks once in 128 guards.
                guard.flush();
            }
        }
        grown
    }

    /// Puts some rows with their event times into a series, and returns how many bytes more it
    /// takes. The rows are in a log that the series shares a state with, or will.
    pub(crate) fn insert_group<'g>(
        &self,
        (spec, series): (&IndexSpec, &Series),
        rows: impl Iterator<Item = (i64, RowRef<'g>)> + Clone,
        (lookup, guard): (&mut Lookup, &Guard),
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
            let key = &lookup.keys[key.clone()];
            // SAFETY: the row is in the state's log, whose blocks are retired only after every
            // series leads to none of their rows, or together with the series (`retention`,
            // `change`).
            grown += unsafe { series.insert((*hash, key), event_time, row, guard) };
        }
        grown
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a count fits 63 bits")
}
