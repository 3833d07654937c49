//! The changes of a table as they are in the log, and logging them.
//!
//! Each record is one change of one table, and says everything on which its result depends: the time
//! and the arrival as of which rows had expired, and the rule by which each index keeps rows. Applied
//! again in the same order (`replay`), the records make the same table. The catalog's records are
//! `engine`'s, and so is what the condition of a DELETE means.
//!
//! # Layout
//!
//! ```text
//! 1 ROWS         u64 table | i64 time of arrival in ms | rows
//! 2 ROWS_PART    the same: rows of a larger append, which a ROWS_END makes valid
//! 3 ROWS_END     u64 table | i64 time of arrival in ms | u64 position of the first part | rows
//! 4 INDEXES      u64 table | JSON of `LoggedIndexes`
//! 5 DELETE       u64 table | u64 arrival | i64 time in ms, both of the horizon | condition
//! 6 TRUNCATE     u64 table
//!
//! row            u64: 48 bits zero, 16 bits length; where that is 0xffff, u32 length follows; bytes
//! ```
//!
//! Numbers are little-endian. A record of rows takes a position for each row, any other one position.

use std::{fmt, sync::Arc};

use lockstep_host::failpoint;
use lockstep_row::{IncludedColumn, IndexSpec};
use lockstep_series::RowBatch;
use lockstep_wal::{Durability, Group, Log, RecordKind};
use serde::{Deserialize, Serialize};

use crate::{
    Table, TableError,
    draft::TableDraft,
    durability::durability,
    retention::Horizon,
    state::{self, Origin},
    table::number,
};

/// Rows that become visible.
pub(crate) const ROWS: RecordKind = 1;
/// Rows that become visible with later ones.
pub(crate) const ROWS_PART: RecordKind = 2;
/// The last rows of an append in parts.
pub(crate) const ROWS_END: RecordKind = 3;
/// The indexes of a table, all of them.
pub(crate) const INDEXES: RecordKind = 4;
/// A DELETE.
pub(crate) const DELETE: RecordKind = 5;
/// A TRUNCATE.
pub(crate) const TRUNCATE: RecordKind = 6;

/// Why a change was not logged.
#[derive(Debug, Clone)]
pub struct LogFailure(Arc<lockstep_wal::Error>);

impl LogFailure {
    /// Returns whether nothing may be written.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(*self.0, lockstep_wal::Error::ReadOnly { .. })
    }

    /// Returns the error of the log.
    pub fn error(&self) -> &lockstep_wal::Error {
        &self.0
    }
}

impl From<lockstep_wal::Error> for LogFailure {
    fn from(error: lockstep_wal::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for LogFailure {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for LogFailure {}

impl fmt::Display for LogFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LogFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// A record of a table, read from the log.
#[derive(Debug)]
pub struct TableRecord<'p> {
    /// The table's id.
    pub table: u64,
    /// The change.
    pub change: TableChange<'p>,
}

/// A change of a table.
#[derive(Debug)]
pub enum TableChange<'p> {
    /// Rows were appended.
    Rows(LoggedRows<'p>),
    /// The table has these indexes from now on.
    Indexes(LoggedIndexes),
    /// Rows were deleted.
    Delete {
        /// Which rows had expired.
        horizon: Horizon,
        /// The condition, as [`Table::delete_logged`] was given it.
        condition: &'p [u8],
    },
    /// Every row was removed.
    Truncate,
}

/// Rows of an append.
#[derive(Debug)]
pub struct LoggedRows<'p> {
    pub(crate) arrival_ms: i64,
    pub(crate) stored: &'p [u8],
    pub(crate) part: RowsPart,
}

/// Which part of an append rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowsPart {
    /// All of it.
    Whole,
    /// One that is followed by others.
    Part,
    /// The last one; the first has this position.
    Last { first: u64 },
}

impl RowsPart {
    /// Returns the kind of a record of such rows.
    pub(crate) fn kind(self) -> RecordKind {
        match self {
            Self::Whole => ROWS,
            Self::Part => ROWS_PART,
            Self::Last { .. } => ROWS_END,
        }
    }
}

/// All indexes of a table, by position, and which rows had expired when it got them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIndexes {
    pub(crate) horizon: Horizon,
    pub(crate) indexes: Vec<LoggedIndex>,
}

/// When a change of the indexes is to be in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexLogging {
    /// Before it is made.
    Required,
    /// Where the log takes nothing, before the next change of the indexes.
    Deferred,
}

/// An index of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoggedIndex {
    pub(crate) spec: IndexSpec,
    pub(crate) origin: Origin,
    pub(crate) included: Vec<IncludedColumn>,
}

impl LoggedIndex {
    /// Fails when the table cannot have the index.
    pub(crate) fn check(&self, table: &Table) -> Result<(), TableError> {
        let columns = &table.schema().columns;
        if self.spec.is_removed() != (self.origin == Origin::Removed) {
            return Err(TableError::IndexMissing { name: self.spec.name.clone() });
        }
        state::check_spec(columns, &self.spec)?;
        let mut included = self.included.iter().map(|included| included.column);
        included.find(|position| *position >= columns.len()).map_or(Ok(()), |position| {
            let index = self.spec.name.clone();
            Err(TableError::ColumnMissing { index, position, columns: columns.len() })
        })
    }
}

/// A record that does not have the form of its kind, although its checksum is right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid record of kind {kind}: {what}")]
pub struct RecordError {
    /// The kind.
    pub kind: RecordKind,
    /// What is wrong.
    pub what: String,
}

impl<'p> TableRecord<'p> {
    /// Reads a record; `None` when its kind is not one of a table.
    pub fn read(kind: RecordKind, payload: &'p [u8]) -> Result<Option<Self>, RecordError> {
        if !(ROWS..=TRUNCATE).contains(&kind) {
            return Ok(None);
        }
        let fail = |what: &str| RecordError { kind, what: what.to_owned() };
        let mut fields = Fields(payload);
        let short = || fail("the record is too short");
        let table = fields.next().ok_or_else(short)?;
        let mut next = || fields.next().ok_or_else(short);
        let change = match kind {
            ROWS | ROWS_PART | ROWS_END => {
                let arrival_ms = next()?.cast_signed();
                let part = match kind {
                    ROWS => RowsPart::Whole,
                    ROWS_PART => RowsPart::Part,
                    _ => RowsPart::Last { first: next()? },
                };
                TableChange::Rows(LoggedRows { arrival_ms, part, stored: fields.0 })
            }
            INDEXES => {
                let read = serde_json::from_slice(fields.0);
                TableChange::Indexes(read.map_err(|error| fail(&error.to_string()))?)
            }
            DELETE => {
                let horizon = Horizon { visible_arrival: next()?, now_ms: next()?.cast_signed() };
                TableChange::Delete { horizon, condition: fields.0 }
            }
            _ => TableChange::Truncate,
        };
        Ok(Some(Self { table, change }))
    }
}

/// Bytes that are read number by number.
struct Fields<'p>(&'p [u8]);

impl Fields<'_> {
    /// Reads the next number, if there is one.
    fn next(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }
}

impl LoggedIndexes {
    /// Describes the indexes of a draft.
    pub(crate) fn of(draft: &TableDraft, horizon: Horizon) -> Self {
        let indexes = draft.indexes.iter().map(|index| LoggedIndex {
            spec: index.spec.clone(),
            origin: index.origin,
            included: index.projection.columns().collect(),
        });
        Self { horizon, indexes: indexes.collect() }
    }
}

/// What a table appends to the log for an append, made outside of any lock.
#[derive(Debug, Default)]
pub(crate) struct RowsPayload {
    bytes: Vec<u8>,
    arrival_ms: i64,
}

impl RowsPayload {
    /// Makes the payload of rows that arrive now.
    pub(crate) fn set(&mut self, table: u64, arrival_ms: i64, batch: &RowBatch) {
        self.bytes.clear();
        write_rows(&mut self.bytes, table, arrival_ms, RowsPart::Whole, batch);
        self.arrival_ms = arrival_ms;
    }

    /// Changes the time of arrival.
    pub(crate) fn set_arrival_ms(&mut self, arrival_ms: i64) {
        debug_assert!(self.bytes.len() >= 16, "the payload was set");
        self.bytes[8..16].copy_from_slice(&arrival_ms.to_le_bytes());
        self.arrival_ms = arrival_ms;
    }

    pub(crate) fn arrival_ms(&self) -> i64 {
        self.arrival_ms
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Writes the payload of a record of rows.
pub(crate) fn write_rows(
    payload: &mut Vec<u8>,
    table: u64,
    arrival_ms: i64,
    part: RowsPart,
    batch: &RowBatch,
) {
    payload.reserve(3 * size_of::<u64>() + batch.stored_size());
    payload.extend_from_slice(&table.to_le_bytes());
    payload.extend_from_slice(&arrival_ms.to_le_bytes());
    if let RowsPart::Last { first } = part {
        payload.extend_from_slice(&first.to_le_bytes());
    }
    payload.extend_from_slice(batch.stored_bytes());
}

/// A table's place in the log.
#[derive(Clone, Copy)]
pub(crate) struct TableLog<'a> {
    pub(crate) log: &'a dyn Log,
    pub(crate) table: u64,
    /// An append of more bytes is logged in parts.
    pub(crate) part_bytes: usize,
}

impl TableLog<'_> {
    /// Logs rows in as many groups as they need, all before any is stored. Returns the position of the
    /// first row of each batch.
    pub(crate) fn append_batches(
        self,
        batches: &[RowBatch],
        arrival_ms: i64,
    ) -> Result<Vec<u64>, LogFailure> {
        debug_assert!(batches.iter().all(|batch| !batch.is_empty()), "a record has rows");
        let mut firsts = Vec::with_capacity(batches.len());
        let mut rest = batches;
        while !rest.is_empty() {
            if !firsts.is_empty() {
                failpoint::reach("table.part_logged");
            }
            let mut bytes = 0;
            let is_within = |batch: &&RowBatch| {
                bytes += batch.stored_size();
                bytes <= self.part_bytes
            };
            let count = rest.iter().take_while(is_within).count().max(1);
            let (part, after) = rest.split_at(count);
            let kind = match (firsts.first(), after.is_empty()) {
                (_, false) => RowsPart::Part,
                (None, true) => RowsPart::Whole,
                (Some(first), true) => RowsPart::Last { first: *first },
            };
            self.append_part(part, arrival_ms, kind, &mut firsts)?;
            rest = after;
        }
        Ok(firsts)
    }

    /// Logs batches as one group, and adds the position of each.
    pub(crate) fn append_part(
        self,
        batches: &[RowBatch],
        arrival_ms: i64,
        part: RowsPart,
        firsts: &mut Vec<u64>,
    ) -> Result<(), LogFailure> {
        let payloads: Vec<Vec<u8>> = batches
            .iter()
            .map(|batch| {
                let mut payload = Vec::new();
                write_rows(&mut payload, self.table, arrival_ms, part, batch);
                payload
            })
            .collect();
        let mut group = Group::new();
        for (batch, payload) in batches.iter().zip(&payloads) {
            group.push(part.kind(), rows_of(batch), payload);
        }
        let mut next = self.log.append(&group, &mut |_| ())?.start;
        for batch in batches {
            firsts.push(next);
            next += number(batch.len());
        }
        Ok(())
    }

    /// Logs a change and waits until it is as durable as the thread's writes are to be.
    pub(crate) fn append_change(self, kind: RecordKind, payload: &[u8]) -> Result<(), LogFailure> {
        let mut bytes = self.table.to_le_bytes().to_vec();
        bytes.extend_from_slice(payload);
        let positions = self.log.append(&Group::of(kind, 1, &bytes), &mut |_| ())?;
        self.wait(positions.end)
    }

    /// Logs a list of indexes.
    fn append_indexes(self, indexes: &LoggedIndexes) -> Result<(), LogFailure> {
        let json = serde_json::to_vec(indexes).expect("names are text");
        self.append_change(INDEXES, &json)
    }

    /// Waits until everything before a position is as durable as the thread's writes are to be.
    pub(crate) fn wait(self, end: u64) -> Result<(), LogFailure> {
        if self.waits_for_disk() {
            self.log.wait(end, Durability::Disk)?;
        }
        Ok(())
    }

    /// Returns whether the thread's writes are to be on the disk before they are acknowledged.
    pub(crate) fn waits_for_disk(self) -> bool {
        match durability() {
            Durability::Disk => true,
            Durability::Os | Durability::Memory => false,
        }
    }
}

/// Returns the number of rows of a batch.
pub(crate) fn rows_of(batch: &RowBatch) -> u32 {
    u32::try_from(batch.len()).expect("a batch has fewer than 2^32 rows")
}

impl Table {
    /// Returns the table's place in the log; `None` when its changes are not logged.
    #[inline]
    pub(crate) fn log(&self) -> Option<TableLog<'_>> {
        let log = &**self.arrivals.log()?;
        Some(TableLog { table: self.log_id?, log, part_bytes: self.arrivals.part_bytes() })
    }

    /// Logs the indexes of a draft that the table is about to get, if it is another list than before.
    /// An error counts only when a rule changes: without one, the same rows are live in any case; and
    /// only where logging is required.
    pub(crate) fn log_indexes(
        &self,
        before: &TableDraft,
        draft: &TableDraft,
        horizon: Horizon,
        logging: IndexLogging,
    ) -> Result<(), TableError> {
        let Some(log) = self.log() else { return Ok(()) };
        let logged = LoggedIndexes::of(draft, horizon);
        if logged == LoggedIndexes::of(before, horizon)
            || failpoint::is_seeded("indexes_not_logged")
            || (failpoint::is_seeded("widening_not_logged") && before.is_widened(draft))
        {
            return Ok(());
        }
        let mut unlogged = self.unlogged_indexes.lock();
        // First what expired by a rule that is not logged yet, so that no wider one brings it back.
        let earlier = unlogged.as_ref().map_or(Ok(()), |earlier| log.append_indexes(earlier));
        let appended = earlier.and_then(|()| log.append_indexes(&logged));
        if appended.is_ok() {
            *unlogged = None;
        } else if logging == IndexLogging::Deferred {
            *unlogged = Some(logged);
            return Ok(());
        }
        if draft.has_rules_of(before) { Ok(()) } else { appended.map_err(TableError::Log) }
    }

    /// Logs a DELETE.
    pub(crate) fn log_delete(&self, horizon: Horizon, condition: &[u8]) -> Result<(), TableError> {
        let Some(log) = self.log() else { return Ok(()) };
        let mut payload = horizon.visible_arrival.to_le_bytes().to_vec();
        payload.extend_from_slice(&horizon.now_ms.to_le_bytes());
        payload.extend_from_slice(condition);
        log.append_change(DELETE, &payload).map_err(TableError::Log)
    }

    /// Logs a TRUNCATE.
    pub(crate) fn log_truncate(&self) -> Result<(), TableError> {
        let Some(log) = self.log().filter(|_| !failpoint::is_seeded("truncate_not_logged")) else {
            return Ok(());
        };
        log.append_change(TRUNCATE, &[]).map_err(TableError::Log)
    }
}
