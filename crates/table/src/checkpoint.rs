//! What a checkpoint holds of a table: its indexes, and its rows in blocks of bytes.
//!
//! `engine` decides when, and where the files go. A [`FrozenTable`] is the table at one position of
//! the log: all of its records before that position are in it, none after. Taking one waits for
//! nobody; writing its rows ([`FrozenTable::flush`]) holds up neither readers nor writers.
//!
//! Rows that expire while they are read may be missing. That is right as long as time does not go back
//! behind the moment at which they had expired ([`FrozenTable::now_ms`]).
//!
//! # Layout of a block
//!
//! ```text
//! block     run, run, ...: rows in order of arrival
//! run       i64 time of arrival in ms | u32 bytes of the rows | rows that arrived then
//! row       u64: 48 bits arrival, 16 bits length; where that is 0xffff, u32 length follows; bytes
//! ```
//!
//! Numbers are little-endian.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use lockstep_row::TableSchema;
use lockstep_series::{LogRow, RowBatch, RowLog};

use crate::{
    Horizon, LoggedIndexes, ReplayError, Table, TableParts, TableReplay, arrival_set::ArrivalSet,
    disk::DiskRows, draft::TableDraft, replay::ArrivedBatch, state::TableState, table::number,
};

/// What precedes the rows of a run.
const RUN_HEADER_BYTES: usize = size_of::<i64>() + size_of::<u32>();

/// A table as it was at one position of the log.
#[derive(Debug)]
pub struct FrozenTable {
    table: Arc<Table>,
    schema: Arc<TableSchema>,
    indexes: LoggedIndexes,
    rows: Arc<RowLog>,
    removed_rows: Arc<ArrivalSet>,
    /// The state of a disk table, whose rows were frozen.
    disk: Option<TableState>,
    /// The files of a memory table.
    checkpointed: Option<Arc<TableParts>>,
    is_of_memory: bool,
    position: u64,
    generation: u64,
}

/// Rows of a table as bytes.
#[derive(Debug, Default)]
pub struct CheckpointBlock {
    bytes: Vec<u8>,
    /// Where the last run begins, and when its rows arrived.
    run: Option<OpenRun>,
    rows: u64,
    /// The arrival of the first row, and the one after the last.
    arrivals: Range<u64>,
}

/// The run to which rows are added.
#[derive(Debug, Clone, Copy)]
struct OpenRun {
    start: usize,
    arrival_ms: i64,
}

impl Table {
    /// Returns the table as it is at this moment of the log. The rows of a disk table are frozen: they are to be
    /// flushed ([`FrozenTable::flush`]); it waits for a change of the table that is being made.
    pub fn freeze(self: &Arc<Self>) -> FrozenTable {
        // The state is not replaced meanwhile, so that no change of the table takes a position.
        let shared = self.lock_shared();
        let state = self.shared_state(&shared);
        if state.disk.is_some() {
            drop(shared);
            // Who puts the table into memory holds the lock.
            return self.change_alone(|_| self.freeze_disk());
        }
        let position = self.commit_queue.first_in_flight(|| self.arrivals.next());
        self.frozen(state, position)
    }

    fn freeze_disk(self: &Arc<Self>) -> FrozenTable {
        let exclusive = self.lock_exclusive();
        let is_on_disk = self.exclusive_state(&exclusive).disk.is_some();
        let position = match is_on_disk {
            true => self.rotate(&exclusive),
            false => self.commit_queue.first_in_flight(|| self.arrivals.next()),
        };
        self.frozen(self.exclusive_state(&exclusive), position)
    }

    fn frozen(self: &Arc<Self>, state: &TableState, position: u64) -> FrozenTable {
        FrozenTable {
            table: Arc::clone(self),
            schema: Arc::clone(&state.schema),
            indexes: LoggedIndexes::of(&TableDraft::of(state), self.horizon_now()),
            rows: Arc::clone(&state.log),
            removed_rows: Arc::clone(&self.removed_rows.lock()),
            disk: state.disk.is_some().then(|| state.clone()),
            checkpointed: self.checkpointed(),
            is_of_memory: self.is_of_memory(),
            position,
            // Relaxed: written under the exclusive schema lock.
            generation: self.generation.load(Ordering::Relaxed),
        }
    }

    /// Returns how often rows were removed otherwise than by expiring.
    pub fn generation(&self) -> u64 {
        // Relaxed: a number to compare.
        self.generation.load(Ordering::Relaxed)
    }
}

impl FrozenTable {
    /// Returns the position: records of the table before it are in what was frozen.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Returns the state of a disk table, and its rows on the disk.
    pub(crate) fn disk_state(&self) -> Option<(&TableState, &DiskRows)> {
        let state = self.disk.as_ref()?;
        Some((state, state.disk.as_ref()?))
    }

    /// Returns the files of a memory table.
    pub(crate) fn checkpointed(&self) -> Option<&Arc<TableParts>> {
        self.checkpointed.as_ref()
    }

    /// Returns whether it was a memory table ([`Table::is_of_memory`]).
    pub fn is_of_memory(&self) -> bool {
        self.is_of_memory
    }

    /// Returns the horizon at which it was frozen.
    pub(crate) fn horizon(&self) -> Horizon {
        self.indexes.horizon
    }

    /// Returns the columns and the indexes.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// Returns the indexes as a log has them.
    pub fn indexes(&self) -> &LoggedIndexes {
        &self.indexes
    }

    /// Returns how often rows had been removed otherwise than by expiring: while the number is the
    /// same, each row that was there before is there, or has expired.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the latest time at which rows were removed that had expired, now or earlier.
    pub fn now_ms(&self) -> i64 {
        // Acquire: pairs with the Release in `note_horizon`.
        self.table.now_ms_min.load(Ordering::Acquire).max(self.indexes.horizon.now_ms)
    }

    /// Returns the number of rows in memory, without those that were frozen.
    pub(crate) fn row_count_in_memory(&self) -> u64 {
        number(self.rows.row_count(&lockstep_series::pin()))
    }

    /// Visits the next rows in memory with an arrival of at least `from`, up to `count` of them, until one fails.
    /// Returns the arrival after the last; `None` at the end.
    pub(crate) fn visit_rows_since<E>(
        &self,
        from: u64,
        count: usize,
        mut visit: impl FnMut(LogRow<'_>) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        debug_assert!(count > 0, "a step has a row");
        let guard = lockstep_series::pin();
        let mut next = None;
        for found in self.rows.rows_since(from, self.position, &guard).take(count) {
            next = Some(found.row.arrival() + 1);
            if !self.removed_rows.contains(found.row.arrival()) {
                visit(found)?;
            }
        }
        Ok(next)
    }
}

impl CheckpointBlock {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> u64 {
        self.rows
    }

    /// Returns the arrival of the first row, and the one after the last.
    pub fn arrivals(&self) -> Range<u64> {
        self.arrivals.clone()
    }

    /// Returns how many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        (self.run, self.rows, self.arrivals) = (None, 0, 0..0);
    }

    /// Adds a row, which arrived after those that are there.
    pub(crate) fn push(&mut self, found: LogRow<'_>) {
        let is_of_run = |run: OpenRun| run.arrival_ms == found.arrival_ms;
        if !self.run.is_some_and(is_of_run) {
            self.end_run();
            self.run = Some(OpenRun { start: self.bytes.len(), arrival_ms: found.arrival_ms });
            self.bytes.extend_from_slice(&found.arrival_ms.to_le_bytes());
            self.bytes.extend_from_slice(&[0; size_of::<u32>()]);
        }
        self.bytes.extend_from_slice(found.row.stored_bytes());
        if self.rows == 0 {
            self.arrivals.start = found.row.arrival();
        }
        debug_assert!(found.row.arrival() >= self.arrivals.end, "rows are in order of arrival");
        self.arrivals.end = found.row.arrival() + 1;
        self.rows += 1;
    }

    /// Writes the length of the last run.
    pub(crate) fn end_run(&mut self) {
        let Some(OpenRun { start, .. }) = self.run.take() else { return };
        let length = self.bytes.len() - start - RUN_HEADER_BYTES;
        let length = u32::try_from(length).expect("a block is shorter than 4 GiB and one row");
        let at = start + size_of::<i64>();
        self.bytes[at..at + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    }
}

/// Appends a run to the bytes of a block: rows with their arrivals, as they are stored.
pub(crate) fn push_run(block: &mut Vec<u8>, arrival_ms: i64, rows: &[u8]) {
    let length = u32::try_from(rows.len()).expect("a row is shorter than 4 GiB");
    block.extend_from_slice(&arrival_ms.to_le_bytes());
    block.extend_from_slice(&length.to_le_bytes());
    block.extend_from_slice(rows);
}

/// Splits the first run off the bytes of a block; `None` when they are not such.
pub(crate) fn next_run<'b>(block: &mut &'b [u8]) -> Option<(i64, &'b [u8])> {
    let (arrival_ms, rest) = block.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (rows, rest) = rest.split_at_checked(length)?;
    *block = rest;
    Some((i64::from_le_bytes(*arrival_ms), rows))
}

impl TableReplay {
    /// Stores the rows of a block, which have arrivals of a range and arrived after those that are
    /// stored. Returns how many there are.
    pub fn block(
        &mut self,
        table: &Table,
        bytes: &[u8],
        arrivals: &Range<u64>,
    ) -> Result<u64, ReplayError> {
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            let position = table.commit_queue.visible().max(arrivals.start);
            let (arrival_ms, rows) = next_run(&mut rest).ok_or(ReplayError::Rows { position })?;
            let batch = RowBatch::from_arrived(rows.to_vec(), position);
            let batch = batch.filter(|batch| {
                let is_in_range =
                    batch.rows().last().is_some_and(|row| row.arrival() < arrivals.end);
                is_in_range && batch.rows().all(|row| table.codec.is_row(row.bytes()))
            });
            let batch = batch.ok_or(ReplayError::Rows { position })?;
            let last = batch.rows().last().expect("a run has a row");
            let arrived = ArrivedBatch { count: batch.len(), end: last.arrival() + 1, arrival_ms };
            self.store_arrived(table, arrived, |log| log.append_arrived(&batch, arrival_ms))?;
            self.note_time(arrival_ms);
            count += number(batch.len());
        }
        Ok(count)
    }
}

impl Table {
    /// Returns the horizon of a snapshot taken now.
    pub(crate) fn horizon_now(&self) -> Horizon {
        let snapshot = self.snapshot();
        Horizon { visible_arrival: snapshot.visible_arrival(), now_ms: snapshot.now_ms() }
    }
}
