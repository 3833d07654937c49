//! Applying the records of a log, or of a checkpoint, to tables that nobody reads yet.
//!
//! `engine` opens a directory with it: it finds the table of each record, in the order of the log, and
//! gives the records of one table to one [`TableReplay`]. Everything is done by what serves writes as well.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use lockstep_host::{QueryContext, failpoint};
use lockstep_row::{Projection, RowView};
use lockstep_series::{LogPosition, RowBatch, RowLog};

use crate::{
    Horizon, LoggedIndexes, LoggedRows, Table, TableError,
    append::{ArrivedRows, GroupKeys, Reservation},
    disk::{DiskRows, TableParts},
    draft::{DraftedIndex, TableDraft},
    record::RowsPart,
    table::number,
};

/// Why a record cannot be applied: the log is not one that this table wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The bytes of rows are not rows of the table.
    #[error("the rows at position {position} are not valid rows of the table")]
    Rows {
        /// The position of the record.
        position: u64,
    },
    /// The table refuses what it had accepted.
    #[error("the change at position {position} was rejected")]
    Refused {
        /// The position of the record.
        position: u64,
        /// What the table says.
        source: TableError,
    },
}

/// Rows that a replay has stored: they are in no index yet.
#[derive(Debug, Clone, Copy)]
pub struct StoredRows(ArrivedRows);

/// A part of the keys of every index: those whose hash leaves the remainder `number` when it is divided
/// by `count`. Threads that insert different parts share no lock where `count` is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyShard {
    /// Less than `count`.
    pub number: usize,
    /// The number of parts.
    pub count: usize,
}

impl KeyShard {
    /// All keys.
    pub const ALL: Self = Self { number: 0, count: 1 };

    #[expect(clippy::cast_possible_truncation, reason = "the lowest bits decide")]
    fn contains(self, hash: u64) -> bool {
        hash as usize % self.count == self.number
    }
}

/// The replay of the records of one table, in the order of their positions.
///
/// Rows are stored in the order of their arrival, and are inserted into the indexes afterwards, by
/// [`Table::insert_stored`]: in the order in which they were stored, each shard of the keys by a thread of
/// its own if there are several.
#[derive(Debug, Default)]
pub struct TableReplay {
    /// What was stored and is still to be inserted.
    stored: Vec<StoredRows>,
    /// Parts of an append whose end has not come yet, oldest first.
    parts: VecDeque<RowsToStore>,
    /// The latest time at which something was decided.
    now_ms: Option<i64>,
}

/// Rows of one or several records with consecutive positions.
#[derive(Debug)]
pub struct RowsToStore {
    position: u64,
    arrival_ms: i64,
    part: RowsPart,
    batch: RowBatch,
}

impl RowsToStore {
    /// Reads the rows of a record, which says how many there are, and whose first one has this
    /// position.
    pub fn read(position: u64, rows: u32, logged: &LoggedRows<'_>) -> Result<Self, ReplayError> {
        let LoggedRows { arrival_ms, stored, part } = *logged;
        let has_all =
            |batch: &RowBatch| !batch.is_empty() && number(batch.len()) == u64::from(rows);
        let batch = RowBatch::from_stored(stored.to_vec()).filter(has_all);
        let batch = batch.ok_or(ReplayError::Rows { position })?;
        Ok(Self { position, arrival_ms, part, batch })
    }

    /// Adds the rows of the record at a position if they follow these, and arrived at the same time;
    /// otherwise gives them back.
    pub fn merge(&mut self, other: Self) -> Option<Self> {
        let is_next = other.position == self.position + number(self.batch.len())
            && other.arrival_ms == self.arrival_ms
            && (other.part, self.part) == (RowsPart::Whole, RowsPart::Whole)
            && self.batch.len() < MERGED_ROWS_MAX;
        if !is_next {
            return Some(other);
        }
        self.batch.extend(&other.batch);
        None
    }
}

/// Rows that have their arrivals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivedBatch {
    pub(crate) count: usize,
    /// The arrival after the last one.
    pub(crate) end: u64,
    pub(crate) arrival_ms: i64,
}

/// So many rows of records are stored together.
const MERGED_ROWS_MAX: usize = 4_096;

impl TableReplay {
    /// Returns what was stored since the last call, to be inserted into the indexes.
    pub fn take_stored(&mut self) -> Vec<StoredRows> {
        std::mem::take(&mut self.stored)
    }

    /// Stores rows.
    pub fn store(&mut self, table: &Table, rows: RowsToStore) -> Result<(), ReplayError> {
        self.note_time(rows.arrival_ms);
        match rows.part {
            RowsPart::Whole => {}
            RowsPart::Part if failpoint::is_seeded("last_part_not_needed") => {}
            RowsPart::Part => {
                self.parts.push_back(rows);
                return Ok(());
            }
            RowsPart::Last { first } => {
                // An append that failed half-way has left its parts, and they come before.
                self.parts.retain(|part| part.position >= first);
                for part in std::mem::take(&mut self.parts) {
                    self.store_now(table, part)?;
                }
            }
        }
        self.store_now(table, rows)
    }

    fn store_now(&mut self, table: &Table, rows: RowsToStore) -> Result<(), ReplayError> {
        let RowsToStore { position, arrival_ms, batch, .. } = rows;
        let is_next = position >= table.commit_queue.visible();
        if !is_next || !batch.rows().all(|row| table.codec.is_row(row.bytes())) {
            return Err(ReplayError::Rows { position });
        }
        let arrival_ms = if failpoint::is_seeded("arrival_time_not_restored") {
            table.clock.now_ms()
        } else {
            arrival_ms
        };
        let end = position + number(batch.len());
        let append = |log: &RowLog| log.append(&batch, position, arrival_ms);
        self.store_arrived(table, ArrivedBatch { count: batch.len(), end, arrival_ms }, append)
    }

    /// Stores rows that have their arrivals. Nobody reads, and nothing else is appended, so that they may
    /// count as visible before they are in the indexes.
    pub(crate) fn store_arrived(
        &mut self,
        table: &Table,
        ArrivedBatch { count, end, arrival_ms }: ArrivedBatch,
        append: impl FnOnce(&RowLog) -> (LogPosition, i64),
    ) -> Result<(), ReplayError> {
        let shared = table.lock_shared();
        let state = table.shared_state(&shared);
        let mut reservation = Reservation::of_restored(table);
        let damaged = || ReplayError::Refused { position: end, source: TableError::Damaged };
        let mut queue = table.commit_queue.lock().ok_or_else(damaged)?;
        queue.arrival_ms(arrival_ms);
        let in_flight = queue.take(end);
        let (position, grown) = append(&state.log);
        drop(queue);
        reservation.add(grown);
        self.stored.push(StoredRows(ArrivedRows { position, count, arrival_ms }));
        if in_flight.commit(0) { Ok(()) } else { Err(damaged()) }
    }

    /// Gives an empty table the parts of a checkpoint, which have every row before a position. Those of a memory
    /// table are to be put into memory ([`Table::load_files`]).
    pub fn parts(
        &mut self,
        table: &Table,
        parts: TableParts,
        is_of_memory: bool,
    ) -> Result<(), ReplayError> {
        let position = parts.end();
        let damaged = || ReplayError::Rows { position };
        table.change_alone(|change| {
            let state = change.state();
            let newest = |at: usize| parts.runs(at).iter().map(|run| run.counts().event_time_max);
            let newest: Vec<_> =
                (0..state.indexes.len()).filter_map(|at| Some((at, newest(at).max()?))).collect();
            let exclusive = table.lock_exclusive();
            if position > 0 {
                let mut queue = table.commit_queue.lock().ok_or_else(damaged)?;
                // One that cannot be read is found by who reads it.
                if let Ok(Some(last_ms)) = parts.last_arrival_ms(&table.codec) {
                    queue.arrival_ms(last_ms);
                }
                let in_flight = queue.take(position);
                drop(queue);
                if !in_flight.commit(0) {
                    return Err(damaged());
                }
            }
            // Relaxed: nobody else has the table yet.
            table.is_to_load.store(is_of_memory, Ordering::Relaxed);
            let disk = DiskRows { frozen: None, parts: Arc::new(parts) };
            table.replace_state(&exclusive, state.with_disk(Some(disk)));
            let state = table.exclusive_state(&exclusive);
            newest.iter().for_each(|(at, event_time)| state.newest.note(*at, *event_time));
            Ok(())
        })
    }

    /// Gives the table other indexes.
    pub fn indexes(
        &mut self,
        table: &Table,
        position: u64,
        logged: &LoggedIndexes,
    ) -> Result<(), ReplayError> {
        self.note_time(logged.horizon.now_ms);
        let checked = logged.indexes.iter().try_for_each(|index| index.check(table));
        checked.map_err(|source| ReplayError::Refused { position, source })?;
        let drafted = logged.indexes.iter().map(|index| DraftedIndex {
            spec: index.spec.clone(),
            origin: index.origin,
            projection: Projection::default().with(&table.codec, &index.included).into(),
        });
        let draft = TableDraft { indexes: drafted.collect() };
        let realize =
            || table.change_alone(|change| table.realize_as_of(change, &draft, logged.horizon));
        let realized = QueryContext::new().run(|| in_memory_if_needed(table, realize));
        realized.map_err(|source| ReplayError::Refused { position, source })
    }

    /// Deletes the rows for which `is_deleted` holds.
    pub fn delete(
        &mut self,
        table: &Table,
        position: u64,
        horizon: Horizon,
        is_deleted: impl Fn(RowView<'_>) -> bool,
    ) -> Result<(), ReplayError> {
        self.note_time(horizon.now_ms);
        let horizon = if failpoint::is_seeded("delete_as_of_another_time") {
            Horizon { now_ms: i64::MAX, ..horizon }
        } else {
            horizon
        };
        let delete = || table.delete_as_of(horizon, &is_deleted, &[]);
        let deleted = QueryContext::new().run(|| in_memory_if_needed(table, delete));
        deleted.map(|_| ()).map_err(|source| ReplayError::Refused { position, source })
    }

    /// Removes every row.
    pub fn truncate(&mut self, table: &Table, position: u64) -> Result<(), ReplayError> {
        let truncated = QueryContext::new().run(|| table.truncate());
        truncated.map_err(|source| ReplayError::Refused { position, source })
    }

    /// Ends the replay: time does not go back behind what was decided before.
    pub fn finish(&mut self, table: &Table) {
        self.parts.clear();
        if let Some(now_ms) = self.now_ms {
            table.note_time(now_ms);
        }
    }

    /// Notes a time before which no snapshot of the table is to be.
    pub fn note_time(&mut self, now_ms: i64) {
        self.now_ms = self.now_ms.max(Some(now_ms));
    }
}

/// Makes a change of a table; where the directory is read-only and the change has to write files, once more with the
/// rows of the table in memory.
fn in_memory_if_needed<T>(
    table: &Table,
    change: impl Fn() -> Result<T, TableError>,
) -> Result<T, TableError> {
    match change() {
        Err(TableError::Part(failure)) if failure.is_read_only() => {
            table.move_to_memory()?;
            change()
        }
        changed => changed,
    }
}

/// Memory that [`Table::insert_stored`] uses, which is kept for the next call.
#[derive(Debug, Default)]
pub struct InsertMemory {
    group_keys: GroupKeys,
}

impl Table {
    /// Inserts rows that a replay has stored into every index, of each those whose keys are in a shard.
    /// For one shard, calls come in the order in which the rows were stored.
    pub fn insert_stored(
        &self,
        StoredRows(arrived): StoredRows,
        shard: KeyShard,
        memory: &mut InsertMemory,
    ) {
        debug_assert!(shard.number < shard.count, "a shard is one of its number");
        let shared = self.lock_shared();
        let state = self.shared_state(&shared);
        let mut reservation = Reservation::of_restored(self);
        let (keys, reservation) = (&mut memory.group_keys, &mut reservation);
        if shard == KeyShard::ALL {
            self.insert_everywhere(state, keys, arrived, reservation, |_| true);
        } else {
            self.insert_everywhere(state, keys, arrived, reservation, |hash| shard.contains(hash));
        }
    }
}
