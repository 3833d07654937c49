//! Applying the records of a log, or of a checkpoint, to tables that nobody reads yet.
//!
//! `engine` opens a directory with it: it finds the table of each record, in the order of the log, and
//! gives the records of one table to one [`TableReplay`]. Everything is done by what serves writes as well.

use std::collections::VecDeque;

use lockstep_host::{QueryContext, failpoint};
use lockstep_row::{Projection, RowView};
use lockstep_series::RowBatch;

use crate::{
    Horizon, LoggedIndexes, LoggedRows, Table, TableError,
    append::{ApplyMemory, FirstArrivals, StampedRows},
    draft::{DraftedIndex, TableDraft},
    record::RowsPart,
    table::number,
};

/// Why a record cannot be applied: the log is not one that this table wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The bytes of rows are not rows of the table.
    #[error("the rows at position {position} are not rows of the table")]
    Rows {
        /// The position of the record.
        position: u64,
    },
    /// The table refuses what it had accepted.
    #[error("the change at position {position} was refused")]
    Refused {
        /// The position of the record.
        position: u64,
        /// What the table says.
        source: TableError,
    },
}

/// The replay of the records of one table, in the order of their positions.
#[derive(Debug, Default)]
pub struct TableReplay {
    memory: ApplyMemory,
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

/// So many rows of records are stored together.
const MERGED_ROWS_MAX: usize = 4_096;

impl TableReplay {
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
        let stamped = StampedRows { firsts: FirstArrivals::One(position), arrival_ms };
        let shared = table.lock_shared();
        let state = table.shared_state(&shared);
        let stored = table.apply_logged(state, batch, &stamped, &mut self.memory);
        stored.map_err(|source| ReplayError::Refused { position, source })
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
        let realized = QueryContext::new().run(|| {
            table.change_alone(|change| table.realize_as_of(change, &draft, logged.horizon))
        });
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
        let deleted = QueryContext::new().run(|| table.delete_as_of(horizon, is_deleted, &[]));
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
